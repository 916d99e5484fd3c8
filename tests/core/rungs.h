/* What the tests of the ladder share: on the device that WEIR_TEST_DEVICE names, or the host. */
#ifndef TESTS_RUNGS_H
#define TESTS_RUNGS_H

#include "core.h"
#include "core/faulty.h"

#include "sim/device/device.h"
#include "runtime/runtime.h"

enum { GRANULES = 16, BUDGET = GRANULES << 16, HALF = BUDGET / 2, QUARTER = BUDGET / 4 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *one, *two;
    weir_stream a, b;
    bool sim; /* no bytes, and work is done when somebody waits for it */
    gate gate;
} fixture;

static const char *device(void)
{
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name ? name : "host";
}

static inline void begin(fixture *f)
{
    f->one = open_client(f->runtime, "one", 0, 0);
    f->two = open_client(f->runtime, "two", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    f->gate = (gate)GATE;
}

static inline fixture start(const char *resource)
{
    fixture f = {.sim = strncmp(device(), "sim", 3) == 0};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = resource};
    if (f.sim)
        wi_sim_configure(&(wi_sim_options){.seed = 1, .granule = GRANULE, .bytes = 64 * MIB});
    ok(weir_runtime_create(device(), &options, &f.runtime));
    begin(&f);
    return f;
}

static inline fixture start_over(const wi_driver *driver, uint64_t budget)
{
    fixture f = {0};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget, .resource = "mapped"};
    faults_reset(-1);
    ok(wi_runtime_create_over(driver, 0, &options, &f.runtime));
    begin(&f);
    return f;
}

static inline void end(fixture *f)
{
    if (f->a.id)
        ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->one));
    ok(weir_client_destroy(f->two));
    ok(weir_runtime_destroy(f->runtime));
    assert_true(faults_nothing_left());
}

/* The stream gets work, and gets no further until it is let go. */
static inline void hold(fixture *f, weir_stream stream, void *bytes, uint8_t value, size_t count)
{
    if (!f->sim)
        ok(weir_call(f->runtime, pass_gate, &f->gate, stream));
    ok(weir_fill(f->runtime, bytes, value, count, stream));
}

static inline void let_go(fixture *f, weir_stream stream)
{
    if (!f->sim)
        open_gate(&f->gate);
    ok(weir_stream_synchronize(stream));
}

/* Since the last time that was asked: one block was come by, in this way. */
static inline void check_rung(fixture *f, weir_stats *last, weir_rung rung, const char *file, int line)
{
    weir_stats now = take_snapshot(f->runtime).device;
    uint64_t sum = now.hits;
    for (int i = 0; i < WEIR_RUNG_MOST; i++) {
        uint64_t more = now.ladder[i] - last->ladder[i];
        sum += now.ladder[i];
        if (more != (i == (int)rung))
            print_error("%s: %llu more\n", weir_name_of(WEIR_NAMES_RUNG, i), (unsigned long long)more);
        _assert_true(more == (i == (int)rung), weir_name_of(WEIR_NAMES_RUNG, rung), file, line);
    }
    _assert_true(sum == now.allocations, "every block was come by somehow", file, line);
    *last = now;
}
#define came_by(rung) check_rung(&f, &last, (rung), __FILE__, __LINE__)

#endif
