/* Which library an address is of. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "left.h"

enum { LIBRARIES = 1024 };

/* Written in order, each before it is counted, and only while the loader's lock is held. */
static left_library libraries[LIBRARIES];
static _Atomic size_t count;

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_runtime(const char *name)
{
    static const char *const names[] = {"libc.so",  "libstdc++.so",  "libgcc_s.so",
                                        "ld-linux", "libpthread.so", "libonnx-left.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static int add(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    (void)user;
    const char *name = *info->dlpi_name ? file_name(info->dlpi_name) : program_invocation_short_name;
    uintptr_t start = UINTPTR_MAX, end = 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD)
            continue;
        uintptr_t first = info->dlpi_addr + part->p_vaddr;
        start = first < start ? first : start;
        end = first + part->p_memsz > end ? first + part->p_memsz : end;
    }
    size_t known = count;
    for (size_t i = 0; i < known; i++)
        if (libraries[i].start == start && libraries[i].end == end &&
            strncmp(libraries[i].name, name, sizeof libraries[i].name - 1) == 0)
            return 0;
    if (known == LIBRARIES || end == 0)
        return 0;
    left_library *l = &libraries[known];
    *l = (left_library){.start = start, .end = end, .runtime = is_runtime(name)};
    snprintf(l->name, sizeof l->name, "%s", name);
    count = known + 1;
    return 0;
}

void left_libraries_look(void)
{
    dl_iterate_phdr(add, NULL);
}

/* The last one that was there, where one took another's place. */
const left_library *left_library_of(uintptr_t address)
{
    for (size_t i = count; i-- > 0;)
        if (address >= libraries[i].start && address < libraries[i].end)
            return &libraries[i];
    return NULL;
}

void left_place(uintptr_t address, char *text, size_t size)
{
    enum { FAR = 1 << 16 }; /* a name this far before is another function's: most have none */
    const left_library *l = left_library_of(address);
    Dl_info info = {0};
    if (!l) {
        snprintf(text, size, "%#lx", (unsigned long)address);
        return;
    }
    bool named =
        dladdr((void *)(address - 1), &info) != 0 && info.dli_sname && address - (uintptr_t)info.dli_saddr < FAR;
    snprintf(text, size, "%s+%#lx%s%s", l->name, (unsigned long)(address - l->start), named ? " " : "",
             named ? info.dli_sname : "");
}
