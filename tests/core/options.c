/* Options: where values come from, what is refused, and structures of other sizes. */
#include "info.h"
#include "core.h"

#include <pwd.h>
#include <unistd.h>

static weir_option get(const char *name)
{
    weir_option option = WEIR_INIT(weir_option);
    ok(weir_option_info(name, 0, &option));
    assert_string_equal(option.name, name);
    return option;
}

static void every_option_is_listed(void **state)
{
    (void)state;
    size_t count = 0;
    bool budget = false;
    for (weir_option option = WEIR_INIT(weir_option); weir_option_info(NULL, count, &option) == WEIR_OK; count++) {
        weir_option same = get(option.name);
        assert_ptr_equal(same.name, option.name);
        assert_string_equal(same.value, option.value);
        assert_int_equal(strncmp(option.environment, "WEIR_", 5), 0);
        assert_true(strlen(option.help) > 0);
        budget |= strcmp(option.name, "budget") == 0;
    }
    assert_true(budget && count >= 5);
    weir_option option = WEIR_INIT(weir_option);
    fails(WEIR_ERR_NOT_FOUND, weir_option_info(NULL, count, &option));
    fails(WEIR_ERR_NOT_FOUND, weir_option_info(NULL, SIZE_MAX, &option));
    fails(WEIR_ERR_INVALID, weir_option_info(NULL, 0, NULL));
    option.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_option_info(NULL, 0, &option));
}

/* As files and shells leave it; where a text may be a path, it is the path's. */
static void white_space_around_a_word_is_not_meant(void **state)
{
    (void)state;
    static const struct {
        const char *environment, *name, *text, *value;
    } cases[] = {{"WEIR_POLICY", "policy", " memory", "memory"},
                 {"WEIR_POLICY", "policy", "Manifest\r\n", "Manifest"},
                 {"WEIR_POLICY", "policy", "\t fastest \t", "fastest"},
                 {"WEIR_POLICY", "policy", " \n", "fastest"},
                 {"WEIR_WAIT", "wait", " 250ms\n", "250ms"},
                 {"WEIR_BUDGET", "budget", "1GiB ", "1GiB"},
                 {"WEIR_RESOURCE", "resource", " direct ", "direct"},
                 {"WEIR_TRACE", "trace", " a b ", " a b "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv(cases[i].environment, cases[i].text, 1);
        weir_option option = get(cases[i].name);
        assert_false(option.rejected);
        assert_string_equal(option.value, cases[i].value);
        unsetenv(cases[i].environment);
    }
    setenv("WEIR_POLICY", "the best", 1);
    assert_true(get("policy").rejected);
    char padded[1000];
    snprintf(padded, sizeof padded, "%*s%*s", 500, "memory", 400, "");
    setenv("WEIR_POLICY", padded, 1); /* how long it is without them is what counts */
    assert_string_equal(get("policy").value, "memory");
    unsetenv("WEIR_POLICY");
}

static void call_wins_over_environment_over_default(void **state)
{
    (void)state;
    unsetenv("WEIR_WAIT");
    weir_option option = get("wait");
    assert_string_equal(option.value, "1s");
    assert_int_equal(option.source, WEIR_OPTION_FROM_DEFAULT);
    setenv("WEIR_WAIT", "250ms", 1);
    option = get("wait");
    assert_string_equal(option.value, "250ms");
    assert_int_equal(option.source, WEIR_OPTION_FROM_ENVIRONMENT);
    ok(weir_option_set("wait", "2.5s"));
    option = get("wait");
    assert_string_equal(option.value, "2.5s");
    assert_int_equal(option.source, WEIR_OPTION_FROM_CALL);
    fails(WEIR_ERR_INVALID, weir_option_set("wait", "soon"));
    detail_names("wait");
    detail_names("250ms"); /* which values are taken */
    assert_string_equal(get("wait").value, "2.5s");
    ok(weir_option_set("wait", NULL));
    assert_string_equal(get("wait").value, "250ms");
    unsetenv("WEIR_WAIT");
    assert_string_equal(get("wait").value, "1s");
}

static void bad_values_in_the_environment_are_marked(void **state)
{
    (void)state;
    weir_fail(WEIR_ERR_BUSY, "as it was");
    setenv("WEIR_BUDGET", "plenty", 1);
    weir_option option = get("budget");
    assert_true(option.rejected);
    assert_string_equal(option.value, "");
    assert_int_equal(option.source, WEIR_OPTION_FROM_DEFAULT);
    setenv("WEIR_WAIT", "-1s", 1);
    option = get("wait");
    assert_true(option.rejected);
    assert_string_equal(option.value, "1s");
    assert_string_equal(weir_detail(), "as it was"); /* none of these calls failed */
    weir_runtime *runtime;
    fails(WEIR_ERR_INVALID, weir_runtime_create("host", NULL, &runtime));
    detail_names("WEIR_BUDGET");
    char longer[400];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    setenv("WEIR_ENGINE_PATH", longer, 1);
    assert_true(get("engine_path").rejected);
    setenv("WEIR_BUDGET", "", 1); /* empty is unset */
    assert_false(get("budget").rejected);
    unsetenv("WEIR_BUDGET");
    unsetenv("WEIR_WAIT");
    unsetenv("WEIR_ENGINE_PATH");
}

static void values_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        bool good;
    } table[] = {
        {"wait", "0", true},
        {"wait", "0ms", true},
        {"wait", "1.5s", true},
        {"wait", "1", false},
        {"wait", "1m", false},
        {"wait", "s", false},
        {"wait", "infs", false},
        {"wait", "nans", false},
        {"wait", "-1s", false},
        {"wait", "0x10s", false},
        {"wait", "1e2s", false},
        {"wait", "1,5s", false},
        {"wait", "1.2.3s", false},
        {"wait", "0.5ms", true},
        {"wait", "3600s", true},
        {"wait", "3599.95s", true}, /* each digit of a fraction counts less than the one before */
        {"wait", "99999999999999999999999s", false},
        {"wait", "3601s", false},
        {"wait", "", false},
        {"log", "error", true},
        {"log", "Error", false},
        {"log", "all", false},
        {"resource", "mapped", true},
        {"resource", "pool)", false},
        {"budget", "2GiB", true},
        {"budget", "0", false},
        {"budget", "host=1g", true},
        {"budget", "host=2GiB,cuda:0=40GiB", true},
        {"budget", "hots=2g", false},
        {"budget", "cuda:x=2g", false},
        {"budget", "cuda=2g", true},
        {"budget", "host=", false},
        {"budget", "1g,x", false},
        {"budget", "", true},
        {"watch", "1", true},
        {"watch", "on", false},
        {"outside", "2GiB", true},
        {"outside", "", true},
        {"outside", "much", false},
        {"reuse_wait", "0", true},
        {"reuse_wait", "100", true},
        {"reuse_wait", "101", false},
        {"reuse_wait", "2%", false},
        {"move_time", "0", true},
        {"move_time", "101", false},
        {"home", "anywhere", true},
        {"unpacked", "0", true},
        {"unpacked", "64GiB", true},
        {"unpacked", "", false},
        {"unpacked", "all", false},
        {"unpacked_age", "12h", true},
        {"unpacked_age", "0s", true},
        {"unpacked_age", "30", false},
        {"unpacked_age", "", false},
        {"unpacked_age", "36500d", true},
        {"unpacked_age", "36501d", false},
        {"unpacked_age", "-1d", false},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        weir_status status = weir_option_set(table[i].name, table[i].value);
        if (status != (table[i].good ? WEIR_OK : WEIR_ERR_INVALID))
            print_error("%s=%s\n", table[i].name, table[i].value);
        assert_int_equal(status, table[i].good ? WEIR_OK : WEIR_ERR_INVALID);
        ok(weir_option_set(table[i].name, NULL));
    }
    char longer[257];
    memset(longer, 'x', 256);
    longer[256] = '\0';
    fails(WEIR_ERR_INVALID, weir_option_set("home", longer));
    longer[255] = '\0';
    ok(weir_option_set("home", longer));
    assert_string_equal(get("home").value, longer);
    ok(weir_option_set("home", NULL));
}

static void nearest_name(void **state)
{
    (void)state;
    weir_option option = WEIR_INIT(weir_option);
    fails(WEIR_ERR_NOT_FOUND, weir_option_info("buget", 0, &option));
    detail_names("\"budget\"");
    fails(WEIR_ERR_NOT_FOUND, weir_option_info("engine-path", 0, &option));
    detail_names("\"engine_path\"");
    fails(WEIR_ERR_NOT_FOUND, weir_option_set("Wait", "1s"));
    detail_names("\"wait\"");
    char name[300];
    memset(name, 'w', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    fails(WEIR_ERR_NOT_FOUND, weir_option_info(name, 0, &option));
    fails(WEIR_ERR_NOT_FOUND, weir_option_info("", 0, &option));
    fails(WEIR_ERR_INVALID, weir_option_info("wait", 0, NULL));
    fails(WEIR_ERR_INVALID, weir_option_set(NULL, "1s"));
}

static void home_is_in_the_cache_directory(void **state)
{
    (void)state;
    unsetenv("WEIR_HOME");
    setenv("XDG_CACHE_HOME", "/cache", 1);
    assert_string_equal(get("home").value, "/cache/weir");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/me", 1);
    assert_string_equal(get("home").value, "/me/.cache/weir");
    const struct passwd *user = getpwuid(getuid());
    for (int empty = 0; user && empty <= 1; empty++) { /* as a service has it */
        char expected[512];
        snprintf(expected, sizeof expected, "%s/.cache/weir", user->pw_dir);
        assert_int_equal(empty ? setenv("HOME", "", 1) : unsetenv("HOME"), 0);
        assert_string_equal(get("home").value, expected);
    }
    setenv("WEIR_HOME", "/store", 1);
    assert_string_equal(get("home").value, "/store");
    assert_int_equal(get("home").source, WEIR_OPTION_FROM_ENVIRONMENT);
    unsetenv("WEIR_HOME");
}

static uint64_t budget_made(const char *value)
{
    weir_runtime *runtime;
    ok(weir_option_set("budget", value));
    ok(weir_runtime_create("host", NULL, &runtime));
    uint64_t budget = runtime_details(runtime).budget;
    ok(weir_runtime_destroy(runtime));
    ok(weir_option_set("budget", NULL));
    return budget;
}

static void budget_by_device(void **state)
{
    (void)state;
    assert_int_equal(budget_made("5m"), 5 * MIB);
    assert_int_equal(budget_made("host=6m,cuda:0=7m"), 6 * MIB);
    assert_int_equal(budget_made("cuda:0=7m,8m"), 8 * MIB);
    assert_true(budget_made("cuda:0=7m") > 64 * MIB); /* none for this device: what is free, less a margin */
    weir_runtime *runtime = make_runtime(3 * MIB);
    ok(weir_option_set("budget", "9m")); /* does not change one that is there */
    assert_int_equal(runtime_details(runtime).budget, 3 * MIB);
    ok(weir_option_set("budget", NULL));
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_is_listed),
        cmocka_unit_test(call_wins_over_environment_over_default),
        cmocka_unit_test(white_space_around_a_word_is_not_meant),
        cmocka_unit_test(bad_values_in_the_environment_are_marked),
        cmocka_unit_test(values_are_checked),
        cmocka_unit_test(nearest_name),
        cmocka_unit_test(home_is_in_the_cache_directory),
        cmocka_unit_test(budget_by_device),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
