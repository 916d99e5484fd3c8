/* Every call that must be refused: it answers what its contract says and changes nothing. */
#include "core.h"

typedef struct fixture {
    weir_runtime *runtime, *other_runtime;
    weir_client *client, *neighbour, *stranger;
    weir_stream stream, released, foreign;
    char *block;
    snapshot before, others;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime(8 * MIB);
    f->other_runtime = make_runtime(8 * MIB);
    f->client = open_client(f->runtime, "mine", 0, 4 * MIB);
    f->neighbour = open_client(f->runtime, "neighbour", MIB, 0);
    f->stranger = open_client(f->other_runtime, "stranger", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    ok(weir_stream_acquire(f->runtime, &f->released));
    ok(weir_stream_acquire(f->other_runtime, &f->foreign));
    ok(weir_stream_release(f->released));
    f->block = allocate(f->client, 10000, f->stream, WEIR_CLASS_KV);
    memset(f->block, 0x5a, 10000);
    f->before = take_snapshot(f->runtime);
    f->others = take_snapshot(f->other_runtime);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 10000; i++)
        assert_int_equal(f->block[i], 0x5a);
    unchanged(f->runtime, f->before);
    unchanged(f->other_runtime, f->others);
    ok(weir_free(f->client, f->block, f->stream));
    ok(weir_client_destroy(f->client));
    ok(weir_client_destroy(f->neighbour));
    ok(weir_client_destroy(f->stranger));
    ok(weir_stream_release(f->stream));
    ok(weir_stream_release(f->foreign));
    ok(weir_runtime_destroy(f->runtime));
    ok(weir_runtime_destroy(f->other_runtime));
    free(f);
    return 0;
}

#define NOTHING_CHANGED unchanged(f->runtime, f->before)

static void pointers_that_are_none(void **state)
{
    fixture *f = *state;
    char own;
    char *theirs = allocate(f->stranger, 100, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    char *mine = f->block;
    void *wrong[] = {&own, (void *)(uintptr_t)16, (void *)UINTPTR_MAX, theirs, mine + 64 * MIB};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        fails(WEIR_ERR_FOREIGN, weir_free(f->client, wrong[i], f->stream));
        fails(WEIR_ERR_FOREIGN, weir_free_block(f->client, (weir_block){wrong[i], 1}, f->stream));
        fails(WEIR_ERR_FOREIGN, weir_resize(f->client, wrong[i], 100, f->stream));
        NOTHING_CHANGED;
    }
    fails(WEIR_ERR_FOREIGN, weir_free(f->neighbour, mine, f->stream)); /* another client's */
    detail_names("mine");
    detail_names("neighbour");
    detail_names("10000");
    fails(WEIR_ERR_FOREIGN, weir_resize(f->neighbour, mine, 100, f->stream));
    static const size_t offsets[] = {1, 255, 256, 512, 9999, 10239};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        char offset[24];
        snprintf(offset, sizeof offset, "%zu", offsets[i]);
        fails(WEIR_ERR_INTERIOR, weir_free(f->client, mine + offsets[i], f->stream));
        detail_names(offset);
        detail_names("mine");
        fails(WEIR_ERR_INTERIOR, weir_resize(f->client, mine + offsets[i], 100, f->stream));
        fails(WEIR_ERR_INTERIOR, weir_free_block(f->client, (weir_block){mine + offsets[i], 1}, f->stream));
        NOTHING_CHANGED;
    }
    fails(WEIR_ERR_FOREIGN, weir_free(f->client, mine + 10240, f->stream)); /* behind it */
    ok(weir_free(f->stranger, theirs, WEIR_STREAM_HOST));
    f->others = take_snapshot(f->other_runtime);
}

static void twice_and_stale(void **state)
{
    fixture *f = *state;
    weir_request request = {.struct_size = sizeof request, .bytes = 5000, .memory_class = WEIR_CLASS_KV};
    weir_block first, second;
    ok(weir_alloc_with(f->client, &request, &first));
    ok(weir_free_block(f->client, first, WEIR_STREAM_HOST));
    f->before = take_snapshot(f->runtime);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, first.pointer, f->stream));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free_block(f->client, first, f->stream));
    fails(WEIR_ERR_DOUBLE_FREE, weir_resize(f->client, first.pointer, 10, f->stream));
    NOTHING_CHANGED;
    ok(weir_alloc_with(f->client, &request, &second));
    assert_ptr_equal(second.pointer, first.pointer);
    f->before = take_snapshot(f->runtime);
    fails(WEIR_ERR_STALE, weir_free_block(f->client, first, f->stream));
    fails(WEIR_ERR_STALE, weir_free_block(f->client, (weir_block){second.pointer, second.generation + 1}, f->stream));
    fails(WEIR_ERR_INVALID, weir_free_block(f->client, (weir_block){second.pointer, 0}, f->stream));
    NOTHING_CHANGED;
    ok(weir_free_block(f->client, second, WEIR_STREAM_HOST));
    ok(weir_runtime_trim(f->runtime, NULL, NULL));
    f->before = take_snapshot(f->runtime);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free_block(f->client, second, f->stream));
    /* A freed address inside a later, larger block is inside that block. */
    request.bytes = 6000;
    weir_block large;
    ok(weir_alloc_with(f->client, &request, &large));
    if (large.pointer == first.pointer) {
        ok(weir_resize(f->client, large.pointer, 256, WEIR_STREAM_HOST));
        void *inside = allocate(f->client, 256, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        assert_ptr_equal(inside, (char *)large.pointer + 256);
        ok(weir_free(f->client, inside, WEIR_STREAM_HOST));
        ok(weir_resize(f->client, large.pointer, 6000, WEIR_STREAM_HOST));
        fails(WEIR_ERR_INTERIOR, weir_free(f->client, inside, WEIR_STREAM_HOST));
    }
    ok(weir_free_block(f->client, large, WEIR_STREAM_HOST));
    f->before = take_snapshot(f->runtime);
}

static void pending_blocks_are_freed_already(void **state)
{
    fixture *f = *state;
    char *p = allocate(f->client, 3000, f->stream, WEIR_CLASS_KV);
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    free_behind(f->client, p, f->stream);
    f->before = take_snapshot(f->runtime);
    assert_int_equal(f->before.device.pending, 3072);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, p, f->stream));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->neighbour, p, WEIR_STREAM_HOST));
    fails(WEIR_ERR_DOUBLE_FREE, weir_resize(f->client, p, 10, f->stream));
    fails(WEIR_ERR_FOREIGN, weir_free(f->client, p + 256, f->stream));
    NOTHING_CHANGED;
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    f->before = take_snapshot(f->runtime);
    assert_int_equal(f->before.device.pending, 0);
}

static void streams_that_are_none(void **state)
{
    fixture *f = *state;
    weir_stream wrong[] = {f->released,      f->foreign,         {1},
                           {UINT64_MAX - 1}, {f->stream.id + 1}, {f->stream.id ^ 1u << 20}};
    weir_runtime *r = f->runtime;
    char bytes[8] = "seven..";
    void *p = f;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        weir_stream s = wrong[i];
        weir_request request = {.struct_size = sizeof request, .bytes = 100, .stream = s};
        weir_block block;
        fails(WEIR_ERR_STREAM_MISUSE, weir_alloc(f->client, 100, s, WEIR_CLASS_KV, &p));
        assert_null(p);
        fails(WEIR_ERR_STREAM_MISUSE, weir_alloc(f->client, 0, s, WEIR_CLASS_KV, &p));
        fails(WEIR_ERR_STREAM_MISUSE, weir_alloc_with(f->client, &request, &block));
        fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->client, f->block, s));
        fails(WEIR_ERR_STREAM_MISUSE, weir_resize(f->client, f->block, 100, s));
        fails(WEIR_ERR_STREAM_MISUSE, weir_resize(f->client, f->block, 20000, s));
        fails(WEIR_ERR_STREAM_MISUSE, weir_copy(r, bytes, bytes + 1, 2, s));
        fails(WEIR_ERR_STREAM_MISUSE, weir_fill(r, bytes, 0, 2, s));
        fails(WEIR_ERR_STREAM_MISUSE, weir_call(r, pass_gate, NULL, s));
        if (s.id != f->foreign.id) {
            fails(WEIR_ERR_STREAM_MISUSE, weir_stream_release(s));
            fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(s));
            assert_null(weir_stream_native(s));
        }
        assert_string_equal(bytes, "seven..");
        NOTHING_CHANGED;
    }
    fails(WEIR_ERR_INVALID, weir_stream_release(WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_copy(NULL, bytes, bytes, 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_copy(r, NULL, bytes, 1, f->stream));
    fails(WEIR_ERR_INVALID, weir_copy(r, bytes, NULL, 1, f->stream));
    fails(WEIR_ERR_INVALID, weir_fill(r, NULL, 0, 1, f->stream));
    fails(WEIR_ERR_INVALID, weir_call(r, NULL, NULL, f->stream));
    fails(WEIR_ERR_INVALID, weir_stream_acquire(NULL, &wrong[0]));
    fails(WEIR_ERR_INVALID, weir_stream_acquire(r, NULL));
    ok(weir_copy(r, NULL, NULL, 0, f->stream));
}

static void requests_that_are_none(void **state)
{
    fixture *f = *state;
    void *p = f;
    weir_block block = {f, 1};
    fails(WEIR_ERR_INVALID, weir_alloc(NULL, 100, f->stream, WEIR_CLASS_KV, &p));
    fails(WEIR_ERR_INVALID, weir_alloc(f->client, 100, f->stream, WEIR_CLASS_KV, NULL));
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 255, SIZE_MAX / 2, SIZE_MAX / 4 + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        fails(WEIR_ERR_INVALID, weir_alloc(f->client, sizes[i], f->stream, WEIR_CLASS_KV, &p));
        assert_null(p);
        fails(WEIR_ERR_INVALID, weir_resize(f->client, f->block, sizes[i], f->stream));
    }
    static const int classes[] = {-1, WEIR_CLASS_COUNT, 1 << 20};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        fails(WEIR_ERR_INVALID, weir_alloc(f->client, 100, f->stream, (weir_class)classes[i], &p));
    static const size_t alignments[] = {3, 255, 384, 4 << 20, SIZE_MAX};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        weir_request request = {.struct_size = sizeof request, .bytes = 100, .alignment = alignments[i]};
        fails(WEIR_ERR_INVALID, weir_alloc_with(f->client, &request, &block));
        assert_null(block.pointer);
    }
    for (unsigned flag = 1u << 3; flag; flag <<= 1) {
        weir_request request = {.struct_size = sizeof request, .bytes = 100, .flags = flag | WEIR_ALLOC_ZEROED};
        fails(WEIR_ERR_INVALID, weir_alloc_with(f->client, &request, &block));
    }
    weir_request request = {.struct_size = 0, .bytes = 100};
    fails(WEIR_ERR_INVALID, weir_alloc_with(f->client, &request, &block));
    fails(WEIR_ERR_INVALID, weir_alloc_with(f->client, NULL, &block));
    request.struct_size = sizeof request;
    fails(WEIR_ERR_INVALID, weir_alloc_with(f->client, &request, NULL));
    fails(WEIR_ERR_INVALID, weir_resize(f->client, NULL, 100, f->stream));
    fails(WEIR_ERR_INVALID, weir_resize(f->client, f->block, 0, f->stream));
    fails(WEIR_ERR_INVALID, weir_free(NULL, f->block, f->stream));
    fails(WEIR_ERR_INVALID, weir_free_block(NULL, (weir_block){f->block, 1}, f->stream));
    fails(WEIR_ERR_INVALID, weir_snapshot(NULL, &f->others.device, NULL, 0, NULL));
    fails(WEIR_ERR_INVALID, weir_snapshot(f->runtime, NULL, NULL, 0, NULL));
    fails(WEIR_ERR_INVALID, weir_snapshot(f->runtime, &f->others.device, NULL, 1, NULL));
    NOTHING_CHANGED;
}

static void closed_clients(void **state)
{
    fixture *f = *state;
    weir_client *gone = open_client(f->runtime, "gone", 0, 0);
    ok(weir_client_destroy(gone));
    void *p = f;
    weir_block block;
    weir_request request = {.struct_size = sizeof request, .bytes = 100};
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    fails(WEIR_ERR_INVALID, weir_client_destroy(gone));
    fails(WEIR_ERR_INVALID, weir_alloc(gone, 100, f->stream, WEIR_CLASS_KV, &p));
    fails(WEIR_ERR_INVALID, weir_alloc_with(gone, &request, &block));
    fails(WEIR_ERR_INVALID, weir_free(gone, f->block, f->stream));
    fails(WEIR_ERR_INVALID, weir_free(gone, NULL, f->stream));
    fails(WEIR_ERR_INVALID, weir_free_block(gone, (weir_block){f->block, 1}, f->stream));
    fails(WEIR_ERR_INVALID, weir_resize(gone, f->block, 10, f->stream));
    fails(WEIR_ERR_INVALID, weir_client_set_limits(gone, 0, MIB));
    fails(WEIR_ERR_INVALID, weir_client_note_outside(gone, 1, "x"));
    fails(WEIR_ERR_INVALID, weir_client_info(gone, &stats));
    fails(WEIR_ERR_INVALID, weir_client_destroy(NULL));
    fails(WEIR_ERR_INVALID, weir_client_info(NULL, &stats));
    NOTHING_CHANGED;
}

static void clients_that_cannot_be(void **state)
{
    fixture *f = *state;
    weir_client *client = f->client;
    weir_client_options o = WEIR_INIT(weir_client_options);
    fails(WEIR_ERR_INVALID, weir_client_create(f->runtime, &o, &client));
    assert_null(client);
    o.name = "";
    fails(WEIR_ERR_INVALID, weir_client_create(f->runtime, &o, &client));
    o.name = "x";
    o.guaranteed = 2;
    o.maximum = 1;
    fails(WEIR_ERR_INVALID, weir_client_create(f->runtime, &o, &client));
    fails(WEIR_ERR_INVALID, weir_client_create(NULL, &o, &client));
    fails(WEIR_ERR_INVALID, weir_client_create(f->runtime, NULL, &client));
    fails(WEIR_ERR_INVALID, weir_client_create(f->runtime, &o, NULL));
    o.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_client_create(f->runtime, &o, &client));
    fails(WEIR_ERR_INVALID, weir_client_set_limits(f->client, 2, 1));
    fails(WEIR_ERR_INVALID, weir_client_set_limits(NULL, 0, 0));
    fails(WEIR_ERR_INVALID, weir_runtime_set_budget(f->runtime, 0));
    fails(WEIR_ERR_INVALID, weir_runtime_set_budget(NULL, 1));
    fails(WEIR_ERR_INVALID, weir_runtime_trim(NULL, NULL, NULL));
    fails(WEIR_ERR_BUSY, weir_client_destroy(f->client));
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(f->runtime));
    NOTHING_CHANGED;
}

int main(void)
{
    setenv("WEIR_THREAD_CACHE", "0", 1); /* what is freed is pending, and no thread cache keeps it */
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        test(pointers_that_are_none), test(twice_and_stale),        test(pending_blocks_are_freed_already),
        test(streams_that_are_none),  test(requests_that_are_none), test(closed_clients),
        test(clients_that_cannot_be),
    };
    return cmocka_run_group_tests_name("misuse", tests, NULL, NULL);
}
