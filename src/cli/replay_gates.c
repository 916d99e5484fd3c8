/* replay_gates.c: streams that trail the host: a gate behind each operation, opened by the word that the host moves on. Where
 * the host gets stuck in a call that itself waits for streams, a watch opens what is closed. */
#include "replay_gates.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The watch looks this often and opens after so many looks: soon on a GPU, where whoever waits for it does so at every turn;
 * threads may take longer to come to a processor. */
enum { LOOK_NS = 2000000, LOOK_NS_CUDA = 200000, PATIENCE = 10 };

/* The word ----------------------------------------------------------------------------------------------------------- */

static bool is_open(uint32_t word, uint32_t number)
{
    return (int32_t)(word - number) >= 0;
}

static void move_on(gates *g, uint32_t to)
{
    uint32_t word = atomic_load(g->word);
    while (!is_open(word, to))
        if (atomic_compare_exchange_weak(g->word, &word, to))
            break;
    if (atomic_load(&g->sleepers))
        syscall(SYS_futex, g->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Those of the operations before this one, which are all that it can wait for. */
static void open_before(gates *g)
{
    move_on(g, atomic_load(&g->at) + g->lag - 1);
}

/* On the host -------------------------------------------------------------------------------------------------------- */

typedef struct pass_through {
    gates *gates;
    uint32_t number;
} pass_through;

/* On the stream's thread. */
static void wait_there(void *user)
{
    pass_through *through = user;
    gates *g = through->gates;
    uint32_t word;
    while (!is_open(word = atomic_load(g->word), through->number)) {
        atomic_fetch_add(&g->sleepers, 1);
        syscall(SYS_futex, g->word, FUTEX_WAIT_PRIVATE, word, NULL, NULL, 0);
        atomic_fetch_sub(&g->sleepers, 1);
    }
    free(through);
}

weir_status gates_host_put(gates *g, uint16_t stream, uint32_t number)
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

/* The watch ---------------------------------------------------------------------------------------------------------- */

static void *watch(void *user)
{
    gates *g = user;
    uint64_t seen = 0;
    unsigned looks = 0;
    while (!atomic_load(&g->ending)) {
        nanosleep(&(struct timespec){.tv_nsec = g->look_ns}, NULL);
        uint64_t beats = atomic_load(&g->beats);
        looks = beats == seen && atomic_load(&g->at_work) ? looks + 1 : 0;
        seen = beats;
        if (looks != PATIENCE)
            continue;
        atomic_fetch_add(&g->forced, 1);
        open_before(g);
    }
    return NULL;
}

/* The table ---------------------------------------------------------------------------------------------------------- */

static weir_status put(void *user, uint16_t stream, uint64_t at)
{
    gates *g = user;
    return g->streams[stream].id ? g->put(g, stream, (uint32_t)at + g->lag) : WEIR_OK;
}

static void reach(void *user, uint64_t at)
{
    gates *g = user;
    if (at == 0) /* the streams are drained: nothing waits for the word */
        atomic_store(g->word, 0);
    atomic_store(&g->at, (uint32_t)at);
    atomic_fetch_add(&g->beats, 1);
    atomic_store(&g->at_work, true);
    move_on(g, (uint32_t)at);
}

static void open_put(void *user)
{
    open_before(user);
}

static void rest(void *user)
{
    gates *g = user;
    move_on(g, atomic_load(&g->at) + g->lag);
    atomic_store(&g->at_work, false);
}

static uint64_t forced(void *user)
{
    gates *g = user;
    return atomic_load(&g->forced);
}

weir_status wi_replay_gates_make(const wi_replay_world *how, weir_runtime *runtime, const weir_stream *streams,
                                 wi_replay_gates **out)
{
    *out = NULL;
    if (how->lag == 0)
        return WEIR_OK;
    gates *g = calloc(1, sizeof *g);
    if (!g)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for gates");
    g->table = (wi_replay_gates){g, put, reach, open_put, rest, forced};
    g->runtime = runtime;
    g->streams = streams;
    g->lag = (uint32_t)how->lag;
    g->word = &g->own_word;
    g->put = gates_host_put;
    bool cuda = strncmp(how->device, "cuda", 4) == 0;
    g->look_ns = cuda ? LOOK_NS_CUDA : LOOK_NS;
    weir_status status = cuda ? gates_cuda_begin(g) : WEIR_OK;
    if (status == WEIR_OK && pthread_create(&g->watch, NULL, watch, g) != 0) {
        gates_cuda_end(g);
        status = weir_fail(WEIR_ERR_SYSTEM, "no thread to watch over gates");
    }
    if (status == WEIR_OK)
        *out = &g->table;
    else
        free(g);
    return status;
}

void wi_replay_gates_end(wi_replay_gates *table)
{
    gates *g = table->user;
    atomic_store(&g->ending, true);
    pthread_join(g->watch, NULL);
    gates_cuda_end(g);
    free(g);
}
