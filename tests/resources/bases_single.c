/* The resources direct and async from the inside: what is found and remembered, and what the books say of a driver that
 * refuses. */
#include "bases_single.h"
#include "trim.h"

/* Finding ---------------------------------------------------------------------------------------------------------- */

static void what_lies_where(void **state)
{
    (void)state;
    fixture *f = make("direct", MIB);
    weir_request request = {.struct_size = sizeof request, .bytes = 1000, .alignment = 4096};
    weir_block block;
    script.address = size_index + 256; /* the block begins at 4096, within 1024 + 4096 - 256 bytes */
    ok(weir_alloc_with(f->one, &request, &block));
    char *p = block.pointer;
    assert_ptr_equal(p, size_index + 4096);
    weir_stats s = stats_of(f->runtime);
    assert_int_equal(s.live, 1024);
    assert_int_equal(s.held, 1024 + 4096 - 256);
    assert_int_equal(details_of(p + 1023).offset, 1023);
    assert_int_equal(details_of(p + 1023).charged, 1024);
    weir_block_details d = WEIR_INIT(weir_block_details);
    assert_int_equal(details_of(p - 1).state, WEIR_BLOCK_FREE); /* what alignment lost */
    fails(WEIR_ERR_FOREIGN, weir_block_info(size_index + 255, &d));
    fails(WEIR_ERR_FOREIGN, weir_block_info(size_index + 256 + 1024 + 4096 - 256, &d));
    fails(WEIR_ERR_INTERIOR, weir_free(f->one, p + 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_FOREIGN, weir_free(f->one, p - 256, WEIR_STREAM_HOST));
    fails(WEIR_ERR_FOREIGN, weir_free(f->two, p, WEIR_STREAM_HOST));
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    fails(WEIR_ERR_FOREIGN, weir_block_info(p, &d));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->one, p, WEIR_STREAM_HOST));
    script.address = size_index + 4096 - 512;
    request = (weir_request){.struct_size = sizeof request, .bytes = 1024};
    ok(weir_alloc_with(f->one, &request, &block));
    fails(WEIR_ERR_INTERIOR, weir_free(f->one, p, WEIR_STREAM_HOST)); /* it serves again */
    ok(weir_free_block(f->one, block, WEIR_STREAM_HOST));
    end(f);
}

/* What one runtime freed may be another's: it is that one's then. */
static void an_address_that_went_to_another_runtime(void **state)
{
    (void)state;
    fixture *f = make("direct", MIB);
    weir_runtime *other = make_over(&driver, "direct", MIB);
    weir_client *client = open_client(other, "other", 0, 0);
    script.address = size_index;
    void *p = allocate(f->one, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    script.address = size_index;
    assert_ptr_equal(allocate(client, 500, WEIR_STREAM_HOST, WEIR_CLASS_KV), p);
    assert_ptr_equal(details_of(p).runtime, other);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->one, p, WEIR_STREAM_HOST));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(other));
    end(f);
}

static void resizing_within_the_piece(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++) {
        fixture *f = make(both[i], 64 * KIB);
        char *p = allocate(f->one, 60 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        memset(p, 3, 60 * KIB);
        ok(weir_resize(f->one, p, 1000, WEIR_STREAM_HOST));
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.live, 1024);
        assert_int_equal(s.held, 60 * KIB); /* the driver takes no part back */
        assert_int_equal(details_of(p + 1024).state, WEIR_BLOCK_FREE);
        void *q;
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->one, 4 * KIB + 1, WEIR_STREAM_HOST, WEIR_CLASS_KV, &q));
        assert_int_equal(last_refusal().cause, WEIR_CAUSE_FRAGMENTATION);
        assert_int_equal(last_refusal().largest, 4 * KIB);
        assert_int_equal(last_refusal().needed, 64 * KIB + 256);
        ok(weir_resize(f->one, p, 60 * KIB, WEIR_STREAM_HOST));
        assert_int_equal(p[60 * KIB - 1], 3);
        fails(WEIR_ERR_NO_ROOM, weir_resize(f->one, p, 60 * KIB + 1, WEIR_STREAM_HOST));
        assert_int_equal(stats_of(f->runtime).live, 60 * KIB);
        assert_int_equal(stats_of(f->runtime).promised, 0);
        ok(weir_free(f->one, p, WEIR_STREAM_HOST));
        end(f);
    }
}

/* What a block was shortened by stayed its client's: it is there again, unscrubbed, and nothing is queued that could come
 * behind what the client does there on another stream. */
static void what_it_grows_back_over_is_as_it_was(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 4; i++) {
        fixture *f = make(both[i / 2], 64 * KIB);
        weir_client_options options = {.struct_size = sizeof options, .name = "secret", .scrub = WEIR_SCRUB_OTHERS};
        weir_client *secret;
        weir_stream stream;
        void *p;
        ok(weir_client_create(f->runtime, &options, &secret));
        ok(weir_stream_acquire(f->runtime, &stream));
        ok(weir_alloc(secret, 60 * KIB, stream, WEIR_CLASS_KV, &p));
        ok(weir_stream_synchronize(stream));
        for (size_t k = 0; k < 60 * KIB; k++)
            assert_int_equal(((char *)p)[k], 0); /* once, all of it */
        memset(p, 3, 60 * KIB);
        ok(weir_resize(secret, p, 1000, stream));
        ok(weir_resize(secret, p, 30 * KIB, i % 2 ? stream : WEIR_STREAM_HOST));
        ok(weir_resize(secret, p, 60 * KIB, i % 2 ? stream : WEIR_STREAM_HOST));
        ok(weir_stream_synchronize(stream));
        for (size_t k = 0; k < 60 * KIB; k++)
            assert_int_equal(((char *)p)[k], 3);
        ok(weir_free(secret, p, WEIR_STREAM_HOST));
        ok(weir_stream_release(stream));
        ok(weir_client_destroy(secret));
        end(f);
    }
}

/* What an alignment costs beyond the block was never its client's. */
static void no_growth_into_what_the_alignment_costs(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++) {
        fixture *f = make(both[i], 64 * KIB);
        weir_request request = {.struct_size = sizeof request, .bytes = KIB, .alignment = 4 * KIB};
        weir_block block;
        ok(weir_alloc_with(f->one, &request, &block));
        fails(WEIR_ERR_NO_ROOM, weir_resize(f->one, block.pointer, KIB + 1, WEIR_STREAM_HOST));
        assert_int_equal(stats_of(f->runtime).live, KIB);
        ok(weir_free(f->one, block.pointer, WEIR_STREAM_HOST));
        end(f);
    }
}

/* Books ------------------------------------------------------------------------------------------------------------ */

static void the_budget_is_exact(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++) {
        fixture *f = make(both[i], COUNT * 1024 + 100);
        void *blocks[COUNT], *more;
        for (int round = 0; round < 3; round++) {
            for (int k = 0; k < COUNT; k++)
                blocks[k] = allocate(f->one, 1000, k % 2 ? f->a : f->b, WEIR_CLASS_KV);
            assert_int_equal(stats_of(f->runtime).held, COUNT * 1024);
            fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->two, 1, f->a, WEIR_CLASS_KV, &more));
            assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
            for (int k = 0; k < COUNT; k++)
                ok(weir_free(f->one, blocks[k], k % 2 ? f->a : f->b));
        }
        weir_request request = {.struct_size = sizeof request, .bytes = COUNT * 1024, .alignment = 4096};
        weir_block block;
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->one, &request, &block));
        weir_refusal r = last_refusal();
        assert_int_equal(r.needed, COUNT * 1024 + 4096 - 256);
        ok(weir_runtime_set_budget(f->runtime, r.needed - 1));
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->one, &request, &block));
        ok(weir_runtime_set_budget(f->runtime, r.needed));
        ok(weir_alloc_with(f->one, &request, &block));
        ok(weir_free_block(f->one, block, WEIR_STREAM_HOST));
        end(f);
    }
}

static void a_device_that_is_full(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++) {
        fixture *f = make(both[i], MIB);
        void *p = allocate(f->one, 1000, f->a, WEIR_CLASS_KV), *q;
        snapshot before = take_snapshot(f->runtime);
        script.full = true;
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->two, 100 * KIB, f->a, WEIR_CLASS_KV, &q));
        assert_int_equal(last_refusal().cause, WEIR_CAUSE_OTHER_PROCESS);
        script.full = false;
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.promised, 0);
        assert_int_equal(s.held, before.device.held);
        ok(weir_free(f->one, p, f->a));
        end(f);
    }
    fixture *f = make("async", MIB);
    script.full_until_trim = true; /* by what the pool keeps */
    ok(weir_free(f->one, allocate(f->one, 1000, f->a, WEIR_CLASS_KV), f->a));
    end(f);
}

/* What the pool keeps is in the books, is given up for the budget, and goes when it is trimmed. */
static void the_books_follow_the_pool(void **state)
{
    (void)state;
    fixture *f = make("async", MIB);
    for (size_t i = 0; i < 40; i++) {
        void *p = allocate(f->one, (300 + 7 * i) * KIB, i % 2 ? f->a : WEIR_STREAM_HOST, WEIR_CLASS_KV);
        assert_int_equal(stats_of(f->runtime).held, pool_held());
        assert_true(pool_held() <= MIB);
        ok(weir_free(f->one, p, i % 2 ? f->a : WEIR_STREAM_HOST));
        ok(weir_stream_synchronize(f->a));
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.held, pool_held());
        assert_int_equal(s.cached, s.held);
    }
    uint64_t held = pool_held(), released;
    assert_true(held > 0);
    ok(weir_runtime_set_budget(f->runtime, held - 1)); /* the cache goes */
    assert_true(pool_held() < held);
    ok(weir_runtime_set_budget(f->runtime, MIB));
    held = stats_of(f->runtime).held;
    ok(trim_keeping(f->runtime, 0, &released));
    assert_int_equal(released, held);
    assert_int_equal(pool_held(), 0);
    script.refuse_held = true; /* what it has is then unknown, and nothing is lost by that */
    void *p = allocate(f->one, 1000, f->a, WEIR_CLASS_KV);
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    script.refuse_held = false;
    ok(weir_stream_synchronize(f->a));
    ok(weir_runtime_trim(f->runtime, NULL, NULL));
    assert_int_equal(stats_of(f->runtime).held, 0);
    end(f);
}

static void trim_meanwhile(void)
{
    ok(weir_runtime_trim(in_hook->runtime, NULL, NULL));
}

/* An answer that is old when it comes is none. */
static void the_pool_changes_while_it_is_asked(void **state)
{
    (void)state;
    fixture *f = in_hook = make("async", MIB);
    ok(weir_free(f->one, allocate(f->one, 100 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    script.asked = trim_meanwhile;
    void *p = allocate(f->one, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_null(script.asked);
    assert_int_equal(stats_of(f->runtime).held, 1024);
    assert_int_equal(pool_held(), 1024);
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    end(f);
}

/* Giving back ------------------------------------------------------------------------------------------------------ */

static void a_refused_release_is_tried_again(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++) {
        fixture *f = make(both[i], MIB);
        char *p = allocate(f->one, 1000, f->a, WEIR_CLASS_KV);
        script.refused_releases = 1;
        ok(weir_free(f->one, p, WEIR_STREAM_HOST));
        script.refused_releases = 1; /* each look tries again */
        weir_stats s = stats_of(f->runtime);
        assert_int_equal(s.pending, 1024);
        assert_true(s.held >= 1024);
        script.refused_releases = 1;
        assert_int_equal(details_of(p).state, WEIR_BLOCK_PENDING);
        fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->one, p, WEIR_STREAM_HOST));
        script.refused_releases = 0;
        assert_int_equal(stats_of(f->runtime).pending, 0);
        end(f);
    }
}

/* An allocation that cannot be zeroed is nobody's; when the driver does not take it back it is tried again later. */
static void discarded_blocks_are_not_lost(void **state)
{
    (void)state;
    static const char *const both[] = {"direct", "async"};
    for (int i = 0; i < 2; i++)
        for (size_t refused = 0; refused < 3; refused++) {
            fixture *f = make(both[i], 64 * KIB);
            weir_request request = {
                .struct_size = sizeof request, .bytes = 64 * KIB, .stream = f->a, .flags = WEIR_ALLOC_ZEROED};
            weir_block block;
            script.refuse_fill = true;
            script.refused_releases = refused;
            fails(WEIR_ERR_DRIVER, weir_alloc_with(f->one, &request, &block));
            assert_int_equal(stats_of(f->runtime).held > 0, refused > 0 || i == 1);
            script.refuse_fill = false;
            if (refused > 1)
                fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->one, &request, &block));
            ok(weir_alloc_with(f->one, &request, &block));
            ok(weir_free_block(f->one, block, f->a));
            ok(weir_stream_synchronize(f->a));
            end(f);
        }
}

static char told[200];

static void note(weir_log_level level, const char *text, void *user)
{
    (void)level, (void)user;
    snprintf(told, sizeof told, "%s", text);
}

/* What the driver does not take back at the end either is told of; weir keeps no record of it. */
static void what_the_driver_never_takes_back_is_told(void **state)
{
    (void)state;
    fixture *f = make("direct", 64 * KIB);
    weir_request request = {
        .struct_size = sizeof request, .bytes = 64 * KIB, .stream = f->a, .flags = WEIR_ALLOC_ZEROED};
    weir_block block;
    script.address = size_index;
    script.refuse_fill = true;
    script.refused_releases = SIZE_MAX;
    fails(WEIR_ERR_DRIVER, weir_alloc_with(f->one, &request, &block));
    assert_int_equal(stats_of(f->runtime).held, 64 * KIB);
    ok(weir_log_set(note, NULL, WEIR_LOG_WARNING));
    end(f);
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    assert_string_equal(told, "not given back: 64 KiB of faulty:0, which its driver did not take back");
}

/* Bytes of a client that asks for it are zeroed for the next, however the driver passes them on. */
static void secrets_are_not_handed_on(void **state)
{
    (void)state;
    fixture *f = make("async", MIB);
    weir_client_options o = {.struct_size = sizeof o, .name = "secret", .scrub = WEIR_SCRUB_OTHERS};
    weir_client *secret;
    ok(weir_client_create(f->runtime, &o, &secret));
    unsigned char *p = allocate(secret, 1000, f->a, WEIR_CLASS_KV);
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_fill(f->runtime, p, 9, 1000, f->a));
    ok(weir_free(secret, p, f->a));
    assert_ptr_equal(allocate(f->one, 1000, f->a, WEIR_CLASS_KV), p); /* before the free is final */
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(p[i], 0);
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(secret));
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lies_where),
        cmocka_unit_test(an_address_that_went_to_another_runtime),
        cmocka_unit_test(resizing_within_the_piece),
        cmocka_unit_test(what_it_grows_back_over_is_as_it_was),
        cmocka_unit_test(no_growth_into_what_the_alignment_costs),
        cmocka_unit_test(the_budget_is_exact),
        cmocka_unit_test(a_device_that_is_full),
        cmocka_unit_test(the_books_follow_the_pool),
        cmocka_unit_test(the_pool_changes_while_it_is_asked),
        cmocka_unit_test(a_refused_release_is_tried_again),
        cmocka_unit_test(discarded_blocks_are_not_lost),
        cmocka_unit_test(what_the_driver_never_takes_back_is_told),
        cmocka_unit_test(secrets_are_not_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
