/* What a plan may and must do: reuse, views, in place, fixed buffers, gaps, conflicts, kinds, limits of 64 bits. */
#include "planner/buffers.h"
#include "info.h"
#include "planner/random.h"
#include <weir/plan.h>

#include "base/system.h"

static void end(weir_plan *plan, weir_buffers *list)
{
    weir_plan_destroy(plan);
    weir_buffers_destroy(list);
}

static void disjoint_lifetimes_share(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t a = add(list, 0, 2, 100), b = add(list, 2, 4, 60), c = add(list, 1, 3, 40);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    weir_plan_details s = summary_of(plan);
    assert_int_equal(s.arena, 140);
    assert_int_equal(s.lower_bound, 140);
    assert_int_equal(s.unshared, 200);
    assert_int_equal(s.buffers, 3);
    assert_int_equal(s.steps, 4);
    assert_true(s.proven);
    assert_true(offset_of(plan, a) < offset_of(plan, b) + 60 && offset_of(plan, b) < offset_of(plan, a) + 100);
    assert_true(offset_of(plan, c) + 40 <= offset_of(plan, a) || offset_of(plan, c) >= offset_of(plan, a) + 100);
    end(plan, list);
}

static void bump_shares_nothing_and_keeps_the_order(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t a = add(list, 0, 1, 5), b = add(list, 1, 2, 0), c = add(list, 2, 3, 17);
    weir_plan *plan = plan_of(list, WEIR_PLAN_BUMP, 16);
    assert_int_equal(offset_of(plan, a), 0);
    assert_int_equal(slot_of(plan, a).length, 16);
    assert_int_equal(slot_of(plan, b).length, 0);
    assert_int_equal(offset_of(plan, c), 16);
    assert_int_equal(summary_of(plan).arena, 48);
    assert_int_equal(summary_of(plan).unshared, 48);
    end(plan, list);
}

static void views_keep_their_root_alive(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t root = add(list, 0, 2, 256);
    uint32_t view = add_sharing(list, 1, 3, 128, WEIR_SHARING_VIEW, root, 64);
    uint32_t inner = add_sharing(list, 2, 9, 32, WEIR_SHARING_VIEW, view, 16);
    uint32_t later = add(list, 5, 6, 256), empty = add_sharing(list, 1, 2, 0, WEIR_SHARING_VIEW, root, 128);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 64);
    assert_int_equal(offset_of(plan, view), offset_of(plan, root) + 64);
    assert_int_equal(offset_of(plan, inner), offset_of(plan, root) + 80);
    assert_int_equal(slot_of(plan, inner).length, 32);
    assert_int_equal(slot_of(plan, inner).root, root);
    assert_int_equal(offset_of(plan, empty), 0);
    assert_int_equal(summary_of(plan).arena, 512);
    assert_true(offset_of(plan, later) != offset_of(plan, root));
    end(plan, list);
}

static void what_may_be_written_in_place_is(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t a = add(list, 0, 2, 100), b = add_sharing(list, 1, 3, 100, WEIR_SHARING_IN_PLACE, a, 0);
    uint32_t c = add_sharing(list, 2, 4, 100, WEIR_SHARING_IN_PLACE, b, 0);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    assert_int_equal(summary_of(plan).arena, 100);
    assert_int_equal(summary_of(plan).in_place, 2);
    assert_true(summary_of(plan).proven);
    assert_int_equal(slot_of(plan, c).root, a);
    end(plan, list);
}

/* Where the other is read once more, or a second one wants its place too, nothing is written over it. */
static void what_must_not_be_written_in_place_is_not(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t a = add(list, 0, 3, 100), b = add_sharing(list, 1, 3, 100, WEIR_SHARING_IN_PLACE, a, 0);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    assert_int_equal(summary_of(plan).arena, 200);
    assert_int_equal(slot_of(plan, b).root, b);
    end(plan, list);
    list = empty_list();
    a = add(list, 0, 2, 100);
    (void)add_sharing(list, 1, 3, 100, WEIR_SHARING_IN_PLACE, a, 0);
    (void)add_sharing(list, 1, 3, 100, WEIR_SHARING_IN_PLACE, a, 0);
    plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    assert_int_equal(summary_of(plan).arena, 200);
    assert_int_equal(summary_of(plan).in_place, 1);
    end(plan, list);
}

static void persistent_buffers_share_with_nothing(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    weir_buffer b = WEIR_INIT(weir_buffer);
    b.bytes = 50;
    b.begin = 3;
    b.end = 4;
    b.persistent = true;
    ok(weir_buffers_add(list, &b, NULL));
    (void)add(list, 0, 1, 70);
    (void)add(list, 8, 9, 70);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    assert_int_equal(summary_of(plan).arena, 120);
    end(plan, list);
}

static void fixed_buffers_stay(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t a = add(list, 0, 4, 64), b = add(list, 1, 3, 64), c = add(list, 2, 5, 64);
    ok(weir_buffers_pin(list, b, 128));
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 64);
    assert_int_equal(offset_of(plan, b), 128);
    assert_int_equal(summary_of(plan).arena, 192);
    weir_plan_destroy(plan);
    ok(weir_buffers_pin(list, c, 160 + 32));
    ok(weir_buffers_pin(list, a, 128 + 64));
    fails(WEIR_ERR_CONFLICT, weir_plan_create(list, NULL, &plan));
    detail_names("b0");
    detail_names("b2");
    ok(weir_buffers_pin(list, c, UINT64_MAX));
    plan = plan_of(list, WEIR_PLAN_SEARCH, 64);
    assert_int_equal(offset_of(plan, a), 192);
    assert_int_equal(offset_of(plan, c), 0);
    end(plan, list);
}

/* The rest of the larger one's slot stays as it is. */
static void shorter_ones_are_written_over_longer_ones(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t a = add(list, 0, 2, 128), v = add_sharing(list, 1, 2, 64, WEIR_SHARING_VIEW, a, 64);
    uint32_t b = add_sharing(list, 1, 3, 48, WEIR_SHARING_IN_PLACE, v, 0);
    uint32_t c = add_sharing(list, 2, 4, 48, WEIR_SHARING_IN_PLACE, b, 0);
    uint32_t d = add_sharing(list, 3, 4, 32, WEIR_SHARING_IN_PLACE, c, 0);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 16);
    assert_int_equal(summary_of(plan).arena, 128);
    assert_int_equal(summary_of(plan).in_place, 3);
    assert_true(summary_of(plan).proven);
    for (uint32_t i = b; i <= d; i++) {
        assert_int_equal(slot_of(plan, i).root, a);
        assert_int_equal(offset_of(plan, i), 64);
    }
    assert_int_equal(slot_of(plan, d).length, 32);
    end(plan, list);
}

/* It lies nowhere, so there is nothing to lie over. */
static void nothing_is_written_over_an_empty_view(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    (void)add(list, 0, 9, 64);
    uint32_t a = add(list, 0, 2, 64), v = add_sharing(list, 0, 2, 0, WEIR_SHARING_VIEW, a, 0);
    uint32_t b = add_sharing(list, 1, 3, 64, WEIR_SHARING_IN_PLACE, v, 0);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    assert_int_equal(slot_of(plan, b).root, b);
    assert_int_equal(summary_of(plan).arena, 192);
    assert_true(summary_of(plan).proven);
    end(plan, list);
}

/* Where the rest is needed, and where steps are fuller anyhow. */
static void shorter_ones_lie_elsewhere_where_that_is_better(void **state)
{
    (void)state;
    static const struct {
        uint64_t begin, bytes, arena;
    } others[] = {{4, 110, 170}, {4, 85, 160}, {20, 1000, 1000}};
    for (int i = 0; i < 3; i++) {
        weir_buffers *list = empty_list();
        uint32_t a = add(list, 0, 2, 100), b = add_sharing(list, 1, 9, 60, WEIR_SHARING_IN_PLACE, a, 0);
        (void)add(list, others[i].begin, others[i].begin + 2, others[i].bytes);
        weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
        assert_int_equal(summary_of(plan).arena, others[i].arena);
        assert_int_equal(slot_of(plan, b).root, b);
        end(plan, list);
    }
}

/* Where the longer one is fixed nothing is lost: others are fixed beside the shorter one, or find room there. */
static void shorter_ones_over_fixed_ones_leave_the_rest(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        weir_buffers *list = empty_list();
        uint32_t a = add(list, 0, 2, 100), b = add_sharing(list, 1, 9, 60, WEIR_SHARING_IN_PLACE, a, 0);
        uint32_t c = add(list, 4, 6, 40), d = add_sharing(list, 8, 12, 20, WEIR_SHARING_IN_PLACE, b, 0);
        ok(weir_buffers_pin(list, a, 0));
        if (how & 1)
            ok(weir_buffers_pin(list, b, 0));
        if (how & 2)
            ok(weir_buffers_pin(list, c, 60));
        weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
        assert_int_equal(summary_of(plan).arena, 100);
        assert_int_equal(offset_of(plan, c), 60);
        assert_int_equal(slot_of(plan, b).root, a);
        assert_int_equal(slot_of(plan, d).root, a);
        weir_plan_destroy(plan);
        ok(weir_buffers_pin(list, c, 59)); /* in the way */
        ok(weir_buffers_pin(list, b, UINT64_MAX));
        plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
        assert_int_equal(slot_of(plan, b).root, b);
        end(plan, list);
    }
}

/* What may be written over another and is not makes plans thinkable that are not looked for, so nothing is proven; and
 * a distance of a milliard bytes to the bound is not walked byte by byte. */
static void what_is_not_looked_for_is_not_proven(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t a = add(list, 0, 2, 1024 * MIB);
    (void)add_sharing(list, 1, 3, 1024 * MIB - 1, WEIR_SHARING_IN_PLACE, a, 0);
    (void)add(list, 2, 3, 2);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    weir_plan_details s = summary_of(plan);
    assert_int_equal(s.lower_bound, 1024 * MIB + 1);
    assert_int_equal(s.proven, s.arena == s.lower_bound);
    end(plan, list);
}

/* Of two that want one place, the larger leaves less beside it. */
static void the_lower_bound_is_that_of_the_best_choice(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t a = add(list, 0, 2, 100);
    (void)add_sharing(list, 1, 3, 60, WEIR_SHARING_IN_PLACE, a, 0);
    uint32_t c = add_sharing(list, 1, 3, 100, WEIR_SHARING_IN_PLACE, a, 0);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    assert_int_equal(summary_of(plan).lower_bound, 160);
    assert_int_equal(summary_of(plan).arena, 160);
    assert_int_equal(slot_of(plan, c).root, a);
    end(plan, list);
}

/* A chain in one place, pinned in part and in whole. */
static void what_is_written_in_place_can_be_pinned_there(void **state)
{
    (void)state;
    for (unsigned pins = 0; pins < 8; pins++) {
        weir_buffers *list = empty_list();
        uint32_t a = add(list, 0, 2, 100), b = add_sharing(list, 1, 3, 100, WEIR_SHARING_IN_PLACE, a, 0);
        uint32_t chain[] = {a, b, add_sharing(list, 2, 4, 100, WEIR_SHARING_IN_PLACE, b, 0)};
        for (unsigned i = 0; i < 3; i++)
            if (pins >> i & 1)
                ok(weir_buffers_pin(list, chain[i], 0));
        weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
        if (pins == 0 || pins & 1)
            assert_int_equal(summary_of(plan).arena, 100);
        end(plan, list);
    }
}

/* What may lie over a fixed buffer goes elsewhere where another one is fixed there later. */
static void pins_that_do_not_meet_are_no_conflict(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t a = add(list, 0, 2, 100), b = add_sharing(list, 1, 5, 100, WEIR_SHARING_IN_PLACE, a, 0);
    uint32_t c = add(list, 3, 6, 100);
    ok(weir_buffers_pin(list, a, 0));
    ok(weir_buffers_pin(list, c, 0));
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    assert_int_equal(offset_of(plan, b), 100);
    end(plan, list);
}

static void gaps_are_used_and_conflicts_kept(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t a = add(list, 0, 10, 100), b = add(list, 4, 6, 100);
    ok(weir_buffers_gap(list, a, 3, 7));
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    assert_int_equal(summary_of(plan).arena, 100);
    assert_true(summary_of(plan).proven);
    weir_plan_destroy(plan);
    ok(weir_buffers_conflict(list, a, b));
    plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    assert_int_equal(summary_of(plan).arena, 200);
    end(plan, list);
}

/* Whoever reads a storage through a view keeps its bytes, so that no gap can give them away. */
static void nothing_is_live_in_a_gap(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    weir_buffer b = WEIR_INIT(weir_buffer);
    uint32_t a = add(list, 0, 10, 100), early = add_sharing(list, 1, 3, 50, WEIR_SHARING_VIEW, a, 0);
    fails(WEIR_ERR_INVALID, weir_buffers_gap(list, a, 2, 7));
    detail_names("b1");
    ok(weir_buffers_gap(list, a, 3, 7));
    b.bytes = 20;
    b.begin = 6;
    b.end = 8;
    b.sharing = WEIR_SHARING_VIEW;
    b.of = early;
    fails(WEIR_ERR_INVALID, weir_buffers_add(list, &b, NULL));
    detail_names("gap of b0");
    b.begin = 7;
    ok(weir_buffers_add(list, &b, NULL));
    fails(WEIR_ERR_INVALID, wi_buffers_use(list, a, 3));
    fails(WEIR_ERR_INVALID, wi_buffers_use(list, a, 6));
    fails(WEIR_ERR_INVALID, wi_buffers_use(list, early, 9));
    ok(wi_buffers_use(list, a, 7));
    ok(wi_buffers_use(list, early, 0));
    b.persistent = true;
    fails(WEIR_ERR_INVALID, weir_buffers_add(list, &b, NULL));
    assert_int_equal(list_details(list).count, 3);
    weir_buffers_destroy(list);
}

static void kinds_have_arenas_of_their_own(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    weir_buffer b = WEIR_INIT(weir_buffer);
    b.bytes = 30;
    b.end = 5;
    b.kind = WEIR_KIND_PINNED;
    ok(weir_buffers_add(list, &b, NULL));
    uint32_t a = add(list, 0, 5, 70);
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    assert_int_equal(plan_details(plan).arena_of[WEIR_KIND_PINNED], 30);
    assert_int_equal(plan_details(plan).arena_of[WEIR_KIND_DEVICE], 70);
    assert_int_equal(plan_details(plan).arena_of[WEIR_KIND_HOST], 0);
    assert_int_equal(plan_details(plan).lower_bound_of[WEIR_KIND_PINNED], 30);
    assert_int_equal(summary_of(plan).arena, 100);
    assert_int_equal(offset_of(plan, a), 0);
    end(plan, list);
}

static void offsets_have_64_bits(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t last = 0;
    for (int i = 0; i < 20; i++)
        last = add(list, 0, 5, 3 * (uint64_t)1024 * MIB);
    weir_plan *plan = plan_of(list, WEIR_PLAN_BUMP, 4096);
    assert_int_equal(offset_of(plan, last), 57 * (uint64_t)1024 * MIB);
    end(plan, list);
    list = empty_list();
    (void)add(list, 0, 1, (uint64_t)1 << 62);
    (void)add(list, 2, 3, (uint64_t)1 << 62);
    fails(WEIR_ERR_INVALID, weir_plan_create(list, NULL, &plan));
    detail_names("63 bits");
    weir_buffers_destroy(list);
    list = empty_list();
    weir_buffer b = WEIR_INIT(weir_buffer);
    b.bytes = b.end = 1;
    b.fixed = true;
    b.offset = (uint64_t)1 << 62;
    for (int kind = 0; kind < 2; kind++) {
        b.kind = (weir_kind)kind;
        ok(weir_buffers_add(list, &b, NULL));
    }
    fails(WEIR_ERR_INVALID, weir_plan_create(list, NULL, &plan));
    detail_names("63 bits");
    weir_buffers_destroy(list);
}

static void bad_buffers_are_refused_by_name(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    uint32_t root = add(list, 0, 2, 10);
    weir_buffer good = WEIR_INIT(weir_buffer), b;
    good.name = "attention.scores";
    good.bytes = 4;
    good.end = 3;
    good.of = root;
#define REFUSED(member, value, text)                                                                                   \
    b = good, b.member = (value), fails(WEIR_ERR_INVALID, weir_buffers_add(list, &b, NULL)),                           \
    detail_names("attention.scores"), detail_names(text)
    REFUSED(begin, 3, "live from step 3");
    REFUSED(end, WEIR_STEPS_MAX + 1, "2^62");
    REFUSED(alignment, 24, "24 is no power of two");
    REFUSED(kind, (weir_kind)9, "kind");
    good.sharing = WEIR_SHARING_VIEW;
    REFUSED(view_offset, 7, "bytes 7 + 4");
    REFUSED(view_offset, UINT64_MAX - 1, "inside b0");
    REFUSED(fixed, true, "fixed");
    REFUSED(of, 1, "before it");
    REFUSED(kind, WEIR_KIND_HOST, "another kind");
    good.sharing = WEIR_SHARING_NONE;
    good.fixed = true;
    good.alignment = 8;
    REFUSED(offset, 12, "no multiple");
    good.alignment = 0;
    REFUSED(offset, UINT64_MAX - 3, "64 bits");
#undef REFUSED
    assert_int_equal(list_details(list).count, 1);
    fails(WEIR_ERR_INVALID, weir_buffers_gap(list, 0, 0, 1));
    fails(WEIR_ERR_INVALID, weir_buffers_gap(list, 1, 0, 1));
    fails(WEIR_ERR_INVALID, weir_buffers_conflict(list, 0, 0));
    weir_buffers_destroy(list);
}

typedef struct told {
    weir_plan_progress last;
    int times;
} told;

static bool note_and_stop(const weir_plan_progress *progress, void *user)
{
    told *t = user;
    t->last = *progress;
    t->times++;
    return false;
}

/* Before that there is no plan yet, or it is still made better without looks. */
static bool stop_in_the_search(const weir_plan_progress *progress, void *user)
{
    return progress->done == 0 || note_and_stop(progress, user);
}

enum { MOST_LOOKS = 10 };
static uint64_t looks, milliseconds = 1;

/* So many milliseconds go by whenever somebody looks. */
static uint64_t ticking(void)
{
    return ++looks * milliseconds * 1000000;
}

/* Every step is full to the brim: a search that does not end by itself. */
static void progress_tells_the_best_so_far_and_ends_it(void **state)
{
    (void)state;
    uint64_t seed = 3;
    wi_clock = ticking;
    weir_buffers *list = full_list(&seed, 60, 2000, 150);
    weir_buffer pinned = WEIR_INIT(weir_buffer);
    pinned.bytes = 77;
    pinned.end = 1;
    pinned.kind = WEIR_KIND_PINNED;
    ok(weir_buffers_add(list, &pinned, NULL));
    weir_plan_options options = WEIR_INIT(weir_plan_options);
    told t = {.times = 0};
    weir_plan *plan;
    options.progress = stop_in_the_search;
    options.user = &t;
    ok(weir_plan_create(list, &options, &plan));
    ok(weir_plan_check(plan, list));
    assert_int_equal(t.times, 1);
    assert_true(summary_of(plan).stopped);
    assert_false(summary_of(plan).proven);
    assert_int_equal(t.last.arena, summary_of(plan).arena);
    assert_int_equal(t.last.lower_bound, summary_of(plan).lower_bound);
    assert_true(t.last.done > 0 && t.last.done < 1);
    wi_clock = NULL;
    end(plan, list);
}

/* Of two kinds, in each mode that may be told of, where so long a time goes by at each look that every look might tell. */
static void progress_that_ended_it_is_not_called_again(void **state)
{
    (void)state;
    wi_clock = ticking;
    milliseconds = 1000;
    for (int quick = 0; quick < 2; quick++) {
        uint64_t seed = 3;
        weir_buffers *list = full_list(&seed, 60, 2000, 150);
        weir_buffer pinned = WEIR_INIT(weir_buffer);
        weir_plan_options options = WEIR_INIT(weir_plan_options);
        told t = {.times = 0};
        weir_plan *plan;
        pinned.kind = WEIR_KIND_PINNED;
        for (uint64_t i = 0; i < 20; i++) {
            pinned.begin = i;
            pinned.end = i + 2;
            pinned.bytes = 77 + i;
            ok(weir_buffers_add(list, &pinned, NULL));
        }
        options.mode = quick ? WEIR_PLAN_QUICK : WEIR_PLAN_SEARCH;
        options.progress = note_and_stop;
        options.user = &t;
        ok(weir_plan_create(list, &options, &plan));
        ok(weir_plan_check(plan, list));
        assert_int_equal(t.times, 1);
        assert_true(summary_of(plan).stopped);
        end(plan, list);
    }
    milliseconds = 1;
    wi_clock = NULL;
}

/* Live inside each other, as in training; with alignments of their own, or plain. */
static weir_buffers *nested_list(uint32_t count, bool plain)
{
    weir_buffers *list = empty_list();
    uint64_t seed = 47;
    for (uint32_t i = 0; i < count; i++) {
        weir_buffer b = WEIR_INIT(weir_buffer);
        b.begin = i;
        b.end = 2 * count - i;
        b.bytes = 1 + roll(&seed, 5000);
        b.alignment = plain ? 0 : (uint64_t)1 << roll(&seed, 12);
        ok(weir_buffers_add(list, &b, NULL));
        b.begin = b.end - 1;
        b.end += 1 + roll(&seed, 3);
        b.bytes = 1 + roll(&seed, 5000);
        ok(weir_buffers_add(list, &b, NULL));
    }
    return list;
}

/* Whoever looks once more than it takes to end goes on. */
static void the_time_limit_holds_for_every_list(void **state)
{
    (void)state;
    wi_clock = ticking;
    for (int plain = 0; plain < 2; plain++) {
        weir_buffers *list = nested_list(30000, plain);
        weir_plan_options options = WEIR_INIT(weir_plan_options);
        weir_plan *plan;
        options.mode = plain ? WEIR_PLAN_QUICK : WEIR_PLAN_SEARCH;
        options.seconds = 1e-6;
        looks = 0;
        ok(weir_plan_create(list, &options, &plan));
        ok(weir_plan_check(plan, list));
        weir_plan_details s = summary_of(plan);
        assert_true(s.stopped);
        assert_true(s.arena <= s.unshared + 60000 * UINT64_C(4096));
        assert_true(looks <= MOST_LOOKS);
        end(plan, list);
    }
    wi_clock = NULL;
}

/* A plan that the clock ended is no better than one that it did not, and no worse than the one that it ended at
 * once. */
static void more_time_makes_no_worse_plans(void **state)
{
    (void)state;
    static const double limits[] = {1e-9, 3e-3, 6e-3, 0};
    wi_clock = ticking;
    for (int plain = 0; plain < 2; plain++) {
        weir_buffers *list = nested_list(1500, plain);
        weir_plan_options options = WEIR_INIT(weir_plan_options);
        weir_plan_details s = WEIR_INIT(weir_plan_details);
        uint64_t arena = UINT64_MAX;
        options.mode = WEIR_PLAN_QUICK;
        for (int i = 0; i < 4; i++) {
            weir_plan *plan;
            options.seconds = limits[i];
            ok(weir_plan_create(list, &options, &plan));
            ok(weir_plan_check(plan, list));
            s = summary_of(plan);
            assert_true(s.arena <= arena);
            arena = s.arena;
            weir_plan_destroy(plan);
        }
        assert_false(s.stopped);
        assert_true((double)s.arena < 1.1 * (double)s.lower_bound);
        weir_buffers_destroy(list);
    }
    wi_clock = NULL;
}

static void nothing_to_plan_is_a_plan(void **state)
{
    (void)state;
    weir_buffers *list = empty_list();
    weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
    assert_int_equal(summary_of(plan).arena, 0);
    assert_true(summary_of(plan).proven);
    end(plan, list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disjoint_lifetimes_share),
        cmocka_unit_test(bump_shares_nothing_and_keeps_the_order),
        cmocka_unit_test(views_keep_their_root_alive),
        cmocka_unit_test(what_may_be_written_in_place_is),
        cmocka_unit_test(what_must_not_be_written_in_place_is_not),
        cmocka_unit_test(persistent_buffers_share_with_nothing),
        cmocka_unit_test(fixed_buffers_stay),
        cmocka_unit_test(shorter_ones_are_written_over_longer_ones),
        cmocka_unit_test(nothing_is_written_over_an_empty_view),
        cmocka_unit_test(shorter_ones_lie_elsewhere_where_that_is_better),
        cmocka_unit_test(shorter_ones_over_fixed_ones_leave_the_rest),
        cmocka_unit_test(what_is_not_looked_for_is_not_proven),
        cmocka_unit_test(the_lower_bound_is_that_of_the_best_choice),
        cmocka_unit_test(what_is_written_in_place_can_be_pinned_there),
        cmocka_unit_test(pins_that_do_not_meet_are_no_conflict),
        cmocka_unit_test(gaps_are_used_and_conflicts_kept),
        cmocka_unit_test(nothing_is_live_in_a_gap),
        cmocka_unit_test(kinds_have_arenas_of_their_own),
        cmocka_unit_test(offsets_have_64_bits),
        cmocka_unit_test(bad_buffers_are_refused_by_name),
        cmocka_unit_test(progress_tells_the_best_so_far_and_ends_it),
        cmocka_unit_test(progress_that_ended_it_is_not_called_again),
        cmocka_unit_test(the_time_limit_holds_for_every_list),
        cmocka_unit_test(more_time_makes_no_worse_plans),
        cmocka_unit_test(nothing_to_plan_is_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
