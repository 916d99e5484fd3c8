/* weir/elastic.h: elastic blocks: all addresses from the start, memory page by page, for what grows and shrinks in
 * place: KV caches.
 *
 * An elastic block reserves its addresses once. Pages of it are committed, and are the client's memory from then on:
 * charged, one block each of the class and the tag that the elastic block was given. A page that is released goes back
 * to the driver when the device is past it, and what it cost is there for anybody at once. The addresses stay.
 *
 * A page without memory is unused. It can be read and written, and reads as zeros until somebody writes there. Write
 * only data there that is never read, and no secrets: on CUDA the data may show at any other unused page of the
 * runtime, and on every device the data is lost when the page is committed. weir_elastic_check finds such writes.
 * Reading costs nothing, and neither does filling with zeros through weir_fill. What else is written costs
 *   on CUDA, nothing: all unused pages of a runtime are mapped to one piece of memory of 2 MiB or of the device's granule,
 *     which comes with the first elastic block of a runtime, goes with the runtime, and is charged to nobody, like the
 *     driver's own memory;
 *   on the host, the memory that it fills, charged to nobody, until the page is committed, the block ends or weir_fill
 *     writes zeros there. So clear a block that is not all committed by weir_fill, and not by memset. The process's
 *     mappings (vm.max_map_count) are spared in exchange: a block takes one mapping, however much of the block is
 *     committed.
 *
 * While a page is committed, or given back, it has neither memory nor a stand-in for some microseconds. So no work that
 * touches an unused page may run while that page is being committed: commit a page before work is queued that touches
 * it, or after the device is past such work. Work on all other pages may run meanwhile. Likewise, what was queued on
 * other streams than that of the release, and touches the page, has to be declared (weir/uses.h: each page is a block
 * that begins at the page's address) or ordered before that stream.
 *
 * Addresses, sizes and offsets are bytes. */
#ifndef WEIR_ELASTIC_H
#define WEIR_ELASTIC_H

#include <weir/memory.h>

WEIR_BEGIN

typedef struct weir_elastic weir_elastic;

typedef struct weir_elastic_options {
    size_t struct_size;
    size_t bytes;            /* addresses; rounded up to whole pages */
    weir_class memory_class; /* WEIR_CLASS_OTHER, which is 0, means WEIR_CLASS_KV */
    const char *tag;         /* how reports call it; copied, cut at 47 bytes; NULL is "elastic" */
    bool promised; /* all bytes are reserved now, as weir_reservation_create does, and no commit is refused for want of
                      budget; else a commit may be refused like any allocation */
    size_t page;   /* wanted; rounded up to a power of two and to the device's granule; 0: the granule (2 MiB on CUDA,
                      64 KiB on the host) */
} weir_elastic_options;

/* Reserves the addresses, aligned to 2 MiB, and commits nothing. The time grows with the pages (cuda: 27 us each).
 * On failure *out is NULL. Errors: WEIR_ERR_UNSUPPORTED (the device, or its driver, cannot map memory so),
 * WEIR_ERR_OUT_OF_MEMORY (promised bytes, as from weir_reservation_create; no addresses, or the process has too many
 * mappings: WEIR_CAUSE_ADDRESS_RANGE; or the device has no memory for the piece behind unused pages), WEIR_ERR_INVALID,
 * WEIR_ERR_DRIVER, WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. A client with an elastic block cannot be closed (WEIR_ERR_BUSY).
 * Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_elastic_create(weir_client *client, const weir_elastic_options *options,
                                                        weir_elastic **out);

/* Commits every page that [offset, offset + bytes) touches: all of them, or none. Committed pages stay as they are. New
 * pages hold zeros when `stream` reaches this point (WEIR_STREAM_HOST: at return); work on other streams has to be
 * ordered behind that. No bytes: WEIR_OK, nothing is done.
 *
 * A refusal is one of weir_alloc's, for the sum of the missing pages: the ladder is climbed, pressure callbacks are
 * called, WEIR_ERR_OUT_OF_MEMORY has its numbers in weir_refusal_last. A pressure callback may release pages of this or
 * any elastic block. A page that was released on the same stream is taken back where it is, and zeroed in that order. One
 * that was released elsewhere, and that the device is not past, is waited for up to the option `wait`; then the cause is
 * WEIR_CAUSE_PENDING. WEIR_ERR_BUSY: another thread has been committing one of the pages for so long,
 * or, in a pressure callback, is doing so now. Errors also: WEIR_ERR_INVALID (a range beyond the end),
 * WEIR_ERR_STREAM_MISUSE (also on a stream that is being captured), WEIR_ERR_DRIVER, WEIR_ERR_SYSTEM. Any thread,
 * several at once. Of a commit and a release of one page at the same time, either comes first. */
WEIR_API WEIR_NODISCARD weir_status weir_elastic_commit(weir_elastic *elastic, size_t offset, size_t bytes,
                                                        weir_stream stream);

/* Gives back the pages that lie wholly in [offset, offset + bytes), ordered behind the work on `stream`: they are
 * pending until the device is past that (WEIR_STREAM_HOST: nothing is waited for but declared uses), and then go back
 * to the promise, or to the budget. Unused pages stay unused.
 * Errors (nothing changes): WEIR_ERR_INVALID (a range beyond the end), WEIR_ERR_BUSY (a launch that uses one of the
 * pages has not ended, or copies of a suspend that failed use one, as weir/residency.h says), WEIR_ERR_STREAM_MISUSE,
 * WEIR_ERR_DRIVER.
 * Never waits for the device, but for such copies. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_elastic_release(weir_elastic *elastic, size_t offset, size_t bytes,
                                                         weir_stream stream);

/* Releases all pages and ends the block, ordered behind the work on `stream`; the addresses go when the last page has.
 * Errors as weir_elastic_release, each of which changes nothing. To be called by one thread, when no other uses the
 * block, which is gone afterwards. NULL: WEIR_OK. */
WEIR_API WEIR_NODISCARD weir_status weir_elastic_destroy(weir_elastic *elastic, weir_stream stream);

typedef struct weir_elastic_stats {
    size_t struct_size;
    void *base;
    size_t bytes, page;         /* whole pages */
    uint64_t committed;         /* bytes of committed pages */
    uint64_t pending;           /* bytes of released pages that the device is not past */
    uint64_t peak;              /* of committed + pending */
    uint64_t promised;          /* what is left of the promise; 0 without one */
    uint64_t commits, releases; /* pages, ever */
    uint64_t refused;           /* calls of weir_elastic_commit that answered WEIR_ERR_OUT_OF_MEMORY */
} weir_elastic_stats;

/* A look at a moment; what the device is past is not pending in it. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_elastic_info(weir_elastic *elastic, weir_elastic_stats *out);

/* Looks whether somebody has written to an unused page of the block (on CUDA: of the runtime, as they share their
 * memory): WEIR_ERR_CORRUPT with what it holds instead of zeros. (Zeros may be written there: clearing the whole block
 * is no mistake.) That no work is queued on the device, and that no thread commits or releases pages, is the caller's
 * promise. Blocks, and is for tests: on CUDA it copies 2 MiB or more to the host, and there it needs an elastic block
 * with unused pages; on the host it reads what was touched of this block, and without a file descriptor to ask the
 * kernel with it passes over what is swapped out. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_elastic_check(weir_elastic *elastic);

WEIR_END
#endif
