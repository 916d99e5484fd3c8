/* See devices_rig.h. */
#include "gguf/devices_rig.h"

#include <dlfcn.h>
#include <unistd.h>

#include "interpose/cuda_redirect.h"

void says(const char *words)
{
    if (!strstr(weir_detail(), words))
        print_error("'%s' is not in: %s\n", words, weir_detail());
    assert_non_null(strstr(weir_detail(), words));
}

/* ---- runtimes, of which the test says what device they are ---------------------------------------------------------- */

static weir_runtime *runtimes[RUNTIMES];
weir_client *clients[RUNTIMES];
struct devices_rig rig = {.device_count = 2};

weir_status __real_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out);
weir_status __wrap_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out);

weir_status __wrap_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out)
{
    weir_status status = __real_weir_runtime_info(of, out);
    for (int i = 0; i < RUNTIMES; i++)
        if (runtimes[i] == of) {
            out->device = rig.names[i];
            out->ordinal = strncmp(rig.names[i], "cuda:", 5) == 0 ? atoi(rig.names[i] + 5) : 0;
        }
    return status;
}

weir_client_stats account_of(weir_client *client)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    assert_int_equal(weir_client_info(client, &stats), WEIR_OK);
    return stats;
}

size_t clients_on(int which)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    size_t count = 0;
    assert_int_equal(weir_snapshot(runtimes[which], &stats, NULL, 0, &count), WEIR_OK);
    return count;
}

static void keep_word(weir_log_level level, const char *text, void *user)
{
    (void)user;
    rig.said += level == WEIR_LOG_ERROR;
    snprintf(rig.said_last, sizeof rig.said_last, "%s", text);
}

/* ---- the library and its devices ------------------------------------------------------------------------------------ */

struct ggml_backend_device_t devices[3];

static ggml_backend_buffer_t original(ggml_backend_buffer_type_t type, size_t size)
{
    (void)type, (void)size;
    rig.allocated++;
    if (rig.refuses && rig.entered) {
        rig.entered->refused++;
        rig.entered->status = WEIR_ERR_OUT_OF_MEMORY;
        snprintf(rig.entered->refusal, sizeof rig.entered->refusal, "the device has no more");
    }
    rig.during = rig.entered ? *rig.entered : (wi_cuda_scope){.client_count = 99};
    return rig.refuses ? NULL : rig.made;
}

static size_t device_number(ggml_backend_dev_t device)
{
    return (size_t)((struct ggml_backend_device_t *)(void *)device - devices);
}
static size_t count_devices(ggml_backend_reg_t of)
{
    assert_ptr_equal(of, devices);
    return rig.device_count;
}
static ggml_backend_dev_t device_at(ggml_backend_reg_t of, size_t index)
{
    (void)of;
    return (ggml_backend_dev_t)(void *)&devices[index];
}
static ggml_backend_buffer_type_t type_of(ggml_backend_dev_t device)
{
    return &devices[device_number(device)].type;
}
static ggml_backend_buffer_type_t host_type_of(ggml_backend_dev_t device)
{
    return device_number(device) == 0 ? &devices[0].of_host : NULL;
}
static size_t bytes_of(const struct ggml_tensor *tensor)
{
    (void)tensor;
    return 100;
}

struct ggml_backend_buffer_type cpu;
struct ggml_backend_buffer from_host;
static struct ggml_backend_buffer_type of_pointers;

static ggml_backend_buffer_t from_pointer(void *pointer, size_t size)
{
    assert_non_null(pointer);
    from_host = (struct ggml_backend_buffer){.buft = &of_pointers, .context = pointer, .size = size};
    return &from_host;
}

/* A device's tensors end in rows that are whole. */
static size_t padded(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor)
{
    (void)type;
    return bytes_of(tensor) + 28;
}

const wg_library library = {.ggml_backend_reg_dev_count = count_devices,
                            .ggml_backend_reg_dev_get = device_at,
                            .ggml_backend_dev_buffer_type = type_of,
                            .ggml_backend_dev_host_buffer_type = host_type_of,
                            .ggml_backend_cpu_buffer_from_ptr = from_pointer,
                            .ggml_nbytes = bytes_of};

static ggml_backend_reg_t registry(void)
{
    return (ggml_backend_reg_t)(void *)devices;
}

/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) void *__wrap_dlopen(const char *path, int mode);
__attribute__((visibility("default"))) void *__wrap_dlsym(void *handle, const char *name);
void *__real_dlopen(const char *path, int mode);
void *__real_dlsym(void *handle, const char *name);

void *__wrap_dlopen(const char *path, int mode)
{
    if (!path || !strstr(path, "libggml-cuda"))
        return __real_dlopen(path, mode);
    rig.opens++;
    return rig.cannot_be_opened ? __real_dlopen("/nonexistent", mode) : (void *)&library;
}

void *__wrap_dlsym(void *handle, const char *name)
{
    if (handle != &library)
        return __real_dlsym(handle, name);
    assert_string_equal(name, "ggml_backend_cuda_reg");
    return *(void **)&(ggml_backend_reg_t(*[])(void)){registry}[0];
}

const char *wi_cuda_missing(const char *const *more)
{
    assert_null(more);
    return rig.lacks;
}

weir_status wg_check_mark(const char *directory)
{
    (void)directory;
    return rig.mark == WEIR_OK ? WEIR_OK : weir_fail(rig.mark, "it is of another commit");
}

void wg_store_directory(const char *folder, char *out, size_t capacity)
{
    assert_string_equal(folder, "engines/llama-cuda/current");
    snprintf(out, capacity, "/nowhere/%s", folder);
}

bool wg_guarded(void (*fn)(void *user), void *user, char *text, size_t capacity)
{
    fn(user);
    snprintf(text, capacity, "%s", rig.throws ? rig.throws : "");
    return !rig.throws;
}
void wg_log_forget(void) {}
const char *wg_log_first_error(void)
{
    return "no driver";
}

/* ---- the redirect --------------------------------------------------------------------------------------------------- */

struct redirects its;

static void is_its_own(const wi_cuda_redirect *redirect)
{
    assert_ptr_equal(redirect, &its);
}

static int ordinal_of(const weir_runtime *runtime)
{
    weir_runtime_details about = WEIR_INIT(weir_runtime_details);
    assert_int_equal(__wrap_weir_runtime_info(runtime, &about), WEIR_OK);
    return about.ordinal;
}

weir_status wi_cuda_redirect_begin(const wi_cuda_redirect_options *options, wi_cuda_redirect **out)
{
    assert_string_equal(options->module, rig.file);
    assert_int_equal(options->client_count, 1);
    assert_int_equal(options->memory_class, WEIR_CLASS_SCRATCH);
    assert_string_equal(account_of(options->clients[0]).name, "llama.cpp");
    if (its.cannot_begin)
        return weir_fail(WEIR_ERR_BUSY, "no more redirects");
    its.begun++;
    its.clients[ordinal_of(weir_client_runtime(options->clients[0]))] = options->clients[0];
    *out = (wi_cuda_redirect *)(void *)&its;
    return WEIR_OK;
}

weir_status wi_cuda_redirect_add(wi_cuda_redirect *redirect, weir_client *client)
{
    is_its_own(redirect);
    its.added++;
    its.clients[ordinal_of(weir_client_runtime(client))] = client;
    return WEIR_OK;
}

weir_client *wi_cuda_redirect_client(const wi_cuda_redirect *redirect, const weir_runtime *runtime)
{
    is_its_own(redirect);
    return its.clients[ordinal_of(runtime)];
}

bool wi_cuda_redirect_settle(wi_cuda_redirect *redirect, uint32_t most_ms)
{
    is_its_own(redirect);
    assert_true(most_ms > 0);
    its.settled++;
    return !its.does_not_settle;
}

weir_status wi_cuda_redirect_end(wi_cuda_redirect *redirect)
{
    is_its_own(redirect);
    if (its.cannot_end)
        return weir_fail(WEIR_ERR_BUSY, "memory of it is live");
    its.ended++;
    memset(its.clients, 0, sizeof its.clients);
    return WEIR_OK;
}

uint64_t wi_cuda_redirect_overrun(wi_cuda_redirect *redirect, const weir_client *client)
{
    is_its_own(redirect);
    its.asked++;
    for (int i = 0; i < RUNTIMES; i++)
        if (clients[i] == client)
            return its.overrun[i];
    return 0;
}

weir_status wi_cuda_scope_enter(wi_cuda_redirect *redirect, wi_cuda_scope *scope)
{
    is_its_own(redirect);
    scope->outer = rig.entered;
    rig.entered = scope;
    return WEIR_OK;
}

void wi_cuda_scope_leave(wi_cuda_scope *scope)
{
    assert_ptr_equal(rig.entered, scope);
    rig.entered = scope->outer;
}

/* ---- the cache, which may be elastic ------------------------------------------------------------------------------------ */

bool __wrap_wg_cache_wanted(const weir_engine_model *model);
weir_status __wrap_wg_cache_on_host(weir_engine_model *model, ggml_backend_buffer_type_t type, size_t bytes,
                                    ggml_backend_buffer_t *out);
weir_status __wrap_wg_cache_on_device(weir_engine_model *model, weir_client *client, size_t bytes,
                                      const wi_cuda_source **out);
void __wrap_wg_cache_made(const wi_cuda_source *source, ggml_backend_buffer_t buffer);

bool __wrap_wg_cache_wanted(const weir_engine_model *model)
{
    (void)model;
    return rig.elastic;
}
weir_status __wrap_wg_cache_on_host(weir_engine_model *model, ggml_backend_buffer_type_t type, size_t bytes,
                                    ggml_backend_buffer_t *out)
{
    (void)model, (void)type, (void)bytes, (void)out;
    fail();
    return WEIR_OK;
}
weir_status __wrap_wg_cache_on_device(weir_engine_model *model, weir_client *client, size_t bytes,
                                      const wi_cuda_source **out)
{
    (void)model;
    rig.cache_of = client;
    assert_int_equal(bytes, 5000);
    if (rig.on_device != WEIR_OK)
        return weir_fail(rig.on_device, "no pages for the cache");
    *out = &rig.its_source;
    return WEIR_OK;
}
void __wrap_wg_cache_made(const wi_cuda_source *source, ggml_backend_buffer_t buffer)
{
    assert_ptr_equal(source, &rig.its_source);
    rig.caches_made++;
    rig.cache_made = buffer;
}

/* ---- the beginning and the end -------------------------------------------------------------------------------------- */

wg_devices places_of(const int *which, size_t count)
{
    weir_engine_place list[RUNTIMES];
    weir_engine_load load = {.struct_size = sizeof load, .path = "model.gguf", .places = list, .place_count = count};
    wg_devices read;
    for (size_t i = 0; i < count; i++)
        list[i] = (weir_engine_place){.client = clients[which[i]]};
    assert_int_equal(wg_devices_read(&load, false, &read), WEIR_OK);
    return read;
}

void nothing_is_left(const wg_devices *of)
{
    assert_false(of->held);
    assert_null(wg_devices_redirect());
    assert_int_equal(its.begun, its.ended);
    assert_int_equal(clients_on(ON_0), 1);
    assert_int_equal(clients_on(ON_1), 1);
    assert_int_equal(rig.said, 0);
}

int devices_begin(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        devices[i].type.iface.alloc_buffer = original;
        devices[i].type.iface.get_alloc_size = padded;
    }
    /* llama.cpp's type for the CPU is hooked before all others, and CUDA's for host memory takes its functions over. */
    cpu.iface.alloc_buffer = original;
    wg_buffers_hook(&library, &cpu, true);
    devices[0].of_host.iface = cpu.iface;
    for (int i = 0; i < RUNTIMES; i++) {
        weir_client_options options = WEIR_INIT(weir_client_options);
        options.name = "model";
        snprintf(rig.names[i], sizeof rig.names[i], i == ON_HOST ? "host" : "cuda:%d", i == AGAIN_ON_0 ? 0 : i);
        if (weir_runtime_create("host", NULL, &runtimes[i]) != WEIR_OK ||
            weir_client_create(runtimes[i], &options, &clients[i]) != WEIR_OK)
            return 1;
    }
    snprintf(rig.home, sizeof rig.home, "/tmp/weir-devices-XXXXXX");
    if (!mkdtemp(rig.home))
        return 1;
    snprintf(rig.file, sizeof rig.file, "%s/libggml-cuda.so", rig.home);
    fclose(fopen(rig.file, "we"));
    return weir_log_set(keep_word, NULL, WEIR_LOG_ERROR) != WEIR_OK;
}

/* Runtimes without other clients than these. */
int devices_finish(void **state)
{
    (void)state;
    int status = weir_log_set(NULL, NULL, WEIR_LOG_ERROR);
    for (int i = 0; i < RUNTIMES; i++) {
        status |= weir_client_destroy(clients[i]);
        status |= weir_runtime_destroy(runtimes[i]);
    }
    unlink(rig.file);
    rmdir(rig.home);
    return status;
}
