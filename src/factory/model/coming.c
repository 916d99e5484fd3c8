/* A shown model is used while its memory comes back: runs read the weights where the host's copies are shown, and between
 * runs a thread brings them to the device, a step at a time.
 *
 * `coming.ready` is a second gate, beside presence.state: with `ready`, runs pass while the state is WEIR_SUSPENDED. The
 * thread that has set WEIR_MOVING makes a step, with no run inside and no result out, as nothing may touch the memory that
 * is exchanged. The engine is asked before each step as before a suspend, and told after the step as after a resume. */
#include "factory/model/model.h"
#include "base/system.h"
#include "runtime/runtime.h"

#include <weir/engine.h>
#include <weir/model.h>
#include <weir/stats.h>

#include <stdlib.h>
#include <time.h>

enum {
    STEP = 64 << 20, /* bytes */
    ANSWERS = 8,     /* answers of overlapping runs, after which new runs wait for a step */
    WORK_MS = 100,   /* for work on the device to be done */
    LATER_MS = 10    /* until a step that found memory in use is tried again */
};
#define COMING_MS UINT64_C(1000000)

/* The order -------------------------------------------------------------------------------------------------------- */

typedef struct listed {
    const void *pointer;
    uint64_t age;
} listed;

typedef struct listing {
    const weir_client *client;
    uint32_t classes;
    listed *at;
    size_t count, room;
    bool failed;
} listing;

static void coming_add(const weir_segment *segment, const weir_span *span, void *user)
{
    listing *l = user;
    (void)segment;
    bool wanted = span->state == WEIR_SPAN_LIVE && span->client == l->client && span->block.pointer &&
                  l->classes & WEIR_CLASS_BIT(span->memory_class);
    if (!wanted || l->failed)
        return;
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        listed *at = realloc(l->at, room * sizeof *at);
        l->failed = !at;
        if (!at)
            return;
        l->at = at;
        l->room = room;
    }
    l->at[l->count++] = (listed){span->block.pointer, span->block.generation};
}

static int coming_by_age(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    return (x->age > y->age) - (x->age < y->age);
}

/* Returns the most bytes that runs have had besides the memory that lasts between runs. */
static uint64_t coming_room(weir_client *client)
{
    weir_client_stats now = WEIR_INIT(weir_client_stats);
    return weir_client_info(client, &now) == WEIR_OK && now.peak > now.live ? now.peak - now.live : 0;
}

void wi_coming_list(weir_model *model, const wi_instance *at, uint32_t unwritten)
{
    wi_coming *c = &model->coming;
    listing l = {.client = at->client, .classes = unwritten};
    wi_saved_detail caller;
    wi_detail_save(&caller);
    weir_status status = weir_layout_walk(weir_client_runtime(at->client), coming_add, &l, NULL);
    wi_detail_restore(&caller);
    free(c->order);
    c->room = coming_room(at->client);
    c->unwritten = unwritten;
    c->count = c->next = 0;
    c->order = status == WEIR_OK && !l.failed && l.count > 0 ? malloc(l.count * sizeof *c->order) : NULL;
    if (c->order)
        qsort(l.at, l.count, sizeof *l.at, coming_by_age);
    for (size_t i = 0; c->order && i < l.count; i++) /* a block may be in several segments */
        if (i == 0 || l.at[i].age != l.at[i - 1].age)
            c->order[c->count++] = l.at[i].pointer;
    free(l.at);
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

/* Whether runs can use the client's memory: every away byte is shown. *some: there are such bytes. */
static bool coming_can_use(weir_client *client, bool *some)
{
    weir_residency now = WEIR_INIT(weir_residency);
    bool known = weir_client_residency(client, &now) == WEIR_OK;
    *some = now.shown > 0;
    return known && (now.state == WEIR_RESIDENT || now.shown == now.away);
}

/* With the lock held. */
static void coming_look_locked(weir_model *model, const wi_instance *at)
{
    weir_residency now = WEIR_INIT(weir_residency);
    if (weir_client_residency(at->client, &now) != WEIR_OK)
        return;
    model->presence.away = now.away;
    model->presence.shown = now.shown;
    model->presence.stopped = model->coming.stopped;
    model->presence.coming = model->coming.ready;
}

void wi_coming_left_locked(weir_model *model, const wi_instance *at, const weir_model_suspend_options *o)
{
    wi_coming *c = &model->coming;
    c->shown = false;
    if (o->show)
        (void)coming_can_use(at->client, &c->shown); /* pages are not shown, and come back first */
    c->step = o->step ? o->step : STEP;
    c->stopped = WEIR_OK;
    coming_look_locked(model, at);
}

bool wi_coming_serves(const weir_model *model)
{
    bool ignored;
    return model->coming.ready && model->presence.state == WEIR_SUSPENDED &&
           coming_can_use(model->present->client, &ignored);
}

bool wi_coming_is_first(const weir_model *model, const wi_run *run)
{
    const wi_coming *c = &model->coming;
    bool owed = c->ready && c->wanted && c->answers > 0 && c->not_before == 0 && model->outputs == 0;
    return owed && (model->inside == 0 || c->answers >= ANSWERS) && !wi_pressures_inside() &&
           !wi_model_is_in_a_run(model, run);
}

void wi_coming_answered_locked(weir_model *model, const wi_run *run)
{
    wi_coming *c = &model->coming;
    if (!c->ready)
        return;
    c->answers++;
    c->until = wi_now() + (uint64_t)(run->ms * 1e6);
    if (!c->wanted && wi_fault_looks_again(++c->tries))
        c->wanted = true;
    pthread_cond_broadcast(&model->changed);
}

void wi_coming_stop_locked(weir_model *model, weir_status why)
{
    wi_coming *c = &model->coming;
    c->wanted = false;
    c->tries = why == WEIR_ERR_BUSY ? 0 : c->tries; /* what failed is tried more and more rarely */
    c->stopped = model->presence.stopped = why;
    pthread_cond_broadcast(&model->changed);
}

void wi_coming_again_locked(weir_model *model)
{
    model->coming.wanted = true;
    model->coming.tries = 0;
    model->coming.stopped = model->presence.stopped = WEIR_OK;
    pthread_cond_broadcast(&model->changed);
}

void wi_coming_over_locked(weir_model *model)
{
    wi_coming *c = &model->coming;
    c->shown = c->ready = c->wanted = false;
    c->stopped = WEIR_OK;
    model->presence.shown = 0;
    model->presence.coming = false;
    model->presence.stopped = WEIR_OK;
    pthread_cond_broadcast(&model->changed);
}

/* Steps ------------------------------------------------------------------------------------------------------------ */

/* With the gate taken and no run inside: makes the engine wait for its own work, and touch nothing until coming_unhush. */
static weir_status coming_hush(const wi_instance *at)
{
    weir_engine_leaving ignored = WEIR_INIT(weir_engine_leaving);
    return at->engine->suspend(at->loaded, &ignored);
}

/* Lets the engine go on. Answers `status`, and after WEIR_OK the status of the engine. */
static weir_status coming_unhush(const wi_instance *at, weir_status status)
{
    wi_saved_detail why;
    if (!at->engine->resume)
        return status;
    if (status == WEIR_OK)
        return at->engine->resume(at->loaded);
    wi_detail_save(&why);
    (void)at->engine->resume(at->loaded);
    wi_detail_restore(&why);
    return status;
}

/* Brings a step, at least one piece: the oldest blocks first, and last the blocks that are not in the list. */
static weir_status coming_bring_step(wi_coming *c, const wi_instance *at)
{
    weir_resume_options o = {.struct_size = sizeof o, .wait = WORK_MS * COMING_MS};
    uint64_t sum = 0, came = 0;
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && sum < c->step && (c->next < c->count || sum == 0)) {
        bool known = c->next < c->count;
        o.block = known ? c->order[c->next] : NULL;
        o.most = c->step - sum;
        o.unwritten = c->some;
        status = weir_client_resume_some(at->client, &o, WEIR_STREAM_HOST, &came);
        if (status == WEIR_ERR_OUT_OF_MEMORY && sum == 0) { /* a single piece may fit */
            o.most = 1;
            status = weir_client_resume_some(at->client, &o, WEIR_STREAM_HOST, &came);
        }
        c->some |= came > 0;
        c->next += known && status == WEIR_OK && came == 0;
        sum += came;
        if (!known && came == 0)
            break;
    }
    if (status == WEIR_OK && sum == 0 && !wi_residency_is_here(at->client))
        status = weir_fail(WEIR_ERR_BUSY, "nothing of %s can come back now", wi_client_name(at->client));
    return sum > 0 ? WEIR_OK : status; /* the next step meets the same failure */
}

/* Makes a step. Holds the room that a run takes besides in reserve meanwhile, as the next run would miss that room. */
static weir_status coming_step(const wi_instance *at, wi_coming *c)
{
    weir_reservation *room = NULL;
    wi_saved_detail why;
    weir_status status = coming_hush(at);
    if (status != WEIR_OK)
        return status;
    if (c->room > 0)
        status = weir_reservation_create(at->client, c->room, 0, &room);
    if (status == WEIR_OK)
        status = coming_bring_step(c, at);
    wi_detail_save(&why);
    if (room)
        (void)!weir_reservation_destroy(room); /* nothing was taken from it */
    wi_detail_restore(&why);
    return coming_unhush(at, status);
}

weir_status wi_coming_finish(weir_model *model, const wi_instance *at, weir_stream stream)
{
    weir_resume_options o = {.struct_size = sizeof o, .unwritten = model->coming.some};
    weir_status status = coming_hush(at);
    if (status == WEIR_OK) {
        status = weir_client_resume_some(at->client, &o, stream, NULL);
        status = coming_unhush(at, status);
    }
    return status;
}

/* The thread ------------------------------------------------------------------------------------------------------- */

static bool coming_may_go(const weir_model *model)
{
    const wi_coming *c = &model->coming;
    bool yields = c->calls_waiting > 0 || (c->runs_waiting > 0 && c->answers == 0);
    return c->wanted && !yields && model->presence.state == WEIR_SUSPENDED && model->inside == 0 &&
           model->outputs == 0 && (c->not_before == 0 || wi_now() >= c->not_before);
}

static void coming_wait(weir_model *model)
{
    struct timespec until;
    if (!model->coming.wanted || wi_now() >= model->coming.not_before) {
        pthread_cond_wait(&model->changed, &model->lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until); /* which the condition goes by */
    until.tv_nsec += LATER_MS * (long)COMING_MS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&model->changed, &model->lock, &until);
}

/* Notes how a step has ended, and opens the gate. With the lock held. */
static void coming_note(weir_model *model, const wi_instance *at, weir_status status)
{
    wi_coming *c = &model->coming;
    bool busy = status == WEIR_ERR_BUSY || status == WEIR_ERR_STREAM_MISUSE;
    c->not_before = busy ? wi_now() + LATER_MS * COMING_MS : 0;
    if (wi_now() >= c->until || status != WEIR_OK)
        c->answers = 0;
    if (model->present != at)
        model->presence.state = WEIR_RESIDENT;
    else if (status == WEIR_OK && wi_residency_is_here(at->client)) {
        wi_model_note_back_locked(model, c->began, c->bytes, c->by_run);
        model->presence.state = WEIR_RESIDENT;
    } else
        model->presence.state = WEIR_SUSPENDED;
    if (model->presence.state == WEIR_SUSPENDED && status != WEIR_OK && !busy) {
        wi_coming_stop_locked(model, status);
        weir_log(WEIR_LOG_WARNING, "%s answers from memory of the host's, and comes back no further for now: %s",
                 wi_client_name(at->client), weir_detail());
    } else if (status == WEIR_OK) {
        c->stopped = WEIR_OK;
        c->tries = 0;
    }
    if (model->presence.state == WEIR_SUSPENDED)
        coming_look_locked(model, at);
    pthread_cond_broadcast(&model->changed);
}

/* Makes a step. With the lock held, which is let go of meanwhile. */
static void coming_make_step(weir_model *model)
{
    wi_instance *at = wi_model_join_locked(model);
    if (!at) {
        wi_coming_stop_locked(model, WEIR_ERR_DEVICE_LOST);
        return;
    }
    model->presence.state = WEIR_MOVING;
    pthread_mutex_unlock(&model->lock);
    weir_status status = coming_step(at, &model->coming);
    pthread_mutex_lock(&model->lock);
    coming_note(model, at, status);
    pthread_mutex_unlock(&model->lock);
    wi_model_leave(model, at);
    pthread_mutex_lock(&model->lock);
}

static void *coming_work(void *user)
{
    weir_model *model = user;
    pthread_mutex_lock(&model->lock);
    while (model->coming.ready && !model->unloading) {
        if (coming_may_go(model))
            coming_make_step(model);
        else
            coming_wait(model);
    }
    pthread_mutex_unlock(&model->lock);
    return NULL;
}

static void coming_join(weir_model *model)
{
    pthread_mutex_lock(&model->lock);
    pthread_t thread = model->coming.thread;
    bool any = model->coming.has_thread;
    model->coming.has_thread = false;
    pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
    if (any)
        pthread_join(thread, NULL);
}

bool wi_coming_keeps(const weir_model *model)
{
    const wi_coming *c = &model->coming;
    return c->has_thread && (pthread_equal(c->thread, pthread_self()) ||
                             (wi_pressures_inside() && model->presence.state == WEIR_MOVING));
}

void wi_coming_end(weir_model *model)
{
    coming_join(model);
}

/* Beginning -------------------------------------------------------------------------------------------------------- */

/* Starts the thread, which waits as long as the gate is taken. False: the system has no thread. */
static bool coming_start(weir_model *model, bool by_run, uint64_t began, uint64_t bytes)
{
    wi_coming *c = &model->coming;
    pthread_mutex_lock(&model->lock);
    c->by_run = by_run;
    c->began = began;
    c->bytes = bytes;
    c->wanted = c->some = false;
    c->answers = c->tries = 0;
    c->not_before = c->until = 0;
    c->ready = true;
    c->has_thread = wi_thread_start(&c->thread, coming_work, model) == 0;
    c->ready = c->has_thread;
    pthread_mutex_unlock(&model->lock);
    return c->has_thread;
}

/* Opens the gate. After a run's begin the first step waits until that run is answered. */
static void coming_open(weir_model *model, const wi_instance *at)
{
    wi_coming *c = &model->coming;
    pthread_mutex_lock(&model->lock);
    c->wanted = !c->by_run;
    model->refuses_runs = false;
    model->presence.state = model->present == at ? WEIR_SUSPENDED : WEIR_RESIDENT;
    coming_look_locked(model, at);
    pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
}

/* Brings the classes that runs write, and pages. On failure opens the gate. */
static weir_status coming_bring_written(weir_model *model, const wi_instance *at)
{
    weir_resume_options o = {.struct_size = sizeof o,
                             .classes = (WEIR_CLASS_BIT(WEIR_CLASS_COUNT) - 1) & ~model->coming.unwritten};
    weir_status status = o.classes ? weir_client_resume_some(at->client, &o, WEIR_STREAM_HOST, NULL) : WEIR_OK;
    if (status == WEIR_OK)
        return status;
    pthread_mutex_lock(&model->lock);
    model->presence.state = model->present == at ? WEIR_SUSPENDED : WEIR_RESIDENT;
    coming_look_locked(model, at);
    pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
    return status;
}

weir_status wi_coming_begin(weir_model *model, wi_instance *at, bool by_run)
{
    uint64_t began = wi_now(), bytes = wi_model_away_of(at->client);
    bool some = false;
    coming_join(model); /* the thread of the last return has nothing to do any more */
    weir_status status = coming_bring_written(model, at);
    if (status != WEIR_OK)
        return status;
    bool usable = coming_can_use(at->client, &some);
    if (!usable || !some || !coming_start(model, by_run, began, bytes))
        return wi_model_bring_back(model, at, WEIR_STREAM_HOST, by_run, began, bytes);
    status = at->engine->resume ? at->engine->resume(at->loaded) : WEIR_OK;
    coming_open(model, at);
    return status;
}

/* Of the room that was left by the weights, what nothing has taken yet. */
static uint64_t coming_room_left(const wi_instance *at)
{
    weir_client_stats now = WEIR_INIT(weir_client_stats);
    if (weir_client_info(at->client, &now) != WEIR_OK)
        return at->room;
    return at->room - wi_min(at->room, now.live - now.live_class[WEIR_CLASS_WEIGHTS]);
}

weir_status wi_coming_loaded(weir_model *model, wi_instance *at)
{
    static const weir_model_suspend_options shown = {.struct_size = sizeof shown, .show = true};
    if (wi_residency_is_here(at->client))
        return WEIR_OK;
    weir_engine_leaving says = WEIR_INIT(weir_engine_leaving);
    weir_status status = at->engine->suspend(at->loaded, &says);
    if (status != WEIR_OK)
        return status;
    wi_coming_list(model, at,
                   says.unwritten | WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)); /* runs may write what is shown, too */
    model->coming.count =
        0; /* a block without the device's memory is in no list: they come in the order of addresses */
    model->coming.room = wi_max(model->coming.room, coming_room_left(at));
    pthread_mutex_lock(&model->lock);
    model->presence.state = WEIR_MOVING;
    wi_coming_left_locked(model, at, &shown);
    pthread_mutex_unlock(&model->lock);
    return wi_coming_begin(model, at, false);
}
