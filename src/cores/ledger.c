/* The ledger of cores: what is leased, who waits, and who comes next.
 *
 * Invariant: what is leased never exceeds what there is, but for leases that are older than a smaller number of cores.
 * A lease is of a thread, in whose own record it stands (`mine`); the records of all leases are in a list. A thread that
 * finds no cores stands in the queue, and whoever gives some back, or comes, serves the queue: the waiting thread has its
 * cores when it is woken. Nobody passes by the first of the queue, so that a line that needs many cores gets them. */
#include <weir/cores.h>

#include "base/options.h"
#include "base/system.h"
#include "cores/crowd.h"
#include "cores/machine.h"

#include <stdio.h>
#include <sys/resource.h>

struct weir_cores {
    weir_cores *next;
    weir_cores_stats told;
    uint64_t served; /* the number of its newest lease among all of them */
    uint32_t users;  /* threads that hold leases or wait */
};

/* A thread's lease. Others read `of` and `cores` with the lock; all else is the thread's own. */
typedef struct lease {
    weir_cores *of; /* NULL: none */
    struct lease *next, **link;
    uint32_t cores;
    uint32_t depth; /* takes less gives */
    uint64_t since; /* its turn began */
    uint64_t epoch; /* of the ledger when it was looked at last */
    uint64_t seen;  /* where the sample for the crowd begins, by the clock */
    uint64_t ran, put_off;
} lease;

typedef struct waiter {
    struct waiter *next;
    weir_cores *of;
    lease *gets;
    bool granted, asks; /* asks `stops` again */
    pthread_cond_t wake;
} waiter;

static _Thread_local lease mine;

static struct {
    uint32_t total, leased, peak, lines, waiting;
    uint64_t served;
    weir_cores *first, **last;
    lease *leases;
    waiter *queue, **end;
    wi_crowd crowd;
    atomic_uint_fast64_t epoch; /* counts whatever changes a share; odd: somebody waits */
} ledger = {.last = &ledger.first, .end = &ledger.queue};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
WI_FREE_AFTER_FORKS(lock)

static void enter(void)
{
    watch_forks();
    pthread_mutex_lock(&lock);
}

/* Has every lease looked at again at its next renewal. */
static void note_change(void)
{
    uint64_t next = (atomic_load(&ledger.epoch) | 1) + 1;
    atomic_store(&ledger.epoch, next + (ledger.waiting > 0));
}

/* Shares ----------------------------------------------------------------------------------------------------------- */

static uint32_t least_of(const weir_cores *of)
{
    return (uint32_t)wi_min(of->told.least, ledger.total);
}

static uint32_t most_of(const weir_cores *of)
{
    return of->told.most ? (uint32_t)wi_min(of->told.most, ledger.total) : ledger.total;
}

static uint32_t free_cores(void)
{
    return ledger.leased < ledger.total ? ledger.total - ledger.leased : 0;
}

/* A line that needs all cores takes turns with the others instead of sharing. */
static bool shares(const weir_cores *of)
{
    return least_of(of) < ledger.total;
}

static uint32_t sharers(void)
{
    uint32_t count = 0;
    for (const lease *it = ledger.leases; it; it = it->next)
        count += shares(it->of);
    for (const waiter *it = ledger.queue; it; it = it->next)
        count += shares(it->of);
    return count > 0 ? count : 1;
}

/* The cores that a lease of the line should have now: an equal part, and of what is left over when parts are equal one
 * more for those that come first. `own`: the lease that is looked at. */
static uint32_t share_of(const weir_cores *of, const lease *own)
{
    uint32_t count = sharers(), part = ledger.total / count, larger = 0;
    for (const lease *it = ledger.leases; it; it = it->next)
        larger += it != own && shares(it->of) && it->cores > part;
    uint32_t share = part + (larger < ledger.total % count);
    share = (uint32_t)wi_min(share, wi_min(most_of(of), ledger.crowd.limit));
    return (uint32_t)wi_max(share, least_of(of));
}

/* The queue -------------------------------------------------------------------------------------------------------- */

static waiter *first_waiter(void)
{
    waiter *best = ledger.queue;
    for (waiter *it = ledger.queue; it; it = it->next)
        if (it->of->served < best->of->served)
            best = it;
    return best;
}

static void join_queue(waiter *w)
{
    w->next = NULL;
    *ledger.end = w;
    ledger.end = &w->next;
    ledger.waiting++;
    w->of->users++;
    note_change();
}

static void leave_queue(waiter *w)
{
    waiter **at = &ledger.queue;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    if (ledger.end == &w->next)
        ledger.end = at;
    ledger.waiting--;
    w->of->users--;
    note_change();
}

static void resize(lease *it, uint32_t cores)
{
    ledger.leased = ledger.leased - it->cores + cores;
    it->of->told.now = it->of->told.now - it->cores + cores;
    if (cores > 0)
        it->of->told.last = cores;
    it->cores = cores;
    ledger.peak = (uint32_t)wi_max(ledger.peak, ledger.leased);
}

static void begin_lease(lease *it, weir_cores *of, uint32_t cores)
{
    *it = (lease){.of = of, .depth = 1, .since = wi_now(), .next = ledger.leases, .link = &ledger.leases};
    if (it->next)
        it->next->link = &it->next;
    ledger.leases = it;
    of->users++;
    of->told.leases++;
    of->served = ++ledger.served;
    resize(it, cores);
}

static void end_lease(lease *it)
{
    resize(it, 0);
    it->of->users--;
    *it->link = it->next;
    if (it->next)
        it->next->link = it->link;
    it->of = NULL;
    note_change();
}

/* Gives cores to those who wait, in turn, as far as they go. */
static void serve(void)
{
    for (waiter *w; (w = first_waiter()) && free_cores() >= least_of(w->of);) {
        uint32_t cores = (uint32_t)wi_min(free_cores(), share_of(w->of, w->gets));
        leave_queue(w);
        begin_lease(w->gets, w->of, cores);
        w->granted = true;
        pthread_cond_signal(&w->wake);
    }
}

/* With the lock. It is free while `stops` is asked. */
static bool still_wanted(waiter *w, bool (*stops)(void *user), void *user)
{
    w->asks = false;
    pthread_mutex_unlock(&lock);
    bool gone = stops(user);
    pthread_mutex_lock(&lock);
    return !gone || w->granted;
}

static weir_status wait_in_queue(weir_cores *of, bool (*stops)(void *user), void *user)
{
    waiter w = {.of = of, .gets = &mine, .wake = PTHREAD_COND_INITIALIZER};
    join_queue(&w);
    serve();
    bool waits = !w.granted;
    uint64_t from = waits ? wi_now() : 0;
    while (!w.granted) {
        if (stops && !still_wanted(&w, stops, user)) {
            leave_queue(&w);
            serve();
            break;
        }
        if (!w.granted && !(stops && w.asks))
            pthread_cond_wait(&w.wake, &lock);
    }
    if (waits) {
        of->told.waits += w.granted;
        of->told.waited += wi_now() - from;
    }
    pthread_cond_destroy(&w.wake);
    mine.epoch = atomic_load(&ledger.epoch);
    return w.granted ? WEIR_OK
                     : weir_fail(WEIR_ERR_CANCELLED, "%s: nobody waits for its cores any more", of->told.name);
}

/* The crowd -------------------------------------------------------------------------------------------------------- */

/* Of threads that are coupled: a line that chooses its own number of them. */
static bool is_sampled(const lease *it)
{
    return ledger.total > 1 && it->of->told.least != it->of->told.most;
}

static void begin_sample(lease *it, uint64_t now)
{
    struct rusage used;
    getrusage(RUSAGE_THREAD, &used);
    it->seen = now;
    it->put_off = wi_clock ? 0 : (uint64_t)used.ru_nivcsw; /* in simulated time nobody is */
    it->ran = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * UINT64_C(1000000000) +
              (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000;
}

/* With the lock. */
static void end_sample(lease *it, uint64_t now)
{
    lease before = *it;
    if (!is_sampled(it))
        return;
    begin_sample(it, now);
    wi_crowd_sample sample = {now - before.seen, it->ran - before.ran, it->put_off - before.put_off};
    if (wi_crowd_add(&ledger.crowd, ledger.total, it->cores, &sample))
        note_change();
}

/* Leases ----------------------------------------------------------------------------------------------------------- */

static weir_status check(const weir_cores *of, const uint32_t *cores, const char *call)
{
    return of && cores ? WEIR_OK : weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
}

static weir_status inside_another(weir_cores *of, uint32_t *cores)
{
    enter();
    *cores = (uint32_t)wi_min(mine.cores, most_of(of));
    pthread_mutex_unlock(&lock);
    return WEIR_OK;
}

weir_status weir_cores_take(weir_cores *of, bool (*stops)(void *user), void *user, uint32_t *cores)
{
    WI_ENTER();
    weir_status status = check(of, cores, "weir_cores_take");
    if (status != WEIR_OK)
        return status;
    if (mine.of) {
        mine.depth++;
        return inside_another(of, cores);
    }
    enter();
    status = wait_in_queue(of, stops, user);
    pthread_mutex_unlock(&lock);
    if (status != WEIR_OK)
        return status;
    begin_sample(&mine, wi_now());
    *cores = mine.cores;
    return WEIR_OK;
}

/* With the lock. Whether the lease has to end: others wait, and its turn is over, or cores are free that are too few for
 * the first of them. */
static bool is_over(uint64_t now)
{
    return ledger.queue && (now - mine.since >= WEIR_TURN || free_cores() > 0);
}

/* With the lock. Becomes what a lease should have now, unless it would become less for the sake of somebody who could not
 * begin with that. */
static void adjust(void)
{
    uint32_t share = share_of(mine.of, &mine);
    const waiter *next = first_waiter();
    if (share < mine.cores && (!next || free_cores() + mine.cores - share >= least_of(next->of))) {
        resize(&mine, share);
        note_change();
        serve();
    } else if (share > mine.cores && !next && free_cores() > 0) {
        resize(&mine, (uint32_t)wi_min(share, mine.cores + free_cores()));
        note_change();
    }
    mine.epoch = atomic_load(&ledger.epoch);
}

static weir_status look_again(weir_cores *of, bool (*stops)(void *user), void *user, uint64_t now)
{
    weir_status status = WEIR_OK;
    enter();
    if (now - mine.seen >= WI_CROWD_WINDOW)
        end_sample(&mine, now);
    adjust();
    bool over = is_over(now);
    if (over) {
        end_sample(&mine, now);
        end_lease(&mine);
        status = wait_in_queue(of, stops, user);
    }
    pthread_mutex_unlock(&lock);
    if (over && status == WEIR_OK)
        begin_sample(&mine, wi_now());
    return status;
}

weir_status weir_cores_renew(weir_cores *of, bool (*stops)(void *user), void *user, uint32_t *cores)
{
    WI_ENTER();
    weir_status status = check(of, cores, "weir_cores_renew");
    if (status == WEIR_OK && !mine.of)
        status = weir_fail(WEIR_ERR_INVALID, "weir_cores_renew: this thread holds no lease");
    if (status != WEIR_OK)
        return status;
    if (mine.depth > 1)
        return inside_another(of, cores);
    uint64_t now = wi_now(), epoch = atomic_load_explicit(&ledger.epoch, memory_order_relaxed);
    bool changed = epoch != mine.epoch || (epoch % 2 == 1 && now - mine.since >= WEIR_TURN);
    if (changed || now - mine.seen >= WI_CROWD_WINDOW)
        status = look_again(of, stops, user, now);
    if (status == WEIR_OK)
        *cores = mine.cores;
    return status;
}

void weir_cores_give(weir_cores *of)
{
    if (!of || !mine.of || --mine.depth > 0 || atomic_load(&wi_forked))
        return;
    enter();
    end_sample(&mine, wi_now());
    end_lease(&mine);
    serve();
    pthread_mutex_unlock(&lock);
}

void weir_cores_wake(weir_cores *of)
{
    if (!of || atomic_load(&wi_forked))
        return;
    enter();
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

static void set_total(uint32_t cores)
{
    if (cores == ledger.total)
        return;
    ledger.total = cores;
    wi_crowd_begin(&ledger.crowd, cores);
    note_change();
    serve();
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
    enter();
    *ledger.last = of;
    ledger.last = &of->next;
    ledger.lines++;
    set_total(cores);
    pthread_mutex_unlock(&lock);
    *out = of;
    return WEIR_OK;
}

void weir_cores_close(weir_cores *of)
{
    if (!of || atomic_load(&wi_forked))
        return;
    enter();
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
    enter();
    if (!ledger.first && ledger.leased == 0)
        set_total(cores);
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
    enter();
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
