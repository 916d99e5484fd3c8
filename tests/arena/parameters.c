/* Stores of parameters: they grow without moving anything, keep every byte, and refuse without a trace. */
#include "info.h"
#include "arena/fixture.h"
#include <weir/arena.h>

enum { MOST = 64 };

static int set_up(void **state)
{
    return open_fixture(state, 64 * MIB, NULL);
}

static weir_parameters *open_store(fixture *f, weir_parameters_options o)
{
    weir_parameters *store;
    o.struct_size = sizeof o;
    ok(weir_parameters_create(f->client, &o, &store));
    return store;
}

static void add_pattern(weir_parameters *store, const char *name, weir_type type, uint64_t elements, uint64_t seed)
{
    uint64_t bytes = elements * type_bytes(type);
    unsigned char *contents = malloc(bytes + 1);
    pattern(contents, bytes, seed);
    ok(weir_parameters_add(store, name, type, elements, contents, WEIR_STREAM_HOST, NULL));
    free(contents);
}

/* Every parameter is read back after every one that is added; `between` stands in the way of growth now and then. */
static void grow_and_read_back(fixture *f, weir_parameters *store, bool obstacles)
{
    void *pointers[MOST], *between[MOST] = {NULL};
    uint64_t sizes[MOST], r = 77;
    char name[16];
    for (uint32_t i = 0; i < MOST; i++) {
        sizes[i] = 1 + next_random(&r) % (24 * KIB);
        (void)snprintf(name, sizeof name, "w%u", i);
        add_pattern(store, name, i % 2 ? WEIR_TYPE_F16 : WEIR_TYPE_BF16, sizes[i], i);
        weir_parameter p = parameter(store, name);
        assert_int_equal(p.bytes, 2 * sizes[i]);
        assert_int_equal((uintptr_t)p.pointer % 256, 0);
        pointers[i] = p.pointer;
        for (uint32_t k = 0; k <= i; k++) {
            weir_parameter q = {.struct_size = sizeof q};
            ok(weir_parameter_info(store, NULL, k, &q));
            assert_ptr_equal(q.pointer, pointers[k]);
            assert_true(holds_pattern(f, pointers[k], 2 * sizes[k], k));
        }
        if (obstacles && i % 8 == 0)
            between[i] = allocate(f->client, 64 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    }
    for (uint32_t i = 0; i < MOST; i++)
        ok(weir_free(f->client, between[i], WEIR_STREAM_HOST));
}

static void growth_moves_nothing_and_keeps_every_byte(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.step = 4 * KIB});
    grow_and_read_back(f, store, false);
    weir_parameters_details d = store_details(store);
    assert_int_equal(d.count, MOST);
    assert_int_equal(d.blocks, 1); /* it grew in place, over and over */
    assert_true(d.bytes > 64 * 4 * KIB && d.charged >= d.bytes);
    assert_int_equal(live_of(f), d.charged);
    ok(weir_parameters_release(store));
}

static void something_behind_it_begins_another_block(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.step = 4 * KIB});
    grow_and_read_back(f, store, true);
    assert_true(store_details(store).blocks > 1);
    ok(weir_parameters_release(store));
}

static void what_is_expected_is_taken_once(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.expected = 4 * MIB});
    assert_int_equal(live_of(f), 0);
    grow_and_read_back(f, store, true);
    weir_parameters_details d = store_details(store);
    assert_int_equal(d.blocks, 1);
    assert_int_equal(d.charged, 4 * MIB);
    ok(weir_parameters_release(store));
}

/* Odd sizes: aligning them takes more than they have. */
static void what_is_expected_has_room_for_padding(void **state)
{
    fixture *f = *state;
    char name[16];
    for (int counted = 0; counted < 2; counted++) {
        weir_parameters_options o = {.expected = 1000 * 300, .step = 4 * KIB, .alignment = 512};
        o.expected_count = counted ? 1000 : 0;
        weir_parameters *store = open_store(f, o);
        void *behind = NULL;
        for (unsigned i = 0; i < 1000; i++) {
            (void)snprintf(name, sizeof name, "w%u", i);
            ok(weir_parameters_add(store, name, WEIR_TYPE_U8, 300, NULL, WEIR_STREAM_HOST, NULL));
            behind = behind ? behind : allocate(f->client, 64 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        }
        weir_parameters_details d = store_details(store);
        assert_int_equal(d.bytes, 1000 * 300);
        assert_true(counted ? d.blocks == 1 : d.blocks > 1);
        assert_true(!counted || d.charged < o.expected + 1000 * 512 + 256); /* and no more */
        ok(weir_free(f->client, behind, WEIR_STREAM_HOST));
        ok(weir_parameters_release(store));
    }
    weir_parameters_options most = {.struct_size = sizeof most, .expected = UINT64_MAX / 4, .alignment = 2 * MIB};
    weir_parameters *store;
    most.expected_count = UINT32_MAX; /* whose sum is too much for a device, and not for a number */
    fails(WEIR_ERR_INVALID, weir_parameters_create(f->client, &most, &store));
}

static void a_name_that_is_there_keeps_its_place(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.step = 64 * KIB});
    add_pattern(store, "w", WEIR_TYPE_F16, 1000, 1);
    add_pattern(store, "v", WEIR_TYPE_F16, 1000, 2);
    weir_parameter before = parameter(store, "w");
    uint64_t live = live_of(f);
    for (int i = 0; i < 100; i++)
        add_pattern(store, "w", WEIR_TYPE_F16, 1000, 3);
    assert_ptr_equal(parameter(store, "w").pointer, before.pointer);
    assert_true(holds_pattern(f, before.pointer, 2000, 3));
    assert_true(holds_pattern(f, parameter(store, "v").pointer, 2000, 2));
    assert_int_equal(live_of(f), live);
    assert_int_equal(store_details(store).count, 2);
    fails(WEIR_ERR_CONFLICT, weir_parameters_add(store, "w", WEIR_TYPE_BF16, 1000, NULL, f->a, NULL));
    detail_names("\"w\" as f16 of 1000");
    detail_names("bf16 of 1000");
    fails(WEIR_ERR_CONFLICT, weir_parameters_add(store, "w", WEIR_TYPE_F16, 1001, NULL, f->a, NULL));
    ok(weir_parameters_release(store));
}

static void refusals_change_nothing(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.step = 64 * KIB});
    weir_parameter p = {.struct_size = sizeof p};
    add_pattern(store, "w", WEIR_TYPE_F16, 1000, 1);
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_INVALID, weir_parameters_add(store, "", WEIR_TYPE_F16, 1, NULL, f->a, NULL));
    fails(WEIR_ERR_INVALID, weir_parameters_add(store, "x", WEIR_TYPE_TEXT, 1, NULL, f->a, NULL));
    fails(WEIR_ERR_INVALID, weir_parameters_add(store, "x", WEIR_TYPE_NONE, 1, NULL, f->a, NULL));
    fails(WEIR_ERR_INVALID, weir_parameters_add(store, "x", WEIR_TYPE_F64, UINT64_MAX / 4, NULL, f->a, NULL));
    fails(WEIR_ERR_NOT_FOUND, weir_parameter_info(store, "x", 0, &p));
    detail_names("\"x\"");
    fails(WEIR_ERR_INVALID, weir_parameter_info(store, NULL, 1, &p));
    unchanged(f->runtime, before);
    /* Too large for the budget: in place, and as a block of its own. */
    weir_parameters_details was = store_details(store);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_parameters_add(store, "x", WEIR_TYPE_F32, 32 * MIB, NULL, f->a, NULL));
    weir_parameters_details is = store_details(store);
    assert_int_equal(is.count, was.count);
    assert_int_equal(is.charged, was.charged);
    assert_int_equal(live_of(f), was.charged);
    assert_true(holds_pattern(f, parameter(store, "w").pointer, 2000, 1));
    add_pattern(store, "x", WEIR_TYPE_F16, 100000, 4); /* and it goes on */
    assert_true(holds_pattern(f, parameter(store, "x").pointer, 200000, 4));
    ok(weir_parameters_release(store));
}

/* What cannot be copied there is not there, and the room made for it has gone. */
static void a_failed_copy_gives_the_place_back(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.step = 64 * KIB});
    weir_stream gone;
    unsigned char bytes[16] = {1};
    ok(weir_stream_acquire(f->runtime, &gone));
    ok(weir_stream_release(gone));
    fails(WEIR_ERR_STREAM_MISUSE, weir_parameters_add(store, "w", WEIR_TYPE_U8, sizeof bytes, bytes, gone, NULL));
    assert_int_equal(live_of(f), 0);
    add_pattern(store, "w", WEIR_TYPE_U8, 100, 1);
    weir_parameters_details was = store_details(store);
    void *first = parameter(store, "w").pointer;
    ok(weir_capture_begin(f->a, NULL)); /* no launch can be declared there */
    fails(WEIR_ERR_STREAM_MISUSE, weir_parameters_add(store, "v", WEIR_TYPE_U8, 200 * KIB, first, f->a, NULL));
    ok(weir_capture_end(f->a, NULL));
    assert_int_equal(store_details(store).charged, was.charged);
    assert_int_equal(store_details(store).count, 1);
    add_pattern(store, "v", WEIR_TYPE_U8, 100, 2);
    assert_ptr_equal(parameter(store, "v").pointer, (char *)first + 256);
    ok(weir_parameters_release(store));
}

static void empty_ones_have_no_address_and_hide_nobody(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.step = 64 * KIB});
    add_pattern(store, "none", WEIR_TYPE_F16, 0, 0);
    add_pattern(store, "w", WEIR_TYPE_F16, 10, 1);
    add_pattern(store, "also none", WEIR_TYPE_F32, 0, 0);
    assert_null(parameter(store, "none").pointer);
    assert_null(parameter(store, "also none").pointer);
    assert_true(holds_pattern(f, parameter(store, "w").pointer, 20, 1));
    assert_int_equal(store_details(store).bytes, 20);
    ok(weir_parameters_release(store));
}

/* Tied weights, and parts: no byte more, and found as any other. */
static void further_names_cost_nothing(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.step = 4 * KIB});
    add_pattern(store, "wte", WEIR_TYPE_F16, 1000, 1);
    weir_parameters_details before = store_details(store);
    uint64_t live = live_of(f);
    ok(weir_parameters_alias(store, "lm_head", "wte", 0, 1000));
    ok(weir_parameters_alias(store, "row", "lm_head", 100, 50));
    ok(weir_parameters_alias(store, "row", "wte", 100, 50)); /* the same once more */
    ok(weir_parameters_alias(store, "none", "wte", 1000, 0));
    weir_parameter whole = parameter(store, "wte"), tied = parameter(store, "lm_head"), row = parameter(store, "row");
    assert_ptr_equal(tied.pointer, whole.pointer);
    assert_string_equal(tied.name, "lm_head");
    assert_int_equal(tied.type, WEIR_TYPE_F16);
    assert_int_equal(tied.bytes, 2000);
    assert_ptr_equal(row.pointer, (char *)whole.pointer + 200);
    assert_int_equal(row.elements, 50);
    assert_int_equal(row.bytes, 100);
    assert_null(parameter(store, "none").pointer);
    weir_parameters_details after = store_details(store);
    assert_int_equal(after.bytes, before.bytes);
    assert_int_equal(after.charged, before.charged);
    assert_int_equal(after.count, 4);
    assert_int_equal(live_of(f), live);
    fails(WEIR_ERR_INVALID, weir_parameters_alias(store, "x", "wte", 951, 50));
    detail_names("50 elements from 951 on are not in \"wte\", which has 1000");
    fails(WEIR_ERR_INVALID, weir_parameters_alias(store, "x", "wte", 8, UINT64_MAX - 4));
    fails(WEIR_ERR_INVALID, weir_parameters_alias(store, "x", NULL, 0, 1));
    fails(WEIR_ERR_INVALID, weir_parameters_alias(store, "", "wte", 0, 1));
    fails(WEIR_ERR_NOT_FOUND, weir_parameters_alias(store, "x", "wpe", 0, 1));
    fails(WEIR_ERR_CONFLICT, weir_parameters_alias(store, "row", "wte", 101, 50));
    fails(WEIR_ERR_CONFLICT, weir_parameters_alias(store, "wte", "row", 0, 50));
    assert_int_equal(store_details(store).count, 4);
    add_pattern(store, "row", WEIR_TYPE_F16, 50, 9); /* written by one name, read by the other */
    assert_true(holds_pattern(f, (char *)parameter(store, "lm_head").pointer + 200, 100, 9));
    ok(weir_parameters_release(store));
}

static void many_names_are_told_apart(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.expected = 2 * MIB});
    char name[32];
    uint32_t index;
    for (uint32_t i = 0; i < 3000; i++) {
        (void)snprintf(name, sizeof name, "layer.%u.weight", i);
        ok(weir_parameters_add(store, name, WEIR_TYPE_U8, 1 + i % 300, NULL, WEIR_STREAM_HOST, &index));
        assert_int_equal(index, i);
    }
    for (uint32_t i = 0; i < 3000; i++) {
        (void)snprintf(name, sizeof name, "layer.%u.weight", i);
        weir_parameter p = parameter(store, name);
        assert_string_equal(p.name, name);
        assert_int_equal(p.bytes, 1 + i % 300);
    }
    ok(weir_parameters_release(store));
}

static void the_last_holder_frees(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.step = 64 * KIB});
    add_pattern(store, "w", WEIR_TYPE_F16, 10, 1);
    ok(weir_parameters_acquire(store));
    ok(weir_parameters_release(store));
    assert_true(holds_pattern(f, parameter(store, "w").pointer, 20, 1));
    fails(WEIR_ERR_BUSY, weir_client_destroy(f->client));
    ok(weir_parameters_release(store));
    assert_int_equal(live_of(f), 0);
    ok(weir_parameters_release(NULL));
}

typedef struct adder {
    fixture *f;
    weir_parameters *store;
    unsigned which;
    unsigned char contents[200][600]; /* as they are until the stream has come to the copies */
} adder;

static void *add_many(void *user)
{
    adder *a = user;
    char name[32];
    for (unsigned i = 0; i < 200; i++) {
        (void)snprintf(name, sizeof name, "%s%u", i % 4 ? "common" : a->which ? "one" : "two", i);
        memset(a->contents[i], (int)i, sizeof a->contents[i]);
        ok(weir_parameters_add(a->store, name, WEIR_TYPE_U8, sizeof a->contents[i], a->contents[i],
                               a->which ? a->f->a : a->f->b, NULL));
    }
    return NULL;
}

static void two_threads_add_one_after_the_other(void **state)
{
    fixture *f = *state;
    if (on_sim())
        skip(); /* which is driven by one thread */
    weir_parameters *store = open_store(f, (weir_parameters_options){.step = 4 * KIB});
    adder *adders = calloc(2, sizeof *adders);
    for (unsigned i = 0; i < 2; i++)
        adders[i] = (adder){.f = f, .store = store, .which = i};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, &adders[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    free(adders);
    assert_int_equal(store_details(store).count, 150 + 2 * 50);
    for (uint32_t i = 0; i < 250; i++) {
        weir_parameter p = {.struct_size = sizeof p};
        unsigned char wanted[600];
        ok(weir_parameter_info(store, NULL, i, &p));
        memset(wanted, atoi(p.name + strcspn(p.name, "0123456789")), sizeof wanted);
        assert_true(holds(f, p.pointer, wanted, sizeof wanted));
    }
    ok(weir_parameters_release(store));
}

/* A callback of pressure that comes back into the very call it was made for. */
static weir_status inner;
static void add_in_callback(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    inner = weir_parameters_add(user, "inner", WEIR_TYPE_U8, 1, NULL, WEIR_STREAM_HOST, NULL);
}

static void a_callback_cannot_wait_for_itself(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.step = 4 * KIB});
    uint64_t id;
    inner = WEIR_OK;
    ok(weir_pressure_register(f->runtime, 0, add_in_callback, store, &id));
    fails(WEIR_ERR_OUT_OF_MEMORY,
          weir_parameters_add(store, "w", WEIR_TYPE_U8, 65 * MIB, NULL, WEIR_STREAM_HOST, NULL));
    assert_int_equal(inner, WEIR_ERR_BUSY);
    ok(weir_pressure_unregister(f->runtime, id));
    ok(weir_parameters_release(store));
}

/* Two of them, each in a callback of the other's store, would wait for one another. */
static void a_callback_cannot_wait_for_another_store(void **state)
{
    fixture *f = *state;
    weir_parameters *store = open_store(f, (weir_parameters_options){.step = 4 * KIB});
    weir_parameters *other = open_store(f, (weir_parameters_options){.step = 4 * KIB, .tag = "other"});
    uint64_t id;
    inner = WEIR_OK;
    ok(weir_pressure_register(f->runtime, 0, add_in_callback, other, &id));
    fails(WEIR_ERR_OUT_OF_MEMORY,
          weir_parameters_add(store, "w", WEIR_TYPE_U8, 65 * MIB, NULL, WEIR_STREAM_HOST, NULL));
    assert_int_equal(inner, WEIR_ERR_BUSY);
    assert_int_equal(store_details(other).count, 0);
    ok(weir_pressure_unregister(f->runtime, id));
    add_pattern(other, "inner", WEIR_TYPE_U8, 1, 1); /* and it may go on */
    ok(weir_parameters_release(other));
    ok(weir_parameters_release(store));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(growth_moves_nothing_and_keeps_every_byte),
        TEST(something_behind_it_begins_another_block),
        TEST(what_is_expected_is_taken_once),
        TEST(what_is_expected_has_room_for_padding),
        TEST(a_name_that_is_there_keeps_its_place),
        TEST(refusals_change_nothing),
        TEST(a_failed_copy_gives_the_place_back),
        TEST(empty_ones_have_no_address_and_hide_nobody),
        TEST(further_names_cost_nothing),
        TEST(many_names_are_told_apart),
        TEST(the_last_holder_frees),
        TEST(two_threads_add_one_after_the_other),
        TEST(a_callback_cannot_wait_for_itself),
        TEST(a_callback_cannot_wait_for_another_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
