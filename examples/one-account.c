/* one-account.c: models of both engines in one account: a client of a device, by whose maximum all of them are held.
 *
 *     one-account cuda:0 minilm.onnx tiny-llama.gguf */
#include <weir/engine.h>
#include <weir/stats.h>
#include <weir/weir.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MODELS = 8, MOST_INPUTS = 8, EXTENT = 8 };

typedef struct loaded {
    const weir_engine *engine;
    weir_engine_model *model;
    const char *path;
} loaded;

static bool complain(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weir_detail());
    return false;
}

/* The engines are called as the files end: onnx, gguf. */
static bool load(weir_client *client, const char *path, loaded *out)
{
    const char *dot = strrchr(path, '.');
    weir_engine_place place = {weir_client_runtime(client), client};
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    load.path = path;
    load.places = &place;
    load.place_count = 1;
    out->path = path;
    return (dot && weir_engine_get(dot + 1, &out->engine) == WEIR_OK &&
            out->engine->load(&load, &out->model) == WEIR_OK) ||
           complain(path);
}

/* Text where the model takes some, ones for everything else. */
static bool fill(const weir_port *port, weir_tensor *t)
{
    static char sentence[] = "Once upon a time";
    *t = (weir_tensor){.struct_size = sizeof *t, .name = port->name, .type = port->type, .rank = port->rank};
    for (uint32_t d = 0; d < port->rank; d++)
        t->shape[d] = port->shape[d] < 0 ? EXTENT : port->shape[d];
    if (port->type == WEIR_TYPE_TEXT)
        t->shape[0] = (int64_t)strlen(sentence);
    if (weir_tensor_bytes(t->type, t->rank, t->shape, &t->bytes) != WEIR_OK || !(t->data = calloc(1, t->bytes + 1)))
        return false;
    if (port->type == WEIR_TYPE_TEXT)
        memcpy(t->data, sentence, t->bytes);
    for (size_t i = 0; port->type == WEIR_TYPE_I64 && i < t->bytes / sizeof(int64_t); i++)
        ((int64_t *)t->data)[i] = 1;
    return true;
}

static bool ask(const loaded *it)
{
    weir_model_details about = WEIR_INIT(weir_model_details);
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_tensor inputs[MOST_INPUTS] = {{0}};
    bool good = it->engine->info(it->model, &about) == WEIR_OK;
    for (size_t i = 0; i < about.input_count && inference.input_count < MOST_INPUTS && good; i++)
        if (about.generates ? strcmp(about.inputs[i].name, "text") == 0 : !about.inputs[i].optional)
            good = fill(&about.inputs[i], &inputs[inference.input_count++]);
    inference.inputs = inputs;
    good = good && it->engine->infer(it->model, &inference, &outputs) == WEIR_OK;
    for (size_t i = 0; good && i < outputs.count; i++)
        printf("%s: %s, %zu bytes of %s, by %s\n", it->path, outputs.tensors[i].name, outputs.tensors[i].bytes,
               weir_name_of(WEIR_NAMES_TYPE, outputs.tensors[i].type), about.provider);
    if (good)
        it->engine->release_outputs(it->model, &outputs);
    for (size_t i = 0; i < MOST_INPUTS; i++)
        free(inputs[i].data);
    return good || complain(it->path);
}

static void print_account(weir_client *client)
{
    weir_client_stats its = WEIR_INIT(weir_client_stats);
    char live[24], peak[24], most[24];
    if (weir_client_info(client, &its) == WEIR_OK)
        printf("%s: %s live, %s of %s at the peak, %llu requests refused\n", its.name,
               weir_size_format(its.live, live, sizeof live), weir_size_format(its.peak, peak, sizeof peak),
               weir_size_format(its.maximum, most, sizeof most), (unsigned long long)its.refusals);
}

int main(int argc, char **argv)
{
    loaded models[MOST_MODELS] = {{0}};
    weir_runtime *runtime = NULL;
    weir_client *client = NULL;
    weir_client_options options = WEIR_INIT(weir_client_options);
    int count = argc - 2 < MOST_MODELS ? argc - 2 : MOST_MODELS;
    bool good = count > 0;
    options.name = "both";
    options.maximum = UINT64_C(800) << 20;
    if (!good || weir_runtime_get(argv[1], NULL, &runtime) != WEIR_OK ||
        weir_client_create(runtime, &options, &client) != WEIR_OK)
        return complain("a device and one or more models are wanted") ? 0 : 2;
    for (int i = 0; i < count && good; i++)
        good = load(client, argv[i + 2], &models[i]);
    for (int i = 0; i < count && good; i++)
        good = ask(&models[i]);
    print_account(client);
    for (int i = 0; i < count; i++)
        if (models[i].model)
            models[i].engine->unload(models[i].model);
    return weir_client_destroy(client) == WEIR_OK && good ? 0 : 1; /* not while anything is left in it */
}
