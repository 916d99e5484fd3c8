/* Captured graphs over an arena: their addresses stay good, whatever is added to the store or the arena meanwhile. */
#include "uses/graph.h"

#include <weir/arena.h>
#include <weir/plan.h>

static weir_plan *plan_of_one(uint64_t bytes)
{
    weir_buffer b = {.struct_size = sizeof b, .end = 1, .bytes = bytes};
    weir_buffers *list;
    weir_plan *plan;
    ok(weir_buffers_create(&list));
    ok(weir_buffers_add(list, &b, NULL));
    ok(weir_plan_create(list, NULL, &plan));
    weir_buffers_destroy(list);
    return plan;
}

static void add_filled(fixture *f, weir_parameters *store, const char *name, uint8_t value, uint64_t bytes)
{
    unsigned char *contents = malloc(bytes);
    memset(contents, value, bytes);
    ok(weir_parameters_add(store, name, WEIR_TYPE_U8, bytes, contents, f->b, NULL));
    ok(weir_stream_synchronize(f->b));
    free(contents);
}

static void run(fixture *f, weir_arena *arena, program *p, uint8_t wanted)
{
    ok(weir_arena_begin(arena, 0, f->a));
    launch(f, p, f->a);
    ok(weir_arena_end(arena));
    ok(weir_stream_synchronize(f->a));
    holds(f, p->operations[0].to, wanted);
}

static void growth_leaves_captured_addresses_good(void **state)
{
    fixture *f = *state;
    weir_parameters_options small_steps = {.struct_size = sizeof small_steps, .step = 4096};
    weir_plan *small = plan_of_one(BLOCK), *large = plan_of_one(3 * BLOCK);
    weir_parameters *store;
    weir_arena *arena;
    ok(weir_parameters_create(f->client, &small_steps, &store));
    add_filled(f, store, "w", 3, BLOCK);
    weir_arena_options o = {.struct_size = sizeof o, .plans = (const weir_plan *[]){small}, .plan_count = 1};
    o.parameters = store, o.room = 4 * BLOCK;
    ok(weir_arena_create(f->other, &o, &arena));
    weir_parameter w = {.struct_size = sizeof w};
    weir_arena_tensor out = {.struct_size = sizeof out};
    ok(weir_parameter_info(store, "w", 0, &w));
    ok(weir_arena_tensor_info(arena, 0, 0, &out));
    program p;
    begin(f, f->graph, f->a, &p);
    put(f, &p, f->a, (operation){out.pointer, w.pointer, 0});
    end(f, f->graph, f->a, &p);
    run(f, arena, &p, 3);
    void *behind[2];
    for (int i = 0; i < 2; i++) { /* in place, and by further blocks */
        add_filled(f, store, i ? "large" : "more", 9, 5 * BLOCK + 1);
        add_filled(f, store, "w", (uint8_t)(20 + i), BLOCK); /* the same name, with new contents */
        run(f, arena, &p, (uint8_t)(20 + i));
        behind[i] = allocate(f->client, BLOCK, f->b, WEIR_CLASS_WEIGHTS);
    }
    ok(weir_arena_add(arena, large, f->b, NULL));
    run(f, arena, &p, 21);
    weir_parameters_details d = {.struct_size = sizeof d};
    ok(weir_parameters_info(store, &d));
    assert_true(d.blocks > 1);
    destroy(f, &p);
    for (int i = 0; i < 2; i++)
        ok(weir_free(f->client, behind[i], f->b));
    ok(weir_arena_destroy(arena, f->a));
    ok(weir_parameters_release(store));
    weir_plan_destroy(small);
    weir_plan_destroy(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(growth_leaves_captured_addresses_good, "mapped"),
        CASE(growth_leaves_captured_addresses_good, "cache"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
