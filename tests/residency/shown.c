/* Copies that are shown at the addresses of what is away: a client is used meanwhile, and comes back by piece. */
#include "residency/residency.h"

#include <weir/uses.h>

enum { BLOCKS = 3 };

static const size_t sizes[BLOCKS] = {5 * MIB + 300, 4 * MIB, 6 * MIB};
static const weir_class classes[BLOCKS] = {WEIR_CLASS_WEIGHTS, WEIR_CLASS_KV, WEIR_CLASS_WEIGHTS};

static void fill_blocks(const fixture *f, char **blocks)
{
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate(f->model, sizes[i], WEIR_STREAM_HOST, classes[i]);
        write_block(f->runtime, blocks[i], sizes[i], (uint64_t)i + 1);
    }
}

static void blocks_hold(const fixture *f, char *const *blocks)
{
    for (int i = 0; i < BLOCKS; i++)
        block_holds(f->runtime, blocks[i], sizes[i], (uint64_t)i + 1);
}

static void free_blocks(const fixture *f, char *const *blocks)
{
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_free(f->model, blocks[i], WEIR_STREAM_HOST));
}

static weir_residency show(weir_client *client)
{
    return suspend_with(client, (weir_suspend_options){.show = true});
}

static weir_status resume_some(weir_client *client, weir_resume_options options, uint64_t *came)
{
    options.struct_size = sizeof options;
    return weir_client_resume_some(client, &options, WEIR_STREAM_HOST, came);
}

/* What the host's ledger counts for copies of the client: on the host it is the device's. */
static void stored_is_charged(const fixture *f)
{
    uint64_t stored = residency(f->model).stored, live = 0;
    weir_runtime *host = NULL;
    if (!host_writes()) {
        ok(weir_runtime_get("host", NULL, &host));
        snapshot s = take_snapshot(host);
        for (size_t i = 0; i < s.count; i++)
            live += strcmp(s.clients[i].name, "model") == 0 ? s.clients[i].live : 0;
        assert_int_equal(live, stored);
    }
}

static void contents_are_there_and_can_be_written(void **state)
{
    const fixture *f = *state;
    char *blocks[BLOCKS];
    fill_blocks(f, blocks);
    uint64_t live = take_snapshot(f->runtime).device.live;
    weir_residency r = show(f->model);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(r.state, WEIR_SUSPENDED);
    assert_true(r.shown > 12 * MIB);
    assert_int_equal(r.shown, r.away);
    assert_true(r.stored >= r.away);
    assert_int_equal(s.device.live + s.device.away, live + (host_writes() ? r.stored : 0));
    stored_is_charged(f);
    blocks_hold(f, blocks);
    void *others = allocate(f->other, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    ok(weir_fill(f->runtime, others, 0x55, 20 * MIB, WEIR_STREAM_HOST));
    blocks_hold(f, blocks);
    write_block(f->runtime, blocks[1], sizes[1], 99);
    ok(weir_free(f->other, others, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, blocks[0], sizes[0], 1);
    block_holds(f->runtime, blocks[1], sizes[1], 99);
    block_holds(f->runtime, blocks[2], sizes[2], 3);
    assert_int_equal(residency(f->model).shown + residency(f->model).away, 0);
    free_blocks(f, blocks);
}

static void pieces_come_one_by_one(void **state)
{
    const fixture *f = *state;
    char *blocks[BLOCKS];
    fill_blocks(f, blocks);
    uint64_t away = show(f->model).away, came;
    unsigned pieces = 0;
    while (residency(f->model).state == WEIR_SUSPENDED) {
        snapshot before = take_snapshot(f->runtime);
        ok(resume_some(f->model, (weir_resume_options){.most = 1}, &came));
        snapshot now = take_snapshot(f->runtime);
        check_sums(&now);
        assert_true(came > 0);
        assert_int_equal(now.device.live, before.device.live + came);
        assert_int_equal(now.device.away, before.device.away - came);
        assert_int_equal(residency(f->model).shown, now.device.away);
        away -= came;
        blocks_hold(f, blocks);
        pieces++;
    }
    assert_int_equal(away, 0);
    assert_true(pieces > 1);
    ok(resume_some(f->model, (weir_resume_options){.most = 1}, &came));
    assert_int_equal(came, 0);
    free_blocks(f, blocks);
}

static void a_block_or_a_class_comes_first(void **state)
{
    const fixture *f = *state;
    char *blocks[BLOCKS];
    uint64_t came;
    fill_blocks(f, blocks);
    uint64_t away = show(f->model).away;
    fails(WEIR_ERR_INVALID, resume_some(f->model, (weir_resume_options){.classes = 1u << 30}, &came));
    ok(resume_some(f->model, (weir_resume_options){.classes = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH)}, &came));
    assert_int_equal(came, 0);
    ok(resume_some(f->model, (weir_resume_options){.block = blocks[2]}, &came));
    assert_true(came >= sizes[2] - 2 * MIB && came < away);
    away -= came;
    ok(resume_some(f->model, (weir_resume_options){.block = blocks[2]}, &came));
    assert_int_equal(came, 0);
    ok(resume_some(f->model, (weir_resume_options){.classes = WEIR_CLASS_BIT(WEIR_CLASS_KV)}, &came));
    assert_true(came > 0);
    away -= came;
    assert_int_equal(residency(f->model).away, away);
    blocks_hold(f, blocks);
    ok(resume_some(f->model, (weir_resume_options){0}, &came));
    assert_int_equal(came, away);
    assert_int_equal(residency(f->model).state, WEIR_RESIDENT);
    blocks_hold(f, blocks);
    free_blocks(f, blocks);
}

/* No piece is exchanged under work that may be using it. */
static void running_work_is_waited_for(void **state)
{
    fixture *f = *state;
    char *blocks[BLOCKS];
    uint64_t came;
    fill_blocks(f, blocks);
    char *streamed = allocate(f->model, 4 * MIB, f->stream, WEIR_CLASS_KV);
    ok(weir_stream_synchronize(f->stream));
    (void)show(f->model);
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    ok(weir_fill(f->runtime, streamed, 7, 4 * MIB, f->stream));
    fails(WEIR_ERR_BUSY, resume_some(f->model, (weir_resume_options){.wait = 1000000}, &came));
    assert_int_equal(came, 0);
    weir_use use = {.block = {.pointer = blocks[1]}, .access = WEIR_ACCESS_WRITE};
    weir_launch *launch;
    ok(weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    ok(weir_fill(f->runtime, blocks[1], 9, sizes[1], f->stream));
    open_gate(&f->gate);
    fails(WEIR_ERR_BUSY, weir_client_resume(f->model, WEIR_STREAM_HOST)); /* the launch has not ended */
    ok(weir_launch_end(launch));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    unsigned char *there = malloc(sizes[1]);
    ok(weir_copy(f->runtime, there, blocks[1], sizes[1], WEIR_STREAM_HOST));
    for (size_t i = 0; i < sizes[1]; i++)
        assert_int_equal(there[i], 9);
    ok(weir_copy(f->runtime, there, streamed, 4 * MIB, WEIR_STREAM_HOST));
    for (size_t i = 0; i < 4 * MIB; i++)
        assert_int_equal(there[i], 7);
    free(there);
    ok(weir_free(f->model, streamed, f->stream));
    ok(weir_stream_synchronize(f->stream));
    free_blocks(f, blocks);
}

/* A declared use on a stream that no block was allocated on. */
static void declared_uses_are_waited_for(void **state)
{
    fixture *f = *state;
    char *blocks[BLOCKS];
    weir_launch *launch;
    uint64_t came;
    fill_blocks(f, blocks);
    (void)show(f->model);
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    weir_use use = {.block = {.pointer = blocks[0]}, .access = WEIR_ACCESS_READ};
    ok(weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    ok(weir_launch_end(launch));
    fails(WEIR_ERR_BUSY, resume_some(f->model, (weir_resume_options){.wait = 1000000}, &came));
    open_gate(&f->gate);
    ok(resume_some(f->model, (weir_resume_options){.wait = UINT64_MAX}, &came));
    blocks_hold(f, blocks);
    free_blocks(f, blocks);
}

/* Nor under work on the stream of a block that stayed, which may use the others as well. */
static void work_on_streams_of_what_stayed_is_waited_for(void **state)
{
    fixture *f = *state;
    char *blocks[BLOCKS];
    uint64_t came;
    fill_blocks(f, blocks);
    void *stayed = allocate(f->model, 4 * MIB, f->stream, WEIR_CLASS_SCRATCH);
    weir_residency r =
        suspend_with(f->model, (weir_suspend_options){.show = true, .stay = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH)});
    assert_true(r.shown > 0 && r.stayed >= 4 * MIB);
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    fails(WEIR_ERR_BUSY, resume_some(f->model, (weir_resume_options){.wait = 1000000}, &came));
    open_gate(&f->gate);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    blocks_hold(f, blocks);
    ok(weir_free(f->model, stayed, f->stream));
    ok(weir_stream_synchronize(f->stream));
    free_blocks(f, blocks);
}

static void blocks_come_and_go_meanwhile(void **state)
{
    const fixture *f = *state;
    char *blocks[BLOCKS];
    fill_blocks(f, blocks);
    (void)show(f->model);
    char *new = allocate(f->model, 3 * MIB, f->stream, WEIR_CLASS_SCRATCH);
    ok(weir_fill(f->runtime, new, 3, 3 * MIB, f->stream));
    uint64_t away = residency(f->model).away;
    ok(weir_fill(f->runtime, blocks[1], 4, sizes[1], f->stream));
    ok(weir_free(f->model, blocks[1], f->stream)); /* is waited for */
    assert_true(residency(f->model).away < away);
    assert_int_equal(residency(f->model).away, residency(f->model).shown);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    void *again = allocate(f->other, sizes[1], WEIR_STREAM_HOST, WEIR_CLASS_KV); /* may have those addresses */
    write_block(f->runtime, again, sizes[1], 50);
    block_holds(f->runtime, blocks[0], sizes[0], 1);
    block_holds(f->runtime, blocks[2], sizes[2], 3);
    ok(weir_client_resume(f->model, f->stream));
    ok(weir_stream_synchronize(f->stream));
    block_holds(f->runtime, blocks[0], sizes[0], 1);
    block_holds(f->runtime, blocks[2], sizes[2], 3);
    block_holds(f->runtime, again, sizes[1], 50);
    ok(weir_free(f->other, again, WEIR_STREAM_HOST));
    ok(weir_free(f->model, new, f->stream));
    ok(weir_free(f->model, blocks[0], WEIR_STREAM_HOST));
    ok(weir_free(f->model, blocks[2], WEIR_STREAM_HOST));
    ok(weir_stream_synchronize(f->stream));
}

static void all_of_it_is_freed_meanwhile(void **state)
{
    const fixture *f = *state;
    char *blocks[BLOCKS];
    fill_blocks(f, blocks);
    (void)show(f->model);
    free_blocks(f, blocks);
    assert_int_equal(residency(f->model).away + residency(f->model).shown, 0);
    assert_int_equal(take_snapshot(f->runtime).device.away, 0);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    fill_blocks(f, blocks);
    (void)show(f->model);
    free_blocks(f, blocks); /* and so it is closed */
}

/* The copies go with the client, suspended or not; a close that is refused for the client's own blocks leaves them. */
static void it_is_closed_as_it_is(void **state)
{
    const fixture *f = *state;
    for (int resumed = 0; resumed < 2; resumed++) {
        weir_client *client = open_client(f->runtime, "closed", 0, 0);
        char *kept = allocate(client, sizes[0], WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS),
             *freed = allocate(client, sizes[1], WEIR_STREAM_HOST, WEIR_CLASS_KV);
        write_block(f->runtime, kept, sizes[0], 1);
        (void)show(client);
        if (resumed)
            ok(weir_client_resume(client, WEIR_STREAM_HOST));
        ok(weir_free(client, freed, WEIR_STREAM_HOST));
        fails(WEIR_ERR_BUSY, weir_client_destroy(client));
        assert_non_null(strstr(weir_detail(), "has 1 blocks of 5"));
        block_holds(f->runtime, kept, sizes[0], 1);
        assert_true(residency(client).stored > 0);
        ok(weir_free(client, kept, WEIR_STREAM_HOST));
        ok(weir_client_destroy(client));
        snapshot s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.live + s.device.away, 0);
    }
}

static void an_allocation_resumes_if_that_is_wanted(void **state)
{
    const fixture *f = *state;
    char *blocks[BLOCKS];
    fill_blocks(f, blocks);
    (void)suspend_with(f->model, (weir_suspend_options){.show = true, .resume_on_alloc = true});
    char *new = allocate(f->model, MIB, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    assert_int_equal(residency(f->model).state, WEIR_RESIDENT);
    blocks_hold(f, blocks);
    ok(weir_free(f->model, new, WEIR_STREAM_HOST));
    free_blocks(f, blocks);
}

static void what_is_dropped_is_zeros_and_can_be_used(void **state)
{
    const fixture *f = *state;
    char *blocks[BLOCKS];
    fill_blocks(f, blocks);
    weir_suspend_options o = {.show = true, .drop = WEIR_CLASS_BIT(WEIR_CLASS_KV)};
    weir_residency r = suspend_with(f->model, o);
    assert_int_equal(r.shown, r.away);
    assert_true(r.dropped > 0);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    write_block(f->runtime, blocks[1], sizes[1], 60);
    ok(weir_client_suspend(f->model, &(weir_suspend_options){.struct_size = sizeof o, .show = true, .drop = o.drop},
                           NULL));
    char *middle = blocks[1] + 2 * MIB;
    block_holds_zeros(f->runtime, middle, MIB);
    write_block(f->runtime, middle, MIB, 61);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, middle, MIB, 61);
    block_holds(f->runtime, blocks[0], sizes[0], 1);
    free_blocks(f, blocks);
}

/* Between the calls that bring a client back, what is back may be written. A promise of what was unwritten since the last of them
 * does not hold of it, and its copy is the one of then. */
static void what_came_back_before_the_rest_is_copied_again(void **state)
{
    const fixture *f = *state;
    for (int shown = 0; shown < 2; shown++) {
        char *blocks[BLOCKS];
        uint64_t came;
        fill_blocks(f, blocks);
        (void)suspend_with(f->model, (weir_suspend_options){.show = shown});
        ok(resume_some(f->model, (weir_resume_options){.block = blocks[0]}, &came));
        write_block(f->runtime, blocks[0], sizes[0], 10);
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        weir_suspend_options o = {.show = shown, .unwritten = WEIR_CLASS_BIT(WEIR_CLASS_COUNT) - 1};
        weir_residency r = suspend_with(f->model, o);
        assert_int_equal(r.copied, came);
        assert_int_equal(r.trusted, r.away - came);
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        block_holds(f->runtime, blocks[0], sizes[0], 10);
        block_holds(f->runtime, blocks[1], sizes[1], 2);
        block_holds(f->runtime, blocks[2], sizes[2], 3);
        assert_true(weir_client_forget_copies(f->model) > 0);
        free_blocks(f, blocks);
    }
}

static void what_is_unwritten_is_not_copied_again(void **state)
{
    const fixture *f = *state;
    char *blocks[BLOCKS];
    fill_blocks(f, blocks);
    (void)show(f->model);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    for (int round = 0; round < 3; round++) {
        weir_suspend_options o = {
            .show = true, .unwritten = WEIR_CLASS_BIT(WEIR_CLASS_COUNT) - 1, .verify = round == 1};
        weir_residency r = suspend_with(f->model, o);
        assert_int_equal(r.copied + r.differed, 0);
        assert_true(r.trusted >= r.away);
        assert_int_equal(r.shown, r.away);
        blocks_hold(f, blocks);
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        blocks_hold(f, blocks);
    }
    /* one that is not shown reads the same copies, and the other way round they are made again */
    weir_residency r =
        suspend_with(f->model, (weir_suspend_options){.unwritten = WEIR_CLASS_BIT(WEIR_CLASS_COUNT) - 1});
    assert_int_equal(r.copied + r.shown, 0);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    blocks_hold(f, blocks);
    assert_true(weir_client_forget_copies(f->model) > 0);
    (void)suspend(f->model);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    r = suspend_with(f->model, (weir_suspend_options){.show = true, .unwritten = WEIR_CLASS_BIT(WEIR_CLASS_COUNT) - 1});
    assert_true(r.copied >= r.away);
    assert_int_equal(r.trusted, 0);
    blocks_hold(f, blocks);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    blocks_hold(f, blocks);
    free_blocks(f, blocks);
}

static void without_room_it_stays_shown(void **state)
{
    const fixture *f = *state;
    char *blocks[BLOCKS];
    uint64_t came;
    fill_blocks(f, blocks);
    weir_residency r = show(f->model);
    uint64_t room = BUDGET - take_snapshot(f->runtime).device.live - 3 * MIB;
    void *others = allocate(f->other, room, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(residency(f->model).shown, r.shown);
    blocks_hold(f, blocks);
    ok(resume_some(f->model, (weir_resume_options){.most = 2 * MIB}, &came));
    assert_true(came > 0 && came <= 3 * MIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, resume_some(f->model, (weir_resume_options){0}, &came));
    assert_int_equal(came, 0);
    blocks_hold(f, blocks);
    ok(weir_free(f->other, others, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    blocks_hold(f, blocks);
    free_blocks(f, blocks);
}

/* A device that maps no memory of the host's: the receipt says so, and addresses are as empty as ever. */
static void where_it_cannot_be_shown(void **state)
{
    (void)state;
    void *stub = host_writes() ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void (*reach)(bool) = NULL;
    if (stub)
        *(void **)&reach = dlsym(stub, "stub_reach");
    if (!reach) {
        skip();
        return;
    }
    reach(false);
    weir_runtime *runtime = make_runtime_here(BUDGET);
    reach(true);
    weir_client *client = open_client(runtime, "unseen", 0, 0);
    char *block = allocate(client, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(runtime, block, 6 * MIB, 1);
    weir_residency r = show(client);
    assert_true(r.away > 0);
    assert_int_equal(r.shown, 0);
    void *refused;
    fails(WEIR_ERR_BUSY, weir_alloc(client, MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &refused));
    uint64_t came;
    ok(resume_some(client, (weir_resume_options){.most = 1}, &came));
    assert_true(came > 0);
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    block_holds(runtime, block, 6 * MIB, 1);
    ok(weir_free(client, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    dlclose(stub);
}

static int forget_and_tear_down(void **state)
{
    const fixture *f = *state;
    (void)!weir_client_resume(f->model, WEIR_STREAM_HOST);
    (void)weir_client_forget_copies(f->model);
    return tear_down(state);
}

#define SHOWN(name) cmocka_unit_test_setup_teardown(name, set_up, forget_and_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {SHOWN(contents_are_there_and_can_be_written),
                                       SHOWN(pieces_come_one_by_one),
                                       SHOWN(a_block_or_a_class_comes_first),
                                       SHOWN(running_work_is_waited_for),
                                       SHOWN(declared_uses_are_waited_for),
                                       SHOWN(work_on_streams_of_what_stayed_is_waited_for),
                                       SHOWN(blocks_come_and_go_meanwhile),
                                       SHOWN(all_of_it_is_freed_meanwhile),
                                       SHOWN(it_is_closed_as_it_is),
                                       SHOWN(an_allocation_resumes_if_that_is_wanted),
                                       SHOWN(what_is_dropped_is_zeros_and_can_be_used),
                                       SHOWN(what_is_unwritten_is_not_copied_again),
                                       SHOWN(what_came_back_before_the_rest_is_copied_again),
                                       SHOWN(without_room_it_stays_shown),
                                       cmocka_unit_test(where_it_cannot_be_shown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
