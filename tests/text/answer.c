/* answer.c: what a run has made grows token by token, is held back where it may have to go, and ends. */
#include "core/core.h"
#include "engines/text/text.h"

#include <math.h>

static wt_answer made;

static void add(int32_t token, const char *text)
{
    assert_true(wt_answer_add(&made, token, text, strlen(text), NULL, 0));
}

static void has(size_t count, size_t released, const char *text)
{
    assert_int_equal(made.count, count);
    assert_int_equal(made.released, released);
    assert_int_equal(made.bytes, strlen(text));
    assert_memory_equal(made.text, text, made.bytes);
}

static void test_tokens_are_released_when_no_word_begins_in_them(void **state)
{
    (void)state;
    ok(wt_answer_make("END\nEx", 10, 0, &made));
    add(7, "a");
    has(1, 1, "a");
    add(8, "bE");
    has(2, 1, "abE");
    add(9, "N");
    has(3, 1, "abEN");
    add(10, "");
    has(4, 1, "abEN");
    add(11, "x");
    has(5, 5, "abENx");
    assert_null(made.finish);
    assert_int_equal(made.tokens[1], 8);
    assert_int_equal(wt_answer_begin_of(&made, 0), 0);
    assert_int_equal(wt_answer_begin_of(&made, 2), 3);
    wt_answer_drop(&made);
}

static void test_a_word_ends_the_text_before_it(void **state)
{
    (void)state;
    ok(wt_answer_make("END", 10, 0, &made));
    add(1, "abE");
    add(2, "N");
    add(3, "D and more");
    has(3, 3, "ab");
    assert_string_equal(made.finish, "stop");
    assert_string_equal(made.stop->text, "END");
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(made.ends[i], 2);
    wt_answer_drop(&made);
}

static void test_the_last_token_ends_it(void **state)
{
    (void)state;
    ok(wt_answer_make("END", 2, 0, &made));
    add(1, "a");
    add(2, "E");
    has(2, 2, "aE");
    assert_string_equal(made.finish, "length");
    assert_null(made.stop);
    wt_answer_drop(&made);
}

static void test_what_nobody_took_is_cut_off(void **state)
{
    (void)state;
    ok(wt_answer_make("END", 5, 0, &made));
    add(1, "ab");
    add(2, "c");
    add(3, "END");
    wt_answer_cut(&made, 1);
    wt_answer_end(&made, "cancelled");
    has(1, 1, "ab");
    assert_null(made.stop);
    assert_string_equal(made.finish, "cancelled");
    wt_answer_cut(&made, 0);
    has(0, 0, "");
    wt_answer_drop(&made);
}

static void test_a_long_text_is_whole(void **state)
{
    (void)state;
    char piece[40];
    size_t bytes = 0;
    ok(wt_answer_make(NULL, 1000, 0, &made));
    for (int i = 0; i < 1000; i++) {
        snprintf(piece, sizeof piece, "%d and ", i);
        add(i, piece);
        bytes += strlen(piece);
        assert_int_equal(made.ends[i], bytes);
    }
    assert_memory_equal(made.text, "0 and 1 and ", 12);
    assert_memory_equal(made.text + bytes - strlen(piece), "999 and ", 8);
    wt_answer_drop(&made);
    assert_null(made.text);
}

static void test_wrong_words_make_no_answer(void **state)
{
    (void)state;
    fails(WEIR_ERR_INVALID, wt_answer_make("a\\q", 10, 3, &made));
    detail_names("'stop'");
    assert_null(made.tokens);
}

/* ---- probabilities ----------------------------------------------------------------------------------------------- */

static void near(float value, double wanted)
{
    assert_true(fabs(value - wanted) < 1e-5);
}

static void test_probabilities_are_those_of_the_logits(void **state)
{
    (void)state;
    static const float logits[] = {1, 3, 2, 3, -INFINITY};
    const double whole = log(exp(1) + exp(3) + exp(2) + exp(3));
    static const int32_t order[] = {1, 3, 2, 0, 4};
    for (size_t most = 1; most <= 5; most++) {
        int32_t tokens[6] = {-1, -1, -1, -1, -1, -1};
        float values[6];
        near(wt_log_probabilities(logits, 5, 2, most, tokens, values), 2 - whole);
        for (size_t i = 0; i < most; i++) {
            assert_int_equal(tokens[i], order[i]);
            if (order[i] != 4)
                near(values[i], logits[order[i]] - whole);
        }
        assert_int_equal(tokens[most], -1);
    }
    /* Large logits have no large sum. */
    static const float large[] = {1000, 1000};
    int32_t token;
    float value;
    near(wt_log_probabilities(large, 2, 0, 1, &token, &value), -log(2));
}

static void test_each_token_has_its_probabilities(void **state)
{
    (void)state;
    static const float first[] = {0, 1, 2}, second[] = {2, 1, 0};
    const double whole = log(exp(0) + exp(1) + exp(2));
    static const int32_t tokens[] = {2, 1, 0, 1};
    ok(wt_answer_make(NULL, 3, 2, &made));
    assert_true(wt_answer_add(&made, 1, "a", 1, first, 3));
    assert_true(wt_answer_add(&made, 2, "b", 1, second, 3));
    near(made.logprobs[0], 1 - whole);
    near(made.logprobs[1], 0 - whole);
    assert_memory_equal(made.top_tokens, tokens, sizeof tokens);
    for (size_t i = 0; i < 4; i++)
        near(made.top_logprobs[i], (i % 2 ? 1 : 2) - whole);
    wt_answer_drop(&made);
}

static void test_a_run_makes_what_there_is_room_for(void **state)
{
    (void)state;
    int64_t tokens = -1;
    ok(wt_settle_tokens(&tokens, 6, 10, 0, 5, 5));
    assert_int_equal(tokens, 4);
    tokens = -1;
    ok(wt_settle_tokens(&tokens, 6, 10, 1, 0, 5));
    assert_int_equal(tokens, 5);
    fails(WEIR_ERR_INVALID, wt_settle_tokens(&tokens, 6, 10, 0, 0, 5));
    fails(WEIR_ERR_INVALID, wt_settle_tokens(&tokens, 6, 10, 1, 6, 5));
    tokens = -1;
    fails(WEIR_ERR_INVALID, wt_settle_tokens(&tokens, 10, 10, 0, 0, 5));
    tokens = 0;
    ok(wt_settle_tokens(&tokens, 10, 10, 1, 0, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_are_released_when_no_word_begins_in_them),
        cmocka_unit_test(test_a_word_ends_the_text_before_it),
        cmocka_unit_test(test_the_last_token_ends_it),
        cmocka_unit_test(test_what_nobody_took_is_cut_off),
        cmocka_unit_test(test_a_long_text_is_whole),
        cmocka_unit_test(test_wrong_words_make_no_answer),
        cmocka_unit_test(test_probabilities_are_those_of_the_logits),
        cmocka_unit_test(test_a_run_makes_what_there_is_room_for),
        cmocka_unit_test(test_each_token_has_its_probabilities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
