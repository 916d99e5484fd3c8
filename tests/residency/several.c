/* Two, three and twenty of what the other tests have one of: streams with work, uses of a block, blocks in a file, pages. */
#include "residency/residency.h"

enum { STREAMS = 20, USES = 3 };

/* The client cannot leave as long as the gate is closed, and can leave then. */
static void waits_for(fixture *f, gate *g)
{
    weir_suspend_options soon = {.struct_size = sizeof soon, .wait = 5 * 1000 * 1000};
    weir_status status = weir_client_suspend(f->model, &soon, NULL);
    open_gate(g);
    fails(WEIR_ERR_BUSY, status);
    detail_names("was not done in time");
    assert_int_equal(suspend(f->model).stayed, 0);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

/* Blocks are looked at twice, in other orders, and so there are more of them than twice what a list has room for at first. */
static void the_work_of_each_stream_is_waited_for(void **state)
{
    enum { MANY = 40 };
    fixture *f = *state;
    weir_stream streams[MANY];
    void *blocks[MANY];
    for (int i = 0; i < MANY; i++) {
        ok(weir_stream_acquire(f->runtime, &streams[i]));
        blocks[i] = allocate(f->model, 128 * KIB, streams[i], WEIR_CLASS_WEIGHTS);
    }
    for (int i = 0; i < MANY; i++) {
        gate g = GATE;
        ok(weir_call(f->runtime, pass_gate, &g, streams[i]));
        waits_for(f, &g);
    }
    for (int i = 0; i < MANY; i++) {
        ok(weir_free(f->model, blocks[i], streams[i]));
        ok(weir_stream_synchronize(streams[i]));
        ok(weir_stream_release(streams[i]));
    }
}

static void use(fixture *f, weir_stream stream, void *block, weir_access access, gate *g)
{
    weir_use declared = {.block = {.pointer = block}, .access = access};
    weir_launch *launch;
    ok(weir_launch_begin(f->runtime, stream, &declared, 1, &launch));
    if (g)
        ok(weir_call(f->runtime, pass_gate, g, stream));
    ok(weir_launch_end(launch));
}

static void each_use_of_a_block_is_waited_for_also_those_that_read(void **state)
{
    fixture *f = *state;
    weir_stream streams[USES];
    void *block = allocate(f->model, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    for (int i = 0; i < USES; i++)
        ok(weir_stream_acquire(f->runtime, &streams[i]));
    for (int busy = 0; busy < 2 * USES; busy++) {
        gate g = GATE;
        for (int i = 0; i < USES; i++)
            use(f, streams[i], block, busy < USES ? WEIR_ACCESS_READ : WEIR_ACCESS_WRITE, i == busy % USES ? &g : NULL);
        waits_for(f, &g);
    }
    for (int i = 0; i < USES; i++)
        ok(weir_stream_release(streams[i]));
    ok(weir_free(f->model, block, WEIR_STREAM_HOST));
}

/* The copies of pages go before the gate is closed: a driver may wait for the whole device when it takes memory back. */
static void forget_copies(fixture *f)
{
    (void)weir_client_forget_copies(f->model);
    trim(f->runtime);
}

/* Pages of two elastic blocks, the last of the first and the first of the last among them. */
static void each_use_of_each_page_is_waited_for(void **state)
{
    enum { BLOCKS = 2, PAGES = 2 };
    fixture *f = *state;
    weir_stream streams[USES];
    weir_elastic *e[BLOCKS];
    char *pages[BLOCKS * PAGES];
    weir_elastic_options o = {.struct_size = sizeof o, .bytes = PAGES * 2 * MIB, .page = 2 * MIB};
    for (int i = 0; i < BLOCKS; i++) {
        weir_elastic_stats stats = WEIR_INIT(weir_elastic_stats);
        ok(weir_elastic_create(f->model, &o, &e[i]));
        ok(weir_elastic_commit(e[i], 0, o.bytes, WEIR_STREAM_HOST));
        ok(weir_elastic_info(e[i], &stats));
        for (int k = 0; k < PAGES; k++)
            pages[i * PAGES + k] = (char *)stats.base + k * 2 * MIB;
    }
    for (int i = 0; i < USES; i++)
        ok(weir_stream_acquire(f->runtime, &streams[i]));
    for (int page = 0; page < BLOCKS * PAGES; page++)
        for (int busy = 0; busy < 2 * USES; busy++) {
            gate g = GATE;
            forget_copies(f);
            for (int i = 0; i < USES; i++)
                use(f, streams[i], pages[page], busy < USES ? WEIR_ACCESS_READ : WEIR_ACCESS_WRITE,
                    i == busy % USES ? &g : NULL);
            waits_for(f, &g);
        }
    for (int i = 0; i < USES; i++)
        ok(weir_stream_release(streams[i]));
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_elastic_destroy(e[i], WEIR_STREAM_HOST));
}

/* Also where no use was declared. */
static void the_work_of_each_stream_of_pages_is_waited_for(void **state)
{
    fixture *f = *state;
    weir_stream streams[USES];
    weir_elastic *e;
    weir_elastic_options o = {.struct_size = sizeof o, .bytes = USES * 2 * MIB, .page = 2 * MIB};
    ok(weir_elastic_create(f->model, &o, &e));
    for (int i = 0; i < USES; i++)
        ok(weir_stream_acquire(f->runtime, &streams[i]));
    for (int busy = 0; busy < USES; busy++) {
        gate g = GATE;
        forget_copies(f);
        ok(weir_elastic_release(e, 0, o.bytes, WEIR_STREAM_HOST)); /* a resume commits them on no stream of these */
        for (int i = 0; i < USES; i++)
            ok(weir_elastic_commit(e, i * 2 * MIB, 2 * MIB, streams[i]));
        ok(weir_call(f->runtime, pass_gate, &g, streams[busy]));
        waits_for(f, &g);
    }
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    for (int i = 0; i < USES; i++)
        ok(weir_stream_release(streams[i]));
}

/* Of one stream the later point counts, whichever block has it. */
static void the_last_use_on_a_stream_is_waited_for(void **state)
{
    fixture *f = *state;
    void *blocks[2];
    for (int i = 0; i < 2; i++)
        blocks[i] = allocate(f->model, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    for (int last = 0; last < 2; last++) {
        gate g = GATE;
        use(f, f->stream, blocks[1 - last], WEIR_ACCESS_WRITE, NULL);
        use(f, f->stream, blocks[last], WEIR_ACCESS_WRITE, &g);
        waits_for(f, &g);
    }
    for (int i = 0; i < 2; i++)
        ok(weir_free(f->model, blocks[i], WEIR_STREAM_HOST));
}

typedef struct leaver {
    fixture *f;
    weir_status status;
} leaver;

static void *leave(void *user)
{
    leaver *l = user;
    weir_suspend_options patient = {.struct_size = sizeof patient, .wait = UINT64_MAX / 2};
    l->status = weir_client_suspend(l->f->model, &patient, NULL);
    return NULL;
}

/* Whoever asks for the copies of a client that is on its way gets none, and does not wait for it. */
static void copies_are_not_waited_for_while_a_client_leaves(void **state)
{
    fixture *f = *state;
    leaver l = {.f = f};
    pthread_t thread;
    gate g = GATE;
    void *block = allocate(f->model, MIB, f->stream, WEIR_CLASS_WEIGHTS);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    assert_int_equal(pthread_create(&thread, NULL, leave, &l), 0);
    while (residency(f->model).state != WEIR_MOVING)
        usleep(100);
    assert_int_equal(weir_client_forget_copies(f->model), 0);
    open_gate(&g);
    pthread_join(thread, NULL);
    ok(l.status); /* it had time enough */
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    ok(weir_free(f->model, block, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

/* Contents --------------------------------------------------------------------------------------------------------- */

/* Twenty blocks, with others' between them here and there, are many pieces; each has its place in the file. */
static void each_block_has_its_place_in_a_file(void **state)
{
    fixture *f = *state;
    enum { BETWEEN = 5, THEIRS = 2 << 20 };
    void *mine[STREAMS], *its[STREAMS / BETWEEN];
    size_t bytes[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        bytes[i] = MIB + (size_t)i % 5 * 64 * KIB;
        mine[i] = allocate(f->model, bytes[i], WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        write_block(f->runtime, mine[i], bytes[i], (uint64_t)i);
        if (i % BETWEEN)
            continue;
        its[i / BETWEEN] = allocate(f->other, THEIRS, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        write_block(f->runtime, its[i / BETWEEN], THEIRS, (uint64_t)i + 100);
    }
    for (int round = 0; round < 3; round++) {
        weir_residency r = suspend_with(
            f->model,
            (weir_suspend_options){.folder = ".", .unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS), .verify = round});
        assert_true(r.away >= 10 * MIB);
        assert_int_equal(round ? r.trusted : r.copied, r.away);
        assert_int_equal(r.stored, r.away);
        assert_int_equal(r.differed, 0);
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        for (int i = 0; i < STREAMS; i++) {
            block_holds(f->runtime, mine[i], bytes[i], (uint64_t)i);
            if (i % BETWEEN == 0)
                block_holds(f->runtime, its[i / BETWEEN], THEIRS, (uint64_t)i + 100);
        }
    }
    for (int i = 0; i < STREAMS; i += 3) /* these are written, whatever was promised */
        ok(weir_fill(f->runtime, (char *)mine[i] + bytes[i] - 1, 0x5a, 1, WEIR_STREAM_HOST));
    weir_residency r = suspend_with(
        f->model,
        (weir_suspend_options){.folder = ".", .unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS), .verify = true});
    assert_true(r.differed >= (STREAMS + 2) / 3 * 64 * KIB &&
                r.copied >= r.differed); /* a granule of each at the least */
    assert_int_equal(r.copied + r.trusted, r.away);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    for (int i = 0; i < STREAMS; i++) {
        ok(weir_free(f->model, mine[i], WEIR_STREAM_HOST));
        if (i % BETWEEN == 0)
            ok(weir_free(f->other, its[i / BETWEEN], WEIR_STREAM_HOST));
    }
}

/* Small blocks by turns, several in each piece: those that were dropped are zeros, all of them, and the others as they were. */
static void dropped_blocks_between_others_are_zeros(void **state)
{
    enum { BYTES = 20 * 1024 };
    fixture *f = *state;
    void *blocks[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        blocks[i] = allocate(f->model, BYTES, WEIR_STREAM_HOST, i % 2 ? WEIR_CLASS_KV : WEIR_CLASS_SCRATCH);
        write_block(f->runtime, blocks[i], BYTES, (uint64_t)i);
    }
    weir_residency r = suspend_with(f->model, (weir_suspend_options){.drop = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH)});
    assert_int_equal(r.away, (uint64_t)STREAMS * BYTES);
    assert_int_equal(r.dropped, (uint64_t)STREAMS / 2 * BYTES);
    void *others = allocate(f->other, 60 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    write_block(f->runtime, others, 60 * MIB, 99);
    ok(weir_free(f->other, others, WEIR_STREAM_HOST));
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    for (int i = 0; i < STREAMS; i++) {
        if (i % 2)
            block_holds(f->runtime, blocks[i], BYTES, (uint64_t)i);
        else
            block_holds_zeros(f->runtime, blocks[i], BYTES);
        ok(weir_free(f->model, blocks[i], WEIR_STREAM_HOST));
    }
}

/* Of elastic blocks the pages that are there, with what is in each; or none of it, where that was to be dropped. */
static void pages_come_back_or_are_told_as_dropped(void **state)
{
    fixture *f = *state;
    weir_elastic_options o = {.struct_size = sizeof o, .bytes = 24 * MIB};
    weir_elastic_stats s = WEIR_INIT(weir_elastic_stats);
    weir_elastic *blocks[2];
    char *base[2];
    for (int i = 0; i < 2; i++) {
        ok(weir_elastic_create(f->model, &o, &blocks[i]));
        ok(weir_elastic_commit(blocks[i], 0, 4 * MIB, f->stream));
        ok(weir_elastic_commit(blocks[i], 8 * MIB, 6 * MIB, f->stream));
        ok(weir_elastic_info(blocks[i], &s));
        base[i] = s.base;
    }
    gate g = GATE; /* what is queued where pages were committed is work with them */
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    waits_for(f, &g);
    for (int i = 0; i < 2; i++) {
        write_block(f->runtime, base[i], 4 * MIB, (uint64_t)i);
        write_block(f->runtime, base[i] + 8 * MIB, 6 * MIB, (uint64_t)i + 10);
    }
    weir_residency r = suspend(f->model);
    assert_int_equal(r.away, 20 * MIB);
    assert_int_equal(r.copied, 20 * MIB);
    assert_int_equal(r.dropped, 0);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    for (int i = 0; i < 2; i++) {
        block_holds(f->runtime, base[i], 4 * MIB, (uint64_t)i);
        block_holds(f->runtime, base[i] + 8 * MIB, 6 * MIB, (uint64_t)i + 10);
    }
    r = suspend_with(f->model, (weir_suspend_options){.drop = WEIR_CLASS_BIT(WEIR_CLASS_KV)});
    assert_int_equal(r.dropped, 20 * MIB);
    assert_int_equal(r.copied, 0);
    assert_int_equal(take_snapshot(f->runtime).device.away, 20 * MIB);
    ok(weir_elastic_destroy(blocks[0], WEIR_STREAM_HOST)); /* while it is away */
    assert_int_equal(take_snapshot(f->runtime).device.away, 10 * MIB);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.away, 0);
    ok(weir_elastic_destroy(blocks[1], WEIR_STREAM_HOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_work_of_each_stream_is_waited_for),  CASE(each_use_of_a_block_is_waited_for_also_those_that_read),
        CASE(each_use_of_each_page_is_waited_for),    CASE(the_work_of_each_stream_of_pages_is_waited_for),
        CASE(the_last_use_on_a_stream_is_waited_for), CASE(copies_are_not_waited_for_while_a_client_leaves),
        CASE(each_block_has_its_place_in_a_file),     CASE(dropped_blocks_between_others_are_zeros),
        CASE(pages_come_back_or_are_told_as_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
