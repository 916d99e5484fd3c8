/* ties.c: what bench/ties.c takes for rounding, and what for a fault, where both are planted. */
#include "../../bench/ties.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEQUENCES = 3, TOKENS = 5, WORDS = 16 };
static const float unit = TIES_UNIT_F16;

/* Two runs that chose alike, with logits of up to 8: one u there is 1/256. */
typedef struct pair {
    int32_t tokens[2][SEQUENCES][TOKENS];
    float logits[2][SEQUENCES][TOKENS][WORDS];
    ties_run runs[2][SEQUENCES];
    char said[4096];
} pair;

static void choose(pair *it, int which, int sequence, int position)
{
    int best = 0;
    for (int i = 1; i < WORDS; i++)
        if (it->logits[which][sequence][position][i] > it->logits[which][sequence][position][best])
            best = i;
    it->tokens[which][sequence][position] = best;
}

static void *at(pair *it, int which, int sequence, int position, int word, float logit)
{
    it->logits[which][sequence][position][word] = logit;
    choose(it, which, sequence, position);
    return it;
}

/* Logits that differ by one u. */
static int setup(void **state)
{
    pair *it = calloc(1, sizeof *it);
    assert_non_null(it);
    for (int w = 0; w < 2; w++)
        for (int s = 0; s < SEQUENCES; s++) {
            for (int k = 0; k < TOKENS; k++) {
                for (int i = 0; i < WORDS; i++)
                    it->logits[w][s][k][i] = (float)((i * 7 + k * 3 + s) % WORDS) * 0.5f - 2;
                at(it, w, s, k, (k + s) % WORDS, 8);
                it->logits[w][s][k][(k + s + 5) % WORDS] += (float)w * 8 * unit;
            }
            it->runs[w][s] = (ties_run){it->tokens[w][s], &it->logits[w][s][0][0]};
        }
    *state = it;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static ties_found find(pair *it)
{
    FILE *to = fmemopen(it->said, sizeof it->said, "w");
    assert_non_null(to);
    ties_found found = ties_find(it->runs[0], it->runs[1], SEQUENCES, TOKENS, WORDS, unit, to);
    fclose(to);
    return found;
}

static void says(const pair *it, const char *words)
{
    if (!strstr(it->said, words))
        print_error("'%s' is not in: %s\n", words, it->said);
    assert_non_null(strstr(it->said, words));
}

static void is_fault(pair *it, const char *why)
{
    ties_found found = find(it);
    assert_int_equal(found.faults, 1);
    says(it, "FAULT: together sequence 1, position 3");
    says(it, why);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void what_is_the_same_has_no_line(void **state)
{
    pair *it = *state;
    ties_found found = find(it);
    assert_int_equal(found.ties + found.faults, 0);
    assert_int_equal(found.agreed, SEQUENCES * TOKENS);
    assert_true(found.rounding == 1 && found.allowed == 2);
    assert_string_equal(it->said, "");
}

/* Two logits that are one u apart, the other way round. What comes after has other tokens before it, and is not looked at. */
static void a_tie_is_named_and_ends_its_sequence(void **state)
{
    pair *it = *state;
    at(it, 0, 1, 3, 9, 8 - 4 * unit);
    at(it, 1, 1, 3, 9, 8 + 4 * unit);
    at(it, 1, 1, 4, 2, 100);
    ties_found found = find(it);
    assert_int_equal(found.ties, 1);
    assert_int_equal(found.faults, 0);
    assert_int_equal(found.agreed, SEQUENCES * TOKENS - 2);
    says(it, "tie: together sequence 1, position 3: alone token 4 with logit 8, 9 has 7.99805; together token 9 with "
             "8.00195, "
             "4 has 8; logits differ by 1.00 u at the most, allowed are 2.00");
}

/* The same choice, of logits that rounding does not move so far. */
static void wrong_logits_are_a_fault_where_both_choose_alike(void **state)
{
    at(*state, 1, 1, 3, 11, 4);
    is_fault(*state, "the logits differ by more than rounding");
}

static void a_choice_between_distant_logits_is_a_fault(void **state)
{
    at(*state, 1, 1, 3, 9, 9);
    is_fault(*state, "the logits differ by more than rounding");
}

/* What would pass for a half float of the largest size does not where measured rounding is smaller. */
static void a_difference_is_measured_by_what_rounding_does_elsewhere(void **state)
{
    pair *it = *state;
    at(it, 0, 1, 3, 9, 8 - 8 * unit);
    at(it, 1, 1, 3, 9, 8 + 16 * unit);
    is_fault(it, "the logits differ by more than rounding");
    at(it, 1, 0, 2, 15, it->logits[0][0][2][15] + 16 * unit); /* so far does it go elsewhere */
    ties_found found = find(it);
    assert_int_equal(found.faults, 0);
    assert_int_equal(found.ties, 1);
}

/* The logits are right, and yet another token was taken. */
static void a_token_that_is_not_the_likeliest_is_a_fault(void **state)
{
    pair *it = *state;
    it->tokens[1][1][3] = 9;
    is_fault(it, "a token is not the likeliest");
    it->tokens[0][1][3] = 9;
    is_fault(it, "a token is not the likeliest");
    it->tokens[0][1][3] = it->tokens[1][1][3] = WORDS;
    is_fault(it, "a token is not the likeliest");
}

static void logits_that_are_missing_are_a_fault(void **state)
{
    pair *it = *state;
    it->logits[1][1][3][7] = NAN;
    is_fault(it, "there are no logits, or no numbers");
    it->logits[1][1][3][7] = INFINITY;
    is_fault(it, "FAULT");
    it->runs[1][1].logits = NULL;
    assert_int_equal(find(it).faults, TOKENS);
}

/* Nothing agrees: what the type explains is allowed. */
static void without_a_measure_the_type_says_what_is_allowed(void **state)
{
    pair *it = *state;
    for (int s = 0; s < SEQUENCES; s++) {
        at(it, 0, s, 0, 9, 8 - 8 * unit);
        at(it, 1, s, 0, 9, 8 + 8 * unit);
    }
    ties_found found = find(it);
    assert_int_equal(found.agreed, 0);
    assert_true(found.allowed == TIES_ROUNDINGS);
    assert_int_equal(found.ties, SEQUENCES);
    assert_int_equal(found.faults, 0);
}

/* Tokens whose logits nobody saw are judged by those of the run alone. */
static void other_tokens_of_a_run_unseen(void **state)
{
    pair *it = *state;
    ties_found found = find(it);
    FILE *to = fmemopen(it->said, sizeof it->said, "w");
    for (int s = 0; s < SEQUENCES; s++)
        it->runs[1][s].logits = NULL;
    at(it, 0, 1, 3, 9, 8 - 8 * unit);
    it->tokens[1][1][3] = 9;
    ties_judge(&found, it->runs[0], it->runs[1], SEQUENCES, TOKENS, WORDS, unit, "before", to);
    assert_int_equal(found.ties, 1);
    assert_int_equal(found.faults, 0);
    it->tokens[1][2][0] = 9;
    ties_judge(&found, it->runs[0], it->runs[1], SEQUENCES, TOKENS, WORDS, unit, "before", to);
    fclose(to);
    assert_int_equal(found.faults, 1);
    says(it, "FAULT: before sequence 2, position 0");
    says(it, "the two tokens are farther apart than rounding");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_the_same_has_no_line, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tie_is_named_and_ends_its_sequence, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_logits_are_a_fault_where_both_choose_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(a_choice_between_distant_logits_is_a_fault, setup, teardown),
        cmocka_unit_test_setup_teardown(a_difference_is_measured_by_what_rounding_does_elsewhere, setup, teardown),
        cmocka_unit_test_setup_teardown(a_token_that_is_not_the_likeliest_is_a_fault, setup, teardown),
        cmocka_unit_test_setup_teardown(logits_that_are_missing_are_a_fault, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_measure_the_type_says_what_is_allowed, setup, teardown),
        cmocka_unit_test_setup_teardown(other_tokens_of_a_run_unseen, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
