/* Runs of a model that are computed together: who stands in the line is woken when its turn has come, and whoever is cancelled
 * leaves: while a group is made, and when its runs are tried one by one. */
#include "watch.h"
#include <weir/engine.h>

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "onnx/engine/model.h"

enum { RUNS = 4, WIDTH = 6 };

static bool on_cuda(void)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    return device && strncmp(device, "cuda", 4) == 0;
}

/* ---- what is held ------------------------------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
/* With the lock. */
static int inside, copying; /* calls of ONNX Runtime, and copies of a group's inputs, that have begun */
static bool run_open, copy_open;
static int calls, fails_at, holds_from; /* calls of ONNX Runtime, by number from 1; fails_at 0: none */
static atomic_int stopped;

static void pass(int *count, const bool *open)
{
    pthread_mutex_lock(&lock);
    ++*count;
    pthread_cond_broadcast(&change);
    while (!*open)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

static ort_status *held_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                            const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                            size_t output_count, ort_value **outputs)
{
    pthread_mutex_lock(&lock);
    int number = ++calls;
    pthread_mutex_unlock(&lock);
    if (number == fails_at)
        return real->CreateStatus(ORT_FAIL_CODE, "failed on purpose");
    if (number >= holds_from)
        pass(&inside, &run_open);
    return real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
}

static ort_status *counted_stop(ort_run_options *options)
{
    atomic_fetch_add(&stopped, 1);
    return real->RunOptionsSetTerminate(options);
}

static const loaded *late;    /* whose runs are cancelled when they go; NULL: none */
static atomic_int found_late; /* cancels that found one */

void __real_onnx_strike(weir_engine_model *model, const onnx_run *run);
void __wrap_onnx_strike(weir_engine_model *model, const onnx_run *run);
void __wrap_onnx_strike(weir_engine_model *model, const onnx_run *run)
{
    if (late && run->id != 0)
        atomic_fetch_add(&found_late, late->engine->cancel(late->model, run->id) == WEIR_OK);
    __real_onnx_strike(model, run);
}

weir_status __real_weir_alloc_with(weir_client *client, const weir_request *request, weir_block *out);
weir_status __wrap_weir_alloc_with(weir_client *client, const weir_request *request, weir_block *out);

weir_status __wrap_weir_alloc_with(weir_client *client, const weir_request *request, weir_block *out)
{
    if (request->tag && strcmp(request->tag, "joined inputs") == 0)
        pass(&copying, &copy_open);
    return __real_weir_alloc_with(client, request, out);
}

int __real_clock_gettime(clockid_t clock, struct timespec *out);
/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until);
__attribute__((visibility("default"))) int
__wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until);

static bool still; /* the clock stands, at `now`, and a wait is over at once, which ends at `ended` */
static struct timespec now, ended;
static int waits;

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!still)
        return __real_clock_gettime(clock, out);
    *out = now;
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
    if (!still)
        return __real_pthread_cond_timedwait(condition, mutex, until);
    now = ended = *until;
    if (waits++ % 2)
        return ETIMEDOUT;
    if (--now.tv_nsec < 0) /* woken for nothing, and just before the end */
        now = (struct timespec){now.tv_sec - 1, 999999999};
    return 0;
}

static int hold(void **state)
{
    (void)watch(state);
    inside = copying = calls = fails_at = holds_from = 0;
    run_open = copy_open = false;
    watched.Run = held_run;
    return 0;
}

static void open_gate(bool *which)
{
    pthread_mutex_lock(&lock);
    *which = true;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static int let_go(void **state)
{
    open_gate(&run_open);
    open_gate(&copy_open);
    return unwatch(state);
}

static struct timespec soon(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    return until;
}

static bool come(const int *what, int count)
{
    struct timespec until = soon();
    int waited = 0;
    pthread_mutex_lock(&lock);
    while (*what < count && waited == 0)
        waited = pthread_cond_timedwait(&change, &lock, &until);
    pthread_mutex_unlock(&lock);
    return waited == 0;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

typedef struct asker {
    const loaded *l;
    uint64_t id;
    int64_t width; /* only runs of one width go together */
    weir_status status;
    pthread_t thread;
} asker;

static void *ask(void *user)
{
    asker *it = user;
    int64_t row[WIDTH] = {1, 2, 3, 4, 5, (int64_t)it->id}, factor = 3;
    weir_tensor both[] = {tensor("ids", WEIR_TYPE_I64, SHAPE(1, it->width), row),
                          tensor("scale", WEIR_TYPE_I64, SHAPE(1, 1), &factor)};
    weir_inference inference = {.struct_size = sizeof inference, .inputs = both, .input_count = 2, .id = it->id};
    weir_outputs out = WEIR_INIT(weir_outputs);
    it->status = it->l->engine->infer(it->l->model, &inference, &out);
    if (it->status != WEIR_OK)
        return NULL;
    const int64_t *y = output(&out, "y")->data;
    for (int64_t i = 0; i < it->width; i++)
        if (!on_cuda() && y[i] != (1000 + row[i]) * factor) /* the stub computes nothing */
            it->status = WEIR_ERR_CORRUPT;
    it->l->engine->release_outputs(it->l->model, &out);
    return NULL;
}

static void start(asker *it, const loaded *l, uint64_t id, int64_t width)
{
    *it = (asker){.l = l, .id = id, .width = width};
    assert_int_equal(pthread_create(&it->thread, NULL, ask, it), 0);
}

/* Of `joined`, with rows of its own for each input. */
typedef struct uneven {
    const loaded *l;
    int64_t ids[4], scale[2], ids_rows, scale_rows;
    weir_status status;
    uint64_t together;
} uneven;

static void *ask_uneven(void *user)
{
    uneven *it = user;
    weir_tensor both[] = {tensor("ids", WEIR_TYPE_I64, SHAPE(it->ids_rows, 2), it->ids),
                          tensor("scale", WEIR_TYPE_I64, SHAPE(it->scale_rows, 1), it->scale)};
    weir_outputs out;
    it->status = infer(it->l, both, 2, &out);
    if (it->status != WEIR_OK)
        return NULL;
    it->together = out.together;
    int64_t rows = it->ids_rows > it->scale_rows ? it->ids_rows : it->scale_rows;
    const weir_tensor *y = output(&out, "y");
    for (int64_t i = 0; i < rows * 2; i++) {
        int64_t wanted = (1000 + it->ids[it->ids_rows > 1 ? i : i % 2]) * it->scale[it->scale_rows > 1 ? i / 2 : 0];
        if (y->shape[0] != rows || ((const int64_t *)y->data)[i] != wanted)
            it->status = WEIR_ERR_CORRUPT;
    }
    it->l->engine->release_outputs(it->l->model, &out);
    return NULL;
}

/* Of `doubled`, a row. */
typedef struct doubling {
    const loaded *l;
    uint64_t id;
    float x[2];
    weir_status status;
} doubling;

static void *ask_doubled(void *user)
{
    doubling *it = user;
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 2), it->x);
    weir_inference inference = {.struct_size = sizeof inference, .id = it->id, .inputs = &in, .input_count = 1};
    weir_outputs out = WEIR_INIT(weir_outputs);
    it->status = it->l->engine->infer(it->l->model, &inference, &out);
    if (it->status != WEIR_OK)
        return NULL;
    const float *y = output(&out, "y")->data;
    for (int i = 0; i < 4; i++)
        if (y[i] != it->x[i % 2])
            it->status = WEIR_ERR_CORRUPT;
    it->l->engine->release_outputs(it->l->model, &out);
    return NULL;
}

/* So many runs have come to the line, or have been there. */
static void until_there(const loaded *l, int count)
{
    for (int there = 0; there < count;) {
        usleep(500);
        there = 0;
        pthread_mutex_lock(&l->model->lock);
        for (const onnx_run *run = l->model->runs; run; run = run->next)
            there += run->wake != NULL;
        pthread_mutex_unlock(&l->model->lock);
    }
}

static void join_all(asker *all, int count)
{
    for (int i = 0; i < count; i++)
        pthread_join(all[i].thread, NULL);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Two of one width stand behind one of another, for which the fourth has to come: when those two are computed, so are the
 * others, as two calls may be at once. */
static void the_next_group_begins_beside_the_first(void **state)
{
    (void)state;
    static const int64_t widths[RUNS] = {3, WIDTH, WIDTH, 3};
    asker all[RUNS];
    loaded l = load_model("joined", (const char *const[]){"max_batch_size=2", "max_queue_delay_microseconds=60000000",
                                                          "concurrency=2", NULL});
    open_gate(&copy_open);
    for (int i = 0; i < RUNS; i++) {
        start(&all[i], &l, (uint64_t)i + 1, widths[i]);
        if (i + 1 < RUNS)
            until_there(&l, i + 1);
    }
    bool both = come(&inside, 2);
    open_gate(&run_open);
    join_all(all, RUNS);
    assert_true(both);
    assert_int_equal(inside, 2);
    for (int i = 0; i < RUNS; i++)
        assert_int_equal(all[i].status, WEIR_OK);
    unload_model(&l);
    close_client(&l);
}

static bool returns(asker *it)
{
    struct timespec until = soon();
    return pthread_timedjoin_np(it->thread, NULL, &until) == 0;
}

/* While as many calls are under way as there may be, the next group waits, full as it is: a cancel takes it out of the line. */
static void no_more_groups_begin_than_there_may_be(void **state)
{
    (void)state;
    static const char *const settings[][4] = {
        {"max_batch_size=2", "max_queue_delay_microseconds=60000000", "concurrency=1", NULL},
        {"max_batch_size=2", "max_queue_delay_microseconds=60000000", "concurrency=2", NULL},
        {"max_batch_size=2", "max_queue_delay_microseconds=60000000", NULL}};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        asker all[6];
        int limit = s == 1 ? 2 : 1, begun = 0;
        loaded l = load_model("joined", settings[s]);
        inside = copying = 0;
        run_open = false;
        copy_open = true;
        for (; begun < 2 * limit; begun++) {
            start(&all[begun], &l, (uint64_t)begun + 1, 2 + begun / 2);
            if (begun % 2 == 0)
                until_there(&l, begun + 1);
        }
        bool full = come(&inside, limit);
        pthread_mutex_lock(&lock);
        copy_open = false;
        int copied = copying;
        pthread_mutex_unlock(&lock);
        for (int i = 0; i < 2; i++) {
            start(&all[begun + i], &l, (uint64_t)(begun + i) + 1, WIDTH);
            until_there(&l, begun + i + 1);
        }
        onnx_join_wake(l.model); /* whoever has come stands in the line by then */
        for (int i = 0; i < 2; i++)
            (void)!l.engine->cancel(l.model, (uint64_t)(begun + i) + 1);
        bool left[] = {returns(&all[begun]), returns(&all[begun + 1])};
        int more = copying;
        open_gate(&copy_open);
        open_gate(&run_open);
        join_all(all, begun);
        for (int i = 0; i < 2; i++)
            if (!left[i])
                pthread_join(all[begun + i].thread, NULL);
        assert_true(full && left[0] && left[1]);
        assert_int_equal(more, copied);
        assert_int_equal(inside, limit);
        for (int i = 0; i < begun + 2; i++)
            assert_int_equal(all[i].status, i < begun ? WEIR_OK : WEIR_ERR_CANCELLED);
        unload_model(&l);
        close_client(&l);
    }
}

/* Whichever of three: its inputs are still read when it is cancelled, and it returns while the others are computed; but the
 * first, on whose thread that is. */
static void a_run_that_is_cancelled_while_its_group_is_made_leaves(void **state)
{
    (void)state;
    loaded l =
        load_model("joined", (const char *const[]){"max_batch_size=3", "max_queue_delay_microseconds=60000000", NULL});
    for (int victim = 1; victim < 3; victim++) {
        asker all[3];
        inside = copying = 0;
        run_open = copy_open = false;
        for (int i = 0; i < 3; i++) {
            start(&all[i], &l, (uint64_t)i + 1, WIDTH);
            if (i + 1 < 3)
                until_there(&l, i + 1);
        }
        bool made = come(&copying, 1);
        weir_status found = l.engine->cancel(l.model, (uint64_t)victim + 1);
        open_gate(&copy_open);
        bool computed = come(&inside, 1);
        struct timespec until = soon();
        bool left = pthread_timedjoin_np(all[victim].thread, NULL, &until) == 0;
        open_gate(&run_open);
        for (int i = 0; i < 3; i++)
            if (i != victim || !left)
                pthread_join(all[i].thread, NULL);
        assert_true(made && computed && left);
        assert_ok(found);
        for (int i = 0; i < 3; i++)
            assert_int_equal(all[i].status, i == victim ? WEIR_ERR_CANCELLED : WEIR_OK);
    }
    unload_model(&l);
    close_client(&l);
}

/* One has left while the group was made; when the others are cancelled as well nobody wants the call any more. */
static void a_call_ends_with_the_last_that_is_left(void **state)
{
    (void)state;
    loaded l =
        load_model("joined", (const char *const[]){"max_batch_size=3", "max_queue_delay_microseconds=60000000", NULL});
    watched.RunOptionsSetTerminate = counted_stop;
    for (int victim = 0; victim < 3; victim++) {
        asker all[3];
        inside = copying = 0;
        run_open = copy_open = false;
        atomic_store(&stopped, 0);
        for (int i = 0; i < 3; i++) {
            start(&all[i], &l, (uint64_t)i + 1, WIDTH);
            if (i + 1 < 3)
                until_there(&l, i + 1);
        }
        bool made = come(&copying, 1);
        weir_status found = l.engine->cancel(l.model, (uint64_t)victim + 1);
        open_gate(&copy_open);
        bool computed = come(&inside, 1);
        int stops[3] = {0};
        for (int i = 0; i < 3; i++)
            if (i != victim) {
                (void)!l.engine->cancel(l.model, (uint64_t)i + 1);
                stops[i] = atomic_load(&stopped);
            }
        open_gate(&run_open);
        join_all(all, 3);
        assert_true(made && computed);
        assert_ok(found);
        assert_int_equal(stops[victim == 0], 0);
        assert_int_equal(stops[victim == 2 ? 1 : 2], 1);
        for (int i = 0; i < 3; i++)
            assert_int_equal(all[i].status, WEIR_ERR_CANCELLED);
    }
    unload_model(&l);
    close_client(&l);
}

/* Three failed together and are computed one by one: each can be stopped in its own call. */
static void a_run_that_is_tried_alone_is_stopped_alone(void **state)
{
    (void)state;
    enum { TOGETHER = 3 };
    loaded l = load_model("joined", (const char *const[]){"max_batch_size=3", "max_queue_delay_microseconds=60000000",
                                                          "concurrency=1", NULL});
    watched.RunOptionsSetTerminate = counted_stop;
    open_gate(&copy_open);
    for (int victim = 0; victim < TOGETHER; victim++) {
        asker all[TOGETHER];
        inside = calls = 0;
        run_open = false;
        fails_at = 1;
        holds_from = 2 + victim;
        atomic_store(&stopped, 0);
        for (int i = 0; i < TOGETHER; i++) {
            start(&all[i], &l, (uint64_t)i + 1, WIDTH);
            if (i + 1 < TOGETHER)
                until_there(&l, i + 1);
        }
        bool alone = come(&inside, 1);
        weir_status found = l.engine->cancel(l.model, (uint64_t)victim + 1);
        open_gate(&run_open);
        join_all(all, TOGETHER);
        assert_true(alone);
        assert_ok(found);
        assert_int_equal(atomic_load(&stopped), 1);
        for (int i = 0; i < TOGETHER; i++)
            assert_int_equal(all[i].status, i == victim ? WEIR_ERR_CANCELLED : WEIR_OK);
    }
    unload_model(&l);
    close_client(&l);
}

/* Of two that were computed together each has its results when a cancel comes. */
static void who_has_results_is_not_found(void **state)
{
    (void)state;
    asker all[2];
    loaded l =
        load_model("joined", (const char *const[]){"max_batch_size=2", "max_queue_delay_microseconds=60000000", NULL});
    open_gate(&copy_open);
    open_gate(&run_open);
    atomic_store(&found_late, 0);
    late = &l;
    for (int i = 0; i < 2; i++)
        start(&all[i], &l, (uint64_t)i + 1, WIDTH);
    join_all(all, 2);
    late = NULL;
    assert_int_equal(calls, 1);
    assert_int_equal(atomic_load(&found_late), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(all[i].status, WEIR_OK);
    unload_model(&l);
    close_client(&l);
}

/* Inputs that have not as many rows as each other are rows of no call: such a run is computed by itself, at once. */
static void inputs_of_different_rows_go_with_nobody(void **state)
{
    (void)state;
    enum { ROWS = 2 };
    loaded l =
        load_model("joined", (const char *const[]){"max_batch_size=4", "max_queue_delay_microseconds=60000000", NULL});
    open_gate(&copy_open);
    open_gate(&run_open);
    pthread_t threads[2];
    uneven all[2];
    for (int i = 0; i < 2; i++) {
        all[i] = (uneven){.l = &l, .ids = {1, 2, 3, 4}, .scale = {3, 5}, .ids_rows = ROWS - i, .scale_rows = 1 + i};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_uneven, &all[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(all[i].status, WEIR_OK);
        assert_int_equal(all[i].together, 1);
    }
    assert_int_equal(copying, 0);
    assert_int_equal(calls, 2);
    unload_model(&l);
    close_client(&l);
}

/* The first of the line waits for others on behalf of all: when it is cancelled, the next one does. */
static void who_follows_a_cancelled_run_waits_in_its_place(void **state)
{
    (void)state;
    pthread_t threads[2];
    doubling all[2];
    loaded l =
        load_model("doubled", (const char *const[]){"max_batch_size=4", "max_queue_delay_microseconds=2000000", NULL});
    open_gate(&run_open);
    for (int i = 0; i < 2; i++) {
        all[i] = (doubling){.l = &l, .x = {(float)i, 2}, .id = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_doubled, &all[i]), 0);
        until_there(&l, i + 1);
    }
    weir_status found = l.engine->cancel(l.model, 1);
    struct timespec until = soon();
    bool came_back = pthread_timedjoin_np(threads[1], NULL, &until) == 0;
    if (!came_back)
        (void)l.engine->cancel(l.model, 0);
    pthread_join(threads[0], NULL);
    if (!came_back)
        pthread_join(threads[1], NULL);
    assert_ok(found);
    assert_true(came_back);
    assert_int_equal(all[0].status, WEIR_ERR_CANCELLED);
    assert_int_equal(all[1].status, WEIR_OK);
    unload_model(&l);
    close_client(&l);
}

/* Nobody but the run that leaves wakes the one behind it. */
static void who_leaves_wakes_the_next(void **state)
{
    (void)state;
    pthread_t threads[2];
    doubling all[2];
    loaded l =
        load_model("doubled", (const char *const[]){"max_batch_size=4", "max_queue_delay_microseconds=2000000", NULL});
    open_gate(&run_open);
    for (int i = 0; i < 2; i++) {
        all[i] = (doubling){.l = &l, .x = {(float)i, 2}, .id = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_doubled, &all[i]), 0);
        until_there(&l, i + 1);
    }
    for (bool gone = false; !gone;
         gone = pthread_tryjoin_np(threads[0], NULL) == 0) { /* as a cancel would do to it alone */
        pthread_mutex_lock(&l.model->lock);
        for (onnx_run *run = l.model->runs; run; run = run->next)
            if (run->id == 1) {
                run->cancelled = true;
                pthread_cond_signal(run->wake);
            }
        pthread_mutex_unlock(&l.model->lock);
        usleep(500);
    }
    struct timespec until = soon();
    bool came_back = pthread_timedjoin_np(threads[1], NULL, &until) == 0;
    if (!came_back) {
        (void)l.engine->cancel(l.model, 0);
        pthread_join(threads[1], NULL);
    }
    assert_true(came_back);
    assert_int_equal(all[0].status, WEIR_ERR_CANCELLED);
    assert_int_equal(all[1].status, WEIR_OK);
    unload_model(&l);
    close_client(&l);
}

/* A run that waits for others waits until so long after it came, by a time that is one. */
static void a_wait_ends_when_its_delay_is_over(void **state)
{
    static const struct {
        const char *delay;
        long nanoseconds, end_seconds, end_nanoseconds; /* after 100 seconds */
    } cases[] = {{"max_queue_delay_microseconds=1", 0, 0, 1000},
                 {"max_queue_delay_microseconds=300000", 699999999, 0, 999999999},
                 {"max_queue_delay_microseconds=300000", 700000000, 1, 0},
                 {"max_queue_delay_microseconds=300000", 900000000, 1, 200000000},
                 {"max_queue_delay_microseconds=59300000", 900000000, 60, 200000000},
                 {"max_queue_delay_microseconds=60000000", 999999999, 60, 999999999}};
    (void)state;
    open_gate(&run_open);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        loaded l = load_model("doubled", (const char *const[]){"max_batch_size=4", cases[i].delay, NULL});
        doubling one = {.l = &l, .x = {1, 2}};
        now = (struct timespec){100, cases[i].nanoseconds};
        ended = (struct timespec){0, 0};
        waits = 0;
        still = true;
        ask_doubled(&one);
        still = false;
        assert_int_equal(one.status, WEIR_OK);
        assert_int_equal(waits, 2);
        assert_int_equal(ended.tv_sec, 100 + cases[i].end_seconds);
        assert_int_equal(ended.tv_nsec, cases[i].end_nanoseconds);
        unload_model(&l);
        close_client(&l);
    }
}

/* Once results could not be split, whoever waits already for more rows does so no longer. */
static void who_waits_when_results_cannot_be_split_is_computed(void **state)
{
    (void)state;
    enum { WAITING = 4 };
    pthread_t threads[WAITING];
    doubling all[WAITING];
    loaded l =
        load_model("doubled", (const char *const[]){"max_batch_size=2", "max_queue_delay_microseconds=60000000", NULL});
    open_gate(&copy_open);
    for (int i = 0; i < WAITING - 1; i++) { /* two are computed, the third waits */
        all[i] = (doubling){.l = &l, .x = {(float)i, 2}};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_doubled, &all[i]), 0);
        until_there(&l, i + 1);
    }
    bool computed = come(&inside, 1);
    open_gate(&run_open);
    bool returned[WAITING] = {false};
    struct timespec until = soon();
    for (int i = 0; i < WAITING - 1; i++)
        returned[i] = pthread_timedjoin_np(threads[i], NULL, &until) == 0;
    all[WAITING - 1] = (doubling){.l = &l, .x = {3, 2}}; /* ends the wait of a third that still waits */
    assert_int_equal(pthread_create(&threads[WAITING - 1], NULL, ask_doubled, &all[WAITING - 1]), 0);
    for (int i = 0; i < WAITING; i++)
        if (!returned[i])
            pthread_join(threads[i], NULL);
    assert_true(computed && returned[0] && returned[1] && returned[2]);
    assert_int_equal(calls, 1 + WAITING);
    for (int i = 0; i < WAITING; i++)
        assert_int_equal(all[i].status, WEIR_OK);
    unload_model(&l);
    close_client(&l);
}

int main(void)
{
    int missing = on_cuda() ? need_cuda_build() : need_onnxruntime();
    if (missing)
        return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_next_group_begins_beside_the_first, hold, let_go),
        cmocka_unit_test_setup_teardown(no_more_groups_begin_than_there_may_be, hold, let_go),
        cmocka_unit_test_setup_teardown(a_run_that_is_cancelled_while_its_group_is_made_leaves, hold, let_go),
        cmocka_unit_test_setup_teardown(a_call_ends_with_the_last_that_is_left, hold, let_go),
        cmocka_unit_test_setup_teardown(a_run_that_is_tried_alone_is_stopped_alone, hold, let_go),
        cmocka_unit_test_setup_teardown(who_has_results_is_not_found, hold, let_go),
        cmocka_unit_test_setup_teardown(inputs_of_different_rows_go_with_nobody, hold, let_go),
        cmocka_unit_test_setup_teardown(who_follows_a_cancelled_run_waits_in_its_place, hold, let_go),
        cmocka_unit_test_setup_teardown(who_leaves_wakes_the_next, hold, let_go),
        cmocka_unit_test_setup_teardown(a_wait_ends_when_its_delay_is_over, hold, let_go),
        cmocka_unit_test_setup_teardown(who_waits_when_results_cannot_be_split_is_computed, hold, let_go),
    };
    enum { EVERYWHERE = 1 };
    return _cmocka_run_group_tests("line", tests, on_cuda() ? EVERYWHERE : sizeof tests / sizeof *tests, NULL, NULL);
}
