/* configuration.c: a model's configuration in Triton's form, as far as it is one: what is not the model's is left out. */
#include "serve.h"

#include "cli/text.h"

#include <stdio.h>
#include <string.h>

static const char *type_name(weir_type type, char *text, size_t capacity)
{
    const char *wire = wire_type(type);
    if (type == WEIR_TYPE_TEXT)
        return "TYPE_STRING";
    if (!wire)
        return "TYPE_INVALID";
    snprintf(text, capacity, "TYPE_%s", wire);
    return text;
}

/* A setting of the manifest as a number; 0: it has none. */
static uint64_t configuration_number_of(const weir_manifest *manifest, const char *key)
{
    uint64_t number = 0;
    for (size_t i = 0; i < manifest->setting_count; i++)
        if (strcmp(manifest->settings[i].key, key) == 0)
            (void)text_number(manifest->settings[i].value, 0, UINT32_MAX, &number);
    return number;
}

/* Where runs are joined their first extent is not told. */
static json_t *configuration_ports_json(const weir_port *ports, size_t count, bool joined)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        char text[24];
        json_t *dims = json_array();
        for (uint32_t d = joined; d < ports[i].rank; d++)
            json_array_append_new(dims, json_integer((json_int_t)ports[i].shape[d]));
        json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:b}", "name", text_json(ports[i].name), "data_type",
                                              type_name(ports[i].type, text, sizeof text), "dims", dims, "optional",
                                              ports[i].optional));
    }
    return list;
}

/* Settings of the manifest, which the engine was loaded with. */
static json_t *parameters_json(const weir_manifest *manifest)
{
    json_t *object = json_object();
    for (size_t i = 0; i < manifest->setting_count; i++)
        json_object_set_new(object, manifest->settings[i].key,
                            json_pack("{s:o}", "string_value", text_json(manifest->settings[i].value)));
    return object;
}

static json_t *group_json(const served_model *model)
{
    const char *number = strchr(model->device, ':');
    bool of_device = strncmp(model->device, "cuda", 4) == 0;
    uint64_t ordinal = 0;
    json_t *group = json_pack("{s:o, s:i, s:s}", "name", text_json(model->name), "count", 1, "kind",
                              of_device ? "KIND_GPU" : "KIND_CPU");
    if (of_device && number && text_number(number + 1, 0, UINT32_MAX, &ordinal))
        json_object_set_new(group, "gpus", json_pack("[o]", text_json_count(ordinal)));
    return group;
}

static json_t *configuration_model_json(const served_model *model, const weir_model_details *info)
{
    uint64_t batch = strcmp(info->engine, "onnx") == 0 ? configuration_number_of(model->manifest, "max_batch_size") : 0;
    bool joined = batch > 1;
    json_t *object = json_pack(
        "{s:o, s:s, s:o, s:{s:{s:i}}, s:I, s:o, s:o, s:[o], s:o, s:{s:b}}", "name", text_json(model->name), "platform",
        strcmp(info->engine, "onnx") == 0 ? "onnxruntime_onnx" : "", "backend", text_json(info->engine),
        "version_policy", "latest", "num_versions", 1, "max_batch_size", joined ? (json_int_t)batch : (json_int_t)0,
        "input", configuration_ports_json(info->inputs, info->input_count, joined), "output",
        configuration_ports_json(info->outputs, info->output_count, joined), "instance_group", group_json(model),
        "parameters", parameters_json(model->manifest), "model_transaction_policy", "decoupled", info->generates);
    if (joined)
        json_object_set_new(
            object, "dynamic_batching",
            json_pack("{s:o}", "max_queue_delay_microseconds",
                      text_json_count(configuration_number_of(model->manifest, "max_queue_delay_microseconds"))));
    return object;
}

/* Loads the model, as its inputs and outputs are known then. */
void v2_configuration(ws_request *request, void *all)
{
    served_describe(all, request, configuration_model_json);
}
