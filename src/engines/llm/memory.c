/* memory.c: GenAI's allocators. GenAI has an allocator for the host and an allocator for the device, which serve all
 * models: a request is charged to the account that the calling thread is at work for, and a free finds its account by
 * the pointer. What no account is at work for is ONNX Runtime's own, as without weir.
 *
 * A refusal leaves as std::bad_alloc, which GenAI and ONNX Runtime turn into an error: NULL would crash them. This file
 * is compiled with -fexceptions for that, and no lock is held when it is thrown. */
#include "wl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/maps.h"

struct wl_account {
    weir_client *client;
    weir_kind host_kind; /* of what lies on the host */
    const ort_api *api;
    ort_env *env;
    uint32_t version;
    bool on_cuda, dropped;
    weir_stream stream;       /* on cuda: GenAI's, once it is known */
    weir_onnxruntime *bridge; /* made with the first session */
    uint64_t live;            /* blocks; with the lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wi_pointer_map blocks; /* to their accounts; guarded by the lock */
static void *native_stream;   /* likewise */
static ort_allocator *plain;  /* ONNX Runtime's own of the host */
static ort_allocator *theirs_of_device;
static void (*throw_bad_alloc)(void);

static _Thread_local wl_phase *innermost;
static _Thread_local weir_class class_now = WEIR_CLASS_SCRATCH;

/* ---- phases ------------------------------------------------------------------------------------------------------ */

wl_phase *wl_memory_phase(void)
{
    return innermost;
}

weir_class wl_memory_class(weir_class next)
{
    weir_class was = class_now;
    class_now = next;
    return was;
}

static uint64_t refused_by(const wl_account *account)
{
    weir_onnxruntime_details now = WEIR_INIT(weir_onnxruntime_details);
    return account->bridge && weir_onnxruntime_info(account->bridge, &now) == WEIR_OK ? now.refused : 0;
}

void wl_phase_begin(wl_phase *phase, wl_stage stage, wl_account *account)
{
    *phase = (wl_phase){.account = account, .stage = stage, .outer = innermost};
    phase->refused_before = refused_by(account);
    innermost = phase;
    if (!account->on_cuda)
        return;
    phase->client = account->client;
    phase->scope = (wi_cuda_scope){
        .clients = &phase->client, .client_count = 1, .memory_class = WEIR_CLASS_SCRATCH, .tag = "search"};
    phase->scoped = wi_cuda_scope_enter(wl_devices_redirect(), &phase->scope) == WEIR_OK;
}

void wl_phase_end(wl_phase *phase)
{
    if (phase->scoped)
        wi_cuda_scope_leave(&phase->scope);
    innermost = phase->outer;
}

weir_status wl_phase_refused(const wl_phase *phase, char *text, size_t capacity)
{
    if (phase->refusal != WEIR_OK) {
        snprintf(text, capacity, "%s", phase->detail);
        return phase->refusal;
    }
    if (phase->scoped && phase->scope.refused > 0) {
        snprintf(text, capacity, "%s", phase->scope.refusal);
        return phase->scope.status;
    }
    return weir_onnxruntime_explain(phase->account->bridge, phase->refused_before, text, capacity);
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

static _Noreturn void llm_memory_refuse(wl_phase *phase, weir_status status, size_t size)
{
    phase->refusal = status;
    snprintf(phase->detail, sizeof phase->detail, "%s", weir_detail());
    weir_log(WEIR_LOG_ERROR, "onnxruntime-genai asked for %zu bytes: %s", size, weir_detail());
    throw_bad_alloc();
    abort(); /* not reached: the call above only leaves by its exception */
}

static bool llm_memory_note(void *pointer, wl_account *account)
{
    pthread_mutex_lock(&lock);
    bool noted = wi_pointer_map_put(&blocks, pointer, (uint64_t)(uintptr_t)account);
    account->live += noted;
    pthread_mutex_unlock(&lock);
    return noted;
}

static void *llm_memory_take(wl_phase *phase, size_t size, weir_kind kind, weir_stream stream)
{
    wl_account *account = phase->account;
    weir_block block;
    weir_request request = WEIR_INIT(weir_request);
    request.bytes = kind == WEIR_KIND_DEVICE && account->on_cuda ? size : size + ORT_SLACK;
    request.kind = kind;
    request.stream = stream;
    request.memory_class = class_now;
    weir_status status = weir_alloc_with(account->client, &request, &block);
    if (status == WEIR_OK && !llm_memory_note(block.pointer, account)) {
        status = weir_free_block(account->client, block, stream);
        if (status == WEIR_OK)
            status = weir_fail(WEIR_ERR_SYSTEM, "no memory to note a block of %zu bytes", size);
    }
    if (status != WEIR_OK)
        llm_memory_refuse(phase, status, size);
    return block.pointer;
}

static void *host_alloc(ort_allocator *self, size_t size)
{
    wl_phase *phase = innermost;
    (void)self;
    if (size == 0)
        return NULL;
    if (!phase)
        return plain->Alloc(plain, size);
    if (size > SIZE_MAX - ORT_SLACK)
        llm_memory_refuse(phase, weir_fail(WEIR_ERR_OUT_OF_MEMORY, "%zu bytes are more than there can be", size), size);
    return llm_memory_take(phase, size, phase->account->host_kind, WEIR_STREAM_HOST);
}

static void *device_alloc(ort_allocator *self, size_t size)
{
    wl_phase *phase = innermost;
    (void)self;
    if (size == 0)
        return NULL;
    if (!phase || !phase->account->on_cuda)
        return theirs_of_device->Alloc(theirs_of_device, size);
    return llm_memory_take(phase, size, WEIR_KIND_DEVICE, phase->account->stream);
}

/* ---- freeing ----------------------------------------------------------------------------------------------------- */

static void drop_if_done(wl_account *account)
{
    if (account->dropped && account->live == 0)
        free(account);
}

static bool llm_memory_give_back(void *pointer, bool of_device)
{
    uint64_t value = 0;
    pthread_mutex_lock(&lock);
    bool ours = wi_pointer_map_remove(&blocks, pointer, &value);
    pthread_mutex_unlock(&lock);
    if (!ours)
        return false;
    wl_account *account = (wl_account *)(uintptr_t)value;
    weir_stream stream = of_device ? account->stream : WEIR_STREAM_HOST;
    if (weir_free(account->client, pointer, stream) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "onnxruntime-genai freed %p, which stays: %s", pointer, weir_detail());
    pthread_mutex_lock(&lock);
    account->live--;
    drop_if_done(account);
    pthread_mutex_unlock(&lock);
    return true;
}

static void host_free(ort_allocator *self, void *pointer)
{
    (void)self;
    if (pointer && !llm_memory_give_back(pointer, false))
        plain->Free(plain, pointer);
}

static void device_free(ort_allocator *self, void *pointer)
{
    (void)self;
    if (pointer && !llm_memory_give_back(pointer, true))
        theirs_of_device->Free(theirs_of_device, pointer);
}

/* ---- the allocators ---------------------------------------------------------------------------------------------- */

static const ort_memory_info *host_info(const ort_allocator *self)
{
    (void)self;
    return plain->Info(plain);
}

static const ort_memory_info *device_info(const ort_allocator *self)
{
    (void)self;
    return theirs_of_device->Info(theirs_of_device);
}

static ort_allocator of_host = {
    .version = ORT_ALLOCATOR_VERSION, .Alloc = host_alloc, .Free = host_free, .Info = host_info, .Reserve = host_alloc};
static ort_allocator of_device = {.version = ORT_ALLOCATOR_VERSION,
                                  .Alloc = device_alloc,
                                  .Free = device_free,
                                  .Info = device_info,
                                  .Reserve = device_alloc};

weir_status wl_memory_begin(const ort_api *api)
{
    void *cxx = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    *(void **)&throw_bad_alloc = cxx ? dlsym(cxx, "_ZSt17__throw_bad_allocv") : NULL;
    if (!throw_bad_alloc || api->GetAllocatorWithDefaultOptions(&plain) != NULL)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "ONNX Runtime does not use libstdc++.so.6, so weir cannot refuse it "
                                               "memory safely");
    return WEIR_OK;
}

ort_allocator *wl_memory_of_host(void)
{
    return &of_host;
}

ort_allocator *wl_memory_of_device(ort_allocator *theirs)
{
    theirs_of_device = theirs;
    return &of_device;
}

ort_allocator *wl_memory_theirs(ort_allocator *allocator)
{
    return allocator == &of_device ? theirs_of_device : allocator == &of_host ? NULL : allocator;
}

/* ---- accounts ---------------------------------------------------------------------------------------------------- */

static void learn_stream(wl_account *account, void *native)
{
    if (!account->on_cuda || account->stream.id != WEIR_STREAM_HOST.id)
        return;
    if (weir_stream_register(weir_client_runtime(account->client), native, &account->stream) != WEIR_OK) {
        account->stream = WEIR_STREAM_HOST;
        weir_log(WEIR_LOG_WARNING,
                 "onnxruntime-genai's stream is not known to weir, so that frees wait for the device: %s",
                 weir_detail());
    }
}

void wl_memory_stream(void *native)
{
    wl_phase *phase = innermost;
    pthread_mutex_lock(&lock);
    native_stream = native;
    pthread_mutex_unlock(&lock);
    if (phase)
        learn_stream(phase->account, native);
}

weir_status wl_account_make(const ort_api *api, ort_env *env, uint32_t version, weir_client *client, wl_account **out)
{
    weir_runtime_details runtime = WEIR_INIT(weir_runtime_details);
    *out = NULL;
    weir_status status = weir_runtime_info(weir_client_runtime(client), &runtime);
    if (status != WEIR_OK)
        return status;
    wl_account *made = calloc(1, sizeof *made);
    if (!made)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for an account");
    made->on_cuda = strncmp(runtime.device, "cuda", 4) == 0;
    made->host_kind = made->on_cuda ? WEIR_KIND_HOST : WEIR_KIND_DEVICE;
    made->api = api;
    made->env = env;
    made->version = version;
    made->client = client;
    made->stream = WEIR_STREAM_HOST;
    pthread_mutex_lock(&lock);
    void *native = native_stream;
    pthread_mutex_unlock(&lock);
    if (native)
        learn_stream(made, native);
    *out = made;
    return WEIR_OK;
}

weir_client *wl_account_client(const wl_account *account)
{
    return account->client;
}

weir_onnxruntime *wl_account_bridge(wl_account *account)
{
    weir_onnxruntime_options options = WEIR_INIT(weir_onnxruntime_options);
    if (account->bridge)
        return account->bridge;
    options.api = (const struct OrtApi *)account->api;
    options.env = (struct OrtEnv *)account->env;
    options.version = account->version;
    options.client = account->client;
    options.stream = account->stream;
    return weir_onnxruntime_create(&options, &account->bridge) == WEIR_OK ? account->bridge : NULL;
}

void wl_account_settle(const wl_account *account)
{
    if (account->stream.id != WEIR_STREAM_HOST.id && weir_stream_synchronize(account->stream) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "llm: %s", weir_detail());
}

void wl_account_drop(wl_account *account)
{
    if (!account)
        return;
    if (account->bridge && weir_onnxruntime_destroy(account->bridge) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "llm: a session of ONNX Runtime stays: %s", weir_detail());
    if (account->stream.id != WEIR_STREAM_HOST.id && weir_stream_unregister(account->stream) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "llm: %s", weir_detail());
    account->stream = WEIR_STREAM_HOST;
    pthread_mutex_lock(&lock);
    if (account->live > 0)
        weir_log(WEIR_LOG_ERROR, "llm: ONNX Runtime GenAI keeps %llu blocks of a model that is gone",
                 (unsigned long long)account->live);
    account->dropped = true;
    drop_if_done(account);
    pthread_mutex_unlock(&lock);
}
