/* The allocator that one ONNX Runtime session uses: a client of weir seen through ONNX Runtime's table. */
#ifndef WEIR_ONNX_ALLOCATOR_H
#define WEIR_ONNX_ALLOCATOR_H

#include <pthread.h>
#include <stdatomic.h>

#include "library.h"

typedef struct onnx_allocator {
    ort_allocator table; /* first: ONNX Runtime's pointer is ours */
    const onnx_library *library;
    weir_client *client;
    atomic_bool loading;           /* what it asks for now lives as long as the session */
    atomic_uint_fast64_t reserved; /* bytes that Reserve was asked for */
    atomic_uint_fast64_t refusals; /* requests that were refused */
    atomic_uint_fast64_t foreign;  /* frees of pointers that are not the client's, which were ignored */
    pthread_mutex_t lock;
    char refused[1024]; /* the words of the last refusal; guarded by lock */
} onnx_allocator;

void onnx_allocator_init(onnx_allocator *allocator, const onnx_library *library, weir_client *client);
void onnx_allocator_destroy(onnx_allocator *allocator);

/* Kernels of ONNX Runtime may read up to this many bytes past what they asked for. */
enum { ONNX_SLACK = 64 };

/* What a request of ONNX Runtime is charged; saturates. */
uint64_t onnx_charge(uint64_t bytes);

/* `text` holds the words with which a call of ONNX Runtime failed. If that was because a request of this thread, or of one
 * that worked for it, was refused since `before` (a former value of refusals): puts the refusal's words there instead and
 * answers true. */
bool onnx_allocator_refused(onnx_allocator *allocator, uint64_t before, char *text, size_t capacity);

#endif
