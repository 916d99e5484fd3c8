/* What every call of the stub goes through, and how tests steer it. */
#include "stub.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

stub_state stub = {.lock = PTHREAD_MUTEX_INITIALIZER};
_Thread_local bool stub_in_host_function;

static const char *const names[] = {
#define X(name, version, parameters) #name,
    WI_CUDA_FUNCTIONS(X) STUB_USERS(X)
#undef X
};

static int find(const char *name, size_t length)
{
    for (int i = 0; i < STUB_FUNCTIONS; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
            return i;
    fprintf(stderr, "stub: there is no function %s\n", name);
    abort();
}

/* The environment -------------------------------------------------------------------------------------------------- */

static uint64_t number(const char *name, uint64_t standard)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : standard;
}

static void read_environment(void)
{
    pthread_mutex_lock(&stub.lock);
    stub.devices = (int)number("STUB_CUDA_DEVICES", 1);
    stub.unmanaged = number("STUB_CUDA_UNMANAGED", 0) != 0;
    stub.unpooled = number("STUB_CUDA_UNPOOLED", 0) != 0;
    stub.unreachable = number("STUB_CUDA_UNREACHABLE", 0) != 0;
    if (stub.devices > STUB_MOST_DEVICES)
        abort();
    for (int i = 0; i < stub.devices; i++)
        stub.device[i] = (stub_device){.total = number("STUB_CUDA_TOTAL", 256 * WI_MIB) & ~(uint64_t)(STUB_GRANULE - 1),
                                       .taken = number("STUB_CUDA_TAKEN", 0),
                                       .memory = -1,
                                       .primary = {.device = i},
                                       .foreign = {.device = i, .retained = 1, .foreign = true}};
    const char *fail = getenv("STUB_CUDA_FAIL");
    const char *colon = fail ? strchr(fail, ':') : NULL;
    if (colon) {
        int function = find(fail, (size_t)(colon - fail));
        char *rest;
        stub.fail[function].after = (int)strtol(colon + 1, &rest, 10);
        stub.fail[function].code = *rest ? (int)strtol(rest + 1, NULL, 10) : 0;
    }
    pthread_mutex_unlock(&stub.lock);
}

void stub_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
}

/* Every call ------------------------------------------------------------------------------------------------------- */

static CUresult judge(enum stub_function function, unsigned rules)
{
    if (stub.fail[function].after > 0 && --stub.fail[function].after == 0)
        return stub.fail[function].code;
    if (rules & STUB_ANYTIME)
        return CUDA_SUCCESS;
    if (!stub.initialized)
        return STUB_NOT_INITIALIZED;
    if (stub_in_host_function)
        return STUB_NOT_PERMITTED;
    if (stub.lost)
        return CUDA_ERROR_LAUNCH_FAILED;
    const struct CUctx_st *current = stub_current();
    if ((rules & STUB_IN_CONTEXT) && (!current || current->retained == 0))
        return STUB_INVALID_CONTEXT;
    if ((rules & STUB_UNSAFE) && stub.capturing && stub_capture_mode() != CU_STREAM_CAPTURE_MODE_RELAXED) {
        stub.captures_broken++;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult stub_enter(enum stub_function function, unsigned rules)
{
    pthread_mutex_lock(&stub.lock);
    if (stub.forbidden) {
        fprintf(stderr, "stub: %s was called when nothing may be called any more\n", names[function]);
        abort();
    }
    stub.calls[function]++;
    CUresult result = judge(function, rules);
    pthread_mutex_unlock(&stub.lock);
    return result;
}

/* Controls --------------------------------------------------------------------------------------------------------- */

#define X(type, name, parameters) __attribute__((visibility("default"))) type name parameters;
STUB_CONTROLS(X)
#undef X

void stub_fail(const char *function, int nth, int code)
{
    int i = find(function, strlen(function));
    pthread_mutex_lock(&stub.lock);
    stub.fail[i].after = nth;
    stub.fail[i].code = code;
    pthread_mutex_unlock(&stub.lock);
}

void stub_lose(bool lost)
{
    pthread_mutex_lock(&stub.lock);
    stub.lost = lost;
    pthread_mutex_unlock(&stub.lock);
}

void stub_take(int device, uint64_t bytes)
{
    pthread_mutex_lock(&stub.lock);
    stub.device[device].taken = bytes;
    pthread_mutex_unlock(&stub.lock);
}

/* Of all processes with one file in STUB_CUDA_SHARED: what is in use of their devices, and the most that was. */
typedef struct shared_use {
    atomic_uint_fast64_t used, peak;
} shared_use;

static shared_use *open_shared(void)
{
    const char *path = getenv("STUB_CUDA_SHARED");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(shared_use), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return at == MAP_FAILED ? NULL : at;
}

/* NULL: nothing is shared. With the lock held. */
static shared_use *shared_with_all(void)
{
    static shared_use *shared;
    static bool opened;
    shared = opened ? shared : open_shared();
    opened = true;
    return shared;
}

uint64_t stub_in_use(const stub_device *device)
{
    const shared_use *shared = number("STUB_CUDA_TOGETHER", 0) ? shared_with_all() : NULL;
    return device->taken + (shared ? atomic_load(&shared->used) : device->used);
}

void stub_use(stub_device *device, uint64_t bytes, bool more)
{
    shared_use *shared = shared_with_all();
    device->used += more ? bytes : -bytes;
    if (!shared)
        return;
    uint64_t now = atomic_fetch_add(&shared->used, more ? bytes : -bytes) + (more ? bytes : -bytes);
    uint64_t peak = atomic_load(&shared->peak);
    while (now > peak && !atomic_compare_exchange_weak(&shared->peak, &peak, now))
        continue;
}

void stub_capture(bool capturing)
{
    pthread_mutex_lock(&stub.lock);
    stub.capturing = capturing;
    pthread_mutex_unlock(&stub.lock);
}

void stub_pools(bool there)
{
    pthread_mutex_lock(&stub.lock);
    stub.unpooled = !there;
    pthread_mutex_unlock(&stub.lock);
}

void stub_reach(bool there)
{
    pthread_mutex_lock(&stub.lock);
    stub.unreachable = !there;
    pthread_mutex_unlock(&stub.lock);
}

void stub_reuse(void (*fn)(void))
{
    pthread_mutex_lock(&stub.lock);
    stub.reuse = fn;
    pthread_mutex_unlock(&stub.lock);
}

void stub_freed(void)
{
    pthread_mutex_lock(&stub.lock);
    void (*fn)(void) = stub.reuse;
    stub.reuse = NULL;
    pthread_mutex_unlock(&stub.lock);
    if (fn)
        fn();
}

void stub_forbid(void)
{
    pthread_mutex_lock(&stub.lock);
    stub.forbidden = true;
    pthread_mutex_unlock(&stub.lock);
}

void *stub_foreign(int device)
{
    return &stub.device[device].foreign;
}

/* With the lock held, of one device. False: no such thing is counted. */
static bool count_on(const stub_device *device, const char *what, size_t length, uint64_t *out)
{
    const stub_counts *c = &device->count;
    const struct {
        const char *name;
        uint64_t count;
    } counts[] = {{"handles", c->handles},
                  {"host handles", c->host_handles},
                  {"mappings", c->mappings},
                  {"reservations", c->reservations},
                  {"streams", c->streams},
                  {"events", c->events},
                  {"allocations", c->allocations},
                  {"pinned", c->pinned},
                  {"registered", c->registered},
                  {"pools", c->pools},
                  {"contexts", device->primary.retained},
                  {"used", device->used}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (strlen(counts[i].name) == length && memcmp(counts[i].name, what, length) == 0) {
            *out = counts[i].count;
            return true;
        }
    return false;
}

static uint64_t count(const char *what)
{
    const char *colon = strchr(what, ':');
    uint64_t all = 0, one = 0;
    if (strcmp(what, "depth") == 0)
        return stub_context_depth();
    if (strcmp(what, "capture mode") == 0)
        return (uint64_t)stub_capture_mode();
    if (strcmp(what, "captures broken") == 0)
        return stub.captures_broken;
    if (strcmp(what, "dead streams used") == 0)
        return stub.dead_streams_used;
    if (strcmp(what, "graphs") == 0)
        return stub.graphs;
    int first = colon ? (int)strtol(colon + 1, NULL, 10) : 0;
    int end = colon || strcmp(what, "used") == 0 || stub.devices == 0 ? first + 1 : stub.devices;
    for (int i = first; i < end; i++) {
        if (!count_on(&stub.device[i], what, colon ? (size_t)(colon - what) : strlen(what), &one))
            return stub.calls[find(what, strlen(what))];
        all += one;
    }
    return all;
}

uint64_t stub_count(const char *what)
{
    pthread_mutex_lock(&stub.lock);
    uint64_t found = count(what);
    pthread_mutex_unlock(&stub.lock);
    return found;
}
