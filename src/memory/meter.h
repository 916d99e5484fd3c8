/* The adaptor "stats": counts and times what passes. Its lock is held for nothing but counting; only the ledger's
 * is taken under it.
 *
 * Laws: the total's tallies have what all lines had ever; a line belongs to the account with its serial number. */
#ifndef WI_METER_H
#define WI_METER_H

#include "memory/stack.h"

#include <weir/statistics.h>

/* Eight buckets to the octave; below 8 ns one for each. What lasts longer than 2^40 ns is in the last. */
enum { WI_TIME_BUCKETS = 39 * 8, WI_METER_LINES = 1024, WI_METER_ROWS = 256, WI_METER_FRAMES = 64 };

typedef struct wi_times {
    uint64_t count, total, max;
    uint64_t buckets[WI_TIME_BUCKETS];
} wi_times;

typedef struct wi_tally {
    uint64_t allocations, frees, allocated, freed, refusals, failures, hits, misses;
    uint64_t sizes[WEIR_SIZE_BUCKETS];
    wi_times allocate, free, release;
} wi_tally;

typedef struct wi_meter_line {
    uint64_t serial;
    wi_tally *classes[WEIR_CLASS_COUNT]; /* NULL: nothing yet */
    struct wi_meter_line *next;
} wi_meter_line;

typedef struct wi_meter {
    wi_resource resource; /* its lock is the meter's */
    wi_tally total[WEIR_CLASS_COUNT];
    wi_meter_line *rows[WI_METER_ROWS]; /* by serial number */
    size_t lines;
    weir_statistics_frame frames[WI_METER_FRAMES];
    size_t depth;
} wi_meter;

weir_status wi_meter_create(wi_resource *inner, const wi_arguments *arguments, wi_resource **out);
/* The outermost meter of a stack; NULL if it has none. */
wi_meter *wi_meter_in(wi_resource *top);

/* account NULL: the total; WEIR_CLASS_COUNT: all classes. False: it has no line. */
bool wi_meter_read(wi_meter *meter, const wi_account *account, weir_class memory_class, weir_statistics *out);
weir_status wi_meter_push(wi_meter *meter);
weir_status wi_meter_pop(wi_meter *meter, weir_statistics_frame *out);

#endif
