/* The ledger of cores: the leases, the threads that wait, and their order.
 *
 * Invariant: what is leased never exceeds what there is, but for leases that are older than a smaller number of cores.
 * A line has one lease for all of its computing threads, as the callers of an ONNX Runtime session share the session's
 * threads. A thread that finds no cores stands in the queue, and whoever gives some back, or comes, serves the queue:
 * the waiting thread is within its line's lease when it is woken. Nobody passes by the first of the queue, so that a
 * line that needs many cores gets them, and a thread joins its line's lease only while that would go on anyway. */
#include <weir/cores.h>

#include "base/values.h"
#include "base/system.h"
#include "cores/crowd.h"

#include <stdio.h>

struct weir_cores {
    weir_cores *next;
    weir_cores_stats told;
    uint64_t served;   /* the number of the line's newest lease, counted over all lines */
    uint32_t users;    /* threads within the line's lease, and threads that wait */
    uint32_t within;   /* threads within the lease; 0: the line has no lease */
    uint64_t since;    /* when the lease began */
    uint64_t left;     /* when the lease before ended; 0: there was none */
    weir_cores *other; /* the next line with a lease */
    weir_cores **link;
};

/* What a thread is within. */
typedef struct holder {
    weir_cores *of;        /* NULL: nothing */
    uint32_t cores;        /* of the lease, when it was looked at last, */
    uint64_t epoch;        /* and the ledger's then */
    uint64_t since;        /* when the lease began */
    uint32_t depth;        /* takes less gives */
    bool sampled;          /* the crowd wants to know, */
    wi_crowd_sample begun; /* and where its sample begins */
} holder;

typedef struct waiter {
    struct waiter *next;
    weir_cores *of;
    bool granted, waits, asks; /* asks `stops` again */
    uint64_t from;             /* when it began to wait */
    pthread_cond_t wake;
} waiter;

static _Thread_local holder mine;

static struct {
    uint32_t total, leased, peak, lines, waiting;
    uint64_t served;
    weir_cores *first, **last;
    weir_cores *leases; /* lines that have one */
    waiter *queue, **end;
    wi_crowd crowd;
    atomic_uint_fast64_t epoch; /* counts whatever changes a share; odd: somebody waits */
} ledger = {.last = &ledger.first, .end = &ledger.queue};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
WI_FREE_AFTER_FORKS(lock)

static void enter_ledger(void)
{
    watch_forks();
    pthread_mutex_lock(&lock);
}

/* Has every lease looked at again at its next renewal. */
static void note_ledger_change(void)
{
    uint64_t next = (atomic_load(&ledger.epoch) | 1) + 1;
    atomic_store(&ledger.epoch, next + (ledger.waiting > 0));
}

/* Shares ----------------------------------------------------------------------------------------------------------- */

static uint32_t least_of_line(const weir_cores *of)
{
    return (uint32_t)wi_min(of->told.least, ledger.total);
}

static uint32_t most_of_line(const weir_cores *of)
{
    return of->told.most ? (uint32_t)wi_min(of->told.most, ledger.total) : ledger.total;
}

static uint32_t free_cores(void)
{
    return ledger.leased < ledger.total ? ledger.total - ledger.leased : 0;
}

/* A line that needs all cores takes turns with the others instead of sharing. */
static bool line_shares(const weir_cores *of)
{
    return least_of_line(of) < ledger.total;
}

/* Lines that compute, or would: each of them once. */
static uint32_t sharers(void)
{
    uint32_t count = 0;
    for (const weir_cores *of = ledger.first; of; of = of->next)
        count += of->users > 0 && line_shares(of);
    return count > 0 ? count : 1;
}

/* The cores that a line's lease should have now: an equal part, and of what is left over when parts are equal one more for
 * those that come first. */
static uint32_t share_of_line(const weir_cores *of)
{
    uint32_t count = sharers(), part = ledger.total / count, larger = 0;
    for (const weir_cores *it = ledger.leases; it; it = it->other)
        larger += it != of && line_shares(it) && it->told.now > part;
    uint32_t share = part + (larger < ledger.total % count);
    share = (uint32_t)wi_min(share, wi_min(most_of_line(of), ledger.crowd.limit));
    return (uint32_t)wi_max(share, least_of_line(of));
}

static void resize_lease(weir_cores *of, uint32_t cores)
{
    ledger.leased = ledger.leased - of->told.now + cores;
    of->told.now = cores;
    if (cores > 0)
        of->told.last = cores;
    ledger.peak = (uint32_t)wi_max(ledger.peak, ledger.leased);
}

static void begin_lease(weir_cores *of)
{
    resize_lease(of, (uint32_t)wi_min(free_cores(), share_of_line(of)));
    of->since = wi_now();
    of->served = ++ledger.served;
    of->other = ledger.leases;
    of->link = &ledger.leases;
    if (of->other)
        of->other->link = &of->other;
    ledger.leases = of;
}

static void cores_ledger_end_lease(weir_cores *of)
{
    resize_lease(of, 0);
    *of->link = of->other;
    if (of->other)
        of->other->link = of->link;
}

/* The calling thread leaves the lease that it is within. */
static void leave_lease(void)
{
    weir_cores *of = mine.of;
    of->users--;
    if (--of->within == 0) {
        cores_ledger_end_lease(of);
        of->left = wi_now();
    }
    mine.of = NULL;
    note_ledger_change();
}

/* The queue -------------------------------------------------------------------------------------------------------- */

/* Of lines that have no lease; NULL: only threads of others wait. */
static waiter *first_waiter(void)
{
    waiter *best = NULL;
    for (waiter *it = ledger.queue; it; it = it->next)
        if (it->of->within == 0 && (!best || it->of->served < best->of->served))
            best = it;
    return best;
}

/* Whether the lease has to end: other lines wait, and its turn is over, or cores are free that are too few for the first of
 * them. */
static bool is_lease_over(const weir_cores *of, uint64_t now)
{
    return first_waiter() && (now - of->since >= WEIR_TURN || free_cores() > 0);
}

static void join_queue(waiter *w)
{
    w->next = NULL;
    *ledger.end = w;
    ledger.end = &w->next;
    ledger.waiting++;
    w->of->users++;
    note_ledger_change();
}

static void cores_ledger_leave_queue(waiter *w)
{
    waiter **at = &ledger.queue;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    if (ledger.end == &w->next)
        ledger.end = at;
    ledger.waiting--;
    w->of->users--;
    note_ledger_change();
}

/* From the queue into the line's lease. */
static void admit_waiter(waiter *w)
{
    cores_ledger_leave_queue(w);
    w->of->users++;
    w->of->within++;
    w->of->told.leases++;
    w->of->told.waits += w->waits;
    w->of->told.waited += w->waits ? wi_now() - w->from : 0;
    w->granted = true;
    pthread_cond_signal(&w->wake);
}

static void admit_waiters(const weir_cores *of)
{
    for (waiter *w = ledger.queue, *next; w; w = next) {
        next = w->next;
        if (w->of == of)
            admit_waiter(w);
    }
}

/* Gives cores to lines that wait, in turn, as far as they go. When no other line waits, a lease goes on, and threads of its
 * line join it. */
static void serve_queue(void)
{
    waiter *w;
    while ((w = first_waiter()) && free_cores() >= least_of_line(w->of)) {
        weir_cores *of = w->of;
        begin_lease(of);
        admit_waiters(of);
    }
    uint64_t now = ledger.queue ? wi_now() : 0;
    for (weir_cores *of = ledger.leases; ledger.queue && of; of = of->other)
        if (!is_lease_over(of, now))
            admit_waiters(of);
}

/* With the lock. It is free while `stops` is asked. */
static bool is_waiter_wanted(waiter *w, bool (*stops)(void *user), void *user)
{
    w->asks = false;
    pthread_mutex_unlock(&lock);
    bool gone = stops(user);
    pthread_mutex_lock(&lock);
    return !gone || w->granted;
}

static weir_status wait_in_queue(weir_cores *of, bool (*stops)(void *user), void *user)
{
    waiter w = {.of = of, .wake = PTHREAD_COND_INITIALIZER};
    join_queue(&w);
    serve_queue();
    w.waits = !w.granted;
    w.from = w.waits ? wi_now() : 0;
    while (!w.granted) {
        if (stops && !is_waiter_wanted(&w, stops, user)) {
            cores_ledger_leave_queue(&w);
            of->told.waited += wi_now() - w.from;
            serve_queue();
            break;
        }
        if (!w.granted && !(stops && w.asks))
            pthread_cond_wait(&w.wake, &lock);
    }
    pthread_cond_destroy(&w.wake);
    if (!w.granted)
        return weir_fail(WEIR_ERR_CANCELLED, "%s: nobody waits for its cores any more", of->told.name);
    mine = (holder){.of = of, .cores = of->told.now, .since = of->since, .depth = 1};
    mine.epoch = atomic_load(&ledger.epoch);
    return WEIR_OK;
}

/* The crowd -------------------------------------------------------------------------------------------------------- */

/* Whether the crowd watches the line: the line chooses its own number of coupled threads. */
static bool is_line_sampled(const weir_cores *of)
{
    return ledger.total > 1 && of->told.least != of->told.most;
}

/* Asks the system, which takes longer than the rest of a lease, only where the crowd wants to know. */
static void begin_sample(holder *it, bool sampled)
{
    it->sampled = sampled;
    it->begun = sampled ? wi_crowd_look(wi_now()) : (wi_crowd_sample){.passed = it->since};
}

/* With the lock. */
static void end_sample(holder *it, uint64_t now)
{
    if (!it->sampled) {
        it->begun.passed = now;
        return;
    }
    wi_crowd_sample from = it->begun, to = wi_crowd_look(now);
    wi_crowd_sample sample = {to.passed - from.passed, to.ran - from.ran, to.put_off - from.put_off};
    it->begun = to;
    if (wi_crowd_add(&ledger.crowd, ledger.total, it->cores, &sample))
        note_ledger_change();
}

/* Leases ----------------------------------------------------------------------------------------------------------- */

static weir_status check_cores(const weir_cores *of, const uint32_t *cores, const char *call)
{
    return of && cores ? WEIR_OK : weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
}

static weir_status inside_other_lease(weir_cores *of, uint32_t *cores)
{
    enter_ledger();
    *cores = (uint32_t)wi_min(mine.cores, most_of_line(of));
    pthread_mutex_unlock(&lock);
    return WEIR_OK;
}

weir_status weir_cores_take(weir_cores *of, bool (*stops)(void *user), void *user, uint32_t *cores)
{
    WI_ENTER();
    weir_status status = check_cores(of, cores, "weir_cores_take");
    if (status != WEIR_OK)
        return status;
    if (mine.of) {
        mine.depth++;
        return inside_other_lease(of, cores);
    }
    enter_ledger();
    status = wait_in_queue(of, stops, user);
    bool sampled = is_line_sampled(of);
    pthread_mutex_unlock(&lock);
    if (status != WEIR_OK)
        return status;
    begin_sample(&mine, sampled);
    *cores = mine.cores;
    return WEIR_OK;
}

/* A model that hands a token to its reader has no lease meanwhile, and wants one again at once. */
static bool other_lines_come_back(const weir_cores *of, uint64_t time)
{
    for (const weir_cores *it = ledger.first; it; it = it->next)
        if (it != of && it->left > 0 && time - it->left < WEIR_TURN)
            return true;
    return false;
}

/* With the lock. Becomes what the lease should have now, unless it would become less for the sake of somebody who could not
 * begin with that; more only when the others stay away. */
static void adjust_lease(weir_cores *of, uint64_t time)
{
    uint32_t share = share_of_line(of), now = of->told.now;
    const waiter *next = first_waiter();
    bool later = share > now && other_lines_come_back(of, time);
    if (share < now && (!next || free_cores() + now - share >= least_of_line(next->of))) {
        resize_lease(of, share);
        note_ledger_change();
        serve_queue();
    } else if (share > now && !next && !later && free_cores() > 0) {
        resize_lease(of, (uint32_t)wi_min(share, now + free_cores()));
        note_ledger_change();
    }
    mine.cores = of->told.now;
    mine.epoch = later ? 0 : atomic_load(&ledger.epoch); /* 0: it is looked at again at the next renewal */
}

static weir_status look_at_lease(weir_cores *of, bool (*stops)(void *user), void *user, uint64_t now)
{
    weir_status status = WEIR_OK;
    enter_ledger();
    if (now - mine.begun.passed >= WI_CROWD_WINDOW)
        end_sample(&mine, now);
    adjust_lease(of, now);
    bool over = is_lease_over(of, now), sampled = is_line_sampled(of);
    if (over) {
        end_sample(&mine, now);
        leave_lease();
        status = wait_in_queue(of, stops, user);
    }
    pthread_mutex_unlock(&lock);
    if (over && status == WEIR_OK)
        begin_sample(&mine, sampled);
    return status;
}

weir_status weir_cores_renew(weir_cores *of, bool (*stops)(void *user), void *user, uint32_t *cores)
{
    WI_ENTER();
    weir_status status = check_cores(of, cores, "weir_cores_renew");
    if (status == WEIR_OK && !mine.of)
        status = weir_fail(WEIR_ERR_INVALID, "weir_cores_renew: this thread holds no lease");
    if (status != WEIR_OK)
        return status;
    if (mine.depth > 1)
        return inside_other_lease(of, cores);
    uint64_t now = wi_now(), epoch = atomic_load_explicit(&ledger.epoch, memory_order_relaxed);
    bool changed = epoch != mine.epoch || (epoch % 2 == 1 && now - mine.since >= WEIR_TURN);
    if (changed || now - mine.begun.passed >= WI_CROWD_WINDOW)
        status = look_at_lease(mine.of, stops, user, now);
    if (status == WEIR_OK)
        *cores = mine.cores;
    return status;
}

void weir_cores_give(weir_cores *of)
{
    if (!of || !mine.of || --mine.depth > 0 || atomic_load(&wi_forked))
        return;
    enter_ledger();
    if (mine.sampled)
        end_sample(&mine, wi_now());
    leave_lease();
    serve_queue();
    pthread_mutex_unlock(&lock);
}

void weir_cores_wake(weir_cores *of)
{
    if (!of || atomic_load(&wi_forked))
        return;
    enter_ledger();
    for (waiter *w = ledger.queue; w; w = w->next)
        if (w->of == of) {
            w->asks = true;
            pthread_cond_signal(&w->wake);
        }
    pthread_mutex_unlock(&lock);
}

/* Lines ------------------------------------------------------------------------------------------------------------ */

static uint32_t cores_of_process(void)
{
    uint32_t cores = wi_option_cores();
    return cores > 0 ? cores : wi_cores_of_machine("");
}

static void set_ledger_total(uint32_t cores)
{
    if (cores == ledger.total)
        return;
    ledger.total = cores;
    wi_crowd_begin(&ledger.crowd, cores);
    note_ledger_change();
    serve_queue();
}

weir_status weir_cores_open(const char *name, uint32_t least, uint32_t most, weir_cores **out)
{
    WI_ENTER();
    if (!out || least == 0 || (most != 0 && least > most))
        return weir_fail(WEIR_ERR_INVALID, "weir_cores_open: %s", out ? "least is 0, or more than most" : "NULL");
    wi_watch_forks();
    uint32_t cores = cores_of_process();
    weir_cores *of = calloc(1, sizeof *of);
    if (!of)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for a line in the ledger of cores");
    of->told = (weir_cores_stats){.struct_size = sizeof of->told, .least = least, .most = most};
    snprintf(of->told.name, sizeof of->told.name, "%s", name ? name : "");
    enter_ledger();
    *ledger.last = of;
    ledger.last = &of->next;
    ledger.lines++;
    set_ledger_total(cores);
    pthread_mutex_unlock(&lock);
    *out = of;
    return WEIR_OK;
}

void weir_cores_close(weir_cores *of)
{
    if (!of || atomic_load(&wi_forked))
        return;
    enter_ledger();
    wi_assert(of->users == 0);
    weir_cores **at = &ledger.first;
    while (*at != of)
        at = &(*at)->next;
    *at = of->next;
    if (ledger.last == &of->next)
        ledger.last = at;
    ledger.lines--;
    pthread_mutex_unlock(&lock);
    free(of);
}

weir_status weir_cores_info(weir_cores_totals *out)
{
    WI_ENTER();
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_cores_info: NULL");
    uint32_t cores = cores_of_process();
    enter_ledger();
    if (!ledger.first && ledger.leased == 0)
        set_ledger_total(cores);
    weir_cores_totals now = {.cores = ledger.total,
                             .leased = ledger.leased,
                             .peak = ledger.peak,
                             .lines = ledger.lines,
                             .waiting = ledger.waiting,
                             .coupled = ledger.crowd.limit};
    pthread_mutex_unlock(&lock);
    return wi_copy_out(out, out->struct_size, &now, sizeof now)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "weir_cores_info: member struct_size is not set");
}

weir_status weir_cores_look(size_t index, weir_cores_stats *out)
{
    WI_ENTER();
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_cores_look: NULL");
    weir_cores_stats now = {0};
    enter_ledger();
    const weir_cores *of = ledger.first;
    for (size_t i = 0; of && i < index; i++)
        of = of->next;
    if (of)
        now = of->told;
    pthread_mutex_unlock(&lock);
    if (!of)
        return weir_fail(WEIR_ERR_NOT_FOUND, "no model has a line number %zu in the ledger of cores", index);
    return wi_copy_out(out, out->struct_size, &now, sizeof now)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "weir_cores_look: member struct_size is not set");
}
