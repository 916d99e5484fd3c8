/* Values in texts, read, written and compared: sizes, versions, element types, durations, keywords; and the options of weir.
 * Programs and libraries beside libweir have all but the options. */
#ifndef WI_VALUES_H
#define WI_VALUES_H

#include "base/internal.h"

#include <weir/base.h>

/* Sizes, versions and element types -------------------------------------------------------------------------------- */

/* Sizes, versions and element types: reading, writing and comparing them. For programs and libraries beside libweir, too. */

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

/* Keywords and durations ------------------------------------------------------------------------------------------- */

/* Keywords of manifests and options, each list written once, for reading and for the errors that name it; durations in
 * options; and the edit distance of a word from one that may have been meant. */

typedef enum wi_provider {
    WI_TENSORRT,
    WI_CUDA,
    WI_ROCM,
    WI_COREML,
    WI_DIRECTML,
    WI_OPENVINO,
    WI_CPU,
    WI_PROVIDERS
} wi_provider;

typedef enum wi_policy { WI_FASTEST, WI_MANIFEST, WI_MEMORY } wi_policy;

const char *wi_provider_name(wi_provider provider);
const char *wi_policy_name(wi_policy policy);

/* Reads a word in any case; `what` begins the error. WEIR_ERR_INVALID names the allowed words, and leaves *out. */
weir_status wi_provider_read(const char *what, const char *word, wi_provider *out);
weir_status wi_policy_read(const char *what, const char *word, wi_policy *out);
/* Checks the name of a strategy. The seven strategies have the same meaning: any qualifying device may be chosen. A
 * strategy that splits a model over devices does not exist, and is refused. */
weir_status wi_strategy_check(const char *what, const char *word);
weir_status wi_level_check(const char *what, const char *word);
/* "all" and its other names. */
bool wi_level_is_all(const char *word);

/* Reads digits and a unit: "30d", "12h", "15m", "0s"; at most 36500 days. False, with *seconds unchanged, for anything
 * else. */
bool wi_duration_read(const char *text, uint64_t *seconds);

/* Returns how many letters to insert, delete or replace to turn `a` into `b`. Ignores the common beginning and end of
 * the words; if both rests are longer than 63 letters, returns the length of the longer rest, as no typing error is so
 * large. */
size_t wi_edit_distance(const char *a, const char *b);

/* Options ---------------------------------------------------------------------------------------------------------- */

/* Options as the library's own rooms read them; the program's interface is weir/base.h. */

/* The budget that the option gives a device; 0: none. WEIR_ERR_INVALID: the value is no size. */
weir_status wi_option_budget(const char *device, uint64_t *bytes);
/* Bytes of addresses to reserve for each region; 0: the resource decides. */
uint64_t wi_option_range(void);
/* Whether a runtime whose stack has no guard gets one. */
bool wi_option_poison(void);
/* Whether what engines promise not to write is protected. */
bool wi_option_protect(void);
/* Whether the process can be watched; runtime/watch/watch.h. */
bool wi_option_watch(void);
/* Whether what loads have measured is remembered in the store; weir/predict.h. */
bool wi_option_predictions(void);
/* The most bytes that a thread cache keeps; UINT64_MAX: not set. */
uint64_t wi_option_thread_cache(void);
/* Percent of the time that allocations may wait in place of holding more memory; memory/mapped/growth_policy.c. */
unsigned wi_option_reuse_wait(void);
/* Percent of the time that moves may take before more memory is held; 0: it does not count. */
unsigned wi_option_move_time(void);
/* The cores of the process; 0: not set. */
unsigned wi_option_cores(void);
/* The longest time, in nanoseconds, that an allocation waits for pending frees. */
uint64_t wi_option_wait(void);

/* The log's, which reads its level from an option. */
void wi_log_option_changed(void);
const char *wi_log_level_name(weir_log_level level);

#endif
