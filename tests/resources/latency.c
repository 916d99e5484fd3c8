/* One client's long work must not hold up another's allocations: test-latency host|stub|cuda STACK.
 *
 * Off a GPU the work ends when the test says so, behind the last allocation: whoever waited for it would do so for good. On one it
 * is a kernel of a second, beside which all of them have to fit; a machine that does other work at the same time may take the
 * processor away for longer, so that it is tried again. How long they took is printed, and asserted nowhere. */
#include "resources/contract.h"

enum { COUNT = 1000, WINDOW = 16, ATTEMPTS = 10 };
#define SECOND UINT64_C(1000000000)

elsewhere other;

/* On a GPU a kernel, elsewhere a host function that waits at the gate; and blocks freed behind it, whose charge is answered. */
static uint64_t start_long_work(fixture *f, gate *g)
{
    enum { BLOCKS = 8, BYTES = 1000000 };
    void *blocks[BLOCKS];
    uint64_t charged = 0;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = take(f->one, BYTES, f->a);
        charged += details_of(blocks[i]).charged;
    }
    if (place.gpu)
        assert_true(spin_on_gpu(weir_stream_native(f->a), SECOND));
    else
        ok(weir_call(f->runtime, pass_gate, g, f->a));
    for (int i = 0; i < BLOCKS; i++) {
        ok(weir_fill(f->runtime, blocks[i], 1, BYTES, f->a));
        ok(weir_free(f->one, blocks[i], f->a));
    }
    return charged;
}

static int compare(const void *left, const void *right)
{
    uint64_t l = *(const uint64_t *)left, r = *(const uint64_t *)right;
    return (l > r) - (l < r);
}

typedef struct times {
    uint64_t take[COUNT], give[COUNT];
} times;

static void measure(fixture *f, times *t)
{
    static const size_t most[] = {1000, 10000, 100000, 500000};
    uint64_t random = 5;
    void *window[WINDOW] = {NULL};
    for (int i = 0; i < COUNT; i++) {
        void **slot = &window[next_random(&random) % WINDOW];
        size_t bytes = next_random(&random) % most[next_random(&random) % 4] + 1;
        uint64_t start = now_ns();
        ok(weir_free(f->two, *slot, f->b));
        t->give[i] = now_ns() - start;
        start = now_ns();
        *slot = take(f->two, bytes, f->b);
        t->take[i] = now_ns() - start;
    }
    for (int i = 0; i < WINDOW; i++)
        ok(weir_free(f->two, window[i], f->b));
}

/* Whether all of it was beside the long work. */
static bool attempt(fixture *f, times *t)
{
    gate g = GATE;
    uint64_t behind = start_long_work(f, &g);
    measure(f, t);
    snapshot s = take_snapshot(f->runtime);
    bool beside = unpassed(&s) >= behind;
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    drain(f);
    qsort(t->take, COUNT, sizeof t->take[0], compare);
    qsort(t->give, COUNT, sizeof t->give[0], compare);
    const size_t half = COUNT / 2, most = COUNT * 99 / 100 - 1, last = COUNT - 1;
    print_message("allocations: half within %.1f us, 99%% within %.1f, all within %.1f; frees: %.1f, %.1f, %.1f\n",
                  (double)t->take[half] / 1e3, (double)t->take[most] / 1e3, (double)t->take[last] / 1e3,
                  (double)t->give[half] / 1e3, (double)t->give[most] / 1e3, (double)t->give[last] / 1e3);
    return beside;
}

static void long_work_holds_up_nobody_else(void **state)
{
    times *t = malloc(sizeof *t);
    bool beside = false;
    ok(weir_option_set("wait", "3600s")); /* which nobody has a reason to */
    for (int i = 0; i < (place.gpu ? ATTEMPTS : 1) && !beside; i++)
        beside = attempt(*state, t);
    ok(weir_option_set("wait", NULL));
    free(t);
    assert_true(beside);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest latency[] = {CASE(long_work_holds_up_nobody_else)};
    int answer = choose_place(argc, argv);
    if (answer != 0)
        return answer;
    return cmocka_run_group_tests(latency, NULL, NULL);
}
