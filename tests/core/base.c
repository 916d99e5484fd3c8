/* Statuses, details, sizes and the log. */
#include "core.h"

#include "base/values.h"

#include <weir/guard.h>
#include <weir/model.h>
#include <weir/trace.h>

static void every_status_has_its_name(void **state)
{
    (void)state;
    static const char *const names[] = {"OK",          "INVALID",       "OUT_OF_MEMORY", "FOREIGN",  "INTERIOR",
                                        "DOUBLE_FREE", "STALE",         "BUSY",          "CONFLICT", "NOT_FOUND",
                                        "UNSUPPORTED", "STREAM_MISUSE", "NO_ROOM",       "FORKED",   "DRIVER",
                                        "DEVICE_LOST", "SYSTEM",        "CORRUPT",       "ENGINE",   "CANCELLED"};
    assert_int_equal(sizeof names / sizeof names[0], WEIR_STATUS_COUNT);
    for (int i = 0; i < WEIR_STATUS_COUNT; i++) {
        const char *prefix = i == WEIR_OK ? "WEIR_" : "WEIR_ERR_", *name = weir_name_of(WEIR_NAMES_STATUS, i);
        assert_int_equal(strncmp(name, prefix, strlen(prefix)), 0);
        assert_string_equal(name + strlen(prefix), names[i]);
    }
    assert_string_equal(weir_name_of(WEIR_NAMES_STATUS, WEIR_STATUS_COUNT), "?");
    assert_string_equal(weir_name_of(WEIR_NAMES_STATUS, -1), "?");
    assert_string_equal(weir_name_of(WEIR_NAMES_COUNT, 0), "?");
    assert_string_equal(weir_name_of((weir_names)-1, 0), "?");
    assert_string_equal(weir_version(), WEIR_VERSION_STRING);
}

static void classes_have_their_names(void **state)
{
    (void)state;
    static const char *const names[] = {"other", "weights", "activations", "scratch", "kv"};
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        assert_string_equal(weir_name_of(WEIR_NAMES_CLASS, i), names[i]);
    assert_string_equal(weir_name_of(WEIR_NAMES_CLASS, WEIR_CLASS_COUNT), "?");
    assert_string_equal(weir_name_of(WEIR_NAMES_CLASS, -1), "?");
}

/* And none beyond: so a value that is added has to get its word. */
static void every_value_has_its_word(void **state)
{
    (void)state;
    static const int counts[WEIR_NAMES_COUNT] = {
        [WEIR_NAMES_STATUS] = WEIR_STATUS_COUNT,       [WEIR_NAMES_KIND] = WEIR_KIND_COUNT,
        [WEIR_NAMES_TYPE] = WEIR_TYPE_COUNT,           [WEIR_NAMES_CLASS] = WEIR_CLASS_COUNT,
        [WEIR_NAMES_CAUSE] = WEIR_CAUSE_COUNT,         [WEIR_NAMES_RUNG] = WEIR_RUNG_COUNT,
        [WEIR_NAMES_SPAN] = WEIR_SPAN_COUNT,           [WEIR_NAMES_ACTION] = WEIR_ACTION_COUNT,
        [WEIR_NAMES_GUARD] = WEIR_GUARD_COUNT,         [WEIR_NAMES_HARDWARE] = WEIR_HARDWARE_COUNT,
        [WEIR_NAMES_VERDICT] = WEIR_VERDICT_COUNT,     [WEIR_NAMES_STAGE] = WEIR_STAGE_COUNT,
        [WEIR_NAMES_RESIDENCY] = WEIR_RESIDENCY_COUNT, [WEIR_NAMES_SOURCE] = WEIR_PREDICTED_COUNT,
        [WEIR_NAMES_POOL] = WEIR_POOL_ACTION_COUNT,
    };
    for (int names = 0; names < WEIR_NAMES_COUNT; names++) {
        for (int i = 0; i < counts[names]; i++) {
            const char *word = weir_name_of((weir_names)names, i);
            assert_true(strcmp(word, "?") != 0 || (names == WEIR_NAMES_TYPE && i == WEIR_TYPE_NONE));
            for (int k = 0; k < i; k++)
                assert_string_not_equal(weir_name_of((weir_names)names, k), word);
        }
        assert_string_equal(weir_name_of((weir_names)names, counts[names]), "?");
    }
}

static void causes_of_refusals_have_their_names(void **state)
{
    (void)state;
    static const char *const names[] = {"none",   "budget",        "maximum",       "fragmentation", "pending",
                                        "device", "other process", "address range", "reservation",   "adaptor"};
    assert_int_equal(sizeof names / sizeof names[0], WEIR_CAUSE_COUNT);
    for (int i = 0; i < WEIR_CAUSE_COUNT; i++)
        assert_string_equal(weir_name_of(WEIR_NAMES_CAUSE, i), names[i]);
    assert_string_equal(weir_name_of(WEIR_NAMES_CAUSE, WEIR_CAUSE_COUNT), "?");
    assert_string_equal(weir_name_of(WEIR_NAMES_CAUSE, -1), "?");
}

/* Details ---------------------------------------------------------------------------------------------------------- */

static void *fresh_thread(void *user)
{
    *(size_t *)user = strlen(weir_detail());
    return NULL;
}

static void detail_is_the_threads_own(void **state)
{
    (void)state;
    size_t length = 99;
    pthread_t thread;
    assert_int_equal(weir_fail(WEIR_ERR_ENGINE, "%s: %d", "code", 7), WEIR_ERR_ENGINE);
    assert_string_equal(weir_detail(), "code: 7");
    pthread_create(&thread, NULL, fresh_thread, &length);
    pthread_join(thread, NULL);
    assert_int_equal(length, 0);
    uint64_t bytes;
    ok(wi_size_parse("1k", &bytes)); /* success leaves it */
    assert_string_equal(weir_detail(), "code: 7");
    assert_int_equal(weir_fail(WEIR_ERR_BUSY, "outer: %s", weir_detail()), WEIR_ERR_BUSY);
    assert_string_equal(weir_detail(), "outer: code: 7");
    weir_fail(WEIR_ERR_ENGINE, "two\nlines\r\n");
    assert_string_equal(weir_detail(), "two lines");
}

/* `filler` bytes of x, then a text, which are no words: the detail is all of it, or the longest beginning of whole characters that
 * has room for the sign of what is left out. */
static void check_cut(size_t filler, const char *text)
{
    enum { MOST = 1023 };
    static const char sign[] = "\xe2\x80\xa6";
    char whole[2048], wanted[MOST + 1];
    memset(whole, 'x', filler);
    strcpy(whole + filler, text);
    size_t length = strlen(whole), kept = length <= MOST ? length : MOST - strlen(sign);
    while (kept < length && ((unsigned char)whole[kept] & 0xc0) == 0x80)
        kept--;
    memcpy(wanted, whole, kept);
    strcpy(wanted + kept, length <= MOST ? "" : sign);
    weir_fail(WEIR_ERR_ENGINE, "%s", whole);
    assert_string_equal(weir_detail(), wanted);
}

static void detail_is_cut_at_a_character(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\xc3\xa9", "\xc3\xa9y", "\xe2\x82\xacy", "\xf0\x9f\x90\x9fy"};
    for (size_t filler = 1010; filler < 1030; filler++)
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
            check_cut(filler, texts[i]);
    check_cut(1500, "");
}

/* Sizes ------------------------------------------------------------------------------------------------------------ */

static void sizes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"1", 1},
                {"17B", 17},
                {"17b", 17},
                {"2k", 2048},
                {"2K", 2048},
                {"2kB", 2048},
                {"2KiB", 2048},
                {"2kib", 2048},
                {"3m", 3 << 20},
                {"3MB", 3 << 20},
                {"1gb", 1 << 30},
                {"1G", 1 << 30},
                {"1GiB", 1 << 30},
                {"1t", (uint64_t)1 << 40},
                {"1TiB", (uint64_t)1 << 40},
                {"1.5GiB", (uint64_t)3 << 29},
                {"1.50 GiB", (uint64_t)3 << 29},
                {"0.5k", 512},
                {"1.7k", 1740},
                {"1.7GiB", 1825361100},
                {"0.0009765625k", 1},
                {"1.0", 1},
                {"2.000", 2},
                {"007", 7},
                {"18446744073709551615", UINT64_MAX},
                {"16777215.5t", UINT64_MAX - ((uint64_t)1 << 39) + 1}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 12345;
        ok(weir_size_parse(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    static const char *const bad[] = {"",          " ",
                                      "k",         "-1",
                                      "+1",        "1.5",
                                      "1.",        ".5k",
                                      "1.k",       "1kk",
                                      "1kbx",      "1i",
                                      "1 ",        "1k ",
                                      " 1",        "1  ",
                                      "0x10",      "1e3",
                                      "1,5g",      "1.2.3k",
                                      "inf",       "nan",
                                      "1bb",       "1ki",
                                      "0.0001k",   "18446744073709551616",
                                      "16777216t", "99999999999999999999999",
                                      "1p"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 12345;
        weir_status status = weir_size_parse(bad[i], &bytes);
        if (status != WEIR_ERR_INVALID)
            print_error("\"%s\" is read\n", bad[i]);
        assert_int_equal(status, WEIR_ERR_INVALID);
        assert_int_equal(bytes, 12345);
    }
    uint64_t bytes;
    fails(WEIR_ERR_INVALID, weir_size_parse(NULL, &bytes));
    fails(WEIR_ERR_INVALID, weir_size_parse("1", NULL));
}

static void sizes_are_written(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } table[] = {{0, "0 B"},
                 {1, "1 B"},
                 {1023, "1023 B"},
                 {1024, "1 KiB"},
                 {1536, "1.5 KiB"},
                 {(uint64_t)980 << 20, "980 MiB"},
                 {(uint64_t)3 << 29, "1.5 GiB"},
                 {((uint64_t)1 << 20) - 1, "1 MiB"},
                 {((uint64_t)1 << 30) - 1, "1 GiB"},
                 {1024 * 10 + 51, "10 KiB"},
                 {1024 * 10 + 52, "10.1 KiB"},
                 {(uint64_t)1 << 40, "1 TiB"},
                 {(uint64_t)5 << 50, "5120 TiB"},
                 {UINT64_MAX, "16777216 TiB"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[24];
        assert_ptr_equal(weir_size_format(table[i].bytes, text, sizeof text), text);
        assert_string_equal(text, table[i].text);
    }
    char small[4];
    assert_string_equal(weir_size_format((uint64_t)980 << 20, small, sizeof small), "980");
    /* What is written is read back as nearly the same number. */
    uint64_t seed = 7;
    for (int i = 0; i < 2000; i++) {
        uint64_t bytes = (next_random(&seed) % 2000) << (10 * (next_random(&seed) % 4)), again;
        char text[24];
        weir_size_format(bytes, text, sizeof text);
        ok(wi_size_parse(text, &again));
        assert_true(again <= bytes + bytes / 20 && bytes <= again + again / 20);
        if (bytes < 1000)
            assert_int_equal(again, bytes);
    }
}

/* The log ---------------------------------------------------------------------------------------------------------- */

static struct {
    int calls, depth;
    weir_log_level level;
    char text[2048];
} heard;

static void listen(weir_log_level level, const char *text, void *user)
{
    assert_ptr_equal(user, &heard);
    heard.calls++;
    heard.level = level;
    snprintf(heard.text, sizeof heard.text, "%s", text);
}

/* May call weir: logs itself, and takes itself away. */
static void listen_and_call(weir_log_level level, const char *text, void *user)
{
    listen(level, text, user);
    if (heard.depth++ == 0) {
        weir_log(WEIR_LOG_ERROR, "from inside");
        ok(weir_log_set(listen, &heard, WEIR_LOG_DEBUG));
        weir_option option = WEIR_INIT(weir_option);
        ok(weir_option_info("log", 0, &option));
    }
}

static void log_levels(void **state)
{
    (void)state;
    memset(&heard, 0, sizeof heard);
    for (int level = WEIR_LOG_OFF; level <= WEIR_LOG_DEBUG; level++) {
        ok(weir_log_set(listen, &heard, (weir_log_level)level));
        heard.calls = 0;
        for (int message = WEIR_LOG_OFF; message <= WEIR_LOG_DEBUG + 1; message++)
            weir_log((weir_log_level)message, "message %d", message);
        assert_int_equal(heard.calls, level);
    }
    weir_log(WEIR_LOG_INFO, "two\nlines\n");
    assert_string_equal(heard.text, "two lines");
    assert_int_equal(heard.level, WEIR_LOG_INFO);
    fails(WEIR_ERR_INVALID, weir_log_set(listen, &heard, (weir_log_level)5));
    fails(WEIR_ERR_INVALID, weir_log_set(listen, &heard, (weir_log_level)-1));
    ok(weir_log_set(NULL, NULL, WEIR_LOG_DEBUG));
    heard.calls = 0;
    weir_log(WEIR_LOG_ERROR, "nobody hears this");
    assert_int_equal(heard.calls, 0);
}

static void log_function_may_call_weir(void **state)
{
    (void)state;
    memset(&heard, 0, sizeof heard);
    ok(weir_log_set(listen_and_call, &heard, WEIR_LOG_DEBUG));
    weir_log(WEIR_LOG_WARNING, "first");
    assert_int_equal(heard.calls, 2);
    assert_string_equal(heard.text, "from inside");
    weir_log(WEIR_LOG_WARNING, "second");
    assert_int_equal(heard.calls, 3);
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
}

/* Standard error, while `fn` runs. */
static size_t errors_of(void (*fn)(void), char *text, size_t capacity)
{
    int pipes[2], old = dup(2);
    assert_int_equal(pipe(pipes), 0);
    dup2(pipes[1], 2);
    fn();
    dup2(old, 2);
    close(old);
    close(pipes[1]);
    ssize_t length = read(pipes[0], text, capacity - 1);
    close(pipes[0]);
    text[length > 0 ? length : 0] = '\0';
    return strlen(text);
}

static void say_two(void)
{
    weir_log(WEIR_LOG_WARNING, "careful");
    weir_log(WEIR_LOG_INFO, "by the way");
}

static void listen_and_fail(weir_log_level level, const char *text, void *user)
{
    listen(level, text, user);
    fails(WEIR_ERR_INVALID, weir_log_set(NULL, NULL, (weir_log_level)7));
}

/* A message may come from the middle of a call that has refused already. */
static void log_function_leaves_the_detail(void **state)
{
    (void)state;
    ok(weir_log_set(listen_and_fail, &heard, WEIR_LOG_DEBUG));
    fails(WEIR_ERR_BUSY, weir_fail(WEIR_ERR_BUSY, "the caller's %s", "own"));
    weir_log(WEIR_LOG_WARNING, "about: %s", weir_detail());
    assert_string_equal(heard.text, "about: the caller's own");
    assert_string_equal(weir_detail(), "the caller's own");
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
}

static void log_option_asks_for_standard_error(void **state)
{
    (void)state;
    char text[256];
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    assert_int_equal(errors_of(say_two, text, sizeof text), 0);
    ok(weir_option_set("log", "warning"));
    errors_of(say_two, text, sizeof text);
    assert_non_null(strstr(text, "careful\n"));
    assert_null(strstr(text, "by the way"));
    ok(weir_log_set(listen, &heard, WEIR_LOG_DEBUG)); /* a function takes the place of standard error */
    assert_int_equal(errors_of(say_two, text, sizeof text), 0);
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF)); /* and gives it back */
    assert_true(errors_of(say_two, text, sizeof text) > 0);
    ok(weir_option_set("log", NULL));
    assert_int_equal(errors_of(say_two, text, sizeof text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(classes_have_their_names),
        cmocka_unit_test(every_value_has_its_word),
        cmocka_unit_test(causes_of_refusals_have_their_names),
        cmocka_unit_test(detail_is_the_threads_own),
        cmocka_unit_test(detail_is_cut_at_a_character),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(sizes_are_written),
        cmocka_unit_test(log_levels),
        cmocka_unit_test(log_function_may_call_weir),
        cmocka_unit_test(log_function_leaves_the_detail),
        cmocka_unit_test(log_option_asks_for_standard_error),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
