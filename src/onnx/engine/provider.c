/* The providers of ONNX Runtime: their names, and what a library lacks to use one (model.h). */
#include "model.h"
#include <weir/engine.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "engines/command.h"
#include "foresee.h"

typedef struct facts {
    const char *name;
    onnx_provider_kind kinds[ONNX_PROVIDER_KINDS];
    const char *elsewhere;
    const char *get;   /* how, where no library has it */
    const char *needs; /* and what it takes besides; NULL: a library with it is whole */
} facts;

#define FILE_OF(provider) "libonnxruntime_providers_" provider ".so"
#define CUDA_BUILD        "run " WEIR_ENGINES_COMMAND " --cuda onnxruntime-cuda"
#define WHERE             "where the dynamic linker finds it (LD_LIBRARY_PATH)"

static const facts all[ONNX_PROVIDERS] = {
    [ONNX_TENSORRT] = {"tensorrt",
                       {{"TensorrtExecutionProvider", FILE_OF("tensorrt"), NULL}},
                       NULL,
                       CUDA_BUILD,
                       "put TensorRT 10, for CUDA 13, " WHERE},
    [ONNX_CUDA] = {"cuda",
                   {{"CUDAExecutionProvider", FILE_OF("cuda"), "libcudnn.so.9"}},
                   NULL,
                   CUDA_BUILD,
                   "install NVIDIA's driver, and put CUDA 13 with cuDNN 9 " WHERE},
    [ONNX_ROCM] = {"rocm",
                   {{"MIGraphXExecutionProvider", FILE_OF("migraphx"), NULL},
                    {"ROCMExecutionProvider", FILE_OF("rocm"), NULL}},
                   NULL,
                   "set WEIR_ONNXRUNTIME to AMD's build of ONNX Runtime (PyPI: onnxruntime-migraphx)",
                   "put ROCm " WHERE},
    [ONNX_COREML] = {"coreml",
                     {{"CoreMLExecutionProvider", NULL, NULL}},
                     "Core ML is of Apple's systems",
                     "run the model on one of Apple's systems",
                     NULL},
    [ONNX_DIRECTML] = {"directml",
                       {{"DmlExecutionProvider", NULL, NULL}},
                       "DirectML is of Windows",
                       "run the model on Windows",
                       NULL},
    [ONNX_OPENVINO] = {"openvino",
                       {{"OpenVINOExecutionProvider", FILE_OF("openvino"), NULL}},
                       NULL,
                       "run " WEIR_ENGINES_COMMAND " --openvino onnxruntime-openvino",
                       "run " WEIR_ENGINES_COMMAND " --openvino onnxruntime-openvino"},
    [ONNX_CPU] =
        {"cpu", {{"CPUExecutionProvider", NULL, NULL}}, NULL, "run " WEIR_ENGINES_COMMAND " onnxruntime", NULL},
};

const char *onnx_provider_name(onnx_provider provider)
{
    return all[provider].name;
}

const onnx_provider_kind *onnx_provider_kinds(onnx_provider provider)
{
    return all[provider].kinds;
}

const char *onnx_provider_advice(onnx_provider provider)
{
    return all[provider].get;
}

bool onnx_provider_find(const char *name, onnx_provider *out)
{
    if (strcasecmp(name, "metal") == 0)
        name = all[ONNX_COREML].name;
    for (int i = 0; i < ONNX_PROVIDERS; i++)
        if (strcasecmp(all[i].name, name) == 0) {
            *out = (onnx_provider)i;
            return true;
        }
    return false;
}

onnx_provider onnx_provider_of(const char *theirs)
{
    for (int i = 0; i < ONNX_PROVIDERS; i++)
        for (int k = 0; k < ONNX_PROVIDER_KINDS; k++)
            if (all[i].kinds[k].theirs && strcmp(all[i].kinds[k].theirs, theirs) == 0)
                return (onnx_provider)i;
    return ONNX_PROVIDERS;
}

/* ---- can it be used ---------------------------------------------------------------------------------------------- */

static void provider_beside(const onnx_library *library, const char *file, char *path, size_t capacity)
{
    const char *slash = strrchr(library->path, '/');
    snprintf(path, capacity, "%.*s%s", slash ? (int)(slash + 1 - library->path) : 0, library->path, file);
}

/* True: a library of the provider, of any kind, is found with all its dependencies. */
static bool is_whole_alone(const onnx_library *library, onnx_provider provider, char *why, size_t capacity)
{
    bool whole = false;
    for (int k = 0; k < ONNX_PROVIDER_KINDS && !whole; k++) {
        const char *file = all[provider].kinds[k].file;
        char path[640], list[300];
        if (!(library->has[provider] & 1u << k))
            continue;
        provider_beside(library, file ? file : "", path, sizeof path);
        int missing = file ? onnx_needs_missing(path, all[provider].kinds[k].also, list, sizeof list) : 0;
        whole = missing == 0;
        if (missing < 0)
            snprintf(why, capacity, "%s is not beside ONNX Runtime %s: %s", file, library->version, all[provider].get);
        else if (missing > 0)
            snprintf(why, capacity, "%s needs %s: %s", file, list, all[provider].needs);
    }
    return whole;
}

/* With what stands behind it in every session. */
static bool provider_is_whole(const onnx_library *library, onnx_provider provider, char *why, size_t capacity)
{
    return is_whole_alone(library, provider, why, capacity) &&
           (provider != ONNX_TENSORRT || is_whole_alone(library, ONNX_CUDA, why, capacity));
}

const char *onnx_provider_missing(const onnx_library *library, onnx_provider provider, char *text, size_t capacity)
{
    snprintf(text, capacity, "%s", all[provider].get);
    (void)provider_is_whole(library, provider, text, capacity);
    return text;
}

/* A provider calls Provider_GetHost to find its ONNX Runtime, and the answer comes from the first library of the
 * process with that symbol. For builds that are installed side by side, scripts/engines renames the symbol. */
static weir_status check_apart(const onnx_library *library)
{
    char path[640];
    Dl_info owner;
    provider_beside(library, FILE_OF("shared"), path, sizeof path);
    void *own = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *ours = own ? dlsym(own, "Provider_GetHost") : NULL, *first = dlsym(RTLD_DEFAULT, "Provider_GetHost");
    bool apart = !ours || !first || ours == first;
    if (!apart && !dladdr(first, &owner))
        owner.dli_fname = "another";
    if (own)
        dlclose(own);
    return apart ? WEIR_OK
                 : weir_fail(WEIR_ERR_CONFLICT,
                             "the process has %s already, so that providers of %s would call into that other ONNX "
                             "Runtime: use the other by WEIR_ONNXRUNTIME, or a build that " WEIR_ENGINES_COMMAND
                             " put into the "
                             "store",
                             owner.dli_fname, library->path);
}

weir_status onnx_provider_check(const onnx_library *library, onnx_provider provider)
{
    const onnx_provider_kind *kind = &all[provider].kinds[0];
    char why[512];
    weir_status status = kind->file ? check_apart(library) : WEIR_OK;
    if (status != WEIR_OK || !kind->also || provider_is_whole(library, provider, why, sizeof why) ||
        !strstr(why, kind->also))
        return status;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "%s (ONNX Runtime %s) cannot run models by %s: %s", library->path,
                     library->version, all[provider].name, why);
}

static void provider_describe(onnx_provider provider, weir_engine_provider *out)
{
    const onnx_library *library;
    if (onnx_library_look(provider, &library) != WEIR_OK) {
        out->state = WEIR_PROVIDER_NO_LIBRARY;
        snprintf(out->missing, sizeof out->missing, "%s", weir_detail());
        return;
    }
    snprintf(out->library, sizeof out->library, "%s", library->path);
    snprintf(out->version, sizeof out->version, "%s", library->version);
    if (library->has[provider]) {
        out->state = provider_is_whole(library, provider, out->missing, sizeof out->missing)
                         ? WEIR_PROVIDER_HERE
                         : WEIR_PROVIDER_NOT_LOADABLE;
    } else {
        out->state = WEIR_PROVIDER_NOT_BUILT;
        snprintf(out->missing, sizeof out->missing, "ONNX Runtime %s (%.200s) has no %s: %s%s%s", library->version,
                 library->path, all[provider].kinds[0].theirs, all[provider].elsewhere ? all[provider].elsewhere : "",
                 all[provider].elsewhere ? "; " : "", all[provider].get);
    }
    if (out->state == WEIR_PROVIDER_HERE)
        out->missing[0] = 0;
}

weir_status onnx_provider_at(size_t index, weir_engine_provider *out)
{
    if (index >= ONNX_PROVIDERS)
        return weir_fail(WEIR_ERR_NOT_FOUND, "the engine onnx has %d providers", ONNX_PROVIDERS);
    weir_engine_provider found = {.struct_size = out->struct_size};
    snprintf(found.name, sizeof found.name, "%s", all[index].name);
    provider_describe((onnx_provider)index, &found);
    memcpy(out, &found, out->struct_size < sizeof found ? out->struct_size : sizeof found);
    return WEIR_OK;
}
