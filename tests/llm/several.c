/* several.c: two and three of everything at once: runs with one number, inputs in larger structures, messages, end tokens and
 * settings of which the last counts as the first does. */
#include "answer.h"
#include "folders.h"
#include "text/meetings.h"

#include <weir/adaptor.h>

#include <pthread.h>
#include <stdatomic.h>

enum { RUNS = 3, MADE = 12, PROMPT = 9 };

static const char *const kinds_of_load[] = {"1", "3"}; /* sequences: runs take turns, and are decoded together */

/* ---- runs on threads of their own -------------------------------------------------------------------------------- */

typedef struct asker {
    const bench *it;
    uint64_t id;
    int32_t prompt[PROMPT];
    weir_tensor input;
    const char *tokens;
    gate *gate;  /* its first piece is held there */
    size_t most; /* it wants no more at this piece; 0: all */
    pthread_t thread;
    atomic_long number; /* of the thread */

    weir_status status;
    char detail[256], finish[16];
    int32_t made[MADE];
    size_t made_count, piece_count;
} asker;

static bool on_piece(const weir_piece *piece, void *user)
{
    asker *it = user;
    it->piece_count++;
    if (it->gate && piece->index == 0)
        pass(it->gate);
    return it->piece_count != it->most;
}

static void *ask(void *user)
{
    asker *it = user;
    const weir_setting settings[] = {GREEDY(it->tokens), {"ignore_eos", "1"}};
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(&it->input, settings, 3);
    inference.id = it->id;
    atomic_store(&it->number, (long)syscall(SYS_gettid));
    it->status = it->it->engine->infer_stream(it->it->model, &inference, on_piece, it, &outputs);
    if (it->status != WEIR_OK) {
        snprintf(it->detail, sizeof it->detail, "%s", weir_detail());
        if (it->gate && it->piece_count == 0)
            miss(it->gate);
        return NULL;
    }
    const weir_tensor *tokens = find_output(&outputs, "tokens"), *finish = find_output(&outputs, "finish_reason");
    it->made_count = tokens->bytes / sizeof *it->made;
    memcpy(it->made, tokens->data, tokens->bytes <= sizeof it->made ? tokens->bytes : 0);
    snprintf(it->finish, sizeof it->finish, "%.*s", (int)finish->bytes, (const char *)finish->data);
    release(it->it, &outputs);
    return NULL;
}

static void asker_make(asker *to, const bench *it, int which)
{
    *to = (asker){.it = it, .id = 10 + (uint64_t)which, .tokens = "12"};
    fill_prompt(to->prompt, PROMPT, which);
    to->input = token_input(to->prompt, PROMPT);
}

static void start(asker *it)
{
    assert_int_equal(pthread_create(&it->thread, NULL, ask, it), 0);
}

/* ---- cancels ----------------------------------------------------------------------------------------------------- */

/* Once: by the number that means all, and by a number that two of the three have. One is with its reader, two wait for
 * their turn. */
static void test_a_cancel_finds_every_run_that_it_means(void **state)
{
    (void)state;
    bench it = bench_open(the_model(SHARED));
    asker alone;
    asker_make(&alone, &it, 0);
    ask(&alone);
    assert_int_equal(alone.status, WEIR_OK);
    for (int meant = 0; meant < 4; meant++) { /* 3: all; otherwise all but the run of that place */
        gate held = GATE;
        asker all[RUNS];
        for (int i = 0; i < RUNS; i++) {
            asker_make(&all[i], &it, 0);
            all[i].id = i == meant ? 8 : 7;
            all[i].gate = i == 0 ? &held : NULL;
            start(&all[i]);
            if (i == 0)
                wait_for(&held, 1);
            else
                until_asleep(&all[i].number);
        }
        weir_status found = it.engine->cancel(it.model, meant == 3 ? 0 : 7);
        open_gate(&held);
        for (int i = 0; i < RUNS; i++)
            pthread_join(all[i].thread, NULL);
        OK(found);
        for (int i = 0; i < RUNS; i++) {
            if (i == meant) {
                assert_int_equal(all[i].status, WEIR_OK);
                assert_int_equal(all[i].made_count, MADE);
                assert_memory_equal(all[i].made, alone.made, sizeof alone.made);
                continue;
            }
            assert_int_equal(all[i].status, WEIR_ERR_CANCELLED);
            assert_int_equal(all[i].piece_count, i == 0);
            assert_words(all[i].detail, i == 0 ? "the run was cancelled" : "before it began");
        }
    }
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    OK(it.engine->metrics(it.model, &metrics));
    assert_int_equal(metrics.cancelled, 3 * 2 + 3);
    assert_int_equal(metrics.runs, 1 + 3);
    assert_int_equal(metrics.failures, 0);
    assert_int_equal(it.engine->cancel(it.model, 7), WEIR_ERR_NOT_FOUND);
    bench_close(&it);
}

/* ---- the engine's thread, held where it asks for memory ---------------------------------------------------------- */

enum { ENOUGH = 60 /* requests, which are several steps of runs together */ };

static atomic_bool watching;
static atomic_long asked, holds_at; /* the request at which it is held; 0: none */
static gate *holds;

static weir_status before_allocate(void *state, const weir_adaptor_block *block)
{
    (void)state, (void)block;
    if (atomic_load(&watching) && atomic_fetch_add(&asked, 1) + 1 == atomic_load(&holds_at))
        pass(holds);
    return WEIR_OK;
}

/* It goes on for so many requests, and is held again. */
static void hold_after(gate *at, gate *before, long count)
{
    holds = at;
    atomic_store(&holds_at, atomic_load(&asked) + count);
    atomic_store(&watching, true);
    if (before)
        open_gate(before);
}

static bool returns(pthread_t thread)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
}

/* Three are in the engine: whichever is cancelled leaves it at the next step, and the others go on. */
static void test_a_cancel_ends_any_run_among_others(void **state)
{
    (void)state;
    const weir_adaptor_table table = {.struct_size = sizeof table, .name = "held", .before_allocate = before_allocate};
    const weir_setting load[] = {{"threads", "1"}, {"sequences", "3"}};
    OK(weir_adaptor_register(&table));
    bench it = bench_on(the_model(SHARED), 1ull << 28, "held(budget(cache))");
    OK(bench_load(&it, load, 2));
    for (int victim = 0; victim < RUNS; victim++) {
        gate first = GATE, second = GATE, third = GATE;
        asker all[RUNS];
        atomic_store(&asked, 0);
        hold_after(&first, NULL, 1);
        for (int i = 0; i < RUNS; i++) {
            asker_make(&all[i], &it, i);
            all[i].tokens = "200";
            start(&all[i]);
            if (i == 0)
                wait_for(&first, 1);
            else
                until_asleep(&all[i].number);
        }
        hold_after(&second, &first, ENOUGH);
        wait_for(&second, 1);
        weir_status found = it.engine->cancel(it.model, all[victim].id);
        hold_after(&third, &second, ENOUGH);
        bool left = returns(all[victim].thread);
        atomic_store(&watching, false);
        open_gate(&third);
        for (int i = 0; i < RUNS; i++)
            if (i != victim || !left)
                pthread_join(all[i].thread, NULL);
        OK(found);
        assert_true(left);
        for (int i = 0; i < RUNS; i++) {
            assert_int_equal(all[i].status, i == victim ? WEIR_ERR_CANCELLED : WEIR_OK);
            assert_int_equal(all[i].piece_count == 200, i != victim);
        }
    }
    bench_close(&it);
}

/* A reader that says so at the last piece has all of it. */
static void test_a_reader_that_wants_no_more_at_the_end_has_all(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds_of_load / sizeof *kinds_of_load; k++) {
        const weir_setting load[] = {{"threads", "1"}, {"sequences", kinds_of_load[k]}};
        bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
        OK(bench_load(&it, load, 2));
        for (size_t before = 0; before < 3; before++) {
            asker one;
            asker_make(&one, &it, 1);
            one.most = MADE - before;
            ask(&one);
            assert_int_equal(one.status, WEIR_OK);
            assert_int_equal(one.made_count, MADE - before);
            assert_int_equal(one.piece_count, MADE - before);
            assert_string_equal(one.finish, before ? "cancelled" : "length");
        }
        bench_close(&it);
    }
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* As a program has them whose header is newer: each structure has more behind it. */
typedef struct newer_tensor {
    weir_tensor known;
    uint64_t unknown[3];
} newer_tensor;

static void refused(const bench *it, const weir_tensor *inputs, size_t count, const char *words)
{
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_inference inference = inference_of(inputs, NULL, 0);
    inference.input_count = count;
    assert_int_equal(it->engine->infer(it->model, &inference, &outputs), WEIR_ERR_INVALID);
    assert_words(weir_detail(), words);
}

static void test_prompts_that_are_more_than_one_are_refused(void **state)
{
    (void)state;
    bench it = bench_open(the_model(SHARED));
    int32_t prompt[PROMPT];
    newer_tensor far[3];
    fill_prompt(prompt, PROMPT, 0);
    weir_tensor text = text_input("hello"), tokens = token_input(prompt, PROMPT),
                chat = bytes_input("messages", "user 2\nhi\n"), image = bytes_input("image", "hello");
    refused(&it, (weir_tensor[]){text, chat}, 2, "and there are 2");
    refused(&it, (weir_tensor[]){chat, tokens}, 2, "and there are 2");
    refused(&it, (weir_tensor[]){tokens, text, chat}, 3, "and there are 3");
    refused(&it, (weir_tensor[]){chat, text, chat}, 3, "the input 'messages' is there twice");
    refused(&it, (weir_tensor[]){tokens, tokens}, 2, "the input 'tokens' is there twice");
    memset(far, 0, sizeof far);
    far[0].known = text;
    far[1].known = chat;
    far[2].known = image;
    for (int i = 0; i < 3; i++)
        far[i].known.struct_size = sizeof far[i];
    refused(&it, &far[0].known, 2, "and there are 2");
    refused(&it, &far[0].known, 3, "this model has no input 'image'");
    bench_close(&it);
}

/* Wherever it is among the messages, it is told by its number. */
static void test_a_message_that_is_no_text_is_called_by_its_number(void **state)
{
    (void)state;
    static const char *const chats[] = {"user 1\n\xff\nuser 1\na\nuser 1\nb\n",
                                        "user 1\na\nassistant 1\n\xff\nuser 1\nb\n",
                                        "system 1\na\nuser 1\nb\nuser 1\n\xff\n"};
    bench it = bench_open(the_model(SHARED));
    for (int i = 0; i < 3; i++) {
        char words[64];
        weir_tensor chat = bytes_input("messages", chats[i]);
        snprintf(words, sizeof words, "the text of message %d is no UTF-8", i + 1);
        refused(&it, &chat, 1, words);
    }
    bench_close(&it);
}

/* ---- end tokens -------------------------------------------------------------------------------------------------- */

/* The third token that the model makes, at each of three places among its end tokens, ends a run alone and a run of
 * several. */
static void test_each_of_three_end_tokens_ends_a_text(void **state)
{
    (void)state;
    const weir_setting greedy[] = {GREEDY("12")};
    for (size_t k = 0; k < sizeof kinds_of_load / sizeof *kinds_of_load; k++) {
        const weir_setting load[] = {{"threads", "1"}, {"sequences", kinds_of_load[k]}};
        bench it = bench_open(the_model(SHARED));
        asker all;
        asker_make(&all, &it, 2);
        ask(&all);
        assert_int_equal(all.made_count, MADE);
        bench_close(&it);
        size_t first = 0;
        while (all.made[first] != all.made[2])
            first++;
        for (int place = 0; place < 3; place++) {
            char path[FOLDER_NAME], line[64];
            int ends[3] = {445, 446, 447};
            ends[place] = all.made[2];
            snprintf(line, sizeof line, "\"eos_token_id\": [%d, %d, %d]", ends[0], ends[1], ends[2]);
            folder_copy(the_model(SHARED), path);
            folder_replace(path, "genai_config.json", "\"eos_token_id\": 1", line);
            it = bench_on(path, 1ull << 30, NULL);
            OK(bench_load(&it, load, 2));
            weir_outputs outputs;
            OK(infer(&it, &all.input, greedy, 2, &outputs));
            assert_int_equal(output_named(&outputs, "tokens")->shape[0], (int64_t)first);
            assert_memory_equal(output_named(&outputs, "tokens")->data, all.made, first * sizeof *all.made);
            assert_memory_equal(output_named(&outputs, "finish_reason")->data, "stop", 4);
            release(&it, &outputs);
            bench_close(&it);
            folder_drop(path);
        }
    }
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/* Whatever is asked, the text is made of these characters, and begins with this. */
typedef struct guide {
    const char *name, *value, *begins, *characters;
} guide;

static void test_each_way_to_guide_a_run_counts(void **state)
{
    (void)state;
    static const guide guides[] = {{"json_schema", "{\"enum\":[\"memory\",\"mem\"]}", "\"mem", "\"memory"},
                                   {"regex", "ye[0-9]{5}", "ye", "ye0123456789"},
                                   {"lark", "start: \"a\" (\"b\" | \"c\")+ \"d\"", "a", "abcd"}};
    for (size_t k = 0; k < sizeof kinds_of_load / sizeof *kinds_of_load; k++) {
        const weir_setting load[] = {{"threads", "1"}, {"sequences", kinds_of_load[k]}};
        bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
        OK(bench_load(&it, load, 2));
        for (size_t i = 0; i < sizeof guides / sizeof *guides; i++) {
            const weir_setting settings[] = {GREEDY("20"), {guides[i].name, guides[i].value}};
            weir_tensor text = text_input("hello");
            weir_outputs outputs;
            char made[128];
            OK(infer(&it, &text, settings, 3, &outputs));
            const weir_tensor *out = output_named(&outputs, "text");
            snprintf(made, sizeof made, "%.*s", (int)out->bytes, (const char *)out->data);
            release(&it, &outputs);
            assert_int_equal(strncmp(made, guides[i].begins, strlen(guides[i].begins)), 0);
            assert_int_equal(strspn(made, guides[i].characters), strlen(made));
        }
        bench_close(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cancel_finds_every_run_that_it_means),
        cmocka_unit_test(test_a_cancel_ends_any_run_among_others),
        cmocka_unit_test(test_a_reader_that_wants_no_more_at_the_end_has_all),
        cmocka_unit_test(test_prompts_that_are_more_than_one_are_refused),
        cmocka_unit_test(test_a_message_that_is_no_text_is_called_by_its_number),
        cmocka_unit_test(test_each_way_to_guide_a_run_counts),
        cmocka_unit_test(test_each_of_three_end_tokens_ends_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
