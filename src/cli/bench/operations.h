/* bench_operations.h: single operations of weir's (bench_weir.c) and of what a program would call instead
 * (bench_peers.c), timed one by one. */
#ifndef WEIR_CLI_BENCH_OPERATIONS_H
#define WEIR_CLI_BENCH_OPERATIONS_H

#include <weir/weir.h>

/* One row: an operation that can be repeated. */
typedef struct bench_row {
    const char *operation; /* rows of one operation are compared with each other */
    char who[64];          /* "weir: async", "CUDA: cuMemAllocAsync" */
    bool peer; /* what weir's rows of this operation are compared with; the first one of an operation counts */
    bool (*run)(void *user); /* false: weir_detail says why */
    void *user;
    uint64_t median, p99; /* nanoseconds, of the best round so far */
} bench_row;

enum { BENCH_ROWS = 64 };

typedef struct bench {
    const char *device;
    bench_row rows[BENCH_ROWS];
    size_t count;
    char missing[256]; /* why there are no peers on the device, if that is so */
} bench;

/* The row's place is valid until the bench ends. */
bench_row *bench_add(bench *b, const char *operation, const char *who, bool (*run)(void *user), void *user);

/* Rows of weir's, over runtimes of their own. WEIR_OK, or why one could not be made. */
weir_status bench_weir_begin(bench *b);
void bench_weir_end(void);

/* Rows of what a program would use instead on that device. */
void bench_peers_begin(bench *b);
void bench_peers_end(void);

/* The operations. */
extern const char bench_small[], bench_large[], bench_host[], bench_use[], bench_many[], bench_record[];
enum { BENCH_SMALL_BYTES = 4096, BENCH_LARGE_BYTES = 1 << 20, BENCH_USES = 16 };

#endif
