/* See strip.h. */
#include "strip.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "onnx_file/schema.h"

enum { INLINE_BELOW = 1024 };
/* Fields of TensorProto and StringStringEntryProto. */
enum { DIMS = 1, TYPE = 2, NAME = 8, RAW = 9, BESIDE = 13, LOCATION = 14, KEY = 1, VALUE = 2 };
enum { MODEL_GRAPH = 7, GRAPH_WEIGHT = 5, IN_OTHER_FILE = 1 };

bool onnx_moved(const onnx_tensor *tensor)
{
    bool ordinary = onnx_type_to_weir(tensor->type) != WEIR_TYPE_NONE || tensor->type == ONNX_INT4 ||
                    tensor->type == ONNX_UINT4; /* the others cannot be handed to ONNX Runtime as values */
    return ordinary && !tensor->stays && tensor->bytes >= INLINE_BELOW &&
           (tensor->place == ONNX_PLACE_BYTES || tensor->place == ONNX_PLACE_BESIDE);
}

static bool rewritten(const onnx_tensor *tensor)
{
    return onnx_moved(tensor) || tensor->beside;
}

static void put_entry(onnx_buffer *out, const char *key, const char *value)
{
    onnx_buffer entry = {0};
    onnx_put_data(&entry, KEY, key, strlen(key));
    onnx_put_data(&entry, VALUE, value, strlen(value));
    onnx_put_data(out, BESIDE, entry.data, entry.size);
    out->failed |= entry.failed;
    onnx_buffer_free(&entry);
}

static void put_place(const onnx_file *file, const onnx_tensor *tensor, onnx_buffer *out)
{
    char number[32];
    const uint8_t *start = tensor->side ? tensor->side->data : file->data;
    put_entry(out, "location", onnx_file_inside(file, tensor->side));
    snprintf(number, sizeof number, "%zu", (size_t)(tensor->data - start));
    put_entry(out, "offset", number);
    snprintf(number, sizeof number, "%" PRIu64, tensor->bytes);
    put_entry(out, "length", number);
    onnx_put_varint(out, LOCATION, IN_OTHER_FILE);
}

/* The tensor in few words, with its bytes or, if `away`, with the note of where they lie. */
static void put_body(const onnx_file *file, const onnx_tensor *tensor, bool away, onnx_buffer *body)
{
    for (uint32_t i = 0; i < tensor->rank; i++)
        onnx_put_varint(body, DIMS, (uint64_t)tensor->shape[i]);
    onnx_put_varint(body, TYPE, (uint64_t)tensor->type);
    onnx_put_data(body, NAME, tensor->name.text, tensor->name.size);
    if (away)
        put_place(file, tensor, body);
    else
        onnx_put_data(body, RAW, tensor->data, tensor->elements ? tensor->bytes : 0);
}

static void put_child(uint32_t field, onnx_buffer *body, onnx_buffer *out)
{
    onnx_put_data(out, field, body->data, body->size);
    out->failed |= body->failed;
    onnx_buffer_free(body);
}

static void put_tensor(const onnx_file *file, const onnx_tensor *tensor, onnx_buffer *out)
{
    onnx_buffer body = {0};
    put_body(file, tensor, onnx_moved(tensor), &body);
    put_child(GRAPH_WEIGHT, &body, out);
}

/* Whether tensors lie somewhere in messages of this kind. */
static bool holds_tensors(onnx_message kind)
{
    return kind == ONNX_GRAPH || kind == ONNX_NODE || kind == ONNX_ATTRIBUTE || kind == ONNX_TENSOR ||
           kind == ONNX_SPARSE || kind == ONNX_FUNCTION || kind == ONNX_TRAINING;
}

/* A part of a message of that kind. Where tensors of subgraphs, attributes and functions lie beside the model, they are
 * noted as seen from the folder, too; a model without such ones is copied as it is. */
static void put_part(onnx_file *file, onnx_message kind, const uint8_t *data, size_t size, onnx_buffer *out)
{
    onnx_tensor tensor;
    onnx_wire wire;
    if (kind == ONNX_TENSOR && onnx_tensor_read(file, data, size, &tensor) == WEIR_OK && tensor.beside) {
        bool whole = tensor.type == ONNX_INT32 || tensor.type == ONNX_INT64; /* they may decide a shape */
        put_body(file, &tensor, tensor.bytes >= INLINE_BELOW && !whole, out);
        return;
    }
    if (!file->nested || kind == ONNX_TENSOR) {
        onnx_put_bytes(out, data, size);
        return;
    }
    onnx_wire_open(&wire, data, size);
    for (onnx_field field; onnx_wire_next(&wire, &field) == 1;) {
        const onnx_schema_field *rule = field.number < ONNX_SCHEMA_FIELDS ? &onnx_schema[kind][field.number] : NULL;
        if (rule && rule->kind == ONNX_MESSAGE && holds_tensors(rule->message)) {
            onnx_buffer body = {0};
            put_part(file, rule->message, field.data, field.size, &body);
            put_child(field.number, &body, out);
        } else {
            onnx_put_bytes(out, field.begin, (size_t)(field.end - field.begin));
        }
    }
}

weir_status onnx_strip(onnx_file *file, const onnx_graph *graph, onnx_buffer *out)
{
    onnx_buffer body = {0};
    const uint8_t *from = graph->data;
    for (size_t i = 0; i < graph->weight_count; i++) {
        const onnx_tensor *tensor = &graph->weights[i];
        if (!rewritten(tensor))
            continue;
        put_part(file, ONNX_GRAPH, from, (size_t)(tensor->begin - from), &body);
        put_tensor(file, tensor, &body);
        from = tensor->end;
    }
    put_part(file, ONNX_GRAPH, from, (size_t)(graph->data + graph->size - from), &body);

    const uint8_t *end = file->data + file->size;
    put_part(file, ONNX_MODEL, file->data, (size_t)(graph->begin - file->data), out);
    onnx_put_data(out, MODEL_GRAPH, body.data, body.size);
    put_part(file, ONNX_MODEL, graph->end, (size_t)(end - graph->end), out);
    bool failed = body.failed || out->failed;
    onnx_buffer_free(&body);
    if (failed) {
        onnx_buffer_free(out);
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for the model without its weights", file->name);
    }
    return WEIR_OK;
}
