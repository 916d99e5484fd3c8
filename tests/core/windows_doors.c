/* How a stream ends while another thread is about it: its door is closed before its work is waited for, so that whatever is freed
 * in its order was queued before that wait, or is refused and stays with its owner. */
#include "core/windows.h"

static int set_up(void **state)
{
#ifdef WEIR_INVARIANTS
    *state = windows_fixture("0");
#else
    *state = NULL; /* there are no windows in this build */
#endif
    return 0;
}

static int with_thread_caches(void **state)
{
#ifdef WEIR_INVARIANTS
    *state = windows_fixture(NULL);
#else
    *state = NULL;
#endif
    return 0;
}

static int tear_down(void **state)
{
    return *state ? windows_tear_down(state) : 0;
}

static fixture *get(void **state)
{
    if (!*state)
        skip();
    return *state;
}

/* Both ways in which a stream ends, with the same contract. */
typedef struct kind {
    bool own;
    lent native;
} kind;

static weir_stream come(fixture *f, kind *k)
{
    weir_stream stream;
    k->native.identity = 1;
    ok(k->own ? weir_stream_acquire(f->runtime, &stream) : weir_stream_register(f->runtime, &k->native, &stream));
    return stream;
}

static void act_release(actor *a)
{
    a->status = weir_stream_release(a->stream);
}

static actor ender_of(fixture *f, const kind *k, weir_stream stream)
{
    return (actor){.f = f, .act = k->own ? act_release : act_unregister, .stream = stream};
}

/* Whether the host, who is ordered behind nothing, gets bytes of the block. */
static bool is_given_out(fixture *f, const void *block)
{
    weir_request request = {
        .struct_size = sizeof request, .bytes = BLOCK, .memory_class = WEIR_CLASS_KV, .flags = WEIR_ALLOC_NO_WAIT};
    weir_block got[BUDGET / BLOCK];
    size_t count = 0;
    bool found = false;
    while (count < BUDGET / BLOCK && weir_alloc_with(f->client, &request, &got[count]) == WEIR_OK)
        found |= got[count++].pointer == block;
    while (count > 0)
        ok(weir_free_block(f->client, got[--count], WEIR_STREAM_HOST));
    return found;
}

static void all_can_be_had(fixture *f)
{
    ok(weir_free(f->client, allocate(f->client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
}

/* Work and a free that come while the stream is waited for, or was, are refused, and the block stays with its owner. */
static void come_late(fixture *f, kind *k, wi_window_point window)
{
    weir_stream stream = come(f, k), again;
    void *p = allocate(f->client, BLOCK, stream, WEIR_CLASS_KV);
    actor ender = ender_of(f, k, stream);
    ender.at = AT_WINDOW;
    ender.window = window;
    assert_true(begin(&ender));
    weir_block block;
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .stream = stream};
    fails(WEIR_ERR_STREAM_MISUSE, weir_call(f->runtime, pass_gate, &f->gate, stream));
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->client, p, stream));
    detail_names("being released");
    fails(WEIR_ERR_STREAM_MISUSE, weir_alloc_with(f->client, &request, &block));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_begin(stream, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, k->own ? weir_stream_release(stream) : weir_stream_unregister(stream));
    detail_names("another thread ends");
    bool early = is_given_out(f, p);
    let_go_on(&ender);
    finish(&ender);
    ok(ender.status);
    assert_false(early);
    assert_int_equal(take_snapshot(f->runtime).device.live, BLOCK);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    all_can_be_had(f);
    again = come(f, k);
    assert_true(again.id != stream.id);
    ok(k->own ? weir_stream_release(again) : weir_stream_unregister(again));
}

static void nothing_comes_through_a_closed_door(void **state)
{
    for (int own = 0; own < 2; own++) {
        come_late(get(state), &(kind){.own = own}, WI_WINDOW_STREAM_CLOSED);
        come_late(get(state), &(kind){.own = own}, WI_WINDOW_STREAM_WAITED);
    }
}

/* A free that has found the stream before its door was closed has its work waited for, and is over or comes behind the end. */
static void come_before(fixture *f, kind *k, bool stays)
{
    weir_stream stream = come(f, k);
    void *p = allocate(f->client, BLOCK, stream, WEIR_CLASS_KV);
    actor freer = {
        .f = f, .act = act_free, .pointer = p, .stream = stream, .at = AT_WINDOW, .window = WI_WINDOW_FREE_LOOKED};
    actor ender = ender_of(f, k, stream);
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, stream)); /* the work on p */
    assert_true(begin(&freer));
    begin_beside(&ender);
    assert_false(atomic_load(&ender.over));
    if (!stays) {
        let_go_on(&freer);
        finish(&freer);
        ok(freer.status);
        assert_false(is_given_out(f, p));
    }
    open_gate(&g);
    if (stays) {
        finish(&ender);
        let_go_on(&freer);
        finish(&freer);
        if (freer.status != WEIR_OK) { /* refused: it stays with its owner */
            assert_int_equal(freer.status, WEIR_ERR_STREAM_MISUSE);
            ok(weir_free(f->client, p, WEIR_STREAM_HOST));
        }
    } else {
        finish(&ender);
    }
    ok(ender.status);
    ok(weir_runtime_trim(f->runtime, NULL, NULL));
    all_can_be_had(f);
}

static void work_of_who_found_it_before_is_waited_for(void **state)
{
    for (int own = 0; own < 2; own++) {
        come_before(get(state), &(kind){.own = own}, false);
        come_before(get(state), &(kind){.own = own}, true);
    }
}

static void act_fill(actor *a)
{
    a->status = weir_fill(a->f->runtime, a->pointer, 1, 64, a->stream);
}

static void act_use(actor *a)
{
    a->status = weir_use_record(a->f->runtime, (weir_block){.pointer = a->pointer}, a->stream);
}

/* What is being put on a stream when its door closes is there before its work is waited for. */
static void under_way(fixture *f, kind *k, void (*act)(actor *a), place at)
{
    weir_stream stream = come(f, k);
    void *p = allocate(f->client, BLOCK, stream, WEIR_CLASS_KV);
    memset(p, 0xff, BLOCK);
    actor worker = {.f = f, .act = act, .at = at, .pointer = p, .stream = stream};
    actor ender = ender_of(f, k, stream);
    if (act == act_allocate) {
        ok(weir_free(f->client, p, stream));
        worker.bytes = BLOCK;
        worker.flags = WEIR_ALLOC_ZEROED;
    }
    assert_true(begin(&worker));
    begin_beside(&ender);
    assert_false(atomic_load(&ender.over));
    fails(WEIR_ERR_STREAM_MISUSE, weir_fill(f->runtime, p, 2, 64, stream));
    let_go_on(&worker);
    finish(&worker);
    finish(&ender);
    ok(worker.status);
    ok(ender.status);
    const unsigned char *bytes = worker.pointer;
    if (at == IN_FILL)
        assert_int_equal(bytes[0], act == act_fill);
    ok(weir_free(f->client, worker.pointer, WEIR_STREAM_HOST));
    all_can_be_had(f);
}

static void work_under_way_is_waited_for(void **state)
{
    for (int own = 0; own < 2; own++) {
        under_way(get(state), &(kind){.own = own}, act_fill, IN_FILL);
        under_way(get(state), &(kind){.own = own}, act_allocate, IN_FILL);
        under_way(get(state), &(kind){.own = own}, act_use, IN_RECORD);
    }
}

/* Blocks that a thread has cached in the stream's order are brought to its list while its door is closed. */
static void cached_blocks_are_brought_in(void **state)
{
    for (int own = 0; own < 2; own++) {
        fixture *f = get(state);
        kind k = {.own = own};
        weir_stream stream = come(f, &k);
        void *p[3];
        for (int i = 0; i < 3; i++)
            p[i] = allocate(f->client, CACHED, stream, WEIR_CLASS_KV);
        for (int i = 0; i < 3; i++)
            ok(weir_free(f->client, p[i], stream));
        assert_int_equal(take_snapshot(f->runtime).device.thread_cached, 3 * CACHED);
        actor ender = ender_of(f, &k, stream);
        ender.at = AT_WINDOW;
        ender.window = WI_WINDOW_STREAM_WAITED;
        assert_true(begin(&ender));
        assert_int_equal(take_snapshot(f->runtime).device.thread_cached, 0);
        let_go_on(&ender);
        finish(&ender);
        ok(ender.status);
        assert_int_equal(take_snapshot(f->runtime).device.pending, 0);
        all_can_be_had(f);
    }
}

/* A stream that cannot be waited for stays as it was. */
static void a_door_that_was_closed_in_vain_is_open_again(void **state)
{
    fixture *f = get(state);
    kind k = {.own = false};
    weir_stream stream = come(f, &k);
    actor ender = ender_of(f, &k, stream);
    actor next = {.f = f, .act = act_register, .native = &k.native};
    ender.at = AT_WINDOW;
    ender.window = WI_WINDOW_STREAM_CLOSED;
    atomic_store(&k.native.captured, true); /* as the driver says */
    assert_true(begin(&ender));
    begin_beside(&next);
    assert_false(atomic_load(&next.over)); /* it waits for the end of that */
    let_go_on(&ender);
    finish(&ender);
    finish(&next);
    assert_int_equal(ender.status, WEIR_ERR_STREAM_MISUSE);
    atomic_store(&k.native.captured, false);
    ok(next.status);
    assert_int_equal(next.stream.id, stream.id);
    ok(weir_free(f->client, allocate(f->client, BLOCK, stream, WEIR_CLASS_KV), stream));
    ok(weir_stream_unregister(stream));
    ok(weir_stream_synchronize(stream)); /* it was registered twice */
    ok(weir_stream_unregister(stream));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(stream));
    all_can_be_had(f);
}

/* A stream is registered again while it is unregistered: it comes after that, under another id. */
static void registered_while_it_is_unregistered(void **state)
{
    fixture *f = get(state);
    kind k = {.own = false};
    weir_stream stream = come(f, &k);
    actor ender = ender_of(f, &k, stream);
    actor next = {.f = f, .act = act_register, .native = &k.native};
    ender.at = AT_WINDOW;
    ender.window = WI_WINDOW_STREAM_WAITED;
    assert_true(begin(&ender));
    begin_beside(&next);
    assert_false(atomic_load(&next.over));
    let_go_on(&ender);
    finish(&ender);
    finish(&next);
    ok(ender.status);
    ok(next.status);
    assert_true(next.stream.id != stream.id);
    assert_ptr_equal(weir_stream_native(next.stream), &k.native);
    ok(weir_free(f->client, allocate(f->client, BLOCK, next.stream, WEIR_CLASS_KV), next.stream));
    ok(weir_stream_unregister(next.stream));
    all_can_be_had(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_comes_through_a_closed_door, set_up, tear_down),
        cmocka_unit_test_setup_teardown(work_of_who_found_it_before_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(work_under_way_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cached_blocks_are_brought_in, with_thread_caches, tear_down),
        cmocka_unit_test_setup_teardown(a_door_that_was_closed_in_vain_is_open_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(registered_while_it_is_unregistered, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
