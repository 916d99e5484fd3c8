/* moody.c: an engine for tests of the command that has two ways to run a model, "openvino" and "cpu". A model (.moody) is a text
 * file of lines:
 *     fail PROVIDER load|run STATUS   fails there with the status of that number, each time
 *     share PARTS OF                  what the provider runs of it */
#include <weir/weir.h>
#include <weir/engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weir_engine_model {
    weir_client *client;
    char provider[16];
    int fail_load, fail_run; /* statuses; 0: not */
    weir_provider_share shares[2];
    void *weights;
};

static const char *const providers[] = {"openvino", "cpu"};

static weir_status moody_probe(weir_engine_probe *out)
{
    out->available = true;
    snprintf(out->version, sizeof out->version, "1.0");
    return WEIR_OK;
}

static weir_status moody_provider(size_t index, weir_engine_provider *out)
{
    if (index >= 2)
        return weir_fail(WEIR_ERR_NOT_FOUND, "there are two");
    out->state = WEIR_PROVIDER_HERE;
    snprintf(out->name, sizeof out->name, "%s", providers[index]);
    return WEIR_OK;
}

static void read_line(weir_engine_model *model, const char *line)
{
    char provider[16], where[8];
    int status;
    unsigned long long parts, of;
    if (sscanf(line, "fail %15s %7s %d", provider, where, &status) == 3 && strcmp(provider, model->provider) == 0)
        *(strcmp(where, "load") == 0 ? &model->fail_load : &model->fail_run) = status;
    if (sscanf(line, "share %llu %llu", &parts, &of) == 2) {
        model->shares[0] = (weir_provider_share){model->provider, parts, of};
        model->shares[1] = (weir_provider_share){"cpu", of - parts, of};
    }
}

static weir_status moody_load(const weir_engine_load *load, weir_engine_model **out)
{
    char line[200];
    FILE *file = fopen(load->path, "r");
    if (file == NULL)
        return weir_fail(WEIR_ERR_SYSTEM, "cannot open %s", load->path);
    weir_engine_model *model = calloc(1, sizeof *model);
    if (model == NULL) {
        fclose(file);
        return weir_fail(WEIR_ERR_SYSTEM, "no memory");
    }
    model->client = load->places[0].client;
    snprintf(model->provider, sizeof model->provider, "%s", load->provider);
    while (fgets(line, sizeof line, file) != NULL)
        read_line(model, line);
    fclose(file);
    weir_status status = model->fail_load != 0
                             ? weir_fail((weir_status)model->fail_load, "%s is in no mood to load", model->provider)
                             : weir_alloc(model->client, 4096, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &model->weights);
    if (status == WEIR_OK)
        *out = model;
    else
        free(model);
    return status;
}

static weir_status moody_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    (void)inference;
    if (model->fail_run != 0)
        return weir_fail((weir_status)model->fail_run, "%s is in no mood to run", model->provider);
    out->tensors = NULL;
    out->count = 0;
    return WEIR_OK;
}

static void moody_release_outputs(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model;
    (void)outputs;
}

static weir_status moody_info(weir_engine_model *model, weir_model_details *out)
{
    *out = (weir_model_details){.struct_size = out->struct_size,
                                .engine = "moody",
                                .version = "1.0",
                                .provider = model->provider,
                                .architecture = "a mood",
                                .remarks = "",
                                .shares = model->shares,
                                .share_count = model->shares[0].of > 0 ? 2 : 0};
    return WEIR_OK;
}

static void moody_unload(weir_engine_model *model)
{
    if (weir_free(model->client, model->weights, WEIR_STREAM_HOST) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "moody: %s", weir_detail());
    free(model);
}

static const weir_engine moody = {
    .abi = WEIR_ENGINE_ABI,
    .struct_size = sizeof(weir_engine),
    .name = "moody",
    .summary = "has two ways, and fails where it is told to",
    .suffixes = ".moody",
    .probe = moody_probe,
    .load = moody_load,
    .infer = moody_infer,
    .release_outputs = moody_release_outputs,
    .info = moody_info,
    .unload = moody_unload,
    .provider = moody_provider,
};

extern WEIR_API const weir_engine *weir_engine_entry(uint32_t abi);

const weir_engine *weir_engine_entry(uint32_t abi)
{
    return abi >= WEIR_ENGINE_ABI ? &moody : NULL;
}
