/* v2.c: the Open Inference Protocol: health, metadata, inference, the repository. */
#include "serve.h"

#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

void v2_live(ws_request *request, void *all)
{
    bool ready = strstr(ws_path(request), "ready") != NULL;
    (void)all;
    answer_json(request, 200, json_pack("{s:b}", ready ? "ready" : "live", 1));
}

void v2_server(ws_request *request, void *all)
{
    json_t *extensions = json_pack("[s, s, s, s, s]", "binary_tensor_data", "model_repository", "statistics",
                                   "model_configuration", "generate");
    if (((served *)all)->regions)
        json_array_append_new(extensions, json_string("system_shared_memory"));
    answer_json(request, 200,
                json_pack("{s:s, s:s, s:o}", "name", "weir", "version", weir_version(), "extensions", extensions));
}

served_model *v2_find(served *all, ws_request *request)
{
    served_model *model = served_find(all, ws_segment(request, 0));
    if (!model)
        answer_failure(request,
                       weir_fail(WEIR_ERR_NOT_FOUND, "there is no model '%.100s' here", ws_segment(request, 0)));
    return model;
}

/* Answers ready if a request for the model would be met, even if only after a load. */
void v2_model_ready(ws_request *request, void *all)
{
    weir_pool_entry entry;
    served_model *model = v2_find(all, request);
    if (!model)
        return;
    char *obstacle = served_look(all, model, &entry) ? served_obstacle(all, &entry) : text_copy("it is gone");
    bool ready = obstacle == NULL;
    json_t *object = json_pack("{s:o, s:b}", "name", text_json(model->name), "ready", ready);
    if (!ready)
        json_object_set_new(object, "error", text_json(obstacle));
    served_drop(model);
    free(obstacle);
    answer_json(request, ready ? 200 : 503, object);
}

static json_t *v2_ports_json(const weir_port *ports, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *shape = json_array();
        for (uint32_t d = 0; d < ports[i].rank; d++)
            json_array_append_new(shape, json_integer((json_int_t)ports[i].shape[d]));
        const char *type = wire_type(ports[i].type);
        json_array_append_new(list, json_pack("{s:o, s:s, s:o}", "name", text_json(ports[i].name), "datatype",
                                              type ? type : "BYTES", "shape", shape));
    }
    return list;
}

static json_t *v2_model_json(const served_model *model, const weir_model_details *info)
{
    return json_pack("{s:o, s:[s], s:o, s:o, s:o}", "name", text_json(model->name), "versions", "1", "platform",
                     text_json(info->engine), "inputs", v2_ports_json(info->inputs, info->input_count), "outputs",
                     v2_ports_json(info->outputs, info->output_count));
}

void v2_model(ws_request *request, void *all)
{
    served_describe(all, request, v2_model_json);
}

/* ---- inference ----------------------------------------------------------------------------------------------------- */

size_t v2_settings(const json_t *head, weir_setting settings[V2_SETTINGS])
{
    size_t count = 0;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(head, "parameters"), key, value)
    {
        if (strcmp(key, "binary_data_output") == 0 || count == V2_SETTINGS)
            continue;
        char *text = json_is_string(value)  ? text_copy(json_string_value(value))
                     : json_is_true(value)  ? text_copy("1")
                     : json_is_false(value) ? text_copy("0")
                                            : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        settings[count++] = (weir_setting){key, text ? text : text_copy("")};
    }
    return count;
}

void v2_settings_clear(weir_setting *settings, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free((char *)(uintptr_t)settings[i].value);
}

static void serve_v2_infer(served *all, ws_request *request, const json_t *head, const wire_inputs *inputs)
{
    weir_setting settings[V2_SETTINGS];
    served_run run = {.all = all, .request = request};
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    if (!served_take(&run, ws_segment(request, 0)))
        return;
    inference.inputs = inputs->list;
    inference.input_count = inputs->count;
    inference.settings = settings;
    inference.setting_count = v2_settings(head, settings);
    weir_status status = served_infer(&run, &inference, &out);
    if (status == WEIR_OK) {
        wire_answer(request, run.all->regions, head, run.model->name, &out);
        weir_model_release_outputs(run.loaded, &out);
    } else {
        answer_failure(request, status);
    }
    v2_settings_clear(settings, inference.setting_count);
    served_leave(&run);
}

void v2_infer(ws_request *request, void *all)
{
    size_t bytes;
    uint64_t length = 0;
    const char *body = ws_body(request, &bytes), *given = ws_header(request, "Inference-Header-Content-Length");
    wire_inputs inputs;
    if (bytes == 0 || (given && (!text_number(given, 1, bytes, &length)))) {
        answer_wrong(request, bytes ? "Inference-Header-Content-Length is no number, or more than the body has"
                                    : "the body is empty");
        return;
    }
    size_t head_bytes = given ? (size_t)length : bytes;
    json_t *head = text_to_json(request, body, head_bytes);
    if (!head)
        return;
    if (wire_read(request, ((served *)all)->regions, head, body + head_bytes, bytes - head_bytes, &inputs))
        serve_v2_infer(all, request, head, &inputs);
    wire_clear(&inputs);
    json_decref(head);
}

/* ---- the repository ------------------------------------------------------------------------------------------------ */

static json_t *index_json(served *all, served_model *model)
{
    weir_pool_entry entry;
    bool known = served_look(all, model, &entry), loaded = known && entry.state == WEIR_POOL_LOADED;
    char *obstacle = known ? served_obstacle(all, &entry) : NULL;
    const char *reason = loaded ? "" : obstacle ? obstacle : weir_pool_state_name(entry.state);
    json_t *one = json_pack("{s:o, s:s, s:s, s:o}", "name", text_json(model->name), "version", "1", "state",
                            loaded ? "READY" : "UNAVAILABLE", "reason", text_json(reason));
    free(obstacle);
    return one;
}

void v2_index(ws_request *request, void *all)
{
    answer_json(request, 200, served_list_json(all, index_json));
}

/* By hand: beside what is in use, and what is idle makes room. */
void v2_load(ws_request *request, void *all)
{
    served_run run = {.all = all, .request = request};
    if (!served_take(&run, ws_segment(request, 0)))
        return;
    served_leave(&run);
    answer_json(request, 200, json_object());
}

void v2_unload(ws_request *request, void *user)
{
    served *all = user;
    served_model *model = v2_find(all, request);
    if (!model)
        return;
    weir_status status = weir_pool_unload(all->pool, model->name, 0, NULL);
    served_drop(model);
    if (status == WEIR_OK)
        answer_json(request, 200, json_object());
    else
        answer_failure(request, status);
}

/* ---- what is not here ---------------------------------------------------------------------------------------------- */

void v2_lacking(ws_request *request, void *user)
{
    static const struct {
        const char *part, *sentence;
    } lacking[] = {
        {"/v2/systemsharedmemory", "shared memory is taken by a server that is started with --shared-memory"},
        {"/v2/cudasharedmemory", "shared memory of CUDA is not supported here: send tensors in the request"},
        {"/trace/setting", "traces of requests are not supported here; WEIR_TRACE=FILE records the memory"},
        {"/v2/logging", "the log cannot be set by requests here; WEIR_LOG=debug sets it when the server begins"},
    };
    const char *path = ws_path(request);
    (void)user;
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        if (strstr(path, lacking[i].part)) {
            answer_failure(request, weir_fail(WEIR_ERR_UNSUPPORTED, "%s", lacking[i].sentence));
            return;
        }
    answer_failure(request, weir_fail(WEIR_ERR_UNSUPPORTED, "this is not supported here"));
}
