/* Vector clocks of a replay: at[s] is the last piece of work on stream s that is known to be done. */
#ifndef SIM_REPLAY_CLOCK_H
#define SIM_REPLAY_CLOCK_H

#include <weir/base.h>

typedef struct clock_vector {
    uint64_t *at; /* beyond width: 0 */
    unsigned width;
} clock_vector;

/* What all clocks of a replay may take together; a file must not be able to ask for more than a machine has. */
typedef struct clock_purse {
    uint64_t bytes, most;
} clock_purse;

static inline uint64_t clock_get(const clock_vector *c, unsigned slot)
{
    return slot < c->width ? c->at[slot] : 0;
}

weir_status clock_raise(clock_purse *purse, clock_vector *c, unsigned slot, uint64_t value);
weir_status clock_join(clock_purse *purse, clock_vector *c, const clock_vector *other);
weir_status clock_copy(clock_purse *purse, clock_vector *c, const clock_vector *other);
void clock_clear(clock_purse *purse, clock_vector *c);

#endif
