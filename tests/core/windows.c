/* What one thread does while another is in the middle of something: lists of frees, thread caches, graphs. What the ends of streams
 * meet in between is in windows_ends.c. */
#include "core/windows.h"

static int plain(void **state)
{
    *state = windows_fixture("0");
    return 0;
}

static int with_fronts(void **state)
{
    *state = windows_fixture(NULL);
    return 0;
}

static bool overlap(const void *a, uint64_t bytes_a, const void *b, uint64_t bytes_b)
{
    return (const char *)a < (const char *)b + bytes_b && (const char *)b < (const char *)a + bytes_a;
}

/* Lists of frees --------------------------------------------------------------------------------------------------- */

/* Two threads want what is free in a stream's order: one of them records, and no mark is lost. */
static void a_list_is_recorded_once_at_a_time(void **state)
{
    fixture *f = *state;
    weir_stream a, b;
    ok(weir_stream_acquire(f->runtime, &a));
    ok(weir_stream_acquire(f->runtime, &b));
    actor first = {.f = f, .act = act_snapshot, .at = IN_RECORD, .on = record_of_stream(f, a)};
    actor second = {.f = f, .act = act_snapshot};
    void *p = allocate(f->client, BLOCK, a, WEIR_CLASS_KV);
    ok(weir_free(f->client, p, a));
    assert_true(begin(&first));
    begin_beside(&second);
    let_go_on(&first);
    finish(&first);
    finish(&second);
    ok(first.status);
    ok(second.status);
    assert_int_equal(atomic_load(&windows_most_records), 1);
    ok(weir_stream_synchronize(a));
    ok(weir_free(f->client, allocate(f->client, BUDGET, b, WEIR_CLASS_KV), b));
    ok(weir_stream_release(a));
    ok(weir_stream_release(b));
}

/* What is freed while another thread records is behind the next mark, not that one. */
static void a_free_beside_a_record_waits_for_the_next(void **state)
{
    fixture *f = *state;
    weir_stream a;
    ok(weir_stream_acquire(f->runtime, &a));
    actor first = {.f = f, .act = act_snapshot, .at = IN_RECORD, .on = record_of_stream(f, a)};
    void *p = allocate(f->client, BLOCK, a, WEIR_CLASS_KV), *q = allocate(f->client, BLOCK, a, WEIR_CLASS_KV);
    ok(weir_free(f->client, p, a));
    ok(weir_snapshot(f->runtime, &(weir_stats){.struct_size = sizeof(weir_stats)}, NULL, 0, NULL)); /* p is marked */
    ok(weir_free(f->client, allocate(f->client, BLOCK, a, WEIR_CLASS_KV), a));
    first.past_call = true;
    assert_true(begin(&first)); /* its mark is made, and not yet written down */
    ok(weir_call(f->runtime, pass_gate, &f->gate, a));
    ok(weir_free(f->client, q, a));
    let_go_on(&first);
    finish(&first);
    weir_request request = {
        .struct_size = sizeof request, .bytes = BUDGET, .memory_class = WEIR_CLASS_KV, .flags = WEIR_ALLOC_NO_WAIT};
    weir_block block;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->client, &request, &block));
    open_gate(&f->gate);
    ok(weir_stream_synchronize(a));
    ok(weir_alloc_with(f->client, &request, &block));
    ok(weir_free_block(f->client, block, WEIR_STREAM_HOST));
    ok(weir_stream_release(a));
}

/* The driver's record of a stream stays while somebody is about it. */
static void the_end_waits_for_a_record(void **state)
{
    fixture *f = *state;
    lent one = {.identity = 1};
    weir_stream x, other;
    ok(weir_stream_register(f->runtime, &one, &x));
    ok(weir_stream_acquire(f->runtime, &other));
    ok(weir_free(f->client, allocate(f->client, BLOCK, x, WEIR_CLASS_KV), x));
    actor recorder = {.f = f, .act = act_snapshot, .at = IN_RECORD, .on = record_of_stream(f, x)};
    actor ender = {.f = f, .act = act_unregister, .stream = x};
    assert_true(begin(&recorder));
    begin_beside(&ender);
    assert_false(atomic_load(&ender.over)); /* it waits for that */
    let_go_on(&recorder);
    finish(&recorder);
    finish(&ender);
    ok(recorder.status);
    ok(ender.status);
    ok(weir_free(f->client, allocate(f->client, BUDGET, other, WEIR_CLASS_KV), other));
    ok(weir_stream_release(other));
}

/* What a stream is being ordered behind is nobody else's meanwhile, and goes back when the driver will not. */
static void memory_of_another_stream_is_taken_once(void **state)
{
    fixture *f = *state;
    weir_stream a, b;
    ok(weir_stream_acquire(f->runtime, &a));
    ok(weir_stream_acquire(f->runtime, &b));
    void *all = allocate(f->client, BUDGET, a, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &f->gate, a));
    ok(weir_free(f->client, all, a));
    actor first = {
        .f = f, .act = act_allocate, .at = IN_ORDER, .stream = b, .bytes = BUDGET / 2, .flags = WEIR_ALLOC_NO_WAIT};
    assert_true(begin(&first));
    void *mine[8];
    size_t count = 0;
    while (count < 8 && weir_alloc(f->client, BLOCK, a, WEIR_CLASS_KV, &mine[count]) == WEIR_OK) /* in its own order */
        count++;
    let_go_on(&first);
    finish(&first);
    ok(first.status);
    assert_int_equal(count, BUDGET / 2 / BLOCK);
    for (size_t i = 0; i < count; i++) {
        assert_false(overlap(first.pointer, BUDGET / 2, mine[i], BLOCK));
        ok(weir_free(f->client, mine[i], a));
    }
    ok(weir_free(f->client, first.pointer, b));
    open_gate(&f->gate);
    ok(weir_stream_release(a));
    ok(weir_stream_release(b));
}

static void note(void *user)
{
    atomic_store((atomic_bool *)user, true);
}

/* Pieces of one stream's, freed at different times, with another one's between them: all of its work up to the later one is
 * waited for. */
static void the_later_of_two_frees_is_come_behind(void **state)
{
    fixture *f = *state;
    weir_stream a, b, c;
    atomic_bool ran = false;
    char *p[BUDGET / BLOCK], *all;
    ok(weir_stream_acquire(f->runtime, &a));
    ok(weir_stream_acquire(f->runtime, &b));
    ok(weir_stream_acquire(f->runtime, &c));
    for (size_t i = 0; i < BUDGET / BLOCK; i++)
        p[i] = allocate(f->client, BLOCK, a, WEIR_CLASS_KV);
    assert_true(p[1] == p[0] + BLOCK && p[2] == p[1] + BLOCK);
    ok(weir_call(f->runtime, pass_gate, &f->gate, a));
    ok(weir_free(f->client, p[1], c));
    gate later = GATE;
    ok(weir_free(f->client, p[0], a));
    take_snapshot(f->runtime);
    ok(weir_call(f->runtime, pass_gate, &later, a));
    ok(weir_free(f->client, p[2], a));
    take_snapshot(f->runtime);
    weir_request request = {.struct_size = sizeof request,
                            .bytes = 3 * BLOCK,
                            .stream = b,
                            .memory_class = WEIR_CLASS_KV,
                            .flags = WEIR_ALLOC_NO_WAIT};
    weir_block block;
    ok(weir_alloc_with(f->client, &request, &block));
    all = block.pointer;
    assert_ptr_equal(all, p[0]);
    ok(weir_call(f->runtime, note, &ran, b));
    open_gate(&f->gate);
    for (int i = 0; i < 50 && !atomic_load(&ran); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    bool early = atomic_load(&ran);
    open_gate(&later);
    assert_false(early);
    ok(weir_free(f->client, all, b));
    for (size_t i = 3; i < BUDGET / BLOCK; i++)
        ok(weir_free(f->client, p[i], a));
    ok(weir_stream_release(a));
    ok(weir_stream_release(b));
    ok(weir_stream_release(c));
}

/* What could not be come behind is what it was before. */
static void memory_that_is_not_come_behind_stays(void **state)
{
    fixture *f = *state;
    weir_stream a, b;
    ok(weir_stream_acquire(f->runtime, &a));
    ok(weir_stream_acquire(f->runtime, &b));
    void *all = allocate(f->client, BUDGET, a, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &f->gate, a));
    ok(weir_free(f->client, all, a));
    weir_request request = {.struct_size = sizeof request,
                            .bytes = BUDGET / 2,
                            .stream = b,
                            .memory_class = WEIR_CLASS_KV,
                            .flags = WEIR_ALLOC_NO_WAIT};
    weir_block block;
    atomic_store(&windows_fail_orders, true);
    weir_status status = weir_alloc_with(f->client, &request, &block);
    atomic_store(&windows_fail_orders, false);
    assert_int_not_equal(status, WEIR_OK);
    ok(weir_free(f->client, allocate(f->client, BUDGET, a, WEIR_CLASS_KV), a)); /* in its own order */
    open_gate(&f->gate);
    ok(weir_stream_synchronize(a));
    ok(weir_free(f->client, allocate(f->client, BUDGET, b, WEIR_CLASS_KV), b));
    ok(weir_stream_release(a));
    ok(weir_stream_release(b));
}

/* A capture's work may run on any stream: nothing is given to it that is free in the order of its own alone. */
static void a_capture_gets_nothing_of_its_streams_order(void **state)
{
    fixture *f = *state;
    weir_stream a;
    void *p;
    ok(weir_stream_acquire(f->runtime, &a));
    void *all = allocate(f->client, BUDGET, a, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &f->gate, a));
    ok(weir_free(f->client, all, a));
    ok(weir_capture_begin(a, NULL));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->client, BLOCK, a, WEIR_CLASS_KV, &p));
    ok(weir_capture_end(a, NULL));
    open_gate(&f->gate);
    ok(weir_stream_release(a));
}

/* Two blocks were written on one stream at different times: who uses both waits for the later one, whichever that is. */
static void both_of_two_writes_are_waited_for(void **state)
{
    fixture *f = *state;
    weir_stream a, b;
    ok(weir_stream_acquire(f->runtime, &a));
    ok(weir_stream_acquire(f->runtime, &b));
    char *p[2] = {allocate(f->client, BLOCK, a, WEIR_CLASS_KV), allocate(f->client, BLOCK, a, WEIR_CLASS_KV)};
    for (int first = 0; first < 2; first++) {
        gate early = GATE, later = GATE;
        atomic_bool ran = false;
        weir_launch *launch;
        weir_use writes[2] = {{{p[first], 0}, WEIR_ACCESS_WRITE}, {{p[1 - first], 0}, WEIR_ACCESS_WRITE}};
        for (int i = 0; i < 2; i++) {
            ok(weir_launch_begin(f->runtime, a, &writes[i], 1, &launch));
            ok(weir_call(f->runtime, pass_gate, i == 0 ? &early : &later, a));
            ok(weir_launch_end(launch));
        }
        ok(weir_launch_begin(f->runtime, b, writes, 2, &launch));
        ok(weir_call(f->runtime, note, &ran, b));
        ok(weir_launch_end(launch));
        open_gate(&early);
        for (int i = 0; i < 50 && !atomic_load(&ran); i++)
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        bool too_early = atomic_load(&ran);
        open_gate(&later);
        ok(weir_stream_synchronize(b));
        assert_false(too_early);
    }
    ok(weir_free(f->client, p[0], b));
    ok(weir_free(f->client, p[1], b));
    ok(weir_stream_release(a));
    ok(weir_stream_release(b));
}

/* Thread caches ----------------------------------------------------------------------------------------------------------- */

/* A block has another size when it is acquired than when it was chosen: it is cached as what it is, or not at all. */
static void a_block_is_resized_while_it_is_freed(void **state)
{
#ifndef WEIR_INVARIANTS
    skip();
#endif
    fixture *f = *state;
    for (int shorter = 0; shorter < 2; shorter++) {
        uint64_t before = 64 * KIB, after = shorter ? 16 * KIB : 96 * KIB;
        void *p = allocate(f->client, before, WEIR_STREAM_HOST, WEIR_CLASS_KV), *q;
        weir_stream a;
        ok(weir_stream_acquire(f->runtime, &a));
        actor freer = {
            .f = f, .act = act_free, .at = AT_WINDOW, .window = WI_WINDOW_BLOCK_CHOSEN, .pointer = p, .stream = a};
        assert_true(begin(&freer));
        weir_status resized = weir_resize(f->client, p, after, WEIR_STREAM_HOST);
        let_go_on(&freer);
        finish(&freer);
        ok(freer.status);
        assert_true(resized == WEIR_OK || resized == WEIR_ERR_NO_ROOM);
        assert_true(resized == WEIR_OK || !shorter);
        snapshot s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.live, 0);
        q = allocate(f->client, before, a, WEIR_CLASS_KV);
        void *r = allocate(f->client, before, a, WEIR_CLASS_KV);
        assert_false(overlap(q, before, r, before));
        s = take_snapshot(f->runtime);
        assert_int_equal(s.device.live, 2 * before);
        ok(weir_free(f->client, q, a));
        ok(weir_free(f->client, r, a));
        ok(weir_stream_release(a));
    }
}

static bool has_front(fixture *f, weir_stream stream)
{
    for (const wi_tcache *cache = f->runtime->caches.first; cache; cache = cache->next)
        if (cache->stream.id == stream.id)
            return true;
    return false;
}

/* A thread that has asked whether a stream is captured makes no thread cache for it when the capture has begun since. */
static void no_thread_cache_is_made_for_a_captured_stream(void **state)
{
    fixture *f = *state;
    weir_stream a;
    ok(weir_stream_acquire(f->runtime, &a));
    void *p = allocate(f->client, CACHED, a, WEIR_CLASS_KV);
    actor freer = {.f = f,
                   .act = act_free,
                   .at = IN_CAPTURING,
                   .past_call = true,
                   .on = record_of_stream(f, a),
                   .pointer = p,
                   .stream = a};
    assert_true(begin(&freer));
    ok(weir_capture_begin(a, NULL));
    let_go_on(&freer);
    finish(&freer);
    assert_int_equal(freer.status, WEIR_ERR_STREAM_MISUSE);
    assert_false(has_front(f, a));
    assert_int_equal(take_snapshot(f->runtime).device.thread_cached, 0);
    ok(weir_capture_end(a, NULL));
    ok(weir_free(f->client, p, a));
    ok(weir_stream_release(a));
}

/* Another thread has taken what this one's cache kept, to free it. */
static void put_in_hand(fixture *f, weir_client *client, weir_stream stream, actor *owner_tag)
{
    ok(weir_free(client, allocate(client, CACHED, stream, WEIR_CLASS_KV), stream));
    assert_int_equal(take_snapshot(f->runtime).device.thread_cached, CACHED);
    *owner_tag = (actor){.f = f,
                         .act = act_allocate,
                         .at = IN_CAPTURING,
                         .past_call = true,
                         .on = record_of_stream(f, stream),
                         .bytes = BUDGET};
    assert_true(begin(owner_tag));
}

static void a_close_waits_for_what_others_have_in_hand(void **state)
{
    fixture *f = *state;
    weir_client *other = open_client(f->runtime, "other", 0, 0);
    weir_stream a;
    actor owner_tag, closer = {.f = f, .act = act_close, .client = other};
    ok(weir_stream_acquire(f->runtime, &a));
    put_in_hand(f, other, a, &owner_tag);
    begin_beside(&closer);
    bool waited = !atomic_load(&closer.over);
    let_go_on(&owner_tag);
    finish(&owner_tag);
    finish(&closer);
    ok(closer.status);
    ok(owner_tag.status);
    assert_true(waited);
    ok(weir_free(f->client, owner_tag.pointer, WEIR_STREAM_HOST));
    ok(weir_stream_release(a));
}

static void a_starved_request_waits_for_what_others_have_in_hand(void **state)
{
    fixture *f = *state;
    weir_client *other = open_client(f->runtime, "other", 0, 0);
    weir_stream a;
    actor owner_tag, starved = {.f = f, .act = act_allocate, .bytes = BUDGET};
    ok(weir_stream_acquire(f->runtime, &a));
    put_in_hand(f, other, a, &owner_tag);
    begin_beside(&starved);
    assert_false(atomic_load(&starved.over)); /* neither served nor refused */
    let_go_on(&owner_tag);
    finish(&owner_tag);
    if (owner_tag.status == WEIR_OK && owner_tag.pointer)
        ok(weir_free(f->client, owner_tag.pointer, WEIR_STREAM_HOST));
    finish(&starved);
    assert_true(owner_tag.status == WEIR_OK || starved.status == WEIR_OK); /* there is enough for one of them */
    if (starved.status == WEIR_OK)
        ok(weir_free(f->client, starved.pointer, WEIR_STREAM_HOST));
    ok(weir_client_destroy(other));
    ok(weir_stream_release(a));
}

/* Graphs ----------------------------------------------------------------------------------------------------------- */

/* A block of a graph is freed while the graph is closed: it is anyone's in the end, once. */
static void a_graph_is_closed_while_its_block_is_freed(void **state)
{
    fixture *f = *state;
    weir_stream a, b;
    weir_capture_pool *graph;
    ok(weir_stream_acquire(f->runtime, &a));
    ok(weir_stream_acquire(f->runtime, &b));
    ok(weir_capture_pool_create(f->client, &graph));
    ok(weir_capture_begin(a, graph));
    void *p = allocate(f->client, BLOCK, a, WEIR_CLASS_KV);
    ok(weir_capture_end(a, graph));
    actor freer = {.f = f, .act = act_free, .at = IN_RECORD, .on = record_of_stream(f, b), .pointer = p, .stream = b};
    assert_true(begin(&freer));
    ok(weir_capture_pool_destroy(graph, WEIR_STREAM_HOST));
    let_go_on(&freer);
    finish(&freer);
    ok(freer.status);
    ok(weir_stream_synchronize(b));
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live + s.device.pending, 0);
    ok(weir_free(f->client, allocate(f->client, BUDGET, a, WEIR_CLASS_KV), a));
    ok(weir_stream_release(a));
    ok(weir_stream_release(b));
}

/* A stream is captured for a graph between the look of a free and its event: the free is refused, and nothing has changed. */
static void a_capture_begins_while_a_block_is_freed(void **state)
{
    fixture *f = *state;
    weir_stream a;
    ok(weir_stream_acquire(f->runtime, &a));
    void *p = allocate(f->client, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_use_record(f->runtime, (weir_block){.pointer = p}, a));
    ok(weir_call(f->runtime, pass_gate, &f->gate, a));
    ok(weir_use_record(f->runtime, (weir_block){.pointer = p}, a));
    actor freer = {.f = f, .act = act_free, .at = IN_RECORD, .on = record_of_stream(f, a), .pointer = p, .stream = a};
    assert_true(begin(&freer));
    ok(weir_capture_begin(a, NULL));
    let_go_on(&freer);
    finish(&freer);
    assert_true(freer.status == WEIR_OK || freer.status == WEIR_ERR_STREAM_MISUSE);
    open_gate(&f->gate);
    ok(weir_capture_end(a, NULL));
    if (freer.status != WEIR_OK)
        ok(weir_free(f->client, p, a));
    ok(weir_stream_synchronize(a));
    ok(weir_free(f->client, allocate(f->client, BUDGET, a, WEIR_CLASS_KV), a));
    ok(weir_stream_release(a));
}

/* Requests --------------------------------------------------------------------------------------------------------- */

/* What another thread frees after the request has found no room, and before it looks for any, is room. */
static void what_is_freed_after_the_claim_is_found(void **state)
{
    fixture *f = *state;
    actor wanting = {.f = f,
                     .act = act_allocate,
                     .at = AT_WINDOW,
                     .window = WI_WINDOW_CLAIM_FAILED,
                     .bytes = BUDGET,
                     .flags = WEIR_ALLOC_NO_WAIT};
    void *p = allocate(f->client, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_true(begin(&wanting));
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    let_go_on(&wanting);
    finish(&wanting);
    ok(wanting.status);
    ok(weir_free(f->client, wanting.pointer, WEIR_STREAM_HOST));
}

#define PLAIN(name) cmocka_unit_test_setup_teardown(name, plain, windows_tear_down)
#define FRONT(name) cmocka_unit_test_setup_teardown(name, with_fronts, windows_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAIN(a_list_is_recorded_once_at_a_time),
        PLAIN(a_free_beside_a_record_waits_for_the_next),
        PLAIN(the_end_waits_for_a_record),
        PLAIN(memory_of_another_stream_is_taken_once),
        PLAIN(the_later_of_two_frees_is_come_behind),
        PLAIN(memory_that_is_not_come_behind_stays),
        PLAIN(a_capture_gets_nothing_of_its_streams_order),
        PLAIN(both_of_two_writes_are_waited_for),
        FRONT(a_block_is_resized_while_it_is_freed),
        FRONT(no_thread_cache_is_made_for_a_captured_stream),
        FRONT(a_close_waits_for_what_others_have_in_hand),
        FRONT(a_starved_request_waits_for_what_others_have_in_hand),
        PLAIN(a_graph_is_closed_while_its_block_is_freed),
        PLAIN(a_capture_begins_while_a_block_is_freed),
        PLAIN(what_is_freed_after_the_claim_is_found),
    };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
