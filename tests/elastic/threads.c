/* Elastic blocks and several threads: commits and releases at once, pressure callbacks that release pages, a fork. */
#include "elastic/elastic.h"

#include <stdatomic.h>
#include <sys/wait.h>

/* Four threads --------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, OWN = 3, SHARED = 4, ALL = THREADS * OWN + SHARED, ROUNDS = UNDER_TSAN ? 20 : 200 };

typedef struct worker {
    fixture *f;
    weir_elastic *e;
    unsigned char *base, *bytes;
    weir_stream stream; /* of its own, for the shared pages */
    size_t number;
    uint64_t commits; /* of its own pages; the shared ones are anybody's */
    bool there[OWN];
    uint8_t holds[OWN];
} worker;

/* The pages of the threads lie between each other's: a thread's own are number, number + 4, … */
static size_t own_page(const worker *w, size_t i)
{
    return SHARED + i * THREADS + w->number;
}

static void look_at_own(const worker *w, size_t i)
{
    ok(weir_copy(w->f->runtime, w->bytes, w->base + own_page(w, i) * w->f->page, w->f->page, WEIR_STREAM_HOST));
    assert_int_equal(w->bytes[0], w->holds[i]);
    assert_int_equal(memcmp(w->bytes, w->bytes + 1, w->f->page - 1), 0);
}

static void turn_own(worker *w, size_t i, uint64_t *random)
{
    size_t page = own_page(w, i);
    if (w->there[i]) {
        look_at_own(w, i);
        release(w->f, w->e, page, 1, WEIR_STREAM_HOST);
        w->there[i] = false;
        return;
    }
    commit(w->f, w->e, page, 1);
    w->commits++;
    w->there[i] = true;
    w->holds[i] = 0;
    look_at_own(w, i);
    w->holds[i] = (uint8_t)next_random(random);
    ok(weir_fill(w->f->runtime, w->base + page * w->f->page, w->holds[i], w->f->page, WEIR_STREAM_HOST));
}

static void *work(void *user)
{
    worker *w = user;
    uint64_t random = 77 + w->number;
    for (int round = 0; round < ROUNDS; round++) {
        turn_own(w, next_random(&random) % OWN, &random);
        size_t first = next_random(&random) % SHARED, count = 1 + next_random(&random) % (SHARED - first);
        ok(try_commit(w->f, w->e, first, count, w->stream));
        first = next_random(&random) % SHARED;
        release(w->f, w->e, first, 1, next_random(&random) % 2 ? w->stream : WEIR_STREAM_HOST);
    }
    ok(weir_stream_synchronize(w->stream));
    return NULL;
}

static void four_threads_commit_and_release_at_once(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, ALL, true); /* all of the budget, so that nothing may be refused */
    worker workers[THREADS];
    pthread_t threads[THREADS];
    uint64_t commits = 0, there = 0;
    assert_int_equal(ALL, BUDGET_PAGES);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.f = f, .e = e, .base = stats_of(e).base, .bytes = malloc(f->page), .number = i};
        ok(weir_stream_acquire(f->runtime, &workers[i].stream));
    }
    ok(weir_option_set("wait", "20s"));
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    ok(weir_option_set("wait", NULL));
    release(f, e, 0, SHARED, WEIR_STREAM_HOST);
    for (size_t i = 0; i < THREADS; i++) {
        ok(weir_stream_release(workers[i].stream));
        commits += workers[i].commits;
        for (size_t k = 0; k < OWN; k++)
            if (workers[i].there[k]) {
                there++;
                look_at_own(&workers[i], k);
            }
        free(workers[i].bytes);
    }
    pages_are(f, e, there, 0);
    weir_elastic_stats s = stats_of(e);
    assert_int_equal(s.promised, (ALL - there) * f->page);
    assert_int_equal(s.commits - s.releases, there);
    assert_true(s.commits >= commits);
    assert_int_equal(s.refused, 0);
    snapshot now = take_snapshot(f->runtime);
    check_sums(&now);
    assert_int_equal(now.device.held, there * f->page);
    assert_int_equal(now.device.allocations, s.commits);
    ok(weir_elastic_check(e));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

static void *turn_the_last_page(void *user)
{
    worker *w = user;
    for (int round = 0; round < ROUNDS; round++) {
        ok(try_commit(w->f, w->e, 0, 1, w->stream));
        release(w->f, w->e, 0, 1, WEIR_STREAM_HOST);
    }
    return NULL;
}

/* The promise has bytes for a single page: a thread finds the page unused and no bytes left, as another thread has just taken
 * them, and must not be refused. */
static void threads_that_want_the_last_promised_page_are_not_refused(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 1, true);
    worker workers[THREADS];
    pthread_t threads[THREADS];
    ok(weir_option_set("wait", "20s"));
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.f = f, .e = e, .stream = WEIR_STREAM_HOST};
        assert_int_equal(pthread_create(&threads[i], NULL, turn_the_last_page, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    ok(weir_option_set("wait", NULL));
    weir_elastic_stats s = stats_of(e);
    assert_int_equal(s.refused, 0);
    assert_int_equal(s.commits, s.releases);
    assert_int_equal(s.promised, f->page);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* Ahead ------------------------------------------------------------------------------------------------------------ */

enum { AHEAD = 12 };

typedef struct grower {
    fixture *f;
    weir_elastic *e;
    atomic_size_t there; /* pages */
} grower;

static void *grow(void *user)
{
    grower *g = user;
    for (size_t i = 1; i < AHEAD; i++) {
        commit(g->f, g->e, i, 1);
        atomic_store(&g->there, i + 1);
    }
    return NULL;
}

/* One thread commits ahead of the stream. Each page is filled from the one before, so that every copy is of what the stream did last. */
static void a_block_grows_while_its_stream_works(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 100, false);
    char *base = stats_of(e).base;
    grower g = {.f = f, .e = e, .there = 1};
    pthread_t thread;
    commit(f, e, 0, 1);
    assert_int_equal(pthread_create(&thread, NULL, grow, &g), 0);
    for (size_t done = 1; done < AHEAD;) {
        ok(weir_fill(f->runtime, base, (uint8_t)done, f->page, f->stream));
        if (atomic_load(&g.there) == done) {
            ok(weir_stream_synchronize(f->stream)); /* or there is ever more to do before the next page */
            continue;
        }
        ok(weir_copy(f->runtime, base + done * f->page, base + (done - 1) * f->page, f->page, f->stream));
        ok(weir_fill(f->runtime, base + done * f->page, (uint8_t)(40 + done), 1, f->stream));
        done++;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    ok(weir_stream_synchronize(f->stream));
    for (size_t i = 0; i < AHEAD; i++) {
        ok(weir_copy(f->runtime, f->bytes, base + i * f->page, f->page, WEIR_STREAM_HOST));
        assert_int_equal(f->bytes[0], i == 0 ? AHEAD - 1 : 40 + i);
        assert_int_equal(f->bytes[f->page - 1], i == 0 ? AHEAD - 1 : 1);
    }
    ok(weir_elastic_check(e));
    ok(weir_elastic_destroy(e, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

/* Pressure --------------------------------------------------------------------------------------------------------- */

typedef struct giver {
    fixture *f;
    weir_elastic *e;
    size_t first, count;
    unsigned calls;
    uint64_t bytes;
} giver;

static void give_pages(const weir_pressure *pressure, void *user)
{
    giver *g = user;
    g->calls++;
    g->bytes = pressure->bytes;
    release(g->f, g->e, g->first, g->count, WEIR_STREAM_HOST);
}

static void a_pressure_callback_releases_pages_of_another_block(void **state)
{
    fixture *f = *state;
    weir_elastic *mine = create(f, 10, false), *theirs = create(f, 20, false);
    giver g = {.f = f, .e = theirs, .first = 2, .count = 4};
    uint64_t id;
    commit(f, mine, 0, 6);
    commit(f, theirs, 0, 10);
    ok(weir_pressure_register(f->runtime, 0, give_pages, &g, &id));
    commit(f, mine, 5, 4); /* three are missing */
    assert_int_equal(g.calls, 1);
    assert_int_equal(g.bytes, 3 * f->page);
    pages_are(f, mine, 9, 0);
    pages_are(f, theirs, 6, 0);
    assert_int_equal(stats_of(mine).refused, 0);
    ok(weir_pressure_unregister(f->runtime, id));
    ok(weir_elastic_destroy(mine, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(theirs, WEIR_STREAM_HOST));
}

static void give_pages_and_capture(const weir_pressure *pressure, void *user)
{
    giver *g = user;
    give_pages(pressure, user);
    ok(weir_capture_begin(g->f->stream, NULL));
}

/* The zeros of the new pages would be the graph's. */
static void a_capture_begins_while_a_commit_waits_for_room(void **state)
{
    fixture *f = *state;
    weir_elastic *mine = create(f, 10, false), *theirs = create(f, 20, false);
    giver g = {.f = f, .e = theirs, .first = 0, .count = 4};
    uint64_t id;
    commit(f, theirs, 0, BUDGET_PAGES);
    ok(weir_pressure_register(f->runtime, 0, give_pages_and_capture, &g, &id));
    fails(WEIR_ERR_STREAM_MISUSE, try_commit(f, mine, 0, 2, f->stream));
    detail_names("weir_elastic_commit");
    assert_int_equal(g.calls, 1);
    ok(weir_pressure_unregister(f->runtime, id));
    ok(weir_capture_end(f->stream, NULL));
    pages_are(f, mine, 0, 0);
    pages_are(f, theirs, BUDGET_PAGES - 4, 0);
    ok(weir_elastic_destroy(mine, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(theirs, WEIR_STREAM_HOST));
}

/* Pages that the callback has given up and that the commit is about are there all the same, and new. */
static void a_pressure_callback_releases_pages_of_the_same_block(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 40, false);
    giver g = {.f = f, .e = e, .first = 0, .count = 3};
    uint64_t id;
    commit(f, e, 0, BUDGET_PAGES);
    write_page(f, e, 2, 1);
    write_page(f, e, 4, 2);
    ok(weir_pressure_register(f->runtime, 0, give_pages, &g, &id));
    commit(f, e, 20, 2);
    assert_int_equal(g.calls, 1);
    pages_are(f, e, BUDGET_PAGES - 1, 0);
    g.first = 2;
    g.count = 2;
    release(f, e, 5, 1, WEIR_STREAM_HOST);
    commit(f, e, 2, 2); /* one of them is there, and there is room for the other */
    g.first = 6;
    commit(f, e, 4, 2);
    page_holds(f, e, 4, 2);
    page_holds(f, e, 2, 0);
    ok(weir_pressure_unregister(f->runtime, id));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

typedef struct swapper {
    fixture *f;
    weir_elastic *e;
    bool done;
} swapper;

static void release_what_is_asked_for(const weir_pressure *pressure, void *user)
{
    swapper *s = user;
    (void)pressure;
    if (!s->done)
        release(s->f, s->e, 0, 4, WEIR_STREAM_HOST);
    s->done = true;
}

static void what_a_callback_takes_from_under_a_commit_is_committed_again(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 40, false);
    swapper s = {.f = f, .e = e};
    uint64_t id;
    commit(f, e, 0, BUDGET_PAGES - 1);
    write_page(f, e, 3, 9);
    write_page(f, e, 4, 8);
    ok(weir_pressure_register(f->runtime, 0, release_what_is_asked_for, &s, &id));
    void *rest = allocate(f->other, f->page, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    commit(f, e, 3, BUDGET_PAGES - 3); /* the last one was missing, and then the first one, too */
    assert_true(s.done);
    pages_are(f, e, BUDGET_PAGES - 3, 0);
    page_holds(f, e, 3, 0);
    page_holds(f, e, 4, 8);
    assert_int_equal(stats_of(e).refused, 0);
    ok(weir_pressure_unregister(f->runtime, id));
    ok(weir_free(f->other, rest, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* Fork ------------------------------------------------------------------------------------------------------------- */

static void a_forked_child_is_told(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 4, false), *none;
    weir_elastic_stats s = WEIR_INIT(weir_elastic_stats);
    commit(f, e, 0, 1);
    pid_t child = fork();
    if (child == 0)
        _exit(!(weir_elastic_commit(e, 0, 1, WEIR_STREAM_HOST) == WEIR_ERR_FORKED &&
                weir_elastic_release(e, 0, f->page, WEIR_STREAM_HOST) == WEIR_ERR_FORKED &&
                weir_elastic_info(e, &s) == WEIR_ERR_FORKED && weir_elastic_check(e) == WEIR_ERR_FORKED &&
                try_create(f->client, 1, false, &none) == WEIR_ERR_FORKED &&
                weir_elastic_destroy(e, WEIR_STREAM_HOST) == WEIR_ERR_FORKED));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    pages_are(f, e, 1, 0);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(four_threads_commit_and_release_at_once),
        CASE(threads_that_want_the_last_promised_page_are_not_refused),
        CASE(a_block_grows_while_its_stream_works),
        CASE(a_pressure_callback_releases_pages_of_another_block),
        CASE(a_capture_begins_while_a_commit_waits_for_room),
        CASE(a_pressure_callback_releases_pages_of_the_same_block),
        CASE(what_a_callback_takes_from_under_a_commit_is_committed_again),
        CASE(a_forked_child_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
