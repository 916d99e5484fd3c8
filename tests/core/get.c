/* Finding the runtime of a device: who comes first makes it, a failed start leaves nothing, and later calls take no lock. */
#include "info.h"
#include "core.h"
#include "sim/device/device.h"

#include <stdatomic.h>

enum { FIRST = 12, LOOKS = 20000 };

/* The linker puts these in the place of the library's locks. */
static _Thread_local unsigned locks;
static _Thread_local void (*before_lock)(void); /* called once */
#define COUNTED(function, type)                                                                                        \
    int __real_##function(type *lock);                                                                                 \
    int __wrap_##function(type *lock);                                                                                 \
    int __wrap_##function(type *lock)                                                                                  \
    {                                                                                                                  \
        void (*fn)(void) = before_lock;                                                                                \
        before_lock = NULL;                                                                                            \
        if (fn)                                                                                                        \
            fn();                                                                                                      \
        locks++;                                                                                                       \
        return __real_##function(lock);                                                                                \
    }
COUNTED(pthread_mutex_lock, pthread_mutex_t)
COUNTED(pthread_rwlock_rdlock, pthread_rwlock_t)
COUNTED(pthread_rwlock_wrlock, pthread_rwlock_t)

typedef struct caller {
    const char *device;
    weir_runtime *first;
    weir_status status;
    unsigned wrong, locks;
} caller;

static pthread_barrier_t line;
static atomic_bool stop;

static void *get_often(void *user)
{
    caller *c = user;
    pthread_barrier_wait(&line);
    c->status = weir_runtime_get(c->device, NULL, &c->first);
    if (c->status != WEIR_OK)
        return NULL;
    locks = 0;
    for (int i = 0; i < LOOKS; i++) {
        weir_runtime *again;
        c->wrong += weir_runtime_get(c->device, NULL, &again) != WEIR_OK || again != c->first;
    }
    c->locks = locks;
    return NULL;
}

/* Others come and go in the list meanwhile. */
static void *make_and_destroy(void *user)
{
    unsigned *wrong = user;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB};
    pthread_barrier_wait(&line);
    while (!atomic_load(&stop)) {
        weir_runtime *own;
        *wrong += weir_runtime_create("host", &options, &own) != WEIR_OK || weir_runtime_destroy(own) != WEIR_OK;
    }
    return NULL;
}

static void all_at_once(const char *device, weir_status expected)
{
    caller callers[FIRST];
    pthread_t threads[FIRST], other;
    unsigned wrong = 0;
    atomic_store(&stop, false);
    pthread_barrier_init(&line, NULL, FIRST + 1);
    assert_int_equal(pthread_create(&other, NULL, make_and_destroy, &wrong), 0);
    for (int i = 0; i < FIRST; i++) {
        callers[i] = (caller){.device = device};
        assert_int_equal(pthread_create(&threads[i], NULL, get_often, &callers[i]), 0);
    }
    for (int i = 0; i < FIRST; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&stop, true);
    pthread_join(other, NULL);
    pthread_barrier_destroy(&line);
    assert_int_equal(wrong, 0);
    for (int i = 0; i < FIRST; i++) {
        assert_int_equal(callers[i].status, expected);
        assert_ptr_equal(callers[i].first, callers[0].first);
        assert_int_equal(callers[i].wrong, 0);
        assert_int_equal(callers[i].locks, 0);
    }
}

static void a_failed_start_leaves_the_slot_empty(void **state)
{
    (void)state;
    weir_runtime *runtime = (weir_runtime *)state;
    const wi_sim_fault once = {.kind = WI_SIM_OPEN, .at = 0, .status = WEIR_ERR_DRIVER};
    const wi_sim_fault always = {.kind = WI_SIM_OPEN, .at = 0, .stay = true, .status = WEIR_ERR_DRIVER};
    ok(weir_option_set("budget", "32MiB"));
    wi_sim_arm(&once, NULL);
    fails(WEIR_ERR_DRIVER, weir_runtime_get("sim", NULL, &runtime));
    assert_null(runtime);
    assert_int_equal(wi_sim_faults(), 1);
    wi_sim_arm(&always, NULL);
    all_at_once("sim", WEIR_ERR_DRIVER);
    assert_int_equal(wi_sim_faults(), FIRST); /* each tried again */
    wi_sim_arm(NULL, NULL);
    all_at_once("sim", WEIR_OK);
    ok(weir_runtime_get("sim", NULL, &runtime));
    assert_string_equal(runtime_details(runtime).device, "sim");
}

static weir_runtime *quicker;

static void *get_once(void *user)
{
    weir_runtime **out = user;
    return weir_runtime_get("host", NULL, out) == WEIR_OK ? NULL : user;
}

static void another_gets_it(void)
{
    pthread_t other;
    void *failed;
    assert_int_equal(pthread_create(&other, NULL, get_once, &quicker), 0);
    pthread_join(other, &failed);
    assert_null(failed);
}

/* Between the look at the slot and the lock, another thread makes the runtime: it is the one for both. */
static void whoever_comes_second_looks_again(void **state)
{
    (void)state;
    weir_runtime *runtime;
    before_lock = another_gets_it;
    ok(weir_runtime_get("host", NULL, &runtime));
    assert_non_null(quicker);
    assert_ptr_equal(runtime, quicker);
}

static void one_runtime_for_all(void **state)
{
    (void)state;
    weir_runtime *host, *sim;
    all_at_once("host", WEIR_OK);
    all_at_once("host", WEIR_OK);
    ok(weir_runtime_get("host", NULL, &host));
    ok(weir_runtime_get("sim", NULL, &sim)); /* each driver has its own */
    assert_ptr_not_equal(host, sim);
    /* Whoever names a budget asks the ledger, which has a lock. */
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 32 * MIB};
    ok(weir_runtime_get("host", &options, &sim));
    assert_ptr_equal(host, sim);
    options.budget++;
    fails(WEIR_ERR_CONFLICT, weir_runtime_get("host", &options, &sim));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_start_leaves_the_slot_empty),
        cmocka_unit_test(whoever_comes_second_looks_again),
        cmocka_unit_test(one_runtime_for_all),
    };
    return cmocka_run_group_tests_name("get", tests, NULL, NULL);
}
