/* bench_threads.c: several threads at once: pairs on a stream each, and blocks that one thread allocates and another
 * frees. */
#include "clock.h"
#include "loads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { APART = 128, SLOTS = 8, WARM_UP = 4, WARM_BATCHES = 16, SPINS = 256 };

/* Why something failed, from the thread on which it did. */
typedef struct failure {
    char text[256];
} failure;

static void note(failure *out, const bench_peer *by)
{
    snprintf(out->text, sizeof out->text, "%s", bench_why(by));
}

static const char *kept(const failure *found)
{
    static char text[sizeof found->text];
    memcpy(text, found->text, sizeof text);
    return text[0] ? text : NULL;
}

static void pause_a_little(unsigned *spins)
{
    if (++*spins % SPINS == 0)
        sched_yield(); /* the other one may want this very processor */
}

/* A stream each ---------------------------------------------------------------------------------------------------- */

typedef struct gate {
    atomic_uint there;
    atomic_int state;
} gate;

enum { CLOSED, OPEN, CALLED_OFF };

typedef struct worker {
    const bench_load *load;
    const bench_peer *by;
    const bench_limits *limits;
    gate *gate;
    uint64_t stream;
    bench_samples samples;
    failure failed;
    char apart[APART]; /* from the next one's counts */
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    bool good = true;
    unsigned spins = 0;
    bench_enter_thread(w->by);
    for (int i = 0; i < WARM_UP && good; i++)
        good = bench_pairs(w->by, w->load->bytes, w->stream);
    atomic_fetch_add(&w->gate->there, 1);
    while (atomic_load(&w->gate->state) == CLOSED)
        pause_a_little(&spins);
    bench_samples_begin(&w->samples, w->limits);
    while (good && atomic_load(&w->gate->state) == OPEN && bench_samples_more(&w->samples)) {
        uint64_t start = bench_now();
        good = bench_pairs(w->by, w->load->bytes, w->stream);
        bench_samples_add(&w->samples, start);
    }
    if (!good)
        note(&w->failed, w->by);
    bench_leave_thread(w->by);
    return NULL;
}

/* All start together, once all are there; none does when one is missing. */
static const char *run_workers(worker *workers, unsigned count)
{
    gate start = {0};
    pthread_t threads[BENCH_THREADS];
    unsigned started = 0, spins = 0;
    const char *found = NULL;
    for (; started < count; started++) {
        workers[started].gate = &start;
        if (pthread_create(&threads[started], NULL, work, &workers[started]) != 0)
            break;
    }
    while (atomic_load(&start.there) < started)
        pause_a_little(&spins);
    atomic_store(&start.state, started == count ? OPEN : CALLED_OFF);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < started && !found; i++)
        found = kept(&workers[i].failed);
    return started == count ? found : "a thread could not be started";
}

const char *bench_run_threads(const bench_load *load, const bench_peer *by, const bench_limits *limits,
                              bench_figures *out)
{
    static worker workers[BENCH_THREADS];
    bench_samples samples[BENCH_THREADS];
    const char *failure_text = NULL;
    memset(workers, 0, sizeof workers);
    for (unsigned i = 0; i < limits->threads && !failure_text; i++) {
        workers[i] = (worker){.load = load, .by = by, .limits = limits};
        failure_text = by->stream(by->self, i, &workers[i].stream);
    }
    if (failure_text)
        return failure_text;
    failure_text = run_workers(workers, limits->threads);
    for (unsigned i = 0; i < limits->threads; i++)
        samples[i] = workers[i].samples;
    bench_samples_end(samples, limits->threads, BENCH_BATCH, out);
    return failure_text;
}

/* From hand to hand ------------------------------------------------------------------------------------------------ */

/* One thread writes `sent`, the other `taken`; a slot is the sender's while it lies ahead of what was taken. */
typedef struct channel {
    const bench_load *load;
    const bench_peer *by;
    uint64_t stream, finished; /* when the last block was freed */
    void *blocks[SLOTS][BENCH_HANDED];
    _Alignas(APART) atomic_uint_fast64_t sent;
    _Alignas(APART) atomic_uint_fast64_t taken;
    _Alignas(APART) atomic_bool closed;
    failure failed; /* of the thread that frees */
} channel;

static void free_batch(channel *c, void **blocks)
{
    for (int i = 0; i < BENCH_HANDED; i++)
        if (blocks[i] && !c->by->release(c->by->self, blocks[i], c->load->bytes, c->stream) && !c->failed.text[0])
            note(&c->failed, c->by);
}

static void *take(void *argument)
{
    channel *c = argument;
    unsigned spins = 0;
    bench_enter_thread(c->by);
    for (uint64_t taken = 0;;) {
        bool closed = atomic_load_explicit(&c->closed, memory_order_acquire);
        if (taken < atomic_load_explicit(&c->sent, memory_order_acquire)) {
            free_batch(c, c->blocks[taken % SLOTS]);
            atomic_store_explicit(&c->taken, ++taken, memory_order_release);
        } else if (closed) {
            break;
        } else {
            pause_a_little(&spins);
        }
    }
    c->finished = bench_now();
    bench_leave_thread(c->by);
    return NULL;
}

/* False: an allocation failed; what was allocated is sent all the same, so that it is freed. */
static bool send_batch(channel *c, uint64_t sent)
{
    unsigned spins = 0;
    void **blocks = c->blocks[sent % SLOTS];
    bool good = true;
    while (sent - atomic_load_explicit(&c->taken, memory_order_acquire) >= SLOTS)
        pause_a_little(&spins);
    for (int i = 0; i < BENCH_HANDED; i++) {
        blocks[i] = good ? c->by->allocate(c->by->self, c->load->bytes, c->stream) : NULL;
        good = good && blocks[i];
    }
    atomic_store_explicit(&c->sent, sent + 1, memory_order_release);
    return good;
}

const char *bench_run_handed(const bench_load *load, const bench_peer *by, const bench_limits *limits,
                             bench_figures *out)
{
    static channel c;
    bench_samples samples;
    pthread_t taker;
    bool good = true;
    uint64_t sent = 0, first;
    memset(&c, 0, sizeof c);
    c.load = load;
    c.by = by;
    const char *failure_text = by->stream(by->self, 0, &c.stream);
    if (failure_text)
        return failure_text;
    if (pthread_create(&taker, NULL, take, &c) != 0)
        return "a thread could not be started";
    while (sent < WARM_BATCHES && good)
        good = send_batch(&c, sent++);
    first = sent;
    bench_samples_begin(&samples, limits);
    uint64_t start = samples.start;
    while (good && bench_samples_more(&samples)) {
        uint64_t from = bench_now();
        good = send_batch(&c, sent++);
        bench_samples_add(&samples, from);
    }
    if (!good)
        failure_text = bench_why(by);
    atomic_store_explicit(&c.closed, true, memory_order_release);
    pthread_join(taker, NULL);
    bench_samples_end(&samples, 1, BENCH_HANDED, out);
    if (sent > first)
        out->mean = (double)(c.finished - start) / (double)((sent - first) * BENCH_HANDED);
    return failure_text ? failure_text : kept(&c.failed);
}
