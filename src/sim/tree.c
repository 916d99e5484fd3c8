#include "sim/tree.h"

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t next_weight(tree *t)
{
    uint64_t z = t->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* What is below the key, and the rest. */
static void split(tree_node *from, uint64_t key, tree_node **low, tree_node **high)
{
    while (from) {
        if (from->key < key) {
            *low = from;
            low = &from->right;
            from = from->right;
        } else {
            *high = from;
            high = &from->left;
            from = from->left;
        }
    }
    *low = *high = NULL;
}

void tree_add(tree *t, tree_node *node, uint64_t key)
{
    tree_node **link = &t->root;
    node->key = key;
    node->weight = next_weight(t);
    while (*link && (*link)->weight >= node->weight)
        link = key < (*link)->key ? &(*link)->left : &(*link)->right;
    split(*link, key, &node->left, &node->right);
    *link = node;
}

tree_node *tree_floor(const tree *t, uint64_t key)
{
    tree_node *found = NULL;
    for (tree_node *n = t->root; n; n = n->key <= key ? n->right : n->left)
        if (n->key <= key)
            found = n;
    return found;
}

tree_node *tree_find(const tree *t, uint64_t key)
{
    tree_node *n = tree_floor(t, key);
    return n && n->key == key ? n : NULL;
}

tree_node *tree_above(const tree *t, uint64_t key)
{
    tree_node *found = NULL;
    for (tree_node *n = t->root; n; n = n->key > key ? n->left : n->right)
        if (n->key > key)
            found = n;
    return found;
}

void tree_remove(tree *t, tree_node *node)
{
    tree_node **link = &t->root, *low = node->left, *high = node->right;
    while (*link != node)
        link = node->key < (*link)->key ? &(*link)->left : &(*link)->right;
    while (low && high) {
        tree_node **side = low->weight >= high->weight ? &low : &high;
        tree_node **inner = side == &low ? &low->right : &high->left;
        *link = *side;
        link = inner;
        *side = *inner;
    }
    *link = low ? low : high;
}
