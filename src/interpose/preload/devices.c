/* Devices under their budgets: weir's runtime of each, and the bytes that are CUDA's own and count all the same.
 *
 * What counts and is CUDA's is taken out of the runtime's budget before CUDA is asked for it. The runtime then gives up as
 * much of what it keeps as it must, so that both together never have more than the budget. */
#include "interpose/preload/preload.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static wp_device devices[WP_DEVICES];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static atomic_int device_count; /* up to the last one that has started */

/* Starting --------------------------------------------------------------------------------------------------------- */

/* A program that has weir's runtime of the device already keeps its budget. Where none is given, the first process of the tree
 * measures it, for all. */
static weir_status get_runtime(wp_device *d)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_status status = wp_tree_join(d->ordinal);
    if (status != WEIR_OK)
        return status;
    uint64_t all = wp_tree_look(d->ordinal).budget;
    if (all != UINT64_MAX && wp_budget_given(d->name) == 0)
        options.budget = all;
    status = weir_runtime_get(d->name, &options, &d->runtime);
    if (status == WEIR_ERR_CONFLICT) {
        options.budget = 0;
        status = weir_runtime_get(d->name, &options, &d->runtime);
    }
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    if (status == WEIR_OK)
        status = weir_runtime_info(d->runtime, &its);
    d->context = its.native;
    if (status == WEIR_OK)
        wp_tree_measured(d->ordinal, its.budget);
    d->total = wi_min(its.budget, wp_tree_look(d->ordinal).budget);
    return status;
}

static weir_status get_client(wp_device *d)
{
    weir_client_options options = WEIR_INIT(weir_client_options);
    char name[64];
    snprintf(name, sizeof name, "%s", program_invocation_short_name);
    options.name = *name ? name : "program";
    return weir_client_create(d->runtime, &options, &d->client);
}

/* Frees behind all work of the device go by a stream of weir's that waits for an event behind it all. A driver without
 * such events has the device waited for. */
static void get_behind(wp_device *d)
{
    if (!wp_real.cuCtxRecordEvent || !wp_real.cuEventCreate || !wp_real.cuStreamWaitEvent ||
        weir_runtime_enter(d->runtime) != WEIR_OK)
        return;
    if (wp_real.cuEventCreate(&d->event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
        weir_stream_acquire(d->runtime, &d->behind) != WEIR_OK)
        d->behind = WEIR_STREAM_HOST;
    weir_runtime_leave(d->runtime);
}

/* The device is past what was freed, unless a stream is captured. */
static void wait_for_device(wp_device *d)
{
    if (wp_capturing() || weir_runtime_enter(d->runtime) != WEIR_OK)
        return;
    (void)wp_real.cuCtxSynchronize();
    weir_runtime_leave(d->runtime);
}

/* Another process wants memory: so much of what is idle here goes back to CUDA. */
static void give_idle(int ordinal, uint64_t bytes)
{
    wp_device *d = wp_device_started(ordinal);
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_trim_options options = WEIR_INIT(weir_trim_options);
    if (!d || wp_is_exiting() || !wp_captures_shut())
        return;
    if (weir_snapshot(d->runtime, &stats, NULL, 0, NULL) == WEIR_OK && stats.held > stats.live) {
        options.keep = stats.held - stats.live - wi_min(stats.held - stats.live, bytes);
        if (stats.pending + stats.ordered > 0)
            wait_for_device(d);
        (void)!weir_runtime_trim(d->runtime, &options, NULL);
    }
    wp_captures_open();
}

static void preload_devices_start(wp_device *d, int ordinal)
{
    d->ordinal = ordinal;
    snprintf(d->name, sizeof d->name, "cuda:%d", ordinal);
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->free_lock, NULL);
    weir_status status = get_runtime(d);
    if (status == WEIR_OK)
        status = get_client(d);
    d->failed = status != WEIR_OK;
    if (d->failed) {
        fprintf(stderr, "weir: %s gets no memory under weir exec, as its budget could not be kept: %s\n", d->name,
                weir_detail());
        return;
    }
    get_behind(d);
    wp_watch_runtime();
    if (ordinal >= atomic_load(&device_count))
        atomic_store(&device_count, ordinal + 1);
    atomic_store_explicit(&d->ready, true, memory_order_release);
    wp_tree_listen(give_idle);
}

/* Starts the device's runtime at the first call; NULL: weir cannot start. A process that was forked from a process with
 * a runtime has no runtime; CUDA does not work in such a process. */
wp_device *wp_device_start(int ordinal)
{
    if (ordinal < 0 || ordinal >= WP_DEVICES)
        return NULL;
    wp_device *d = &devices[ordinal];
    if (wi_likely(atomic_load_explicit(&d->ready, memory_order_acquire)))
        return d;
    wp_watch_exit();
    pthread_mutex_lock(&making);
    if (!d->failed && !atomic_load(&d->ready))
        preload_devices_start(d, ordinal);
    pthread_mutex_unlock(&making);
    return atomic_load(&d->ready) ? d : NULL;
}

wp_device *wp_device_started(int ordinal)
{
    bool there =
        ordinal >= 0 && ordinal < WP_DEVICES && atomic_load_explicit(&devices[ordinal].ready, memory_order_acquire);
    return there ? &devices[ordinal] : NULL;
}

static wp_device *device_with(CUcontext context)
{
    int count = atomic_load_explicit(&device_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (atomic_load_explicit(&devices[i].ready, memory_order_acquire) && devices[i].context == context)
            return &devices[i];
    return NULL;
}

wp_device *wp_device_here(bool *primary, CUresult *result)
{
    CUcontext context = NULL;
    CUdevice device = 0;
    *primary = true;
    *result = wp_real.cuCtxGetCurrent(&context);
    wp_device *d = *result == CUDA_SUCCESS && context ? device_with(context) : NULL;
    if (wi_likely(d))
        return d;
    *result = wp_real.cuCtxGetDevice(&device);
    if (*result != CUDA_SUCCESS)
        return NULL;
    d = wp_device_start(device);
    *primary = d && d->context == context;
    if (!d)
        *result = CUDA_ERROR_OUT_OF_MEMORY;
    return d;
}

wp_device *wp_device_of(const weir_client *client)
{
    int count = atomic_load(&device_count);
    for (int i = 0; client && i < count; i++)
        if (atomic_load(&devices[i].ready) && devices[i].client == client)
            return &devices[i];
    return NULL;
}

/* What is CUDA's and counts ---------------------------------------------------------------------------------------- */

static void preload_devices_add(wp_gauge *gauge, uint64_t bytes)
{
    gauge->bytes += bytes;
    gauge->peak = wi_max(gauge->peak, gauge->bytes);
}

static void take_off(wp_gauge *gauge, uint64_t bytes)
{
    gauge->bytes -= bytes;
}

/* With the lock held. Memory that is freed and that the device is not past may be what is missing: it is waited for, as CUDA
 * does it. */
static weir_status shrink(wp_device *d, uint64_t left)
{
    weir_status status = weir_runtime_set_budget(d->runtime, left);
    if (status != WEIR_ERR_OUT_OF_MEMORY)
        return status;
    wait_for_device(d);
    return weir_runtime_set_budget(d->runtime, left);
}

/* Returns the part of the device's budget that the runtime gets. weir has no budget of 0, so the least part is 1 byte,
 * which serves no request. */
static uint64_t for_weir(const wp_device *d)
{
    return wi_max(d->total - d->foreign, 1);
}

/* The runtime has so many bytes of the budget again. With the lock held. */
static void grow_back(wp_device *d, uint64_t bytes)
{
    if (bytes && weir_runtime_set_budget(d->runtime, for_weir(d)) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "%s does not get %llu bytes of its budget back: %s", d->name,
                 (unsigned long long)bytes, weir_detail());
}

/* Claims the bytes among the tree's processes. What is idle here goes back first, and then others are asked. */
static weir_status take_in_tree(wp_device *d, uint64_t bytes)
{
    char left[24], budget[24];
    if (wp_tree_take(d->ordinal, bytes))
        return WEIR_OK;
    wait_for_device(d);
    (void)!weir_runtime_trim(d->runtime, NULL, NULL);
    if (wp_tree_take(d->ordinal, bytes) || (wp_tree_ask(d->ordinal, bytes) && wp_tree_take(d->ordinal, bytes)))
        return WEIR_OK;
    wp_tree_view all = wp_tree_look(d->ordinal);
    return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "%s: of the budget of %s that all processes have together, %s are left",
                     d->name, weir_size_format(all.budget, budget, sizeof budget),
                     weir_size_format(all.budget - wi_min(all.budget, all.mine + all.others), left, sizeof left));
}

bool wp_charge(wp_device *d, wp_kind kind, uint64_t bytes)
{
    pthread_mutex_lock(&d->lock);
    bool fits = bytes <= d->total - d->foreign;
    d->foreign += fits ? bytes : 0;
    weir_status status =
        fits ? shrink(d, for_weir(d))
             : weir_fail(WEIR_ERR_OUT_OF_MEMORY, "%s: %llu bytes are more than what is left of the budget", d->name,
                         (unsigned long long)bytes);
    bool shrunk = status == WEIR_OK;
    if (shrunk)
        status = take_in_tree(d, bytes);
    if (status == WEIR_OK) {
        d->foreign_peak = wi_max(d->foreign_peak, d->foreign);
        preload_devices_add(&d->kinds[kind], bytes);
    } else {
        d->foreign -= fits ? bytes : 0;
        grow_back(d, shrunk ? bytes : 0);
    }
    pthread_mutex_unlock(&d->lock);
    return status == WEIR_OK;
}

void wp_uncharge(wp_device *d, wp_kind kind, uint64_t bytes)
{
    pthread_mutex_lock(&d->lock);
    d->foreign -= bytes;
    take_off(&d->kinds[kind], bytes);
    grow_back(d, bytes);
    wp_tree_give(d->ordinal, bytes);
    pthread_mutex_unlock(&d->lock);
}

static struct {
    pthread_mutex_t lock;
    wp_gauge kinds[WP_KINDS];
} host = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool wp_charge_host(wp_kind kind, uint64_t bytes)
{
    uint64_t budget = wp_budget_given("host");
    pthread_mutex_lock(&host.lock);
    uint64_t there = host.kinds[WP_KIND_PINNED].bytes + host.kinds[WP_KIND_REGISTERED].bytes;
    bool fits = budget == 0 || (bytes <= budget && there <= budget - bytes);
    fits = fits && wp_tree_take(WP_HOST, bytes);
    if (fits)
        preload_devices_add(&host.kinds[kind], bytes);
    pthread_mutex_unlock(&host.lock);
    if (!fits)
        (void)weir_fail(WEIR_ERR_OUT_OF_MEMORY, "host: %llu bytes are more than what is left of the budget",
                        (unsigned long long)bytes);
    return fits;
}

void wp_uncharge_host(wp_kind kind, uint64_t bytes)
{
    pthread_mutex_lock(&host.lock);
    take_off(&host.kinds[kind], bytes);
    pthread_mutex_unlock(&host.lock);
    wp_tree_give(WP_HOST, bytes);
}

wp_gauge wp_host_gauge(wp_kind kind)
{
    pthread_mutex_lock(&host.lock);
    wp_gauge gauge = host.kinds[kind];
    pthread_mutex_unlock(&host.lock);
    return gauge;
}

/* What is left ----------------------------------------------------------------------------------------------------- */

static uint64_t preload_devices_less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Freed memory that is still pending counts as free: a request for such memory waits. Other processes take from the
 * common budget of all processes, which may be larger than the budget of this process. */
void wp_left(wp_device *d, size_t *available, size_t *total)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    if (weir_snapshot(d->runtime, &stats, NULL, 0, NULL) != WEIR_OK)
        return;
    wp_tree_view all = wp_tree_look(d->ordinal);
    pthread_mutex_lock(&d->lock);
    uint64_t taken = stats.live + stats.promised + d->foreign;
    pthread_mutex_unlock(&d->lock);
    uint64_t left = wi_min(preload_devices_less(d->total, taken), preload_devices_less(all.budget, all.others + taken));
    *available = wi_min(left, *available + stats.held - wi_min(stats.held, stats.live));
    *total = wi_min(*total, d->total);
}

uint64_t wp_spent(uint64_t bytes)
{
    enum { SMALL_UNIT = 512 };
    return bytes < WI_MIB ? wi_round_up(bytes, SMALL_UNIT) : wi_round_up(bytes, 2 * WI_MIB);
}
