/* Pressure callbacks: when they are asked, in which order and how often, what they may do, and how they go. On the device that
 * WEIR_TEST_DEVICE names, or the host. */
#include "core.h"

#include "driver/sim.h"
#include "runtime/runtime.h"

#include <stdatomic.h>

enum { PARTS = 4, PART = 4 << 16, BUDGET = PARTS * PART };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *keeper, *other;
    weir_stream stream;
    bool sim; /* work is done when somebody waits for it */
    gate gate;
    void *kept[PARTS]; /* NULL: given up */
} fixture;

static bool on_sim(void)
{
    const char *name = getenv("WEIR_TEST_DEVICE");
    return name && strncmp(name, "sim", 3) == 0;
}

static fixture start(void)
{
    fixture f = {.sim = on_sim(), .gate = GATE};
    if (f.sim)
        wi_sim_configure(&(wi_sim_options){.seed = 1, .granule = GRANULE, .bytes = 64 * MIB});
    f.runtime = make_runtime_on(f.sim ? "sim:0" : "host", BUDGET);
    f.keeper = open_client(f.runtime, "keeper", 0, 0);
    f.other = open_client(f.runtime, "other", 0, 0);
    ok(weir_stream_acquire(f.runtime, &f.stream));
    return f;
}

static void keep_all(fixture *f)
{
    for (int i = 0; i < PARTS; i++)
        f->kept[i] = allocate(f->keeper, PART, f->stream, WEIR_KV);
}

/* True if there was one left. */
static bool give_up_one(fixture *f)
{
    for (int i = 0; i < PARTS; i++)
        if (f->kept[i]) {
            ok(weir_free(f->keeper, f->kept[i], WEIR_STREAM_HOST));
            f->kept[i] = NULL;
            return true;
        }
    return false;
}

static unsigned count_kept(const fixture *f)
{
    unsigned count = 0;
    for (int i = 0; i < PARTS; i++)
        count += f->kept[i] != NULL;
    return count;
}

static void end(fixture *f)
{
    while (give_up_one(f))
        continue;
    ok(weir_stream_release(f->stream));
    check_empty(f->runtime);
    ok(weir_client_close(f->keeper));
    ok(weir_client_close(f->other));
    ok(weir_runtime_destroy(f->runtime));
}

static weir_status take_at_once(weir_client *client, size_t bytes, weir_stream stream, void **out)
{
    weir_request request = {
        .size = sizeof request, .bytes = bytes, .stream = stream, .memory_class = WEIR_KV, .flags = WEIR_NO_WAIT};
    weir_block block = {NULL, 0};
    weir_status status = weir_alloc_with(client, &request, &block);
    *out = block.pointer;
    return status;
}

static uint64_t add(fixture *f, int priority, weir_pressure_fn fn, void *user)
{
    uint64_t id = 0;
    ok(weir_pressure_add(f->runtime, priority, fn, user, &id));
    assert_true(id != 0);
    return id;
}

static uint64_t served_by_pressure(fixture *f)
{
    return take_snapshot(f->runtime).device.ladder[WEIR_RUNG_PRESSURE];
}

/* A callback that counts, writes down what it was told, and gives up as many parts as it may. */
typedef struct giver {
    fixture *f;
    unsigned calls, gives; /* parts at each call */
    weir_pressure told;
    char name;
    char *order; /* names of the callbacks, as they are called */
} giver;

static void give(const weir_pressure *pressure, void *user)
{
    giver *g = user;
    g->calls++;
    g->told = *pressure;
    if (g->order)
        g->order[strlen(g->order)] = g->name;
    for (unsigned i = 0; i < g->gives; i++)
        (void)give_up_one(g->f);
}

/* Order, number and effect ------------------------------------------------------------------------------------------ */

static void the_lowest_priority_is_asked_first(void **state)
{
    (void)state;
    fixture f = start();
    char order[16] = "";
    giver last = {.f = &f, .name = 'd', .order = order, .gives = 1}, third = {.f = &f, .name = 'c', .order = order},
          second = {.f = &f, .name = 'b', .order = order}, first = {.f = &f, .name = 'a', .order = order};
    (void)add(&f, 7, give, &last);
    (void)add(&f, 5, give, &second);
    (void)add(&f, -5, give, &first);
    (void)add(&f, 5, give, &third);
    keep_all(&f);
    void *p = allocate(f.other, 1000, f.stream, WEIR_SCRATCH);
    assert_string_equal(order, "abcd");
    assert_int_equal(last.told.bytes, 1024);
    assert_int_equal(last.told.shortfall, 1024);
    assert_ptr_equal(last.told.client, f.other);
    assert_string_equal(last.told.device, weir_runtime_device(f.runtime));
    assert_int_equal(last.told.memory_class, WEIR_SCRATCH);
    assert_int_equal(last.told.attempt, 1);
    assert_int_equal(served_by_pressure(&f), 1);
    assert_int_equal(count_kept(&f), PARTS - 1);
    ok(weir_free(f.other, p, f.stream));
    end(&f);
}

/* One that makes room is asked again before the next is; what is not needed stays. */
static void only_what_is_needed_is_given_up(void **state)
{
    (void)state;
    fixture f = start();
    giver cheap = {.f = &f, .gives = 1}, dear = {.f = &f, .gives = PARTS};
    (void)add(&f, 2, give, &dear);
    (void)add(&f, 1, give, &cheap);
    keep_all(&f);
    void *p = allocate(f.other, 2 * PART, f.stream, WEIR_KV);
    assert_int_equal(cheap.calls, 2);
    assert_int_equal(cheap.told.attempt, 2);
    assert_int_equal(cheap.told.shortfall, PART);
    assert_int_equal(dear.calls, 0);
    assert_int_equal(count_kept(&f), 2);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    end(&f);
}

static void what_does_not_help_is_asked_once(void **state)
{
    (void)state;
    fixture f = start();
    giver idle = {.f = &f}, idle_too = {.f = &f};
    uint64_t first = add(&f, 0, give, &idle);
    (void)add(&f, 0, give, &idle_too);
    keep_all(&f);
    void *p;
    fails(WEIR_OUT_OF_MEMORY, weir_alloc(f.other, PART, f.stream, WEIR_KV, &p));
    assert_int_equal(idle.calls, 1);
    assert_int_equal(idle_too.calls, 1);
    ok(weir_pressure_remove(f.runtime, first));
    fails(WEIR_OUT_OF_MEMORY, weir_alloc(f.other, PART, f.stream, WEIR_KV, &p));
    assert_int_equal(idle.calls, 1);
    assert_int_equal(idle_too.calls, 2);
    assert_int_equal(idle_too.told.attempt, 1); /* of this request */
    assert_int_equal(served_by_pressure(&f), 0);
    end(&f);
}

static void not_where_nothing_is_short(void **state)
{
    (void)state;
    fixture f = start();
    giver g = {.f = &f, .gives = PARTS};
    (void)add(&f, 0, give, &g);
    keep_all(&f);
    assert_true(give_up_one(&f));
    void *p = allocate(f.other, PART, f.stream, WEIR_KV);
    assert_int_equal(g.calls, 0);
    ok(weir_free(f.other, p, f.stream));
    end(&f);
}

static void not_for_requests_that_may_not_wait(void **state)
{
    (void)state;
    fixture f = start();
    giver g = {.f = &f, .gives = PARTS};
    (void)add(&f, 0, give, &g);
    keep_all(&f);
    void *p;
    weir_reservation *r;
    fails(WEIR_OUT_OF_MEMORY, take_at_once(f.other, PART, f.stream, &p));
    fails(WEIR_OUT_OF_MEMORY, weir_reserve(f.other, PART, WEIR_NO_WAIT, &r));
    ok(weir_capture_begin(f.stream));
    fails(WEIR_OUT_OF_MEMORY, weir_alloc(f.other, PART, f.stream, WEIR_KV, &p));
    ok(weir_capture_end(f.stream));
    assert_int_not_equal(weir_resize(f.keeper, f.kept[PARTS - 1], 2 * PART, f.stream), WEIR_OK);
    assert_int_equal(g.calls, 0);
    ok(weir_reserve(f.other, PART, 0, &r)); /* this one may */
    assert_int_equal(g.calls, 1);
    ok(weir_reservation_release(r));
    end(&f);
}

/* It is not only the budget that can be short, and not only frees that help. */
static void raise_the_maximum(const weir_pressure *pressure, void *user)
{
    fixture *f = user;
    assert_int_equal(pressure->shortfall, PART);
    ok(weir_client_set_limits(f->other, 0, 2 * PART));
}

static void a_limit_that_is_raised(void **state)
{
    (void)state;
    fixture f = start();
    ok(weir_client_set_limits(f.other, 0, PART));
    (void)add(&f, 0, raise_the_maximum, &f);
    void *p = allocate(f.other, 2 * PART, f.stream, WEIR_KV);
    assert_int_equal(served_by_pressure(&f), 1);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    end(&f);
}

/* A guarantee that is not used up is there for its client, and for nobody else. */
static void what_is_guaranteed_is_not_short(void **state)
{
    (void)state;
    fixture f = start();
    giver g = {.f = &f, .gives = 1};
    ok(weir_client_set_limits(f.other, PART, 0));
    for (int i = 0; i < PARTS - 1; i++)
        f.kept[i] = allocate(f.keeper, PART, WEIR_STREAM_HOST, WEIR_KV);
    (void)add(&f, 0, give, &g);
    void *p = allocate(f.other, 2 * PART, f.stream, WEIR_KV);
    assert_int_equal(g.calls, 1);
    assert_int_equal(g.told.shortfall, PART);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    end(&f);
}

/* What stands in the way of one piece. */
static void give_up_the_neighbour(const weir_pressure *pressure, void *user)
{
    fixture *f = user;
    assert_true(pressure->shortfall <= pressure->bytes && pressure->shortfall > 0);
    (void)give_up_one(f);
}

static void pieces_that_are_too_small(void **state)
{
    (void)state;
    fixture f = start();
    void *small[2 * PARTS];
    (void)add(&f, 0, give_up_the_neighbour, &f);
    for (int i = 0; i < 2 * PARTS; i++)
        small[i] = allocate(f.other, PART / 2, WEIR_STREAM_HOST, WEIR_KV);
    for (int i = 0; i < 2 * PARTS; i += 2)
        ok(weir_free(f.other, small[i], WEIR_STREAM_HOST));
    for (int i = 0; i < 3; i++) { /* a bit of each handle, so that none can be moved */
        f.kept[i] = small[2 * i + 1];
        small[2 * i + 1] = NULL;
    }
    for (int i = 0; i < 3; i++) {
        ok(weir_free(f.other, f.kept[i], WEIR_STREAM_HOST));
        f.kept[i] = allocate(f.keeper, PART / 2, WEIR_STREAM_HOST, WEIR_KV);
    }
    void *p = allocate(f.other, 3 * PART, f.stream, WEIR_KV);
    assert_int_equal(served_by_pressure(&f), 1);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    for (int i = 0; i < 2 * PARTS; i++)
        if (i % 2 && small[i])
            ok(weir_free(f.other, small[i], WEIR_STREAM_HOST));
    end(&f);
}

/* Freed on a stream that has more to do: it is waited for, though the limits had no room before the callback. */
static void free_behind_work(const weir_pressure *pressure, void *user)
{
    fixture *f = user;
    (void)pressure;
    if (f->kept[0])
        free_behind(f->keeper, f->kept[0], f->stream);
    f->kept[0] = NULL;
}

static void what_is_freed_may_be_waited_for(void **state)
{
    (void)state;
    fixture f = start();
    pthread_t opener;
    keep_all(&f);
    (void)add(&f, 0, free_behind_work, &f);
    if (!f.sim)
        ok(weir_call(f.runtime, pass_gate, &f.gate, f.stream));
    ok(weir_fill(f.runtime, f.kept[0], 1, PART, f.stream));
    pthread_create(&opener, NULL, open_gate_later, &f.gate);
    void *p = allocate(f.other, PART, WEIR_STREAM_HOST, WEIR_KV);
    pthread_join(opener, NULL);
    weir_stats stats = take_snapshot(f.runtime).device;
    assert_int_equal(stats.ladder[WEIR_RUNG_WAIT], 1);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    end(&f);
}

static void free_in_order(const weir_pressure *pressure, void *user)
{
    fixture *f = user;
    (void)pressure;
    if (f->kept[0])
        ok(weir_free(f->keeper, f->kept[0], f->stream));
    f->kept[0] = NULL;
}

/* What is freed in a callback may be parked first. */
static void what_is_freed_may_be_parked(void **state)
{
    enum { SMALL = 4096 };
    (void)state;
    ok(weir_option_set("front", "1MiB"));
    fixture f = start();
    ok(weir_option_set("front", NULL));
    giver last = {.f = &f};
    (void)add(&f, 0, free_in_order, &f);
    (void)add(&f, 1, give, &last);
    f.kept[0] = allocate(f.keeper, SMALL, f.stream, WEIR_KV);
    void *most = allocate(f.other, BUDGET - GRANULE, f.stream, WEIR_WEIGHTS), *p;
    p = allocate(f.other, GRANULE, f.stream, WEIR_WEIGHTS);
    assert_int_equal(last.calls, 0); /* the first one has helped */
    assert_int_equal(served_by_pressure(&f), 1);
    ok(weir_free(f.other, p, WEIR_STREAM_HOST));
    ok(weir_free(f.other, most, WEIR_STREAM_HOST));
    end(&f);
}

/* Pinned memory is the host's to make room for. */
static void memory_of_another_kind(void **state)
{
    (void)state;
    if (!on_sim())
        skip(); /* there is one kind */
    wi_sim_configure(&(wi_sim_options){.seed = 1, .granule = GRANULE, .bytes = 64 * MIB});
    weir_runtime *host = make_runtime(BUDGET);
    weir_runtime_options options = {.size = sizeof options, .budget = BUDGET, .host = host};
    fixture f = {.sim = true};
    ok(weir_runtime_create("sim:0", &options, &f.runtime));
    ok(weir_stream_acquire(f.runtime, &f.stream));
    f.other = open_client(f.runtime, "other", 0, 0);
    f.keeper = open_client(host, "keeper", 0, 0);
    giver of_device = {.f = &f}, of_host = {.f = &f, .gives = 1};
    uint64_t id;
    ok(weir_pressure_add(f.runtime, 0, give, &of_device, &id));
    ok(weir_pressure_add(host, 0, give, &of_host, &id));
    for (int i = 0; i < PARTS; i++)
        f.kept[i] = allocate(f.keeper, PART, WEIR_STREAM_HOST, WEIR_KV);
    weir_request request = {.size = sizeof request, .bytes = PART, .kind = WEIR_KIND_PINNED};
    weir_block block;
    ok(weir_alloc_with(f.other, &request, &block));
    assert_int_equal(of_device.calls, 0);
    assert_int_equal(of_host.calls, 1);
    assert_string_equal(of_host.told.device, "host");
    assert_ptr_equal(of_host.told.client, f.other);
    ok(weir_free_block(f.other, block, WEIR_STREAM_HOST));
    while (give_up_one(&f))
        continue;
    ok(weir_client_close(f.keeper));
    ok(weir_client_close(f.other));
    ok(weir_stream_release(f.stream));
    ok(weir_runtime_destroy(f.runtime));
    ok(weir_runtime_destroy(host));
}

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
    h->asked_too_much = weir_alloc(h->f->keeper, BUDGET, h->f->stream, WEIR_KV, &p);
    (void)take_snapshot(h->f->runtime);
    while (give_up_one(h->f))
        continue;
    ok(weir_runtime_trim(h->f->runtime, 0, NULL));
    ok(weir_alloc(h->f->keeper, PART, h->f->stream, WEIR_KV, &h->mine));
    h->removed = weir_pressure_remove(h->f->runtime, h->id);
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
    void *p = allocate(f.other, 3 * PART, f.stream, WEIR_KV), *none;
    assert_int_equal(h.calls, 1);
    assert_int_equal(h.asked_too_much, WEIR_OUT_OF_MEMORY); /* and nobody was asked for its sake */
    assert_int_equal(h.removed, WEIR_OK);
    assert_int_equal(other.calls, 0);
    fails(WEIR_NOT_FOUND, weir_pressure_remove(f.runtime, h.id));
    fails(WEIR_OUT_OF_MEMORY, weir_alloc(f.other, PART, f.stream, WEIR_KV, &none));
    assert_int_equal(h.calls, 1);
    assert_int_equal(other.calls, 1);
    ok(weir_pressure_remove(f.runtime, later));
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
    h->mine = allocate(h->f->keeper, h->calls % 2 ? PART / 2 : PART, WEIR_STREAM_HOST, WEIR_KV);
}

static void a_callback_that_never_ends_giving(void **state)
{
    (void)state;
    fixture f = start();
    hostile h = {.f = &f};
    for (int i = 0; i < PARTS - 1; i++)
        f.kept[i] = allocate(f.keeper, PART, f.stream, WEIR_KV);
    h.mine = allocate(f.keeper, PART, f.stream, WEIR_KV);
    uint64_t id = add(&f, 0, give_and_take, &h);
    void *p;
    fails(WEIR_OUT_OF_MEMORY, weir_alloc(f.other, PART, f.stream, WEIR_KV, &p));
    assert_true(h.calls >= 2 && h.calls <= 64);
    ok(weir_pressure_remove(f.runtime, id));
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
    fails(WEIR_INVALID, weir_pressure_add(NULL, 0, give, &g, &id));
    fails(WEIR_INVALID, weir_pressure_add(f.runtime, 0, NULL, &g, &id));
    fails(WEIR_INVALID, weir_pressure_add(f.runtime, 0, give, &g, NULL));
    fails(WEIR_INVALID, weir_pressure_remove(NULL, 1));
    fails(WEIR_NOT_FOUND, weir_pressure_remove(f.runtime, 1));
    id = add(&f, 0, give, &g);
    ok(weir_pressure_remove(f.runtime, id));
    fails(WEIR_NOT_FOUND, weir_pressure_remove(f.runtime, id));
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
    return weir_alloc(s->f->other, PART, WEIR_STREAM_HOST, WEIR_KV, &p) == WEIR_OUT_OF_MEMORY ? NULL : s;
}

static void *remove_it(void *user)
{
    slow *s = user;
    weir_status status = weir_pressure_remove(s->f->runtime, s->id);
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
    (void)!weir_pressure_remove(d->f->runtime, d->ids[number]);
    pthread_barrier_wait(&d->both);
}

static void *ask_in_a_duel(void *user)
{
    duel *d = user;
    void *p;
    (void)!weir_alloc(d->f->other, PART, WEIR_STREAM_HOST, WEIR_KV, &p);
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
    fails(WEIR_NOT_FOUND, weir_pressure_remove(f.runtime, d.ids[0]));
    fails(WEIR_NOT_FOUND, weir_pressure_remove(f.runtime, d.ids[1]));
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
        if (weir_pressure_add(s->f->runtime, (int)number, give_the_spare, s, &id) != WEIR_OK)
            abort();
        weir_status status = weir_alloc(s->f->other, PART, s->f->stream, WEIR_KV, &p);
        if (status == WEIR_OK && weir_free(s->f->other, p, s->f->stream) != WEIR_OK)
            abort();
        if (weir_alloc(s->f->keeper, PART, WEIR_STREAM_HOST, WEIR_KV, &p) == WEIR_OK)
            p = atomic_exchange(&s->spare, p);
        if (p && weir_free(s->f->keeper, p, WEIR_STREAM_HOST) != WEIR_OK)
            abort();
        if (weir_pressure_remove(s->f->runtime, id) != WEIR_OK)
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
        f.kept[i] = allocate(f.keeper, PART, f.stream, WEIR_KV);
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
        cmocka_unit_test(the_lowest_priority_is_asked_first),
        cmocka_unit_test(only_what_is_needed_is_given_up),
        cmocka_unit_test(what_does_not_help_is_asked_once),
        cmocka_unit_test(not_where_nothing_is_short),
        cmocka_unit_test(not_for_requests_that_may_not_wait),
        cmocka_unit_test(a_limit_that_is_raised),
        cmocka_unit_test(what_is_guaranteed_is_not_short),
        cmocka_unit_test(pieces_that_are_too_small),
        cmocka_unit_test(what_is_freed_may_be_waited_for),
        cmocka_unit_test(what_is_freed_may_be_parked),
        cmocka_unit_test(memory_of_another_kind),
        cmocka_unit_test(a_callback_that_does_everything),
        cmocka_unit_test(a_callback_that_never_ends_giving),
        cmocka_unit_test(calls_that_are_wrong),
        cmocka_unit_test(a_removal_waits_for_calls),
        cmocka_unit_test(removals_from_inside_do_not_wait),
        cmocka_unit_test(callbacks_come_and_go),
    };
    setenv("WEIR_FRONT", "0", 1); /* what is freed is not parked, but where a test asks for it */
    return cmocka_run_group_tests_name("pressure", tests, NULL, NULL);
}
