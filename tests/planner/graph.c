/* Graphs of nodes: which results share storage, the founding planner's layout, and random graphs run in one poisoned
 * arena, whose outputs have to be those of a run in which nothing is shared. */
#include "info.h"
#include "planner/random.h"

#include <weir/plan.h>

enum { NODES = 64, WORDS = 24 };

static weir_node node(weir_node_kind kind, weir_type type, int64_t elements, const uint32_t *inputs, size_t count)
{
    return (weir_node){.struct_size = sizeof(weir_node),
                       .kind = kind,
                       .type = type,
                       .elements = elements,
                       .inputs = inputs,
                       .input_count = count};
}

static weir_buffers *list_of(const weir_node *nodes, size_t count, bool uniform, bool cast_views)
{
    weir_node_rules rules = WEIR_INIT(weir_node_rules);
    weir_buffers *list;
    rules.uniform = uniform;
    rules.cast_views = cast_views;
    ok(weir_buffers_from_nodes(nodes, count, &rules, &list));
    return list;
}

static const uint32_t of0[] = {0}, of1[] = {1}, of2[] = {2}, of4[] = {4};

/* An input, a computation, views of it, a cast to another type, a further result. */
static void make_example(weir_node nodes[8])
{
    nodes[0] = node(WEIR_NODE_INPUT, WEIR_TYPE_F32, 10, NULL, 0);
    nodes[1] = node(WEIR_NODE_COMPUTE, WEIR_TYPE_F32, 12, of0, 1);
    nodes[2] = node(WEIR_NODE_RESHAPE, WEIR_TYPE_F32, 12, of1, 1);
    nodes[3] = node(WEIR_NODE_NARROW, WEIR_TYPE_F32, 4, of2, 1);
    nodes[3].start = 8;
    nodes[4] = node(WEIR_NODE_CAST, WEIR_TYPE_F16, 12, of2, 1);
    nodes[5] = node(WEIR_NODE_CAST, WEIR_TYPE_BF16, 12, of4, 1);
    nodes[6] = node(WEIR_NODE_COMPUTE, WEIR_TYPE_F32, 0, of2, 1);
    nodes[7] = node(WEIR_NODE_FURTHER, WEIR_TYPE_I64, 3, NULL, 0);
    nodes[7].output = true;
}

static void views_share_and_casts_to_other_types_do_not(void **state)
{
    (void)state;
    weir_node nodes[8];
    make_example(nodes);
    weir_buffers *list = list_of(nodes, 8, false, false);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 16);
    assert_int_equal(offset_of(plan, 2), offset_of(plan, 1));
    assert_int_equal(offset_of(plan, 3), offset_of(plan, 1) + 32);
    assert_int_equal(slot_of(plan, 3).bytes, 16);
    assert_int_equal(slot_of(plan, 4).root, 4);
    assert_int_equal(slot_of(plan, 5).root, 5);
    assert_int_equal(slot_of(plan, 6).length, 0);
    size_t steps;
    const uint32_t *order = schedule_of(plan, &steps);
    assert_int_equal(steps, 4);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 4);
    assert_int_equal(order[3], 6);
    weir_plan_destroy(plan);
    weir_buffers_destroy(list);
    list = list_of(nodes, 8, false, true);
    plan = plan_of(list, WEIR_PLAN_SEARCH, 16);
    assert_int_equal(offset_of(plan, 5), offset_of(plan, 4));
    assert_int_equal(slot_of(plan, 4).root, 4); /* half the bytes: never a view */
    weir_plan_destroy(plan);
    weir_buffers_destroy(list);
}

/* Four bytes an element, rounded up to 16, one behind the other; reshapes and all casts have their input's slot. */
static void uniform_is_the_founding_layout(void **state)
{
    (void)state;
    static const uint64_t offsets[] = {0, 48, 48, 96, 48, 48, 0, 112}, lengths[] = {48, 48, 48, 16, 48, 48, 0, 16};
    weir_node nodes[8];
    make_example(nodes);
    weir_buffers *list = list_of(nodes, 8, true, false);
    weir_plan *plan = plan_of(list, WEIR_PLAN_BUMP, 16);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(offset_of(plan, i), offsets[i]);
        assert_int_equal(slot_of(plan, i).length, lengths[i]);
    }
    size_t steps;
    const uint32_t *order = schedule_of(plan, &steps);
    assert_int_equal(steps, 7);
    for (uint32_t i = 0; i < steps; i++)
        assert_int_equal(order[i], i);
    assert_int_equal(summary_of(plan).arena, 128);
    weir_plan_destroy(plan);
    weir_buffers_destroy(list);
}

static void bad_nodes_are_refused_by_name(void **state)
{
    (void)state;
    weir_node nodes[8];
    weir_buffers *list;
#define REFUSED(index, change, text)                                                                                   \
    make_example(nodes), nodes[index].name = "norm1", nodes[index].change,                                             \
                         fails(WEIR_ERR_INVALID, weir_buffers_from_nodes(nodes, 8, NULL, &list)),                      \
                         detail_names("norm1"), detail_names(text)
    REFUSED(1, elements = -1, "not known");
    REFUSED(1, inputs = of2, "later");
    REFUSED(2, elements = 11, "elements");
    REFUSED(3, start = 9, "inside");
    REFUSED(3, start = UINT64_MAX / 2, "64 bits");
    REFUSED(2, input_count = 0, "no input");
    REFUSED(4, type = WEIR_TYPE_NONE, "type");
    REFUSED(1, in_place = 2, "does not have");
    REFUSED(1, kind = WEIR_NODE_FURTHER, "behind a computation");
    REFUSED(0, elements = INT64_MAX, "64 bits");
#undef REFUSED
}

/* Running -------------------------------------------------------------------------------------------------------- */

typedef struct graph {
    weir_node nodes[NODES];
    uint32_t inputs[NODES][3];
    size_t count;
} graph;

/* Elements are words of 4 bytes. */
static void make_graph(graph *g, uint64_t *seed)
{
    g->count = 4 + roll(seed, NODES - 4);
    for (size_t i = 0; i < g->count; i++) {
        for (int k = 0; k < 3; k++)
            g->inputs[i][k] = i > 0 ? (uint32_t)(i - 1 - roll(seed, i < 8 ? i : 8)) : 0;
        weir_node *n = &g->nodes[i];
        *n = node(WEIR_NODE_COMPUTE, WEIR_TYPE_F32, 1 + (int64_t)roll(seed, WORDS), g->inputs[i], 1 + roll(seed, 3));
        int64_t under = i > 0 ? g->nodes[g->inputs[i][0]].elements : 0;
        if (i == 0 || roll(seed, 10) == 0) {
            *n = node(WEIR_NODE_INPUT, WEIR_TYPE_F32, n->elements, NULL, 0);
        } else if (roll(seed, 6) == 0) {
            *n = node(WEIR_NODE_RESHAPE, WEIR_TYPE_F32, under, g->inputs[i], 1);
        } else if (roll(seed, 6) == 0) {
            *n = node(WEIR_NODE_NARROW, WEIR_TYPE_F32, 1 + (int64_t)roll(seed, (uint64_t)under), g->inputs[i], 1);
            n->start = roll(seed, (uint64_t)(under - n->elements) + 1);
        } else if (roll(seed, 2)) {
            n->elements = roll(seed, 2) ? under : 1 + (int64_t)roll(seed, (uint64_t)under);
            n->in_place = 1;
        }
        n->output = roll(seed, 8) == 0;
    }
}

/* Element by element, so that writing over the input that it is allowed for does no harm. */
static void run_node(const graph *g, size_t i, uint32_t **places)
{
    const weir_node *n = &g->nodes[i];
    uint32_t *out = places[i];
    for (int64_t e = 0; n->kind == WEIR_NODE_COMPUTE && e < n->elements; e++) {
        uint32_t value = (uint32_t)i * 2654435761u + (uint32_t)e;
        for (size_t k = 0; k < n->input_count; k++) {
            uint32_t in = n->inputs[k];
            bool same = k + 1 == n->in_place;
            value = value * 31 + places[in][same ? e : e % g->nodes[in].elements];
        }
        out[e] = value;
    }
}

static uint32_t storage_of(const graph *g, uint32_t i)
{
    while (g->nodes[i].kind == WEIR_NODE_RESHAPE || g->nodes[i].kind == WEIR_NODE_NARROW)
        i = g->inputs[i][0];
    return i;
}

static bool reads_twice(const graph *g, size_t i)
{
    const weir_node *n = &g->nodes[i];
    for (size_t k = 1; n->in_place && k < n->input_count; k++)
        if (storage_of(g, n->inputs[k]) == storage_of(g, n->inputs[0]))
            return true;
    return false;
}

static void fill_inputs(const graph *g, uint32_t **places)
{
    for (size_t i = 0; i < g->count; i++)
        for (int64_t e = 0; g->nodes[i].kind == WEIR_NODE_INPUT && e < g->nodes[i].elements; e++)
            places[i][e] = (uint32_t)(i * 977 + (size_t)e);
}

static void run_graph(const graph *g, const weir_plan *plan, uint32_t *arena, size_t words, uint32_t **places)
{
    for (size_t i = 0; i < words; i++)
        arena[i] = 0xdeadbeef;
    for (uint32_t i = 0; i < g->count; i++)
        places[i] = arena + offset_of(plan, i) / 4;
    fill_inputs(g, places);
    size_t steps;
    const uint32_t *order = schedule_of(plan, &steps);
    for (size_t s = 0; s < steps; s++)
        run_node(g, order[s], places);
}

static weir_buffers *list_without_in_place(const graph *g)
{
    graph other = *g;
    for (size_t i = 0; i < g->count; i++)
        other.nodes[i].in_place = 0;
    return list_of(other.nodes, g->count, false, false);
}

static bool writes_shorter_ones_in_place(const graph *g, const weir_plan *plan)
{
    for (uint32_t i = 0; i < g->count; i++) {
        weir_slot slot = slot_of(plan, i);
        if (g->nodes[i].in_place && slot.root != i && slot.length < slot_of(plan, slot.root).length)
            return true;
    }
    return false;
}

static void graphs_compute_the_same_in_one_arena(void **state)
{
    (void)state;
    uint64_t seed = 23;
    int in_place = 0, shorter = 0, shared = 0;
    for (int round = 0; round < rounds(150); round++) {
        graph g;
        uint32_t *one[NODES], *other[NODES];
        make_graph(&g, &seed);
        for (size_t i = 0; i < g.count; i++)
            if (reads_twice(&g, i)) /* at other elements, which would be overwritten: no permission */
                g.nodes[i].in_place = 0;
        weir_buffers *list = list_of(g.nodes, g.count, false, false);
        weir_buffers *strict = list_without_in_place(&g);
        weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 8), *apart = plan_of(strict, WEIR_PLAN_BUMP, 8);
        weir_plan_details s = summary_of(plan), t = summary_of(apart);
        uint32_t *arena = malloc(s.arena + 4), *wide = malloc(t.arena + 4);
        run_graph(&g, plan, arena, s.arena / 4, one);
        run_graph(&g, apart, wide, t.arena / 4, other);
        for (size_t i = 0; i < g.count; i++)
            if (g.nodes[i].output)
                assert_memory_equal(one[i], other[i], (size_t)g.nodes[i].elements * 4);
        in_place += s.in_place > 0;
        shorter += writes_shorter_ones_in_place(&g, plan);
        shared += s.arena < t.arena;
        free(arena);
        free(wide);
        weir_plan_destroy(plan);
        weir_plan_destroy(apart);
        weir_buffers_destroy(list);
        weir_buffers_destroy(strict);
    }
    assert_true(in_place > 0 && shorter > 0 && shared > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_share_and_casts_to_other_types_do_not),
        cmocka_unit_test(uniform_is_the_founding_layout),
        cmocka_unit_test(bad_nodes_are_refused_by_name),
        cmocka_unit_test(graphs_compute_the_same_in_one_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
