/* join.c: runs that are computed together, with the setting max_batch_size: each has the results that it has alone, and none
 * fails, waits or ends for another's sake. Where several have to be computed together, they wait for so many rows, an hour
 * if need be. */
#include "common.h"
#include "written.h"
#include <weir/engine.h>
#include <weir/stats.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 8, WIDTH = 5, TABLE = 100 };

static const char *const four[] = {"max_batch_size=4", "max_queue_delay_microseconds=60000000", NULL};
static const char *const three[] = {"max_batch_size=3", "max_queue_delay_microseconds=60000000", NULL};
static const char *const at_once[] = {"max_batch_size=4", NULL};

/* A run of the model `joined` on a thread of its own. */
typedef struct runner {
    const loaded *l;
    uint64_t id;
    int64_t rows, width, first; /* the first index; the next ones follow */
    int64_t ids[MOST * WIDTH], scale[MOST];
    weir_tensor inputs[2], *more; /* the latter instead, if there are any */
    size_t input_count;
    weir_outputs out;
    weir_status status;
    char detail[512];
    pthread_t thread;
} runner;

static void prepare(runner *it, const loaded *l, int64_t rows, int64_t width, int64_t first)
{
    *it = (runner){.l = l, .rows = rows, .width = width, .first = first, .input_count = 2};
    it->out.struct_size = sizeof it->out;
    for (int64_t i = 0; i < rows * width; i++)
        it->ids[i] = first + i;
    for (int64_t i = 0; i < rows; i++)
        it->scale[i] = first + i + 1;
    it->inputs[0] = tensor("ids", WEIR_TYPE_I64, SHAPE(rows, width), it->ids);
    it->inputs[1] = tensor("scale", WEIR_TYPE_I64, SHAPE(rows, 1), it->scale);
}

/* Of a model with one input. */
static void prepare_one(runner *it, const loaded *l, weir_tensor input)
{
    prepare(it, l, input.shape[0], 1, 0);
    it->inputs[0] = input;
    it->input_count = 1;
}

static void *run(void *user)
{
    runner *it = user;
    weir_inference inference = {.struct_size = sizeof inference,
                                .id = it->id,
                                .inputs = it->more ? it->more : it->inputs,
                                .input_count = it->input_count};
    it->status = it->l->engine->infer(it->l->model, &inference, &it->out);
    snprintf(it->detail, sizeof it->detail, "%s", it->status == WEIR_OK ? "" : weir_detail());
    return NULL;
}

static void start(runner *it)
{
    assert_int_equal(pthread_create(&it->thread, NULL, run, it), 0);
}

static void finish(runner *it)
{
    assert_int_equal(pthread_join(it->thread, NULL), 0);
}

/* Whether the results are what they have to be; counts what is not. */
static int wrong_results(const runner *it)
{
    const weir_tensor *y = output(&it->out, "y"), *sum = output(&it->out, "sum");
    int wrong = it->status != WEIR_OK || y->shape[0] != it->rows || y->shape[1] != it->width ||
                sum->shape[0] != it->rows || y->bytes != (size_t)(it->rows * it->width) * 8 ||
                sum->bytes != (size_t)it->rows * 8;
    for (int64_t r = 0; r < it->rows && !wrong; r++) {
        int64_t total = 0;
        for (int64_t c = 0; c < it->width; c++) {
            int64_t wanted = (1000 + it->ids[r * it->width + c]) * it->scale[r];
            wrong += ((const int64_t *)y->data)[r * it->width + c] != wanted;
            total += wanted;
        }
        wrong += ((const int64_t *)sum->data)[r] != total;
    }
    return wrong;
}

static void good(const runner *it, uint64_t together)
{
    if (it->status != WEIR_OK)
        fail_msg("%s", it->detail);
    assert_int_equal(wrong_results(it), 0);
    assert_int_equal(it->out.together, together);
}

static void release(runner *it)
{
    it->l->engine->release_outputs(it->l->model, &it->out);
}

/* Until the run is there to be cancelled. */
static void cancel(const loaded *l, uint64_t id)
{
    while (l->engine->cancel(l->model, id) != WEIR_OK)
        continue;
}

static void done(loaded *l)
{
    unload_model(l);
    close_client(l);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static void refuse(const char *model, const char *const *settings, const char *part)
{
    loaded l = open_client(0);
    assert_status(load_into(&l, model, settings), WEIR_ERR_INVALID);
    assert_detail(part);
    close_client(&l);
}

static void settings_that_would_do_nothing(void **state)
{
    static const char *const delay[] = {"max_queue_delay_microseconds=5", NULL};
    static const char *const single[] = {"max_batch_size=1", "max_queue_delay_microseconds=5", NULL};
    static const char *const much[] = {"max_batch_size=1025", NULL};
    (void)state;
    refuse("joined", delay, "max_batch_size=2 or more");
    refuse("joined", single, "max_batch_size=2 or more");
    refuse("joined", much, "max_batch_size");
    refuse("fixed", at_once, "open");
    refuse("scalar", at_once, "open");
    refuse("rankless", at_once, "open");
    static const char *const off[] = {"max_batch_size=0", NULL};
    loaded l = load_model("fixed", off);
    done(&l);
}

/* An input that need not be given need not be open; whoever gives it is computed alone. */
static void an_input_with_a_value_need_not_be_open(void **state)
{
    (void)state;
    loaded l =
        load_model(written("in x f32 n 2; in s f32 1 2; weight s f32 1 2 = 16 24; Mul x s > y; out y f32 n 2"), three);
    float x[3][2] = {{1, 2}, {3, 4}, {5, 6}}, s[2] = {10, 20};
    runner all[3], alone;
    for (int i = 0; i < 3; i++) {
        prepare_one(&all[i], &l, tensor("x", WEIR_TYPE_F32, SHAPE(1, 2), x[i]));
        start(&all[i]);
    }
    for (int i = 0; i < 3; i++) { /* the weight has 1 and 2 */
        finish(&all[i]);
        assert_int_equal(all[i].status, WEIR_OK);
        assert_int_equal(all[i].out.together, 3);
        assert_true(((const float *)all[i].out.tensors[0].data)[0] == x[i][0] * 1);
        assert_true(((const float *)all[i].out.tensors[0].data)[1] == x[i][1] * 2);
        l.engine->release_outputs(l.model, &all[i].out);
    }
    prepare_one(&alone, &l, tensor("x", WEIR_TYPE_F32, SHAPE(1, 2), x[0]));
    alone.inputs[1] = tensor("s", WEIR_TYPE_F32, SHAPE(1, 2), s);
    alone.input_count = 2;
    start(&alone);
    finish(&alone);
    assert_int_equal(alone.status, WEIR_OK);
    assert_int_equal(alone.out.together, 1);
    assert_true(((const float *)alone.out.tensors[0].data)[1] == 40);
    l.engine->release_outputs(l.model, &alone.out);
    written_clear();
    done(&l);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void several_are_computed_together(void **state)
{
    (void)state;
    loaded l = load_model("joined", four);
    uint64_t before = live(&l);
    runner all[3];
    prepare(&all[0], &l, 1, WIDTH, 3);
    prepare(&all[1], &l, 2, WIDTH, 40);
    prepare(&all[2], &l, 1, WIDTH, 7);
    weir_tensor turned = all[1].inputs[0]; /* the order of inputs is each run's own */
    all[1].inputs[0] = all[1].inputs[1];
    all[1].inputs[1] = turned;
    for (int i = 0; i < 3; i++)
        start(&all[i]);
    for (int i = 0; i < 3; i++)
        finish(&all[i]);
    for (int i = 0; i < 3; i++) { /* what is left stays, whoever goes first */
        good(&all[i], 3);
        release(&all[i]);
    }
    assert_int_equal(live(&l), before);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    assert_ok(l.engine->metrics(l.model, &metrics));
    assert_int_equal(metrics.runs, 3);
    assert_int_equal(metrics.failures + metrics.cancelled, 0);
    done(&l);
}

/* A caller whose structure ends before `together` has nothing written behind it, with others or by itself. */
static void results_of_an_older_caller(void **state)
{
    (void)state;
    loaded l = load_model("joined", three);
    for (int several = 0; several < 2; several++) {
        runner all[3];
        for (int i = 0; i < (several ? 3 : 1); i++) {
            prepare(&all[i], &l, several ? 1 : 3, WIDTH, i);
            all[i].out.struct_size = offsetof(weir_outputs, together);
            all[i].out.together = 77;
            start(&all[i]);
        }
        for (int i = 0; i < (several ? 3 : 1); i++) {
            finish(&all[i]);
            good(&all[i], 77);
            release(&all[i]);
        }
    }
    done(&l);
}

/* An input that has a value of its own: whoever gives it is no row of a call of those that do not. */
static void only_who_gives_the_same_inputs(void **state)
{
    (void)state;
    loaded l = load_model("joined_default", four);
    runner all[4];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 4; i++) {
            prepare(&all[i], &l, 2, WIDTH, 10 * i);
            if (i % 2 == round) {
                all[i].input_count = 1;
                all[i].scale[0] = all[i].scale[1] = 7; /* the model's own */
            }
            start(&all[i]);
        }
        for (int i = 0; i < 4; i++) {
            finish(&all[i]);
            good(&all[i], 2);
            release(&all[i]);
        }
    }
    done(&l);
}

/* Those of another width are no rows of the same call; each kind fills a call of its own. */
static void only_what_is_alike(void **state)
{
    (void)state;
    loaded l = load_model("joined", four);
    runner all[4];
    for (int i = 0; i < 4; i++) {
        prepare(&all[i], &l, 2, i % 2 ? 3 : WIDTH, i);
        start(&all[i]);
    }
    for (int i = 0; i < 4; i++) {
        finish(&all[i]);
        good(&all[i], 2);
    }
    for (int i = 3; i >= 0; i--)
        release(&all[i]);
    done(&l);
}

/* As many rows as there may be wait for nobody, nor do more; and nobody waits without a delay, or longer than it. */
static void alone(void **state)
{
    static const char *const soon[] = {"max_batch_size=4", "max_queue_delay_microseconds=1500000", NULL};
    (void)state;
    for (int i = 0; i < 4; i++) {
        loaded l = load_model("joined", i == 3 ? soon : i == 2 ? at_once : four);
        runner it;
        prepare(&it, &l, i < 2 ? 4 + i : 1, WIDTH, 1);
        run(&it);
        good(&it, 1);
        release(&it);
        done(&l);
    }
}

static _Thread_local int clock_reads; /* of a thread whose clock is made up; 0: it is none */
static _Thread_local int late_by;     /* nanoseconds, when its run looks at the clock for the first time */
static int waits;                     /* of such a thread */

int __real_clock_gettime(clockid_t clock, struct timespec *out);
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_pthread_cond_timedwait(pthread_cond_t *wake, pthread_mutex_t *lock, const struct timespec *until);
__attribute__((visibility("default"))) int __wrap_pthread_cond_timedwait(pthread_cond_t *wake, pthread_mutex_t *lock,
                                                                         const struct timespec *until);

/* A run that may wait for a minute begins in the middle of a second. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock_reads == 0)
        return __real_clock_gettime(clock, out);
    clock_reads++;
    *out = (struct timespec){.tv_sec = clock_reads == 2 ? 100 : clock_reads == 3 ? 160 : 161, .tv_nsec = 500000000};
    if (clock_reads == 3) {
        int64_t at = out->tv_nsec + late_by;
        out->tv_sec += at / 1000000000;
        out->tv_nsec = at % 1000000000;
    }
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *wake, pthread_mutex_t *lock, const struct timespec *until)
{
    waits += clock_reads > 0;
    return clock_reads ? ETIMEDOUT : __real_pthread_cond_timedwait(wake, lock, until);
}

/* Nobody waits on when its time is over: at that moment, in the same second or in the next, before as much of that has passed. */
static void who_is_late_waits_no_more(void **state)
{
    static const struct {
        int late_by, waits;
    } cases[] = {{-1, 1}, {0, 0}, {1, 0}, {499999999, 0}, {500000000, 0}, {700000000, 0}, {1000000001, 0}};
    (void)state;
    loaded l = load_model("joined", four);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        runner it;
        prepare(&it, &l, 1, WIDTH, 1);
        waits = 0;
        late_by = cases[i].late_by;
        clock_reads = 1;
        run(&it);
        clock_reads = 0;
        good(&it, 1);
        assert_int_equal(waits, cases[i].waits);
        release(&it);
    }
    done(&l);
}

/* Floating point: within the rounding of other sums. */
static void rows_of_a_product(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL), together = load_model("mlp", four);
    float x[4][16], apart[4][17];
    for (int i = 0; i < 64; i++)
        x[i / 16][i % 16] = (float)(i * 37 % 19) / 7 - 1;
    for (int i = 0; i < 4; i++) {
        weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x[i]);
        weir_outputs out = WEIR_INIT(weir_outputs);
        assert_ok(infer(&l, &in, 1, &out));
        memcpy(apart[i], output(&out, "y")->data, sizeof apart[i]);
        l.engine->release_outputs(l.model, &out);
    }
    runner all[4];
    for (int i = 0; i < 4; i++) {
        prepare_one(&all[i], &together, tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x[i]));
        start(&all[i]);
    }
    for (int i = 0; i < 4; i++) {
        finish(&all[i]);
        assert_int_equal(all[i].status, WEIR_OK);
        assert_int_equal(all[i].out.together, 4);
        const float *y = output(&all[i].out, "y")->data;
        for (int k = 0; k < 17; k++)
            assert_true(y[k] - apart[i][k] < 1e-5f && apart[i][k] - y[k] < 1e-5f);
        release(&all[i]);
    }
    done(&together);
    done(&l);
}

/* The sentence encoder: four texts, each alone and all together. */
static void rows_of_minilm(void **state)
{
    enum { TOKENS = 12, VALUES = 384 };
    static float apart[4][VALUES];
    static int64_t numbers[4][3][TOKENS];
    static const char *const names[3] = {"input_ids", "attention_mask", "token_type_ids"};
    char path[512];
    (void)state;
    snprintf(path, sizeof path, "%s/models/minilm.onnx", WEIR_TEST_STORE);
    if (access(path, R_OK) != 0)
        skip_without("minilm.onnx");
    for (int together = 0; together < 2; together++) {
        loaded l = load_model(path, together ? four : NULL);
        runner all[4];
        weir_tensor inputs[4][3];
        for (int i = 0; i < 4; i++) {
            for (int k = 0; k < 3 * TOKENS; k++)
                numbers[i][k / TOKENS][k % TOKENS] =
                    k / TOKENS == 0 ? 1000 + 97 * i + 31 * (k % TOKENS) : k / TOKENS == 1;
            for (int k = 0; k < 3; k++)
                inputs[i][k] = tensor(names[k], WEIR_TYPE_I64, SHAPE(1, TOKENS), numbers[i][k]);
            prepare(&all[i], &l, 1, 1, 0);
            all[i].more = inputs[i];
            all[i].input_count = 3;
            start(&all[i]);
            if (!together)
                finish(&all[i]);
        }
        for (int i = 0; i < 4; i++) {
            if (together)
                finish(&all[i]);
            if (all[i].status != WEIR_OK)
                fail_msg("%s", all[i].detail);
            assert_int_equal(all[i].out.together, together ? 4 : 1);
            const weir_tensor *last = &all[i].out.tensors[all[i].out.count - 1];
            assert_true(last->type == WEIR_TYPE_F32 && last->bytes >= sizeof apart[i]);
            for (int k = 0; k < VALUES; k++) {
                float got = ((const float *)last->data)[k], off = got - apart[i][k];
                if (together && (off > 2e-6f || off < -2e-6f))
                    fail_msg("value %d of text %d is %g instead of %g", k, i, (double)got, (double)apart[i][k]);
                apart[i][k] = got;
            }
            release(&all[i]);
        }
        done(&l);
    }
}

/* ---- one that fails, or goes --------------------------------------------------------------------------------------- */

static void a_wrong_one_fails_alone(void **state)
{
    (void)state;
    loaded l = load_model("joined", three);
    runner all[3];
    for (int i = 0; i < 3; i++) {
        prepare(&all[i], &l, 1, WIDTH, i == 1 ? TABLE - 2 : i);
        start(&all[i]);
    }
    for (int i = 0; i < 3; i++)
        finish(&all[i]);
    good(&all[0], 1);
    good(&all[2], 1);
    assert_status(all[1].status, WEIR_ERR_INVALID);
    assert_null(all[1].out.tensors);
    release(&all[0]);
    release(&all[2]);
    assert_ok(l.engine->health(l.model));
    runner one; /* its inputs are wrong before it comes to a call */
    prepare(&one, &l, 1, WIDTH, 0);
    one.inputs[1].name = "size";
    run(&one);
    assert_status(one.status, WEIR_ERR_INVALID);
    done(&l);
}

/* The first two of a call show it; from then on each is computed by itself, at once. */
static void results_that_cannot_be_split(void **state)
{
    (void)state;
    loaded l = load_model("doubled", three);
    float x[4] = {1, 2, 3, 4};
    for (int round = 0; round < 2; round++) {
        runner all[2];
        for (int i = 0; i < 2 - round; i++) {
            prepare_one(&all[i], &l, tensor("x", WEIR_TYPE_F32, SHAPE(1 + i, 2), x));
            start(&all[i]);
        }
        for (int i = 0; i < 2 - round; i++) {
            finish(&all[i]);
            assert_int_equal(all[i].status, WEIR_OK);
            assert_int_equal(all[i].out.together, 1);
            const weir_tensor *y = output(&all[i].out, "y");
            assert_int_equal(y->shape[0], 2 + 2 * i);
            assert_memory_equal(y->data, x, y->bytes / 2);
            assert_memory_equal((const char *)y->data + y->bytes / 2, x, y->bytes / 2);
            release(&all[i]);
        }
    }
    done(&l);
}

static void one_that_waits_is_cancelled(void **state)
{
    (void)state;
    loaded l = load_model("joined", three);
    runner all[4];
    for (int i = 0; i < 4; i++) {
        prepare(&all[i], &l, 1, WIDTH, i);
        all[i].id = (uint64_t)i + 1;
    }
    start(&all[0]);
    start(&all[1]);
    cancel(&l, 2);
    finish(&all[1]);
    assert_status(all[1].status, WEIR_ERR_CANCELLED);
    start(&all[2]);
    start(&all[3]);
    for (int i = 0; i < 4; i += i ? 1 : 2) {
        finish(&all[i]);
        good(&all[i], 3);
        release(&all[i]);
    }
    start(&all[1]);
    cancel(&l, 0);
    finish(&all[1]);
    assert_status(all[1].status, WEIR_ERR_CANCELLED);
    done(&l);
}

/* ---- memory -------------------------------------------------------------------------------------------------------- */

/* Two runs of many columns: what the model has at its peak. */
static uint64_t peak_of(const char *const *settings, uint64_t budget, uint64_t together)
{
    enum { WIDE = 65536 };
    static int64_t ids[WIDE], one = 1;
    loaded l = open_client(budget);
    assert_ok(load_into(&l, "joined", settings));
    runner all[2];
    for (int i = 0; i < 2; i++) {
        prepare(&all[i], &l, 1, 1, 0);
        all[i].inputs[0] = tensor("ids", WEIR_TYPE_I64, SHAPE(1, WIDE), ids);
        all[i].inputs[1] = tensor("scale", WEIR_TYPE_I64, SHAPE(1, 1), &one);
        if (settings[1]) {
            start(&all[i]);
        } else {
            run(&all[i]);
            all[i].thread = pthread_self();
        }
    }
    for (int i = 0; i < 2; i++) {
        if (settings[1])
            finish(&all[i]);
        if (all[i].status != WEIR_OK)
            fail_msg("%s", all[i].detail);
        assert_int_equal(all[i].out.together, together);
        assert_int_equal(*(const int64_t *)output(&all[i].out, "sum")->data, 1000 * WIDE);
    }
    release(&all[0]);
    release(&all[1]);
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    assert_ok(weir_client_info(l.client, &stats));
    done(&l);
    return stats.peak;
}

/* Together they take their inputs a second time: where there is no room for that, each is computed by itself. */
static void no_memory_for_several(void **state)
{
    static const char *const two[] = {"memory_pattern=off", "max_batch_size=2", "max_queue_delay_microseconds=60000000",
                                      NULL};
    static const char *const apart[] = {"memory_pattern=off", NULL};
    (void)state;
    uint64_t least = peak_of(apart, 0, 1), most = peak_of(two, 0, 2);
    assert_true(most > least + (512 << 10));
    peak_of(two, least + (most - least) / 2, 1);
}

/* ---- all at once ----------------------------------------------------------------------------------------------------- */

typedef struct crowd {
    const loaded *l;
    int64_t seed;
    int wrong, cancelled;
} crowd;

static atomic_bool over;

static void *many_runs(void *user)
{
    crowd *it = user;
    for (int i = 0; i < 60; i++) {
        runner one;
        prepare(&one, it->l, 1 + (it->seed + i) % 3, i % 7 ? WIDTH : 2, (it->seed * 11 + i) % 60);
        one.id = (uint64_t)(it->seed + 1);
        run(&one);
        it->cancelled += one.status == WEIR_ERR_CANCELLED;
        it->wrong += one.status != WEIR_ERR_CANCELLED && wrong_results(&one) != 0;
        if (one.status == WEIR_OK)
            release(&one);
    }
    return NULL;
}

static void *cancels(void *user)
{
    const loaded *l = user;
    for (uint64_t id = 1; !atomic_load(&over); id = id % (MOST + 4) + 1)
        (void)!l->engine->cancel(l->model, id);
    return NULL;
}

static void a_crowd(void **state)
{
    static const char *const settings[] = {"max_batch_size=6", "max_queue_delay_microseconds=300", "concurrency=2",
                                           NULL};
    (void)state;
    for (int cancelling = 0; cancelling < 2; cancelling++) {
        loaded l = load_model("joined", settings);
        uint64_t before = live(&l);
        pthread_t threads[MOST], canceller;
        crowd all[MOST];
        atomic_store(&over, false);
        for (int i = 0; i < MOST; i++) {
            all[i] = (crowd){.l = &l, .seed = i};
            assert_int_equal(pthread_create(&threads[i], NULL, many_runs, &all[i]), 0);
        }
        if (cancelling)
            assert_int_equal(pthread_create(&canceller, NULL, cancels, &l), 0);
        int wrong = 0, cancelled = 0;
        for (int i = 0; i < MOST; i++) {
            pthread_join(threads[i], NULL);
            wrong += all[i].wrong;
            cancelled += all[i].cancelled;
        }
        atomic_store(&over, true);
        if (cancelling)
            pthread_join(canceller, NULL);
        assert_int_equal(wrong, 0);
        weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
        assert_ok(l.engine->metrics(l.model, &metrics));
        assert_int_equal(metrics.runs, MOST * 60);
        assert_int_equal(metrics.cancelled, cancelled);
        assert_int_equal(metrics.failures, 0);
        assert_int_equal(live(&l), before);
        done(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_that_would_do_nothing),
        cmocka_unit_test(an_input_with_a_value_need_not_be_open),
        cmocka_unit_test(several_are_computed_together),
        cmocka_unit_test(results_of_an_older_caller),
        cmocka_unit_test(only_who_gives_the_same_inputs),
        cmocka_unit_test(only_what_is_alike),
        cmocka_unit_test(alone),
        cmocka_unit_test(who_is_late_waits_no_more),
        cmocka_unit_test(rows_of_a_product),
        cmocka_unit_test(rows_of_minilm),
        cmocka_unit_test(a_wrong_one_fails_alone),
        cmocka_unit_test(results_that_cannot_be_split),
        cmocka_unit_test(one_that_waits_is_cancelled),
        cmocka_unit_test(no_memory_for_several),
        cmocka_unit_test(a_crowd),
    };
    int missing = need_onnxruntime();
    return missing ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
