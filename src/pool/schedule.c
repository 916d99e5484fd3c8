/* Which request goes first.
 *
 * Models with waiting requests are looked at in the order of their first ones: by priority, then by what each model has
 * had for its weight (start-time fair queueing: a grant costs 1 / weight of virtual time, and a model that has been
 * without requests goes on at the time of the last grant), then by age. Requests that cannot be met are passed. */
#include "pool/table.h"

enum { GRANT_COST = 1 << 20, MOST_ROUNDS = 1000 };

/* Ends of waiting -------------------------------------------------------------------------------------------------- */

static void answer_job(wp_admission *it, uint32_t job, const wp_answer *answer, wp_action_kind kind)
{
    const wp_job *one = &it->jobs[job];
    if (one->ticket == it->asking) {
        it->asked = *answer;
        it->asking = 0;
        return;
    }
    wp_action action = {.kind = kind,
                        .model = one->model,
                        .variant = it->rows[one->model].variant,
                        .bytes = one->bytes,
                        .answer = *answer,
                        .why = one->ticket};
    wp_push(it, &action, true);
}

void wp_grant(wp_admission *it, uint32_t job)
{
    wp_job *one = &it->jobs[job];
    wp_row *row = &it->rows[one->model];
    wp_device *device = wp_device_of(it, row);
    if (one->size)
        wp_job_leave(it, job);
    one->granted = true;
    one->arrived = it->now;
    row->running++;
    row->promised += one->bytes;
    device->taken += one->bytes;
    row->virtual_time = wi_max(row->virtual_time, device->clock);
    device->clock = row->virtual_time;
    row->virtual_time += wi_max(1, GRANT_COST / row->spec.weight);
    answer_job(it, job, &(wp_answer){.ticket = one->ticket, .cause = WP_GRANTED}, WP_GRANT);
}

void wp_refuse(wp_admission *it, uint32_t job, const wp_answer *answer)
{
    wp_answer with = *answer;
    wp_row *row = &it->rows[it->jobs[job].model];
    with.ticket = it->jobs[job].ticket;
    wp_job_leave(it, job);
    answer_job(it, job, &with, WP_REFUSE);
    wp_job_forget(it, job);
    wp_earmark_lost(it, row, with.ticket);
    wp_touch(it, row);
}

void wp_refuse_all(wp_admission *it, wp_row *row, const wp_answer *answer)
{
    while (row->first)
        wp_refuse(it, row->first, answer);
}

void wp_expire(wp_admission *it)
{
    while (it->waiting > 0 && it->jobs[it->heap[1]].deadline <= it->now) {
        uint32_t job = it->heap[1];
        wp_answer answer = {.cause = WP_TOO_LATE, .need = it->jobs[job].bytes};
        wp_refuse(it, job, &answer);
    }
}

/* Those that wait and can no longer be met, as a ceiling fell, or a model came that is pinned. */
void wp_refuse_nevers(wp_admission *it, uint32_t device)
{
    for (uint32_t i = 1; i <= it->job_room; i++) {
        wp_answer answer = {0};
        const wp_job *job = &it->jobs[i];
        if (job->ticket && !job->granted && wp_may_be_on(&it->rows[job->model], device) &&
            wp_never(it, &it->rows[job->model], job->bytes, &answer))
            wp_refuse(it, i, &answer);
    }
}

/* Turns ------------------------------------------------------------------------------------------------------------ */

/* What is known without a look at others. WP_GRANTED: nothing is in the way so far. */
static wp_cause own_cause(const wp_row *row)
{
    if (row->state == WP_LOADING || row->state == WP_RESUMING || row->state == WP_SUSPENDING ||
        row->state == WP_UNLOADING)
        return WP_WAITS_LOADING;
    if (row->victim_of != WP_NONE)
        return WP_WAITS_OTHERS;
    if (row->earmark.state)
        return WP_WAITS_ROOM;
    return row->state == WP_LOADED && row->running >= row->spec.slots ? WP_WAITS_BUSY : WP_GRANTED;
}

/* Whether the request outranks a model that is loaded or has an earmark: then it need not wait for `passing`. */
static bool outranks_one(const wp_admission *it, const wp_row *row, const wp_job *job)
{
    for (uint32_t i = 0; i < it->count; i++) {
        const wp_row *other = &it->rows[i];
        if (other->there && other != row && wp_may_be_on(row, other->device) &&
            (other->state == WP_LOADED || other->earmark.state) && other->spec.priority < wp_rank(row, job))
            return true;
    }
    return false;
}

/* Sets the barrier of a device for a request that has waited long, if the models in the way will go some time. Other
 * models do not come to the device then. */
static void hold_others_back(wp_admission *it, const wp_row *row, uint32_t job)
{
    uint32_t steps = wp_all_steps(row);
    for (uint32_t v = 0; v < row->spec.variant_count; v++) {
        uint32_t device = wp_way_device(row, v);
        if (!wp_way_allowed(row, v, steps) || it->devices[device].barrier || wp_waits_for_drain(it, row, job, device) ||
            !wp_hopes(it, row, job, device))
            continue;
        it->devices[device].barrier = true;
        return;
    }
}

static bool all_barred(const wp_admission *it, const wp_row *row)
{
    for (uint32_t d = 0; d < it->device_count; d++)
        if (!it->devices[d].barrier && wp_may_be_on(row, d))
            return false;
    return true;
}

static bool may_wait(const wp_row *row)
{
    wp_step steps[WP_STEPS];
    bool waits;
    (void)wp_steps_of(row, steps, &waits);
    return waits;
}

static void refuse_room(wp_admission *it, const wp_row *row, uint32_t job)
{
    wp_answer answer = {.cause = WP_NO_ROOM,
                        .need = wp_need(row, wp_fixed(row) ? row->variant : 0, it->jobs[job].bytes),
                        .limit = wp_spare(&it->devices[row->device])};
    wp_refuse(it, job, &answer);
}

bool wp_serve(wp_admission *it, wp_row *row)
{
    const wp_device *device = wp_device_of(it, row);
    uint32_t first = row->first;
    const wp_job *job = &it->jobs[first];
    row->cause = own_cause(row);
    if (row->cause != WP_GRANTED)
        return false;
    if (row->state == WP_LOADED && (job->bytes == 0 || job->bytes <= wp_spare(device))) {
        wp_grant(it, first);
        return true;
    }
    bool barred = all_barred(it, row);
    row->cause = barred ? WP_WAITS_OTHERS : WP_WAITS_ROOM;
    if (!barred && wp_plan(it, row, first))
        return true;
    if (!may_wait(row)) {
        refuse_room(it, row, first);
        return true;
    }
    if (barred)
        return false;
    bool overdue = it->now >= wp_sum(job->arrived, it->limits.passing);
    if ((overdue || outranks_one(it, row, job)) && wp_drain(it, row, first))
        return true;
    if (overdue)
        hold_others_back(it, row, first);
    return false;
}

static bool schedule_goes_first(const wp_admission *it, const wp_row *a, const wp_row *b)
{
    const wp_job *x = &it->jobs[a->first], *y = &it->jobs[b->first];
    if (wp_rank(a, x) != wp_rank(b, y))
        return wp_rank(a, x) > wp_rank(b, y);
    if (a->virtual_time != b->virtual_time)
        return a->virtual_time < b->virtual_time;
    return x->ticket < y->ticket;
}

static void schedule_serve(wp_admission *it, uint32_t device)
{
    it->devices[device].barrier = false;
    for (uint32_t i = 0; i < it->count; i++) {
        wp_row *row = &it->rows[i];
        if (!row->there || !row->tree || !wp_may_be_on(row, device))
            continue;
        row->cause = own_cause(row);
        row->blocked = row->cause != WP_GRANTED;
    }
    for (;;) {
        wp_row *next = NULL;
        for (uint32_t i = 0; i < it->count; i++) {
            wp_row *row = &it->rows[i];
            if (row->there && row->tree && !row->blocked && wp_may_be_on(row, device) &&
                (!next || schedule_goes_first(it, row, next)))
                next = row;
        }
        if (!next)
            return;
        next->blocked = !wp_serve(it, next);
    }
}

/* A removed model goes when it is idle, and is forgotten when nothing is left of it. */
static void let_removed_go(wp_admission *it, uint32_t device)
{
    for (uint32_t i = 0; i < it->count; i++) {
        wp_row *row = &it->rows[i];
        if (!row->there || !row->removed || row->device != device)
            continue;
        if (wp_still(row) && row->victim_of == WP_NONE)
            wp_leave(it, row, 0);
        if ((row->state == WP_UNLOADED || row->state == WP_FAILED) && row->residue == 0)
            row->there = false;
    }
}

static bool decide_on(wp_admission *it, uint32_t number)
{
    wp_device *device = &it->devices[number];
    if (!device->dirty)
        return false;
    device->dirty = false;
    let_removed_go(it, number);
    wp_relieve(it, device);
    if (it->device_count > 1)
        wp_free_drains(it, number);
    if (!wp_advance(it, device) || !device->dirty)
        schedule_serve(it, number);
    return true;
}

/* Repeats until no device is dirty: a decision on a device may let requests for another device go on. */
void wp_decide(wp_admission *it)
{
    bool any = true;
    for (uint32_t rounds = 0; any; rounds++) {
        wi_assert(rounds < MOST_ROUNDS);
        any = false;
        for (uint32_t d = 0; d < it->device_count && rounds < MOST_ROUNDS; d++)
            any |= decide_on(it, d);
    }
    wi_assert(wp_invariants(it));
}

/* Time ------------------------------------------------------------------------------------------------------------- */

static uint64_t schedule_after(uint64_t time, uint64_t wait)
{
    return wait == WP_FOREVER ? WP_FOREVER : wp_sum(time, wait);
}

static uint64_t suspend_due(const wp_admission *it, const wp_row *row)
{
    if (row->state != WP_LOADED || !row->spec.can_suspend || row->spec.host > wp_host_spare(it))
        return WP_FOREVER;
    uint64_t due = schedule_after(row->used, row->spec.suspend_after);
    return due == WP_FOREVER ? due : wi_max(due, row->no_suspend);
}

uint64_t wp_idle_due(const wp_admission *it, const wp_row *row)
{
    if (!wp_still(row) || row->tree || row->earmark.state || row->victim_of != WP_NONE || row->spec.pinned)
        return WP_FOREVER;
    return wi_min(suspend_due(it, row), schedule_after(row->used, row->spec.keep_alive));
}

void wp_idle_times(wp_admission *it)
{
    for (uint32_t i = 0; i < it->count; i++) {
        wp_row *row = &it->rows[i];
        if (wp_idle_due(it, row) > it->now)
            continue;
        if (schedule_after(row->used, row->spec.keep_alive) <= it->now)
            wp_leave(it, row, 0);
        else
            (void)wp_suspend(it, row, 0);
    }
}

/* Telling ---------------------------------------------------------------------------------------------------------- */

/* Returns the remaining time of a move that takes `takes`. */
static uint64_t schedule_rest(const wp_admission *it, const wp_row *row, uint64_t takes)
{
    return wp_less(wp_sum(row->since, takes), it->now);
}

static uint64_t victims_take(const wp_admission *it, wp_model by)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < it->count; i++)
        if (it->rows[i].victim_of == by && it->rows[i].state == WP_SUSPENDING)
            longest = wi_max(longest, schedule_rest(it, &it->rows[i], it->rows[i].spec.suspend_time));
    return longest;
}

/* Returns the time until the model is here and the requests before this request have run. Does not foresee the needs of
 * other models. */
static uint64_t schedule_expected(const wp_admission *it, const wp_row *row, const wp_job *job)
{
    uint64_t here = 0, rounds = wp_job_before(it, row, wp_rank(row, job), job->ticket) / row->spec.slots;
    switch (row->state) {
    case WP_LOADING:
        here = schedule_rest(it, row, row->spec.load_time);
        break;
    case WP_RESUMING:
        here = schedule_rest(it, row, row->spec.resume_time);
        break;
    case WP_LOADED:
        rounds += row->running >= row->spec.slots;
        break;
    case WP_SUSPENDED:
    case WP_SUSPENDING:
        here = row->spec.resume_time;
        break;
    default:
        here = row->spec.load_time;
    }
    if (row->earmark.state)
        here += victims_take(it, wp_number(it, row));
    else if (row->cause == WP_WAITS_ROOM)
        here += wp_less(wp_sum(job->arrived, it->limits.passing), it->now);
    return here + rounds * row->run_time;
}

wp_answer wp_answer_of(const wp_admission *it, uint32_t job)
{
    const wp_job *one = &it->jobs[job];
    const wp_row *row = &it->rows[one->model];
    wp_answer answer = {.ticket = one->ticket, .cause = row->cause, .position = wp_job_position(it, job)};
    wp_cause own = own_cause(row);
    if (row->first != job)
        answer.cause = own == WP_GRANTED ? WP_WAITS_OTHERS : own;
    answer.expected = schedule_expected(it, row, one);
    answer.until = one->deadline;
    answer.limit = it->devices[row->device].ceiling;
    if (row->state == WP_LOADED || row->state == WP_SUSPENDED || !wp_fixed(row))
        answer.need = wp_need(row, row->earmark.variant, one->bytes);
    return answer;
}
