/* The builds of ONNX Runtime, each opened at its first use (model.h). A library stays open, and its environment with
 * it, until the process ends: ONNX Runtime keeps threads and state of its own that do not survive an unload. What was
 * not there is looked for again. */
#include "model.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weir/base.h>

#include "engines/command.h"
#include "foresee.h"

enum { OLDEST_MINOR = 23 };

/* Where a library can come from. */
typedef enum build {
    BUILD_NAMED, /* the option onnxruntime; then no other */
    BUILD_CPU,   /* the store's */
    BUILD_CUDA,
    BUILD_OPENVINO,
    BUILD_SYSTEM,
    BUILDS
} build;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static onnx_library libraries[BUILDS]; /* open when `api` is set, started when `env` is; guarded by lock until then */
static weir_option named_as;           /* by which BUILD_NAMED was opened; guarded by lock */

bool onnx_failed(const ort_api *api, ort_status *status, onnx_attempt *a)
{
    if (!status)
        return false;
    a->code = api->GetErrorCode(status);
    snprintf(a->text, sizeof a->text, "%s", api->GetErrorMessage(status));
    for (char *c = a->text; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    api->ReleaseStatus(status);
    return true;
}

static void onnx_library_forward_log(void *user, int severity, const char *category, const char *log_id,
                                     const char *place, const char *message)
{
    (void)user;
    (void)category;
    (void)log_id;
    weir_log_level level = severity >= ORT_LOG_ERROR     ? WEIR_LOG_ERROR
                           : severity == ORT_LOG_WARNING ? WEIR_LOG_WARNING
                                                         : WEIR_LOG_DEBUG;
    weir_log(level, "onnxruntime: %s (%s)", message, place);
}

static weir_status check_version(const ort_base *base, onnx_library *into)
{
    unsigned major = 0;
    snprintf(into->version, sizeof into->version, "%s", base->GetVersionString());
    if (sscanf(into->version, "%u.%u", &major, &into->minor) != 2 || major != 1 || into->minor < OLDEST_MINOR)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s is ONNX Runtime %s; weir needs 1.%d or a later 1.x: run " WEIR_ENGINES_COMMAND ", or set "
                         "WEIR_ONNXRUNTIME to a newer libonnxruntime.so",
                         into->path, into->version, OLDEST_MINOR);
    return WEIR_OK;
}

static weir_status onnx_library_broken(const onnx_library *it, const char *text)
{
    return weir_fail(WEIR_ERR_ENGINE, "ONNX Runtime %s (%s) could not be started: %s", it->version, it->path, text);
}

static weir_status note_providers(const ort_api *api, onnx_library *into)
{
    int count = 0;
    char **names = NULL;
    onnx_attempt a;
    if (onnx_failed(api, api->GetAvailableProviders(&names, &count), &a))
        return onnx_library_broken(into, a.text);
    for (int i = 0; i < count; i++) {
        onnx_provider provider = onnx_provider_of(names[i]);
        for (int k = 0; provider != ONNX_PROVIDERS && k < ONNX_PROVIDER_KINDS; k++) {
            const char *theirs = onnx_provider_kinds(provider)[k].theirs;
            into->has[provider] |= theirs && strcmp(theirs, names[i]) == 0 ? 1u << k : 0;
        }
    }
    return onnx_failed(api, api->ReleaseAvailableProviders(names, count), &a) ? onnx_library_broken(into, a.text)
                                                                              : WEIR_OK;
}

static weir_status onnx_library_start(onnx_library *it)
{
    const ort_api *api = it->api;
    onnx_attempt a;
    if (it->env)
        return WEIR_OK;
    if ((!it->host &&
         onnx_failed(api, api->CreateCpuMemoryInfo(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT, &it->host), &a)) ||
        onnx_failed(api, api->GetAllocatorWithDefaultOptions(&it->plain), &a) ||
        onnx_failed(
            api, api->CreateEnvWithCustomLogger(onnx_library_forward_log, NULL, ORT_LOG_ERROR, "weir", &it->env), &a))
        return onnx_library_broken(it, a.text);
    return WEIR_OK;
}

/* The system's library may be a build of the store's, by another name or by a path that leads there. */
static bool onnx_library_is_open(const ort_api *api)
{
    for (int i = 0; i < BUILDS; i++)
        if (libraries[i].api == api)
            return true;
    return false;
}

static weir_status onnx_library_ask(void *handle, onnx_library *into)
{
    const ort_base *(*get_base)(void) = NULL;
    *(void **)&get_base = dlsym(handle, "OrtGetApiBase");
    if (!get_base)
        return weir_fail(WEIR_ERR_ENGINE, "%s is no ONNX Runtime: it has no OrtGetApiBase", into->path);
    const ort_base *base = get_base();
    weir_status status = check_version(base, into);
    if (status != WEIR_OK)
        return status;
    uint32_t version = into->minor < ORT_API_ASSIGNMENTS ? ORT_API_WANTED : ORT_API_ASSIGNMENTS;
    const ort_api *api = base->GetApi(version);
    if (!api)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s (ONNX Runtime %s) does not offer version %u of its interface",
                         into->path, into->version, version);
    status = note_providers(api, into);
    into->api = status == WEIR_OK ? api : NULL;
    return status;
}

/* ---- where it is ------------------------------------------------------------------------------------------------- */

static const char *onnx_library_option(const char *name, weir_option *space)
{
    *space = WEIR_INIT(weir_option);
    return weir_option_info(name, 0, space) == WEIR_OK ? space->value : "";
}

static void onnx_library_note_path(void *handle, const char *asked, onnx_library *into)
{
    Dl_info info;
    void *symbol = dlsym(handle, "OrtGetApiBase");
    const char *path = symbol && dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : asked;
    snprintf(into->path, sizeof into->path, "%s", path);
}

static weir_status open_at(const char *path, onnx_library *into)
{
    setenv("ORT_DISABLE_TELEMETRY", "1", 0); /* no telemetry, unless the user has set 0 */
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return weir_fail(WEIR_ERR_NOT_FOUND, "%s", dlerror());
    onnx_library_note_path(handle, path, into);
    return onnx_library_ask(handle, into);
}

static weir_status open_named(onnx_library *into)
{
    weir_status status = open_at(onnx_library_option("onnxruntime", &named_as), into);
    return status != WEIR_ERR_NOT_FOUND
               ? status
               : weir_fail(WEIR_ERR_NOT_FOUND,
                           "ONNX Runtime, as the option onnxruntime (%s) names it, cannot be opened: %s",
                           named_as.environment, weir_detail());
}

/* Checks that the option still names the opened library, which cannot be replaced: models may be running with the
 * library. */
static weir_status is_still_named(void)
{
    weir_option named;
    const char *asked = onnx_library_option("onnxruntime", &named);
    return strcmp(asked, named_as.value) == 0
               ? WEIR_OK
               : weir_fail(WEIR_ERR_CONFLICT,
                           "the option onnxruntime (%s) names %s, and this process has opened %s by it: one stays "
                           "until the process ends",
                           named.environment, asked, named_as.value);
}

/* By its path: all builds have the same name inside, by which the dynamic linker would give the first that was
 * opened. */
static weir_status open_system(onnx_library *into)
{
    static const char *const names[] = {"libonnxruntime.so.1", "libonnxruntime.so"};
    char path[512];
    weir_status status = WEIR_ERR_NOT_FOUND;
    for (size_t i = 0; status == WEIR_ERR_NOT_FOUND && i < sizeof names / sizeof *names; i++)
        status = open_at(onnx_needs_find(names[i], path, sizeof path) ? path : names[i], into);
    return status == WEIR_OK && onnx_library_is_open(into->api)
               ? weir_fail(WEIR_ERR_NOT_FOUND, "the system has no other ONNX Runtime than %s, which is open already",
                           into->path)
               : status;
}

static weir_status open_build(build which)
{
    static const char *const names[BUILDS] = {
        [BUILD_CPU] = "onnxruntime", [BUILD_CUDA] = "onnxruntime-cuda", [BUILD_OPENVINO] = "onnxruntime-openvino"};
    onnx_library found = {0};
    weir_option home;
    char path[512];
    weir_status status;
    if (libraries[which].api)
        return which == BUILD_NAMED ? is_still_named() : WEIR_OK;
    if (which == BUILD_NAMED) {
        status = open_named(&found);
    } else if (which == BUILD_SYSTEM) {
        status = open_system(&found);
    } else {
        snprintf(path, sizeof path, "%s/engines/%s/current/libonnxruntime.so", onnx_library_option("home", &home),
                 names[which]);
        status = access(path, R_OK) == 0 ? open_at(path, &found) : weir_fail(WEIR_ERR_NOT_FOUND, "no %s", path);
    }
    if (status == WEIR_OK)
        libraries[which] = found;
    return status;
}

/* ---- which of them ----------------------------------------------------------------------------------------------- */

static bool onnx_library_is_named(void)
{
    weir_option named;
    return onnx_library_option("onnxruntime", &named)[0] != 0;
}

/* Lists the builds that may have the provider, the best build first. */
static const build *candidates(onnx_provider provider)
{
    static const build named[] = {BUILD_NAMED, BUILDS};
    static const build cpu[] = {BUILD_CPU, BUILD_CUDA, BUILD_SYSTEM, BUILD_OPENVINO, BUILDS};
    static const build cuda[] = {BUILD_CUDA, BUILD_SYSTEM, BUILDS};
    static const build openvino[] = {BUILD_OPENVINO, BUILD_SYSTEM, BUILDS};
    static const build others[] = {BUILD_SYSTEM, BUILDS};
    if (onnx_library_is_named())
        return named;
    if (provider == ONNX_CUDA || provider == ONNX_TENSORRT)
        return cuda;
    return provider == ONNX_CPU ? cpu : provider == ONNX_OPENVINO ? openvino : others;
}

/* Opens any build, so that a message can name a library without the provider. */
static onnx_library *some_other(void)
{
    static const build likely[] = {BUILD_CPU, BUILD_CUDA};
    for (size_t i = 0; i < sizeof likely / sizeof *likely && !onnx_library_is_named(); i++)
        if (open_build(likely[i]) == WEIR_OK)
            return &libraries[likely[i]];
    return NULL;
}

static weir_status not_here(onnx_provider provider)
{
    weir_option home;
    onnx_library_option("home", &home);
    if (provider != ONNX_CPU) /* the build for the processor would not have it */
        return weir_fail(WEIR_ERR_NOT_FOUND,
                         "ONNX Runtime is not here: nothing in %s/engines and no system library; %s", home.value,
                         onnx_provider_advice(provider));
    return weir_fail(WEIR_ERR_NOT_FOUND,
                     "ONNX Runtime is not here: nothing in %s/engines and no system library; run " WEIR_ENGINES_COMMAND
                     " "
                     "onnxruntime, or set WEIR_ONNXRUNTIME to a libonnxruntime.so of version 1.%d or newer",
                     home.value, OLDEST_MINOR);
}

/* Under the lock. */
static weir_status look(onnx_provider provider, onnx_library **out)
{
    weir_status why = WEIR_ERR_NOT_FOUND;
    char words[1024] = "";
    *out = NULL;
    for (const build *at = candidates(provider); *at != BUILDS; at++) {
        weir_status status = open_build(*at);
        if (status == WEIR_OK) {
            *out = &libraries[*at];
            if ((*out)->has[provider])
                return WEIR_OK;
        } else if (status != WEIR_ERR_NOT_FOUND || *at == BUILD_NAMED) {
            why = status;
            snprintf(words, sizeof words, "%s", weir_detail());
        }
    }
    if (!*out)
        *out = some_other();
    if (*out)
        return WEIR_OK;
    return words[0] ? weir_fail(why, "%s", words) : not_here(provider);
}

weir_status onnx_library_look(onnx_provider provider, const onnx_library **out)
{
    onnx_library *found;
    pthread_mutex_lock(&lock);
    weir_status status = look(provider, &found);
    pthread_mutex_unlock(&lock);
    *out = status == WEIR_OK ? found : NULL;
    return status;
}

weir_status onnx_library_get(onnx_provider provider, const onnx_library **out)
{
    onnx_library *found;
    *out = NULL;
    pthread_mutex_lock(&lock);
    weir_status status = look(provider, &found);
    if (status == WEIR_OK && !found->has[provider])
        status = weir_fail(WEIR_ERR_UNSUPPORTED, "%s (ONNX Runtime %s) has no provider %s: %s", found->path,
                           found->version, onnx_provider_name(provider), onnx_provider_advice(provider));
    if (status == WEIR_OK)
        status = onnx_library_start(found);
    pthread_mutex_unlock(&lock);
    if (status == WEIR_OK)
        *out = found;
    return status;
}
