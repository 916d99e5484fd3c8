/* Options as the library's own rooms read them; the program's interface is weir/base.h. */
#ifndef WI_OPTIONS_H
#define WI_OPTIONS_H

#include "base/internal.h"
#include "base/values.h"

#include <weir/base.h>

/* The budget that the option gives a device; 0: none. WEIR_ERR_INVALID: the value is no size. */
weir_status wi_option_budget(const char *device, uint64_t *bytes);
/* Bytes of addresses to reserve for each region; 0: the resource decides. */
uint64_t wi_option_range(void);
/* Whether a runtime whose stack has no guard gets one. */
bool wi_option_poison(void);
/* Whether the process can be watched; runtime/watch/watch.h. */
bool wi_option_watch(void);
/* Whether what loads have measured is remembered in the store; weir/predict.h. */
bool wi_option_predictions(void);
/* The most bytes that a thread cache keeps; UINT64_MAX: not set. */
uint64_t wi_option_thread_cache(void);
/* Percent of the time that allocations may wait in place of holding more memory; memory/mapped/growth_policy.c. */
unsigned wi_option_reuse_wait(void);
/* The cores of the process; 0: not set. */
unsigned wi_option_cores(void);
/* The longest time, in nanoseconds, that an allocation waits for pending frees. */
uint64_t wi_option_wait(void);

/* The log's, which reads its level from an option. */
void wi_log_option_changed(void);
const char *wi_log_level_name(weir_log_level level);

#endif
