/* weir/reserve.h: bytes claimed as a whole and allocated in parts.
 *
 * A model that needs several blocks or none reserves their sum: one step under the limits, before anything is allocated.
 * Reserved bytes are promised (weir/stats.h): they count for the budget and for the client's maximum, no other request can
 * have them, and there is no memory behind them yet. A block whose request names the reservation takes its charge out of
 * it, and is a block like any other from then on: freed, its bytes go back to the budget and not to the reservation.
 *
 * Charges are multiples of 256 (weir/memory.h), so that a total has to be the sum of what its blocks are charged, each
 * rounded up by itself; what adaptors put around a block, as "guard" does, is charged too. */
#ifndef WEIR_RESERVE_H
#define WEIR_RESERVE_H

#include <weir/memory.h>

WEIR_BEGIN

/* Claims `bytes`, rounded up to a multiple of 256, for blocks of the client in the runtime's device memory. All or nothing:
 * WEIR_ERR_OUT_OF_MEMORY as from weir_alloc, with its numbers (weir/refusal.h), and *out is NULL. Other errors: WEIR_ERR_INVALID
 * (NULL, a closed client, no bytes, a size that no device could have, a flag other than WEIR_ALLOC_NO_WAIT), WEIR_ERR_SYSTEM,
 * WEIR_ERR_FORKED. Without WEIR_ALLOC_NO_WAIT it waits for pending frees up to the option `wait`, where they would be enough. The
 * peaks of statistics do not rise with it, those are of blocks. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_reservation_create(weir_client *client, uint64_t bytes, uint32_t flags,
                                                            weir_reservation **out);

/* Allocating from it is weir_alloc_with with the request's member `reservation`. Of a block that is charged more than what
 * is left: WEIR_ERR_OUT_OF_MEMORY with the cause WEIR_CAUSE_RESERVATION. Where the bytes cannot be placed (WEIR_ERR_DRIVER, or the
 * device has less than the budget) they stay reserved. Several threads may allocate from one reservation. */

/* The bytes that no block has taken yet. 0 for NULL. Any thread. */
WEIR_API uint64_t weir_reservation_left(const weir_reservation *reservation);

/* Ends it: what is left goes back to the budget, what blocks have taken is theirs, also where one of them is freed later.
 * A client with an open reservation, be there anything left of it or not, cannot be closed (WEIR_ERR_BUSY). NULL is nothing.
 * The reservation is gone afterwards: no call may be using it, and none may name it again. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_reservation_destroy(weir_reservation *reservation);

WEIR_END
#endif
