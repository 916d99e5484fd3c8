/* The oracle: what may and may not happen on a device, whatever the runtime decides.
 *
 * It hears two sides: the driver's calls (which work was queued where, what was recorded, ordered, found passed) and
 * what users of the runtime got and gave back. From the first it keeps a vector clock per stream and one for the host:
 * clock[s] is the last piece of work on stream s that is known to be done before whatever comes next there. From both
 * it knows for every 256 bytes of physical memory whose they are, or last were, and the last access of every stream to
 * them.
 *
 * All host threads share the host's clock, because weir hands blocks from thread to thread under its locks.
 *
 * A block is given out rightly when the stream it is given out on (or the host) is behind every access of those who had
 * the bytes before, and behind their frees. A use of it is ordered rightly when it is behind the accesses that it
 * conflicts with; it is weir's fault when the use was declared to weir, and the user's otherwise. */
#ifndef SIM_ORACLE_H
#define SIM_ORACLE_H

#include "sim/device/device.h"

#include <weir/stats.h>

typedef struct oracle oracle;
typedef uint32_t oracle_block; /* 0 is none */

typedef enum oracle_kind {
    ORACLE_EARLY_REUSE,     /* bytes given out while a former owner may still use them */
    ORACLE_OVERLAP,         /* bytes of a live block given out */
    ORACLE_UNMAPPED,        /* a block, or work, where no memory is */
    ORACLE_UNMAP_LIVE,      /* a live block's memory taken away */
    ORACLE_UNMAP_UNDER_USE, /* memory taken away while queued work may use it */
    ORACLE_ARRIVAL,         /* work that may run before away contents are back */
    ORACLE_LOST_ORDER,      /* declared uses that conflict and run in no order */
    ORACLE_BUDGET,          /* more held than the budget */
    ORACLE_LEDGER,          /* a snapshot that is not what users have */
    ORACLE_REFUSAL,         /* refused without the reason that is named */
    ORACLE_ANSWER,          /* a status that this call cannot have */
    ORACLE_DEVICE,          /* what no device would let happen, contents that are not right */
    ORACLE_STUCK,           /* free memory that no client can get */
    ORACLE_LEAK,            /* something left when all is over */
    ORACLE_USER,            /* the user's own: unordered uses that were not declared, use after free */
    ORACLE_KINDS
} oracle_kind;

const char *oracle_kind_name(oracle_kind kind);

/* How a block got the bytes of a block that was freed in the order of its stream. */
typedef enum oracle_reuse {
    ORACLE_REUSE_AT_ONCE, /* on the same stream, while the device was not past the free */
    ORACLE_REUSE_PASSED,  /* on another stream, after the device was past the free */
    ORACLE_REUSE_CACHED,  /* from the thread cache that kept the whole freed block */
    ORACLE_REUSES
} oracle_reuse;

const char *oracle_reuse_name(oracle_reuse kind);

typedef struct oracle_findings {
    uint64_t count[ORACLE_KINDS], violations; /* the latter: all but the users' own */
    uint64_t reuse[ORACLE_REUSES];
    char first[512]; /* of the violations; of the users' if there is none */
    oracle_kind first_kind;
} oracle_findings;

enum { ORACLE_CLIENTS = 64 };

oracle *oracle_create(unsigned streams, uint64_t device_bytes, uint64_t granule, uint64_t budget);
void oracle_destroy(oracle *o);
wi_sim_watcher oracle_watcher(oracle *o); /* to hand to the driver */
void oracle_attach(oracle *o, wi_device *device);
const oracle_findings *oracle_found(const oracle *o);
void oracle_report(oracle *o, oracle_kind kind, const char *format, ...) WEIR_PRINTF(3, 4);

/* What users do. Streams are the driver's numbers, clients numbers below ORACLE_CLIENTS.
 *
 * Others may do something in the middle of a call of weir. What a call could give back has no owner from its beginning
 * on, and what it could get is the caller's from its end on; between the two the book allows for either. */

/* A call that may get so many bytes more for the client begins, and ends. `reserved`: they are promised already. */
void oracle_asking(oracle *o, unsigned client, weir_class memory_class, uint64_t charged, bool reserved);
void oracle_answered(oracle *o, unsigned client, weir_class memory_class, uint64_t charged, bool reserved);
/* The client has so many bytes more promised, or less. */
void oracle_reserved(oracle *o, unsigned client, uint64_t more, uint64_t less);

/* A block that was got: the user may touch `length` bytes of it, and it is charged as `charged`. `queued`: weir may have
 * put work of its own for it on the stream, zeros or a pool's order. */
typedef struct oracle_got {
    unsigned client, stream;
    void *address;
    uint64_t length, charged;
    weir_class memory_class;
    bool queued, zeroed;
    bool cached;       /* a thread kept it since the client freed it, on that stream and with that charge */
    oracle_block pool; /* whose bytes they are: a pool's, which alone is charged; 0: none */
} oracle_got;
oracle_block oracle_allocated(oracle *o, const oracle_got *got);
/* The call that frees the block on the stream begins; and how it ended. */
void oracle_freeing(oracle *o, oracle_block block, unsigned stream);
void oracle_freed(oracle *o, oracle_block block);
void oracle_cached(oracle *o, oracle_block block);
/* `held`: the block is freed and stays with a graph, so that no other client may have its bytes and the book has them
 * as pending. Otherwise the block belongs to its client again. */
void oracle_hold(oracle *o, oracle_block block, bool held);
/* The same for so many bytes of a block of the client's, as the book has them. */
void oracle_keep(oracle *o, unsigned client, weir_class memory_class, uint64_t bytes, bool held);
/* Makes a part of a held block, or of several held blocks, a block, which remembers the uses of its bytes. All bytes of
 * the former blocks become parts. The book does not change. */
oracle_block oracle_part(oracle *o, const oracle_got *part);
/* The block's graph is closed while the block is live: from here on the block is an ordinary block, whose order is not known. */
void oracle_let_out(oracle *o, oracle_block block);
/* From here on the block is a pool, whose bytes are given out and come back; and until here: the call that frees it, by
 * oracle_freeing, begins. */
void oracle_open_pool(oracle *o, oracle_block block);
void oracle_close_pool(oracle *o, oracle_block block);
/* The call that cuts the block begins; the tail is a block of its own, which is then freed, or joined again. */
oracle_block oracle_cutting(oracle *o, oracle_block block, uint64_t length, uint64_t charged, unsigned stream);
void oracle_uncut(oracle *o, oracle_block block, oracle_block tail);
void oracle_grown(oracle *o, oracle_block block, uint64_t length, uint64_t charged, unsigned stream);
/* Where it was allocated. */
unsigned oracle_stream_of(const oracle *o, oracle_block block);
/* Touches from here on are declared to weir, or not. */
void oracle_declare(oracle *o, bool declared);
/* What weir queues from here on it was asked for as work of a user's, or not. */
bool oracle_by_user(oracle *o, bool users); /* what it was before */
/* A call begins that names the block and the stream: a launch, a resize. */
void oracle_naming(oracle *o, oracle_block block, unsigned stream);
/* The call begins after which nothing can be recorded on the stream. */
void oracle_capturing(oracle *o, unsigned stream);
/* A stream begins, perhaps with the number of an ended stream. `does`: the stream has the place of a stream that ended
 * without notice. While frees in the old stream's order have not passed, blocks that are freed on the new stream may be
 * pending. */
void oracle_succeeds(oracle *o, unsigned stream, bool does);
/* The call begins that makes the block wait for all that is queued on the stream; and it has ended, and was not refused. */
void oracle_using(oracle *o, oracle_block block, unsigned stream, bool write);
void oracle_used(oracle *o, oracle_block block, unsigned stream);
/* oracle_setting_budget: a call begins that may set the budget. oracle_set_budget: the budget is in force from here
 * on. */
void oracle_setting_budget(oracle *o, uint64_t budget);
void oracle_set_budget(oracle *o, uint64_t budget);
/* A pool of the driver's may hold more than its pieces, and more than the budget. */
void oracle_set_pooled(oracle *o);
/* A free that waits for nothing but its stream's order is complete for the ledger: the bytes are that stream's. `slack`: some
 * of them may become slack behind a block. */
void oracle_set_in_order(oracle *o, bool slack);
void oracle_set_limits(oracle *o, unsigned client, uint64_t guaranteed, uint64_t maximum); /* maximum 0: none */
/* Compares a view with the book; lines[i] is client numbers[i]'s. `settled`: no call is under way, nothing has failed and
 * nothing is kept back, so that what the device is past is free. */
void oracle_check(oracle *o, const weir_stats *stats, const weir_client_stats *lines, const unsigned *numbers,
                  size_t count, bool settled);
/* A call on the stream failed: what it had got by then may be free in the order of that stream. */
void oracle_failed_there(oracle *o, unsigned stream);
/* Whether the device is past all that was queued on streams where something was freed in their order. */
bool oracle_drained(const oracle *o);
/* Compares what such a view tells to be in the order of streams, or kept by threads. `drained`: so it was before the view was taken, and no
 * stream was being captured. */
void oracle_check_order(oracle *o, const weir_stats *stats, bool drained);
/* A call begins, and ends, that may take the memory from under the client's blocks, whose work is done.
 * oracle_suspended returns how many bytes of the blocks are away. `due`: the client's guarantee is given up until a
 * resume. */
void oracle_suspending(oracle *o, unsigned client);
uint64_t oracle_suspended(oracle *o, unsigned client, bool suspended, bool due);
/* Within such a call the client's memory passes to another client piece by piece, from here on or no more. */
void oracle_passing(oracle *o, unsigned client, bool passes);
/* The call begins, and ends, that may bring it back, behind the point where the stream is then. */
void oracle_resuming(oracle *o, unsigned client);
void oracle_resumed(oracle *o, unsigned client, unsigned stream, bool resumed);
/* A part has come back, so many bytes, it is said: of what has memory now the lowest addresses, as a resume that failed may have
 * left some there. Returns how many have. */
uint64_t oracle_came(oracle *o, unsigned client, unsigned stream, uint64_t came);
/* It was refused so many bytes with this cause, while no other call was under way. `settled`: a point can be had on every
 * stream. */
void oracle_refused_resume(oracle *o, unsigned client, uint64_t charged, int cause, bool settled);
/* How many of the block's charged bytes are away. */
uint64_t oracle_away(const oracle *o, oracle_block block);
/* The client is closed: nothing is promised for its return any more. */
void oracle_closed(oracle *o, unsigned client);
/* A request of this charge was refused with this cause, while no other call was under way. */
void oracle_refused(oracle *o, unsigned client, uint64_t charged, int cause);
/* Everything was freed and the device closed. */
void oracle_ended(oracle *o);

#endif
