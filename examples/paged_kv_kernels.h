/* paged_kv_kernels.h: keys and values that are written, and read, through tables of blocks. Plain arithmetic over an index, so
 * that a loop runs it on the host and a grid of threads on a GPU. */
#ifndef EXAMPLE_PAGED_KV_KERNELS_H
#define EXAMPLE_PAGED_KV_KERNELS_H

#ifdef __CUDACC_RTC__ /* which has the functions, and no headers */
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define PAGED_FN static __device__
#else
#include <math.h>
#include <stdint.h>
#define PAGED_FN static inline
#endif

enum { PAGED_SIZE = 32, PAGED_SEQUENCES = 4, PAGED_BLOCKS = 8, PAGED_TOKENS = 16 };
enum { PAGED_LENGTH = PAGED_BLOCKS * PAGED_TOKENS };

typedef enum paged_kind { PAGED_WRITE, PAGED_ATTEND } paged_kind;

/* What the device is told of the sequences. */
typedef struct paged_batch {
    uint32_t written[PAGED_SEQUENCES], length[PAGED_SEQUENCES]; /* tokens that are in blocks already, and all */
    uint32_t tables[PAGED_SEQUENCES][PAGED_BLOCKS];
    uint32_t tokens[PAGED_SEQUENCES][PAGED_LENGTH];
} paged_batch;

typedef struct paged_work {
    paged_kind kind;
    uint32_t kv_heads, group; /* heads with the same keys and values */
    uint64_t count;           /* steps: of a write, elements; of attention, heads */
    char *base;               /* of the pool; with the next four, where an element lies */
    uint64_t block, plane, head, token;
    const paged_batch *batch;
    float *out; /* [sequence][head][PAGED_SIZE] */
} paged_work;

/* An element of a model's weights, as it were: from -1 to 1, of plane 0 (keys), 1 (values) or 2 (queries). */
PAGED_FN float paged_value(uint32_t plane, uint32_t head, uint32_t token, uint32_t position, uint32_t d)
{
    uint32_t x = token * 2654435761u + position * 40503u + head * 69069u + plane * 362437u + d * 1664525u;
    x = (x ^ (x >> 15)) * 2246822519u;
    x = (x ^ (x >> 13)) * 3266489917u;
    return (float)(int)((x >> 8) & 0xffffu) / 32768.0f - 1.0f;
}

/* Where the row of a token is: in the block that the sequence's table names. */
PAGED_FN float *paged_row(const paged_work *w, uint32_t sequence, uint32_t position, uint32_t plane, uint32_t head)
{
    uint32_t block = w->batch->tables[sequence][position / PAGED_TOKENS];
    return (float *)(void *)(w->base + block * w->block + plane * w->plane + head * w->head +
                             position % PAGED_TOKENS * w->token);
}

PAGED_FN void paged_write(const paged_work *w, uint64_t i)
{
    uint32_t d = (uint32_t)(i % PAGED_SIZE), head = (uint32_t)(i / PAGED_SIZE % w->kv_heads);
    uint32_t position = (uint32_t)(i / PAGED_SIZE / w->kv_heads % PAGED_LENGTH);
    uint32_t sequence = (uint32_t)(i / PAGED_SIZE / w->kv_heads / PAGED_LENGTH);
    if (position < w->batch->written[sequence] || position >= w->batch->length[sequence])
        return;
    uint32_t token = w->batch->tokens[sequence][position];
    for (uint32_t plane = 0; plane < 2; plane++)
        paged_row(w, sequence, position, plane, head)[d] = paged_value(plane, head, token, position, d);
}

/* Attention of a sequence's last token, in one pass: the sum so far is scaled when a larger score comes. */
PAGED_FN void paged_attend(const paged_work *w, uint64_t i)
{
    uint32_t heads = w->kv_heads * w->group, head = (uint32_t)(i % heads), sequence = (uint32_t)(i / heads);
    uint32_t length = w->batch->length[sequence];
    float sum[PAGED_SIZE] = {0}, most = -1e30f, weights = 0;
    for (uint32_t position = 0; position < length; position++) {
        const float *key = paged_row(w, sequence, position, 0, head / w->group);
        const float *value = paged_row(w, sequence, position, 1, head / w->group);
        float score = 0;
        for (uint32_t d = 0; d < PAGED_SIZE; d++)
            score += key[d] * paged_value(2, head, w->batch->tokens[sequence][length - 1], length - 1, d);
        float now = score > most ? score : most, scale = expf(most - now), weight = expf(score - now);
        for (uint32_t d = 0; d < PAGED_SIZE; d++)
            sum[d] = sum[d] * scale + weight * value[d];
        weights = weights * scale + weight;
        most = now;
    }
    for (uint32_t d = 0; length > 0 && d < PAGED_SIZE; d++)
        w->out[i * PAGED_SIZE + d] = sum[d] / weights;
}

PAGED_FN void paged_step(const paged_work *w, uint64_t i)
{
    if (w->kind == PAGED_WRITE)
        paged_write(w, i);
    else
        paged_attend(w, i);
}

#endif
