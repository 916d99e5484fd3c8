/* echo.c: an engine for tests of the command: it answers every input as an output of the same name. A model (.echo) is a
 * text file of lines:
 *     input NAME TYPE EXTENT…   an input, -1 for any extent      weights BYTES   held as long as the model lives
 *     scratch BYTES             held during a run                slow MILLIS     each run takes so long, or is cancelled
 *     generate TEXT             the answer of infer_stream       exact           `plan` knows everything
 *     leak                      one block is never freed         twice           outputs get two names that one file has
 *     reserve BYTES             reserved for the weights           cores N       each run leases so many
 *     vector NUMBER…            the output "embeddings": these for each line of the first input, and nothing else
 *     likely NUMBER…            the outputs "logprobs", and "top_logprobs" of the tokens 0, 1, … in "top_tokens" */
#include <weir/cores.h>
#include <weir/engine.h>
#include <weir/weir.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_PORTS = 24, MOST_NUMBERS = 8 };

struct weir_engine_model {
    weir_client *client;
    char names[MOST_PORTS][64];
    weir_port ports[MOST_PORTS];
    size_t count;
    size_t weight_bytes, scratch_bytes, reserved_bytes;
    long slow;
    uint32_t core_count;
    weir_cores *cores; /* NULL: it leases none */
    char text[256];
    bool exact, leaks, twice;
    float vector[MOST_NUMBERS], likely[MOST_NUMBERS];
    size_t width, likely_count;
    weir_port embeddings;
    void *weights;
    atomic_int running;
    atomic_bool cancelled;
};

static weir_status echo_probe(weir_engine_probe *out)
{
    out->available = true;
    snprintf(out->version, sizeof out->version, "1.0");
    return WEIR_OK;
}

static weir_type type_of(const char *name)
{
    for (int i = 1; i < WEIR_TYPE_COUNT; i++)
        if (strcmp(weir_name_of(WEIR_NAMES_TYPE, i), name) == 0)
            return (weir_type)i;
    return WEIR_TYPE_NONE;
}

static void read_port(weir_engine_model *model, char *rest)
{
    weir_port *port = &model->ports[model->count];
    char *next, *word = strtok_r(rest, " ", &next);
    snprintf(model->names[model->count], sizeof model->names[0], "%s", word);
    port->name = model->names[model->count++];
    port->type = type_of(strtok_r(NULL, " ", &next));
    while ((word = strtok_r(NULL, " ", &next)) != NULL)
        port->shape[port->rank++] = strtoll(word, NULL, 10);
}

static size_t read_numbers(float *numbers, char *rest)
{
    size_t count = 0;
    for (char *end; count < MOST_NUMBERS; rest = end) {
        numbers[count] = strtof(rest, &end);
        if (end == rest)
            break;
        count++;
    }
    return count;
}

static void read_vector(weir_engine_model *model, char *rest)
{
    model->width = read_numbers(model->vector, rest);
    model->embeddings =
        (weir_port){.name = "embeddings", .type = WEIR_TYPE_F32, .rank = 2, .shape = {-1, (int64_t)model->width}};
}

static weir_status echo_read(const char *path, weir_engine_model *model)
{
    char line[300], key[32];
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return weir_fail(WEIR_ERR_NOT_FOUND, "cannot open %s", path);
    while (fgets(line, sizeof line, file) != NULL) {
        int at = 0;
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%31s %n", key, &at) != 1)
            continue;
        if (strcmp(key, "input") == 0)
            read_port(model, line + at);
        else if (strcmp(key, "weights") == 0)
            model->weight_bytes = strtoull(line + at, NULL, 10);
        else if (strcmp(key, "scratch") == 0)
            model->scratch_bytes = strtoull(line + at, NULL, 10);
        else if (strcmp(key, "reserve") == 0)
            model->reserved_bytes = strtoull(line + at, NULL, 10);
        else if (strcmp(key, "slow") == 0)
            model->slow = strtol(line + at, NULL, 10);
        else if (strcmp(key, "cores") == 0)
            model->core_count = (uint32_t)strtoul(line + at, NULL, 10);
        else if (strcmp(key, "vector") == 0)
            read_vector(model, line + at);
        else if (strcmp(key, "likely") == 0)
            model->likely_count = read_numbers(model->likely, line + at);
        else if (strcmp(key, "generate") == 0)
            snprintf(model->text, sizeof model->text, "%s", line + at);
        model->exact = model->exact || strcmp(key, "exact") == 0;
        model->leaks = model->leaks || strcmp(key, "leak") == 0;
        model->twice = model->twice || strcmp(key, "twice") == 0;
    }
    fclose(file);
    return WEIR_OK;
}

static weir_status echo_plan(const weir_engine_load *load, weir_engine_plan *out)
{
    weir_engine_model model = {0};
    weir_status status = echo_read(load->path, &model);
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        out->exact[i] = model.exact;
    out->bytes[WEIR_CLASS_WEIGHTS] = model.weight_bytes;
    out->bytes[WEIR_CLASS_SCRATCH] = model.exact ? model.scratch_bytes : 0;
    return status;
}

static void give_back(weir_engine_model *model, void *pointer)
{
    if (weir_free(model->client, pointer, WEIR_STREAM_HOST) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "echo: %s", weir_detail());
}

static void echo_unload(weir_engine_model *model)
{
    if (!model->leaks)
        give_back(model, model->weights);
    weir_cores_close(model->cores);
    free(model);
}

static weir_status allocate_weights(weir_engine_model *model)
{
    weir_request request = WEIR_INIT(weir_request);
    weir_block block = {NULL, 0};
    weir_status status = WEIR_OK;
    request.bytes = model->weight_bytes;
    request.memory_class = WEIR_CLASS_WEIGHTS;
    if (model->reserved_bytes > 0)
        status = weir_reservation_create(model->client, model->reserved_bytes, 0, &request.reservation);
    if (status == WEIR_OK)
        status = weir_alloc_with(model->client, &request, &block);
    weir_status released = weir_reservation_destroy(request.reservation);
    model->weights = block.pointer;
    return status == WEIR_OK ? released : status;
}

static weir_status open_cores(weir_engine_model *model)
{
    weir_client_stats account = WEIR_INIT(weir_client_stats);
    if (model->core_count == 0)
        return WEIR_OK;
    weir_status status = weir_client_info(model->client, &account);
    return status == WEIR_OK ? weir_cores_open(account.name, model->core_count, model->core_count, &model->cores)
                             : status;
}

static weir_status echo_load(const weir_engine_load *load, weir_engine_model **out)
{
    weir_engine_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory");
    for (size_t i = 0; i < load->setting_count; i++)
        if (strcmp(load->settings[i].key, "known") != 0) {
            free(model);
            return weir_fail(WEIR_ERR_INVALID, "the engine echo has no setting '%s'; it has: known",
                             load->settings[i].key);
        }
    model->client = load->places[0].client;
    weir_status status = echo_read(load->path, model);
    if (load->progress != NULL)
        load->progress(0.5, load->progress_user);
    if (status == WEIR_OK)
        status = open_cores(model);
    if (status == WEIR_OK)
        status = allocate_weights(model);
    if (status == WEIR_OK && model->weight_bytes > 0)
        memset(model->weights, 1, model->weight_bytes);
    if (status == WEIR_OK)
        *out = model;
    else {
        weir_cores_close(model->cores);
        free(model);
    }
    return status;
}

static weir_status work(weir_engine_model *model)
{
    void *scratch = NULL;
    weir_status status =
        weir_alloc(model->client, model->scratch_bytes, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &scratch);
    if (status != WEIR_OK)
        return status;
    for (long left = model->slow; left > 0 && !atomic_load(&model->cancelled); left -= 5)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    give_back(model, scratch);
    return atomic_load(&model->cancelled) ? weir_fail(WEIR_ERR_CANCELLED, "stopped on request") : WEIR_OK;
}

static void echo_release_outputs(weir_engine_model *model, weir_outputs *outputs)
{
    for (size_t i = 0; i < outputs->count; i++)
        give_back(model, outputs->tensors[i].data);
    free(outputs->tensors);
}

/* Adds an output with a row for each likely number. */
static weir_status answer_likely(weir_engine_model *model, const char *name, weir_type type, uint32_t rank,
                                 const void *numbers, weir_outputs *out)
{
    weir_tensor *tensor = &out->tensors[out->count];
    *tensor = (weir_tensor){.struct_size = sizeof *tensor, .name = name, .type = type, .rank = rank};
    tensor->shape[0] = (int64_t)model->likely_count;
    tensor->shape[1] = rank > 1;
    tensor->bytes = model->likely_count * sizeof(float);
    weir_status status =
        weir_alloc(model->client, tensor->bytes, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS, &tensor->data);
    if (status == WEIR_OK)
        memcpy(tensor->data, numbers, tensor->bytes);
    out->count += status == WEIR_OK;
    return status;
}

static weir_status answer_all_likely(weir_engine_model *model, weir_outputs *out)
{
    static const int32_t tokens[MOST_NUMBERS] = {0, 1, 2, 3, 4, 5, 6, 7};
    weir_status status = answer_likely(model, "logprobs", WEIR_TYPE_F32, 1, model->likely, out);
    if (status == WEIR_OK)
        status = answer_likely(model, "top_logprobs", WEIR_TYPE_F32, 2, model->likely, out);
    return status == WEIR_OK ? answer_likely(model, "top_tokens", WEIR_TYPE_I32, 2, tokens, out) : status;
}

static weir_status answer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    static const char *const twice[] = {"a/b", "a_b"};
    weir_status status = WEIR_OK;
    out->tensors = calloc(inference->input_count + 4, sizeof *out->tensors);
    for (size_t i = 0; i < inference->input_count && status == WEIR_OK; i++) {
        weir_tensor *tensor = &out->tensors[i];
        *tensor = inference->inputs[i];
        tensor->data = NULL;
        if (model->twice && i < 2)
            tensor->name = twice[i];
        status = weir_alloc(model->client, tensor->bytes, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS, &tensor->data);
        if (status == WEIR_OK && tensor->bytes > 0)
            memcpy(tensor->data, inference->inputs[i].data, tensor->bytes);
        out->count += status == WEIR_OK;
    }
    if (status == WEIR_OK && model->likely_count > 0)
        status = answer_all_likely(model, out);
    if (status != WEIR_OK)
        echo_release_outputs(model, out);
    return status;
}

static weir_status answer_vectors(weir_engine_model *model, const weir_tensor *texts, weir_outputs *out)
{
    size_t lines = 1, bytes = model->width * sizeof(float);
    for (size_t i = 0; i < texts->bytes; i++)
        lines += ((const char *)texts->data)[i] == '\n';
    out->tensors = calloc(1, sizeof *out->tensors);
    weir_tensor rows = {.struct_size = sizeof rows,
                        .name = "embeddings",
                        .type = WEIR_TYPE_F32,
                        .rank = 2,
                        .shape = {(int64_t)lines, (int64_t)model->width},
                        .bytes = lines * bytes};
    *out->tensors = rows;
    weir_status status =
        weir_alloc(model->client, lines * bytes, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS, &out->tensors->data);
    for (size_t i = 0; i < lines && status == WEIR_OK; i++)
        memcpy((char *)out->tensors->data + i * bytes, model->vector, bytes);
    out->count = status == WEIR_OK;
    if (status != WEIR_OK)
        free(out->tensors);
    return status;
}

static weir_status echo_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    uint32_t cores;
    if (inference->input_count > model->count)
        return weir_fail(WEIR_ERR_INVALID, "too many inputs");
    weir_status status = model->cores ? weir_cores_take(model->cores, NULL, NULL, &cores) : WEIR_OK;
    if (status != WEIR_OK)
        return status;
    atomic_fetch_add(&model->running, 1);
    status = work(model);
    atomic_fetch_sub(&model->running, 1);
    weir_cores_give(model->cores);
    if (status != WEIR_OK)
        return status;
    return model->width > 0 ? answer_vectors(model, inference->inputs, out) : answer(model, inference, out);
}

static weir_status echo_infer_stream(weir_engine_model *model, const weir_inference *inference, weir_piece_fn piece,
                                     void *user, weir_outputs *out)
{
    for (size_t i = 0; model->text[i] != '\0'; i++) {
        weir_piece one = {sizeof one, model->text + i, 1, (int32_t)i, i};
        if (!piece(&one, user))
            break;
    }
    return echo_infer(model, inference, out);
}

static weir_status echo_cancel(weir_engine_model *model, uint64_t id)
{
    (void)id;
    if (atomic_load(&model->running) == 0)
        return weir_fail(WEIR_ERR_NOT_FOUND, "nothing runs");
    atomic_store(&model->cancelled, true);
    return WEIR_OK;
}

static weir_status echo_info(weir_engine_model *model, weir_model_details *out)
{
    *out = (weir_model_details){.struct_size = out->struct_size,
                                .engine = "echo",
                                .version = "1.0",
                                .provider = "c",
                                .architecture = "an echo",
                                .inputs = model->ports,
                                .input_count = model->count,
                                .outputs = model->width > 0 ? &model->embeddings : model->ports,
                                .output_count = model->width > 0 ? 1 : model->count,
                                .generates = model->text[0] != '\0',
                                .remarks = "it keeps its <record> & nothing else to itself"};
    return WEIR_OK;
}

static const weir_engine echo = {
    .abi = WEIR_ENGINE_ABI,
    .struct_size = sizeof(weir_engine),
    .name = "echo",
    .summary = "answers what it is asked",
    .suffixes = ".echo",
    .probe = echo_probe,
    .plan = echo_plan,
    .load = echo_load,
    .infer = echo_infer,
    .infer_stream = echo_infer_stream,
    .release_outputs = echo_release_outputs,
    .cancel = echo_cancel,
    .info = echo_info,
    .unload = echo_unload,
};

extern WEIR_API const weir_engine *weir_engine_entry(uint32_t abi);

const weir_engine *weir_engine_entry(uint32_t abi)
{
    return abi >= WEIR_ENGINE_ABI ? &echo : NULL;
}
