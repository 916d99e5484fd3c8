/* choices.c: settings go where a table says, and wrong ones are refused with what would be right. */
#include "core/core.h"
#include "engines/text/text.h"

#include <float.h>

typedef struct of_load {
    int64_t threads;
    bool mmap;
    char library[8];
    double scale;
} of_load;

typedef struct of_run {
    int64_t tokens;
    double temperature;
    const char *stop, *grammar;
    bool chat;
} of_run;

static const wt_choice list[] = {
    {"threads", 'i', true, offsetof(of_load, threads), 0, 512},
    {"mmap", 'b', true, offsetof(of_load, mmap), 0, 1},
    {"library", 't', true, offsetof(of_load, library), 0, 8},
    {"scale", 'r', true, offsetof(of_load, scale), -1, 1},
    {"tokens", 'i', false, offsetof(of_run, tokens), 0, INT32_MAX},
    {"temperature", 'r', false, offsetof(of_run, temperature), 0, 2},
    {"stop", 'l', false, offsetof(of_run, stop), 0, 0},
    {"grammar", 'l', false, offsetof(of_run, grammar), 0, 0},
    {"chat", 'b', false, offsetof(of_run, chat), 0, 1},
};
static const wt_choices choices = {"toy", list, sizeof list / sizeof *list};

static of_load load;
static of_run run;

static weir_status take(const char *key, const char *value, bool loading)
{
    const weir_setting one = {key, value};
    return wt_choices_take(&choices, &one, 1, loading ? &load : NULL, &run);
}

static int begin(void **state)
{
    (void)state;
    load = (of_load){.threads = 4};
    run = (of_run){.tokens = 32};
    return 0;
}

static void test_settings_go_where_the_table_says(void **state)
{
    (void)state;
    static const weir_setting all[] = {{"threads", "512"}, {"mmap", "1"},   {"library", "1234567"},
                                       {"scale", "-0.5"},  {"tokens", "7"}, {"temperature", "0.25"},
                                       {"stop", "x"},      {"chat", "ON"},  {"tokens", "8"}};
    ok(wt_choices_take(&choices, all, sizeof all / sizeof *all, &load, &run));
    assert_int_equal(load.threads, 512);
    assert_true(load.mmap);
    assert_string_equal(load.library, "1234567");
    assert_true(load.scale == -0.5);
    assert_int_equal(run.tokens, 8);
    assert_true(run.temperature == 0.25);
    assert_ptr_equal(run.stop, all[6].value);
    assert_null(run.grammar);
    assert_true(run.chat);
    ok(wt_choices_take(&choices, NULL, 0, NULL, &run));
    ok(take("tokens", "9", false));
    assert_int_equal(run.tokens, 9);
}

static void test_truth_has_words(void **state)
{
    (void)state;
    static const char *const words[] = {"0", "1", "false", "true", "off", "on", "no", "Yes"};
    for (size_t i = 0; i < 8; i++) {
        run.chat = i % 2 == 0;
        ok(take("chat", words[i], false));
        assert_int_equal(run.chat, i % 2);
    }
    fails(WEIR_ERR_INVALID, take("chat", "2", false));
    assert_string_equal(weir_detail(), "the setting 'chat' is 0 or 1, not '2'");
}

static void test_numbers_have_limits(void **state)
{
    (void)state;
    static const char *const wrong[] = {"-1", "513", "", "x", "1x", "0.5", "99999999999999999999"},
                             *const unreal[] = {"-1.01", "1.01", "", "x", "0.5x", "nan", "inf", "1e999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        fails(WEIR_ERR_INVALID, take("threads", wrong[i], true));
    assert_string_equal(weir_detail(),
                        "the setting 'threads' is a whole number from 0 to 512, not '99999999999999999999'");
    for (size_t i = 0; i < sizeof unreal / sizeof *unreal; i++)
        fails(WEIR_ERR_INVALID, take("scale", unreal[i], true));
    assert_string_equal(weir_detail(), "the setting 'scale' is a number from -1 to 1, not '1e999'");
    assert_int_equal(load.threads, 4);
    assert_true(load.scale == 0);
    ok(take("threads", "0", true));
    ok(take("scale", "1", true));
}

static void test_wrong_settings_are_refused(void **state)
{
    (void)state;
    const weir_setting nameless = {NULL, "1"}, worthless = {"chat", NULL};
    fails(WEIR_ERR_INVALID, take("library", "12345678", true));
    assert_string_equal(weir_detail(), "the setting 'library' is too long: '12345678…'");
    fails(WEIR_ERR_INVALID, take("threads", "1", false));
    assert_string_equal(weir_detail(), "the setting 'threads' is one of loading, not of a run");
    fails(WEIR_ERR_INVALID, take("thread", "1", true));
    assert_string_equal(weir_detail(), "the engine toy knows no setting 'thread' at load; it knows threads, mmap, "
                                       "library, scale, tokens, temperature, stop, grammar, chat");
    fails(WEIR_ERR_INVALID, take("thread", "1", false));
    assert_string_equal(weir_detail(), "the engine toy knows no setting 'thread' for a run; it knows tokens, "
                                       "temperature, stop, grammar, chat");
    fails(WEIR_ERR_INVALID, wt_choices_take(&choices, &nameless, 1, &load, &run));
    fails(WEIR_ERR_INVALID, wt_choices_take(&choices, &worthless, 1, &load, &run));
    assert_string_equal(weir_detail(), "a setting without key or value was given to the engine toy");
    fails(WEIR_ERR_INVALID, wt_choices_take(&choices, NULL, 2, &load, &run));
    assert_string_equal(weir_detail(), "2 settings are announced, and there are none");
}

/* A table whose keys do not fit into a message. */
static void test_a_long_list_of_settings_is_cut(void **state)
{
    (void)state;
    char keys[100][40];
    wt_choice many[100];
    for (size_t i = 0; i < 100; i++) {
        snprintf(keys[i], sizeof keys[i], "a_setting_with_a_long_name_%03zu", i);
        many[i] = (wt_choice){keys[i], 'b', false, offsetof(of_run, chat), 0, 1};
    }
    const wt_choices wide = {"toy", many, 100};
    const weir_setting one = {"x", "1"};
    fails(WEIR_ERR_INVALID, wt_choices_take(&wide, &one, 1, NULL, &run));
    detail_names("a_setting_with_a_long_name_000, a_setting_with_a_long_name_001");
}

static void test_kept_texts_outlive_the_callers(void **state)
{
    (void)state;
    char stop[] = "END", *kept = NULL;
    ok(take("stop", stop, true));
    ok(wt_choices_keep(&choices, &run, &kept));
    strcpy(stop, "?");
    assert_string_equal(run.stop, "END");
    assert_null(run.grammar);
    free(kept);
    ok(take("stop", "one", true));
    ok(take("grammar", "two", true));
    ok(wt_choices_keep(&choices, &run, &kept));
    assert_string_equal(run.stop, "one");
    assert_string_equal(run.grammar, "two");
    free(kept);
}

static void test_the_settings_of_a_load_in_words(void **state)
{
    (void)state;
    char words[200], others[200];
    load = (of_load){.threads = -3, .mmap = true, .library = "here", .scale = 0.5};
    assert_true(wt_choices_words(&choices, &load, SIZE_MAX, words, sizeof words));
    assert_string_equal(words, " -3 1 'here' 0x1p-1");
    assert_true(wt_choices_words(&choices, &load, offsetof(of_load, library), words, sizeof words));
    assert_string_equal(words, " -3 1 0x1p-1");
    load.scale += DBL_EPSILON;
    assert_true(wt_choices_words(&choices, &load, offsetof(of_load, library), others, sizeof others));
    assert_string_not_equal(words, others);
    for (size_t room = 0; room <= strlen(others) + 1; room++)
        assert_int_equal(wt_choices_words(&choices, &load, offsetof(of_load, library), words, room),
                         room == strlen(others) + 1);
}

/* As in a program whose language writes a comma: a number ends at a point. */
double __wrap_strtod(const char *text, char **end);
double __wrap_strtod(const char *text, char **end)
{
    return (double)strtol(text, end, 10);
}

static void a_point_is_a_point_in_every_language(void **state)
{
    (void)state;
    char *end;
    ok(take("temperature", "0.5", false));
    assert_true(run.temperature == 0.5);
    assert_int_equal(take("temperature", "0,5", false), WEIR_ERR_INVALID);
    assert_true(wt_real("1.5:2", &end) == 1.5);
    assert_string_equal(end, ":2");
}

static void test_a_sum_sees_every_bit_and_the_length(void **state)
{
    (void)state;
    unsigned char data[61] = {0};
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37);
    uint64_t whole = wt_sum(0, data, sizeof data);
    assert_int_equal(whole, wt_sum(0, data, sizeof data));
    for (size_t bit = 0; bit < sizeof data * 8; bit++) {
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(wt_sum(0, data, sizeof data), whole);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    static const unsigned char zeros[16];
    for (size_t count = 1; count < sizeof zeros; count++)
        assert_int_not_equal(wt_sum(0, zeros, count), wt_sum(0, zeros, count + 1));
    assert_int_not_equal(wt_sum(1, data, sizeof data), whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_settings_go_where_the_table_says, begin),
        cmocka_unit_test_setup(test_truth_has_words, begin),
        cmocka_unit_test_setup(test_numbers_have_limits, begin),
        cmocka_unit_test_setup(test_wrong_settings_are_refused, begin),
        cmocka_unit_test_setup(test_a_long_list_of_settings_is_cut, begin),
        cmocka_unit_test_setup(test_kept_texts_outlive_the_callers, begin),
        cmocka_unit_test_setup(test_the_settings_of_a_load_in_words, begin),
        cmocka_unit_test(test_a_sum_sees_every_bit_and_the_length),
        cmocka_unit_test_setup(a_point_is_a_point_in_every_language, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
