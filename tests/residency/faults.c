/* A fault at every driver call of a suspend and of a resume, at every pair of them, and at every allocation of host
 * memory: a clean status; then nothing has changed, or the client is suspended with nothing lost, and a retry works. */
#include "residency/scene.h"

static unsigned failures, half_way; /* calls that failed; suspends that failed, and could not bring all back */

static void failed_as_planned(const scene *s, weir_status status)
{
    failures++;
    if (s->elastic && status == WEIR_ERR_OUT_OF_MEMORY) /* what the driver does not take back is missing for pages */
        return;
    if (s->elastic && for_good && status == WEIR_ERR_BUSY) /* a page that is neither given back nor taken */
        return;
    if (status != fault.status && status != WEIR_ERR_SYSTEM)
        fail_msg("%s: %s", weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
    assert_true(weir_detail()[0] != '\0');
}

/* What the books say of the clients' blocks, and of what is held. */
static void same_books(const scene *s, const snapshot *before)
{
    snapshot now = take_snapshot(s->runtime);
    check_sums(&now);
    if (s->elastic && now.device.live > before->device.live && (for_good || and_at >= 0)) {
        assert_int_equal((now.device.live - before->device.live) % GRANULE, 0); /* pages that were not taken back */
        assert_true(now.device.live - before->device.live < PAGES * GRANULE);
        return;
    }
    assert_int_equal(now.device.live, before->device.live);
    assert_int_equal(now.device.pending, before->device.pending);
    assert_int_equal(now.device.promised, before->device.promised);
    assert_int_equal(now.device.away, before->device.away);
    assert_int_equal(now.device.guaranteed, before->device.guaranteed);
    for (size_t i = 0; i < now.count; i++) {
        assert_int_equal(now.clients[i].live, before->clients[i].live);
        assert_int_equal(now.clients[i].away, before->clients[i].away);
        assert_int_equal(now.clients[i].blocks, before->clients[i].blocks);
        assert_int_equal(now.clients[i].guaranteed, before->clients[i].guaranteed);
        assert_memory_equal(now.clients[i].live_class, before->clients[i].live_class, sizeof now.clients[i].live_class);
    }
}

/* Suspends it, where the first try meets the faults. */
static void suspend_with_faults(const scene *s)
{
    snapshot before = take_snapshot(s->runtime);
    uint64_t stored = take_snapshot(s->host).device.live;
    arm();
    weir_status status = try_suspend(s);
    disarm();
    if (status != WEIR_OK) {
        failed_as_planned(s, status);
        if (residency(s->model).state == WEIR_RESIDENT) {
            same_books(s, &before);
            snapshot now = take_snapshot(s->runtime);
            assert_int_equal(now.device.held, before.device.held);
            assert_int_equal(now.device.allocations, before.device.allocations);
            assert_int_equal(now.device.frees, before.device.frees);
            if (!for_good && and_at < 0) /* else the driver may not say whether the copies are done */
                assert_true(take_snapshot(s->host).device.live <= stored);
            contents_are_right(s, false);
        } else {
            half_way++;
            snapshot now = take_snapshot(s->runtime);
            check_sums(&now);
            assert_int_equal(now.device.live + now.device.away, before.device.live);
            assert_true(now.device.away > 0);
            others_use_the_memory(s);
            ok(try_resume(s));
            if (s->way->native)
                ok(weir_stream_synchronize(s->stream));
            same_books(s, &before);
            for (int i = 0; i < BLOCKS; i++) /* of what was to be dropped a part may have been */
                if (dropped(s, &s->blocks[i]))
                    write_block(s->runtime, s->blocks[i].start, s->blocks[i].bytes, (uint64_t)i + 1);
            contents_are_right(s, false);
        }
        ok(try_suspend(s));
    }
    snapshot now = take_snapshot(s->runtime);
    check_sums(&now);
    assert_int_equal(residency(s->model).state, WEIR_SUSPENDED);
    assert_int_equal(now.device.live + now.device.away, before.device.live);
    assert_true(now.device.away > 3 * GRANULE);
}

/* Of one that comes back by piece, some have come. Where one call failed alone, all else is shown as before. */
static void still_suspended(const scene *s, const snapshot *before)
{
    weir_residency r = residency(s->model);
    snapshot now = take_snapshot(s->runtime);
    assert_int_equal(r.state, WEIR_SUSPENDED);
    if (!s->way->pieces)
        same_books(s, before);
    check_sums(&now);
    if (s->way->show && !for_good && and_at < 0) {
        uint64_t pages = now.device.away - r.shown;
        assert_true(pages == 0 || (s->elastic && pages == (PAGES - 1) * GRANULE));
        for (int i = 0; i < BLOCKS; i++)
            if (dropped(s, &s->blocks[i]))
                block_holds_zeros(s->runtime, s->blocks[i].start, s->blocks[i].bytes);
            else
                block_holds(s->runtime, s->blocks[i].start, s->blocks[i].bytes, (uint64_t)i + 1);
    }
}

static void resume_with_faults(const scene *s)
{
    others_use_the_memory(s);
    ok(weir_runtime_trim(s->runtime, NULL, NULL));
    snapshot before = take_snapshot(s->runtime);
    arm();
    weir_status status = try_resume(s);
    disarm();
    if (status != WEIR_OK && !for_good && and_at < 0 && !s->way->pieces) { /* what came is everybody's again */
        ok(weir_runtime_trim(s->runtime, NULL, NULL));
        assert_int_equal(take_snapshot(s->runtime).device.held, before.device.held);
    }
    if (status != WEIR_OK) {
        failed_as_planned(s, status);
        still_suspended(s, &before);
        block_holds(s->runtime, s->neighbour, 300, 77);
        others_use_the_memory(s);
        ok(try_resume(s));
    }
    if (s->way->native)
        ok(weir_stream_synchronize(s->stream));
    assert_int_equal(residency(s->model).state, WEIR_RESIDENT);
    snapshot now = take_snapshot(s->runtime);
    check_sums(&now);
    assert_int_equal(now.device.away, 0);
    assert_int_equal(now.device.live, before.device.live + before.device.away);
    assert_int_equal(now.device.guaranteed, s->way->guaranteed ? GUARANTEED : 0);
    contents_are_right(s, true);
}

/* One life of the client. Of `faulty_resume` the faults are met by the resume, else by the suspend. */
static void live(const way *w, bool faulty_resume)
{
    scene s;
    weir_status status = fault.status;
    faults_reset(-1);
    fault.status = status;
    open_scene(&s, w);
    if (w->unwritten) {
        ok(try_suspend(&s));
        ok(weir_client_resume(s.model, WEIR_STREAM_HOST));
        for (int i = 0; i < BLOCKS; i++)
            if (dropped(&s, &s.blocks[i]))
                write_block(s.runtime, s.blocks[i].start, s.blocks[i].bytes, (uint64_t)i + 1);
    }
    if (!faulty_resume) {
        suspend_with_faults(&s);
        others_use_the_memory(&s);
        ok(try_resume(&s));
        if (w->native)
            ok(weir_stream_synchronize(s.stream));
        contents_are_right(&s, true);
    } else {
        ok(try_suspend(&s));
        resume_with_faults(&s);
    }
    end_scene(&s);
}

static const weir_status kinds[2] = {WEIR_ERR_DRIVER, WEIR_ERR_OUT_OF_MEMORY};

/* Every call from the first one on, as long as there are so many; how many faults were seen. */
static void at_each_call(const way *w, bool faulty_resume)
{
    fails_at = -1;
    live(w, faulty_resume);
    long there = calls_made;
    assert_true(there > 0);
    for (fails_at = 0; fails_at < there + 2; fails_at++)
        live(w, faulty_resume);
    fails_at = -1;
}

static void each_driver_call_fails_once(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++)
        for (int kind = 0; kind < 2; kind++)
            for (int resume = 0; resume < 2; resume++) {
                failures = 0;
                fault.status = kinds[kind];
                at_each_call(&ways[w], resume);
                assert_true(failures > 1);
            }
}

/* From one call on all fail, until the call returns. */
static void a_driver_that_fails_for_good(void **state)
{
    (void)state;
    for_good = true;
    half_way = 0;
    for (int w = 0; w < WAYS; w++)
        for (int kind = 0; kind < 2; kind++)
            for (int resume = 0; resume < 2; resume++) {
                failures = 0;
                fault.status = kinds[kind];
                at_each_call(&ways[w], resume);
                assert_true(failures > 2);
            }
    for_good = false;
    assert_true(half_way > 0);
}

static void each_pair_of_driver_calls_fails(void **state)
{
    (void)state;
    const int some = getenv("WEIR_TEST_LONG") ? WAYS : 1;
    fault.status = WEIR_ERR_DRIVER;
    half_way = 0;
    for (int w = 0; w < some; w++)
        for (int resume = 0; resume < 2; resume++) {
            long there = 1;
            for (fails_at = 0; fails_at < there; fails_at++)
                for (and_at = fails_at + 1; and_at < (there = calls_made > there ? calls_made : there) + 1; and_at++)
                    live(&ways[w], resume);
            fails_at = and_at = -1;
        }
    assert_true(half_way > 0);
}

static void each_allocation_of_host_memory_fails(void **state)
{
    (void)state;
    fault.status = WEIR_ERR_SYSTEM;
    for (int w = 0; w < WAYS; w++)
        for (int resume = 0; resume < 2; resume++) {
            failures = 0;
            long there = 1;
            for (malloc_fails_at = 0; malloc_fails_at < there; malloc_fails_at++) {
                live(&ways[w], resume);
                there = mallocs + 1;
            }
            malloc_fails_at = -1;
            assert_true(failures > 0);
        }
}

/* A device that has less than its budget: refused as such, after each part of what has to come. */
static void a_device_with_less_than_its_budget(void **state)
{
    (void)state;
    for (long more = 0; more < 4; more++) {
        scene s;
        faults_reset(-1);
        open_scene(&s, &ways[0]);
        ok(try_suspend(&s));
        ok(weir_runtime_trim(s.runtime, NULL, NULL));
        snapshot before = take_snapshot(s.runtime);
        fault.limit = fault.handles + more;
        fails(WEIR_ERR_OUT_OF_MEMORY, try_resume(&s));
        assert_int_equal(last_refusal().cause, WEIR_CAUSE_OTHER_PROCESS);
        same_books(&s, &before);
        ok(weir_runtime_trim(s.runtime, NULL, NULL));
        assert_int_equal(take_snapshot(s.runtime).device.held, before.device.held);
        fault.limit = 0;
        ok(try_resume(&s));
        contents_are_right(&s, true);
        end_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_driver_call_fails_once),        cmocka_unit_test(a_driver_that_fails_for_good),
        cmocka_unit_test(each_pair_of_driver_calls_fails),    cmocka_unit_test(each_allocation_of_host_memory_fails),
        cmocka_unit_test(a_device_with_less_than_its_budget),
    };
    return cmocka_run_group_tests(tests, prepare_scenes, NULL);
}
