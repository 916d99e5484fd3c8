/* The order of streams: what ONNX Runtime frees on a stream is nobody's too early, whether weir knows the stream or ONNX
 * Runtime made it itself. Streams are held by gates, so that work is truly late. On cuda over the stub, which tells when a
 * stream is named that has been destroyed. */
#include "fake.h"

#include "bridge/onnxruntime.h"
#include "driver/cuda_api.h"
#include "stub/cuda/control.h"

#include <dlfcn.h>

static struct control {
#define X(type, name, parameters) type(*name) parameters;
    STUB_CONTROLS(X)
#undef X
} control;

static int errors, warnings;
static char said[512];

static void listen(weir_log_level level, const char *text, void *user)
{
    (void)user;
    errors += level == WEIR_LOG_ERROR;
    warnings += level == WEIR_LOG_WARNING;
    snprintf(said, sizeof said, "%s", text);
}

/* Native streams ---------------------------------------------------------------------------------------------------- */

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *a, *b;
    weir_onnxruntime *bridge;
    ort_allocator *table;
    weir_stream known;
} fixture;

static void enter(const fixture *f)
{
    assert_int_equal(wi_cuda.cuCtxPushCurrent(weir_runtime_native(f->runtime)), CUDA_SUCCESS);
}

static void leave(void)
{
    CUcontext popped;
    assert_int_equal(wi_cuda.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
}

static void *make_native(const fixture *f)
{
    CUstream native = NULL;
    enter(f);
    assert_int_equal(wi_cuda.cuStreamCreate(&native, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    leave();
    return native;
}

static void drop_native(const fixture *f, void *native)
{
    enter(f);
    assert_int_equal(wi_cuda.cuStreamSynchronize(native), CUDA_SUCCESS);
    assert_int_equal(wi_cuda.cuStreamDestroy(native), CUDA_SUCCESS);
    leave();
}

static void hold(const fixture *f, void *native, gate *g)
{
    enter(f);
    assert_int_equal(wi_cuda.cuLaunchHostFunc(native, pass_gate, g), CUDA_SUCCESS);
    leave();
}

static void fill(const fixture *f, void *native, void *to, unsigned char value, size_t bytes)
{
    enter(f);
    assert_int_equal(wi_cuda.cuMemsetD8Async((CUdeviceptr)(uintptr_t)to, value, bytes, native), CUDA_SUCCESS);
    leave();
}

static void synchronize(const fixture *f, void *native)
{
    enter(f);
    assert_int_equal(wi_cuda.cuStreamSynchronize(native), CUDA_SUCCESS);
    leave();
}

static bool holds(const void *block, unsigned char value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)block)[i] != value)
            return false;
    return true;
}

static void *alloc_on(const fixture *f, void *native, size_t bytes)
{
    return f->table->AllocOnStream(f->table, bytes, fake_stream(&native));
}

/* ------------------------------------------------------------------------------------------------------------------- */

/* The last refusal comes back here instead of as an exception, which C cannot catch. */
static jmp_buf refused_at;

static void jump(void)
{
    longjmp(refused_at, 1);
}

static fixture begin_on(weir_runtime *runtime, bool known)
{
    fixture f = {.runtime = runtime};
    f.a = open_client(f.runtime, "anna", 0, 0);
    f.b = open_client(f.runtime, "bert", 0, 0);
    if (known)
        ok(weir_stream_acquire(f.runtime, &f.known));
    weir_onnxruntime_options o = fake_options(f.a, f.known);
    ok(weir_onnxruntime_open(&o, &f.bridge));
    f.bridge->throw_bad_alloc = jump;
    f.table = (ort_allocator *)weir_onnxruntime_allocator(f.bridge, WEIR_KIND_DEVICE);
    errors = warnings = 0;
    assert_int_equal(weir_log_set(listen, NULL, WEIR_LOG_WARNING), WEIR_OK);
    return f;
}

static fixture begin(uint64_t budget, bool known)
{
    return begin_on(make_runtime_on("cuda:0", budget), known);
}

/* Everything is given back, the streams as well. */
static void end(fixture *f)
{
    ok(weir_onnxruntime_close(f->bridge));
    if (f->known.id)
        ok(weir_stream_release(f->known));
    ok(weir_client_close(f->a));
    ok(weir_client_close(f->b));
    check_empty(f->runtime);
    ok(weir_runtime_destroy(f->runtime));
    assert_int_equal(weir_log_set(NULL, NULL, WEIR_LOG_OFF), WEIR_OK);
    assert_int_equal(control.stub_count("streams"), 0);
    fake_reset();
}

static weir_onnxruntime_stats stats(const fixture *f)
{
    weir_onnxruntime_stats s = WEIR_INIT(weir_onnxruntime_stats);
    ok(weir_onnxruntime_stats_get(f->bridge, &s));
    return s;
}

/* ------------------------------------------------------------------------------------------------------------------- */

enum { BYTES = 4 * 1024 * 1024 }; /* more than half of the budget below */

/* Late work on the stream, a free behind it, and another stream that wants the same bytes: when the late work comes, it
 * must not find them another's. */
static void not_too_early(bool known)
{
    fixture f = begin(6 * MIB, known);
    void *native = known ? weir_stream_native(f.known) : make_native(&f);
    gate g = GATE;
    pthread_t opener;
    weir_stream other;
    ok(weir_stream_acquire(f.runtime, &other));
    void *p = alloc_on(&f, native, BYTES);
    hold(&f, native, &g);
    fill(&f, native, p, 0x11, BYTES);
    f.table->Free(f.table, p);
    pthread_create(&opener, NULL, open_gate_later, &g);
    void *q = allocate(f.b, BYTES, other, WEIR_ACTIVATIONS); /* there is room for one of them alone */
    ok(weir_fill(f.runtime, q, 0x22, BYTES, other));
    pthread_join(opener, NULL);
    synchronize(&f, native);
    ok(weir_stream_synchronize(other));
    assert_true(holds(q, 0x22, BYTES));
    ok(weir_free(f.b, q, other));
    ok(weir_stream_release(other));
    if (!known)
        drop_native(&f, native);
    assert_int_equal(errors, 0);
    assert_int_equal(stats(&f).unknown, known ? 0 : 1);
    assert_int_equal(stats(&f).on_stream, 1);
    end(&f);
}

static void not_too_early_on_a_known_stream(void **state)
{
    (void)state;
    not_too_early(true);
}

static void not_too_early_on_theirs(void **state)
{
    (void)state;
    not_too_early(false);
}

/* The stream itself need not wait: its next request gets the bytes although the work before is held up. */
static void served_again_in_order(bool known)
{
    fixture f = begin(6 * MIB, known);
    void *native = known ? weir_stream_native(f.known) : make_native(&f);
    gate g = GATE;
    void *p = alloc_on(&f, native, BYTES);
    hold(&f, native, &g);
    for (int i = 0; i < 20; i++) {
        fill(&f, native, p, (unsigned char)i, BYTES);
        f.table->Free(f.table, p);
        void *next = alloc_on(&f, native, BYTES);
        assert_ptr_equal(next, p);
    }
    fill(&f, native, p, 0x33, BYTES);
    open_gate(&g);
    synchronize(&f, native);
    assert_true(holds(p, 0x33, BYTES));
    f.table->Free(f.table, p);
    if (!known)
        drop_native(&f, native);
    assert_int_equal(errors, 0);
    end(&f);
}

static void served_again_in_order_on_a_known_stream(void **state)
{
    (void)state;
    served_again_in_order(true);
}

static void served_again_in_order_on_theirs(void **state)
{
    (void)state;
    served_again_in_order(false);
}

/* Two sessions with streams of their own; the second gets what the first has freed, behind the work there. */
static void from_one_of_theirs_to_another(void **state)
{
    (void)state;
    fixture f = begin(6 * MIB, false);
    void *first = make_native(&f), *second = make_native(&f);
    gate g = GATE;
    pthread_t opener;
    void *p = alloc_on(&f, first, BYTES);
    hold(&f, first, &g);
    fill(&f, first, p, 0x11, BYTES);
    f.table->Free(f.table, p);
    pthread_create(&opener, NULL, open_gate_later, &g);
    void *q = alloc_on(&f, second, BYTES);
    fill(&f, second, q, 0x22, BYTES);
    pthread_join(opener, NULL);
    synchronize(&f, first);
    synchronize(&f, second);
    assert_true(holds(q, 0x22, BYTES));
    f.table->Free(f.table, q);
    drop_native(&f, first);
    drop_native(&f, second);
    assert_int_equal(errors, 0);
    end(&f);
}

/* An output that outlives the session is freed when the stream is gone: nobody names the stream to the driver then. The
 * next session may have a stream at the same place. */
static void freed_after_the_stream(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, false);
    for (int i = 0; i < 50; i++) {
        void *native = make_native(&f);
        void *output = alloc_on(&f, native, 10000), *scratch = alloc_on(&f, native, 5000);
        fill(&f, native, output, 1, 10000);
        f.table->Free(f.table, scratch);
        drop_native(&f, native);
        f.table->Free(f.table, output);
        assert_int_equal(stats(&f).live, 0);
    }
    assert_int_equal(errors + warnings, 0);
    /* A weight that is freed, as when a session ends, takes along all that waits. */
    void *weight = f.table->Reserve(f.table, 1000);
    f.table->Free(f.table, weight);
    weir_client_stats s = {.size = sizeof s};
    ok(weir_client_snapshot(f.a, &s));
    assert_int_equal(s.live + s.pending, 0);
    end(&f);
}

/* A block without a stream may have been used on any: its free waits for all. */
static void freed_without_a_stream(void **state)
{
    (void)state;
    fixture f = begin(6 * MIB, false);
    void *native = make_native(&f);
    gate g = GATE;
    pthread_t opener;
    void *p = f.table->Alloc(f.table, BYTES);
    hold(&f, native, &g);
    fill(&f, native, p, 0x11, BYTES);
    pthread_create(&opener, NULL, open_gate_later, &g);
    f.table->Free(f.table, p);
    void *q = allocate(f.b, BYTES, WEIR_STREAM_HOST, WEIR_ACTIVATIONS);
    memset(q, 0x22, BYTES);
    pthread_join(opener, NULL);
    synchronize(&f, native);
    assert_true(holds(q, 0x22, BYTES));
    ok(weir_free(f.b, q, WEIR_STREAM_HOST));
    drop_native(&f, native);
    assert_int_equal(errors, 0);
    end(&f);
}

/* On a known stream a weight's free is behind the stream, and waits for nothing. */
static void freed_behind_the_known_stream(void **state)
{
    (void)state;
    fixture f = begin(6 * MIB, true);
    void *native = weir_stream_native(f.known);
    gate g = GATE;
    pthread_t opener;
    void *p = f.table->Alloc(f.table, BYTES);
    hold(&f, native, &g);
    fill(&f, native, p, 0x11, BYTES);
    f.table->Free(f.table, p);
    assert_int_equal(stats(&f).live, 0);
    pthread_create(&opener, NULL, open_gate_later, &g);
    void *q = allocate(f.b, BYTES, WEIR_STREAM_HOST, WEIR_ACTIVATIONS);
    memset(q, 0x22, BYTES);
    pthread_join(opener, NULL);
    synchronize(&f, native);
    assert_true(holds(q, 0x22, BYTES));
    ok(weir_free(f.b, q, WEIR_STREAM_HOST));
    end(&f);
}

/* ------------------------------------------------------------------------------------------------------------------- */

static void foreign_pointers(bool known)
{
    fixture f = begin(64 * MIB, known);
    void *native = known ? weir_stream_native(f.known) : make_native(&f), *p = alloc_on(&f, native, 1000);
    void *others = allocate(f.b, 500, WEIR_STREAM_HOST, WEIR_OTHER);
    int here;
    f.table->Free(f.table, NULL);
    f.table->Free(f.table, &here);
    assert_non_null(strstr(said, "cuda:0"));
    f.table->Free(f.table, (char *)p + 256);
    f.table->Free(f.table, others);
    assert_non_null(strstr(said, "bert"));
    assert_int_equal(stats(&f).foreign, 3);
    assert_int_equal(warnings, 3);
    assert_int_equal(stats(&f).live, 1);
    f.table->Free(f.table, p);
    f.table->Free(f.table, p);
    assert_int_equal(stats(&f).foreign, 4);
    assert_int_equal(stats(&f).live, 0);
    assert_int_equal(errors, 0);
    ok(weir_free(f.b, others, WEIR_STREAM_HOST));
    if (!known)
        drop_native(&f, native);
    end(&f);
}

static void foreign_pointers_are_ignored(void **state)
{
    (void)state;
    foreign_pointers(true);
    foreign_pointers(false);
}

static void sizes_classes_and_kinds(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, true);
    void *native = weir_stream_native(f.known);
    ort_allocator *pinned = (ort_allocator *)weir_onnxruntime_allocator(f.bridge, WEIR_KIND_PINNED);
    assert_null(f.table->Alloc(f.table, 0));
    assert_null(f.table->Reserve(f.table, 0));
    assert_null(alloc_on(&f, native, 0));
    assert_null(pinned->Alloc(pinned, 0));
    assert_true(f.table->version >= 23 && pinned->version >= 23);
    void *blocks[] = {f.table->Alloc(f.table, 300), f.table->Reserve(f.table, 700), alloc_on(&f, native, 1),
                      f.table->AllocOnStream(f.table, 10, NULL), pinned->Alloc(pinned, 5000)};
    const weir_class classes[] = {WEIR_WEIGHTS, WEIR_WEIGHTS, WEIR_ACTIVATIONS, WEIR_WEIGHTS, WEIR_SCRATCH};
    for (size_t i = 0; i < 5; i++) {
        weir_block_details d = {.size = sizeof d};
        ok(weir_block_info(blocks[i], &d));
        assert_int_equal(d.memory_class, classes[i]);
        assert_int_equal(d.stream.id, i == 2 ? f.known.id : 0);
        assert_int_equal(d.kind, i == 4 ? WEIR_KIND_PINNED : WEIR_KIND_DEVICE);
        assert_int_equal((uintptr_t)blocks[i] % 256, 0);
    }
    weir_onnxruntime_stats s = stats(&f);
    assert_int_equal(s.live, 5);
    assert_int_equal(s.blocks, 5);
    assert_int_equal(s.reserved, 700);
    for (size_t i = 0; i < 5; i++) {
        ort_allocator *table = i == 4 ? pinned : f.table;
        table->Free(table, blocks[i]);
    }
    assert_int_equal(stats(&f).live, 0);
    assert_int_equal(errors + warnings, 0);
    end(&f);
}

/* Pinned blocks are kept for the next request of their size, which gets one when the device is past its free; they go with
 * the last block of the bridge's. */
static void pinned_memory_serves_again(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, true);
    void *native = weir_stream_native(f.known), *weight = f.table->Alloc(f.table, 1000);
    ort_allocator *pinned = (ort_allocator *)weir_onnxruntime_allocator(f.bridge, WEIR_KIND_PINNED);
    uint64_t before = control.stub_count("allocations");
    gate g = GATE;
    void *p = pinned->Alloc(pinned, 5000);
    hold(&f, native, &g);
    fill(&f, native, p, 0x11, 5000);
    pinned->Free(pinned, p);
    void *q = pinned->Alloc(pinned, 5000);
    assert_ptr_not_equal(q, p); /* late work still writes there */
    open_gate(&g);
    synchronize(&f, native);
    void *again = pinned->Alloc(pinned, 4000), *longer = pinned->Alloc(pinned, 20000), *shorter;
    assert_ptr_equal(again, p);
    pinned->Free(pinned, longer);
    synchronize(&f, native);
    shorter = pinned->Alloc(pinned, 100);
    assert_ptr_not_equal(shorter, longer); /* that would be a waste */
    pinned->Free(pinned, shorter);
    pinned->Free(pinned, again);
    pinned->Free(pinned, q);
    assert_int_equal(control.stub_count("allocations"), before + 4);
    pinned->Free(pinned, q);
    assert_int_equal(stats(&f).foreign, 1);
    assert_int_equal(stats(&f).live, 1);
    f.table->Free(f.table, weight);
    synchronize(&f, native);
    weir_client_stats s = {.size = sizeof s};
    ok(weir_client_snapshot(f.a, &s));
    assert_int_equal(s.live, 0);
    assert_int_equal(errors, 0);
    end(&f);
    assert_true(control.stub_count("allocations") <= before);
}

/* Nobody goes without host memory because of what is kept. */
static void pinned_memory_is_given_up(void **state)
{
    (void)state;
    weir_runtime *host = make_runtime(4 * MIB), *runtime;
    weir_runtime_options options = {.size = sizeof options, .budget = 64 * MIB, .host = host};
    ok(weir_runtime_create("cuda:0", &options, &runtime));
    fixture f = begin_on(runtime, true);
    weir_client *other = open_client(host, "otto", 0, 0);
    ort_allocator *pinned = (ort_allocator *)weir_onnxruntime_allocator(f.bridge, WEIR_KIND_PINNED);
    void *weight = f.table->Alloc(f.table, 1000), *p = pinned->Alloc(pinned, 3 * MIB);
    pinned->Free(pinned, p);
    ok(weir_stream_synchronize(f.known));
    void *q = allocate(other, 3 * MIB, WEIR_STREAM_HOST, WEIR_OTHER);
    ok(weir_free(other, q, WEIR_STREAM_HOST));
    p = pinned->Alloc(pinned, 2 * MIB);
    pinned->Free(pinned, p);
    ok(weir_stream_synchronize(f.known));
    p = pinned->Alloc(pinned, 3 * MIB + MIB / 2); /* nor the bridge itself */
    pinned->Free(pinned, p);
    f.table->Free(f.table, weight);
    assert_int_equal(errors + warnings, 0);
    ok(weir_client_close(other));
    end(&f);
    check_empty(host);
    ok(weir_runtime_destroy(host));
}

/* A refusal says what and why, and the allocator serves on. */
static void refusals_are_told(void **state)
{
    (void)state;
    fixture f = begin(6 * MIB, true);
    void *native = weir_stream_native(f.known);
    char text[1024] = "bad_alloc";
    volatile int refusals = 0;
    for (volatile int i = 0; i < 3; i++) {
        if (setjmp(refused_at) == 0)
            (void)(i == 0   ? f.table->Alloc(f.table, SIZE_MAX)
                   : i == 1 ? f.table->Reserve(f.table, 100 * MIB)
                            : alloc_on(&f, native, 100 * MIB));
        else
            refusals++;
    }
    assert_int_equal(refusals, 3);
    assert_int_equal(errors, 3);
    assert_non_null(strstr(said, "cuda:0"));
    assert_non_null(strstr(said, "104857600 bytes"));
    assert_non_null(strstr(said, "anna"));
    assert_int_equal(stats(&f).refused, 3);
    assert_true(weir_onnxruntime_explain(f.bridge, 2, text, sizeof text));
    assert_non_null(strstr(text, "100 MiB"));
    assert_false(weir_onnxruntime_explain(f.bridge, 3, text, sizeof text));
    void *p = alloc_on(&f, native, BYTES);
    assert_non_null(p);
    f.table->Free(f.table, p);
    end(&f);
}

/* Each call of the driver's on the way of a request fails: it is refused, and nothing is lost. */
static void the_driver_fails(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuStreamGetCtx", "cuStreamGetId", "cuEventRecord", "cuStreamWaitEvent"};
    fixture f = begin(64 * MIB, false);
    volatile int refusals = 0;
    for (volatile size_t i = 0; i < 4; i++)
        for (volatile int nth = 1; nth <= 2; nth++) {
            void *volatile native = make_native(&f);
            void *volatile p = i < 2 ? NULL : alloc_on(&f, native, 1000);
            f.table->Free(f.table, p);
            control.stub_fail(calls[i], nth, 999);
            if (setjmp(refused_at) == 0)
                f.table->Free(f.table, alloc_on(&f, native, 1000));
            else
                refusals++;
            control.stub_fail(calls[i], 0, 0);
            f.table->Free(f.table, alloc_on(&f, native, 1000));
            assert_int_equal(stats(&f).live, 0);
            drop_native(&f, native);
        }
    assert_true(refusals >= 6);
    assert_int_equal(errors, refusals);
    end(&f);
}

/* When the device cannot be waited for, what was freed waits, and goes when it can. */
static void waiting_fails(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, false);
    void *native = make_native(&f);
    void *p = alloc_on(&f, native, 1000), *weight = f.table->Alloc(f.table, 1000);
    f.table->Free(f.table, p);
    control.stub_fail("cuCtxSynchronize", 1, 999);
    f.table->Free(f.table, weight);
    assert_int_equal(errors, 1);
    assert_int_equal(stats(&f).live, 1);
    f.table->Free(f.table, weight);
    assert_int_equal(stats(&f).live, 0);
    drop_native(&f, native);
    end(&f);
}

/* Runs of blocks, on both kinds of streams. */
static void blocks_of_a_pool(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, true);
    weir_blocks_options options = {.size = sizeof options, .bytes = 4096, .count = 256};
    weir_blocks *pool;
    weir_blocks_member *member;
    weir_onnxruntime *bridge;
    ok(weir_blocks_create(f.b, &options, &pool));
    ok(weir_blocks_join(pool, f.a, 200, &member));
    weir_onnxruntime_options o = fake_options(f.a, f.known);
    o.blocks = member;
    ok(weir_onnxruntime_open(&o, &bridge));
    bridge->throw_bad_alloc = jump;
    ort_allocator *table = (ort_allocator *)weir_onnxruntime_allocator(bridge, WEIR_KIND_DEVICE);
    weir_blocks_view view = WEIR_INIT(weir_blocks_view);
    ok(weir_blocks_look(pool, &view));
    void *theirs = make_native(&f), *known = weir_stream_native(f.known);
    void *p = table->AllocOnStream(table, 4097, fake_stream(&known));
    void *q = table->AllocOnStream(table, 40000, fake_stream(&theirs)), *r = table->Alloc(table, 1);
    const void *all[] = {p, q, r};
    for (int i = 0; i < 3; i++)
        assert_true(weir_blocks_index(&view, all[i]) != WEIR_BLOCKS_NONE);
    weir_blocks_member_stats s = WEIR_INIT(weir_blocks_member_stats);
    ok(weir_blocks_member_snapshot(member, &s));
    assert_int_equal(s.held, 2 + 10 + 1);
    table->Free(table, (char *)p + 4096);
    table->Free(table, p);
    table->Free(table, p);
    assert_int_equal(warnings, 2);
    table->Free(table, q);
    if (setjmp(refused_at) == 0) {
        (void)table->Alloc(table, 201 * 4096);
        fail();
    }
    if (setjmp(refused_at) == 0) {
        (void)table->Alloc(table, 300 * 4096);
        fail();
    }
    assert_non_null(strstr(said, "300 blocks"));
    table->Free(table, r);
    ok(weir_onnxruntime_close(bridge));
    ok(weir_blocks_member_snapshot(member, &s));
    assert_int_equal(s.held, 0);
    drop_native(&f, theirs);
    ok(weir_stream_synchronize(f.known));
    ok(weir_blocks_leave(member));
    ok(weir_blocks_destroy(pool));
    end(&f);
}

/* Sessions on threads of their own, with streams of their own, out of one small budget; each checks what it has written. */
typedef struct worker {
    const fixture *f;
    int number;
    bool wrong;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    uint64_t random = 77 + (uint64_t)w->number;
    void *native = make_native(w->f);
    unsigned char value = (unsigned char)(w->number + 1);
    for (int i = 0; i < 60; i++) {
        size_t bytes = 1000 + next_random(&random) % 300000;
        void *p = alloc_on(w->f, native, bytes), *q = alloc_on(w->f, native, bytes);
        unsigned char *copy = malloc(bytes);
        fill(w->f, native, p, value, bytes);
        enter(w->f);
        wi_cuda.cuMemcpyAsync((CUdeviceptr)(uintptr_t)q, (CUdeviceptr)(uintptr_t)p, bytes, native);
        w->f->table->Free(w->f->table, p);
        wi_cuda.cuMemcpyAsync((CUdeviceptr)(uintptr_t)copy, (CUdeviceptr)(uintptr_t)q, bytes, native);
        leave();
        w->f->table->Free(w->f->table, q);
        synchronize(w->f, native);
        w->wrong |= !holds(copy, value, bytes);
        free(copy);
    }
    drop_native(w->f, native);
    return NULL;
}

static void threads_with_streams(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    fixture f = begin(8 * MIB, false);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){&f, i, false};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(workers[i].wrong);
    }
    assert_int_equal(errors, 0);
    assert_int_equal(stats(&f).live, 0);
    end(&f);
}

static int find_stub(void **state)
{
    (void)state;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || wi_cuda_load() != WEIR_OK)
        return -1;
#define X(type, name, parameters) *(void **)&control.name = dlsym(library, #name);
    STUB_CONTROLS(X)
#undef X
    load_cxx();
    return control.stub_fail ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_too_early_on_a_known_stream),
        cmocka_unit_test(not_too_early_on_theirs),
        cmocka_unit_test(served_again_in_order_on_a_known_stream),
        cmocka_unit_test(served_again_in_order_on_theirs),
        cmocka_unit_test(from_one_of_theirs_to_another),
        cmocka_unit_test(freed_after_the_stream),
        cmocka_unit_test(freed_without_a_stream),
        cmocka_unit_test(freed_behind_the_known_stream),
        cmocka_unit_test(foreign_pointers_are_ignored),
        cmocka_unit_test(sizes_classes_and_kinds),
        cmocka_unit_test(pinned_memory_serves_again),
        cmocka_unit_test(pinned_memory_is_given_up),
        cmocka_unit_test(refusals_are_told),
        cmocka_unit_test(the_driver_fails),
        cmocka_unit_test(waiting_fails),
        cmocka_unit_test(blocks_of_a_pool),
        cmocka_unit_test(threads_with_streams),
    };
    return cmocka_run_group_tests(tests, find_stub, NULL);
}
