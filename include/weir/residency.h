/* weir/residency.h: a client's device memory steps aside, and comes back to the same addresses.
 *
 * Suspending a client takes the physical memory from under its blocks, so that everybody else may have it. Their
 * contents go to memory of the host's or to a file. The blocks stay: their addresses are reserved, the client may free
 * them, and pointers, tensors and captured graphs that name them go on being right. Resuming puts memory under the same
 * addresses and the same bytes into it. Between the two nothing may touch them: on the host an access faults, on CUDA it
 * ends the context, as with any address without memory.
 *
 * What leaves are whole chunks (weir/stats.h) in which nothing but the client's blocks lies. The part of a block in a
 * shared chunk stays. Such bytes are live as before; the others are *away*: they count as neither live nor held, a
 * resume claims them again, and weir_client_stats.away adds them up.
 *
 * The stack must be budget(mapped), the default where the device maps memory; with another stack the calls here answer
 * WEIR_ERR_UNSUPPORTED. Pages of elastic blocks (weir/elastic.h) are given back, and committed again; unused pages that
 * stand in for them meanwhile can be read. Memory of the host's stays. Sizes are bytes. */
#ifndef WEIR_RESIDENCY_H
#define WEIR_RESIDENCY_H

#include <weir/stats.h>

WEIR_BEGIN

/* Why a block, or a part of it, stays. */
typedef enum weir_stay {
    WEIR_STAY_SHARED = 0, /* its chunk holds other clients' blocks, or memory that is free in the order of a stream */
    /* It was allocated with WEIR_ALLOC_STABLE, as exported memory must be: other processes or cards have a handle of it. */
    WEIR_STAY_STABLE = 1,
    WEIR_STAY_GRAPH = 2, /* it is of a capture pool, and weir_suspend_options.graphs is not set */
    WEIR_STAY_CLASS = 3, /* its class is in weir_suspend_options.stay */
    WEIR_STAY_BUSY = 4,  /* another thread is freeing or resizing the block */
    WEIR_STAY_COUNT = 5
} weir_stay;

/* The bit of a class in the sums below. */
#define WEIR_CLASS_BIT(memory_class) (1u << (unsigned)(memory_class))

typedef struct weir_suspend_options {
    size_t struct_size;
    uint32_t stay; /* classes that stay */
    uint32_t drop; /* classes whose contents are not kept: zeros come back */
    /* Classes that nobody has written since the client was resumed last. What was copied then is still good, and such
     * blocks are not copied again, but for those that a weir_client_resume_some without `unwritten` brought back before.
     * That it is true is the caller's promise; `verify` looks. */
    uint32_t unwritten;
    bool verify;          /* compares what `unwritten` promises with the copy, and copies again what differs */
    bool keep_guarantee;  /* else what the client is guaranteed is given up until it is resumed */
    bool resume_on_alloc; /* an allocation for the client resumes it first; else it is refused with WEIR_ERR_BUSY */
    uint64_t wait;        /* nanoseconds for the client's work on the device to be done; 0: as long as it takes */
    /* The contents go to a nameless file there, or to the client's file that still has copies. NULL: to page-locked
     * memory of the host, which counts in the host's ledger; on a host's runtime to a file in $TMPDIR or /tmp. */
    const char *folder;
    /* Where the device can map memory of the host's, the copies are shown at the addresses of what is away: work reads and
     * writes there, over the link instead of from the device. What it writes comes back with the rest. The client may be
     * used on: allocations and launches are as always, only slower, unless `resume_on_alloc`. All that is away is shown,
     * also what is dropped, as zeros; pages of elastic blocks are not, and come back with the first
     * weir_client_resume_some. Elsewhere it does nothing, and weir_residency.shown is 0. `folder` is for those pages then.
     * On the host it is the same memory: that shows the same, and gives nothing. */
    bool show;
    /* Memory of the client's capture pools (weir/stream.h) leaves as well, also what they keep for later captures. The
     * caller's promise: nothing that was captured there runs until the resume; with `show`, until the return. Addresses
     * stay, and graphs that were captured there can be launched again after the resume. Until the client is resident, kept
     * blocks are live, not pending, in the books: they are allocated by the suspend, and freed by the resume. A block of a
     * pool that is freed meanwhile is the pool's when all is back. WEIR_ERR_STREAM_MISUSE while a capture for one of the
     * pools has not ended. */
    bool graphs;
} weir_suspend_options;

enum { WEIR_STAYS = 8 };

/* What a suspend did, and what is away now. */
typedef struct weir_residency {
    size_t struct_size;
    weir_residency_state state;
    uint64_t away;     /* bytes of blocks that are elsewhere now */
    uint64_t released; /* physical memory that the last suspend gave to everybody */
    uint64_t copied;   /* by the last suspend: bytes whose contents were copied out, */
    uint64_t trusted;  /* whose copy was still good, */
    uint64_t dropped;  /* and whose contents were not kept */
    uint64_t differed; /* of the copied bytes: promised as unwritten, and found written by `verify` */
    uint64_t stored;   /* bytes of the host's memory, or of files, that hold copies now; some survive a resume */
    uint64_t stayed;   /* live bytes that the last suspend left where they are */
    uint32_t stays;    /* blocks of these in stay[] */
    struct {
        const void *pointer;
        uint64_t bytes; /* that stayed, in the first chunk found */
        weir_stay why;
        char tag[48];
    } stay[WEIR_STAYS]; /* some of them */
    uint64_t shown;     /* of `away`: bytes that are shown at their addresses now */
    /* What no suspend moves, as it is of no block, at the time of the last one: bytes that libraries of the client's engine
     * took, such as workspaces (weir_client_note_outside), and how they were found; and, of the whole device, bytes that the
     * process's instantiated graphs hold for allocations of their own, which CUDA gives back when they are destroyed. */
    uint64_t outside;
    char outside_method[128];
    uint64_t graphs;
} weir_residency;

/* What comes back of a client first. */
typedef struct weir_resume_options {
    size_t struct_size;
    /* Bytes at most, in whole pieces, but at least one piece. 0: no limit */
    uint64_t most;
    uint32_t classes;  /* pieces with bytes of these classes; 0: of any */
    const void *block; /* pieces with bytes of this block; NULL: of any */
    uint64_t wait;     /* nanoseconds for the client's work, as in weir_suspend_options */
    /* The caller's promise: blocks that earlier calls brought back, and that the next suspend calls `unwritten`, are not
     * written before the rest is back either. Their copies stay good. */
    bool unwritten;
} weir_resume_options;

/* Suspends the client: all or nothing. Waits for its work: what was queued on the streams on which it allocated, and
 * what was declared as uses (weir/uses.h). `wait` bounds that wait, but not the call's own copies, nor after a failure the
 * release of their page-locked memory, where CUDA waits for the whole device (cuMemFreeHost). Otherwise the call never
 * waits for the device: a thread of weir's gives older copies' memory back. The caller makes sure that no
 * other work touches the memory, and that none is queued until the resume; with `show`, until the return. Other
 * clients' work runs on.
 *
 * With the option `protect` the promise `unwritten` is enforced until the next suspend. From a weir_client_resume on the
 * device's work cannot write to memory with nothing but blocks of these classes, whose copies are still good: a kernel that
 * does ends as with an address without memory. weir's own calls that write there (weir_copy, weir_fill, weir_read_file,
 * weir_resize, frees), and a launch that declares a write (weir/uses.h), make it writable first; what they open is copied
 * again by the next suspend, whatever is promised. The resume waits for the contents then. And the next suspend compares such
 * memory with its copies: WEIR_ERR_CORRUPT names a block that was written, and nothing changes. In
 * builds with WEIR_INVARIANTS it always does, unless `verify` is set, with which such blocks are copied again.
 *
 * Thread caches of the client are emptied, and its pending frees waited for. While this runs, a free of the client's
 * blocks on another thread waits for it; inside a pressure callback it is WEIR_ERR_BUSY instead. The host's memory for
 * copies is asked for before anything leaves. With nothing that could leave, the client is suspended all the same, and
 * away is 0. A pressure callback suspends other clients than the one that asks (weir_pressure.client): the asking
 * client would be suspended, and yet have the requested block.
 *
 * `out` (may be NULL) gets the receipt.
 * Errors (nothing changes): WEIR_ERR_UNSUPPORTED (the stack), WEIR_ERR_BUSY (suspended already; a launch that uses a
 * block has not ended; the work was not done within `wait`), WEIR_ERR_STREAM_MISUSE (one of the streams is being
 * captured), WEIR_ERR_OUT_OF_MEMORY (the host's ledger), WEIR_ERR_SYSTEM (no host memory, or the file cannot be
 * written), WEIR_ERR_DRIVER, WEIR_ERR_DEVICE_LOST, WEIR_ERR_INVALID, WEIR_ERR_FORKED. Where the driver does not say
 * then whether copies are done, a free of what they read waits for them, or is WEIR_ERR_BUSY until they are known to
 * be. One exception: a driver that fails, and then does not put back the memory that it had taken, leaves the client
 * suspended, with nothing lost; weir_client_residency tells.
 * Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_client_suspend(weir_client *client, const weir_suspend_options *options,
                                                        weir_residency *out);

/* Brings it back: claims the bytes in the ledger, climbing its ladder like an allocation (weir/stats.h), puts memory
 * under the addresses, and copies the contents in, a chunk while the next is mapped. Work that is queued on `stream`
 * after the return finds them; on other streams, what is declared as a use, and what is ordered behind `stream`, does
 * too. WEIR_STREAM_HOST: they are there at return.
 *
 * All or nothing: WEIR_ERR_OUT_OF_MEMORY with its numbers in weir_refusal_last, and any other failure, leaves it
 * suspended with nothing lost. WEIR_ERR_CORRUPT: a copy in a file is not what was written; the client stays suspended.
 * A client that is not suspended: WEIR_OK. Copies stay as long as the client, so that a later suspend need not copy
 * what is unwritten; weir_client_forget_copies gives them up. Errors also as weir_client_suspend. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_client_resume(weir_client *client, weir_stream stream);

/* The same for a part: of what matches, in the order of addresses, up to `most`; and pages of elastic blocks, all of them with
 * the first call. *came (may be NULL) gets the bytes, without those of pages: 0 when nothing matches. The client is
 * suspended until all is back. So a client whose copies are shown is used between calls, from the device where it is back,
 * and from the host where it is not yet. Each piece is exchanged behind the client's work, which is waited for as in
 * weir_client_suspend; what weir knows nothing of must be done, and nothing may be queued before the return.
 *
 * A failure changes nothing. Errors as weir_client_resume; WEIR_ERR_BUSY also as weir_client_suspend. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_client_resume_some(weir_client *client, const weir_resume_options *options,
                                                            weir_stream stream, uint64_t *came);

/* Gives up copies that are not needed to resume the client, when what a resume has queued has read them. Returns their
 * bytes; 0 while the client is suspended, or on its way. Any thread. */
WEIR_API uint64_t weir_client_forget_copies(weir_client *client);

/* What is away now, and what the last suspend did. WEIR_ERR_INVALID, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_client_residency(weir_client *client, weir_residency *out);

/* More weights than the device has room for. */

/* With `on`, a request for device memory of WEIR_CLASS_WEIGHTS that finds no room, after all that an allocation tries, begins
 * in memory of the host's, shown at its addresses, instead of being refused. So does one that would not leave `room` bytes
 * unclaimed under the budget and the client's limits, for what is not weights (0: nothing is left on purpose). Its bytes are
 * away and shown from the start: they count in the host's ledger and not in the device's budget. From then on the client is as
 * after a suspend with `show`: WEIR_SUSPENDED, and used as always, from the host where a block is not on the device;
 * weir_client_resume_some brings pieces as room appears, weir_client_resume all. Whole chunks alone begin so: requests
 * of less than the device's granule (2 MiB on CUDA) are refused as ever, and so are those with WEIR_ALLOC_STABLE, out
 * of a reservation or a capture pool, and on a captured stream. Where the host has no room either, the refusal is the
 * host's, and nothing has changed. Statistics count the device's refusal in either case.
 *
 * What is shown stays if it is turned off. On the host's own runtime it is the same memory in the same budget: it serves to try
 * programs, with a `room` that the weights then take after all. Such a client is no further suspended, nor leaves in an
 * exchange, before it is whole.
 * Errors: WEIR_ERR_UNSUPPORTED (the stack; or the device shows no memory of the host's: nothing changes), WEIR_ERR_INVALID,
 * WEIR_ERR_SYSTEM (no host memory), WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_client_set_overflow(weir_client *client, bool on, uint64_t room);

/* Ahead of a suspend: page-locked memory of the host's for the copies. */

typedef struct weir_prepare_options {
    size_t struct_size;
    uint32_t stay; /* classes that will stay, or be dropped, as in weir_suspend_options: no memory is made for them */
    uint32_t drop;
    bool wait; /* the call returns when all is made; else at once */
} weir_prepare_options;

typedef struct weir_preparation {
    size_t struct_size;
    uint64_t ready;     /* bytes that are made, and that no copy has taken */
    uint64_t coming;    /* that are being made, or are still to be */
    weir_status status; /* why making ended early; WEIR_OK */
    char why[160];      /* in words; "" */
} weir_preparation;

/* Has page-locked memory made for the copies of all that the client has now, beside what its copies have already: to the byte,
 * in slabs of up to 256 MiB, by a thread in the background. The next weir_client_suspend without `folder` and `show` takes it,
 * and need not wait for memory to be touched and registered. One that comes earlier takes what is ready, and waits for the
 * rest slab by slab, while the device copies to the former ones. What a suspend has not needed is given back at its end, also
 * when it fails after it has begun to copy. All of it goes by weir_client_forget_copies, under pressure of the host's memory,
 * and by the client's end. `options` may be NULL.
 *
 * The bytes count in the host's ledger, as copies do. Clients with host memory lose none of it: no pressure callback is called, and
 * nothing more is made once the host's budget, or what the machine and the process' cgroup have free (less a 32nd of all),
 * is short. weir_client_preparation tells then; what was made stays, and the suspend makes the rest itself.
 *
 * Looks at the client's blocks like a suspend that then leaves all as it is: frees on other threads wait for a moment. No work
 * is waited for. On a host's runtime, where copies are in files, nothing is made.
 * Errors: WEIR_ERR_UNSUPPORTED (the stack), WEIR_ERR_BUSY (the client is suspended, or a launch that uses a block has not
 * ended), WEIR_ERR_SYSTEM (no host memory, no thread), WEIR_ERR_INVALID, WEIR_ERR_FORKED; with `wait` also what ended the
 * making early: WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_DRIVER, WEIR_ERR_DEVICE_LOST. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_client_prepare(weir_client *client, const weir_prepare_options *options);

/* How far that is; zeros for a client that was never prepared for. WEIR_ERR_INVALID, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_client_preparation(weir_client *client, weir_preparation *out);

/* Cold start: bytes of a file come to the device. */

/* Copies `bytes` of the file, from `offset` on, to `to`, as weir_copy does from memory: several threads read it into
 * page-locked pieces of the client's (weir/memory.h; 16 MiB at most, while the call lasts), and each goes to the device
 * while others are read. It is written behind the work on `stream`, and is there at return, for all streams. On a host's
 * runtime the pieces are the call's own, outside the ledger (8 MiB at most). What is not in the page cache is read past
 * it where the file system lets it (O_DIRECT), and is not there afterwards.
 *
 * On failure `to` may have been written to in part; where the driver does not say then whether that is done, the pieces stay
 * live, and so does the block of weir_alloc_from_file, which the log says. Errors: WEIR_ERR_NOT_FOUND (no such file),
 * WEIR_ERR_INVALID (it ends before `offset` + `bytes`; NULL), WEIR_ERR_SYSTEM (it cannot be read),
 * WEIR_ERR_OUT_OF_MEMORY (the host's ledger, for the pieces), WEIR_ERR_STREAM_MISUSE, WEIR_ERR_DRIVER,
 * WEIR_ERR_DEVICE_LOST, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_read_file(weir_client *client, void *to, const char *path, uint64_t offset,
                                                   size_t bytes, weir_stream stream);

/* weir_alloc_with, and weir_read_file of request->bytes into the block on request->stream; with neither or both. Errors
 * are those of the two. */
WEIR_API WEIR_NODISCARD weir_status weir_alloc_from_file(weir_client *client, const weir_request *request,
                                                         const char *path, uint64_t offset, weir_block *out);

WEIR_END
#endif
