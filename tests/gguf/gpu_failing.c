/* gpu_failing.c: the gguf engine on CUDA where memory is refused, at every place where it asks: a load fails and leaves
 * nothing, a run fails or goes on, the process lives, and models beside it do not notice. The stub of CUDA's libraries has a
 * device that is full when the test says so (stub/cuda/control.h); on a GPU the others of the tests run. */
#include "rig.h"
#include "stub/cuda/control.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { OUT_OF_MEMORY = 2 };

static char llama_path[64];
static const variant plain_one = {"-1", "auto", "f16", "f16"};
static void (*plant)(const char *function, int nth, int code);
static void (*take_device)(int device, uint64_t bytes);
static uint64_t (*counted)(const char *what);

/* ---- what the log says ------------------------------------------------------------------------------------------- */

static atomic_int overruns, refusals;
static char last_overrun[512];

static void on_log(weir_log_level level, const char *text, void *user)
{
    (void)user;
    if (getenv("FAILING_VERBOSE"))
        fprintf(stderr, "  log %d: %s\n", level, text);
    if (strstr(text, "past the budget")) {
        overruns++;
        snprintf(last_overrun, sizeof last_overrun, "%s", text);
    }
    refusals += strstr(text, " asked ") != NULL;
}

/* ---- a model beside another --------------------------------------------------------------------------------------- */

static rig beside(const rig *its, const char *name)
{
    rig other = *its;
    weir_client_options named = WEIR_INIT(weir_client_options);
    named.name = name;
    other.model = NULL;
    OK(weir_client_create(its->it.runtime, &named, &other.it.client));
    return other;
}

static weir_status load_it(rig *its, const variant *v, const char *sequences)
{
    weir_setting settings[SETTINGS];
    size_t count = settings_of(v, "512", settings);
    settings[count++] = (weir_setting){"sequences", sequences};
    settings[count++] = (weir_setting){"cache_memory", "whole"};
    return bench_load(&its->it, settings, count, &its->model);
}

static weir_status ask_short(const rig *its, int prompt, int made)
{
    int32_t tokens[CONTEXT];
    char words[16];
    snprintf(words, sizeof words, "%d", made);
    const weir_setting settings[] = {{"tokens", words}, {"temperature", "0"}, {"ignore_eos", "1"}};
    fill_prompt(tokens, prompt, 1);
    weir_tensor input = token_input(tokens, 0, prompt);
    weir_inference inference = inference_of(&input, settings, 3);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_status status = its->it.engine->infer(its->model, &inference, &outputs);
    if (status == WEIR_OK)
        its->it.engine->release_outputs(its->model, &outputs);
    return status;
}

/* Unloads, and every byte of it is back at once. */
static void unload_it(rig *its)
{
    its->it.engine->unload(its->model);
    its->model = NULL;
    assert_int_equal(stats_of(&its->it).live, 0);
}

typedef struct talker {
    const rig *its;
    atomic_bool stop;
    int asked, failed;
} talker;

static void *talk(void *user)
{
    talker *it = user;
    while (!atomic_load(&it->stop)) {
        it->asked++;
        it->failed += ask_short(it->its, 8 + it->asked % 3, 6) != WEIR_OK;
    }
    return NULL;
}

/* Frees wait while the other model's stream is captured; an unload is over when they are done. */
static void test_a_model_unloaded_while_another_decodes_leaves_nothing(void **state)
{
    enum { ROUNDS = 12 };
    (void)state;
    pthread_t thread;
    rig its = rig_open(llama_path, 1ull << 30), other = beside(&its, "other");
    talker it = {.its = &its};
    OK(load_it(&its, &plain_one, "1"));
    assert_int_equal(pthread_create(&thread, NULL, talk, &it), 0);
    for (int i = 0; i < ROUNDS; i++) {
        OK(load_it(&other, &plain_one, "1"));
        OK(ask_short(&other, 8, 4));
        unload_it(&other);
    }
    atomic_store(&it.stop, true);
    pthread_join(thread, NULL);
    assert_true(it.asked > 0);
    assert_int_equal(it.failed, 0);
    OK(weir_client_destroy(other.it.client));
    unload_it(&its);
    rig_close(&its);
}

/* ---- the driver refuses ------------------------------------------------------------------------------------------- */

/* Ends the test's runtimes; nothing is left of them on the device. */
static void close_it(rig *its)
{
    rig_close(its);
    if (!counted)
        return;
    assert_int_equal(counted("streams") + counted("allocations") + counted("pinned") + counted("handles"), 0);
    assert_int_equal(counted("captures broken"), 0);
}

static void test_each_request_of_a_load_is_refused_once(void **state)
{
    static const char *const functions[] = {"cuMemCreate", "cuMemAlloc", "cuMemHostAlloc"};
    enum { MOST = 20 };
    (void)state;
    for (int f = 0; f < 3; f++)
        for (int nth = 1; nth <= MOST; nth++) {
            rig its = rig_open(llama_path, 1ull << 30);
            uint64_t before = counted(functions[f]);
            plant(functions[f], nth, OUT_OF_MEMORY);
            weir_status status = load_it(&its, &plain_one, "1");
            if (status == WEIR_OK) {
                OK(ask_short(&its, 8, 4));
                its.it.engine->unload(its.model);
            } else {
                assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
            }
            bool came = counted(functions[f]) - before >= (uint64_t)nth;
            plant(functions[f], 0, 0);
            close_it(&its);
            if (!came)
                break;
        }
}

/* ---- the device is full ------------------------------------------------------------------------------------------- */

enum { TOTAL = 1 << 30, MIB = 1 << 20 };

/* Another process takes all but so much of what is free. */
static void leave(uint64_t room)
{
    take_device(0, 0);
    uint64_t used = counted("used");
    take_device(0, used + room < TOTAL ? TOTAL - used - room : 0);
}

typedef struct filling {
    double at;
    uint64_t left;
    bool done;
} filling;

static void fill_up(double fraction, void *user)
{
    filling *it = user;
    if (fraction < it->at || it->done)
        return;
    it->done = true;
    leave(it->left);
}

static void test_a_device_that_fills_up_during_a_load_refuses_it(void **state)
{
    enum { STEPS = 25 };
    static const double places[] = {0.0, 0.5, 0.94};
    (void)state;
    int refused = 0, loaded = 0;
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < STEPS; i++) {
            filling it = {places[p], (uint64_t)i * 3 * MIB, false};
            rig its = rig_open(llama_path, 1ull << 30);
            its.it.load.progress = fill_up;
            its.it.load.progress_user = &it;
            weir_status status = load_it(&its, &plain_one, "1");
            if (status == WEIR_OK) {
                OK(ask_short(&its, 200, 20));
                its.it.engine->unload(its.model);
                loaded++;
            } else {
                assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
                refused++;
            }
            take_device(0, 0);
            close_it(&its);
        }
    print_message("%d refused, %d loaded\n", refused, loaded);
    assert_true(refused > 0 && loaded > 0);
}

/* ---- runs that need scratch --------------------------------------------------------------------------------------- */

typedef struct guest {
    const rig *its;
    int prompt;
    pthread_barrier_t *start;
    weir_status status;
    char detail[512];
} guest;

static void *visit(void *user)
{
    guest *it = user;
    pthread_barrier_wait(it->start);
    it->status = ask_short(it->its, it->prompt, 8);
    snprintf(it->detail, sizeof it->detail, "%s", it->status == WEIR_OK ? "" : weir_detail());
    return NULL;
}

static void all_at_once(const rig *its, guest *guests, int count)
{
    pthread_t threads[8];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        guests[i] = (guest){.its = its, .prompt = 40, .start = &start};
        assert_int_equal(pthread_create(&threads[i], NULL, visit, &guests[i]), 0);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&start);
}

/* Several sequences with long caches take more than one does, which is what is measured at load. */
static void test_a_run_without_room_for_scratch_goes_on_past_the_budget(void **state)
{
    enum { RUNS = 4, ROUNDS = 5 };
    (void)state;
    guest guests[RUNS];
    variant off = {"-1", "off", "f16", "f16"};
    rig its = rig_open(llama_path, 1ull << 30);
    OK(load_it(&its, &off, "4"));
    weir_client_stats now = stats_of(&its.it);
    OK(weir_client_set_limits(its.it.client, 0, now.live + now.pending + now.promised));
    assert_int_equal(now.outside, 0);
    overruns = 0;
    for (int k = 0; k < ROUNDS; k++) {
        all_at_once(&its, guests, RUNS);
        for (int i = 0; i < RUNS; i++)
            assert_int_equal(guests[i].status, WEIR_OK);
    }
    assert_true(overruns > 0);
    assert_non_null(strstr(last_overrun, "model asked for"));
    weir_client_stats after = stats_of(&its.it);
    assert_int_equal(after.live, now.live);
    assert_true(after.outside > 0);
    assert_non_null(strstr(after.outside_method, "past the budget"));
    unload_it(&its);
    assert_int_equal(stats_of(&its.it).outside, 0);
    close_it(&its);
}

/* Neither the budget nor the device has anything left. */
static void test_a_model_that_fails_in_a_decode_is_broken_and_its_neighbour_goes_on(void **state)
{
    enum { RUNS = 4, MOST = 20 };
    (void)state;
    guest guests[RUNS];
    int failed = 0;
    variant off = {"-1", "off", "f16", "f16"};
    rig its = rig_open(llama_path, 1ull << 30), other = beside(&its, "other");
    OK(load_it(&its, &off, "4"));
    OK(load_it(&other, &plain_one, "1"));
    OK(ask_short(&other, 40, 4));
    weir_client_stats now = stats_of(&its.it);
    OK(weir_client_set_limits(its.it.client, 0, now.live + now.pending + now.promised));
    leave(0);
    for (int k = 0; k < MOST && failed == 0; k++) {
        all_at_once(&its, guests, RUNS);
        for (int i = 0; i < RUNS; i++)
            failed += guests[i].status == WEIR_ERR_ENGINE && strstr(guests[i].detail, "model asked for");
    }
    assert_true(failed > 0);
    assert_int_equal(its.it.engine->health(its.model), WEIR_ERR_ENGINE);
    assert_int_equal(ask_short(&its, 8, 4), WEIR_ERR_ENGINE);
    assert_non_null(strstr(weir_detail(), "load it again"));
    assert_true(stats_of(&its.it).live <= now.live); /* llama.cpp has looked in its pool */
    OK(other.it.engine->health(other.model));
    OK(ask_short(&other, 40, 4));
    unload_it(&its);
    OK(ask_short(&other, 40, 4));
    take_device(0, 0);
    OK(weir_client_set_limits(its.it.client, 0, 0));
    OK(load_it(&its, &off, "4"));
    OK(ask_short(&its, 40, 4));
    unload_it(&its);
    unload_it(&other);
    OK(weir_client_destroy(other.it.client));
    close_it(&its);
}

int main(int count, char **words)
{
    void *stub = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&plant = stub ? dlsym(stub, "stub_fail") : NULL;
    *(void **)&take_device = stub ? dlsym(stub, "stub_take") : NULL;
    *(void **)&counted = stub ? dlsym(stub, "stub_count") : NULL;
    snprintf(llama_path, sizeof llama_path, "/tmp/weir-failing-%d.gguf", (int)getpid());
    write_llama(llama_path, &gpu_shape);
    if (weir_log_set(on_log, NULL, WEIR_LOG_DEBUG) != WEIR_OK)
        return 1;
    const struct CMUnitTest with_stub[] = {
        cmocka_unit_test(test_a_model_unloaded_while_another_decodes_leaves_nothing),
        cmocka_unit_test(test_each_request_of_a_load_is_refused_once),
        cmocka_unit_test(test_a_device_that_fills_up_during_a_load_refuses_it),
        cmocka_unit_test(test_a_run_without_room_for_scratch_goes_on_past_the_budget),
        cmocka_unit_test(test_a_model_that_fails_in_a_decode_is_broken_and_its_neighbour_goes_on),
    };
    if (count > 1)
        cmocka_set_test_filter(words[1]);
    const struct CMUnitTest on_gpu[] = {with_stub[0], with_stub[3]};
    int failed = plant && take_device && counted ? cmocka_run_group_tests(with_stub, NULL, NULL)
                                                 : cmocka_run_group_tests(on_gpu, NULL, NULL);
    unlink(llama_path);
    return failed;
}
