/* Treaps (Seidel and Aragon 1996): things in the order of their keys. The node is the thing's first member.
 *
 * A parent has the higher rank, which is a hash of the key and the treap's seed: as good as balanced whatever the order
 * in which keys come, and nothing has to be kept for it. No locks: the caller has one. */
#ifndef WI_TREAP_H
#define WI_TREAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct wi_treap_node {
    uint64_t key;
    struct wi_treap_node *left, *right;
} wi_treap_node;

/* All zeros is an empty one. Where keys come from others, the seed is a number that they cannot know. */
typedef struct wi_treap {
    wi_treap_node *root;
    uint64_t seed;
} wi_treap;

void wi_treap_add(wi_treap *treap, wi_treap_node *node, uint64_t key); /* no node has the key yet */
void wi_treap_remove(wi_treap *treap, wi_treap_node *node);

wi_treap_node *wi_treap_find(const wi_treap *treap, uint64_t key);
wi_treap_node *wi_treap_floor(const wi_treap *treap, uint64_t key); /* the last one at or below the key; NULL */
wi_treap_node *wi_treap_above(const wi_treap *treap, uint64_t key); /* the first one above it; NULL */

/* Calls fn for all in their order; fn changes nothing. */
void wi_treap_each(const wi_treap *treap, void (*fn)(wi_treap_node *node, void *user), void *user);

/* How many nodes there are; SIZE_MAX if they are not in order, or a child has a higher rank than its parent. */
size_t wi_treap_check(const wi_treap *treap);

#endif
