/* buffers.c: every buffer of ggml's CPU device out of a client's account.
 *
 * ggml has one object for the CPU's buffer type, with a table of functions in writable memory. Two of its entries are
 * replaced: alloc_buffer, and get_alloc_size, which ggml asks for every tensor before it allocates a buffer for them.
 * The last name seen there tells what the next buffer is for: a fresh tensor called cache_… is the KV cache's, another
 * one a graph's, and a buffer that nobody asked sizes for is the output's. Threads that are not at work for a model of
 * ours get the original functions. */
#include "wg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One buffer of ours; found again by the buffer that ggml frees. */
typedef struct held {
    ggml_backend_buffer_t buffer;
    weir_client *client;
    weir_block block;
    struct held *next;
} held;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static held *buffers;
static const wg_library *library;
static ggml_backend_buffer_t (*original_alloc)(ggml_backend_buffer_type_t buft, size_t size);
static size_t (*original_size)(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor);
static _Thread_local wg_phase *current;

void wg_phase_begin(wg_phase *phase, enum wg_stage stage, weir_client *client)
{
    *phase = (wg_phase){.stage = stage, .client = client, .outer = current};
    current = phase;
}

void wg_phase_end(wg_phase *phase)
{
    current = phase->outer;
}

static void free_buffer(ggml_backend_buffer_t buffer)
{
    held *found = NULL;
    pthread_mutex_lock(&lock);
    for (held **at = &buffers; *at; at = &(*at)->next)
        if ((*at)->buffer == buffer) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!found)
        return;
    if (weir_free_block(found->client, found->block, WEIR_STREAM_HOST) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "gguf: a buffer could not be given back: %s", weir_detail());
    free(found);
}

static weir_class class_of(const wg_phase *phase)
{
    if (phase->stage == WG_LOADING)
        return WEIR_CLASS_WEIGHTS;
    if (phase->saw_cache)
        return WEIR_CLASS_KV;
    return phase->saw_tensor ? WEIR_CLASS_SCRATCH : WEIR_CLASS_ACTIVATIONS;
}

static const char *tag_of(weir_class memory_class)
{
    switch (memory_class) {
    case WEIR_CLASS_WEIGHTS:
        return "weights";
    case WEIR_CLASS_KV:
        return "KV cache";
    case WEIR_CLASS_SCRATCH:
        return "compute buffer";
    default:
        return "output buffer";
    }
}

static void keep_refusal(wg_phase *phase, weir_status status)
{
    if (phase->refusal != WEIR_OK)
        return;
    phase->refusal = status;
    snprintf(phase->detail, sizeof phase->detail, "%s", weir_detail());
}

static ggml_backend_buffer_t allocate(wg_phase *phase, ggml_backend_buffer_type_t buft, size_t size)
{
    weir_request request = WEIR_INIT(weir_request);
    held *it = calloc(1, sizeof *it);
    if (!it)
        return NULL;
    request.bytes = size;
    request.memory_class = class_of(phase);
    request.tag = tag_of(request.memory_class);
    weir_status status = weir_alloc_with(phase->client, &request, &it->block);
    if (status != WEIR_OK) {
        keep_refusal(phase, status);
        free(it);
        return NULL;
    }
    it->client = phase->client;
    it->buffer = library->ggml_backend_cpu_buffer_from_ptr(it->block.pointer, size);
    it->buffer->buft = buft;
    it->buffer->iface.free_buffer = free_buffer;
    pthread_mutex_lock(&lock);
    it->next = buffers;
    buffers = it;
    pthread_mutex_unlock(&lock);
    return it->buffer;
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t buft, size_t size)
{
    wg_phase *phase = current;
    ggml_backend_buffer_t buffer;
    if (!phase || phase->stage == WG_IDLE)
        return original_alloc(buft, size);
    if (phase->stage == WG_PLANNING) {
        if (!phase->saw_tensor)
            phase->planned_output += (size + 255) & ~(uint64_t)255;
        buffer = original_alloc(buft, size);
    } else {
        buffer = allocate(phase, buft, size);
    }
    phase->saw_tensor = phase->saw_cache = false;
    return buffer;
}

static size_t alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor)
{
    wg_phase *phase = current;
    if (phase) {
        phase->saw_tensor = true;
        /* Asked in the order of allocation, so the last one counts: a cache's tensors are asked once more after they
         * got their buffer, and a graph holds views of the cache under its name. */
        bool fresh = !tensor->data && !tensor->view_src && tensor->op == GGML_OP_NONE;
        phase->saw_cache = fresh && strncmp(tensor->name, "cache_", 6) == 0;
    }
    return original_size ? original_size(buft, tensor) : library->ggml_nbytes(tensor);
}

void wg_buffers_hook(const wg_library *from)
{
    ggml_backend_buffer_type_t type = from->ggml_backend_cpu_buffer_type();
    library = from;
    original_alloc = type->iface.alloc_buffer;
    original_size = type->iface.get_alloc_size;
    __atomic_store_n(&type->iface.get_alloc_size, alloc_size, __ATOMIC_RELEASE);
    __atomic_store_n(&type->iface.alloc_buffer, alloc_buffer, __ATOMIC_RELEASE);
}
