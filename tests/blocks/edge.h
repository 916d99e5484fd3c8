/* Lists that end where memory that can be read ends: whoever looks behind one of them crashes. */
#ifndef TESTS_BLOCKS_EDGE_H
#define TESTS_BLOCKS_EDGE_H

#include "core/core.h"

#include <sys/mman.h>
#include <unistd.h>

/* The end of a page behind which nothing can be read or written. */
static inline void *edge_make(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *base = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    assert_int_equal(mprotect(base + page, page, PROT_NONE), 0);
    return base + page;
}

static inline void edge_end(void *edge)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(munmap((char *)edge - page, 2 * page), 0);
}

#endif
