/* A client is suspended and resumed: the same bytes at the same addresses, exact books, nothing of others touched. */
#include "residency/residency.h"

enum { BLOCKS = 6 };

static void bytes_come_back_where_they_were(void **state)
{
    fixture *f = *state;
    const size_t sizes[BLOCKS] = {5 * MIB + 256, 300, 2 * MIB, 17 * KIB, 9 * MIB, 70 * KIB};
    void *blocks[BLOCKS];
    uint64_t charged = 0;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate(f->model, sizes[i], WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        write_block(f->runtime, blocks[i], sizes[i], (uint64_t)i + 1);
        charged += (sizes[i] + UNIT - 1) / UNIT * UNIT;
    }
    snapshot before = take_snapshot(f->runtime);
    assert_int_equal(before.device.live, charged);
    for (int cycle = 0; cycle < 3; cycle++) {
        weir_residency r = suspend(f->model);
        assert_int_equal(r.state, WEIR_SUSPENDED);
        assert_int_equal(r.away, charged);
        assert_int_equal(r.stayed, 0);
        assert_int_equal(r.stays, 0);
        assert_true(r.copied >= charged && r.released >= charged && r.stored >= charged);
        snapshot s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.live, 0);
        assert_int_equal(s.device.away, charged);
        assert_int_equal(s.clients[0].away, charged);
        assert_int_equal(s.clients[0].blocks, BLOCKS);
        trim(f->runtime);
        assert_int_equal(take_snapshot(f->runtime).device.held, 0);
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.live, charged);
        assert_int_equal(s.device.away + s.clients[0].away, 0);
        assert_int_equal(residency(f->model).state, WEIR_RESIDENT);
        for (int i = 0; i < BLOCKS; i++)
            block_holds(f->runtime, blocks[i], sizes[i], (uint64_t)i + 1);
    }
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_free(f->model, blocks[i], WEIR_STREAM_HOST));
}

/* The whole budget serves another client meanwhile. */
static void what_left_is_everybodys(void **state)
{
    fixture *f = *state;
    void *weights = allocate(f->model, 40 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS), *block;
    write_block(f->runtime, weights, 40 * MIB, 7);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->other, 50 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &block));
    (void)suspend(f->model);
    for (int i = 0; i < 3; i++) {
        block = allocate(f->other, 60 * MIB, f->stream, WEIR_CLASS_ACTIVATIONS);
        write_block(f->runtime, block, 60 * MIB, 8);
        ok(weir_free(f->other, block, f->stream));
    }
    ok(weir_stream_synchronize(f->stream));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, weights, 40 * MIB, 7);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

static void a_resume_without_room_is_refused_and_changes_nothing(void **state)
{
    fixture *f = *state;
    void *weights = allocate(f->model, 40 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, weights, 40 * MIB, 7);
    (void)suspend(f->model);
    void *block = allocate(f->other, 60 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, block, 60 * MIB, 8);
    for (int i = 0; i < 3; i++) {
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_resume(f->model, WEIR_STREAM_HOST));
        detail_names("model");
        weir_refusal refusal = last_refusal();
        assert_int_equal(refusal.cause, WEIR_CAUSE_BUDGET);
        assert_int_equal(refusal.requested, 40 * MIB);
        assert_string_equal(refusal.holders[0].client, "other");
        snapshot s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.away, 40 * MIB);
        assert_int_equal(s.device.promised, 0);
        assert_int_equal(residency(f->model).state, WEIR_SUSPENDED);
    }
    block_holds(f->runtime, block, 60 * MIB, 8);
    ok(weir_free(f->other, block, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, weights, 40 * MIB, 7);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

/* A chunk with somebody else's block on it stays, and only it. */
static void what_shares_a_chunk_stays(void **state)
{
    fixture *f = *state;
    void *mine[3], *its[3];
    for (int i = 0; i < 3; i++) { /* small blocks of both lie in one chunk */
        mine[i] = allocate(f->model, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        its[i] = allocate(f->other, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        write_block(f->runtime, mine[i], 1000, (uint64_t)i);
        write_block(f->runtime, its[i], 1000, (uint64_t)i + 10);
    }
    void *large = allocate(f->model, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, large, 8 * MIB, 30);
    weir_residency r = suspend(f->model);
    assert_int_equal(r.away, 8 * MIB);
    assert_int_equal(r.stayed, 3 * 1024);
    assert_int_equal(r.stays, 3);
    for (uint32_t i = 0; i < r.stays; i++) {
        assert_int_equal(r.stay[i].why, WEIR_STAY_SHARED);
        assert_true(r.stay[i].pointer == mine[0] || r.stay[i].pointer == mine[1] || r.stay[i].pointer == mine[2]);
    }
    for (int i = 0; i < 3; i++) {
        block_holds(f->runtime, mine[i], 1000, (uint64_t)i);
        block_holds(f->runtime, its[i], 1000, (uint64_t)i + 10);
    }
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, large, 8 * MIB, 30);
    for (int i = 0; i < 3; i++) {
        ok(weir_free(f->model, mine[i], WEIR_STREAM_HOST));
        ok(weir_free(f->other, its[i], WEIR_STREAM_HOST));
    }
    ok(weir_free(f->model, large, WEIR_STREAM_HOST));
}

/* The receipt has room for some of them. */
static void of_many_that_stay_some_are_told(void **state)
{
    fixture *f = *state;
    enum { MANY = WEIR_STAYS + 3 };
    void *mine[MANY], *its = allocate(f->other, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    for (int i = 0; i < MANY; i++)
        mine[i] = allocate(f->model, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    weir_residency r = suspend(f->model);
    assert_int_equal(r.stayed, MANY * 1024);
    assert_int_equal(r.stays, WEIR_STAYS);
    assert_int_equal(r.shown, 0);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    for (int i = 0; i < MANY; i++)
        ok(weir_free(f->model, mine[i], WEIR_STREAM_HOST));
    ok(weir_free(f->other, its, WEIR_STREAM_HOST));
}

static void blocks_that_must_stay_are_named(void **state)
{
    fixture *f = *state;
    weir_request request = {.struct_size = sizeof request,
                            .bytes = 3 * MIB,
                            .flags = WEIR_ALLOC_STABLE,
                            .memory_class = WEIR_CLASS_KV,
                            .tag = "exported"};
    weir_block stable;
    ok(weir_alloc_with(f->model, &request, &stable));
    void *weights = allocate(f->model, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    void *scratch = allocate(f->model, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    write_block(f->runtime, stable.pointer, 3 * MIB, 1);
    write_block(f->runtime, weights, 8 * MIB, 2);
    weir_residency r = suspend_with(f->model, (weir_suspend_options){.stay = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH)});
    assert_true(r.away > 0 && r.away <= 8 * MIB);
    assert_int_equal(r.away + r.stayed, 15 * MIB);
    bool named = false, of_class = false;
    for (uint32_t i = 0; i < r.stays; i++) {
        named |= r.stay[i].pointer == stable.pointer && r.stay[i].why == WEIR_STAY_STABLE &&
                 strcmp(r.stay[i].tag, "exported") == 0;
        of_class |= r.stay[i].pointer == scratch && r.stay[i].why == WEIR_STAY_CLASS;
    }
    assert_true(named && of_class);
    block_holds(f->runtime, stable.pointer, 3 * MIB, 1);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, weights, 8 * MIB, 2);
    ok(weir_free(f->model, stable.pointer, WEIR_STREAM_HOST));
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
    ok(weir_free(f->model, scratch, WEIR_STREAM_HOST));
}

/* Contents that need not be kept come back as zeros, and cost no copy. */
static void dropped_contents_are_zeros(void **state)
{
    fixture *f = *state;
    void *weights = allocate(f->model, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    void *scratch = allocate(f->model, 6 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    write_block(f->runtime, weights, 4 * MIB, 1);
    write_block(f->runtime, scratch, 6 * MIB, 2);
    weir_residency r = suspend_with(f->model, (weir_suspend_options){.drop = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH)});
    assert_int_equal(r.away, 10 * MIB);
    assert_int_equal(r.dropped, 6 * MIB);
    assert_int_equal(r.copied, 4 * MIB);
    void *others = allocate(f->other, 60 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    write_block(f->runtime, others, 60 * MIB, 3);
    ok(weir_free(f->other, others, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, weights, 4 * MIB, 1);
    block_holds_zeros(f->runtime, scratch, 6 * MIB);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
    ok(weir_free(f->model, scratch, WEIR_STREAM_HOST));
}

/* Copies ----------------------------------------------------------------------------------------------------------- */

static const weir_suspend_options unwritten = {.unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)};

static void a_copy_that_is_still_good_is_not_made_again(void **state)
{
    fixture *f = *state;
    void *weights = allocate(f->model, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, weights, 20 * MIB, 1);
    weir_residency r = suspend_with(f->model, unwritten); /* nothing is copied yet, so that nothing can be trusted */
    assert_int_equal(r.copied, 20 * MIB);
    assert_int_equal(r.trusted, 0);
    for (int i = 0; i < 3; i++) {
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        r = suspend_with(f->model, unwritten);
        assert_int_equal(r.copied, 0);
        assert_int_equal(r.trusted, 20 * MIB);
    }
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, weights, 20 * MIB, 1);
    assert_int_equal(weir_client_forget_copies(f->model), 20 * MIB);
    assert_int_equal(residency(f->model).stored, 0);
    r = suspend_with(f->model, unwritten);
    assert_int_equal(r.copied, 20 * MIB);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, weights, 20 * MIB, 1);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

/* Another block at the same address is another one, whatever was promised. */
static void a_copy_is_of_its_blocks_alone(void **state)
{
    fixture *f = *state;
    void *weights = allocate(f->model, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, weights, 20 * MIB, 1);
    (void)suspend_with(f->model, unwritten);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
    void *again = allocate(f->model, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    assert_ptr_equal(again, weights);
    write_block(f->runtime, again, 20 * MIB, 2);
    weir_residency r = suspend_with(f->model, unwritten);
    assert_int_equal(r.copied, 20 * MIB);
    assert_int_equal(r.trusted, 0);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, again, 20 * MIB, 2);
    ok(weir_free(f->model, again, WEIR_STREAM_HOST));
}

/* The promise is of what the client had when it was resumed last: what was dropped before has become zeros. */
static void a_copy_of_what_was_dropped_is_not_trusted(void **state)
{
    fixture *f = *state;
    void *weights = allocate(f->model, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, weights, 20 * MIB, 1);
    (void)suspend_with(f->model, unwritten);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    (void)suspend_with(f->model, (weir_suspend_options){.drop = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)});
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(suspend_with(f->model, unwritten).trusted, 0);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds_zeros(f->runtime, weights, 20 * MIB);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

/* The same of what stayed when it was suspended last: it may have been written. */
static void a_copy_of_what_stayed_is_not_trusted(void **state)
{
    fixture *f = *state;
    weir_suspend_options stays = {.stay = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)};
    void *weights = allocate(f->model, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, weights, 20 * MIB, 1);
    (void)suspend_with(f->model, unwritten);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(suspend_with(f->model, stays).away, 0);
    write_block(f->runtime, weights, 20 * MIB, 2);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    weir_residency r = suspend_with(f->model, unwritten);
    assert_int_equal(r.trusted, 0);
    assert_int_equal(r.copied, 20 * MIB);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, weights, 20 * MIB, 2);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

static void a_broken_promise_is_found(void **state)
{
    fixture *f = *state;
    weir_suspend_options looks = unwritten;
    looks.verify = true;
    void *weights = allocate(f->model, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, weights, 20 * MIB, 1);
    (void)suspend_with(f->model, looks);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    weir_residency r = suspend_with(f->model, looks);
    assert_int_equal(r.trusted, 20 * MIB);
    assert_int_equal(r.differed, 0);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_fill(f->runtime, (char *)weights + 11 * MIB, 0x5a, 1, WEIR_STREAM_HOST));
    r = suspend_with(f->model, looks);
    assert_true(r.differed > 0 && r.copied >= r.differed && r.copied + r.trusted == 20 * MIB);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    unsigned char *there = malloc(20 * MIB), *p = pattern(20 * MIB, 1);
    p[11 * MIB] = 0x5a;
    ok(weir_copy(f->runtime, there, weights, 20 * MIB, WEIR_STREAM_HOST));
    assert_memory_equal(there, p, 20 * MIB);
    free(there);
    free(p);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

static void contents_in_a_file(void **state)
{
    fixture *f = *state;
    void *weights = allocate(f->model, 21 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, weights, 21 * MIB, 1);
    weir_suspend_options options = {.struct_size = sizeof options, .folder = "/nowhere/at/all"};
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_SYSTEM, weir_client_suspend(f->model, &options, NULL));
    detail_names("/nowhere/at/all");
    unchanged(f->runtime, before);
    assert_int_equal(residency(f->model).state, WEIR_RESIDENT);
    options.folder = ".";
    for (int i = 0; i < 2; i++) {
        ok(weir_client_suspend(f->model, &options, NULL));
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        block_holds(f->runtime, weights, 21 * MIB, 1);
    }
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

/* Order ------------------------------------------------------------------------------------------------------------ */

/* What is queued behind a gate are fills: CUDA has whoever copies from pageable memory wait for the stream. */
static void filled_with(weir_runtime *runtime, const void *block, size_t bytes, unsigned char value)
{
    unsigned char *there = malloc(bytes);
    ok(weir_copy(runtime, there, block, bytes, WEIR_STREAM_HOST));
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(there[i], value);
    free(there);
}

/* Work that was queued before is done before anything leaves. */
static void work_is_waited_for(void **state)
{
    fixture *f = *state;
    const size_t bytes = 6 * MIB;
    weir_block block = {0};
    weir_request request = {.struct_size = sizeof request, .bytes = bytes, .stream = f->stream};
    ok(weir_alloc_with(f->model, &request, &block));
    write_block(f->runtime, block.pointer, bytes, 1);
    weir_suspend_options in_time = {.struct_size = sizeof in_time, .wait = 20 * 1000 * 1000};
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    ok(weir_fill(f->runtime, block.pointer, 2, bytes, f->stream));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_BUSY, weir_client_suspend(f->model, &in_time, NULL));
    detail_names("model");
    unchanged(f->runtime, before);
    pthread_t opener;
    pthread_create(&opener, NULL, open_gate_later, &f->gate);
    (void)suspend(f->model);
    pthread_join(opener, NULL);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    filled_with(f->runtime, block.pointer, bytes, 2);
    ok(weir_free(f->model, block.pointer, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

/* A declared use on a stream on which the client allocated nothing. */
static void declared_uses_are_waited_for(void **state)
{
    fixture *f = *state;
    const size_t bytes = 6 * MIB;
    void *block = allocate(f->model, bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, block, bytes, 1);
    weir_use use = {.block = {.pointer = block}, .access = WEIR_ACCESS_WRITE};
    weir_launch *launch;
    ok(weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    weir_suspend_options options = {.struct_size = sizeof options, .wait = 20 * 1000 * 1000};
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_BUSY, weir_client_suspend(f->model, &options, NULL));
    detail_names("launch");
    unchanged(f->runtime, before);
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    ok(weir_fill(f->runtime, block, 2, bytes, f->stream));
    ok(weir_launch_end(launch));
    before = take_snapshot(f->runtime);
    fails(WEIR_ERR_BUSY, weir_client_suspend(f->model, &options, NULL));
    unchanged(f->runtime, before);
    pthread_t opener;
    pthread_create(&opener, NULL, open_gate_later, &f->gate);
    (void)suspend(f->model);
    pthread_join(opener, NULL);
    fails(WEIR_ERR_BUSY, weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    detail_names("suspended");
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    filled_with(f->runtime, block, bytes, 2);
    ok(weir_free(f->model, block, WEIR_STREAM_HOST));
    ok(weir_stream_synchronize(f->stream));
}

/* After a resume on a stream, work on it finds the contents, and so does a declared use elsewhere. */
static void follow(fixture *f, void *block, size_t bytes)
{
    unsigned char *seen = malloc(bytes), *p = pattern(bytes, 1);
    weir_stream second;
    ok(weir_stream_acquire(f->runtime, &second));
    write_block(f->runtime, block, bytes, 1);
    for (int declared = 0; declared < 2; declared++) {
        (void)suspend(f->model);
        memset(seen, 0, bytes);
        ok(weir_client_resume(f->model, f->stream));
        weir_stream at = declared ? second : f->stream;
        weir_use use = {.block = {.pointer = block}, .access = WEIR_ACCESS_READ};
        weir_launch *launch = NULL;
        if (declared)
            ok(weir_launch_begin(f->runtime, at, &use, 1, &launch));
        ok(weir_copy(f->runtime, seen, block, bytes, at));
        if (declared)
            ok(weir_launch_end(launch));
        ok(weir_stream_synchronize(at));
        assert_memory_equal(seen, p, bytes);
    }
    ok(weir_stream_release(second));
    free(seen);
    free(p);
}

static void what_follows_finds_the_contents(void **state)
{
    fixture *f = *state;
    void *block = allocate(f->model, 12 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    follow(f, block, 12 * MIB);
    ok(weir_free(f->model, block, WEIR_STREAM_HOST));
    weir_elastic_options o = {.struct_size = sizeof o, .bytes = 16 * MIB, .page = 16 * MIB};
    weir_elastic_stats s = WEIR_INIT(weir_elastic_stats);
    weir_elastic *e;
    ok(weir_elastic_create(f->model, &o, &e));
    ok(weir_elastic_commit(e, 0, 16 * MIB, WEIR_STREAM_HOST));
    ok(weir_elastic_info(e, &s));
    follow(f, s.base, 16 * MIB);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

/* Calls while it is suspended -------------------------------------------------------------------------------------- */

static void allocations_are_refused_or_resume(void **state)
{
    fixture *f = *state;
    void *weights = allocate(f->model, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS), *more;
    write_block(f->runtime, weights, 8 * MIB, 1);
    void *kept = allocate(f->model, 500, f->stream, WEIR_CLASS_SCRATCH); /* a thread cache gets it */
    ok(weir_free(f->model, kept, f->stream));
    (void)suspend(f->model);
    weir_request on_host = {.struct_size = sizeof on_host, .bytes = 500, .kind = WEIR_KIND_PINNED};
    weir_block pinned = {0};
    if (!host_writes()) /* that memory is not the device's */
        ok(weir_alloc_with(f->model, &on_host, &pinned));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_BUSY, weir_alloc(f->model, 500, f->stream, WEIR_CLASS_SCRATCH, &more));
    detail_names("suspended");
    fails(WEIR_ERR_BUSY, weir_resize(f->model, weights, 4 * MIB, WEIR_STREAM_HOST));
    fails(WEIR_ERR_BUSY, weir_client_suspend(f->model, NULL, NULL));
    fails(WEIR_ERR_BUSY, weir_client_set_limits(f->model, 0, 50 * MIB));
    fails(WEIR_ERR_BUSY, weir_client_destroy(f->model));
    unchanged(f->runtime, before);
    ok(weir_free_block(f->model, pinned, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST)); /* nothing to do */
    (void)suspend_with(f->model, (weir_suspend_options){.resume_on_alloc = true});
    ok(weir_alloc(f->model, 500, f->stream, WEIR_CLASS_SCRATCH, &more));
    assert_int_equal(residency(f->model).state, WEIR_RESIDENT);
    block_holds(f->runtime, weights, 8 * MIB, 1);
    ok(weir_free(f->model, more, f->stream));
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
    ok(weir_stream_synchronize(f->stream));
}

/* A thread cache keeps nothing for a suspended client, and so serves none of its requests. */
static void thread_caches_stay_empty(void **state)
{
    fixture *f = *state;
    void *its = allocate(f->other, 1000, f->stream, WEIR_CLASS_KV), *again;
    void *mine = allocate(f->model, 1000, f->stream, WEIR_CLASS_KV);
    assert_int_equal(suspend(f->model).away, 0);
    for (int i = 0; i < 2; i++) {
        if (mine)
            ok(weir_free(f->model, mine, f->stream));
        mine = NULL;
        fails(WEIR_ERR_BUSY, weir_alloc(f->model, 1000, f->stream, WEIR_CLASS_KV, &again));
        assert_int_equal(take_snapshot(f->runtime).device.thread_cached, 0);
    }
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_free(f->other, its, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

/* Blocks that are away can be freed: their addresses serve others, the rest comes back. */
static void blocks_are_freed_while_away(void **state)
{
    fixture *f = *state;
    enum { MANY = 24 };
    void *blocks[MANY];
    const size_t bytes = MIB + 40 * KIB;
    for (int i = 0; i < MANY; i++) {
        blocks[i] = allocate(f->model, bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        write_block(f->runtime, blocks[i], bytes, (uint64_t)i);
    }
    (void)suspend(f->model);
    for (int i = 0; i < MANY; i++)
        if (i % 3 != 1)
            ok(weir_free(f->model, blocks[i], i % 3 ? WEIR_STREAM_ALL : WEIR_STREAM_HOST));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->model, blocks[0], WEIR_STREAM_HOST));
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.away, MANY / 3 * bytes);
    assert_int_equal(s.device.pending, 0);
    assert_int_equal(s.clients[0].blocks, MANY / 3);
    void *other = allocate(f->other, 50 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, other, 50 * MIB, 99);
    ok(weir_free(f->other, other, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.live, MANY / 3 * bytes);
    for (int i = 1; i < MANY; i += 3) {
        block_holds(f->runtime, blocks[i], bytes, (uint64_t)i);
        ok(weir_free(f->model, blocks[i], WEIR_STREAM_HOST));
    }
    trim(f->runtime);
    assert_int_equal(take_snapshot(f->runtime).device.held, 0);
}

/* With all its blocks freed a suspended client is closed like any other. */
static void a_suspended_client_is_closed(void **state)
{
    fixture *f = *state;
    weir_client *client = open_client(f->runtime, "third", 0, 0);
    void *weights = allocate(client, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    (void)suspend(client);
    ok(weir_free(client, weights, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    void *all = allocate(f->other, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    ok(weir_free(f->other, all, WEIR_STREAM_HOST));
    client = open_client(f->runtime, "empty", 0, 0);
    assert_int_equal(suspend(client).away, 0);
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    (void)suspend(client);
    ok(weir_client_destroy(client));
}

/* A close that is refused leaves it suspended, and its guarantee to come back. */
static void a_refused_close_changes_nothing(void **state)
{
    fixture *f = *state;
    weir_client *client = open_client(f->runtime, "third", 20 * MIB, 0);
    weir_reservation *reservation;
    void *block;
    ok(weir_reservation_create(client, MIB, 0, &reservation));
    (void)suspend(client);
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_BUSY, weir_client_destroy(client));
    unchanged(f->runtime, before);
    assert_int_equal(residency(client).state, WEIR_SUSPENDED);
    fails(WEIR_ERR_BUSY, weir_alloc(client, MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &block));
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.guaranteed, 20 * MIB);
    ok(weir_reservation_destroy(reservation));
    ok(weir_client_destroy(client));
}

/* A guarantee is given up with the memory, unless it is to be kept, and comes back with it or not at all. */
static void a_guarantee_steps_aside(void **state)
{
    fixture *f = *state;
    void *weights = allocate(f->model, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS), *block;
    ok(weir_client_set_limits(f->model, 40 * MIB, 0));
    (void)suspend_with(f->model, (weir_suspend_options){.keep_guarantee = true});
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->other, 30 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &block));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    (void)suspend(f->model);
    assert_int_equal(take_snapshot(f->runtime).device.guaranteed, 0);
    block = allocate(f->other, 30 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.guaranteed, 0);
    weir_refusal refusal = last_refusal();
    assert_int_equal(refusal.cause, WEIR_CAUSE_BUDGET);
    assert_int_equal(refusal.requested, 40 * MIB);
    ok(weir_free(f->other, block, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.guaranteed, 40 * MIB);
    ok(weir_client_set_limits(f->model, 20 * MIB, 0));
    (void)suspend_with(f->model, (weir_suspend_options){.keep_guarantee = true});
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.guaranteed, 20 * MIB); /* and not what was given up before */
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

/* Elastic blocks ---------------------------------------------------------------------------------------------------- */

static weir_elastic *make_elastic(fixture *f, size_t bytes, bool promised)
{
    weir_elastic_options o = {.struct_size = sizeof o, .bytes = bytes, .tag = "cache", .promised = promised};
    weir_elastic *e;
    ok(weir_elastic_create(f->model, &o, &e));
    return e;
}

static weir_elastic_stats elastic_stats(weir_elastic *e)
{
    weir_elastic_stats s = WEIR_INIT(weir_elastic_stats);
    ok(weir_elastic_info(e, &s));
    return s;
}

/* Pages leave and come back with what they hold; those that the client gives back meanwhile stay away. */
static void pages_of_elastic_blocks_leave_too(void **state)
{
    fixture *f = *state;
    for (int promised = 0; promised < 2; promised++) {
        weir_elastic *e = make_elastic(f, 24 * MIB, promised), *none = make_elastic(f, 4 * MIB, false);
        char *base = elastic_stats(e).base;
        void *weights = allocate(f->model, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        write_block(f->runtime, weights, 4 * MIB, 5);
        ok(weir_elastic_commit(e, 0, 8 * MIB, WEIR_STREAM_HOST));
        ok(weir_elastic_commit(e, 16 * MIB, 6 * MIB, WEIR_STREAM_HOST));
        write_block(f->runtime, base, 8 * MIB, 1);
        write_block(f->runtime, base + 16 * MIB, 6 * MIB, 2);
        for (int cycle = 0; cycle < 2; cycle++) {
            weir_residency r = suspend(f->model);
            assert_int_equal(r.away, 18 * MIB);
            assert_int_equal(elastic_stats(e).committed, 0);
            snapshot s = take_snapshot(f->runtime);
            check_sums(&s);
            assert_int_equal(s.device.away, 18 * MIB);
            assert_int_equal(s.device.live, 0);
            assert_int_equal(s.device.promised, promised ? 24 * MIB : 0);
            fails(WEIR_ERR_BUSY, weir_elastic_commit(e, 0, 2 * MIB, WEIR_STREAM_HOST));
            ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
            assert_int_equal(elastic_stats(e).committed, 14 * MIB);
            assert_int_equal(take_snapshot(f->runtime).device.away, 0);
            block_holds(f->runtime, base, 8 * MIB, 1);
            block_holds(f->runtime, base + 16 * MIB, 6 * MIB, 2);
            block_holds(f->runtime, weights, 4 * MIB, 5);
        }
        (void)suspend(f->model);
        ok(weir_elastic_release(e, 2 * MIB, 4 * MIB, WEIR_STREAM_HOST));
        ok(weir_elastic_release(e, 20 * MIB, 4 * MIB, WEIR_STREAM_HOST));
        assert_int_equal(take_snapshot(f->runtime).device.away, 12 * MIB);
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        assert_int_equal(elastic_stats(e).committed, 8 * MIB);
        unsigned char *there = malloc(8 * MIB), *p = pattern(8 * MIB, 1);
        ok(weir_copy(f->runtime, there, base, 8 * MIB, WEIR_STREAM_HOST));
        bytes_are(there, p, 2 * MIB);
        bytes_are(there + 6 * MIB, p + 6 * MIB, 2 * MIB);
        free(there);
        free(p);
        block_holds(f->runtime, base + 16 * MIB, 4 * MIB, 2);
        (void)suspend_with(f->model, (weir_suspend_options){.drop = WEIR_CLASS_BIT(WEIR_CLASS_KV)});
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        block_holds_zeros(f->runtime, base + 16 * MIB, 4 * MIB);
        (void)suspend(f->model);
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
        ok(weir_elastic_destroy(none, WEIR_STREAM_HOST));
        assert_int_equal(take_snapshot(f->runtime).device.away, 4 * MIB);
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        block_holds(f->runtime, weights, 4 * MIB, 5);
        ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
    }
}

/* Without room for the pages nothing of the blocks comes back either. */
static void pages_without_room_keep_all_away(void **state)
{
    fixture *f = *state;
    weir_elastic *e = make_elastic(f, 24 * MIB, false);
    char *base = elastic_stats(e).base;
    void *weights = allocate(f->model, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, weights, 4 * MIB, 5);
    ok(weir_elastic_commit(e, 0, 24 * MIB, WEIR_STREAM_HOST));
    write_block(f->runtime, base, 24 * MIB, 1);
    (void)suspend(f->model);
    void *others = allocate(f->other, 48 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    for (int i = 0; i < 2; i++) {
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_resume(f->model, WEIR_STREAM_HOST));
        snapshot s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.away, 28 * MIB);
        assert_int_equal(s.device.live, 48 * MIB);
        assert_int_equal(s.device.promised, 0);
    }
    ok(weir_free(f->other, others, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, f->stream));
    ok(weir_stream_synchronize(f->stream));
    block_holds(f->runtime, base, 24 * MIB, 1);
    block_holds(f->runtime, weights, 4 * MIB, 5);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

static void bad_calls(void **state)
{
    fixture *f = *state;
    weir_suspend_options odd = {.struct_size = sizeof odd, .drop = 1u << 31};
    weir_residency unset = {0};
    fails(WEIR_ERR_INVALID, weir_client_suspend(NULL, NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_client_suspend(f->model, &odd, NULL));
    fails(WEIR_ERR_INVALID, weir_client_suspend(f->model, NULL, &unset));
    fails(WEIR_ERR_INVALID, weir_client_resume(NULL, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_client_residency(f->model, NULL));
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = "budget(segments)"};
    weir_runtime *segments;
    const char *device = getenv("WEIR_TEST_DEVICE");
    ok(weir_runtime_create(device ? device : "host", &options, &segments));
    weir_client *client = open_client(segments, "client", 0, 0);
    fails(WEIR_ERR_UNSUPPORTED, weir_client_suspend(client, NULL, NULL));
    detail_names("segments");
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(segments));
}

/* A pressure callback suspends an idle client: that is how models make room for one another. */
static void make_room(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    weir_status status = weir_client_suspend(user, NULL, NULL);
    assert_true(status == WEIR_OK || status == WEIR_ERR_BUSY);
}

static void clients_change_places_under_pressure(void **state)
{
    fixture *f = *state;
    uint64_t first, second;
    void *one = allocate(f->model, 40 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, one, 40 * MIB, 1);
    ok(weir_pressure_register(f->runtime, 0, make_room, f->model, &first));
    void *two = allocate(f->other, 40 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    assert_int_equal(residency(f->model).state, WEIR_SUSPENDED);
    write_block(f->runtime, two, 40 * MIB, 2);
    ok(weir_pressure_register(f->runtime, 0, make_room, f->other, &second));
    for (int i = 0; i < 3; i++) {
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        assert_int_equal(residency(f->other).state, WEIR_SUSPENDED);
        block_holds(f->runtime, one, 40 * MIB, 1);
        ok(weir_client_resume(f->other, WEIR_STREAM_HOST));
        assert_int_equal(residency(f->model).state, WEIR_SUSPENDED);
        block_holds(f->runtime, two, 40 * MIB, 2);
    }
    ok(weir_pressure_unregister(f->runtime, first));
    ok(weir_pressure_unregister(f->runtime, second));
    ok(weir_free(f->model, one, WEIR_STREAM_HOST));
    ok(weir_free(f->other, two, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
}

/* The guarantee climbs the ladder: what others have in thread caches, or can do without, makes room for it. */
static void a_guarantee_comes_back_over_cached_memory(void **state)
{
    fixture *f = *state;
    enum { MANY = 200 };
    void *blocks[MANY];
    uint64_t id;
    ok(weir_client_set_limits(f->model, 40 * MIB, 0));
    assert_int_equal(suspend(f->model).away, 0);
    for (int i = 0; i < MANY; i++)
        blocks[i] = allocate(f->other, 100 * KIB, f->stream, WEIR_CLASS_SCRATCH);
    for (int i = 0; i < MANY; i++)
        ok(weir_free(f->other, blocks[i], f->stream));
    void *weights = allocate(f->other, 30 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_pressure_register(f->runtime, 0, make_room, f->other, &id));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.guaranteed, 40 * MIB);
    assert_int_equal(residency(f->other).away, 30 * MIB);
    ok(weir_pressure_unregister(f->runtime, id));
    ok(weir_free(f->other, weights, WEIR_STREAM_HOST));
    ok(weir_stream_synchronize(f->stream));
    ok(weir_client_resume(f->other, WEIR_STREAM_HOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(bytes_come_back_where_they_were),
        CASE(what_left_is_everybodys),
        CASE(a_resume_without_room_is_refused_and_changes_nothing),
        CASE(what_shares_a_chunk_stays),
        CASE(of_many_that_stay_some_are_told),
        CASE(blocks_that_must_stay_are_named),
        CASE(dropped_contents_are_zeros),
        CASE(a_copy_that_is_still_good_is_not_made_again),
        CASE(a_copy_is_of_its_blocks_alone),
        CASE(a_copy_of_what_was_dropped_is_not_trusted),
        CASE(a_copy_of_what_stayed_is_not_trusted),
        CASE(a_broken_promise_is_found),
        CASE(contents_in_a_file),
        CASE(work_is_waited_for),
        CASE(declared_uses_are_waited_for),
        CASE(what_follows_finds_the_contents),
        CASE(allocations_are_refused_or_resume),
        CASE(thread_caches_stay_empty),
        CASE(blocks_are_freed_while_away),
        CASE(a_suspended_client_is_closed),
        CASE(a_refused_close_changes_nothing),
        CASE(a_guarantee_steps_aside),
        CASE(pages_of_elastic_blocks_leave_too),
        CASE(pages_without_room_keep_all_away),
        CASE(bad_calls),
        CASE(clients_change_places_under_pressure),
        CASE(a_guarantee_comes_back_over_cached_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
