/* writer.h: a small writer of GGUF files for the tests, and two models made with it: a llama and a bert of a few layers,
 * with weights from a seed and a vocabulary of letters. Nothing is checked, so wrong files can be written as well. */
#ifndef WRITER_H
#define WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bytes {
    unsigned char *data;
    size_t count, room;
} bytes;

typedef struct gguf_writer {
    bytes keys, tensors, data;
    uint64_t key_count, tensor_count;
    uint64_t seed;
} gguf_writer;

void put(bytes *to, const void *from, size_t count);
void key_u32(gguf_writer *to, const char *name, uint32_t value);
void key_i32(gguf_writer *to, const char *name, int32_t value);
void key_f32(gguf_writer *to, const char *name, float value);
void key_bool(gguf_writer *to, const char *name, bool value);
void key_text(gguf_writer *to, const char *name, const char *value);
void key_texts(gguf_writer *to, const char *name, const char *const *values, size_t count);
void key_numbers(gguf_writer *to, const char *name, uint32_t kind, const void *values, size_t count);
/* An f32 tensor: of random numbers around `middle`. */
void tensor(gguf_writer *to, const char *name, uint64_t first, uint64_t second, float middle);
/* Of zeros, of any type: so many bytes. */
void typed_tensor(gguf_writer *to, const char *name, uint32_t type, uint64_t first, uint64_t second, size_t size);
/* Writes the file and gives the writer's memory back. */
void write_gguf(gguf_writer *from, const char *path);

typedef struct model_shape {
    uint32_t layers, width, heads, heads_kv, wide, context;
    const char *skip_key;    /* left out: a key, or a tensor */
    const char *replace_u32; /* this key gets `replacement` */
    uint32_t replacement;
    uint64_t seed; /* of the weights; 0: the usual one */
    const char *chat_template;
    const char *architecture;      /* instead of llama: a file of that name with a llama's tensors */
    void (*more)(gguf_writer *to); /* called when all else is there */
} model_shape;

extern const model_shape small_shape;
void write_llama(const char *path, const model_shape *shape);
void write_bert(const char *path, const model_shape *shape);
/* A cohere2: of four layers three see a window of `window` tokens. */
void write_windowed(const char *path, const model_shape *shape, uint32_t window);
/* A mamba: states in the place of cells. */
void write_recurrent(const char *path, const model_shape *shape);

#endif
