/* A map from numbers to things, in their order: a treap, whose shape nobody who chooses the keys can choose. The node is
 * the first member of the thing. */
#ifndef SIM_TREE_H
#define SIM_TREE_H

#include <stddef.h>
#include <stdint.h>

typedef struct tree_node {
    uint64_t key, weight;
    struct tree_node *left, *right;
} tree_node;

typedef struct tree {
    tree_node *root;
    uint64_t state; /* of the weights */
} tree;

void tree_add(tree *t, tree_node *node, uint64_t key); /* no node has the key yet */
tree_node *tree_find(const tree *t, uint64_t key);
tree_node *tree_floor(const tree *t, uint64_t key); /* the last one at or below the key; NULL */
tree_node *tree_above(const tree *t, uint64_t key); /* the first one above it; NULL */
void tree_remove(tree *t, tree_node *node);

#endif
