/* Two adaptors of a program's own around each other and around a guard, while each call of the driver fails in turn: what
 * an adaptor has let pass it hears the end of, also where that comes late, when the block was there already. */
#include "core/core.h"
#include "core/faulty.h"
#include "runtime/runtime.h"

#include <weir/adaptor.h>
#include <weir/trace.h>

enum { BLOCKS = 3, EVENTS = 256 };

typedef struct books {
    int let_pass, allocated, failed, freed;
    int64_t bytes; /* of what is allocated */
    weir_status last;
} books;

static books outer, inner;

static weir_status note_before(void *state, const weir_adaptor_block *block)
{
    books *b = state;
    b->let_pass += block->old_bytes == 0;
    return WEIR_OK;
}

static void note_allocated(void *state, const weir_adaptor_block *block)
{
    books *b = state;
    b->allocated++;
    b->bytes += (int64_t)block->bytes;
}

static void note_failed(void *state, const weir_adaptor_block *block, weir_status status)
{
    books *b = state;
    assert_true(block->bytes > block->old_bytes); /* it is not asked about a block that becomes smaller */
    b->failed += block->old_bytes == 0;
    b->last = status;
    (void)weir_fail(WEIR_ERR_SYSTEM, "words that nobody asked for");
}

static void note_resized(void *state, const weir_adaptor_block *block)
{
    ((books *)state)->bytes += (int64_t)block->bytes - (int64_t)block->old_bytes;
}

static void note_freed(void *state, const weir_adaptor_block *block)
{
    books *b = state;
    b->freed++;
    b->bytes -= (int64_t)block->bytes;
}

static void check_books(const books *b, const char *who)
{
    if (b->let_pass != b->allocated + b->failed || b->allocated != b->freed || b->bytes != 0)
        fail_msg("%s let %d pass: %d were allocated and %d failed; %d freed, %lld bytes left", who, b->let_pass,
                 b->allocated, b->failed, b->freed, (long long)b->bytes);
}

/* Frees until it is freed: what the driver refuses once it takes later. */
static void give(weir_client *client, weir_block block, weir_stream stream)
{
    fault.fail_at = -1;
    ok(weir_free_block(client, block, stream));
}

/* Blocks of which each call of the driver may fail; returns how many calls there were. */
static long live(const char *stack, long fail_at, weir_status *seen)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB, .resource = stack};
    weir_runtime *runtime;
    weir_block blocks[BLOCKS];
    bool have[BLOCKS];
    weir_stream stream;
    outer = inner = (books){0};
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "one", 0, 0);
    ok(weir_stream_acquire(runtime, &stream));
    fault.calls = 0;
    fault.fail_at = fail_at;
    for (int i = 0; i < BLOCKS; i++) {
        weir_request request = {.struct_size = sizeof request,
                                .bytes = 1000 * (size_t)(i + 1),
                                .stream = stream,
                                .memory_class = WEIR_CLASS_KV,
                                .flags = i ? WEIR_ALLOC_ZEROED : 0};
        weir_status status = weir_alloc_with(client, &request, &blocks[i]);
        have[i] = status == WEIR_OK;
        if (!have[i]) {
            *seen = status;
            assert_null(strstr(weir_detail(), "nobody asked for")); /* the failure's words, not the adaptor's */
        }
    }
    for (int i = 0; i < BLOCKS; i++)
        if (have[i])
            (void)!weir_resize(client, blocks[i].pointer, 500, stream);
    long calls = fault.calls;
    for (int i = 0; i < BLOCKS; i++)
        if (have[i])
            give(client, blocks[i], stream);
    fault.fail_at = -1;
    ok(weir_stream_synchronize(stream));
    ok(weir_stream_release(stream));
    ok(weir_runtime_trim(runtime, NULL, NULL));
    check_empty(runtime);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
    check_books(&outer, "outer");
    check_books(&inner, "inner");
    return calls;
}

static void each_call_fails(const char *stack)
{
    weir_status seen = WEIR_OK;
    faults_reset(-1);
    long calls = live(stack, -1, &seen), late = 0;
    assert_int_equal(outer.let_pass + inner.let_pass, 2 * BLOCKS);
    assert_int_equal(outer.failed + inner.failed + seen, 0);
    assert_true(calls >= BLOCKS);
    for (long at = 0; at < calls; at++) {
        faults_reset(-1);
        seen = WEIR_OK;
        (void)live(stack, at, &seen);
        if (seen != WEIR_OK) {
            assert_true(outer.failed == 1);
            assert_int_equal(outer.last, seen);
            late += inner.failed == 1;
        }
    }
    assert_true(late >= BLOCKS - 1); /* the zeros of two blocks at the least */
}

static void adaptors_hear_of_each_end(void **state)
{
    (void)state;
    each_call_fails("outer(inner(direct))");
    each_call_fails("outer(budget(inner(mapped)))");
}

static void around_a_guard_they_hear_of_zones_that_could_not_be_written(void **state)
{
    (void)state;
    each_call_fails("outer(guard(inner(direct)))");
    each_call_fails("guard(outer(budget(inner(mapped))))");
}

/* The log has a line for each block that failed, early or late, and for none that did not. */
static void a_log_has_a_line_for_what_fails_late(void **state)
{
    static const char *const stacks[] = {"log(direct)", "guard(log(direct))", "log(guard(direct))"};
    (void)state;
    for (size_t s = 0; s < sizeof stacks / sizeof *stacks; s++) {
        long failures = 0;
        for (long at = 0; at < 12; at++) {
            weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB, .resource = stacks[s]};
            weir_runtime_details its = WEIR_INIT(weir_runtime_details);
            static weir_event events[EVENTS];
            weir_runtime *runtime;
            weir_stream stream;
            weir_block block;
            size_t count, failed = 0, allocated = 0;
            faults_reset(-1);
            ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
            weir_client *client = open_client(runtime, "one", 0, 0);
            ok(weir_stream_acquire(runtime, &stream));
            ok(weir_runtime_info(runtime, &its));
            weir_request request = {
                .struct_size = sizeof request, .bytes = 1000, .stream = stream, .flags = WEIR_ALLOC_ZEROED};
            fault.calls = 0;
            fault.fail_at = at;
            weir_status status = weir_alloc_with(client, &request, &block);
            fault.fail_at = -1;
            if (status == WEIR_OK)
                ok(weir_free_block(client, block, stream));
            events[0].struct_size = sizeof events[0];
            ok(weir_trace_read(its.log, events, EVENTS, &count));
            for (size_t i = 0; i < count; i++) {
                failed += events[i].action == WEIR_ACTION_FAIL && events[i].object == WEIR_ACTION_ALLOCATE;
                allocated += events[i].action == WEIR_ACTION_ALLOCATE;
            }
            assert_int_equal(failed, status != WEIR_OK);
            assert_int_equal(allocated, status == WEIR_OK);
            failures += status != WEIR_OK;
            ok(weir_stream_synchronize(stream));
            ok(weir_stream_release(stream));
            ok(weir_client_destroy(client));
            ok(weir_runtime_destroy(runtime));
        }
        assert_true(failures >= 2); /* where the block was not there yet, and where it was */
    }
}

static weir_status enter(const char *name, books *state)
{
    weir_adaptor_table table = {.struct_size = sizeof table,
                                .name = name,
                                .user = state,
                                .before_allocate = note_before,
                                .allocated = note_allocated,
                                .failed = note_failed,
                                .resized = note_resized,
                                .freed = note_freed};
    return weir_adaptor_register(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adaptors_hear_of_each_end),
        cmocka_unit_test(around_a_guard_they_hear_of_zones_that_could_not_be_written),
        cmocka_unit_test(a_log_has_a_line_for_what_fails_late),
    };
    if (enter("outer", &outer) != WEIR_OK || enter("inner", &inner) != WEIR_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
