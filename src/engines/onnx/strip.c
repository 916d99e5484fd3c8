/* See strip.h. */
#include "strip.h"

#include <inttypes.h>
#include <stdio.h>
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

weir_status onnx_strip(const onnx_file *file, const onnx_graph *graph, onnx_buffer *out)
{
    onnx_buffer body = {0};
    const uint8_t *from = graph->data;
    for (size_t i = 0; i < graph->weight_count; i++) {
        const onnx_tensor *tensor = &graph->weights[i];
        if (!rewritten(tensor))
            continue;
        onnx_put_bytes(&body, from, (size_t)(tensor->begin - from));
        put_tensor(file, tensor, &body);
        from = tensor->end;
    }
    onnx_put_bytes(&body, from, (size_t)(graph->data + graph->size - from));

    const uint8_t *end = file->data + file->size;
    onnx_put_bytes(out, file->data, (size_t)(graph->begin - file->data));
    onnx_put_data(out, MODEL_GRAPH, body.data, body.size);
    onnx_put_bytes(out, graph->end, (size_t)(end - graph->end));
    bool failed = body.failed || out->failed;
    onnx_buffer_free(&body);
    if (failed) {
        onnx_buffer_free(out);
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for the model without its weights", file->name);
    }
    return WEIR_OK;
}
