/* cores.c: steps compute with leased cores, alone and together; a reader holds none, and a cancel ends a wait for them. */
#include "common.h"
#include "folders.h"

#include <weir/cores.h>

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "onnx/bridge/api.h"

enum { LENGTH = 12, MADE = 8 };

static const weir_setting greedy[] = {{"tokens", "8"}, {"temperature", "0"}, {"ignore_eos", "1"}};
static const weir_setting together[] = {{"sequences", "3"}};
static int32_t prompt[LENGTH];

static weir_cores_totals totals(void)
{
    weir_cores_totals now = {.struct_size = sizeof now};
    OK(weir_cores_info(&now));
    return now;
}

static weir_cores_stats line(size_t index)
{
    weir_cores_stats now = {.struct_size = sizeof now};
    OK(weir_cores_look(index, &now));
    return now;
}

static void until(bool (*there)(void))
{
    while (!there())
        sched_yield();
}

static bool one_waits(void)
{
    return totals().waiting == 1;
}

/* The thread of a model that decodes several gives them back when it rests, behind the end of its last run. */
static bool none_is_leased(void)
{
    return totals().leased == 0;
}

/* Alone (0), and by the model's own thread (1). */
static bench open_one(size_t several)
{
    bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
    OK(weir_option_set("cores", "2"));
    OK(bench_load(&it, together, several));
    return it;
}

typedef struct reader {
    int pieces, held;
} reader;

static bool on_piece(const weir_piece *piece, void *user)
{
    reader *it = user;
    (void)piece;
    it->held += totals().leased > 0;
    it->pieces++;
    return true;
}

static void test_a_model_leases_its_threads(void **state)
{
    (void)state;
    for (size_t several = 0; several < 2; several++) {
        bench it = open_one(several);
        weir_tensor input = token_input(prompt, LENGTH);
        weir_inference inference = inference_of(&input, greedy, 3);
        weir_outputs outputs = WEIR_INIT(weir_outputs);
        reader its = {0};
        OK(it.engine->infer_stream(it.model, &inference, on_piece, &its, &outputs));
        assert_int_equal(its.pieces, MADE);
        assert_true(several || its.held == 0);
        until(none_is_leased);
        assert_string_equal(line(0).name, "model");
        assert_int_equal(line(0).least, 2);
        assert_int_equal(line(0).most, 2);
        assert_int_equal(line(0).last, 2);
        assert_true(line(0).leases > 0);
        release(&it, &outputs);
        bench_close(&it);
        assert_int_equal(totals().lines, 0);
    }
}

/* Without a reader there is nothing to wait for, and no other model's turn in between. */
static void test_a_run_without_a_reader_has_one_lease(void **state)
{
    (void)state;
    bench it = open_one(0);
    weir_tensor input = token_input(prompt, LENGTH);
    for (uint64_t i = 1; i <= 2; i++) {
        weir_outputs outputs;
        OK(infer(&it, &input, greedy, 3, &outputs));
        assert_int_equal(output_named(&outputs, "tokens")->shape[0], MADE);
        assert_int_equal(line(0).leases, i);
        assert_true(none_is_leased());
        release(&it, &outputs);
    }
    bench_close(&it);
}

static void test_a_setting_says_how_many(void **state)
{
    (void)state;
    bench it = bench_open(the_model(SHARED)); /* with one thread */
    assert_int_equal(line(0).least, 1);
    assert_int_equal(line(0).most, 1);
    bench_close(&it);
}

/* The setting, else the model's config, else the process's cores. */
static void test_who_says_how_many(void **state)
{
    (void)state;
    char path[FOLDER_NAME];
    static const char *const asked[] = {"0", "1", "4"};
    folder_copy(the_model(SHARED), path);
    OK(weir_option_set("cores", "2"));
    for (int config = 0; config < 2; config++) {
        for (int i = 0; i < 3; i++) {
            const weir_setting load[] = {{"threads", asked[i]}};
            bench it = bench_on(path, 1ull << 30, NULL);
            OK(bench_load(&it, load, 1));
            uint32_t expected = i > 0 ? (uint32_t)atoi(asked[i]) : config ? 3 : 2;
            assert_int_equal(line(0).least, expected);
            assert_int_equal(line(0).most, expected);
            bench_close(&it);
        }
        if (config == 0)
            folder_replace(path, "genai_config.json", "\"session_options\": {",
                           "\"session_options\": {\"intra_op_num_threads\": 3, ");
    }
    folder_drop(path);
}

/* ---- what ONNX Runtime is told ----------------------------------------------------------------------------------- */

static ort_status *(*real_entry)(ort_session_options *options, const char *key, const char *value);
static int rests, short_spins;

static ort_status *noted_entry(ort_session_options *options, const char *key, const char *value)
{
    rests += strcmp(key, "session.force_spinning_stop") == 0 && strcmp(value, "1") == 0;
    short_spins += strcmp(key, "session.intra_op.spin_duration_us") == 0 && strcmp(value, "50") == 0;
    return real_entry(options, key, value);
}

static int find_runtime(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    if (strstr(info->dlpi_name, "libonnxruntime.so"))
        *(const char **)user = info->dlpi_name;
    return 0;
}

/* The table of the ONNX Runtime that the engine has opened. */
static ort_api *table_of_runtime(void)
{
    const ort_base *(*base)(void);
    const char *path = NULL;
    dl_iterate_phdr(find_runtime, &path);
    assert_non_null(path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(handle);
    *(void **)&base = dlsym(handle, "OrtGetApiBase");
    assert_non_null(base);
    return (ort_api *)(uintptr_t)base()->GetApi(ORT_API_WANTED);
}

static void make_writable(ort_api *table)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)table & ~(page - 1);
    assert_int_equal(mprotect((void *)from, (uintptr_t)(table + 1) - from, PROT_READ | PROT_WRITE), 0);
}

/* Threads that wait for work by spinning would do so on cores that are another model's by then. */
static void test_threads_sleep_between_steps(void **state)
{
    (void)state;
    bench it = open_one(0); /* which opens ONNX Runtime */
    ort_api *table = table_of_runtime();
    bench_close(&it);
    make_writable(table);
    real_entry = table->AddSessionConfigEntry;
    table->AddSessionConfigEntry = noted_entry;
    it = open_one(0);
    table->AddSessionConfigEntry = real_entry;
    bench_close(&it);
    assert_int_equal(rests, 1);
    assert_int_equal(short_spins, 1);
}

/* ------------------------------------------------------------------------------------------------------------------ */

typedef struct asker {
    const bench *it;
    weir_status status;
    pthread_t thread;
} asker;

static void *ask(void *user)
{
    asker *it = user;
    weir_tensor input = token_input(prompt, LENGTH);
    weir_outputs outputs;
    it->status = infer(it->it, &input, greedy, 3, &outputs);
    if (it->status == WEIR_OK)
        release(it->it, &outputs);
    return NULL;
}

static void test_a_run_that_waits_for_cores_can_be_cancelled(void **state)
{
    (void)state;
    for (size_t several = 0; several < 2; several++)
        for (int cancelled = 0; cancelled < 2; cancelled++) {
            bench it = open_one(several);
            asker its = {.it = &it};
            weir_cores *here;
            uint32_t cores;
            OK(weir_cores_open("here", 2, 2, &here));
            OK(weir_cores_take(here, NULL, NULL, &cores));
            assert_int_equal(pthread_create(&its.thread, NULL, ask, &its), 0);
            until(one_waits);
            if (cancelled)
                OK(it.engine->cancel(it.model, 0));
            else
                weir_cores_give(here);
            pthread_join(its.thread, NULL);
            assert_int_equal(its.status, cancelled ? WEIR_ERR_CANCELLED : WEIR_OK);
            if (cancelled)
                weir_cores_give(here);
            until(none_is_leased);
            weir_cores_close(here);
            bench_close(&it);
        }
}

static bool take_and_stop(const weir_piece *piece, void *user)
{
    uint32_t cores;
    (void)piece;
    OK(weir_cores_take(user, NULL, NULL, &cores));
    return false;
}

/* Another model computes, so that there are no cores for a step that nobody wants. */
static void test_a_reader_that_wants_no_more_waits_for_no_cores(void **state)
{
    (void)state;
    static const weir_setting many[] = {{"tokens", "200"}, {"temperature", "0"}, {"ignore_eos", "1"}};
    for (size_t several = 0; several < 2; several++) {
        bench it = open_one(several);
        weir_tensor input = token_input(prompt, LENGTH);
        weir_inference inference = inference_of(&input, many, 3);
        weir_outputs outputs = WEIR_INIT(weir_outputs);
        weir_cores *here;
        OK(weir_cores_open("here", 2, 2, &here));
        OK(it.engine->infer_stream(it.model, &inference, take_and_stop, here, &outputs));
        assert_int_equal(output_named(&outputs, "tokens")->bytes, sizeof(int32_t));
        weir_cores_give(here);
        release(&it, &outputs);
        weir_cores_close(here);
        bench_close(&it);
    }
}

int main(void)
{
    fill_prompt(prompt, LENGTH, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_leases_its_threads),
        cmocka_unit_test(test_a_run_without_a_reader_has_one_lease),
        cmocka_unit_test(test_a_setting_says_how_many),
        cmocka_unit_test(test_who_says_how_many),
        cmocka_unit_test(test_threads_sleep_between_steps),
        cmocka_unit_test(test_a_run_that_waits_for_cores_can_be_cancelled),
        cmocka_unit_test(test_a_reader_that_wants_no_more_waits_for_no_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
