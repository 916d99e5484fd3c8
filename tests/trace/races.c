/* The check of recorded programs: what is planted is found, by name, and what is ordered is not. The programs run on
 * the host driver; their work is what they say it is. */
#include "info.h"
#include "trace.h"
#include <weir/residency.h>
#include <weir/trace.h>

#include "trace/race_check.h"

typedef struct recorded {
    fixture *f;
    race_check *check;
    race_finding first;
    uint64_t count;
} recorded;

static int set_up(void **state)
{
    recorded *r = calloc(1, sizeof *r);
    r->f = start();
    ok(weir_trace_create(r->f->runtime, NULL, &r->f->trace));
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    recorded *r = *state;
    void *f = r->f;
    end(&f);
    race_check_destroy(r->check);
    free(r);
    return 0;
}

/* Checks what was recorded; the program must have no findings, or all of one kind. */
static void finds(recorded *r, int kind, uint64_t count)
{
    static weir_event events[1000];
    size_t read, found;
    events[0].struct_size = sizeof events[0];
    ok(weir_trace_read(r->f->trace, events, 1000, &read));
    assert_true(read < 1000);
    if (!r->check)
        r->check = race_check_create();
    for (size_t i = 0; i < read; i++)
        ok(race_check_event(r->check, &events[i]));
    const race_finding *all = race_check_found(r->check, &found);
    for (size_t i = 0; i < found; i++)
        if (found != count || (int)all[i].kind != kind)
            print_error("%s: %s\n", race_kind_name(all[i].kind), all[i].text);
    assert_int_equal(found, count);
    assert_int_equal(race_check_violations(r->check), count);
    for (size_t i = 0; i < found; i++)
        assert_int_equal(all[i].kind, kind);
    if (found > 0)
        r->first = all[0];
}

static void *make(recorded *r, weir_stream stream)
{
    weir_request request = {
        .struct_size = sizeof request, .bytes = 1000, .stream = stream, .memory_class = WEIR_CLASS_KV, .tag = "cache"};
    weir_block block;
    ok(weir_alloc_with(r->f->client, &request, &block));
    return block.pointer;
}

static void use(recorded *r, void *p, weir_stream stream, weir_access access)
{
    ok(note_use(r->f->runtime, p, 1000, stream, access));
}

/* What is queued on `to` from here on is behind what is on `from`. */
static void order(recorded *r, weir_stream from, weir_stream to, uint64_t event)
{
    ok(note_record(r->f->runtime, event, from));
    ok(note_wait(r->f->runtime, event, to));
}

static void give(recorded *r, void *p, weir_stream stream)
{
    ok(weir_free(r->f->client, p, stream));
}

static void names_everything(recorded *r, void *p, weir_stream stream, weir_stream other)
{
    assert_true(r->first.pointer == (uint64_t)(uintptr_t)p);
    assert_int_equal(r->first.bytes, 1000);
    assert_string_equal(r->first.client, "traced");
    assert_string_equal(r->first.tag, "cache");
    assert_int_equal(r->first.stream, stream.id);
    assert_int_equal(r->first.other_stream, other.id);
    assert_true(r->first.order_first > 0 && r->first.order_first < r->first.order_second);
    assert_non_null(strstr(r->first.text, "traced's block at 0x"));
}

static void one_stream_orders_itself(void **state)
{
    recorded *r = *state;
    void *p = make(r, r->f->a);
    use(r, p, r->f->a, WEIR_ACCESS_WRITE);
    use(r, p, r->f->a, WEIR_ACCESS_READ);
    give(r, p, r->f->a);
    finds(r, -1, 0);
}

static void events_order(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    use(r, p, a, WEIR_ACCESS_WRITE);
    order(r, a, b, 1);
    use(r, p, b, WEIR_ACCESS_READ_WRITE);
    order(r, b, a, 1); /* a number serves again */
    use(r, p, a, WEIR_ACCESS_READ);
    give(r, p, a);
    finds(r, -1, 0);
}

static void the_host_orders(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    use(r, p, a, WEIR_ACCESS_WRITE);
    ok(weir_stream_synchronize(a));
    use(r, p, b, WEIR_ACCESS_READ);
    order(r, b, WEIR_STREAM_HOST, 5);
    use(r, p, WEIR_STREAM_HOST, WEIR_ACCESS_WRITE);
    give(r, p, WEIR_STREAM_HOST);
    finds(r, -1, 0);
}

static void an_event_recorded_too_early_orders_nothing(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    ok(note_record(r->f->runtime, 1, a));
    use(r, p, a, WEIR_ACCESS_WRITE);
    ok(note_wait(r->f->runtime, 1, b));
    use(r, p, b, WEIR_ACCESS_READ);
    finds(r, RACE_UNORDERED_USE, 1);
    names_everything(r, p, b, a);
    ok(weir_stream_synchronize(b));
    give(r, p, a);
}

static void two_reads_need_no_order(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    order(r, a, b, 1);
    use(r, p, a, WEIR_ACCESS_READ);
    use(r, p, b, WEIR_ACCESS_READ);
    order(r, b, a, 1);
    give(r, p, a);
    finds(r, -1, 0);
}

static void other_bytes_need_no_order(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    char *p = make(r, a);
    order(r, a, b, 1);
    ok(note_use(r->f->runtime, p, 500, a, WEIR_ACCESS_WRITE));
    ok(note_use(r->f->runtime, p + 500, 500, b, WEIR_ACCESS_WRITE));
    finds(r, -1, 0);
    ok(note_use(r->f->runtime, p + 499, 1, b, WEIR_ACCESS_READ));
    finds(r, RACE_UNORDERED_USE, 1);
    ok(weir_stream_synchronize(b));
    give(r, p, a);
}

static void freed_while_another_stream_uses_it(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    order(r, a, b, 1);
    use(r, p, b, WEIR_ACCESS_READ);
    give(r, p, a);
    finds(r, RACE_FREE_IN_USE, 1);
    names_everything(r, p, a, b);
}

static void freed_on_the_host_while_a_stream_uses_it(void **state)
{
    recorded *r = *state;
    void *p = make(r, r->f->a);
    use(r, p, r->f->a, WEIR_ACCESS_WRITE);
    give(r, p, WEIR_STREAM_HOST);
    finds(r, RACE_FREE_IN_USE, 1);
    names_everything(r, p, WEIR_STREAM_HOST, r->f->a);
}

static void the_next_owner_is_named(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    order(r, a, b, 1);
    use(r, p, b, WEIR_ACCESS_WRITE);
    give(r, p, a);
    ok(weir_stream_synchronize(a));
    finds(r, RACE_FREE_IN_USE, 1);
    void *q = make(r, a);
    assert_ptr_equal(p, q); /* best fit */
    static weir_event events[100];
    size_t count, found;
    events[0].struct_size = sizeof events[0];
    ok(weir_trace_read(r->f->trace, events, 100, &count));
    for (size_t i = 0; i < count; i++)
        ok(race_check_event(r->check, &events[i]));
    const race_finding *all = race_check_found(r->check, &found);
    assert_int_equal(found, 2);
    assert_int_equal(all[1].kind, RACE_EARLY_REUSE);
    assert_int_equal(all[1].other_stream, b.id);
    give(r, q, a);
}

static void reuse_behind_everything_is_right(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    for (int i = 0; i < 5; i++) {
        void *p = make(r, i % 2 ? a : b);
        ok(weir_launch_end(begin(r->f, a, p, WEIR_ACCESS_WRITE)));
        ok(weir_launch_end(begin(r->f, b, p, WEIR_ACCESS_READ)));
        give(r, p, a);
        ok(weir_stream_synchronize(a));
        ok(weir_stream_synchronize(b));
        (void)take_snapshot(r->f->runtime);
    }
    finds(r, -1, 0);
}

/* As weir would tell it if it gave bytes in a stream's order to another stream. */
static void bytes_in_the_order_of_another_stream(void **state)
{
    recorded *r = *state;
    for (int passed = 0; passed < 3; passed++) {
        weir_event e[] = {
            {.action = WEIR_ACTION_ALLOCATE,
             .pointer = (void *)0x1000,
             .bytes = 512,
             .charged = 512,
             .generation = 1,
             .stream = {5}},
            {.action = WEIR_ACTION_DEALLOCATE,
             .pointer = (void *)0x1000,
             .bytes = 512,
             .generation = 1,
             .stream = {5},
             .object = 1},
            {.action = WEIR_ACTION_REAP, .pointer = (void *)0x800, .bytes = 8192, .stream = {passed == 1 ? 5 : 6}},
            {.action = WEIR_ACTION_ALLOCATE,
             .pointer = (void *)0x1100,
             .bytes = 256,
             .charged = 256,
             .generation = 2,
             .stream = {passed == 2 ? 5 : 6}}};
        race_check *check = race_check_create();
        for (size_t i = 0; i < 4; i++) {
            e[i].order = i + 1;
            e[i].client = e[i].tag = e[i].device = "x";
            ok(race_check_event(check, &e[i]));
        }
        assert_int_equal(race_check_violations(check), passed == 0);
        race_check_destroy(check);
    }
    finds(r, -1, 0);
}

static void used_after_the_free(void **state)
{
    recorded *r = *state;
    void *p = make(r, r->f->a);
    give(r, p, r->f->a);
    use(r, p, r->f->a, WEIR_ACCESS_READ);
    finds(r, RACE_USE_AFTER_FREE, 1);
    names_everything(r, p, r->f->a, r->f->a);
}

static void used_before_its_allocation_is_reached(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    use(r, p, b, WEIR_ACCESS_READ);
    finds(r, RACE_UNORDERED_ALLOCATION, 1);
    names_everything(r, p, b, a);
    ok(weir_stream_synchronize(b));
    give(r, p, a);
    finds(r, RACE_UNORDERED_ALLOCATION, 1);
}

static void declared_uses_are_weirs_affair(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    weir_launch *writes = begin(r->f, b, p, WEIR_ACCESS_WRITE);
    ok(weir_fill(r->f->runtime, p, 1, 1000, b));
    use(r, p, b, WEIR_ACCESS_WRITE);
    ok(weir_launch_end(writes));
    weir_launch *reads = begin(r->f, a, p, WEIR_ACCESS_READ);
    use(r, p, a, WEIR_ACCESS_READ);
    ok(weir_launch_end(reads));
    weir_launch_abort(begin(r->f, b, p, WEIR_ACCESS_READ));
    ok(weir_launch_end(begin(r->f, WEIR_STREAM_HOST, p, WEIR_ACCESS_READ)));
    give(r, p, WEIR_STREAM_HOST);
    finds(r, -1, 0);
}

static void a_declared_write_is_behind_the_reads(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    ok(weir_launch_end(begin(r->f, b, p, WEIR_ACCESS_WRITE)));
    ok(weir_launch_end(begin(r->f, b, p, WEIR_ACCESS_READ)));
    ok(weir_launch_end(begin(r->f, a, p, WEIR_ACCESS_READ)));
    ok(weir_launch_end(begin(r->f, a, p, WEIR_ACCESS_WRITE)));
    use(r, p, a, WEIR_ACCESS_WRITE); /* which is behind what the launch was behind */
    finds(r, -1, 0);
    give(r, p, a);
}

static void a_read_does_not_hide_the_write_before_it(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    order(r, a, b, 1);
    use(r, p, a, WEIR_ACCESS_WRITE);
    use(r, p, a, WEIR_ACCESS_READ);
    use(r, p, b, WEIR_ACCESS_READ);
    finds(r, RACE_UNORDERED_USE, 1);
    ok(weir_stream_synchronize(b));
    give(r, p, a);
}

/* A stream's place serves again only when its work is done, also where the events that say so are missing. */
static void a_stream_at_the_place_of_another(void **state)
{
    recorded *r = *state;
    const weir_stream first = {0x1000000010005}, second = {0x1000000020005};
    /* clang-format off */
    const weir_event events[] = {
        {.action = WEIR_ACTION_ALLOCATE, .order = 1, .stream = first, .pointer = r, .bytes = 256,
         .client = "c", .tag = ""},
        {.action = WEIR_ACTION_NOTE_USE, .order = 2, .stream = first, .pointer = r, .bytes = 256,
         .access = WEIR_ACCESS_WRITE},
        {.action = WEIR_ACTION_STREAM_OPEN, .order = 5, .stream = second},
        {.action = WEIR_ACTION_DEALLOCATE, .order = 6, .pointer = r}};
    /* clang-format on */
    r->check = race_check_create();
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        ok(race_check_event(r->check, &events[i]));
    finds(r, -1, 0);
}

static void a_launch_does_not_wait_for_what_was_not_declared(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    ok(weir_fill(r->f->runtime, p, 1, 1000, a));
    ok(weir_launch_end(begin(r->f, b, p, WEIR_ACCESS_READ)));
    finds(r, RACE_UNORDERED_USE, 1);
    names_everything(r, p, b, a);
    give(r, p, a);
}

static void a_use_in_the_middle_of_a_launch(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    order(r, a, b, 1);
    weir_launch *writes = begin(r->f, a, p, WEIR_ACCESS_WRITE);
    ok(weir_stream_synchronize(a)); /* too early to tell anything of the launch */
    use(r, p, b, WEIR_ACCESS_READ);
    ok(weir_launch_end(writes));
    finds(r, RACE_UNORDERED_USE, 1);
    ok(weir_stream_synchronize(b));
    give(r, p, a);
}

static void a_recorded_use_is_waited_for(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a);
    order(r, a, b, 1);
    use(r, p, b, WEIR_ACCESS_READ);
    ok(weir_use_record(r->f->runtime, (weir_block){.pointer = p}, b));
    give(r, p, a);
    finds(r, -1, 0);
}

static void a_copy_reads_and_writes(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a), *q = make(r, a);
    ok(weir_copy(r->f->runtime, p, q, 1000, a));
    order(r, a, WEIR_STREAM_HOST, 1);
    ok(weir_copy(r->f->runtime, p, q, 1000, a));
    use(r, q, b, WEIR_ACCESS_READ);
    finds(r, -1, 0);
    use(r, p, b, WEIR_ACCESS_READ);
    finds(r, RACE_UNORDERED_USE, 1);
    ok(weir_stream_synchronize(b));
    give(r, p, a);
    give(r, q, a);
}

/* A block of before the trace: what was ordered then is not known, and not doubted. */
static void what_was_there_before(void **state)
{
    recorded *r = *state;
    weir_trace_destroy(r->f->trace);
    void *p = make(r, r->f->a);
    ok(weir_trace_create(r->f->runtime, NULL, &r->f->trace));
    use(r, p, r->f->b, WEIR_ACCESS_READ);
    finds(r, -1, 0);
    give(r, p, r->f->a);
    finds(r, RACE_FREE_IN_USE, 1);
}

/* Events that no runtime wrote: nothing crashes, whatever they are. */
static void any_events_at_all(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int round = 0; round < 200; round++) {
        race_check *check = race_check_create();
        assert_non_null(check);
        for (uint64_t i = 1; i < 300; i++) {
            uint64_t n = next_random(&random), wide = n >> 20 & 1 ? UINT64_MAX : 4096;
            weir_event e = {.action = (weir_action)(n % WEIR_ACTION_COUNT),
                            .order = i,
                            .pointer =
                                (void *)(uintptr_t)((next_random(&random) % 8 * 512) | (n >> 21 & 1) * UINT64_MAX),
                            .bytes = next_random(&random) % wide,
                            .charged = next_random(&random) % wide,
                            .generation = next_random(&random) % 20,
                            .stream = {next_random(&random) % 5 * (n >> 22 & 1 ? 1 : 65537)},
                            .client = "c",
                            .tag = "",
                            .access = (weir_access)(n >> 8 & 3),
                            .result = n >> 10 & 7 ? WEIR_OK : WEIR_ERR_BUSY,
                            .object = n >> 13 & 3};
            ok(race_check_event(check, &e));
        }
        race_check_destroy(check);
    }
}

/* Residency -------------------------------------------------------------------------------------------------------- */

static void away_and_back(recorded *r, weir_stream stream)
{
    ok(weir_client_suspend(r->f->client, NULL, NULL));
    ok(weir_client_resume(r->f->client, stream));
}

static void what_is_waited_for_may_leave(void **state)
{
    recorded *r = *state;
    weir_stream a = r->f->a, b = r->f->b;
    void *p = make(r, a), *q = make(r, b);
    use(r, p, a, WEIR_ACCESS_WRITE);
    order(r, a, b, 1);
    use(r, p, b, WEIR_ACCESS_READ); /* of the other block's stream */
    away_and_back(r, a);
    use(r, p, a, WEIR_ACCESS_WRITE); /* behind the resume */
    ok(weir_launch_end(begin(r->f, b, q, WEIR_ACCESS_WRITE)));
    give(r, p, a);
    give(r, q, b);
    finds(r, -1, 0);
}

static void used_while_it_is_away(void **state)
{
    recorded *r = *state;
    void *p = make(r, r->f->a);
    ok(weir_client_suspend(r->f->client, NULL, NULL));
    use(r, p, r->f->a, WEIR_ACCESS_READ);
    use(r, p, WEIR_STREAM_HOST, WEIR_ACCESS_WRITE);
    finds(r, RACE_USE_WHILE_AWAY, 2);
    names_everything(r, p, r->f->a, WEIR_STREAM_HOST);
    ok(weir_client_resume(r->f->client, WEIR_STREAM_HOST));
    use(r, p, r->f->a, WEIR_ACCESS_READ);
    give(r, p, r->f->a);
    finds(r, RACE_USE_WHILE_AWAY, 2);
}

static void leaves_under_work_that_nobody_told_of(void **state)
{
    recorded *r = *state;
    weir_stream b = r->f->b;
    void *p = make(r, r->f->a);
    order(r, r->f->a, b, 1);
    use(r, p, b, WEIR_ACCESS_WRITE);
    away_and_back(r, WEIR_STREAM_HOST);
    finds(r, RACE_USE_WHILE_AWAY, 1);
    names_everything(r, p, WEIR_STREAM_HOST, b);
    give(r, p, WEIR_STREAM_HOST); /* told once */
    finds(r, RACE_USE_WHILE_AWAY, 1);
}

static void used_before_it_is_back(void **state)
{
    recorded *r = *state;
    void *p = make(r, r->f->a);
    away_and_back(r, r->f->a);
    use(r, p, r->f->b, WEIR_ACCESS_READ); /* on another stream, in no order with the resume's */
    finds(r, RACE_UNORDERED_USE, 1);
    order(r, r->f->b, r->f->a, 1);
    give(r, p, r->f->a);
    finds(r, RACE_UNORDERED_USE, 1);
}

static void freed_while_it_is_away(void **state)
{
    recorded *r = *state;
    void *p = make(r, r->f->a);
    use(r, p, r->f->a, WEIR_ACCESS_WRITE);
    ok(weir_client_suspend(r->f->client, NULL, NULL));
    give(r, p, r->f->b); /* in no order with anything */
    finds(r, -1, 0);
    use(r, p, r->f->b, WEIR_ACCESS_READ);
    finds(r, RACE_USE_AFTER_FREE, 1);
    ok(weir_client_resume(r->f->client, WEIR_STREAM_HOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        test(one_stream_orders_itself),
        test(events_order),
        test(the_host_orders),
        test(an_event_recorded_too_early_orders_nothing),
        test(two_reads_need_no_order),
        test(other_bytes_need_no_order),
        test(freed_while_another_stream_uses_it),
        test(freed_on_the_host_while_a_stream_uses_it),
        test(the_next_owner_is_named),
        test(reuse_behind_everything_is_right),
        test(used_after_the_free),
        test(bytes_in_the_order_of_another_stream),
        test(used_before_its_allocation_is_reached),
        test(declared_uses_are_weirs_affair),
        test(a_declared_write_is_behind_the_reads),
        test(a_read_does_not_hide_the_write_before_it),
        test(a_stream_at_the_place_of_another),
        test(a_launch_does_not_wait_for_what_was_not_declared),
        test(a_use_in_the_middle_of_a_launch),
        test(a_recorded_use_is_waited_for),
        test(a_copy_reads_and_writes),
        test(what_was_there_before),
        test(what_is_waited_for_may_leave),
        test(used_while_it_is_away),
        test(leaves_under_work_that_nobody_told_of),
        test(used_before_it_is_back),
        test(freed_while_it_is_away),
        test(any_events_at_all),
    };
    return cmocka_run_group_tests_name("trace race_check", tests, NULL, NULL);
}
