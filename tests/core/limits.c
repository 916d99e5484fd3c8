/* The ledger's limits: guarantees, maxima, the budget, and what a refusal says about them. */
#include "info.h"
#include "core.h"
#include "trim.h"

enum { BUDGET = 8 << 20 };

static int set_up(void **state)
{
    *state = make_runtime(BUDGET);
    return 0;
}

static int tear_down(void **state)
{
    ok(weir_runtime_destroy(*state));
    return 0;
}

static void refused(weir_client *client, uint64_t bytes, weir_class memory_class)
{
    void *p = &p;
    weir_runtime *runtime = client_details(client).runtime;
    snapshot before = take_snapshot(runtime);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, bytes, WEIR_STREAM_HOST, memory_class, &p));
    assert_null(p);
    before.device.refusals++;
    for (size_t i = 0; i < before.count; i++)
        before.clients[i].refusals += before.clients[i].client == client;
    unchanged(runtime, before);
}

/* What the last refusal calls the largest request is met, and 256 bytes more are not. */
static void check_largest(weir_client *client, weir_class memory_class)
{
    weir_refusal r = last_refusal();
    assert_int_equal(r.largest % 256, 0);
    assert_true(r.largest < r.requested && r.largest <= r.remaining);
    if (r.largest) {
        void *p = allocate(client, r.largest, WEIR_STREAM_HOST, memory_class);
        ok(weir_free(client, p, WEIR_STREAM_HOST));
    }
    refused(client, r.largest + 256, memory_class);
}

static void a_guarantee_is_never_lent(void **state)
{
    weir_runtime *runtime = *state;
    weir_client *owner = open_client(runtime, "owner", 3 * MIB, 0);
    weir_client *host_trim = open_client(runtime, "pinned", 0, 0);
    refused(host_trim, BUDGET, WEIR_CLASS_KV);
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, WEIR_CAUSE_BUDGET);
    assert_int_equal(r.remaining, 5 * MIB);
    assert_int_equal(r.limit, BUDGET);
    assert_int_equal(r.needed, 11 * MIB);
    check_largest(host_trim, WEIR_CLASS_KV);
    void *g = allocate(host_trim, 5 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    refused(host_trim, 1, WEIR_CLASS_KV);
    void *o = allocate(owner, 3 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV); /* always there for its owner */
    refused(owner, 1, WEIR_CLASS_KV);
    ok(weir_free(host_trim, g, WEIR_STREAM_HOST));
    void *more =
        allocate(owner, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV); /* beyond its guarantee, as far as there is */
    g = allocate(host_trim, 3 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    refused(host_trim, 1, WEIR_CLASS_KV);
    ok(weir_free(owner, more, WEIR_STREAM_HOST));
    void *h = allocate(host_trim, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(owner, o, WEIR_STREAM_HOST)); /* its bytes may be cache, not somebody's */
    refused(host_trim, 1, WEIR_CLASS_KV);
    ok(weir_free(host_trim, g, WEIR_STREAM_HOST));
    ok(weir_free(host_trim, h, WEIR_STREAM_HOST));
    ok(weir_client_destroy(owner));
    g = allocate(host_trim, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV); /* a guarantee ends with its client */
    ok(weir_free(host_trim, g, WEIR_STREAM_HOST));
    ok(weir_client_destroy(host_trim));
}

static void opening_needs_room_for_the_guarantee(void **state)
{
    weir_runtime *runtime = *state;
    weir_client *a = open_client(runtime, "a", 2 * MIB, 0);
    void *p = allocate(a, 3 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    weir_client *b = open_client(runtime, "b", 4 * MIB, 0);
    weir_client_options options = {.struct_size = sizeof options, .name = "c", .guaranteed = MIB + 1};
    weir_client *c = a;
    snapshot before = take_snapshot(runtime);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_create(runtime, &options, &c));
    assert_null(c);
    detail_names("c cannot be guaranteed");
    detail_names("1 MiB");
    unchanged(runtime, before);
    options.guaranteed = MIB;
    ok(weir_client_create(runtime, &options, &c));
    ok(weir_client_destroy(c));
    /* A free that the device is past is in nobody's way, whether or not somebody has looked. */
    weir_stream stream;
    gate g = GATE;
    ok(weir_stream_acquire(runtime, &stream));
    ok(weir_call(runtime, pass_gate, &g, stream));
    free_behind(a, p, stream);
    options.guaranteed = 2 * MIB;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_create(runtime, &options, &c));
    open_gate(&g);
    ok(weir_stream_synchronize(stream));
    ok(weir_client_create(runtime, &options, &c));
    ok(weir_client_destroy(c));
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(a));
    ok(weir_client_destroy(b));
}

static void *refused_elsewhere(void *user)
{
    uint64_t *numbers = user;
    weir_client *client = open_client(weir_client_runtime((weir_client *)(uintptr_t)numbers[0]), "elsewhere", 0, 256);
    numbers[0] = last_refusal().number;
    refused(client, 512, WEIR_CLASS_KV);
    numbers[1] = last_refusal().number;
    ok(weir_client_destroy(client));
    return NULL;
}

/* By its number a caller tells whether the refusal is of the call that has just failed. */
static void a_refusal_is_one_calls(void **state)
{
    weir_client *client = open_client(*state, "bert", 0, 1024);
    uint64_t numbers[2] = {(uint64_t)(uintptr_t)client};
    pthread_t thread;
    void *p;
    refused(client, 2048, WEIR_CLASS_KV);
    uint64_t first = last_refusal().number;
    assert_true(first > 0);
    fails(WEIR_ERR_INVALID, weir_alloc(client, 2048, WEIR_STREAM_HOST, (weir_class)99, &p));
    ok(weir_free(client, allocate(client, 1024, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    assert_int_equal(pthread_create(&thread, NULL, refused_elsewhere, numbers), 0);
    pthread_join(thread, NULL);
    assert_int_equal(numbers[0], 0);
    assert_true(numbers[1] > first);
    assert_int_equal(last_refusal().number, first);
    refused(client, 2048, WEIR_CLASS_KV);
    assert_true(last_refusal().number > numbers[1]);
    weir_refusal older = {.struct_size = offsetof(weir_refusal, number), .number = 7};
    ok(weir_refusal_last(&older));
    assert_int_equal(older.requested, 2048);
    assert_int_equal(older.number, 7);
    ok(weir_client_destroy(client));
}

static void a_maximum_is_a_maximum(void **state)
{
    weir_runtime *runtime = *state;
    weir_client *client = open_client(runtime, "bert", 0, 100 * 256);
    weir_client *other = open_client(runtime, "llama", 0, 0);
    void *big = allocate(other, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    void *p = allocate(client, 60 * 256, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    refused(client, 41 * 256 - 1, WEIR_CLASS_ACTIVATIONS);
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, WEIR_CAUSE_MAXIMUM);
    assert_string_equal(r.client, "bert");
    assert_string_equal(r.device, "host");
    assert_int_equal(r.memory_class, WEIR_CLASS_ACTIVATIONS);
    assert_int_equal(r.requested, 41 * 256);
    assert_int_equal(r.current, 60 * 256);
    assert_int_equal(r.remaining, 40 * 256);
    assert_int_equal(r.limit, 100 * 256);
    assert_int_equal(r.needed, 101 * 256);
    assert_string_equal(r.holders[0].client, "llama");
    assert_int_equal(r.holders[0].bytes, 4 * MIB);
    assert_string_equal(r.holders[1].client, "bert");
    assert_int_equal(r.holders[1].bytes, 60 * 256);
    assert_string_equal(r.holders[2].client, "");
    static const char *const named[] = {"bert",   "10.3 KiB", "activations", "host",
                                        "25 KiB", "15 KiB",   "10 KiB",      "25.3 KiB"};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        detail_names(named[i]);
    check_largest(client, WEIR_CLASS_ACTIVATIONS);
    ok(weir_client_set_limits(client, 0, r.needed - 1));
    refused(client, r.requested, WEIR_CLASS_ACTIVATIONS);
    ok(weir_client_set_limits(client, 0, r.needed));
    ok(weir_free(client, allocate(client, r.requested, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS), WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(runtime).clients[0].maximum, 101 * 256);
    /* Pending bytes count. */
    weir_stream stream;
    gate g = GATE;
    ok(weir_stream_acquire(runtime, &stream));
    ok(weir_call(runtime, pass_gate, &g, stream));
    free_behind(client, p, stream);
    ok(weir_option_set("wait", "0"));
    refused(client, 42 * 256, WEIR_CLASS_KV);
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    ok(weir_option_set("wait", NULL));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_set_limits(client, 0, 60 * 256 - 1));
    ok(weir_client_set_limits(client, 0, 60 * 256));
    open_gate(&g);
    ok(weir_stream_release(stream));
    ok(weir_client_set_limits(client, 0, 1));
    ok(weir_free(other, big, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_client_destroy(other));
}

/* What others are guaranteed and do not use is not there for a pending free to make room in: it is the budget that refuses. */
static void a_pending_free_leaves_the_guarantees_of_others(void **state)
{
    weir_runtime *runtime = *state;
    const uint64_t quarter = BUDGET / 4;
    weir_client *sure = open_client(runtime, "sure", 2 * quarter, 0), *other = open_client(runtime, "other", 0, 0);
    weir_stream stream;
    gate g = GATE;
    ok(weir_stream_acquire(runtime, &stream));
    void *stays = allocate(other, quarter, stream, WEIR_CLASS_KV),
         *goes = allocate(other, quarter, stream, WEIR_CLASS_KV), *p;
    ok(weir_call(runtime, pass_gate, &g, stream));
    free_behind(other, goes, stream);
    weir_request request = {.struct_size = sizeof request, .bytes = 2 * quarter, .flags = WEIR_ALLOC_NO_WAIT};
    weir_block none;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(other, &request, &none));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
    request.bytes = quarter; /* and this would be */
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(other, &request, &none));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    open_gate(&g);
    p = allocate(other, quarter, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(other, p, WEIR_STREAM_HOST));
    ok(weir_free(other, stays, WEIR_STREAM_HOST));
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(sure));
    ok(weir_client_destroy(other));
}

static void changing_limits_while_live(void **state)
{
    weir_runtime *runtime = *state;
    weir_client *a = open_client(runtime, "a", MIB, 2 * MIB);
    weir_client *b = open_client(runtime, "b", 3 * MIB, 0);
    void *p = allocate(a, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    snapshot before = take_snapshot(runtime);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_set_limits(a, 0, 2 * MIB - 1));
    detail_names("a cannot have a maximum");
    detail_names("2 MiB");
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_set_limits(a, 5 * MIB + 1, 0));
    detail_names("3 MiB"); /* what the others use or are guaranteed */
    unchanged(runtime, before);
    ok(weir_client_set_limits(a, 5 * MIB, 0));
    snapshot s = take_snapshot(runtime);
    check_sums(&s);
    assert_int_equal(s.clients[0].maximum, BUDGET); /* 0: the budget */
    assert_int_equal(s.clients[0].guaranteed, 5 * MIB);
    refused(b, 3 * MIB + 1, WEIR_CLASS_KV);
    ok(weir_client_set_limits(a, 0, 2 * MIB));
    void *q = allocate(b, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(a, p, WEIR_STREAM_HOST));
    ok(weir_free(b, q, WEIR_STREAM_HOST));
    ok(weir_client_destroy(a));
    ok(weir_client_destroy(b));
}

static void changing_the_budget_while_live(void **state)
{
    weir_runtime *runtime = *state;
    weir_client *a = open_client(runtime, "a", MIB, 0);
    weir_client *b = open_client(runtime, "b", 3 * MIB, 0);
    void *p = allocate(a, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(a, allocate(a, 3 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS), WEIR_STREAM_HOST));
    snapshot before = take_snapshot(runtime);
    assert_int_equal(before.device.held, 5 * MIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_runtime_set_budget(runtime, 5 * MIB - 1)); /* 2 live, 3 guaranteed */
    detail_names("5 MiB");
    unchanged(runtime, before); /* not even the cache is given up */
    ok(weir_runtime_set_budget(runtime, 5 * MIB));
    assert_int_equal(runtime_details(runtime).budget, 5 * MIB);
    refused(a, 1, WEIR_CLASS_KV);
    ok(weir_client_destroy(b));
    ok(weir_runtime_set_budget(runtime, 2 * MIB)); /* the cache is given up */
    snapshot s = take_snapshot(runtime);
    check_sums(&s);
    assert_int_equal(s.device.held, 2 * MIB);
    refused(a, 1, WEIR_CLASS_KV);
    ok(weir_runtime_set_budget(runtime, 3 * MIB));
    ok(weir_free(a, allocate(a, MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS), WEIR_STREAM_HOST));
    ok(weir_free(a, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(a));
}

/* Blocks that leave holes of odd sizes on both sides: the numbers of a refusal must still be exact. */
static void refusals_over_fragments(void **state)
{
    weir_runtime *runtime = *state;
    weir_client *client = open_client(runtime, "fragmented", 0, 0);
    uint64_t seed = 99;
    void *blocks[64];
    size_t count = 0;
    for (; count < 64 && take_snapshot(runtime).device.live < 7 * MIB; count++)
        blocks[count] = allocate(client, 1 + next_random(&seed) % (4 * GRANULE), WEIR_STREAM_HOST,
                                 count % 3 ? WEIR_CLASS_KV : WEIR_CLASS_WEIGHTS);
    for (size_t i = 0; i < count; i += 2)
        ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
    for (int region_number = 0; region_number < 2; region_number++) {
        weir_class memory_class = region_number ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_SCRATCH;
        weir_stats stats = WEIR_INIT(weir_stats);
        ok(weir_snapshot(runtime, &stats, NULL, 0, NULL));
        refused(client, BUDGET - stats.live, memory_class); /* the bytes are there, but not in one piece */
        weir_refusal r = last_refusal();
        assert_int_equal(r.cause, WEIR_CAUSE_FRAGMENTATION);
        assert_int_equal(r.remaining, BUDGET - stats.live);
        assert_true(r.largest > 0);
        check_largest(client, memory_class);
        assert_int_equal(last_refusal().requested, r.largest + 256);
        r = last_refusal();
        assert_true(r.needed > BUDGET);
        ok(weir_runtime_set_budget(runtime, r.needed - 1));
        refused(client, r.requested, memory_class);
        ok(weir_runtime_set_budget(runtime, r.needed));
        void *p = allocate(client, r.requested, WEIR_STREAM_HOST, memory_class);
        ok(weir_free(client, p, WEIR_STREAM_HOST));
        ok(weir_runtime_set_budget(runtime, BUDGET));
        refused(client, 2 * BUDGET, memory_class); /* and when the budget itself is too small */
        r = last_refusal();
        assert_int_equal(r.cause, WEIR_CAUSE_BUDGET);
        ok(weir_runtime_set_budget(runtime, r.needed - 1));
        refused(client, r.requested, memory_class);
        ok(weir_runtime_set_budget(runtime, r.needed));
        p = allocate(client, r.requested, WEIR_STREAM_HOST, memory_class);
        ok(weir_free(client, p, WEIR_STREAM_HOST));
        ok(weir_runtime_set_budget(runtime, BUDGET));
    }
    for (size_t i = 1; i < count; i += 2)
        ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
}

/* Also where the request is more than what is left in all. */
static void the_largest_lies_in_one_piece(void **state)
{
    enum { HALVES = 16 };
    (void)state;
    weir_runtime *runtime = make_runtime(HALVES / 2 * GRANULE);
    weir_client *client = open_client(runtime, "halves", 0, 0);
    void *blocks[HALVES], *refused_one;
    for (int i = 0; i < HALVES; i++)
        blocks[i] = allocate(client, GRANULE / 2, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    for (int i = 0; i < HALVES; i += 2)
        ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
    fails(WEIR_ERR_OUT_OF_MEMORY,
          weir_alloc(client, (HALVES / 4 + 1) * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV, &refused_one));
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, WEIR_CAUSE_BUDGET);
    assert_int_equal(r.remaining, HALVES / 4 * GRANULE);
    assert_int_equal(r.largest, GRANULE / 2);
    for (int i = 1; i < HALVES; i += 2)
        ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static void a_refusal_lists_the_largest_accounts_first(void **state)
{
    weir_runtime *runtime = *state;
    static const struct {
        const char *name;
        uint64_t guaranteed, live;
    } table[] = {{"a", 0, 3}, {"b", 40, 1}, {"c", 0, 20}, {"d", 0, 5}, {"e", 0, 4}, {"f", 0, 0}};
    weir_client *clients[6];
    void *blocks[6] = {NULL};
    for (int i = 0; i < 6; i++) {
        clients[i] = open_client(runtime, table[i].name, table[i].guaranteed * 256, 0);
        if (table[i].live)
            blocks[i] = allocate(clients[i], table[i].live * 256, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    }
    refused(clients[5], BUDGET, WEIR_CLASS_KV);
    weir_refusal r = last_refusal();
    static const char *const order[] = {"b", "c", "d", "e"};
    static const uint64_t bytes[] = {40, 20, 5, 4};
    for (int i = 0; i < WEIR_REFUSAL_HOLDERS; i++) {
        assert_string_equal(r.holders[i].client, order[i]);
        assert_int_equal(r.holders[i].bytes, bytes[i] * 256);
    }
    detail_names("b holds 10 KiB, c holds 5 KiB");
    detail_names("budget of 8 MiB");
    for (int i = 0; i < 6; i++) {
        ok(weir_free(clients[i], blocks[i], WEIR_STREAM_HOST));
        ok(weir_client_destroy(clients[i]));
    }
}

static void *look_at_refusal(void *user)
{
    *(weir_refusal *)user = last_refusal();
    return NULL;
}

static void refusals_are_the_threads_own(void **state)
{
    weir_runtime *runtime = *state;
    weir_client *client = open_client(runtime, "x", 0, 0);
    refused(client, 2 * BUDGET, WEIR_CLASS_KV);
    ok(weir_free(client, allocate(client, 1, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    assert_int_equal(last_refusal().requested, 2 * BUDGET); /* a success leaves it */
    weir_refusal other;
    pthread_t thread;
    pthread_create(&thread, NULL, look_at_refusal, &other);
    pthread_join(thread, NULL);
    assert_int_equal(other.cause, WEIR_CAUSE_NONE);
    fails(WEIR_ERR_INVALID, weir_refusal_last(NULL));
    ok(weir_client_destroy(client));
}

static void outside_is_noted_and_charged_to_nothing(void **state)
{
    weir_runtime *runtime = *state;
    weir_client *client = open_client(runtime, "x", 0, MIB);
    char method[200];
    memset(method, 'm', sizeof method - 1);
    method[sizeof method - 1] = '\0';
    ok(weir_client_note_outside(client, 5 * BUDGET, method));
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(client, &stats));
    assert_int_equal(stats.outside, (uint64_t)5 * BUDGET);
    assert_int_equal(strlen(stats.outside_method), 127);
    assert_int_equal(stats.live, 0);
    ok(weir_client_note_outside(client, 0, NULL));
    ok(weir_client_info(client, &stats));
    assert_string_equal(stats.outside_method, "");
    fails(WEIR_ERR_INVALID, weir_client_info(client, NULL));
    assert_string_equal(client_details(client).name, "x");
    assert_ptr_equal(client_details(client).runtime, runtime);
    char long_name[100];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    weir_client *other = open_client(runtime, long_name, 0, 0);
    assert_int_equal(strlen(client_details(other).name), 63);
    ok(weir_client_destroy(other));
    ok(weir_client_destroy(client));
}

static void trimming(void **state)
{
    weir_runtime *runtime = *state;
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *kept = allocate(client, 100, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(client, allocate(client, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    ok(weir_free(client, allocate(client, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS), WEIR_STREAM_HOST));
    snapshot before = take_snapshot(runtime);
    uint64_t released = 1;
    ok(trim_keeping(runtime, BUDGET, &released));
    assert_int_equal(released, 0);
    unchanged(runtime, before);
    ok(trim_keeping(runtime, 3 * MIB + 1, &released));
    snapshot after = take_snapshot(runtime);
    check_sums(&after);
    assert_int_equal(before.device.held - after.device.held, released);
    assert_true(after.device.cached + after.device.spare <= 3 * MIB + 1);
    assert_true(after.device.cached + after.device.spare > 3 * MIB - GRANULE); /* no more than asked for */
    ok(trim_keeping(runtime, 0, &released));
    after = take_snapshot(runtime);
    assert_int_equal(after.device.held, GRANULE); /* shared with a live block */
    assert_int_equal(after.device.spare, 0);
    ok(weir_free(client, kept, WEIR_STREAM_HOST));
    ok(weir_runtime_trim(runtime, NULL, NULL));
    assert_int_equal(take_snapshot(runtime).device.held, 0);
    ok(weir_client_destroy(client));
}

/* A larger budget would not help, so the refusal does not name one. */
static void no_budget_is_named_that_would_not_help(void **state)
{
    weir_runtime *runtime = *state;
    weir_client *client = open_client(runtime, "large", 0, 0);
    static const uint64_t sizes[] = {UINT64_C(1) << 47, UINT64_C(1) << 60};
    for (size_t i = 0; i < 2; i++) {
        refused(client, sizes[i], WEIR_CLASS_WEIGHTS);
        weir_refusal r = last_refusal();
        assert_int_equal(r.cause, WEIR_CAUSE_ADDRESS_RANGE);
        assert_int_equal(r.largest, BUDGET);
        assert_true(r.needed == UINT64_MAX);
        assert_null(strstr(weir_detail(), "16777216"));
        detail_names("can address; the largest possible request is 8 MiB");
        check_largest(client, WEIR_CLASS_WEIGHTS);
    }
    /* One that would have room if no region had a block. */
    void *blocks[] = {allocate(client, MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS),
                      allocate(client, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV),
                      allocate(client, 16 * 1024, WEIR_STREAM_HOST, WEIR_CLASS_KV)};
    uint64_t most = BUDGET;
    for (uint64_t beyond = sizes[0]; beyond - most > 1024;) {
        uint64_t middle = most + (beyond - most) / 2;
        refused(client, middle, WEIR_CLASS_WEIGHTS);
        *(last_refusal().cause == WEIR_CAUSE_ADDRESS_RANGE ? &beyond : &most) = middle;
    }
    refused(client, most, WEIR_CLASS_WEIGHTS);
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
    assert_true(last_refusal().needed == UINT64_MAX);
    detail_names("no budget would do: this request needs blocks freed between free ones");
    for (size_t i = 0; i < 3; i++)
        ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
}

int main(void)
{
    setenv("WEIR_THREAD_CACHE", "0", 1); /* what is freed is pending, and no thread cache keeps it */
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        test(a_guarantee_is_never_lent),
        test(opening_needs_room_for_the_guarantee),
        test(a_maximum_is_a_maximum),
        test(a_refusal_is_one_calls),
        test(a_pending_free_leaves_the_guarantees_of_others),
        test(changing_limits_while_live),
        test(changing_the_budget_while_live),
        test(refusals_over_fragments),
        test(no_budget_is_named_that_would_not_help),
        test(the_largest_lies_in_one_piece),
        test(a_refusal_lists_the_largest_accounts_first),
        test(refusals_are_the_threads_own),
        test(outside_is_noted_and_charged_to_nothing),
        test(trimming),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
