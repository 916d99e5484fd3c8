/* The calls of admission.h. Each call brings the time forward, applies the event, and decides on the changed
 * devices. */
#include "pool/table.h"

enum { MOST_DOUBLINGS = 4, MEAN_SHARE = 2, RUN_SHARE = 4 };

/* Making ----------------------------------------------------------------------------------------------------------- */

wp_admission *wp_admission_create(const wp_limits *limits, uint32_t devices)
{
    wp_admission *it = calloc(1, sizeof *it);
    if (!it)
        return NULL;
    it->limits = *limits;
    it->device_count = devices;
    it->next_ticket = 1;
    it->devices = calloc(devices ? devices : 1, sizeof *it->devices);
    it->solver = wp_solver_create();
    if (it->devices && it->solver)
        return it;
    wp_admission_destroy(it);
    return NULL;
}

void wp_admission_destroy(wp_admission *it)
{
    if (!it)
        return;
    void *const all[] = {it->devices, it->rows,    it->jobs,       it->heap,
                         it->tickets, it->actions, it->candidates, it->chosen};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    wp_solver_destroy(it->solver);
    free(it);
}

/* The time never goes back. Deadlines that have passed are met before anything else. */
static void admission_come_to(wp_admission *it, uint64_t now)
{
    it->now = wi_max(it->now, now);
    wp_expire(it);
}

static wp_row *admission_row_of(wp_admission *it, wp_model model)
{
    return model < it->count && it->rows[model].there ? &it->rows[model] : NULL;
}

static bool grow_rows(wp_admission *it)
{
    uint32_t room = it->room ? 2 * it->room : 16;
    wp_row *rows = realloc(it->rows, room * sizeof *rows);
    if (rows)
        it->rows = rows;
    wp_candidate *candidates = realloc(it->candidates, room * sizeof *candidates);
    if (candidates)
        it->candidates = candidates;
    uint8_t *chosen = realloc(it->chosen, room);
    if (chosen)
        it->chosen = chosen;
    if (!rows || !candidates || !chosen)
        return false;
    it->room = room;
    return true;
}

static void take_spec(wp_row *row, const wp_spec *spec)
{
    row->spec = *spec;
    row->spec.weight = row->spec.weight ? row->spec.weight : 1;
    row->spec.slots = row->spec.slots ? row->spec.slots : 1;
    row->spec.variant_count = (uint32_t)wi_min(wi_max(row->spec.variant_count, 1), WP_VARIANTS);
}

bool wp_add(wp_admission *it, uint64_t now, const wp_spec *spec, wp_model *out)
{
    wi_assert(spec->device < it->device_count);
    admission_come_to(it, now);
    uint32_t at = 0;
    while (at < it->count && it->rows[at].there)
        at++;
    if ((at == it->room && !grow_rows(it)) || !wp_actions_reserve(it, it->count + 1))
        return false;
    it->rows[at] = (wp_row){.there = true, .victim_of = WP_NONE, .since = it->now, .used = it->now};
    it->count += at == it->count;
    take_spec(&it->rows[at], spec);
    it->rows[at].device = spec->device;
    *out = at;
    wp_decide(it);
    return true;
}

static void refuse_nevers_of(wp_admission *it, const wp_row *row)
{
    for (uint32_t d = 0; d < it->device_count; d++)
        if (wp_may_be_on(row, d))
            wp_refuse_nevers(it, d);
}

void wp_change(wp_admission *it, uint64_t now, wp_model model, const wp_spec *spec)
{
    admission_come_to(it, now);
    wp_row *row = admission_row_of(it, model);
    if (!row)
        return;
    wp_spec old = row->spec;
    /* What was decided with the old one is decided again, as far as nothing has moved. */
    bool held = row->state == WP_LOADED || row->state == WP_SUSPENDED;
    if (held && row->victim_of < WP_CEILING_OF)
        wp_dissolve(it, &it->rows[row->victim_of]);
    if (held)
        row->victim_of = WP_NONE;
    wp_dissolve(it, row);
    take_spec(row, spec);
    row->spec.device = old.device;
    for (uint32_t v = 0; v < old.variant_count && v < row->spec.variant_count; v++)
        row->spec.variants[v].on = old.variants[v].on;
    memset(row->learned, 0, sizeof row->learned);
    memset(row->measured, 0, sizeof row->measured);
    wp_touch(it, row);
    refuse_nevers_of(it, row);
    wp_decide(it);
}

static void stop_load(wp_admission *it, wp_row *row)
{
    if (row->state != WP_LOADING || row->stopped)
        return;
    wp_action action = {.kind = WP_STOP, .model = wp_number(it, row), .device = row->device};
    row->stopped = true;
    wp_push(it, &action, false);
}

void wp_remove(wp_admission *it, uint64_t now, wp_model model)
{
    admission_come_to(it, now);
    wp_row *row = admission_row_of(it, model);
    if (!row)
        return;
    row->removed = true;
    wp_refuse_all(it, row, &(wp_answer){.cause = WP_REMOVED});
    stop_load(it, row);
    wp_dissolve(it, row);
    wp_touch(it, row);
    wp_decide(it);
}

void wp_ceiling(wp_admission *it, uint64_t now, uint32_t device, uint64_t bytes)
{
    admission_come_to(it, now);
    wi_assert(device < it->device_count);
    it->devices[device].ceiling = bytes;
    it->devices[device].dirty = true;
    wp_refuse_nevers(it, device);
    wp_decide(it);
}

/* What is asked ---------------------------------------------------------------------------------------------------- */

/* Refused at once, as far as that does not depend on the queue. */
static bool admission_refused(const wp_admission *it, const wp_row *row, const wp_request *request, wp_answer *answer)
{
    if (!row || row->removed) {
        answer->cause = WP_REMOVED;
        return true;
    }
    if (wp_never(it, row, request->bytes, answer))
        return true;
    if (row->state == WP_FAILED && it->now < row->retry) {
        answer->cause = WP_LOAD_FAILED;
        answer->until = row->retry;
        return true;
    }
    return false;
}

static bool at_once(const wp_admission *it, const wp_row *row, uint64_t bytes)
{
    return row->state == WP_LOADED && row->victim_of == WP_NONE && !row->earmark.state && !row->tree &&
           row->running < row->spec.slots && (bytes == 0 || bytes <= wp_spare(&it->devices[row->device]));
}

static bool no_place(const wp_admission *it, const wp_request *request, wp_answer *answer)
{
    if (it->waiting >= it->limits.queue) {
        *answer = (wp_answer){.cause = WP_QUEUE_FULL, .need = it->waiting, .limit = it->limits.queue};
        return true;
    }
    if (wp_sum(it->waiting_bytes, request->bytes) > it->limits.queue_bytes) {
        *answer = (wp_answer){.cause = WP_QUEUE_FULL, .need = request->bytes, .limit = it->limits.queue_bytes};
        return true;
    }
    if (request->deadline <= it->now || it->limits.longest == 0) {
        *answer = (wp_answer){.cause = WP_TOO_LATE, .need = request->bytes};
        return true;
    }
    return false;
}

static wp_answer wait_in_line(wp_admission *it, wp_row *row, uint32_t job)
{
    wp_ticket ticket = it->jobs[job].ticket;
    it->asking = ticket;
    if (!row->tree)
        row->virtual_time = wi_max(row->virtual_time, wp_device_of(it, row)->clock);
    wp_job_wait(it, job);
    /* For others nothing has changed: they wait for the same as before. */
    bool goes_on = row->first == job;
    while (goes_on && row->tree)
        goes_on = wp_serve(it, row);
    wp_decide(it);
    if (it->asking == 0)
        return it->asked;
    it->asking = 0;
    return wp_answer_of(it, job);
}

wp_answer wp_ask(wp_admission *it, uint64_t now, const wp_request *request)
{
    admission_come_to(it, now);
    wp_decide(it);
    wp_answer answer = {0};
    wp_row *row = admission_row_of(it, request->model);
    if (row)
        wp_arrived(&row->arrivals, it->now);
    if (admission_refused(it, row, request, &answer))
        return answer;
    bool granted = at_once(it, row, request->bytes);
    if (!granted && no_place(it, request, &answer))
        return answer;
    if (!wp_queue_reserve(it))
        return (wp_answer){.cause = WP_QUEUE_FULL};
    uint32_t job = wp_job_make(it, request);
    if (!granted)
        return wait_in_line(it, row, job);
    it->asking = it->jobs[job].ticket;
    wp_grant(it, job);
    wi_assert(wp_invariants(it));
    return it->asked;
}

void wp_done(wp_admission *it, uint64_t now, wp_ticket ticket)
{
    admission_come_to(it, now);
    uint32_t job = wp_job_find(it, ticket);
    if (job && it->jobs[job].granted) {
        const wp_job *one = &it->jobs[job];
        wp_row *row = &it->rows[one->model];
        uint64_t took = it->now - one->arrived;
        row->run_time = row->run_time ? row->run_time - row->run_time / RUN_SHARE + took / RUN_SHARE : took;
        row->running--;
        row->promised -= one->bytes;
        row->used = it->now;
        wp_device_of(it, row)->taken -= one->bytes;
        wp_device_of(it, row)->dirty = true;
        wp_job_forget(it, job);
    }
    wp_decide(it);
}

bool wp_cancel(wp_admission *it, uint64_t now, wp_ticket ticket, bool stops)
{
    admission_come_to(it, now);
    uint32_t job = wp_job_find(it, ticket);
    bool waits = job && !it->jobs[job].granted;
    if (waits) {
        wp_row *row = &it->rows[it->jobs[job].model];
        wp_refuse(it, job, &(wp_answer){.cause = WP_CANCELLED});
        if (stops && !row->tree && !row->by_hand)
            stop_load(it, row);
    }
    wp_decide(it);
    return waits;
}

wp_answer wp_look(const wp_admission *it, uint64_t now, wp_ticket ticket)
{
    (void)now;
    uint32_t job = wp_job_find(it, ticket);
    if (!job)
        return (wp_answer){.ticket = ticket, .cause = WP_REMOVED};
    if (it->jobs[job].granted)
        return (wp_answer){.ticket = ticket, .cause = WP_GRANTED};
    return wp_answer_of(it, job);
}

/* By hand ---------------------------------------------------------------------------------------------------------- */

static bool no(wp_answer *why, wp_cause cause)
{
    why->cause = cause;
    return false;
}

static bool want_loaded(wp_admission *it, wp_row *row, wp_answer *why)
{
    row->by_hand |= row->state == WP_LOADING;
    if (row->state == WP_LOADED || row->state == WP_LOADING || row->state == WP_RESUMING || row->earmark.state)
        return row->victim_of == WP_NONE ? true : no(why, WP_WAITS_OTHERS);
    if (row->state == WP_SUSPENDING || row->state == WP_UNLOADING)
        return no(why, WP_WAITS_LOADING);
    if (row->victim_of != WP_NONE)
        return no(why, WP_WAITS_OTHERS);
    if (wp_never(it, row, 0, why))
        return false;
    return wp_plan(it, row, 0) ? true : no(why, WP_WAITS_ROOM);
}

static bool want_away(wp_admission *it, wp_row *row, wp_state state, wp_answer *why)
{
    bool gone = row->state == WP_UNLOADED || row->state == WP_FAILED;
    if (state == WP_UNLOADED ? gone || row->state == WP_UNLOADING
                             : row->state == WP_SUSPENDED || row->state == WP_SUSPENDING)
        return true;
    if (row->spec.pinned || (state == WP_SUSPENDED && (gone || !row->spec.can_suspend)))
        return no(why, WP_PINNED);
    if (!wp_still(row))
        return no(why, row->running ? WP_WAITS_BUSY : WP_WAITS_LOADING);
    if (row->tree || row->earmark.state || row->victim_of != WP_NONE)
        return no(why, row->victim_of == WP_NONE ? WP_WAITS_BUSY : WP_WAITS_OTHERS);
    if (state == WP_UNLOADED) {
        wp_leave(it, row, 0);
        return true;
    }
    why->need = row->spec.host;
    why->limit = wp_host_spare(it);
    if (why->need > why->limit)
        return no(why, WP_WAITS_ROOM);
    return wp_suspend(it, row, 0);
}

bool wp_want(wp_admission *it, uint64_t now, wp_model model, wp_state state, wp_answer *why)
{
    admission_come_to(it, now);
    wp_decide(it);
    wp_row *row = admission_row_of(it, model);
    *why = (wp_answer){0};
    bool will = false;
    if (!row || row->removed)
        why->cause = WP_REMOVED;
    else if (state == WP_LOADED)
        will = want_loaded(it, row, why);
    else
        will = want_away(it, row, state, why);
    wp_decide(it);
    return will;
}

/* What has happened ------------------------------------------------------------------------------------------------ */

/* The first measured time replaces what was expected; later ones count for a half. */
static void learn_time(wp_row *row, int which, uint64_t *time, uint64_t took)
{
    if (took == 0)
        return;
    *time = row->measured[which] ? *time / MEAN_SHARE + took / MEAN_SHARE : took;
    row->measured[which] = true;
}

static void admission_release_host(wp_admission *it, wp_row *row)
{
    if (row->host == 0)
        return;
    it->host_taken -= row->host;
    row->host = 0;
    for (uint32_t d = 0; d < it->device_count; d++)
        it->devices[d].dirty = true;
}

static uint64_t back_off(const wp_admission *it, uint32_t failed)
{
    uint64_t wait = it->limits.retry;
    for (uint32_t i = 1; i < failed && i <= MOST_DOUBLINGS; i++)
        wait = wp_sum(wait, wait);
    return wp_sum(it->now, wait);
}

/* The model has arrived. First grants the request that caused the move, as its bytes were reserved with the model. */
static void admission_arrive(wp_admission *it, wp_row *row, uint64_t resident)
{
    wp_device *device = wp_device_of(it, row);
    wp_set_bytes(it, row, resident);
    wp_set_state(it, row, WP_LOADED);
    row->resident = resident;
    row->learned[row->variant] = wi_max(row->learned[row->variant], resident);
    row->used = it->now;
    row->failed = row->lacked = 0;
    device->dirty = true;
    uint32_t job = wp_job_find(it, row->moves_for);
    row->moves_for = 0;
    if (job && !it->jobs[job].granted && row->running < row->spec.slots &&
        (it->jobs[job].bytes == 0 || it->jobs[job].bytes <= wp_spare(device)))
        wp_grant(it, job);
    wp_refuse_nevers(it, row->device);
}

static wp_row *admission_moved(wp_admission *it, uint64_t now, wp_model model, wp_state state)
{
    admission_come_to(it, now);
    wp_row *row = admission_row_of(it, model);
    return row && row->state == state ? row : NULL;
}

/* The load wanted more than was reserved, which is known from here on. True: its requests are looked at again. */
static bool lacked(wp_admission *it, wp_row *row, uint64_t wanted)
{
    wp_variant *variant = &row->spec.variants[row->variant];
    variant->peak = wi_max(wanted, wp_sum(variant->peak, 1));
    wp_answer never = {0};
    wp_set_bytes(it, row, 0);
    wp_set_state(it, row, WP_UNLOADED);
    row->moves_for = 0;
    if (++row->lacked > row->spec.variant_count || !row->tree || wp_never(it, row, 0, &never))
        return false;
    wp_touch(it, row);
    refuse_nevers_of(it, row);
    return true;
}

void wp_loaded(wp_admission *it, uint64_t now, wp_model model, bool ok, uint64_t resident, uint64_t took)
{
    wp_row *row = admission_moved(it, now, model, WP_LOADING);
    if (row && ok) {
        row->counts.loads++;
        learn_time(row, 0, &row->spec.load_time, took);
        admission_arrive(it, row, resident);
    } else if (row && resident > 0 && lacked(it, row, resident)) {
        row->counts.failures++;
    } else if (row) {
        row->counts.failures++;
        row->lacked = 0;
        row->failed++;
        row->retry = back_off(it, row->failed);
        wp_set_bytes(it, row, 0);
        wp_set_state(it, row, WP_FAILED);
        wp_refuse_all(it, row, &(wp_answer){.cause = WP_LOAD_FAILED, .until = row->retry});
        wp_touch(it, row);
    }
    wp_decide(it);
}

void wp_stopped(wp_admission *it, uint64_t now, wp_model model)
{
    wp_row *row = admission_moved(it, now, model, WP_LOADING);
    if (row) {
        wp_set_bytes(it, row, 0);
        wp_set_state(it, row, WP_UNLOADED);
        row->moves_for = 0;
        wp_touch(it, row);
    }
    wp_decide(it);
}

void wp_resumed(wp_admission *it, uint64_t now, wp_model model, bool ok, uint64_t resident, uint64_t took)
{
    wp_row *row = admission_moved(it, now, model, WP_RESUMING);
    if (row && ok) {
        row->counts.resumes++;
        learn_time(row, 1, &row->spec.resume_time, took);
        admission_release_host(it, row);
        admission_arrive(it, row, resident);
    } else if (row) {
        row->counts.failures++;
        wp_set_bytes(it, row, row->stayed);
        wp_set_state(it, row, WP_SUSPENDED);
        row->no_suspend = back_off(it, 1);
        wp_leave(it, row, 0);
        wp_device_of(it, row)->dirty = true;
    }
    wp_decide(it);
}

void wp_suspended(wp_admission *it, uint64_t now, wp_model model, bool ok, uint64_t stays, uint64_t took)
{
    wp_row *row = admission_moved(it, now, model, WP_SUSPENDING);
    if (row) {
        uint64_t had = row->bytes;
        if (ok) {
            row->counts.suspends++;
            learn_time(row, 2, &row->spec.suspend_time, took);
            wp_set_bytes(it, row, stays);
            wp_set_state(it, row, WP_SUSPENDED);
        } else {
            row->counts.failures++;
            row->state = WP_LOADED;
            row->no_suspend = back_off(it, 1);
            admission_release_host(it, row);
        }
        wp_freed(it, row, ok ? wp_less(had, stays) : 0);
        wp_device_of(it, row)->dirty = true;
    }
    wp_decide(it);
}

static void set_residue(wp_admission *it, wp_row *row, uint64_t residue)
{
    wp_device *device = wp_device_of(it, row);
    device->taken = device->taken - row->residue + residue;
    device->dirty = true;
    row->residue = residue;
}

void wp_unloaded(wp_admission *it, uint64_t now, wp_model model, uint64_t residue)
{
    wp_row *row = admission_moved(it, now, model, WP_UNLOADING);
    if (row) {
        uint64_t had = wp_sum(row->bytes, row->residue);
        wp_set_bytes(it, row, 0);
        set_residue(it, row, residue);
        admission_release_host(it, row);
        wp_set_state(it, row, WP_UNLOADED);
        wp_freed(it, row, wp_less(had, residue));
        wp_touch(it, row);
    }
    wp_decide(it);
}

void wp_measured(wp_admission *it, uint64_t now, wp_model model, uint64_t resident)
{
    admission_come_to(it, now);
    wp_row *row = admission_row_of(it, model);
    if (row && (row->state == WP_UNLOADED || row->state == WP_FAILED)) {
        set_residue(it, row, resident);
        if (resident > 0 && row->earmark.state && row->earmark.device != row->device)
            wp_dissolve(it, row);
        wp_touch(it, row);
    } else if (row) {
        /* A moving model counts at least the bytes reserved for the move. */
        bool moves = row->state != WP_LOADED && row->state != WP_SUSPENDED;
        wp_set_bytes(it, row, moves ? wi_max(row->bytes, resident) : resident);
        if (row->state == WP_LOADED) {
            row->resident = resident;
            row->learned[row->variant] = wi_max(row->learned[row->variant], resident);
        }
        wp_device_of(it, row)->dirty = true;
        wp_refuse_nevers(it, row->device);
    }
    wp_decide(it);
}

void wp_tick(wp_admission *it, uint64_t now)
{
    admission_come_to(it, now);
    wp_idle_times(it);
    for (uint32_t d = 0; d < it->device_count; d++)
        it->devices[d].dirty = true;
    wp_decide(it);
}

static uint64_t sooner(const wp_admission *it, uint64_t wake, uint64_t time)
{
    return time > it->now ? wi_min(wake, time) : wake;
}

/* The earliest of deadlines and idle times, and, while requests wait, of the times when `passing`, minimum stays and
 * suspend back-offs end. */
uint64_t wp_wake(const wp_admission *it)
{
    uint64_t wake = it->waiting > 0 ? it->jobs[it->heap[1]].deadline : WP_FOREVER;
    for (uint32_t i = 0; i < it->count; i++) {
        const wp_row *row = &it->rows[i];
        if (!row->there)
            continue;
        wake = wi_min(wake, wp_idle_due(it, row));
        if (it->waiting == 0)
            continue;
        if (row->tree)
            wake = sooner(it, wake, wp_sum(it->jobs[row->first].arrived, it->limits.passing));
        wake = sooner(it, wake, wp_sum(row->since, it->limits.passing));
        wake = sooner(it, wake, wp_sum(row->since, row->spec.minimum_stay));
        wake = sooner(it, wake, row->no_suspend);
    }
    return wake;
}

bool wp_next(wp_admission *it, wp_action *out)
{
    if (it->action_count == 0)
        return false;
    *out = it->actions[it->first_action];
    it->first_action = (it->first_action + 1) % it->action_room;
    it->action_count--;
    it->job_actions -= out->kind == WP_GRANT || out->kind == WP_REFUSE;
    return true;
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

wp_view wp_see(const wp_admission *it, wp_model model)
{
    if (model >= it->count || !it->rows[model].there)
        return (wp_view){0};
    const wp_row *row = &it->rows[model];
    wp_view view = row->counts;
    view.state = row->state;
    view.device = row->device;
    view.variant = row->variant;
    view.running = row->running;
    view.waiting = wp_waiting(it, row);
    view.taken = row->bytes + row->residue;
    view.promised = row->promised;
    view.resident = row->resident;
    view.used = row->used;
    view.since = row->since;
    view.load_time = row->spec.load_time;
    view.resume_time = row->spec.resume_time;
    view.suspend_time = row->spec.suspend_time;
    view.retry = row->state == WP_FAILED ? row->retry : 0;
    return view;
}

uint64_t wp_taken(const wp_admission *it, uint32_t device)
{
    return it->devices[device].taken;
}

uint64_t wp_bound(const wp_admission *it, uint32_t device)
{
    return it->devices[device].ceiling;
}
