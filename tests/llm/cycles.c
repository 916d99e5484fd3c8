/* cycles.c: a model is loaded, run and unloaded again and again: nothing is left in the ledger, and little of the heap, no thread
 * and no open file, and nothing is complained of.
 *
 *   test-llm-cycles [COUNT] */
#include "common.h"

#include <dirent.h>
#include <malloc.h>
#include <stdatomic.h>

/* What malloc itself keeps differs from run to run. */
enum { WARM = 8, MOST_LEFT = 300, UNSTEADY = 16384 };

static int cycles = 20;

/* Bytes that malloc has given out. */
static double heap(void)
{
    malloc_trim(0);
    struct mallinfo2 now = mallinfo2();
    return (double)now.uordblks + (double)now.hblkhd;
}

static int entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* What goes wrong where nobody is left to be told of it is said in the log. */
static atomic_int complaints;

static void on_log(weir_log_level level, const char *text, void *user)
{
    (void)user;
    print_error("%d: %s\n", (int)level, text);
    atomic_fetch_add(&complaints, 1);
}

static void one_cycle(bench *it, const weir_setting *settings, size_t count)
{
    static const weir_setting ways[][3] = {{GREEDY("3"), {"logprobs", "0"}},
                                           {{"tokens", "3"}, {"temperature", "1"}, {"seed", "3"}},
                                           {GREEDY("3"), {"regex", "[a-c]{3}"}}};
    const weir_tensor inputs[] = {text_input("the page"), text_input("a cab"), bytes_input("messages", "user 2\nhi\n")};
    OK(bench_load(it, settings, count));
    for (int i = 0; i < 3; i++) {
        weir_outputs outputs;
        bool seeded = count > 1 && i == 1; /* runs together take the seed of their load */
        OK(infer(it, &inputs[i], ways[i], seeded ? 2 : 3, &outputs));
        release(it, &outputs);
    }
    bench_unload(it);
    assert_int_equal(stats_of(it).live, 0);
}

static void cycle(const char *path, const weir_setting *settings, size_t count)
{
    bench it = bench_on(path, 1ull << 30, NULL);
    OK(weir_log_set(on_log, NULL, WEIR_LOG_WARNING));
    for (int i = 0; i < WARM; i++)
        one_cycle(&it, settings, count);
    double before = heap();
    int threads = entries("/proc/self/task"), files = entries("/proc/self/fd");
    for (int i = 0; i < cycles; i++)
        one_cycle(&it, settings, count);
    double left = heap() - before;
    print_message("%s, %zu settings: %.0f bytes of the heap are left by %d cycles\n", path, count, left, cycles);
    assert_true(left < MOST_LEFT * cycles + UNSTEADY);
    assert_int_equal(entries("/proc/self/task"), threads);
    assert_int_equal(entries("/proc/self/fd"), files);
    bench_close(&it);
    OK(weir_log_set(NULL, NULL, WEIR_LOG_WARNING));
    assert_int_equal(atomic_load(&complaints), 0);
}

static void test_cycles(void **state)
{
    (void)state;
    for (int which = 0; which < MODELS; which++)
        cycle(the_model(which), one_thread, 1);
}

static void test_cycles_with_several_sequences(void **state)
{
    (void)state;
    const weir_setting several[] = {{"threads", "1"}, {"sequences", "3"}};
    cycle(the_model(SHARED), several, 2);
}

/* Loads that fail, runs that fail. */
static void test_failures(void **state)
{
    (void)state;
    const weir_setting wrong[] = {{"regex", "(a"}};
    weir_outputs outputs;
    weir_tensor input = text_input("the page");
    bench it = bench_open(the_model(SHARED)), other = bench_on(the_model(CONCAT), 1u << 18, NULL);
    double before = 0;
    for (int i = 0; i < WARM + cycles; i++) {
        if (i == WARM)
            before = heap();
        assert_int_equal(bench_load(&other, one_thread, 1), WEIR_ERR_OUT_OF_MEMORY);
        assert_int_equal(infer(&it, &input, wrong, 1, &outputs), WEIR_ERR_INVALID);
    }
    double left = heap() - before;
    print_message("%.0f bytes of the heap are left by %d failures\n", left, cycles);
    assert_true(left < MOST_LEFT * cycles + UNSTEADY);
    bench_close(&other);
    bench_close(&it);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cycles),
        cmocka_unit_test(test_cycles_with_several_sequences),
        cmocka_unit_test(test_failures),
    };
    cycles = argc > 1 ? atoi(argv[1]) : cycles;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
