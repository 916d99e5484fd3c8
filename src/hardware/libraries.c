/* Vendors' libraries, opened at run time. */
#include "hardware/source.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>

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

/* The first of the directories that has the file and from which it can be opened. Where none has it `why` stays as it is. */
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

void *wi_library_open(const char *root, const char *soname, char *why, size_t capacity)
{
    snprintf(why, capacity, "%s is not here", soname);
    void *library = *root ? NULL : dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    const char *words = *root || library ? NULL : dlerror();
    /* They begin with this name where the search found no such file, else with the path of the one that it found, or with the
     * name of another library that this one needs. */
    if (words && strncmp(words, soname, strlen(soname)) != 0)
        snprintf(why, capacity, "%s", words);
    return library ? library : open_below(root, soname, why, capacity);
}

bool wi_library_function(void *library, const char *name, void *pointer)
{
    void *symbol = dlsym(library, name);
    memcpy(pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

void wi_library_close(void *library)
{
    dlclose(library);
}
