/* Random machines, manifests and residents: the choice against an oracle, and against itself with everything found in another
 * order. */
#include "choice/oracle.h"
#include "choice/world.h"

enum { CASES = UNDER_TSAN ? 1000 : 10000 };

typedef struct situation {
    machine here;
    weir_manifest manifest;
    weir_choice_options options;
    const char *format;
    const char *fallbacks[4];
    int32_t ids[2];
    weir_obtainable residents[MOST_DEVICES];
} situation;

static uint64_t seed;
static const char *models[3];
static const char *const formats[] = {"onnx", "gguf", "both"};
static unsigned met[WEIR_VERDICTS], several, none; /* so that rare things are known to have come */

static size_t random_below(size_t most)
{
    return (size_t)(next_random(&seed) >> 33) % most;
}

static bool chance(size_t of)
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

static uint64_t random_bytes(void)
{
    static const uint64_t amounts[] = {0, 1, 300 * MIB, 512 * MIB, GIB, 2 * GIB, 3 * GIB, 5 * GIB, 8 * GIB, 40 * GIB};
    return ONE_OF(amounts) + random_below(3);
}

static weir_version_number random_version(void)
{
    static const char *const versions[] = {"9.2", "11.8", "12.2", "12.9", "12.10", "13"};
    return chance(5) ? (weir_version_number){.count = 0} : version(ONE_OF(versions));
}

static void random_machine(situation *s)
{
    machine_begin(&s->here, 20 * GIB + random_bytes());
    size_t devices = random_below(7);
    for (size_t i = 0; i < devices; i++) {
        weir_hardware_device *d = machine_add(
            &s->here, (weir_hardware_kind)(1 + random_below(chance(3) ? WEIR_HARDWARE_KINDS - 1 : 3)), random_bytes());
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
    *r = (weir_requirements){.size = sizeof *r, .fallback_providers = s->fallbacks, .device_ids = s->ids};
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
    *o = (weir_choice_options){.size = sizeof *o, .hardware = &s->here.hardware, .obtainable = s->residents};
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
    static const weir_status plans[] = {WEIR_INVALID, WEIR_CORRUPT, WEIR_UNSUPPORTED, WEIR_SYSTEM, WEIR_ENGINE};
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

static void random_situation(situation *s)
{
    static const char *const frameworks[] = {"onnx", "gguf", "llm", "ONNX"};
    memset(s, 0, sizeof *s);
    mild = chance(3) ? 1 : 4;
    size_t format = random_below(3);
    s->format = formats[format];
    s->manifest = (weir_manifest){.size = sizeof s->manifest, .path = "", .model_file = models[format]};
    s->manifest.framework = seldom(4) ? ONE_OF(frameworks) : NULL;
    random_machine(s);
    random_requirements(s);
    random_options(s);
    random_engines();
}

/* Checks ----------------------------------------------------------------------------------------------------------- */

static void complain(unsigned number, const weir_choice *choice, const expected *e)
{
    print_error("case %u: %s with %s on \"%s\" should be %s, rank %zu\n  %s\n", number, e->engine, e->provider,
                e->device, weir_verdict_name(e->verdict), e->rank, choice->rule);
    for (size_t i = 0; i < choice->count; i++)
        print_error("  %zu %s %s \"%s\" %s: %s\n", i, choice->candidates[i].engine, choice->candidates[i].provider,
                    choice->candidates[i].device, weir_verdict_name(choice->candidates[i].verdict),
                    choice->candidates[i].reason);
}

static void check_against_oracle(unsigned number, const situation *s, const weir_choice *choice)
{
    static expected wanted[MOST_EXPECTED];
    size_t count = oracle(&s->manifest, &s->options, s->format, 100, wanted), accepted = 0;
    assert_int_equal(choice->count, count);
    for (size_t i = 0; i < count; i++) {
        const expected *e = &wanted[i];
        const weir_candidate *c = candidate(choice, e->engine, e->provider, e->device);
        bool good = c->verdict == e->verdict && (e->verdict != WEIR_ACCEPTED || (size_t)c->rank == e->rank);
        if (!good)
            complain(number, choice, e);
        assert_true(good);
        accepted += e->verdict == WEIR_ACCEPTED;
        met[e->verdict]++;
    }
    assert_int_equal(choice->accepted, accepted);
    several += accepted > 1;
    none += accepted == 0;
}

static void are_equal(const weir_choice *a, const weir_choice *b)
{
    assert_int_equal(a->count, b->count);
    assert_string_equal(a->rule, b->rule);
    for (size_t i = 0; i < a->count; i++) {
        const weir_candidate *x = &a->candidates[i], *y = &b->candidates[i];
        assert_string_equal(x->engine, y->engine);
        assert_string_equal(x->provider, y->provider);
        assert_string_equal(x->device, y->device);
        assert_string_equal(x->reason, y->reason);
        assert_int_equal(x->verdict, y->verdict);
        assert_int_equal(x->rank, y->rank);
        assert_int_equal(x->obtainable, y->obtainable);
        assert_memory_equal(x->bytes, y->bytes, sizeof x->bytes);
    }
}

static void check_other_order_of_devices(const situation *s, const weir_choice *choice)
{
    machine other = s->here;
    weir_choice_options options = s->options;
    other.hardware.devices = other.devices;
    options.hardware = &other.hardware;
    for (size_t i = other.hardware.device_count; i > 1; i--) {
        size_t j = random_below(i);
        weir_hardware_device kept = other.devices[i - 1];
        other.devices[i - 1] = other.devices[j];
        other.devices[j] = kept;
    }
    weir_choice *again = choose(&s->manifest, &options);
    are_equal(choice, again);
    weir_choice_release(again);
}

static void check_other_order_of_engines(const situation *s, const weir_choice *choice)
{
    wi_world world = {.hardware = &s->here.hardware, .file_bytes = 100};
    ok(wi_wish_read(&s->manifest, &s->options, &world.wish));
    ok(wi_engines_find(s->manifest.model_file, &world.engines));
    for (size_t i = world.engines.count; i > 1; i--) {
        size_t j = random_below(i);
        wi_engine_facts kept = world.engines.all[i - 1];
        world.engines.all[i - 1] = world.engines.all[j];
        world.engines.all[j] = kept;
    }
    ok(wi_decide(&world));
    assert_int_equal(world.count, choice->count);
    assert_string_equal(wi_rule(&world), choice->rule);
    for (size_t i = 0; i < world.count; i++) {
        assert_string_equal(world.candidates[i].engine->name, choice->candidates[i].engine);
        assert_string_equal(world.candidates[i].reason, choice->candidates[i].reason);
        assert_int_equal(world.candidates[i].verdict, choice->candidates[i].verdict);
    }
    wi_world_end(&world);
}

static void random_cases(void **state)
{
    (void)state;
    for (unsigned number = 0; number < CASES; number++) {
        situation s;
        seed = 0x9e3779b97f4a7c15u * (number + 1);
        random_situation(&s);
        weir_choice *choice = choose(&s.manifest, &s.options);
        check_against_oracle(number, &s, choice);
        check_other_order_of_devices(&s, choice);
        check_other_order_of_engines(&s, choice);
        weir_choice_release(choice);
    }
    for (int i = 0; i < WEIR_VERDICTS; i++)
        assert_true(met[i] > CASES / 1000);
    assert_true(several > CASES / 10 && none > CASES / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_cases)};
    doubles_register();
    models[0] = model_file("model.onnx", 100);
    models[1] = model_file("model.gguf", 100);
    models[2] = model_file("model.both", 100);
    return cmocka_run_group_tests_name("choice-random", tests, NULL, NULL);
}
