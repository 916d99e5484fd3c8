/* library.c: finding and opening ONNX Runtime GenAI, which looks for ONNX Runtime in its static initialisers, by the
 * environment variable ORT_LIB_PATH. It finds this plug-in there, which answers with a table of its own (table.c): so
 * other users of the same ONNX Runtime notice nothing. */
#include "wl.h"

#include "engines/command.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OLDEST_MINOR = 23 };

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static wl_library library;
static bool opened;
static void *genai;  /* its library, once weir has opened it, though it may be of no use */
static size_t users; /* models */

bool wl_failed(const wl_library *it, oga_result *result, char *text, size_t capacity)
{
    if (!result)
        return false;
    const char *words = it->OgaResultGetError(result);
    snprintf(text, capacity, "%s", words ? words : "no reason given");
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    it->OgaDestroyResult(result);
    return true;
}

/* ---- where they are ---------------------------------------------------------------------------------------------- */

static const char *llm_library_option(const char *name, weir_option *space)
{
    *space = WEIR_INIT(weir_option);
    return weir_option_info(name, 0, space) == WEIR_OK ? space->value : "";
}

typedef struct library_paths {
    char genai[512], runtime[512];
    bool cuda;
} library_paths;

/* `path` is "" where it cannot be read. */
static bool readable(char *path, size_t capacity, const char *folder, const char *rest)
{
    int length = snprintf(path, capacity, "%s/%s", folder, rest);
    bool good = (size_t)length < capacity && access(path, R_OK) == 0;
    path[good ? length : 0] = '\0';
    return good;
}

static bool in_store(const char *home, bool cuda, library_paths *out)
{
    char rest[96];
    const char *suffix = cuda ? "-cuda" : "";
    snprintf(rest, sizeof rest, "engines/onnxruntime-genai%s/current/libonnxruntime-genai.so", suffix);
    *out = (library_paths){.cuda = cuda};
    if (!readable(out->genai, sizeof out->genai, home, rest))
        return false;
    snprintf(rest, sizeof rest, "engines/onnxruntime%s/current/libonnxruntime.so", suffix);
    return readable(out->runtime, sizeof out->runtime, home, rest);
}

/* Finds GenAI in the store. A GenAI without its ONNX Runtime is found, too, so that the error can name the missing
 * library. */
static bool find_in_store(const char *home, library_paths *out)
{
    if (in_store(home, true, out))
        return true;
    library_paths cuda = *out;
    if (!in_store(home, false, out) && !out->genai[0])
        *out = cuda;
    return out->genai[0] != '\0';
}

/* The one that is named, with the ONNX Runtime that is named or the store's; else the store's for CUDA, which runs models
 * on the processor as well, else the store's. */
static weir_status llm_library_find(library_paths *out)
{
    weir_option named, runtime, home;
    const char *folder = llm_library_option("home", &home);
    *out = (library_paths){0};
    if (llm_library_option("onnxruntime_genai", &named)[0]) {
        char path[512], beside[512];
        snprintf(beside, sizeof beside, "%s", named.value);
        char *slash = strrchr(beside, '/');
        snprintf(out->genai, sizeof out->genai, "%s", named.value);
        out->cuda = slash && (slash[0] = '\0', readable(path, sizeof path, beside, "libonnxruntime-genai-cuda.so"));
        if (access(out->genai, R_OK) != 0)
            return weir_fail(WEIR_ERR_NOT_FOUND, "the option onnxruntime_genai (%s) names %s, which cannot be read",
                             named.environment, named.value);
        (void)readable(out->runtime, sizeof out->runtime, folder,
                       out->cuda ? "engines/onnxruntime-cuda/current/libonnxruntime.so"
                                 : "engines/onnxruntime/current/libonnxruntime.so");
    } else if (!find_in_store(folder, out)) {
        return weir_fail(WEIR_ERR_NOT_FOUND,
                         "ONNX Runtime GenAI is not here: nothing in %s/engines; run " WEIR_ENGINES_COMMAND " "
                         "onnxruntime-genai, or set WEIR_ONNXRUNTIME_GENAI to a libonnxruntime-genai.so",
                         folder);
    }
    if (llm_library_option("onnxruntime", &runtime)[0])
        snprintf(out->runtime, sizeof out->runtime, "%s", runtime.value);
    if (!out->runtime[0])
        return weir_fail(
            WEIR_ERR_NOT_FOUND,
            "ONNX Runtime GenAI (%s) needs ONNX Runtime%s, which is not here: run " WEIR_ENGINES_COMMAND "%s, or "
            "set WEIR_ONNXRUNTIME",
            out->genai, out->cuda ? "'s build for CUDA" : "", out->cuda ? " --cuda onnxruntime-cuda" : " onnxruntime");
    return WEIR_OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static weir_status open_runtime(const char *path, wl_library *into, void **handle, const ort_base **base)
{
    const ort_base *(*get_base)(void) = NULL;
    unsigned minor = 0;
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*handle)
        return weir_fail(WEIR_ERR_NOT_FOUND, "ONNX Runtime cannot be opened: %s", dlerror());
    *(void **)&get_base = dlsym(*handle, "OrtGetApiBase");
    if (!get_base)
        return weir_fail(WEIR_ERR_ENGINE, "%s is no ONNX Runtime: it has no OrtGetApiBase", path);
    *base = get_base();
    const char *version = (*base)->GetVersionString();
    if (sscanf(version, "1.%u", &minor) != 1 || minor < OLDEST_MINOR)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s is ONNX Runtime %s; weir needs 1.%d or a later 1.x", path, version,
                         OLDEST_MINOR);
    into->api = (*base)->GetApi(ORT_API_WANTED);
    snprintf(into->version, sizeof into->version, "ONNX Runtime %s", version);
    return into->api
               ? WEIR_OK
               : weir_fail(WEIR_ERR_UNSUPPORTED, "%s (ONNX Runtime %s) does not offer version %d of its interface",
                           path, version, ORT_API_WANTED);
}

static weir_status llm_library_take_functions(void *handle, wl_library *it)
{
    const char *missing = NULL;
#define WL_TAKE(name)                                                                                                  \
    *(void **)&it->name = dlsym(handle, #name);                                                                        \
    if (!it->name && !missing)                                                                                         \
        missing = #name;
    OGA_FUNCTIONS(WL_TAKE)
#undef WL_TAKE
    return missing ? weir_fail(WEIR_ERR_UNSUPPORTED,
                               "%s lacks the function %s; weir needs ONNX Runtime GenAI 0.18 (" WEIR_ENGINES_COMMAND " "
                               "onnxruntime-genai)",
                               it->file, missing)
                   : WEIR_OK;
}

/* GenAI reads ORT_LIB_PATH while it is opened, and nobody else in this process should. */
static void *open_with_our_table(const char *path)
{
    static const char name[] = "ORT_LIB_PATH";
    Dl_info self;
    if (!dladdr((void *)&opened, &self))
        return NULL;
    const char *was = getenv(name);
    char *saved = was ? strdup(was) : NULL;
    if (was && !saved)
        return NULL;
    setenv(name, self.dli_fname, 1);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (saved)
        setenv(name, saved, 1);
    else
        unsetenv(name);
    free(saved);
    return handle;
}

static void llm_library_forward_log(void *user, int severity, const char *category, const char *log_id,
                                    const char *place, const char *message)
{
    (void)user;
    (void)category;
    (void)log_id;
    weir_log(severity >= ORT_LOG_ERROR     ? WEIR_LOG_ERROR
             : severity == ORT_LOG_WARNING ? WEIR_LOG_WARNING
                                           : WEIR_LOG_DEBUG,
             "onnxruntime: %s (%s)", message, place);
}

/* Makes ONNX Runtime's environment and keeps it, so that all models of GenAI use the same environment. */
static weir_status hold_environment(wl_library *it)
{
    ort_status *status =
        it->api->CreateEnvWithCustomLogger(llm_library_forward_log, NULL, ORT_LOG_ERROR, "weir", &it->env);
    if (!status)
        return WEIR_OK;
    weir_fail(WEIR_ERR_ENGINE, "%s could not be started: %s", it->version, it->api->GetErrorMessage(status));
    it->api->ReleaseStatus(status);
    return WEIR_ERR_ENGINE;
}

static weir_status open_both(wl_library *it)
{
    library_paths where;
    void *runtime = NULL;
    const ort_base *base = NULL;
    weir_status status = llm_library_find(&where);
    /* By default both libraries report to their maker. A user who wants the reports sets the variable to 0. */
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);
    if (status == WEIR_OK)
        status = open_runtime(where.runtime, it, &runtime, &base);
    if (status == WEIR_OK)
        status = hold_environment(it);
    if (status == WEIR_OK)
        status = wl_table_make(base, runtime);
    if (status != WEIR_OK)
        return status;
    void *handle = dlopen(where.genai, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle)
        dlclose(handle);
    if (handle && handle != genai)
        return weir_fail(WEIR_ERR_CONFLICT,
                         "%s is open in this process already, with an ONNX Runtime of its own: let weir open it first",
                         where.genai);
    snprintf(it->file, sizeof it->file, "%s", where.genai);
    handle = open_with_our_table(where.genai);
    if (!handle)
        return weir_fail(WEIR_ERR_NOT_FOUND, "ONNX Runtime GenAI cannot be opened: %s", dlerror());
    genai = handle;
    it->cuda = where.cuda;
    status = llm_library_take_functions(handle, it);
    if (status == WEIR_OK)
        it->OgaSetTelemetryEnabled(false);
    return status;
}

weir_status wl_library_use(const wl_library **out)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&opening);
    if (!opened) {
        wl_library found = {0};
        status = open_both(&found);
        if (status == WEIR_OK) {
            library = found;
            opened = true;
        }
    }
    users += status == WEIR_OK;
    pthread_mutex_unlock(&opening);
    *out = status == WEIR_OK ? &library : NULL;
    return status;
}

void wl_library_leave(void)
{
    pthread_mutex_lock(&opening);
    users--;
    pthread_mutex_unlock(&opening);
}

static void shut_down(void)
{
    pthread_mutex_lock(&opening);
    if (users == 0)
        library.OgaShutdown();
    pthread_mutex_unlock(&opening);
}

static void register_end(void)
{
    if (atexit(shut_down) != 0)
        weir_log(WEIR_LOG_WARNING, "llm: GenAI is not shut down at the end of the process, and may crash in it");
}

/* GenAI ends by its static destructors, which come after CUDA's own end and crash there. What is registered behind CUDA's
 * begin comes before both. (Shut down with each last model it would leave more behind on the device than it frees.) */
void wl_library_end_before_cuda(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_end);
}

weir_status wl_library_look(char *file, size_t capacity, char *version, size_t version_capacity, bool *cuda)
{
    library_paths where;
    weir_status status = llm_library_find(&where);
    snprintf(file, capacity, "%s", where.genai);
    snprintf(version, version_capacity, "%s", opened ? library.version : "");
    *cuda = where.cuda;
    return status;
}
