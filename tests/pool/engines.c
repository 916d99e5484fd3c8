/* Three models of the real engines change places in a pool whose budget is for two of them, and answer the same, bit by bit,
 * as each alone.
 *
 *   test-pool-engines [SWITCHES] */
#include "residency/models.h"

#include <weir/pool.h>

#include <stdatomic.h>

static int switches = 15;

static const weir_setting one_thread[] = {{"threads", "1"}};
static const sample minilm = {"minilm.onnx", "onnx", .has_ids = true, .load = one_thread, .load_count = 1};
static const sample embeds = {"minilm.gguf", "gguf", .load = one_thread, .load_count = 1};
static const sample llama = {"tiny-llama.gguf", "gguf", .generates = true, .load = one_thread, .load_count = 1};
static const sample *const samples[] = {&minilm, &embeds, &llama};
enum { MODELS = 3, REQUESTS = 3 };

static const sample *sample_here(const sample *it)
{
    char path[512];
    const weir_engine *engine;
    snprintf(path, sizeof path, "%s/%s", STORED(""), it->name);
    if (weir_engine_get(it->engine, &engine) != WEIR_OK || !is_stored(path))
        skip();
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    ok(engine->probe(&probe));
    if (!probe.available)
        skip();
    return it;
}

/* What each answers alone, and the most that it takes then. */
static uint64_t answers_of(const sample *it, answer *out)
{
    weir_runtime *runtime = make_runtime(1024 * MIB);
    weir_model *model = load_sample(runtime, sample_here(it));
    for (unsigned i = 0; i < REQUESTS; i++)
        out[i] = answer_of(model, it, i);
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(weir_model_client(model), &stats));
    ok(weir_model_destroy(model));
    ok(weir_runtime_destroy(runtime));
    return stats.peak;
}

static void add_sample(weir_pool *pool, const sample *it, bool stays)
{
    char path[512];
    weir_pool_spec spec = WEIR_INIT(weir_pool_spec);
    snprintf(path, sizeof path, "%s/%s", STORED(""), it->name);
    spec.name = it->name;
    spec.path = path;
    spec.settings = it->load;
    spec.setting_count = it->load_count;
    spec.minimum_stay = WEIR_POOL_NONE;
    spec.stays = stays;
    spec.evict_cost = stays ? 0 : 10000000000; /* small models are read again as soon as they are resumed */
    ok(weir_pool_add(pool, &spec));
}

static void use_sample(weir_pool *pool, const sample *it, unsigned seed, uint64_t bytes, const answer *wanted)
{
    weir_pool_request request = WEIR_INIT(weir_pool_request);
    weir_lease *lease;
    request.name = it->name;
    request.bytes = bytes;
    ok(weir_pool_acquire(pool, &request, NULL, &lease));
    same_answer(weir_lease_model(lease), it, seed, wanted);
    weir_lease_release(lease);
}

static void change_places(bool stays)
{
    answer wanted[MODELS][REQUESTS];
    uint64_t most[MODELS], largest = 0, all = 0;
    weir_pool_entry entries[MODELS];
    size_t count;
    for (int i = 0; i < MODELS; i++) {
        most[i] = answers_of(samples[i], wanted[i]);
        largest = most[i] > largest ? most[i] : largest;
        all += most[i];
    }
    uint64_t budget = all - largest + 24 * MIB; /* the two smaller ones, with a request, and never all */
    assert_true(budget < all && budget > largest + 8 * MIB);
    weir_runtime *runtime = make_runtime(budget);
    weir_pool_device device = {"host", runtime};
    weir_pool_options options = WEIR_INIT(weir_pool_options);
    weir_pool *pool;
    options.devices = &device;
    options.device_count = 1;
    ok(weir_pool_create(&options, &pool));
    for (int i = 0; i < MODELS; i++)
        add_sample(pool, samples[i], stays);
    for (int i = 0; i < switches; i++) {
        const sample *it = samples[i % MODELS];
        unsigned seed = (unsigned)(i / MODELS) % REQUESTS;
        use_sample(pool, it, seed, 8 * MIB, &wanted[i % MODELS][seed]);
        snapshot s = take_snapshot(runtime);
        check_sums(&s);
        assert_true(s.device.held <= budget);
    }
    entries[0].struct_size = sizeof *entries;
    ok(weir_pool_list(pool, entries, MODELS, &count));
    uint64_t loads = 0, resumes = 0;
    for (int i = 0; i < MODELS; i++) {
        print_message("%s: predicted %llu, measured %llu; %llu loads, %llu resumes\n", entries[i].name,
                      (unsigned long long)entries[i].predicted_peak, (unsigned long long)entries[i].measured_peak,
                      (unsigned long long)entries[i].loads, (unsigned long long)entries[i].resumes);
        loads += entries[i].loads;
        resumes += entries[i].resumes;
    }
    assert_true(loads + resumes > MODELS + (uint64_t)switches / 6); /* they do change places */
    assert_true(stays ? resumes == 0 : loads == MODELS);
    ok(weir_pool_destroy(pool));
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
    for (int i = 0; i < MODELS; i++)
        for (int k = 0; k < REQUESTS; k++)
            free(wanted[i][k].bytes);
}

static void by_suspending(void **state)
{
    (void)state;
    change_places(false);
}

static void by_unloading(void **state)
{
    (void)state;
    change_places(true);
}

/* A manifest's model is on the process's runtime. */
static void a_manifest(void **state)
{
    char path[512];
    weir_manifest manifest = WEIR_INIT(weir_manifest);
    weir_pool_spec spec = WEIR_INIT(weir_pool_spec);
    weir_pool *pool;
    answer wanted[REQUESTS];
    weir_pool_entry entry = WEIR_INIT(weir_pool_entry);
    (void)state;
    (void)answers_of(&minilm, wanted);
    snprintf(path, sizeof path, "%s/%s", STORED(""), minilm.name);
    manifest.model_file = path;
    manifest.name = "encoder";
    manifest.version = "7";
    manifest.settings = one_thread;
    manifest.setting_count = 1;
    spec.manifest = &manifest;
    ok(weir_pool_create(NULL, &pool));
    ok(weir_pool_add(pool, &spec));
    ok(weir_pool_list(pool, &entry, 1, NULL));
    assert_string_equal(entry.name, "encoder");
    assert_string_equal(entry.version, "7");
    assert_true(entry.predicted_peak > 80 * MIB);
    sample called = minilm;
    called.name = "encoder";
    for (unsigned i = 0; i < REQUESTS; i++)
        use_sample(pool, &called, i, 0, &wanted[i]);
    weir_pool_receipt receipt = WEIR_INIT(weir_pool_receipt);
    ok(weir_pool_unload(pool, "encoder", 0, &receipt));
    assert_true(receipt.complete);
    use_sample(pool, &called, 0, 0, &wanted[0]);
    ok(weir_pool_destroy(pool));
    for (int k = 0; k < REQUESTS; k++)
        free(wanted[k].bytes);
    weir_runtime *runtime = make_runtime(1024 * MIB);
    weir_pool_device device = {"host", runtime};
    weir_pool_options options = WEIR_INIT(weir_pool_options);
    options.devices = &device;
    options.device_count = 1;
    ok(weir_pool_create(&options, &pool));
    fails(WEIR_ERR_UNSUPPORTED, weir_pool_add(pool, &spec));
    ok(weir_pool_destroy(pool));
    ok(weir_runtime_destroy(runtime));
}

/* Stopped when its engine asks for the nth time, each n up to the last: nothing of it is left, and it can be loaded. */
static bool stop_at(void *user)
{
    return --*(atomic_int *)user <= 0;
}

static void a_load_is_stopped(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        const sample *it = sample_here(samples[i]);
        char path[512];
        weir_runtime *runtime = make_runtime(1024 * MIB);
        weir_model *model = NULL;
        int stopped = 0, before = 1;
        snprintf(path, sizeof path, "%s/%s", STORED(""), it->name);
        for (; !model; before *= 3) {
            atomic_int left = before;
            weir_model_options options = WEIR_INIT(weir_model_options);
            options.runtime = runtime;
            options.stops = stop_at;
            options.progress_user = &left;
            weir_status status = weir_model_create(path, &options, &model);
            if (status == WEIR_OK)
                break;
            assert_int_equal(status, WEIR_ERR_CANCELLED);
            check_empty(runtime);
            assert_int_equal(take_snapshot(runtime).count, 0);
            stopped++;
        }
        assert_true(stopped > 0);
        ok(weir_model_destroy(model));
        ok(weir_runtime_destroy(runtime));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_suspending), cmocka_unit_test(by_unloading),
                                       cmocka_unit_test(a_manifest), cmocka_unit_test(a_load_is_stopped)};
    if (argc > 1)
        switches = atoi(argv[1]);
    return cmocka_run_group_tests_name("pool-engines", tests, NULL, NULL);
}
