#include "choice/machine.h"
#include "base/values.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

#include <strings.h>
#include <sys/stat.h>

double_engine doubles[DOUBLES];
weir_status (*double_loads)(const double_engine *engine, const weir_engine_load *load, weir_engine_model **out);
void (*double_unloads)(weir_engine_model *model);
const char *const provider_names[KINDS_OF_PROVIDERS] = {"tensorrt", "cuda",     "rocm", "coreml",
                                                        "directml", "openvino", "cpu"};

/* Machines --------------------------------------------------------------------------------------------------------- */

void machine_begin(machine *m, uint64_t memory)
{
    memset(m, 0, sizeof *m);
    m->hardware =
        (weir_hardware){.struct_size = sizeof m->hardware, .devices = m->devices, .device_count = 1, .remarks = ""};
    m->devices[0] = (weir_hardware_device){.struct_size = sizeof m->devices[0],
                                           .kind = WEIR_HARDWARE_CPU,
                                           .key = "cpu",
                                           .name = "a processor",
                                           .runtime = "host",
                                           .total = memory,
                                           .free = memory,
                                           .shares_host = true,
                                           .units = 8,
                                           .usable = true};
}

weir_hardware_device *machine_add(machine *m, weir_hardware_kind kind, uint64_t bytes)
{
    weir_hardware_device *d = &m->devices[m->hardware.device_count];
    int ordinal = 0;
    for (size_t i = 0; i < m->hardware.device_count; i++)
        ordinal += m->devices[i].kind == kind;
    m->hardware.device_count++;
    *d = (weir_hardware_device){.struct_size = sizeof *d,
                                .kind = kind,
                                .ordinal = ordinal,
                                .total = bytes,
                                .free = bytes,
                                .discrete = true,
                                .usable = true};
    snprintf(d->key, sizeof d->key, "%s-%d", weir_name_of(WEIR_NAMES_HARDWARE, kind), ordinal);
    snprintf(d->name, sizeof d->name, "a device");
    if (kind == WEIR_HARDWARE_CUDA)
        snprintf(d->runtime, sizeof d->runtime, "cuda:%d", ordinal);
    return d;
}

weir_version_number version(const char *text)
{
    weir_version_number number;
    ok(wi_version_read(text, &number));
    return number;
}

/* Engines ---------------------------------------------------------------------------------------------------------- */

static weir_status double_probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}

static weir_status tell_provider(double_engine *engine, size_t index, weir_engine_provider *out)
{
    size_t size = out->struct_size;
    engine->asked += index == 0;
    for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++) {
        if (!engine->has[i] || index-- > 0)
            continue;
        *out = (weir_engine_provider){
            .struct_size = size, .state = engine->states[i], .library = "/a/lib.so", .version = "1"};
        snprintf(out->name, sizeof out->name, "%s", provider_names[i]);
        if (out->state != WEIR_PROVIDER_HERE)
            snprintf(out->missing, sizeof out->missing, "libmissing.so.%zu is not found", i);
        return WEIR_OK;
    }
    return weir_fail(WEIR_ERR_NOT_FOUND, "no such provider");
}

static weir_status plan(double_engine *engine, const weir_engine_load *load, weir_engine_plan *out)
{
    engine->plans++;
    engine->setting = "";
    assert_int_equal(load->place_count, 0);
    for (size_t i = 0; i < load->setting_count; i++)
        if (strcmp(load->settings[i].key, "optimization") == 0)
            engine->setting = load->settings[i].value;
    if (engine->plan != WEIR_OK)
        return weir_fail(engine->plan, "the double was told to fail");
    for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++)
        if (strcmp(load->provider, provider_names[i]) == 0) {
            out->bytes[WEIR_CLASS_WEIGHTS] = engine->bytes[i] - engine->bytes[i] / 4;
            out->bytes[WEIR_CLASS_KV] = engine->bytes[i] / 4;
            return WEIR_OK;
        }
    return weir_fail(WEIR_ERR_INVALID, "the double was given the provider %s", load->provider);
}

static weir_status load(const double_engine *engine, const weir_engine_load *wanted, weir_engine_model **out)
{
    return double_loads ? double_loads(engine, wanted, out) : weir_fail(WEIR_ERR_UNSUPPORTED, "a double loads nothing");
}

static weir_status no_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    (void)model, (void)inference, (void)out;
    return WEIR_ERR_UNSUPPORTED;
}

static void no_release(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model, (void)outputs;
}

static weir_status no_info(weir_engine_model *model, weir_model_details *out)
{
    (void)model, (void)out;
    return WEIR_ERR_UNSUPPORTED;
}

static void unload(weir_engine_model *model)
{
    double_unloads(model);
}

#define DOUBLE(number, called, takes)                                                                                  \
    static weir_status provider_##number(size_t index, weir_engine_provider *out)                                      \
    {                                                                                                                  \
        return tell_provider(&doubles[number], index, out);                                                            \
    }                                                                                                                  \
    static weir_status plan_##number(const weir_engine_load *load, weir_engine_plan *out)                              \
    {                                                                                                                  \
        return plan(&doubles[number], load, out);                                                                      \
    }                                                                                                                  \
    static weir_status load_##number(const weir_engine_load *wanted, weir_engine_model **out)                          \
    {                                                                                                                  \
        return load(&doubles[number], wanted, out);                                                                    \
    }                                                                                                                  \
    static const weir_engine table_##number = {.abi = WEIR_ENGINE_ABI,                                                 \
                                               .struct_size = sizeof(weir_engine),                                     \
                                               .name = called,                                                         \
                                               .summary = "a double",                                                  \
                                               .suffixes = takes,                                                      \
                                               .probe = double_probe,                                                  \
                                               .plan = plan_##number,                                                  \
                                               .load = load_##number,                                                  \
                                               .infer = no_infer,                                                      \
                                               .release_outputs = no_release,                                          \
                                               .info = no_info,                                                        \
                                               .unload = unload,                                                       \
                                               .provider = provider_##number}
DOUBLE(0, "onnx", ".onnx .both");
DOUBLE(1, "gguf", ".gguf .both");
DOUBLE(2, "llm", "genai_config.json");
static size_t registered;

void doubles_register(void)
{
    setenv("WEIR_HOME", "/nonexistent", 1);
    unsetenv("WEIR_ENGINE_PATH");
    unsetenv("WEIR_BUDGET");
    unsetenv("WEIR_POLICY");
    unsetenv("WEIR_PROVIDERS");
    ok(weir_engine_register(&table_0));
    ok(weir_engine_register(&table_1));
    registered = 2;
}

void double_llm_register(void)
{
    ok(weir_engine_register(&table_2));
    registered = 3;
}

double_engine *double_called(const char *engine)
{
    static const weir_engine *const tables[DOUBLES] = {&table_0, &table_1, &table_2};
    for (size_t i = 0; i < DOUBLES && i < registered; i++)
        if (strcasecmp(tables[i]->name, engine) == 0)
            return &doubles[i];
    return NULL;
}

void doubles_reset(void)
{
    memset(doubles, 0, sizeof doubles);
    for (size_t e = 0; e < DOUBLES; e++)
        for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++) {
            doubles[e].has[i] = true;
            doubles[e].bytes[i] = 1;
        }
}

/* Choosing --------------------------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/weir-choice-XXXXXX";
static char paths[12][96]; /* files behind the folder that they lie in */
static size_t path_count;

static void remove_files(void)
{
    while (path_count > 0)
        (void)remove(paths[--path_count]);
    rmdir(folder);
}

static char *new_path(const char *name)
{
    if (path_count == 0) {
        assert_non_null(mkdtemp(folder));
        atexit(remove_files);
    }
    assert_true(path_count < sizeof paths / sizeof paths[0]);
    char *path = paths[path_count++];
    snprintf(path, sizeof paths[0], "%s/%.60s", folder, name);
    return path;
}

const char *model_file(const char *name, size_t bytes)
{
    char *path = new_path(name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++)
        fputc('x', file);
    assert_int_equal(fclose(file), 0);
    return path;
}

const char *model_folder(const char *name, size_t bytes)
{
    char inside[64];
    const char *path = new_path(name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(inside, sizeof inside, "%.40s/genai_config.json", name);
    (void)model_file(inside, bytes);
    return path;
}

weir_choice *choose(const weir_manifest *manifest, const weir_choice_options *options)
{
    weir_choice *choice;
    ok(weir_choice_create(manifest, options, &choice));
    assert_non_null(choice);
    for (size_t i = 0; i < choice->count; i++) {
        const weir_candidate *c = &choice->candidates[i];
        assert_int_equal(c->rank, i < choice->accepted ? (int)i : -1);
        assert_int_equal(c->verdict == WEIR_VERDICT_ACCEPTED, i < choice->accepted);
        assert_true(c->reason[0] != '\0' && strchr(c->reason, '\n') == NULL);
    }
    return choice;
}

const weir_candidate *candidate(const weir_choice *choice, const char *engine, const char *provider, const char *device)
{
    const weir_candidate *found = NULL;
    for (size_t i = 0; i < choice->count; i++) {
        const weir_candidate *c = &choice->candidates[i];
        if (strcmp(c->engine, engine) == 0 && strcmp(c->provider, provider) == 0 && strcmp(c->device, device) == 0) {
            assert_null(found);
            found = c;
        }
    }
    if (!found)
        print_error("there is no candidate %s with %s on \"%s\"\n", engine, provider, device);
    assert_non_null(found);
    return found;
}
