/* Other processes on the device: a thread looks at what they leave free, keeps a reserve free for them, and has the budget
 * float meanwhile. */
#include "runtime/outside.h"
#include "base/system.h"
#include "base/values.h"

#include <weir/pressure.h>

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

enum {
    MILLISECOND = 1000000,
    QUIET_NS = 50 * MILLISECOND,  /* between looks while nothing moves, */
    MOVING_NS = 10 * MILLISECOND, /* and while something does, or did within STILL looks */
    STILL = 20,
    VAIN = 3,   /* the time between looks that are in vain is doubled so often */
    STEADY = 5, /* looks in a row with enough free before the budget rises */
    RESERVE_SHARE = 32,
    SLACK_SHARE = 4, /* of the reserve: the budget does not rise for less */
    LOOKS_AGAIN = 3, /* while the memory that is held changes during a look */
    POLL_NS = 2 * MILLISECOND
};
static const uint64_t usual_hold = UINT64_C(10000000000), usual_wait = 250 * (uint64_t)MILLISECOND;

/* All records, and the thread. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    wi_outside *first;
    bool begun;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void outside_make_condition(void)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&all.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void outside_on_pressure(const weir_pressure *pressure, void *user);

/* Records ---------------------------------------------------------------------------------------------------------- */

static void outside_free(wi_outside *o)
{
    for (wi_offer *next; o->offers; o->offers = next) {
        next = o->offers->next;
        free(o->offers->folder);
        free(o->offers);
    }
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    pthread_mutex_destroy(&o->turn);
    free(o);
}

weir_status wi_outside_of(weir_runtime *runtime, wi_outside **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    wi_outside *there = atomic_load(&runtime->outside), *new;
    pthread_mutexattr_t checked;
    pthread_once(&once, outside_make_condition);
    *out = there;
    if (there)
        return WEIR_OK;
    new = calloc(1, sizeof *new);
    if (!new)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to look at other processes on %s", runtime->name);
    pthread_mutexattr_init(&checked);
    pthread_mutexattr_settype(&checked, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&new->turn, &checked);
    pthread_mutexattr_destroy(&checked);
    pthread_mutex_init(&new->lock, NULL);
    pthread_cond_init(&new->changed, NULL);
    new->runtime = runtime;
    new->due = UINT64_MAX;
    *out = new;
    pthread_mutex_lock(&all.lock);
    if (atomic_compare_exchange_strong(&runtime->outside, &there, new)) {
        new->next = all.first;
        all.first = new;
    } else
        *out = there;
    pthread_mutex_unlock(&all.lock);
    if (*out != new)
        outside_free(new);
    else if (weir_pressure_register(runtime, INT_MAX, outside_on_pressure, new, &(uint64_t){0}) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "requests do not have the budget of %s rise: %s", runtime->name, weir_detail());
    return WEIR_OK;
}

void wi_outside_destroy(weir_runtime *runtime)
{
    wi_outside *o = atomic_exchange(&runtime->outside, NULL);
    if (!o)
        return;
    pthread_mutex_lock(&all.lock);
    wi_outside **link = &all.first;
    while (*link != o)
        link = &(*link)->next;
    *link = o->next;
    pthread_mutex_unlock(&all.lock);
    outside_free(o);
}

/* The turn. WEIR_ERR_BUSY: this thread has it, in a function that weir calls, or it is inside a pressure callback. */
static weir_status outside_take_turn(wi_outside *o, const char *call)
{
    if (wi_pressures_inside() || pthread_mutex_lock(&o->turn) == EDEADLK)
        return weir_fail(WEIR_ERR_BUSY, "%s: this thread is giving memory up already", call);
    return WEIR_OK;
}

/* The budget ------------------------------------------------------------------------------------------------------- */

/* With the lock held. */
static uint64_t outside_own(const wi_outside *o)
{
    uint64_t now = wi_runtime_budget(o->runtime);
    return o->floated != 0 && now == o->floated ? o->own : now;
}

uint64_t wi_outside_budget(const weir_runtime *runtime)
{
    wi_outside *o = atomic_load(&((weir_runtime *)runtime)->outside);
    if (!o)
        return wi_runtime_budget(runtime);
    pthread_mutex_lock(&o->lock);
    uint64_t own = outside_own(o);
    pthread_mutex_unlock(&o->lock);
    return own;
}

uint64_t wi_outside_allows(const weir_runtime *runtime)
{
    wi_outside *o = atomic_load(&((weir_runtime *)runtime)->outside);
    if (!o)
        return UINT64_MAX;
    pthread_mutex_lock(&o->lock);
    uint64_t allowed = o->told.allowed ? o->told.allowed : UINT64_MAX;
    pthread_mutex_unlock(&o->lock);
    return allowed;
}

/* Sets the ledger's budget to `budget`, or what clients keep it at, unless the program sets another one at that moment:
 * the next look finds that. */
static void outside_float(wi_outside *o, uint64_t budget)
{
    pthread_mutex_lock(&o->lock);
    uint64_t now = wi_runtime_budget(o->runtime), own = o->floated != 0 && now == o->floated ? o->own : now;
    if (wi_ledger_float(&o->runtime->ledger, now, &budget)) {
        o->own = own;
        o->floated = budget;
    }
    pthread_mutex_unlock(&o->lock);
}

void wi_outside_lower(wi_outside *o)
{
    uint64_t allowed = wi_outside_allows(o->runtime);
    if (allowed < wi_runtime_budget(o->runtime))
        outside_float(o, allowed);
}

/* Whether the budget may rise to what is allowed: enough has been free for some looks, and it is worth while. */
static bool outside_may_rise(const wi_outside *o)
{
    uint64_t now = wi_runtime_budget(o->runtime), slack = o->told.reserve / SLACK_SHARE;
    return o->steady >= STEADY && o->told.allowed > now &&
           (o->told.allowed == o->told.budget || o->told.allowed - now > slack);
}

static void outside_raise(wi_outside *o)
{
    outside_float(o, o->told.allowed);
    pthread_mutex_lock(&o->lock);
    o->told.rises++;
    pthread_mutex_unlock(&o->lock);
    weir_log(WEIR_LOG_INFO, "the other processes on %s leave %llu bytes to weir again", o->runtime->name,
             (unsigned long long)o->told.allowed);
}

static void outside_move_budget(wi_outside *o)
{
    wi_outside_lower(o);
    if (outside_may_rise(o))
        outside_raise(o);
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

typedef struct sight {
    uint64_t available, total, held;
} sight;

static weir_status outside_see(const wi_outside *o, sight *out)
{
    weir_runtime *runtime = o->runtime;
    weir_status status = WEIR_OK;
    for (int tries = 0; tries < LOOKS_AGAIN; tries++) {
        uint64_t before = wi_ledger_look(&runtime->ledger).held;
        status = runtime->driver->memory(runtime->device, &out->available, &out->total);
        out->held = wi_ledger_look(&runtime->ledger).held;
        if (status != WEIR_OK || out->held == before)
            break;
    }
    return status;
}

static uint64_t outside_others(const sight *s)
{
    return s->total - wi_min(s->total, s->available + s->held);
}

/* Subtracts from `asked` the bytes that other processes have taken since the question. With the lock held. */
static void outside_count_asked(wi_outside *o, uint64_t others)
{
    if (others > o->others_then) {
        o->told.asked -= wi_min(o->told.asked, others - o->others_then);
        o->others_then = others;
    }
    if (wi_now() >= o->hold_until)
        o->told.asked = 0;
}

/* Notes what was seen. Returns how much too little is free. */
static uint64_t outside_note(wi_outside *o, const sight *s)
{
    uint64_t others = outside_others(s);
    pthread_mutex_lock(&o->lock);
    weir_outside *told = &o->told;
    outside_count_asked(o, others);
    uint64_t need = told->reserve + told->asked, could = s->held + s->available;
    o->still = others == told->others ? o->still + (o->still < STILL) : 0;
    o->growth = told->total > 0 && others > told->others ? others - told->others : 0;
    bool grew = o->growth > told->reserve / SLACK_SHARE;
    told->total = s->total;
    told->available = s->available;
    told->others = others;
    told->budget = outside_own(o);
    told->allowed = wi_max(1, wi_min(told->budget, could - wi_min(could, need)));
    told->lacks = need - wi_min(need, s->available);
    o->steady = told->lacks == 0 && !grew ? o->steady + 1 : 0;
    uint64_t lacks = told->lacks;
    pthread_mutex_unlock(&o->lock);
    return lacks;
}

/* With the turn: whether the log is to tell of it; what is in vain once. */
static bool outside_is_news(const wi_outside *o, const weir_yielded *y)
{
    return y->given > 0 || (y->why[0] && o->vain <= 1);
}

static void outside_log(const wi_outside *o, const weir_yielded *y, bool news)
{
    if (news)
        weir_log(WEIR_LOG_INFO,
                 "%llu bytes of %s given to other processes: %llu cached, %llu of %llu idle clients, %llu by "
                 "callbacks; %llu are lacking still%s%s",
                 (unsigned long long)y->given, o->runtime->name, (unsigned long long)y->trimmed,
                 (unsigned long long)y->suspended, (unsigned long long)y->clients, (unsigned long long)y->called,
                 (unsigned long long)y->lacks, y->why[0] ? "; " : "", y->why);
}

/* One look. With the turn. */
static weir_status outside_look(wi_outside *o, weir_yielded *out)
{
    sight seen;
    weir_status status = outside_see(o, &seen);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&o->lock);
    o->told.looks++;
    pthread_mutex_unlock(&o->lock);
    uint64_t lack = outside_note(o, &seen), before = out->given;
    o->vain = lack > 0 ? o->vain : 0;
    if (lack > 0) {
        pthread_mutex_lock(&o->lock);
        o->told.shorts++;
        pthread_mutex_unlock(&o->lock);
        wi_outside_give(o, lack, o->growth, out); /* who takes goes on taking, as a rule */
        o->vain = out->given > before ? 0 : o->vain + 1;
        if (outside_see(o, &seen) == WEIR_OK)
            (void)outside_note(o, &seen);
        o->still = 0;
    }
    out->lacks = o->told.lacks;
    outside_move_budget(o);
    return WEIR_OK;
}

void wi_outside_need(weir_runtime *runtime)
{
    wi_outside *o = atomic_load(&runtime->outside);
    sight seen;
    if (!o || wi_outside_budget(runtime) == wi_runtime_budget(runtime) || pthread_mutex_trylock(&o->turn) != 0)
        return;
    if (outside_see(o, &seen) == WEIR_OK) {
        (void)outside_note(o, &seen);
        if (o->told.allowed > wi_runtime_budget(runtime))
            outside_raise(o);
    }
    pthread_mutex_unlock(&o->turn);
}

/* A request of this process's finds no room. */
static void outside_on_pressure(const weir_pressure *pressure, void *user)
{
    const wi_outside *o = user;
    if (pressure->client)
        wi_outside_need(o->runtime);
}

/* Whether there is anything to look for. With the turn. */
static bool outside_is_active(const wi_outside *o)
{
    return o->told.watched || o->told.asked > 0 || (o->floated != 0 && o->told.budget > wi_runtime_budget(o->runtime));
}

/* The thread ------------------------------------------------------------------------------------------------------- */

/* When the thread looks again; with the turn. */
static void outside_plan(wi_outside *o)
{
    uint64_t pause = (o->still < STILL || o->told.lacks > 0) && o->vain == 0 ? MOVING_NS : QUIET_NS;
    pause <<= wi_min(o->vain, VAIN);
    uint64_t due = wi_alone || o->by_hand || !outside_is_active(o) ? UINT64_MAX : wi_now() + pause;
    if (due == UINT64_MAX && !o->told.watched) {
        pthread_mutex_lock(&o->lock);
        o->told.allowed = o->told.asked > 0 ? o->told.allowed : 0;
        pthread_mutex_unlock(&o->lock);
    }
    pthread_mutex_lock(&all.lock);
    o->due = due;
    pthread_cond_signal(&all.changed);
    pthread_mutex_unlock(&all.lock);
}

void wi_outside_poke(wi_outside *o)
{
    pthread_mutex_lock(&o->lock);
    bool lacks = o->told.lacks > 0;
    pthread_mutex_unlock(&o->lock);
    if (!lacks)
        return;
    pthread_mutex_lock(&all.lock);
    o->due = o->due == UINT64_MAX ? UINT64_MAX : 0;
    pthread_cond_signal(&all.changed);
    pthread_mutex_unlock(&all.lock);
}

/* A look of the thread's. A device that does not answer is asked again, but seldom tells anything else. */
static void outside_turn(wi_outside *o)
{
    weir_yielded done = {.struct_size = sizeof done};
    if (outside_take_turn(o, "a look") != WEIR_OK)
        return;
    if (outside_look(o, &done) != WEIR_OK)
        o->still = STILL;
    outside_plan(o);
    bool news = outside_is_news(o, &done);
    pthread_mutex_unlock(&o->turn);
    outside_log(o, &done, news);
}

static void outside_wait(uint64_t until)
{
    const uint64_t second = 1000000000, longest = 3600 * second;
    uint64_t now = wi_now(), left = wi_min(until > now ? until - now : 0, longest);
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    left += (uint64_t)at.tv_nsec;
    at.tv_sec += (time_t)(left / second);
    at.tv_nsec = (long)(left % second);
    (void)pthread_cond_timedwait(&all.changed, &all.lock, &at);
}

/* The record whose look is due, with a visit of its runtime; else *next is when one will be. With the list's lock. */
static wi_outside *outside_due(uint64_t *next)
{
    uint64_t now = wi_now();
    *next = UINT64_MAX;
    for (wi_outside *o = all.first; o; o = o->next) {
        if (o->due <= now) {
            o->due = UINT64_MAX;
            if (wi_runtime_visit(o->runtime, "a look at other processes") == WEIR_OK)
                return o;
        }
        *next = wi_min(*next, o->due);
    }
    return NULL;
}

static void *outside_run(void *unused)
{
    uint64_t next;
    (void)unused;
    pthread_setname_np(pthread_self(), "weir-outside");
    pthread_mutex_lock(&all.lock);
    for (;;) {
        wi_outside *o = outside_due(&next);
        if (!o) {
            outside_wait(next);
            continue;
        }
        weir_runtime *runtime = o->runtime;
        pthread_mutex_unlock(&all.lock);
        outside_turn(o);
        wi_runtime_visit_end(runtime);
        pthread_mutex_lock(&all.lock);
    }
    return NULL;
}

/* The first time. */
static weir_status outside_begin(void)
{
    pthread_mutex_lock(&all.lock);
    int failure = all.begun ? 0 : wi_thread_start(NULL, outside_run, NULL);
    all.begun = failure == 0;
    pthread_mutex_unlock(&all.lock);
    return failure == 0 ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no thread: %s", strerror(failure));
}

/* Calls ------------------------------------------------------------------------------------------------------------ */

weir_status weir_outside_watch(weir_runtime *runtime, const weir_outside_options *options)
{
    const char *call = "weir_outside_watch";
    weir_outside_options given = {.struct_size = sizeof given};
    wi_outside *o;
    sight seen;
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    weir_status status = WI_COPY_OPTIONS_IN(weir_outside_options, &given, options, call);
    if (status != WEIR_OK)
        return status;
    WI_VISIT(runtime);
    status = wi_outside_of(runtime, &o);
    if (status == WEIR_OK && !given.by_hand && !wi_alone)
        status = outside_begin();
    if (status == WEIR_OK)
        status = outside_take_turn(o, call);
    if (status != WEIR_OK)
        return status;
    status = outside_see(o, &seen);
    if (status == WEIR_OK) {
        pthread_mutex_lock(&o->lock);
        o->told.watched = true;
        o->told.reserve = given.reserve ? given.reserve : seen.total / RESERVE_SHARE;
        pthread_mutex_unlock(&o->lock);
        o->by_hand = given.by_hand;
        o->still = 0;
        outside_plan(o);
    }
    pthread_mutex_unlock(&o->turn);
    return status;
}

weir_status weir_outside_end(weir_runtime *runtime)
{
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_outside_end: NULL");
    WI_VISIT(runtime);
    wi_outside *o = atomic_load(&runtime->outside);
    weir_status status = o ? outside_take_turn(o, "weir_outside_end") : WEIR_OK;
    if (!o || status != WEIR_OK)
        return status;
    if (outside_is_active(o))
        outside_float(o, wi_outside_budget(runtime));
    pthread_mutex_lock(&o->lock);
    o->told.watched = false;
    o->told.reserve = o->told.asked = o->told.allowed = o->told.lacks = 0;
    pthread_mutex_unlock(&o->lock);
    o->by_hand = false;
    outside_plan(o);
    pthread_mutex_unlock(&o->turn);
    return WEIR_OK;
}

void wi_outside_tell(const weir_runtime *runtime, weir_outside *out)
{
    wi_outside *o = atomic_load(&((weir_runtime *)runtime)->outside);
    *out = (weir_outside){.struct_size = sizeof *out};
    if (o) {
        pthread_mutex_lock(&o->lock);
        *out = o->told;
        pthread_mutex_unlock(&o->lock);
        out->struct_size = sizeof *out;
    }
}

weir_status weir_outside_info(weir_runtime *runtime, weir_outside *out)
{
    WI_ENTER();
    if (!runtime || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_outside_info: NULL");
    WI_VISIT(runtime);
    weir_outside now;
    wi_outside_tell(runtime, &now);
    return wi_copy_out(out, out->struct_size, &now, sizeof now)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "weir_outside_info: member struct_size is not set");
}

weir_status weir_outside_look(weir_runtime *runtime, weir_outside *out)
{
    weir_yielded done = {.struct_size = sizeof done};
    wi_outside *o;
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_outside_look: NULL");
    WI_VISIT(runtime);
    weir_status status = wi_outside_of(runtime, &o);
    if (status == WEIR_OK)
        status = outside_take_turn(o, "weir_outside_look");
    if (status != WEIR_OK)
        return status;
    status = outside_is_active(o) ? outside_look(o, &done)
                                  : weir_fail(WEIR_ERR_INVALID, "weir_outside_look: %s is not watched", runtime->name);
    outside_plan(o);
    bool news = outside_is_news(o, &done);
    pthread_mutex_unlock(&o->turn);
    outside_log(o, &done, news);
    return status == WEIR_OK && out ? weir_outside_info(runtime, out) : status;
}

/* Yielding --------------------------------------------------------------------------------------------------------- */

static void outside_ask(wi_outside *o, const weir_yield_options *options, uint64_t others)
{
    uint64_t now = wi_now(), hold = options->hold ? options->hold : usual_hold;
    pthread_mutex_lock(&o->lock);
    o->told.asked = options->bytes;
    o->others_then = others;
    o->hold_until = hold > UINT64_MAX - now ? UINT64_MAX : now + hold;
    o->steady = 0;
    pthread_mutex_unlock(&o->lock);
}

/* What stays, and why. */
static void outside_tell_rest(const wi_outside *o, weir_yielded *out)
{
    weir_stats stats = {.struct_size = sizeof stats};
    size_t ignored;
    wi_ledger_snapshot(&o->runtime->ledger, &stats, NULL, 0, 0, &ignored);
    out->available = o->told.available;
    out->lacks = o->told.lacks;
    out->held = stats.held;
    out->live = stats.live;
    out->pending = stats.pending;
    out->unused = stats.cached + stats.spare;
    out->guaranteed = stats.guaranteed - wi_min(stats.guaranteed, stats.live + stats.pending + stats.promised);
}

/* Looks until enough is free, or the time is over: models of a pool leave by its threads. With the turn, but while it waits. */
static weir_status outside_give_in_time(wi_outside *o, uint64_t wait, weir_yielded *out)
{
    uint64_t until = wi_now() + wi_min(wait, UINT64_MAX - wi_now());
    weir_status status = outside_look(o, out);
    while (status == WEIR_OK && o->told.lacks > 0 && wi_now() < until) {
        pthread_mutex_unlock(&o->turn);
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
        pthread_mutex_lock(&o->turn);
        status = outside_look(o, out);
    }
    return status;
}

weir_status weir_yield(weir_runtime *runtime, const weir_yield_options *options, weir_yielded *out)
{
    const char *call = "weir_yield";
    weir_yield_options given = {0};
    weir_yielded done = {.struct_size = sizeof done};
    wi_outside *o;
    sight seen;
    WI_ENTER();
    if (!runtime || !options || !out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL, or a structure without its size", call);
    weir_status status = WI_COPY_IN(weir_yield_options, &given, options, call);
    if (status != WEIR_OK)
        return status;
    WI_VISIT(runtime);
    status = wi_outside_of(runtime, &o);
    if (status == WEIR_OK && !wi_alone)
        status = outside_begin();
    if (status == WEIR_OK)
        status = outside_take_turn(o, call);
    if (status != WEIR_OK)
        return status;
    status = outside_see(o, &seen);
    if (status == WEIR_OK) {
        outside_ask(o, &given, outside_others(&seen));
        status = outside_give_in_time(o, given.wait ? given.wait : usual_wait, &done);
        outside_tell_rest(o, &done);
        outside_plan(o);
    }
    bool news = outside_is_news(o, &done);
    pthread_mutex_unlock(&o->turn);
    outside_log(o, &done, news);
    if (status == WEIR_OK)
        wi_copy_out(out, out->struct_size, &done, sizeof done);
    return status;
}

/* The option ------------------------------------------------------------------------------------------------------- */

void wi_outside_start(weir_runtime *runtime)
{
    weir_outside_options options = {.struct_size = sizeof options, .reserve = wi_option_outside()};
    wi_saved_detail saved;
    if (options.reserve == 0 || wi_kind_is_own(runtime, WEIR_KIND_PINNED))
        return;
    wi_detail_save(&saved);
    if (weir_outside_watch(runtime, &options) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "other processes on %s are not watched: %s", runtime->name, weir_detail());
    wi_detail_restore(&saved);
}
