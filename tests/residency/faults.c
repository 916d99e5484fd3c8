/* A fault at every driver call of a suspend and of a resume, at every pair of them, and at every allocation of host
 * memory: a clean status; then nothing has changed, or the client is suspended with nothing lost, and a retry works. */
#include "core/faulty.h"
#include "residency/residency.h"

#include "memory/mapped/mapped.h"
#include "runtime/residence.h"
#include "runtime/runtime.h"

#include <weir/elastic.h>

#include <limits.h>

/* malloc, which the linker leads through here ---------------------------------------------------------------------- */

static long mallocs, malloc_fails_at = -1;
static bool malloc_armed; /* on this test's thread alone: the others are streams, whose threads allocate nothing */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool refuse_malloc(void)
{
    return malloc_armed && mallocs++ == malloc_fails_at;
}
void *__wrap_malloc(size_t size)
{
    return refuse_malloc() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t count, size_t size)
{
    return refuse_malloc() ? NULL : __real_calloc(count, size);
}
void *__wrap_realloc(void *old, size_t size)
{
    return refuse_malloc() ? NULL : __real_realloc(old, size);
}

/* A client and what it has ----------------------------------------------------------------------------------------- */

enum { BUDGET_GRANULES = 16, BLOCKS = 5, GUARANTEED = 10 << 16, PAGES = 4, HOST_BUDGET = 32 << 20 };

/* In what way it is suspended and resumed. */
typedef struct way {
    bool file;      /* copies are in a file, else in page-locked memory */
    bool drop;      /* scratch is dropped */
    bool unwritten; /* weights were copied before, and are not written since */
    bool verify;
    bool native; /* resumed on a stream */
    bool pages;  /* it has an elastic block */
    bool guaranteed;
    bool show;   /* copies are shown */
    bool pieces; /* it is resumed by piece */
} way;

static const way ways[] = {
    {.drop = true},
    {.file = true, .guaranteed = true},
    {.unwritten = true, .native = true, .drop = true},
    {.unwritten = true, .verify = true, .guaranteed = true},
    {.unwritten = true, .verify = true, .file = true, .native = true},
    {.pages = true, .drop = true},
    {.pages = true, .file = true, .native = true, .guaranteed = true},
    {.show = true, .drop = true},
    {.show = true, .unwritten = true, .native = true, .guaranteed = true},
    {.show = true, .unwritten = true, .drop = true},
    {.show = true, .pieces = true, .drop = true, .pages = true},
    {.show = true, .pieces = true, .unwritten = true, .verify = true, .guaranteed = true},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

typedef struct held {
    unsigned char *start;
    size_t bytes;
    weir_class memory_class;
} held;

typedef struct scene {
    const way *way;
    weir_runtime *runtime, *host;
    weir_client *model, *other;
    weir_stream stream;
    held blocks[BLOCKS];
    void *neighbour;
    weir_elastic *elastic; /* of PAGES pages, of which the second is not there */
} scene;

/* The faulty driver, which also fails what the residence asks about its own stream: so many points, and then waits. */
static wi_driver scene_driver;
static void *copies_stream;
static bool no_points; /* none there, whatever is asked */
static gate held_copies;
static bool holds_copies; /* the next copy on that stream waits at the gate, and before it nothing fails */
static int points_fail, waits_fail;
static weir_status waits_answer = WEIR_ERR_DRIVER;

static weir_status scene_record(wi_device *device, void *stream, wi_event *out)
{
    if (stream && stream == copies_stream && (no_points || (points_fail > 0 && points_fail-- > 0)))
        return weir_fail(WEIR_ERR_DRIVER, "no point on the stream of copies");
    return faulty_driver.record(device, stream, out);
}

static weir_status scene_synchronize(wi_device *device, void *stream)
{
    if (stream && stream == copies_stream && points_fail == 0 && !holds_copies && waits_fail > 0 && waits_fail-- > 0)
        return weir_fail(waits_answer, "the stream of copies does not answer");
    return faulty_driver.stream_synchronize(device, stream);
}

static weir_status scene_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    if (stream && stream == copies_stream && holds_copies) {
        holds_copies = false;
        ok(wi_host_driver.call(device, pass_gate, &held_copies, stream));
    }
    return faulty_driver.copy(device, to, from, bytes, stream);
}

static bool next_is_of_copies; /* the next stream that is made */

static weir_status scene_create(wi_device *device, void **stream)
{
    weir_status status = faulty_driver.stream_create(device, stream);
    if (next_is_of_copies)
        copies_stream = *stream;
    next_is_of_copies = false;
    return status;
}

/* Its work is to be done by then; if it waits at the gate, the test would hang. */
static void scene_destroy(wi_device *device, void *stream)
{
    if (stream == copies_stream)
        open_gate(&held_copies);
    faulty_driver.stream_destroy(device, stream);
}

static char *page_of(const scene *s, size_t index)
{
    weir_elastic_stats stats = WEIR_INIT(weir_elastic_stats);
    ok(weir_elastic_info(s->elastic, &stats));
    assert_int_equal(stats.committed, (PAGES - 1) * GRANULE);
    return (char *)stats.base + index * GRANULE;
}

static void add_pages(scene *s)
{
    weir_elastic_options o = {
        .struct_size = sizeof o, .bytes = PAGES * GRANULE, .page = GRANULE, .memory_class = WEIR_CLASS_KV};
    ok(weir_elastic_create(s->model, &o, &s->elastic));
    ok(weir_elastic_commit(s->elastic, 0, GRANULE, WEIR_STREAM_HOST));
    ok(weir_elastic_commit(s->elastic, 2 * GRANULE, 2 * GRANULE, WEIR_STREAM_HOST));
    for (size_t i = 0; i < PAGES; i++)
        if (i != 1)
            write_block(s->runtime, page_of(s, i), GRANULE, 200 + i);
}

static void open_scene(scene *s, const way *w)
{
    static const struct {
        size_t bytes;
        weir_class memory_class;
    } wanted[BLOCKS] = {
        {2 * GRANULE + 256, WEIR_CLASS_WEIGHTS},
        {300, WEIR_CLASS_KV},
        {GRANULE, WEIR_CLASS_KV},
        {GRANULE, WEIR_CLASS_SCRATCH},
        {GRANULE / 2, WEIR_CLASS_WEIGHTS},
    };
    *s = (scene){.way = w};
    s->host = make_runtime(HOST_BUDGET);
    weir_runtime_options options = {
        .struct_size = sizeof options, .budget = BUDGET_GRANULES * GRANULE, .host = s->host};
    ok(wi_runtime_create_over(&scene_driver, 0, &options, &s->runtime));
    s->model = open_client(s->runtime, "model", w->guaranteed ? GUARANTEED : 0, 0);
    s->other = open_client(s->runtime, "other", 0, 0);
    ok(weir_stream_acquire(s->runtime, &s->stream));
    for (int i = 0; i < BLOCKS; i++) {
        held *b = &s->blocks[i];
        *b = (held){NULL, wanted[i].bytes, wanted[i].memory_class};
        b->start = allocate(s->model, b->bytes, i % 2 ? s->stream : WEIR_STREAM_HOST, b->memory_class);
        write_block(s->runtime, b->start, b->bytes, (uint64_t)i + 1);
        if (i == 1) /* in the chunk of small blocks */
            s->neighbour = allocate(s->other, 300, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    }
    write_block(s->runtime, s->neighbour, 300, 77);
    if (w->pages)
        add_pages(s);
}

static bool dropped(const scene *s, const held *b)
{
    return s->way->drop && b->memory_class == WEIR_CLASS_SCRATCH;
}

/* `back`: after a resume, so that what was dropped is zeros. */
static void contents_are_right(const scene *s, bool back)
{
    for (int i = 0; i < BLOCKS; i++) {
        const held *b = &s->blocks[i];
        if (back && dropped(s, b))
            block_holds_zeros(s->runtime, b->start, b->bytes);
        else
            block_holds(s->runtime, b->start, b->bytes, (uint64_t)i + 1);
    }
    block_holds(s->runtime, s->neighbour, 300, 77);
    for (size_t i = 0; s->elastic && i < PAGES; i++)
        if (i != 1)
            block_holds(s->runtime, page_of(s, i), GRANULE, 200 + i);
}

static weir_status try_suspend(const scene *s)
{
    const way *w = s->way;
    weir_suspend_options o = {.struct_size = sizeof o,
                              .drop = w->drop ? WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH) : 0,
                              .unwritten = w->unwritten ? WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS) : 0,
                              .verify = w->verify,
                              .show = w->show,
                              .folder = w->file ? "." : NULL};
    return weir_client_suspend(s->model, &o, NULL);
}

static weir_status try_resume(const scene *s)
{
    weir_resume_options one = {.struct_size = sizeof one, .most = 1};
    while (s->way->pieces) {
        weir_status status =
            weir_client_resume_some(s->model, &one, s->way->native ? s->stream : WEIR_STREAM_HOST, NULL);
        if (status != WEIR_OK || residency(s->model).state == WEIR_RESIDENT)
            return status;
    }
    return weir_client_resume(s->model, s->way->native ? s->stream : WEIR_STREAM_HOST);
}

static void end_scene(scene *s)
{
    if (s->way->native)
        ok(weir_stream_synchronize(s->stream));
    (void)weir_client_forget_copies(s->model);
    if (s->elastic)
        ok(weir_elastic_destroy(s->elastic, WEIR_STREAM_HOST));
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_free(s->model, s->blocks[i].start, WEIR_STREAM_HOST));
    ok(weir_free(s->other, s->neighbour, WEIR_STREAM_HOST));
    ok(weir_runtime_trim(s->runtime, NULL, NULL));
    check_empty(s->runtime);
    assert_int_equal(take_snapshot(s->runtime).device.held, 0);
    ok(weir_stream_release(s->stream));
    ok(weir_client_destroy(s->model));
    ok(weir_client_destroy(s->other));
    ok(weir_runtime_trim(s->host, NULL, NULL));
    check_empty(s->host);
    assert_int_equal(take_snapshot(s->host).device.held, 0);
    ok(weir_runtime_destroy(s->runtime));
    ok(weir_runtime_destroy(s->host));
    assert_true(faults_nothing_left());
}

/* Faults ----------------------------------------------------------------------------------------------------------- */

static unsigned failures, half_way; /* calls that failed; suspends that failed, and could not bring all back */
static long fails_at = -1, and_at = -1;
static bool for_good;
static long calls_made;

static void arm(void)
{
    fault.calls = 0;
    fault.stay = for_good;
    fault.and_at = and_at;
    fault.fail_at = fails_at;
    mallocs = 0;
    malloc_armed = true;
}

static void disarm(void)
{
    malloc_armed = false;
    fault.fail_at = fault.and_at = -1;
    fault.stay = false;
    calls_made = fault.calls;
}

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

/* Everybody else writes over all that he can get. */
static void others_use_the_memory(const scene *s)
{
    void *all;
    uint64_t room = BUDGET_GRANULES * GRANULE - take_snapshot(s->runtime).device.live;
    for (uint64_t bytes = room / GRANULE * GRANULE; bytes > 0; bytes -= GRANULE)
        if (weir_alloc(s->other, bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &all) == WEIR_OK) {
            ok(weir_fill(s->runtime, all, 0xee, bytes, WEIR_STREAM_HOST));
            ok(weir_free(s->other, all, WEIR_STREAM_HOST));
            return;
        }
    fail();
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

/* Blocks that are freed while they are away, with memory under them that a resume has left there ------------------- */

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
    scene_driver = faulty_driver;
    scene_driver.record = scene_record;
    scene_driver.stream_synchronize = scene_synchronize;
    scene_driver.copy = scene_copy;
    scene_driver.stream_create = scene_create;
    scene_driver.stream_destroy = scene_destroy;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_read_of_others_after_a_resume_that_failed),
        cmocka_unit_test(the_base_forgets_who_has_nothing_away),
        cmocka_unit_test(each_driver_call_fails_once),
        cmocka_unit_test(a_driver_that_fails_for_good),
        cmocka_unit_test(each_pair_of_driver_calls_fails),
        cmocka_unit_test(each_allocation_of_host_memory_fails),
        cmocka_unit_test(what_a_failed_resume_leaves_is_not_lost),
        cmocka_unit_test(what_is_freed_under_copies_waits_for_them),
        cmocka_unit_test(what_is_freed_after_a_suspend_is_read_first),
        cmocka_unit_test(what_copies_read_is_not_freed_without_a_point),
        cmocka_unit_test(nobody_is_closed_under_copies),
        cmocka_unit_test(on_a_lost_device_clients_are_closed),
        cmocka_unit_test(what_reads_a_file_stays_under_copies),
        cmocka_unit_test(a_device_with_less_than_its_budget),
        cmocka_unit_test(frees_without_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
