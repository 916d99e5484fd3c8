/* Chunks that are cut, that leave from under blocks and that come back: calls of the driver, which may fail, and what the books say
 * of them. A chunk that is cut is unmapped, destroyed and made again in two parts. The driver here names a handle anew whenever it is
 * mapped or unmapped, as every driver may, so that a name from before is seen. On the device that WEIR_TEST_DEVICE names, or
 * the host. */
#include "core.h"

#include "driver/driver.h"
#include "memory/stack.h"
#include "memory/mapped/mapped.h"
#include "runtime/runtime.h"

#include <weir/residency.h>

enum { GRANULES = 16, BACK = 4, MOST_NAMES = 1 << 12 };

/* What a name stands for, while it does. */
static struct name {
    bool good, mapped;
    wi_handle handle;
} names[MOST_NAMES];
static size_t names_used;
static long wrong, there, went; /* handles: of old names, that are there, destroyed */
static uint64_t calls, created, bytes_there;
/* The call that fails, from 0; -1: none. And whether everything stays where it is mapped. */
static long create_fails_at = -1, map_fails_at = -1, unmap_fails_at = -1;
static bool nothing_leaves;
static const wi_driver *real;

/* Chunks are as long as they can be, although the budget is small. */
uint64_t __wrap_wi_map_plan_chunk(const wi_mapped *mapped, unsigned region, uint64_t fresh);
uint64_t __wrap_wi_map_plan_chunk(const wi_mapped *mapped, unsigned region, uint64_t fresh)
{
    (void)mapped;
    (void)region;
    return fresh;
}

/* What comes back: a granule at a time if it is to come in parts, the first from memory of `stranger`; and whose the memory is said to
 * have been that is given away. */
static bool in_parts;
static long parts, part_fails_at = -1;
static uint64_t stranger, given_last[GRANULES];
static size_t given;

weir_status __real_wi_chunks_fill(wi_mapped *mapped, wi_region *region, uint64_t first, uint64_t count, uint64_t *last);
weir_status __wrap_wi_chunks_fill(wi_mapped *mapped, wi_region *region, uint64_t first, uint64_t count, uint64_t *last);
weir_status __wrap_wi_chunks_fill(wi_mapped *mapped, wi_region *region, uint64_t first, uint64_t count, uint64_t *last)
{
    if (!in_parts)
        return __real_wi_chunks_fill(mapped, region, first, count, last);
    if (parts == part_fails_at)
        return weir_fail(WEIR_ERR_DRIVER, "a part that does not come");
    weir_status status = __real_wi_chunks_fill(mapped, region, first, 1, last);
    *last = parts++ == 0 ? stranger : WI_CLEAN;
    return status;
}

void __real_wi_chunks_give_away(wi_mapped *mapped, wi_chunk *chunk, uint64_t last);
void __wrap_wi_chunks_give_away(wi_mapped *mapped, wi_chunk *chunk, uint64_t last);
void __wrap_wi_chunks_give_away(wi_mapped *mapped, wi_chunk *chunk, uint64_t last)
{
    given_last[given++ % GRANULES] = last;
    __real_wi_chunks_give_away(mapped, chunk, last);
}

/* Somebody else is faster, once: he holds all but that many bytes. */
static uint64_t left_by_others, held_by_others;

uint64_t __real_wi_ledger_hold(wi_ledger *ledger, uint64_t bytes);
uint64_t __wrap_wi_ledger_hold(wi_ledger *ledger, uint64_t bytes);
uint64_t __wrap_wi_ledger_hold(wi_ledger *ledger, uint64_t bytes)
{
    uint64_t held, allocations;
    if (left_by_others > 0) {
        held_by_others = __real_wi_ledger_hold(ledger, wi_ledger_room(ledger, &held, &allocations) - left_by_others);
        left_by_others = 0;
    }
    return __real_wi_ledger_hold(ledger, bytes);
}

/* Another thread begins to free this block while chunks are chosen. */
static wi_block *freed_by_others;

weir_status __real_wi_extent_pool_reserve(wi_extent_pool *pool, size_t count);
weir_status __wrap_wi_extent_pool_reserve(wi_extent_pool *pool, size_t count);
weir_status __wrap_wi_extent_pool_reserve(wi_extent_pool *pool, size_t count)
{
    wi_block *block = freed_by_others;
    freed_by_others = NULL;
    if (block)
        assert_true(wi_block_acquire(block, atomic_load(&block->word), WI_ACQUIRED));
    return __real_wi_extent_pool_reserve(pool, count);
}

/* Copies that are shown: none is put into its place; and while one is taken from there a block is freed. */
static bool none_is_shown;
static weir_client *frees;
static void *freed_meanwhile;

weir_status __real_wi_host_chunk_show(wi_host_chunk *chunk, void *home);
weir_status __wrap_wi_host_chunk_show(wi_host_chunk *chunk, void *home);
weir_status __wrap_wi_host_chunk_show(wi_host_chunk *chunk, void *home)
{
    return none_is_shown ? weir_fail(WEIR_ERR_DRIVER, "not shown on purpose") : __real_wi_host_chunk_show(chunk, home);
}

weir_status __real_wi_host_chunk_hide(wi_host_chunk *chunk);
weir_status __wrap_wi_host_chunk_hide(wi_host_chunk *chunk);
weir_status __wrap_wi_host_chunk_hide(wi_host_chunk *chunk)
{
    void *block = freed_meanwhile;
    freed_meanwhile = NULL;
    if (block)
        ok(weir_free(frees, block, WEIR_STREAM_HOST));
    return __real_wi_host_chunk_hide(chunk);
}

static bool fails_now(long *at)
{
    return *at >= 0 && (*at)-- == 0;
}

/* The driver's own handles of those that are named, whose names are no longer good. */
static wi_handle *forget(size_t count, const wi_handle *handles, bool mapped)
{
    wi_handle *own = malloc(count * sizeof *own);
    for (size_t i = 0; i < count; i++) {
        struct name *n = &names[handles[i] < MOST_NAMES ? handles[i] : 0];
        wrong += !n->good || n->mapped != mapped;
        own[i] = n->handle;
        n->good = false;
    }
    return own;
}

static void name(size_t count, wi_handle *handles, const wi_handle *own, bool mapped)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(++names_used < MOST_NAMES);
        names[names_used] = (struct name){true, mapped, own[i]};
        handles[i] = names_used;
    }
}

static weir_status c_create(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    calls++;
    if (fails_now(&create_fails_at))
        return weir_fail(WEIR_ERR_DRIVER, "not created on purpose");
    weir_status status = real->create(device, bytes, count, handles);
    if (status != WEIR_OK)
        return status;
    name(count, handles, handles, false);
    there += (long)count;
    created += count;
    bytes_there += count * bytes;
    return status;
}

static void c_destroy(wi_device *device, uint64_t bytes, size_t count, const wi_handle *handles)
{
    wi_handle *own = forget(count, handles, false);
    calls++;
    there -= (long)count;
    went += (long)count;
    bytes_there -= count * bytes;
    if (wrong == 0) /* else it may be anybody's by now */
        real->destroy(device, bytes, count, own);
    free(own);
}

static weir_status c_map(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    calls++;
    if (fails_now(&map_fails_at))
        return weir_fail(WEIR_ERR_DRIVER, "not mapped on purpose");
    wi_handle *own = forget(count, handles, false);
    weir_status status = real->map(device, address, bytes, count, own);
    name(count, handles, own, status == WEIR_OK);
    free(own);
    return status;
}

static weir_status c_unmap(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    calls++;
    if (nothing_leaves || fails_now(&unmap_fails_at))
        return weir_fail(WEIR_ERR_DRIVER, "not unmapped on purpose");
    wi_handle *own = forget(count, handles, true);
    weir_status status = real->unmap(device, address, bytes, count, own);
    name(count, handles, own, status != WEIR_OK);
    free(own);
    return status;
}

static void check_bytes(weir_runtime *runtime, const void *pointer, uint8_t value, size_t bytes)
{
    uint8_t *copy = malloc(bytes);
    size_t same = 0;
    ok(weir_copy(runtime, copy, pointer, bytes, WEIR_STREAM_HOST));
    while (same < bytes && copy[same] == value)
        same++;
    assert_int_equal(same, bytes);
    free(copy);
}

/* What comes back needs a part of the one chunk that there is by now. */
static void cut_for_what_comes_back(weir_runtime *runtime, uint64_t granule)
{
    weir_client *goes = open_client(runtime, "goes", 0, 0), *fills = open_client(runtime, "fills", 0, 0);
    uint64_t bytes = BACK * granule, rest = (GRANULES - BACK) * granule;
    void *back = allocate(goes, bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_fill(runtime, back, 1, bytes, WEIR_STREAM_HOST));
    ok(weir_client_suspend(goes, NULL, NULL));
    ok(weir_runtime_trim(runtime, NULL, NULL));
    ok(weir_free(fills, allocate(fills, GRANULES * granule, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    assert_int_equal(there, 1);
    went = 0;
    ok(weir_client_resume(goes, WEIR_STREAM_HOST));
    assert_int_equal(wrong, 0);
    assert_int_equal(went, 1); /* the chunk, which is two now */
    assert_int_equal(there, 2);
    void *beside = allocate(fills, rest, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_fill(runtime, beside, 2, rest, WEIR_STREAM_HOST));
    check_bytes(runtime, back, 1, bytes);
    check_bytes(runtime, beside, 2, rest);
    ok(weir_free(fills, beside, WEIR_STREAM_HOST));
    ok(weir_free(goes, back, WEIR_STREAM_HOST));
    ok(weir_client_destroy(fills));
    ok(weir_client_destroy(goes));
}

/* The budget is GRANULES of the driver's granules, whose bytes are the answer. `named`: handles are named anew, but for copies that are
 * shown. */
static uint64_t begin_over(weir_runtime **runtime, bool named)
{
    static wi_driver driver;
    const char *device = getenv("WEIR_TEST_DEVICE");
    weir_runtime_options options = {.struct_size = sizeof options, .resource = "mapped"};
    wi_device *probe;
    int ordinal;
    ok(wi_driver_find(device ? device : "host", &real, &ordinal));
    driver = *real;
    driver.create = named ? c_create : real->create;
    driver.destroy = named ? c_destroy : real->destroy;
    driver.map = named ? c_map : real->map;
    driver.unmap = named ? c_unmap : real->unmap;
    driver.drop = NULL;
    ok(real->open(ordinal, &probe));
    uint64_t granule = real->granule(probe);
    real->close(probe);
    options.budget = GRANULES * granule;
    wrong = there = 0;
    names_used = 0;
    calls = created = bytes_there = 0;
    ok(wi_runtime_create_over(&driver, ordinal, &options, runtime));
    return granule;
}

static uint64_t begin(weir_runtime **runtime)
{
    return begin_over(runtime, true);
}

static void end(weir_runtime *runtime)
{
    ok(weir_runtime_destroy(runtime));
    assert_int_equal(wrong, 0);
    assert_int_equal(there, 0);
    assert_int_equal(bytes_there, 0);
}

static void a_cut_gives_back_what_was_unmapped(void **state)
{
    weir_runtime *runtime;
    (void)state;
    uint64_t granule = begin(&runtime);
    cut_for_what_comes_back(runtime, granule);
    end(runtime);
}

/* What the base's own part of the books says, apart from the copies. */
static void books_are_right(weir_runtime *runtime, uint64_t calls_before, uint64_t said_before)
{
    snapshot s = take_snapshot(runtime);
    check_sums(&s);
    assert_int_equal(s.device.driver_calls - said_before, calls - calls_before);
    assert_int_equal(s.device.created, created);
}

/* The chunk is unmapped and destroyed, and one of the calls that follow fails: what is left is what the books say, and the next
 * resume works. */
static void a_cut_that_fails_loses_no_byte(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (long at = 0; at < 2; at++) {
            weir_runtime *runtime;
            uint64_t granule = begin(&runtime), bytes = BACK * granule;
            weir_client *goes = open_client(runtime, "goes", 0, 0), *fills = open_client(runtime, "fills", 0, 0);
            void *back = allocate(goes, bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
            ok(weir_fill(runtime, back, 1, bytes, WEIR_STREAM_HOST));
            ok(weir_client_suspend(goes, NULL, NULL));
            ok(weir_runtime_trim(runtime, NULL, NULL));
            ok(weir_free(fills, allocate(fills, GRANULES * granule, WEIR_STREAM_HOST, WEIR_CLASS_KV),
                         WEIR_STREAM_HOST));
            snapshot before = take_snapshot(runtime);
            uint64_t calls_before = calls, beside = before.device.held - bytes_there; /* on the host, the copies */
            long *which[] = {&create_fails_at, &map_fails_at, &unmap_fails_at};
            *which[kind] = at;
            fails(WEIR_ERR_DRIVER, weir_client_resume(goes, WEIR_STREAM_HOST));
            assert_int_equal(*which[kind], -1);
            books_are_right(runtime, calls_before, before.device.driver_calls);
            assert_int_equal(take_snapshot(runtime).device.held - beside, bytes_there);
            /* Of two parts the first is there if the second was to be made; a chunk that is not unmapped is as it was. */
            assert_int_equal(bytes_there, kind == 2 ? GRANULES * granule : at == 0 ? 0 : bytes);
            ok(weir_client_resume(goes, WEIR_STREAM_HOST));
            check_bytes(runtime, back, 1, bytes);
            void *all = allocate(fills, (GRANULES - BACK) * granule, WEIR_STREAM_HOST, WEIR_CLASS_KV);
            ok(weir_fill(runtime, all, 2, (GRANULES - BACK) * granule, WEIR_STREAM_HOST));
            check_bytes(runtime, back, 1, bytes);
            ok(weir_free(fills, all, WEIR_STREAM_HOST));
            ok(weir_free(goes, back, WEIR_STREAM_HOST));
            ok(weir_client_destroy(fills));
            ok(weir_client_destroy(goes));
            end(runtime);
        }
}

/* Also those of a suspend that fails, and puts back what it took, and of a resume that fails. */
static void every_call_of_the_driver_is_counted(void **state)
{
    weir_runtime *runtime;
    (void)state;
    uint64_t granule = begin(&runtime), bytes = 2 * granule;
    weir_client *client = open_client(runtime, "one", 0, 0);
    void *blocks[2];
    for (int i = 0; i < 2; i++) {
        blocks[i] = allocate(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        ok(weir_fill(runtime, blocks[i], (uint8_t)(i + 1), bytes, WEIR_STREAM_HOST));
        books_are_right(runtime, 0, 0);
        assert_int_equal(calls, 2 * (i + 1)); /* a chunk is created and mapped */
    }
    ok(weir_client_suspend(client, NULL, NULL)); /* makes the copies, which stay */
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    uint64_t before = calls, said = take_snapshot(runtime).device.driver_calls;
    ok(weir_client_suspend(client, NULL, NULL));
    books_are_right(runtime, before, said);
    assert_int_equal(calls - before, 2);
    map_fails_at = 1;
    fails(WEIR_ERR_DRIVER, weir_client_resume(client, WEIR_STREAM_HOST));
    books_are_right(runtime, before, said);
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    books_are_right(runtime, before, said);
    uint64_t until_now = calls;
    unmap_fails_at = 1;
    fails(WEIR_ERR_DRIVER, weir_client_suspend(client, NULL, NULL));
    books_are_right(runtime, before, said);
    assert_int_equal(calls - until_now, 3); /* the first chunk was unmapped and is mapped again */
    for (int i = 0; i < 2; i++) {
        check_bytes(runtime, blocks[i], (uint8_t)(i + 1), bytes);
        ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
    }
    ok(weir_client_destroy(client));
    end(runtime);
}

/* Memory comes back in parts, the first of which were a stranger's, and then no more: what was there is said to have been his, too,
 * whether it is given away or stays where the block was. */
static void parts_that_came_were_somebodys(void **state)
{
    (void)state;
    for (int stays = 0; stays < 2; stays++) {
        weir_runtime *runtime;
        uint64_t granule = begin(&runtime), bytes = BACK * granule;
        weir_client_options scrubbed = {.struct_size = sizeof scrubbed, .name = "goes", .scrub = WEIR_SCRUB_OTHERS};
        weir_client *goes, *other = open_client(runtime, "other", 0, 0);
        ok(weir_client_create(runtime, &scrubbed, &goes));
        stranger = wi_account_owner(&other->account);
        char *back = allocate(goes, bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        ok(weir_fill(runtime, back, 1, bytes, WEIR_STREAM_HOST));
        ok(weir_client_suspend(goes, NULL, NULL));
        ok(weir_runtime_trim(runtime, NULL, NULL));
        in_parts = true;
        nothing_leaves = stays;
        parts = 0;
        part_fails_at = 2;
        given = 0;
        fails(WEIR_ERR_DRIVER, weir_client_resume(goes, WEIR_STREAM_HOST));
        nothing_leaves = false;
        assert_int_equal(given, stays ? 0 : 2);
        for (size_t i = 0; i < given; i++)
            assert_true(wi_account_must_scrub(&goes->account, given_last[i]));
        part_fails_at = -1;
        if (stays) {
            wi_mapped *base = (wi_mapped *)runtime->resource->base;
            wi_region *region = base->regions;
            while (!wi_region_holds(region, back))
                region++;
            ok(weir_free(goes, back, WEIR_STREAM_HOST));
            const wi_extent *e = wi_region_at(region, (uint64_t)(back - region->base));
            assert_int_equal(e->kind, WI_FREE);
            assert_int_equal(e->bytes, 2 * granule);
            assert_true(wi_account_must_scrub(&goes->account, e->last));
            assert_int_equal(e->next->kind, WI_HOLE);
        } else {
            ok(weir_client_resume(goes, WEIR_STREAM_HOST));
            check_bytes(runtime, back, 1, bytes);
            ok(weir_free(goes, back, WEIR_STREAM_HOST));
        }
        in_parts = false;
        check_empty(runtime);
        ok(weir_client_destroy(goes));
        ok(weir_client_destroy(other));
        end(runtime);
    }
}

/* Two blocks on a chunk may leave until another thread is about to free the one: both stay, and the receipt says why. */
static void what_is_being_freed_stays(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        weir_runtime *runtime;
        uint64_t granule = begin(&runtime), bytes = granule / 2;
        weir_client *client = open_client(runtime, "one", 0, 0);
        wi_base *base = runtime->resource->base;
        void *blocks[2];
        for (int i = 0; i < 2; i++) {
            blocks[i] = allocate(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
            ok(weir_fill(runtime, blocks[i], (uint8_t)(i + 1), bytes, WEIR_STREAM_HOST));
        }
        assert_int_equal(there, 1);
        wi_block *freed = freed_by_others = base->table->peek(base, blocks[which]);
        weir_residency receipt = WEIR_INIT(weir_residency);
        ok(weir_client_suspend(client, NULL, &receipt));
        assert_null(freed_by_others);
        assert_int_equal(receipt.away, 0);
        assert_int_equal(receipt.stays, 1);
        assert_ptr_equal(receipt.stay[0].pointer, blocks[which]);
        assert_int_equal(receipt.stay[0].why, WEIR_STAY_BUSY);
        assert_int_equal(receipt.stay[0].bytes, bytes);
        assert_int_equal(wi_block_phase_of(freed), WI_ACQUIRED);
        wi_block_set_phase(freed, WI_LIVE);
        for (int i = 0; i < 2; i++) {
            check_bytes(runtime, blocks[i], (uint8_t)(i + 1), bytes);
            ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
        }
        ok(weir_client_destroy(client));
        end(runtime);
    }
}

/* Of three pieces the first is not shown any more, as its resume has failed. It goes with its block while the copy of the second is
 * taken from its place, which is not the third's. */
static void a_free_meanwhile_hides_no_other_copy(void **state)
{
    enum { BLOCKS = 3 };
    weir_runtime *runtime;
    (void)state;
    uint64_t granule = begin_over(&runtime, false), bytes = 2 * granule;
    weir_client *client = frees = open_client(runtime, "one", 0, 0);
    char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        ok(weir_fill(runtime, blocks[i], (uint8_t)(i + 1), bytes, WEIR_STREAM_HOST));
        assert_true(i == 0 || blocks[i] > blocks[i - 1]);
    }
    weir_suspend_options show = {.struct_size = sizeof show, .show = true};
    weir_resume_options one = {.struct_size = sizeof one, .most = 1};
    weir_residency r = WEIR_INIT(weir_residency);
    ok(weir_client_suspend(client, &show, &r));
    assert_int_equal(r.shown, BLOCKS * bytes);
    in_parts = none_is_shown = true;
    parts = part_fails_at = 0;
    fails(WEIR_ERR_DRIVER, weir_client_resume_some(client, &one, WEIR_STREAM_HOST, NULL));
    in_parts = none_is_shown = false;
    part_fails_at = -1;
    ok(weir_client_residency(client, &r));
    assert_int_equal(r.away, BLOCKS * bytes);
    assert_int_equal(r.shown, 2 * bytes);
    freed_meanwhile = blocks[0];
    ok(weir_free(client, blocks[1], WEIR_STREAM_HOST));
    assert_null(freed_meanwhile);
    ok(weir_client_residency(client, &r));
    assert_int_equal(r.away, bytes);
    assert_int_equal(r.shown, bytes);
    check_bytes(runtime, blocks[2], 3, bytes);
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    check_bytes(runtime, blocks[2], 3, bytes);
    ok(weir_free(client, blocks[2], WEIR_STREAM_HOST));
    (void)weir_client_forget_copies(client);
    check_empty(runtime);
    ok(weir_client_destroy(client));
    end(runtime);
}

/* Between a plan and its chunks others have held what the budget had left: the request is refused, and holds nothing. */
static void what_others_held_first_is_not_held_twice(void **state)
{
    weir_runtime *runtime;
    void *block;
    (void)state;
    uint64_t granule = begin(&runtime);
    weir_client *client = open_client(runtime, "one", 0, 0);
    ok(weir_option_set("wait", "0"));
    left_by_others = 2 * granule;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 3 * granule, WEIR_STREAM_HOST, WEIR_CLASS_KV, &block));
    assert_int_equal(held_by_others, (GRANULES - 2) * granule);
    assert_int_equal(take_snapshot(runtime).device.held, held_by_others);
    wi_ledger_release(&runtime->ledger, held_by_others);
    ok(weir_free(client, allocate(client, GRANULES * granule, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    ok(weir_option_set("wait", NULL));
    ok(weir_client_destroy(client));
    end(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_gives_back_what_was_unmapped),
        cmocka_unit_test(a_cut_that_fails_loses_no_byte),
        cmocka_unit_test(every_call_of_the_driver_is_counted),
        cmocka_unit_test(parts_that_came_were_somebodys),
        cmocka_unit_test(what_is_being_freed_stays),
        cmocka_unit_test(a_free_meanwhile_hides_no_other_copy),
        cmocka_unit_test(what_others_held_first_is_not_held_twice),
    };
    return cmocka_run_group_tests_name("cut", tests, NULL, NULL);
}
