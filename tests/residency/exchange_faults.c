/* A fault at every driver call of an exchange, at every pair of them, from each call on, and at every allocation of host
 * memory: a clean status; then both clients are as before, or the one that was leaving is suspended with nothing lost, and a
 * retry works. The clients of scene.h: the model, in many ways, and the other one, with blocks of several chunks. */
#include "residency/scene.h"

#include <weir/exchange.h>

enum { OTHERS = 3, EACH = 4 * GRANULE };

static unsigned failures, half_way; /* calls that failed; those after which the one that left could not come back */

typedef struct places {
    scene s;
    weir_client *third;
    void *its[OTHERS]; /* of the other one */
} places;

static void its_contents_are_right(const places *p)
{
    for (int i = 0; i < OTHERS; i++)
        block_holds(p->s.runtime, p->its[i], EACH, 40 + (uint64_t)i);
}

static void right(const places *p, const weir_client *of, bool back)
{
    if (of == p->s.model)
        contents_are_right(&p->s, back);
    else
        its_contents_are_right(p);
}

/* A third one writes over all that it can get. */
static void a_third_uses_the_rest(const places *p)
{
    void *block;
    for (uint64_t bytes = BUDGET_GRANULES * GRANULE; bytes > 0; bytes -= GRANULE)
        if (take_at_once(p->third, bytes, WEIR_STREAM_HOST, &block) == WEIR_OK) {
            ok(weir_fill(p->s.runtime, block, 0xee, bytes, WEIR_STREAM_HOST));
            ok(weir_free(p->third, block, WEIR_STREAM_HOST));
            return;
        }
}

/* What was to be dropped of the model is zeros when it has come back; the contents are put right again. */
static void renew_dropped(const places *p)
{
    const scene *s = &p->s;
    for (int i = 0; i < BLOCKS; i++)
        if (dropped(s, &s->blocks[i]))
            write_block(s->runtime, s->blocks[i].start, s->blocks[i].bytes, (uint64_t)i + 1);
}

static weir_status try_exchange(const places *p, weir_client *leaves, weir_client *comes)
{
    const way *w = p->s.way;
    bool model = leaves == p->s.model;
    weir_suspend_options o = {.struct_size = sizeof o,
                              .drop = w->drop && model ? WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH) : 0,
                              .unwritten = w->unwritten ? WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS) : 0,
                              .verify = w->verify,
                              .folder = w->file ? "." : NULL};
    return weir_client_exchange(leaves, &o, comes, w->native ? p->s.stream : WEIR_STREAM_HOST, NULL);
}

/* The clients' books; pages that the driver did not take back, or gave once more, may be live besides. */
static void same_books(const places *p, const snapshot *before)
{
    snapshot now = take_snapshot(p->s.runtime);
    bool pages = p->s.elastic && (for_good || and_at >= 0);
    check_sums(&now);
    assert_int_equal(now.device.promised, before->device.promised);
    assert_int_equal(now.device.guaranteed, before->device.guaranteed);
    if (pages && now.device.live > before->device.live) {
        assert_true(now.device.live - before->device.live < PAGES * GRANULE);
        return;
    }
    assert_int_equal(now.device.live, before->device.live);
    assert_int_equal(now.device.pending, before->device.pending);
    assert_int_equal(now.device.away, before->device.away);
    for (size_t i = 0; i < now.count; i++) {
        assert_int_equal(now.clients[i].live, before->clients[i].live);
        assert_int_equal(now.clients[i].away, before->clients[i].away);
        assert_int_equal(now.clients[i].blocks, before->clients[i].blocks);
        assert_int_equal(now.clients[i].guaranteed, before->clients[i].guaranteed);
        assert_memory_equal(now.clients[i].live_class, before->clients[i].live_class, sizeof now.clients[i].live_class);
    }
}

static void failed_as_planned(const places *p, weir_status status)
{
    failures++;
    assert_true(weir_detail()[0] != '\0');
    if (p->s.elastic && (status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_BUSY))
        return;
    if (status != fault.status && status != WEIR_ERR_SYSTEM)
        fail_msg("%s: %s", weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
}

/* The one that was leaving could not come back at once. Memory of the other one that the driver did not take back is in
 * its way until that one has tried to come once more. */
static void mend(const places *p, weir_client *leaves, weir_client *comes, const snapshot *before)
{
    half_way++;
    snapshot now = take_snapshot(p->s.runtime);
    check_sums(&now);
    assert_int_equal(residency(leaves).state, WEIR_SUSPENDED);
    if (!p->s.elastic)
        assert_int_equal(now.device.live + now.device.away, before->device.live + before->device.away);
    assert_int_equal(now.device.promised, before->device.promised);
    a_third_uses_the_rest(p);
    weir_status status = weir_client_resume(leaves, WEIR_STREAM_HOST);
    if (status == WEIR_ERR_OUT_OF_MEMORY && (for_good || and_at >= 0)) {
        if (weir_client_resume(comes, WEIR_STREAM_HOST) == WEIR_OK)
            status = weir_client_exchange(comes, NULL, leaves, WEIR_STREAM_HOST, NULL);
        else
            status = weir_client_resume(leaves, WEIR_STREAM_HOST);
    }
    ok(status);
    same_books(p, before);
}

static void exchange_with_faults(const places *p, weir_client *leaves, weir_client *comes)
{
    snapshot before = take_snapshot(p->s.runtime);
    arm();
    weir_status status = try_exchange(p, leaves, comes);
    disarm();
    if (status != WEIR_OK) {
        failed_as_planned(p, status);
        assert_int_equal(residency(comes).state, WEIR_SUSPENDED);
        if (residency(leaves).state != WEIR_RESIDENT)
            mend(p, leaves, comes, &before);
        else
            same_books(p, &before);
        if (leaves == p->s.model)
            renew_dropped(p);
        right(p, leaves, false);
        a_third_uses_the_rest(p);
        right(p, leaves, false);
        ok(try_exchange(p, leaves, comes));
    }
    if (p->s.way->native)
        ok(weir_stream_synchronize(p->s.stream));
    assert_int_equal(residency(leaves).state, WEIR_SUSPENDED);
    assert_int_equal(residency(comes).state, WEIR_RESIDENT);
    snapshot now = take_snapshot(p->s.runtime);
    check_sums(&now);
    assert_int_equal(now.device.promised, 0);
    assert_int_equal(now.device.live + now.device.away, before.device.live + before.device.away);
    a_third_uses_the_rest(p);
    right(p, comes, true);
}

/* The model is suspended, and the other one has its blocks. `watch`: copies_stream is the model's. */
static void begin_places(places *p, const way *w, bool watch)
{
    faults_reset(-1);
    open_scene(&p->s, w);
    p->third = open_client(p->s.runtime, "third", 0, 0);
    next_is_of_copies = watch;
    ok(try_suspend(&p->s));
    for (int i = 0; i < OTHERS; i++) {
        p->its[i] = allocate(p->s.other, EACH, WEIR_STREAM_HOST, i % 2 ? WEIR_CLASS_KV : WEIR_CLASS_WEIGHTS);
        write_block(p->s.runtime, p->its[i], EACH, 40 + (uint64_t)i);
    }
}

/* The other one is there. */
static void end_places(places *p)
{
    if (p->s.way->native)
        ok(weir_stream_synchronize(p->s.stream));
    its_contents_are_right(p);
    for (int i = 0; i < OTHERS; i++)
        ok(weir_free(p->s.other, p->its[i], WEIR_STREAM_HOST));
    (void)weir_client_forget_copies(p->s.other);
    ok(weir_client_resume(p->s.model, WEIR_STREAM_HOST));
    ok(weir_client_destroy(p->third));
    end_scene(&p->s);
}

/* The faults are met by the exchange in which the model comes, or by the one in which it leaves again. */
static void live(const way *w, bool leaves)
{
    places p;
    weir_status status = fault.status;
    begin_places(&p, w, false);
    fault.status = status;
    if (leaves)
        ok(try_exchange(&p, p.s.other, p.s.model));
    else
        exchange_with_faults(&p, p.s.other, p.s.model);
    if (w->native)
        ok(weir_stream_synchronize(p.s.stream));
    renew_dropped(&p);
    contents_are_right(&p.s, false);
    if (leaves)
        exchange_with_faults(&p, p.s.model, p.s.other);
    else
        ok(try_exchange(&p, p.s.model, p.s.other));
    end_places(&p);
}

static const weir_status kinds[2] = {WEIR_ERR_DRIVER, WEIR_ERR_OUT_OF_MEMORY};

/* In each way of scene.h but by piece, which is the same here. */
#define EACH_WAY(w)                                                                                                    \
    for (int w = 0; w < WAYS; w++)                                                                                     \
        if (!ways[w].pieces)

static bool all(void)
{
    return getenv("WEIR_TEST_LONG") != NULL;
}

/* Between the calls that fail: sanitizers are slow. */
static long step(void)
{
    return all() || !getenv("WEIR_SANITIZED") ? 1 : 5;
}

static void at_each_call(const way *w, bool leaves)
{
    fails_at = -1;
    live(w, leaves);
    long there = calls_made;
    assert_true(there > 0);
    for (fails_at = (w - ways) % step(); fails_at < there + 2; fails_at += step())
        live(w, leaves);
    fails_at = -1;
}

static void each_driver_call_fails_once(void **state)
{
    (void)state;
    EACH_WAY(w)
    for (int kind = all() ? 0 : w % 2; kind < (all() ? 2 : w % 2 + 1); kind++)
        for (int leaves = 0; leaves < 2; leaves++) {
            failures = half_way = 0;
            fault.status = kinds[kind];
            at_each_call(&ways[w], leaves);
            assert_true(failures > 1);
            assert_true(half_way == 0 || ways[w].pages);
        }
}

static void a_driver_that_fails_for_good(void **state)
{
    (void)state;
    for_good = true;
    half_way = 0;
    EACH_WAY(w)
    for (int kind = all() ? 0 : w % 2; kind < (all() ? 2 : w % 2 + 1); kind++)
        for (int leaves = 0; leaves < 2; leaves++) {
            failures = 0;
            fault.status = kinds[kind];
            at_each_call(&ways[w], leaves);
            assert_true(failures > 2);
        }
    for_good = false;
    assert_true(half_way > 0);
}

static void each_pair_of_driver_calls_fails(void **state)
{
    (void)state;
    const int some = all() ? WAYS : 1, stride = all() ? 1 : 7;
    fault.status = WEIR_ERR_DRIVER;
    half_way = 0;
    for (int w = 0; w < some; w++)
        for (int leaves = 0; leaves < 2 && !ways[w].pieces; leaves++) {
            long there = 1;
            for (fails_at = 0; fails_at < there; fails_at += step())
                for (and_at = fails_at + 1; and_at < (there = calls_made > there ? calls_made : there) + 1;
                     and_at += stride)
                    live(&ways[w], leaves);
            fails_at = and_at = -1;
        }
    assert_true(half_way > 0);
}

static void each_allocation_of_host_memory_fails(void **state)
{
    (void)state;
    fault.status = WEIR_ERR_SYSTEM;
    EACH_WAY(w)
    for (int leaves = 0; leaves < 2; leaves++) {
        failures = 0;
        long there = 1;
        for (malloc_fails_at = 0; malloc_fails_at < there; malloc_fails_at += step()) {
            live(&ways[w], leaves);
            there = mallocs + 1;
        }
        malloc_fails_at = -1;
        assert_true(failures > 0);
    }
}

/* Steps ------------------------------------------------------------------------------------------------------------ */

/* What the books say whenever contents are put on their way to the one that comes. */
static const places *watched;
static unsigned looks;
static uint64_t away_at[2]; /* of the one that leaves: at the first look, and at the last */

static weir_status watching_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    if (watched && stream == copies_stream) {
        snapshot now = take_snapshot(watched->s.runtime);
        assert_true(now.device.held <= BUDGET_GRANULES * GRANULE);
        assert_true(now.device.live + now.device.promised <= BUDGET_GRANULES * GRANULE);
        away_at[looks++ > 0] = residency(watched->s.other).away;
    }
    return scene_copy(device, to, from, bytes, stream);
}

/* The first piece comes when one has left, and not when all have. */
static void memory_passes_piece_by_piece(void **state)
{
    (void)state;
    places p;
    begin_places(&p, &ways[2], true);
    looks = 0;
    watched = &p;
    ok(try_exchange(&p, p.s.other, p.s.model));
    watched = NULL;
    assert_true(looks > 2);
    assert_true(away_at[0] > 0 && away_at[0] < away_at[1] && away_at[0] < OTHERS * EACH);
    assert_int_equal(residency(p.s.other).away, OTHERS * EACH);
    ok(weir_stream_synchronize(p.s.stream));
    renew_dropped(&p);
    ok(try_exchange(&p, p.s.model, p.s.other));
    end_places(&p);
}

/* A copy that is still under way holds its piece. */
static void the_copy_of_a_piece_is_waited_for(void **state)
{
    (void)state;
    places p;
    pthread_t opener;
    begin_places(&p, &ways[2], false);
    next_is_of_copies = holds_copies = true; /* those of the one that leaves */
    held_copies = (gate)GATE;
    pthread_create(&opener, NULL, open_gate_later, &held_copies);
    ok(try_exchange(&p, p.s.other, p.s.model));
    pthread_join(opener, NULL);
    ok(weir_stream_synchronize(p.s.stream));
    contents_are_right(&p.s, true);
    renew_dropped(&p);
    ok(try_exchange(&p, p.s.model, p.s.other));
    end_places(&p);
}

static int prepare_places(void **state)
{
    (void)prepare_scenes(state);
    scene_driver.copy = watching_copy;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_passes_piece_by_piece),    cmocka_unit_test(the_copy_of_a_piece_is_waited_for),
        cmocka_unit_test(each_driver_call_fails_once),     cmocka_unit_test(a_driver_that_fails_for_good),
        cmocka_unit_test(each_pair_of_driver_calls_fails), cmocka_unit_test(each_allocation_of_host_memory_fails),
    };
    return cmocka_run_group_tests(tests, prepare_places, NULL);
}
