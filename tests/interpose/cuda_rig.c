/* See cuda_rig.h. */
#include "interpose/cuda_rig.h"

#include "test_places.h"

#include <dlfcn.h>

stub_control control;
int warnings;
char said[512];

static void listen(weir_log_level level, const char *text, void *user)
{
    (void)user;
    warnings += level <= WEIR_LOG_WARNING;
    snprintf(said, sizeof said, "%s", text);
}

int find_stub(void **state)
{
    (void)state;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return -1;
#define X(type, name, parameters) *(void **)&control.name = dlsym(library, #name);
    STUB_CONTROLS(X)
#undef X
    return control.stub_fail ? 0 : -1;
}

char *module_path(const char *name, char *path, size_t capacity)
{
    snprintf(path, capacity, "%s/tests/interpose/%s.so", built_folder, name);
    return path;
}

static void find_calls(fixture *f)
{
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(runtime);
#define X(name, parameters)                                                                                            \
    *(void **)&f->m.name = dlsym(f->handle, "module_" #name);                                                          \
    *(void **)&f->real.name = dlsym(runtime, #name);                                                                   \
    assert_non_null(f->m.name);
    MODULE_CALLS(X)
#undef X
}

fixture prepare(uint64_t budget, size_t devices, const char *resource)
{
    fixture f = {.devices = devices};
    char name[16];
    f.host = make_runtime_on("host", 64 * MIB);
    for (size_t i = 0; i < devices; i++) {
        weir_runtime_options options = {
            .struct_size = sizeof options, .budget = budget, .resource = resource, .host = f.host};
        snprintf(name, sizeof name, "cuda:%zu", i);
        ok(weir_runtime_create(name, &options, &f.runtime[i]));
        f.client[i] = open_client(f.runtime[i], i == 0 ? "anna" : "bert", 0, 0);
    }
    f.handle = dlopen(module_path("cuda-module", f.path, sizeof f.path), RTLD_NOW | RTLD_LOCAL);
    if (!f.handle)
        fail_msg("%s", dlerror());
    find_calls(&f);
    warnings = 0;
    ok(weir_log_set(listen, NULL, WEIR_LOG_WARNING));
    assert_int_equal(f.m.cudaSetDevice(0), 0);
    return f;
}

weir_status redirect_with(fixture *f, wi_cuda_redirect_options options)
{
    if (!options.module)
        options.module = f->path;
    if (!options.clients) {
        options.clients = f->client;
        options.client_count = f->devices;
    }
    return wi_cuda_redirect_begin(&options, &f->redirect);
}

fixture begin(uint64_t budget)
{
    fixture f = prepare(budget, 1, NULL);
    ok(redirect_with(&f, (wi_cuda_redirect_options){.memory_class = WEIR_CLASS_OTHER}));
    return f;
}

fixture begin_on(const char *resource)
{
    fixture f = prepare(32 * MIB, 1, resource);
    ok(redirect_with(&f, (wi_cuda_redirect_options){.memory_class = WEIR_CLASS_OTHER}));
    return f;
}

void end(fixture *f)
{
    ok(wi_cuda_redirect_end(f->redirect));
    for (size_t i = 0; i < f->devices; i++) {
        ok(weir_client_destroy(f->client[i]));
        check_empty(f->runtime[i]);
        ok(weir_runtime_destroy(f->runtime[i]));
    }
    check_empty(f->host);
    ok(weir_runtime_destroy(f->host));
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    if (f->handle)
        dlclose(f->handle);
    assert_null(dlopen(f->path, RTLD_NOW | RTLD_NOLOAD)); /* nobody keeps the module */
    assert_int_equal(control.stub_count("streams"), 0);
    assert_int_equal(control.stub_count("allocations"), 0);
    assert_int_equal(control.stub_count("graphs"), 0);
    assert_int_equal(control.stub_count("captures broken"), 0);
}

wi_cuda_redirect_stats stats(const fixture *f)
{
    return redirect_stats(f->redirect);
}

weir_client_stats account(weir_client *client)
{
    weir_client_stats s = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(client, &s));
    return s;
}

uint64_t pinned_of(const fixture *f, weir_client *client)
{
    snapshot s = take_snapshot(f->host);
    weir_client_stats its = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(client, &its));
    for (size_t i = 0; i < s.count; i++)
        if (strcmp(s.clients[i].name, its.name) == 0)
            return s.clients[i].live;
    return 0;
}

void *get(const fixture *f, size_t bytes)
{
    void *pointer = NULL;
    assert_int_equal(f->m.cudaMalloc(&pointer, bytes), 0);
    assert_non_null(pointer);
    return pointer;
}

void *make_stream(const fixture *f)
{
    void *stream = NULL;
    assert_int_equal(f->m.cudaStreamCreateWithFlags(&stream, NON_BLOCKING), 0);
    return stream;
}

void wait_until_reached(gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

uint64_t left(const fixture *f)
{
    uint64_t bytes;
    ok(weir_runtime_drain(f->runtime[0], &bytes));
    return bytes + take_snapshot(f->host).device.pending;
}
