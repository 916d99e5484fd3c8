/* Scripts that once told of a fault, cut down by the simulator; with what was wrong. */
#include "sim.h"

#define WORLD "world clients=4 streams=8 budget=67108864 device=268435456 granule=2097152 seed=1 resource=mapped\n"

static void finds_nothing(const char *script)
{
    simulate_options o;
    simulate_defaults(&o);
    o.script = script;
    find_nothing(&o);
}

/* The oracle: a read that weir was told of, and refused because of a fault, it took for remembered. The free waits for the
 * read before it alone, and is not pending once that has passed. */
static void a_use_that_was_refused_is_not_waited_for(void **state)
{
    (void)state;
    finds_nothing(WORLD "client client=2\n"
                        "stream stream=1\n"
                        "stream stream=2\n"
                        "stream stream=3\n"
                        "allocate client=2 stream=1 bytes=30720\n"
                        "touch stream=1 bytes=30720 flags=1\n"
                        "record stream=2\n"
                        "work count=50\n"
                        "fault class=8\n"
                        "record stream=2\n"
                        "free stream=3\n"
                        "snapshot\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_use_that_was_refused_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
