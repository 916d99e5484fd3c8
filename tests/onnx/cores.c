/* The cores that runs compute with: never more than the process has, whichever models run; given back however a run ends. */
#include "watch.h"
#include <weir/cores.h>
#include <weir/engine.h>

#include <pthread.h>
#include <sched.h>

#include "onnx/engine/model.h"

enum { RUNS = 3 };

static weir_cores_totals totals(void)
{
    weir_cores_totals now = {.struct_size = sizeof now};
    assert_ok(weir_cores_info(&now));
    return now;
}

static weir_cores_stats line(size_t index)
{
    weir_cores_stats now = {.struct_size = sizeof now};
    assert_ok(weir_cores_look(index, &now));
    return now;
}

static void until_waiting(uint32_t count)
{
    while (totals().waiting != count)
        sched_yield();
}

/* ---- what is watched --------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int inside; /* runs in ONNX Runtime, with the lock */
static bool opened;
static atomic_int threads_of_sessions;

/* Every run stays in ONNX Runtime until the test lets all go. */
static ort_status *held_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                            const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                            size_t output_count, ort_value **outputs)
{
    pthread_mutex_lock(&lock);
    inside++;
    pthread_cond_broadcast(&change);
    while (!opened)
        pthread_cond_wait(&change, &lock);
    inside--;
    pthread_mutex_unlock(&lock);
    return real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
}

static void close_gate(void)
{
    opened = false;
    watched.Run = held_run;
}

static void open_gate(void)
{
    pthread_mutex_lock(&lock);
    opened = true;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static int count_inside(void)
{
    pthread_mutex_lock(&lock);
    int count = inside;
    pthread_mutex_unlock(&lock);
    return count;
}

static void until_inside(int count)
{
    pthread_mutex_lock(&lock);
    while (inside < count)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

static ort_status *noted_threads(ort_session_options *options, int count)
{
    atomic_store(&threads_of_sessions, count);
    return real->SetIntraOpNumThreads(options, count);
}

static atomic_int rests, spins;

static ort_status *noted_entry(ort_session_options *options, const char *key, const char *value)
{
    if (strcmp(key, "session.force_spinning_stop") == 0 && strcmp(value, "1") == 0)
        atomic_fetch_add(&rests, 1);
    if (strcmp(key, "session.intra_op.spin_duration_us") == 0)
        atomic_store(&spins, atoi(value));
    return real->AddSessionConfigEntry(options, key, value);
}

/* Fails: it has no outputs of that name. */
static ort_status *failing_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                               const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                               size_t output_count, ort_value **outputs)
{
    static const char *const none[] = {"none"};
    (void)output_names;
    (void)output_count;
    return real->Run(session, options, input_names, inputs, input_count, none, 1, outputs);
}

static int begin(void **state)
{
    assert_ok(weir_option_set("cores", "2"));
    return watch(state);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static void a_session_has_as_many_threads_as_it_leases(void **state)
{
    (void)state;
    static const char *const three[] = {"threads=3", NULL};
    watched.SetIntraOpNumThreads = noted_threads;
    loaded a = load_model("mlp", NULL);
    assert_int_equal(atomic_load(&threads_of_sessions), 2);
    assert_int_equal(line(0).least, 2);
    assert_int_equal(line(0).most, 2);
    loaded b = load_model("mlp", three);
    assert_int_equal(atomic_load(&threads_of_sessions), 3);
    assert_int_equal(line(1).least, 3);
    numbered run = {.l = &b, .id = 1};
    run_numbered(&run);
    assert_int_equal(run.status, WEIR_OK);
    assert_int_equal(line(1).last, 2); /* there are no more */
    assert_int_equal(totals().leased, 0);
    unload_model(&a);
    close_client(&a);
    unload_model(&b);
    close_client(&b);
    assert_int_equal(totals().lines, 0);
}

/* Between runs the cores are another model's, and within a run a thread may wait for another that the system does not run. */
static void threads_of_a_session_spin_a_little_and_within_runs_only(void **state)
{
    (void)state;
    atomic_store(&rests, 0);
    atomic_store(&spins, 0);
    watched.AddSessionConfigEntry = noted_entry;
    loaded a = load_model("mlp", NULL);
    assert_int_equal(atomic_load(&rests), 1);
    assert_in_range(atomic_load(&spins), 1, 100); /* microseconds */
    unload_model(&a);
    close_client(&a);
}

static void models_take_turns_and_runs_of_one_share(void **state)
{
    (void)state;
    loaded a = load_model("mlp", NULL), b = load_model("mlp", NULL);
    pthread_t threads[RUNS], other;
    numbered runs[RUNS], of_b = {.l = &b, .id = 9};
    close_gate();
    for (int i = 0; i < RUNS; i++) {
        runs[i] = (numbered){.l = &a, .id = 1 + (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, run_numbered, &runs[i]), 0);
        until_inside(i + 1);
    }
    assert_int_equal(totals().leased, 2);
    assert_int_equal(pthread_create(&other, NULL, run_numbered, &of_b), 0);
    until_waiting(1);
    assert_int_equal(count_inside(), RUNS); /* it has not begun */
    open_gate();
    for (int i = 0; i < RUNS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(runs[i].status, WEIR_OK);
    }
    pthread_join(other, NULL);
    assert_int_equal(of_b.status, WEIR_OK);
    assert_int_equal(line(0).leases, RUNS);
    assert_int_equal(line(1).waits, 1);
    assert_int_equal(totals().leased, 0);
    assert_true(totals().peak <= 2);
    unload_model(&a);
    close_client(&a);
    unload_model(&b);
    close_client(&b);
}

static void a_run_that_waits_for_cores_can_be_cancelled(void **state)
{
    (void)state;
    uint32_t cores;
    weir_cores *here;
    loaded l = load_model("mlp", NULL);
    numbered run = {.l = &l, .id = 7};
    pthread_t thread;
    assert_ok(weir_cores_open("here", 2, 2, &here));
    assert_ok(weir_cores_take(here, NULL, NULL, &cores));
    assert_int_equal(pthread_create(&thread, NULL, run_numbered, &run), 0);
    until_waiting(1);
    assert_ok(l.engine->cancel(l.model, 7));
    pthread_join(thread, NULL);
    assert_int_equal(run.status, WEIR_ERR_CANCELLED);
    assert_int_equal(totals().leased, 2);
    assert_int_equal(totals().waiting, 0);
    weir_cores_give(here);
    weir_cores_close(here);
    unload_model(&l);
    close_client(&l);
}

static void a_run_that_fails_gives_its_cores_back(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    numbered run = {.l = &l, .id = 7};
    watched.Run = failing_run;
    run_numbered(&run);
    assert_int_not_equal(run.status, WEIR_OK);
    assert_int_equal(line(0).leases, 1);
    assert_int_equal(totals().leased, 0);
    unload_model(&l);
    close_client(&l);
}

/* A run of a thread that has a lease of its own. */
typedef struct leasing {
    numbered run;
    weir_cores *own;
    uint32_t leased; /* in all, behind the run */
} leasing;

static void *run_with_a_lease(void *user)
{
    leasing *it = user;
    uint32_t cores;
    weir_status status = weir_cores_take(it->own, NULL, NULL, &cores);
    run_numbered(&it->run);
    it->leased = totals().leased;
    if (status == WEIR_OK)
        weir_cores_give(it->own);
    return NULL;
}

/* A run that is cancelled before its turn has taken no cores, and gives none back: the lease of its thread is the caller's. */
static void a_run_that_never_began_leaves_the_callers_cores(void **state)
{
    (void)state;
    weir_cores *own;
    pthread_t threads[2];
    loaded l = load_model("mlp", (const char *const[]){"threads=1", "concurrency=1", NULL});
    assert_ok(weir_cores_open("own", 1, 1, &own));
    numbered first = {.l = &l, .id = 1};
    leasing second = {.run = {.l = &l, .id = 2}, .own = own};
    close_gate();
    assert_int_equal(pthread_create(&threads[0], NULL, run_numbered, &first), 0);
    until_inside(1);
    assert_int_equal(pthread_create(&threads[1], NULL, run_with_a_lease, &second), 0);
    while (onnx_buckets_look(l.model).waiting == 0)
        sched_yield();
    assert_ok(l.engine->cancel(l.model, 2));
    pthread_join(threads[1], NULL);
    open_gate();
    pthread_join(threads[0], NULL);
    assert_int_equal(first.status, WEIR_OK);
    assert_int_equal(second.run.status, WEIR_ERR_CANCELLED);
    assert_int_equal(second.leased, 2);
    assert_int_equal(totals().leased, 0);
    weir_cores_close(own);
    unload_model(&l);
    close_client(&l);
}

int main(void)
{
    int missing = need_onnxruntime();
    if (missing)
        return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_session_has_as_many_threads_as_it_leases, begin, unwatch),
        cmocka_unit_test_setup_teardown(threads_of_a_session_spin_a_little_and_within_runs_only, begin, unwatch),
        cmocka_unit_test_setup_teardown(models_take_turns_and_runs_of_one_share, begin, unwatch),
        cmocka_unit_test_setup_teardown(a_run_that_waits_for_cores_can_be_cancelled, begin, unwatch),
        cmocka_unit_test_setup_teardown(a_run_that_fails_gives_its_cores_back, begin, unwatch),
        cmocka_unit_test_setup_teardown(a_run_that_never_began_leaves_the_callers_cores, begin, unwatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
