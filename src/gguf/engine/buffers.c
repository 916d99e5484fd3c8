/* buffers.c: every buffer of ggml's out of a client's account, and what it is for.
 *
 * ggml has one object for each buffer type, the CPU's and a device's, with a table of functions in writable memory. Two
 * of its entries are replaced: alloc_buffer, and get_alloc_size, which ggml asks for every tensor before it allocates a buffer for them.
 * The last name seen there tells what the next buffer is for: a fresh tensor called cache_… is the KV cache's, another
 * one a graph's, and a buffer that nobody asked sizes for is the output's. Threads that are not at work for a model of
 * ours get the original functions. A device's buffer is made by the original function, whose cudaMalloc is redirected. */
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
static _Thread_local wg_phase *current;

/* The types whose functions are replaced; never fewer. */
typedef struct hook {
    ggml_backend_buffer_type_t type;
    ggml_backend_buffer_t (*alloc)(ggml_backend_buffer_type_t buft, size_t size);
    size_t (*size)(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor);
    bool of_host; /* the CPU can use it as it is */
} hook;
enum { HOOKS = 2 * WG_DEVICES + 1 };
static hook hooks[HOOKS];
static atomic_size_t hook_count;

static const hook *hook_of(ggml_backend_buffer_type_t type)
{
    size_t count = atomic_load(&hook_count), i = 0;
    while (i + 1 < count && hooks[i].type != type)
        i++;
    return &hooks[i];
}

/* ---- phases ------------------------------------------------------------------------------------------------------ */

/* Between buffers llama.cpp takes scratch and workspaces, and ends the process where it gets none. */
static void scope_for_scratch(wg_phase *phase)
{
    phase->scope.memory_class = phase->stage == WG_LOADING ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_SCRATCH;
    phase->scope.tag = phase->stage == WG_LOADING ? "upload" : "scratch";
    phase->scope.overruns = true;
}

void wg_phase_begin(wg_phase *phase, enum wg_stage stage, weir_engine_model *model)
{
    const wg_devices *devices = &model->devices;
    *phase = (wg_phase){.stage = stage, .model = model, .outer = current};
    current = phase;
    if (!devices->held)
        return;
    phase->scope = (wi_cuda_scope){.clients = devices->clients,
                                   .client_count = devices->count,
                                   .reservations = stage == WG_RUNNING ? devices->reserves : NULL};
    scope_for_scratch(phase);
    phase->scoped = wi_cuda_scope_enter(wg_devices_redirect(), &phase->scope) == WEIR_OK;
}

/* What was granted past the budget is in no ledger: it is noted where the account is looked at, and again when it has
 * gone back. */
static void note_overruns(wg_phase *phase)
{
    weir_engine_model *model = phase->model;
    const wg_devices *devices = &model->devices;
    bool any = false;
    if (phase->scope.overrun == 0 && !atomic_load(&model->overran))
        return;
    for (size_t i = 0; i < devices->count; i++) {
        uint64_t live = wi_cuda_redirect_overrun(wg_devices_redirect(), devices->clients[i]);
        any |= live > 0;
        if (weir_client_note_outside(devices->clients[i], live, "llama.cpp's scratch, granted past the budget") !=
            WEIR_OK)
            weir_log(WEIR_LOG_ERROR, "gguf: %s", weir_detail());
    }
    atomic_store(&model->overran, any);
}

/* An assertion of llama.cpp's may be what came of a refusal. */
void wg_phase_end(wg_phase *phase)
{
    if (phase->scoped) {
        wi_cuda_scope_leave(&phase->scope);
        note_overruns(phase);
    }
    if (phase->refusal == WEIR_OK && phase->scope.refused > 0) {
        phase->refusal = phase->scope.status;
        snprintf(phase->detail, sizeof phase->detail, "%s", phase->scope.refusal);
    }
    current = phase->outer;
}

weir_engine_model *wg_phase_model(void)
{
    return current ? current->model : NULL;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

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

static weir_class gguf_buffers_class_of(const wg_phase *phase)
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

static ggml_backend_buffer_t gguf_buffers_allocate(wg_phase *phase, ggml_backend_buffer_type_t buft, size_t size)
{
    weir_request request = WEIR_INIT(weir_request);
    weir_client *client = phase->model->devices.host;
    held *it = calloc(1, sizeof *it);
    if (!it) {
        keep_refusal(phase, weir_fail(WEIR_ERR_SYSTEM, "no memory to note a buffer of %zu bytes", size));
        return NULL;
    }
    request.bytes = size;
    request.memory_class = gguf_buffers_class_of(phase);
    request.tag = tag_of(request.memory_class);
    request.kind = phase->model->devices.kind;
    weir_status status = weir_alloc_with(client, &request, &it->block);
    if (status != WEIR_OK) {
        keep_refusal(phase, status);
        free(it);
        return NULL;
    }
    it->client = client;
    it->buffer = library->ggml_backend_cpu_buffer_from_ptr(it->block.pointer, size);
    it->buffer->buft = buft;
    it->buffer->iface.free_buffer = free_buffer;
    pthread_mutex_lock(&lock);
    it->next = buffers;
    buffers = it;
    pthread_mutex_unlock(&lock);
    return it->buffer;
}

/* The client on the device whose type that is. */
static weir_client *gguf_buffers_client_of(const weir_engine_model *model, ggml_backend_buffer_type_t type)
{
    for (size_t i = 0; i < model->devices.count; i++)
        if (library->ggml_backend_dev_buffer_type(model->devices.list[i]) == type)
            return model->devices.clients[i];
    return model->devices.clients[0];
}

static ggml_backend_buffer_t make_on_device(wg_phase *phase, const hook *of, size_t size)
{
    uint64_t refused = phase->scope.refused;
    ggml_backend_buffer_t buffer = of->alloc(of->type, size);
    if (!buffer && phase->scope.refused > refused)
        keep_refusal(phase, weir_fail(phase->scope.status, "%s", phase->scope.refusal));
    return buffer;
}

static bool is_elastic(const wg_phase *phase)
{
    return gguf_buffers_class_of(phase) == WEIR_CLASS_KV && wg_cache_wanted(phase->model);
}

/* The original function's cudaMalloc is the model's, of this class, and may be refused. */
static ggml_backend_buffer_t allocate_on_device(wg_phase *phase, const hook *of, size_t size)
{
    ggml_backend_buffer_t buffer = NULL;
    phase->scope.memory_class = gguf_buffers_class_of(phase);
    phase->scope.tag = tag_of(phase->scope.memory_class);
    phase->scope.overruns = false;
    phase->scope.source = NULL;
    weir_status status = WEIR_OK;
    if (is_elastic(phase) && !of->of_host)
        status = wg_cache_on_device(phase->model, gguf_buffers_client_of(phase->model, of->type), size,
                                    &phase->scope.source);
    if (status == WEIR_OK || status == WEIR_ERR_UNSUPPORTED)
        buffer = make_on_device(phase, of, size);
    else
        keep_refusal(phase, status);
    if (phase->scope.source)
        wg_cache_made(phase->scope.source, buffer);
    phase->scope.source = NULL;
    scope_for_scratch(phase);
    return buffer;
}

static ggml_backend_buffer_t allocate_on_host(wg_phase *phase, ggml_backend_buffer_type_t buft, size_t size)
{
    ggml_backend_buffer_t buffer = NULL;
    if (!is_elastic(phase) || phase->model->devices.kind != WEIR_KIND_DEVICE)
        return gguf_buffers_allocate(phase, buft, size);
    weir_status status = wg_cache_on_host(phase->model, buft, size, &buffer);
    if (status == WEIR_ERR_UNSUPPORTED)
        return gguf_buffers_allocate(phase, buft, size);
    if (status != WEIR_OK)
        keep_refusal(phase, status);
    return buffer;
}

static bool is_cpu(const hook *of)
{
    return of == &hooks[0];
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t buft, size_t size)
{
    wg_phase *phase = current;
    const hook *of = hook_of(buft);
    ggml_backend_buffer_t buffer;
    if (!phase || phase->stage == WG_IDLE)
        return of->alloc(buft, size);
    if (phase->stage == WG_PLANNING) {
        if (!phase->saw_tensor)
            phase->planned_output += (size + 255) & ~(uint64_t)255;
        buffer = of->alloc(buft, size);
    } else if (is_cpu(of)) {
        buffer = allocate_on_host(phase, buft, size);
    } else if (phase->scoped) {
        buffer = allocate_on_device(phase, of, size);
    } else {
        buffer = of->alloc(buft, size);
    }
    phase->saw_tensor = phase->saw_cache = false;
    return buffer;
}

static size_t alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor)
{
    const hook *of = hook_of(buft);
    wg_phase *phase = current;
    if (phase) {
        phase->saw_tensor = true;
        /* Asked in the order of allocation, so the last one counts: a cache's tensors are asked once more after they
         * got their buffer, and a graph holds views of the cache under its name. */
        bool fresh = !tensor->data && !tensor->view_src && tensor->op == GGML_OP_NONE;
        phase->saw_cache = fresh && strncmp(tensor->name, "cache_", 6) == 0;
    }
    return of->size ? of->size(buft, tensor) : library->ggml_nbytes(tensor);
}

/* The first is the CPU's. CUDA's type for host memory takes the CPU's functions over, which are ours by then. Called
 * with a lock of the caller's held. */
void wg_buffers_hook(const wg_library *from, ggml_backend_buffer_type_t type, bool of_host)
{
    size_t count = atomic_load(&hook_count);
    if (count == 0)
        library = from; /* there is one, and threads read this without a lock */
    if (count == HOOKS || (count > 0 && hook_of(type)->type == type))
        return;
    hook of = {type, type->iface.alloc_buffer, type->iface.get_alloc_size, of_host};
    of.alloc = of.alloc == alloc_buffer ? hooks[0].alloc : of.alloc;
    of.size = of.size == alloc_size ? hooks[0].size : of.size;
    hooks[count] = of;
    atomic_store(&hook_count, count + 1);
    __atomic_store_n(&type->iface.get_alloc_size, alloc_size, __ATOMIC_RELEASE);
    __atomic_store_n(&type->iface.alloc_buffer, alloc_buffer, __ATOMIC_RELEASE);
}
