/* cores.c: models lease what they compute with, wait for it where it is taken, and give it back however a run ends. */
#include "common.h"
#include "plain.h"

#include <weir/cores.h>
#include <weir/engine.h>

#include <pthread.h>
#include <unistd.h>

enum { MADE = 16, LENGTH = 40, CONTEXT = 256, BATCH = 32, MODELS = 3, ROUNDS = 6, END = 2 };

static char path[64], bert_path[72];
static int32_t prompt[LENGTH], expected[MADE];
static const weir_setting small[] = {{"batch", "32"}, {"context", "256"}};

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

static void learn_what_llama_says(const weir_engine *engine)
{
    plain it = plain_of(engine);
    plain_open(&it, path, false, CONTEXT, BATCH, 1);
    plain_greedy(&it, prompt, LENGTH, BATCH, END, expected, MADE);
    plain_close(&it);
}

static void until_waiting(uint32_t count)
{
    while (totals().waiting != count)
        sched_yield();
}

/* A run on a thread of its own. */
typedef struct asker {
    const fixture *its;
    pthread_t thread;
    int rounds, right;
    weir_status status;
    char detail[256];
} asker;

static const weir_setting greedy[] = {{"tokens", "16"}, {"temperature", "0"}, {"ignore_eos", "1"}};

static void *ask(void *user)
{
    asker *it = user;
    weir_tensor input = token_input(prompt, 0, LENGTH);
    for (int i = 0; i < it->rounds; i++) {
        weir_outputs outputs;
        it->status = infer(it->its, &input, greedy, 3, &outputs);
        snprintf(it->detail, sizeof it->detail, "%s", weir_detail());
        if (it->status != WEIR_OK)
            return NULL;
        const weir_tensor *tokens = output_named(&outputs, "tokens");
        it->right += tokens->bytes == sizeof expected && memcmp(tokens->data, expected, sizeof expected) == 0;
        release(it->its, &outputs);
    }
    return NULL;
}

static void test_models_at_once_answer_within_the_cores(void **state)
{
    (void)state;
    fixture its[MODELS];
    asker all[MODELS];
    OK(weir_option_set("cores", "2"));
    for (int i = 0; i < MODELS; i++) {
        its[i] = fixture_open(path, small, 2);
        all[i] = (asker){.its = &its[i], .rounds = ROUNDS};
    }
    learn_what_llama_says(its[0].it.engine);
    assert_int_equal(totals().lines, MODELS);
    for (int i = 0; i < MODELS; i++)
        pthread_create(&all[i].thread, NULL, ask, &all[i]);
    for (int i = 0; i < MODELS; i++)
        pthread_join(all[i].thread, NULL);
    for (int i = 0; i < MODELS; i++) {
        if (all[i].status != WEIR_OK)
            print_error("%s\n", all[i].detail);
        assert_int_equal(all[i].right, ROUNDS);
        assert_true(line((size_t)i).leases >= ROUNDS);
        assert_in_range(line((size_t)i).last, 1, 2);
    }
    assert_int_equal(totals().leased, 0);
    assert_int_equal(totals().waiting, 0);
    assert_in_range(totals().peak, 1, 2);
    for (int i = 0; i < MODELS; i++)
        fixture_close(&its[i]);
    assert_int_equal(totals().lines, 0);
}

static void test_a_model_alone_has_all_or_its_threads(void **state)
{
    (void)state;
    static const weir_setting fixed[] = {{"batch", "32"}, {"context", "256"}, {"threads", "1"}};
    OK(weir_option_set("cores", "2"));
    for (size_t count = 2; count <= 3; count++) {
        fixture its = fixture_open(path, fixed, count);
        asker it = {.its = &its, .rounds = 1};
        learn_what_llama_says(its.it.engine);
        ask(&it);
        assert_int_equal(it.right, 1);
        assert_string_equal(line(0).name, "model");
        assert_int_equal(line(0).least, 1);
        assert_int_equal(line(0).most, count == 3 ? 1 : 0);
        assert_in_range(line(0).last, 1, count == 3 ? 1 : 2); /* beside other processes it may be fewer */
        assert_int_equal(line(0).now, 0);
        fixture_close(&its);
    }
}

/* All cores are taken: the run waits, and a cancel finds it there. */
static void test_a_run_that_waits_for_cores_can_be_cancelled(void **state)
{
    (void)state;
    uint32_t cores;
    weir_cores *here;
    OK(weir_option_set("cores", "2"));
    fixture its = fixture_open(path, small, 2);
    OK(weir_cores_open("here", 2, 2, &here));
    learn_what_llama_says(its.it.engine);
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        asker it = {.its = &its, .rounds = 1};
        OK(weir_cores_take(here, NULL, NULL, &cores));
        assert_int_equal(cores, 2);
        pthread_create(&it.thread, NULL, ask, &it);
        until_waiting(1);
        assert_int_equal(totals().leased, 2);
        if (cancelled) {
            OK(its.it.engine->cancel(its.model, 0));
            pthread_join(it.thread, NULL);
            assert_int_equal(it.status, WEIR_ERR_CANCELLED);
            assert_string_equal(it.detail, "the run was cancelled");
            assert_int_equal(totals().leased, 2);
            weir_cores_give(here);
        } else {
            weir_cores_give(here);
            pthread_join(it.thread, NULL);
            assert_int_equal(it.right, 1);
        }
        assert_int_equal(totals().leased, 0);
        assert_int_equal(totals().waiting, 0);
    }
    weir_cores_close(here);
    fixture_close(&its);
}

/* What a piece's reader finds. */
typedef struct reader {
    int pieces, held;
    int most;
} reader;

static bool on_piece(const weir_piece *piece, void *user)
{
    reader *it = user;
    (void)piece;
    it->held += totals().leased > 0;
    return ++it->pieces != it->most;
}

static void test_a_reader_holds_no_cores_up(void **state)
{
    (void)state;
    OK(weir_option_set("cores", "2"));
    fixture its = fixture_open(path, small, 2);
    weir_tensor input = token_input(prompt, 0, LENGTH);
    for (int most = 0; most <= 3; most += 3) { /* 3: it wants no more than so many */
        reader it = {.most = most};
        weir_outputs outputs = WEIR_INIT(weir_outputs);
        weir_inference inference = inference_of(&input, greedy, 3);
        OK(its.it.engine->infer_stream(its.model, &inference, on_piece, &it, &outputs));
        assert_int_equal(it.pieces, most ? most : MADE);
        assert_int_equal(it.held, 0);
        assert_int_equal(totals().leased, 0);
        release(&its, &outputs);
    }
    fixture_close(&its);
}

static void test_a_run_that_fails_gives_its_cores_back(void **state)
{
    (void)state;
    static const weir_setting impossible[] = {{"tokens", "8"}, {"grammar", "root ::= \"\\u0001\""}};
    OK(weir_option_set("cores", "2"));
    fixture its = fixture_open(path, small, 2);
    weir_tensor input = token_input(prompt, 0, LENGTH);
    weir_outputs outputs;
    weir_status status = infer(&its, &input, impossible, 2, &outputs);
    if (status == WEIR_OK)
        release(&its, &outputs);
    assert_true(line(0).leases > 0);
    assert_int_equal(totals().leased, 0);
    fixture_close(&its);
}

static void *embed(void *user)
{
    asker *it = user;
    weir_tensor input = text_input("a b\nc\nd e");
    weir_outputs outputs;
    it->status = infer(it->its, &input, NULL, 0, &outputs);
    it->right = it->status == WEIR_OK && output_named(&outputs, "embeddings")->shape[0] == 3;
    if (it->status == WEIR_OK)
        release(it->its, &outputs);
    return NULL;
}

/* However it ends; and while it waits for them it can be cancelled. */
static void test_texts_that_are_embedded_give_their_cores_back(void **state)
{
    (void)state;
    uint32_t cores;
    weir_cores *here;
    OK(weir_option_set("cores", "2"));
    fixture its = fixture_open(bert_path, NULL, 0);
    OK(weir_cores_open("here", 2, 2, &here));
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        asker it = {.its = &its};
        embed(&it);
        assert_int_equal(it.right, 1);
        assert_true(line(0).leases > 0);
        assert_int_equal(totals().leased, 0);
        OK(weir_cores_take(here, NULL, NULL, &cores));
        pthread_create(&it.thread, NULL, embed, &it);
        until_waiting(1);
        if (cancelled)
            OK(its.it.engine->cancel(its.model, 0));
        else
            weir_cores_give(here);
        pthread_join(it.thread, NULL);
        assert_int_equal(it.status, cancelled ? WEIR_ERR_CANCELLED : WEIR_OK);
        if (cancelled)
            weir_cores_give(here);
        assert_int_equal(totals().leased, 0);
        assert_int_equal(totals().waiting, 0);
    }
    weir_cores_close(here);
    fixture_close(&its);
}

int main(void)
{
    model_shape shape = {.layers = 2, .width = 64, .heads = 4, .heads_kv = 2, .wide = 128, .context = CONTEXT};
    snprintf(path, sizeof path, "/tmp/weir-gguf-cores-%d.gguf", (int)getpid());
    write_llama(path, &shape);
    snprintf(bert_path, sizeof bert_path, "%s-bert", path);
    write_bert(bert_path, &small_shape);
    for (int i = 0; i < LENGTH; i++)
        prompt[i] = i == 0 ? 1 : 260 + i * 5 % 26;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_at_once_answer_within_the_cores),
        cmocka_unit_test(test_a_model_alone_has_all_or_its_threads),
        cmocka_unit_test(test_a_run_that_waits_for_cores_can_be_cancelled),
        cmocka_unit_test(test_a_reader_holds_no_cores_up),
        cmocka_unit_test(test_a_run_that_fails_gives_its_cores_back),
        cmocka_unit_test(test_texts_that_are_embedded_give_their_cores_back),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    unlink(bert_path);
    return failed;
}
