/* table.c: the table that GenAI gets for ONNX Runtime's: the same functions, but for those by which memory is asked
 * for. ORT_LIB_PATH leads GenAI to this plug-in (library.c), which exports OrtGetApiBase for it.
 *
 * GenAI has one allocator for each kind of device in the process, for all models: so what it asks for is charged by what
 * the calling thread is at work for. Sessions are told apart by ONNX Runtime: each keeps the allocator it was made with. */
#include "wl.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SLOTS = 1024, RANK_OF_CACHE = 4 };

static union {
    ort_api api;
    void *slots[MOST_SLOTS];
} table;
static const ort_api *real;
static const ort_base *real_base;

/* ---- what is another function ------------------------------------------------------------------------------------ */

/* Entries for the options that GenAI makes for each session. Between steps threads must not spin, because the cores may
 * be another model's by then. Within a step threads spin for as long as the next parallel loop usually takes to come,
 * as in the engine onnx. */
static const struct {
    const char *key, *value;
} entries[] = {{"session.use_env_allocators", "1"},
               {"session.force_spinning_stop", "1"},
               {"session.intra_op.spin_duration_us", "50"}};

static ort_status *create_session(const ort_env *env, const char *path, const ort_session_options *options,
                                  ort_session **out)
{
    wl_phase *phase = wl_memory_phase();
    if (!phase || phase->stage != WL_LOADING)
        return real->CreateSession(env, path, options, out);
    weir_onnxruntime *bridge = wl_account_bridge(phase->account);
    ort_status *status = NULL;
    for (size_t i = 0; !status && i < sizeof entries / sizeof entries[0]; i++)
        status = real->AddSessionConfigEntry((ort_session_options *)options, entries[i].key, entries[i].value);
    if (!status && (!bridge || weir_onnxruntime_enter(bridge) != WEIR_OK))
        status = real->CreateStatus(ORT_FAIL_CODE, weir_detail());
    if (status)
        return status;
    status = real->CreateSession(env, path, options, out);
    weir_onnxruntime_leave(bridge);
    return status;
}

/* Tensors of four extents and more are keys and values. */
static ort_status *create_tensor(ort_allocator *allocator, const int64_t *shape, size_t rank, int type, ort_value **out)
{
    weir_class outer = wl_memory_class(rank >= RANK_OF_CACHE ? WEIR_CLASS_KV : WEIR_CLASS_ACTIVATIONS);
    ort_status *status = real->CreateTensorAsOrtValue(allocator, shape, rank, type, out);
    wl_memory_class(outer);
    return status;
}

static ort_status *default_allocator(ort_allocator **out)
{
    *out = wl_memory_of_host();
    return NULL;
}

/* The allocator of a session that GenAI makes for nothing else. */
static ort_status *create_allocator(const ort_session *session, const ort_memory_info *info, ort_allocator **out)
{
    ort_status *status = real->CreateAllocator(session, info, out);
    if (!status && *out)
        *out = wl_memory_of_device(*out);
    return status;
}

static void release_allocator(ort_allocator *allocator)
{
    ort_allocator *theirs = wl_memory_theirs(allocator);
    if (theirs)
        real->ReleaseAllocator(theirs);
}

static ort_status *create_and_register(ort_env *env, const ort_memory_info *info, const void *config)
{
    (void)env;
    (void)info;
    (void)config;
    return NULL;
}

/* The stream that all of GenAI's sessions on CUDA work on. */
static ort_status *update_cuda_options(ort_cuda_options *options, const char *key, void *value)
{
    if (strcmp(key, "user_compute_stream") == 0)
        wl_memory_stream(value);
    return real->UpdateCUDAProviderOptionsWithValue(options, key, value);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

typedef struct code {
    const char *name;
    uintptr_t from, to;
} code;

static int find_code(struct dl_phdr_info *info, size_t size, void *user)
{
    code *it = user;
    (void)size;
    if (strcmp(info->dlpi_name, it->name) != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) && it->to == 0) {
            it->from = from;
            it->to = from + part->p_memsz;
        }
    }
    return 1;
}

/* ONNX Runtime's table grows at its end; it ends where a word does not point into ONNX Runtime's code. */
static size_t copy_table(const ort_api *from, const code *where)
{
    const void *const *words = (const void *const *)(const void *)from;
    size_t count = 0;
    for (; count < MOST_SLOTS; count++) {
        uintptr_t word = (uintptr_t)words[count];
        if (word < where->from || word >= where->to)
            break;
        table.slots[count] = (void *)words[count];
    }
    return count;
}

weir_status wl_table_make(const ort_base *base, void *handle)
{
    struct link_map *map = NULL;
    code where = {0};
    real_base = base;
    real = base->GetApi(ORT_API_WANTED);
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map) {
        where.name = map->l_name;
        dl_iterate_phdr(find_code, &where);
    }
    size_t count = copy_table(real, &where);
    if (count * sizeof(void *) <= offsetof(ort_api, SyncStream_GetHandle))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "ONNX Runtime %s: its table of functions has %zu, and weir needs %zu",
                         base->GetVersionString(), count, offsetof(ort_api, SyncStream_GetHandle) / sizeof(void *));
    table.api.CreateSession = create_session;
    table.api.CreateTensorAsOrtValue = create_tensor;
    table.api.GetAllocatorWithDefaultOptions = default_allocator;
    table.api.CreateAllocator = create_allocator;
    table.api.ReleaseAllocator = release_allocator;
    table.api.CreateAndRegisterAllocator = create_and_register;
    table.api.UpdateCUDAProviderOptionsWithValue = update_cuda_options;
    return wl_memory_begin(real);
}

static const ort_api *get_api(uint32_t version)
{
    return real_base->GetApi(version) ? &table.api : NULL;
}

static const char *get_version(void)
{
    return real_base->GetVersionString();
}

WEIR_API const ort_base *OrtGetApiBase(void);

const ort_base *OrtGetApiBase(void)
{
    static const ort_base base = {get_api, get_version};
    return &base;
}
