/* weir/statistics.h: how often and how fast: what the adaptor stats counts.
 *
 * A runtime with "stats(mapped)" in its stack counts what passes there: blocks and bytes as requested, refusals, hits and
 * times, for each client and class and in total. Where it stands decides what it sees: around the budget ("stats(budget(
 * mapped))") its times have the whole of an allocation and a refusal is counted once; inside ("stats(mapped)") they are the
 * resource's alone, and each try of a request counts. What is live, pending, cached and promised now is the ledger's to say
 * (weir/stats.h). It costs two readings of the clock and a lock per call. */
#ifndef WEIR_STATISTICS_H
#define WEIR_STATISTICS_H

#include <weir/memory.h>

WEIR_BEGIN

enum { WEIR_SIZE_BUCKETS = 64 };

/* Nanoseconds. p50 and p99 are upper bounds, at most an eighth too high. */
typedef struct weir_latency {
    uint64_t count, total, p50, p99, max;
} weir_latency;

typedef struct weir_statistics {
    size_t struct_size;
    uint64_t allocations, frees; /* blocks; those that are live are the difference */
    uint64_t allocated, freed;   /* their bytes; what a resize adds or gives back is among them */
    uint64_t refusals, failures; /* requests that found no memory; that failed otherwise */
    uint64_t hits, misses;       /* served without a call of the driver; with one */
    weir_latency allocate;       /* of those that were served */
    weir_latency free;           /* the books of a free, on the thread that frees */
    weir_latency release;        /* giving the memory back when the device is past it, on whatever thread finds that */
    uint64_t sizes[WEIR_SIZE_BUCKETS]; /* allocations of up to 2^i bytes, and more than 2^(i-1) */
} weir_statistics;

/* The figures since the runtime was made, of one client (NULL: all) and one class (WEIR_CLASS_COUNT: all). The figures of
 * a client end with it; when more than 1024 are open at once, the others' are in the total alone, and asking for theirs is
 * WEIR_ERR_NOT_FOUND, as for a client that has not asked for memory yet. WEIR_ERR_UNSUPPORTED for a runtime without the adaptor,
 * WEIR_ERR_INVALID. Any thread; one consistent view. */
WEIR_API WEIR_NODISCARD weir_status weir_statistics_read(weir_runtime *runtime, const weir_client *client,
                                                         weir_class memory_class, weir_statistics *out);

/* What happened between a push and its pop, in all of the runtime. Blocks from before that are freed within make the live
 * figures smaller, below 0 too. */
typedef struct weir_statistics_frame {
    size_t struct_size;
    int64_t live_blocks, live_bytes;    /* at the end */
    int64_t peak_blocks, peak_bytes;    /* of those, at least 0 */
    uint64_t total_blocks, total_bytes; /* allocated within, whatever became of them */
} weir_statistics_frame;

/* Opens a frame of counters that begin at 0; frames nest, up to 64 (then WEIR_ERR_BUSY). They are the runtime's, not the
 * thread's. WEIR_ERR_UNSUPPORTED without the adaptor. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_statistics_push(weir_runtime *runtime);
/* Closes the innermost frame, hands it out (`out` may be NULL) and adds it to the one around it. WEIR_ERR_INVALID when there is
 * none. */
WEIR_API WEIR_NODISCARD weir_status weir_statistics_pop(weir_runtime *runtime, weir_statistics_frame *out);

/* The figures in one line: "cuda:0 budget(stats(mapped)): 12 live 3.5 MiB, peak 5 MiB, 120 allocations, 98.3 % hits, p50
 * 120 ns, p99 2.1 µs"; the bytes are the ledger's. Always terminated, cut at the capacity. Errors as weir_statistics_read. */
WEIR_API WEIR_NODISCARD weir_status weir_statistics_format(weir_runtime *runtime, char *text, size_t capacity);

WEIR_END
#endif
