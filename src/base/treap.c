#include "base/treap.h"

#include <stdbool.h>

/* The last step of splitmix64 (Steele, Lea, Flood 2014): different for different keys. */
static uint64_t treap_rank(const wi_treap *treap, const wi_treap_node *node)
{
    uint64_t x = node->key ^ treap->seed;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static wi_treap_node **child(wi_treap_node *parent, uint64_t key)
{
    return key < parent->key ? &parent->left : &parent->right;
}

/* Splits a tree into the keys below `key` and the rest. */
static void treap_split(wi_treap_node *from, uint64_t key, wi_treap_node **below, wi_treap_node **rest)
{
    while (from) {
        if (from->key < key) {
            *below = from;
            below = &from->right;
            from = from->right;
        } else {
            *rest = from;
            rest = &from->left;
            from = from->left;
        }
    }
    *below = *rest = NULL;
}

/* Merges two trees; all keys of `low` are below those of `high`. */
static void merge(const wi_treap *treap, wi_treap_node *low, wi_treap_node *high, wi_treap_node **out)
{
    while (low && high) {
        if (treap_rank(treap, low) > treap_rank(treap, high)) {
            *out = low;
            out = &low->right;
            low = low->right;
        } else {
            *out = high;
            out = &high->left;
            high = high->left;
        }
    }
    *out = low ? low : high;
}

void wi_treap_add(wi_treap *treap, wi_treap_node *node, uint64_t key)
{
    wi_treap_node **link = &treap->root;
    node->key = key;
    while (*link && treap_rank(treap, *link) > treap_rank(treap, node))
        link = child(*link, key);
    treap_split(*link, key, &node->left, &node->right);
    *link = node;
}

void wi_treap_remove(wi_treap *treap, wi_treap_node *node)
{
    wi_treap_node **link = &treap->root;
    while (*link != node)
        link = child(*link, node->key);
    merge(treap, node->left, node->right, link);
}

wi_treap_node *wi_treap_floor(const wi_treap *treap, uint64_t key)
{
    wi_treap_node *found = NULL;
    for (wi_treap_node *n = treap->root; n; n = n->key <= key ? n->right : n->left)
        if (n->key <= key)
            found = n;
    return found;
}

wi_treap_node *wi_treap_find(const wi_treap *treap, uint64_t key)
{
    wi_treap_node *n = wi_treap_floor(treap, key);
    return n && n->key == key ? n : NULL;
}

wi_treap_node *wi_treap_above(const wi_treap *treap, uint64_t key)
{
    wi_treap_node *found = NULL;
    for (wi_treap_node *n = treap->root; n; n = n->key > key ? n->left : n->right)
        if (n->key > key)
            found = n;
    return found;
}

static void treap_walk(wi_treap_node *node, void (*fn)(wi_treap_node *node, void *user), void *user)
{
    for (; node; node = node->right) {
        treap_walk(node->left, fn, user);
        fn(node, user);
    }
}

void wi_treap_each(const wi_treap *treap, void (*fn)(wi_treap_node *node, void *user), void *user)
{
    treap_walk(treap->root, fn, user);
}

typedef struct checked {
    const wi_treap *treap;
    const wi_treap_node *last;
    size_t count;
    bool wrong;
} checked;

static void check_one(wi_treap_node *node, void *user)
{
    checked *c = user;
    c->wrong |= c->last && c->last->key >= node->key;
    c->wrong |= node->left && treap_rank(c->treap, node->left) >= treap_rank(c->treap, node);
    c->wrong |= node->right && treap_rank(c->treap, node->right) >= treap_rank(c->treap, node);
    c->last = node;
    c->count++;
}

size_t wi_treap_check(const wi_treap *treap)
{
    checked c = {.treap = treap};
    wi_treap_each(treap, check_one, &c);
    return c.wrong ? SIZE_MAX : c.count;
}
