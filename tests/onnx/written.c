/* See written.h. */
#include "written.h"

#include "common.h"
#include "info.h"

#include "test_places.h"

#include <unistd.h>

#include "onnx/file/main_graph.h"
#include "onnx/file/wire.h"

/* Fields of ModelProto, GraphProto, NodeProto, AttributeProto, ValueInfoProto, TypeProto and TensorProto. */
enum { MODEL_IR = 1, MODEL_GRAPH = 7, MODEL_OPERATORS = 8, OPERATORS_DOMAIN = 1, OPERATORS_VERSION = 2 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_WEIGHT = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_KIND = 4, NODE_ATTRIBUTE = 5, NODE_DOMAIN = 7 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_NUMBER = 3, ATTRIBUTE_TEXT = 4, ATTRIBUTE_NUMBERS = 8, ATTRIBUTE_TYPE = 20 };
enum { A_NUMBER = 2, A_TEXT = 3, NUMBERS = 7 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TENSOR_ELEMENTS = 1, TENSOR_SHAPE = 2, SHAPE_DIMENSION = 1 };
enum {
    DIMENSION_VALUE = 1,
    DIMENSION_NAME = 2,
    WEIGHT_DIMENSION = 1,
    WEIGHT_TYPE = 2,
    WEIGHT_NAME = 8,
    WEIGHT_RAW = 9
};
enum { IR = 9, OPERATORS = 19, WORDS = 64 };

static void put_text(onnx_buffer *to, uint32_t field, const char *text)
{
    onnx_put_data(to, field, text, strlen(text));
}

static void put(onnx_buffer *to, uint32_t field, onnx_buffer what)
{
    assert_false(what.failed);
    onnx_put_data(to, field, what.data, what.size);
    onnx_buffer_free(&what);
}

static int32_t type_of(const char *name)
{
    for (int type = 0; type < WEIR_TYPE_COUNT; type++)
        if (strcmp(weir_name_of(WEIR_NAMES_TYPE, type), name) == 0)
            return onnx_type_from_weir((weir_type)type);
    fail_msg("no type %s", name);
    return 0;
}

static bool is_number(const char *word)
{
    return *word >= '0' && *word <= '9';
}

static onnx_buffer value_of(char **words, size_t count)
{
    onnx_buffer shape = {0}, tensor = {0}, type = {0}, value = {0};
    put_text(&value, VALUE_NAME, words[1]);
    if (count < 3)
        return value;
    bool shaped = count < 4 || strcmp(words[3], "*") != 0;
    for (size_t i = 3; shaped && i < count; i++) {
        onnx_buffer dimension = {0};
        if (is_number(words[i]))
            onnx_put_varint(&dimension, DIMENSION_VALUE, strtoull(words[i], NULL, 10));
        else if (strcmp(words[i], "?") != 0)
            put_text(&dimension, DIMENSION_NAME, words[i]);
        put(&shape, SHAPE_DIMENSION, dimension);
    }
    onnx_put_varint(&tensor, TENSOR_ELEMENTS, (uint64_t)type_of(words[2]));
    if (shaped)
        put(&tensor, TENSOR_SHAPE, shape);
    put(&type, TYPE_TENSOR, tensor);
    put(&value, VALUE_TYPE, type);
    return value;
}

static onnx_buffer weight_of(char **words, size_t count)
{
    onnx_buffer weight = {0};
    size_t elements = 1, at = 3, width = type_bytes(onnx_type_to_weir(type_of(words[2])));
    for (; at < count && strcmp(words[at], "=") != 0; at++) {
        onnx_put_varint(&weight, WEIGHT_DIMENSION, strtoull(words[at], NULL, 10));
        elements *= strtoull(words[at], NULL, 10);
    }
    char *bytes = calloc(elements, width);
    assert_non_null(bytes);
    for (size_t i = 0; i < elements; i++) {
        int64_t number = at < count ? strtoll(words[at + 1 + i], NULL, 10) : (int64_t)(i * 7 % 23);
        float real = (float)number * 0.125f - 1;
        bool whole = strcmp(words[2], "f32") != 0;
        memcpy(bytes + i * width, whole ? (void *)&number : (void *)&real, width);
    }
    onnx_put_varint(&weight, WEIGHT_TYPE, (uint64_t)type_of(words[2]));
    put_text(&weight, WEIGHT_NAME, words[1]);
    onnx_put_data(&weight, WEIGHT_RAW, bytes, elements * width);
    free(bytes);
    return weight;
}

static onnx_buffer attribute_of(char *word)
{
    onnx_buffer attribute = {0};
    char *value = strchr(word, '=');
    assert_non_null(value);
    *value++ = 0;
    bool several = strchr(value, ','), number = is_number(value);
    put_text(&attribute, ATTRIBUTE_NAME, word);
    if (!number)
        put_text(&attribute, ATTRIBUTE_TEXT, value);
    for (char *at = value; number && *at; at += *at == ',')
        onnx_put_varint(&attribute, several ? ATTRIBUTE_NUMBERS : ATTRIBUTE_NUMBER, (uint64_t)strtoll(at, &at, 10));
    onnx_put_varint(&attribute, ATTRIBUTE_TYPE, several ? NUMBERS : number ? A_NUMBER : A_TEXT);
    return attribute;
}

static onnx_buffer node_of(char **words, size_t count)
{
    onnx_buffer node = {0};
    size_t at = 1;
    char *colon = strchr(words[0], ':');
    for (; at < count && strcmp(words[at], ">") != 0; at++)
        put_text(&node, NODE_INPUT, strcmp(words[at], "-") == 0 ? "" : words[at]);
    for (at++; at < count && strcmp(words[at], "|") != 0; at++)
        put_text(&node, NODE_OUTPUT, words[at]);
    put_text(&node, NODE_KIND, colon ? colon + 1 : words[0]);
    if (colon) {
        *colon = 0;
        put_text(&node, NODE_DOMAIN, words[0]);
    }
    for (at++; at < count; at++)
        put(&node, NODE_ATTRIBUTE, attribute_of(words[at]));
    return node;
}

static void put_statement(onnx_buffer *graph, char *statement)
{
    char *words[WORDS], *rest = NULL;
    size_t count = 0;
    for (char *word = strtok_r(statement, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
        assert_true(count < WORDS);
        words[count++] = word;
    }
    if (count == 0)
        return;
    if (strcmp(words[0], "in") == 0)
        put(graph, GRAPH_INPUT, value_of(words, count));
    else if (strcmp(words[0], "out") == 0)
        put(graph, GRAPH_OUTPUT, value_of(words, count));
    else if (strcmp(words[0], "weight") == 0)
        put(graph, GRAPH_WEIGHT, weight_of(words, count));
    else
        put(graph, GRAPH_NODE, node_of(words, count));
}

static void put_operators(onnx_buffer *model, const char *domain, uint64_t version)
{
    onnx_buffer operators = {0};
    put_text(&operators, OPERATORS_DOMAIN, domain);
    onnx_put_varint(&operators, OPERATORS_VERSION, version);
    put(model, MODEL_OPERATORS, operators);
}

static char path[512];

/* Under another name first, as a model that is loaded may have the one before mapped. */
static void save(const onnx_buffer *model)
{
    char other[sizeof path + 8];
    snprintf(path, sizeof path, "%s", built_path("tests/written-%d.onnx", (int)getpid()));
    snprintf(other, sizeof other, "%s.new", path);
    FILE *out = fopen(other, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(model->data, 1, model->size, out), model->size);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(rename(other, path), 0);
}

const char *written(const char *text)
{
    onnx_buffer graph = {0}, model = {0};
    char *copy = strdup(text), *rest = NULL;
    assert_non_null(copy);
    put_text(&graph, GRAPH_NAME, "written");
    for (char *statement = strtok_r(copy, ";", &rest); statement; statement = strtok_r(NULL, ";", &rest))
        put_statement(&graph, statement);
    onnx_put_varint(&model, MODEL_IR, IR);
    put_operators(&model, "", OPERATORS);
    put_operators(&model, "com.microsoft", 1);
    put(&model, MODEL_GRAPH, graph);
    assert_false(model.failed);
    save(&model);
    onnx_buffer_free(&model);
    free(copy);
    return path;
}

void written_clear(void)
{
    if (path[0])
        unlink(path);
    path[0] = 0;
}
