/* Gauges: statistics under PyTorch's names: the current amount, its peak, and the totals that came and went. A gauge
 * may read below zero until thread-local deltas are merged (ledger.h); that is never a peak. */
#ifndef WI_GAUGES_H
#define WI_GAUGES_H

#include "base/internal.h"

#include <weir/stats.h>

static inline void wi_gauge_reach(weir_gauge *gauge, uint64_t level)
{
    if ((int64_t)level > (int64_t)gauge->peak)
        gauge->peak = level;
}

static inline void wi_gauge_up(weir_gauge *gauge, uint64_t by)
{
    gauge->current += by;
    gauge->allocated += by;
    wi_gauge_reach(gauge, gauge->current);
}

static inline void wi_gauge_down(weir_gauge *gauge, uint64_t by)
{
    gauge->current -= by;
    gauge->freed += by;
}

/* Merges a delta: what came and went, and how far the value was above its old one meanwhile. */
static inline void wi_gauge_merge(weir_gauge *gauge, uint64_t came, uint64_t went, uint64_t high)
{
    wi_gauge_reach(gauge, gauge->current + high);
    gauge->current += came - went;
    gauge->allocated += came;
    gauge->freed += went;
}

static inline void wi_gauge_forget_peak(weir_gauge *gauge)
{
    gauge->peak = gauge->current;
}

static inline void wi_gauge_forget_past(weir_gauge *gauge)
{
    gauge->allocated = gauge->freed = 0;
}

#endif
