/* lacking.c: an engine for tests of the command: it runs nothing, and has a provider in each state. */
#include <weir/engine.h>

#include <stdio.h>
#include <string.h>

static weir_status lacking_probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}

static weir_status lacking_provider(size_t index, weir_engine_provider *out)
{
    static const struct {
        const char *name, *library, *version, *missing;
    } all[] = {
        {"cpu", "/opt/liblacking.so", "1.2.3", ""},
        {"rocm", "", "", "liblacking 1.2.3 is built without it"},
        {"cuda", "/opt/liblacking.so", "1.2.3", "libcudnn.so.9: version 9.1 wanted, 8.9 found"},
        {"openvino", "", "", "liblacking-openvino is not in the store"},
    };
    if (index >= sizeof all / sizeof all[0])
        return weir_fail(WEIR_ERR_NOT_FOUND, "the engine lacking has no provider number %zu", index);
    snprintf(out->name, sizeof out->name, "%s", all[index].name);
    snprintf(out->library, sizeof out->library, "%s", all[index].library);
    snprintf(out->version, sizeof out->version, "%s", all[index].version);
    snprintf(out->missing, sizeof out->missing, "%s", all[index].missing);
    out->state = (weir_provider_state)index;
    return WEIR_OK;
}

static weir_status lacking_load(const weir_engine_load *load, weir_engine_model **out)
{
    *out = NULL;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "the engine lacking does not load %s", load->path);
}

static weir_status lacking_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    (void)model, (void)inference, (void)out;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "the engine lacking does not run");
}

static void lacking_release(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model, (void)outputs;
}

static weir_status lacking_info(weir_engine_model *model, weir_model_details *out)
{
    (void)model, (void)out;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "the engine lacking has no models");
}

static void lacking_unload(weir_engine_model *model)
{
    (void)model;
}

WEIR_API const weir_engine *weir_engine_entry(uint32_t abi);
const weir_engine *weir_engine_entry(uint32_t abi)
{
    static const weir_engine table = {.abi = WEIR_ENGINE_ABI,
                                      .struct_size = sizeof table,
                                      .name = "lacking",
                                      .summary = "has providers and nothing else",
                                      .suffixes = ".lacking",
                                      .probe = lacking_probe,
                                      .load = lacking_load,
                                      .infer = lacking_infer,
                                      .release_outputs = lacking_release,
                                      .info = lacking_info,
                                      .unload = lacking_unload,
                                      .provider = lacking_provider};
    return abi >= WEIR_ENGINE_ABI ? &table : NULL;
}
