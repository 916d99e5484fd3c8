/* Models that are shown while they are away: runs are answered from there, and the rest comes between them. Over an engine
 * that the test makes up: a run reads all weights, and counts itself in a cache. */
#include "residency/residency.h"

#include "core/faulty.h"
#include "runtime/runtime.h"
#include "test_places.h"

#include <weir/engine.h>
#include <weir/model.h>

#include <dlfcn.h>
#include <stdatomic.h>

enum { BLOCKS = 5, WEIGHT = 4 * MIB, CACHE = 4 * MIB, ALL = BLOCKS * WEIGHT + CACHE };
static unsigned char *contents[BLOCKS]; /* of the weights */
static const uint64_t minute = UINT64_C(60000000000);

/* The engine ------------------------------------------------------------------------------------------------------- */

struct weir_engine_model {
    weir_client *client;
    void *weights[BLOCKS]; /* the oldest first */
    char *cache;
    atomic_uint_fast64_t runs;
};

typedef void (*action)(void);

static struct {
    weir_runtime *runtime;
    weir_engine_model *model;
    atomic_int suspends, resumes;
    atomic_int refuses;        /* `suspend` refuses from that call on; 0: never */
    void (*before)(void);      /* what each `suspend` does, also before a step */
    _Atomic(action) inside;    /* what one run does, once it has the weights */
    pthread_mutex_t lock;      /* of the runs, which take turns */
    atomic_bool stood;         /* between `suspend` and `resume` */
    uint64_t seen[64], counts; /* presence.shown as runs saw it */
} e = {.lock = PTHREAD_MUTEX_INITIALIZER};

static weir_status engine_probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}

static void engine_unload(weir_engine_model *model)
{
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_free(model->client, model->weights[i], WEIR_STREAM_HOST));
    ok(weir_free(model->client, model->cache, WEIR_STREAM_HOST));
    free(model);
}

/* The youngest weights lie where the first ones lay. */
static weir_status engine_load(const weir_engine_load *load, weir_engine_model **out)
{
    weir_engine_model *model = calloc(1, sizeof *model);
    weir_runtime *runtime = load->places[0].runtime;
    model->client = load->places[0].client;
    void *first = allocate(model->client, WEIGHT, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    for (int i = 0; i < BLOCKS - 1; i++)
        model->weights[i] = allocate(model->client, WEIGHT, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    ok(weir_free(model->client, first, WEIR_STREAM_HOST));
    model->weights[BLOCKS - 1] = allocate(model->client, WEIGHT, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    model->cache = allocate(model->client, CACHE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_copy(runtime, model->weights[i], contents[i], WEIGHT, WEIR_STREAM_HOST));
    ok(weir_fill(runtime, model->cache, 0, CACHE, WEIR_STREAM_HOST));
    e.model = *out = model;
    return WEIR_OK;
}

/* Each run counts itself, in several places of the cache. */
static void count_run(weir_engine_model *model)
{
    uint64_t wanted = atomic_fetch_add(&model->runs, 1);
    for (size_t i = 0; i < CACHE; i += MIB) {
        uint64_t count;
        ok(weir_copy(e.runtime, &count, model->cache + i, sizeof count, WEIR_STREAM_HOST));
        assert_int_equal(count, wanted);
        count++;
        ok(weir_copy(e.runtime, model->cache + i, &count, sizeof count, WEIR_STREAM_HOST));
    }
}

static void weights_hold(const weir_engine_model *model)
{
    unsigned char *there = malloc(WEIGHT);
    for (int i = 0; i < BLOCKS; i++) {
        ok(weir_copy(e.runtime, there, model->weights[i], WEIGHT, WEIR_STREAM_HOST));
        bytes_are(there, contents[i], WEIGHT);
    }
    free(there);
}

/* With the weights in place; of the driver nothing fails meanwhile. */
static void engine_work(weir_engine_model *model)
{
    long at = atomic_exchange(&fault.fail_at, -1), calls = atomic_load(&fault.calls);
    bool stay = atomic_exchange(&fault.stay, false);
    weights_hold(model);
    pthread_mutex_lock(&e.lock);
    void *work = allocate(model->client, 300 * KIB, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
    count_run(model);
    ok(weir_free(model->client, work, WEIR_STREAM_HOST));
    pthread_mutex_unlock(&e.lock);
    atomic_store(&fault.calls, calls);
    atomic_store(&fault.stay, stay);
    atomic_store(&fault.fail_at, at);
}

static weir_status engine_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    (void)inference;
    assert_false(atomic_load(&e.stood));
    action inside = atomic_exchange(&e.inside, NULL);
    if (inside)
        inside();
    engine_work(model);
    assert_false(atomic_load(&e.stood));
    *out = (weir_outputs){.struct_size = sizeof *out};
    return WEIR_OK;
}

static void engine_release(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model;
    (void)outputs;
}

static weir_status engine_suspend(weir_engine_model *model, weir_engine_leaving *out)
{
    (void)model;
    int number = atomic_fetch_add(&e.suspends, 1) + 1;
    if (atomic_load(&e.refuses) > 0 && number >= atomic_load(&e.refuses))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "the engine would rather not");
    assert_false(atomic_exchange(&e.stood, true));
    if (e.before)
        e.before();
    out->unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS);
    return WEIR_OK;
}

static weir_status engine_resume(weir_engine_model *model)
{
    (void)model;
    atomic_fetch_add(&e.resumes, 1);
    atomic_store(&e.stood, false);
    return WEIR_OK;
}

static weir_status engine_info(weir_engine_model *model, weir_model_details *out)
{
    (void)model;
    *out = (weir_model_details){.struct_size = out->struct_size, .engine = "counting", .provider = "cpu"};
    return WEIR_OK;
}

static const weir_engine counting = {.abi = WEIR_ENGINE_ABI,
                                     .struct_size = sizeof(weir_engine),
                                     .name = "counting",
                                     .summary = "of a test",
                                     .suffixes = "",
                                     .probe = engine_probe,
                                     .load = engine_load,
                                     .infer = engine_infer,
                                     .release_outputs = engine_release,
                                     .suspend = engine_suspend,
                                     .resume = engine_resume,
                                     .info = engine_info,
                                     .unload = engine_unload};

/* Models ----------------------------------------------------------------------------------------------------------- */

static void renew(void)
{
    e.suspends = e.resumes = e.refuses = 0;
    e.inside = NULL;
    e.before = NULL;
    atomic_store(&e.stood, false);
}

static int begin(void **state)
{
    (void)state;
    renew();
    e.runtime = make_runtime_here(BUDGET);
    return 0;
}

static int end(void **state)
{
    (void)state;
    check_empty(e.runtime);
    ok(weir_runtime_destroy(e.runtime));
    return 0;
}

static weir_model *load_as(weir_model_room room)
{
    weir_model *model = NULL;
    weir_model_options options = WEIR_INIT(weir_model_options);
    options.name = "shown";
    options.engine = "counting";
    options.runtime = e.runtime;
    options.residency = room;
    atomic_store(&e.stood, false); /* the last one may have gone as it was */
    ok(weir_model_create(data_folder, &options, &model));
    return model;
}

static weir_model *load(void)
{
    return load_as(WEIR_ROOM_WHOLE);
}

static weir_model_presence presence_of(weir_model *model)
{
    weir_model_presence now = WEIR_INIT(weir_model_presence);
    ok(weir_model_residency(model, &now));
    return now;
}

static weir_status infer(weir_model *model)
{
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    weir_status status = weir_model_infer(model, &inference, &out);
    if (status == WEIR_OK)
        weir_model_release_outputs(model, &out);
    return status;
}

static weir_status try_show(weir_model *model, weir_residency *receipt)
{
    weir_model_suspend_options options = WEIR_INIT(weir_model_suspend_options);
    options.show = true;
    options.step = MIB; /* pieces are smaller on the host, and larger on a device */
    options.wait = minute;
    return weir_model_suspend(model, &options, receipt);
}

static weir_residency show(weir_model *model)
{
    weir_residency receipt = WEIR_INIT(weir_residency);
    ok(try_show(model, &receipt));
    assert_true(receipt.shown > 0 && receipt.shown == receipt.away);
    return receipt;
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void wait_until_back(weir_model *model)
{
    for (int i = 0; i < 60000 && presence_of(model).state != WEIR_RESIDENT; i++)
        rest();
    weir_model_presence now = presence_of(model);
    assert_int_equal(now.state, WEIR_RESIDENT);
    assert_int_equal(now.away + now.shown, 0);
    assert_false(now.coming);
    assert_int_equal(now.stopped, WEIR_OK);
}

static weir_model_presence wait_until_stopped(weir_model *model)
{
    for (int i = 0; i < 60000 && presence_of(model).stopped == WEIR_OK; i++)
        rest();
    return presence_of(model);
}

/* What runs see ---------------------------------------------------------------------------------------------------- */

static weir_model *looked_at;

static void look(void)
{
    e.seen[e.counts++] = presence_of(looked_at).shown;
}

static weir_status infer_and_look(weir_model *model)
{
    looked_at = model;
    e.inside = look;
    return infer(model);
}

/* The first answer comes before any of the weights; and what is shown is less with each run. */
static void the_first_answer_waits_for_nothing(void **state)
{
    weir_model *model = load();
    (void)state;
    ok(infer(model));
    for (int round = 0; round < 3; round++) {
        e.counts = 0;
        weir_residency receipt = show(model);
        assert_int_equal(presence_of(model).state, WEIR_SUSPENDED);
        assert_int_equal(presence_of(model).shown, receipt.away);
        assert_false(presence_of(model).coming);
        while (presence_of(model).state != WEIR_RESIDENT && e.counts < 60)
            ok(infer_and_look(model));
        assert_true(e.seen[0] > ALL - CACHE - 3 * MIB && e.seen[0] < receipt.away); /* the cache has come */
        assert_true(e.counts >= 2);
        for (uint64_t i = 1; i < e.counts; i++)
            assert_true(e.seen[i] < e.seen[i - 1] || e.seen[i] == 0); /* each run lets a step come */
        wait_until_back(model);
        ok(infer(model));
        weir_model_presence now = presence_of(model);
        assert_int_equal(now.resumes, round + 1);
        assert_int_equal(now.resumes_by_runs, round + 1);
        assert_int_equal(now.returned, receipt.away);
        assert_int_equal(e.suspends, e.resumes);
        snapshot s = take_snapshot(e.runtime);
        check_sums(&s);
    }
    ok(weir_model_destroy(model));
}

/* Copies of the weights are made once, whoever has come when. */
static void weights_are_copied_once(void **state)
{
    weir_model *model = load();
    (void)state;
    for (int round = 0; round < 4; round++) {
        weir_residency receipt = show(model);
        if (round > 0)
            assert_true(receipt.trusted > ALL - CACHE - 5 * MIB && receipt.copied <= CACHE + 4 * MIB);
        for (int i = 0; i < round; i++)
            ok(infer(model));
        ok(weir_model_resume_behind(model));
        wait_until_back(model);
        ok(infer(model)); /* the cache is written, and copied anew */
    }
    /* written while the weights were still on their way, and not since: no copy of it is good */
    (void)show(model);
    ok(infer(model));
    ok(weir_model_resume(model, WEIR_STREAM_HOST));
    weir_model_suspend_options all = WEIR_INIT(weir_model_suspend_options);
    weir_residency receipt = WEIR_INIT(weir_residency);
    all.unwritten = WEIR_CLASS_BIT(WEIR_CLASS_KV);
    ok(weir_model_suspend(model, &all, &receipt));
    assert_true(receipt.copied > CACHE / 2);
    ok(infer(model));
    ok(weir_model_destroy(model));
}

typedef struct found {
    const void *pointer;
    uint64_t bytes;
} found;

static void add_live(const weir_segment *segment, const weir_span *span, void *user)
{
    found *f = user;
    (void)segment;
    f->bytes += span->state == WEIR_SPAN_LIVE && span->block.pointer == f->pointer ? span->bytes : 0;
}

static uint64_t back_of(const void *block)
{
    found f = {block, 0};
    ok(weir_layout_walk(e.runtime, add_live, &f, NULL));
    return f.bytes;
}

static int in_the_middle; /* times that some of the weights were back and others were not */

static void look_at_the_order(void)
{
    uint64_t back[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        back[i] = back_of(e.model->weights[i]);
    for (int i = 1; i < BLOCKS; i++)
        assert_true(back[i] < WEIGHT || back[i - 1] > 0);
    in_the_middle += back[0] > 0 && back[BLOCKS - 1] == 0;
}

/* What was loaded first comes first, wherever it lies. */
static void it_comes_in_the_order_of_loading(void **state)
{
    weir_model *model = load();
    (void)state;
    assert_true((char *)e.model->weights[BLOCKS - 1] < (char *)e.model->weights[0]);
    (void)show(model);
    in_the_middle = 0;
    e.before = look_at_the_order;
    ok(weir_model_resume_behind(model));
    wait_until_back(model);
    e.before = NULL;
    assert_true(in_the_middle > 0);
    ok(weir_model_destroy(model));
}

/* Resumes ---------------------------------------------------------------------------------------------------------- */

static void a_resume_behind_returns_at_once(void **state)
{
    weir_model *model = load();
    (void)state;
    ok(weir_model_resume_behind(model)); /* it is here */
    weir_residency receipt = show(model);
    ok(weir_model_resume_behind(model));
    ok(weir_model_resume_behind(model));
    wait_until_back(model);
    assert_int_equal(presence_of(model).resumes, 1);
    assert_int_equal(presence_of(model).resumes_by_runs, 0);
    assert_int_equal(presence_of(model).returned, receipt.away);
    ok(infer(model));
    /* one that is not shown comes at once */
    ok(weir_model_suspend(model, NULL, NULL));
    ok(weir_model_resume_behind(model));
    assert_int_equal(presence_of(model).state, WEIR_RESIDENT);
    ok(infer(model));
    ok(weir_model_destroy(model));
}

static void a_resume_brings_all_of_it(void **state)
{
    weir_model *model = load();
    weir_stream stream;
    (void)state;
    ok(weir_stream_acquire(e.runtime, &stream));
    for (int used = 0; used < 3; used++) {
        weir_residency receipt = show(model);
        for (int i = 0; i < used; i++)
            ok(infer(model));
        ok(weir_model_resume(model, used % 2 ? stream : WEIR_STREAM_HOST));
        assert_int_equal(presence_of(model).state, WEIR_RESIDENT);
        assert_int_equal(presence_of(model).away + presence_of(model).shown, 0);
        assert_int_equal(presence_of(model).returned, receipt.away);
        ok(infer(model));
    }
    ok(weir_stream_release(stream));
    ok(weir_model_destroy(model));
}

static void runs_that_are_refused(void **state)
{
    weir_model *model = load();
    weir_model_suspend_options options = WEIR_INIT(weir_model_suspend_options);
    (void)state;
    options.show = options.refuse_runs = true;
    ok(weir_model_suspend(model, &options, NULL));
    fails(WEIR_ERR_BUSY, infer(model));
    fails(WEIR_ERR_BUSY, try_show(model, NULL));
    detail_names("suspended already");
    ok(weir_model_resume_behind(model));
    ok(infer(model));
    wait_until_back(model);
    ok(weir_model_destroy(model));
}

/* A program that has resumed the client itself, or suspended it. */
static void a_client_that_is_moved_by_hand(void **state)
{
    weir_model *model = load();
    (void)state;
    (void)show(model);
    ok(infer(model));
    ok(weir_client_resume(weir_model_client(model), WEIR_STREAM_HOST));
    ok(infer(model));
    wait_until_back(model);
    ok(weir_client_suspend(weir_model_client(model), NULL, NULL));
    ok(infer(model));
    ok(weir_model_destroy(model));
}

/* What is in the way ----------------------------------------------------------------------------------------------- */

static void *take_all_but(weir_client *other, uint64_t left)
{
    snapshot s = take_snapshot(e.runtime);
    uint64_t used = s.device.live + s.device.pending;
    return allocate(other, (size_t)(BUDGET - used - left), WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
}

/* There is room for the cache and no more: it answers on from where it is shown, and says so. */
static void without_room_it_stays_shown(void **state)
{
    weir_model *model = load();
    weir_client *other = open_client(e.runtime, "other", 0, 0);
    (void)state;
    ok(infer(model)); /* so that it is known what a run takes */
    weir_residency receipt = show(model);
    void *all = take_all_but(other, CACHE + 6 * MIB);
    ok(infer(model));
    weir_model_presence now = wait_until_stopped(model);
    assert_int_equal(now.stopped, WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(now.state, WEIR_SUSPENDED);
    assert_true(now.coming && now.shown > 0 && now.shown == now.away && now.shown < receipt.away);
    for (int i = 0; i < 10; i++)
        ok(infer(model));
    assert_true(presence_of(model).shown > 0);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_model_resume(model, WEIR_STREAM_HOST));
    fails(WEIR_ERR_OUT_OF_MEMORY, try_show(model, NULL)); /* as it would have to come first */
    assert_int_equal(presence_of(model).state, WEIR_SUSPENDED);
    ok(infer(model));
    ok(weir_free(other, all, WEIR_STREAM_HOST));
    ok(weir_model_resume_behind(model));
    wait_until_back(model);
    ok(infer(model));
    ok(weir_model_destroy(model));
    ok(weir_client_destroy(other));
}

/* A later run tries it again by itself. */
static void it_goes_on_with_a_later_run(void **state)
{
    weir_model *model = load();
    weir_client *other = open_client(e.runtime, "other", 0, 0);
    (void)state;
    ok(infer(model)); /* so that it is known what a run takes */
    (void)show(model);
    void *all = take_all_but(other, CACHE + 6 * MIB);
    ok(infer(model));
    assert_int_equal(wait_until_stopped(model).stopped, WEIR_ERR_OUT_OF_MEMORY);
    ok(weir_free(other, all, WEIR_STREAM_HOST));
    for (int i = 0; i < 16; i++)
        ok(infer(model));
    wait_until_back(model);
    ok(weir_model_destroy(model));
    ok(weir_client_destroy(other));
}

/* There is no room for what runs write: the run is refused, and nothing is lost. */
static void without_room_for_the_cache(void **state)
{
    weir_model *model = load();
    weir_client *other = open_client(e.runtime, "other", 0, 0);
    (void)state;
    (void)show(model);
    void *all = take_all_but(other, MIB);
    fails(WEIR_ERR_OUT_OF_MEMORY, infer(model));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_model_resume_behind(model));
    assert_int_equal(presence_of(model).state, WEIR_SUSPENDED);
    assert_false(presence_of(model).coming);
    ok(weir_free(other, all, WEIR_STREAM_HOST));
    ok(infer(model));
    wait_until_back(model);
    ok(weir_model_destroy(model));
    ok(weir_client_destroy(other));
}

/* An engine that will not be interrupted. */
static void an_engine_that_will_not(void **state)
{
    weir_model *model = load();
    (void)state;
    (void)show(model);
    atomic_store(&e.refuses, atomic_load(&e.suspends) + 2);
    ok(infer(model));
    weir_model_presence now = wait_until_stopped(model);
    assert_int_equal(now.stopped, WEIR_ERR_UNSUPPORTED);
    assert_true(now.coming && now.shown > 0);
    ok(infer(model));
    fails(WEIR_ERR_UNSUPPORTED, weir_model_resume(model, WEIR_STREAM_HOST));
    atomic_store(&e.refuses, 0);
    ok(weir_model_resume(model, WEIR_STREAM_HOST));
    ok(infer(model));
    ok(weir_model_destroy(model));
}

/* Results may lie in what would be exchanged. */
static void results_are_waited_for(void **state)
{
    weir_model *model = load();
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    (void)state;
    (void)show(model);
    ok(weir_model_infer(model, &inference, &out));
    uint64_t shown = presence_of(model).shown;
    for (int i = 0; i < 20; i++)
        rest();
    ok(infer(model)); /* nobody waits for who holds results */
    assert_int_equal(presence_of(model).shown, shown);
    fails(WEIR_ERR_BUSY, weir_model_resume(model, WEIR_STREAM_HOST));
    detail_names("1 results");
    assert_true(presence_of(model).coming);
    weir_model_release_outputs(model, &out);
    wait_until_back(model);
    ok(weir_model_destroy(model));
}

/* No step is made under a run, and none of its own calls would wait for itself. */
static void call_inside(void)
{
    uint64_t shown = presence_of(looked_at).shown;
    fails(WEIR_ERR_BUSY, weir_model_resume(looked_at, WEIR_STREAM_HOST));
    fails(WEIR_ERR_BUSY, try_show(looked_at, NULL));
    detail_names("1 runs under way");
    ok(weir_model_resume_behind(looked_at));
    for (int i = 0; i < 20; i++)
        rest();
    assert_int_equal(presence_of(looked_at).shown, shown);
    assert_true(shown > 0);
}

static void nothing_comes_under_a_run(void **state)
{
    looked_at = load();
    (void)state;
    (void)show(looked_at);
    e.inside = call_inside;
    ok(infer(looked_at));
    wait_until_back(looked_at);
    ok(weir_model_destroy(looked_at));
}

/* Under pressure a model that is coming back does not leave, and takes no more. */
static weir_status answered;

static void step_aside(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    answered = weir_model_suspend(user, NULL, NULL);
    detail_names("suspended already");
}

static void under_pressure_it_stops(void **state)
{
    weir_model *model = load();
    weir_client *other = open_client(e.runtime, "other", 0, 0);
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    void *none = NULL;
    uint64_t id;
    (void)state;
    (void)show(model);
    ok(weir_model_infer(model, &inference, &out)); /* so that no step is made meanwhile */
    ok(weir_pressure_register(e.runtime, 0, step_aside, model, &id));
    answered = WEIR_OK;
    assert_int_equal(weir_alloc(other, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &none), WEIR_ERR_OUT_OF_MEMORY);
    ok(weir_pressure_unregister(e.runtime, id));
    assert_int_equal(answered, WEIR_ERR_BUSY);
    assert_int_equal(presence_of(model).stopped, WEIR_ERR_BUSY);
    weir_model_release_outputs(model, &out);
    ok(infer(model));
    wait_until_back(model);
    ok(weir_model_destroy(model));
    ok(weir_client_destroy(other));
}

/* Once more, and the end ------------------------------------------------------------------------------------------- */

static void a_second_suspend_comes_back_first(void **state)
{
    weir_model *model = load();
    (void)state;
    for (int i = 0; i < 6; i++) {
        weir_residency receipt = show(model);
        assert_true(receipt.away > ALL - 3 * MIB);
        ok(infer(model));
        if (i % 2)
            ok(infer(model));
        ok(weir_model_suspend(model, NULL, &receipt));
        assert_true(receipt.shown == 0 && receipt.away > ALL - 3 * MIB);
        assert_int_equal(presence_of(model).state, WEIR_SUSPENDED);
        ok(infer(model));
        assert_int_equal(presence_of(model).state, WEIR_RESIDENT);
    }
    ok(weir_model_destroy(model));
}

static void it_is_unloaded_as_it_is(void **state)
{
    (void)state;
    for (int runs = 0; runs < 4; runs++) {
        weir_model *model = load();
        (void)show(model);
        for (int i = 0; i < runs; i++)
            ok(infer(model));
        if (runs == 3)
            ok(weir_model_resume_behind(model));
        ok(weir_model_destroy(model));
        check_empty(e.runtime);
    }
}

/* A device that cannot: it is suspended as any other. */
static void where_it_cannot_be_shown(void **state)
{
    (void)state;
    void *stub = host_writes() ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void (*reach)(bool) = NULL;
    if (stub)
        *(void **)&reach = dlsym(stub, "stub_reach");
    if (!reach) {
        skip();
        return;
    }
    reach(false);
    weir_runtime *here = e.runtime, *runtime = make_runtime_here(BUDGET);
    reach(true);
    e.runtime = runtime;
    weir_model *model = load();
    weir_residency receipt = WEIR_INIT(weir_residency);
    for (int i = 0; i < 2; i++) {
        ok(try_show(model, &receipt));
        assert_true(receipt.away > 0 && receipt.shown == 0);
        ok(i ? weir_model_resume_behind(model) : infer(model));
        assert_int_equal(presence_of(model).state, WEIR_RESIDENT);
        assert_int_equal(presence_of(model).returned, receipt.away);
        ok(infer(model));
    }
    ok(weir_model_destroy(model));
    ok(weir_runtime_destroy(runtime));
    e.runtime = here;
    dlclose(stub);
}

/* Everybody at once ------------------------------------------------------------------------------------------------ */

enum { ROUNDS = UNDER_TSAN ? 10 : 40 };

static void *run_often(void *user)
{
    for (int i = 0; i < ROUNDS; i++)
        ok(infer(user));
    return NULL;
}

static void *show_often(void *user)
{
    for (int i = 0; i < ROUNDS; i++) {
        weir_status status = try_show(user, NULL);
        assert_true(status == WEIR_OK || status == WEIR_ERR_BUSY);
        rest();
    }
    return NULL;
}

static void *resume_often(void *user)
{
    for (int i = 0; i < ROUNDS; i++) {
        weir_status status = i % 3 ? weir_model_resume_behind(user) : weir_model_resume(user, WEIR_STREAM_HOST);
        assert_true(status == WEIR_OK || status == WEIR_ERR_BUSY);
        weir_model_presence now = presence_of(user);
        assert_true(now.resumes <= now.suspends && now.suspends <= now.resumes + 1);
        rest();
    }
    return NULL;
}

static void all_at_once(void **state)
{
    void *(*const work[])(void *) = {run_often, run_often, run_often, show_often, resume_often};
    enum { THREADS = sizeof work / sizeof *work };
    weir_model *model = load();
    pthread_t threads[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work[i], model), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ok(weir_model_resume(model, WEIR_STREAM_HOST));
    assert_int_equal(atomic_load(&e.model->runs), 3 * ROUNDS);
    assert_int_equal(e.suspends, e.resumes);
    assert_true(presence_of(model).suspends > 0);
    ok(weir_model_destroy(model));
}

/* Faults ----------------------------------------------------------------------------------------------------------- */

/* A cycle in which the call number `at` of the driver fails, for good or once. Whatever is refused, all answers are right,
 * and when the driver works again the model comes back. */
static long cycle_with_fault(weir_model *model, long at, bool for_good)
{
    ok(try_show(model, NULL));
    fault.calls = 0;
    fault.stay = for_good;
    fault.fail_at = at;
    for (int i = 0; i < 4; i++)
        if (infer(model) != WEIR_OK)
            assert_true(presence_of(model).state == WEIR_SUSPENDED);
    (void)!weir_model_resume_behind(model);
    for (int i = 0; i < 60000; i++) {
        weir_model_presence now = presence_of(model);
        if (now.state == WEIR_RESIDENT || now.stopped != WEIR_OK || !now.coming)
            break;
        rest();
    }
    long calls = fault.calls;
    fault.fail_at = -1;
    fault.stay = false;
    ok(infer(model));
    ok(weir_model_resume(model, WEIR_STREAM_HOST));
    ok(infer(model));
    return calls;
}

static void faults_are_survived(void **state)
{
    weir_runtime *here = e.runtime, *host = make_runtime(BUDGET);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .host = host};
    (void)state;
    faults_reset(-1);
    fault.status = WEIR_ERR_DRIVER;
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &e.runtime));
    weir_model *model = load();
    for (int for_good = 0; for_good < 2; for_good++) {
        long calls = 1;
        for (long at = 0; at < calls; at += 1 + at / 4) {
            long made = cycle_with_fault(model, at, for_good);
            calls = made > calls ? made : calls;
        }
        assert_true(calls > 20);
    }
    ok(weir_model_destroy(model));
    check_empty(e.runtime);
    ok(weir_runtime_destroy(e.runtime));
    ok(weir_runtime_trim(host, NULL, NULL));
    check_empty(host);
    ok(weir_runtime_destroy(host));
    assert_true(faults_nothing_left());
    e.runtime = here;
}

/* Engines are registered for good. */
static int register_engine(void **state)
{
    (void)state;
    for (int i = 0; i < BLOCKS; i++)
        contents[i] = pattern(WEIGHT, (uint64_t)i + 1);
    ok(weir_engine_register(&counting));
    return 0;
}

static int forget_contents(void **state)
{
    (void)state;
    for (int i = 0; i < BLOCKS; i++)
        free(contents[i]);
    return 0;
}

#define OVER(name) cmocka_unit_test_setup_teardown(name, begin, end)

/* Larger than what is free: it is loaded, answers from the host's memory, and comes as far as there is room for what runs
 * take besides; the rest when somebody has made room. On the host it would be the same memory, and it is loaded whole. */
static void larger_than_what_is_free(void **state)
{
    (void)state;
    weir_client *other = open_client(e.runtime, "other", 0, 0);
    for (int round = 0; round < 2; round++) {
        void *taken = host_writes() ? NULL : allocate(other, BUDGET - 14 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        weir_model *model = load_as(WEIR_ROOM_AUTO);
        weir_model_presence now = taken ? wait_until_stopped(model) : presence_of(model);
        if (!taken) {
            assert_int_equal(now.away, 0);
        } else {
            assert_int_equal(now.state, WEIR_SUSPENDED);
            assert_true(now.shown > 0 && now.shown == now.away);
            assert_true(now.shown < 4 * WEIGHT); /* what there was room for has come */
            assert_int_equal(now.stopped, WEIR_ERR_OUT_OF_MEMORY);
            snapshot s = take_snapshot(e.runtime);
            assert_true(s.device.live + MIB <= BUDGET); /* there is room for runs */
            check_sums(&s);
        }
        for (int i = 0; i < 3; i++)
            ok(infer(model));
        if (taken && round == 0) {
            ok(weir_free(other, taken, WEIR_STREAM_HOST));
            ok(weir_model_resume_behind(model));
            wait_until_back(model);
            ok(infer(model));
        } else if (taken) {
            fails(WEIR_ERR_OUT_OF_MEMORY,
                  weir_model_suspend(model, NULL, NULL)); /* it is to be whole before it leaves */
            ok(infer(model));
            ok(weir_free(other, taken, WEIR_STREAM_HOST));
        }
        ok(weir_model_destroy(model)); /* also as it is */
    }
    ok(weir_client_destroy(other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER(the_first_answer_waits_for_nothing),
        OVER(weights_are_copied_once),
        OVER(it_comes_in_the_order_of_loading),
        OVER(a_resume_behind_returns_at_once),
        OVER(a_resume_brings_all_of_it),
        OVER(runs_that_are_refused),
        OVER(a_client_that_is_moved_by_hand),
        OVER(without_room_it_stays_shown),
        OVER(it_goes_on_with_a_later_run),
        OVER(without_room_for_the_cache),
        OVER(an_engine_that_will_not),
        OVER(results_are_waited_for),
        OVER(nothing_comes_under_a_run),
        OVER(under_pressure_it_stops),
        OVER(a_second_suspend_comes_back_first),
        OVER(it_is_unloaded_as_it_is),
        OVER(where_it_cannot_be_shown),
        OVER(larger_than_what_is_free),
        OVER(all_at_once),
        OVER(faults_are_survived),
    };
    faults_reset(-1);
    return cmocka_run_group_tests_name("residency-coming", tests, register_engine, forget_contents);
}
