/* See strip.h. */
#include "strip.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return onnx_moved(tensor) || tensor->place == ONNX_PLACE_BESIDE;
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
    put_entry(out, "location", tensor->side ? onnx_file_inside(file, tensor->side) : file->name);
    snprintf(number, sizeof number, "%zu", (size_t)(tensor->data - start));
    put_entry(out, "offset", number);
    snprintf(number, sizeof number, "%" PRIu64, tensor->bytes);
    put_entry(out, "length", number);
    onnx_put_varint(out, LOCATION, IN_OTHER_FILE);
}

static void put_tensor(const onnx_file *file, const onnx_tensor *tensor, onnx_buffer *out)
{
    onnx_buffer body = {0};
    for (uint32_t i = 0; i < tensor->rank; i++)
        onnx_put_varint(&body, DIMS, (uint64_t)tensor->shape[i]);
    onnx_put_varint(&body, TYPE, (uint64_t)tensor->type);
    onnx_put_data(&body, NAME, tensor->name.text, tensor->name.size);
    if (onnx_moved(tensor))
        put_place(file, tensor, &body);
    else
        onnx_put_data(&body, RAW, tensor->data, tensor->bytes);
    onnx_put_data(out, GRAPH_WEIGHT, body.data, body.size);
    out->failed |= body.failed;
    onnx_buffer_free(&body);
}

bool onnx_strips(const onnx_graph *graph)
{
    bool any = false;
    for (size_t i = 0; i < graph->weight_count; i++)
        any |= rewritten(&graph->weights[i]);
    return any;
}

/* What takes the tensors' places, one behind the other, and how long each is. Answers what the graph is then. */
static size_t put_tensors(const onnx_file *file, const onnx_graph *graph, onnx_buffer *out, size_t *lengths)
{
    size_t size = graph->size;
    for (size_t i = 0; i < graph->weight_count; i++) {
        const onnx_tensor *tensor = &graph->weights[i];
        size_t before = out->size;
        if (!rewritten(tensor))
            continue;
        put_tensor(file, tensor, out);
        lengths[i] = out->size - before;
        size += lengths[i];
        size -= (size_t)(tensor->end - tensor->begin);
    }
    return size;
}

/* Each byte is copied once, to where it stays. */
static void put_graph(const onnx_graph *graph, const onnx_buffer *tensors, const size_t *lengths, onnx_buffer *out)
{
    const uint8_t *from = graph->data, *note = tensors->data;
    for (size_t i = 0; i < graph->weight_count; i++) {
        const onnx_tensor *tensor = &graph->weights[i];
        if (!rewritten(tensor))
            continue;
        onnx_put_bytes(out, from, (size_t)(tensor->begin - from));
        onnx_put_bytes(out, note, lengths[i]);
        note += lengths[i];
        from = tensor->end;
    }
    onnx_put_bytes(out, from, (size_t)(graph->data + graph->size - from));
}

weir_status onnx_strip(const onnx_file *file, const onnx_graph *graph, onnx_buffer *out)
{
    enum { HEAD = 16 }; /* of the graph */
    onnx_buffer tensors = {0};
    size_t *lengths = calloc(graph->weight_count + 1, sizeof *lengths);
    size_t size = lengths ? put_tensors(file, graph, &tensors, lengths) : 0;
    out->failed |= !lengths || tensors.failed;
    if (onnx_buffer_reserve(out, file->size - graph->size + size + HEAD)) {
        onnx_put_bytes(out, file->data, (size_t)(graph->begin - file->data));
        onnx_put_head(out, MODEL_GRAPH, size);
        put_graph(graph, &tensors, lengths, out);
        onnx_put_bytes(out, graph->end, (size_t)(file->data + file->size - graph->end));
    }
    free(lengths);
    onnx_buffer_free(&tensors);
    if (out->failed) {
        onnx_buffer_free(out);
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for the model without its weights", file->name);
    }
    return WEIR_OK;
}
