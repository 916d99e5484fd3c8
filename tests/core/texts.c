/* Tags and names without end: what is kept is bounded, what is not is counted and told, clients keep their names, and a tag
 * that is not kept costs no lock. */
#include "info.h"
#include "core.h"
#include <weir/trace.h>
#include "base/texts.h"

enum { MOST = 65536, MORE = 1000 };

/* The linker puts this in the place of the library's locks. */
static unsigned locks;
int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    locks++;
    return __real_pthread_mutex_lock(lock);
}

static unsigned told;
static char last_told[1024];

static void listen(weir_log_level level, const char *text, void *user)
{
    (void)user;
    told += level == WEIR_LOG_WARNING;
    snprintf(last_told, sizeof last_told, "%s", text);
}

static weir_runtime *runtime;
static weir_client *client;

static uint64_t lost_tags(void)
{
    return take_snapshot(runtime).device.lost_tags;
}

static void tagged(const char *tag, const char *expected)
{
    weir_request request = {.struct_size = sizeof request, .bytes = UNIT, .tag = tag};
    weir_block_details details = WEIR_INIT(weir_block_details);
    weir_block block;
    ok(weir_alloc_with(client, &request, &block));
    ok(weir_block_info(block.pointer, &details));
    assert_string_equal(details.tag, expected);
    ok(weir_free_block(client, block, WEIR_STREAM_HOST));
}

static void tags_are_bounded_counted_and_told(void **state)
{
    (void)state;
    char tag[48];
    tagged("first", "first");
    for (int i = 1; i < MOST; i++) {
        snprintf(tag, sizeof tag, "request %d", i);
        assert_string_equal(wi_intern(tag, 47), tag);
    }
    assert_int_equal(lost_tags(), 0);
    assert_int_equal(told, 0);
    tagged("one more", "");
    assert_int_equal(lost_tags(), 1);
    assert_int_equal(told, 1);
    assert_non_null(strstr(last_told, "one more"));
    tagged("first", "first"); /* which is there */
    tagged(tag, tag);
    tagged("another", "");
    assert_int_equal(lost_tags(), 2);
    assert_int_equal(told, 1);
}

static void a_lost_tag_costs_no_lock(void **state)
{
    (void)state;
    char tag[48];
    uint64_t before = lost_tags();
    locks = 0;
    for (int i = 0; i < MORE; i++) {
        snprintf(tag, sizeof tag, "late request %d", i);
        assert_string_equal(wi_intern(tag, 47), "");
    }
    assert_int_equal(locks, 0);
    assert_int_equal(lost_tags(), before + MORE);
}

/* Whatever became of tags; and where there is no room for more names, the client keeps its own. */
static void clients_keep_their_names(void **state)
{
    (void)state;
    char name[80];
    weir_client *named = open_client(runtime, "second", 0, 0);
    assert_string_equal(client_details(named).name, "second");
    ok(weir_client_destroy(named));
    for (int i = 0; i < MOST; i++) {
        snprintf(name, sizeof name, "client %d", i);
        named = open_client(runtime, name, 0, 0);
        assert_string_equal(client_details(named).name, name);
        ok(weir_client_destroy(named));
    }
    assert_int_equal(told, 2); /* once for all of the names */
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    named = open_client(runtime, name, 0, MIB);
    name[63] = '\0';
    name[0] = 'm'; /* it was copied */
    assert_string_equal(client_details(named).name + 1, name + 1);
    assert_int_equal(client_details(named).name[0], 'n');
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(named, &stats));
    assert_string_equal(stats.name, client_details(named).name);
    void *pointer;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(named, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &pointer));
    detail_names("nnnn");
    assert_string_equal(last_refusal().client, client_details(named).name);
    weir_client *other = NULL;
    for (int i = 0; i < 80; i++) { /* records serve again, with nothing of their former owners' names */
        other = open_client(runtime, i % 2 ? "short" : "a longer name of its own", 0, 0);
        assert_string_equal(client_details(other).name, i % 2 ? "short" : "a longer name of its own");
        if (i < 79)
            ok(weir_client_destroy(other));
    }
    assert_int_equal(told, 2);
    ok(weir_client_destroy(other));
    ok(weir_client_destroy(named));
}

/* An event outlives the client whose name was its own. */
static void traces_say_that_a_name_was_not_kept(void **state)
{
    (void)state;
    weir_trace *trace;
    weir_event events[8] = {{.struct_size = sizeof events[0]}};
    size_t count;
    weir_client *late = open_client(runtime, "late", 0, 0);
    ok(weir_trace_create(runtime, NULL, &trace));
    ok(weir_free(late, allocate(late, UNIT, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    ok(weir_free(client, allocate(client, UNIT, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    ok(weir_client_destroy(late));
    ok(weir_trace_read(trace, events, 8, &count));
    unsigned lost = 0, kept = 0;
    for (size_t i = 0; i < count; i++)
        if (events[i].action == WEIR_ACTION_ALLOCATE) {
            lost += strcmp(events[i].client, "?") == 0;
            kept += strcmp(events[i].client, "client") == 0;
        }
    assert_int_equal(lost, 1);
    assert_int_equal(kept, 1);
    weir_trace_destroy(trace);
}

static int start(void **state)
{
    (void)state;
    runtime = make_runtime(16 * MIB);
    client = open_client(runtime, "client", 0, 0);
    return weir_log_set(listen, NULL, WEIR_LOG_WARNING) != WEIR_OK;
}

static int end(void **state)
{
    (void)state;
    return weir_client_destroy(client) != WEIR_OK || weir_runtime_destroy(runtime) != WEIR_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_are_bounded_counted_and_told),
        cmocka_unit_test(a_lost_tag_costs_no_lock),
        cmocka_unit_test(clients_keep_their_names),
        cmocka_unit_test(traces_say_that_a_name_was_not_kept),
    };
    return cmocka_run_group_tests_name("texts", tests, start, end);
}
