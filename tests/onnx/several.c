/* Two and three of everything at once: runs with one number, in ONNX Runtime and in the line, a cancel that comes when all is
 * computed, and inputs of which the last counts as the first does. */
#include "watch.h"
#include <weir/engine.h>

#include <pthread.h>
#include <unistd.h>

#include <weir/stream.h>

#include "base/probes.h"
#include "onnx/engine/model.h"

enum { RUNS = 3, WIDTH = 4 };

/* ---- what is watched --------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int inside; /* runs that are held in ONNX Runtime; with the lock, and so is the next */
static bool opened;
static atomic_int stopped, values_made, values_released;

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
    pthread_mutex_unlock(&lock);
    return real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
}

static void close_gate(void)
{
    inside = 0;
    opened = false;
    watched.Run = held_run;
}

static struct timespec soon(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    return until;
}

static void wait_until_inside(int count)
{
    struct timespec until = soon();
    int waited = 0;
    pthread_mutex_lock(&lock);
    while (inside < count && waited == 0)
        waited = pthread_cond_timedwait(&change, &lock, &until);
    pthread_mutex_unlock(&lock);
    assert_int_equal(waited, 0);
}

static void open_gate(void)
{
    pthread_mutex_lock(&lock);
    opened = true;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static ort_status *counted_stop(ort_run_options *options)
{
    atomic_fetch_add(&stopped, 1);
    return real->RunOptionsSetTerminate(options);
}

static ort_status *counted_value(const ort_memory_info *info, void *data, size_t bytes, const int64_t *shape,
                                 size_t rank, int type, ort_value **out)
{
    atomic_fetch_add(&values_made, 1);
    return real->CreateTensorWithDataAsOrtValue(info, data, bytes, shape, rank, type, out);
}

static void counted_release(ort_value *value)
{
    atomic_fetch_add(&values_released, value != NULL);
    real->ReleaseValue(value);
}

/* ---- cancels ----------------------------------------------------------------------------------------------------- */

static void check_metrics(const loaded *l, uint64_t runs, uint64_t cancelled)
{
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    assert_ok(l->engine->metrics(l->model, &metrics));
    assert_int_equal(metrics.runs, runs);
    assert_int_equal(metrics.cancelled, cancelled);
    assert_int_equal(metrics.failures, 0);
}

/* Three are in ONNX Runtime; once by the number that means all, and by a number that two of the three have. */
static void a_cancel_stops_every_run_that_it_means(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    uint64_t before = live(&l);
    watched.RunOptionsSetTerminate = counted_stop;
    for (int meant = 0; meant < 4; meant++) { /* 3: all; otherwise all but the run of that place */
        pthread_t threads[RUNS];
        numbered runs[RUNS];
        close_gate();
        atomic_store(&stopped, 0);
        for (int i = 0; i < RUNS; i++) {
            runs[i] = (numbered){.l = &l, .id = i == meant ? 8 : 7};
            assert_int_equal(pthread_create(&threads[i], NULL, run_numbered, &runs[i]), 0);
            wait_until_inside(i + 1);
        }
        weir_status found = l.engine->cancel(l.model, meant == 3 ? 0 : 7);
        open_gate();
        for (int i = 0; i < RUNS; i++)
            pthread_join(threads[i], NULL);
        assert_ok(found);
        assert_int_equal(atomic_load(&stopped), meant == 3 ? 3 : 2);
        for (int i = 0; i < RUNS; i++)
            assert_int_equal(runs[i].status, i == meant ? WEIR_OK : WEIR_ERR_CANCELLED);
        assert_int_equal(live(&l), before);
    }
    check_metrics(&l, 4 * RUNS, 3 * 2 + 3);
    assert_status(l.engine->cancel(l.model, 7), WEIR_ERR_NOT_FOUND);
    unload_model(&l);
    close_client(&l);
}

/* Whether its run has returned before long. */
static bool returns(pthread_t thread)
{
    struct timespec until = soon();
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
}

/* One is in ONNX Runtime, three wait for their turn. Those that are cancelled leave while the first is held. */
static void a_cancel_finds_every_run_that_waits(void **state)
{
    (void)state;
    loaded l = load_model("mlp", (const char *const[]){"concurrency=1", NULL});
    for (int meant = 0; meant < 4; meant++) { /* 3: all; otherwise all but the run of that place in the line */
        pthread_t threads[RUNS], holds;
        numbered runs[RUNS], first = {.l = &l, .id = 9};
        close_gate();
        assert_int_equal(pthread_create(&holds, NULL, run_numbered, &first), 0);
        wait_until_inside(1);
        for (int i = 0; i < RUNS; i++) {
            runs[i] = (numbered){.l = &l, .id = i == meant ? 8 : 7};
            assert_int_equal(pthread_create(&threads[i], NULL, run_numbered, &runs[i]), 0);
            while (onnx_buckets_look(l.model).waiting < (size_t)i + 1)
                usleep(500);
        }
        weir_status found = l.engine->cancel(l.model, meant == 3 ? 0 : 7);
        bool left[RUNS] = {false};
        for (int i = 0; i < RUNS; i++)
            left[i] = i != meant && returns(threads[i]);
        size_t waiting = onnx_buckets_look(l.model).waiting;
        open_gate();
        pthread_join(holds, NULL);
        for (int i = 0; i < RUNS; i++)
            if (!left[i])
                pthread_join(threads[i], NULL);
        assert_ok(found);
        assert_int_equal(waiting, meant < 3);
        assert_int_equal(first.status, meant == 3 ? WEIR_ERR_CANCELLED : WEIR_OK);
        for (int i = 0; i < RUNS; i++) {
            assert_int_equal(left[i], i != meant);
            assert_int_equal(runs[i].status, i == meant ? WEIR_OK : WEIR_ERR_CANCELLED);
        }
    }
    check_metrics(&l, 4 * (RUNS + 1), 3 * 2 + 4);
    unload_model(&l);
    close_client(&l);
}

static const loaded *cancels;

/* The cancel comes between the last node and the engine's own look. */
static ort_status *cancelled_at_its_end(ort_session *session, const ort_run_options *options,
                                        const char *const *input_names, const ort_value *const *inputs,
                                        size_t input_count, const char *const *output_names, size_t output_count,
                                        ort_value **outputs)
{
    ort_status *status =
        real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
    if (!status && cancels->engine->cancel(cancels->model, 5) != WEIR_OK)
        abort();
    return status;
}

static void a_run_that_is_cancelled_at_its_end_has_no_results(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    uint64_t before = live(&l);
    numbered one = {.l = &l, .id = 5};
    cancels = &l;
    watched.Run = cancelled_at_its_end;
    watched.ReleaseValue = counted_release;
    atomic_store(&values_released, 0);
    run_numbered(&one);
    assert_int_equal(one.status, WEIR_ERR_CANCELLED);
    assert_int_equal(atomic_load(&values_released), 1 + 3); /* its input and its results */
    assert_int_equal(live(&l), before);
    watched.Run = real->Run;
    run_numbered(&one);
    assert_int_equal(one.status, WEIR_OK);
    check_metrics(&l, 2, 1);
    unload_model(&l);
    close_client(&l);
}

#ifdef WEIR_INVARIANTS /* others have no windows */
/* Runs of `joined`, one row each. */
static void *run_joined(void *user)
{
    numbered *it = user;
    int64_t row[WIDTH] = {1, 2, 3, (int64_t)it->id}, factor = 3;
    weir_tensor both[] = {tensor("ids", WEIR_TYPE_I64, SHAPE(1, WIDTH), row),
                          tensor("scale", WEIR_TYPE_I64, SHAPE(1, 1), &factor)};
    weir_inference inference = {.struct_size = sizeof inference, .inputs = both, .input_count = 2, .id = it->id};
    weir_outputs out = WEIR_INIT(weir_outputs);
    it->status = it->l->engine->infer(it->l->model, &inference, &out);
    if (it->status != WEIR_OK)
        return NULL;
    const int64_t *y = output(&out, "y")->data;
    for (int i = 0; i < WIDTH; i++)
        if (y[i] != (1000 + row[i]) * factor)
            it->status = WEIR_ERR_CORRUPT;
    it->l->engine->release_outputs(it->l->model, &out);
    return NULL;
}

static int more, found_again; /* cancels to come, and that have found the run */

/* The run is still there: its thread has not been woken. */
static void cancel_once_more(wi_window_point place)
{
    if (place == WI_WINDOW_RUN_MARKED && more-- > 0)
        found_again += cancels->engine->cancel(cancels->model, 1) == WEIR_OK;
}

/* Of three that are computed together the first is cancelled, and twice more before it has left: it leaves once, and the call
 * goes on for the others. */
static void a_run_that_is_cancelled_thrice_leaves_once(void **state)
{
    (void)state;
    static const char *const together[] = {"max_batch_size=3", "max_queue_delay_microseconds=60000000", NULL};
    pthread_t threads[RUNS];
    numbered runs[RUNS];
    loaded l = load_model("joined", together);
    close_gate();
    atomic_store(&stopped, 0);
    watched.RunOptionsSetTerminate = counted_stop;
    cancels = &l;
    more = 2;
    found_again = 0;
    wi_window_hook = cancel_once_more;
    for (int i = 0; i < RUNS; i++) {
        runs[i] = (numbered){.l = &l, .id = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, run_joined, &runs[i]), 0);
    }
    wait_until_inside(1);
    weir_status found = l.engine->cancel(l.model, 1);
    open_gate();
    for (int i = 0; i < RUNS; i++)
        pthread_join(threads[i], NULL);
    wi_window_hook = NULL;
    assert_ok(found);
    assert_int_equal(found_again, 2);
    assert_int_equal(atomic_load(&stopped), 0);
    for (int i = 0; i < RUNS; i++)
        assert_int_equal(runs[i].status, i == 0 ? WEIR_ERR_CANCELLED : WEIR_OK);
    check_metrics(&l, RUNS, 1);
    unload_model(&l);
    close_client(&l);
}

/* Whichever two of three that are computed together are cancelled: the call goes on for the third. */
static void a_call_goes_on_while_one_is_left(void **state)
{
    (void)state;
    static const char *const together[] = {"max_batch_size=3", "max_queue_delay_microseconds=60000000", NULL};
    loaded l = load_model("joined", together);
    watched.RunOptionsSetTerminate = counted_stop;
    for (int left = 0; left < RUNS; left++) {
        pthread_t threads[RUNS];
        numbered runs[RUNS];
        close_gate();
        atomic_store(&stopped, 0);
        for (int i = 0; i < RUNS; i++) {
            runs[i] = (numbered){.l = &l, .id = (uint64_t)i + 1};
            assert_int_equal(pthread_create(&threads[i], NULL, run_joined, &runs[i]), 0);
        }
        wait_until_inside(1);
        for (int i = 0; i < RUNS; i++)
            if (i != left)
                assert_ok(l.engine->cancel(l.model, (uint64_t)i + 1));
        assert_int_equal(atomic_load(&stopped), 0);
        open_gate();
        for (int i = 0; i < RUNS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(runs[i].status, i == left ? WEIR_OK : WEIR_ERR_CANCELLED);
        }
    }
    check_metrics(&l, 3 * RUNS, 3 * 2);
    unload_model(&l);
    close_client(&l);
}

#endif

/* ---- the stream of a run's inputs ---------------------------------------------------------------------------------- */

typedef struct late {
    float *x;
    atomic_bool begun;
} late;

/* The work on the stream that makes the inputs: done when the run has been called. */
static void write_late(void *user)
{
    late *it = user;
    while (!atomic_load(&it->begun))
        usleep(500);
    usleep(20000); /* a run that does not wait has read them by then */
    for (int i = 0; i < 16; i++)
        it->x[i] = 7;
}

/* What is queued on it when the run is called is done before its inputs are read. */
static void inputs_are_there_when_their_stream_is(void **state)
{
    (void)state;
    loaded l = load_model("copies", NULL);
    float x[16] = {0};
    late work = {.x = x};
    weir_stream stream;
    weir_outputs out = WEIR_INIT(weir_outputs);
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    assert_ok(weir_stream_acquire(l.runtime, &stream));
    weir_inference inference = {.struct_size = sizeof inference, .inputs = &in, .input_count = 1, .stream = stream};
    assert_ok(weir_call(l.runtime, write_late, &work, stream));
    atomic_store(&work.begun, true);
    assert_ok(l.engine->infer(l.model, &inference, &out));
    for (int i = 0; i < 16; i++)
        assert_true(((const float *)output(&out, "y")->data)[i] == 7);
    l.engine->release_outputs(l.model, &out);
    assert_ok(weir_stream_release(stream));
    unload_model(&l);
    close_client(&l);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* As a program has them whose header is newer: each structure has more behind it. */
typedef struct newer_tensor {
    weir_tensor known;
    uint64_t unknown[3];
} newer_tensor;

static int64_t ids[WIDTH] = {3, 1, 4, 1}, scale[1] = {2};

static void has_results(weir_outputs *out)
{
    const weir_tensor *y = output(out, "y"), *sum = output(out, "sum");
    int64_t total = 0;
    assert_int_equal(out->count, 2);
    assert_int_equal(y->bytes, sizeof ids);
    assert_int_equal(sum->bytes, sizeof total);
    assert_false(y->on_device || sum->on_device);
    for (int i = 0; i < WIDTH; i++) {
        assert_int_equal(((const int64_t *)y->data)[i], (1000 + ids[i]) * scale[0]);
        total += (1000 + ids[i]) * scale[0];
    }
    assert_int_equal(((const int64_t *)sum->data)[0], total);
}

static void inputs_are_taken_by_name_and_size_in_any_order(void **state)
{
    (void)state;
    loaded l = load_model("joined", NULL);
    watched.CreateTensorWithDataAsOrtValue = counted_value;
    watched.ReleaseValue = counted_release;
    for (int order = 0; order < 2; order++) {
        newer_tensor both[2];
        weir_outputs out;
        memset(both, 0x5a, sizeof both);
        both[order].known = tensor("ids", WEIR_TYPE_I64, SHAPE(1, WIDTH), ids);
        both[!order].known = tensor("scale", WEIR_TYPE_I64, SHAPE(1, 1), scale);
        both[0].known.struct_size = both[1].known.struct_size = sizeof both[0];
        atomic_store(&values_made, 0);
        atomic_store(&values_released, 0);
        assert_ok(infer(&l, &both[0].known, 2, &out));
        has_results(&out);
        assert_int_equal(atomic_load(&values_made), 2);
        assert_int_equal(atomic_load(&values_released), 2);
        l.engine->release_outputs(l.model, &out);
        assert_int_equal(atomic_load(&values_released), 2 + 2);
    }
    unload_model(&l);
    close_client(&l);
}

static void refused(const loaded *l, const weir_tensor *inputs, size_t count, const char *words)
{
    weir_outputs out;
    int made = atomic_load(&values_made), released = atomic_load(&values_released);
    assert_status(infer(l, inputs, count, &out), WEIR_ERR_INVALID);
    assert_detail(words);
    assert_int_equal(atomic_load(&values_made) - made, atomic_load(&values_released) - released);
}

static void what_is_wrong_with_the_second_input_is_said(void **state)
{
    (void)state;
    loaded l = load_model("joined", NULL);
    weir_tensor first = tensor("ids", WEIR_TYPE_I64, SHAPE(1, WIDTH), ids),
                second = tensor("scale", WEIR_TYPE_I64, SHAPE(1, 1), scale), other = second;
    watched.CreateTensorWithDataAsOrtValue = counted_value;
    watched.ReleaseValue = counted_release;
    refused(&l, &first, 1, "input \"scale\" is missing");
    refused(&l, &second, 1, "input \"ids\" is missing");
    refused(&l, (weir_tensor[]){first, first}, 2, "input \"ids\" is given twice");
    refused(&l, (weir_tensor[]){first, second, second}, 3, "input \"scale\" is given twice");
    refused(&l, (weir_tensor[]){second, first, second}, 3, "input \"scale\" is given twice");
    other.name = "factor";
    refused(&l, (weir_tensor[]){first, other}, 2, "no input \"factor\"; its inputs are: ids, scale");
    other = tensor("scale", WEIR_TYPE_I64, SHAPE(1, 2), ids);
    refused(&l, (weir_tensor[]){first, other}, 2, "input \"scale\": expected i64 [?, 1], given i64 [1, 2]");
    other = tensor("scale", WEIR_TYPE_I32, SHAPE(1, 1), scale);
    refused(&l, (weir_tensor[]){first, other}, 2, "input \"scale\": expected i64 [?, 1], given i32 [1, 1]");
    unload_model(&l);
    close_client(&l);
}

static int without_address;

static ort_status *addressed_value(const ort_memory_info *info, void *data, size_t bytes, const int64_t *shape,
                                   size_t rank, int type, ort_value **out)
{
    without_address += data == NULL;
    return real->CreateTensorWithDataAsOrtValue(info, data, bytes, shape, rank, type, out);
}

/* ONNX Runtime gets an address of nothing, too. */
static void an_empty_input_has_an_address(void **state)
{
    (void)state;
    loaded l = load_model("empty", NULL);
    weir_tensor none = tensor("x", WEIR_TYPE_F32, SHAPE(0, 3), NULL);
    weir_outputs out;
    watched.CreateTensorWithDataAsOrtValue = addressed_value;
    without_address = 0;
    assert_ok(infer(&l, &none, 1, &out));
    l.engine->release_outputs(l.model, &out);
    assert_int_equal(without_address, 0);
    unload_model(&l);
    close_client(&l);
}

/* How runs have ended is counted; what is the caller's doing says nothing of the model's health, good or bad. */
static void runs_are_counted_by_how_they_end(void **state)
{
    static const struct {
        weir_status status;
        uint64_t failures, cancelled;
        weir_status health, again; /* of a sound model, and of one whose device has failed */
    } ends[] = {{WEIR_OK, 0, 0, WEIR_OK, WEIR_OK},
                {WEIR_ERR_CANCELLED, 0, 1, WEIR_OK, WEIR_ERR_DRIVER},
                {WEIR_ERR_INVALID, 1, 0, WEIR_OK, WEIR_ERR_DRIVER},
                {WEIR_ERR_OUT_OF_MEMORY, 1, 0, WEIR_OK, WEIR_OK},
                {WEIR_ERR_ENGINE, 1, 0, WEIR_OK, WEIR_OK},
                {WEIR_ERR_DRIVER, 1, 0, WEIR_ERR_DRIVER, WEIR_ERR_DRIVER},
                {WEIR_ERR_DEVICE_LOST, 1, 0, WEIR_ERR_DEVICE_LOST, WEIR_ERR_DEVICE_LOST}};
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        loaded l = load_model("mlp", NULL);
        weir_engine_metrics before = WEIR_INIT(weir_engine_metrics), after = WEIR_INIT(weir_engine_metrics);
        assert_ok(l.engine->metrics(l.model, &before));
        onnx_count_runs(l.model, ends[i].status, 1, 0.5);
        assert_ok(l.engine->metrics(l.model, &after));
        assert_int_equal(after.runs, before.runs + 1);
        assert_int_equal(after.failures, before.failures + ends[i].failures);
        assert_int_equal(after.cancelled, before.cancelled + ends[i].cancelled);
        assert_true(after.busy_seconds == before.busy_seconds + 0.5);
        assert_int_equal(l.engine->health(l.model), ends[i].health);
        onnx_count_runs(l.model, WEIR_ERR_DRIVER, 1, 0);
        onnx_count_runs(l.model, ends[i].status, 1, 0);
        assert_int_equal(l.engine->health(l.model), ends[i].again);
        onnx_count_runs(l.model, WEIR_ERR_ENGINE, 0,
                        1); /* the time of a call for several, which are counted one by one */
        assert_int_equal(l.engine->health(l.model), ends[i].again);
        assert_ok(l.engine->metrics(l.model, &after));
        assert_int_equal(after.runs, before.runs + 3);
        unload_model(&l);
        close_client(&l);
    }
}

/* Nothing of either input stays. */
static void a_warm_up_gives_back_every_input(void **state)
{
    (void)state;
    loaded l = load_model("joined", NULL);
    uint64_t before = live(&l);
    watched.CreateTensorWithDataAsOrtValue = counted_value;
    watched.ReleaseValue = counted_release;
    for (int again = 0; again < 3; again++) {
        atomic_store(&values_made, 0);
        atomic_store(&values_released, 0);
        assert_ok(l.engine->warm_up(l.model));
        assert_int_equal(live(&l), before);
        assert_int_equal(atomic_load(&values_made), 2);
        assert_int_equal(atomic_load(&values_released), 2 + 2);
    }
    unload_model(&l);
    close_client(&l);
}

/* An input that has a value of its own keeps it. */
static void a_warm_up_gives_what_is_required(void **state)
{
    (void)state;
    loaded l = load_model("default", NULL);
    weir_model_details about = WEIR_INIT(weir_model_details);
    int required = 0;
    assert_ok(l.engine->info(l.model, &about));
    for (size_t i = 0; i < about.input_count; i++)
        required += !about.inputs[i].optional;
    assert_true((size_t)required < about.input_count);
    watched.CreateTensorWithDataAsOrtValue = counted_value;
    atomic_store(&values_made, 0);
    assert_ok(l.engine->warm_up(l.model));
    assert_int_equal(atomic_load(&values_made), required);
    unload_model(&l);
    close_client(&l);
}

int main(void)
{
    int missing = need_onnxruntime();
    if (missing)
        return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_cancel_stops_every_run_that_it_means, watch, unwatch),
        cmocka_unit_test_setup_teardown(a_cancel_finds_every_run_that_waits, watch, unwatch),
        cmocka_unit_test_setup_teardown(a_run_that_is_cancelled_at_its_end_has_no_results, watch, unwatch),
#ifdef WEIR_INVARIANTS
        cmocka_unit_test_setup_teardown(a_run_that_is_cancelled_thrice_leaves_once, watch, unwatch),
        cmocka_unit_test_setup_teardown(a_call_goes_on_while_one_is_left, watch, unwatch),
#endif
        cmocka_unit_test(inputs_are_there_when_their_stream_is),
        cmocka_unit_test_setup_teardown(inputs_are_taken_by_name_and_size_in_any_order, watch, unwatch),
        cmocka_unit_test_setup_teardown(what_is_wrong_with_the_second_input_is_said, watch, unwatch),
        cmocka_unit_test_setup_teardown(an_empty_input_has_an_address, watch, unwatch),
        cmocka_unit_test(runs_are_counted_by_how_they_end),
        cmocka_unit_test_setup_teardown(a_warm_up_gives_back_every_input, watch, unwatch),
        cmocka_unit_test_setup_teardown(a_warm_up_gives_what_is_required, watch, unwatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
