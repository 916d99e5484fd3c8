/* calls.c: what llama.cpp's functions make for loads and for runs is given back, and what they answer is taken at its word, whichever
 * call it is that fails or throws, or in which the run is cancelled. */
#include "calls.h"
#include <weir/engine.h>

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

int main(void)
{
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
    };
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
