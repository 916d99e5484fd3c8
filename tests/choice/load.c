/* What is explained is what is done: random machines and manifests over real runtimes (the host, and CUDA over the
 * stub), whose budgets and residents decide what can be had. Loads take what was predicted; some fail, as they were
 * told to. */
#include "info.h"
#include "choice/situation.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/model.h>

enum { CASES = UNDER_TSAN ? 300 : 10000, RUNTIMES = 7, RESIDENTS = 2, STEP = 16 << 20 };

static weir_runtime *runtimes[RUNTIMES]; /* the host's, cuda:0 to cuda:5 */
static unsigned faults;                  /* bit n: the load number n of a case fails */
static unsigned loads;
static unsigned served, fell_back, refused_all, refusals_tried;

struct weir_engine_model {
    weir_client *client;
    void *blocks[2];
};

static void let_go(weir_engine_model *model)
{
    for (int i = 0; i < 2; i++)
        ok(weir_free(model->client, model->blocks[i], WEIR_STREAM_HOST));
    free(model);
}

/* Other providers have their memory elsewhere. */
static bool takes_of_weirs(const char *provider)
{
    return strcmp(provider, "cpu") == 0 || strcmp(provider, "cuda") == 0 || strcmp(provider, "tensorrt") == 0;
}

/* Takes as much as was predicted, in two classes. */
static weir_status load_for_real(const double_engine *engine, const weir_engine_load *load, weir_engine_model **out)
{
    weir_engine_model *model = calloc(1, sizeof *model);
    uint64_t bytes = 100; /* the file's */
    assert_non_null(model);
    assert_int_equal(load->place_count, 1);
    model->client = load->places[0].client;
    for (size_t i = 0; engine->plan == WEIR_OK && i < KINDS_OF_PROVIDERS; i++)
        if (strcmp(provider_names[i], load->provider) == 0)
            bytes = engine->bytes[i];
    if (!takes_of_weirs(load->provider))
        bytes = 0;
    weir_status status =
        weir_alloc(model->client, bytes - bytes / 4, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &model->blocks[0]);
    if (status == WEIR_OK)
        status = weir_alloc(model->client, bytes / 4, WEIR_STREAM_HOST, WEIR_CLASS_KV, &model->blocks[1]);
    if (status == WEIR_OK && (faults >> (loads++ % 32) & 1))
        status = weir_fail(WEIR_ERR_ENGINE, "the double was told to fail");
    if (status == WEIR_OK)
        *out = model;
    else
        let_go(model);
    return status;
}

/* Residents -------------------------------------------------------------------------------------------------------- */

typedef struct resident {
    weir_client *client;
    void *block;
} resident;

static resident residents[RUNTIMES][RESIDENTS];

static void move_in(weir_runtime *runtime, resident *r)
{
    weir_client_options options = {
        .struct_size = sizeof options, .name = "resident", .guaranteed = STEP * random_below(3)};
    *r = (resident){NULL, NULL};
    if (weir_client_create(runtime, &options, &r->client) != WEIR_OK)
        r->client = NULL;
    else if (weir_alloc(r->client, STEP * random_below(4), WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &r->block) != WEIR_OK)
        r->block = NULL;
}

static void move_out(resident *r)
{
    if (!r->client)
        return;
    ok(weir_free(r->client, r->block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(r->client));
}

static void finish(situation *s)
{
    for (size_t i = 0; i < RUNTIMES; i++) {
        ok(weir_runtime_set_budget(runtimes[i], STEP * (uint64_t)(6 + random_below(24))));
        for (size_t j = 0; j < RESIDENTS; j++)
            move_in(runtimes[i], &residents[i][j]);
    }
    /* The budgets decide: the devices have more than enough, each its own, and nobody says what can be had. */
    s->options.obtainable_count = 0;
    for (size_t i = 0; i < s->here.hardware.device_count; i++) {
        s->here.devices[i].shares_host = i == 0;
        if (s->here.devices[i].runtime[0])
            s->here.devices[i].free = 64 * GIB;
    }
}

static void leave(void)
{
    for (size_t i = 0; i < RUNTIMES; i++)
        for (size_t j = 0; j < RESIDENTS; j++)
            move_out(&residents[i][j]);
}

static uint64_t in_use(void)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < RUNTIMES; i++) {
        snapshot s = take_snapshot(runtimes[i]);
        bytes += s.device.live + s.device.pending + s.device.promised + s.device.guaranteed + s.device.clients;
    }
    return bytes;
}

/* Checks ----------------------------------------------------------------------------------------------------------- */

static void same_candidate(const weir_attempt *attempt, const weir_candidate *c)
{
    assert_string_equal(attempt->engine, c->engine);
    assert_string_equal(attempt->provider, c->provider);
    assert_string_equal(attempt->device, c->device);
}

/* The accepted ones are tried by rank, until one loads. */
static void check_load(const situation *s, const weir_choice *choice)
{
    weir_opening_options options = {.struct_size = sizeof options, .choice = &s->options};
    weir_model *model = NULL;
    size_t first = 0;
    loads = 0;
    while (first < choice->accepted && (faults >> (first % 32) & 1))
        first++;
    weir_status status = weir_model_create_chosen(&s->manifest, &options, &model);
    if (first == choice->accepted) {
        assert_int_equal(status, choice->accepted ? WEIR_ERR_ENGINE : WEIR_ERR_UNSUPPORTED);
        assert_int_equal(loads, choice->accepted);
        refused_all++;
        return;
    }
    if (status != WEIR_OK)
        print_error("%s: %s\n%s\n", weir_name_of(WEIR_NAMES_STATUS, status), weir_detail(), choice->rule);
    assert_int_equal(status, WEIR_OK);
    weir_record record = {.struct_size = sizeof record};
    ok(weir_model_record(model, &record));
    assert_int_equal(record.attempt_count, first + 1);
    for (size_t i = 0; i <= first; i++) {
        same_candidate(&record.attempts[i], &choice->candidates[i]);
        assert_int_equal(record.attempts[i].status, i == first ? WEIR_OK : WEIR_ERR_ENGINE);
    }
    const weir_candidate *chosen = &choice->candidates[first];
    assert_string_equal(runtime_details(client_details(weir_model_client(model)).runtime).device, chosen->runtime);
    assert_string_equal(record.choice->rule, choice->rule);
    ok(weir_model_destroy(model));
    served++;
    fell_back += first > 0;
}

/* What was refused for want of memory cannot be had, whoever tries. */
static void check_refusal(const situation *s, const weir_candidate *c)
{
    const weir_requirements *r = &s->manifest.requirements;
    weir_runtime *runtime;
    weir_engine_model *model;
    bool memory = c->verdict == WEIR_VERDICT_LITTLE_MEMORY || c->verdict == WEIR_VERDICT_LITTLE_VRAM;
    if (!memory || !takes_of_weirs(c->provider) || !c->predicted || r->min_memory > 0 || r->min_vram > 0)
        return;
    ok(weir_runtime_get(c->runtime, NULL, &runtime));
    weir_client_options options = {
        .struct_size = sizeof options, .name = "x", .guaranteed = r->guaranteed, .maximum = r->maximum};
    weir_engine_place place = {runtime, NULL};
    weir_engine_load load = {
        .struct_size = sizeof load, .places = &place, .place_count = 1, .path = "", .provider = c->provider};
    faults = 0;
    refusals_tried++;
    weir_status status = weir_client_create(runtime, &options, &place.client);
    if (status == WEIR_OK) {
        status = load_for_real(double_called(c->engine), &load, &model);
        ok(weir_client_destroy(place.client));
    }
    assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
}

static void what_is_explained_is_done(void **state)
{
    (void)state;
    for (unsigned number = 0; number < CASES; number++) {
        situation s;
        situation_make(&s, number);
        /* Half a step less than what may be left: memory in pieces is no affair of the choice's. */
        for (size_t e = 0; e < DOUBLES; e++)
            for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++)
                doubles[e].bytes[i] -= doubles[e].bytes[i] > 0 ? STEP / 2 : 0;
        finish(&s);
        faults = chance(2) ? 0 : (unsigned)random_below(8);
        uint64_t before = in_use();
        weir_choice *choice = choose(&s.manifest, &s.options);
        check_load(&s, choice);
        assert_int_equal(in_use(), before);
        for (size_t i = choice->accepted; i < choice->count; i++)
            check_refusal(&s, &choice->candidates[i]);
        assert_int_equal(in_use(), before);
        weir_choice_destroy(choice);
        leave();
    }
    assert_true(served > CASES / 4 && fell_back > CASES / 50 && refused_all > CASES / 20 &&
                refusals_tried > CASES / 20);
}

/* Limits that are given for the opening are the choice's, too: what they forbid is not loaded first. */
static void limits_of_an_opening_are_chosen_by(void **state)
{
    (void)state;
    machine here;
    weir_model *model = NULL;
    machine_begin(&here, 64 * GIB);
    machine_add(&here, WEIR_HARDWARE_CUDA, 64 * GIB);
    doubles_reset();
    doubles[0].bytes[6] = 4 * MIB;
    doubles[0].bytes[1] = 8 * MIB;
    weir_manifest manifest = {.struct_size = sizeof manifest, .path = "", .model_file = model_file("limits.onnx", 100)};
    weir_choice_options choice = {.struct_size = sizeof choice, .hardware = &here.hardware};
    weir_opening_options options = {.struct_size = sizeof options, .choice = &choice, .maximum = 5 * MIB};
    faults = loads = 0;
    ok(weir_model_create_chosen(&manifest, &options, &model));
    assert_int_equal(loads, 1);
    assert_string_equal(runtime_details(client_details(weir_model_client(model)).runtime).device, "host");
    ok(weir_model_destroy(model));
    options.maximum = 0;
    options.guaranteed = 1000 * GIB;
    fails(WEIR_ERR_UNSUPPORTED, weir_model_create_chosen(&manifest, &options, &model));
    detail_names("what is guaranteed to the model");
    assert_int_equal(loads, 1);
}

static int begin(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 16 * (uint64_t)STEP};
    ok(weir_runtime_get("host", &options, &runtimes[0]));
    for (int i = 1; i < RUNTIMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "cuda:%d", i - 1);
        ok(weir_runtime_get(name, &options, &runtimes[i]));
    }
    double_loads = load_for_real;
    double_unloads = let_go;
    return 0;
}

int main(void)
{
    static const uint64_t amounts[] = {0, STEP, 2 * STEP, 3 * STEP, 5 * STEP, 8 * STEP, 13 * STEP};
    const struct CMUnitTest tests[] = {cmocka_unit_test(limits_of_an_opening_are_chosen_by),
                                       cmocka_unit_test(what_is_explained_is_done)};
    doubles_register();
    double_llm_register();
    situations_begin(amounts, sizeof amounts / sizeof amounts[0], 0);
    return cmocka_run_group_tests_name("choice-load", tests, begin, NULL);
}
