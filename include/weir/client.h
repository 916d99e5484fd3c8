/* weir/client.h: a client, the account of one engine or model on one runtime. */
#ifndef WEIR_CLIENT_H
#define WEIR_CLIENT_H

#include <weir/runtime.h>

WEIR_BEGIN

typedef struct weir_client weir_client;

/* Whether bytes are zeroed when they pass from one client of the runtime to another. */
typedef enum weir_scrub {
    WEIR_SCRUB_NEVER = 0,  /* a block holds what its bytes held before */
    WEIR_SCRUB_OTHERS = 1, /* bytes are zeroed when they come to this client from another client, or go from this client
                              to another; never while the owner stays the same */
    WEIR_SCRUB_COUNT = 2
} weir_scrub;

typedef struct weir_client_options {
    size_t struct_size;
    const char *name;    /* how reports and refusals call it; copied, cut at 63 bytes; NULL or "" is WEIR_ERR_INVALID.
                            Names need not be unique, but people read them. After 65,536 different ones, traces and
                            layouts, which outlive clients, call later ones "?", and the log says so once */
    uint64_t guaranteed; /* bytes that are never lent as live memory to another client */
    uint64_t maximum;    /* the most this client may have live + pending + promised; 0: the budget */
    weir_scrub scrub;
} weir_client_options;

/* Opens an account. WEIR_ERR_OUT_OF_MEMORY when the guarantees and what other clients have live would exceed the
 * budget; WEIR_ERR_INVALID when guaranteed > maximum, or for a scrub that is none. Any thread.
 *
 * Scrubbing is part of an allocation: the zeros are queued on its stream, before anything of the new owner's, and
 * cover all that the block is charged. Free memory in which bytes of several clients have come together counts as
 * another client's, and so does what is taken from the driver after some was given back to it. What cannot be zeroed
 * is not given out: the allocation fails as the zeros did (WEIR_ERR_DRIVER), and with WEIR_ERR_STREAM_MISUSE on a
 * stream that is being captured. Other runtimes and programs get memory as the driver gives it, without scrubbing. */
WEIR_API WEIR_NODISCARD weir_status weir_client_create(weir_runtime *runtime, const weir_client_options *options,
                                                       weir_client **out);

/* Closes it. Pending frees are waited for; meanwhile other threads may free and look, while what would take more for
 * the client, or close it, is WEIR_ERR_INVALID. WEIR_ERR_BUSY while it has blocks, naming how many, how many bytes
 * and the largest one's tag (the log has all of them); the client stays open. WEIR_ERR_DRIVER: it was
 * suspended, and the driver does not say whether its copies are done, which may still be using the host's memory; nothing
 * has changed, and it is closed when the device answers again. Closing a closed client is WEIR_ERR_INVALID. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_client_destroy(weir_client *client);

/* Changes the limits while in use. A maximum below what is live, pending and promised, or a guarantee that the others
 * leave no room for, is refused with numbers (WEIR_ERR_OUT_OF_MEMORY), and nothing changes. maximum 0: the budget. */
WEIR_API WEIR_NODISCARD weir_status weir_client_set_limits(weir_client *client, uint64_t guaranteed, uint64_t maximum);

/* Returns the client's runtime; NULL for NULL. Takes no lock, so that bridges can ask at every call. Any thread. */
WEIR_API weir_runtime *weir_client_runtime(const weir_client *client);

/* Notes the bytes this client's engine took without asking weir, and how that was found out ("RssAnon over load and
 * first run, less the ledger"); shown in statistics, charged to nothing. The text is copied, cut at 127 bytes. */
WEIR_API WEIR_NODISCARD weir_status weir_client_note_outside(weir_client *client, uint64_t bytes, const char *method);

/* ------------------------------------------------------------------------------------------------------------------ */

/* Bytes claimed as a whole and allocated in parts.
 *
 * A model that needs several blocks or none reserves their sum: one step under the limits, before anything is
 * allocated. Reserved bytes are promised (weir/stats.h): they count for the budget and for the client's maximum, no
 * other request can have them, and there is no memory behind them yet. A block whose request names the reservation
 * takes its charge out of it, and is a block like any other from then on: freed, its bytes go back to the budget and
 * not to the reservation.
 *
 * Charges are multiples of 256 (weir/memory.h), so that a total has to be the sum of what its blocks are charged,
 * each rounded up by itself; what adaptors put around a block, as "guard" does, is charged too. */

typedef struct weir_reservation weir_reservation;

/* Claims `bytes`, rounded up to a multiple of 256, for blocks of the client in the runtime's device memory. All or
 * nothing: WEIR_ERR_OUT_OF_MEMORY as from weir_alloc, with its numbers (weir/memory.h), and *out is NULL. Other
 * errors: WEIR_ERR_INVALID (NULL, a closed client, no bytes, a size that no device could have, a flag other than
 * WEIR_ALLOC_NO_WAIT), WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. Without WEIR_ALLOC_NO_WAIT it waits for pending frees up to
 * the option `wait`, where they would be enough. The peaks of statistics do not rise with it, those are of blocks.
 * Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_reservation_create(weir_client *client, uint64_t bytes, uint32_t flags,
                                                            weir_reservation **out);

/* Allocating from it is weir_alloc_with with the request's member `reservation`. Of a block that is charged more than
 * what is left: WEIR_ERR_OUT_OF_MEMORY with the cause WEIR_CAUSE_RESERVATION. Where the bytes cannot be placed
 * (WEIR_ERR_DRIVER, or the device has less than the budget) they stay reserved. Several threads may allocate from one
 * reservation. */

/* Ends it: what is left goes back to the budget, what blocks have taken is theirs, also where one of them is freed
 * later. A client with an open reservation, be there anything left of it or not, cannot be closed (WEIR_ERR_BUSY).
 * NULL is nothing. The reservation is gone afterwards: no call may be using it, and none may name it again. Any
 * thread. */
WEIR_API WEIR_NODISCARD weir_status weir_reservation_destroy(weir_reservation *reservation);

WEIR_END
#endif
