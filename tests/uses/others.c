/* Streams that somebody else made: registered, used, gone, and their address another's. */
#include "core.h"
#include "lender.h"
#include "runtime/runtime.h"

enum { BUDGET = 8 << 20, BLOCK = 1 << 20, CACHED = 100 << 10, STREAMS = 1024 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream theirs; /* another thread's */
    gate gate;
} fixture;

static weir_runtime *make_lender_runtime(void)
{
    weir_runtime *runtime;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    ok(wi_runtime_create_over(lender(), 0, &options, &runtime));
    return runtime;
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    atomic_store(&lender_records, 0); /* whatever a test that failed has left */
    atomic_store(&lender_misused, 0);
    f->runtime = make_lender_runtime();
    f->client = open_client(f->runtime, "one", 0, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    assert_int_equal(atomic_load(&lender_records), 0);
    assert_int_equal(atomic_load(&lender_misused), 0);
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static weir_stream enter(fixture *f, lent *l)
{
    weir_stream stream;
    ok(weir_stream_register(f->runtime, l, &stream));
    assert_true(stream.id != 0);
    return stream;
}

/* Freed, and not for everybody yet. */
static uint64_t pending(fixture *f)
{
    snapshot s = take_snapshot(f->runtime);
    return unpassed(&s);
}

static weir_status launch(fixture *f, weir_stream stream, void *pointer)
{
    weir_launch *launch;
    weir_use use = {{pointer, 0}, WEIR_ACCESS_READ};
    weir_status status = weir_launch_begin(f->runtime, stream, &use, 1, &launch);
    return status == WEIR_OK ? weir_launch_end(launch) : status;
}

/* Nothing takes the id for a stream. */
static void is_no_stream(fixture *f, weir_stream stream)
{
    char byte;
    void *p = allocate(f->client, 256, WEIR_STREAM_HOST, WEIR_CLASS_KV), *q = (void *)f;
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_unregister(stream));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_release(stream));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(stream));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_begin(stream, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_end(stream, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_fill(f->runtime, &byte, 0, 1, stream));
    fails(WEIR_ERR_STREAM_MISUSE, launch(f, stream, p));
    fails(WEIR_ERR_STREAM_MISUSE, weir_use_record(f->runtime, (weir_block){.pointer = p}, stream));
    fails(WEIR_ERR_STREAM_MISUSE, weir_alloc(f->client, 256, stream, WEIR_CLASS_KV, &q));
    assert_null(q);
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->client, p, stream));
    assert_null(weir_stream_native(stream));
    unchanged(f->runtime, before);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
}

/* Work and frees on it are ordered as on an own one. */
static void frees_wait_for_its_work(void **state)
{
    fixture *f = *state;
    lent one = {.identity = 1}, two = {.identity = 2};
    weir_stream a = enter(f, &one), b = enter(f, &two);
    gate ga = GATE, gb = GATE;
    assert_ptr_equal(weir_stream_native(a), &one);
    assert_ptr_equal(weir_stream_native(b), &two);
    void *p = allocate(f->client, BLOCK, a, WEIR_CLASS_KV), *q = allocate(f->client, BLOCK, a, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &ga, a));
    ok(weir_call(f->runtime, pass_gate, &gb, b));
    ok(launch(f, b, q));
    ok(weir_free(f->client, p, a));
    open_gate(&ga);
    ok(weir_stream_synchronize(a));
    assert_int_equal(pending(f), 0);
    ok(weir_free(f->client, q, a));
    assert_int_equal(pending(f), BLOCK);
    open_gate(&gb);
    ok(weir_stream_synchronize(b));
    assert_int_equal(pending(f), 0);
    ok(weir_stream_unregister(a));
    ok(weir_stream_unregister(b));
}

static void registered_twice(void **state)
{
    fixture *f = *state;
    lent one = {.identity = 1};
    weir_stream a = enter(f, &one), again = enter(f, &one), third = enter(f, &one);
    assert_int_equal(a.id, again.id);
    assert_int_equal(a.id, third.id);
    assert_int_equal(atomic_load(&lender_records), 1);
    ok(weir_stream_unregister(a));
    ok(weir_stream_unregister(a));
    assert_ptr_equal(weir_stream_native(a), &one);
    ok(weir_stream_synchronize(a));
    ok(weir_stream_unregister(a));
    is_no_stream(f, a);
    again = enter(f, &one); /* the same stream, but another registration */
    assert_int_not_equal(a.id, again.id);
    is_no_stream(f, a);
    ok(weir_stream_unregister(again));
}

static void note(void *user)
{
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    atomic_store((atomic_bool *)user, true);
}

static void the_end_waits_for_the_work(void **state)
{
    fixture *f = *state;
    lent one = {.identity = 1};
    atomic_bool done = false;
    weir_stream a = enter(f, &one), b = enter(f, &one);
    ok(weir_call(f->runtime, note, &done, a));
    ok(weir_stream_unregister(a));
    assert_true(atomic_load(&done)); /* each of them */
    void *p = allocate(f->client, BLOCK, b, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, note, &done, b));
    ok(weir_free(f->client, p, b));
    ok(weir_stream_unregister(b));
    weir_stats stats = {.struct_size = sizeof stats}; /* a snapshot would reap */
    size_t count;
    wi_ledger_snapshot(&f->runtime->ledger, &stats, NULL, 0, 0, &count);
    assert_int_equal(stats.pending, 0);
}

/* A stream ends without a word, and the next one has its address. */
static void an_address_that_was_another_stream(void **state)
{
    fixture *f = *state;
    lent one = {.identity = 1};
    gate g = GATE;
    weir_stream old = enter(f, &one), again;
    void *p = allocate(f->client, BLOCK, old, WEIR_CLASS_KV), *q = allocate(f->client, BLOCK, old, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &g, old));
    ok(weir_free(f->client, p, old));
    ok(launch(f, old, q)); /* pending, while what was freed before is in the stream's order */
    one.identity = 2;
    ok(weir_stream_register(f->runtime, &one, &again));
    assert_int_not_equal(old.id, again.id);
    is_no_stream(f, old);
    ok(weir_stream_synchronize(again)); /* the old one is held up */
    ok(weir_free(f->client, q, again));
    assert_int_equal(pending(f), 2 * BLOCK); /* what was put on the old one still counts */
    void *r =
        allocate(f->client, BLOCK, again, WEIR_CLASS_KV); /* it has the place, and not what is in the other's order */
    assert_true(r != p && r != q);
    ok(weir_free(f->client, r, again));
    ok(weir_runtime_trim(f->runtime, NULL, NULL)); /* asks for a point behind all work */
    assert_int_equal(pending(f), 2 * BLOCK);
    open_gate(&g);
    for (int i = 0; i < 1000 && pending(f) > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    assert_int_equal(pending(f), 0);
    ok(weir_stream_unregister(again));
    is_no_stream(f, again);
}

/* The same for a block in the thread's cache: no stream gets it before the old stream's work is done. */
static void thread_cached_where_the_stream_ended(void **state)
{
    fixture *f = *state;
    lent one = {.identity = 1};
    gate g = GATE;
    weir_stream old = enter(f, &one), again;
    void *p = allocate(f->client, CACHED, old, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &g, old));
    ok(weir_free(f->client, p, old));
    assert_int_equal(take_snapshot(f->runtime).device.thread_cached, CACHED);
    one.identity = 2;
    ok(weir_stream_register(f->runtime, &one, &again));
    weir_request all = {.struct_size = sizeof all,
                        .bytes = BUDGET,
                        .flags = WEIR_ALLOC_NO_WAIT,
                        .stream = again,
                        .memory_class = WEIR_CLASS_KV};
    weir_block block;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->client, &all, &block));
    open_gate(&g);
    void *q = allocate(f->client, BUDGET, again, WEIR_CLASS_KV);
    ok(weir_free(f->client, q, again));
    ok(weir_stream_unregister(again));
}

/* What a thread does with blocks that its cache keeps on a stream, which another one unregisters just then. */
static struct {
    weir_stream stream;
    void *native;
    pthread_t thread;
    atomic_bool ended;
    bool too_early;
    bool (*is_captured)(wi_device *device, void *stream); /* the driver's own */
} ending;

static void *end_stream(void *user)
{
    (void)user;
    ok(weir_stream_unregister(ending.stream));
    atomic_store(&ending.ended, true);
    return NULL;
}

static bool end_while_asked(wi_device *device, void *stream)
{
    if (stream == ending.native) {
        ending.native = NULL;
        assert_int_equal(pthread_create(&ending.thread, NULL, end_stream, NULL), 0);
        for (int i = 0; i < 50 && !atomic_load(&ending.ended); i++)
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        ending.too_early = atomic_load(&ending.ended);
    }
    return ending.is_captured(device, stream);
}

static void the_end_waits_for_threads_in_between(void **state)
{
    (void)state;
    static wi_driver driver;
    driver = *lender();
    ending.is_captured = driver.stream_capturing;
    driver.stream_capturing = end_while_asked;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    fixture f;
    lent one = {.identity = 1};
    ok(wi_runtime_create_over(&driver, 0, &options, &f.runtime));
    f.client = open_client(f.runtime, "one", 0, 0);
    ending.stream = enter(&f, &one);
    ok(weir_free(f.client, allocate(f.client, CACHED, ending.stream, WEIR_CLASS_KV), ending.stream));
    ending.native = wi_streams_entry(&f.runtime->streams, ending.stream)->stream;
    void *all = allocate(f.client, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_null(ending.native); /* it was asked about */
    pthread_join(ending.thread, NULL);
    assert_false(ending.too_early);
    ok(weir_free(f.client, all, WEIR_STREAM_HOST));
    ok(weir_client_destroy(f.client));
    ok(weir_runtime_destroy(f.runtime));
}

static void bad_calls(void **state)
{
    fixture *f = *state;
    lent far = {.identity = 1, .elsewhere = true}, near = {.identity = 2};
    weir_stream own, registered = enter(f, &near), out = {7};
    ok(weir_stream_acquire(f->runtime, &own));
    for (uintptr_t special = 0; special <= 2; special++) {
        fails(WEIR_ERR_INVALID, weir_stream_register(f->runtime, (void *)special, &out));
        assert_int_equal(out.id, 0);
        detail_names("weir_stream_default");
    }
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_register(f->runtime, &far, &out));
    fails(WEIR_ERR_INVALID, weir_stream_register(f->runtime, weir_stream_native(own), &out));
    assert_int_equal(out.id, 0);
    fails(WEIR_ERR_INVALID, weir_stream_register(NULL, &near, &out));
    fails(WEIR_ERR_INVALID, weir_stream_register(f->runtime, &near, NULL));
    fails(WEIR_ERR_INVALID, weir_stream_unregister(WEIR_STREAM_HOST));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_unregister(own));
    detail_names("release");
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_release(registered));
    detail_names("unregister");
    ok(weir_stream_release(own));
    fails(WEIR_ERR_INVALID,
          weir_stream_register(f->runtime, lender()->stream_native(f->runtime->streams.idle[0]), &out));
    ok(weir_stream_unregister(registered));
    ok(weir_stream_acquire(f->runtime, &own)); /* at the place of the registered one or not: neither is the other */
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_unregister(registered));
    ok(weir_stream_release(own));
}

static void streams_of_another_runtime(void **state)
{
    fixture *f = *state;
    lent one = {.identity = 1};
    weir_runtime *other = make_runtime(BUDGET);
    weir_stream theirs, out;
    ok(weir_stream_acquire(other, &theirs));
    void *p = allocate(f->client, 256, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->client, p, theirs));
    fails(WEIR_ERR_STREAM_MISUSE, launch(f, theirs, p));
    detail_names("another runtime's");
    fails(WEIR_ERR_UNSUPPORTED, weir_stream_register(other, &one, &out)); /* the host's streams are weir's own */
    assert_int_equal(out.id, 0);
    fails(WEIR_ERR_UNSUPPORTED, weir_stream_default(other, WEIR_DEFAULT_STREAM_LEGACY, &out));
    weir_stream ours = enter(f, &one);
    char byte;
    fails(WEIR_ERR_STREAM_MISUSE, weir_fill(other, &byte, 0, 1, ours));
    ok(weir_stream_unregister(ours));
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    ok(weir_stream_release(theirs));
    ok(weir_runtime_destroy(other));
}

/* A runtime with a registered stream stays. */
static void destroying(void **state)
{
    (void)state;
    lent one = {.identity = 1};
    weir_stream a;
    weir_runtime *runtime = make_lender_runtime();
    ok(weir_stream_register(runtime, &one, &a));
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(runtime));
    detail_names("registered");
    ok(weir_stream_unregister(a));
    ok(weir_runtime_destroy(runtime));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_unregister(a));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_begin(a, NULL));
}

/* Own and registered ones share the places: as many as there are, and each again when it is free. */
static void places_serve_again(void **state)
{
    fixture *f = *state;
    static lent many[STREAMS];
    static weir_stream ids[STREAMS];
    weir_stream more;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < STREAMS; i++) {
            many[i].identity = (uint64_t)i + 1;
            if ((i + round) % 8 == 0)
                ok(weir_stream_acquire(f->runtime, &ids[i]));
            else
                ids[i] = enter(f, &many[i]);
        }
        static lent last = {.identity = STREAMS + 1};
        fails(WEIR_ERR_BUSY, weir_stream_register(f->runtime, &last, &more));
        assert_int_equal(more.id, 0);
        detail_names("1024");
        fails(WEIR_ERR_BUSY, weir_stream_acquire(f->runtime, &more));
        fails(WEIR_ERR_BUSY, weir_stream_default(f->runtime, WEIR_DEFAULT_STREAM_LEGACY, &more));
        ok(weir_stream_register(f->runtime, &many[1], &more)); /* it has a place */
        assert_int_equal(more.id, ids[1].id);
        ok(weir_stream_unregister(more));
        for (int i = 0; i < STREAMS; i++)
            ok((i + round) % 8 == 0 ? weir_stream_release(ids[i]) : weir_stream_unregister(ids[i]));
        for (int i = 0; i < STREAMS; i += 100)
            fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(ids[i]));
    }
    assert_int_equal(f->runtime->streams.idle_used, STREAMS / 8); /* none was made that was there */
}

/* Default streams -------------------------------------------------------------------------------------------------- */

typedef struct elsewhere {
    fixture *f;
    weir_stream first, own;
    weir_status used, asked, left;
} elsewhere;

static void *on_another_thread(void *user)
{
    elsewhere *e = user;
    e->used = weir_stream_synchronize(e->first);
    e->asked = weir_stream_default(e->f->runtime, WEIR_DEFAULT_STREAM_PER_THREAD, &e->own);
    e->left = e->asked == WEIR_OK ? weir_stream_unregister(e->own) : e->asked;
    return NULL;
}

static void default_streams(void **state)
{
    fixture *f = *state;
    weir_stream legacy, again, mine, out = {7};
    fails(WEIR_ERR_INVALID, weir_stream_default(f->runtime, (weir_default_stream)2, &out));
    assert_int_equal(out.id, 0);
    fails(WEIR_ERR_INVALID, weir_stream_default(NULL, WEIR_DEFAULT_STREAM_LEGACY, &out));
    fails(WEIR_ERR_INVALID, weir_stream_default(f->runtime, WEIR_DEFAULT_STREAM_LEGACY, NULL));
    ok(weir_stream_default(f->runtime, WEIR_DEFAULT_STREAM_LEGACY, &legacy));
    ok(weir_stream_default(f->runtime, WEIR_DEFAULT_STREAM_LEGACY, &again));
    ok(weir_stream_default(f->runtime, WEIR_DEFAULT_STREAM_PER_THREAD, &mine));
    assert_int_equal(legacy.id, again.id);
    assert_int_not_equal(legacy.id, mine.id);
    assert_int_equal(atomic_load(&lender_records), 2);
    void *p = allocate(f->client, BLOCK, legacy, WEIR_CLASS_KV);
    ok(launch(f, mine, p));
    ok(weir_free(f->client, p, legacy));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_begin(legacy, NULL));
    detail_names("legacy");
    fails(WEIR_ERR_INVALID, weir_capture_end(legacy, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_release(legacy));
    /* The per-thread one is this thread's alone. */
    elsewhere e = {.f = f, .first = mine};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, on_another_thread, &e), 0);
    pthread_join(thread, NULL);
    assert_int_equal(e.used, WEIR_ERR_STREAM_MISUSE);
    assert_int_equal(e.asked, WEIR_OK);
    assert_int_equal(e.left, WEIR_OK);
    assert_int_not_equal(e.own.id, mine.id);
    ok(weir_stream_unregister(mine));
    ok(weir_stream_unregister(again));
    ok(weir_stream_unregister(legacy));
    is_no_stream(f, legacy);
    is_no_stream(f, mine);
}

static void *zeroed_on_the_threads_own(void *user)
{
    fixture *f = user;
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .flags = WEIR_ALLOC_ZEROED};
    weir_block block = {NULL, 0};
    if (weir_stream_default(f->runtime, WEIR_DEFAULT_STREAM_PER_THREAD, &request.stream) != WEIR_OK ||
        weir_call(f->runtime, pass_gate, &f->gate, request.stream) != WEIR_OK ||
        weir_alloc_with(f->client, &request, &block) != WEIR_OK)
        return NULL;
    f->theirs = request.stream;
    return block.pointer;
}

/* Any thread frees and uses a block that was zeroed on another thread's stream, and nobody has it before the zeros. */
static void zeros_on_another_threads_stream(void **state)
{
    fixture *f = *state;
    pthread_t thread;
    void *p;
    lent one = {.identity = 1};
    weir_stream a = enter(f, &one);
    for (int used = 0; used < 2; used++) {
        f->gate = (gate)GATE;
        assert_int_equal(pthread_create(&thread, NULL, zeroed_on_the_threads_own, f), 0);
        pthread_join(thread, &p);
        assert_non_null(p);
        if (used)
            ok(launch(f, a, p));
        ok(weir_free(f->client, p, WEIR_STREAM_HOST));
        assert_int_equal(pending(f), BLOCK);
        open_gate(&f->gate);
        while (pending(f) > 0)
            ;
        ok(weir_stream_unregister(f->theirs));
    }
    ok(weir_stream_unregister(a));
}

static void *frees_on_the_threads_own(void *user)
{
    fixture *f = user;
    weir_stream again;
    void *p;
    bool good = weir_stream_default(f->runtime, WEIR_DEFAULT_STREAM_PER_THREAD, &f->theirs) == WEIR_OK &&
                weir_stream_default(f->runtime, WEIR_DEFAULT_STREAM_PER_THREAD, &again) == WEIR_OK &&
                weir_alloc(f->client, BLOCK, f->theirs, WEIR_CLASS_KV, &p) == WEIR_OK &&
                weir_call(f->runtime, pass_gate, &f->gate, f->theirs) == WEIR_OK &&
                weir_free(f->client, p, f->theirs) == WEIR_OK;
    return good ? NULL : user;
}

/* Its stream can be unregistered by any other, and what was freed on it is final then. */
static void a_thread_that_has_ended(void **state)
{
    fixture *f = *state;
    pthread_t thread, opener;
    void *wrong;
    f->gate = (gate)GATE;
    assert_int_equal(pthread_create(&thread, NULL, frees_on_the_threads_own, f), 0);
    pthread_join(thread, &wrong);
    assert_null(wrong);
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(f->theirs));
    ok(weir_stream_unregister(f->theirs)); /* it was registered twice */
    assert_int_equal(pending(f), BLOCK);
    assert_int_equal(atomic_load(&lender_records), 1);
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &f->gate), 0);
    ok(weir_stream_unregister(f->theirs));
    weir_stats stats = {.struct_size = sizeof stats}; /* a snapshot would reap */
    size_t count;
    wi_ledger_snapshot(&f->runtime->ledger, &stats, NULL, 0, 0, &count);
    assert_int_equal(stats.pending, 0);
    pthread_join(opener, NULL);
    is_no_stream(f, f->theirs);
}

/* Captures that the driver sees ------------------------------------------------------------------------------------ */

static void the_driver_tells_of_a_capture(void **state)
{
    fixture *f = *state;
    lent one = {.identity = 1};
    weir_stream a = enter(f, &one);
    weir_launch *open;
    void *p = allocate(f->client, BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    weir_use use = {{p, 0}, WEIR_ACCESS_READ};
    ok(weir_launch_begin(f->runtime, a, &use, 1, &open));
    atomic_store(&one.captured, true);
    fails(WEIR_ERR_BUSY, weir_capture_begin(a, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_launch_end(open));
    fails(WEIR_ERR_STREAM_MISUSE, launch(f, a, p));
    detail_names("weir_launch_begin");
    fails(WEIR_ERR_STREAM_MISUSE, weir_use_record(f->runtime, (weir_block){.pointer = p}, a));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(a));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_unregister(a));
    fails(WEIR_ERR_INVALID, weir_capture_end(a, NULL)); /* nobody began it with weir */
    atomic_store(&one.captured, false);
    ok(weir_launch_end(open));
    ok(weir_capture_begin(a, NULL));
    atomic_store(&one.captured, true); /* the usual order: weir's around the driver's */
    fails(WEIR_ERR_BUSY, weir_capture_begin(a, NULL));
    ok(weir_capture_end(a, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, launch(f, a, p));
    atomic_store(&one.captured, false);
    ok(launch(f, a, p));
    ok(weir_free(f->client, p, a));
    ok(weir_stream_unregister(a));
}

/* A captured stream that ends, whose address is another's: that one is not captured. */
static void a_capture_is_of_one_stream(void **state)
{
    fixture *f = *state;
    lent one = {.identity = 1};
    weir_stream old = enter(f, &one);
    ok(weir_capture_begin(old, NULL));
    one.identity = 2;
    weir_stream again = enter(f, &one);
    ok(weir_stream_synchronize(again));
    fails(WEIR_ERR_STREAM_MISUSE, weir_capture_end(old, NULL));
    ok(weir_stream_unregister(again));
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    fixture *f;
    lent *lents;
    unsigned seed;
    int wrong;
} worker;

static void *come_and_go(void *user)
{
    worker *w = user;
    for (int i = 0; i < (UNDER_TSAN ? 300 : 2000); i++) {
        lent *l = &w->lents[rand_r(&w->seed) % 3];
        weir_stream stream, own;
        void *p;
        if (weir_stream_register(w->f->runtime, l, &stream) != WEIR_OK) {
            w->wrong++;
            continue;
        }
        w->wrong += weir_stream_native(stream) != l;
        if (weir_alloc(w->f->client, 4096, stream, WEIR_CLASS_KV, &p) == WEIR_OK)
            w->wrong += weir_free(w->f->client, p, stream) != WEIR_OK;
        if (i % 8 == 0)
            w->wrong += weir_stream_acquire(w->f->runtime, &own) != WEIR_OK || weir_stream_release(own) != WEIR_OK;
        w->wrong += weir_stream_unregister(stream) != WEIR_OK;
    }
    return NULL;
}

static void many_threads_on_few_streams(void **state)
{
    fixture *f = *state;
    static lent lents[3] = {{.identity = 1}, {.identity = 2}, {.identity = 3}};
    worker workers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){f, lents, (unsigned)i + 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    assert_false(wi_streams_any(&f->runtime->streams));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(frees_wait_for_its_work),
        CASE(registered_twice),
        CASE(the_end_waits_for_the_work),
        CASE(an_address_that_was_another_stream),
        CASE(thread_cached_where_the_stream_ended),
        CASE(the_end_waits_for_threads_in_between),
        CASE(bad_calls),
        CASE(streams_of_another_runtime),
        cmocka_unit_test(destroying),
        CASE(places_serve_again),
        CASE(default_streams),
        CASE(zeros_on_another_threads_stream),
        CASE(a_thread_that_has_ended),
        CASE(the_driver_tells_of_a_capture),
        CASE(a_capture_is_of_one_stream),
        CASE(many_threads_on_few_streams),
    };
    return cmocka_run_group_tests_name("others", tests, NULL, NULL);
}
