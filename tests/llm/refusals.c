/* refusals.c: each allocation of a load and of a run is refused in turn: a clean refusal in words, nothing left, and the next
 * load or run works. */
#include "answer.h"

#include <weir/adaptor.h>

#include <pthread.h>
#include <stdatomic.h>

enum { PROMPT = 9, MADE = 4, MOST = 2000, RUNS = 3 };

static int32_t prompt[PROMPT];
static const char words_of_refusal[] = "refused on purpose";

/* ---- an adaptor that refuses one request ------------------------------------------------------------------------- */

static atomic_long left = -1; /* requests that pass before the one that is refused; -1: all pass */
static atomic_long refusals, asked;
static atomic_int refused_with = WEIR_ERR_OUT_OF_MEMORY;

static weir_status before_allocate(void *state, const weir_adaptor_block *block)
{
    (void)state;
    (void)block;
    atomic_fetch_add(&asked, 1);
    if (atomic_load(&left) < 0 || atomic_fetch_sub(&left, 1) > 0)
        return WEIR_OK;
    atomic_fetch_add(&refusals, 1);
    return weir_fail((weir_status)atomic_load(&refused_with), "%s", words_of_refusal);
}

/* Every other one is for want of memory. */
static weir_status refuse_after(long count)
{
    atomic_store(&refused_with, count % 2 ? WEIR_ERR_DRIVER : WEIR_ERR_OUT_OF_MEMORY);
    atomic_store(&refusals, 0);
    atomic_store(&asked, 0);
    atomic_store(&left, count);
    return (weir_status)atomic_load(&refused_with);
}

static int add_adaptor(void **state)
{
    const weir_adaptor_table table = {.struct_size = sizeof table, .name = "nth", .before_allocate = before_allocate};
    (void)state;
    return weir_adaptor_register(&table) == WEIR_OK ? 0 : -1;
}

static bench bench_refusing(int which)
{
    refuse_after(-1);
    return bench_on(the_model(which), 1ull << 28, "nth(budget(cache))");
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

static void every_request_of_a_load(int which, const weir_setting *settings, size_t count)
{
    bench it = bench_refusing(which);
    OK(bench_load(&it, settings, count));
    uint64_t weights = stats_of(&it).live;
    bench_unload(&it);
    long at = 0, met = 0;
    for (bool whole = false; !whole && at < MOST; at++) {
        weir_status expected = refuse_after(at), status = bench_load(&it, settings, count);
        whole = atomic_load(&refusals) == 0;
        met += !whole;
        if (!whole) {
            assert_int_equal(status, expected);
            assert_words(weir_detail(), words_of_refusal);
            assert_null(it.model);
            assert_int_equal(stats_of(&it).live, 0);
            refuse_after(-1);
            status = bench_load(&it, settings, count);
        }
        OK(status);
        assert_int_equal(stats_of(&it).live, weights);
        bench_unload(&it);
        assert_int_equal(stats_of(&it).live, 0);
    }
    print_message("%s, %zu settings: %ld requests of a load, each refused once\n", model_names[which], count, met);
    assert_true(met > 10);
    bench_close(&it);
}

static void test_every_request_of_a_load_is_refused_in_turn(void **state)
{
    (void)state;
    for (int which = 0; which < MODELS; which++)
        every_request_of_a_load(which, one_thread, 1);
}

static void test_every_request_of_a_load_for_several_sequences_is_refused_in_turn(void **state)
{
    (void)state;
    const weir_setting several[] = {{"threads", "1"}, {"sequences", "3"}};
    every_request_of_a_load(SHARED, several, 2);
}

/* As it is refused where the budget has no room: what the model takes altogether is the least that it loads with. */
static void test_a_limit_below_the_weights_refuses_the_load(void **state)
{
    (void)state;
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_open(the_model(which));
        uint64_t whole = stats_of(&it).peak;
        bench_unload(&it);
        int refused = 0;
        for (uint64_t maximum = 256; maximum < whole; maximum += whole / 12 / 256 * 256 + 256) {
            OK(weir_client_set_limits(it.client, 0, maximum));
            assert_int_equal(bench_load(&it, one_thread, 1), WEIR_ERR_OUT_OF_MEMORY);
            assert_words(weir_detail(), "model");
            weir_refusal refusal = WEIR_INIT(weir_refusal);
            OK(weir_refusal_last(&refusal));
            assert_int_equal(refusal.cause, WEIR_CAUSE_MAXIMUM);
            assert_string_equal(refusal.client, "model");
            assert_int_equal(stats_of(&it).live, 0);
            refused++;
        }
        assert_true(refused > 8);
        OK(weir_client_set_limits(it.client, 0, whole));
        OK(bench_load(&it, one_thread, 1));
        bench_close(&it);
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void same_tokens(const weir_outputs *outputs, const int32_t *expected)
{
    const weir_tensor *tokens = output_named(outputs, "tokens");
    assert_int_equal(tokens->bytes, MADE * sizeof *expected);
    assert_memory_equal(tokens->data, expected, tokens->bytes);
}

static void learn(const bench *it, const weir_setting *settings, size_t count, int32_t *expected)
{
    weir_tensor input = token_input(prompt, PROMPT);
    weir_outputs outputs;
    refuse_after(-1);
    OK(infer(it, &input, settings, count, &outputs));
    memcpy(expected, output_named(&outputs, "tokens")->data, MADE * sizeof *expected);
    release(it, &outputs);
}

static void every_request_of_a_run(int which, const weir_setting *load, size_t load_count, const weir_setting *settings,
                                   size_t count)
{
    bench it = bench_refusing(which);
    weir_tensor input = token_input(prompt, PROMPT);
    int32_t expected[MADE];
    OK(bench_load(&it, load, load_count));
    uint64_t weights = stats_of(&it).live;
    learn(&it, settings, count, expected);
    long at = 0, met = 0;
    for (bool whole = false; !whole && at < MOST; at++) {
        weir_outputs outputs;
        weir_status wanted = refuse_after(at), status = infer(&it, &input, settings, count, &outputs);
        whole = atomic_load(&refusals) == 0;
        met += !whole;
        if (!whole) {
            if (status != wanted)
                print_error("request %ld: %s\n", at, weir_detail());
            assert_int_equal(status, wanted);
            assert_words(weir_detail(), words_of_refusal);
            assert_int_equal(stats_of(&it).live, weights);
            refuse_after(-1);
            status = infer(&it, &input, settings, count, &outputs);
        }
        OK(status);
        same_tokens(&outputs, expected);
        release(&it, &outputs);
        assert_int_equal(stats_of(&it).live, weights);
    }
    print_message("%s, %zu settings: %ld requests of a run, each refused once\n", model_names[which], load_count, met);
    assert_true(met > 20);
    bench_close(&it);
}

static void test_every_request_of_a_run_is_refused_in_turn(void **state)
{
    (void)state;
    const weir_setting greedy[] = {GREEDY("4")};
    for (int which = 0; which < MODELS; which++)
        every_request_of_a_run(which, one_thread, 1, greedy, 2);
}

/* Logits are copies of GenAI's. */
static void test_every_request_of_a_run_with_logits_is_refused_in_turn(void **state)
{
    (void)state;
    const weir_setting all[] = {GREEDY("4"), {"logits", "1"}, {"logprobs", "2"}};
    every_request_of_a_run(SHARED, one_thread, 1, all, 4);
}

static void test_every_request_of_a_run_among_several_sequences_is_refused_in_turn(void **state)
{
    (void)state;
    const weir_setting greedy[] = {GREEDY("4")}, several[] = {{"threads", "1"}, {"sequences", "3"}};
    every_request_of_a_run(SHARED, several, 2, greedy, 2);
}

/* ---- runs that are decoded together ------------------------------------------------------------------------------ */

typedef struct runner {
    const bench *it;
    weir_status status;
    char detail[512];
    int32_t made[MADE];
} runner;

static void *run(void *given)
{
    const weir_setting greedy[] = {GREEDY("4")};
    runner *its = given;
    weir_tensor input = token_input(prompt, PROMPT);
    weir_outputs outputs;
    its->status = infer(its->it, &input, greedy, 2, &outputs);
    if (its->status != WEIR_OK) {
        snprintf(its->detail, sizeof its->detail, "%s", weir_detail());
        return NULL;
    }
    const weir_tensor *tokens = find_output(&outputs, "tokens");
    if (tokens->bytes == sizeof its->made)
        memcpy(its->made, tokens->data, sizeof its->made);
    release(its->it, &outputs);
    return NULL;
}

static void run_all(const bench *it, runner *runs)
{
    pthread_t threads[RUNS];
    for (int i = 0; i < RUNS; i++) {
        runs[i] = (runner){.it = it};
        assert_int_equal(pthread_create(&threads[i], NULL, run, &runs[i]), 0);
    }
    for (int i = 0; i < RUNS; i++)
        pthread_join(threads[i], NULL);
}

/* One refusal may be that of all, as they are computed together; none hangs, and the model serves again. */
static void test_runs_together_end_and_the_model_serves_again(void **state)
{
    (void)state;
    const weir_setting greedy[] = {GREEDY("4")}, several[] = {{"threads", "1"}, {"sequences", "3"}};
    bench it = bench_refusing(SHARED);
    int32_t expected[MADE];
    long met = 0;
    OK(bench_load(&it, several, 2));
    uint64_t weights = stats_of(&it).live;
    learn(&it, greedy, 2, expected);
    for (long at = 0; at < 90; at++) {
        runner runs[RUNS];
        int refused = 0;
        weir_status wanted = refuse_after(at);
        run_all(&it, runs);
        for (int i = 0; i < RUNS; i++) {
            refused += runs[i].status == wanted;
            if (runs[i].status == WEIR_OK)
                assert_memory_equal(runs[i].made, expected, sizeof expected);
            else
                assert_words(runs[i].detail, words_of_refusal);
            assert_true(runs[i].status == WEIR_OK || runs[i].status == wanted);
        }
        assert_int_equal(refused > 0, atomic_load(&refusals) > 0);
        met += atomic_load(&refusals);
        assert_int_equal(stats_of(&it).live, weights);
        refuse_after(-1);
        run_all(&it, runs);
        for (int i = 0; i < RUNS; i++) {
            assert_int_equal(runs[i].status, WEIR_OK);
            assert_memory_equal(runs[i].made, expected, sizeof expected);
        }
    }
    assert_int_equal(met, 90);
    bench_close(&it);
}

int main(void)
{
    fill_prompt(prompt, PROMPT, 4);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_request_of_a_load_is_refused_in_turn),
        cmocka_unit_test(test_every_request_of_a_load_for_several_sequences_is_refused_in_turn),
        cmocka_unit_test(test_a_limit_below_the_weights_refuses_the_load),
        cmocka_unit_test(test_every_request_of_a_run_is_refused_in_turn),
        cmocka_unit_test(test_every_request_of_a_run_with_logits_is_refused_in_turn),
        cmocka_unit_test(test_every_request_of_a_run_among_several_sequences_is_refused_in_turn),
        cmocka_unit_test(test_runs_together_end_and_the_model_serves_again),
    };
    return cmocka_run_group_tests(tests, add_adaptor, NULL);
}
