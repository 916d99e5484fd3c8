/* The guard: damage is found and told, what is freed is kept back, and stacks are read. */
#include "info.h"
#include "resources/guard_fixture.h"
#include <weir/guard.h>

/* Damage ----------------------------------------------------------------------------------------------------------- */

static void an_overrun_is_described(void **state)
{
    fixture *f = *state;
    weir_block block = make(f, 1000, f->a, "logits");
    ok(weir_fill(f->runtime, (char *)block.pointer + 1002, 0x41, 4, f->a));
    ok(weir_free(f->client, block.pointer, f->b));
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    weir_guard_report r = last_report(f, 1);
    check_report(&r, WEIR_GUARD_OVERRUN, block, 1000, 1002, 4);
    assert_string_equal(r.tag, "logits");
    assert_int_equal(r.found, 0x41);
    assert_int_equal(r.expected, 0xFB);
    assert_int_equal(r.allocated.id, f->a.id);
    assert_int_equal(r.freed.id, f->b.id);
    assert_false(r.live);
    assert_int_equal(atomic_load(&logged_count), 1);
    assert_non_null(strstr(logged[0], "overrun: the block of 1000 bytes"));
    assert_non_null(strstr(logged[0], "of bert (kv, tag \"logits\""));
    assert_non_null(
        strstr(logged[0], "4 bytes behind it overwritten, the first at offset 1002 (0x41 instead of 0xFB)"));
}

static void every_byte_of_the_zones_counts(void **state)
{
    fixture *f = *state;
    static const size_t sizes[] = {1, 255, 256, 257, 5000};
    size_t found = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t bytes = sizes[i];
        int64_t last = (int64_t)(bytes + UNIT - 1) / UNIT * UNIT + UNIT - 1;
        int64_t places[] = {(int64_t)bytes, last, -1, -(int64_t)UNIT};
        for (int k = 0; k < 4; k++) {
            weir_block block = make(f, bytes, WEIR_STREAM_HOST, NULL);
            write_at(f, block, places[k], 0, 1);
            ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
            weir_guard_report r = last_report(f, ++found);
            check_report(&r, k < 2 ? WEIR_GUARD_OVERRUN : WEIR_GUARD_UNDERRUN, block, bytes, places[k], 1);
            assert_int_equal(r.found, 0);
        }
        weir_block block = make(f, bytes, WEIR_STREAM_HOST, NULL);
        write_at(f, block, 0, 0, bytes);
        ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
        assert_int_equal(count_reports(f), found);
    }
}

static void both_ends_are_two_reports(void **state)
{
    fixture *f = *state;
    weir_block block = make(f, 512, WEIR_STREAM_HOST, "x");
    write_at(f, block, -3, 7, 3);
    write_at(f, block, 512, 7, 100);
    ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
    weir_guard_report r = last_report(f, 2);
    check_report(&r, WEIR_GUARD_OVERRUN, block, 512, 512, 100);
    weir_guard_report first = WEIR_INIT(weir_guard_report);
    ok(weir_guard_reports(f->runtime, &first, 1, NULL));
    check_report(&first, WEIR_GUARD_UNDERRUN, block, 512, -3, 3);
}

static void a_use_after_free_is_found_when_the_block_is_given_up(void **state)
{
    fixture *f = *state;
    static const int64_t places[] = {0, 10, 2999, -1, 3000};
    for (size_t i = 0; i < 5; i++) {
        weir_block block = make(f, 3000, f->a, "cache");
        ok(weir_free(f->client, block.pointer, f->a));
        ok(weir_stream_synchronize(f->a));
        assert_int_equal(count_reports(f), i);
        write_at(f, block, places[i], 0x99, 1);
        trim(f);
        weir_guard_report r = last_report(f, i + 1);
        check_report(&r, WEIR_GUARD_USE_AFTER_FREE, block, 3000, places[i], 1);
        assert_int_equal(r.expected, 0xDD);
        assert_int_equal(r.found, 0x99);
        assert_int_equal(r.freed.id, f->a.id);
        assert_string_equal(r.tag, "cache");
    }
}

static void damage_in_the_middle_of_much_memory_is_found(void **state)
{
    fixture *f = *state;
    weir_block block = make(f, 3 * MIB, WEIR_STREAM_HOST, NULL);
    ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
    write_at(f, block, MIB + 77, 1, 2);
    write_at(f, block, 2 * MIB + 5, 1, 3);
    trim(f);
    weir_guard_report r = last_report(f, 1);
    check_report(&r, WEIR_GUARD_USE_AFTER_FREE, block, 3 * MIB, MIB + 77, 5);
}

static void poison_shows_what_was_never_written(void **state)
{
    fixture *f = *state;
    weir_block block = make(f, 1000, f->a, NULL);
    ok(weir_stream_synchronize(f->a));
    check_bytes(f, block.pointer, 0xA5, 1000);
    ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
    check_bytes(f, block.pointer, 0xDD, 1000);
    weir_request zeroed = {.struct_size = sizeof zeroed, .bytes = 1000, .stream = f->a, .flags = WEIR_ALLOC_ZEROED};
    ok(weir_alloc_with(f->client, &zeroed, &block));
    ok(weir_stream_synchronize(f->a));
    check_bytes(f, block.pointer, 0, 1000);
    ok(weir_free(f->client, block.pointer, f->a));
    ok(weir_stream_synchronize(f->a));
    trim(f);
    assert_int_equal(count_reports(f), 0);
}

static void alignment_is_kept(void **state)
{
    fixture *f = *state;
    static const size_t alignments[] = {1, 256, 512, 4096, MIB};
    for (int i = 0; i < 5; i++) {
        weir_request request = {.struct_size = sizeof request, .bytes = 100, .alignment = alignments[i]};
        weir_block block;
        ok(weir_alloc_with(f->client, &request, &block));
        assert_int_equal((uintptr_t)block.pointer % alignments[i], 0);
        write_at(f, block, -1, 0, 1);
        ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
        assert_int_equal(last_report(f, (size_t)i + 1).offset, -1);
        trim(f);
    }
}

/* Also with a zone that is no multiple of it. */
static void alignment_is_kept_behind_any_zone(void **state)
{
    static const size_t alignments[] = {512, 1024, 4096};
    (void)state;
    weir_runtime *runtime = make_with("guard(zone=768, mapped)", BUDGET);
    weir_client *client = open_client(runtime, "aligned", 0, 0);
    for (int i = 0; i < 3; i++) {
        weir_request request = {.struct_size = sizeof request, .bytes = 100, .alignment = alignments[i]};
        weir_block block;
        ok(weir_alloc_with(client, &request, &block));
        assert_int_equal((uintptr_t)block.pointer % alignments[i], 0);
        ok(weir_free(client, block.pointer, WEIR_STREAM_HOST));
    }
    ok(weir_guard_check(runtime));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static void more_reports_than_are_kept(void **state)
{
    fixture *f = *state;
    static weir_guard_report reports[MOST];
    size_t count;
    for (size_t i = 0; i < MOST; i++) {
        weir_block block = make(f, 100 + i, WEIR_STREAM_HOST, NULL);
        write_at(f, block, (int64_t)(100 + i), 0, 1);
        ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
    }
    memset(reports, 0, sizeof reports);
    reports[0].struct_size = sizeof reports[0];
    ok(weir_guard_reports(f->runtime, reports, MOST, &count));
    assert_int_equal(count, MOST);
    for (size_t i = 0; i < 256; i++)
        assert_int_equal(reports[i].bytes, 100 + i);
    assert_int_equal(reports[256].bytes, 0);
    assert_int_equal(atomic_load(&logged_count), MOST);
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

static void a_check_looks_at_what_is_live(void **state)
{
    fixture *f = *state;
    weir_block good = make(f, 700, WEIR_STREAM_HOST, "good"), bad = make(f, 700, WEIR_STREAM_HOST, "bad");
    ok(weir_guard_check(f->runtime));
    write_at(f, bad, 701, 0, 2);
    for (int i = 0; i < 2; i++) {
        fails(WEIR_ERR_CORRUPT, weir_guard_check(f->runtime));
        detail_names("tag \"bad\"");
        detail_names("offset 701");
        weir_guard_report r = last_report(f, 1);
        check_report(&r, WEIR_GUARD_OVERRUN, bad, 700, 701, 2);
        assert_true(r.live);
    }
    ok(weir_free(f->client, bad.pointer, WEIR_STREAM_HOST));
    ok(weir_guard_check(f->runtime));
    assert_int_equal(count_reports(f), 1); /* told once */
    ok(weir_free(f->client, good.pointer, WEIR_STREAM_HOST));
    write_at(f, good, 0, 0, 1);
    fails(WEIR_ERR_CORRUPT, weir_guard_check(f->runtime)); /* what is kept back, too */
    detail_names("use after free");
    trim(f);
    weir_guard_report r = last_report(f, 2);
    check_report(&r, WEIR_GUARD_USE_AFTER_FREE, good, 700, 0, 1);
}

/* Of several blocks, and of a block that is damaged at both ends, everything is told; in words the first in memory. */
static void a_check_tells_of_all_that_is_damaged(void **state)
{
    fixture *f = *state;
    weir_block blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = make(f, 700, WEIR_STREAM_HOST, i == 0 ? "one" : i == 1 ? "two" : "three");
    int low = 0;
    for (int i = 0; i < 3; i++) {
        low = (char *)blocks[i].pointer < (char *)blocks[low].pointer ? i : low;
        write_at(f, blocks[i], 700, 0, 1);
    }
    write_at(f, blocks[1], -3, 0, 2);
    fails(WEIR_ERR_CORRUPT, weir_guard_check(f->runtime));
    detail_names(low == 0 ? "tag \"one\"" : low == 1 ? "tag \"two\"" : "tag \"three\"");
    assert_int_equal(count_reports(f), 4);
    weir_guard_report reports[4] = {{.struct_size = sizeof reports[0]}};
    size_t count, under = 0;
    ok(weir_guard_reports(f->runtime, reports, 4, &count));
    for (int i = 0; i < 4; i++) {
        bool underrun = reports[i].kind == WEIR_GUARD_UNDERRUN;
        under += underrun;
        assert_int_equal(reports[i].offset, underrun ? -3 : 700);
        assert_true(!underrun || reports[i].block.pointer == blocks[1].pointer);
    }
    assert_int_equal(under, 1);
    for (int i = 0; i < 3; i++)
        ok(weir_free(f->client, blocks[i].pointer, WEIR_STREAM_HOST));
}

static void what_was_forgotten_is_listed(void **state)
{
    fixture *f = *state;
    weir_client *other = open_client(f->runtime, "llama", 0, 0);
    weir_block blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = make(f, 1000 * (size_t)(i + 1), f->a, i % 2 ? "odd" : "even");
    void *p = allocate(other, 50, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    weir_block late = make(f, 4000, f->a, "a later one");
    weir_guard_leak leaks[8] = {{.struct_size = sizeof leaks[0]}};
    size_t count;
    ok(weir_guard_leaks(f->runtime, leaks, 8, &count));
    assert_int_equal(count, 6);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(leaks[i].block.generation, blocks[i].generation);
        assert_int_equal(leaks[i].bytes, 1000 * (i + 1));
        assert_string_equal(leaks[i].tag, i % 2 ? "odd" : "even");
        assert_ptr_equal(leaks[i].client, f->client);
        assert_int_equal(leaks[i].stream.id, f->a.id);
    }
    assert_string_equal(leaks[4].name, "llama");
    assert_int_equal(leaks[4].memory_class, WEIR_CLASS_WEIGHTS);
    for (size_t room = 0; room < 6; room++) { /* the oldest, and how many there are */
        weir_guard_leak some[6] = {{.struct_size = sizeof some[0]}};
        ok(weir_guard_leaks(f->runtime, some, room, &count));
        assert_int_equal(count, 6);
        for (size_t i = 0; i < room; i++)
            assert_int_equal(some[i].block.generation, leaks[i].block.generation);
        assert_null(some[room].block.pointer);
    }
    fails(WEIR_ERR_BUSY, weir_client_destroy(f->client));
    assert_int_equal(atomic_load(&logged_count), 3); /* one line a tag, the client's alone */
    assert_non_null(strstr(logged[0], "bert has 2 live blocks of 5.9 KiB tagged \"odd\"")); /* the most bytes first */
    assert_non_null(strstr(logged[1], "bert has 2 live blocks of 3.9 KiB tagged \"even\""));
    assert_non_null(strstr(logged[2], "of 3.9 KiB tagged \"a later one\"")); /* of as many the oldest first */
    for (int i = 0; i < 2; i++) {                                            /* of both the oldest is named */
        char oldest[64];
        snprintf(oldest, sizeof oldest, "the oldest at %p of generation %llu", blocks[1 - i].pointer,
                 (unsigned long long)blocks[1 - i].generation);
        assert_non_null(strstr(logged[i], oldest));
    }
    for (int i = 0; i < 4; i++)
        ok(weir_free(f->client, blocks[i].pointer, f->a));
    ok(weir_free(f->client, late.pointer, f->a));
    ok(weir_free(other, p, WEIR_STREAM_HOST));
    ok(weir_guard_leaks(f->runtime, NULL, 0, &count));
    assert_int_equal(count, 0);
    ok(weir_client_destroy(other));
}

static void old_and_new_structures(void **state)
{
    fixture *f = *state;
    enum { TWO = 2 };
    weir_block blocks[TWO];
    size_t sizes[] = {offsetof(weir_guard_report, bytes), sizeof(weir_guard_report), sizeof(weir_guard_report) + 32};
    for (int i = 0; i < TWO; i++) {
        blocks[i] = make(f, 100, WEIR_STREAM_HOST, "t");
        write_at(f, blocks[i], 100, 0, 1);
        ok(weir_free(f->client, blocks[i].pointer, WEIR_STREAM_HOST));
    }
    for (int i = 0; i < 3; i++) {
        _Alignas(16) unsigned char raw[1024];
        memset(raw, 0x5a, sizeof raw);
        memcpy(raw, &sizes[i], sizeof sizes[i]);
        ok(weir_guard_reports(f->runtime, (weir_guard_report *)raw, TWO, NULL));
        for (size_t k = 0; k < TWO; k++) {
            const weir_guard_report *report = (const weir_guard_report *)(const void *)(raw + k * sizes[i]);
            assert_int_equal(report->struct_size, sizes[i]);
            assert_ptr_equal(report->block.pointer, blocks[k].pointer);
        }
        assert_int_equal(raw[TWO * sizes[i]], 0x5a);
    }
    weir_guard_report none = {.struct_size = 0};
    fails(WEIR_ERR_INVALID, weir_guard_reports(f->runtime, &none, 1, NULL));
    fails(WEIR_ERR_INVALID, weir_guard_reports(f->runtime, NULL, 1, NULL));
    fails(WEIR_ERR_INVALID, weir_guard_reports(NULL, NULL, 0, NULL));
    fails(WEIR_ERR_INVALID, weir_guard_leaks(f->runtime, NULL, 1, NULL));
}

/* The quarantine --------------------------------------------------------------------------------------------------- */

static void what_is_freed_is_kept_back(void **state)
{
    fixture *f = *state;
    weir_block first = make(f, 100 * KIB, WEIR_STREAM_HOST, NULL);
    uint64_t charged = take_snapshot(f->runtime).device.live;
    assert_int_equal(charged, 100 * KIB + 512);
    ok(weir_free(f->client, first.pointer, WEIR_STREAM_HOST));
    assert_int_equal(pending(f), charged);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, first.pointer, WEIR_STREAM_HOST));
    for (int i = 0; i < 20; i++) {
        weir_block next = make(f, 100 * KIB, WEIR_STREAM_HOST, NULL);
        assert_ptr_not_equal(next.pointer, first.pointer);
        ok(weir_free(f->client, next.pointer, WEIR_STREAM_HOST));
    }
    trim(f);
    assert_int_equal(pending(f), 0);
}

static void the_quarantine_is_bounded_and_in_order(void **state)
{
    fixture *f = *state; /* 64 KiB of it */
    weir_block blocks[6];
    for (int i = 0; i < 6; i++)
        blocks[i] = make(f, 20 * KIB - 512, WEIR_STREAM_HOST, NULL);
    for (int i = 0; i < 6; i++) {
        ok(weir_free(f->client, blocks[i].pointer, WEIR_STREAM_HOST));
        assert_int_equal(pending(f), 20 * KIB * (uint64_t)(i < 3 ? i + 1 : 3));
        weir_block_details details = WEIR_INIT(weir_block_details);
        for (int k = 0; k <= i; k++) {
            ok(weir_block_info(blocks[k].pointer, &details));
            assert_int_equal(details.state, k + 3 <= i ? WEIR_BLOCK_FREE : WEIR_BLOCK_PENDING);
        }
    }
    weir_block large = make(f, 65 * KIB, WEIR_STREAM_HOST, NULL); /* would flush all and not fit */
    ok(weir_free(f->client, large.pointer, WEIR_STREAM_HOST));
    assert_int_equal(pending(f), 60 * KIB);
}

/* To the byte, with several blocks and with one. */
static void the_quarantine_may_be_full(void **state)
{
    fixture *f = *state; /* 64 KiB of it */
    weir_block blocks[5];
    for (int i = 0; i < 5; i++)
        blocks[i] = make(f, 16 * KIB - 512, WEIR_STREAM_HOST, NULL);
    for (int i = 0; i < 5; i++) {
        ok(weir_free(f->client, blocks[i].pointer, WEIR_STREAM_HOST));
        assert_int_equal(pending(f), 16 * KIB * (uint64_t)(i < 4 ? i + 1 : 4));
    }
    weir_block whole = make(f, 64 * KIB - 512, WEIR_STREAM_HOST, NULL);
    ok(weir_free(f->client, whole.pointer, WEIR_STREAM_HOST));
    assert_int_equal(pending(f), 64 * KIB);
    weir_block_details details = WEIR_INIT(weir_block_details);
    ok(weir_block_info(whole.pointer, &details));
    assert_int_equal(details.state, WEIR_BLOCK_PENDING);
}

static void a_quarantine_of_nothing_keeps_nothing(void **state)
{
    fixture *f = *state;
    weir_block block = make(f, 20 * KIB, WEIR_STREAM_HOST, NULL);
    write_at(f, block, 20 * KIB, 0, 1);
    ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
    assert_int_equal(pending(f), 0);
    assert_int_equal(count_reports(f), 1);
}

static void a_request_that_fits_only_then_succeeds(void **state)
{
    fixture *f = *state;
    weir_request request = {.struct_size = sizeof request, .bytes = 5 * MIB, .flags = WEIR_ALLOC_NO_WAIT};
    weir_block block;
    for (int i = 0; i < 10; i++) {
        ok(weir_alloc_with(f->client, &request, &block));
        ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
        assert_int_equal(pending(f), 5 * MIB + 512);
    }
    request.bytes = BUDGET;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->client, &request, &block)); /* no room for its zones */
    request.bytes = BUDGET - 512;
    ok(weir_alloc_with(f->client, &request, &block));
    ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
    assert_int_equal(pending(f), BUDGET);
    weir_client *other = open_client(f->runtime, "other", BUDGET / 2, 0); /* nor in a guarantee's way */
    assert_int_equal(pending(f), 0);
    ok(weir_client_destroy(other));
    ok(weir_alloc_with(f->client, &request, &block));
    ok(weir_free(f->client, block.pointer, WEIR_STREAM_HOST));
    ok(weir_runtime_set_budget(f->runtime, BUDGET / 2));
    assert_int_equal(count_reports(f), 0);
}

/* Stacks ----------------------------------------------------------------------------------------------------------- */

static void refuses(weir_status status, const char *resource, const char *word)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = resource};
    weir_runtime *runtime;
    fails(status, weir_runtime_create(test_device(), &options, &runtime));
    detail_names(word);
}

static void describes(const char *resource, const char *text)
{
    weir_runtime *runtime = make_with(resource, BUDGET);
    assert_string_equal(runtime_details(runtime).resource, text);
    ok(weir_runtime_destroy(runtime));
}

static void arguments_are_read(void **state)
{
    (void)state;
    describes("guard(mapped)", "budget(guard(zone=256, quarantine=16MiB, poison=0xA5, mapped))");
    describes("guard(zone=300, quarantine=5000, poison=7, unmapped, mapped)",
              "budget(guard(zone=512, quarantine=5000, poison=0x07, unmapped, mapped))");
    describes("guard(quarantine=0, mapped)", "budget(guard(zone=256, quarantine=0, poison=0xA5, mapped))");
    describes("guard(budget(mapped))", "guard(zone=256, quarantine=16MiB, poison=0xA5, budget(mapped))");
    refuses(WEIR_ERR_INVALID, "guard(poison=256, mapped)", "256");
    refuses(WEIR_ERR_INVALID, "guard(poison=-1, mapped)", "poison");
    refuses(WEIR_ERR_INVALID, "guard(poison=, mapped)", "poison");
    refuses(WEIR_ERR_INVALID, "guard(zone=x, mapped)", "zone");
    describes("guard(zone=1GiB, poison=255, mapped)",
              "budget(guard(zone=1GiB, quarantine=16MiB, poison=0xFF, mapped))");
    refuses(WEIR_ERR_INVALID, "guard(zone=1073741825, mapped)", "1 GiB");
    refuses(WEIR_ERR_INVALID, "guard(zone=2GiB, mapped)", "1 GiB");
    refuses(WEIR_ERR_INVALID, "guard(zones=1KiB, mapped)", "zones=1KiB");
    refuses(WEIR_ERR_INVALID, "guard(zone=0, mapped)", "zone");
    refuses(WEIR_ERR_INVALID, "guard(zone=1KiB, zone=1KiB, mapped)", "zone=1KiB");
    refuses(WEIR_ERR_INVALID, "guard(unmapped, unmapped, mapped)", "unmapped");
    refuses(WEIR_ERR_INVALID, "guard(wrapped, mapped)", "wrapped");
    refuses(WEIR_ERR_INVALID, "guard(guard(mapped))", "one is enough");
}

static void features_tell_what_a_guard_changes(void **state)
{
    (void)state;
    weir_runtime *plain = make_with("mapped", BUDGET), *guarded = make_with("guard(mapped)", BUDGET);
    uint32_t hidden = WEIR_FEATURE_CAPTURABLE | WEIR_FEATURE_STREAM_ORDERED | WEIR_FEATURE_SHRINKS | WEIR_FEATURE_GROWS;
    assert_int_equal(runtime_details(guarded).features,
                     (runtime_details(plain).features & ~hidden) | WEIR_FEATURE_GUARDS);
    fails(WEIR_ERR_UNSUPPORTED, weir_guard_check(plain));
    detail_names("WEIR_POISON=1");
    fails(WEIR_ERR_UNSUPPORTED, weir_guard_reports(plain, NULL, 0, NULL));
    fails(WEIR_ERR_UNSUPPORTED, weir_guard_leaks(plain, NULL, 0, NULL));
    ok(weir_runtime_destroy(plain));
    ok(weir_runtime_destroy(guarded));
}

static void the_option_guards_every_stack(void **state)
{
    (void)state;
    fails(WEIR_ERR_INVALID, weir_option_set("poison", "yes"));
    ok(weir_option_set("poison", "1"));
    describes("mapped", "budget(guard(zone=256, quarantine=16MiB, poison=0xA5, mapped))");
    describes("budget(mapped)", "budget(guard(zone=256, quarantine=16MiB, poison=0xA5, mapped))");
    describes("guard(zone=1KiB, mapped)", "budget(guard(zone=1KiB, quarantine=16MiB, poison=0xA5, mapped))");
    ok(weir_option_set("poison", NULL));
    describes("mapped", "budget(mapped)");
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "fault") == 0)
        return touch_and_fault(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        CASE(an_overrun_is_described),
        CASE_IN(an_overrun_is_described, set_up_around),
        CASE(every_byte_of_the_zones_counts),
        CASE(both_ends_are_two_reports),
        CASE(a_use_after_free_is_found_when_the_block_is_given_up),
        CASE(damage_in_the_middle_of_much_memory_is_found),
        CASE(poison_shows_what_was_never_written),
        CASE(alignment_is_kept),
        cmocka_unit_test(alignment_is_kept_behind_any_zone),
        CASE(more_reports_than_are_kept),
        CASE(a_check_looks_at_what_is_live),
        CASE(a_check_tells_of_all_that_is_damaged),
        CASE(what_was_forgotten_is_listed),
        CASE(old_and_new_structures),
        CASE(what_is_freed_is_kept_back),
        CASE_IN(the_quarantine_is_bounded_and_in_order, set_up_small),
        CASE_IN(the_quarantine_may_be_full, set_up_small),
        CASE_IN(a_quarantine_of_nothing_keeps_nothing, set_up_without),
        CASE(a_request_that_fits_only_then_succeeds),
        CASE_IN(a_request_that_fits_only_then_succeeds, set_up_around),
        cmocka_unit_test(arguments_are_read),
        cmocka_unit_test(features_tell_what_a_guard_changes),
        cmocka_unit_test(the_option_guards_every_stack),
        cmocka_unit_test(a_write_behind_the_last_page_ends_the_program),
        cmocka_unit_test(a_block_apart_keeps_its_distance_from_the_next),
        cmocka_unit_test(blocks_apart_leave_holes_and_serve_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
