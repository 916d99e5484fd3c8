/* Many threads ask a pool for models that together are three times what there is room for, while loads fail now and then at
 * every step: each request is answered, no byte is over the budget at any time, and nothing is left.
 *
 *   test-pool-threads [THREADS REQUESTS [SEED]] */
#include "pool/bed.h"

enum { MODELS = 12, IDS = 64 };
static const uint64_t weights = 2 * MIB, budget = 8 * MIB; /* each; and for four of them */
static int thread_count = 8, request_count = 30;
static uint64_t seed = 1;

static bed b;
static char names[MODELS][8];

/* The first step of a load that can fail. */
weir_status __real_weir_client_create(weir_runtime *runtime, const weir_client_options *options, weir_client **out);
weir_status __wrap_weir_client_create(weir_runtime *runtime, const weir_client_options *options, weir_client **out);
weir_status __wrap_weir_client_create(weir_runtime *runtime, const weir_client_options *options, weir_client **out)
{
    static atomic_uint calls;
    if (atomic_load(&e.fault_every) && atomic_fetch_add(&calls, 1) % 11 == 0)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "the test opens no client");
    return __real_weir_client_create(runtime, options, out);
}

typedef struct worker {
    pthread_t thread;
    uint64_t random;
    long served, failed, late, cancelled, refused;
} worker;

/* What is held, looked at all the time. */
typedef struct watcher {
    pthread_t thread;
    atomic_bool end;
    long looks;
    uint64_t most;
} watcher;

static void *watch(void *user)
{
    watcher *w = user;
    while (!atomic_load(&w->end)) {
        weir_stats stats = WEIR_INIT(weir_stats);
        ok(weir_snapshot(b.runtime, &stats, NULL, 0, NULL));
        w->most = stats.held > w->most ? stats.held : w->most;
        w->looks++;
        sched_yield();
    }
    return NULL;
}

static void count(worker *w, weir_status status, weir_pool_cause cause)
{
    if (status == WEIR_OK)
        w->served++;
    else if (cause == WEIR_POOL_LOAD_FAILED)
        w->failed++;
    else if (cause == WEIR_POOL_TOO_LATE || cause == WEIR_POOL_QUEUE_FULL)
        w->late++;
    else if (cause == WEIR_POOL_CANCELLED)
        w->cancelled++;
    else {
        print_error("%s: %s\n", weir_pool_cause_name(cause), weir_detail());
        w->refused++;
    }
}

static void *work(void *user)
{
    static const weir_setting scratch[] = {{"scratch", "1000000"}};
    worker *w = user;
    for (int i = 0; i < request_count; i++) {
        weir_pool_request request = request_of(names[next_random(&w->random) % MODELS]);
        weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
        weir_inference inference = WEIR_INIT(weir_inference);
        weir_outputs out = WEIR_INIT(weir_outputs);
        weir_lease *l;
        bool takes = next_random(&w->random) % 2;
        request.bytes = takes ? MIB : 0;
        request.id = 1 + next_random(&w->random) % IDS;
        request.wait = next_random(&w->random) % 8 ? 0 : SECOND / 10000;
        inference.settings = scratch;
        inference.setting_count = takes;
        weir_status status = weir_pool_infer(b.pool, &request, &inference, &out, &answer, &l);
        count(w, status, answer.cause);
        if (status == WEIR_OK)
            weir_lease_release(l);
        if (next_random(&w->random) % 16 == 0 && weir_pool_cancel(b.pool, 1 + next_random(&w->random) % IDS) == WEIR_OK)
            sched_yield();
    }
    return NULL;
}

static void start(bool faulty)
{
    weir_pool_options options = WEIR_INIT(weir_pool_options);
    options.retry = WEIR_POOL_NONE;
    options.passing = SECOND / 1000;
    options.longest_wait = 600 * SECOND;
    make_bed(&b, budget, &options);
    for (int i = 0; i < MODELS; i++) {
        snprintf(names[i], sizeof names[i], "m%d", i);
        weir_pool_spec spec = spec_of(names[i], weights);
        spec.engine = i % 2 ? "pool-double" : "pool-plain";
        spec.evict_cost = i % 2 ? SECOND : 0;
        spec.slots = (uint32_t)(1 + i % 3);
        spec.first_run = true;
        add_spec(&b, spec);
    }
    atomic_store(&e.fault_every, faulty ? 7 : 0);
}

static bool moves(weir_pool_state state)
{
    return state == WEIR_POOL_LOADING || state == WEIR_POOL_SUSPENDING || state == WEIR_POOL_RESUMING ||
           state == WEIR_POOL_UNLOADING;
}

/* What was begun for requests that have given up is done. */
static void come_to_rest(void)
{
    for (int i = 0; i < MODELS; i++)
        while (moves(entry_of(&b, names[i]).state))
            i = 0;
}

static void run(bool faulty)
{
    worker *workers = calloc((size_t)thread_count, sizeof *workers);
    watcher eyes = {0};
    worker all = {0};
    start(faulty);
    assert_int_equal(pthread_create(&eyes.thread, NULL, watch, &eyes), 0);
    for (int i = 0; i < thread_count; i++) {
        workers[i].random = seed * 1000 + (uint64_t)i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < thread_count; i++) {
        pthread_join(workers[i].thread, NULL);
        all.served += workers[i].served;
        all.failed += workers[i].failed;
        all.late += workers[i].late;
        all.cancelled += workers[i].cancelled;
        all.refused += workers[i].refused;
    }
    atomic_store(&eyes.end, true);
    pthread_join(eyes.thread, NULL);
    print_message("served %ld, failed %ld, late %ld, cancelled %ld; loads %ld, resumes %ld; %ld looks, most %llu\n",
                  all.served, all.failed, all.late, all.cancelled, atomic_load(&e.loads), atomic_load(&e.resumes),
                  eyes.looks, (unsigned long long)eyes.most);
    assert_int_equal(all.served + all.failed + all.late + all.cancelled, (long)thread_count * request_count);
    assert_true(all.served > 0);
    assert_true(faulty || all.failed == 0);
    assert_true(eyes.most <= budget);
    come_to_rest();
    check_books(&b);
    weir_pool_usage now = WEIR_INIT(weir_pool_usage);
    ok(weir_pool_usage_info(b.pool, 0, &now));
    snapshot s = take_snapshot(b.runtime);
    assert_int_equal(now.taken, s.device.live); /* the machine and the ledger say the same */
    assert_int_equal(s.device.guaranteed, s.device.live);
    assert_int_equal(now.waiting, 0);
    atomic_store(&e.fault_every, 0);
    end_bed(&b);
    free(workers);
}

static void more_than_there_is_room_for(void **state)
{
    (void)state;
    run(false);
}

static void with_faults_at_every_step(void **state)
{
    (void)state;
    run(true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_than_there_is_room_for),
                                       cmocka_unit_test(with_faults_at_every_step)};
    if (argc > 2) {
        thread_count = atoi(argv[1]);
        request_count = atoi(argv[2]);
    }
    if (argc > 3)
        seed = strtoull(argv[3], NULL, 10);
    register_engines();
    return cmocka_run_group_tests_name("pool-threads", tests, NULL, NULL);
}
