/* measure.h: what the process took outside weir's ledger.
 *
 * Counted are touched anonymous pages, the kernel's RssAnon, summed over /proc/self/smaps, where each mapping can be told
 * apart: weir's own (weir_block_info knows the address) from everything else. The ledger itself would not do for the
 * difference: a live block may be touched in part, and cached memory is resident too. On a device, whose memory is either
 * taken or not, it is what the driver says is taken, less what weir holds. */
#ifndef WEIR_CLI_MEASURE_H
#define WEIR_CLI_MEASURE_H

#include <weir/runtime.h>

typedef struct measure {
    uint64_t anonymous; /* all of the process */
    uint64_t own;       /* of it, in weir's mappings */
    uint64_t device;    /* of a model on cuda: what is taken on the device, by weir or not */
    uint64_t held;      /* of it, what weir holds */
} measure;

/* As things are now, on the host and on the runtime's device; hands malloc's free pages back first. False where the system
 * does not tell. */
bool measure_now(weir_runtime *runtime, measure *out);

/* The growth from `before` to `after` outside weir, never below 0: on the host, and on the device. */
uint64_t measure_outside(const measure *before, const measure *after);
uint64_t measure_outside_device(const measure *before, const measure *after);

/* How that is found out, for weir_client_note_outside: for models on the runtime's device. */
const char *measure_method(const weir_runtime *runtime);

/* Whether the runtime's device has memory of its own. */
bool measure_is_device(const weir_runtime *runtime);

/* measure_device.c: what is taken on a CUDA device, as its driver says: by this process and all others. */
bool measure_device_taken(weir_runtime *runtime, uint64_t *taken);

#endif
