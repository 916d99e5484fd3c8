/* The loop and its gates: what it asks of an allocator, what it counts, what it takes by itself; and that streams trail the
 * host by exactly as many operations as they are to. */
#include "../core/core.h"

#include "cli/replay/replay.h"

#include <stdatomic.h>

/* The loop ----------------------------------------------------------------------------------------------------------- */

typedef struct book {
    uint64_t live, limit, taken, given, waited;
    unsigned opened;
} book;

static weir_status take(void *user, const wi_replay_op *op, void **out)
{
    book *b = user;
    *out = NULL;
    if (b->live + op->bytes > b->limit)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "full");
    b->live += op->bytes;
    b->taken++;
    *out = malloc(op->bytes);
    return WEIR_OK;
}

static weir_status give(void *user, const wi_replay_op *op, void *pointer)
{
    book *b = user;
    b->live -= op->bytes;
    b->given++;
    free(pointer);
    return WEIR_OK;
}

static weir_status drain(void *user)
{
    (void)user;
    return WEIR_OK;
}

static weir_status counts(void *user, wi_replay_counts *out)
{
    const book *b = user;
    *out = (wi_replay_counts){.driver_calls = b->taken};
    return WEIR_OK;
}

static wi_replay_target target_of(book *b)
{
    return (wi_replay_target){.user = b,
                              .allocate = take,
                              .allocate_now = take,
                              .release = give,
                              .drain = drain,
                              .counts = counts,
                              .detail = weir_detail};
}

static wi_replay_op ops[] = {
    {100, 0, 0, 0, false}, {50, 1, 0, 0, false}, {100, 0, 0, 0, true}, {80, 0, 0, 0, false}, {50, 1, 0, 0, true}};
static size_t left[] = {3};
static const wi_replay_plan small = {
    .name = "small", .ops = ops, .count = 5, .left = left, .left_count = 1, .slots = 2, .streams = 1, .allocations = 3};

static void test_loop(void **state)
{
    (void)state;
    wi_replay_pass pass;
    book b = {.limit = 1000};
    wi_replay_target target = target_of(&b);
    ok(wi_replay_loop(&small, &target, false, &pass));
    assert_int_equal(b.taken, 3);
    assert_int_equal(b.given, 3); /* the one that is left too */
    assert_int_equal(b.live, 0);
    assert_int_equal(pass.failures, 0);
    assert_int_equal(pass.driver_calls, 3);
    b = (book){.limit = 120}; /* the second is refused, and its free left out */
    ok(wi_replay_loop(&small, &target, false, &pass));
    assert_int_equal(pass.failures, 1);
    assert_int_equal(b.taken, 2);
    assert_int_equal(b.given, 2);
    b = (book){.limit = 120};
    ok(wi_replay_loop(&small, &target, true, &pass));
    assert_int_equal(pass.failures, 1);
    assert_int_equal(b.taken, 1);
    assert_int_equal(b.live, 0);
}

static weir_status take_broken(void *user, const wi_replay_op *op, void **out)
{
    (void)user, (void)op;
    *out = NULL;
    return weir_fail(WEIR_ERR_DRIVER, "the cable is out");
}

static void test_broken_allocator(void **state)
{
    (void)state;
    wi_replay_pass pass;
    book b = {.limit = 1000};
    wi_replay_target target = target_of(&b);
    target.allocate = take_broken;
    fails(WEIR_ERR_DRIVER, wi_replay_loop(&small, &target, false, &pass));
    detail_names("cable");
}

/* Refused at once, a request is made again with the gates open. */
static weir_status allocate_now(void *user, const wi_replay_op *op, void **out)
{
    book *b = user;
    return b->opened > b->waited ? take(user, op, out) : weir_fail(WEIR_ERR_OUT_OF_MEMORY, "not now");
}

static weir_status put_gate(void *user, uint16_t stream, uint64_t at)
{
    (void)user, (void)stream, (void)at;
    return WEIR_OK;
}

static void reach_gate(void *user, uint64_t at)
{
    (void)user, (void)at;
}

static void open_gates(void *user)
{
    ((book *)user)->opened++;
}

static uint64_t forced_gates(void *user)
{
    (void)user;
    return 0;
}

static void test_refused_at_once(void **state)
{
    (void)state;
    wi_replay_pass pass;
    book b = {.limit = 1000, .waited = 3};
    wi_replay_lag_gates gates = {&b, put_gate, reach_gate, open_gates, open_gates, forced_gates, NULL};
    wi_replay_target target = target_of(&b);
    target.allocate_now = allocate_now;
    target.gates = &gates;
    ok(wi_replay_loop(&small, &target, false, &pass));
    assert_int_equal(pass.waits, 3);
    assert_int_equal(pass.failures, 0);
    assert_int_equal(b.opened, 4); /* and at the end */
}

static unsigned looks; /* at the clock, which is the dearest that the loop could do for an event */

int __real_clock_gettime(clockid_t clock, struct timespec *out);
/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    looks++;
    return __real_clock_gettime(clock, out);
}

static weir_status count_take(void *user, const wi_replay_op *op, void **out)
{
    (void)op;
    *out = user;
    ((book *)user)->taken++;
    return WEIR_OK;
}

static weir_status count_give(void *user, const wi_replay_op *op, void *pointer)
{
    (void)op, (void)pointer;
    ((book *)user)->given++;
    return WEIR_OK;
}

/* What the loop takes for itself is a call of the allocator's for each event, and looks at the clock that do not grow with them. */
static void test_cost(void **state)
{
    (void)state;
    enum { COUNT = 1 << 18, SLOTS = 1000, FEW = 100 };
    wi_replay_op *many = calloc(COUNT, sizeof *many);
    unsigned of_few = 0;
    for (uint32_t i = 0; i < COUNT; i++)
        many[i] = (wi_replay_op){100, i * 7 % SLOTS, 0, 0, i / SLOTS % 2};
    for (int all = 0; all < 2; all++) {
        book b = {.limit = 0};
        wi_replay_pass pass;
        wi_replay_target target = target_of(&b);
        wi_replay_plan plan = {.name = "many", .ops = many, .count = all ? COUNT : FEW, .slots = SLOTS, .streams = 1};
        uint64_t takes = 0;
        for (size_t i = 0; i < plan.count; i++)
            takes += !many[i].frees;
        target.allocate = target.allocate_now = count_take;
        target.release = count_give;
        looks = 0;
        ok(wi_replay_loop(&plan, &target, false, &pass));
        assert_int_equal(b.taken, takes);
        assert_int_equal(b.given, plan.count - takes);
        of_few = all ? of_few : looks;
        assert_int_equal(looks, of_few);
    }
    assert_in_range(of_few, 2, 10);
    free(many);
}

/* Gates ------------------------------------------------------------------------------------------------------------ */

enum { LAG = 5, OPERATIONS = 40, STREAMS = 2 };

typedef struct line {
    weir_runtime *runtime;
    weir_stream streams[STREAMS];
    wi_replay_lag_gates *gates;
} line;

static void begin_line(line *l)
{
    *l = (line){.runtime = make_runtime(16 * MIB)};
    wi_replay_world how = {.device = "host", .lag = LAG, .streams = STREAMS};
    for (int i = 0; i < STREAMS; i++)
        ok(weir_stream_acquire(l->runtime, &l->streams[i]));
    ok(wi_replay_lag_gates_make(&how, l->runtime, l->streams, &l->gates));
}

static void end_line(line *l)
{
    l->gates->end(l->gates->user);
    for (int i = 0; i < STREAMS; i++)
        ok(weir_stream_release(l->streams[i]));
    ok(weir_runtime_destroy(l->runtime));
}

static void note(void *user)
{
    atomic_store((atomic_bool *)user, true);
}

static void wait_for(atomic_bool *flag)
{
    for (int i = 0; i < 10000 && !atomic_load(flag); i++)
        usleep(1000);
    assert_true(atomic_load(flag));
}

static bool any_passed(const atomic_bool *passed, uint64_t from, uint64_t to)
{
    bool any = false;
    for (uint64_t k = from; k < to; k++)
        any |= atomic_load(&passed[k]);
    return any;
}

/* Behind the gate of operation k stands a note. Once the host is at operation k + LAG it comes, and never before. False: the
 * machine was so busy that the host was taken for stuck, and a gate was opened early. */
static bool trails(line *l)
{
    static atomic_bool passed[OPERATIONS];
    memset((void *)passed, 0, sizeof passed);
    for (uint64_t at = 0; at < OPERATIONS; at++) {
        uint16_t stream = at % 3 == 0;
        l->gates->reach(l->gates->user, at);
        if (at >= LAG)
            wait_for(&passed[at - LAG]);
        if (at % 8 == 7)
            usleep(2000); /* what should not have come has time to */
        bool early = any_passed(passed, at >= LAG ? at - LAG + 1 : 0, at);
        if (early && l->gates->forced(l->gates->user) > 0)
            break;
        assert_false(early);
        ok(l->gates->put(l->gates->user, stream, at));
        ok(weir_call(l->runtime, note, (void *)&passed[at], l->streams[stream]));
    }
    l->gates->rest(l->gates->user);
    for (int i = 0; i < STREAMS; i++)
        ok(weir_stream_synchronize(l->streams[i]));
    bool all = true;
    for (uint64_t k = 0; k < OPERATIONS; k++)
        all &= atomic_load(&passed[k]);
    bool forced = l->gates->forced(l->gates->user) > 0;
    assert_true(all || forced);
    return !forced;
}

static void test_lag_is_exact(void **state)
{
    (void)state;
    bool exact = false;
    for (int attempt = 0; attempt < 20 && !exact; attempt++) {
        line l;
        begin_line(&l);
        exact = true;
        for (int pass = 0; pass < 2 && exact; pass++)
            exact = trails(&l);
        end_line(&l);
    }
    assert_true(exact);
}

/* A host that waits for a stream inside an operation is not left alone; what comes later trails as before. */
static void test_stuck_host(void **state)
{
    (void)state;
    static atomic_bool passed;
    line l;
    begin_line(&l);
    l.gates->reach(l.gates->user, 0);
    ok(l.gates->put(l.gates->user, 0, 0));
    l.gates->reach(l.gates->user, 1);
    ok(weir_stream_synchronize(l.streams[0])); /* would never end */
    assert_int_equal(l.gates->forced(l.gates->user), 1);
    ok(l.gates->put(l.gates->user, 0, 1));
    ok(weir_call(l.runtime, note, (void *)&passed, l.streams[0]));
    l.gates->reach(l.gates->user, 2);
    usleep(2000);
    assert_false(atomic_load(&passed));
    l.gates->open(l.gates->user);
    wait_for(&passed);
    l.gates->rest(l.gates->user);
    ok(weir_stream_synchronize(l.streams[0]));
    end_line(&l);
}

/* At the same operation of pass after pass, with next to no time between. */
static void test_stuck_in_every_pass(void **state)
{
    (void)state;
    line l;
    begin_line(&l);
    for (uint64_t pass = 1; pass <= 5; pass++) {
        l.gates->reach(l.gates->user, 0);
        ok(l.gates->put(l.gates->user, 0, 0));
        l.gates->reach(l.gates->user, 1);
        ok(weir_stream_synchronize(l.streams[0]));
        assert_int_equal(l.gates->forced(l.gates->user), pass);
        l.gates->rest(l.gates->user);
    }
    end_line(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loop),
        cmocka_unit_test(test_broken_allocator),
        cmocka_unit_test(test_refused_at_once),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_lag_is_exact),
        cmocka_unit_test(test_stuck_host),
        cmocka_unit_test(test_stuck_in_every_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
