/* What holds beforehand: the log hears of a change before it happens, and one
 * capture begins. The linker leads some of the library's own calls through here. */
#include "core.h"
#include <weir/trace.h>
#include "core/faulty.h"

#include "runtime/runtime.h"

enum { BUDGET = 1 << 20 };

/* In the library's place ------------------------------------------------------------------------------------------- */

static wi_base *watched;
static weir_event said[16]; /* to the log, in this order */
static unsigned said_count, changes, unsaid;

static void change(const wi_ledger *ledger, weir_action action)
{
    if (!watched || watched->resource.ledger != ledger)
        return;
    changes++;
    unsaid += said_count == 0 || said[said_count - 1].action != action;
}

void __real_wi_record_to(wi_ledger *ledger, wi_events **ring, weir_event event, const wi_block *block);
void __wrap_wi_record_to(wi_ledger *ledger, wi_events **ring, weir_event event, const wi_block *block);
void __wrap_wi_record_to(wi_ledger *ledger, wi_events **ring, weir_event event, const wi_block *block)
{
    if (said_count < sizeof said / sizeof said[0])
        said[said_count++] = event;
    __real_wi_record_to(ledger, ring, event, block);
}

void __real_wi_ledger_commit(wi_ledger *ledger, const wi_block *block);
void __wrap_wi_ledger_commit(wi_ledger *ledger, const wi_block *block);
void __wrap_wi_ledger_commit(wi_ledger *ledger, const wi_block *block)
{
    change(ledger, WEIR_ACTION_ALLOCATE);
    __real_wi_ledger_commit(ledger, block);
}

void __real_wi_ledger_retire(wi_ledger *ledger, const wi_block *block, weir_stream stream, wi_past past);
void __wrap_wi_ledger_retire(wi_ledger *ledger, const wi_block *block, weir_stream stream, wi_past past);
void __wrap_wi_ledger_retire(wi_ledger *ledger, const wi_block *block, weir_stream stream, wi_past past)
{
    change(ledger, WEIR_ACTION_DEALLOCATE);
    __real_wi_ledger_retire(ledger, block, stream, past);
}

void __real_wi_ledger_reap(wi_ledger *ledger, const wi_block *block);
void __wrap_wi_ledger_reap(wi_ledger *ledger, const wi_block *block);
void __wrap_wi_ledger_reap(wi_ledger *ledger, const wi_block *block)
{
    change(ledger, WEIR_ACTION_REAP);
    __real_wi_ledger_reap(ledger, block);
}

/* The fixture ------------------------------------------------------------------------------------------------------ */

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    gate gate;
} fixture;

static fixture start_over(const wi_driver *driver, const char *stack)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = stack};
    fixture f = {.gate = GATE};
    faults_reset(-1);
    ok(wi_runtime_create_over(driver, 0, &options, &f.runtime));
    f.client = open_client(f.runtime, "one", 0, 0);
    ok(weir_stream_acquire(f.runtime, &f.stream));
    return f;
}

static fixture start(const char *stack)
{
    return start_over(&faulty_driver, stack);
}

static void end(fixture *f)
{
    ok(weir_stream_release(f->stream));
    check_empty(f->runtime);
    if (f->client)
        ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
    assert_true(faults_nothing_left());
}

/* The log -------------------------------------------------------------------------------------------------------- */

/* A free is in the log before anybody could have its bytes, an allocation before anybody could free it. */
static void the_log_hears_of_it_before_it_happens(void **state)
{
    (void)state;
    fixture f = start("log(mapped)");
    watched = f.runtime->resource->base;
    changes = unsaid = said_count = 0;
    void *p = allocate(f.client, 1000, f.stream, WEIR_CLASS_KV);
    ok(weir_call(f.runtime, pass_gate, &f.gate, f.stream));
    free_behind(f.client, p, f.stream);
    open_gate(&f.gate);
    ok(weir_stream_synchronize(f.stream));
    p = allocate(f.client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV); /* reaps what is past */
    ok(weir_free(f.client, p, WEIR_STREAM_HOST));
    (void)take_snapshot(f.runtime);
    watched = NULL;
    assert_int_equal(changes, 5);
    assert_int_equal(unsaid, 0);
    end(&f);
}

static void the_log_hears_of_a_refused_release(void **state)
{
    (void)state;
    fixture f = start("log(direct)");
    void *p = allocate(f.client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    said_count = 0;
    fault.fail_at = fault.calls;
    ok(weir_free(f.client, p, WEIR_STREAM_HOST));
    assert_int_equal(said_count, 3);
    assert_int_equal(said[0].action, WEIR_ACTION_DEALLOCATE);
    assert_int_equal(said[1].action, WEIR_ACTION_REAP);
    assert_int_equal(said[2].action, WEIR_ACTION_FAIL);
    assert_int_equal(said[2].object, WEIR_ACTION_REAP);
    assert_int_equal(said[2].result, WEIR_ERR_DRIVER);
    end(&f);
}

/* Captures ------------------------------------------------------------------------------------------------------- */

static weir_stream rival; /* whose capture is begun once more, while the driver is asked about it */
static weir_status won;
static bool capturing;
static unsigned waits;

static bool is_capturing(wi_device *on, void *stream)
{
    weir_stream taken = rival;
    rival = WEIR_STREAM_HOST;
    if (taken.id)
        won = weir_capture_begin(taken, NULL);
    return capturing || faulty_driver.stream_capturing(on, stream);
}

static weir_status wait_and_count(wi_device *on, wi_event event, uint64_t deadline)
{
    waits++;
    return faulty_driver.wait(on, event, deadline);
}

static fixture start_with_captures(void)
{
    static wi_driver driver;
    driver = faulty_driver;
    driver.stream_capturing = is_capturing;
    driver.wait = wait_and_count;
    return start_over(&driver, "mapped");
}

static void one_of_two_captures_begins(void **state)
{
    (void)state;
    fixture f = start_with_captures();
    rival = f.stream;
    won = WEIR_ERR_BUSY;
    fails(WEIR_ERR_BUSY, weir_capture_begin(f.stream, NULL));
    assert_int_equal(won, WEIR_OK);
    ok(weir_capture_end(f.stream, NULL));
    end(&f);
}

static void count_call(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    ++*(unsigned *)user;
}

/* Also where the caller has told the driver alone that it captures; nor is anybody asked to give up memory. */
static void no_waiting_in_a_capture(void **state)
{
    (void)state;
    fixture f = start_with_captures();
    weir_stream other;
    unsigned asked = 0;
    uint64_t id;
    ok(weir_pressure_register(f.runtime, 0, count_call, &asked, &id));
    ok(weir_stream_acquire(f.runtime, &other));
    void *p = allocate(f.client, BUDGET, f.stream, WEIR_CLASS_KV);
    ok(weir_call(f.runtime, pass_gate, &f.gate, f.stream));
    free_behind(f.client, p, f.stream);
    ok(weir_option_set("wait", "100ms"));
    waits = 0;
    capturing = true;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.client, BUDGET, other, WEIR_CLASS_KV, &p));
    assert_int_equal(waits + asked, 0);
    capturing = false;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f.client, BUDGET, other, WEIR_CLASS_KV, &p));
    assert_true(waits > 0);
    assert_int_equal(asked, 1);
    ok(weir_pressure_unregister(f.runtime, id));
    ok(weir_option_set("wait", NULL));
    open_gate(&f.gate);
    ok(weir_stream_synchronize(f.stream));
    ok(weir_stream_release(other));
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_hears_of_it_before_it_happens),
        cmocka_unit_test(the_log_hears_of_a_refused_release),
        cmocka_unit_test(one_of_two_captures_begins),
        cmocka_unit_test(no_waiting_in_a_capture),
    };
    return cmocka_run_group_tests_name("between", tests, NULL, NULL);
}
