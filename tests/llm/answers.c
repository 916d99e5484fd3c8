/* answers.c: what a model answers through weir is what ONNX Runtime GenAI answers without it, bit for bit: tokens, texts,
 * logits, by every way of choosing, with both kinds of cache. */
#include "answer.h"

#include <math.h>

#include "engines/text/text.h"

enum { MADE = 24 };

/* ---- the likeliest tokens ---------------------------------------------------------------------------------------- */

static const char question[] = "Once upon a time there was a cache";

static void test_the_likeliest_tokens_and_their_text(void **state)
{
    (void)state;
    const weir_setting settings[] = {GREEDY("24")};
    const char *words[] = {"text=Once upon a time there was a cache", "made=24", NULL};
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_open(the_model(which));
        answer *expected = answer_without_weir(it.engine, the_model(which), words);
        weir_tensor text = text_input(question), tokens = token_input(expected->prompt, expected->prompt_count);
        answer *got = answer_of(&it, &text, settings, 2), *again = answer_of(&it, &tokens, settings, 2);
        assert_int_equal(expected->count, MADE);
        assert_same_answer(got, expected);
        assert_same_answer(again, expected);
        assert_string_equal(got->finish, "length");
        assert_string_equal(got->stop, "");
        answer_drop(again);
        answer_drop(got);
        answer_drop(expected);
        bench_close(&it);
    }
}

/* The numbers of the model itself, before a sampler or a penalty has touched them. */
static void same_probabilities(const answer *got, const answer *expected, size_t alternatives)
{
    for (size_t i = 0; i < expected->count; i++) {
        const float *logits = expected->logits + i * VOCABULARY;
        int32_t tops[8];
        float values[8];
        double sum = 0;
        float own = wt_log_probabilities(logits, VOCABULARY, expected->tokens[i], alternatives, tops, values);
        assert_memory_equal(&got->logprobs[i], &own, sizeof own);
        assert_memory_equal(got->top_tokens + i * alternatives, tops, alternatives * sizeof *tops);
        assert_memory_equal(got->top_logprobs + i * alternatives, values, alternatives * sizeof *values);
        for (int k = 0; k < VOCABULARY; k++)
            sum += exp((double)logits[k]);
        assert_true(fabs(own - (logits[expected->tokens[i]] - log(sum))) < 1e-4);
    }
}

static void test_probabilities_and_logits_are_the_models(void **state)
{
    (void)state;
    const weir_setting settings[] = {
        {"tokens", "20"},  {"temperature", "1.5"}, {"seed", "3"},  {"repeat_penalty", "1.4"},
        {"logprobs", "5"}, {"logits", "1"},        {"top_k", "0"}, {"top_p", "1"}};
    const weir_setting none[] = {GREEDY("0"), {"logits", "1"}};
    const char *words[] = {"text=Once upon a time there was a cache",
                           "made=20",
                           "do_sample=1",
                           "temperature=1.5",
                           "random_seed=3",
                           "repetition_penalty=1.4",
                           "top_k=448",
                           "top_p=1",
                           NULL};
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_open(the_model(which));
        weir_tensor text = text_input(question);
        answer *expected = answer_without_weir(it.engine, the_model(which), words);
        answer *got = answer_of(&it, &text, settings, 8), *alone = answer_of(&it, &text, none, 3);
        assert_int_equal(expected->count, 20);
        assert_same_answer(got, expected);
        same_probabilities(got, expected, 5);
        assert_memory_equal(got->last, expected->logits + 19 * VOCABULARY, sizeof got->last);
        assert_int_equal(alone->count, 0);
        assert_memory_equal(alone->last, expected->logits, sizeof alone->last);
        answer_drop(alone);
        answer_drop(got);
        answer_drop(expected);
        bench_close(&it);
    }
}

/* ---- ways of choosing -------------------------------------------------------------------------------------------- */

typedef struct way {
    const char *name;
    weir_setting settings[6];
    size_t count;
    const char *words[8];
    bool greedy; /* chooses what is likeliest */
} way;

/* What weir's settings are by default, GenAI's are not: top_k 40, top_p 0.95. */
static const way ways[] = {
    {"usual",
     {{"temperature", "0.8"}, {"seed", "5"}},
     2,
     {"do_sample=1", "temperature=0.8", "random_seed=5", "top_k=40", "top_p=0.95"},
     false},
    {"another seed",
     {{"temperature", "0.8"}, {"seed", "6"}},
     2,
     {"do_sample=1", "temperature=0.8", "random_seed=6", "top_k=40", "top_p=0.95"},
     false},
    {"top_k",
     {{"temperature", "1"}, {"top_k", "7"}, {"top_p", "1"}},
     3,
     {"do_sample=1", "temperature=1", "random_seed=0", "top_k=7", "top_p=1"},
     false},
    {"top_p",
     {{"temperature", "1.3"}, {"top_k", "0"}, {"top_p", "0.5"}},
     3,
     {"do_sample=1", "temperature=1.3", "random_seed=0", "top_k=448", "top_p=0.5"},
     false},
    {"top_k of one", {{"temperature", "1.3"}, {"top_k", "1"}}, 2, {NULL}, true},
    {"repeat_penalty", {{"temperature", "0"}, {"repeat_penalty", "1.7"}}, 2, {"repetition_penalty=1.7"}, false},
    {"no_repeat_ngram", {{"temperature", "0"}, {"no_repeat_ngram", "1"}}, 2, {"no_repeat_ngram_size=1"}, false},
    {"json_schema",
     {{"temperature", "0"},
      {"json_schema", "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"]}"}},
     2,
     {"json_schema={\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"]}"},
     false},
    {"regex", {{"temperature", "0"}, {"regex", "(yes|no)[0-9]{3}"}}, 2, {"regex=(yes|no)[0-9]{3}"}, false},
    {"lark",
     {{"temperature", "0"}, {"lark", "start: \"a\" (\"b\" | \"c\")+ \"d\""}},
     2,
     {"lark_grammar=start: \"a\" (\"b\" | \"c\")+ \"d\""},
     false},
};

static answer *ask_plainly(const bench *it, const char *folder, const way *how)
{
    const char *words[12] = {"text=Once upon a time there was a cache", "made=24"};
    for (int i = 0; i < 8 && how->words[i]; i++)
        words[2 + i] = how->words[i];
    return answer_without_weir(it->engine, folder, words);
}

static void test_every_way_of_choosing_is_genais(void **state)
{
    (void)state;
    const weir_setting greedy[] = {GREEDY("24")};
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_open(the_model(which));
        weir_tensor text = text_input(question);
        answer *likeliest = answer_of(&it, &text, greedy, 2);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            weir_setting settings[8] = {{"tokens", "24"}};
            memcpy(settings + 1, ways[i].settings, sizeof ways[i].settings);
            answer *expected = ask_plainly(&it, the_model(which), &ways[i]);
            answer *got = answer_of(&it, &text, settings, 1 + ways[i].count);
            bool as_likeliest = got->count == likeliest->count &&
                                memcmp(got->tokens, likeliest->tokens, got->count * sizeof *got->tokens) == 0;
            if (as_likeliest != ways[i].greedy)
                print_error("%s: %s\n", model_names[which], ways[i].name);
            assert_int_equal(as_likeliest, ways[i].greedy);
            assert_same_answer(got, expected);
            answer_drop(got);
            answer_drop(expected);
        }
        answer_drop(likeliest);
        bench_close(&it);
    }
}

/* A seed begins anew with every run. */
static void test_a_seed_chooses_the_same_each_time(void **state)
{
    (void)state;
    const weir_setting settings[] = {{"tokens", "24"}, {"temperature", "1.2"}, {"seed", "9"}};
    bench it = bench_open(the_model(SHARED));
    weir_tensor text = text_input(question);
    answer *first = answer_of(&it, &text, settings, 3), *second = answer_of(&it, &text, settings, 3);
    assert_same_answer(second, first);
    answer_drop(second);
    answer_drop(first);
    bench_close(&it);
}

static void test_a_schema_leaves_only_its_texts(void **state)
{
    (void)state;
    const weir_setting schema[] = {GREEDY("40"), {"json_schema", "{\"enum\":[\"memory\",\"page\"]}"}};
    const weir_setting pattern[] = {GREEDY("40"), {"regex", "(yes|no)[0-9]{3}"}};
    bench it = bench_open(the_model(SHARED));
    weir_tensor text = text_input(question);
    answer *got = answer_of(&it, &text, schema, 3), *short_one = answer_of(&it, &text, pattern, 3);
    assert_true(strcmp(got->text, "\"memory\"") == 0 || strcmp(got->text, "\"page\"") == 0);
    assert_string_equal(got->finish, "stop");
    size_t length = strlen(short_one->text);
    assert_true(length == 5 || length == 6);
    assert_true(strncmp(short_one->text, length == 6 ? "yes" : "no", length - 3) == 0);
    assert_int_equal(strspn(short_one->text + length - 3, "0123456789"), 3);
    assert_string_equal(short_one->finish, "stop");
    answer_drop(short_one);
    answer_drop(got);
    bench_close(&it);
}

/* ---- chats ------------------------------------------------------------------------------------------------------- */

static const char list_of_messages[] =
    "messages=[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"What is a "
    "\\\"page\\\"?\\n\\tSay.\"},"
    "{\"role\":\"assistant\",\"content\":\"memory\"},{\"role\":\"user\",\"content\":\"and \\u00e4\\u20ac\"}]";
static const char messages[] =
    "system 9\nBe brief.\nuser 23\nWhat is a \"page\"?\n\tSay.\nassistant 6\nmemory\nuser 9\nand ä€\n";
static const char other_template[] =
    "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}";

static void test_messages_go_through_the_models_template_or_another(void **state)
{
    (void)state;
    char template[256];
    const weir_setting usual[] = {GREEDY("12")}, other[] = {GREEDY("12"), {"chat_template", other_template}};
    const char *own[] = {list_of_messages, "made=12", NULL};
    const char *given[] = {list_of_messages, template, "made=12", NULL};
    snprintf(template, sizeof template, "template=%s", other_template);
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_open(the_model(which));
        weir_tensor chat = bytes_input("messages", messages);
        answer *expected = answer_without_weir(it.engine, the_model(which), own);
        answer *expected_other = answer_without_weir(it.engine, the_model(which), given);
        answer *got = answer_of(&it, &chat, usual, 2), *got_other = answer_of(&it, &chat, other, 3);
        assert_same_answer(got, expected);
        assert_same_answer(got_other, expected_other);
        assert_int_not_equal(expected->prompt_count, expected_other->prompt_count);
        weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
        OK(it.engine->metrics(it.model, &metrics));
        assert_int_equal(metrics.tokens_in, expected->prompt_count + expected_other->prompt_count);
        answer_drop(got_other);
        answer_drop(got);
        answer_drop(expected_other);
        answer_drop(expected);
        bench_close(&it);
    }
}

static void test_a_text_is_a_chat_of_one_message_where_that_is_set(void **state)
{
    (void)state;
    const weir_setting chat[] = {GREEDY("12"), {"chat", "1"}};
    const char *words[] = {"messages=[{\"role\":\"user\",\"content\":\"hello\\n\"}]", "made=12", NULL};
    bench it = bench_open(the_model(SHARED));
    weir_tensor text = text_input("hello\n"), one = bytes_input("messages", "user 6\nhello\n\n");
    answer *expected = answer_without_weir(it.engine, the_model(SHARED), words);
    answer *got = answer_of(&it, &text, chat, 3), *as_messages = answer_of(&it, &one, chat, 2);
    assert_same_answer(got, expected);
    assert_same_answer(as_messages, expected);
    answer_drop(as_messages);
    answer_drop(got);
    answer_drop(expected);
    bench_close(&it);
}

/* ---- long ones --------------------------------------------------------------------------------------------------- */

/* A prompt that is read in pieces is the same prompt. */
static void test_a_prompt_that_is_computed_in_pieces(void **state)
{
    (void)state;
    const weir_setting in_pieces[] = {{"threads", "1"}, {"batch", "16"}}, settings[] = {GREEDY("40")};
    char words[2048] = "tokens=";
    const char *list[] = {words, "made=40", NULL};
    int32_t prompt[200];
    fill_prompt(prompt, 200, 1);
    for (int i = 0; i < 200; i++)
        sprintf(words + strlen(words), "%s%d", i ? "," : "", prompt[i]);
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_on(the_model(which), 1ull << 30, NULL);
        weir_tensor input = token_input(prompt, 200);
        OK(bench_load(&it, in_pieces, 2));
        answer *expected = answer_without_weir(it.engine, the_model(which), list);
        answer *got = answer_of(&it, &input, settings, 2);
        assert_int_equal(got->count, 40);
        assert_same_answer(got, expected);
        answer_drop(got);
        answer_drop(expected);
        bench_close(&it);
    }
}

/* Up to the last place; one more is refused. */
static void test_the_whole_context(void **state)
{
    (void)state;
    const weir_setting all[] = {GREEDY("56")}, more[] = {GREEDY("57")};
    char words[2048] = "tokens=";
    const char *list[] = {words, "made=56", NULL};
    int32_t prompt[200];
    fill_prompt(prompt, 200, 2);
    for (int i = 0; i < 200; i++)
        sprintf(words + strlen(words), "%s%d", i ? "," : "", prompt[i]);
    for (int which = 0; which < MODELS; which++) {
        bench it = bench_open(the_model(which));
        weir_tensor input = token_input(prompt, 200);
        weir_outputs outputs;
        answer *expected = answer_without_weir(it.engine, the_model(which), list);
        answer *got = answer_of(&it, &input, all, 2);
        assert_int_equal(got->count, 56);
        assert_same_answer(got, expected);
        assert_int_equal(infer(&it, &input, more, 2, &outputs), WEIR_ERR_INVALID);
        assert_words(weir_detail(), "a prompt of 200 tokens and 57 new ones do not fit into the context of 256");
        answer_drop(got);
        answer_drop(expected);
        bench_close(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_likeliest_tokens_and_their_text),
        cmocka_unit_test(test_probabilities_and_logits_are_the_models),
        cmocka_unit_test(test_every_way_of_choosing_is_genais),
        cmocka_unit_test(test_a_seed_chooses_the_same_each_time),
        cmocka_unit_test(test_a_schema_leaves_only_its_texts),
        cmocka_unit_test(test_messages_go_through_the_models_template_or_another),
        cmocka_unit_test(test_a_text_is_a_chat_of_one_message_where_that_is_set),
        cmocka_unit_test(test_a_prompt_that_is_computed_in_pieces),
        cmocka_unit_test(test_the_whole_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
