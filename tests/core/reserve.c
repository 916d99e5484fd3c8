/* Reservations: a whole that is promised or refused in one step, and blocks that take their charge out of it. */
#include "core.h"
#include "core/faulty.h"

#include "runtime/runtime.h"

enum { BUDGET = 1 << 20 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client, *other;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime(BUDGET);
    f->client = open_client(f->runtime, "one", 0, 0);
    f->other = open_client(f->runtime, "other", 0, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_client_destroy(f->other));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static weir_reservation *reserve(weir_client *client, uint64_t bytes)
{
    weir_reservation *reservation;
    ok(weir_reservation_create(client, bytes, 0, &reservation));
    return reservation;
}

static weir_status take(weir_client *client, weir_reservation *reservation, size_t bytes, void **out)
{
    weir_request request = {
        .struct_size = sizeof request, .bytes = bytes, .memory_class = WEIR_CLASS_KV, .reservation = reservation};
    weir_block block = {out, 1};
    weir_status status = weir_alloc_with(client, &request, &block);
    *out = block.pointer;
    return status;
}

#define numbers(runtime, live_, pending_, promised_)                                                                   \
    do {                                                                                                               \
        snapshot s_ = take_snapshot(runtime);                                                                          \
        check_sums(&s_);                                                                                               \
        assert_int_equal(s_.device.live, (live_));                                                                     \
        assert_int_equal(s_.device.pending, (pending_));                                                               \
        assert_int_equal(s_.device.promised, (promised_));                                                             \
    } while (0)

/* The numbers ------------------------------------------------------------------------------------------------------ */

static void step_by_step(void **state)
{
    fixture *f = *state;
    void *p, *q, *none;
    weir_reservation *r = reserve(f->client, 9999); /* 40 units */
    assert_int_equal(wi_reservation_left(r), 10240);
    numbers(f->runtime, 0, 0, 10240);
    assert_int_equal(take_snapshot(f->runtime).device.held, 0);
    assert_int_equal(take_snapshot(f->runtime).device.peak, 0);
    ok(take(f->client, r, 100, &p));
    assert_int_equal(wi_reservation_left(r), 9984);
    numbers(f->runtime, 256, 0, 9984);
    ok(take(f->client, r, 5000, &q));
    assert_int_equal(wi_reservation_left(r), 4864);
    numbers(f->runtime, 5376, 0, 4864);
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_OUT_OF_MEMORY, take(f->client, r, 4865, &none));
    assert_null(none);
    weir_refusal refusal = last_refusal();
    assert_int_equal(refusal.cause, WEIR_CAUSE_RESERVATION);
    assert_int_equal(refusal.requested, 5120);
    assert_int_equal(refusal.limit, 10240);
    assert_int_equal(refusal.current, 5376);
    assert_int_equal(refusal.remaining, 4864);
    assert_int_equal(refusal.largest, 4864);
    assert_int_equal(refusal.needed, 10496);
    detail_names("one asked for");
    detail_names("reservation of 10 KiB");
    numbers(f->runtime, 5376, 0, 4864);
    assert_int_equal(take_snapshot(f->runtime).device.refusals, before.device.refusals + 1);
    assert_int_equal(take_snapshot(f->runtime).device.peak, 5376);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST)); /* to the budget, not to the reservation */
    assert_int_equal(wi_reservation_left(r), 4864);
    numbers(f->runtime, 5120, 0, 4864);
    ok(take(f->client, r, 4864, &p)); /* to the last byte */
    assert_int_equal(wi_reservation_left(r), 0);
    numbers(f->runtime, 9984, 0, 0);
    ok(weir_reservation_destroy(r));
    numbers(f->runtime, 9984, 0, 0);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    ok(weir_free(f->client, q, WEIR_STREAM_HOST));
}

static void released_before_its_blocks_or_after(void **state)
{
    fixture *f = *state;
    for (int k = 0; k < 2; k++) {
        void *p;
        weir_reservation *r = reserve(f->client, 64 * KIB);
        ok(take(f->client, r, 16 * KIB, &p));
        if (k == 0) {
            ok(weir_reservation_destroy(r));
            numbers(f->runtime, 16 * KIB, 0, 0);
            ok(weir_free(f->client, p, WEIR_STREAM_HOST));
        } else {
            ok(weir_free(f->client, p, WEIR_STREAM_HOST));
            numbers(f->runtime, 0, 0, 48 * KIB);
            ok(weir_reservation_destroy(r));
        }
        numbers(f->runtime, 0, 0, 0);
    }
}

static void peaks_are_of_blocks(void **state)
{
    fixture *f = *state;
    weir_reservation *r = reserve(f->client, BUDGET);
    assert_int_equal(take_snapshot(f->runtime).device.peak, 0);
    assert_int_equal(take_snapshot(f->runtime).device.peak_held, 0);
    ok(weir_reservation_destroy(r));
    assert_int_equal(take_snapshot(f->runtime).clients[0].peak, 0);
    assert_int_equal(take_snapshot(f->runtime).device.peak, 0);
}

/* Refused as a whole ----------------------------------------------------------------------------------------------- */

static void more_than_there_is(void **state)
{
    fixture *f = *state;
    void *p = allocate(f->other, 256 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    snapshot before = take_snapshot(f->runtime);
    weir_reservation *r = (weir_reservation *)f;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_reservation_create(f->client, 768 * KIB + 1, 0, &r));
    assert_null(r);
    weir_refusal refusal = last_refusal();
    assert_int_equal(refusal.cause, WEIR_CAUSE_BUDGET);
    assert_int_equal(refusal.requested, 768 * KIB + 256);
    assert_int_equal(refusal.remaining, 768 * KIB);
    assert_int_equal(refusal.largest, 768 * KIB);
    assert_int_equal(refusal.needed, BUDGET + 256);
    detail_names("other holds 256 KiB");
    before.device.refusals++;
    before.clients[0].refusals++;
    unchanged(f->runtime, before);
    ok(weir_client_set_limits(f->client, 0, 100 * KIB));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_reservation_create(f->client, 100 * KIB + 1, 0, &r));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_MAXIMUM);
    ok(weir_reservation_create(f->client, 100 * KIB, 0, &r)); /* what is refused leaves no trace */
    ok(weir_reservation_destroy(r));
    ok(weir_free(f->other, p, WEIR_STREAM_HOST));
}

static void reserved_bytes_are_nobody_elses(void **state)
{
    fixture *f = *state;
    void *p, *mine;
    weir_reservation *r = reserve(f->client, BUDGET - 1024);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->other, 1025, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
    fails(WEIR_ERR_OUT_OF_MEMORY,
          weir_alloc(f->client, 1025, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p)); /* its own neither */
    p = allocate(f->other, 1024, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(take(f->client, r, BUDGET - GRANULE, &mine));
    ok(weir_free(f->other, p, WEIR_STREAM_HOST));
    ok(weir_free(f->client, mine, WEIR_STREAM_HOST));
    ok(weir_reservation_destroy(r));
}

/* Of freed memory that a stream still uses. */
static void waiting_for_what_is_pending(void **state)
{
    fixture *f = *state;
    weir_stream stream;
    gate g = GATE;
    pthread_t thread;
    weir_reservation *r;
    ok(weir_stream_acquire(f->runtime, &stream));
    void *p = allocate(f->client, BUDGET, stream, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &g, stream));
    free_behind(f->client, p, stream);
    numbers(f->runtime, 0, BUDGET, 0);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_reservation_create(f->client, 512 * KIB, WEIR_ALLOC_NO_WAIT, &r));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    assert_int_equal(pthread_create(&thread, NULL, open_gate_later, &g), 0);
    ok(weir_reservation_create(f->client, 512 * KIB, 0, &r));
    pthread_join(thread, NULL);
    numbers(f->runtime, 0, 0, 512 * KIB);
    ok(weir_reservation_destroy(r));
    ok(weir_stream_release(stream));
}

/* A placement that fails ------------------------------------------------------------------------------------------- */

static void a_failed_block_leaves_the_claim(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    weir_runtime *runtime;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "one", 0, 0);
    weir_reservation *r = reserve(client, 512 * KIB);
    long call = 0;
    void *p = NULL;
    for (;; call++) {
        fault.fail_at = fault.calls + call;
        weir_status status = take(client, r, 300 * KIB, &p);
        fault.fail_at = -1;
        if (status == WEIR_OK)
            break;
        check_status(status, WEIR_ERR_DRIVER, "take", __FILE__, __LINE__);
        assert_int_equal(wi_reservation_left(r), 512 * KIB);
        numbers(runtime, 0, 0, 512 * KIB);
    }
    assert_true(call >= 2);
    numbers(runtime, 300 * KIB, 0, 212 * KIB);
    fault.limit = fault.handles; /* the device has no more, whatever is promised */
    void *q;
    fails(WEIR_ERR_OUT_OF_MEMORY, take(client, r, 200 * KIB, &q));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_OTHER_PROCESS);
    assert_int_equal(wi_reservation_left(r), 212 * KIB);
    numbers(runtime, 300 * KIB, 0, 212 * KIB);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_reservation_destroy(r));
    numbers(runtime, 0, 0, 0);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

/* Misuse ----------------------------------------------------------------------------------------------------------- */

static void a_client_with_a_reservation_stays_open(void **state)
{
    fixture *f = *state;
    void *p;
    weir_reservation *r = reserve(f->client, 3 * KIB), *second = reserve(f->client, KIB);
    fails(WEIR_ERR_BUSY, weir_client_destroy(f->client));
    detail_names("one has 2 open reservations with 4 KiB left");
    ok(weir_reservation_destroy(second));
    ok(take(f->client, r, 3 * KIB, &p));
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    fails(WEIR_ERR_BUSY, weir_client_destroy(f->client)); /* also when nothing is left of it */
    detail_names("one has 1 open reservation ");
    ok(weir_reservation_destroy(r));
    ok(weir_client_destroy(f->client));
    f->client = open_client(f->runtime, "one", 0, 0);
}

static void calls_that_are_wrong(void **state)
{
    fixture *f = *state;
    weir_reservation *r = (weir_reservation *)f;
    void *p;
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_INVALID, weir_reservation_create(NULL, 1, 0, &r));
    fails(WEIR_ERR_INVALID, weir_reservation_create(f->client, 1, 0, NULL));
    fails(WEIR_ERR_INVALID, weir_reservation_create(f->client, 0, 0, &r));
    assert_null(r);
    fails(WEIR_ERR_INVALID, weir_reservation_create(f->client, UINT64_MAX - 100, 0, &r));
    fails(WEIR_ERR_INVALID, weir_reservation_create(f->client, 1, WEIR_ALLOC_ZEROED, &r));
    unchanged(f->runtime, before);
    ok(weir_reservation_destroy(NULL));
    r = reserve(f->client, KIB);
    fails(WEIR_ERR_INVALID, take(f->other, r, KIB, &p));
    detail_names("a reservation of one does not serve other");
    assert_int_equal(wi_reservation_left(r), KIB);
    ok(weir_reservation_destroy(r));
    ok(weir_client_destroy(f->other));
    fails(WEIR_ERR_INVALID, weir_reservation_create(f->other, 1, 0, &r));
    f->other = open_client(f->runtime, "other", 0, 0);
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

enum { ROUNDS = UNDER_TSAN ? 60 : 400, THREADS = 4, PARTS = 64 };

typedef struct contender {
    fixture *f;
    weir_client *client;
    weir_reservation *reservation;
    pthread_barrier_t *barrier;
    unsigned won, seed;
    void *parts[PARTS];
    size_t count;
} contender;

static void *compete(void *user)
{
    contender *c = user;
    for (int i = 0; i < ROUNDS; i++) {
        weir_reservation *r;
        pthread_barrier_wait(c->barrier);
        bool got = weir_reservation_create(c->client, BUDGET / 5 * 3, 0, &r) == WEIR_OK;
        pthread_barrier_wait(c->barrier);
        c->won += got;
        if (got && weir_reservation_destroy(r) != WEIR_OK)
            abort();
    }
    return NULL;
}

/* Two that do not fit together: one of them gets it, whole. */
static void of_two_claims_one_wins(void **state)
{
    fixture *f = *state;
    pthread_barrier_t barrier;
    pthread_t threads[2];
    contender c[2] = {{.client = f->client, .barrier = &barrier}, {.client = f->other, .barrier = &barrier}};
    pthread_barrier_init(&barrier, NULL, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, compete, &c[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    assert_int_equal(c[0].won + c[1].won, ROUNDS);
    numbers(f->runtime, 0, 0, 0);
}

/* Takes parts of 1 to 4 KiB until nothing is left. */
static void *materialise(void *user)
{
    contender *c = user;
    uint64_t seed = c->seed;
    pthread_barrier_wait(c->barrier);
    while (c->count < PARTS) {
        size_t bytes = (size_t)(next_random(&seed) % 4 + 1) * 1024;
        if (take(c->client, c->reservation, bytes, &c->parts[c->count]) == WEIR_OK)
            c->count++;
        else if (bytes == 1024)
            break;
    }
    return NULL;
}

static void parts_by_several_threads(void **state)
{
    fixture *f = *state;
    enum { TOTAL = 100 * 1024 };
    for (int round = 0; round < ROUNDS / 20; round++) {
        pthread_barrier_t barrier;
        pthread_t threads[THREADS];
        contender c[THREADS];
        weir_reservation *r = reserve(f->client, TOTAL);
        void *rest = allocate(f->other, BUDGET - 2 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV), *p;
        pthread_barrier_init(&barrier, NULL, THREADS);
        for (unsigned i = 0; i < THREADS; i++) {
            c[i] = (contender){
                .client = f->client, .reservation = r, .barrier = &barrier, .seed = i + 1 + 7 * (unsigned)round};
            assert_int_equal(pthread_create(&threads[i], NULL, materialise, &c[i]), 0);
        }
        uint64_t sum = 0;
        for (unsigned i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (unsigned i = 0; i < THREADS; i++)
            for (size_t k = 0; k < c[i].count; k++) {
                weir_block_details details = {.struct_size = sizeof details};
                ok(weir_block_info(c[i].parts[k], &details));
                sum += details.charged;
            }
        assert_int_equal(sum, TOTAL); /* parts of 1 KiB were asked for to the end */
        assert_int_equal(wi_reservation_left(r), 0);
        numbers(f->runtime, TOTAL + BUDGET - 2 * GRANULE, 0, 0);
        fails(WEIR_ERR_OUT_OF_MEMORY, take(f->client, r, 1, &p));
        for (unsigned i = 0; i < THREADS; i++)
            while (c[i].count > 0)
                ok(weir_free(f->client, c[i].parts[--c[i].count], WEIR_STREAM_HOST));
        ok(weir_free(f->other, rest, WEIR_STREAM_HOST));
        ok(weir_reservation_destroy(r));
        pthread_barrier_destroy(&barrier);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(step_by_step),
        CASE(released_before_its_blocks_or_after),
        CASE(peaks_are_of_blocks),
        CASE(more_than_there_is),
        CASE(reserved_bytes_are_nobody_elses),
        CASE(waiting_for_what_is_pending),
        cmocka_unit_test(a_failed_block_leaves_the_claim),
        CASE(a_client_with_a_reservation_stays_open),
        CASE(calls_that_are_wrong),
        CASE(of_two_claims_one_wins),
        CASE(parts_by_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
