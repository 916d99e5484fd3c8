/* What the ends of registered streams meet in between: those that end without a word, and those that are unregistered while
 * another thread has just looked at them. */
#include "core/windows.h"

/* Of the native streams here the first ends without a word; the test changes its identity. */
typedef struct ends {
    fixture *f;
    lent one, two;
    weir_stream old;
} ends;

static int set_up_with(void **state, const char *cache)
{
#ifndef WEIR_INVARIANTS
    *state = NULL;
    return 0;
#endif
    ends *e = calloc(1, sizeof *e);
    e->f = windows_fixture(cache);
    e->one.identity = 1;
    e->two.identity = 2;
    ok(weir_stream_register(e->f->runtime, &e->one, &e->old));
    *state = e;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, "0");
}

static int with_fronts(void **state)
{
    return set_up_with(state, NULL);
}

static int tear_down(void **state)
{
    ends *e = *state;
    void *inner = e ? e->f : NULL;
    int answer = e ? windows_tear_down(&inner) : 0;
    free(e);
    return answer;
}

static ends *get(void **state)
{
    if (!*state)
        skip(); /* there are no windows in this build */
    return *state;
}

/* Whether bytes of the block are given out to the host, which is ordered behind nothing. */
static bool is_given_out(fixture *f, const void *block, uint64_t bytes)
{
    enum { MOST = BUDGET / BLOCK };
    weir_request request = {
        .struct_size = sizeof request, .bytes = BLOCK, .memory_class = WEIR_CLASS_KV, .flags = WEIR_ALLOC_NO_WAIT};
    weir_block got[MOST];
    size_t count = 0;
    bool found = false;
    while (count < MOST && weir_alloc_with(f->client, &request, &got[count]) == WEIR_OK)
        count++;
    for (size_t i = 0; i < count; i++) {
        found |= (const char *)got[i].pointer < (const char *)block + bytes &&
                 (const char *)block < (const char *)got[i].pointer + BLOCK;
        ok(weir_free_block(f->client, got[i], WEIR_STREAM_HOST));
    }
    return found;
}

/* All that was freed is anyone's some time soon, when no work is anywhere. */
static void all_can_be_had(fixture *f)
{
    weir_trim_report report = {.struct_size = sizeof report};
    ok(weir_runtime_trim(f->runtime, NULL, &report));
    for (int i = 0; i < 1000 && report.left > 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        ok(weir_runtime_trim(f->runtime, NULL, &report));
    }
    assert_int_equal(report.unpassed, 0);
    assert_int_equal(report.left, 0);
    ok(weir_free(f->client, allocate(f->client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
}

static void leave(weir_stream stream, int times)
{
    while (times-- > 0)
        ok(weir_stream_unregister(stream));
}

/* The stream has all that it freed itself, though its work goes on: what is free is in its order. */
static void has_its_order(fixture *f, weir_stream stream)
{
    gate g = GATE;
    weir_request request = {.struct_size = sizeof request,
                            .bytes = BUDGET,
                            .stream = stream,
                            .memory_class = WEIR_CLASS_KV,
                            .flags = WEIR_ALLOC_NO_WAIT};
    weir_block block = {NULL, 0};
    void *all = allocate(f->client, BUDGET, stream, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &g, stream));
    ok(weir_free(f->client, all, stream));
    weir_status status = weir_alloc_with(f->client, &request, &block);
    open_gate(&g);
    ok(weir_stream_synchronize(stream));
    ok(status);
    ok(weir_free_block(f->client, block, stream));
    ok(weir_stream_synchronize(stream));
}

/* Ends without a word ---------------------------------------------------------------------------------------------- */

/* The program has another stream at the address, which two threads register at once. One of them stands somewhere within, and the
 * other one frees there: what that has and what the stream before had are two things. */
static void two_register(ends *e, actor *first)
{
    fixture *f = e->f;
    actor second = {.f = f, .act = act_register, .native = &e->one};
    void *p = allocate(f->client, BLOCK, e->old, WEIR_CLASS_KV), *q = NULL;
    ok(weir_call(f->runtime, pass_gate, &f->gate, e->old)); /* the old stream's work on p, which does not end */
    ok(weir_free(f->client, p, e->old));
    e->one.identity = 3;
    *first = (actor){.f = f, .act = act_register, .native = &e->one, .at = first->at, .window = first->window};
    begin_beside(first);
    begin_beside(&second);
    bool in_its_order = false, there = atomic_load(&second.over) && second.status == WEIR_OK;
    if (there) {
        q = allocate(f->client, 4096, second.stream, WEIR_CLASS_KV);
        ok(weir_free(f->client, q, second.stream));
    }
    let_go_on(first);
    for (int i = 0; i < 100 && !atomic_load(&first->over); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    bool early = is_given_out(f, p, BLOCK);
    if (there) { /* it would have all that is free in its order */
        void *r = allocate(f->client, BLOCK, second.stream, WEIR_CLASS_KV);
        in_its_order = (char *)r < (char *)p + BLOCK && (char *)p < (char *)r + BLOCK;
        ok(weir_free(f->client, r, second.stream));
    }
    open_gate(&f->gate);
    finish(first);
    finish(&second);
    ok(first->status);
    ok(second.status);
    assert_int_equal(first->stream.id, second.stream.id);
    if (in_its_order)
        fail_msg("the new stream has what is free in the order of the one that ended, whose work is not done");
    if (early)
        fail_msg("the host has what is free in the order of the stream that ended, whose work is not done");
    /* The new stream's frees are anyone's when its work is done, too, while it is registered. */
    q = allocate(f->client, BLOCK, first->stream, WEIR_CLASS_KV);
    ok(weir_free(f->client, q, first->stream));
    ok(weir_stream_synchronize(first->stream));
    all_can_be_had(f);
    leave(first->stream, 2);
}

static void two_threads_register_the_next_stream(void **state)
{
    ends *e = get(state);
    actor first = {.at = AT_WINDOW, .window = WI_WINDOW_STREAM_SETTLED};
    two_register(e, &first);
}

static void two_threads_register_while_an_event_is_recorded(void **state)
{
    ends *e = get(state);
    actor first = {.at = IN_RECORD};
    two_register(e, &first);
}

/* What the driver has of the old stream is not forgotten yet: the new one is not known, and has no place. */
static void a_new_stream_is_known_when_the_old_one_is_forgotten(void **state)
{
    ends *e = get(state);
    fixture *f = e->f;
    actor first = {.f = f, .act = act_register, .at = IN_ABANDON, .native = &e->one};
    actor second = {.f = f, .act = act_register, .native = &e->one};
    e->one.identity = 3;
    assert_true(begin(&first));
    begin_beside(&second);
    bool there = atomic_load(&second.over);
    let_go_on(&first);
    finish(&first);
    finish(&second);
    ok(first.status);
    ok(second.status);
    assert_false(there);
    assert_int_equal(first.stream.id, second.stream.id);
    has_its_order(f, first.stream);
    leave(first.stream, 2);
}

/* Its place is nobody's before that, either. */
static void the_place_is_nobodys_before_the_old_one_is_forgotten(void **state)
{
    ends *e = get(state);
    fixture *f = e->f;
    weir_stream two;
    actor first = {.f = f, .act = act_register, .at = IN_ABANDON, .native = &e->one};
    e->one.identity = 3;
    assert_true(begin(&first));
    ok(weir_stream_register(f->runtime, &e->two, &two));
    let_go_on(&first);
    finish(&first);
    ok(first.status);
    assert_ptr_equal(weir_stream_native(two), &e->two);
    assert_ptr_equal(weir_stream_native(first.stream), &e->one);
    leave(two, 1);
    leave(first.stream, 1);
}

/* What a cache kept on the old stream is being freed for the next one: to unregister the old one is too late. */
static void unregistered_while_another_follows(void **state)
{
    ends *e = get(state);
    fixture *f = e->f;
    ok(weir_free(f->client, allocate(f->client, CACHED, e->old, WEIR_CLASS_KV), e->old));
    assert_int_equal(take_snapshot(f->runtime).device.thread_cached, CACHED);
    actor first = {.f = f,
                   .act = act_register,
                   .at = IN_CAPTURING,
                   .past_call = true,
                   .on = record_of_stream(f, e->old),
                   .native = &e->one};
    actor ender = {.f = f, .act = act_unregister, .stream = e->old};
    e->one.identity = 3;
    assert_true(begin(&first));
    begin_beside(&ender);
    let_go_on(&first);
    finish(&first);
    finish(&ender);
    ok(first.status);
    assert_int_equal(ender.status, WEIR_ERR_STREAM_MISUSE);
    assert_ptr_equal(weir_stream_native(first.stream), &e->one);
    leave(first.stream, 1);
    all_can_be_had(f);
}

/* The next stream is being captured when it is registered, so that nothing can be recorded there; or the driver does not like to. */
static void the_next_stream_is_captured(void **state)
{
    ends *e = get(state);
    fixture *f = e->f;
    weir_stream again;
    void *p = allocate(f->client, BLOCK, e->old, WEIR_CLASS_KV);
    ok(weir_free(f->client, p, e->old));
    ok(weir_stream_synchronize(e->old)); /* all of the old stream's work is done */
    e->one.identity = 3;
    atomic_store(&e->one.captured, true);
    ok(weir_stream_register(f->runtime, &e->one, &again));
    atomic_store(&e->one.captured, false);
    ok(weir_stream_synchronize(again));
    all_can_be_had(f);
    void *q = allocate(f->client, BLOCK, again, WEIR_CLASS_KV); /* and the new one's place is its own */
    ok(weir_free(f->client, q, again));
    ok(weir_stream_synchronize(again));
    all_can_be_had(f);
    leave(again, 1);
}

/* Zeros that were queued on the old stream, whose work does not end, are in front of whoever has the block next: when the block
 * is freed on a stream, and no point can be had as the next one is being captured; and when that has ended as well. */
static void zeros_of_one_that_ended(ends *e, bool captured)
{
    fixture *f = e->f;
    weir_request request = {
        .struct_size = sizeof request, .bytes = BLOCK, .stream = e->old, .flags = WEIR_ALLOC_ZEROED};
    weir_block p;
    weir_stream next, own;
    bool early = false;
    ok(weir_stream_acquire(f->runtime, &own));
    ok(weir_call(f->runtime, pass_gate, &f->gate, e->old));
    ok(weir_alloc_with(f->client, &request, &p));
    e->one.identity = 3;
    atomic_store(&e->one.captured, captured);
    ok(weir_stream_register(f->runtime, &e->one, &next));
    if (!captured) {
        e->one.identity = 4;
        ok(weir_stream_register(f->runtime, &e->one, &next));
    }
    ok(weir_free_block(f->client, p, captured ? own : WEIR_STREAM_HOST));
    if (captured) {
        void *q[BUDGET / BLOCK];
        size_t count = 0;
        request.stream = own;
        request.flags = WEIR_ALLOC_NO_WAIT;
        for (weir_block got; count < BUDGET / BLOCK && weir_alloc_with(f->client, &request, &got) == WEIR_OK; count++)
            early |= (q[count] = got.pointer) == p.pointer;
        while (count > 0)
            ok(weir_free(f->client, q[--count], own));
    } else {
        early = is_given_out(f, p.pointer, BLOCK);
    }
    atomic_store(&e->one.captured, false);
    open_gate(&f->gate);
    ok(weir_stream_synchronize(own));
    ok(weir_stream_release(own));
    assert_false(early);
    all_can_be_had(f);
    leave(next, 1);
}

static void zeros_where_no_point_can_be_had(void **state)
{
    zeros_of_one_that_ended(get(state), true);
}

static void zeros_where_two_have_ended(void **state)
{
    zeros_of_one_that_ended(get(state), false);
}

/* An allocation has got what its stream has free, and its zeros are refused when the stream has ended meanwhile: what it gives
 * back is nobody's before the work of that stream is done. */
static void refused_when_its_stream_has_ended(void **state)
{
    ends *e = get(state);
    fixture *f = e->f;
    weir_stream next;
    void *p = allocate(f->client, BLOCK, e->old, WEIR_CLASS_KV);
    actor owner_tag = {
        .f = f, .act = act_allocate, .at = IN_FILL, .bytes = BLOCK, .flags = WEIR_ALLOC_ZEROED, .stream = e->old};
    ok(weir_call(f->runtime, pass_gate, &f->gate, e->old));
    ok(weir_free(f->client, p, e->old));
    assert_true(begin(&owner_tag));
    e->one.identity = 3;
    ok(weir_stream_register(f->runtime, &e->one, &next));
    atomic_store(&windows_fail_fills, true);
    let_go_on(&owner_tag);
    finish(&owner_tag);
    atomic_store(&windows_fail_fills, false);
    bool early = is_given_out(f, p, BLOCK);
    open_gate(&f->gate);
    assert_int_equal(owner_tag.status, WEIR_ERR_DRIVER);
    assert_false(early);
    all_can_be_had(f);
    leave(next, 1);
}

/* Ends while others look ------------------------------------------------------------------------------------------- */

/* A free that has looked at its stream, when another thread unregisters that: refused, or done in an order that is still there.
 * Nothing is asked of the driver about what it was told to forget. */
static void freed_while_it_is_unregistered(ends *e, wi_window_point window)
{
    fixture *f = e->f;
    weir_stream next;
    void *p = allocate(f->client, BLOCK, e->old, WEIR_CLASS_KV);
    actor freer = {.f = f, .act = act_free, .at = AT_WINDOW, .window = window, .pointer = p, .stream = e->old};
    actor ender = {.f = f, .act = act_unregister, .stream = e->old};
    assert_true(begin(&freer));
    begin_beside(&ender);
    let_go_on(&freer);
    finish(&freer);
    finish(&ender);
    ok(ender.status);
    assert_true(freer.status == WEIR_OK || freer.status == WEIR_ERR_STREAM_MISUSE);
    if (freer.status != WEIR_OK)
        ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    all_can_be_had(f);
    assert_int_equal(atomic_load(&lender_misused), 0);
    ok(weir_stream_register(f->runtime, &e->two, &next));
    has_its_order(f, next);
    leave(next, 1);
}

/* The same when another thread registers the stream that has its address now. */
static void freed_while_another_follows(ends *e, wi_window_point window)
{
    fixture *f = e->f;
    void *p = allocate(f->client, BLOCK, e->old, WEIR_CLASS_KV);
    actor freer = {.f = f, .act = act_free, .at = AT_WINDOW, .window = window, .pointer = p, .stream = e->old};
    actor follower = {.f = f, .act = act_register, .native = &e->one};
    assert_true(begin(&freer));
    e->one.identity = 3;
    begin_beside(&follower);
    let_go_on(&freer);
    finish(&freer);
    finish(&follower);
    ok(follower.status);
    assert_true(freer.status == WEIR_OK || freer.status == WEIR_ERR_STREAM_MISUSE);
    if (freer.status != WEIR_OK)
        ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    all_can_be_had(f);
    assert_int_equal(atomic_load(&lender_misused), 0);
    has_its_order(f, follower.stream);
    leave(follower.stream, 1);
}

static void a_free_has_looked_at_its_stream(void **state)
{
    freed_while_it_is_unregistered(get(state), WI_WINDOW_FREE_LOOKED);
}

static void a_free_knows_what_it_waits_for(void **state)
{
    freed_while_it_is_unregistered(get(state), WI_WINDOW_FREE_FENCED);
}

static void another_follows_when_a_free_has_looked(void **state)
{
    freed_while_another_follows(get(state), WI_WINDOW_FREE_LOOKED);
}

static void another_follows_when_a_free_knows_what_it_waits_for(void **state)
{
    freed_while_another_follows(get(state), WI_WINDOW_FREE_FENCED);
}

/* The event of a free is on the stream that has the address by now: it tells nothing of the work on the one that ended. */
static void another_follows_when_a_free_has_its_event(void **state)
{
    ends *e = get(state);
    fixture *f = e->f;
    gate used = GATE;
    weir_stream own;
    void *p = allocate(f->client, BLOCK, e->old, WEIR_CLASS_KV);
    ok(weir_stream_acquire(f->runtime, &own));
    ok(weir_call(f->runtime, pass_gate, &used, own));
    ok(weir_use_record(f->runtime, (weir_block){.pointer = p}, own)); /* so that the free asks for an event */
    ok(weir_call(f->runtime, pass_gate, &f->gate, e->old));
    e->one.identity = 3;
    actor freer = {.f = f,
                   .act = act_free,
                   .at = IN_RECORD,
                   .past_call = true,
                   .on = record_of_stream(f, e->old),
                   .pointer = p,
                   .stream = e->old};
    actor follower = {.f = f, .act = act_register, .native = &e->one};
    bool stood = begin(&freer);
    begin_beside(&follower);
    let_go_on(&freer);
    finish(&freer);
    finish(&follower);
    open_gate(&used);
    ok(weir_stream_synchronize(own));
    bool early = is_given_out(f, p, BLOCK);
    open_gate(&f->gate);
    assert_true(stood);
    ok(follower.status);
    assert_true(freer.status == WEIR_OK || freer.status == WEIR_ERR_STREAM_MISUSE);
    assert_false(early);
    if (freer.status != WEIR_OK)
        ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    all_can_be_had(f);
    ok(weir_stream_release(own));
    leave(follower.stream, 1);
}

/* A stream's place is another's, which frees there, before the list of the first one is forgotten, on which somebody records. */
static void the_place_is_anothers_at_once(void **state)
{
    ends *e = get(state);
    fixture *f = e->f;
    weir_stream next;
    ok(weir_free(f->client, allocate(f->client, BLOCK, e->old, WEIR_CLASS_KV), e->old));
    actor recorder = {.f = f, .act = act_snapshot, .at = IN_RECORD, .on = record_of_stream(f, e->old)};
    actor ender = {.f = f, .act = act_unregister, .at = AT_WINDOW, .window = WI_WINDOW_STREAM_LEFT, .stream = e->old};
    assert_true(begin(&recorder));
    begin_beside(&ender);
    ok(weir_stream_register(f->runtime, &e->two, &next));
    ok(weir_free(f->client, allocate(f->client, BLOCK, next, WEIR_CLASS_KV), next));
    let_go_on(&ender);
    for (int i = 0; i < 100 && !atomic_load(&ender.over); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    let_go_on(&recorder);
    finish(&recorder);
    finish(&ender);
    ok(recorder.status);
    ok(ender.status);
    assert_int_equal(atomic_load(&windows_destroyed_in_call), 0);
    ok(weir_stream_synchronize(next));
    all_can_be_had(f);
    leave(next, 1);
}

#define CASE(name)  cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define FRONT(name) cmocka_unit_test_setup_teardown(name, with_fronts, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(two_threads_register_the_next_stream),
        CASE(two_threads_register_while_an_event_is_recorded),
        CASE(the_next_stream_is_captured),
        CASE(a_free_has_looked_at_its_stream),
        CASE(a_free_knows_what_it_waits_for),
        CASE(the_place_is_anothers_at_once),
        CASE(a_new_stream_is_known_when_the_old_one_is_forgotten),
        CASE(the_place_is_nobodys_before_the_old_one_is_forgotten),
        FRONT(unregistered_while_another_follows),
        CASE(zeros_where_no_point_can_be_had),
        CASE(zeros_where_two_have_ended),
        CASE(refused_when_its_stream_has_ended),
        CASE(another_follows_when_a_free_has_its_event),
        CASE(another_follows_when_a_free_has_looked),
        CASE(another_follows_when_a_free_knows_what_it_waits_for),
    };
    return cmocka_run_group_tests_name("windows-ends", tests, NULL, NULL);
}
