/* PyTorch: what its pluggable allocator calls.
 *
 * PyTorch says on which stream a block is used, frees it in the order of that stream, and names others that use it
 * (record_stream). Memory that is allocated while a pool is filled is the pool's (torch_pools.c). */
#include "seams/torch.h"
#include "seams/seams.h"

#include "base/maps.h"
#include "seams/places.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { UNIT = 256 };

typedef struct torch_device {
    _Atomic(weir_client *) client;
    pthread_mutex_t lock; /* of the counts */
    wseam_torch_counts counts;
    double fraction;
} torch_device;

static torch_device devices[WTORCH_DEVICES];
static wseam_torch_open open_client;
static bool forked;           /* this process is a child of the process in which PyTorch uses weir */
static atomic_size_t emptied; /* how often the cache was, of all devices */

/* Devices ---------------------------------------------------------------------------------------------------------- */

static torch_device *device_at(int device)
{
    return device >= 0 && device < WTORCH_DEVICES ? &devices[device] : NULL;
}

weir_client *wtorch_client(int device)
{
    const torch_device *d = device_at(device);
    return d ? atomic_load_explicit(&d->client, memory_order_acquire) : NULL;
}

/* Locks that threads of the parent had at the fork stay locked for ever, and a child may free tensors that it has from there
 * when it collects its garbage. So nothing is done in a child. */
static void torch_in_child(void)
{
    forked = true;
}

weir_status wseam_torch_begin(wseam_torch_open open)
{
    if (!open_client && pthread_atfork(NULL, NULL, torch_in_child) != 0)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for PyTorch's seam");
    for (int i = 0; i < WTORCH_DEVICES && !open_client; i++) {
        pthread_mutex_init(&devices[i].lock, NULL);
        devices[i].fraction = 1;
    }
    open_client = open;
    return WEIR_OK;
}

weir_status wseam_torch_give(int device, weir_client *client)
{
    torch_device *d = device_at(device);
    weir_client *none = NULL;
    if (!d)
        return weir_fail(WEIR_ERR_INVALID, "device %d: ordinals go from 0 to %d", device, WTORCH_DEVICES - 1);
    atomic_compare_exchange_strong(&d->client, &none, client);
    return WEIR_OK;
}

weir_client *wtorch_client_open(int device)
{
    weir_client *client = wtorch_client(device);
    if (client || !device_at(device) || !open_client)
        return client;
    open_client(device);
    return wtorch_client(device);
}

/* Counts ----------------------------------------------------------------------------------------------------------- */

static void gauge_add(weir_gauge *gauge, uint64_t amount)
{
    gauge->current += amount;
    gauge->allocated += amount;
    if (gauge->current > gauge->peak)
        gauge->peak = gauge->current;
}

static void gauge_take(weir_gauge *gauge, uint64_t amount)
{
    gauge->current -= amount;
    gauge->freed += amount;
}

static void torch_count(int device, size_t bytes, void (*change)(weir_gauge *gauge, uint64_t amount))
{
    torch_device *d = &devices[device];
    pthread_mutex_lock(&d->lock);
    change(&d->counts.allocation, 1);
    change(&d->counts.allocated_bytes, (bytes + UNIT - 1) / UNIT * UNIT);
    change(&d->counts.requested_bytes, bytes);
    pthread_mutex_unlock(&d->lock);
}

static void count_failure(int device, bool final)
{
    torch_device *d = &devices[device];
    pthread_mutex_lock(&d->lock);
    d->counts.retries += !final;
    d->counts.failures += final;
    pthread_mutex_unlock(&d->lock);
}

void wseam_torch_count(int device, wseam_torch_counts *out)
{
    torch_device *d = device_at(device);
    *out = (wseam_torch_counts){.emptied = atomic_load(&emptied)};
    if (!d || !wtorch_client(device))
        return;
    pthread_mutex_lock(&d->lock);
    *out = d->counts;
    out->emptied = atomic_load(&emptied);
    pthread_mutex_unlock(&d->lock);
}

static void gauge_reset(weir_gauge *gauge, uint32_t what)
{
    if (what & WEIR_RESET_PEAKS)
        gauge->peak = gauge->current;
    if (what & WEIR_RESET_ACCUMULATED)
        gauge->allocated = gauge->freed = 0;
}

void wseam_torch_reset(int device, uint32_t what)
{
    torch_device *d = device_at(device);
    weir_client *client = wtorch_client(device);
    if (!d || !client)
        return;
    pthread_mutex_lock(&d->lock);
    gauge_reset(&d->counts.allocation, what);
    gauge_reset(&d->counts.allocated_bytes, what);
    gauge_reset(&d->counts.requested_bytes, what);
    if (what & WEIR_RESET_ACCUMULATED)
        d->counts.retries = d->counts.failures = 0;
    pthread_mutex_unlock(&d->lock);
    (void)!weir_stats_reset(weir_client_runtime(client), what);
}

/* Without a cache ---------------------------------------------------------------------------------------------------- */

/* Blocks that were allocated while caching was off, which no count has. */
static struct {
    pthread_mutex_t lock;
    wi_pointer_map blocks;
    atomic_size_t count;
    atomic_bool on;
} uncached = {.lock = PTHREAD_MUTEX_INITIALIZER};

void wseam_torch_set_caching(bool on)
{
    atomic_store(&uncached.on, !on);
}

/* False: the block is counted, as there is no host memory to note it. */
static bool uncached_note(const void *pointer)
{
    if (!atomic_load_explicit(&uncached.on, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&uncached.lock);
    bool noted = wi_pointer_map_put(&uncached.blocks, pointer, 1);
    atomic_fetch_add(&uncached.count, noted);
    pthread_mutex_unlock(&uncached.lock);
    return noted;
}

static bool uncached_take(const void *pointer)
{
    uint64_t ignored;
    if (atomic_load_explicit(&uncached.count, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(&uncached.lock);
    bool found = wi_pointer_map_remove(&uncached.blocks, pointer, &ignored);
    atomic_fetch_sub(&uncached.count, found);
    pthread_mutex_unlock(&uncached.lock);
    return found;
}

/* Uses on other streams -------------------------------------------------------------------------------------------- */

void wtorch_give_back(weir_client *client, void *pointer, weir_stream stream)
{
    wtorch_history_freed(pointer);
    if (!wtorch_pool_free(pointer))
        wseam_free(client, pointer, stream);
}

void wseam_torch_record_stream(void *pointer, void *native)
{
    weir_block_details details = WEIR_INIT(weir_block_details);
    weir_stream stream;
    int device = 0;
    if (!pointer || weir_block_info(pointer, &details) != WEIR_OK || details.state != WEIR_BLOCK_LIVE)
        return; /* PyTorch may ask for memory that others made */
    while (device < WTORCH_DEVICES && wtorch_client(device) != details.client)
        device++;
    weir_client *client = wtorch_client(device);
    if (!client || (wseam_place_of(client, native, &stream) == WEIR_OK && stream.id == details.stream.id))
        return;
    if (!wtorch_use_note(client, details.block.pointer, native))
        weir_log(WEIR_LOG_WARNING, "record_stream of %p is lost: no host memory", pointer);
}

/* What is left ----------------------------------------------------------------------------------------------------- */

/* mem_get_info calls it the total. */
static uint64_t budget_of(const weir_client *client)
{
    weir_runtime_details details = WEIR_INIT(weir_runtime_details);
    return weir_runtime_info(weir_client_runtime(client), &details) == WEIR_OK ? details.budget : 0;
}

/* What the client may still have; cuDNN's search chooses workspaces by it. */
static uint64_t largest(int device)
{
    weir_client *client = wtorch_client_open(device);
    weir_client_stats mine = WEIR_INIT(weir_client_stats);
    weir_stats all = WEIR_INIT(weir_stats);
    if (!client || weir_client_info(client, &mine) != WEIR_OK ||
        weir_snapshot(weir_client_runtime(client), &all, NULL, 0, NULL) != WEIR_OK)
        return 0;
    uint64_t used = mine.live + mine.pending + mine.promised, taken = all.live + all.pending + all.promised,
             own = mine.maximum > used ? mine.maximum - used : 0, left = all.budget > taken ? all.budget - taken : 0;
    return own < left ? own : left;
}

/* Allocations ------------------------------------------------------------------------------------------------------ */

static weir_status torch_allocate(weir_client *client, size_t bytes, int device, void *native, void **out)
{
    weir_stream stream;
    weir_status status = wseam_place_or_host(client, native, &stream);
    if (status != WEIR_OK || wtorch_pool_alloc(device, bytes, native, stream, &status, out))
        return status;
    return weir_alloc(client, bytes, stream, WEIR_CLASS_ACTIVATIONS, out);
}

/* Bytes as PyTorch's errors have them, which programs read. */
static const char *torch_size(uint64_t bytes, char *text, size_t room)
{
    double n = (double)bytes;
    if (bytes <= 1 << 10)
        snprintf(text, room, "%llu bytes", (unsigned long long)bytes);
    else if (bytes <= 1 << 20)
        snprintf(text, room, "%.2f KiB", n / (1 << 10));
    else if (bytes <= 1 << 30)
        snprintf(text, room, "%.2f MiB", n / (1 << 20));
    else
        snprintf(text, room, "%.2f GiB", n / (1 << 30));
    return text;
}

/* PyTorch's own sentence, and weir's words behind it. */
static void torch_refuse(weir_status status, size_t bytes, int device, const void *native)
{
    const weir_client *client = wtorch_client(device);
    char text[2048], detail[1024], size[32], all[32], left[32];
    snprintf(detail, sizeof detail, "%s", weir_detail()); /* the calls below may fail */
    bool of_memory = status == WEIR_ERR_OUT_OF_MEMORY || bytes >= (size_t)1 << 60;
    if (!of_memory || !client)
        snprintf(text, sizeof text, "weir could not allocate on cuda:%d: %s", device, detail);
    else if (bytes >= (size_t)1 << 60)
        snprintf(text, sizeof text, "CUDA out of memory. Tried to allocate more than 1EB memory. %s", detail);
    else
        snprintf(text, sizeof text,
                 "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is free. %s",
                 torch_size(bytes, size, sizeof size), device, torch_size(budget_of(client), all, sizeof all),
                 torch_size(largest(device), left, sizeof left), detail);
    if (of_memory && client) {
        wtorch_history_refused(bytes, device, native, budget_of(client), largest(device));
        wtorch_tell_refused(bytes, device);
    }
    wtorch_abi_throw(of_memory, text);
}

static weir_status allocate_again(weir_client *client, size_t bytes, int device, void *native, void **out)
{
    count_failure(device, false);
    wtorch_ipc_collect();
    wtorch_pools_reclaim();
    wseam_free_waiting();
    weir_status status = torch_allocate(client, bytes, device, native, out);
    if (status == WEIR_ERR_OUT_OF_MEMORY)
        count_failure(device, true);
    return status;
}

void *wseam_torch_alloc(size_t bytes, int device, void *native)
{
    if (bytes == 0)
        return NULL;
    if (forked) {
        wtorch_abi_throw(
            false, "weir could not allocate: the process was forked after weir.torch.use(), and CUDA works in the "
                   "parent alone; start children with spawn");
        return NULL;
    }
    void *pointer = wtorch_abi_alive_again();
    weir_client *client = wtorch_client_open(device);
    weir_status status = client ? WEIR_OK : WEIR_ERR_NOT_FOUND;
    wseam_free_waiting();
    wtorch_uses_again();
    if (status == WEIR_OK && !pointer)
        status = torch_allocate(client, bytes, device, native, &pointer);
    if (status == WEIR_ERR_OUT_OF_MEMORY)
        status = allocate_again(client, bytes, device, native, &pointer);
    if (status != WEIR_OK)
        torch_refuse(status, bytes, device, native);
    if (status != WEIR_OK)
        return NULL;
    if (!uncached_note(pointer))
        torch_count(device, bytes, gauge_add);
    wtorch_tell(pointer, (int64_t)bytes, device);
    wtorch_history_allocated(pointer, bytes, device, native);
    return pointer;
}

/* For a stream that weir cannot be asked for now. */
static weir_stream allocated_on(const void *pointer)
{
    weir_block_details details = WEIR_INIT(weir_block_details);
    return weir_block_info(pointer, &details) == WEIR_OK ? details.stream : WEIR_STREAM_HOST;
}

void wseam_torch_free(void *pointer, size_t bytes, int device, void *native)
{
    weir_client *client = wtorch_client(device);
    weir_stream stream;
    if (!pointer || !client || forked)
        return;
    bool counted = !uncached_take(pointer);
    if (counted)
        torch_count(device, bytes, gauge_take);
    wtorch_tell(pointer, -(int64_t)bytes, device);
    wtorch_history_freeing(pointer, bytes, device, native);
    if (wseam_place_of(client, native, &stream) != WEIR_OK)
        stream = allocated_on(pointer);
    if (!wtorch_use_free(pointer, stream))
        wtorch_give_back(client, pointer, stream);
    if (!counted)
        (void)!weir_runtime_trim(weir_client_runtime(client), NULL, NULL);
}

/* The rest --------------------------------------------------------------------------------------------------------- */

void wseam_torch_empty_cache(void)
{
    if (forked)
        return;
    wseam_free_waiting();
    wtorch_uses_again();
    wtorch_pools_reclaim();
    for (int i = 0; i < WTORCH_DEVICES; i++)
        if (wtorch_client(i))
            (void)!weir_runtime_trim(weir_client_runtime(wtorch_client(i)), NULL, NULL);
    atomic_fetch_add(&emptied, 1);
}

void wseam_torch_set_fraction(double fraction, int device)
{
    weir_client *client = wtorch_client_open(device);
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    uint64_t budget = client ? budget_of(client) : 0, total = wseam_driver_total(device),
             most = (uint64_t)(fraction * (double)(total ? total : budget));
    weir_status status = client ? weir_client_info(client, &stats) : WEIR_ERR_NOT_FOUND;
    if (status == WEIR_OK)
        status = weir_client_set_limits(client, stats.guaranteed, most >= budget ? 0 : most ? most : 1);
    if (status != WEIR_OK)
        wtorch_abi_throw(false, weir_detail());
    else
        devices[device].fraction = fraction;
}

void *wseam_torch_base(void *pointer, size_t *bytes)
{
    weir_block_details details = WEIR_INIT(weir_block_details);
    if (weir_block_info(pointer, &details) != WEIR_OK || !details.block.pointer)
        return pointer;
    if (bytes)
        *bytes = details.charged;
    return details.block.pointer;
}

/* What PyTorch's own allocator throws for -------------------------------------------------------------------------- */

static double fraction_of(int device)
{
    const torch_device *d = device_at(device);
    return d ? d->fraction : 1;
}

static void torch_reset_peaks(int device)
{
    wseam_torch_reset(device, WEIR_RESET_PEAKS);
}

static void torch_reset_accumulated(int device)
{
    wseam_torch_reset(device, WEIR_RESET_ACCUMULATED);
}

bool wseam_torch_throws(void)
{
    return wtorch_abi_throws();
}

int wseam_torch_complete(void)
{
    static const wtorch_calls calls = {largest,          fraction_of,       torch_reset_peaks, torch_reset_accumulated,
                                       wtorch_state_get, wtorch_state_drop, wtorch_state_set};
    return wtorch_abi_replace(&calls);
}

/* Segments of a MemPool ------------------------------------------------------------------------------------------- */

/* PyTorch's own cache stands on top and asks for segments, by functions without a user argument. Each client therefore
 * has a pair of functions. */
/* clang-format off */ /* each run of clang-format moves an entry */
#define PLACES(_) \
    _(0) _(1) _(2) _(3) _(4) _(5) _(6) _(7) _(8) _(9) _(10) _(11) _(12) _(13) _(14) _(15) \
    _(16) _(17) _(18) _(19) _(20) _(21) _(22) _(23) _(24) _(25) _(26) _(27) _(28) _(29) _(30) _(31)
/* clang-format on */

static _Atomic(weir_client *) places[32];

/* NULL is PyTorch's word for no memory: it looks through its own pools then, and throws. */
static void *segment(int place, size_t bytes)
{
    weir_client *client = atomic_load(&places[place]);
    weir_request request = WEIR_INIT(weir_request);
    weir_block block = {NULL, 0};
    wseam_free_waiting();
    request.bytes = bytes;
    request.stream = WEIR_STREAM_HOST; /* any stream may use the segment at once */
    request.memory_class = WEIR_CLASS_ACTIVATIONS;
    request.tag = "segment";
    return client && weir_alloc_with(client, &request, &block) == WEIR_OK ? block.pointer : NULL;
}

/* PyTorch has waited for other streams than that of the segment. */
static void release_segment(int place, void *pointer, void *native)
{
    weir_client *client = atomic_load(&places[place]);
    weir_stream stream;
    if (client && pointer)
        wseam_free(client, pointer, wseam_place_of(client, native, &stream) == WEIR_OK ? stream : WEIR_STREAM_HOST);
}

#define PLACE(n)                                                                                                       \
    static void *segment_##n(size_t bytes, int device, void *native)                                                   \
    {                                                                                                                  \
        (void)device, (void)native;                                                                                    \
        return segment(n, bytes);                                                                                      \
    }                                                                                                                  \
    static void release_##n(void *pointer, size_t bytes, int device, void *native)                                     \
    {                                                                                                                  \
        (void)bytes, (void)device;                                                                                     \
        release_segment(n, pointer, native);                                                                           \
    }
PLACES(PLACE)

typedef struct place_pair {
    void *(*alloc)(size_t bytes, int device, void *native);
    void (*release)(void *pointer, size_t bytes, int device, void *native);
} place_pair;

#define PAIR(n) {segment_##n, release_##n},
static const place_pair pairs[] = {PLACES(PAIR)};

weir_status wseam_torch_place(weir_client *client, int *place)
{
    const int count_of = (int)(sizeof pairs / sizeof *pairs);
    for (*place = 0; *place < count_of; ++*place) {
        weir_client *none = NULL;
        if (atomic_compare_exchange_strong(&places[*place], &none, client))
            return WEIR_OK;
    }
    return weir_fail(WEIR_ERR_BUSY, "%d pools of PyTorch's are open already; close one first", count_of);
}

weir_status wseam_torch_leave_place(int place)
{
    if (place < 0 || place >= (int)(sizeof pairs / sizeof *pairs))
        return weir_fail(WEIR_ERR_INVALID, "%d is no place", place);
    atomic_store(&places[place], NULL);
    return WEIR_OK;
}

weir_status wseam_torch_place_functions(int place, void **alloc, void **release)
{
    if (place < 0 || place >= (int)(sizeof pairs / sizeof *pairs))
        return weir_fail(WEIR_ERR_INVALID, "%d is no place", place);
    *alloc = (void *)(uintptr_t)pairs[place].alloc;
    *release = (void *)(uintptr_t)pairs[place].release;
    return WEIR_OK;
}
