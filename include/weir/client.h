/* weir/client.h: a client, the account of one engine or model on one runtime. */
#ifndef WEIR_CLIENT_H
#define WEIR_CLIENT_H

#include <weir/runtime.h>

WEIR_BEGIN

typedef struct weir_client weir_client;

/* Whether bytes are zeroed when they pass from one client of the runtime to another. */
typedef enum weir_scrub {
    WEIR_SCRUB_NEVER = 0,  /* a block holds what its bytes held before */
    WEIR_SCRUB_OTHERS = 1, /* what another client had is zeroed before this one gets it, and what this one had before
                              another gets it; never while the owner stays the same */
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

/* Opens an account. WEIR_ERR_OUT_OF_MEMORY when the guarantees and what other clients have live would exceed the budget;
 * WEIR_ERR_INVALID when guaranteed > maximum, or for a scrub that is none. Any thread.
 *
 * Scrubbing is part of an allocation: the zeros are queued on its stream, before anything of the new owner's, and cover
 * all that the block is charged. Free memory in which bytes of several clients have come together counts as another
 * client's, and so does what is taken from the driver after some was given back to it. What cannot be zeroed is not given
 * out: the allocation fails as the zeros did (WEIR_ERR_DRIVER), and with WEIR_ERR_STREAM_MISUSE on a stream that is being captured.
 * Other runtimes and programs get what the driver gives them. */
WEIR_API WEIR_NODISCARD weir_status weir_client_create(weir_runtime *runtime, const weir_client_options *options,
                                                       weir_client **out);

/* Closes it. Pending frees are waited for; meanwhile other threads may free and look, while what would take more for the
 * client, or close it, is WEIR_ERR_INVALID. WEIR_ERR_BUSY while it has blocks, naming how many, how many bytes and the largest
 * one's tag; the client stays open. Closing a closed client is WEIR_ERR_INVALID. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_client_destroy(weir_client *client);

/* Changes the limits while in use. A maximum below what is live, pending and promised, or a guarantee that the others
 * leave no room for, is refused with numbers (WEIR_ERR_OUT_OF_MEMORY), and nothing changes. maximum 0: the budget. */
WEIR_API WEIR_NODISCARD weir_status weir_client_set_limits(weir_client *client, uint64_t guaranteed, uint64_t maximum);

/* Owned by the client, until it is closed. */
WEIR_API const char *weir_client_name(const weir_client *client);
WEIR_API weir_runtime *weir_client_runtime(const weir_client *client);

/* Notes the bytes this client's engine took without asking weir, and how that was found out ("RssAnon over load and
 * first run, less the ledger"); shown in statistics, charged to nothing. The text is copied, cut at 127 bytes. */
WEIR_API WEIR_NODISCARD weir_status weir_client_note_outside(weir_client *client, uint64_t bytes, const char *method);

WEIR_END
#endif
