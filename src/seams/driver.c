/* CUDA's driver, as far as seams ask it. */
#include "seams/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { SUCCESS = 0, CAPTURE_IMPLICIT = 906, NOT_CAPTURED = 0, CUDA_12 = 12000 };

typedef int get_proc_fn(const char *name, void **function, int version, uint64_t flags, int *found);
typedef int is_capturing_fn(void *stream, int *status);
typedef int get_id_fn(void *stream, unsigned long long *id);

static struct {
    is_capturing_fn *is_capturing;
    get_id_fn *get_id;
} driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* It is never closed: weir has it open as well, and it keeps threads of its own. */
static void driver_find_all(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *functions[2] = {NULL, NULL};
    void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    get_proc_fn *get = NULL;
    memcpy(&get, &symbol, sizeof get);
    if (!get || get("cuStreamIsCapturing", &functions[0], CUDA_12, 0, NULL) != SUCCESS ||
        get("cuStreamGetId", &functions[1], CUDA_12, 0, NULL) != SUCCESS)
        return;
    memcpy(&driver.is_capturing, &functions[0], sizeof driver.is_capturing);
    memcpy(&driver.get_id, &functions[1], sizeof driver.get_id);
}

wseam_stream_look wseam_driver_look(void *native, uint64_t *id)
{
    int capture = NOT_CAPTURED;
    unsigned long long found = 0;
    pthread_once(&once, driver_find_all);
    if (!driver.is_capturing || !driver.get_id)
        return WSEAM_STREAM_UNKNOWN;
    int result = driver.is_capturing(native, &capture);
    if (result == CAPTURE_IMPLICIT || (result == SUCCESS && capture != NOT_CAPTURED))
        return WSEAM_STREAM_CAPTURED;
    if (result != SUCCESS || driver.get_id(native, &found) != SUCCESS)
        return WSEAM_STREAM_UNKNOWN;
    *id = found;
    return WSEAM_STREAM_KNOWN;
}
