/* Streams of others that end without a word, with work on them, and whose address the next stream has: by hand-written scripts,
 * and many of them at random. */
#include "sim.h"

#define WORLD "world clients=4 streams=8 budget=8388608 device=268435456 granule=2097152 seed=%d resource=%s\n"
#define STREAMS                                                                                                        \
    "client client=1\n"                                                                                                \
    "stream stream=7 flags=1\n"                                                                                        \
    "stream stream=3\n"                                                                                                \
    "stall stream=7 bytes=3000000000\n"

static void finds_nothing(const char *steps)
{
    static const char *const resources[] = {"mapped", "direct", "segments", "async"};
    for (size_t i = 0; i < 2 * sizeof resources / sizeof resources[0]; i++) { /* each without thread caches, and with */
        char text[2048];
        simulate_options o;
        simulate_result r;
        snprintf(text, sizeof text, WORLD STREAMS "%s", 2 + (int)(i % 2), resources[i / 2], steps);
        simulate_defaults(&o);
        o.script = text;
        assert_true(simulate(&o, &r));
        if (r.found.violations + r.found.count[ORACLE_USER] > 0)
            fail_msg("%s: %s\n%s", resources[i / 2], r.found.first, text);
    }
}

/* What was freed in its order. */
static void frees_wait_for_its_work(void **state)
{
    (void)state;
    finds_nothing("allocate client=1 stream=7 slot=1 bytes=6000000\n"
                  "touch stream=7 slot=1 bytes=6000000 flags=1\n"
                  "free stream=7 slot=1\n"
                  "replace stream=7 class=3\n"
                  "allocate client=1 slot=2 bytes=6000000 flags=2\n"
                  "allocate client=1 stream=7 slot=3 bytes=6000000 flags=2\n");
}

/* What was used there in a launch. */
static void uses_wait_for_its_work(void **state)
{
    (void)state;
    finds_nothing("allocate client=1 stream=3 slot=1 bytes=6000000 count=1\n"
                  "begin stream=7 slot=1 flags=1\n"
                  "end\n"
                  "free stream=3 slot=1\n"
                  "replace stream=7 class=3\n"
                  "allocate client=1 slot=2 bytes=6000000 flags=2\n");
}

/* The block is freed, or used again, when the stream is gone. */
static void later_uses_wait_for_its_work(void **state)
{
    (void)state;
    finds_nothing("allocate client=1 stream=3 slot=1 bytes=6000000 count=1\n"
                  "begin stream=7 slot=1 flags=1\n"
                  "end\n"
                  "replace stream=7 class=3\n"
                  "begin stream=3 slot=1 flags=1\n"
                  "end\n"
                  "free slot=1\n"
                  "allocate client=1 slot=2 bytes=6000000 flags=2\n");
}

/* Zeros that an allocation queued there. */
static void zeros_are_waited_for(void **state)
{
    (void)state;
    finds_nothing("allocate client=1 stream=7 slot=1 bytes=6000000 flags=1 count=1\n"
                  "replace stream=7 class=3\n"
                  "free slot=1\n"
                  "allocate client=1 slot=2 bytes=6000000 flags=2\n");
    finds_nothing("allocate client=1 stream=7 slot=1 bytes=6000000 flags=1 count=1\n"
                  "replace stream=7 class=3\n"
                  "begin stream=3 slot=1\n"
                  "end\n");
}

/* No event can be set on the next stream: it is being captured, or the driver fails. In the end all is anyone's. */
static void what_no_event_stands_behind_is_not_lost(void **state)
{
    (void)state;
    for (int how = 1; how <= 2; how++) {
        char steps[512];
        snprintf(steps, sizeof steps,
                 "allocate client=1 stream=7 slot=1 bytes=6000000\n"
                 "free stream=7 slot=1\n"
                 "replace stream=7 class=3 flags=%d\n"
                 "allocate client=1 slot=2 bytes=6000000 flags=2\n"
                 "allocate client=1 stream=7 slot=3 bytes=10000\n"
                 "free stream=7 slot=3\n"
                 "snapshot\n",
                 how);
        finds_nothing(steps);
    }
}

/* Another thread registers the next stream as well, and frees there, before the first one is through. */
static void two_register_the_next_one(void **state)
{
    (void)state;
    finds_nothing("allocate client=1 stream=7 slot=1 bytes=6000000\n"
                  "touch stream=7 slot=1 bytes=6000000 flags=1\n"
                  "free stream=7 slot=1\n"
                  "replace stream=7 class=3 flags=4\n"
                  "allocate client=1 stream=7 slot=3 bytes=6000000 flags=2\n");
}

/* Wrong was the simulator: a replacement within the call forgot that the other thread had registered the first stream, too, so that
 * its id seemed to be the one of the stream before. Found at seed 1001 of 400,000 steps. */
static void another_is_replaced_when_two_have_registered_the_next_one(void **state)
{
    (void)state;
    finds_nothing("stream stream=2 flags=1\n"
                  "allocate client=1 stream=7 slot=1 bytes=6000000\n"
                  "free stream=7 slot=1\n"
                  "replace stream=7 class=3 flags=4\n"
                  "  replace stream=2 class=3 window=2\n");
}

/* What a thread's cache kept there. */
static void thread_cached_blocks_wait_for_its_work(void **state)
{
    (void)state;
    finds_nothing("allocate client=1 stream=7 slot=1 bytes=40000\n"
                  "touch stream=7 slot=1 bytes=40000 flags=1\n"
                  "free stream=7 slot=1\n"
                  "replace stream=7 class=3\n"
                  "allocate client=1 slot=2 bytes=8000000 flags=2\n"
                  "allocate client=1 stream=7 slot=3 bytes=40000\n");
}

/* At each place of the end of a stream another thread works on it and frees what it used, or reads, fills, allocates, calls or
 * ends it, too. Answers how often it was refused. */
static uint64_t come_late(const char *format, unsigned kind, unsigned place, unsigned window, int own, uint64_t bytes)
{
    enum { TEXT = 2048, ALLOCATES = 3 };
    char text[TEXT], error[256];
    world_options options;
    simulate_options o;
    step *steps;
    wi_bug plant;
    size_t count, used = 0;
    simulate_defaults(&o);
    options = o.world;
    snprintf(text, sizeof text, format, own ? 0 : 1, (unsigned long long)bytes, (unsigned long long)bytes,
             kind == ALLOCATES ? 4 : 1, (unsigned long long)bytes, kind, place, window);
    assert_true(script_read(text, &options, &plant, &steps, &count, error, sizeof error));
    world *w = world_create(&options);
    assert_non_null(w);
    while (used < count)
        used += world_step(w, steps + used, count - used);
    uint64_t refused = w->late_refused;
    world_end(w);
    if (world_found(w)->violations + world_found(w)->count[ORACLE_USER] > 0)
        fail_msg("%s\n%s", world_found(w)->first, text);
    world_destroy(w);
    free(steps);
    return refused;
}

/* What is on the stream has not passed when its end begins, nor has what comes while it is waited for. */
static void who_comes_late_is_waited_for_or_refused(void **state)
{
    static const char format[] =
        "world clients=4 streams=8 budget=8388608 device=268435456 granule=2097152 seed=3 resource=mapped\n"
        "client client=1\n"
        "stream stream=7 flags=%d\n"
        "stream stream=3\n"
        "stall stream=7 bytes=3000000000\n"
        "allocate client=1 stream=7 slot=1 bytes=%llu\n"
        "touch stream=7 slot=1 bytes=%llu flags=1\n"
        "stream stream=7\n"
        "  late client=1 stream=7 slot=%d class=3 bytes=%llu flags=1 count=%u at=%u window=%u\n"
        "allocate client=1 stream=3 slot=2 bytes=8000000 flags=2\n"
        "allocate client=1 stream=3 slot=3 bytes=40000 flags=2\n"
        "touch stream=3 slot=3 bytes=40000 flags=1\n"
        "snapshot\n";
    enum { ENDS = 5, KINDS = 6, PLACES = 4, WINDOWS = 4 };
    static const uint64_t sizes[] = {40000, 6000000};
    (void)state;
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (int own = 0; own < 2; own++)
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                uint64_t refused = 0;
                for (unsigned at = 0; at < PLACES * WINDOWS; at++)
                    refused += come_late(format, kind, at / WINDOWS, at % WINDOWS, own, sizes[i]);
                assert_true(refused > 0 || kind == ENDS);
            }
}

static void nothing_is_found_at_random(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 3; seed++) {
        simulate_options o;
        simulate_defaults(&o);
        o.steps = steps_here(60000);
        o.world.seed = 100 + seed;
        o.world.streams = 4 * seed;
        o.shrink_steps = 200000;
        o.world.resource = seed == 3 ? "segments" : "mapped";
        find_nothing(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frees_wait_for_its_work),
        cmocka_unit_test(uses_wait_for_its_work),
        cmocka_unit_test(later_uses_wait_for_its_work),
        cmocka_unit_test(zeros_are_waited_for),
        cmocka_unit_test(what_no_event_stands_behind_is_not_lost),
        cmocka_unit_test(two_register_the_next_one),
        cmocka_unit_test(another_is_replaced_when_two_have_registered_the_next_one),
        cmocka_unit_test(thread_cached_blocks_wait_for_its_work),
        cmocka_unit_test(who_comes_late_is_waited_for_or_refused),
        cmocka_unit_test(nothing_is_found_at_random),
    };
    return cmocka_run_group_tests_name("ends", tests, NULL, NULL);
}
