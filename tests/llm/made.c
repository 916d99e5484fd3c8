/* made.c: what the engine has GenAI make, it gives back: after runs, loads that fail and unloads, whichever call it is that
 * fails, and whenever a run is cancelled. */
#include "common.h"
#include "folders.h"

#include <stdatomic.h>

#include "engines/llm/wl.h"

enum { PROMPT = 6 };

/* ---- what is counted --------------------------------------------------------------------------------------------- */

enum kind {
    CONFIGS,
    MODELS_MADE,
    TOKENIZERS,
    SEQUENCES,
    STRINGS,
    STREAMS,
    PARAMS,
    GENERATORS,
    TENSORS,
    ENGINES,
    BUFFERS,
    SESSION_OPTIONS,
    REQUESTS,
    TURN_OPTIONS,
    KINDS
};
static const char *const kind_names[KINDS] = {"configs", "models",          "tokenizers", "sequences",   "strings",
                                              "streams", "params",          "generators", "tensors",     "engines",
                                              "buffers", "session options", "requests",   "turn options"};
static wl_library real;
static wl_library *watched;
static atomic_int made[KINDS], all_made[KINDS], calls, results;
static int fails_at; /* this one of the calls fails; 0: none */
static char failure; /* stands for the result of a call that fails */

static const bench *asked; /* whose runs are cancelled, */
static int cancels_at;     /* at this one of the calls; 0: none */
static atomic_int moments; /* calls in which a cancel may come */
static atomic_bool found;  /* it has found the run */
static atomic_int late;    /* generators that are gone, and were told of a cancel */

/* Within a call, as from another thread: not where the engine holds the model's lock, for which a cancel waits. */
static void may_cancel(void)
{
    if (atomic_fetch_add(&moments, 1) + 1 != cancels_at || pthread_mutex_trylock(&asked->model->runs.lock) != 0)
        return;
    pthread_mutex_unlock(&asked->model->runs.lock);
    atomic_store(&found, asked->engine->cancel(asked->model, 0) == WEIR_OK);
}

static oga_result *told(oga_generator *generator, const char *key, const char *value)
{
    if (atomic_load(&made[GENERATORS]) > 0)
        return real.OgaGenerator_SetRuntimeOption(generator, key, value);
    atomic_fetch_add(&late, 1);
    return NULL;
}

/* NULL: the call is to be made. */
static oga_result *fails(void)
{
    may_cancel();
    if (atomic_fetch_add(&calls, 1) + 1 != fails_at)
        return NULL;
    atomic_fetch_add(&results, 1);
    return (oga_result *)(void *)&failure;
}

static oga_result *count_if(enum kind kind, oga_result *result)
{
    atomic_fetch_add(&made[kind], result == NULL);
    atomic_fetch_add(&all_made[kind], result == NULL);
    atomic_fetch_add(&results, result != NULL);
    return result;
}

static oga_result *plainly(oga_result *result)
{
    atomic_fetch_add(&results, result != NULL);
    return result;
}

static const char *its_words(const oga_result *result)
{
    return (const void *)result == &failure ? "failed on purpose" : real.OgaResultGetError(result);
}

static void its_end(oga_result *result)
{
    atomic_fetch_sub(&results, 1);
    if ((void *)result != &failure)
        real.OgaDestroyResult(result);
}

/* A function with its parameters and what it is called with. */
#define MADE(name, kind, parameters, arguments)                                                                        \
    static oga_result *made_##name parameters                                                                          \
    {                                                                                                                  \
        oga_result *failed = fails();                                                                                  \
        return failed ? failed : count_if(kind, real.name arguments);                                                  \
    }
#define CALLED(name, parameters, arguments)                                                                            \
    static oga_result *called_##name parameters                                                                        \
    {                                                                                                                  \
        oga_result *failed = fails();                                                                                  \
        return failed ? failed : plainly(real.name arguments);                                                         \
    }
/* Where memory of the client is given back that may fail, and has words of its own then: they are not why a load or a run
 * has failed. */
static void say_other_words(enum kind kind)
{
    if (kind == MODELS_MADE || kind == GENERATORS || kind == TENSORS || kind == ENGINES || kind == REQUESTS)
        (void)weir_fail(WEIR_ERR_SYSTEM, "words of what is given back");
}

#define GONE(name, kind, type)                                                                                         \
    static void gone_##name(type *it)                                                                                  \
    {                                                                                                                  \
        atomic_fetch_sub(&made[kind], 1);                                                                              \
        say_other_words(kind);                                                                                         \
        may_cancel();                                                                                                  \
        real.name(it);                                                                                                 \
    }

MADE(OgaCreateConfig, CONFIGS, (const char *folder, oga_config **out), (folder, out))
MADE(OgaCreateModelFromConfig, MODELS_MADE, (const oga_config *config, oga_model **out), (config, out))
MADE(OgaCreateTokenizer, TOKENIZERS, (const oga_model *model, oga_tokenizer **out), (model, out))
MADE(OgaCreateSequences, SEQUENCES, (oga_sequences * *out), (out))
MADE(OgaTokenizerApplyChatTemplate, STRINGS,
     (const oga_tokenizer *tokenizer, const char *jinja, const char *messages, const char *tools, bool begins,
      const char **out),
     (tokenizer, jinja, messages, tools, begins, out))
MADE(OgaCreateTokenizerStream, STREAMS, (const oga_tokenizer *tokenizer, oga_tokenizer_stream **out), (tokenizer, out))
MADE(OgaCreateGeneratorParams, PARAMS, (const oga_model *model, oga_generator_params **out), (model, out))
MADE(OgaCreateGenerator, GENERATORS, (const oga_model *model, const oga_generator_params *params, oga_generator **out),
     (model, params, out))
MADE(OgaGenerator_GetLogits, TENSORS, (oga_generator * generator, oga_tensor **out), (generator, out))
MADE(OgaCreateEngine, ENGINES, (oga_model * model, oga_engine **out), (model, out))
MADE(OgaCreateEngineEventBuffer, BUFFERS, (oga_engine * engine, size_t capacity, oga_event_buffer **out),
     (engine, capacity, out))
MADE(OgaCreateRequestOptions, SESSION_OPTIONS, (oga_request_options * *out), (out))
MADE(OgaEngineCreateRequest, REQUESTS, (oga_engine * engine, const oga_request_options *options, oga_request **out),
     (engine, options, out))
MADE(OgaRequestCreateTurnOptions, TURN_OPTIONS, (oga_request * request, oga_turn_options **out), (request, out))
CALLED(OgaConfigClearProviders, (oga_config * config), (config))
CALLED(OgaConfigOverlay, (oga_config * config, const char *json), (config, json))
CALLED(OgaTokenizerEncode, (const oga_tokenizer *tokenizer, const char *text, oga_sequences *sequences),
       (tokenizer, text, sequences))
CALLED(OgaTokenizerStreamDecode, (oga_tokenizer_stream * stream, int32_t token, const char **out), (stream, token, out))
CALLED(OgaGeneratorParamsSetSearchNumber, (oga_generator_params * params, const char *name, double value),
       (params, name, value))
CALLED(OgaGeneratorParamsSetSearchBool, (oga_generator_params * params, const char *name, bool value),
       (params, name, value))
CALLED(OgaGeneratorParamsSetGuidance, (oga_generator_params * params, const char *kind, const char *data, bool forward),
       (params, kind, data, forward))
CALLED(OgaGenerator_AppendTokens, (oga_generator * generator, const int32_t *tokens, size_t count),
       (generator, tokens, count))
CALLED(OgaGenerator_GenerateNextToken, (oga_generator * generator), (generator))
CALLED(OgaTensorGetType, (oga_tensor * tensor, int32_t *out), (tensor, out))
CALLED(OgaTensorGetShapeRank, (oga_tensor * tensor, size_t *out), (tensor, out))
CALLED(OgaTensorGetShape, (oga_tensor * tensor, int64_t *shape, size_t rank), (tensor, shape, rank))
CALLED(OgaTensorGetData, (oga_tensor * tensor, void **out), (tensor, out))
CALLED(OgaRequestOptionsSetMaxSessionTokens, (oga_request_options * options, uint64_t tokens), (options, tokens))
CALLED(OgaTurnOptionsSetMaxGeneratedTokens, (oga_turn_options * options, uint64_t tokens), (options, tokens))
CALLED(OgaTurnOptionsSetTemperature, (oga_turn_options * options, float temperature), (options, temperature))
CALLED(OgaTurnOptionsSetGuidance, (oga_turn_options * options, const char *kind, const char *data),
       (options, kind, data))
CALLED(OgaRequestBeginTurn,
       (oga_request * request, const oga_turn_options *options, const int32_t *tokens, uint64_t count, uint64_t *turn),
       (request, options, tokens, count, turn))
CALLED(OgaEngineRun, (oga_engine * engine, oga_event_buffer *buffer), (engine, buffer))
GONE(OgaDestroyConfig, CONFIGS, oga_config)
GONE(OgaDestroyModel, MODELS_MADE, oga_model)
GONE(OgaDestroyTokenizer, TOKENIZERS, oga_tokenizer)
GONE(OgaDestroySequences, SEQUENCES, oga_sequences)
GONE(OgaDestroyString, STRINGS, const char)
GONE(OgaDestroyTokenizerStream, STREAMS, oga_tokenizer_stream)
GONE(OgaDestroyGeneratorParams, PARAMS, oga_generator_params)
GONE(OgaDestroyGenerator, GENERATORS, oga_generator)
GONE(OgaDestroyTensor, TENSORS, oga_tensor)
GONE(OgaDestroyEngine, ENGINES, oga_engine)
GONE(OgaDestroyEngineEventBuffer, BUFFERS, oga_event_buffer)
GONE(OgaDestroyRequestOptions, SESSION_OPTIONS, oga_request_options)
GONE(OgaDestroyRequest, REQUESTS, oga_request)
GONE(OgaDestroyTurnOptions, TURN_OPTIONS, oga_turn_options)
#undef MADE
#undef CALLED
#undef GONE

static void watch_makers(void)
{
#define MADE(name) watched->name = made_##name;
    MADE(OgaCreateConfig)
    MADE(OgaCreateModelFromConfig)
    MADE(OgaCreateTokenizer)
    MADE(OgaCreateSequences)
    MADE(OgaTokenizerApplyChatTemplate)
    MADE(OgaCreateTokenizerStream)
    MADE(OgaCreateGeneratorParams)
    MADE(OgaCreateGenerator)
    MADE(OgaGenerator_GetLogits)
    MADE(OgaCreateEngine)
    MADE(OgaCreateEngineEventBuffer)
    MADE(OgaCreateRequestOptions)
    MADE(OgaEngineCreateRequest)
    MADE(OgaRequestCreateTurnOptions)
#undef MADE
#define GONE(name) watched->name = gone_##name;
    GONE(OgaDestroyConfig)
    GONE(OgaDestroyModel)
    GONE(OgaDestroyTokenizer)
    GONE(OgaDestroySequences)
    GONE(OgaDestroyString)
    GONE(OgaDestroyTokenizerStream)
    GONE(OgaDestroyGeneratorParams)
    GONE(OgaDestroyGenerator)
    GONE(OgaDestroyTensor)
    GONE(OgaDestroyEngine)
    GONE(OgaDestroyEngineEventBuffer)
    GONE(OgaDestroyRequestOptions)
    GONE(OgaDestroyRequest)
    GONE(OgaDestroyTurnOptions)
#undef GONE
}

static void watch_others(void)
{
#define CALLED(name) watched->name = called_##name;
    CALLED(OgaConfigClearProviders)
    CALLED(OgaConfigOverlay)
    CALLED(OgaTokenizerEncode)
    CALLED(OgaTokenizerStreamDecode)
    CALLED(OgaGeneratorParamsSetSearchNumber)
    CALLED(OgaGeneratorParamsSetSearchBool)
    CALLED(OgaGeneratorParamsSetGuidance)
    CALLED(OgaGenerator_AppendTokens)
    CALLED(OgaGenerator_GenerateNextToken)
    CALLED(OgaTensorGetType)
    CALLED(OgaTensorGetShapeRank)
    CALLED(OgaTensorGetShape)
    CALLED(OgaTensorGetData)
    CALLED(OgaRequestOptionsSetMaxSessionTokens)
    CALLED(OgaTurnOptionsSetMaxGeneratedTokens)
    CALLED(OgaTurnOptionsSetTemperature)
    CALLED(OgaTurnOptionsSetGuidance)
    CALLED(OgaRequestBeginTurn)
    CALLED(OgaEngineRun)
#undef CALLED
    watched->OgaGenerator_SetRuntimeOption = told;
    watched->OgaResultGetError = its_words;
    watched->OgaDestroyResult = its_end;
}

/* The library is one for all models, and known from the first on. */
static int watch(void **state)
{
    (void)state;
    bench it = bench_open(the_model(SHARED));
    watched = (wl_library *)(uintptr_t)it.model->library;
    bench_close(&it);
    real = *watched;
    watch_makers();
    watch_others();
    for (int k = 0; k < KINDS; k++) {
        atomic_store(&made[k], 0);
        atomic_store(&all_made[k], 0);
    }
    atomic_store(&calls, 0);
    atomic_store(&results, 0);
    atomic_store(&late, 0);
    fails_at = cancels_at = 0;
    return 0;
}

static int unwatch(void **state)
{
    (void)state;
    if (watched)
        *watched = real;
    return 0;
}

/* As many of each as before. */
static void nothing_stays(const int *before, const char *after)
{
    int left = atomic_load(&results) != 0;
    for (int k = 0; k < KINDS; k++) {
        int more = atomic_load(&made[k]) - (before ? before[k] : 0);
        if (more)
            print_error("%s: %d %s stay\n", after, more, kind_names[k]);
        left += more != 0;
    }
    if (atomic_load(&results))
        print_error("%s: %d results stay\n", after, atomic_load(&results));
    assert_int_equal(left, 0);
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

static const weir_setting loads[][2] = {{{"threads", "1"}, {"sequences", "1"}}, {{"threads", "1"}, {"sequences", "2"}}};

static void test_loads_leave_nothing_whichever_call_fails(void **state)
{
    (void)state;
    for (int several = 0; several < 2; several++) {
        int failures = 0;
        for (int at = 1;; at++) {
            bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
            atomic_store(&calls, 0);
            fails_at = at;
            weir_status status = bench_load(&it, loads[several], 2);
            fails_at = 0;
            bool reached = atomic_load(&calls) >= at;
            if (reached) {
                assert_int_equal(status, WEIR_ERR_ENGINE);
                assert_words(weir_detail(), "failed on purpose");
            } else {
                OK(status);
            }
            failures += status != WEIR_OK;
            bench_close(&it);
            nothing_stays(NULL, "a load");
            if (!reached)
                break;
        }
        assert_int_equal(failures, several ? 7 : 5);
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static int32_t prompt[PROMPT];

typedef struct question {
    const char *what;
    const char *text; /* NULL: the tokens */
    weir_setting settings[6];
    size_t count;
    bool alone; /* not of runs that are decoded together */
    bool stops; /* its reader wants no more */
} question;

static const question questions[] = {
    {"tokens", NULL, {GREEDY("3")}, 2, false, false},
    {"a text", "hello", {GREEDY("3")}, 2, false, false},
    {"a chat", "hello", {GREEDY("3"), {"chat", "1"}}, 3, false, false},
    {"logits", NULL, {GREEDY("3"), {"logits", "1"}, {"logprobs", "2"}}, 4, true, false},
    {"a text by a rule", NULL, {{"tokens", "3"}, {"temperature", "0.5"}, {"regex", "[0-9]+"}}, 3, false, false},
    {"a wrong rule", NULL, {GREEDY("3"), {"regex", "(a"}}, 3, false, false},
    {"a reader who stops", NULL, {GREEDY("3")}, 2, false, true},
};

static bool stop(const weir_piece *piece, void *user)
{
    (void)piece;
    (void)user;
    return false;
}

static weir_status ask(const bench *it, const question *what)
{
    weir_tensor input = what->text ? text_input(what->text) : token_input(prompt, PROMPT);
    weir_inference inference = inference_of(&input, what->settings, what->count);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_status status = what->stops ? it->engine->infer_stream(it->model, &inference, stop, NULL, &outputs)
                                     : it->engine->infer(it->model, &inference, &outputs);
    if (status == WEIR_OK)
        release(it, &outputs);
    return status;
}

/* GenAI's engine and its buffer stay with the model, or go with a batch; a failed one is made again. */
static void runs_leave_nothing(int several)
{
    for (size_t q = 0; q < sizeof questions / sizeof *questions; q++) {
        bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
        int before[KINDS], failures = 0;
        OK(bench_load(&it, loads[several], 2));
        uint64_t weights = stats_of(&it).live;
        weir_status whole = ask(&it, &questions[q]);
        if (several && questions[q].alone)
            assert_int_equal(whole, WEIR_ERR_UNSUPPORTED);
        for (int k = 0; k < KINDS; k++)
            before[k] = atomic_load(&made[k]);
        for (int at = 1;; at++) {
            atomic_store(&calls, 0);
            fails_at = at;
            weir_status status = ask(&it, &questions[q]);
            fails_at = 0;
            bool reached = atomic_load(&calls) >= at;
            failures += reached;
            assert_int_equal(stats_of(&it).live, weights);
            nothing_stays(before, questions[q].what);
            if (status != whole)
                assert_words(weir_detail(), "failed on purpose");
            if (!reached)
                assert_int_equal(status, whole);
            if (!reached)
                break;
        }
        assert_true(failures > 0);
        bench_close(&it);
        nothing_stays(NULL, "all of them");
    }
}

static void test_runs_leave_nothing_whichever_call_fails(void **state)
{
    (void)state;
    runs_leave_nothing(0);
    for (int k = SEQUENCES; k <= TENSORS; k++)
        assert_true(atomic_load(&all_made[k]) > 0);
}

static void test_runs_together_leave_nothing_whichever_call_fails(void **state)
{
    (void)state;
    runs_leave_nothing(1);
    for (int k = ENGINES; k <= TURN_OPTIONS; k++)
        assert_true(atomic_load(&all_made[k]) > 0);
}

/* A cancel that finds the run ends it, whichever call it comes in, and tells nothing that is gone. */
static void runs_are_cancelled_in_every_call(int several)
{
    for (size_t q = 0; q < sizeof questions / sizeof *questions; q++) {
        bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
        int before[KINDS], cancelled = 0;
        asked = &it;
        OK(bench_load(&it, loads[several], 2));
        uint64_t weights = stats_of(&it).live;
        weir_status whole = ask(&it, &questions[q]);
        for (int k = 0; k < KINDS; k++)
            before[k] = atomic_load(&made[k]);
        for (int at = 1; whole == WEIR_OK; at++) {
            atomic_store(&moments, 0);
            atomic_store(&found, false);
            cancels_at = at;
            weir_status status = ask(&it, &questions[q]);
            cancels_at = 0;
            assert_int_equal(status, atomic_load(&found) ? WEIR_ERR_CANCELLED : WEIR_OK);
            assert_int_equal(atomic_load(&late), 0);
            assert_int_equal(stats_of(&it).live, weights);
            nothing_stays(before, questions[q].what);
            cancelled += status != WEIR_OK;
            if (atomic_load(&moments) < at)
                break;
        }
        assert_int_equal(cancelled > 0, whole == WEIR_OK);
        bench_close(&it);
    }
}

static void test_runs_are_cancelled_in_every_call(void **state)
{
    (void)state;
    runs_are_cancelled_in_every_call(0);
}

static void test_runs_together_are_cancelled_in_every_call(void **state)
{
    (void)state;
    runs_are_cancelled_in_every_call(1);
}

/* ---- what is made up --------------------------------------------------------------------------------------------- */

static const int32_t *ends;
static size_t end_count;
static float rows[3][VOCABULARY];

static oga_result *made_up_ends(const oga_tokenizer *tokenizer, const int32_t **out, size_t *count)
{
    (void)tokenizer;
    *out = ends;
    *count = end_count;
    return NULL;
}

static oga_result *made_up_rank(oga_tensor *tensor, size_t *out)
{
    (void)tensor;
    *out = 3;
    return NULL;
}

static oga_result *made_up_shape(oga_tensor *tensor, int64_t *shape, size_t rank)
{
    (void)tensor;
    assert_int_equal(rank, 3);
    shape[0] = 1;
    shape[1] = 3;
    shape[2] = VOCABULARY;
    return NULL;
}

static oga_result *made_up_data(oga_tensor *tensor, void **out)
{
    (void)tensor;
    *out = rows;
    return NULL;
}

/* Whichever of three end tokens a run makes ends it; but not where it is to go on. */
static void test_an_end_token_ends_a_run_that_does_not_ignore_it(void **state)
{
    (void)state;
    const weir_setting goes_on[] = {GREEDY("3"), {"ignore_eos", "1"}}, stops[] = {GREEDY("3")};
    bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
    OK(bench_load(&it, loads[0], 2));
    weir_tensor input = token_input(prompt, PROMPT);
    weir_outputs outputs;
    int32_t list[3] = {1, 1, 1}, makes[3];
    OK(infer(&it, &input, goes_on, 3, &outputs));
    assert_int_equal(output_named(&outputs, "tokens")->bytes, sizeof makes);
    memcpy(makes, output_named(&outputs, "tokens")->data, sizeof makes);
    release(&it, &outputs);
    watched->OgaTokenizerGetEosTokenIds = made_up_ends;
    ends = list;
    end_count = 3;
    for (int place = 0; place < 3; place++) {
        list[0] = list[1] = list[2] = VOCABULARY - 1;
        list[place] = makes[0];
        OK(infer(&it, &input, goes_on, 3, &outputs));
        assert_int_equal(output_named(&outputs, "tokens")->bytes, sizeof makes);
        assert_memory_equal(output_named(&outputs, "tokens")->data, makes, sizeof makes);
        release(&it, &outputs);
        OK(infer(&it, &input, stops, 2, &outputs));
        assert_int_equal(output_named(&outputs, "tokens")->bytes, 0);
        assert_memory_equal(output_named(&outputs, "finish_reason")->data, "stop", 4);
        release(&it, &outputs);
    }
    bench_close(&it);
}

/* Logits of several tokens are the last one's. */
static void test_logits_are_of_the_last_row(void **state)
{
    (void)state;
    const weir_setting settings[] = {GREEDY("1"), {"logits", "1"}};
    bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
    OK(bench_load(&it, loads[0], 2));
    weir_tensor input = token_input(prompt, PROMPT);
    weir_outputs outputs;
    for (int r = 0; r < 3; r++)
        for (int k = 0; k < VOCABULARY; k++)
            rows[r][k] = (float)(1000 * r + k);
    watched->OgaTensorGetShapeRank = made_up_rank;
    watched->OgaTensorGetShape = made_up_shape;
    watched->OgaTensorGetData = made_up_data;
    OK(infer(&it, &input, settings, 3, &outputs));
    const weir_tensor *logits = output_named(&outputs, "logits");
    assert_int_equal(logits->bytes, sizeof rows[2]);
    assert_memory_equal(logits->data, rows[2], sizeof rows[2]);
    release(&it, &outputs);
    bench_close(&it);
}

static int32_t type_of_logits;
static size_t rank_of_logits;
static int64_t width_of_logits;

static oga_result *made_up_type(oga_tensor *tensor, int32_t *out)
{
    (void)tensor;
    *out = type_of_logits;
    return NULL;
}

static oga_result *any_rank(oga_tensor *tensor, size_t *out)
{
    (void)tensor;
    *out = rank_of_logits;
    return NULL;
}

static oga_result *any_shape(oga_tensor *tensor, int64_t *shape, size_t rank)
{
    (void)tensor;
    for (size_t i = 0; i < rank; i++)
        shape[i] = i + 1 < rank ? 1 : width_of_logits;
    return NULL;
}

/* Of another type, of more or fewer tokens, or of no shape. */
static void test_logits_that_are_none_are_refused(void **state)
{
    (void)state;
    static const struct {
        int32_t type;
        size_t rank;
        int64_t width;
        weir_status status;
    } tried[] = {{OGA_FLOAT32, 1, VOCABULARY, WEIR_OK},
                 {OGA_FLOAT32, 8, VOCABULARY, WEIR_OK},
                 {OGA_FLOAT32, 0, VOCABULARY, WEIR_ERR_ENGINE},
                 {OGA_FLOAT32, 9, VOCABULARY, WEIR_ERR_ENGINE},
                 {OGA_FLOAT32 + 9, 3, VOCABULARY, WEIR_ERR_UNSUPPORTED},
                 {OGA_FLOAT32, 3, VOCABULARY - 1, WEIR_ERR_UNSUPPORTED},
                 {OGA_FLOAT32, 3, VOCABULARY + 1, WEIR_ERR_UNSUPPORTED}};
    const weir_setting settings[] = {GREEDY("1"), {"logits", "1"}};
    bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
    OK(bench_load(&it, loads[0], 2));
    weir_tensor input = token_input(prompt, PROMPT);
    watched->OgaTensorGetType = made_up_type;
    watched->OgaTensorGetShapeRank = any_rank;
    watched->OgaTensorGetShape = any_shape;
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        weir_outputs outputs;
        type_of_logits = tried[i].type;
        rank_of_logits = tried[i].rank;
        width_of_logits = tried[i].width;
        assert_int_equal(infer(&it, &input, settings, 3, &outputs), tried[i].status);
        if (tried[i].status == WEIR_OK)
            release(&it, &outputs);
        if (tried[i].status == WEIR_ERR_UNSUPPORTED)
            assert_words(weir_detail(), "its logits are not 448 numbers of f32");
    }
    bench_close(&it);
}

int main(void)
{
    fill_prompt(prompt, PROMPT, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_loads_leave_nothing_whichever_call_fails, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_runs_leave_nothing_whichever_call_fails, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_an_end_token_ends_a_run_that_does_not_ignore_it, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_logits_are_of_the_last_row, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_logits_that_are_none_are_refused, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_runs_together_leave_nothing_whichever_call_fails, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_runs_are_cancelled_in_every_call, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_runs_together_are_cancelled_in_every_call, watch, unwatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
