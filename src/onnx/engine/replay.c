/* Runs captured into CUDA graphs, and launched again for the same shapes (model.h).
 *
 * A captured graph has addresses in it. So inputs are copied to, and outputs from, blocks that stay, and what ONNX
 * Runtime takes in between comes of a weir_capture_pool, which keeps it until it is closed. ONNX Runtime keeps a graph
 * with the thread that captured it: all is done on one thread of the model's. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/stream.h>
#include <weir/engine.h>
#include <weir/onnxruntime.h>
#include <weir/base.h>

/* An input or output of a graph. */
typedef struct part {
    weir_tensor tensor; /* its data is a block on the device */
    ort_value *value;   /* over that */
} part;

typedef struct replay {
    struct replay *next;
    int number; /* ONNX Runtime's name for the graph */
    bool captured;
    weir_capture_pool *memory;
    ort_binding *binding;
    part *inputs, *outputs; /* for each of the model's ports; an input that is not given has no value */
} replay;

/* What a caller hands to the thread. */
typedef struct job {
    const weir_inference *inference;
    const onnx_run *its;
    bool to_device;
    ort_value **outputs;
    bool served;
    weir_status status;
    char detail[1024];
} job;

struct onnx_replays {
    pthread_t thread;
    pthread_mutex_t lock; /* guards the six below */
    pthread_cond_t changed;
    job *job;
    bool stop;
    bool capturing;
    unsigned releasing; /* threads that release results; a capture begins when there are none */
    onnx_results *late; /* that were to be released during the capture */
    replay *list;       /* the thread's own, as is what follows */
    int count, last;
};

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static weir_status make_part(weir_engine_model *model, part *p)
{
    weir_block block;
    weir_request request = {.struct_size = sizeof request,
                            .bytes = p->tensor.bytes ? p->tensor.bytes : 1,
                            .stream = model->slots[0].stream,
                            .memory_class = WEIR_CLASS_ACTIVATIONS,
                            .tag = p->tensor.name,
                            .flags = WEIR_ALLOC_STABLE};
    weir_status status = weir_alloc_with(model->client, &request, &block);
    onnx_attempt a;
    if (status != WEIR_OK)
        return status;
    p->tensor.data = block.pointer;
    p->tensor.on_device = true;
    if (FAILED(model, &a,
               model->library->api->CreateTensorWithDataAsOrtValue(model->device.memory, p->tensor.data,
                                                                   p->tensor.bytes, p->tensor.shape, p->tensor.rank,
                                                                   onnx_type_from_weir(p->tensor.type), &p->value)))
        return weir_fail(WEIR_ERR_ENGINE, "%s: \"%s\": %s", model->name, p->tensor.name, a.text);
    return WEIR_OK;
}

static void free_parts(weir_engine_model *model, part *parts, size_t count)
{
    for (size_t i = 0; parts && i < count; i++) {
        if (parts[i].value)
            model->library->api->ReleaseValue(parts[i].value);
        if (weir_free(model->client, parts[i].tensor.data, model->slots[0].stream) != WEIR_OK)
            weir_log(WEIR_LOG_WARNING, "onnx: a block of a graph stays: %s", weir_detail());
    }
    free(parts);
}

static void onnx_replay_unbind(weir_engine_model *model, replay *r)
{
    if (r->binding)
        model->library->api->ReleaseIoBinding(r->binding);
    r->binding = NULL;
}

static void free_replay(weir_engine_model *model, replay *r)
{
    onnx_replay_unbind(model, r);
    free_parts(model, r->inputs, model->inputs.count);
    free_parts(model, r->outputs, model->outputs.count);
    if (weir_capture_pool_destroy(r->memory, model->slots[0].stream) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: the memory of a graph stays: %s", weir_detail());
    free(r);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

static bool onnx_replay_fits(const weir_engine_model *model, const replay *r, const weir_inference *inference)
{
    for (size_t i = 0; i < model->inputs.count; i++) {
        const weir_tensor *tensor = onnx_input_named(inference, model->inputs.names[i]), *mine = &r->inputs[i].tensor;
        if (!tensor != !r->inputs[i].value)
            return false;
        if (tensor && (tensor->rank != mine->rank ||
                       memcmp(tensor->shape, mine->shape, tensor->rank * sizeof *tensor->shape) != 0))
            return false;
    }
    return true;
}

static weir_status make_inputs(weir_engine_model *model, replay *r, const weir_inference *inference)
{
    for (size_t i = 0; i < model->inputs.count; i++) {
        const weir_tensor *tensor = onnx_input_named(inference, model->inputs.names[i]);
        if (!tensor)
            continue;
        part *p = &r->inputs[i];
        p->tensor = (weir_tensor){.struct_size = sizeof p->tensor,
                                  .name = model->inputs.names[i],
                                  .type = tensor->type,
                                  .rank = tensor->rank,
                                  .bytes = tensor->bytes};
        memcpy(p->tensor.shape, tensor->shape, tensor->rank * sizeof *tensor->shape);
        weir_status status = make_part(model, p);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

static weir_status onnx_replay_copy_in(weir_engine_model *model, const replay *r, const weir_inference *inference)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < model->inputs.count; i++) {
        const weir_tensor *tensor = onnx_input_named(inference, model->inputs.names[i]);
        if (tensor && tensor->bytes)
            status = weir_copy(model->runtime, r->inputs[i].tensor.data, tensor->data, tensor->bytes,
                               model->slots[0].stream);
    }
    return status;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void onnx_replay_release(weir_engine_model *model, onnx_results *results)
{
    for (size_t i = 0; i < results->count; i++)
        if (results->values[i])
            model->library->api->ReleaseValue(results->values[i]);
    free(results);
}

/* Whether they can be released now, which onnx_replays.releasing tells of until then. */
static bool may_release(onnx_replays *all, onnx_results *results)
{
    pthread_mutex_lock(&all->lock);
    bool may = !all->capturing;
    if (may) {
        all->releasing++;
    } else {
        results->next = all->late;
        all->late = results;
    }
    pthread_mutex_unlock(&all->lock);
    return may;
}

void onnx_results_free(weir_engine_model *model, onnx_results *results)
{
    onnx_replays *all = results && results->on_device ? model->replays : NULL;
    if (!results || (all && !may_release(all, results)))
        return;
    onnx_replay_release(model, results);
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    all->releasing--;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

void onnx_capture_begin(weir_engine_model *model)
{
    onnx_replays *all = model->replays;
    pthread_mutex_lock(&all->lock);
    while (all->releasing > 0)
        pthread_cond_wait(&all->changed, &all->lock);
    all->capturing = true;
    pthread_mutex_unlock(&all->lock);
}

void onnx_capture_end(weir_engine_model *model)
{
    onnx_replays *all = model->replays;
    pthread_mutex_lock(&all->lock);
    onnx_results *late = all->late;
    all->late = NULL;
    all->capturing = false;
    pthread_mutex_unlock(&all->lock);
    for (onnx_results *next; late; late = next) {
        next = late->next;
        onnx_results_free(model, late);
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* `number` -1: as it is, neither captured nor launched. */
static weir_status onnx_replay_run_graph(weir_engine_model *model, const replay *r, int number)
{
    const ort_api *api = model->library->api;
    onnx_attempt a = {0};
    char text[16];
    ort_run_options *options = NULL;
    uint64_t before = onnx_session_stats(&model->slots[0]).refused;
    snprintf(text, sizeof text, "%d", number);
    bool good = !FAILED(model, &a, api->CreateRunOptions(&options)) &&
                !FAILED(model, &a, api->AddRunConfigEntry(options, "gpu_graph_id", text)) &&
                !FAILED(model, &a, api->RunWithBinding(model->slots[0].session, options, r->binding));
    if (options)
        api->ReleaseRunOptions(options);
    return good ? WEIR_OK : onnx_session_failed(model, &model->slots[0], before, a.code, a.text, "running");
}

static weir_status bind(weir_engine_model *model, replay *r, bool outputs_known)
{
    const ort_api *api = model->library->api;
    onnx_attempt a = {0};
    onnx_replay_unbind(model, r);
    bool good = !FAILED(model, &a, api->CreateIoBinding(model->slots[0].session, &r->binding));
    for (size_t i = 0; good && i < model->inputs.count; i++)
        if (r->inputs[i].value)
            good = !FAILED(model, &a, api->BindInput(r->binding, model->inputs.names[i], r->inputs[i].value));
    for (size_t i = 0; good && i < model->outputs.count; i++)
        good =
            !FAILED(model, &a,
                    outputs_known ? api->BindOutput(r->binding, model->outputs.names[i], r->outputs[i].value)
                                  : api->BindOutputToDevice(r->binding, model->outputs.names[i], model->device.memory));
    return good ? WEIR_OK : onnx_session_failed(model, &model->slots[0], UINT64_MAX, a.code, a.text, "binding");
}

/* Outputs' shapes are what a run of the same inputs makes them. */
static weir_status learn_outputs(weir_engine_model *model, replay *r)
{
    const ort_api *api = model->library->api;
    ort_value **values = NULL;
    size_t count = 0;
    onnx_attempt a = {0};
    weir_status status = onnx_replay_run_graph(model, r, -1);
    if (status == WEIR_OK &&
        FAILED(model, &a, api->GetBoundOutputValues(r->binding, model->library->plain, &values, &count)))
        status = weir_fail(WEIR_ERR_ENGINE, "%s: %s", model->name, a.text);
    for (size_t i = 0; i < count; i++) {
        if (status == WEIR_OK)
            status = onnx_describe_output(model, i, values[i], &r->outputs[i].tensor);
        r->outputs[i].tensor.data = NULL;
        if (status == WEIR_OK)
            status = make_part(model, &r->outputs[i]);
        api->ReleaseValue(values[i]);
    }
    if (values && FAILED(model, &a, api->AllocatorFree(model->library->plain, (void *)values)))
        weir_log(WEIR_LOG_WARNING, "onnxruntime: a list of outputs could not be freed: %s", a.text);
    return status;
}

/* Captures a run. ONNX Runtime first runs the model directly, and then captures a run. Both runs take the graph's
 * memory, as for weir the stream is under capture from the beginning. */
static weir_status capture_run(weir_engine_model *model, replay *r)
{
    weir_stream stream = model->slots[0].stream;
    weir_status status = weir_capture_begin(stream, r->memory);
    if (status != WEIR_OK)
        return status;
    status = onnx_replay_run_graph(model, r, r->number);
    weir_status ended = weir_capture_end(stream, r->memory);
    r->captured = status == WEIR_OK && ended == WEIR_OK;
    return status == WEIR_OK ? ended : status;
}

static weir_status onnx_replay_capture(weir_engine_model *model, replay *r)
{
    weir_status status = weir_stream_synchronize(model->slots[0].stream);
    if (status != WEIR_OK)
        return status;
    onnx_capture_begin(model);
    status = capture_run(model, r);
    onnx_capture_end(model);
    return status;
}

static weir_status onnx_replay_prepare(weir_engine_model *model, replay *r, const weir_inference *inference)
{
    weir_status status = weir_capture_pool_create(model->client, &r->memory);
    if (status == WEIR_OK)
        status = make_inputs(model, r, inference);
    if (status == WEIR_OK)
        status = onnx_replay_copy_in(model, r, inference);
    if (status == WEIR_OK)
        status = bind(model, r, false);
    if (status == WEIR_OK)
        status = learn_outputs(model, r);
    return status == WEIR_OK ? bind(model, r, true) : status;
}

static weir_status make_replay(weir_engine_model *model, const weir_inference *inference, replay **out)
{
    onnx_replays *all = model->replays;
    replay *r = calloc(1, sizeof *r);
    part *inputs = calloc(model->inputs.count + 1, sizeof *inputs);
    part *outputs = calloc(model->outputs.count + 1, sizeof *outputs);
    if (!r || !inputs || !outputs) {
        free(r);
        free(inputs);
        free(outputs);
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for a graph", model->name);
    }
    *r = (replay){.number = ++all->last, .inputs = inputs, .outputs = outputs, .next = all->list};
    weir_status status = onnx_replay_prepare(model, r, inference);
    if (status != WEIR_OK) {
        free_replay(model, r);
        return status;
    }
    all->list = r;
    all->count++;
    *out = r;
    return WEIR_OK;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

static weir_status onnx_replay_copy_out(weir_engine_model *model, const replay *r, const job *j)
{
    const ort_api *api = model->library->api;
    ort_allocator *device = (ort_allocator *)onnx_session_stats(&model->slots[0]).allocators[WEIR_KIND_DEVICE];
    weir_status status = WEIR_OK;
    onnx_attempt a;
    for (size_t i = 0; status == WEIR_OK && i < model->outputs.count; i++) {
        const weir_tensor *t = &r->outputs[i].tensor;
        void *to = NULL;
        uint64_t before = onnx_session_stats(&model->slots[0]).refused;
        if (FAILED(model, &a,
                   api->CreateTensorAsOrtValue(j->to_device ? device : model->library->plain, t->shape, t->rank,
                                               onnx_type_from_weir(t->type), &j->outputs[i])) ||
            FAILED(model, &a, api->GetTensorMutableData(j->outputs[i], &to)))
            return onnx_session_failed(model, &model->slots[0], before, a.code, a.text, "copying outputs");
        if (t->bytes)
            status = weir_copy(model->runtime, to, t->data, t->bytes, model->slots[0].stream);
    }
    return status == WEIR_OK ? weir_stream_synchronize(model->slots[0].stream) : status;
}

/* Gives up a graph whose capture failed. ONNX Runtime takes a graph for captured once the capture has ended, even by a
 * failure, and a further run would launch an incomplete graph. So the graph's number is not used again. Unless memory
 * was short, the graph's place stays taken, so that captures are not tried without end. */
static weir_status onnx_replay_give_up(weir_engine_model *model, replay *r, weir_status why)
{
    onnx_replays *all = model->replays;
    replay **at = &all->list;
    char words[1024];
    snprintf(words, sizeof words, "%s", weir_detail());
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    all->count -= why == WEIR_ERR_OUT_OF_MEMORY;
    free_replay(model, r);
    return weir_fail(why, "%s", words);
}

static weir_status onnx_replay_launch(weir_engine_model *model, replay *r)
{
    if (r->captured)
        return onnx_replay_run_graph(model, r, r->number);
    weir_status status = onnx_replay_capture(model, r);
    return status == WEIR_OK ? WEIR_OK : onnx_replay_give_up(model, r, status);
}

static weir_status onnx_replay_serve(weir_engine_model *model, job *j)
{
    onnx_replays *all = model->replays;
    weir_status status = WEIR_OK;
    replay *r = all->list;
    while (r && !onnx_replay_fits(model, r, j->inference))
        r = r->next;
    j->served = r || all->count < ONNX_REPLAYS_MOST;
    if (!j->served)
        return WEIR_OK;
    status = onnx_check_cancelled(model, j->its);
    if (status == WEIR_OK && !r)
        status = make_replay(model, j->inference, &r);
    if (status == WEIR_OK)
        status = onnx_replay_copy_in(model, r, j->inference);
    if (status == WEIR_OK)
        status = onnx_check_cancelled(model, j->its);
    if (status == WEIR_OK)
        status = onnx_replay_launch(model, r);
    if (status == WEIR_OK)
        status = onnx_check_cancelled(model, j->its);
    return status == WEIR_OK ? onnx_replay_copy_out(model, r, j) : status;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void *onnx_replay_work(void *user)
{
    weir_engine_model *model = user;
    onnx_replays *all = model->replays;
    bool entered = weir_runtime_enter(model->runtime) == WEIR_OK; /* on failure the calls below report the error */
    pthread_mutex_lock(&all->lock);
    for (;;) {
        while (!all->job && !all->stop)
            pthread_cond_wait(&all->changed, &all->lock);
        job *j = all->job;
        if (!j)
            break;
        pthread_mutex_unlock(&all->lock);
        j->status = onnx_replay_serve(model, j);
        snprintf(j->detail, sizeof j->detail, "%s", j->status == WEIR_OK ? "" : weir_detail());
        /* Work that a failed run has queued may still read its inputs and write its results, which are the caller's
         * again after the return. */
        if (j->status != WEIR_OK && weir_stream_synchronize(model->slots[0].stream) != WEIR_OK)
            weir_log(WEIR_LOG_WARNING, "onnx: copies of a run that failed may be under way: %s", weir_detail());
        pthread_mutex_lock(&all->lock);
        all->job = NULL;
        pthread_cond_broadcast(&all->changed);
    }
    pthread_mutex_unlock(&all->lock);
    if (entered)
        weir_runtime_leave(model->runtime);
    return NULL;
}

weir_status onnx_replay(weir_engine_model *model, const weir_inference *inference, const onnx_run *its, bool to_device,
                        ort_value **outputs, bool *served)
{
    onnx_replays *all = model->replays;
    job j = {.inference = inference, .its = its, .to_device = to_device, .outputs = outputs};
    pthread_mutex_lock(&all->lock);
    all->job = &j;
    pthread_cond_broadcast(&all->changed);
    while (all->job)
        pthread_cond_wait(&all->changed, &all->lock);
    pthread_mutex_unlock(&all->lock);
    *served = j.served;
    return j.status == WEIR_OK ? WEIR_OK : weir_fail(j.status, "%s", j.detail);
}

weir_status onnx_replays_begin(weir_engine_model *model)
{
    onnx_replays *all = calloc(1, sizeof *all);
    if (!all)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for graphs", model->name);
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, NULL);
    model->replays = all;
    if (pthread_create(&all->thread, NULL, onnx_replay_work, model) == 0)
        return WEIR_OK;
    onnx_replays_end(model);
    return weir_fail(WEIR_ERR_SYSTEM, "%s: no thread for graphs", model->name);
}

void onnx_replays_stop(weir_engine_model *model)
{
    onnx_replays *all = model->replays;
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    all->stop = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    pthread_join(all->thread, NULL);
    for (replay *r = all->list; r; r = r->next)
        onnx_replay_unbind(model, r);
}

void onnx_replays_end(weir_engine_model *model)
{
    onnx_replays *all = model->replays;
    if (!all)
        return;
    for (replay *r = all->list, *next; r; r = next) {
        next = r->next;
        free_replay(model, r);
    }
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    free(all);
    model->replays = NULL;
}
