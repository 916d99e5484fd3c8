/* Windows: places between two steps of an operation where another thread may have its turn, and where few threads ever
 * meet. A test stands one thread there while another acts (tests/core/windows.c), and the simulator runs other steps
 * there. No lock is held there, but at the last one the thread's own. What a driver is asked for is such a place, too,
 * and needs none of these.
 *
 * Builds without WEIR_INVARIANTS do not contain them. */
#ifndef WI_WINDOW_H
#define WI_WINDOW_H

typedef enum wi_window_place {
    WI_WINDOW_STREAM_SETTLED, /* a registered stream has its place; the one before at its address is not done with */
    WI_WINDOW_STREAM_LEFT,    /* an unregistered stream has its place no more; what weir keeps for it is still there */
    WI_WINDOW_FREE_LOOKED,    /* a free has looked at its stream, and at nothing else */
    WI_WINDOW_FREE_FENCED,    /* a free knows what it waits for, and the block is not retired */
    WI_WINDOW_BLOCK_CHOSEN,   /* a front has looked at the block that it is given, and has not claimed it */
    WI_WINDOW_CLAIM_FAILED,   /* a request has found no room in the ledger, and has not looked for any yet */
    WI_WINDOWS
} wi_window_place;

#ifdef WEIR_INVARIANTS
/* Who has a turn there; NULL: nobody. Set while no other thread is inside weir. */
extern void (*wi_window_turn)(wi_window_place place);
#define wi_window(place) (wi_window_turn ? wi_window_turn(place) : (void)0)
#else
#define wi_window(place) ((void)(place))
#endif

#endif
