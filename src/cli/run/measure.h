/* measure.h: the memory that the process took outside weir's ledger.
 *
 * On the host, resident anonymous pages (RssAnon) are counted over /proc/self/smaps, which tells weir's own mappings
 * (weir_block_info knows their addresses) from all others. The ledger cannot be subtracted instead: a live block may be
 * resident in part, and cached memory is resident too. On a device it is what the driver reports as used, less what
 * weir holds. */
#ifndef WEIR_CLI_RUN_MEASURE_H
#define WEIR_CLI_RUN_MEASURE_H

#include <weir/runtime.h>

typedef struct measure {
    uint64_t anonymous; /* all of the process */
    uint64_t own;       /* of it, in weir's mappings */
    uint64_t device;    /* used on the runtime's device, by anyone; only on cuda */
    uint64_t held;      /* of it, what weir holds */
    uint64_t libraries; /* that the process has opened since it began */
} measure;

/* Measures the host and the runtime's device now, after giving malloc's free pages back. False: the system does not
 * tell. */
bool measure_now(weir_runtime *runtime, measure *out);

/* The growth from `before` to `after` outside weir, never below 0: on the host, and on the device. */
uint64_t measure_outside(const measure *before, const measure *after);
uint64_t measure_outside_device(const measure *before, const measure *after);

/* The growth on the host by libraries that were opened between; 0 where none was: pages that anything else touched
 * meanwhile are not theirs. */
uint64_t measure_opened(const measure *before, const measure *after);

/* The method, in words for weir_client_note_outside. */
const char *measure_method(const weir_runtime *runtime);

/* Whether the runtime's device has memory of its own. */
bool measure_is_device(const weir_runtime *runtime);

/* What is used on a CUDA device, by this process and all others, as its driver says. */
bool measure_device_taken(weir_runtime *runtime, uint64_t *taken);

/* Functions of CUDA's driver, found at run time, for what the command itself does on a GPU. */
typedef struct cuda_wanted {
    const char *name;
    void *to; /* the pointer to a function that is filled in */
} cuda_wanted;

/* Finds the functions in libcuda.so.1, with the interface of CUDA 12.0. False: the library is not here, or lacks a
 * function. */
bool cuda_find(const cuda_wanted *wanted, size_t count);

#endif
