/* Pools of graphs: whose bytes they are, and when. */
#include "info.h"
#include "graph.h"
#include <weir/trace.h>
#include "trim.h"

/* A capture that allocates a block and frees it. */
static void *capture_one(fixture *f, size_t bytes)
{
    program p;
    begin(f, f->graph, f->a, &p);
    void *block = allocate(f->client, bytes, f->a, WEIR_CLASS_SCRATCH);
    ok(weir_free(f->client, block, f->a));
    end(f, f->graph, f->a, &p);
    destroy(f, &p);
    return block;
}

/* Whose bytes ------------------------------------------------------------------------------------------------------ */

/* What was freed in a capture is written at every launch, and is nobody else's meanwhile. */
static void launches_write_their_own_bytes(void **state)
{
    fixture *f = *state;
    program p;
    enum { MOST = BUDGET / BLOCK };
    void *all[MOST];
    int count = 0;
    begin(f, f->graph, f->a, &p);
    void *temporary = allocate(f->client, BLOCK, f->a, WEIR_CLASS_SCRATCH);
    put(f, &p, f->a, (operation){temporary, NULL, 7});
    void *result = allocate(f->client, BLOCK, f->a, WEIR_CLASS_ACTIVATIONS);
    put(f, &p, f->a, (operation){result, temporary, 0});
    ok(weir_free(f->client, temporary, f->a));
    void *second = allocate(f->client, BLOCK, f->a, WEIR_CLASS_SCRATCH);
    assert_ptr_equal(second, temporary); /* within the capture it serves again */
    put(f, &p, f->a, (operation){second, NULL, 5});
    ok(weir_free(f->client, second, f->a));
    end(f, f->graph, f->a, &p);
    graph_has(f->graph, BLOCK, 1);
    assert_int_equal(pending(f), BLOCK);
    for (weir_client *client = f->client; count < MOST; client = client == f->client ? f->other : f->client) {
        if (weir_alloc(client, BLOCK, count % 3 ? f->b : f->a, WEIR_CLASS_KV, &all[count]) != WEIR_OK)
            break;
        assert_ptr_not_equal(all[count], temporary);
        ok(weir_fill(f->runtime, all[count], 9, BLOCK, count % 3 ? f->b : f->a));
        count++;
    }
    assert_int_equal(count, MOST - 2);
    ok(weir_stream_synchronize(f->b));
    for (int round = 0; round < 2; round++) {
        ok(weir_fill(f->runtime, result, 1, BLOCK, f->a));
        launch(f, &p, f->a);
        ok(weir_stream_synchronize(f->a));
        holds(f, result, 7);
        holds(f, temporary, 5);
    }
    for (int i = 0; i < count; i++) {
        holds(f, all[i], 9);
        ok(weir_free(i % 2 ? f->other : f->client, all[i], i % 3 ? f->b : f->a));
    }
    ok(weir_free(f->client, result, f->a));
    graph_has(f->graph, 2 * (uint64_t)BLOCK, 0);
    destroy(f, &p);
}

/* The smallest that fits, cut to what is needed. A resource whose blocks have no parts serves with what fits exactly. */
static void later_captures_use_them_again(void **state)
{
    fixture *f = *state;
    bool cuts = strcmp(f->resource, "direct") != 0;
    program p;
    begin(f, f->graph, f->a, &p);
    weir_block large = allocate_named(f->client, 4 * BLOCK, f->a, WEIR_CLASS_SCRATCH);
    void *between = allocate(f->client, BLOCK / 2, f->a, WEIR_CLASS_OTHER);
    weir_block small = allocate_named(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    ok(weir_free_block(f->client, large, f->a));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, large.pointer, f->a));
    end(f, f->graph, f->a, &p);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, large.pointer, f->b));
    ok(weir_free_block(f->client, small, f->a));
    graph_has(f->graph, 5 * (uint64_t)BLOCK, 1);
    weir_block_details details = {.struct_size = sizeof details};
    ok(weir_block_info(large.pointer, &details));
    assert_int_equal(details.state, WEIR_BLOCK_PENDING);
    destroy(f, &p);

    begin(f, f->graph, f->b, &p);
    weir_block first = allocate_named(f->client, BLOCK, f->b, WEIR_CLASS_ACTIVATIONS);
    assert_ptr_equal(first.pointer, small.pointer);
    assert_int_not_equal(first.generation, small.generation);
    weir_block half = allocate_named(f->client, 2 * BLOCK, f->b, WEIR_CLASS_WEIGHTS);
    if (cuts) {
        assert_ptr_equal(half.pointer, large.pointer);
        graph_has(f->graph, 2 * (uint64_t)BLOCK, 3);
    } else {
        graph_has(f->graph, 4 * (uint64_t)BLOCK, 3);
    }
    weir_block rest = allocate_named(f->client, (cuts ? 2 : 4) * BLOCK, f->b, WEIR_CLASS_SCRATCH);
    assert_ptr_equal(rest.pointer, (char *)large.pointer + (cuts ? 2 * BLOCK : 0));
    graph_has(f->graph, 0, 4);
    end(f, f->graph, f->b, &p);
    ok(weir_block_info(rest.pointer, &details));
    assert_int_equal(details.state, WEIR_BLOCK_LIVE);
    assert_int_equal(details.block.generation, rest.generation);
    assert_int_equal(details.memory_class, WEIR_CLASS_SCRATCH);
    assert_int_equal(details.stream.id, f->b.id);
    assert_string_equal(details.tag, "named");
    classes_are_live(f);
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(s.clients[0].live_class[WEIR_CLASS_WEIGHTS], 2 * BLOCK);
    if (!cuts)
        fails(WEIR_ERR_STALE, weir_free_block(f->client, large, f->a));
    else
        fails(WEIR_ERR_STALE, weir_free_block(f->client, small, f->a));
    ok(weir_free(f->client, between, f->b));
    ok(weir_free_block(f->client, half, f->b));
    ok(weir_free_block(f->client, rest, f->b));
    ok(weir_free_block(f->client, first, f->b));
    destroy(f, &p);
}

/* Held blocks that adjoin are one, whichever came first, and serve whole again. */
static void neighbours_are_one_again(void **state)
{
    fixture *f = *state;
    static const int orders[][4] = {{1, 3, 2, 0}, {0, 1, 2, 3}, {3, 2, 1, 0}};
    program p;
    void *whole = capture_one(f, 4 * BLOCK), *parts[4];
    for (int round = 0; round < 3; round++) {
        gate g = GATE;
        begin(f, f->graph, f->a, &p);
        for (int i = 0; i < 4; i++) {
            parts[i] = allocate(f->client, BLOCK, f->a, (weir_class)i);
            assert_ptr_equal(parts[i], (char *)whole + i * (size_t)BLOCK);
        }
        end(f, f->graph, f->a, &p);
        destroy(f, &p);
        ok(weir_call(f->runtime, pass_gate, &g, f->b));
        for (int i = 0; i < 4; i++) { /* one of them is not passed for now */
            int part = orders[round][i];
            ok(weir_free(f->client, parts[part], i == round ? f->b : f->a));
            fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, parts[part], f->a));
        }
        assert_true(info(f->graph).held_blocks > 1);
        assert_int_equal(pending(f), 4 * BLOCK);
        open_gate(&g);
        ok(weir_stream_synchronize(f->b));
        begin(f, f->graph, f->a, &p);
        assert_int_equal(info(f->graph).held_blocks, 1);
        for (int i = 0; i < 4; i++)
            fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, parts[i], f->a));
        void *again = allocate(f->client, 4 * BLOCK, f->a, WEIR_CLASS_SCRATCH);
        assert_ptr_equal(again, whole);
        classes_are_live(f);
        ok(weir_free(f->client, again, f->a));
        end(f, f->graph, f->a, &p);
        destroy(f, &p);
    }
}

/* What is left of a block begins where no alignment was asked for. */
static void an_alignment_is_kept(void **state)
{
    fixture *f = *state;
    program p;
    (void)capture_one(f, 4 * BLOCK);
    begin(f, f->graph, f->a, &p);
    void *small = allocate(f->client, 256, f->a, WEIR_CLASS_KV);
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .alignment = 64 << 10, .stream = f->a};
    weir_block aligned;
    ok(weir_alloc_with(f->client, &request, &aligned));
    assert_int_equal((uintptr_t)aligned.pointer % (64 << 10), 0);
    void *odd = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    assert_ptr_equal(odd, (char *)small + 256);
    ok(weir_free(f->client, small, f->a));
    ok(weir_free(f->client, odd, f->a));
    ok(weir_free_block(f->client, aligned, f->a));
    end(f, f->graph, f->a, &p);
    destroy(f, &p);
}

/* What a graph holds serves no other request, which is told so at once: no waiting would help, and an hour of it would be had. */
static void nobody_else_gets_them(void **state)
{
    fixture *f = *state;
    void *none;
    (void)capture_one(f, BUDGET - BLOCK);
    ok(weir_option_set("wait", "3600s"));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->other, 2 * BLOCK, f->b, WEIR_CLASS_KV, &none));
    assert_int_not_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    detail_names("one holds 63 MiB");
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->client, 2 * BLOCK, f->a, WEIR_CLASS_KV, &none));
    ok(weir_capture_begin(f->b, NULL));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->client, 2 * BLOCK, f->b, WEIR_CLASS_KV, &none));
    ok(weir_capture_end(f->b, NULL));
    ok(weir_option_set("wait", NULL));
    uint64_t released = 0;
    ok(trim_keeping(f->runtime, 0, &released));
    assert_int_equal(pending(f), BUDGET - BLOCK);
}

static void of_other_captures_it_knows_nothing(void **state)
{
    fixture *f = *state;
    weir_capture_pool *second;
    program p, q;
    (void)capture_one(f, BLOCK);
    ok(weir_capture_pool_create(f->client, &second));
    begin(f, second, f->b, &q);
    begin(f, f->graph, f->a, &p);
    void *mine = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV),
         *its = allocate(f->client, BLOCK, f->b, WEIR_CLASS_KV);
    void *others = allocate(f->other, BLOCK, f->a, WEIR_CLASS_KV);
    void *elsewhere = allocate(f->client, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    graph_has(f->graph, 0, 1);
    graph_has(second, 0, 1);
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->client, its, f->a));
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->other, others, f->a));
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->client, elsewhere, f->a));
    detail_names("captured into a graph");
    ok(weir_free(f->client, elsewhere, WEIR_STREAM_HOST));
    ok(weir_free(f->client, mine, f->a));
    end(f, f->graph, f->a, &p);
    end(f, second, f->b, &q);
    ok(weir_free(f->other, others, f->a));
    ok(weir_free(f->client, its, f->b));
    graph_has(f->graph, BLOCK, 0);
    graph_has(second, BLOCK, 0);
    ok(weir_capture_pool_destroy(second, f->b));
    ok(weir_stream_synchronize(f->b));
    ok(weir_stream_synchronize(f->a));
    assert_int_equal(pending(f), BLOCK);
    destroy(f, &p);
    destroy(f, &q);
}

/* A declared use, or a free on another stream, that the device has not reached keeps a block from the next capture. */
static void uses_elsewhere_are_waited_for(void **state)
{
    fixture *f = *state;
    for (int declared = 0; declared < 2; declared++) {
        gate g = GATE;
        program p;
        begin(f, f->graph, f->a, &p);
        void *block = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
        end(f, f->graph, f->a, &p);
        destroy(f, &p);
        ok(weir_call(f->runtime, pass_gate, &g, f->b));
        if (declared)
            ok(weir_use_record(f->runtime, (weir_block){.pointer = block}, f->b));
        ok(weir_free(f->client, block, declared ? WEIR_STREAM_HOST : f->b));
        begin(f, f->graph, f->a, &p);
        void *second = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
        assert_ptr_not_equal(second, block);
        end(f, f->graph, f->a, &p);
        destroy(f, &p);
        open_gate(&g);
        ok(weir_stream_synchronize(f->b));
        begin(f, f->graph, f->a, &p);
        void *third = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
        assert_ptr_equal(third, block);
        ok(weir_free(f->client, third, f->a));
        ok(weir_free(f->client, second, f->a));
        end(f, f->graph, f->a, &p);
        destroy(f, &p);
        ok(weir_capture_pool_destroy(f->graph, f->a));
        ok(weir_capture_pool_create(f->client, &f->graph));
    }
}

static void what_is_cut_off_stays(void **state)
{
    fixture *f = *state;
    if (!strcmp(f->resource, "direct"))
        skip();
    gate g = GATE;
    program p;
    begin(f, f->graph, f->a, &p);
    char *block = allocate(f->client, 4 * BLOCK, f->a, WEIR_CLASS_KV);
    fails(WEIR_ERR_STREAM_MISUSE, weir_resize(f->client, block, BLOCK, f->a));
    end(f, f->graph, f->a, &p);
    destroy(f, &p);
    ok(weir_call(f->runtime, pass_gate, &g, f->b));
    ok(weir_resize(f->client, block, BLOCK, f->b));
    graph_has(f->graph, 3 * (uint64_t)BLOCK, 1);
    begin(f, f->graph, f->a, &p);
    void *second = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV); /* not before it has happened */
    assert_true((char *)second < block || (char *)second >= block + 4 * BLOCK);
    open_gate(&g);
    ok(weir_stream_synchronize(f->b));
    void *third = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    assert_ptr_equal(third, block + BLOCK);
    graph_has(f->graph, 2 * (uint64_t)BLOCK, 3);
    end(f, f->graph, f->a, &p);
    destroy(f, &p);
    ok(weir_free(f->client, second, f->a));
    ok(weir_free(f->client, third, f->a));
    ok(weir_free(f->client, block, f->a));
    graph_has(f->graph, 5 * (uint64_t)BLOCK, 0);
}

/* What is reserved is drawn on, whatever the graph holds. */
static void reservations_in_captures(void **state)
{
    fixture *f = *state;
    weir_reservation *reservation;
    program p;
    void *held = capture_one(f, BLOCK);
    ok(weir_reservation_create(f->client, BLOCK, 0, &reservation));
    begin(f, f->graph, f->a, &p);
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .stream = f->a, .reservation = reservation};
    weir_block block;
    ok(weir_alloc_with(f->client, &request, &block));
    assert_ptr_not_equal(block.pointer, held);
    assert_int_equal(client_details(f->client).promised, 0);
    graph_has(f->graph, BLOCK, 1);
    ok(weir_free_block(f->client, block, f->a));
    end(f, f->graph, f->a, &p);
    ok(weir_reservation_destroy(reservation));
    destroy(f, &p);
}

/* Closing ---------------------------------------------------------------------------------------------------------- */

/* Dropped with its last launch in flight: nothing waits, and the memory comes back behind the launch. */
static void closing_is_in_order(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    program p;
    begin(f, f->graph, f->a, &p);
    char *temporary = allocate(f->client, BLOCK, f->a, WEIR_CLASS_SCRATCH), *result;
    put(f, &p, f->a, (operation){temporary, NULL, 7});
    ok(weir_free(f->client, temporary, f->a));
    result = allocate(f->client, 2 * BLOCK, f->a, WEIR_CLASS_ACTIVATIONS);
    put(f, &p, f->a, (operation){result, temporary, 0});
    end(f, f->graph, f->a, &p);
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    launch(f, &p, f->a);
    ok(weir_capture_pool_destroy(f->graph, f->a));
    ok(weir_capture_pool_create(f->client, &f->graph));
    assert_int_equal(pending(f), BLOCK);
    weir_block_details details = {.struct_size = sizeof details};
    ok(weir_block_info(temporary, &details));
    assert_int_equal(details.state, WEIR_BLOCK_PENDING);
    ok(weir_free(f->client, result, f->a)); /* an ordinary one by now */
    graph_has(f->graph, 0, 0);
    weir_request request = {.struct_size = sizeof request,
                            .bytes = BUDGET,
                            .stream = f->b,
                            .memory_class = WEIR_CLASS_KV,
                            .flags = WEIR_ALLOC_NO_WAIT};
    weir_block block;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->other, &request, &block));
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    assert_int_equal(pending(f), 0);
    ok(weir_alloc_with(f->other, &request, &block));
    ok(weir_free_block(f->other, block, f->b));
    destroy(f, &p);
}

/* Also behind a use elsewhere that the close's stream knows nothing of. */
static void closing_waits_for_uses(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    program p;
    begin(f, f->graph, f->a, &p);
    void *block = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    end(f, f->graph, f->a, &p);
    ok(weir_call(f->runtime, pass_gate, &g, f->b));
    ok(weir_free(f->client, block, f->b));
    ok(weir_capture_pool_destroy(f->graph, WEIR_STREAM_HOST));
    ok(weir_capture_pool_create(f->client, &f->graph));
    assert_int_equal(pending(f), BLOCK);
    open_gate(&g);
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(pending(f), 0);
    destroy(f, &p);
}

static void closing_on_the_host_is_final(void **state)
{
    fixture *f = *state;
    (void)capture_one(f, BLOCK);
    ok(weir_capture_pool_destroy(f->graph, WEIR_STREAM_HOST));
    ok(weir_capture_pool_create(f->client, &f->graph));
    check_empty(f->runtime);
}

static void what_is_refused(void **state)
{
    fixture *f = *state;
    weir_stream gone;
    ok(weir_stream_acquire(f->runtime, &gone));
    ok(weir_stream_release(gone));
    void *outside = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV), *held = capture_one(f, BLOCK);
    fails(WEIR_ERR_BUSY, weir_client_destroy(f->client)); /* for its block */
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_INVALID, weir_capture_end(f->a, f->graph));
    fails(WEIR_ERR_INVALID, weir_capture_begin(WEIR_STREAM_HOST, f->graph));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_begin(gone, f->graph));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_pool_destroy(f->graph, gone));
    ok(weir_capture_begin(f->a, f->graph));
    fails(WEIR_ERR_BUSY, weir_capture_begin(f->a, f->graph));
    fails(WEIR_ERR_BUSY, weir_capture_begin(f->b, f->graph));
    detail_names("weir_capture_end");
    fails(WEIR_ERR_BUSY, weir_capture_begin(f->a, NULL));
    fails(WEIR_ERR_BUSY, weir_capture_pool_destroy(f->graph, f->b));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_pool_destroy(f->graph, f->a));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_release(f->a));
    fails(WEIR_ERR_INVALID, weir_capture_end(f->a, NULL));
    detail_names("weir_capture_pool");
    fails(WEIR_ERR_INVALID, weir_capture_end(f->b, f->graph));
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->client, outside, f->a));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, held, f->a));
    fails(WEIR_ERR_STREAM_MISUSE, weir_use_record(f->runtime, (weir_block){.pointer = outside}, f->a));
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .stream = f->a, .flags = WEIR_ALLOC_ZEROED};
    weir_block block;
    fails(WEIR_ERR_STREAM_MISUSE, weir_alloc_with(f->client, &request, &block));
    ok(weir_capture_end(f->a, f->graph));
    ok(weir_capture_begin(f->a, NULL));
    fails(WEIR_ERR_BUSY, weir_capture_begin(f->a, f->graph));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_pool_destroy(f->graph, f->a));
    fails(WEIR_ERR_INVALID, weir_capture_end(f->a, f->graph));
    ok(weir_capture_end(f->a, NULL));
    fails(WEIR_ERR_FOREIGN, weir_free(f->other, outside, f->a));
    unchanged(f->runtime, before);
    graph_has(f->graph, BLOCK, 0);
    ok(weir_free(f->client, outside, WEIR_STREAM_HOST));
    fails(WEIR_ERR_BUSY, weir_client_destroy(f->client));
    char name[40];
    snprintf(name, sizeof name, "graph %llu open", (unsigned long long)info(f->graph).number);
    detail_names(name);
    detail_names("1 MiB");
    void *still = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV); /* it is open */
    ok(weir_free(f->client, still, f->a));
}

static void nothing_and_none(void **state)
{
    fixture *f = *state;
    weir_capture_pool *graph = f->graph;
    weir_capture_pool_details details = {.struct_size = sizeof details};
    ok(weir_capture_pool_destroy(NULL, f->a));
    fails(WEIR_ERR_INVALID, weir_capture_end(f->a, NULL)); /* none was begun, with a pool or without */
    fails(WEIR_ERR_INVALID, weir_capture_end(f->a, graph));
    fails(WEIR_ERR_INVALID, weir_capture_pool_create(f->client, NULL));
    fails(WEIR_ERR_INVALID, weir_capture_pool_create(NULL, &graph));
    fails(WEIR_ERR_INVALID, weir_capture_pool_info(NULL, &details));
    fails(WEIR_ERR_INVALID, weir_capture_pool_info(f->graph, NULL));
    details.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_capture_pool_info(f->graph, &details));
    weir_runtime *second = make_runtime_of("guard(mapped)");
    weir_client *client = open_client(second, "guarded", 0, 0);
    weir_stream stream;
    ok(weir_stream_acquire(second, &stream));
    fails(WEIR_ERR_UNSUPPORTED, weir_capture_pool_create(client, &graph));
    assert_null(graph);
    detail_names("guard");
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_begin(stream, f->graph));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_pool_destroy(f->graph, stream));
    assert_int_equal(info(f->graph).stream.id, 0);
    ok(weir_capture_begin(f->b, f->graph));
    assert_int_equal(info(f->graph).stream.id, f->b.id);
    ok(weir_capture_end(f->b, f->graph));
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(second));
}

/* What others see -------------------------------------------------------------------------------------------------- */

static weir_stats stats_now(const fixture *f)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    ok(weir_snapshot(f->runtime, &stats, NULL, 0, NULL));
    return stats;
}

static void the_ledger_counts_every_block(void **state)
{
    fixture *f = *state;
    weir_stats before = stats_now(f);
    program p;
    begin(f, f->graph, f->a, &p);
    void *block = allocate(f->client, 4 * BLOCK, f->a, WEIR_CLASS_KV);
    ok(weir_free(f->client, block, f->a));
    for (int i = 0; i < 4; i++) {
        block = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
        ok(weir_free(f->client, block, f->a));
    }
    end(f, f->graph, f->a, &p);
    weir_stats after = stats_now(f);
    assert_int_equal(after.allocations - before.allocations, 5);
    assert_int_equal(after.frees - before.frees, 5);
    assert_int_equal(after.live, before.live);
    destroy(f, &p);
}

static void a_trace_has_every_block(void **state)
{
    fixture *f = *state;
    weir_trace *trace;
    weir_event events[64];
    uint64_t live = 0, pending_at_end = 1;
    int allocations = 0, frees = 0;
    ok(weir_trace_create(f->runtime, &(weir_trace_options){.struct_size = sizeof(weir_trace_options), .capacity = 64},
                         &trace));
    void *block = capture_one(f, 2 * BLOCK);
    assert_ptr_equal(capture_one(f, BLOCK), block);
    ok(weir_capture_pool_destroy(f->graph, WEIR_STREAM_HOST));
    events[0].struct_size = sizeof events[0];
    size_t count;
    ok(weir_trace_read(trace, events, 64, &count));
    for (size_t i = 0; i < count; i++) {
        const weir_event *e = &events[i];
        allocations += e->action == WEIR_ACTION_ALLOCATE;
        frees += e->action == WEIR_ACTION_DEALLOCATE;
        assert_int_not_equal(e->action, WEIR_ACTION_RESIZE);
        live += e->action == WEIR_ACTION_ALLOCATE ? e->charged : e->action == WEIR_ACTION_DEALLOCATE ? -e->charged : 0;
        if (e->action == WEIR_ACTION_ALLOCATE || e->action == WEIR_ACTION_DEALLOCATE)
            assert_int_equal(e->live, live);
        pending_at_end = e->pending;
    }
    assert_int_equal(allocations, 2);
    assert_int_equal(frees, 2);
    assert_int_equal(pending_at_end, 0);
    weir_trace_destroy(trace);
    ok(weir_capture_pool_create(f->client, &f->graph));
}

#define EVERYWHERE(name) CASE(name, "mapped"), CASE(name, "direct"), CASE(name, "log(mapped)"), CASE(name, "segments")

int main(void)
{
    const struct CMUnitTest tests[] = {
        EVERYWHERE(launches_write_their_own_bytes),
        EVERYWHERE(later_captures_use_them_again),
        CASE(neighbours_are_one_again, "mapped"),
        CASE(an_alignment_is_kept, "mapped"),
        CASE(nobody_else_gets_them, "mapped"),
        EVERYWHERE(of_other_captures_it_knows_nothing),
        EVERYWHERE(uses_elsewhere_are_waited_for),
        EVERYWHERE(what_is_cut_off_stays),
        EVERYWHERE(reservations_in_captures),
        EVERYWHERE(closing_is_in_order),
        EVERYWHERE(closing_waits_for_uses),
        EVERYWHERE(closing_on_the_host_is_final),
        EVERYWHERE(what_is_refused),
        CASE(nothing_and_none, "mapped"),
        CASE(the_ledger_counts_every_block, "log(mapped)"),
        CASE(a_trace_has_every_block, "mapped"),
    };
    return cmocka_run_group_tests_name("graphs", tests, NULL, NULL);
}
