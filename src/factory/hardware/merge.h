/* Putting together what the sources have found: each device once, with its ordinal as this process would use it. */
#ifndef WI_HARDWARE_MERGE_H
#define WI_HARDWARE_MERGE_H

#include "factory/hardware/probe.h"

/* What of the environment matters, as it was at the time of the look; NULL: not set. */
typedef struct wi_visibility {
    const char *given; /* replaces CUDA_VISIBLE_DEVICES, whatever its value */
    const char *cuda;  /* CUDA_VISIBLE_DEVICES */
    const char *order; /* CUDA_DEVICE_ORDER */
    const char *rocr, *hip;
} wi_visibility;

/* `out` begins with the processor alone. False: no host memory. */
bool wi_merge(const wi_answer answers[WI_SOURCES], const wi_visibility *visibility, wi_found *out);

/* CUDA's ordinals; used by wi_merge. `cards` has every device that CUDA could use. */
void wi_number_cuda(const wi_answer *cuda, const wi_visibility *visibility, wi_card *cards, size_t count);

/* Sets a card's remark unless it has one. */
void wi_card_remark(wi_card *card, const char *format, ...) WEIR_PRINTF(2, 3);

#endif
