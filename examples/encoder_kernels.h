/* encoder_kernels.h: the operators of a sentence encoder, each as what one element (or one row) of its output takes. Plain
 * arithmetic over an index, so that a loop runs it on the host and a grid of
 * threads on a GPU. */
#ifndef EXAMPLE_ENCODER_KERNELS_H
#define EXAMPLE_ENCODER_KERNELS_H

#ifdef __CUDACC_RTC__ /* which has the functions, and no headers */
typedef long long int64_t;
#define ENCODER_FN static __device__
#else
#include <math.h>
#include <stdint.h>
#define ENCODER_FN static inline
#endif

enum { ENCODER_RANK = 6 };

typedef enum encoder_kind {
    ENCODER_ADD,
    ENCODER_SUB,
    ENCODER_MUL,
    ENCODER_DIV,
    ENCODER_ERF,
    ENCODER_CLIP,
    ENCODER_CAST,
    ENCODER_COPY,
    ENCODER_GATHER,
    ENCODER_MATMUL,
    ENCODER_SUM,
    ENCODER_LENGTH,
    ENCODER_NORM,
    ENCODER_SOFTMAX
} encoder_kind;

typedef struct encoder_work {
    encoder_kind kind;
    const void *in[3];
    float *out;
    int64_t count; /* elements of the output; of a row-wise operator: rows */
    int64_t inner; /* length of a row, of the sum of a product, or what lies behind the reduced dimension */
    int64_t deep;  /* of a reduction: the reduced dimension */
    int64_t columns;
    float epsilon;
    int rank; /* with strides of the inputs, in elements; 0 where they are repeated */
    int64_t dims[ENCODER_RANK], strides[2][ENCODER_RANK];
} encoder_work;

/* Where an input has the element that goes into the output's element i. */
ENCODER_FN int64_t encoder_from(const encoder_work *w, int input, int64_t i)
{
    int64_t at = 0;
    for (int d = w->rank - 1; d >= 0; d--) {
        at += i % w->dims[d] * w->strides[input][d];
        i /= w->dims[d];
    }
    return at;
}

ENCODER_FN float encoder_each(const encoder_work *w, int64_t i)
{
    const float *a = (const float *)w->in[0], *b = (const float *)w->in[1];
    float x = w->kind == ENCODER_CAST ? 0 : a[encoder_from(w, 0, i)];
    switch (w->kind) {
    case ENCODER_ADD:
        return x + b[encoder_from(w, 1, i)];
    case ENCODER_SUB:
        return x - b[encoder_from(w, 1, i)];
    case ENCODER_MUL:
        return x * b[encoder_from(w, 1, i)];
    case ENCODER_DIV:
        return x / b[encoder_from(w, 1, i)];
    case ENCODER_ERF:
        return erff(x);
    case ENCODER_CLIP:
        return x < *b ? *b : x;
    case ENCODER_CAST:
        return (float)((const int64_t *)w->in[0])[i];
    default:
        return x;
    }
}

ENCODER_FN float encoder_gather(const encoder_work *w, int64_t i)
{
    int64_t row = ((const int64_t *)w->in[1])[i / w->inner];
    return ((const float *)w->in[0])[row * w->inner + i % w->inner];
}

/* Matrices in rows; the strides are over what is before the last two dimensions, and dims over that with one column more. */
ENCODER_FN float encoder_product(const encoder_work *w, int64_t i)
{
    int64_t column = i % w->columns, row = i / w->columns;
    const float *a = (const float *)w->in[0] + encoder_from(w, 0, row);
    const float *b = (const float *)w->in[1] + encoder_from(w, 1, row) + column;
    float sum = 0;
    for (int64_t k = 0; k < w->inner; k++)
        sum += a[k] * b[k * w->columns];
    return sum;
}

ENCODER_FN float encoder_reduce(const encoder_work *w, int64_t i)
{
    const float *a = (const float *)w->in[0] + i / w->inner * w->deep * w->inner + i % w->inner;
    float sum = 0;
    for (int64_t k = 0; k < w->deep; k++)
        sum += w->kind == ENCODER_LENGTH ? a[k * w->inner] * a[k * w->inner] : a[k * w->inner];
    return w->kind == ENCODER_LENGTH ? sqrtf(sum) : sum;
}

ENCODER_FN void encoder_norm(const encoder_work *w, int64_t row)
{
    const float *a = (const float *)w->in[0] + row * w->inner;
    const float *scale = (const float *)w->in[1], *bias = (const float *)w->in[2];
    float mean = 0, spread = 0;
    for (int64_t k = 0; k < w->inner; k++)
        mean += a[k] / (float)w->inner;
    for (int64_t k = 0; k < w->inner; k++)
        spread += (a[k] - mean) * (a[k] - mean) / (float)w->inner;
    float factor = 1 / sqrtf(spread + w->epsilon);
    for (int64_t k = 0; k < w->inner; k++)
        w->out[row * w->inner + k] = (a[k] - mean) * factor * scale[k] + bias[k];
}

ENCODER_FN void encoder_softmax(const encoder_work *w, int64_t row)
{
    const float *a = (const float *)w->in[0] + row * w->inner;
    float *out = w->out + row * w->inner, most = a[0], sum = 0;
    for (int64_t k = 1; k < w->inner; k++)
        most = a[k] > most ? a[k] : most;
    for (int64_t k = 0; k < w->inner; k++)
        sum += out[k] = expf(a[k] - most);
    for (int64_t k = 0; k < w->inner; k++)
        out[k] /= sum;
}

/* All of the above, by index. An operator may write over an input where the plan lets it: element by element, or row by row. */
ENCODER_FN void encoder_step(const encoder_work *w, int64_t i)
{
    switch (w->kind) {
    case ENCODER_NORM:
        encoder_norm(w, i);
        break;
    case ENCODER_SOFTMAX:
        encoder_softmax(w, i);
        break;
    case ENCODER_GATHER:
        w->out[i] = encoder_gather(w, i);
        break;
    case ENCODER_MATMUL:
        w->out[i] = encoder_product(w, i);
        break;
    case ENCODER_SUM:
    case ENCODER_LENGTH:
        w->out[i] = encoder_reduce(w, i);
        break;
    default:
        w->out[i] = encoder_each(w, i);
        break;
    }
}

#endif
