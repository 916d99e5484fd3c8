/* measured.c: what is remembered of loads: one file, whoever writes at the same time, and whatever stands in it. */
#include "common.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "factory/predict/forecast.h"

static char folder[64];

static wi_measured make(unsigned number, int64_t seen, uint64_t resident, uint64_t peak)
{
    wi_measured out = {.version = "1.0", .seen = seen, .loads = 1};
    snprintf(out.key, sizeof out.key, "%032x", number);
    out.resident[WEIR_CLASS_WEIGHTS] = resident;
    out.peak[WEIR_CLASS_WEIGHTS] = resident;
    out.peak[WEIR_CLASS_ACTIVATIONS] = peak - resident;
    return out;
}

static void add(unsigned number, int64_t seen, uint64_t resident, uint64_t peak)
{
    wi_measured one = make(number, seen, resident, peak);
    OK(wi_measured_add(&one));
}

static bool find(unsigned number, wi_measured *out)
{
    char key[WI_MEASURED_KEY];
    snprintf(key, sizeof key, "%032x", number);
    return wi_measured_find(key, "", out);
}

static size_t count(unsigned up_to)
{
    size_t found = 0;
    wi_measured one;
    for (unsigned i = 0; i < up_to; i++)
        found += find(i, &one);
    return found;
}

static FILE *the_file(const char *mode)
{
    char path[128];
    snprintf(path, sizeof path, "%s/predictions", folder);
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    return file;
}

static void test_what_was_measured_is_found_again(void **state)
{
    wi_measured one = make(7, 1000, 100, 150), got;
    (void)state;
    assert_false(find(7, &got));
    one.ran = true;
    snprintf(one.version, sizeof one.version, "2.5");
    OK(wi_measured_add(&one));
    assert_true(wi_measured_find(one.key, "2.5", &got));
    assert_memory_equal(&got, &one, sizeof got);
    assert_false(wi_measured_find(one.key, "2.6", &got)); /* another engine */
    assert_false(find(8, &got));
}

/* The largest of each, with the classes of its moment; loads add up. */
static void test_later_loads_only_add(void **state)
{
    wi_measured got;
    (void)state;
    add(1, 10, 100, 150);
    add(1, 30, 90, 200);
    add(1, 20, 110, 120);
    assert_true(find(1, &got));
    assert_int_equal(got.resident[WEIR_CLASS_WEIGHTS], 110);
    assert_int_equal(got.peak[WEIR_CLASS_WEIGHTS], 90);
    assert_int_equal(got.peak[WEIR_CLASS_ACTIVATIONS], 110);
    assert_int_equal(got.loads, 3);
    assert_int_equal(got.seen, 30);
    assert_false(got.ran);
}

static void test_without_a_version_the_newest_counts(void **state)
{
    wi_measured old = make(3, 50, 100, 100), new = make(3, 60, 200, 200), got;
    (void)state;
    snprintf(new.version, sizeof new.version, "2.0");
    OK(wi_measured_add(&new));
    OK(wi_measured_add(&old));
    assert_true(find(3, &got));
    assert_string_equal(got.version, "2.0");
}

/* Beyond, the one that was seen longest ago goes. */
static void test_so_many_are_kept(void **state)
{
    wi_measured got;
    struct stat about;
    char path[128];
    (void)state;
    for (unsigned i = 0; i < WI_MEASURED_MOST; i++)
        add(i, i == 300 ? 1 : 1000 + i, 100, 150);
    assert_int_equal(count(WI_MEASURED_MOST), WI_MEASURED_MOST);
    add(WI_MEASURED_MOST, 5000, 100, 150);
    assert_false(find(300, &got));
    assert_true(find(WI_MEASURED_MOST, &got));
    assert_int_equal(count(WI_MEASURED_MOST + 1), WI_MEASURED_MOST);
    snprintf(path, sizeof path, "%s/predictions", folder);
    assert_int_equal(stat(path, &about), 0);
    assert_true(about.st_size < 512 << 10);
}

/* Every cut, and every byte that is another one: the lines that are whole are found, and nothing else is. */
static void test_a_torn_or_changed_file(void **state)
{
    enum { LINES = 4 };
    static char text[4096], changed[4096];
    wi_measured one;
    (void)state;
    for (unsigned i = 0; i < LINES; i++)
        add(i, 100 + i, 1000, 1500);
    FILE *file = the_file("r");
    size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    for (size_t cut = 0; cut < length; cut += 5) {
        file = the_file("w");
        assert_int_equal(fwrite(text, 1, cut, file), cut);
        fclose(file);
        assert_true(count(LINES) < LINES);
    }
    for (size_t at = 0; at < length; at += 2) {
        memcpy(changed, text, length);
        changed[at] = at % 3 == 0 ? '\0' : at % 3 == 1 ? '\n' : text[at] == '9' ? '8' : (char)(text[at] + 1);
        file = the_file("w");
        assert_int_equal(fwrite(changed, 1, length, file), length);
        fclose(file);
        size_t found = count(LINES);
        assert_true(found < LINES || changed[at] == text[at]);
        assert_true(found + 2 >= LINES || at < 32); /* a changed head makes it another file */
        for (unsigned i = 0; i < LINES; i++)
            assert_true(!find(i, &one) || one.peak[WEIR_CLASS_ACTIVATIONS] == 500);
    }
    add(9, 100, 1000, 1500); /* and it is written to again */
    assert_int_equal(count(10) >= 1, true);
}

static void test_files_that_are_none(void **state)
{
    wi_measured got;
    char path[128], other[160];
    (void)state;
    snprintf(path, sizeof path, "%s/predictions", folder);
    FILE *file = the_file("w");
    for (int i = 0; i < 1 << 20; i++) /* too long */
        fputs("weir predictions 1\n", file);
    fclose(file);
    assert_false(find(1, &got));
    add(1, 10, 100, 150); /* takes its place */
    assert_true(find(1, &got));
    snprintf(other, sizeof other, "%s/model.toy", folder);
    assert_int_equal(rename(path, other), 0);
    struct stat before, about;
    assert_int_equal(stat(other, &before), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_false(find(1, &got)); /* a link is not followed, */
    add(1, 10, 100, 150);        /* but replaced, */
    assert_true(find(1, &got));
    assert_int_equal(stat(other, &about), 0); /* and what it meant is as it was */
    assert_int_equal(about.st_ino, before.st_ino);
    assert_int_equal(about.st_size, before.st_size);
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(find(1, &got));
    wi_measured one = make(1, 10, 100, 150);
    assert_int_equal(wi_measured_add(&one), WEIR_ERR_SYSTEM);
    assert_int_equal(rmdir(path), 0);
}

static void test_a_store_that_is_not_there_is_made(void **state)
{
    char deeper[128];
    wi_measured got;
    (void)state;
    snprintf(deeper, sizeof deeper, "%s/deeper/store", folder);
    OK(weir_option_set("home", deeper));
    assert_false(find(1, &got));
    add(1, 10, 100, 150);
    assert_true(find(1, &got));
    OK(weir_option_set("home", "/proc/none"));
    wi_measured one = make(1, 10, 100, 150);
    assert_int_equal(wi_measured_add(&one), WEIR_ERR_SYSTEM);
    OK(weir_option_set("home", folder));
}

/* Who has waited for the lock for long gives up, which a busy machine may bring about. */
static bool add_at_last(const wi_measured *one)
{
    weir_status status;
    while ((status = wi_measured_add(one)) == WEIR_ERR_SYSTEM && strstr(weir_detail(), "predictions.lock"))
        ;
    return status == WEIR_OK;
}

/* Each process adds to records of its own and to one of all. */
static void test_several_processes_at_once(void **state)
{
    enum { PROCESSES = 4, EACH = 10 };
    pid_t children[PROCESSES];
    wi_measured got;
    (void)state;
    for (unsigned p = 0; p < PROCESSES; p++) {
        children[p] = fork();
        assert_true(children[p] >= 0);
        if (children[p] > 0)
            continue;
        int failed = 0;
        for (unsigned i = 0; i < EACH; i++) {
            wi_measured own = make(100 * (p + 1) + i, 10, 100, 150), of_all = make(1, 10, 100 + i, 150);
            failed += !add_at_last(&own) + !add_at_last(&of_all);
        }
        _exit(failed);
    }
    for (unsigned p = 0; p < PROCESSES; p++) {
        int status;
        assert_int_equal(waitpid(children[p], &status, 0), children[p]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (unsigned p = 0; p < PROCESSES; p++)
        for (unsigned i = 0; i < EACH; i++)
            assert_true(find(100 * (p + 1) + i, &got));
    assert_true(find(1, &got));
    assert_int_equal(got.loads, PROCESSES * EACH);
    assert_int_equal(got.resident[WEIR_CLASS_WEIGHTS], 100 + EACH - 1);
}

static int open_store(void **state)
{
    (void)state;
    store_open(folder);
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    store_close(folder);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_store, close_store)
    const struct CMUnitTest tests[] = {
        TEST(test_what_was_measured_is_found_again),
        TEST(test_later_loads_only_add),
        TEST(test_without_a_version_the_newest_counts),
        TEST(test_so_many_are_kept),
        TEST(test_a_torn_or_changed_file),
        TEST(test_files_that_are_none),
        TEST(test_a_store_that_is_not_there_is_made),
        TEST(test_several_processes_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
