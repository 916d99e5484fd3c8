/* Room for a model or a request: free bytes, the bytes that victims free, and the earmarks that keep them meanwhile.
 *
 * A plan is made as a whole: for each variant of the model in order, free bytes, or a set of idle models that frees the
 * rest. A model with a plan has an earmark from then on: the earmark keeps the needed free bytes, the victims get no more
 * requests and leave, and the bytes that they free go to the earmark until it is complete. Then the model starts.
 *
 * If idle models are not enough, and the request need not wait for the busy models any longer, the earmark drains: it
 * keeps the bytes that are free or come free, and victims are chosen among busy models, too, which then get no more
 * requests. When idle models are enough, they are chosen, and the busy models are let go. */
#include "pool/table.h"

/* Bytes ------------------------------------------------------------------------------------------------------------ */

void wp_set_bytes(wp_admission *it, wp_row *row, uint64_t bytes)
{
    wp_device *device = wp_device_of(it, row);
    device->taken = device->taken - row->bytes + bytes;
    device->dirty |= bytes < row->bytes || device->taken > device->ceiling;
    row->bytes = bytes;
}

void wp_set_state(wp_admission *it, wp_row *row, wp_state state)
{
    row->state = state;
    row->since = it->now;
}

static void earmark_set(wp_admission *it, wp_row *row, uint64_t has)
{
    wp_device *device = wp_earmarked_on(it, row);
    device->earmarked = device->earmarked - row->earmark.has + has;
    row->earmark.has = has;
}

static bool can_suspend(const wp_admission *it, const wp_row *row)
{
    return row->spec.can_suspend && row->spec.host <= it->limits.host;
}

uint64_t wp_stays(const wp_admission *it, const wp_row *row)
{
    if (!row->removed && row->spec.pinned)
        return row->bytes;
    if (row->removed || row->spec.may_evict)
        return 0;
    return can_suspend(it, row) ? wi_min(row->bytes, row->spec.stays) : row->bytes;
}

/* Candidates ------------------------------------------------------------------------------------------------------- */

bool wp_still(const wp_row *row)
{
    return row->there && (row->state == WP_LOADED || row->state == WP_SUSPENDED) && row->running == 0;
}

/* Whether the asker goes before that model's requests. Without a request of its own it goes before none. */
static bool earmarks_goes_before(const wp_admission *it, const wp_asker *asker, const wp_row *row)
{
    uint32_t first = row->first;
    if (!asker->job)
        return false;
    const wp_job *job = &it->jobs[asker->job];
    int64_t rank = wp_rank(asker->row, job), other = first ? wp_rank(row, &it->jobs[first]) : row->spec.priority;
    if (rank != other)
        return rank > other;
    return it->now >= wp_sum(wi_max(job->arrived, row->since), it->limits.passing);
}

static bool may_leave(const wp_admission *it, const wp_asker *asker, const wp_row *row)
{
    bool mine =
        row->victim_of == WP_NONE || row->victim_of == wp_number(it, asker->row) || row->victim_of == asker->over;
    if (!row->there || row == asker->row || row->device != asker->device || !mine || row->earmark.state)
        return false;
    if ((row->state != WP_LOADED && row->state != WP_SUSPENDED) || (row->spec.pinned && !row->removed))
        return false;
    bool stays = row->state == WP_LOADED && it->now < wp_sum(row->since, row->spec.minimum_stay);
    if (stays && asker->row->spec.priority <= row->spec.priority && !row->removed)
        return false;
    if (row->running > 0)
        return asker->drains && (row->removed || earmarks_goes_before(it, asker, row));
    return !row->tree || earmarks_goes_before(it, asker, row);
}

enum { MOST_COST = 52 }; /* bits */

static uint64_t cost_of(uint64_t time, uint64_t chance, uint64_t sure)
{
    return wi_min(wp_sum(wp_weighed(time, chance), sure), UINT64_C(1) << MOST_COST) + 1;
}

/* Finds the ways in which the model may leave, and their costs: the time to come back times the chance of a request,
 * plus the certain cost, plus one, so that no set has a needless victim. The time of a suspend counts as part of coming
 * back. If it were a certain cost, models that are not wanted soon would be evicted instead, and need a whole load
 * later, although host memory for their copies was free. */
static bool earmarks_candidate_of(const wp_admission *it, const wp_row *row, bool suspended_only, wp_candidate *out)
{
    const wp_spec *spec = &row->spec;
    uint64_t chance = wp_chance(&row->arrivals, it->now);
    *out = (wp_candidate){.model = wp_number(it, row)};
    if (row->state == WP_LOADED && can_suspend(it, row) && it->now >= row->no_suspend && !row->removed)
        out->ways[out->count++] =
            (wp_way){wp_less(row->bytes, spec->stays), (int64_t)wi_min(spec->host, UINT64_C(1) << MOST_COST),
                     cost_of(wp_sum(spec->resume_time, spec->suspend_time), chance, 0)};
    out->suspend = out->count;
    uint64_t back = row->state == WP_SUSPENDED ? wp_less(spec->load_time, spec->resume_time) : spec->load_time;
    if ((spec->may_evict && !suspended_only) || row->removed)
        out->ways[out->count++] = (wp_way){row->bytes, -(int64_t)wi_min(row->host, UINT64_C(1) << MOST_COST),
                                           cost_of(back, chance, spec->evict_cost)};
    return out->count > 0;
}

/* Fills it->candidates. Returns the most bytes that the candidates free together. */
static uint64_t earmarks_collect(wp_admission *it, const wp_asker *asker, uint32_t *count)
{
    uint64_t most = 0;
    bool only = !(asker->steps >> WP_STEP_EVICT & 1);
    *count = 0;
    for (uint32_t i = 0; i < it->count; i++) {
        wp_candidate *c = &it->candidates[*count];
        if (!may_leave(it, asker, &it->rows[i]) || !earmarks_candidate_of(it, &it->rows[i], only, c))
            continue;
        most = wp_sum(most, c->count > 1 ? wi_max(c->ways[0].frees, c->ways[1].frees) : c->ways[0].frees);
        ++*count;
    }
    return most;
}

uint64_t wp_host_spare(const wp_admission *it)
{
    uint64_t wanted = it->host_taken;
    for (uint32_t i = 0; i < it->count; i++)
        if (it->rows[i].victim_of != WP_NONE && it->rows[i].suspends && it->rows[i].state == WP_LOADED)
            wanted = wp_sum(wanted, it->rows[i].spec.host);
    return wp_less(it->limits.host, wanted);
}

/* Leaving ---------------------------------------------------------------------------------------------------------- */

static void push_move(wp_admission *it, wp_row *row, wp_action_kind kind, uint64_t bytes, wp_ticket why)
{
    wp_action action = {.kind = kind,
                        .model = wp_number(it, row),
                        .variant = row->variant,
                        .device = row->device,
                        .bytes = bytes,
                        .why = why};
    row->moves_for = why;
    wp_push(it, &action, false);
}

void wp_leave(wp_admission *it, wp_row *row, wp_ticket why)
{
    wi_assert(wp_still(row));
    row->counts.evictions += row->victim_of != WP_NONE;
    wp_set_state(it, row, WP_UNLOADING);
    push_move(it, row, WP_UNLOAD, 0, why);
}

bool wp_suspend(wp_admission *it, wp_row *row, wp_ticket why)
{
    wi_assert(wp_still(row) && row->state == WP_LOADED);
    if (row->spec.host > wp_less(it->limits.host, it->host_taken))
        return false;
    row->host = row->spec.host;
    it->host_taken += row->host;
    wp_set_state(it, row, WP_SUSPENDING);
    push_move(it, row, WP_SUSPEND, wi_min(row->bytes, row->spec.stays), why);
    return true;
}

static void earmarks_let_go(wp_admission *it, wp_model by)
{
    for (uint32_t i = 0; i < it->count; i++) {
        wp_row *row = &it->rows[i];
        if (row->victim_of == by && (row->state == WP_LOADED || row->state == WP_SUSPENDED))
            row->victim_of = WP_NONE;
    }
}

/* Sends away the victims that are idle: evicts, or suspends as far as the host has room. */
static void earmarks_send(wp_admission *it, wp_model by, uint32_t device, wp_ticket why)
{
    for (uint32_t i = 0; i < it->count; i++) {
        wp_row *row = &it->rows[i];
        if (!row->there || row->victim_of != by || row->device != device)
            continue;
        if (wp_still(row) && !row->suspends)
            wp_leave(it, row, why);
        else if (wp_still(row) && row->state == WP_LOADED)
            (void)wp_suspend(it, row, why);
    }
}

/* Marks the chosen candidates as victims of `by`. */
static void earmarks_mark(wp_admission *it, uint32_t count, wp_model by)
{
    for (uint32_t i = 0; i < count; i++) {
        if (it->chosen[i] == 0)
            continue;
        wp_row *row = &it->rows[it->candidates[i].model];
        row->victim_of = by;
        row->suspends = it->chosen[i] == it->candidates[i].suspend;
    }
}

void wp_freed(wp_admission *it, wp_row *victim, uint64_t bytes)
{
    uint32_t by = victim->victim_of;
    victim->victim_of = WP_NONE;
    if (by == WP_NONE || by == WP_CEILING_OF)
        return;
    wp_row *row = &it->rows[by];
    const wp_device *device = wp_earmarked_on(it, row);
    if (row->earmark.state) {
        uint64_t spare = wi_min(bytes, wp_spare(device));
        earmark_set(it, row, row->earmark.has + wi_min(spare, row->earmark.need - row->earmark.has));
    }
}

/* Starts ----------------------------------------------------------------------------------------------------------- */

static void earmark_end(wp_admission *it, wp_row *row)
{
    wp_device *device = wp_earmarked_on(it, row);
    earmark_set(it, row, 0);
    for (uint32_t i = 0; i < it->count; i++)
        if (it->rows[i].victim_of == wp_number(it, row))
            it->rows[i].victim_of = WP_NONE;
    row->earmark = (wp_earmark){0};
    device->earmarks--;
    device->dirty = true;
}

void wp_dissolve(wp_admission *it, wp_row *row)
{
    if (row->earmark.state)
        earmark_end(it, row);
}

/* The bytes are there: a load, a resume, or the request itself. */
static void earmarks_start(wp_admission *it, wp_row *row, uint32_t variant, uint64_t need, wp_ticket why)
{
    wi_assert(need <= wp_spare(wp_device_of(it, row)));
    if (row->state == WP_LOADED) {
        wp_grant(it, wp_job_find(it, why));
        return;
    }
    bool suspended = row->state == WP_SUSPENDED;
    row->stayed = row->bytes;
    row->variant = suspended ? row->variant : variant;
    wi_assert(row->device == wp_way_device(row, row->variant));
    wp_set_bytes(it, row, row->bytes + need);
    wp_set_state(it, row, suspended ? WP_RESUMING : WP_LOADING);
    row->by_hand = why == 0;
    row->stopped = false;
    push_move(it, row, suspended ? WP_RESUME : WP_LOAD, suspended ? row->resident : row->spec.variants[variant].peak,
              why);
}

static void earmark_on(wp_admission *it, const wp_asker *asker, wp_earmark_state state, uint32_t variant, uint64_t need)
{
    wp_row *row = asker->row;
    wi_assert(!row->earmark.state);
    wp_device *device = &it->devices[asker->device];
    row->earmark = (wp_earmark){.state = state,
                                .why = asker->job ? it->jobs[asker->job].ticket : 0,
                                .order = it->earmark_order++,
                                .need = need,
                                .device = asker->device,
                                .variant = variant};
    device->earmarks++;
    earmark_set(it, row, wi_min(need, wp_spare(device)));
}

static wp_ticket ticket_of(const wp_admission *it, const wp_asker *asker)
{
    return asker->job ? it->jobs[asker->job].ticket : 0;
}

static uint64_t earmarks_need_of(const wp_admission *it, const wp_asker *asker, uint32_t variant)
{
    return wp_need(asker->row, variant, asker->job ? it->jobs[asker->job].bytes : 0);
}

/* True: other requests have waited for longer, and the free bytes of the device are for them. */
static bool barred(const wp_admission *it, const wp_asker *asker)
{
    return asker->job && it->devices[asker->device].barrier;
}

static bool plan_free(wp_admission *it, wp_asker *asker, uint32_t variant)
{
    asker->device = wp_way_device(asker->row, variant);
    uint64_t need = earmarks_need_of(it, asker, variant);
    if (barred(it, asker) || need > wp_spare(&it->devices[asker->device]))
        return false;
    asker->row->device = asker->device;
    earmarks_start(it, asker->row, variant, need, ticket_of(it, asker));
    return true;
}

/* Finds idle victims that free enough on the variant's device, in it->candidates and it->chosen. Finds none while more
 * than the ceiling is taken: the ceiling comes first. */
static bool find_victims(wp_admission *it, wp_asker *asker, uint32_t variant, uint32_t *count, uint64_t *cost)
{
    asker->device = wp_way_device(asker->row, variant);
    const wp_device *device = &it->devices[asker->device];
    uint64_t need = earmarks_need_of(it, asker, variant), spare = wp_spare(device);
    if (barred(it, asker) || device->taken > device->ceiling ||
        earmarks_collect(it, asker, count) < wp_less(need, spare) || need <= spare)
        return false;
    wp_set set = wp_victims(it->solver, it->candidates, *count, need - spare, wp_host_spare(it), it->chosen);
    *cost = set.cost;
    return set.found;
}

static void take_victims(wp_admission *it, const wp_asker *asker, uint32_t variant, uint32_t count)
{
    wp_row *row = asker->row;
    earmark_on(it, asker, WP_EARMARK_LEAVES, variant, earmarks_need_of(it, asker, variant));
    earmarks_mark(it, count, wp_number(it, row));
    earmarks_send(it, wp_number(it, row), asker->device, ticket_of(it, asker));
}

/* Variants from `first` on that give up the same, on several devices. */
static bool plan_group(wp_admission *it, wp_asker *asker, uint32_t first, uint32_t end)
{
    uint32_t best = WP_VARIANTS, last = WP_VARIANTS, count = 0;
    uint64_t least = UINT64_MAX, cost;
    for (uint32_t v = first; v < end; v++)
        if (wp_way_allowed(asker->row, v, asker->steps) && plan_free(it, asker, v))
            return true;
    if (!(asker->steps & (UINT32_C(1) << WP_STEP_SUSPEND | UINT32_C(1) << WP_STEP_EVICT)))
        return false;
    for (uint32_t v = first; v < end; v++) {
        if (!wp_way_allowed(asker->row, v, asker->steps) || !find_victims(it, asker, v, &count, &cost))
            continue;
        last = v;
        if (best < WP_VARIANTS && cost >= least)
            continue;
        best = v;
        least = cost;
    }
    if (best == WP_VARIANTS || (best != last && !find_victims(it, asker, best, &count, &cost)))
        return false;
    asker->device = wp_way_device(asker->row, best);
    take_victims(it, asker, best, count);
    return true;
}

static bool plan_all(wp_admission *it, wp_asker *asker)
{
    const wp_spec *spec = &asker->row->spec;
    for (uint32_t v = 0, end; v < spec->variant_count; v = end) {
        for (end = v + 1; end < spec->variant_count && spec->variants[end].same; end++)
            ;
        if (plan_group(it, asker, v, end))
            return true;
    }
    return false;
}

/* Whether a step can change anything: most models have one device, and no variants. */
static bool earmarks_counts(const wp_row *row, wp_step step)
{
    if (step == WP_STEP_SUSPEND || step == WP_STEP_EVICT)
        return true;
    for (uint32_t v = 1; v < row->spec.variant_count && !wp_fixed(row); v++)
        if (step == WP_STEP_DEVICE ? row->spec.variants[v].on != 0 : row->spec.variants[v].gives == step)
            return true;
    return false;
}

bool wp_plan(wp_admission *it, wp_row *row, uint32_t job)
{
    wp_asker asker = {.row = row, .job = job, .over = WP_NONE};
    wp_step steps[WP_STEPS];
    bool waits;
    uint32_t count = wp_steps_of(row, steps, &waits);
    if (plan_all(it, &asker))
        return true;
    for (uint32_t i = 0; i < count; i++) {
        asker.steps |= UINT32_C(1) << steps[i];
        if (earmarks_counts(row, steps[i]) && plan_all(it, &asker))
            return true;
    }
    return false;
}

/* Draining --------------------------------------------------------------------------------------------------------- */

/* Bytes that come by themselves: of running requests, and of models that leave for no earmark. */
static uint64_t coming(const wp_admission *it, uint32_t device)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < it->count; i++) {
        const wp_row *row = &it->rows[i];
        if (!row->there || row->device != device)
            continue;
        bytes += row->promised;
        if (row->victim_of == WP_NONE && row->state == WP_UNLOADING)
            bytes += row->bytes;
        if (row->victim_of == WP_NONE && row->state == WP_SUSPENDING)
            bytes += wp_less(row->bytes, row->spec.stays);
    }
    return bytes;
}

/* Returns the draining earmark of a device. Only one earmark of a device drains at a time, so that no two earmarks count on
 * the same bytes. */
static wp_row *draining(wp_admission *it, uint32_t device)
{
    for (uint32_t i = 0; i < it->count && it->devices[device].earmarks > 0; i++)
        if (it->rows[i].there && it->rows[i].earmark.device == device && it->rows[i].earmark.state == WP_EARMARK_DRAINS)
            return &it->rows[i];
    return NULL;
}

static bool outranks(const wp_admission *it, const wp_row *row, uint32_t job, const wp_row *other)
{
    return wp_rank(row, &it->jobs[job]) > wp_rank(other, &it->jobs[wp_job_find(it, other->earmark.why)]);
}

bool wp_waits_for_drain(wp_admission *it, const wp_row *row, uint32_t job, uint32_t device)
{
    const wp_row *other = draining(it, device);
    return other && !outranks(it, row, job, other);
}

/* Busy ones that would do; none where what comes by itself is enough. */
static bool find_busy(wp_admission *it, const wp_asker *asker, uint64_t lack, uint32_t *count)
{
    *count = 0;
    memset(it->chosen, 0, it->count);
    if (lack == 0)
        return true;
    return asker->steps & (UINT32_C(1) << WP_STEP_SUSPEND | UINT32_C(1) << WP_STEP_EVICT) &&
           earmarks_collect(it, asker, count) >= lack &&
           wp_victims(it->solver, it->candidates, *count, lack, wp_host_spare(it), it->chosen).found;
}

bool wp_drain(wp_admission *it, wp_row *row, uint32_t job)
{
    uint32_t steps = wp_all_steps(row);
    for (uint32_t v = 0; v < row->spec.variant_count; v++) {
        uint32_t d = wp_way_device(row, v), count;
        const wp_device *device = &it->devices[d];
        wp_row *other = draining(it, d);
        wp_asker asker = {row, job, d, steps, true, other ? wp_number(it, other) : WP_NONE};
        if (!wp_way_allowed(row, v, steps) || barred(it, &asker) || device->taken > device->ceiling ||
            wp_waits_for_drain(it, row, job, d))
            continue;
        uint64_t need = earmarks_need_of(it, &asker, v);
        uint64_t most = wp_sum(wp_spare(device) + (other ? other->earmark.has : 0), coming(it, d));
        if (!find_busy(it, &asker, wp_less(need, most), &count))
            continue;
        if (other)
            earmark_end(it, other);
        earmark_on(it, &asker, WP_EARMARK_DRAINS, v, need);
        /* How they leave is decided when they can. */
        for (uint32_t i = 0; i < count; i++) {
            if (!it->chosen[i])
                continue;
            it->rows[it->candidates[i].model].victim_of = wp_number(it, row);
            it->rows[it->candidates[i].model].suspends = false;
        }
        return true;
    }
    return false;
}

/* Whether that model will be out of the way before the deadline, if nothing new comes. */
static bool earmarks_may_go(const wp_admission *it, const wp_asker *asker, const wp_row *row)
{
    const wp_job *job = &it->jobs[asker->job];
    if (row->spec.pinned && !row->removed)
        return false;
    if (row->spec.priority > asker->row->spec.priority && (row->running || row->tree))
        return false;
    return row->state != WP_LOADED || wp_sum(row->since, row->spec.minimum_stay) < job->deadline;
}

bool wp_hopes(const wp_admission *it, const wp_row *row, uint32_t job, uint32_t device)
{
    wp_asker asker = {(wp_row *)row, job, device, wp_all_steps(row), true, WP_NONE};
    uint64_t stays = 0, need = UINT64_MAX;
    for (uint32_t v = 0; v < row->spec.variant_count; v++)
        if (wp_way_allowed(row, v, asker.steps) && wp_way_device(row, v) == device)
            need = wi_min(need, wp_need(row, v, it->jobs[job].bytes));
    for (uint32_t i = 0; i < it->count; i++) {
        const wp_row *other = &it->rows[i];
        if (!other->there || other->device != device)
            continue;
        stays += other->residue;
        if (other == row)
            stays += other->bytes;
        else
            stays += earmarks_may_go(it, &asker, other) ? wp_stays(it, other) : other->bytes;
    }
    return need != UINT64_MAX && wp_sum(need, stays) <= it->devices[device].ceiling;
}

/* Claims go on ----------------------------------------------------------------------------------------------------- */

static uint32_t on_their_way(const wp_admission *it, wp_model by)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < it->count; i++)
        left +=
            it->rows[i].victim_of == by && (it->rows[i].state == WP_SUSPENDING || it->rows[i].state == WP_UNLOADING);
    return left;
}

static bool start_earmarked(wp_admission *it, wp_row *row)
{
    wp_earmark earmark = row->earmark;
    if (earmark.has < earmark.need)
        return false;
    earmark_end(it, row);
    row->device = earmark.device;
    earmarks_start(it, row, earmark.variant, earmark.need, earmark.why);
    return true;
}

/* Idle ones may be enough now. If all have ended and they are not, something has changed: then it waits like others. */
static bool advance_draining(wp_admission *it, wp_row *row)
{
    wp_asker asker = {row, wp_job_find(it, row->earmark.why), row->earmark.device, wp_all_steps(row), false, WP_NONE};
    wp_earmark earmark = row->earmark;
    uint32_t count;
    if (start_earmarked(it, row))
        return true;
    uint64_t lack = earmark.need - earmark.has, most = earmarks_collect(it, &asker, &count);
    if (most >= lack && wp_victims(it->solver, it->candidates, count, lack, wp_host_spare(it), it->chosen).found) {
        earmarks_let_go(it, wp_number(it, row));
        row->earmark.state = WP_EARMARK_LEAVES;
        earmarks_mark(it, count, wp_number(it, row));
        earmarks_send(it, wp_number(it, row), earmark.device, earmark.why);
        return true;
    }
    for (uint32_t i = 0; i < it->count; i++)
        if (it->rows[i].there && it->rows[i].victim_of == wp_number(it, row) && it->rows[i].running > 0)
            return false;
    if (coming(it, earmark.device) > 0)
        return false;
    earmark_end(it, row);
    return true;
}

/* The victims may have freed less than expected: then free bytes complete the earmark, or the earmark ends and a new plan
 * is made. */
static bool advance_leaving(wp_admission *it, wp_row *row)
{
    earmarks_send(it, wp_number(it, row), row->earmark.device, row->earmark.why);
    if (start_earmarked(it, row))
        return true;
    if (on_their_way(it, wp_number(it, row)) > 0)
        return false;
    earmark_end(it, row);
    return true;
}

/* The oldest earmark that has not been looked at. */
static wp_row *next_earmark(wp_admission *it, const wp_device *device, uint64_t from)
{
    wp_row *next = NULL;
    for (uint32_t i = 0; i < it->count; i++) {
        wp_row *row = &it->rows[i];
        if (row->there && row->earmark.state && wp_earmarked_on(it, row) == device && row->earmark.order >= from &&
            (!next || row->earmark.order < next->earmark.order))
            next = row;
    }
    return next;
}

bool wp_advance(wp_admission *it, wp_device *device)
{
    bool changed = false;
    uint64_t from = 0;
    while (device->earmarks > 0) {
        wp_row *row = next_earmark(it, device, from);
        if (!row)
            break;
        from = row->earmark.order + 1;
        earmark_set(it, row, row->earmark.has + wi_min(wp_spare(device), row->earmark.need - row->earmark.has));
        changed |= row->earmark.state == WP_EARMARK_DRAINS ? advance_draining(it, row) : advance_leaving(it, row);
    }
    return changed;
}

/* It waits for busy ones on another device, and could be had here at once. */
static bool could_come(wp_admission *it, wp_row *row, uint32_t device)
{
    wp_asker asker = {row, wp_job_find(it, row->earmark.why), device, wp_all_steps(row), false, WP_NONE};
    uint64_t cost;
    for (uint32_t v = 0, count; v < row->spec.variant_count && asker.job && row->residue == 0; v++) {
        if (wp_way_device(row, v) != device || !wp_way_listed(row, v, asker.steps))
            continue;
        bool room = !barred(it, &asker) && earmarks_need_of(it, &asker, v) <= wp_spare(&it->devices[device]);
        if (room || find_victims(it, &asker, v, &count, &cost))
            return true;
    }
    return false;
}

void wp_free_drains(wp_admission *it, uint32_t device)
{
    for (uint32_t i = 0; i < it->count; i++) {
        wp_row *row = &it->rows[i];
        if (row->there && row->earmark.state == WP_EARMARK_DRAINS && row->earmark.device != device && !wp_fixed(row) &&
            could_come(it, row, device))
            earmark_end(it, row);
    }
}

/* Another request of the model's takes its place, if the earmark is enough for it. */
void wp_earmark_lost(wp_admission *it, wp_row *row, wp_ticket ticket)
{
    if (!row->earmark.state || row->earmark.why != ticket)
        return;
    uint32_t first = row->first;
    if (first && wp_need(row, row->earmark.variant, it->jobs[first].bytes) <= row->earmark.need)
        row->earmark.why = it->jobs[first].ticket;
    else
        wp_dissolve(it, row);
}

/* The ceiling ------------------------------------------------------------------------------------------------------ */

static wp_row *youngest_earmark(wp_admission *it, const wp_device *device)
{
    wp_row *last = NULL;
    for (uint32_t i = 0; i < it->count; i++) {
        wp_row *row = &it->rows[i];
        if (row->there && row->earmark.state && wp_earmarked_on(it, row) == device &&
            (!last || row->earmark.order > last->earmark.order))
            last = row;
    }
    return last;
}

/* Returns the bytes that leaving models of the device will free. */
static uint64_t leaving(const wp_admission *it, const wp_device *device)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < it->count; i++) {
        const wp_row *row = &it->rows[i];
        if (!row->there || &it->devices[row->device] != device)
            continue;
        bool suspends = row->state == WP_SUSPENDING || (row->victim_of == WP_CEILING_OF && row->suspends);
        if (suspends)
            bytes += wp_less(row->bytes, row->spec.stays);
        else if (row->state == WP_UNLOADING || row->victim_of == WP_CEILING_OF)
            bytes += row->bytes;
    }
    return bytes;
}

/* All that may go, idle or, if `busy`, not; neither a stay nor requests that wait protect from this. */
static bool choose_for_ceiling(wp_admission *it, const wp_device *device, uint64_t lack, bool busy)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < it->count; i++) {
        const wp_row *row = &it->rows[i];
        bool here = row->there && (row->state == WP_LOADED || row->state == WP_SUSPENDED) && row->victim_of == WP_NONE;
        if (here && &it->devices[row->device] == device && (busy || row->running == 0) &&
            (!row->spec.pinned || row->removed) && earmarks_candidate_of(it, row, false, &it->candidates[count]))
            count++;
    }
    bool found = wp_victims(it->solver, it->candidates, count, lack, wp_host_spare(it), it->chosen).found;
    for (uint32_t i = 0; i < count && !found && busy; i++)
        it->chosen[i] = (uint8_t)it->candidates[i].count;
    if (found || busy)
        earmarks_mark(it, count, WP_CEILING_OF);
    return found;
}

void wp_relieve(wp_admission *it, wp_device *device)
{
    uint32_t number = (uint32_t)(device - it->devices);
    while (device->earmarks > 0 && wp_sum(device->taken, device->earmarked) > device->ceiling)
        wp_dissolve(it, youngest_earmark(it, device));
    if (device->taken <= device->ceiling) {
        for (uint32_t i = 0; i < it->count; i++) {
            wp_row *row = &it->rows[i];
            if (row->there && row->device == number && row->victim_of == WP_CEILING_OF &&
                (row->state == WP_LOADED || row->state == WP_SUSPENDED))
                row->victim_of = WP_NONE;
        }
        return;
    }
    uint64_t over = device->taken - device->ceiling, going = leaving(it, device);
    if (over > going && !choose_for_ceiling(it, device, over - going, false))
        (void)choose_for_ceiling(it, device, over - going, true);
    earmarks_send(it, WP_CEILING_OF, number, 0);
}
