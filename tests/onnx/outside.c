/* What a model takes of the process's heap, outside of the client's memory: told with its size, and counted where that is asked for. */
#include "common.h"
#include <weir/engine.h>

#include "onnx/engine/foresee.h"
#include "onnx/engine/model.h"
#include "info.h"

/* What the load takes of the heap is told with its size, and counts where that is asked for. */
static void what_lies_outside_is_told_or_counted(void **state)
{
    (void)state;
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    weir_model_details info = WEIR_INIT(weir_model_details);
    if (SANITIZED) /* there the heap is another one, which does not tell */
        skip();
    loaded l = load_model("mlp", NULL);
    assert_ok(weir_client_info(l.client, &stats));
    uint64_t outside = stats.outside;
    assert_true(outside > 4096);
    assert_int_equal(stats.promised, 0);
    assert_ok(l.engine->info(l.model, &info));
    assert_null(strstr(info.remarks, "counted"));
    unload_model(&l);
    assert_ok(load_into(&l, "mlp", (const char *const[]){"outside=counted", NULL}));
    assert_ok(weir_client_info(l.client, &stats));
    assert_int_equal(stats.promised, (stats.outside + 255) / 256 * 256);
    assert_ok(l.engine->info(l.model, &info));
    assert_non_null(strstr(info.remarks, ", counted: "));
    unload_model(&l);
    assert_ok(weir_client_info(l.client, &stats));
    assert_int_equal(stats.promised, 0);
    assert_ok(weir_client_set_limits(l.client, 0, 16384)); /* enough for the weights */
    assert_ok(load_into(&l, "mlp", NULL));
    l.model->settings.outside_counts = true;
    assert_ok(onnx_outside_note(l.model, UINT64_MAX)); /* a heap that has shrunk: there is nothing to count */
    assert_int_equal(l.model->outside, 0);
    assert_ok(weir_client_info(l.client, &stats));
    assert_int_equal(stats.promised, 0);
    unload_model(&l);
    assert_status(load_into(&l, "mlp", (const char *const[]){"outside=counted", NULL}), WEIR_ERR_OUT_OF_MEMORY);
    assert_detail("takes of the heap");
    assert_int_equal(live(&l), 0);
    close_client(&l);
}

/* Tanh of Tanh of …, as no node of it is left out. */
static void put_steps(onnx_buffer *graph, int nodes)
{
    char from[16] = "x", to[16];
    for (int i = 0; i < nodes; i++) {
        onnx_buffer node = {0};
        snprintf(to, sizeof to, i + 1 < nodes ? "v%d" : "y", i);
        onnx_put_data(&node, 1, from, strlen(from));
        onnx_put_data(&node, 2, to, strlen(to));
        onnx_put_data(&node, 4, "Tanh", 4);
        onnx_put_data(graph, 1, node.data, node.size);
        onnx_buffer_free(&node);
        memcpy(from, to, sizeof from);
    }
}

/* A vector of two floats in the graph's list `field`. */
static void put_port(onnx_buffer *graph, uint32_t field, const char *name)
{
    static const uint8_t type[] = {0x0a, 0x08, 0x08, 0x01, 0x12, 0x04, 0x0a, 0x02, 0x08, 0x02};
    onnx_buffer port = {0};
    onnx_put_data(&port, 1, name, 1);
    onnx_put_data(&port, 2, type, sizeof type);
    onnx_put_data(graph, field, port.data, port.size);
    onnx_buffer_free(&port);
}

/* Writes the model, and frees both. */
static void save_model(const char *path, onnx_buffer *graph, onnx_buffer *model)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(model->data, 1, model->size, file), model->size);
    assert_int_equal(fclose(file), 0);
    onnx_buffer_free(graph);
    onnx_buffer_free(model);
}

static void write_steps(const char *path, int nodes)
{
    static const uint8_t opset[] = {0x10, 0x11};
    onnx_buffer graph = {0}, model = {0};
    put_steps(&graph, nodes);
    onnx_put_data(&graph, 2, "steps", 5);
    put_port(&graph, 11, "x");
    put_port(&graph, 12, "y");
    onnx_put_varint(&model, 1, 8);
    onnx_put_data(&model, 7, graph.data, graph.size);
    onnx_put_data(&model, 8, opset, sizeof opset);
    save_model(path, &graph, &model);
}

enum { WHOLE = 2, REALS = 6, NUMBERS = 7, TEXTS = 8 }; /* AttributeProto.type */

static void put_attribute(onnx_buffer *node, const char *name, uint64_t type, onnx_buffer list)
{
    onnx_put_data(&list, 1, name, strlen(name));
    onnx_put_varint(&list, 20, type);
    onnx_put_data(node, 5, list.data, list.size);
    onnx_buffer_free(&list);
}

/* The number of entry i is i / each * step + of[i % each]. */
static onnx_buffer numbers_of(int count, int each, int step, const int *of)
{
    onnx_buffer list = {0};
    for (int i = 0; i < count; i++) {
        int number = i / each * step + of[i % each];
        onnx_put_varint(&list, 8, (uint64_t)number);
    }
    return list;
}

static onnx_buffer reals_of(int count)
{
    onnx_buffer list = {0};
    float *all = calloc((size_t)count, sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < count; i++)
        all[i] = (float)(i % 7) / 8;
    onnx_put_data(&list, 7, all, (size_t)count * sizeof *all);
    free(all);
    return list;
}

/* A sum of so many trees, each a branch and two leaves, over an input of 1 x 2. */
static void write_trees(const char *path, int trees)
{
    static const uint8_t opset[] = {0x10, 0x11};
    static const uint8_t x[] = {0x0a, 0x0c, 0x08, 0x01, 0x12, 0x08, 0x0a, 0x02, 0x08, 0x01, 0x0a, 0x02, 0x08, 0x02};
    static const uint8_t y[] = {0x0a, 0x0c, 0x08, 0x01, 0x12, 0x08, 0x0a, 0x02, 0x08, 0x01, 0x0a, 0x02, 0x08, 0x01};
    onnx_buffer node = {0}, modes = {0}, graph = {0}, model = {0}, learning = {0}, in = {0}, out = {0}, one = {0};
    onnx_put_data(&node, 1, "x", 1);
    onnx_put_data(&node, 2, "y", 1);
    onnx_put_data(&node, 4, "TreeEnsembleRegressor", 21);
    onnx_put_data(&node, 7, "ai.onnx.ml", 10);
    for (int i = 0; i < 3 * trees; i++)
        onnx_put_data(&modes, 9, i % 3 ? "LEAF" : "BRANCH_LEQ", i % 3 ? 4 : 10);
    put_attribute(&node, "nodes_treeids", NUMBERS, numbers_of(3 * trees, 3, 1, (const int[]){0, 0, 0}));
    put_attribute(&node, "nodes_nodeids", NUMBERS, numbers_of(3 * trees, 3, 0, (const int[]){0, 1, 2}));
    put_attribute(&node, "nodes_featureids", NUMBERS, numbers_of(3 * trees, 3, 0, (const int[]){1, 0, 0}));
    put_attribute(&node, "nodes_truenodeids", NUMBERS, numbers_of(3 * trees, 3, 0, (const int[]){1, 0, 0}));
    put_attribute(&node, "nodes_falsenodeids", NUMBERS, numbers_of(3 * trees, 3, 0, (const int[]){2, 0, 0}));
    put_attribute(&node, "nodes_values", REALS, reals_of(3 * trees));
    put_attribute(&node, "nodes_modes", TEXTS, modes);
    put_attribute(&node, "target_treeids", NUMBERS, numbers_of(2 * trees, 2, 1, (const int[]){0, 0}));
    put_attribute(&node, "target_nodeids", NUMBERS, numbers_of(2 * trees, 2, 0, (const int[]){1, 2}));
    put_attribute(&node, "target_ids", NUMBERS, numbers_of(2 * trees, 2, 0, (const int[]){0, 0}));
    put_attribute(&node, "target_weights", REALS, reals_of(2 * trees));
    onnx_put_varint(&one, 3, 1);
    put_attribute(&node, "n_targets", WHOLE, one);
    onnx_put_data(&graph, 1, node.data, node.size);
    onnx_put_data(&graph, 2, "trees", 5);
    onnx_put_data(&in, 1, "x", 1);
    onnx_put_data(&in, 2, x, sizeof x);
    onnx_put_data(&graph, 11, in.data, in.size);
    onnx_put_data(&out, 1, "y", 1);
    onnx_put_data(&out, 2, y, sizeof y);
    onnx_put_data(&graph, 12, out.data, out.size);
    onnx_put_varint(&model, 1, 8);
    onnx_put_data(&model, 7, graph.data, graph.size);
    onnx_put_data(&model, 8, opset, sizeof opset);
    onnx_put_data(&learning, 1, "ai.onnx.ml", 10);
    onnx_put_varint(&learning, 2, 3);
    onnx_put_data(&model, 8, learning.data, learning.size);
    onnx_buffer_free(&learning);
    onnx_buffer_free(&in);
    onnx_buffer_free(&out);
    onnx_buffer_free(&node);
    save_model(path, &graph, &model);
}

/* Beside the engine's own session nothing is kept for each node of a graph. */
static void nothing_is_noted_of_each_node(void **state)
{
    (void)state;
    enum { NODES = 2000 };
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    weir_model_details info = WEIR_INIT(weir_model_details);
    if (SANITIZED)
        skip();
    write_steps(scratch_path(), NODES);
    loaded l = load_model("mlp", NULL); /* what ONNX Runtime takes once is there from now on */
    onnx_settings settings = l.model->settings;
    uint64_t before = onnx_heap_used();
    plain alone = plain_open(l.model->library, scratch_path(), &settings);
    uint64_t taken = onnx_heap_used() - before;
    plain_close(&alone);
    unload_model(&l);
    assert_ok(load_into(&l, scratch_path(), NULL));
    assert_ok(weir_client_info(l.client, &stats));
    assert_true(taken > (uint64_t)NODES * 1024);
    assert_in_range(stats.outside, taken / 2, taken + (uint64_t)NODES * 40);
    assert_ok(l.engine->info(l.model, &info));
    assert_int_equal(info.share_count, 1);
    assert_int_equal(info.shares[0].parts, NODES);
    unload_model(&l);
    scratch_clear();
    close_client(&l);
}

/* Trees lie in the engine's own heap: told as what plain ONNX Runtime takes for them, and refused where that counts and there
 * is no room. */
static void trees_are_told_or_counted(void **state)
{
    (void)state;
    enum { TREES = 20000, ROOM = 1 << 20 };
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    if (SANITIZED)
        skip();
    write_trees(scratch_path(), TREES);
    loaded l = load_model("mlp", NULL); /* what ONNX Runtime takes once is there from now on */
    onnx_settings settings = l.model->settings;
    uint64_t before = onnx_heap_used();
    plain alone = plain_open(l.model->library, scratch_path(), &settings);
    uint64_t taken = onnx_heap_used() - before;
    plain_close(&alone);
    unload_model(&l);
    assert_ok(load_into(&l, scratch_path(), NULL));
    assert_ok(weir_client_info(l.client, &stats));
    assert_true(taken > ROOM);
    assert_in_range(stats.outside, taken * 8 / 10, taken * 12 / 10);
    unload_model(&l);
    assert_ok(weir_client_set_limits(l.client, 0, ROOM));
    assert_ok(load_into(&l, scratch_path(), NULL));
    unload_model(&l);
    assert_status(load_into(&l, scratch_path(), (const char *const[]){"outside=counted", NULL}),
                  WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(live(&l), 0);
    scratch_clear();
    close_client(&l);
}

/* Pieces of every size, of which the largest lie by themselves. */
static void the_heap_is_all_of_it(void **state)
{
    (void)state;
    static const size_t sizes[] = {1000, 100000, 64u << 20};
    enum { PIECES = 16 };
    if (SANITIZED)
        skip();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *pieces[PIECES];
        uint64_t before = onnx_heap_used();
        for (int k = 0; k < PIECES; k++)
            assert_non_null(pieces[k] = malloc(sizes[i]));
        assert_in_range(onnx_heap_used() - before, PIECES / 2 * sizes[i],
                        PIECES * (sizes[i] + 8192)); /* small ones may come of what was kept */
        for (int k = 0; k < PIECES; k++)
            free(pieces[k]);
        assert_in_range(onnx_heap_used(), before - 65536, before + 65536);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lies_outside_is_told_or_counted),
        cmocka_unit_test(nothing_is_noted_of_each_node),
        cmocka_unit_test(trees_are_told_or_counted),
        cmocka_unit_test(the_heap_is_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
