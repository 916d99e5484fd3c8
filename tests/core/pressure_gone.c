/* Pressure callbacks: a registration owns what its function looks at, and says once when nobody looks there any more. */
#include "pressure.h"

enum { THREADS = 4, MOST_IDS = 3 };

static _Thread_local unsigned me; /* a thread's number; 0: the test's own */

/* What callbacks look at. Threads from 1 on stay in their first call until their gate opens. */
typedef struct owner {
    fixture *f;
    gate gates[THREADS];
    bool stayed[THREADS];
    int *state;          /* freed when it has gone `registered` times */
    unsigned registered; /* by the test alone */
    uint64_t ids[MOST_IDS];
    atomic_uint calls, gone;
    pthread_t gone_on;
    atomic_bool wrong; /* a call found its state gone */
} owner;

static void stay(const weir_pressure *pressure, void *user)
{
    owner *o = user;
    (void)pressure;
    atomic_fetch_add(&o->calls, 1);
    if (me == 0 || o->stayed[me])
        return;
    o->stayed[me] = true;
    pass_gate(&o->gates[me]);
    if (atomic_load(&o->gone) == o->registered || *o->state != 7)
        atomic_store(&o->wrong, true);
}

static void count_gone(void *user)
{
    owner *o = user;
    o->gone_on = pthread_self();
    if (atomic_fetch_add(&o->gone, 1) + 1 == o->registered)
        free(o->state);
}

static weir_status listen_as(owner *o, int priority)
{
    weir_pressure_options options = WEIR_INIT(weir_pressure_options);
    options.priority = priority;
    options.fn = stay;
    options.user = o;
    options.gone = count_gone;
    return weir_pressure_register_with(o->f->runtime, &options, &o->ids[o->registered]);
}

static owner own(fixture *f)
{
    owner o = {.f = f, .gates = {GATE, GATE, GATE, GATE}, .state = malloc(sizeof(int))};
    *o.state = 7;
    return o;
}

static void listen_often(owner *o, unsigned registrations)
{
    for (; o->registered < registrations; o->registered++)
        ok(listen_as(o, (int)o->registered));
}

typedef struct asker {
    fixture *f;
    unsigned number;
    pthread_t thread;
} asker;

static void *ask(void *user)
{
    const asker *a = user;
    void *p;
    me = a->number;
    return weir_alloc(a->f->other, PART, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p) == WEIR_ERR_OUT_OF_MEMORY ? NULL : user;
}

static void begin_to_ask(asker *a, owner *o, unsigned number)
{
    *a = (asker){.f = o->f, .number = number};
    pthread_create(&a->thread, NULL, ask, a);
    gate *g = &o->gates[number];
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void let_leave(const asker *a, owner *o)
{
    void *failed;
    open_gate(&o->gates[a->number]);
    pthread_join(a->thread, &failed);
    assert_null(failed);
}

/* A callback of the test's own thread that ends the owner's registrations, and what came of it. */
typedef struct ender {
    owner *o;
    weir_status status[MOST_IDS];
    unsigned gone; /* when it had ended them */
    unsigned calls;
} ender;

static void end_all(const weir_pressure *pressure, void *user)
{
    ender *e = user;
    (void)pressure;
    if (me != 0 || e->calls++ > 0)
        return;
    for (unsigned i = 0; i < e->o->registered; i++)
        e->status[i] = weir_pressure_unregister(e->o->f->runtime, e->o->ids[i]);
    e->gone = atomic_load(&e->o->gone);
}

/* The test's thread needs memory, and its callback, which comes before the owner's, ends them. */
static ender end_from_inside(owner *o)
{
    ender e = {.o = o};
    void *p;
    uint64_t id = add(o->f, -1, end_all, &e);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(o->f->keeper, PART, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    ok(weir_pressure_unregister(o->f->runtime, id));
    assert_int_equal(e.calls, 1);
    for (unsigned i = 0; i < o->registered; i++)
        assert_int_equal(e.status[i], WEIR_OK);
    return e;
}

static void nobody_inside(void **state)
{
    (void)state;
    fixture f = start();
    owner o = own(&f);
    listen_often(&o, 1);
    ok(weir_pressure_unregister(f.runtime, o.ids[0]));
    assert_int_equal(atomic_load(&o.gone), 1);
    assert_true(pthread_equal(o.gone_on, pthread_self()));
    fails(WEIR_ERR_NOT_FOUND, weir_pressure_unregister(f.runtime, o.ids[0]));
    assert_int_equal(atomic_load(&o.gone), 1);
    end(&f);
}

static void what_is_refused_owns_nothing(void **state)
{
    (void)state;
    fixture f = start();
    owner o = own(&f);
    weir_pressure_options options = WEIR_INIT(weir_pressure_options);
    options.user = &o;
    options.gone = count_gone;
    uint64_t id = 5;
    fails(WEIR_ERR_INVALID, weir_pressure_register_with(f.runtime, &options, &id));
    detail_names("fn");
    options.fn = stay;
    fails(WEIR_ERR_INVALID, weir_pressure_register_with(f.runtime, &options, NULL));
    fails(WEIR_ERR_INVALID, weir_pressure_register_with(NULL, &options, &id));
    fails(WEIR_ERR_INVALID, weir_pressure_register_with(f.runtime, NULL, &id));
    options.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_pressure_register_with(f.runtime, &options, &id));
    detail_names("struct_size");
    assert_int_equal(id, 5);
    assert_int_equal(atomic_load(&o.gone), 0);
    options = WEIR_INIT(weir_pressure_options);
    options.fn = stay;
    options.user = &o;
    ok(weir_pressure_register_with(f.runtime, &options, &id)); /* without `gone` */
    ok(weir_pressure_unregister(f.runtime, id));
    free(o.state);
    end(&f);
}

static void remove_myself(const weir_pressure *pressure, void *user)
{
    owner *o = user;
    (void)pressure;
    atomic_fetch_add(&o->calls, 1);
    if (weir_pressure_unregister(o->f->runtime, o->ids[0]) != WEIR_OK || atomic_load(&o->gone) != 0 || *o->state != 7)
        atomic_store(&o->wrong, true);
}

static void a_callback_that_ends_itself(void **state)
{
    (void)state;
    fixture f = start();
    owner o = own(&f);
    weir_pressure_options options = WEIR_INIT(weir_pressure_options);
    options.fn = remove_myself;
    options.user = &o;
    options.gone = count_gone;
    o.registered = 1;
    ok(weir_pressure_register_with(f.runtime, &options, &o.ids[0]));
    keep_all(&f);
    void *p;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.other, PART, f.stream, WEIR_CLASS_KV, &p));
    assert_int_equal(atomic_load(&o.calls), 1);
    assert_int_equal(atomic_load(&o.gone), 1);
    assert_false(atomic_load(&o.wrong));
    end(&f);
}

static void another_thread_is_inside(void **state)
{
    (void)state;
    if (on_sim())
        skip(); /* one thread at a time */
    fixture f = start();
    owner o = own(&f);
    asker second;
    keep_all(&f);
    listen_often(&o, 1);
    begin_to_ask(&second, &o, 1);
    assert_int_equal(end_from_inside(&o).gone, 0);
    assert_int_equal(atomic_load(&o.gone), 0);
    pthread_t its = second.thread;
    let_leave(&second, &o);
    assert_int_equal(atomic_load(&o.gone), 1);
    assert_true(pthread_equal(o.gone_on, its));
    assert_int_equal(atomic_load(&o.calls), 1);
    assert_false(atomic_load(&o.wrong));
    end(&f);
}

/* The first that leaves is not the last. */
static void two_threads_are_inside(void **state)
{
    (void)state;
    if (on_sim())
        skip();
    fixture f = start();
    owner o = own(&f);
    asker askers[3];
    keep_all(&f);
    listen_often(&o, 1);
    for (unsigned i = 0; i < 3; i++)
        begin_to_ask(&askers[i], &o, i + 1);
    assert_int_equal(end_from_inside(&o).gone, 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&o.gone), 0);
        let_leave(&askers[i], &o);
    }
    assert_int_equal(atomic_load(&o.gone), 1);
    assert_true(pthread_equal(o.gone_on, askers[2].thread));
    assert_false(atomic_load(&o.wrong));
    end(&f);
}

/* As an engine has one for each device: those that nobody is in end at once, the other one when it is left, and whoever
 * leaves it finds the others ended. */
static void three_registrations_of_one_owner(void **state)
{
    (void)state;
    if (on_sim())
        skip();
    fixture f = start();
    owner o = own(&f);
    asker second;
    keep_all(&f);
    listen_often(&o, MOST_IDS);
    begin_to_ask(&second, &o, 1);
    assert_int_equal(end_from_inside(&o).gone, 2);
    let_leave(&second, &o);
    assert_int_equal(atomic_load(&o.gone), 3);
    assert_int_equal(atomic_load(&o.calls), 1);
    assert_false(atomic_load(&o.wrong));
    end(&f);
}

static void *end_from_outside(void *user)
{
    owner *o = user;
    return weir_pressure_unregister(o->f->runtime, o->ids[0]) == WEIR_OK && atomic_load(&o->gone) == 1 ? NULL : user;
}

/* Outside of callbacks the end waits for the call, and has it gone on its own thread. */
static void an_end_that_waits(void **state)
{
    (void)state;
    if (on_sim())
        skip();
    fixture f = start();
    owner o = own(&f);
    asker second;
    pthread_t ending;
    void *failed;
    keep_all(&f);
    listen_often(&o, 1);
    begin_to_ask(&second, &o, 1);
    pthread_create(&ending, NULL, end_from_outside, &o);
    assert_int_equal(atomic_load(&o.gone), 0);
    let_leave(&second, &o);
    pthread_join(ending, &failed);
    assert_null(failed);
    assert_int_equal(atomic_load(&o.gone), 1);
    assert_true(pthread_equal(o.gone_on, ending));
    assert_false(atomic_load(&o.wrong));
    end(&f);
}

/* What goes may call weir, within the limits of a callback. */
typedef struct leaver {
    fixture *f;
    uint64_t other; /* a registration that ends with it */
    void *block;
    giver *giver;
    weir_status freed, ended, asked;
} leaver;

static void leave_with_all(void *user)
{
    leaver *l = user;
    void *p;
    l->asked = weir_alloc(l->f->keeper, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p);
    l->freed = weir_free(l->f->keeper, l->block, WEIR_STREAM_HOST);
    l->ended = weir_pressure_unregister(l->f->runtime, l->other);
}

static void nothing_to_give(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    (void)user;
}

static void what_goes_may_call_weir(void **state)
{
    (void)state;
    fixture f = start();
    giver g = {.f = &f};
    leaver l = {.f = &f, .giver = &g, .block = allocate(f.keeper, PART, f.stream, WEIR_CLASS_KV)};
    weir_pressure_options options = WEIR_INIT(weir_pressure_options);
    uint64_t id;
    options.fn = nothing_to_give;
    options.user = &l;
    options.gone = leave_with_all;
    ok(weir_pressure_register_with(f.runtime, &options, &id));
    l.other = add(&f, 1, give, &g);
    ok(weir_pressure_unregister(f.runtime, id));
    assert_int_equal(l.asked, WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(g.calls, 0); /* a request made inside calls none */
    assert_int_equal(l.freed, WEIR_OK);
    assert_int_equal(l.ended, WEIR_OK);
    keep_all(&f);
    g.gives = 1;
    l.other = add(&f, 1, give, &g);
    void *p = allocate(f.other, PART, f.stream, WEIR_CLASS_KV); /* and one made afterwards does */
    assert_int_equal(g.calls, 1);
    ok(weir_free(f.other, p, f.stream));
    ok(weir_pressure_unregister(f.runtime, l.other));
    end(&f);
}

static void a_runtime_ends_what_is_left(void **state)
{
    (void)state;
    fixture f = start();
    owner o = own(&f);
    listen_often(&o, 2);
    ok(weir_pressure_unregister(f.runtime, o.ids[0]));
    assert_int_equal(atomic_load(&o.gone), 1);
    end(&f);
    assert_int_equal(atomic_load(&o.gone), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_inside),
        cmocka_unit_test(what_is_refused_owns_nothing),
        cmocka_unit_test(a_callback_that_ends_itself),
        cmocka_unit_test(another_thread_is_inside),
        cmocka_unit_test(two_threads_are_inside),
        cmocka_unit_test(three_registrations_of_one_owner),
        cmocka_unit_test(an_end_that_waits),
        cmocka_unit_test(what_goes_may_call_weir),
        cmocka_unit_test(a_runtime_ends_what_is_left),
    };
    setenv("WEIR_THREAD_CACHE", "0", 1); /* no thread cache keeps what is freed */
    return cmocka_run_group_tests_name("pressure_gone", tests, NULL, NULL);
}
