/* embeds.c: texts that become vectors: which of them share a call of llama.cpp's, and what is left when a call fails, throws, or has
 * the run cancelled. */
#include "calls.h"
#include <weir/engine.h>

#include <sched.h>

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
    end_it("embeds.c", 1, "thrown on purpose");
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_texts_fill_the_calls, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_a_vector_of_zeros_stays_one, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_texts_and_rows_have_their_ends, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_embeddings_leave_nothing_whichever_call_fails, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_embeddings_are_cancelled_in_every_call, watch, unwatch),
        cmocka_unit_test_setup_teardown(test_a_run_that_waited_for_a_model_which_broke_is_refused, watch, unwatch),
    };
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
