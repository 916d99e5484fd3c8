/* Where tests and the simulator reach into weir: windows, where others may run, and seeded bugs. */
#ifndef WI_PROBES_H
#define WI_PROBES_H

#include <stdbool.h>

/* Windows ---------------------------------------------------------------------------------------------------------- */

/* Windows: points between two steps of an operation where another thread may run, but seldom does. A test stops a
 * thread at a window while another thread acts (tests/core/windows.c), and the simulator runs other steps there. No
 * lock is held, except the thread's own at the last window. Every driver call is such a point as well.
 *
 * Builds without WEIR_INVARIANTS do not contain them. */

typedef enum wi_window_point {
    WI_WINDOW_STREAM_SETTLED, /* a registered stream has its entry; the earlier one at its address has not ended yet */
    WI_WINDOW_STREAM_CLOSED, /* a stream that is released or unregistered is found no more; its work is not waited for yet */
    WI_WINDOW_STREAM_WAITED, /* and now it is; the stream has its entry still */
    WI_WINDOW_STREAM_LEFT, /* an unregistered stream has lost its entry; weir's records of the stream are still there */
    WI_WINDOW_FREE_LOOKED, /* a free has looked up its stream, and nothing else */
    WI_WINDOW_FREE_FENCED, /* a free knows what it waits for, and the block is not retired yet */
    WI_WINDOW_BLOCK_CHOSEN,     /* a thread cache has looked at the block that is freed, and has not acquired it yet */
    WI_WINDOW_CLAIM_FAILED,     /* a request has found no room in the ledger, and has not climbed the ladder yet */
    WI_WINDOW_REDIRECT_HELD,    /* a redirect's free holds a stream of the module's, and is not behind its work yet */
    WI_WINDOW_REDIRECT_AWAITED, /* a capture, or the end of a stream of the module's, has found that a free holds it */
    WI_WINDOW_REDIRECT_MARKED,  /* a redirect has marked a stream captured, and told nobody yet */
    WI_WINDOW_REDIRECT_LEFT,    /* weir no longer knows a stream of the module's; its entry is still there */
    WI_WINDOW_RUN_MARKED,       /* the engine onnx has marked runs cancelled, and woken nobody yet */
    WI_WINDOWS
} wi_window_point;

#ifdef WEIR_INVARIANTS
/* Called at a window; NULL: nothing. Set while no other thread is inside weir. */
extern void (*wi_window_hook)(wi_window_point point);
#define wi_window(point) (wi_window_hook ? wi_window_hook(point) : (void)0)
#else
#define wi_window(point) ((void)(point))
#endif

/* Seeded bugs ------------------------------------------------------------------------------------------------------ */

/* Seeded bugs (mutations): mistakes that the simulator puts into the core, for its oracle to find.
 *
 * The core calls wi_has_bug at each decision that a seeded bug can change. Only the simulator's copy of the core is
 * compiled with seeded bugs (WEIR_SEEDED_BUGS); libweir has none, and the calls cost nothing there. */

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
