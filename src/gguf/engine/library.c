/* library.c: finding, opening and recognising llama.cpp. Its structures are passed by value and change from one commit
 * to the next under the same soname, so nothing but the very commit of the headers will do. */
#include "wg.h"

#include "engines/command.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef WG_LLAMA_COMMIT
#error "compile with WG_LLAMA_COMMIT, WG_LLAMA_VERSION and WG_GGML_VERSION of the headers"
#endif

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static wg_library library;
static bool opened;

void wg_store_directory(const char *folder, char *out, size_t capacity)
{
    weir_option home = WEIR_INIT(weir_option);
    snprintf(out, capacity, "%s/%s", weir_option_info("home", 0, &home) == WEIR_OK ? home.value : "", folder);
}

/* The store writes a file `commit` beside lib/; a directory given by hand may lack it, and is then judged by what the
 * library says of itself. */
weir_status wg_check_mark(const char *directory)
{
    char path[600], line[128], commit[64] = "";
    snprintf(path, sizeof path, "%s/commit", directory);
    FILE *mark = fopen(path, "re");
    if (!mark)
        return WEIR_OK;
    while (fgets(line, sizeof line, mark))
        if (sscanf(line, "commit=%63s", commit) == 1)
            break;
    fclose(mark);
    if (strncmp(commit, WG_LLAMA_COMMIT, strlen(WG_LLAMA_COMMIT)) != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s holds llama.cpp of commit %.12s; this plug-in was compiled for %s and takes "
                         "no other: run " WEIR_ENGINES_COMMAND ", which builds both alike",
                         directory, commit[0] ? commit : "unknown", WG_LLAMA_COMMIT);
    return WEIR_OK;
}

static bool gguf_library_find_library(const char *directory, char *path, size_t capacity)
{
    static const char *const places[] = {"lib/libllama.so", "libllama.so"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, capacity, "%s/%s", directory, places[i]);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

static weir_status gguf_library_take_functions(wg_library *it)
{
    const char *missing = NULL;
#define WG_TAKE(name)                                                                                                  \
    *(void **)&it->name = dlsym(it->handle, #name);                                                                    \
    if (!it->name && !missing)                                                                                         \
        missing = #name;
    WG_FUNCTIONS(WG_TAKE)
#undef WG_TAKE
    it->breakdown = dlsym(it->handle, "_Z26llama_get_memory_breakdownPK13llama_context");
    if (!missing && !it->breakdown)
        missing = "llama_get_memory_breakdown";
    if (missing)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s lacks the function %s; this plug-in was compiled for llama.cpp of commit %s", it->file,
                         missing, WG_LLAMA_COMMIT);
    return WEIR_OK;
}

/* The defaults of the two parameter structures, at both of their ends: another layout would show. */
static bool gguf_library_same_layout(const wg_library *it)
{
    struct llama_model_params model = it->llama_model_default_params();
    struct llama_context_params context = it->llama_context_default_params();
    return !model.devices && !model.kv_overrides && !model.vocab_only && model.use_extra_bufts && !model.no_alloc &&
           !model.check_tensors && context.n_ctx == 512 && context.n_batch == 2048 && context.n_ubatch == 512 &&
           context.n_seq_max == 1 && context.type_k == GGML_TYPE_F16 && context.type_v == GGML_TYPE_F16 &&
           !context.abort_callback && !context.embeddings && context.offload_kqv && !context.samplers;
}

/* libllama finds libggml by its soname: one that another part of the process has loaded before would be taken. */
static weir_status same_family(const wg_library *it)
{
    Dl_info of_ggml, of_llama;
    if (!dladdr(*(void *const *)&it->ggml_commit, &of_ggml) || !dladdr(*(void *const *)&it->llama_version, &of_llama))
        return weir_fail(WEIR_ERR_SYSTEM, "%s: its addresses cannot be told", it->file);
    char one[600], other[600];
    snprintf(one, sizeof one, "%s", of_ggml.dli_fname);
    snprintf(other, sizeof other, "%s", of_llama.dli_fname);
    char *end_one = strrchr(one, '/'), *end_other = strrchr(other, '/');
    if (end_one && end_other) {
        *end_one = *end_other = '\0';
        if (strcmp(one, other) == 0)
            return WEIR_OK;
    }
    return weir_fail(WEIR_ERR_CONFLICT,
                     "llama.cpp in %s was given the ggml of %s, which something else in this process had "
                     "loaded before; load weir's engine first",
                     of_llama.dli_fname, of_ggml.dli_fname);
}

static weir_status recognise(wg_library *it)
{
    weir_status status = gguf_library_take_functions(it);
    if (status == WEIR_OK)
        status = same_family(it);
    if (status != WEIR_OK)
        return status;
    const char *commit = it->ggml_commit(), *ggml = it->ggml_version(), *llama = it->llama_version();
    size_t length = strlen(commit) < strlen(WG_LLAMA_COMMIT) ? strlen(commit) : strlen(WG_LLAMA_COMMIT);
    if (length < 7 || strncmp(commit, WG_LLAMA_COMMIT, length) != 0 || strcmp(ggml, WG_GGML_VERSION) != 0 ||
        strcmp(llama, WG_LLAMA_VERSION) != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s is llama.cpp %s with ggml %s of commit %s; this plug-in was compiled for "
                         "llama.cpp " WG_LLAMA_VERSION " with ggml " WG_GGML_VERSION " of commit " WG_LLAMA_COMMIT
                         " and takes no other: run " WEIR_ENGINES_COMMAND,
                         it->file, llama, ggml, commit);
    if (!gguf_library_same_layout(it))
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s calls itself commit %s, but its parameters are laid out otherwise than in "
                         "the headers this plug-in was compiled against; run " WEIR_ENGINES_COMMAND,
                         it->file, commit);
    snprintf(it->version, sizeof it->version, "%s (ggml %s, %.12s)", llama, ggml, commit);
    return WEIR_OK;
}

static weir_status gguf_library_open_library(const char *directory, wg_library *it)
{
    char store[600];
    if (!directory[0]) {
        wg_store_directory("engines/llama/" WG_LLAMA_COMMIT, store, sizeof store);
        directory = store;
    }
    if (!gguf_library_find_library(directory, it->file, sizeof it->file))
        return weir_fail(WEIR_ERR_NOT_FOUND,
                         "llama.cpp is not here: no libllama.so in %s or in its lib/; run " WEIR_ENGINES_COMMAND
                         " llama, or name a directory with commit " WG_LLAMA_COMMIT " by the setting 'llama'",
                         directory);
    weir_status status = wg_check_mark(directory);
    if (status != WEIR_OK)
        return status;
    it->handle = dlopen(it->file, RTLD_NOW | RTLD_LOCAL);
    if (!it->handle)
        return weir_fail(WEIR_ERR_ENGINE, "llama.cpp cannot be opened: %s", dlerror());
    status = recognise(it);
    if (status != WEIR_OK) {
        dlclose(it->handle);
        it->handle = NULL;
    }
    return status;
}

/* Checks that `directory` has the library that is open. An open library is never exchanged: its buffer type is hooked,
 * and models live in it. */
static weir_status same_place(const char *directory)
{
    char path[600], wanted[4096], have[4096];
    if (!directory[0])
        return WEIR_OK;
    if (gguf_library_find_library(directory, path, sizeof path) && realpath(path, wanted) &&
        realpath(library.file, have) && strcmp(wanted, have) == 0)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_CONFLICT,
                     "the setting 'llama' names %s, and this process already runs the llama.cpp of %s; "
                     "there can be one",
                     directory, library.file);
}

/* llama.cpp makes a table of all of Unicode, 2.2 MB, when the first text of the process becomes tokens. It belongs to
 * the process and not to the model that happens to come first, so it is made here. */
static void gguf_library_make_tables(const wg_library *it)
{
    uint16_t (*flags_of)(uint32_t character);
    *(void **)&flags_of = dlsym(it->handle, "_Z26unicode_cpt_flags_from_cptj");
    if (flags_of)
        flags_of('a');
}

weir_status wg_library_get(const char *directory, const wg_library **out)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&opening);
    if (opened)
        status = same_place(directory);
    else
        status = gguf_library_open_library(directory, &library);
    if (status == WEIR_OK && !opened) {
        library.llama_log_set(wg_on_log, NULL);
        library.ggml_set_abort_callback(wg_on_abort);
        library.llama_backend_init();
        gguf_library_make_tables(&library);
        wg_buffers_hook(&library, library.ggml_backend_cpu_buffer_type(), true);
        opened = true;
    }
    pthread_mutex_unlock(&opening);
    *out = status == WEIR_OK ? &library : NULL;
    return status;
}
