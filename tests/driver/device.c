#include "driver/device.h"

#include <dlfcn.h>
#include <time.h>

device_kind device_kind_now;
struct stub_control control;

static void *library(void)
{
    static void *handle;
    if (!handle)
        handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return handle;
}

void *cuda_symbol(const char *name)
{
    return library() ? dlsym(library(), name) : NULL;
}

bool find_controls(void)
{
    void *symbol;
    bool all = true;
#define X(type, name, parameters)                                                                                      \
    symbol = cuda_symbol(#name);                                                                                       \
    all = all && symbol;                                                                                               \
    memcpy(&control.name, &symbol, sizeof symbol);
    STUB_CONTROLS(X)
#undef X
    return all;
}

static const char *why_no_gpu(void)
{
    int (*init)(unsigned);
    int (*count)(int *);
    int devices = 0;
    if (!library())
        return "there is no libcuda.so.1";
    if (cuda_symbol("stub_count"))
        return "libcuda.so.1 is the stub";
    void *symbol = cuda_symbol("cuInit");
    memcpy(&init, &symbol, sizeof symbol);
    symbol = cuda_symbol("cuDeviceGetCount");
    memcpy(&count, &symbol, sizeof symbol);
    if (!init || !count || init(0) != 0 || count(&devices) != 0 || devices == 0)
        return "CUDA's driver finds no device";
    return NULL;
}

int choose_device(int argc, char **argv)
{
    static const char *const kinds[] = {"host", "stub", "cuda", "sim"};
    const char *kind = argc > 1 ? argv[1] : "host";
    int found = -1;
    for (int i = 0; i < 4; i++)
        if (strcmp(kinds[i], kind) == 0)
            found = i;
    if (found < 0) {
        fprintf(stderr, "usage: %s host|stub|cuda|sim\n", argv[0]);
        return 2;
    }
    device_kind_now = (device_kind)found;
    if (device_kind_now == ON_STUB && !find_controls()) {
        fprintf(stderr, "the stub of libcuda.so.1 is not in LD_LIBRARY_PATH\n");
        return 1;
    }
    const char *missing = device_kind_now == ON_CUDA ? why_no_gpu() : NULL, *required = getenv("WEIR_REQUIRE_CUDA");
    if (!missing)
        return 0;
    bool fails = required && strcmp(required, "1") == 0;
    printf("%s: no GPU: %s\n", fails ? "failed" : "skipped", missing);
    return fails ? 1 : 77;
}

const char *device_name(void)
{
    return device_kind_now == ON_HOST ? "host" : device_kind_now == ON_SIM ? "sim" : "cuda:0";
}

void nap(unsigned microseconds)
{
    nanosleep(&(struct timespec){.tv_sec = microseconds / 1000000, .tv_nsec = (long)(microseconds % 1000000) * 1000},
              NULL);
}

void hold(void *user)
{
    gate *g = user;
    atomic_store(&g->entered, true);
    while (!atomic_load(&g->open))
        nap(200);
}
