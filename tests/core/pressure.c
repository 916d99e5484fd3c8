/* Pressure callbacks: when they are asked, in which order and how often, and what comes of it. */
#include "info.h"
#include "pressure.h"

/* Order, number and effect ------------------------------------------------------------------------------------------ */

static void the_lowest_priority_is_asked_first(void **state)
{
    (void)state;
    fixture f = start();
    char order[16] = "";
    giver last = {.f = &f, .name = 'd', .order = order, .gives = 1}, third = {.f = &f, .name = 'c', .order = order},
          second = {.f = &f, .name = 'b', .order = order}, first = {.f = &f, .name = 'a', .order = order};
    (void)add(&f, 7, give, &last);
    (void)add(&f, 5, give, &second);
    (void)add(&f, -5, give, &first);
    (void)add(&f, 5, give, &third);
    keep_all(&f);
    void *p = allocate(f.other, 1000, f.stream, WEIR_CLASS_SCRATCH);
    assert_string_equal(order, "abcd");
    assert_int_equal(last.told.bytes, 1024);
    assert_int_equal(last.told.shortfall, 1024);
    assert_ptr_equal(last.told.client, f.other);
    assert_string_equal(last.told.device, runtime_details(f.runtime).device);
    assert_int_equal(last.told.memory_class, WEIR_CLASS_SCRATCH);
    assert_int_equal(last.told.attempt, 1);
    assert_int_equal(served_by_pressure(&f), 1);
    assert_int_equal(count_kept(&f), PARTS - 1);
    ok(weir_free(f.other, p, f.stream));
    end(&f);
}

/* One that makes room is asked again before the next is; what is not needed stays. */
static void only_what_is_needed_is_given_up(void **state)
{
    (void)state;
    fixture f = start();
    giver cheap = {.f = &f, .gives = 1}, dear = {.f = &f, .gives = PARTS};
    (void)add(&f, 2, give, &dear);
    (void)add(&f, 1, give, &cheap);
    keep_all(&f);
    void *p = allocate(f.other, 2 * PART, f.stream, WEIR_CLASS_KV);
    assert_int_equal(cheap.calls, 2);
    assert_int_equal(cheap.told.attempt, 2);
    assert_int_equal(cheap.told.shortfall, PART);
    assert_int_equal(dear.calls, 0);
    assert_int_equal(count_kept(&f), 2);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    end(&f);
}

static void what_does_not_help_is_asked_once(void **state)
{
    (void)state;
    fixture f = start();
    giver idle = {.f = &f}, idle_too = {.f = &f};
    uint64_t first = add(&f, 0, give, &idle);
    (void)add(&f, 0, give, &idle_too);
    keep_all(&f);
    void *p;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.other, PART, f.stream, WEIR_CLASS_KV, &p));
    assert_int_equal(idle.calls, 1);
    assert_int_equal(idle_too.calls, 1);
    ok(weir_pressure_unregister(f.runtime, first));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.other, PART, f.stream, WEIR_CLASS_KV, &p));
    assert_int_equal(idle.calls, 1);
    assert_int_equal(idle_too.calls, 2);
    assert_int_equal(idle_too.told.attempt, 1); /* of this request */
    assert_int_equal(served_by_pressure(&f), 0);
    end(&f);
}

static void not_where_nothing_is_short(void **state)
{
    (void)state;
    fixture f = start();
    giver g = {.f = &f, .gives = PARTS};
    (void)add(&f, 0, give, &g);
    keep_all(&f);
    assert_true(give_up_one(&f));
    void *p = allocate(f.other, PART, f.stream, WEIR_CLASS_KV);
    assert_int_equal(g.calls, 0);
    ok(weir_free(f.other, p, f.stream));
    end(&f);
}

static void not_for_requests_that_may_not_wait(void **state)
{
    (void)state;
    fixture f = start();
    giver g = {.f = &f, .gives = PARTS};
    (void)add(&f, 0, give, &g);
    keep_all(&f);
    void *p;
    weir_reservation *r;
    fails(WEIR_ERR_OUT_OF_MEMORY, take_at_once(f.other, PART, f.stream, &p));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_reservation_create(f.other, PART, WEIR_ALLOC_NO_WAIT, &r));
    ok(weir_capture_begin(f.stream, NULL));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.other, PART, f.stream, WEIR_CLASS_KV, &p));
    ok(weir_capture_end(f.stream, NULL));
    assert_int_not_equal(weir_resize(f.keeper, f.kept[PARTS - 1], 2 * PART, f.stream), WEIR_OK);
    assert_int_equal(g.calls, 0);
    ok(weir_reservation_create(f.other, PART, 0, &r)); /* this one may */
    assert_int_equal(g.calls, 1);
    ok(weir_reservation_destroy(r));
    end(&f);
}

/* Memory that a callback reserves is no room: it is not asked once more. */
static void reserve_more(const weir_pressure *pressure, void *user)
{
    giver *g = user;
    (void)pressure;
    if (g->calls++ == 0)
        ok(weir_reservation_create(g->f->keeper, PART / 2, WEIR_ALLOC_NO_WAIT, &g->reserved));
}

static void what_is_reserved_is_no_room(void **state)
{
    (void)state;
    fixture f = start();
    giver g = {.f = &f};
    void *p;
    for (int i = 0; i < PARTS - 1; i++)
        f.kept[i] = allocate(f.keeper, PART, f.stream, WEIR_CLASS_KV);
    (void)add(&f, 0, reserve_more, &g);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.other, 2 * PART, f.stream, WEIR_CLASS_KV, &p));
    assert_int_equal(g.calls, 1);
    ok(weir_reservation_destroy(g.reserved));
    end(&f);
}

/* It is not only the budget that can be short, and not only frees that help. */
static void raise_the_maximum(const weir_pressure *pressure, void *user)
{
    fixture *f = user;
    assert_int_equal(pressure->shortfall, PART);
    ok(weir_client_set_limits(f->other, 0, 2 * PART));
}

static void a_limit_that_is_raised(void **state)
{
    (void)state;
    fixture f = start();
    ok(weir_client_set_limits(f.other, 0, PART));
    (void)add(&f, 0, raise_the_maximum, &f);
    void *p = allocate(f.other, 2 * PART, f.stream, WEIR_CLASS_KV);
    assert_int_equal(served_by_pressure(&f), 1);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    end(&f);
}

/* A guarantee that is not used up is there for its client, and for nobody else. */
static void what_is_guaranteed_is_not_short(void **state)
{
    (void)state;
    fixture f = start();
    giver g = {.f = &f, .gives = 1};
    ok(weir_client_set_limits(f.other, PART, 0));
    for (int i = 0; i < PARTS - 1; i++)
        f.kept[i] = allocate(f.keeper, PART, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    (void)add(&f, 0, give, &g);
    void *p = allocate(f.other, 2 * PART, f.stream, WEIR_CLASS_KV);
    assert_int_equal(g.calls, 1);
    assert_int_equal(g.told.shortfall, PART);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    end(&f);
}

/* What stands in the way of one piece. */
static void give_up_the_neighbour(const weir_pressure *pressure, void *user)
{
    fixture *f = user;
    assert_true(pressure->shortfall <= pressure->bytes && pressure->shortfall > 0);
    (void)give_up_one(f);
}

static void pieces_that_are_too_small(void **state)
{
    (void)state;
    fixture f = start();
    void *small[2 * PARTS];
    (void)add(&f, 0, give_up_the_neighbour, &f);
    for (int i = 0; i < 2 * PARTS; i++)
        small[i] = allocate(f.other, PART / 2, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    for (int i = 0; i < 2 * PARTS; i += 2)
        ok(weir_free(f.other, small[i], WEIR_STREAM_HOST));
    for (int i = 0; i < 3; i++) { /* a bit of each handle, so that none can be moved */
        f.kept[i] = small[2 * i + 1];
        small[2 * i + 1] = NULL;
    }
    for (int i = 0; i < 3; i++) {
        ok(weir_free(f.other, f.kept[i], WEIR_STREAM_HOST));
        f.kept[i] = allocate(f.keeper, PART / 2, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    }
    void *p = allocate(f.other, 3 * PART, f.stream, WEIR_CLASS_KV);
    assert_int_equal(served_by_pressure(&f), 1);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    for (int i = 0; i < 2 * PARTS; i++)
        if (i % 2 && small[i])
            ok(weir_free(f.other, small[i], WEIR_STREAM_HOST));
    end(&f);
}

/* Freed on a stream that has more to do: it is waited for, though the limits had no room before the callback. */
static void free_behind_work(const weir_pressure *pressure, void *user)
{
    fixture *f = user;
    (void)pressure;
    if (f->kept[0])
        free_behind(f->keeper, f->kept[0], f->stream);
    f->kept[0] = NULL;
}

static void what_is_freed_may_be_waited_for(void **state)
{
    (void)state;
    fixture f = start();
    pthread_t opener;
    keep_all(&f);
    (void)add(&f, 0, free_behind_work, &f);
    if (!f.sim)
        ok(weir_call(f.runtime, pass_gate, &f.gate, f.stream));
    ok(weir_fill(f.runtime, f.kept[0], 1, PART, f.stream));
    pthread_create(&opener, NULL, open_gate_later, &f.gate);
    void *p = allocate(f.other, PART, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    pthread_join(opener, NULL);
    weir_stats stats = take_snapshot(f.runtime).device;
    assert_int_equal(stats.ladder[WEIR_RUNG_WAIT], 1);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    end(&f);
}

static void free_in_order(const weir_pressure *pressure, void *user)
{
    fixture *f = user;
    (void)pressure;
    if (f->kept[0])
        ok(weir_free(f->keeper, f->kept[0], f->stream));
    f->kept[0] = NULL;
}

/* A thread cache may keep what a callback frees. */
static void what_a_callback_frees_may_stay_in_a_thread_cache(void **state)
{
    enum { SMALL = 4096 };
    (void)state;
    ok(weir_option_set("thread_cache", "1MiB"));
    fixture f = start();
    ok(weir_option_set("thread_cache", NULL));
    giver last = {.f = &f};
    (void)add(&f, 0, free_in_order, &f);
    (void)add(&f, 1, give, &last);
    f.kept[0] = allocate(f.keeper, SMALL, f.stream, WEIR_CLASS_KV);
    void *most = allocate(f.other, BUDGET - GRANULE, f.stream, WEIR_CLASS_WEIGHTS), *p;
    p = allocate(f.other, GRANULE, f.stream, WEIR_CLASS_WEIGHTS);
    assert_int_equal(last.calls, 0); /* the first one has helped */
    assert_int_equal(served_by_pressure(&f), 1);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    ok(weir_free(f.other, most, WEIR_STREAM_HOST));
    end(&f);
}

/* Pinned memory is the host's to make room for. */
static void memory_of_another_kind(void **state)
{
    (void)state;
    if (!on_sim())
        skip(); /* there is one kind */
    wi_sim_configure(&(wi_sim_options){.seed = 1, .granule = GRANULE, .bytes = 64 * MIB});
    weir_runtime *host = make_runtime(BUDGET);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .host = host};
    fixture f = {.sim = true};
    ok(weir_runtime_create("sim:0", &options, &f.runtime));
    ok(weir_stream_acquire(f.runtime, &f.stream));
    f.other = open_client(f.runtime, "other", 0, 0);
    f.keeper = open_client(host, "keeper", 0, 0);
    giver of_device = {.f = &f}, of_host = {.f = &f, .gives = 1};
    uint64_t id;
    ok(weir_pressure_register(f.runtime, 0, give, &of_device, &id));
    ok(weir_pressure_register(host, 0, give, &of_host, &id));
    for (int i = 0; i < PARTS; i++)
        f.kept[i] = allocate(f.keeper, PART, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    weir_request request = {.struct_size = sizeof request, .bytes = PART, .kind = WEIR_KIND_PINNED};
    weir_block block;
    ok(weir_alloc_with(f.other, &request, &block));
    assert_int_equal(of_device.calls, 0);
    assert_int_equal(of_host.calls, 1);
    assert_string_equal(of_host.told.device, "host");
    assert_ptr_equal(of_host.told.client, f.other);
    ok(weir_free_block(f.other, block, WEIR_STREAM_HOST));
    while (give_up_one(&f))
        continue;
    ok(weir_client_destroy(f.keeper));
    ok(weir_client_destroy(f.other));
    ok(weir_stream_release(f.stream));
    ok(weir_runtime_destroy(f.runtime));
    ok(weir_runtime_destroy(host));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_priority_is_asked_first),
        cmocka_unit_test(only_what_is_needed_is_given_up),
        cmocka_unit_test(what_does_not_help_is_asked_once),
        cmocka_unit_test(not_where_nothing_is_short),
        cmocka_unit_test(not_for_requests_that_may_not_wait),
        cmocka_unit_test(what_is_reserved_is_no_room),
        cmocka_unit_test(a_limit_that_is_raised),
        cmocka_unit_test(what_is_guaranteed_is_not_short),
        cmocka_unit_test(pieces_that_are_too_small),
        cmocka_unit_test(what_is_freed_may_be_waited_for),
        cmocka_unit_test(what_a_callback_frees_may_stay_in_a_thread_cache),
        cmocka_unit_test(memory_of_another_kind),
    };
    setenv("WEIR_THREAD_CACHE", "0", 1); /* no thread cache keeps what is freed, but where a test asks for it */
    return cmocka_run_group_tests_name("pressure", tests, NULL, NULL);
}
