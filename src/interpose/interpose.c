/* See interpose.h. */
#include "interpose/interpose.h"
#include "interpose/elf_imports.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct slot {
    uintptr_t *at;
    uintptr_t before, after;
    size_t replacement; /* its number */
    bool sealed;        /* its page is read-only */
} slot;

struct wi_interpose {
    void *handle; /* keeps the module loaded */
    char name[512];
    wi_elf_module module;
    Elf64_Phdr *segments;
    wi_replacement *replacements;
    wi_interposed *found;
    size_t count;
    slot *slots;
    size_t slot_count, slot_capacity;
    bool applied; /* guarded by the lock */
};

/* Held while slots are written: two threads on the same page would take the write permission from each other. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
WI_FREE_AFTER_FORKS(lock)

/* Finding the module ----------------------------------------------------------------------------------------------- */

typedef struct search {
    const struct link_map *map;
    wi_interpose *it;
    bool found;
} search;

static bool has_dynamic_at(const struct dl_phdr_info *info, const void *dynamic)
{
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return info->dlpi_addr + info->dlpi_phdr[i].p_vaddr == (uintptr_t)dynamic;
    return false;
}

static int interpose_look_at(struct dl_phdr_info *info, size_t size, void *user)
{
    search *s = user;
    (void)size;
    if (!has_dynamic_at(info, s->map->l_ld))
        return 0;
    s->found = true;
    s->it->segments = malloc(info->dlpi_phnum * sizeof *s->it->segments);
    if (s->it->segments)
        memcpy(s->it->segments, info->dlpi_phdr, info->dlpi_phnum * sizeof *s->it->segments);
    s->it->module.image = (wi_elf_image){s->it->name, (uintptr_t)info->dlpi_addr, s->it->segments, info->dlpi_phnum};
    return 1;
}

static weir_status interpose_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the import slots of a module");
}

static weir_status find_module(wi_interpose *it, const char *module)
{
    search s = {.it = it};
    void *map = NULL;
    it->handle = dlopen(module, RTLD_LAZY | RTLD_LOCAL | (module ? RTLD_NOLOAD : 0));
    if (!it->handle)
        return weir_fail(WEIR_ERR_NOT_FOUND, "%s is not loaded; open it first", module ? module : "the program");
    if (dlinfo(it->handle, RTLD_DI_LINKMAP, &map) != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: %s", module ? module : "the program", dlerror());
    s.map = map;
    snprintf(it->name, sizeof it->name, "%s", *s.map->l_name ? s.map->l_name : "the program");
    dl_iterate_phdr(interpose_look_at, &s);
    if (!s.found)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: the dynamic linker does not tell where it lies", it->name);
    return it->segments ? WEIR_OK : interpose_no_memory();
}

static weir_status check_module(wi_interpose *it)
{
    wi_elf_image image = it->module.image;
    weir_status status = wi_elf_open(&image, &it->module);
    if (status != WEIR_OK)
        return status;
    if (it->module.machine != wi_elf_own_machine())
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s is for another machine (%u)", it->name, it->module.machine);
    if (it->module.needs_text_writes)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s has text relocations: addresses of functions may be in its code; build it with -fPIC",
                         it->name);
    if (it->module.unknown_packing)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s has packed relocations, which are not read", it->name);
    const char *tunables = getenv("GLIBC_TUNABLES");
    if (it->module.plt_may_be_direct && tunables && strstr(tunables, "plt_rewrite"))
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: the dynamic linker was told to make jumps of its PLT (glibc.cpu.plt_rewrite), which go "
                         "through no slots; take that out of GLIBC_TUNABLES",
                         it->name);
    return WEIR_OK;
}

/* Finding slots ---------------------------------------------------------------------------------------------------- */

static weir_status add_slot(wi_interpose *it, slot s)
{
    for (size_t i = 0; i < it->slot_count; i++)
        if (it->slots[i].at == s.at)
            return WEIR_OK; /* DT_RELA may have DT_JMPREL in it */
    if (!wi_make_room(&it->slots, it->slot_count, &it->slot_capacity, sizeof *it->slots))
        return interpose_no_memory();
    it->slots[it->slot_count++] = s;
    it->found[s.replacement].slots++;
    return WEIR_OK;
}

static weir_status interpose_refuse(const wi_interpose *it, const wi_elf_import *import, const char *why)
{
    return weir_fail(WEIR_ERR_UNSUPPORTED, "%s of %s cannot be replaced: %s (relocation type %u)", import->name,
                     it->name, why, import->type);
}

static weir_status check_import(const wi_interpose *it, const wi_elf_import *import)
{
    const char *why = import->defined               ? "the module defines it itself"
                      : import->indirect            ? "it is an IFUNC"
                      : import->use == WI_ELF_OTHER ? "its address goes elsewhere than into a slot"
                      : import->has_addend          ? "something is added to its address"
                      : !import->writable           ? "its slot is in memory that is never written"
                      : !import->aligned            ? "its slot is not aligned"
                                                    : NULL;
    return why ? interpose_refuse(it, import, why) : WEIR_OK;
}

static size_t interpose_number_of(const wi_interpose *it, const char *name)
{
    size_t i = 0;
    while (i < it->count && strcmp(it->replacements[i].name, name) != 0)
        i++;
    return i;
}

/* Notes the function in the first slot found. Slots of calls (the PLT) are found first, because the address in any
 * other slot may be a PLT entry of the program. */
static void note_original(wi_interposed *found, uintptr_t value)
{
    if (!found->original)
        memcpy(&found->original, &value, sizeof found->original);
}

static bool is_replaced(const char *name, void *user)
{
    const wi_interpose *it = user;
    return interpose_number_of(it, name) < it->count;
}

static weir_status interpose_find_slot(const wi_elf_import *import, void *user)
{
    wi_interpose *it = user;
    size_t number = interpose_number_of(it, import->name);
    weir_status status = check_import(it, import);
    if (status != WEIR_OK)
        return status;
    slot s = {.at = (uintptr_t *)import->slot, .replacement = number}; // NOLINT(performance-no-int-to-ptr)
    s.before = __atomic_load_n(s.at, __ATOMIC_ACQUIRE);
    s.sealed = wi_elf_is_sealed(&it->module, import->slot, (size_t)sysconf(_SC_PAGESIZE));
    memcpy(&s.after, &it->replacements[number].function, sizeof s.after);
    if (s.before == 0)
        return WEIR_OK; /* weak, and nobody has it: the module does not call it */
    if (wi_elf_contains(&it->module, s.before))
        return interpose_refuse(
            it, import,
            "the module binds lazily and has not bound it yet, which another thread may do at any moment; open "
            "the module with RTLD_NOW, or the program with LD_BIND_NOW=1");
    note_original(&it->found[number], s.before);
    return add_slot(it, s);
}

/* What is linked in is no import, though its name may be there. */
static weir_status check_defined(const wi_interpose *it)
{
    bool indirect;
    for (size_t i = 0; i < it->count; i++)
        if (wi_elf_defines(&it->module, it->replacements[i].name, &indirect))
            return weir_fail(WEIR_ERR_UNSUPPORTED, "%s of %s cannot be replaced: the module defines it itself%s",
                             it->replacements[i].name, it->name, indirect ? ", as an IFUNC" : "");
    return WEIR_OK;
}

static weir_status interpose_check_required(const wi_interpose *it)
{
    for (size_t i = 0; i < it->count; i++)
        if (it->replacements[i].required && it->found[i].slots == 0)
            return weir_fail(
                WEIR_ERR_NOT_FOUND,
                "%s does not import %s: it has it from elsewhere, or linked in (of CUDA's runtime: link it "
                "with libcudart.so)",
                it->name, it->replacements[i].name);
    return WEIR_OK;
}

static int by_replacement(const void *a, const void *b)
{
    const slot *x = a, *y = b;
    return x->replacement != y->replacement ? (x->replacement > y->replacement) - (x->replacement < y->replacement)
                                            : (x->at > y->at) - (x->at < y->at);
}

/* Opening ---------------------------------------------------------------------------------------------------------- */

static weir_status copy_replacements(wi_interpose *it, const wi_replacement *replacements, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!replacements[i].name || !replacements[i].function)
            return weir_fail(WEIR_ERR_INVALID, "wi_interpose_open: replacement %zu has no name, or no function", i);
    it->replacements = calloc(count, sizeof *it->replacements);
    it->found = calloc(count, sizeof *it->found);
    if (!it->replacements || !it->found)
        return interpose_no_memory();
    memcpy(it->replacements, replacements, count * sizeof *replacements);
    it->count = count;
    return WEIR_OK;
}

static void dispose(wi_interpose *it)
{
    void *handle = it->handle;
    free(it->segments);
    free(it->replacements);
    free(it->found);
    free(it->slots);
    free(it);
    if (handle)
        dlclose(handle);
}

weir_status wi_interpose_open(const char *module, const wi_replacement *replacements, size_t count, wi_interpose **out)
{
    if (!out || !replacements || count == 0)
        return weir_fail(WEIR_ERR_INVALID, "wi_interpose_open: NULL, or nothing to replace");
    *out = NULL;
    wi_interpose *it = calloc(1, sizeof *it);
    if (!it)
        return interpose_no_memory();
    weir_status status = copy_replacements(it, replacements, count);
    if (status == WEIR_OK)
        status = find_module(it, module);
    if (status == WEIR_OK)
        status = check_module(it);
    if (status == WEIR_OK)
        status = check_defined(it);
    if (status == WEIR_OK)
        status = wi_elf_each_named(&it->module, is_replaced, interpose_find_slot, it);
    if (status == WEIR_OK)
        status = interpose_check_required(it);
    if (status == WEIR_OK && it->slot_count > 0)
        qsort(it->slots, it->slot_count, sizeof *it->slots, by_replacement);
    if (status == WEIR_OK)
        *out = it;
    else
        dispose(it);
    return status;
}

weir_status wi_interpose_close(wi_interpose *it)
{
    if (!it)
        return WEIR_OK;
    watch_forks();
    pthread_mutex_lock(&lock);
    bool applied = it->applied;
    pthread_mutex_unlock(&lock);
    if (applied)
        return weir_fail(WEIR_ERR_BUSY, "the replacements in %s are in place; undo them first", it->name);
    dispose(it);
    return WEIR_OK;
}

/* Asking ----------------------------------------------------------------------------------------------------------- */

const char *wi_interpose_module(const wi_interpose *it)
{
    return it->name;
}

wi_interposed wi_interpose_found(const wi_interpose *it, size_t index)
{
    return index < it->count ? it->found[index] : (wi_interposed){.slots = 0};
}

typedef struct question {
    const char *name;
    bool imported;
} question;

static weir_status interpose_compare(const wi_elf_import *import, void *user)
{
    question *q = user;
    q->imported |= !import->defined && strcmp(import->name, q->name) == 0;
    return WEIR_OK;
}

bool wi_interpose_imports(const wi_interpose *it, const char *name)
{
    question q = {name, false};
    return wi_elf_each_import(&it->module, interpose_compare, &q) == WEIR_OK && q.imported;
}

void (*wi_interpose_symbol(const wi_interpose *it, const char *name))(void)
{
    size_t number = interpose_number_of(it, name);
    void (*function)(void) = number < it->count ? it->found[number].original : NULL;
    void *symbol = function ? NULL : dlsym(it->handle, name);
    if (symbol)
        memcpy(&function, &symbol, sizeof function);
    return function;
}

/* Writing ---------------------------------------------------------------------------------------------------------- */

static weir_status protect(const wi_interpose *it, const slot *s, int protection)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)s->at & ~(page - 1);
    if (!s->sealed || mprotect((void *)at, page, protection) == 0) // NOLINT(performance-no-int-to-ptr)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_SYSTEM, "the slot of %s in %s cannot be %s: %s", it->replacements[s->replacement].name,
                     it->name, protection & PROT_WRITE ? "written" : "sealed again", strerror(errno));
}

static weir_status holds_another(const wi_interpose *it, const slot *s, uintptr_t value)
{
    Dl_info whose;
    const char *file = dladdr((void *)value, &whose) && whose.dli_fname
                           ? whose.dli_fname // NOLINT(performance-no-int-to-ptr)
                           : "unknown";
    return weir_fail(WEIR_ERR_CONFLICT, "the slot of %s in %s holds a function of %s: somebody else has replaced it",
                     it->replacements[s->replacement].name, it->name, file);
}

/* With the lock held. A slot that does not hold what is expected stays as it is. */
static weir_status write_slot(const wi_interpose *it, const slot *s, uintptr_t expected, uintptr_t wanted)
{
    weir_status status = protect(it, s, PROT_READ | PROT_WRITE);
    if (status != WEIR_OK)
        return status;
    uintptr_t value = expected;
    bool written = __atomic_compare_exchange_n(s->at, &value, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    status = protect(it, s, PROT_READ);
    return written ? status : holds_another(it, s, value);
}

/* Checks, with the lock held, that every slot holds the expected function. */
static weir_status interpose_check_slots(const wi_interpose *it, bool forth)
{
    for (size_t i = 0; i < it->slot_count; i++) {
        const slot *s = &it->slots[i];
        uintptr_t value = __atomic_load_n(s->at, __ATOMIC_ACQUIRE);
        if (value != (forth ? s->before : s->after))
            return holds_another(it, s, value);
    }
    return WEIR_OK;
}

/* With the lock held: one slot forth, or back. */
static weir_status interpose_move(const wi_interpose *it, size_t index, bool forth)
{
    const slot *s = &it->slots[index];
    return forth ? write_slot(it, s, s->before, s->after) : write_slot(it, s, s->after, s->before);
}

/* With the lock held: all slots, or none; back in the other order than forth. One that is written and cannot be sealed
 * again counts as written. */
static weir_status interpose_write_all(const wi_interpose *it, bool forth)
{
    size_t count = it->slot_count, done = 0;
    weir_status status = interpose_check_slots(it, forth);
    if (status != WEIR_OK)
        return status;
    for (; done < count && status == WEIR_OK; done++)
        status = interpose_move(it, forth ? done : count - 1 - done, forth);
    if (status == WEIR_OK)
        return status;
    wi_saved_detail why;
    snprintf(why.text, sizeof why.text, "%s", weir_detail());
    while (done-- > 0) {
        size_t index = forth ? done : count - 1 - done;
        const slot *s = &it->slots[index];
        if (__atomic_load_n(s->at, __ATOMIC_ACQUIRE) == (forth ? s->after : s->before))
            (void)interpose_move(it, index, !forth);
    }
    return weir_fail(status, "%s", why.text);
}

/* Of linux/membarrier.h, which not every system has. */
enum { PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 };

static void barrier(int command)
{
#ifdef SYS_membarrier
    (void)syscall(SYS_membarrier, command, 0, 0);
#else
    (void)command;
#endif
}

static void register_for_barriers(void)
{
    barrier(REGISTER_PRIVATE_EXPEDITED);
}

/* A call goes through a slot by plain loads: on arm64 a thread might see the slot, and not yet what its replacement
 * needs, which was written before. Where the kernel has no such barrier, the changes of pages have to do. */
static void let_all_threads_see(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_for_barriers);
    barrier(PRIVATE_EXPEDITED);
}

static weir_status interpose_change(wi_interpose *it, bool forth)
{
    watch_forks();
    let_all_threads_see();
    pthread_mutex_lock(&lock);
    weir_status status = it->applied != forth ? interpose_write_all(it, forth)
                         : forth ? weir_fail(WEIR_ERR_BUSY, "the replacements in %s are in place", it->name)
                                 : WEIR_OK;
    if (status == WEIR_OK)
        it->applied = forth;
    pthread_mutex_unlock(&lock);
    return status;
}

weir_status wi_interpose_apply(wi_interpose *it)
{
    return interpose_change(it, true);
}

weir_status wi_interpose_undo(wi_interpose *it)
{
    return interpose_change(it, false);
}

weir_status wi_interpose_check(wi_interpose *it)
{
    watch_forks();
    pthread_mutex_lock(&lock);
    weir_status status = it->applied ? interpose_check_slots(it, false) : WEIR_OK;
    pthread_mutex_unlock(&lock);
    return status;
}

size_t wi_interpose_replaced(const wi_interpose *it)
{
    size_t count = 0;
    for (size_t i = 0; i < it->slot_count; i++)
        count += __atomic_load_n(it->slots[i].at, __ATOMIC_ACQUIRE) == it->slots[i].after;
    return count;
}
