/* A client on the device of faulty.h with blocks in several ways, and pages, that is suspended and resumed: with calls of the driver,
 * or of malloc, that fail. */
#ifndef TESTS_RESIDENCY_SCENE_H
#define TESTS_RESIDENCY_SCENE_H

#include "core/faulty.h"

#define HEAP_REFUSES refuse_malloc()
#include "core/heap.h"
#include "residency/residency.h"

#include "runtime/residence.h"
#include "runtime/runtime.h"

#include <weir/elastic.h>

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

static inline weir_status scene_record(wi_device *device, void *stream, wi_event *out)
{
    if (stream && stream == copies_stream && (no_points || (points_fail > 0 && points_fail-- > 0)))
        return weir_fail(WEIR_ERR_DRIVER, "no point on the stream of copies");
    return faulty_driver.record(device, stream, out);
}

static inline weir_status scene_synchronize(wi_device *device, void *stream)
{
    if (stream && stream == copies_stream && points_fail == 0 && !holds_copies && waits_fail > 0 && waits_fail-- > 0)
        return weir_fail(waits_answer, "the stream of copies does not answer");
    return faulty_driver.stream_synchronize(device, stream);
}

static inline weir_status scene_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    if (stream && stream == copies_stream && holds_copies) {
        holds_copies = false;
        ok(wi_host_driver.call(device, pass_gate, &held_copies, stream));
    }
    return faulty_driver.copy(device, to, from, bytes, stream);
}

static bool next_is_of_copies; /* the next stream that is made */

static inline weir_status scene_create(wi_device *device, void **stream)
{
    weir_status status = faulty_driver.stream_create(device, stream);
    if (next_is_of_copies)
        copies_stream = *stream;
    next_is_of_copies = false;
    return status;
}

/* Its work is to be done by then; if it waits at the gate, the test would hang. */
static inline void scene_destroy(wi_device *device, void *stream)
{
    if (stream == copies_stream)
        open_gate(&held_copies);
    faulty_driver.stream_destroy(device, stream);
}

static inline char *page_of(const scene *s, size_t index)
{
    weir_elastic_stats stats = WEIR_INIT(weir_elastic_stats);
    ok(weir_elastic_info(s->elastic, &stats));
    assert_int_equal(stats.committed, (PAGES - 1) * GRANULE);
    return (char *)stats.base + index * GRANULE;
}

static inline void add_pages(scene *s)
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

static inline void open_scene(scene *s, const way *w)
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

static inline bool dropped(const scene *s, const held *b)
{
    return s->way->drop && b->memory_class == WEIR_CLASS_SCRATCH;
}

/* `back`: after a resume, so that what was dropped is zeros. */
static inline void contents_are_right(const scene *s, bool back)
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

static inline weir_status try_suspend(const scene *s)
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

static inline weir_status try_resume(const scene *s)
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

static inline void end_scene(scene *s)
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

/* Which calls fail, while they are armed. */
static long fails_at = -1, and_at = -1;
static bool for_good;
static long calls_made;

static inline void arm(void)
{
    fault.calls = 0;
    fault.stay = for_good;
    fault.and_at = and_at;
    fault.fail_at = fails_at;
    mallocs = 0;
    malloc_armed = true;
}

static inline void disarm(void)
{
    malloc_armed = false;
    fault.fail_at = fault.and_at = -1;
    fault.stay = false;
    calls_made = fault.calls;
}

/* Everybody else writes over all that he can get. */
static inline void others_use_the_memory(const scene *s)
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

static inline int prepare_scenes(void **state)
{
    (void)state;
    scene_driver = faulty_driver;
    scene_driver.record = scene_record;
    scene_driver.stream_synchronize = scene_synchronize;
    scene_driver.copy = scene_copy;
    scene_driver.stream_create = scene_create;
    scene_driver.stream_destroy = scene_destroy;
    return 0;
}

#endif
