/* Clients are suspended and resumed in the simulator: by hand-written scripts, with a fault at each call, and at random. */
#include "sim.h"

#define WORLD "world clients=3 streams=4 budget=16777216 device=67108864 granule=2097152 seed=1 resource=mapped\n"
#define BEGIN                                                                                                          \
    WORLD "client client=0\nclient client=1\n"                                                                         \
          "stream stream=1\nstream stream=2\nstream stream=3\n"

typedef struct script {
    world_options options;
    step *steps;
    size_t count;
} script;

static script read_script(const char *text)
{
    simulate_options o;
    char error[128];
    wi_bug plant;
    script s;
    simulate_defaults(&o);
    s.options = o.world;
    if (!script_read(text, &s.options, &plant, &s.steps, &s.count, error, sizeof error))
        fail_msg("%s", error);
    return s;
}

static steps_outcome run_script(const script *s)
{
    steps_outcome outcome;
    assert_true(run_steps(&s->options, s->steps, s->count, &outcome));
    if (outcome.found.violations + outcome.found.count[ORACLE_USER] > 0)
        fail_msg("calls %ld and %ld: %s", s->options.first.at, s->options.second.at, outcome.found.first);
    return outcome;
}

/* Two clients change places: written, dropped and untouched blocks, one of several chunks, two in one. */
static const char changes[] =
    BEGIN "allocate client=0 stream=1 slot=1 bytes=5300000 class=1\n"
          "touch stream=1 slot=1 bytes=5300000 flags=1\n"
          "allocate client=0 stream=2 slot=2 bytes=2500000 class=3 count=1\n"
          "begin stream=2 slot=2 flags=1\n"
          "end\n"
          "suspend client=0 flags=1280 stream=3 slot=2\n" /* drops class 3, and promises class 1 */
          "touch stream=1 slot=1 bytes=5300000\n"
          "allocate client=1 stream=3 slot=3 bytes=12000000 class=1\n"
          "touch stream=3 slot=3 bytes=12000000 flags=1\n"
          "resume client=0 stream=1\n"
          "suspend client=1\n"
          "resume client=0 stream=1\n"
          "touch stream=1 slot=1 bytes=5300000\n"
          "begin stream=2 slot=2\n"
          "end\n"
          "snapshot\n"
          "suspend client=0 flags=1024\n"
          "free slot=2\n"
          "resume client=1 stream=2\n"
          "touch stream=2 slot=3\n"
          "free stream=2 slot=3\n"
          "resume client=0 stream=2\n"
          "touch stream=2 slot=1\n"
          "free stream=2 slot=1\n"
          "snapshot\n";

/* The same where copies are shown: used meanwhile, freed meanwhile, and back by piece. */
static const char shown[] = BEGIN "allocate client=0 stream=1 slot=1 bytes=5300000 class=1\n"
                                  "touch stream=1 slot=1 bytes=5300000 flags=1\n"
                                  "allocate client=0 stream=2 slot=2 bytes=2500000 class=3 count=1\n"
                                  "begin stream=2 slot=2 flags=1\n"
                                  "end\n"
                                  "suspend client=0 count=16\n"
                                  "touch stream=1 slot=1 bytes=5300000\n"
                                  "touch stream=1 slot=1 bytes=5300000 flags=1\n"
                                  "allocate client=1 stream=3 slot=3 bytes=6000000 class=1\n"
                                  "touch stream=3 slot=3 bytes=6000000 flags=1\n"
                                  "allocate client=0 stream=1 slot=4 bytes=300000 class=2\n"
                                  "begin stream=2 slot=2\n"
                                  "end\n"
                                  "resume client=0 stream=1 count=1\n"
                                  "touch stream=1 slot=1 bytes=5300000 flags=1\n"
                                  "snapshot\n"
                                  "resume client=0 stream=2 count=1\n"
                                  "free stream=2 slot=2\n"
                                  "free stream=1 slot=4\n"
                                  "resume client=0 stream=1\n"
                                  "touch stream=1 slot=1 bytes=5300000\n"
                                  "suspend client=0 flags=1280 count=16\n"
                                  "touch stream=1 slot=1 bytes=5300000\n"
                                  "free stream=1 slot=1\n"
                                  "snapshot\n"
                                  "free stream=3 slot=3\n"
                                  "snapshot\n";

/* Two clients change places, each with more than half of the budget: with copies, and with good ones. */
static const char exchanges[] = BEGIN "allocate client=0 stream=1 slot=1 bytes=5300000 class=1\n"
                                      "touch stream=1 slot=1 bytes=5300000 flags=1\n"
                                      "allocate client=0 stream=2 slot=2 bytes=4500000 class=3 count=1\n"
                                      "begin stream=2 slot=2 flags=1\n"
                                      "end\n"
                                      "suspend client=0 flags=1280\n"
                                      "allocate client=1 stream=3 slot=3 bytes=9000000 class=1\n"
                                      "touch stream=3 slot=3 bytes=9000000 flags=1\n"
                                      "exchange client=1 class=0 stream=1\n"
                                      "touch stream=1 slot=1 bytes=5300000\n"
                                      "touch stream=1 slot=1 bytes=5300000 flags=1\n"
                                      "snapshot\n"
                                      "exchange client=0 class=1 stream=2\n"
                                      "touch stream=2 slot=3 bytes=9000000\n"
                                      "snapshot\n"
                                      "exchange client=1 class=0 flags=2048\n"
                                      "touch stream=1 slot=1 bytes=5300000\n"
                                      "free stream=2 slot=2\n"
                                      "exchange client=0 class=1 flags=8192 stream=2\n"
                                      "free stream=1 slot=1\n"
                                      "touch stream=2 slot=3 bytes=9000000\n"
                                      "free stream=2 slot=3\n"
                                      "snapshot\n";

static const char *const scripts[] = {changes, shown, exchanges};
enum { SCRIPTS = sizeof scripts / sizeof scripts[0] };

static void clients_change_places(void **state)
{
    (void)state;
    for (int i = 0; i < SCRIPTS; i++) {
        script s = read_script(scripts[i]);
        (void)run_script(&s);
        free(s.steps);
    }
}

/* Each call fails once, and each pair of them. */
static void every_call_of_one_fails(const char *text)
{
    script s = read_script(text);
    uint64_t calls = run_script(&s).calls, stride = getenv("WEIR_TEST_LONG") ? 1
                                                    : steps_here(20) < 20    ? 29
                                                    : text != changes        ? 29
                                                                             : 7;
    assert_true(calls > 60 && calls < 400);
    for (uint64_t first = 0; first < calls + 10; first++) {
        s.options.first = (wi_sim_fault){WI_SIM_CALLS, (long)first, false, WEIR_ERR_DRIVER};
        s.options.second = (wi_sim_fault){.at = -1};
        (void)run_script(&s);
        for (uint64_t second = first + 1; second < calls + 10; second += stride) {
            s.options.second = (wi_sim_fault){WI_SIM_CALLS, (long)second, false, WEIR_ERR_DRIVER};
            (void)run_script(&s);
        }
    }
    free(s.steps);
}

/* From some call on all of them fail, or one kind of them. */
static void it_stays_broken(const char *text)
{
    script s = read_script(text);
    uint64_t calls = run_script(&s).calls;
    for (uint64_t at = 0; at < calls; at++) {
        s.options.first = (wi_sim_fault){WI_SIM_CALLS, (long)at, true, WEIR_ERR_DRIVER};
        (void)run_script(&s);
    }
    for (int kind = WI_SIM_CREATE; kind < WI_SIM_FALLIBLE; kind++)
        for (long at = 0; at < 40; at += 3) {
            s.options.first = (wi_sim_fault){(wi_sim_call)kind, at, true, WEIR_ERR_DRIVER};
            (void)run_script(&s);
            s.options.first.status = WEIR_ERR_OUT_OF_MEMORY;
            if (kind == WI_SIM_CREATE || kind == WI_SIM_ALLOCATE)
                (void)run_script(&s);
        }
    free(s.steps);
}

static void every_call_fails(void **state)
{
    (void)state;
    for (int i = 0; i < SCRIPTS; i++)
        every_call_of_one_fails(scripts[i]);
}

static void the_driver_stays_broken(void **state)
{
    (void)state;
    for (int i = 0; i < SCRIPTS; i++)
        it_stays_broken(scripts[i]);
}

/* Work on what is shown, and a piece that is exchanged under it. */
static void an_early_exchange_is_found(void **state)
{
    (void)state;
    script s = read_script(shown);
    char *text = script_write(&s.options, WI_BUG_EXCHANGE_EARLY, s.steps, s.count);
    simulate_options o;
    simulate_result r;
    simulate_defaults(&o);
    o.script = text;
    assert_true(simulate(&o, &r));
    assert_int_equal(r.plant, WI_BUG_EXCHANGE_EARLY);
    assert_true(r.found.count[ORACLE_UNMAP_UNDER_USE] > 0);
    free(r.script);
    free(text);
    free(s.steps);
}

static int never_made(const uint64_t *moves)
{
    int i = 0;
    while (i < WORLD_MOVES && moves[i] > 0)
        i++;
    return i;
}

/* Everything happens that can: an instrumented build, too, goes on until it has. */
static void clients_come_and_go(void **state)
{
    (void)state;
    uint64_t moves[WORLD_MOVES] = {0};
    for (uint64_t seed = 1; seed <= 4; seed++) {
        simulate_options o;
        simulate_defaults(&o);
        o.world.seed = 100 + seed;
        o.world.resource = "mapped";
        o.world.budget = seed * 16 * WI_MIB;
        world *w = world_create(&o.world);
        uint64_t enough = steps_here(60000);
        for (uint64_t i = 0; i < 60000 && world_found(w)->violations == 0; i++) {
            if (i >= enough && (seed < 4 || never_made(w->moves) == WORLD_MOVES))
                break;
            assert_true(world_advance(w, NULL));
        }
        world_end(w);
        if (world_found(w)->violations + world_found(w)->count[ORACLE_USER] > 0)
            fail_msg("seed %llu: %s", (unsigned long long)o.world.seed, world_found(w)->first);
        for (int i = 0; i < WORLD_MOVES; i++)
            moves[i] += w->moves[i];
        world_destroy(w);
    }
    if (never_made(moves) < WORLD_MOVES)
        fail_msg("move %d was never made", never_made(moves));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_change_places), cmocka_unit_test(an_early_exchange_is_found),
        cmocka_unit_test(every_call_fails),      cmocka_unit_test(the_driver_stays_broken),
        cmocka_unit_test(clients_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
