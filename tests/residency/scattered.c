/* Many small blocks with gaps between them, and pages of elastic blocks: they leave and come back in few calls of a driver
 * that copies many at once, and with one call for each of one that does not; with a failure at each call. */
#include "core/faulty.h"
#include "residency/residency.h"

#include "runtime/runtime.h"

enum {
    BLOCKS = 96,
    LARGE = 12 * 1024, /* three of them are a gap that is not copied, one of them is */
    KEPT = 5, /* of so many blocks the first is kept, and the second; of the next so many the first and the third */
    PAGES = 9,
    MANY_PAGES = 1041, /* every second one is there: more than go to the driver at once */
    PAGE_SEED = 1000
};

typedef struct scene {
    weir_runtime *runtime, *host;
    weir_client *model, *other;
    char *blocks[BLOCKS];
    size_t pages, room; /* granules */
    uint64_t kept;      /* bytes of blocks and pages */
    weir_elastic *elastic;
    bool file;
} scene;

static wi_driver tried;

/* What the driver was asked to copy since `counting_from`. */
static struct {
    size_t calls, copies, single;
    uint64_t bytes;
} seen;

static weir_status scattered_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    seen.single++;
    return faulty_driver.copy(device, to, from, bytes, stream);
}

static weir_status scattered_copy_many(wi_device *device, const weir_driver_copy *copies, size_t count, void *stream)
{
    seen.calls++;
    seen.copies += count;
    for (size_t i = 0; i < count; i++)
        seen.bytes += copies[i].bytes;
    return faulty_copy_many(device, copies, count, stream);
}

static void counting_from_here(void)
{
    memset(&seen, 0, sizeof seen);
}

/* Gaps of three blocks, and of one. */
static bool is_kept(size_t i)
{
    size_t at = i % (2 * KEPT);
    return at == 0 || at == 1 || at == KEPT || at == KEPT + 2;
}

static bool is_there(size_t page)
{
    return page % 2 == 0;
}

static char *page_at(const scene *s, size_t page)
{
    weir_elastic_stats stats = WEIR_INIT(weir_elastic_stats);
    ok(weir_elastic_info(s->elastic, &stats));
    return (char *)stats.base + page * GRANULE;
}

static void open_scene(scene *s, bool many, bool file, size_t pages)
{
    faults_reset(-1);
    tried = faulty_driver;
    tried.copy = scattered_copy;
    tried.copy_many = many ? scattered_copy_many : NULL;
    *s = (scene){.host = make_runtime(64 * MIB), .file = file, .pages = pages, .room = pages + 64};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = s->room * GRANULE, .host = s->host};
    ok(wi_runtime_create_over(&tried, 0, &options, &s->runtime));
    s->model = open_client(s->runtime, "model", 0, 0);
    s->other = open_client(s->runtime, "other", 0, 0);
    for (size_t i = 0; i < BLOCKS; i++)
        s->blocks[i] = allocate(s->model, LARGE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    for (size_t i = 0; i < BLOCKS; i++)
        if (is_kept(i)) {
            write_block(s->runtime, s->blocks[i], LARGE, i);
            s->kept += LARGE;
        } else {
            ok(weir_free(s->model, s->blocks[i], WEIR_STREAM_HOST));
            s->blocks[i] = NULL;
        }
    weir_elastic_options o = {
        .struct_size = sizeof o, .bytes = pages * GRANULE, .page = GRANULE, .memory_class = WEIR_CLASS_KV};
    ok(weir_elastic_create(s->model, &o, &s->elastic));
    for (size_t i = 0; i < s->pages; i++)
        if (is_there(i)) {
            ok(weir_elastic_commit(s->elastic, i * GRANULE, GRANULE, WEIR_STREAM_HOST));
            write_block(s->runtime, page_at(s, i), GRANULE, PAGE_SEED + i);
            s->kept += GRANULE;
        }
    counting_from_here();
}

static void contents_are_right(const scene *s)
{
    for (size_t i = 0; i < BLOCKS; i++)
        if (s->blocks[i])
            block_holds(s->runtime, s->blocks[i], LARGE, i);
    for (size_t i = 0; i < s->pages; i++)
        if (is_there(i))
            block_holds(s->runtime, page_at(s, i), GRANULE, PAGE_SEED + i);
}

static weir_status try_suspend(const scene *s, weir_residency *receipt)
{
    weir_suspend_options o = {.struct_size = sizeof o, .folder = s->file ? "." : NULL};
    return weir_client_suspend(s->model, &o, receipt);
}

/* Somebody else writes over what has left. */
static void others_use_the_memory(const scene *s)
{
    uint64_t bytes = (s->room - 32) * GRANULE;
    void *all = allocate(s->other, bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    ok(weir_fill(s->runtime, all, 0xee, bytes, WEIR_STREAM_HOST));
    ok(weir_free(s->other, all, WEIR_STREAM_HOST));
}

static void end_scene(scene *s)
{
    (void)weir_client_forget_copies(s->model);
    ok(weir_elastic_destroy(s->elastic, WEIR_STREAM_HOST));
    for (size_t i = 0; i < BLOCKS; i++)
        if (s->blocks[i])
            ok(weir_free(s->model, s->blocks[i], WEIR_STREAM_HOST));
    ok(weir_runtime_trim(s->runtime, NULL, NULL));
    check_empty(s->runtime);
    ok(weir_client_destroy(s->model));
    ok(weir_client_destroy(s->other));
    ok(weir_runtime_trim(s->host, NULL, NULL));
    check_empty(s->host);
    ok(weir_runtime_destroy(s->runtime));
    ok(weir_runtime_destroy(s->host));
    assert_true(faults_nothing_left());
}

/* Only what is kept moves, but for small gaps on the way out; and few calls move it. */
static void many_leave_and_come_in_few_calls(void **state)
{
    (void)state;
    scene s;
    weir_residency receipt = WEIR_INIT(weir_residency);
    open_scene(&s, true, false, PAGES);
    ok(try_suspend(&s, &receipt));
    uint64_t out = seen.bytes;
    size_t calls = seen.calls, copies = seen.copies;
    assert_int_equal(receipt.stayed, 0);
    assert_true(receipt.away >= s.kept);
    assert_true(out >= s.kept && out < receipt.copied); /* the gaps of three did not go */
    assert_true(out > s.kept);                          /* the gaps of one did */
    assert_int_equal(seen.single, 0);
    assert_true(calls + PAGES / 2 <= copies);
    others_use_the_memory(&s);
    counting_from_here();
    ok(weir_client_resume(s.model, WEIR_STREAM_HOST));
    assert_int_equal(seen.bytes, s.kept);
    assert_int_equal(seen.single, 0);
    assert_true(seen.copies > copies); /* the gaps of one are somebody's, by now */
    assert_true(seen.calls <= calls);
    contents_are_right(&s);
    end_scene(&s);
}

/* More than go to the driver at once. */
static void more_than_one_batch(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, true, false, MANY_PAGES);
    ok(try_suspend(&s, NULL));
    others_use_the_memory(&s);
    assert_int_equal(seen.single, 0);
    counting_from_here();
    ok(weir_client_resume(s.model, WEIR_STREAM_HOST));
    assert_int_equal(seen.bytes, s.kept);
    assert_int_equal(seen.single, 0);
    assert_true(seen.calls < seen.copies / 8);
    contents_are_right(&s);
    end_scene(&s);
}

/* The same contents from a driver without the function, and by a file. */
static void others_are_copied_singly(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        scene s;
        open_scene(&s, way % 2, way / 2, PAGES);
        ok(try_suspend(&s, NULL));
        others_use_the_memory(&s);
        assert_true(way > 0 || seen.calls == 0);
        ok(weir_client_resume(s.model, WEIR_STREAM_HOST));
        contents_are_right(&s);
        ok(try_suspend(&s, NULL)); /* over the first copies */
        others_use_the_memory(&s);
        ok(weir_client_resume(s.model, WEIR_STREAM_HOST));
        contents_are_right(&s);
        end_scene(&s);
    }
}

/* Lives through a suspend and a resume, of which one has call `nth` of the driver fail. False: it had no such call. */
static bool live(bool file, bool resume, long nth)
{
    scene s;
    open_scene(&s, true, file, PAGES);
    fault.status = WEIR_ERR_DRIVER;
    fault.calls = 0;
    fault.fail_at = resume ? -1 : nth;
    weir_status first = try_suspend(&s, NULL);
    bool failed = first != WEIR_OK;
    bool reached = resume || fault.calls > nth;
    fault.fail_at = -1;
    if (failed && residency(s.model).state == WEIR_RESIDENT) {
        contents_are_right(&s);
        ok(try_suspend(&s, NULL));
    }
    others_use_the_memory(&s);
    fault.calls = 0;
    fault.fail_at = resume ? nth : -1;
    weir_status second = weir_client_resume(s.model, WEIR_STREAM_HOST);
    reached = reached && (!resume || fault.calls > nth);
    fault.fail_at = -1;
    if (second != WEIR_OK) {
        assert_int_equal(residency(s.model).state, WEIR_SUSPENDED);
        others_use_the_memory(&s);
        ok(weir_client_resume(s.model, WEIR_STREAM_HOST));
    }
    contents_are_right(&s);
    end_scene(&s);
    return reached;
}

static void each_call_fails_once(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        long nth = 0;
        while (live(way % 2, way / 2, nth))
            nth++;
        assert_true(nth > 3);
    }
}

int main(void)
{
    const struct CMUnitTest scattered[] = {
        cmocka_unit_test(many_leave_and_come_in_few_calls),
        cmocka_unit_test(more_than_one_batch),
        cmocka_unit_test(others_are_copied_singly),
        cmocka_unit_test(each_call_fails_once),
    };
    return cmocka_run_group_tests(scattered, NULL, NULL);
}
