/* An ONNX Runtime that a system has, as far as asking for its providers goes: AMD's build. */
#include <stddef.h>
#include <stdint.h>

#include "onnx/bridge/api.h"

static char rocm[] = "ROCMExecutionProvider", *providers[] = {rocm};

static ort_status *get_providers(char ***out, int *count)
{
    *out = providers;
    *count = 1;
    return NULL;
}

static ort_status *release_providers(char **list, int count)
{
    (void)list;
    (void)count;
    return NULL;
}

static const ort_api *get_api(uint32_t version)
{
    static ort_api api;
    (void)version;
    api.GetAvailableProviders = get_providers;
    api.ReleaseAvailableProviders = release_providers;
    return &api;
}

static const char *get_version(void)
{
    return "1.30.0";
}

__attribute__((visibility("default"))) const ort_base *OrtGetApiBase(void);
const ort_base *OrtGetApiBase(void)
{
    static const ort_base base = {get_api, get_version};
    return &base;
}
