/* Residency, inside: what other calls ask about a client that may be suspended. */
#ifndef WI_RUNTIME_RESIDENCY_H
#define WI_RUNTIME_RESIDENCY_H

#include <weir/residency.h>

typedef struct wi_residence wi_residence;

/* Whether the client is neither suspended nor on its way. */
bool wi_residency_is_here(const weir_client *client);
/* Before an allocation of the device's memory: resumes the client, or refuses with WEIR_ERR_BUSY, as the options of its
 * suspend say. Waits for another thread that suspends or resumes it. */
weir_status wi_residency_admit(weir_client *client, const char *call);
/* For a call that may find a block claimed: how often the client was on its way so far. */
uint64_t wi_residency_moves(const weir_client *client);
/* It has found one: waits while the client is on its way. True: it was since *moves, so that the call may try again. */
bool wi_residency_wait(weir_client *client, uint64_t *moves);
/* The client gives addresses of an elastic block back: what was there need not come back. False, and nothing is done: it was on
 * its way since wi_residency_wait said *moves. */
bool wi_residency_forget(weir_client *client, const char *low, const char *high, uint64_t moves);
/* Asks whether the copies are done that hold blocks of the client's, which a call has found held. True: they hold nothing any more,
 * and the call may try again. */
bool wi_residency_found_done(weir_client *client);
/* A block that was shown was freed: its memory goes, unless the client is on its way. */
void wi_residency_sweep(weir_client *client);
/* Waits for contents that a resume has put on their way. */
weir_status wi_residency_settle(const weir_client *client);
/* How many blocks of the client's account are copies of what was away, which go when it is closed; and their bytes. There are
 * some on the host, whose runtime has one ledger for both. */
uint64_t wi_residency_copies(weir_client *client, uint64_t *bytes);
/* The client has no blocks but these and is about to be closed: its copies go. Its residence goes with its record. Nothing has
 * changed with WEIR_ERR_DRIVER: the driver does not say whether copies are done; with WEIR_ERR_BUSY: a block is away after all. */
weir_status wi_residency_end(weir_client *client);
void wi_residency_free(weir_client *client);

#endif
