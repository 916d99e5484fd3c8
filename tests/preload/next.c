/* Two libraries with a function of one name: the first finds the second's by RTLD_NEXT. */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

__attribute__((visibility("default"))) int value(void);
int value(void)
{
#ifdef FIRST
    void *next = dlsym(RTLD_NEXT, "value");
    int (*function)(void);
    memcpy(&function, &next, sizeof next);
    return next ? 1 + function() : -1;
#else
    return 20;
#endif
}

#ifndef FIRST
/* A name of CUDA's that is another library's. */
__attribute__((visibility("default"))) int cuMemFreeHost(const void *address);
int cuMemFreeHost(const void *address)
{
    return address ? 30 : 31;
}
#endif
