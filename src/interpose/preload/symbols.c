/* Which function a program gets for a name of CUDA's, and where CUDA's own are.
 *
 * Nothing is opened here: CUDA's functions are looked for in libraries that the program has loaded itself. */
#include "interpose/preload/preload.h"

#include <dlfcn.h>
#include <stdio.h>

wp_functions wp_real;
void *(*wp_real_dlsym)(void *handle, const char *name);
static atomic_uint_fast64_t calls[WP_FUNCTIONS];

typedef struct entry {
    const char *symbol,
        *name; /* as it is exported, and for cuGetProcAddress, which of libnvidia-ml's have no name for */
    int version;
    bool per_thread;
    void (*ours)(void);
    size_t real; /* where in wp_real */
} entry;

static const entry entries[] = {
#define X(symbol, name, version, per_thread, parameters, arguments)                                                    \
    {#symbol, #name, version, per_thread, (void (*)(void))symbol, offsetof(wp_functions, symbol)},
    WP_CUDA_FUNCTIONS(X)
#undef X
#define X(symbol, parameters, arguments)                                                                               \
    {#symbol, NULL, 0, false, (void (*)(void))symbol, offsetof(wp_functions, symbol)},
        WP_NVML_FUNCTIONS(X)
#undef X
};
static const entry used[] = {
#define X(name, version, parameters) {#name, #name, version, false, NULL, offsetof(wp_functions, name)},
    WP_USED_FUNCTIONS(X)
#undef X
};

/* The addresses of functions, as numbers are compared. */
static void *symbols_address_of(void (*function)(void))
{
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

static void *symbols_real_of(const entry *e)
{
    void *address;
    memcpy(&address, (const char *)&wp_real + e->real, sizeof address);
    return address;
}

/* The C library's dlsym ------------------------------------------------------------------------------------------- */

/* By dlvsym, which finds no name without a version, and so not ours. */
static void find_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *found = NULL;
    for (size_t i = 0; i < sizeof versions / sizeof *versions && !found; i++)
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (!found) {
        fputs("weir: libweir-preload.so finds no dlsym of glibc's, and cannot be preloaded here\n", stderr);
        abort();
    }
    memcpy(&wp_real_dlsym, &found, sizeof found);
}

static void *symbols_look_up(void *handle, const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!wp_real_dlsym)
        pthread_once(&once, find_dlsym);
    return wp_real_dlsym(handle, name); // NOLINT(clang-analyzer-core.CallAndMessage): find_dlsym has set it
}

/* CUDA's functions ------------------------------------------------------------------------------------------------- */

static void symbols_fill_in(const entry *e, void *library)
{
    void *found = NULL;
    if (wp_real.cuGetProcAddress_v2 && e->name &&
        wp_real.cuGetProcAddress_v2(e->name, &found, e->version, e->per_thread ? WP_GET_PER_THREAD : 0, NULL) !=
            CUDA_SUCCESS)
        found = NULL;
    if (!found)
        found = symbols_look_up(library, e->symbol);
    memcpy((char *)&wp_real + e->real, &found, sizeof found);
}

static void fill_in_cuda(void *library)
{
    void *get = symbols_look_up(library, "cuGetProcAddress_v2");
    memcpy(&wp_real.cuGetProcAddress_v2, &get, sizeof get);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (entries[i].name)
            symbols_fill_in(&entries[i], library);
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        symbols_fill_in(&used[i], library);
}

static void fill_in_nvml(void *library)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (!entries[i].name)
            symbols_fill_in(&entries[i], library);
}

/* With the libraries that are loaded by now. */
static bool symbols_load(bool cuda)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static atomic_bool loaded[2];
    if (wi_likely(atomic_load_explicit(&loaded[cuda], memory_order_acquire)))
        return true;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&loaded[cuda])) {
        void *library = dlopen(cuda ? "libcuda.so.1" : "libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
        if (library && cuda)
            fill_in_cuda(library);
        else if (library)
            fill_in_nvml(library);
        atomic_store(&loaded[cuda], library != NULL);
    }
    bool found = atomic_load(&loaded[cuda]);
    pthread_mutex_unlock(&lock);
    return found;
}

bool wp_find_cuda(void)
{
    return symbols_load(true);
}

bool wp_enter(enum wp_function function)
{
    atomic_fetch_add_explicit(&calls[function], 1, memory_order_relaxed);
    return symbols_load(entries[function].name != NULL);
}

uint64_t wp_calls(enum wp_function function)
{
    return atomic_load(&calls[function]);
}

const char *wp_function_name(enum wp_function function)
{
    return entries[function].symbol;
}

/* By name ---------------------------------------------------------------------------------------------------------- */

static const entry *symbols_find(const char *symbol)
{
    if (strncmp(symbol, "cu", 2) != 0 && strncmp(symbol, "nvml", 4) != 0)
        return NULL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].symbol, symbol) == 0)
            return &entries[i];
    return NULL;
}

/* weir's own calls are not a program's. */
static bool symbols_is_weirs(const void *caller)
{
    Dl_info its, weirs, ours;
    return dladdr(caller, &its) && dladdr(symbols_address_of((void (*)(void))weir_version), &weirs) &&
           dladdr(symbols_address_of((void (*)(void))wp_enter), &ours) &&
           (its.dli_fbase == weirs.dli_fbase || its.dli_fbase == ours.dli_fbase);
}

static bool is_cudas(const void *address)
{
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/'), *file = slash ? slash + 1 : info.dli_fname;
    return strncmp(file, "libcuda.so", 10) == 0 || strncmp(file, "libnvidia-ml.so", 15) == 0;
}

/* Who asks for the next one has its own after ours in the order of libraries, and gets what it would get. */
wp_found wp_find_symbol(void *handle, const char *name, const void *caller)
{
    wp_found found = {NULL, false};
    const entry *e = name ? symbols_find(name) : NULL;
    if (wi_unlikely(!wp_real_dlsym))
        (void)symbols_look_up(RTLD_DEFAULT, "dlsym");
    if (wi_likely(!e) || handle == RTLD_NEXT)
        return found;
    if (symbols_is_weirs(caller)) {
        found.answered =
            wp_tree_is() && strcmp(name, "cuGetProcAddress_v2") == 0 && symbols_look_up(handle, name) != NULL;
        found.address = found.answered ? symbols_address_of((void (*)(void))wp_get_for_weir) : NULL;
        return found;
    }
    found.answered = true;
    found.address = symbols_look_up(handle, name);
    if (found.address ==
        symbols_address_of(e->ours)) /* by RTLD_DEFAULT, or the program's handle: is there one behind it? */
        found.address = symbols_look_up(RTLD_NEXT, name);
    if (found.address && is_cudas(found.address))
        found.address = symbols_address_of(e->ours);
    return found;
}

/* By cuGetProcAddress: the last form in the list that the version asked for has. What drivers of later versions have under
 * the name may be another form, unless it is the same function. */
static const entry *form_of(const char *name, int version, bool per_thread)
{
    const entry *best = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const entry *e = &entries[i];
        bool fits = e->name && strcmp(e->name, name) == 0 && e->version <= version && (per_thread || !e->per_thread);
        if (fits)
            best = e;
    }
    return best;
}

static void exchange(const char *name, void **function, int version, uint64_t flags)
{
    const entry *e = name && function && *function ? form_of(name, version, flags & WP_GET_PER_THREAD) : NULL;
    if (e && (version <= WP_KNOWN_VERSION || symbols_real_of(e) == *function))
        *function = symbols_address_of(e->ours);
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found)
{
    WP_ENTER(cuGetProcAddress_v2);
    CUresult result = wp_real.cuGetProcAddress_v2(name, function, version, flags, found);
    if (result == CUDA_SUCCESS)
        exchange(name, function, version, flags);
    return result;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    WP_ENTER(cuGetProcAddress);
    CUresult result = wp_real.cuGetProcAddress(name, function, version, flags);
    if (result == CUDA_SUCCESS)
        exchange(name, function, version, flags);
    return result;
}
