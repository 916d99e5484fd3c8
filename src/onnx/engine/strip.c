/* A model's file written without its large weights (model.h). */
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fields of TensorProto and StringStringEntryProto. */
enum { DIMS = 1, TYPE = 2, NAME = 8, RAW = 9, BESIDE = 13, LOCATION = 14, KEY = 1, VALUE = 2 };
enum { GRAPH_WEIGHT = 5 };
enum { IN_OTHER_FILE = 1 };

bool onnx_moved(const onnx_tensor *tensor)
{
    bool ordinary = onnx_type_to_weir(tensor->type) != WEIR_TYPE_NONE || tensor->type == ONNX_INT4 ||
                    tensor->type == ONNX_UINT4; /* the others cannot be handed to ONNX Runtime as values */
    return ordinary && !tensor->stays && tensor->bytes >= ONNX_INLINE_BELOW &&
           (tensor->location == ONNX_LOCATION_BYTES || tensor->location == ONNX_LOCATION_BESIDE);
}

static bool rewritten(const onnx_tensor *tensor)
{
    return onnx_moved(tensor) || tensor->beside;
}

static void strip_put_entry(onnx_buffer *out, const char *key, const char *value)
{
    onnx_buffer entry = {0};
    onnx_put_data(&entry, KEY, key, strlen(key));
    onnx_put_data(&entry, VALUE, value, strlen(value));
    onnx_put_data(out, BESIDE, entry.data, entry.size);
    out->failed |= entry.failed;
    onnx_buffer_free(&entry);
}

static void put_location(const onnx_file *file, const onnx_tensor *tensor, onnx_buffer *out)
{
    char number[32];
    const uint8_t *start = tensor->side ? tensor->side->data : file->data;
    strip_put_entry(out, "location", onnx_file_inside(file, tensor->side));
    snprintf(number, sizeof number, "%zu", (size_t)(tensor->data - start));
    strip_put_entry(out, "offset", number);
    snprintf(number, sizeof number, "%" PRIu64, tensor->bytes);
    strip_put_entry(out, "length", number);
    onnx_put_varint(out, LOCATION, IN_OTHER_FILE);
}

static void strip_put_tensor(const onnx_file *file, const onnx_tensor *tensor, onnx_buffer *out)
{
    for (uint32_t i = 0; i < tensor->rank; i++)
        onnx_put_varint(out, DIMS, (uint64_t)tensor->shape[i]);
    onnx_put_varint(out, TYPE, (uint64_t)tensor->type);
    onnx_put_data(out, NAME, tensor->name.text, tensor->name.size);
    if (onnx_moved(tensor))
        put_location(file, tensor, out);
    else
        onnx_put_data(out, RAW, tensor->data, tensor->elements ? tensor->bytes : 0);
}

/* Begin of the field that the stripped model has in another form: the tensor's own; of a lifted constant the node's, which goes. */
static const uint8_t *strip_start(const onnx_tensor *tensor)
{
    return tensor->lifted && tensor->maker ? tensor->maker : tensor->begin;
}

/* Tensors that are rewritten, in the file's order. */
typedef struct rewriting {
    const onnx_file *file;
    const uint8_t *main_graph;
    const onnx_tensor **list;
    size_t count, next;
} rewriting;

static int strip_by_start(const void *a, const void *b)
{
    const onnx_tensor *x = *(const onnx_tensor *const *)a, *y = *(const onnx_tensor *const *)b;
    const uint8_t *at = strip_start(x), *other = strip_start(y);
    return (at > other) - (at < other);
}

static void strip_gather(rewriting *r, const onnx_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (rewritten(&tensors[i]))
            r->list[r->count++] = &tensors[i];
}

/* Puts the lifted tensors behind the main graph's initializers. */
static void strip_put_lifted(const rewriting *r, onnx_buffer *out)
{
    for (size_t i = 0; i < r->count; i++) {
        onnx_buffer body = {0};
        if (!r->list[i]->lifted)
            continue;
        strip_put_tensor(r->file, r->list[i], &body);
        onnx_put_data(out, GRAPH_WEIGHT, body.data, body.size);
        out->failed |= body.failed;
        onnx_buffer_free(&body);
    }
}

/* Copies the message, with the rewritten tensors inside, at any depth. A message around a rewritten tensor gets a new
 * length. A lifted tensor is left out where it was. */
static void rewrite(rewriting *r, const uint8_t *data, size_t size,
                    onnx_buffer *out) // NOLINT(misc-no-recursion): as deep as onnx_check allows
{
    const uint8_t *from = data;
    EACH_FIELD_WHILE (r->next < r->count, field, data, size) {
        const onnx_tensor *tensor = r->list[r->next];
        if (strip_start(tensor) >= field.end)
            continue;
        onnx_buffer body = {0};
        onnx_put_bytes(out, from, (size_t)(field.begin - from));
        from = field.end;
        if (strip_start(tensor) == field.begin && tensor->lifted) {
            while (r->next < r->count && strip_start(r->list[r->next]) < field.end)
                r->next++;
            continue;
        }
        if (strip_start(tensor) == field.begin) {
            strip_put_tensor(r->file, tensor, &body);
            r->next++;
        } else {
            rewrite(r, field.data, field.size, &body);
        }
        onnx_put_data(out, field.number, body.data, body.size);
        out->failed |= body.failed;
        onnx_buffer_free(&body);
    }
    onnx_put_bytes(out, from, (size_t)(data + size - from));
    if (data == r->main_graph)
        strip_put_lifted(r, out);
}

bool onnx_strips(const onnx_graph *graph)
{
    bool any = false;
    for (size_t i = 0; i < graph->weight_count; i++)
        any |= rewritten(&graph->weights[i]);
    for (size_t i = 0; i < graph->inner_count; i++)
        any |= rewritten(&graph->inner[i]);
    return any;
}

weir_status onnx_strip(const onnx_file *file, const onnx_graph *graph, onnx_buffer *out)
{
    rewriting r = {.file = file, .main_graph = graph->data};
    r.list = calloc(graph->weight_count + graph->inner_count + 1, sizeof *r.list);
    out->failed |= !r.list;
    if (r.list) {
        strip_gather(&r, graph->weights, graph->weight_count);
        strip_gather(&r, graph->inner, graph->inner_count);
        qsort(r.list, r.count, sizeof(const onnx_tensor *), strip_by_start);
        rewrite(&r, file->data, file->size, out);
    }
    free(r.list);
    if (out->failed) {
        onnx_buffer_free(out);
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for the model without its weights", file->name);
    }
    return WEIR_OK;
}
