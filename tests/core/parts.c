/* Runtimes composed of parts: what goes together, who has it, how it ends; and that a failure leaves the parts as they
 * were. */
#include "info.h"
#include "core.h"
#include <weir/experimental/compose.h>
#include "core/faulty.h"

#include "runtime/runtime.h"

enum { BUDGET = 4 << 20 };

typedef struct parts {
    weir_device *device;
    weir_stream_pool *streams;
    weir_resource *resource;
} parts;

static parts make_parts(const char *device, uint32_t capacity, const char *text)
{
    parts p = {0};
    ok(weir_device_create(device, &p.device));
    ok(weir_stream_pool_create(p.device, capacity, &p.streams));
    ok(weir_resource_create(p.device, text, &p.resource));
    return p;
}

static void end_parts(parts p)
{
    ok(weir_resource_destroy(p.resource));
    ok(weir_stream_pool_destroy(p.streams));
    ok(weir_device_destroy(p.device));
}

static weir_status compose(parts p, weir_runtime **out)
{
    weir_parts given = {sizeof given, p.device, p.streams, p.resource};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    *out = (weir_runtime *)out;
    weir_status status = weir_runtime_compose(&given, &options, out);
    assert_true(status == WEIR_OK || !*out);
    return status;
}

/* It serves a client. */
static void use(weir_runtime *runtime)
{
    weir_client *client = open_client(runtime, "one", 0, 0);
    weir_stream stream;
    ok(weir_stream_acquire(runtime, &stream));
    void *p = allocate(client, 100000, stream, WEIR_CLASS_KV);
    if (strcmp(runtime_details(runtime).device, "host") == 0)
        memset(p, 1, 100000);
    assert_int_equal(take_snapshot(runtime).device.live, 100096);
    ok(weir_free(client, p, stream));
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(client));
    check_empty(runtime);
}

/* Composing -------------------------------------------------------------------------------------------------------- */

static void of_all_parts(void **state)
{
    (void)state;
    static const char *const devices[] = {"host", "sim"};
    for (int k = 0; k < 2; k++) {
        parts p = make_parts(devices[k], 3, "direct");
        weir_runtime *runtime, *shared;
        ok(compose(p, &runtime));
        assert_string_equal(runtime_details(runtime).device, devices[k]);
        assert_string_equal(runtime_details(runtime).resource, "budget(direct)");
        assert_int_equal(runtime_details(runtime).budget, BUDGET);
        if (k == 0) {
            ok(weir_runtime_get("host", NULL, &shared));
            assert_ptr_not_equal(shared, runtime);
        }
        use(runtime);
        ok(weir_runtime_destroy(runtime));
    }
}

static void of_some_parts(void **state)
{
    (void)state;
    for (unsigned which = 1; which < 8; which++) {
        parts all = make_parts("host", 2, "mapped"), p = {0};
        weir_runtime *runtime;
        if (which & 1)
            p.device = all.device;
        if (which & 2)
            p.streams = all.streams;
        if (which & 4)
            p.resource = all.resource;
        ok(compose(p, &runtime));
        use(runtime);
        if (which != 7 && which != 6) { /* what was left out is in the way of the device's end */
            fails(WEIR_ERR_BUSY, weir_runtime_destroy(runtime));
            detail_names("left over");
        }
        if (!p.streams)
            ok(weir_stream_pool_destroy(all.streams));
        if (!p.resource)
            ok(weir_resource_destroy(all.resource));
        ok(weir_runtime_destroy(runtime));
    }
    weir_runtime *none;
    fails(WEIR_ERR_INVALID, compose((parts){0}, &none));
}

static void the_pool_limits_what_is_acquired(void **state)
{
    (void)state;
    enum { CAPACITY = 3 };
    parts p = make_parts("host", CAPACITY, "mapped");
    weir_runtime *runtime;
    ok(compose(p, &runtime));
    weir_stream streams[CAPACITY], more;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CAPACITY; i++)
            ok(weir_stream_acquire(runtime, &streams[i]));
        fails(WEIR_ERR_BUSY, weir_stream_acquire(runtime, &more));
        detail_names("all 3 streams of the pool of host are acquired");
        assert_int_equal(more.id, 0);
        ok(weir_stream_release(streams[1]));
        ok(weir_stream_acquire(runtime, &streams[1]));
        for (int i = 0; i < CAPACITY; i++)
            ok(weir_stream_release(streams[i]));
    }
    ok(weir_runtime_destroy(runtime));
    weir_device *device;
    weir_stream_pool *pool = (weir_stream_pool *)&device;
    ok(weir_device_create("host", &device));
    fails(WEIR_ERR_INVALID, weir_stream_pool_create(device, 0, &pool));
    assert_null(pool);
    fails(WEIR_ERR_INVALID, weir_stream_pool_create(device, 1025, &pool));
    ok(weir_device_destroy(device));
}

/* Refused ---------------------------------------------------------------------------------------------------------- */

static void of_two_devices(void **state)
{
    (void)state;
    parts host = make_parts("host", 2, "mapped"), sim = make_parts("sim:0", 2, "mapped"),
          again = make_parts("host", 1, "direct");
    weir_runtime *runtime;
    fails(WEIR_ERR_CONFLICT, compose((parts){host.device, sim.streams, host.resource}, &runtime));
    detail_names("host");
    detail_names("is of sim");
    fails(WEIR_ERR_CONFLICT, compose((parts){host.device, host.streams, sim.resource}, &runtime));
    fails(WEIR_ERR_CONFLICT, compose((parts){sim.device, host.streams, host.resource}, &runtime));
    fails(WEIR_ERR_CONFLICT, compose((parts){NULL, sim.streams, host.resource}, &runtime));
    fails(WEIR_ERR_CONFLICT, compose((parts){host.device, again.streams, NULL}, &runtime));
    detail_names("opened another time");
    /* They are as they were. */
    ok(compose(host, &runtime));
    use(runtime);
    ok(weir_runtime_destroy(runtime));
    end_parts(sim);
    end_parts(again);
}

static void parts_that_are_in_use(void **state)
{
    (void)state;
    parts p = make_parts("host", 2, "mapped");
    weir_stream_pool *spare, *none;
    weir_resource *other;
    weir_runtime *runtime, *second;
    ok(weir_stream_pool_create(p.device, 1, &spare));
    ok(compose(p, &runtime));
    fails(WEIR_ERR_CONFLICT, compose(p, &second));
    detail_names("device of host is part of the runtime host");
    fails(WEIR_ERR_CONFLICT, compose((parts){NULL, spare, NULL}, &second)); /* its device is, too */
    fails(WEIR_ERR_CONFLICT, weir_stream_pool_create(p.device, 1, &none));
    fails(WEIR_ERR_CONFLICT, weir_resource_create(p.device, "direct", &other));
    fails(WEIR_ERR_BUSY, weir_device_destroy(p.device));
    fails(WEIR_ERR_BUSY, weir_stream_pool_destroy(p.streams));
    fails(WEIR_ERR_BUSY, weir_resource_destroy(p.resource));
    detail_names("the resource of host is part of the runtime host");
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(runtime)); /* a pool of its device is left over */
    ok(weir_stream_pool_destroy(spare));
    use(runtime);
    ok(weir_runtime_destroy(runtime));
}

static void a_device_ends_last(void **state)
{
    (void)state;
    parts p = make_parts("host", 1, "mapped");
    fails(WEIR_ERR_BUSY, weir_device_destroy(p.device));
    detail_names("the device host has 2 pools");
    ok(weir_stream_pool_destroy(p.streams));
    fails(WEIR_ERR_BUSY, weir_device_destroy(p.device));
    ok(weir_resource_destroy(p.resource));
    ok(weir_device_destroy(p.device));
    ok(weir_device_destroy(NULL));
    ok(weir_stream_pool_destroy(NULL));
    ok(weir_resource_destroy(NULL));
}

static void texts_that_are_none(void **state)
{
    (void)state;
    weir_device *device = (weir_device *)state;
    weir_resource *resource = (weir_resource *)state;
    fails(WEIR_ERR_INVALID, weir_device_create("host:x", &device));
    assert_null(device);
    fails(WEIR_ERR_NOT_FOUND, weir_device_create("sim:5", &device));
    ok(weir_device_create("host", &device));
    fails(WEIR_ERR_NOT_FOUND, weir_resource_create(device, "pooled", &resource));
    assert_null(resource);
    fails(WEIR_ERR_INVALID, weir_resource_create(device, "guard(direct", &resource));
    fails(WEIR_ERR_INVALID, weir_resource_create(device, "budget(budget(mapped))", &resource));
    detail_names("two budgets");
    fails(WEIR_ERR_INVALID, weir_resource_create(device, NULL, &resource));
    ok(weir_device_destroy(device)); /* nothing of them is left */
}

static void options_that_contradict(void **state)
{
    (void)state;
    parts p = make_parts("host", 1, "direct");
    weir_parts given = {sizeof given, p.device, p.streams, p.resource};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = "mapped"};
    weir_runtime *runtime;
    fails(WEIR_ERR_CONFLICT, weir_runtime_compose(&given, &options, &runtime));
    detail_names("mapped");
    detail_names("direct");
    fails(WEIR_ERR_INVALID, weir_runtime_compose(NULL, &options, &runtime));
    fails(WEIR_ERR_INVALID, weir_runtime_compose(&given, NULL, NULL));
    given.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_runtime_compose(&given, &options, &runtime));
    given.struct_size = sizeof given;
    options.resource = "direct";
    ok(weir_runtime_compose(&given, &options, &runtime));
    use(runtime);
    ok(weir_runtime_destroy(runtime));
}

/* Failures --------------------------------------------------------------------------------------------------------- */

/* The resource is made while composing, so that the driver is asked in that, too. */
static weir_status make_all(parts *p, weir_runtime **runtime)
{
    weir_status status = wi_device_open_over(&faulty_driver, 0, &p->device);
    if (status == WEIR_OK)
        status = weir_stream_pool_create(p->device, 3, &p->streams);
    return status == WEIR_OK ? compose(*p, runtime) : status;
}

static void a_fault_at_every_call(void **state)
{
    (void)state;
    long n = 0, composing = 0;
    for (bool reached = true; reached; n++) {
        parts p = {0};
        weir_runtime *runtime = NULL;
        faults_reset(n);
        weir_status status = make_all(&p, &runtime);
        reached = fault.calls > n;
        fault.fail_at = -1;
        if (status != WEIR_OK && p.streams) { /* the parts are good for another try */
            composing++;
            ok(weir_resource_create(p.device, "direct", &p.resource));
            ok(compose(p, &runtime));
        }
        if (runtime) {
            use(runtime);
            ok(weir_runtime_destroy(runtime));
        } else {
            end_parts(p);
        }
        assert_true(faults_nothing_left());
    }
    assert_true(n > 6 && composing > 1);
}

/* All parts are there, and the device has too little memory for a budget of weir's choice. */
static void a_refusal_with_all_parts(void **state)
{
    (void)state;
    parts p = {0};
    weir_runtime *runtime;
    faults_reset(-1);
    ok(wi_device_open_over(&faulty_driver, 0, &p.device));
    ok(weir_stream_pool_create(p.device, 1, &p.streams));
    ok(weir_resource_create(p.device, "mapped", &p.resource));
    weir_parts given = {sizeof given, p.device, p.streams, p.resource};
    fails(WEIR_ERR_DRIVER, weir_runtime_compose(&given, NULL, &runtime));
    assert_null(runtime);
    ok(compose(p, &runtime));
    use(runtime);
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

enum { THREADS = 4, ROUNDS = 50 };

typedef struct contender {
    parts p;
    pthread_barrier_t *barrier;
    weir_runtime *runtime;
} contender;

static void *compose_at_once(void *user)
{
    contender *c = user;
    weir_parts given = {sizeof given, c->p.device, c->p.streams, c->p.resource};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    pthread_barrier_wait(c->barrier);
    if (weir_runtime_compose(&given, &options, &c->runtime) != WEIR_OK)
        c->runtime = NULL;
    return NULL;
}

/* Of several who want the parts one gets them. */
static void several_threads(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        parts p = make_parts("host", 1, "mapped");
        pthread_t threads[THREADS];
        pthread_barrier_t barrier;
        contender c[THREADS];
        int won = 0;
        pthread_barrier_init(&barrier, NULL, THREADS);
        for (int i = 0; i < THREADS; i++) {
            c[i] = (contender){p, &barrier, NULL};
            assert_int_equal(pthread_create(&threads[i], NULL, compose_at_once, &c[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < THREADS; i++)
            won += c[i].runtime != NULL;
        assert_int_equal(won, 1);
        for (int i = 0; i < THREADS; i++)
            if (c[i].runtime)
                ok(weir_runtime_destroy(c[i].runtime));
        pthread_barrier_destroy(&barrier);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_all_parts),
        cmocka_unit_test(of_some_parts),
        cmocka_unit_test(the_pool_limits_what_is_acquired),
        cmocka_unit_test(of_two_devices),
        cmocka_unit_test(parts_that_are_in_use),
        cmocka_unit_test(a_device_ends_last),
        cmocka_unit_test(texts_that_are_none),
        cmocka_unit_test(options_that_contradict),
        cmocka_unit_test(a_fault_at_every_call),
        cmocka_unit_test(a_refusal_with_all_parts),
        cmocka_unit_test(several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
