/* Other processes on the device, which the driver of this test plays: what they take is given back to them by memory that nobody
 * uses, by idle clients and by callbacks, and the budget floats. */
#include "residency/residency.h"

#include "core/faulty.h"
#include "runtime/outside.h"

enum { TOTAL = 64 << 20, OWN = 48 << 20, RESERVE = 8 << 20, THREADS = 3, TURNS = 200, MOST_LOOKS = 100000 };

/* What the others have, and the runtime whose memory is counted. */
static atomic_uint_fast64_t taken;
static atomic_bool silent; /* the driver does not say what is free */
static weir_runtime *counted;

static weir_status count_memory(wi_device *device, uint64_t *available, uint64_t *total)
{
    (void)device;
    uint64_t used = atomic_load(&taken) + (counted ? wi_ledger_look(&counted->ledger).held : 0);
    *total = TOTAL;
    *available = TOTAL - wi_min(TOTAL, used);
    return atomic_load(&silent) ? weir_fail(WEIR_ERR_DRIVER, "silent") : WEIR_OK;
}

typedef struct bed {
    wi_driver driver;
    weir_runtime *runtime;
    weir_client *model, *other;
    uint64_t asked_callbacks;
} bed;

static void watch(const bed *b, uint64_t reserve, bool by_hand)
{
    weir_outside_options options = {.struct_size = sizeof options, .reserve = reserve, .by_hand = by_hand};
    ok(weir_outside_watch(b->runtime, &options));
}

static int make_bed(void **state)
{
    bed *b = calloc(1, sizeof *b);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = OWN};
    faults_reset(-1);
    atomic_store(&taken, 0);
    atomic_store(&silent, false);
    counted = NULL;
    b->driver = faulty_driver;
    b->driver.memory = count_memory;
    ok(wi_runtime_create_over(&b->driver, 0, &options, &b->runtime));
    counted = b->runtime;
    b->model = open_client(b->runtime, "model", 0, 0);
    b->other = open_client(b->runtime, "other", 0, 0);
    watch(b, RESERVE, true);
    *state = b;
    return 0;
}

static int end_bed(void **state)
{
    bed *b = *state;
    ok(weir_client_destroy(b->model));
    ok(weir_client_destroy(b->other));
    counted = NULL;
    ok(weir_runtime_destroy(b->runtime));
    free(b);
    return 0;
}

#define BED_CASE(name) cmocka_unit_test_setup_teardown(name, make_bed, end_bed)

static weir_outside look(const bed *b)
{
    weir_outside now = WEIR_INIT(weir_outside);
    ok(weir_outside_look(b->runtime, &now));
    return now;
}

static uint64_t budget(const bed *b)
{
    return wi_runtime_budget(b->runtime);
}

/* So much is left free by what others take from here on. */
static void leave(const bed *b, uint64_t available)
{
    atomic_store(&taken, TOTAL - wi_ledger_look(&b->runtime->ledger).held - available);
}

static weir_yielded yield(const bed *b, uint64_t bytes, uint64_t hold)
{
    weir_yield_options options = {.struct_size = sizeof options, .bytes = bytes, .hold = hold, .wait = 1};
    weir_yielded done = WEIR_INIT(weir_yielded);
    ok(weir_yield(b->runtime, &options, &done));
    return done;
}

static void *weights(const bed *b, weir_client *client, uint64_t bytes, uint64_t seed)
{
    void *block = allocate(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(b->runtime, block, bytes, seed);
    return block;
}

static void offer(weir_client *client, uint32_t unwritten)
{
    weir_suspend_options how = {.struct_size = sizeof how, .unwritten = unwritten};
    ok(weir_client_idle(client, &how));
}

static weir_residency_state state_of(weir_client *client)
{
    return residency(client).state;
}

/* Giving back ------------------------------------------------------------------------------------------------------ */

static void nothing_is_given_while_enough_is_free(void **state)
{
    const bed *b = *state;
    void *block = weights(b, b->model, 8 * MIB, 1);
    offer(b->model, 0);
    leave(b, RESERVE);
    weir_outside now = look(b);
    assert_int_equal(now.shorts + now.given + now.suspends + now.lacks, 0);
    assert_int_equal(now.others, atomic_load(&taken));
    assert_int_equal(now.allowed, 8 * MIB); /* the rest is others', or the reserve */
    assert_int_equal(budget(b), 8 * MIB);
    assert_int_equal(state_of(b->model), WEIR_RESIDENT);
    ok(weir_client_busy(b->model, WEIR_STREAM_HOST));
    ok(weir_free(b->model, block, WEIR_STREAM_HOST));
}

static void cached_memory_goes_first_and_stays_away(void **state)
{
    const bed *b = *state;
    void *block = weights(b, b->model, 8 * MIB, 1), *cached = weights(b, b->other, 12 * MIB, 2), *again;
    ok(weir_free(b->other, cached, WEIR_STREAM_HOST));
    offer(b->model, 0);
    leave(b, RESERVE - 4 * MIB);
    weir_outside now = look(b);
    assert_int_equal(now.shorts, 1);
    assert_in_range(now.given, 4 * MIB, 12 * MIB);
    assert_int_equal(now.lacks, 0);
    assert_int_equal(now.suspends, 0);
    assert_int_equal(state_of(b->model), WEIR_RESIDENT);
    /* nothing takes at once what was given */
    assert_true(budget(b) <= 16 * MIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(b->other, 12 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &again));
    ok(weir_client_busy(b->model, WEIR_STREAM_HOST));
    ok(weir_free(b->model, block, WEIR_STREAM_HOST));
}

/* What is given is what lacks, and as much again as the others have taken since the last look. */
static void no_more_than_is_wanted_goes(void **state)
{
    const bed *b = *state;
    enum { PARTS = 12 };
    void *parts[PARTS];
    for (uint64_t i = 0; i < PARTS; i++)
        parts[i] = weights(b, i % 2 ? b->model : b->other, 2 * MIB, i);
    leave(b, RESERVE);
    assert_int_equal(look(b).given, 0);
    for (int i = 0; i < PARTS; i++)
        ok(weir_free(i % 2 ? b->model : b->other, parts[i], WEIR_STREAM_HOST));
    leave(b, RESERVE - 3 * MIB);
    weir_outside now = look(b);
    assert_int_equal(now.lacks, 0);
    assert_in_range(now.given, 6 * MIB, 16 * MIB);
    assert_true(take_snapshot(b->runtime).device.held >= 8 * MIB);
}

/* Of three idle clients the one with good copies leaves first, then the smaller one. */
static void the_cheapest_leaves_first(void **state)
{
    const bed *b = *state;
    weir_client *third = open_client(b->runtime, "third", 0, 0);
    const uint32_t w = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS);
    void *large = weights(b, b->model, 10 * MIB, 1), *small = weights(b, b->other, 4 * MIB, 2),
         *copied = weights(b, third, 12 * MIB, 3);
    (void)suspend(third);
    ok(weir_client_resume(third, WEIR_STREAM_HOST));
    offer(b->model, 0);
    offer(b->other, w); /* promised, but there are no copies yet */
    offer(third, w);
    leave(b, RESERVE - MIB);
    assert_int_equal(look(b).suspends, 1);
    assert_int_equal(state_of(third), WEIR_SUSPENDED);
    assert_int_equal(residency(third).copied, 0);
    trim(b->runtime); /* what it left and the others did not need */
    leave(b, RESERVE - MIB);
    assert_int_equal(look(b).suspends, 2);
    assert_int_equal(state_of(b->other), WEIR_SUSPENDED);
    assert_int_equal(state_of(b->model), WEIR_RESIDENT);
    trim(b->runtime);
    leave(b, RESERVE - MIB);
    assert_int_equal(look(b).suspends, 3);
    atomic_store(&taken, 0);
    for (int i = 0; i < 5; i++)
        (void)look(b);
    ok(weir_client_busy(b->model, WEIR_STREAM_HOST));
    ok(weir_client_busy(b->other, WEIR_STREAM_HOST));
    ok(weir_client_busy(third, WEIR_STREAM_HOST));
    block_holds(b->runtime, large, 10 * MIB, 1);
    block_holds(b->runtime, small, 4 * MIB, 2);
    block_holds(b->runtime, copied, 12 * MIB, 3);
    ok(weir_free(b->model, large, WEIR_STREAM_HOST));
    ok(weir_free(b->other, small, WEIR_STREAM_HOST));
    ok(weir_free(third, copied, WEIR_STREAM_HOST));
    ok(weir_client_destroy(third));
}

/* Of equal ones the one that is idle longest; one without a block is no help, and stays. */
static void the_longest_idle_leaves_first(void **state)
{
    const bed *b = *state;
    weir_client *empty = open_client(b->runtime, "empty", 0, 0);
    void *first = weights(b, b->other, 6 * MIB, 1), *second = weights(b, b->model, 6 * MIB, 2);
    offer(empty, 0);
    offer(b->other, 0);
    nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    offer(b->model, 0);
    leave(b, RESERVE - MIB);
    assert_int_equal(look(b).suspends, 1);
    assert_int_equal(state_of(b->other), WEIR_SUSPENDED);
    assert_int_equal(state_of(b->model), WEIR_RESIDENT);
    assert_int_equal(state_of(empty), WEIR_RESIDENT);
    ok(weir_free(b->other, first, WEIR_STREAM_HOST));
    ok(weir_free(b->model, second, WEIR_STREAM_HOST));
    ok(weir_client_destroy(empty));
}

static void nobody_leaves_unasked(void **state)
{
    const bed *b = *state;
    void *block = weights(b, b->model, 8 * MIB, 1), *taken_back = weights(b, b->other, 8 * MIB, 2);
    offer(b->other, 0);
    ok(weir_client_busy(b->other, WEIR_STREAM_HOST));
    leave(b, 0);
    weir_outside now = look(b);
    assert_int_equal(now.suspends + now.given, 0);
    assert_int_equal(now.lacks, RESERVE);
    assert_int_equal(budget(b), 16 * MIB); /* what clients have, though less is allowed */
    assert_int_equal(now.allowed, 8 * MIB);
    weir_yielded done = yield(b, 4 * MIB, 0);
    assert_int_equal(done.given, 0);
    assert_int_equal(done.lacks, RESERVE + 4 * MIB);
    assert_int_equal(done.live, 16 * MIB);
    assert_int_equal(done.held, 16 * MIB);
    ok(weir_free(b->model, block, WEIR_STREAM_HOST));
    ok(weir_free(b->other, taken_back, WEIR_STREAM_HOST));
}

/* One that cannot leave is told, and the next one does. */
static void a_client_that_cannot_leave_is_told(void **state)
{
    const bed *b = *state;
    void *small = weights(b, b->other, 4 * MIB, 1), *large = weights(b, b->model, 8 * MIB, 2);
    weir_suspend_options how = {.struct_size = sizeof how, .folder = "/nowhere/at/all"};
    ok(weir_client_idle(b->other, &how));
    offer(b->model, 0);
    leave(b, RESERVE);
    weir_yielded done = yield(b, 4 * MIB, 0);
    assert_non_null(strstr(done.why, "/nowhere/at/all"));
    assert_int_equal(done.clients, 1);
    assert_int_equal(done.lacks, 0);
    assert_int_equal(state_of(b->other), WEIR_RESIDENT);
    assert_int_equal(state_of(b->model), WEIR_SUSPENDED);
    ok(weir_free(b->other, small, WEIR_STREAM_HOST));
    ok(weir_free(b->model, large, WEIR_STREAM_HOST));
}

typedef struct moved {
    const bed *bed;
    bool looks;
    uint64_t count;
} moved;

/* Others take memory while the client is still the command's. */
static void look_while_it_moves(const weir_client *client, weir_status status, uint64_t bytes, void *user)
{
    moved *m = user;
    assert_ptr_equal(client, m->bed->model);
    assert_int_equal(status, WEIR_OK);
    assert_true(bytes >= 8 * MIB);
    m->count++;
    if (!m->looks)
        return;
    leave(m->bed, RESERVE / 2);
    assert_true(look(m->bed).lacks > 0);
    assert_int_equal(state_of(m->bed->model), WEIR_RESIDENT);
}

static void what_a_command_moves_no_look_moves(void **state)
{
    const bed *b = *state;
    void *block = weights(b, b->model, 8 * MIB, 1);
    moved m = {.bed = b};
    offer(b->model, 0);
    assert_int_equal(wi_outside_move_named(b->runtime, "nobody", true, look_while_it_moves, &m), 0);
    assert_int_equal(wi_outside_move_named(b->runtime, "model", true, look_while_it_moves, &m), 1);
    assert_int_equal(state_of(b->model), WEIR_SUSPENDED);
    m.looks = true;
    assert_int_equal(wi_outside_move_named(b->runtime, "model", false, look_while_it_moves, &m), 1);
    assert_int_equal(m.count, 2);
    assert_int_equal(look(b).lacks, 0); /* it may leave again */
    assert_int_equal(state_of(b->model), WEIR_SUSPENDED);
    atomic_store(&taken, 0);
    ok(weir_client_busy(b->model, WEIR_STREAM_HOST));
    block_holds(b->runtime, block, 8 * MIB, 1);
    ok(weir_free(b->model, block, WEIR_STREAM_HOST));
}

/* Callbacks -------------------------------------------------------------------------------------------------------- */

static void *kept[4];

static void give_up_one(const weir_pressure *pressure, void *user)
{
    bed *b = user;
    assert_null(pressure->client);
    assert_true(pressure->shortfall > 0);
    fails(WEIR_ERR_BUSY, weir_outside_look(b->runtime, NULL)); /* this thread looks already */
    b->asked_callbacks++;
    for (int i = 0; i < 4; i++)
        if (kept[i]) {
            ok(weir_free(b->other, kept[i], WEIR_STREAM_HOST));
            kept[i] = NULL;
            return;
        }
}

static void callbacks_are_asked_as_long_as_they_help(void **state)
{
    bed *b = *state;
    uint64_t id;
    void *busy = weights(b, b->model, 4 * MIB, 9);
    ok(weir_pressure_register(b->runtime, 0, give_up_one, b, &id));
    for (uint64_t i = 0; i < 4; i++)
        kept[i] = weights(b, b->other, 4 * MIB, i);
    leave(b, RESERVE - 7 * MIB);
    weir_outside now = look(b);
    assert_int_equal(b->asked_callbacks, 2);
    assert_in_range(now.given, 7 * MIB, 8 * MIB);
    leave(b, 0);
    now = look(b);
    assert_int_equal(b->asked_callbacks, 4);
    assert_int_equal(now.lacks, 0);
    leave(b, 0);
    now = look(b); /* with nothing left it is asked once */
    assert_int_equal(b->asked_callbacks, 5);
    assert_true(now.lacks > 0);
    ok(weir_free(b->model, busy, WEIR_STREAM_HOST));
    ok(weir_pressure_unregister(b->runtime, id));
}

/* The budget ------------------------------------------------------------------------------------------------------- */

static void the_budget_rises_when_it_has_been_steady(void **state)
{
    const bed *b = *state;
    assert_int_equal(look(b).allowed, OWN);
    leave(b, 16 * MIB);
    assert_int_equal(look(b).allowed, 8 * MIB);
    assert_int_equal(budget(b), 8 * MIB);
    atomic_store(&taken, 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 4; i++) {
            assert_int_equal(look(b).allowed, OWN);
            assert_true(budget(b) <= 8 * MIB);
        }
        if (round == 0) { /* they come again for a moment: it begins anew */
            leave(b, RESERVE - MIB);
            assert_int_equal(look(b).lacks, MIB);
            atomic_store(&taken, 0);
        }
    }
    assert_int_equal(look(b).rises, 1);
    assert_int_equal(budget(b), OWN);
    assert_int_equal(look(b).rises, 1);
}

/* Who needs it is not kept waiting. */
static void the_budget_rises_for_a_request(void **state)
{
    const bed *b = *state;
    leave(b, 16 * MIB);
    (void)look(b);
    atomic_store(&taken, TOTAL - 40 * MIB);
    void *block = weights(b, b->model, 20 * MIB, 1), *more;
    assert_int_equal(budget(b), 32 * MIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(b->other, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &more));
    assert_int_equal(look(b).rises, 1);
    ok(weir_free(b->model, block, WEIR_STREAM_HOST));
}

/* Less than a quarter of the reserve is not worth it. */
static void the_budget_does_not_follow_every_move(void **state)
{
    const bed *b = *state;
    leave(b, 16 * MIB);
    (void)look(b);
    leave(b, 17 * MIB);
    for (int i = 0; i < 10; i++)
        assert_int_equal(look(b).rises, 0);
    assert_int_equal(budget(b), 8 * MIB);
    leave(b, 20 * MIB);
    for (int i = 0; i < 10; i++)
        (void)look(b);
    assert_int_equal(budget(b), 12 * MIB);
}

static void the_program_may_set_the_budget_meanwhile(void **state)
{
    const bed *b = *state;
    uint64_t lower = 4 * MIB;
    assert_false(wi_ledger_float(&b->runtime->ledger, OWN + 1, &lower)); /* the program has set another one meanwhile */
    assert_int_equal(budget(b), OWN);
    leave(b, 16 * MIB);
    (void)look(b);
    assert_int_equal(wi_outside_budget(b->runtime), OWN);
    ok(weir_runtime_set_budget(b->runtime, 20 * MIB));
    assert_int_equal(wi_outside_budget(b->runtime), 20 * MIB);
    assert_int_equal(look(b).budget, 20 * MIB);
    assert_int_equal(budget(b), 8 * MIB);
    atomic_store(&taken, 0);
    for (int i = 0; i < 5; i++)
        (void)look(b);
    assert_int_equal(budget(b), 20 * MIB);
    leave(b, 16 * MIB);
    (void)look(b);
    ok(weir_outside_end(b->runtime));
    assert_int_equal(budget(b), 20 * MIB);
    assert_int_equal(wi_outside_allows(b->runtime), UINT64_MAX);
    fails(WEIR_ERR_INVALID, weir_outside_look(b->runtime, NULL));
    ok(weir_outside_end(b->runtime));
}

static void what_was_asked_for_is_held_until_it_is_taken(void **state)
{
    const bed *b = *state;
    weir_outside now;
    void *block = weights(b, b->model, 8 * MIB, 1);
    offer(b->model, 0);
    leave(b, RESERVE);
    weir_yielded done = yield(b, 6 * MIB, 0);
    assert_int_equal(done.clients, 1);
    assert_in_range(done.suspended, 6 * MIB, 8 * MIB);
    assert_int_equal(done.given, done.suspended + done.trimmed);
    assert_int_equal(done.lacks, 0);
    assert_true(done.available >= RESERVE + 6 * MIB);
    for (int i = 0; i < 6; i++)
        (void)look(b);
    assert_int_equal(budget(b), 2 * MIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_busy(b->model, WEIR_STREAM_HOST)); /* it is for the other */
    atomic_fetch_add(&taken, 4 * MIB);
    assert_int_equal(look(b).asked, 2 * MIB);
    atomic_fetch_sub(&taken, MIB); /* what goes again is not counted twice */
    assert_int_equal(look(b).asked, 2 * MIB);
    atomic_fetch_add(&taken, 3 * MIB);
    now = look(b);
    assert_int_equal(now.asked, 0);
    assert_int_equal(now.lacks, 0);
    atomic_store(&taken, 0);
    for (int i = 0; i < 5; i++)
        (void)look(b);
    assert_int_equal(budget(b), OWN);
    ok(weir_client_busy(b->model, WEIR_STREAM_HOST));
    block_holds(b->runtime, block, 8 * MIB, 1);
    ok(weir_free(b->model, block, WEIR_STREAM_HOST));
}

static void what_nobody_takes_comes_back(void **state)
{
    const bed *b = *state;
    (void)yield(b, 40 * MIB, 1); /* held for a nanosecond */
    for (int i = 0; i < 6; i++)
        (void)look(b);
    assert_int_equal(budget(b), OWN);
    (void)yield(b, 40 * MIB, 0);
    assert_int_equal(look(b).asked, 40 * MIB);
    assert_int_equal(budget(b), 16 * MIB);
    (void)yield(b, 0, 0); /* taken back */
    for (int i = 0; i < 6; i++)
        (void)look(b);
    assert_int_equal(budget(b), OWN);
}

/* Guarantees hold; what is not there of them is told. */
static void guarantees_stay(void **state)
{
    const bed *b = *state;
    weir_client *sure = open_client(b->runtime, "sure", 12 * MIB, 0);
    leave(b, RESERVE);
    weir_outside now = look(b);
    assert_true(now.allowed < 12 * MIB);
    assert_int_equal(budget(b), 12 * MIB);
    assert_int_equal(yield(b, MIB, 0).guaranteed, 12 * MIB);
    void *block = weights(b, sure, 8 * MIB, 1); /* of the reserve, as it was promised */
    ok(weir_free(sure, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(sure));
}

static void a_silent_driver_changes_nothing(void **state)
{
    const bed *b = *state;
    void *block = weights(b, b->model, 8 * MIB, 1);
    weir_yield_options options = {.struct_size = sizeof options, .bytes = MIB};
    weir_yielded done = WEIR_INIT(weir_yielded);
    offer(b->model, 0);
    leave(b, 0);
    atomic_store(&silent, true);
    fails(WEIR_ERR_DRIVER, weir_outside_look(b->runtime, NULL));
    fails(WEIR_ERR_DRIVER, weir_yield(b->runtime, &options, &done));
    fails(WEIR_ERR_DRIVER, weir_outside_watch(b->runtime, NULL));
    assert_int_equal(budget(b), OWN);
    assert_int_equal(state_of(b->model), WEIR_RESIDENT);
    atomic_store(&silent, false);
    assert_int_equal(look(b).suspends, 1);
    ok(weir_free(b->model, block, WEIR_STREAM_HOST));
}

static void misuse_is_refused(void **state)
{
    const bed *b = *state;
    weir_suspend_options how = {.struct_size = sizeof how, .drop = 1u << 31};
    weir_outside none = {0};
    fails(WEIR_ERR_INVALID, weir_outside_watch(NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_outside_end(NULL));
    fails(WEIR_ERR_INVALID, weir_outside_look(NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_outside_info(b->runtime, &none));
    fails(WEIR_ERR_INVALID, weir_yield(b->runtime, NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_client_idle(NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_client_idle(b->model, &how));
    fails(WEIR_ERR_INVALID, weir_client_busy(NULL, WEIR_STREAM_HOST));
    weir_client *gone = open_client(b->runtime, "gone", 0, 0);
    ok(weir_client_idle(gone, NULL));
    assert_non_null(atomic_load(&b->runtime->outside)->offers);
    ok(weir_client_destroy(gone)); /* with the offer */
    assert_null(atomic_load(&b->runtime->outside)->offers);
    fails(WEIR_ERR_INVALID, weir_client_idle(gone, NULL));
    leave(b, 0);
    (void)look(b);
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

/* Each uses a client between two times that it is idle, while the others come and go, and the thread of weir's looks. */
typedef struct user {
    const bed *b;
    weir_client *client;
    void *block;
    uint64_t seed;
    uint64_t refused;
} user;

static void *use_and_rest(void *argument)
{
    user *u = argument;
    for (int i = 0; i < TURNS; i++) {
        ok(weir_client_idle(u->client, NULL));
        sched_yield();
        weir_status status = weir_client_busy(u->client, WEIR_STREAM_HOST);
        if (status == WEIR_OK) {
            block_holds(u->b->runtime, u->block, 2 * MIB, u->seed);
            write_block(u->b->runtime, u->block, 2 * MIB, ++u->seed);
        } else {
            assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY); /* the others have it */
            u->refused++;
        }
    }
    return NULL;
}

static void threads_use_what_may_leave(void **state)
{
    const bed *b = *state;
    user users[THREADS];
    pthread_t threads[THREADS];
    watch(b, RESERVE, false);
    for (uint64_t i = 0; i < THREADS; i++) {
        users[i] = (user){.b = b, .client = open_client(b->runtime, "user", 0, 0), .seed = i * 1000};
        users[i].block = weights(b, users[i].client, 2 * MIB, users[i].seed);
        pthread_create(&threads[i], NULL, use_and_rest, &users[i]);
    }
    for (int i = 0; i < TURNS; i++) {
        leave(b, i % 2 ? 0 : 2 * RESERVE);
        (void)look(b);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    /* the thread looks by itself: the last one leaves, and its memory is taken back when the others go */
    for (int i = 0; i < THREADS; i++)
        ok(weir_client_idle(users[i].client, NULL));
    atomic_store(&taken, TOTAL);
    weir_outside now = WEIR_INIT(weir_outside);
    do
        ok(weir_outside_info(b->runtime, &now));
    while (wi_ledger_look(&b->runtime->ledger).held > 0);
    atomic_store(&taken, 0);
    while (budget(b) != OWN)
        sched_yield();
    for (int i = 0; i < THREADS; i++) {
        ok(weir_client_busy(users[i].client, WEIR_STREAM_HOST));
        block_holds(b->runtime, users[i].block, 2 * MIB, users[i].seed);
        ok(weir_free(users[i].client, users[i].block, WEIR_STREAM_HOST));
        ok(weir_client_destroy(users[i].client));
    }
}

/* A runtime that ends while the thread looks at others' memory, again and again. */
static void a_runtime_ends_while_it_is_watched(void **state)
{
    const bed *b = *state;
    for (int i = 0; i < 50; i++) {
        weir_runtime_options options = {.struct_size = sizeof options, .budget = OWN};
        weir_outside_options how = {.struct_size = sizeof how, .reserve = RESERVE};
        weir_runtime *runtime;
        ok(wi_runtime_create_over(&b->driver, 0, &options, &runtime));
        ok(weir_outside_watch(runtime, &how));
        ok(weir_runtime_destroy(runtime));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BED_CASE(nothing_is_given_while_enough_is_free),
        BED_CASE(cached_memory_goes_first_and_stays_away),
        BED_CASE(no_more_than_is_wanted_goes),
        BED_CASE(the_cheapest_leaves_first),
        BED_CASE(the_longest_idle_leaves_first),
        BED_CASE(nobody_leaves_unasked),
        BED_CASE(a_client_that_cannot_leave_is_told),
        BED_CASE(what_a_command_moves_no_look_moves),
        BED_CASE(callbacks_are_asked_as_long_as_they_help),
        BED_CASE(the_budget_rises_when_it_has_been_steady),
        BED_CASE(the_budget_rises_for_a_request),
        BED_CASE(the_budget_does_not_follow_every_move),
        BED_CASE(the_program_may_set_the_budget_meanwhile),
        BED_CASE(what_was_asked_for_is_held_until_it_is_taken),
        BED_CASE(what_nobody_takes_comes_back),
        BED_CASE(guarantees_stay),
        BED_CASE(a_silent_driver_changes_nothing),
        BED_CASE(misuse_is_refused),
        BED_CASE(threads_use_what_may_leave),
        BED_CASE(a_runtime_ends_while_it_is_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
