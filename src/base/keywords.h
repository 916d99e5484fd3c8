/* Keywords of manifests and options, each list written once, for reading and for the errors that name it; durations in
 * options; and the edit distance of a word from one that may have been meant. */
#ifndef WI_KEYWORDS_H
#define WI_KEYWORDS_H

#include "base/internal.h"

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

#endif
