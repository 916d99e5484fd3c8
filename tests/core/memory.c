/* Allocation, free, resize and looking at blocks. */
#include "core.h"

enum { BUDGET = 16 << 20 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime(BUDGET);
    f->client = open_client(f->runtime, "one", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_stream_release(f->stream));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static weir_block_details look(const void *pointer)
{
    weir_block_details details = WEIR_INIT(weir_block_details);
    ok(weir_block_info(pointer, &details));
    return details;
}

static void a_block_can_be_used_and_freed(void **state)
{
    fixture *f = *state;
    unsigned char *p = allocate(f->client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
    assert_int_equal((uintptr_t)p % 256, 0);
    memset(p, 0xa5, 1000);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, 1024);
    assert_int_equal(s.clients[0].live_class[WEIR_CLASS_ACTIVATIONS], 1024);
    assert_int_equal(s.clients[0].blocks, 1);
    assert_int_equal(s.clients[0].allocations, 1);
    assert_int_equal(s.device.allocations, 1);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live + s.device.pending, 0);
    assert_int_equal(s.clients[0].frees, 1);
    assert_int_equal(s.device.cached, s.device.held); /* kept for the next */
    uint64_t calls = s.device.driver_calls;
    assert_ptr_equal(allocate(f->client, 900, f->stream, WEIR_CLASS_KV), p);
    ok(weir_free(f->client, p, f->stream));
    assert_int_equal(take_snapshot(f->runtime).device.driver_calls, calls); /* reuse without the driver */
}

static void zero_bytes_and_null(void **state)
{
    fixture *f = *state;
    snapshot before = take_snapshot(f->runtime);
    void *p = f;
    ok(weir_alloc(f->client, 0, f->stream, WEIR_CLASS_KV, &p));
    assert_null(p);
    weir_request request = {.struct_size = sizeof request, .alignment = 4096, .stream = f->stream};
    weir_block block = {f, 3};
    ok(weir_alloc_with(f->client, &request, &block));
    assert_null(block.pointer);
    assert_int_equal(block.generation, 0);
    ok(weir_free(f->client, NULL, f->stream));
    ok(weir_free_block(f->client, (weir_block){NULL, 0}, f->stream));
    unchanged(f->runtime, before);
}

static void charges_are_multiples_of_256(void **state)
{
    fixture *f = *state;
    static const size_t sizes[] = {1, 255, 256, 257, 4096, 65536, 65537, 1000000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *p = allocate(f->client, sizes[i], WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
        weir_block_details d = look(p);
        assert_int_equal(d.bytes, sizes[i]);
        assert_int_equal(d.charged, (sizes[i] + 255) / 256 * 256);
        assert_int_equal(take_snapshot(f->runtime).device.live, d.charged);
        memset(p, 1, sizes[i]);
        ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    }
}

static void alignments(void **state)
{
    fixture *f = *state;
    void *blocks[2 * 22];
    int count = 0;
    for (int round = 0; round < 2; round++)
        for (size_t alignment = 1; alignment <= 2 * MIB; alignment *= 2) {
            weir_request request = {.struct_size = sizeof request,
                                    .bytes = round ? 300 : 70000,
                                    .alignment = alignment,
                                    .memory_class = alignment & 0x55555 ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_SCRATCH};
            weir_block block;
            ok(weir_alloc_with(f->client, &request, &block));
            assert_int_equal((uintptr_t)block.pointer % (alignment < 256 ? 256 : alignment), 0);
            memset(block.pointer, count, request.bytes);
            blocks[count++] = block.pointer;
        }
    for (int i = 0; i < count; i++) {
        weir_block_details d = look(blocks[i]);
        for (size_t k = 0; k < d.bytes; k++)
            assert_int_equal(((unsigned char *)blocks[i])[k], i);
        ok(weir_free(f->client, blocks[i], WEIR_STREAM_HOST));
    }
}

static void zeroed_memory_that_was_used_before(void **state)
{
    fixture *f = *state;
    static const unsigned char zeros[200000];
    unsigned char *p = allocate(f->client, sizeof zeros, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    memset(p, 0xff, sizeof zeros);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    weir_request request = {.struct_size = sizeof request,
                            .bytes = sizeof zeros,
                            .memory_class = WEIR_CLASS_KV,
                            .flags = WEIR_ALLOC_ZEROED};
    weir_block block;
    ok(weir_alloc_with(f->client, &request, &block));
    assert_ptr_equal(block.pointer, p);
    assert_memory_equal(p, zeros, sizeof zeros);
    memset(p, 0xff, sizeof zeros);
    ok(weir_free_block(f->client, block, WEIR_STREAM_HOST));
    /* On a stream: not before what is queued, and there when the stream is past it. */
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    request.stream = f->stream;
    ok(weir_alloc_with(f->client, &request, &block));
    assert_int_equal(*(unsigned char *)block.pointer, 0xff);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_memory_equal(block.pointer, zeros, sizeof zeros);
    ok(weir_free_block(f->client, block, f->stream));
}

static void flags_and_stable(void **state)
{
    fixture *f = *state;
    weir_request request = {.struct_size = sizeof request,
                            .bytes = 100,
                            .flags = WEIR_ALLOC_ZEROED | WEIR_ALLOC_NO_WAIT | WEIR_ALLOC_STABLE};
    weir_block block;
    ok(weir_alloc_with(f->client, &request, &block));
    ok(weir_free_block(f->client, block, f->stream));
}

static void what_a_pointer_belongs_to(void **state)
{
    fixture *f = *state;
    char tag[80];
    memset(tag, 't', sizeof tag - 1);
    tag[sizeof tag - 1] = '\0';
    weir_request request = {.struct_size = sizeof request,
                            .bytes = 5000,
                            .stream = f->stream,
                            .memory_class = WEIR_CLASS_WEIGHTS,
                            .tag = "layer.0"};
    weir_block a, b;
    ok(weir_alloc_with(f->client, &request, &a));
    request.tag = tag;
    ok(weir_alloc_with(f->client, &request, &b));
    assert_true(a.generation > 0 && b.generation > a.generation);
    weir_block_details d = look((char *)a.pointer + 4999);
    assert_ptr_equal(d.block.pointer, a.pointer);
    assert_int_equal(d.block.generation, a.generation);
    assert_int_equal(d.offset, 4999);
    assert_int_equal(d.bytes, 5000);
    assert_int_equal(d.charged, 5120);
    assert_ptr_equal(d.client, f->client);
    assert_ptr_equal(d.runtime, f->runtime);
    assert_int_equal(d.memory_class, WEIR_CLASS_WEIGHTS);
    assert_int_equal(d.state, WEIR_BLOCK_LIVE);
    assert_int_equal(d.stream.id, f->stream.id);
    assert_string_equal(d.tag, "layer.0");
    d = look(b.pointer);
    assert_int_equal(strlen(d.tag), 47);
    assert_int_equal(look((char *)a.pointer + 5119).offset, 5119); /* what is charged belongs to it */
    ok(weir_free_block(f->client, a, WEIR_STREAM_HOST));
    d = look(a.pointer);
    assert_int_equal(d.state, WEIR_BLOCK_FREE);
    assert_int_equal(d.block.generation, 0);
    assert_null(d.client);
    assert_ptr_equal(d.runtime, f->runtime);
    void *own = malloc(16);
    weir_block_details other = WEIR_INIT(weir_block_details);
    fails(WEIR_ERR_FOREIGN, weir_block_info(own, &other));
    fails(WEIR_ERR_FOREIGN, weir_block_info(NULL, &other));
    fails(WEIR_ERR_INVALID, weir_block_info(b.pointer, NULL));
    free(own);
    ok(weir_free_block(f->client, b, WEIR_STREAM_HOST));
    void *plain = allocate(f->client, 10, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    assert_string_equal(look(plain).tag, "");
    ok(weir_free(f->client, plain, WEIR_STREAM_HOST));
}

static void peaks(void **state)
{
    fixture *f = *state;
    void *w = allocate(f->client, 1000 * 256, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    void *a = allocate(f->client, 500 * 256, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
    ok(weir_free(f->client, a, WEIR_STREAM_HOST));
    void *k = allocate(f->client, 100 * 256, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.peak, 1500 * 256);
    assert_int_equal(s.clients[0].peak, 1500 * 256);
    assert_int_equal(s.clients[0].peak_class[WEIR_CLASS_WEIGHTS], 1000 * 256);
    assert_int_equal(s.clients[0].peak_class[WEIR_CLASS_ACTIVATIONS], 500 * 256);
    assert_int_equal(s.clients[0].peak_class[WEIR_CLASS_KV], 0);
    /* A free that is pending still counts for the peak. */
    ok(weir_stats_reset(f->runtime, WEIR_RESET_PEAKS));
    s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.peak, 1100 * 256);
    assert_int_equal(s.device.peak_held, s.device.held);
    assert_int_equal(s.clients[0].peak_class[WEIR_CLASS_KV], 100 * 256);
    assert_int_equal(s.clients[0].peak_class[WEIR_CLASS_ACTIVATIONS], 0);
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    free_behind(f->client, k, f->stream);
    void *again = allocate(f->client, 100 * 256, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    assert_ptr_not_equal(again, k);
    s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.pending, 100 * 256);
    assert_int_equal(s.device.peak, 1200 * 256);
    assert_int_equal(s.clients[0].peak_class[WEIR_CLASS_KV], 100 * 256);
    assert_int_equal(s.clients[0].peak_class[WEIR_CLASS_SCRATCH], 100 * 256);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    ok(weir_free(f->client, again, WEIR_STREAM_HOST));
    ok(weir_free(f->client, w, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_stats_reset(NULL, WEIR_RESET_PEAKS));
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

static void check_bytes(const unsigned char *p, unsigned char value, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(p[i], value);
}

static void shrinking_returns_the_tail(void **state)
{
    fixture *f = *state;
    unsigned char *p = allocate(f->client, 300000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    memset(p, 7, 300000);
    uint64_t generation = look(p).block.generation;
    ok(weir_resize(f->client, p, 1000, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.live, 1024);
    weir_block_details d = look(p);
    assert_int_equal(d.bytes, 1000);
    assert_int_equal(d.charged, 1024);
    assert_int_equal(d.block.generation, generation);
    check_bytes(p, 7, 1000);
    assert_int_equal(look(p + 1024).state, WEIR_BLOCK_FREE);
    void *q = allocate(f->client, 100 * 256, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(q, p + 1024);                        /* the tail serves the next */
    ok(weir_resize(f->client, p, 990, WEIR_STREAM_HOST)); /* within the charge */
    assert_int_equal(look(p).bytes, 990);
    assert_int_equal(look(p).charged, 1024);
    ok(weir_resize(f->client, p, 1024, WEIR_STREAM_HOST));
    assert_int_equal(look(p).bytes, 1024);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, 1024 + 100 * 256);
    assert_int_equal(s.clients[0].blocks, 2);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    ok(weir_free(f->client, q, WEIR_STREAM_HOST));
}

static void shrinking_behind_a_stream(void **state)
{
    fixture *f = *state;
    unsigned char *p = allocate(f->client, 100 * 256, f->stream, WEIR_CLASS_KV);
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_resize(f->client, p, 10 * 256, f->stream));
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, 10 * 256);
    assert_int_equal(s.device.pending, 90 * 256);
    assert_int_equal(s.clients[0].blocks, 1);
    assert_int_equal(look(p + 10 * 256).state, WEIR_BLOCK_PENDING);
    fails(WEIR_ERR_NO_ROOM, weir_resize(f->client, p, 11 * 256, f->stream)); /* its own tail is in the way */
    detail_names("one");
    void *q = allocate(f->client, 90 * 256, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_not_equal(q, p + 10 * 256);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    ok(weir_resize(f->client, p, 100 * 256, f->stream)); /* passed, though nobody had looked */
    s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, 190 * 256);
    assert_int_equal(s.device.pending, 0);
    ok(weir_free(f->client, p, f->stream));
    ok(weir_free(f->client, q, f->stream));
}

static void growing(void **state)
{
    fixture *f = *state;
    unsigned char *p = allocate(f->client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    memset(p, 9, 1000);
    ok(weir_resize(f->client, p, 60000, WEIR_STREAM_HOST));   /* free memory of the same handle */
    ok(weir_resize(f->client, p, 1000000, WEIR_STREAM_HOST)); /* a hole */
    check_bytes(p, 9, 1000);
    memset(p, 9, 1000000);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, (1000000 + 255) / 256 * 256);
    assert_int_equal(look(p).charged, s.device.live);
    void *q = allocate(f->client, 100, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(q, p + s.device.live);
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_NO_ROOM, weir_resize(f->client, p, 1000193, WEIR_STREAM_HOST));
    detail_names("one");
    unchanged(f->runtime, before);
    assert_int_equal(look(p).bytes, 1000000);
    ok(weir_resize(f->client, p, 1000192, WEIR_STREAM_HOST)); /* up to what it is charged */
    ok(weir_free(f->client, q, WEIR_STREAM_HOST));
    ok(weir_resize(f->client, p, BUDGET, WEIR_STREAM_HOST)); /* all there is */
    memset(p, 9, BUDGET);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_resize(f->client, p, BUDGET + 1, WEIR_STREAM_HOST));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
    check_bytes(p, 9, 1000);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
}

static void growing_up_to_the_maximum(void **state)
{
    fixture *f = *state;
    weir_client *small = open_client(f->runtime, "small", 0, 100 * 256);
    void *p = allocate(small, 256, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_resize(small, p, 100 * 256, WEIR_STREAM_HOST));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_resize(small, p, 100 * 256 + 1, WEIR_STREAM_HOST));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_MAXIMUM);
    before.device.refusals++;
    before.clients[1].refusals++;
    unchanged(f->runtime, before);
    ok(weir_free(small, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(small));
}

static void growing_takes_handles_from_under_free_memory(void **state)
{
    fixture *f = *state;
    /* Everything is held and most of it free on the other side. */
    void *w = allocate(f->client, BUDGET - 2 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    unsigned char *p = allocate(f->client, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    memset(p, 3, GRANULE);
    ok(weir_free(f->client, w, WEIR_STREAM_HOST));
    ok(weir_resize(f->client, p, BUDGET, WEIR_STREAM_HOST));
    check_bytes(p, 3, GRANULE);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
}

int main(void)
{
    setenv("WEIR_THREAD_CACHE", "0", 1); /* what is freed is pending, and no thread cache keeps it */
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        test(a_block_can_be_used_and_freed),
        test(zero_bytes_and_null),
        test(charges_are_multiples_of_256),
        test(alignments),
        test(zeroed_memory_that_was_used_before),
        test(flags_and_stable),
        test(what_a_pointer_belongs_to),
        test(peaks),
        test(shrinking_returns_the_tail),
        test(shrinking_behind_a_stream),
        test(growing),
        test(growing_up_to_the_maximum),
        test(growing_takes_handles_from_under_free_memory),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
