/* loads.c: the loads that are put on allocators, and how their batches are timed. */
#include "allocators.h"
#include "bench.h"

#include <weir/weir.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20, WARM_UP = 4 };

/* Samples ---------------------------------------------------------------------------------------------------------- */

/* The samples of one thread. */
typedef struct samples {
    uint64_t *at;
    size_t count, room;
    uint64_t start, until, cost;
} samples;

static void samples_begin(samples *s, const bench_limits *limits)
{
    *s = (samples){.at = text_zeroed(limits->laps, sizeof *s->at), .room = limits->laps, .cost = bench_clock_cost()};
    s->start = bench_now();
    s->until = s->start + limits->milliseconds * 1000000;
}

static bool samples_more(const samples *s)
{
    return s->count < s->room && (s->count == 0 || s->start < s->until);
}

static void samples_add(samples *s, uint64_t started)
{
    uint64_t end = bench_now(), took = end - started;
    s->at[s->count++] = took > s->cost ? took - s->cost : 0;
    s->start = end; /* the last look at the clock */
}

static void samples_end(samples *s, unsigned threads, uint64_t units, bench_figures *out)
{
    size_t count = 0, filled = 0;
    for (unsigned i = 0; i < threads; i++)
        count += s[i].count;
    uint64_t *all = text_zeroed(count, sizeof *all), total = 0;
    for (unsigned i = 0; i < threads; i++) {
        if (s[i].count > 0)
            memcpy(all + filled, s[i].at, s[i].count * sizeof *all);
        filled += s[i].count;
        free(s[i].at);
    }
    for (size_t i = 0; i < count; i++)
        total += all[i];
    bench_sort(all, count);
    if (count > 0) {
        size_t half = count / 2, last = count - 1 - count / 100;
        out->p50 = (double)all[half] / (double)units;
        out->p99 = (double)all[last] / (double)units;
        out->mean = (double)total / (double)(count * units);
    }
    free(all);
}

/* Pairs ------------------------------------------------------------------------------------------------------------ */

static bool run_batch(const bench_peer *by, size_t bytes, uint64_t stream)
{
    for (int i = 0; i < BENCH_BATCH; i++) {
        void *pointer = by->allocate(by->self, bytes, stream);
        if (!pointer || !by->release(by->self, pointer, bytes, stream))
            return false;
    }
    return true;
}

static const char *loads_run_pair(const bench_load *load, const bench_peer *by, const bench_limits *limits,
                                  bench_figures *out)
{
    samples taken;
    uint64_t stream;
    const char *failure = by->stream(by->self, 0, &stream);
    for (int i = 0; i < WARM_UP && !failure; i++)
        failure = run_batch(by, load->bytes, stream) ? NULL : bench_why(by);
    samples_begin(&taken, limits);
    while (!failure && samples_more(&taken)) {
        uint64_t start = bench_now();
        failure = run_batch(by, load->bytes, stream) ? NULL : bench_why(by);
        samples_add(&taken, start);
    }
    samples_end(&taken, 1, BENCH_BATCH, out);
    return failure;
}

/* At random -------------------------------------------------------------------------------------------------------- */

enum { DRAWN = 1 << 16, SMALLEST = 512, DOUBLINGS = 13 };

typedef struct crowd {
    const bench_peer *by;
    uint64_t stream;
    void **blocks;
    uint32_t *bytes; /* of the live blocks */
    uint32_t *sizes, *victims, next;
    bool any_size;
} crowd;

static uint64_t loads_draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint32_t draw_size(uint64_t *state, bool any_size)
{
    if (!any_size)
        return (uint32_t)SMALLEST << loads_draw(state) % (DOUBLINGS + 1);
    double u = (double)(loads_draw(state) >> 11) / 0x1p53 * DOUBLINGS;
    return (uint32_t)(SMALLEST * exp2(u));
}

static bool loads_one(crowd *c, uint32_t victim, uint32_t size)
{
    const bench_peer *by = c->by;
    void *old = c->blocks[victim];
    c->blocks[victim] = NULL;
    if (old && !by->release(by->self, old, c->bytes[victim], c->stream))
        return false;
    c->bytes[victim] = size;
    c->blocks[victim] = by->allocate(by->self, size, c->stream);
    return c->blocks[victim] != NULL;
}

static bool batch(crowd *c)
{
    for (int i = 0; i < BENCH_BATCH; i++, c->next = (c->next + 1) % DRAWN)
        if (!loads_one(c, c->victims[c->next], c->sizes[c->next]))
            return false;
    return true;
}

/* Draws the sizes and victims, fills the crowd and turns it over until it is in its steady state. */
static bool loads_warm_up(crowd *c, uint32_t live, uint64_t laps)
{
    uint64_t state = 88172645463325252u;
    for (uint32_t i = 0; i < DRAWN; i++) {
        c->sizes[i] = draw_size(&state, c->any_size);
        c->victims[i] = (uint32_t)(loads_draw(&state) % live);
    }
    for (uint32_t i = 0; i < live; i++)
        if (!loads_one(c, i, draw_size(&state, c->any_size)))
            return false;
    for (uint64_t i = 0; i < laps; i++)
        if (!batch(c))
            return false;
    return true;
}

static void free_crowd(crowd *c, uint32_t live)
{
    for (uint32_t i = 0; i < live; i++)
        if (c->blocks[i])
            (void)c->by->release(c->by->self, c->blocks[i], c->bytes[i], c->stream);
    free(c->blocks);
    free(c->bytes);
    free(c->sizes);
    free(c->victims);
}

static const char *loads_run_random(const bench_load *load, const bench_peer *by, const bench_limits *limits,
                                    bench_figures *out)
{
    samples taken;
    crowd c = {.by = by,
               .any_size = load->any_size,
               .blocks = text_zeroed(load->live, sizeof *c.blocks),
               .bytes = text_zeroed(load->live, sizeof *c.bytes),
               .sizes = text_zeroed(DRAWN, sizeof *c.sizes),
               .victims = text_zeroed(DRAWN, sizeof *c.victims)};
    const char *failure = by->stream(by->self, 0, &c.stream);
    if (!failure && !loads_warm_up(&c, load->live, 16 * limits->laps))
        failure = bench_why(by);
    samples_begin(&taken, limits);
    while (!failure && samples_more(&taken)) {
        uint64_t start = bench_now();
        failure = batch(&c) ? NULL : bench_why(by);
        samples_add(&taken, start);
    }
    samples_end(&taken, 1, BENCH_BATCH, out);
    free_crowd(&c, load->live);
    return failure;
}

/* Several threads -------------------------------------------------------------------------------------------------- */

enum { APART = 128, SLOTS = 8, WARM_BATCHES = 16, SPINS = 256 };

/* Why something failed, from the thread on which it did. */
typedef struct failure {
    char text[256];
} failure;

static void loads_note(failure *out, const bench_peer *by)
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
        sched_yield(); /* the other thread may need this processor */
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
    samples taken;
    failure failed;
    char apart[APART]; /* on another cache line than the next one */
} worker;

static void *loads_work(void *argument)
{
    worker *w = argument;
    bool good = true;
    unsigned spins = 0;
    bench_enter_thread(w->by);
    for (int i = 0; i < WARM_UP && good; i++)
        good = run_batch(w->by, w->load->bytes, w->stream);
    atomic_fetch_add(&w->gate->there, 1);
    while (atomic_load(&w->gate->state) == CLOSED)
        pause_a_little(&spins);
    samples_begin(&w->taken, w->limits);
    while (good && atomic_load(&w->gate->state) == OPEN && samples_more(&w->taken)) {
        uint64_t start = bench_now();
        good = run_batch(w->by, w->load->bytes, w->stream);
        samples_add(&w->taken, start);
    }
    if (!good)
        loads_note(&w->failed, w->by);
    bench_leave_thread(w->by);
    return NULL;
}

/* Starts the measurement on all threads together when every thread is ready, or calls the measurement off if a thread
 * could not be created. */
static const char *run_workers(worker *workers, unsigned count)
{
    gate start = {0};
    pthread_t threads[BENCH_THREADS];
    unsigned started = 0, spins = 0;
    const char *found = NULL;
    for (; started < count; started++) {
        workers[started].gate = &start;
        if (pthread_create(&threads[started], NULL, loads_work, &workers[started]) != 0)
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

static const char *run_threads(const bench_load *load, const bench_peer *by, const bench_limits *limits,
                               bench_figures *out)
{
    static worker workers[BENCH_THREADS];
    samples taken[BENCH_THREADS];
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
        taken[i] = workers[i].taken;
    samples_end(taken, limits->threads, BENCH_BATCH, out);
    return failure_text;
}

/* From hand to hand ------------------------------------------------------------------------------------------------ */

/* The sending thread writes `sent`, the freeing thread `taken`. The sender may fill the next slot while fewer than
 * SLOTS batches are sent and not yet taken. */
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
            loads_note(&c->failed, c->by);
}

static void *free_sent(void *argument)
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

/* Allocates a batch and sends it. False: an allocation failed; the blocks that were allocated before are sent
 * nevertheless, for the other thread to free. */
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

static const char *run_handed(const bench_load *load, const bench_peer *by, const bench_limits *limits,
                              bench_figures *out)
{
    static channel c;
    samples taken;
    pthread_t taker;
    bool good = true;
    uint64_t sent = 0, first;
    memset(&c, 0, sizeof c);
    c.load = load;
    c.by = by;
    const char *failure_text = by->stream(by->self, 0, &c.stream);
    if (failure_text)
        return failure_text;
    if (pthread_create(&taker, NULL, free_sent, &c) != 0)
        return "a thread could not be started";
    while (sent < WARM_BATCHES && good)
        good = send_batch(&c, sent++);
    first = sent;
    samples_begin(&taken, limits);
    uint64_t start = taken.start;
    while (good && samples_more(&taken)) {
        uint64_t from = bench_now();
        good = send_batch(&c, sent++);
        samples_add(&taken, from);
    }
    if (!good)
        failure_text = bench_why(by);
    atomic_store_explicit(&c.closed, true, memory_order_release);
    pthread_join(taker, NULL);
    samples_end(&taken, 1, BENCH_HANDED, out);
    if (sent > first)
        out->mean = (double)(c.finished - start) / (double)((sent - first) * BENCH_HANDED);
    return failure_text ? failure_text : kept(&c.failed);
}

/* The list --------------------------------------------------------------------------------------------------------- */

unsigned bench_processors(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? (unsigned)count : 1;
}

size_t bench_loads(bench_load *out, unsigned threads)
{
    static const bench_load all[] = {
        {"pair, 512 B", false, 512, 0, false, false, loads_run_pair},
        {"pair, 64 KiB", false, 65536, 0, false, false, loads_run_pair},
        {"pair, 1 MiB", false, MIB, 0, false, false, loads_run_pair},
        {"pair, 64 MiB", false, (size_t)64 * MIB, 0, false, false, loads_run_pair},
        {"pair, 777 B", false, 777, 0, false, false, loads_run_pair},
        {"pair, 70001 B", false, 70001, 0, false, false, loads_run_pair},
        {"pair, 1200007 B", false, 1200007, 0, false, false, loads_run_pair},
        {"pair, 66000001 B", false, 66000001, 0, false, false, loads_run_pair},
        {"random, 1000 live", true, 0, 1000, false, false, loads_run_random},
        {"random, 10000 live", true, 0, 10000, false, false, loads_run_random},
        {"random, 1000 live, any size", true, 0, 1000, true, false, loads_run_random},
        {"random, 10000 live, any size", true, 0, 10000, true, false, loads_run_random},
        {"", true, 65536, 0, false, true, run_threads},
        {"freed by another thread, in batches of 64", true, 65536, 0, false, false, run_handed},
    };
    size_t count = sizeof all / sizeof all[0];
    memcpy(out, all, sizeof all);
    for (size_t i = 0; i < count; i++)
        if (out[i].several)
            snprintf(out[i].name, sizeof out[i].name, "pair, %u threads, a stream each", threads);
    return count;
}
