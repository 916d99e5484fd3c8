/* Who passes the door of a runtime: whatever makes, ends or frees what hangs on it, and whatever looks. Another thread ends the
 * runtime as soon as nothing stands in its way, inside of functions that stand in the place of the library's: it waits for the
 * call that has just taken that away. */
#include "core.h"

#include "memory/elastic.h"
#include "runtime/runtime.h"

#include <weir/block_pool.h>
#include <weir/elastic.h>
#include <weir/guard.h>
#include <weir/uses.h>
#include <weir/arena.h>

enum { BUDGET = 64 << 20 };

/* What happens once, in a wrapped function of the library. */
static void (*between)(void *user);
static void *between_user;

static void act(void)
{
    void (*fn)(void *user) = between;
    between = NULL;
    if (fn)
        fn(between_user);
}

void __real_wi_tcaches_end(weir_runtime *runtime);
void __wrap_wi_tcaches_end(weir_runtime *runtime);
uint64_t __real_wi_runtime_reap(weir_runtime *runtime);
uint64_t __wrap_wi_runtime_reap(weir_runtime *runtime);
weir_status __real_wi_ledger_close(wi_ledger *ledger, wi_account *account);
weir_status __wrap_wi_ledger_close(wi_ledger *ledger, wi_account *account);
void __real_wi_pending_free(wi_pending *pending, wi_resource *stack, wi_block *block, weir_stream stream, void *native,
                            const wi_event *event);
void __wrap_wi_pending_free(wi_pending *pending, wi_resource *stack, wi_block *block, weir_stream stream, void *native,
                            const wi_event *event);
void __real_wi_elastic_range_end(wi_elastic_range *range);
void __wrap_wi_elastic_range_end(wi_elastic_range *range);
void __real_wi_client_let_go(weir_client *client);
void __wrap_wi_client_let_go(weir_client *client);

static bool at_shut, at_reap, at_close, at_free, at_range, at_leave; /* where */

void __wrap_wi_tcaches_end(weir_runtime *runtime)
{
    if (at_shut)
        act();
    __real_wi_tcaches_end(runtime);
}

uint64_t __wrap_wi_runtime_reap(weir_runtime *runtime)
{
    if (at_reap)
        act();
    return __real_wi_runtime_reap(runtime);
}

weir_status __wrap_wi_ledger_close(wi_ledger *ledger, wi_account *account)
{
    weir_status status = __real_wi_ledger_close(ledger, account);
    if (at_close)
        act();
    return status;
}

void __wrap_wi_pending_free(wi_pending *pending, wi_resource *stack, wi_block *block, weir_stream stream, void *native,
                            const wi_event *event)
{
    __real_wi_pending_free(pending, stack, block, stream, native, event);
    if (at_free)
        act();
}

void __wrap_wi_elastic_range_end(wi_elastic_range *range)
{
    if (at_range)
        act();
    __real_wi_elastic_range_end(range);
}

void __wrap_wi_client_let_go(weir_client *client)
{
    if (at_leave)
        act();
    __real_wi_client_let_go(client);
}

/* A runtime whose door is shut --------------------------------------------------------------------------------------------- */

static void nothing(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    (void)user;
}

static void no_work(void *user)
{
    (void)user;
}

enum { CALLS = 24 };
typedef struct late {
    weir_runtime *runtime;
    weir_status told[CALLS];
    size_t count;
} late;

/* One call of each entry that names a runtime. */
static void call_all(void *user)
{
    late *l = user;
    weir_runtime *r = l->runtime;
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_memory_stats memory = WEIR_INIT(weir_memory_stats);
    weir_runtime_details details = WEIR_INIT(weir_runtime_details);
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_pressure_options pressure = WEIR_INIT(weir_pressure_options);
    weir_client *client;
    weir_trace *trace;
    weir_launch *launch;
    weir_arena_pool *arenas;
    weir_stream stream;
    uint64_t id;
    size_t count;
    char bytes[2][8] = {{0}};
    options.name = "late";
    pressure.fn = nothing;
    const weir_status told[] = {
        weir_client_create(r, &options, &client),
        weir_stream_acquire(r, &stream),
        weir_stream_register(r, bytes, &stream),
        weir_stream_default(r, WEIR_DEFAULT_STREAM_LEGACY, &stream),
        weir_trace_create(r, NULL, &trace),
        weir_pressure_register(r, 0, nothing, NULL, &id),
        weir_pressure_register_with(r, &pressure, &id),
        weir_pressure_unregister(r, 1),
        weir_arena_pool_acquire(r, NULL, &arenas),
        weir_runtime_info(r, &details),
        weir_runtime_enter(r),
        weir_runtime_set_budget(r, BUDGET / 2),
        weir_runtime_drain(r, NULL),
        weir_runtime_trim(r, NULL, NULL),
        weir_snapshot(r, &stats, NULL, 0, NULL),
        weir_memory_stats_info(r, &memory),
        weir_stats_reset(r, WEIR_RESET_PEAKS),
        weir_layout_walk(r, NULL, NULL, NULL),
        weir_guard_reports(r, NULL, 0, &count),
        weir_guard_check(r),
        weir_guard_leaks(r, NULL, 0, &count),
        weir_copy(r, bytes[0], bytes[1], sizeof bytes[0], WEIR_STREAM_HOST),
        weir_call(r, no_work, NULL, WEIR_STREAM_HOST),
        weir_launch_begin(r, WEIR_STREAM_HOST, NULL, 0, &launch),
    };
    memcpy(l->told, told, sizeof told);
    l->count = sizeof told / sizeof *told;
}

static void nothing_is_called_on_a_runtime_that_ends(void **state)
{
    (void)state;
    late l = {.runtime = make_runtime(BUDGET)};
    at_shut = true;
    between = call_all;
    between_user = &l;
    ok(weir_runtime_destroy(l.runtime));
    at_shut = false;
    assert_int_equal(l.count, CALLS);
    for (size_t i = 0; i < l.count; i++)
        if (l.told[i] != WEIR_ERR_INVALID)
            fail_msg("call %zu answered %s", i, weir_name_of(WEIR_NAMES_STATUS, (int)l.told[i]));
}

/* An id of a runtime that ends names none any more. */
typedef struct stale {
    weir_stream stream;
    weir_status released, waited, captured;
    void *native;
} stale;

static void use_stale(void *user)
{
    stale *s = user;
    s->released = weir_stream_release(s->stream);
    s->waited = weir_stream_synchronize(s->stream);
    s->captured = weir_capture_begin(s->stream, NULL);
    s->native = weir_stream_native(s->stream);
}

static void a_stream_of_a_runtime_that_ends_is_none(void **state)
{
    (void)state;
    stale s = {.native = &s};
    weir_runtime *runtime = make_runtime(BUDGET);
    ok(weir_stream_acquire(runtime, &s.stream));
    ok(weir_stream_release(s.stream));
    at_shut = true;
    between = use_stale;
    between_user = &s;
    ok(weir_runtime_destroy(runtime));
    at_shut = false;
    assert_int_equal(s.released, WEIR_ERR_STREAM_MISUSE);
    assert_int_equal(s.waited, WEIR_ERR_STREAM_MISUSE);
    assert_int_equal(s.captured, WEIR_ERR_STREAM_MISUSE);
    assert_null(s.native);
}

/* Who is still inside ------------------------------------------------------------------------------------------------------- */

/* A thread that ends all as soon as it can. */
typedef struct ender {
    pthread_t thread;
    weir_client *client; /* NULL: none */
    void *block;         /* of it */
    weir_runtime *runtime;
    weir_status status;
    atomic_bool over;
    bool early, begun;
} ender;

static void *end_all(void *user)
{
    ender *e = user;
    while (e->client && weir_client_destroy(e->client) == WEIR_ERR_BUSY)
        sched_yield();
    while ((e->status = weir_runtime_destroy(e->runtime)) == WEIR_ERR_BUSY)
        sched_yield();
    atomic_store(&e->over, true);
    return NULL;
}

/* Another thread has time to come to its end, which it must not use. */
static void end_beside(void *user)
{
    ender *e = user;
    e->begun = pthread_create(&e->thread, NULL, end_all, e) == 0;
    for (int i = 0; i < 100 && !atomic_load(&e->over); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    e->early = atomic_load(&e->over);
}

static void begin_at(ender *e, bool *where)
{
    *where = true;
    between = end_beside;
    between_user = e;
}

static void has_waited(ender *e, bool *where)
{
    assert_true(e->begun);
    pthread_join(e->thread, NULL);
    *where = false;
    assert_false(e->early);
    ok(e->status);
}

static void the_end_waits_for_a_release(void **state)
{
    (void)state;
    ender e = {.runtime = make_runtime(BUDGET)};
    weir_stream stream;
    ok(weir_stream_acquire(e.runtime, &stream));
    begin_at(&e, &at_reap);
    ok(weir_stream_release(stream));
    has_waited(&e, &at_reap);
}

static void the_end_waits_for_a_close(void **state)
{
    (void)state;
    ender e = {.runtime = make_runtime(BUDGET)};
    weir_client *client = open_client(e.runtime, "last", 0, 0);
    begin_at(&e, &at_close);
    ok(weir_client_destroy(client));
    has_waited(&e, &at_close);
}

static void the_end_waits_for_a_free(void **state)
{
    (void)state;
    for (int named = 0; named < 2; named++) {
        ender e = {.runtime = make_runtime(BUDGET)};
        weir_request request = {.struct_size = sizeof request, .bytes = 2 << 20, .memory_class = WEIR_CLASS_WEIGHTS};
        weir_block block;
        weir_client *client = e.client = open_client(e.runtime, "last", 0, 0);
        ok(weir_alloc_with(client, &request, &block));
        begin_at(&e, &at_free);
        ok(named ? weir_free_block(client, block, WEIR_STREAM_HOST)
                 : weir_free(client, block.pointer, WEIR_STREAM_HOST));
        has_waited(&e, &at_free);
    }
}

static void the_end_waits_for_an_elastic_block(void **state)
{
    (void)state;
    ender e = {.runtime = make_runtime(BUDGET)};
    weir_elastic_options options = WEIR_INIT(weir_elastic_options);
    weir_elastic *elastic;
    e.client = open_client(e.runtime, "last", 0, 0);
    options.bytes = 4 * GRANULE;
    ok(weir_elastic_create(e.client, &options, &elastic));
    ok(weir_elastic_commit(elastic, 0, GRANULE, WEIR_STREAM_HOST));
    begin_at(&e, &at_range);
    ok(weir_elastic_destroy(elastic, WEIR_STREAM_HOST));
    has_waited(&e, &at_range);
}

static void the_end_waits_for_a_block_pool(void **state)
{
    (void)state;
    ender e = {.runtime = make_runtime(BUDGET)};
    weir_block_pool_options options = WEIR_INIT(weir_block_pool_options);
    weir_block_pool *pool;
    weir_block_pool_member *member;
    weir_client *client = e.client = open_client(e.runtime, "last", 0, 0);
    options.bytes = 4096;
    options.count = 4;
    ok(weir_block_pool_create(client, &options, &pool));
    ok(weir_block_pool_member_create(pool, client, 0, &member));
    begin_at(&e, &at_leave);
    ok(weir_block_pool_destroy(pool)); /* its bytes are free before its member has left */
    has_waited(&e, &at_leave);
}

/* A sink's last call. */
static weir_status end_in_close(void *user)
{
    (void)user;
    act();
    return WEIR_OK;
}

static weir_status take(void *user, const weir_event *events, size_t count)
{
    (void)events;
    (void)count;
    (void)user;
    return WEIR_OK;
}

static void the_end_waits_for_a_trace(void **state)
{
    (void)state;
    ender e = {.runtime = make_runtime(BUDGET)};
    weir_sink sink = WEIR_INIT(weir_sink);
    weir_trace_options options = WEIR_INIT(weir_trace_options);
    weir_trace *trace;
    bool there = true;
    sink.write = take;
    sink.close = end_in_close;
    options.sinks = &sink;
    options.sink_count = 1;
    ok(weir_trace_create(e.runtime, &options, &trace));
    begin_at(&e, &there);
    weir_trace_destroy(trace);
    has_waited(&e, &there);
}

/* Inside of a function that weir calls nobody is waited for. */
static void end_it(const weir_segment *segment, const weir_span *span, void *user)
{
    (void)segment;
    (void)span;
    ender *e = user;
    e->status = weir_runtime_destroy(e->runtime);
}

static void no_runtime_ends_inside_of_a_call(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(BUDGET);
    ender e = {.runtime = make_runtime(BUDGET), .status = WEIR_OK};
    weir_client *client = open_client(runtime, "one", 0, 0);
    void *p = allocate(client, 1 << 20, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_layout_walk(runtime, end_it, &e, NULL));
    assert_int_equal(e.status, WEIR_ERR_BUSY);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    ok(weir_runtime_destroy(e.runtime));
}

/* A request that has found no memory calls the program, which closes the client that asks: the request goes on. */
static void end_all_here(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    ender *e = user;
    ok(weir_free(e->client, e->block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(e->client));
    e->status = weir_runtime_destroy(e->runtime);
}

static void no_runtime_ends_inside_of_a_request(void **state)
{
    (void)state;
    ender e = {.runtime = make_runtime(BUDGET)};
    weir_client *client = e.client = open_client(e.runtime, "one", 0, 0);
    uint64_t id;
    void *p;
    e.block = allocate(client, BUDGET / 2, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    ok(weir_pressure_register(e.runtime, 0, end_all_here, &e, &id));
    fails(WEIR_ERR_INVALID, weir_alloc(client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &p));
    detail_names("closed meanwhile");
    assert_int_equal(e.status, WEIR_ERR_BUSY);
    ok(weir_runtime_destroy(e.runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_called_on_a_runtime_that_ends),
        cmocka_unit_test(a_stream_of_a_runtime_that_ends_is_none),
        cmocka_unit_test(the_end_waits_for_a_release),
        cmocka_unit_test(the_end_waits_for_a_close),
        cmocka_unit_test(the_end_waits_for_a_free),
        cmocka_unit_test(the_end_waits_for_an_elastic_block),
        cmocka_unit_test(the_end_waits_for_a_block_pool),
        cmocka_unit_test(the_end_waits_for_a_trace),
        cmocka_unit_test(no_runtime_ends_inside_of_a_call),
        cmocka_unit_test(no_runtime_ends_inside_of_a_request),
    };
    return cmocka_run_group_tests_name("doors", tests, NULL, NULL);
}
