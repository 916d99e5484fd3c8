/* A device that starts is waited for by those who want that one, and by nobody else. */
#include "core.h"
#include "core/faulty.h"

#include "sim/device/device.h"

#include <semaphore.h>
#include <stdatomic.h>

static sem_t starting, go_on, turn; /* `turn`: the other caller is done, or stands at a lock that somebody has */
static atomic_int to_hold;          /* the ordinal whose start waits for go_on; -1: none */
static _Thread_local bool tells;
static atomic_bool stood;

/* The linker puts this in the place of the library's locks. */
int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    if (!tells)
        return __real_pthread_mutex_lock(lock);
    if (pthread_mutex_trylock(lock) == 0)
        return 0;
    atomic_store(&stood, true);
    sem_post(&turn);
    return __real_pthread_mutex_lock(lock);
}

static void be_slow(int ordinal)
{
    int held = ordinal;
    if (atomic_compare_exchange_strong(&to_hold, &held, -1)) {
        sem_post(&starting);
        sem_wait(&go_on);
    }
}

/* Of a device that weir_runtime_get finds: where its stack is made. */
struct wi_resource;
weir_status __real_wi_stack_create(const char *text, const wi_driver *driver, wi_device *device,
                                   struct wi_resource **out);
weir_status __wrap_wi_stack_create(const char *text, const wi_driver *driver, wi_device *device,
                                   struct wi_resource **out);
weir_status __wrap_wi_stack_create(const char *text, const wi_driver *driver, wi_device *device,
                                   struct wi_resource **out)
{
    if (driver == &wi_sim_driver)
        be_slow(0);
    return __real_wi_stack_create(text, driver, device, out);
}

/* Of a driver with two devices: where it opens them. */
static weir_status open_slowly(int ordinal, wi_device **out)
{
    be_slow(ordinal);
    return faulty_driver.open(0, out);
}

static wi_driver two;

weir_status wi_runtime_create_over(const wi_driver *driver, int ordinal, const weir_runtime_options *options,
                                   weir_runtime **out);

typedef struct caller {
    const char *device; /* NULL: one of `two` */
    int ordinal;
    weir_runtime *runtime;
    weir_status status;
    atomic_bool done;
    pthread_t thread;
} caller;

static void call(caller *c)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB};
    c->status = c->device ? weir_runtime_get(c->device, NULL, &c->runtime)
                          : wi_runtime_create_over(&two, c->ordinal, &options, &c->runtime);
    atomic_store(&c->done, true);
}

static void *first(void *user)
{
    call(user);
    return NULL;
}

static void *second(void *user)
{
    tells = true;
    call(user);
    sem_post(&turn);
    return NULL;
}

/* Whether `b` is done while the start of `a` is held. */
static bool goes_by(caller *a, caller *b)
{
    atomic_store(&to_hold, a->ordinal);
    atomic_store(&stood, false);
    assert_int_equal(pthread_create(&a->thread, NULL, first, a), 0);
    sem_wait(&starting);
    assert_int_equal(pthread_create(&b->thread, NULL, second, b), 0);
    sem_wait(&turn);
    bool by = atomic_load(&b->done);
    assert_int_equal(atomic_load(&stood), !by);
    assert_false(atomic_load(&a->done));
    sem_post(&go_on);
    pthread_join(a->thread, NULL);
    pthread_join(b->thread, NULL);
    if (!by)
        sem_wait(&turn);
    ok(a->status);
    ok(b->status);
    return by;
}

static void another_device_of_the_driver(void **state)
{
    (void)state;
    caller a = {.ordinal = 0}, b = {.ordinal = 1};
    assert_true(goes_by(&a, &b));
    ok(weir_runtime_destroy(a.runtime));
    ok(weir_runtime_destroy(b.runtime));
}

/* A driver is not asked to open one device twice at once. */
static void the_same_device(void **state)
{
    (void)state;
    caller a = {.ordinal = 1}, b = {.ordinal = 1};
    assert_false(goes_by(&a, &b));
    ok(weir_runtime_destroy(a.runtime));
    ok(weir_runtime_destroy(b.runtime));
}

static void another_driver(void **state)
{
    (void)state;
    caller a = {.device = "sim"}, b = {.device = "host"};
    assert_true(goes_by(&a, &b));
    assert_ptr_not_equal(a.runtime, b.runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_device_of_the_driver),
        cmocka_unit_test(the_same_device),
        cmocka_unit_test(another_driver),
    };
    two = faulty_driver;
    two.name = "two";
    two.ordinals = 2;
    two.open = open_slowly;
    atomic_store(&to_hold, -1);
    sem_init(&starting, 0, 0);
    sem_init(&go_on, 0, 0);
    sem_init(&turn, 0, 0);
    if (weir_option_set("budget", "32MiB") != WEIR_OK)
        return 1;
    return cmocka_run_group_tests_name("start", tests, NULL, NULL);
}
