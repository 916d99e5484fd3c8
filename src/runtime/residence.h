/* The residence of a client, inside: what residency.c, which suspends, and resume.c have in common.
 *
 * A residence is made with a client's first suspend. Its state is the gate: the thread that sets the state to
 * WEIR_MOVING has the rest of the record until the thread sets another state. */
#ifndef WI_RESIDENCE_H
#define WI_RESIDENCE_H

#include "runtime/copies.h"
#include "runtime/elastic/elastic.h"
#include "runtime/prepare.h"
#include "runtime/runtime.h"

struct wi_residence {
    pthread_mutex_t lock; /* of the state and the receipt */
    pthread_cond_t changed;
    weir_residency_state state;
    weir_suspend_options options; /* of the last suspend; folder NULL */
    bool shows;                   /* suspended, and all away bytes of its blocks are shown */
    wi_away away;                 /* blocks */
    wi_away pages;                /* of elastic blocks */
    wi_copies copies;
    wi_makers makers;       /* with a lock of their own */
    void *stream;           /* the driver's, for the copies; NULL: not made yet */
    weir_residency receipt; /* of the last suspend, for the thread that has the record; `away` is counted when asked */
    weir_residency told;    /* the same, for all */
    atomic_uint_fast64_t moves; /* how often the state became WEIR_MOVING, and another state; changed under the lock */
    atomic_bool adrift;         /* copies are under way without a point behind them: what they use is held */
    /* During an exchange (exchange.c). `offered`: bytes that a resume need not claim, as the account has their promise, or
     * gets it from the leaving client; `taken`: bytes of the offer that were needed; `promised`: to the account already. */
    uint64_t offered, taken, promised;
    struct wi_exchange *exchange; /* in which this client comes back; NULL: none */
    uint64_t pressure;            /* id of the callback that gives copies up; 0: none */
    pthread_t mover;
};

/* NULL: the client was never suspended. */
static inline wi_residence *residence_of(const weir_client *client)
{
    return atomic_load_explicit(&((weir_client *)client)->residence, memory_order_acquire);
}

/* The client's residence, made if there is none. WEIR_ERR_UNSUPPORTED: the runtime's resource has none. */
weir_status wi_residence_open(weir_client *client, const char *call, wi_residence **out);
/* Takes the record if its state is `from`. False: the state is another, *found. Waits while another thread has the
 * record, except inside a pressure callback. */
bool wi_residence_take(wi_residence *r, weir_residency_state from, weir_residency_state *found);
/* The same without waiting. */
bool wi_residence_take_now(wi_residence *r, weir_residency_state from);
/* Gives the record back, in the given state. */
void wi_residence_set(wi_residence *r, weir_residency_state state);

/* Waits for what is queued on the streams of the client's blocks; for what was declared as uses of the acquired ones, and is
 * queued on their streams. */
weir_status wi_residence_wait_streams(weir_client *client, uint64_t deadline);
weir_status wi_residence_wait_uses(weir_client *client, const wi_residence *r, uint64_t deadline);
/* In nanoseconds of wi_now; `wait` 0: never. */
uint64_t wi_residence_deadline(uint64_t wait);
/* Waits for the copies that are under way (wi_stream_rests). True: the copies are done, and hold no block any more. */
bool wi_residence_copies_rest(const weir_client *client, wi_residence *r);
/* Makes frees wait for copies that are not done, as for declared uses: frees of pages of elastic blocks, and with
 * `blocks` also frees of acquired blocks. Without a point to wait for, such a free is refused until the copies are done.
 * The thread's detail stays. */
void wi_residence_copies_are_uses(weir_client *client, wi_residence *r, bool blocks);

/* In residency.c: the steps of weir_client_suspend, for calls that suspend. The order is depart, choose, copy, then steps
 * that take the memory, departed, and wi_residence_set. */

/* Checks arguments, and takes the record of a resident client. `call` names the call in errors. *folder: for choose. */
weir_status wi_residence_depart(weir_client *client, const char *call, const weir_suspend_options *options,
                                const weir_residency *out, wi_residence **residence, const char **folder);
/* Waits for the client's work, and acquires the blocks that leave. *chosen: they are, after a failure too; then `undo` or
 * `leave` of the base has to follow. */
weir_status wi_residence_choose(weir_client *client, wi_residence *r, const char *folder, bool *chosen);
/* Queues the copies of all pieces and pages that have none; (*events)[i] is behind that of piece i. To be freed by the
 * caller, after a failure too. */
weir_status wi_residence_copy(weir_client *client, wi_residence *r, wi_event **events);
/* Waits for all copies, and gives back the pages of elastic blocks: all, or none. */
weir_status wi_residence_release_pages(weir_client *client, wi_residence *r);
/* A step since wi_residence_copy has failed; the blocks are acquired still. */
void wi_residence_copies_failed(weir_client *client, wi_residence *r, bool pages_stay);
/* Completes the receipt, and gives up copies of what stays. `gone`: some is away. */
void wi_residence_departed(weir_client *client, wi_residence *r, bool failed, bool gone);
void wi_residence_tell(weir_client *client, wi_residence *r, weir_residency *out);

/* Of a resident client that is not suspended, and yet is to have blocks whose memory is the host's: makes the record what it is
 * after a suspend with `show` of nothing. */
weir_status wi_residence_begin_shown(weir_client *client, wi_residence *r);

/* In resume.c: all that is away comes back, as in weir_client_resume; the record is the thread's. `call` names the call in
 * errors. */
weir_status wi_residence_resume(weir_client *client, wi_residence *r, weir_stream stream, uint64_t wait,
                                const char *call);
/* Whether nothing is away any more. */
bool wi_residence_is_back(const weir_client *client, const wi_residence *r);

/* In resume.c: what the base asks for about copies that are shown. */
weir_status wi_residence_hide(wi_away *away, wi_piece *piece, void *client);
void wi_residence_show_again(wi_away *away, wi_piece *piece, void *client);

/* In trust.c. */

/* Under a resume, with all contents queued and the blocks acquired: with the option `protect`, waits for them, and has the
 * device's work not write to what is to stay as its copies are. */
void wi_trust_seal(weir_client *client, wi_residence *r);
/* With the option `protect`, and in builds with WEIR_INVARIANTS: WEIR_ERR_CORRUPT, naming the block, if the device does not
 * hold what the copy of the piece holds, which is to be trusted. */
weir_status wi_trust_check(const wi_residence *r, const wi_piece *piece);
/* Writes into the receipt what the client has on the device outside of its blocks. */
void wi_trust_tell_outside(weir_client *client, const weir_client_stats *stats, weir_residency *receipt);

#endif
