/* Maps by number. */
#include "base/maps.h"

#include <stdbool.h>
#include <stdlib.h>

/* Pointers --------------------------------------------------------------------------------------------------------- */

static size_t home(const wi_pointer_map *map, const void *pointer)
{
    return (size_t)(((uint64_t)(uintptr_t)pointer >> 8) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (map->capacity - 1);
}

/* The pointer's entry, or the empty one where it would go. */
static size_t pointer_map_find(const wi_pointer_map *map, const void *pointer)
{
    size_t at = home(map, pointer);
    while (map->entries[at].pointer != NULL && map->entries[at].pointer != pointer)
        at = (at + 1) & (map->capacity - 1);
    return at;
}

static bool pointer_map_grow(wi_pointer_map *map)
{
    wi_pointer_map larger = {.capacity = map->capacity == 0 ? 256 : map->capacity * 2, .used = map->used};
    larger.entries = calloc(larger.capacity, sizeof *larger.entries);
    if (larger.entries == NULL)
        return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->entries[i].pointer != NULL)
            larger.entries[pointer_map_find(&larger, map->entries[i].pointer)] = map->entries[i];
    free(map->entries);
    *map = larger;
    return true;
}

bool wi_pointer_map_put(wi_pointer_map *map, const void *pointer, uint64_t value)
{
    if (pointer == NULL)
        return true;
    if (map->used * 2 >= map->capacity && !pointer_map_grow(map))
        return false;
    wi_pointer_map_entry *entry = &map->entries[pointer_map_find(map, pointer)];
    map->used += entry->pointer == NULL;
    *entry = (wi_pointer_map_entry){pointer, value};
    return true;
}

bool wi_pointer_map_get(const wi_pointer_map *map, const void *pointer, uint64_t *value)
{
    if (map->capacity == 0 || pointer == NULL)
        return false;
    const wi_pointer_map_entry *entry = &map->entries[pointer_map_find(map, pointer)];
    if (entry->pointer == NULL)
        return false;
    *value = entry->value;
    return true;
}

bool wi_pointer_map_remove(wi_pointer_map *map, const void *pointer, uint64_t *value)
{
    if (map->capacity == 0 || pointer == NULL)
        return false;
    size_t mask = map->capacity - 1, gap = pointer_map_find(map, pointer);
    if (map->entries[gap].pointer == NULL)
        return false;
    *value = map->entries[gap].value;
    /* Moves later entries into the gap if they could not be found behind it. */
    for (size_t at = (gap + 1) & mask; map->entries[at].pointer != NULL; at = (at + 1) & mask) {
        size_t wanted = home(map, map->entries[at].pointer);
        if (((at - wanted) & mask) >= ((at - gap) & mask)) {
            map->entries[gap] = map->entries[at];
            gap = at;
        }
    }
    map->entries[gap] = (wi_pointer_map_entry){0};
    map->used--;
    return true;
}

void wi_pointer_map_clear(wi_pointer_map *map)
{
    free(map->entries);
    *map = (wi_pointer_map){0};
}

/* Treaps ----------------------------------------------------------------------------------------------------------- */

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
