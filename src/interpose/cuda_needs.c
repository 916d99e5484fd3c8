/* Which libraries of CUDA are missing. */
#include "interpose/cuda_needs.h"

#include <dlfcn.h>
#include <stddef.h>

static const char *first_missing(const char *const *names)
{
    while (*names && dlopen(*names, RTLD_LAZY | RTLD_LOCAL))
        names++;
    return *names;
}

const char *wi_cuda_missing(const char *const *more)
{
    static const char *const always[] = {"libcuda.so.1", "libcudart.so.13", "libcublas.so.13", NULL};
    const char *missing = first_missing(always);
    return missing || !more ? missing : first_missing(more);
}
