/* Keywords of manifests and options. Each list is written once, for reading and for the errors that name it. */
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

/* Each reads a word in any case; `what` begins the error. WEIR_ERR_INVALID names the allowed ones, and leaves *out. */
weir_status wi_provider_read(const char *what, const char *word, wi_provider *out);
weir_status wi_policy_read(const char *what, const char *word, wi_policy *out);
/* Checks one of the seven strategies, all of which mean any device that qualifies. A strategy that splits a model over
 * devices does not exist, and is refused. */
weir_status wi_strategy_check(const char *what, const char *word);
weir_status wi_level_check(const char *what, const char *word);
/* "all" and its other names. */
bool wi_level_is_all(const char *word);

#endif
