/* uses.c: what is told of a weight by the nodes that read it, of graphs that are written here field by field. */
#include "common.h"

#include "onnx/engine/model.h"

enum { GRAPH_NODE = 1, GRAPH_WEIGHT = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12, GRAPH_SPARSE = 15 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_KIND = 4, NODE_ATTRIBUTE = 5, NODE_DOMAIN = 7 };
enum { ATTRIBUTE_GRAPH = 6, ATTRIBUTE_GRAPHS = 11, VALUE_NAME = 1, TENSOR_NAME = 8 };
enum { RIGHT = ONNX_USE_RIGHT, OPERAND = ONNX_USE_OPERAND, TABLE = ONNX_USE_TABLE, OTHER = ONNX_USE_OTHER };
enum { GATES = ONNX_USE_GATES, HIDDEN = ONNX_USE_HIDDEN, MOST = 120 };

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static void put_text(onnx_buffer *to, uint32_t field, const char *text)
{
    onnx_put_data(to, field, text, strlen(text));
}

/* Its inputs are words with blanks between them; `attribute`: of so many bytes that say nothing (0: none). */
static onnx_buffer node_of(const char *kind, const char *domain, const char *inputs, const char *output,
                           size_t attribute)
{
    onnx_buffer it = {0};
    for (const char *at = inputs; *at;) {
        size_t size = strcspn(at, " ");
        onnx_put_data(&it, NODE_INPUT, at, size);
        at += size + (at[size] == ' ');
    }
    put_text(&it, NODE_OUTPUT, output);
    put_text(&it, NODE_KIND, kind);
    put_text(&it, NODE_DOMAIN, domain);
    if (attribute) {
        static const uint8_t nothing[2048];
        onnx_put_data(&it, NODE_ATTRIBUTE, nothing, attribute);
    }
    return it;
}

static void put(onnx_buffer *to, uint32_t field, onnx_buffer what)
{
    onnx_put_data(to, field, what.data, what.size);
    onnx_buffer_free(&what);
}

static void put_node(onnx_buffer *graph, const char *kind, const char *domain, const char *inputs)
{
    put(graph, GRAPH_NODE, node_of(kind, domain, inputs, "result", 0));
}

static onnx_buffer message_of(uint32_t field, onnx_buffer what)
{
    onnx_buffer it = {0};
    put(&it, field, what);
    return it;
}

static onnx_buffer named(uint32_t field, const char *name)
{
    onnx_buffer it = {0};
    put_text(&it, field, name);
    return it;
}

/* What is told of a graph with weights of these names, which are words with blanks between them. */
typedef struct told {
    onnx_graph graph;
    onnx_tensor weights[MOST], inner[MOST];
    onnx_uses uses;
} told;

static size_t name_all(const char *names, onnx_tensor *out)
{
    size_t count = 0;
    for (const char *at = names; *at; count++) {
        size_t size = strcspn(at, " ");
        assert_true(count < MOST);
        out[count] = (onnx_tensor){.name = {at, size}, .type = ONNX_FLOAT};
        at += size + (at[size] == ' ');
    }
    return count;
}

static void begin(told *it, onnx_buffer graph, const char *weights, const char *inner)
{
    memset(it, 0, sizeof *it);
    it->graph = (onnx_graph){.data = graph.data, .size = graph.size, .weights = it->weights, .inner = it->inner};
    it->graph.weight_count = name_all(weights, it->weights);
    it->graph.inner_count = name_all(inner, it->inner);
}

static void end(told *it)
{
    free((void *)(uintptr_t)it->graph.data);
    free(it->uses.of);
}

static void read_it(told *it)
{
    free(it->uses.of);
    assert_ok(onnx_uses_read(&it->graph, &it->uses));
}

static void is(const told *it, size_t which, unsigned kinds, unsigned count, bool valued)
{
    const onnx_use *use = &it->uses.of[which];
    if (use->kinds != kinds || use->count != count || use->valued != valued)
        print_error("weight %zu: kinds %u, %u times%s\n", which, use->kinds, use->count, use->valued ? ", valued" : "");
    assert_int_equal(use->kinds, kinds);
    assert_int_equal(use->count, count);
    assert_int_equal(use->valued, valued);
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

typedef struct operator_case {
    const char *kind, *domain;
    unsigned kinds[5];
    unsigned valued; /* so many of its first inputs; what follows only computes */
} operator_case;

static const operator_case operators[] = {
    {"MatMul", "", {OPERAND, RIGHT, OTHER, OTHER, OTHER}, 0},
    {"MatMulInteger", "", {OPERAND, RIGHT, OTHER, OTHER, OTHER}, 0},
    {"Gemm", "", {OPERAND, RIGHT, OPERAND, OPERAND, OPERAND}, 5},
    {"Conv", "", {OTHER, OPERAND, OPERAND, OPERAND, OPERAND}, 5},
    {"ConvTranspose", "ai.onnx", {OTHER, OPERAND, OPERAND, OPERAND, OPERAND}, 5},
    {"LSTM", "", {OTHER, GATES, GATES, OPERAND, OPERAND}, 5},
    {"GRU", "", {OTHER, GATES, GATES, OPERAND, OPERAND}, 5},
    {"RNN", "", {OTHER, OPERAND, OPERAND, OPERAND, OPERAND}, 5},
    {"Gather", "", {TABLE, OTHER, OTHER, OTHER, OTHER}, 1},
    {"GatherElements", "", {OTHER, OTHER, OTHER, OTHER, OTHER}, 1},
    {"GatherND", "", {OTHER, OTHER, OTHER, OTHER, OTHER}, 1},
    {"ScatterElements", "", {OTHER, OTHER, OTHER, OTHER, OTHER}, 1},
    {"ScatterND", "", {OTHER, OTHER, OTHER, OTHER, OTHER}, 1},
    {"ConvInteger", "", {OTHER, OTHER, OTHER, OTHER, OTHER}, 0},
    {"DequantizeLinear", "", {OTHER, OTHER, OTHER, OTHER, OTHER}, 0},
    {"QLinearConv", "", {OTHER, OTHER, OTHER, OTHER, OTHER}, 0},
    {"QLinearMatMul", "", {OTHER, OTHER, OTHER, OTHER, OTHER}, 0},
    {"Add", "", {OTHER, OTHER, OTHER, OTHER, OTHER}, 5},
    {"MatMul", "somebody's", {OTHER, OTHER, OTHER, OTHER, OTHER}, 5},
    {"FusedMatMul", "com.microsoft", {OPERAND, OPERAND, OPERAND, OPERAND, OPERAND}, 5},
    {"QAttention", "com.microsoft", {OTHER, OTHER, OTHER, OTHER, OTHER}, 5},
    {"DequantizeLinear", "com.microsoft", {OTHER, OTHER, OTHER, OTHER, OTHER}, 5},
    {"DynamicQuantizeLSTM", "com.microsoft", {OTHER, GATES, GATES, OPERAND, OPERAND}, 5},
};

static void each_input_of_an_operator_has_its_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        const operator_case *its = &operators[i];
        onnx_buffer graph = {0};
        told it;
        put_node(&graph, its->kind, its->domain, "a bb c dd e");
        begin(&it, graph, "unread a bb c dd e", "");
        read_it(&it);
        is(&it, 0, 0, 0, false);
        for (unsigned k = 0; k < 5; k++) {
            if (it.uses.of[k + 1].kinds != its->kinds[k] || it.uses.of[k + 1].valued != (k < its->valued))
                print_error("input %u of %s\n", k, its->kind);
            is(&it, k + 1, its->kinds[k], 1, k < its->valued);
        }
        end(&it);
    }
}

/* A model's functions may be in ONNX Runtime's domain: then nothing is known of an operator there. */
static void functions_may_be_behind_any_name(void **state)
{
    (void)state;
    onnx_buffer graph = {0};
    told it;
    put_node(&graph, "FusedMatMul", "com.microsoft", "a");
    put_node(&graph, "DynamicQuantizeLSTM", "com.microsoft", "x b");
    put_node(&graph, "MatMul", "", "x c");
    begin(&it, graph, "a b c", "");
    it.graph.functions = true;
    read_it(&it);
    is(&it, 0, OTHER, 1, true);
    is(&it, 1, OTHER, 1, true);
    is(&it, 2, RIGHT, 1, false);
    assert_true(it.uses.transposes && it.uses.constants);
    end(&it);
}

/* Of several readers each counts. */
static void readers_add_up(void **state)
{
    (void)state;
    onnx_buffer graph = {0};
    told it;
    put_node(&graph, "MatMul", "", "x a");
    put_node(&graph, "Gather", "", "a b");
    put_node(&graph, "MatMul", "", "b a");
    begin(&it, graph, "a b", "");
    read_it(&it);
    is(&it, 0, RIGHT | TABLE, 3, true);
    is(&it, 1, OTHER | OPERAND, 2, false);
    end(&it);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* What an Identity calls a weight is that weight, however many there are; what it calls a weight of the graph is another one. */
static void copies_are_the_weights_that_they_copy(void **state)
{
    (void)state;
    for (int count = 1; count <= 100; count += 33) {
        static char names[100 * 16];
        char inputs[32];
        size_t used = 0;
        onnx_buffer graph = {0};
        told it;
        for (int i = 0; i < count; i++) {
            char name[16], copy[16];
            used += (size_t)snprintf(names + used, sizeof names - used, "%sw%d", i ? " " : "", i * 37 % 100);
            snprintf(name, sizeof name, "w%d", i * 37 % 100);
            snprintf(copy, sizeof copy, "copy%d", i * 61 % 100);
            put(&graph, GRAPH_NODE, node_of("Identity", "", name, copy, 0));
        }
        for (int i = 0; i < count; i++) {
            snprintf(inputs, sizeof inputs, i % 2 ? "x copy%d" : "copy%d y", i * 61 % 100);
            put_node(&graph, i % 3 ? "MatMul" : "Gemm", "", inputs);
        }
        begin(&it, graph, names, "");
        read_it(&it);
        for (int i = 0; i < count; i++)
            is(&it, (size_t)i, i % 2 ? RIGHT : OPERAND, 1, i % 3 == 0);
        end(&it);
    }
}

/* An Identity in a domain of its own may do anything. */
static void a_copy_of_another_domain_is_a_reader(void **state)
{
    (void)state;
    onnx_buffer graph = {0};
    told it;
    put(&graph, GRAPH_NODE, node_of("Identity", "somebody's", "a", "copy", 0));
    put_node(&graph, "MatMul", "", "x copy");
    begin(&it, graph, "a", "");
    read_it(&it);
    is(&it, 0, OTHER, 1, true);
    end(&it);
}

/* Names that begin alike, that are as long, and that are empty are told apart. */
static void weights_are_found_by_their_whole_names(void **state)
{
    (void)state;
    onnx_buffer graph = {0};
    told it;
    put_node(&graph, "MatMul", "", "x ab");
    put_node(&graph, "Gather", "", "ac");
    put_node(&graph, "Conv", "", "x a");
    put_node(&graph, "Add", "", "abc");
    begin(&it, graph, "abc ac ab a b", "");
    read_it(&it);
    is(&it, 0, OTHER, 1, true);
    is(&it, 1, TABLE, 1, true);
    is(&it, 2, RIGHT, 1, false);
    is(&it, 3, OPERAND, 1, true);
    is(&it, 4, 0, 0, false);
    end(&it);
}

/* Constants of the main graph's nodes come behind the weights; of those deeper inside nothing is read. */
static void constants_of_nodes_are_read_as_weights_are(void **state)
{
    (void)state;
    onnx_buffer graph = {0};
    told it;
    put_node(&graph, "MatMul", "", "x one");
    put_node(&graph, "Gather", "", "two");
    put_node(&graph, "MatMul", "", "x three");
    put_node(&graph, "Conv", "", "x four");
    begin(&it, graph, "w", "one two three four");
    it.inner[2].deep = true;
    read_it(&it);
    is(&it, 0, 0, 0, false);
    is(&it, 1, RIGHT, 1, false);
    is(&it, 2, TABLE, 1, true);
    is(&it, 3, OTHER, 0, false);
    is(&it, 4, OPERAND, 1, true);
    end(&it);
}

static void inputs_and_outputs_of_the_graph_are_readers(void **state)
{
    (void)state;
    onnx_buffer graph = {0};
    told it;
    put_node(&graph, "MatMul", "", "x a");
    put(&graph, GRAPH_INPUT, named(VALUE_NAME, "a"));
    put(&graph, GRAPH_OUTPUT, named(VALUE_NAME, "b"));
    put(&graph, GRAPH_WEIGHT, named(TENSOR_NAME, "c")); /* that is where it is from */
    begin(&it, graph, "a b c", "");
    read_it(&it);
    is(&it, 0, RIGHT | OTHER, 2, false);
    is(&it, 1, OTHER, 1, false);
    is(&it, 2, 0, 0, false);
    assert_false(it.uses.constants);
    end(&it);
}

/* ---- graphs inside ----------------------------------------------------------------------------------------------- */

/* By either field of an attribute, and in a graph inside another. */
static void what_graphs_inside_read_is_read_by_others(void **state)
{
    (void)state;
    for (int none = 0; none < 2; none++) {
        onnx_buffer graph = {0}, deepest = {0}, deep = {0}, branch = {0}, node = {0};
        told it;
        put_node(&deepest, "MatMul", "", "x a");
        put_node(&deep, "MatMul", "", "x b");
        put(&deep, GRAPH_WEIGHT, named(TENSOR_NAME, "c"));
        node = node_of("If", "", "", "result", 0);
        put(&node, NODE_ATTRIBUTE, message_of(ATTRIBUTE_GRAPHS, deepest));
        put(&deep, GRAPH_NODE, node);
        put_node(&branch, "Gather", "", "d");
        node = node_of("If", "", "e", "result", 0);
        put(&node, NODE_ATTRIBUTE, message_of(ATTRIBUTE_GRAPH, deep));
        put(&node, NODE_ATTRIBUTE, message_of(ATTRIBUTE_GRAPH, branch));
        put(&graph, GRAPH_NODE, node);
        put_node(&graph, "MatMul", "", "x a");
        begin(&it, graph, "a b c d e", "");
        it.graph.plain = none;
        read_it(&it);
        is(&it, 0, none ? RIGHT : RIGHT | OTHER, none ? 1 : 2, false);
        is(&it, 1, none ? 0 : OTHER, !none, false);
        is(&it, 2, none ? 0 : OTHER | HIDDEN, !none, false);
        is(&it, 3, none ? 0 : OTHER, !none, !none);
        is(&it, 4, OTHER, 1, true);
        assert_int_equal(it.uses.constants, !none);
        end(&it);
    }
}

/* ---- of the whole ------------------------------------------------------------------------------------------------ */

static void constants_count_from_a_size_on(void **state)
{
    (void)state;
    for (size_t size = 0; size < 3; size++) {
        onnx_buffer graph = {0}, node = node_of("Constant", "", "", "c", 1000);
        told it;
        size_t rest = node.size - 1000;
        onnx_buffer_free(&node);
        node = node_of(size == 2 ? "Constand" : "Constant", "", "", "c", 1023 - rest + (size > 0));
        assert_int_equal(node.size, 1023 + (size > 0));
        put(&graph, GRAPH_NODE, node);
        begin(&it, graph, "a", "");
        it.graph.plain = true;
        read_it(&it);
        assert_int_equal(it.uses.constants, size == 1);
        assert_false(it.uses.transposes);
        end(&it);
    }
}

static void what_may_transpose_is_told(void **state)
{
    static const struct {
        const char *kind, *domain;
        bool may;
    } nodes[] = {{"Transpose", "", true},
                 {"Transposer", "", false},
                 {"MatMul", "", false},
                 {"MatMul", "ai.onnx", false},
                 {"FusedMatMul", "com.microsoft", false},
                 {"Transpose", "com.microsoft", true},
                 {"MatMul", "somebody's", true}};
    (void)state;
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        onnx_buffer graph = {0};
        told it;
        put_node(&graph, "Add", "", "a b");
        put_node(&graph, nodes[i].kind, nodes[i].domain, "a");
        put_node(&graph, "Add", "", "a b");
        begin(&it, graph, "a", "");
        read_it(&it);
        assert_int_equal(it.uses.transposes, nodes[i].may);
        end(&it);
    }
}

/* ---- what stays -------------------------------------------------------------------------------------------------- */

/* A weight of each kind of reader; the same names whatever their type. */
static void stay_as(told *it, int optimization, bool handed_over, const char *wanted)
{
    assert_ok(onnx_uses_mark(&it->graph, optimization, handed_over));
    for (size_t i = 0; wanted[i]; i++) {
        if (it->weights[i].stays != (wanted[i] == '1'))
            print_error("weight %zu at level %d, %s\n", i, optimization, handed_over ? "handed over" : "mapped");
        assert_int_equal(it->weights[i].stays, wanted[i] == '1');
    }
}

static void what_the_optimizer_may_write_again_stays(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        onnx_buffer graph = {0}, branch = {0}, node = {0};
        told it;
        put_node(&graph, "MatMul", "", "x right");
        put_node(&graph, turned ? "Transpose" : "Add", "", "other");
        put(&branch, GRAPH_WEIGHT, named(TENSOR_NAME, "hidden"));
        node = node_of("If", "", "", "result", 0);
        put(&node, NODE_ATTRIBUTE, message_of(ATTRIBUTE_GRAPH, branch));
        put(&graph, GRAPH_NODE, node);
        put_node(&graph, "Conv", "", "x operand");
        begin(&it, graph, "right other hidden operand unread", "");
        stay_as(&it, 0, true, "00100");
        stay_as(&it, 1, true, turned ? "01100" : "00100");
        stay_as(&it, 2, true, turned ? "01100" : "00100");
        stay_as(&it, 3, true, "01100");
        stay_as(&it, 99, true, "01100");
        stay_as(&it, 99, false, "00000");
        end(&it);
    }
}

/* Of 32 and 64 bits, as shapes are, and read by who may make a shape of them. */
static void whole_numbers_that_may_decide_a_shape_stay(void **state)
{
    (void)state;
    static const int32_t types[] = {ONNX_INT32, ONNX_INT64, ONNX_FLOAT,  ONNX_INT8,
                                    ONNX_UINT8, ONNX_INT16, ONNX_UINT64, ONNX_BOOL};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int over = 0; over < 2; over++) {
            onnx_buffer graph = {0};
            told it;
            put_node(&graph, "Reshape", "", "x sizes");
            put_node(&graph, "Gather", "", "table indices");
            put_node(&graph, "MatMulInteger", "", "x matrix");
            begin(&it, graph, "sizes indices table matrix", "");
            for (size_t i = 0; i < it.graph.weight_count; i++)
                it.weights[i].type = types[t];
            stay_as(&it, 0, over, t < 2 ? "1010" : "0000");
            end(&it);
        }
}

/* ---- what is lifted ---------------------------------------------------------------------------------------------- */

static onnx_buffer if_of(onnx_buffer branch, onnx_buffer other)
{
    onnx_buffer node = node_of("If", "", "yes", "p", 0);
    put(&node, NODE_ATTRIBUTE, message_of(ATTRIBUTE_GRAPH, branch));
    put(&node, NODE_ATTRIBUTE, message_of(ATTRIBUTE_GRAPH, other));
    return node;
}

static bool lifts(told *it)
{
    it->inner[0].lifted = false;
    assert_ok(onnx_uses_lift(&it->graph));
    return it->inner[0].lifted;
}

/* A branch's constant "c", which a product of the branch reads. */
static void with_constant(told *it, onnx_buffer branch, onnx_buffer other, onnx_buffer rest)
{
    put(&branch, GRAPH_WEIGHT, named(TENSOR_NAME, "c"));
    put(&rest, GRAPH_NODE, if_of(branch, other));
    begin(it, rest, "", "c");
    it->inner[0].deep = 1;
    it->inner[0].location = ONNX_LOCATION_BYTES;
    it->inner[0].bytes = ONNX_INLINE_BELOW;
    it->graph.ir = 4;
    it->inner[0].sole = true;
    static const uint8_t initializer[] = {GRAPH_WEIGHT << 3 | 2, 3, TENSOR_NAME << 3 | 2, 1, 'c'};
    it->inner[0].begin = memmem(it->graph.data, it->graph.size, initializer, sizeof initializer);
    assert_non_null(it->inner[0].begin);
}

static onnx_buffer reads_constant(const char *kind, const char *inputs)
{
    onnx_buffer branch = {0};
    put_node(&branch, kind, "", inputs);
    return branch;
}

static void weights_of_branches_are_lifted(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *inputs;
        bool lifted;
    } readers[] = {{"MatMul", "x c", true}, {"Gemm", "x w c", false}, {"LSTM", "x c", true},
                   {"Add", "x c", false},   {"Gather", "c x", false}, {"MatMul", "x w", false}};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        told it;
        with_constant(&it, reads_constant(readers[i].kind, readers[i].inputs), (onnx_buffer){0}, (onnx_buffer){0});
        if (lifts(&it) != readers[i].lifted)
            fail_msg("%s of %s", readers[i].kind, readers[i].inputs);
        end(&it);
    }
    told it;
    with_constant(&it, reads_constant("MatMul", "x c"), (onnx_buffer){0}, (onnx_buffer){0});
    assert_true(lifts(&it));
    it.graph.ir = 3;
    assert_false(lifts(&it));
    it.graph.ir = 4;
    it.graph.functions = true;
    assert_false(lifts(&it));
    it.graph.functions = false;
    it.inner[0].deep = 0;
    assert_false(lifts(&it));
    it.inner[0].deep = 2;
    assert_false(lifts(&it));
    it.inner[0].deep = 1;
    it.inner[0].sole = false;
    assert_false(lifts(&it));
    it.inner[0].sole = true;
    assert_true(lifts(&it));
    it.inner[0].bytes--;
    assert_false(lifts(&it));
    end(&it);
}

static void names_that_others_have_are_not_lifted(void **state)
{
    (void)state;
    for (int which = 0; which < 8; which++) {
        onnx_buffer branch = reads_constant("MatMul", "x c"), other = {0}, rest = {0};
        if (which == 1)
            put(&other, GRAPH_NODE, node_of("Exp", "", "x", "c", 0));
        else if (which == 2)
            put(&other, GRAPH_WEIGHT, named(TENSOR_NAME, "c"));
        else if (which == 3)
            put(&other, GRAPH_INPUT, named(VALUE_NAME, "c"));
        else if (which == 4)
            put(&branch, GRAPH_OUTPUT, named(VALUE_NAME, "c"));
        else if (which == 5)
            put(&rest, GRAPH_SPARSE, (onnx_buffer){0});
        else if (which == 6) /* the reader is a graph within */
            put(&branch, GRAPH_NODE, if_of(reads_constant("MatMul", "x c"), (onnx_buffer){0}));
        else if (which == 7) /* so is a branch that has no such constant */
            put_node(&other, "MatMul", "", "x c");
        told it;
        with_constant(&it, branch, other, rest);
        if (lifts(&it) != (which == 0))
            fail_msg("way %d", which);
        end(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_input_of_an_operator_has_its_kind),
        cmocka_unit_test(functions_may_be_behind_any_name),
        cmocka_unit_test(readers_add_up),
        cmocka_unit_test(copies_are_the_weights_that_they_copy),
        cmocka_unit_test(a_copy_of_another_domain_is_a_reader),
        cmocka_unit_test(weights_are_found_by_their_whole_names),
        cmocka_unit_test(constants_of_nodes_are_read_as_weights_are),
        cmocka_unit_test(inputs_and_outputs_of_the_graph_are_readers),
        cmocka_unit_test(what_graphs_inside_read_is_read_by_others),
        cmocka_unit_test(constants_count_from_a_size_on),
        cmocka_unit_test(what_may_transpose_is_told),
        cmocka_unit_test(what_the_optimizer_may_write_again_stays),
        cmocka_unit_test(whole_numbers_that_may_decide_a_shape_stay),
        cmocka_unit_test(weights_of_branches_are_lifted),
        cmocka_unit_test(names_that_others_have_are_not_lifted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
