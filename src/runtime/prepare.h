/* Host memory for copies that is made ready beside the work: slabs (copies.h) that threads make before a suspend asks for them. */
#ifndef WI_PREPARE_H
#define WI_PREPARE_H

#include "runtime/background.h"
#include "runtime/copies.h"

enum { WI_MAKERS = 2 }; /* memory is touched while other memory is registered */

/* Makers: threads that make slabs for one client, each by the plan that the thread with the client's residence has made. Any
 * thread takes ready slabs. */
typedef struct wi_makers {
    pthread_mutex_t lock; /* of all */
    pthread_cond_t changed;
    uint64_t *lengths; /* of the slabs still to be made: from `at` to `count` */
    size_t at, count;
    uint64_t order; /* of the next slab */
    struct {
        uint64_t bytes, order; /* 0: nothing */
    } making[WI_MAKERS];
    wi_slab *ready; /* in their order */
    uint64_t ready_bytes;
    unsigned working;   /* threads */
    bool stop;          /* a slab that is being made is not wanted */
    weir_status status; /* why making ended early */
    char why[160];
} wi_makers;

void wi_makers_begin(wi_makers *makers);
/* The threads have ended by wi_makers_end. */
void wi_makers_free(wi_makers *makers);

/* For a suspend, with the residence: what is expected (wi_copy_memory_expect) and is neither there nor on its way is made from
 * here on, if that is more than one slab. */
void wi_makers_help(weir_client *client, const wi_copy_memory *memory);
/* The next slab that is ready and long enough; waits for a slab on its way. NULL: no such slab. */
wi_slab *wi_makers_take(weir_client *client, uint64_t bytes);
/* Gives up what is ready, and what is still to be made. Waits for nothing. Returns the bytes that were ready. */
uint64_t wi_makers_rest(weir_client *client);
/* The same; waits for the threads. */
void wi_makers_end(weir_client *client);

#endif
