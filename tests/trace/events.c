/* Events one by one: what each call leaves in a trace, and in which order. */
#include "info.h"
#include "trace.h"
#include <weir/trace.h>

static int set_up(void **state)
{
    fixture *f = start();
    ok(weir_trace_create(f->runtime, NULL, &f->trace));
    *state = f;
    return 0;
}

static weir_event next(fixture *f, weir_action action)
{
    weir_event event = WEIR_INIT(weir_event);
    size_t count = 0;
    ok(weir_trace_read(f->trace, &event, 1, &count));
    assert_int_equal(count, 1);
    if (event.action != action)
        print_error("%s, not %s\n", weir_name_of(WEIR_NAMES_ACTION, event.action),
                    weir_name_of(WEIR_NAMES_ACTION, action));
    assert_int_equal(event.action, action);
    assert_string_equal(event.device, "host");
    return event;
}

static weir_event good(fixture *f, weir_action action, weir_stream stream)
{
    weir_event event = next(f, action);
    assert_int_equal(event.result, WEIR_OK);
    assert_int_equal(event.stream.id, stream.id);
    return event;
}

static void nothing_more(fixture *f)
{
    weir_event event = WEIR_INIT(weir_event);
    size_t count = 1;
    ok(weir_trace_read(f->trace, &event, 1, &count));
    assert_int_equal(count, 0);
}

static void *tagged(fixture *f, size_t bytes, const char *tag)
{
    weir_request request = {
        .struct_size = sizeof request, .bytes = bytes, .stream = f->a, .memory_class = WEIR_CLASS_KV, .tag = tag};
    weir_block block;
    ok(weir_alloc_with(f->client, &request, &block));
    return block.pointer;
}

static void allocations_frees_and_the_reap(void **state)
{
    fixture *f = *state;
    void *p = tagged(f, 1000, "p"), *q = tagged(f, 300, "q");
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    free_behind(f->client, p, f->a);
    free_behind(f->client, q, f->a);
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    (void)take_snapshot(f->runtime);
    next(f, WEIR_ACTION_HOLD);
    weir_event one = good(f, WEIR_ACTION_ALLOCATE, f->a), two = good(f, WEIR_ACTION_ALLOCATE, f->a);
    assert_ptr_equal(one.pointer, p);
    assert_int_equal(one.bytes, 1000);
    assert_int_equal(one.charged, 1024);
    assert_string_equal(one.tag, "p");
    assert_string_equal(one.client, "traced");
    assert_int_equal(one.memory_class, WEIR_CLASS_KV);
    assert_int_equal(two.live, 1024 + 512);
    good(f, WEIR_ACTION_CALL, f->a);
    good(f, WEIR_ACTION_USE_RECORD, f->a);
    weir_event freed = good(f, WEIR_ACTION_DEALLOCATE, WEIR_STREAM_HOST);
    assert_ptr_equal(freed.pointer, p);
    assert_int_equal(freed.generation, one.generation);
    assert_int_equal(freed.pending, 1024);
    assert_int_equal(freed.object, 0);
    good(f, WEIR_ACTION_USE_RECORD, f->a);
    assert_int_equal(good(f, WEIR_ACTION_DEALLOCATE, WEIR_STREAM_HOST).pending, 1024 + 512);
    good(f, WEIR_ACTION_SYNCHRONIZE, f->a);
    assert_ptr_equal(next(f, WEIR_ACTION_REAP).pointer, p);
    assert_ptr_equal(next(f, WEIR_ACTION_REAP).pointer, q);
    nothing_more(f);
}

/* A free in the order of its stream is complete for that stream; the rest hear of it in one event for neighbours. */
static void frees_in_order(void **state)
{
    fixture *f = *state;
    char *p = tagged(f, 1000, "p"), *q = tagged(f, 300, "q");
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    ok(weir_free(f->client, p, f->a));
    ok(weir_free(f->client, q, f->a));
    (void)take_snapshot(f->runtime);
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    (void)take_snapshot(f->runtime);
    next(f, WEIR_ACTION_HOLD);
    good(f, WEIR_ACTION_ALLOCATE, f->a);
    good(f, WEIR_ACTION_ALLOCATE, f->a);
    good(f, WEIR_ACTION_CALL, f->a);
    for (int i = 0; i < 2; i++) {
        weir_event freed = good(f, WEIR_ACTION_DEALLOCATE, f->a);
        assert_ptr_equal(freed.pointer, i ? q : p);
        assert_int_equal(freed.object, 1);
        assert_int_equal(freed.pending, 0);
        assert_int_equal(freed.live, i ? 0 : 512);
    }
    good(f, WEIR_ACTION_SYNCHRONIZE, f->a);
    weir_event passed = good(f, WEIR_ACTION_REAP, f->a);
    char *first = p < q ? p : q, *end_of = p < q ? q + 512 : p + 1024, *start_of = passed.pointer;
    assert_int_equal(end_of - first, 1024 + 512); /* neighbours */
    assert_true(start_of <= first && start_of + passed.bytes >= end_of);
    assert_int_equal(passed.charged, 0);
    assert_int_equal(passed.generation, 0);
    assert_string_equal(passed.client, "");
    nothing_more(f);
}

static void launches(void **state)
{
    fixture *f = *state;
    void *p = tagged(f, 1000, "p"), *q = tagged(f, 300, "q");
    weir_use uses[] = {{{q, 0}, WEIR_ACCESS_READ}, {{p, 0}, WEIR_ACCESS_WRITE}, {{q, 0}, WEIR_ACCESS_WRITE}};
    weir_launch *launch, *other;
    ok(weir_launch_begin(f->runtime, f->b, uses, 3, &launch));
    fails(WEIR_ERR_BUSY, weir_launch_begin(f->runtime, f->a, uses, 1, &other));
    fails(WEIR_ERR_BUSY, weir_free(f->client, p, f->b));
    ok(weir_launch_end(launch));
    weir_launch_abort(begin(f, f->b, p, WEIR_ACCESS_READ));
    ok(weir_use_record(f->runtime, (weir_block){.pointer = q}, f->b));
    fails(WEIR_ERR_FOREIGN, weir_use_record(f->runtime, (weir_block){.pointer = f}, f->b));
    next(f, WEIR_ACTION_HOLD);
    weir_event made[] = {next(f, WEIR_ACTION_ALLOCATE), next(f, WEIR_ACTION_ALLOCATE)};
    bool p_first = p < q;
    uint64_t number = 0;
    for (int i = 0; i < 2; i++) {
        weir_event e = good(f, WEIR_ACTION_USE_BEGIN, f->b);
        bool is_p = (i == 0) == p_first;
        assert_ptr_equal(e.pointer, is_p ? p : q);
        assert_int_equal(e.bytes, is_p ? 1000 : 300);
        assert_int_equal(e.generation, made[is_p ? 0 : 1].generation);
        assert_string_equal(e.tag, is_p ? "p" : "q");
        assert_int_equal(e.access, is_p ? WEIR_ACCESS_WRITE : WEIR_ACCESS_READ_WRITE);
        assert_int_equal(e.other.id, f->a.id);
        assert_true(i == 0 ? e.object > 0 : e.object == number);
        number = e.object;
    }
    weir_event refused = next(f, WEIR_ACTION_USE_BEGIN);
    assert_int_equal(refused.result, WEIR_ERR_BUSY);
    assert_int_equal(refused.stream.id, f->a.id);
    assert_int_not_equal(refused.object, number);
    weir_event failed = next(f, WEIR_ACTION_FAIL);
    assert_int_equal(failed.result, WEIR_ERR_BUSY);
    assert_int_equal(failed.object, WEIR_ACTION_DEALLOCATE);
    assert_ptr_equal(failed.pointer, p);
    assert_int_equal(good(f, WEIR_ACTION_USE_END, f->b).object, number);
    number = good(f, WEIR_ACTION_USE_BEGIN, f->b).object;
    assert_int_equal(good(f, WEIR_ACTION_USE_ABORT, f->b).object, number);
    weir_event use = good(f, WEIR_ACTION_USE_RECORD, f->b);
    assert_ptr_equal(use.pointer, q);
    assert_int_equal(use.access, WEIR_ACCESS_READ);
    assert_int_equal(next(f, WEIR_ACTION_USE_RECORD).result, WEIR_ERR_FOREIGN);
    nothing_more(f);
    ok(weir_free(f->client, p, f->a));
    ok(weir_free(f->client, q, f->a));
}

static void streams_and_work(void **state)
{
    fixture *f = *state;
    weir_stream c;
    char *p = tagged(f, 4096, "p"), bytes[16] = "";
    ok(weir_stream_acquire(f->runtime, &c));
    ok(weir_fill(f->runtime, p, 1, 256, c));
    ok(weir_copy(f->runtime, p, bytes, 16, c));
    ok(weir_stream_release(c));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_release(c));
    fails(WEIR_ERR_STREAM_MISUSE, weir_fill(f->runtime, p, 1, 1, c));
    fails(WEIR_ERR_STREAM_MISUSE, weir_copy(f->runtime, p, bytes, 1, c));
    ok(weir_free(f->client, p, f->a));
    next(f, WEIR_ACTION_HOLD);
    next(f, WEIR_ACTION_ALLOCATE);
    good(f, WEIR_ACTION_STREAM_OPEN, c);
    weir_event fill = good(f, WEIR_ACTION_FILL, c);
    assert_ptr_equal(fill.pointer, p);
    assert_int_equal(fill.bytes, 256);
    assert_int_equal(fill.access, WEIR_ACCESS_WRITE);
    weir_event from = good(f, WEIR_ACTION_COPY, c), to = good(f, WEIR_ACTION_COPY, c);
    assert_ptr_equal(from.pointer, bytes);
    assert_int_equal(from.access, WEIR_ACCESS_READ);
    assert_ptr_equal(to.pointer, p);
    assert_int_equal(to.access, WEIR_ACCESS_WRITE);
    assert_int_equal(from.object, to.object);
    assert_int_equal(from.bytes, 16);
    good(f, WEIR_ACTION_STREAM_CLOSE, c);
    assert_int_equal(next(f, WEIR_ACTION_STREAM_CLOSE).result, WEIR_ERR_STREAM_MISUSE);
    assert_int_equal(next(f, WEIR_ACTION_FILL).result, WEIR_ERR_STREAM_MISUSE);
    assert_int_equal(next(f, WEIR_ACTION_COPY).result, WEIR_ERR_STREAM_MISUSE);
    assert_int_equal(next(f, WEIR_ACTION_COPY).result, WEIR_ERR_STREAM_MISUSE);
    next(f, WEIR_ACTION_DEALLOCATE);
}

static void notes(void **state)
{
    fixture *f = *state;
    weir_runtime *other = make_runtime(MIB);
    char byte;
    ok(note_record(f->runtime, 77, f->a));
    ok(note_wait(f->runtime, 77, f->b));
    ok(note_use(f->runtime, &byte, 1, f->b, WEIR_ACCESS_READ_WRITE));
    ok(note_wait(f->runtime, 78, WEIR_STREAM_HOST));
    ok(note_record(other, 1, f->a)); /* not traced: nobody looks */
    fails(WEIR_ERR_STREAM_MISUSE, note_record(f->runtime, 1, (weir_stream){1}));
    fails(WEIR_ERR_INVALID, note_use(f->runtime, NULL, 1, f->a, WEIR_ACCESS_READ));
    fails(WEIR_ERR_INVALID, note_use(f->runtime, &byte, 0, f->a, WEIR_ACCESS_READ));
    fails(WEIR_ERR_INVALID, note_use(f->runtime, &byte, 1, f->a, (weir_access)4));
    fails(WEIR_ERR_INVALID, note_record(NULL, 1, f->a));
    weir_note note = {.struct_size = sizeof note, .action = WEIR_ACTION_COPY, .stream = f->a};
    fails(WEIR_ERR_INVALID, weir_trace_note(f->runtime, &note));
    detail_names("copy is no note");
    fails(WEIR_ERR_INVALID, weir_trace_note(f->runtime, NULL));
    fails(WEIR_ERR_INVALID, note_wait(NULL, 1, f->a));
    assert_int_equal(good(f, WEIR_ACTION_NOTE_RECORD, f->a).object, 77);
    assert_int_equal(good(f, WEIR_ACTION_NOTE_WAIT, f->b).object, 77);
    weir_event use = good(f, WEIR_ACTION_NOTE_USE, f->b);
    assert_ptr_equal(use.pointer, &byte);
    assert_int_equal(use.bytes, 1);
    assert_int_equal(use.access, WEIR_ACCESS_READ_WRITE);
    assert_int_equal(good(f, WEIR_ACTION_NOTE_WAIT, WEIR_STREAM_HOST).object, 78);
    assert_int_equal(next(f, WEIR_ACTION_NOTE_RECORD).result, WEIR_ERR_STREAM_MISUSE);
    nothing_more(f);
    ok(weir_runtime_destroy(other));
}

static void failures_with_their_kind(void **state)
{
    fixture *f = *state;
    void *p = tagged(f, 1000, "p"), *ignored;
    weir_runtime *other = make_runtime(MIB);
    weir_client *stranger = open_client(other, "stranger", 0, 0);
    weir_stream foreign;
    ok(weir_stream_acquire(other, &foreign));
    fails(WEIR_ERR_STREAM_MISUSE, weir_alloc(f->client, 77, foreign, WEIR_CLASS_KV, &ignored));
    fails(WEIR_ERR_INVALID, weir_alloc(f->client, 78, f->a, (weir_class)9, &ignored));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->client, 5 * MIB, f->a, WEIR_CLASS_KV, &ignored));
    fails(WEIR_ERR_INTERIOR, weir_free(f->client, (char *)p + 1, f->a));
    fails(WEIR_ERR_STREAM_MISUSE, weir_resize(f->client, p, 10, foreign));
    ok(weir_free(f->client, p, f->a));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, p, f->a));
    fails(WEIR_ERR_FOREIGN, weir_free(stranger, p, WEIR_STREAM_HOST)); /* the other runtime's affair */
    next(f, WEIR_ACTION_HOLD);
    next(f, WEIR_ACTION_ALLOCATE);
    static const struct {
        weir_action action, object;
        weir_status result;
        uint64_t bytes;
    } wanted[] = {{WEIR_ACTION_FAIL, WEIR_ACTION_ALLOCATE, WEIR_ERR_STREAM_MISUSE, 77},
                  {WEIR_ACTION_FAIL, WEIR_ACTION_ALLOCATE, WEIR_ERR_INVALID, 78},
                  {WEIR_ACTION_REFUSE, (weir_action)WEIR_CAUSE_BUDGET, WEIR_ERR_OUT_OF_MEMORY, 5 * MIB},
                  {WEIR_ACTION_FAIL, WEIR_ACTION_DEALLOCATE, WEIR_ERR_INTERIOR, 0},
                  {WEIR_ACTION_FAIL, WEIR_ACTION_RESIZE, WEIR_ERR_STREAM_MISUSE, 10},
                  {WEIR_ACTION_DEALLOCATE, 1, WEIR_OK, 1000},
                  {WEIR_ACTION_FAIL, WEIR_ACTION_DEALLOCATE, WEIR_ERR_DOUBLE_FREE, 0}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        weir_event e = next(f, wanted[i].action);
        assert_int_equal(e.object, wanted[i].object);
        assert_int_equal(e.result, wanted[i].result);
        assert_int_equal(e.bytes, wanted[i].bytes);
    }
    nothing_more(f); /* nobody has asked whether the device is past the free */
    ok(weir_stream_release(foreign));
    ok(weir_client_destroy(stranger));
    ok(weir_runtime_destroy(other));
}

static void what_is_live_comes_first(void **state)
{
    fixture *f = *state;
    void *p = tagged(f, 1000, "p"), *q = tagged(f, 300, "q"), *gone = tagged(f, 100, "gone");
    gate g = GATE;
    weir_trace_destroy(f->trace);
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    free_behind(f->client, gone, f->a); /* pending, and no longer live */
    ok(weir_trace_create(f->runtime, NULL, &f->trace));
    weir_event one = next(f, WEIR_ACTION_ALLOCATE), two = next(f, WEIR_ACTION_ALLOCATE);
    assert_true((one.pointer == p && two.pointer == q) || (one.pointer == q && two.pointer == p));
    assert_int_equal(one.stream.id, 0);
    assert_int_equal(one.other.id, f->a.id);
    assert_string_equal(one.tag, one.pointer == p ? "p" : "q");
    assert_int_equal(one.live, one.charged);
    assert_int_equal(two.live, 1024 + 512);
    nothing_more(f);
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    ok(weir_free(f->client, p, f->a));
    ok(weir_free(f->client, q, f->a));
}

static void names(void **state)
{
    (void)state;
    for (int i = 0; i < WEIR_ACTION_COUNT; i++) {
        assert_string_not_equal(weir_name_of(WEIR_NAMES_ACTION, i), "?");
        for (int k = 0; k < i; k++)
            assert_string_not_equal(weir_name_of(WEIR_NAMES_ACTION, i), weir_name_of(WEIR_NAMES_ACTION, (int)k));
    }
    assert_string_equal(weir_name_of(WEIR_NAMES_ACTION, WEIR_ACTION_COUNT), "?");
    assert_string_equal(weir_name_of(WEIR_NAMES_ACTION, WEIR_ACTION_NOTE_USE), "note-use");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup_teardown(name, set_up, end)
        test(allocations_frees_and_the_reap),
        test(frees_in_order),
        test(launches),
        test(streams_and_work),
        test(notes),
        test(failures_with_their_kind),
        test(what_is_live_comes_first),
        test(names),
    };
    return cmocka_run_group_tests_name("trace events", tests, NULL, NULL);
}
