/* Bridges of two CUDA devices at once, to an ONNX Runtime of a few functions: whose memory each gives, in whose order, and that
 * nothing that one does is seen by the other. */
#include "info.h"
#include "devices/two.h"
#include <weir/onnxruntime.h>

#include "bridge/fake.h"
#include "onnx/bridge/bridge.h"

enum { BUDGET = 32 * 1024 * 1024, BLOCK = 1024 * 1024 };

typedef struct side {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream known;
    weir_onnxruntime *bridge;
    ort_allocator *device, *pinned;
} side;

static side sides[TWO];
static jmp_buf refused_at;

static void jump(void)
{
    longjmp(refused_at, 1);
}

/* `known`: the stream of the sessions is weir's. */
static void begin_with(bool known)
{
    for (int i = 0; i < TWO; i++) {
        side *s = &sides[i];
        *s = (side){.runtime = make_runtime_on(two_name(i), BUDGET)};
        s->client = open_client(s->runtime, i ? "anna-1" : "anna-0", 0, 0);
        if (known)
            ok(weir_stream_acquire(s->runtime, &s->known));
        weir_onnxruntime_options options = fake_options(s->client, s->known);
        ok(weir_onnxruntime_create(&options, &s->bridge));
        s->bridge->throw_bad_alloc = jump;
        s->device = (ort_allocator *)bridge_allocator(s->bridge, WEIR_KIND_DEVICE);
        s->pinned = (ort_allocator *)bridge_allocator(s->bridge, WEIR_KIND_PINNED);
    }
}

static int begin(void **state)
{
    (void)state;
    begin_with(true);
    return 0;
}

static int begin_unknown(void **state)
{
    (void)state;
    begin_with(false);
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (int i = 0; i < TWO; i++) {
        side *s = &sides[i];
        ok(weir_onnxruntime_destroy(s->bridge));
        if (s->known.id)
            ok(weir_stream_release(s->known));
        ok(weir_client_destroy(s->client));
        check_empty(s->runtime);
        ok(weir_runtime_destroy(s->runtime));
        static const char *const things[] = {"handles", "mappings", "streams", "allocations", "used"};
        for (size_t k = 0; two_stub_count && k < sizeof things / sizeof *things; k++)
            assert_int_equal(two_count(things[k], i), 0);
    }
    fake_reset();
    return 0;
}

static weir_onnxruntime_details stats(int i)
{
    weir_onnxruntime_details s = WEIR_INIT(weir_onnxruntime_details);
    ok(weir_onnxruntime_info(sides[i].bridge, &s));
    return s;
}

static void *on_stream(int i, void *native, size_t bytes)
{
    return sides[i].device->AllocOnStream(sides[i].device, bytes, fake_stream(&native));
}

static CUstream make_native(int i)
{
    CUstream native = NULL;
    CUcontext popped;
    assert_int_equal(driver.cuCtxPushCurrent(runtime_details(sides[i].runtime).native), CUDA_SUCCESS);
    assert_int_equal(driver.cuStreamCreate(&native, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    return native;
}

static void drop_native(int i, CUstream native)
{
    CUcontext popped;
    assert_int_equal(driver.cuCtxPushCurrent(runtime_details(sides[i].runtime).native), CUDA_SUCCESS);
    assert_int_equal(driver.cuStreamSynchronize(native), CUDA_SUCCESS);
    assert_int_equal(driver.cuStreamDestroy(native), CUDA_SUCCESS);
    assert_int_equal(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
}

/* ------------------------------------------------------------------------------------------------------------------- */

static void both_are_registered_at_once(void **state)
{
    (void)state;
    weir_onnxruntime_options options[TWO];
    for (int i = 0; i < TWO; i++) {
        options[i] = fake_options(sides[i].client, sides[i].known);
        ok(weir_onnxruntime_register(&options[i]));
    }
    assert_non_null(fake_ort.device);
    assert_non_null(fake_ort.device_1);
    assert_ptr_not_equal(fake_ort.device, fake_ort.device_1);
    assert_ptr_not_equal(fake_ort.pinned, fake_ort.pinned_1);
    for (int i = 0; i < TWO; i++) {
        assert_true((weir_onnxruntime_registered(NULL, two_name(i)) != NULL));
        assert_ptr_equal(registered_client(NULL, two_name(i)), sides[i].client);
    }
    /* a session of one puts its own in, and the other's stays */
    ort_allocator *registered[TWO] = {fake_ort.device, fake_ort.device_1};
    for (int i = 0; i < TWO; i++) {
        ok(weir_onnxruntime_enter(sides[i].bridge));
        assert_ptr_equal(i ? fake_ort.device_1 : fake_ort.device, sides[i].device);
        assert_ptr_equal(i ? fake_ort.pinned_1 : fake_ort.pinned, sides[i].pinned);
        assert_ptr_equal(i ? fake_ort.device : fake_ort.device_1, registered[!i]);
        weir_onnxruntime_leave(sides[i].bridge);
        assert_ptr_equal(i ? fake_ort.device_1 : fake_ort.device, registered[i]);
    }
    ok(weir_onnxruntime_unregister(NULL, "cuda:1"));
    assert_null(fake_ort.device_1);
    assert_true((weir_onnxruntime_registered(NULL, "cuda:0") != NULL));
    ok(weir_onnxruntime_unregister(NULL, "cuda:0"));
}

static void each_gives_its_devices_memory(void **state)
{
    (void)state;
    for (int i = 0; i < TWO; i++) {
        side *s = &sides[i];
        uint64_t elsewhere = take_snapshot(sides[!i].runtime).device.live, used = two_count("used", !i);
        void *weights = s->device->Reserve(s->device, BLOCK), *any = s->device->Alloc(s->device, BLOCK);
        void *activations = on_stream(i, weir_stream_native(s->known), BLOCK),
             *host = s->pinned->Alloc(s->pinned, 4000);
        assert_int_equal(two_where(weights), i);
        assert_int_equal(two_where(any), i);
        assert_int_equal(two_where(activations), i);
        assert_int_equal(two_where(host), i);
        memset(host, 1, 4000);
        assert_int_equal(stats(i).live, 4);
        assert_int_equal(stats(i).unknown, 0);
        assert_int_equal(stats(!i).live, 0);
        assert_int_equal(take_snapshot(sides[!i].runtime).device.live, elsewhere);
        assert_int_equal(two_count("used", !i), used);
        s->device->Free(s->device, weights);
        s->device->Free(s->device, any);
        s->device->Free(s->device, activations);
        s->pinned->Free(s->pinned, host);
        assert_int_equal(stats(i).live, 0);
    }
}

/* What one gave out the other does not take back, and a stream of one is no stream of the other's. */
static void what_is_the_others_is_refused(void **state)
{
    (void)state;
    for (volatile int i = 0; i < TWO; i++) {
        side *s = &sides[i], *other = &sides[!i];
        weir_onnxruntime *none;
        weir_onnxruntime_options wrong = fake_options(s->client, other->known);
        fails(WEIR_ERR_STREAM_MISUSE, weir_onnxruntime_create(&wrong, &none));
        fails(WEIR_ERR_STREAM_MISUSE, weir_onnxruntime_register(&wrong));
        void *p = s->device->Alloc(s->device, BLOCK), *host = s->pinned->Alloc(s->pinned, 4000);
        uint64_t live = take_snapshot(s->runtime).device.live;
        uint64_t foreign = stats(!i).foreign;
        other->device->Free(other->device, p);
        other->pinned->Free(other->pinned, host);
        assert_int_equal(stats(!i).foreign, foreign + 2);
        assert_int_equal(take_snapshot(s->runtime).device.live, live);
        uint64_t refused = stats(i).refused, on_other = take_snapshot(other->runtime).device.live;
        volatile bool came_back = false;
        if (setjmp(refused_at) == 0)
            (void)on_stream(i, weir_stream_native(other->known), BLOCK);
        else
            came_back = true;
        assert_true(came_back);
        detail_names("context");
        assert_int_equal(stats(i).refused, refused + 1);
        assert_int_equal(take_snapshot(s->runtime).device.live, live);
        assert_int_equal(take_snapshot(other->runtime).device.live, on_other);
        s->device->Free(s->device, p);
        s->pinned->Free(s->pinned, host);
    }
}

/* ONNX Runtime's own streams of both, which are followed on their own device, and come to an end there. */
static void streams_of_its_own_are_followed_there(void **state)
{
    (void)state;
    CUstream natives[TWO] = {make_native(0), make_native(1)};
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < TWO; i++) {
            side *s = &sides[i];
            uint64_t elsewhere = two_count("events", !i);
            void *p = on_stream(i, natives[i], BLOCK), *q = on_stream(i, natives[i], BLOCK);
            assert_int_equal(two_where(p), i);
            s->device->Free(s->device, p);
            s->device->Free(s->device, q); /* in hand */
            assert_int_equal(two_count("events", !i), elsewhere);
        }
    /* memory that is short on one brings nothing in hand of the other's back */
    uint64_t held = take_snapshot(sides[1].runtime).device.live;
    assert_int_equal(held, 2 * BLOCK);
    void *all = allocate(sides[0].client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    assert_int_equal(take_snapshot(sides[1].runtime).device.live, held);
    ok(weir_free(sides[0].client, all, WEIR_STREAM_HOST));
    all = allocate(sides[1].client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    ok(weir_free(sides[1].client, all, WEIR_STREAM_HOST));
    for (int i = 0; i < TWO; i++)
        drop_native(i, natives[i]);
}

/* A session's memory comes back while the other device is held up, pinned memory that serves again included. */
static void one_does_not_wait_for_the_other(void **state)
{
    (void)state;
    for (int held = 0; held < TWO; held++) {
        side *s = &sides[held], *other = &sides[!held];
        gate g = GATE;
        void *host = s->pinned->Alloc(s->pinned, 4000), *kept = other->pinned->Alloc(other->pinned, 100);
        void *serves =
            other->pinned->Alloc(other->pinned, 4000); /* before, as the driver may wait for all to pin memory */
        other->pinned->Free(other->pinned, serves);
        ok(weir_stream_synchronize(other->known));
        ok(weir_call(s->runtime, pass_gate, &g, s->known));
        s->pinned->Free(s->pinned, host); /* kept until the device is past this */
        for (int i = 0; i < 5; i++) {
            void *p = on_stream(!held, weir_stream_native(other->known), BLOCK);
            void *mine = other->pinned->Alloc(other->pinned, 4000);
            assert_ptr_equal(mine, serves); /* its own, whose free the device is past */
            other->pinned->Free(other->pinned, mine);
            other->device->Free(other->device, p);
            ok(weir_stream_synchronize(other->known));
        }
        open_gate(&g);
        ok(weir_stream_synchronize(s->known));
        other->pinned->Free(other->pinned, kept);
    }
}

#define SAME(call)                                                                                                     \
    do {                                                                                                               \
        two_thread before_ = two_look();                                                                               \
        call;                                                                                                          \
        two_same(before_, #call);                                                                                      \
    } while (0)

static void call_everything(int i)
{
    side *s = &sides[i];
    CUstream native = make_native(i);
    weir_onnxruntime *another;
    weir_onnxruntime_options options = fake_options(s->client, s->known);
    void *p, *q, *host;
    SAME(ok(weir_onnxruntime_create(&options, &another)));
    SAME(ok(weir_onnxruntime_enter(another)));
    SAME(weir_onnxruntime_leave(another));
    SAME(ok(weir_onnxruntime_destroy(another)));
    SAME(ok(weir_onnxruntime_register(&options)));
    SAME(ok(weir_onnxruntime_unregister(NULL, two_name(i))));
    SAME(p = s->device->Alloc(s->device, BLOCK));
    SAME(q = on_stream(i, native, BLOCK));
    SAME(host = s->pinned->Alloc(s->pinned, 4000));
    SAME(s->device->Free(s->device, q));
    SAME(s->pinned->Free(s->pinned, host));
    SAME(s->device->Free(s->device, p));
    volatile bool came_back = false;
    two_thread before = two_look();
    if (setjmp(refused_at) == 0)
        (void)s->device->Alloc(s->device, 2 * BUDGET);
    else
        came_back = true;
    assert_true(came_back);
    two_same(before, "a refusal");
    drop_native(i, native);
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

/* What is kept for the next run of one stays when the other is trimmed. */
static void trims_leave_the_other_as_it_is(void **state)
{
    (void)state;
    for (int i = 0; i < TWO; i++) {
        for (int k = 0; k < TWO; k++) {
            void *p = on_stream(k, weir_stream_native(sides[k].known), BUDGET / 2);
            sides[k].device->Free(sides[k].device, p);
            ok(weir_stream_synchronize(sides[k].known));
        }
        uint64_t held = take_snapshot(sides[!i].runtime).device.held, handles = two_count("handles", !i);
        assert_true(held >= BUDGET / 2);
        ok(weir_runtime_trim(sides[i].runtime, NULL, NULL));
        assert_int_equal(take_snapshot(sides[i].runtime).device.held, 0);
        assert_int_equal(take_snapshot(sides[!i].runtime).device.held, held);
        assert_int_equal(two_count("handles", !i), handles);
    }
}

int main(void)
{
    int status = two_devices();
    if (status)
        return status;
    load_cxx();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_are_registered_at_once, begin, end),
        cmocka_unit_test_setup_teardown(each_gives_its_devices_memory, begin, end),
        cmocka_unit_test_setup_teardown(what_is_the_others_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(streams_of_its_own_are_followed_there, begin_unknown, end),
        cmocka_unit_test_setup_teardown(one_does_not_wait_for_the_other, begin, end),
        cmocka_unit_test_setup_teardown(the_thread_keeps_its_context, begin, end),
        cmocka_unit_test_setup_teardown(trims_leave_the_other_as_it_is, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
