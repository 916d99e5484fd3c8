/* A redirect: its state, its beginning and end, and the functions that the module calls. */
#include "interpose/cuda_redirect_parts.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

static wi_cuda_redirect redirects[WI_CUDA_REDIRECTS] = {{.number = 0, .lock = PTHREAD_MUTEX_INITIALIZER},
                                                        {.number = 1, .lock = PTHREAD_MUTEX_INITIALIZER},
                                                        {.number = 2, .lock = PTHREAD_MUTEX_INITIALIZER},
                                                        {.number = 3, .lock = PTHREAD_MUTEX_INITIALIZER}};
static pthread_mutex_t choosing = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local int last_error[WI_CUDA_REDIRECTS];
static _Thread_local wi_cuda_scope *innermost;

/* Requests --------------------------------------------------------------------------------------------------------- */

bool wi_cuda_enter(wi_cuda_redirect *r)
{
    atomic_fetch_add(&r->serving, 1);
    if (atomic_load(&r->state) == WI_CUDA_ACTIVE)
        return true;
    atomic_fetch_sub(&r->serving, 1);
    return false;
}

void wi_cuda_leave(wi_cuda_redirect *r)
{
    atomic_fetch_sub(&r->serving, 1);
}

int wi_cuda_device(const wi_cuda_redirect *r)
{
    int device;
    return wi_real(r, cudaGetDevice)(&device) == CUDA_OK && device >= 0 && device < WI_CUDA_DEVICES ? device : -1;
}

wi_cuda_scope *wi_cuda_scope_of(const wi_cuda_redirect *r)
{
    wi_cuda_scope *scope = innermost;
    while (scope && scope->redirect != r)
        scope = scope->outer;
    return scope;
}

bool wi_cuda_request(wi_cuda_redirect *r, int device, weir_client **client, weir_request *request)
{
    *client = device < 0 ? NULL : atomic_load(&r->clients[device]);
    if (!*client)
        return false;
    const wi_cuda_scope *scope = wi_cuda_scope_of(r);
    for (size_t i = 0; scope && i < scope->client_count; i++)
        if (weir_client_runtime(scope->clients[i]) == r->runtimes[device]) {
            *client = scope->clients[i];
            request->reservation = scope->reservations ? scope->reservations[i] : NULL;
            break;
        }
    request->memory_class = scope ? scope->memory_class : r->memory_class;
    request->tag = scope ? scope->tag : NULL;
    return true;
}

/* Errors: the runtime's own last one is older than ours, which takes its place; one that comes later wins. */

int wi_cuda_fail(wi_cuda_redirect *r, int error)
{
    (void)wi_real(r, cudaGetLastError)();
    last_error[r->number] = error;
    return error;
}

static int wi_on_cudaGetLastError(wi_cuda_redirect *r)
{
    int error = wi_real(r, cudaGetLastError)(), own = last_error[r->number];
    last_error[r->number] = CUDA_OK;
    return error ? error : own;
}

static int wi_on_cudaPeekAtLastError(wi_cuda_redirect *r)
{
    int error = wi_real(r, cudaPeekAtLastError)();
    return error ? error : last_error[r->number];
}

/* ggml's scratch pool, and others, take memory by cuMemCreate where the device can map it. A module asks for all
 * devices at its beginning, also for those that get a client later. */
static int wi_on_cuDeviceGetAttribute(wi_cuda_redirect *r, int *value, int attribute, int device)
{
    if (atomic_load(&r->state) != WI_CUDA_ACTIVE || !value || attribute != CUDA_ATTRIBUTE_VIRTUAL_MEMORY)
        return wi_real(r, cuDeviceGetAttribute)(value, attribute, device);
    atomic_fetch_add(&r->hidden, 1);
    *value = 0;
    return CUDA_OK;
}

/* The functions that the module calls: a set for each redirect, bound to this redirect ----------------------------- */

/* What was written before the slots were is seen from here on. */
static wi_cuda_redirect *entered(unsigned which)
{
    (void)atomic_load_explicit(&redirects[which].state, memory_order_acquire);
    return &redirects[which];
}

#define FUNCTION_0(name, parameters, arguments) FUNCTION(0, name, parameters, arguments)
#define FUNCTION_1(name, parameters, arguments) FUNCTION(1, name, parameters, arguments)
#define FUNCTION_2(name, parameters, arguments) FUNCTION(2, name, parameters, arguments)
#define FUNCTION_3(name, parameters, arguments) FUNCTION(3, name, parameters, arguments)
#define FUNCTION(which, name, parameters, arguments)                                                                   \
    static int name##_##which parameters                                                                               \
    {                                                                                                                  \
        wi_cuda_redirect *r = entered(which);                                                                          \
        return wi_on_##name arguments;                                                                                 \
    }
WI_CUDA_CALLS(FUNCTION_0)
WI_CUDA_CALLS(FUNCTION_1)
WI_CUDA_CALLS(FUNCTION_2)
WI_CUDA_CALLS(FUNCTION_3)

#define ENTRY_0(name, parameters, arguments) [WI_CUDA_##name] = (void (*)(void))name##_0,
#define ENTRY_1(name, parameters, arguments) [WI_CUDA_##name] = (void (*)(void))name##_1,
#define ENTRY_2(name, parameters, arguments) [WI_CUDA_##name] = (void (*)(void))name##_2,
#define ENTRY_3(name, parameters, arguments) [WI_CUDA_##name] = (void (*)(void))name##_3,
static void (*const functions[WI_CUDA_REDIRECTS][WI_CUDA_CALL_COUNT])(void) = {
    {WI_CUDA_CALLS(ENTRY_0)}, {WI_CUDA_CALLS(ENTRY_1)}, {WI_CUDA_CALLS(ENTRY_2)}, {WI_CUDA_CALLS(ENTRY_3)}};

static const char *const names[WI_CUDA_CALL_COUNT] = {
#define X(name, parameters, arguments) [WI_CUDA_##name] = #name,
    WI_CUDA_CALLS(X)
#undef X
};

/* Beginning -------------------------------------------------------------------------------------------------------- */

static weir_status invalid(const char *what)
{
    return weir_fail(WEIR_ERR_INVALID, "wi_cuda_redirect_begin: %s", what);
}

/* Its streams are known before the first request of the device is served. */
static weir_status add_client(wi_cuda_redirect *r, weir_client *client)
{
    weir_runtime *runtime = client ? weir_client_runtime(client) : NULL;
    if (!runtime)
        return invalid("a client is NULL");
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    weir_status status = weir_runtime_info(runtime, &its);
    if (status != WEIR_OK)
        return status;
    if (strncmp(its.device, "cuda", 4) != 0)
        return invalid("a client's device is not of CUDA");
    if (its.ordinal >= WI_CUDA_DEVICES || atomic_load(&r->clients[its.ordinal]))
        return invalid("there are two clients for one device");
    status = wi_cuda_streams_begin(r, runtime);
    if (status != WEIR_OK)
        return status;
    r->runtimes[its.ordinal] = runtime;
    atomic_store(&r->clients[its.ordinal], client);
    return WEIR_OK;
}

static weir_status set_clients(wi_cuda_redirect *r, const wi_cuda_redirect_options *o)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < o->client_count && status == WEIR_OK; i++)
        status = add_client(r, o->clients[i]);
    return status;
}

weir_status wi_cuda_redirect_add(wi_cuda_redirect *r, weir_client *client)
{
    if (!r || !wi_cuda_enter(r))
        return invalid("a client was to be added to a redirect that has ended");
    weir_status status = add_client(r, client);
    wi_cuda_leave(r);
    return status;
}

weir_client *wi_cuda_redirect_client(const wi_cuda_redirect *r, const weir_runtime *runtime)
{
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    if (weir_runtime_info(runtime, &its) != WEIR_OK || its.ordinal >= WI_CUDA_DEVICES)
        return NULL;
    return atomic_load(&r->clients[its.ordinal]);
}

/* The entry that has been out of use for the longest, as calls may come late; NULL: all are in use. */
static wi_cuda_redirect *cuda_redirect_choose(void)
{
    wi_cuda_redirect *best = NULL;
    pthread_mutex_lock(&choosing);
    for (size_t i = 0; i < WI_CUDA_REDIRECTS; i++) {
        wi_cuda_redirect *r = &redirects[i];
        unsigned state = atomic_load(&r->state);
        if ((state == WI_CUDA_FREE || state == WI_CUDA_ENDED) && (!best || r->ended < best->ended))
            best = r;
    }
    if (best)
        atomic_store(&best->state, WI_CUDA_STARTING);
    pthread_mutex_unlock(&choosing);
    return best;
}

static weir_status open_module(wi_cuda_redirect *r, const char *module)
{
    wi_replacement replacements[WI_CUDA_CALL_COUNT];
    for (size_t i = 0; i < WI_CUDA_CALL_COUNT; i++)
        replacements[i] = (wi_replacement){.name = names[i],
                                           .function = functions[r->number][i],
                                           .required = i == WI_CUDA_cudaMalloc || i == WI_CUDA_cudaFree};
    weir_status status = wi_interpose_open(module, replacements, WI_CUDA_CALL_COUNT, &r->interpose);
    if (status == WEIR_OK && (wi_interpose_imports(r->interpose, "cudaLaunchKernel_ptsz") ||
                              wi_interpose_imports(r->interpose, "cudaMemcpyAsync_ptsz")))
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s was built for per-thread default streams: work on other threads' streams cannot be waited "
                         "for; build it without --default-stream per-thread",
                         wi_interpose_module(r->interpose));
    return status;
}

/* CUDA's functions: where the module calls them, and what the redirect calls besides. */
static weir_status find_real(wi_cuda_redirect *r)
{
    wi_cuda_real real;
    void (*function)(void);
#define X(name, parameters, arguments)                                                                                 \
    function = wi_interpose_symbol(r->interpose, #name);                                                               \
    memcpy(&real.name, &function, sizeof function);                                                                    \
    __atomic_store_n(&r->real.name, real.name, __ATOMIC_RELAXED);
    WI_CUDA_CALLS(X)
#undef X
    function = wi_interpose_symbol(r->interpose, "cudaGetDevice");
    memcpy(&real.cudaGetDevice, &function, sizeof function);
    __atomic_store_n(&r->real.cudaGetDevice, real.cudaGetDevice, __ATOMIC_RELAXED);
    function = wi_interpose_symbol(r->interpose, "cudaGraphDestroy");
    memcpy(&real.cudaGraphDestroy, &function, sizeof function);
    __atomic_store_n(&r->real.cudaGraphDestroy, real.cudaGraphDestroy, __ATOMIC_RELAXED);
    const char *missing = !real.cudaGetDevice       ? "cudaGetDevice"
                          : !real.cudaGetLastError  ? "cudaGetLastError"
                          : !real.cudaMemGetInfo    ? "cudaMemGetInfo"
                          : !real.cudaStreamDestroy ? "cudaStreamDestroy"
                                                    : NULL;
    return missing ? weir_fail(WEIR_ERR_NOT_FOUND, "the CUDA runtime of %s has no %s",
                               wi_interpose_module(r->interpose), missing)
                   : WEIR_OK;
}

static void reset(wi_cuda_redirect *r)
{
    for (size_t i = 0; i < WI_CUDA_DEVICES; i++)
        atomic_store(&r->clients[i], NULL);
    memset(r->runtimes, 0, sizeof r->runtimes);
    atomic_store(&r->allocations, 0);
    atomic_store(&r->frees, 0);
    atomic_store(&r->refused, 0);
    atomic_store(&r->passed_on, 0);
    atomic_store(&r->hidden, 0);
    atomic_store(&r->overruns, 0);
    atomic_store(&r->captures, 0);
    r->overrun_bytes = 0;
    r->granted_blocks = NULL;
    *r->refusal = 0;
}

/* The module's calls come as soon as the first slot is written. */
static weir_status cuda_redirect_start(wi_cuda_redirect *r, const wi_cuda_redirect_options *options)
{
    weir_status status = open_module(r, options->module);
    if (status == WEIR_OK)
        status = find_real(r);
    if (status == WEIR_OK)
        status = set_clients(r, options);
    if (status != WEIR_OK)
        return status;
    r->memory_class = options->memory_class;
    r->managed_on_device = options->managed_on_device;
    r->pinned_passes = options->pinned_passes;
    atomic_store(&r->state, WI_CUDA_ACTIVE);
    return wi_interpose_apply(r->interpose);
}

void wi_cuda_yield(int spin)
{
    enum { QUICK = 100 };
    const struct timespec moment = {.tv_nsec = 100000};
    if (spin < QUICK)
        sched_yield();
    else
        nanosleep(&moment, NULL);
}

static void wait_for_requests(wi_cuda_redirect *r)
{
    for (int i = 0; atomic_load(&r->serving) > 0; i++)
        wi_cuda_yield(i);
}

/* The entry is free again. Late calls still find CUDA's functions in `real`; with the slots not as they were, all
 * calls do. */
static void cuda_redirect_retire(wi_cuda_redirect *r, bool undone)
{
    static uint64_t times;
    wi_interpose *interpose = r->interpose;
    pthread_mutex_lock(&r->lock);
    wi_pointer_map_clear(&r->blocks);
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_lock(&choosing);
    r->ended = ++times;
    atomic_store(&r->state, undone ? WI_CUDA_ENDED : WI_CUDA_LEFT);
    pthread_mutex_unlock(&choosing);
    if (undone && wi_interpose_close(interpose) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "a module stays loaded: %s", weir_detail());
}

weir_status wi_cuda_redirect_begin(const wi_cuda_redirect_options *options, wi_cuda_redirect **out)
{
    if (!options || !out || !options->clients || options->client_count == 0)
        return invalid("NULL, or no clients");
    *out = NULL;
    if ((unsigned)options->memory_class >= WEIR_CLASS_COUNT)
        return invalid("the class is none");
    wi_cuda_redirect *r = cuda_redirect_choose();
    if (!r)
        return weir_fail(WEIR_ERR_BUSY, "wi_cuda_redirect_begin: there are %d redirects already", WI_CUDA_REDIRECTS);
    reset(r);
    weir_status status = cuda_redirect_start(r, options);
    if (status == WEIR_OK) {
        *out = r;
        return WEIR_OK;
    }
    wi_saved_detail why;
    snprintf(why.text, sizeof why.text, "%s", weir_detail());
    atomic_store(&r->state, WI_CUDA_ENDING);
    wait_for_requests(r);
    wi_cuda_streams_end(r);
    cuda_redirect_retire(r, true);
    return weir_fail(status, "%s", why.text);
}

/* Ending ----------------------------------------------------------------------------------------------------------- */

/* Executes the invariants, with the lock held; nothing in builds without WEIR_INVARIANTS. */
static void cuda_redirect_check_books(const wi_cuda_redirect *r)
{
#ifdef WEIR_INVARIANTS
    uint64_t live = 0, waiting = 0, granted = 0, captured = 0;
    for (size_t i = 0; i < WEIR_KIND_COUNT; i++)
        live += r->live[i];
    for (const wi_cuda_block *block = r->waiting_blocks; block; block = block->next)
        waiting++;
    for (const wi_cuda_block *block = r->granted_blocks; block; block = block->next)
        granted += block->bytes;
    for (size_t i = 0; i < r->stream_count; i++)
        captured += r->streams[i].used && r->streams[i].captured;
    wi_assert(r->blocks.used + waiting <= live); /* the others are in the hands of threads */
    wi_assert(waiting <= atomic_load(&r->waiting));
    wi_assert(granted == r->overrun_bytes);
    wi_assert(captured == atomic_load(&r->captures));
#else
    (void)r;
#endif
}

static weir_status check_idle(wi_cuda_redirect *r)
{
    uint64_t blocks = 0, bytes = 0;
    if (atomic_load(&r->captures) > 0)
        return weir_fail(WEIR_ERR_STREAM_MISUSE, "%s captures a stream; end that first",
                         wi_interpose_module(r->interpose));
    (void)wi_cuda_free_waiting(r);
    pthread_mutex_lock(&r->lock);
    cuda_redirect_check_books(r);
    for (size_t i = 0; i < WEIR_KIND_COUNT; i++) {
        blocks += r->live[i];
        bytes += r->live_bytes[i];
    }
    pthread_mutex_unlock(&r->lock);
    return blocks == 0
               ? WEIR_OK
               : weir_fail(WEIR_ERR_BUSY, "%s has %llu blocks of %llu bytes of weir's; it has to free them first",
                           wi_interpose_module(r->interpose), (unsigned long long)blocks, (unsigned long long)bytes);
}

/* While the streams are given up, the module's destruction of one still comes here. */
weir_status wi_cuda_redirect_end(wi_cuda_redirect *r)
{
    unsigned active = WI_CUDA_ACTIVE;
    if (!r)
        return WEIR_OK;
    if (!atomic_compare_exchange_strong(&r->state, &active, WI_CUDA_ENDING))
        return weir_fail(WEIR_ERR_INVALID, "wi_cuda_redirect_end: it has ended, or another thread ends it");
    wait_for_requests(r);
    weir_status status = check_idle(r);
    if (status == WEIR_OK)
        status = wi_interpose_check(r->interpose);
    if (status != WEIR_OK) {
        atomic_store(&r->state, WI_CUDA_ACTIVE);
        return status;
    }
    wi_cuda_streams_end(r);
    status = wi_interpose_undo(r->interpose);
    if (status != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "%s goes on to call CUDA through weir, which no longer redirects it: %s",
                 wi_interpose_module(r->interpose), weir_detail());
    cuda_redirect_retire(r, status == WEIR_OK);
    return WEIR_OK;
}

/* Scopes ----------------------------------------------------------------------------------------------------------- */

weir_status wi_cuda_scope_enter(wi_cuda_redirect *r, wi_cuda_scope *scope)
{
    if (!r || !scope || (unsigned)scope->memory_class >= WEIR_CLASS_COUNT)
        return weir_fail(WEIR_ERR_INVALID, "wi_cuda_scope_enter: NULL, or a class that is none");
    for (size_t i = 0; i < scope->client_count; i++) {
        const weir_runtime *runtime = weir_client_runtime(scope->clients[i]);
        int device = 0;
        while (device < WI_CUDA_DEVICES && (!runtime || r->runtimes[device] != runtime))
            device++;
        if (device < WI_CUDA_DEVICES)
            continue;
        weir_client_stats its = WEIR_INIT(weir_client_stats);
        (void)!weir_client_info(scope->clients[i], &its);
        return weir_fail(WEIR_ERR_INVALID, "wi_cuda_scope_enter: %s is not of a runtime that %s is redirected to",
                         its.name, wi_interpose_module(r->interpose));
    }
    scope->redirect = r;
    scope->outer = innermost;
    innermost = scope;
    return WEIR_OK;
}

/* A module that an exception has left has not asked for its last error: the next one to run on this thread would find
 * it. */
void wi_cuda_scope_leave(wi_cuda_scope *scope)
{
    if (!scope || innermost != scope)
        return;
    innermost = scope->outer;
    (void)wi_on_cudaGetLastError(scope->redirect);
}

/* What CUDA needs -------------------------------------------------------------------------------------------------- */

static const char *first_missing(const char *const *libraries)
{
    while (*libraries && dlopen(*libraries, RTLD_LAZY | RTLD_LOCAL))
        libraries++;
    return *libraries;
}

const char *wi_cuda_missing(const char *const *more)
{
    static const char *const always[] = {"libcuda.so.1", "libcudart.so.13", "libcublas.so.13", NULL};
    const char *missing = first_missing(always);
    return missing || !more ? missing : first_missing(more);
}
