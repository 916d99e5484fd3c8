/* weir/versions.h: versions as tuples of integers, so that 12.10 is later than 12.9 and 9.2 earlier than 11.8. */
#ifndef WEIR_VERSIONS_H
#define WEIR_VERSIONS_H

#include <weir/status.h>

WEIR_BEGIN

/* Parts that are not there count as 0: 13 is 13.0 and later than 12.9. `count` 0: not known. */
typedef struct weir_version_number {
    uint32_t part[4];
    uint32_t count;
} weir_version_number;

/* Reads "12", "12.4", "v12.4.1", "535.129.03": one to four decimal numbers below 2^32 between points; leading zeros count for
 * nothing ("12.08" is 12.8). What follows behind the numbers is only taken if it begins with '-' or '+' and is then left
 * out. WEIR_ERR_INVALID otherwise, with *out unchanged. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_version_read(const char *text, weir_version_number *out);

/* Less than 0, 0 or more than 0 as `a` is earlier than, the same as or later than `b`. One that is not known is earlier than
 * all others, and the same as another such. Any thread. */
WEIR_API int weir_version_compare(weir_version_number a, weir_version_number b);

/* "12.4"; "unknown" for one that is not. Cut at `capacity`, always terminated; 48 bytes are enough. Answers `text`. */
WEIR_API const char *weir_version_write(weir_version_number version, char *text, size_t capacity);

WEIR_END
#endif
