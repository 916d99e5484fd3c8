/* What ends closes its door first and waits then: another thread acts between two steps of an end. It acts on the test's own
 * thread here, inside of functions that stand in the place of the library's. */
#include "core.h"

#include "memory/elastic.h"
#include "runtime/elastic/elastic.h"
#include "runtime/residence.h"
#include "runtime/runtime.h"

#include <weir/elastic.h>
#include <weir/residency.h>

enum { BUDGET = 64 << 20, PAGES = 4 };

/* What happens once, where a wrapped function of the library is called: before or behind it. */
static void (*between)(void *user);
static void *between_user;
static bool while_it_looks; /* it happens where an end of a runtime has looked at the clients */

static void act(void)
{
    void (*fn)(void *user) = between;
    between = NULL;
    if (fn)
        fn(between_user);
}

void __real_wi_tcaches_end(weir_runtime *runtime);
void __wrap_wi_tcaches_end(weir_runtime *runtime);
weir_status __real_wi_residency_end(weir_client *client);
weir_status __wrap_wi_residency_end(weir_client *client);
bool __real_wi_residency_forget(weir_client *client, const char *low, const char *high, uint64_t moves);
bool __wrap_wi_residency_forget(weir_client *client, const char *low, const char *high, uint64_t moves);

void __real_wi_leaks_tell(weir_runtime *runtime, const weir_client *client);
void __wrap_wi_leaks_tell(weir_runtime *runtime, const weir_client *client);
bool __real_wi_streams_any(wi_streams *streams);
bool __wrap_wi_streams_any(wi_streams *streams);

void __wrap_wi_leaks_tell(weir_runtime *runtime, const weir_client *client)
{
    act();
    __real_wi_leaks_tell(runtime, client);
}

bool __wrap_wi_streams_any(wi_streams *streams)
{
    bool any = __real_wi_streams_any(streams);
    if (while_it_looks)
        act();
    return any;
}

void __wrap_wi_tcaches_end(weir_runtime *runtime)
{
    act();
    __real_wi_tcaches_end(runtime);
}

static int residence_stays = -1; /* so many ends of a residence go well before one is refused; -1: none is */

weir_status __wrap_wi_residency_end(weir_client *client)
{
    weir_status status = residence_stays-- == 0
                             ? weir_fail(WEIR_ERR_DRIVER, "copies of %s may be under way", wi_client_name(client))
                             : __real_wi_residency_end(client);
    act();
    return status;
}

bool __wrap_wi_residency_forget(weir_client *client, const char *low, const char *high, uint64_t moves)
{
    bool same = __real_wi_residency_forget(client, low, high, moves);
    act();
    return same;
}

/* A runtime -------------------------------------------------------------------------------------------------------------- */

typedef struct late {
    weir_runtime *runtime;
    weir_status client, trace, pressure, hosted, again;
    weir_client *made;
    int acted;
} late;

static void nothing(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    (void)user;
}

static void make_all(void *user)
{
    late *l = user;
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_runtime_options runtime = WEIR_INIT(weir_runtime_options);
    weir_runtime *over;
    weir_trace *trace;
    uint64_t id;
    options.name = "late";
    runtime.host = l->runtime;
    l->acted++;
    l->client = weir_client_create(l->runtime, &options, &l->made);
    l->trace = weir_trace_create(l->runtime, NULL, &trace);
    l->pressure = weir_pressure_register(l->runtime, 0, nothing, NULL, &id);
    l->hosted = weir_runtime_create("sim:0", &runtime, &over);
    l->again = weir_runtime_destroy(l->runtime);
}

static void nothing_is_made_on_a_runtime_that_ends(void **state)
{
    (void)state;
    late l = {.runtime = make_runtime(BUDGET)};
    between = make_all;
    between_user = &l;
    ok(weir_runtime_destroy(l.runtime));
    assert_int_equal(l.acted, 1);
    assert_int_equal(l.client, WEIR_ERR_INVALID);
    assert_int_equal(l.trace, WEIR_ERR_INVALID);
    assert_int_equal(l.pressure, WEIR_ERR_INVALID);
    assert_int_equal(l.hosted, WEIR_ERR_INVALID);
    assert_int_equal(l.again, WEIR_ERR_BUSY);
}

/* A refused end has changed nothing. */
static void a_runtime_that_cannot_end_goes_on(void **state)
{
    (void)state;
    late l = {.runtime = make_runtime(BUDGET)};
    weir_client *first = open_client(l.runtime, "first", 0, 0), *second;
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(l.runtime));
    second = open_client(l.runtime, "second", 0, 0);
    void *p = allocate(second, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(second, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(first));
    ok(weir_client_destroy(second));
    ok(weir_runtime_destroy(l.runtime));
}

static void make_some(void *user)
{
    late *l = user;
    uint64_t id;
    l->acted++;
    l->made = open_client(l->runtime, "meanwhile", 0, 0);
    l->pressure = weir_pressure_register(l->runtime, 0, nothing, NULL, &id);
    ok(weir_pressure_unregister(l->runtime, id));
}

/* Nobody is turned away by an end that is refused, not even while it is. */
static void a_refused_end_shuts_nobody_out(void **state)
{
    (void)state;
    late l = {.runtime = make_runtime(BUDGET)};
    weir_client *first = open_client(l.runtime, "first", 0, 0);
    between = make_some;
    between_user = &l;
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(l.runtime));
    assert_int_equal(l.acted, 1);
    ok(l.pressure);
    ok(weir_client_destroy(first));
    ok(weir_client_destroy(l.made));
    ok(weir_runtime_destroy(l.runtime));
}

/* The end has found no client; then there is one. */
static void a_client_that_comes_while_an_end_looks(void **state)
{
    (void)state;
    late l = {.runtime = make_runtime(BUDGET)};
    between = make_some;
    between_user = &l;
    while_it_looks = true;
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(l.runtime));
    while_it_looks = false;
    detail_names("1 open clients");
    assert_int_equal(l.acted, 1);
    void *p = allocate(l.made, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(l.made, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(l.made));
    ok(weir_runtime_destroy(l.runtime));
}

/* A client ---------------------------------------------------------------------------------------------------------------- */

static weir_status suspended;

static void suspend_and_resume(void *user)
{
    suspended = weir_client_suspend(user, NULL, NULL);
    if (suspended == WEIR_OK)
        ok(weir_client_resume(user, WEIR_STREAM_HOST));
}

/* A suspend between the look and the closed door has made what copies need: a stream, and a callback. It goes all the same. */
static void a_suspend_while_a_client_closes(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(BUDGET);
    weir_client *client = open_client(runtime, "model", 0, 0);
    void *p = allocate(client, 1 << 20, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_client_suspend(client, NULL, NULL));
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    suspended = WEIR_ERR_INVALID;
    between = suspend_and_resume;
    between_user = client;
    ok(weir_client_destroy(client));
    assert_int_equal(suspended, WEIR_OK);
    const wi_residence *r = residence_of(client);
    assert_true(r->pressure == 0);
    assert_null(r->stream);
    fails(WEIR_ERR_INVALID, weir_client_suspend(client, NULL, NULL));
    ok(weir_runtime_destroy(runtime));
}

/* Copies of such a suspend may be under way for longer than the close can wait. The client is open again then. */
static void copies_of_a_suspend_while_a_client_closes(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(BUDGET);
    weir_client *client = open_client(runtime, "model", 0, 0);
    ok(weir_client_suspend(client, NULL, NULL));
    ok(weir_client_resume(client, WEIR_STREAM_HOST));
    for (int first = 0; first < 2; first++) {
        residence_stays = 1 - first;
        fails(WEIR_ERR_DRIVER, weir_client_destroy(client));
        detail_names("copies of model");
        void *p = allocate(client, 1 << 20, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        ok(weir_client_suspend(client, NULL, NULL));
        ok(weir_client_resume(client, WEIR_STREAM_HOST));
        ok(weir_free(client, p, WEIR_STREAM_HOST));
    }
    residence_stays = -1;
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* An elastic block --------------------------------------------------------------------------------------------------------- */

typedef struct leaver {
    weir_client *client;
    weir_residency told;
    weir_status status;
} leaver;

static void suspend_it(void *user)
{
    leaver *l = user;
    l->told = WEIR_INIT(weir_residency);
    l->status = weir_client_suspend(l->client, NULL, &l->told);
}

static void a_suspend_while_an_elastic_block_ends(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(BUDGET);
    leaver l = {.client = open_client(runtime, "model", 0, 0)};
    weir_elastic_options options = WEIR_INIT(weir_elastic_options);
    weir_elastic *one, *other;
    options.bytes = PAGES * GRANULE;
    ok(weir_elastic_create(l.client, &options, &one));
    ok(weir_elastic_create(l.client, &options, &other));
    ok(weir_elastic_commit(one, 0, PAGES * GRANULE, WEIR_STREAM_HOST));
    ok(weir_elastic_commit(other, 0, GRANULE, WEIR_STREAM_HOST));
    between = suspend_it;
    between_user = &l;
    ok(weir_elastic_destroy(one, WEIR_STREAM_HOST));
    assert_int_equal(l.status, WEIR_OK);
    assert_int_equal(l.told.away, GRANULE); /* the other one's page, and none of what ends */
    ok(weir_client_resume(l.client, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(other, WEIR_STREAM_HOST));
    ok(weir_client_destroy(l.client));
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_made_on_a_runtime_that_ends),
        cmocka_unit_test(a_runtime_that_cannot_end_goes_on),
        cmocka_unit_test(a_refused_end_shuts_nobody_out),
        cmocka_unit_test(a_client_that_comes_while_an_end_looks),
        cmocka_unit_test(a_suspend_while_a_client_closes),
        cmocka_unit_test(copies_of_a_suspend_while_a_client_closes),
        cmocka_unit_test(a_suspend_while_an_elastic_block_ends),
    };
    return cmocka_run_group_tests_name("ends", tests, NULL, NULL);
}
