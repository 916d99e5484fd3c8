/* The guard's own work is ordered; beside much else it finds nothing where nothing is wrong. */
#include "resources/guard_fixture.h"
#include <weir/guard.h>

/* Order ------------------------------------------------------------------------------------------------------------ */

static void poison_is_the_first_write(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    weir_block block = make(f, 1000, f->a, NULL);
    ok(weir_fill(f->runtime, block.pointer, 1, 1000, f->a));
    ok(weir_free(f->client, block.pointer, f->b)); /* before anything of it is done */
    assert_int_equal(pending(f), 1536);
    assert_int_equal(count_reports(f), 0);
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    trim(f);
    assert_int_equal(pending(f), 0);
    assert_int_equal(count_reports(f), 0);
}

static int set_up_segments(void **state)
{
    set_up_with(state, "guard(segments)");
    return 0;
}

static int64_t requested(fixture *f)
{
    weir_memory_stats stats = WEIR_INIT(weir_memory_stats);
    ok(weir_memory_stats_info(f->runtime, &stats));
    return (int64_t)stats.requested_bytes.current;
}

static void a_cut_block_has_a_longer_zone(void **state)
{
    fixture *f = *state;
    weir_block block = make(f, 1000, f->a, NULL);
    uint64_t charged = take_snapshot(f->runtime).device.live;
    ok(weir_resize(f->client, block.pointer, 600, f->b));
    assert_int_equal(requested(f), 600);
    ok(weir_resize(f->client, block.pointer, 610, f->b));
    assert_int_equal(requested(f), 610);
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(take_snapshot(f->runtime).device.live, charged);
    weir_block_details details = WEIR_INIT(weir_block_details);
    ok(weir_block_info(block.pointer, &details));
    assert_int_equal(details.bytes, 610);
    ok(weir_guard_check(f->runtime));
    ok(weir_resize(f->client, block.pointer, 1024, f->b)); /* as far as its own bytes reach */
    ok(weir_resize(f->client, block.pointer, 610, f->b));
    ok(weir_stream_synchronize(f->b));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_NO_ROOM, weir_resize(f->client, block.pointer, 1025, f->b));
    detail_names("red zone");
    fails(WEIR_ERR_NO_ROOM, weir_resize(f->client, block.pointer, MIB, f->b));
    unchanged(f->runtime, before);
    write_at(f, block, 610, 3, 1);
    ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
    weir_guard_report r = last_report(f, 1);
    check_report(&r, WEIR_GUARD_OVERRUN, block, 610, 610, 1);
}

/* Where bytes are charged in larger units than the guard's, too. */
static void a_block_grows_into_no_zone(void **state)
{
    fixture *f = *state;
    weir_block block = make(f, 100, f->a, NULL);
    snapshot before = take_snapshot(f->runtime);
    for (size_t bytes = 257; bytes <= 1024; bytes += 256)
        fails(WEIR_ERR_NO_ROOM, weir_resize(f->client, block.pointer, bytes, f->b));
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    unchanged(f->runtime, before);
    ok(weir_guard_check(f->runtime));
    ok(weir_resize(f->client, block.pointer, 256, f->b));
    assert_int_equal(requested(f), 256);
    ok(weir_free(f->client, block.pointer, f->b));
}

/* The poison of a block that is cut elsewhere at once must not come over its new zone. */
static void a_cut_comes_after_the_poison(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    pthread_t opener;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    weir_block one = make(f, 1000, f->a, NULL), two = make(f, 1000, f->a, NULL);
    ok(weir_resize(f->client, one.pointer, 10, f->b));
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &g), 0);
    ok(weir_resize(f->client, two.pointer, 10, WEIR_STREAM_HOST)); /* waits */
    pthread_join(opener, NULL);
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    ok(weir_guard_check(f->runtime));
    ok(weir_free(f->client, one.pointer, f->b));
    ok(weir_free(f->client, two.pointer, f->b));
}

/* Two streams still use the block: what each writes comes before the new zone. */
static void a_cut_comes_after_the_uses_of_all_streams(void **state)
{
    fixture *f = *state;
    gate gates[2] = {GATE, GATE};
    const weir_stream users[] = {f->a, f->b};
    pthread_t openers[2];
    weir_block block = make(f, 1000, WEIR_STREAM_HOST, NULL);
    for (int i = 0; i < 2; i++) {
        ok(weir_call(f->runtime, pass_gate, &gates[i], users[i]));
        ok(weir_fill(f->runtime, (char *)block.pointer + 500 + 100 * i, 1, 100, users[i]));
        ok(weir_use_record(f->runtime, block, users[i]));
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&openers[i], NULL, open_gate_later, &gates[i]), 0);
    ok(weir_resize(f->client, block.pointer, 10, WEIR_STREAM_HOST)); /* waits */
    for (int i = 0; i < 2; i++) {
        pthread_join(openers[i], NULL);
        ok(weir_stream_synchronize(users[i]));
    }
    ok(weir_guard_check(f->runtime));
    ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
}

static void a_free_waits_for_the_zone_of_a_cut_block(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_block block = make(f, 1000, f->a, NULL);
    ok(weir_stream_synchronize(f->a));
    ok(weir_call(f->runtime, pass_gate, &g, f->b));
    ok(weir_resize(f->client, block.pointer, 10, f->b));
    ok(weir_free(f->client, block.pointer, f->a));
    ok(weir_stream_synchronize(f->a));
    trim(f);
    assert_int_equal(pending(f), 1536);
    open_gate(&g);
    ok(weir_stream_synchronize(f->b));
    trim(f);
    assert_int_equal(pending(f), 0);
    assert_int_equal(count_reports(f), 0);
}

/* Runs ------------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    fixture *f;
    weir_client *client;
    weir_stream stream;
    uint64_t seed;
} worker;

static void *run(void *user)
{
    enum { STEPS = 2500, SLOTS = 12 };
    worker *w = user;
    weir_block slots[SLOTS] = {{NULL, 0}};
    size_t sizes[SLOTS];
    for (int i = 0; i < STEPS + SLOTS; i++) {
        uint64_t x = next_random(&w->seed);
        size_t at = i < STEPS ? x % SLOTS : (size_t)(i - STEPS);
        weir_stream stream = x & 64 ? w->stream : WEIR_STREAM_HOST;
        if (!slots[at].pointer && i < STEPS) {
            sizes[at] = 1 + (x >> 8) % 20000;
            weir_request request = {.struct_size = sizeof request, .bytes = sizes[at], .stream = stream};
            if (weir_alloc_with(w->client, &request, &slots[at]) == WEIR_OK)
                ok(weir_fill(w->f->runtime, slots[at].pointer, (uint8_t)x, sizes[at], stream));
        } else if (slots[at].pointer && i < STEPS && x % 7 == 0) {
            sizes[at] = 1 + sizes[at] / 2;
            if (stream.id == WEIR_STREAM_HOST.id)
                ok(weir_stream_synchronize(w->stream)); /* what it says is done is done */
            ok(weir_resize(w->client, slots[at].pointer, sizes[at], stream));
        } else if (slots[at].pointer) {
            ok(weir_stream_synchronize(w->stream));
            ok(weir_free_block(w->client, slots[at], stream));
            slots[at].pointer = NULL;
        }
        if (x % 97 == 0)
            ok(weir_runtime_trim(w->f->runtime, NULL, NULL));
    }
    return NULL;
}

static void nothing_is_found_where_nothing_is_wrong(void **state)
{
    enum { WORKERS = 4 };
    fixture *f = *state;
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker){f, open_client(f->runtime, "worker", 0, 0), f->a, 99 + (uint64_t)i};
        ok(weir_stream_acquire(f->runtime, &workers[i].stream));
        assert_int_equal(pthread_create(&threads[i], NULL, run, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < WORKERS; i++)
        ok(weir_client_destroy(workers[i].client)); /* nothing of theirs stays pending */
    for (int i = 0; i < WORKERS; i++)
        ok(weir_stream_release(workers[i].stream));
    assert_int_equal(count_reports(f), 0);
    ok(weir_guard_check(f->runtime));
    check_empty(f->runtime);
}

static atomic_bool stop;

static void *keep_checking(void *user)
{
    fixture *f = user;
    while (!atomic_load(&stop))
        ok(weir_guard_check(f->runtime));
    return NULL;
}

/* On the host alone in the device's order: the zones are there when the calls return. */
static void checks_beside_frees(void **state)
{
    fixture *f = *state;
    pthread_t checker;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&checker, NULL, keep_checking, f), 0);
    for (int i = 0; i < 2000; i++) {
        weir_block one = make(f, 1000, WEIR_STREAM_HOST, NULL), two = make(f, 90000, WEIR_STREAM_HOST, NULL);
        ok(weir_resize(f->client, one.pointer, 999, WEIR_STREAM_HOST));
        ok(weir_free(f->client, one.pointer, WEIR_STREAM_HOST));
        ok(weir_free(f->client, two.pointer, WEIR_STREAM_HOST));
    }
    atomic_store(&stop, true);
    pthread_join(checker, NULL);
    assert_int_equal(count_reports(f), 0);
}

static weir_client *hungry;

/* The log's function may call weir, also for memory that there is only when others have given theirs back. */
static void allocate_when_told(weir_log_level level, const char *text, void *user)
{
    (void)level, (void)text;
    void *pointer;
    atomic_int *served = user;
    if (weir_alloc(hungry, BUDGET - 512, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &pointer) == WEIR_OK) {
        atomic_fetch_add(served, 1);
        ok(weir_free(hungry, pointer, WEIR_STREAM_HOST));
    }
}

static void who_listens_may_allocate(void **state)
{
    fixture *f = *state;
    atomic_int served = 0;
    hungry = f->client;
    ok(weir_log_set(allocate_when_told, &served, WEIR_LOG_ERROR));
    weir_block block = make(f, 100, WEIR_STREAM_HOST, NULL), kept = make(f, 100, WEIR_STREAM_HOST, NULL);
    ok(weir_free(f->client, kept.pointer, WEIR_STREAM_HOST));
    write_at(f, kept, 0, 0, 1);
    write_at(f, block, 100, 0, 1);
    ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
    assert_int_equal(count_reports(f), 2);
    assert_int_equal(atomic_load(&served), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(poison_is_the_first_write),
        CASE(a_cut_block_has_a_longer_zone),
        CASE(a_block_grows_into_no_zone),
        CASE_IN(a_block_grows_into_no_zone, set_up_segments),
        CASE(a_cut_comes_after_the_poison),
        CASE(a_cut_comes_after_the_uses_of_all_streams),
        CASE(a_free_waits_for_the_zone_of_a_cut_block),
        CASE(nothing_is_found_where_nothing_is_wrong),
        CASE_IN(nothing_is_found_where_nothing_is_wrong, set_up_small),
        CASE_IN(nothing_is_found_where_nothing_is_wrong, set_up_around),
        CASE_IN(checks_beside_frees, set_up_small),
        CASE(who_listens_may_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
