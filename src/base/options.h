/* What the rest of the library needs of options beyond weir/base.h. */
#ifndef WI_OPTIONS_H
#define WI_OPTIONS_H

#include "base/internal.h"
#include "base/values.h"

#include <weir/base.h>

/* The budget that the option names for a device, 0 if none. WEIR_ERR_INVALID when the option holds no size for it. */
weir_status wi_option_budget(const char *device, uint64_t *bytes);
/* Bytes of addresses to reserve for a range; 0: as the resource sees fit. */
uint64_t wi_option_range(void);
/* Whether runtimes whose stack has no guard get one. */
bool wi_option_poison(void);
/* The most bytes that a front may park; UINT64_MAX: nobody has said. */
uint64_t wi_option_thread_cache(void);
/* After how many allocations without growth it is calm; runtime/thread_cache/thread_cache.h. */
unsigned wi_option_steady(void);
/* Percent of the time that allocations may wait rather than hold more; memory/mapped/growth_policy.c. */
unsigned wi_option_reuse_wait(void);
/* How long an allocation waits for pending frees, in nanoseconds. */
uint64_t wi_option_wait(void);

void wi_log_option_changed(void);

#endif
