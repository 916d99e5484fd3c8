/* Without host memory, and on a disk that takes no more: nothing is half done, and what is said is what happened. */
#include "planner/solve.h"
#include <weir/plan.h>
#include "planner/random.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

void *__real_realloc(void *old, size_t bytes);
int __real_fclose(FILE *file);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_fclose(FILE *file);

static long left = -1; /* requests that are met; -1: all */

void *__wrap_realloc(void *old, size_t bytes)
{
    bool fails_now = left >= 0 && left-- == 0;
    return fails_now ? NULL : __real_realloc(old, bytes);
}

/* A close that has troubles of its own. */
int __wrap_fclose(FILE *file)
{
    int answer = __real_fclose(file);
    errno = ENOENT;
    return answer;
}

enum { RUNS = 400, EACH = 4 };

/* Every other address: as many runs as there are addresses, so that pieces are made and split. */
static void taken_without_memory(void **state)
{
    (void)state;
    bool all_met = false;
    for (long nth = 0; !all_met; nth++) {
        wi_interval_set taken = {0};
        long refused = 0;
        left = nth;
        for (uint64_t i = 0; i < RUNS; i++)
            if (!wi_interval_set_add(&taken, 2 * EACH * i, 2 * EACH * i + EACH)) {
                uint32_t piece = 0;
                refused++;
                assert_int_equal(wi_interval_set_gap(&taken, &piece, 2 * EACH * i, EACH, 1), 2 * EACH * i);
                assert_true(wi_interval_set_add(&taken, 2 * EACH * i, 2 * EACH * i + EACH));
            }
        all_met = left >= 0;
        left = -1;
        assert_int_equal(refused, !all_met);
        uint32_t piece = 0;
        for (uint64_t i = 0; i < RUNS; i++)
            assert_int_equal(wi_interval_set_gap(&taken, &piece, 2 * EACH * i, EACH, 1), 2 * EACH * i + EACH);
        wi_interval_set_clear(&taken);
        assert_true(nth < RUNS);
    }
}

/* What is told is why it could not be written, and not what closing the file came upon. */
static void a_disk_that_is_full(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-plan-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    uint64_t seed = 5;
    weir_buffers *list = random_list(&seed, 100, 50, 1000);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 16);
    struct rlimit before, small;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    weir_status status = weir_plan_save(plan, path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    check_status(status, WEIR_ERR_SYSTEM, "weir_plan_save", __FILE__, __LINE__);
    assert_non_null(strstr(weir_detail(), strerror(EFBIG)));
    ok(weir_plan_save(plan, path));
    weir_plan_destroy(plan);
    weir_buffers_destroy(list);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taken_without_memory),
        cmocka_unit_test(a_disk_that_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
