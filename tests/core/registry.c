/* Plug-ins that ask for engines while they are opened, and threads that ask for plug-ins at once. */
#include "core.h"

#include "test_places.h"
#include <weir/engine.h>

#include <dlfcn.h>
#include <stdatomic.h>

enum { THREADS = 8 };

/* A counter that a plug-in exports; the file is open then, but no engine of weir's yet. */
static atomic_int *counter(const char *plugin, const char *name)
{
    void *library = dlopen(built_path("tests/plugins/weir-engine-%s.so", plugin), RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    return symbol;
}

typedef struct opener {
    pthread_t thread;
    const char *name;
    const weir_engine *engine;
    weir_status status;
} opener;

static void *open_it(void *user)
{
    opener *it = user;
    it->status = weir_engine_get(it->name, &it->engine);
    return NULL;
}

static void start(opener *it, const char *name)
{
    *it = (opener){.name = name};
    assert_int_equal(pthread_create(&it->thread, NULL, open_it, it), 0);
}

static void wait_until(atomic_int *counter_of, int value)
{
    while (atomic_load(counter_of) < value)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

/* It registers another engine, opens a third and lists them all. */
static void an_entry_may_ask(void **state)
{
    (void)state;
    const weir_engine *engine, *brought;
    ok(weir_engine_get("asking", &engine));
    assert_string_equal(engine->name, "asking");
    assert_int_equal(atomic_load(counter("asking", "plugin_partner")), WEIR_OK);
    assert_true(atomic_load(counter("asking", "plugin_listed")) >= 3);
    ok(weir_engine_get("brought", &brought));
    assert_string_equal(brought->name, "brought");
    ok(weir_engine_get("good", &engine));
}

/* It registers one that comes before all others, and lists them: who opens it while going through the list does not notice. */
static void a_list_stays_while_a_plug_in_makes_one(void **state)
{
    (void)state;
    const weir_engine *engine;
    const char *name;
    size_t place = 0, count = 0;
    while (weir_engine_name_at(count))
        count++;
    while ((name = weir_engine_name_at(place)) && strcmp(name, "shifting") != 0)
        place++;
    assert_non_null(name);
    ok(weir_engine_get(name, &engine));
    assert_string_equal(engine->name, "shifting");
    assert_int_equal(atomic_load(counter("shifting", "plugin_listed")), count + 1);
    assert_string_equal(name, "shifting");
    assert_ptr_equal(weir_engine_name_at(place), name);
    assert_null(weir_engine_name_at(count));
    assert_string_equal(weir_engine_name_at(0), "a-first-one");
}

static void one_that_asks_for_itself(void **state)
{
    (void)state;
    const weir_engine *engine;
    ok(weir_engine_get("selfish", &engine));
    assert_int_equal(atomic_load(counter("selfish", "plugin_partner")), WEIR_ERR_CONFLICT);
    assert_int_equal(atomic_load(counter("selfish", "plugin_entries")), 1);
}

/* Two that ask for each other: by one thread, and each by its own. */
static void two_that_ask_for_each_other(void **state)
{
    (void)state;
    const weir_engine *engine;
    ok(weir_engine_get("ping", &engine));
    assert_int_equal(atomic_load(counter("ping", "plugin_partner")), WEIR_OK);
    assert_int_equal(atomic_load(counter("pong", "plugin_partner")), WEIR_ERR_CONFLICT);
    opener left, right;
    atomic_int *in_left = counter("left", "plugin_entries"), *in_right = counter("right", "plugin_entries");
    atomic_int *hold_left = counter("left", "plugin_held"), *hold_right = counter("right", "plugin_held");
    atomic_store(hold_left, 1);
    atomic_store(hold_right, 1);
    start(&left, "left");
    start(&right, "right");
    wait_until(in_left, 1);
    wait_until(in_right, 1);
    atomic_store(hold_left, 0);
    atomic_store(hold_right, 0);
    pthread_join(left.thread, NULL);
    pthread_join(right.thread, NULL);
    assert_int_equal(left.status, WEIR_OK);
    assert_int_equal(right.status, WEIR_OK);
    int of_left = atomic_load(counter("left", "plugin_partner")),
        of_right = atomic_load(counter("right", "plugin_partner"));
    assert_true((of_left == WEIR_OK && of_right == WEIR_ERR_CONFLICT) ||
                (of_left == WEIR_ERR_CONFLICT && of_right == WEIR_OK));
    assert_int_equal(atomic_load(in_left), 1);
    assert_int_equal(atomic_load(in_right), 1);
}

/* All of them get the one; whoever wants another engine, or a list, is not held up. */
static void many_that_ask_for_one(void **state)
{
    (void)state;
    opener all[THREADS];
    const weir_engine *engine;
    atomic_int *entries = counter("slow", "plugin_entries"), *held = counter("slow", "plugin_held");
    atomic_store(held, 1);
    for (int i = 0; i < THREADS; i++)
        start(&all[i], "slow");
    wait_until(entries, 1);
    ok(weir_engine_get("good", &engine));
    fails(WEIR_ERR_NOT_FOUND, weir_engine_get("absent", &engine));
    assert_non_null(weir_engine_name_at(0));
    assert_int_equal(atomic_load(held), 1);
    atomic_store(held, 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(all[i].thread, NULL);
        assert_int_equal(all[i].status, WEIR_OK);
        assert_ptr_equal(all[i].engine, all[0].engine);
    }
    assert_int_equal(atomic_load(entries), 1);
}

/* What is registered while a plug-in of that name is opened has the name. */
static void one_that_was_registered_meanwhile(void **state)
{
    (void)state;
    static weir_engine own;
    const weir_engine *good;
    opener it;
    atomic_int *entries = counter("late", "plugin_entries"), *held = counter("late", "plugin_held");
    ok(weir_engine_get("good", &good));
    memcpy(&own, good, offsetof(weir_engine, unload) + sizeof own.unload);
    own.struct_size = offsetof(weir_engine, provider);
    own.name = "late";
    atomic_store(held, 1);
    start(&it, "late");
    wait_until(entries, 1);
    ok(weir_engine_register(&own));
    atomic_store(held, 0);
    pthread_join(it.thread, NULL);
    assert_int_equal(it.status, WEIR_OK);
    assert_ptr_equal(it.engine, &own);
}

/* Each directory that is named is looked at, and weir's own are behind them, however many there are. */
static void many_directories(void **state)
{
    (void)state;
    const weir_engine *engine;
    char path[256] = "", *end = path;
    ok(weir_option_set("engine_path", "/1:/2:/3:/4:/5:/6:/7:/8:/9"));
    fails(WEIR_ERR_NOT_FOUND, weir_engine_get("absent", &engine));
    detail_names("/9,");
    detail_names("/nowhere/engines/plugins");
    while (end < path + sizeof path - 2)
        end = stpcpy(end, "x:");
    memcpy(end, "x", 2);
    assert_int_equal(strlen(path), sizeof path - 1);
    ok(weir_option_set("engine_path", path));
    fails(WEIR_ERR_NOT_FOUND, weir_engine_get("absent", &engine));
    detail_names("absent");
    ok(weir_option_set("engine_path", built_path("tests/plugins")));
}

static int begin(void **state)
{
    (void)state;
    ok(weir_option_set("engine_path", built_path("tests/plugins")));
    ok(weir_option_set("home", "/nowhere"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_may_ask),         cmocka_unit_test(a_list_stays_while_a_plug_in_makes_one),
        cmocka_unit_test(one_that_asks_for_itself), cmocka_unit_test(two_that_ask_for_each_other),
        cmocka_unit_test(many_that_ask_for_one),    cmocka_unit_test(one_that_was_registered_meanwhile),
        cmocka_unit_test(many_directories),
    };
    return cmocka_run_group_tests_name("registry", tests, begin, NULL);
}
