/* weir/options.h: settings by name, from the environment or from calls, and sizes with units. */
#ifndef WEIR_OPTIONS_H
#define WEIR_OPTIONS_H

#include <weir/status.h>

WEIR_BEGIN

typedef enum weir_option_source {
    WEIR_OPTION_FROM_DEFAULT = 0,
    WEIR_OPTION_FROM_ENVIRONMENT = 1,
    WEIR_OPTION_FROM_CALL = 2
} weir_option_source;

typedef struct weir_option {
    size_t struct_size;
    const char *name;        /* "budget" */
    const char *environment; /* "WEIR_BUDGET" */
    const char *help;        /* one line, what it does and what values it takes */
    char value[256];         /* in the form it was given; "" when unset. Of the environment's words and numbers without
                                  the white space around them; what can be a path has it */
    weir_option_source source; /* where the value came from; a call wins over the environment */
    bool rejected;             /* the environment holds a value that does not parse; `value` is the default instead.
                                  A runtime does not start on a rejected budget: WEIR_ERR_INVALID */
} weir_option;

/* The option number `index`, from 0; WEIR_ERR_NOT_FOUND past the last. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_option_at(size_t index, weir_option *out);

/* The option called `name`. WEIR_ERR_NOT_FOUND names the nearest one. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_option_get(const char *name, weir_option *out);

/* Gives an option a value from now on; NULL takes the given value back. WEIR_ERR_INVALID says what values are taken, and
 * leaves the old one. Options that a runtime read when it was made (budget, resource) do not change that runtime. */
WEIR_API WEIR_NODISCARD weir_status weir_option_set(const char *name, const char *value);

/* Reads a size: digits with an optional fraction, then a unit: none or B (bytes), k, KiB, m, MiB, g, GiB, t, TiB and
 * kB, MB, GB, TB, in any case. All of them are powers of 1024: memory comes in those, and "1gb" that means something
 * else than "1g" has never helped anyone. What a fraction leaves of a byte is dropped ("1.7GiB"). Fractions of
 * bytes ("1.5") or of less than one, a sign, an empty text, trailing text and more than 2^64-1 bytes are WEIR_ERR_INVALID.
 * Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_size_parse(const char *text, uint64_t *bytes);

/* Writes "980 MiB", "1.5 GiB", "512 B" into `text` (24 bytes are enough, always terminated) and returns it. Exact where
 * one decimal is exact, otherwise rounded to one decimal. */
WEIR_API char *weir_size_format(uint64_t bytes, char *text, size_t capacity);

WEIR_END
#endif
