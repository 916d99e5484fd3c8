/* The runtime and its clients, as other files of the room see them: residency, leaks, and steps of allocation and
 * free. */
#ifndef WI_RUNTIME_H
#define WI_RUNTIME_H

#include <weir/elastic.h>
#include <weir/residency.h>
#include <weir/weir.h>

#include "driver/driver.h"
#include "memory/adaptors/adaptors.h"
#include "memory/ledger/members.h"
#include "runtime/background.h"
#include "runtime/stream/streams.h"
#include "runtime/thread_cache/thread_cache.h"
#include "runtime/trace.h"

/* ---- residency.c, resume.c --------------------------------------------------------------------------------------- */

/* Residency, inside: questions of other calls about a client that may be suspended. */

typedef struct wi_residence wi_residence;

/* Whether the client is neither suspended nor on its way. */
bool wi_residency_is_here(const weir_client *client);
/* Before an allocation of the device's memory: resumes the client, or refuses with WEIR_ERR_BUSY, as the options of its
 * suspend say. Waits while another thread suspends or resumes the client. */
weir_status wi_residency_admit(weir_client *client, const char *call);
/* For a call that may find a block acquired: how often the client was on its way so far. */
uint64_t wi_residency_moves(const weir_client *client);
/* For a call that has found an acquired block: waits while the client is on its way. True: the client was on its way
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

/* ---- the runtime and its clients --------------------------------------------------------------------------------- */

struct weir_client {
    atomic_uint state; /* WI_CLIENT_OPEN and so on */
    weir_runtime *runtime;
    char own_name[64]; /* used if the name is not interned */
    wi_account account;
    wi_account host_account; /* for host memory of this client, in the ledger of the host's runtime */
    atomic_bool host_open;
    atomic_uint reservations;  /* open reservations */
    weir_capture_pool *graphs; /* open capture pools; under the runtime's clients_lock */
    weir_elastic *elastics;    /* elastic blocks; under the same */
    atomic_uint holds;         /* references: 1 while open, and 1 for each membership in a block pool; 0: reusable */
    weir_client *next_closed;
    _Atomic(wi_residence *) residence; /* of a client that was ever suspended; residence.h */
    atomic_uint_fast64_t overflow;     /* the room that weir_client_set_overflow was told, and 1; 0: off */
    _Atomic(const void *) owner; /* who has it opened for a purpose of its own, to be told apart by; NULL: nobody */
};

struct weir_reservation {
    wi_reservation claim;
    weir_client *client;
};

/* States of a client. CLOSING: the close is looking whether anything is live; the client allocates nothing and may
 * free, and is open again if the close is refused. */
enum { WI_CLIENT_OPEN = 0x6f70656e, WI_CLIENT_CLOSING = 0x656e6473, WI_CLIENT_CLOSED = 0x73687574 };

/* This many records of closed clients are kept before one is reused, so that a late call finds a closed client and not
 * another one. */
enum { WI_CLOSED_KEPT = 64 };

enum { WI_NAME_BYTES = 16, WI_STACK_BYTES = 256 };

/* Beside the kinds that programs ask for: memory of the host's that the device can map, for copies that are shown. */
enum { WI_KIND_SHOWN = WEIR_KIND_COUNT, WI_KINDS };

struct weir_runtime {
    char name[WI_NAME_BYTES]; /* "host", "cuda:0" */
    int ordinal;
    bool shared;               /* returned by weir_runtime_get to all callers */
    atomic_uint_fast64_t door; /* gate for calls that make objects of the runtime; runtime.c */
    const wi_driver *driver;
    wi_device *device;
    wi_ledger ledger;
    wi_recorder recorder;
    wi_resource *resource;                  /* top of the stack for the device's memory */
    _Atomic(wi_resource *) kinds[WI_KINDS]; /* stacks for kinds of host memory, each made on first use */
    _Atomic(weir_runtime *) host;           /* the runtime whose ledger counts host memory; NULL: not needed yet */
    _Atomic(wi_resource *) elastic;         /* the stack for pages of elastic blocks, made with the first one */
    struct wi_host_chunks *host_chunks;     /* below kinds[WI_KIND_SHOWN] */
    pthread_mutex_t kinds_lock;
    wi_aside aside;              /* page-locked memory that is freed aside */
    atomic_uint hosted;          /* runtimes whose host memory counts in this one's ledger */
    wi_pending pending;          /* of all stacks */
    wi_member members[WI_KINDS]; /* of this runtime: the device's memory, and each kind in kinds[] */
    wi_member elastic_member;
    wi_streams streams;
    _Atomic(struct wi_outside *) outside; /* other processes on the device; NULL: not needed yet; outside.h */
    wi_tcaches caches;                    /* over `resource` */
    char stack[WI_STACK_BYTES];           /* the text of the stack, as it was given */

    pthread_mutex_t clients_lock;
    weir_client *closed_first, *closed_last;
    size_t closed_count;
    weir_runtime *next; /* in the list of all runtimes */
};

/* weir_runtime_create over a driver that need not be in the list of drivers; for tests. */
weir_status wi_runtime_create_over(const wi_driver *driver, int ordinal, const weir_runtime_options *options,
                                   weir_runtime **out);

/* Writes WI_NAME_BYTES: "host", "cuda:0". */
void wi_runtime_name(const wi_driver *driver, int ordinal, char *name);

/* A call passes the runtime's door in both directions: one that makes or ends what the runtime's end asks for (a client, a
 * stream, a trace, a callback, a runtime that has it for its host), since what it ends is no longer in the way of the
 * runtime's end while the call is still at work; and one that looks. The end waits for those that are inside, and only an
 * end that will not be refused shuts others out. WEIR_ERR_INVALID: it has. */
weir_status wi_runtime_visit(weir_runtime *runtime, const char *call);
void wi_runtime_visit_end(weir_runtime *runtime);
/* The same for the rest of the function, which answers WEIR_ERR_INVALID when the door is shut. */
#define WI_VISIT(runtime)                                                                                              \
    weir_status wi_door = wi_runtime_visit((runtime), __func__);                                                       \
    __attribute__((cleanup(wi_runtime_visited), unused)) weir_runtime *wi_visited =                                    \
        wi_door == WEIR_OK ? (runtime) : NULL;                                                                         \
    if (wi_unlikely(wi_door != WEIR_OK))                                                                               \
    return wi_door
void wi_runtime_visited(weir_runtime **runtime); /* NULL: nobody is inside */

/* Members of weir_runtime_info, singly. The text of the stack is written into `text`, cut, and returned. */
const char *wi_runtime_device(const weir_runtime *runtime);
uint32_t wi_runtime_features(const weir_runtime *runtime);
uint64_t wi_runtime_budget(const weir_runtime *runtime); /* 0 in a forked child */
char *wi_runtime_resource(const weir_runtime *runtime, char *text, size_t capacity);
/* The trace of the adaptor "log"; NULL: there is none. */
weir_trace *wi_runtime_log(weir_runtime *runtime);
/* "" for NULL. */
const char *wi_client_name(const weir_client *client);
/* The bytes that no block has taken yet. */
uint64_t wi_reservation_left(const weir_reservation *reservation);

/* The shared runtime of a device, if it exists, or NULL. Makes none. */
weir_runtime *wi_runtime_there(const char *device);

/* The runtime whose memory contains `pointer`, or NULL. It cannot be destroyed until wi_runtimes_unlock. */
weir_runtime *wi_runtime_of(const void *pointer);
void wi_runtimes_unlock(void);
/* Calls fn for each runtime; none is made or destroyed meanwhile. */
void wi_runtimes_each(void (*fn)(weir_runtime *runtime, void *user), void *user);
/* What weir_snapshot tells, as the ledger has it: nothing is reaped before, no driver is asked, and `ordered` is 0. */
void wi_runtime_look(weir_runtime *runtime, weir_stats *out, weir_client_stats *clients, size_t stride, size_t capacity,
                     size_t *count);
/* The sums of weir_layout_walk in the same way. WEIR_ERR_SYSTEM: no host memory for a copy. */
weir_status wi_runtime_look_layout(weir_runtime *runtime, weir_layout_totals *out);
/* The runtime whose streams have this number in their ids, visited; NULL: none, or one that ends. */
weir_runtime *wi_runtime_visit_pool(uint16_t pool);

/* WEIR_ERR_INVALID for NULL, and for a client that is closed or closing. */
weir_status wi_client_check(const weir_client *client, const char *call);
/* The same for a call that allocates nothing, such as a free: the client may be closing. */
weir_status wi_client_check_giving(const weir_client *client, const char *call);

/* The next client that this thread opens has this owner; NULL takes that back. */
void wi_client_own_next(const void *owner);
const void *wi_client_owner(const weir_client *client);
void wi_client_disown(weir_client *client);

/* Keeps the record from being reused, even after the client's close. False: it is closed already. */
bool wi_client_hold(weir_client *client);
void wi_client_let_go(weir_client *client);

/* Kinds of memory; host_memory.c. WEIR_ERR_INVALID: `host` is not a runtime of the host. */
weir_status wi_host_memory_init(weir_runtime *runtime, weir_runtime *host);
void wi_host_memory_destroy(weir_runtime *runtime);
bool wi_kind_is_own(const weir_runtime *runtime, weir_kind kind); /* whether the kind is the device's own memory */
/* The stack for memory of the kind, and the client's account there. Both are made on first use. */
weir_status wi_host_memory_stack(weir_runtime *runtime, weir_kind kind, wi_resource **out);
/* Whether copies can be shown at addresses of the device; the stack of their memory, made on first use; a block of it, of
 * whole granules, which weir_free_block frees. */
bool wi_host_memory_can_show(const weir_runtime *runtime);
weir_status wi_host_memory_shown(weir_runtime *runtime, wi_resource **out);
weir_status wi_alloc_shown(weir_client *client, uint64_t bytes, const char *tag, weir_block *out);
/* The runtime whose ledger counts the host's memory: for the host's own runtime itself; NULL: none was needed yet. */
weir_runtime *wi_host_memory_host(weir_runtime *runtime);
weir_status wi_host_memory_account(weir_client *client, wi_resource *stack, wi_account **out);
weir_status wi_host_memory_close_account(weir_client *client);
/* The adaptor "host_trim": has the runtime in whose ledger the stack counts trim cached memory before this stack goes
 * without. */
weir_status wi_host_trim_create(weir_runtime *host, wi_resource *inner, wi_resource **out);
/* What it does: has the runtime give back as much cached memory as `bytes` more need under its budget; and `bytes`, or a
 * little more, to a device that has no more. False: nothing was cached. */
void wi_host_trim_make_room(weir_runtime *host, uint64_t bytes);
bool wi_host_trim_give(weir_runtime *host, uint64_t bytes);
/* The stack whose memory contains `pointer`, and its kind; NULL: none. */
wi_resource *wi_host_memory_owner(weir_runtime *runtime, const void *pointer, weir_kind *kind);
/* The same for a pointer that should be this runtime's: if no stack has it, the device's stack, whose base refuses
 * it. */
wi_resource *wi_runtime_stack_of(weir_runtime *runtime, const void *pointer);

/* The stack for pages of elastic blocks, made on first use; elastic.c. */
weir_status wi_elastic_stack(weir_runtime *runtime, wi_resource **out);
/* Whether the driver takes back what elastic blocks have left, before a runtime ends. WEIR_ERR_DRIVER: it does not; the log tells
 * of it by client and tag. On a lost device nothing is asked for. */
weir_status wi_elastic_check_end(weir_runtime *runtime);
void wi_elastic_end(weir_runtime *runtime); /* ends it */
/* WEIR_ERR_BUSY: the client has an elastic block. */
weir_status wi_elastics_check_none(const weir_client *client);
/* WEIR_ERR_INVALID for a block that is a page of an elastic one, which `call` is not for. */
weir_status wi_elastic_refuse_page(const weir_runtime *runtime, const wi_resource *stack, const void *pointer,
                                   const char *call);

/* Frees an acquired block for thread caches; free.c. The first one frees it on the stream now. The second one frees it
 * behind the point of wi_streams_point, if the stream is gone or captured. On failure the block is still acquired. */
weir_status wi_free_acquired(weir_runtime *runtime, wi_resource *stack, wi_block *block, const wi_stream_facts *at);
weir_status wi_free_behind(weir_runtime *runtime, wi_resource *stack, wi_block *block, weir_stream stream);
/* wi_free_acquired; `told`: the stack's adaptors have been told of the free already. */
weir_status wi_free_told(weir_runtime *runtime, wi_resource *stack, wi_block *block, const wi_stream_facts *at,
                         bool told);
/* Frees a list of blocks that were thread-cached on the stream, linked by pending_next. False: nothing has changed,
 * and the caller frees each one. */
bool wi_free_cached(weir_runtime *runtime, wi_block *list, const wi_stream_facts *at);

/* Reaps this runtime's deferred frees, and those of other runtimes in its ledger; returns the bytes. */
uint64_t wi_runtime_reap(weir_runtime *runtime);
/* weir_runtime_trim with idle_only; returns the bytes. */
uint64_t wi_runtime_trim_idle(weir_runtime *runtime);
/* Reaps, and waits, until no block of `account` is pending. */
void wi_runtime_drain(weir_runtime *runtime, wi_account *account);

/* Memory of the host's in place of the device's; overflow.c. Whether a request that finds no room gets it; places the request
 * there, and answers as an allocation does. WEIR_ERR_OUT_OF_MEMORY: the host has no room either. */
bool wi_overflow_serves(const weir_client *client, const wi_resource *stack, const wi_placement *placement);
weir_status wi_overflow_place(weir_client *client, wi_placement *placement, bool zeroed, weir_block *out);
/* Keeps the room that is to be left, while a request is placed; NULL: none is. */
weir_status wi_overflow_keep_room(weir_client *client, const wi_placement *placement, weir_reservation **room);

/* ---- leaks.c ----------------------------------------------------------------------------------------------------- */

/* Leaks: what clients have not given back, told in the log by client and tag. */

/* Of that client, or of all (NULL), in the memory of the runtime's ledger. Nothing is made where nobody listens. The
 * thread's detail stays. */
void wi_leaks_tell(weir_runtime *runtime, const weir_client *client);
/* From now on the end of the process tells of all runtimes that are there. No driver is called then. */
void wi_leaks_watch_exit(void);

/* ---- alloc.c, free.c, resize.c ----------------------------------------------------------------------------------- */

/* What allocation, free and resize share (alloc.c, free.c, resize.c). Each looks its stream up once, a free when it has acquired
 * its block, and hands the facts (`at`) down; the steps that look again say why. The blocks in these functions are taken: no
 * other thread touches them. */

/* How many bytes of a block are zeroed before another client gets it, from its begin: also the bytes behind the requested
 * ones, which a later resize may give to the user. An adaptor that adds margins has written all that lies around the bytes. */
uint64_t wi_alloc_scrubbed(const wi_block *block);
/* Queues zeros from `from` to `to` on the block's stream; WEIR_STREAM_HOST: writes them. */
weir_status wi_alloc_clear(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t from, uint64_t to,
                           weir_stream stream);
/* Notes the point behind the zeros that were queued for the block, where no other thread can record it later. */
void wi_alloc_note_point(weir_runtime *runtime, wi_block *block, void *native);
/* Fails with WEIR_ERR_STREAM_MISUSE: the block needs zeros, which a captured stream cannot write. */
weir_status wi_alloc_not_captured(const weir_runtime *runtime, const wi_block *block, weir_stream stream);
/* Whether the stream is captured, just before zeros are queued on it. Looks again, as the request may have waited since it looked
 * its stream up, and a capture may have begun meanwhile. */
bool wi_alloc_captured(weir_runtime *runtime, weir_stream stream, const void *native);

/* What the free of a block waits for. */
typedef struct wi_free_fence {
    wi_past past;
    bool behind_all; /* WI_IN_ORDER of all work of the device: the block's own stream is gone, and has no point */
    void *native;    /* the stream's */
    wi_event event;  /* WI_UNPASSED: the point behind which the block is free, besides its declared uses */
} wi_free_fence;

/* Records the point of the stream, and whether the device is past it and past the block's uses. */
weir_status wi_free_record_fence(weir_runtime *runtime, const wi_block *block, const wi_stream_facts *at,
                                 wi_free_fence *f);
/* Notes zeros that another stream is writing to the block as its first write. */
weir_status wi_free_note_zeroing(weir_runtime *runtime, wi_block *block, weir_stream stream);
/* The client's account in the ledger of the stack. */
const wi_account *wi_free_account(const weir_client *client, const wi_resource *stack);

#endif
