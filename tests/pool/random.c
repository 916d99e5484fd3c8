/* Random events against an oracle that knows the rules and nothing of the tables: what is taken, who may leave, how each
 * request ends, and that nobody waits for nothing. WEIR_POOL_STEPS: how many. */
#include "pool/world.h"

#include <stdio.h>

enum { MODELS = 7, REQUESTS = 60, DEVICES = 2 };
#define HOST 150

typedef enum fate { FREE, WAITS, RUNS } fate;

typedef struct request {
    wp_ticket ticket;
    fate fate;
    uint32_t model;
    uint64_t bytes, asked;
    int32_t priority;
} request;

typedef struct model {
    bool there, removed, stops;
    wp_spec spec;
    wp_state state;
    uint64_t bytes, residue, resident, since, host;
    uint32_t variant, device; /* where it is, or was last */
} model;

typedef struct oracle {
    wp_admission *pool;
    wp_limits limits;
    uint64_t now, seed, hash, ceilings[DEVICES];
    model models[MODELS];
    request requests[REQUESTS];
    uint64_t ends;
} oracle;

static uint64_t roll(oracle *o, uint64_t below)
{
    o->seed ^= o->seed << 13;
    o->seed ^= o->seed >> 7;
    o->seed ^= o->seed << 17;
    return (o->seed >> 8) % below;
}

static bool moves(const model *m)
{
    return m->state == WP_LOADING || m->state == WP_RESUMING || m->state == WP_SUSPENDING || m->state == WP_UNLOADING;
}

static uint32_t number(const oracle *o, uint32_t which, fate at)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < REQUESTS; i++)
        count += o->requests[i].fate == at && o->requests[i].model == which;
    return count;
}

static uint64_t taken(const oracle *o, uint32_t device)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < MODELS; i++)
        if (o->models[i].there && o->models[i].device == device)
            bytes += o->models[i].bytes + o->models[i].residue;
    for (uint32_t i = 0; i < REQUESTS; i++)
        if (o->requests[i].fate == RUNS && o->models[o->requests[i].model].device == device)
            bytes += o->requests[i].bytes;
    return bytes;
}

static uint64_t host(const oracle *o)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < MODELS; i++)
        bytes += o->models[i].host;
    return bytes;
}

/* What takes more does not pass the ceiling. */
static void took(const oracle *o, uint32_t device)
{
    assert_true(taken(o, device) <= o->ceilings[device]);
}

static request *find(oracle *o, wp_ticket ticket)
{
    for (uint32_t i = 0; i < REQUESTS; i++)
        if (o->requests[i].fate != FREE && o->requests[i].ticket == ticket)
            return &o->requests[i];
    return NULL;
}

static void grant(oracle *o, request *r)
{
    const model *m = &o->models[r->model];
    assert_int_equal(r->fate, WAITS);
    assert_int_equal(m->state, WP_LOADED);
    assert_false(m->removed);
    r->fate = RUNS;
    assert_true(number(o, r->model, RUNS) <= m->spec.slots);
    if (r->bytes > 0)
        took(o, m->device);
}

static void leave(oracle *o, const wp_action *a, model *m)
{
    assert_true(m->state == WP_LOADED || m->state == WP_SUSPENDED);
    assert_int_equal(number(o, a->model, RUNS), 0);
    assert_true(!m->spec.pinned || m->removed || m->state == WP_SUSPENDED);
    m->state = a->kind == WP_SUSPEND ? WP_SUSPENDING : WP_UNLOADING;
    if (a->kind == WP_SUSPEND) {
        m->host = m->spec.host;
        assert_true(host(o) <= HOST);
    }
}

static uint32_t device_of(const model *m, uint32_t variant)
{
    uint32_t on = m->spec.variants[variant].on;
    return on ? on - 1 : m->spec.device;
}

static bool has_step(const model *m, wp_step step)
{
    for (uint32_t i = 0; i < m->spec.step_count; i++)
        if (m->spec.steps[i] == step)
            return true;
    return m->spec.step_count == 0 && step != WP_STEP_SUSPEND;
}

/* Whether the list of steps allows that variant ever. */
static bool listed(const model *m, uint32_t variant)
{
    uint32_t first = variant;
    while (first > 0 && m->spec.variants[first].same)
        first--;
    return (device_of(m, variant) == m->spec.device || has_step(m, WP_STEP_DEVICE)) &&
           (first == 0 || has_step(m, m->spec.variants[variant].gives));
}

static bool away(const model *m)
{
    return m->state == WP_UNLOADED || m->state == WP_FAILED;
}

static bool may_be_on(const model *m, uint32_t device)
{
    if (!away(m) || m->residue > 0)
        return m->device == device;
    for (uint32_t v = 0; v < m->spec.variant_count; v++)
        if (device_of(m, v) == device)
            return true;
    return false;
}

static void carry_out(oracle *o, const wp_action *a)
{
    model *m = &o->models[a->model];
    assert_true(m->there);
    o->hash = (o->hash ^ (a->kind * 31 + a->model * 7 + a->variant + a->bytes * 1000 + a->answer.cause * 77 + a->why)) *
              UINT64_C(0x100000001b3);
    switch (a->kind) {
    case WP_LOAD:
        assert_true(m->state == WP_UNLOADED || m->state == WP_FAILED);
        assert_true(a->variant < m->spec.variant_count && a->bytes == m->spec.variants[a->variant].peak);
        assert_true(m->residue == 0 || a->device == m->device);
        assert_true(listed(m, a->variant) && a->device == device_of(m, a->variant));
        m->state = WP_LOADING;
        m->stops = false;
        m->device = a->device;
        m->variant = a->variant;
        m->bytes = a->bytes;
        took(o, m->device);
        break;
    case WP_RESUME:
        assert_int_equal(m->state, WP_SUSPENDED);
        m->state = WP_RESUMING;
        m->bytes = m->resident;
        took(o, m->device);
        break;
    case WP_SUSPEND:
    case WP_UNLOAD:
        leave(o, a, m);
        break;
    case WP_GRANT:
        assert_non_null(find(o, a->why));
        grant(o, find(o, a->why));
        break;
    case WP_STOP:
        assert_int_equal(m->state, WP_LOADING);
        assert_true(!m->stops && (m->removed || number(o, a->model, WAITS) == 0));
        m->stops = true;
        break;
    default: {
        request *r = find(o, a->why);
        assert_non_null(r);
        assert_int_equal(r->fate, WAITS);
        assert_true(a->answer.cause >= WP_NEVER_FITS);
        r->fate = FREE;
        o->ends++;
    }
    }
}

static void drain(oracle *o)
{
    for (wp_action a; wp_next(o->pool, &a);)
        carry_out(o, &a);
}

static void take_actions(oracle *o)
{
    drain(o);
    for (uint32_t d = 0; d < DEVICES; d++)
        assert_true(taken(o, d) <= wp_taken(o->pool, d));
    for (uint32_t i = 0; i < MODELS; i++) {
        if (!o->models[i].there)
            continue;
        wp_view view = wp_see(o->pool, i);
        if (o->models[i].removed && !view.taken &&
            (o->models[i].state == WP_UNLOADED || o->models[i].state == WP_FAILED)) {
            o->models[i].there = false;
            continue;
        }
        assert_int_equal(view.state, o->models[i].state);
        assert_int_equal(view.running, number(o, i, RUNS));
        assert_int_equal(view.waiting, number(o, i, WAITS));
    }
}

/* Nobody waits for nothing ----------------------------------------------------------------------------------------- */

/* The first of a model's that wait. */
static const request *first_of(const oracle *o, uint32_t which)
{
    const request *first = NULL;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const request *r = &o->requests[i];
        if (r->fate == WAITS && r->model == which &&
            (!first || r->priority > first->priority || (r->priority == first->priority && r->ticket < first->ticket)))
            first = r;
    }
    return first;
}

/* Bytes that would be free there if all left that this request may send away. */
static uint64_t within_reach(const oracle *o, const request *r, uint32_t device)
{
    const model *own = &o->models[r->model];
    uint64_t bytes = taken(o, device) < o->ceilings[device] ? o->ceilings[device] - taken(o, device) : 0;
    for (uint32_t i = 0; i < MODELS; i++) {
        const model *m = &o->models[i];
        const request *first = first_of(o, i);
        bool here = m->there && (m->state == WP_LOADED || m->state == WP_SUSPENDED);
        if (!here || m == own || m->device != device || m->spec.pinned || !m->spec.may_evict ||
            !has_step(own, WP_STEP_EVICT))
            continue;
        if (m->state == WP_LOADED && o->now < m->since + m->spec.minimum_stay && own->spec.priority <= m->spec.priority)
            continue;
        int64_t rank = own->spec.priority + r->priority, other = first ? m->spec.priority + first->priority : 0;
        uint64_t since = r->asked > m->since ? r->asked : m->since;
        if (first && (other > rank || (other == rank && o->now < since + o->limits.passing)))
            continue;
        bytes += m->bytes;
    }
    return bytes;
}

static uint64_t least_need(const oracle *o, const request *r, uint32_t device)
{
    const model *m = &o->models[r->model];
    uint64_t need = UINT64_MAX;
    if (m->state == WP_LOADED)
        return r->bytes;
    if (m->state == WP_SUSPENDED)
        return m->resident + r->bytes - m->bytes;
    for (uint32_t v = 0; v < m->spec.variant_count; v++) {
        if (!listed(m, v) || device_of(m, v) != device)
            continue;
        /* measured bytes may be remembered: this is the most that they are */
        uint64_t resident = m->spec.variants[v].peak + 5, bytes = resident + r->bytes;
        need = bytes < need ? bytes : need;
    }
    return need;
}

static bool quiet(const oracle *o, uint32_t device)
{
    for (uint32_t i = 0; i < MODELS; i++)
        if (o->models[i].there && o->models[i].device == device && (moves(&o->models[i]) || number(o, i, RUNS) > 0))
            return false;
    return true;
}

static bool quiet_wherever(const oracle *o, const model *m)
{
    for (uint32_t d = 0; d < DEVICES; d++)
        if (may_be_on(m, d) && !quiet(o, d))
            return false;
    return true;
}

/* On a device where nothing moves and nothing runs, each request that waits has not enough within its reach; unless one has
 * waited for so long that the others have to, or its model may have an earmark on another device. */
static void nobody_waits_for_nothing(const oracle *o, uint32_t device)
{
    bool late = false;
    for (uint32_t i = 0; i < MODELS; i++) {
        const request *first = first_of(o, i);
        late |= o->models[i].there && first && o->now >= first->asked + o->limits.passing;
    }
    for (uint32_t i = 0; i < MODELS; i++) {
        const model *m = &o->models[i];
        const request *first = first_of(o, i);
        if (!m->there || !may_be_on(m, device) || !first || !quiet_wherever(o, m))
            continue;
        assert_true(wp_wake(o->pool) < WP_FOREVER);
        assert_true(!away(m) || has_step(m, WP_STEP_WAIT));
        bool without = m->state == WP_LOADED && first->bytes == 0;
        assert_false(without && taken(o, device) <= o->ceilings[device]);
        assert_true(late || taken(o, device) > o->ceilings[device] ||
                    least_need(o, first, device) > within_reach(o, first, device));
    }
}

/* Events ----------------------------------------------------------------------------------------------------------- */

/* Some of the steps in some order, a wait at the end most of the time; or the usual ones. */
static void any_steps(oracle *o, wp_spec *spec)
{
    if (roll(o, 2))
        return;
    for (uint32_t i = 0, from = (uint32_t)roll(o, WP_STEP_WAIT); i < WP_STEP_WAIT; i++)
        if (roll(o, 4))
            spec->steps[spec->step_count++] = (wp_step)((from + i) % WP_STEP_WAIT);
    if (roll(o, 4) || spec->step_count == 0)
        spec->steps[spec->step_count++] = WP_STEP_WAIT;
}

static wp_spec any_spec(oracle *o, uint32_t which, uint32_t device)
{
    wp_spec spec = world_spec("any", 10 + roll(o, 60));
    spec.device = device;
    spec.variant_count = 1 + (uint32_t)roll(o, 3);
    for (uint32_t v = 1; v < spec.variant_count; v++)
        spec.variants[v].peak = spec.variants[v - 1].peak - roll(o, spec.variants[v - 1].peak / 2);
    for (uint32_t v = 0; v < spec.variant_count; v++)
        spec.variants[v].resident = spec.variants[v].peak - roll(o, 5);
    for (uint32_t v = 1; v < spec.variant_count; v++) {
        spec.variants[v].on = (uint32_t)roll(o, DEVICES + 1);
        spec.variants[v].same = roll(o, 2);
        spec.variants[v].gives = roll(o, 2) ? WP_STEP_LAYERS : WP_STEP_CONTEXT;
    }
    any_steps(o, &spec);
    spec.can_suspend = roll(o, 2);
    spec.may_evict = roll(o, 8) > 0;
    spec.pinned = roll(o, 12) == 0;
    spec.shrink_first = roll(o, 2);
    spec.stays = roll(o, 4);
    spec.host = roll(o, 80);
    spec.priority = roll(o, 3) == 0;
    spec.weight = 1 + (uint32_t)roll(o, 3);
    spec.load_time = roll(o, 20 * SECOND);
    spec.resume_time = roll(o, 2 * SECOND);
    spec.evict_cost = roll(o, 3) ? 0 : roll(o, SECOND);
    spec.minimum_stay = roll(o, 2) ? 0 : roll(o, 5 * SECOND);
    spec.keep_alive = roll(o, 2) ? WP_FOREVER : roll(o, 60 * SECOND);
    spec.suspend_after = roll(o, 2) ? WP_FOREVER : roll(o, 30 * SECOND);
    spec.slots = 1 + (uint32_t)roll(o, 3);
    spec.name[0] = (char)('a' + which);
    return spec;
}

static void add(oracle *o, uint32_t which)
{
    wp_spec spec = any_spec(o, which, (uint32_t)roll(o, 3) / 2);
    wp_model place = 0;
    assert_true(wp_add(o->pool, o->now, &spec, &place));
    assert_int_equal(place, which); /* the first place that is free */
    o->models[which] = (model){.there = true, .spec = spec, .since = o->now, .device = spec.device};
}

static void ask(oracle *o)
{
    uint32_t which = (uint32_t)roll(o, MODELS), at = 0;
    while (at < REQUESTS && o->requests[at].fate != FREE)
        at++;
    if (at == REQUESTS || !o->models[which].there)
        return;
    uint64_t bytes = roll(o, 2) ? 0 : roll(o, roll(o, 5) ? 10 : 90);
    wp_request wanted = {.model = which, .bytes = bytes, .deadline = WP_FOREVER, .priority = (int32_t)(roll(o, 5) / 4)};
    if (roll(o, 4) == 0)
        wanted.deadline = o->now + roll(o, 5 * SECOND);
    o->requests[at] = (request){.fate = FREE};
    wp_answer answer = wp_ask(o->pool, o->now, &wanted);
    o->hash = (o->hash ^ (answer.ticket + answer.cause + answer.position + answer.expected)) * UINT64_C(0x100000001b3);
    if (answer.cause >= WP_NEVER_FITS)
        return;
    o->requests[at] = (request){answer.ticket, WAITS, which, bytes, o->now, wanted.priority};
    assert_true(answer.ticket > 0 && (answer.position > 0) == (answer.cause != WP_GRANTED));
    assert_false(o->models[which].removed);
    if (answer.cause == WP_GRANTED) {
        drain(o);
        grant(o, &o->requests[at]);
    }
}

static uint64_t near(oracle *o, uint64_t bytes)
{
    return bytes > 4 ? bytes - 4 + roll(o, 6) : bytes;
}

/* A load fails for want of memory: it is failed, or has another turn, in which it wants more. */
static void lack(oracle *o, model *m, uint32_t which, uint64_t wanted)
{
    uint64_t *peak = &m->spec.variants[m->variant].peak;
    *peak = wanted > *peak ? wanted : *peak + 1;
    wp_loaded(o->pool, o->now, which, false, wanted, 0);
    drain(o);
    wp_state now = wp_see(o->pool, which).state;
    if (m->state == WP_FAILED && now == WP_UNLOADED)
        m->state = WP_UNLOADED;
}

/* What a model does ends, well or not. */
static void answer(oracle *o)
{
    uint32_t which = (uint32_t)roll(o, MODELS);
    model *m = &o->models[which];
    bool ok = roll(o, 8) > 0;
    if (!m->there || !moves(m))
        return;
    wp_state from = m->state;
    uint64_t bytes = near(o, m->bytes), took_so = roll(o, 2) ? 0 : roll(o, SECOND);
    m->since = o->now;
    if (m->stops && from == WP_LOADING && roll(o, 2)) {
        m->state = WP_UNLOADED;
        m->bytes = 0;
        wp_stopped(o->pool, o->now, which);
    } else if (from == WP_LOADING || from == WP_RESUMING) {
        m->state = ok ? WP_LOADED : from == WP_LOADING ? WP_FAILED : WP_SUSPENDED;
        m->bytes = ok ? bytes : 0;
        m->resident = ok ? bytes : m->resident;
        if (ok)
            m->host = 0;
        if (from == WP_LOADING && !ok && roll(o, 2))
            lack(o, m, which, m->spec.variants[m->variant].peak + roll(o, 20));
        else if (from == WP_LOADING)
            wp_loaded(o->pool, o->now, which, ok, ok ? bytes : 0, took_so);
        else
            wp_resumed(o->pool, o->now, which, ok, bytes, took_so);
    } else if (from == WP_SUSPENDING) {
        uint64_t stays = m->spec.stays < m->bytes ? m->spec.stays : m->bytes;
        m->state = ok ? WP_SUSPENDED : WP_LOADED;
        m->bytes = ok ? stays : m->bytes;
        m->host = ok ? m->host : 0;
        wp_suspended(o->pool, o->now, which, ok, stays, took_so);
    } else {
        m->residue = roll(o, 10) ? 0 : roll(o, 4);
        m->bytes = m->host = 0;
        m->state = WP_UNLOADED;
        wp_unloaded(o->pool, o->now, which, m->residue);
    }
}

static void end_one(oracle *o, bool cancel)
{
    request *r = &o->requests[roll(o, REQUESTS)];
    if (r->fate == RUNS && !cancel) {
        r->fate = FREE;
        o->ends++;
        wp_done(o->pool, o->now, r->ticket);
    } else if (r->fate == WAITS && cancel) {
        bool waited = wp_cancel(o->pool, o->now, r->ticket, roll(o, 2));
        drain(o);
        assert_true(waited || r->fate == FREE); /* its time was over */
        assert_true(r->fate != WAITS);
    }
}

static void by_hand(oracle *o)
{
    static const wp_state states[] = {WP_LOADED, WP_SUSPENDED, WP_UNLOADED};
    wp_answer why;
    uint32_t which = (uint32_t)roll(o, MODELS);
    if (o->models[which].there)
        (void)wp_want(o->pool, o->now, which, states[roll(o, 3)], &why);
}

/* Ceilings, specs, residues, models that go and come. */
static void change(oracle *o)
{
    uint32_t which = (uint32_t)roll(o, MODELS), device = (uint32_t)roll(o, DEVICES);
    model *m = &o->models[which];
    switch (roll(o, 5)) {
    case 0:
        o->ceilings[device] = roll(o, 3) ? 100 : 40 + roll(o, 100);
        wp_ceiling(o->pool, o->now, device, o->ceilings[device]);
        break;
    case 1:
        if (!m->there)
            return;
        m->spec.pinned = roll(o, 6) == 0;
        m->spec.slots = 4;
        wp_change(o->pool, o->now, which, &m->spec);
        break;
    case 2:
        if (!m->there || roll(o, 4))
            return;
        m->removed = true;
        wp_remove(o->pool, o->now, which);
        break;
    case 3:
        for (which = 0; which < MODELS && o->models[which].there; which++)
            ;
        if (which < MODELS)
            add(o, which);
        break;
    default:
        if (!m->there || moves(m))
            return;
        if (m->state == WP_UNLOADED || m->state == WP_FAILED)
            m->residue = roll(o, 2);
        else if (m->state == WP_LOADED)
            m->resident = m->bytes = near(o, m->bytes);
        else
            return;
        wp_measured(o->pool, o->now, which, m->residue && !m->bytes ? m->residue : m->bytes);
    }
}

static void step(oracle *o)
{
    uint64_t which = roll(o, 100);
    o->now += roll(o, 3) ? roll(o, SECOND / 20) : 0;
    if (which < 35)
        ask(o);
    else if (which < 60)
        end_one(o, false);
    else if (which < 85)
        answer(o);
    else if (which < 88)
        end_one(o, true);
    else if (which < 90)
        by_hand(o);
    else if (which < 91)
        change(o);
    else {
        if (which == 99)
            o->now += roll(o, 10 * SECOND);
        wp_tick(o->pool, o->now);
        assert_true(wp_wake(o->pool) > o->now);
    }
    take_actions(o);
    assert_true(wp_invariants(o->pool));
    for (uint32_t d = 0; d < DEVICES; d++)
        nobody_waits_for_nothing(o, d);
}

/* All requests end when all that was begun ends. */
static void come_to_an_end(oracle *o)
{
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t k = 0; k < 200; k++) {
            end_one(o, false);
            take_actions(o);
            answer(o);
            take_actions(o);
        }
        o->now += 5 * SECOND;
        wp_tick(o->pool, o->now);
        take_actions(o);
    }
    for (uint32_t i = 0; i < REQUESTS; i++)
        assert_int_equal(o->requests[i].fate, FREE);
}

static uint64_t run(uint64_t seed, uint64_t steps)
{
    oracle *o = calloc(1, sizeof *o);
    assert_non_null(o);
    *o = (oracle){.seed = seed, .now = SECOND, .limits = world_limits()};
    o->limits.host = HOST;
    o->limits.passing = roll(o, 3) * SECOND;
    o->limits.queue = 40;
    o->limits.longest = 30 * SECOND;
    o->pool = wp_admission_create(&o->limits, DEVICES);
    assert_non_null(o->pool);
    for (uint32_t d = 0; d < DEVICES; d++)
        wp_ceiling(o->pool, o->now, d, o->ceilings[d] = 100);
    for (uint32_t i = 0; i < MODELS; i++)
        add(o, i);
    for (uint64_t i = 0; i < steps; i++)
        step(o);
    come_to_an_end(o);
    uint64_t hash = o->hash ^ o->ends;
    assert_true(o->ends > 0);
    wp_admission_destroy(o->pool);
    free(o);
    return hash;
}

static uint64_t all_steps(void)
{
    const char *text = getenv("WEIR_POOL_STEPS");
    return text ? strtoull(text, NULL, 10) : 100000;
}

static void random_events_keep_the_rules(void **state)
{
    (void)state;
    enum { STEPS = 2000 };
    for (uint64_t i = 0; i < all_steps() / STEPS; i++) {
        (void)run(i * UINT64_C(0x9e3779b97f4a7c15) + 1, STEPS);
    }
}

/* Once more with other addresses in between. */
static void the_same_events_give_the_same_actions(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 4; i++) {
        uint64_t hash = run(i, 2000);
        void *between = malloc(4096 * i);
        assert_int_equal(run(i, 2000), hash);
        free(between);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_events_keep_the_rules),
        cmocka_unit_test(the_same_events_give_the_same_actions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
