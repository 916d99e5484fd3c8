/* A fault at every driver call and at every host allocation of an arena's life: a clean status, parameters that stay
 * where and what they were, and nothing left when all is closed. */
#include "arena/fixture.h"
#include <weir/plan.h>
#include <weir/arena.h>
#include "core/faulty.h"

#include "runtime/runtime.h"

static long allocations, allocation_fails_at = -1;
static bool armed, exhausted;   /* exhausted: from now on there is none */
static void (*meanwhile)(void); /* called once, by the next malloc, which then refuses */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool refuse(void)
{
    return exhausted || (armed && allocations++ == allocation_fails_at);
}
void *__wrap_malloc(size_t size)
{
    void (*fn)(void) = meanwhile;
    meanwhile = NULL;
    if (fn) {
        fn();
        return NULL;
    }
    return refuse() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t count, size_t size)
{
    return refuse() ? NULL : __real_calloc(count, size);
}
void *__wrap_realloc(void *old, size_t size)
{
    return refuse() ? NULL : __real_realloc(old, size);
}

static unsigned failures;

/* True if it went well; else it failed as planned. */
static bool went(weir_status status)
{
    failures += status != WEIR_OK;
    assert_true(status == WEIR_OK || status == WEIR_ERR_DRIVER || status == WEIR_ERR_SYSTEM ||
                status == WEIR_ERR_OUT_OF_MEMORY);
    return status == WEIR_OK;
}

/* What failed goes well the second time: the fault is over, and has left nothing in the way. */
#define sooner_or_later(call)                                                                                          \
    do {                                                                                                               \
        if (!went(call))                                                                                               \
            ok(call);                                                                                                  \
    } while (0)

typedef struct life {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    weir_arena_pool *pool;
    weir_parameters *store;
} life;

static unsigned char contents[8][5000];

static void add_parameters(life *l)
{
    char name[8];
    for (unsigned i = 0; i < 8; i++) {
        (void)snprintf(name, sizeof name, "w%u", i);
        sooner_or_later(
            weir_parameters_add(l->store, name, WEIR_TYPE_U8, sizeof contents[i], contents[i], WEIR_STREAM_HOST, NULL));
    }
    sooner_or_later(weir_parameters_alias(l->store, "tied", "w0", 0, sizeof contents[0]));
}

static void use_arena(life *l, const weir_plan *small, const weir_plan *large)
{
    weir_arena_options o = {.struct_size = sizeof o,
                            .plans = (const weir_plan *[]){small},
                            .plan_count = 1,
                            .parameters = l->store,
                            .pool = l->pool,
                            .stream = l->stream,
                            .clear = true};
    static unsigned char in[1000];
    weir_arena *arena;
    sooner_or_later(weir_arena_create(l->client, &o, &arena));
    sooner_or_later(weir_arena_add(arena, large, l->stream, NULL));
    sooner_or_later(weir_arena_begin(arena, 1, l->stream));
    sooner_or_later(weir_arena_write(arena, 1, 0, 0, in, sizeof in, l->stream));
    sooner_or_later(weir_arena_end(arena));
    sooner_or_later(weir_arena_destroy(arena, l->stream));
}

static void check_parameters(life *l)
{
    weir_parameters_details d = store_details(l->store);
    assert_int_equal(d.count, 9);
    for (unsigned i = 0; i < 9; i++) {
        weir_parameter p = {.struct_size = sizeof p};
        ok(weir_parameter_info(l->store, NULL, i, &p));
        assert_memory_equal(p.pointer, contents[i % 8], sizeof contents[i % 8]);
    }
}

/* Answers how many calls of the driver it made. */
static long live(long driver_fails_at, long host_fails_at, const weir_plan *small, const weir_plan *large)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * MIB};
    weir_parameters_options growing = {.struct_size = sizeof growing, .step = 4 * KIB};
    life l;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &l.runtime));
    l.client = open_client(l.runtime, "one", 0, 0);
    ok(weir_stream_acquire(l.runtime, &l.stream));
    fault.calls = 0;
    fault.fail_at = driver_fails_at;
    allocations = 0;
    allocation_fails_at = host_fails_at;
    armed = true;
    sooner_or_later(weir_arena_pool_acquire(l.runtime, NULL, &l.pool));
    sooner_or_later(weir_parameters_create(l.client, &growing, &l.store));
    add_parameters(&l);
    use_arena(&l, small, large);
    use_arena(&l, small, large); /* from the pool */
    armed = false;
    fault.fail_at = -1;
    long calls = fault.calls;
    check_parameters(&l);
    ok(weir_arena_pool_release(l.pool));
    ok(weir_parameters_release(l.store));
    ok(weir_stream_release(l.stream));
    check_empty(l.runtime);
    ok(weir_client_destroy(l.client));
    ok(weir_runtime_destroy(l.runtime));
    assert_true(faults_nothing_left());
    return calls;
}

static void a_fault_anywhere_leaves_nothing(void **state)
{
    (void)state;
    weir_plan *small = plan_of_one(100 * KIB), *large = plan_of_one(300 * KIB);
    for (unsigned i = 0; i < 8; i++)
        pattern(contents[i], sizeof contents[i], i);
    failures = 0;
    long calls = live(-1, -1, small, large), made = allocations;
    assert_int_equal(failures, 0);
    assert_true(calls > 10 && made > 10);
    for (long i = 0; i < calls; i++)
        live(i, -1, small, large);
    assert_true(failures > 0);
    failures = 0;
    for (long i = 0; i < made; i++)
        live(-1, i, small, large);
    assert_true(failures > 0);
    weir_plan_destroy(small);
    weir_plan_destroy(large);
}

/* A block that is on its way out of the pool's list and cannot leave finds its place there, though others have come
 * meanwhile and there is no host memory for a longer list. */
static weir_arena *last;

static void one_more_becomes_idle(void)
{
    ok(weir_arena_destroy(last, WEIR_STREAM_HOST));
    exhausted = true;
}

static void what_cannot_leave_the_pool_comes_back(void **state)
{
    (void)state;
    enum { FULL = 16 }; /* as many as the list has room for at first */
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * MIB};
    weir_arena_pool_options most = {.struct_size = sizeof most, .cap = 8 * MIB};
    weir_arena_options o = {.struct_size = sizeof o, .room = 64 * KIB};
    weir_arena *arenas[FULL], *none;
    weir_runtime *runtime;
    weir_arena_pool_details d = {.struct_size = sizeof d};
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "one", 0, 0);
    ok(weir_arena_pool_acquire(runtime, &most, &o.pool));
    for (unsigned i = 0; i < FULL; i++)
        ok(weir_arena_create(client, &o, &arenas[i]));
    ok(weir_arena_create(client, &o, &last));
    for (unsigned i = 0; i < FULL; i++)
        ok(weir_arena_destroy(arenas[i], WEIR_STREAM_HOST));
    meanwhile = one_more_becomes_idle;
    weir_status status = weir_arena_create(client, &o, &none);
    exhausted = false;
    assert_int_equal(status, WEIR_ERR_SYSTEM);
    ok(weir_arena_pool_info(o.pool, &d));
    assert_int_equal(d.blocks, FULL + 1);
    assert_int_equal(d.kept, take_snapshot(runtime).device.live);
    ok(weir_arena_pool_release(o.pool));
    check_empty(runtime);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_anywhere_leaves_nothing),
        cmocka_unit_test(what_cannot_leave_the_pool_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
