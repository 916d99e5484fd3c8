/* lag_gates.c: lag gates: streams whose work trails the host. Behind each operation its stream waits for a word in
 * memory, which the host moves on. Where the host gets stuck in a call that itself waits for streams, a watch opens the
 * gates. */
#include "replay.h"

#include "cli/run/measure.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Invariants: the word never goes back between two rests. A gate with number n is open when word >= n, by differences
 * of 32 bits, as a plan has fewer than 2^31 operations. */
typedef struct gates gates;

struct gates {
    wi_replay_lag_gates table;
    weir_runtime *runtime;
    const weir_stream *streams;
    uint32_t lag;
    _Atomic uint32_t *word;              /* operations that the host has passed, or more where gates were forced */
    _Atomic uint32_t own_word, sleepers; /* the word on the host; the stream threads that sleep on the word */
    weir_status (*put)(gates *g, uint16_t stream, uint32_t number);

    pthread_t watch;
    _Atomic bool ending, at_work; /* the latter: between the first operation of a pass and its rest */
    _Atomic uint32_t at;          /* the operation that the host is at */
    _Atomic uint64_t beats;       /* counts operations of all passes: while it changes, the host is not stuck */
    _Atomic uint64_t forced;
    uint32_t look_ns; /* how often the watch looks */

    void *device; /* of the cuda gates */
};

/* The word --------------------------------------------------------------------------------------------------------- */

/* How often the watch looks, and after how many looks without progress it opens the gates: soon on a GPU, later on the
 * host, where threads may have to wait for a processor. */
enum { LOOK_NS = 2000000, LOOK_NS_CUDA = 200000, STUCK_LOOKS = 10 };

/* The word --------------------------------------------------------------------------------------------------------- */

static bool lag_gates_is_open(uint32_t word, uint32_t number)
{
    return (int32_t)(word - number) >= 0;
}

static void move_on(gates *g, uint32_t to)
{
    uint32_t word = atomic_load(g->word);
    while (!lag_gates_is_open(word, to))
        if (atomic_compare_exchange_weak(g->word, &word, to))
            break;
    if (atomic_load(&g->sleepers))
        syscall(SYS_futex, g->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Opens the gates of all operations before the current operation, which waits for no later gate. */
static void open_before(gates *g)
{
    move_on(g, atomic_load(&g->at) + g->lag - 1);
}

/* On the host ------------------------------------------------------------------------------------------------------ */

typedef struct pass_through {
    gates *gates;
    uint32_t number;
} pass_through;

/* Runs on the stream's thread. */
static void wait_there(void *user)
{
    pass_through *through = user;
    gates *g = through->gates;
    uint32_t word;
    while (!lag_gates_is_open(word = atomic_load(g->word), through->number)) {
        atomic_fetch_add(&g->sleepers, 1);
        syscall(SYS_futex, g->word, FUTEX_WAIT_PRIVATE, word, NULL, NULL, 0);
        atomic_fetch_sub(&g->sleepers, 1);
    }
    free(through);
}

static weir_status put_host(gates *g, uint16_t stream, uint32_t number)
{
    pass_through *through = malloc(sizeof *through);
    if (!through)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for a gate");
    *through = (pass_through){g, number};
    weir_status status = weir_call(g->runtime, wait_there, through, g->streams[stream]);
    if (status != WEIR_OK)
        free(through);
    return status;
}

/* On a GPU --------------------------------------------------------------------------------------------------------- */

typedef int result;
typedef unsigned long long address;

typedef struct cuda_gates {
    void *word; /* one address for the host and the GPU, as addresses are unified here */
    result (*push)(void *);
    result (*pop)(void **);
    result (*allocate)(void **, size_t, unsigned);
    result (*release)(void *);
    result (*wait)(void *, address, uint32_t, unsigned);
} cuda_gates;

static bool lag_gates_find_functions(cuda_gates *c)
{
    const cuda_wanted wanted[] = {{"cuCtxPushCurrent", &c->push},
                                  {"cuCtxPopCurrent", &c->pop},
                                  {"cuMemHostAlloc", &c->allocate},
                                  {"cuMemFreeHost", &c->release},
                                  {"cuStreamWaitValue32", &c->wait}};
    return cuda_find(wanted, sizeof wanted / sizeof wanted[0]);
}

/* The context stays current until the gates end: a replay is on one thread. */
static weir_status put_cuda(gates *g, uint16_t stream, uint32_t number)
{
    enum { WAIT_VALUE_GEQ = 0 };
    const cuda_gates *c = g->device;
    result code = c->wait(weir_stream_native(g->streams[stream]), (uintptr_t)c->word, number, WAIT_VALUE_GEQ);
    return code == 0 ? WEIR_OK : weir_fail(WEIR_ERR_DRIVER, "cuStreamWaitValue32: error %d", code);
}

/* The word lies in page-locked memory, for which the streams of the GPU wait. */
static weir_status begin_cuda(gates *g)
{
    enum { PORTABLE = 1 };
    cuda_gates *c = calloc(1, sizeof *c);
    g->device = c;
    if (!c)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for gates");
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    bool here = lag_gates_find_functions(c) && weir_runtime_info(g->runtime, &its) == WEIR_OK;
    bool pushed = here && c->push(its.native) == 0;
    if (pushed && c->allocate(&c->word, sizeof *g->word, PORTABLE) == 0) {
        memset(c->word, 0, sizeof *g->word);
        g->word = c->word;
        g->put = put_cuda;
        return WEIR_OK;
    }
    void *ignored;
    if (pushed)
        (void)c->pop(&ignored);
    free(c);
    g->device = NULL;
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     here ? "a GPU's streams trail the host over a word of pinned memory, which cannot be had"
                          : "a GPU's streams trail the host by cuStreamWaitValue32, which libcuda.so.1 does not have");
}

static void end_cuda(gates *g)
{
    cuda_gates *c = g->device;
    void *ignored;
    if (!c)
        return;
    (void)c->release(c->word);
    (void)c->pop(&ignored);
    free(c);
    g->device = NULL;
}

/* The watch -------------------------------------------------------------------------------------------------------- */

static void *lag_gates_watch(void *user)
{
    gates *g = user;
    uint64_t seen = 0;
    unsigned looks = 0;
    while (!atomic_load(&g->ending)) {
        nanosleep(&(struct timespec){.tv_nsec = g->look_ns}, NULL);
        uint64_t beats = atomic_load(&g->beats);
        looks = beats == seen && atomic_load(&g->at_work) ? looks + 1 : 0;
        seen = beats;
        if (looks != STUCK_LOOKS)
            continue;
        atomic_fetch_add(&g->forced, 1);
        open_before(g);
    }
    return NULL;
}

/* The table -------------------------------------------------------------------------------------------------------- */

static weir_status lag_gates_put(void *user, uint16_t stream, uint64_t at)
{
    gates *g = user;
    return g->streams[stream].id ? g->put(g, stream, (uint32_t)at + g->lag) : WEIR_OK;
}

static void lag_gates_reach(void *user, uint64_t at)
{
    gates *g = user;
    if (at == 0) /* the streams are drained: nothing waits for the word */
        atomic_store(g->word, 0);
    atomic_store(&g->at, (uint32_t)at);
    atomic_fetch_add(&g->beats, 1);
    atomic_store(&g->at_work, true);
    move_on(g, (uint32_t)at);
}

static void lag_gates_open_put(void *user)
{
    open_before(user);
}

static void lag_gates_rest(void *user)
{
    gates *g = user;
    move_on(g, atomic_load(&g->at) + g->lag);
    atomic_store(&g->at_work, false);
}

static uint64_t lag_gates_forced(void *user)
{
    gates *g = user;
    return atomic_load(&g->forced);
}

static void lag_gates_end(void *user)
{
    gates *g = user;
    atomic_store(&g->ending, true);
    pthread_join(g->watch, NULL);
    end_cuda(g);
    free(g);
}

weir_status wi_replay_lag_gates_make(const wi_replay_world *how, weir_runtime *runtime, const weir_stream *streams,
                                     wi_replay_lag_gates **out)
{
    gates *g = calloc(1, sizeof *g);
    if (!g)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for gates");
    g->table = (wi_replay_lag_gates){
        g, lag_gates_put, lag_gates_reach, lag_gates_open_put, lag_gates_rest, lag_gates_forced, lag_gates_end};
    g->runtime = runtime;
    g->streams = streams;
    g->lag = (uint32_t)how->lag;
    g->word = &g->own_word;
    g->put = put_host;
    bool cuda = strncmp(how->device, "cuda", 4) == 0;
    g->look_ns = cuda ? LOOK_NS_CUDA : LOOK_NS;
    weir_status status = cuda ? begin_cuda(g) : WEIR_OK;
    if (status == WEIR_OK && pthread_create(&g->watch, NULL, lag_gates_watch, g) != 0) {
        end_cuda(g);
        status = weir_fail(WEIR_ERR_SYSTEM, "no thread to watch over gates");
    }
    if (status == WEIR_OK)
        *out = &g->table;
    else
        free(g);
    return status;
}
