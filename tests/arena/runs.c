/* Runs that go wrong: aborted ones, those whose device is lost, and those that begin while their parameters are
 * added. */
#include "arena/fixture.h"

#include <weir/pressure.h>
#include <weir/plan.h>
#include <weir/arena.h>
#include <weir/uses.h>
#include <dlfcn.h>

static int set_up(void **state)
{
    return open_fixture(state, 64 * MIB, NULL);
}

static weir_parameters *open_store(fixture *f, uint64_t step)
{
    weir_parameters_options o = {.struct_size = sizeof o, .step = step};
    weir_parameters *store;
    ok(weir_parameters_create(f->client, &o, &store));
    return store;
}

static void an_aborted_run_is_over_and_remembers_nothing(void **state)
{
    fixture *f = *state;
    weir_plan *plan = plan_of_one(4096);
    const weir_plan *plans[] = {plan};
    weir_parameters *store = open_store(f, 4 * KIB);
    ok(weir_parameters_add(store, "w", WEIR_TYPE_U8, 100, NULL, f->b, NULL));
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1, .parameters = store});
    weir_arena_abort(NULL);
    weir_arena_abort(arena); /* of no run: nothing */
    ok(weir_arena_begin(arena, 0, f->a));
    fails(WEIR_ERR_BUSY, weir_arena_destroy(arena, f->a));
    fails(WEIR_ERR_BUSY, weir_parameters_add(store, "v", WEIR_TYPE_U8, 100, NULL, f->b, NULL));
    weir_arena_abort(arena);
    assert_false(arena_details(arena).running);
    fails(WEIR_ERR_INVALID, weir_arena_end(arena));
    ok(weir_parameters_add(store, "v", WEIR_TYPE_U8, 100, NULL, f->b, NULL));
    ok(weir_arena_begin(arena, 0, f->b));
    ok(weir_arena_end(arena));
    ok(weir_arena_destroy(arena, f->b));
    ok(weir_parameters_release(store));
    weir_plan_destroy(plan);
}

/* Aborted, a run holds back nothing on its stream; ended, it would. */
static void nobody_waits_for_an_aborted_run(void **state)
{
    fixture *f = *state;
    if (on_sim())
        skip(); /* it has no threads that a gate could hold */
    weir_plan *plan = plan_of_one(4096);
    const weir_plan *plans[] = {plan};
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1});
    static gate g; /* a failed check leaves the stream to it */
    g = (gate)GATE;
    ok(weir_arena_begin(arena, 0, f->a));
    ok(weir_call(f->runtime, pass_gate, &g, f->a)); /* none of the arena's work */
    weir_arena_abort(arena);
    ok(weir_arena_begin(arena, 0, f->b));
    ok(weir_arena_end(arena));
    ok(weir_stream_synchronize(f->b)); /* or it never ends */
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    ok(weir_arena_destroy(arena, f->b));
    weir_plan_destroy(plan);
}

static void a_run_whose_stream_is_gone_can_be_taken_back(void **state)
{
    fixture *f = *state;
    weir_plan *plan = plan_of_one(4096);
    const weir_plan *plans[] = {plan};
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1});
    weir_stream gone;
    ok(weir_stream_acquire(f->runtime, &gone));
    ok(weir_arena_begin(arena, 0, gone));
    ok(weir_stream_release(gone)); /* which waits for its work */
    fails(WEIR_ERR_STREAM_MISUSE, weir_arena_end(arena));
    fails(WEIR_ERR_BUSY, weir_arena_destroy(arena, WEIR_STREAM_HOST));
    weir_arena_abort(arena);
    ok(weir_arena_begin(arena, 0, f->a));
    ok(weir_arena_end(arena));
    ok(weir_arena_destroy(arena, f->a));
    weir_plan_destroy(plan);
}

/* The callback of pressure is called in the middle of an addition, when the store has no memory yet. */
typedef struct meanwhile {
    fixture *f;
    weir_arena *arena;
    void *hog;
    bool end;
} meanwhile;

static void run_in_callback(const weir_pressure *pressure, void *user)
{
    meanwhile *m = user;
    if (pressure->attempt > 1)
        return;
    ok(weir_arena_begin(m->arena, 0, m->f->a));
    if (m->end)
        ok(weir_arena_end(m->arena));
    ok(weir_free(m->f->client, m->hog, WEIR_STREAM_HOST));
}

/* Such a run has not declared the store's new block, so that the parameter would be its only by luck. */
static void a_run_that_begins_meanwhile_refuses_the_new_block(void **state)
{
    fixture *f = *state;
    weir_plan *plan = plan_of_one(4096);
    const weir_plan *plans[] = {plan};
    for (int end = 0; end < 2; end++) {
        weir_parameters *store = open_store(f, 4 * KIB);
        uint64_t id;
        meanwhile m = {.f = f, .end = end};
        m.arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1, .parameters = store});
        m.hog = allocate(f->client, 60 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
        ok(weir_pressure_register(f->runtime, 0, run_in_callback, &m, &id));
        weir_status status = weir_parameters_add(store, "w", WEIR_TYPE_U8, 20 * MIB, NULL, WEIR_STREAM_HOST, NULL);
        assert_int_equal(status, end ? WEIR_OK : WEIR_ERR_BUSY); /* a run that is over does no harm */
        assert_int_equal(store_details(store).blocks, end);
        assert_int_equal(store_details(store).count, end);
        assert_int_equal(live_of(f), 4096 + (end ? 20 * MIB : 0));
        if (!end) {
            detail_names("began while it grew");
            ok(weir_arena_end(m.arena));
            ok(weir_parameters_add(store, "w", WEIR_TYPE_U8, 20 * MIB, NULL, WEIR_STREAM_HOST, NULL));
        }
        ok(weir_arena_begin(m.arena, 0, f->a)); /* this one has declared it */
        fails(WEIR_ERR_BUSY, weir_free(f->client, parameter(store, "w").pointer, f->a));
        ok(weir_arena_end(m.arena));
        ok(weir_pressure_unregister(f->runtime, id));
        ok(weir_arena_destroy(m.arena, f->a));
        ok(weir_parameters_release(store));
    }
    weir_plan_destroy(plan);
}

/* One thread adds, another runs: either may be refused for the other's sake, and what a run finds is there. */
enum { ADDED = 120, LENGTH = 3000 };

typedef struct adder {
    fixture *f;
    weir_parameters *store;
    atomic_bool done;
    unsigned char contents[ADDED][LENGTH]; /* as they are until the stream has come to the copies */
} adder;

static void *add_all(void *user)
{
    adder *a = user;
    char name[16];
    for (unsigned i = 0; i < ADDED; i++) {
        weir_status status;
        (void)snprintf(name, sizeof name, "w%u", i);
        memset(a->contents[i], (int)i + 1, LENGTH);
        do
            status = weir_parameters_add(a->store, name, WEIR_TYPE_U8, LENGTH, a->contents[i], a->f->a, NULL);
        while (status == WEIR_ERR_BUSY);
        ok(status);
    }
    atomic_store(&a->done, true);
    return NULL;
}

/* Reads the newest parameter within a run on another stream than it was copied on. */
static bool run_once(adder *a, weir_arena *arena)
{
    weir_status status = weir_arena_begin(arena, 0, a->f->b);
    if (status == WEIR_ERR_BUSY)
        return false;
    ok(status);
    uint32_t count = store_details(a->store).count;
    weir_parameter p = {.struct_size = sizeof p};
    static unsigned char back[LENGTH];
    if (count > 0) {
        ok(weir_parameter_info(a->store, NULL, count - 1, &p));
        ok(weir_copy(a->f->runtime, back, p.pointer, LENGTH, a->f->b));
    }
    ok(weir_arena_end(arena));
    ok(weir_stream_synchronize(a->f->b));
    for (unsigned i = 0; i < (count ? LENGTH : 0); i++)
        assert_int_equal(back[i], count);
    return count > 0;
}

static void runs_and_additions_refuse_or_see_each_other(void **state)
{
    fixture *f = *state;
    if (on_sim())
        skip(); /* which is driven by one thread */
    weir_plan *plan = plan_of_one(4096);
    const weir_plan *plans[] = {plan};
    adder *a = calloc(1, sizeof *a);
    *a = (adder){.f = f, .store = open_store(f, 4 * KIB)};
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1, .parameters = a->store});
    pthread_t thread;
    int read = 0;
    void *obstacle = allocate(f->client, 256, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    assert_int_equal(pthread_create(&thread, NULL, add_all, a), 0);
    while (!atomic_load(&a->done) || read == 0)
        read += run_once(a, arena);
    pthread_join(thread, NULL);
    assert_int_equal(store_details(a->store).count, ADDED);
    assert_true(run_once(a, arena));
    ok(weir_free(f->client, obstacle, WEIR_STREAM_HOST));
    ok(weir_arena_destroy(arena, f->b));
    ok(weir_parameters_release(a->store));
    free(a);
    weir_plan_destroy(plan);
}

/* A lost device
 * -------------------------------------------------------------------------------------------------------- */

static void (*lose)(bool lost);

typedef enum moment { SEEN_BY_THE_END, SEEN_IN_THE_RUN, AFTER_THE_RUN } moment;

/* Streams and runtimes of a lost device are not for giving back: they stay, for the process to end with. */
static void lose_at(moment when, bool pooled)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 * MIB};
    weir_plan *plan = plan_of_one(MIB);
    weir_parameters *store;
    weir_arena_pool *pool = NULL;
    fixture f = {.runtime = NULL};
    ok(weir_runtime_create(device(), &options, &f.runtime));
    f.client = open_client(f.runtime, "one", 0, 0);
    ok(weir_stream_acquire(f.runtime, &f.a));
    if (pooled)
        ok(weir_arena_pool_acquire(f.runtime, NULL, &pool));
    ok(weir_parameters_create(f.client, NULL, &store));
    ok(weir_parameters_add(store, "w", WEIR_TYPE_U8, 100, NULL, f.a, NULL));
    weir_arena *arena = open_arena(
        &f,
        (weir_arena_options){
            .plans = (const weir_plan *[]){plan}, .plan_count = 1, .parameters = store, .pool = pool, .stream = f.a});
    static unsigned char bytes[64];
    ok(weir_arena_begin(arena, 0, f.a));
    if (when == AFTER_THE_RUN)
        ok(weir_arena_end(arena));
    lose(true);
    if (when == SEEN_BY_THE_END) {
        fails(WEIR_ERR_DEVICE_LOST, weir_arena_end(arena));
        assert_true(arena_details(arena).running);
        fails(WEIR_ERR_BUSY, weir_arena_destroy(arena, f.a));
        weir_arena_abort(arena);
    } else if (when == SEEN_IN_THE_RUN) {
        fails(WEIR_ERR_DEVICE_LOST, weir_arena_write(arena, 0, 0, 0, bytes, sizeof bytes, f.a));
        ok(weir_arena_end(arena)); /* nothing is left that anybody would have to wait for */
    }
    assert_true(live_of(&f) > MIB);
    ok(weir_arena_destroy(arena, f.a));
    ok(weir_arena_pool_release(pool));
    weir_parameters_details held = store_details(store);
    assert_int_equal(live_of(&f), held.charged);
    fails(WEIR_ERR_DEVICE_LOST, weir_parameters_add(store, "late", WEIR_TYPE_U8, sizeof bytes, bytes, f.a, NULL));
    assert_int_equal(store_details(store).count, held.count);
    assert_int_equal(live_of(&f), held.charged);
    ok(weir_parameters_release(store));
    weir_stats stats = take_snapshot(f.runtime).device;
    assert_int_equal(stats.live + stats.pending + stats.promised, 0);
    ok(weir_client_destroy(f.client));
    lose(false);
    weir_plan_destroy(plan);
}

static void an_arena_of_a_lost_device_can_be_closed(void **state)
{
    (void)state;
    void *library = strncmp(device(), "cuda", 4) == 0 ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *symbol = library ? dlsym(library, "stub_lose") : NULL;
    if (!library || !symbol) {
        skip(); /* it cannot be lost on purpose */
        return;
    }
    memcpy(&lose, &symbol, sizeof lose);
    for (moment when = SEEN_BY_THE_END; when <= AFTER_THE_RUN; when++) {
        lose_at(when, false);
        lose_at(when, true);
    }
    dlclose(library);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_run_whose_stream_is_gone_can_be_taken_back),
        TEST(an_aborted_run_is_over_and_remembers_nothing),
        TEST(nobody_waits_for_an_aborted_run),
        TEST(a_run_that_begins_meanwhile_refuses_the_new_block),
        TEST(runs_and_additions_refuse_or_see_each_other),
        TEST(an_arena_of_a_lost_device_can_be_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
