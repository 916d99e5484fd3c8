/* The model's inputs and outputs, as ONNX Runtime sees them once the graph is resolved. */
#include "model.h"
#include <weir/engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *onnx_shape_text(uint32_t rank, const int64_t *shape, char *text, size_t capacity)
{
    size_t at = (size_t)snprintf(text, capacity, "[");
    for (uint32_t i = 0; i < rank && at + 24 < capacity; i++)
        at += (size_t)(shape[i] < 0 ? snprintf(text + at, capacity - at, "%s?", i ? ", " : "")
                                    : snprintf(text + at, capacity - at, "%s%lld", i ? ", " : "", (long long)shape[i]));
    snprintf(text + at, capacity - at, "]");
    return text;
}

/* One of the three lists that a session has. */
typedef struct source {
    const char *role;
    ort_status *(*count)(const ort_session *, size_t *);
    ort_status *(*name)(const ort_session *, size_t, ort_allocator *, char **);
    ort_status *(*type)(const ort_session *, size_t, ort_type_info **);
    bool optional;
} source;

static weir_status engine_failed(const weir_engine_model *model, const onnx_attempt *a)
{
    return weir_fail(WEIR_ERR_ENGINE, "%s: reading its inputs and outputs: ONNX Runtime %s: %s", model->name,
                     model->library->version, a->text);
}

static weir_status onnx_ports_read_shape(weir_engine_model *model, const ort_shape_info *info, const char *role,
                                         weir_port *port)
{
    const ort_api *api = model->library->api;
    onnx_attempt a;
    int type = 0;
    size_t rank = 0;
    if (FAILED(model, &a, api->GetTensorElementType(info, &type)) ||
        FAILED(model, &a, api->GetDimensionsCount(info, &rank)))
        return engine_failed(model, &a);
    port->type = onnx_type_to_weir(type);
    if (port->type == WEIR_TYPE_NONE)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: %s \"%s\" is a tensor of %s; only numbers of 8 to 64 bits and bool go in and out",
                         model->name, role, port->name, onnx_type_name(type));
    if (rank > WEIR_MAX_RANK)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: %s \"%s\" has %zu dimensions, more than %d", model->name, role,
                         port->name, rank, WEIR_MAX_RANK);
    if (FAILED(model, &a, api->GetDimensions(info, port->shape, rank)))
        return engine_failed(model, &a);
    port->rank = (uint32_t)rank;
    for (size_t i = 0; i < rank; i++)
        if (port->shape[i] < 0)
            port->shape[i] = -1;
    return WEIR_OK;
}

static weir_status onnx_ports_read_type(weir_engine_model *model, const source *from, size_t index, weir_port *port)
{
    const ort_api *api = model->library->api;
    onnx_attempt a;
    ort_type_info *info = NULL;
    int kind = 0;
    const ort_shape_info *shape = NULL;
    if (FAILED(model, &a, from->type(model->slots[0].session, index, &info)))
        return engine_failed(model, &a);
    weir_status status;
    if (FAILED(model, &a, api->GetOnnxTypeFromTypeInfo(info, &kind)) ||
        (kind == ORT_KIND_TENSOR && FAILED(model, &a, api->CastTypeInfoToTensorInfo(info, &shape))))
        status = engine_failed(model, &a);
    else if (!shape)
        status =
            weir_fail(WEIR_ERR_UNSUPPORTED, "%s: %s \"%s\" is no tensor; only tensors of numbers or bool go in and out",
                      model->name, from->role, port->name);
    else
        status = onnx_ports_read_shape(model, shape, from->role, port);
    api->ReleaseTypeInfo(info);
    return status;
}

static weir_status read_port(weir_engine_model *model, const source *from, size_t index, weir_port *port)
{
    const onnx_library *library = model->library;
    onnx_attempt a;
    char *name = NULL;
    if (FAILED(model, &a, from->name(model->slots[0].session, index, library->plain, &name)))
        return engine_failed(model, &a);
    port->name = strdup(name);
    if (FAILED(model, &a, library->api->AllocatorFree(library->plain, name)))
        return engine_failed(model, &a);
    if (!port->name)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its ports", model->name);
    port->optional = from->optional;
    return onnx_ports_read_type(model, from, index, port);
}

static weir_status onnx_ports_read_list(weir_engine_model *model, const source *sources, size_t source_count,
                                        onnx_ports *ports)
{
    size_t counts[2] = {0}, total = 0;
    onnx_attempt a;
    for (size_t i = 0; i < source_count; total += counts[i++])
        if (FAILED(model, &a, sources[i].count(model->slots[0].session, &counts[i])))
            return engine_failed(model, &a);
    ports->list = calloc(total + 1, sizeof *ports->list);
    ports->names = calloc(total + 1, sizeof *ports->names);
    ports->any_rank = calloc(total + 1, sizeof *ports->any_rank);
    if (!ports->list || !ports->names || !ports->any_rank)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its ports", model->name);
    for (size_t i = 0; i < source_count; i++)
        for (size_t k = 0; k < counts[i]; k++) {
            weir_status status = read_port(model, &sources[i], k, &ports->list[ports->count++]);
            if (status != WEIR_OK)
                return status;
            ports->names[ports->count - 1] = ports->list[ports->count - 1].name;
        }
    return WEIR_OK;
}

/* ONNX Runtime shows a value without a shape as a scalar; the file tells them apart. */
static void mark_any_rank(onnx_ports *ports, const onnx_value *values, size_t count)
{
    for (size_t i = 0; i < ports->count; i++)
        for (size_t k = 0; k < count; k++)
            if (!values[k].shaped && onnx_text_is(values[k].name, ports->list[i].name))
                ports->any_rank[i] = true;
}

weir_status onnx_ports_read(weir_engine_model *model, const onnx_graph *graph)
{
    const ort_api *api = model->library->api;
    const source inputs[] = {
        {"input", api->SessionGetInputCount, api->SessionGetInputName, api->SessionGetInputTypeInfo, false},
        {"input", api->SessionGetOverridableInitializerCount, api->SessionGetOverridableInitializerName,
         api->SessionGetOverridableInitializerTypeInfo, true}};
    const source outputs[] = {
        {"output", api->SessionGetOutputCount, api->SessionGetOutputName, api->SessionGetOutputTypeInfo, false}};
    weir_status status = onnx_ports_read_list(model, inputs, 2, &model->inputs);
    if (status == WEIR_OK)
        status = onnx_ports_read_list(model, outputs, 1, &model->outputs);
    if (status == WEIR_OK)
        mark_any_rank(&model->inputs, graph->inputs, graph->input_count);
    return status;
}

void onnx_ports_free(onnx_ports *ports)
{
    for (size_t i = 0; ports->list && i < ports->count; i++)
        free((char *)(uintptr_t)ports->list[i].name);
    free(ports->list);
    free(ports->names);
    free(ports->any_rank);
    memset(ports, 0, sizeof *ports);
}
