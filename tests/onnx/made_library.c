/* An ONNX Runtime that is what the test says: of a version, with providers, without a table of functions, or with one of which a
 * call fails. As far as asking for its providers and starting it goes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "made_library.h"

#define EXPORTED __attribute__((visibility("default")))

/* For the test, by its name. */
EXPORTED made_library made_up;

static ort_status *answer(void)
{
    return ++made_up.calls == made_up.fails_at ? (ort_status *)(void *)&made_up : NULL;
}

static int code_of(const ort_status *status)
{
    (void)status;
    return ORT_FAIL_CODE;
}

static const char *message_of(const ort_status *status)
{
    (void)status;
    return "failed on\npurpose";
}

static void release_status(ort_status *status)
{
    made_up.statuses_released += status != NULL;
}

static ort_status *get_providers(char ***out, int *count)
{
    *out = made_up.providers;
    *count = 0;
    while (made_up.providers[*count])
        ++*count;
    return answer();
}

static ort_status *release_providers(char **list, int count)
{
    (void)count;
    made_up.lists_released += list == made_up.providers;
    return answer();
}

static ort_status *make_place(int allocator, int memory, ort_memory_info **out)
{
    (void)allocator;
    (void)memory;
    ort_status *status = answer();
    *out = status ? NULL : (ort_memory_info *)(void *)&made_up;
    made_up.places += !status;
    return status;
}

static ort_status *get_allocator(ort_allocator **out)
{
    *out = (ort_allocator *)(void *)&made_up;
    return answer();
}

static ort_status *make_environment(ort_log_fn log, void *user, int severity, const char *id, ort_env **out)
{
    (void)id;
    ort_status *status = answer();
    *out = status ? NULL : (ort_env *)(void *)&made_up;
    made_up.log = log;
    made_up.log_user = user;
    made_up.severity = severity;
    made_up.environments += !status;
    return status;
}

static const ort_api *get_api(uint32_t version)
{
    static ort_api api;
    made_up.asked = version;
    api.GetErrorCode = code_of;
    api.GetErrorMessage = message_of;
    api.ReleaseStatus = release_status;
    api.GetAvailableProviders = get_providers;
    api.ReleaseAvailableProviders = release_providers;
    api.CreateCpuMemoryInfo = make_place;
    api.GetAllocatorWithDefaultOptions = get_allocator;
    api.CreateEnvWithCustomLogger = make_environment;
    return made_up.no_table ? NULL : &api;
}

static const char *get_version(void)
{
    return made_up.version;
}

EXPORTED const ort_base *OrtGetApiBase(void);
const ort_base *OrtGetApiBase(void)
{
    static const ort_base base = {get_api, get_version};
    if (!made_up.version[0])
        strcpy(made_up.version, "1.21.0"); /* NOLINT(clang-analyzer-security.insecureAPI.strcpy): there is room */
    return &base;
}
