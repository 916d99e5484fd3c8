/* weir_runtime_drain: what has passed is final at return, what has not stays, and whom it waits for. On the device that
 * WEIR_TEST_DEVICE names, or the host. */
#include "core.h"
#include "core/faulty.h"
#include "sim/device/device.h"
#include "memory/space/stream_lists.h"
#include "runtime/runtime.h"

#include <semaphore.h>

enum { BUDGET = 64 << 20, BLOCK = 1 << 20, SMALL = 4096 };

static sem_t cached_there, go_on;

static const char *device(void)
{
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name ? name : "host";
}

static bool on_sim(void)
{
    return strncmp(device(), "sim", 3) == 0;
}

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream, second;
    gate held;
} fixture;

static void begin(fixture *f, const char *resource)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = resource};
    if (on_sim()) /* where streams do nothing before somebody waits for them */
        wi_sim_configure(&(wi_sim_options){.seed = 1});
    *f = (fixture){.held = GATE};
    ok(weir_runtime_create(device(), &options, &f->runtime));
    f->client = open_client(f->runtime, "one", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    ok(weir_stream_acquire(f->runtime, &f->second));
}

static void end(fixture *f)
{
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_stream_release(f->stream));
    ok(weir_stream_release(f->second));
    ok(weir_runtime_destroy(f->runtime));
}

static void nothing(void *user)
{
    (void)user;
}

static void hold_up(fixture *f)
{
    ok(weir_call(f->runtime, on_sim() ? nothing : pass_gate, &f->held, f->stream));
}

static void let_go(fixture *f)
{
    open_gate(&f->held);
    ok(weir_stream_synchronize(f->stream));
}

static uint64_t drained(weir_runtime *runtime)
{
    uint64_t left = UINT64_MAX;
    ok(weir_runtime_drain(runtime, &left));
    return left;
}

/* What is freed and somebody's still, as it stands in the books: other looks finish some of it first. */
static uint64_t unfinished(weir_runtime *runtime)
{
    const wi_base *base = runtime->resource->base;
    return runtime->ledger.pending + runtime->ledger.thread_cached +
           (base->stream_lists ? wi_stream_lists_bytes(base->stream_lists) : 0);
}

static uint64_t thread_cached_bytes(weir_runtime *runtime)
{
    return take_snapshot(runtime).device.thread_cached;
}

static uint64_t charge_of(const void *pointer)
{
    weir_block_details details = WEIR_INIT(weir_block_details);
    ok(weir_block_info(pointer, &details));
    return details.charged;
}

/* Pending behind a use elsewhere, in the order of a stream, thread-cached, in quarantine: all is final once the device
 * is past it, and not before. */
static void frees_are_final_once_they_have_passed(void **state)
{
    static const char *const stacks[] = {"mapped",      "segments",      "direct",    "async",
                                         "log(mapped)", "guard(mapped)", "log(async)"};
    (void)state;
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        fixture f;
        if (on_sim() && strstr(stacks[i], "guard")) /* whose zones have no bytes there that it could look at */
            continue;
        if (strncmp(device(), "cuda", 4) == 0 && strcmp(stacks[i], "direct") == 0) /* cuMemFree waits for the device */
            continue;
        begin(&f, stacks[i]);
        void *used = allocate(f.client, BLOCK, f.second, WEIR_CLASS_KV),
             *live = allocate(f.client, BLOCK, f.stream, WEIR_CLASS_KV);
        void *ordered = allocate(f.client, BLOCK, f.stream, WEIR_CLASS_WEIGHTS); /* which no thread cache keeps */
        void *thread_cached = allocate(f.client, SMALL, f.second, WEIR_CLASS_KV);
        uint64_t held_up = charge_of(used) + charge_of(ordered), kept = charge_of(live);
        hold_up(&f);
        free_behind(f.client, used, f.stream);
        ok(weir_free(f.client, ordered, f.stream));
        ok(weir_free(f.client, thread_cached, f.second));
        ok(weir_stream_synchronize(f.second));
        assert_true(unfinished(f.runtime) >= held_up);
        assert_int_equal(drained(f.runtime), held_up);
        assert_int_equal(unfinished(f.runtime), held_up);
        let_go(&f);
        assert_int_equal(unfinished(f.runtime), held_up);
        assert_int_equal(drained(f.runtime), 0);
        assert_int_equal(unfinished(f.runtime), 0);
        ok(weir_runtime_drain(f.runtime, NULL));
        assert_int_equal(take_snapshot(f.runtime).device.live, kept);
        ok(weir_free(f.client, live, WEIR_STREAM_HOST));
        assert_int_equal(drained(f.runtime), 0);
        end(&f);
    }
}

/* What thread caches keep is freed on its stream, behind all that was queued there. */
static void thread_cached_blocks_stay_in_the_order_of_their_stream(void **state)
{
    (void)state;
    fixture f;
    begin(&f, "mapped");
    void *p = allocate(f.client, SMALL, f.stream, WEIR_CLASS_KV);
    hold_up(&f);
    ok(weir_free(f.client, p, f.stream));
    assert_int_equal(thread_cached_bytes(f.runtime), SMALL);
    assert_int_equal(drained(f.runtime), SMALL);
    assert_int_equal(thread_cached_bytes(f.runtime), 0);
    void *q = allocate(f.client, SMALL, f.stream, WEIR_CLASS_KV); /* at once, in that order */
    assert_ptr_equal(p, q);
    ok(weir_free(f.client, q, f.stream));
    assert_in_range(drained(f.runtime), SMALL, 2 * SMALL);
    let_go(&f);
    assert_int_equal(drained(f.runtime), 0);
    end(&f);
}

/* Blocks in the cache of a thread that does nothing more. */
static void *cache_one(void *user)
{
    fixture *f = user;
    ok(weir_free(f->client, allocate(f->client, SMALL, f->second, WEIR_CLASS_KV), f->second));
    sem_post(&cached_there);
    sem_wait(&go_on);
    return NULL;
}

static void caches_of_other_threads_are_flushed(void **state)
{
    (void)state;
    fixture f;
    pthread_t thread;
    if (on_sim())
        skip(); /* it is driven by one thread */
    begin(&f, "mapped");
    assert_int_equal(pthread_create(&thread, NULL, cache_one, &f), 0);
    sem_wait(&cached_there);
    ok(weir_stream_synchronize(f.second));
    assert_int_equal(thread_cached_bytes(f.runtime), SMALL);
    assert_int_equal(drained(f.runtime), 0);
    assert_int_equal(unfinished(f.runtime), 0);
    sem_post(&go_on);
    pthread_join(thread, NULL);
    end(&f);
}

/* Threads that have blocks in hand --------------------------------------------------------------------------------- */

static sem_t turn; /* the settling thread is done, or waits for somebody */
static sem_t in_driver[2], let_driver[2];
static _Thread_local int frees = -1; /* which of the two this thread is */
static _Thread_local bool tells;
static atomic_bool done;

/* The linker puts this in the place of the library's waits. */
int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    if (tells)
        sem_post(&turn);
    tells = false;
    return __real_pthread_cond_wait(condition, lock);
}

static void hold_release(void *user)
{
    (void)user;
    if (frees < 0)
        return;
    sem_post(&in_driver[frees]);
    sem_wait(&let_driver[frees]);
}

typedef struct worker {
    fixture *f;
    void *block;
    int number;
    pthread_t thread;
} worker;

static void *free_slowly(void *user)
{
    worker *w = user;
    frees = w->number;
    ok(weir_free(w->f->client, w->block, WEIR_STREAM_HOST));
    return NULL;
}

static void *drain_once(void *user)
{
    fixture *f = user;
    tells = true;
    uint64_t left = drained(f->runtime);
    atomic_store(&done, true);
    sem_post(&turn);
    return (void *)(uintptr_t)left;
}

/* A free that another thread is making final when the call begins is waited for; one that comes later is not. */
static void those_in_hand_are_waited_for(void **state)
{
    (void)state;
    fixture f;
    worker workers[2];
    pthread_t drainer;
    void *left;
    if (strcmp(device(), "host") != 0)
        skip(); /* the driver is the host's */
    faults_reset(-1);
    fault.in_release = hold_release;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = "direct"};
    f = (fixture){.held = GATE};
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &f.runtime));
    f.client = open_client(f.runtime, "one", 0, 0);
    for (int i = 0; i < 2; i++)
        workers[i] = (worker){&f, allocate(f.client, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV), i, 0};
    assert_int_equal(pthread_create(&workers[0].thread, NULL, free_slowly, &workers[0]), 0);
    sem_wait(&in_driver[0]);
    assert_int_equal(pthread_create(&drainer, NULL, drain_once, &f), 0);
    sem_wait(&turn);
    assert_false(atomic_load(&done));
    assert_int_equal(pthread_create(&workers[1].thread, NULL, free_slowly, &workers[1]), 0);
    sem_wait(&in_driver[1]); /* it comes late, and is slow, too */
    sem_post(&let_driver[0]);
    pthread_join(workers[0].thread, NULL);
    pthread_join(drainer, &left);
    assert_true(atomic_load(&done));
    assert_int_equal((uintptr_t)left, BLOCK); /* of the second */
    sem_post(&let_driver[1]);
    pthread_join(workers[1].thread, NULL);
    assert_int_equal(drained(f.runtime), 0);
    check_empty(f.runtime);
    ok(weir_client_destroy(f.client));
    ok(weir_runtime_destroy(f.runtime));
    assert_true(faults_nothing_left());
}

/* What the driver does not take back is tried again, and stays the call's to tell. */
static void what_is_refused_is_left(void **state)
{
    (void)state;
    if (strcmp(device(), "host") != 0)
        skip();
    fixture f = {.held = GATE};
    faults_reset(-1);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = "direct"};
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &f.runtime));
    f.client = open_client(f.runtime, "one", 0, 0);
    void *p = allocate(f.client, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    fault.refused_releases = 2;
    ok(weir_free(f.client, p, WEIR_STREAM_HOST));
    assert_int_equal(drained(f.runtime), BLOCK);
    assert_int_equal(drained(f.runtime), 0);
    ok(weir_client_destroy(f.client));
    ok(weir_runtime_destroy(f.runtime));
    assert_true(faults_nothing_left());
}

static void nothing_there(void **state)
{
    (void)state;
    fixture f;
    uint64_t left = 1;
    fails(WEIR_ERR_INVALID, weir_runtime_drain(NULL, &left));
    assert_int_equal(left, 1);
    begin(&f, "mapped");
    assert_int_equal(drained(f.runtime), 0);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frees_are_final_once_they_have_passed),
        cmocka_unit_test(thread_cached_blocks_stay_in_the_order_of_their_stream),
        cmocka_unit_test(caches_of_other_threads_are_flushed),
        cmocka_unit_test(those_in_hand_are_waited_for),
        cmocka_unit_test(what_is_refused_is_left),
        cmocka_unit_test(nothing_there),
    };
    sem_init(&cached_there, 0, 0);
    sem_init(&go_on, 0, 0);
    sem_init(&turn, 0, 0);
    for (int i = 0; i < 2; i++) {
        sem_init(&in_driver[i], 0, 0);
        sem_init(&let_driver[i], 0, 0);
    }
    return cmocka_run_group_tests_name("drain", tests, NULL, NULL);
}
