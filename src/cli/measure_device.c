/* See measure.h. The functions come from libcuda.so.1, which weir has opened by then; names and types are cuda.h's. */
#include "measure.h"

#include <dlfcn.h>
#include <string.h>

typedef int result;

typedef struct functions {
    result (*push)(void *context);
    result (*pop)(void **context);
    result (*info)(size_t *available, size_t *total);
} functions;

static bool find(functions *out)
{
    enum { VERSION = 12000 };
    result (*get)(const char *, void **, int, unsigned long long, int *) = NULL;
    struct {
        const char *name;
        void *to;
    } wanted[] = {{"cuCtxPushCurrent", &out->push}, {"cuCtxPopCurrent", &out->pop}, {"cuMemGetInfo", &out->info}};
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    memcpy(&get, &symbol, sizeof symbol);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (!get || get(wanted[i].name, &symbol, VERSION, 0, NULL) != 0 || !symbol)
            return false;
        memcpy(wanted[i].to, &symbol, sizeof symbol);
    }
    return true;
}

bool measure_device_taken(weir_runtime *runtime, uint64_t *taken)
{
    functions cuda;
    size_t available = 0, total = 0;
    void *ignored;
    if (!find(&cuda) || cuda.push(weir_runtime_native(runtime)) != 0)
        return false;
    bool told = cuda.info(&available, &total) == 0;
    cuda.pop(&ignored);
    *taken = total - available;
    return told;
}
