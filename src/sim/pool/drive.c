/* A pool under traffic: takes the next event, tells the policy, and carries out its actions. */
#include "sim/pool/traffic.h"
#include "base/internal.h"
#include "base/maps.h"
#include "base/system.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

enum { SAME_TICKS = 1000, PROGRESS = 4096 };

/* A model's double. */
typedef struct body {
    wp_state state;
    uint32_t variant, running;
    uint32_t device;      /* where it is, or was last */
    uint64_t bytes, host; /* that it has */
    uint64_t began, alone;
} body;

/* A request that is not over. */
typedef struct flight {
    traffic_request request;
    wp_ticket ticket;
    bool running;
    uint32_t next_free;
} flight;

typedef struct world {
    const drive_options *o;
    drive_result *r;
    void *policy;
    uint64_t now, random;
    body *bodies;
    uint64_t taken[TRAFFIC_DEVICES], host;
    shared_link in[TRAFFIC_DEVICES], out[TRAFFIC_DEVICES];
    heap heap; /* of ends: of a request (2 * flight), of an unload (2 * model + 1) */
    flight *flights;
    uint32_t flight_room, flight_free, flight_count;
    wi_pointer_map by_ticket;
    unsigned idle_ticks;
    weir_status status;
} world;

static void violation(world *w, const char *format, ...) WEIR_PRINTF(2, 3);
static void violation(world *w, const char *format, ...)
{
    if (w->r->violations++ > 0)
        return;
    int used = snprintf(w->r->first, sizeof w->r->first, "at %.9f s: ", (double)w->now / 1e9);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->r->first + used, sizeof w->r->first - (size_t)used, format, arguments);
    va_end(arguments);
}

static void out_of_memory(world *w)
{
    if (w->status == WEIR_OK)
        w->status = weir_fail(WEIR_ERR_SYSTEM, "no memory for the simulation");
}

static const wp_spec *spec_of(const world *w, uint32_t model)
{
    return &w->o->models->list[model].spec;
}

/* ---- books ------------------------------------------------------------------------------------------------------- */

static void drive_check_books(world *w, uint32_t device)
{
    drive_result *r = w->r;
    r->most_taken = wi_max(r->most_taken, w->taken[device]);
    r->most_host = wi_max(r->most_host, w->host);
    if (w->taken[device] > w->o->budget) {
        violation(w, "%" PRIu64 " bytes are taken on device %u, whose ceiling is %" PRIu64, w->taken[device], device,
                  w->o->budget);
        r->over = wi_max(r->over, w->taken[device] - w->o->budget);
    }
    if (w->host > w->o->limits.host) {
        violation(w, "%" PRIu64 " bytes of the host are taken, of %" PRIu64, w->host, w->o->limits.host);
        r->over_host = wi_max(r->over_host, w->host - w->o->limits.host);
    }
}

static void set_bytes(world *w, uint32_t model, uint64_t bytes, uint64_t host)
{
    body *b = &w->bodies[model];
    uint32_t device = b->device;
    w->taken[device] = w->taken[device] - b->bytes + bytes;
    w->host = w->host - b->host + host;
    b->bytes = bytes;
    b->host = host;
    drive_check_books(w, device);
}

static size_t wait_place(uint64_t wait)
{
    enum { FINE = 6 };
    if (wait < 2u << FINE)
        return (size_t)wait;
    unsigned high = 63 - (unsigned)__builtin_clzll(wait);
    return ((size_t)(high - FINE) << FINE) + (size_t)(wait >> (high - FINE));
}

/* The largest wait of a place. */
static uint64_t drive_wait_of(size_t place)
{
    enum { FINE = 6 };
    if (place < 2u << FINE)
        return place;
    unsigned shift = (unsigned)(place >> FINE) - 1;
    return ((((uint64_t)place & 63) + 65) << shift) - 1;
}

uint64_t drive_wait(const drive_result *r, double part)
{
    uint64_t below = 0;
    for (size_t i = 0; i < DRIVE_WAITS; i++) {
        below += r->waits[i];
        if (below > 0 && (double)below >= part * (double)r->granted)
            return wi_min(drive_wait_of(i), r->wait_most);
    }
    return 0;
}

uint64_t drive_refusals(const drive_result *r)
{
    uint64_t sum = 0;
    for (int i = 0; i < WP_CAUSES; i++)
        sum += r->refused[i];
    return sum;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void *drive_key_of(wp_ticket ticket)
{
    return (void *)(uintptr_t)ticket;
}

static flight *flight_of(world *w, wp_ticket ticket)
{
    uint64_t number;
    return ticket && wi_pointer_map_get(&w->by_ticket, drive_key_of(ticket), &number) ? &w->flights[number] : NULL;
}

static flight *new_flight(world *w, wp_ticket ticket, const traffic_request *q)
{
    if (!w->flights || w->flight_free == w->flight_room) {
        uint32_t room = w->flight_room ? 2 * w->flight_room : 64;
        flight *grown = realloc(w->flights, room * sizeof *grown);
        if (!grown) {
            out_of_memory(w);
            return NULL;
        }
        for (uint32_t i = w->flight_room; i < room; i++)
            grown[i].next_free = i + 1;
        w->flights = grown;
        w->flight_room = room;
    }
    uint32_t number = w->flight_free;
    flight *f = &w->flights[number];
    if (!wi_pointer_map_put(&w->by_ticket, drive_key_of(ticket), number)) {
        out_of_memory(w);
        return NULL;
    }
    w->flight_free = f->next_free;
    w->flight_count++;
    *f = (flight){.request = *q, .ticket = ticket};
    return f;
}

static void end_flight(world *w, flight *f)
{
    uint64_t number;
    (void)wi_pointer_map_remove(&w->by_ticket, drive_key_of(f->ticket), &number);
    f->ticket = 0;
    f->next_free = w->flight_free;
    w->flight_free = (uint32_t)(f - w->flights);
    w->flight_count--;
}

static void granted(world *w, flight *f)
{
    const traffic_request *q = &f->request;
    body *b = &w->bodies[q->model];
    uint32_t device = b->device;
    uint64_t wait = w->now - q->at;
    if (f->running)
        violation(w, "request %" PRIu64 " is granted twice", f->ticket);
    if (b->state != WP_LOADED)
        violation(w, "request %" PRIu64 " is granted, and %s is %s", f->ticket, spec_of(w, q->model)->name,
                  wp_state_name(b->state));
    if (++b->running > spec_of(w, q->model)->slots)
        violation(w, "%s runs %u requests at once", spec_of(w, q->model)->name, b->running);
    f->running = true;
    w->r->granted++;
    w->r->wait_sum += wait;
    w->r->wait_most = wi_max(w->r->wait_most, wait);
    w->r->waits[wait_place(wait)]++;
    w->taken[device] += q->bytes;
    drive_check_books(w, device);
    if (!heap_put(&w->heap, w->now + q->duration, (uint64_t)(f - w->flights) * 2))
        out_of_memory(w);
}

static void drive_refused(world *w, flight *f, wp_cause cause)
{
    if (f->running)
        violation(w, "request %" PRIu64 " is refused while it runs", f->ticket);
    w->r->refused[cause < WP_CAUSES ? cause : WP_GRANTED]++;
    end_flight(w, f);
}

/* ---- actions ----------------------------------------------------------------------------------------------------- */

static void expect(world *w, bool good, const char *action, uint32_t model)
{
    const body *b = &w->bodies[model];
    if (!good || b->running > 0)
        violation(w, "%s of %s, which is %s and has %u requests", action, spec_of(w, model)->name,
                  wp_state_name(b->state), b->running);
}

static void depart(world *w, uint32_t model, wp_state state, uint64_t alone, shared_link *link)
{
    body *b = &w->bodies[model];
    b->state = state;
    b->began = w->now;
    b->alone = alone;
    if (!link_begin(link, w->now, model, alone))
        violation(w, "more than %d transfers at once", LINK_MOST);
}

static uint32_t drive_device_of(const wp_spec *s, uint32_t variant)
{
    uint32_t on = s->variants[variant].on;
    return on ? on - 1 : s->device;
}

static void begin_move(world *w, const wp_action *a)
{
    const wp_spec *s = spec_of(w, a->model);
    body *b = &w->bodies[a->model];
    switch (a->kind) {
    case WP_LOAD:
        expect(w, b->state == WP_UNLOADED && a->variant < s->variant_count, "load", a->model);
        b->variant = a->variant < s->variant_count ? a->variant : 0;
        b->device = drive_device_of(s, b->variant);
        if (a->device != b->device)
            violation(w, "variant %u of %s comes to device %u", b->variant, s->name, a->device);
        depart(w, a->model, WP_LOADING, s->load_time, &w->in[b->device]);
        set_bytes(w, a->model, s->variants[b->variant].peak, 0);
        break;
    case WP_RESUME:
        expect(w, b->state == WP_SUSPENDED, "resume", a->model);
        depart(w, a->model, WP_RESUMING, s->resume_time, &w->in[b->device]);
        set_bytes(w, a->model, s->variants[b->variant].resident, b->host);
        break;
    case WP_SUSPEND:
        expect(w, b->state == WP_LOADED && w->o->policy->suspends && s->can_suspend, "suspend", a->model);
        depart(w, a->model, WP_SUSPENDING, s->suspend_time, &w->out[b->device]);
        set_bytes(w, a->model, b->bytes, s->host);
        w->r->evictions += a->why != 0;
        break;
    default:
        expect(w, b->state == WP_LOADED || b->state == WP_SUSPENDED, "unload", a->model);
        b->state = WP_UNLOADING;
        w->r->unloads++;
        w->r->evictions += a->why != 0;
        if (!heap_put(&w->heap, w->now + DRIVE_UNLOAD, a->model * UINT64_C(2) + 1))
            out_of_memory(w);
        break;
    }
}

static void drive_carry_out(world *w, const wp_action *a)
{
    bool answers = a->kind == WP_GRANT || a->kind == WP_REFUSE;
    flight *f = answers ? flight_of(w, a->answer.ticket) : NULL;
    w->r->actions++;
    if (answers && !f)
        violation(w, "an answer for request %" PRIu64 ", which is over or was never asked", a->answer.ticket);
    else if (a->kind == WP_GRANT)
        granted(w, f);
    else if (a->kind == WP_STOP)
        violation(w, "a load is stopped, and nobody has cancelled a request");
    else if (a->kind == WP_REFUSE)
        drive_refused(w, f, a->answer.cause);
    else if (a->model < w->o->models->count)
        begin_move(w, a);
    else
        violation(w, "an action on model %u, which is none", a->model);
}

static void drive_write_line(world *w, const wp_event *event)
{
    char text[WP_LINE + 1];
    size_t length = wp_event_write(event, text, WP_LINE);
    text[length++] = '\n';
    if (fwrite(text, 1, length, w->o->log) != length && w->status == WEIR_OK)
        w->status = weir_fail(WEIR_ERR_SYSTEM, "the log of decisions cannot be written");
}

/* Tells the policy an event. The policy's actions begin afterwards, so that an answer is known before its
 * consequences. */
static void drive_tell(world *w, wp_event *event)
{
    w->r->events++;
    event->now = w->now;
    w->o->policy->apply(w->policy, event);
    if (w->o->log)
        drive_write_line(w, event);
}

static void drive_take_all(world *w)
{
    wp_event event;
    wp_action action;
    while (w->o->policy->take(w->policy, &event, &action)) {
        if (w->o->log)
            drive_write_line(w, &event);
        drive_carry_out(w, &action);
        w->idle_ticks = 0;
    }
#ifdef WEIR_INVARIANTS
    if (w->o->policy->sound && !w->o->policy->sound(w->policy))
        violation(w, "the policy's invariants do not hold");
#endif
}

/* ---- what happens ------------------------------------------------------------------------------------------------ */

static void drive_arrive(world *w, const traffic_request *q)
{
    wp_event event = {.kind = WP_EVENT_ASK,
                      .request = {.model = q->model,
                                  .bytes = q->bytes,
                                  .deadline = q->deadline < WP_FOREVER - q->at ? q->at + q->deadline : WP_FOREVER,
                                  .priority = q->priority}};
    w->r->requests++;
    if (q->at < w->now)
        violation(w, "a request of %.9f s comes late", (double)q->at / 1e9);
    drive_tell(w, &event);
    const wp_answer *a = &event.answer;
    bool waits = a->cause >= WP_WAITS_BUSY && a->cause <= WP_WAITS_OTHERS;
    if (a->cause == WP_GRANTED || waits) {
        flight *f = a->ticket && !flight_of(w, a->ticket) ? new_flight(w, a->ticket, q) : NULL;
        if (!f)
            violation(w, "a request has the ticket %" PRIu64 ", which is none or another's", a->ticket);
        else if (!waits)
            granted(w, f);
    } else {
        w->r->refused[a->cause < WP_CAUSES ? a->cause : WP_GRANTED]++;
    }
}

static void request_ends(world *w, flight *f)
{
    wp_event event = {.kind = WP_EVENT_DONE, .ticket = f->ticket};
    w->taken[w->bodies[f->request.model].device] -= f->request.bytes;
    w->bodies[f->request.model].running--;
    w->r->done++;
    end_flight(w, f);
    drive_tell(w, &event);
}

static void unload_ends(world *w, uint32_t model)
{
    set_bytes(w, model, 0, 0);
    w->bodies[model].state = WP_UNLOADED;
    drive_tell(w, &(wp_event){.kind = WP_EVENT_UNLOADED, .model = model});
}

static void came_in(world *w, uint32_t model)
{
    const traffic_model *m = &w->o->models->list[model];
    body *b = &w->bodies[model];
    const wp_variant *v = &m->spec.variants[b->variant];
    bool load = b->state == WP_LOADING, ok = !load || !m->fails || random_below(&w->random, m->fails) > 0;
    uint64_t took = w->now - b->began;
    w->r->reload += b->alone;
    w->r->coming += took;
    w->r->bytes_in += !ok ? 0 : load ? v->resident : v->resident - m->spec.stays;
    w->r->loads += load;
    w->r->resumes += !load;
    w->r->failures += !ok;
    b->state = ok ? WP_LOADED : WP_UNLOADED;
    set_bytes(w, model, ok ? v->resident : 0, 0);
    drive_tell(w, &(wp_event){.kind = load ? WP_EVENT_LOADED : WP_EVENT_RESUMED,
                              .model = model,
                              .ok = ok,
                              .bytes = ok ? v->resident : 0,
                              .took = took});
}

static void went_out(world *w, uint32_t model)
{
    const wp_spec *s = spec_of(w, model);
    body *b = &w->bodies[model];
    uint64_t took = w->now - b->began;
    w->r->suspends++;
    w->r->suspending += took;
    w->r->bytes_out += b->bytes - s->stays;
    b->state = WP_SUSPENDED;
    set_bytes(w, model, s->stays, b->host);
    drive_tell(w, &(wp_event){.kind = WP_EVENT_SUSPENDED, .model = model, .ok = true, .bytes = s->stays, .took = took});
}

/* The earliest of all that will happen without a request; requests come last at their time. */
static uint64_t next_time(const world *w)
{
    uint64_t next = wi_min(heap_next(&w->heap), wi_max(w->now, w->o->policy->wake(w->policy)));
    for (uint32_t d = 0; d < w->o->models->devices; d++)
        next = wi_min(next, wi_min(link_next(&w->in[d]), link_next(&w->out[d])));
    return next;
}

static bool quiet(const world *w)
{
    uint64_t next = heap_next(&w->heap);
    for (uint32_t d = 0; d < w->o->models->devices; d++)
        next = wi_min(next, wi_min(link_next(&w->in[d]), link_next(&w->out[d])));
    return next == UINT64_MAX;
}

static bool transfer_ends(world *w)
{
    uint32_t model;
    for (uint32_t d = 0; d < w->o->models->devices; d++) {
        if (link_next(&w->in[d]) <= w->now && link_end(&w->in[d], w->now, &model)) {
            came_in(w, model);
            return true;
        }
        if (link_next(&w->out[d]) <= w->now && link_end(&w->out[d], w->now, &model)) {
            went_out(w, model);
            return true;
        }
    }
    return false;
}

/* One thing that happens now. */
static void happen(world *w)
{
    if (heap_next(&w->heap) <= w->now) {
        uint64_t what = heap_take(&w->heap).what;
        if (what & 1)
            unload_ends(w, (uint32_t)(what >> 1));
        else
            request_ends(w, &w->flights[what >> 1]);
    } else if (!transfer_ends(w)) {
        if (++w->idle_ticks > SAME_TICKS) {
            violation(w, "the policy wants to be told the time, again and again");
            w->status = weir_fail(WEIR_ERR_SYSTEM, "%s", w->r->first);
        }
        drive_tell(w, &(wp_event){.kind = WP_EVENT_TICK});
    }
    drive_take_all(w);
}

static void drive_on(world *w)
{
    traffic_request q = {0};
    bool got = false;
    w->status = traffic_next(w->o->requests, &q, &got);
    while (w->status == WEIR_OK && (got || w->flight_count > 0 || !quiet(w))) {
        uint64_t next = next_time(w), now = got ? wi_min(next, q.at) : next;
        if (now == UINT64_MAX) {
            violation(w, "%u requests wait, and nothing will happen", w->flight_count);
            return;
        }
        if (now > w->now)
            w->idle_ticks = 0;
        w->now = wi_max(w->now, now);
        if (next <= now) {
            happen(w);
            continue;
        }
        drive_arrive(w, &q);
        drive_take_all(w);
        if (w->status == WEIR_OK)
            w->status = traffic_next(w->o->requests, &q, &got);
        if (w->o->progress && w->r->requests % PROGRESS == 0)
            w->o->progress(w->o->user, traffic_fraction(w->o->requests));
    }
}

/* ---- from begin to end ------------------------------------------------------------------------------------------- */

static bool drive_begin(world *w)
{
    const traffic_models *models = w->o->models;
    bool suspends = w->o->policy->suspends;
    policy_world how = {.limits = w->o->limits, .devices = models->devices, .most_models = w->o->most_models};
    w->bodies = calloc(models->count, sizeof *w->bodies);
    for (uint32_t i = 0; w->bodies && i < models->count; i++)
        w->bodies[i].device = models->list[i].spec.device;
    w->policy = w->o->policy->create(&how);
    if (!w->bodies || !w->policy)
        return false;
    if (w->o->log)
        drive_write_line(w, &(wp_event){.kind = WP_EVENT_BEGIN, .limits = how.limits, .devices = how.devices});
    for (uint32_t d = 0; d < models->devices; d++) {
        drive_tell(w, &(wp_event){.kind = WP_EVENT_CEILING, .device = d, .bytes = w->o->budget});
        drive_take_all(w);
    }
    for (uint32_t i = 0; i < models->count; i++) {
        wp_event event = {.kind = WP_EVENT_ADD, .spec = models->list[i].spec};
        event.spec.can_suspend = event.spec.can_suspend && suspends;
        drive_tell(w, &event);
        drive_take_all(w);
        if (!event.ok)
            return false;
        if (event.model != i)
            violation(w, "model %u is called %u", i, event.model);
    }
    return true;
}

static void conserve(world *w)
{
    drive_result *r = w->r;
    uint64_t over = r->done + drive_refusals(r);
    if (r->requests != over || r->granted != r->done)
        violation(w, "%" PRIu64 " requests: %" PRIu64 " granted, %" PRIu64 " done, %" PRIu64 " refused", r->requests,
                  r->granted, r->done, drive_refusals(r));
}

weir_status drive(const drive_options *options, drive_result *out)
{
    world *w = calloc(1, sizeof *w);
    double began = wi_real_seconds();
    *out = (drive_result){0};
    if (!w)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the simulation");
    w->o = options;
    w->r = out;
    w->random = options->seed;
    if (drive_begin(w))
        drive_on(w);
    else
        out_of_memory(w);
    if (w->status == WEIR_OK)
        conserve(w);
    out->virtual_end = w->now;
    out->seconds = wi_real_seconds() - began;
    weir_status status = w->status;
    if (w->policy)
        options->policy->destroy(w->policy);
    heap_clear(&w->heap);
    wi_pointer_map_clear(&w->by_ticket);
    free(w->flights);
    free(w->bodies);
    free(w);
    return status;
}
