/* names.c: open addressing with linear probing, at most half full. */
#include "onnx_shapes/names.h"

#include "base/hash.h"

#include <stdlib.h>

static size_t first_slot(const graph_names *names, onnx_text name)
{
    return (size_t)wi_hash(name.text, name.size) & (names->capacity - 1);
}

static void put(const graph *g, const graph_names *names, uint32_t value)
{
    size_t i = first_slot(names, g->values[value].name);
    while (names->slots[i])
        i = (i + 1) & (names->capacity - 1);
    names->slots[i] = value + 1;
}

/* Twice the room for all values that have a name so far. */
static bool grow(graph *g)
{
    graph_names wider = {.capacity = g->names.capacity ? 2 * g->names.capacity : 512};
    wider.slots = calloc(wider.capacity, sizeof *wider.slots);
    if (!wider.slots)
        return false;
    for (size_t i = 0; i < g->names.capacity; i++)
        if (g->names.slots[i])
            put(g, &wider, g->names.slots[i] - 1);
    free(g->names.slots);
    g->names = wider;
    return true;
}

bool graph_names_put(graph *g, uint32_t value)
{
    if (2 * (size_t)value >= g->names.capacity && !grow(g))
        return false;
    put(g, &g->names, value);
    return true;
}

uint32_t graph_find(const graph *g, onnx_text name)
{
    if (!g->names.capacity)
        return GRAPH_NONE;
    for (size_t i = first_slot(&g->names, name); g->names.slots[i]; i = (i + 1) & (g->names.capacity - 1))
        if (onnx_text_same(g->values[g->names.slots[i] - 1].name, name))
            return g->names.slots[i] - 1;
    return GRAPH_NONE;
}

void graph_names_clear(graph_names *names)
{
    free(names->slots);
    *names = (graph_names){0};
}
