/* Bytes that pass from one client to another are zeroed where one of the two asks for it, and only there. On the device
 * that WEIR_TEST_DEVICE names, or the host. */
#include "info.h"
#include "core.h"
#include <weir/block_pool.h>
#include "core/faulty.h"

#include "runtime/runtime.h"

enum { PIECE = 2 << 20, BUDGET = 4 * PIECE, PATTERN = 0xa5 }; /* a piece is a whole number of handles everywhere */

typedef struct fixture {
    weir_runtime *runtime;
    weir_stream stream;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    const char *device = getenv("WEIR_TEST_DEVICE");
    f->runtime = make_runtime_on(device ? device : "host", BUDGET);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_release(f->stream));
    check_empty(f->runtime);
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static weir_client *open_scrubbed(weir_runtime *runtime, const char *name, weir_scrub scrub)
{
    weir_client_options options = {.struct_size = sizeof options, .name = name, .scrub = scrub};
    weir_client *client;
    ok(weir_client_create(runtime, &options, &client));
    return client;
}

/* How many of the bytes at `p` have this value. */
static size_t count_bytes(weir_runtime *runtime, const void *p, size_t bytes, unsigned char value)
{
    unsigned char *copy = malloc(bytes);
    size_t count = 0;
    ok(weir_copy(runtime, copy, p, bytes, WEIR_STREAM_HOST));
    for (size_t i = 0; i < bytes; i++)
        count += copy[i] == value;
    free(copy);
    return count;
}

static bool all_bytes(weir_runtime *runtime, const void *p, size_t bytes, unsigned char value)
{
    return count_bytes(runtime, p, bytes, value) == bytes;
}

static void *allocate_filled(weir_client *client, size_t bytes, unsigned char value)
{
    void *p = allocate(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_fill(client_details(client).runtime, p, value, bytes, WEIR_STREAM_HOST));
    return p;
}

/* The client writes the pattern and frees; the address is where the next block of that size goes. */
static void *leave_pattern(weir_client *client, size_t bytes)
{
    void *p = allocate_filled(client, bytes, PATTERN);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    return p;
}

/* Between two clients ---------------------------------------------------------------------------------------------- */

static void either_of_the_two_asks_for_it(void **state)
{
    fixture *f = *state;
    for (int k = 0; k < 4; k++) {
        weir_client *first = open_scrubbed(f->runtime, "first", k & 1 ? WEIR_SCRUB_OTHERS : WEIR_SCRUB_NEVER);
        weir_client *next = open_scrubbed(f->runtime, "next", k & 2 ? WEIR_SCRUB_OTHERS : WEIR_SCRUB_NEVER);
        void *left = leave_pattern(first, 3000);
        void *p = allocate(next, 3000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        assert_ptr_equal(p, left);
        assert_true(all_bytes(f->runtime, p, 3000, k == 0 ? PATTERN : 0));
        ok(weir_free(next, p, WEIR_STREAM_HOST));
        ok(weir_client_destroy(first));
        ok(weir_client_destroy(next));
    }
}

static void an_owner_keeps_its_bytes(void **state)
{
    fixture *f = *state;
    weir_client *client = open_scrubbed(f->runtime, "one", WEIR_SCRUB_OTHERS);
    void *left = leave_pattern(client, 3000);
    void *p = allocate(client, 3000, f->stream, WEIR_CLASS_KV);
    ok(weir_stream_synchronize(f->stream));
    assert_ptr_equal(p, left);
    assert_true(all_bytes(f->runtime, p, 3000, PATTERN));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    /* Who opens an account anew is another, whatever its name. */
    client = open_scrubbed(f->runtime, "one", WEIR_SCRUB_NEVER);
    p = allocate(client, 3000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(p, left);
    assert_true(all_bytes(f->runtime, p, 3000, 0));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
}

/* What is charged beyond what was asked for passes on, too: to the same client by a resize, and to the next one. */
static void bytes_that_nobody_asked_for(void **state)
{
    fixture *f = *state;
    weir_client *secret = open_scrubbed(f->runtime, "secret", WEIR_SCRUB_OTHERS);
    weir_client *small = open_client(f->runtime, "small", 0, 0), *last = open_client(f->runtime, "last", 0, 0);
    void *left = leave_pattern(secret, 512);
    void *p = allocate(small, 300, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(p, left);
    ok(weir_resize(small, p, 512, WEIR_STREAM_HOST));
    assert_true(all_bytes(f->runtime, p, 512, 0));
    ok(weir_free(small, p, WEIR_STREAM_HOST));

    left = leave_pattern(secret, 512);
    p = allocate(small, 300, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(p, left);
    ok(weir_free(small, p, WEIR_STREAM_HOST));
    p = allocate(last, 512, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(p, left);
    assert_true(all_bytes(f->runtime, p, 512, 0));
    ok(weir_free(last, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(secret));
    ok(weir_client_destroy(small));
    ok(weir_client_destroy(last));
}

/* Free memory in one piece that three clients have left; one of them asked for scrubbing. */
static void several_owners(void **state)
{
    fixture *f = *state;
    for (int asks = 0; asks < 4; asks++) { /* which of the three; 3: the next owner does */
        weir_client *clients[4];
        unsigned char *p[3];
        for (int i = 0; i < 4; i++)
            clients[i] = open_scrubbed(f->runtime, "several", i == asks ? WEIR_SCRUB_OTHERS : WEIR_SCRUB_NEVER);
        for (int i = 0; i < 3; i++)
            p[i] = allocate_filled(clients[i], 1024, PATTERN);
        assert_true(p[1] == p[0] + 1024 && p[2] == p[1] + 1024);
        for (int i = 0; i < 3; i++)
            ok(weir_free(clients[i], p[i], WEIR_STREAM_HOST));
        unsigned char *q = allocate(clients[3], 3072, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        assert_ptr_equal(q, p[0]);
        assert_true(all_bytes(f->runtime, q, 3072, 0));
        ok(weir_free(clients[3], q, WEIR_STREAM_HOST));
        for (int i = 0; i < 4; i++)
            ok(weir_client_destroy(clients[i]));
        ok(weir_runtime_trim(f->runtime, NULL, NULL));
    }
}

/* Memory that is taken from under one address and put under another takes its bytes with it. */
static void moved_memory(void **state)
{
    fixture *f = *state;
    for (int k = 0; k < 3; k++) {
        weir_client *first = open_scrubbed(f->runtime, "first", k == 1 ? WEIR_SCRUB_OTHERS : WEIR_SCRUB_NEVER);
        weir_client *next = open_scrubbed(f->runtime, "next", k == 2 ? WEIR_SCRUB_OTHERS : WEIR_SCRUB_NEVER);
        void *left = allocate(first, PIECE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        ok(weir_fill(f->runtime, left, PATTERN, PIECE, WEIR_STREAM_HOST));
        ok(weir_free(first, left, WEIR_STREAM_HOST));
        void *p = allocate(next, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        assert_ptr_not_equal(p, left);
        if (k == 0)
            assert_int_equal(count_bytes(f->runtime, p, BUDGET, PATTERN), PIECE);
        else
            assert_true(all_bytes(f->runtime, p, BUDGET, 0));
        ok(weir_free(next, p, WEIR_STREAM_HOST));
        ok(weir_client_destroy(first));
        ok(weir_client_destroy(next));
        ok(weir_runtime_trim(f->runtime, NULL, NULL));
    }
}

static void a_pool_of_blocks(void **state)
{
    fixture *f = *state;
    weir_client *first = open_client(f->runtime, "first", 0, 0);
    weir_client *next = open_scrubbed(f->runtime, "next", WEIR_SCRUB_OTHERS);
    void *left = leave_pattern(first, 8 * 4096);
    weir_block_pool_options options = {.struct_size = sizeof options, .bytes = 4096, .count = 8};
    weir_block_pool *pool;
    ok(weir_block_pool_create(next, &options, &pool));
    weir_block_pool_stats stats = {.struct_size = sizeof stats};
    ok(weir_block_pool_info(pool, &stats, NULL, 0, NULL));
    assert_ptr_equal(weir_block_pool_at(&stats.view, 0), left);
    assert_true(all_bytes(f->runtime, left, 8 * 4096, 0));
    ok(weir_block_pool_destroy(pool));
    ok(weir_client_destroy(first));
    ok(weir_client_destroy(next));
}

/* In the order of the stream --------------------------------------------------------------------------------------- */

static void the_zeros_are_queued(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_client *first = open_client(f->runtime, "first", 0, 0), *other = open_client(f->runtime, "other", 0, 0);
    weir_client *next = open_scrubbed(f->runtime, "next", WEIR_SCRUB_OTHERS);
    void *left = leave_pattern(first, 3000);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    void *p = allocate(next, 3000, f->stream, WEIR_CLASS_KV);
    assert_ptr_equal(p, left);
    assert_true(all_bytes(f->runtime, p, 3000, PATTERN)); /* the stream is not there yet */
    /* Nobody else waits for it. */
    void *q = allocate_filled(other, 5000, 1);
    ok(weir_free(other, q, WEIR_STREAM_HOST));
    /* What the new owner puts there comes behind the zeros; a free elsewhere does not let the next owner before them. */
    ok(weir_fill(f->runtime, p, 7, 1000, f->stream));
    ok(weir_free(next, p, f->stream));
    q = allocate(other, 3000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_not_equal(q, p);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_true(all_bytes(f->runtime, p, 1000, 7));
    assert_true(all_bytes(f->runtime, (char *)p + 1000, 2000, 0));
    ok(weir_free(other, q, WEIR_STREAM_HOST));
    ok(weir_client_destroy(first));
    ok(weir_client_destroy(next));
    ok(weir_client_destroy(other));
}

static void a_free_elsewhere_waits_for_the_zeros(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_client *first = open_client(f->runtime, "first", 0, 0);
    weir_client *next = open_scrubbed(f->runtime, "next", WEIR_SCRUB_OTHERS);
    void *left = leave_pattern(first, 3000);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    void *p = allocate(next, 3000, f->stream, WEIR_CLASS_KV);
    assert_ptr_equal(p, left);
    ok(weir_free(next, p, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.pending, 3072);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(take_snapshot(f->runtime).device.pending, 0);
    ok(weir_client_destroy(first));
    ok(weir_client_destroy(next));
}

/* Nothing can be zeroed on a stream that is being captured; what needs no zeros is served. */
static void during_a_capture(void **state)
{
    fixture *f = *state;
    weir_client *first = open_client(f->runtime, "first", 0, 0);
    weir_client *next = open_scrubbed(f->runtime, "next", WEIR_SCRUB_OTHERS);
    void *mine = leave_pattern(next, 1000), *p = f, *keep = allocate(next, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(mine, keep);
    void *between = allocate_filled(first, 3000, PATTERN), *grown = allocate(next, 256, f->stream, WEIR_CLASS_KV);
    void *behind = allocate_filled(first, 1024, PATTERN);
    assert_ptr_equal(behind, (char *)grown + 256);
    ok(weir_free(first, between, WEIR_STREAM_HOST));
    ok(weir_free(first, behind, WEIR_STREAM_HOST));
    ok(weir_free(next, keep, WEIR_STREAM_HOST));
    ok(weir_stream_synchronize(f->stream));
    ok(weir_capture_begin(f->stream, NULL));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_STREAM_MISUSE, weir_alloc(next, 3000, f->stream, WEIR_CLASS_KV, &p));
    detail_names("captured");
    assert_null(p);
    unchanged(f->runtime, before);
    fails(WEIR_ERR_STREAM_MISUSE, weir_resize(next, grown, 1280, f->stream));
    assert_int_equal(take_snapshot(f->runtime).device.live, before.device.live);
    weir_block_details details = {.struct_size = sizeof details};
    ok(weir_block_info(grown, &details));
    assert_int_equal(details.bytes, 256);
    ok(weir_capture_end(f->stream, NULL));
    assert_true(all_bytes(f->runtime, behind, 1024, PATTERN));
    ok(weir_resize(next, grown, 1280, f->stream));
    ok(weir_stream_synchronize(f->stream));
    assert_true(all_bytes(f->runtime, behind, 1024, 0));
    ok(weir_free(next, grown, f->stream));
    ok(weir_client_destroy(first));
    ok(weir_client_destroy(next));
}

/* Growing ---------------------------------------------------------------------------------------------------------- */

typedef struct neighbours {
    weir_client *first, *next;
    unsigned char *mine, *behind; /* 1 KiB of `next`'s, and 1 KiB behind it that `first` has left ... */
    void *wall;                   /* ... before another of its blocks */
} neighbours;

static neighbours make_neighbours(weir_runtime *runtime, weir_stream stream)
{
    neighbours n = {open_client(runtime, "first", 0, 0), open_scrubbed(runtime, "next", WEIR_SCRUB_OTHERS), NULL, NULL,
                    NULL};
    n.mine = allocate(n.next, 1000, stream, WEIR_CLASS_KV);
    ok(weir_fill(runtime, n.mine, 3, 1024, stream));
    n.behind = allocate_filled(n.first, 1024, PATTERN);
    n.wall = allocate(n.first, 1024, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(n.wall, n.behind + 1024);
    assert_ptr_equal(n.behind, n.mine + 1024);
    ok(weir_free(n.first, n.behind, WEIR_STREAM_HOST));
    return n;
}

static void end_neighbours(neighbours *n, weir_stream stream)
{
    ok(weir_free(n->next, n->mine, stream));
    ok(weir_free(n->first, n->wall, WEIR_STREAM_HOST));
    ok(weir_client_destroy(n->first));
    ok(weir_client_destroy(n->next));
}

static void only_the_new_part_is_zeroed(void **state)
{
    fixture *f = *state;
    const weir_stream streams[] = {WEIR_STREAM_HOST, f->stream};
    for (int k = 0; k < 4; k++) { /* of a block of either kind of stream, on either kind */
        neighbours n = make_neighbours(f->runtime, streams[k & 1]);
        ok(weir_resize(n.next, n.mine, 2000, streams[k >> 1]));
        ok(weir_stream_synchronize(f->stream));
        assert_true(all_bytes(f->runtime, n.mine, 1024, 3));
        assert_true(all_bytes(f->runtime, n.behind, 1024, 0));
        end_neighbours(&n, streams[k & 1]);
        ok(weir_stream_synchronize(f->stream));
        ok(weir_runtime_trim(f->runtime, NULL, NULL));
    }
}

/* On the block's own stream the zeros come in its order. A later free would not find them on another one, nor behind what
 * others have done to the block: they are there at return. */
static void growing_behind_a_gate(void **state)
{
    fixture *f = *state;
    weir_stream other;
    ok(weir_stream_acquire(f->runtime, &other));
    enum { QUEUED, USED_ELSEWHERE, OF_ANOTHER_STREAM };
    for (int k = QUEUED; k <= OF_ANOTHER_STREAM; k++) {
        neighbours n = make_neighbours(f->runtime, k == OF_ANOTHER_STREAM ? WEIR_STREAM_HOST : f->stream);
        gate g = GATE;
        if (k == USED_ELSEWHERE) {
            weir_use use = {{n.mine, 0}, WEIR_ACCESS_WRITE};
            weir_launch *launch;
            ok(weir_launch_begin(f->runtime, other, &use, 1, &launch));
            ok(weir_launch_end(launch));
        }
        ok(weir_call(f->runtime, pass_gate, &g, f->stream));
        ok(weir_resize(n.next, n.mine, 2048, f->stream));
        assert_true(all_bytes(f->runtime, n.behind, 1024, k == QUEUED ? PATTERN : 0));
        ok(weir_free(n.next, n.mine, other));
        if (k == QUEUED) /* the zeros are still to come */
            assert_int_equal(take_snapshot(f->runtime).device.pending, 2048);
        open_gate(&g);
        ok(weir_stream_synchronize(f->stream));
        ok(weir_stream_synchronize(other));
        assert_int_equal(take_snapshot(f->runtime).device.pending, 0);
        assert_true(all_bytes(f->runtime, n.behind, 1024, 0));
        ok(weir_free(n.first, n.wall, WEIR_STREAM_HOST));
        ok(weir_client_destroy(n.first));
        ok(weir_client_destroy(n.next));
        ok(weir_runtime_trim(f->runtime, NULL, NULL));
    }
    ok(weir_stream_release(other));
}

static weir_runtime *make_segments(void)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 << 20, .resource = "segments"};
    weir_runtime *runtime;
    ok(weir_runtime_create(device ? device : "host", &options, &runtime));
    return runtime;
}

/* Bytes that stay behind a block since its allocation are in the order of its stream: another client's work may still write
 * them there, and zeros at once would come before it. */
static void growing_over_what_stays_behind(void **state)
{
    enum { FREED = 3 << 20, ASKED = FREED - (512 << 10) };
    (void)state;
    weir_runtime *runtime = make_segments();
    weir_client *first = open_client(runtime, "first", 0, 0), *next = open_scrubbed(runtime, "next", WEIR_SCRUB_OTHERS);
    weir_stream a, b;
    ok(weir_stream_acquire(runtime, &a));
    ok(weir_stream_acquire(runtime, &b));
    gate g = GATE;
    void *left = allocate(first, FREED, a, WEIR_CLASS_KV), *wall = allocate(first, FREED, a, WEIR_CLASS_KV);
    ok(weir_call(runtime, pass_gate, &g, a));
    ok(weir_fill(runtime, left, PATTERN, FREED, a));
    ok(weir_free(first, left, a));
    void *p = allocate(next, ASKED, a, WEIR_CLASS_KV);
    assert_ptr_equal(p, left);
    snapshot before = take_snapshot(runtime);
    fails(WEIR_ERR_NO_ROOM, weir_resize(next, p, FREED, b));
    detail_names("in the order of stream");
    fails(WEIR_ERR_NO_ROOM, weir_resize(next, p, FREED, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(runtime).device.live, before.device.live);
    ok(weir_resize(next, p, FREED, a));
    open_gate(&g);
    ok(weir_stream_synchronize(a));
    assert_true(all_bytes(runtime, p, FREED, 0));
    ok(weir_free(next, p, a));
    ok(weir_free(first, wall, a));
    ok(weir_stream_release(a));
    ok(weir_stream_release(b));
    ok(weir_client_destroy(first));
    ok(weir_client_destroy(next));
    ok(weir_runtime_destroy(runtime));
}

/* Failures --------------------------------------------------------------------------------------------------------- */

static weir_runtime *make_faulty(void)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    weir_runtime *runtime;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    return runtime;
}

static void an_allocation_whose_zeros_fail(void **state)
{
    (void)state;
    weir_runtime *runtime = make_faulty();
    weir_client *first = open_client(runtime, "first", 0, 0);
    weir_client *next = open_scrubbed(runtime, "next", WEIR_SCRUB_OTHERS);
    void *left = leave_pattern(first, 3000), *p = runtime;
    snapshot before = take_snapshot(runtime);
    fault.fail_at = fault.calls;
    fails(WEIR_ERR_DRIVER, weir_alloc(next, 3000, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    assert_null(p);
    unchanged(runtime, before);
    fault.fail_at = -1;
    p = allocate(next, 3000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(p, left);
    assert_true(all_bytes(runtime, p, 3000, 0));
    ok(weir_free(next, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(first));
    ok(weir_client_destroy(next));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

/* The block keeps its length, and what it did not get is still the other client's bytes. */
static void a_growth_whose_zeros_fail(void **state)
{
    (void)state;
    weir_runtime *runtime = make_faulty();
    neighbours n = make_neighbours(runtime, WEIR_STREAM_HOST);
    snapshot before = take_snapshot(runtime);
    for (int tries = 0; tries < 3; tries++) {
        fault.fail_at = fault.calls;
        fails(WEIR_ERR_DRIVER, weir_resize(n.next, n.mine, 2048, WEIR_STREAM_HOST));
        fault.fail_at = -1;
        weir_block_details details = {.struct_size = sizeof details};
        ok(weir_block_info(n.mine, &details));
        assert_int_equal(details.bytes, 1000);
        assert_int_equal(details.charged, 1024);
        snapshot now = take_snapshot(runtime);
        check_sums(&now);
        assert_int_equal(now.device.live, before.device.live);
        assert_int_equal(now.device.pending + now.device.promised, 0);
        assert_true(all_bytes(runtime, n.mine, 1024, 3) && all_bytes(runtime, n.behind, 1024, PATTERN));
    }
    /* The one that could not grow asks for the same memory in another way. */
    void *p = allocate(n.next, 1024, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_ptr_equal(p, n.behind);
    assert_true(all_bytes(runtime, p, 1024, 0));
    ok(weir_free(n.next, p, WEIR_STREAM_HOST));
    end_neighbours(&n, WEIR_STREAM_HOST);
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

/* A driver may give back what it was given: it is asked for zeros then, and never for memory that nobody had. */
static void memory_that_went_back_to_the_driver(void **state)
{
    (void)state;
    weir_runtime *runtime = make_faulty();
    weir_client *first = open_scrubbed(runtime, "first", WEIR_SCRUB_OTHERS), *next = open_client(runtime, "next", 0, 0);
    for (int had = 0; had < 2; had++) {
        long before = fault.calls;
        void *p = allocate(next, PIECE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        assert_int_equal(fault.calls - before, had ? 3 : 2); /* create and map, and fill */
        ok(weir_free(next, p, WEIR_STREAM_HOST));
        ok(weir_runtime_trim(runtime, NULL, NULL));
        (void)leave_pattern(first, PIECE);
        ok(weir_runtime_trim(runtime, NULL, NULL));
    }
    ok(weir_client_destroy(first));
    ok(weir_client_destroy(next));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

/* Memory of the first client is taken from its address for the next one, and does not come to lie anywhere: the call of the
 * driver that many later fails. True if some of it became spare. */
static bool becomes_spare(weir_runtime *runtime, weir_client *first, weir_client *next, long later)
{
    void *left = allocate(first, PIECE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS), *p;
    ok(weir_fill(runtime, left, PATTERN, PIECE, WEIR_STREAM_HOST));
    ok(weir_free(first, left, WEIR_STREAM_HOST));
    fault.fail_at = fault.calls + later;
    weir_status status = weir_alloc(next, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p);
    fault.fail_at = -1;
    if (status == WEIR_OK)
        ok(weir_free(next, p, WEIR_STREAM_HOST));
    return status != WEIR_OK && take_snapshot(runtime).device.spare > 0;
}

/* It still holds the first client's bytes, for whoever gets it. */
static void spare_handles_hold_somebodys_bytes(void **state)
{
    (void)state;
    static const long calls[] = {1, 16,
                                 33}; /* before the one that fails: a handle is unmapped, half of them, all of them */
    /* Who asks for scrubbing; the last: the first client, which gets the memory again. */
    enum { NOBODY, FIRST, NEXT, OF_FIRST, CASES };
    for (int k = 0; k < CASES; k++) {
        int spare = 0;
        for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
            weir_runtime *runtime = make_faulty();
            weir_client *first =
                open_scrubbed(runtime, "first", k == FIRST || k == OF_FIRST ? WEIR_SCRUB_OTHERS : WEIR_SCRUB_NEVER);
            weir_client *next = open_scrubbed(runtime, "next", k == NEXT ? WEIR_SCRUB_OTHERS : WEIR_SCRUB_NEVER);
            if (becomes_spare(runtime, first, next, calls[i])) {
                weir_client *owner = k == OF_FIRST ? first : next;
                void *p =
                    allocate(owner, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS); /* not where it was to be moved */
                size_t count = count_bytes(runtime, p, BUDGET, PATTERN);
                assert_int_equal(count, k == FIRST || k == NEXT ? 0 : PIECE);
                ok(weir_free(owner, p, WEIR_STREAM_HOST));
                spare++;
            }
            ok(weir_client_destroy(first));
            ok(weir_client_destroy(next));
            ok(weir_runtime_destroy(runtime));
            assert_true(faults_nothing_left());
        }
        assert_int_equal(spare, sizeof calls / sizeof calls[0]);
    }
}

static void options_that_are_none(void **state)
{
    fixture *f = *state;
    weir_client_options options = {.struct_size = sizeof options, .name = "x", .scrub = WEIR_SCRUB_COUNT};
    weir_client *client = (weir_client *)f;
    fails(WEIR_ERR_INVALID, weir_client_create(f->runtime, &options, &client));
    assert_null(client);
    /* A program that knows nothing of it. */
    options.struct_size = offsetof(weir_client_options, scrub);
    ok(weir_client_create(f->runtime, &options, &client));
    ok(weir_client_destroy(client));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    setenv("WEIR_THREAD_CACHE", "0", 1); /* what is freed is pending, and no thread cache keeps it */
    const struct CMUnitTest tests[] = {
        CASE(either_of_the_two_asks_for_it),
        CASE(an_owner_keeps_its_bytes),
        CASE(bytes_that_nobody_asked_for),
        CASE(several_owners),
        CASE(moved_memory),
        CASE(a_pool_of_blocks),
        CASE(the_zeros_are_queued),
        CASE(a_free_elsewhere_waits_for_the_zeros),
        CASE(during_a_capture),
        CASE(only_the_new_part_is_zeroed),
        CASE(growing_behind_a_gate),
        cmocka_unit_test(growing_over_what_stays_behind),
        cmocka_unit_test(an_allocation_whose_zeros_fail),
        cmocka_unit_test(a_growth_whose_zeros_fail),
        cmocka_unit_test(memory_that_went_back_to_the_driver),
        cmocka_unit_test(spare_handles_hold_somebodys_bytes),
        CASE(options_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
