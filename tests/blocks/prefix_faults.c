/* A fault at every driver call and at every malloc of a sequence's life with shared blocks: a clean status, references
 * and contents as they were, and everything free at the end. Runs of blocks are one copy of the driver's each. */
#include "blocks/shared.h"
#include "blocks/each_failure.h"

#include "runtime/runtime.h"

static void arm(bool armed)
{
    static long at;
    if (!armed)
        at = fault.calls;
    else
        fault.calls = at;
    malloc_armed = armed;
    fault.fail_at = armed ? driver_fails_at : -1;
}

/* True if it went well; else it failed as planned, and is tried again without a fault by the caller. */
static bool went(weir_status status)
{
    failures += status != WEIR_OK;
    assert_true(status == WEIR_OK || status == WEIR_ERR_DRIVER || status == WEIR_ERR_SYSTEM);
    return status == WEIR_OK;
}

#define until_it_works(call)                                                                                           \
    do {                                                                                                               \
        if (!went(call))                                                                                               \
            ok(call);                                                                                                  \
    } while (0)

typedef struct world {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream, other;
    weir_block_pool *pool;
    weir_block_pool_member *m;
    weir_prefix_cache *cache;
} world;

/* Nobody else is there: each block's references are known after each step, whatever failed. */
static void check_references(const world *w, const uint32_t *blocks, const uint32_t *wanted, uint32_t count)
{
    arm(false);
    for (uint32_t k = 0; k < count; k++)
        assert_int_equal(references(w->pool, blocks[k]), wanted[k]);
    arm(true);
}

static void copy_on_write(const world *w, uint32_t index)
{
    uint32_t fresh;
    unsigned char bytes[BLOCK];
    if (!went(weir_block_pool_make_writable(w->m, index, w->stream, &fresh))) {
        assert_int_equal(fresh, WEIR_BLOCK_POOL_NONE);
        arm(false);
        ok(weir_stream_synchronize(w->stream));
        arm(true);
        check_references(w, &index, (const uint32_t[]){2}, 1);
        ok(weir_block_pool_make_writable(w->m, index, w->stream, &fresh));
    }
    check_references(w, (const uint32_t[]){index, fresh}, (const uint32_t[]){1, 1}, 2);
    arm(false);
    ok(weir_stream_synchronize(w->stream));
    ok(weir_block_pool_download(w->m, &fresh, 1, bytes, WEIR_STREAM_HOST));
    assert_int_equal(bytes[BLOCK - 1], 0x33);
    ok(drop(w->m, fresh, WEIR_STREAM_HOST));
    arm(true);
}

static void live_sequence(const world *w)
{
    static unsigned char bytes[4 * BLOCK];
    uint32_t tokens[16], blocks[4], found[4], n;
    const uint32_t order[] = {2, 0, 1, 3};
    weir_prefix p = prompt(tokens, "abcdefghijklmnop");
    memset(bytes, 0x33, sizeof bytes);
    until_it_works(weir_block_pool_alloc(w->m, 4, 0, w->stream, blocks));
    until_it_works(weir_block_pool_upload(w->m, order, 4, bytes, w->stream));
    check_references(w, blocks, (const uint32_t[]){1, 1, 1, 1}, 4);
    gate g = GATE; /* the writes are not done when they are looked up */
    arm(false);
    ok(weir_call(w->runtime, pass_gate, &g, w->stream));
    arm(true);
    if (!went(weir_prefix_cache_insert(w->cache, &p, blocks, 4, w->stream, &n))) {
        check_references(w, blocks, (const uint32_t[]){1, 1, 1, 1}, 4);
        ok(weir_prefix_cache_insert(w->cache, &p, blocks, 4, w->stream, &n));
    }
    assert_int_equal(n, 4);
    if (!went(weir_prefix_cache_acquire(w->cache, &p, w->other, found, 4, &n))) {
        assert_int_equal(n, 0);
        check_references(w, blocks, (const uint32_t[]){2, 2, 2, 2}, 4);
        ok(weir_prefix_cache_acquire(w->cache, &p, w->other, found, 4, &n));
    }
    open_gate(&g);
    assert_int_equal(n, 4);
    check_references(w, blocks, (const uint32_t[]){3, 3, 3, 3}, 4);
    until_it_works(weir_block_pool_free(w->m, found, NULL, 4, 0, w->other));
    check_references(w, blocks, (const uint32_t[]){2, 2, 2, 2}, 4);
    arm(false);
    ok(weir_prefix_cache_destroy(w->cache));
    ok(weir_block_pool_share(w->m, blocks, 1));
    arm(true);
    copy_on_write(w, blocks[0]);
    until_it_works(weir_block_pool_download(w->m, blocks, 4, bytes, w->stream));
    check_references(w, blocks, (const uint32_t[]){1, 1, 1, 1}, 4);
    until_it_works(weir_block_pool_free(w->m, blocks, NULL, 4, 0, w->stream));
}

static void live(void)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB};
    weir_block_pool_options what = {.struct_size = sizeof what,
                                    .bytes = BLOCK,
                                    .count = 8,
                                    .flags = WEIR_BLOCK_POOL_SHARED | WEIR_BLOCK_POOL_NAMED};
    weir_prefix_cache_options cached = {.struct_size = sizeof cached, .tokens = TOKENS};
    world w;
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &w.runtime));
    w.client = open_client(w.runtime, "one", 0, 0);
    ok(weir_stream_acquire(w.runtime, &w.stream));
    ok(weir_stream_acquire(w.runtime, &w.other));
    fault.calls = 0;
    arm(false);
    arm(true);
    if (!went(weir_block_pool_create(w.client, &what, &w.pool))) {
        assert_null(w.pool);
        check_empty(w.runtime);
        ok(weir_block_pool_create(w.client, &what, &w.pool));
    }
    until_it_works(weir_block_pool_member_create(w.pool, w.client, 0, &w.m));
    until_it_works(weir_prefix_cache_create(w.m, &cached, &w.cache));
    arm(false);
    uint32_t idle[2];
    leave_behind(w.cache, w.m, "01234567", idle);
    ok(weir_prefix_cache_evict(w.cache, 2, idle));
    assert_int_equal(idle[0], 2);
    arm(true);
    live_sequence(&w);
    arm(false);
    calls_made = fault.calls;
    ok(weir_stream_synchronize(w.stream));
    ok(weir_stream_synchronize(w.other));
    assert_int_equal(pool_stats(w.pool).free, 8);
    ok(weir_block_pool_destroy(w.pool));
    ok(weir_stream_release(w.stream));
    ok(weir_stream_release(w.other));
    check_empty(w.runtime);
    ok(weir_client_destroy(w.client));
    ok(weir_runtime_destroy(w.runtime));
    assert_true(faults_nothing_left());
}

static void each_driver_call_fails_once(void **state)
{
    (void)state;
    long calls = 0;
    for (long at = -1; at <= calls; at++) {
        live_with(live, at, -1);
        calls = at < 0 ? calls_made : calls;
        assert_true(at < 0 ? failures == 0 : at == calls || failures <= 1);
    }
    assert_true(calls > 8);
}

static void each_malloc_fails_once(void **state)
{
    (void)state;
    fail_each_malloc(live, 8);
}

/* What a driver is asked to order, and calls of it that fail each time. */
enum { MOST_POINTS = 8 };
static wi_event ordered[MOST_POINTS];
static int order_count, records_to_fail, synchronized;
static wi_driver tried;

static weir_status noted_order(wi_device *device, void *stream, wi_event event)
{
    ordered[order_count++ % MOST_POINTS] = event;
    return faulty_driver.order(device, stream, event);
}

static weir_status failing_record(wi_device *device, void *stream, wi_event *out)
{
    if (records_to_fail == 0)
        return faulty_driver.record(device, stream, out);
    return weir_fail(WEIR_ERR_DRIVER, "not recorded on purpose, %d to come", --records_to_fail);
}

static weir_status counted_synchronize(wi_device *device, void *stream)
{
    synchronized += stream != NULL;
    return faulty_driver.stream_synchronize(device, stream);
}

static world open_watched(void)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB};
    world w = {.cache = NULL};
    faults_reset(-1);
    tried = faulty_driver;
    tried.order = noted_order;
    tried.record = failing_record;
    tried.stream_synchronize = counted_synchronize;
    ok(wi_runtime_create_over(&tried, 0, &options, &w.runtime));
    w.client = open_client(w.runtime, "one", 0, 0);
    ok(weir_stream_acquire(w.runtime, &w.stream));
    ok(weir_stream_acquire(w.runtime, &w.other));
    w.pool = make_shared(w.client, 8, 0);
    w.m = join(w.pool, w.client, 0);
    order_count = synchronized = 0;
    return w;
}

static void close_watched(world *w)
{
    assert_int_equal(pool_stats(w->pool).free, 8);
    ok(weir_block_pool_destroy(w->pool));
    ok(weir_stream_release(w->stream));
    ok(weir_stream_release(w->other));
    ok(weir_client_destroy(w->client));
    ok(weir_runtime_destroy(w->runtime));
}

static void opens_gate(void *it)
{
    open_gate(it);
}

/* One reader of each of three blocks in a row leaves, on two streams, the middle one's last: a write comes behind its own readers and
 * nobody else's, and of several points of a stream behind the last, in whichever order the blocks are named. */
static void a_write_comes_behind_the_readers_of_its_blocks_alone(void **state)
{
    (void)state;
    world w = open_watched();
    gate first = GATE, second = GATE, written = GATE;
    weir_stream writer;
    static unsigned char bytes[3 * BLOCK];
    uint32_t all[3], same;
    ok(weir_stream_acquire(w.runtime, &writer));
    ok(weir_block_pool_alloc(w.m, 3, 0, WEIR_STREAM_HOST, all));
    for (uint32_t k = 0; k < 3; k++)
        assert_int_equal(all[k], k);
    ok(weir_block_pool_share(w.m, all, 3));
    ok(weir_call(w.runtime, pass_gate, &first, w.stream));
    ok(weir_call(w.runtime, pass_gate, &second, w.other));
    const uint32_t outer[] = {2, 1};
    ok(weir_block_pool_free(w.m, &all[0], NULL, 1, 0, w.other));
    ok(weir_block_pool_free(w.m, &outer[0], NULL, 1, 0, w.stream));
    ok(weir_call(w.runtime, pass_gate, &first, w.stream)); /* a later point */
    ok(weir_block_pool_free(w.m, &outer[1], NULL, 1, 0, w.stream));

    order_count = 0;
    ok(weir_block_pool_make_writable(w.m, 1, writer, &same)); /* neither behind 0, which another stream reads */
    assert_int_equal(same, 1);
    assert_int_equal(order_count, 1);
    wi_event last = ordered[0];
    order_count = 0;
    ok(weir_block_pool_make_writable(w.m, 2, writer, &same));
    assert_int_equal(order_count, 1);
    assert_ptr_equal(ordered[0].stream, last.stream);
    assert_true(ordered[0].sequence < last.sequence);
    for (int way = 0; way < 2; way++) {
        const uint32_t both[] = {outer[way], outer[1 - way]};
        order_count = 0;
        ok(weir_block_pool_upload(w.m, both, 2, bytes, writer));
        assert_int_equal(order_count, 1);
        assert_int_equal(ordered[0].sequence, last.sequence);
    }
    order_count = 0;
    ok(weir_block_pool_upload(w.m, all, 3, bytes, writer)); /* behind both streams */
    assert_int_equal(order_count, 2);
    assert_ptr_not_equal(ordered[0].stream, ordered[1].stream);
    ok(weir_call(w.runtime, opens_gate, &written, writer)); /* two writes of a member are for it to order */
    ok(weir_call(w.runtime, pass_gate, &written, w.other));
    order_count = 0;
    ok(weir_block_pool_upload(w.m, all, 3, bytes, w.other)); /* which is behind its own work anyway */
    assert_int_equal(order_count, 1);
    assert_ptr_equal(ordered[0].stream, last.stream);

    open_gate(&first);
    open_gate(&second);
    ok(weir_stream_synchronize(w.stream));
    ok(weir_stream_synchronize(w.other));
    ok(weir_stream_synchronize(writer));
    ok(weir_stream_release(writer));
    ok(weir_block_pool_free(w.m, all, NULL, 3, 0, WEIR_STREAM_HOST));
    close_watched(&w);
}

/* The copy is under way and cannot be kept, nor can its block be freed behind it: the thread waits. */
static void a_copy_that_cannot_be_kept_is_waited_for(void **state)
{
    (void)state;
    world w = open_watched();
    uint32_t index, fresh;
    ok(weir_block_pool_alloc(w.m, 1, 0, WEIR_STREAM_HOST, &index));
    ok(weir_block_pool_share(w.m, &index, 1));
    synchronized = 0;
    records_to_fail = 2; /* behind the copy, and behind the block that was to be its place */
    fails(WEIR_ERR_DRIVER, weir_block_pool_make_writable(w.m, index, w.stream, &fresh));
    detail_names("1 to come"); /* what failed first is told */
    assert_int_equal(records_to_fail, 0);
    assert_int_equal(synchronized, 1);
    assert_int_equal(fresh, WEIR_BLOCK_POOL_NONE);
    assert_int_equal(references(w.pool, index), 2);
    assert_int_equal(pool_stats(w.pool).free, 7);
    const uint32_t both[] = {index, index};
    ok(weir_block_pool_free(w.m, both, NULL, 2, 0, WEIR_STREAM_HOST));
    close_watched(&w);
}

static void blocks_in_a_row_are_one_copy(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB};
    static unsigned char bytes[8 * BLOCK];
    uint32_t all[8];
    weir_runtime *runtime;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "one", 0, 0);
    weir_block_pool *pool = make_shared(client, 8, 0);
    weir_block_pool_member *m = join(pool, client, 0);
    ok(weir_block_pool_alloc(m, 8, 0, WEIR_STREAM_HOST, all));
    const uint32_t rows[] = {0, 1, 2, 7, 4, 5}, up[] = {1, 2, 3}, far[] = {5, 6, 7}, near[] = {0, 1, 2};
    fault.calls = 0;
    ok(weir_block_pool_upload(m, rows, 6, bytes, WEIR_STREAM_HOST));
    assert_int_equal(fault.calls, 3);
    fault.calls = 0;
    ok(weir_block_pool_copy(m, far, m, near, 3, WEIR_STREAM_HOST));
    assert_int_equal(fault.calls, 1);
    fault.calls = 0;
    ok(weir_block_pool_copy(m, up, m, near, 3, WEIR_STREAM_HOST)); /* each is read after it was written */
    assert_int_equal(fault.calls, 3);
    fault.calls = 0;
    ok(weir_block_pool_copy(m, near, m, near, 3, WEIR_STREAM_HOST));
    assert_int_equal(fault.calls, 0);
    ok(weir_block_pool_free(m, all, NULL, 8, 0, WEIR_STREAM_HOST));
    ok(weir_block_pool_destroy(pool));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_driver_call_fails_once),
        cmocka_unit_test(each_malloc_fails_once),
        cmocka_unit_test(a_write_comes_behind_the_readers_of_its_blocks_alone),
        cmocka_unit_test(a_copy_that_cannot_be_kept_is_waited_for),
        cmocka_unit_test(blocks_in_a_row_are_one_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
