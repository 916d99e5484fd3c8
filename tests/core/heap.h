/* Host memory of weir's: each malloc and calloc can be made to fail, and what was taken and not given back is counted. For tests
 * whose objects are linked with malloc, calloc, realloc, aligned_alloc, posix_memalign and free led through here
 * (WEIR_HEAP_WRAPS in tests/CMakeLists.txt). */
#ifndef TESTS_CORE_HEAP_H
#define TESTS_CORE_HEAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#ifndef HEAP_REFUSES
#define HEAP_REFUSES 0 /* whether the realloc that is asked for fails */
#endif

static atomic_long heap_pieces;
static long mallocs, malloc_fails_at = -1; /* requests while armed; the one that fails, from 0; -1: none */
static _Thread_local bool malloc_armed;    /* on the test's thread alone: threads of streams take no memory */

static inline void *heap_counted(void *piece)
{
    if (piece)
        atomic_fetch_add(&heap_pieces, 1);
    return piece;
}

static bool refuse_malloc(void)
{
    return malloc_armed && mallocs++ == malloc_fails_at;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return refuse_malloc() ? NULL : heap_counted(__real_malloc(size));
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return refuse_malloc() ? NULL : heap_counted(__real_calloc(count, size));
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
