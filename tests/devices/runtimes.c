/* Runtimes of two CUDA devices at once: whose the memory is, whose the streams are, and that nothing of one touches the other. */
#include "info.h"
#include "devices/two.h"
#include <weir/block_pool.h>
#include "trim.h"

#include "core/core.h"

enum { BUDGET = 64 * 1024 * 1024, BLOCK = 4 * 1024 * 1024 };

typedef struct side {
    weir_runtime *runtime;
    weir_client *a, *b;
    weir_stream stream;
} side;

static side sides[TWO];

static void begin_with(const char *resource)
{
    for (int i = 0; i < TWO; i++) {
        side *s = &sides[i];
        weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = resource};
        ok(weir_runtime_create(two_name(i), &options, &s->runtime));
        s->a = open_client(s->runtime, i ? "anna-1" : "anna-0", 0, 0);
        s->b = open_client(s->runtime, i ? "bert-1" : "bert-0", 0, 0);
        ok(weir_stream_acquire(s->runtime, &s->stream));
    }
}

static int begin(void **state)
{
    (void)state;
    begin_with(NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (int i = 0; i < TWO; i++) {
        side *s = &sides[i];
        ok(weir_stream_release(s->stream));
        ok(weir_client_destroy(s->a));
        ok(weir_client_destroy(s->b));
        check_empty(s->runtime);
        ok(weir_runtime_destroy(s->runtime));
        static const char *const things[] = {"handles", "mappings", "streams", "allocations", "pools", "used"};
        for (size_t k = 0; two_stub_count && k < sizeof things / sizeof *things; k++)
            assert_int_equal(two_count(things[k], i), 0);
    }
    return 0;
}

static weir_memory_stats memory_of(const side *s)
{
    weir_memory_stats stats = WEIR_INIT(weir_memory_stats);
    ok(weir_memory_stats_info(s->runtime, &stats));
    return stats;
}

/* Whose it is ------------------------------------------------------------------------------------------------------- */

static void each_has_its_device(void **state)
{
    (void)state;
    for (int i = 0; i < TWO; i++) {
        CUcontext primary = NULL;
        assert_int_equal(runtime_details(sides[i].runtime).ordinal, i);
        assert_string_equal(runtime_details(sides[i].runtime).device, two_name(i));
        assert_int_equal(driver.cuDevicePrimaryCtxRetain(&primary, i), CUDA_SUCCESS);
        assert_ptr_equal(runtime_details(sides[i].runtime).native, primary);
        assert_int_equal(driver.cuDevicePrimaryCtxRelease(i), CUDA_SUCCESS);
        CUcontext of_stream = NULL;
        assert_int_equal(driver.cuCtxPushCurrent(primary), CUDA_SUCCESS);
        assert_int_equal(driver.cuStreamGetCtx(weir_stream_native(sides[i].stream), &of_stream), CUDA_SUCCESS);
        assert_int_equal(driver.cuCtxPopCurrent(&primary), CUDA_SUCCESS);
        assert_ptr_equal(of_stream, runtime_details(sides[i].runtime).native);
    }
}

/* Of every kind and way of asking, on the device's memory, in its own ledger alone. */
static void blocks_lie_on_their_device(void **state)
{
    (void)state;
    static const weir_class classes[] = {WEIR_CLASS_WEIGHTS, WEIR_CLASS_ACTIVATIONS, WEIR_CLASS_SCRATCH};
    static const size_t sizes[] = {100, 70000, 3 << 20};
    for (int i = 0; i < TWO; i++) {
        side *s = &sides[i], *other = &sides[!i];
        for (int k = 0; k < 9; k++) {
            uint64_t elsewhere = take_snapshot(other->runtime).device.live;
            uint64_t used = two_count("used", !i);
            weir_block_details details = WEIR_INIT(weir_block_details);
            weir_stream stream = k % 2 ? s->stream : WEIR_STREAM_HOST;
            char *p = allocate(s->a, sizes[k % 3], stream, classes[k / 3]);
            assert_int_equal(two_where(p), i);
            assert_int_equal(two_where(p + sizes[k % 3] - 1), i);
            ok(weir_block_info(p, &details));
            assert_ptr_equal(details.client, s->a);
            assert_true(take_snapshot(s->runtime).device.live >= sizes[k % 3]);
            assert_int_equal(take_snapshot(other->runtime).device.live, elsewhere);
            assert_int_equal(two_count("used", !i), used);
            ok(weir_fill(s->runtime, p, (uint8_t)(k + 1), sizes[k % 3], s->stream));
            ok(weir_stream_synchronize(s->stream));
            fails(WEIR_ERR_FOREIGN, weir_free(other->a, p, WEIR_STREAM_HOST));
            ok(weir_free(s->a, p, stream));
        }
    }
}

static void pinned_memory_is_of_the_device_that_asks(void **state)
{
    (void)state;
    weir_block blocks[TWO];
    for (int i = 0; i < TWO; i++) {
        weir_request request = {.struct_size = sizeof request,
                                .bytes = 5000,
                                .memory_class = WEIR_CLASS_SCRATCH,
                                .stream = WEIR_STREAM_HOST,
                                .kind = WEIR_KIND_PINNED};
        ok(weir_alloc_with(sides[i].a, &request, &blocks[i]));
        assert_int_equal(two_where(blocks[i].pointer), i);
        memset(blocks[i].pointer, i + 1, 5000);
        char *there = allocate(sides[i].a, 5000, sides[i].stream, WEIR_CLASS_OTHER), back[5000];
        ok(weir_copy(sides[i].runtime, there, blocks[i].pointer, 5000, sides[i].stream));
        ok(weir_copy(sides[i].runtime, back, there, 5000, sides[i].stream));
        ok(weir_stream_synchronize(sides[i].stream));
        for (int k = 0; k < 5000; k++)
            assert_int_equal(back[k], i + 1);
        ok(weir_free(sides[i].a, there, sides[i].stream));
    }
    for (int i = 0; i < TWO; i++)
        ok(weir_free(sides[i].a, blocks[i].pointer, sides[i].stream));
}

static void each_has_its_budget(void **state)
{
    (void)state;
    void *all = allocate(sides[0].a, BUDGET, sides[0].stream, WEIR_CLASS_ACTIVATIONS), *too_much;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(sides[0].b, BLOCK, sides[0].stream, WEIR_CLASS_ACTIVATIONS, &too_much));
    detail_names("cuda:0");
    void *there = allocate(sides[1].a, BUDGET, sides[1].stream, WEIR_CLASS_ACTIVATIONS);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(sides[1].b, BLOCK, sides[1].stream, WEIR_CLASS_ACTIVATIONS, &too_much));
    detail_names("cuda:1");
    ok(weir_free(sides[0].a, all, sides[0].stream));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(sides[1].b, BLOCK, sides[1].stream, WEIR_CLASS_ACTIVATIONS, &too_much));
    all = allocate(sides[0].b, BLOCK, sides[0].stream, WEIR_CLASS_ACTIVATIONS);
    ok(weir_free(sides[0].b, all, sides[0].stream));
    ok(weir_free(sides[1].a, there, sides[1].stream));
}

/* Streams ------------------------------------------------------------------------------------------------------------ */

static void streams_of_the_other_are_refused(void **state)
{
    (void)state;
    for (int i = 0; i < TWO; i++) {
        side *s = &sides[i], *other = &sides[!i];
        weir_stream wrong = other->stream, registered;
        weir_launch *launch;
        weir_capture_pool *graph;
        weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .stream = wrong};
        weir_block block;
        void *p = allocate(s->a, BLOCK, s->stream, WEIR_CLASS_ACTIVATIONS), *q;
        weir_use use = {.block = {.pointer = p}, .access = WEIR_ACCESS_READ};
        snapshot before[TWO] = {take_snapshot(sides[0].runtime), take_snapshot(sides[1].runtime)};
        fails(WEIR_ERR_STREAM_MISUSE, weir_alloc(s->a, BLOCK, wrong, WEIR_CLASS_ACTIVATIONS, &q));
        fails(WEIR_ERR_STREAM_MISUSE, weir_alloc_with(s->a, &request, &block));
        fails(WEIR_ERR_STREAM_MISUSE, weir_free(s->a, p, wrong));
        fails(WEIR_ERR_STREAM_MISUSE, weir_resize(s->a, p, 2 * BLOCK, wrong));
        fails(WEIR_ERR_STREAM_MISUSE, weir_copy(s->runtime, p, &before, 16, wrong));
        fails(WEIR_ERR_STREAM_MISUSE, weir_fill(s->runtime, p, 1, 16, wrong));
        fails(WEIR_ERR_STREAM_MISUSE, weir_launch_begin(s->runtime, wrong, &use, 1, &launch));
        fails(WEIR_ERR_STREAM_MISUSE, weir_use_record(s->runtime, (weir_block){.pointer = p}, wrong));
        fails(WEIR_ERR_STREAM_MISUSE, weir_stream_register(s->runtime, weir_stream_native(wrong), &registered));
        ok(weir_capture_pool_create(s->a, &graph));
        fails(WEIR_ERR_STREAM_MISUSE, weir_capture_begin(wrong, graph));
        ok(weir_capture_pool_destroy(graph, WEIR_STREAM_HOST));
        for (int k = 0; k < TWO; k++) {
            snapshot after = take_snapshot(sides[k].runtime);
            assert_int_equal(after.device.live, before[k].device.live);
            assert_int_equal(after.device.pending, before[k].device.pending);
        }
        ok(weir_free(s->a, p, s->stream));
    }
}

/* Each device's own, also where the driver calls both the same. */
static void default_streams_are_each_devices_own(void **state)
{
    (void)state;
    static const weir_default_stream which[] = {WEIR_DEFAULT_STREAM_LEGACY, WEIR_DEFAULT_STREAM_PER_THREAD};
    for (int k = 0; k < 2; k++) {
        weir_stream streams[TWO];
        char *p[TWO], got[TWO][1000];
        for (int i = 0; i < TWO; i++) {
            ok(weir_stream_default(sides[i].runtime, which[k], &streams[i]));
            p[i] = allocate(sides[i].a, 1000, streams[i], WEIR_CLASS_OTHER);
            ok(weir_fill(sides[i].runtime, p[i], (uint8_t)(10 + i), 1000, streams[i]));
        }
        assert_int_not_equal(streams[0].id, streams[1].id);
        for (int i = 0; i < TWO; i++) {
            ok(weir_copy(sides[i].runtime, got[i], p[i], 1000, streams[i]));
            ok(weir_stream_synchronize(streams[i]));
            assert_int_equal(got[i][0], 10 + i);
            assert_int_equal(got[i][999], 10 + i);
            ok(weir_free(sides[i].a, p[i], streams[i]));
            ok(weir_stream_synchronize(streams[i]));
            ok(weir_stream_unregister(streams[i]));
        }
    }
}

static void register_as_well_as_own_streams(void **state)
{
    (void)state;
    for (int i = 0; i < TWO; i++) {
        CUstream native = NULL;
        CUcontext popped;
        weir_stream registered, none;
        assert_int_equal(driver.cuCtxPushCurrent(runtime_details(sides[i].runtime).native), CUDA_SUCCESS);
        assert_int_equal(driver.cuStreamCreate(&native, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        assert_int_equal(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
        fails(WEIR_ERR_STREAM_MISUSE, weir_stream_register(sides[!i].runtime, native, &none));
        detail_names(two_name(!i));
        ok(weir_stream_register(sides[i].runtime, native, &registered));
        void *p = allocate(sides[i].a, BLOCK, registered, WEIR_CLASS_OTHER);
        assert_int_equal(two_where(p), i);
        ok(weir_fill(sides[i].runtime, p, 3, BLOCK, registered));
        ok(weir_free(sides[i].a, p, registered));
        p = allocate(sides[i].b, BLOCK, sides[i].stream, WEIR_CLASS_OTHER);
        ok(weir_free(sides[i].b, p, sides[i].stream));
        ok(weir_stream_synchronize(registered));
        ok(weir_stream_unregister(registered));
        assert_int_equal(driver.cuCtxPushCurrent(runtime_details(sides[i].runtime).native), CUDA_SUCCESS);
        assert_int_equal(driver.cuStreamDestroy(native), CUDA_SUCCESS);
        assert_int_equal(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    }
}

/* Work that holds one device up is nothing to the other: what waits there waits for its own. */
static void one_does_not_wait_for_the_other(void **state)
{
    (void)state;
    ok(weir_option_set("wait", "20s")); /* its own fills may be slow, and in the end they have all of the budget */
    for (int held = 0; held < TWO; held++) {
        side *s = &sides[held], *other = &sides[!held];
        gate g = GATE;
        void *p = allocate(s->a, BLOCK, s->stream, WEIR_CLASS_ACTIVATIONS);
        ok(weir_call(s->runtime, pass_gate, &g, s->stream));
        free_behind(s->a, p, s->stream);
        for (int i = 0; i < 20; i++) {
            void *q = allocate(other->a, BLOCK, other->stream, WEIR_CLASS_ACTIVATIONS);
            ok(weir_fill(other->runtime, q, 1, BLOCK, other->stream));
            ok(weir_free(other->a, q, other->stream));
            q = allocate(other->b, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
            ok(weir_free(other->b, q, WEIR_STREAM_HOST));
        }
        ok(weir_stream_synchronize(other->stream));
        ok(weir_runtime_trim(other->runtime, NULL, NULL));
        assert_int_equal(take_snapshot(other->runtime).device.pending, 0);
        assert_int_equal(take_snapshot(s->runtime).device.pending, BLOCK); /* all that while it was held up */
        open_gate(&g);
        ok(weir_stream_synchronize(s->stream));
    }
    ok(weir_option_set("wait", NULL));
}

/* Lending, pressure and trims ---------------------------------------------------------------------------------------- */

/* What one client frees the next one of the same device gets, and none of the other. */
static void lending_stays_on_its_device(void **state)
{
    (void)state;
    for (int i = 0; i < TWO; i++) {
        side *s = &sides[i], *other = &sides[!i];
        void *blocks[BUDGET / BLOCK], *again;
        weir_stats elsewhere = take_snapshot(other->runtime).device;
        for (size_t k = 0; k < BUDGET / BLOCK; k++)
            blocks[k] = allocate(s->a, BLOCK, s->stream, WEIR_CLASS_ACTIVATIONS);
        for (size_t k = 0; k < BUDGET / BLOCK; k++)
            ok(weir_free(s->a, blocks[k], s->stream));
        weir_stats before = take_snapshot(s->runtime).device;
        uint64_t made = two_stub_count ? two_stub_count("cuMemCreate") : 0;
        again = allocate(s->b, BLOCK, s->stream, WEIR_CLASS_ACTIVATIONS);
        bool same = false;
        for (size_t k = 0; k < BUDGET / BLOCK; k++)
            same |= blocks[k] == again;
        weir_stats after = take_snapshot(s->runtime).device;
        assert_true(same);
        assert_int_equal(two_where(again), i);
        assert_true(after.lent_clients - before.lent_clients >= BLOCK);
        assert_int_equal(two_stub_count ? two_stub_count("cuMemCreate") : 0, made);
        weir_stats now = take_snapshot(other->runtime).device;
        assert_int_equal(now.lent_clients, elsewhere.lent_clients);
        assert_int_equal(now.lent_streams, elsewhere.lent_streams);
        assert_int_equal(now.held, elsewhere.held);
        ok(weir_free(s->b, again, s->stream));
    }
}

typedef struct asked {
    int times;
    const char *device;
} asked;

static void note_pressure(const weir_pressure *pressure, void *user)
{
    asked *a = user;
    a->times++;
    if (strcmp(pressure->device, a->device) != 0)
        fail_msg("asked for memory of %s", pressure->device);
}

static void pressure_is_the_devices_own(void **state)
{
    (void)state;
    asked both[TWO] = {{.device = "cuda:0"}, {.device = "cuda:1"}};
    uint64_t ids[TWO];
    for (int i = 0; i < TWO; i++)
        ok(weir_pressure_register(sides[i].runtime, 0, note_pressure, &both[i], &ids[i]));
    for (int i = 0; i < TWO; i++) {
        int before = both[!i].times;
        void *none;
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(sides[i].a, BUDGET + BLOCK, sides[i].stream, WEIR_CLASS_OTHER, &none));
        void *p = allocate(sides[i].a, BUDGET, sides[i].stream, WEIR_CLASS_OTHER);
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(sides[i].b, BLOCK, sides[i].stream, WEIR_CLASS_OTHER, &none));
        ok(weir_free(sides[i].a, p, sides[i].stream));
        assert_true(both[i].times > 0);
        assert_int_equal(both[!i].times, before);
    }
    for (int i = 0; i < TWO; i++)
        ok(weir_pressure_unregister(sides[i].runtime, ids[i]));
}

/* What is cached on one stays when the other is trimmed, by whichever call. */
static void trims_leave_the_other_as_it_is(void **state)
{
    (void)state;
    static const weir_trim_options trims[] = {{.struct_size = sizeof trims[0]},
                                              {.struct_size = sizeof trims[0], .idle_only = true}};
    for (int i = 0; i < TWO; i++)
        for (size_t k = 0; k < 4; k++) {
            side *s = &sides[i], *other = &sides[!i];
            for (int both = 0; both < TWO; both++) {
                void *p = allocate(sides[both].a, BUDGET / 2, sides[both].stream, WEIR_CLASS_ACTIVATIONS);
                void *small = allocate(sides[both].a, 1000, sides[both].stream, WEIR_CLASS_ACTIVATIONS);
                ok(weir_free(sides[both].a, p, sides[both].stream));
                ok(weir_free(sides[both].a, small, sides[both].stream));
                ok(weir_stream_synchronize(sides[both].stream));
            }
            weir_stats before = take_snapshot(other->runtime).device;
            weir_memory_stats memory = memory_of(other);
            uint64_t counts[3] = {two_count("handles", !i), two_count("mappings", !i), two_count("used", !i)};
            assert_true(before.held >= BUDGET / 2);
            uint64_t released = 0;
            if (k < 2)
                ok(weir_runtime_trim(s->runtime, &trims[k], NULL));
            else if (k == 2)
                ok(trim_keeping(s->runtime, 0, &released));
            else
                ok(weir_runtime_set_budget(s->runtime, BUDGET / 4)); /* which gives back as well, where much is idle */
            if (k == 0 || k == 2)
                assert_true(take_snapshot(s->runtime).device.held < BUDGET / 2);
            weir_stats after = take_snapshot(other->runtime).device;
            assert_int_equal(after.held, before.held);
            assert_int_equal(after.live, before.live);
            assert_int_equal(after.budget, before.budget);
            assert_int_equal(memory_of(other).requested_bytes.current, memory.requested_bytes.current);
            assert_int_equal(two_count("handles", !i), counts[0]);
            assert_int_equal(two_count("mappings", !i), counts[1]);
            assert_int_equal(two_count("used", !i), counts[2]);
            ok(weir_runtime_set_budget(s->runtime, BUDGET));
        }
}

/* The thread ---------------------------------------------------------------------------------------------------------- */

static void nothing(void *user)
{
    (void)user;
}

#define SAME(call)                                                                                                     \
    do {                                                                                                               \
        two_thread before_ = two_look();                                                                               \
        ok(call);                                                                                                      \
        two_same(before_, #call);                                                                                      \
    } while (0)

/* All that may call the driver, on device `i`. */
static void call_everything(int i)
{
    side *s = &sides[i];
    weir_stream stream, legacy;
    weir_launch *launch;
    weir_capture_pool *graph;
    weir_block block;
    weir_block_details details = WEIR_INIT(weir_block_details);
    weir_block_pool *pool;
    weir_block_pool_options pooled = {.struct_size = sizeof pooled, .bytes = 65536, .count = 16};
    weir_block_pool_member *member;
    weir_runtime *another;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    weir_reservation *reserved;
    uint32_t index;
    char bytes[100] = {1};
    void *p, *q, *none;
    SAME(weir_runtime_create(two_name(i), &options, &another));
    SAME(weir_runtime_destroy(another));
    SAME(weir_stream_acquire(s->runtime, &stream));
    SAME(weir_stream_default(s->runtime, WEIR_DEFAULT_STREAM_LEGACY, &legacy));
    SAME(weir_stream_unregister(legacy));
    SAME(weir_alloc(s->a, BLOCK, stream, WEIR_CLASS_ACTIVATIONS, &p));
    SAME(weir_alloc(s->a, sizeof bytes, stream, WEIR_CLASS_WEIGHTS, &q));
    SAME(weir_copy(s->runtime, q, bytes, sizeof bytes, stream));
    weir_use uses[] = {{.block = {.pointer = p}, .access = WEIR_ACCESS_WRITE}};
    SAME(weir_launch_begin(s->runtime, s->stream, uses, 1, &launch));
    SAME(weir_launch_end(launch));
    SAME(weir_use_record(s->runtime, (weir_block){.pointer = q}, s->stream));
    SAME(weir_block_info(p, &details));
    SAME(weir_fill(s->runtime, p, 1, BLOCK, stream));
    SAME(weir_stream_synchronize(stream)); /* a copy without a stream is behind none, and `bytes` is still read there */
    SAME(weir_copy(s->runtime, bytes, p, sizeof bytes, WEIR_STREAM_HOST));
    assert_int_equal(bytes[sizeof bytes - 1], 1);
    SAME(weir_call(s->runtime, nothing, NULL, stream));
    SAME(weir_free(s->a, q, stream));
    SAME(weir_free(s->a, p, stream));
    two_thread before = two_look();
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(s->a, 2 * BUDGET, stream, WEIR_CLASS_OTHER, &none));
    two_same(before, "a refusal");
    weir_request pinned = {.struct_size = sizeof pinned, .bytes = 4000, .kind = WEIR_KIND_PINNED};
    SAME(weir_alloc_with(s->a, &pinned, &block));
    SAME(weir_free_block(s->a, block, stream));
    SAME(weir_reservation_create(s->a, BLOCK, 0, &reserved));
    SAME(weir_reservation_destroy(reserved));
    SAME(weir_capture_pool_create(s->a, &graph));
    SAME(weir_capture_begin(stream, graph));
    SAME(weir_alloc(s->a, BLOCK, stream, WEIR_CLASS_ACTIVATIONS, &p));
    SAME(weir_free(s->a, p, stream));
    SAME(weir_capture_end(stream, graph));
    SAME(weir_capture_pool_destroy(graph, stream));
    SAME(weir_block_pool_create(s->a, &pooled, &pool));
    SAME(weir_block_pool_member_create(pool, s->a, 0, &member));
    SAME(weir_block_pool_alloc(member, 1, 0, stream, &index));
    SAME(weir_block_pool_free(member, &(uint32_t){index}, NULL, 1, 0, stream));
    SAME(weir_stream_synchronize(stream));
    SAME(weir_block_pool_member_destroy(member));
    SAME(weir_block_pool_destroy(pool));
    SAME(weir_runtime_trim(s->runtime, NULL, NULL));
    SAME(weir_runtime_trim(s->runtime,
                           &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .idle_only = true}, NULL));
    SAME(weir_runtime_trim(s->runtime, NULL, NULL));
    SAME(weir_stream_release(stream));
    (void)take_snapshot(s->runtime);
    two_same(before, "a snapshot");
}

static void the_thread_keeps_its_context(void **state)
{
    (void)state;
    CUcontext popped;
    for (int current = -1; current < TWO; current++) {
        if (current >= 0)
            assert_int_equal(driver.cuCtxPushCurrent(runtime_details(sides[current].runtime).native), CUDA_SUCCESS);
        for (int i = 0; i < TWO; i++)
            call_everything(i);
        if (current >= 0)
            assert_int_equal(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    }
}

/* For libraries that work on the device that is current, and leave another one so. */
static void a_device_is_entered_and_left(void **state)
{
    (void)state;
    CUcontext contexts[TWO] = {runtime_details(sides[0].runtime).native, runtime_details(sides[1].runtime).native},
              popped;
    for (int current = -1; current < TWO; current++) {
        if (current >= 0)
            assert_int_equal(driver.cuCtxPushCurrent(contexts[current]), CUDA_SUCCESS);
        for (int i = 0; i < TWO; i++) {
            two_thread before = two_look();
            ok(weir_runtime_enter(sides[i].runtime));
            assert_ptr_equal(two_look().current, contexts[i]);
            ok(weir_runtime_enter(sides[!i].runtime));
            assert_ptr_equal(two_look().current, contexts[!i]);
            call_everything(i);
            weir_runtime_leave(sides[!i].runtime);
            assert_ptr_equal(two_look().current, contexts[i]);
            assert_int_equal(driver.cuCtxSetCurrent(contexts[!i]), CUDA_SUCCESS); /* as cudaSetDevice does it */
            weir_runtime_leave(sides[i].runtime);
            two_same(before, "weir_runtime_leave");
        }
        if (current >= 0)
            assert_int_equal(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    }
    weir_runtime *host = make_runtime(MIB);
    two_thread before = two_look();
    ok(weir_runtime_enter(host));
    two_same(before, "weir_runtime_enter of host");
    weir_runtime_leave(host);
    ok(weir_runtime_destroy(host));
    fails(WEIR_ERR_INVALID, weir_runtime_enter(NULL));
    weir_runtime_leave(NULL);
    if (!two_stub_fail)
        return;
    two_stub_fail("cuCtxPushCurrent", 1, 999);
    fails(WEIR_ERR_DRIVER, weir_runtime_enter(sides[1].runtime));
    two_same(before, "a failed enter");
}

/* What fails does so with the thread as it was, too: each call of the driver's in turn, on one device while the other is current. */
static void the_thread_keeps_its_context_when_calls_fail(void **state)
{
    (void)state;
    if (!two_stub_fail)
        skip();
    static const char *const calls[] = {"cuMemCreate",   "cuMemMap",           "cuMemSetAccess", "cuStreamCreate",
                                        "cuEventCreate", "cuEventRecord",      "cuMemHostAlloc", "cuMemsetD8Async",
                                        "cuMemcpyAsync", "cuStreamSynchronize"};
    CUcontext popped;
    assert_int_equal(driver.cuCtxPushCurrent(runtime_details(sides[0].runtime).native), CUDA_SUCCESS);
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        two_thread before = two_look();
        weir_runtime *runtime = make_runtime_on("cuda:1", BUDGET);
        weir_client *client = open_client(runtime, "x", 0, 0);
        uint64_t handles = two_count("handles", 0), elsewhere = two_count("used", 0);
        two_stub_fail(calls[k], 1, 999);
        weir_stream stream = WEIR_STREAM_HOST;
        weir_request pinned = {.struct_size = sizeof pinned, .bytes = 4000, .kind = WEIR_KIND_PINNED};
        weir_block block = {0};
        char byte = 0;
        void *p = NULL;
        bool acquired = weir_stream_acquire(runtime, &stream) == WEIR_OK;
        bool got = weir_alloc(client, BLOCK, stream, WEIR_CLASS_OTHER, &p) == WEIR_OK;
        bool got_pinned = weir_alloc_with(client, &pinned, &block) == WEIR_OK;
        if (got) {
            (void)!weir_fill(runtime, p, 1, BLOCK, stream);
            (void)!weir_copy(runtime, &byte, p, 1, stream);
            (void)!weir_stream_synchronize(stream);
            (void)!weir_use_record(runtime, (weir_block){.pointer = p}, WEIR_STREAM_HOST);
        }
        two_stub_fail(calls[k], 0, 0);
        if (got)
            ok(weir_free(client, p, stream));
        if (got_pinned)
            ok(weir_free(client, block.pointer, WEIR_STREAM_HOST));
        ok(weir_stream_synchronize(stream));
        if (acquired)
            ok(weir_stream_release(stream));
        ok(weir_client_destroy(client));
        ok(weir_runtime_destroy(runtime));
        two_same(before, calls[k]);
        assert_int_equal(two_count("handles", 0), handles);
        assert_int_equal(two_count("used", 0), elsewhere);
    }
    assert_int_equal(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
}

/* Threads, and other resources ------------------------------------------------------------------------------------------- */

typedef struct worker {
    pthread_t thread;
    unsigned seed;
    int wrong;
} worker;

/* Takes and gives on both by turns, so that what a thread keeps of one is beside what it keeps of the other. */
static void *work(void *user)
{
    worker *w = user;
    enum { KEPT = 16, STEPS = 4000 };
    struct kept {
        char *p;
        int on;
    } kept[KEPT] = {{NULL, 0}};
    for (int i = 0; i < STEPS; i++) {
        w->seed = w->seed * 1664525 + 1013904223;
        struct kept *k = &kept[w->seed >> 20 & (KEPT - 1)];
        if (k->p) {
            weir_block_details details = WEIR_INIT(weir_block_details);
            w->wrong += weir_block_info(k->p, &details) != WEIR_OK || details.client != sides[k->on].a;
            w->wrong += i % 16 == 0 && two_where(k->p) != k->on;
            w->wrong += weir_free(sides[k->on].a, k->p, sides[k->on].stream) != WEIR_OK;
            k->p = NULL;
            continue;
        }
        void *p;
        k->on = (int)(w->seed >> 9 & 1);
        size_t bytes = (size_t)256 << (w->seed >> 12 & 7);
        bool got = weir_alloc(sides[k->on].a, bytes, sides[k->on].stream, WEIR_CLASS_ACTIVATIONS, &p) == WEIR_OK;
        w->wrong += !got;
        k->p = got ? p : NULL;
    }
    for (int i = 0; i < KEPT; i++)
        w->wrong += kept[i].p && weir_free(sides[kept[i].on].a, kept[i].p, sides[kept[i].on].stream) != WEIR_OK;
    return NULL;
}

static void threads_work_on_both(void **state)
{
    (void)state;
    worker workers[4];
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (worker){.seed = i + 1};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    for (int i = 0; i < TWO; i++) {
        snapshot s = take_snapshot(sides[i].runtime);
        assert_int_equal(s.device.live, 0);
        check_sums(&s);
    }
}

static void other_resources_have_their_device_too(void **state)
{
    (void)state;
    static const char *const resources[] = {"segments", "direct", "async", "guard(cache)"};
    for (size_t k = 0; k < sizeof resources / sizeof *resources; k++) {
        begin_with(resources[k]);
        for (int i = 0; i < TWO; i++) {
            size_t bytes = 60000;
            CUcontext popped;
            assert_int_equal(driver.cuCtxPushCurrent(runtime_details(sides[!i].runtime).native), CUDA_SUCCESS);
            two_thread before = two_look();
            char *p = allocate(sides[i].a, bytes, sides[i].stream, WEIR_CLASS_ACTIVATIONS);
            assert_int_equal(two_where(p), i);
            ok(weir_fill(sides[i].runtime, p, 1, bytes, sides[i].stream));
            ok(weir_free(sides[i].a, p, sides[i].stream));
            ok(weir_stream_synchronize(sides[i].stream));
            ok(weir_runtime_trim(sides[i].runtime, NULL, NULL));
            two_same(before, resources[k]);
            assert_int_equal(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
        }
        (void)end(NULL);
    }
}

int main(void)
{
    int status = two_devices();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_has_its_device, begin, end),
        cmocka_unit_test_setup_teardown(blocks_lie_on_their_device, begin, end),
        cmocka_unit_test_setup_teardown(pinned_memory_is_of_the_device_that_asks, begin, end),
        cmocka_unit_test_setup_teardown(each_has_its_budget, begin, end),
        cmocka_unit_test_setup_teardown(streams_of_the_other_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(default_streams_are_each_devices_own, begin, end),
        cmocka_unit_test_setup_teardown(register_as_well_as_own_streams, begin, end),
        cmocka_unit_test_setup_teardown(one_does_not_wait_for_the_other, begin, end),
        cmocka_unit_test_setup_teardown(lending_stays_on_its_device, begin, end),
        cmocka_unit_test_setup_teardown(pressure_is_the_devices_own, begin, end),
        cmocka_unit_test_setup_teardown(trims_leave_the_other_as_it_is, begin, end),
        cmocka_unit_test_setup_teardown(the_thread_keeps_its_context, begin, end),
        cmocka_unit_test_setup_teardown(a_device_is_entered_and_left, begin, end),
        cmocka_unit_test_setup_teardown(the_thread_keeps_its_context_when_calls_fail, begin, end),
        cmocka_unit_test_setup_teardown(threads_work_on_both, begin, end),
        cmocka_unit_test(other_resources_have_their_device_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
