/* The gate of a model that steps aside: who passes, who waits, who is refused, over an engine that the test makes up. */
#include "residency/models.h"

#include "test_places.h"

#include <weir/exchange.h>

#include <stdatomic.h>

enum { WEIGHTS = 1 << 20, TIMES = 50 };
static const uint64_t minute = UINT64_C(60000000000);

/* The engine ------------------------------------------------------------------------------------------------------- */

struct weir_engine_model {
    weir_client *client;
    unsigned char *weights;
    atomic_int stopped;
};

static struct {
    pthread_mutex_t lock;
    atomic_int suspends, resumes;
    int runs;
    weir_status refuses;  /* what `suspend` answers */
    weir_status grumbles; /* what `resume` answers */
    bool holds;           /* runs wait until they are let go */
    int held;             /* that wait */
    pthread_cond_t changed;
    weir_runtime *runtime;
    void (*inside)(void); /* what a run does, once */
} e = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static weir_status engine_probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}

static void engine_unload(weir_engine_model *model)
{
    ok(weir_free(model->client, model->weights, WEIR_STREAM_HOST));
    free(model);
}

static weir_status engine_load(const weir_engine_load *load, weir_engine_model **out)
{
    weir_engine_model *model = calloc(1, sizeof *model);
    model->client = load->places[0].client;
    model->weights = allocate(model->client, WEIGHTS, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    memset(model->weights, 7, WEIGHTS);
    *out = model;
    return WEIR_OK;
}

static weir_status engine_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    (void)inference;
    pthread_mutex_lock(&e.lock);
    e.runs++;
    e.held += e.holds;
    pthread_cond_broadcast(&e.changed);
    while (e.holds && !atomic_load(&model->stopped))
        pthread_cond_wait(&e.changed, &e.lock);
    void (*inside)(void) = e.inside;
    e.inside = NULL;
    pthread_mutex_unlock(&e.lock);
    if (inside)
        inside();
    for (size_t i = 0; i < WEIGHTS; i += 4096)
        assert_int_equal(model->weights[i], 7); /* a fault where it is away */
    *out = (weir_outputs){.struct_size = sizeof *out};
    return atomic_load(&model->stopped) ? weir_fail(WEIR_ERR_CANCELLED, "stopped") : WEIR_OK;
}

static void engine_release(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model;
    (void)outputs;
}

static weir_status engine_cancel(weir_engine_model *model, uint64_t id)
{
    (void)id;
    pthread_mutex_lock(&e.lock);
    atomic_store(&model->stopped, true);
    pthread_cond_broadcast(&e.changed);
    pthread_mutex_unlock(&e.lock);
    return WEIR_OK;
}

static weir_status engine_suspend(weir_engine_model *model, weir_engine_leaving *out)
{
    (void)model;
    e.suspends++;
    assert_int_equal(out->struct_size, sizeof *out);
    assert_int_equal(out->stay | out->drop | out->unwritten, 0);
    out->unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS);
    return e.refuses == WEIR_OK ? WEIR_OK : weir_fail(e.refuses, "the engine would rather not");
}

static weir_status engine_resume(weir_engine_model *model)
{
    (void)model;
    e.resumes++;
    return e.grumbles == WEIR_OK ? WEIR_OK : weir_fail(e.grumbles, "the engine is not amused");
}

static weir_status engine_info(weir_engine_model *model, weir_model_details *out)
{
    (void)model;
    *out = (weir_model_details){.struct_size = out->struct_size, .engine = "made-up", .provider = "cpu"};
    return WEIR_OK;
}

#define TABLE                                                                                                          \
    .struct_size = sizeof(weir_engine), .summary = "of a test", .suffixes = "", .probe = engine_probe,                 \
    .load = engine_load, .infer = engine_infer, .release_outputs = engine_release, .cancel = engine_cancel,            \
    .info = engine_info, .unload = engine_unload
static const weir_engine made_up = {
    .abi = WEIR_ENGINE_ABI, .name = "made-up", .suspend = engine_suspend, .resume = engine_resume, TABLE};
static const weir_engine old = {
    .abi = WEIR_ENGINE_ABI_OLDEST, .name = "old", .suspend = engine_suspend, .resume = engine_resume, TABLE};
static const weir_engine lacking = {.abi = WEIR_ENGINE_ABI, .name = "lacking", TABLE};

/* Models ----------------------------------------------------------------------------------------------------------- */

static int begin(void **state)
{
    (void)state;
    e.suspends = e.resumes = e.runs = e.held = 0;
    e.refuses = e.grumbles = WEIR_OK;
    e.holds = false;
    e.runtime = make_runtime(16 * MIB);
    return 0;
}

static int end(void **state)
{
    (void)state;
    check_empty(e.runtime);
    ok(weir_runtime_destroy(e.runtime));
    return 0;
}

static weir_model *model_by(const char *engine)
{
    weir_model *model = NULL;
    weir_model_options options = WEIR_INIT(weir_model_options);
    options.name = "aside";
    options.engine = engine;
    options.runtime = e.runtime;
    ok(weir_model_create(data_folder, &options, &model));
    return model;
}

static weir_status infer(weir_model *model, uint64_t id)
{
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    inference.id = id;
    weir_status status = weir_model_infer(model, &inference, &out);
    if (status == WEIR_OK)
        weir_model_release_outputs(model, &out);
    return status;
}

static weir_residency_state residency_of(weir_model *model)
{
    weir_residency now = WEIR_INIT(weir_residency);
    ok(weir_client_residency(weir_model_client(model), &now));
    return now.state;
}

static weir_status suspend_as(weir_model *model, weir_model_suspend_options options)
{
    options.struct_size = sizeof options;
    return weir_model_suspend(model, &options, NULL);
}

/* A run on a thread of its own. */
typedef struct runner {
    pthread_t thread;
    weir_model *model;
    uint64_t id;
    weir_status status;
} runner;

static void *run_it(void *user)
{
    runner *r = user;
    r->status = infer(r->model, r->id);
    return NULL;
}

static void start(runner *r, weir_model *model, uint64_t id)
{
    *r = (runner){.model = model, .id = id};
    assert_int_equal(pthread_create(&r->thread, NULL, run_it, r), 0);
}

static void wait_for_held(int count)
{
    pthread_mutex_lock(&e.lock);
    while (e.held < count)
        pthread_cond_wait(&e.changed, &e.lock);
    pthread_mutex_unlock(&e.lock);
}

static void let_go(void)
{
    pthread_mutex_lock(&e.lock);
    e.holds = false;
    pthread_cond_broadcast(&e.changed);
    pthread_mutex_unlock(&e.lock);
}

/* What runs do ----------------------------------------------------------------------------------------------------- */

static void a_run_resumes(void **state)
{
    weir_model *model = model_by("made-up");
    (void)state;
    assert_int_equal(presence_of(model).state, WEIR_RESIDENT);
    assert_int_equal(presence_of(model).suspended_at, 0);
    for (int i = 1; i <= TIMES; i++) {
        weir_residency receipt = suspend_model(model, (weir_model_suspend_options){0});
        assert_int_equal(receipt.away, WEIGHTS);
        assert_int_equal(i == 1 ? receipt.copied : receipt.trusted, WEIGHTS); /* by the engine's word */
        assert_int_equal(presence_of(model).state, WEIR_SUSPENDED);
        assert_int_equal(presence_of(model).away, WEIGHTS);
        ok(infer(model, 0));
        weir_model_presence now = presence_of(model);
        assert_int_equal(now.state, WEIR_RESIDENT);
        assert_int_equal(now.suspends, i);
        assert_int_equal(now.resumes_by_runs, i);
        assert_int_equal(now.returned, WEIGHTS);
        assert_int_equal(e.suspends, i);
        assert_int_equal(e.resumes, i);
    }
    ok(weir_model_destroy(model));
}

static void a_run_is_refused(void **state)
{
    weir_model *model = model_by("made-up");
    (void)state;
    ok(suspend_as(model, (weir_model_suspend_options){.refuse_runs = true}));
    fails(WEIR_ERR_BUSY, infer(model, 0));
    detail_names("refuses runs");
    assert_int_equal(e.runs, 0);
    assert_int_equal(presence_of(model).state, WEIR_SUSPENDED);
    fails(WEIR_ERR_BUSY, suspend_as(model, (weir_model_suspend_options){0}));
    detail_names("suspended already");
    ok(weir_model_resume(model, WEIR_STREAM_HOST));
    ok(weir_model_resume(model, WEIR_STREAM_HOST)); /* it is here */
    ok(infer(model, 0));
    assert_int_equal(presence_of(model).resumes, 1);
    assert_int_equal(presence_of(model).resumes_by_runs, 0);
    ok(suspend_as(model, (weir_model_suspend_options){0})); /* each suspend says it anew */
    ok(infer(model, 0));
    ok(weir_model_destroy(model));
}

/* Contents that are on their way: the run waits for them. */
static void a_run_waits_for_what_arrives(void **state)
{
    weir_model *model = model_by("made-up");
    weir_stream stream;
    (void)state;
    ok(weir_stream_acquire(e.runtime, &stream));
    ok(suspend_as(model, (weir_model_suspend_options){0}));
    ok(weir_model_resume(model, stream));
    ok(weir_stream_release(stream)); /* the run does not need it */
    ok(infer(model, 0));
    assert_int_equal(presence_of(model).resumes_by_runs, 0);
    ok(weir_model_destroy(model));
}

/* A program has suspended the client itself. */
static void a_client_that_is_away(void **state)
{
    weir_model *model = model_by("made-up");
    (void)state;
    ok(weir_client_suspend(weir_model_client(model), NULL, NULL));
    fails(WEIR_ERR_BUSY, suspend_as(model, (weir_model_suspend_options){0}));
    ok(infer(model, 0));
    assert_int_equal(residency_of(model), WEIR_RESIDENT);
    ok(weir_client_suspend(weir_model_client(model), NULL, NULL));
    ok(weir_model_resume(model, WEIR_STREAM_HOST));
    assert_int_equal(residency_of(model), WEIR_RESIDENT);
    ok(weir_model_destroy(model));
}

/* There is no memory to come back to: the run fails, nothing is lost, and later it works. */
static void no_room_to_come_back(void **state)
{
    weir_model *model = model_by("made-up");
    weir_client *other = open_client(e.runtime, "other", 0, 0);
    (void)state;
    ok(suspend_as(model, (weir_model_suspend_options){0}));
    void *all = allocate(other, 15 * MIB + MIB / 2, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    fails(WEIR_ERR_OUT_OF_MEMORY, infer(model, 0));
    assert_string_equal(last_refusal().client, "aside");
    assert_int_equal(presence_of(model).state, WEIR_SUSPENDED);
    assert_int_equal(e.runs, 0);
    ok(weir_free(other, all, WEIR_STREAM_HOST));
    ok(infer(model, 0));
    ok(weir_model_destroy(model));
    ok(weir_client_destroy(other));
}

/* Whom a suspend waits for ----------------------------------------------------------------------------------------- */

static void runs_stand_in_the_way(void **state)
{
    const uint64_t soon = 1000000;
    weir_model *model = model_by("made-up");
    runner r;
    (void)state;
    e.holds = true;
    start(&r, model, 1);
    wait_for_held(1);
    fails(WEIR_ERR_BUSY, suspend_as(model, (weir_model_suspend_options){.at_once = true}));
    detail_names("1 runs under way");
    fails(WEIR_ERR_BUSY, suspend_as(model, (weir_model_suspend_options){.wait = soon}));
    assert_int_equal(presence_of(model).state, WEIR_RESIDENT);
    assert_int_equal(e.suspends, 0);
    let_go();
    ok(suspend_as(model, (weir_model_suspend_options){.wait = minute})); /* for the run, and for its results */
    pthread_join(r.thread, NULL);
    ok(r.status);
    ok(weir_model_destroy(model));
}

static void results_stand_in_the_way(void **state)
{
    weir_model *model = model_by("made-up");
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    (void)state;
    ok(weir_model_infer(model, &inference, &out));
    fails(WEIR_ERR_BUSY, suspend_as(model, (weir_model_suspend_options){0})); /* without a wait at once */
    detail_names("1 results");
    fails(WEIR_ERR_BUSY, suspend_as(model, (weir_model_suspend_options){.wait = 1000000}));
    weir_model_release_outputs(model, &out);
    ok(suspend_as(model, (weir_model_suspend_options){0}));
    ok(weir_model_destroy(model));
}

/* A thread that suspends, while a run is held. */
typedef struct suspender {
    pthread_t thread;
    weir_model *model;
    weir_status status;
} suspender;

static void *suspend_it(void *user)
{
    suspender *s = user;
    s->status = suspend_as(s->model, (weir_model_suspend_options){.refuse_runs = true, .wait = minute});
    return NULL;
}

static void wait_for_moving(weir_model *model)
{
    while (presence_of(model).state != WEIR_MOVING)
        sched_yield();
}

/* Runs that come while it waits stay at the gate; a cancel reaches them there. */
static void a_cancel_at_the_gate(void **state)
{
    weir_model *model = model_by("made-up");
    suspender s = {.model = model};
    runner inside, outside, refused;
    (void)state;
    e.holds = true;
    start(&inside, model, 1);
    wait_for_held(1);
    assert_int_equal(pthread_create(&s.thread, NULL, suspend_it, &s), 0);
    wait_for_moving(model);
    start(&outside, model, 2);
    while (weir_model_cancel(model, 2) == WEIR_ERR_NOT_FOUND)
        sched_yield();
    pthread_join(outside.thread, NULL);
    assert_int_equal(outside.status, WEIR_ERR_CANCELLED);
    start(&refused, model, 3);
    fails(WEIR_ERR_BUSY, weir_model_destroy(model));
    assert_int_equal(e.runs, 1);
    let_go();
    pthread_join(inside.thread, NULL);
    pthread_join(refused.thread, NULL);
    pthread_join(s.thread, NULL);
    ok(inside.status);
    ok(s.status);
    assert_int_equal(refused.status, WEIR_ERR_BUSY);
    assert_int_equal(e.runs, 1);
    ok(weir_model_destroy(model));
}

/* Everybody at once ------------------------------------------------------------------------------------------------ */

enum { ROUNDS = UNDER_TSAN ? 60 : 400 };

static void *run_often(void *user)
{
    for (int i = 0; i < ROUNDS; i++)
        ok(infer(user, 0));
    return NULL;
}

static void *suspend_often(void *user)
{
    for (int i = 0; i < ROUNDS; i++) {
        weir_status status = suspend_as(user, (weir_model_suspend_options){.at_once = i % 2, .wait = minute});
        assert_true(status == WEIR_OK || status == WEIR_ERR_BUSY);
    }
    return NULL;
}

static void *resume_often(void *user)
{
    for (int i = 0; i < ROUNDS; i++) {
        ok(weir_model_resume(user, WEIR_STREAM_HOST));
        weir_model_presence now = presence_of(user);
        assert_true(now.resumes <= now.suspends && now.suspends <= now.resumes + 1);
    }
    return NULL;
}

static void all_at_once(void **state)
{
    void *(*const work[])(void *) = {run_often, run_often, suspend_often, suspend_often, resume_often};
    enum { THREADS = sizeof work / sizeof *work };
    weir_model *model = model_by("made-up");
    pthread_t threads[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work[i], model), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    weir_model_presence now = presence_of(model);
    assert_true(now.suspends > 0);
    assert_int_equal(now.suspends - now.resumes, now.state == WEIR_SUSPENDED);
    assert_int_equal(e.runs, 2 * ROUNDS);
    assert_int_equal(e.resumes, now.resumes);
    ok(weir_model_destroy(model));
}

/* What engines say ------------------------------------------------------------------------------------------------- */

static void engines_that_cannot(void **state)
{
    weir_model *of[] = {model_by("old"), model_by("lacking")};
    (void)state;
    for (int i = 0; i < 2; i++) {
        fails(WEIR_ERR_UNSUPPORTED, suspend_as(of[i], (weir_model_suspend_options){0}));
        detail_names("no way to suspend");
        ok(infer(of[i], 0));
        ok(weir_model_destroy(of[i]));
    }
    assert_int_equal(e.suspends, 0);
}

static void engines_that_will_not(void **state)
{
    weir_model *model = model_by("made-up");
    (void)state;
    e.refuses = WEIR_ERR_ENGINE;
    fails(WEIR_ERR_ENGINE, suspend_as(model, (weir_model_suspend_options){0}));
    detail_names("would rather not");
    assert_int_equal(e.resumes, 0); /* it has not agreed */
    assert_int_equal(residency_of(model), WEIR_RESIDENT);
    e.refuses = WEIR_OK;
    fails(WEIR_ERR_SYSTEM, suspend_as(model, (weir_model_suspend_options){.folder = "/no such folder"}));
    assert_int_equal(e.resumes, 1); /* it has agreed, and it comes to nothing */
    ok(infer(model, 0));
    ok(suspend_as(model, (weir_model_suspend_options){0}));
    e.grumbles = WEIR_ERR_ENGINE;
    fails(WEIR_ERR_ENGINE, weir_model_resume(model, WEIR_STREAM_HOST));
    assert_int_equal(presence_of(model).state, WEIR_RESIDENT); /* the memory is back all the same */
    ok(infer(model, 0));
    ok(weir_model_destroy(model));
}

static void what_is_no_call(void **state)
{
    weir_model *model = model_by("made-up");
    weir_model_suspend_options unsized = {.struct_size = 0};
    weir_model_presence out = {.struct_size = 0};
    (void)state;
    fails(WEIR_ERR_INVALID, weir_model_suspend(NULL, NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_model_suspend(model, &unsized, NULL));
    fails(WEIR_ERR_INVALID, suspend_as(model, (weir_model_suspend_options){.drop = 1u << 30}));
    fails(WEIR_ERR_INVALID, weir_model_resume(NULL, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_model_residency(model, NULL));
    fails(WEIR_ERR_INVALID, weir_model_residency(model, &out));
    assert_int_equal(presence_of(model).state, WEIR_RESIDENT);
    ok(infer(model, 0));
    ok(weir_model_destroy(model));
}

/* Changing places -------------------------------------------------------------------------------------------------- */

/* Beside two models of which only the first is here: others have the rest, so that one model has to leave for the other. */
typedef struct pair {
    weir_model *here, *away;
    weir_client *other;
    void *rest;
} pair;

/* `others`: bytes of other models that are here. */
static pair open_pair(uint64_t others)
{
    pair p = {.here = model_by("made-up"), .away = model_by("made-up")};
    ok(suspend_as(p.away, (weir_model_suspend_options){0}));
    p.other = open_client(e.runtime, "other", 0, 0);
    p.rest = allocate(p.other, 14 * MIB + MIB / 2 - others, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_model_resume(p.away, WEIR_STREAM_HOST));
    e.suspends = e.resumes = 0;
    return p;
}

static void close_pair(pair *p)
{
    ok(weir_free(p->other, p->rest, WEIR_STREAM_HOST));
    ok(weir_client_destroy(p->other));
    ok(infer(p->here, 0));
    ok(infer(p->away, 0));
    ok(weir_model_destroy(p->here));
    ok(weir_model_destroy(p->away));
}

static weir_status exchange_as(weir_model *leaves, weir_model_suspend_options options, weir_model *comes)
{
    options.struct_size = sizeof options;
    return weir_model_exchange(leaves, &options, comes, WEIR_STREAM_HOST, NULL);
}

/* The client's exchange, as the library calls it; or as it is where the driver fails twice. */
static bool fails_twice;

weir_status __real_weir_client_exchange(weir_client *leaves, const weir_suspend_options *how, weir_client *comes,
                                        weir_stream stream, weir_residency *out);
weir_status __wrap_weir_client_exchange(weir_client *leaves, const weir_suspend_options *how, weir_client *comes,
                                        weir_stream stream, weir_residency *out);
weir_status __wrap_weir_client_exchange(weir_client *leaves, const weir_suspend_options *how, weir_client *comes,
                                        weir_stream stream, weir_residency *out)
{
    if (!fails_twice)
        return __real_weir_client_exchange(leaves, how, comes, stream, out);
    ok(weir_client_suspend(leaves, how, out));
    return weir_fail(WEIR_ERR_DRIVER, "twice");
}

static void models_change_places(void **state)
{
    pair p = open_pair(0);
    (void)state;
    for (int i = 1; i <= TIMES; i++) {
        weir_model *leaves = i % 2 ? p.here : p.away, *comes = i % 2 ? p.away : p.here;
        weir_residency receipt = WEIR_INIT(weir_residency);
        ok(weir_model_exchange(leaves, NULL, comes, WEIR_STREAM_HOST, &receipt));
        assert_int_equal(receipt.away, WEIGHTS);
        assert_int_equal(i == 1 ? receipt.copied : receipt.trusted, WEIGHTS); /* by the engine's word */
        ok(infer(comes, 0));
        assert_int_equal(presence_of(leaves).state, WEIR_SUSPENDED);
        assert_int_equal(presence_of(leaves).away, WEIGHTS);
        assert_true(presence_of(leaves).suspended_at > 0);
        assert_int_equal(presence_of(comes).state, WEIR_RESIDENT);
        assert_int_equal(presence_of(comes).returned, WEIGHTS);
        assert_int_equal(presence_of(comes).resumes, (i + 1) / 2);
        assert_int_equal(e.suspends, i);
        assert_int_equal(e.resumes, i);
        fails(WEIR_ERR_OUT_OF_MEMORY, infer(leaves, 0));
    }
    close_pair(&p);
}

/* Contents that are on their way: the first run waits for them. */
static void one_comes_on_a_stream(void **state)
{
    pair p = open_pair(0);
    weir_stream stream;
    (void)state;
    ok(weir_stream_acquire(e.runtime, &stream));
    ok(weir_model_exchange(p.here, NULL, p.away, stream, NULL));
    ok(infer(p.away, 0));
    ok(weir_stream_release(stream));
    close_pair(&p);
}

static void as_before(const pair *p)
{
    assert_int_equal(presence_of(p->here).state, WEIR_RESIDENT);
    assert_int_equal(residency_of(p->here), WEIR_RESIDENT);
    assert_int_equal(presence_of(p->away).state, WEIR_SUSPENDED);
    assert_int_equal(residency_of(p->away), WEIR_SUSPENDED);
    assert_int_equal(e.suspends, e.resumes); /* who has agreed is told that it comes to nothing */
    ok(infer(p->here, 0));
}

static void a_change_that_is_refused(void **state)
{
    weir_model *lacking_one = model_by("lacking");
    pair p = open_pair(WEIGHTS);
    (void)state;
    fails(WEIR_ERR_INVALID, weir_model_exchange(NULL, NULL, p.away, WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_INVALID, weir_model_exchange(p.here, NULL, NULL, WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_INVALID, exchange_as(p.away, (weir_model_suspend_options){0}, p.away));
    fails(WEIR_ERR_INVALID, exchange_as(p.here, (weir_model_suspend_options){.show = true}, p.away));
    fails(WEIR_ERR_BUSY, exchange_as(p.away, (weir_model_suspend_options){0}, p.here));
    detail_names("suspended already");
    fails(WEIR_ERR_UNSUPPORTED, exchange_as(lacking_one, (weir_model_suspend_options){0}, p.away));
    as_before(&p);
    e.refuses = WEIR_ERR_ENGINE;
    fails(WEIR_ERR_ENGINE, exchange_as(p.here, (weir_model_suspend_options){0}, p.away));
    e.suspends = 0;
    e.refuses = WEIR_OK;
    as_before(&p);
    fails(WEIR_ERR_SYSTEM, exchange_as(p.here, (weir_model_suspend_options){.folder = "/no such folder"}, p.away));
    assert_int_equal(e.suspends, 1);
    as_before(&p);
    ok(weir_model_destroy(lacking_one));
    close_pair(&p);
}

static void a_comer_that_is_here(void **state)
{
    weir_model *here = model_by("made-up"), *too = model_by("made-up");
    (void)state;
    fails(WEIR_ERR_BUSY, exchange_as(here, (weir_model_suspend_options){0}, too));
    detail_names("is not suspended");
    assert_int_equal(e.suspends, 0);
    ok(infer(here, 0));
    ok(infer(too, 0));
    ok(weir_model_destroy(here));
    ok(weir_model_destroy(too));
}

/* Another thread has the gate of the comer, and is not waited for. */
static void a_comer_that_is_moving(void **state)
{
    weir_model *here = model_by("made-up"), *moves = model_by("made-up");
    suspender s = {.model = moves};
    runner r;
    (void)state;
    e.holds = true;
    start(&r, moves, 1);
    wait_for_held(1);
    assert_int_equal(pthread_create(&s.thread, NULL, suspend_it, &s), 0);
    wait_for_moving(moves);
    fails(WEIR_ERR_BUSY, exchange_as(here, (weir_model_suspend_options){0}, moves));
    detail_names("another thread");
    assert_int_equal(presence_of(moves).state, WEIR_MOVING);
    let_go();
    pthread_join(r.thread, NULL);
    pthread_join(s.thread, NULL);
    ok(s.status);
    ok(infer(here, 0));
    ok(weir_model_resume(moves, WEIR_STREAM_HOST));
    ok(weir_model_destroy(here));
    ok(weir_model_destroy(moves));
}

/* Both are away at the end, which the models know, and each comes back. */
static void a_change_that_fails_twice(void **state)
{
    pair p = open_pair(0);
    (void)state;
    fails_twice = true;
    fails(WEIR_ERR_DRIVER, exchange_as(p.here, (weir_model_suspend_options){0}, p.away));
    fails_twice = false;
    assert_string_equal(weir_detail(), "twice");
    assert_int_equal(presence_of(p.here).state, WEIR_SUSPENDED);
    assert_int_equal(presence_of(p.here).away, WEIGHTS);
    assert_int_equal(presence_of(p.away).state, WEIR_SUSPENDED);
    assert_int_equal(e.suspends, 1);
    assert_int_equal(e.resumes, 0);
    ok(infer(p.here, 0));
    assert_int_equal(presence_of(p.here).resumes_by_runs, 1);
    close_pair(&p);
}

/* The engine of the comer fails, behind the change. */
static void a_comer_whose_engine_fails(void **state)
{
    pair p = open_pair(0);
    (void)state;
    e.grumbles = WEIR_ERR_ENGINE;
    fails(WEIR_ERR_ENGINE, exchange_as(p.here, (weir_model_suspend_options){0}, p.away));
    detail_names("not amused");
    e.grumbles = WEIR_OK;
    assert_int_equal(presence_of(p.here).state, WEIR_SUSPENDED);
    assert_int_equal(presence_of(p.away).state, WEIR_RESIDENT);
    ok(infer(p.away, 0));
    close_pair(&p);
}

/* A run of the leaving model is waited for, and may itself bring the other model back. */
static pair changing;

static void bring_the_other(void)
{
    while (presence_of(changing.here).state != WEIR_MOVING)
        sched_yield();
    ok(weir_free(changing.other, changing.rest, WEIR_STREAM_HOST));
    ok(infer(changing.away, 0));
    changing.rest = allocate(changing.other, MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
}

static void a_run_brings_the_comer_first(void **state)
{
    runner r;
    (void)state;
    changing = open_pair(0);
    e.inside = bring_the_other;
    start(&r, changing.here, 1);
    pthread_mutex_lock(&e.lock);
    while (e.runs < 1)
        pthread_cond_wait(&e.changed, &e.lock);
    pthread_mutex_unlock(&e.lock);
    fails(WEIR_ERR_BUSY, exchange_as(changing.here, (weir_model_suspend_options){.wait = minute}, changing.away));
    detail_names("is not suspended");
    pthread_join(r.thread, NULL);
    ok(r.status);
    assert_int_equal(presence_of(changing.here).state, WEIR_RESIDENT);
    close_pair(&changing);
}

static void *exchange_often(void *user)
{
    const pair *p = user;
    for (int i = 0; i < ROUNDS; i++) {
        weir_model *leaves = i % 2 ? p->here : p->away, *comes = i % 2 ? p->away : p->here;
        weir_status status = exchange_as(leaves, (weir_model_suspend_options){.wait = minute}, comes);
        assert_true(status == WEIR_OK || status == WEIR_ERR_BUSY);
    }
    return NULL;
}

static void changes_at_once(void **state)
{
    pair p = {.here = model_by("made-up"), .away = model_by("made-up")};
    void *(*const work[])(void *) = {exchange_often, exchange_often, run_often, run_often, suspend_often};
    void *const with[] = {&p, &p, p.here, p.away, p.here};
    enum { THREADS = sizeof work / sizeof *work };
    pthread_t threads[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work[i], with[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ok(infer(p.here, 0));
    ok(infer(p.away, 0));
    ok(weir_model_destroy(p.here));
    ok(weir_model_destroy(p.away));
}

/* Engines are registered for good. */
static int register_engines(void **state)
{
    (void)state;
    ok(weir_engine_register(&made_up));
    ok(weir_engine_register(&old));
    ok(weir_engine_register(&lacking));
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

/* A run of the model cannot be waited for where it is under way. */
static weir_model *in_a_run;

static void suspend_inside(void)
{
    fails(WEIR_ERR_BUSY, weir_model_suspend(in_a_run, NULL, NULL));
    detail_names("1 runs under way");
    fails(WEIR_ERR_BUSY, weir_model_destroy(in_a_run));
}

static void a_run_does_not_wait_for_itself(void **state)
{
    (void)state;
    in_a_run = model_by("made-up");
    e.inside = suspend_inside;
    ok(infer(in_a_run, 1));
    assert_null(e.inside);
    assert_int_equal(e.suspends, 0);
    ok(weir_model_suspend(in_a_run, NULL, NULL));
    ok(weir_model_destroy(in_a_run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_run_resumes),
        CASE(a_run_is_refused),
        CASE(a_run_waits_for_what_arrives),
        CASE(a_client_that_is_away),
        CASE(no_room_to_come_back),
        CASE(runs_stand_in_the_way),
        CASE(results_stand_in_the_way),
        CASE(a_run_does_not_wait_for_itself),
        CASE(a_cancel_at_the_gate),
        CASE(all_at_once),
        CASE(engines_that_cannot),
        CASE(engines_that_will_not),
        CASE(what_is_no_call),
        CASE(models_change_places),
        CASE(one_comes_on_a_stream),
        CASE(a_change_that_is_refused),
        CASE(a_comer_that_is_here),
        CASE(a_comer_that_is_moving),
        CASE(a_change_that_fails_twice),
        CASE(a_comer_whose_engine_fails),
        CASE(a_run_brings_the_comer_first),
        CASE(changes_at_once),
    };
    return cmocka_run_group_tests_name("model-gate", tests, register_engines, NULL);
}
