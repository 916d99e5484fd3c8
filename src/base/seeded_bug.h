/* Seeded bugs (mutations): mistakes that the simulator puts into the core, for its oracle to find.
 *
 * The core calls wi_has_bug at each decision that a seeded bug can change. Only the simulator's copy of the core is
 * compiled with seeded bugs (WEIR_SEEDED_BUGS); libweir has none, and the calls cost nothing there. */
#ifndef WI_SEEDED_BUG_H
#define WI_SEEDED_BUG_H

#include <stdbool.h>

typedef enum wi_bug {
    WI_BUG_NONE = 0,
    WI_BUG_EARLY_REUSE = 1,     /* a pending free counts as passed */
    WI_BUG_DROP_WAIT = 2,       /* a launch does not wait for the uses before it */
    WI_BUG_UNMAP_UNDER_USE = 3, /* pending memory is unmapped like free memory */
    WI_BUG_LOST_READER = 4,     /* a read that has ended is forgotten */
    WI_BUG_FREE_UNDER_USE = 5,  /* a block is freed while a launch uses it */
    WI_BUG_LEAVE_EARLY = 6,     /* a suspend does not wait for declared uses */
    WI_BUG_ARRIVE_LATE = 7,     /* the stream of a resume is not ordered behind the copies */
    WI_BUG_EXCHANGE_EARLY = 8,  /* pieces that are shown are exchanged while work may be using them */
    WI_BUGS
} wi_bug;

#ifdef WEIR_SEEDED_BUGS
extern wi_bug wi_seeded_bug; /* src/sim/simulate.c */
#else
enum { wi_seeded_bug = WI_BUG_NONE };
#endif

static inline bool wi_has_bug(wi_bug bug)
{
    return (int)wi_seeded_bug == (int)bug;
}

#endif
