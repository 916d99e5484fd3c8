/* interference.c: a kernel of the lender runs by turns alone and while its free memory is lent to another client as
 * fast as possible: without a driver call, and by moves. */
#include "bench.h"

#include "cli/run/measure.h"

#include <stdio.h>
#include <stdlib.h>

/* The kernel ------------------------------------------------------------------------------------------------------- */

typedef int result; /* types are those of cuda.h */

/* Each thread reads 16 bytes out of every stride of the grid, over all of the memory, `rounds` times. The thread stores
 * the sum at the end, so that the reads are needed. */
static const char text[] = ".version 7.0\n"
                           ".target sm_52\n"
                           ".address_size 64\n"
                           ".visible .entry steady(.param .u64 memory, .param .u64 bytes, .param .u32 rounds)\n"
                           "{\n"
                           "    .reg .pred %p<2>;\n"
                           "    .reg .b32 %r<11>;\n"
                           "    .reg .b64 %d<6>;\n"
                           "    ld.param.u64 %d0, [memory];\n"
                           "    cvta.to.global.u64 %d0, %d0;\n"
                           "    ld.param.u64 %d1, [bytes];\n"
                           "    ld.param.u32 %r0, [rounds];\n"
                           "    mov.u32 %r1, %ctaid.x;\n"
                           "    mov.u32 %r2, %ntid.x;\n"
                           "    mov.u32 %r3, %tid.x;\n"
                           "    mad.lo.u32 %r1, %r1, %r2, %r3;\n"
                           "    mov.u32 %r4, %nctaid.x;\n"
                           "    mul.lo.u32 %r4, %r4, %r2;\n"
                           "    mul.wide.u32 %d2, %r1, 16;\n"
                           "    mul.wide.u32 %d3, %r4, 16;\n"
                           "    mov.u32 %r5, 0;\n"
                           "ROUND:\n"
                           "    mov.u64 %d4, %d2;\n"
                           "PIECE:\n"
                           "    setp.ge.u64 %p0, %d4, %d1;\n"
                           "    @%p0 bra NEXT;\n"
                           "    add.u64 %d5, %d0, %d4;\n"
                           "    ld.volatile.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d5];\n"
                           "    add.u32 %r6, %r6, %r7;\n"
                           "    add.u32 %r8, %r8, %r9;\n"
                           "    add.u32 %r6, %r6, %r8;\n"
                           "    add.u32 %r5, %r5, %r6;\n"
                           "    add.u64 %d4, %d4, %d3;\n"
                           "    bra PIECE;\n"
                           "NEXT:\n"
                           "    sub.u32 %r0, %r0, 1;\n"
                           "    setp.ne.u32 %p1, %r0, 0;\n"
                           "    @%p1 bra ROUND;\n"
                           "    add.u64 %d5, %d0, %d2;\n"
                           "    st.global.u32 [%d5], %r5;\n"
                           "    ret;\n"
                           "}\n";

enum { BLOCKS = 1024, THREADS = 256, LEAST_BYTES = BLOCKS * THREADS * 16 };

static struct {
    result (*push)(void *);
    result (*pop)(void **);
    result (*load)(void **, const void *);
    result (*unload)(void *);
    result (*function)(void **, void *, const char *);
    result (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                     void **);
    result (*event_create)(void **, unsigned);
    result (*event_destroy)(void *);
    result (*event_record)(void *, void *);
    result (*event_query)(void *);
    result (*event_synchronize)(void *);
    result (*event_elapsed)(float *, void *, void *);
} cuda;

typedef struct kernel {
    void *module, *function, *stream, *events[2];
    unsigned long long memory, bytes;
    unsigned rounds;
} kernel;

static weir_status interference_worked(result code, const char *what)
{
    return code == 0 ? WEIR_OK : weir_fail(WEIR_ERR_DRIVER, "%s: error %d", what, code);
}

static bool interference_find(void)
{
    const cuda_wanted wanted[] = {{"cuCtxPushCurrent", &cuda.push},
                                  {"cuCtxPopCurrent", &cuda.pop},
                                  {"cuModuleLoadData", &cuda.load},
                                  {"cuModuleUnload", &cuda.unload},
                                  {"cuModuleGetFunction", &cuda.function},
                                  {"cuLaunchKernel", &cuda.launch},
                                  {"cuEventCreate", &cuda.event_create},
                                  {"cuEventDestroy", &cuda.event_destroy},
                                  {"cuEventRecord", &cuda.event_record},
                                  {"cuEventQuery", &cuda.event_query},
                                  {"cuEventSynchronize", &cuda.event_synchronize},
                                  {"cuEventElapsedTime", &cuda.event_elapsed}};
    return cuda_find(wanted, sizeof wanted / sizeof wanted[0]);
}

static weir_status kernel_start(kernel *k)
{
    void *parameters[] = {&k->memory, &k->bytes, &k->rounds};
    weir_status status = interference_worked(cuda.event_record(k->events[0], k->stream), "cuEventRecord");
    if (status == WEIR_OK)
        status = interference_worked(
            cuda.launch(k->function, BLOCKS, 1, 1, THREADS, 1, 1, 0, k->stream, parameters, NULL), "cuLaunchKernel");
    return status == WEIR_OK ? interference_worked(cuda.event_record(k->events[1], k->stream), "cuEventRecord")
                             : status;
}

static bool kernel_runs(const kernel *k)
{
    enum { NOT_READY = 600 };
    return cuda.event_query(k->events[1]) == NOT_READY;
}

/* Waits for the end; the time between events before and behind it. */
static weir_status kernel_finish(kernel *k, double *milliseconds)
{
    float took = 0;
    weir_status status = interference_worked(cuda.event_synchronize(k->events[1]), "cuEventSynchronize");
    if (status == WEIR_OK)
        status = interference_worked(cuda.event_elapsed(&took, k->events[0], k->events[1]), "cuEventElapsedTime");
    *milliseconds = (double)took;
    return status;
}

/* Finds how many rounds take that long, by two runs that do not count. */
static weir_status calibrate(kernel *k, double milliseconds)
{
    enum { TRIED = 32, MOST = 1000000 };
    double took = 0;
    weir_status status = WEIR_OK;
    k->rounds = TRIED;
    for (int i = 0; i < 2 && status == WEIR_OK; i++) {
        status = kernel_start(k);
        if (status == WEIR_OK)
            status = kernel_finish(k, &took);
    }
    double rounds = took > 0 ? TRIED * milliseconds / took : 1;
    k->rounds = rounds < 1 ? 1 : rounds > MOST ? MOST : (unsigned)rounds;
    return status;
}

static weir_status interference_prepare(kernel *k)
{
    weir_status status = interference_worked(cuda.load(&k->module, text), "cuModuleLoadData");
    if (status == WEIR_OK)
        status = interference_worked(cuda.function(&k->function, k->module, "steady"), "cuModuleGetFunction");
    for (int i = 0; i < 2 && status == WEIR_OK; i++)
        status = interference_worked(cuda.event_create(&k->events[i], 0), "cuEventCreate");
    return status;
}

static void kernel_close(kernel *k)
{
    void *ignored;
    for (int i = 0; i < 2; i++)
        if (k->events[i])
            (void)cuda.event_destroy(k->events[i]);
    if (k->module)
        (void)cuda.unload(k->module);
    (void)cuda.pop(&ignored);
    free(k);
}

/* It will read [memory, +bytes), which has to stay, on that stream, and run for about `milliseconds`. Until the close
 * on one thread. WEIR_ERR_UNSUPPORTED: the runtime has no GPU, or its driver lacks something. */
static weir_status kernel_open(weir_runtime *runtime, weir_stream stream, void *memory, size_t bytes,
                               double milliseconds, kernel **out)
{
    *out = NULL;
    if (!interference_find() || cuda.push(cli_runtime(runtime).native) != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "a kernel wants a GPU whose driver has modules and events");
    kernel *k = calloc(1, sizeof *k);
    if (!k || bytes < LEAST_BYTES) {
        void *ignored;
        (void)cuda.pop(&ignored);
        free(k);
        return weir_fail(WEIR_ERR_INVALID, "a kernel wants memory of the host's, and %d bytes to read", LEAST_BYTES);
    }
    k->stream = weir_stream_native(stream);
    k->memory = (uintptr_t)memory;
    k->bytes = bytes / 16 * 16;
    weir_status status = interference_prepare(k);
    if (status == WEIR_OK)
        status = calibrate(k, milliseconds);
    *out = k;
    if (status == WEIR_OK)
        return WEIR_OK;
    kernel_close(k);
    *out = NULL;
    return status;
}

#define MIB ((size_t)1 << 20)

enum { PAIRS = 25, KERNEL_MS = 20, READ_MIB = 256, PIECES = 64, PIECE_MIB = 16, TAKEN_MIB = 480 };

typedef struct world {
    weir_runtime *runtime;
    weir_client *lender, *borrower;
    weir_stream mine, other, beside; /* the lender's, the borrower's, and the kernel's */
    void *read;
    kernel *kernel;
} world;

/* Lends ------------------------------------------------------------------------------------------------------------ */

static weir_status interference_take(world *w, size_t bytes)
{
    void *block;
    weir_status status = weir_alloc(w->borrower, bytes, w->other, WEIR_CLASS_ACTIVATIONS, &block);
    if (status == WEIR_OK)
        status = weir_free(w->borrower, block, w->other);
    return status == WEIR_OK ? weir_stream_synchronize(w->other) : status;
}

static weir_status free_half(world *w, void **pieces, int half)
{
    weir_status status = WEIR_OK;
    for (int i = half; i < PIECES && status == WEIR_OK; i += 2)
        status = weir_free(w->lender, pieces[i], w->mine);
    return status == WEIR_OK ? weir_stream_synchronize(w->mine) : status;
}

/* Every second of the lender's pieces is free, and the borrower gets them as one block: the budget has no other memory.
 */
static weir_status lend_by_moves(world *w)
{
    void *pieces[PIECES];
    weir_status status = WEIR_OK;
    for (int i = 0; i < PIECES && status == WEIR_OK; i++)
        status = weir_alloc(w->lender, PIECE_MIB * MIB, w->mine, WEIR_CLASS_ACTIVATIONS, &pieces[i]);
    if (status == WEIR_OK)
        status = free_half(w, pieces, 0);
    if (status == WEIR_OK)
        status = interference_take(w, TAKEN_MIB * MIB);
    return status == WEIR_OK ? free_half(w, pieces, 1) : status;
}

/* To the borrower and back, where it lies. */
static weir_status lend(world *w)
{
    void *block;
    weir_status status = interference_take(w, TAKEN_MIB * MIB);
    if (status == WEIR_OK)
        status = weir_alloc(w->lender, TAKEN_MIB * MIB, w->mine, WEIR_CLASS_ACTIVATIONS, &block);
    if (status == WEIR_OK)
        status = weir_free(w->lender, block, w->mine);
    return status == WEIR_OK ? weir_stream_synchronize(w->mine) : status;
}

static const struct {
    const char *what;
    weir_status (*lend)(world *w);
} kinds[BENCH_LENDS] = {{"where it lies", lend}, {"by moves", lend_by_moves}};

/* Timing ----------------------------------------------------------------------------------------------------------- */

static weir_status run_kernel(world *w, weir_status (*lend_once)(world *w), bench_interference *b, double *milliseconds)
{
    weir_status status = kernel_start(w->kernel);
    while (lend_once && status == WEIR_OK && kernel_runs(w->kernel)) {
        status = lend_once(w);
        b->lends++;
    }
    return status == WEIR_OK ? kernel_finish(w->kernel, milliseconds) : status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values)
{
    qsort(values, PAIRS, sizeof *values, by_value);
    return values[PAIRS / 2];
}

static uint64_t interference_moved(const world *w)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    return weir_snapshot(w->runtime, &stats, NULL, 0, NULL) == WEIR_OK ? stats.moved : 0;
}

static weir_status run_pairs(world *w, int kind, bench_interference *b)
{
    double alone[PAIRS], with[PAIRS], slowed[PAIRS];
    weir_status status = kinds[kind].lend(w); /* first-time work does not count */
    *b = (bench_interference){.what = kinds[kind].what, .bytes = TAKEN_MIB * MIB};
    uint64_t before = interference_moved(w);
    for (int i = 0; i < PAIRS && status == WEIR_OK; i++) {
        for (int turn = 0; turn < 2 && status == WEIR_OK; turn++) {
            bool beside = (i + turn) % 2; /* they take turns at being first */
            status = run_kernel(w, beside ? kinds[kind].lend : NULL, b, beside ? &with[i] : &alone[i]);
        }
        if (status == WEIR_OK)
            slowed[i] = with[i] / alone[i];
    }
    if (status != WEIR_OK)
        return status;
    b->pairs = PAIRS;
    b->moved = interference_moved(w) - before;
    b->alone = median(alone);
    b->with = median(with);
    b->slowed = median(slowed);
    return WEIR_OK;
}

/* Open and close --------------------------------------------------------------------------------------------------- */

static weir_status interference_open_clients(world *w)
{
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = "lender";
    weir_status status = weir_client_create(w->runtime, &options, &w->lender);
    options.name = "borrower";
    if (status == WEIR_OK)
        status = weir_client_create(w->runtime, &options, &w->borrower);
    weir_stream *streams[] = {&w->mine, &w->other, &w->beside};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0] && status == WEIR_OK; i++)
        status = weir_stream_acquire(w->runtime, streams[i]);
    return status;
}

static weir_status interference_open_world(world *w, const bench_args *args)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.resource = args->resource;
    options.budget = (READ_MIB + PIECES * PIECE_MIB) * MIB;
    weir_status status = weir_runtime_create(args->device, &options, &w->runtime);
    if (status == WEIR_OK)
        status = interference_open_clients(w);
    if (status == WEIR_OK)
        status = weir_alloc(w->lender, READ_MIB * MIB, w->beside, WEIR_CLASS_WEIGHTS, &w->read);
    if (status == WEIR_OK)
        status = kernel_open(w->runtime, w->beside, w->read, READ_MIB * MIB, KERNEL_MS, &w->kernel);
    return status;
}

static void interference_close_world(world *w)
{
    weir_client *clients[] = {w->lender, w->borrower};
    weir_stream streams[] = {w->mine, w->other, w->beside};
    if (w->kernel)
        kernel_close(w->kernel);
    if (w->read)
        (void)!weir_free(w->lender, w->read, w->beside);
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++)
        if (streams[i].id)
            (void)!weir_stream_release(streams[i]);
    for (size_t i = 0; i < sizeof clients / sizeof clients[0]; i++)
        if (clients[i])
            (void)!weir_client_destroy(clients[i]);
    if (w->runtime)
        (void)!weir_runtime_destroy(w->runtime);
}

weir_status bench_interference_measure(const bench_args *args, bench_interference out[BENCH_LENDS], char *why,
                                       size_t room)
{
    world w = {0};
    weir_status status = interference_open_world(&w, args);
    for (int kind = 0; kind < BENCH_LENDS && status == WEIR_OK; kind++)
        status = run_pairs(&w, kind, &out[kind]);
    snprintf(why, room, "%s", status == WEIR_OK ? "" : weir_detail()); /* closing may fail for it */
    interference_close_world(&w);
    return status;
}
