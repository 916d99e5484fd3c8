/* Other processes on the device, inside: weir/outside.h is the contract. outside.c looks and moves the budget; yield.c gives back.
 *
 * The budget floats: `own` is what the program has set, and the ledger's is what the others leave of it, but never less than what
 * clients have or are guaranteed. A budget that is not the one that was set here last is the program's new one.
 *
 * Locks: the turn is held for a whole look, with nothing of weir's held before it; `lock` for moments, inside the turn or
 * alone; the lock of the list of all records last. */
#ifndef WI_OUTSIDE_H
#define WI_OUTSIDE_H

#include <weir/outside.h>

#include "runtime/runtime.h"

/* A client offered by weir_client_idle. */
typedef struct wi_offer {
    struct wi_offer *next;
    weir_client *client;
    weir_suspend_options how;
    char *folder;   /* of `how`; NULL */
    uint64_t since; /* by wi_now */
    uint64_t tried; /* number of the last look in which it was tried */
    uint64_t moved; /* number of the last command by name that moved it */
    bool leaving;   /* `mover` suspends it right now */
    pthread_t mover;
} wi_offer;

typedef struct wi_outside {
    weir_runtime *runtime;
    struct wi_outside *next; /* in the list of all; under its lock */
    uint64_t due;            /* when the thread looks; UINT64_MAX: it does not; under the list's lock */

    pthread_mutex_t turn; /* of whoever looks; the next members are his */
    bool by_hand;
    uint64_t hold_until;    /* until then `asked` stays free */
    uint64_t others_then;   /* what others had when `asked` was counted last */
    unsigned steady, still; /* looks in a row with enough free; without a move */
    uint64_t growth;        /* bytes that other processes took between the last two looks */
    unsigned vain;          /* looks in a row that found too little free and nothing to give */

    pthread_mutex_t lock;   /* of the rest */
    pthread_cond_t changed; /* an offer's client has stopped leaving */
    uint64_t own, floated;  /* the program's budget, and the ledger's as it was set here last; 0: never */
    weir_outside told;
    wi_offer *offers;
    uint64_t commands; /* by name, so far */
} wi_outside;

/* ---- outside.c --------------------------------------------------------------------------------------------------- */

/* The runtime's record, made when it is first needed. WEIR_ERR_SYSTEM: no host memory. */
weir_status wi_outside_of(weir_runtime *runtime, wi_outside **out);

/* A runtime of the process's is watched from its start where the option `outside` says so; a failure goes to the log. */
void wi_outside_start(weir_runtime *runtime);
/* At a runtime's end, when nobody is inside of it any more. */
void wi_outside_destroy(weir_runtime *runtime);

/* The budget set by the program, without regard to other processes. */
uint64_t wi_outside_budget(const weir_runtime *runtime);
/* Somebody in this process is short of the budget: where the others have gone it rises at once. Does nothing while another
 * thread looks, which may wait for this one. */
void wi_outside_need(weir_runtime *runtime);
/* The part of that budget left by other processes; UINT64_MAX: nobody watches. */
uint64_t wi_outside_allows(const weir_runtime *runtime);
/* The last look, without a look; all 0 where nobody watches. */
void wi_outside_tell(const weir_runtime *runtime, weir_outside *out);

/* There may be more to give than before: the thread looks at once where something lacks. */
void wi_outside_poke(wi_outside *o);

/* Lowers the ledger's budget to what is allowed, as far as it goes. With the turn. */
void wi_outside_lower(wi_outside *o);

/* ---- yield.c ----------------------------------------------------------------------------------------------------- */

/* Gives `lack` bytes of what is held back to the driver, as far as they may be given, and of unused memory `more` besides; *out
 * has the sums. With the turn. */
void wi_outside_give(wi_outside *o, uint64_t lack, uint64_t more, weir_yielded *out);
/* Suspends (`away`) or resumes the offered clients of that name, one by one, and tells of each: the bytes that left or came, and
 * on failure the detail. Returns how many there were. No lock is held in `told`. */
typedef void wi_offer_told(const weir_client *client, weir_status status, uint64_t bytes, void *user);
size_t wi_outside_move_named(weir_runtime *runtime, const char *name, bool away, wi_offer_told *told, void *user);
/* The client is closing: its offer ends. Waits for a suspend of another thread's that is under way, but inside a pressure
 * callback: then it is WEIR_ERR_BUSY. */
weir_status wi_outside_forget(weir_client *client);

#endif
