/* Threads that allocate and free on the same streams of "async": what one has is no other's, for the host and in the order of
 * streams. */
#include "bases.h"

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *one;
    weir_stream a, b;
} fixture;

enum { RACERS = 4, TURNS = 400, SLOTS = RACERS };

typedef struct stamp {
    uint64_t *at, value;
    size_t words;
} stamp;

static pthread_mutex_t race_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char *start, *end;
} held_now[SLOTS];
static atomic_int wrong;

static void write_stamp(void *user)
{
    const stamp *s = user;
    s->at[0] = s->at[s->words - 1] = s->value;
}

static void check_stamp(void *user)
{
    const stamp *s = user;
    atomic_fetch_add(&wrong, s->at[0] != s->value || s->at[s->words - 1] != s->value);
}

static void note(int racer, char *start, size_t bytes)
{
    pthread_mutex_lock(&race_lock);
    for (int i = 0; i < SLOTS; i++)
        atomic_fetch_add(&wrong, held_now[i].start && start < held_now[i].end && start + bytes > held_now[i].start);
    held_now[racer].start = start;
    held_now[racer].end = start + bytes;
    pthread_mutex_unlock(&race_lock);
}

typedef struct racer {
    fixture *f;
    int number;
    stamp stamps[TURNS];
} racer;

static void *race(void *user)
{
    racer *r = user;
    fixture *f = r->f;
    uint64_t random = (uint64_t)r->number + 1;
    for (int turn = 0; turn < TURNS; turn++) {
        stamp *s = &r->stamps[turn];
        weir_stream stream = next_random(&random) % 3 ? f->a : f->b;
        size_t bytes = 1024u << next_random(&random) % 2;
        void *p;
        if (weir_alloc(f->one, bytes, stream, WEIR_CLASS_KV, &p) != WEIR_OK)
            return user;
        note(r->number, p, bytes);
        *s = (stamp){p, (uint64_t)r->number << 32 | (unsigned)turn, bytes / sizeof *s->at};
        if (weir_call(f->runtime, write_stamp, s, stream) != WEIR_OK ||
            weir_call(f->runtime, check_stamp, s, stream) != WEIR_OK)
            return user;
        pthread_mutex_lock(&race_lock);
        held_now[r->number].start = NULL;
        pthread_mutex_unlock(&race_lock);
        if (weir_free(f->one, p, stream) != WEIR_OK)
            return user;
    }
    return NULL;
}

static wi_device *device;

static weir_status open_host(int ordinal, wi_device **out)
{
    weir_status status = wi_host_driver.open(ordinal, out);
    device = *out;
    return status;
}

static void hand_overs_do_not_race(void **state)
{
    (void)state;
    fixture all = {0}, *f = &all;
    wi_driver driver = wi_host_driver;
    driver.open = open_host;
    f->runtime = make_over(&driver, "async", 64 * MIB);
    f->one = open_client(f->runtime, "one", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    racer *racers = calloc(RACERS, sizeof *racers);
    pthread_t threads[RACERS];
    atomic_store(&wrong, 0);
    for (int i = 0; i < RACERS; i++) {
        racers[i].f = f;
        racers[i].number = i;
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    ok(weir_stream_synchronize(f->a));
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(atomic_load(&wrong), 0);
    weir_stats s = stats_of(f->runtime);
    assert_int_equal(s.live + s.pending, 0);
    uint64_t held;
    ok(wi_host_driver.pool_held(device, &held));
    assert_int_equal(s.held, held);
    free(racers);
    ok(weir_client_destroy(f->one));
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    check_empty(f->runtime);
    ok(weir_runtime_destroy(f->runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hand_overs_do_not_race)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
