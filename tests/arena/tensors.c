/* Arenas: tensors at the plan's offsets, buckets over one block, lengths and copies that keep to their slots,
 * parameters found by tensor and by slot, runs in order. */
#include "info.h"
#include "arena/fixture.h"

#include <weir/plan.h>
#include <weir/arena.h>

static int set_up(void **state)
{
    return open_fixture(state, 64 * MIB, NULL);
}

/* in → x → y → out, where x and out may share; and a weight, persistent. */
static weir_plan *small_plan(uint64_t unit)
{
    weir_buffers *list = empty_list();
    add_named(list, "in", 0, 2, unit, false);
    add_named(list, "x", 1, 3, 2 * unit, false);
    add_named(list, "y", 2, 4, unit, false);
    add_named(list, "out", 3, 5, 2 * unit - 4, false);
    add_named(list, "weight", 0, 1, 3 * unit, true);
    add_named(list, "empty", 0, 1, 0, false);
    uint32_t view = add_sharing(list, 0, 1, unit, WEIR_SHARING_VIEW, 4, unit);
    assert_int_equal(add_sharing(list, 0, 1, unit / 2, WEIR_SHARING_VIEW, view, unit / 2), 7);
    return planned(list, 64);
}

static void a_tensor_lies_where_the_plan_says(void **state)
{
    fixture *f = *state;
    weir_plan *plan = small_plan(1024);
    const weir_plan *plans[] = {plan};
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1, .stream = f->a});
    weir_arena_details d = arena_details(arena);
    uint64_t bytes = arena_bytes(plans, 1, WEIR_KIND_DEVICE);
    assert_int_equal(bytes, (plan_details(plan).arena_of[WEIR_KIND_DEVICE] + 255) / 256 * 256);
    assert_int_equal(d.held[WEIR_KIND_DEVICE], bytes);
    assert_int_equal(live_of(f), bytes); /* the prediction, exactly */
    for (uint32_t i = 0; i < 8; i++) {
        weir_slot slot = slot_of(plan, i);
        weir_arena_tensor t = look(arena, 0, i);
        assert_ptr_equal(t.pointer, slot.length ? (char *)d.base[WEIR_KIND_DEVICE] + slot.offset : NULL);
        assert_int_equal(t.bytes, slot.bytes);
        assert_int_equal(t.length, slot.length);
        assert_int_equal(t.parameter.type, WEIR_TYPE_NONE);
        assert_true(t.offset + t.length <= bytes);
    }
    assert_int_equal(look(arena, 0, 3).length, 2048); /* 2044 bytes in it */
    assert_int_equal((uintptr_t)d.base[WEIR_KIND_DEVICE] % 256, 0);
    weir_arena_tensor t = {.struct_size = sizeof t};
    fails(WEIR_ERR_INVALID, weir_arena_tensor_info(arena, 1, 0, &t));
    fails(WEIR_ERR_INVALID, weir_arena_tensor_info(arena, 0, 8, &t));
    ok(weir_arena_destroy(arena, f->a));
    weir_plan_destroy(plan);
}

static void copies_keep_to_the_tensor(void **state)
{
    fixture *f = *state;
    weir_plan *plan = small_plan(1024);
    const weir_plan *plans[] = {plan};
    unsigned char bytes[4096] = {0};
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1});
    fails(WEIR_ERR_STREAM_MISUSE, weir_arena_write(arena, 0, 0, 0, bytes, 8, WEIR_STREAM_HOST)); /* outside a run */
    ok(weir_arena_begin(arena, 0, WEIR_STREAM_HOST));
    pattern(bytes, 1024, 5);
    ok(weir_arena_write(arena, 0, 0, 0, bytes, 1024, WEIR_STREAM_HOST));
    pattern(bytes, 2048, 6);
    ok(weir_arena_write(arena, 0, 1, 0, bytes, 2048, WEIR_STREAM_HOST));
    memset(bytes, 0xee, sizeof bytes);
    fails(WEIR_ERR_INVALID, weir_arena_write(arena, 0, 0, 0, bytes, 1025, WEIR_STREAM_HOST));
    detail_names("1025 bytes from 0 on are not in \"in\", which has 1024");
    fails(WEIR_ERR_INVALID, weir_arena_write(arena, 0, 0, 1000, bytes, 25, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_arena_write(arena, 0, 0, 8, bytes, UINT64_MAX - 4, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_arena_write(arena, 0, 5, 0, bytes, 1, WEIR_STREAM_HOST)); /* the empty one */
    ok(weir_arena_write(arena, 0, 5, 0, bytes, 0, WEIR_STREAM_HOST));
    fails(WEIR_ERR_STREAM_MISUSE, weir_arena_write(arena, 0, 0, 0, bytes, 8, f->a));
    fails(WEIR_ERR_INVALID, weir_arena_write(arena, 0, 99, 0, bytes, 1, WEIR_STREAM_HOST));
    assert_true(holds_pattern(f, look(arena, 0, 0).pointer, 1024, 5));
    assert_true(holds_pattern(f, look(arena, 0, 1).pointer, 2048, 6));
    ok(weir_arena_end(arena));
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    weir_plan_destroy(plan);
}

static void a_length_apart_from_the_slots(void **state)
{
    fixture *f = *state;
    weir_plan *plan = small_plan(1024);
    const weir_plan *plans[] = {plan};
    unsigned char bytes[4096], back[4096];
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1});
    ok(weir_arena_set_length(arena, 0, 0, 300));
    assert_int_equal(look(arena, 0, 0).bytes, 300);
    assert_int_equal(look(arena, 0, 0).length, 1024);
    ok(weir_arena_begin(arena, 0, WEIR_STREAM_HOST));
    pattern(bytes, 300, 9);
    ok(weir_arena_write(arena, 0, 0, 0, bytes, 300, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_arena_write(arena, 0, 0, 0, bytes, 301, WEIR_STREAM_HOST));
    memset(back, 0xcc, sizeof back);
    ok(weir_arena_read(arena, 0, 0, 100, back, 200, WEIR_STREAM_HOST));
    assert_true(on_sim() || memcmp(back, bytes + 100, 200) == 0);
    assert_int_equal(back[200], 0xcc); /* not a byte more */
    fails(WEIR_ERR_INVALID, weir_arena_read(arena, 0, 0, 100, back, 201, WEIR_STREAM_HOST));
    ok(weir_arena_end(arena));
    ok(weir_arena_set_length(arena, 0, 3, 2048)); /* all of the slot, beyond the plan's 2044 */
    fails(WEIR_ERR_INVALID, weir_arena_set_length(arena, 0, 3, 2049));
    detail_names("\"out\" cannot have 2049 bytes: its slot in arena has 2048");
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    weir_plan_destroy(plan);
}

static void buckets_share_one_block(void **state)
{
    fixture *f = *state;
    weir_plan *small = small_plan(1024), *large = small_plan(8192), *larger = small_plan(64 * KIB);
    const weir_plan *plans[] = {small, large};
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 2});
    uint32_t bucket;
    assert_int_equal(live_of(f), arena_bytes(plans, 2, WEIR_KIND_DEVICE));
    assert_int_equal(live_of(f), arena_bytes(plans + 1, 1, WEIR_KIND_DEVICE)); /* the longest, not the sum */
    void *base = arena_details(arena).base[0];
    ok(weir_arena_set_length(arena, 0, 0, 10));
    assert_int_equal(look(arena, 1, 0).bytes, 8192); /* the buckets' lengths are their own */
    void *before = look(arena, 0, 3).pointer;
    ok(weir_arena_begin(arena, 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_BUSY, weir_arena_add(arena, larger, WEIR_STREAM_HOST, &bucket));
    fails(WEIR_ERR_STREAM_MISUSE, weir_arena_write(arena, 0, 0, 0, "x", 1, WEIR_STREAM_HOST));
    ok(weir_arena_end(arena));
    ok(weir_arena_add(arena, larger, WEIR_STREAM_HOST, &bucket)); /* grows in place */
    assert_int_equal(bucket, 2);
    assert_ptr_equal(arena_details(arena).base[0], base);
    assert_ptr_equal(look(arena, 0, 3).pointer, before);
    assert_int_equal(live_of(f), arena_bytes((const weir_plan *[]){larger}, 1, WEIR_KIND_DEVICE));
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    weir_plan_destroy(small);
    weir_plan_destroy(large);
    weir_plan_destroy(larger);
}

static void what_cannot_grow_in_place_is_told(void **state)
{
    fixture *f = *state;
    weir_plan *small = small_plan(32 * KIB), *large = small_plan(64 * KIB), *too_large = plan_of_one(128 * MIB);
    const weir_plan *plans[] = {small};
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1});
    weir_arena *roomy = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1, .room = MIB});
    void *behind[4];
    for (int i = 0; i < 4; i++)
        behind[i] = allocate(f->client, 64 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_NO_ROOM, weir_arena_add(arena, large, WEIR_STREAM_HOST, NULL));
    assert_int_equal(arena_details(arena).buckets, 1);
    unchanged(f->runtime, before);
    ok(weir_arena_add(roomy, large, WEIR_STREAM_HOST, NULL)); /* there is room */
    unchanged(f->runtime, before);
    weir_status status = weir_arena_add(roomy, too_large, WEIR_STREAM_HOST, NULL);
    assert_true(status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(arena_details(roomy).buckets, 2);
    for (int i = 0; i < 4; i++)
        ok(weir_free(f->client, behind[i], WEIR_STREAM_HOST));
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    ok(weir_arena_destroy(roomy, WEIR_STREAM_HOST));
    weir_plan_destroy(small);
    weir_plan_destroy(large);
    weir_plan_destroy(too_large);
}

/* Parameters
 * ---------------------------------------------------------------------------------------------------------- */

/* A parameter that the plan was told of takes two bytes an element, and no slot. */
static void a_half_parameter_of_a_plan_has_no_slot(void **state)
{
    fixture *f = *state;
    enum { COUNT = 100000 };
    const uint32_t inputs[] = {0, 1};
    weir_node nodes[4] = {{.struct_size = sizeof(weir_node),
                           .name = "w",
                           .kind = WEIR_NODE_PARAMETER,
                           .type = WEIR_TYPE_F16,
                           .elements = COUNT},
                          {.struct_size = sizeof(weir_node),
                           .name = "in",
                           .kind = WEIR_NODE_INPUT,
                           .type = WEIR_TYPE_F32,
                           .elements = 100},
                          {.struct_size = sizeof(weir_node),
                           .name = "out",
                           .type = WEIR_TYPE_F32,
                           .elements = 1000,
                           .inputs = inputs,
                           .input_count = 2},
                          {.struct_size = sizeof(weir_node),
                           .name = "rows",
                           .kind = WEIR_NODE_NARROW,
                           .type = WEIR_TYPE_F16,
                           .elements = 10,
                           .start = 500,
                           .inputs = inputs,
                           .input_count = 1}};
    weir_buffers *list;
    weir_parameters *store;
    nodes[0].elsewhere = true;
    ok(weir_buffers_from_nodes(nodes, 4, NULL, &list));
    weir_plan *plan = planned(list, 256);
    const weir_plan *plans[] = {plan};
    ok(weir_parameters_create(
        f->client, &(weir_parameters_options){.struct_size = sizeof(weir_parameters_options), .step = 256}, &store));
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1, .parameters = store});
    assert_int_equal(look(arena, 0, 0).parameter.type, WEIR_TYPE_NONE);
    assert_null(look(arena, 0, 0).pointer);
    unsigned char *half = malloc(2 * COUNT);
    pattern(half, 2 * COUNT, 8);
    ok(weir_parameters_add(store, "w", WEIR_TYPE_F16, COUNT, half, WEIR_STREAM_HOST, NULL));
    weir_arena_tensor t = look(arena, 0, 0);
    assert_null(t.pointer);
    assert_int_equal(t.parameter.type, WEIR_TYPE_F16);
    assert_int_equal(t.parameter.elements, COUNT);
    assert_true(holds(f, t.parameter.pointer, half, 2 * COUNT));
    assert_int_equal(look(arena, 0, 3).parameter.type, WEIR_TYPE_NONE); /* of what looks at it the plan has no bytes */
    ok(weir_parameters_alias(store, "rows", "w", 500, 10));
    assert_ptr_equal(look(arena, 0, 3).parameter.pointer, (char *)t.parameter.pointer + 1000);
    /* Input and output, and two bytes an element: nothing else. */
    assert_int_equal(live_of(f), arena_bytes(plans, 1, WEIR_KIND_DEVICE) + (2 * COUNT + 255) / 256 * 256);
    assert_int_equal(arena_bytes(plans, 1, WEIR_KIND_DEVICE), 512 + 4096);
    free(half);
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    ok(weir_parameters_release(store));
    weir_plan_destroy(plan);
}

/* One that came later is found by the tensor, and by whatever looks at its slot: all of it, or a part. */
static void a_parameter_registered_later_is_found_by_its_slot(void **state)
{
    fixture *f = *state;
    weir_plan *plan = small_plan(1024); /* weight: 3072 bytes, 768 elements of four */
    const weir_plan *plans[] = {plan};
    weir_parameters *store;
    ok(weir_parameters_create(f->client, NULL, &store));
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1, .parameters = store});
    void *slot = look(arena, 0, 4).pointer;
    ok(weir_parameters_add(store, "weight", WEIR_TYPE_BF16, 768, NULL, WEIR_STREAM_HOST, NULL));
    ok(weir_parameters_add(store, "x", WEIR_TYPE_F16, 512, NULL, WEIR_STREAM_HOST, NULL));
    char *half = parameter(store, "weight").pointer;
    weir_arena_tensor t = look(arena, 0, 4), view = look(arena, 0, 6), part = look(arena, 0, 7);
    assert_ptr_equal(t.pointer, slot); /* its slot is as before */
    assert_ptr_equal(t.parameter.pointer, half);
    assert_int_equal(t.parameter.type, WEIR_TYPE_BF16);
    assert_int_equal(view.parameter.type, WEIR_TYPE_BF16);
    assert_ptr_equal(view.parameter.pointer, half + 512); /* from element 256 on */
    assert_int_equal(view.parameter.elements, 256);
    assert_int_equal(view.parameter.bytes, 512);
    assert_ptr_equal(part.parameter.pointer, half + 768);
    assert_int_equal(part.parameter.elements, 128);
    assert_int_equal(look(arena, 0, 5).parameter.type, WEIR_TYPE_NONE); /* the empty one at its side */
    assert_int_equal(look(arena, 0, 1).parameter.type, WEIR_TYPE_F16);
    assert_int_equal(look(arena, 0, 3).parameter.type, WEIR_TYPE_NONE); /* whatever slot it shares with x */
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    ok(weir_parameters_release(store));
    weir_plan_destroy(plan);
}

static void arenas_and_buckets_share_parameters(void **state)
{
    fixture *f = *state;
    weir_plan *small = small_plan(1024), *large = small_plan(2048);
    const weir_plan *plans[] = {small, large};
    weir_parameters *store;
    ok(weir_parameters_create(f->client, NULL, &store));
    ok(weir_parameters_add(store, "weight", WEIR_TYPE_F16, 768, NULL, WEIR_STREAM_HOST, NULL));
    uint64_t weights = live_of(f);
    weir_client *other = open_client(f->runtime, "two", 0, 0);
    weir_arena *one = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 2, .parameters = store});
    weir_arena *two;
    weir_arena_options o = {.struct_size = sizeof o, .plans = plans, .plan_count = 1, .parameters = store};
    ok(weir_arena_create(other, &o, &two));
    void *there = parameter(store, "weight").pointer;
    assert_ptr_equal(look(one, 0, 4).parameter.pointer, there);
    assert_ptr_equal(look(one, 1, 4).parameter.pointer, there);
    assert_ptr_equal(look(two, 0, 4).parameter.pointer, there);
    assert_int_equal(live_of(f), weights + arena_bytes(plans, 2, 0) + arena_bytes(plans, 1, 0));
    ok(weir_parameters_release(store)); /* the arenas hold it */
    ok(weir_arena_destroy(one, WEIR_STREAM_HOST));
    assert_ptr_equal(look(two, 0, 4).parameter.pointer, there);
    ok(weir_arena_destroy(two, WEIR_STREAM_HOST));
    assert_int_equal(live_of(f), 0);
    ok(weir_client_destroy(other));
    weir_plan_destroy(small);
    weir_plan_destroy(large);
}

/* Runs
 * ---------------------------------------------------------------------------------------------------------------- */

static void runs_on_two_streams_come_one_after_the_other(void **state)
{
    fixture *f = *state;
    if (on_sim())
        skip(); /* it has no threads that a gate could hold */
    weir_plan *plan = small_plan(1024);
    const weir_plan *plans[] = {plan};
    static gate g; /* a failed check leaves the stream to it */
    g = (gate)GATE;
    enum { BYTES = 1024 };
    unsigned char *one = pinned(f, BYTES, 1), *two = pinned(f, BYTES, 2), *back = pinned(f, BYTES, 0);
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1, .stream = f->a});
    ok(weir_arena_begin(arena, 0, f->a));
    fails(WEIR_ERR_BUSY, weir_arena_begin(arena, 0, f->b));
    fails(WEIR_ERR_BUSY, weir_arena_destroy(arena, f->a));
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_arena_write(arena, 0, 0, 0, one, BYTES, f->a));
    ok(weir_arena_read(arena, 0, 0, 0, back, BYTES, f->a));
    ok(weir_arena_end(arena));
    ok(weir_arena_begin(arena, 0, f->b)); /* behind it */
    ok(weir_arena_write(arena, 0, 0, 0, two, BYTES, f->b));
    ok(weir_arena_end(arena));
    fails(WEIR_ERR_INVALID, weir_arena_end(arena));
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &g), 0);
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(back[BYTES - 1], 1);
    assert_true(holds(f, look(arena, 0, 0).pointer, two, BYTES));
    pthread_join(opener, NULL);
    ok(weir_stream_synchronize(f->a));
    ok(weir_arena_destroy(arena, f->b));
    free_pinned(f, one);
    free_pinned(f, two);
    free_pinned(f, back);
    weir_plan_destroy(plan);
}

/* The store's copies come before a run on another stream, and its memory stays until that is done. */
static void runs_come_behind_the_parameters(void **state)
{
    fixture *f = *state;
    if (on_sim())
        skip();
    weir_plan *plan = small_plan(1024);
    const weir_plan *plans[] = {plan};
    static gate g; /* a failed check leaves the stream to it */
    g = (gate)GATE;
    enum { BYTES = 1024 };
    unsigned char *weight = pinned(f, BYTES, 7), *back = pinned(f, BYTES, 0);
    weir_parameters *store;
    ok(weir_parameters_create(f->client, NULL, &store));
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_parameters_add(store, "w", WEIR_TYPE_U8, BYTES, weight, f->a, NULL));
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1, .parameters = store});
    ok(weir_arena_begin(arena, 0, f->b));
    fails(WEIR_ERR_BUSY, weir_parameters_add(store, "v", WEIR_TYPE_U8, 10, weight, f->b, NULL));
    ok(weir_copy(f->runtime, back, parameter(store, "w").pointer, BYTES, f->b));
    ok(weir_arena_end(arena));
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &g), 0);
    ok(weir_stream_synchronize(f->b));
    assert_memory_equal(back, weight, BYTES);
    pthread_join(opener, NULL);
    ok(weir_parameters_add(store, "v", WEIR_TYPE_U8, 10, weight, f->b, NULL));
    ok(weir_arena_destroy(arena, f->b));
    ok(weir_parameters_release(store));
    free_pinned(f, weight);
    free_pinned(f, back);
    weir_plan_destroy(plan);
}

/* Also where it would be the first one, or begins a block that the run has not declared. */
static void a_store_takes_nothing_during_a_run(void **state)
{
    fixture *f = *state;
    weir_plan *plan = small_plan(1024);
    const weir_plan *plans[] = {plan};
    weir_parameters *store;
    ok(weir_parameters_create(f->client, NULL, &store));
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1, .parameters = store});
    ok(weir_arena_begin(arena, 0, f->a));
    fails(WEIR_ERR_BUSY, weir_parameters_add(store, "weight", WEIR_TYPE_F16, 768, NULL, f->b, NULL));
    assert_int_equal(store_details(store).count, 0);
    ok(weir_arena_end(arena));
    ok(weir_capture_begin(f->a, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_arena_begin(arena, 0, f->a)); /* which is no run */
    ok(weir_capture_end(f->a, NULL));
    ok(weir_parameters_add(store, "weight", WEIR_TYPE_F16, 768, NULL, f->b, NULL));
    void *behind = allocate(f->client, 64 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    ok(weir_arena_begin(arena, 0, f->a));
    fails(WEIR_ERR_BUSY, weir_parameters_add(store, "large", WEIR_TYPE_U8, MIB, NULL, f->b, NULL));
    assert_int_equal(store_details(store).blocks, 1);
    ok(weir_arena_end(arena));
    ok(weir_parameters_add(store, "large", WEIR_TYPE_U8, MIB, NULL, f->b, NULL));
    ok(weir_free(f->client, behind, WEIR_STREAM_HOST));
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    ok(weir_parameters_release(store));
    weir_plan_destroy(plan);
}

/* Kinds, alignment, size
 * ---------------------------------------------------------------------------------------------- */

static void each_kind_has_its_block(void **state)
{
    fixture *f = *state;
    weir_buffers *list = empty_list();
    for (unsigned i = 0; i < 6; i++) {
        weir_buffer b = {.struct_size = sizeof b, .begin = 0, .end = 1, .bytes = 1000 * (i + 1)};
        b.kind = (weir_kind)(i % WEIR_KIND_COUNT);
        ok(weir_buffers_add(list, &b, NULL));
    }
    weir_plan *plan = planned(list, 256);
    const weir_plan *plans[] = {plan};
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1, .clear = true});
    weir_arena_details d = arena_details(arena);
    static const unsigned char zeros[6000];
    for (uint32_t i = 0; i < 6; i++) {
        weir_arena_tensor t = look(arena, 0, i);
        assert_int_equal(t.kind, i % WEIR_KIND_COUNT);
        assert_ptr_equal(t.pointer, (char *)d.base[t.kind] + t.offset);
        assert_true(holds(f, t.pointer, zeros, t.bytes));
    }
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++)
        assert_int_equal(d.held[kind], arena_bytes(plans, 1, (weir_kind)kind));
    weir_plan *device_only = plan_of_one(100);
    weir_arena *other =
        open_arena(f, (weir_arena_options){.plans = (const weir_plan *[]){device_only}, .plan_count = 1});
    fails(WEIR_ERR_INVALID, weir_arena_add(other, plan, WEIR_STREAM_HOST, NULL));
    detail_names("no memory of the kind pinned");
    ok(weir_arena_destroy(other, WEIR_STREAM_HOST));
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    weir_plan_destroy(plan);
    weir_plan_destroy(device_only);
}

static void the_block_is_as_aligned_as_its_tensors(void **state)
{
    fixture *f = *state;
    weir_buffers *list = empty_list();
    weir_buffer b = {.struct_size = sizeof b, .begin = 0, .end = 1, .bytes = 100, .alignment = 64 * KIB};
    ok(weir_buffers_add(list, &b, NULL));
    weir_plan *plan = planned(list, 16), *plain = plan_of_one(300);
    const weir_plan *plans[] = {plan};
    void *odd = allocate(f->client, 256, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1});
    assert_int_equal((uintptr_t)look(arena, 0, 0).pointer % (64 * KIB), 0);
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    plans[0] = plain;
    weir_arena *other[2];
    bool refused = false;
    for (int i = 0; i < 2; i++) { /* two, so that one of them lies beside the alignment */
        other[i] = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1});
        if ((uintptr_t)look(other[i], 0, 0).pointer % (64 * KIB) != 0) {
            fails(WEIR_ERR_INVALID, weir_arena_add(other[i], plan, WEIR_STREAM_HOST, NULL));
            detail_names("the plan wants multiples of 65536");
            refused = true;
        }
    }
    assert_true(refused);
    ok(weir_arena_destroy(other[0], WEIR_STREAM_HOST));
    ok(weir_arena_destroy(other[1], WEIR_STREAM_HOST));
    ok(weir_free(f->client, odd, WEIR_STREAM_HOST));
    weir_plan_destroy(plan);
    weir_plan_destroy(plain);
}

/* Beyond what 32 bits count, in bytes and in elements of four. */
static void offsets_have_64_bits(void **state)
{
    fixture *f = *state;
    const uint64_t gib = (uint64_t)1 << 30;
    weir_buffers *list = empty_list();
    add(list, 0, 1, 5 * gib);
    add(list, 0, 1, 13 * gib);
    add(list, 0, 1, 4096);
    weir_plan *plan = planned(list, 256);
    const weir_plan *plans[] = {plan};
    assert_int_equal(arena_bytes(plans, 1, WEIR_KIND_DEVICE), 18 * gib + 4096);
    weir_arena *arena = (weir_arena *)plan;
    weir_arena_options o = {.struct_size = sizeof o, .plans = plans, .plan_count = 1};
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_arena_create(f->client, &o, &arena)); /* 64 MiB is the budget */
    assert_null(arena);
    assert_int_equal(last_refusal().requested, 18 * gib + 4096); /* the deficit is of the plan's numbers */
    assert_int_equal(live_of(f), before.device.live);
    weir_buffers *small = empty_list(); /* an offset beyond 32 bits, in the middle of what is there */
    add(small, 0, 1, 1);
    weir_buffer far = {.struct_size = sizeof far, .begin = 0, .end = 1, .bytes = 64, .fixed = true, .offset = 5 * gib};
    ok(weir_buffers_add(small, &far, NULL));
    weir_plan *high = planned(small, 64);
    if (strcmp(device(), "host") == 0) {      /* whose pages come when they are touched */
        ok(weir_option_set("range", "8GiB")); /* also where somebody has asked for less */
        weir_runtime *runtime = make_runtime(8 * gib);
        ok(weir_option_set("range", NULL));
        weir_client *client = open_client(runtime, "large", 0, 0);
        plans[0] = high;
        ok(weir_arena_create(client, &o, &arena));
        char *at = look(arena, 0, 1).pointer;
        assert_int_equal(at - (char *)arena_details(arena).base[0], 5 * gib);
        memset(at, 1, 64);
        ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
        ok(weir_client_destroy(client));
        ok(weir_runtime_destroy(runtime));
    }
    weir_plan_destroy(high);
    weir_plan_destroy(plan);
}

/* Offsets may have 63 bits; blocks have fewer, so that sums of them do not wrap. */
static void a_plan_longer_than_any_device_is_refused(void **state)
{
    fixture *f = *state;
    weir_buffers *list = empty_list();
    weir_buffer far = {.struct_size = sizeof far, .end = 1, .bytes = 64, .fixed = true, .offset = (uint64_t)1 << 62};
    ok(weir_buffers_add(list, &far, NULL));
    weir_plan *plan = plan_of_one(64), *endless = planned(list, 64);
    const weir_plan *plans[] = {plan};
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1});
    fails(WEIR_ERR_INVALID, weir_arena_add(arena, endless, WEIR_STREAM_HOST, NULL));
    assert_int_equal(arena_details(arena).buckets, 1);
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    plans[0] = endless;
    weir_arena_options o = {.struct_size = sizeof o, .plans = plans, .plan_count = 1};
    fails(WEIR_ERR_INVALID, weir_arena_create(f->client, &o, &arena));
    weir_plan_destroy(plan);
    weir_plan_destroy(endless);
}

static void what_makes_no_arena_is_refused(void **state)
{
    fixture *f = *state;
    weir_plan *plan = plan_of_one(1000);
    const weir_plan *plans[] = {plan}, *none[] = {NULL};
    weir_arena *arena;
    weir_arena_options o = {.struct_size = sizeof o};
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_INVALID, weir_arena_create(f->client, NULL, &arena));
    fails(WEIR_ERR_INVALID, weir_arena_create(f->client, &o, NULL));
    fails(WEIR_ERR_INVALID, weir_arena_create(NULL, &o, &arena));
    fails(WEIR_ERR_INVALID, weir_arena_create(f->client, &o, &arena)); /* neither plan nor room */
    o.plan_count = 1;
    fails(WEIR_ERR_INVALID, weir_arena_create(f->client, &o, &arena));
    o.plans = none;
    fails(WEIR_ERR_INVALID, weir_arena_create(f->client, &o, &arena));
    o.plans = plans;
    weir_runtime *runtime = make_runtime(MIB);
    weir_client *client = open_client(runtime, "elsewhere", 0, 0);
    ok(weir_parameters_create(client, NULL, &o.parameters));
    fails(WEIR_ERR_INVALID, weir_arena_create(f->client, &o, &arena));
    ok(weir_parameters_release(o.parameters));
    o.parameters = NULL;
    ok(weir_arena_pool_acquire(runtime, NULL, &o.pool));
    fails(WEIR_ERR_INVALID, weir_arena_create(f->client, &o, &arena));
    ok(weir_arena_pool_release(o.pool));
    unchanged(f->runtime, before);
    fails(WEIR_ERR_INVALID, weir_arena_begin(NULL, 0, f->a));
    fails(WEIR_ERR_INVALID, weir_arena_end(NULL));
    ok(weir_arena_destroy(NULL, f->a));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    weir_plan_destroy(plan);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_tensor_lies_where_the_plan_says),
        TEST(copies_keep_to_the_tensor),
        TEST(a_length_apart_from_the_slots),
        TEST(buckets_share_one_block),
        TEST(what_cannot_grow_in_place_is_told),
        TEST(a_half_parameter_of_a_plan_has_no_slot),
        TEST(a_parameter_registered_later_is_found_by_its_slot),
        TEST(arenas_and_buckets_share_parameters),
        TEST(runs_on_two_streams_come_one_after_the_other),
        TEST(runs_come_behind_the_parameters),
        TEST(a_store_takes_nothing_during_a_run),
        TEST(each_kind_has_its_block),
        TEST(the_block_is_as_aligned_as_its_tensors),
        TEST(offsets_have_64_bits),
        TEST(a_plan_longer_than_any_device_is_refused),
        TEST(what_makes_no_arena_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
