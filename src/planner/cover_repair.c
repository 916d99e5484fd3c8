/* Better answers from a good one: most of it is kept, the rest is searched for anew under a lower cap. What is kept is what
 * lies below a cut, which is lower in a random stretch of time; the answer is also turned upside down now and then, so that
 * any part of it may be the one that is made anew. */
#include "planner/search.h"
#include "planner/radix.h"
#include "base/internal.h"

enum { NODES_PER_ITEM = 6, PATIENCE = 24, SIDEWAYS = 7 };

struct wi_cover_repair {
    wi_cover *cover;
    int64_t *bottoms; /* by item: the answer */
    uint32_t *order;  /* items, the lowest bottom first */
    int64_t *tops;    /* by section */
    int64_t *cuts;    /* by section */
    wi_key *keys;
    int64_t height;
    int64_t step; /* how much lower the cap is */
    int failures; /* in a row */
    bool wanders;
};

wi_cover_repair *wi_cover_repair_create(wi_cover *cover)
{
    wi_cover_repair *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->cover = cover;
    r->bottoms = malloc(cover->count * sizeof *r->bottoms);
    r->order = malloc(cover->count * sizeof *r->order);
    r->tops = malloc(cover->sections * sizeof *r->tops);
    r->cuts = malloc(cover->sections * sizeof *r->cuts);
    r->keys = malloc(2 * (size_t)cover->count * sizeof *r->keys);
    if (r->bottoms && r->order && r->tops && r->cuts && r->keys)
        return r;
    wi_cover_repair_destroy(r);
    return NULL;
}

void wi_cover_repair_destroy(wi_cover_repair *repair)
{
    if (!repair)
        return;
    void *const all[] = {repair->bottoms, repair->order, repair->tops, repair->cuts, repair->keys, repair};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void sort_by_bottom(wi_cover_repair *r)
{
    for (uint32_t i = 0; i < r->cover->count; i++)
        r->keys[i] = (wi_key){(uint64_t)r->bottoms[i], i};
    wi_radix_sort(r->keys, r->keys + r->cover->count, r->cover->count);
    for (uint32_t i = 0; i < r->cover->count; i++)
        r->order[i] = r->keys[i].value;
}

/* Lets everything sink as far as it goes. */
static void settle(wi_cover_repair *r)
{
    sort_by_bottom(r);
    r->height = 0;
    memset(r->tops, 0, r->cover->sections * sizeof *r->tops);
    for (uint32_t k = 0; k < r->cover->count; k++) {
        const wi_cover_item *item = &r->cover->items[r->order[k]];
        int64_t floor = 0;
        for (uint32_t s = item->left; s < item->right; s++)
            floor = r->tops[s] > floor ? r->tops[s] : floor;
        for (uint32_t s = item->left; s < item->right; s++)
            r->tops[s] = floor + item->height;
        r->bottoms[r->order[k]] = floor;
        r->height = floor + item->height > r->height ? floor + item->height : r->height;
    }
    sort_by_bottom(r);
}

static void turn_over(wi_cover_repair *r)
{
    for (uint32_t i = 0; i < r->cover->count; i++)
        r->bottoms[i] = r->height - r->bottoms[i] - r->cover->items[i].height;
    settle(r);
}

static int64_t part_of(wi_cover_repair *r, int64_t whole)
{
    return (int64_t)((unsigned __int128)wi_cover_random(r->cover) * (uint64_t)(whole + 1) >> 64);
}

/* Everywhere the same one time in four. */
static void cut(wi_cover_repair *r)
{
    uint32_t sections = r->cover->sections;
    int64_t low = part_of(r, r->cover->cap), high = low;
    uint32_t left = 0, right = sections;
    if (part_of(r, 3) > 0) {
        left = (uint32_t)part_of(r, sections - 1);
        right = left + 1 + (uint32_t)part_of(r, sections / 2);
        high = part_of(r, 1) ? r->cover->cap : low + part_of(r, r->cover->cap - low);
    }
    for (uint32_t s = 0; s < sections; s++)
        r->cuts[s] = s >= left && s < right ? low : high;
}

static wi_cover_way random_way(wi_cover_repair *r)
{
    return (wi_cover_way){.height = (int8_t)part_of(r, 2),
                          .width = (int8_t)(part_of(r, 3) - 1),
                          .edges = (int8_t)part_of(r, 2),
                          .noise = (int8_t)(1 + part_of(r, 1)),
                          .weighted = part_of(r, 1),
                          .nodes = (uint64_t)NODES_PER_ITEM * r->cover->count};
}

void wi_cover_repair_begin(wi_cover_repair *repair, int64_t low)
{
    settle(repair);
    repair->step = repair->height - low;
    repair->failures = 0;
}

/* The step is halved when nothing is found for a while, and grows with each success. */
static void learn(wi_cover_repair *r, bool found)
{
    r->failures = found ? 0 : r->failures + 1;
    if (found)
        r->step += r->step / 2;
    else if (r->failures % PATIENCE == 0 && r->step > 1)
        r->step /= 2;
}

void wi_cover_repair_wander(wi_cover_repair *repair)
{
    repair->wanders = true;
}

wi_cover_answer wi_cover_repair_try(wi_cover_repair *repair, int64_t low, wi_work *work)
{
    wi_cover *cover = repair->cover;
    if (part_of(repair, 1))
        turn_over(repair);
    if (repair->height <= low)
        return WI_COVER_NONE;
    int64_t height = repair->height, lower = height - repair->step;
    bool sideways = repair->wanders && part_of(repair, SIDEWAYS - 1) == 0;
    if (sideways)
        wi_cover_limit_once(cover, height);
    else
        wi_cover_limit(cover, lower > low ? lower : low);
    cut(repair);
    wi_cover_before before = {repair->bottoms, repair->order, repair->cuts};
    wi_cover_way way = random_way(repair);
    wi_cover_answer answer = wi_cover_try(cover, &way, &before, work);
    if (answer == WI_COVER_FOUND) {
        memcpy(repair->bottoms, cover->bottoms, cover->count * sizeof *repair->bottoms);
        settle(repair);
    }
    bool better = repair->height < height;
    if (better || !sideways)
        learn(repair, better);
    return answer == WI_COVER_FOUND && !better ? WI_COVER_GAVE_UP : answer;
}

int64_t *wi_cover_repair_bottoms(wi_cover_repair *repair)
{
    return repair->bottoms;
}
