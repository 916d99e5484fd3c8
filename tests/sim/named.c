/* Capture pools that requests name, in the simulator: by a hand-written script, with a fault at each call of the driver's,
 * and at random until all has happened that can. */
#include "sim.h"

/* What the step `named` does, by its flags. */
#define OPEN   "named stream=1 class=3\n"
#define BEGIN  "named count=1 " /* captures the stream for the pool, by weir_capture_begin */
#define JOIN   "named "
#define GET    "named flags=4 "
#define FREE   "named flags=13 "
#define USE    "named flags=20 "
#define LAUNCH "named flags=23 "
#define WRONG  "named flags=26 "
#define CLOSE  "named flags=28 "
#define END    "named flags=29\n"

/* Work before a capture, a capture of two streams, a free on a stream that did not get the block, launches, a second
 * capture that has what the first one freed, bytes that serve again only when the device is past a read that was recorded,
 * and a close while blocks are live. */
static const char captures[] =
    "world clients=2 streams=4 budget=16777216 device=67108864 granule=2097152 seed=1 resource=%s\n"
    "client client=0\nclient client=1\nstream stream=1\nstream stream=2\nstream stream=3\nstream stream=4\n" OPEN GET
    "stream=1 bytes=70000\n" USE "stream=2 more=1\n" BEGIN "stream=1\n" JOIN "stream=2\n" GET "more=1 bytes=5000\n" GET
    "more=17 bytes=6000\n" GET "more=5 bytes=70000\n" FREE "more=1 count=3\n" FREE "more=1 count=1\n" GET
    "more=1 bytes=5000\n" WRONG "stream=4 count=2\n" WRONG "stream=4 count=3\n" WRONG "count=5\n" FREE
    "stream=2\n" END LAUNCH "stream=2\n" USE "stream=4 more=2\n" FREE "stream=4 count=1\n" LAUNCH "stream=4\n" JOIN
    "stream=2\n" GET "more=1 bytes=70000\n" GET "more=1 bytes=4000\n" END "snapshot\n" LAUNCH "count=1\n" WRONG
    "stream=1 count=1\n" FREE "stream=1\n" GET "stream=1 bytes=60000\nwork count=500\n" GET
    "stream=1 bytes=60000\n" LAUNCH "stream=1\n" CLOSE "\nsnapshot\nwork count=12\ntouch stream=3 slot=1 flags=1\n"
    "free stream=3 slot=1\nsnapshot\n";

typedef struct script {
    world_options options;
    step *steps;
    size_t count;
} script;

static script read_script(const char *resource)
{
    simulate_options o;
    char error[128], text[4096];
    wi_bug plant;
    script s;
    simulate_defaults(&o);
    s.options = o.world;
    snprintf(text, sizeof text, captures, resource);
    if (!script_read(text, &s.options, &plant, &s.steps, &s.count, error, sizeof error))
        fail_msg("%s", error);
    return s;
}

static steps_outcome run_script(const script *s)
{
    steps_outcome outcome;
    assert_true(run_steps(&s->options, s->steps, s->count, &outcome));
    if (outcome.found.violations + outcome.found.count[ORACLE_USER] > 0)
        fail_msg("%s, calls %ld and %ld: %s", s->options.resource, s->options.first.at, s->options.second.at,
                 outcome.found.first);
    return outcome;
}

static const char *const stacks[] = {"mapped", "segments"};

/* Of the script each step does what it says. */
static void the_script_does_it_all(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        script s = read_script(stacks[i]);
        world *w = world_create(&s.options);
        for (size_t at = 0; at < s.count;)
            at += world_step(w, s.steps + at, s.count - at);
        assert_int_equal(w->named_counts[NAMED_FRESH], 6);
        assert_int_equal(w->named_counts[NAMED_AGAIN], 3);
        assert_int_equal(w->named_counts[NAMED_BESIDE], 1);
        assert_int_equal(w->named_counts[NAMED_LAUNCHED], 4);
        assert_int_equal(w->named_counts[NAMED_REFUSED], 5);
        assert_int_equal(w->named_counts[NAMED_CLOSED], 1);
        assert_int_equal(w->named_counts[NAMED_LEFT_LIVE], 5);
        world_end(w);
        if (world_found(w)->violations + world_found(w)->count[ORACLE_USER] > 0)
            fail_msg("%s: %s", stacks[i], world_found(w)->first);
        world_destroy(w);
        free(s.steps);
    }
}

/* Each call fails once, and each of some pairs. */
static void every_call_fails(void **state)
{
    (void)state;
    uint64_t stride = getenv("WEIR_TEST_LONG") ? 1 : steps_here(20) < 20 ? 29 : 5;
    for (int i = 0; i < 2; i++) {
        script s = read_script(stacks[i]);
        uint64_t calls = run_script(&s).calls;
        if (calls < 10 || calls > 400)
            fail_msg("%d calls", (int)calls);
        for (uint64_t first = 0; first < calls + 5; first++) {
            s.options.first = (wi_sim_fault){WI_SIM_CALLS, (long)first, false, WEIR_ERR_DRIVER};
            s.options.second = (wi_sim_fault){.at = -1};
            (void)run_script(&s);
            for (uint64_t second = first + 1; second < calls + 5; second += stride) {
                s.options.second = (wi_sim_fault){WI_SIM_CALLS, (long)second, false, WEIR_ERR_DRIVER};
                (void)run_script(&s);
            }
        }
        free(s.steps);
    }
}

static int never_counted(const uint64_t *counts)
{
    int i = 0;
    while (i < NAMED_COUNTS && counts[i] > 0)
        i++;
    return i;
}

/* Everything happens that can: an instrumented build, too, goes on until it has. */
static void all_of_it_happens(const char *resource)
{
    uint64_t counts[NAMED_COUNTS] = {0}, enough = steps_here(60000);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        simulate_options o;
        simulate_defaults(&o);
        o.world.seed = 200 + seed;
        o.world.resource = resource;
        o.world.budget = seed * 16 * WI_MIB;
        world *w = world_create(&o.world);
        for (uint64_t i = 0; i < 60000 && world_found(w)->violations == 0; i++) {
            if (i >= enough && (seed < 4 || never_counted(w->named_counts) == NAMED_COUNTS))
                break;
            assert_true(world_advance(w, NULL));
        }
        world_end(w);
        if (world_found(w)->violations + world_found(w)->count[ORACLE_USER] > 0)
            fail_msg("%s, seed %llu: %s", resource, (unsigned long long)o.world.seed, world_found(w)->first);
        for (int i = 0; i < NAMED_COUNTS; i++)
            counts[i] += w->named_counts[i];
        world_destroy(w);
    }
    if (getenv("WEIR_TEST_VERBOSE"))
        for (int i = 0; i < NAMED_COUNTS; i++)
            print_message("%s %d %llu\n", resource, i, (unsigned long long)counts[i]);
    if (never_counted(counts) < NAMED_COUNTS)
        fail_msg("%s: of what named pools do, number %d never happened", resource, never_counted(counts));
}

static void pools_come_and_go(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        all_of_it_happens(stacks[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_script_does_it_all),
        cmocka_unit_test(every_call_fails),
        cmocka_unit_test(pools_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
