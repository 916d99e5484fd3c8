/* Requests that name a capture pool, as the bridges to frameworks make them: without weir_capture_begin, on streams that
 * are captured or not. */
#include "graph.h"

#include <stdatomic.h>

static weir_status ask(fixture *f, size_t bytes, weir_stream stream, weir_block *out)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = bytes,
                            .stream = stream,
                            .memory_class = WEIR_CLASS_ACTIVATIONS,
                            .flags = WEIR_ALLOC_NO_WAIT,
                            .pool = f->graph};
    return weir_alloc_with(f->client, &request, out);
}

static void *take(fixture *f, size_t bytes, weir_stream stream)
{
    weir_block block;
    ok(ask(f, bytes, stream, &block));
    return block.pointer;
}

/* A capture of which weir is not told. */
static void begin_untold(fixture *f, weir_stream stream, program *p)
{
    *p = (program){.count = 0};
    if (on_cuda())
        CUDA(f, "cuStreamBeginCapture", (void *, int), weir_stream_native(stream), 0 /* global */);
}

static void end_untold(fixture *f, weir_stream stream, program *p)
{
    if (on_cuda())
        CUDA(f, "cuStreamEndCapture", (void *, void **), weir_stream_native(stream), &p->graph);
}

static void in_the_order_of_a_stream(void **state)
{
    fixture *f = *state;
    void *first = take(f, BLOCK, f->a);
    graph_has(f->graph, 0, 1);
    ok(weir_free(f->client, first, f->a));
    graph_has(f->graph, BLOCK, 0);
    assert_int_equal(pending(f), BLOCK);
    void *ordinary = allocate(f->client, BLOCK, f->a, WEIR_CLASS_ACTIVATIONS);
    void *elsewhere = take(f, BLOCK, f->b);
    assert_ptr_not_equal(ordinary, first);
    assert_ptr_not_equal(elsewhere, first);
    assert_ptr_equal(take(f, BLOCK, f->a), first);
    graph_has(f->graph, 0, 2);
    ok(weir_free(f->client, first, f->a));
    ok(weir_free(f->client, elsewhere, f->b));
    ok(weir_free(f->client, ordinary, f->a));
    graph_has(f->graph, 2 * (uint64_t)BLOCK, 0);
}

/* Work that stands before the free need not be done, as the next block of the stream comes behind it; on other streams it
 * must be. */
static void behind_what_the_stream_has_to_do(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    void *block = take(f, BLOCK, f->a), *other = take(f, BLOCK, f->a);
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_free(f->client, block, f->a));
    assert_ptr_equal(take(f, BLOCK, f->a), block);
    ok(weir_call(f->runtime, pass_gate, &g, f->b));
    ok(weir_free(f->client, other, f->b)); /* not that of its allocation */
    void *third = take(f, BLOCK, f->a);
    assert_ptr_not_equal(third, other);
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    assert_ptr_equal(take(f, BLOCK, f->a), other);
    ok(weir_free(f->client, block, f->a));
    ok(weir_free(f->client, other, f->a));
    ok(weir_free(f->client, third, f->a));
    graph_has(f->graph, 3 * (uint64_t)BLOCK, 0);
}

/* What was freed in a stream's order serves no graph, which may be launched on another stream before that is past. */
static void memory_that_waits_serves_none(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    void *ordinary = allocate(f->client, BUDGET - 4 * BLOCK, f->a, WEIR_CLASS_KV);
    weir_block block;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_free(f->client, ordinary, f->a));
    fails(WEIR_ERR_OUT_OF_MEMORY, ask(f, BUDGET / 2, f->a, &block));
    graph_has(f->graph, 0, 0);
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    ok(ask(f, BUDGET / 2, f->a, &block));
    ok(weir_free_block(f->client, block, f->a));
}

static void parts_and_neighbours(void **state)
{
    fixture *f = *state;
    char *whole = take(f, 4 * BLOCK, f->a), *parts[4];
    ok(weir_free(f->client, whole, f->a));
    for (int i = 0; i < 4; i++)
        parts[i] = take(f, BLOCK, f->a);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(parts[i], whole + i * (ptrdiff_t)BLOCK);
    for (int i = 0; i < 4; i++)
        ok(weir_free(f->client, parts[i], f->a));
    graph_has(f->graph, 4 * (uint64_t)BLOCK, 0);
    assert_ptr_equal(take(f, 4 * BLOCK, f->a), whole);
    ok(weir_free(f->client, whole, f->a));
    char *here = take(f, BLOCK, f->a), *there = take(f, BLOCK, f->b);
    assert_ptr_not_equal(there, whole + BLOCK); /* what was left is of the other stream */
    ok(weir_free(f->client, there, f->b));
    ok(weir_free(f->client, here, f->a));
}

static void neighbours_of_two_streams(void **state)
{
    fixture *f = *state;
    char *first = take(f, BLOCK, f->a), *second = take(f, BLOCK, f->b);
    assert_ptr_equal(second, first + BLOCK);
    ok(weir_free(f->client, first, f->a));
    ok(weir_free(f->client, second, f->b));
    assert_int_equal(info(f->graph).held_blocks, 2);
    char *both = take(f, 2 * BLOCK, f->a);
    assert_ptr_not_equal(both, first);
    ok(weir_free(f->client, both, f->a));
}

/* Several streams join a capture of which weir was not told; blocks are freed and used again within. */
static void captures_untold(void **state)
{
    fixture *f = *state;
    program p;
    void *before = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    begin_untold(f, f->a, &p);
    void *temporary = take(f, BLOCK, f->a);
    put(f, &p, f->a, (operation){temporary, NULL, 7});
    void *result = take(f, BLOCK, f->a);
    put(f, &p, f->a, (operation){result, temporary, 0});
    ok(weir_free(f->client, temporary, f->a));
    if (on_cuda())
        fails(WEIR_ERR_STREAM_MISUSE, weir_capture_pool_destroy(f->graph, WEIR_STREAM_ALL));
    void *again = take(f, BLOCK, f->a);
    assert_ptr_equal(again, temporary);
    put(f, &p, f->a, (operation){again, NULL, 5});
    ok(weir_free(f->client, again, f->a));
    end_untold(f, f->a, &p);
    for (int i = 0; i < 2; i++) {
        ok(weir_fill(f->runtime, result, 1, BLOCK, f->b));
        launch(f, &p, f->b);
        ok(weir_stream_synchronize(f->b));
        holds(f, result, 7);
        holds(f, temporary, 5);
    }
    ok(weir_free(f->client, before, f->a));
    ok(weir_free(f->client, result, f->a));
    graph_has(f->graph, 2 * (uint64_t)BLOCK, 0);
    destroy(f, &p);
}

/* Blocks by begin and end, and blocks of requests, keep apart. */
static void the_two_ways_keep_apart(void **state)
{
    fixture *f = *state;
    program p;
    begin(f, f->graph, f->a, &p);
    void *told = allocate(f->client, BLOCK, f->a, WEIR_CLASS_SCRATCH);
    ok(weir_free(f->client, told, f->a));
    end(f, f->graph, f->a, &p);
    destroy(f, &p);
    void *named = take(f, BLOCK, f->a);
    assert_ptr_not_equal(named, told);
    ok(weir_free(f->client, named, f->a));
    begin(f, f->graph, f->a, &p);
    assert_ptr_equal(allocate(f->client, BLOCK, f->a, WEIR_CLASS_SCRATCH), told);
    assert_ptr_equal(take(f, BLOCK, f->a), named);
    ok(weir_free(f->client, told, f->a));
    ok(weir_free(f->client, named, f->a));
    end(f, f->graph, f->a, &p);
    destroy(f, &p);
}

static void run_and_note(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

/* Behind the work of every stream; on the host that is waited for. */
static void closing_behind_all(void **state)
{
    fixture *f = *state;
    atomic_int done = 0;
    void *block = take(f, BLOCK, f->a);
    ok(weir_free(f->client, block, f->a));
    ok(weir_call(f->runtime, run_and_note, &done, f->b));
    ok(weir_capture_pool_destroy(f->graph, WEIR_STREAM_ALL));
    ok(weir_capture_pool_create(f->client, &f->graph));
    if (!on_cuda())
        assert_int_equal(atomic_load(&done), 1);
    void *all = allocate(f->other, BUDGET, f->a, WEIR_CLASS_KV);
    assert_int_equal(pending(f), 0);
    ok(weir_free(f->other, all, f->a));
    ok(weir_capture_begin(f->b, NULL));
    fails(WEIR_ERR_STREAM_MISUSE,
          on_cuda() ? weir_capture_pool_destroy(f->graph, f->b) : weir_capture_pool_destroy(f->graph, WEIR_STREAM_ALL));
    ok(weir_capture_end(f->b, NULL));
    graph_has(f->graph, 0, 0);                                               /* it is open */
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(WEIR_STREAM_ALL)); /* it names no stream */
}

/* The same of a block's free: pending until the work of another stream, which weir was told nothing of, is done. */
static void freeing_behind_all(void **state)
{
    fixture *f = *state;
    gate held = GATE;
    program p;
    void *block = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV), *other;
    ok(weir_call(f->runtime, pass_gate, &held, f->b));
    if (on_cuda()) { /* the host waits for its streams */
        ok(weir_free(f->client, block, WEIR_STREAM_ALL));
        assert_int_equal(pending(f), BLOCK);
        other = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
        assert_ptr_not_equal(other, block);
        fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, block, WEIR_STREAM_ALL));
        block = other;
    }
    open_gate(&held);
    ok(weir_stream_synchronize(f->b));
    ok(weir_capture_begin(f->b, NULL));
    begin_untold(f, f->b, &p);
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->client, block, WEIR_STREAM_ALL));
    end_untold(f, f->b, &p);
    ok(weir_capture_end(f->b, NULL));
    ok(weir_free(f->client, block, WEIR_STREAM_ALL));
    destroy(f, &p);
    void *all = allocate(f->other, BUDGET, f->a, WEIR_CLASS_KV); /* which waits */
    assert_int_equal(pending(f), 0);
    ok(weir_free(f->other, all, f->a));
}

static void what_is_refused(void **state)
{
    fixture *f = *state;
    weir_block block = {&block, 1};
    weir_reservation *reservation;
    ok(weir_reservation_create(f->client, BLOCK, 0, &reservation));
    snapshot before = take_snapshot(f->runtime);
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .stream = f->a, .pool = f->graph};
    weir_request zeroed = request, kept = request, pinned = request;
    zeroed.flags = WEIR_ALLOC_ZEROED;
    kept.reservation = reservation;
    pinned.kind = WEIR_KIND_PINNED;
    fails(WEIR_ERR_INVALID, weir_alloc_with(f->other, &request, &block));
    detail_names("other");
    assert_null(block.pointer);
    fails(WEIR_ERR_INVALID, weir_alloc_with(f->client, &zeroed, &block));
    fails(WEIR_ERR_INVALID, weir_alloc_with(f->client, &kept, &block));
    fails(WEIR_ERR_INVALID, weir_alloc_with(f->client, &pinned, &block));
    unchanged(f->runtime, before);
    request.bytes = 2 * (size_t)BUDGET;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->client, &request, &block));
    graph_has(f->graph, 0, 0);
    ok(weir_reservation_destroy(reservation));
}

#define ALL(resource)                                                                                                  \
    CASE(in_the_order_of_a_stream, resource), CASE(behind_what_the_stream_has_to_do, resource),                        \
        CASE(captures_untold, resource), CASE(the_two_ways_keep_apart, resource), CASE(closing_behind_all, resource),  \
        CASE(freeing_behind_all, resource), CASE(what_is_refused, resource)

int main(void)
{
    const struct CMUnitTest tests[] = {ALL("mapped"),
                                       ALL("segments"),
                                       ALL("direct"),
                                       CASE(parts_and_neighbours, "mapped"),
                                       CASE(neighbours_of_two_streams, "mapped"),
                                       CASE(memory_that_waits_serves_none, "mapped"),
                                       CASE(memory_that_waits_serves_none, "segments")};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
