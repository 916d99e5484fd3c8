/* ollama_models.c: Ollama's interface: the lists of all models and of the loaded models. */
#include "completion.h"

#include "cli/text.h"

#include <weir/predict.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

uint64_t ollama_context(served_model *model)
{
    uint64_t known = atomic_load(&model->context);
    weir_prediction prediction = WEIR_INIT(weir_prediction);
    weir_predict_options options = WEIR_INIT(weir_predict_options);
    if (known)
        return known == WEIR_POOL_NONE ? 0 : known;
    options.engine = model->engine;
    options.device = model->device;
    options.settings = model->manifest->settings;
    options.setting_count = model->manifest->setting_count;
    options.quick = true;
    known = weir_predict(model->manifest->model_file, &options, &prediction) == WEIR_OK ? prediction.context : 0;
    atomic_store(&model->context, known ? known : WEIR_POOL_NONE);
    return known;
}

/* Bytes of the file, or of the files in a folder, and when the newest was written. */
static uint64_t ollama_models_look_at(const char *path, time_t *written)
{
    struct stat about;
    *written = 0;
    if (stat(path, &about) != 0)
        return 0;
    *written = about.st_mtime;
    return S_ISREG(about.st_mode) ? (uint64_t)about.st_size : 0;
}

/* Writes 64 digits that change with the model's name, path, size or time of change. Clients use the digits only as a
 * name. */
static void digest(const served_model *model, uint64_t bytes, time_t written, char text[65])
{
    char *words =
        text_print("%s\n%s\n%" PRIu64 "\n%lld", model->name, model->manifest->model_file, bytes, (long long)written);
    for (size_t part = 0; part < 4; part++) {
        uint64_t sum = UINT64_C(14695981039346656037) + part;
        for (const unsigned char *c = (const unsigned char *)words; *c; c++)
            sum = (sum ^ *c) * UINT64_C(1099511628211);
        snprintf(text + 16 * part, 65 - 16 * part, "%016" PRIx64, sum);
    }
    free(words);
}

/* Of the model's file, as JSON has times. */
static json_t *written_json(time_t written)
{
    char when[64];
    struct tm parts;
    gmtime_r(&written, &parts);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return json_string(when);
}

static json_t *details_json(const served_model *model)
{
    const char *format = model->manifest->framework ? model->manifest->framework : model->engine;
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", format, "family", model->engine,
                     "families", model->engine, "parameter_size", "", "quantization_level", "");
}

/* What a list says of a model; `loaded` is the pool's word for one that is. */
static json_t *ollama_models_model_json(const served_model *model, const weir_pool_entry *loaded)
{
    char sum[65];
    time_t written;
    uint64_t bytes = ollama_models_look_at(model->manifest->model_file, &written);
    char *name = text_print("%s:latest", model->name);
    digest(model, bytes, written, sum);
    json_t *one =
        json_pack("{s:o, s:o, s:o, s:s, s:o}", "name", text_json(name), "model", text_json(name), "size",
                  text_json_count(loaded ? loaded->taken : bytes), "digest", sum, "details", details_json(model));
    if (!loaded)
        json_object_set_new(one, "modified_at", written_json(written));
    free(name);
    return one;
}

static json_t *tag_json(served *all, served_model *model)
{
    (void)all;
    return ollama_models_model_json(model, NULL);
}

void ollama_tags(ws_request *request, void *all)
{
    answer_json(request, 200, json_pack("{s:o}", "models", served_list_json(all, tag_json)));
}

/* Adds expires_at: the year 9999 for a model that stays for ever; for a running model, the time at which it would go if
 * its run ended now. */
static void add_end(json_t *to, const weir_pool_entry *entry, uint64_t stay)
{
    char when[64] = "9999-12-31T23:59:59Z";
    uint64_t left = entry->expires != WEIR_POOL_NONE ? entry->expires : stay;
    if (left < INT64_MAX / 4)
        ollama_time((int64_t)left, when, sizeof when);
    json_object_set_new(to, "expires_at", json_string(when));
}

/* NULL: it is not loaded. */
static json_t *loaded_json(served *all, served_model *model)
{
    weir_pool_entry entry;
    if (!served_look(all, model, &entry) || entry.state != WEIR_POOL_LOADED)
        return NULL;
    bool device = strncmp(entry.device, "host", 4) != 0;
    json_t *one = ollama_models_model_json(model, &entry);
    json_object_set_new(one, "size_vram", text_json_count(device ? entry.taken : 0));
    json_object_set_new(one, "context_length", text_json_count(ollama_context(model)));
    add_end(one, &entry, atomic_load(&model->stay));
    return one;
}

void ollama_ps(ws_request *request, void *all)
{
    answer_json(request, 200, json_pack("{s:o}", "models", served_list_json(all, loaded_json)));
}

/* Asks the loaded model for its capabilities; of a model that is not loaded, returns the usual capabilities of its
 * engine. */
static json_t *capabilities_json(served *all, const served_model *model)
{
    weir_pool_entry entry;
    weir_pool_request wanted = WEIR_INIT(weir_pool_request);
    weir_lease *lease = NULL;
    weir_model_details info = WEIR_INIT(weir_model_details);
    bool generates = strcmp(model->engine, "onnx") != 0;
    wanted.name = model->name;
    wanted.wait = WEIR_POOL_NONE;
    if (served_look(all, model, &entry) && entry.state == WEIR_POOL_LOADED &&
        weir_pool_acquire(all->pool, &wanted, NULL, &lease) == WEIR_OK) {
        if (weir_model_info(weir_lease_model(lease), &info) == WEIR_OK)
            generates = info.generates;
        weir_lease_release(lease);
    }
    return json_pack("[s]", generates ? "completion" : "embedding");
}

static json_t *settings_text(const served_model *model)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = text_stream(&text, &bytes);
    for (size_t i = 0; i < model->manifest->setting_count; i++)
        fprintf(file, "%s%s %s", i ? "\n" : "", model->manifest->settings[i].key, model->manifest->settings[i].value);
    fclose(file);
    json_t *said = text_json_bytes(text, bytes);
    free(text);
    return said;
}

void ollama_show(ws_request *request, void *user)
{
    served *all = user;
    json_t *body = body_json(request);
    if (!body)
        return;
    const json_t *name = json_object_get(body, json_object_get(body, "model") ? "model" : "name");
    served_model *model = json_is_string(name) ? served_find(all, json_string_value(name)) : NULL;
    if (!json_is_string(name)) {
        answer_wrong(request, "'model' is the name of one");
    } else if (!model) {
        answer_failure(request, weir_fail(WEIR_ERR_NOT_FOUND, "model '%.100s' not found", json_string_value(name)));
    } else {
        time_t written;
        (void)ollama_models_look_at(model->manifest->model_file, &written);
        char *from = text_print("FROM %s", model->manifest->model_file);
        answer_json(request, 200,
                    json_pack("{s:o, s:o, s:s, s:o, s:{s:s, s:o}, s:o, s:o}", "modelfile", text_json(from),
                              "parameters", settings_text(model), "template", "", "details", details_json(model),
                              "model_info", "general.architecture", model->engine, "general.context_length",
                              text_json_count(ollama_context(model)), "capabilities", capabilities_json(all, model),
                              "modified_at", written_json(written)));
        free(from);
    }
    served_drop(model);
    json_decref(body);
}

void ollama_version(ws_request *request, void *user)
{
    (void)user;
    answer_json(request, 200, json_pack("{s:s}", "version", weir_version()));
}

/* Refuses /api/pull, push, create, copy and delete: the models are those of the server's folders and configuration. */
void ollama_registry(ws_request *request, void *user)
{
    (void)user;
    answer_failure(request, weir_fail(WEIR_ERR_NOT_FOUND,
                                      "%s is not done here: the models are those of the server's "
                                      "folders and configuration",
                                      ws_path(request)));
}
