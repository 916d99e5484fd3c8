/* What a bridge answers ONNX Runtime on a device: sizes, classes and kinds, pointers that are not its own, refusals,
 * failures of the driver, pinned memory, runs of blocks. On cuda over the stub. */
#include "info.h"
#include "rig.h"
#include <weir/block_pool.h>
#include <weir/onnxruntime.h>

static void foreign_pointers(bool known)
{
    fixture f = begin(64 * MIB, known);
    void *native = known ? weir_stream_native(f.known) : make_native(&f), *p = alloc_on(&f, native, 1000);
    void *others = allocate(f.b, 500, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
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

static bool is_live(const void *pointer)
{
    weir_block_details d = {.struct_size = sizeof d};
    ok(weir_block_info(pointer, &d));
    return d.state == WEIR_BLOCK_LIVE;
}

static void ignored(const fixture *f, ort_allocator *table, void *pointer)
{
    int before = warnings;
    uint64_t blocks = stats(f).live, foreign = stats(f).foreign;
    table->Free(table, pointer);
    assert_int_equal(warnings, before + 1);
    assert_int_equal(stats(f).foreign, foreign + 1);
    assert_int_equal(stats(f).live, blocks);
}

/* What the program or another engine has of the same client, on any stream, is not ONNX Runtime's to free: neither
 * fresh blocks nor ones that it had before. */
static void blocks_of_the_same_client(const char *resource, bool known)
{
    weir_runtime *runtime;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 * MIB, .resource = resource};
    ok(weir_runtime_create("cuda:0", &options, &runtime));
    fixture f = begin_on(runtime, known);
    void *native = known ? weir_stream_native(f.known) : make_native(&f);
    const weir_stream streams[] = {WEIR_STREAM_HOST, known ? f.known : WEIR_STREAM_HOST};
    for (int i = 0; i < 2; i++) {
        void *theirs = alloc_on(&f, native, 3000), *weight = f.table->Alloc(f.table, 3000);
        f.table->Free(f.table, theirs);
        f.table->Free(f.table, weight);
        synchronize(&f, native);
        void *own = allocate(f.a, 3000, streams[i], WEIR_CLASS_ACTIVATIONS),
             *more = allocate(f.a, 3000, streams[i], WEIR_CLASS_KV);
        ignored(&f, f.table, own);
        assert_non_null(strstr(said, "anna's"));
        ignored(&f, f.table, more);
        ignored(&f, f.table, (char *)own + 256);
        assert_null(strstr(said, "did not get it here")); /* which is true of what is inside, but not all */
        assert_true(is_live(own) && is_live(more));
        ok(weir_free(f.a, own, streams[i]));
        ok(weir_free(f.a, more, streams[i]));
    }
    assert_int_equal(stats(&f).live, 0);
    assert_int_equal(errors, 0);
    if (!known)
        drop_native(&f, native);
    end(&f);
}

static void blocks_of_the_same_client_stay(void **state)
{
    (void)state;
    blocks_of_the_same_client(NULL, true);
    blocks_of_the_same_client(NULL, false);
    blocks_of_the_same_client("direct", true);
    blocks_of_the_same_client("direct", false);
}

/* Nor do the two allocators of a bridge free what the other one handed out, or has kept. */
static void each_allocator_has_its_own(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, true);
    ort_allocator *pinned = (ort_allocator *)bridge_allocator(f.bridge, WEIR_KIND_PINNED);
    void *weight = f.table->Alloc(f.table, 1000), *p = pinned->Alloc(pinned, 5000);
    weir_block own;
    weir_request request = {.struct_size = sizeof request, .bytes = 5000, .kind = WEIR_KIND_PINNED};
    ok(weir_alloc_with(f.a, &request, &own));
    ignored(&f, f.table, p);
    ignored(&f, pinned, weight);
    ignored(&f, pinned, own.pointer);
    pinned->Free(pinned, p); /* is kept */
    ignored(&f, f.table, p);
    ignored(&f, pinned, p);
    synchronize(&f, weir_stream_native(f.known));
    assert_ptr_equal(pinned->Alloc(pinned, 5000), p);
    assert_true(is_live(p) && is_live(weight) && is_live(own.pointer));
    pinned->Free(pinned, p);
    f.table->Free(f.table, weight);
    ok(weir_free(f.a, own.pointer, WEIR_STREAM_HOST));
    assert_int_equal(errors, 0);
    end(&f);
}

static void sizes_classes_and_kinds(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, true);
    void *native = weir_stream_native(f.known);
    ort_allocator *pinned = (ort_allocator *)bridge_allocator(f.bridge, WEIR_KIND_PINNED);
    assert_null(f.table->Alloc(f.table, 0));
    assert_null(f.table->Reserve(f.table, 0));
    assert_null(alloc_on(&f, native, 0));
    assert_null(pinned->Alloc(pinned, 0));
    assert_true(f.table->version >= 23 && pinned->version >= 23);
    void *blocks[] = {f.table->Alloc(f.table, 300), f.table->Reserve(f.table, 700), alloc_on(&f, native, 1),
                      f.table->AllocOnStream(f.table, 10, NULL), pinned->Alloc(pinned, 5000)};
    const weir_class classes[] = {WEIR_CLASS_WEIGHTS, WEIR_CLASS_WEIGHTS, WEIR_CLASS_ACTIVATIONS, WEIR_CLASS_WEIGHTS,
                                  WEIR_CLASS_SCRATCH};
    const size_t sizes[] = {300, 700, 1, 10, 5000 + 64}; /* kernels of the CPU read behind what is pinned */
    for (size_t i = 0; i < 5; i++) {
        weir_block_details d = {.struct_size = sizeof d};
        ok(weir_block_info(blocks[i], &d));
        assert_true(i == 4 ? d.bytes >= sizes[i] : d.bytes == sizes[i]);
        assert_int_equal(d.memory_class, classes[i]);
        assert_int_equal(d.stream.id, i == 2 ? f.known.id : 0);
        assert_int_equal(d.kind, i == 4 ? WEIR_KIND_PINNED : WEIR_KIND_DEVICE);
        assert_int_equal((uintptr_t)blocks[i] % 256, 0);
    }
    weir_onnxruntime_details s = stats(&f);
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

/* Pinned blocks are kept for the next request of their size, which gets one when the device is past its free; they go
 * with the last block of the bridge's. */
static void pinned_memory_serves_again(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, true);
    void *native = weir_stream_native(f.known), *weight = f.table->Alloc(f.table, 1000);
    ort_allocator *pinned = (ort_allocator *)bridge_allocator(f.bridge, WEIR_KIND_PINNED);
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
    weir_client_stats s = {.struct_size = sizeof s};
    ok(weir_client_info(f.a, &s));
    assert_int_equal(s.live, 0);
    assert_int_equal(errors, 0);
    end(&f);
    assert_true(control.stub_count("allocations") <= before);
}

/* Pinned memory is of a small host's runtime. */
static fixture begin_over(weir_runtime **host)
{
    weir_runtime *runtime;
    *host = make_runtime(4 * MIB);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 * MIB, .host = *host};
    ok(weir_runtime_create("cuda:0", &options, &runtime));
    return begin_on(runtime, true);
}

/* Nobody goes without host memory because of what is kept. */
static void pinned_memory_is_given_up(void **state)
{
    (void)state;
    weir_runtime *host;
    fixture f = begin_over(&host);
    weir_client *other = open_client(host, "otto", 0, 0);
    ort_allocator *pinned = (ort_allocator *)bridge_allocator(f.bridge, WEIR_KIND_PINNED);
    void *weight = f.table->Alloc(f.table, 1000), *p = pinned->Alloc(pinned, 3 * MIB);
    pinned->Free(pinned, p);
    ok(weir_stream_synchronize(f.known));
    void *q = allocate(other, 3 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    ok(weir_free(other, q, WEIR_STREAM_HOST));
    p = pinned->Alloc(pinned, 2 * MIB);
    pinned->Free(pinned, p);
    ok(weir_stream_synchronize(f.known));
    p = pinned->Alloc(pinned, 3 * MIB + MIB / 2); /* nor the bridge itself */
    pinned->Free(pinned, p);
    f.table->Free(f.table, weight);
    assert_int_equal(errors + warnings, 0);
    ok(weir_client_destroy(other));
    end(&f);
    check_empty(host);
    ok(weir_runtime_destroy(host));
}

static void *allocate_or_null(weir_client *client, size_t bytes)
{
    void *p = NULL;
    return weir_alloc(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &p) == WEIR_OK ? p : NULL;
}

/* While the stream is captured that a free is behind, nothing can be ordered there: what the device is past goes all
 * the same, and what it is not past is kept on and goes later. */
static void pinned_memory_is_given_up_while_captured(void **state)
{
    (void)state;
    weir_runtime *host;
    fixture f = begin_over(&host);
    weir_client *other = open_client(host, "otto", 0, 0);
    ort_allocator *pinned = (ort_allocator *)bridge_allocator(f.bridge, WEIR_KIND_PINNED);
    void *weight = f.table->Alloc(f.table, 1000);
    for (int late = 0; late < 2; late++) {
        gate g = GATE;
        void *p = pinned->Alloc(pinned, 3 * MIB), *q;
        if (late)
            hold(&f, weir_stream_native(f.known), &g);
        pinned->Free(pinned, p);
        if (!late)
            ok(weir_stream_synchronize(f.known));
        ok(weir_capture_begin(f.known, NULL));
        q = allocate_or_null(other, 3 * MIB);
        assert_int_equal(q != NULL, !late);
        ok(weir_capture_end(f.known, NULL));
        open_gate(&g);
        ok(weir_stream_synchronize(f.known));
        q = q ? q : allocate(other, 3 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
        ok(weir_free(other, q, WEIR_STREAM_HOST));
    }
    assert_int_equal(errors + warnings, 0);
    f.table->Free(f.table, weight);
    ok(weir_client_destroy(other));
    end(&f);
    check_empty(host);
    ok(weir_runtime_destroy(host));
}

typedef struct beside {
    ort_allocator *table;
    void *block;
} beside;

static void *take_beside(void *argument)
{
    beside *b = argument;
    b->block = b->table->Alloc(b->table, 1000);
    return NULL;
}

static weir_block_details details_of(const void *pointer)
{
    weir_block_details d = {.struct_size = sizeof d};
    ok(weir_block_info(pointer, &d));
    return d;
}

/* Kernels that take memory without a stream work on the captured one. Another thread may make a session meanwhile,
 * whose weights are not the graph's to use again. */
static void taken_without_a_stream_for_a_graph(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, true);
    beside b = {.table = f.table};
    weir_capture_pool *graph;
    pthread_t thread;
    ok(weir_capture_pool_create(f.a, &graph));
    ok(weir_capture_begin(f.known, graph));
    void *p = f.table->Alloc(f.table, 1000), *weight = f.table->Reserve(f.table, 1000);
    pthread_create(&thread, NULL, take_beside, &b);
    pthread_join(thread, NULL);
    assert_int_equal(details_of(p).stream.id, f.known.id);
    assert_int_equal(details_of(p).memory_class, WEIR_CLASS_ACTIVATIONS);
    assert_int_equal(details_of(weight).stream.id, 0);
    assert_int_equal(details_of(b.block).stream.id, 0);
    f.table->Free(f.table, p);
    weir_capture_pool_details g = {.struct_size = sizeof g};
    ok(weir_capture_pool_info(graph, &g));
    assert_int_equal(g.held_blocks, 1);
    ok(weir_capture_end(f.known, graph));
    ok(weir_capture_pool_destroy(graph, f.known));
    f.table->Free(f.table, weight);
    f.table->Free(f.table, b.block);
    assert_int_equal(stats(&f).live, 0);
    assert_int_equal(errors + warnings, 0);
    end(&f);
}

static weir_status close_answered;

static void close_meanwhile(weir_log_level level, const char *text, void *user)
{
    (void)level;
    assert_non_null(strstr(text, "tried again"));
    close_answered = weir_onnxruntime_destroy(((fixture *)user)->bridge);
}

/* A free gives up what is kept before the bridge counts as idle: whoever asks until it can be closed does not close it
 * under the last free's feet. The driver refuses, so that the log is heard of it in the midst of that. */
static void idle_when_the_last_free_is_done(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, true);
    ort_allocator *pinned = (ort_allocator *)bridge_allocator(f.bridge, WEIR_KIND_PINNED);
    void *weight = f.table->Alloc(f.table, 1000);
    pinned->Free(pinned, pinned->Alloc(pinned, 5000));
    ok(weir_stream_synchronize(f.known));
    close_answered = WEIR_OK;
    assert_int_equal(weir_log_set(close_meanwhile, &f, WEIR_LOG_WARNING), WEIR_OK);
    control.stub_fail("cuMemFreeHost", 1, 999);
    f.table->Free(f.table, weight);
    assert_int_equal(close_answered, WEIR_ERR_BUSY);
    assert_int_equal(weir_log_set(NULL, NULL, WEIR_LOG_OFF), WEIR_OK);
    end(&f);
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
        if (i == 0) /* no device could have so much */
            assert_int_equal(weir_onnxruntime_explain(f.bridge, 0, text, sizeof text), WEIR_ERR_INVALID);
    }
    assert_int_equal(refusals, 3);
    assert_int_equal(errors, 3);
    assert_non_null(strstr(said, "cuda:0"));
    assert_non_null(strstr(said, "104857600 bytes"));
    assert_non_null(strstr(said, "anna"));
    assert_int_equal(stats(&f).refused, 3);
    assert_int_equal(weir_onnxruntime_explain(f.bridge, 2, text, sizeof text), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(text, "100 MiB"));
    ok(weir_onnxruntime_explain(f.bridge, 3, text, sizeof text));
    void *p = alloc_on(&f, native, BYTES);
    assert_non_null(p);
    f.table->Free(f.table, p);
    end(&f);
}

typedef struct refused_thread {
    const fixture *f;
    pthread_barrier_t before, after;
    weir_status explained;
} refused_thread;

static void *refused_then_asked(void *argument)
{
    refused_thread *t = argument;
    char text[64] = "a wrong shape";
    if (setjmp(refused_at) == 0)
        (void)t->f->table->Alloc(t->f->table, 100 * MIB);
    pthread_barrier_wait(&t->before);
    pthread_barrier_wait(&t->after);
    t->explained = weir_onnxruntime_explain(t->f->bridge, 0, text, sizeof text);
    return NULL;
}

/* A thread remembers its last refusal longer than a bridge lives; the next bridge may lie in the same place. */
static void a_refusal_belongs_to_its_bridge(void **state)
{
    (void)state;
    fixture f = begin(6 * MIB, true);
    weir_onnxruntime_options o = fake_options(f.a, f.known);
    refused_thread t = {.f = &f, .explained = WEIR_ERR_OUT_OF_MEMORY};
    pthread_t thread;
    pthread_barrier_init(&t.before, NULL, 2);
    pthread_barrier_init(&t.after, NULL, 2);
    pthread_create(&thread, NULL, refused_then_asked, &t);
    pthread_barrier_wait(&t.before);
    assert_int_equal(stats(&f).refused, 1);
    ok(weir_onnxruntime_destroy(f.bridge));
    ok(weir_onnxruntime_create(&o, &f.bridge));
    pthread_barrier_wait(&t.after);
    pthread_join(thread, NULL);
    assert_int_equal(t.explained, WEIR_OK);
    pthread_barrier_destroy(&t.before);
    pthread_barrier_destroy(&t.after);
    end(&f);
}

/* Each call of the driver's on the way of a request fails: it is refused, and nothing is lost. */
static void the_driver_fails(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuStreamGetCtx", "cuStreamGetId", "cuEventRecord", "cuStreamWaitEvent"};
    fixture f = begin(64 * MIB, false);
    volatile int refusals = 0;
    void *volatile natives
        [8]; /* all kept: the next one would have the address of one that ends, which the bridge knows */
    for (volatile size_t i = 0; i < 4; i++)
        for (volatile int nth = 1; nth <= 2; nth++) {
            void *volatile native = natives[2 * i + (size_t)nth - 1] = make_native(&f);
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
        }
    for (int i = 0; i < 8; i++)
        drop_native(&f, natives[i]);
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

/* Runs of blocks. */
typedef struct pooled {
    weir_block_pool *pool;
    weir_block_pool_member *member;
    weir_onnxruntime *bridge;
    ort_allocator *table;
} pooled;

static pooled open_pool(const fixture *f)
{
    pooled p;
    weir_block_pool_options options = {.struct_size = sizeof options, .bytes = 4096, .count = 256};
    ok(weir_block_pool_create(f->b, &options, &p.pool));
    ok(weir_block_pool_member_create(p.pool, f->a, 200, &p.member));
    weir_onnxruntime_options o = fake_options(f->a, f->known);
    o.blocks = p.member;
    ok(weir_onnxruntime_create(&o, &p.bridge));
    p.bridge->throw_bad_alloc = jump;
    p.table = (ort_allocator *)bridge_allocator(p.bridge, WEIR_KIND_DEVICE);
    return p;
}

static uint32_t held(const pooled *p)
{
    weir_block_pool_member_stats s = WEIR_INIT(weir_block_pool_member_stats);
    ok(weir_block_pool_member_info(p->member, &s));
    return s.held;
}

static void close_pool(const fixture *f, pooled *p)
{
    ok(weir_onnxruntime_destroy(p->bridge));
    assert_int_equal(held(p), 0);
    ok(weir_stream_synchronize(f->known));
    ok(weir_block_pool_member_destroy(p->member));
    ok(weir_block_pool_destroy(p->pool));
}

static void blocks_of_a_pool(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, true);
    pooled pool = open_pool(&f);
    ort_allocator *table = pool.table;
    weir_block_pool_stats stats = WEIR_INIT(weir_block_pool_stats);
    ok(weir_block_pool_info(pool.pool, &stats, NULL, 0, NULL));
    const weir_block_pool_view view = stats.view;
    void *theirs = make_native(&f), *known = weir_stream_native(f.known);
    void *p = table->AllocOnStream(table, 4097, fake_stream(&known));
    void *q = table->AllocOnStream(table, 40000, fake_stream(&theirs)), *r = table->Alloc(table, 1);
    const void *all[] = {p, q, r};
    for (int i = 0; i < 3; i++)
        assert_true(weir_block_pool_index(&view, all[i]) != WEIR_BLOCK_POOL_NONE);
    assert_int_equal(held(&pool), 2 + 10 + 1);
    table->Free(table, (char *)p + 4096);
    table->Free(table, p);
    table->Free(table, p);
    assert_int_equal(warnings, 2);
    table->Free(table, q);
    for (volatile size_t blocks = 201; blocks <= 300; blocks += 99) /* beyond the cap, and beyond the pool */
        if (setjmp(refused_at) == 0) {
            (void)table->Alloc(table, blocks * 4096);
            fail();
        }
    assert_non_null(strstr(said, "300 blocks"));
    table->Free(table, r);
    close_pool(&f, &pool);
    drop_native(&f, theirs);
    end(&f);
}

static weir_onnxruntime_details pool_stats(const pooled *p)
{
    weir_onnxruntime_details s = WEIR_INIT(weir_onnxruntime_details);
    ok(weir_onnxruntime_info(p->bridge, &s));
    return s;
}

/* On a stream that only ONNX Runtime knows, what is freed waits: a pointer that begins no run is not taken for one. */
static void inside_a_run_of_blocks(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, false);
    pooled pool = open_pool(&f);
    ort_allocator *table = pool.table;
    void *theirs = make_native(&f), *p = table->AllocOnStream(table, 40000, fake_stream(&theirs));
    table->Free(table, (char *)p + 256);
    table->Free(table, (char *)p + 4096);
    assert_int_equal(warnings, 2);
    assert_int_equal(pool_stats(&pool).foreign, 2);
    assert_int_equal(pool_stats(&pool).live, 1);
    fails(WEIR_ERR_BUSY, weir_onnxruntime_destroy(pool.bridge));
    table->Free(table, p);
    assert_int_equal(pool_stats(&pool).live, 0);
    assert_int_equal(errors, 0);
    close_pool(&f, &pool);
    drop_native(&f, theirs);
    end(&f);
}

/* A block whose free fails stays, and is freed like any other later. */
static void a_run_whose_free_fails_is_freed_later(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, true);
    pooled pool = open_pool(&f);
    ort_allocator *table = pool.table;
    void *known = weir_stream_native(f.known), *p = table->AllocOnStream(table, 5000, fake_stream(&known));
    control.stub_fail("cuEventRecord", 1, 999);
    table->Free(table, p);
    control.stub_fail("cuEventRecord", 0, 0);
    assert_int_equal(errors, 1);
    assert_int_equal(pool_stats(&pool).live, 1);
    assert_int_equal(held(&pool), 2);
    table->Free(table, p);
    assert_int_equal(errors, 1);
    assert_int_equal(warnings, 0);
    assert_int_equal(pool_stats(&pool).live, 0);
    assert_int_equal(held(&pool), 0);
    close_pool(&f, &pool);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(foreign_pointers_are_ignored),
        cmocka_unit_test(blocks_of_the_same_client_stay),
        cmocka_unit_test(each_allocator_has_its_own),
        cmocka_unit_test(sizes_classes_and_kinds),
        cmocka_unit_test(pinned_memory_serves_again),
        cmocka_unit_test(pinned_memory_is_given_up),
        cmocka_unit_test(pinned_memory_is_given_up_while_captured),
        cmocka_unit_test(taken_without_a_stream_for_a_graph),
        cmocka_unit_test(idle_when_the_last_free_is_done),
        cmocka_unit_test(refusals_are_told),
        cmocka_unit_test(a_refusal_belongs_to_its_bridge),
        cmocka_unit_test(the_driver_fails),
        cmocka_unit_test(waiting_fails),
        cmocka_unit_test(blocks_of_a_pool),
        cmocka_unit_test(inside_a_run_of_blocks),
        cmocka_unit_test(a_run_whose_free_fails_is_freed_later),
    };
    return cmocka_run_group_tests(tests, rig_find_stub, NULL);
}
