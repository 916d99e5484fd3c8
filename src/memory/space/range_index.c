/* Range index: a treap of address ranges, and a ring of addresses that were freed lately. */
#include "memory/space/chunks.h"

void wi_index_insert(wi_index *index, wi_range *range)
{
    wi_assert(range->start < range->end && !wi_index_find(index, range->start, range->end));
    wi_treap_add(&index->ranges, &range->node, range->start);
    index->count++;
}

void wi_index_remove(wi_index *index, wi_range *range)
{
    wi_assert(wi_treap_find(&index->ranges, range->start) == &range->node);
    wi_treap_remove(&index->ranges, &range->node);
    index->count--;
}

wi_range *wi_index_find(const wi_index *index, uintptr_t start, uintptr_t end)
{
    wi_range *lowest = NULL; /* the lowest range that ends above `start` */
    for (wi_treap_node *at = index->ranges.root; at;) {
        wi_range *range = (wi_range *)at;
        if (range->end > start)
            lowest = range;
        at = range->end > start ? at->left : at->right;
    }
    return lowest && lowest->start < end ? lowest : NULL;
}

typedef struct visit {
    void (*fn)(wi_range *range, void *user);
    void *user;
} visit;

static void index_visit(wi_treap_node *node, void *user)
{
    const visit *v = user;
    v->fn((wi_range *)node, v->user);
}

void wi_index_each(const wi_index *index, void (*fn)(wi_range *range, void *user), void *user)
{
    wi_treap_each(&index->ranges, index_visit, &(visit){fn, user});
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

/* Invariants ------------------------------------------------------------------------------------------------------- */

#ifdef WEIR_INVARIANTS
static void index_check_one(wi_range *range, void *user)
{
    uintptr_t *end = user; /* end of the range before */
    wi_assert(range->node.key == range->start && range->start < range->end && range->start >= *end);
    *end = range->end;
}
#endif

void wi_index_check(wi_index *index)
{
#ifdef WEIR_INVARIANTS
    if (++index->changes % (1 + index->count / 4) != 0)
        return; /* with every change, long tests would be quadratic */
    uintptr_t end = 0;
    wi_index_each(index, index_check_one, &end);
    wi_assert(wi_treap_check(&index->ranges) == index->count);
#else
    (void)index;
#endif
}
