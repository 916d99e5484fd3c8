/* From nodes to an arena: what lives through the whole run has its bytes to itself, types have their own sizes, views
 * lie to the byte in what they look at, and what is not aligned as it wants is refused. */
#include "info.h"
#include "arena/fixture.h"

#include <weir/plan.h>
#include <weir/arena.h>

enum { CHAIN = 12, ELEMENTS = 300 };

static int set_up(void **state)
{
    return open_fixture(state, 64 * MIB, NULL);
}

static weir_plan *plan_of_nodes(const weir_node *nodes, size_t count, weir_plan_mode mode)
{
    weir_buffers *list;
    ok(weir_buffers_from_nodes(nodes, count, NULL, &list));
    weir_plan *plan = plan_of(list, mode, 64);
    weir_buffers_destroy(list);
    return plan;
}

/* Given ones in types of one, two and eight bytes; then a chain, of which an early result is handed out too. */
static size_t make_chain(weir_node *nodes, uint32_t *inputs)
{
    static const struct given {
        weir_node_kind kind;
        weir_type type;
    } given[] = {
        {WEIR_NODE_INPUT, WEIR_TYPE_I64}, {WEIR_NODE_PARAMETER, WEIR_TYPE_U8}, {WEIR_NODE_CONSTANT, WEIR_TYPE_F16}};
    for (uint32_t i = 0; i < 3 + CHAIN; i++) {
        inputs[i] = i > 0 ? i - 1 : 0;
        nodes[i] = (weir_node){.struct_size = sizeof(weir_node), .elements = ELEMENTS};
        nodes[i].kind = i < 3 ? given[i].kind : WEIR_NODE_COMPUTE;
        nodes[i].type = i < 3 ? given[i].type : WEIR_TYPE_F32;
        nodes[i].inputs = &inputs[i];
        nodes[i].input_count = i >= 3;
        nodes[i].output = i == 5 || i == 2 + CHAIN;
    }
    return 3 + CHAIN;
}

static bool apart(const weir_slot *a, const weir_slot *b)
{
    return a->offset + a->length <= b->offset || b->offset + b->length <= a->offset;
}

/* Inputs, parameters and constants share with nobody, outputs with nobody who comes later. */
static void what_stays_is_never_reused(void **state)
{
    (void)state;
    weir_node nodes[3 + CHAIN];
    uint32_t inputs[3 + CHAIN];
    size_t count = make_chain(nodes, inputs);
    weir_plan *plan = plan_of_nodes(nodes, count, WEIR_PLAN_SEARCH),
              *bump = plan_of_nodes(nodes, count, WEIR_PLAN_BUMP);
    static const uint64_t bytes[] = {ELEMENTS * 8, ELEMENTS, ELEMENTS * 2};
    for (uint32_t i = 0; i < count; i++) {
        weir_slot slot = slot_of(plan, i);
        assert_int_equal(slot.bytes, i < 3 ? bytes[i] : ELEMENTS * 4);
        for (uint32_t k = i < 3 ? 0 : i + 1; k < count && (i < 3 || nodes[i].output); k++) {
            weir_slot other = slot_of(plan, k);
            assert_true(k == i || apart(&slot, &other));
        }
    }
    uint64_t given = 2432 + 320 + 640, each = 1216; /* rounded up to 64 */
    weir_plan_details s = WEIR_INIT(weir_plan_details);
    ok(weir_plan_info(plan, &s));
    assert_int_equal(s.arena, given + 3 * each); /* the early output, and two of the chain */
    assert_true(s.proven);
    assert_int_equal(plan_details(bump).arena_of[WEIR_KIND_DEVICE], given + CHAIN * each);
    weir_plan_destroy(plan);
    weir_plan_destroy(bump);
}

/* A cut of a cut of a reshape, in two bytes an element; and the arena's pointers. */
static void views_of_half_types_are_exact(void **state)
{
    fixture *f = *state;
    static const uint32_t of[] = {0, 1, 2, 3};
    weir_node nodes[5];
    for (uint32_t i = 0; i < 5; i++)
        nodes[i] = (weir_node){.struct_size = sizeof(weir_node), .type = WEIR_TYPE_F16, .elements = 12};
    nodes[0].kind = WEIR_NODE_INPUT;
    for (uint32_t i = 1; i < 5; i++) {
        nodes[i].inputs = &of[i - 1];
        nodes[i].input_count = 1;
    }
    nodes[2].kind = WEIR_NODE_RESHAPE;
    nodes[3].kind = nodes[4].kind = WEIR_NODE_NARROW;
    nodes[3].start = 4, nodes[3].elements = 6;
    nodes[4].start = 2, nodes[4].elements = 3;
    nodes[4].output = true;
    weir_plan *plan = plan_of_nodes(nodes, 5, WEIR_PLAN_SEARCH);
    const weir_plan *plans[] = {plan};
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1});
    weir_arena_tensor root = look(arena, 0, 1), inner = look(arena, 0, 4);
    assert_int_equal(root.bytes, 24);
    assert_ptr_equal(look(arena, 0, 2).pointer, root.pointer);
    assert_ptr_equal(look(arena, 0, 3).pointer, (char *)root.pointer + 8);
    assert_ptr_equal(inner.pointer, (char *)root.pointer + 12);
    assert_int_equal(inner.bytes, 6);
    assert_int_equal(inner.length, 6);
    fails(WEIR_ERR_INVALID, weir_arena_set_length(arena, 0, 4, 7)); /* the rest of the root is not its */
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    weir_plan_destroy(plan);
}

/* Where a view lies follows from its root, whose alignment can be told. */
static void a_view_beside_its_alignment_is_refused(void **state)
{
    fixture *f = *state;
    weir_buffers *list = empty_list();
    weir_buffer view = WEIR_INIT(weir_buffer);
    weir_buffer root = WEIR_INIT(weir_buffer);
    root.bytes = 256, root.end = 2;
    (void)add(list, 0, 2, 16); /* so that what is behind it lies at 16, if it may */
    ok(weir_buffers_add(list, &root, NULL));
    view.name = "vector";
    view.bytes = 32, view.end = 2, view.alignment = 32;
    view.sharing = WEIR_SHARING_VIEW, view.of = 1, view.view_offset = 64;
    ok(weir_buffers_add(list, &view, NULL));
    weir_plan *plan;
    weir_plan_options options = {.struct_size = sizeof options, .mode = WEIR_PLAN_BUMP};
    fails(WEIR_ERR_INVALID, weir_plan_create(list, &options, &plan));
    detail_names("vector: a view that lies 64 bytes into b1, and so at 80");
    weir_buffers_destroy(list);
    list = empty_list();
    root.alignment = 32;
    (void)add(list, 0, 2, 16);
    ok(weir_buffers_add(list, &root, NULL));
    ok(weir_buffers_add(list, &view, NULL));
    plan = plan_of(list, WEIR_PLAN_BUMP, 1);
    const weir_plan *plans[] = {plan};
    weir_arena *arena = open_arena(f, (weir_arena_options){.plans = plans, .plan_count = 1});
    assert_int_equal((uintptr_t)look(arena, 0, 2).pointer % 32, 0);
    ok(weir_arena_destroy(arena, WEIR_STREAM_HOST));
    weir_plan_destroy(plan);
    weir_buffers_destroy(list);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_stays_is_never_reused),
        TEST(views_of_half_types_are_exact),
        TEST(a_view_beside_its_alignment_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
