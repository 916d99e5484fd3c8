/* Models of a pool are replaced, unloaded, removed, and taken out when they are not well. */
#include "pool/bed.h"

#include <weir/trace.h>

static bed b;

static int set_up(void **state)
{
    (void)state;
    make_bed(&b, 10 * MIB, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hold_loads(false);
    hold_runs(false);
    end_bed(&b);
    return 0;
}

static weir_pool_spec version_of(const char *name, const char *version, uint64_t weights)
{
    weir_pool_spec spec = spec_of(name, weights);
    spec.version = version;
    spec.slots = 4;
    return spec;
}

static size_t listed(void)
{
    size_t count;
    ok(weir_pool_list(b.pool, NULL, 0, &count));
    return count;
}

/* Another version -------------------------------------------------------------------------------------------------- */

typedef struct adder {
    pthread_t thread;
    weir_pool_spec spec;
    weir_status status;
} adder;

static void *add_it(void *user)
{
    adder *a = user;
    a->status = weir_pool_add(b.pool, &a->spec);
    return NULL;
}

static void start_adding(adder *a, weir_pool_spec spec)
{
    *a = (adder){.spec = spec};
    assert_int_equal(pthread_create(&a->thread, NULL, add_it, a), 0);
}

static void the_new_one_takes_over(void **state)
{
    adder a;
    (void)state;
    add_spec(&b, version_of("a", "1", 2 * MIB));
    weir_lease *old = lease(&b, "a");
    hold_loads(true);
    start_adding(&a, version_of("a", "2", 3 * MIB));
    wait_for_loads(1);
    ok(use(&b, "a")); /* by the old one, while the new one is loaded */
    weir_lease *also = lease(&b, "a");
    assert_string_equal(weir_lease_version(also), "1");
    weir_pool_spec third = version_of("a", "3", MIB);
    fails(WEIR_ERR_CONFLICT, weir_pool_add(b.pool, &third));
    hold_loads(false);
    pthread_join(a.thread, NULL);
    ok(a.status);
    weir_lease *now = lease(&b, "a");
    assert_string_equal(weir_lease_version(now), "2");
    infer_in(old); /* what runs in the old one goes on */
    assert_int_equal(listed(), 2);
    weir_lease_release(old);
    assert_int_equal(listed(), 2);
    weir_lease_release(also);
    wait_for_event(&b, WEIR_POOL_EVENT_REMOVED, 1);
    assert_int_equal(listed(), 1);
    assert_string_equal(entry_of(&b, "a").version, "2");
    weir_lease_release(now);
}

/* Who waits for the old one is served by the new one. */
static void who_waits_goes_along(void **state)
{
    asker a;
    weir_pool_spec one = version_of("a", "1", 2 * MIB);
    weir_pool_request request = request_of("a");
    (void)state;
    one.slots = 1;
    add_spec(&b, one);
    weir_lease *l = lease(&b, "a");
    request.id = 1;
    start_asking(&a, &b, request);
    wait_for_waiting(&b, 1);
    add_spec(&b, version_of("a", "2", 2 * MIB));
    end_asking(&a);
    ok(a.status);
    assert_string_equal(weir_lease_version(a.lease), "2");
    weir_lease_release(a.lease);
    weir_lease_release(l);
}

static void a_new_one_that_fails_changes_nothing(void **state)
{
    weir_pool_spec two = version_of("a", "2", 3 * MIB);
    (void)state;
    add_spec(&b, version_of("a", "1", 2 * MIB));
    ok(use(&b, "a"));
    atomic_store(&e.fail_late, 1);
    fails(WEIR_ERR_ENGINE, weir_pool_add(b.pool, &two));
    detail_names("after its weights");
    assert_string_equal(entry_of(&b, "a").version, "1");
    assert_int_equal(listed(), 1);
    ok(use(&b, "a"));
    assert_int_equal(taken(&b), 2 * MIB);
    two = version_of("a", "2", 12 * MIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_pool_add(b.pool, &two));
    assert_string_equal(entry_of(&b, "a").version, "1");
    in_state(&b, "a", WEIR_POOL_LOADED);
}

static void one_that_is_not_loaded_is_replaced_at_once(void **state)
{
    (void)state;
    add_spec(&b, version_of("a", "1", 2 * MIB));
    add_spec(&b, version_of("a", "2", 3 * MIB));
    assert_int_equal(listed(), 1);
    assert_int_equal(atomic_load(&e.loads), 0);
    ok(use(&b, "a"));
    assert_int_equal(taken(&b), 3 * MIB);
}

/* Under load ------------------------------------------------------------------------------------------------------- */

typedef struct caller {
    pthread_t thread;
    const atomic_bool *end;
    long served;
    bool backwards; /* an older version after a newer one */
} caller;

static void *call(void *user)
{
    caller *c = user;
    long newest = 0;
    while (!atomic_load(c->end)) {
        weir_lease *l = lease(&b, "a");
        long version = strtol(weir_lease_version(l), NULL, 10);
        c->backwards |= version < newest;
        newest = version;
        infer_in(l);
        weir_lease_release(l);
        c->served++;
    }
    return NULL;
}

static void versions_change_under_load(void **state)
{
    enum { CALLERS = 4, VERSIONS = 12 };
    caller c[CALLERS];
    atomic_bool stop = false;
    char versions[VERSIONS][8];
    (void)state;
    add_spec(&b, version_of("a", "0", MIB));
    for (int i = 0; i < CALLERS; i++) {
        c[i] = (caller){.end = &stop};
        assert_int_equal(pthread_create(&c[i].thread, NULL, call, &c[i]), 0);
    }
    for (int i = 1; i < VERSIONS; i++) {
        snprintf(versions[i], sizeof versions[i], "%d", i);
        add_spec(&b, version_of("a", versions[i], MIB + (uint64_t)i * 4096));
        check_books(&b);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(c[i].thread, NULL);
        assert_false(c[i].backwards);
    }
    wait_for_event(&b, WEIR_POOL_EVENT_REMOVED, VERSIONS - 1);
    assert_string_equal(entry_of(&b, "a").version, "11");
}

/* Unloaded, removed ------------------------------------------------------------------------------------------------ */

static void a_receipt_of_all(void **state)
{
    weir_pool_receipt receipt = WEIR_INIT(weir_pool_receipt);
    (void)state;
    add(&b, "a", 4 * MIB);
    ok(weir_pool_load(b.pool, "a", 0));
    in_state(&b, "a", WEIR_POOL_LOADED);
    ok(weir_pool_load(b.pool, "a", 0));
    assert_int_equal(atomic_load(&e.loads), 1);
    ok(weir_pool_unload(b.pool, "a", 0, &receipt));
    in_state(&b, "a", WEIR_POOL_UNLOADED);
    assert_true(receipt.complete);
    assert_int_equal(receipt.before[WEIR_CLASS_WEIGHTS], 4 * MIB);
    assert_int_equal(receipt.before_total, 4 * MIB);
    assert_int_equal(receipt.returned, 4 * MIB);
    assert_int_equal(receipt.kept + receipt.elsewhere + receipt.holders, 0);
    assert_int_equal(entry_of(&b, "a").loads, 1); /* counts go on */
    assert_int_equal(taken(&b), 0);
    ok(weir_pool_unload(b.pool, "a", 0, &receipt));
    assert_int_equal(receipt.before_total, 0);
    fails(WEIR_ERR_NOT_FOUND, weir_pool_unload(b.pool, "b", 0, NULL));
    ok(use(&b, "a"));
}

static void an_unload_waits_for_leases(void **state)
{
    weir_pool_receipt receipt = WEIR_INIT(weir_pool_receipt);
    (void)state;
    add(&b, "a", 4 * MIB);
    weir_lease *l = lease(&b, "a");
    fails(WEIR_ERR_BUSY, weir_pool_unload(b.pool, "a", 1, &receipt));
    detail_names("1 requests running");
    infer_in(l);
    ok(use(&b, "a")); /* a request gets one that is loaded beside it */
    assert_int_equal(atomic_load(&e.loads), 2);
    weir_lease_release(l);
    wait_for_event(&b, WEIR_POOL_EVENT_UNLOADED, 1);
    in_state(&b, "a", WEIR_POOL_LOADED);
    l = lease(&b, "a");
    fails(WEIR_ERR_BUSY, weir_pool_remove(b.pool, "a", 0, &receipt));
    fails(WEIR_ERR_NOT_FOUND, use(&b, "a"));
    infer_in(l);
    weir_lease_release(l);
    wait_for_event(&b, WEIR_POOL_EVENT_REMOVED, 1);
    assert_int_equal(listed(), 0);
    add(&b, "a", MIB);
    ok(use(&b, "a"));
    ok(weir_pool_remove(b.pool, "a", SECOND, &receipt));
    assert_int_equal(receipt.returned, MIB);
    assert_true(receipt.complete);
}

/* Results that are released after the lease: the model goes when they are. */
static void an_unload_waits_for_results(void **state)
{
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    (void)state;
    add(&b, "a", 4 * MIB);
    weir_lease *l = lease(&b, "a");
    weir_model *model = weir_lease_model(l);
    ok(weir_model_infer(model, &inference, &out));
    weir_lease_release(l);
    fails(WEIR_ERR_BUSY, weir_pool_unload(b.pool, "a", SECOND / 20, NULL));
    weir_pool_usage now = WEIR_INIT(weir_pool_usage);
    ok(weir_pool_usage_info(b.pool, 0, &now));
    assert_int_equal(atomic_load(&e.unloads), 0);
    assert_int_equal(now.taken, 4 * MIB);
    assert_int_equal(now.ceiling, 10 * MIB); /* it is the pool's still */
    weir_model_release_outputs(model, &out);
    wait_for_event(&b, WEIR_POOL_EVENT_UNLOADED, 1);
    assert_int_equal(atomic_load(&e.unloads), 1);
    assert_int_equal(b.counts[WEIR_POOL_EVENT_REMOVED], 0); /* it may be loaded again */
}

/* What lies in an account that is no model's. */
static void a_leak_elsewhere_is_told(void **state)
{
    weir_client *other = open_client(b.runtime, "engine's own", 0, 0);
    weir_pool_receipt receipt = WEIR_INIT(weir_pool_receipt);
    (void)state;
    void *before = allocate(other, MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    e.leaks_into = other;
    add(&b, "a", 4 * MIB);
    ok(use(&b, "a"));
    e.leaks_into = NULL;
    ok(weir_pool_unload(b.pool, "a", 0, &receipt));
    assert_false(receipt.complete);
    assert_int_equal(receipt.returned, 4 * MIB);
    assert_int_equal(receipt.kept, 0);
    assert_int_equal(receipt.elsewhere, LEAK);
    assert_int_equal(receipt.holders, 1);
    assert_string_equal(receipt.holder[0].client, "engine's own");
    assert_int_equal(receipt.holder[0].bytes, LEAK);
    assert_false(receipt.holder[0].own);
    ok(weir_free(other, before, WEIR_STREAM_HOST));
    weir_pool_usage now = WEIR_INIT(weir_pool_usage);
    ok(weir_pool_usage_info(b.pool, 0, &now));
    assert_int_equal(now.ceiling, 10 * MIB - LEAK);
    ok(weir_free(other, e.leak, WEIR_STREAM_HOST));
    ok(weir_client_destroy(other));
}

/* What an engine does not free stays charged, lessens what the pool may have, and is told. */
static void what_an_engine_keeps_is_told(void **state)
{
    weir_pool_receipt receipt = WEIR_INIT(weir_pool_receipt);
    weir_pool_usage now = WEIR_INIT(weir_pool_usage);
    (void)state;
    add(&b, "a", 4 * MIB);
    add(&b, "b", 4 * MIB);
    ok(use(&b, "a"));
    e.keeps = true;
    ok(weir_pool_unload(b.pool, "a", 0, &receipt));
    weir_client *first = e.leaked_by;
    void *leak = e.leak;
    assert_false(receipt.complete);
    assert_int_equal(receipt.before_total, 4 * MIB);
    assert_int_equal(receipt.kept, LEAK);
    assert_int_equal(receipt.returned, 4 * MIB - LEAK);
    assert_int_equal(receipt.holders, 1);
    assert_string_equal(receipt.holder[0].client, "a");
    assert_true(receipt.holder[0].own);
    ok(weir_pool_usage_info(b.pool, 0, &now));
    assert_int_equal(now.ceiling, 10 * MIB - LEAK);
    assert_int_equal(now.taken, 0);
    ok(use(&b, "b"));
    fails(WEIR_ERR_ENGINE, weir_pool_destroy(b.pool));
    detail_names("65536 bytes");
    ok(weir_free(e.leaked_by, e.leak, WEIR_STREAM_HOST)); /* that of "b" */
    ok(weir_client_destroy(e.leaked_by));
    ok(weir_free(first, leak, WEIR_STREAM_HOST));
    ok(weir_client_destroy(first));
    check_empty(b.runtime);
    ok(weir_runtime_destroy(b.runtime));
    free(b.lines);
    make_bed(&b, 10 * MIB, NULL);
}

static void suspended_by_hand(void **state)
{
    weir_pool_spec spec = spec_of("a", 4 * MIB);
    (void)state;
    spec.engine = "pool-double";
    add_spec(&b, spec);
    add(&b, "plain", MIB);
    ok(use(&b, "a"));
    ok(weir_pool_suspend(b.pool, "a", 0));
    in_state(&b, "a", WEIR_POOL_SUSPENDED);
    assert_int_equal(taken(&b), 0);
    ok(weir_pool_suspend(b.pool, "a", 0));
    ok(weir_pool_load(b.pool, "a", 0));
    in_state(&b, "a", WEIR_POOL_LOADED);
    assert_int_equal(atomic_load(&e.loads), 1);
    weir_lease *l = lease(&b, "a");
    fails(WEIR_ERR_BUSY, weir_pool_suspend(b.pool, "a", 1));
    weir_lease_release(l);
    fails(WEIR_ERR_UNSUPPORTED, weir_pool_suspend(b.pool, "plain", 0));
    ok(weir_pool_suspend(b.pool, "a", 0));
    weir_pool_receipt receipt = WEIR_INIT(weir_pool_receipt);
    ok(weir_pool_unload(b.pool, "a", 0, &receipt)); /* from where it is */
    assert_int_equal(receipt.before_total, 4 * MIB);
    assert_true(receipt.complete);
}

/* Health ----------------------------------------------------------------------------------------------------------- */

static void one_that_is_not_well_is_loaded_again(void **state)
{
    (void)state;
    weir_pool_spec spec = spec_of("a", 4 * MIB);
    spec.slots = 2;
    add_spec(&b, spec);
    weir_lease *first = lease(&b, "a"), *second = lease(&b, "a");
    weir_model *model = weir_lease_model(first);
    atomic_store(&e.ill, true); /* those that are loaded from here on are well */
    weir_lease_release(first);
    wait_for_event(&b, WEIR_POOL_EVENT_UNHEALTHY, 1);
    in_state(&b, "a", WEIR_POOL_UNLOADED);
    weir_lease *next = lease(&b, "a");
    assert_ptr_not_equal(weir_lease_model(next), model);
    infer_in(next);
    infer_in(second); /* what runs there still ends */
    weir_lease_release(second);
    weir_lease_release(next);
    wait_for_event(&b, WEIR_POOL_EVENT_UNLOADED, 1);
    assert_int_equal(b.counts[WEIR_POOL_EVENT_UNHEALTHY], 1);
    assert_int_equal(atomic_load(&e.loads), 2);
    assert_int_equal(listed(), 1);
}

/* Traces ----------------------------------------------------------------------------------------------------------- */

/* The pool's events of the runtime's trace, in order: their words, with megabytes. */
static void pool_events(weir_trace *trace, char *text, size_t room)
{
    enum { MOST = 512 };
    static weir_event events[MOST];
    size_t count, used = 0;
    text[0] = '\0';
    events[0].struct_size = sizeof *events;
    ok(weir_trace_read(trace, events, MOST, &count));
    for (size_t i = 0; i < count; i++) {
        const weir_event *event = &events[i];
        if (event->action != WEIR_ACTION_POOL)
            continue;
        assert_true(event->generation > 0 && event->generation <= 10 * MIB);
        used += (size_t)snprintf(text + used, room - used, "%s%s %s %llu", used ? ", " : "", event->tag,
                                 weir_name_of(WEIR_NAMES_POOL, (int)event->object),
                                 (unsigned long long)(event->bytes / MIB));
    }
}

static void the_trace_has_what_the_pool_did(void **state)
{
    char text[1024];
    weir_trace *trace;
    weir_lease *l;
    (void)state;
    weir_pool_spec spec = version_of("a", "1", 6 * MIB);
    spec.engine = "pool-plain";
    weir_pool_request request = request_of("a");
    request.bytes = MIB;
    ok(weir_trace_create(b.runtime, NULL, &trace));
    add_spec(&b, spec);
    spec.name = "b";
    add_spec(&b, spec);
    ok(weir_pool_acquire(b.pool, &request, NULL, &l));
    weir_lease_release(l);
    ok(use(&b, "b"));
    request.bytes = 20 * MIB;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_pool_acquire(b.pool, &request, NULL, &l));
    ok(weir_pool_unload(b.pool, "b", 0, NULL));
    wait_for_event(&b, WEIR_POOL_EVENT_UNLOADED, 2);
    ok(weir_pool_unload(b.pool, "a", 0, NULL)); /* what is noted is told when a call has ended */
    pool_events(trace, text, sizeof text);
    assert_string_equal(text, "a predicted 6, a committed 6, a promised 1, a evicted 6, b predicted 6, b committed 6, "
                              "a refused 20, b unloaded 6");
    weir_trace_destroy(trace);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_new_one_takes_over),
        CASE(who_waits_goes_along),
        CASE(a_new_one_that_fails_changes_nothing),
        CASE(one_that_is_not_loaded_is_replaced_at_once),
        CASE(versions_change_under_load),
        CASE(a_receipt_of_all),
        CASE(an_unload_waits_for_leases),
        CASE(an_unload_waits_for_results),
        CASE(a_leak_elsewhere_is_told),
        CASE(what_an_engine_keeps_is_told),
        CASE(suspended_by_hand),
        CASE(one_that_is_not_well_is_loaded_again),
        CASE(the_trace_has_what_the_pool_did),
    };
    register_engines();
    return cmocka_run_group_tests_name("pool-versions", tests, NULL, NULL);
}
