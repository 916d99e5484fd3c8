/* Pressure callbacks: what they may do, and how they go. */
#include "pressure.h"

/* What a callback may do ------------------------------------------------------------------------------------------- */

typedef struct hostile {
    fixture *f;
    uint64_t id;
    unsigned calls;
    weir_status asked_too_much, removed;
    void *mine;
} hostile;

/* Asks for more than there is, looks, trims, gives everything up, takes some of it, and goes. */
static void do_everything(const weir_pressure *pressure, void *user)
{
    hostile *h = user;
    void *p;
    h->calls++;
    assert_true(pressure->attempt == 1);
    h->asked_too_much = weir_alloc(h->f->keeper, BUDGET, h->f->stream, WEIR_CLASS_KV, &p);
    (void)take_snapshot(h->f->runtime);
    while (give_up_one(h->f))
        continue;
    ok(weir_runtime_trim(h->f->runtime, NULL, NULL));
    ok(weir_alloc(h->f->keeper, PART, h->f->stream, WEIR_CLASS_KV, &h->mine));
    h->removed = weir_pressure_unregister(h->f->runtime, h->id);
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
}

static void a_callback_that_does_everything(void **state)
{
    (void)state;
    fixture f = start();
    hostile h = {.f = &f};
    giver other = {.f = &f};
    h.id = add(&f, 0, do_everything, &h);
    keep_all(&f);
    uint64_t later = add(&f, 1, give, &other);
    void *p = allocate(f.other, 3 * PART, f.stream, WEIR_CLASS_KV), *none;
    assert_int_equal(h.calls, 1);
    assert_int_equal(h.asked_too_much, WEIR_ERR_OUT_OF_MEMORY); /* and nobody was asked for its sake */
    assert_int_equal(h.removed, WEIR_OK);
    assert_int_equal(other.calls, 0);
    fails(WEIR_ERR_NOT_FOUND, weir_pressure_unregister(f.runtime, h.id));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.other, PART, f.stream, WEIR_CLASS_KV, &none));
    assert_int_equal(h.calls, 1);
    assert_int_equal(other.calls, 1);
    ok(weir_pressure_unregister(f.runtime, later));
    ok(weir_free(f.keeper, h.mine, f.stream));
    ok(weir_free(f.other, p, f.stream));
    end(&f);
}

/* What it gives with one hand it takes with the other: the request goes without, after a number of tries. */
static void give_and_take(const weir_pressure *pressure, void *user)
{
    hostile *h = user;
    (void)pressure;
    h->calls++;
    ok(weir_free(h->f->keeper, h->mine, WEIR_STREAM_HOST));
    h->mine = allocate(h->f->keeper, h->calls % 2 ? PART / 2 : PART, WEIR_STREAM_HOST, WEIR_CLASS_KV);
}

static void a_callback_that_never_ends_giving(void **state)
{
    (void)state;
    fixture f = start();
    hostile h = {.f = &f};
    for (int i = 0; i < PARTS - 1; i++)
        f.kept[i] = allocate(f.keeper, PART, f.stream, WEIR_CLASS_KV);
    h.mine = allocate(f.keeper, PART, f.stream, WEIR_CLASS_KV);
    uint64_t id = add(&f, 0, give_and_take, &h);
    void *p;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.other, PART, f.stream, WEIR_CLASS_KV, &p));
    assert_true(h.calls >= 2 && h.calls <= 64);
    ok(weir_pressure_unregister(f.runtime, id));
    ok(weir_free(f.keeper, h.mine, WEIR_STREAM_HOST));
    end(&f);
}

/* Going ------------------------------------------------------------------------------------------------------------ */

static void calls_that_are_wrong(void **state)
{
    (void)state;
    fixture f = start();
    giver g = {.f = &f};
    uint64_t id;
    fails(WEIR_ERR_INVALID, weir_pressure_register(NULL, 0, give, &g, &id));
    fails(WEIR_ERR_INVALID, weir_pressure_register(f.runtime, 0, NULL, &g, &id));
    fails(WEIR_ERR_INVALID, weir_pressure_register(f.runtime, 0, give, &g, NULL));
    fails(WEIR_ERR_INVALID, weir_pressure_unregister(NULL, 1));
    fails(WEIR_ERR_NOT_FOUND, weir_pressure_unregister(f.runtime, 1));
    id = add(&f, 0, give, &g);
    ok(weir_pressure_unregister(f.runtime, id));
    fails(WEIR_ERR_NOT_FOUND, weir_pressure_unregister(f.runtime, id));
    assert_true(add(&f, 0, give, &g) != id);
    end(&f); /* with one that is still there */
}

typedef struct slow {
    fixture *f;
    gate inside; /* reached when it is called; open when it may return */
    atomic_bool returned, removed;
    atomic_uint calls;
    uint64_t id;
    bool early; /* its removal came back before it did */
} slow;

static void take_long(const weir_pressure *pressure, void *user)
{
    slow *s = user;
    (void)pressure;
    atomic_fetch_add(&s->calls, 1);
    pass_gate(&s->inside);
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    atomic_store(&s->returned, true);
}

static void *ask_for_more(void *user)
{
    slow *s = user;
    void *p;
    return weir_alloc(s->f->other, PART, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p) == WEIR_ERR_OUT_OF_MEMORY ? NULL : s;
}

static void *remove_it(void *user)
{
    slow *s = user;
    weir_status status = weir_pressure_unregister(s->f->runtime, s->id);
    s->early = !atomic_load(&s->returned);
    return status == WEIR_OK ? NULL : s;
}

static void wait_until_inside(gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

/* Nobody is in what its owner is about to free. */
static void a_removal_waits_for_calls(void **state)
{
    (void)state;
    if (on_sim())
        skip(); /* one thread at a time */
    fixture f = start();
    slow s = {.f = &f, .inside = GATE};
    pthread_t asking, removing;
    void *failed;
    keep_all(&f);
    s.id = add(&f, 0, take_long, &s);
    pthread_create(&asking, NULL, ask_for_more, &s);
    wait_until_inside(&s.inside);
    pthread_create(&removing, NULL, remove_it, &s);
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    open_gate(&s.inside);
    pthread_join(removing, &failed);
    assert_null(failed);
    assert_false(s.early);
    pthread_join(asking, &failed);
    assert_null(failed);
    end(&f);
}

/* Two that remove each other do not wait for each other. */
typedef struct duel {
    fixture *f;
    pthread_barrier_t both;
    uint64_t ids[2];
    atomic_uint calls;
} duel;

static void remove_the_other(const weir_pressure *pressure, void *user)
{
    duel *d = user;
    unsigned number = atomic_fetch_add(&d->calls, 1);
    (void)pressure;
    if (number >= 2)
        return;
    pthread_barrier_wait(&d->both);
    (void)!weir_pressure_unregister(d->f->runtime, d->ids[number]);
    pthread_barrier_wait(&d->both);
}

static void *ask_in_a_duel(void *user)
{
    duel *d = user;
    void *p;
    (void)!weir_alloc(d->f->other, PART, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p);
    return NULL;
}

static void removals_from_inside_do_not_wait(void **state)
{
    (void)state;
    if (on_sim())
        skip();
    fixture f = start();
    duel d = {.f = &f};
    pthread_t threads[2];
    pthread_barrier_init(&d.both, NULL, 2);
    keep_all(&f);
    d.ids[0] = add(&f, 0, remove_the_other, &d);
    d.ids[1] = add(&f, 0, remove_the_other, &d);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, ask_in_a_duel, &d);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    fails(WEIR_ERR_NOT_FOUND, weir_pressure_unregister(f.runtime, d.ids[0]));
    fails(WEIR_ERR_NOT_FOUND, weir_pressure_unregister(f.runtime, d.ids[1]));
    pthread_barrier_destroy(&d.both);
    end(&f);
}

/* Threads starve each other while callbacks come and go. */
enum { STORM_THREADS = 4, STORM_ROUNDS = UNDER_TSAN ? 40 : 200 };

typedef struct storm {
    fixture *f;
    atomic_uint turn, asked;
    _Atomic(void *) spare; /* a block that a callback may give up */
} storm;

static void give_the_spare(const weir_pressure *pressure, void *user)
{
    storm *s = user;
    void *p = atomic_exchange(&s->spare, NULL);
    (void)pressure;
    atomic_fetch_add(&s->asked, 1);
    if (p && weir_free(s->f->keeper, p, WEIR_STREAM_HOST) != WEIR_OK)
        abort();
}

static void *starve(void *user)
{
    storm *s = user;
    unsigned number = atomic_fetch_add(&s->turn, 1);
    for (int i = 0; i < STORM_ROUNDS; i++) {
        void *p;
        uint64_t id;
        if (weir_pressure_register(s->f->runtime, (int)number, give_the_spare, s, &id) != WEIR_OK)
            abort();
        weir_status status = weir_alloc(s->f->other, PART, s->f->stream, WEIR_CLASS_KV, &p);
        if (status == WEIR_OK && weir_free(s->f->other, p, s->f->stream) != WEIR_OK)
            abort();
        if (weir_alloc(s->f->keeper, PART, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p) == WEIR_OK)
            p = atomic_exchange(&s->spare, p);
        if (p && weir_free(s->f->keeper, p, WEIR_STREAM_HOST) != WEIR_OK)
            abort();
        if (weir_pressure_unregister(s->f->runtime, id) != WEIR_OK)
            abort();
    }
    return NULL;
}

static void callbacks_come_and_go(void **state)
{
    (void)state;
    if (on_sim())
        skip();
    fixture f = start();
    storm s = {.f = &f};
    pthread_t threads[STORM_THREADS];
    ok(weir_option_set("wait", "1ms"));
    for (int i = 0; i < PARTS - 1; i++)
        f.kept[i] = allocate(f.keeper, PART, f.stream, WEIR_CLASS_KV);
    for (int i = 0; i < STORM_THREADS; i++)
        pthread_create(&threads[i], NULL, starve, &s);
    for (int i = 0; i < STORM_THREADS; i++)
        pthread_join(threads[i], NULL);
    ok(weir_option_set("wait", NULL));
    void *left = atomic_load(&s.spare);
    if (left)
        ok(weir_free(f.keeper, left, WEIR_STREAM_HOST));
    assert_true(atomic_load(&s.asked) > 0);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_callback_that_does_everything),
        cmocka_unit_test(a_callback_that_never_ends_giving),
        cmocka_unit_test(calls_that_are_wrong),
        cmocka_unit_test(a_removal_waits_for_calls),
        cmocka_unit_test(removals_from_inside_do_not_wait),
        cmocka_unit_test(callbacks_come_and_go),
    };
    setenv("WEIR_THREAD_CACHE", "0", 1); /* no thread cache keeps what is freed, but where a test asks for it */
    return cmocka_run_group_tests_name("pressure_calls", tests, NULL, NULL);
}
