/* A run that makes a session leaves its slot meanwhile: when it comes back it is before all that wait, and one that is
 * cancelled there leaves its session to others. */
#include "watch.h"
#include <weir/engine.h>

#include <pthread.h>
#include <unistd.h>

#include "onnx/engine/model.h"

enum { MOST = 8 };

/* ---- what is held ------------------------------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
/* With the lock. */
static float order[MOST];    /* the first value of each run's input, as they came into ONNX Runtime */
static int came, may_go;     /* runs; may_go: so many, in that order */
static int making, may_make; /* sessions */

static float first_of(const ort_value *input)
{
    void *first = NULL;
    if (real->GetTensorMutableData((ort_value *)(uintptr_t)input, &first) || !first)
        abort();
    return *(const float *)first;
}

static ort_status *held_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                            const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                            size_t output_count, ort_value **outputs)
{
    pthread_mutex_lock(&lock);
    int at = came++;
    if (at < MOST)
        order[at] = first_of(inputs[0]);
    pthread_cond_broadcast(&change);
    while (at >= may_go)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    return real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
}

static ort_status *held_session(const ort_env *env, const void *model, size_t size, const ort_session_options *options,
                                ort_session **out)
{
    pthread_mutex_lock(&lock);
    int at = making++;
    pthread_cond_broadcast(&change);
    while (at >= may_make)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    return real->CreateSessionFromArray(env, model, size, options, out);
}

static int hold(void **state)
{
    (void)watch(state);
    came = making = 0;
    may_go = may_make = 0;
    watched.Run = held_run;
    return 0;
}

static void let(int *what, int count)
{
    pthread_mutex_lock(&lock);
    *what = count;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static int let_all_go(void **state)
{
    let(&may_go, MOST);
    let(&may_make, MOST);
    return unwatch(state);
}

static void until(const int *what, int count)
{
    pthread_mutex_lock(&lock);
    while (*what < count)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

static void until_waiting(const loaded *l, size_t count)
{
    while (onnx_buckets_look(l->model).waiting != count)
        usleep(500);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

typedef struct asked {
    const loaded *l;
    int64_t rows;
    uint64_t id;
    weir_status status;
    pthread_t thread;
} asked;

static void *ask(void *user)
{
    asked *it = user;
    float x[8 * 16] = {(float)it->id};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(it->rows, 16), x);
    weir_inference inference = {.struct_size = sizeof inference, .id = it->id, .inputs = &in, .input_count = 1};
    weir_outputs out = WEIR_INIT(weir_outputs);
    it->status = it->l->engine->infer(it->l->model, &inference, &out);
    if (it->status == WEIR_OK)
        it->l->engine->release_outputs(it->l->model, &out);
    return NULL;
}

static void start(asked *it, const loaded *l, uint64_t id, int64_t rows)
{
    *it = (asked){.l = l, .id = id, .rows = rows};
    assert_int_equal(pthread_create(&it->thread, NULL, ask, it), 0);
}

static void ends(asked *it, weir_status as)
{
    pthread_join(it->thread, NULL);
    assert_int_equal(it->status, as);
}

/* One at a time; the session of one row is the model's own. */
static loaded load_one_at_a_time(const char *buckets)
{
    loaded l = load_model("mlp", (const char *const[]){"concurrency=1", buckets, NULL});
    asked first;
    may_go = 1;
    start(&first, &l, 1, 1);
    ends(&first, WEIR_OK);
    watched.CreateSessionFromArray = held_session;
    return l;
}

/* While one makes a session another has its slot, and two wait: the maker is the next one all the same. */
static void whoever_has_made_a_session_is_the_next(void **state)
{
    (void)state;
    loaded l = load_one_at_a_time("buckets=3");
    asked maker, holder, waiting[2];
    start(&maker, &l, 2, 2);
    until(&making, 1);
    start(&holder, &l, 3, 1);
    until(&came, 2);
    for (uint64_t i = 0; i < 2; i++) {
        start(&waiting[i], &l, 4 + i, 1);
        until_waiting(&l, (size_t)i + 1);
    }
    let(&may_make, 1);
    until_waiting(&l, 3);
    let(&may_go, MOST);
    ends(&maker, WEIR_OK);
    ends(&holder, WEIR_OK);
    ends(&waiting[0], WEIR_OK);
    ends(&waiting[1], WEIR_OK);
    static const int expected[] = {1, 3, 2, 4, 5};
    assert_int_equal(came, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal((int)order[i], expected[i]);
    assert_int_equal(onnx_buckets_look(l.model).made, 1);
    unload_model(&l);
    close_client(&l);
}

/* It is cancelled when its session is there, and has no slot: the session is in nobody's use, and makes room for another. */
static void a_session_of_a_cancelled_run_is_idle(void **state)
{
    (void)state;
    loaded l = load_one_at_a_time("buckets=2");
    asked maker, holder, next;
    start(&maker, &l, 2, 2);
    until(&making, 1);
    start(&holder, &l, 3, 1);
    until(&came, 2);
    let(&may_make, 1);
    until_waiting(&l, 1);
    assert_ok(l.engine->cancel(l.model, 2));
    ends(&maker, WEIR_ERR_CANCELLED);
    let(&may_go, MOST);
    let(&may_make, MOST);
    ends(&holder, WEIR_OK);
    onnx_bucket_stats stats = onnx_buckets_look(l.model);
    assert_int_equal(stats.made, 1);
    assert_int_equal(stats.now, 1);
    start(&next, &l, 4, 2); /* which is there */
    ends(&next, WEIR_OK);
    assert_int_equal(onnx_buckets_look(l.model).made, 1);
    start(&next, &l, 5, 3);
    ends(&next, WEIR_OK);
    stats = onnx_buckets_look(l.model);
    assert_int_equal(stats.made, 2);
    assert_int_equal(stats.ended, 1);
    assert_int_equal(stats.now, 1);
    unload_model(&l);
    close_client(&l);
}

/* The session that was to go for the new one is in use by then, so that there is one too many; that goes at the cancel. */
static void a_cancelled_run_leaves_no_session_too_many(void **state)
{
    (void)state;
    loaded l = load_one_at_a_time("buckets=2");
    asked old, maker, holder;
    let(&may_make, 1);
    let(&may_go, 2);
    start(&old, &l, 2, 2);
    ends(&old, WEIR_OK);
    start(&maker, &l, 3, 3);
    until(&making, 2);
    start(&holder, &l, 4, 2);
    until(&came, 3);
    let(&may_make, 2);
    until_waiting(&l, 1);
    assert_int_equal(onnx_buckets_look(l.model).now, 2);
    assert_ok(l.engine->cancel(l.model, 3));
    ends(&maker, WEIR_ERR_CANCELLED);
    onnx_bucket_stats stats = onnx_buckets_look(l.model);
    assert_int_equal(stats.made, 2);
    assert_int_equal(stats.ended, 1);
    assert_int_equal(stats.now, 1);
    let(&may_go, MOST);
    ends(&holder, WEIR_OK);
    assert_int_equal(onnx_buckets_look(l.model).ended, 1);
    unload_model(&l);
    close_client(&l);
}

int main(void)
{
    int missing = need_onnxruntime();
    if (missing)
        return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whoever_has_made_a_session_is_the_next, hold, let_all_go),
        cmocka_unit_test_setup_teardown(a_session_of_a_cancelled_run_is_idle, hold, let_all_go),
        cmocka_unit_test_setup_teardown(a_cancelled_run_leaves_no_session_too_many, hold, let_all_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
