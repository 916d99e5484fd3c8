/* The import slots of a loaded module are rewritten, whatever the linker has made of them, and put back; what cannot be
 * done surely is refused, and nothing has changed. */
#include "core/core.h"
#include "interpose/interpose.h"

#include "test_places.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

typedef int (*function)(int x);

enum { THOUSAND = 1000 };

static wi_interpose *it;
static atomic_uint replaced;

static int call_original(size_t index, int x)
{
    function original;
    void (*found)(void) = wi_interpose_found(it, index).original;
    memcpy(&original, &found, sizeof original);
    return original(x);
}

static int replacement_one(int x)
{
    atomic_fetch_add(&replaced, 1);
    return call_original(0, x) + THOUSAND;
}

static int replacement_two(int x)
{
    atomic_fetch_add(&replaced, 1);
    return call_original(1, x) + 2 * THOUSAND;
}

static const wi_replacement both[] = {{"imported_one", (void (*)(void))replacement_one, true},
                                      {"imported_two", (void (*)(void))replacement_two, true}};

/* A module that is open, and how it is called. */
typedef struct module {
    char path[512];
    void *handle;
    function call, call_two;
    function (*address)(void);
    const function *(*sealed)(void);
    function *(*unsealed)(void);
} module;

static void path_of(const char *name, char *path, size_t capacity)
{
    snprintf(path, capacity, "%s/tests/interpose/%s.so", built_folder, name);
}

static module load(const char *name, int mode)
{
    module m = {.handle = NULL};
    path_of(name, m.path, sizeof m.path);
    m.handle = dlopen(m.path, mode | RTLD_LOCAL);
    if (!m.handle)
        fail_msg("%s", dlerror());
    *(void **)&m.call = dlsym(m.handle, "module_call");
    *(void **)&m.call_two = dlsym(m.handle, "module_call_two");
    *(void **)&m.address = dlsym(m.handle, "module_address");
    *(void **)&m.sealed = dlsym(m.handle, "module_sealed");
    *(void **)&m.unsealed = dlsym(m.handle, "module_open");
    assert_non_null(m.unsealed);
    return m;
}

static void check_calls(const module *m, int one, int two)
{
    assert_int_equal(m->call(5), one);
    assert_int_equal(m->call_two(5), two);
    assert_int_equal(m->address()(5), one);
    assert_int_equal(m->sealed()[0](5), one);
    assert_int_equal(m->sealed()[1](5), two);
    assert_int_equal(m->unsealed()[0](5), two);
    assert_int_equal(m->unsealed()[1](5), one);
}

/* Of the page of an address, as the kernel has it: "r--p". */
static void protection_of(const void *address, char *out)
{
    char line[512];
    unsigned long first, end;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    *out = 0;
    while (!*out && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %4s", &first, &end, out) != 3 || (uintptr_t)address < first ||
            (uintptr_t)address >= end)
            *out = 0;
    fclose(maps);
}

static void redirect_and_undo(const char *name, bool seals)
{
    char before[8], after[8];
    module m = load(name, RTLD_NOW);
    check_calls(&m, 6, 10);
    ok(wi_interpose_open(m.path, both, 2, &it));
    check_calls(&m, 6, 10);
    assert_int_equal(wi_interpose_replaced(it), 0);
    protection_of(m.sealed(), before);
    if (seals)
        assert_string_equal(before, "r--p");
    ok(wi_interpose_apply(it));
    check_calls(&m, 6 + THOUSAND, 10 + 2 * THOUSAND);
    protection_of(m.sealed(), after);
    assert_string_equal(before, after);
    assert_int_equal(wi_interpose_replaced(it), wi_interpose_found(it, 0).slots + wi_interpose_found(it, 1).slots);
    fails(WEIR_ERR_BUSY, wi_interpose_apply(it));
    fails(WEIR_ERR_BUSY, wi_interpose_close(it));
    ok(wi_interpose_undo(it));
    ok(wi_interpose_undo(it));
    check_calls(&m, 6, 10);
    protection_of(m.sealed(), after);
    assert_string_equal(before, after);
    ok(wi_interpose_close(it));
    assert_int_equal(dlclose(m.handle), 0);
}

static void a_module_that_binds_at_once_and_seals_its_slots_is_redirected(void **state)
{
    (void)state;
    redirect_and_undo("module-now", true);
}

static void a_module_with_open_jump_slots_is_redirected(void **state)
{
    (void)state;
    redirect_and_undo("module-lazy", true);
}

static void a_module_that_seals_nothing_is_redirected(void **state)
{
    (void)state;
    redirect_and_undo("module-open", false);
}

static void a_module_that_calls_without_a_plt_is_redirected(void **state)
{
    (void)state;
    redirect_and_undo("module-no-plt", true);
}

static void slots_and_originals_are_told(void **state)
{
    (void)state;
    module m = load("module-lazy", RTLD_NOW);
    ok(wi_interpose_open(m.path, both, 2, &it));
    wi_interposed one = wi_interpose_found(it, 0), two = wi_interpose_found(it, 1);
    void *real = dlsym(m.handle, "imported_one");
    assert_memory_equal(&one.original, &real, sizeof real);
    assert_in_range(one.slots, 3, 4); /* two tables, the address, and the call, which may go by the address */
    assert_int_equal(two.slots, 3);   /* two tables, the call */
    assert_non_null(strstr(wi_interpose_module(it), "module-lazy.so"));
    assert_true(wi_interpose_imports(it, "imported_two"));
    assert_false(wi_interpose_imports(it, "module_call"));
    assert_false(wi_interpose_imports(it, "imported_three"));
    assert_true((void *)wi_interpose_symbol(it, "imported_one") == real);
    assert_non_null(wi_interpose_symbol(it, "module_call"));
    assert_null(wi_interpose_symbol(it, "imported_three"));
    assert_int_equal(wi_interpose_found(it, 2).slots, 0);
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

static void all_of_many_slots_are_redirected(void **state)
{
    enum { MANY = 80 };
    (void)state;
    module m = load("module-many", RTLD_NOW);
    function *(*many)(void);
    *(void **)&many = dlsym(m.handle, "module_many");
    ok(wi_interpose_open(m.path, both, 2, &it));
    assert_true(wi_interpose_found(it, 1).slots > MANY);
    ok(wi_interpose_apply(it));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(many()[i](5), 10 + 2 * THOUSAND);
    check_calls(&m, 6 + THOUSAND, 10 + 2 * THOUSAND);
    ok(wi_interpose_undo(it));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(many()[i](5), 10);
    check_calls(&m, 6, 10);
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

static Elf64_Dyn *entry_of(char *file, int64_t tag)
{
    Elf64_Ehdr head;
    Elf64_Phdr segment = {.p_type = PT_NULL};
    memcpy(&head, file, sizeof head);
    for (int i = 0; i < head.e_phnum && segment.p_type != PT_DYNAMIC; i++)
        memcpy(&segment, file + head.e_phoff + (size_t)i * sizeof segment, sizeof segment);
    Elf64_Dyn *entry = (Elf64_Dyn *)(void *)(file + segment.p_offset);
    while (entry->d_tag != tag && entry->d_tag != DT_NULL)
        entry++;
    return entry;
}

/* As some linkers have it: the table of all relocations ends with that of the PLT's. */
static void slots_that_two_tables_name_are_redirected_once(void **state)
{
    enum { MOST = 1 << 20 };
    (void)state;
    char path[512], *file = malloc(MOST);
    path_of("module-lazy", path, sizeof path);
    FILE *from = fopen(path, "rbe");
    assert_non_null(from);
    size_t bytes = fread(file, 1, MOST, from);
    assert_true(bytes < MOST);
    fclose(from);
    Elf64_Dyn *size = entry_of(file, DT_RELASZ);
    uint64_t end = entry_of(file, DT_RELA)->d_un.d_ptr + size->d_un.d_val;
    if (end != entry_of(file, DT_JMPREL)->d_un.d_ptr) { /* a linker that puts something between them */
        free(file);
        skip();
        return;
    }
    size->d_un.d_val += entry_of(file, DT_PLTRELSZ)->d_un.d_val;
    path_of("module-both", path, sizeof path);
    FILE *to = fopen(path, "wbe");
    assert_non_null(to);
    assert_int_equal(fwrite(file, 1, bytes, to), bytes);
    assert_int_equal(fclose(to), 0);
    free(file);
    redirect_and_undo("module-both", true);
    assert_int_equal(unlink(path), 0);
}

static void other_modules_calls_stay_as_they_are(void **state)
{
    (void)state;
    module m = load("module-now", RTLD_NOW), other = load("module-open", RTLD_NOW);
    ok(wi_interpose_open(m.path, both, 2, &it));
    ok(wi_interpose_apply(it));
    check_calls(&m, 6 + THOUSAND, 10 + 2 * THOUSAND);
    check_calls(&other, 6, 10);
    ok(wi_interpose_undo(it));
    ok(wi_interpose_close(it));
    dlclose(m.handle);
    dlclose(other.handle);
}

static void one_function_alone_is_replaced_and_one_that_is_not_imported_left_out(void **state)
{
    (void)state;
    const wi_replacement some[] = {both[0], {"imported_three", (void (*)(void))replacement_two, false}};
    module m = load("module-now", RTLD_NOW);
    ok(wi_interpose_open(m.path, some, 2, &it));
    assert_null(wi_interpose_found(it, 1).original);
    ok(wi_interpose_apply(it));
    assert_int_equal(m.call(5), 6 + THOUSAND);
    assert_int_equal(m.call_two(5), 10);
    ok(wi_interpose_undo(it));
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

static void a_weak_function_that_nobody_has_stays_absent(void **state)
{
    (void)state;
    const wi_replacement some[] = {{"nobodys", (void (*)(void))replacement_two, false}};
    module m = load("module-now", RTLD_NOW);
    ok(wi_interpose_open(m.path, some, 1, &it));
    assert_int_equal(wi_interpose_found(it, 0).slots, 0);
    ok(wi_interpose_apply(it));
    int (*has)(void);
    *(void **)&has = dlsym(m.handle, "module_has_nobodys");
    assert_int_equal(has(), 0);
    ok(wi_interpose_undo(it));
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

static void the_program_itself_can_be_a_module(void **state)
{
    (void)state;
    const wi_replacement some[] = {{"mkfifoat", (void (*)(void))replacement_one, false}};
    wi_interpose *own;
    ok(wi_interpose_open(NULL, some, 1, &own));
    assert_true(wi_interpose_imports(own, "dlopen"));
    ok(wi_interpose_close(own));
}

/* Undoing ---------------------------------------------------------------------------------------------------------- */

static int somebody_elses(int x)
{
    return -x;
}

static void undo_is_refused_where_somebody_has_replaced_the_replacement(void **state)
{
    (void)state;
    module m = load("module-now", RTLD_NOW);
    ok(wi_interpose_open(m.path, both, 2, &it));
    ok(wi_interpose_apply(it));
    function *table = m.unsealed(), ours = table[0];
    table[0] = somebody_elses;
    size_t slots = wi_interpose_found(it, 0).slots + wi_interpose_found(it, 1).slots;
    assert_int_equal(wi_interpose_replaced(it), slots - 1);
    fails(WEIR_ERR_CONFLICT, wi_interpose_check(it));
    fails(WEIR_ERR_CONFLICT, wi_interpose_undo(it));
    detail_names("imported_two");
    detail_names("test-interpose-slots"); /* whose function is there */
    assert_int_equal(wi_interpose_replaced(it), slots - 1);
    assert_int_equal(m.call(5), 6 + THOUSAND);
    assert_int_equal(m.unsealed()[0](5), -5);
    fails(WEIR_ERR_BUSY, wi_interpose_close(it));
    table[0] = ours;
    ok(wi_interpose_check(it));
    ok(wi_interpose_undo(it));
    ok(wi_interpose_check(it));
    check_calls(&m, 6, 10);
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

/* Addresses may be another function's, as that of a PLT of the program's: a call tells where calls go. */
static void the_original_is_where_calls_go(void **state)
{
    (void)state;
    module m = load("module-open", RTLD_NOW); /* nothing is sealed */
    function *unsealed = m.unsealed(), *sealed = (function *)(uintptr_t)m.sealed() + 1;
    ok(wi_interpose_open(m.path, both, 2, &it));
    wi_interposed before = wi_interpose_found(it, 1);
    ok(wi_interpose_close(it));
    *unsealed = somebody_elses;
    *sealed = somebody_elses;
    ok(wi_interpose_open(m.path, both, 2, &it));
    assert_true(wi_interpose_found(it, 1).original == before.original);
    assert_int_equal(wi_interpose_found(it, 1).slots, before.slots);
    ok(wi_interpose_apply(it));
    assert_int_equal(m.unsealed()[0](5), 10 + 2 * THOUSAND);
    ok(wi_interpose_undo(it)); /* each slot has again what it had */
    assert_int_equal(m.unsealed()[0](5), -5);
    assert_int_equal(m.sealed()[1](5), -5);
    assert_int_equal(m.call_two(5), 10);
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

static void nothing_is_written_where_a_slot_has_changed_since_it_was_found(void **state)
{
    (void)state;
    module m = load("module-now", RTLD_NOW);
    ok(wi_interpose_open(m.path, both, 2, &it));
    function *table = m.unsealed(), before = table[1];
    table[1] = somebody_elses;
    fails(WEIR_ERR_CONFLICT, wi_interpose_apply(it));
    assert_int_equal(wi_interpose_replaced(it), 0);
    assert_int_equal(m.call(5), 6);
    table[1] = before;
    ok(wi_interpose_apply(it));
    ok(wi_interpose_undo(it));
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

static void of_two_that_found_the_same_slots_the_first_writes_them(void **state)
{
    (void)state;
    module m = load("module-open", RTLD_NOW);
    wi_interpose *second;
    ok(wi_interpose_open(m.path, both, 2, &it));
    ok(wi_interpose_open(m.path, both, 1, &second));
    ok(wi_interpose_apply(second));
    fails(WEIR_ERR_CONFLICT, wi_interpose_apply(it));
    detail_names("imported_one");
    assert_int_equal(m.call_two(5), 10);
    ok(wi_interpose_undo(second));
    ok(wi_interpose_close(second));
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

/* mprotect, which the program is led past, by its own import slot. */
static int protections, protection_fails_at = -1;
static void (*on_protection)(void);
static wi_interpose *program;

static int watched_mprotect(void *address, size_t bytes, int protection)
{
    int (*original)(void *, size_t, int);
    void (*found)(void) = wi_interpose_found(program, 0).original;
    if (on_protection)
        on_protection();
    if (protections++ == protection_fails_at) {
        errno = EACCES;
        return -1;
    }
    memcpy(&original, &found, sizeof original);
    return original(address, bytes, protection);
}

static int watch_mprotect(void **state)
{
    const wi_replacement it_alone[] = {{"mprotect", (void (*)(void))watched_mprotect, true}};
    (void)state;
    return wi_interpose_open(NULL, it_alone, 1, &program) == WEIR_OK && wi_interpose_apply(program) == WEIR_OK ? 0 : -1;
}

static int leave_mprotect(void **state)
{
    (void)state;
    return wi_interpose_undo(program) == WEIR_OK && wi_interpose_close(program) == WEIR_OK ? 0 : -1;
}

/* Fails the call number `nth`; false: there are not so many. */
static bool with_failure(int nth, weir_status (*call)(wi_interpose *it))
{
    protections = 0;
    protection_fails_at = nth;
    weir_status status = call(it);
    protection_fails_at = -1;
    if (protections <= nth) {
        ok(status);
        return false;
    }
    fails(WEIR_ERR_SYSTEM, status);
    detail_names("imported_");
    detail_names(strerror(EACCES));
    return true;
}

static void where_a_page_cannot_be_changed_all_slots_stay_as_they_were(void **state)
{
    int nth = 0;
    char now[8];
    (void)state;
    module m = load("module-now", RTLD_NOW);
    ok(wi_interpose_open(m.path, both, 2, &it));
    size_t slots = wi_interpose_found(it, 0).slots + wi_interpose_found(it, 1).slots;
    for (; with_failure(nth, wi_interpose_apply); nth++) {
        check_calls(&m, 6, 10);
        assert_int_equal(wi_interpose_replaced(it), 0);
        protection_of(m.sealed(), now);
        assert_string_equal(now, "r--p");
    }
    assert_true(nth >= 8); /* four slots are sealed: each is opened and sealed again */
    for (nth = 0; with_failure(nth, wi_interpose_undo); nth++) {
        check_calls(&m, 6 + THOUSAND, 10 + 2 * THOUSAND);
        assert_int_equal(wi_interpose_replaced(it), slots);
        protection_of(m.sealed(), now);
        assert_string_equal(now, "r--p");
    }
    assert_true(nth >= 8);
    check_calls(&m, 6, 10);
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

/* Counts how far the writing has come, by what is in place when a page is opened. */
static const module *watched;
static bool one_alone, two_alone;

static void watch(void)
{
    bool one = watched->sealed()[0] == replacement_one;
    bool two = watched->sealed()[1] == replacement_two;
    one_alone |= one && !two;
    two_alone |= two && !one;
}

/* In both directions there is a moment when the first one is in place and the second is not, and never the other. */
static void slots_are_written_in_the_order_of_the_list_and_undone_in_the_other(void **state)
{
    const wi_replacement backwards[] = {both[1], both[0]};
    (void)state;
    module m = load("module-now", RTLD_NOW);
    for (int turn = 0; turn < 4; turn++) {
        bool reversed = turn >= 2;
        watched = &m;
        ok(wi_interpose_open(m.path, reversed ? backwards : both, 2, &it));
        if (turn % 2 == 0) {
            one_alone = two_alone = false;
            on_protection = watch;
            ok(wi_interpose_apply(it));
        } else {
            ok(wi_interpose_apply(it));
            one_alone = two_alone = false;
            on_protection = watch;
            ok(wi_interpose_undo(it));
        }
        on_protection = NULL;
        assert_int_equal(one_alone, !reversed);
        assert_int_equal(two_alone, reversed);
        ok(wi_interpose_undo(it));
        ok(wi_interpose_close(it));
    }
    dlclose(m.handle);
}

static wi_interpose *chained;

static int chained_one(int x)
{
    function original;
    void (*found)(void) = wi_interpose_found(chained, 0).original;
    memcpy(&original, &found, sizeof original);
    return original(x) + 5 * THOUSAND;
}

static void two_in_a_row_are_undone_last_first(void **state)
{
    (void)state;
    const wi_replacement more[] = {{"imported_one", (void (*)(void))chained_one, true}};
    module m = load("module-now", RTLD_NOW);
    ok(wi_interpose_open(m.path, both, 2, &it));
    ok(wi_interpose_apply(it));
    ok(wi_interpose_open(m.path, more, 1, &chained));
    ok(wi_interpose_apply(chained));
    check_calls(&m, 6 + 6 * THOUSAND, 10 + 2 * THOUSAND);
    fails(WEIR_ERR_CONFLICT, wi_interpose_undo(it));
    check_calls(&m, 6 + 6 * THOUSAND, 10 + 2 * THOUSAND);
    ok(wi_interpose_undo(chained));
    ok(wi_interpose_undo(it));
    check_calls(&m, 6, 10);
    ok(wi_interpose_close(chained));
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

/* Closing ---------------------------------------------------------------------------------------------------------- */

static bool is_loaded(const char *path)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (handle)
        dlclose(handle);
    return handle != NULL;
}

static void a_module_stays_loaded_until_it_is_closed_here(void **state)
{
    (void)state;
    module m = load("module-lazy", RTLD_NOW);
    ok(wi_interpose_open(m.path, both, 2, &it));
    ok(wi_interpose_apply(it));
    dlclose(m.handle);
    assert_true(is_loaded(m.path));
    check_calls(&m, 6 + THOUSAND, 10 + 2 * THOUSAND);
    ok(wi_interpose_undo(it));
    check_calls(&m, 6, 10);
    ok(wi_interpose_close(it));
    assert_false(is_loaded(m.path));
    fails(WEIR_ERR_NOT_FOUND, wi_interpose_open(m.path, both, 2, &it));
}

static void a_module_that_is_closed_here_first_stays_its_users(void **state)
{
    (void)state;
    module m = load("module-now", RTLD_NOW);
    ok(wi_interpose_open(m.path, both, 2, &it));
    ok(wi_interpose_apply(it));
    ok(wi_interpose_undo(it));
    ok(wi_interpose_close(it));
    check_calls(&m, 6, 10);
    dlclose(m.handle);
    assert_false(is_loaded(m.path));
}

/* Refusals --------------------------------------------------------------------------------------------------------- */

static void refused(const char *name, weir_status status, const char *why)
{
    module m = load(name, RTLD_NOW);
    int one = m.call(5);
    fails(status, wi_interpose_open(m.path, both, 2, &it));
    assert_null(it);
    detail_names(why);
    detail_names(name);
    assert_int_equal(m.call(5), one);
    assert_int_equal(m.call_two(5), 10);
    dlclose(m.handle);
    assert_false(is_loaded(m.path)); /* no reference was left */
}

static void text_relocations_are_refused(void **state)
{
    (void)state;
    refused("module-text", WEIR_ERR_UNSUPPORTED, "text relocations");
}

static void what_the_module_defines_itself_is_refused(void **state)
{
    (void)state;
    const wi_replacement others_first[] = {both[1], both[0]};
    refused("module-defines", WEIR_ERR_UNSUPPORTED, "the module defines it itself");
    module m = load("module-defines", RTLD_NOW);
    fails(WEIR_ERR_UNSUPPORTED, wi_interpose_open(m.path, others_first, 2, &it));
    detail_names("imported_one");
    dlclose(m.handle);
}

static void an_ifunc_is_refused(void **state)
{
    (void)state;
    refused("module-ifunc", WEIR_ERR_UNSUPPORTED, "as an IFUNC");
}

static void an_address_with_an_addend_is_refused(void **state)
{
    (void)state;
    refused("module-addend", WEIR_ERR_UNSUPPORTED, "something is added to its address");
}

static void what_is_not_loaded_is_not_found(void **state)
{
    char path[512];
    (void)state;
    path_of("module-now", path, sizeof path);
    fails(WEIR_ERR_NOT_FOUND, wi_interpose_open(path, both, 2, &it));
    detail_names("module-now.so is not loaded");
    fails(WEIR_ERR_NOT_FOUND, wi_interpose_open("/no/such/module.so", both, 2, &it));
    assert_false(is_loaded(path));
}

static void a_required_function_that_is_not_imported_is_named(void **state)
{
    (void)state;
    const wi_replacement some[] = {both[0], {"imported_three", (void (*)(void))replacement_two, true}};
    module m = load("module-now", RTLD_NOW);
    fails(WEIR_ERR_NOT_FOUND, wi_interpose_open(m.path, some, 2, &it));
    detail_names("does not import imported_three");
    dlclose(m.handle);
}

static void a_slot_that_is_not_bound_yet_is_refused_and_served_once_it_is(void **state)
{
    (void)state;
    module m = load("module-lazy", RTLD_LAZY);
    fails(WEIR_ERR_UNSUPPORTED, wi_interpose_open(m.path, both, 2, &it));
    detail_names("RTLD_NOW");
    assert_int_equal(m.call(5), 6);
    assert_int_equal(m.call_two(5), 10);
    ok(wi_interpose_open(m.path, both, 2, &it));
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

static void arguments_that_are_none_are_refused(void **state)
{
    (void)state;
    const wi_replacement nameless[] = {{NULL, (void (*)(void))replacement_one, false}};
    const wi_replacement empty[] = {{"imported_one", NULL, false}};
    const wi_replacement second_nameless[] = {both[0], nameless[0]},
                         second_empty[] = {both[0], {"imported_two", NULL, false}};
    fails(WEIR_ERR_INVALID, wi_interpose_open("x", both, 0, &it));
    fails(WEIR_ERR_INVALID, wi_interpose_open("x", NULL, 1, &it));
    fails(WEIR_ERR_INVALID, wi_interpose_open("x", both, 1, NULL));
    fails(WEIR_ERR_INVALID, wi_interpose_open("x", nameless, 1, &it));
    fails(WEIR_ERR_INVALID, wi_interpose_open("x", empty, 1, &it));
    fails(WEIR_ERR_INVALID, wi_interpose_open("x", second_nameless, 2, &it));
    fails(WEIR_ERR_INVALID, wi_interpose_open("x", second_empty, 2, &it));
    ok(wi_interpose_close(NULL));
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 300 };

typedef struct caller {
    pthread_t thread;
    const module *m;
    atomic_bool *stop;
    unsigned long calls, wrong;
} caller;

static void *call_all_the_time(void *user)
{
    caller *c = user;
    while (!atomic_load(c->stop)) {
        int one = c->m->call(5), two = c->m->call_two(5), table = __atomic_load_n(c->m->sealed(), __ATOMIC_ACQUIRE)(5);
        c->wrong += one != 6 && one != 6 + THOUSAND;
        c->wrong += two != 10 && two != 10 + 2 * THOUSAND;
        c->wrong += table != 6 && table != 6 + THOUSAND;
        c->calls++;
    }
    return NULL;
}

static void threads_call_the_one_or_the_other_while_slots_are_rewritten(void **state)
{
    (void)state;
    atomic_bool stop = false;
    module m = load("module-now", RTLD_NOW);
    caller callers[THREADS];
    ok(wi_interpose_open(m.path, both, 2, &it));
    atomic_store(&replaced, 0);
    for (size_t i = 0; i < THREADS; i++) {
        callers[i] = (caller){.m = &m, .stop = &stop};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_all_the_time, &callers[i]), 0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        ok(wi_interpose_apply(it));
        ok(wi_interpose_undo(it));
    }
    ok(wi_interpose_apply(it));
    for (unsigned now = atomic_load(&replaced); atomic_load(&replaced) < now + THREADS;)
        usleep(100);
    ok(wi_interpose_undo(it));
    atomic_store(&stop, true);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].wrong, 0);
    }
    check_calls(&m, 6, 10);
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

typedef struct applier {
    pthread_t thread;
    wi_interpose *own;
    unsigned applied, undone;
} applier;

static void *apply_and_undo(void *user)
{
    applier *a = user;
    for (int i = 0; i < ROUNDS; i++) {
        a->applied += wi_interpose_apply(a->own) == WEIR_OK;
        a->undone += wi_interpose_undo(a->own) == WEIR_OK;
    }
    return NULL;
}

static void several_threads_may_apply_and_undo_one(void **state)
{
    (void)state;
    module m = load("module-now", RTLD_NOW);
    applier appliers[THREADS];
    ok(wi_interpose_open(m.path, both, 2, &it));
    for (size_t i = 0; i < THREADS; i++) {
        appliers[i] = (applier){.own = it};
        assert_int_equal(pthread_create(&appliers[i].thread, NULL, apply_and_undo, &appliers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(appliers[i].thread, NULL);
        assert_int_equal(appliers[i].undone, ROUNDS);
        assert_true(appliers[i].applied > 0);
    }
    ok(wi_interpose_undo(it));
    assert_int_equal(wi_interpose_replaced(it), 0);
    check_calls(&m, 6, 10);
    ok(wi_interpose_close(it));
    dlclose(m.handle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_that_binds_at_once_and_seals_its_slots_is_redirected),
        cmocka_unit_test(a_module_with_open_jump_slots_is_redirected),
        cmocka_unit_test(a_module_that_seals_nothing_is_redirected),
        cmocka_unit_test(a_module_that_calls_without_a_plt_is_redirected),
        cmocka_unit_test(slots_and_originals_are_told),
        cmocka_unit_test(all_of_many_slots_are_redirected),
        cmocka_unit_test(slots_that_two_tables_name_are_redirected_once),
        cmocka_unit_test(other_modules_calls_stay_as_they_are),
        cmocka_unit_test(one_function_alone_is_replaced_and_one_that_is_not_imported_left_out),
        cmocka_unit_test(a_weak_function_that_nobody_has_stays_absent),
        cmocka_unit_test(the_program_itself_can_be_a_module),
        cmocka_unit_test(undo_is_refused_where_somebody_has_replaced_the_replacement),
        cmocka_unit_test(the_original_is_where_calls_go),
        cmocka_unit_test(nothing_is_written_where_a_slot_has_changed_since_it_was_found),
        cmocka_unit_test(of_two_that_found_the_same_slots_the_first_writes_them),
        cmocka_unit_test_setup_teardown(where_a_page_cannot_be_changed_all_slots_stay_as_they_were, watch_mprotect,
                                        leave_mprotect),
        cmocka_unit_test_setup_teardown(slots_are_written_in_the_order_of_the_list_and_undone_in_the_other,
                                        watch_mprotect, leave_mprotect),
        cmocka_unit_test(two_in_a_row_are_undone_last_first),
        cmocka_unit_test(a_module_stays_loaded_until_it_is_closed_here),
        cmocka_unit_test(a_module_that_is_closed_here_first_stays_its_users),
        cmocka_unit_test(text_relocations_are_refused),
        cmocka_unit_test(what_the_module_defines_itself_is_refused),
        cmocka_unit_test(an_ifunc_is_refused),
        cmocka_unit_test(an_address_with_an_addend_is_refused),
        cmocka_unit_test(what_is_not_loaded_is_not_found),
        cmocka_unit_test(a_required_function_that_is_not_imported_is_named),
        cmocka_unit_test(a_slot_that_is_not_bound_yet_is_refused_and_served_once_it_is),
        cmocka_unit_test(arguments_that_are_none_are_refused),
        cmocka_unit_test(threads_call_the_one_or_the_other_while_slots_are_rewritten),
        cmocka_unit_test(several_threads_may_apply_and_undo_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
