/* The kinds of memory: their names, and the one that needs no device. */
#include "driver/driver.h"

enum { PIECE_ALIGNMENT = 256 };

const char *weir_kind_name(weir_kind kind)
{
    static const char *const names[WEIR_KIND_COUNT] = {"device", "pinned", "host"};
    return kind >= 0 && kind < WEIR_KIND_COUNT ? names[kind] : "?";
}

weir_status wi_pageable_allocate(uint64_t bytes, void **address)
{
    if (posix_memalign(address, PIECE_ALIGNMENT, bytes) != 0)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "the C library has no %llu bytes of memory",
                         (unsigned long long)bytes);
    return WEIR_OK;
}
