/* The adaptor "log": what reaches it, in which order, and what does not. */
#include "info.h"
#include "core/core.h"

#include "test_places.h"
#include <weir/trace.h>

enum { MOST = 64 };

typedef struct log_world {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    weir_event events[MOST];
    size_t count;
} log_world;

static log_world make(const char *stack)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB, .resource = stack};
    log_world w = {.events = {{.struct_size = sizeof w.events[0]}}};
    ok(weir_runtime_create("host", &options, &w.runtime));
    w.client = open_client(w.runtime, "logged", 0, 0);
    ok(weir_stream_acquire(w.runtime, &w.stream));
    return w;
}

static void end(log_world *w)
{
    ok(weir_stream_release(w->stream));
    ok(weir_client_destroy(w->client));
    ok(weir_runtime_destroy(w->runtime));
}

static void read_log(log_world *w)
{
    w->events[0].struct_size = sizeof w->events[0];
    ok(weir_trace_read(runtime_details(w->runtime).log, w->events, MOST, &w->count));
}

static void check_event(const weir_event *e, weir_action action, weir_status result, const void *pointer,
                        uint64_t bytes)
{
    assert_string_equal(weir_name_of(WEIR_NAMES_ACTION, e->action), weir_name_of(WEIR_NAMES_ACTION, action));
    assert_int_equal(e->result, result);
    assert_ptr_equal(e->pointer, pointer);
    assert_int_equal(e->bytes, bytes);
    assert_string_equal(e->client, "logged");
    assert_string_equal(e->device, "host");
}

/* Allocate twice, free twice, reap: each is there with all that there is to say, in order. */
static void each_call_is_recorded(void **state)
{
    (void)state;
    log_world w = make("budget(log(mapped))");
    weir_request request = {.struct_size = sizeof request,
                            .bytes = 1000,
                            .stream = w.stream,
                            .memory_class = WEIR_CLASS_KV,
                            .tag = "first"};
    weir_block a, b;
    ok(weir_alloc_with(w.client, &request, &a));
    request.tag = NULL;
    request.bytes = 300;
    ok(weir_alloc_with(w.client, &request, &b));
    ok(weir_free(w.client, a.pointer, w.stream));
    ok(weir_stream_synchronize(w.stream));
    ok(weir_free(w.client, b.pointer, WEIR_STREAM_HOST));
    read_log(&w);
    assert_in_range(w.count, 4, 5); /* the first free may have been complete at once */
    check_event(&w.events[0], WEIR_ACTION_ALLOCATE, WEIR_OK, a.pointer, 1000);
    assert_string_equal(w.events[0].tag, "first");
    assert_int_equal(w.events[0].memory_class, WEIR_CLASS_KV);
    assert_int_equal(w.events[0].charged, 1024);
    assert_int_equal(w.events[0].generation, a.generation);
    assert_int_equal(w.events[0].stream.id, w.stream.id);
    check_event(&w.events[1], WEIR_ACTION_ALLOCATE, WEIR_OK, b.pointer, 300);
    check_event(&w.events[2], WEIR_ACTION_DEALLOCATE, WEIR_OK, a.pointer, 1000);
    for (size_t i = 0; i < w.count; i++) {
        assert_int_equal(w.events[i].order, i + 1);
        assert_true(i == 0 || w.events[i].nanoseconds >= w.events[i - 1].nanoseconds);
    }
    end(&w);
}

static void hold(void *user)
{
    pthread_mutex_lock(user);
    pthread_mutex_unlock(user);
}

/* A free that has to wait is reaped later, by whoever looks. */
static void a_reap_is_recorded(void **state)
{
    (void)state;
    log_world w = make("log(mapped)");
    pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
    void *a = allocate(w.client, 1000, w.stream, WEIR_CLASS_OTHER);
    pthread_mutex_lock(&held);
    ok(weir_call(w.runtime, hold, &held, w.stream));
    free_behind(w.client, a, w.stream);
    (void)take_snapshot(w.runtime);
    read_log(&w);
    assert_int_equal(w.count, 2);
    pthread_mutex_unlock(&held);
    ok(weir_stream_synchronize(w.stream));
    (void)take_snapshot(w.runtime);
    read_log(&w);
    assert_int_equal(w.count, 1);
    check_event(&w.events[0], WEIR_ACTION_REAP, WEIR_OK, a, 1000);
    end(&w);
}

/* Also those that an adaptor around the log makes, and those that fail. */
static void resizes_are_recorded(void **state)
{
    static const char *const stacks[] = {"log(direct)", "guard(log(direct))"};
    (void)state;
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        log_world w = make(stacks[i]);
        void *a = allocate(w.client, 1000, w.stream, WEIR_CLASS_OTHER);
        ok(weir_resize(w.client, a, 600, w.stream));
        read_log(&w);
        assert_int_equal(w.count, 2);
        check_event(&w.events[1], WEIR_ACTION_RESIZE, WEIR_OK, a, 600);
        fails(WEIR_ERR_NO_ROOM, weir_resize(w.client, a, 64 * KIB, w.stream));
        read_log(&w);
        if (i == 0) { /* a guard does not ask what is below it */
            assert_int_equal(w.count, 1);
            check_event(&w.events[0], WEIR_ACTION_FAIL, WEIR_ERR_NO_ROOM, a, 600);
            assert_int_equal(w.events[0].object, WEIR_ACTION_RESIZE);
        }
        ok(weir_free(w.client, a, w.stream));
        ok(weir_stream_synchronize(w.stream));
        end(&w);
    }
}

static void a_growth_is_recorded(void **state)
{
    (void)state;
    log_world w = make("log(mapped)");
    void *a = allocate(w.client, 1000, w.stream, WEIR_CLASS_OTHER);
    ok(weir_resize(w.client, a, 2000, w.stream));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_resize(w.client, a, 2 * MIB, w.stream)); /* more than the budget */
    read_log(&w);
    assert_int_equal(w.count, 2);
    check_event(&w.events[1], WEIR_ACTION_RESIZE, WEIR_OK, a, 2000);
    assert_int_equal(w.events[1].charged, 2048);
    ok(weir_free(w.client, a, w.stream));
    ok(weir_stream_synchronize(w.stream));
    end(&w);
}

/* Of a free both streams are told: its own, and that of the block. */
static void a_free_on_another_stream_is_told_as_such(void **state)
{
    (void)state;
    log_world w = make("log(mapped)");
    void *a = allocate(w.client, 1000, w.stream, WEIR_CLASS_OTHER);
    ok(weir_stream_synchronize(w.stream));
    ok(weir_free(w.client, a, WEIR_STREAM_HOST));
    read_log(&w);
    check_event(&w.events[1], WEIR_ACTION_DEALLOCATE, WEIR_OK, a, 1000);
    assert_int_equal(w.events[1].stream.id, WEIR_STREAM_HOST.id);
    assert_int_equal(w.events[1].other.id, w.stream.id);
    end(&w);
}

/* Rows of the CSV whose third value is the word; NULL: all but the first. */
static unsigned rows_of(const char *path, const char *action)
{
    char line[1024], word[64];
    unsigned count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file)) {
        assert_int_equal(sscanf(line, "%*[^,],%*[^,],%63[^,],", word), 1);
        count += !action || strcmp(word, action) == 0;
    }
    fclose(file);
    return count;
}

/* Events of the binary file, as docs/guide/trace.md describes it. */
static unsigned events_of(const char *path, weir_action action)
{
    uint32_t head[4]; /* kind, checksum, and two more */
    unsigned count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, 16, SEEK_SET), 0);
    while (fread(head, sizeof head, 1, file) == 1 && head[0] != 3) {
        long rest = head[0] == 1 ? (long)(head[3] + 7) / 8 * 8 : 144 - (long)sizeof head;
        count += head[0] == 2 && head[2] == (uint32_t)action;
        assert_int_equal(fseek(file, rest, SEEK_CUR), 0);
    }
    fclose(file);
    return count;
}

/* RMM's reader takes no other words than its own: reaps are in the binary file alone. */
static void the_csv_has_rmms_words_and_the_binary_file_all(void **state)
{
    (void)state;
    char folder[] = "/tmp/weir-logging-XXXXXX", csv[64], binary[64], stack[200];
    assert_non_null(mkdtemp(folder));
    snprintf(csv, sizeof csv, "%s/log.csv", folder);
    snprintf(binary, sizeof binary, "%s/log.weir", folder);
    snprintf(stack, sizeof stack, "log(csv=%s, binary=%s, budget(mapped))", csv, binary);
    log_world w = make(stack);
    assert_string_equal(runtime_details(w.runtime).resource, stack);
    pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
    void *a = allocate(w.client, 1000, w.stream, WEIR_CLASS_OTHER), *none;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(w.client, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &none));
    pthread_mutex_lock(&held);
    ok(weir_call(w.runtime, hold, &held, w.stream));
    free_behind(w.client, a, w.stream);
    pthread_mutex_unlock(&held);
    ok(weir_stream_synchronize(w.stream));
    (void)take_snapshot(w.runtime);
    end(&w);
    assert_int_equal(rows_of(csv, "allocate"), 1);
    assert_int_equal(rows_of(csv, "allocate failure"), 1);
    assert_int_equal(rows_of(csv, "free"), 1);
    assert_int_equal(rows_of(csv, NULL), 3);
    assert_int_equal(events_of(binary, WEIR_ACTION_ALLOCATE), 1);
    assert_int_equal(events_of(binary, WEIR_ACTION_DEALLOCATE), 1);
    assert_int_equal(events_of(binary, WEIR_ACTION_REAP), 1);
    assert_int_equal(unlink(csv) | unlink(binary) | rmdir(folder), 0);
}

/* Budget(Logging(…)): what the budget refuses never reaches the log. Logging(Budget(…)): it does, with its kind. */
static void the_order_of_adaptors_counts(void **state)
{
    (void)state;
    void *none;
    log_world w = make("budget(log(mapped))");
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(w.client, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &none));
    read_log(&w);
    assert_int_equal(w.count, 0);
    end(&w);
    w = make("log(budget(mapped))");
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(w.client, 2 * MIB - 1, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &none));
    assert_int_equal(last_refusal().limit, MIB);
    read_log(&w);
    assert_int_equal(w.count, 1);
    check_event(&w.events[0], WEIR_ACTION_REFUSE, WEIR_ERR_OUT_OF_MEMORY, NULL, 2 * MIB - 1);
    assert_int_equal(w.events[0].charged, 2 * MIB);
    end(&w);
}

static weir_status fail_to_write(void *user, const weir_event *events, size_t count)
{
    (void)events;
    (void)count;
    ++*(int *)user;
    return weir_fail(WEIR_ERR_SYSTEM, "the disk is full");
}

/* A sink that fails is counted, and nobody who allocates hears of it. */
static void a_failing_sink_is_counted(void **state)
{
    (void)state;
    log_world w = make("log(mapped)");
    int calls = 0;
    weir_sink sink = {.struct_size = sizeof sink, .user = &calls, .write = fail_to_write};
    weir_trace *log = runtime_details(w.runtime).log;
    ok(weir_trace_add_sink(log, &sink));
    void *a = allocate(w.client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    ok(weir_free(w.client, a, WEIR_STREAM_HOST));
    fails(WEIR_ERR_SYSTEM, weir_trace_flush(log));
    assert_true(calls > 0);
    assert_int_equal(trace_details(log).failed, calls);
    weir_trace_destroy(log); /* the runtime's: it stays */
    assert_ptr_equal(runtime_details(w.runtime).log, log);
    end(&w);
}

static void a_file_is_written(void **state)
{
    (void)state;
    char stack[200], line[512], text[256];
    const char *path = built_path("tests/logging-%ld.csv", (long)getpid());
    snprintf(stack, sizeof stack, "log(csv=%s, mapped)", path);
    log_world w = make(stack);
    snprintf(text, sizeof text, "budget(%s)", stack);
    assert_string_equal(runtime_details(w.runtime).resource, text);
    void *a = allocate(w.client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    ok(weir_free(w.client, a, WEIR_STREAM_HOST));
    end(&w);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_non_null(strstr(line, "Thread,Time,Action,Pointer,Size,Stream"));
    assert_non_null(fgets(line, sizeof line, file));
    assert_non_null(strstr(line, "allocate"));
    assert_non_null(fgets(line, sizeof line, file));
    assert_non_null(strstr(line, "free"));
    fclose(file);
    unlink(path);
}

#define TEXT_OF_50  "/tmp/a-path-that-would-be-cut-if-nobody-looked-at-"
#define TEXT_OF_200 TEXT_OF_50 TEXT_OF_50 TEXT_OF_50 TEXT_OF_50

static void what_is_no_log_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *stack;
        weir_status status;
    } wrong[] = {{"log(log(mapped))", WEIR_ERR_INVALID},
                 {"log(budget(log(mapped)))", WEIR_ERR_INVALID},
                 {"budget(log(budget(mapped)))", WEIR_ERR_INVALID},
                 {"guard(log(guard(mapped)))", WEIR_ERR_INVALID},
                 {"log(cvs=x, mapped)", WEIR_ERR_INVALID},
                 {"log(csv=a, binary=b, csv=c, mapped)", WEIR_ERR_INVALID},
                 {"log", WEIR_ERR_INVALID},
                 {"log()", WEIR_ERR_INVALID},
                 {"log(csv=x)", WEIR_ERR_INVALID},
                 {"log(nothing)", WEIR_ERR_NOT_FOUND},
                 {"log(mapped))", WEIR_ERR_INVALID},
                 {"log(mapped", WEIR_ERR_INVALID},
                 {"budget(budget(mapped))", WEIR_ERR_INVALID},
                 {"", WEIR_ERR_INVALID},
                 {"log(mapped, mapped)", WEIR_ERR_INVALID},
                 {"log(csv=" TEXT_OF_200 ", mapped)", WEIR_ERR_INVALID}}; /* rather than another file */
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB, .resource = wrong[i].stack};
        weir_runtime *runtime;
        print_message("%s\n", wrong[i].stack);
        fails(wrong[i].status, weir_runtime_create("host", &options, &runtime));
        assert_null(runtime);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_is_recorded),
        cmocka_unit_test(a_reap_is_recorded),
        cmocka_unit_test(resizes_are_recorded),
        cmocka_unit_test(a_growth_is_recorded),
        cmocka_unit_test(a_free_on_another_stream_is_told_as_such),
        cmocka_unit_test(the_csv_has_rmms_words_and_the_binary_file_all),
        cmocka_unit_test(the_order_of_adaptors_counts),
        cmocka_unit_test(a_failing_sink_is_counted),
        cmocka_unit_test(a_file_is_written),
        cmocka_unit_test(what_is_no_log_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
