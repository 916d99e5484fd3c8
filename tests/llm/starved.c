/* starved.c: each piece of host memory that the plug-in itself asks for in a load and in a run is refused in turn: it is said, nothing
 * is left, and the next one works. What GenAI and ONNX Runtime ask for is theirs. */
#include "common.h"
#include "folders.h"
#include "starve.h"

enum { PROMPT = 6, MOST = 400 };

static const weir_setting loads[][3] = {{{"threads", "1"}, {"sequences", "1"}, {"stop", "never"}},
                                        {{"threads", "1"}, {"sequences", "2"}, {"stop", "never"}}};
static int32_t prompt[PROMPT];

static int begin(void **state)
{
    (void)state;
    the_engine();
    starve_open("weir-engine-llm.so");
    return 0;
}

/* For want of memory, or it was something that can be done without. */
static bool is_said(weir_status status, long at)
{
    if (status == WEIR_OK)
        return false;
    if (status != WEIR_ERR_SYSTEM)
        print_error("request %ld: %s: %s\n", at, weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
    assert_int_equal(status, WEIR_ERR_SYSTEM);
    assert_words(weir_detail(), "memory");
    return true;
}

/* The folder is written just now, so that it is read each time. */
static void test_each_request_of_a_load(void **state)
{
    (void)state;
    for (int several = 0; several < 2; several++) {
        char path[FOLDER_NAME];
        folder_copy(the_model(SHARED), path);
        bench it = bench_on(path, 1ull << 30, NULL);
        int said = 0;
        for (long at = 0; at < MOST; at++) {
            starve_at(at);
            weir_status status = bench_load(&it, loads[several], 3);
            bool was = starve_was();
            starve_at(-1);
            if (!was)
                OK(status);
            if (is_said(status, at)) {
                said++;
                assert_null(it.model);
            } else {
                bench_unload(&it);
            }
            assert_int_equal(stats_of(&it).live, 0);
            if (!was)
                break;
        }
        print_message("%d requests of a load were refused, and it with them\n", said);
        assert_true(said >= 8);
        bench_close(&it);
        folder_drop(path);
    }
}

typedef struct question {
    const char *name, *text; /* NULL: the tokens */
    weir_setting settings[4];
    size_t count;
    bool alone, reads;
} question;

static const question questions[] = {
    {NULL, NULL, {GREEDY("3")}, 2, false, false},
    {NULL, NULL, {GREEDY("3")}, 2, false, true},
    {"text", "hello", {GREEDY("3"), {"stop", "x"}}, 3, false, false},
    {"text", "hello", {GREEDY("3"), {"chat", "1"}}, 3, false, true},
    {"messages", "user 2\nhi\n", {GREEDY("3")}, 2, false, false},
    {NULL, NULL, {GREEDY("3"), {"logits", "1"}, {"logprobs", "2"}}, 4, true, false},
};

typedef struct reader {
    char text[256];
    size_t bytes;
} reader;

static bool on_piece(const weir_piece *piece, void *user)
{
    reader *it = user;
    memcpy(it->text + it->bytes, piece->text, piece->bytes);
    it->bytes += piece->bytes;
    return true;
}

/* Its reader has all of the text, where it succeeds. */
static weir_status ask(const bench *it, const question *what, int32_t *made)
{
    weir_tensor input = what->name ? bytes_input(what->name, what->text) : token_input(prompt, PROMPT);
    weir_inference inference = inference_of(&input, what->settings, what->count);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    reader all = {.bytes = 0};
    weir_status status = what->reads ? it->engine->infer_stream(it->model, &inference, on_piece, &all, &outputs)
                                     : it->engine->infer(it->model, &inference, &outputs);
    if (status != WEIR_OK)
        return status;
    const weir_tensor *tokens = output_named(&outputs, "tokens"), *text = output_named(&outputs, "text");
    memset(made, 0, 3 * sizeof *made);
    memcpy(made, tokens->data, tokens->bytes);
    if (what->reads) {
        assert_int_equal(all.bytes, text->bytes);
        assert_memory_equal(all.text, text->data, text->bytes);
    }
    release(it, &outputs);
    return WEIR_OK;
}

static void test_each_request_of_a_run(void **state)
{
    (void)state;
    for (int several = 0; several < 2; several++) {
        bench it = bench_on(the_model(SHARED), 1ull << 30, NULL);
        OK(bench_load(&it, loads[several], 3));
        uint64_t weights = stats_of(&it).live;
        for (size_t q = 0; q < sizeof questions / sizeof *questions; q++) {
            int32_t expected[3], made[3];
            int said = 0;
            if (several && questions[q].alone)
                continue;
            OK(ask(&it, &questions[q], expected));
            for (long at = 0; at < MOST; at++) {
                starve_at(at);
                weir_status status = ask(&it, &questions[q], made);
                bool was = starve_was();
                starve_at(-1);
                said += is_said(status, at);
                if (status == WEIR_OK)
                    assert_memory_equal(made, expected, sizeof expected);
                assert_int_equal(stats_of(&it).live, weights);
                if (!was)
                    break;
            }
            assert_true(said >= 4);
            OK(ask(&it, &questions[q], made));
            assert_memory_equal(made, expected, sizeof expected);
        }
        bench_close(&it);
    }
}

int main(void)
{
    fill_prompt(prompt, PROMPT, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_request_of_a_load),
        cmocka_unit_test(test_each_request_of_a_run),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
