/* told.c: what GenAI is told of a load, of a run alone and of runs together, word for word; and what is told of its answers. Behind
 * the functions that note it is GenAI itself. */
#include "common.h"
#include "folders.h"

#include <pthread.h>

#include "engines/llm/wl.h"

enum { PROMPT = 3 };

/* ---- GenAI's functions, which are noted -------------------------------------------------------------------------- */

static wl_library real, *watched;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char told[4096]; /* a line for each call; with the lock */
static const char *failure_words;
static char failure; /* stands for the result of a call that fails */
static const char *templated;

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    va_list values;
    pthread_mutex_lock(&lock);
    size_t at = strlen(told);
    va_start(values, format);
    vsnprintf(told + at, sizeof told - at, format, values);
    va_end(values);
    at = strlen(told);
    snprintf(told + at, sizeof told - at, "\n");
    pthread_mutex_unlock(&lock);
}

static void note_tokens(const char *what, const int32_t *tokens, size_t count)
{
    char text[256];
    int length = snprintf(text, sizeof text, "%s", what);
    for (size_t i = 0; i < count; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, " %d", tokens[i]);
    note("%s", text);
}

static oga_result *fail_it(void)
{
    return (oga_result *)(void *)&failure;
}

static const char *its_words(const oga_result *result)
{
    return (const void *)result == &failure ? failure_words : real.OgaResultGetError(result);
}

static void its_end(oga_result *result)
{
    if ((void *)result != &failure)
        real.OgaDestroyResult(result);
}

/* A function with its parameters, what is noted, and what it is called with. */
#define NOTED(name, parameters, noted, arguments)                                                                      \
    static oga_result *noted_##name parameters                                                                         \
    {                                                                                                                  \
        noted;                                                                                                         \
        return real.name arguments;                                                                                    \
    }
#define TURN(what, type, format)                                                                                       \
    NOTED(OgaTurnOptionsSet##what, (oga_turn_options * options, type value), note(#what " " format, value),            \
          (options, value))

NOTED(OgaConfigClearProviders, (oga_config * config), note("no providers"), (config))
NOTED(OgaConfigOverlay, (oga_config * config, const char *json), note("%s", json), (config, json))
NOTED(OgaConfigAppendProvider, (oga_config * config, const char *provider), note("provider %s", provider),
      (config, provider))
NOTED(OgaCreateEngineEventBuffer, (oga_engine * engine, size_t capacity, oga_event_buffer **out),
      note("events %zu", capacity), (engine, capacity, out))
NOTED(OgaGeneratorParamsSetSearchNumber, (oga_generator_params * params, const char *name, double value),
      note("%s %g", name, value), (params, name, value))
NOTED(OgaGeneratorParamsSetSearchBool, (oga_generator_params * params, const char *name, bool value),
      note("%s %d", name, value), (params, name, value))
NOTED(OgaGeneratorParamsSetGuidance, (oga_generator_params * params, const char *kind, const char *data, bool forward),
      note("%s %s %d", kind, data, forward), (params, kind, data, forward))
NOTED(OgaGenerator_AppendTokens, (oga_generator * generator, const int32_t *tokens, size_t count),
      note_tokens("tokens", tokens, count), (generator, tokens, count))
NOTED(OgaGenerator_SetRuntimeOption, (oga_generator * generator, const char *key, const char *value),
      note("%s %s", key, value), (generator, key, value))
NOTED(OgaRequestOptionsSetMaxSessionTokens, (oga_request_options * options, uint64_t tokens),
      note("session %d", (int)tokens), (options, tokens))
TURN(MaxGeneratedTokens, uint64_t, "%ld")
TURN(MinGeneratedTokens, uint64_t, "%ld")
TURN(DoSample, bool, "%d")
TURN(Temperature, float, "%g")
TURN(TopK, int32_t, "%d")
TURN(TopP, float, "%g")
TURN(RepetitionPenalty, float, "%g")
TURN(NoRepeatNgramSize, int32_t, "%d")
NOTED(OgaTurnOptionsSetGuidance, (oga_turn_options * options, const char *kind, const char *data),
      note("%s %s", kind, data), (options, kind, data))
NOTED(OgaRequestBeginTurn,
      (oga_request * request, const oga_turn_options *options, const int32_t *tokens, uint64_t count, uint64_t *turn),
      note_tokens("tokens", tokens, count), (request, options, tokens, count, turn))
NOTED(OgaTokenizerEncode, (const oga_tokenizer *tokenizer, const char *text, oga_sequences *sequences),
      note("encode %s", templated &&strcmp(text, templated) == 0 ? "the chat" : text), (tokenizer, text, sequences))

/* Only of graphs with a table of blocks, as it says of this one. */
static oga_result *noted_OgaTurnOptionsSetSeed(oga_turn_options *options, uint64_t seed)
{
    (void)options;
    note("Seed %d", (int)seed);
    return NULL;
}

static oga_result *noted_OgaTokenizerApplyChatTemplate(const oga_tokenizer *tokenizer, const char *jinja,
                                                       const char *messages, const char *tools, bool begins,
                                                       const char **out)
{
    note("%s: %s, %s, %d", jinja ? jinja : "its own", messages, tools ? tools : "no tools", begins);
    oga_result *failed = real.OgaTokenizerApplyChatTemplate(tokenizer, jinja, messages, tools, begins, out);
    templated = *out;
    return failed;
}

/* The library is one for all models, and known from the first on. */
static int watch(void **state)
{
    (void)state;
    bench it = bench_open(the_model(SHARED));
    watched = (wl_library *)(uintptr_t)it.model->library;
    bench_close(&it);
    real = *watched;
#define NOTE(name) watched->name = noted_##name;
    NOTE(OgaConfigClearProviders)
    NOTE(OgaConfigOverlay)
    NOTE(OgaConfigAppendProvider)
    NOTE(OgaCreateEngineEventBuffer)
    NOTE(OgaGeneratorParamsSetSearchNumber)
    NOTE(OgaGeneratorParamsSetSearchBool)
    NOTE(OgaGeneratorParamsSetGuidance)
    NOTE(OgaGenerator_AppendTokens)
    NOTE(OgaGenerator_SetRuntimeOption)
    NOTE(OgaRequestOptionsSetMaxSessionTokens)
    NOTE(OgaTurnOptionsSetMaxGeneratedTokens)
    NOTE(OgaTurnOptionsSetMinGeneratedTokens)
    NOTE(OgaTurnOptionsSetDoSample)
    NOTE(OgaTurnOptionsSetTemperature)
    NOTE(OgaTurnOptionsSetTopK)
    NOTE(OgaTurnOptionsSetTopP)
    NOTE(OgaTurnOptionsSetRepetitionPenalty)
    NOTE(OgaTurnOptionsSetNoRepeatNgramSize)
    NOTE(OgaTurnOptionsSetSeed)
    NOTE(OgaTurnOptionsSetGuidance)
    NOTE(OgaRequestBeginTurn)
    NOTE(OgaTokenizerEncode)
    NOTE(OgaTokenizerApplyChatTemplate)
#undef NOTE
    watched->OgaResultGetError = its_words;
    watched->OgaDestroyResult = its_end;
    failure_words = "failed on purpose";
    templated = NULL;
    told[0] = 0;
    return 0;
}

static int unwatch(void **state)
{
    (void)state;
    if (watched)
        *watched = real;
    return 0;
}

static void was_told(const char *expected)
{
    assert_string_equal(told, expected);
    told[0] = 0;
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

#define OVERLAY(options, length, seed, more, engine)                                                                   \
    "no providers\n{\"model\":{\"decoder\":{\"session_options\":{" options "}}},\"search\":{\"max_length\":" length    \
    ",\"min_length\":0,\"num_beams\":1,\"num_return_sequences\":1,\"batch_size\":1,\"random_seed\":" seed more         \
    "}" engine "}\n"
#define THREADS(count) "\"intra_op_num_threads\":" count

typedef struct load {
    const char *one, *other; /* of genai_config.json */
    weir_setting settings[4];
    size_t count;
    const char *told;
} load;

static const char length_of_context[] = "\"context_length\": 256", searching[] = "\"search\": {";
static const char paged[] = "\"engine\": {\"dynamic_batching\": {\"block_size\": 100}}, \"search\": {";
static const char optioned[] = "\"session_options\": {", threaded[] = "\"session_options\": {" THREADS(" 3") ", ";

static const load loads[] = {
    {searching, searching, {{"threads", "1"}}, 1, OVERLAY(THREADS("1"), "256", "0", "", "")},
    {searching,
     searching,
     {{"context", "100"}, {"batch", "7"}, {"seed", "9"}},
     3,
     OVERLAY(THREADS("2"), "100", "9", ",\"chunk_size\":7", "")},
    {searching,
     searching,
     {{"sequences", "3"}},
     1,
     OVERLAY(THREADS("2"), "256", "0", "", ",\"engine\":{\"static_batching\":{\"max_batch_size\":3}}")},
    {length_of_context, "\"context_length\": 4096", {{0}}, 0, OVERLAY(THREADS("2"), "4096", "0", "", "")},
    {length_of_context, "\"context_length\": 4097", {{0}}, 0, OVERLAY(THREADS("2"), "4096", "0", "", "")},
    {length_of_context,
     "\"context_length\": 4097",
     {{"context", "4097"}},
     1,
     OVERLAY(THREADS("2"), "4097", "0", "", "")},
    {optioned, threaded, {{0}}, 0, OVERLAY(THREADS("3"), "256", "0", "", "")},
    {optioned, threaded, {{"threads", "4"}}, 1, OVERLAY(THREADS("4"), "256", "0", "", "")},
    {searching,
     paged,
     {{0}},
     0,
     OVERLAY(THREADS("2"), "256", "0", "",
             ",\"engine\":{\"dynamic_batching\":{\"max_batch_size\":1,\"num_blocks\":3}}")},
    {searching,
     paged,
     {{"context", "200"}, {"sequences", "4"}, {"batch", "5"}},
     3,
     OVERLAY(THREADS("2"), "200", "0", ",\"chunk_size\":5",
             ",\"engine\":{\"dynamic_batching\":{\"max_batch_size\":4,\"num_blocks\":8}}")},
    {searching,
     paged,
     {{"context", "201"}, {"sequences", "4"}},
     2,
     OVERLAY(THREADS("2"), "201", "0", "",
             ",\"engine\":{\"dynamic_batching\":{\"max_batch_size\":4,\"num_blocks\":12}}")},
};

static oga_result *no_model(const oga_config *config, oga_model **out)
{
    (void)config;
    *out = NULL;
    return fail_it();
}

static void test_of_a_load(void **state)
{
    (void)state;
    OK(weir_option_set("cores", "2"));
    watched->OgaCreateModelFromConfig = no_model; /* enough is known by then */
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        char path[FOLDER_NAME];
        folder_copy(the_model(SHARED), path);
        folder_replace(path, "genai_config.json", loads[i].one, loads[i].other);
        bench it = bench_on(path, 1ull << 28, NULL);
        assert_int_equal(bench_load(&it, loads[i].settings, loads[i].count), WEIR_ERR_ENGINE);
        assert_words(weir_detail(), "cannot load it: failed on purpose");
        was_told(loads[i].told);
        bench_close(&it);
        folder_drop(path);
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static const int32_t prompt[PROMPT] = {60, 97, 134};
#define TOKENS "tokens 60 97 134\n"

typedef struct run {
    weir_setting settings[9];
    size_t count;
    const char *alone, *together;
} run;

#define ALONE(length, least, heat, k, p, penalty, ngram, seed, draws)                                                  \
    "max_length " length "\nmin_length " least "\ntemperature " heat "\ntop_k " k "\ntop_p " p                         \
    "\nrepetition_penalty " penalty "\nno_repeat_ngram_size " ngram "\nrandom_seed " seed "\ndo_sample " draws "\n"
#define TOGETHER(session, most, draws, least, heat, k, p, penalty, ngram)                                              \
    "session " session "\nMaxGeneratedTokens " most "\nDoSample " draws "\nMinGeneratedTokens " least                  \
    "\nTemperature " heat "\nTopK " k "\nTopP " p "\nRepetitionPenalty " penalty "\nNoRepeatNgramSize " ngram "\n"

static const run runs[] = {
    {{{"tokens", "2"}},
     1,
     ALONE("5", "0", "1", "1", "1", "1", "0", "0", "0") TOKENS,
     TOGETHER("5", "2", "0", "0", "1", "1", "1", "1", "0") TOKENS},
    {{{"tokens", "2"},
      {"temperature", "0.5"},
      {"top_k", "7"},
      {"top_p", "0.25"},
      {"repeat_penalty", "1.5"},
      {"no_repeat_ngram", "4"},
      {"ignore_eos", "1"},
      {"regex", "a+"}},
     8,
     ALONE("5", "5", "0.5", "7", "0.25", "1.5", "4", "0", "1") "regex a+ 0\n" TOKENS,
     TOGETHER("5", "2", "1", "2", "0.5", "7", "0.25", "1.5", "4") "regex a+\n" TOKENS},
    {{{"tokens", "1"}, {"temperature", "2"}, {"top_k", "0"}, {"json_schema", "{}"}},
     4,
     ALONE("4", "0", "2", "448", "0.95", "1", "0", "0", "1") "json_schema {} 0\n" TOKENS,
     TOGETHER("4", "1", "1", "0", "2", "448", "0.95", "1", "0") "json_schema {}\n" TOKENS},
    {{{"tokens", "1"}, {"temperature", "2"}, {"top_k", "447"}, {"lark", "start: \"a\""}},
     4,
     ALONE("4", "0", "2", "447", "0.95", "1", "0", "0", "1") "lark_grammar start: \"a\" 0\n" TOKENS,
     TOGETHER("4", "1", "1", "0", "2", "447", "0.95", "1", "0") "lark_grammar start: \"a\"\n" TOKENS},
    {{{"tokens", "1"}, {"temperature", "2"}, {"top_k", "449"}},
     3,
     ALONE("4", "0", "2", "448", "0.95", "1", "0", "0", "1") TOKENS,
     TOGETHER("4", "1", "1", "0", "2", "448", "0.95", "1", "0") TOKENS},
    {{{"tokens", "1"}, {"temperature", "2"}, {"top_k", "1"}},
     3,
     ALONE("4", "0", "2", "1", "0.95", "1", "0", "0", "1") TOKENS,
     TOGETHER("4", "1", "0", "0", "1", "1", "1", "1", "0") TOKENS},
};

static const weir_setting kinds_of_load[][2] = {{{"threads", "1"}, {"sequences", "1"}},
                                                {{"threads", "1"}, {"sequences", "2"}}};

static bench bench_of(int several)
{
    bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
    OK(bench_load(&it, kinds_of_load[several], 2));
    told[0] = 0;
    return it;
}

static weir_status ask(const bench *it, const weir_setting *settings, size_t count)
{
    weir_tensor input = token_input(prompt, PROMPT);
    weir_outputs outputs;
    weir_status status = infer(it, &input, settings, count, &outputs);
    if (status == WEIR_OK)
        release(it, &outputs);
    return status;
}

static void test_of_a_run(void **state)
{
    (void)state;
    for (int several = 0; several < 2; several++) {
        bench it = bench_of(several);
        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
            char expected[1024];
            OK(ask(&it, runs[i].settings, runs[i].count));
            /* An engine of rows is made for each batch, but for the first. */
            snprintf(expected, sizeof expected, "%s%s", several && i > 0 ? "events 2\n" : "",
                     several ? runs[i].together : runs[i].alone);
            was_told(expected);
        }
        bench_close(&it);
    }
}

static void test_of_seeds(void **state)
{
    (void)state;
    const weir_setting draws[] = {{"tokens", "1"}, {"temperature", "2"}, {"seed", "11"}};
    const weir_setting greedy[] = {{"tokens", "1"}, {"temperature", "0"}, {"seed", "11"}};
    bench alone = bench_of(0), several = bench_of(1);
    OK(ask(&alone, draws, 3));
    was_told(ALONE("4", "0", "2", "40", "0.95", "1", "0", "11", "1") TOKENS);
    assert_int_equal(ask(&several, draws, 3), WEIR_ERR_UNSUPPORTED);
    OK(ask(&several, greedy, 3));
    was_told(TOGETHER("4", "1", "0", "0", "1", "1", "1", "1", "0") TOKENS);
    several.model->folder.paged = true;
    OK(ask(&several, greedy, 3));
    was_told("events 2\n" TOGETHER("4", "1", "0", "0", "1", "1", "1", "1", "0") TOKENS);
    OK(ask(&several, draws, 3)); /* by the same engine, which is not made for a batch */
    was_told(TOGETHER("4", "1", "1", "0", "2", "40", "0.95", "1", "0") "Seed 11\n" TOKENS);
    bench_close(&several);
    bench_close(&alone);
}

static void test_of_texts(void **state)
{
    (void)state;
    static const char jinja[] = "{% for m in messages %}{{ m['content'] }}{% endfor %}";
    const weir_setting settings[] = {{"tokens", "0"}, {"chat", "1"}, {"chat_template", jinja}};
    bench it = bench_of(0);
    weir_tensor text = text_input("a \"b\""), chat = bytes_input("messages", "system 1\na\nuser 2\nbc\n");
    weir_outputs outputs;
    OK(infer(&it, &text, settings, 1, &outputs));
    release(&it, &outputs);
    was_told("encode a \"b\"\n");
    OK(infer(&it, &text, settings, 2, &outputs));
    release(&it, &outputs);
    was_told("its own: [{\"role\":\"user\",\"content\":\"a \\\"b\\\"\"}], no tools, 1\nencode the chat\n");
    OK(infer(&it, &chat, settings, 3, &outputs));
    release(&it, &outputs);
    was_told("{% for m in messages %}{{ m['content'] }}{% endfor %}: [{\"role\":\"system\",\"content\":\"a\"},"
             "{\"role\":\"user\",\"content\":\"bc\"}], no tools, 1\nencode the chat\n");
    bench_close(&it);
}

/* ---- cancels ----------------------------------------------------------------------------------------------------- */

static bench *cancelled;
static int calls, fails_at; /* of the functions below; it cancels the run, too */

static oga_result *cancel_or(bool here)
{
    if (!here || ++calls != fails_at)
        return NULL;
    OK(cancelled->engine->cancel(cancelled->model, 0));
    return fail_it();
}

static oga_result *cancelled_create(const oga_model *model, const oga_generator_params *params, oga_generator **out)
{
    oga_result *failed = cancel_or(true);
    return failed ? failed : real.OgaCreateGenerator(model, params, out);
}

static oga_result *cancelled_append(oga_generator *generator, const int32_t *tokens, size_t count)
{
    oga_result *failed = cancel_or(true);
    return failed ? failed : real.OgaGenerator_AppendTokens(generator, tokens, count);
}

static oga_result *cancelled_step(oga_generator *generator)
{
    oga_result *failed = cancel_or(true);
    return failed ? failed : real.OgaGenerator_GenerateNextToken(generator);
}

/* What ONNX Runtime does for the run is ended, and what fails then is the cancel. */
static void test_of_a_cancel(void **state)
{
    (void)state;
    const weir_setting greedy[] = {GREEDY("4"), {"ignore_eos", "1"}};
    bench it = bench_of(0);
    cancelled = &it;
    watched->OgaCreateGenerator = cancelled_create;
    watched->OgaGenerator_AppendTokens = cancelled_append;
    watched->OgaGenerator_GenerateNextToken = cancelled_step;
    for (fails_at = 1; fails_at < 5; fails_at++) {
        calls = 0;
        told[0] = 0;
        assert_int_equal(ask(&it, greedy, 3), WEIR_ERR_CANCELLED);
        assert_words(weir_detail(), "the run was cancelled");
        assert_int_equal(calls, fails_at);
        assert_int_equal(strstr(told, "terminate_session 1\n") != NULL, fails_at > 1); /* one that computes */
    }
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(it.engine->metrics(it.model, &metrics));
    assert_int_equal(metrics.cancelled, 4);
    assert_int_equal(metrics.failures, 0);
    bench_close(&it);
}

/* ---- what GenAI answers ------------------------------------------------------------------------------------------ */

static oga_result *failed_append(oga_generator *generator, const int32_t *tokens, size_t count)
{
    (void)generator, (void)tokens, (void)count;
    return fail_it();
}

/* On a line, and what it has for want of memory is told as such. */
static void test_its_words_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *said;
        weir_status status;
        const char *told;
    } words[] = {{"two\nlines\rthree", WEIR_ERR_ENGINE, "cannot read the prompt: two lines three"},
                 {NULL, WEIR_ERR_ENGINE, "no reason given"},
                 {"std::bad_alloc", WEIR_ERR_SYSTEM, "read the prompt: there is no host memory: std::bad_alloc"}};
    bench it = bench_of(0);
    watched->OgaGenerator_AppendTokens = failed_append;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        failure_words = words[i].said;
        assert_int_equal(ask(&it, NULL, 0), words[i].status);
        assert_words(weir_detail(), words[i].told);
        assert_words(weir_detail(), it.load.path);
    }
    bench_close(&it);
}

static uint32_t reason;
static int events;

/* The run is at its end with the second of them. */
static oga_result *made_up_flags(const oga_event *event, uint32_t *out)
{
    oga_result *failed = real.OgaEngineEventGetFlags(event, out);
    *out |= ++events == 2 ? OGA_EVENT_FINISHED : 0;
    return failed;
}

static oga_result *made_up_reason(const oga_event *event, uint32_t *out)
{
    (void)event;
    *out = reason;
    return NULL;
}

static oga_result *made_up_code(const oga_event *event, uint32_t *out)
{
    (void)event;
    *out = 77;
    return NULL;
}

static void test_why_a_run_together_ends(void **state)
{
    (void)state;
    static const char *const finishes[] = {[OGA_FINISH_EOS] = "stop",
                                           [OGA_FINISH_LENGTH] = "length",
                                           [OGA_FINISH_SESSION] = "length",
                                           [OGA_FINISH_CANCELLED] = "cancelled"};
    const weir_setting greedy[] = {GREEDY("9"), {"ignore_eos", "1"}};
    bench it = bench_of(1);
    weir_tensor input = token_input(prompt, PROMPT);
    weir_outputs outputs;
    watched->OgaEngineEventGetFlags = made_up_flags;
    watched->OgaEngineEventGetFinishReason = made_up_reason;
    watched->OgaEngineEventGetErrorCode = made_up_code;
    for (reason = OGA_FINISH_EOS; reason < OGA_FINISH_FAILED; reason++) {
        if (!finishes[reason])
            continue;
        events = 0;
        OK(infer(&it, &input, greedy, 3, &outputs));
        const weir_tensor *finish = output_named(&outputs, "finish_reason");
        assert_int_equal(finish->bytes, strlen(finishes[reason]));
        assert_memory_equal(finish->data, finishes[reason], finish->bytes);
        assert_int_equal(output_named(&outputs, "tokens")->shape[0], 2);
        release(&it, &outputs);
    }
    events = 0;
    assert_int_equal(infer(&it, &input, greedy, 3, &outputs), WEIR_ERR_ENGINE);
    assert_words(weir_detail(), "has failed a run with code 77");
    bench_close(&it);
}

int main(void)
{
#define WATCHED(test) cmocka_unit_test_setup_teardown(test, watch, unwatch)
    const struct CMUnitTest tests[] = {
        WATCHED(test_of_a_load),
        WATCHED(test_of_a_run),
        WATCHED(test_of_seeds),
        WATCHED(test_of_texts),
        WATCHED(test_of_a_cancel),
        WATCHED(test_its_words_are_told),
        WATCHED(test_why_a_run_together_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
