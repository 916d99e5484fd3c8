/* several.c: two and three of everything at once: runs with one number, sequences whose states are saved and put back
 * together, inputs in larger structures, and contexts that are full to their last place. */
#include "common.h"
#include <weir/engine.h>
#include "plain.h"
#include "text/meetings.h"

#include <pthread.h>
#include <unistd.h>

enum {
    RUNS = 3,
    MADE = 16,
    BATCH = 32,
    CONTEXT = 256,
    STATE = 160 * 1024,
    VOCABULARY = 286,
    END = 2 /* the vocabulary's end token */
};

static char path[64];
static const weir_setting three[] = {{"threads", "1"}, {"batch", "32"}, {"context", "256"}, {"sequences", "3"}};
static const int lengths[RUNS] = {5, 40, 23}; /* some longer than a step's room */
static int32_t prompts[RUNS][CONTEXT], expected[RUNS][MADE];

static void fill_prompts(void)
{
    for (int which = 0; which < RUNS; which++)
        for (int i = 0; i < CONTEXT; i++)
            prompts[which][i] = i == 0 ? 1 : 260 + (i * (3 + 2 * which) + which) % 26;
}

static void learn_what_llama_says(const weir_engine *engine)
{
    plain it = plain_of(engine);
    plain_open(&it, path, false, CONTEXT, BATCH, 1);
    for (int i = 0; i < RUNS; i++)
        plain_greedy(&it, prompts[i], lengths[i], BATCH, END, expected[i], MADE);
    plain_close(&it);
}

/* ---- runs that are held at once ---------------------------------------------------------------------------------- */

typedef struct asker {
    const fixture *its;
    uint64_t id;
    weir_tensor inputs[2];
    size_t input_count;
    char tokens[8], stop[64];
    gate *gate;    /* its first piece is held there */
    uint64_t most; /* it wants no more at this piece; 0: all */
    pthread_t thread;

    weir_status status;
    char detail[256], finish[16];
    int32_t made[CONTEXT], stands[2 * CONTEXT];
    size_t made_count, stands_count, piece_count;
    char text[64]; /* of its first pieces */
    float logits[VOCABULARY];
    uint8_t saved[STATE];
    size_t saved_bytes;
} asker;

static bool on_piece(const weir_piece *piece, void *user)
{
    asker *it = user;
    size_t used = strlen(it->text);
    it->piece_count++;
    snprintf(it->text + used, sizeof it->text - used, "%.*s", (int)piece->bytes, piece->text);
    if (it->gate && piece->index == 0)
        pass(it->gate);
    return it->piece_count != it->most;
}

static void keep_results(asker *it, weir_outputs *outputs)
{
    const weir_tensor *made = output_named(outputs, "tokens"), *finish = output_named(outputs, "finish_reason");
    const weir_tensor *saved = output_named(outputs, "state"), *stands = output_named(outputs, "state_tokens");
    it->made_count = made->bytes / sizeof *it->made;
    if (made->bytes)
        memcpy(it->made, made->data, made->bytes);
    it->stands_count = stands->bytes / sizeof *it->stands;
    memcpy(it->stands, stands->data, stands->bytes);
    snprintf(it->finish, sizeof it->finish, "%.*s", (int)finish->bytes, (const char *)finish->data);
    memcpy(it->logits, output_named(outputs, "logits")->data, sizeof it->logits);
    it->saved_bytes = saved->bytes;
    memcpy(it->saved, saved->data, saved->bytes <= sizeof it->saved ? saved->bytes : 0);
}

/* With a state it goes on only when its reader has what there is, so that one that is held has its sequence. */
static void *ask(void *user)
{
    asker *it = user;
    const weir_setting settings[] = {{"tokens", it->tokens}, {"ignore_eos", "1"}, {"temperature", "0"},
                                     {"state", "1"},         {"logits", "1"},     {"stop", it->stop}};
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(it->inputs, settings, it->stop[0] ? 6 : 5);
    inference.input_count = it->input_count;
    inference.id = it->id;
    it->status = it->its->it.engine->infer_stream(it->its->model, &inference, on_piece, it, &outputs);
    if (it->status != WEIR_OK) {
        snprintf(it->detail, sizeof it->detail, "%s", weir_detail());
        if (it->gate && it->piece_count == 0)
            miss(it->gate);
        return NULL;
    }
    keep_results(it, &outputs);
    release(it->its, &outputs);
    return NULL;
}

static asker asker_of(const fixture *its, int which, int tokens)
{
    asker it = {.its = its, .id = 10 + (uint64_t)which, .input_count = 1};
    it.inputs[0] = token_input(prompts[which], 0, lengths[which]);
    snprintf(it.tokens, sizeof it.tokens, "%d", tokens);
    return it;
}

static weir_tensor state_of(const asker *from)
{
    return (weir_tensor){.struct_size = sizeof(weir_tensor),
                         .name = "state",
                         .type = WEIR_TYPE_U8,
                         .rank = 1,
                         .shape = {(int64_t)from->saved_bytes},
                         .data = (void *)from->saved,
                         .bytes = from->saved_bytes};
}

static void start(asker *it)
{
    assert_int_equal(pthread_create(&it->thread, NULL, ask, it), 0);
}

/* All are held in their first piece, in this order, so that each has a sequence of its own. */
static void start_in_order(asker *all, gate *at)
{
    for (int i = 0; i < RUNS; i++) {
        all[i].gate = at;
        start(&all[i]);
        wait_for(at, i + 1);
    }
}

static void join_all(asker *all)
{
    for (int i = 0; i < RUNS; i++)
        pthread_join(all[i].thread, NULL);
}

static void is_what_llama_says(const asker *it, int which, int from, int count)
{
    if (it->status != WEIR_OK)
        print_error("run %d: %s\n", which, it->detail);
    assert_int_equal(it->status, WEIR_OK);
    assert_int_equal(it->made_count, count);
    assert_memory_equal(it->made, expected[which] + from, (size_t)count * sizeof *it->made);
}

/* ---- cancels ----------------------------------------------------------------------------------------------------- */

/* Once: by the number that means all, and by a number that two of the three have. */
static void test_a_cancel_finds_every_run_that_it_means(void **state)
{
    (void)state;
    fixture its = fixture_open(path, three, 4);
    learn_what_llama_says(its.it.engine);
    for (int meant = 0; meant < 4; meant++) { /* 3: all; otherwise all but the run of that number */
        gate held = GATE;
        asker all[RUNS];
        for (int i = 0; i < RUNS; i++) {
            all[i] = asker_of(&its, i, MADE);
            all[i].id = i == meant ? 8 : 7;
        }
        start_in_order(all, &held);
        weir_status found = its.it.engine->cancel(its.model, meant == 3 ? 0 : 7);
        open_gate(&held);
        join_all(all);
        OK(found);
        for (int i = 0; i < RUNS; i++) {
            if (i == meant) {
                is_what_llama_says(&all[i], i, 0, MADE);
                assert_string_equal(all[i].finish, "length");
                continue;
            }
            assert_int_equal(all[i].status, WEIR_ERR_CANCELLED);
            assert_string_equal(all[i].detail, "the run was cancelled");
            assert_int_equal(all[i].piece_count, 1);
        }
    }
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(its.it.engine->metrics(its.model, &metrics));
    assert_int_equal(metrics.cancelled, 3 * 2 + 3);
    assert_int_equal(metrics.runs, 3);
    assert_int_equal(metrics.failures, 0);
    assert_int_equal(its.it.engine->cancel(its.model, 7), WEIR_ERR_NOT_FOUND);
    fixture_close(&its);
}

/* A reader that says so at the last piece has all of it. */
static void test_a_reader_that_wants_no_more_at_the_end_has_all(void **state)
{
    (void)state;
    fixture its = fixture_open(path, three, 4);
    learn_what_llama_says(its.it.engine);
    for (int before = 0; before < 3; before++) {
        asker it = asker_of(&its, 1, MADE);
        it.most = MADE - (uint64_t)before;
        ask(&it);
        is_what_llama_says(&it, 1, 0, MADE - before);
        assert_string_equal(it.finish, before ? "cancelled" : "length");
        assert_int_equal(it.stands_count, lengths[1] + MADE - before);
    }
    fixture_close(&its);
}

/* While two are held the first one ends, and another one gets its sequence; the results are of each one's own last piece. */
static void test_a_run_gets_the_sequence_that_is_free(void **state)
{
    (void)state;
    fixture its = fixture_open(path, three, 4);
    learn_what_llama_says(its.it.engine);
    for (int ends = 0; ends < RUNS; ends++) {
        gate at[RUNS] = {GATE, GATE, GATE};
        asker all[RUNS], last = asker_of(&its, ends, MADE), alone[RUNS];
        for (int i = 0; i < RUNS; i++) {
            alone[i] = asker_of(&its, i, 1);
            ask(&alone[i]);
            all[i] = asker_of(&its, i, MADE);
            all[i].gate = &at[i];
            all[i].most = i == (ends + 1) % RUNS; /* wants no more when it is let go; the others want all */
            start(&all[i]);
            wait_for(&at[i], 1);
        }
        open_gate(&at[ends]);
        pthread_join(all[ends].thread, NULL);
        ask(&last);
        for (int i = 0; i < RUNS; i++)
            if (i != ends) {
                open_gate(&at[i]);
                pthread_join(all[i].thread, NULL);
            }
        is_what_llama_says(&last, ends, 0, MADE);
        for (int i = 0; i < RUNS; i++) {
            is_what_llama_says(&all[i], i, 0, all[i].most ? 1 : MADE);
            if (!all[i].most)
                continue;
            assert_string_equal(all[i].finish, "cancelled");
            assert_int_equal(all[i].stands_count, lengths[i] + 1);
            assert_memory_equal(all[i].logits, alone[i].logits, sizeof all[i].logits);
        }
    }
    fixture_close(&its);
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

/* Three texts of different lengths in three sequences; each goes on in another sequence than the one that it was saved from. */
static void test_states_of_three_sequences_go_on_in_others(void **state)
{
    (void)state;
    enum { HALF = MADE / 2 };
    fixture its = fixture_open(path, three, 4);
    learn_what_llama_says(its.it.engine);
    for (int turn = 0; turn < RUNS; turn++) {
        gate held = GATE, again = GATE;
        asker first[RUNS], then[RUNS];
        for (int i = 0; i < RUNS; i++)
            first[i] = asker_of(&its, i, HALF);
        start_in_order(first, &held);
        open_gate(&held);
        join_all(first);
        for (int i = 0; i < RUNS; i++) {
            is_what_llama_says(&first[i], i, 0, HALF);
            assert_int_equal(first[i].stands_count, lengths[i] + HALF);
            assert_memory_equal(first[i].stands, prompts[i], (size_t)lengths[i] * sizeof *prompts[i]);
            assert_memory_equal(first[i].stands + lengths[i], expected[i], HALF * sizeof *expected[i]);
        }
        for (int i = 0; i < RUNS; i++) {
            int which = (i + turn) % RUNS;
            then[i] = asker_of(&its, which, MADE - HALF);
            then[i].inputs[0] = state_of(&first[which]);
        }
        start_in_order(then, &again);
        open_gate(&again);
        join_all(then);
        for (int i = 0; i < RUNS; i++) {
            int which = (i + turn) % RUNS;
            is_what_llama_says(&then[i], which, HALF, MADE - HALF);
            assert_int_equal(then[i].stands_count, lengths[which] + MADE);
            assert_memory_equal(then[i].stands + lengths[which], expected[which], sizeof expected[which]);
        }
    }
    fixture_close(&its);
}

/* Several pieces come at once, as those before might have begun a stop word; of its reader's the state has what it took. */
static void test_a_state_has_what_its_reader_took_of_several_pieces(void **state)
{
    (void)state;
    enum { MOST_HELD = 4 };
    fixture its = fixture_open(path, three, 4);
    learn_what_llama_says(its.it.engine);
    for (int i = 0; i < RUNS; i++) {
        asker all = asker_of(&its, i, MADE);
        ask(&all);
        assert_true(strlen(all.text) >= MOST_HELD);
        for (int begins = 1; begins <= MOST_HELD; begins++)
            for (int takes = 1; takes <= begins; takes++) {
                asker some = asker_of(&its, i, MADE), then = asker_of(&its, i, MADE - takes);
                for (int k = 0; k < begins; k++) {
                    const char *one = all.text[k] == '\\' ? "\\\\" : all.text[k] == '\n' ? "\\n" : NULL;
                    size_t used = strlen(some.stop);
                    snprintf(some.stop + used, sizeof some.stop - used, "%.*s", one ? 2 : 1, one ? one : &all.text[k]);
                }
                strcat(some.stop, "<never>");
                some.most = (uint64_t)takes;
                ask(&some);
                is_what_llama_says(&some, i, 0, takes);
                assert_int_equal(some.stands_count, lengths[i] + takes);
                assert_string_equal(some.finish, "cancelled");
                then.inputs[0] = state_of(&some);
                ask(&then);
                is_what_llama_says(&then, i, takes, MADE - takes);
            }
    }
    fixture_close(&its);
}

/* A state without a token to go on with, and as long as the context. */
static void test_a_context_may_be_full_to_its_last_place(void **state)
{
    (void)state;
    int32_t next[2];
    fixture its = fixture_open(path, three, 4);
    plain other = plain_of(its.it.engine);
    plain_open(&other, path, false, CONTEXT, BATCH, 1);
    plain_greedy(&other, prompts[2], CONTEXT, BATCH, END, next, 1);
    plain_close(&other);
    asker whole = asker_of(&its, 2, 0), more = asker_of(&its, 2, 1), past = asker_of(&its, 2, 2);
    whole.inputs[0] = token_input(prompts[2], 0, CONTEXT);
    ask(&whole);
    assert_int_equal(whole.status, WEIR_OK);
    assert_int_equal(whole.made_count, 0);
    assert_int_equal(whole.stands_count, CONTEXT);
    more.inputs[0] = past.inputs[0] = state_of(&whole);
    ask(&more);
    if (more.status != WEIR_OK)
        print_error("%s\n", more.detail);
    assert_int_equal(more.status, WEIR_OK);
    assert_int_equal(more.made_count, 1);
    assert_int_equal(more.made[0], next[0]);
    ask(&past);
    assert_int_equal(past.status, WEIR_ERR_INVALID);
    assert_non_null(strstr(past.detail, "256 tokens and 2 new ones do not fit into the context of 256"));
    fixture_close(&its);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* As a program has them whose header is newer: each structure has more behind it. */
typedef struct newer_tensor {
    weir_tensor known;
    uint64_t unknown[3];
} newer_tensor;

static void test_inputs_are_as_far_apart_as_their_size(void **state)
{
    (void)state;
    enum { HALF = MADE / 2 };
    static const weir_setting settings[] = {{"tokens", "8"}, {"ignore_eos", "1"}, {"temperature", "0"}};
    fixture its = fixture_open(path, three, 4);
    learn_what_llama_says(its.it.engine);
    asker first = asker_of(&its, 1, 0);
    ask(&first);
    assert_int_equal(first.status, WEIR_OK);
    for (int order = 0; order < 2; order++) {
        newer_tensor both[2];
        weir_outputs outputs = WEIR_INIT(weir_outputs);
        memset(both, 0x5a, sizeof both);
        both[order].known = state_of(&first);
        both[!order].known = token_input(expected[1], 0, HALF);
        both[0].known.struct_size = both[1].known.struct_size = sizeof both[0];
        weir_inference inference = inference_of(&both[0].known, settings, 3);
        inference.input_count = 2;
        OK(its.it.engine->infer(its.model, &inference, &outputs));
        const weir_tensor *made = output_named(&outputs, "tokens");
        assert_int_equal(made->bytes, HALF * sizeof(int32_t));
        assert_memory_equal(made->data, expected[1] + HALF, made->bytes);
        release(&its, &outputs);
    }
    fixture_close(&its);
}

static void refused(const fixture *its, const weir_tensor *inputs, size_t count, const char *words)
{
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(inputs, NULL, 0);
    inference.input_count = count;
    assert_int_equal(its->it.engine->infer(its->model, &inference, &outputs), WEIR_ERR_INVALID);
    if (!strstr(weir_detail(), words))
        print_error("'%s' is not in: %s\n", words, weir_detail());
    assert_non_null(strstr(weir_detail(), words));
}

static void test_prompts_that_are_more_than_one_are_refused(void **state)
{
    (void)state;
    fixture its = fixture_open(path, three, 4);
    weir_tensor text = text_input("hello"), chat = text_input("user\nhello"), tokens = token_input(prompts[0], 0, 5);
    chat.name = "messages";
    refused(&its, (weir_tensor[]){text, text}, 2, "the input 'text' is there twice");
    refused(&its, (weir_tensor[]){tokens, tokens}, 2, "the input 'tokens' is there twice");
    refused(&its, (weir_tensor[]){chat, text, chat}, 3, "the input 'messages' is there twice");
    refused(&its, (weir_tensor[]){text, chat}, 2, "there are 2");
    refused(&its, (weir_tensor[]){chat, tokens}, 2, "there are 2");
    refused(&its, (weir_tensor[]){tokens, text}, 2, "there are 2");
    refused(&its, (weir_tensor[]){tokens, text, chat}, 3, "there are 3");
    fixture_close(&its);
}

/* As many as there are, and no more. */
static void test_all_tokens_of_the_vocabulary_may_be_asked_for(void **state)
{
    (void)state;
    const weir_setting all[] = {{"tokens", "2"}, {"temperature", "0"}, {"ignore_eos", "1"}, {"logprobs", "286"}};
    const weir_setting past[] = {{"tokens", "2"}, {"temperature", "0"}, {"ignore_eos", "1"}, {"logprobs", "287"}};
    fixture its = fixture_open(path, three, 4);
    weir_tensor input = token_input(prompts[0], 0, lengths[0]);
    weir_outputs outputs;
    bool seen[2][VOCABULARY] = {{false}};
    OK(infer(&its, &input, all, 4, &outputs));
    const weir_tensor *top = output_named(&outputs, "top_tokens");
    assert_int_equal(top->bytes, 2 * VOCABULARY * sizeof(int32_t));
    for (int i = 0; i < 2 * VOCABULARY; i++) {
        uint32_t token = ((const uint32_t *)top->data)[i];
        assert_true(token < VOCABULARY && !seen[i / VOCABULARY][token]);
        seen[i / VOCABULARY][token] = true;
    }
    release(&its, &outputs);
    assert_int_equal(infer(&its, &input, past, 4, &outputs), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "'logprobs' is 287, and the vocabulary has 286 tokens"));
    fixture_close(&its);
}

int main(void)
{
    model_shape shape = {.layers = 2, .width = 64, .heads = 4, .heads_kv = 2, .wide = 128, .context = CONTEXT};
    snprintf(path, sizeof path, "/tmp/weir-several-%d.gguf", (int)getpid());
    write_llama(path, &shape);
    fill_prompts();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cancel_finds_every_run_that_it_means),
        cmocka_unit_test(test_a_reader_that_wants_no_more_at_the_end_has_all),
        cmocka_unit_test(test_a_run_gets_the_sequence_that_is_free),
        cmocka_unit_test(test_states_of_three_sequences_go_on_in_others),
        cmocka_unit_test(test_a_state_has_what_its_reader_took_of_several_pieces),
        cmocka_unit_test(test_a_context_may_be_full_to_its_last_place),
        cmocka_unit_test(test_all_tokens_of_the_vocabulary_may_be_asked_for),
        cmocka_unit_test(test_inputs_are_as_far_apart_as_their_size),
        cmocka_unit_test(test_prompts_that_are_more_than_one_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
