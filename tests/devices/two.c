/* See two.h. */
#include "devices/two.h"

#include <dlfcn.h>

struct two_driver driver;
uint64_t (*two_stub_count)(const char *what);
void (*two_stub_fail)(const char *function, int nth, int code);

/* Functions that are newer than the driver stay NULL; no test here calls them. */
static bool find_functions(void *library)
{
    int has = 0;
    CUresult (*get)(const char *, void **, int, unsigned long long, int *);
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    if (!symbol)
        return false;
    bool all = true;
    memcpy(&get, &symbol, sizeof get);
#define X(name, version, parameters)                                                                                   \
    symbol = NULL;                                                                                                     \
    all = all && ((get(#name, &symbol, version, 0, NULL) == CUDA_SUCCESS && symbol) || (version) > has);               \
    memcpy(&driver.name, &symbol, sizeof symbol);
    WI_CUDA_FUNCTIONS(X)
    all = all && driver.cuDriverGetVersion(&has) == CUDA_SUCCESS;
    STUB_USERS(X)
#undef X
    return all;
}

int two_devices(void)
{
    int count = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || !find_functions(library) || driver.cuInit(0) != CUDA_SUCCESS ||
        driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        count = 0;
    void *symbol = library ? dlsym(library, "stub_count") : NULL;
    memcpy(&two_stub_count, &symbol, sizeof symbol);
    symbol = library ? dlsym(library, "stub_fail") : NULL;
    memcpy(&two_stub_fail, &symbol, sizeof symbol);
    if (count >= TWO)
        return 0;
    printf("%s: it takes two CUDA devices, and there are %d\n", two_stub_count ? "failed" : "skipped", count);
    return two_stub_count ? 1 : 77;
}

const char *two_name(int ordinal)
{
    return ordinal ? "cuda:1" : "cuda:0";
}

int two_where(const void *address)
{
    int device = -1;
    if (driver.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)(uintptr_t)address) !=
        CUDA_SUCCESS)
        return -1;
    return device;
}

two_thread two_look(void)
{
    two_thread now = {.current = NULL};
    assert_int_equal(driver.cuCtxGetCurrent(&now.current), CUDA_SUCCESS);
    if (two_stub_count) {
        now.depth = two_stub_count("depth");
        now.mode = two_stub_count("capture mode");
    }
    return now;
}

void two_same(two_thread before, const char *what)
{
    two_thread now = two_look();
    if (now.current != before.current || now.depth != before.depth || now.mode != before.mode)
        fail_msg("%s left the thread with the context %p (of %llu, mode %llu) that had %p (of %llu, mode %llu)", what,
                 (void *)now.current, (unsigned long long)now.depth, (unsigned long long)now.mode,
                 (void *)before.current, (unsigned long long)before.depth, (unsigned long long)before.mode);
}

uint64_t two_count(const char *what, int ordinal)
{
    char text[64];
    snprintf(text, sizeof text, "%s:%d", what, ordinal);
    return two_stub_count ? two_stub_count(text) : 0;
}
