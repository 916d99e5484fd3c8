/* Blocks moved to and from host memory and to other blocks: which, in which order, and what is refused. */
#include "blocks/shared.h"

enum { MANY = 6 };

static void blocks_go_up_and_come_down_in_the_order_of_the_list(void **state)
{
    fixture *f = *state;
    uint32_t all[8];
    unsigned char out[MANY * BLOCK], in[MANY * BLOCK];
    ok(weir_block_pool_alloc(f->m, 8, 0, WEIR_STREAM_HOST, all));
    const uint32_t list[MANY] = {5, 1, 2, 3, 7, 0}; /* scattered, and three in a row */
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (unsigned char)(i / BLOCK * 16 + i % 13);
    for (uint32_t i = 0; i < 8; i++)
        paint(f, i, 7, f->stream);
    ok(weir_block_pool_upload(f->m, list, MANY, out, f->stream));
    ok(weir_block_pool_download(f->m, list, MANY, in, f->stream));
    ok(weir_stream_synchronize(f->stream));
    assert_memory_equal(in, out, sizeof out);
    const uint32_t single = 2;
    ok(weir_block_pool_download(f->m, &single, 1, in, WEIR_STREAM_HOST));
    assert_memory_equal(in, out + 2 * BLOCK, BLOCK);
    assert_int_equal(color(f->m, 4), 7);
    assert_int_equal(color(f->m, 6), 7);
    paint(f, 3, 8, WEIR_STREAM_HOST); /* of a row that goes on behind the list nothing more is moved */
    ok(weir_block_pool_upload(f->m, list + 1, 2, out, WEIR_STREAM_HOST));
    assert_int_equal(color(f->m, 3), 8);
    ok(weir_block_pool_free(f->m, all, NULL, 8, 0, WEIR_STREAM_HOST));
}

static void blocks_are_copied_pair_after_pair(void **state)
{
    fixture *f = *state;
    uint32_t all[8];
    ok(weir_block_pool_alloc(f->m, 8, 0, WEIR_STREAM_HOST, all));
    for (uint32_t i = 0; i < 8; i++)
        paint(f, i, (uint8_t)(10 + i), WEIR_STREAM_HOST);
    const uint32_t from[] = {0, 1, 2, 5}, to[] = {1, 2, 3, 5};
    ok(weir_block_pool_copy(f->m, to, f->m, from, 4, f->stream));
    ok(weir_stream_synchronize(f->stream));
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(color(f->m, i), 10); /* each was written before it was read */
    assert_int_equal(color(f->m, 4), 14);
    assert_int_equal(color(f->m, 5), 15);
    const uint32_t down[] = {4, 5, 6}, up[] = {3, 4, 5};
    ok(weir_block_pool_copy(f->m, up, f->m, down, 3, f->stream));
    ok(weir_stream_synchronize(f->stream));
    for (uint32_t i = 3; i < 6; i++)
        assert_int_equal(color(f->m, i), 11 + (int)i);
    ok(weir_block_pool_free(f->m, all, NULL, 8, 0, WEIR_STREAM_HOST));
}

static void blocks_are_copied_from_pool_to_pool(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_shared(f->b, 3, 0);
    weir_block_pool_member *m = join(pool, f->a, 0);
    uint32_t from[2], to[2];
    ok(weir_block_pool_alloc(f->m, 2, 0, WEIR_STREAM_HOST, from));
    ok(weir_block_pool_alloc(m, 2, 0, WEIR_STREAM_HOST, to));
    paint(f, from[0], 3, f->stream);
    paint(f, from[1], 4, f->stream);
    ok(weir_block_pool_copy(m, to, f->m, from, 2, f->stream));
    ok(weir_block_pool_free(f->m, from, NULL, 2, 0, f->stream));
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(color(m, to[0]), 3);
    assert_int_equal(color(m, to[1]), 4);
    ok(weir_block_pool_free(m, to, NULL, 2, 0, f->stream));
    ok(weir_stream_synchronize(f->stream));
    ok(weir_block_pool_destroy(pool));
}

static void other_sizes_and_other_runtimes_are_refused(void **state)
{
    fixture *f = *state;
    weir_block_pool_options options = {.struct_size = sizeof options, .bytes = 2 * BLOCK, .count = 2, .tag = "large"};
    weir_runtime *runtime = make_runtime_here(4 * MIB);
    weir_client *client = open_client(runtime, "elsewhere", 0, 0);
    weir_block_pool *large, *far = make_shared(client, 2, 0);
    ok(weir_block_pool_create(f->a, &options, &large));
    weir_block_pool_member *l = join(large, f->a, 0), *e = join(far, client, 0);
    uint32_t mine = take(f->m), one = take(l), there = take(e);
    unsigned char bytes[BLOCK];
    fails(WEIR_ERR_UNSUPPORTED, weir_block_pool_copy(l, &one, f->m, &mine, 1, f->stream));
    detail_names("256 bytes");
    detail_names("512");
    fails(WEIR_ERR_UNSUPPORTED, weir_block_pool_copy(e, &there, f->m, &mine, 1, f->stream));
    detail_names("pinned");
    paint(f, mine, 9, WEIR_STREAM_HOST); /* through host memory it goes */
    ok(weir_block_pool_download(f->m, &mine, 1, bytes, WEIR_STREAM_HOST));
    ok(weir_block_pool_upload(e, &there, 1, bytes, WEIR_STREAM_HOST));
    assert_int_equal(color(e, there), 9);
    fails(WEIR_ERR_STREAM_MISUSE, weir_block_pool_upload(e, &there, 1, bytes, f->stream));
    ok(drop(f->m, mine, WEIR_STREAM_HOST));
    ok(drop(l, one, WEIR_STREAM_HOST));
    ok(drop(e, there, WEIR_STREAM_HOST));
    ok(weir_block_pool_destroy(large));
    ok(weir_block_pool_destroy(far));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static void a_shared_block_is_read_and_not_written(void **state)
{
    fixture *f = *state;
    uint32_t one = take(f->m), two = take(f->m), list[] = {two, one};
    unsigned char bytes[2 * BLOCK];
    memset(bytes, 5, sizeof bytes);
    paint(f, one, 1, WEIR_STREAM_HOST);
    paint(f, two, 2, WEIR_STREAM_HOST);
    ok(weir_block_pool_share(f->m, &one, 1));
    fails(WEIR_ERR_BUSY, weir_block_pool_upload(f->m, list, 2, bytes, WEIR_STREAM_HOST));
    detail_names("other references");
    fails(WEIR_ERR_BUSY, weir_block_pool_copy(f->m, &one, f->m, &two, 1, WEIR_STREAM_HOST));
    assert_int_equal(color(f->m, one), 1);
    assert_int_equal(color(f->m, two), 2); /* not even the first of the list */
    ok(weir_block_pool_copy(f->m, &two, f->m, &one, 1, WEIR_STREAM_HOST));
    assert_int_equal(color(f->m, two), 1);
    ok(drop(f->m, one, WEIR_STREAM_HOST));
    ok(weir_block_pool_upload(f->m, list, 2, bytes, WEIR_STREAM_HOST));
    assert_int_equal(color(f->m, one), 5);
    ok(weir_block_pool_free(f->m, list, NULL, 2, 0, WEIR_STREAM_HOST));
}

static void only_ones_own_blocks_are_moved(void **state)
{
    fixture *f = *state;
    weir_block_pool_member *b = join(f->pool, f->b, 0);
    uint32_t mine = take(f->m), theirs = take(b), list[] = {mine, theirs}, loose[] = {mine, 6}, far[] = {mine, 8};
    unsigned char bytes[2 * BLOCK];
    memset(bytes, 5, sizeof bytes);
    paint(f, mine, 1, WEIR_STREAM_HOST);
    fails(WEIR_ERR_FOREIGN, weir_block_pool_upload(f->m, list, 2, bytes, WEIR_STREAM_HOST));
    detail_names("bert");
    fails(WEIR_ERR_INVALID, weir_block_pool_upload(f->m, loose, 2, bytes, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_upload(f->m, far, 2, bytes, WEIR_STREAM_HOST));
    fails(WEIR_ERR_FOREIGN, weir_block_pool_download(f->m, list, 2, bytes, WEIR_STREAM_HOST));
    fails(WEIR_ERR_FOREIGN, weir_block_pool_copy(f->m, &mine, f->m, &theirs, 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_FOREIGN, weir_block_pool_copy(f->m, &theirs, f->m, &mine, 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_download(f->m, &mine, 1, NULL, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_download(f->m, &mine, 0, bytes, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_upload(NULL, &mine, 1, bytes, WEIR_STREAM_HOST));
    assert_int_equal(color(f->m, mine), 1);
    /* each list of a copy for itself */
    uint32_t second = take(f->m), good[] = {mine, second}, other[] = {second, mine};
    const struct {
        weir_status status;
        const uint32_t *list;
    } wrong[] = {
        {WEIR_ERR_INVALID, NULL}, {WEIR_ERR_INVALID, loose}, {WEIR_ERR_INVALID, far}, {WEIR_ERR_FOREIGN, list}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        fails(wrong[i].status, weir_block_pool_copy(f->m, wrong[i].list, f->m, good, 2, WEIR_STREAM_HOST));
        fails(wrong[i].status, weir_block_pool_copy(f->m, good, f->m, wrong[i].list, 2, WEIR_STREAM_HOST));
    }
    fails(WEIR_ERR_INVALID, weir_block_pool_copy(NULL, good, f->m, other, 2, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_copy(f->m, good, NULL, other, 2, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_copy(f->m, good, f->m, other, 0, WEIR_STREAM_HOST));
    assert_int_equal(color(f->m, mine), 1);
    ok(drop(f->m, second, WEIR_STREAM_HOST));
    ok(drop(f->m, mine, WEIR_STREAM_HOST));
    ok(drop(b, theirs, WEIR_STREAM_HOST));
}

static void moves_come_behind_the_work_before_them(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .kind = WEIR_KIND_PINNED};
    weir_block pinned;
    ok(weir_alloc_with(f->a, &request, &pinned));
    memset(pinned.pointer, 0, BLOCK);
    uint32_t index = take(f->m);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    paint(f, index, 6, f->stream);
    ok(weir_block_pool_download(f->m, &index, 1, pinned.pointer, f->stream));
    ok(drop(f->m, index, f->stream));
    assert_int_equal(((unsigned char *)pinned.pointer)[BLOCK - 1], 0); /* the gate stands */
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(((unsigned char *)pinned.pointer)[BLOCK - 1], 6);
    ok(weir_free_block(f->a, pinned, WEIR_STREAM_HOST));
}

/* A block that was shared is uploaded to on one stream while its last reader's work on another is not done. */
static void an_upload_comes_behind_readers_that_have_left(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    uint32_t index = take(f->m), to = take(f->m), from = take(f->m);
    paint(f, index, 1, WEIR_STREAM_HOST);
    paint(f, from, 2, WEIR_STREAM_HOST);
    ok(weir_block_pool_share(f->m, &index, 1));
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_block_pool_copy(f->m, &to, f->m, &index, 1, f->stream));
    ok(drop(f->m, index, f->stream));
    ok(weir_block_pool_copy(f->m, &index, f->m, &from, 1, f->other));
    pthread_t thread;
    pthread_create(&thread, NULL, open_gate_later, &g);
    ok(weir_stream_synchronize(f->other));
    pthread_join(thread, NULL);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(color(f->m, to), 1);
    assert_int_equal(color(f->m, index), 2);
    const uint32_t all[] = {index, to, from};
    ok(weir_block_pool_free(f->m, all, NULL, 3, 0, WEIR_STREAM_HOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(blocks_go_up_and_come_down_in_the_order_of_the_list),
        TEST(blocks_are_copied_pair_after_pair),
        TEST(blocks_are_copied_from_pool_to_pool),
        TEST(other_sizes_and_other_runtimes_are_refused),
        TEST(a_shared_block_is_read_and_not_written),
        TEST(only_ones_own_blocks_are_moved),
        TEST(moves_come_behind_the_work_before_them),
        TEST(an_upload_comes_behind_readers_that_have_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
