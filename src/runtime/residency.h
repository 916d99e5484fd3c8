/* Residency, inside: questions of other calls about a client that may be suspended. */
#ifndef WI_RUNTIME_RESIDENCY_H
#define WI_RUNTIME_RESIDENCY_H

#include <weir/residency.h>

typedef struct wi_residence wi_residence;

/* Whether the client is neither suspended nor on its way. */
bool wi_residency_is_here(const weir_client *client);
/* Before an allocation of the device's memory: resumes the client, or refuses with WEIR_ERR_BUSY, as the options of its
 * suspend say. Waits while another thread suspends or resumes the client. */
weir_status wi_residency_admit(weir_client *client, const char *call);
/* For a call that may find a block claimed: how often the client was on its way so far. */
uint64_t wi_residency_moves(const weir_client *client);
/* For a call that has found a claimed block: waits while the client is on its way. True: the client was on its way
 * since *moves, and the call may try again. */
bool wi_residency_wait(weir_client *client, uint64_t *moves);
/* The client gives addresses of an elastic block back: their contents need not come back. False, and nothing is done:
 * the client was on its way since wi_residency_wait said *moves. */
bool wi_residency_forget(weir_client *client, const char *low, const char *high, uint64_t moves);
/* For a call that has found blocks held by copies under way: asks whether the copies are done. True: the copies hold no
 * block any more, and the call may try again. */
bool wi_residency_found_done(weir_client *client);
/* A block that was shown was freed: its memory goes, unless the client is on its way. */
void wi_residency_sweep(weir_client *client);
/* Waits for contents that a resume has put on their way. */
weir_status wi_residency_settle(const weir_client *client);
/* How many blocks of the client's account are copies of away memory, which are freed when the client is closed; and
 * their bytes. Only the host's runtime has such blocks, as its ledger counts device and host memory alike. */
uint64_t wi_residency_copies(weir_client *client, uint64_t *bytes);
/* Frees the copies of a client that is about to be closed and has no other blocks. The residence is freed with the
 * client's record. Nothing has changed with WEIR_ERR_DRIVER: the driver does not say whether copies are done; with
 * WEIR_ERR_BUSY: a block is away after all. */
weir_status wi_residency_end(weir_client *client);
void wi_residency_free(weir_client *client);

#endif
