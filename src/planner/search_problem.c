/* A plain problem as the exact search sees it: its items in order, with heights in the largest unit that divides all, and
 * numbers by section. */
#include "base/internal.h"
#include "planner/solve.h"

static uint64_t divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Returns the binary logarithm times 65536, by integer squaring, so that every machine gets the same result. */
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

static int search_in_order(const void *a, const void *b)
{
    const wi_search_item *one = a, *other = b;
    if (one->left != other->left)
        return one->left < other->left ? -1 : 1;
    if (one->right != other->right)
        return one->right < other->right ? -1 : 1;
    if (one->height != other->height)
        return one->height < other->height ? -1 : 1;
    return one->source < other->source ? -1 : one->source > other->source;
}

static void fill_items(wi_search *c, const wi_problem *problem)
{
    for (uint32_t i = 0; i < c->count; i++)
        c->unit = divisor(problem->items[i].length, c->unit);
    for (uint32_t i = 0; i < c->count; i++) {
        const wi_item *item = &problem->items[i];
        c->items[i] = (wi_search_item){
            .height = (int64_t)(item->length / c->unit), .left = item->left, .right = item->right, .source = i};
    }
    qsort(c->items, c->count, sizeof *c->items, search_in_order);
    for (uint32_t i = 0; i < c->count; i++) {
        wi_search_item *item = &c->items[i];
        const wi_search_item *before = i > 0 ? item - 1 : NULL;
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there are items, or this is not reached
        item->twin =
            before && before->left == item->left && before->right == item->right && before->height == item->height;
        item->log_height = logarithm((uint64_t)item->height);
        item->log_width = logarithm(item->right - item->left);
        item->key = item->twin ? before->key : wi_search_random(c);
    }
}

static void fill_sections(wi_search *c)
{
    uint32_t next = 0;
    for (uint32_t s = 0; s < c->sections; s++) {
        while (next < c->count && c->items[next].left < s)
            next++;
        c->first[s] = next;
        c->level_keys[s] = wi_search_random(c);
        c->weights[s] = 1;
    }
    c->first[c->sections] = c->count;
    for (uint32_t i = 0; i < c->count; i++) {
        const wi_search_item *item = &c->items[i];
        c->waiting[i / 64] |= UINT64_C(1) << (i % 64);
        for (uint32_t s = item->left; s < item->right; s++) {
            c->rest[s] += item->height;
            c->crossing[s] += s > item->left;
        }
    }
}

wi_search *wi_search_create(const wi_problem *problem)
{
    wi_search *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    size_t count = problem->count, sections = problem->sections;
    c->count = problem->count;
    c->sections = problem->sections;
    c->items = calloc(count, sizeof *c->items);
    c->bottoms = calloc(count, sizeof *c->bottoms);
    c->waiting = calloc(count / 64 + 1, sizeof *c->waiting);
    c->first = calloc(sections + 1, sizeof *c->first);
    c->levels = calloc(sections, sizeof *c->levels);
    c->rest = calloc(sections, sizeof *c->rest);
    c->crossing = calloc(sections + 1, sizeof *c->crossing);
    c->failures = calloc(sections, sizeof *c->failures);
    c->weights = calloc(sections, sizeof *c->weights);
    c->changed = calloc(sections, sizeof *c->changed);
    c->level_keys = calloc(sections, sizeof *c->level_keys);
    if (!c->items || !c->bottoms || !c->waiting || !c->first || !c->levels || !c->rest || !c->crossing ||
        !c->failures || !c->weights || !c->changed || !c->level_keys || !wi_search_tables_make(c)) {
        wi_search_destroy(c);
        return NULL;
    }
    fill_items(c, problem);
    fill_sections(c);
    return c;
}

void wi_search_destroy(wi_search *search)
{
    if (!search)
        return;
    wi_search_tables_clear(search);
    void *const all[] = {search->items,      search->bottoms, search->waiting,  search->first,
                         search->levels,     search->rest,    search->crossing, search->failures,
                         search->level_keys, search->weights, search->changed};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    free(search);
}
