/* Blocks that are freed while they are away, or while copies of them are under way, after a suspend or a resume that failed: nothing
 * is lost, and nobody reads or writes what is another client's. */
#include "residency/scene.h"

#include "memory/mapped/mapped.h"

#include <limits.h>

/* A resume that fails, and whose memory the driver does not take back: the next one uses it, and so does a free. */
static void what_a_failed_resume_leaves(bool freed, long at, long *there)
{
    scene s;
    faults_reset(-1);
    open_scene(&s, &ways[0]);
    ok(try_suspend(&s));
    fails_at = at;
    fault.refused_unmaps = 2;
    arm();
    weir_status status = try_resume(&s);
    disarm();
    fault.refused_unmaps = 0;
    *there = calls_made > *there ? calls_made : *there;
    assert_int_equal(status == WEIR_OK, residency(s.model).state == WEIR_RESIDENT);
    for (int i = 0; i < BLOCKS && freed; i++)
        ok(weir_free(s.model, s.blocks[i].start, WEIR_STREAM_HOST));
    snapshot now = take_snapshot(s.runtime);
    check_sums(&now);
    if (status != WEIR_OK && freed)
        assert_int_equal(now.device.away, 0);
    others_use_the_memory(&s);
    ok(try_resume(&s));
    for (int i = 0; i < BLOCKS; i++)
        if (freed)
            s.blocks[i].start = allocate(s.model, s.blocks[i].bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        else if (!dropped(&s, &s.blocks[i]))
            block_holds(s.runtime, s.blocks[i].start, s.blocks[i].bytes, (uint64_t)i + 1);
    end_scene(&s);
}

static void what_a_failed_resume_leaves_is_not_lost(void **state)
{
    (void)state;
    long there = 1;
    fault.status = WEIR_ERR_DRIVER;
    for (long at = 0; at < there; at++)
        for (int freed = 0; freed < 2; freed++)
            what_a_failed_resume_leaves(freed, at, &there);
    fails_at = -1;
}

/* A block of somebody else's, as long as possible, all 0xee. */
static unsigned char *take_all(const scene *s, uint64_t *bytes)
{
    void *all = NULL;
    for (*bytes = BUDGET_GRANULES * GRANULE; *bytes > 0; *bytes -= GRANULE)
        if (weir_alloc(s->other, *bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &all) == WEIR_OK)
            break;
    ok(weir_fill(s->runtime, all, 0xee, *bytes, WEIR_STREAM_HOST));
    return all;
}

/* A resume fails at its last call, and the driver does not say that the copies are done, which are still to be made: what
 * is freed there is nobody else's until they are. */
static void what_is_freed_under_copies_waits_for_them(void **state)
{
    (void)state;
    for (int some = 1; some < 3; some++) {
        scene s;
        gate before = GATE;
        uint64_t bytes;
        faults_reset(-1);
        open_scene(&s, &ways[0]);
        ok(try_suspend(&s));
        arm();
        ok(try_resume(&s));
        disarm();
        ok(try_suspend(&s));
        void *stream = atomic_load(&s.model->residence)->stream;
        ok(wi_host_driver.call(s.runtime->device, pass_gate, &before, stream));
        fails_at = calls_made - 1;
        and_at = calls_made;
        arm();
        fails(WEIR_ERR_DRIVER, try_resume(&s));
        disarm();
        fails_at = and_at = -1;
        for (int i = 0; i < BLOCKS; i += some)
            ok(weir_free(s.model, s.blocks[i].start, WEIR_STREAM_HOST));
        unsigned char *all = take_all(&s, &bytes);
        open_gate(&before);
        ok(wi_host_driver.stream_synchronize(s.runtime->device, stream));
        for (uint64_t i = 0; i < bytes; i++)
            if (all[i] != 0xee)
                fail_msg("byte %llu of somebody else's was written", (unsigned long long)i);
        ok(weir_free(s.other, all, WEIR_STREAM_HOST));
        ok(try_resume(&s));
        for (int i = 0; i < BLOCKS; i++)
            if (i % some == 0)
                s.blocks[i].start = allocate(s.model, s.blocks[i].bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
            else if (!dropped(&s, &s.blocks[i]))
                block_holds(s.runtime, s.blocks[i].start, s.blocks[i].bytes, (uint64_t)i + 1);
        end_scene(&s);
    }
}

/* Without a record to cut it, the place of a block that is freed while it is away stays taken; no sum is wrong. */
static void frees_without_host_memory(void **state)
{
    (void)state;
    long there = 1;
    for (malloc_fails_at = 0; malloc_fails_at < there; malloc_fails_at++) {
        scene s;
        faults_reset(-1);
        open_scene(&s, &ways[0]);
        ok(try_suspend(&s));
        for (int i = 0; i < BLOCKS; i += 2) {
            mallocs = 0;
            malloc_armed = true;
            ok(weir_free(s.model, s.blocks[i].start, WEIR_STREAM_HOST));
            malloc_armed = false;
            there = mallocs + 1 > there ? mallocs + 1 : there;
        }
        snapshot now = take_snapshot(s.runtime);
        check_sums(&now);
        ok(try_resume(&s));
        block_holds(s.runtime, s.blocks[1].start, s.blocks[1].bytes, 2);
        for (int i = 0; i < BLOCKS; i += 2)
            s.blocks[i].start = allocate(s.model, s.blocks[i].bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        end_scene(&s);
    }
    malloc_fails_at = -1;
}

/* A suspend of a scene fails while its copies are still to be made, and the driver does not say whether they are. */
static void fail_under_copies(scene *s)
{
    faults_reset(-1);
    open_scene(s, &ways[0]);
    ok(try_suspend(s));
    ok(try_resume(s));
    copies_stream = atomic_load(&s->model->residence)->stream;
    fault.status = WEIR_ERR_DRIVER;
    held_copies = (gate)GATE;
    points_fail = 1;
    waits_fail = 2;
    holds_copies = true;
    fails(WEIR_ERR_DRIVER, try_suspend(s));
    assert_int_equal(waits_fail, 0);
    assert_int_equal(residency(s->model).state, WEIR_RESIDENT);
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_free(s->model, s->blocks[i].start, WEIR_STREAM_HOST));
}

static void copies_come_through(scene *s)
{
    open_gate(&held_copies);
    ok(wi_host_driver.stream_synchronize(s->runtime->device, copies_stream));
    copies_stream = NULL;
    for (int i = 0; i < BLOCKS; i++)
        s->blocks[i].start = allocate(s->model, s->blocks[i].bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    end_scene(s);
}

/* What is freed then keeps its memory until they have read it. */
static void what_is_freed_after_a_suspend_is_read_first(void **state)
{
    (void)state;
    scene s;
    fail_under_copies(&s);
    assert_true(take_snapshot(s.runtime).device.pending > 3 * GRANULE);
    ok(weir_runtime_trim(s.runtime, NULL, NULL));
    copies_come_through(&s);
}

/* Without a point behind the copies nothing is freed before they are known to be done. */
static void what_copies_read_is_not_freed_without_a_point(void **state)
{
    (void)state;
    scene s;
    faults_reset(-1);
    open_scene(&s, &ways[0]);
    ok(try_suspend(&s));
    ok(try_resume(&s));
    copies_stream = atomic_load(&s.model->residence)->stream;
    held_copies = (gate)GATE;
    no_points = holds_copies = true;
    waits_fail = INT_MAX;
    fails(WEIR_ERR_DRIVER, try_suspend(&s));
    for (int i = 0; i < BLOCKS; i++) {
        if (i == 1) /* stays beside its neighbour */
            continue;
        fails(WEIR_ERR_BUSY, weir_free(s.model, s.blocks[i].start, WEIR_STREAM_HOST));
        detail_names("copies");
    }
    no_points = false;
    waits_fail = 0;
    open_gate(&held_copies);
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_free(s.model, s.blocks[i].start, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(s.runtime).device.pending, 0);
    copies_come_through(&s);
}

/* And the client is not closed, as the copies are written to the host's memory. */
static void nobody_is_closed_under_copies(void **state)
{
    (void)state;
    scene s;
    fail_under_copies(&s);
    snapshot before = take_snapshot(s.host);
    uint64_t stored = residency(s.model).stored;
    assert_true(stored > 3 * GRANULE);
    for (int times = 0; times < 2; times++) {
        waits_fail = 1;
        fails(WEIR_ERR_DRIVER, weir_client_destroy(s.model));
        detail_names("model is not closed");
        detail_names("close it when the device answers again");
        assert_int_equal(waits_fail, 0);
    }
    assert_int_equal(residency(s.model).stored, stored);
    unchanged(s.host, before);
    copies_come_through(&s); /* which closes it */
}

/* On a lost device nothing writes there any more. */
static void on_a_lost_device_clients_are_closed(void **state)
{
    (void)state;
    scene s;
    faults_reset(-1);
    open_scene(&s, &ways[0]);
    ok(try_suspend(&s));
    ok(try_resume(&s));
    copies_stream = atomic_load(&s.model->residence)->stream;
    waits_answer = WEIR_ERR_DEVICE_LOST;
    waits_fail = INT_MAX;
    end_scene(&s);
    assert_true(waits_fail < INT_MAX);
    waits_answer = WEIR_ERR_DRIVER;
    waits_fail = 0;
    copies_stream = NULL;
}

static void free_largest(weir_client *client, const wi_resource *stack, const wi_account *account)
{
    wi_block left;
    wi_largest_block(stack->base, account, &left);
    ok(weir_free(client, left.pointer, WEIR_STREAM_HOST));
}

/* A copy of a piece of a file is still to be made, and the driver does not say whether it is: neither the piece nor the block is
 * given to anybody else. */
static void what_reads_a_file_stays_under_copies(void **state)
{
    (void)state;
    scene s;
    weir_block block;
    weir_request request = {.struct_size = sizeof request, .bytes = GRANULE, .memory_class = WEIR_CLASS_WEIGHTS};
    faults_reset(-1);
    open_scene(&s, &ways[0]);
    weir_client *reader = open_client(s.runtime, "reader", 0, 0);
    snapshot before = take_snapshot(s.host);
    held_copies = (gate)GATE;
    holds_copies = next_is_of_copies = true;
    waits_fail = 2;
    fails(WEIR_ERR_DRIVER, weir_alloc_from_file(reader, &request, "/proc/self/exe", 0, &block));
    assert_null(block.pointer);
    assert_int_equal(waits_fail, 0);
    assert_int_equal(client_details(reader).live, GRANULE);
    assert_true(take_snapshot(s.host).device.live > before.device.live);
    fails(WEIR_ERR_BUSY, weir_client_destroy(reader));
    open_gate(&held_copies);
    ok(wi_host_driver.stream_synchronize(s.runtime->device, copies_stream));
    scene_destroy(s.runtime->device, copies_stream);
    copies_stream = NULL;
    free_largest(reader, s.runtime->resource, &reader->account);
    free_largest(reader, atomic_load(&s.runtime->kinds[WEIR_KIND_PINNED]), &reader->host_account);
    ok(weir_client_destroy(reader));
    end_scene(&s);
}

enum { PARTS = 32, SECRET = 0x77 };

/* Another client had all memory, in blocks of that many granules. */
static void leave_secrets(weir_client *other, size_t granules)
{
    void *blocks[PARTS];
    size_t count = 0;
    for (; (count + 1) * granules <= PARTS; count++) {
        blocks[count] = allocate(other, granules * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        memset(blocks[count], SECRET, granules * GRANULE);
    }
    while (count > 0)
        ok(weir_free(other, blocks[--count], WEIR_STREAM_HOST));
}

/* Memory that another client had comes to one that resumes, which fails at that call, and works then, or the block is freed first.
 * What the client allocates next was scrubbed. True: it has failed. */
static bool nothing_is_read_of_others_after(long at, size_t granules, bool freed)
{
    enum { MOST_PARTS = 40 };
    weir_runtime_options options = {.struct_size = sizeof options, .budget = PARTS * GRANULE};
    weir_client_options scrubbed = {.struct_size = sizeof scrubbed, .name = "one", .scrub = WEIR_SCRUB_OTHERS};
    weir_runtime *runtime;
    weir_client *one, *other;
    void *block, *parts[MOST_PARTS];
    size_t count = 0;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    ok(weir_client_create(runtime, &scrubbed, &one));
    other = open_client(runtime, "other", 0, 0);
    block = allocate(one, 5 * GRANULE + UNIT, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    write_block(runtime, block, 5 * GRANULE, 1);
    (void)suspend(one);
    leave_secrets(other, granules);
    fault.calls = 0;
    fault.fail_at = at;
    weir_status status = weir_client_resume(one, WEIR_STREAM_HOST);
    fault.fail_at = -1;
    if (freed)
        ok(weir_free(one, block, WEIR_STREAM_HOST));
    ok(weir_client_resume(one, WEIR_STREAM_HOST));
    if (!freed)
        block_holds(runtime, block, 5 * GRANULE, 1);
    while (count < MOST_PARTS &&
           weir_alloc(one, GRANULE / 2, WEIR_STREAM_HOST, WEIR_CLASS_KV, &parts[count]) == WEIR_OK)
        assert_null(memchr(parts[count++], SECRET, GRANULE / 2));
    while (count > 0)
        ok(weir_free(one, parts[--count], WEIR_STREAM_HOST));
    if (!freed)
        ok(weir_free(one, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(one));
    ok(weir_client_destroy(other));
    ok(weir_runtime_destroy(runtime));
    return status != WEIR_OK;
}

static void nothing_is_read_of_others_after_a_resume_that_failed(void **state)
{
    const size_t granules[] = {PARTS, 6, 1}; /* chunks that are too long, that fit, and that are too short */
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof granules / sizeof granules[0]); i++) {
        long at = 0;
        bool freed = i % 2;
        assert_false(nothing_is_read_of_others_after(-1, granules[i / 2], freed));
        while (nothing_is_read_of_others_after(at, granules[i / 2], freed))
            at++;
        assert_true(at > 2);
    }
}

/* However what was away has ended: it was freed, in either order, or has come back, or both. */
static void the_base_forgets_who_has_nothing_away(void **state)
{
    enum { FORWARDS, BACKWARDS, RESUMED, BOTH, KINDS };
    (void)state;
    for (int kind = 0; kind < 2 * KINDS; kind++) {
        int end = kind % KINDS;
        weir_runtime *runtime = make_runtime(BUDGET);
        weir_client *one = open_client(runtime, "one", 0, 0), *two = open_client(runtime, "two", 0, 0);
        const wi_mapped *base = (const wi_mapped *)runtime->resource->base;
        void *blocks[2], *other = allocate(two, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        for (int i = 0; i < 2; i++)
            blocks[i] = allocate(one, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        (void)suspend(two);
        assert_non_null(base->aways);
        weir_residency r = suspend_with(one, (weir_suspend_options){.show = kind >= KINDS});
        assert_int_equal(r.away, 8 * MIB);
        assert_non_null(base->aways->next);
        for (int i = 0; i < 2; i++) {
            if (end == RESUMED || (end == BOTH && i == 1))
                ok(weir_client_resume(one, WEIR_STREAM_HOST));
            ok(weir_free(one, blocks[end == BACKWARDS ? 1 - i : i], WEIR_STREAM_HOST));
        }
        assert_non_null(base->aways);
        assert_null(base->aways->next);
        ok(weir_client_resume(one, WEIR_STREAM_HOST));
        (void)weir_client_forget_copies(one); /* on the host they count in the same ledger */
        ok(weir_client_destroy(one));
        ok(weir_free(two, other, WEIR_STREAM_HOST));
        assert_null(base->aways);
        ok(weir_client_destroy(two));
        ok(weir_runtime_destroy(runtime));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_read_of_others_after_a_resume_that_failed),
        cmocka_unit_test(the_base_forgets_who_has_nothing_away),
        cmocka_unit_test(what_a_failed_resume_leaves_is_not_lost),
        cmocka_unit_test(what_is_freed_under_copies_waits_for_them),
        cmocka_unit_test(what_is_freed_after_a_suspend_is_read_first),
        cmocka_unit_test(what_copies_read_is_not_freed_without_a_point),
        cmocka_unit_test(nobody_is_closed_under_copies),
        cmocka_unit_test(on_a_lost_device_clients_are_closed),
        cmocka_unit_test(what_reads_a_file_stays_under_copies),
        cmocka_unit_test(frees_without_host_memory),
    };
    return cmocka_run_group_tests(tests, prepare_scenes, NULL);
}
