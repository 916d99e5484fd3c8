/* The binary trace file; docs/guide/trace.md describes it for others. All numbers are little-endian.
 *
 *   header   magic, version, bytes of an event's item
 *   items    each begins with its kind and the CRC-32 of what follows these two numbers
 *            text    number, length, the bytes, zeros up to a multiple of 8; before the first event that names it
 *            event   the members below
 *            end     how many events were lost, how many are in the file; nothing follows
 *
 * A later version may make events longer, at their end. */
#ifndef WI_TRACE_FORMAT_H
#define WI_TRACE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WI_TRACE_MAGIC "weir\r\n\x1a\n" /* eight bytes; whoever takes the file for text breaks it visibly */

enum {
    WI_TRACE_VERSION = 1,
    WI_TRACE_HEADER = 16, /* bytes */
    WI_TRACE_ITEM = 8,    /* of the two numbers that every item begins with */
    WI_TRACE_EVENT = 144,
    WI_TRACE_EVENT_MOST = 4096, /* no version writes more */
    WI_TRACE_END = 24,
    WI_TRACE_TEXT_MOST = 1024, /* of a text */

    WI_TRACE_IS_TEXT = 1,
    WI_TRACE_IS_EVENT = 2,
    WI_TRACE_IS_END = 3
};

/* An event's members: name, place, member of weir_event. Numbers of 4 bytes, and of 8; those that are not of the event as
 * they stand have a name alone. */
#define WI_TRACE_SMALL(X) X(ACTION, 8, action) X(CLASS, 12, memory_class) X(RESULT, 132, result) X(ACCESS, 136, access)
#define WI_TRACE_LARGE(X)                                                                                              \
    X(ORDER, 16, order)                                                                                                \
    X(NANOSECONDS, 24, nanoseconds)                                                                                    \
    X(THREAD, 32, thread)                                                                                              \
    X(BYTES, 48, bytes)                                                                                                \
    X(CHARGED, 56, charged)                                                                                            \
    X(GENERATION, 64, generation)                                                                                      \
    X(STREAM, 72, stream.id)                                                                                           \
    X(OTHER, 80, other.id) X(OBJECT, 88, object) X(LIVE, 96, live) X(PENDING, 104, pending) X(HELD, 112, held)
enum {
#define X(name, at, member) WI_AT_##name = at,
    WI_TRACE_SMALL(X) WI_TRACE_LARGE(X)
#undef X
        WI_AT_POINTER = 40,
    WI_AT_CLIENT = 120, /* numbers of texts; 0 is "" */
    WI_AT_TAG = 124,
    WI_AT_DEVICE = 128
};

static inline void wi_put(unsigned char *at, unsigned bytes, uint64_t value)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}
static inline void wi_put32(unsigned char *at, uint32_t value)
{
    wi_put(at, 4, value);
}
static inline void wi_put64(unsigned char *at, uint64_t value)
{
    wi_put(at, 8, value);
}
static inline uint64_t wi_get64(const unsigned char *at)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}
static inline uint32_t wi_get32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* CRC-32 as of zlib and PNG (ISO 3309), four bits a step. */
static inline uint32_t wi_crc(const unsigned char *bytes, size_t count)
{
    static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                       0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        crc = table[crc & 15] ^ crc >> 4;
        crc = table[crc & 15] ^ crc >> 4;
    }
    return ~crc;
}

#endif
