/* Who waits for a page is woken when its state changes. The clock of weir is an hour ahead, so that no wait ends by itself
 * before the test is ended. */
#include "elastic/elastic.h"
#include "core/faulty.h"

#include "base/system.h"
#include "runtime/runtime.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t an_hour_ahead(void)
{
    return now_ns() + 3600 * UINT64_C(1000000000);
}

static wi_driver tried;
static gate at_driver; /* where a call of the driver's is held */
static atomic_bool holds, then_fails;

static weir_status held_map(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    if (atomic_exchange(&holds, false)) {
        pass_gate(&at_driver);
        if (atomic_exchange(&then_fails, false))
            return weir_fail(WEIR_ERR_DRIVER, "not mapped on purpose");
    }
    return faulty_driver.map(device, address, bytes, count, handles);
}

static weir_status held_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    if (stream && atomic_exchange(&holds, false)) {
        pass_gate(&at_driver);
        return weir_fail(WEIR_ERR_DRIVER, "not filled on purpose");
    }
    return faulty_driver.fill(device, to, value, bytes, stream);
}

static void hold_destroy(void *user)
{
    (void)user;
    if (atomic_exchange(&holds, false))
        pass_gate(&at_driver);
}

static void open_here(fixture *f)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 8 * GRANULE};
    *f = (fixture){.page = GRANULE, .gate = GATE};
    faults_reset(-1);
    tried = faulty_driver;
    tried.map = held_map;
    at_driver = (gate)GATE;
    ok(wi_runtime_create_over(&tried, 0, &options, &f->runtime));
    f->client = open_client(f->runtime, "one", 0, 0);
}

static void close_here(fixture *f)
{
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
    assert_true(faults_nothing_left());
}

typedef struct asker {
    fixture *f;
    weir_elastic *e;
    size_t first, count;
    weir_stream stream;
    bool releases;
    weir_status status;
    pthread_t thread;
    atomic_long number;
} asker;

static void *ask(void *user)
{
    asker *it = user;
    atomic_store(&it->number, (long)syscall(SYS_gettid));
    if (it->releases)
        it->status = weir_elastic_release(it->e, it->first * GRANULE, it->count * GRANULE, WEIR_STREAM_HOST);
    else
        it->status = try_commit(it->f, it->e, it->first, it->count, it->stream);
    return NULL;
}

/* Its thread sleeps: nothing else makes it wait. */
static void until_it_sleeps(const asker *it)
{
    char file[64], state = 0;
    for (int seen = 0; seen < 20;) {
        usleep(1000);
        long number = atomic_load(&it->number);
        snprintf(file, sizeof file, "/proc/self/task/%ld/stat", number);
        FILE *stat = number ? fopen(file, "r") : NULL;
        if (stat && fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        if (stat)
            fclose(stat);
        seen = state == 'S' ? seen + 1 : 0;
    }
}

/* The first one is held in the driver with the second of its pages, for which the other one waits. */
static void wait_for_each_other(asker *first, asker *other)
{
    atomic_store(&holds, true);
    assert_int_equal(pthread_create(&first->thread, NULL, ask, first), 0);
    while (atomic_load(&holds))
        usleep(500);
    assert_int_equal(pthread_create(&other->thread, NULL, ask, other), 0);
    until_it_sleeps(other);
    open_gate(&at_driver);
    pthread_join(first->thread, NULL);
    pthread_join(other->thread, NULL);
    ok(other->status);
}

static void a_page_that_is_there_wakes_who_waits_for_it(void **state)
{
    (void)state;
    fixture f;
    open_here(&f);
    weir_elastic *e = create(&f, 4, true);
    asker first = {.f = &f, .e = e, .first = 1, .count = 1}, other = {.f = &f, .e = e, .first = 0, .count = 3};
    wait_for_each_other(&first, &other);
    pages_are(&f, e, 3, 0);
    ok(first.status);
    assert_int_equal(stats_of(e).commits, 3);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    close_here(&f);
}

static void a_page_that_has_gone_wakes_who_waits_for_it(void **state)
{
    (void)state;
    fixture f;
    open_here(&f);
    weir_elastic *e = create(&f, 4, true);
    asker first = {.f = &f, .e = e, .first = 1, .count = 1, .releases = true},
          other = {.f = &f, .e = e, .first = 0, .count = 3};
    commit(&f, e, 1, 1);
    fault.in_destroy = hold_destroy;
    wait_for_each_other(&first, &other);
    fault.in_destroy = NULL;
    ok(first.status);
    pages_are(&f, e, 3, 0);
    assert_int_equal(stats_of(e).commits, 4);
    assert_int_equal(stats_of(e).releases, 1);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    close_here(&f);
}

/* Another commit could not make it. */
static void a_page_that_is_not_to_be_wakes_who_waits_for_it(void **state)
{
    (void)state;
    fixture f;
    open_here(&f);
    weir_elastic *e = create(&f, 4, true);
    asker first = {.f = &f, .e = e, .first = 1, .count = 1}, other = {.f = &f, .e = e, .first = 0, .count = 3};
    atomic_store(&then_fails, true);
    wait_for_each_other(&first, &other);
    assert_int_equal(first.status, WEIR_ERR_DRIVER);
    pages_are(&f, e, 3, 0);
    assert_int_equal(stats_of(e).commits, 3);
    assert_int_equal(stats_of(e).promised, GRANULE);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    close_here(&f);
}

/* Another commit has taken it back and could not zero it: who waits for that commit waits for the device then. */
static void a_page_that_is_pending_again_wakes_who_waits_for_it(void **state)
{
    (void)state;
    fixture f;
    open_here(&f);
    weir_elastic *e = create(&f, 4, true);
    ok(weir_stream_acquire(f.runtime, &f.stream));
    tried.fill = held_fill;
    commit(&f, e, 1, 1);
    hold_stream(&f);
    release(&f, e, 1, 1, f.stream);
    asker first = {.f = &f, .e = e, .first = 1, .count = 1, .stream = f.stream},
          other = {.f = &f, .e = e, .first = 0, .count = 3};
    atomic_store(&holds, true);
    assert_int_equal(pthread_create(&first.thread, NULL, ask, &first), 0);
    while (atomic_load(&holds))
        usleep(500);
    assert_int_equal(pthread_create(&other.thread, NULL, ask, &other), 0);
    until_it_sleeps(&other);
    open_gate(&at_driver);
    pthread_join(first.thread, NULL);
    assert_int_equal(first.status, WEIR_ERR_DRIVER);
    let_go(&f);
    pthread_join(other.thread, NULL);
    ok(other.status);
    pages_are(&f, e, 3, 0);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_stream_release(f.stream));
    close_here(&f);
}

int main(void)
{
    wi_clock = an_hour_ahead;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_that_is_there_wakes_who_waits_for_it),
        cmocka_unit_test(a_page_that_has_gone_wakes_who_waits_for_it),
        cmocka_unit_test(a_page_that_is_not_to_be_wakes_who_waits_for_it),
        cmocka_unit_test(a_page_that_is_pending_again_wakes_who_waits_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
