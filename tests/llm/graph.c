/* See graph.h. */
#include "graph.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
    unsigned char data[8192];
    size_t count;
} bytes;

static void put(bytes *to, const void *data, size_t count)
{
    if (to->count + count > sizeof to->data)
        abort();
    memcpy(to->data + to->count, data, count);
    to->count += count;
}

static void put_varint(bytes *to, uint64_t value)
{
    do {
        unsigned char byte = (unsigned char)((value & 127) | (value > 127 ? 128 : 0));
        put(to, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_number(bytes *to, int field, uint64_t value)
{
    put_varint(to, (uint64_t)field << 3);
    put_varint(to, value);
}

static void put_bytes(bytes *to, int field, const void *data, size_t count)
{
    put_varint(to, (uint64_t)field << 3 | 2);
    put_varint(to, count);
    put(to, data, count);
}

static void put_message(bytes *to, int field, const bytes *message)
{
    put_bytes(to, field, message->data, message->count);
}

static void put_text(bytes *to, int field, const char *text)
{
    put_bytes(to, field, text, strlen(text));
}

/* A ValueInfoProto: name, element type, extents, of which those below 0 have a name. */
static bytes value_of(const char *name, int type, const int64_t *extents, int rank)
{
    bytes value = {.count = 0}, shape = {.count = 0}, tensor = {.count = 0}, kind = {.count = 0};
    for (int i = 0; i < rank; i++) {
        bytes extent = {.count = 0};
        if (extents[i] < 0)
            put_text(&extent, 2, "some");
        else
            put_number(&extent, 1, (uint64_t)extents[i]);
        put_message(&shape, 1, &extent);
    }
    put_number(&tensor, 1, (uint64_t)type);
    put_message(&tensor, 2, &shape);
    put_message(&kind, 1, &tensor);
    put_text(&value, 1, name);
    put_message(&value, 2, &kind);
    return value;
}

static void put_value(bytes *graph, int field, const char *name, int type, const int64_t *extents, int rank)
{
    bytes value = value_of(name, type, extents, rank);
    put_message(graph, field, &value);
}

static void put_node(bytes *graph, const char *op, const char *one, const char *other, const char *out)
{
    bytes node = {.count = 0};
    put_text(&node, 1, one);
    if (other)
        put_text(&node, 1, other);
    put_text(&node, 2, out);
    put_text(&node, 4, op);
    put_message(graph, 1, &node);
}

/* A weight of 4 × 16 numbers. */
static void put_weight(bytes *graph, const char *beside)
{
    static const float zeros[64];
    bytes weight = {.count = 0};
    put_number(&weight, 1, 4);
    put_number(&weight, 1, 16);
    put_number(&weight, 2, 1);
    put_text(&weight, 8, "table");
    if (beside) {
        bytes entry = {.count = 0};
        put_text(&entry, 1, "location");
        put_text(&entry, 2, beside);
        put_message(&weight, 13, &entry);
        put_number(&weight, 14, 1);
    } else {
        put_bytes(&weight, 9, zeros, sizeof zeros);
    }
    put_message(graph, 5, &weight);
}

static void put_cache(bytes *graph, const char *name, const graph_shape *shape, bool other)
{
    int64_t extents[4];
    for (int i = 0; i < 4; i++)
        extents[i] = shape->other_cache[i] ? shape->other_cache[i] : -1;
    put_value(graph, 11, name, shape->type, other ? extents : shape->cache,
              other ? (shape->other_rank ? shape->other_rank : 4) : shape->rank);
}

void graph_write(const char *path, const graph_shape *shape)
{
    static const int64_t row[] = {-1, -1}, more[] = {3, 5};
    const int64_t logits[] = {-1, -1, shape->width ? shape->width : -1};
    bytes model = {.count = 0}, graph = {.count = 0}, opset = {.count = 0};
    char name[64], present[64];
    put_node(&graph, "Gather", "table", "input_ids", shape->logits);
    for (int i = 0; i < shape->layers * 2; i++) {
        snprintf(name, sizeof name, "past_key_values.%d.%s", i / 2, i % 2 ? "value" : "key");
        snprintf(present, sizeof present, "present.%d.%s", i / 2, i % 2 ? "value" : "key");
        put_node(&graph, "Identity", name, NULL, present);
    }
    put_text(&graph, 2, "small");
    put_weight(&graph, shape->beside);
    put_value(&graph, 11, "input_ids", 7, row, 2);
    for (int i = 0; i < shape->layers * 2; i++) {
        snprintf(name, sizeof name, "past_key_values.%d.%s", i / 2, i % 2 ? "value" : "key");
        put_cache(&graph, name, shape, shape->other && i == shape->layers * 2 - 1);
    }
    if (shape->more)
        put_value(&graph, 11, shape->more, shape->type, more, 2);
    put_value(&graph, 12, shape->logits, 1, logits, 3);
    put_number(&model, 1, 8);
    put_message(&model, 7, &graph);
    put_text(&opset, 1, "");
    put_number(&opset, 2, 17);
    put_message(&model, 8, &opset);
    FILE *to = fopen(path, "wb");
    if (!to || fwrite(model.data, 1, model.count, to) != model.count || fclose(to) != 0)
        abort();
}
