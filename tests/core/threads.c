/* Many threads at once: the ledger is exact at the end, the last bytes go to as many as fit, nobody waits for ever. */
#include "info.h"
#include "core.h"
#include "trim.h"

#include <sys/wait.h>

enum { THREADS = 8, STEPS = 250, SHARED = 64 };

typedef struct shared_block {
    pthread_mutex_t lock;
    weir_client *client;
    void *pointer;
    size_t bytes;
} shared_block;

static weir_runtime *runtime;
static weir_client *common;
static shared_block size_index[SHARED];
static unsigned wrong; /* assertions of cmocka belong to its own thread */

#define expect(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);                                                           \
            print_error("%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, weir_detail());                            \
        }                                                                                                              \
    } while (0)

/* Puts a block on the size index, or takes one that another thread put there and frees it. */
static void use_shelf(uint64_t *random, weir_stream stream)
{
    shared_block *s = &size_index[next_random(random) % SHARED];
    pthread_mutex_lock(&s->lock);
    if (s->pointer) {
        for (size_t i = 0; i < s->bytes; i += 1021)
            expect(((unsigned char *)s->pointer)[i] == (unsigned char)s->bytes);
        expect(weir_free(s->client, s->pointer, stream) == WEIR_OK);
        s->pointer = NULL;
    } else {
        s->bytes = 1 + next_random(random) % (200 * KIB);
        s->client = common;
        weir_status status = weir_alloc(common, s->bytes, WEIR_STREAM_HOST,
                                        next_random(random) % 2 ? WEIR_CLASS_KV : WEIR_CLASS_WEIGHTS, &s->pointer);
        expect(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
        if (s->pointer)
            memset(s->pointer, (unsigned char)s->bytes, s->bytes);
    }
    pthread_mutex_unlock(&s->lock);
}

static void short_client(uint64_t *random, weir_stream stream)
{
    weir_client_options options = {
        .struct_size = sizeof options, .name = "short", .guaranteed = next_random(random) % MIB};
    weir_client *client;
    void *p;
    if (weir_client_create(runtime, &options, &client) != WEIR_OK)
        return;
    if (weir_alloc(client, 1000, stream, WEIR_CLASS_SCRATCH, &p) == WEIR_OK) {
        expect(weir_fill(runtime, p, 1, 1000, stream) == WEIR_OK);
        expect(weir_client_destroy(client) == WEIR_ERR_BUSY);
        expect(weir_resize(client, p, 500, stream) == WEIR_OK);
        expect(weir_free(client, p, stream) == WEIR_OK);
    }
    expect(weir_client_destroy(client) == WEIR_OK);
}

static void look_around(uint64_t *random)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_client_stats clients[20];
    size_t count;
    clients[0].struct_size = sizeof clients[0];
    expect(weir_snapshot(runtime, &stats, clients, 20, &count) == WEIR_OK);
    uint64_t live = 0, pending = 0;
    for (size_t i = 0; i < count && i < 20; i++) {
        live += clients[i].live;
        pending += clients[i].pending;
    }
    expect(count == stats.clients && count < 20 && live == stats.live && pending == stats.pending);
    expect(stats.held == stats.live + stats.pending + stats.cached + stats.spare && stats.held <= stats.budget);
    uint64_t released = 0;
    if (next_random(random) % 4 == 0)
        expect(trim_keeping(runtime, next_random(random) % (4 * MIB), &released) == WEIR_OK);
    weir_status status = weir_runtime_set_budget(runtime, (8 + next_random(random) % 8) * MIB);
    expect(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    status = weir_client_set_limits(common, next_random(random) % (2 * MIB), 0);
    expect(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    weir_block_details details = WEIR_INIT(weir_block_details);
    shared_block *s = &size_index[next_random(random) % SHARED];
    pthread_mutex_lock(&s->lock);
    if (s->pointer)
        expect(weir_block_info(s->pointer, &details) == WEIR_OK && details.bytes == s->bytes &&
               details.state == WEIR_BLOCK_LIVE && details.client == s->client);
    pthread_mutex_unlock(&s->lock);
}

static void *do_everything(void *user)
{
    uint64_t random = (uintptr_t)user * 7919 + 1;
    weir_stream stream;
    expect(weir_stream_acquire(runtime, &stream) == WEIR_OK);
    for (int step = 0; step < STEPS; step++) {
        switch (next_random(&random) % 8) {
        case 0:
            short_client(&random, stream);
            break;
        case 1:
            look_around(&random);
            break;
        case 2:
            expect(weir_stream_release(stream) == WEIR_OK);
            expect(weir_stream_acquire(runtime, &stream) == WEIR_OK);
            break;
        default:
            use_shelf(&random, stream);
        }
    }
    expect(weir_stream_release(stream) == WEIR_OK);
    return NULL;
}

static void run_threads(int count, void *(*fn)(void *))
{
    pthread_t threads[16];
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fn, (void *)(uintptr_t)(i + 1)), 0);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(wrong, 0);
}

static void everything_at_once(void **state)
{
    (void)state;
    ok(weir_option_set("wait", "5ms"));
    runtime = make_runtime(8 * MIB);
    common = open_client(runtime, "common", 0, 0);
    for (int i = 0; i < SHARED; i++)
        pthread_mutex_init(&size_index[i].lock, NULL);
    run_threads(THREADS, do_everything);
    for (int i = 0; i < SHARED; i++)
        ok(weir_free(common, size_index[i].pointer, WEIR_STREAM_HOST));
    check_empty(runtime);
    ok(weir_runtime_trim(runtime, NULL, NULL));
    assert_int_equal(take_snapshot(runtime).device.held, 0);
    ok(weir_client_destroy(common));
    ok(weir_runtime_destroy(runtime));
    ok(weir_option_set("wait", NULL));
}

/* The last bytes --------------------------------------------------------------------------------------------------- */

static pthread_barrier_t line;
static uint64_t share;
static unsigned won;
static void *winners[16];

static void *compete(void *user)
{
    void *p = NULL;
    weir_class memory_class = (uintptr_t)user % 2 ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_KV;
    pthread_barrier_wait(&line);
    weir_status status = weir_alloc(common, share, WEIR_STREAM_HOST, memory_class, &p);
    expect(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    if (status == WEIR_OK)
        __atomic_fetch_add(&won, 1, __ATOMIC_RELAXED);
    winners[(uintptr_t)user - 1] = p;
    return NULL;
}

/* Cold, with everything cached on one side, and with everything cached in pieces: whole handles suffice for `fit`. */
static void the_last_bytes_go_to_as_many_as_fit(void **state)
{
    (void)state;
    enum { FIT = 3, COMPETITORS = 5 };
    pthread_barrier_init(&line, NULL, COMPETITORS);
    for (int round = 0; round < 60; round++) {
        runtime = make_runtime(FIT * 8 * GRANULE + (round % 3 ? 0 : 5 * GRANULE));
        common = open_client(runtime, "common", 0, 0);
        share = 8 * GRANULE;
        if (round % 2) {
            void *p = allocate(common, FIT * 8 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
            ok(weir_free(common, p, WEIR_STREAM_HOST));
        }
        won = 0;
        run_threads(COMPETITORS, compete);
        assert_int_equal(won, FIT);
        for (int i = 0; i < COMPETITORS; i++)
            ok(weir_free(common, winners[i], WEIR_STREAM_HOST));
        check_empty(runtime);
        ok(weir_client_destroy(common));
        ok(weir_runtime_destroy(runtime));
    }
    pthread_barrier_destroy(&line);
}

/* Each thread's own share is always there, whatever the others free and take meanwhile. */
static void *churn(void *user)
{
    weir_class memory_class = (uintptr_t)user % 2 ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_KV;
    for (int i = 0; i < 200; i++) {
        void *p;
        weir_status status = weir_alloc(common, share, WEIR_STREAM_HOST, memory_class, &p);
        expect(status == WEIR_OK);
        if (status == WEIR_OK)
            expect(weir_free(common, p, WEIR_STREAM_HOST) == WEIR_OK);
        if (i % 16 == 0)
            expect(weir_runtime_trim(runtime, NULL, NULL) == WEIR_OK);
    }
    return NULL;
}

static void no_false_shortage_while_others_move_memory(void **state)
{
    (void)state;
    share = 3 * GRANULE;
    runtime = make_runtime(4 * share);
    common = open_client(runtime, "common", 0, 0);
    run_threads(4, churn);
    check_empty(runtime);
    ok(weir_client_destroy(common));
    ok(weir_runtime_destroy(runtime));
}

/* One piece that goes round: whoever sees it free in the ledger finds it, too. Nobody is told that it lies in pieces. */
static void *pass_it_round(void *user)
{
    (void)user;
    for (int i = 0; i < 1500; i++) {
        void *p;
        weir_status status = weir_alloc(common, share, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p);
        if (status == WEIR_OK) {
            expect(weir_free(common, p, WEIR_STREAM_HOST) == WEIR_OK);
        } else {
            weir_refusal r = WEIR_INIT(weir_refusal);
            expect(status == WEIR_ERR_OUT_OF_MEMORY && weir_refusal_last(&r) == WEIR_OK &&
                   r.cause == WEIR_CAUSE_BUDGET);
        }
    }
    return NULL;
}

static void what_the_ledger_has_is_there(void **state)
{
    (void)state;
    share = 3 * GRANULE;
    runtime = make_runtime(share);
    common = open_client(runtime, "common", 0, 0);
    run_threads(4, pass_it_round);
    check_empty(runtime);
    ok(weir_client_destroy(common));
    ok(weir_runtime_destroy(runtime));
}

/* One block, freed by all: once. */
static void *free_it(void *user)
{
    pthread_barrier_wait(&line);
    weir_status status = weir_free(common, winners[0], WEIR_STREAM_HOST);
    (void)user;
    expect(status == WEIR_OK || status == WEIR_ERR_DOUBLE_FREE || status == WEIR_ERR_BUSY);
    if (status == WEIR_OK)
        __atomic_fetch_add(&won, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void a_block_is_freed_once(void **state)
{
    (void)state;
    runtime = make_runtime(4 * MIB);
    common = open_client(runtime, "common", 0, 0);
    pthread_barrier_init(&line, NULL, 4);
    for (int round = 0; round < 100; round++) {
        winners[0] = allocate(common, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        won = 0;
        run_threads(4, free_it);
        assert_int_equal(won, 1);
    }
    pthread_barrier_destroy(&line);
    check_empty(runtime);
    ok(weir_client_destroy(common));
    ok(weir_runtime_destroy(runtime));
}

/* Closing while others allocate: each allocation works or says that the client is closed, and the books stay. */
static void *allocate_until_closed(void *user)
{
    (void)user;
    pthread_barrier_wait(&line);
    for (;;) {
        void *p;
        weir_status status = weir_alloc(common, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p);
        if (status != WEIR_OK) {
            expect(status == WEIR_ERR_INVALID);
            return NULL;
        }
        /* A close may just be trying; it finds this block, or an allocation that is under way, and opens again. */
        while ((status = weir_free(common, p, WEIR_STREAM_HOST)) == WEIR_ERR_INVALID)
            ;
        expect(status == WEIR_OK);
    }
}

static void closing_under_use(void **state)
{
    (void)state;
    runtime = make_runtime(4 * MIB);
    pthread_barrier_init(&line, NULL, 3);
    for (int round = 0; round < 30; round++) {
        common = open_client(runtime, "common", MIB, 0);
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, allocate_until_closed, NULL);
        pthread_barrier_wait(&line);
        weir_status status;
        while ((status = weir_client_destroy(common)) == WEIR_ERR_BUSY)
            ;
        assert_int_equal(status, WEIR_OK);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(wrong, 0);
        check_empty(runtime);
        assert_int_equal(take_snapshot(runtime).device.guaranteed, 0);
    }
    pthread_barrier_destroy(&line);
    ok(weir_runtime_destroy(runtime));
}

/* The shared runtime ----------------------------------------------------------------------------------------------- */

static weir_runtime *got[16];

static void *get_first(void *user)
{
    weir_runtime *own;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB};
    pthread_barrier_wait(&line);
    expect(weir_runtime_get("host", NULL, &got[(uintptr_t)user - 1]) == WEIR_OK);
    for (int i = 0; i < 3; i++) { /* others come and go in the list */
        expect(weir_runtime_create("host", &options, &own) == WEIR_OK);
        expect(weir_runtime_destroy(own) == WEIR_OK);
    }
    return NULL;
}

static void race_for_the_first(void)
{
    pthread_barrier_init(&line, NULL, THREADS);
    run_threads(THREADS, get_first);
    pthread_barrier_destroy(&line);
    for (int i = 1; i < THREADS; i++)
        expect(got[i] == got[0]);
}

static void first_callers_get_the_same_runtime(void **state)
{
    (void)state;
    ok(weir_option_set("budget", "32MiB"));
    race_for_the_first();
    assert_int_equal(wrong, 0);
    assert_int_equal(runtime_details(got[0]).budget, 32 * MIB);
}

/* There is one first time per process, so the race is run in several, forked before the first call. */
static bool first_time_in_children(int count)
{
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            setenv("WEIR_BUDGET", "32MiB", 1);
            race_for_the_first();
            _exit(wrong != 0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
            return false;
    }
    return true;
}

int main(void)
{
    if (!first_time_in_children(UNDER_TSAN ? 3 : 20)) {
        fprintf(stderr, "first callers got different runtimes\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_at_once),
        cmocka_unit_test(the_last_bytes_go_to_as_many_as_fit),
        cmocka_unit_test(no_false_shortage_while_others_move_memory),
        cmocka_unit_test(what_the_ledger_has_is_there),
        cmocka_unit_test(a_block_is_freed_once),
        cmocka_unit_test(closing_under_use),
        cmocka_unit_test(first_callers_get_the_same_runtime),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
