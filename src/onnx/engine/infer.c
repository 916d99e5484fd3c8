/* One run: inputs checked and handed over in place, outputs left where ONNX Runtime wrote them, in the client's
 * memory. */
#include "base/probes.h"
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/base.h>
#include <weir/cores.h>
#include <weir/engine.h>

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* Inputs of a run, as ONNX Runtime takes them. */
typedef struct bound {
    const char **names;
    ort_value **values;
    size_t count;
} bound;

const weir_tensor *onnx_input_at(const weir_inference *inference, size_t index)
{
    size_t stride = inference->inputs[0].struct_size; /* as the caller's header had it */
    return (const weir_tensor *)(const void *)((const char *)inference->inputs + index * stride);
}

const weir_tensor *onnx_input_named(const weir_inference *inference, const char *name)
{
    for (size_t i = 0; i < inference->input_count; i++)
        if (strcmp(onnx_input_at(inference, i)->name, name) == 0)
            return onnx_input_at(inference, i);
    return NULL;
}

/* A caller whose header is older has no such member. */
static bool onnx_infer_is_on_device(const weir_tensor *tensor)
{
    return tensor->struct_size > offsetof(weir_tensor, on_device) && tensor->on_device;
}

static weir_status known_names(const weir_engine_model *model, const char *name)
{
    char list[512] = "";
    size_t at = 0;
    for (size_t i = 0; i < model->inputs.count && at + 2 < sizeof list; i++) {
        int n = snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", model->inputs.names[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    return weir_fail(WEIR_ERR_INVALID, "%s has no input \"%s\"; its inputs are: %s", model->name, name, list);
}

static bool extents_fit(const weir_port *port, const weir_tensor *tensor)
{
    for (uint32_t i = 0; i < port->rank; i++)
        if (port->shape[i] >= 0 && port->shape[i] != tensor->shape[i])
            return false;
    return true;
}

static weir_status bad_shape(const weir_engine_model *model, size_t index, const weir_tensor *tensor)
{
    const weir_port *port = &model->inputs.list[index];
    char expected[256] = "[...]", given[256];
    if (!model->inputs.any_rank[index])
        onnx_shape_text(port->rank, port->shape, expected, sizeof expected);
    return weir_fail(WEIR_ERR_INVALID, "%s: input \"%s\": expected %s %s, given %s %s", model->name, port->name,
                     weir_name_of(WEIR_NAMES_TYPE, port->type), expected, weir_name_of(WEIR_NAMES_TYPE, tensor->type),
                     onnx_shape_text(tensor->rank, tensor->shape, given, sizeof given));
}

static weir_status bad_bytes(const weir_engine_model *model, const weir_port *port, const weir_tensor *tensor,
                             size_t bytes)
{
    char given[256];
    return weir_fail(WEIR_ERR_INVALID, "%s: input \"%s\": %s %s takes %zu bytes, given %zu%s", model->name, port->name,
                     weir_name_of(WEIR_NAMES_TYPE, port->type),
                     onnx_shape_text(tensor->rank, tensor->shape, given, sizeof given), bytes, tensor->bytes,
                     tensor->data ? "" : " at a NULL pointer");
}

static weir_status check_input(const weir_engine_model *model, size_t index, const weir_tensor *tensor)
{
    const weir_port *port = &model->inputs.list[index];
    const char *name = model->name;
    char given[256];
    size_t bytes;
    bool any = model->inputs.any_rank[index];
    if (onnx_infer_is_on_device(tensor) && !model->device.cuda)
        return weir_fail(WEIR_ERR_INVALID, "%s: input \"%s\": it lies on a device, and the model on %s", name,
                         port->name, model->device.name);
    if (tensor->rank > WEIR_MAX_RANK)
        return weir_fail(WEIR_ERR_INVALID, "%s: input \"%s\": rank %u is more than %d", name, port->name, tensor->rank,
                         WEIR_MAX_RANK);
    if (tensor->type != port->type || (!any && (tensor->rank != port->rank || !extents_fit(port, tensor))))
        return bad_shape(model, index, tensor);
    if (weir_tensor_bytes(tensor->type, tensor->rank, tensor->shape, &bytes) != WEIR_OK)
        return weir_fail(WEIR_ERR_INVALID, "%s: input \"%s\": the shape %s is none", name, port->name,
                         onnx_shape_text(tensor->rank, tensor->shape, given, sizeof given));
    if (bytes != tensor->bytes || (bytes && !tensor->data))
        return bad_bytes(model, port, tensor, bytes);
    return WEIR_OK;
}

static weir_status bind_input(weir_engine_model *model, const weir_tensor *tensor, bound *inputs)
{
    static uint64_t nothing; /* what an empty tensor points to: ONNX Runtime wants an address */
    if (!tensor->name)
        return weir_fail(WEIR_ERR_INVALID, "%s: an input without a name", model->name);
    size_t index = 0;
    while (index < model->inputs.count && strcmp(model->inputs.names[index], tensor->name) != 0)
        index++;
    if (index == model->inputs.count)
        return known_names(model, tensor->name);
    for (size_t i = 0; i < inputs->count; i++)
        if (inputs->names[i] == model->inputs.names[index])
            return weir_fail(WEIR_ERR_INVALID, "%s: input \"%s\" is given twice", model->name, tensor->name);
    weir_status status = check_input(model, index, tensor);
    if (status != WEIR_OK)
        return status;
    onnx_attempt a;
    const ort_memory_info *where = onnx_infer_is_on_device(tensor) ? model->device.memory : model->library->host;
    if (FAILED(model, &a,
               model->library->api->CreateTensorWithDataAsOrtValue(
                   where, tensor->bytes ? tensor->data : &nothing, tensor->bytes, tensor->shape, tensor->rank,
                   onnx_type_from_weir(tensor->type), &inputs->values[inputs->count])))
        return weir_fail(WEIR_ERR_ENGINE, "%s: input \"%s\": ONNX Runtime %s: %s", model->name, tensor->name,
                         model->library->version, a.text);
    inputs->names[inputs->count++] = model->inputs.names[index];
    return WEIR_OK;
}

static weir_status none_missing(const weir_engine_model *model, const bound *inputs)
{
    for (size_t i = 0; i < model->inputs.count; i++) {
        const weir_port *port = &model->inputs.list[i];
        bool given = port->optional;
        for (size_t k = 0; !given && k < inputs->count; k++)
            given = inputs->names[k] == model->inputs.names[i];
        if (!given) {
            char shape[256];
            return weir_fail(WEIR_ERR_INVALID, "%s: input \"%s\" is missing (%s %s)", model->name, port->name,
                             weir_name_of(WEIR_NAMES_TYPE, port->type),
                             onnx_shape_text(port->rank, port->shape, shape, sizeof shape));
        }
    }
    return WEIR_OK;
}

static weir_status bind_inputs(weir_engine_model *model, const weir_inference *inference, bound *inputs)
{
    inputs->names = calloc(inference->input_count + 1, sizeof *inputs->names);
    inputs->values = calloc(inference->input_count + 1, sizeof *inputs->values);
    if (!inputs->names || !inputs->values)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for a run", model->name);
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < inference->input_count; i++)
        status = bind_input(model, onnx_input_at(inference, i), inputs);
    return status == WEIR_OK ? none_missing(model, inputs) : status;
}

static void onnx_infer_unbind(weir_engine_model *model, bound *inputs)
{
    for (size_t i = 0; i < inputs->count; i++)
        model->library->api->ReleaseValue(inputs->values[i]);
    free(inputs->names);
    free(inputs->values);
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

weir_status onnx_describe_output(weir_engine_model *model, size_t index, ort_value *value, weir_tensor *tensor)
{
    const ort_api *api = model->library->api;
    onnx_attempt a = {0};
    ort_shape_info *info = NULL;
    int type = 0, kind = 0;
    size_t rank = 0;
    *tensor = WEIR_INIT(weir_tensor);
    tensor->name = model->outputs.names[index];
    bool good = !FAILED(model, &a, api->GetValueType(value, &kind)) && kind == ORT_KIND_TENSOR &&
                !FAILED(model, &a, api->GetTensorTypeAndShape(value, &info)) &&
                !FAILED(model, &a, api->GetTensorElementType(info, &type)) &&
                !FAILED(model, &a, api->GetDimensionsCount(info, &rank)) && rank <= WEIR_MAX_RANK &&
                !FAILED(model, &a, api->GetDimensions(info, tensor->shape, rank));
    if (info)
        api->ReleaseTensorTypeAndShapeInfo(info);
    tensor->type = onnx_type_to_weir(type);
    tensor->rank = (uint32_t)rank;
    if (!good || tensor->type == WEIR_TYPE_NONE)
        return weir_fail(WEIR_ERR_ENGINE, "%s: output \"%s\" is no tensor that can be handed out (%s, rank %zu) %s",
                         model->name, tensor->name, onnx_type_name(type), rank, a.text);
    weir_status status = weir_tensor_bytes(tensor->type, tensor->rank, tensor->shape, &tensor->bytes);
    if (status == WEIR_OK && tensor->bytes && FAILED(model, &a, api->GetTensorMutableData(value, &tensor->data)))
        status = weir_fail(WEIR_ERR_ENGINE, "%s: output \"%s\": %s", model->name, tensor->name, a.text);
    return status;
}

static weir_status describe_outputs(weir_engine_model *model, onnx_results *r, weir_outputs *out)
{
    weir_tensor *tensors = calloc(r->count + 1, sizeof *tensors);
    if (!tensors)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its outputs", model->name);
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < r->count; i++)
        status = onnx_describe_output(model, i, r->values[i], &tensors[i]);
    for (size_t i = 0; i < r->count; i++)
        tensors[i].on_device = r->on_device;
    if (status != WEIR_OK) {
        free(tensors);
        return status;
    }
    out->tensors = tensors;
    out->count = r->count;
    out->engine_data = r;
    onnx_outputs_together(out, 1);
    return WEIR_OK;
}

void onnx_release_outputs(weir_engine_model *model, weir_outputs *outputs)
{
    onnx_results *results = outputs->engine_data;
    if (results && atomic_fetch_sub(&results->others, 1) == 0)
        onnx_results_free(model, results);
    free(outputs->tensors);
    outputs->tensors = NULL;
    outputs->engine_data = NULL;
    outputs->count = 0;
}

/* ---- runs, and their cancellation -------------------------------------------------------------------------------- */

void onnx_enlist(weir_engine_model *model, onnx_run *run)
{
    pthread_mutex_lock(&model->lock);
    run->next = model->runs;
    model->runs = run;
    pthread_mutex_unlock(&model->lock);
}

/* Answers whether a cancel has found it; none does any more. */
static bool onnx_infer_strike(weir_engine_model *model, const onnx_run *run)
{
    pthread_mutex_lock(&model->lock);
    onnx_run **at = &model->runs;
    while (*at && *at != run)
        at = &(*at)->next;
    if (*at)
        *at = run->next;
    bool cancelled = run->cancelled;
    pthread_mutex_unlock(&model->lock);
    return cancelled;
}

void onnx_strike(weir_engine_model *model, const onnx_run *run)
{
    (void)onnx_infer_strike(model, run);
}

/* Of a run together with others: the call is stopped with the last of them. */
static bool leave_call(const weir_engine_model *model, onnx_run *run)
{
    onnx_run *all = run->within;
    onnx_attempt a;
    if (!run->cancelled && --all->wanted == 0) {
        all->cancelled = true;
        if (all->options && FAILED(model, &a, model->library->api->RunOptionsSetTerminate(all->options)))
            weir_log(WEIR_LOG_WARNING, "%s: runs together could not be stopped: %s", model->name, a.text);
    }
    run->cancelled = true;
    return true;
}

weir_status onnx_cancel(weir_engine_model *model, uint64_t id)
{
    bool any = false;
    onnx_attempt a;
    pthread_mutex_lock(&model->lock);
    for (onnx_run *run = model->runs; run; run = run->next) {
        if (run->of_several || (id && run->id != id))
            continue;
        if (run->within)
            any = leave_call(model, run);
        else if (!run->options || !FAILED(model, &a, model->library->api->RunOptionsSetTerminate(run->options)))
            any = run->cancelled = true;
    }
    pthread_mutex_unlock(&model->lock);
    wi_window(WI_WINDOW_RUN_MARKED);
    if (any) {
        onnx_slots_wake(model);
        onnx_join_wake(model);
        weir_cores_wake(model->cores);
    }
    return any ? WEIR_OK : weir_fail(WEIR_ERR_NOT_FOUND, "%s: no run %" PRIu64 " is under way", model->name, id);
}

static weir_status was_cancelled(const weir_engine_model *model, const onnx_run *its)
{
    return weir_fail(WEIR_ERR_CANCELLED, "%s: run %" PRIu64 " was cancelled", model->name, its->id);
}

weir_status onnx_check_cancelled(weir_engine_model *model, const onnx_run *its)
{
    pthread_mutex_lock(&model->lock);
    bool cancelled = its->cancelled;
    pthread_mutex_unlock(&model->lock);
    return cancelled ? was_cancelled(model, its) : WEIR_OK;
}

weir_status onnx_strike_done(weir_engine_model *model, const onnx_run *its)
{
    return onnx_infer_strike(model, its) ? was_cancelled(model, its) : WEIR_OK;
}

/* From now on a cancel reaches ONNX Runtime; NULL: no more. */
static void onnx_infer_hand_over(weir_engine_model *model, onnx_run *its, ort_run_options *options)
{
    pthread_mutex_lock(&model->lock);
    its->options = options;
    pthread_mutex_unlock(&model->lock);
}

/* Binds the outputs to the device, where ONNX Runtime's own call for a run would copy them to the host. */
static bool run_to_device(weir_engine_model *model, ort_session *session, const ort_run_options *options,
                          const bound *inputs, onnx_results *r, onnx_attempt *a)
{
    const ort_api *api = model->library->api;
    ort_binding *binding = NULL;
    ort_value **values = NULL;
    size_t count = 0;
    bool good = !FAILED(model, a, api->CreateIoBinding(session, &binding));
    for (size_t i = 0; good && i < inputs->count; i++)
        good = !FAILED(model, a, api->BindInput(binding, inputs->names[i], inputs->values[i]));
    for (size_t i = 0; good && i < r->count; i++)
        good = !FAILED(model, a, api->BindOutputToDevice(binding, model->outputs.names[i], model->device.memory));
    good = good && !FAILED(model, a, api->RunWithBinding(session, options, binding)) &&
           !FAILED(model, a, api->GetBoundOutputValues(binding, model->library->plain, &values, &count));
    for (size_t i = 0; good && i < count; i++)
        r->values[i] = values[i];
    onnx_attempt ignored;
    if (values && FAILED(model, &ignored, api->AllocatorFree(model->library->plain, (void *)values)))
        weir_log(WEIR_LOG_WARNING, "onnxruntime: a list of outputs could not be freed: %s", ignored.text);
    if (binding)
        api->ReleaseIoBinding(binding);
    return good;
}

static bool run_to_host(weir_engine_model *model, ort_session *session, const ort_run_options *options,
                        const bound *inputs, onnx_results *r, onnx_attempt *a)
{
    return !FAILED(model, a,
                   model->library->api->Run(session, options, inputs->names, (const ort_value *const *)inputs->values,
                                            inputs->count, model->outputs.names, r->count, r->values));
}

static weir_status run_bound(weir_engine_model *model, const onnx_entered *entered, onnx_run *its, const bound *inputs,
                             onnx_results *r)
{
    const ort_api *api = model->library->api;
    onnx_attempt a = {0};
    ort_run_options *options = NULL;
    if (FAILED(model, &a, api->CreateRunOptions(&options)))
        return weir_fail(WEIR_ERR_ENGINE, "%s: %s", model->name, a.text);
    uint64_t before = onnx_session_stats(entered->slot).refused;
    onnx_infer_hand_over(model, its, options);
    weir_status status = onnx_check_cancelled(model, its);
    bool failed = status == WEIR_OK &&
                  ((model->replays && FAILED(model, &a, api->AddRunConfigEntry(options, "gpu_graph_id", "-1"))) ||
                   !(r->on_device ? run_to_device : run_to_host)(model, entered->session, options, inputs, r, &a));
    onnx_infer_hand_over(model, its, NULL);
    api->ReleaseRunOptions(options);
    return failed ? onnx_session_failed(model, entered->slot, before, a.code, a.text, "running") : status;
}

/* Runs the model by a captured graph, or else directly. A run that was cancelled at any time has no outputs, even if
 * the computation succeeded. After the return no cancel finds the run. */
static weir_status run_either_way(weir_engine_model *model, const onnx_entered *entered,
                                  const weir_inference *inference, onnx_run *its, const bound *inputs, onnx_results *r)
{
    bool served = false;
    weir_status status = WEIR_OK;
    if (model->replays)
        status = onnx_replay(model, inference, its, r->on_device, r->values, &served);
    if (status == WEIR_OK && !served)
        status = run_bound(model, entered, its, inputs, r);
    weir_status cancelled = onnx_strike_done(model, its);
    return cancelled == WEIR_OK ? status : cancelled;
}

double onnx_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void onnx_count_runs(weir_engine_model *model, weir_status status, uint64_t runs, double took)
{
    pthread_mutex_lock(&model->lock);
    model->metrics.runs += runs;
    model->metrics.failures += status != WEIR_OK && status != WEIR_ERR_CANCELLED ? runs : 0;
    model->metrics.cancelled += status == WEIR_ERR_CANCELLED ? runs : 0;
    model->metrics.busy_seconds += took;
    if (runs && status != WEIR_ERR_CANCELLED && status != WEIR_ERR_INVALID) /* those are the caller's doing */
        model->last = status;
    pthread_mutex_unlock(&model->lock);
}

/* What a run is made of, beside its inputs. */
typedef struct run_request {
    const weir_inference *inference;
    onnx_run_settings settings;
    onnx_slot *wanted; /* NULL: any */
    onnx_run *its;
} run_request;

static weir_status onnx_infer_run(weir_engine_model *model, const run_request *asked, const bound *inputs,
                                  weir_outputs *out)
{
    onnx_results *r = calloc(1, sizeof *r + model->outputs.count * sizeof *r->values);
    if (!r)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for a run", model->name);
    r->count = model->outputs.count;
    r->on_device = asked->settings.device_outputs && model->device.cuda;
    onnx_entered entered;
    weir_status status = onnx_slot_enter(model, asked->inference, asked->its, asked->wanted, &entered);
    bool taken = status == WEIR_OK;
    if (taken)
        status = onnx_cores_take(model, asked->its);
    double start = onnx_seconds();
    if (status == WEIR_OK) {
        status = run_either_way(model, &entered, asked->inference, asked->its, inputs, r);
        onnx_cores_give(model);
    }
    onnx_count_runs(model, status, !asked->its->of_several, onnx_seconds() - start);
    if (taken)
        onnx_slot_leave(model, entered);
    if (status == WEIR_OK)
        status = describe_outputs(model, r, out);
    if (status != WEIR_OK)
        onnx_results_free(model, r);
    return status;
}

/* ONNX Runtime works on the device that is current, which it does not look at when a run begins (1.31), and leaves its
 * own so when a session is made or released. */
static weir_status run_there(weir_engine_model *model, const run_request *asked, const bound *inputs, weir_outputs *out)
{
    weir_status status = weir_runtime_enter(model->runtime);
    if (status != WEIR_OK) {
        onnx_count_runs(model, status, !asked->its->of_several, 0);
        return status;
    }
    status = onnx_infer_run(model, asked, inputs, out);
    weir_runtime_leave(model->runtime);
    return status;
}

/* Settings and stream, and inputs as ONNX Runtime takes them, which go with unbind. */
static weir_status onnx_infer_prepare(weir_engine_model *model, const weir_inference *inference,
                                      onnx_run_settings *settings, bound *inputs)
{
    weir_status status = onnx_run_settings_read(inference->settings, inference->setting_count, settings);
    if (status != WEIR_OK)
        return status;
    if (inference->input_count &&
        (!inference->inputs || inference->inputs[0].struct_size < offsetof(weir_tensor, on_device)))
        return weir_fail(WEIR_ERR_INVALID, "%s: inputs without their size", model->name);
    status = weir_stream_synchronize(inference->stream);
    return status == WEIR_OK ? bind_inputs(model, inference, inputs) : status;
}

weir_status onnx_check_run(weir_engine_model *model, const weir_inference *inference, bool *to_host)
{
    bound inputs = {0};
    onnx_run_settings settings = {0};
    weir_status status = onnx_infer_prepare(model, inference, &settings, &inputs);
    *to_host = !settings.device_outputs || !model->device.cuda;
    for (size_t i = 0; status == WEIR_OK && i < inference->input_count; i++)
        *to_host &= !onnx_infer_is_on_device(onnx_input_at(inference, i));
    onnx_infer_unbind(model, &inputs);
    return status;
}

/* `wanted`: the slot; NULL: any. */
static weir_status infer_in(weir_engine_model *model, const weir_inference *inference, onnx_run *its, onnx_slot *wanted,
                            weir_outputs *out)
{
    bound inputs = {0};
    onnx_run own = {.id = inference->id};
    run_request asked = {.inference = inference, .wanted = wanted, .its = its ? its : &own};
    out->tensors = NULL;
    out->count = 0;
    out->engine_data = NULL;
    weir_status status = onnx_infer_prepare(model, inference, &asked.settings, &inputs);
    if (status == WEIR_OK) {
        if (!its)
            onnx_enlist(model, &own);
        status = run_there(model, &asked, &inputs, out);
        if (!its)
            onnx_strike(model, &own);
    }
    onnx_infer_unbind(model, &inputs);
    return status;
}

weir_status onnx_infer_alone(weir_engine_model *model, const weir_inference *inference, onnx_run *its,
                             weir_outputs *out)
{
    return infer_in(model, inference, its, NULL, out);
}

weir_status onnx_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    return model->join ? onnx_join_infer(model, inference, out) : infer_in(model, inference, NULL, NULL, out);
}

/* ---- warm-up ----------------------------------------------------------------------------------------------------- */

static weir_status warm_input(weir_engine_model *model, const weir_port *port, weir_tensor *tensor)
{
    *tensor = WEIR_INIT(weir_tensor);
    tensor->name = port->name;
    tensor->type = port->type;
    tensor->rank = port->rank;
    for (uint32_t i = 0; i < port->rank; i++)
        tensor->shape[i] = port->shape[i] < 0 ? 1 : port->shape[i];
    weir_status status = weir_tensor_bytes(tensor->type, tensor->rank, tensor->shape, &tensor->bytes);
    weir_block block = {0};
    weir_request request = {.struct_size = sizeof request,
                            .bytes = tensor->bytes,
                            .memory_class = WEIR_CLASS_SCRATCH,
                            .stream = WEIR_STREAM_HOST,
                            .tag = "warm-up",
                            .flags = WEIR_ALLOC_ZEROED,
                            .kind = WEIR_KIND_HOST};
    if (status == WEIR_OK)
        status = weir_alloc_with(model->client, &request, &block);
    tensor->data = block.pointer;
    return status;
}

/* A run on zeros in each slot, every open extent 1: it makes the kernels, the thread pool and the memory plan. Inputs
 * that the model does not take are no mistake then. */
weir_status onnx_warm_up(weir_engine_model *model)
{
    weir_tensor *inputs = calloc(model->inputs.count + 1, sizeof *inputs);
    if (!inputs)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for a run", model->name);
    size_t count = 0;
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < model->inputs.count; i++)
        if (!model->inputs.list[i].optional)
            status = warm_input(model, &model->inputs.list[i], &inputs[count++]);
    weir_inference inference = {.struct_size = sizeof inference, .inputs = inputs, .input_count = count};
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    for (size_t i = 0; status == WEIR_OK && i < model->slot_count; i++) {
        status = infer_in(model, &inference, NULL, &model->slots[i], &outputs);
        if (status == WEIR_OK)
            onnx_release_outputs(model, &outputs);
    }
    if (status == WEIR_ERR_INVALID)
        status = weir_fail(WEIR_ERR_ENGINE, "%s: it cannot be warmed up with zeros: %s", model->name, weir_detail());
    for (size_t i = 0; i < count; i++)
        if (weir_free(model->client, inputs[i].data, WEIR_STREAM_HOST) != WEIR_OK)
            weir_log(WEIR_LOG_WARNING, "onnx: a warm-up input could not be freed: %s", weir_detail());
    free(inputs);
    return status;
}
