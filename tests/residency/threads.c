/* A client is suspended and resumed while other threads use it, its runtime and its neighbours. */
#include "residency/residency.h"

#include "core/faulty.h"
#include "runtime/runtime.h"

#include <weir/trace.h>

#include <stdatomic.h>

enum { ROUNDS = 40, FIXED = 4 };

/* Everything at once ------------------------------------------------------------------------------------------------ */

/* `moving` is held by whoever suspends the client, or looks at its contents: nothing else takes its memory. */
typedef struct stress {
    fixture *f;
    pthread_mutex_t moving;
    unsigned char *fixed[FIXED];
    size_t bytes[FIXED];
    atomic_bool over;
    atomic_uint suspends, resumes, refused, busy, freed, by_callback, traces;
} stress;

static void contents_are_right(const stress *s)
{
    for (int i = 0; i < FIXED; i++)
        block_holds(s->f->runtime, s->fixed[i], s->bytes[i], (uint64_t)i + 1);
}

static void count_suspend(stress *s, weir_status status)
{
    if (status != WEIR_ERR_BUSY)
        ok(status);
    atomic_fetch_add(status == WEIR_OK ? &s->suspends : &s->busy, 1);
}

/* Lets threads that wait for a lock have it: a mutex goes to whoever runs, and on one core that is who gave it up. */
static void let_others_in(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 500 * 1000}, NULL);
}

/* Threads come and go as the machine has it: so long goes on what everything is there for. */
static bool all_happened(const stress *s)
{
    return atomic_load(&s->suspends) > 0 && atomic_load(&s->resumes) > 0 && atomic_load(&s->freed) > 0;
}

static void *move(void *user)
{
    stress *s = user;
    uint64_t random = 7;
    for (int round = 0; round < ROUNDS || (round < 100000 && !all_happened(s)); round++) {
        weir_suspend_options o = {.struct_size = sizeof o,
                                  .unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS),
                                  .verify = next_random(&random) % 4 == 0,
                                  .resume_on_alloc = next_random(&random) % 2};
        pthread_mutex_lock(&s->moving);
        count_suspend(s, weir_client_suspend(s->f->model, &o, NULL));
        pthread_mutex_unlock(&s->moving);
        if (round % 3 == 0)
            trim(s->f->runtime);
        pthread_mutex_lock(&s->moving);
        weir_status status = weir_client_resume(s->f->model, round % 2 ? s->f->stream : WEIR_STREAM_HOST);
        if (status == WEIR_OK) {
            ok(weir_stream_synchronize(s->f->stream));
            contents_are_right(s);
            atomic_fetch_add(&s->resumes, 1);
        } else {
            fails(WEIR_ERR_OUT_OF_MEMORY, status);
            atomic_fetch_add(&s->refused, 1);
        }
        pthread_mutex_unlock(&s->moving);
        let_others_in(); /* callbacks may suspend it now */
    }
    atomic_store(&s->over, true);
    return NULL;
}

/* Allocations of the client are made, or refused; frees are made in any case. */
static void *use_the_client(void *user)
{
    stress *s = user;
    weir_stream stream;
    uint64_t random = 11 + (uintptr_t)&stream % 1009;
    void *blocks[6] = {NULL};
    ok(weir_stream_acquire(s->f->runtime, &stream));
    for (unsigned turn = 1; !atomic_load(&s->over); turn++) {
        if (turn % 64 == 0)
            let_others_in();
        void **block = &blocks[next_random(&random) % 6];
        size_t bytes = next_random(&random) % 3 ? 1 + next_random(&random) % (8 * KIB) : MIB / 2;
        weir_stream at = next_random(&random) % 2 ? stream : WEIR_STREAM_HOST;
        if (*block) {
            ok(weir_free(s->f->model, *block, at));
            *block = NULL;
            atomic_fetch_add(&s->freed, 1);
            continue;
        }
        weir_status status = weir_alloc(s->f->model, bytes, at, WEIR_CLASS_KV, block);
        if (status != WEIR_ERR_BUSY && status != WEIR_ERR_OUT_OF_MEMORY)
            ok(status);
    }
    for (int i = 0; i < 6; i++)
        if (blocks[i])
            ok(weir_free(s->f->model, blocks[i], stream));
    ok(weir_stream_synchronize(stream));
    ok(weir_stream_release(stream));
    return NULL;
}

/* Another client allocates, grows, lends and frees; now and then more than there is. */
static void *use_another(void *user)
{
    stress *s = user;
    weir_runtime *runtime = s->f->runtime;
    weir_stream stream;
    uint64_t random = 5, seed = 100;
    ok(weir_stream_acquire(runtime, &stream));
    while (!atomic_load(&s->over)) {
        let_others_in();
        size_t bytes = MIB + next_random(&random) % (next_random(&random) % 4 ? 4 * MIB : 20 * MIB);
        weir_request request = {.struct_size = sizeof request, .bytes = bytes, .stream = stream};
        weir_block block;
        weir_status status = weir_alloc_with(s->f->other, &request, &block);
        if (status == WEIR_ERR_OUT_OF_MEMORY)
            continue;
        ok(status);
        ok(weir_stream_synchronize(stream));
        write_block(runtime, block.pointer, bytes, ++seed);
        status = weir_resize(s->f->other, block.pointer, bytes + MIB / 4, stream);
        assert_true(status == WEIR_OK || status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY);
        block_holds(runtime, block.pointer, bytes, seed);
        ok(weir_free_block(s->f->other, block, next_random(&random) % 2 ? stream : WEIR_STREAM_HOST));
    }
    ok(weir_stream_synchronize(stream));
    ok(weir_stream_release(stream));
    return NULL;
}

/* Sums are right at any moment. */
static void *look(void *user)
{
    stress *s = user;
    weir_event events[256] = {{.struct_size = sizeof events[0]}};
    for (unsigned round = 0; !atomic_load(&s->over); round++) {
        snapshot now = take_snapshot(s->f->runtime);
        weir_layout_totals totals = WEIR_INIT(weir_layout_totals);
        uint64_t sum = 0, away = 0;
        check_sums(&now);
        for (size_t i = 0; i < now.count; i++)
            away += now.clients[i].away;
        assert_int_equal(now.device.away, away);
        ok(weir_layout_walk(s->f->runtime, NULL, NULL, &totals));
        for (int i = 0; i < WEIR_SPAN_MOST; i++)
            sum += totals.bytes[i];
        assert_int_equal(sum + totals.in_hand, totals.held);
        (void)residency(s->f->model);
        let_others_in();
        if (round % 8)
            continue;
        weir_trace *trace;
        size_t count;
        ok(weir_trace_create(s->f->runtime, NULL, &trace));
        ok(weir_trace_read(trace, events, 256, &count));
        weir_trace_destroy(trace);
        atomic_fetch_add(&s->traces, 1);
    }
    return NULL;
}

/* Makes room with the client's memory, if nobody looks at it right now. */
static void suspend_under_pressure(const weir_pressure *pressure, void *user)
{
    stress *s = user;
    (void)pressure;
    if (pthread_mutex_trylock(&s->moving) != 0)
        return;
    weir_status status = weir_client_suspend(s->f->model, NULL, NULL);
    count_suspend(s, status);
    atomic_fetch_add(&s->by_callback, status == WEIR_OK);
    pthread_mutex_unlock(&s->moving);
}

static void everything_at_once(void **state)
{
    stress s = {.f = *state, .moving = PTHREAD_MUTEX_INITIALIZER};
    void *(*const parts[])(void *) = {move, use_the_client, use_the_client, use_another, look};
    enum { PARTS = sizeof parts / sizeof parts[0] };
    const size_t sizes[FIXED] = {9 * MIB, 3000, 5 * MIB + 300, 700 * KIB};
    pthread_t threads[PARTS];
    uint64_t id;
    ok(weir_option_set("wait", "2ms"));
    for (int i = 0; i < FIXED; i++) {
        s.bytes[i] = sizes[i];
        s.fixed[i] = allocate(s.f->model, sizes[i], WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        write_block(s.f->runtime, s.fixed[i], sizes[i], (uint64_t)i + 1);
    }
    ok(weir_runtime_set_budget(s.f->runtime, 28 * MIB));
    ok(weir_pressure_register(s.f->runtime, 0, suspend_under_pressure, &s, &id));
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, parts[i], &s), 0);
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    ok(weir_pressure_unregister(s.f->runtime, id));
    ok(weir_option_set("wait", NULL));
    ok(weir_client_resume(s.f->model, WEIR_STREAM_HOST));
    contents_are_right(&s);
    for (int i = 0; i < FIXED; i++)
        ok(weir_free(s.f->model, s.fixed[i], WEIR_STREAM_HOST));
    trim(s.f->runtime);
    snapshot now = take_snapshot(s.f->runtime);
    check_sums(&now);
    assert_int_equal(now.device.held + now.device.away + now.device.live + now.device.pending, 0);
    assert_int_equal(now.device.thread_cached, 0);
    print_message("%u suspends (%u by callbacks), %u resumes, %u refused, %u busy, %u frees, %u traces\n", s.suspends,
                  s.by_callback, s.resumes, s.refused, s.busy, s.freed, s.traces);
    assert_true(all_happened(&s));
}

/* Places ------------------------------------------------------------------------------------------------------------ */

enum { MODELS = 3 };

typedef struct model {
    fixture *f;
    weir_client *client;
    pthread_mutex_t busy; /* it is worked with, or being suspended */
    void *weights;
    uint64_t seed, id;
    unsigned served;
} model;

static void step_aside(const weir_pressure *pressure, void *user)
{
    model *m = user;
    (void)pressure;
    if (pthread_mutex_trylock(&m->busy) != 0)
        return;
    weir_status status = weir_client_suspend(m->client, NULL, NULL);
    assert_true(status == WEIR_OK || status == WEIR_ERR_BUSY);
    pthread_mutex_unlock(&m->busy);
}

static void *serve(void *user)
{
    model *m = user;
    for (int round = 0; round < ROUNDS / 5; round++) {
        pthread_mutex_lock(&m->busy);
        weir_status status = weir_client_resume(m->client, WEIR_STREAM_HOST);
        if (status == WEIR_OK) {
            block_holds(m->f->runtime, m->weights, 20 * MIB, m->seed);
            m->served++;
        } else {
            fails(WEIR_ERR_OUT_OF_MEMORY, status);
        }
        pthread_mutex_unlock(&m->busy);
        sched_yield();
    }
    return NULL;
}

/* Three models of which two fit, each of which suspends itself when another one wants to come back. */
static void models_change_places(void **state)
{
    fixture *f = *state;
    model models[MODELS];
    pthread_t threads[MODELS];
    unsigned served = 0;
    ok(weir_option_set("wait", "1ms"));
    for (uint64_t i = 0; i < MODELS; i++) {
        model *m = &models[i];
        *m = (model){.f = f, .client = open_client(f->runtime, "place", 0, 0), .seed = i + 50};
        pthread_mutex_init(&m->busy, NULL);
        ok(weir_pressure_register(f->runtime, 0, step_aside, m, &m->id));
        m->weights = allocate(m->client, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        write_block(f->runtime, m->weights, 20 * MIB, m->seed);
        (void)suspend(m->client);
    }
    ok(weir_runtime_set_budget(f->runtime, 44 * MIB));
    for (int i = 0; i < MODELS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, serve, &models[i]), 0);
    for (int i = 0; i < MODELS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    ok(weir_option_set("wait", NULL));
    for (int i = 0; i < MODELS; i++) {
        model *m = &models[i];
        ok(weir_client_resume(m->client, WEIR_STREAM_HOST));
        block_holds(f->runtime, m->weights, 20 * MIB, m->seed);
        served += m->served;
        ok(weir_free(m->client, m->weights, WEIR_STREAM_HOST));
        ok(weir_pressure_unregister(f->runtime, m->id));
        ok(weir_client_destroy(m->client));
        pthread_mutex_destroy(&m->busy);
    }
    assert_true(served > 0);
}

/* One at a time ----------------------------------------------------------------------------------------------------- */

typedef struct racer {
    weir_client *client;
    unsigned won;
} racer;

static void *race(void *user)
{
    racer *r = user;
    for (int round = 0; round < ROUNDS; round++) {
        weir_status status = weir_client_suspend(r->client, NULL, NULL);
        r->won += status == WEIR_OK;
        assert_true(status == WEIR_OK || status == WEIR_ERR_BUSY);
        ok(weir_client_resume(r->client, WEIR_STREAM_HOST));
        (void)weir_client_forget_copies(r->client);
    }
    return NULL;
}

static void two_threads_suspend_the_same_client(void **state)
{
    fixture *f = *state;
    racer racers[2] = {{f->model, 0}, {f->model, 0}};
    pthread_t threads[2];
    void *weights = allocate(f->model, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, weights, 4 * MIB, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(racers[0].won + racers[1].won >= ROUNDS);
    block_holds(f->runtime, weights, 4 * MIB, 1);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

/* Exact points ------------------------------------------------------------------------------------------------------ */

/* A free looks for its block while that is acquired, and goes on when the move is over. */
static _Thread_local bool stands;
static gate found_acquired = GATE;
static weir_stream ends_when_acquired; /* its capture ends when a block is acquired, as another thread would end it */

weir_status __real_wi_acquire(wi_base *base, const wi_account *account, void *pointer, uint64_t generation,
                              wi_block **out);
weir_status __wrap_wi_acquire(wi_base *base, const wi_account *account, void *pointer, uint64_t generation,
                              wi_block **out);
weir_status __wrap_wi_acquire(wi_base *base, const wi_account *account, void *pointer, uint64_t generation,
                              wi_block **out)
{
    weir_status status = __real_wi_acquire(base, account, pointer, generation, out);
    if (stands && status == WEIR_ERR_BUSY) {
        stands = false;
        pass_gate(&found_acquired);
    }
    if (ends_when_acquired.id != 0 && status == WEIR_OK) {
        weir_stream stream = ends_when_acquired;
        ends_when_acquired = WEIR_STREAM_HOST;
        ok(weir_capture_end(stream, NULL));
    }
    return status;
}

typedef struct freer {
    weir_client *client;
    void *block;
    weir_status status;
} freer;

static void *free_and_stand(void *user)
{
    freer *f = user;
    stands = true;
    f->status = weir_free(f->client, f->block, WEIR_STREAM_HOST);
    return NULL;
}

static void *suspend_in_thread(void *user)
{
    ok(weir_client_suspend(user, NULL, NULL));
    return NULL;
}

/* The suspend stands in the driver, behind work of a declared use, with the blocks acquired. */
static void a_free_meets_a_suspend_that_is_just_over(void **state)
{
    fixture *f = *state;
    void *block = allocate(f->model, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    weir_use use = {.block = {.pointer = block}, .access = WEIR_ACCESS_READ};
    weir_launch *launch;
    pthread_t mover, freeing;
    freer one = {f->model, block, WEIR_ERR_INVALID};
    found_acquired = (gate)GATE;
    ok(weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    ok(weir_launch_end(launch));
    wait_for_gate(&f->gate);
    pthread_create(&mover, NULL, suspend_in_thread, f->model);
    while (residency(f->model).state != WEIR_MOVING)
        sched_yield();
    while (weir_use_record(f->runtime, (weir_block){.pointer = block}, f->stream) == WEIR_OK) /* until it is acquired */
        sched_yield();
    pthread_create(&freeing, NULL, free_and_stand, &one);
    wait_for_gate(&found_acquired);
    open_gate(&f->gate);
    pthread_join(mover, NULL);
    assert_int_equal(residency(f->model).state, WEIR_SUSPENDED);
    open_gate(&found_acquired);
    pthread_join(freeing, NULL);
    ok(one.status);
    assert_int_equal(residency(f->model).away, 0);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
}

/* The free may have waited for copies: what counts is the stream as it is then. */
static void a_resize_looks_at_its_stream_when_it_has_its_block(void **state)
{
    const fixture *f = *state;
    void *block = allocate(f->model, 4 * MIB, f->stream, WEIR_CLASS_WEIGHTS);
    ok(weir_capture_begin(f->stream, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_resize(f->model, block, 2 * MIB, f->stream));
    ends_when_acquired = f->stream;
    ok(weir_resize(f->model, block, 2 * MIB, f->stream));
    assert_true(ends_when_acquired.id == 0);
    ok(weir_free(f->model, block, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

/* Another thread was let through before the suspend began, and gets its block when the streams were looked at already. The
 * block's zeros are queued behind a gate: this thread does what that one would. */
static struct {
    weir_client *client;
    weir_stream stream;
    weir_block block;
    bool late;
} latecomer;

weir_status __real_wi_residency_admit(weir_client *client, const char *call);
weir_status __wrap_wi_residency_admit(weir_client *client, const char *call);
void __real_wi_tcaches_drop_client(weir_client *client);
void __wrap_wi_tcaches_drop_client(weir_client *client);
weir_status __wrap_wi_residency_admit(weir_client *client, const char *call)
{
    return latecomer.late ? WEIR_OK : __real_wi_residency_admit(client, call);
}
void __wrap_wi_tcaches_drop_client(weir_client *client)
{
    if (client == latecomer.client) {
        weir_request request = {.struct_size = sizeof request,
                                .bytes = 6 * MIB,
                                .stream = latecomer.stream,
                                .flags = WEIR_ALLOC_ZEROED,
                                .memory_class = WEIR_CLASS_WEIGHTS};
        latecomer.late = true;
        latecomer.client = NULL;
        ok(weir_alloc_with(client, &request, &latecomer.block));
        latecomer.late = false;
    }
    __real_wi_tcaches_drop_client(client);
}

static void a_block_that_comes_late_is_waited_for(void **state)
{
    fixture *f = *state;
    pthread_t opener;
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    latecomer.client = f->model;
    latecomer.stream = f->stream;
    pthread_create(&opener, NULL, open_gate_later, &f->gate);
    assert_int_equal(suspend(f->model).away, 6 * MIB);
    pthread_join(opener, NULL);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds_zeros(f->runtime, latecomer.block.pointer, 6 * MIB);
    ok(weir_free_block(f->model, latecomer.block, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

/* Copies that a resume still reads are not given up under it. */
static gate held_copies = GATE;
static atomic_int copies_to_hold;

static void hold_copies(void *user)
{
    (void)user;
    if (atomic_load(&copies_to_hold) > 0 && atomic_fetch_sub(&copies_to_hold, 1) > 0)
        pass_gate(&held_copies);
}

static weir_status (*host_copy)(wi_device *device, void *to, const void *from, size_t bytes, void *stream);

static weir_status slow_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    if (stream)
        (void)!faulty_driver.call(device, hold_copies, NULL, stream);
    return host_copy(device, to, from, bytes, stream);
}

static void *forget(void *user)
{
    assert_int_equal(weir_client_forget_copies(user), 4 * GRANULE);
    return NULL;
}

/* A close has counted no blocks, and ends the residence when another thread has allocated and suspended. */
static void a_close_meets_a_suspend(void **state)
{
    const fixture *f = *state;
    void *block = allocate(f->model, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, block, 4 * MIB, 1);
    (void)suspend(f->model);
    fails(WEIR_ERR_BUSY, wi_residency_end(f->model));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, block, 4 * MIB, 1);
    ok(weir_free(f->model, block, WEIR_STREAM_HOST));
}

static void copies_are_given_up_when_they_were_read(void **state)
{
    (void)state;
    static wi_driver slow;
    weir_runtime *host = make_runtime(32 * MIB), *runtime;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 16 * GRANULE, .host = host};
    weir_stream stream, second;
    weir_use use;
    weir_launch *launch;
    unsigned char *seen = calloc(1, 4 * GRANULE);
    pthread_t forgetting, opener;
    faults_reset(-1);
    slow = faulty_driver;
    host_copy = slow.copy;
    slow.copy = slow_copy;
    held_copies = (gate)GATE;
    ok(wi_runtime_create_over(&slow, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "model", 0, 0);
    ok(weir_stream_acquire(runtime, &stream));
    ok(weir_stream_acquire(runtime, &second));
    void *block = allocate(client, 4 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(runtime, block, 4 * GRANULE, 1);
    (void)suspend(client);
    atomic_store(&copies_to_hold, 1);
    ok(weir_client_resume(client, stream));
    wait_for_gate(&held_copies);
    use = (weir_use){.block = {.pointer = block}, .access = WEIR_ACCESS_READ};
    ok(weir_launch_begin(runtime, second, &use, 1, &launch)); /* what is declared elsewhere comes behind the copies */
    ok(weir_copy(runtime, seen, block, 4 * GRANULE, second));
    ok(weir_launch_end(launch));
    pthread_create(&forgetting, NULL, forget, client);
    pthread_create(&opener, NULL, open_gate_later, &held_copies);
    pthread_join(opener, NULL);
    pthread_join(forgetting, NULL);
    ok(weir_stream_synchronize(stream));
    ok(weir_stream_synchronize(second));
    block_holds(runtime, block, 4 * GRANULE, 1);
    unsigned char *wanted = pattern(4 * GRANULE, 1);
    bytes_are(seen, wanted, 4 * GRANULE);
    free(seen);
    free(wanted);
    assert_int_equal(take_snapshot(host).device.live, 0);
    ok(weir_free(client, block, stream));
    ok(weir_stream_synchronize(stream));
    ok(weir_stream_release(stream));
    ok(weir_stream_release(second));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    ok(weir_runtime_destroy(host));
    assert_true(faults_nothing_left());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(everything_at_once),
        CASE(models_change_places),
        CASE(two_threads_suspend_the_same_client),
        CASE(a_free_meets_a_suspend_that_is_just_over),
        CASE(a_resize_looks_at_its_stream_when_it_has_its_block),
        CASE(a_block_that_comes_late_is_waited_for),
        CASE(a_close_meets_a_suspend),
        cmocka_unit_test(copies_are_given_up_when_they_were_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
