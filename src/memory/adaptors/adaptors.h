/* Adaptors: the budget, the log, marks for tools, the program's own, and the guard. */
#ifndef WI_ADAPTORS_H
#define WI_ADAPTORS_H

#include <weir/adaptor.h>
#include <weir/guard.h>

#include "memory/ledger/ledger.h"
#include "memory/resource.h"
#include "memory/stack.h"

/* ---- budget.c ---------------------------------------------------------------------------------------------------- */

/* The stage that claims bytes for requests; budget.c says where else bytes are claimed. The counters are the ledger's. */

/* The adaptor "budget". A stack has exactly one budget. */
weir_status wi_budget_create(wi_resource *inner, wi_resource **out);

/* A reservation: bytes claimed in one step, which later allocations use up. `left` is promised, and in no block yet. */
typedef struct wi_reservation {
    wi_account *account;
    uint64_t total;
    atomic_uint_fast64_t left;
} wi_reservation;

/* Claims request->charged; climbs the ladder if that fails. `placed`: for blocks of this stack, so that a refusal tells what
 * has to be held for them as well. */
weir_status wi_budget_reserve(wi_resource *stack, wi_account *account, const wi_request *request, bool placed,
                              bool may_wait);

/* ---- log.c ------------------------------------------------------------------------------------------------------- */

/* The adaptor "log": records the calls that reach the adaptor, and the results, in the order in which the calls
 * took effect.
 *
 * Events go into a ring of the runtime, under the ledger's lock, like those of traces. A free is recorded before it
 * reaches the resource below, and an allocation before its address is known to other threads. So a free never comes
 * after the reuse of its address. */

/* Arguments: csv=PATH, binary=PATH: files for the runtime to open. */
weir_status wi_log_create(wi_resource *inner, const wi_arguments *arguments, wi_resource **out);
/* The outermost log of a stack; NULL: the stack has none. */
wi_resource *wi_log_find(wi_resource *top);
const char *wi_log_csv(const wi_resource *log); /* "": no such file */
const char *wi_log_binary(const wi_resource *log);
/* Sets the ring that events go into; NULL: none. */
void wi_log_into(wi_resource *log, wi_events *ring);

/* ---- nvtx.c ------------------------------------------------------------------------------------------------------ */

/* Marks of blocks (NVTX) for tools that watch a GPU's memory: with them, compute-sanitizer's memcheck knows the end of
 * a block to the byte.
 *
 * To the tool, a piece of memory that the driver gave is a "heap". Only its "regions" may be accessed: the bytes of the
 * block in it, without margins. As heaps the tool takes what cuMemAlloc gave, and refuses memory that is mapped into a
 * range (compute-sanitizer 2025.3.1: "One or more of the parameters is invalid", for the whole range, a run and a
 * single handle). So only the resource "direct" has marks. The tool does not check copies and fills of the driver's.
 *
 * Without a tool a call costs one comparison. The tool is foreign code: no lock is held around these calls, and the
 * block is acquired or not yet published. */

/* The block is in the piece [start, start + bytes), which cuMemAlloc gave for it alone. */
void wi_nvtx_enter(const wi_resource *resource, wi_block *block, uintptr_t start, uint64_t bytes);
/* block->bytes has changed. The tool judges a kernel by the marks at its launch, so that kernels in the queue are not
 * affected. */
void wi_nvtx_resize(const wi_resource *resource, wi_block *block);
/* The device is past the block, but its piece is kept: no access is valid. */
void wi_nvtx_bury(const wi_resource *resource, wi_block *block);
/* The piece goes back to the driver. */
void wi_nvtx_leave(const wi_resource *resource, wi_block *block);

/* ---- own.c ------------------------------------------------------------------------------------------------------- */

/* An adaptor of the program's own: the functions of a weir_adaptor_table around an inner resource. */

weir_status wi_own_adaptor_create(const weir_adaptor_table *own, wi_resource *inner, const wi_arguments *arguments,
                                  wi_resource **out);

/* ---- guard.c, guard_check.c -------------------------------------------------------------------------------------- */

/* The adaptor "guard", inside: a record of each block, and the quarantine of freed blocks. guard.c is the adaptor, with
 * the records by address; guard_check.c reads memory back and reports.
 *
 *   the life of a record:   new -> live -> freed -> kept -> leaving -> gone
 *
 * Invariants, under the guard's own lock, which is the last of all locks: the set holds the record of each block
 * from its allocation to its release, by address; `kept` is the sum over the quarantine. Only the thread that has
 * pinned a record reads, changes or ends it. */

enum { WI_GUARD_ZONE = 0xFB, WI_GUARD_FREED = 0xDD, WI_GUARD_KEPT_REPORTS = 256 };

typedef enum wi_guarded_state {
    WI_GUARDED_NEW,
    WI_GUARDED_LIVE,
    WI_GUARDED_FREED,
    WI_GUARDED_KEPT,
    WI_GUARDED_LEAVING
} wi_guarded_state;

/* What the guard knows of a block. */
typedef struct wi_guarded {
    wi_block *block;
    char *start, *end; /* margins included; the zone behind the block reaches to `end` */
    char *pointer;
    uint64_t bytes, room; /* of the block, and the most that it can become */
    uint64_t charged, generation;
    const weir_client *client;
    const char *client_name, *tag; /* interned */
    weir_class memory_class;
    weir_stream allocated, freed;
    wi_guarded_state state;
    bool pinned;
    bool blank;              /* the block overlaps another block; the guard wrote nothing into it */
    unsigned told;           /* kinds of damage that were reported, a bit each */
    struct wi_guarded *next; /* in the quarantine; NULL: the last one */
} wi_guarded;

typedef struct wi_guard {
    wi_resource resource;
    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t changed;
    uint64_t zone, quarantine;
    uint8_t poison;
    bool unmapped;

    wi_guarded **set; /* all records, by start */
    size_t count, capacity;
    wi_guarded *first, *last; /* the quarantine, oldest first */
    uint64_t kept;            /* bytes in the quarantine */
    uint64_t given_up;        /* bytes that ever left it */
    size_t leaving;           /* threads that are releasing a block of the quarantine */
    weir_guard_report reports[WI_GUARD_KEPT_REPORTS];
    size_t reported;
} wi_guard;

weir_status wi_guard_create(wi_resource *inner, const wi_arguments *arguments, wi_resource **out);
/* The guard of a stack; NULL if it has none. */
wi_guard *wi_guard_in(wi_resource *top);

/* The set of records; the lock is held. insert needs room, which reserve makes; *under: an overlapped block, or
 * NULL. */
weir_status wi_guard_set_reserve(wi_guard *guard);
void wi_guard_set_insert(wi_guard *guard, wi_guarded *record, const wi_guarded **under);
void wi_guard_set_remove(wi_guard *guard, const wi_guarded *record);
wi_guarded *wi_guard_set_find(wi_guard *guard, const wi_block *block);

/* Pins a record. Waits first while another thread pins the record. The lock is held, and released meanwhile. */
void wi_guard_pin(wi_guard *guard, wi_guarded *record);
void wi_guard_unpin(wi_guard *guard, wi_guarded *record); /* the lock is held */

typedef struct wi_damage {
    weir_guard_kind kind;
    int64_t offset;
    uint64_t bytes; /* 0: none */
    uint8_t expected, found;
} wi_damage;

/* Reads the zones of a pinned block back, or all of a `kept` one. At most two damages, by address. May block. */
weir_status wi_guard_examine(wi_guard *guard, const wi_guarded *record, bool kept, wi_damage damages[2]);

/* Reports to be logged. */
typedef struct wi_guard_news {
    weir_guard_report reports[2];
    size_t count;
} wi_guard_news;

/* Notes a damage of the record for the log, unless that kind was reported before. The lock is held. */
void wi_guard_note(wi_guard *guard, wi_guarded *record, const wi_damage *damage, const wi_guarded *other,
                   wi_guard_news *news);
/* Logs reports. No lock is held and no record is pinned, as the log's function may allocate. */
void wi_guard_tell(const wi_guard_news *news);
void wi_guard_words(const weir_guard_report *report, char *text, size_t capacity);
weir_guard_report wi_guard_report(const wi_guarded *record, const wi_damage *damage, const wi_guarded *other);

weir_status wi_guard_check(wi_guard *guard);

/* The reports so far, as in weir/guard.h. */
void wi_guard_reports(wi_guard *guard, weir_guard_report *reports, size_t capacity, size_t *count);
weir_status wi_guard_leaks(wi_guard *guard, weir_guard_leak *leaks, size_t capacity, size_t *count);
/* Logs the client's live blocks as leaks. */
void wi_guard_log_leaks(wi_guard *guard, const weir_client *client);

#endif
