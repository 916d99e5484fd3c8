/* The kind of memory that needs no device. */
#include "driver/driver.h"

enum { PIECE_ALIGNMENT = 256 };

weir_status wi_pageable_allocate(uint64_t bytes, void **address)
{
    if (posix_memalign(address, PIECE_ALIGNMENT, bytes) != 0)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "the C library has no %llu bytes of memory",
                         (unsigned long long)bytes);
    return WEIR_OK;
}
