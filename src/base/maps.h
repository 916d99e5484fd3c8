/* Maps: of pointers, in a hash map, and of keys, in a balanced tree. */
#ifndef WI_MAPS_H
#define WI_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pointers --------------------------------------------------------------------------------------------------------- */

/* A hash map from pointers to numbers: open addressing with linear probing, at most half full. */

typedef struct wi_pointer_map_entry {
    const void *pointer; /* NULL: empty */
    uint64_t value;
} wi_pointer_map_entry;

/* All zeros is an empty map. */
typedef struct wi_pointer_map {
    wi_pointer_map_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t used;
} wi_pointer_map;

/* Sets the pointer's value. NULL is no key, and is ignored. False: no host memory. */
bool wi_pointer_map_put(wi_pointer_map *map, const void *pointer, uint64_t value);
/* The pointer's value; false: it is not there. */
bool wi_pointer_map_get(const wi_pointer_map *map, const void *pointer, uint64_t *value);
/* Removes the pointer; false: it is not there. */
bool wi_pointer_map_remove(wi_pointer_map *map, const void *pointer, uint64_t *value);
void wi_pointer_map_clear(wi_pointer_map *map);

/* Treaps ----------------------------------------------------------------------------------------------------------- */

/* Treaps (Seidel and Aragon 1996): balanced trees by key. The node is the first member of the element.
 *
 * A parent has a higher rank than its children. The rank is a hash of the key and the treap's seed, so that the tree
 * is balanced with high probability, in whatever order keys come, and stores nothing for it. No locks: the caller has
 * one. */

typedef struct wi_treap_node {
    uint64_t key;
    struct wi_treap_node *left, *right;
} wi_treap_node;

/* All zeros is an empty treap. If keys are chosen by others, the seed is a number that they cannot know. */
typedef struct wi_treap {
    wi_treap_node *root;
    uint64_t seed;
} wi_treap;

void wi_treap_add(wi_treap *treap, wi_treap_node *node, uint64_t key); /* the key must not be in the treap */
void wi_treap_remove(wi_treap *treap, wi_treap_node *node);

wi_treap_node *wi_treap_find(const wi_treap *treap, uint64_t key);
wi_treap_node *wi_treap_floor(const wi_treap *treap, uint64_t key); /* the last node at or below the key; NULL: none */
wi_treap_node *wi_treap_above(const wi_treap *treap, uint64_t key); /* the first node above the key; NULL: none */

/* Calls fn for all nodes by key; fn must not change the treap. */
void wi_treap_each(const wi_treap *treap, void (*fn)(wi_treap_node *node, void *user), void *user);

/* The number of nodes; SIZE_MAX: the order of keys or of ranks is broken. */
size_t wi_treap_check(const wi_treap *treap);

#endif
