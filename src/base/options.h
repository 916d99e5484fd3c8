/* What the rest of the library needs of options beyond weir/base.h. */
#ifndef WI_OPTIONS_H
#define WI_OPTIONS_H

#include "base/internal.h"

#include <weir/base.h>

/* The budget that the option names for a device, 0 if none. WEIR_ERR_INVALID when the option holds no size for it. */
weir_status wi_option_budget(const char *device, uint64_t *bytes);
/* Bytes of addresses to reserve for a range; 0: as the resource sees fit. */
uint64_t wi_option_range(void);
/* Whether runtimes whose stack has no guard get one. */
bool wi_option_poison(void);
/* The most bytes that a thread cache may keep; UINT64_MAX: nobody has said. */
uint64_t wi_option_thread_cache(void);
/* Percent of the time that allocations may wait rather than hold more; memory/mapped/growth_policy.c. */
unsigned wi_option_reuse_wait(void);
/* How long an allocation waits for pending frees, in nanoseconds. */
uint64_t wi_option_wait(void);
/* weir_size_parse that leaves the detail alone. */
bool wi_size_read(const char *text, uint64_t *bytes);
/* Exactly, as the text form of a stack has it: "64KiB", "5000". */
void wi_size_write(uint64_t bytes, char *text, size_t capacity);
/* Bytes as a size, rounded up to one decimal where it is not exact: a remedy must never name less than what helps. */
char *wi_size_ceil(uint64_t bytes, char *text, size_t capacity);

void wi_log_option_changed(void);

#endif
