/* shapes.h: hyper-parameters of models that exist, as lines of keys, and files of nothing but those. */
#ifndef GGUF_SHAPES_H
#define GGUF_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHAPE_TOKENS = 4096 }; /* of the vocabulary that a file gets */

typedef struct named_shape {
    const char *name, *architecture;
    /* "block_count=32 attention.head_count_kv=8,0,8": a number with a point is an f32, a list an array, "8*4" four times
     * 8, "@" a text. The architecture goes before each key. */
    const char *keys;
    uint32_t context, sequences;
    const char *cache;  /* type of keys and values */
    bool without_flash; /* attention */
    uint64_t expected;  /* bytes of its cache */
} named_shape;

extern const named_shape shapes[];
extern const size_t shape_count;

/* A file of its keys, and no tensors. */
void write_shape(const named_shape *shape, const char *path);

#endif
