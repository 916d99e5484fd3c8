/* log.c: what llama.cpp says: which line of it is the reason of a failure, and at what level the others are told. */
#include "common.h"

#include "gguf/engine/wg.h"

typedef struct heard {
    weir_log_level level;
    char text[128];
    int count;
} heard;

static void hear(weir_log_level level, const char *text, void *user)
{
    heard *it = user;
    it->level = level;
    it->count++;
    snprintf(it->text, sizeof it->text, "%s", text);
}

static void test_the_first_error_is_the_reason(void **state)
{
    (void)state;
    wg_log_forget();
    assert_string_equal(wg_log_first_error(), "");
    wg_on_log(GGML_LOG_LEVEL_WARN, "a warning\n", NULL);
    wg_on_log(GGML_LOG_LEVEL_ERROR, "\n", NULL);
    assert_string_equal(wg_log_first_error(), "");
    wg_on_log(GGML_LOG_LEVEL_ERROR, "load_it: no such tensor\nmore\n", NULL);
    wg_on_log(GGML_LOG_LEVEL_ERROR, "load: failed\n", NULL);
    assert_string_equal(wg_log_first_error(), "no such tensor");
    wg_log_forget();
    wg_on_log(GGML_LOG_LEVEL_ERROR, "load: failed\n", NULL);
    assert_string_equal(wg_log_first_error(), "failed");
    wg_log_forget();
}

/* Without the function's name, where there is one and something behind it. */
static void test_a_reason_begins_behind_the_name(void **state)
{
    (void)state;
    static const char *const lines[][2] = {{"f2_x: y", "y"},     {"a b: y", "a b: y"}, {": y", ": y"},
                                           {"name: ", "name: "}, {"name:y", "name:y"}, {"Name: y", "Name: y"},
                                           {"plain", "plain"}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        wg_log_forget();
        wg_on_log(GGML_LOG_LEVEL_ERROR, lines[i][0], NULL);
        assert_string_equal(wg_log_first_error(), lines[i][1]);
    }
    wg_log_forget();
}

static void test_levels(void **state)
{
    (void)state;
    static const struct {
        enum ggml_log_level theirs;
        weir_log_level ours;
    } levels[] = {{GGML_LOG_LEVEL_ERROR, WEIR_LOG_ERROR}, {GGML_LOG_LEVEL_WARN, WEIR_LOG_WARNING},
                  {GGML_LOG_LEVEL_INFO, WEIR_LOG_DEBUG},  {GGML_LOG_LEVEL_DEBUG, WEIR_LOG_OFF},
                  {GGML_LOG_LEVEL_CONT, WEIR_LOG_OFF},    {GGML_LOG_LEVEL_NONE, WEIR_LOG_OFF}};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        heard last = {.count = 0};
        OK(weir_log_set(hear, &last, WEIR_LOG_DEBUG));
        wg_on_log(levels[i].theirs, "name: it is so\n", NULL);
        assert_int_equal(last.count, levels[i].ours != WEIR_LOG_OFF);
        if (last.count > 0) {
            assert_int_equal(last.level, levels[i].ours);
            assert_string_equal(last.text, "llama.cpp: name: it is so");
        }
    }
    OK(weir_log_set(NULL, NULL, WEIR_LOG_ERROR));
    wg_log_forget();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_error_is_the_reason),
        cmocka_unit_test(test_a_reason_begins_behind_the_name),
        cmocka_unit_test(test_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
