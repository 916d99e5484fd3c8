/* An engine that the tests of pools make up, and what they say often. */
#include "pool/bed.h"

#include "test_places.h"

/* The engine ------------------------------------------------------------------------------------------------------- */

struct weir_engine_model {
    weir_client *client;
    unsigned char *weights, *kept;
    uint64_t bytes, scratch;
    bool was_ill; /* when it was loaded: then it is not ill now */
};

engine_double e = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static uint64_t setting(const weir_setting *settings, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(settings[i].key, key) == 0)
            return strtoull(settings[i].value, NULL, 10);
    return 0;
}

static bool take_fault(atomic_int *faults)
{
    static atomic_uint calls;
    int left = atomic_load(faults), every = atomic_load(&e.fault_every);
    while (left > 0 && !atomic_compare_exchange_weak(faults, &left, left - 1))
        ;
    return left != 0 || (every && atomic_fetch_add(&calls, 1) % (unsigned)every == 0);
}

static weir_status engine_probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}

/* What is told beforehand may be less than what a load takes: the setting "told". */
static weir_status engine_plan(const weir_engine_load *load, weir_engine_plan *out)
{
    uint64_t told = setting(load->settings, load->setting_count, "told");
    atomic_fetch_add(&e.plans, 1);
    out->bytes[WEIR_CLASS_WEIGHTS] = told ? told : setting(load->settings, load->setting_count, "weights");
    return WEIR_OK;
}

static void note_loading(void)
{
    long now = atomic_fetch_add(&e.loading, 1) + 1, most = atomic_load(&e.most_loading);
    while (now > most && !atomic_compare_exchange_weak(&e.most_loading, &most, now))
        ;
    pthread_mutex_lock(&e.lock);
    e.held_loads += e.holds_loads;
    pthread_cond_broadcast(&e.changed);
    while (e.holds_loads)
        pthread_cond_wait(&e.changed, &e.lock);
    pthread_mutex_unlock(&e.lock);
}

/* By copies of the driver's: the device need not be the host. */
static void write_weights(const weir_engine_model *model)
{
    unsigned char *pattern = malloc(model->bytes);
    memset(pattern, 7, model->bytes);
    ok(weir_copy(weir_client_runtime(model->client), model->weights, pattern, model->bytes, WEIR_STREAM_HOST));
    free(pattern);
}

/* A fault on the host where they are away. */
static void check_weights(const weir_engine_model *model)
{
    enum { PLACES = 32 };
    for (uint64_t i = 0; i < PLACES; i++) {
        unsigned char byte = 0;
        const unsigned char *at = model->weights + i * (model->bytes / PLACES);
        ok(weir_copy(weir_client_runtime(model->client), &byte, at, 1, WEIR_STREAM_HOST));
        assert_int_equal(byte, 7);
    }
}

static weir_status fill(weir_engine_model *model, const weir_engine_load *load)
{
    model->bytes = setting(load->settings, load->setting_count, "weights");
    model->scratch = setting(load->settings, load->setting_count, "scratch");
    if (take_fault(&e.fail_load))
        return weir_fail(WEIR_ERR_ENGINE, "the engine fails before it allocates");
    weir_status status =
        weir_alloc(model->client, model->bytes, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, (void **)&model->weights);
    if (status != WEIR_OK)
        return status;
    write_weights(model);
    if (load->stops && load->stops(load->progress_user)) {
        atomic_fetch_add(&e.stopped, 1);
        ok(weir_free(model->client, model->weights, WEIR_STREAM_HOST));
        return weir_fail(WEIR_ERR_CANCELLED, "the engine stops after its weights");
    }
    if (e.leaks_into)
        ok(weir_alloc(e.leaks_into, LEAK, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &e.leak));
    if (take_fault(&e.fail_late)) {
        ok(weir_free(model->client, model->weights, WEIR_STREAM_HOST));
        return weir_fail(WEIR_ERR_ENGINE, "the engine fails after its weights");
    }
    return WEIR_OK;
}

static weir_status engine_load(const weir_engine_load *load, weir_engine_model **out)
{
    weir_engine_model *model = calloc(1, sizeof *model);
    model->client = load->places[0].client;
    if (load->progress)
        load->progress(0.5, load->progress_user);
    note_loading();
    weir_status status = fill(model, load);
    model->was_ill = atomic_load(&e.ill);
    atomic_fetch_add(&e.loads, status == WEIR_OK);
    atomic_fetch_sub(&e.loading, 1);
    if (status != WEIR_OK)
        free(model);
    else
        *out = model;
    return status;
}

static void engine_unload(weir_engine_model *model)
{
    if (e.keeps) {
        e.leaked_by = model->client;
        ok(weir_alloc(model->client, LEAK, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &e.leak));
    }
    if (model->kept)
        ok(weir_free(model->client, model->kept, WEIR_STREAM_HOST));
    ok(weir_free(model->client, model->weights, WEIR_STREAM_HOST));
    atomic_fetch_add(&e.unloads, 1);
    free(model);
}

static weir_status engine_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    uint64_t scratch = setting(inference->settings, inference->setting_count, "scratch"),
             keep = setting(inference->settings, inference->setting_count, "keep");
    void *block = NULL;
    atomic_fetch_add(&e.runs, 1);
    pthread_mutex_lock(&e.lock);
    e.held_runs += e.holds_runs;
    pthread_cond_broadcast(&e.changed);
    while (e.holds_runs)
        pthread_cond_wait(&e.changed, &e.lock);
    pthread_mutex_unlock(&e.lock);
    check_weights(model);
    *out = (weir_outputs){.struct_size = sizeof *out};
    if (keep && !model->kept) {
        weir_status status =
            weir_alloc(model->client, keep, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS, (void **)&model->kept);
        if (status != WEIR_OK)
            return status;
    }
    weir_status status =
        scratch ? weir_alloc(model->client, scratch, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &block) : WEIR_OK;
    if (block)
        ok(weir_free(model->client, block, WEIR_STREAM_HOST));
    return status;
}

static void engine_release(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model;
    (void)outputs;
}

static weir_status engine_warm_up(weir_engine_model *model)
{
    (void)model;
    return take_fault(&e.fail_warm) ? weir_fail(WEIR_ERR_ENGINE, "the engine fails in its first run") : WEIR_OK;
}

static weir_status engine_suspend(weir_engine_model *model, weir_engine_leaving *out)
{
    (void)model;
    if (take_fault(&e.fail_suspend))
        return weir_fail(WEIR_ERR_ENGINE, "the engine would rather not");
    atomic_fetch_add(&e.suspends, 1);
    out->unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS);
    return WEIR_OK;
}

static weir_status engine_resume(weir_engine_model *model)
{
    (void)model;
    atomic_fetch_add(&e.resumes, 1);
    return take_fault(&e.fail_resume) ? weir_fail(WEIR_ERR_ENGINE, "the engine does not come back") : WEIR_OK;
}

static weir_status engine_health(weir_engine_model *model)
{
    return atomic_load(&e.ill) && !model->was_ill ? weir_fail(WEIR_ERR_ENGINE, "the model is not well") : WEIR_OK;
}

static weir_status engine_info(weir_engine_model *model, weir_model_details *out)
{
    (void)model;
    *out = (weir_model_details){.struct_size = out->struct_size, .engine = "double", .provider = "cpu"};
    return WEIR_OK;
}

#define TABLE                                                                                                          \
    .abi = WEIR_ENGINE_ABI, .struct_size = sizeof(weir_engine), .summary = "of a test", .suffixes = "",                \
    .probe = engine_probe, .plan = engine_plan, .load = engine_load, .infer = engine_infer,                            \
    .release_outputs = engine_release, .warm_up = engine_warm_up, .health = engine_health, .info = engine_info,        \
    .unload = engine_unload
static const weir_engine suspends = {TABLE, .name = "pool-double", .suspend = engine_suspend, .resume = engine_resume};
static const weir_engine stays = {TABLE, .name = "pool-plain"};

void register_engines(void)
{
    ok(weir_engine_register(&suspends));
    ok(weir_engine_register(&stays));
}

void reset_engine(void)
{
    atomic_long *counts[] = {&e.loads, &e.unloads, &e.runs,         &e.suspends, &e.resumes,
                             &e.plans, &e.loading, &e.most_loading, &e.stopped};
    atomic_int *faults[] = {&e.fail_load, &e.fail_late, &e.fail_warm, &e.fail_suspend, &e.fail_resume, &e.fault_every};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        atomic_store(counts[i], 0);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        atomic_store(faults[i], 0);
    atomic_store(&e.ill, false);
    e.holds_loads = e.holds_runs = e.keeps = false;
    e.held_loads = e.held_runs = 0;
    e.leaks_into = NULL;
}

static void set_hold(bool *hold, int *held, bool holds)
{
    pthread_mutex_lock(&e.lock);
    *hold = holds;
    *held = 0;
    pthread_cond_broadcast(&e.changed);
    pthread_mutex_unlock(&e.lock);
}

void hold_loads(bool holds)
{
    set_hold(&e.holds_loads, &e.held_loads, holds);
}

void hold_runs(bool holds)
{
    set_hold(&e.holds_runs, &e.held_runs, holds);
}

static void wait_for(const int *held, int count)
{
    pthread_mutex_lock(&e.lock);
    while (*held < count)
        pthread_cond_wait(&e.changed, &e.lock);
    pthread_mutex_unlock(&e.lock);
}

void wait_for_loads(int count)
{
    wait_for(&e.held_loads, count);
}

void wait_for_runs(int count)
{
    wait_for(&e.held_runs, count);
}

/* Beds ------------------------------------------------------------------------------------------------------------- */

static void keep_event(const weir_pool_event *event, void *user)
{
    bed *b = user;
    pthread_mutex_lock(&b->lock);
    b->counts[event->kind]++;
    size_t more = strlen(event->line) + 1;
    while (event->kind == WEIR_POOL_EVENT_DECIDED && b->length + more + 1 > b->room) {
        b->room = b->room ? 2 * b->room : 1 << 16;
        b->lines = realloc(b->lines, b->room);
        assert_non_null(b->lines);
    }
    if (event->kind == WEIR_POOL_EVENT_DECIDED)
        b->length += (size_t)sprintf(b->lines + b->length, "%s\n", event->line);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

void wait_for_event(bed *b, weir_pool_event_kind kind, size_t count)
{
    pthread_mutex_lock(&b->lock);
    while (b->counts[kind] < count)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

static void make(bed *b, const weir_pool_options *given, weir_runtime *const *runtimes, size_t count)
{
    weir_pool_options options = given ? *given : (weir_pool_options){0};
    weir_pool_device devices[4] = {{0}};
    *b = (bed){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .runtime = runtimes[0]};
    reset_engine();
    for (size_t i = 0; i < count; i++)
        devices[i].runtime = runtimes[i];
    for (size_t i = 1; i < count; i++)
        b->more[i - 1] = runtimes[i];
    options.struct_size = sizeof options;
    options.devices = devices;
    options.device_count = count;
    options.event = keep_event;
    options.user = b;
    ok(weir_pool_create(&options, &b->pool));
}

void make_bed(bed *b, uint64_t budget, const weir_pool_options *given)
{
    weir_runtime *runtime = make_runtime_here(budget);
    make(b, given, &runtime, 1);
}

void make_bed_on(bed *b, uint64_t budget, const weir_pool_options *given, const char *const *devices, size_t count)
{
    weir_runtime *runtimes[4];
    for (size_t i = 0; i < count; i++)
        runtimes[i] = make_runtime_on(devices[i], budget);
    make(b, given, runtimes, count);
}

void end_pool(bed *b)
{
    ok(weir_pool_destroy(b->pool));
    assert_int_equal(atomic_load(&e.loads), atomic_load(&e.unloads));
}

void end_bed(bed *b)
{
    end_pool(b);
    check_empty(b->runtime);
    assert_int_equal(take_snapshot(b->runtime).count, 0);
    ok(weir_runtime_destroy(b->runtime));
    for (size_t i = 0; i < sizeof b->more / sizeof *b->more && b->more[i]; i++) {
        check_empty(b->more[i]);
        ok(weir_runtime_destroy(b->more[i]));
    }
    free(b->lines);
}

/* Models ----------------------------------------------------------------------------------------------------------- */

weir_pool_spec spec_of(const char *name, uint64_t weights)
{
    static char texts[MOST_MODELS][24];
    static weir_setting settings[MOST_MODELS];
    static _Atomic(unsigned) next;
    unsigned at = atomic_fetch_add(&next, 1) % MOST_MODELS;
    weir_pool_spec spec = WEIR_INIT(weir_pool_spec);
    snprintf(texts[at], sizeof texts[at], "%llu", (unsigned long long)weights);
    settings[at] = (weir_setting){"weights", texts[at]};
    spec.name = name;
    spec.path = data_folder;
    spec.engine = "pool-plain";
    spec.settings = &settings[at];
    spec.setting_count = 1;
    spec.minimum_stay = WEIR_POOL_NONE;
    return spec;
}

void add_spec(bed *b, weir_pool_spec spec)
{
    ok(weir_pool_add(b->pool, &spec));
}

void add(bed *b, const char *name, uint64_t weights)
{
    add_spec(b, spec_of(name, weights));
}

weir_pool_request request_of(const char *name)
{
    weir_pool_request request = WEIR_INIT(weir_pool_request);
    request.name = name;
    return request;
}

weir_lease *lease(bed *b, const char *name)
{
    weir_pool_request request = request_of(name);
    weir_lease *l;
    ok(weir_pool_acquire(b->pool, &request, NULL, &l));
    return l;
}

weir_status try_infer(weir_lease *l)
{
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    weir_status status = weir_model_infer(weir_lease_model(l), &inference, &out);
    if (status == WEIR_OK)
        weir_model_release_outputs(weir_lease_model(l), &out);
    return status;
}

void infer_in(weir_lease *l)
{
    ok(try_infer(l));
}

weir_status use(bed *b, const char *name)
{
    weir_pool_request request = request_of(name);
    weir_lease *l;
    weir_status status = weir_pool_acquire(b->pool, &request, NULL, &l);
    if (status != WEIR_OK)
        return status;
    status = try_infer(l);
    weir_lease_release(l);
    return status;
}

weir_pool_entry entry_of(bed *b, const char *name)
{
    weir_pool_entry all[MOST_MODELS];
    size_t count;
    all[0].struct_size = sizeof *all;
    ok(weir_pool_list(b->pool, all, MOST_MODELS, &count));
    for (size_t i = 0; i < count && i < MOST_MODELS; i++)
        if (all[i].current && strcmp(all[i].name, name) == 0)
            return all[i];
    print_error("no current %s\n", name);
    fail();
    return all[0];
}

void in_state(bed *b, const char *name, weir_pool_state state)
{
    weir_pool_state now = entry_of(b, name).state;
    if (now != state)
        print_error("%s is %s, not %s\n", name, weir_pool_state_name(now), weir_pool_state_name(state));
    assert_int_equal(now, state);
}

void wait_for_state(bed *b, const char *name, weir_pool_state state)
{
    while (entry_of(b, name).state != state)
        sched_yield();
}

uint64_t taken(bed *b)
{
    weir_pool_usage now = WEIR_INIT(weir_pool_usage);
    ok(weir_pool_usage_info(b->pool, 0, &now));
    return now.taken;
}

void check_books(bed *b)
{
    snapshot s = take_snapshot(b->runtime);
    check_sums(&s);
    uint64_t live = 0;
    for (size_t i = 0; i < s.count; i++)
        live += s.clients[i].live + s.clients[i].pending;
    assert_true(s.device.held <= s.device.budget);
    assert_int_equal(s.device.live + s.device.pending, live);
}

/* Requests --------------------------------------------------------------------------------------------------------- */

static void *ask(void *user)
{
    asker *a = user;
    a->answer.struct_size = sizeof a->answer;
    a->status = weir_pool_acquire(a->b->pool, &a->request, &a->answer, &a->lease);
    snprintf(a->detail, sizeof a->detail, "%s", weir_detail());
    return NULL;
}

void start_asking(asker *a, bed *b, weir_pool_request request)
{
    *a = (asker){.b = b, .request = request};
    assert_int_equal(pthread_create(&a->thread, NULL, ask, a), 0);
}

void end_asking(asker *a)
{
    pthread_join(a->thread, NULL);
}

void wait_for_waiting(bed *b, uint64_t id)
{
    weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
    while (weir_pool_waiting(b->pool, id, &answer) != WEIR_OK)
        sched_yield();
}
