/* cores.c: steps compute with leased cores, alone and together; a reader holds none, and a cancel ends a wait for them. */
#include "common.h"

#include <weir/cores.h>

#include <pthread.h>
#include <sched.h>

enum { LENGTH = 12, MADE = 8 };

static const weir_setting greedy[] = {{"tokens", "8"}, {"temperature", "0"}, {"ignore_eos", "1"}};
static const weir_setting together[] = {{"sequences", "3"}};
static int32_t prompt[LENGTH];

static weir_cores_totals totals(void)
{
    weir_cores_totals now = {.struct_size = sizeof now};
    OK(weir_cores_info(&now));
    return now;
}

static weir_cores_stats line(size_t index)
{
    weir_cores_stats now = {.struct_size = sizeof now};
    OK(weir_cores_look(index, &now));
    return now;
}

static void until(bool (*there)(void))
{
    while (!there())
        sched_yield();
}

static bool one_waits(void)
{
    return totals().waiting == 1;
}

/* The thread of a model that decodes several gives them back when it rests, behind the end of its last run. */
static bool none_is_leased(void)
{
    return totals().leased == 0;
}

/* Alone (0), and by the model's own thread (1). */
static bench open_one(size_t several)
{
    bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
    OK(weir_option_set("cores", "2"));
    OK(bench_load(&it, together, several));
    return it;
}

typedef struct reader {
    int pieces, held;
} reader;

static bool on_piece(const weir_piece *piece, void *user)
{
    reader *it = user;
    (void)piece;
    it->held += totals().leased > 0;
    it->pieces++;
    return true;
}

static void test_a_model_leases_its_threads(void **state)
{
    (void)state;
    for (size_t several = 0; several < 2; several++) {
        bench it = open_one(several);
        weir_tensor input = token_input(prompt, LENGTH);
        weir_inference inference = inference_of(&input, greedy, 3);
        weir_outputs outputs = WEIR_INIT(weir_outputs);
        reader its = {0};
        OK(it.engine->infer_stream(it.model, &inference, on_piece, &its, &outputs));
        assert_int_equal(its.pieces, MADE);
        assert_true(several || its.held == 0);
        until(none_is_leased);
        assert_string_equal(line(0).name, "model");
        assert_int_equal(line(0).least, 2);
        assert_int_equal(line(0).most, 2);
        assert_int_equal(line(0).last, 2);
        assert_true(line(0).leases > 0);
        release(&it, &outputs);
        bench_close(&it);
        assert_int_equal(totals().lines, 0);
    }
}

static void test_a_setting_says_how_many(void **state)
{
    (void)state;
    bench it = bench_open(the_model(SHARED)); /* with one thread */
    assert_int_equal(line(0).least, 1);
    assert_int_equal(line(0).most, 1);
    bench_close(&it);
}

typedef struct asker {
    const bench *it;
    weir_status status;
    pthread_t thread;
} asker;

static void *ask(void *user)
{
    asker *it = user;
    weir_tensor input = token_input(prompt, LENGTH);
    weir_outputs outputs;
    it->status = infer(it->it, &input, greedy, 3, &outputs);
    if (it->status == WEIR_OK)
        release(it->it, &outputs);
    return NULL;
}

static void test_a_run_that_waits_for_cores_can_be_cancelled(void **state)
{
    (void)state;
    for (size_t several = 0; several < 2; several++)
        for (int cancelled = 0; cancelled < 2; cancelled++) {
            bench it = open_one(several);
            asker its = {.it = &it};
            weir_cores *here;
            uint32_t cores;
            OK(weir_cores_open("here", 2, 2, &here));
            OK(weir_cores_take(here, NULL, NULL, &cores));
            assert_int_equal(pthread_create(&its.thread, NULL, ask, &its), 0);
            until(one_waits);
            if (cancelled)
                OK(it.engine->cancel(it.model, 0));
            else
                weir_cores_give(here);
            pthread_join(its.thread, NULL);
            assert_int_equal(its.status, cancelled ? WEIR_ERR_CANCELLED : WEIR_OK);
            if (cancelled)
                weir_cores_give(here);
            until(none_is_leased);
            weir_cores_close(here);
            bench_close(&it);
        }
}

int main(void)
{
    fill_prompt(prompt, LENGTH, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_leases_its_threads),
        cmocka_unit_test(test_a_setting_says_how_many),
        cmocka_unit_test(test_a_run_that_waits_for_cores_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
