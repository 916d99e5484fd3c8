/* starved.c: each piece of host memory that the plug-in itself asks for in a load and in a run is refused in turn: it is said, nothing
 * is left, and the next one works. What llama.cpp asks for is its own. */
#include "common.h"
#include "starve.h"

#include <unistd.h>

enum { PROMPT = 6, MOST = 1000, MOST_STATE = 1 << 20 };

static char llama_path[64], bert_path[64];
static const weir_setting load[] = {{"threads", "1"}, {"context", "256"}, {"sequences", "2"}, {"stop", "never"}};
static int32_t prompt[PROMPT] = {1, 260, 263, 266, 269, 272};

static int begin(void **state)
{
    (void)state;
    the_engine();
    starve_open("weir-engine-gguf.so");
    return 0;
}

/* For want of memory, or it was something that can be done without. */
static bool is_said(weir_status status, long at)
{
    if (status == WEIR_OK)
        return false;
    if (status != WEIR_ERR_SYSTEM || !strstr(weir_detail(), "memory"))
        print_error("request %ld: %s: %s\n", at, weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
    assert_int_equal(status, WEIR_ERR_SYSTEM);
    assert_non_null(strstr(weir_detail(), "memory"));
    return true;
}

/* The files are written just now, so that they are read each time. */
static void each_request_of_a_load(const char *path, const weir_setting *settings, size_t count, int least)
{
    bench it = bench_open(path, 1ull << 30);
    int said = 0;
    for (long at = 0; at < MOST; at++) {
        weir_engine_model *model = NULL;
        starve_at(at);
        weir_status status = bench_load(&it, settings, count, &model);
        bool was = starve_was();
        starve_at(-1);
        if (!was)
            OK(status);
        if (is_said(status, at)) {
            said++;
            assert_null(model);
        } else {
            it.engine->unload(model);
        }
        assert_int_equal(stats_of(&it).live, 0);
        if (!was)
            break;
    }
    print_message("%d requests of a load were refused, and it with them\n", said);
    assert_true(said >= least);
    bench_close(&it);
}

static void test_each_request_of_a_load(void **state)
{
    (void)state;
    static const weir_setting whole[] = {{"threads", "1"}, {"context", "256"}, {"cache_memory", "whole"}};
    each_request_of_a_load(llama_path, load, 4, 12);
    each_request_of_a_load(llama_path, whole, 3, 12);
    each_request_of_a_load(bert_path, NULL, 0, 8);
}

typedef struct question {
    const char *name, *text; /* NULL: the tokens */
    weir_setting settings[5];
    size_t count;
    bool embeds;
} question;

#define GREEDY                                                                                                         \
    {"tokens", "3"},                                                                                                   \
    {                                                                                                                  \
        "temperature", "0"                                                                                             \
    }

static const question questions[] = {
    {NULL, NULL, {GREEDY}, 2, false},
    {"text", "a cab", {GREEDY, {"stop", "x"}, {"logprobs", "2"}, {"logits", "1"}}, 5, false},
    {"text", "a cab", {GREEDY, {"chat", "1"}, {"chat_template", "chatml"}}, 4, false},
    {"messages", "user 2\nhi\n", {GREEDY, {"chat_template", "chatml"}}, 3, false},
    {NULL, NULL, {GREEDY, {"state", "1"}, {"logit_bias", "260:1"}}, 4, false},
    {NULL, NULL, {GREEDY, {"grammar", "root ::= (\"a\" | \"b\")+"}, {"dry_multiplier", "1"}}, 4, false},
    {"text", "a cab\nbed", {{0}}, 0, true},
    {NULL, NULL, {{0}}, 0, true},
};

static weir_status ask(const fixture *its, const question *what, const weir_tensor *input, unsigned char *made,
                       size_t *made_bytes)
{
    weir_outputs outputs;
    weir_status status = infer(its, input, what->settings, what->count, &outputs);
    if (status != WEIR_OK)
        return status;
    const weir_tensor *out = output_named(&outputs, what->embeds ? "embeddings" : "tokens");
    *made_bytes = out->bytes;
    memcpy(made, out->data, out->bytes < 1024 ? out->bytes : 1024);
    release(its, &outputs);
    return WEIR_OK;
}

static void each_request_of_a_run(const fixture *its, const question *what, const weir_tensor *input)
{
    unsigned char expected[1024] = {0}, made[1024] = {0};
    size_t expected_bytes = 0, made_bytes = 0;
    uint64_t before;
    int said = 0;
    OK(ask(its, what, input, expected, &expected_bytes));
    before = stats_of(&its->it).live_class[WEIR_CLASS_WEIGHTS];
    for (long at = 0; at < MOST; at++) {
        starve_at(at);
        weir_status status = ask(its, what, input, made, &made_bytes);
        bool was = starve_was();
        starve_at(-1);
        said += is_said(status, at);
        if (status == WEIR_OK) {
            assert_int_equal(made_bytes, expected_bytes);
            assert_memory_equal(made, expected, sizeof expected);
        }
        assert_int_equal(stats_of(&its->it).live_class[WEIR_CLASS_WEIGHTS], before);
        if (!was)
            break;
    }
    assert_true(said >= 4);
    OK(ask(its, what, input, made, &made_bytes));
    assert_memory_equal(made, expected, sizeof expected);
}

static void test_each_request_of_a_run(void **state)
{
    (void)state;
    for (int bert = 0; bert < 2; bert++) {
        fixture its = bert ? fixture_open(bert_path, NULL, 0) : fixture_open(llama_path, load, 4);
        for (size_t q = 0; q < sizeof questions / sizeof *questions; q++) {
            const question *it = &questions[q];
            weir_tensor input = it->name ? text_input(it->text) : token_input(prompt, 0, bert ? 1 : PROMPT);
            if (it->embeds != bert)
                continue;
            if (it->name)
                input.name = it->name;
            each_request_of_a_run(&its, it, &input);
        }
        fixture_close(&its);
    }
}

/* A saved state with a text behind it. */
static void test_each_request_of_a_run_that_goes_on(void **state)
{
    (void)state;
    static const weir_setting settings[] = {GREEDY, {"state", "1"}};
    static unsigned char saved[MOST_STATE];
    fixture its = fixture_open(llama_path, load, 4);
    weir_tensor tokens = token_input(prompt, 0, PROMPT);
    weir_outputs outputs;
    OK(infer(&its, &tokens, settings, 3, &outputs));
    const weir_tensor *out = output_named(&outputs, "state");
    assert_true(out->bytes <= sizeof saved);
    memcpy(saved, out->data, out->bytes);
    weir_tensor inputs[] = {text_input("bed"), text_input("")};
    inputs[1].name = "state";
    inputs[1].type = WEIR_TYPE_U8;
    inputs[1].data = saved;
    inputs[1].bytes = out->bytes;
    inputs[1].shape[0] = (int64_t)out->bytes;
    release(&its, &outputs);
    weir_inference inference = inference_of(inputs, settings, 3);
    inference.input_count = 2;
    int said = 0;
    for (long at = 0; at < MOST; at++) {
        outputs = (weir_outputs){.struct_size = sizeof outputs};
        starve_at(at);
        weir_status status = its.it.engine->infer(its.model, &inference, &outputs);
        bool was = starve_was();
        starve_at(-1);
        said += is_said(status, at);
        if (status == WEIR_OK)
            release(&its, &outputs);
        if (!was)
            break;
    }
    assert_true(said >= 6);
    fixture_close(&its);
}

int main(void)
{
    snprintf(llama_path, sizeof llama_path, "/tmp/weir-starved-%d-l.gguf", (int)getpid());
    snprintf(bert_path, sizeof bert_path, "/tmp/weir-starved-%d-b.gguf", (int)getpid());
    write_llama(llama_path, &small_shape);
    write_bert(bert_path, &small_shape);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_request_of_a_load),
        cmocka_unit_test(test_each_request_of_a_run),
        cmocka_unit_test(test_each_request_of_a_run_that_goes_on),
    };
    int failed = cmocka_run_group_tests(tests, begin, NULL);
    unlink(llama_path);
    unlink(bert_path);
    return failed;
}
