/* An adaptor of the program's own: what it is told and when, what its refusals come to, and what it may ask of weir. */
#include "info.h"
#include "core/core.h"

#include <weir/adaptor.h>

enum { MOST_CALLS = 64 };

typedef struct call {
    char what; /* 'a' asked, '+' allocated, 'x' failed, '~' resized, '-' freed */
    weir_adaptor_block block;
    weir_status status;
} call;

typedef struct made {
    call calls[MOST_CALLS];
    int count, creates, destroys;
    uint64_t limit, has; /* limit 0: none */
    weir_status answer;  /* of the next before_allocate */
    weir_client *from;   /* allocates from it inside */
    weir_status nested;
    bool frees; /* a block inside of a free */
    void *other;
    weir_stream captured; /* ends this capture of the pool, and the pool, inside of a free */
    weir_capture_pool *pool;
    char arguments[64];
} made;
static made m;

/* What the tables are registered with; adaptors are called with what their creation makes of it. */
static struct user {
    made unused;
    made *of;
} user_of_m = {.of = &m};

static void note(made *a, char what, const weir_adaptor_block *block, weir_status status)
{
    assert_int_equal(block->struct_size, sizeof *block);
    assert_true(a->count < MOST_CALLS);
    a->calls[a->count++] = (call){what, *block, status};
}

/* The calls so far, a letter for each. */
static const char *story(void)
{
    static char text[MOST_CALLS + 1];
    for (int i = 0; i < m.count; i++)
        text[i] = m.calls[i].what;
    text[m.count] = '\0';
    return text;
}

static weir_status own_create(void *user, const weir_adaptor_place *place, void **state)
{
    made *a = ((struct user *)user)->of;
    assert_string_equal(place->driver, "host");
    snprintf(a->arguments, sizeof a->arguments, "%s", place->arguments);
    a->creates++;
    *state = a;
    return strcmp(place->arguments, "wrong") == 0 ? weir_fail(WEIR_ERR_INVALID, "no such argument") : WEIR_OK;
}

static void own_destroy(void *state)
{
    ((made *)state)->destroys++;
}

static weir_status own_before(void *state, const weir_adaptor_block *block)
{
    made *a = state;
    void *p = NULL;
    note(a, 'a', block, WEIR_OK);
    if (a->from) {
        a->nested = weir_alloc(a->from, KIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &p);
        if (p)
            ok(weir_free(a->from, p, WEIR_STREAM_HOST));
    }
    if (a->limit && a->has + block->bytes - block->old_bytes > a->limit)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "the limit of %d bytes", (int)a->limit);
    return a->answer == WEIR_OK ? WEIR_OK : weir_fail(a->answer, "the adaptor's own words");
}

static void own_allocated(void *state, const weir_adaptor_block *block)
{
    made *a = state;
    note(a, '+', block, WEIR_OK);
    a->has += block->bytes;
}

static void own_failed(void *state, const weir_adaptor_block *block, weir_status status)
{
    note(state, 'x', block, status);
    (void)weir_fail(WEIR_ERR_SYSTEM, "words that nobody asked for");
}

static void own_resized(void *state, const weir_adaptor_block *block)
{
    made *a = state;
    note(a, '~', block, WEIR_OK);
    a->has += block->bytes - block->old_bytes;
}

static void own_freed(void *state, const weir_adaptor_block *block)
{
    made *a = state;
    void *other = a->other;
    note(a, '-', block, WEIR_OK);
    a->has -= block->bytes;
    a->other = NULL;
    if (a->frees && other)
        ok(weir_free(a->from, other, WEIR_STREAM_HOST));
    if (!a->pool)
        return;
    ok(weir_capture_end(a->captured, a->pool));
    ok(weir_capture_pool_destroy(a->pool, WEIR_STREAM_HOST));
    a->pool = NULL;
}

static weir_adaptor_table table_called(const char *name)
{
    return (weir_adaptor_table){.struct_size = sizeof(weir_adaptor_table),
                                .name = name,
                                .user = &user_of_m,
                                .create = own_create,
                                .destroy = own_destroy,
                                .before_allocate = own_before,
                                .allocated = own_allocated,
                                .failed = own_failed,
                                .resized = own_resized,
                                .freed = own_freed};
}

static weir_runtime *runtime_of(const char *resource, uint64_t budget)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget, .resource = resource};
    weir_runtime *runtime;
    ok(weir_runtime_create("host", &options, &runtime));
    return runtime;
}

static void end(weir_runtime *runtime, weir_client *client)
{
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Every one: there are no thread caches, where the third allocation would be served. */
static void every_allocation_and_every_free_comes_by(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("mine(a=1, b, cache)", 4 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    assert_string_equal(m.arguments, "a=1, b");
    assert_string_equal(runtime_details(runtime).resource, "budget(mine(a=1, b, mapped))");
    for (int i = 0; i < 3; i++) {
        weir_request request = {
            .struct_size = sizeof request, .bytes = 1000, .memory_class = WEIR_CLASS_KV, .tag = "t"};
        weir_block block;
        ok(weir_alloc_with(client, &request, &block));
        ok(weir_free_block(client, block, WEIR_STREAM_HOST));
        assert_ptr_equal(m.calls[3 * i + 2].block.address, block.pointer);
    }
    assert_string_equal(story(), "a+-a+-a+-");
    assert_null(m.calls[0].block.address);
    for (int i = 0; i < m.count; i++) {
        const weir_adaptor_block *b = &m.calls[i].block;
        assert_int_equal(b->bytes, 1000);
        assert_int_equal(b->old_bytes, 0);
        assert_int_equal(b->memory_class, WEIR_CLASS_KV);
        assert_string_equal(b->client, "x");
        assert_string_equal(b->tag, "t");
    }
    assert_int_equal(m.has, 0);
    end(runtime, client);
    assert_int_equal(m.creates, 1);
    assert_int_equal(m.destroys, 1);
}

static void a_free_tells_its_own_stream_before_the_device_is_past_it(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("mine(cache)", 4 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    weir_stream one, two;
    ok(weir_stream_acquire(runtime, &one));
    ok(weir_stream_acquire(runtime, &two));
    gate g = GATE;
    void *p = allocate(client, 64 * KIB, one, WEIR_CLASS_KV);
    ok(weir_call(runtime, pass_gate, &g, two));
    ok(weir_free(client, p, two));
    assert_string_equal(story(), "a+-");
    assert_true(m.calls[1].block.stream.id == one.id);
    assert_true(m.calls[2].block.stream.id == two.id);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(client, p, two));
    assert_int_equal(m.count, 3);
    open_gate(&g);
    ok(weir_stream_release(one));
    ok(weir_stream_release(two));
    end(runtime, client);
}

/* The rung that empties capture pools, caches and the like cannot help; one that waits for a free does. */
static void under_the_budget_a_limit_is_a_shortage_that_frees_relieve(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("budget(mine(cache))", 4 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    weir_refusal refusal = WEIR_INIT(weir_refusal);
    void *p = allocate(client, 600 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV), *q;
    m.limit = MIB;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 600 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &q));
    detail_names("x asked for 600 KiB (kv) on host; an adaptor refused it: mine: the limit of 1048576 bytes");
    ok(weir_refusal_last(&refusal));
    assert_int_equal(refusal.cause, WEIR_CAUSE_ADAPTOR);
    assert_int_equal(refusal.requested, 600 * KIB);
    assert_int_equal(take_snapshot(runtime).device.refusals, 1);
    assert_int_equal(take_snapshot(runtime).device.live, 600 * KIB);
    assert_int_equal(take_snapshot(runtime).device.promised, 0);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    q = allocate(client, 600 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(client, q, WEIR_STREAM_HOST));
    end(runtime, client);
}

typedef struct room {
    weir_client *client;
    void **block;
} room;

static void make_room(const weir_pressure *pressure, void *user)
{
    const room *r = user;
    assert_in_range(pressure->shortfall, 1,
                    pressure->bytes); /* there is room, and none that the adaptor lets anybody have */
    if (*r->block)
        ok(weir_free(r->client, *r->block, WEIR_STREAM_HOST));
    *r->block = NULL;
}

static void a_pressure_callback_makes_room_under_an_adaptors_limit(void **state)
{
    (void)state;
    uint64_t id;
    weir_runtime *runtime = runtime_of("budget(mine(cache))", 4 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *p = allocate(client, 600 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_pressure_register(runtime, 0, make_room, &(room){client, &p}, &id));
    m.limit = MIB;
    void *q;
    ok(weir_alloc(client, 600 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &q));
    assert_null(p);
    assert_int_equal(m.has, 600 * KIB);
    ok(weir_pressure_unregister(runtime, id));
    ok(weir_free(client, q, WEIR_STREAM_HOST));
    end(runtime, client);
}

/* So that what weir leaves unset there is not 0 by chance. */
static void __attribute__((noinline)) dirty_the_stack(void)
{
    volatile char below[16 * KIB];
    for (size_t i = 0; i < sizeof below; i++)
        below[i] = 3;
}

static void around_the_budget_its_answer_is_the_answer(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("mine(budget(cache))", MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    static const weir_status answers[] = {WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_DRIVER, WEIR_ERR_CANCELLED};
    void *p;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        m.answer = answers[i];
        dirty_the_stack();
        fails(answers[i], weir_alloc(client, KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
        detail_names("the adaptor's own words");
    }
    m.answer = WEIR_ERR_NO_ROOM; /* which says another thing between resources */
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    assert_string_equal(story(), "aaaa");
    assert_int_equal(take_snapshot(runtime).device.refusals, 0);
    m.answer = WEIR_OK;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    assert_string_equal(story(), "aaaaax");
    assert_int_equal(m.calls[5].status, WEIR_ERR_OUT_OF_MEMORY);
    detail_names("of the budget of 1 MiB"); /* the refusal's, not what `failed` has left */
    end(runtime, client);
}

static void a_resize_is_asked_for_where_it_grows_and_told_of(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("mine(cache)", 4 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *p = allocate(client, 64 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_resize(client, p, 16 * KIB, WEIR_STREAM_HOST));
    assert_string_equal(story(), "a+~");
    assert_int_equal(m.calls[2].block.old_bytes, 64 * KIB);
    assert_int_equal(m.calls[2].block.bytes, 16 * KIB);
    assert_int_equal(m.has, 16 * KIB);
    m.answer = WEIR_ERR_OUT_OF_MEMORY;
    fails(WEIR_ERR_NO_ROOM, weir_resize(client, p, 32 * KIB, WEIR_STREAM_HOST));
    m.answer = WEIR_OK;
    int before = m.count;
    ok(weir_resize(client, p, 32 * KIB, WEIR_STREAM_HOST));
    assert_string_equal(story() + before, "a~");
    assert_int_equal(m.calls[before].block.old_bytes, 16 * KIB);
    assert_ptr_equal(m.calls[before].block.address, p);
    assert_int_equal(m.has, 32 * KIB);
    ok(weir_resize(client, p, 32 * KIB - 100, WEIR_STREAM_HOST));
    before = m.count;
    ok(weir_resize(client, p, 32 * KIB, WEIR_STREAM_HOST)); /* within what it is charged */
    assert_string_equal(story() + before, "a~");
    before = m.count;
    ok(weir_resize(client, p, 32 * KIB, WEIR_STREAM_HOST)); /* as long as it is */
    assert_string_equal(story() + before, "~");
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    assert_int_equal(m.has, 0);
    end(runtime, client);
}

/* What it lets pass and the block behind it stops comes to `failed`. */
static void a_growth_that_finds_no_room_has_failed(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("mine(direct)", 4 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *p = allocate(client, 64 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    fails(WEIR_ERR_NO_ROOM, weir_resize(client, p, 128 * KIB, WEIR_STREAM_HOST));
    assert_int_equal(m.calls[m.count - 1].what, 'x');
    assert_int_equal(m.calls[m.count - 1].status, WEIR_ERR_NO_ROOM);
    assert_int_equal(m.has, 64 * KIB);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    end(runtime, client);
}

static void inside_it_may_free_and_allocate_elsewhere_but_not_what_an_adaptor_sees(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("mine(cache)", 4 * MIB), *plain = runtime_of("cache", 4 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0), *other = open_client(plain, "y", 0, 0);
    void *p = allocate(client, KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV), *q;
    m.from = client;
    ok(weir_alloc(client, KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &q));
    assert_int_equal(m.nested, WEIR_ERR_BUSY);
    ok(weir_free(client, q, WEIR_STREAM_HOST));
    m.from = other;
    q = allocate(client, KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_int_equal(m.nested, WEIR_OK);
    m.from = client;
    m.frees = true;
    m.other = q;
    ok(weir_free(client, p, WEIR_STREAM_HOST)); /* and q, inside */
    assert_int_equal(m.has, 0);
    assert_string_equal(story() + m.count - 2, "--");
    m.frees = false;
    m.from = NULL;
    end(plain, other);
    end(runtime, client);
}

/* What a capture pool holds is freed, and allocated once more, for those who ask. */
static void blocks_of_a_capture_pool_are_told_of_once_each(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("mine(cache)", 8 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    weir_capture_pool *pool;
    weir_stream stream;
    ok(weir_stream_acquire(runtime, &stream));
    ok(weir_capture_pool_create(client, &pool));
    ok(weir_capture_begin(stream, pool));
    void *p = allocate(client, MIB, stream, WEIR_CLASS_KV);
    ok(weir_free(client, p, stream));
    assert_string_equal(story(), "a+-");
    assert_ptr_equal(allocate(client, MIB, stream, WEIR_CLASS_KV), p); /* what the pool holds */
    assert_string_equal(story(), "a+-a+");
    ok(weir_capture_end(stream, pool));
    ok(weir_capture_pool_destroy(pool, stream));
    ok(weir_free(client, p, stream));
    assert_string_equal(story(), "a+-a+-");
    ok(weir_stream_release(stream));
    end(runtime, client);
}

/* A free in a capture was accepted, and told of: it succeeds though the capture and its pool are over then. */
static void what_is_told_of_is_freed_though_its_capture_pool_ends_meanwhile(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("mine(cache)", 8 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    ok(weir_stream_acquire(runtime, &m.captured));
    ok(weir_capture_pool_create(client, &m.pool));
    ok(weir_capture_begin(m.captured, m.pool));
    void *p = allocate(client, MIB, m.captured, WEIR_CLASS_KV);
    ok(weir_free(client, p, m.captured));
    assert_null(m.pool);
    assert_string_equal(story(), "a+-");
    ok(weir_stream_release(m.captured));
    assert_int_equal(take_snapshot(runtime).device.live, 0);
    end(runtime, client);
}

static void adaptors_around_each_other_and_around_a_guard_agree(void **state)
{
    (void)state;
    weir_runtime *runtime = runtime_of("log(mine(budget(also-mine(guard(direct)))))", 4 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *p = allocate(client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    assert_string_equal(story(), "aa++--");
    end(runtime, client);
    assert_int_equal(m.destroys, 2);
}

static void an_adaptor_that_cannot_be_made_leaves_no_runtime(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB, .resource = "mine(wrong, cache)"};
    weir_runtime *runtime;
    fails(WEIR_ERR_INVALID, weir_runtime_create("host", &options, &runtime));
    detail_names("no such argument");
    assert_int_equal(m.destroys, 0);
    options.resource = "mine";
    fails(WEIR_ERR_INVALID, weir_runtime_create("host", &options, &runtime));
    options.resource = "bare(1, cache)"; /* it has no function that would read it */
    fails(WEIR_ERR_INVALID, weir_runtime_create("host", &options, &runtime));
    detail_names("takes no argument \"1\"");
}

static void tables_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "", "Mine", "a b", "a(b)", "a-name-of-more-than-31-characters"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        weir_adaptor_table table = table_called(names[i]);
        fails(WEIR_ERR_INVALID, weir_adaptor_register(&table));
    }
    static const char *const taken[] = {"mine", "budget", "cache"};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        weir_adaptor_table table = table_called(taken[i]);
        fails(WEIR_ERR_CONFLICT, weir_adaptor_register(&table));
    }
    weir_adaptor_table empty = {.struct_size = sizeof empty, .name = "empty", .create = own_create};
    fails(WEIR_ERR_INVALID, weir_adaptor_register(&empty));
    fails(WEIR_ERR_INVALID, weir_adaptor_register(NULL));
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
        cmocka_unit_test_setup(every_allocation_and_every_free_comes_by, forget),
        cmocka_unit_test_setup(a_free_tells_its_own_stream_before_the_device_is_past_it, forget),
        cmocka_unit_test_setup(under_the_budget_a_limit_is_a_shortage_that_frees_relieve, forget),
        cmocka_unit_test_setup(a_pressure_callback_makes_room_under_an_adaptors_limit, forget),
        cmocka_unit_test_setup(around_the_budget_its_answer_is_the_answer, forget),
        cmocka_unit_test_setup(a_resize_is_asked_for_where_it_grows_and_told_of, forget),
        cmocka_unit_test_setup(a_growth_that_finds_no_room_has_failed, forget),
        cmocka_unit_test_setup(inside_it_may_free_and_allocate_elsewhere_but_not_what_an_adaptor_sees, forget),
        cmocka_unit_test_setup(blocks_of_a_capture_pool_are_told_of_once_each, forget),
        cmocka_unit_test_setup(what_is_told_of_is_freed_though_its_capture_pool_ends_meanwhile, forget),
        cmocka_unit_test_setup(adaptors_around_each_other_and_around_a_guard_agree, forget),
        cmocka_unit_test_setup(an_adaptor_that_cannot_be_made_leaves_no_runtime, forget),
        cmocka_unit_test_setup(tables_that_are_none_are_refused, forget),
    };
    weir_adaptor_table mine = table_called("mine"), also = table_called("also-mine"), bare = mine;
    bare.name = "bare";
    bare.create = NULL;
    if (weir_adaptor_register(&mine) != WEIR_OK || weir_adaptor_register(&also) != WEIR_OK ||
        weir_adaptor_register(&bare) != WEIR_OK)
        return 1;
    return cmocka_run_group_tests_name("own-adaptor", tests, NULL, NULL);
}
