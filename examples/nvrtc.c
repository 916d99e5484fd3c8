/* nvrtc.c: compiling and launching kernels with what CUDA's driver and NVRTC offer at run time. */
#include "nvrtc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 128, MAJOR = 75, MINOR = 76 }; /* CUdevice_attribute: compute capability */

static struct {
    int (*init)(unsigned);
    int (*attribute)(int *value, int which, int device);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*load)(void **module, const void *image);
    int (*function)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **arguments, void **extra);
    int (*create_program)(void **program, const char *text, const char *name, int headers, const char **sources,
                          const char **names);
    int (*compile)(void *program, int count, const char **options);
    int (*cubin_size)(void *program, size_t *size);
    int (*cubin)(void *program, char *out);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *out);
    int (*destroy_program)(void **program);
} cu;

void *nvrtc_library(const char *const *names)
{
    void *library = NULL;
    for (; !library && *names; names++)
        library = dlopen(*names, RTLD_NOW | RTLD_GLOBAL);
    return library;
}

weir_status nvrtc_find(const nvrtc_symbol *symbols, size_t count, const char *wanted)
{
    for (size_t i = 0; i < count; i++) {
        void *found = symbols[i].library ? dlsym(symbols[i].library, symbols[i].name) : NULL;
        if (!found)
            return weir_fail(WEIR_ERR_NOT_FOUND, "%s is not here: %s", symbols[i].name, wanted);
        memcpy(symbols[i].to, &found, sizeof found);
    }
    return WEIR_OK;
}

weir_status nvrtc_worked(int result, const char *call)
{
    return result == 0 ? WEIR_OK : weir_fail(WEIR_ERR_DRIVER, "%s answered %d", call, result);
}

weir_status nvrtc_open(int device)
{
    static const char *const cuda_names[] = {"libcuda.so.1", NULL};
    static const char *const nvrtc_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
    void *cuda = nvrtc_library(cuda_names), *nvrtc = nvrtc_library(nvrtc_names), *context;
    const nvrtc_symbol symbols[] = {{cuda, "cuInit", &cu.init},
                                    {cuda, "cuDeviceGetAttribute", &cu.attribute},
                                    {cuda, "cuDevicePrimaryCtxRetain", &cu.retain},
                                    {cuda, "cuCtxPushCurrent_v2", &cu.push},
                                    {cuda, "cuModuleLoadData", &cu.load},
                                    {cuda, "cuModuleGetFunction", &cu.function},
                                    {cuda, "cuLaunchKernel", &cu.launch},
                                    {nvrtc, "nvrtcCreateProgram", &cu.create_program},
                                    {nvrtc, "nvrtcCompileProgram", &cu.compile},
                                    {nvrtc, "nvrtcGetCUBINSize", &cu.cubin_size},
                                    {nvrtc, "nvrtcGetCUBIN", &cu.cubin},
                                    {nvrtc, "nvrtcGetProgramLogSize", &cu.log_size},
                                    {nvrtc, "nvrtcGetProgramLog", &cu.log},
                                    {nvrtc, "nvrtcDestroyProgram", &cu.destroy_program}};
    weir_status status =
        nvrtc_find(symbols, sizeof symbols / sizeof *symbols, "libcuda.so.1 and libnvrtc of CUDA 12 or 13 are wanted");
    if (status == WEIR_OK)
        status = nvrtc_worked(cu.init(0), "cuInit");
    if (status == WEIR_OK)
        status = nvrtc_worked(cu.retain(&context, device), "cuDevicePrimaryCtxRetain");
    return status == WEIR_OK ? nvrtc_worked(cu.push(context), "cuCtxPushCurrent") : status;
}

static weir_status compiled(void *program, int result)
{
    char log[600] = "";
    size_t size = 0;
    if (result == 0)
        return WEIR_OK;
    if (cu.log_size(program, &size) == 0 && size <= sizeof log)
        (void)cu.log(program, log);
    return weir_fail(WEIR_ERR_DRIVER, "nvrtcCompileProgram answered %d: %s", result, log);
}

static weir_status load(void *program, const char *name, void **kernel)
{
    size_t size = 0;
    void *module;
    weir_status status = nvrtc_worked(cu.cubin_size(program, &size), "nvrtcGetCUBINSize");
    char *image = status == WEIR_OK ? malloc(size) : NULL;
    if (status == WEIR_OK)
        status = image ? nvrtc_worked(cu.cubin(program, image), "nvrtcGetCUBIN") : WEIR_ERR_SYSTEM;
    if (status == WEIR_OK)
        status = nvrtc_worked(cu.load(&module, image), "cuModuleLoadData");
    if (status == WEIR_OK)
        status = nvrtc_worked(cu.function(kernel, module, name), "cuModuleGetFunction");
    free(image);
    return status;
}

weir_status nvrtc_compile(int device, const char *text, const char *name, void **kernel)
{
    char architecture[40];
    const char *options[] = {architecture};
    int major = 0, minor = 0;
    void *program;
    weir_status status = nvrtc_worked(cu.attribute(&major, MAJOR, device), "cuDeviceGetAttribute");
    if (status == WEIR_OK)
        status = nvrtc_worked(cu.attribute(&minor, MINOR, device), "cuDeviceGetAttribute");
    (void)snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d%d", major, minor);
    if (status == WEIR_OK)
        status = nvrtc_worked(cu.create_program(&program, text, "example.cu", 0, NULL, NULL), "nvrtcCreateProgram");
    if (status != WEIR_OK)
        return status;
    status = compiled(program, cu.compile(program, 1, options));
    if (status == WEIR_OK)
        status = load(program, name, kernel);
    (void)cu.destroy_program(&program);
    return status;
}

weir_status nvrtc_launch(void *kernel, uint64_t count, void *argument, weir_stream stream)
{
    void *arguments[] = {argument};
    unsigned blocks = (unsigned)((count + THREADS - 1) / THREADS);
    return nvrtc_worked(cu.launch(kernel, blocks, 1, 1, THREADS, 1, 1, 0, weir_stream_native(stream), arguments, NULL),
                        "cuLaunchKernel");
}
