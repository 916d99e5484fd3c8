/* Hollows of the floor, and what can be done in them. */
#include "planner/buffers.h"
#include "planner/search.h"
#include "base/internal.h"

static const int64_t no_wall = INT64_MAX;

/* A run of sections with equal floors. */
typedef struct run {
    uint32_t left, right;
    int64_t floor, wall; /* the lower of the neighbours' floors */
    bool changed;
} run;

/* By section, for sections in hollows: what was found there when something last changed. */
struct wi_cover_scratch {
    run *runs;
    uint32_t run_count;
    uint32_t *run_of;
    uint32_t *covers;   /* how many items that lie in the hollow cover it; of equal ones only one counts */
    uint32_t *options;  /* the same, and one more if it may be left empty */
    int64_t *lifted;    /* its floor if it is left empty */
    int64_t *ends_here; /* by section + 1: the lowest item of the hollow that ends there or before */
    int64_t *begins;    /* the lowest that begins there or behind */
    int64_t *inside;    /* heights of all items that lie in the hollow and cover it */
};

bool wi_cover_scratch_create(wi_cover *cover)
{
    struct wi_cover_scratch *s = cover->scratch = calloc(1, sizeof *s);
    if (!s)
        return false;
    size_t sections = (size_t)cover->sections + 2;
    s->runs = calloc(sections, sizeof *s->runs);
    s->run_of = calloc(sections, sizeof *s->run_of);
    s->covers = calloc(sections, sizeof *s->covers);
    s->options = calloc(sections, sizeof *s->options);
    s->lifted = calloc(sections, sizeof *s->lifted);
    s->ends_here = calloc(sections, sizeof *s->ends_here);
    s->begins = calloc(sections, sizeof *s->begins);
    s->inside = calloc(sections, sizeof *s->inside);
    return s->runs && s->run_of && s->covers && s->options && s->lifted && s->ends_here && s->begins && s->inside;
}

void wi_cover_scratch_destroy(wi_cover *cover)
{
    struct wi_cover_scratch *s = cover->scratch;
    if (!s)
        return;
    void *const all[] = {s->runs, s->run_of, s->covers, s->options, s->lifted, s->ends_here, s->begins, s->inside};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    free(s);
}

/* The next waiting item at or behind `i`, or `end`. */
static uint32_t next_waiting(const wi_cover *cover, uint32_t i, uint32_t end)
{
    while (i < end) {
        uint64_t bits = cover->waiting[i / 64] >> (i % 64);
        if (bits) {
            i += (uint32_t)__builtin_ctzll(bits);
            return i < end ? i : end;
        }
        i = (i / 64 + 1) * 64;
    }
    return end;
}

/* Of equal items the first that waits stands for all. */
static bool stands_for_others(const wi_cover *cover, uint32_t i)
{
    return !cover->items[i].twin || !wi_cover_waits(cover, i - 1);
}

static void find_runs(wi_cover *cover, uint32_t left, uint32_t right)
{
    struct wi_cover_scratch *x = cover->scratch;
    x->run_count = 0;
    for (uint32_t s = left; s < right;) {
        run *r = &x->runs[x->run_count];
        bool changed = false;
        *r = (run){.left = s, .floor = cover->floors[s], .wall = no_wall};
        for (; s < right && cover->floors[s] == r->floor; s++) {
            x->run_of[s] = x->run_count;
            changed |= cover->changed[s];
        }
        r->right = s;
        r->changed = changed;
        x->run_count++;
    }
    for (uint32_t i = 0; i < x->run_count; i++) {
        run *r = &x->runs[i];
        int64_t before = i > 0 ? x->runs[i - 1].floor : no_wall;
        int64_t behind = i + 1 < x->run_count ? x->runs[i + 1].floor : no_wall;
        r->wall = before < behind ? before : behind;
    }
}

/* What lies inside of the hollow. */
static void find_items(wi_cover *cover, const run *r)
{
    struct wi_cover_scratch *x = cover->scratch;
    for (uint32_t s = r->left; s < r->right; s++) {
        x->covers[s] = 0;
        x->inside[s] = 0;
        x->ends_here[s] = x->begins[s] = no_wall;
    }
    x->ends_here[r->right] = no_wall;
    int64_t inside = x->inside[r->right]; /* they are the next hollow's */
    uint32_t covers = x->covers[r->right];
    uint32_t end = cover->first[r->right];
    for (uint32_t i = next_waiting(cover, cover->first[r->left], end); i < end; i = next_waiting(cover, i + 1, end)) {
        const wi_cover_item *item = &cover->items[i];
        if (item->right > r->right)
            continue;
        x->inside[item->left] += item->height; /* differences as yet */
        x->inside[item->right] -= item->height;
        if (!stands_for_others(cover, i))
            continue;
        x->covers[item->left]++;
        x->covers[item->right]--;
        if (item->height < x->ends_here[item->right])
            x->ends_here[item->right] = item->height;
        if (item->height < x->begins[item->left])
            x->begins[item->left] = item->height;
    }
    for (uint32_t s = r->left + 1; s < r->right; s++) {
        x->covers[s] += x->covers[s - 1];
        x->inside[s] += x->inside[s - 1];
        if (x->ends_here[s - 1] < x->ends_here[s])
            x->ends_here[s] = x->ends_here[s - 1];
    }
    x->inside[r->right] = inside;
    x->covers[r->right] = covers;
    for (uint32_t s = r->right - 1; s > r->left; s--)
        if (x->begins[s] < x->begins[s - 1])
            x->begins[s - 1] = x->begins[s];
}

/* Where the floor of a section that is left empty is at the least, before anything can be put on it: at the lower wall,
 * or on an item of the hollow beside it. */
static int64_t lifted_floor(const struct wi_cover_scratch *x, const run *r, uint32_t s)
{
    int64_t beside = s > r->left ? x->ends_here[s] : no_wall;
    if (s + 1 < r->right && x->begins[s + 1] < beside)
        beside = x->begins[s + 1];
    if (beside == no_wall)
        return r->wall;
    return r->floor + beside < r->wall ? r->floor + beside : r->wall;
}

static int64_t slack_of(const wi_cover *cover, uint32_t s)
{
    return cover->cap - cover->floors[s] - cover->rest[s];
}

static void count_options(wi_cover *cover, const run *r)
{
    struct wi_cover_scratch *x = cover->scratch;
    find_items(cover, r);
    for (uint32_t s = r->left; s < r->right; s++) {
        x->lifted[s] = lifted_floor(x, r, s);
        bool empty = x->lifted[s] != no_wall && x->lifted[s] - r->floor <= slack_of(cover, s);
        x->options[s] = x->covers[s] + empty;
        if (r->wall != no_wall && r->wall - r->floor - x->inside[s] > slack_of(cover, s))
            x->options[s] = 0;
        cover->changed[s] = false;
    }
}

static bool may_be_empty(const struct wi_cover_scratch *x, uint32_t s)
{
    return x->options[s] > x->covers[s];
}

static uint32_t item_covering(const wi_cover *cover, const run *r, uint32_t s, uint32_t from)
{
    uint32_t end = cover->first[s + 1];
    for (uint32_t i = next_waiting(cover, from, end); i < end; i = next_waiting(cover, i + 1, end)) {
        const wi_cover_item *item = &cover->items[i];
        if (item->right > s && item->right <= r->right && stands_for_others(cover, i))
            return i;
    }
    return end;
}

static bool lies_free(const wi_cover *cover, const wi_cover_item *item, int64_t floor)
{
    for (uint32_t s = item->left; s < item->right; s++)
        if (cover->floors[s] != floor)
            return false;
    return true;
}

static wi_cover_look failed(wi_cover *cover, uint32_t s)
{
    cover->weights[s]++;
    cover->pulls[s] = 1.0 / (1.0 + cover->weights[s]);
    return WI_LOOK_FAILED;
}

/* Does what the sections with one option leave no choice in. Two items that both have to lie there and meet are a failure. */
static wi_cover_look do_forced(wi_cover *cover, const run *r)
{
    const struct wi_cover_scratch *x = cover->scratch;
    for (uint32_t s = r->left; s < r->right; s++) {
        if (x->options[s] != 1 || cover->floors[s] != r->floor)
            continue;
        if (!may_be_empty(x, s)) {
            uint32_t item = item_covering(cover, r, s, cover->first[r->left]);
            if (item == cover->first[s + 1] || !lies_free(cover, &cover->items[item], r->floor))
                return failed(cover, s);
            wi_cover_put(cover, item, r->floor);
        } else if (!wi_cover_lift(cover, s, x->lifted[s])) {
            return WI_LOOK_NO_MEMORY;
        }
    }
    return WI_LOOK_DONE;
}

typedef struct pick {
    double score;
    int64_t slack;
    uint32_t section;
} pick;

/* Looks at one hollow: WI_LOOK_DONE when something was done in it, else it may have a better section to choose in. */
static wi_cover_look look_in_hollow(wi_cover *cover, const wi_cover_way *way, const run *r, pick *best)
{
    const struct wi_cover_scratch *x = cover->scratch;
    bool forced = false;
    if (r->changed)
        count_options(cover, r);
    for (uint32_t s = r->left; s < r->right; s++) {
        uint32_t options = x->options[s];
        if (options == 0)
            return failed(cover, s);
        forced |= options == 1;
        double score = way->weighted ? options * cover->pulls[s] : options;
        if (score > best->score)
            continue;
        int64_t slack = slack_of(cover, s);
        if (score < best->score || slack < best->slack)
            *best = (pick){score, slack, s};
    }
    return forced ? do_forced(cover, r) : WI_LOOK_CHOICE;
}

/* A border that no waiting item crosses, or `right`. */
static uint32_t find_split(const wi_cover *cover, uint32_t left, uint32_t right)
{
    for (uint32_t s = left + 1; s < right; s++)
        if (cover->crossing[s] == 0)
            return s;
    return right;
}

wi_cover_look wi_cover_look_at(wi_cover *cover, const wi_cover_way *way, uint32_t left, uint32_t right,
                               uint32_t *section)
{
    for (;;) {
        if ((*section = find_split(cover, left, right)) < right)
            return WI_LOOK_SPLIT;
        if (cover->rest[left] == 0)
            return WI_LOOK_DONE;
        pick best = {.score = 1e300};
        bool done = false;
        find_runs(cover, left, right);
        for (uint32_t i = 0; i < cover->scratch->run_count; i++) {
            const run *r = &cover->scratch->runs[i];
            if (r->floor >= r->wall)
                continue;
            wi_cover_look look = look_in_hollow(cover, way, r, &best);
            if (look == WI_LOOK_FAILED || look == WI_LOOK_NO_MEMORY)
                return look;
            done |= look == WI_LOOK_DONE;
        }
        *section = best.section;
        if (!done)
            return WI_LOOK_CHOICE;
    }
}

/* Options ---------------------------------------------------------------------------------------------------------- */

/* How many of the item's edges lie against something: the walls at its sides, and, half as good, a neighbour's floor at
 * its top. In halves. */
static int edges_flush(const wi_cover *cover, const run *r, const wi_cover_item *item)
{
    const struct wi_cover_scratch *x = cover->scratch;
    int64_t top = r->floor + item->height;
    const run *before = r > x->runs ? r - 1 : NULL;
    const run *behind = r + 1 < x->runs + x->run_count ? r + 1 : NULL;
    int halves = 0;
    if (item->left == r->left)
        halves += 2 + (before && before->floor == top);
    if (item->right == r->right)
        halves += 2 + (behind && behind->floor == top);
    return halves;
}

static int64_t score_of(wi_cover *cover, const wi_cover_way *way, const run *r, const wi_cover_item *item)
{
    int64_t score = way->height * (int64_t)item->log_height + way->width * (int64_t)item->log_width;
    if (way->edges)
        score += way->edges * (int64_t)edges_flush(cover, r, item) * (WI_COVER_LOG_ONE / 2);
    if (way->noise)
        score += way->noise * (int64_t)(wi_cover_random(cover) >> 48) / 16 * (WI_COVER_LOG_ONE / 4096);
    return score;
}

bool wi_cover_options(wi_cover *cover, const wi_cover_way *way, uint32_t section, wi_cover_option **options,
                      size_t *count, size_t *room)
{
    struct wi_cover_scratch *x = cover->scratch;
    const run *r = &x->runs[x->run_of[section]];
    size_t first = *count;
    if (!wi_room_for((void **)options, sizeof **options, room, *count + x->covers[section] + 1))
        return false;
    if (may_be_empty(x, section))
        (*options)[(*count)++] = (wi_cover_option){INT64_MIN, UINT32_MAX, x->lifted[section]};
    uint32_t end = cover->first[section + 1];
    for (uint32_t i = item_covering(cover, r, section, cover->first[r->left]); i < end;
         i = item_covering(cover, r, section, i + 1)) {
        wi_cover_option option = {score_of(cover, way, r, &cover->items[i]), i, r->floor};
        size_t at = (*count)++;
        for (; at > first && (*options)[at - 1].score > option.score; at--)
            (*options)[at] = (*options)[at - 1];
        (*options)[at] = option;
    }
    return true;
}
