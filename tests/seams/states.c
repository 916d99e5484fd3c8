/* States of PyTorch's pools (src/seams/torch_pools.c), as its graph trees take, set and drop them. Over the stub of CUDA's
 * driver; what PyTorch's own allocator does with what it is told is done here. */
#include "seams/torch.h"
#include "seams/seams.h"

#include "info.h"
#include "core.h"

enum { BLOCK = 2 << 20, MOST = 8, POOL = 7 };

typedef struct told {
    void *freed[MOST], *alive[MOST];
    int freed_count, alive_count;
} told;

/* A std::function, as far as it is asked. */
typedef struct filter {
    void *functor[2];
    bool (*manager)(void *to, const void *from, int what);
    bool (*invoker)(const void *functor, void *const *stream);
} filter;

static weir_client *client;

static bool manage(void *to, const void *from, int what)
{
    (void)to;
    return from && what < 0;
}

static bool every(const void *functor, void *const *stream)
{
    return functor && stream;
}

static void *take(void)
{
    void *pointer = wseam_torch_alloc(BLOCK, 0, NULL);
    assert_non_null(pointer);
    return pointer;
}

static void give(void *pointer)
{
    wseam_torch_free(pointer, BLOCK, 0, NULL);
}

static void on_freed(void *user, void *pointer)
{
    told *t = user;
    t->freed[t->freed_count++] = pointer;
    give(pointer);
}

static void on_alive(void *user, void *pointer, size_t bytes, void *native)
{
    told *t = user;
    t->alive[t->alive_count++] = pointer;
    assert_int_equal(bytes, BLOCK);
    assert_null(native);
}

static void account_is(uint64_t live, uint64_t pending)
{
    weir_client_stats stats = client_details(client);
    assert_int_equal(stats.live, live * BLOCK);
    assert_int_equal(stats.pending, pending * BLOCK);
}

static void pool_has(size_t live)
{
    void *blocks[MOST];
    assert_int_equal(wseam_torch_pool_blocks(0, POOL, 0, blocks, MOST), live);
}

static void *state(void)
{
    const uint64_t id[2] = {POOL, 0};
    void *made = wtorch_state_get(0, id);
    assert_non_null(made);
    return made;
}

static told set(void *made)
{
    told t = {.freed_count = 0};
    wtorch_state_set(made, on_freed, on_alive, &t);
    return t;
}

static void begin(void)
{
    const filter of_all = {.manager = manage, .invoker = every};
    wseam_torch_begin_pool(0, POOL, 0, &of_all);
}

static void open_device(int device)
{
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_runtime *runtime;
    options.name = "torch";
    ok(weir_runtime_get("cuda:0", NULL, &runtime));
    ok(weir_client_create(runtime, &options, &client));
    ok(wseam_torch_give(device, client));
}

static int set_up(void **ignored)
{
    (void)ignored;
    ok(wseam_torch_begin(open_device));
    begin();
    return 0;
}

static int tear_down(void **ignored)
{
    (void)ignored;
    wseam_torch_end_pool(0, POOL, 0);
    wseam_torch_release_pool(0, POOL, 0);
    void *all = wseam_torch_alloc(64 << 20, 0, NULL); /* waits for what the device is not past */
    assert_non_null(all);
    wseam_torch_free(all, 64 << 20, 0, NULL);
    account_is(0, 0);
    return 0;
}

/* What lives and was not there is freed; what was there and is gone lives again, with its bytes where they were. */
static void a_state_is_set_again(void **ignored)
{
    (void)ignored;
    void *stays = take(), *goes = take();
    void *first = state();
    uint64_t id[2] = {0};
    give(goes);
    account_is(2, 0); /* it may be wanted again */
    pool_has(1);
    assert_int_equal(wseam_torch_pool_of(stays, id), 2);
    assert_int_equal(id[0], POOL);
    assert_int_equal(wseam_torch_pool_of(goes, id), 1);
    assert_int_equal(wseam_torch_pool_of(id, id), 0);
    void *later = take();
    assert_ptr_not_equal(later, goes);
    told t = set(first);
    assert_int_equal(t.freed_count, 1);
    assert_ptr_equal(t.freed[0], later);
    assert_int_equal(t.alive_count, 1);
    assert_ptr_equal(t.alive[0], goes);
    pool_has(2);
    account_is(2, 1);
    t = set(first); /* it is as it should be */
    assert_int_equal(t.freed_count + t.alive_count, 0);
    wtorch_state_drop(first);
    pool_has(2);
    give(goes);
    give(stays);
    account_is(0, 3);
}

/* Only the last state that has a block lets it go, and while it lives none does. */
static void several_states_have_a_block(void **ignored)
{
    (void)ignored;
    void *block = take();
    void *first = state(), *second = state();
    give(block);
    wtorch_state_drop(first);
    account_is(1, 0);
    told t = set(second);
    assert_int_equal(t.alive_count, 1);
    wtorch_state_drop(second);
    account_is(1, 0);
    give(block);
    account_is(0, 1);
    void *again = take();
    assert_ptr_equal(again, block);
    give(again);
}

static void a_state_has_what_lives_when_it_is_taken(void **ignored)
{
    (void)ignored;
    void *block = take();
    void *with = state();
    give(block); /* it is kept for that one */
    void *without = state();
    told t = set(without);
    assert_int_equal(t.freed_count + t.alive_count, 0);
    assert_int_equal(set(with).alive_count, 1);
    t = set(without);
    assert_int_equal(t.freed_count, 1);
    pool_has(0);
    wtorch_state_drop(with);
    wtorch_state_drop(without);
    account_is(0, 1);
}

/* All that a state alone has goes with it. */
static void a_state_lets_all_of_its_blocks_go(void **ignored)
{
    void *blocks[3];
    (void)ignored;
    for (int i = 0; i < 3; i++)
        blocks[i] = take();
    void *made = state();
    for (int i = 0; i < 3; i++)
        give(blocks[i]);
    account_is(3, 0);
    told t = set(made);
    assert_int_equal(t.alive_count, 3);
    for (int i = 0; i < 3; i++)
        give(blocks[i]);
    wtorch_state_drop(made);
    account_is(0, 3);
}

/* A state outlives the last release of its pool. */
static void a_state_outlives_its_pool(void **ignored)
{
    (void)ignored;
    void *block = take();
    void *made = state();
    wseam_torch_end_pool(0, POOL, 0);
    give(block);
    wseam_torch_release_pool(0, POOL, 0);
    account_is(1, 0);
    assert_int_equal(set(made).alive_count, 1);
    give(block);
    wtorch_state_drop(made);
    begin();
    pool_has(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_state_is_set_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(several_states_have_a_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_state_has_what_lives_when_it_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_state_lets_all_of_its_blocks_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_state_outlives_its_pool, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
