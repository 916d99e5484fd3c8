/* What sources have in common: lists of what they find, addresses, files, libraries; and the processor. */
#include "base/system.h"
#include <weir/select.h>
#include "base/values.h"
#include "factory/hardware/hardware.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

static void hardware_source_write_name(const char *root, char *name, size_t capacity)
{
    char text[WI_SYSFS_BYTES];
    struct utsname system = {.machine = ""};
    wi_sysfs_text(text, sizeof text, "%s/proc/cpuinfo", root);
    const char *found = wi_sysfs_line(text, "model name");
    if (*root == '\0')
        uname(&system);
    if (found && *found == ':') {
        found += 1 + strspn(found + 1, " ");
        snprintf(name, capacity, "%.*s", (int)strcspn(found, "\n"), found);
    } else {
        snprintf(name, capacity, "processor%s%s", system.machine[0] ? " " : "", system.machine);
    }
}

void wi_processor(const char *root, weir_hardware_device *out)
{
    *out = (weir_hardware_device){
        .struct_size = sizeof *out, .kind = WEIR_HARDWARE_CPU, .shares_host = true, .usable = true};
    snprintf(out->key, sizeof out->key, "cpu");
    snprintf(out->runtime, sizeof out->runtime, "host");
    hardware_source_write_name(root, out->name, sizeof out->name);
    out->units = wi_cgroup_processors(root);
    if (!wi_cgroup_memory(root, &out->free, &out->total)) {
        out->free = out->total = WEIR_BYTES_UNKNOWN;
        snprintf(out->remark, sizeof out->remark, "/proc/meminfo does not tell its memory");
    }
}

wi_card *wi_found_add(wi_found *found, weir_hardware_kind kind)
{
    wi_card *cards = found->count < WI_MOST_CARDS ? realloc(found->cards, (found->count + 1) * sizeof *cards) : NULL;
    if (!cards) {
        wi_found_remark(found, "there was room for the first %zu devices only", found->count);
        return NULL;
    }
    found->cards = cards;
    wi_card *card = &cards[found->count++];
    *card = (wi_card){.device = {.struct_size = sizeof card->device,
                                 .kind = kind,
                                 .ordinal = -1,
                                 .total = WEIR_BYTES_UNKNOWN,
                                 .free = WEIR_BYTES_UNKNOWN},
                      .limits = {.most = UINT64_MAX, .left = UINT64_MAX}};
    return card;
}

void wi_found_remark(wi_found *found, const char *format, ...)
{
    char text[sizeof found->remark];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    wi_one_line(text);
    size_t used = strlen(found->remark);
    if (!strstr(found->remark, text))
        snprintf(found->remark + used, sizeof found->remark - used, "%s%s", used ? "; " : "", text);
}

void wi_pci_read(const char *address, char *text, size_t capacity)
{
    unsigned domain, bus, device, function;
    text[0] = '\0';
    if (sscanf(address, "%8x:%2x:%2x.%1x", &domain, &bus, &device, &function) == 4)
        snprintf(text, capacity, "%04x:%02x:%02x.%x", domain, bus, device, function);
}

weir_version_number wi_version_in(const char *root, const char *path)
{
    char text[64];
    weir_version_number version = {.count = 0};
    if (wi_sysfs_text(text, sizeof text, "%s%s", root, path) && wi_version_read(text, &version) != WEIR_OK)
        version.count = 0;
    return version;
}

/* Vendors' libraries, opened at run time --------------------------------------------------------------------------- */

/* Where they lie below a root. Under WSL only its own directory has them; Jetson keeps CUDA's driver apart. */
static const char *const directories[] = {
#if defined(__aarch64__)
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu/tegra",
    "usr/lib/aarch64-linux-gnu/nvidia",
#else
    "usr/lib/x86_64-linux-gnu",
#endif
    "usr/lib64",
    "usr/lib",
    "usr/lib/wsl/lib",
};

/* The first of the directories that has the file and from which it can be opened. Where none has it `why` stays as it
 * is. */
static void *open_below(const char *root, const char *soname, char *why, size_t capacity)
{
    for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++) {
        char path[PATH_MAX];
        struct stat file;
        if (snprintf(path, sizeof path, "%s/%s/%s", root, directories[i], soname) >= (int)sizeof path ||
            stat(path, &file) != 0)
            continue;
        if (!S_ISREG(file.st_mode)) { /* a pipe would be waited for, with the dynamic linker's lock held */
            snprintf(why, capacity, "%s is no regular file", path);
            continue;
        }
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
        snprintf(why, capacity, "%s", dlerror());
    }
    return NULL;
}

static void *hardware_source_find_library(const char *root, const char *soname, char *why, size_t capacity)
{
    snprintf(why, capacity, "%s is not here", soname);
    void *library = *root ? NULL : dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    const char *words = *root || library ? NULL : dlerror();
    /* They begin with this name where the search found no such file, else with the path of the one that it found, or
     * with the name of another library that this one needs. */
    if (words && strncmp(words, soname, strlen(soname)) != 0)
        snprintf(why, capacity, "%s", words);
    return library ? library : open_below(root, soname, why, capacity);
}

void *wi_library_open(const char *root, const char *soname, const wi_function *functions, size_t count, void *record,
                      wi_found *out)
{
    char why[300];
    const char *lacking = NULL;
    void *library = hardware_source_find_library(root, soname, why, sizeof why);
    if (!library) {
        wi_found_remark(out, "%s", why);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(library, functions[i].name);
        memcpy((char *)record + functions[i].at, &symbol, sizeof symbol);
        if (!symbol && functions[i].needed)
            lacking = functions[i].name;
    }
    if (!lacking)
        return library;
    wi_found_remark(out, "%s has no %s: install a newer driver", soname, lacking);
    dlclose(library);
    return NULL;
}
