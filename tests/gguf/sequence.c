/* sequence.c: the state of a sequence saved and put back: what comes next is what would have come, and a state that
 * does not fit, is cut, changed or forged is refused without harm. */
#include "common.h"
#include <weir/engine.h>
#include "plain.h"

#include <pthread.h>
#include <unistd.h>

#include "gguf/engine/wg.h"

enum { MADE = 24, END = 2, BATCH = 32, PROMPT = 50 };

static char path[64], other_path[72], windowed_path[80], recurrent_path[80];
static int32_t prompt[PROMPT], expected[MADE];
static const weir_setting load[] = {{"threads", "1"}, {"batch", "32"}, {"context", "256"}, {"sequences", "2"}};

typedef struct saved {
    unsigned char *data;
    size_t bytes;
    int32_t tokens[768], made[768];
    size_t token_count, made_count;
    char text[1024];
} saved;

static const char *stop_word; /* of the runs; NULL: none */

static weir_tensor state_input(const void *data, size_t count)
{
    return (weir_tensor){.struct_size = sizeof(weir_tensor),
                         .name = "state",
                         .type = WEIR_TYPE_U8,
                         .rank = 1,
                         .shape = {(int64_t)count},
                         .data = (void *)data,
                         .bytes = count};
}

static bool stop_early(const weir_piece *piece, void *user)
{
    return piece->index + 1 < *(uint64_t *)user;
}

/* `made` tokens more than what the state (NULL: none) and the tokens (0: none) stand for. */
static weir_status go_on(const fixture *its, const saved *from, const int32_t *tokens, int64_t count, int made,
                         uint64_t most, saved *out)
{
    char number[16];
    weir_tensor inputs[2];
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    snprintf(number, sizeof number, "%d", made);
    const weir_setting settings[] = {
        {"tokens", number}, {"ignore_eos", "1"}, {"temperature", "0"}, {"state", "1"}, {"stop", stop_word}};
    weir_inference inference = inference_of(inputs, settings, stop_word ? 5 : 4);
    inference.input_count = 0;
    if (from)
        inputs[inference.input_count++] = state_input(from->data, from->bytes);
    if (count > 0)
        inputs[inference.input_count++] = token_input(tokens, 0, count);
    weir_status status = most > 0 ? its->it.engine->infer_stream(its->model, &inference, stop_early, &most, &outputs)
                                  : its->it.engine->infer(its->model, &inference, &outputs);
    if (status != WEIR_OK)
        return status;
    if (!out) {
        release(its, &outputs);
        return WEIR_OK;
    }
    const weir_tensor *it = output_named(&outputs, "state"), *stands = output_named(&outputs, "state_tokens");
    const weir_tensor *text = output_named(&outputs, "tokens");
    *out = (saved){.bytes = it->bytes};
    out->data = malloc(it->bytes);
    assert_non_null(out->data);
    memcpy(out->data, it->data, it->bytes);
    out->token_count = stands->bytes / sizeof *out->tokens;
    memcpy(out->tokens, stands->data, stands->bytes);
    out->made_count = text->bytes / sizeof *out->made;
    if (text->bytes)
        memcpy(out->made, text->data, text->bytes);
    const weir_tensor *words = output_named(&outputs, "text");
    if (words->bytes < sizeof out->text && words->bytes > 0)
        memcpy(out->text, words->data, words->bytes);
    release(its, &outputs);
    return WEIR_OK;
}

/* The state after the prompt and seven tokens. */
static saved save_seven(const fixture *its)
{
    saved it = {0};
    OK(go_on(its, NULL, prompt, PROMPT, 7, 0, &it));
    if (!it.data)
        abort();
    return it;
}

static void learn_what_llama_says(const weir_engine *engine)
{
    plain it = plain_of(engine);
    plain_open(&it, path, false, 256, BATCH, 1);
    plain_greedy(&it, prompt, PROMPT, BATCH, END, expected, MADE);
    plain_close(&it);
}

/* ---- going on --------------------------------------------------------------------------------------------------- */

static void test_a_run_goes_on_where_its_state_was_saved(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 4);
    learn_what_llama_says(its.it.engine);
    for (int first = 0; first < MADE; first++) {
        saved middle, end;
        OK(go_on(&its, NULL, prompt, PROMPT, first, 0, &middle));
        assert_int_equal(middle.made_count, first);
        assert_int_equal(middle.token_count, PROMPT + first);
        assert_memory_equal(middle.tokens, prompt, sizeof prompt);
        assert_memory_equal(middle.tokens + PROMPT, expected, (size_t)first * sizeof *expected);
        OK(go_on(&its, &middle, NULL, 0, MADE - first, 0, &end));
        assert_int_equal(end.made_count, MADE - first);
        assert_memory_equal(end.made, expected + first, end.made_count * sizeof *expected);
        assert_int_equal(end.token_count, PROMPT + MADE);
        assert_memory_equal(end.tokens + PROMPT, expected, sizeof expected);
        free(middle.data);
        free(end.data);
    }
    fixture_close(&its);
}

static void test_tokens_go_behind_what_a_state_stands_for(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 4);
    int32_t more[40], whole[PROMPT + MADE + 40], answers[MADE];
    for (int i = 0; i < 40; i++)
        more[i] = 260 + i * 11 % 26;
    saved middle, end;
    OK(go_on(&its, NULL, prompt, PROMPT, MADE, 0, &middle));
    OK(go_on(&its, &middle, more, 40, MADE, 0, &end));
    memcpy(whole, middle.tokens, (PROMPT + MADE) * sizeof *whole);
    memcpy(whole + PROMPT + MADE, more, sizeof more);
    plain other = plain_of(its.it.engine);
    plain_open(&other, path, false, 256, BATCH, 1);
    plain_greedy(&other, whole, PROMPT + MADE + 40, BATCH, END, answers, MADE);
    plain_close(&other);
    assert_memory_equal(end.made, answers, sizeof answers);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(its.it.engine->metrics(its.model, &metrics));
    assert_int_equal(metrics.tokens_in, PROMPT + 41); /* the token that was made last had not been computed with */
    free(middle.data);
    free(end.data);
    fixture_close(&its);
}

/* A text behind a state is no new text: it has no mark of the begin. */
static void test_a_text_goes_behind_what_a_state_stands_for(void **state)
{
    (void)state;
    static const weir_setting settings[] = {{"tokens", "1"}, {"temperature", "0"}, {"state", "1"}};
    fixture its = fixture_open(path, load, 4);
    saved middle;
    OK(go_on(&its, NULL, prompt, PROMPT, 5, 0, &middle));
    weir_tensor inputs[] = {text_input("abc"), state_input(middle.data, middle.bytes)};
    weir_inference inference = inference_of(inputs, settings, 3);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    inference.input_count = 2;
    OK(its.it.engine->infer(its.model, &inference, &outputs));
    const weir_tensor *stands = output_named(&outputs, "state_tokens");
    const int32_t *tokens = stands->data;
    static const int32_t abc[] = {259, 260, 261, 262}; /* a blank and three letters */
    assert_true(stands->bytes >= (PROMPT + 9) * sizeof *tokens);
    assert_memory_equal(tokens, middle.tokens, (PROMPT + 5) * sizeof *tokens);
    assert_memory_equal(tokens + PROMPT + 5, abc, sizeof abc);
    release(&its, &outputs);
    free(middle.data);
    fixture_close(&its);
}

/* Cells that the window has left are used again, and are no part of a state. */
static void test_states_of_windows(void **state)
{
    static const weir_setting full[] = {
        {"threads", "1"}, {"batch", "32"}, {"context", "768"}, {"sequences", "2"}, {"swa_full", "1"}};
    static const weir_setting few[] = {{"threads", "1"}, {"batch", "32"}, {"context", "768"}, {"sequences", "2"}};
    enum { LONG = 400, MOST = 16 };
    int32_t text[LONG];
    (void)state;
    for (int i = 0; i < LONG; i++)
        text[i] = i == 0 ? 1 : 260 + i * 7 % 26;
    fixture whole = fixture_open(windowed_path, full, 5), its = fixture_open(windowed_path, few, 4);
    for (int length = 300; length <= LONG; length += 50) {
        saved wanted, middle, end, early, late;
        uint64_t stop_at = 3;
        OK(go_on(&whole, NULL, text, length, MOST, 0, &wanted));
        int first = length % 4; /* 0: the last token of the prompt is computed again */
        OK(go_on(&its, NULL, text, length, first, 0, &middle));
        OK(go_on(&its, &middle, NULL, 0, MOST - first, 0, &end));
        assert_memory_equal(end.made, wanted.made + first, end.made_count * sizeof *end.made);
        assert_int_equal(end.made_count, MOST - first);
        OK(go_on(&its, NULL, text, length, MOST, stop_at, &early));
        OK(go_on(&its, &early, NULL, 0, MOST - 3, 0, &late));
        assert_memory_equal(late.made, wanted.made + 3, (MOST - 3) * sizeof *late.made);
        assert_int_equal(go_on(&whole, &middle, NULL, 0, 1, 0, NULL), WEIR_ERR_INVALID);
        assert_true(middle.bytes < wanted.bytes);
        free(wanted.data);
        free(middle.data);
        free(end.data);
        free(early.data);
        free(late.data);
    }
    fixture_close(&its);
    fixture_close(&whole);
}

/* A memory that cannot forget a part begins again: where the last token of a state is computed once more, and where a reader
 * has stopped. */
static void test_states_of_what_cannot_forget(void **state)
{
    (void)state;
    enum { FEW = 8 };
    fixture its = fixture_open(recurrent_path, load, 4);
    saved wanted;
    OK(go_on(&its, NULL, prompt, PROMPT, FEW, 0, &wanted));
    for (int first = 0; first < 4; first++) {
        saved middle, end;
        OK(go_on(&its, NULL, prompt, PROMPT, first ? FEW : 0, (uint64_t)first, &middle));
        assert_int_equal(middle.made_count, first);
        OK(go_on(&its, &middle, NULL, 0, FEW - first, 0, &end));
        assert_memory_equal(end.made, wanted.made + first, (size_t)(FEW - first) * sizeof *end.made);
        /* Computed in the same steps, it is the same to the last bit. */
        assert_int_equal(end.bytes, wanted.bytes);
        if (first == 0)
            assert_memory_equal(end.data, wanted.data, wanted.bytes);
        free(middle.data);
        free(end.data);
    }
    free(wanted.data);
    fixture_close(&its);
}

/* Its reader stopped: the state is that of what the reader has. */
static void test_a_run_that_was_stopped_early_saves_what_it_gave(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 4);
    learn_what_llama_says(its.it.engine);
    for (uint64_t most = 1; most < 6; most++) {
        saved middle, end;
        OK(go_on(&its, NULL, prompt, PROMPT, MADE, most, &middle));
        assert_int_equal(middle.made_count, most);
        assert_int_equal(middle.token_count, PROMPT + most);
        OK(go_on(&its, &middle, NULL, 0, MADE - (int)most, 0, &end));
        assert_memory_equal(end.made, expected + most, end.made_count * sizeof *expected);
        free(middle.data);
        free(end.data);
    }
    fixture_close(&its);
}

/* Tokens that might have become a stop word are computed with before their reader sees them. Of what it does not take nothing is
 * in the state: the last of it is forgotten, or all, where a memory cannot forget a part. */
static void test_tokens_that_were_held_back_are_not_in_a_state(void **state)
{
    (void)state;
    enum { HELD = 5, FEW = 8 };
    static int errors;
    OK(weir_log_set(log_errors, &errors, WEIR_LOG_ERROR));
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        char word[1100];
        saved wanted, held, early, end;
        wg_state_head head;
        fixture its = fixture_open(recurrent ? recurrent_path : path, load, 4);
        OK(go_on(&its, NULL, prompt, PROMPT, FEW, 0, &wanted));
        OK(go_on(&its, NULL, prompt, PROMPT, HELD, 0, &held));
        assert_true(held.text[0] && !strchr(held.text, '\n'));
        snprintf(word, sizeof word, "%s\001", held.text);
        stop_word = word;
        OK(go_on(&its, NULL, prompt, PROMPT, FEW, 1, &early));
        stop_word = NULL;
        assert_int_equal(early.made_count, 1);
        assert_int_equal(early.made[0], wanted.made[0]);
        assert_int_equal(early.token_count, PROMPT + 1);
        memcpy(&head, early.data, sizeof head);
        assert_int_equal(head.tokens, PROMPT + 1);
        assert_int_equal(head.computed, recurrent ? 0 : PROMPT + 1);
        assert_int_equal(head.bytes > 0, !recurrent);
        OK(go_on(&its, &early, NULL, 0, FEW - 1, 0, &end));
        assert_memory_equal(end.made, wanted.made + 1, (FEW - 1) * sizeof *end.made);
        free(wanted.data);
        free(held.data);
        free(early.data);
        free(end.data);
        fixture_close(&its);
    }
    OK(weir_log_set(NULL, NULL, WEIR_LOG_ERROR));
    assert_int_equal(errors, 0);
}

typedef struct helper {
    const fixture *its;
    int first;
    int wrong;
} helper;

static void *save_and_go_on(void *user)
{
    helper *it = user;
    for (int round = 0; round < 5; round++) {
        saved middle, end;
        if (go_on(it->its, NULL, prompt, PROMPT, it->first, 0, &middle) != WEIR_OK) {
            it->wrong++;
            continue;
        }
        if (go_on(it->its, &middle, NULL, 0, MADE - it->first, 0, &end) != WEIR_OK) {
            it->wrong++;
        } else {
            it->wrong += memcmp(end.made, expected + it->first, end.made_count * sizeof *expected) != 0;
            free(end.data);
        }
        free(middle.data);
    }
    return NULL;
}

/* A state does not remember which sequence it came from. */
static void test_states_are_saved_and_put_back_beside_other_runs(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 4);
    learn_what_llama_says(its.it.engine);
    helper all[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        all[i] = (helper){&its, 3 + 5 * i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, save_and_go_on, &all[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(all[i].wrong, 0);
    }
    fixture_close(&its);
}

static void test_a_state_goes_from_one_load_to_the_next(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 4);
    learn_what_llama_says(its.it.engine);
    saved middle, end;
    OK(go_on(&its, NULL, prompt, PROMPT, 7, 0, &middle));
    fixture_close(&its);
    its = fixture_open(path, load, 4);
    OK(go_on(&its, &middle, NULL, 0, MADE - 7, 0, &end));
    assert_memory_equal(end.made, expected + 7, end.made_count * sizeof *expected);
    free(middle.data);
    free(end.data);
    fixture_close(&its);
}

/* ---- refused ---------------------------------------------------------------------------------------------------- */

static void refused(const fixture *its, const saved *it, const char *words)
{
    assert_int_equal(go_on(its, it, NULL, 0, 3, 0, NULL), WEIR_ERR_INVALID);
    if (!strstr(weir_detail(), words))
        print_error("'%s' is not in: %s\n", words, weir_detail());
    assert_non_null(strstr(weir_detail(), words));
}

static void still_works(const fixture *its)
{
    saved it = {0};
    OK(its->it.engine->health(its->model));
    OK(go_on(its, NULL, prompt, PROMPT, MADE, 0, &it));
    assert_memory_equal(it.made, expected, sizeof expected);
    free(it.data);
}

static void test_a_state_of_something_else_is_refused(void **state)
{
    (void)state;
    static const weir_setting other_cache[] = {{"threads", "1"}, {"cache_k", "f32"}, {"context", "256"}};
    fixture its = fixture_open(path, load, 4);
    learn_what_llama_says(its.it.engine);
    saved it, none = {.bytes = 5, .data = (unsigned char *)"weirs"};
    char *zeros = calloc(1, 4096);
    assert_non_null(zeros);
    OK(go_on(&its, NULL, prompt, PROMPT, 7, 0, &it));
    refused(&its, &none, "cut off");
    none = (saved){.bytes = 4096, .data = (unsigned char *)zeros};
    refused(&its, &none, "no saved sequence");
    still_works(&its);
    weir_tensor both[] = {state_input(it.data, it.bytes), text_input("user 1\na")};
    both[1].name = "messages";
    weir_inference inference = inference_of(both, NULL, 0);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    inference.input_count = 2;
    assert_int_equal(its.it.engine->infer(its.model, &inference, &outputs), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "whole conversation"));
    assert_int_equal(go_on(&its, &it, NULL, 0, 220, 0, NULL), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "do not fit into the context"));
    fixture_close(&its);
    its = fixture_open(other_path, load, 4);
    refused(&its, &it, "another model");
    fixture_close(&its);
    its = fixture_open(path, other_cache, 3);
    refused(&its, &it, "another cache");
    fixture_close(&its);
    its = fixture_open(path, load, 3);
    refused(&its, &it, "'sequences'");
    fixture_close(&its);
    free(zeros);
    free(it.data);
}

/* A run that fills its context makes a token more than are computed: the state of that one is for a larger context. */
static void test_a_state_of_more_tokens_than_the_context_is_refused(void **state)
{
    (void)state;
    static const weir_setting larger[] = {{"threads", "1"}, {"batch", "32"}, {"context", "512"}, {"sequences", "2"}};
    fixture its = fixture_open(path, load, 4);
    saved full, after;
    OK(go_on(&its, NULL, prompt, PROMPT, 256 - PROMPT + 1, 0, &full));
    assert_int_equal(full.token_count, 257);
    refused(&its, &full, "stands for 257 tokens, and the context holds 256");
    fixture_close(&its);
    its = fixture_open(path, larger, 4);
    OK(go_on(&its, &full, NULL, 0, 3, 0, &after));
    assert_int_equal(after.token_count, 260);
    free(after.data);
    free(full.data);
    fixture_close(&its);
}

static void test_a_cut_state_is_refused(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 4);
    learn_what_llama_says(its.it.engine);
    saved whole = save_seven(&its);
    for (size_t count = 1; count < whole.bytes; count += 1 + count / 37) {
        saved cut = whole;
        cut.bytes = count;
        refused(&its, &cut, "cut off");
    }
    unsigned char *longer = malloc(whole.bytes + 8);
    assert_non_null(longer);
    memcpy(longer, whole.data, whole.bytes);
    memset(longer + whole.bytes, 0, 8);
    saved more = {.data = longer, .bytes = whole.bytes + 8};
    refused(&its, &more, "longer than it says");
    free(longer);
    still_works(&its);
    free(whole.data);
    fixture_close(&its);
}

static void test_a_changed_state_is_refused(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 4);
    learn_what_llama_says(its.it.engine);
    saved whole = save_seven(&its);
    size_t told = sizeof(wg_state_head) + 7 * sizeof(int32_t); /* the head and the tokens: every byte */
    for (size_t at = 0; at < whole.bytes; at += at < told ? 1 : 1 + at / 61) {
        whole.data[at] ^= (unsigned char)(1u << at % 8);
        /* Some bytes say what they are: the version, the model. The rest is found by the sum. */
        assert_int_equal(go_on(&its, &whole, NULL, 0, 3, 0, NULL), WEIR_ERR_INVALID);
        whole.data[at] ^= (unsigned char)(1u << at % 8);
    }
    still_works(&its);
    free(whole.data);
    fixture_close(&its);
}

/* ---- forged ----------------------------------------------------------------------------------------------------- */

/* The sum is no secret. */
static void seal(unsigned char *data, size_t count)
{
    wg_state_head head;
    memcpy(&head, data, sizeof head);
    if (head.tokens * sizeof(int32_t) + head.bytes == count - sizeof head)
        head.sum = wt_sum(wt_sum(0, &head, offsetof(wg_state_head, sum)), data + sizeof head, count - sizeof head);
    memcpy(data, &head, sizeof head);
}

/* An answer or a refusal, and the run after it is as ever, unless the model says that it is broken. */
static int try_forged(fixture *its, const weir_setting *settings, const saved *forged)
{
    saved after = {0};
    weir_status status = go_on(its, forged, NULL, 0, 3, 0, NULL);
    if (getenv("FORGED_VERBOSE") && status != WEIR_OK)
        fprintf(stderr, "    %s\n", weir_detail());
    if (its->it.engine->health(its->model) != WEIR_OK) {
        fixture_close(its);
        *its = fixture_open(path, settings, 5);
        return 2;
    }
    OK(go_on(its, NULL, prompt, PROMPT, MADE, 0, &after));
    /* Without flash attention a value that is no number in a cell that is free again counts, with a weight of 0. */
    if (strcmp(settings[4].value, "on") == 0)
        assert_memory_equal(after.made, expected, sizeof expected);
    free(after.data);
    return status != WEIR_OK;
}

static void forge(const char *attention)
{
    const weir_setting settings[] = {
        {"threads", "1"}, {"batch", "32"}, {"context", "256"}, {"sequences", "2"}, {"flash_attention", attention}};
    fixture its = fixture_open(path, settings, 5);
    learn_what_llama_says(its.it.engine);
    saved whole = save_seven(&its);
    uint64_t seed = 5;
    int outcomes[3] = {0};
    size_t front = sizeof(wg_state_head) + whole.token_count * sizeof(int32_t), behind = whole.bytes - front;
    saved forged = {.bytes = whole.bytes, .data = malloc(whole.bytes)};
    assert_non_null(forged.data);
    for (int i = 0; i < 600; i++) {
        memcpy(forged.data, whole.data, whole.bytes);
        for (int k = 0; k < 1 + i % 3; k++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            /* Where llama.cpp's numbers are, anywhere in its bytes, or in our head. */
            size_t at = seed >> 33;
            at = i % 8 == 7 ? 8 + at % 40 : front + at % (i % 2 ? 800 : behind);
            forged.data[at] ^= (unsigned char)(1u << (seed >> 20) % 8);
        }
        seal(forged.data, forged.bytes);
        outcomes[try_forged(&its, settings, &forged)]++;
    }
    print_message("%d taken, %d refused, %d models broken\n", outcomes[0], outcomes[1], outcomes[2]);
    assert_true(outcomes[0] > 20 && outcomes[1] > 100);
    free(forged.data);
    free(whole.data);
    fixture_close(&its);
}

/* As of a memory that could not forget only a part of what a run had computed. */
static void test_a_state_of_tokens_alone_is_computed_again(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 4);
    learn_what_llama_says(its.it.engine);
    saved whole = save_seven(&its), end = {0};
    wg_state_head head;
    memcpy(&head, whole.data, sizeof head);
    whole.bytes -= head.bytes;
    head.bytes = head.computed = 0;
    memcpy(whole.data, &head, sizeof head);
    seal(whole.data, whole.bytes);
    OK(go_on(&its, &whole, NULL, 0, MADE - 7, 0, &end));
    assert_int_equal(end.made_count, MADE - 7);
    assert_memory_equal(end.made, expected + 7, end.made_count * sizeof *expected);
    free(end.data);
    free(whole.data);
    fixture_close(&its);
}

/* There is memory for as many cells as the head says. */
static void test_a_state_with_more_cells_than_its_head_says_is_refused(void **state)
{
    (void)state;
    fixture its = fixture_open(path, load, 4);
    learn_what_llama_says(its.it.engine);
    saved whole = save_seven(&its);
    wg_state_head head;
    memcpy(&head, whole.data, sizeof head);
    assert_int_equal(head.computed, PROMPT + 6);
    head.computed -= 1;
    memcpy(whole.data, &head, sizeof head);
    seal(whole.data, whole.bytes);
    refused(&its, &whole, "more cells than tokens");
    still_works(&its);
    free(whole.data);
    fixture_close(&its);
}

/* Sealed, so that nothing but this is wrong. */
static void test_a_state_of_another_version_or_vocabulary_is_refused(void **state)
{
    (void)state;
    static const uint32_t versions[] = {0, 2, UINT32_MAX};
    static const int32_t tokens[] = {-1, 286, INT32_MAX, INT32_MIN};
    fixture its = fixture_open(path, load, 4);
    learn_what_llama_says(its.it.engine);
    saved whole = save_seven(&its), other = {.bytes = whole.bytes, .data = malloc(whole.bytes)};
    assert_non_null(other.data);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        wg_state_head head;
        memcpy(other.data, whole.data, whole.bytes);
        memcpy(&head, other.data, sizeof head);
        head.version = versions[i];
        memcpy(other.data, &head, sizeof head);
        seal(other.data, other.bytes);
        refused(&its, &other, "saved by another version");
    }
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (size_t place = 0; place < whole.token_count; place += whole.token_count - 1) {
            memcpy(other.data, whole.data, whole.bytes);
            memcpy(other.data + sizeof(wg_state_head) + place * sizeof *tokens, &tokens[i], sizeof *tokens);
            seal(other.data, other.bytes);
            refused(&its, &other, "tokens that the vocabulary has not");
        }
    still_works(&its);
    free(other.data);
    free(whole.data);
    fixture_close(&its);
}

/* Bytes behind what llama.cpp takes, or before which it does not end, though the head and the sum are right. */
static void test_a_state_of_another_length_than_llama_cpps_is_refused(void **state)
{
    (void)state;
    static const int changes[] = {1, 8, 4096, -1, -8};
    fixture its = fixture_open(path, load, 4);
    learn_what_llama_says(its.it.engine);
    saved whole = save_seven(&its), other = {.data = calloc(1, whole.bytes + 4096)};
    assert_non_null(other.data);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        wg_state_head head;
        other.bytes = (size_t)((int64_t)whole.bytes + changes[i]);
        memcpy(other.data, whole.data, whole.bytes);
        memcpy(&head, other.data, sizeof head);
        head.bytes = (uint64_t)((int64_t)head.bytes + changes[i]);
        memcpy(other.data, &head, sizeof head);
        seal(other.data, other.bytes);
        refused(&its, &other, "does not fit into this model's sequence");
        still_works(&its);
    }
    free(other.data);
    free(whole.data);
    fixture_close(&its);
}

static void test_forged_states_end_no_process(void **state)
{
    (void)state;
    forge("on");
    forge("off");
}

int main(void)
{
    model_shape shape = {.layers = 2, .width = 64, .heads = 4, .heads_kv = 2, .wide = 128, .context = 256};
    snprintf(path, sizeof path, "/tmp/weir-sequence-%d.gguf", (int)getpid());
    snprintf(other_path, sizeof other_path, "%s-other", path);
    write_llama(path, &shape);
    shape.seed = 8;
    write_llama(other_path, &shape);
    snprintf(windowed_path, sizeof windowed_path, "%s-windowed", path);
    shape.layers = 4;
    shape.context = 768;
    write_windowed(windowed_path, &shape, 64);
    snprintf(recurrent_path, sizeof recurrent_path, "%s-recurrent", path);
    shape.layers = 2;
    shape.context = 256;
    write_recurrent(recurrent_path, &shape);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i == 0 ? 1 : 260 + i * 7 % 26;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_goes_on_where_its_state_was_saved),
        cmocka_unit_test(test_tokens_go_behind_what_a_state_stands_for),
        cmocka_unit_test(test_a_text_goes_behind_what_a_state_stands_for),
        cmocka_unit_test(test_states_of_windows),
        cmocka_unit_test(test_states_of_what_cannot_forget),
        cmocka_unit_test(test_a_run_that_was_stopped_early_saves_what_it_gave),
        cmocka_unit_test(test_tokens_that_were_held_back_are_not_in_a_state),
        cmocka_unit_test(test_states_are_saved_and_put_back_beside_other_runs),
        cmocka_unit_test(test_a_state_goes_from_one_load_to_the_next),
        cmocka_unit_test(test_a_state_of_something_else_is_refused),
        cmocka_unit_test(test_a_state_of_more_tokens_than_the_context_is_refused),
        cmocka_unit_test(test_a_cut_state_is_refused),
        cmocka_unit_test(test_a_changed_state_is_refused),
        cmocka_unit_test(test_a_state_of_tokens_alone_is_computed_again),
        cmocka_unit_test(test_a_state_with_more_cells_than_its_head_says_is_refused),
        cmocka_unit_test(test_a_state_of_another_version_or_vocabulary_is_refused),
        cmocka_unit_test(test_a_state_of_another_length_than_llama_cpps_is_refused),
        cmocka_unit_test(test_forged_states_end_no_process),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    unlink(other_path);
    unlink(windowed_path);
    unlink(recurrent_path);
    return failed;
}
