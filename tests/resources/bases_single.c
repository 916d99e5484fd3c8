/* The resources direct and async from the inside: what is found and remembered, what happens while the driver gives an
 * address out again, and what the books say of a driver that refuses. */
#include "bases.h"

/* A driver of the test's own -------------------------------------------------------------------------------------- */

/* The faulty one with some calls led through here. */
static wi_driver driver;
static wi_device *device;
static struct {
    void *address;           /* the next allocation answers it; and its release keeps it */
    size_t refused_releases; /* that many, from the next on */
    bool full, full_until_trim, refuse_fill, refuse_held;
    void (*released)(void); /* runs once, when the driver has taken a piece back and not yet answered */
    void (*asked)(void);    /* the same when the pool was asked what it has */
} script;

static weir_status my_open(int ordinal, wi_device **out)
{
    weir_status status = faulty_driver.open(ordinal, out);
    device = *out;
    return status;
}

static weir_status refusal(void)
{
    return weir_fail(WEIR_DRIVER, "the script refuses");
}

static _Alignas(4096) char shelf[65536];

static weir_status my_allocate(wi_device *d, weir_kind kind, uint64_t bytes, void **address)
{
    if (script.full)
        return weir_fail(WEIR_OUT_OF_MEMORY, "the script is full");
    if (!script.address)
        return faulty_driver.allocate(d, kind, bytes, address);
    *address = script.address;
    script.address = NULL;
    return WEIR_OK;
}

static weir_status my_release(wi_device *d, weir_kind kind, void *address, uint64_t bytes)
{
    if (script.refused_releases > 0 && script.refused_releases--)
        return refusal();
    bool mine = (char *)address >= shelf && (char *)address < shelf + sizeof shelf;
    return mine ? WEIR_OK : faulty_driver.release(d, kind, address, bytes);
}

static void run_once(void (**hook)(void))
{
    void (*fn)(void) = *hook;
    *hook = NULL;
    if (fn)
        fn();
}

static weir_status my_pool_allocate(wi_device *d, uint64_t bytes, void *stream, void **address)
{
    if (script.full || script.full_until_trim)
        return weir_fail(WEIR_OUT_OF_MEMORY, "the script is full");
    return faulty_driver.pool_allocate(d, bytes, stream, address);
}

static weir_status my_pool_release(wi_device *d, void *address, uint64_t bytes, void *stream)
{
    if (script.refused_releases > 0 && script.refused_releases--)
        return refusal();
    weir_status status = faulty_driver.pool_release(d, address, bytes, stream);
    run_once(&script.released);
    return status;
}

static weir_status my_pool_trim(wi_device *d, uint64_t keep, uint64_t *held)
{
    script.full_until_trim = false;
    return faulty_driver.pool_trim(d, keep, held);
}

static weir_status my_pool_held(wi_device *d, uint64_t *held)
{
    weir_status status = script.refuse_held ? refusal() : faulty_driver.pool_held(d, held);
    run_once(&script.asked);
    return status;
}

static weir_status my_fill(wi_device *d, void *to, uint8_t value, size_t bytes, void *stream)
{
    return script.refuse_fill ? refusal() : faulty_driver.fill(d, to, value, bytes, stream);
}

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *one, *two;
    weir_stream a, b;
} fixture;

static fixture *make(const char *resource, uint64_t budget)
{
    fixture *f = calloc(1, sizeof *f);
    faults_reset(-1);
    memset(&script, 0, sizeof script);
    driver = faulty_driver;
    driver.open = my_open;
    driver.allocate = my_allocate;
    driver.release = my_release;
    driver.pool_allocate = my_pool_allocate;
    driver.pool_release = my_pool_release;
    driver.pool_trim = my_pool_trim;
    driver.pool_held = my_pool_held;
    driver.fill = my_fill;
    f->runtime = make_over(&driver, resource, budget);
    f->one = open_client(f->runtime, "one", 0, 0);
    f->two = open_client(f->runtime, "two", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    return f;
}

static void end(fixture *f)
{
    ok(weir_client_close(f->one));
    ok(weir_client_close(f->two));
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    end_over(f->runtime);
    free(f);
}

static uint64_t pool_held(void)
{
    uint64_t held;
    ok(wi_host_driver.pool_held(device, &held));
    return held;
}

/* Finding ---------------------------------------------------------------------------------------------------------- */

static void what_lies_where(void **state)
{
    (void)state;
    fixture *f = make("direct", MIB);
    weir_request request = {.size = sizeof request, .bytes = 1000, .alignment = 4096};
    weir_block block;
    script.address = shelf + 256; /* the block begins at 4096, within 1024 + 4096 - 256 bytes */
    ok(weir_alloc_with(f->one, &request, &block));
    char *p = block.pointer;
    assert_ptr_equal(p, shelf + 4096);
    weir_stats s = stats_of(f->runtime);
    assert_int_equal(s.live, 1024);
    assert_int_equal(s.held, 1024 + 4096 - 256);
    assert_int_equal(details_of(p + 1023).offset, 1023);
    assert_int_equal(details_of(p + 1023).charged, 1024);
    weir_block_details d = WEIR_INIT(weir_block_details);
    assert_int_equal(details_of(p - 1).state, WEIR_BLOCK_FREE); /* what alignment lost */
    fails(WEIR_FOREIGN, weir_block_info(shelf + 255, &d));
    fails(WEIR_FOREIGN, weir_block_info(shelf + 256 + 1024 + 4096 - 256, &d));
    fails(WEIR_INTERIOR, weir_free(f->one, p + 1, WEIR_STREAM_HOST));
    fails(WEIR_FOREIGN, weir_free(f->one, p - 256, WEIR_STREAM_HOST));
    fails(WEIR_FOREIGN, weir_free(f->two, p, WEIR_STREAM_HOST));
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    fails(WEIR_FOREIGN, weir_block_info(p, &d));
    fails(WEIR_DOUBLE_FREE, weir_free(f->one, p, WEIR_STREAM_HOST));
    script.address = shelf + 4096 - 512;
    request = (weir_request){.size = sizeof request, .bytes = 1024};
    ok(weir_alloc_with(f->one, &request, &block));
    fails(WEIR_INTERIOR, weir_free(f->one, p, WEIR_STREAM_HOST)); /* it serves again */
    ok(weir_free_block(f->one, block, WEIR_STREAM_HOST));
    end(f);
}

/* What one runtime freed may be another's: it is that one's then. */
static void an_address_that_went_to_another_runtime(void **state)
{
    (void)state;
    fixture *f = make("direct", MIB);
    weir_runtime *other = make_over(&driver, "direct", MIB);
    weir_client *client = open_client(other, "other", 0, 0);
    script.address = shelf;
    void *p = allocate(f->one, 1000, WEIR_STREAM_HOST, WEIR_KV);
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    script.address = shelf;
    assert_ptr_equal(allocate(client, 500, WEIR_STREAM_HOST, WEIR_KV), p);
    assert_ptr_equal(details_of(p).runtime, other);
    fails(WEIR_DOUBLE_FREE, weir_free(f->one, p, WEIR_STREAM_HOST));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_close(client));
    ok(weir_runtime_destroy(other));
    end(f);
}

static void resizing_within_the_piece(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++) {
        fixture *f = make(both[i], 64 * KIB);
        char *p = allocate(f->one, 60 * KIB, WEIR_STREAM_HOST, WEIR_KV);
        memset(p, 3, 60 * KIB);
        ok(weir_resize(f->one, p, 1000, WEIR_STREAM_HOST));
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.live, 1024);
        assert_int_equal(s.held, 60 * KIB); /* the driver takes no part back */
        assert_int_equal(details_of(p + 1024).state, WEIR_BLOCK_FREE);
        void *q;
        fails(WEIR_OUT_OF_MEMORY, weir_alloc(f->one, 4 * KIB + 1, WEIR_STREAM_HOST, WEIR_KV, &q));
        assert_int_equal(last_refusal().cause, WEIR_CAUSE_FRAGMENTATION);
        assert_int_equal(last_refusal().largest, 4 * KIB);
        assert_int_equal(last_refusal().needed, 64 * KIB + 256);
        ok(weir_resize(f->one, p, 60 * KIB, WEIR_STREAM_HOST));
        assert_int_equal(p[60 * KIB - 1], 3);
        fails(WEIR_NO_ROOM, weir_resize(f->one, p, 60 * KIB + 1, WEIR_STREAM_HOST));
        assert_int_equal(stats_of(f->runtime).live, 60 * KIB);
        assert_int_equal(stats_of(f->runtime).promised, 0);
        ok(weir_free(f->one, p, WEIR_STREAM_HOST));
        end(f);
    }
}

/* What a block was shortened by stayed its client's: it is there again, unscrubbed, and nothing is queued that could come
 * behind what the client does there on another stream. */
static void what_it_grows_back_over_is_as_it_was(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 4; i++) {
        fixture *f = make(both[i / 2], 64 * KIB);
        weir_client_options options = {.size = sizeof options, .name = "secret", .scrub = WEIR_SCRUB_OTHERS};
        weir_client *secret;
        weir_stream stream;
        void *p;
        ok(weir_client_open(f->runtime, &options, &secret));
        ok(weir_stream_acquire(f->runtime, &stream));
        ok(weir_alloc(secret, 60 * KIB, stream, WEIR_KV, &p));
        ok(weir_stream_synchronize(stream));
        for (size_t k = 0; k < 60 * KIB; k++)
            assert_int_equal(((char *)p)[k], 0); /* once, all of it */
        memset(p, 3, 60 * KIB);
        ok(weir_resize(secret, p, 1000, stream));
        ok(weir_resize(secret, p, 30 * KIB, i % 2 ? stream : WEIR_STREAM_HOST));
        ok(weir_resize(secret, p, 60 * KIB, i % 2 ? stream : WEIR_STREAM_HOST));
        ok(weir_stream_synchronize(stream));
        for (size_t k = 0; k < 60 * KIB; k++)
            assert_int_equal(((char *)p)[k], 3);
        ok(weir_free(secret, p, WEIR_STREAM_HOST));
        ok(weir_stream_release(stream));
        ok(weir_client_close(secret));
        end(f);
    }
}

/* What an alignment costs beyond the block was never its client's. */
static void no_growth_into_what_the_alignment_costs(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++) {
        fixture *f = make(both[i], 64 * KIB);
        weir_request request = {.size = sizeof request, .bytes = KIB, .alignment = 4 * KIB};
        weir_block block;
        ok(weir_alloc_with(f->one, &request, &block));
        fails(WEIR_NO_ROOM, weir_resize(f->one, block.pointer, KIB + 1, WEIR_STREAM_HOST));
        assert_int_equal(stats_of(f->runtime).live, KIB);
        ok(weir_free(f->one, block.pointer, WEIR_STREAM_HOST));
        end(f);
    }
}

/* Books ------------------------------------------------------------------------------------------------------------ */

static void the_budget_is_exact(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++) {
        fixture *f = make(both[i], COUNT * 1024 + 100);
        void *blocks[COUNT], *more;
        for (int round = 0; round < 3; round++) {
            for (int k = 0; k < COUNT; k++)
                blocks[k] = allocate(f->one, 1000, k % 2 ? f->a : f->b, WEIR_KV);
            assert_int_equal(stats_of(f->runtime).held, COUNT * 1024);
            fails(WEIR_OUT_OF_MEMORY, weir_alloc(f->two, 1, f->a, WEIR_KV, &more));
            assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
            for (int k = 0; k < COUNT; k++)
                ok(weir_free(f->one, blocks[k], k % 2 ? f->a : f->b));
        }
        weir_request request = {.size = sizeof request, .bytes = COUNT * 1024, .alignment = 4096};
        weir_block block;
        fails(WEIR_OUT_OF_MEMORY, weir_alloc_with(f->one, &request, &block));
        weir_refusal r = last_refusal();
        assert_int_equal(r.needed, COUNT * 1024 + 4096 - 256);
        ok(weir_runtime_set_budget(f->runtime, r.needed - 1));
        fails(WEIR_OUT_OF_MEMORY, weir_alloc_with(f->one, &request, &block));
        ok(weir_runtime_set_budget(f->runtime, r.needed));
        ok(weir_alloc_with(f->one, &request, &block));
        ok(weir_free_block(f->one, block, WEIR_STREAM_HOST));
        end(f);
    }
}

static void a_device_that_is_full(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++) {
        fixture *f = make(both[i], MIB);
        void *p = allocate(f->one, 1000, f->a, WEIR_KV), *q;
        snapshot before = take_snapshot(f->runtime);
        script.full = true;
        fails(WEIR_OUT_OF_MEMORY, weir_alloc(f->two, 100 * KIB, f->a, WEIR_KV, &q));
        assert_int_equal(last_refusal().cause, WEIR_CAUSE_OTHER_PROCESS);
        script.full = false;
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.promised, 0);
        assert_int_equal(s.held, before.device.held);
        ok(weir_free(f->one, p, f->a));
        end(f);
    }
    fixture *f = make("async", MIB);
    script.full_until_trim = true; /* by what the pool keeps */
    ok(weir_free(f->one, allocate(f->one, 1000, f->a, WEIR_KV), f->a));
    end(f);
}

/* What the pool keeps is in the books, is given up for the budget, and goes when it is trimmed. */
static void the_books_follow_the_pool(void **state)
{
    (void)state;
    fixture *f = make("async", MIB);
    for (size_t i = 0; i < 40; i++) {
        void *p = allocate(f->one, (300 + 7 * i) * KIB, i % 2 ? f->a : WEIR_STREAM_HOST, WEIR_KV);
        assert_int_equal(stats_of(f->runtime).held, pool_held());
        assert_true(pool_held() <= MIB);
        ok(weir_free(f->one, p, i % 2 ? f->a : WEIR_STREAM_HOST));
        ok(weir_stream_synchronize(f->a));
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.held, pool_held());
        assert_int_equal(s.cached, s.held);
    }
    uint64_t held = pool_held(), released;
    assert_true(held > 0);
    ok(weir_runtime_set_budget(f->runtime, held - 1)); /* the cache goes */
    assert_true(pool_held() < held);
    ok(weir_runtime_set_budget(f->runtime, MIB));
    held = stats_of(f->runtime).held;
    ok(weir_runtime_trim(f->runtime, 0, &released));
    assert_int_equal(released, held);
    assert_int_equal(pool_held(), 0);
    script.refuse_held = true; /* what it has is then unknown, and nothing is lost by that */
    void *p = allocate(f->one, 1000, f->a, WEIR_KV);
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    script.refuse_held = false;
    ok(weir_stream_synchronize(f->a));
    ok(weir_runtime_trim(f->runtime, 0, NULL));
    assert_int_equal(stats_of(f->runtime).held, 0);
    end(f);
}

static fixture *in_hook;

static void trim_meanwhile(void)
{
    ok(weir_runtime_trim(in_hook->runtime, 0, NULL));
}

/* An answer that is old when it comes is none. */
static void the_pool_changes_while_it_is_asked(void **state)
{
    (void)state;
    fixture *f = in_hook = make("async", MIB);
    ok(weir_free(f->one, allocate(f->one, 100 * KIB, WEIR_STREAM_HOST, WEIR_KV), WEIR_STREAM_HOST));
    script.asked = trim_meanwhile;
    void *p = allocate(f->one, 1000, WEIR_STREAM_HOST, WEIR_KV);
    assert_null(script.asked);
    assert_int_equal(stats_of(f->runtime).held, 1024);
    assert_int_equal(pool_held(), 1024);
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    end(f);
}

/* Giving back ------------------------------------------------------------------------------------------------------ */

static void a_refused_release_is_tried_again(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++) {
        fixture *f = make(both[i], MIB);
        char *p = allocate(f->one, 1000, f->a, WEIR_KV);
        script.refused_releases = 1;
        ok(weir_free(f->one, p, WEIR_STREAM_HOST));
        script.refused_releases = 1; /* each look tries again */
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.pending, 1024);
        assert_true(s.held >= 1024);
        script.refused_releases = 1;
        assert_int_equal(details_of(p).state, WEIR_BLOCK_PENDING);
        fails(WEIR_DOUBLE_FREE, weir_free(f->one, p, WEIR_STREAM_HOST));
        script.refused_releases = 0;
        assert_int_equal(stats_of(f->runtime).pending, 0);
        end(f);
    }
}

/* An allocation that cannot be zeroed is nobody's; when the driver does not take it back it is tried again later. */
static void discarded_blocks_are_not_lost(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++)
        for (size_t refused = 0; refused < 3; refused++) {
            fixture *f = make(both[i], 64 * KIB);
            weir_request request = {.size = sizeof request, .bytes = 64 * KIB, .stream = f->a, .flags = WEIR_ZEROED};
            weir_block block;
            script.refuse_fill = true;
            script.refused_releases = refused;
            fails(WEIR_DRIVER, weir_alloc_with(f->one, &request, &block));
            assert_int_equal(stats_of(f->runtime).held > 0, refused > 0 || i == 1);
            script.refuse_fill = false;
            if (refused > 1)
                fails(WEIR_OUT_OF_MEMORY, weir_alloc_with(f->one, &request, &block));
            ok(weir_alloc_with(f->one, &request, &block));
            ok(weir_free_block(f->one, block, f->a));
            ok(weir_stream_synchronize(f->a));
            end(f);
        }
}

/* Bytes of a client that asks for it are zeroed for the next, however the driver passes them on. */
static void secrets_are_not_handed_on(void **state)
{
    (void)state;
    fixture *f = make("async", MIB);
    weir_client_options o = {.size = sizeof o, .name = "secret", .scrub = WEIR_SCRUB_OTHERS};
    weir_client *secret;
    ok(weir_client_open(f->runtime, &o, &secret));
    unsigned char *p = allocate(secret, 1000, f->a, WEIR_KV);
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_fill(f->runtime, p, 9, 1000, f->a));
    ok(weir_free(secret, p, f->a));
    assert_ptr_equal(allocate(f->one, 1000, f->a, WEIR_KV), p); /* before the free is final */
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(p[i], 0);
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    ok(weir_client_close(secret));
    end(f);
}

/* Handing over ----------------------------------------------------------------------------------------------------- */

static void an_address_serves_again_in_stream_order(void **state)
{
    (void)state;
    fixture *f = make("async", MIB);
    gate g = GATE;
    unsigned char *p = allocate(f->one, 1000, f->a, WEIR_KV);
    weir_block old = details_of(p).block;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_fill(f->runtime, p, 1, 1000, f->a));
    ok(weir_free(f->one, p, f->a));
    assert_int_equal(details_of(p).state, WEIR_BLOCK_PENDING);
    fails(WEIR_DOUBLE_FREE, weir_free(f->one, p, f->a));
    void *elsewhere = allocate(f->two, 1000, f->b, WEIR_OTHER);
    assert_ptr_not_equal(elsewhere, p);
    assert_ptr_equal(allocate(f->two, 1000, f->a, WEIR_WEIGHTS), p);
    weir_stats s = stats_of(f->runtime);
    assert_int_equal(s.pending, 1024);
    assert_int_equal(s.live, 2048);
    assert_int_equal(details_of(p).state, WEIR_BLOCK_LIVE);
    assert_ptr_equal(details_of(p).client, f->two);
    fails(WEIR_FOREIGN, weir_free(f->one, p, f->a));
    fails(WEIR_STALE, weir_free_block(f->one, old, f->a));
    /* On another stream it is used behind what the one before it queued. */
    weir_use use = {.block = details_of(p).block, .access = WEIR_WRITE};
    weir_launch *launch;
    ok(weir_launch_begin(f->runtime, f->b, &use, 1, &launch));
    ok(weir_fill(f->runtime, p, 2, 1000, f->b));
    ok(weir_launch_end(launch));
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(p[0], 2);
    assert_int_equal(p[999], 2);
    s = stats_of(f->runtime);
    assert_int_equal(s.pending, 0);
    assert_int_equal(details_of(p).state, WEIR_BLOCK_LIVE);
    ok(weir_free(f->two, p, f->a));
    ok(weir_free(f->two, elsewhere, f->b));
    end(f);
}

static void *hook_got;

static void allocate_meanwhile(void)
{
    hook_got = allocate(in_hook->two, 1000, in_hook->a, WEIR_KV);
}

/* The driver gives the address out again before it has answered the one who gave it back. */
static void an_address_serves_again_before_the_answer(void **state)
{
    (void)state;
    for (int on_stream = 0; on_stream < 2; on_stream++) {
        fixture *f = in_hook = make("async", MIB);
        void *p = allocate(f->one, 1000, f->a, WEIR_KV);
        gate g = GATE;
        if (on_stream)
            ok(weir_call(f->runtime, pass_gate, &g, f->a));
        script.released = allocate_meanwhile;
        ok(weir_free(f->one, p, f->a));
        assert_ptr_equal(hook_got, p);
        assert_ptr_equal(details_of(p).client, f->two);
        assert_int_equal(details_of(p).state, WEIR_BLOCK_LIVE);
        open_gate(&g);
        ok(weir_stream_synchronize(f->a));
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.live, 1024);
        assert_int_equal(s.pending, 0);
        ok(weir_free(f->two, p, f->a));
        end(f);
    }
}

static void several_wait_at_one_address(void **state)
{
    (void)state;
    fixture *f = make("async", 64 * KIB);
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    void *p = NULL, *q;
    for (int i = 0; i < 16; i++) {
        q = allocate(f->one, 4 * KIB, f->a, WEIR_KV);
        assert_true(!p || p == q);
        p = q;
        ok(weir_free(f->one, p, f->a));
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.pending, (uint64_t)(i + 1) * 4 * KIB);
    }
    weir_request request = {.size = sizeof request, .bytes = 1, .stream = f->a, .flags = WEIR_NO_WAIT};
    weir_block none;
    fails(WEIR_OUT_OF_MEMORY, weir_alloc_with(f->one, &request, &none)); /* each counts until its event is passed */
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    assert_int_equal(stats_of(f->runtime).pending, 0);
    assert_int_equal(stats_of(f->runtime).held, pool_held());
    fails(WEIR_DOUBLE_FREE, weir_free(f->one, p, f->a));
    end(f);
}

/* The free holds all the same: the block waits as one that was never handed over, and the driver is asked again. */
static void a_refused_hand_over_loses_nothing(void **state)
{
    (void)state;
    fixture *f = make("async", MIB);
    gate g = GATE;
    unsigned char *p = allocate(f->one, 1000, f->a, WEIR_KV);
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    snapshot before = take_snapshot(f->runtime);
    script.refused_releases = 1;
    ok(weir_free(f->one, p, f->a));
    assert_int_equal(script.refused_releases, 0);
    snapshot after = take_snapshot(f->runtime);
    assert_int_equal(after.device.live, 0);
    assert_int_equal(after.device.pending, before.device.live);
    assert_int_equal(details_of(p + 10).state, WEIR_BLOCK_PENDING);
    void *other = allocate(f->two, 1000, f->a, WEIR_KV);
    assert_ptr_not_equal(other, p); /* the driver has not got it yet */
    fails(WEIR_DOUBLE_FREE, weir_free(f->one, p, f->a));
    ok(weir_free(f->two, other, f->a));
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    assert_int_equal(stats_of(f->runtime).live + stats_of(f->runtime).pending, 0);
    end(f);
}

static void faults_lose_nothing(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    static const weir_status statuses[] = {WEIR_DRIVER, WEIR_OUT_OF_MEMORY, WEIR_DEVICE_LOST};
    for (int i = 0; i < 6; i++)
        a_fault_at_every_call(both[i % 2], statuses[i / 2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lies_where),
        cmocka_unit_test(an_address_that_went_to_another_runtime),
        cmocka_unit_test(resizing_within_the_piece),
        cmocka_unit_test(what_it_grows_back_over_is_as_it_was),
        cmocka_unit_test(no_growth_into_what_the_alignment_costs),
        cmocka_unit_test(the_budget_is_exact),
        cmocka_unit_test(a_device_that_is_full),
        cmocka_unit_test(the_books_follow_the_pool),
        cmocka_unit_test(the_pool_changes_while_it_is_asked),
        cmocka_unit_test(a_refused_release_is_tried_again),
        cmocka_unit_test(discarded_blocks_are_not_lost),
        cmocka_unit_test(secrets_are_not_handed_on),
        cmocka_unit_test(an_address_serves_again_in_stream_order),
        cmocka_unit_test(an_address_serves_again_before_the_answer),
        cmocka_unit_test(several_wait_at_one_address),
        cmocka_unit_test(a_refused_hand_over_loses_nothing),
        cmocka_unit_test(faults_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
