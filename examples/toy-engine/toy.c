/* toy.c: a complete engine in one file, written from weir's public headers alone.
 *
 * A model is a text file whose name ends in .toy: how many weights there are, then the weights w. A run answers y = w * x,
 * element by element. Weights and results live in the client's memory, so that weir's budget holds for them and its
 * reports show them. docs/guide/engines.md walks through it. */
#include <weir/weir.h>
#include <weir/engine.h>

#include <stdio.h>
#include <stdlib.h>

struct weir_engine_model {
    weir_client *client;
    float *weights;
    weir_port x, y;
};

static weir_status toy_probe(weir_engine_probe *out)
{
    out->available = true; /* there is no library behind this engine that could be missing */
    snprintf(out->version, sizeof out->version, "1");
    return WEIR_OK;
}

static void give_back(weir_engine_model *model, void *pointer)
{
    if (weir_free(model->client, pointer, WEIR_STREAM_HOST) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "toy: %s", weir_detail());
}

static void toy_unload(weir_engine_model *model)
{
    give_back(model, model->weights); /* NULL if the load failed before there were any: that is fine with weir_free */
    free(model);
}

static weir_status read_model(weir_engine_model *model, FILE *file, const char *path)
{
    long long count = 0, got = 0;
    if (fscanf(file, "%lld", &count) != 1 || count < 1 || count > INT32_MAX)
        return weir_fail(WEIR_ERR_CORRUPT, "%s does not begin with the number of its weights", path);
    size_t bytes = (size_t)count * sizeof(float);
    weir_status status =
        weir_alloc(model->client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, (void **)&model->weights);
    if (status != WEIR_OK)
        return status; /* the detail and the refusal are weir's own */
    while (got < count && fscanf(file, "%f", &model->weights[got]) == 1)
        got++;
    model->x = (weir_port){.name = "x", .type = WEIR_TYPE_F32, .rank = 1, .shape = {count}};
    model->y = (weir_port){.name = "y", .type = WEIR_TYPE_F32, .rank = 1, .shape = {count}};
    return got == count ? WEIR_OK : weir_fail(WEIR_ERR_CORRUPT, "%s holds %lld of its %lld weights", path, got, count);
}

static weir_status toy_load(const weir_engine_load *load, weir_engine_model **out)
{
    if (load->setting_count > 0)
        return weir_fail(WEIR_ERR_INVALID, "the toy engine has no setting %s: it has none", load->settings[0].key);
    weir_engine_model *model = calloc(1, sizeof *model);
    FILE *file = fopen(load->path, "r");
    if (model == NULL || file == NULL) {
        free(model);
        return weir_fail(WEIR_ERR_SYSTEM, "cannot open %s", load->path);
    }
    model->client = load->places[0].client;
    weir_status status = read_model(model, file, load->path);
    fclose(file);
    if (status == WEIR_OK)
        *out = model;
    else
        toy_unload(model);
    return status;
}

static weir_status toy_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    const weir_tensor *x = inference->inputs;
    int64_t count = model->x.shape[0];
    if (inference->input_count != 1 || x->type != WEIR_TYPE_F32 || x->rank != 1 || x->shape[0] != count)
        return weir_fail(WEIR_ERR_INVALID, "the one input is x, f32 [%lld]", (long long)count);
    weir_tensor *y = calloc(1, sizeof *y);
    if (y == NULL)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the result's record");
    *y = (weir_tensor){
        .struct_size = sizeof *y, .name = "y", .type = WEIR_TYPE_F32, .rank = 1, .shape = {count}, .bytes = x->bytes};
    weir_status status = weir_alloc(model->client, y->bytes, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS, &y->data);
    for (int64_t i = 0; status == WEIR_OK && i < count; i++)
        ((float *)y->data)[i] = model->weights[i] * ((const float *)x->data)[i];
    if (status == WEIR_OK)
        *out = (weir_outputs){.struct_size = out->struct_size, .tensors = y, .count = 1};
    else
        free(y);
    return status;
}

static void toy_release_outputs(weir_engine_model *model, weir_outputs *outputs)
{
    give_back(model, outputs->tensors->data);
    free(outputs->tensors);
}

static weir_status toy_info(weir_engine_model *model, weir_model_details *out)
{
    *out = (weir_model_details){.struct_size = out->struct_size,
                                .engine = "toy",
                                .version = "1",
                                .provider = "c",
                                .architecture = "a list of numbers",
                                .inputs = &model->x,
                                .input_count = 1,
                                .outputs = &model->y,
                                .output_count = 1,
                                .remarks = ""};
    return WEIR_OK;
}

static const weir_engine toy = {
    .abi = WEIR_ENGINE_ABI,
    .struct_size = sizeof(weir_engine),
    .name = "toy",
    .summary = "multiplies lists of numbers",
    .suffixes = ".toy",
    .probe = toy_probe,
    .load = toy_load,
    .infer = toy_infer,
    .release_outputs = toy_release_outputs,
    .info = toy_info,
    .unload = toy_unload,
};

extern WEIR_API const weir_engine *weir_engine_entry(uint32_t abi);

const weir_engine *weir_engine_entry(uint32_t abi)
{
    return abi >= WEIR_ENGINE_ABI ? &toy : NULL;
}
