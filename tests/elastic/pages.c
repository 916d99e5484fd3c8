/* Elastic blocks: what a commit and a release do, what they cost, and what reports say of it. */
#include "elastic/elastic.h"
#include "trim.h"

#include <weir/trace.h>

static void creation_commits_nothing(void **state)
{
    fixture *f = *state;
    snapshot before = take_snapshot(f->runtime);
    weir_elastic *e = create(f, 1000, false); /* far more than the budget */
    weir_elastic_stats s = stats_of(e);
    assert_int_equal(s.bytes, 1000 * f->page);
    assert_int_equal((uintptr_t)s.base % (2 * MIB), 0);
    assert_int_equal(s.committed + s.pending + s.peak + s.promised + s.commits + s.releases + s.refused, 0);
    snapshot now = take_snapshot(f->runtime);
    assert_int_equal(now.device.held + now.device.promised, 0);
    assert_int_equal(now.device.allocations, before.device.allocations);
    for (size_t i = 0; i < 1000; i += 333)
        page_holds(f, e, i, 0);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(NULL, WEIR_STREAM_HOST));
}

static void a_commit_charges_exactly_the_pages_that_it_touches(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 100, false);
    ok(weir_elastic_commit(e, 3 * f->page + 5, f->page, WEIR_STREAM_HOST)); /* the end of 3, the front of 4 */
    pages_are(f, e, 2, 0);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, 2 * f->page);
    assert_int_equal(s.device.held, 2 * f->page);
    assert_int_equal(s.device.cached + s.device.spare + s.device.promised, 0);
    assert_int_equal(s.clients[0].live_class[WEIR_CLASS_KV], 2 * f->page);
    assert_int_equal(s.clients[0].blocks, 2);
    commit(f, e, 2, 4); /* two of them are there */
    pages_are(f, e, 4, 0);
    ok(weir_elastic_commit(e, 50, 0, WEIR_STREAM_HOST));
    ok(weir_elastic_commit(e, 100 * f->page, 0, WEIR_STREAM_HOST));
    ok(weir_elastic_commit(e, 100 * f->page - 1, 1, WEIR_STREAM_HOST));
    pages_are(f, e, 5, 0);
    ok(weir_elastic_release(e, 2 * f->page + 1, 3 * f->page, WEIR_STREAM_HOST)); /* 3 and 4 lie wholly in it */
    pages_are(f, e, 3, 0);
    ok(weir_elastic_release(e, 2 * f->page + 1, f->page - 1, WEIR_STREAM_HOST)); /* none does */
    pages_are(f, e, 3, 0);
    assert_int_equal(stats_of(e).peak, 5 * f->page);
    assert_int_equal(stats_of(e).commits, 5);
    assert_int_equal(stats_of(e).releases, 2);
    s = take_snapshot(f->runtime);
    assert_int_equal(s.device.held, 3 * f->page);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST)); /* with pages that are there */
    assert_int_equal(take_snapshot(f->runtime).device.held, 0);
}

static void pages_keep_what_they_hold_while_others_come_and_go(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 20, false);
    commit(f, e, 5, 3);
    for (size_t i = 5; i < 8; i++)
        write_page(f, e, i, (uint8_t)i);
    commit(f, e, 4, 6);
    page_holds(f, e, 4, 0);
    page_holds(f, e, 8, 0);
    release(f, e, 6, 1, WEIR_STREAM_HOST);
    page_holds(f, e, 5, 5);
    page_holds(f, e, 6, 0); /* unused */
    page_holds(f, e, 7, 7);
    commit(f, e, 0, 12);
    page_holds(f, e, 6, 0); /* another page than the one that held 6 */
    page_holds(f, e, 5, 5);
    page_holds(f, e, 7, 7);
    ok(weir_elastic_check(e));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* Zeros come in the order of the stream. */
static void new_pages_hold_zeros_when_the_stream_is_there(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 4, false);
    commit(f, e, 3, 1);
    write_page(f, e, 3, 9);
    hold_stream(f);
    ok(try_commit(f, e, 1, 2, f->stream));
    pages_are(f, e, 3, 0);
    ok(weir_copy(f->runtime, page_at(f, e, 3), page_at(f, e, 1), f->page, f->stream));
    ok(weir_fill(f->runtime, page_at(f, e, 2), 7, f->page, f->stream));
    let_go(f);
    page_holds(f, e, 3, 0);
    page_holds(f, e, 2, 7);
    ok(weir_elastic_destroy(e, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

static void unused_pages_can_be_read_and_cleared_and_a_check_finds_writes(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 64, false), *second = create(f, 3, false);
    weir_elastic_stats s = stats_of(e);
    ok(weir_fill(f->runtime, s.base, 0, s.bytes, WEIR_STREAM_HOST));
    ok(weir_elastic_check(e));
    assert_int_equal(take_snapshot(f->runtime).device.held, 0);
    commit(f, e, 10, 1);
    write_page(f, e, 10, 9);
    ok(weir_elastic_check(e)); /* that page is not unused */
    unsigned char spot = 0x42;
    ok(weir_copy(f->runtime, page_at(f, e, 11) + 17, &spot, 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_CORRUPT, weir_elastic_check(e));
    detail_names("0x42");
    detail_names("\"cache\"");
    detail_names("byte 17 ");
    page_holds(f, e, 10, 9);
    spot = 0;
    ok(weir_copy(f->runtime, page_at(f, e, 11) + 17, &spot, 1, WEIR_STREAM_HOST));
    ok(weir_elastic_check(e));
    ok(weir_elastic_check(second));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(second, WEIR_STREAM_HOST));
}

static void a_commit_is_all_or_nothing_and_refused_with_its_numbers(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 100, false);
    void *block = allocate(f->other, 6 * f->page, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    commit(f, e, 0, 4);
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 2, 9, f->stream)); /* 7 are missing, 6 are left */
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, WEIR_CAUSE_BUDGET);
    assert_int_equal(r.requested, 7 * f->page);
    assert_int_equal(r.remaining, 6 * f->page);
    assert_int_equal(r.current, 4 * f->page);
    assert_int_equal(r.memory_class, WEIR_CLASS_KV);
    assert_string_equal(r.client, "one");
    assert_int_equal(stats_of(e).refused, 1);
    snapshot now = take_snapshot(f->runtime);
    assert_int_equal(now.device.live, before.device.live);
    assert_int_equal(now.device.held, before.device.held);
    assert_int_equal(now.device.promised, 0);
    assert_int_equal(now.device.refusals, before.device.refusals + 1);
    commit(f, e, 2, 8); /* to the last page */
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->other, 1, WEIR_STREAM_HOST, WEIR_CLASS_KV, &(void *){NULL}));
    release(f, e, 9, 1, WEIR_STREAM_HOST);
    ok(weir_free(f->other, allocate(f->other, f->page, f->stream, WEIR_CLASS_KV), f->stream)); /* anybody's at once */
    ok(weir_client_set_limits(f->client, 0, 9 * f->page));
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 20, 1, WEIR_STREAM_HOST));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_MAXIMUM);
    ok(weir_client_set_limits(f->client, 0, 0));
    commit(f, e, 20, 1); /* what the runtime has cached makes way */
    ok(weir_free(f->other, block, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

static void cached_memory_makes_way_for_pages(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 100, false);
    void *all[BUDGET_PAGES];
    for (size_t i = 0; i < BUDGET_PAGES; i++)
        all[i] = allocate(f->other, f->page, f->stream, WEIR_CLASS_WEIGHTS);
    for (size_t i = 0; i < BUDGET_PAGES; i++)
        ok(weir_free(f->other, all[i], f->stream));
    if (take_snapshot(f->runtime).device.held == 0) { /* the resource keeps nothing */
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
        return;
    }
    commit(f, e, 0, 3);
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(s.device.live, 3 * f->page);
    assert_true(s.device.cached >= BUDGET_PAGES / 2 * f->page); /* not all of it has gone */
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

static void a_promise_is_kept_while_others_fill_the_budget(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 6, true);
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(s.device.promised, 6 * f->page);
    assert_int_equal(s.device.held, 0);
    assert_int_equal(stats_of(e).promised, 6 * f->page);
    void *all[BUDGET_PAGES], *none;
    size_t count = 0;
    while (count < BUDGET_PAGES && weir_alloc(f->other, f->page, f->stream, WEIR_CLASS_KV, &all[count]) == WEIR_OK)
        count++;
    assert_int_equal(count, BUDGET_PAGES - 6);
    for (int round = 0; round < 3; round++) {
        commit(f, e, 1, 4);
        commit(f, e, 0, 6);
        assert_int_equal(stats_of(e).promised, 0);
        assert_int_equal(take_snapshot(f->runtime).device.held, BUDGET_PAGES * f->page);
        release(f, e, round, 3, WEIR_STREAM_HOST);
        assert_int_equal(stats_of(e).promised, 3 * f->page);
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->other, 1, f->stream, WEIR_CLASS_KV, &none));
        s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.held, (BUDGET_PAGES - 3) * f->page);
        assert_int_equal(s.device.promised, 3 * f->page);
    }
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.promised, 0);
    void *rest = allocate(f->other, 6 * f->page, f->stream, WEIR_CLASS_KV);
    ok(weir_free(f->other, rest, f->stream));
    while (count > 0)
        ok(weir_free(f->other, all[--count], f->stream));
}

/* Chunks with a little in them stay: what they hold is not to be had for a promise, which is kept all the same. */
static void a_promise_keeps_others_from_holding_its_bytes(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 8, true), *late;
    void *small[BUDGET_PAGES] = {NULL}, *large[BUDGET_PAGES];
    size_t count = 0;
    for (; count < BUDGET_PAGES; count++) {
        if (weir_alloc(f->other, f->page - 4096, f->stream, WEIR_CLASS_KV, &large[count]) != WEIR_OK)
            break;
        ok(weir_alloc(f->other, 4096, f->stream, WEIR_CLASS_WEIGHTS, &small[count]));
    }
    for (size_t i = 0; i < count; i++)
        ok(weir_free(f->other, large[i], f->stream));
    assert_true(take_snapshot(f->runtime).device.held <= 8 * f->page);
    commit(f, e, 0, 8);
    pages_are(f, e, 8, 0);
    fails(WEIR_ERR_OUT_OF_MEMORY, try_create(f->client, 9 * f->page, true, &late));
    assert_null(late);
    for (size_t i = 0; i < count; i++)
        ok(weir_free(f->other, small[i], f->stream));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_runtime_set_budget(f->runtime, 7 * f->page));
    release(f, e, 0, 8, WEIR_STREAM_HOST);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_runtime_set_budget(f->runtime, 7 * f->page)); /* promised */
    ok(weir_runtime_set_budget(f->runtime, 8 * f->page));
    commit(f, e, 0, 8);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

static void a_release_is_pending_until_the_stream_is_past_it(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 10, true);
    commit(f, e, 0, 6);
    write_page(f, e, 1, 5);
    hold_stream(f);
    ok(weir_copy(f->runtime, page_at(f, e, 5), page_at(f, e, 1), f->page, f->stream));
    release(f, e, 1, 3, f->stream);
    pages_are(f, e, 3, 3);
    assert_int_equal(stats_of(e).promised, 4 * f->page);
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(s.device.pending, 3 * f->page);
    assert_int_equal(s.device.held, 6 * f->page);
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(page_at(f, e, 2), &d));
    assert_int_equal(d.state, WEIR_BLOCK_PENDING);
    let_go(f);
    pages_are(f, e, 3, 0);
    page_holds(f, e, 5, 5);
    assert_int_equal(stats_of(e).promised, 7 * f->page);
    assert_int_equal(take_snapshot(f->runtime).device.held, 3 * f->page);
    hold_stream(f);
    ok(weir_elastic_destroy(e, f->stream)); /* it goes with its last page */
    s = take_snapshot(f->runtime);
    assert_int_equal(s.device.pending, 3 * f->page);
    assert_int_equal(s.device.promised, 0);
    let_go(f);
    assert_int_equal(take_snapshot(f->runtime).device.held, 0);
}

/* Zeros on one stream, a release on another. */
static void a_release_on_another_stream_waits_for_the_zeros(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 10, false);
    hold_stream(f);
    ok(try_commit(f, e, 0, 2, f->stream));
    release(f, e, 0, 1, WEIR_STREAM_HOST);
    pages_are(f, e, 1, 1);
    let_go(f);
    pages_are(f, e, 1, 0);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

static void a_declared_use_holds_a_page(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 10, false);
    commit(f, e, 0, 2);
    hold_stream(f);
    ok(weir_use_record(f->runtime, (weir_block){.pointer = page_at(f, e, 1)}, f->stream));
    release(f, e, 0, 2, WEIR_STREAM_HOST);
    pages_are(f, e, 0, 1);
    let_go(f);
    pages_are(f, e, 0, 0);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

static void a_page_in_a_launch_is_not_released(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 10, false);
    weir_launch *launch;
    commit(f, e, 0, 3);
    weir_use use = {{.pointer = page_at(f, e, 1)}, WEIR_ACCESS_WRITE};
    ok(weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    fails(WEIR_ERR_BUSY, weir_elastic_release(e, 0, 3 * f->page, WEIR_STREAM_HOST));
    detail_names("\"cache\"");
    fails(WEIR_ERR_BUSY, weir_elastic_destroy(e, WEIR_STREAM_HOST));
    pages_are(f, e, 3, 0);
    release(f, e, 0, 1, WEIR_STREAM_HOST);
    hold_stream(f);
    ok(weir_launch_end(launch));
    release(f, e, 1, 2, WEIR_STREAM_HOST);
    pages_are(f, e, 0, 1);
    let_go(f);
    pages_are(f, e, 0, 0);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* What is cached in the order of a stream is held until the device is past that. */
static void a_promise_waits_for_what_is_freed_and_not_passed(void **state)
{
    fixture *f = *state;
    pthread_t opener;
    weir_elastic *e;
    void *p = allocate(f->other, BUDGET_PAGES * f->page, f->stream, WEIR_CLASS_WEIGHTS);
    hold_stream(f);
    ok(weir_free(f->other, p, f->stream));
    ok(weir_option_set("wait", "1ms"));
    fails(WEIR_ERR_OUT_OF_MEMORY, try_create(f->client, 4 * f->page, true, &e));
    assert_int_equal(take_snapshot(f->runtime).device.promised, 0);
    ok(weir_option_set("wait", "20s"));
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &f->gate), 0);
    ok(try_create(f->client, BUDGET_PAGES * f->page, true, &e));
    assert_int_equal(pthread_join(opener, NULL), 0);
    ok(weir_option_set("wait", NULL));
    let_go(f);
    commit(f, e, 0, BUDGET_PAGES);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* Released and committed again on one stream: the memory stays where it is, and nothing is waited for. */
static void a_commit_takes_back_what_was_released_on_its_stream(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 8, true);
    void *rest = allocate(f->other, (BUDGET_PAGES - 8) * f->page, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    commit(f, e, 0, 4);
    write_page(f, e, 1, 3);
    write_page(f, e, 2, 4);
    write_page(f, e, 3, 5);
    ok(weir_option_set("wait", "1ms"));
    hold_stream(f);
    ok(weir_copy(f->runtime, page_at(f, e, 0), page_at(f, e, 1), f->page, f->stream));
    release(f, e, 1, 2, f->stream);
    pages_are(f, e, 2, 2);
    uint64_t created = take_snapshot(f->runtime).device.created;
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 0, 6, WEIR_STREAM_HOST)); /* not in that order */
    pages_are(f, e, 2, 2);
    ok(try_commit(f, e, 0, 3, f->stream));
    pages_are(f, e, 4, 0);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.pending, 0);
    assert_int_equal(s.device.created - created, 0);
    assert_int_equal(stats_of(e).promised, 4 * f->page);
    ok(weir_copy(f->runtime, page_at(f, e, 3), page_at(f, e, 2), f->page, f->stream));
    let_go(f);
    page_holds(f, e, 0, 3);
    page_holds(f, e, 1, 0);
    page_holds(f, e, 3, 0);
    ok(weir_option_set("wait", NULL));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_free(f->other, rest, WEIR_STREAM_HOST));
}

static void a_page_in_use_on_another_stream_is_not_taken_back(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 4, false);
    weir_stream second;
    ok(weir_stream_acquire(f->runtime, &second));
    commit(f, e, 0, 2);
    ok(weir_option_set("wait", "1ms"));
    hold_stream(f);
    for (size_t i = 0; i < 2; i++) /* of the first page on the stream that is held, too */
        ok(weir_use_record(f->runtime, (weir_block){.pointer = page_at(f, e, 0)}, i == 0 ? f->stream : second));
    ok(weir_use_record(f->runtime, (weir_block){.pointer = page_at(f, e, 1)}, f->stream));
    release(f, e, 0, 2, second);
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 1, 1, second));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    pages_are(f, e, 0, 2);
    let_go(f);
    pages_are(f, e, 0, 0);
    commit(f, e, 0, 2);
    hold_stream(f);
    ok(weir_use_record(f->runtime, (weir_block){.pointer = page_at(f, e, 0)}, f->stream));
    release(f, e, 0, 2, f->stream);
    ok(try_commit(f, e, 0, 2, f->stream)); /* its own uses come first */
    release(f, e, 0, 1, WEIR_STREAM_HOST);
    pages_are(f, e, 1, 1); /* behind the zeros */
    let_go(f);
    pages_are(f, e, 1, 0);
    ok(weir_option_set("wait", NULL));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_stream_release(second));
}

static void a_commit_waits_for_pages_that_are_pending(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 10, true);
    pthread_t opener;
    commit(f, e, 0, 4);
    write_page(f, e, 2, 3);
    hold_stream(f);
    release(f, e, 1, 2, f->stream);
    ok(weir_option_set("wait", "10ms"));
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 0, 6, WEIR_STREAM_HOST));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    pages_are(f, e, 2, 2);
    ok(weir_option_set("wait", "20s"));
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &f->gate), 0);
    ok(try_commit(f, e, 0, 6, WEIR_STREAM_HOST));
    pages_are(f, e, 6, 0);
    page_holds(f, e, 2, 0);
    assert_int_equal(pthread_join(opener, NULL), 0);
    ok(weir_option_set("wait", NULL));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* … and not for others, which may be pending for longer. */
static void a_commit_does_not_wait_for_other_pages(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 4, false), *before = create(f, 4, false);
    weir_stream second;
    gate later = GATE;
    pthread_t opener;
    ok(weir_stream_acquire(f->runtime, &second));
    commit(f, before, 0, 1);
    commit(f, e, 0, 1);
    /* First this one: CUDA calls functions of all streams on one thread. */
    ok(weir_call(f->runtime, pass_gate, &later, second));
    hold_stream(f);
    release(f, before, 0, 1, f->stream);
    release(f, e, 0, 1, second);
    ok(weir_option_set("wait", "20s"));
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &later), 0);
    commit(f, e, 0, 1);
    pages_are(f, e, 1, 0);
    pages_are(f, before, 0, 1);
    assert_int_equal(pthread_join(opener, NULL), 0);
    ok(weir_option_set("wait", NULL));
    let_go(f);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(before, WEIR_STREAM_HOST));
    ok(weir_stream_release(second));
}

/* Reports ---------------------------------------------------------------------------------------------------------- */

static void count_bytes(const weir_segment *segment, const weir_span *span, void *user)
{
    (void)segment;
    if (span->state == WEIR_SPAN_LIVE && strcmp(span->tag, "cache") == 0)
        *(uint64_t *)user += span->bytes;
}

static void reports_name_pages(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 10, false);
    uint64_t bytes = 0, released = 1;
    commit(f, e, 3, 2);
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(page_at(f, e, 4) + 100, &d));
    assert_int_equal(d.state, WEIR_BLOCK_LIVE);
    assert_ptr_equal(d.block.pointer, page_at(f, e, 4));
    assert_int_equal(d.offset, 100);
    assert_int_equal(d.bytes, f->page);
    assert_int_equal(d.kind, WEIR_KIND_DEVICE);
    assert_ptr_equal(d.client, f->client);
    assert_string_equal(d.tag, "cache");
    ok(weir_block_info(page_at(f, e, 5), &d));
    assert_int_equal(d.state, WEIR_BLOCK_FREE);
    weir_layout_totals totals = WEIR_INIT(weir_layout_totals);
    ok(weir_layout_walk(f->runtime, count_bytes, &bytes, &totals));
    assert_int_equal(bytes, 2 * f->page);
    assert_int_equal(totals.held, 2 * f->page);
    assert_int_equal(totals.in_hand, 0);
    ok(trim_keeping(f->runtime, 0, &released));
    assert_int_equal(released, 0);
    pages_are(f, e, 2, 0);
    hold_stream(f);
    release(f, e, 3, 1, f->stream);
    weir_trim_report report = WEIR_INIT(weir_trim_report);
    ok(weir_runtime_trim(f->runtime, NULL, &report));
    assert_int_equal(report.pending, f->page);
    assert_int_equal(report.left, 0);
    let_go(f);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

static void traces_tell_of_every_page(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 10, false);
    weir_trace *trace;
    weir_event events[64] = {{.struct_size = sizeof events[0]}};
    size_t count, seen[2] = {0, 0};
    commit(f, e, 4, 1);
    ok(weir_trace_create(f->runtime, NULL, &trace));
    commit(f, e, 3, 3);
    release(f, e, 3, 1, f->stream);
    ok(weir_trace_read(trace, events, 64, &count));
    for (size_t i = 0; i < count; i++)
        if (events[i].tag && strcmp(events[i].tag, "cache") == 0) {
            seen[0] += events[i].action == WEIR_ACTION_ALLOCATE && events[i].bytes == f->page;
            seen[1] += events[i].action == WEIR_ACTION_DEALLOCATE && events[i].pointer == page_at(f, e, 3);
        }
    assert_int_equal(seen[0], 3); /* one of them was there when the trace began */
    assert_int_equal(seen[1], 1);
    weir_trace_destroy(trace);
    ok(weir_elastic_destroy(e, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

static void pages_are_not_for_weir_free_and_weir_resize(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 10, false);
    commit(f, e, 1, 1);
    for (size_t i = 0; i < 2; i++) {
        fails(WEIR_ERR_INVALID, weir_free(f->client, page_at(f, e, i), WEIR_STREAM_HOST));
        detail_names("weir_elastic_release");
        fails(WEIR_ERR_INVALID, weir_resize(f->client, page_at(f, e, i), 256, WEIR_STREAM_HOST));
        detail_names("weir_resize");
    }
    pages_are(f, e, 1, 0);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

static void a_client_and_a_runtime_with_an_elastic_block_stay(void **state)
{
    fixture *f = *state;
    weir_client *client = open_client(f->runtime, "holder", 0, 0);
    weir_elastic *e;
    char committed[24];
    ok(try_create(client, 10 * f->page, true, &e));
    for (int round = 0; round < 2; round++) {
        fails(WEIR_ERR_BUSY, weir_client_destroy(client));
        detail_names("holder has the elastic block \"cache\"");
        detail_names(weir_size_format(round * 2 * f->page, committed, sizeof committed));
        fails(WEIR_ERR_BUSY, weir_runtime_destroy(f->runtime));
        commit(f, e, 0, 2);
    }
    hold_stream(f);
    ok(weir_elastic_destroy(e, f->stream));
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &f->gate), 0);
    ok(weir_client_destroy(client)); /* waits for the pages */
    assert_int_equal(pthread_join(opener, NULL), 0);
    assert_int_equal(take_snapshot(f->runtime).device.held, 0);
}

static void pages_are_as_large_as_is_asked_for(void **state)
{
    fixture *f = *state;
    weir_elastic_options o = {
        .struct_size = sizeof o, .bytes = 5 * f->page, .page = f->page + 1, .memory_class = WEIR_CLASS_SCRATCH};
    weir_elastic *e;
    ok(weir_elastic_create(f->client, &o, &e));
    assert_int_equal(stats_of(e).page, 2 * f->page);
    assert_int_equal(stats_of(e).bytes, 6 * f->page);
    ok(weir_elastic_commit(e, 3 * f->page, 1, WEIR_STREAM_HOST));
    assert_int_equal(stats_of(e).committed, 2 * f->page);
    assert_int_equal(take_snapshot(f->runtime).clients[0].live_class[WEIR_CLASS_SCRATCH], 2 * f->page);
    page_holds(f, e, 2, 0);
    page_holds(f, e, 3, 0);
    ok(weir_elastic_check(e));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    o = (weir_elastic_options){.struct_size = sizeof o, .bytes = 1, .page = 1024 * MIB}; /* the largest */
    ok(weir_elastic_create(f->client, &o, &e));
    assert_int_equal(stats_of(e).page, 1024 * MIB);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    o.page++;
    fails(WEIR_ERR_INVALID, weir_elastic_create(f->client, &o, &e));
}

static void misuse_is_refused(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 4, false), *none;
    weir_elastic_options o = {.struct_size = sizeof o};
    fails(WEIR_ERR_INVALID, weir_elastic_create(f->client, &o, &none));
    o.bytes = SIZE_MAX;
    fails(WEIR_ERR_INVALID, weir_elastic_create(f->client, &o, &none));
    o.bytes = f->page;
    fails(WEIR_ERR_INVALID, weir_elastic_create(f->client, &o, NULL));
    fails(WEIR_ERR_INVALID, weir_elastic_create(NULL, &o, &none));
    o.memory_class = WEIR_CLASS_COUNT;
    fails(WEIR_ERR_INVALID, weir_elastic_create(f->client, &o, &none));
    o = (weir_elastic_options){.struct_size = sizeof o, .bytes = 1, .page = SIZE_MAX};
    fails(WEIR_ERR_INVALID, weir_elastic_create(f->client, &o, &none));
    fails(WEIR_ERR_INVALID, weir_elastic_commit(e, 4 * f->page, 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_elastic_commit(e, 1, SIZE_MAX, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_elastic_release(e, 0, 4 * f->page + 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_elastic_commit(NULL, 0, 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_elastic_release(NULL, 0, 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_elastic_info(e, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_elastic_commit(e, 0, 1, (weir_stream){12345}));
    commit(f, e, 0, 1);
    fails(WEIR_ERR_STREAM_MISUSE, weir_elastic_release(e, 0, f->page, (weir_stream){12345}));
    fails(WEIR_ERR_STREAM_MISUSE, weir_elastic_destroy(e, (weir_stream){12345}));
    ok(weir_capture_begin(f->stream, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_elastic_commit(e, f->page, 1, f->stream));
    fails(WEIR_ERR_STREAM_MISUSE, weir_elastic_release(e, 0, f->page, f->stream));
    ok(weir_capture_end(f->stream, NULL));
    pages_are(f, e, 1, 0);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* A page that is taken back before the device is past its release is the later stream's; the most that there were counts those that
 * were not past it. */
static void a_page_that_is_taken_back_is_as_a_new_one(void **state)
{
    fixture *f = *state;
    weir_block_details d = WEIR_INIT(weir_block_details);
    weir_elastic *e = create(f, 4, false);
    commit(f, e, 0, 2);
    ok(weir_block_info(page_at(f, e, 0), &d));
    assert_int_equal(d.stream.id, WEIR_STREAM_HOST.id);
    uint64_t generation = d.block.generation;
    hold_stream(f);
    release(f, e, 0, 1, f->stream);
    commit(f, e, 2, 1);
    pages_are(f, e, 2, 1);
    assert_int_equal(stats_of(e).peak, 3 * f->page);
    ok(try_commit(f, e, 0, 1, f->stream));
    pages_are(f, e, 3, 0);
    ok(weir_block_info(page_at(f, e, 0), &d));
    assert_int_equal(d.stream.id, f->stream.id);
    assert_true(d.block.generation > generation);
    assert_int_equal(stats_of(e).peak, 3 * f->page);
    let_go(f);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(creation_commits_nothing),
        CASE(a_commit_charges_exactly_the_pages_that_it_touches),
        CASE(pages_keep_what_they_hold_while_others_come_and_go),
        CASE(new_pages_hold_zeros_when_the_stream_is_there),
        CASE(unused_pages_can_be_read_and_cleared_and_a_check_finds_writes),
        CASE(a_commit_is_all_or_nothing_and_refused_with_its_numbers),
        CASE(cached_memory_makes_way_for_pages),
        CASE(a_promise_is_kept_while_others_fill_the_budget),
        CASE(a_promise_keeps_others_from_holding_its_bytes),
        CASE(a_release_is_pending_until_the_stream_is_past_it),
        CASE(a_release_on_another_stream_waits_for_the_zeros),
        CASE(a_declared_use_holds_a_page),
        CASE(a_page_in_a_launch_is_not_released),
        CASE(a_promise_waits_for_what_is_freed_and_not_passed),
        CASE(a_commit_takes_back_what_was_released_on_its_stream),
        CASE(a_page_in_use_on_another_stream_is_not_taken_back),
        CASE(a_commit_waits_for_pages_that_are_pending),
        CASE(a_commit_does_not_wait_for_other_pages),
        CASE(reports_name_pages),
        CASE(traces_tell_of_every_page),
        CASE(pages_are_not_for_weir_free_and_weir_resize),
        CASE(a_client_and_a_runtime_with_an_elastic_block_stay),
        CASE(pages_are_as_large_as_is_asked_for),
        CASE(misuse_is_refused),
        CASE(a_page_that_is_taken_back_is_as_a_new_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
