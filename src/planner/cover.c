#include "planner/search.h"
#include "base/internal.h"

static uint64_t divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint64_t wi_cover_random(wi_cover *cover)
{
    uint64_t x = cover->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* By squaring, so that it is the same on every machine. */
static int32_t logarithm(uint64_t number)
{
    unsigned whole = 63 - (unsigned)__builtin_clzll(number);
    uint64_t x = whole > 31 ? number >> (whole - 31) : number << (31 - whole); /* 1 ≤ x / 2^31 < 2 */
    int32_t log = (int32_t)whole;
    for (int bit = 0; bit < 16; bit++) {
        x = x * x >> 31;
        log = log * 2 + (x >> 32 != 0);
        x >>= x >> 32 != 0;
    }
    return log;
}

static int in_order(const void *a, const void *b)
{
    const wi_cover_item *one = a, *other = b;
    if (one->left != other->left)
        return one->left < other->left ? -1 : 1;
    if (one->right != other->right)
        return one->right < other->right ? -1 : 1;
    if (one->height != other->height)
        return one->height < other->height ? -1 : 1;
    return one->source < other->source ? -1 : one->source > other->source;
}

static void fill_items(wi_cover *c, const wi_problem *problem)
{
    for (uint32_t i = 0; i < c->count; i++)
        c->unit = divisor(problem->items[i].length, c->unit);
    for (uint32_t i = 0; i < c->count; i++) {
        const wi_item *item = &problem->items[i];
        c->items[i] = (wi_cover_item){
            .height = (int64_t)(item->length / c->unit), .left = item->left, .right = item->right, .source = i};
    }
    qsort(c->items, c->count, sizeof *c->items, in_order);
    for (uint32_t i = 0; i < c->count; i++) {
        wi_cover_item *item = &c->items[i];
        const wi_cover_item *before = i > 0 ? item - 1 : NULL;
        item->twin =
            before && before->left == item->left && before->right == item->right && before->height == item->height;
        item->log_height = logarithm((uint64_t)item->height);
        item->log_width = logarithm(item->right - item->left);
        item->key = item->twin ? before->key : wi_cover_random(c);
    }
}

static void fill_sections(wi_cover *c)
{
    uint32_t next = 0;
    for (uint32_t s = 0; s < c->sections; s++) {
        while (next < c->count && c->items[next].left < s)
            next++;
        c->first[s] = next;
        c->floor_keys[s] = wi_cover_random(c);
        c->pulls[s] = 1;
    }
    c->first[c->sections] = c->count;
    for (uint32_t i = 0; i < c->count; i++) {
        const wi_cover_item *item = &c->items[i];
        c->waiting[i / 64] |= UINT64_C(1) << (i % 64);
        for (uint32_t s = item->left; s < item->right; s++) {
            c->rest[s] += item->height;
            c->crossing[s] += s > item->left;
        }
    }
}

wi_cover *wi_cover_create(const wi_problem *problem)
{
    wi_cover *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    size_t count = problem->count, sections = problem->sections;
    c->count = problem->count;
    c->sections = problem->sections;
    c->items = calloc(count, sizeof *c->items);
    c->bottoms = calloc(count, sizeof *c->bottoms);
    c->waiting = calloc(count / 64 + 1, sizeof *c->waiting);
    c->first = calloc(sections + 1, sizeof *c->first);
    c->floors = calloc(sections, sizeof *c->floors);
    c->rest = calloc(sections, sizeof *c->rest);
    c->crossing = calloc(sections + 1, sizeof *c->crossing);
    c->weights = calloc(sections, sizeof *c->weights);
    c->pulls = calloc(sections, sizeof *c->pulls);
    c->changed = calloc(sections, sizeof *c->changed);
    c->floor_keys = calloc(sections, sizeof *c->floor_keys);
    c->deeds_room = count + 1024;
    c->deeds = calloc(c->deeds_room, sizeof *c->deeds);
    if (!c->items || !c->bottoms || !c->waiting || !c->first || !c->floors || !c->rest || !c->crossing || !c->weights ||
        !c->pulls || !c->changed || !c->floor_keys || !c->deeds || !wi_cover_scratch_create(c) ||
        !wi_cover_table_create(c)) {
        wi_cover_destroy(c);
        return NULL;
    }
    fill_items(c, problem);
    fill_sections(c);
    return c;
}

void wi_cover_destroy(wi_cover *cover)
{
    if (!cover)
        return;
    wi_cover_scratch_destroy(cover);
    wi_cover_table_destroy(cover);
    void *const all[] = {cover->items,      cover->bottoms, cover->waiting,  cover->first,
                         cover->floors,     cover->rest,    cover->crossing, cover->weights,
                         cover->floor_keys, cover->deeds,   cover->pulls,    cover->changed};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    free(cover);
}

/* Deeds ------------------------------------------------------------------------------------------------------------ */

/* The neighbours have another wall. */
static void mark_changed(wi_cover *cover, uint32_t left, uint32_t right)
{
    uint32_t first = left > 0 ? left - 1 : left, end = right < cover->sections ? right + 1 : right;
    memset(cover->changed + first, true, end - first);
}

/* There is always room for the items; lifts make more when they need it. */
void wi_cover_put(wi_cover *cover, uint32_t item, int64_t floor)
{
    const wi_cover_item *it = &cover->items[item];
    cover->waiting[item / 64] &= ~(UINT64_C(1) << (item % 64));
    for (uint32_t s = it->left; s < it->right; s++) {
        cover->floors[s] = floor + it->height;
        cover->rest[s] -= it->height;
    }
    for (uint32_t s = it->left + 1; s < it->right; s++)
        cover->crossing[s]--;
    mark_changed(cover, it->left, it->right);
    cover->bottoms[item] = floor;
    cover->deeds[cover->deed_count++] = (wi_cover_deed){floor, item, false};
}

bool wi_cover_lift(wi_cover *cover, uint32_t section, int64_t floor)
{
    if (cover->deed_count + cover->count + 1 >= cover->deeds_room) {
        void *grown = realloc(cover->deeds, 2 * cover->deeds_room * sizeof *cover->deeds);
        if (!grown)
            return false;
        cover->deeds = grown;
        cover->deeds_room *= 2;
    }
    cover->deeds[cover->deed_count++] = (wi_cover_deed){cover->floors[section], section, true};
    cover->floors[section] = floor;
    mark_changed(cover, section, section + 1);
    return true;
}

void wi_cover_undo(wi_cover *cover, size_t deeds)
{
    while (cover->deed_count > deeds) {
        const wi_cover_deed *deed = &cover->deeds[--cover->deed_count];
        if (deed->lift) {
            cover->floors[deed->what] = deed->floor;
            mark_changed(cover, deed->what, deed->what + 1);
            continue;
        }
        const wi_cover_item *it = &cover->items[deed->what];
        cover->waiting[deed->what / 64] |= UINT64_C(1) << (deed->what % 64);
        for (uint32_t s = it->left; s < it->right; s++) {
            cover->floors[s] = deed->floor;
            cover->rest[s] += it->height;
        }
        for (uint32_t s = it->left + 1; s < it->right; s++)
            cover->crossing[s]++;
        mark_changed(cover, it->left, it->right);
    }
}
