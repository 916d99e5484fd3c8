/* The functions of a bridge's OrtAllocators. ONNX Runtime does not survive NULL for a real size: its kernels run on it.
 * So a refusal leaves here as std::bad_alloc, which it turns into a clean status; this file is compiled with
 * -fexceptions for that, and no lock is held when it is thrown. */
#include "onnx/bridge/bridge.h"
#include <weir/onnxruntime.h>
#include "base/system.h"

#include <inttypes.h>
#include <stdio.h>

/* The calling thread's last refusal, which is the one to report when its own call fails. */
typedef struct last_refusal {
    uint64_t bridge, number; /* the bridge's number; the refusal's, counted from 1 in each bridge */
    weir_status status;
    wi_saved_detail why;
} last_refusal;

static _Thread_local void *mine; /* NULL: none, or no memory for it: the bridge's own words serve */

static weir_onnxruntime *bridge_of(const ort_allocator *self)
{
    return ((const wi_ort_table *)self)->bridge;
}

/* Refusing --------------------------------------------------------------------------------------------------------- */

static void note_refusal(weir_onnxruntime *bridge, weir_status status)
{
    last_refusal *own = wi_own(&mine, sizeof *own);
    pthread_mutex_lock(&bridge->lock);
    snprintf(bridge->words, sizeof bridge->words, "%s", weir_detail());
    bridge->refusal = status;
    uint64_t number = atomic_fetch_add(&bridge->refused, 1) + 1;
    pthread_mutex_unlock(&bridge->lock);
    if (!own)
        return;
    own->bridge = bridge->number;
    own->number = number;
    own->status = status;
    wi_detail_save(&own->why);
}

static _Noreturn void allocator_refuse(weir_onnxruntime *bridge, weir_status status, weir_kind kind, size_t size)
{
    note_refusal(bridge, status);
    weir_log(WEIR_LOG_ERROR, "onnxruntime asked %s for %zu bytes of %s memory: %s", bridge->name, size,
             weir_name_of(WEIR_NAMES_KIND, kind), weir_detail());
    bridge->throw_bad_alloc();
    abort(); /* not reached: the call above only leaves by its exception */
}

weir_status weir_onnxruntime_explain(weir_onnxruntime *bridge, uint64_t refused, char *text, size_t capacity)
{
    WI_ENTER();
    if (!bridge || !text || capacity == 0)
        return WEIR_OK;
    const last_refusal *own = mine;
    if (own && own->bridge == bridge->number && own->number > refused) {
        snprintf(text, capacity, "%s", own->why.text);
        return own->status;
    }
    if (!strstr(text, "bad_alloc") || atomic_load(&bridge->refused) <= refused)
        return WEIR_OK;
    pthread_mutex_lock(&bridge->lock);
    snprintf(text, capacity, "%s", bridge->words);
    weir_status status = bridge->refusal;
    pthread_mutex_unlock(&bridge->lock);
    return status;
}

/* Taking ----------------------------------------------------------------------------------------------------------- */

weir_status wi_ort_device_alloc(weir_onnxruntime *bridge, size_t bytes, weir_stream stream, weir_class memory_class,
                                void **out)
{
    return bridge->runs.member ? wi_ort_runs_alloc(&bridge->runs, bytes, stream, out)
                               : weir_alloc(bridge->client, bytes, stream, memory_class, out);
}

/* What the CPU's kernels work on is a little longer than they ask for. */
static size_t padded(const wi_ort_table *table, size_t size)
{
    bool cpu = table->kind == WEIR_KIND_PINNED || table->bridge->on_host;
    if (!cpu)
        return size;
    return size > SIZE_MAX - ORT_SLACK ? SIZE_MAX : size + ORT_SLACK;
}

static weir_status allocator_ended(const weir_onnxruntime *bridge)
{
    return weir_fail(WEIR_ERR_INVALID,
                     "%s: the bridge to ONNX Runtime was unregistered; release its sessions before that", bridge->name);
}

/* Where the blocks of a table lie; NULL: nowhere yet, or in a pool that knows itself which runs were taken. */
static wi_base *base_of(const wi_ort_table *table)
{
    weir_onnxruntime *bridge = table->bridge;
    const wi_resource *stack = table->kind == WEIR_KIND_PINNED ? atomic_load(&bridge->runtime->kinds[WEIR_KIND_PINNED])
                               : bridge->runs.member           ? NULL
                                                               : bridge->runtime->resource;
    return stack ? stack->base : NULL;
}

static uint64_t taker_of(const wi_ort_table *table)
{
    return 2 * table->bridge->number + (table->kind == WEIR_KIND_PINNED);
}

static void *handed_out(const wi_ort_table *table, void *pointer)
{
    weir_onnxruntime *bridge = table->bridge;
    wi_base *base = base_of(table);
    if (base)
        wi_owner_tag(base, pointer, taker_of(table));
    atomic_fetch_add_explicit(&bridge->live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&bridge->unfreed, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&bridge->blocks, 1, memory_order_relaxed);
    return pointer;
}

/* WEIR_STREAM_HOST: of memory that any stream may use at once. */
static void *allocator_take(ort_allocator *self, size_t size, weir_stream stream, weir_class memory_class)
{
    const wi_ort_table *table = (const wi_ort_table *)self;
    weir_onnxruntime *bridge = table->bridge;
    void *pointer = NULL;
    if (size == 0)
        return NULL;
    size_t bytes = padded(table, size);
    weir_status status = atomic_load(&bridge->ended) ? allocator_ended(bridge)
                         : table->kind == WEIR_KIND_PINNED
                             ? wi_ort_pinned_alloc(bridge, bytes, &pointer)
                             : wi_ort_device_alloc(bridge, bytes, stream, memory_class, &pointer);
    if (status != WEIR_OK)
        allocator_refuse(bridge, status, table->kind, size);
    return handed_out(table, pointer);
}

/* True: a request without a stream has to be served from the graph's memory. Some kernels name no stream. A block that
 * such a kernel takes while this thread captures the bridge's stream is used by each launch of the graph, and is freed
 * during the capture, which only blocks of the graph's memory allow. */
static bool is_for_graph(const wi_ort_table *table)
{
    const weir_onnxruntime *bridge = table->bridge;
    return bridge->native && table->kind == WEIR_KIND_DEVICE && !bridge->runs.member && !atomic_load(&bridge->ended) &&
           wi_streams_graphed_here(&bridge->runtime->streams, bridge->stream);
}

static void *table_alloc(ort_allocator *self, size_t size)
{
    const weir_onnxruntime *bridge = bridge_of(self);
    if (is_for_graph((const wi_ort_table *)self))
        return allocator_take(self, size, bridge->stream, WEIR_CLASS_ACTIVATIONS);
    /* Others may run a session of the bridge while this thread makes one. */
    bool lasting =
        !bridge->on_host || (atomic_load_explicit(&bridge->loading, memory_order_relaxed) && wi_ort_is_inside(bridge));
    return allocator_take(self, size, WEIR_STREAM_HOST, lasting ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_ACTIVATIONS);
}

/* ONNX Runtime reserves what lives as long as the session: weights. */
static void *table_reserve(ort_allocator *self, size_t size)
{
    void *pointer = allocator_take(self, size, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    atomic_fetch_add(&bridge_of(self)->reserved, size);
    return pointer;
}

static void *table_alloc_on_stream(ort_allocator *self, size_t size, ort_stream *stream)
{
    weir_onnxruntime *bridge = bridge_of(self);
    void *pointer = NULL, *native = stream && !bridge->on_host ? bridge->api->SyncStream_GetHandle(stream) : NULL;
    if (!native || size == 0)
        return table_alloc(self, size);
    bool known = native == bridge->native;
    weir_status status = atomic_load(&bridge->ended) ? allocator_ended(bridge)
                         : known ? wi_ort_device_alloc(bridge, size, bridge->stream, WEIR_CLASS_ACTIVATIONS, &pointer)
                                 : wi_ort_follow(bridge, native, size, &pointer);
    if (status != WEIR_OK)
        allocator_refuse(bridge, status, WEIR_KIND_DEVICE, size);
    atomic_fetch_add_explicit(&bridge->on_stream, 1, memory_order_relaxed);
    if (!known)
        atomic_fetch_add_explicit(&bridge->unknown, 1, memory_order_relaxed);
    return handed_out((const wi_ort_table *)self, pointer);
}

/* Freeing ---------------------------------------------------------------------------------------------------------- */

weir_status wi_ort_device_free(weir_onnxruntime *bridge, void *pointer, weir_stream stream)
{
    return bridge->runs.member ? wi_ort_runs_free(&bridge->runs, pointer, stream)
                               : weir_free(bridge->client, pointer, stream);
}

static bool is_foreign(weir_status status)
{
    return status == WEIR_ERR_FOREIGN || status == WEIR_ERR_INTERIOR || status == WEIR_ERR_DOUBLE_FREE;
}

void wi_ort_report(weir_onnxruntime *bridge, const void *pointer, weir_status status)
{
    if (is_foreign(status)) {
        atomic_fetch_add(&bridge->foreign, 1);
        weir_log(WEIR_LOG_WARNING, "onnxruntime freed %p on %s, which was ignored: %s", pointer, bridge->name,
                 weir_detail());
    } else {
        weir_log(WEIR_LOG_ERROR, "onnxruntime freed %p on %s, which stays: %s", pointer, bridge->name, weir_detail());
    }
}

/* A live block of the client's that was not handed out here is another engine's of the same account. */
static weir_status check_handed_out(const wi_ort_table *table, const void *pointer)
{
    weir_onnxruntime *bridge = table->bridge;
    wi_base *base = base_of(table);
    weir_block_details d = {.struct_size = sizeof d};
    if (table->kind == WEIR_KIND_DEVICE && bridge->runs.member)
        return WEIR_OK;
    if ((base && wi_owner_tag_is(base, pointer, taker_of(table))) || weir_block_info(pointer, &d) != WEIR_OK ||
        d.state != WEIR_BLOCK_LIVE || d.offset != 0 || d.client != bridge->client)
        return WEIR_OK; /* what is wrong with it otherwise, the free tells */
    return weir_fail(WEIR_ERR_FOREIGN, "the block of %zu bytes at %p is %s's, but ONNX Runtime did not get it here",
                     d.bytes, pointer, wi_client_name(bridge->client));
}

static weir_status allocator_give(const wi_ort_table *table, void *pointer)
{
    weir_onnxruntime *bridge = table->bridge;
    weir_status status = check_handed_out(table, pointer);
    return status != WEIR_OK                 ? status
           : !wi_ort_knows_streams(bridge)   ? wi_ort_let_go(bridge, table, pointer)
           : table->kind == WEIR_KIND_PINNED ? wi_ort_pinned_free(bridge, pointer, false)
                                             : wi_ort_device_free(bridge, pointer, bridge->stream);
}

static void allocator_free_of(const wi_ort_table *table, void *pointer)
{
    weir_onnxruntime *bridge = table->bridge;
    weir_status status = atomic_load(&bridge->ended) ? weir_fail(WEIR_ERR_FOREIGN, "the bridge was unregistered")
                                                     : allocator_give(table, pointer);
    if (status != WEIR_OK) {
        wi_ort_report(bridge, pointer, status);
        return;
    }
    if (atomic_fetch_sub(&bridge->unfreed, 1) == 1)
        wi_ort_pinned_drop(bridge);
    atomic_fetch_sub(&bridge->live, 1); /* the last: another thread may close the bridge */
}

static void table_free(ort_allocator *self, void *pointer)
{
    if (pointer)
        allocator_free_of((const wi_ort_table *)self, pointer);
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

static const ort_memory_info *table_info(const ort_allocator *self)
{
    return ((const wi_ort_table *)self)->info;
}

static void add_number(const ort_api *api, ort_key_values *pairs, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    api->AddKeyValuePair(pairs, key, text);
}

/* The client's numbers, under the names that ONNX Runtime's own arena has for them. */
static ort_status *table_get_stats(const ort_allocator *self, ort_key_values **out)
{
    weir_onnxruntime *bridge = bridge_of(self);
    weir_client_stats stats = {.struct_size = sizeof stats};
    bridge->api->CreateKeyValuePairs(out);
    if (atomic_load(&bridge->ended) || weir_client_info(bridge->client, &stats) != WEIR_OK)
        return NULL; /* no statistics any more */
    add_number(bridge->api, *out, "Limit", stats.maximum ? stats.maximum : wi_runtime_budget(bridge->runtime));
    add_number(bridge->api, *out, "InUse", stats.live);
    add_number(bridge->api, *out, "MaxInUse", stats.peak);
    add_number(bridge->api, *out, "NumAllocs", atomic_load(&bridge->blocks));
    return NULL;
}

void wi_ort_table_init(wi_ort_table *table, weir_onnxruntime *bridge, weir_kind kind)
{
    table->bridge = bridge;
    table->kind = kind;
    table->table.version = ORT_ALLOCATOR_VERSION;
    table->table.Alloc = table_alloc;
    table->table.Free = table_free;
    table->table.Info = table_info;
    table->table.Reserve = table_reserve;
    table->table.GetStats = table_get_stats;
    if (kind == WEIR_KIND_DEVICE)
        table->table.AllocOnStream = table_alloc_on_stream;
}

bool wi_ort_is_ours(const ort_allocator *allocator)
{
    return allocator->Alloc == table_alloc;
}
