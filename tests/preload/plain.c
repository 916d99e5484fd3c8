/* A program without CUDA, for which nothing may be different: what dlsym finds for it, one thread, no library of CUDA's.
 * Status 5, and a word on standard output; with an argument it ends by that signal. */
#include <dlfcn.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int value(void);

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            return 99;                                                                                                 \
        }                                                                                                              \
    } while (0)

static int count_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    for (const struct dirent *it; folder && (it = readdir(folder));)
        count += it->d_name[0] != '.';
    return count;
}

int main(int argc, char **argv)
{
    EXPECT(value() == 21); /* the first library's adds to that of the next one, which it finds by RTLD_NEXT */
    EXPECT(dlsym(RTLD_DEFAULT, "puts") && dlsym(RTLD_NEXT, "puts") && !dlsym(RTLD_NEXT, "main"));
    int (*not_cudas)(const void *);
    void *found = dlsym(RTLD_DEFAULT, "cuMemFreeHost");
    EXPECT(found);
    memcpy(&not_cudas, &found, sizeof found);
    EXPECT(not_cudas(NULL) == 31 && not_cudas(argv) == 30);
    (void)dlerror();
    EXPECT(!dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") && dlerror());
    EXPECT(!dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo") && !dlsym(RTLD_DEFAULT, "cuda_no_such_thing"));
    EXPECT(!dlsym(dlopen(NULL, RTLD_NOW), "cuGetProcAddress_v2"));
    EXPECT(!dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) && count_threads() == 1);
    if (argc > 1)
        raise(atoi(argv[1]));
    puts("as ever");
    return 5;
}
