#include "preload/way.h"

#include <dlfcn.h>
#include <unistd.h>

way cu;
steer stub;

typedef struct entry {
    const char *symbol, *name;
    int version;
    size_t at;
} entry;

/* The linked program is linked with the stub, which has not all functions that there are. Code takes the addresses: in a table of
 * data GNU's linkers make a weak name 0 for good where no library has it yet, though the preloaded one will. */
#ifdef LINKED
#define X(symbol, name, version, per_thread, parameters, arguments) __attribute__((weak)) CUresult symbol parameters;
WP_CUDA_FUNCTIONS(X)
#undef X
#define X(symbol, name, version, parameters) __attribute__((weak)) CUresult symbol parameters;
WAY_FUNCTIONS(X)
#undef X
#endif

static void find_linked(void)
{
#ifdef LINKED
#define TAKE(symbol, parameters)                                                                                       \
    {                                                                                                                  \
        CUresult(*volatile linked) parameters = symbol;                                                                \
        cu.symbol = linked;                                                                                            \
    }
#define X(symbol, name, version, per_thread, parameters, arguments) TAKE(symbol, parameters)
    WP_CUDA_FUNCTIONS(X)
#undef X
#define X(symbol, name, version, parameters) TAKE(symbol, parameters)
    WAY_FUNCTIONS(X)
#undef X
#endif
}

static const entry entries[] = {
#define X(symbol, name, version, per_thread, parameters, arguments) {#symbol, #name, version, offsetof(way, symbol)},
    WP_CUDA_FUNCTIONS(X)
#undef X
#define X(symbol, name, version, parameters) {#symbol, #name, version, offsetof(way, symbol)},
        WAY_FUNCTIONS(X)
#undef X
};

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), ends = strlen(end);
    return length >= ends && strcmp(text + length - ends, end) == 0;
}

/* The forms with _ptsz are asked for by a flag. */
static void *ask(const entry *e, const void *get, bool per_thread)
{
    CUresult (*get_proc)(const char *, void **, int, uint64_t, int *);
    void *found = NULL;
    memcpy(&get_proc, &get, sizeof get_proc);
    if (!ends_with(e->symbol, "_ptsz") || per_thread)
        (void)get_proc(e->name, &found, e->version > 13000 ? e->version : 13000, per_thread ? WP_GET_PER_THREAD : 0,
                       NULL);
    return found;
}

static void find_stub(void *library)
{
    void *found;
#define X(type, name, parameters)                                                                                      \
    found = dlsym(library, #name);                                                                                     \
    memcpy(&stub.name, &found, sizeof found);
    STUB_CONTROLS(X)
#undef X
}

void find_way(const char *name)
{
    bool linked = strcmp(name, "linked") == 0, asked = strncmp(name, "proc", 4) == 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    EXPECT(library);
    find_stub(library);
    const void *get = asked ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (linked)
        find_linked();
    for (size_t i = 0; i < sizeof entries / sizeof *entries && !linked; i++) {
        void *found = asked ? ask(&entries[i], get, ends_with(name, "thread")) : dlsym(library, entries[i].symbol);
        memcpy((char *)&cu + entries[i].at, &found, sizeof found);
    }
    EXPECT(cu.cuInit && cu.cuInit(0) == CUDA_SUCCESS);
}

void use_device(int ordinal)
{
    CUcontext context;
    EXPECT(cu.cuDevicePrimaryCtxRetain(&context, ordinal) == CUDA_SUCCESS);
    EXPECT(cu.cuCtxSetCurrent(context) == CUDA_SUCCESS);
}
