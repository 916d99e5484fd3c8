#include "cuda_find.h"

#include <dlfcn.h>
#include <string.h>

bool cuda_find(const cuda_wanted *wanted, size_t count)
{
    enum { VERSION = 12000 };
    int (*find)(const char *, void **, int, unsigned long long, int *) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    memcpy(&find, &symbol, sizeof symbol);
    for (size_t i = 0; i < count; i++) {
        if (!find || find(wanted[i].name, &symbol, VERSION, 0, NULL) != 0 || !symbol)
            return false;
        memcpy(wanted[i].to, &symbol, sizeof symbol);
    }
    return true;
}
