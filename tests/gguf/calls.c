/* calls.c: llama.cpp's functions, in whose place a test puts its own: what they make is given back, and what they answer is
 * taken at its word, whichever call it is that fails or throws, or in which the run is cancelled. */
#include "common.h"
#include <weir/engine.h>

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include "gguf/engine/wg.h"

enum { PROMPT = 6, MADE = 4, VOCABULARY = 286, PACK = 128, SEQUENCES = 16, WIDTH = 32 };

static char llama_path[64], bert_path[64];
static int32_t prompt[PROMPT];

/* ---- what is in their place -------------------------------------------------------------------------------------- */

enum kind { MODELS, CONTEXTS, BATCHES, SAMPLERS, POOLS, KINDS };
static const char *const kind_names[KINDS] = {"models", "contexts", "batches", "samplers", "pools"};
static wg_library real, *watched;
static void (*end_it)(const char *file, int line, const char *format, ...); /* ggml's assertion, which throws */
static int made[KINDS], all_made[KINDS];
static int calls, fails_at; /* this one of the calls fails; 0: none */
static bool throws;         /* it does not answer, but throws */
static bool pool_fails;     /* and so does each that makes a pool of threads */

static const fixture *asked; /* whose runs are cancelled, */
static int cancels_at;       /* at this one of the calls; 0: none */
static int moments;          /* calls in which a cancel may come */
static bool was_found;       /* it has found the run */

/* Within a call, as from another thread: not where the engine holds the model's lock, for which a cancel waits. */
static void may_cancel(void)
{
    if (++moments != cancels_at || pthread_mutex_trylock(&asked->model->runs.lock) != 0)
        return;
    pthread_mutex_unlock(&asked->model->runs.lock);
    was_found = asked->it.engine->cancel(asked->model, 0) == WEIR_OK;
}

/* Whether the call is to answer that it has failed. Each is one that may throw. */
static bool fails(void)
{
    may_cancel();
    if (++calls != fails_at)
        return false;
    if (throws)
        end_it("calls.c", 1, "thrown on purpose");
    return true;
}

static void *count_if(enum kind kind, void *it)
{
    made[kind] += it != NULL;
    all_made[kind] += it != NULL;
    return it;
}

static struct llama_model_params model_params; /* of the last call */
static struct llama_context_params context_params;

static struct llama_model *its_model(const char *path, struct llama_model_params params)
{
    model_params = params;
    return fails() ? NULL : count_if(MODELS, real.llama_model_load_from_file(path, params));
}

static struct llama_context *its_context(struct llama_model *model, struct llama_context_params params)
{
    context_params = params;
    return fails() ? NULL : count_if(CONTEXTS, real.llama_init_from_model(model, params));
}

static struct llama_batch its_batch(int32_t tokens, int32_t width, int32_t sequences)
{
    made[BATCHES]++;
    all_made[BATCHES]++;
    return real.llama_batch_init(tokens, width, sequences);
}

static struct llama_sampler *its_chain(struct llama_sampler_chain_params params)
{
    (void)fails();
    return count_if(SAMPLERS, real.llama_sampler_chain_init(params));
}

static struct llama_sampler *its_grammar(const struct llama_vocab *vocab, const char *grammar, const char *root)
{
    return fails() ? NULL : count_if(SAMPLERS, real.llama_sampler_init_grammar(vocab, grammar, root));
}

static uint32_t polling; /* the most that a pool's waiting threads were told to look for work before they sleep */

static struct ggml_threadpool *its_pool(struct ggml_threadpool_params *params)
{
    polling = params->poll > polling ? params->poll : polling;
    if (pool_fails && throws)
        end_it("calls.c", 1, "thrown on purpose");
    return pool_fails ? NULL : count_if(POOLS, real.ggml_threadpool_new(params));
}

/* What is given back may fail, and has words of its own then: they are not why a load has failed. */
static void say_other_words(void)
{
    (void)weir_fail(WEIR_ERR_SYSTEM, "words of what is given back");
}

static void model_gone(struct llama_model *model)
{
    made[MODELS]--;
    say_other_words();
    real.llama_model_free(model);
}

static void context_gone(struct llama_context *context)
{
    made[CONTEXTS]--;
    say_other_words();
    real.llama_free(context);
}

static void batch_gone(struct llama_batch batch)
{
    made[BATCHES]--;
    real.llama_batch_free(batch);
}

static void sampler_gone(struct llama_sampler *sampler)
{
    made[SAMPLERS]--;
    may_cancel();
    real.llama_sampler_free(sampler);
}

static void pool_gone(struct ggml_threadpool *pool)
{
    made[POOLS]--;
    real.ggml_threadpool_free(pool);
}

/* What the last calls computed: tokens and sequences of each. */
static int computed, tokens_of[64], sequences_of[64];

static int32_t its_decode(struct llama_context *context, struct llama_batch tokens)
{
    return fails() ? -3 : real.llama_decode(context, tokens);
}

static int32_t its_encode(struct llama_context *context, struct llama_batch tokens)
{
    if (fails())
        return -3;
    if (computed < 64) {
        tokens_of[computed] = tokens.n_tokens;
        sequences_of[computed] = tokens.n_tokens ? tokens.seq_id[tokens.n_tokens - 1][0] + 1 : 0;
    }
    computed++;
    return real.llama_encode(context, tokens);
}

static float *its_embeddings(struct llama_context *context, llama_seq_id sequence)
{
    return fails() ? NULL : real.llama_get_embeddings_seq(context, sequence);
}

static int32_t its_tokens(const struct llama_vocab *vocab, const char *text, int32_t length, llama_token *tokens,
                          int32_t most, bool marks, bool special)
{
    return fails() ? INT32_MIN : real.llama_tokenize(vocab, text, length, tokens, most, marks, special);
}

static int32_t its_template(const char *name, const struct llama_chat_message *chat, size_t count, bool begins,
                            char *text, int32_t length)
{
    return fails() ? -1 : real.llama_chat_apply_template(name, chat, count, begins, text, length);
}

static size_t its_state_size(struct llama_context *context, llama_seq_id sequence)
{
    size_t size = real.llama_state_seq_get_size(context, sequence);
    return fails() ? size + 8 : size;
}

static size_t its_state(struct llama_context *context, uint8_t *to, size_t size, llama_seq_id sequence)
{
    return fails() ? 0 : real.llama_state_seq_get_data(context, to, size, sequence);
}

static size_t state_read(struct llama_context *context, const uint8_t *from, size_t size, llama_seq_id sequence)
{
    return fails() ? 0 : real.llama_state_seq_set_data(context, from, size, sequence);
}

/* These do not fail, but may throw. */
static void its_choice(struct llama_sampler *sampler, llama_token_data_array *list)
{
    (void)fails();
    real.llama_sampler_apply(sampler, list);
}

static void its_note(struct llama_sampler *sampler, llama_token token)
{
    (void)fails();
    real.llama_sampler_accept(sampler, token);
}

static bool its_removal(llama_memory_t memory, llama_seq_id sequence, llama_pos from, llama_pos to)
{
    (void)fails();
    return real.llama_memory_seq_rm(memory, sequence, from, to);
}

static int32_t its_piece(const struct llama_vocab *vocab, llama_token token, char *text, int32_t room, int32_t strip,
                         bool special)
{
    if (special) /* texts of the likeliest tokens are made without a guard */
        return real.llama_token_to_piece(vocab, token, text, room, strip, special);
    (void)fails();
    return real.llama_token_to_piece(vocab, token, text, room, strip, special);
}

/* The library is one for all models, and known from the first on. */
static int watch(void **state)
{
    (void)state;
    fixture its = fixture_open(llama_path, NULL, 0);
    watched = (wg_library *)(uintptr_t)its.model->library;
    fixture_close(&its);
    real = *watched;
    *(void **)&end_it = dlsym(real.handle, "ggml_abort");
    assert_non_null(end_it);
    watched->llama_model_load_from_file = its_model;
    watched->llama_init_from_model = its_context;
    watched->llama_batch_init = its_batch;
    watched->llama_sampler_chain_init = its_chain;
    watched->llama_sampler_init_grammar = its_grammar;
    watched->ggml_threadpool_new = its_pool;
    watched->llama_model_free = model_gone;
    watched->llama_free = context_gone;
    watched->llama_batch_free = batch_gone;
    watched->llama_sampler_free = sampler_gone;
    watched->ggml_threadpool_free = pool_gone;
    watched->llama_decode = its_decode;
    watched->llama_encode = its_encode;
    watched->llama_get_embeddings_seq = its_embeddings;
    watched->llama_tokenize = its_tokens;
    watched->llama_chat_apply_template = its_template;
    watched->llama_state_seq_get_size = its_state_size;
    watched->llama_state_seq_get_data = its_state;
    watched->llama_state_seq_set_data = state_read;
    watched->llama_sampler_apply = its_choice;
    watched->llama_sampler_accept = its_note;
    watched->llama_memory_seq_rm = its_removal;
    watched->llama_token_to_piece = its_piece;
    memset(made, 0, sizeof made);
    memset(all_made, 0, sizeof all_made);
    calls = fails_at = cancels_at = computed = 0;
    throws = pool_fails = false;
    return 0;
}

static int unwatch(void **state)
{
    (void)state;
    if (watched)
        *watched = real;
    return 0;
}

static void nothing_stays(const int *before, const char *after)
{
    int left = 0;
    for (int k = 0; k < KINDS; k++) {
        int more = made[k] - (before ? before[k] : 0);
        if (more)
            print_error("%s: %d %s stay\n", after, more, kind_names[k]);
        left += more != 0;
    }
    assert_int_equal(left, 0);
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

static void test_loads_leave_nothing_whichever_call_fails(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        const char *path = which / 2 ? bert_path : llama_path;
        int failures = 0;
        for (int at = 1;; at++) {
            bench it = bench_open(path, 1ull << 30);
            weir_engine_model *model = NULL;
            calls = 0;
            fails_at = at;
            throws = which % 2;
            weir_status status = bench_load(&it, NULL, 0, &model);
            fails_at = 0;
            if (status == WEIR_OK)
                it.engine->unload(model);
            else
                assert_null(model);
            if (status != WEIR_OK)
                assert_non_null(strstr(weir_detail(), "llama.cpp cannot"));
            failures += status != WEIR_OK;
            bench_close(&it);
            nothing_stays(NULL, "a load");
            if (calls < at)
                break;
        }
        assert_int_equal(failures, 2); /* of the model and of the context */
    }
}

/* What llama.cpp asserts, or throws, where it got no memory. */
static weir_client *starved;

static struct llama_model *model_or_assertion(const char *path, struct llama_model_params params)
{
    struct llama_model *it = real.llama_model_load_from_file(path, params);
    if (!it)
        end_it(__FILE__, __LINE__, "a model without memory");
    return it;
}

static struct llama_context *context_or_assertion(struct llama_model *model, struct llama_context_params params)
{
    weir_client_stats now = WEIR_INIT(weir_client_stats);
    OK(weir_client_info(starved, &now));
    OK(weir_client_set_limits(starved, 0, now.live));
    struct llama_context *it = real.llama_init_from_model(model, params);
    if (!it)
        end_it(__FILE__, __LINE__, "a context without memory");
    return it;
}

static void test_a_refusal_explains_what_is_thrown_behind_it(void **state)
{
    (void)state;
    for (int of_context = 0; of_context < 2; of_context++) {
        bench it = bench_open(llama_path, 1ull << 30);
        weir_engine_model *model = NULL;
        starved = it.client;
        watched->llama_model_load_from_file = of_context ? real.llama_model_load_from_file : model_or_assertion;
        watched->llama_init_from_model = context_or_assertion;
        if (!of_context)
            OK(weir_client_set_limits(it.client, 0, 4096));
        assert_int_equal(bench_load(&it, NULL, 0, &model), WEIR_ERR_OUT_OF_MEMORY);
        assert_null(strstr(weir_detail(), "without memory"));
        assert_non_null(strstr(weir_detail(), "model asked for"));
        assert_null(model);
        bench_close(&it);
    }
}

/* A row of logits for each sequence, and not for each token; cells of its own for each, by 256. */
static void test_a_context_is_what_the_settings_say(void **state)
{
    (void)state;
    const weir_setting settings[] = {{"sequences", "3"},
                                     {"context", "120"},
                                     {"batch", "40"},
                                     {"threads", "2"},
                                     {"cache_k", "f32"},
                                     {"cache_v", "bf16"},
                                     {"swa_full", "1"},
                                     {"flash_attention", "off"},
                                     {"mmap", "0"},
                                     {"rope_frequency_base", "5000"},
                                     {"rope_frequency_scale", "0.5"}};
    const struct llama_context_params *c = &context_params;
    fixture its = fixture_open(llama_path, settings, sizeof settings / sizeof *settings);
    assert_int_equal(c->n_ctx, 3 * 256);
    assert_int_equal(c->n_batch, 40);
    assert_int_equal(c->n_ubatch, 40);
    assert_int_equal(c->n_seq_max, 3);
    assert_int_equal(c->n_outputs_max, 3);
    assert_int_equal(c->n_threads, 2);
    assert_int_equal(c->n_threads_batch, 2);
    assert_int_equal(c->type_k, GGML_TYPE_F32);
    assert_int_equal(c->type_v, GGML_TYPE_BF16);
    assert_int_equal(c->flash_attn_type, LLAMA_FLASH_ATTN_TYPE_DISABLED);
    assert_true(c->swa_full && !c->kv_unified && !c->embeddings);
    assert_true(c->rope_freq_base == 5000 && c->rope_freq_scale == 0.5F);
    assert_int_equal(c->pooling_type, LLAMA_POOLING_TYPE_NONE);
    assert_true(c->abort_callback && c->abort_callback_data == its.model);
    assert_int_equal(model_params.load_mode, LLAMA_LOAD_MODE_NONE);
    assert_true(!model_params.no_alloc && model_params.n_gpu_layers == 0);
    fixture_close(&its);
    its = fixture_open(llama_path, (const weir_setting[]){{"mmap", "1"}}, 1);
    assert_int_equal(c->flash_attn_type, LLAMA_FLASH_ATTN_TYPE_AUTO);
    assert_true(c->type_k == GGML_TYPE_F16 && c->type_v == GGML_TYPE_F16 && !c->swa_full);
    assert_true(c->rope_freq_base == 0 && c->rope_freq_scale == 0 && c->n_seq_max == 1);
    assert_int_equal(model_params.load_mode, LLAMA_LOAD_MODE_MMAP);
    fixture_close(&its);
    its = fixture_open(llama_path, (const weir_setting[]){{"cache_v", "f32"}, {"flash_attention", "off"}}, 2);
    assert_true(c->type_k == GGML_TYPE_F16 && c->type_v == GGML_TYPE_F32);
    fixture_close(&its);
    its = fixture_open(bert_path, (const weir_setting[]){{"pooling", "cls"}}, 1);
    assert_true(c->embeddings && c->kv_unified);
    assert_int_equal(c->pooling_type, LLAMA_POOLING_TYPE_CLS);
    assert_int_equal(c->n_seq_max, SEQUENCES);
    assert_true(c->n_ctx > 0 && c->n_batch == c->n_ctx && c->n_ubatch == c->n_ctx);
    fixture_close(&its);
    nothing_stays(NULL, "loads by settings");
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

typedef struct question {
    const char *what, *text; /* NULL: the tokens */
    weir_setting settings[6];
    size_t count;
    bool goes_on; /* from a state */
} question;

#define FEW                                                                                                            \
    {"tokens", "4"},                                                                                                   \
    {                                                                                                                  \
        "temperature", "0"                                                                                             \
    }

static const question questions[] = {
    {"tokens", NULL, {FEW}, 2, false},
    {"a text", "hello", {FEW, {"ignore_eos", "1"}}, 3, false},
    {"a chat", "hello", {FEW, {"chat", "1"}, {"chat_template", "chatml"}}, 4, false},
    {"a text by chance",
     NULL,
     {{"tokens", "4"}, {"temperature", "1"}, {"top_k", "20"}, {"repeat_penalty", "1.2"}},
     4,
     false},
    {"a grammar", NULL, {FEW, {"grammar", "root ::= [a-z]+"}}, 3, false},
    {"log probabilities", NULL, {FEW, {"logits", "1"}, {"logprobs", "3"}}, 4, false},
    {"a state", NULL, {FEW, {"ignore_eos", "1"}, {"state", "1"}}, 4, false},
    {"a state gone on with", NULL, {FEW, {"ignore_eos", "1"}, {"state", "1"}}, 4, true},
};

typedef struct saved {
    unsigned char *data;
    size_t bytes;
} saved;

/* `made` gets its tokens, and `keeps`, unless it is NULL, its state. */
static weir_status ask(const fixture *its, const question *what, const saved *from, int32_t *out, saved *keeps)
{
    weir_tensor inputs[2] = {what->text ? text_input(what->text) : token_input(prompt, 0, PROMPT)};
    weir_inference inference = inference_of(inputs, what->settings, what->count);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    if (from)
        inputs[inference.input_count++] = (weir_tensor){.struct_size = sizeof(weir_tensor),
                                                        .name = "state",
                                                        .type = WEIR_TYPE_U8,
                                                        .rank = 1,
                                                        .shape = {(int64_t)from->bytes},
                                                        .data = from->data,
                                                        .bytes = from->bytes};
    weir_status status = its->it.engine->infer(its->model, &inference, &outputs);
    if (status != WEIR_OK)
        return status;
    const weir_tensor *tokens = output_named(&outputs, "tokens");
    memset(out, 0, MADE * sizeof *out);
    if (tokens->bytes)
        memcpy(out, tokens->data, tokens->bytes);
    if (keeps) {
        const weir_tensor *state = output_named(&outputs, "state");
        *keeps = (saved){malloc(state->bytes), state->bytes};
        assert_non_null(keeps->data);
        memcpy(keeps->data, state->data, state->bytes);
    }
    release(its, &outputs);
    return WEIR_OK;
}

/* A model that broke in the middle says so to all that follow, and is loaded again. */
static void mend(fixture *its, const question *what, const saved *from)
{
    int32_t none[MADE];
    assert_true(throws);
    assert_int_equal(ask(its, what, from, none, NULL), WEIR_ERR_ENGINE);
    assert_non_null(strstr(weir_detail(), "cannot go on; load it again"));
    fixture_close(its);
    nothing_stays(NULL, what->what);
    *its = fixture_open(llama_path, NULL, 0);
}

/* One question, with each of its calls failed in turn; how many of them failed the run. */
static int fail_each_call(fixture *its, const question *what, const saved *from)
{
    int32_t whole[MADE], again[MADE];
    int failures = 0;
    OK(ask(its, what, from, whole, NULL));
    for (int at = 1;; at++) {
        int before[KINDS];
        memcpy(before, made, sizeof made);
        uint64_t scratch = stats_of(&its->it).live_class[WEIR_CLASS_ACTIVATIONS];
        calls = 0;
        fails_at = at;
        weir_status status = ask(its, what, from, again, NULL);
        fails_at = 0;
        bool reached = calls >= at;
        nothing_stays(before, what->what);
        assert_int_equal(stats_of(&its->it).live_class[WEIR_CLASS_ACTIVATIONS], scratch);
        if (status == WEIR_OK)
            assert_memory_equal(again, whole, sizeof whole);
        else if (throws)
            assert_non_null(strstr(weir_detail(), "thrown on purpose"));
        failures += status != WEIR_OK;
        if (its->it.engine->health(its->model) != WEIR_OK)
            mend(its, what, from);
        OK(ask(its, what, from, again, NULL)); /* the next run finds nothing of it */
        assert_memory_equal(again, whole, sizeof whole);
        if (!reached)
            return failures;
    }
}

static void fail_all(bool throwing)
{
    const question *state = &questions[6];
    fixture its = fixture_open(llama_path, NULL, 0);
    saved from;
    int32_t none[MADE];
    OK(ask(&its, state, NULL, none, &from));
    throws = throwing;
    for (size_t q = 0; q < sizeof questions / sizeof *questions; q++)
        assert_true(fail_each_call(&its, &questions[q], questions[q].goes_on ? &from : NULL) >= MADE);
    assert_true(all_made[SAMPLERS] > 0 && all_made[BATCHES] > 0);
    free(from.data);
    fixture_close(&its);
    nothing_stays(NULL, "all of them");
}

static void test_runs_leave_nothing_whichever_call_fails(void **state)
{
    (void)state;
    fail_all(false);
}

static void test_runs_leave_nothing_whichever_call_throws(void **state)
{
    (void)state;
    fail_all(true);
}

/* A cancel that finds the run ends it, whichever call it comes in; the next run finds nothing of it. */
static void cancel_in_each_call(const fixture *its, const question *what, const saved *from)
{
    int32_t whole[MADE], again[MADE];
    int cancelled = 0;
    asked = its;
    OK(ask(its, what, from, whole, NULL));
    for (int at = 1;; at++) {
        int before[KINDS];
        memcpy(before, made, sizeof made);
        uint64_t scratch = stats_of(&its->it).live_class[WEIR_CLASS_ACTIVATIONS];
        moments = 0;
        was_found = false;
        cancels_at = at;
        weir_status status = ask(its, what, from, again, NULL);
        cancels_at = 0;
        bool reached = moments >= at;
        assert_int_equal(status, was_found ? WEIR_ERR_CANCELLED : WEIR_OK);
        nothing_stays(before, what->what);
        assert_int_equal(stats_of(&its->it).live_class[WEIR_CLASS_ACTIVATIONS], scratch);
        cancelled += status != WEIR_OK;
        if (!reached)
            break;
    }
    assert_memory_equal(again, whole, sizeof whole); /* of the last, which was not cancelled */
    assert_true(cancelled >= MADE);
}

static void test_runs_are_cancelled_in_every_call(void **state)
{
    (void)state;
    fixture its = fixture_open(llama_path, NULL, 0);
    saved from;
    int32_t none[MADE];
    OK(ask(&its, &questions[6], NULL, none, &from));
    for (size_t q = 0; q < sizeof questions / sizeof *questions; q++)
        cancel_in_each_call(&its, &questions[q], questions[q].goes_on ? &from : NULL);
    free(from.data);
    fixture_close(&its);
    nothing_stays(NULL, "all of them");
}

/* With several threads a model has a pool, which it keeps; where there is none to be had, ggml starts them itself. */
static void test_a_pool_of_threads_goes_with_its_model(void **state)
{
    (void)state;
    static const weir_setting two[] = {{"threads", "2"}};
    int32_t first[MADE], tokens[MADE];
    for (int way = 0; way < 3; way++) {
        fixture its = fixture_open(llama_path, two, 1);
        all_made[POOLS] = 0;
        pool_fails = way > 0;
        throws = way == 2;
        for (int run = 0; run < 3; run++) {
            OK(ask(&its, &questions[0], NULL, way + run ? tokens : first, NULL));
            if (way + run)
                assert_memory_equal(tokens, first, sizeof first);
            assert_int_equal(all_made[POOLS], way == 0);
            assert_int_equal(polling, 0); /* threads that wait sleep, and leave the cores to other models */
        }
        fixture_close(&its);
        nothing_stays(NULL, "a pool");
    }
}

/* ---- the likeliest ----------------------------------------------------------------------------------------------- */

static float logits[VOCABULARY];

static float *its_logits(struct llama_context *context, int32_t row)
{
    (void)context;
    (void)row;
    return logits;
}

/* As llama.cpp's own sampler takes, which a bias of nothing has in its place. */
static void test_of_equals_the_first_token_is_taken(void **state)
{
    (void)state;
    static const int32_t highest[][3] = {
        {0, 1, 2}, {0, 7, VOCABULARY - 1}, {1, 2, 3}, {50, 51, 200}, {VOCABULARY - 3, VOCABULARY - 2, VOCABULARY - 1}};
    const weir_setting quick[] = {{"tokens", "1"}, {"temperature", "0"}};
    const weir_setting chain[] = {{"tokens", "1"}, {"temperature", "0"}, {"logit_bias", "9:0"}};
    fixture its = fixture_open(llama_path, NULL, 0);
    watched->llama_get_logits_ith = its_logits;
    for (size_t i = 0; i < sizeof highest / sizeof *highest; i++) {
        for (int k = 0; k < VOCABULARY; k++)
            logits[k] = -1 - (float)(k * 37 % 11);
        for (int k = 0; k < 3; k++)
            logits[highest[i][k]] = -0.5f;
        for (int by_chain = 0; by_chain < 2; by_chain++) {
            weir_tensor input = token_input(prompt, 0, PROMPT);
            weir_outputs outputs;
            OK(infer(&its, &input, by_chain ? chain : quick, by_chain ? 3 : 2, &outputs));
            const weir_tensor *tokens = output_named(&outputs, "tokens");
            assert_int_equal(tokens->bytes, sizeof(int32_t));
            assert_int_equal(*(const int32_t *)tokens->data, highest[i][0]);
            release(&its, &outputs);
        }
    }
    fixture_close(&its);
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

enum { LONG_PIECE = 300 };

static int32_t long_piece(const struct llama_vocab *vocab, llama_token token, char *text, int32_t room, int32_t strip,
                          bool special)
{
    (void)vocab, (void)strip, (void)special;
    if (room < LONG_PIECE)
        return -LONG_PIECE;
    for (int i = 0; i < LONG_PIECE; i++)
        text[i] = (char)('a' + (token + i) % 26);
    return LONG_PIECE;
}

/* Longer than any guess: the size that is answered is believed, and each piece has all of it. */
static void test_a_piece_may_be_long(void **state)
{
    (void)state;
    const weir_setting settings[] = {{"tokens", "4"}, {"temperature", "0"}, {"ignore_eos", "1"}, {"logprobs", "2"}};
    fixture its = fixture_open(llama_path, NULL, 0);
    weir_tensor input = token_input(prompt, 0, PROMPT);
    weir_outputs outputs;
    watched->llama_token_to_piece = long_piece;
    OK(infer(&its, &input, settings, 4, &outputs));
    const weir_tensor *tokens = output_named(&outputs, "tokens"), *text = output_named(&outputs, "text");
    const weir_tensor *tops = output_named(&outputs, "top_texts"), *top_tokens = output_named(&outputs, "top_tokens");
    assert_int_equal(tokens->bytes, MADE * sizeof(int32_t));
    assert_int_equal(text->bytes, MADE * LONG_PIECE);
    assert_int_equal(tops->bytes, 2 * text->bytes);
    for (int i = 0; i < MADE * LONG_PIECE; i++)
        assert_int_equal(((const char *)text->data)[i],
                         'a' + (((const int32_t *)tokens->data)[i / LONG_PIECE] + i % LONG_PIECE) % 26);
    for (int i = 0; i < 2 * MADE * LONG_PIECE; i++)
        assert_int_equal(((const char *)tops->data)[i],
                         'a' + (((const int32_t *)top_tokens->data)[i / LONG_PIECE] + i % LONG_PIECE) % 26);
    release(&its, &outputs);
    fixture_close(&its);
}

/* ---- what a sequence leaves -------------------------------------------------------------------------------------- */

static int stays, clears; /* stays: so many more times a sequence has cells that cannot be removed */

static llama_pos first_place(llama_memory_t memory, llama_seq_id sequence)
{
    return stays-- > 0 ? 0 : real.llama_memory_seq_pos_min(memory, sequence);
}

static void counted_clear(llama_memory_t memory, bool data)
{
    clears++;
    real.llama_memory_clear(memory, data);
}

/* Cells that a run leaves and that cannot be removed are cleared before the next one, and only then. */
static void test_what_cannot_be_removed_is_cleared(void **state)
{
    (void)state;
    int32_t whole[MADE], again[MADE];
    fixture its = fixture_open(llama_path, NULL, 0);
    watched->llama_memory_seq_pos_min = first_place;
    watched->llama_memory_clear = counted_clear;
    stays = clears = 0;
    OK(ask(&its, &questions[0], NULL, whole, NULL));
    assert_int_equal(clears, 0);
    for (int round = 1; round < 4; round++) {
        stays = 2; /* before the run, and behind it */
        OK(ask(&its, &questions[0], NULL, again, NULL));
        assert_memory_equal(again, whole, sizeof whole);
        stays = 0;
        assert_int_equal(clears, round - 1);
        for (int i = 0; i < 2; i++) {
            OK(ask(&its, &questions[0], NULL, again, NULL));
            assert_memory_equal(again, whole, sizeof whole);
            assert_int_equal(clears, round);
        }
    }
    fixture_close(&its);
}

/* ---- texts in a call --------------------------------------------------------------------------------------------- */

/* So many texts of so many tokens each; what each call had is compared. */
static void embed(const fixture *its, const int *lengths, int count, const int *tokens, const int *sequences,
                  int wanted)
{
    static int32_t rows[64][PACK];
    weir_outputs outputs;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < PACK; k++)
            rows[i][k] = k < lengths[i] ? 3 + (i * 5 + k * 7) % 40 : -1;
    weir_tensor input = token_input(rows[0], count, PACK);
    computed = 0;
    OK(infer(its, &input, NULL, 0, &outputs));
    const weir_tensor *counts = output_named(&outputs, "prompt_tokens");
    for (int i = 0; i < count; i++)
        assert_int_equal(((const int32_t *)counts->data)[i], lengths[i]);
    release(its, &outputs);
    assert_int_equal(computed, wanted);
    for (int i = 0; i < wanted; i++) {
        assert_int_equal(tokens_of[i], tokens[i]);
        assert_int_equal(sequences_of[i], sequences[i]);
    }
}

/* As many as there are tokens and sequences for, and not one less. */
static void test_texts_fill_the_calls(void **state)
{
    (void)state;
    int ones[40];
    for (int i = 0; i < 40; i++)
        ones[i] = 1;
    fixture its = fixture_open(bert_path, NULL, 0);
    embed(&its, (const int[]){PACK / 2, PACK / 2, 3}, 3, (const int[]){PACK, 3}, (const int[]){2, 1}, 2);
    embed(&its, (const int[]){PACK / 2, PACK / 2 + 1}, 2, (const int[]){PACK / 2, PACK / 2 + 1}, (const int[]){1, 1},
          2);
    embed(&its, (const int[]){PACK, 1, PACK - 1}, 3, (const int[]){PACK, PACK}, (const int[]){1, 2}, 2);
    embed(&its, ones, SEQUENCES, (const int[]){SEQUENCES}, (const int[]){SEQUENCES}, 1);
    embed(&its, ones, SEQUENCES + 1, (const int[]){SEQUENCES, 1}, (const int[]){SEQUENCES, 1}, 2);
    embed(&its, ones, 40, (const int[]){SEQUENCES, SEQUENCES, 8}, (const int[]){SEQUENCES, SEQUENCES, 8}, 3);
    fixture_close(&its);
}

static float *no_vector(struct llama_context *context, llama_seq_id sequence)
{
    static float zeros[WIDTH];
    (void)context;
    (void)sequence;
    return zeros;
}

/* There is nothing to divide by. */
static void test_a_vector_of_zeros_stays_one(void **state)
{
    (void)state;
    fixture its = fixture_open(bert_path, NULL, 0);
    weir_tensor input = text_input("a b");
    weir_outputs outputs;
    watched->llama_get_embeddings_seq = no_vector;
    OK(infer(&its, &input, NULL, 0, &outputs));
    const weir_tensor *found = output_named(&outputs, "embeddings");
    assert_int_equal(found->bytes, WIDTH * sizeof(float));
    for (int i = 0; i < WIDTH; i++)
        assert_true(((const float *)found->data)[i] == 0);
    release(&its, &outputs);
    fixture_close(&its);
}

/* A newline at the end ends the last text, and begins none; a -1 is the end of a row, wherever it is. */
static void test_texts_and_rows_have_their_ends(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rows;
    } texts[] = {{"a", 1}, {"a\n", 1}, {"a\nb", 2}, {"a b\nc\n", 2}};
    static const int32_t good[] = {5, 6, -1, -1, 7, -1, -1, -1},
                         wrong[][4] = {{-1, 5, 6, 7}, {5, -1, 6, 7}, {5, 6, -1, 7}};
    fixture its = fixture_open(bert_path, NULL, 0);
    weir_outputs outputs;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        weir_tensor input = text_input(texts[i].text);
        OK(infer(&its, &input, NULL, 0, &outputs));
        assert_int_equal(output_named(&outputs, "embeddings")->shape[0], texts[i].rows);
        release(&its, &outputs);
    }
    weir_tensor input = token_input(good, 2, 4);
    OK(infer(&its, &input, NULL, 0, &outputs));
    const int32_t *counts = output_named(&outputs, "prompt_tokens")->data;
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 1);
    release(&its, &outputs);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        input = token_input(wrong[i], 1, 4);
        assert_int_equal(infer(&its, &input, NULL, 0, &outputs), WEIR_ERR_INVALID);
        assert_non_null(strstr(weir_detail(), "-1 before the end of row 0"));
    }
    input = token_input((const int32_t[]){5, 6, -1, -1}, 2, 2);
    assert_int_equal(infer(&its, &input, NULL, 0, &outputs), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "text 2 has no tokens"));
    fixture_close(&its);
}

/* Of three calls each fails once, and each vector: nothing is handed out then, and the next run has all. */
static void test_embeddings_leave_nothing_whichever_call_fails(void **state)
{
    (void)state;
    for (int throwing = 0; throwing < 2; throwing++) {
        fixture its = fixture_open(bert_path, NULL, 0);
        weir_tensor input = text_input("a b\nc\nd e f\ng");
        weir_outputs outputs;
        float whole[4 * WIDTH];
        int failures = 0;
        OK(infer(&its, &input, NULL, 0, &outputs));
        assert_int_equal(output_named(&outputs, "embeddings")->bytes, sizeof whole);
        memcpy(whole, output_named(&outputs, "embeddings")->data, sizeof whole);
        release(&its, &outputs);
        throws = throwing;
        for (int at = 1;; at++) {
            int before[KINDS];
            memcpy(before, made, sizeof made);
            calls = 0;
            fails_at = at;
            weir_status status = infer(&its, &input, NULL, 0, &outputs);
            fails_at = 0;
            bool reached = calls >= at;
            nothing_stays(before, "embeddings");
            failures += status != WEIR_OK;
            assert_int_equal(status == WEIR_OK, !reached);
            if (status == WEIR_OK)
                release(&its, &outputs);
            else if (throwing)
                assert_non_null(strstr(weir_detail(), "thrown on purpose"));
            if (its.it.engine->health(its.model) != WEIR_OK) {
                assert_int_equal(infer(&its, &input, NULL, 0, &outputs), WEIR_ERR_ENGINE);
                fixture_close(&its);
                its = fixture_open(bert_path, NULL, 0);
            }
            OK(infer(&its, &input, NULL, 0, &outputs));
            assert_memory_equal(output_named(&outputs, "embeddings")->data, whole, sizeof whole);
            release(&its, &outputs);
            if (!reached)
                break;
        }
        assert_int_equal(failures, 4 + 1 + 4); /* texts made tokens of, a call, vectors */
        fixture_close(&its);
        nothing_stays(NULL, "embeddings");
    }
}

/* A run that waits while another one computes. */
static void *embed_later(void *user)
{
    const fixture *its = user;
    static weir_status status;
    weir_tensor input = text_input("a b");
    weir_outputs outputs;
    status = infer(its, &input, NULL, 0, &outputs);
    if (status == WEIR_OK)
        release(its, &outputs);
    return &status;
}

static bool two_are_here(const fixture *its)
{
    pthread_mutex_lock(&its->model->runs.lock);
    bool two = its->model->runs.first && its->model->runs.first->next;
    pthread_mutex_unlock(&its->model->runs.lock);
    return two;
}

static pthread_t later;
static int encoded;

/* The first throws once another run waits for its turn. */
static int32_t throw_when_another_waits(struct llama_context *context, struct llama_batch tokens)
{
    if (++encoded > 1)
        return real.llama_encode(context, tokens);
    (void)pthread_create(&later, NULL, embed_later, (void *)(uintptr_t)asked);
    while (!two_are_here(asked))
        sched_yield();
    end_it("calls.c", 1, "thrown on purpose");
    return 0;
}

static void test_a_run_that_waited_for_a_model_which_broke_is_refused(void **state)
{
    (void)state;
    fixture its = fixture_open(bert_path, NULL, 0);
    weir_tensor input = text_input("a");
    weir_outputs outputs;
    void *status;
    asked = &its;
    encoded = 0;
    watched->llama_encode = throw_when_another_waits;
    assert_int_equal(infer(&its, &input, NULL, 0, &outputs), WEIR_ERR_ENGINE);
    assert_non_null(strstr(weir_detail(), "thrown on purpose"));
    assert_int_equal(pthread_join(later, &status), 0);
    assert_int_equal(*(weir_status *)status, WEIR_ERR_ENGINE);
    assert_int_equal(encoded, 1);
    fixture_close(&its);
}

static void test_embeddings_are_cancelled_in_every_call(void **state)
{
    (void)state;
    fixture its = fixture_open(bert_path, NULL, 0);
    weir_tensor input = text_input("a b\nc\nd e f\ng");
    uint64_t before = stats_of(&its.it).live_class[WEIR_CLASS_ACTIVATIONS];
    int cancelled = 0;
    asked = &its;
    for (int at = 1;; at++) {
        weir_outputs outputs = WEIR_INIT(weir_outputs);
        moments = 0;
        was_found = false;
        cancels_at = at;
        weir_status status = infer(&its, &input, NULL, 0, &outputs);
        cancels_at = 0;
        assert_int_equal(status, was_found ? WEIR_ERR_CANCELLED : WEIR_OK);
        if (status == WEIR_OK)
            release(&its, &outputs);
        assert_int_equal(stats_of(&its.it).live_class[WEIR_CLASS_ACTIVATIONS], before);
        cancelled += status != WEIR_OK;
        if (moments < at)
            break;
    }
    assert_int_equal(cancelled, 4 + 1 + 4); /* texts made tokens of, a call, vectors */
    fixture_close(&its);
}

int main(void)
{
    snprintf(llama_path, sizeof llama_path, "/tmp/weir-calls-%d-l.gguf", (int)getpid());
    snprintf(bert_path, sizeof bert_path, "/tmp/weir-calls-%d-b.gguf", (int)getpid());
    write_llama(llama_path, &small_shape);
    write_bert(bert_path, &small_shape);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i == 0 ? 1 : 260 + i * 7 % 26;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_loads_leave_nothing_whichever_call_fails, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_a_refusal_explains_what_is_thrown_behind_it, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_a_context_is_what_the_settings_say, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_runs_leave_nothing_whichever_call_fails, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_runs_leave_nothing_whichever_call_throws, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_runs_are_cancelled_in_every_call, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_a_pool_of_threads_goes_with_its_model, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_of_equals_the_first_token_is_taken, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_a_piece_may_be_long, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_removed_is_cleared, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_texts_fill_the_calls, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_a_vector_of_zeros_stays_one, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_texts_and_rows_have_their_ends, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_embeddings_leave_nothing_whichever_call_fails, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_embeddings_are_cancelled_in_every_call, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_a_run_that_waited_for_a_model_which_broke_is_refused, watch, unwatch),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(llama_path);
    unlink(bert_path);
    return failed;
}
