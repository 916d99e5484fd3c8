/* The ledger of cores: who gets how many and when, step by step. Actors are threads that do what they are told; time is the
 * test's. */
#include <weir/cores.h>

#include "base/system.h"
#include "core/core.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

static _Atomic uint64_t test_time = 1;
static atomic_int samples;

/* The linker puts this in the place of the system's. */
int __real_getrusage(int who, struct rusage *used);
int __wrap_getrusage(int who, struct rusage *used);
int __wrap_getrusage(int who, struct rusage *used)
{
    samples++;
    return __real_getrusage(who, used);
}

static uint64_t clock_of_test(void)
{
    return atomic_load(&test_time);
}

static void pass(uint64_t ns)
{
    atomic_fetch_add(&test_time, ns);
}

typedef enum order { NOTHING, TAKE, RENEW, GIVE, LEAVE } order;

typedef struct actor {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    order told;
    weir_cores *of;
    uint32_t cores; /* that it holds, by what the ledger answered */
    weir_status status;
    atomic_bool stops;
} actor;

static bool stops(void *user)
{
    return atomic_load(&((actor *)user)->stops);
}

static weir_status obey(actor *it)
{
    uint32_t cores = it->cores;
    weir_status status = WEIR_OK;
    if (it->told == TAKE)
        status = weir_cores_take(it->of, stops, it, &cores);
    else if (it->told == RENEW)
        status = weir_cores_renew(it->of, stops, it, &cores);
    else if (it->told == GIVE)
        weir_cores_give(it->of);
    it->cores = status == WEIR_OK && it->told != GIVE ? cores : 0;
    return status;
}

static void *act(void *user)
{
    actor *it = user;
    pthread_mutex_lock(&it->lock);
    while (it->told != LEAVE) {
        if (it->told == NOTHING) {
            pthread_cond_wait(&it->changed, &it->lock);
            continue;
        }
        pthread_mutex_unlock(&it->lock);
        weir_status status = obey(it);
        pthread_mutex_lock(&it->lock);
        it->status = status;
        it->told = NOTHING;
        pthread_cond_broadcast(&it->changed);
    }
    pthread_mutex_unlock(&it->lock);
    return NULL;
}

enum { MOST = 8 };
static actor actors[MOST];
static weir_cores *lines[MOST];

static weir_cores_totals totals(void)
{
    weir_cores_totals now = {.struct_size = sizeof now};
    ok(weir_cores_info(&now));
    return now;
}

static weir_cores_stats line(size_t index)
{
    weir_cores_stats now = {.struct_size = sizeof now};
    ok(weir_cores_look(index, &now));
    return now;
}

static void tell(actor *it, order what)
{
    pthread_mutex_lock(&it->lock);
    it->told = what;
    pthread_cond_broadcast(&it->changed);
    pthread_mutex_unlock(&it->lock);
}

static void until_done(actor *it)
{
    pthread_mutex_lock(&it->lock);
    while (it->told != NOTHING)
        pthread_cond_wait(&it->changed, &it->lock);
    pthread_mutex_unlock(&it->lock);
}

/* It does so, and does not wait for cores. */
static uint32_t does(actor *it, order what)
{
    tell(it, what);
    until_done(it);
    ok(it->status);
    return it->cores;
}

/* It does so, and waits: then so many do. */
static void waits(actor *it, order what, uint32_t waiting)
{
    tell(it, what);
    while (totals().waiting != waiting)
        sched_yield();
}

static uint32_t gets(actor *it)
{
    until_done(it);
    ok(it->status);
    return it->cores;
}

static void set_cores(const char *cores)
{
    ok(weir_option_set("cores", cores));
}

/* A line with an actor. */
static actor *begin(size_t index, weir_cores *of)
{
    actor *it = &actors[index];
    *it = (actor){.of = of};
    pthread_mutex_init(&it->lock, NULL);
    pthread_cond_init(&it->changed, NULL);
    pthread_create(&it->thread, NULL, act, it);
    return it;
}

static actor *begin_line(size_t index, uint32_t least, uint32_t most)
{
    char name[] = {'m', (char)('0' + index), 0};
    ok(weir_cores_open(name, least, most, &lines[index]));
    return begin(index, lines[index]);
}

static int end(void **state)
{
    (void)state;
    assert_int_equal(totals().leased, 0);
    for (size_t i = 0; i < MOST; i++) {
        if (actors[i].thread) {
            tell(&actors[i], LEAVE);
            pthread_join(actors[i].thread, NULL);
        }
        actors[i] = (actor){0};
        weir_cores_close(lines[i]);
        lines[i] = NULL;
    }
    assert_int_equal(totals().lines, 0);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------------ */

static void a_model_alone_gets_all(void **state)
{
    (void)state;
    set_cores("8");
    actor *a = begin_line(0, 1, 0), *b = begin_line(1, 3, 3), *c = begin_line(2, 16, 16), *d = begin_line(3, 1, 2);
    assert_int_equal(does(a, TAKE), 8);
    assert_int_equal(totals().leased, 8);
    assert_int_equal(does(a, RENEW), 8);
    does(a, GIVE);
    assert_int_equal(does(b, TAKE), 3); /* as many as its threads */
    does(b, GIVE);
    assert_int_equal(does(c, TAKE), 8); /* more than there are: all */
    does(c, GIVE);
    assert_int_equal(does(d, TAKE), 2);
    does(d, GIVE);
    assert_int_equal(totals().peak, 8);
    assert_int_equal(totals().cores, 8);
    assert_int_equal(line(0).leases, 1);
    assert_int_equal(line(0).last, 8);
    assert_int_equal(line(0).now, 0);
    assert_int_equal(line(0).waits, 0);
}

/* Two calls of the system's took longer than the rest of a lease. */
static void the_system_is_asked_for_the_crowd_alone(void **state)
{
    (void)state;
    set_cores("4");
    actor *fixed = begin_line(0, 2, 2), *chooses = begin_line(1, 1, 0);
    atomic_store(&samples, 0);
    does(fixed, TAKE);
    pass(UINT64_C(1000000000));
    does(fixed, RENEW);
    does(fixed, GIVE);
    assert_int_equal(atomic_load(&samples), 0);
    does(chooses, TAKE);
    does(chooses, GIVE);
    assert_int_equal(atomic_load(&samples), 2);
    set_cores("1"); /* no threads wait for one another */
    actor *alone = begin_line(2, 1, 0);
    does(alone, TAKE);
    set_cores("4");
    actor *other = begin_line(3, 1, 0);
    pass(UINT64_C(1000000000));
    does(alone, RENEW); /* began without a sample */
    does(alone, GIVE);
    assert_int_equal(atomic_load(&samples), 2);
    does(other, TAKE);
    does(other, GIVE);
    assert_int_equal(atomic_load(&samples), 4);
}

static void models_at_once_share(void **state)
{
    (void)state;
    set_cores("8");
    actor *a = begin_line(0, 1, 0), *b = begin_line(1, 1, 0), *c = begin_line(2, 1, 0);
    assert_int_equal(does(a, TAKE), 8);
    waits(b, TAKE, 1);
    assert_int_equal(totals().leased, 8);
    assert_int_equal(does(a, RENEW), 4);
    assert_int_equal(gets(b), 4);
    waits(c, TAKE, 1);
    assert_int_equal(does(a, RENEW), 3); /* of 8, the first that looks has 3 */
    assert_int_equal(gets(c), 1);        /* that is free now */
    assert_int_equal(does(b, RENEW), 3);
    assert_int_equal(does(c, RENEW), 2);
    assert_int_equal(totals().leased, 8);
    does(a, GIVE);
    assert_int_equal(does(b, RENEW), 3); /* it may come back at once, */
    assert_int_equal(does(a, TAKE), 3);
    does(a, GIVE);
    pass(WEIR_TURN);
    assert_int_equal(does(b, RENEW), 4); /* or stay away */
    assert_int_equal(does(c, RENEW), 4);
    does(b, GIVE);
    pass(WEIR_TURN);
    assert_int_equal(does(c, RENEW), 8); /* alone again */
    does(c, GIVE);
    assert_int_equal(line(1).waits, 1);
    assert_int_equal(totals().peak, 8);
}

/* By who gives the cores, not once the thread that has them is awake: who reads both finds what belongs together. */
static void a_wait_is_counted_with_its_lease(void **state)
{
    (void)state;
    set_cores("2");
    actor *a = begin_line(0, 1, 0), *b = begin_line(1, 1, 0);
    does(a, TAKE);
    waits(b, TAKE, 1);
    assert_int_equal(line(1).waits, 0);
    pass(5);
    tell(a, GIVE);
    weir_cores_stats told;
    do
        told = line(1);
    while (told.leases == 0);
    assert_int_equal(told.waits, 1);
    assert_int_equal(told.waited, 5);
    until_done(a);
    gets(b);
    does(b, GIVE);
}

static void more_models_than_cores_take_turns(void **state)
{
    (void)state;
    set_cores("2");
    actor *a = begin_line(0, 1, 0), *b = begin_line(1, 1, 0), *c = begin_line(2, 1, 0), *d = begin_line(3, 1, 0);
    assert_int_equal(does(a, TAKE), 2);
    waits(b, TAKE, 1);
    waits(c, TAKE, 2);
    waits(d, TAKE, 3);
    assert_int_equal(does(a, RENEW), 1);
    assert_int_equal(gets(b), 1);
    assert_int_equal(does(a, RENEW), 1); /* its turn goes on */
    pass(WEIR_TURN - 1);
    assert_int_equal(does(a, RENEW), 1);
    pass(1);
    waits(a, RENEW, 2); /* over */
    assert_int_equal(gets(c), 1);
    waits(b, RENEW, 2);
    assert_int_equal(gets(d), 1);
    does(c, GIVE);
    assert_int_equal(gets(a), 1); /* it came back before b */
    does(d, GIVE);
    assert_int_equal(gets(b), 1);
    assert_int_equal(does(a, RENEW), 1);
    does(a, GIVE);
    pass(WEIR_TURN);
    assert_int_equal(does(b, RENEW), 2);
    does(b, GIVE);
    assert_int_equal(line(0).leases, 2);
    assert_int_equal(line(0).waits, 1);
}

/* With all cores or none, a line waits until all are free, and nobody who comes later is before it. */
static void a_line_that_needs_all_takes_turns(void **state)
{
    (void)state;
    set_cores("2");
    actor *a = begin_line(0, 1, 0), *b = begin_line(1, 1, 0), *all = begin_line(2, 2, 2);
    assert_int_equal(does(a, TAKE), 2);
    waits(b, TAKE, 1);
    assert_int_equal(does(a, RENEW), 1);
    assert_int_equal(gets(b), 1);
    waits(all, TAKE, 1);
    assert_int_equal(does(a, RENEW), 1); /* to have fewer would help nobody */
    does(a, GIVE);
    assert_int_equal(totals().leased, 1);
    waits(a, TAKE, 2);
    assert_int_equal(totals().leased, 1); /* one is free, and not for it */
    waits(b, RENEW, 2);                   /* the free one is reason enough to end its turn */
    assert_int_equal(gets(all), 2);
    does(all, GIVE);
    assert_int_equal(gets(a), 1);
    assert_int_equal(gets(b), 1);
    does(a, GIVE);
    does(b, GIVE);
    /* Beside such a line alone, another one has all in its turn. */
    assert_int_equal(does(all, TAKE), 2);
    waits(a, TAKE, 1);
    does(all, GIVE);
    assert_int_equal(gets(a), 2);
    waits(all, TAKE, 1);
    assert_int_equal(does(a, RENEW), 2);
    pass(WEIR_TURN);
    waits(a, RENEW, 1);
    assert_int_equal(gets(all), 2);
    does(all, GIVE);
    assert_int_equal(gets(a), 2);
    does(a, GIVE);
}

/* Threads of a line are within one lease, and a line with many of them is one among others. */
/* A lease becomes no smaller for a line that needs more than would be free then. */
static void nobody_gives_what_is_too_little(void **state)
{
    (void)state;
    set_cores("8");
    actor *a = begin_line(0, 1, 0), *b = begin_line(1, 6, 0);
    assert_int_equal(does(a, TAKE), 8);
    waits(b, TAKE, 1);
    assert_int_equal(does(a, RENEW), 8);
    does(a, GIVE);
    assert_int_equal(gets(b), 8);
    does(b, GIVE);
}

static void threads_of_a_line_share_its_lease(void **state)
{
    (void)state;
    set_cores("2");
    actor *a = begin_line(0, 2, 2), *b = begin_line(1, 2, 2);
    actor *second = begin(2, lines[0]), *third = begin(3, lines[0]);
    assert_int_equal(does(a, TAKE), 2);
    assert_int_equal(does(second, TAKE), 2);
    assert_int_equal(totals().leased, 2);
    does(a, GIVE);
    assert_int_equal(totals().leased, 2); /* the other one goes on */
    assert_int_equal(does(a, TAKE), 2);
    waits(b, TAKE, 1);
    assert_int_equal(does(third, TAKE), 2); /* for its turn */
    does(third, GIVE);
    pass(WEIR_TURN);
    waits(third, TAKE, 2); /* the turn is over, for whoever comes */
    does(a, GIVE);
    waits(a, TAKE, 3);
    does(second, GIVE);
    assert_int_equal(gets(b), 2);
    waits(second, TAKE, 3);
    does(b, GIVE);
    assert_int_equal(gets(third), 2); /* all of the line's at once */
    assert_int_equal(gets(a), 2);
    assert_int_equal(gets(second), 2);
    assert_int_equal(totals().leased, 2);
    assert_int_equal(line(0).leases, 7);
    assert_int_equal(line(0).now, 2);
    does(third, GIVE);
    does(second, GIVE);
    /* One that wanted to wait for others goes on within the lease when they have given up. */
    pass(WEIR_TURN);
    waits(b, TAKE, 1);
    waits(second, TAKE, 2);
    atomic_store(&b->stops, true);
    weir_cores_wake(lines[1]);
    until_done(b);
    assert_int_equal(b->status, WEIR_ERR_CANCELLED);
    assert_int_equal(gets(second), 2);
    does(second, GIVE);
    does(a, GIVE);
}

static void a_wait_can_be_stopped(void **state)
{
    (void)state;
    set_cores("2");
    actor *a = begin_line(0, 1, 1), *all = begin_line(1, 2, 2), *b = begin_line(2, 1, 1);
    assert_int_equal(does(a, TAKE), 1);
    waits(all, TAKE, 1);
    waits(b, TAKE, 2); /* behind the one that needs both */
    weir_cores_wake(lines[1]);
    assert_int_equal(totals().waiting, 2); /* asked, it goes on */
    atomic_store(&all->stops, true);
    weir_cores_wake(lines[1]);
    until_done(all);
    assert_int_equal(all->status, WEIR_ERR_CANCELLED);
    assert_int_equal(gets(b), 1); /* the way is free */
    assert_int_equal(line(1).now, 0);
    assert_int_equal(line(1).leases, 0);
    pass(WEIR_TURN);
    waits(begin(3, lines[1]), TAKE, 1);
    atomic_store(&a->stops, true);
    tell(a, RENEW); /* its turn is over, and it is not wanted any more: nothing is held */
    until_done(a);
    assert_int_equal(a->status, WEIR_ERR_CANCELLED);
    does(b, GIVE);
    assert_int_equal(gets(&actors[3]), 2);
    does(&actors[3], GIVE);
}

static void a_lease_inside_a_lease_waits_for_nobody(void **state)
{
    (void)state;
    set_cores("4");
    uint32_t cores = 0;
    actor *a = begin_line(0, 1, 0);
    begin_line(1, 4, 4);
    begin_line(2, 1, 2);
    assert_int_equal(does(a, TAKE), 4);
    ok(weir_cores_open("here", 1, 0, &lines[4]));
    waits(&actors[1], TAKE, 1);
    does(a, GIVE);
    assert_int_equal(gets(&actors[1]), 4);
    does(&actors[1], GIVE);
    ok(weir_cores_take(lines[4], NULL, NULL, &cores));
    assert_int_equal(cores, 4);
    ok(weir_cores_take(lines[1], NULL, NULL, &cores)); /* needs all, which this thread has */
    assert_int_equal(cores, 4);
    ok(weir_cores_take(lines[2], NULL, NULL, &cores));
    assert_int_equal(cores, 2);
    assert_int_equal(totals().leased, 4);
    waits(a, TAKE, 1);
    pass(WEIR_TURN);
    ok(weir_cores_renew(lines[2], NULL, NULL, &cores)); /* the outer one's turn is none of its business */
    assert_int_equal(cores, 2);
    weir_cores_give(lines[2]);
    assert_int_equal(totals().waiting, 1); /* the lease is the outer one's still */
    weir_cores_give(lines[1]);
    assert_int_equal(totals().waiting, 1);
    assert_int_equal(totals().leased, 4);
    weir_cores_give(lines[4]);
    assert_int_equal(gets(a), 4);
    does(a, GIVE);
}

static void fewer_cores_hold_for_new_leases(void **state)
{
    (void)state;
    set_cores("4");
    actor *a = begin_line(0, 1, 0), *b = begin_line(1, 2, 2);
    assert_int_equal(does(a, TAKE), 4);
    set_cores("2");
    begin_line(2, 1, 0);
    assert_int_equal(totals().cores, 2);
    waits(b, TAKE, 1);
    assert_int_equal(totals().leased, 4);
    assert_int_equal(does(a, RENEW), 2);
    assert_int_equal(totals().leased, 2);
    pass(WEIR_TURN);
    waits(a, RENEW, 1);
    assert_int_equal(gets(b), 2);
    set_cores("8");
    begin_line(3, 1, 0);
    assert_int_equal(gets(a), 4);
    does(b, GIVE);
    pass(WEIR_TURN);
    assert_int_equal(does(a, RENEW), 8);
    does(a, GIVE);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    uint32_t cores = 7;
    weir_cores *of = NULL;
    fails(WEIR_ERR_INVALID, weir_cores_open("x", 0, 0, &of));
    fails(WEIR_ERR_INVALID, weir_cores_open("x", 3, 2, &of));
    fails(WEIR_ERR_INVALID, weir_cores_open("x", 1, 0, NULL));
    assert_null(of);
    ok(weir_cores_open(NULL, 1, 0, &lines[0]));
    assert_string_equal(line(0).name, "");
    fails(WEIR_ERR_INVALID, weir_cores_take(NULL, NULL, NULL, &cores));
    fails(WEIR_ERR_INVALID, weir_cores_take(lines[0], NULL, NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_cores_renew(lines[0], NULL, NULL, &cores));
    assert_int_equal(cores, 7);
    weir_cores_give(lines[0]);
    weir_cores_give(NULL);
    weir_cores_wake(NULL);
    weir_cores_close(NULL);
    weir_cores_stats none = {.struct_size = sizeof none};
    fails(WEIR_ERR_NOT_FOUND, weir_cores_look(1, &none));
    fails(WEIR_ERR_INVALID, weir_cores_look(0, NULL));
    fails(WEIR_ERR_INVALID, weir_cores_info(NULL));
    fails(WEIR_ERR_INVALID, weir_option_set("cores", "0"));
    fails(WEIR_ERR_INVALID, weir_option_set("cores", "1025"));
    fails(WEIR_ERR_INVALID, weir_option_set("cores", "two"));
}

/* ------------------------------------------------------------------------------------------------------------------ */

enum { CORES = 3, ROUNDS = UNDER_TSAN ? 300 : 3000 };
static atomic_uint inside, wrong;

static void *hammer(void *user)
{
    weir_cores *of = user;
    uint32_t cores = 0;
    for (int round = 0; round < ROUNDS; round++) {
        if (weir_cores_take(of, NULL, NULL, &cores) != WEIR_OK)
            return NULL;
        for (int step = 0; step < 3; step++) {
            uint32_t before = atomic_fetch_add(&inside, cores);
            atomic_fetch_add(&wrong, before + cores > CORES || cores == 0);
            pass(WEIR_TURN / 4);
            atomic_fetch_sub(&inside, cores);
            if (step < 2 && weir_cores_renew(of, NULL, NULL, &cores) != WEIR_OK)
                return NULL;
        }
        weir_cores_give(of);
    }
    return of;
}

static void never_more_are_leased_than_there_are(void **state)
{
    (void)state;
    pthread_t threads[MOST];
    set_cores("3");
    for (uint32_t i = 0; i < MOST; i++)
        ok(weir_cores_open("hammer", i % 4 == 3 ? 3 : i % 4 == 2 ? 2 : 1, i % 2 ? 0 : 3, &lines[i]));
    for (size_t i = 0; i < MOST; i++)
        pthread_create(&threads[i], NULL, hammer, lines[i]);
    for (size_t i = 0; i < MOST; i++) {
        void *all = NULL;
        pthread_join(threads[i], &all);
        assert_ptr_equal(all, lines[i]);
    }
    assert_int_equal(atomic_load(&wrong), 0);
    assert_int_equal(totals().waiting, 0);
}

/* Last: afterwards this process knows that it may have been forked. */
static void a_child_of_a_fork_has_none(void **state)
{
    (void)state;
    set_cores("2");
    actor *a = begin_line(0, 1, 0), *b = begin_line(1, 1, 0);
    assert_int_equal(does(a, TAKE), 2);
    waits(b, TAKE, 1);
    pid_t child = fork();
    if (child == 0) {
        uint32_t cores;
        weir_cores_totals now = {.struct_size = sizeof now};
        weir_cores_give(lines[0]);
        weir_cores_wake(lines[1]);
        weir_cores_close(lines[1]);
        _exit(weir_cores_take(lines[0], NULL, NULL, &cores) == WEIR_ERR_FORKED &&
                      weir_cores_info(&now) == WEIR_ERR_FORKED
                  ? 0
                  : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    does(a, GIVE);
    assert_int_equal(gets(b), 2);
    does(b, GIVE);
}

int main(void)
{
    wi_clock = clock_of_test;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_model_alone_gets_all, end),
        cmocka_unit_test_teardown(the_system_is_asked_for_the_crowd_alone, end),
        cmocka_unit_test_teardown(models_at_once_share, end),
        cmocka_unit_test_teardown(a_wait_is_counted_with_its_lease, end),
        cmocka_unit_test_teardown(more_models_than_cores_take_turns, end),
        cmocka_unit_test_teardown(a_line_that_needs_all_takes_turns, end),
        cmocka_unit_test_teardown(nobody_gives_what_is_too_little, end),
        cmocka_unit_test_teardown(threads_of_a_line_share_its_lease, end),
        cmocka_unit_test_teardown(a_wait_can_be_stopped, end),
        cmocka_unit_test_teardown(a_lease_inside_a_lease_waits_for_nobody, end),
        cmocka_unit_test_teardown(fewer_cores_hold_for_new_leases, end),
        cmocka_unit_test_teardown(what_makes_no_sense_is_refused, end),
        cmocka_unit_test_teardown(never_more_are_leased_than_there_are, end),
        cmocka_unit_test_teardown(a_child_of_a_fork_has_none, end),
    };
    return cmocka_run_group_tests_name("cores-ledger", tests, NULL, NULL);
}
