/* What a trace tells of clients that are suspended and resumed, and what is made of it. */
#include "residency/residency.h"

#include <weir/trace.h>

#include "trace/lifetimes.h"
#include "trace/race_check.h"

enum { MOST = 1 << 16 };

typedef struct follower {
    weir_trace *trace;
    recording all;
    uint64_t live; /* by the events so far */
    wi_pointer_map charged, away;
} follower;

static void open_trace(fixture *f, follower *w)
{
    ok(weir_trace_create(f->runtime, NULL, &w->trace));
}

static uint64_t at(const wi_pointer_map *map, const void *pointer)
{
    uint64_t value = 0;
    (void)wi_pointer_map_get(map, pointer, &value);
    return value;
}

static void put(wi_pointer_map *map, const void *pointer, uint64_t value)
{
    assert_true(wi_pointer_map_put(map, pointer, value));
}

/* An event's live bytes are those before it and what the event says; nothing here is pending. */
static void follow_event(follower *w, const weir_event *e)
{
    switch (e->action) {
    case WEIR_ACTION_ALLOCATE:
        put(&w->charged, e->pointer, e->charged);
        put(&w->away, e->pointer, 0);
        w->live += e->charged;
        break;
    case WEIR_ACTION_DEALLOCATE:
        w->live -= at(&w->charged, e->pointer) - at(&w->away, e->pointer);
        put(&w->charged, e->pointer, 0);
        put(&w->away, e->pointer, 0);
        break;
    case WEIR_ACTION_LEAVE:
        assert_true(e->object > 0 && e->object <= at(&w->charged, e->pointer));
        assert_int_equal(at(&w->away, e->pointer), 0); /* a block leaves in one event */
        w->live -= e->object;
        put(&w->away, e->pointer, e->object);
        break;
    case WEIR_ACTION_RETURN:
        assert_int_equal(e->object, at(&w->away, e->pointer));
        w->live += e->object;
        put(&w->away, e->pointer, 0);
        break;
    default:
        break;
    }
    assert_int_equal(e->live, w->live);
    assert_int_equal(e->pending, 0);
}

static uint64_t away_now(const follower *w)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < w->away.capacity; i++)
        sum += w->away.entries[i].pointer ? w->away.entries[i].value : 0;
    return sum;
}

static void follow(fixture *f, follower *w)
{
    static weir_event events[MOST];
    size_t count;
    events[0].struct_size = sizeof events[0];
    ok(weir_trace_read(w->trace, events, MOST, &count));
    assert_true(count < MOST);
    for (size_t i = 0; i < count; i++) {
        follow_event(w, &events[i]);
        ok(recording_add(&w->all, &events[i]));
    }
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(w->live, s.device.live);
    assert_int_equal(away_now(w), s.device.away);
}

static void close_trace(follower *w)
{
    weir_trace_destroy(w->trace);
    recording_clear(&w->all);
    wi_pointer_map_clear(&w->charged);
    wi_pointer_map_clear(&w->away);
}

/* Blocks that come and go while two clients are suspended and resumed at random. */
static void live_bytes_of_the_events_are_the_ledgers(void **state)
{
    enum { SLOTS = 24, STEPS = 400 };
    fixture *f = *state;
    follower w = {0};
    void *blocks[2][SLOTS] = {{0}};
    weir_client *const clients[2] = {f->model, f->other};
    uint64_t random = 11, suspends = 0;
    open_trace(f, &w);
    for (int step = 0; step < STEPS; step++) {
        int c = (int)(next_random(&random) % 2), slot = (int)(next_random(&random) % SLOTS);
        bool here = residency(clients[c]).state == WEIR_RESIDENT;
        if (next_random(&random) % 8 == 0 && here) {
            (void)suspend(clients[c]);
            suspends++;
        } else if (next_random(&random) % 4 == 0 && !here) {
            ok(weir_client_resume(clients[c], WEIR_STREAM_HOST));
        } else if (blocks[c][slot]) { /* also of one that is away */
            ok(weir_free(clients[c], blocks[c][slot], WEIR_STREAM_HOST));
            blocks[c][slot] = NULL;
        } else if (here) {
            size_t bytes = 1 + next_random(&random) % (slot % 3 == 0 ? MIB : 40 * KIB);
            blocks[c][slot] = allocate(clients[c], bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        }
        follow(f, &w);
    }
    assert_true(suspends > 10);

    lifetimes all;
    samples held;
    ok(lifetimes_make(&w.all, &all));
    ok(samples_make(&all, 2 * w.all.count, SIZE_MAX, &held));
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(all.unknown, 0);
    for (int c = 0; c < 2; c++) {
        uint64_t live = 0;
        for (size_t i = 0; i < all.kind_count; i++)
            live += strcmp(all.kinds[i].client, s.clients[c].name) == 0 ? all.kinds[i].live : 0;
        assert_int_equal(live, s.clients[c].live);
        for (size_t i = 0; i < held.client_count; i++)
            if (strcmp(held.clients[i].name, s.clients[c].name) == 0)
                assert_int_equal(held.clients[i].away, s.clients[c].away);
    }
    for (size_t i = 0; i < held.count; i++) {
        uint64_t away = 0, values = 0;
        for (size_t k = 0; k < SAMPLES_WIDTH; k++)
            values += held.points[i].values[k];
        for (size_t k = 0; k <= SAMPLES_CLIENTS; k++)
            away += held.points[i].away_values[k];
        assert_int_equal(values, held.points[i].live + held.points[i].pending);
        assert_int_equal(away, held.points[i].away);
        assert_int_equal(held.points[i].live, w.all.events[held.points[i].event].live);
    }
    samples_clear(&held);
    lifetimes_clear(&all);
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < SLOTS; i++)
            if (blocks[c][i])
                ok(weir_free(clients[c], blocks[c][i], WEIR_STREAM_HOST));
    follow(f, &w);
    close_trace(&w);
}

/* What was away when the trace began has left right behind its allocation. */
static void a_trace_that_is_opened_while_a_client_is_suspended(void **state)
{
    fixture *f = *state;
    follower w = {0};
    void *weights = allocate(f->model, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    void *kv = allocate(f->model, 3 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    void *others = allocate(f->other, MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    uint64_t away = suspend(f->model).away;
    open_trace(f, &w);
    follow(f, &w);
    assert_int_equal(away_now(&w), away);
    for (size_t i = 0; i < w.all.count; i++)
        if (w.all.events[i].action == WEIR_ACTION_LEAVE) {
            assert_int_equal(w.all.events[i - 1].action, WEIR_ACTION_ALLOCATE);
            assert_ptr_equal(w.all.events[i - 1].pointer, w.all.events[i].pointer);
            assert_int_equal(w.all.events[i].order, w.all.events[i - 1].order + 1);
        }
    ok(weir_free(f->model, kv, WEIR_STREAM_HOST));
    follow(f, &w);
    ok(weir_client_resume(f->model, f->stream));
    follow(f, &w);
    const weir_event *last = &w.all.events[w.all.count - 1];
    assert_int_equal(last->action, WEIR_ACTION_RETURN);
    assert_ptr_equal(last->pointer, weights);
    assert_int_equal(last->stream.id, f->stream.id); /* behind which the contents are */
    assert_int_equal(last->other.id, WEIR_STREAM_HOST.id);
    assert_string_equal(last->client, "model");
    ok(weir_stream_synchronize(f->stream));
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
    ok(weir_free(f->other, others, WEIR_STREAM_HOST));
    close_trace(&w);
}

/* Readers see a suspend as one, and what it freed elsewhere as nobody's gift. */
static void suspends_are_seen_whole(void **state)
{
    fixture *f = *state;
    follower w = {0};
    lifetimes all;
    size_t count;
    open_trace(f, &w);
    void *a = allocate(f->model, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    void *b = allocate(f->model, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    (void)suspend(f->model);
    ok(weir_free(f->model, b, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    (void)suspend(f->model);
    ok(weir_free(f->model, a, WEIR_STREAM_HOST)); /* nothing is left to return */
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    a = allocate(f->model, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    (void)suspend(f->model);
    follow(f, &w);
    ok(lifetimes_make(&w.all, &all));
    lifetime_residency *list = lifetimes_residencies(&all, &count);
    const struct {
        bool back;
        uint64_t bytes, blocks;
    } wanted[] = {{false, 12 * MIB, 2}, {true, 8 * MIB, 1}, {false, 8 * MIB, 1}, {false, 2 * MIB, 1}};
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(list[i].client, "model");
        assert_int_equal(list[i].back, wanted[i].back);
        assert_int_equal(list[i].bytes, wanted[i].bytes);
        assert_int_equal(list[i].blocks, wanted[i].blocks);
        assert_true(list[i].first <= list[i].last);
    }
    assert_int_equal(all.peak_requested, 12 * MIB);
    assert_int_equal(all.requested, 0);
    uint64_t away[3];
    assert_int_equal(all.count, 3);
    lifetimes_away(&all, (uint32_t)w.all.count - 1, away);
    assert_int_equal(away[0] + away[1], 0);
    assert_int_equal(away[2], 2 * MIB);
    free(list);
    lifetimes_clear(&all);
    ok(weir_free(f->model, a, WEIR_STREAM_HOST));
    close_trace(&w);
}

/* The next block at the addresses of one that was freed while it was away has other memory. */
static void addresses_of_what_left_lend_nothing(void **state)
{
    (void)state;
    const struct {
        weir_action action;
        uint64_t object;
        const char *client;
    } told[] = {{WEIR_ACTION_ALLOCATE, 0, "a"},   {WEIR_ACTION_LEAVE, 4096, "a"}, {WEIR_ACTION_DEALLOCATE, 0, "a"},
                {WEIR_ACTION_ALLOCATE, 0, "b"},   {WEIR_ACTION_LEAVE, 4096, "b"}, {WEIR_ACTION_RETURN, 4096, "b"},
                {WEIR_ACTION_DEALLOCATE, 0, "b"}, {WEIR_ACTION_ALLOCATE, 0, "c"}};
    recording all = {0};
    lifetimes blocks;
    lends lent;
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
        ok(recording_add(&all, &(weir_event){.action = told[i].action,
                                             .order = i + 1,
                                             .pointer = (void *)0x10000,
                                             .bytes = 4096,
                                             .charged = 4096,
                                             .client = told[i].client,
                                             .tag = "",
                                             .device = "",
                                             .object = told[i].object}));
    ok(lifetimes_make(&all, &blocks));
    ok(lends_make(&blocks, &lent));
    assert_int_equal(lent.client_count, 1);
    assert_string_equal(lent.clients[0].from, "b");
    assert_string_equal(lent.clients[0].to, "c");
    address_ranges ranges;
    address_map map;
    ok(address_ranges_make(&blocks, &ranges));
    ok(address_map_make(&blocks, &ranges, &map));
    const uint16_t cells[] = {9, 900, 0, 9, 900, 9, 0, 9};
    assert_int_equal(map.columns, 8);
    for (size_t i = 0; i < map.columns; i++)
        for (size_t row = 0; row < map.rows; row++)
            assert_int_equal(map.cells[i * map.rows + row], cells[i]);
    address_map_clear(&map);
    address_ranges_clear(&ranges);
    lends_clear(&lent);
    lifetimes_clear(&blocks);
    recording_clear(&all);
}

/* Any events at all: of blocks that are there and of those that are not. */
static void whatever_the_events_say(void **state)
{
    (void)state;
    static const weir_action actions[] = {WEIR_ACTION_ALLOCATE, WEIR_ACTION_DEALLOCATE, WEIR_ACTION_LEAVE,
                                          WEIR_ACTION_RETURN, WEIR_ACTION_RESIZE};
    static const char *const names[] = {"a", "b"};
    uint64_t random = 5;
    for (int round = 0; round < 100; round++) {
        recording all = {0};
        lifetimes blocks;
        samples held;
        size_t count;
        for (uint64_t i = 1; i <= 200; i++)
            ok(recording_add(&all, &(weir_event){.action = actions[next_random(&random) % 5],
                                                 .order = i,
                                                 .pointer = (void *)(uintptr_t)(4096 * (1 + next_random(&random) % 6)),
                                                 .bytes = next_random(&random) % 4096,
                                                 .charged = next_random(&random) % 8192,
                                                 .client = names[next_random(&random) % 2],
                                                 .tag = "",
                                                 .device = "",
                                                 .object = next_random(&random) % 9000}));
        ok(lifetimes_make(&all, &blocks));
        ok(samples_make(&blocks, 100, 100000, &held));
        lifetime_residency *list = lifetimes_residencies(&blocks, &count);
        assert_non_null(list);
        for (size_t i = 0; i < blocks.move_count; i++)
            assert_true(blocks.moves[i].before != blocks.moves[i].after &&
                        blocks.moves[i].after <= blocks.list[blocks.moves[i].block].charged);
        free(list);
        samples_clear(&held);
        lifetimes_clear(&blocks);
        recording_clear(&all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(live_bytes_of_the_events_are_the_ledgers),
        CASE(a_trace_that_is_opened_while_a_client_is_suspended),
        CASE(suspends_are_seen_whole),
        cmocka_unit_test(addresses_of_what_left_lend_nothing),
        cmocka_unit_test(whatever_the_events_say),
    };
    return cmocka_run_group_tests_name("residency trace", tests, NULL, NULL);
}
