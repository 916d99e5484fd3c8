/* devices.c, buffers.c, cache.c: where a model lies; llama.cpp's library for CUDA, when it is opened and whose its memory
 * is; what a device's buffers are for. The library, its devices and the redirect of its memory are made up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>

#include <weir/cores.h>
#include <weir/stats.h>
#include <weir/weir.h>

#include "gguf/engine/wg.h"
#include "interpose/cuda_redirect.h"

static void says(const char *words)
{
    if (!strstr(weir_detail(), words))
        print_error("'%s' is not in: %s\n", words, weir_detail());
    assert_non_null(strstr(weir_detail(), words));
}

/* ---- runtimes, of which the test says what device they are ---------------------------------------------------------- */

enum { RUNTIMES = 19, ON_0 = 0, ON_1 = 1, AGAIN_ON_0 = 17, ON_HOST = 18 };
static weir_runtime *runtimes[RUNTIMES];
static weir_client *clients[RUNTIMES];
static char names[RUNTIMES][16];

weir_status __real_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out);
weir_status __wrap_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out);

weir_status __wrap_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out)
{
    weir_status status = __real_weir_runtime_info(of, out);
    for (int i = 0; i < RUNTIMES; i++)
        if (runtimes[i] == of) {
            out->device = names[i];
            out->ordinal = strncmp(names[i], "cuda:", 5) == 0 ? atoi(names[i] + 5) : 0;
        }
    return status;
}

static weir_client_stats account_of(weir_client *client)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    assert_int_equal(weir_client_info(client, &stats), WEIR_OK);
    return stats;
}

static size_t clients_on(int which)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    size_t count = 0;
    assert_int_equal(weir_snapshot(runtimes[which], &stats, NULL, 0, &count), WEIR_OK);
    return count;
}

static int said; /* errors in the log */
static char said_last[512];
static void keep_word(weir_log_level level, const char *text, void *user)
{
    (void)user;
    said += level == WEIR_LOG_ERROR;
    snprintf(said_last, sizeof said_last, "%s", text);
}

static char home[64], file[96];

static int begin(void **state)
{
    (void)state;
    for (int i = 0; i < RUNTIMES; i++) {
        weir_client_options options = WEIR_INIT(weir_client_options);
        options.name = "model";
        snprintf(names[i], sizeof names[i], i == ON_HOST ? "host" : "cuda:%d", i == AGAIN_ON_0 ? 0 : i);
        if (weir_runtime_create("host", NULL, &runtimes[i]) != WEIR_OK ||
            weir_client_create(runtimes[i], &options, &clients[i]) != WEIR_OK)
            return 1;
    }
    snprintf(home, sizeof home, "/tmp/weir-devices-XXXXXX");
    if (!mkdtemp(home))
        return 1;
    snprintf(file, sizeof file, "%s/libggml-cuda.so", home);
    fclose(fopen(file, "we"));
    return weir_log_set(keep_word, NULL, WEIR_LOG_ERROR) != WEIR_OK;
}

/* Runtimes without other clients than these. */
static int finish(void **state)
{
    (void)state;
    int status = weir_log_set(NULL, NULL, WEIR_LOG_ERROR);
    for (int i = 0; i < RUNTIMES; i++) {
        status |= weir_client_destroy(clients[i]);
        status |= weir_runtime_destroy(runtimes[i]);
    }
    unlink(file);
    rmdir(home);
    return status;
}

/* ---- the library and its devices ------------------------------------------------------------------------------------ */

static struct ggml_backend_device_t {
    struct ggml_backend_buffer_type type, of_host;
} devices[3];
static size_t device_count = 2;
static ggml_backend_buffer_t made; /* what the original functions answer; NULL: nothing */
static int allocated;
static wi_cuda_scope during; /* the innermost scope, as it was in the last of their calls */
static wi_cuda_scope *entered;
static bool refuses;

static ggml_backend_buffer_t original(ggml_backend_buffer_type_t type, size_t size)
{
    (void)type, (void)size;
    allocated++;
    if (refuses && entered) {
        entered->refused++;
        entered->status = WEIR_ERR_OUT_OF_MEMORY;
        snprintf(entered->refusal, sizeof entered->refusal, "the device has no more");
    }
    during = entered ? *entered : (wi_cuda_scope){.client_count = 99};
    return refuses ? NULL : made;
}

static size_t device_number(ggml_backend_dev_t device)
{
    return (size_t)((struct ggml_backend_device_t *)(void *)device - devices);
}
static size_t count_devices(ggml_backend_reg_t of)
{
    assert_ptr_equal(of, devices);
    return device_count;
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

static struct ggml_backend_buffer_type cpu, of_pointers;
static struct ggml_backend_buffer on_host;

static ggml_backend_buffer_t from_pointer(void *pointer, size_t size)
{
    assert_non_null(pointer);
    on_host = (struct ggml_backend_buffer){.buft = &of_pointers, .context = pointer, .size = size};
    return &on_host;
}

/* A device's tensors end in rows that are whole. */
static size_t padded(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor)
{
    (void)type;
    return bytes_of(tensor) + 28;
}

static const wg_library library = {.ggml_backend_reg_dev_count = count_devices,
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
static int opens;
static bool cannot_be_opened;

void *__wrap_dlopen(const char *path, int mode)
{
    if (!path || !strstr(path, "libggml-cuda"))
        return __real_dlopen(path, mode);
    opens++;
    return cannot_be_opened ? __real_dlopen("/nonexistent", mode) : (void *)&library;
}

void *__wrap_dlsym(void *handle, const char *name)
{
    if (handle != &library)
        return __real_dlsym(handle, name);
    assert_string_equal(name, "ggml_backend_cuda_reg");
    return *(void **)&(ggml_backend_reg_t(*[])(void)){registry}[0];
}

static const char *lacks; /* a library of CUDA's */
const char *wi_cuda_missing(const char *const *more)
{
    assert_null(more);
    return lacks;
}

static weir_status mark;
weir_status wg_check_mark(const char *directory)
{
    (void)directory;
    return mark == WEIR_OK ? WEIR_OK : weir_fail(mark, "it is of another commit");
}

void wg_store_directory(const char *folder, char *out, size_t capacity)
{
    assert_string_equal(folder, "engines/llama-cuda/current");
    snprintf(out, capacity, "/nowhere/%s", folder);
}

static const char *throws;
bool wg_guarded(void (*fn)(void *user), void *user, char *text, size_t capacity)
{
    fn(user);
    snprintf(text, capacity, "%s", throws ? throws : "");
    return !throws;
}
void wg_log_forget(void) {}
const char *wg_log_first_error(void)
{
    return "no driver";
}

/* ---- the redirect --------------------------------------------------------------------------------------------------- */

static struct redirects {
    int begun, added, ended, settled;
    bool cannot_begin, cannot_end, does_not_settle;
    weir_client *clients[WI_CUDA_DEVICES]; /* its own */
    uint64_t overrun[RUNTIMES];            /* of the models' */
    int asked;                             /* for these */
} its;

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
    assert_string_equal(options->module, file);
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
    scope->outer = entered;
    entered = scope;
    return WEIR_OK;
}

void wi_cuda_scope_leave(wi_cuda_scope *scope)
{
    assert_ptr_equal(entered, scope);
    entered = scope->outer;
}

/* ---- the cache, which may be elastic -------------------------------------------------------------------------------- */

static bool elastic;
static weir_status on_device; /* what it answers there */
static const weir_client *cache_of;
static wi_cuda_place its_place;
static int caches_made;
static ggml_backend_buffer_t cache_made;

bool __wrap_wg_cache_wanted(const weir_engine_model *model);
weir_status __wrap_wg_cache_on_host(weir_engine_model *model, ggml_backend_buffer_type_t type, size_t bytes,
                                    ggml_backend_buffer_t *out);
weir_status __wrap_wg_cache_on_device(weir_engine_model *model, weir_client *client, size_t bytes,
                                      const wi_cuda_place **out);
void __wrap_wg_cache_made(const wi_cuda_place *place, ggml_backend_buffer_t buffer);
weir_status __real_wg_cache_on_device(weir_engine_model *model, weir_client *client, size_t bytes,
                                      const wi_cuda_place **out);
void __real_wg_cache_made(const wi_cuda_place *place, ggml_backend_buffer_t buffer);

bool __wrap_wg_cache_wanted(const weir_engine_model *model)
{
    (void)model;
    return elastic;
}
weir_status __wrap_wg_cache_on_host(weir_engine_model *model, ggml_backend_buffer_type_t type, size_t bytes,
                                    ggml_backend_buffer_t *out)
{
    (void)model, (void)type, (void)bytes, (void)out;
    fail();
    return WEIR_OK;
}
weir_status __wrap_wg_cache_on_device(weir_engine_model *model, weir_client *client, size_t bytes,
                                      const wi_cuda_place **out)
{
    (void)model;
    cache_of = client;
    assert_int_equal(bytes, 5000);
    if (on_device != WEIR_OK)
        return weir_fail(on_device, "no pages for the cache");
    *out = &its_place;
    return WEIR_OK;
}
void __wrap_wg_cache_made(const wi_cuda_place *place, ggml_backend_buffer_t buffer)
{
    assert_ptr_equal(place, &its_place);
    caches_made++;
    cache_made = buffer;
}

/* ---- where a model lies --------------------------------------------------------------------------------------------- */

static wg_places places_of(const int *which, size_t count)
{
    weir_engine_place list[RUNTIMES];
    weir_engine_load load = {.struct_size = sizeof load, .path = "model.gguf", .places = list, .place_count = count};
    wg_places places;
    for (size_t i = 0; i < count; i++)
        list[i] = (weir_engine_place){.client = clients[which[i]]};
    assert_int_equal(wg_places_read(&load, false, &places), WEIR_OK);
    return places;
}
#define PLACES(...) places_of((const int[]){__VA_ARGS__}, sizeof(int[]){__VA_ARGS__} / sizeof(int))

static void what_is_on_no_device_is_of_the_hosts_place_or_the_first_devices(void **state)
{
    (void)state;
    wg_places of = PLACES(ON_HOST);
    assert_ptr_equal(of.host, clients[ON_HOST]);
    assert_int_equal(of.kind, WEIR_KIND_DEVICE);
    assert_int_equal(of.devices, 0);
    of = PLACES(ON_1, ON_0);
    assert_int_equal(of.devices, 2);
    assert_ptr_equal(of.clients[0], clients[ON_1]);
    assert_ptr_equal(of.clients[1], clients[ON_0]);
    assert_ptr_equal(of.host, clients[ON_1]);
    assert_int_equal(of.kind, WEIR_KIND_HOST);
    for (int first = 0; first < 2; first++) {
        of = first ? PLACES(ON_HOST, ON_0) : PLACES(ON_0, ON_HOST);
        assert_int_equal(of.devices, 1);
        assert_ptr_equal(of.clients[0], clients[ON_0]);
        assert_ptr_equal(of.host, clients[ON_HOST]);
        assert_int_equal(of.kind, WEIR_KIND_DEVICE);
    }
    /* Of two places on the host, in whichever runtimes, the first. */
    snprintf(names[ON_1], sizeof names[ON_1], "host");
    for (int first = 0; first < 2; first++) {
        int host = first ? ON_1 : ON_HOST, other = first ? ON_HOST : ON_1;
        of = PLACES(host, other);
        assert_int_equal(of.devices, 0);
        assert_ptr_equal(of.host, clients[host]);
        assert_int_equal(of.kind, WEIR_KIND_DEVICE);
        of = PLACES(ON_0, host, other);
        assert_int_equal(of.devices, 1);
        assert_ptr_equal(of.host, clients[host]);
        assert_int_equal(of.kind, WEIR_KIND_DEVICE);
    }
    snprintf(names[ON_1], sizeof names[ON_1], "cuda:1");
    int all[WG_DEVICES];
    for (int i = 0; i < WG_DEVICES; i++)
        all[i] = i;
    assert_int_equal(places_of(all, WG_DEVICES).devices, WG_DEVICES);
}

static void refused(const weir_engine_load *load, bool planning, weir_status status, const char *words)
{
    wg_places places;
    assert_int_equal(wg_places_read(load, planning, &places), status);
    if (status != WEIR_OK)
        says(words);
}

static void places_that_are_none_are_refused(void **state)
{
    (void)state;
    weir_engine_place list[WG_DEVICES + 1] = {{.client = clients[ON_0]}};
    weir_engine_load load = {.struct_size = sizeof load, .path = "m.gguf", .places = list, .place_count = 1};
    refused(&load, false, WEIR_OK, "");
    load.path = NULL;
    refused(&load, true, WEIR_ERR_INVALID, "needs a path and a place");
    load.path = "m.gguf";
    load.places = NULL;
    refused(&load, true, WEIR_ERR_INVALID, "needs a path and a place");
    load.place_count = 0;
    refused(&load, false, WEIR_ERR_INVALID, "needs a path and a place");
    refused(&load, true, WEIR_OK, "");
    load.places = list;
    load.place_count = 2;
    refused(&load, false, WEIR_ERR_INVALID, "m.gguf: place 1 has no client");
    list[1].client = clients[AGAIN_ON_0]; /* another runtime of the device is another place */
    refused(&load, false, WEIR_OK, "");
    list[1].client = clients[ON_0];
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "the place 'cuda:0' is named twice");
    snprintf(names[ON_1], sizeof names[ON_1], "sim:1");
    list[1].client = clients[ON_1];
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "the place 'sim:1' is none for it");
    snprintf(names[ON_1], sizeof names[ON_1], "cuda:1");
    for (int i = 0; i < WG_DEVICES + 1; i++)
        list[i].client = clients[i];
    load.place_count = WG_DEVICES + 1;
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "the place 'cuda:16' is one too many");
}

static void a_provider_goes_with_its_places(void **state)
{
    (void)state;
    weir_engine_place list[2] = {{.client = clients[ON_0]}, {.client = clients[ON_HOST]}};
    weir_engine_load load = {.struct_size = sizeof load, .path = "m.gguf", .places = list, .place_count = 1};
    load.provider = "CUDA";
    refused(&load, false, WEIR_OK, "");
    load.provider = "cpu";
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "the provider cpu needs a place on the host alone");
    load.provider = "vulkan";
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "has the providers cuda and cpu, not vulkan");
    load.struct_size = offsetof(weir_engine_load, provider); /* an older caller's */
    refused(&load, false, WEIR_OK, "");
    load.struct_size = sizeof load;
    load.places = &list[1];
    load.provider = "cuda";
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "the provider cuda needs a place on cuda");
    load.provider = "CPU";
    refused(&load, false, WEIR_OK, "");
    load.place_count = 0;
    refused(&load, true, WEIR_OK, "");
    load.provider = NULL;
    refused(&load, true, WEIR_OK, "");
    load.provider = "cuda";
    refused(&load, true, WEIR_OK, "");
    load.provider = "vulkan";
    refused(&load, true, WEIR_ERR_UNSUPPORTED, "not vulkan");
}

/* ---- what is computed with ------------------------------------------------------------------------------------------ */

/* A model that is whole on devices computes with no cores; the last of its layers stands behind those that the file has. */
static void models_whole_on_devices_lease_no_cores(void **state)
{
    enum { LAYERS = 6 };
    static const struct {
        int64_t layers, threads;
        bool on_host, leases;
    } all[] = {{-1, 0, false, false}, {LAYERS + 1, 0, false, false}, {LAYERS, 0, false, true},
               {0, 3, false, true},   {-1, 0, true, true},           {LAYERS + 1, 2, true, true}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        weir_engine_model model = {.places = all[i].on_host ? PLACES(ON_HOST) : PLACES(ON_0, ON_1)};
        weir_cores_stats line = {.struct_size = sizeof line};
        model.facts.layers = LAYERS;
        model.load.gpu_layers = all[i].layers;
        model.load.threads = all[i].threads;
        assert_int_equal(wg_cores_open(&model), WEIR_OK);
        assert_int_equal(model.cores != NULL, all[i].leases);
        assert_int_equal(weir_cores_look(0, &line), all[i].leases ? WEIR_OK : WEIR_ERR_NOT_FOUND);
        if (all[i].leases) {
            assert_string_equal(line.name, "model");
            assert_int_equal(line.least, all[i].threads ? all[i].threads : 1);
            assert_int_equal(line.most, all[i].threads);
        }
        wg_cores_close(&model);
        assert_null(model.cores);
        assert_int_equal(weir_cores_look(0, &line), WEIR_ERR_NOT_FOUND);
    }
}

/* ---- the library: tests one behind the other, as it stays open once it is ------------------------------------------- */

static void what_is_missing_is_told(void **state)
{
    (void)state;
    char path[600], missing[256] = "";
    wg_places of = PLACES(ON_0);
    assert_int_equal(wg_devices_find("", path, sizeof path), WEIR_ERR_NOT_FOUND);
    says("no libggml-cuda.so in /nowhere/engines/llama-cuda/current or in its lib/");
    assert_int_equal(wg_devices_open(&library, "/nowhere", &of), WEIR_ERR_NOT_FOUND);
    says("no libggml-cuda.so in /nowhere or in its lib/");
    mark = WEIR_ERR_UNSUPPORTED;
    assert_int_equal(wg_devices_open(&library, home, &of), WEIR_ERR_UNSUPPORTED);
    says("of another commit");
    mark = WEIR_OK;
    assert_int_equal(wg_devices_find(home, path, sizeof path), WEIR_OK);
    assert_string_equal(path, file);
    assert_int_equal(wg_devices_needs(missing, sizeof missing), WEIR_OK);
    assert_string_equal(missing, "");
    lacks = "libcublas.so.13";
    assert_int_equal(wg_devices_needs(missing, sizeof missing), WEIR_ERR_NOT_FOUND);
    assert_non_null(strstr(missing, "needs libcublas.so.13"));
    assert_int_equal(opens, 0);
    assert_false(of.held);
}

static void nothing_is_opened_for_the_host(void **state)
{
    (void)state;
    wg_places of = PLACES(ON_HOST);
    assert_int_equal(wg_devices_open(&library, home, &of), WEIR_OK);
    assert_false(of.held);
    wg_devices_settle(&of);
    wg_devices_close(&of);
    assert_int_equal(opens + its.begun + its.settled, 0);
}

static void nothing_is_left(const wg_places *of)
{
    assert_false(of->held);
    assert_null(wg_devices_redirect());
    assert_int_equal(its.begun, its.ended);
    assert_int_equal(clients_on(ON_0), 1);
    assert_int_equal(clients_on(ON_1), 1);
    assert_int_equal(said, 0);
}

static void what_cannot_be_had_leaves_nothing(void **state)
{
    (void)state;
    wg_places of = PLACES(ON_1, ON_0);
    cannot_be_opened = true;
    assert_int_equal(wg_devices_open(&library, home, &of), WEIR_ERR_ENGINE);
    says("llama.cpp's library for CUDA cannot be opened");
    nothing_is_left(&of);
    cannot_be_opened = false;
    its.cannot_begin = true;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wg_devices_open(&library, home, &of), WEIR_ERR_BUSY);
        says("no more redirects");
        nothing_is_left(&of);
    }
    its.cannot_begin = false;
    device_count = 1;
    assert_int_equal(wg_devices_open(&library, home, &of), WEIR_ERR_ENGINE);
    says("finds 1 devices of CUDA, and cuda:1 is not among them: no driver");
    nothing_is_left(&of);
    device_count = 2;
    throws = "CUDA has no error for this";
    assert_int_equal(wg_devices_open(&library, home, &of), WEIR_ERR_ENGINE);
    says("llama.cpp cannot begin with CUDA: CUDA has no error for this");
    nothing_is_left(&of);
    throws = NULL;
    assert_int_equal(opens, 2); /* once it is open it stays */
    wg_devices_close(&of);
    nothing_is_left(&of);
}

/* Each device has an account for what no model asked for, as long as there are models at all. */
static void it_lasts_as_long_as_there_are_models(void **state)
{
    (void)state;
    wg_places a = PLACES(ON_0), b = PLACES(ON_1, ON_0), c = PLACES(AGAIN_ON_0), d = PLACES(ON_1);
    for (int round = 0; round < 2; round++) {
        its = (struct redirects){0};
        assert_int_equal(wg_devices_open(&library, home, &a), WEIR_OK);
        assert_true(a.held);
        assert_ptr_equal(wg_devices_redirect(), &its);
        assert_ptr_equal(a.list[0], &devices[0]);
        assert_int_equal(wg_devices_open(&library, "", &b), WEIR_OK); /* the one that is open */
        assert_ptr_equal(b.list[0], &devices[1]);
        assert_ptr_equal(b.list[1], &devices[0]);
        assert_null(b.list[2]);
        assert_int_equal(its.begun, 1);
        assert_int_equal(its.added, 1);
        assert_int_equal(clients_on(ON_0), 2);
        assert_int_equal(clients_on(ON_1), 2);
        assert_int_equal(wg_devices_open(&library, home, &c), WEIR_ERR_BUSY);
        says("has models on cuda:0 in another runtime of this process");
        assert_false(c.held);
        assert_int_equal(clients_on(AGAIN_ON_0), 1);
        wg_devices_close(&c);
        assert_int_equal(wg_devices_open(&library, home, &d), WEIR_OK);
        assert_int_equal(its.added, 1);
        wg_devices_settle(&b);
        assert_int_equal(its.settled, 1);
        wg_devices_close(&a);
        wg_devices_close(&a); /* it is no more */
        wg_devices_close(&b);
        assert_int_equal(its.ended, 0);
        assert_ptr_equal(wg_devices_redirect(), &its);
        wg_devices_close(&d);
        assert_int_equal(its.ended, 1);
        nothing_is_left(&d);
    }
    assert_int_equal(wg_devices_open(&library, home, &c), WEIR_OK);
    assert_int_equal(clients_on(AGAIN_ON_0), 2);
    wg_devices_close(&c);
    assert_int_equal(clients_on(AGAIN_ON_0), 1);
}

static void there_is_one_library(void **state)
{
    (void)state;
    char other[128], path[160];
    wg_places of = PLACES(ON_0);
    snprintf(other, sizeof other, "%s/lib", home);
    snprintf(path, sizeof path, "%s/libggml-cuda.so", other);
    assert_int_equal(mkdir(other, 0700), 0);
    fclose(fopen(path, "we"));
    assert_int_equal(wg_devices_open(&library, other, &of), WEIR_ERR_CONFLICT);
    says("names ");
    says(path);
    assert_int_equal(wg_devices_open(&library, home, &of), WEIR_ERR_CONFLICT); /* in its lib/, which comes first */
    unlink(path);
    rmdir(other);
    assert_false(of.held);
    assert_null(wg_devices_redirect());
}

/* What llama.cpp keeps without a model is told, and the next model finds it. */
static void what_stays_is_told(void **state)
{
    (void)state;
    its = (struct redirects){.does_not_settle = true, .cannot_end = true};
    wg_places of = PLACES(ON_0);
    assert_int_equal(wg_devices_open(&library, home, &of), WEIR_OK);
    wg_devices_settle(&of);
    assert_int_equal(said, 1);
    assert_non_null(strstr(said_last, "a stream's capture does not end"));
    wg_devices_close(&of);
    assert_int_equal(said, 2);
    assert_non_null(strstr(said_last, "keeps memory of CUDA without a model: memory of it is live"));
    assert_ptr_equal(wg_devices_redirect(), &its);
    assert_int_equal(clients_on(ON_0), 2);
    device_count = 0; /* nor does a load that fails end it, and its own reason is what is told */
    assert_int_equal(wg_devices_open(&library, home, &of), WEIR_ERR_ENGINE);
    says("finds 0 devices");
    assert_int_equal(said, 3);
    device_count = 2;
    its.does_not_settle = its.cannot_end = false;
    assert_int_equal(wg_devices_open(&library, home, &of), WEIR_OK);
    assert_int_equal(its.begun, 1);
    wg_devices_settle(&of);
    wg_devices_close(&of);
    said -= 3;
    nothing_is_left(&of);
}

/* A model's reserves go with it, each; what scratch a device has is that device's. */
static void reserves_and_scratch_are_each_devices(void **state)
{
    (void)state;
    uint64_t has[2] = {1, 1};
    void *scratch, *kv;
    wg_places of = PLACES(ON_0, ON_1);
    assert_int_equal(wg_devices_open(&library, home, &of), WEIR_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_reservation_create(clients[i], 1 << 20, 0, &of.reserves[i]), WEIR_OK);
    assert_int_equal(weir_alloc(clients[1], 4096, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &scratch), WEIR_OK);
    assert_int_equal(weir_alloc(clients[0], 4096, WEIR_STREAM_HOST, WEIR_CLASS_KV, &kv), WEIR_OK);
    wg_devices_scratch(&of, has);
    assert_int_equal(has[0], 0);
    assert_int_equal(has[1], 4096);
    assert_int_equal(weir_free(clients[1], scratch, WEIR_STREAM_HOST), WEIR_OK);
    assert_int_equal(weir_free(clients[0], kv, WEIR_STREAM_HOST), WEIR_OK);
    wg_devices_close(&of);
    for (int i = 0; i < 2; i++) {
        assert_null(of.reserves[i]);
        assert_int_equal(account_of(clients[i]).promised, 0);
    }
    nothing_is_left(&of);
}

/* ---- buffers -------------------------------------------------------------------------------------------------------- */

static weir_engine_model model;

static void open_model(void)
{
    model = (weir_engine_model){.library = &library, .places = PLACES(ON_0, ON_1)};
    its = (struct redirects){0};
    assert_int_equal(wg_devices_open(&library, home, &model.places), WEIR_OK);
}

static void close_model(void)
{
    wg_devices_close(&model.places);
    nothing_is_left(&model.places);
}

/* ggml asks for the size of a tensor, and then for the buffer. */
static ggml_backend_buffer_t ask(ggml_backend_buffer_type_t type, const char *tensor, size_t size)
{
    struct ggml_tensor its_tensor = {.op = GGML_OP_NONE};
    bool of_host = type == &cpu || type == &devices[0].of_host;
    if (tensor) {
        snprintf(its_tensor.name, sizeof its_tensor.name, "%s", tensor);
        assert_int_equal(type->iface.get_alloc_size(type, &its_tensor), of_host ? 100 : 128);
    }
    return type->iface.alloc_buffer(type, size);
}

static void is_for(weir_class memory_class, const char *tag)
{
    assert_int_equal(during.memory_class, memory_class);
    assert_string_equal(during.tag, tag);
    assert_false(during.overruns);
    assert_int_equal(during.client_count, 2);
    assert_ptr_equal(during.clients[0], clients[0]);
    assert_ptr_equal(during.clients[1], clients[1]);
}

static void between_buffers_it_is_scratch(const wg_phase *phase)
{
    assert_int_equal(phase->scope.memory_class, phase->stage == WG_LOADING ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_SCRATCH);
    assert_string_equal(phase->scope.tag, phase->stage == WG_LOADING ? "upload" : "scratch");
    assert_true(phase->scope.overruns);
    assert_null(phase->scope.place);
}

static void a_buffer_is_for_what_it_was_asked_for(void **state)
{
    struct ggml_backend_buffer buffer = {.size = 0};
    ggml_backend_buffer_type_t type = &devices[1].type;
    (void)state;
    open_model();
    made = &buffer;
    allocated = 0;
    assert_ptr_equal(ask(type, "cache_k_l0", 5000), &buffer); /* of nobody's */
    assert_int_equal(during.client_count, 99);
    for (enum wg_stage stage = WG_LOADING; stage <= WG_RUNNING; stage++) {
        wg_phase phase;
        wg_phase_begin(&phase, stage, &model);
        assert_ptr_equal(wg_phase_model(), &model);
        between_buffers_it_is_scratch(&phase);
        assert_ptr_equal(phase.scope.reservations, stage == WG_RUNNING ? model.places.reserves : NULL);
        bool loads = stage == WG_LOADING;
        assert_ptr_equal(ask(type, "cache_k_l0", 5000), &buffer);
        is_for(loads ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_KV, loads ? "weights" : "KV cache");
        assert_ptr_equal(ask(type, "ffn", 5000), &buffer);
        is_for(loads ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_SCRATCH, loads ? "weights" : "compute buffer");
        assert_ptr_equal(ask(&devices[0].of_host, NULL, 5000), &buffer); /* what was asked for before is over */
        is_for(loads ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_ACTIVATIONS, loads ? "weights" : "output buffer");
        between_buffers_it_is_scratch(&phase);
        wg_phase_end(&phase);
        assert_int_equal(phase.refusal, WEIR_OK);
        assert_null(entered);
        assert_null(wg_phase_model());
    }
    assert_int_equal(allocated, 10);
    close_model();
}

static void a_plan_adds_up_the_outputs(void **state)
{
    wg_phase phase;
    (void)state;
    open_model();
    wg_phase_begin(&phase, WG_PLANNING, &model);
    (void)ask(&devices[0].type, "ffn", 5000);
    (void)ask(&devices[0].type, NULL, 1000);
    (void)ask(&devices[1].type, NULL, 1);
    wg_phase_end(&phase);
    assert_int_equal(phase.planned_output, 1024 + 256);
    close_model();
}

/* Of the type that was asked for, in the account of the host's place until ggml frees it. */
static void a_buffer_of_the_cpus_is_a_block(void **state)
{
    wg_phase phase;
    (void)state;
    open_model();
    model.places.host = clients[ON_HOST];
    model.places.kind = WEIR_KIND_DEVICE;
    wg_phase_begin(&phase, WG_CONTEXT, &model);
    ggml_backend_buffer_t buffer = ask(&cpu, "cache_k_l0", 5000);
    assert_ptr_equal(buffer, &on_host);
    assert_ptr_equal(buffer->buft, &cpu);
    assert_int_equal(buffer->size, 5000);
    assert_true(account_of(clients[ON_HOST]).live_class[WEIR_CLASS_KV] >= 5000);
    wg_phase_end(&phase);
    buffer->iface.free_buffer(buffer);
    assert_int_equal(account_of(clients[ON_HOST]).live, 0);
    assert_int_equal(account_of(clients[ON_0]).live, 0);
    close_model();
}

static void what_is_refused_is_the_phases(void **state)
{
    wg_phase phase;
    (void)state;
    open_model();
    refuses = true;
    wg_phase_begin(&phase, WG_CONTEXT, &model);
    assert_null(ask(&devices[0].type, "ffn", 5000));
    assert_int_equal(phase.refusal, WEIR_ERR_OUT_OF_MEMORY);
    assert_string_equal(phase.detail, "the device has no more");
    snprintf(phase.detail, sizeof phase.detail, "the first"); /* which explains the others */
    assert_null(ask(&devices[0].type, "ffn", 5000));
    wg_phase_end(&phase);
    assert_string_equal(phase.detail, "the first");
    /* Scratch of no buffer, and an older refusal than that of a buffer that nobody refused. */
    wg_phase_begin(&phase, WG_RUNNING, &model);
    phase.scope.refused = 1;
    phase.scope.status = WEIR_ERR_DRIVER;
    snprintf(phase.scope.refusal, sizeof phase.scope.refusal, "of scratch");
    refuses = false;
    made = NULL;
    assert_null(ask(&devices[0].type, "ffn", 5000));
    assert_int_equal(phase.refusal, WEIR_OK);
    wg_phase_end(&phase);
    assert_int_equal(phase.refusal, WEIR_ERR_DRIVER);
    assert_string_equal(phase.detail, "of scratch");
    close_model();
}

static void an_elastic_cache_has_a_place_of_its_own(void **state)
{
    struct ggml_backend_buffer buffer = {.size = 0};
    wg_phase phase;
    (void)state;
    open_model();
    elastic = true;
    made = &buffer;
    wg_phase_begin(&phase, WG_CONTEXT, &model);
    for (size_t i = 0; i < 2; i++) {
        assert_ptr_equal(ask(&devices[i].type, "cache_v_l1", 5000), &buffer);
        assert_ptr_equal(cache_of, clients[i]);
        assert_ptr_equal(during.place, &its_place);
        assert_ptr_equal(cache_made, &buffer);
        between_buffers_it_is_scratch(&phase);
    }
    made = NULL;
    cache_made = &buffer;
    assert_null(ask(&devices[0].type, "cache_v_l1", 5000)); /* that it was not made is told, too */
    assert_null(cache_made);
    assert_int_equal(caches_made, 3);
    made = &buffer;
    assert_ptr_equal(ask(&devices[0].type, "ffn", 5000), &buffer);
    assert_null(during.place);
    assert_ptr_equal(ask(&devices[0].of_host, "cache_v_l1", 5000), &buffer); /* the host's is no device's */
    assert_null(during.place);
    on_device = WEIR_ERR_UNSUPPORTED; /* memory cannot be mapped there: the cache is whole */
    assert_ptr_equal(ask(&devices[0].type, "cache_v_l1", 5000), &buffer);
    assert_null(during.place);
    is_for(WEIR_CLASS_KV, "KV cache");
    assert_int_equal(caches_made, 3);
    assert_int_equal(phase.refusal, WEIR_OK);
    int before = allocated;
    on_device = WEIR_ERR_OUT_OF_MEMORY;
    assert_null(ask(&devices[0].type, "cache_v_l1", 5000));
    assert_int_equal(allocated, before);
    between_buffers_it_is_scratch(&phase);
    wg_phase_end(&phase);
    assert_int_equal(phase.refusal, WEIR_ERR_OUT_OF_MEMORY);
    assert_string_equal(phase.detail, "no pages for the cache");
    on_device = WEIR_OK;
    elastic = false;
    close_model();
}

/* A buffer that is freed has its pages no more; those of one that was not made go with the model. */
static void pages_on_a_device_are_given_back(void **state)
{
    enum { BYTES = 1 << 20 };
    const wi_cuda_place *place;
    (void)state;
    open_model();
    snprintf(model.load.cache_memory, sizeof model.load.cache_memory, "promised");
    for (int made_of_it = 1; made_of_it >= 0; made_of_it--) {
        struct ggml_backend_buffer buffer = {.size = 0};
        void *first = NULL, *second = NULL;
        assert_int_equal(__real_wg_cache_on_device(&model, clients[ON_1], BYTES, &place), WEIR_OK);
        assert_true(account_of(clients[ON_1]).promised >= BYTES);
        assert_int_equal(place->take(place->user, BYTES + 1, &first), WEIR_ERR_ENGINE);
        says("a KV cache of 1048576 bytes asks for 1048577");
        assert_null(first);
        assert_int_equal(place->take(place->user, BYTES, &second), WEIR_OK);
        assert_non_null(second);
        __real_wg_cache_made(place, made_of_it ? &buffer : NULL);
        assert_int_equal(buffer.iface.init_tensor != NULL, made_of_it);
        place->give_back(place->user, second);
        assert_int_equal(account_of(clients[ON_1]).promised > 0, !made_of_it);
    }
    wg_cache_drop(&model);
    assert_null(model.cache);
    assert_int_equal(account_of(clients[ON_1]).promised, 0);
    close_model();
}

static void run(uint64_t granted)
{
    wg_phase phase;
    wg_phase_begin(&phase, WG_RUNNING, &model);
    phase.scope.overrun = granted;
    wg_phase_end(&phase);
}

/* In no ledger, it is in the accounts of those that have it, until it has gone back. */
static void what_was_granted_past_the_budget_is_noted_while_it_is_live(void **state)
{
    (void)state;
    open_model();
    run(0);
    assert_int_equal(its.asked, 0);
    its.overrun[ON_1] = 3000;
    run(3000);
    assert_int_equal(account_of(clients[ON_0]).outside, 0);
    assert_int_equal(account_of(clients[ON_1]).outside, 3000);
    assert_non_null(strstr(account_of(clients[ON_1]).outside_method, "past the budget"));
    its.overrun[ON_0] = 500;
    its.overrun[ON_1] = 1000;
    run(0);
    assert_int_equal(account_of(clients[ON_0]).outside, 500);
    assert_int_equal(account_of(clients[ON_1]).outside, 1000);
    its.overrun[ON_1] = 0; /* the last of several has none, and the first has */
    run(0);
    its.overrun[ON_0] = 0;
    run(0);
    assert_int_equal(account_of(clients[ON_0]).outside, 0);
    assert_int_equal(account_of(clients[ON_1]).outside, 0);
    int asked = its.asked;
    run(0);
    assert_int_equal(its.asked, asked); /* there is nothing more to look for */
    assert_int_equal(said, 0);
    close_model();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_on_no_device_is_of_the_hosts_place_or_the_first_devices),
        cmocka_unit_test(places_that_are_none_are_refused),
        cmocka_unit_test(a_provider_goes_with_its_places),
        cmocka_unit_test(models_whole_on_devices_lease_no_cores),
        cmocka_unit_test(what_is_missing_is_told),
        cmocka_unit_test(nothing_is_opened_for_the_host),
        cmocka_unit_test(what_cannot_be_had_leaves_nothing),
        cmocka_unit_test(it_lasts_as_long_as_there_are_models),
        cmocka_unit_test(there_is_one_library),
        cmocka_unit_test(what_stays_is_told),
        cmocka_unit_test(reserves_and_scratch_are_each_devices),
        cmocka_unit_test(a_buffer_is_for_what_it_was_asked_for),
        cmocka_unit_test(a_plan_adds_up_the_outputs),
        cmocka_unit_test(a_buffer_of_the_cpus_is_a_block),
        cmocka_unit_test(what_is_refused_is_the_phases),
        cmocka_unit_test(an_elastic_cache_has_a_place_of_its_own),
        cmocka_unit_test(pages_on_a_device_are_given_back),
        cmocka_unit_test(what_was_granted_past_the_budget_is_noted_while_it_is_live),
    };
    for (size_t i = 0; i < 3; i++) {
        devices[i].type.iface.alloc_buffer = original;
        devices[i].type.iface.get_alloc_size = padded;
    }
    /* llama.cpp's type for the CPU is hooked before all others, and CUDA's for host memory takes its functions over. */
    cpu.iface.alloc_buffer = original;
    wg_buffers_hook(&library, &cpu, true);
    devices[0].of_host.iface = cpu.iface;
    return cmocka_run_group_tests(tests, begin, finish);
}
