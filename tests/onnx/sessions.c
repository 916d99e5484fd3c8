/* What settings do to sessions, seen at the calls that reach ONNX Runtime and at what comes of them; runs at a time. */
#include "watch.h"
#include <weir/engine.h>

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx/engine/foresee.h"
#include "onnx/engine/model.h"

static struct noted {
    int level, arena_off, pattern_off, fallback_off, ended;
    bool arena_key;
    uint64_t folds; /* bytes of one constant, at most */
    atomic_int now, most;
} noted;

static ort_status *note_level(ort_session_options *options, int level)
{
    noted.level = level;
    return real->SetSessionGraphOptimizationLevel(options, level);
}

static ort_status *note_arena(ort_session_options *options)
{
    noted.arena_off++;
    return real->DisableCpuMemArena(options);
}

static ort_status *note_pattern(ort_session_options *options)
{
    noted.pattern_off++;
    return real->DisableMemPattern(options);
}

static ort_status *note_entry(ort_session_options *options, const char *key, const char *value)
{
    noted.arena_key |= strstr(key, "mem_arena") != NULL;
    if (strcmp(key, "optimization.constant_folding_max_output_size_in_bytes") == 0)
        noted.folds = strtoull(value, NULL, 10);
    noted.fallback_off += strcmp(key, "session.disable_cpu_ep_fallback") == 0 && strcmp(value, "1") == 0;
    return real->AddSessionConfigEntry(options, key, value);
}

static ort_status *note_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                            const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                            size_t output_count, ort_value **outputs)
{
    int now = atomic_fetch_add(&noted.now, 1) + 1, most = atomic_load(&noted.most);
    while (now > most && !atomic_compare_exchange_weak(&noted.most, &most, now))
        ;
    usleep(20000);
    ort_status *status =
        real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
    atomic_fetch_sub(&noted.now, 1);
    return status;
}

static int note(void **state)
{
    (void)watch(state);
    watched.SetSessionGraphOptimizationLevel = note_level;
    watched.DisableCpuMemArena = note_arena;
    watched.DisableMemPattern = note_pattern;
    watched.AddSessionConfigEntry = note_entry;
    watched.Run = note_run;
    memset(&noted, 0, sizeof noted);
    return 0;
}

static void load_and_go(const char *setting)
{
    loaded l = load_model("folded", (const char *const[]){setting, NULL});
    unload_model(&l);
    close_client(&l);
}

/* D25: "all", "99" and "3" are all that there is, and not ONNX Runtime's third level. */
static void levels_have_their_names(void **state)
{
    (void)state;
    static const struct {
        const char *setting;
        int level;
    } levels[] = {{"optimization=disable", 0}, {"optimization=0", 0},        {"optimization=basic", 1},
                  {"optimization=1", 1},       {"optimization=extended", 2}, {"optimization=2", 2},
                  {"optimization=layout", 3},  {"optimization=all", 99},     {"optimization=3", 99},
                  {"optimization=99", 99}};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        noted.level = -1;
        load_and_go(levels[i].setting);
        assert_int_equal(noted.level, levels[i].level);
    }
}

static void core_ml_gets_basic(void **state)
{
    (void)state;
    onnx_settings read;
    const weir_setting all[] = {{"provider", "coreml"}, {"optimization", "all"}};
    assert_ok(onnx_settings_read(all, 2, false, NULL, &read));
    assert_int_equal(read.optimization, 1);
    const weir_setting none[] = {{"provider", "metal"}, {"optimization", "disable"}};
    assert_ok(onnx_settings_read(none, 2, false, NULL, &read));
    assert_int_equal(read.optimization, 0);
}

/* D24: off is ONNX Runtime's own call for it, no key that nobody reads; on would do nothing, as its arena is not used. */
static void the_cpu_arena_is_off(void **state)
{
    (void)state;
    load_and_go("cpu_arena=off");
    assert_true(noted.arena_off > 0); /* of each session that was tried */
    assert_false(noted.arena_key);
    loaded l = open_client(0);
    assert_status(load_into(&l, "folded", (const char *const[]){"cpu_arena=on", NULL}), WEIR_ERR_INVALID);
    assert_detail("the client's memory is in its place");
    close_client(&l);
}

static uint64_t size_of(const char *path)
{
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    return (uint64_t)about.st_size;
}

static uint64_t folds_at_most(const char *model)
{
    noted.folds = 0;
    loaded l = load_model(model, NULL);
    unload_model(&l);
    close_client(&l);
    return noted.folds;
}

/* In proportion to the file and what lies beside it; at the most 1 GiB. */
static void what_is_folded_is_limited(void **state)
{
    (void)state;
    const uint64_t least = 16u << 20, most = 1u << 30;
    char beside[512], model[512];
    uint64_t size = size_of(model_path("mlp"));
    assert_int_equal(folds_at_most("mlp"), least + 8 * size);
    snprintf(model, sizeof model, "%s", scratch_path());
    snprintf(beside, sizeof beside, "%s", model);
    snprintf(strrchr(beside, '/'), 16, "/beside.data");
    assert_int_equal(unlink(model) == 0 || errno == ENOENT, 1);
    FILE *from = fopen(model_path("beside"), "rb"), *to = fopen(model, "wb");
    assert_non_null(from);
    assert_non_null(to);
    for (int c; (c = fgetc(from)) != EOF;)
        fputc(c, to);
    fclose(from);
    assert_int_equal(fclose(to), 0);
    size = size_of(model) + size_of(beside);
    assert_int_equal(folds_at_most(model), least + 8 * size);
    assert_int_equal(truncate(beside, (off_t)((most - least) / 8 - size_of(model) - 1)), 0);
    assert_int_equal(folds_at_most(model), most - 8);
    assert_int_equal(truncate(beside, (off_t)((most - least) / 8 - size_of(model) + 1)), 0);
    assert_int_equal(folds_at_most(model), most);
    scratch_clear();
}

/* ---- levels that compute wrongly ------------------------------------------------------------------------------------- */

static void two_bits_are_right_at_basic(void **state)
{
    (void)state;
    static const int levels[] = {0, 1, 2, 3, 99};
    for (int two_bits = 0; two_bits < 2; two_bits++)
        for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
            const onnx_file file = {.two_bits = two_bits};
            const char *why = NULL;
            bool lower = two_bits && levels[i] > 1;
            assert_int_equal(onnx_level_right(&file, levels[i], &why), lower ? 1 : levels[i]);
            assert_int_equal(strstr(why, "optimization=basic") != NULL, lower);
            assert_int_equal(why[0] != 0, lower);
        }
}

static int warnings;

static void note_warning(weir_log_level level, const char *text, void *user)
{
    (void)user;
    warnings += level == WEIR_LOG_WARNING && strstr(text, "at this level of optimization") && strstr(text, "made up");
}

static bool wrong_above; /* every model is computed wrongly above the level 1 */
int __real_onnx_level_right(const onnx_file *file, int level, const char **why);
int __wrap_onnx_level_right(const onnx_file *file, int level, const char **why);

int __wrap_onnx_level_right(const onnx_file *file, int level, const char **why)
{
    if (!wrong_above)
        return __real_onnx_level_right(file, level, why);
    *why = level > 1 ? "optimization=basic, as it is made up" : "";
    return level > 1 ? 1 : level;
}

/* What nobody chose is lowered, and remarked; what somebody has chosen stays, with a warning. */
static void a_level_that_is_wrong_is_lowered_or_warned_of(void **state)
{
    static const struct {
        const char *setting;
        int level, warnings;
        bool remarked;
    } cases[] = {{NULL, 1, 0, true},
                 {"optimization=extended", 2, 1, false},
                 {"optimization=all", 99, 1, false},
                 {"optimization=basic", 1, 0, false},
                 {"optimization=disable", 0, 0, false}};
    (void)state;
    assert_ok(weir_log_set(note_warning, NULL, WEIR_LOG_WARNING));
    wrong_above = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_model_details info = WEIR_INIT(weir_model_details);
        warnings = 0;
        loaded l = load_model("mlp", (const char *const[]){cases[i].setting, NULL});
        assert_ok(l.engine->info(l.model, &info));
        assert_int_equal(noted.level, cases[i].level);
        assert_int_equal(warnings, cases[i].warnings);
        assert_int_equal(strstr(info.remarks, "; optimization=basic, as it is made up") != NULL, cases[i].remarked);
        unload_model(&l);
        close_client(&l);
    }
    wrong_above = false;
    assert_ok(weir_log_set(NULL, NULL, WEIR_LOG_ERROR));
}

static void the_memory_pattern_is_off(void **state)
{
    (void)state;
    load_and_go("memory_pattern=on");
    assert_int_equal(noted.pattern_off, 0);
    load_and_go("memory_pattern=off");
    assert_true(noted.pattern_off > 0);
}

/* ---- who runs how much ------------------------------------------------------------------------------------------------ */

/* What ONNX Runtime tells of a session: parts of its graph, with so many nodes for a provider each. */
typedef struct assigned {
    const char *provider;
    size_t nodes;
} assigned;

enum { PARTS = 5 };
static assigned parts[PARTS];
static size_t part_count;
static int told_until; /* calls that succeed */

static ort_status *told(void)
{
    return told_until-- > 0 ? NULL : real->CreateStatus(ORT_FAIL_CODE, "failed on purpose");
}

static ort_status *tell_parts(const ort_session *session, const ort_subgraph *const **out, size_t *count)
{
    static const ort_subgraph *list[PARTS];
    (void)session;
    for (size_t i = 0; i < part_count; i++)
        list[i] = (const ort_subgraph *)(const void *)&parts[i];
    *out = list;
    *count = part_count;
    return told();
}

static ort_status *tell_name(const ort_subgraph *part, const char **out)
{
    *out = ((const assigned *)(const void *)part)->provider;
    return told();
}

static ort_status *tell_nodes(const ort_subgraph *part, const ort_assigned_node *const **out, size_t *count)
{
    *out = NULL;
    *count = ((const assigned *)(const void *)part)->nodes;
    return told();
}

static void told_of(const assigned *list, size_t count, int until, const weir_provider_share *wanted,
                    size_t wanted_count)
{
    memcpy(parts, list, count * sizeof *list);
    part_count = count;
    told_until = until;
    loaded l = load_model("mlp", NULL);
    weir_model_details info = WEIR_INIT(weir_model_details);
    l.model->settings.provider = ONNX_OPENVINO; /* the CPU alone has all */
    onnx_shares_read(l.model, 3);
    l.model->settings.provider = ONNX_CPU;
    assert_ok(l.engine->info(l.model, &info));
    assert_int_equal(info.share_count, wanted_count);
    for (size_t i = 0; i < wanted_count; i++) {
        assert_string_equal(info.shares[i].provider, wanted[i].provider);
        assert_int_equal(info.shares[i].parts, wanted[i].parts);
        assert_int_equal(info.shares[i].of, wanted[i].of);
    }
    unload_model(&l);
    close_client(&l);
}

/* Parts of one provider are added up, and whoever runs the most comes first. Where one of them is not known, nothing is told. */
static void whoever_runs_the_most_is_told_first(void **state)
{
    (void)state;
    static const char cpu[] = "CPUExecutionProvider", cuda[] = "CUDAExecutionProvider",
                      intel[] = "OpenVINOExecutionProvider";
    const assigned list[PARTS] = {{cpu, 2}, {intel, 9}, {cuda, 4}, {cpu, 3}, {cuda, 2}};
    const weir_provider_share wanted[] = {{"openvino", 9, 20}, {"cuda", 6, 20}, {"cpu", 5, 20}};
    const assigned other[PARTS] = {{cpu, 8}, {intel, 1}, {cuda, 4}, {cpu, 0}, {cuda, 3}};
    const weir_provider_share turned[] = {{"cpu", 8, 16}, {"cuda", 7, 16}, {"openvino", 1, 16}};
    const assigned unknown[] = {{cpu, 8}, {"SomebodysExecutionProvider", 1}};
    const onnx_library *library;
    assert_ok(onnx_library_get(ONNX_CPU, &library));
    if (library->minor < ORT_API_ASSIGNMENTS)
        skip();
    watched.Session_GetEpGraphAssignmentInfo = tell_parts;
    watched.EpAssignedSubgraph_GetEpName = tell_name;
    watched.EpAssignedSubgraph_GetNodes = tell_nodes;
    told_of(list, PARTS, 1 + 2 * PARTS, wanted, 3);
    told_of(other, PARTS, 1 + 2 * PARTS, turned, 3);
    told_of(unknown, 2, 1 + 2 * 2, NULL, 0);
    told_of(list, 0, 1, NULL, 0);
    for (int until = 0; until < 1 + 2 * PARTS; until++)
        told_of(list, PARTS, until, NULL, 0);
}

/* ---- what fails ------------------------------------------------------------------------------------------------------- */

static int failure_code;
static const char *failure_words;

static ort_status *failing_load(const ort_env *env, const void *model, size_t size, const ort_session_options *options,
                                ort_session **out)
{
    (void)env, (void)model, (void)size, (void)options, (void)out;
    return real->CreateStatus(failure_code, failure_words);
}

static ort_status *failing_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                               const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                               size_t output_count, ort_value **outputs)
{
    (void)session, (void)options, (void)input_names, (void)inputs, (void)input_count, (void)output_names,
        (void)output_count, (void)outputs;
    return real->CreateStatus(failure_code, failure_words);
}

/* By ONNX Runtime's code and words, of loads and of runs. */
static void failures_have_their_status(void **state)
{
    (void)state;
    static const char fallback[] = "fallback to CPU EP has been explicitly disabled";
    static const struct {
        int code;
        const char *words;
        weir_status load, run, strict; /* strict: a run with cpu_fallback=off */
    } cases[] = {
        {ORT_FAIL_CODE, "made up", WEIR_ERR_ENGINE, WEIR_ERR_ENGINE, WEIR_ERR_ENGINE},
        {ORT_FAIL_CODE, fallback, WEIR_ERR_ENGINE, WEIR_ERR_ENGINE, WEIR_ERR_UNSUPPORTED},
        {ORT_FAIL_CODE, "std::bad_alloc", WEIR_ERR_SYSTEM, WEIR_ERR_SYSTEM, WEIR_ERR_SYSTEM},
        {ORT_INVALID_ARGUMENT_CODE, "made up", WEIR_ERR_ENGINE, WEIR_ERR_INVALID, WEIR_ERR_INVALID},
        {ORT_NOT_IMPLEMENTED_CODE, "made up", WEIR_ERR_UNSUPPORTED, WEIR_ERR_UNSUPPORTED, WEIR_ERR_UNSUPPORTED},
        {ORT_INVALID_PROTOBUF_CODE, "made up", WEIR_ERR_CORRUPT, WEIR_ERR_CORRUPT, WEIR_ERR_CORRUPT},
        {ORT_INVALID_GRAPH_CODE, "made up", WEIR_ERR_CORRUPT, WEIR_ERR_CORRUPT, WEIR_ERR_CORRUPT}};
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        loaded l = open_client(0);
        weir_outputs out;
        failure_code = cases[i].code;
        failure_words = cases[i].words;
        watched.CreateSessionFromArray = failing_load;
        assert_status(load_into(&l, "mlp", NULL), cases[i].load);
        if (cases[i].load != WEIR_ERR_SYSTEM)
            assert_detail(cases[i].words);
        watched.CreateSessionFromArray = real->CreateSessionFromArray;
        assert_ok(load_into(&l, "mlp", NULL));
        watched.Run = failing_run;
        assert_status(infer(&l, &in, 1, &out), cases[i].run);
        l.model->settings.cpu_fallback = false;
        assert_status(infer(&l, &in, 1, &out), cases[i].strict);
        l.model->settings.cpu_fallback = true;
        watched.Run = real->Run;
        assert_ok(infer(&l, &in, 1, &out));
        l.engine->release_outputs(l.model, &out);
        assert_ok(l.engine->health(l.model));
        unload_model(&l);
        close_client(&l);
    }
}

/* ---- runs at a time ------------------------------------------------------------------------------------------------- */

static void *run_some(void *user)
{
    const loaded *l = user;
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    for (int i = 0; i < 3; i++) {
        weir_outputs out;
        if (infer(l, &in, 1, &out) != WEIR_OK)
            return user;
        l->engine->release_outputs(l->model, &out);
    }
    return NULL;
}

static int most_at_once(const char *setting)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    loaded l = load_model("mlp", (const char *const[]){setting, NULL});
    atomic_store(&noted.most, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_some, &l), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    unload_model(&l);
    close_client(&l);
    return atomic_load(&noted.most);
}

static void runs_at_a_time_are_bounded(void **state)
{
    (void)state;
    assert_int_equal(most_at_once("concurrency=1"), 1);
    assert_int_equal(most_at_once("concurrency=2"), 2);
    assert_true(most_at_once("concurrency=0") > 2);
}

int main(void)
{
    int status = need_onnxruntime();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(levels_have_their_names, note, unwatch),
        cmocka_unit_test(core_ml_gets_basic),
        cmocka_unit_test_setup_teardown(the_cpu_arena_is_off, note, unwatch),
        cmocka_unit_test_setup_teardown(the_memory_pattern_is_off, note, unwatch),
        cmocka_unit_test_setup_teardown(what_is_folded_is_limited, note, unwatch),
        cmocka_unit_test(two_bits_are_right_at_basic),
        cmocka_unit_test_setup_teardown(a_level_that_is_wrong_is_lowered_or_warned_of, note, unwatch),
        cmocka_unit_test_setup_teardown(whoever_runs_the_most_is_told_first, note, unwatch),
        cmocka_unit_test_setup_teardown(failures_have_their_status, note, unwatch),
        cmocka_unit_test_setup_teardown(runs_at_a_time_are_bounded, note, unwatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
