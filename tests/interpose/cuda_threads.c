/* Threads of a module at work while its calls are redirected and given back, and with each other: what each asked for
 * goes back to whom it came from, and nothing is left. */
#include "interpose/cuda_rig.h"

#include <stdatomic.h>

enum { THREADS = 4, ROUNDS = UNDER_TSAN ? 30 : 100, SIZES = 6 };

typedef struct worker {
    pthread_t thread;
    const fixture *f;
    atomic_bool *stop;
    atomic_ulong turns;
    unsigned long refused, wrong;
    uint64_t seed;
    bool late; /* the redirect begins while it works; else it captures, too */
} worker;

static void use_a_block(worker *w, void *stream)
{
    static const size_t sizes[SIZES] = {100, 4096, 70000, 300000, 1 << 20, 3 << 20};
    const fixture *f = w->f;
    void *block = NULL, *pinned = NULL;
    int result = f->m.cudaMalloc(&block, sizes[next_random(&w->seed) % SIZES]);
    w->refused += result != 0;
    if (result == 0) {
        w->wrong += f->m.cudaMemsetAsync(block, 1, 100, stream) != 0;
        if (w->late) /* no free is put behind a stream that was there before the redirect */
            w->wrong += f->m.cudaStreamSynchronize(stream) != 0;
        w->wrong += f->m.cudaFree(block) != 0;
    }
    if (next_random(&w->seed) % 4 == 0 && f->m.cudaMallocHost(&pinned, 5000) == 0) {
        memset(pinned, 2, 5000);
        w->wrong += f->m.cudaFreeHost(pinned) != 0;
    }
}

static void capture_once(worker *w, void *stream)
{
    void *graph = NULL, *block = NULL;
    const fixture *f = w->f;
    bool had = f->m.cudaMalloc(&block, 4096) == 0;
    if (f->m.cudaStreamBeginCapture(stream, RELAXED) != 0) {
        w->wrong++;
        return;
    }
    if (had)
        w->wrong += f->m.cudaFree(block) != 0;
    w->wrong += f->m.cudaStreamEndCapture(stream, &graph) != 0;
    if (graph)
        w->wrong += f->m.cudaGraphDestroy(graph) != 0;
}

static void *work(void *user)
{
    worker *w = user;
    w->f->m.cudaSetDevice(0);
    while (!atomic_load(w->stop)) {
        void *stream = NULL;
        if (w->f->m.cudaStreamCreateWithFlags(&stream, NON_BLOCKING) != 0) {
            w->wrong++;
            continue;
        }
        for (int i = 0; i < 5; i++)
            use_a_block(w, stream);
        if (!w->late)
            capture_once(w, stream);
        w->wrong += w->f->m.cudaStreamDestroy(stream) != 0;
        (void)w->f->m.cudaGetLastError();
        atomic_fetch_add(&w->turns, 1);
    }
    return NULL;
}

static void start(worker *workers, const fixture *f, atomic_bool *stop, bool late)
{
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.f = f, .stop = stop, .seed = 7 + i, .late = late};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
}

static void wait_for_a_turn_of_each(worker *workers)
{
    for (size_t i = 0; i < THREADS; i++)
        for (unsigned long now = atomic_load(&workers[i].turns); atomic_load(&workers[i].turns) < now + 2;)
            usleep(100);
}

static void stop_all(worker *workers, atomic_bool *stop)
{
    unsigned long wrong = 0, refused = 0;
    atomic_store(stop, true);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        wrong += workers[i].wrong;
        refused += workers[i].refused;
    }
    if (wrong || refused)
        fail_msg("%lu went wrong, %lu were refused: %s", wrong, refused, said);
}

/* The end is refused as long as somebody has a block, and stays refused no longer than that. */
static void threads_work_while_a_redirect_begins_and_ends(void **state)
{
    atomic_bool stop = false;
    worker workers[THREADS];
    unsigned ended = 0, busy = 0;
    (void)state;
    fixture f = prepare(64 * MIB, 1, NULL);
    start(workers, &f, &stop, true);
    for (int i = 0; i < ROUNDS; i++) {
        ok(redirect_with(&f, (wi_cuda_redirect_options){.memory_class = WEIR_CLASS_OTHER}));
        weir_status status = wi_cuda_redirect_end(f.redirect);
        for (; status == WEIR_ERR_BUSY; busy++) {
            usleep(50);
            status = wi_cuda_redirect_end(f.redirect);
        }
        ok(status);
        ended++;
    }
    f.redirect = NULL;
    assert_int_equal(ended, ROUNDS);
    stop_all(workers, &stop);
    assert_int_equal(control.stub_count("allocations"), 0);
    assert_int_equal(account(f.client[0]).live, 0);
    end(&f);
}

static void threads_share_a_redirect_with_streams_and_captures_of_their_own(void **state)
{
    atomic_bool stop = false;
    worker workers[THREADS];
    (void)state;
    fixture f = begin(64 * MIB);
    start(workers, &f, &stop, false);
    for (int i = 0; i < ROUNDS / 10; i++)
        wait_for_a_turn_of_each(workers);
    stop_all(workers, &stop);
    wi_cuda_redirect_stats s = stats(&f);
    assert_int_equal(s.allocations, s.frees);
    assert_int_equal(s.device_blocks + s.pinned_blocks + s.waiting + s.streams + s.captured, 0);
    assert_int_equal(s.passed_on, 0);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_work_while_a_redirect_begins_and_ends),
        cmocka_unit_test(threads_share_a_redirect_with_streams_and_captures_of_their_own),
    };
    return cmocka_run_group_tests(tests, find_stub, NULL);
}
