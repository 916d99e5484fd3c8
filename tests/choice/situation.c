#include "choice/situation.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

static uint64_t seed;
static const uint64_t *amounts;
static size_t amount_count, amount_more;
enum { FORMATS = 4 };
static const char *models[FORMATS];
static const char *const formats[FORMATS] = {"onnx", "gguf", "both", "genai"};

void situations_begin(const uint64_t *some, size_t count, size_t more)
{
    amounts = some;
    amount_count = count;
    amount_more = more;
    models[0] = model_file("model.onnx", 100);
    models[1] = model_file("model.gguf", 100);
    models[2] = model_file("model.both", 100);
    models[3] = model_folder("genai.onnx", 100);
}

size_t random_below(size_t most)
{
    return (size_t)(next_random(&seed) >> 33) % most;
}

bool chance(size_t of)
{
    return random_below(of) == 0;
}

/* What stands in a choice's way comes four times as seldom in most cases, which would else end with nothing. */
static size_t mild;

static bool seldom(size_t of)
{
    return chance(of * mild);
}

#define ONE_OF(list) ((list)[random_below(sizeof(list) / sizeof((list)[0]))])

uint64_t random_bytes(void)
{
    return amounts[random_below(amount_count)] + random_below(amount_more + 1);
}

static weir_version_number random_version(void)
{
    static const char *const versions[] = {"9.2", "11.8", "12.2", "12.9", "12.10", "13"};
    weir_version_number unknown = {.count = 0};
    return chance(5) ? unknown : version(ONE_OF(versions));
}

static void random_machine(situation *s)
{
    machine_begin(&s->here, 20 * GIB + random_bytes());
    size_t devices = random_below(7);
    for (size_t i = 0; i < devices; i++) {
        weir_hardware_device *d = machine_add(
            &s->here, (weir_hardware_kind)(1 + random_below(chance(3) ? WEIR_HARDWARE_COUNT - 1 : 3)), random_bytes());
        d->driver = random_version();
        d->driver_runtime = random_version();
        d->capability = random_version();
        d->shares_host = seldom(4);
        d->usable = !seldom(6);
        if (seldom(8))
            d->free = WEIR_BYTES_UNKNOWN;
        if (!d->usable && seldom(2)) { /* hidden */
            d->ordinal = -1;
            d->runtime[0] = '\0';
        }
    }
    if (seldom(20))
        s->here.devices[0].free = WEIR_BYTES_UNKNOWN;
}

static void random_requirements(situation *s)
{
    static const char *const words[] = {"tensorrt", "cuda", "CUDA", "rocm",     "coreml", "metal",
                                        "directml", "",     "cpu",  "openvino", "Cpu"};
    static const char *const strategies[] = {NULL, NULL, "", "pool", "Tensor-Parallel"};
    static const char *const levels[] = {NULL, NULL, NULL, "all", "basic"};
    weir_requirements *r = &s->manifest.requirements;
    *r = (weir_requirements){.fallback_providers = s->fallbacks, .device_ids = s->ids};
    if (chance(2)) {
        r->preferred_provider = ONE_OF(words);
        r->fallback_count = random_below(4);
        for (size_t i = 0; i < r->fallback_count; i++)
            s->fallbacks[i] = ONE_OF(words);
    }
    r->min_memory = seldom(3) ? random_bytes() : 0;
    r->min_vram = seldom(3) ? random_bytes() : 0;
    r->guaranteed = seldom(4) ? random_bytes() : 0;
    r->maximum = seldom(6) ? r->guaranteed + random_bytes() : 0;
    r->min_cuda_version = seldom(6) ? random_version() : (weir_version_number){.count = 0};
    r->min_driver_version = seldom(8) ? random_version() : (weir_version_number){.count = 0};
    r->min_compute_capability = seldom(8) ? random_version() : (weir_version_number){.count = 0};
    r->device_count = seldom(3) ? random_below(3) : 0;
    for (size_t i = 0; i < r->device_count; i++)
        s->ids[i] = (int32_t)random_below(3);
    r->strategy = ONE_OF(strategies);
    r->graph_optimization_level = ONE_OF(levels);
    r->cpu = seldom(2) ? (weir_cpu_use)random_below(3) : WEIR_CPU_LAST;
}

static void random_options(situation *s)
{
    static const char *const engines[] = {"onnx", "gguf", "LLM", ""};
    static const char *const devices[] = {"cpu", "host",   "cuda",    "cuda:1",  "0",
                                          "1",   "rocm-0", "nothing", "Intel:0", ""};
    static const char *const policies[] = {NULL, "fastest", "manifest", "Memory"};
    static const char *const orders[] = {NULL, "", "rocm cpu cuda", "openvino,tensorrt", "cpu", "metal, cuda"};
    weir_choice_options *o = &s->options;
    *o = (weir_choice_options){.struct_size = sizeof *o, .hardware = &s->here.hardware, .obtainable = s->residents};
    o->engine = seldom(8) ? ONE_OF(engines) : NULL;
    o->provider = seldom(8) ? ONE_OF(provider_names) : NULL;
    o->device = seldom(5) ? ONE_OF(devices) : NULL;
    o->policy = ONE_OF(policies);
    o->order = ONE_OF(orders);
    o->no_cpu = seldom(10);
    for (size_t i = 0; i < s->here.hardware.device_count; i++)
        if (chance(3))
            s->residents[o->obtainable_count++] = (weir_obtainable){s->here.devices[i].key, random_bytes()};
}

static void random_engines(void)
{
    static const weir_status plans[] = {WEIR_ERR_INVALID, WEIR_ERR_CORRUPT, WEIR_ERR_UNSUPPORTED, WEIR_ERR_SYSTEM,
                                        WEIR_ERR_ENGINE};
    doubles_reset();
    for (size_t e = 0; e < DOUBLES; e++) {
        doubles[e].plan = seldom(8) ? ONE_OF(plans) : WEIR_OK;
        for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++) {
            doubles[e].has[i] = !seldom(8);
            doubles[e].states[i] = seldom(6) ? (weir_provider_state)(1 + random_below(3)) : WEIR_PROVIDER_HERE;
            doubles[e].bytes[i] = random_bytes();
        }
    }
}

void situation_make(situation *s, unsigned number)
{
    static const char *const frameworks[] = {"onnx", "gguf", "llm", "ONNX"};
    seed = 0x9e3779b97f4a7c15u * (number + 1);
    memset(s, 0, sizeof *s);
    mild = chance(3) ? 1 : 4;
    size_t format = random_below(FORMATS);
    s->format = formats[format];
    s->manifest = (weir_manifest){.struct_size = sizeof s->manifest, .path = "", .model_file = models[format]};
    s->manifest.framework = seldom(4) ? ONE_OF(frameworks) : NULL;
    random_machine(s);
    random_requirements(s);
    random_options(s);
    random_engines();
}
