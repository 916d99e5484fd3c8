/* Choosing and loading on this machine's own device, a GPU's or the stub's, with an engine of this test's: what is
 * explained is what is done, what cannot be had falls back to the processor, and the ledger and the device are then as
 * they were.
 *
 * The tests go on from each other. WEIR_TEST_DEVICE has to name the device; without it they are skipped. */
#include "info.h"
#include "core/core.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/model.h>
#include "hardware/witness.h"

enum { SMALL = 1 << 20 };

/* The engine: it takes on CUDA what it is told to, more than it has said where it is told that. */
static struct {
    uint64_t predicted, taken, scratch; /* of a load, and of a run */
} on_device;

struct weir_engine_model {
    weir_client *client;
    void *block;
    bool on_cpu;
};

static weir_status say_probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}

static weir_status say_provider(size_t index, weir_engine_provider *out)
{
    static const char *const names[] = {"cuda", "tensorrt", "cpu"};
    if (index >= sizeof names / sizeof names[0])
        return weir_fail(WEIR_ERR_NOT_FOUND, "it has three");
    snprintf(out->name, sizeof out->name, "%s", names[index]);
    out->state = WEIR_PROVIDER_HERE;
    return WEIR_OK;
}

static weir_status predict(const weir_engine_load *load, weir_engine_plan *out)
{
    out->bytes[WEIR_CLASS_WEIGHTS] = strcmp(load->provider, "cpu") == 0 ? SMALL : on_device.predicted;
    return WEIR_OK;
}

static weir_status load_model(const weir_engine_load *load, weir_engine_model **out)
{
    weir_engine_model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    model->client = load->places[0].client;
    model->on_cpu = strcmp(load->provider, "cpu") == 0;
    weir_status status = weir_alloc(model->client, model->on_cpu ? SMALL : on_device.taken, WEIR_STREAM_HOST,
                                    WEIR_CLASS_WEIGHTS, &model->block);
    if (status == WEIR_OK)
        *out = model;
    else
        free(model);
    return status;
}

static weir_status run_model(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    (void)inference;
    void *scratch;
    weir_status status = weir_alloc(model->client, model->on_cpu ? SMALL : on_device.scratch, WEIR_STREAM_HOST,
                                    WEIR_CLASS_SCRATCH, &scratch);
    out->count = 0;
    return status == WEIR_OK ? weir_free(model->client, scratch, WEIR_STREAM_HOST) : status;
}

static void release(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model;
    (void)outputs;
}

static weir_status describe(weir_engine_model *model, weir_model_details *out)
{
    out->engine = "double";
    out->provider = model->on_cpu ? "cpu" : "cuda";
    return WEIR_OK;
}

static void unload_model(weir_engine_model *model)
{
    ok(weir_free(model->client, model->block, WEIR_STREAM_HOST));
    free(model);
}

static const weir_engine engine = {WEIR_ENGINE_ABI,
                                   sizeof(weir_engine),
                                   "double",
                                   "an engine of this test's",
                                   ".double",
                                   .probe = say_probe,
                                   .plan = predict,
                                   .load = load_model,
                                   .infer = run_model,
                                   .release_outputs = release,
                                   .info = describe,
                                   .unload = unload_model,
                                   .provider = say_provider};

/* What the tests hand on to each other. */
static weir_manifest manifest;
static weir_choice_options asked;
static weir_opening_options opening;
static uint64_t total, obtainable, used_before;
static char key[128]; /* of cuda:0 */
static weir_runtime *runtime;
static weir_model *resident;
static int notices;

static void count_notice(const char *text, void *user)
{
    (void)user;
    print_message("told: %s\n", text);
    notices++;
}

static weir_choice *choose(void)
{
    weir_choice *choice;
    ok(weir_choice_create(&manifest, &asked, &choice));
    print_message("%s\n", choice->rule);
    return choice;
}

/* Of this test's device: the machine may have others, which are not visible. */
static weir_verdict verdict_of_cuda(const weir_choice *choice)
{
    for (size_t i = 0; i < choice->count; i++) {
        const weir_candidate *c = &choice->candidates[i];
        if (strcmp(c->engine, "double") == 0 && strcmp(c->provider, "cuda") == 0 && strcmp(c->device, key) == 0) {
            print_message("%s: %s\n", weir_name_of(WEIR_NAMES_VERDICT, c->verdict), c->reason);
            return c->verdict;
        }
    }
    fail_msg("cuda is no candidate");
    return WEIR_VERDICT_COUNT;
}

/* cuda is refused so, and the processor is all there is. */
static void only_the_processor(weir_verdict why)
{
    weir_choice *choice = choose();
    assert_string_equal(weir_name_of(WEIR_NAMES_VERDICT, verdict_of_cuda(choice)),
                        weir_name_of(WEIR_NAMES_VERDICT, why));
    assert_int_equal(choice->accepted, 1);
    assert_string_equal(choice->candidates[0].provider, "cpu");
    weir_choice_destroy(choice);
}

static const weir_hardware_device *device_of(const weir_hardware *hardware)
{
    for (size_t i = 0; i < hardware->device_count; i++)
        if (strcmp(hardware->devices[i].runtime, "cuda:0") == 0)
            return &hardware->devices[i];
    fail_msg("no cuda:0: %s", hardware->remarks);
    return NULL;
}

static snapshot ledger(void)
{
    return take_snapshot(runtime);
}

static void same_ledger(const snapshot *before)
{
    snapshot now = ledger();
    assert_int_equal(now.device.live, before->device.live);
    assert_int_equal(now.device.pending, before->device.pending);
    assert_int_equal(now.device.promised, before->device.promised);
    assert_int_equal(now.device.guaranteed, before->device.guaranteed);
    assert_int_equal(now.device.clients, before->device.clients);
    check_sums(&now);
}

/* NVML, unless a tool watches, which has memory of its own on the device. */
static bool has_witness(void)
{
    return !getenv("WEIR_SANITIZED") && witness_begin();
}

static uint64_t used(void)
{
    return has_witness() ? witness_used() : 0;
}

static void used_is(uint64_t wanted)
{
    uint64_t now = used();
    if (has_witness())
        assert_in_range(now + WITNESS_NOISE, wanted, wanted + 2 * WITNESS_NOISE);
}

/* The tests
 * --------------------------------------------------------------------------------------------------------- */

static void the_device_first_and_no_context(void **state)
{
    (void)state;
    weir_hardware *hardware;
    uint64_t before = used();
    ok(weir_hardware_create(NULL, &hardware));
    weir_hardware_device device = *device_of(hardware);
    weir_hardware_destroy(hardware);
    assert_true(device.free != WEIR_BYTES_UNKNOWN && device.free <= device.total);
    assert_in_range(snprintf(key, sizeof key, "%s", device.key), 1, sizeof key - 1);
    weir_choice *choice = choose();
    assert_int_equal(choice->accepted, 2);
    assert_string_equal(choice->candidates[0].provider, "cuda");
    assert_string_equal(choice->candidates[0].runtime, "cuda:0");
    assert_string_equal(choice->candidates[0].device, device.key);
    assert_string_equal(choice->candidates[1].provider, "cpu");
    total = device.total;
    obtainable = choice->candidates[0].obtainable;
    /* What is free, less a tenth or 512 MiB; others may come and go. */
    uint64_t margin = device.free / 10 > 512 * MIB ? device.free / 10 : 512 * MIB;
    assert_in_range(obtainable, device.free - margin - WITNESS_NOISE, device.free - margin + WITNESS_NOISE);
    weir_choice_destroy(choice);
    used_is(before);
}

static void what_a_manifest_requires(void **state)
{
    (void)state;
    weir_requirements *r = &manifest.requirements;
    weir_hardware *hardware;
    ok(weir_hardware_create(NULL, &hardware));
    weir_version_number newest = device_of(hardware)->driver_runtime;
    weir_hardware_destroy(hardware);
    r->min_vram = obtainable + (total - obtainable) / 2; /* less than it has, more than can be had */
    only_the_processor(WEIR_VERDICT_LITTLE_VRAM);
    r->min_vram = 0;
    assert_true(newest.count > 0);
    r->min_cuda_version = newest;
    weir_choice *choice = choose();
    assert_int_equal(verdict_of_cuda(choice), WEIR_VERDICT_ACCEPTED);
    weir_choice_destroy(choice);
    r->min_cuda_version.part[0]++;
    only_the_processor(WEIR_VERDICT_OLD_CUDA);
    r->min_cuda_version.count = 0;
    asked.device = "cuda:99";
    choice = choose();
    assert_int_equal(choice->accepted, 0);
    weir_choice_destroy(choice);
    asked.device = NULL;
    asked.provider = "tensorrt";
    choice = choose();
    assert_int_equal(choice->accepted, 1);
    assert_string_equal(choice->candidates[0].provider, "tensorrt");
    weir_choice_destroy(choice);
    asked.provider = NULL;
}

static void what_is_explained_is_loaded(void **state)
{
    (void)state;
    on_device.predicted = on_device.taken = obtainable / 4 / MIB * MIB;
    weir_choice *choice = choose();
    ok(weir_model_create_chosen(&manifest, &opening, &resident));
    weir_record record = WEIR_INIT(weir_record);
    ok(weir_model_record(resident, &record));
    assert_int_equal(record.attempt_count, 1);
    assert_string_equal(record.attempts[0].engine, choice->candidates[0].engine);
    assert_string_equal(record.attempts[0].provider, choice->candidates[0].provider);
    assert_string_equal(record.attempts[0].device, choice->candidates[0].device);
    assert_string_equal(record.choice->rule, choice->rule);
    assert_int_equal(choice->candidates[0].bytes[WEIR_CLASS_WEIGHTS], on_device.taken);
    weir_choice_destroy(choice);
    runtime = client_details(weir_model_client(resident)).runtime;
    assert_string_equal(runtime_details(runtime).device, "cuda:0");
    assert_int_equal(ledger().device.live, on_device.taken);
    used_before = used();
    if (has_witness() && witness_is_real())
        assert_true(used_before >= on_device.taken + WITNESS_CONTEXT);
    /* The next one sees so much less. */
    choice = choose();
    assert_int_equal(choice->accepted, 2);
    assert_true(choice->candidates[0].obtainable + on_device.taken <= obtainable + obtainable / 8);
    weir_choice_destroy(choice);
}

static void no_room_is_the_processor(void **state)
{
    (void)state;
    weir_model *model = NULL;
    snapshot before = ledger();
    on_device.predicted = on_device.taken = obtainable;
    only_the_processor(WEIR_VERDICT_LITTLE_VRAM);
    notices = 0;
    ok(weir_model_create_chosen(&manifest, &opening, &model));
    weir_record record = WEIR_INIT(weir_record);
    ok(weir_model_record(model, &record));
    assert_true(record.on_cpu_unasked);
    assert_int_equal(notices, 1);
    same_ledger(&before);
    ok(weir_model_destroy(model));
    asked.no_cpu = true;
    fails(WEIR_ERR_UNSUPPORTED, weir_model_create_chosen(&manifest, &opening, &model));
    asked.no_cpu = false;
    same_ledger(&before);
}

/* It was said to need little: the load finds out, and the processor takes it. */
static void a_load_that_finds_no_room(void **state)
{
    (void)state;
    weir_model *model;
    snapshot before = ledger();
    on_device.predicted = SMALL;
    on_device.taken = runtime_details(runtime).budget;
    ok(weir_model_create_chosen(&manifest, &opening, &model));
    weir_record record = WEIR_INIT(weir_record);
    ok(weir_model_record(model, &record));
    assert_int_equal(record.attempt_count, 2);
    assert_string_equal(record.attempts[0].provider, "cuda");
    assert_int_equal(record.attempts[0].stage, WEIR_STAGE_LOAD);
    assert_int_equal(record.attempts[0].status, WEIR_ERR_OUT_OF_MEMORY);
    assert_string_equal(record.attempts[1].provider, "cpu");
    assert_int_equal(record.attempts[1].status, WEIR_OK);
    same_ledger(&before);
    ok(weir_model_destroy(model));
    opening.no_fallback = true;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_model_create_chosen(&manifest, &opening, &model));
    opening.no_fallback = false;
    same_ledger(&before);
}

static void a_run_that_finds_no_room(void **state)
{
    (void)state;
    weir_model *model;
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    snapshot before = ledger();
    on_device.predicted = on_device.taken = SMALL;
    on_device.scratch = runtime_details(runtime).budget;
    ok(weir_model_create_chosen(&manifest, &opening, &model));
    assert_int_equal(ledger().device.live, before.device.live + SMALL);
    ok(weir_model_infer(model, &inference, &out));
    weir_model_release_outputs(model, &out);
    weir_record record = WEIR_INIT(weir_record);
    ok(weir_model_record(model, &record));
    assert_int_equal(record.attempts[0].stage, WEIR_STAGE_FIRST_RUN);
    assert_int_equal(record.attempts[0].status, WEIR_ERR_OUT_OF_MEMORY);
    assert_string_equal(runtime_details(client_details(weir_model_client(model)).runtime).device, "host");
    same_ledger(&before);
    ok(weir_model_destroy(model));
    same_ledger(&before);
}

/* By NVML's word, too: what these tests have taken is back, and then what the first model had. */
static void the_device_is_as_it_was(void **state)
{
    (void)state;
    uint64_t was = ledger().device.live;
    ok(weir_runtime_trim(runtime, NULL, NULL));
    used_is(used_before);
    ok(weir_model_destroy(resident));
    ok(weir_runtime_trim(runtime, NULL, NULL));
    snapshot now = ledger();
    assert_int_equal(now.device.live + now.device.pending + now.device.clients + now.device.held, 0);
    if (witness_is_real())
        used_is(used_before - was);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_first_and_no_context), cmocka_unit_test(what_a_manifest_requires),
        cmocka_unit_test(what_is_explained_is_loaded),     cmocka_unit_test(no_room_is_the_processor),
        cmocka_unit_test(a_load_that_finds_no_room),       cmocka_unit_test(a_run_that_finds_no_room),
        cmocka_unit_test(the_device_is_as_it_was),
    };
    const char *device = getenv("WEIR_TEST_DEVICE");
    if (!device || strcmp(device, "cuda:0") != 0) {
        const char *required = getenv("WEIR_REQUIRE_CUDA");
        printf("skipped: WEIR_TEST_DEVICE names no device of CUDA's\n");
        return required && strcmp(required, "1") == 0 ? 1 : 77;
    }
    setenv("CUDA_VISIBLE_DEVICES", "0", 1); /* one is enough */
    char path[] = "/tmp/weir-choice-XXXXXX.double";
    int file = mkstemps(path, 7);
    assert_true(file >= 0 && write(file, "x", 1) == 1 && close(file) == 0);
    manifest = (weir_manifest){.struct_size = sizeof manifest, .path = "", .model_file = path};
    asked = (weir_choice_options){.struct_size = sizeof asked};
    opening = (weir_opening_options){.struct_size = sizeof opening, .choice = &asked, .notice = count_notice};
    on_device.predicted = on_device.taken = on_device.scratch = SMALL;
    ok(weir_option_set("engine_path", "/nowhere"));
    ok(weir_option_set("home", "/dev/null/nowhere"));
    ok(weir_option_set("wait", "0"));
    ok(weir_engine_register(&engine));
    int failed = cmocka_run_group_tests_name("choice-gpu", tests, NULL, NULL);
    unlink(path);
    return failed;
}
