/* The second of several: pages of one commit, elastic blocks of one client, limits that pending pages fill, and refusals in
 * the middle of a commit, which tell how it was before. */
#include "elastic/elastic.h"

/* Refusals --------------------------------------------------------------------------------------------------------- */

enum { PARTS = 4, BLOCKS = BUDGET_PAGES * PARTS };

/* Blocks of a fourth of a page, until the budget is spent; of each page one has been freed, so that all pages are held and a
 * fourth of the budget is left. False: the resource gives back what is freed, wherever it lies. */
static bool fill_with_holes(fixture *f, void **blocks)
{
    size_t count = 0;
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = allocate(f->other, f->page / PARTS, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    for (size_t i = 0; i < BLOCKS; i++)
        if ((uintptr_t)blocks[i] / (f->page / PARTS) % PARTS == 1) {
            ok(weir_free(f->other, blocks[i], WEIR_STREAM_HOST));
            blocks[i] = NULL;
            count++;
        }
    return count == BUDGET_PAGES && take_snapshot(f->runtime).device.held == BUDGET_PAGES * f->page;
}

static void free_all(fixture *f, void **blocks)
{
    for (size_t i = 0; i < BLOCKS; i++)
        if (blocks[i])
            ok(weir_free(f->other, blocks[i], WEIR_STREAM_HOST));
}

/* The same page's other blocks go. */
static void empty_a_page(fixture *f, void **blocks)
{
    uintptr_t page = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        if (!blocks[i] || (page && (uintptr_t)blocks[i] / f->page != page))
            continue;
        page = (uintptr_t)blocks[i] / f->page;
        ok(weir_free(f->other, blocks[i], WEIR_STREAM_HOST));
        blocks[i] = NULL;
    }
}

static void check_refusal(fixture *f, size_t asked, uint64_t current, uint64_t remaining, uint64_t largest)
{
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, WEIR_CAUSE_FRAGMENTATION);
    assert_int_equal(r.requested, asked * f->page);
    assert_int_equal(r.current, current);
    assert_int_equal(r.remaining, remaining);
    assert_true(r.remaining >= r.requested);
    assert_int_equal(r.largest, largest);
    assert_int_equal(r.needed, (BUDGET_PAGES + asked) * f->page - largest);
    for (int i = 0; i < WEIR_REFUSAL_HOLDERS; i++)
        assert_int_equal(r.holders[i].bytes, strcmp(r.holders[i].client, "one") == 0 ? current
                                             : strcmp(r.holders[i].client, "other") == 0
                                                 ? f->page * BUDGET_PAGES - remaining - current
                                                 : 0);
}

static void a_refusal_tells_how_it_was_before(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 8, false);
    void *blocks[BLOCKS];
    if (!fill_with_holes(f, blocks)) {
        free_all(f, blocks);
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
        return;
    }
    uint64_t page = f->page, left = BUDGET_PAGES / PARTS * page;
    for (size_t count = 1; count <= 3; count++) {
        fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 1, count, WEIR_STREAM_HOST));
        check_refusal(f, count, 0, left, 0);
        pages_are(f, e, 0, 0);
    }
    empty_a_page(f, blocks); /* room for one page: the second is refused when the first is there */
    left += 3 * (page / PARTS);
    for (size_t count = 2; count <= 4; count++) {
        fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 1, count, f->stream));
        check_refusal(f, count, 0, left, page);
        pages_are(f, e, 0, 0);
        snapshot s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.promised, 0);
        assert_int_equal(s.device.live, BUDGET_PAGES * page - left);
    }
    commit(f, e, 3, 1);
    left -= page;
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 2, 3, WEIR_STREAM_HOST)); /* two are missing */
    check_refusal(f, 2, page, left, 0);
    empty_a_page(f, blocks);
    left += 3 * (page / PARTS);
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 2, 3, WEIR_STREAM_HOST));
    check_refusal(f, 2, page, left, page);
    assert_int_equal(stats_of(e).refused, 8);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    free_all(f, blocks);
}

/* What was claimed for the promise by then is no part of it. */
static void a_refused_promise_tells_how_it_was_before(void **state)
{
    fixture *f = *state;
    weir_elastic *e;
    void *blocks[BLOCKS];
    uint64_t left = BUDGET_PAGES / PARTS * f->page;
    if (fill_with_holes(f, blocks)) {
        ok(weir_option_set("wait", "1ms"));
        fails(WEIR_ERR_OUT_OF_MEMORY, try_create(f->client, 2 * f->page, true, &e));
        check_refusal(f, 2, 0, left, 0);
        empty_a_page(f, blocks);
        fails(WEIR_ERR_OUT_OF_MEMORY, try_create(f->client, 2 * f->page, true, &e));
        check_refusal(f, 2, 0, left + 3 * (f->page / PARTS), f->page);
        ok(weir_option_set("wait", NULL));
        snapshot s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.promised, 0);
    }
    free_all(f, blocks);
}

/* Of a page of two granules there is room for one, which is not kept from others. */
static void a_page_that_does_not_fit_holds_nothing(void **state)
{
    fixture *f = *state;
    weir_elastic_options o = {.struct_size = sizeof o, .bytes = 4 * f->page, .page = 2 * f->page, .tag = "wide"};
    weir_elastic *wide, *e = create(f, 2, false);
    void *blocks[BLOCKS];
    ok(weir_elastic_create(f->client, &o, &wide));
    assert_int_equal(stats_of(wide).page, 2 * f->page);
    if (fill_with_holes(f, blocks)) {
        empty_a_page(f, blocks);
        for (int i = 0; i < 2; i++)
            fails(WEIR_ERR_OUT_OF_MEMORY, weir_elastic_commit(wide, 0, 2 * f->page, WEIR_STREAM_HOST));
        commit(f, e, 0, 1);
        fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 1, 1, WEIR_STREAM_HOST));
        pages_are(f, e, 1, 0);
    }
    free_all(f, blocks);
    ok(weir_elastic_destroy(wide, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* A reservation's bytes are left for what comes out of it. */
static void a_refusal_out_of_a_reservation_has_its_bytes_left(void **state)
{
    fixture *f = *state;
    weir_reservation *r;
    weir_block none;
    void *blocks[BLOCKS];
    if (fill_with_holes(f, blocks)) {
        ok(weir_reservation_create(f->client, 2 * f->page, 0, &r));
        weir_request request = WEIR_INIT(weir_request);
        request.bytes = 2 * f->page;
        request.memory_class = WEIR_CLASS_WEIGHTS;
        request.reservation = r;
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->client, &request, &none));
        weir_refusal told = last_refusal();
        assert_int_equal(told.cause, WEIR_CAUSE_FRAGMENTATION);
        assert_int_equal(told.requested, 2 * f->page);
        assert_int_equal(told.remaining, BUDGET_PAGES / PARTS * f->page);
        assert_int_equal(told.current, 2 * f->page);
        ok(weir_reservation_destroy(r));
    }
    free_all(f, blocks);
}

/* Limits ----------------------------------------------------------------------------------------------------------- */

/* Pages of two blocks that are pending fill the client's maximum as live ones do. */
static void pending_pages_of_several_blocks_fill_a_maximum(void **state)
{
    fixture *f = *state;
    weir_elastic *first = create(f, 6, false), *second = create(f, 6, false), *third = create(f, 6, false);
    ok(weir_client_set_limits(f->client, 0, 6 * f->page));
    ok(weir_option_set("wait", "1ms"));
    commit(f, first, 0, 3);
    commit(f, second, 2, 3);
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, third, 0, 1, WEIR_STREAM_HOST));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_MAXIMUM);
    assert_int_equal(last_refusal().remaining, 0);
    hold_stream(f);
    release(f, first, 1, 2, f->stream);
    release(f, second, 3, 1, f->stream);
    for (size_t count = 1; count <= 3; count++) {
        fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, third, 0, count, WEIR_STREAM_HOST));
        weir_refusal r = last_refusal();
        assert_int_equal(r.cause, WEIR_CAUSE_PENDING);
        assert_int_equal(r.requested, count * f->page);
        assert_int_equal(r.current, 6 * f->page);
        pages_are(f, third, 0, 0);
    }
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, third, 0, 4, WEIR_STREAM_HOST)); /* more than will pass */
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_MAXIMUM);
    assert_int_equal(last_refusal().needed, 10 * f->page);
    pages_are(f, first, 1, 2);
    pages_are(f, second, 2, 1);
    let_go(f);
    commit(f, third, 0, 3);
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, first, 0, 2, WEIR_STREAM_HOST));
    pages_are(f, first, 1, 0);
    pages_are(f, second, 2, 0);
    pages_are(f, third, 3, 0);
    ok(weir_option_set("wait", NULL));
    ok(weir_elastic_destroy(second, WEIR_STREAM_HOST));
    commit(f, first, 0, 3);
    ok(weir_elastic_destroy(first, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(third, WEIR_STREAM_HOST));
}

/* A page that is pending in the middle of a commit: the ones around it were there only for that commit. */
static void a_commit_around_a_pending_page_gives_all_back(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 8, false);
    commit(f, e, 3, 1);
    ok(weir_option_set("wait", "1ms"));
    hold_stream(f);
    release(f, e, 3, 1, f->stream);
    fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 1, 5, WEIR_STREAM_HOST));
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, WEIR_CAUSE_PENDING);
    assert_int_equal(r.requested, 5 * f->page);
    assert_int_equal(r.current, f->page); /* the pending one */
    assert_int_equal(r.remaining, (BUDGET_PAGES - 1) * f->page);
    assert_int_equal(r.largest, (BUDGET_PAGES - 1) * f->page);
    pages_are(f, e, 0, 1);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.promised, 0);
    assert_int_equal(s.device.held, f->page);
    let_go(f);
    ok(weir_option_set("wait", NULL));
    commit(f, e, 1, 5);
    pages_are(f, e, 5, 0);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* Pages of one commit ---------------------------------------------------------------------------------------------- */

/* New pages on both sides of live ones: each is zeroed, and a release of each waits for its zeros. */
static void every_page_of_a_commit_is_zeroed_and_noted(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 12, false);
    for (size_t i = 0; i < 12; i++) {
        commit(f, e, i, 1);
        write_page(f, e, i, (uint8_t)(i + 1));
    }
    for (size_t i = 0; i < 12; i++)
        if (i % 5 != 2)
            release(f, e, i, 1, WEIR_STREAM_HOST);
    pages_are(f, e, 2, 0);
    hold_stream(f);
    ok(try_commit(f, e, 0, 12, f->stream));
    pages_are(f, e, 12, 0);
    for (size_t i = 0; i < 3; i++)
        release(f, e, 4 * i, 1, WEIR_STREAM_HOST);
    pages_are(f, e, 9, 3);
    release(f, e, 7, 1, WEIR_STREAM_HOST); /* which was there, and is not written to */
    pages_are(f, e, 8, 3);
    let_go(f);
    pages_are(f, e, 8, 0);
    for (size_t i = 0; i < 12; i++)
        page_holds(f, e, i, i == 2 ? 3 : 0);
    weir_elastic_stats s = stats_of(e);
    assert_int_equal(s.commits, 12 + 10);
    assert_int_equal(s.releases, 10 + 4);
    ok(weir_elastic_check(e));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* Three blocks of two clients: what happens to the one does not happen to the others. */
static void blocks_are_apart(void **state)
{
    fixture *f = *state;
    weir_elastic *e[3];
    e[0] = create(f, 4, true);
    ok(try_create(f->other, 4 * f->page, true, &e[1]));
    e[2] = create(f, 4, false);
    for (size_t k = 0; k < 3; k++) {
        commit(f, e[k], k, 2);
        write_page(f, e[k], k, (uint8_t)(10 * k + 1));
        write_page(f, e[k], k + 1, (uint8_t)(10 * k + 2));
    }
    assert_int_equal(stats_of(e[0]).promised, 2 * f->page);
    assert_int_equal(stats_of(e[1]).promised, 2 * f->page);
    hold_stream(f);
    release(f, e[0], 1, 1, f->stream);
    release(f, e[1], 1, 2, f->stream);
    pages_are(f, e[0], 1, 1);
    pages_are(f, e[1], 0, 2);
    pages_are(f, e[2], 2, 0);
    ok(weir_elastic_destroy(e[1], f->stream));
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.promised, 2 * f->page);
    assert_int_equal(s.device.pending, 3 * f->page);
    let_go(f);
    assert_int_equal(stats_of(e[0]).promised, 3 * f->page);
    page_holds(f, e[0], 0, 1);
    page_holds(f, e[0], 1, 0);
    page_holds(f, e[2], 2, 21);
    page_holds(f, e[2], 3, 22);
    assert_int_equal(take_snapshot(f->runtime).device.promised, 3 * f->page);
    ok(weir_elastic_destroy(e[0], WEIR_STREAM_HOST));
    page_holds(f, e[2], 3, 22);
    assert_int_equal(take_snapshot(f->runtime).device.promised, 0);
    ok(weir_elastic_destroy(e[2], WEIR_STREAM_HOST));
}

/* The page before it was made meanwhile, and does not count as held. */
static void a_refusal_for_a_pending_page_tells_how_it_was_before(void **state)
{
    fixture *f = *state;
    weir_elastic *e = create(f, 8, false);
    commit(f, e, 2, 1);
    hold_stream(f);
    release(f, e, 2, 1, f->stream);
    ok(weir_option_set("wait", "0"));
    for (size_t before = 0; before < 3; before++) {
        fails(WEIR_ERR_OUT_OF_MEMORY, try_commit(f, e, 2 - before, before + 1, WEIR_STREAM_HOST));
        weir_refusal r = last_refusal();
        assert_int_equal(r.cause, WEIR_CAUSE_PENDING);
        assert_int_equal(r.requested, (before + 1) * f->page);
        assert_int_equal(r.largest, (BUDGET_PAGES - 1) * f->page);
        assert_int_equal(r.needed, (before + 2) * f->page); /* with the pending one */
        pages_are(f, e, 0, 1);
    }
    ok(weir_option_set("wait", NULL));
    let_go(f);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* What the thread has freed into its cache by then is no part of the peak. */
static void a_commit_counts_on_from_what_its_thread_has_freed(void **state)
{
    fixture *f = *state;
    for (int promised = 0; promised < 2; promised++) {
        weir_elastic *e = create(f, 1, promised);
        for (int i = 0; i < 2; i++) { /* the second is a hit */
            void *block = allocate(f->client, 4096, WEIR_STREAM_HOST, WEIR_CLASS_KV);
            ok(weir_free(f->client, block, WEIR_STREAM_HOST));
        }
        commit(f, e, 0, 1);
        snapshot s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.peak, f->page);
        assert_int_equal(s.clients[0].peak, f->page);
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_refusal_tells_how_it_was_before),
        CASE(a_refused_promise_tells_how_it_was_before),
        CASE(a_page_that_does_not_fit_holds_nothing),
        CASE(a_refusal_out_of_a_reservation_has_its_bytes_left),
        CASE(pending_pages_of_several_blocks_fill_a_maximum),
        CASE(a_commit_around_a_pending_page_gives_all_back),
        CASE(every_page_of_a_commit_is_zeroed_and_noted),
        CASE(blocks_are_apart),
        CASE(a_refusal_for_a_pending_page_tells_how_it_was_before),
        CASE(a_commit_counts_on_from_what_its_thread_has_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
