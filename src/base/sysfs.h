/* The small files below /proc and /sys. */
#ifndef WI_SYSFS_H
#define WI_SYSFS_H

#include "base/internal.h"

/* What such a file may have; more is left out. */
enum { WI_SYSFS_BYTES = 8192 };

/* Reads the file whose path is printed from `format`, without the white space at its end. False, with an empty text, if it cannot
 * be read. Does not wait for what is no plain file. */
bool wi_sysfs_text(char *text, size_t capacity, const char *format, ...) WEIR_PRINTF(3, 4);

/* The number that the file begins with, decimal or behind 0x; false, with *out unchanged, if it begins with none. */
bool wi_sysfs_number(uint64_t *out, const char *format, ...) WEIR_PRINTF(2, 3);

/* What follows `key` on the line that begins with it, blanks left out; NULL if no line does. */
const char *wi_sysfs_line(const char *text, const char *key);

/* The number there; false, with *out unchanged, if there is none. */
bool wi_sysfs_field(const char *text, const char *key, uint64_t *out);

#endif
