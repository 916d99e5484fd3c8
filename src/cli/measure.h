/* measure.h: what the process took outside weir's ledger.
 *
 * Counted are touched anonymous pages, the kernel's RssAnon, summed over /proc/self/smaps, where each mapping can be told
 * apart: weir's own (weir_block_info knows the address) from everything else. The ledger itself would not do for the
 * difference: a live block may be touched in part, and cached memory is resident too. */
#ifndef WEIR_CLI_MEASURE_H
#define WEIR_CLI_MEASURE_H

#include <weir/status.h>

extern const char measure_method[]; /* for weir_client_note_outside */

typedef struct measure {
    uint64_t anonymous; /* all of the process */
    uint64_t own;       /* of it, in weir's mappings */
} measure;

/* As things are now; hands malloc's free pages back first. False where the system does not tell. */
bool measure_now(measure *out);

/* The growth from `before` to `after` outside weir, never below 0. */
uint64_t measure_outside(const measure *before, const measure *after);

#endif
