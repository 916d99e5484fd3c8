/* fill.h: tensors from nothing much: a fixed pattern, or numbers as text. */
#ifndef WEIR_CLI_FILL_H
#define WEIR_CLI_FILL_H

#include <weir/tensor.h>

/* Integers are 1, bools true, floats uniform in [0, 1) from a seed fixed here: the same on every run and machine. */
void fill_pattern(weir_type type, void *data, size_t bytes);

/* How many numbers "1, 2,3" is; 0 when it is no such list. */
size_t fill_count(const char *text);

/* Writes them; WEIR_ERR_INVALID when one is none of that type. `text` was counted. */
weir_status fill_numbers(const char *text, weir_type type, void *data);

/* Element number `index` as a double, for looking at. */
double fill_value(weir_type type, const void *data, size_t index);

#endif
