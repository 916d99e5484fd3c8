/* batch.c: runs that are decoded together, by GenAI's engine. All calls of an engine come from the thread that has
 * created it, so the model has a thread of its own; a run's own thread waits, and hands the pieces to its reader.
 *
 * How runs are put together is the model's: a graph that takes a table of blocks ("dynamic_batching") takes runs in and
 * lets them out at every step; any other graph computes a batch to its end before the next batch begins. A model with
 * "dynamic_batching" has its blocks of keys and values from the load on. When memory is short, an idle model gives up
 * these blocks, and its next run takes them back. */
#include "wl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/cores.h>

/* A run in the engine. Its members are the model's thread's until `done`; what a reader needs is in the answer, which is
 * written with the lock. */
typedef struct wl_seat {
    wl_generation *run;
    oga_request *request;
    uint64_t turn;
    bool done;
    weir_status status;
    char detail[1024];
    struct wl_seat *next;
} wl_seat;

struct wl_batch {
    weir_engine_model *model;
    pthread_t thread;
    pthread_cond_t work;     /* for the thread */
    wl_seat *line, *seated;  /* not yet begun; in the engine */
    bool ends, ready, began; /* with the model's lock, like the lists */
    bool gives_up;           /* likewise: asked to while it is idle */
    pthread_cond_t rests;    /* and it has */
    wt_listener *listener;   /* by which others ask; NULL: nobody can */
    weir_status status;      /* of making the engine */
    char detail[1024];
    oga_engine *engine; /* engine and events: the thread's */
    oga_event_buffer *events;
};

/* ---- the engine: all on its own thread --------------------------------------------------------------------------- */

static weir_status make_engine(struct wl_batch *batch)
{
    weir_engine_model *model = batch->model;
    const wl_library *lib = model->library;
    wl_phase phase;
    char text[1024] = "";
    wl_phase_begin(&phase, WL_RUNNING, model->account);
    bool made =
        !wl_failed(lib, lib->OgaCreateEngine(model->model, &batch->engine), text, sizeof text) &&
        !wl_failed(lib, lib->OgaCreateEngineEventBuffer(batch->engine, (size_t)model->load.sequences, &batch->events),
                   text, sizeof text);
    wl_phase_end(&phase);
    return made ? WEIR_OK : wl_explain(model, &phase, text, "decode several sequences together");
}

static void drop_engine(struct wl_batch *batch)
{
    const wl_library *lib = batch->model->library;
    wl_phase phase;
    wl_phase_begin(&phase, WL_RUNNING, batch->model->account);
    wl_account_settle(batch->model->account);
    if (batch->events)
        lib->OgaDestroyEngineEventBuffer(batch->events);
    if (batch->engine)
        lib->OgaDestroyEngine(batch->engine);
    batch->events = NULL;
    batch->engine = NULL;
    wl_phase_end(&phase);
}

/* ---- seats ------------------------------------------------------------------------------------------------------- */

static void llm_batch_fail(wl_seat *seat, weir_status status)
{
    if (seat->status == WEIR_OK) {
        seat->status = status;
        snprintf(seat->detail, sizeof seat->detail, "%s", weir_detail());
    }
}

/* With the lock. */
static void llm_batch_finish(wl_seat *seat)
{
    seat->done = true;
    pthread_cond_signal(&seat->run->run->wake);
}

static bool llm_batch_set_options(const wl_generation *it, oga_turn_options *options, char *text, size_t capacity)
{
    const wl_library *lib = it->model->library;
    const wl_run_settings *s = it->settings;
    const char *kinds[] = {"json_schema", "regex", "lark_grammar"};
    const char *data[] = {s->json_schema, s->regex, s->lark};
    bool draws = s->temperature > 0 && s->top_k != 1; /* GenAI refuses to draw from a single token */
    int64_t wide = s->top_k > 0 && s->top_k < it->model->folder.vocabulary ? s->top_k : it->model->folder.vocabulary;
#define SET(what, value) wl_failed(lib, lib->OgaTurnOptionsSet##what(options, value), text, capacity)
    if (SET(MaxGeneratedTokens, (uint64_t)s->tokens) || SET(DoSample, draws) ||
        SET(MinGeneratedTokens, s->ignore_eos ? (uint64_t)s->tokens : 0) ||
        SET(Temperature, draws ? (float)s->temperature : 1) || SET(TopK, draws ? (int32_t)wide : 1) ||
        SET(TopP, draws ? (float)s->top_p : 1) || SET(RepetitionPenalty, (float)s->repeat_penalty) ||
        SET(NoRepeatNgramSize, (int32_t)s->no_repeat_ngram))
        return false;
    if (draws && it->model->folder.paged && SET(Seed, (uint64_t)s->seed))
        return false;
#undef SET
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (data[i] && wl_failed(lib, lib->OgaTurnOptionsSetGuidance(options, kinds[i], data[i]), text, capacity))
            return false;
    return true;
}

static bool begin_request(struct wl_batch *batch, wl_seat *seat, char *text, size_t capacity)
{
    const wl_library *lib = batch->model->library;
    wl_generation *it = seat->run;
    oga_request_options *session = NULL;
    oga_turn_options *options = NULL;
    bool begun =
        !wl_failed(lib, lib->OgaCreateRequestOptions(&session), text, capacity) &&
        !wl_failed(
            lib, lib->OgaRequestOptionsSetMaxSessionTokens(session, it->prompt.count + (uint64_t)it->settings->tokens),
            text, capacity) &&
        !wl_failed(lib, lib->OgaEngineCreateRequest(batch->engine, session, &seat->request), text, capacity) &&
        !wl_failed(lib, lib->OgaRequestCreateTurnOptions(seat->request, &options), text, capacity) &&
        llm_batch_set_options(it, options, text, capacity) &&
        !wl_failed(lib,
                   lib->OgaRequestBeginTurn(seat->request, options, it->prompt.tokens, it->prompt.count, &seat->turn),
                   text, capacity);
    if (options)
        lib->OgaDestroyTurnOptions(options);
    if (session)
        lib->OgaDestroyRequestOptions(session);
    return begun;
}

static void close_request(const struct wl_batch *batch, wl_seat *seat)
{
    const wl_library *lib = batch->model->library;
    char text[256];
    if (!seat->request)
        return;
    wl_account_settle(batch->model->account);
    wl_failed(lib, lib->OgaRequestClose(seat->request), text, sizeof text);
    lib->OgaDestroyRequest(seat->request);
    seat->request = NULL;
}

static weir_status make_sure(struct wl_batch *batch)
{
    return batch->engine ? WEIR_OK : make_engine(batch);
}

static void llm_batch_begin(struct wl_batch *batch, wl_seat *seat)
{
    wl_phase phase;
    char text[1024] = "";
    weir_status status = make_sure(batch);
    wl_phase_begin(&phase, WL_RUNNING, batch->model->account);
    if (status == WEIR_OK && !begin_request(batch, seat, text, sizeof text))
        status = wl_generation_refused(seat->run, &phase, text);
    if (status != WEIR_OK)
        llm_batch_fail(seat, status);
    wl_phase_end(&phase);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static wl_seat *seat_of(const struct wl_batch *batch, const oga_request *request)
{
    wl_seat *seat = batch->seated;
    while (seat && seat->request != request)
        seat = seat->next;
    return seat;
}

static void end_answer(wl_seat *seat, uint32_t reason, uint32_t error)
{
    wl_generation *it = seat->run;
    if (reason == OGA_FINISH_FAILED)
        llm_batch_fail(seat, weir_fail(WEIR_ERR_ENGINE, "%s: ONNX Runtime GenAI's engine has failed a run with code %u",
                                       it->model->folder.path, error));
    if (!it->answer.finish)
        wt_answer_end(&it->answer, reason == OGA_FINISH_EOS         ? "stop"
                                   : reason == OGA_FINISH_CANCELLED ? "cancelled"
                                                                    : "length");
}

/* With the lock, as readers look at the answer. */
static void llm_batch_take_event(const struct wl_batch *batch, const wl_phase *phase, const oga_event *event)
{
    const wl_library *lib = batch->model->library;
    const oga_request *request = NULL;
    uint32_t flags = 0, reason = 0, error = 0;
    int32_t token = 0;
    char text[256];
    wl_failed(lib, lib->OgaEngineEventGetFlags(event, &flags), text, sizeof text);
    wl_failed(lib, lib->OgaEngineEventGetRequest(event, &request), text, sizeof text);
    wl_seat *seat = request ? seat_of(batch, request) : NULL;
    if (!seat)
        return;
    if (flags & OGA_EVENT_TOKEN && !seat->run->answer.finish) {
        wl_failed(lib, lib->OgaEngineEventGetToken(event, &token), text, sizeof text);
        weir_status status = wl_generation_add(seat->run, phase, token, NULL);
        if (status != WEIR_OK)
            llm_batch_fail(seat, status);
    }
    if (flags & OGA_EVENT_FINISHED) {
        wl_failed(lib, lib->OgaEngineEventGetFinishReason(event, &reason), text, sizeof text);
        wl_failed(lib, lib->OgaEngineEventGetErrorCode(event, &error), text, sizeof text);
        end_answer(seat, reason, error);
    }
    pthread_cond_signal(&seat->run->run->wake);
}

/* The event of a run that has failed has a number, and no words. */
static void say_refusal(wl_seat *seat, const wl_phase *phase)
{
    char text[1024] = "bad_alloc";
    weir_status refused = wl_phase_refused(phase, text, sizeof text);
    if (refused == WEIR_OK)
        return;
    seat->status = refused;
    snprintf(seat->detail, sizeof seat->detail, "%s", text);
}

/* Computes a step of all runs. An engine that fails is dropped: its runs fail, and the next run gets a new engine. */
static void llm_batch_step(struct wl_batch *batch)
{
    weir_engine_model *model = batch->model;
    const wl_library *lib = model->library;
    wl_phase phase;
    char text[1024] = "";
    wl_phase_begin(&phase, WL_RUNNING, model->account);
    bool failed = wl_failed(lib, lib->OgaEngineRun(batch->engine, batch->events), text, sizeof text);
    weir_status status = failed ? wl_explain(model, &phase, text, "go on with the texts") : WEIR_OK;
    pthread_mutex_lock(&model->runs.lock);
    for (size_t i = 0; !failed && i < lib->OgaEngineEventBufferGetCount(batch->events); i++)
        llm_batch_take_event(batch, &phase, lib->OgaEngineEventBufferGet(batch->events, i));
    for (wl_seat *seat = batch->seated; seat; seat = seat->next)
        if (failed)
            llm_batch_fail(seat, status);
        else if (seat->status == WEIR_ERR_ENGINE)
            say_refusal(seat, &phase);
    pthread_mutex_unlock(&model->runs.lock);
    wl_phase_end(&phase);
}

/* Removes runs that have ended, or have to end, from the engine. Their memory in the engine is free when they
 * return. */
static void llm_batch_let_go(struct wl_batch *batch)
{
    weir_engine_model *model = batch->model;
    wl_seat *leaving = NULL;
    wl_phase phase;
    bool broken = false;
    wl_phase_begin(&phase, WL_RUNNING, model->account);
    for (wl_seat **at = &batch->seated; *at;) {
        wl_seat *seat = *at;
        if (atomic_load(&seat->run->run->stop))
            llm_batch_fail(seat, weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled"));
        if (seat->status == WEIR_OK && !seat->run->answer.finish && !atomic_load(&seat->run->leaves)) {
            at = &seat->next;
            continue;
        }
        broken = broken || seat->status == WEIR_ERR_ENGINE || seat->status == WEIR_ERR_OUT_OF_MEMORY;
        close_request(batch, seat);
        pthread_mutex_lock(&model->runs.lock);
        *at = seat->next;
        pthread_mutex_unlock(&model->runs.lock);
        seat->next = leaving;
        leaving = seat;
    }
    wl_phase_end(&phase);
    /* Rows of a batch that is over keep its memory until the next one; nobody may wait for it. */
    if (!batch->seated && leaving && (broken || !model->folder.paged))
        drop_engine(batch);
    pthread_mutex_lock(&model->runs.lock);
    for (wl_seat *seat = leaving, *next; seat; seat = next) {
        next = seat->next;
        llm_batch_finish(seat);
    }
    pthread_mutex_unlock(&model->runs.lock);
}

static void llm_batch_take_line(struct wl_batch *batch)
{
    while (batch->line) {
        wl_seat *seat = batch->line;
        batch->line = seat->next;
        seat->next = NULL;
        pthread_mutex_unlock(&batch->model->runs.lock);
        llm_batch_begin(batch, seat);
        pthread_mutex_lock(&batch->model->runs.lock);
        wl_seat **at = &batch->seated;
        while (*at)
            at = &(*at)->next;
        *at = seat;
    }
}

/* With the lock, and without anything to do. */
static void llm_batch_rest(struct wl_batch *batch)
{
    weir_engine_model *model = batch->model;
    if (!batch->gives_up) {
        pthread_cond_wait(&batch->work, &model->runs.lock);
        return;
    }
    pthread_mutex_unlock(&model->runs.lock);
    drop_engine(batch);
    pthread_mutex_lock(&model->runs.lock);
    batch->gives_up = false;
    pthread_cond_broadcast(&batch->rests);
}

/* Asked while the thread waits for cores. Only it changes the list. */
static bool llm_batch_somebody_leaves(void *user)
{
    const struct wl_batch *batch = user;
    for (const wl_seat *seat = batch->seated; seat; seat = seat->next)
        if (atomic_load(&seat->run->run->stop) || atomic_load(&seat->run->leaves))
            return true;
    return false;
}

static void *llm_batch_work(void *user)
{
    struct wl_batch *batch = user;
    weir_engine_model *model = batch->model;
    bool leased = false; /* cores, while there is something to compute */
    uint32_t cores;
    weir_status status = make_engine(batch);
    pthread_mutex_lock(&model->runs.lock);
    batch->status = status;
    snprintf(batch->detail, sizeof batch->detail, "%s", weir_detail());
    batch->ready = true;
    pthread_cond_broadcast(&model->runs.changed);
    while (status == WEIR_OK && !batch->ends) {
        if (!batch->line && !batch->seated) {
            wt_cores_give(model->cores, &leased);
            llm_batch_rest(batch);
            continue;
        }
        double from = wt_seconds_now();
        llm_batch_take_line(batch);
        pthread_mutex_unlock(&model->runs.lock);
        llm_batch_let_go(batch);
        if (batch->seated &&
            wt_cores_take(model->cores, llm_batch_somebody_leaves, batch, &leased, &cores) != WEIR_ERR_CANCELLED)
            llm_batch_step(batch);
        llm_batch_let_go(batch);
        pthread_mutex_lock(&model->runs.lock);
        model->runs.metrics.busy_seconds += wt_seconds_now() - from;
    }
    pthread_mutex_unlock(&model->runs.lock);
    wt_cores_give(model->cores, &leased);
    drop_engine(batch);
    return NULL;
}

/* ---- a run's own thread ------------------------------------------------------------------------------------------ */

static void llm_batch_deliver(wl_generation *it)
{
    if (wt_answer_deliver(&it->answer, &it->model->runs.lock, it->piece, it->user, &it->lost))
        return;
    it->quit = true;
    atomic_store(&it->leaves, true);
    weir_cores_wake(it->model->cores);
}

static weir_status llm_batch_check(const wl_generation *it)
{
    const wl_run_settings *s = it->settings;
    if (s->logprobs > 0 || s->logits)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: GenAI's engine shows no logits; the settings 'logprobs' and 'logits' need a model %s",
                         it->model->folder.path,
                         it->model->folder.paged ? "without \"dynamic_batching\"" : "that is loaded with sequences=1");
    if (s->temperature > 0 && !it->model->folder.paged && s->seed != it->model->defaults.seed)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: runs of this model that are decoded together take the seed of its load, %lld",
                         it->model->folder.path, (long long)it->model->defaults.seed);
    return WEIR_OK;
}

weir_status wl_batch_run(wl_generation *it)
{
    weir_engine_model *model = it->model;
    wl_seat seat = {.run = it};
    weir_status status = llm_batch_check(it);
    if (status != WEIR_OK)
        return status;
    if (it->answer.most == 0) {
        wt_answer_end(&it->answer, "length");
        return WEIR_OK;
    }
    pthread_mutex_lock(&model->runs.lock);
    wl_seat **at = &model->batch->line;
    while (*at)
        at = &(*at)->next;
    *at = &seat;
    pthread_cond_signal(&model->batch->work);
    while (!seat.done) {
        if (wl_generation_has_pieces(it))
            llm_batch_deliver(it);
        else
            pthread_cond_wait(&it->run->wake, &model->runs.lock);
    }
    pthread_mutex_unlock(&model->runs.lock);
    if (seat.status != WEIR_OK)
        return weir_fail(seat.status, "%s", seat.detail);
    return it->lost ? weir_fail(WEIR_ERR_SYSTEM, "no memory for a piece of the text") : WEIR_OK;
}

/* ---- giving up --------------------------------------------------------------------------------------------------- */

static uint64_t live_cache(const weir_engine_model *model)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    return weir_client_info(wl_account_client(model->account), &stats) == WEIR_OK ? stats.live_class[WEIR_CLASS_KV] : 0;
}

/* Asks the thread for the blocks. With the lock, which is released during the wait. The wait is short, because two
 * models may ask each other. */
static void ask_for_blocks(struct wl_batch *batch)
{
    enum { MOST_MS = 100 };
    struct timespec until = wt_soon(MOST_MS);
    int waited = 0;
    batch->gives_up = !batch->line && !batch->seated;
    pthread_cond_signal(&batch->work);
    while (batch->gives_up && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&batch->rests, &batch->model->runs.lock, &until);
    batch->gives_up = false;
    pthread_cond_broadcast(&batch->rests); /* other callers may wait longer */
}

uint64_t wl_batch_rest(weir_engine_model *model)
{
    struct wl_batch *batch = model->batch;
    uint64_t before = batch ? live_cache(model) : 0;
    if (before == 0 || pthread_equal(pthread_self(), batch->thread))
        return 0;
    pthread_mutex_lock(&model->runs.lock);
    ask_for_blocks(batch);
    pthread_mutex_unlock(&model->runs.lock);
    uint64_t after = live_cache(model);
    return after < before ? before - after : 0;
}

/* Has the thread drop the engine, and waits until the engine is gone. Asks again where another caller's timeout has
 * ended the wait too early. The idle thread answers soon. */
void wl_batch_settle(weir_engine_model *model)
{
    struct wl_batch *batch = model->batch;
    if (!batch)
        return;
    pthread_mutex_lock(&model->runs.lock);
    do {
        batch->gives_up = true;
        pthread_cond_signal(&batch->work);
        while (batch->gives_up)
            pthread_cond_wait(&batch->rests, &model->runs.lock);
    } while (batch->engine);
    pthread_mutex_unlock(&model->runs.lock);
}

/* Gives up the idle model's blocks when memory is short. The calling thread may hold another model's lock, and that
 * model's thread may ask this model: therefore does not wait for this model's lock, and treats a model whose lock is
 * taken as busy. */
static void llm_batch_give_up(void *user)
{
    weir_engine_model *model = user;
    if (pthread_equal(pthread_self(), model->batch->thread) || live_cache(model) == 0 ||
        pthread_mutex_trylock(&model->runs.lock) != 0)
        return;
    ask_for_blocks(model->batch);
    pthread_mutex_unlock(&model->runs.lock);
}

static weir_status llm_batch_listen(weir_engine_model *model)
{
    if (!model->folder.paged)
        return WEIR_OK;
    return wt_listener_begin(weir_client_runtime(wl_account_client(model->account)), llm_batch_give_up, model,
                             &model->batch->listener);
}

void wl_batch_wake(weir_engine_model *model)
{
    if (!model->batch)
        return;
    pthread_mutex_lock(&model->runs.lock);
    pthread_cond_signal(&model->batch->work);
    pthread_mutex_unlock(&model->runs.lock);
}

/* ---- with the model ---------------------------------------------------------------------------------------------- */

weir_status wl_batch_make(weir_engine_model *model)
{
    struct wl_batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory for a batch", model->folder.path);
    batch->model = model;
    pthread_cond_init(&batch->work, NULL);
    pthread_cond_init(&batch->rests, NULL);
    model->batch = batch;
    batch->began = pthread_create(&batch->thread, NULL, llm_batch_work, batch) == 0;
    if (!batch->began)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no thread to decode on", model->folder.path);
    pthread_mutex_lock(&model->runs.lock);
    while (!batch->ready)
        pthread_cond_wait(&model->runs.changed, &model->runs.lock);
    pthread_mutex_unlock(&model->runs.lock);
    return batch->status == WEIR_OK ? llm_batch_listen(model) : weir_fail(batch->status, "%s", batch->detail);
}

void wl_batch_drop(weir_engine_model *model)
{
    struct wl_batch *batch = model->batch;
    if (!batch)
        return;
    wt_listener_end(batch->listener);
    pthread_mutex_lock(&model->runs.lock);
    batch->ends = true;
    pthread_cond_signal(&batch->work);
    pthread_mutex_unlock(&model->runs.lock);
    if (batch->began)
        pthread_join(batch->thread, NULL);
    pthread_cond_destroy(&batch->work);
    pthread_cond_destroy(&batch->rests);
    free(batch);
    model->batch = NULL;
}
