/* contents.c: what tells a model by its contents is read once for a file that stays as it is, and again for every other. */
#include "common.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "factory/predict/forecast.h"

static int reads;
/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) ssize_t __wrap_pread(int file, void *to, size_t bytes, off_t at);
ssize_t __real_pread(int file, void *to, size_t bytes, off_t at);
ssize_t __wrap_pread(int file, void *to, size_t bytes, off_t at)
{
    reads++;
    return __real_pread(file, to, bytes, at);
}

static time_t later; /* seconds that the clock goes ahead */
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    int answer = __real_clock_gettime(clock, out);
    out->tv_sec += clock == CLOCK_REALTIME ? later : 0;
    return answer;
}

static char folder[] = "/tmp/weir-contents-XXXXXX";

static int make(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop(void **state)
{
    char path[64];
    (void)state;
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i);
        (void)unlink(path);
    }
    return rmdir(folder);
}

/* In place, so that neither its number nor its size changes; the time does, though the file system's clock may not have gone on. */
static const char *write_file(int number, const char *text)
{
    static char path[64];
    static time_t written = 1000000000;
    const struct timespec times[] = {{.tv_sec = written}, {.tv_sec = written}};
    written++;
    snprintf(path, sizeof path, "%s/%d", folder, number);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    assert_int_equal(futimens(file, times), 0);
    close(file);
    return path;
}

static wi_digest digest_of(const char *path, bool is_read)
{
    wi_digest digest;
    reads = 0;
    assert_true(wi_contents(path, &digest));
    assert_int_equal(reads > 0, is_read);
    return digest;
}

static bool same(wi_digest a, wi_digest b)
{
    return a.high == b.high && a.low == b.low;
}

static void test_a_file_that_stays_is_read_once(void **state)
{
    (void)state;
    const char *path = write_file(0, "one model");
    later = 10;
    wi_digest first = digest_of(path, true);
    assert_true(same(digest_of(path, false), first));
    write_file(0, "two model");
    later = 20;
    wi_digest second = digest_of(path, true);
    assert_false(same(second, first));
    write_file(1, "two model");
    assert_true(same(digest_of(path, true), second)); /* another file of the same contents */
}

/* It may be written once more within one tick of the file system's clock. */
static void test_a_file_that_was_just_written_is_read_each_time(void **state)
{
    (void)state;
    later = 0;
    const char *path = write_file(2, "three");
    wi_digest first = digest_of(path, true);
    write_file(2, "drei!");
    assert_false(same(digest_of(path, true), first));
}

/* Many files come and go: none is taken for another. */
static void test_many_files_are_told_apart(void **state)
{
    enum { FILES = 40 };
    wi_digest all[FILES];
    char text[32];
    (void)state;
    later = 30;
    for (int i = 3; i < FILES; i++) {
        snprintf(text, sizeof text, "model %4d", i);
        all[i] = digest_of(write_file(i, text), true);
        for (int k = 3; k < i; k++)
            assert_false(same(all[i], all[k]));
    }
    for (int i = 3; i < FILES; i++) {
        snprintf(text, sizeof text, "%s/%d", folder, i);
        wi_digest again;
        assert_true(wi_contents(text, &again));
        assert_true(same(again, all[i]));
    }
}

static void test_what_is_no_file_has_no_contents(void **state)
{
    char path[64];
    wi_digest digest;
    (void)state;
    snprintf(path, sizeof path, "%s/none", folder);
    assert_false(wi_contents(path, &digest));
    assert_false(wi_contents("/dev/null", &digest));
    assert_false(wi_contents("/dev/null", &digest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_that_stays_is_read_once),
        cmocka_unit_test(test_a_file_that_was_just_written_is_read_each_time),
        cmocka_unit_test(test_many_files_are_told_apart),
        cmocka_unit_test(test_what_is_no_file_has_no_contents),
    };
    return cmocka_run_group_tests_name("predict-contents", tests, make, drop);
}
