/* export.h: what the files of the verb export share. */
#ifndef WEIR_CLI_EXPORT_EXPORT_H
#define WEIR_CLI_EXPORT_EXPORT_H

#include "trace/lifetimes.h"
#include "trace/recording.h"

#include <stdio.h>

/* A change of a block at an event; the steps of an event come in the order in which they happened. A block leaves with
 * the first of its bytes; a block that is freed while it is away does not return. */
typedef enum export_step_kind { EXPORT_BEGIN, EXPORT_LEAVE, EXPORT_RETURN, EXPORT_FREE, EXPORT_END } export_step_kind;

typedef struct export_step {
    uint32_t event, block;
    export_step_kind kind;
} export_step;

/* Of all blocks that have bytes and were ever live; the caller's to free. */
export_step *export_steps(const lifetimes *blocks, size_t *count);

/* Writes what PyTorch's own snapshots are: a dictionary, as pickle protocol 2 has it. */
weir_status export_snapshot(FILE *file, const recording *trace, const lifetimes *blocks);

/* Writes Chrome's trace events as JSON, which Perfetto opens; blocks of less than `least` bytes are counted alone. */
weir_status export_perfetto(FILE *file, const recording *trace, const lifetimes *blocks, uint64_t least);

#endif
