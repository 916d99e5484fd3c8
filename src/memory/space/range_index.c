#include "memory/space/range_index.h"

/* Different for different addresses, so that no two ranges are equals. */
static uint64_t range_index_rank(const wi_range *range)
{
    uint64_t x = range->start;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* What lies below `start` and what does not. */
static void range_index_split(wi_range *tree, uintptr_t start, wi_range **below, wi_range **above)
{
    while (tree)
        if (tree->start < start) {
            *below = tree;
            below = &tree->right;
            tree = tree->right;
        } else {
            *above = tree;
            above = &tree->left;
            tree = tree->left;
        }
    *below = *above = NULL;
}

/* Everything in `below` lies below everything in `above`. */
static void range_index_merge(wi_range *below, wi_range *above, wi_range **out)
{
    while (below && above)
        if (range_index_rank(below) > range_index_rank(above)) {
            *out = below;
            out = &below->right;
            below = below->right;
        } else {
            *out = above;
            out = &above->left;
            above = above->left;
        }
    *out = below ? below : above;
}

static wi_range **range_index_child(wi_range *parent, uintptr_t start)
{
    return start < parent->start ? &parent->left : &parent->right;
}

void wi_index_insert(wi_index *index, wi_range *range)
{
    wi_range **link = &index->root;
    wi_assert(range->start < range->end && !wi_index_find(index, range->start, range->end));
    while (*link && range_index_rank(*link) > range_index_rank(range))
        link = range_index_child(*link, range->start);
    range_index_split(*link, range->start, &range->left, &range->right);
    *link = range;
    index->count++;
}

void wi_index_remove(wi_index *index, wi_range *range)
{
    wi_range **link = &index->root;
    while (*link != range) {
        wi_assert(*link != NULL);
        link = range_index_child(*link, range->start);
    }
    range_index_merge(range->left, range->right, link);
    index->count--;
}

wi_range *wi_index_find(const wi_index *index, uintptr_t start, uintptr_t end)
{
    wi_range *lowest = NULL; /* that ends above `start` */
    for (wi_range *at = index->root; at;)
        if (at->end > start) {
            lowest = at;
            at = at->left;
        } else {
            at = at->right;
        }
    return lowest && lowest->start < end ? lowest : NULL;
}

static void range_index_walk(wi_range *tree, void (*fn)(wi_range *range, void *user), void *user)
{
    for (; tree; tree = tree->right) {
        range_index_walk(tree->left, fn, user);
        fn(tree, user);
    }
}

void wi_index_each(const wi_index *index, void (*fn)(wi_range *range, void *user), void *user)
{
    range_index_walk(index->root, fn, user);
}

/* What was freed --------------------------------------------------------------------------------------------------- */

void wi_index_freed(wi_index *index, uintptr_t address)
{
    if (!wi_index_find(index, address, address + 1))
        index->freed[index->next_freed++ % WI_FREED_KEPT] = address;
}

bool wi_index_was_freed(const wi_index *index, uintptr_t address)
{
    for (size_t i = 0; i < WI_FREED_KEPT; i++)
        if (address != 0 && index->freed[i] == address)
            return !wi_index_find(index, address, address + 1);
    return false;
}

/* Laws ------------------------------------------------------------------------------------------------------------- */

#ifdef WEIR_INVARIANTS
typedef struct walked {
    size_t count;
    uintptr_t end;
} walked;

static void range_index_check_one(wi_range *range, void *user)
{
    walked *w = user;
    wi_assert(range->start < range->end && range->start >= w->end);
    wi_assert(!range->left || range_index_rank(range->left) < range_index_rank(range));
    wi_assert(!range->right || range_index_rank(range->right) < range_index_rank(range));
    w->count++;
    w->end = range->end;
}
#endif

void wi_index_check(wi_index *index)
{
#ifdef WEIR_INVARIANTS
    if (++index->changes % (1 + index->count / 4) != 0)
        return; /* a walk over all of them each time would make long tests quadratic */
    walked w = {0};
    wi_index_each(index, range_index_check_one, &w);
    wi_assert(w.count == index->count);
#else
    (void)index;
#endif
}
