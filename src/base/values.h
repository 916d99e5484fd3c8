/* Sizes, versions and element types: reading, writing and comparing them. For programs and libraries beside libweir, too. */
#ifndef WI_VALUES_H
#define WI_VALUES_H

#include "base/internal.h"

#include <weir/base.h>

/* Reads a size: digits with an optional fraction, then a unit: none or B (bytes), k, KiB, m, MiB, g, GiB, t, TiB and
 * kB, MB, GB, TB, in any case. All units are powers of 1024, as memory sizes are: "1gb" and "1g" mean the same. What a
 * fraction leaves of a byte is dropped ("1.7GiB"). Fractions of bytes ("1.5") or of less than one, a sign, an empty
 * text, trailing text and more than 2^64-1 bytes are WEIR_ERR_INVALID. */
weir_status wi_size_parse(const char *text, uint64_t *bytes);
/* The same; it leaves the detail alone. */
bool wi_size_read(const char *text, uint64_t *bytes);
/* Exactly, as the text form of a stack has it: "64KiB", "5000". */
void wi_size_write(uint64_t bytes, char *text, size_t capacity);
/* As weir_size_format. */
char *wi_size_text(uint64_t bytes, char *text, size_t capacity);
/* Rounded up to one decimal where it is not exact: a remedy must never name less than what helps. */
char *wi_size_ceil(uint64_t bytes, char *text, size_t capacity);

/* Reads "12", "12.4", "v12.4.1", "535.129.03": one to four decimal numbers below 2^32 between points; leading zeros
 * count for nothing ("12.08" is 12.8). What follows behind the numbers is only taken if it begins with '-' or '+' and
 * is then left out. WEIR_ERR_INVALID otherwise, with *out unchanged. */
weir_status wi_version_read(const char *text, weir_version_number *out);
/* Less than 0, 0 or more than 0 as `a` is earlier than, the same as or later than `b`. An unknown version is earlier
 * than every known version, and the same as another unknown version. */
int wi_version_compare(weir_version_number a, weir_version_number b);
/* "12.4"; "unknown" for an unknown version. Cut at `capacity`, always terminated; 48 bytes are enough. Answers
 * `text`. */
const char *wi_version_write(weir_version_number version, char *text, size_t capacity);

/* Bytes of one element; 0 for a number that is none. */
size_t wi_type_bytes(weir_type type);

#endif
