/* What decides in a simulated pool: the policies of other pools, weir's own decisions as a policy, and the list of all.
 *
 * Policies of other pools: load the requested model, and unload idle models until it fits. Requests are served in the
 * order of arrival: a request that waits for room holds up later requests; a request that waits for a load or for a
 * slot does not. Nothing is suspended. The policies differ in the model that they unload first, and in how many models
 * are loaded at once. They have an advantage over the real pools: a request that can never fit is refused at once. */
#include "sim/pool/traffic.h"
#include "base/internal.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = UINT32_MAX, SLOT_BITS = 20, MINUTES = 5 };
#define USUAL_KEEP_ALIVE (TRAFFIC_SECOND * 60 * MINUTES)

typedef struct model {
    wp_spec spec;
    wp_state state;
    uint32_t running, reserved; /* requests; reserved: it is loaded for them */
    uint64_t taken;             /* bytes */
    uint64_t used;              /* when the last request or the load ended */
} model;

typedef struct entry {
    wp_ticket ticket; /* 0: free; the low bits are the entry's number */
    uint32_t model;
    uint32_t next, before; /* in the queue, or among the free ones */
    bool reserved;         /* its bytes are promised before it is granted */
    uint64_t bytes, deadline;
} entry;

typedef struct baseline {
    policy_world world;
    bool one_load;                    /* at a time */
    bool counts;                      /* no more models than world.most_models */
    bool expires;                     /* idle models go when their keep-alive ends */
    uint64_t (*rank)(const model *m); /* of idle ones, the least goes first */
    model *models;
    uint32_t model_count;
    uint64_t ceiling[TRAFFIC_DEVICES], taken[TRAFFIC_DEVICES];
    entry *entries;
    uint32_t entry_count, free, first, last, waiting;
    uint64_t serial, wake;
    wp_ticket asking; /* answered in place, and not by an action */
    wp_answer answer;
    wp_action *actions;
    size_t action_first, action_count, action_room;
} baseline;

/* ---- actions ----------------------------------------------------------------------------------------------------- */

/* Without memory for it the simulation ends: nothing else can be right. */
static void act(baseline *b, wp_action action)
{
    if (!wi_make_room(&b->actions, b->action_count, &b->action_room, sizeof *b->actions))
        abort();
    b->actions[b->action_count++] = action;
}

static bool baselines_take(void *it, wp_event *event, wp_action *action)
{
    static const wp_event_kind of[] = {[WP_LOAD] = WP_EVENT_ACTION_LOAD,     [WP_SUSPEND] = WP_EVENT_ACTION_SUSPEND,
                                       [WP_RESUME] = WP_EVENT_ACTION_RESUME, [WP_UNLOAD] = WP_EVENT_ACTION_UNLOAD,
                                       [WP_GRANT] = WP_EVENT_ACTION_GRANT,   [WP_REFUSE] = WP_EVENT_ACTION_REFUSE};
    baseline *b = it;
    if (b->action_first == b->action_count) {
        b->action_first = b->action_count = 0;
        return false;
    }
    *action = b->actions[b->action_first++];
    *event = (wp_event){.kind = of[action->kind],
                        .model = action->model,
                        .bytes = action->bytes,
                        .why = action->why,
                        .answer = action->answer};
    return true;
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

static entry *new_entry(baseline *b)
{
    if (b->free == NONE) {
        uint32_t room = b->entry_count ? 2 * b->entry_count : 64;
        entry *grown = room <= 1u << SLOT_BITS ? realloc(b->entries, room * sizeof *grown) : NULL;
        if (!grown)
            abort();
        b->entries = grown;
        for (uint32_t i = room; i-- > b->entry_count;) {
            grown[i] = (entry){.next = b->free};
            b->free = i;
        }
        b->entry_count = room;
    }
    uint32_t number = b->free;
    entry *e = &b->entries[number];
    b->free = e->next;
    *e = (entry){.ticket = ++b->serial << SLOT_BITS | number, .next = NONE, .before = b->last};
    if (b->last != NONE)
        b->entries[b->last].next = number;
    else
        b->first = number;
    b->last = number;
    b->waiting++;
    return e;
}

static uint32_t baselines_number_of(const baseline *b, const entry *e)
{
    return (uint32_t)(e - b->entries);
}

static void baselines_leave_queue(baseline *b, entry *e)
{
    if (e->before != NONE)
        b->entries[e->before].next = e->next;
    else
        b->first = e->next;
    if (e->next != NONE)
        b->entries[e->next].before = e->before;
    else
        b->last = e->before;
    b->waiting--;
}

static void baselines_forget(baseline *b, entry *e)
{
    e->ticket = 0;
    e->next = b->free;
    b->free = baselines_number_of(b, e);
}

static void baselines_tell(baseline *b, const entry *e, wp_action_kind kind, wp_cause cause)
{
    wp_answer answer = {.ticket = e->ticket, .cause = cause};
    if (e->ticket == b->asking)
        b->answer = answer;
    else
        act(b, (wp_action){.kind = kind, .model = e->model, .bytes = e->bytes, .answer = answer});
}

static void promise(baseline *b, entry *e, bool reserved)
{
    model *m = &b->models[e->model];
    if (!e->reserved)
        b->taken[m->spec.device] += e->bytes;
    m->reserved += (unsigned)reserved - (unsigned)e->reserved;
    e->reserved = reserved;
}

static void baselines_grant(baseline *b, entry *e)
{
    promise(b, e, false);
    b->models[e->model].running++;
    baselines_leave_queue(b, e);
    baselines_tell(b, e, WP_GRANT, WP_GRANTED);
}

static void baselines_refuse(baseline *b, entry *e, wp_cause cause)
{
    model *m = &b->models[e->model];
    if (e->reserved) {
        b->taken[m->spec.device] -= e->bytes;
        m->reserved--;
    }
    baselines_leave_queue(b, e);
    baselines_tell(b, e, WP_REFUSE, cause);
    baselines_forget(b, e);
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

static bool baselines_idle(const model *m)
{
    return m->state == WP_LOADED && m->running == 0 && m->reserved == 0 && !m->spec.pinned && m->spec.may_evict;
}

static void baselines_unload(baseline *b, model *m, wp_ticket why)
{
    m->state = WP_UNLOADING;
    act(b, (wp_action){.kind = WP_UNLOAD, .model = (wp_model)(m - b->models), .bytes = m->taken, .why = why});
}

/* Finds the idle model of the least rank, on the device or, with `any`, on all devices. */
static model *victim(baseline *b, uint32_t device, bool any, const model * not )
{
    model *best = NULL;
    for (uint32_t i = 0; i < b->model_count; i++) {
        model *m = &b->models[i];
        if (baselines_idle(m) && m != not &&(any || m->spec.device == device) && (!best || b->rank(m) < b->rank(best)))
            best = m;
    }
    return best;
}

static uint32_t models_in(const baseline *b, bool staying)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->model_count; i++)
        count += b->models[i].state == WP_LOADING || b->models[i].state == WP_LOADED ||
                 (b->models[i].state == WP_UNLOADING && !staying);
    return count;
}

static uint64_t bytes_leaving(const baseline *b, uint32_t device)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->model_count; i++)
        if (b->models[i].state == WP_UNLOADING && b->models[i].spec.device == device)
            bytes += b->models[i].taken;
    return bytes;
}

/* True: the model's device has room for `bytes`. Otherwise unloads idle models, one after the other, until there will
 * be room or no idle model is left. `another`: the model is still to be loaded, so the number of loaded models is
 * limited, too. */
static bool baselines_make_room(baseline *b, const model *for_model, uint64_t bytes, bool another, wp_ticket why)
{
    uint32_t device = for_model->spec.device, most = b->counts ? b->world.most_models : NONE;
    for (;;) {
        uint64_t taken = b->taken[device];
        bool few = !another || models_in(b, false) < most, fits = taken + bytes <= b->ceiling[device];
        if (few && fits)
            return true;
        bool will_be_few = !another || models_in(b, true) < most;
        bool will_fit = taken - bytes_leaving(b, device) + bytes <= b->ceiling[device];
        model *out = will_be_few && will_fit ? NULL : victim(b, device, will_fit, for_model);
        if (!out)
            return false;
        baselines_unload(b, out, why);
    }
}

static bool loading(const baseline *b)
{
    for (uint32_t i = 0; i < b->model_count; i++)
        if (b->models[i].state == WP_LOADING)
            return true;
    return false;
}

/* ---- who is served ----------------------------------------------------------------------------------------------- */

/* False: the request waits for room, and holds up later requests. */
static bool baselines_serve(baseline *b, entry *e)
{
    model *m = &b->models[e->model];
    uint64_t peak = m->spec.variants[0].peak;
    switch (m->state) {
    case WP_LOADED:
        if (!e->reserved && m->running + m->reserved >= m->spec.slots)
            return true;
        if (!e->reserved && !baselines_make_room(b, m, e->bytes, false, e->ticket))
            return false;
        baselines_grant(b, e);
        return true;
    case WP_UNLOADED:
        if ((b->one_load && loading(b)) || !baselines_make_room(b, m, peak + e->bytes, true, e->ticket))
            return false;
        promise(b, e, true);
        m->state = WP_LOADING;
        m->taken = peak;
        b->taken[m->spec.device] += peak;
        act(b,
            (wp_action){.kind = WP_LOAD, .model = e->model, .device = m->spec.device, .bytes = peak, .why = e->ticket});
        return true;
    default:
        return m->state == WP_LOADING;
    }
}

static void find_wake(baseline *b)
{
    b->wake = WP_FOREVER;
    for (uint32_t i = b->first; i != NONE; i = b->entries[i].next)
        b->wake = b->entries[i].deadline < b->wake ? b->entries[i].deadline : b->wake;
    for (uint32_t i = 0; b->expires && i < b->model_count; i++)
        if (baselines_idle(&b->models[i]) && b->rank(&b->models[i]) < b->wake)
            b->wake = b->rank(&b->models[i]);
}

static void baselines_look(baseline *b, uint64_t now)
{
    for (uint32_t i = b->first, next; i != NONE; i = next) {
        next = b->entries[i].next;
        if (b->entries[i].deadline <= now)
            baselines_refuse(b, &b->entries[i], WP_TOO_LATE);
    }
    bool going = true;
    for (uint32_t i = b->first, next; going && i != NONE; i = next) {
        next = b->entries[i].next;
        going = baselines_serve(b, &b->entries[i]);
    }
    for (uint32_t i = 0; b->expires && i < b->model_count; i++)
        if (baselines_idle(&b->models[i]) && b->rank(&b->models[i]) <= now)
            baselines_unload(b, &b->models[i], 0);
    find_wake(b);
}

/* ---- what it is told --------------------------------------------------------------------------------------------- */

static wp_answer baselines_ask(baseline *b, uint64_t now, const wp_request *q)
{
    const model *m = &b->models[q->model];
    uint64_t need = m->spec.variants[0].peak + q->bytes, longest = now + b->world.limits.longest;
    if (need > b->ceiling[m->spec.device])
        return (wp_answer){.cause = WP_NEVER_FITS, .need = need, .limit = b->ceiling[m->spec.device]};
    entry *e = new_entry(b);
    e->model = q->model;
    e->bytes = q->bytes;
    e->deadline = q->deadline < longest ? q->deadline : longest;
    b->asking = e->ticket;
    b->answer = (wp_answer){.ticket = e->ticket, .cause = WP_WAITS_OTHERS, .position = b->waiting};
    baselines_look(b, now);
    if (b->answer.cause == WP_WAITS_OTHERS && b->waiting > b->world.limits.queue) {
        baselines_refuse(b, &b->entries[b->asking & ((1u << SLOT_BITS) - 1)], WP_QUEUE_FULL);
        find_wake(b);
    }
    b->asking = 0;
    return b->answer;
}

static void done(baseline *b, uint64_t now, wp_ticket ticket)
{
    entry *e = &b->entries[ticket & ((1u << SLOT_BITS) - 1)];
    model *m = &b->models[e->model];
    b->taken[m->spec.device] -= e->bytes;
    m->running--;
    m->used = now;
    baselines_forget(b, e);
    baselines_look(b, now);
}

static void changed(baseline *b, uint64_t now, const wp_event *event)
{
    model *m = &b->models[event->model];
    bool loaded = event->kind == WP_EVENT_LOADED && event->ok;
    uint64_t bytes = loaded ? event->bytes : 0;
    b->taken[m->spec.device] = b->taken[m->spec.device] - m->taken + bytes;
    m->taken = bytes;
    m->state = loaded ? WP_LOADED : WP_UNLOADED;
    m->used = now;
    if (event->kind == WP_EVENT_LOADED && !event->ok)
        for (uint32_t i = b->first, next; i != NONE; i = next) {
            next = b->entries[i].next;
            if (b->entries[i].model == event->model)
                baselines_refuse(b, &b->entries[i], WP_LOAD_FAILED);
        }
    baselines_look(b, now);
}

static bool baselines_add(baseline *b, wp_event *event)
{
    model *grown = realloc(b->models, (b->model_count + 1) * sizeof *grown);
    if (!grown)
        return false;
    b->models = grown;
    grown[b->model_count] = (model){.spec = event->spec};
    event->model = b->model_count++;
    return true;
}

static void baselines_apply(void *it, wp_event *event)
{
    baseline *b = it;
    switch (event->kind) {
    case WP_EVENT_ADD:
        event->ok = baselines_add(b, event);
        break;
    case WP_EVENT_CEILING:
        b->ceiling[event->device] = event->bytes;
        break;
    case WP_EVENT_ASK:
        event->answer = baselines_ask(b, event->now, &event->request);
        break;
    case WP_EVENT_DONE:
        done(b, event->now, event->ticket);
        break;
    case WP_EVENT_LOADED:
    case WP_EVENT_UNLOADED:
        changed(b, event->now, event);
        break;
    default:
        baselines_look(b, event->now);
        break;
    }
}

static uint64_t baselines_wake(const void *it)
{
    return ((const baseline *)it)->wake;
}

/* ---- the policies ------------------------------------------------------------------------------------------------ */

static uint64_t rank_used(const model *m)
{
    return m->used;
}

static uint64_t rank_size(const model *m)
{
    return UINT64_MAX - m->taken;
}

static uint64_t rank_keep_alive(const model *m)
{
    uint64_t keep = m->spec.keep_alive == WP_FOREVER ? USUAL_KEEP_ALIVE : m->spec.keep_alive;
    return m->used + keep;
}

static baseline *baselines_create(const policy_world *world, uint64_t (*rank)(const model *))
{
    baseline *b = calloc(1, sizeof *b);
    if (b)
        *b = (baseline){.world = *world, .rank = rank, .free = NONE, .first = NONE, .last = NONE, .wake = WP_FOREVER};
    return b;
}

static void *create_lru_bytes(const policy_world *world)
{
    return baselines_create(world, rank_used);
}

static void *create_lru_count(const policy_world *world)
{
    baseline *b = baselines_create(world, rank_used);
    if (b)
        b->counts = true;
    return b;
}

static void *create_size(const policy_world *world)
{
    return baselines_create(world, rank_size);
}

static void *create_keep_alive(const policy_world *world)
{
    baseline *b = baselines_create(world, rank_keep_alive);
    if (b)
        b->one_load = b->expires = true;
    return b;
}

static void baselines_destroy(void *it)
{
    baseline *b = it;
    if (!b)
        return;
    free(b->models);
    free(b->entries);
    free(b->actions);
    free(b);
}

const policy policy_lru_count = {"lru-count",     false,          create_lru_count, baselines_destroy,
                                 baselines_apply, baselines_take, baselines_wake,   NULL};
const policy policy_lru_bytes = {"lru-bytes",     false,          create_lru_bytes, baselines_destroy,
                                 baselines_apply, baselines_take, baselines_wake,   NULL};
const policy policy_size = {"size",          false,          create_size,    baselines_destroy,
                            baselines_apply, baselines_take, baselines_wake, NULL};
const policy policy_keep_alive = {"keep-alive",    false,          create_keep_alive, baselines_destroy,
                                  baselines_apply, baselines_take, baselines_wake,    NULL};

/* ---- weir's, and all ------------------------------------------------------------------------------------------------ */

static void *weir_create(const policy_world *world)
{
    wp_admission *it = NULL;
    wp_apply(&it, &(wp_event){.kind = WP_EVENT_BEGIN, .limits = world->limits, .devices = world->devices});
    return it;
}

static void weir_destroy(void *it)
{
    wp_admission_destroy(it);
}

static void weir_apply(void *it, wp_event *event)
{
    wp_admission *admission = it;
    wp_apply(&admission, event);
}

static bool weir_take(void *it, wp_event *event, wp_action *action)
{
    return wp_take(it, event, action);
}

static uint64_t weir_wake(const void *it)
{
    return wp_wake(it);
}

static bool sound(const void *it)
{
    return wp_invariants(it);
}

const policy policy_weir = {"weir", false, weir_create, weir_destroy, weir_apply, weir_take, weir_wake, sound};
const policy policy_weir_suspend = {"weir-suspend", true,      weir_create, weir_destroy,
                                    weir_apply,     weir_take, weir_wake,   sound};

const policy *const policies[] = {&policy_weir,      &policy_weir_suspend, &policy_lru_count,
                                  &policy_lru_bytes, &policy_size,         &policy_keep_alive};
const size_t policy_count = sizeof policies / sizeof *policies;

const policy *policy_called(const char *name)
{
    for (size_t i = 0; i < policy_count; i++)
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    return NULL;
}
