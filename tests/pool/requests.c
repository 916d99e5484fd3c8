/* Requests of a pool: loaded on demand, what goes for them and what never does, waiting, refusals with numbers. */
#include "pool/bed.h"

#include <sys/wait.h>

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

/* Coming ----------------------------------------------------------------------------------------------------------- */

static void a_request_loads(void **state)
{
    (void)state;
    add(&b, "a", 4 * MIB);
    in_state(&b, "a", WEIR_POOL_UNLOADED);
    assert_int_equal(atomic_load(&e.loads), 0);
    assert_int_equal(entry_of(&b, "a").predicted_peak, 4 * MIB);
    assert_int_equal(entry_of(&b, "a").predicted[WEIR_CLASS_WEIGHTS], 4 * MIB);
    assert_int_equal(entry_of(&b, "a").measured_peak, 0);
    assert_false(entry_of(&b, "a").can_suspend);
    ok(use(&b, "a"));
    in_state(&b, "a", WEIR_POOL_LOADED);
    weir_pool_entry now = entry_of(&b, "a");
    assert_int_equal(now.measured[WEIR_CLASS_WEIGHTS], 4 * MIB);
    assert_int_equal(now.measured_peak, 4 * MIB);
    assert_int_equal(now.taken, 4 * MIB);
    assert_int_equal(now.loads, 1);
    assert_int_equal(taken(&b), 4 * MIB);
    snapshot s = take_snapshot(b.runtime);
    assert_int_equal(s.clients[0].guaranteed, 4 * MIB);
    ok(use(&b, "a"));
    assert_int_equal(atomic_load(&e.loads), 1);
    check_books(&b);
}

static void what_is_guaranteed_while_it_loads(void **state)
{
    asker a;
    weir_client *client;
    weir_client_options other = {.struct_size = sizeof other, .name = "other", .guaranteed = 7 * MIB};
    (void)state;
    add(&b, "a", 4 * MIB);
    hold_loads(true);
    start_asking(&a, &b, request_of("a"));
    wait_for_loads(1);
    in_state(&b, "a", WEIR_POOL_LOADING);
    assert_true(entry_of(&b, "a").progress == 0.5);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_create(b.runtime, &other, &client)); /* nothing is allocated yet */
    other.guaranteed = 6 * MIB;
    ok(weir_client_create(b.runtime, &other, &client));
    hold_loads(false);
    end_asking(&a);
    ok(a.status);
    assert_true(entry_of(&b, "a").progress == 0);
    weir_lease_release(a.lease);
    ok(weir_client_destroy(client));
}

static void a_name_that_is_none(void **state)
{
    weir_pool_request request = request_of("c");
    weir_lease *l;
    (void)state;
    add(&b, "a", MIB);
    add(&b, "b", MIB);
    fails(WEIR_ERR_NOT_FOUND, weir_pool_acquire(b.pool, &request, NULL, &l));
    detail_names("\"c\"");
    detail_names("a, b");
    weir_pool_spec again = spec_of("a", MIB);
    fails(WEIR_ERR_CONFLICT, weir_pool_add(b.pool, &again));
    again.name = "d";
    again.path = "/nowhere/model";
    fails(WEIR_ERR_NOT_FOUND, weir_pool_add(b.pool, &again));
    again.path = NULL;
    fails(WEIR_ERR_INVALID, weir_pool_add(b.pool, &again));
}

/* Several leases run in one loaded model; a slot more waits. */
static void weights_are_there_once(void **state)
{
    enum { SLOTS = 3 };
    asker a;
    weir_lease *l[SLOTS];
    (void)state;
    weir_pool_spec spec = spec_of("a", 6 * MIB);
    spec.slots = SLOTS;
    add_spec(&b, spec);
    for (int i = 0; i < SLOTS; i++)
        l[i] = lease(&b, "a");
    assert_ptr_equal(weir_lease_model(l[0]), weir_lease_model(l[SLOTS - 1]));
    assert_int_equal(entry_of(&b, "a").running, SLOTS);
    assert_int_equal(atomic_load(&e.loads), 1);
    weir_pool_request request = request_of("a");
    request.id = 5;
    start_asking(&a, &b, request);
    wait_for_waiting(&b, 5);
    weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
    ok(weir_pool_waiting(b.pool, 5, &answer));
    assert_int_equal(answer.cause, WEIR_POOL_WAITS_BUSY);
    assert_int_equal(answer.position, 1);
    weir_lease_release(l[1]);
    end_asking(&a);
    ok(a.status);
    assert_int_equal(a.answer.cause, WEIR_POOL_GRANTED);
    assert_int_equal(a.answer.position, 1);
    l[1] = a.lease;
    for (int i = 0; i < SLOTS; i++)
        weir_lease_release(l[i]);
}

static void loads_overlap(void **state)
{
    asker a[2];
    (void)state;
    add(&b, "a", 4 * MIB);
    add(&b, "b", 4 * MIB);
    hold_loads(true);
    start_asking(&a[0], &b, request_of("a"));
    start_asking(&a[1], &b, request_of("b"));
    wait_for_loads(2);
    hold_loads(false);
    for (int i = 0; i < 2; i++) {
        end_asking(&a[i]);
        ok(a[i].status);
        weir_lease_release(a[i].lease);
    }
    assert_int_equal(atomic_load(&e.most_loading), 2);
}

/* Going ------------------------------------------------------------------------------------------------------------ */

static void the_idle_one_goes(void **state)
{
    (void)state;
    add(&b, "a", 6 * MIB);
    add(&b, "b", 6 * MIB);
    for (int i = 1; i <= 3; i++) {
        ok(use(&b, "a"));
        ok(use(&b, "b"));
        in_state(&b, "a", WEIR_POOL_UNLOADED);
        in_state(&b, "b", WEIR_POOL_LOADED);
        check_books(&b);
    }
    assert_int_equal(entry_of(&b, "a").evictions, 3);
    assert_int_equal(entry_of(&b, "b").loads, 3);
    assert_int_equal(entry_of(&b, "b").evictions, 2);
}

static void the_busy_one_never_goes(void **state)
{
    asker a;
    (void)state;
    add(&b, "a", 6 * MIB);
    add(&b, "b", 6 * MIB);
    weir_lease *l = lease(&b, "a");
    weir_pool_request request = request_of("b");
    request.id = 1;
    start_asking(&a, &b, request);
    wait_for_waiting(&b, 1);
    infer_in(l);
    in_state(&b, "a", WEIR_POOL_LOADED);
    in_state(&b, "b", WEIR_POOL_UNLOADED);
    weir_lease_release(l);
    end_asking(&a);
    ok(a.status);
    in_state(&b, "a", WEIR_POOL_UNLOADED);
    weir_lease_release(a.lease);
}

static void the_pinned_one_never_goes(void **state)
{
    weir_pool_spec pinned = spec_of("a", 6 * MIB);
    weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
    weir_pool_request request = request_of("b");
    weir_lease *l;
    (void)state;
    pinned.pinned = true;
    pinned.load_now = true;
    add_spec(&b, pinned);
    in_state(&b, "a", WEIR_POOL_LOADED);
    add(&b, "b", 6 * MIB);
    request.wait = SECOND / 50;
    weir_status status = weir_pool_acquire(b.pool, &request, &answer, &l);
    assert_true(status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_BUSY); /* never, or not in time */
    in_state(&b, "a", WEIR_POOL_LOADED);
    assert_int_equal(entry_of(&b, "a").evictions, 0);
    ok(weir_pool_pin(b.pool, "a", false));
    ok(use(&b, "b"));
    in_state(&b, "a", WEIR_POOL_UNLOADED);
}

/* One that can be suspended is not loaded a second time. */
static void it_is_suspended_instead(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        weir_pool_spec spec = spec_of(i ? "b" : "a", 6 * MIB);
        spec.engine = "pool-double";
        spec.evict_cost = 10 * SECOND; /* a load of the double's is as quick as a resume */
        add_spec(&b, spec);
    }
    for (int i = 1; i <= 4; i++) {
        ok(use(&b, "a"));
        ok(use(&b, "b"));
        in_state(&b, "a", WEIR_POOL_SUSPENDED);
        check_books(&b);
    }
    weir_pool_entry now = entry_of(&b, "a");
    assert_int_equal(atomic_load(&e.loads), 2);
    assert_int_equal(now.suspends, 4);
    assert_int_equal(now.resumes, 3);
    assert_int_equal(now.evictions, 0);
}

static void one_that_will_not_be_suspended_goes_whole(void **state)
{
    weir_pool_spec spec = spec_of("a", 6 * MIB);
    (void)state;
    spec.engine = "pool-double";
    spec.evict_cost = 10 * SECOND;
    add_spec(&b, spec);
    add(&b, "b", 6 * MIB);
    ok(use(&b, "a"));
    atomic_store(&e.fail_suspend, -1);
    ok(use(&b, "b"));
    in_state(&b, "a", WEIR_POOL_UNLOADED);
    atomic_store(&e.fail_suspend, 0);
    ok(use(&b, "a"));
}

/* Never ------------------------------------------------------------------------------------------------------------ */

static void what_never_fits_moves_nothing(void **state)
{
    weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
    weir_pool_request request = request_of("large");
    weir_lease *l;
    (void)state;
    add(&b, "a", 4 * MIB);
    add(&b, "b", 4 * MIB);
    add(&b, "large", 11 * MIB);
    ok(use(&b, "a"));
    ok(use(&b, "b"));
    for (int i = 0; i < 20; i++) {
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_pool_acquire(b.pool, &request, &answer, &l));
        ok(use(&b, i % 2 ? "a" : "b"));
    }
    assert_int_equal(answer.cause, WEIR_POOL_NEVER_FITS);
    assert_int_equal(answer.need, 11 * MIB);
    assert_int_equal(answer.limit, 10 * MIB);
    assert_int_equal(answer.fits, 0);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_pool_acquire(b.pool, &request, &answer, &l));
    detail_names("11 MiB");
    detail_names("10 MiB");
    request.name = "a"; /* a request that is too large for a model that is here */
    request.bytes = 7 * MIB;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_pool_acquire(b.pool, &request, &answer, &l));
    assert_int_equal(answer.cause, WEIR_POOL_NEVER_FITS);
    assert_int_equal(answer.fits, 6 * MIB);
    assert_int_equal(atomic_load(&e.loads), 2);
    assert_int_equal(atomic_load(&e.unloads), 0);
}

/* What others have on the device is not the pool's, and what they give back is. */
static void others_lessen_the_ceiling(void **state)
{
    weir_client *other = open_client(b.runtime, "other", 3 * MIB, 0);
    weir_pool_usage now = WEIR_INIT(weir_pool_usage);
    (void)state;
    ok(weir_pool_usage_info(b.pool, 0, &now));
    assert_int_equal(now.ceiling, 7 * MIB);
    assert_string_equal(now.device, host_writes() ? "host" : "cuda:0");
    void *block = allocate(other, 5 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    ok(weir_pool_usage_info(b.pool, 0, &now));
    assert_int_equal(now.ceiling, 5 * MIB);
    add(&b, "a", 6 * MIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, use(&b, "a"));
    ok(weir_free(other, block, WEIR_STREAM_HOST));
    ok(use(&b, "a"));
    ok(weir_pool_usage_info(b.pool, 0, &now));
    assert_int_equal(now.ceiling, 7 * MIB); /* the model is the pool's own */
    ok(weir_runtime_set_budget(b.runtime, 9 * MIB));
    ok(weir_pool_usage_info(b.pool, 0, &now));
    assert_int_equal(now.ceiling, 6 * MIB);
    ok(weir_client_destroy(other));
}

/* Bytes that a request asks for are its client's until the end of the lease. */
static void a_request_has_its_bytes(void **state)
{
    weir_pool_request request = request_of("a");
    weir_lease *l;
    (void)state;
    weir_pool_spec spec = spec_of("a", 4 * MIB);
    spec.slots = 2;
    add_spec(&b, spec);
    add(&b, "b", 4 * MIB);
    request.bytes = 3 * MIB;
    ok(weir_pool_acquire(b.pool, &request, NULL, &l));
    assert_int_equal(take_snapshot(b.runtime).clients[0].guaranteed, 7 * MIB);
    assert_int_equal(entry_of(&b, "a").promised, 3 * MIB);
    assert_int_equal(taken(&b), 7 * MIB);
    weir_pool_request other = request_of("b");
    other.wait = WEIR_POOL_NONE;
    weir_lease *none;
    fails(WEIR_ERR_BUSY, weir_pool_acquire(b.pool, &other, NULL, &none)); /* not beside that */
    weir_lease_release(l);
    assert_int_equal(take_snapshot(b.runtime).clients[0].guaranteed, 4 * MIB);
    assert_int_equal(entry_of(&b, "a").promised, 0);
    ok(use(&b, "b"));
}

/* More than the model may have is refused, whatever room there is. */
static void a_maximum_is_its_own(void **state)
{
    weir_pool_spec spec = spec_of("a", 4 * MIB);
    weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
    weir_pool_request request = request_of("a");
    weir_lease *l[2];
    (void)state;
    spec.maximum = 6 * MIB;
    spec.slots = 2;
    add_spec(&b, spec);
    request.bytes = 2 * MIB + 1;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_pool_acquire(b.pool, &request, &answer, &l[0]));
    assert_int_equal(answer.cause, WEIR_POOL_NEVER_FITS);
    assert_int_equal(answer.limit, 6 * MIB);
    assert_int_equal(answer.fits, 2 * MIB);
    assert_int_equal(atomic_load(&e.loads), 0);
    request.bytes = 2 * MIB;
    for (int i = 0; i < 2; i++) /* each for itself; together they share what there is */
        ok(weir_pool_acquire(b.pool, &request, &answer, &l[i]));
    assert_int_equal(take_snapshot(b.runtime).clients[0].guaranteed, 6 * MIB);
    for (int i = 0; i < 2; i++)
        weir_lease_release(l[i]);
    assert_int_equal(take_snapshot(b.runtime).clients[0].guaranteed, 4 * MIB);
}

/* What a run leaves in the model is measured when nothing runs in it, and counts from there on. */
static void what_stays_of_a_run_counts(void **state)
{
    static const weir_setting keep[] = {{"keep", "1048576"}};
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    weir_pool_request request = request_of("a");
    weir_lease *l;
    (void)state;
    add(&b, "a", 4 * MIB);
    inference.settings = keep;
    inference.setting_count = 1;
    request.bytes = 2 * MIB;
    ok(weir_pool_infer(b.pool, &request, &inference, &out, NULL, &l));
    weir_lease_release(l);
    assert_int_equal(taken(&b), 5 * MIB);
    assert_int_equal(take_snapshot(b.runtime).clients[0].guaranteed, 5 * MIB);
}

/* A load that takes more than was predicted is predicted better the next time. */
static void a_load_teaches(void **state)
{
    weir_setting settings[] = {{"weights", "6291456"}, {"told", "1048576"}};
    (void)state;
    weir_pool_spec spec = spec_of("a", 0);
    spec.settings = settings;
    spec.setting_count = 2;
    add_spec(&b, spec);
    add(&b, "b", 7 * MIB);
    assert_int_equal(entry_of(&b, "a").predicted_peak, MIB);
    ok(use(&b, "a"));
    assert_int_equal(taken(&b), 6 * MIB);
    ok(use(&b, "b")); /* it knows that they do not fit together */
    in_state(&b, "a", WEIR_POOL_UNLOADED);
    ok(use(&b, "a"));
    in_state(&b, "b", WEIR_POOL_UNLOADED);
    assert_int_equal(entry_of(&b, "a").failures, 0);
}

/* A smaller variant is had where there is no room for all. */
static void something_is_given_up(void **state)
{
    static const weir_setting small[] = {{"weights", "2097152"}};
    weir_pool_variant variant = WEIR_INIT(weir_pool_variant);
    weir_pool_spec spec = spec_of("a", 12 * MIB);
    (void)state;
    variant.settings = small;
    variant.setting_count = 1;
    variant.context = 512;
    spec.variants = &variant;
    spec.variant_count = 1;
    add_spec(&b, spec);
    ok(use(&b, "a"));
    weir_pool_entry now = entry_of(&b, "a");
    assert_int_equal(now.variant, 1);
    assert_int_equal(now.taken, 2 * MIB);
}

/* Waiting ---------------------------------------------------------------------------------------------------------- */

static void the_queue_has_an_end(void **state)
{
    asker a;
    weir_pool_options options = WEIR_INIT(weir_pool_options);
    weir_pool_request request = request_of("a");
    weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
    weir_lease *none;
    (void)state;
    end_bed(&b);
    options.queue = 1;
    make_bed(&b, 10 * MIB, &options);
    add(&b, "a", MIB);
    weir_lease *l = lease(&b, "a");
    request.wait = WEIR_POOL_NONE;
    fails(WEIR_ERR_BUSY, weir_pool_acquire(b.pool, &request, &answer, &none));
    assert_int_equal(answer.cause, WEIR_POOL_WAITS_BUSY);
    request.wait = 0;
    request.id = 1;
    start_asking(&a, &b, request);
    wait_for_waiting(&b, 1);
    fails(WEIR_ERR_BUSY, weir_pool_acquire(b.pool, &request, &answer, &none));
    assert_int_equal(answer.cause, WEIR_POOL_QUEUE_FULL);
    detail_names("1 of 1");
    weir_lease_release(l);
    end_asking(&a);
    ok(a.status);
    request.wait = SECOND / 100;
    fails(WEIR_ERR_BUSY, weir_pool_acquire(b.pool, &request, &answer, &none));
    assert_int_equal(answer.cause, WEIR_POOL_TOO_LATE);
    assert_true(answer.waited >= SECOND / 100);
    assert_int_equal(answer.position, 1);
    weir_lease_release(a.lease);
}

static void a_wait_is_cancelled(void **state)
{
    enum { THREADS = 3 };
    asker a[THREADS];
    weir_pool_request request = request_of("a");
    (void)state;
    add(&b, "a", MIB);
    weir_lease *l = lease(&b, "a");
    for (int i = 0; i < THREADS; i++) {
        request.id = i < 2 ? 7 : 8;
        start_asking(&a[i], &b, request);
    }
    while (entry_of(&b, "a").waiting < THREADS)
        sched_yield();
    ok(weir_pool_cancel(b.pool, 7));
    for (int i = 0; i < 2; i++) {
        end_asking(&a[i]);
        assert_int_equal(a[i].status, WEIR_ERR_CANCELLED);
        assert_int_equal(a[i].answer.cause, WEIR_POOL_CANCELLED);
    }
    fails(WEIR_ERR_NOT_FOUND, weir_pool_cancel(b.pool, 7));
    fails(WEIR_ERR_NOT_FOUND, weir_pool_cancel(b.pool, 0));
    weir_lease_release(l);
    end_asking(&a[2]);
    ok(a[2].status);
    weir_lease_release(a[2].lease);
}

/* The wait ends at once, while the load goes on. */
static void the_wait_for_a_load_is_cancelled(void **state)
{
    asker a;
    weir_pool_request request = request_of("a");
    (void)state;
    add(&b, "a", MIB);
    request.id = 3;
    hold_loads(true);
    start_asking(&a, &b, request);
    wait_for_loads(1);
    ok(weir_pool_cancel(b.pool, 3));
    end_asking(&a);
    assert_int_equal(a.status, WEIR_ERR_CANCELLED);
    assert_int_equal(atomic_load(&e.loads), 0);
    hold_loads(false);
    /* nobody else wants it: the engine is asked to stop, and nothing of it is left */
    wait_for_event(&b, WEIR_POOL_EVENT_STOPPED, 1);
    in_state(&b, "a", WEIR_POOL_UNLOADED);
    assert_int_equal(atomic_load(&e.stopped), 1);
    assert_int_equal(taken(&b), 0);
    check_empty(b.runtime);
    assert_int_equal(take_snapshot(b.runtime).count, 0);
    weir_pool_entry now = entry_of(&b, "a");
    assert_true(now.failures == 0 && now.loads == 0 && !now.why[0]);
    ok(use(&b, "a"));
}

/* Who comes while the engine has not stopped yet has it loaded again; and one that is removed is not loaded to the end. */
static void a_stopped_load_begins_again(void **state)
{
    asker a, other;
    weir_pool_request request = request_of("a");
    (void)state;
    add(&b, "a", MIB);
    request.id = 3;
    hold_loads(true);
    start_asking(&a, &b, request);
    wait_for_loads(1);
    ok(weir_pool_cancel(b.pool, 3));
    end_asking(&a);
    request.id = 4;
    start_asking(&other, &b, request);
    wait_for_waiting(&b, 4);
    hold_loads(false);
    end_asking(&other);
    ok(other.status);
    weir_lease_release(other.lease);
    assert_int_equal(atomic_load(&e.stopped), 1);
    ok(weir_pool_unload(b.pool, "a", 0, NULL));
    hold_loads(true);
    start_asking(&a, &b, request);
    wait_for_loads(1);
    assert_int_equal(weir_pool_remove(b.pool, "a", 0, NULL), WEIR_ERR_BUSY);
    end_asking(&a);
    assert_int_equal(a.status, WEIR_ERR_NOT_FOUND);
    hold_loads(false);
    wait_for_event(&b, WEIR_POOL_EVENT_REMOVED, 1);
    assert_int_equal(atomic_load(&e.stopped), 2);
}

/* The whole of it was predicted to take less than it does: the load is refused the rest, and a smaller one comes. */
static void a_load_without_memory_is_tried_smaller(void **state)
{
    weir_setting whole[] = {{"weights", "6291456"}, {"told", "1048576"}}, small[] = {{"weights", "2097152"}};
    static const weir_pool_step steps[] = {WEIR_POOL_STEP_CONTEXT, WEIR_POOL_STEP_WAIT};
    weir_pool_variant variant = WEIR_INIT(weir_pool_variant);
    weir_pool_spec spec = spec_of("a", 0), pinned = spec_of("pinned", 5 * MIB);
    (void)state;
    pinned.pinned = true;
    add_spec(&b, pinned);
    ok(use(&b, "pinned"));
    variant.settings = small;
    variant.setting_count = 1;
    spec.settings = whole;
    spec.setting_count = 2;
    spec.variants = &variant;
    spec.variant_count = 1;
    spec.gives_up = steps;
    spec.gives_up_count = 2;
    add_spec(&b, spec);
    ok(use(&b, "a"));
    weir_pool_entry now = entry_of(&b, "a");
    assert_int_equal(now.variant, 1);
    assert_int_equal(now.failures, 1);
    assert_int_equal(now.taken, 2 * MIB);
    check_books(&b);
}

/* A list without a wait: refused, with numbers. */
static void a_list_without_a_wait_refuses(void **state)
{
    static const weir_pool_step steps[] = {WEIR_POOL_STEP_EVICT};
    weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
    weir_pool_spec spec = spec_of("a", 6 * MIB);
    weir_pool_request request = request_of("a");
    weir_lease *l;
    (void)state;
    add(&b, "b", 6 * MIB);
    spec.gives_up = steps;
    spec.gives_up_count = 1;
    add_spec(&b, spec);
    weir_lease *busy = lease(&b, "b");
    fails(WEIR_ERR_BUSY, weir_pool_acquire(b.pool, &request, &answer, &l));
    detail_names("what it may give up has no wait");
    assert_int_equal(answer.cause, WEIR_POOL_NO_ROOM);
    assert_int_equal(answer.need, 6 * MIB);
    weir_lease_release(busy);
    ok(use(&b, "a"));
}

/* A pool that ends, on a thread of its own. */
static void *end_it(void *user)
{
    *(weir_status *)user = weir_pool_destroy(b.pool);
    return NULL;
}

static void the_end_refuses_who_waits(void **state)
{
    asker a[2];
    pthread_t ender;
    weir_status ended = WEIR_ERR_INVALID;
    weir_pool_options options = WEIR_INIT(weir_pool_options);
    (void)state;
    add(&b, "a", MIB);
    weir_lease *l = lease(&b, "a");
    fails(WEIR_ERR_BUSY, weir_pool_destroy(b.pool)); /* and nothing has changed */
    weir_lease_release(l);
    ok(use(&b, "a"));
    add(&b, "b", MIB);
    hold_loads(true);
    for (int i = 0; i < 2; i++)
        start_asking(&a[i], &b, request_of("b"));
    wait_for_loads(1);
    while (entry_of(&b, "b").waiting < 2)
        sched_yield();
    assert_int_equal(pthread_create(&ender, NULL, end_it, &ended), 0);
    for (int i = 0; i < 2; i++) {
        end_asking(&a[i]); /* while the load lasts */
        assert_int_equal(a[i].status, WEIR_ERR_CANCELLED);
    }
    hold_loads(false);
    pthread_join(ender, NULL);
    ok(ended);
    assert_int_equal(atomic_load(&e.stopped), 1);
    assert_int_equal(atomic_load(&e.loads), 1);
    assert_int_equal(atomic_load(&e.unloads), 1);
    check_empty(b.runtime);
    weir_pool_device device = {"host", b.runtime};
    options.devices = &device;
    options.device_count = 1;
    ok(weir_pool_create(&options, &b.pool));
}

/* Calls that no state of the program makes acceptable, and a child. ---------------------------------------------------- */

static void wrong_calls(void **state)
{
    weir_pool *pool;
    weir_lease *l;
    weir_pool_options options = WEIR_INIT(weir_pool_options);
    weir_pool_device twice[] = {{"host", b.runtime}, {"host", b.runtime}};
    weir_pool_request request = WEIR_INIT(weir_pool_request);
    weir_pool_answer unset = {0};
    (void)state;
    options.devices = twice;
    options.device_count = 2;
    fails(WEIR_ERR_INVALID, weir_pool_create(&options, &pool));
    detail_names("is given twice");
    assert_null(pool);
    fails(WEIR_ERR_INVALID, weir_pool_create(NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_pool_destroy(NULL));
    fails(WEIR_ERR_INVALID, weir_pool_acquire(b.pool, &request, NULL, &l)); /* no name */
    request.name = "a";
    fails(WEIR_ERR_INVALID, weir_pool_acquire(NULL, &request, NULL, &l));
    fails(WEIR_ERR_INVALID, weir_pool_acquire(b.pool, &request, NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_pool_acquire(b.pool, &request, &unset, &l));
    request.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_pool_acquire(b.pool, &request, NULL, &l));
    fails(WEIR_ERR_INVALID, weir_pool_load(b.pool, NULL, 0));
    fails(WEIR_ERR_NOT_FOUND, weir_pool_load(b.pool, "a", 0));
    fails(WEIR_ERR_NOT_FOUND, weir_pool_pin(b.pool, "a", true));
    weir_lease_release(NULL);
    assert_null(weir_lease_model(NULL));
    weir_pool_spec spec = spec_of("a", MIB);
    spec.device = "cuda:63";
    fails(WEIR_ERR_NOT_FOUND, weir_pool_add(b.pool, &spec));
    spec = spec_of("a", MIB);
    spec.maximum = MIB / 2;
    fails(WEIR_ERR_INVALID, weir_pool_add(b.pool, &spec));
    spec.guaranteed = MIB;
    fails(WEIR_ERR_INVALID, weir_pool_add(b.pool, &spec));
    spec = spec_of("a", MIB);
    spec.variant_count = 8;
    fails(WEIR_ERR_INVALID, weir_pool_add(b.pool, &spec));
    spec.variant_count = 1;
    fails(WEIR_ERR_INVALID, weir_pool_add(b.pool, &spec));
    spec = spec_of("a name with more than sixty-three bytes, which is one more than there may be", MIB);
    fails(WEIR_ERR_INVALID, weir_pool_add(b.pool, &spec));
    assert_string_equal(weir_pool_state_name(WEIR_POOL_SUSPENDED), "suspended");
    assert_string_equal(weir_pool_cause_name(WEIR_POOL_NEVER_FITS), "never-fits");
    assert_string_equal(weir_pool_cause_name(WEIR_POOL_CAUSE_COUNT), "?");
    assert_string_equal(weir_pool_state_name(WEIR_POOL_STATE_COUNT), "?");
}

static void a_child_is_refused(void **state)
{
    int status = 0;
    (void)state;
    add(&b, "a", MIB);
    weir_lease *l = lease(&b, "a");
    pid_t child = fork();
    if (child == 0) {
        weir_pool_request request = request_of("a");
        weir_lease *mine;
        bool right = weir_pool_acquire(b.pool, &request, NULL, &mine) == WEIR_ERR_FORKED &&
                     weir_pool_list(b.pool, NULL, 0, NULL) == WEIR_ERR_FORKED &&
                     weir_pool_destroy(b.pool) == WEIR_ERR_FORKED;
        weir_lease_release(l);
        _exit(right ? 0 : 1);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    weir_lease_release(l);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_request_loads),
        CASE(what_is_guaranteed_while_it_loads),
        CASE(a_name_that_is_none),
        CASE(weights_are_there_once),
        CASE(loads_overlap),
        CASE(the_idle_one_goes),
        CASE(the_busy_one_never_goes),
        CASE(the_pinned_one_never_goes),
        CASE(it_is_suspended_instead),
        CASE(one_that_will_not_be_suspended_goes_whole),
        CASE(what_never_fits_moves_nothing),
        CASE(others_lessen_the_ceiling),
        CASE(a_request_has_its_bytes),
        CASE(a_maximum_is_its_own),
        CASE(what_stays_of_a_run_counts),
        CASE(a_load_teaches),
        CASE(something_is_given_up),
        CASE(the_queue_has_an_end),
        CASE(a_wait_is_cancelled),
        CASE(the_wait_for_a_load_is_cancelled),
        CASE(a_stopped_load_begins_again),
        CASE(a_load_without_memory_is_tried_smaller),
        CASE(a_list_without_a_wait_refuses),
        CASE(the_end_refuses_who_waits),
        CASE(wrong_calls),
        CASE(a_child_is_refused),
    };
    register_engines();
    return cmocka_run_group_tests_name("pool-requests", tests, NULL, NULL);
}
