/* The search for the smallest cap, over replays that only pretend: it finds the answer, whatever that is, and does not take
 * a lucky cap for it. */
#include "../core/core.h"

#include "cli/replay/replay.h"

enum { PEAK = 500000, STEP = PEAK / 500 };

static uint64_t smallest, lucky, unlucky; /* caps from the first on complete, and the second; never the third */
static unsigned runs;
static bool broken;

weir_status wi_replay_run(const wi_replay_plan *plan, const wi_replay_settings *settings, wi_replay_result *out)
{
    (void)plan;
    assert_true(settings->stop);
    assert_int_equal(settings->lag, 7);
    runs++;
    *out = (wi_replay_result){.passes = calloc(1, sizeof *out->passes), .count = 1};
    bool good = settings->cap != unlucky && (settings->cap >= smallest || settings->cap == lucky);
    out->passes[0] = (wi_replay_pass){.nanoseconds = settings->cap, .failures = !good};
    return broken ? weir_fail(WEIR_ERR_DRIVER, "broken") : WEIR_OK;
}

void wi_replay_result_clear(wi_replay_result *result)
{
    free(result->passes);
}

double wi_replay_ns(const wi_replay_plan *plan, const wi_replay_result *result)
{
    (void)plan;
    return (double)result->passes[0].nanoseconds;
}

static wi_replay_cap search(void)
{
    wi_replay_plan plan = {.name = "trace", .peak = PEAK, .count = 1};
    wi_replay_settings settings = {.device = "host", .lag = 7};
    wi_replay_cap found;
    runs = 0;
    ok(wi_replay_min_cap(&plan, &settings, NULL, &found));
    assert_int_equal(runs, found.attempts);
    return found;
}

static void expect(uint64_t bytes)
{
    wi_replay_cap found = search();
    assert_int_equal(found.bytes, bytes);
    if (bytes)
        assert_true(found.ns == (double)bytes);
}

static void test_every_answer(void **state)
{
    (void)state;
    lucky = unlucky = 0;
    for (uint64_t step = 0; step < 700; step++) {
        smallest = PEAK + step * STEP;
        expect(smallest);
        assert_true(runs <= 24);
        smallest -= 1;
        expect(PEAK + step * STEP);
    }
    smallest = 63 * (uint64_t)PEAK;
    expect(smallest);
    smallest = 65 * (uint64_t)PEAK;
    expect(0);
    smallest = UINT64_MAX;
    expect(0);
}

static void test_not_monotone(void **state)
{
    (void)state;
    smallest = PEAK + 40 * STEP;
    unlucky = 0;
    for (uint64_t step = 0; step < 39; step++) {
        lucky = PEAK + step * STEP; /* alone among those that fail */
        expect(smallest);
    }
    lucky = PEAK + 39 * STEP; /* the one above completes: it is an answer */
    expect(lucky);
    lucky = 0;
    for (uint64_t step = 41; step < 200; step++) {
        unlucky = PEAK + step * STEP; /* above it everything completes again */
        wi_replay_cap found = search();
        assert_true(found.bytes == unlucky + STEP || found.bytes == smallest);
        assert_true(found.bytes != unlucky && found.bytes + STEP != unlucky);
    }
    unlucky = 0;
}

static void test_broken(void **state)
{
    (void)state;
    wi_replay_plan plan = {.name = "trace", .peak = PEAK, .count = 1};
    wi_replay_settings settings = {.device = "host", .lag = 7};
    wi_replay_cap found;
    broken = true;
    fails(WEIR_ERR_DRIVER, wi_replay_min_cap(&plan, &settings, NULL, &found));
    broken = false;
    assert_int_equal(found.bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_answer),
        cmocka_unit_test(test_not_monotone),
        cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
