/* What the tool of the tests knows, and what it found wrong. It is a library that weir loads by itself; the tests ask it by
 * dlsym. Any thread. */
#ifndef TESTS_NVTX_TOOL_H
#define TESTS_NVTX_TOOL_H

#include <stddef.h>
#include <stdint.h>

#define TOOL_QUESTIONS(X)                                                                                              \
    /* How many there are, and how many calls there have been. */                                                      \
    X(size_t, tool_heaps, (void))                                                                                      \
    X(size_t, tool_regions, (void))                                                                                    \
    X(size_t, tool_calls, (void))                                                                                      \
    /* Bytes of the region that begins there; 0: none does. */                                                         \
    X(size_t, tool_region, (const void *start))                                                                        \
    /* Bytes before and behind an address, to the ends of the heap that it lies in; false: in none. */                 \
    X(int, tool_heap, (const void *address, size_t *before, size_t *behind))                                           \
    /* The first mistake in words; NULL: none was made. */                                                             \
    X(const char *, tool_mistake, (void))

#endif
