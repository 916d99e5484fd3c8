/* Runtimes: a shared runtime for each device, and owned runtimes that a program makes. */
#include "runtime/runtime.h"
#include "base/texts.h"
#include "base/values.h"
#include "base/system.h"
#include "memory/adaptors/adaptors.h"
#include "memory/stack.h"
#include "runtime/limits.h"
#include "runtime/watch/watch.h"

#include <stdio.h>

/* All runtimes, under the list's lock. A shared one is never removed. */
static weir_runtime *runtimes;
static pthread_rwlock_t list_lock = PTHREAD_RWLOCK_INITIALIZER;

/* The shared runtimes, each published when ready, so that a look-up takes no lock. */
static _Atomic(weir_runtime *) by_device[WI_DRIVERS][WI_ORDINALS];

static _Atomic(weir_runtime *) *runtime_slot(const wi_driver *driver, int ordinal)
{
    wi_assert(ordinal >= 0 && ordinal < WI_ORDINALS);
    return &by_device[wi_driver_number(driver)][ordinal];
}

/* A runtime is made under a lock of its device: a start may take seconds, for which other devices do not wait. Drivers
 * lock what they share. */
static pthread_mutex_t start_locks[WI_DRIVERS][WI_ORDINALS];

static void runtime_make_start_locks(void)
{
    for (int driver = 0; driver < WI_DRIVERS; driver++)
        for (int ordinal = 0; ordinal < WI_ORDINALS; ordinal++)
            pthread_mutex_init(&start_locks[driver][ordinal], NULL);
}

static pthread_mutex_t *runtime_start_lock(const wi_driver *driver, int ordinal)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    wi_assert(ordinal >= 0 && ordinal < WI_ORDINALS);
    pthread_once(&once, runtime_make_start_locks);
    return &start_locks[wi_driver_number(driver)][ordinal];
}

/* Making and ending ------------------------------------------------------------------------------------------------ */

/* The least of the device's free memory and of what is left of the limits for this process, less a margin for others: the
 * larger of a tenth and 512 MiB. */
static weir_status runtime_default_budget(const weir_runtime *runtime, uint64_t *budget)
{
    uint64_t available, total;
    wi_device_limits limits = {.most = UINT64_MAX, .left = UINT64_MAX};
    weir_status status = runtime->driver->memory(runtime->device, &available, &total);
    if (status != WEIR_OK)
        return status;
    bool limited = wi_limits_read(runtime, &limits) && limits.left < available;
    available = wi_min(available, limits.left);
    uint64_t margin = wi_max(available / 10, 512 * WI_MIB);
    if (available <= margin)
        return weir_fail(WEIR_ERR_DRIVER, "%s has only %llu MiB free%s; set a budget to use it all the same",
                         runtime->name, (unsigned long long)(available / WI_MIB),
                         limited ? " within the limits of this process's cgroup" : "");
    if (limited)
        wi_limits_tell(runtime, &limits);
    *budget = available - margin;
    return WEIR_OK;
}

/* The budget that the caller, or else the option, asks for. */
static weir_status runtime_choose_budget(const weir_runtime *runtime, const weir_runtime_options *options,
                                         uint64_t *budget)
{
    weir_status status = WEIR_OK;
    *budget = options->budget;
    if (*budget == 0)
        status = wi_option_budget(runtime->name, budget);
    if (status == WEIR_OK && *budget == 0)
        status = runtime_default_budget(runtime, budget);
    return status;
}

static weir_status runtime_choose_stack(const weir_runtime_options *options, char *text, size_t capacity)
{
    weir_option option = {.struct_size = sizeof option};
    weir_status status = options->resource ? WEIR_OK : weir_option_info("resource", 0, &option);
    snprintf(text, capacity, "%s", options->resource ? options->resource : option.value);
    if (options->resource && strlen(options->resource) >= capacity)
        return weir_fail(WEIR_ERR_INVALID, "a stack of resources of more than %zu characters", capacity - 1);
    return status;
}

/* Opens the device, and makes its resource and streams. */
static weir_status runtime_start(weir_runtime *runtime, const weir_runtime_options *options)
{
    uint64_t budget = 0;
    weir_status status = runtime_choose_stack(options, runtime->stack, sizeof runtime->stack);
    if (status == WEIR_OK)
        status = runtime->driver->open(runtime->ordinal, &runtime->device);
    if (status != WEIR_OK)
        return status;
    status = runtime_choose_budget(runtime, options, &budget);
    if (status == WEIR_OK)
        status = wi_streams_make(&runtime->streams, runtime->driver, runtime->device, options->streams);
    if (status == WEIR_OK)
        status = wi_stack_create(runtime->stack, runtime->driver, runtime->device, &runtime->resource);
    if (status != WEIR_OK) {
        wi_streams_unmake(&runtime->streams, runtime->driver, runtime->device);
        runtime->driver->close(runtime->device);
        return status;
    }
    wi_ledger_init(&runtime->ledger, runtime->name, budget, runtime->resource->base->granule);
    wi_pending_init(&runtime->pending, runtime->driver, runtime->device);
    wi_resource_attach(runtime->resource, &runtime->ledger);
    wi_members_add(&runtime->members[WEIR_KIND_DEVICE], runtime->resource, &runtime->pending);
    wi_tcaches_init(runtime);
    return WEIR_OK;
}

void wi_runtime_name(const wi_driver *driver, int ordinal, char *name)
{
    if (driver->ordinals == 1)
        snprintf(name, WI_NAME_BYTES, "%s", driver->name);
    else
        snprintf(name, WI_NAME_BYTES, "%.12s:%d", driver->name, ordinal);
}

/* Makes a runtime and lists it, or leaves nothing behind. The device's lock is held. */
static weir_status runtime_make(const wi_driver *driver, int ordinal, const weir_runtime_options *options, bool shared,
                                weir_runtime **out)
{
    weir_runtime *runtime = calloc(1, sizeof *runtime);
    if (!runtime)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a runtime");
    wi_runtime_name(driver, ordinal, runtime->name);
    runtime->ordinal = ordinal;
    runtime->shared = shared;
    runtime->driver = driver;
    weir_status status = wi_streams_init(&runtime->streams);
    if (status != WEIR_OK) {
        free(runtime);
        return status;
    }
    status = options->host ? wi_runtime_visit(options->host, "weir_runtime_create") : WEIR_OK;
    if (status == WEIR_OK) {
        status = wi_host_memory_init(runtime, options->host);
        if (options->host)
            wi_runtime_visit_end(options->host);
    }
    if (status == WEIR_OK && (status = runtime_start(runtime, options)) != WEIR_OK)
        wi_host_memory_destroy(runtime);
    if (status != WEIR_OK) {
        wi_streams_end(&runtime->streams);
        free(runtime);
        return status;
    }
    pthread_mutex_init(&runtime->clients_lock, NULL);
    wi_recorder_init(runtime);
    pthread_rwlock_wrlock(&list_lock);
    runtime->next = runtimes;
    runtimes = runtime;
    pthread_rwlock_unlock(&list_lock);
    *out = runtime;
    return WEIR_OK;
}

static weir_status runtime_agree(const weir_runtime *runtime, const weir_runtime_options *options)
{
    char there[24], asked[24];
    weir_status status = options->resource ? wi_stack_check(options->resource) : WEIR_OK;
    if (status != WEIR_OK)
        return status;
    if (options->resource && strcmp(options->resource, runtime->stack) != 0)
        return weir_fail(WEIR_ERR_CONFLICT,
                         "%s runs already with the resource %s, not %.80s; the resource of a device is chosen "
                         "when it is first used",
                         runtime->name, runtime->stack, options->resource);
    if (options->budget == 0) /* saves the ledger's lock */
        return WEIR_OK;
    uint64_t budget = wi_runtime_budget(runtime);
    if (options->budget != budget)
        return weir_fail(WEIR_ERR_CONFLICT,
                         "%s runs already with a budget of %s (%llu bytes), not %s (%llu); one device has "
                         "one budget: change it with weir_runtime_set_budget",
                         runtime->name, weir_size_format(budget, there, sizeof there), (unsigned long long)budget,
                         weir_size_format(options->budget, asked, sizeof asked), (unsigned long long)options->budget);
    return WEIR_OK;
}

weir_status weir_runtime_get(const char *device, const weir_runtime_options *options, weir_runtime **out)
{
    WI_ENTER();
    weir_runtime_options given = {0};
    const wi_driver *driver;
    int ordinal;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_get: no place for the result");
    weir_status status = WI_COPY_OPTIONS_IN(weir_runtime_options, &given, options, "weir_runtime_get");
    if (status != WEIR_OK)
        return status;
    *out = NULL;
    if (given.streams)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_runtime_get: the streams of a process's runtime are made when they are acquired");
    if (given.host && !given.host->shared)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_runtime_get: the process's runtimes use the process's host, not an owned one");
    status = wi_driver_find(device, &driver, &ordinal);
    if (status != WEIR_OK)
        return status;
    _Atomic(weir_runtime *) *slot = runtime_slot(driver, ordinal);
    weir_runtime *runtime = atomic_load_explicit(slot, memory_order_acquire);
    if (!runtime) {
        wi_watch_forks(); /* before any lock that a child of fork could inherit */
        pthread_mutex_t *lock = runtime_start_lock(driver, ordinal);
        pthread_mutex_lock(lock);
        runtime = atomic_load_explicit(slot, memory_order_relaxed);
        bool made = !runtime;
        if (made)
            status = runtime_make(driver, ordinal, &given, true, &runtime);
        if (status == WEIR_OK)
            atomic_store_explicit(slot, runtime, memory_order_release);
        pthread_mutex_unlock(lock);
        if (made && status == WEIR_OK) {
            wi_recorder_start(runtime);
            wi_leaks_watch_exit();
            wi_watch_start();
        }
    }
    if (status == WEIR_OK)
        status = runtime_agree(runtime, &given);
    if (status == WEIR_OK)
        *out = runtime;
    return status;
}

weir_status wi_runtime_create_over(const wi_driver *driver, int ordinal, const weir_runtime_options *options,
                                   weir_runtime **out)
{
    wi_watch_forks();
    pthread_mutex_t *lock = runtime_start_lock(driver, ordinal);
    pthread_mutex_lock(lock);
    weir_status status = runtime_make(driver, ordinal, options, false, out);
    pthread_mutex_unlock(lock);
    if (status == WEIR_OK) {
        wi_recorder_start(*out);
        wi_leaks_watch_exit();
        wi_watch_start();
    }
    return status;
}

weir_status weir_runtime_create(const char *device, const weir_runtime_options *options, weir_runtime **out)
{
    WI_ENTER();
    weir_runtime_options given = {0};
    const wi_driver *driver;
    int ordinal;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_create: no place for the result");
    weir_status status = WI_COPY_OPTIONS_IN(weir_runtime_options, &given, options, "weir_runtime_create");
    if (status != WEIR_OK)
        return status;
    *out = NULL;
    status = wi_driver_find(device, &driver, &ordinal);
    return status == WEIR_OK ? wi_runtime_create_over(driver, ordinal, &given, out) : status;
}

/* The end ----------------------------------------------------------------------------------------------------------- */

static _Thread_local unsigned visiting; /* this thread's visits, in which a log's function or a sink may be called */

/* The door: how many are inside, whether it is shut, and how many have ever come in, so that an end sees in one number
 * that nobody has come since it looked. */
#define DOOR_INSIDE UINT64_C(0xffffffff)
#define DOOR_SHUT   (UINT64_C(1) << 32)
#define DOOR_CAME   (UINT64_C(1) << 33)

/* False: the door is shut. */
static bool runtime_come_in(weir_runtime *runtime)
{
    uint64_t door = atomic_fetch_add(&runtime->door, DOOR_CAME + 1);
    visiting++;
    if (door & DOOR_SHUT)
        wi_runtime_visit_end(runtime);
    return !(door & DOOR_SHUT);
}

weir_status wi_runtime_visit(weir_runtime *runtime, const char *call)
{
    return runtime_come_in(runtime)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "%s: the runtime %s is being destroyed", call, runtime->name);
}

void wi_runtime_visit_end(weir_runtime *runtime)
{
    atomic_fetch_sub(&runtime->door, 1);
    visiting--;
}

void wi_runtime_visited(weir_runtime **runtime)
{
    if (*runtime)
        wi_runtime_visit_end(*runtime);
}

/* Nothing hangs on it. */
static weir_status runtime_check_end(weir_runtime *runtime)
{
    weir_status status = wi_recorder_check_end(runtime);
    uint32_t clients = wi_ledger_look(&runtime->ledger).accounts;
    bool streams = wi_streams_any(&runtime->streams);
    unsigned hosted = atomic_load(&runtime->hosted);
    if (status == WEIR_OK && (clients > 0 || streams)) {
        wi_leaks_tell(runtime, NULL);
        status = weir_fail(WEIR_ERR_BUSY, "the runtime %s has %u open clients%s; close and release them first",
                           runtime->name, clients, streams ? " and acquired or registered streams" : "");
    }
    if (status == WEIR_OK && hosted > 0)
        status = weir_fail(WEIR_ERR_BUSY, "the runtime %s is the host of %u others; destroy those first", runtime->name,
                           hosted);
    return status == WEIR_OK ? wi_elastic_check_end(runtime) : status;
}

/* Shuts the door when nothing hangs on the runtime and nobody is inside. A refused end has never shut it. */
static weir_status runtime_shut(weir_runtime *runtime)
{
    for (unsigned spin = 0;; spin++) {
        uint64_t door = atomic_load(&runtime->door);
        if (visiting > 0 || wi_pressures_inside() || door & DOOR_SHUT)
            return weir_fail(WEIR_ERR_BUSY, "the runtime %s is being destroyed, or this thread is in a call of it",
                             runtime->name);
        weir_status status = runtime_check_end(runtime);
        if (status != WEIR_OK)
            return status;
        if (door & DOOR_INSIDE)
            wi_pause(spin);
        else if (atomic_compare_exchange_strong(&runtime->door, &door, door | DOOR_SHUT))
            return WEIR_OK;
    }
}

static void runtime_unlist(weir_runtime *runtime)
{
    pthread_rwlock_wrlock(&list_lock);
    weir_runtime **link = &runtimes;
    while (*link != runtime)
        link = &(*link)->next;
    *link = runtime->next;
    pthread_rwlock_unlock(&list_lock);
}

/* With the stacks gone. */
static void runtime_tell_left(weir_runtime *runtime)
{
    char text[24];
    uint64_t held = wi_ledger_look(&runtime->ledger).held;
    if (held > 0)
        weir_log(WEIR_LOG_WARNING, "not given back: %s of %s, which its driver did not take back",
                 weir_size_format(held, text, sizeof text), runtime->name);
}

weir_status weir_runtime_destroy(weir_runtime *runtime)
{
    WI_ENTER();
    if (!runtime || runtime->shared)
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_destroy: %s",
                         runtime ? "this one is the process's own and stays" : "NULL");
    weir_status status = wi_recorder_check_end(runtime); /* inside a sink nobody is waited for */
    if (status != WEIR_OK)
        return status;
    status = runtime_shut(runtime);
    if (status != WEIR_OK)
        return status;
    runtime_unlist(runtime);
    wi_pressures_clear(&runtime->ledger.pressures);
    wi_tcaches_end(runtime);
    wi_streams_destroy(&runtime->streams, runtime->driver, runtime->device); /* waits for work that uses the memory */
    wi_recorder_end(runtime);
    wi_host_memory_destroy(runtime);
    wi_members_remove(&runtime->members[WEIR_KIND_DEVICE]);
    wi_resource_destroy(runtime->resource);
    wi_pending_destroy(&runtime->pending);
    runtime_tell_left(runtime);
    runtime->driver->close(runtime->device);
    wi_ledger_destroy(&runtime->ledger);
    while (runtime->closed_first) {
        weir_client *client = runtime->closed_first;
        runtime->closed_first = client->next_closed;
        wi_residency_free(client);
        free(client);
    }
    pthread_mutex_destroy(&runtime->clients_lock);
    free(runtime);
    return WEIR_OK;
}

/* Finding ---------------------------------------------------------------------------------------------------------- */

weir_runtime *wi_runtime_of(const void *pointer)
{
    pthread_rwlock_rdlock(&list_lock);
    weir_runtime *r = runtimes;
    weir_kind ignored;
    while (r && !wi_host_memory_owner(r, pointer, &ignored))
        r = r->next;
    return r;
}

void wi_runtimes_unlock(void)
{
    pthread_rwlock_unlock(&list_lock);
}

void wi_runtimes_each(void (*fn)(weir_runtime *runtime, void *user), void *user)
{
    pthread_rwlock_rdlock(&list_lock);
    for (weir_runtime *r = runtimes; r; r = r->next)
        fn(r, user);
    pthread_rwlock_unlock(&list_lock);
}

weir_runtime *wi_runtime_there(const char *device)
{
    const wi_driver *driver;
    int ordinal;
    if (wi_driver_find(device, &driver, &ordinal) != WEIR_OK)
        return NULL;
    return atomic_load_explicit(runtime_slot(driver, ordinal), memory_order_acquire);
}

weir_runtime *wi_runtime_visit_pool(uint16_t pool)
{
    pthread_rwlock_rdlock(&list_lock); /* a runtime is in the list until its door has been shut */
    weir_runtime *r = runtimes;
    while (r && r->streams.pool != pool)
        r = r->next;
    r = r && runtime_come_in(r) ? r : NULL;
    pthread_rwlock_unlock(&list_lock);
    return r;
}

/* Looking and changing --------------------------------------------------------------------------------------------- */

uint32_t wi_runtime_features(const weir_runtime *runtime)
{
    return runtime ? runtime->resource->features : 0;
}

char *wi_runtime_resource(const weir_runtime *runtime, char *text, size_t capacity)
{
    if (capacity > 0)
        text[0] = '\0';
    if (runtime && capacity > 0)
        wi_resource_describe(runtime->resource, text, capacity);
    return text;
}

const char *wi_runtime_device(const weir_runtime *runtime)
{
    return runtime ? runtime->name : "";
}

weir_status weir_runtime_info(const weir_runtime *runtime, weir_runtime_details *out)
{
    WI_ENTER();
    if (!runtime || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_info: NULL");
    WI_VISIT((weir_runtime *)runtime);
    weir_runtime_details details = {.struct_size = sizeof details,
                                    .device = runtime->name,
                                    .ordinal = runtime->ordinal,
                                    .features = wi_runtime_features(runtime),
                                    .native = runtime->driver->context(runtime->device),
                                    .budget = wi_runtime_budget(runtime),
                                    .log = wi_runtime_log((weir_runtime *)runtime)};
    (void)wi_runtime_resource(runtime, details.resource, sizeof details.resource);
    if (!wi_copy_out(out, out->struct_size, &details, sizeof details))
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_info: member struct_size is not set");
    return WEIR_OK;
}

weir_status weir_runtime_enter(weir_runtime *runtime)
{
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_enter: NULL");
    WI_VISIT(runtime);
    return runtime->driver->enter ? runtime->driver->enter(runtime->device) : WEIR_OK;
}

void weir_runtime_leave(weir_runtime *runtime)
{
    if (runtime && runtime->driver->leave && !atomic_load(&wi_forked))
        runtime->driver->leave(runtime->device);
}

uint64_t wi_runtime_budget(const weir_runtime *runtime)
{
    if (!runtime || atomic_load(&wi_forked))
        return 0;
    return wi_ledger_look((wi_ledger *)&runtime->ledger).budget;
}

static weir_status runtime_set_budget(weir_runtime *runtime, uint64_t budget)
{
    wi_base *base = runtime->resource->base;
    (void)wi_runtime_reap(runtime);
    /* The accounts are checked before anything is trimmed, so that a refusal costs no cached memory. Other threads may
     * allocate between a trim and the next try, hence several. */
    for (int tries = 0;; tries++) {
        bool held;
        weir_status status = wi_ledger_set_budget(&runtime->ledger, budget, &held);
        if (status != WEIR_OK && tries < 8 && wi_tcaches_empty(runtime) + wi_release_kept(runtime->resource) > 0)
            continue;
        if (status == WEIR_OK || !held || tries == 8)
            return status;
        weir_stats stats = {.struct_size = sizeof stats};
        size_t ignored;
        wi_ledger_snapshot(&runtime->ledger, &stats, NULL, 0, 0, &ignored);
        uint64_t in_use = stats.live + stats.pending + wi_ledger_look(&runtime->ledger).aside;
        if (base->table->trim(base, budget > in_use ? budget - in_use : 0) == 0 && tries > 0)
            return status;
    }
}

weir_status weir_runtime_set_budget(weir_runtime *runtime, uint64_t budget)
{
    WI_ENTER();
    if (!runtime || budget == 0)
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_set_budget: %s", runtime ? "a budget of 0" : "NULL");
    WI_VISIT(runtime);
    bool lowered = budget < wi_runtime_budget(runtime);
    weir_status status = runtime_set_budget(runtime, budget);
    if (status == WEIR_OK && lowered)
        (void)wi_runtime_trim_idle(runtime);
    return status;
}

uint64_t wi_runtime_reap(weir_runtime *runtime)
{
    return wi_members_reap(&runtime->ledger, &runtime->pending);
}

void wi_runtime_drain(weir_runtime *runtime, wi_account *account)
{
    enum { ROUNDS = 3 }; /* the driver may refuse to take memory back: it is asked so often */
    for (int round = 0; round < ROUNDS; round++)
        do {
            (void)wi_pending_reap(&runtime->pending, NULL);
            (void)wi_release_kept(runtime->resource);
        } while (wi_pending_wait(&runtime->pending, NULL, account, UINT64_MAX));
    (void)wi_release_kept(runtime->resource); /* blocks reaped by other threads meanwhile */
}

/* Statistics and traces -------------------------------------------------------------------------------------------- */

void wi_runtime_look(weir_runtime *runtime, weir_stats *out, weir_client_stats *clients, size_t stride, size_t capacity,
                     size_t *count)
{
    wi_ledger_snapshot(&runtime->ledger, out, clients, stride, capacity, count);
    for (size_t i = 0; i < *count && i < capacity && stride >= sizeof *clients; i++)
        ((weir_client_stats *)((char *)clients + i * stride))->runtime = runtime;
    out->failed_frees = atomic_load(&runtime->pending.failures);
    out->lost_tags = wi_intern_lost(WI_TAG);
}

weir_status weir_snapshot(weir_runtime *runtime, weir_stats *out, weir_client_stats *clients, size_t capacity,
                          size_t *count)
{
    WI_ENTER();
    if (!runtime || !out || (!clients && capacity > 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_snapshot: NULL");
    size_t stride = capacity > 0 ? clients[0].struct_size : sizeof *clients, found = 0;
    if (stride < 2 * sizeof(size_t) || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_snapshot: member struct_size is not set");
    WI_VISIT(runtime);
    (void)wi_runtime_reap(runtime);
    weir_stats stats = {.struct_size = sizeof stats};
    uint64_t ordered; /* asks the driver what has passed */
    (void)wi_members_pass(&runtime->ledger, &ordered);
    wi_runtime_look(runtime, &stats, clients, stride, capacity, &found);
    stats.ordered = wi_min(ordered, stats.cached);
    wi_copy_out(out, out->struct_size, &stats, sizeof stats);
    if (count)
        *count = found;
    return WEIR_OK;
}
