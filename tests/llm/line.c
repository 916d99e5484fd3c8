/* line.c: runs that wait in line for GenAI's engine, which is held in a step: in which order they begin, how many of them before
 * the next step, and that a step that fails fails all that it was for. */
#include "common.h"

#include <weir/cores.h>
#include <weir/residency.h>
#include <weir/stream.h>

#include <dlfcn.h>
#include <pthread.h>

#include "engines/llm/wl.h"

enum { PROMPT = 5, RUNS = 4, MOST = 16 };

/* ---- GenAI's functions, which are watched ------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static wl_library real;
/* With the lock. */
static int32_t begun[MOST];                           /* by the first tokens of their prompts */
static size_t begun_count, step_count, at_step[MOST]; /* at_step: runs that had begun at each of the first steps */
static size_t held_step, fails_step;                  /* the steps that are held, and that fail, from 1; 0: none */
static int32_t fails_begin;                           /* the run whose prompt begins so cannot begin; 0: none */
static size_t engines, engines_gone;
static bool inside, open_it;
static int failure;               /* stands for the result of the step that fails */
static atomic_long step_thread;   /* the model's own */
static bool settled;              /* nothing was computed since the stream was waited for */
static size_t unsettled, settles; /* what was given up while something was, and how often the stream was waited for */

static oga_result *watched_begin(oga_request *request, const oga_turn_options *options, const int32_t *tokens,
                                 uint64_t count, uint64_t *turn)
{
    pthread_mutex_lock(&lock);
    if (begun_count < MOST)
        begun[begun_count++] = tokens[0];
    bool fails = tokens[0] == fails_begin;
    settled = false;
    pthread_mutex_unlock(&lock);
    atomic_store(&step_thread, (long)syscall(SYS_gettid));
    return fails ? (oga_result *)(void *)&failure : real.OgaRequestBeginTurn(request, options, tokens, count, turn);
}

static oga_result *watched_run(oga_engine *engine, oga_event_buffer *buffer)
{
    pthread_mutex_lock(&lock);
    size_t number = ++step_count;
    if (number <= MOST)
        at_step[number - 1] = begun_count;
    if (number == held_step) {
        inside = true;
        pthread_cond_broadcast(&change);
        while (!open_it)
            pthread_cond_wait(&change, &lock);
    }
    bool fails = number == fails_step;
    settled = false;
    pthread_mutex_unlock(&lock);
    return fails ? (oga_result *)(void *)&failure : real.OgaEngineRun(engine, buffer);
}

static oga_result *watched_engine(oga_model *model, oga_engine **out)
{
    pthread_mutex_lock(&lock);
    engines++;
    pthread_mutex_unlock(&lock);
    return real.OgaCreateEngine(model, out);
}

static void watched_end(oga_engine *engine)
{
    pthread_mutex_lock(&lock);
    engines_gone++;
    unsettled += !settled;
    pthread_mutex_unlock(&lock);
    real.OgaDestroyEngine(engine);
}

static oga_result *watched_close(oga_request *request)
{
    pthread_mutex_lock(&lock);
    unsettled += !settled;
    pthread_mutex_unlock(&lock);
    return real.OgaRequestClose(request);
}

static oga_result *watched_token(oga_generator *generator)
{
    pthread_mutex_lock(&lock);
    settled = false;
    pthread_mutex_unlock(&lock);
    return real.OgaGenerator_GenerateNextToken(generator);
}

static void watched_generator_end(oga_generator *generator)
{
    pthread_mutex_lock(&lock);
    unsettled += !settled;
    pthread_mutex_unlock(&lock);
    real.OgaDestroyGenerator(generator);
}

static const char *watched_words(const oga_result *result)
{
    return (const void *)result == &failure ? "failed on purpose" : real.OgaResultGetError(result);
}

static void watched_destroy(oga_result *result)
{
    if ((void *)result != &failure)
        real.OgaDestroyResult(result);
}

/* The first step is held; the one of that number fails. */
static void watch(const bench *it, size_t fails)
{
    wl_library *library = (wl_library *)(uintptr_t)it->model->library;
    if (!real.OgaEngineRun)
        real = *library;
    begun_count = step_count = engines = engines_gone = 0;
    unsettled = settles = 0;
    settled = true;
    held_step = 1;
    fails_step = fails;
    fails_begin = 0;
    inside = open_it = false;
    library->OgaRequestBeginTurn = watched_begin;
    library->OgaEngineRun = watched_run;
    library->OgaCreateEngine = watched_engine;
    library->OgaDestroyEngine = watched_end;
    library->OgaRequestClose = watched_close;
    library->OgaGenerator_GenerateNextToken = watched_token;
    library->OgaDestroyGenerator = watched_generator_end;
    library->OgaResultGetError = watched_words;
    library->OgaDestroyResult = watched_destroy;
}

static void unwatch(const bench *it)
{
    *(wl_library *)(uintptr_t)it->model->library = real;
}

static void until_inside(void)
{
    pthread_mutex_lock(&lock);
    while (!inside)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

static void let_go(void)
{
    pthread_mutex_lock(&lock);
    open_it = true;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

typedef struct asker {
    const bench *it;
    const char *tokens;
    size_t pieces, most; /* most: it reads so many; 0: it does not read */
    int32_t prompt[PROMPT];
    weir_tensor input;
    pthread_t thread;
    atomic_long number; /* of the thread */
    weir_status status;
    char detail[256];
    size_t made;
} asker;

static bool on_piece(const weir_piece *piece, void *user)
{
    asker *it = user;
    (void)piece;
    return ++it->pieces < it->most;
}

static void *ask(void *user)
{
    asker *it = user;
    const weir_setting settings[] = {GREEDY(it->tokens), {"ignore_eos", "1"}};
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(&it->input, settings, 3);
    inference.id = (uint64_t)it->prompt[0];
    const weir_engine *engine = it->it->engine;
    atomic_store(&it->number, (long)syscall(SYS_gettid));
    it->status = it->most > 0 ? engine->infer_stream(it->it->model, &inference, on_piece, it, &outputs)
                              : engine->infer(it->it->model, &inference, &outputs);
    snprintf(it->detail, sizeof it->detail, "%s", it->status == WEIR_OK ? "" : weir_detail());
    if (it->status != WEIR_OK)
        return NULL;
    it->made = (size_t)output_named(&outputs, "tokens")->shape[0];
    release(it->it, &outputs);
    return NULL;
}

static void start_reading(asker *to, const bench *it, int which, const char *tokens, size_t most)
{
    *to = (asker){.it = it, .tokens = tokens, .most = most};
    fill_prompt(to->prompt, PROMPT, 1);
    to->prompt[0] = 100 + which;
    to->input = token_input(to->prompt, PROMPT);
    assert_int_equal(pthread_create(&to->thread, NULL, ask, to), 0);
}

static void start(asker *to, const bench *it, int which)
{
    start_reading(to, it, which, "4", 0);
}

/* The first one is alone in the engine, in its first step; the others are in the line in this order. */
static void hold_one_before_others(asker *all, const bench *it)
{
    for (int i = 0; i < RUNS; i++) {
        start(&all[i], it, i);
        if (i == 0)
            until_inside();
        else
            until_asleep(&all[i].number);
    }
}

static void join_all(asker *all)
{
    for (int i = 0; i < RUNS; i++)
        pthread_join(all[i].thread, NULL);
}

/* ---- a model on a device, as far as its account can tell ----------------------------------------------------------- */

/* In the place of libweir's, for the plug-in: its account takes the host for a device, and GenAI's stream for one of weir's. */
#define VISIBLE __attribute__((visibility("default")))
static int looks_until_cuda; /* 0: it is the host */

static void *libweirs(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

VISIBLE weir_status weir_runtime_info(const weir_runtime *of, weir_runtime_details *out)
{
    weir_status (*theirs)(const weir_runtime *, weir_runtime_details *);
    *(void **)&theirs = libweirs("weir_runtime_info");
    weir_status status = theirs(of, out);
    if (looks_until_cuda > 0 && --looks_until_cuda == 0)
        out->device = "cuda:0";
    return status;
}

VISIBLE weir_status weir_stream_register(weir_runtime *runtime, void *native, weir_stream *out)
{
    (void)native;
    return weir_stream_acquire(runtime, out);
}

VISIBLE weir_status weir_stream_unregister(weir_stream stream)
{
    return weir_stream_release(stream);
}

VISIBLE weir_status weir_stream_synchronize(weir_stream stream)
{
    weir_status (*theirs)(weir_stream);
    *(void **)&theirs = libweirs("weir_stream_synchronize");
    pthread_mutex_lock(&lock);
    settled = true;
    settles++;
    pthread_mutex_unlock(&lock);
    return theirs(stream);
}

/* The plug-in's table for GenAI, in the place of ONNX Runtime's. */
static const ort_api *table_of(const weir_engine *engine)
{
    const ort_base *(*base)(void) = NULL;
    Dl_info its;
    assert_true(dladdr((const void *)engine, &its) != 0);
    void *plugin = dlopen(its.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(plugin);
    *(void **)&base = dlsym(plugin, "OrtGetApiBase");
    assert_non_null(base);
    dlclose(plugin); /* the engine keeps it open */
    return base()->GetApi(ORT_API_WANTED);
}

/* By the function of its table for ONNX Runtime's, which fails without CUDA once it has taken the stream. */
static void tell_stream(const weir_engine *engine)
{
    const ort_api *table = table_of(engine);
    ort_status *status = table->UpdateCUDAProviderOptionsWithValue(NULL, "user_compute_stream", &failure);
    if (status)
        table->ReleaseStatus(status);
}

/* Memory that is asked for where the plug-in's own thread takes cores, and whose it is: before its first step and between
 * two it is at work for nobody. */
static const bench *looked_at; /* NULL: nobody asks */
static ort_allocator *asked;   /* the host's, as GenAI has it */
static atomic_int asked_between, charged_between;

static void ask_between_steps(void)
{
    if (!looked_at || (long)syscall(SYS_gettid) != atomic_load(&step_thread))
        return;
    uint64_t before = stats_of(looked_at).allocations;
    void *block = asked->Alloc(asked, 1000);
    atomic_fetch_add(&asked_between, block != NULL);
    atomic_fetch_add(&charged_between, stats_of(looked_at).allocations != before);
    asked->Free(asked, block);
}

VISIBLE weir_status weir_cores_take(weir_cores *of, bool (*stops)(void *user), void *user, uint32_t *cores)
{
    weir_status (*theirs)(weir_cores *, bool (*)(void *), void *, uint32_t *);
    *(void **)&theirs = libweirs("weir_cores_take");
    ask_between_steps();
    return theirs(of, stops, user, cores);
}

VISIBLE weir_status weir_cores_renew(weir_cores *of, bool (*stops)(void *user), void *user, uint32_t *cores)
{
    weir_status (*theirs)(weir_cores *, bool (*)(void *), void *, uint32_t *);
    *(void **)&theirs = libweirs("weir_cores_renew");
    ask_between_steps();
    return theirs(of, stops, user, cores);
}

static bench bench_of(const char *sequences)
{
    const weir_setting load[] = {{"threads", "1"}, {"sequences", sequences}};
    bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
    OK(bench_load(&it, load, 2));
    return it;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Three wait while one computes: all of them begin before its second step, and in the order in which they came. */
static void test_all_that_wait_begin_in_the_order_in_which_they_came(void **state)
{
    (void)state;
    bench it = bench_of("3");
    asker all[RUNS];
    watch(&it, 0);
    hold_one_before_others(all, &it);
    assert_int_equal(begun_count, 1);
    let_go();
    join_all(all);
    unwatch(&it);
    assert_int_equal(at_step[0], 1);
    assert_int_equal(at_step[1], RUNS);
    assert_int_equal(begun_count, RUNS);
    for (int i = 0; i < RUNS; i++) {
        assert_int_equal(begun[i], 100 + i);
        assert_int_equal(all[i].status, WEIR_OK);
        assert_int_equal(all[i].made, 4);
    }
    bench_close(&it);
}

/* An engine that fails in a step fails all that are in it, in words, and the next run gets another engine. */
static void test_a_step_that_fails_fails_all_of_its_runs(void **state)
{
    (void)state;
    bench it = bench_of("3");
    uint64_t weights = stats_of(&it).live;
    asker all[RUNS], again;
    watch(&it, 2);
    hold_one_before_others(all, &it);
    size_t before = engines;
    let_go();
    join_all(all);
    assert_int_equal(step_count, 2);
    for (int i = 0; i < RUNS; i++) {
        assert_int_equal(all[i].status, WEIR_ERR_ENGINE);
        assert_words(all[i].detail, "failed on purpose");
    }
    assert_int_equal(stats_of(&it).live, weights);
    assert_int_equal(engines, before);
    start(&again, &it, 2);
    pthread_join(again.thread, NULL);
    unwatch(&it);
    assert_int_equal(again.status, WEIR_OK);
    assert_int_equal(again.made, 4);
    assert_int_equal(engines, before + 1);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(it.engine->metrics(it.model, &metrics));
    assert_int_equal(metrics.failures, RUNS);
    assert_int_equal(metrics.runs, 1);
    bench_close(&it);
}

/* A run is told of the step that failed, though it was cancelled while that step was under way. */
static void test_what_ended_a_run_first_is_told(void **state)
{
    (void)state;
    bench it = bench_of("2");
    asker one;
    watch(&it, 1);
    start(&one, &it, 0);
    until_inside();
    OK(it.engine->cancel(it.model, 0));
    let_go();
    pthread_join(one.thread, NULL);
    unwatch(&it);
    assert_int_equal(one.status, WEIR_ERR_ENGINE);
    assert_words(one.detail, "failed on purpose");
    bench_close(&it);
}

/* Whether it has a reader or not, the engine is not asked. */
static void test_a_run_of_no_tokens_asks_for_nothing(void **state)
{
    (void)state;
    const weir_setting none[] = {GREEDY("0")};
    bench it = bench_of("2");
    int32_t prompt[PROMPT];
    fill_prompt(prompt, PROMPT, 1);
    weir_tensor input = token_input(prompt, PROMPT);
    weir_outputs outputs;
    watch(&it, 0);
    let_go();
    OK(infer(&it, &input, none, 2, &outputs));
    unwatch(&it);
    assert_int_equal(output_named(&outputs, "tokens")->bytes, 0);
    assert_memory_equal(output_named(&outputs, "finish_reason")->data, "length", 6);
    assert_int_equal(begun_count, 0);
    assert_int_equal(step_count, 0);
    release(&it, &outputs);
    bench_close(&it);
}

/* ---- what an idle engine keeps ----------------------------------------------------------------------------------- */

static void has_engines(size_t made, size_t gone)
{
    pthread_mutex_lock(&lock);
    size_t now_made = engines, now_gone = engines_gone;
    pthread_mutex_unlock(&lock);
    assert_int_equal(now_made, made);
    assert_int_equal(now_gone, gone);
}

static weir_status ask_once(const bench *it)
{
    asker one;
    start(&one, it, 0);
    pthread_join(one.thread, NULL);
    return one.status;
}

/* One with a table of blocks, as it says of this one, has them from run to run; what has failed in it, or got no memory in it, is
 * gone with it. */
static void test_an_engine_with_blocks_stays_until_a_run_fails(void **state)
{
    (void)state;
    bench it = bench_of("2");
    it.model->folder.paged = true;
    watch(&it, 0);
    let_go();
    for (int i = 0; i < 3; i++)
        OK(ask_once(&it));
    has_engines(0, 0);
    fails_step = step_count + 1;
    assert_int_equal(ask_once(&it), WEIR_ERR_ENGINE);
    has_engines(0, 1);
    OK(ask_once(&it));
    has_engines(1, 1);
    OK(weir_client_set_limits(it.client, 0, stats_of(&it).live));
    assert_int_equal(ask_once(&it), WEIR_ERR_OUT_OF_MEMORY);
    has_engines(1, 2);
    OK(weir_client_set_limits(it.client, 0, 0));
    OK(ask_once(&it));
    has_engines(2, 2);
    unwatch(&it);
    it.model->folder.paged = false;
    bench_close(&it);
}

/* Of the runs that leave it together one could not begin, and the last was cancelled. */
static void test_an_engine_goes_with_any_run_that_failed(void **state)
{
    (void)state;
    bench it = bench_of("3");
    asker all[3];
    it.model->folder.paged = true;
    watch(&it, 0);
    fails_begin = 101;
    start_reading(&all[0], &it, 0, "1", 0);
    until_inside();
    for (int i = 1; i < 3; i++) {
        start(&all[i], &it, i);
        until_asleep(&all[i].number);
    }
    OK(it.engine->cancel(it.model, 102));
    let_go();
    for (int i = 0; i < 3; i++)
        pthread_join(all[i].thread, NULL);
    assert_int_equal(all[0].status, WEIR_OK);
    assert_int_equal(all[1].status, WEIR_ERR_ENGINE);
    assert_int_equal(all[2].status, WEIR_ERR_CANCELLED);
    has_engines(0, 1);
    unwatch(&it);
    it.model->folder.paged = false;
    bench_close(&it);
}

/* What an idle one has is given up where it is asked for, as often as that is; one that computes gives nothing up. */
static void test_an_idle_engine_is_given_up(void **state)
{
    (void)state;
    uint64_t released = 1;
    bench it = bench_of("2");
    asker one;
    it.model->folder.paged = true;
    watch(&it, 0);
    held_step = 2;
    uint64_t weights = stats_of(&it).live;
    start(&one, &it, 0);
    until_inside();
    uint64_t cache = stats_of(&it).live_class[WEIR_CLASS_KV];
    assert_true(cache > 0);
    OK(it.engine->trim(it.model, 1, &released));
    assert_int_equal(released, 0);
    has_engines(0, 0);
    let_go();
    pthread_join(one.thread, NULL);
    assert_int_equal(one.status, WEIR_OK);
    cache = stats_of(&it).live_class[WEIR_CLASS_KV];
    assert_true(cache > 0);
    OK(it.engine->trim(it.model, 1, &released));
    assert_int_equal(released, cache);
    assert_int_equal(stats_of(&it).live, weights);
    has_engines(0, 1);
    OK(it.engine->trim(it.model, 1, &released));
    assert_int_equal(released, 0);
    OK(ask_once(&it));
    has_engines(1, 1);
    unwatch(&it);
    it.model->folder.paged = false;
    bench_close(&it);
}

static void test_a_model_that_is_suspended_has_no_engine(void **state)
{
    (void)state;
    for (int several = 0; several < 2; several++) {
        bench it = bench_of(several ? "2" : "1");
        uint64_t weights = stats_of(&it).live_class[WEIR_CLASS_WEIGHTS];
        it.model->folder.paged = several;
        watch(&it, 0);
        let_go();
        for (int i = 0; i < 3; i++) {
            weir_engine_leaving leaving = {0};
            leaving.struct_size = sizeof leaving;
            for (int twice = 0; twice < 2; twice++)
                OK(it.engine->suspend(it.model, &leaving));
            assert_int_equal(leaving.unwritten, WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS));
            assert_int_equal(stats_of(&it).live, weights);
            has_engines(several ? (size_t)i : 0, several ? (size_t)i + 1 : 0);
            OK(ask_once(&it));
        }
        unwatch(&it);
        it.model->folder.paged = false;
        bench_close(&it);
    }
}

/* What GenAI frees on a device may be in use there by what it has computed: its stream is waited for before. */
static void test_nothing_is_given_up_while_it_is_computed_with(void **state)
{
    (void)state;
    tell_stream(the_engine());
    for (int several = 0; several < 3; several++) { /* 2: with blocks, which are given up in the end */
        const weir_setting load[] = {{"threads", "1"}, {"sequences", several ? "2" : "1"}};
        bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
        looks_until_cuda = 2; /* the load's own look is the first */
        OK(bench_load(&it, load, 2));
        assert_int_equal(looks_until_cuda, 0);
        it.model->folder.paged = several == 2;
        watch(&it, 0);
        let_go();
        for (int i = 0; i < 2; i++)
            OK(ask_once(&it));
        assert_int_equal(unsettled, 0);
        assert_true(settles >= 2);
        if (several == 2) {
            uint64_t released = 0;
            settled = false;
            OK(it.engine->trim(it.model, 1, &released));
            has_engines(0, 1);
            assert_int_equal(unsettled, 0);
        }
        weir_engine_leaving leaving = {0};
        leaving.struct_size = sizeof leaving;
        size_t before = settles;
        OK(it.engine->suspend(it.model, &leaving));
        assert_true(settles > before);
        unwatch(&it);
        it.model->folder.paged = false;
        bench_close(&it);
    }
}

/* The model's thread sleeps until there are cores: that nobody leaves ends no wait. */
static void test_a_batch_that_waits_for_cores_sleeps(void **state)
{
    (void)state;
    uint32_t cores;
    weir_cores *here;
    asker one;
    bench it = bench_of("2");
    OK(weir_cores_open("here", 1024, 1024, &here));
    OK(weir_cores_take(here, NULL, NULL, &cores));
    watch(&it, 0);
    let_go();
    atomic_store(&step_thread, 0);
    start(&one, &it, 0);
    until_asleep(&step_thread);
    assert_int_equal(step_count, 0);
    weir_cores_give(here);
    pthread_join(one.thread, NULL);
    assert_int_equal(one.status, WEIR_OK);
    unwatch(&it);
    weir_cores_close(here);
    bench_close(&it);
}

/* So that what others ask for on that thread is no model's. */
static void test_between_steps_a_batch_is_at_work_for_nobody(void **state)
{
    (void)state;
    bench it = bench_of("2");
    watch(&it, 0);
    let_go();
    assert_null(table_of(it.engine)->GetAllocatorWithDefaultOptions(&asked));
    looked_at = &it;
    OK(ask_once(&it));
    looked_at = NULL;
    unwatch(&it);
    assert_true(atomic_load(&asked_between) > 1);
    assert_int_equal(atomic_load(&charged_between), 0);
    bench_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_that_wait_begin_in_the_order_in_which_they_came),
        cmocka_unit_test(test_a_step_that_fails_fails_all_of_its_runs),
        cmocka_unit_test(test_what_ended_a_run_first_is_told),
        cmocka_unit_test(test_a_run_of_no_tokens_asks_for_nothing),
        cmocka_unit_test(test_an_engine_with_blocks_stays_until_a_run_fails),
        cmocka_unit_test(test_an_engine_goes_with_any_run_that_failed),
        cmocka_unit_test(test_an_idle_engine_is_given_up),
        cmocka_unit_test(test_a_model_that_is_suspended_has_no_engine),
        cmocka_unit_test(test_nothing_is_given_up_while_it_is_computed_with),
        cmocka_unit_test(test_a_batch_that_waits_for_cores_sleeps),
        cmocka_unit_test(test_between_steps_a_batch_is_at_work_for_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
