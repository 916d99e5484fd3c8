/* The runtime, used at random under the oracle: several budgets, granules, numbers of clients and streams. */
#include "sim.h"

static void nothing_is_found_in_other_worlds(void **state)
{
    (void)state;
    static const struct {
        uint64_t budget, granule;
        unsigned clients, streams;
    } worlds[] = {{6 * WI_MIB, 2 * WI_MIB, 2, 2},    {16 * WI_MIB, 2 * WI_MIB, 4, 8},
                  {200 * WI_MIB, 2 * WI_MIB, 6, 16}, {24 * WI_MIB, 64 * WI_KIB, 8, 12},
                  {250 * WI_MIB, 32 * WI_MIB, 4, 9}, {40 * WI_MIB, 1 * WI_MIB, 1, 1},
                  {64 * WI_MIB, 2 * WI_MIB, 16, 62}};
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        simulate_options o;
        simulate_defaults(&o);
        o.steps = steps_here(getenv("WEIR_TEST_LONG") ? 400000 : 40000);
        o.world.seed = 1000 + i;
        o.world.budget = worlds[i].budget;
        o.world.granule = worlds[i].granule;
        o.world.clients = worlds[i].clients;
        o.world.streams = worlds[i].streams;
        o.world.faults = i % 3 != 0;
        find_nothing(&o);
    }
}

/* The same seed is the same run; another is another. */
static void seeds_decide(void **state)
{
    (void)state;
    simulate_result r[3];
    for (int i = 0; i < 3; i++) {
        simulate_options o;
        simulate_defaults(&o);
        o.steps = 20000;
        o.world.seed = i < 2 ? 7 : 8;
        assert_true(simulate(&o, &r[i]));
    }
    assert_memory_equal(r[0].ladder, r[1].ladder, sizeof r[0].ladder);
    assert_memory_equal(r[0].done, r[1].done, sizeof r[0].done);
    assert_memory_not_equal(r[0].ladder, r[2].ladder, sizeof r[0].ladder);
}

/* Nothing is found, with every operation, and on every rung that this resource has. */
static void nothing_is_found(void **state)
{
    (void)state;
    simulate_options o;
    simulate_result r;
    simulate_defaults(&o);
    o.steps = 500000;
    run_and_find_nothing(&o, &r);
    for (unsigned i = 0; i < operation_count(); i++)
        assert_true(r.done[i] > 0);
    for (unsigned i = 0; i <= LADDER_REFUSED_PENDING; i++)
        if (r.ladder[i] == 0)
            fail_msg("%s was never met", ladder_name((ladder_rung)i));
    for (unsigned i = 0; i < ORACLE_REUSES; i++)
        if (r.reuse[i] == 0)
            fail_msg("what was freed in order was never had again: %s", oracle_reuse_name((oracle_reuse)i));
    assert_true(r.faults > 0);
}

/* What is drawn at random, with steps within steps, is the same again from its text. */
static void scripts_are_read_as_written(void **state)
{
    (void)state;
    simulate_options o;
    simulate_defaults(&o);
    o.world.resource = "mapped";
    step_list drawn = {0};
    world *w = world_create(&o.world);
    for (int i = 0; i < 2000; i++)
        assert_true(world_advance(w, &drawn));
    world_end(w);
    assert_true(w->nested > 100);
    char *text = script_write(&o.world, WI_BUG_DROP_WAIT, drawn.list, drawn.count), error[128];
    world_options read = {0};
    wi_bug plant;
    step *again;
    size_t count;
    assert_true(script_read(text, &read, &plant, &again, &count, error, sizeof error));
    assert_int_equal(count, drawn.count);
    assert_int_equal(plant, WI_BUG_DROP_WAIT);
    assert_memory_equal(again, drawn.list, count * sizeof *again);
    assert_int_equal(read.budget, o.world.budget);
    assert_string_equal(read.resource, "mapped");
    steps_outcome outcome;
    assert_true(run_steps(&o.world, again, count, &outcome));
    assert_memory_equal(outcome.done, w->done, sizeof outcome.done);
    assert_memory_equal(outcome.ladder, w->ladder, sizeof outcome.ladder);
    world_destroy(w);
    free(drawn.list);
    free(again);
    free(text);
}

/* However few attempts were asked for. */
static void a_long_script_becomes_short(void **state)
{
    (void)state;
    enum { STEPS = 12000, FEW = 2 * STEPS, SHORT = 20 };
    simulate_options o;
    simulate_defaults(&o);
    o.world.resource = "mapped";
    step_list drawn = {0};
    world *w = world_create(&o.world);
    for (int i = 0; i < STEPS; i++)
        assert_true(world_advance(w, &drawn));
    world_end(w);
    world_destroy(w);
    unsigned wrong = 0;
    while (strcmp(operation_name(wrong), "allocate") != 0)
        wrong++;
    for (size_t i = 0; i < 8; i++) /* one of them where a client and a free slot are: no flag is 8 */
        drawn.list[drawn.count - 1 - i] = (step){
            .operation = (uint8_t)wrong, .field = {[F_SLOT] = i, [F_CLIENT] = i % 4, [F_BYTES] = 1, [F_FLAGS] = 8}};
    size_t count = drawn.count;
    shrink(&o.world, ORACLE_ANSWER, FEW, drawn.list, &count);
    assert_in_range(count, 1, SHORT);
    free(drawn.list);
}

static void bad_scripts_are_told(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "# nothing\n",
                                      "free slot=1\n",
                                      "world clients=0\n",
                                      "world granule=3\n",
                                      "world budget\n",
                                      "world plant=x\n",
                                      "world\nfly\n",
                                      "world\nfree slot=x\n",
                                      "world\nfree wing=1\n",
                                      "world\nfree slot=99999999999999999999\n",
                                      "world resource=x\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        simulate_options o;
        simulate_result r;
        simulate_defaults(&o);
        o.script = bad[i];
        assert_false(simulate(&o, &r));
        assert_true(strlen(r.error) > 0);
    }
    /* Numbers that are none of the world's do nothing. */
    simulate_options o;
    simulate_defaults(&o);
    o.script =
        "world\nclient client=9999999\nallocate slot=99999 stream=77 client=7777 bytes=1\nfree slot=99999 stream=88\n"
        "begin slot=99999 stream=99\nend slot=99999\nstream stream=99\nresize slot=99999 stream=500\n"
        "touch slot=3 stream=64\nwork stream=70 count=3\nstall stream=88 bytes=1\nsynchronize stream=99\n";
    find_nothing(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_found),
        cmocka_unit_test(nothing_is_found_in_other_worlds),
        cmocka_unit_test(seeds_decide),
        cmocka_unit_test(scripts_are_read_as_written),
        cmocka_unit_test(a_long_script_becomes_short),
        cmocka_unit_test(bad_scripts_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
