/* See allocator.h. ONNX Runtime does not survive NULL for a real size: its kernels run on it. So a refusal leaves here as
 * std::bad_alloc, which it turns into a clean status; this file is compiled with -fexceptions for that. */
#include "allocator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/log.h>

/* The calling thread's last refusal, which is the one to report when its own call fails. */
static _Thread_local struct {
    const onnx_allocator *who;
    uint64_t number;
    char text[1024];
} mine;

uint64_t onnx_charge(uint64_t bytes)
{
    return bytes > UINT64_MAX - ONNX_SLACK - 255 ? UINT64_MAX : (bytes + ONNX_SLACK + 255) / 256 * 256;
}

static void note_refusal(onnx_allocator *allocator)
{
    pthread_mutex_lock(&allocator->lock);
    snprintf(allocator->refused, sizeof allocator->refused, "%s", weir_detail());
    mine.number = atomic_fetch_add(&allocator->refusals, 1) + 1;
    pthread_mutex_unlock(&allocator->lock);
    mine.who = allocator;
    snprintf(mine.text, sizeof mine.text, "%s", weir_detail());
}

static _Noreturn void refuse(const onnx_allocator *allocator)
{
    allocator->library->throw_bad_alloc();
    abort(); /* not reached: the call above only leaves by its exception */
}

static void *take(onnx_allocator *allocator, size_t size, weir_class memory_class)
{
    if (size == 0)
        return NULL;
    void *pointer;
    size_t padded = size > SIZE_MAX - ONNX_SLACK ? SIZE_MAX : size + ONNX_SLACK;
    if (weir_alloc(allocator->client, padded, WEIR_STREAM_HOST, memory_class, &pointer) == WEIR_OK)
        return pointer;
    note_refusal(allocator);
    refuse(allocator);
}

static void *table_alloc(ort_allocator *self, size_t size)
{
    onnx_allocator *allocator = (onnx_allocator *)self;
    return take(allocator, size, atomic_load(&allocator->loading) ? WEIR_WEIGHTS : WEIR_ACTIVATIONS);
}

static void *table_alloc_on_stream(ort_allocator *self, size_t size, ort_stream *stream)
{
    (void)stream; /* the host's work is done when the call is made */
    return table_alloc(self, size);
}

/* ONNX Runtime reserves what lives as long as the session: prepacked weights. */
static void *table_reserve(ort_allocator *self, size_t size)
{
    onnx_allocator *allocator = (onnx_allocator *)self;
    void *pointer = take(allocator, size, WEIR_WEIGHTS);
    atomic_fetch_add(&allocator->reserved, size);
    return pointer;
}

static void table_free(ort_allocator *self, void *pointer)
{
    onnx_allocator *allocator = (onnx_allocator *)self;
    if (!pointer || weir_free(allocator->client, pointer, WEIR_STREAM_HOST) == WEIR_OK)
        return;
    atomic_fetch_add(&allocator->foreign, 1);
    weir_log(WEIR_LOG_WARNING, "onnxruntime freed %p, which was ignored: %s", pointer, weir_detail());
}

static const ort_memory_info *table_info(const ort_allocator *self)
{
    return ((const onnx_allocator *)self)->library->host;
}

void onnx_allocator_init(onnx_allocator *allocator, const onnx_library *library, weir_client *client)
{
    memset(allocator, 0, sizeof *allocator);
    allocator->table.version = ORT_ALLOCATOR_VERSION;
    allocator->table.Alloc = table_alloc;
    allocator->table.Free = table_free;
    allocator->table.Info = table_info;
    allocator->table.Reserve = table_reserve;
    allocator->table.AllocOnStream = table_alloc_on_stream;
    allocator->library = library;
    allocator->client = client;
    atomic_init(&allocator->loading, true);
    pthread_mutex_init(&allocator->lock, NULL);
}

void onnx_allocator_destroy(onnx_allocator *allocator)
{
    if (mine.who == allocator)
        mine.who = NULL; /* another allocator may come to lie here */
    pthread_mutex_destroy(&allocator->lock);
}

bool onnx_allocator_refused(onnx_allocator *allocator, uint64_t before, char *text, size_t capacity)
{
    if (mine.who == allocator && mine.number > before) {
        snprintf(text, capacity, "%s", mine.text);
        return true;
    }
    bool refused = strstr(text, "bad_alloc") && atomic_load(&allocator->refusals) > before;
    if (refused) {
        pthread_mutex_lock(&allocator->lock);
        snprintf(text, capacity, "%s", allocator->refused);
        pthread_mutex_unlock(&allocator->lock);
    }
    return refused;
}
