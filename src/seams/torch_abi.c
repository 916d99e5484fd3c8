/* PyTorch's C++ by the addresses of its functions: its error for memory, the filters of its capture pools, and functions of its
 * pluggable allocator that throw unless somebody replaces them.
 *
 * No header of PyTorch's and no compiler is needed. The mangled name of a function contains the types of its arguments.
 * A function whose types change is not found, and features that need the function are not offered. The layouts are
 * those of the Itanium C++ ABI and of libstdc++ (std::function, std::string, std::shared_ptr, std::vector), which have
 * been the same since GCC 5. */
#include "seams/torch.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#define CLASS  "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"

/* std::string with its text elsewhere: the functions that get the string do not free the text. */
typedef struct cxx_string {
    const char *text;
    size_t bytes;
    char small[16];
} cxx_string;

/* c10::SourceLocation. */
typedef struct source_location {
    const char *function, *file;
    uint32_t line;
} source_location;

/* c10::cuda::CUDAStream: two words, which functions return in registers. */
typedef struct cuda_stream {
    uint64_t device, id;
} cuda_stream;

typedef void wtorch_throw(void *exception, const void *type, void (*destroy)(void *)); /* does not return */

static struct {
    pthread_once_t once;
    bool found;
    void *(*allocate_exception)(size_t bytes);
    wtorch_throw *throw_it;
    void *(*new_bytes)(size_t bytes);
    void (*error)(void *self, source_location where, cxx_string *text);
    void *error_type, *memory_type;
    char *error_table, *memory_table;
    cuda_stream (*current_stream)(int8_t device);
    void *(*native_of)(const cuda_stream *stream);
    void **table; /* the vtable of the pluggable allocator */
    size_t table_words;
    void **current; /* c10::cuda::CUDACachingAllocator::allocator */
    void *(*malloc)(void *self, size_t bytes, int8_t device, void *native);
    void (*raw_delete)(void *self, void *pointer);
    void (*(*raw_deleter)(const void *self))(void *);
    bool (*collect_shared)(void);
} cxx = {.once = PTHREAD_ONCE_INIT};

/* Finding ---------------------------------------------------------------------------------------------------------- */

static void *library(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_NOLOAD);
}

/* ISO C has no conversion from an object's address to a function's. */
static void torch_abi_get(void *from, const char *name, void *to)
{
    void *found = from ? dlsym(from, name) : NULL;
    memcpy(to, &found, sizeof found);
}

void wtorch_abi_symbol(const char *name_of_library, const char *name, void *to)
{
    torch_abi_get(library(name_of_library), name, to);
}

static size_t torch_abi_words_of(const void *symbol)
{
    Dl_info info;
    ElfW(Sym) *entry = NULL;
    return symbol && dladdr1(symbol, &info, (void **)&entry, RTLD_DL_SYMENT) && entry && info.dli_saddr == symbol
               ? entry->st_size / sizeof(void *)
               : 0;
}

static void torch_abi_find(void)
{
    void *cpp = library("libstdc++.so.6"), *core = library("libc10.so"), *core_cuda = library("libc10_cuda.so"),
         *torch = library("libtorch_cuda.so");
    torch_abi_get(cpp, "__cxa_allocate_exception", &cxx.allocate_exception);
    torch_abi_get(cpp, "__cxa_throw", &cxx.throw_it);
    torch_abi_get(cpp, "_Znwm", &cxx.new_bytes);
    torch_abi_get(core, "_ZN3c105ErrorC1ENS_14SourceLocationE" STRING, &cxx.error);
    torch_abi_get(core, "_ZTIN3c105ErrorE", &cxx.error_type);
    torch_abi_get(core, "_ZTVN3c105ErrorE", &cxx.error_table);
    torch_abi_get(core_cuda, "_ZN3c104cuda20getCurrentCUDAStreamEa", &cxx.current_stream);
    torch_abi_get(core_cuda, "_ZNK3c104cuda10CUDAStream6streamEv", &cxx.native_of);
    /* This error's table is in libc10_cuda.so, and since PyTorch 2.13 in libc10.so, where dlsym looks as well: the former
     * depends on it. */
    torch_abi_get(core_cuda, "_ZTIN3c1016OutOfMemoryErrorE", &cxx.memory_type);
    torch_abi_get(core_cuda, "_ZTVN3c1016OutOfMemoryErrorE", &cxx.memory_table);
    torch_abi_get(core_cuda, "_ZN3c104cuda20CUDACachingAllocator9allocatorE", &cxx.current);
    torch_abi_get(torch, "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE", &cxx.table);
    torch_abi_get(torch, CLASS "6mallocEmaP11CUstream_st", &cxx.malloc);
    torch_abi_get(torch, CLASS "10raw_deleteEPv", &cxx.raw_delete);
    torch_abi_get(torch, "_ZNK5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator11raw_deleterEv",
                  &cxx.raw_deleter);
    torch_abi_get(torch, "_ZN5torch14CudaIPCCollectEv", &cxx.collect_shared);
    cxx.table_words = torch_abi_words_of(cxx.table);
    cxx.found = torch && core_cuda;
}

bool wtorch_abi_find(void)
{
    pthread_once(&cxx.once, torch_abi_find);
    return cxx.found;
}

/* Exceptions ------------------------------------------------------------------------------------------------------- */

/* The destructor stands first in the table of an exception. */
static void destroy_exception(void *exception)
{
    void (*destroy)(void *);
    memcpy(&destroy, *(void **)exception, sizeof destroy);
    destroy(exception);
}

bool wtorch_abi_throws(void)
{
    return wtorch_abi_find() && cxx.memory_type && cxx.memory_table && cxx.error_type && cxx.error_table && cxx.error &&
           cxx.allocate_exception && cxx.throw_it && cxx.new_bytes;
}

void wtorch_abi_throw(bool out_of_memory, const char *text)
{
    enum {
        ROOM = 512,
        NAMES = 2 * sizeof(void *)
    }; /* c10::Error has some hundred bytes; a table begins behind its names */
    const void *type = out_of_memory ? cxx.memory_type : cxx.error_type;
    char *table = out_of_memory ? cxx.memory_table : cxx.error_table;
    cxx_string words = {.text = text, .bytes = strlen(text)};
    source_location where = {"allocate", "weir", 0};
    if (!wtorch_abi_throws())
        return;
    char *copy = cxx.new_bytes(words.bytes + 1); /* the error takes it over */
    words.text = memcpy(copy, text, words.bytes + 1);
    memcpy(words.small, &words.bytes, sizeof words.bytes); /* the capacity, of a string that is not small */
    void *exception = cxx.allocate_exception(ROOM);
    memset(exception, 0, ROOM);
    cxx.error(exception, where, &words);
    *(char **)exception = table + NAMES;
    cxx.throw_it(exception, type, destroy_exception);
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

void *wtorch_abi_current_stream(int device)
{
    if (!wtorch_abi_find() || !cxx.current_stream || !cxx.native_of)
        return NULL;
    cuda_stream stream = cxx.current_stream((int8_t)device);
    void *native = cxx.native_of(&stream);
    return native; /* cppcheck-suppress returnDanglingLifetime ; what it returns is CUDA's handle, and no address of `stream` */
}

/* Filters ---------------------------------------------------------------------------------------------------------- */

enum { CLONE = 2, DESTROY = 3 }; /* std::_Manager_operation */

void wtorch_filter_copy(wtorch_filter *to, const void *std_function)
{
    const wtorch_filter *from = std_function;
    *to = (wtorch_filter){.manager = from->manager, .invoker = from->invoker};
    if (from->manager)
        from->manager(to, from, CLONE);
}

void wtorch_filter_drop(wtorch_filter *filter)
{
    if (filter->manager)
        filter->manager(filter, filter, DESTROY);
    *filter = (wtorch_filter){.manager = NULL};
}

bool wtorch_filter_accepts(const wtorch_filter *filter, void *native)
{
    return filter->manager && filter->invoker(filter, &native);
}

/* States of pools -------------------------------------------------------------------------------------------------- */

/* A std::shared_ptr<AllocatorState>: the state, and the counts that belong to it. */
typedef struct shared {
    void *state;
    struct counted *counted;
} shared;

/* std::_Sp_counted_base, and behind it the counted object: a c10 AllocatorState, which has a table and nothing else. */
typedef struct counted {
    void *const *table;
    int uses, weak;
    void *const *state_table;
    void *state;
} counted;

static const wtorch_calls *replaced_by;
static _Thread_local void *alive_again;

void *wtorch_abi_alive_again(void)
{
    return alive_again;
}

static void torch_abi_nothing(void *self)
{
    (void)self;
}

static void counted_dispose(counted *self)
{
    replaced_by->drop_state(self->state);
}

static void counted_destroy(counted *self)
{
    free(self);
}

static void *counted_deleter(counted *self, const void *type)
{
    (void)self;
    (void)type;
    return NULL;
}

/* std::type_info of AllocatorState, which PyTorch compares by its name. The first word is __class_type_info's table. */
typedef struct type_info {
    const void *table;
    const char *name;
} type_info;

static type_info state_type = {NULL, "N3c104cuda20CUDACachingAllocator14AllocatorStateE"};
static void *state_table[4], *counted_table[5];

static bool torch_abi_make_tables(void)
{
    char *class_type;
    torch_abi_get(library("libstdc++.so.6"), "_ZTVN10__cxxabiv117__class_type_infoE", &class_type);
    state_type.table = class_type ? class_type + 2 * sizeof(void *) : NULL;
    void *state_entries[] = {NULL, &state_type, (void *)(uintptr_t)torch_abi_nothing,
                             (void *)(uintptr_t)torch_abi_nothing};
    void *counted_entries[] = {(void *)(uintptr_t)torch_abi_nothing, (void *)(uintptr_t)torch_abi_nothing,
                               (void *)(uintptr_t)counted_dispose, (void *)(uintptr_t)counted_destroy,
                               (void *)(uintptr_t)counted_deleter};
    memcpy(state_table, state_entries, sizeof state_table);
    memcpy(counted_table, counted_entries, sizeof counted_table);
    return class_type && cxx.new_bytes && cxx.malloc && cxx.raw_delete && cxx.raw_deleter;
}

/* Results of more than two words, and objects with a destructor, are written where the caller says. With the System V ABI of
 * x86-64 that address is the first argument, so that the functions below are called as they are. On arm64 it comes in the
 * register x8, which C has no name for: a function there is entered by a few instructions that move each argument to the next
 * register and put x8 before them. */
void *wtorch_state_told(void *result, void *self, int8_t device, uint64_t first, uint64_t second);
void *wtorch_state_taken(void *result, void *self, int8_t device, const void *state);
void *wtorch_tensor_shared(void *result, void *self, void *pointer);
void *wtorch_tensor_opened(void *result, void *self, const void *given);

#if defined(__x86_64__)
enum { RESULTS_BY_ADDRESS = 1 };
#define BY_ADDRESS(function) ((uintptr_t)(function))
#elif defined(__aarch64__)
enum { RESULTS_BY_ADDRESS = 1 };
#define BY_ADDRESS(function) ((uintptr_t)(function##_by_x8))
#define ENTRY(function)                                                                                                \
    __attribute__((visibility("hidden"))) void function##_by_x8(void);                                                 \
    __asm__(".text\n"                                                                                                  \
            ".globl " #function "_by_x8\n"                                                                             \
            ".hidden " #function "_by_x8\n"                                                                            \
            ".type " #function "_by_x8, %function\n"                                                                   \
            ".p2align 4\n" #function "_by_x8:\n"                                                                       \
            ".cfi_startproc\n"                                                                                         \
            "    hint #34\n" /* bti c */                                                                               \
            "    mov x4, x3\n"                                                                                         \
            "    mov x3, x2\n"                                                                                         \
            "    mov x2, x1\n"                                                                                         \
            "    mov x1, x0\n"                                                                                         \
            "    mov x0, x8\n"                                                                                         \
            "    b " #function "\n"                                                                                    \
            ".cfi_endproc\n"                                                                                           \
            ".size " #function "_by_x8, . - " #function "_by_x8\n")
ENTRY(wtorch_state_told);
ENTRY(wtorch_state_taken);
ENTRY(wtorch_tensor_shared);
ENTRY(wtorch_tensor_opened);
#else
enum { RESULTS_BY_ADDRESS = 0 };
#define BY_ADDRESS(function) ((uintptr_t)(function))
#endif

void *wtorch_state_told(void *result, void *self, int8_t device, uint64_t first, uint64_t second)
{
    shared *out = result;
    (void)self;
    const uint64_t pool[2] = {first, second};
    void *state = replaced_by->get_state(device, pool);
    counted *made = state ? malloc(sizeof *made) : NULL;
    *out = (shared){NULL, NULL};
    if (made) {
        *made = (counted){counted_table, 1, 1, state_table + 2, state};
        *out = (shared){&made->state_table, made}; /* cppcheck-suppress memleak ; the counts free it */
    } else if (state) {
        replaced_by->drop_state(state);
        wtorch_abi_throw(false, "no host memory for the state of a pool");
    }
    return out;
}

/* std::vector, and what CheckpointDelta has: pointers that were freed, and c10::DataPtr of those that live again. */
typedef struct vector {
    char *first, *behind, *end;
} vector;

typedef struct delta {
    vector freed, alive;
} delta;

typedef struct data_ptr {
    void *data;
    void (*deleter)(void *);
    void *context;
    int8_t device_type, device;
} data_ptr;

typedef struct setting {
    delta *out;
    void *allocator;
    int8_t device;
} setting;

static void torch_abi_push(vector *v, const void *item, size_t bytes)
{
    if (v->behind == v->end) {
        size_t used = (size_t)(v->behind - v->first), room = used ? 2 * used : 16 * bytes;
        char *more = cxx.new_bytes(room);
        if (used)
            memcpy(more, v->first, used);
        void (*drop)(void *);
        torch_abi_get(library("libstdc++.so.6"), "_ZdlPv", &drop);
        if (v->first && drop)
            drop(v->first);
        *v = (vector){more, more + used, more + room};
    }
    memcpy(v->behind, item, bytes);
    v->behind += bytes;
}

static void tell_freed(void *user, void *pointer)
{
    cxx.raw_delete(((setting *)user)->allocator, pointer);
    torch_abi_push(&((setting *)user)->out->freed, &pointer, sizeof pointer);
}

/* PyTorch's allocator notes the block's length and stream as for an allocation. */
static void tell_alive(void *user, void *pointer, size_t bytes, void *native)
{
    enum { CUDA = 1 };
    setting *s = user;
    alive_again = pointer;
    (void)cxx.malloc(s->allocator, bytes, s->device, native);
    alive_again = NULL;
    data_ptr made = {pointer, cxx.raw_deleter(s->allocator), pointer, CUDA, s->device};
    torch_abi_push(&s->out->alive, &made, sizeof made);
}

void *wtorch_state_taken(void *result, void *self, int8_t device, const void *state)
{
    delta *out = result;
    setting s = {out, self, device};
    *out = (delta){.freed = {NULL, NULL, NULL}};
    replaced_by->set_state(((const shared *)state)->counted->state, tell_freed, tell_alive, &s);
    return out;
}

/* Tensors that processes share ------------------------------------------------------------------------------------- */

/* c10's ShareableHandle. */
typedef struct shareable_handle {
    int64_t offset;
    cxx_string handle;
} shareable_handle;

static void *ipc_table[5];

void wtorch_abi_collect_shared(void)
{
    if (wtorch_abi_find() && cxx.collect_shared)
        (void)cxx.collect_shared();
}

static void torch_abi_close(counted *self)
{
    wtorch_ipc_close(self->state);
}

static bool torch_abi_make_ipc_table(void)
{
    void *entries[] = {(void *)(uintptr_t)torch_abi_nothing, (void *)(uintptr_t)torch_abi_nothing,
                       (void *)(uintptr_t)torch_abi_close, (void *)(uintptr_t)counted_destroy,
                       (void *)(uintptr_t)counted_deleter};
    memcpy(ipc_table, entries, sizeof ipc_table);
    return cxx.new_bytes != NULL;
}

/* CUDA's handle alone, which PyTorch's own allocator understands in the other process. */
void *wtorch_tensor_shared(void *result, void *self, void *pointer)
{
    shareable_handle *out = result;
    wtorch_ipc handle;
    (void)self;
    *out = (shareable_handle){.handle = {.text = out->handle.small}};
    if (wtorch_ipc_share(pointer, &handle, &out->offset) != WEIR_OK) {
        wtorch_abi_throw(false, weir_detail());
        return out;
    }
    char *text = cxx.new_bytes(sizeof handle + 1); /* the string takes it over */
    memcpy(text, &handle, sizeof handle);
    text[sizeof handle] = 0;
    out->handle = (cxx_string){.text = text, .bytes = sizeof handle};
    memcpy(out->handle.small, &out->handle.bytes, sizeof out->handle.bytes); /* the capacity */
    return out;
}

/* A std::shared_ptr<void> of the mapping. */
void *wtorch_tensor_opened(void *result, void *self, const void *given)
{
    shared *out = result;
    const cxx_string *handle = given;
    counted *made = malloc(sizeof *made);
    wtorch_ipc_memory *memory;
    void *address;
    (void)self;
    *out = (shared){NULL, NULL};
    weir_status status = made ? wtorch_ipc_open(handle->text, handle->bytes, &memory, &address)
                              : weir_fail(WEIR_ERR_SYSTEM, "no host memory for a tensor of another process");
    if (status != WEIR_OK) {
        free(made);
        wtorch_abi_throw(false, weir_detail());
        return out;
    }
    *made = (counted){.table = ipc_table, .uses = 1, .weak = 1, .state = memory};
    *out = (shared){address, made};
    return out; /* cppcheck-suppress memleak ; the counts free it */
}

/* Replacing -------------------------------------------------------------------------------------------------------- */

static void cache_info(void *self, int8_t device, size_t *largest)
{
    (void)self;
    uint64_t bytes = replaced_by->largest(device);
    *largest = bytes > *largest ? (size_t)bytes : *largest;
}

static double get_fraction(void *self, int8_t device)
{
    (void)self;
    return replaced_by->fraction(device);
}

static void torch_abi_reset_peaks(void *self, int8_t device)
{
    (void)self;
    replaced_by->reset_peaks(device);
}

static void torch_abi_reset_accumulated(void *self, int8_t device)
{
    (void)self;
    replaced_by->reset_accumulated(device);
}

static int torch_abi_replace(void **table, const char *name, uintptr_t function)
{
    void *old;
    torch_abi_get(library("libtorch_cuda.so"), name, &old);
    for (size_t i = 2; old && i < cxx.table_words; i++)
        if (table[i] == old) {
            table[i] = (void *)function;
            return 1;
        }
    return 0;
}

int wtorch_abi_replace(const wtorch_calls *calls)
{
    void **object = wtorch_abi_find() && cxx.current ? *cxx.current : NULL;
    void **table = cxx.table_words > 2 ? malloc(cxx.table_words * sizeof *table) : NULL;
    if (!object || !table || *object != cxx.table + 2) {
        free(table);
        return 0;
    }
    memcpy(table, cxx.table, cxx.table_words * sizeof *table);
    replaced_by = calls;
    int count = torch_abi_replace(table, CLASS "9cacheInfoEaPm", (uintptr_t)cache_info) +
                torch_abi_replace(table, CLASS "17getMemoryFractionEa", (uintptr_t)get_fraction) +
                torch_abi_replace(table, CLASS "14resetPeakStatsEa", (uintptr_t)torch_abi_reset_peaks) +
                torch_abi_replace(table, CLASS "21resetAccumulatedStatsEa", (uintptr_t)torch_abi_reset_accumulated);
    if (RESULTS_BY_ADDRESS && torch_abi_make_tables())
        count +=
            torch_abi_replace(table, CLASS "18getCheckpointStateEaSt4pairIyyE", BY_ADDRESS(wtorch_state_told)) +
            torch_abi_replace(
                table,
                CLASS "22setCheckpointPoolStateEaSt10shared_ptrIN3c104cuda20CUDACachingAllocator14AllocatorStateEE",
                BY_ADDRESS(wtorch_state_taken));
    if (RESULTS_BY_ADDRESS && torch_abi_make_ipc_table())
        count += torch_abi_replace(table, CLASS "14shareIpcHandleEPv", BY_ADDRESS(wtorch_tensor_shared)) +
                 torch_abi_replace(table, CLASS "12getIpcDevPtrE" STRING, BY_ADDRESS(wtorch_tensor_opened));
    *object = table + 2; /* the table stays as long as the allocator, which PyTorch keeps to the end */
    return count;
}
