/* Models of the real engines step aside between their runs, and answer the same as if they had not.
 * On CUDA's stub, whose kernels compute nothing, what lies in their memory is the same.
 *
 *   test-residency-models [CYCLES [PATTERN]]   tests of that name alone: '*genai' */
#include "residency/models.h"

#include "test_places.h"

#include <signal.h>
#include <sys/wait.h>

static int cycles = 30;

static const weir_setting one_thread[] = {{"threads", "1"}};
static const weir_setting whole_cache[] = {{"threads", "1"}, {"cache_memory", "whole"}};
static const weir_setting in_blocks[] = {{"threads", "1"}, {"sequences", "2"}};

static const sample minilm = {"minilm.onnx", "onnx", .has_ids = true, .load = one_thread, .load_count = 1};
static const sample embeds = {"minilm.gguf", "gguf", .load = one_thread, .load_count = 1};
static const sample llama = {"tiny-llama.gguf", "gguf", .generates = true, .load = one_thread, .load_count = 1};
static const sample whole = {"tiny-llama.gguf", "gguf", .generates = true, .load = whole_cache, .load_count = 2};
static const sample genai = {"tiny-llm", "llm", .generates = true, .load = one_thread, .load_count = 1};
static const sample concat = {"tiny-llm-concat", "llm", .generates = true, .load = one_thread, .load_count = 1};
static const sample blocks = {"tiny-llm", "llm", .generates = true, .load = in_blocks, .load_count = 2};

enum { REQUESTS = 3 };

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

/* Cycles ----------------------------------------------------------------------------------------------------------- */

static void answers(weir_model *model, const sample *it, answer *out)
{
    for (unsigned i = 0; i < REQUESTS; i++)
        out[i] = answer_of(model, it, i);
}

static void drop(answer *out)
{
    for (unsigned i = 0; i < REQUESTS; i++)
        free(out[i].bytes);
}

/* Every second time it is resumed by its run, else by hand; now and then what the engine promises is verified. */
static void cycle(weir_runtime *runtime, weir_model *model, const sample *it, int number, const answer *wanted)
{
    weir_model_suspend_options options = {.verify = number % 25 == 20};
    weir_residency receipt = suspend_model(model, options);
    snapshot now = take_snapshot(runtime);
    check_sums(&now);
    assert_int_equal(receipt.state, WEIR_SUSPENDED);
    assert_int_equal(receipt.differed, 0);
    assert_true(receipt.away > 0 && receipt.released >= receipt.away);
    assert_int_equal(now.clients[0].away, receipt.away);
    assert_int_equal(receipt.away, receipt.copied + receipt.trusted + receipt.dropped);
    if (number > 0)
        assert_true(receipt.trusted > receipt.copied); /* weights are copied once */
    if (number % 2)
        ok(weir_model_resume(model, WEIR_STREAM_HOST));
    same_answer(model, it, (unsigned)number % REQUESTS, &wanted[number % REQUESTS]);
    assert_int_equal(presence_of(model).state, WEIR_RESIDENT);
}

/* It is asked while it is shown, until all is back: by its runs, by a thread meanwhile, or by hand. */
static void shown_cycle(weir_model *model, const sample *it, int number, const answer *wanted)
{
    weir_model_suspend_options options = {.show = true, .step = (number % 3 + 1) * MIB, .wait = UINT64_C(60000000000)};
    weir_residency receipt = suspend_model(model, options);
    assert_true(receipt.shown > 0);
    if (number % 3 == 1)
        ok(weir_model_resume_behind(model));
    same_answer(model, it, (unsigned)number % REQUESTS, &wanted[number % REQUESTS]);
    if (number % 3 == 2)
        ok(weir_model_resume(model, WEIR_STREAM_HOST));
    for (int i = 0; i < 1000 && presence_of(model).state != WEIR_RESIDENT; i++)
        same_answer(model, it, (unsigned)i % REQUESTS, &wanted[i % REQUESTS]);
    weir_model_presence now = presence_of(model);
    assert_int_equal(now.state, WEIR_RESIDENT);
    assert_int_equal(now.stopped, WEIR_OK);
    assert_int_equal(now.away + now.shown, 0);
    same_answer(model, it, (unsigned)number % REQUESTS, &wanted[number % REQUESTS]);
}

static void shown_cycles_of(const sample *it, int times)
{
    weir_runtime *runtime = make_runtime(2048 * MIB); /* copies are in it */
    weir_model *model = load_sample(runtime, sample_here(it));
    answer wanted[REQUESTS];
    answers(model, it, wanted);
    for (int i = 0; i < times; i++)
        shown_cycle(model, it, i, wanted);
    (void)suspend_model(model, (weir_model_suspend_options){.show = true, .step = MIB});
    same_answer(model, it, 0, &wanted[0]);
    ok(weir_model_destroy(model)); /* as it is */
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
    drop(wanted);
}

static void cycles_of(const sample *it, int times)
{
    weir_runtime *runtime = make_runtime(1024 * MIB);
    weir_model *model = load_sample(runtime, sample_here(it));
    answer wanted[REQUESTS];
    answers(model, it, wanted);
    for (int i = 0; i < times; i++)
        cycle(runtime, model, it, i, wanted);
    weir_model_presence now = presence_of(model);
    assert_int_equal(now.suspends, times);
    assert_int_equal(now.resumes, times);
    assert_int_equal(now.resumes_by_runs, (times + 1) / 2);
    assert_true(now.returned > 0 && now.away == 0 && now.resumed_at >= now.suspended_at);
    (void)suspend_model(model, (weir_model_suspend_options){0}); /* and it goes from where it is */
    ok(weir_model_destroy(model));
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
    drop(wanted);
}

#define CYCLES_OF(what, times)                                                                                         \
    static void cycles_of_##what(void **state)                                                                         \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        cycles_of(&what, times);                                                                                       \
    }
CYCLES_OF(minilm, cycles)
CYCLES_OF(llama, cycles)
CYCLES_OF(genai, cycles)
CYCLES_OF(embeds, cycles / 4) /* variants of those */
CYCLES_OF(whole, cycles / 4)
CYCLES_OF(concat, cycles / 4)
CYCLES_OF(blocks, cycles / 4)

#define SHOWN_CYCLES_OF(what)                                                                                          \
    static void shown_cycles_of_##what(void **state)                                                                   \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        shown_cycles_of(&what, cycles / 5);                                                                            \
    }
SHOWN_CYCLES_OF(minilm)
SHOWN_CYCLES_OF(embeds)
SHOWN_CYCLES_OF(llama)
SHOWN_CYCLES_OF(whole)
SHOWN_CYCLES_OF(genai)
SHOWN_CYCLES_OF(blocks)

/* Places ----------------------------------------------------------------------------------------------------------- */

/* Two that do not fit together: the one that is not asked is suspended by hand. */
static void two_change_places(void **state)
{
    const sample *of[2] = {sample_here(&minilm), sample_here(&embeds)};
    weir_runtime *runtime = make_runtime(160 * MIB);
    weir_model *model[2];
    answer wanted[2][REQUESTS];
    (void)state;
    for (int i = 0; i < 2; i++) {
        model[i] = load_sample(runtime, of[i]);
        answers(model[i], of[i], wanted[i]);
        (void)suspend_model(model[i], (weir_model_suspend_options){0});
    }
    ok(weir_runtime_set_budget(runtime, 100 * MIB)); /* minilm.onnx has 87 MiB and more for a run */
    for (int i = 0; i < 20; i++) {
        same_answer(model[i % 2], of[i % 2], (unsigned)i % REQUESTS, &wanted[i % 2][i % REQUESTS]);
        (void)suspend_model(model[i % 2], (weir_model_suspend_options){0});
    }
    for (int i = 0; i < 2; i++) {
        ok(weir_model_destroy(model[i]));
        drop(wanted[i]);
    }
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

typedef struct pair {
    weir_model *model[2];
    int made; /* suspends by the callback */
} pair;

static void step_aside(const weir_pressure *pressure, void *user)
{
    pair *p = user;
    (void)pressure;
    for (int i = 0; i < 2; i++)
        if (p->model[i] && weir_model_suspend(p->model[i], NULL, NULL) == WEIR_OK)
            p->made++;
}

/* The same by a pressure callback: whoever is asked gets the memory of the other one. */
static void pressure_changes_places(void **state)
{
    const sample *of[2] = {sample_here(&minilm), sample_here(&embeds)};
    weir_runtime *runtime = make_runtime(100 * MIB);
    answer wanted[2][REQUESTS];
    pair p = {0};
    uint64_t id;
    (void)state;
    ok(weir_pressure_register(runtime, 0, step_aside, &p, &id));
    for (int i = 0; i < 2; i++) {
        p.model[i] = load_sample(runtime, of[i]);
        answers(p.model[i], of[i], wanted[i]);
    }
    p.made = 0;
    for (int i = 0; i < 12; i++)
        same_answer(p.model[i % 2], of[i % 2], (unsigned)i % REQUESTS, &wanted[i % 2][i % REQUESTS]);
    assert_true(p.made >= 11); /* each, but perhaps the first */
    ok(weir_pressure_unregister(runtime, id));
    for (int i = 0; i < 2; i++) {
        ok(weir_model_destroy(p.model[i]));
        drop(wanted[i]);
    }
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

/* Addresses -------------------------------------------------------------------------------------------------------- */

typedef struct finding {
    const unsigned char *address;
    size_t bytes;
} finding;

/* The largest piece of somebody's memory. */
static void find_largest(const weir_segment *segment, const weir_span *span, void *user)
{
    finding *f = user;
    (void)segment;
    if (span->state == WEIR_SPAN_LIVE && span->bytes > f->bytes)
        *f = (finding){span->address, span->bytes};
}

/* What a process sees that reads the byte there: 0, or the signal that ends it. */
static int read_in_child(const unsigned char *address)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        (void)*(const volatile unsigned char *)address;
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void what_is_away_cannot_be_touched(void **state)
{
    const sample *it = sample_here(&minilm);
    weir_runtime *runtime = make_runtime(1024 * MIB);
    weir_model *model = load_sample(runtime, it);
    finding f = {0};
    (void)state;
    ok(weir_layout_walk(runtime, find_largest, &f, NULL));
    const unsigned char *middle = f.address + f.bytes / 2;
    assert_true(f.bytes > MIB);
    assert_int_equal(read_in_child(middle), 0);
    (void)suspend_model(model, (weir_model_suspend_options){0});
    assert_int_equal(read_in_child(middle), SIGSEGV);
    ok(weir_model_resume(model, WEIR_STREAM_HOST));
    assert_int_equal(read_in_child(middle), 0);
    ok(weir_model_destroy(model));
    ok(weir_runtime_destroy(runtime));
}

/* ONNX Runtime takes such constants apart when it unloads them. */
static void constants_that_are_texts_stay(void **state)
{
    weir_runtime *runtime = make_runtime(64 * MIB);
    weir_model_options options = WEIR_INIT(weir_model_options);
    const char *const names[] = {"labels", "label"};
    (void)state;
    (void)sample_here(&minilm);
    options.runtime = runtime;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        weir_model *model = NULL;
        ok(weir_model_create(data_path("onnx/%s.onnx", names[i]), &options, &model));
        fails(WEIR_ERR_UNSUPPORTED, weir_model_suspend(model, NULL, NULL));
        detail_names("constants that are texts");
        ok(weir_model_destroy(model));
    }
    ok(weir_runtime_destroy(runtime));
}

/* Runs ------------------------------------------------------------------------------------------------------------- */

typedef struct runner {
    weir_model *model;
    const sample *it;
    const answer *wanted;
    int runs;
} runner;

static void *run_often(void *user)
{
    runner *r = user;
    for (int i = 0; i < r->runs; i++)
        same_answer(r->model, r->it, (unsigned)i % REQUESTS, &r->wanted[i % REQUESTS]);
    return NULL;
}

/* Threads run a model that another one suspends all the time. */
static void runs_and_suspends_take_turns(void **state)
{
    enum { THREADS = 3 };
    const sample *it = sample_here(&llama);
    weir_runtime *runtime = make_runtime(1024 * MIB);
    weir_model *model = load_sample(runtime, it);
    answer wanted[REQUESTS];
    pthread_t threads[THREADS];
    int suspended = 0;
    (void)state;
    answers(model, it, wanted);
    runner r = {model, it, wanted, cycles / 4};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_often, &r), 0);
    for (int i = 0; i < cycles / 2; i++) {
        weir_model_suspend_options options = WEIR_INIT(weir_model_suspend_options);
        options.wait = UINT64_C(60000000000);
        weir_status status = weir_model_suspend(model, &options, NULL);
        assert_true(status == WEIR_OK || status == WEIR_ERR_BUSY); /* it is suspended still */
        suspended += status == WEIR_OK;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(presence_of(model).suspends, suspended);
    assert_true(suspended > 0);
    ok(weir_model_destroy(model));
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
    drop(wanted);
}

/* Memory ----------------------------------------------------------------------------------------------------------- */

/* All weights of a runtime, and where they lie. */
typedef struct contents {
    weir_runtime *runtime;
    uint64_t sum, bytes;
} contents;

static void add_contents(const weir_segment *segment, const weir_span *span, void *user)
{
    contents *c = user;
    (void)segment;
    if (span->state != WEIR_SPAN_LIVE || span->memory_class != WEIR_CLASS_WEIGHTS)
        return;
    unsigned char *copy = malloc(span->bytes);
    ok(weir_copy(c->runtime, copy, span->address, span->bytes, WEIR_STREAM_HOST));
    for (size_t i = 0; i < span->bytes; i++) /* in whatever segments they lie */
        c->sum += (copy[i] + 1) * (((uint64_t)(uintptr_t)span->address + i) * UINT64_C(0x9e3779b97f4a7c15) | 1);
    c->bytes += span->bytes;
    free(copy);
}

static contents contents_of(weir_runtime *runtime)
{
    contents c = {.runtime = runtime};
    ok(weir_layout_walk(runtime, add_contents, &c, NULL));
    return c;
}

static void run_once(weir_model *model, const sample *it)
{
    weir_outputs out;
    ok(ask_sample(model, it, 0, &out));
    weir_model_release_outputs(model, &out);
}

static void what_lies_there_is_the_same(void **state)
{
    static const weir_setting two_lanes[] = {{"concurrency", "2"}};
    sample it = *sample_here(&minilm);
    (void)state;
    it.load = host_writes() ? it.load : two_lanes;
    weir_runtime *runtime = make_runtime_here(512 * MIB);
    weir_model *model = load_sample(runtime, &it);
    run_once(model, &it);
    contents before = contents_of(runtime);
    assert_true(before.bytes > 80 * MIB);
    for (int i = 0; i < 5; i++) {
        (void)suspend_model(model, (weir_model_suspend_options){.verify = i == 4});
        assert_true(contents_of(runtime).bytes < before.bytes / 10);
        if (i % 2)
            ok(weir_model_resume(model, WEIR_STREAM_HOST));
        else
            run_once(model, &it);
        contents now = contents_of(runtime);
        assert_int_equal(now.bytes, before.bytes);
        assert_true(now.sum == before.sum);
    }
    (void)suspend_model(model, (weir_model_suspend_options){0});
    ok(weir_model_destroy(model));
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

/* The same for one that is used while it is shown. */
static void what_was_shown_is_the_same(void **state)
{
    const sample *it = sample_here(&minilm);
    (void)state;
    weir_runtime *runtime = make_runtime_here(512 * MIB);
    weir_model *model = load_sample(runtime, it);
    run_once(model, it);
    contents before = contents_of(runtime);
    for (int i = 0; i < 3; i++) {
        weir_residency receipt = suspend_model(model, (weir_model_suspend_options){.show = true, .step = 8 * MIB});
        assert_true(receipt.shown > 80 * MIB && (i == 0 || receipt.trusted > 80 * MIB));
        for (int k = 0; k < 100 && presence_of(model).state != WEIR_RESIDENT; k++)
            run_once(model, it);
        assert_int_equal(presence_of(model).state, WEIR_RESIDENT);
        contents now = contents_of(runtime);
        assert_int_equal(now.bytes, before.bytes);
        assert_true(now.sum == before.sum);
    }
    ok(weir_model_destroy(model));
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest anywhere[] = {cmocka_unit_test(what_lies_there_is_the_same),
                                          cmocka_unit_test(what_was_shown_is_the_same)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cycles_of_minilm),
        cmocka_unit_test(cycles_of_embeds),
        cmocka_unit_test(cycles_of_llama),
        cmocka_unit_test(cycles_of_whole),
        cmocka_unit_test(cycles_of_genai),
        cmocka_unit_test(cycles_of_concat),
        cmocka_unit_test(cycles_of_blocks),
        cmocka_unit_test(shown_cycles_of_minilm),
        cmocka_unit_test(shown_cycles_of_embeds),
        cmocka_unit_test(shown_cycles_of_llama),
        cmocka_unit_test(shown_cycles_of_whole),
        cmocka_unit_test(shown_cycles_of_genai),
        cmocka_unit_test(shown_cycles_of_blocks),
        cmocka_unit_test(two_change_places),
        cmocka_unit_test(pressure_changes_places),
        cmocka_unit_test(what_lies_there_is_the_same),
        cmocka_unit_test(what_was_shown_is_the_same),
        cmocka_unit_test(what_is_away_cannot_be_touched),
        cmocka_unit_test(constants_that_are_texts_stay),
        cmocka_unit_test(runs_and_suspends_take_turns),
    };
    if (argc > 1)
        cycles = atoi(argv[1]);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    if (!host_writes())
        return cmocka_run_group_tests_name("residency-models", anywhere, NULL, NULL);
    return cmocka_run_group_tests_name("residency-models", tests, NULL, NULL);
}
