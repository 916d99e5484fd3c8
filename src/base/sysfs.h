/* Small files in /proc and /sys. */
#ifndef WI_SYSFS_H
#define WI_SYSFS_H

#include "base/internal.h"

/* The most that is read of a file. */
enum { WI_SYSFS_BYTES = 8192 };

/* Reads the file whose path is printed from `format`, without white space at its end. False, with an empty text: it
 * cannot be read. Does not block on a file that is not a plain one. */
bool wi_sysfs_text(char *text, size_t capacity, const char *format, ...) WEIR_PRINTF(3, 4);

/* The number at the beginning of the file, decimal or 0x; false, with *out unchanged: there is none. */
bool wi_sysfs_number(uint64_t *out, const char *format, ...) WEIR_PRINTF(2, 3);

/* The text behind `key`, without blanks, on the first line that begins with it; NULL: there is none. */
const char *wi_sysfs_line(const char *text, const char *key);

/* The number there; false, with *out unchanged: there is none. */
bool wi_sysfs_field(const char *text, const char *key, uint64_t *out);

#endif
