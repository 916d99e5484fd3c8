/* encoder.c: a sentence encoder that runs in one arena, node by node, on a stream; and how far it is from ONNX Runtime.
 *
 *     encoder minilm.onnx [BATCH [SEQUENCE [DEVICE]]]
 *
 * It runs on the host, and then on the device, if that is another ("cuda:0"), whose outputs are compared with the host's.
 * Only weights are allocated beside the arena. It prints what the plan promised and what was taken, and where the engine onnx
 * is found, the largest difference between the two; it fails when that is more than floats explain. */
#include "encoder.h"
#include <weir/plan.h>
#include <weir/arena.h>
#include <weir/engine.h>
#include <weir/model.h>

#include "onnx/file/file.h"
#include "onnx/shapes/graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OUTPUTS = 4, WORDS = 30000 };

/* Loading ------------------------------------------------------------------------------------------------------------- */

static weir_status plan_graph(encoder *e, const char *path, int64_t batch, int64_t sequence)
{
    static char names[2][9] = {"batch", "sequence"};
    weir_plan_options options = WEIR_INIT(weir_plan_options);
    e->dims[0] = (graph_given){.name = names[0], .size = batch};
    e->dims[1] = (graph_given){.name = names[1], .size = sequence};
    e->givens = (graph_givens){.dims = e->dims, .dim_count = 2};
    options.alignment = 256;
    weir_status status = onnx_file_open(path, &e->file);
    if (status == WEIR_OK)
        status = onnx_check(&e->file);
    if (status == WEIR_OK)
        status = graph_read(&e->file, &e->givens, &e->graph);
    if (status == WEIR_OK)
        status = graph_infer(&e->graph);
    if (status == WEIR_OK)
        status = graph_memory_make(&e->graph, true, NULL, &e->memory);
    return status == WEIR_OK ? weir_plan_create(e->memory.buffers, &options, &e->plan) : status;
}

/* A value that is the same in every run: from the file, or what follows from dimensions, or with room to be computed in. */
static weir_status add_constant(encoder *e, uint32_t id)
{
    const graph_value *value = &e->graph.values[id];
    onnx_tensor tensor = {.location = ONNX_LOCATION_NONE};
    weir_parameter parameter = WEIR_INIT(weir_parameter);
    int64_t *numbers = NULL;
    uint32_t index;
    const void *from = NULL;
    char name[32];
    (void)snprintf(name, sizeof name, "value %u", id);
    weir_status status = value->weight ? onnx_tensor_read(&e->file, value->proto, value->proto_size, &tensor) : WEIR_OK;
    if (tensor.location == ONNX_LOCATION_BYTES || tensor.location == ONNX_LOCATION_BESIDE)
        from = tensor.data;
    else if (value->data && value->type == ONNX_INT64 && (numbers = malloc(value->bytes + 1)) != NULL) {
        for (uint64_t i = 0; i < value->elements; i++)
            numbers[i] = value->data[i].i;
        from = numbers;
    }
    if (status == WEIR_OK)
        status = weir_parameters_add(e->weights, name, onnx_type_to_weir(value->type), value->elements, from,
                                     WEIR_STREAM_HOST, &index);
    if (status == WEIR_OK)
        status = weir_parameter_info(e->weights, NULL, index, &parameter);
    e->at[id] = parameter.pointer;
    free(numbers);
    return status;
}

static weir_status place_tensors(encoder *e)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < e->memory.count && status == WEIR_OK; i++) {
        weir_arena_tensor tensor = WEIR_INIT(weir_arena_tensor);
        status = weir_arena_tensor_info(e->arena, 0, i, &tensor);
        e->at[e->memory.values[i]] = tensor.pointer;
    }
    return status;
}

/* Weights, and what is made of them alone, which is worked out here, once. In the order of the file. */
static weir_status place_constants(encoder *e)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < e->graph.value_count && status == WEIR_OK; i++)
        if (e->graph.values[i].weight)
            status = add_constant(e, i);
    for (size_t n = 0; n < e->graph.node_count && status == WEIR_OK; n++) {
        const graph_node *node = &e->graph.nodes[n];
        uint32_t out = node->outputs[0];
        encoder_work work;
        if (e->at[out])
            continue;
        if (encoder_is_view(node) && !e->graph.values[out].data) {
            e->at[out] = e->at[node->inputs[0]];
            continue;
        }
        status = add_constant(e, out);
        if (status != WEIR_OK || e->graph.values[out].data)
            continue;
        status = encoder_work_of(e, node, &work);
        if (status == WEIR_OK)
            status = encoder_queue(e, &work);
        if (status == WEIR_OK)
            status = weir_stream_synchronize(e->stream);
    }
    return status;
}

static weir_status load(encoder *e, const char *path, const char *device, int64_t batch, int64_t sequence)
{
    weir_client_options who = WEIR_INIT(weir_client_options);
    weir_arena_options options = WEIR_INIT(weir_arena_options);
    weir_status status = plan_graph(e, path, batch, sequence);
    if (status != WEIR_OK)
        return status;
    const weir_plan *plans[] = {e->plan};
    who.name = "encoder";
    e->at = calloc(e->graph.value_count + 1, sizeof *e->at);
    status = e->at ? weir_runtime_get(device, NULL, &e->runtime) : WEIR_ERR_SYSTEM;
    if (status == WEIR_OK)
        status = weir_client_create(e->runtime, &who, &e->client);
    if (status == WEIR_OK)
        status = weir_stream_acquire(e->runtime, &e->stream);
    e->on_gpu = strncmp(device, "cuda", 4) == 0;
    if (status == WEIR_OK && e->on_gpu)
        status = encoder_cuda_open(e, device[4] == ':' ? atoi(device + 5) : 0);
    if (status == WEIR_OK)
        status = weir_parameters_create(e->client, NULL, &e->weights);
    options.plans = plans;
    options.plan_count = 1;
    options.stream = e->stream;
    options.parameters = e->weights;
    if (status == WEIR_OK)
        status = weir_arena_create(e->client, &options, &e->arena);
    if (status == WEIR_OK)
        status = place_tensors(e);
    return status == WEIR_OK ? place_constants(e) : status;
}

static weir_status unload(encoder *e)
{
    weir_status status = weir_arena_destroy(e->arena, e->stream);
    if (status == WEIR_OK)
        status = weir_parameters_release(e->weights);
    if (status == WEIR_OK)
        status = weir_stream_release(e->stream);
    if (status == WEIR_OK)
        status = weir_client_destroy(e->client);
    weir_plan_destroy(e->plan);
    graph_memory_clear(&e->memory);
    graph_clear(&e->graph);
    onnx_file_close(&e->file);
    free(e->at);
    return status;
}

/* Running ------------------------------------------------------------------------------------------------------------- */

static uint32_t buffer_of(const encoder *e, uint32_t value)
{
    uint32_t i = 0;
    while (i < e->memory.count && e->memory.values[i] != value)
        i++;
    return i;
}

/* Inputs in, nodes in the plan's order, outputs out. */
static weir_status run(encoder *e, weir_tensor *inputs, size_t count, encoder_work *work, void **outputs)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        uint32_t value = graph_find(&e->graph, (onnx_text){inputs[i].name, strlen(inputs[i].name)});
        status = weir_arena_write(e->arena, 0, buffer_of(e, value), 0, inputs[i].data, inputs[i].bytes, e->stream);
    }
    for (size_t s = 0; s < e->memory.steps && status == WEIR_OK; s++) {
        status = encoder_work_of(e, &e->graph.nodes[e->memory.order[s]], &work[s]);
        if (status == WEIR_OK)
            status = encoder_queue(e, &work[s]);
    }
    for (size_t i = 0; i < e->graph.output_count && status == WEIR_OK; i++) {
        uint32_t value = e->graph.outputs[i];
        status =
            weir_arena_read(e->arena, 0, buffer_of(e, value), 0, outputs[i], e->graph.values[value].bytes, e->stream);
    }
    return status;
}

static weir_status infer(encoder *e, weir_tensor *inputs, size_t count, void **outputs)
{
    encoder_work *work = calloc(e->memory.steps + 1, sizeof *work);
    weir_status status = work ? weir_arena_begin(e->arena, 0, e->stream) : WEIR_ERR_SYSTEM;
    if (status == WEIR_OK) {
        status = run(e, inputs, count, work, outputs);
        weir_status ended = weir_arena_end(e->arena);
        weir_status waited = weir_stream_synchronize(e->stream);
        if (ended != WEIR_OK)
            weir_arena_abort(e->arena); /* what was queued is done, or lost with the device */
        status = status != WEIR_OK ? status : ended != WEIR_OK ? ended : waited;
    }
    free(work);
    return status;
}

/* Comparing ----------------------------------------------------------------------------------------------------------- */

static float difference(const float *one, const float *other, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++) {
        float d = fabsf(one[i] - other[i]);
        most = d > most || isnan(d) ? d : most;
    }
    return most;
}

/* The same by ONNX Runtime. False: it is there, and says otherwise. */
static bool agrees(const encoder *e, const char *path, weir_tensor *inputs, size_t count, void **outputs)
{
    weir_model_options options = WEIR_INIT(weir_model_options);
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs theirs = WEIR_INIT(weir_outputs);
    weir_model *model;
    options.runtime = e->runtime;
    inference.inputs = inputs;
    inference.input_count = count;
    if (weir_model_create(path, &options, &model) != WEIR_OK)
        return printf("nothing to compare with: %s\n", weir_detail()) > 0;
    bool good = weir_model_infer(model, &inference, &theirs) == WEIR_OK && theirs.count == e->graph.output_count;
    for (size_t i = 0; good && i < theirs.count; i++) {
        uint64_t bytes = e->graph.values[e->graph.outputs[i]].bytes;
        float d = difference(outputs[i], theirs.tensors[i].data, bytes / sizeof(float));
        printf("%s: largest difference %.2g\n", theirs.tensors[i].name, (double)d);
        good = theirs.tensors[i].bytes == bytes && d < 1e-4f;
    }
    weir_model_release_outputs(model, &theirs);
    return weir_model_destroy(model) == WEIR_OK && good;
}

/* What the arena took is what the plan said, and nothing else was taken but weights. */
static bool account(const encoder *e)
{
    weir_stats all = WEIR_INIT(weir_stats);
    weir_client_stats client = WEIR_INIT(weir_client_stats);
    weir_plan_details plan = WEIR_INIT(weir_plan_details);
    weir_parameters_details weights = WEIR_INIT(weir_parameters_details);
    size_t count;
    if (weir_snapshot(e->runtime, &all, &client, 1, &count) != WEIR_OK || weir_plan_info(e->plan, &plan) != WEIR_OK ||
        weir_parameters_info(e->weights, &weights) != WEIR_OK)
        return false;
    printf("plan: %" PRIu64 " bytes, at least %" PRIu64 ", without reuse %" PRIu64 "\n", plan.arena, plan.lower_bound,
           plan.unshared);
    printf("peak: %" PRIu64 " bytes of activations, %" PRIu64 " of weights\n",
           client.peak_class[WEIR_CLASS_ACTIVATIONS], client.peak_class[WEIR_CLASS_WEIGHTS]);
    return client.peak_class[WEIR_CLASS_ACTIVATIONS] == plan.arena && client.peak == plan.arena + weights.charged;
}

/* Two of three rows are padded, as a batch of sentences is. */
static void make_inputs(int64_t *ids, int64_t *mask, int64_t batch, int64_t sequence)
{
    for (int64_t i = 0; i < batch * sequence; i++) {
        int64_t row = i / sequence, column = i % sequence;
        mask[i] = row % 3 == 0 || column < 1 + sequence / (1 + row % 3);
        ids[i] = mask[i] ? 1 + i * 7919 % WORDS : 0;
    }
}

static void describe(weir_tensor inputs[3], int64_t *numbers, int64_t batch, int64_t sequence)
{
    static const char *const names[] = {"input_ids", "attention_mask", "token_type_ids"};
    make_inputs(numbers, numbers + batch * sequence, batch, sequence);
    for (int i = 0; i < 3; i++)
        inputs[i] = (weir_tensor){.struct_size = sizeof inputs[i],
                                  .name = names[i],
                                  .type = WEIR_TYPE_I64,
                                  .rank = 2,
                                  .shape = {batch, sequence},
                                  .data = numbers + i * batch * sequence,
                                  .bytes = (size_t)(batch * sequence) * sizeof *numbers};
}

/* Loads the model on a device and runs it there; the second run finds in the arena what the first one left. */
static bool encode(encoder *e, const char *path, const char *device, weir_tensor inputs[3], void **outputs)
{
    bool good = load(e, path, device, inputs[0].shape[0], inputs[0].shape[1]) == WEIR_OK &&
                e->graph.output_count <= MOST_OUTPUTS;
    for (size_t i = 0; good && i < e->graph.output_count; i++)
        good = (outputs[i] = malloc(e->graph.values[e->graph.outputs[i]].bytes)) != NULL;
    for (int again = 0; good && again < 2; again++)
        good = infer(e, inputs, 3, outputs) == WEIR_OK;
    return good && account(e);
}

static bool same(const encoder *e, void **one, void **other)
{
    bool good = true;
    for (size_t i = 0; i < e->graph.output_count; i++) {
        const graph_value *value = &e->graph.values[e->graph.outputs[i]];
        float d = difference(one[i], other[i], value->elements);
        printf("%.*s: largest difference to the host's %.2g\n", ONNX_SHOW(value->name), (double)d);
        good &= d < 1e-4f;
    }
    return good;
}

int main(int argc, char **argv)
{
    static encoder host, device;
    void *outputs[2][MOST_OUTPUTS] = {{NULL}};
    weir_tensor inputs[3];
    int64_t batch = argc > 2 ? atoll(argv[2]) : 3, sequence = argc > 3 ? atoll(argv[3]) : 16;
    if (argc < 2 || batch < 1 || batch > 64 || sequence < 1 || sequence > 512) {
        fputs("usage: encoder minilm.onnx [BATCH, up to 64 [SEQUENCE, up to 512 [DEVICE]]]\n", stderr);
        return 2;
    }
    int64_t *numbers = calloc((size_t)(3 * batch * sequence), sizeof *numbers);
    if (!numbers)
        return 1;
    describe(inputs, numbers, batch, sequence);
    bool good = encode(&host, argv[1], "host", inputs, outputs[0]) && agrees(&host, argv[1], inputs, 3, outputs[0]);
    if (good && argc > 4)
        good = encode(&device, argv[1], argv[4], inputs, outputs[1]) && same(&device, outputs[0], outputs[1]);
    if (!good)
        fprintf(stderr, "encoder: %s\n", weir_detail());
    for (size_t i = 0; i < MOST_OUTPUTS; i++) {
        free(outputs[0][i]);
        free(outputs[1][i]);
    }
    free(numbers);
    if ((device.arena && unload(&device) != WEIR_OK) || (host.arena && unload(&host) != WEIR_OK))
        return 1;
    return !good;
}
