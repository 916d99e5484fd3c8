/* A base of the program's own: what weir asks of it, when, and what its answers come to. */
#include "info.h"
#include "core/core.h"

typedef struct made {
    uint64_t has, most, allocations, releases, creates, destroys, streams;
    weir_status answer; /* of the next allocate or release; WEIR_OK: it works */
    bool crooked;       /* the next address is no multiple of 256 */
} made;
static made m;

static weir_status own_create(void *user, const weir_base_place *place, void **state)
{
    assert_string_equal(place->driver, "host");
    assert_null(place->native);
    ((made *)user)->creates++;
    *state = user;
    return ((made *)user)->answer;
}

static weir_status own_allocate(void *state, size_t bytes, void *stream, void **address)
{
    made *b = state;
    b->streams += stream != NULL;
    if (b->answer != WEIR_OK)
        return weir_fail(b->answer, "the base's own words");
    *address = aligned_alloc(256, bytes);
    assert_non_null(*address);
    b->has += bytes;
    b->most = b->has > b->most ? b->has : b->most;
    b->allocations++;
    if (b->crooked)
        *address = (char *)*address + 8;
    return WEIR_OK;
}

static weir_status own_release(void *state, void *address, size_t bytes, void *stream)
{
    made *b = state;
    b->streams += stream != NULL;
    if (b->answer != WEIR_OK)
        return weir_fail(b->answer, "the base's own words");
    free(address);
    b->has -= bytes;
    b->releases++;
    return WEIR_OK;
}

static void own_destroy(void *state)
{
    ((made *)state)->destroys++;
}

static weir_base_table table_called(const char *name)
{
    return (weir_base_table){.struct_size = sizeof(weir_base_table),
                             .name = name,
                             .user = &m,
                             .create = own_create,
                             .allocate = own_allocate,
                             .release = own_release,
                             .destroy = own_destroy};
}

static weir_runtime *runtime_of(const char *resource, uint64_t budget)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget, .resource = resource};
    weir_runtime *runtime;
    ok(weir_runtime_create("host", &options, &runtime));
    return runtime;
}

static void blocks_are_allocations_of_the_base_under_the_budget(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("mine", MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *p, *q;
    assert_string_equal(runtime_details(runtime).resource, "budget(mine)");
    assert_int_equal(m.creates, 1);
    p = allocate(client, 600 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_int_equal(m.has, 600 * KIB);
    assert_int_equal(take_snapshot(runtime).device.held, 600 * KIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 500 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &q));
    assert_int_equal(m.allocations, 1); /* the base was not asked */
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    assert_int_equal(m.has, 0);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    assert_int_equal(m.destroys, 1);
    assert_int_equal(m.streams, 0);
}

static void what_is_freed_goes_back_when_the_device_is_past_it(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("log(mine)", MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    weir_stream stream;
    ok(weir_stream_acquire(runtime, &stream));
    gate g = GATE;
    void *p = allocate(client, 64 * KIB, stream, WEIR_CLASS_KV);
    ok(weir_call(runtime, pass_gate, &g, stream));
    ok(weir_free(client, p, stream));
    assert_int_equal(m.has, 64 * KIB);
    open_gate(&g);
    ok(weir_stream_synchronize(stream));
    ok(weir_runtime_drain(runtime, NULL));
    assert_int_equal(m.has, 0);
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static void failures_of_the_base_are_the_requests_and_change_nothing(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("mine", MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *p;
    m.answer = WEIR_ERR_OUT_OF_MEMORY;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    m.answer = WEIR_ERR_DRIVER;
    fails(WEIR_ERR_DRIVER, weir_alloc(client, KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    detail_names("the base's own words");
    m.answer = WEIR_OK;
    assert_int_equal(take_snapshot(runtime).device.held, 0);
    p = allocate(client, KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    m.answer = WEIR_ERR_DRIVER; /* a release that is refused is tried again */
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    assert_int_equal(m.has, KIB);
    m.answer = WEIR_OK;
    ok(weir_runtime_drain(runtime, NULL));
    assert_int_equal(m.has, 0);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static void a_base_that_cannot_be_made_leaves_no_runtime(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB, .resource = "mine"};
    weir_runtime *runtime;
    uint64_t destroys = m.destroys;
    m.answer = WEIR_ERR_SYSTEM;
    fails(WEIR_ERR_SYSTEM, weir_runtime_create("host", &options, &runtime));
    m.answer = WEIR_OK;
    assert_null(runtime);
    assert_int_equal(m.destroys, destroys);
    options.resource = "mine(1)";
    fails(WEIR_ERR_INVALID, weir_runtime_create("host", &options, &runtime));
}

static void tables_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "", "Mine", "a b", "a(b)", "a-name-of-more-than-31-characters"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        weir_base_table table = table_called(names[i]);
        fails(WEIR_ERR_INVALID, weir_base_register(&table));
    }
    weir_base_table table = table_called("mine");
    fails(WEIR_ERR_CONFLICT, weir_base_register(&table));
    table.name = "mapped";
    fails(WEIR_ERR_CONFLICT, weir_base_register(&table));
    table.name = "other";
    table.flags = 1u << 7;
    fails(WEIR_ERR_UNSUPPORTED, weir_base_register(&table));
    table.flags = 0;
    table.release = NULL;
    fails(WEIR_ERR_INVALID, weir_base_register(&table));
    fails(WEIR_ERR_INVALID, weir_base_register(NULL));
}

static int forget(void **state)
{
    (void)state;
    m = (made){0};
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(blocks_are_allocations_of_the_base_under_the_budget, forget),
        cmocka_unit_test_setup(what_is_freed_goes_back_when_the_device_is_past_it, forget),
        cmocka_unit_test_setup(failures_of_the_base_are_the_requests_and_change_nothing, forget),
        cmocka_unit_test_setup(a_base_that_cannot_be_made_leaves_no_runtime, forget),
        cmocka_unit_test_setup(tables_that_are_none_are_refused, forget),
    };
    weir_base_table table = table_called("mine");
    return weir_base_register(&table) == WEIR_OK ? cmocka_run_group_tests_name("own-base", tests, NULL, NULL) : 1;
}
