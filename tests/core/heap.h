/* Host memory that weir has taken and not given back, for tests whose objects are linked with malloc, calloc, realloc, aligned_alloc,
 * posix_memalign and free led through the test: it counts in its own of the first two, and the others are here. */
#ifndef TESTS_CORE_HEAP_H
#define TESTS_CORE_HEAP_H

#include <stdatomic.h>
#include <stddef.h>

#ifndef HEAP_REFUSES
#define HEAP_REFUSES 0 /* whether the realloc that is asked for fails */
#endif

static atomic_long heap_pieces;

static inline void *heap_counted(void *piece)
{
    if (piece)
        atomic_fetch_add(&heap_pieces, 1);
    return piece;
}

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size)
{
    if (HEAP_REFUSES)
        return NULL;
    return old ? __real_realloc(old, size) : heap_counted(__real_realloc(NULL, size));
}

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return heap_counted(__real_aligned_alloc(alignment, size));
}

int __real_posix_memalign(void **out, size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    int error = __real_posix_memalign(out, alignment, size);
    (void)heap_counted(error ? NULL : *out);
    return error;
}

void __real_free(void *piece);
void __wrap_free(void *piece);
void __wrap_free(void *piece)
{
    if (piece)
        atomic_fetch_sub(&heap_pieces, 1);
    __real_free(piece);
}

#endif
