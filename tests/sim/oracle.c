/* The oracle by itself: schedules written by hand, without a runtime; those that race are found, those in order are not. */
#include "sim.h"

static const wi_driver *const sim = &wi_sim_driver;

typedef struct bench {
    oracle *o;
    wi_device *device;
    void *stream[4]; /* 1 to 3 */
    char *range;
    wi_handle handles[4];
} bench;

static bench set_up(void)
{
    bench b = {.o = oracle_create(4, 16 * WI_MIB, 2 * WI_MIB, 8 * WI_MIB)};
    wi_sim_watcher watcher = oracle_watcher(b.o);
    void *range;
    wi_sim_configure(&(wi_sim_options){.bytes = 16 * WI_MIB, .granule = 2 * WI_MIB, .watcher = &watcher});
    assert_int_equal(sim->open(0, &b.device), WEIR_OK);
    oracle_attach(b.o, b.device);
    for (int s = 1; s <= 3; s++)
        assert_int_equal(sim->stream_create(b.device, &b.stream[s]), WEIR_OK);
    assert_int_equal(sim->reserve(b.device, 16 * WI_MIB, &range), WEIR_OK);
    b.range = range;
    assert_int_equal(sim->create(b.device, 2 * WI_MIB, 4, b.handles), WEIR_OK);
    assert_int_equal(sim->map(b.device, b.range, 2 * WI_MIB, 4, b.handles), WEIR_OK);
    return b;
}

/* Ends it; of all kinds of findings there must be `kind` alone, or none. */
static void tear_down(bench *b, oracle_kind kind)
{
    const oracle_findings *f = oracle_found(b->o);
    for (int k = 0; k < ORACLE_KINDS; k++)
        if ((f->count[k] > 0) != (k == (int)kind)) {
            print_error("%s: %llu times; first: %s\n", oracle_kind_name((oracle_kind)k),
                        (unsigned long long)f->count[k], f->first);
            fail();
        }
    for (int s = 1; s <= 3; s++)
        sim->stream_destroy(b->device, b->stream[s]);
    (void)sim->unmap(b->device, b->range, 2 * WI_MIB, 4, b->handles);
    sim->destroy(b->device, 2 * WI_MIB, 4, b->handles);
    sim->unreserve(b->device, b->range, 16 * WI_MIB);
    sim->close(b->device);
    oracle_destroy(b->o);
    wi_sim_configure(NULL);
}

static oracle_block take(bench *b, unsigned stream, uint64_t offset, uint64_t bytes)
{
    return oracle_allocated(b->o, &(oracle_got){.stream = stream,
                                                .address = b->range + offset,
                                                .length = bytes,
                                                .charged = wi_round_up(bytes, WI_SIM_UNIT)});
}

static void work(bench *b, unsigned stream, uint64_t offset, bool write)
{
    wi_sim_touch(b->device, b->stream[stream], b->range + offset, 256, write, 1000);
}

static void give(bench *b, oracle_block block, unsigned stream)
{
    oracle_freeing(b->o, block, stream);
    oracle_freed(b->o, block);
}

/* On stream 1. */
static void cut(bench *b, oracle_block block, uint64_t bytes)
{
    uint64_t charged = wi_round_up(bytes, WI_SIM_UNIT);
    oracle_freed(b->o, oracle_cutting(b->o, block, bytes, charged, 1));
}

/* A block of 1 MiB used and freed on stream 1. */
static void one_owner(bench *b)
{
    oracle_block block = take(b, 1, 0, WI_MIB);
    work(b, 1, 0, true);
    give(b, block, 1);
}

static void same_stream_is_in_order(void **state)
{
    (void)state;
    bench b = set_up();
    one_owner(&b);
    take(&b, 1, 0, WI_MIB);
    work(&b, 1, 0, true);
    tear_down(&b, ORACLE_KINDS);
}

static void another_stream_is_too_early(void **state)
{
    (void)state;
    bench b = set_up();
    one_owner(&b);
    take(&b, 2, WI_MIB / 2, WI_MIB);
    tear_down(&b, ORACLE_EARLY_REUSE);
}

static void host_is_too_early(void **state)
{
    (void)state;
    bench b = set_up();
    one_owner(&b);
    take(&b, 0, 0, 1);
    tear_down(&b, ORACLE_EARLY_REUSE);
}

static void bytes_beside_are_no_matter(void **state)
{
    (void)state;
    bench b = set_up();
    one_owner(&b);
    take(&b, 2, WI_MIB, WI_MIB);
    work(&b, 2, WI_MIB, true);
    tear_down(&b, ORACLE_KINDS);
}

/* Done is not known to be done: only what the host has seen counts. */
static void unseen_is_too_early(void **state)
{
    (void)state;
    bench b = set_up();
    one_owner(&b);
    (void)wi_sim_run(b.device, 1, 10);
    take(&b, 2, 0, WI_MIB);
    tear_down(&b, ORACLE_EARLY_REUSE);
}

static void passed_is_in_order(void **state)
{
    (void)state;
    bench b = set_up();
    wi_event event;
    one_owner(&b);
    assert_int_equal(sim->record(b.device, b.stream[1], &event), WEIR_OK);
    (void)wi_sim_run(b.device, 1, 10);
    assert_true(sim->passed(b.device, event));
    take(&b, 2, 0, WI_MIB);
    work(&b, 2, 0, true);
    tear_down(&b, ORACLE_KINDS);
}

static void an_event_before_the_free_is_too_early(void **state)
{
    (void)state;
    bench b = set_up();
    wi_event event;
    oracle_block block = take(&b, 1, 0, WI_MIB);
    work(&b, 1, 0, true);
    assert_int_equal(sim->record(b.device, b.stream[1], &event), WEIR_OK);
    assert_int_equal(sim->wait(b.device, event, UINT64_MAX), WEIR_OK);
    work(&b, 1, 0, false);
    give(&b, block, 1);
    take(&b, 2, 0, WI_MIB);
    tear_down(&b, ORACLE_EARLY_REUSE);
}

static void synchronized_is_in_order(void **state)
{
    (void)state;
    bench b = set_up();
    one_owner(&b);
    assert_int_equal(sim->stream_synchronize(b.device, b.stream[1]), WEIR_OK);
    take(&b, 0, 0, WI_MIB);
    work(&b, 0, 0, true);
    tear_down(&b, ORACLE_KINDS);
}

static void ordered_is_in_order_through_a_third_stream(void **state)
{
    (void)state;
    bench b = set_up();
    wi_event event;
    one_owner(&b);
    assert_int_equal(sim->record(b.device, b.stream[1], &event), WEIR_OK);
    assert_int_equal(sim->order(b.device, b.stream[2], event), WEIR_OK);
    assert_int_equal(sim->record(b.device, b.stream[2], &event), WEIR_OK);
    assert_int_equal(sim->order(b.device, b.stream[3], event), WEIR_OK);
    take(&b, 3, 0, WI_MIB);
    work(&b, 3, 0, true);
    tear_down(&b, ORACLE_KINDS);
}

/* The stream that waits learns nothing for the one that it waits for, nor for the host. */
static void order_has_a_direction(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_block block = take(&b, 1, 0, WI_MIB);
    wi_sim_follow(b.device, b.stream[2], b.stream[1]);
    work(&b, 2, 0, true);
    wi_sim_follow(b.device, b.stream[3], b.stream[2]);
    give(&b, block, 3);
    take(&b, 1, 0, WI_MIB);
    tear_down(&b, ORACLE_EARLY_REUSE);
}

static void live_blocks_do_not_overlap(void **state)
{
    (void)state;
    bench b = set_up();
    take(&b, 1, 0, WI_MIB);
    take(&b, 1, WI_MIB - 256, 1);
    tear_down(&b, ORACLE_OVERLAP);
}

static void a_block_where_nothing_is_mapped(void **state)
{
    (void)state;
    bench b = set_up();
    take(&b, 1, 7 * WI_MIB, 2 * WI_MIB);
    tear_down(&b, ORACLE_UNMAPPED);
}

static void unmapping_a_live_block(void **state)
{
    (void)state;
    bench b = set_up();
    take(&b, 1, 2 * WI_MIB, 1);
    assert_int_equal(sim->unmap(b.device, b.range + 2 * WI_MIB, 2 * WI_MIB, 1, &b.handles[1]), WEIR_OK);
    assert_int_equal(sim->map(b.device, b.range + 2 * WI_MIB, 2 * WI_MIB, 1, &b.handles[1]), WEIR_OK);
    tear_down(&b, ORACLE_UNMAP_LIVE);
}

static void unmapping_under_use(void **state)
{
    (void)state;
    bench b = set_up();
    one_owner(&b);
    assert_int_equal(sim->unmap(b.device, b.range, 2 * WI_MIB, 1, b.handles), WEIR_OK);
    assert_int_equal(sim->map(b.device, b.range, 2 * WI_MIB, 1, b.handles), WEIR_OK);
    (void)wi_sim_run(b.device, 1, 10);
    tear_down(&b, ORACLE_UNMAP_UNDER_USE);
}

/* Bytes are those of the handle, wherever it is mapped. */
static void a_moved_handle_is_still_in_use(void **state)
{
    (void)state;
    bench b = set_up();
    wi_handle twice = b.handles[0];
    one_owner(&b);
    assert_int_equal(sim->map(b.device, b.range + 8 * WI_MIB, 2 * WI_MIB, 1, &twice), WEIR_OK);
    take(&b, 2, 8 * WI_MIB, 256);
    const oracle_findings *f = oracle_found(b.o);
    assert_int_equal(f->count[ORACLE_EARLY_REUSE], 1);
    (void)sim->stream_synchronize(b.device, b.stream[1]);
    give(&b, 2, 2);
    assert_int_equal(sim->unmap(b.device, b.range + 8 * WI_MIB, 2 * WI_MIB, 1, &twice), WEIR_OK);
    tear_down(&b, ORACLE_EARLY_REUSE);
}

static void shrunk_tails_are_freed_and_grown_ones_taken(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_block block = take(&b, 1, 0, WI_MIB);
    work(&b, 1, WI_MIB - 256, true);
    cut(&b, block, 1000);
    take(&b, 1, 1024, 256); /* behind it, on the same stream */
    oracle_grown(b.o, block, 1024, 1024, 1);
    assert_int_equal(oracle_found(b.o)->violations, 0);
    oracle_grown(b.o, block, 1025, 1280, 1);
    tear_down(&b, ORACLE_OVERLAP);
}

static void a_shrunk_tail_may_still_be_in_use(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_block block = take(&b, 1, 0, WI_MIB);
    work(&b, 1, WI_MIB - 256, true);
    cut(&b, block, 1000);
    take(&b, 2, WI_MIB / 2, WI_MIB);
    tear_down(&b, ORACLE_EARLY_REUSE);
}

/* Uses of one owner ------------------------------------------------------------------------------------------------ */

static void undeclared_races_are_the_users(void **state)
{
    (void)state;
    bench b = set_up();
    take(&b, 0, 0, WI_MIB);
    work(&b, 1, 0, true);
    work(&b, 2, 0, true);
    tear_down(&b, ORACLE_USER);
}

static void a_read_before_the_write_is_done(void **state)
{
    (void)state;
    bench b = set_up();
    take(&b, 0, 0, WI_MIB);
    work(&b, 1, 0, true);
    work(&b, 2, 0, false);
    assert_int_equal(oracle_found(b.o)->count[ORACLE_USER], 1);
    for (int s = 1; s <= 2; s++)
        (void)sim->stream_synchronize(b.device, b.stream[s]);
    tear_down(&b, ORACLE_USER);
}

static void declared_races_are_weirs(void **state)
{
    (void)state;
    bench b = set_up();
    take(&b, 0, 0, WI_MIB);
    oracle_declare(b.o, true);
    work(&b, 1, 0, true);
    work(&b, 2, 0, true);
    tear_down(&b, ORACLE_LOST_ORDER);
}

static void reads_may_overlap(void **state)
{
    (void)state;
    bench b = set_up();
    take(&b, 0, 0, WI_MIB);
    work(&b, 0, 0, true);
    for (unsigned s = 1; s <= 3; s++)
        work(&b, s, 0, false);
    assert_int_equal(oracle_found(b.o)->count[ORACLE_USER], 0);
    work(&b, 3, 0, true); /* behind its own read alone */
    tear_down(&b, ORACLE_USER);
}

static void a_lost_reader_is_found_at_the_next_owner(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_block block = take(&b, 1, 0, WI_MIB);
    work(&b, 1, 0, true);
    wi_sim_follow(b.device, b.stream[2], b.stream[1]);
    oracle_declare(b.o, true);
    work(&b, 2, 0, false);
    oracle_using(b.o, block, 2, false);
    oracle_used(b.o, block, 2);
    oracle_declare(b.o, false);
    give(&b, block, 1); /* weir is to wait for the reader */
    assert_int_equal(oracle_found(b.o)->count[ORACLE_USER], 0);
    take(&b, 1, 0, WI_MIB);
    tear_down(&b, ORACLE_EARLY_REUSE);
}

static void frees_too_early_are_the_users(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_block block = take(&b, 1, 0, WI_MIB);
    work(&b, 1, 0, true);
    give(&b, block, 2);
    tear_down(&b, ORACLE_USER);
}

static void use_after_free_is_the_users(void **state)
{
    (void)state;
    bench b = set_up();
    one_owner(&b);
    work(&b, 1, 0, false);
    tear_down(&b, ORACLE_USER);
}

/* The book --------------------------------------------------------------------------------------------------------- */

static void look(bench *b, uint64_t live, uint64_t pending)
{
    weir_stats stats = {.struct_size = sizeof stats,
                        .budget = 8 * WI_MIB,
                        .held = 8 * WI_MIB,
                        .live = live,
                        .pending = pending,
                        .cached = 8 * WI_MIB - live - pending};
    weir_client_stats line = {
        .struct_size = sizeof line, .maximum = UINT64_MAX, .live = live, .live_class = {live}, .pending = pending};
    oracle_check(b->o, &stats, &line, &(unsigned){0}, 1, true);
}

/* Away ------------------------------------------------------------------------------------------------------------- */

/* A block of one granule whose memory leaves, as its client is suspended. */
static oracle_block leave(bench *b)
{
    oracle_block block = take(b, 0, 0, WI_MIB);
    oracle_suspending(b->o, 0);
    assert_int_equal(sim->unmap(b->device, b->range, 2 * WI_MIB, 1, b->handles), WEIR_OK);
    assert_int_equal(oracle_suspended(b->o, 0, true, false), WI_MIB);
    assert_int_equal(oracle_away(b->o, block), WI_MIB);
    return block;
}

static void put_under(bench *b)
{
    assert_int_equal(sim->map(b->device, b->range, 2 * WI_MIB, 1, b->handles), WEIR_OK);
}

/* Contents come by stream 2, and stream 1 is behind them, or not. */
static void come_back(bench *b, bool ordered)
{
    wi_event event;
    oracle_resuming(b->o, 0);
    put_under(b);
    assert_int_equal(sim->fill(b->device, b->range, 7, WI_MIB, b->stream[2]), WEIR_OK);
    assert_int_equal(sim->record(b->device, b->stream[2], &event), WEIR_OK);
    if (ordered)
        assert_int_equal(sim->order(b->device, b->stream[1], event), WEIR_OK);
    oracle_resumed(b->o, 0, 1, true);
}

static void a_client_leaves_and_comes_back(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_block block = leave(&b);
    come_back(&b, true);
    assert_int_equal(oracle_away(b.o, block), 0);
    work(&b, 1, 0, true);
    give(&b, block, 1);
    assert_int_equal(sim->synchronize(b.device), WEIR_OK);
    tear_down(&b, ORACLE_KINDS);
}

static void work_before_the_contents_are_back(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_block block = leave(&b);
    come_back(&b, false);
    work(&b, 1, 0, true);
    give(&b, block, 1);
    assert_int_equal(sim->synchronize(b.device), WEIR_OK);
    tear_down(&b, ORACLE_ARRIVAL);
}

static void work_that_is_not_behind_the_resume_is_the_users(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_block block = leave(&b);
    come_back(&b, true);
    work(&b, 3, 0, true);
    assert_int_equal(sim->synchronize(b.device), WEIR_OK);
    give(&b, block, 1);
    tear_down(&b, ORACLE_USER);
}

static void leaving_under_use(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_block block = take(&b, 1, 0, WI_MIB);
    work(&b, 1, 0, true);
    oracle_suspending(b.o, 0);
    (void)sim->unmap(b.device, b.range, 2 * WI_MIB, 1, b.handles);
    put_under(&b);
    (void)oracle_suspended(b.o, 0, false, false);
    give(&b, block, 1);
    assert_int_equal(sim->synchronize(b.device), WEIR_OK);
    tear_down(&b, ORACLE_UNMAP_UNDER_USE);
}

static void a_refused_suspend_that_took_memory(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_block block = take(&b, 0, 0, WI_MIB);
    oracle_suspending(b.o, 0);
    (void)sim->unmap(b.device, b.range, 2 * WI_MIB, 1, b.handles);
    (void)oracle_suspended(b.o, 0, false, false);
    oracle_resuming(b.o, 0);
    put_under(&b);
    oracle_resumed(b.o, 0, 0, true);
    give(&b, block, 0);
    tear_down(&b, ORACLE_UNMAP_LIVE);
}

static void a_client_that_is_back_without_memory(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_block block = leave(&b);
    oracle_resuming(b.o, 0);
    oracle_resumed(b.o, 0, 0, true);
    oracle_resuming(b.o, 0);
    put_under(&b);
    oracle_resumed(b.o, 0, 0, true);
    give(&b, block, 0);
    tear_down(&b, ORACLE_UNMAPPED);
}

/* A resume that failed has left memory under two blocks. Bytes that come are those of the lower one; no number fits half a block. */
static void a_part_comes_in_the_order_of_addresses(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        bench b = set_up();
        oracle_block low = take(&b, 0, 0, WI_MIB), high = take(&b, 0, 2 * WI_MIB, WI_MIB);
        oracle_suspending(b.o, 0);
        assert_int_equal(sim->unmap(b.device, b.range, 2 * WI_MIB, 2, b.handles), WEIR_OK);
        assert_int_equal(oracle_suspended(b.o, 0, true, false), 2 * WI_MIB);
        oracle_resuming(b.o, 0);
        assert_int_equal(sim->map(b.device, b.range, 2 * WI_MIB, 2, b.handles), WEIR_OK);
        oracle_resumed(b.o, 0, 0, false);
        oracle_resuming(b.o, 0);
        assert_int_equal(oracle_came(b.o, 0, 0, half ? WI_MIB / 2 : WI_MIB), WI_MIB);
        assert_int_equal(oracle_away(b.o, low), 0);
        assert_int_equal(oracle_away(b.o, high), WI_MIB);
        oracle_resuming(b.o, 0);
        assert_int_equal(oracle_came(b.o, 0, 0, WI_MIB), WI_MIB);
        give(&b, low, 1);
        give(&b, high, 1);
        tear_down(&b, ORACLE_KINDS);
    }
}

/* What is away can be freed, and the addresses are others' from then on. */
static void others_memory_where_a_block_is_away(void **state)
{
    (void)state;
    for (int freed = 0; freed < 2; freed++) {
        bench b = set_up();
        oracle_block block = leave(&b);
        if (freed)
            give(&b, block, 1);
        put_under(&b);
        if (!freed)
            give(&b, block, 1);
        tear_down(&b, freed ? ORACLE_KINDS : ORACLE_OVERLAP);
    }
}

static void snapshots_agree(void **state)
{
    (void)state;
    bench b = set_up();
    one_owner(&b);
    take(&b, 1, WI_MIB, 1000);
    look(&b, 1024, WI_MIB);
    (void)wi_sim_run(b.device, 1, 10);
    look(&b, 1024, 0);
    tear_down(&b, ORACLE_KINDS);
}

static void a_snapshot_that_forgets_pending_bytes(void **state)
{
    (void)state;
    bench b = set_up();
    one_owner(&b);
    look(&b, 0, 0);
    tear_down(&b, ORACLE_LEDGER);
}

static void more_than_the_budget(void **state)
{
    (void)state;
    bench b = set_up();
    wi_handle one;
    assert_int_equal(sim->create(b.device, 2 * WI_MIB, 1, &one), WEIR_OK);
    sim->destroy(b.device, 2 * WI_MIB, 1, &one);
    tear_down(&b, ORACLE_BUDGET);
}

static void refusals_need_their_reason(void **state)
{
    (void)state;
    bench b = set_up();
    oracle_set_limits(b.o, 0, 0, 2 * WI_MIB);
    take(&b, 1, 0, WI_MIB);
    oracle_refused(b.o, 0, 2 * WI_MIB, WEIR_CAUSE_MAXIMUM);
    oracle_refused(b.o, 0, 8 * WI_MIB, WEIR_CAUSE_BUDGET);
    assert_int_equal(oracle_found(b.o)->violations, 0);
    oracle_refused(b.o, 0, WI_MIB, WEIR_CAUSE_MAXIMUM);
    oracle_refused(b.o, 0, WI_MIB, WEIR_CAUSE_BUDGET);
    assert_int_equal(oracle_found(b.o)->violations, 2);
    tear_down(&b, ORACLE_REFUSAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_stream_is_in_order),
        cmocka_unit_test(another_stream_is_too_early),
        cmocka_unit_test(host_is_too_early),
        cmocka_unit_test(bytes_beside_are_no_matter),
        cmocka_unit_test(unseen_is_too_early),
        cmocka_unit_test(passed_is_in_order),
        cmocka_unit_test(an_event_before_the_free_is_too_early),
        cmocka_unit_test(synchronized_is_in_order),
        cmocka_unit_test(ordered_is_in_order_through_a_third_stream),
        cmocka_unit_test(order_has_a_direction),
        cmocka_unit_test(live_blocks_do_not_overlap),
        cmocka_unit_test(a_block_where_nothing_is_mapped),
        cmocka_unit_test(unmapping_a_live_block),
        cmocka_unit_test(unmapping_under_use),
        cmocka_unit_test(a_moved_handle_is_still_in_use),
        cmocka_unit_test(shrunk_tails_are_freed_and_grown_ones_taken),
        cmocka_unit_test(a_shrunk_tail_may_still_be_in_use),
        cmocka_unit_test(undeclared_races_are_the_users),
        cmocka_unit_test(a_read_before_the_write_is_done),
        cmocka_unit_test(declared_races_are_weirs),
        cmocka_unit_test(reads_may_overlap),
        cmocka_unit_test(a_lost_reader_is_found_at_the_next_owner),
        cmocka_unit_test(frees_too_early_are_the_users),
        cmocka_unit_test(use_after_free_is_the_users),
        cmocka_unit_test(a_client_leaves_and_comes_back),
        cmocka_unit_test(work_before_the_contents_are_back),
        cmocka_unit_test(work_that_is_not_behind_the_resume_is_the_users),
        cmocka_unit_test(leaving_under_use),
        cmocka_unit_test(a_refused_suspend_that_took_memory),
        cmocka_unit_test(a_client_that_is_back_without_memory),
        cmocka_unit_test(a_part_comes_in_the_order_of_addresses),
        cmocka_unit_test(others_memory_where_a_block_is_away),
        cmocka_unit_test(snapshots_agree),
        cmocka_unit_test(a_snapshot_that_forgets_pending_bytes),
        cmocka_unit_test(more_than_the_budget),
        cmocka_unit_test(refusals_need_their_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
