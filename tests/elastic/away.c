/* Pages of elastic blocks that leave and come back with their client: a fault at every driver call of a suspend and of a resume, and
 * a launch that begins in the middle. The client has nothing but two or three elastic blocks, of two or three pages each: they leave
 * together or not at all, and so do they come. */
#include "core/faulty.h"
#include "elastic/elastic.h"

#include "runtime/elastic/elastic.h"
#include "runtime/runtime.h"

#include <weir/residency.h>

enum { ROOM = 16, MOST_BLOCKS = 3, MOST_PAGES = 3, HOST_BUDGET = 32 << 20, TAKEN = 0xee };

typedef struct layout {
    size_t blocks, pages; /* of each */
    bool gap;             /* the second page of three is not there, so that a block is two pieces */
    bool promised, file, native;
    bool drop; /* the first block's contents are not kept */
} layout;

static const layout layouts[] = {
    {.blocks = 2, .pages = 2},
    {.blocks = 2, .pages = 3, .gap = true, .native = true, .drop = true},
    {.blocks = 3, .pages = 2, .promised = true, .native = true},
    {.blocks = 3, .pages = 3, .file = true, .drop = true},
    {.blocks = 3, .pages = 3, .gap = true, .promised = true},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

typedef struct scene {
    const layout *shape;
    fixture f;
    weir_runtime *host;
    weir_elastic *blocks[MOST_BLOCKS];
    size_t highest; /* the block with the highest addresses, whose pages leave behind all others */
    uint64_t bytes; /* of all pages that are there */
} scene;

/* A launch that another thread begins when all is copied, and before anything is given back: just before the wait for the copies. It
 * writes to a page, as its work would. */
static scene *intruded; /* NULL: none begins */
static weir_launch *intruder;
static bool copied; /* since it was planned */

/* What else happens there, once, and so many waits for the stream of copies that fail from then on; at the same time copies may be
 * held up. */
static void (*meanwhile)(scene *s); /* NULL: nothing */
static scene *meanwhile_scene;
static int waits_fail;
static bool no_points;      /* on that stream */
static void *copies_stream; /* of the last copy that was queued */
static gate held_copies;
static bool holds_copies; /* the next copy that is queued waits at the gate */

static void write_to(const scene *s, size_t block, size_t page, uint8_t value)
{
    char *at = (char *)stats_of(s->blocks[block]).base + page * GRANULE;
    ok(wi_host_driver.fill(s->f.runtime->device, at, value, GRANULE, NULL));
}

static weir_status away_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    copied = true;
    copies_stream = stream ? stream : copies_stream;
    if (stream && holds_copies) {
        holds_copies = false;
        ok(wi_host_driver.call(device, pass_gate, &held_copies, stream));
    }
    return faulty_driver.copy(device, to, from, bytes, stream);
}

static void do_meanwhile(void)
{
    void (*what)(scene * s) = meanwhile;
    meanwhile = NULL;
    if (what)
        what(meanwhile_scene);
}

static int order_count; /* how often a stream was put behind another's point */

static weir_status away_record(wi_device *device, void *stream, wi_event *out)
{
    if (stream && stream == copies_stream && no_points)
        return weir_fail(WEIR_ERR_DRIVER, "no point on the stream of copies");
    return faulty_driver.record(device, stream, out);
}

static weir_status away_order(wi_device *device, void *stream, wi_event event)
{
    order_count++;
    if (copied)
        do_meanwhile();
    return faulty_driver.order(device, stream, event);
}

static weir_status away_synchronize(wi_device *device, void *stream)
{
    scene *s = intruded;
    long fail_at = fault.fail_at;
    if (s && copied) {
        size_t last = s->shape->pages - 1;
        char *base = stats_of(s->blocks[s->highest]).base;
        weir_use use = {{.pointer = base + last * GRANULE}, WEIR_ACCESS_WRITE};
        intruded = NULL;
        fault.fail_at = -1;
        ok(wi_host_driver.stream_synchronize(device, stream)); /* what it writes is not what is being copied */
        ok(weir_launch_begin(s->f.runtime, s->f.stream, &use, 1, &intruder));
        write_to(s, s->highest, last, 99);
        fault.fail_at = fail_at;
    }
    if (copied && stream == copies_stream)
        do_meanwhile();
    if (!meanwhile && stream == copies_stream && waits_fail > 0 && waits_fail-- > 0)
        return weir_fail(WEIR_ERR_DRIVER, "the stream of copies does not answer");
    return faulty_driver.stream_synchronize(device, stream);
}

/* A suspend, or a resume, after a release has waited for those that had begun and has acquired its pages: before it forgets those that
 * are away, or after. */
static const scene *moved_late; /* NULL: none */
static bool moved_before, moved_back;
bool __real_wi_residency_forget(weir_client *client, const char *low, const char *high, uint64_t moves);
bool __wrap_wi_residency_forget(weir_client *client, const char *low, const char *high, uint64_t moves);
static weir_status try_suspend(const scene *s);
static weir_status try_resume(const scene *s);
bool __wrap_wi_residency_forget(weir_client *client, const char *low, const char *high, uint64_t moves)
{
    const scene *s = moved_late;
    moved_late = NULL;
    if (s && moved_before)
        ok(moved_back ? try_resume(s) : try_suspend(s));
    bool same = __real_wi_residency_forget(client, low, high, moves);
    assert_true(same || (s && moved_before));
    if (s && !moved_before)
        ok(try_suspend(s));
    return same;
}

static wi_driver tried;

static bool is_there(const layout *shape, size_t page)
{
    return !shape->gap || page != 1;
}

static uint8_t value_of(size_t block, size_t page)
{
    return (uint8_t)(10 * (block + 1) + page);
}

static void write_all(scene *s)
{
    for (size_t i = 0; i < s->shape->blocks; i++)
        for (size_t k = 0; k < s->shape->pages; k++)
            if (is_there(s->shape, k))
                write_to(s, i, k, value_of(i, k));
}

static void open_scene(scene *s, const layout *shape)
{
    faults_reset(-1);
    *s = (scene){.shape = shape, .f = {.page = GRANULE, .bytes = malloc(GRANULE)}, .host = make_runtime(HOST_BUDGET)};
    weir_runtime_options o = {.struct_size = sizeof o, .budget = ROOM * GRANULE, .host = s->host};
    ok(wi_runtime_create_over(&tried, 0, &o, &s->f.runtime));
    s->f.client = open_client(s->f.runtime, "model", 0, 0);
    s->f.other = open_client(s->f.runtime, "other", 0, 0);
    ok(weir_stream_acquire(s->f.runtime, &s->f.stream));
    for (size_t i = 0; i < shape->blocks; i++) {
        weir_elastic_options e = {.struct_size = sizeof e,
                                  .bytes = shape->pages * GRANULE,
                                  .page = GRANULE,
                                  .tag = "cache",
                                  .promised = shape->promised,
                                  .memory_class = i == 0 ? WEIR_CLASS_SCRATCH : WEIR_CLASS_KV};
        ok(weir_elastic_create(s->f.client, &e, &s->blocks[i]));
        for (size_t k = 0; k < shape->pages; k++)
            if (is_there(shape, k)) {
                commit(&s->f, s->blocks[i], k, 1);
                s->bytes += GRANULE;
            }
        if ((char *)stats_of(s->blocks[i]).base > (char *)stats_of(s->blocks[s->highest]).base)
            s->highest = i;
    }
    write_all(s);
}

static void end_scene(scene *s)
{
    ok(weir_stream_synchronize(s->f.stream));
    (void)weir_client_forget_copies(s->f.client);
    for (size_t i = 0; i < s->shape->blocks; i++)
        ok(weir_elastic_destroy(s->blocks[i], WEIR_STREAM_HOST));
    ok(weir_runtime_trim(s->f.runtime, NULL, NULL));
    check_empty(s->f.runtime);
    assert_int_equal(take_snapshot(s->f.runtime).device.held, 0);
    ok(weir_stream_release(s->f.stream));
    ok(weir_client_destroy(s->f.client));
    ok(weir_client_destroy(s->f.other));
    check_empty(s->host);
    ok(weir_runtime_destroy(s->f.runtime));
    ok(weir_runtime_destroy(s->host));
    assert_true(faults_nothing_left());
    free(s->f.bytes);
}

static weir_status try_suspend(const scene *s)
{
    weir_suspend_options o = {.struct_size = sizeof o,
                              .drop = s->shape->drop ? WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH) : 0,
                              .folder = s->shape->file ? "." : NULL};
    return weir_client_suspend(s->f.client, &o, NULL);
}

static weir_status try_resume(const scene *s)
{
    return weir_client_resume(s->f.client, s->shape->native ? s->f.stream : WEIR_STREAM_HOST);
}

static weir_residency residency(const scene *s)
{
    weir_residency r = WEIR_INIT(weir_residency);
    ok(weir_client_residency(s->f.client, &r));
    return r;
}

/* `changed`: the launch has written to the last page of all. `back`: after a resume, so that what was dropped is zeros. */
static void contents_are_right(scene *s, bool back, bool changed)
{
    for (size_t i = 0; i < s->shape->blocks; i++)
        for (size_t k = 0; k < s->shape->pages; k++) {
            bool by_launch = changed && i == s->highest && k == s->shape->pages - 1;
            bool zeros = back && s->shape->drop && i == 0;
            if (is_there(s->shape, k))
                page_holds(&s->f, s->blocks[i], k, zeros ? 0 : by_launch ? 99 : value_of(i, k));
        }
}

/* All pages are there, or none is. */
static void pages_are_there(const scene *s, bool there)
{
    uint64_t promised = 0;
    for (size_t i = 0; i < s->shape->blocks; i++) {
        size_t count = there ? s->shape->pages - s->shape->gap : 0;
        assert_int_equal(stats_of(s->blocks[i]).committed, count * GRANULE);
        promised += s->shape->promised ? (s->shape->pages - count) * GRANULE : 0;
        if (s->shape->promised)
            assert_int_equal(stats_of(s->blocks[i]).promised, (s->shape->pages - count) * GRANULE);
    }
    snapshot now = take_snapshot(s->f.runtime);
    check_sums(&now);
    assert_int_equal(now.device.live, there ? s->bytes : 0);
    assert_int_equal(now.device.away, there ? 0 : s->bytes);
    assert_int_equal(now.device.pending, 0);
    assert_int_equal(now.device.promised, promised);
    assert_int_equal(now.device.held, there ? s->bytes : 0);
}

/* The other client writes over all that it can get. */
static void others_use_the_memory(const scene *s)
{
    snapshot now = take_snapshot(s->f.runtime);
    uint64_t bytes = ROOM * GRANULE - now.device.live - now.device.pending - now.device.promised;
    void *all = allocate(s->f.other, bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    ok(weir_fill(s->f.runtime, all, TAKEN, bytes, WEIR_STREAM_HOST));
    ok(weir_free(s->f.other, all, WEIR_STREAM_HOST));
    ok(weir_runtime_trim(s->f.runtime, NULL, NULL));
}

/* Faults ----------------------------------------------------------------------------------------------------------- */

static long fails_at = -1, calls_made;
static bool for_good;
static unsigned failures;

static void arm(void)
{
    fault.calls = 0;
    fault.stay = for_good;
    fault.fail_at = fails_at;
}

static void disarm(void)
{
    fault.fail_at = -1;
    fault.stay = false;
    calls_made = fault.calls;
}

/* Where pages cannot be given back, memory is missing for others. */
static void failed_as_planned(weir_status status)
{
    failures++;
    assert_true(status == fault.status || status == WEIR_ERR_OUT_OF_MEMORY || (for_good && status == WEIR_ERR_BUSY));
    assert_true(weir_detail()[0] != '\0');
}

/* The first try meets the faults: then it has left, or nothing has changed. */
static void suspend_with_faults(scene *s)
{
    uint64_t stored = take_snapshot(s->host).device.live;
    arm();
    weir_status status = try_suspend(s);
    disarm();
    if (status != WEIR_OK) {
        failed_as_planned(status);
        assert_int_equal(residency(s).state, WEIR_RESIDENT);
        pages_are_there(s, true);
        contents_are_right(s, false, false);
        if (!for_good) /* else the driver does not say whether the copies are done */
            assert_int_equal(take_snapshot(s->host).device.live, stored);
        ok(try_suspend(s));
    }
    assert_int_equal(residency(s).state, WEIR_SUSPENDED);
    ok(weir_runtime_trim(s->f.runtime, NULL, NULL)); /* what the driver did not take back */
    pages_are_there(s, false);
}

/* The first try meets the faults: then all is back, or still away. */
static void resume_with_faults(scene *s)
{
    others_use_the_memory(s);
    arm();
    weir_status status = try_resume(s);
    disarm();
    if (status != WEIR_OK) {
        failed_as_planned(status);
        assert_int_equal(residency(s).state, WEIR_SUSPENDED);
        ok(weir_runtime_trim(s->f.runtime, NULL, NULL));
        snapshot now = take_snapshot(s->f.runtime);
        check_sums(&now);
        assert_int_equal(now.device.away, s->bytes);
        if (!for_good) { /* else what has come stays there, as copies may be under way */
            pages_are_there(s, false);
            others_use_the_memory(s);
        }
        ok(try_resume(s));
    }
    ok(weir_stream_synchronize(s->f.stream));
    assert_int_equal(residency(s).state, WEIR_RESIDENT);
    pages_are_there(s, true);
    contents_are_right(s, true, false);
}

static void live(const layout *shape, bool faulty_resume)
{
    scene s;
    weir_status status = fault.status;
    open_scene(&s, shape);
    fault.status = status;
    if (!faulty_resume) {
        suspend_with_faults(&s);
        others_use_the_memory(&s);
        ok(try_resume(&s));
        ok(weir_stream_synchronize(s.f.stream));
        pages_are_there(&s, true);
        contents_are_right(&s, true, false);
    } else {
        ok(try_suspend(&s));
        resume_with_faults(&s);
    }
    end_scene(&s);
}

/* Every call from the first one on, as long as there are so many. */
static void at_each_call(const layout *shape, bool faulty_resume)
{
    fails_at = -1;
    live(shape, faulty_resume);
    long there = calls_made;
    failures = 0;
    for (fails_at = 0; fails_at < there + 2; fails_at++)
        live(shape, faulty_resume);
    fails_at = -1;
    assert_true(failures > 2);
}

static void with_each_driver(void (*fn)(const layout *shape))
{
    static const weir_status with[] = {WEIR_ERR_DRIVER, WEIR_ERR_OUT_OF_MEMORY};
    for (int kind = 0; kind < 4; kind++)
        for (int i = 0; i < LAYOUTS; i++) {
            tried = kind < 2 ? faulty_driver : faulty_driver_that_drops();
            tried.copy = away_copy;
            tried.stream_synchronize = away_synchronize;
            tried.order = away_order;
            fault.status = with[kind % 2];
            fn(&layouts[i]);
        }
}

static void fail_both(const layout *shape)
{
    at_each_call(shape, false);
    at_each_call(shape, true);
}

static void each_driver_call_fails_once(void **state)
{
    (void)state;
    with_each_driver(fail_both);
}

/* From one call on all fail, until the call of weir's returns. */
static void a_driver_that_fails_for_good(void **state)
{
    (void)state;
    for_good = true;
    with_each_driver(fail_both);
    for_good = false;
}

/* A launch in the middle ------------------------------------------------------------------------------------------- */

/* The page that it uses stays, and so do all: the others were not given back before it was found, whatever fails besides. */
static void suspend_with_a_launch(const layout *shape)
{
    scene s;
    weir_status status = fault.status;
    open_scene(&s, shape);
    fault.status = status;
    copied = false;
    intruder = NULL;
    intruded = &s;
    arm();
    status = try_suspend(&s);
    disarm();
    intruded = NULL;
    bool began = intruder != NULL;
    if (began) {
        assert_true(status == WEIR_ERR_BUSY || (fails_at >= 0 && status == fault.status));
        pages_are_there(&s, true);
        contents_are_right(&s, false, true);
        fails(WEIR_ERR_BUSY, weir_elastic_destroy(s.blocks[s.highest], WEIR_STREAM_HOST));
        weir_launch_abort(intruder);
    } else {
        failed_as_planned(status);
    }
    assert_int_equal(residency(&s).state, WEIR_RESIDENT);
    contents_are_right(&s, false, began);
    ok(try_suspend(&s));
    pages_are_there(&s, false);
    others_use_the_memory(&s);
    ok(try_resume(&s));
    ok(weir_stream_synchronize(s.f.stream));
    pages_are_there(&s, true);
    contents_are_right(&s, true, began);
    end_scene(&s);
}

static void launch_at_each_call(const layout *shape)
{
    fails_at = -1;
    suspend_with_a_launch(shape);
    long there = calls_made;
    for (fails_at = 0; fails_at < there + 2; fails_at++)
        suspend_with_a_launch(shape);
    fails_at = -1;
}

static void a_launch_that_begins_in_the_middle_keeps_all(void **state)
{
    (void)state;
    with_each_driver(launch_at_each_call);
}

/* Uses that end in the middle -------------------------------------------------------------------------------------- */

static gate work; /* holds up work of a launch */
static weir_stream worker;
static weir_launch *writer;

static weir_launch *begin_use(const scene *s, weir_access access)
{
    weir_launch *launch;
    weir_use use = {{.pointer = page_at(&(fixture){.page = GRANULE}, s->blocks[0], 0)}, access};
    ok(weir_launch_begin(s->f.runtime, worker, &use, 1, &launch));
    return launch;
}

static void read_behind_the_gate(scene *s)
{
    ok(weir_call(s->f.runtime, pass_gate, &work, worker));
    ok(weir_launch_end(begin_use(s, WEIR_ACCESS_READ)));
}

static void begin_to_write(scene *s)
{
    writer = begin_use(s, WEIR_ACCESS_WRITE);
}

static void open_plain(scene *s, const layout *shape)
{
    tried = faulty_driver;
    tried.copy = away_copy;
    tried.stream_synchronize = away_synchronize;
    tried.order = away_order;
    tried.record = away_record;
    fault.status = WEIR_ERR_DRIVER;
    open_scene(s, shape);
}

static void open_meanwhile(scene *s, const layout *shape, void (*what)(scene *s))
{
    open_plain(s, shape);
    ok(weir_stream_acquire(s->f.runtime, &worker));
    work = held_copies = (gate)GATE;
    meanwhile_scene = s;
    meanwhile = what;
    copied = false;
}

static void close_meanwhile(scene *s)
{
    copies_stream = NULL;
    ok(weir_stream_release(worker));
    end_scene(s);
}

/* The first page is given back when the gate opens, and no sooner. */
static void goes_behind(scene *s, gate *g, weir_stream stream)
{
    release(&s->f, s->blocks[0], 0, 1, WEIR_STREAM_HOST);
    ok(weir_runtime_trim(s->f.runtime, NULL, NULL));
    pages_are(&s->f, s->blocks[0], 1, 1);
    open_gate(g);
    if (stream.id)
        ok(weir_stream_synchronize(stream));
    else
        ok(wi_host_driver.stream_synchronize(s->f.runtime->device, copies_stream));
    ok(weir_runtime_trim(s->f.runtime, NULL, NULL));
    pages_are(&s->f, s->blocks[0], 1, 0);
}

/* A suspend fails while nobody says whether its copies are done: they do not take the place of a read that was declared since the
 * pages were listed. */
static void a_read_while_a_suspend_fails(void **state)
{
    (void)state;
    scene s;
    open_meanwhile(&s, &layouts[0], read_behind_the_gate);
    waits_fail = 3;
    fails(WEIR_ERR_DRIVER, try_suspend(&s));
    assert_int_equal(waits_fail, 0);
    ok(wi_host_driver.stream_synchronize(s.f.runtime->device, copies_stream));
    goes_behind(&s, &work, worker);
    close_meanwhile(&s);
}

/* Nor does a write that ends later take theirs. */
static void a_write_around_a_suspend_that_fails(void **state)
{
    (void)state;
    scene s;
    open_meanwhile(&s, &layouts[0], begin_to_write);
    holds_copies = true;
    waits_fail = 3;
    fails(WEIR_ERR_DRIVER, try_suspend(&s));
    assert_int_equal(waits_fail, 0);
    ok(weir_launch_end(writer));
    ok(weir_stream_synchronize(worker));
    goes_behind(&s, &held_copies, WEIR_STREAM_HOST);
    close_meanwhile(&s);
}

/* A page that has come back is read on another stream before its contents are noted as on their way. */
static void a_read_while_a_resume_ends(void **state)
{
    (void)state;
    scene s;
    open_meanwhile(&s, &layouts[2], NULL);
    ok(try_suspend(&s));
    meanwhile = read_behind_the_gate;
    ok(try_resume(&s));
    assert_null(meanwhile);
    ok(weir_stream_synchronize(s.f.stream));
    goes_behind(&s, &work, worker);
    close_meanwhile(&s);
}

/* Copies that are under way, and of which there is neither word nor point, hold what they read: it is not given back before they are
 * known to be done. */
static void copies_without_a_point_hold_their_pages(void **state)
{
    (void)state;
    scene s;
    open_meanwhile(&s, &layouts[0], NULL);
    holds_copies = no_points = true;
    waits_fail = 3 + 2;
    fails(WEIR_ERR_DRIVER, try_suspend(&s));
    fails(WEIR_ERR_BUSY, weir_elastic_release(s.blocks[0], 0, GRANULE, WEIR_STREAM_HOST));
    detail_names("copies");
    fails(WEIR_ERR_BUSY, weir_elastic_destroy(s.blocks[0], WEIR_STREAM_HOST));
    assert_int_equal(waits_fail, 0);
    pages_are(&s.f, s.blocks[0], 2, 0);
    fails(WEIR_ERR_BUSY, weir_client_destroy(s.f.client));
    open_gate(&held_copies);
    release(&s.f, s.blocks[0], 0, 1, WEIR_STREAM_HOST);
    pages_are(&s.f, s.blocks[0], 1, 0);
    page_holds(&s.f, s.blocks[0], 1, value_of(0, 1));
    no_points = false;
    close_meanwhile(&s);
}

/* Of single pages -------------------------------------------------------------------------------------------------- */

/* The block that is being ended has nothing to do with a suspend that begins then. */
static void a_block_that_ends_does_not_leave(void **state)
{
    (void)state;
    for (int before = 0; before < 2; before++) {
        scene s;
        open_plain(&s, &layouts[0]);
        moved_before = before;
        moved_back = false;
        moved_late = &s;
        ok(weir_elastic_destroy(s.blocks[0], WEIR_STREAM_HOST));
        s.blocks[0] = NULL;
        assert_int_equal(residency(&s).state, WEIR_SUSPENDED);
        assert_int_equal(take_snapshot(s.f.runtime).device.away, 2 * GRANULE); /* the other's */
        ok(try_resume(&s));
        for (size_t k = 0; k < 2; k++)
            page_holds(&s.f, s.blocks[1], k, value_of(1, k));
        assert_int_equal(take_snapshot(s.f.runtime).device.live, 2 * GRANULE);
        end_scene(&s);
    }
}

/* Pages that a release finds away may come back before it forgets them, and others may leave. */
static void a_release_gives_back_what_comes_or_leaves_meanwhile(void **state)
{
    (void)state;
    for (int back = 0; back < 2; back++) {
        scene s;
        open_plain(&s, &layouts[0]);
        if (back)
            ok(try_suspend(&s));
        moved_before = true;
        moved_back = back;
        moved_late = &s;
        release(&s.f, s.blocks[0], 1, 1, WEIR_STREAM_HOST);
        if (!back)
            ok(try_resume(&s));
        ok(weir_stream_synchronize(s.f.stream));
        pages_are(&s.f, s.blocks[0], 1, 0);
        pages_are(&s.f, s.blocks[1], 2, 0);
        page_holds(&s.f, s.blocks[0], 0, value_of(0, 0));
        page_holds(&s.f, s.blocks[0], 1, 0);
        end_scene(&s);
    }
}

/* What is away is forgotten by a release that works, and by no other. */
static void a_release_that_fails_forgets_nothing(void **state)
{
    (void)state;
    scene s;
    open_plain(&s, &layouts[0]);
    ok(try_suspend(&s));
    const weir_stream none = {.id = UINT64_MAX / 2};
    fails(WEIR_ERR_STREAM_MISUSE, weir_elastic_release(s.blocks[0], 0, GRANULE, none));
    fails(WEIR_ERR_STREAM_MISUSE, weir_elastic_destroy(s.blocks[1], none));
    assert_int_equal(take_snapshot(s.f.runtime).device.away, s.bytes);
    ok(try_resume(&s));
    ok(weir_stream_synchronize(s.f.stream));
    contents_are_right(&s, true, false);
    end_scene(&s);
}

/* What uses a page on another stream comes behind its contents, whichever page of the piece it is. */
static void each_page_that_comes_back_is_written_to_until_it_is_there(void **state)
{
    static const layout shape = {.blocks = 2, .pages = 3, .native = true};
    (void)state;
    scene s;
    gate g = GATE;
    weir_stream other;
    open_plain(&s, &shape);
    ok(weir_stream_acquire(s.f.runtime, &other));
    ok(try_suspend(&s));
    ok(weir_call(s.f.runtime, pass_gate, &g, s.f.stream));
    ok(try_resume(&s));
    for (size_t i = 0; i < shape.blocks; i++)
        for (size_t k = 0; k < shape.pages; k++) {
            weir_use use = {{.pointer = page_at(&s.f, s.blocks[i], k)}, WEIR_ACCESS_READ};
            weir_launch *launch;
            order_count = 0;
            ok(weir_launch_begin(s.f.runtime, other, &use, 1, &launch));
            assert_int_equal(order_count, 1);
            weir_launch_abort(launch);
        }
    open_gate(&g);
    ok(weir_stream_synchronize(s.f.stream));
    contents_are_right(&s, true, false);
    ok(weir_stream_release(other));
    end_scene(&s);
}

/* Pages that are given back while they are away come back as zeros, and nothing is written there meanwhile: those at the beginning, in
 * the middle and at the end of a piece. */
static void pages_that_were_given_back_while_away_stay_unused(void **state)
{
    static const layout shapes[] = {{.blocks = 2, .pages = 3},
                                    {.blocks = 2, .pages = 3, .file = true},
                                    {.blocks = 2, .pages = 3, .native = true, .promised = true}};
    (void)state;
    for (size_t way = 0; way < sizeof shapes / sizeof shapes[0]; way++)
        for (size_t gone = 0; gone < MOST_PAGES; gone++)
            for (size_t block = 0; block < 2; block++) {
                scene s;
                open_plain(&s, &shapes[way]);
                ok(try_suspend(&s));
                release(&s.f, s.blocks[block], gone, 1, WEIR_STREAM_HOST);
                assert_int_equal(take_snapshot(s.f.runtime).device.away, s.bytes - GRANULE);
                others_use_the_memory(&s);
                ok(try_resume(&s));
                ok(weir_stream_synchronize(s.f.stream));
                for (size_t i = 0; i < 2; i++) {
                    ok(weir_elastic_check(s.blocks[i]));
                    assert_int_equal(stats_of(s.blocks[i]).committed, (i == block ? 2 : 3) * GRANULE);
                    for (size_t k = 0; k < MOST_PAGES; k++)
                        page_holds(&s.f, s.blocks[i], k, i == block && k == gone ? 0 : value_of(i, k));
                }
                end_scene(&s);
            }
}

static void no_point(wi_event event, void *user)
{
    (void)event, (void)user;
}

/* Whichever block was made first. */
static void pieces_are_in_the_order_of_addresses(void **state)
{
    static const layout shape = {.blocks = 3, .pages = 3, .gap = true};
    scene s;
    wi_away pages = {0};
    (void)state;
    open_plain(&s, &shape);
    ok(wi_elastic_away_list(s.f.client, &pages, no_point, NULL));
    assert_int_equal(pages.piece_count, 3 * 2);
    assert_int_equal(pages.bytes, s.bytes);
    for (size_t i = 1; i < pages.piece_count; i++)
        assert_true(pages.pieces[i - 1].high <= pages.pieces[i].low);
    wi_away_clear(&pages);
    end_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_driver_call_fails_once),
        cmocka_unit_test(a_driver_that_fails_for_good),
        cmocka_unit_test(a_launch_that_begins_in_the_middle_keeps_all),
        cmocka_unit_test(a_block_that_ends_does_not_leave),
        cmocka_unit_test(a_release_gives_back_what_comes_or_leaves_meanwhile),
        cmocka_unit_test(a_release_that_fails_forgets_nothing),
        cmocka_unit_test(each_page_that_comes_back_is_written_to_until_it_is_there),
        cmocka_unit_test(pages_that_were_given_back_while_away_stay_unused),
        cmocka_unit_test(pieces_are_in_the_order_of_addresses),
        cmocka_unit_test(a_read_while_a_suspend_fails),
        cmocka_unit_test(a_write_around_a_suspend_that_fails),
        cmocka_unit_test(a_read_while_a_resume_ends),
        cmocka_unit_test(copies_without_a_point_hold_their_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
