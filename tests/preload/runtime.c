/* A program over CUDA's runtime library: cudaMalloc comes to the driver, and so to weir, as does what the program has of the
 * driver by cudaGetDriverEntryPoint. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaMemset(void *pointer, int value, size_t bytes);
int cudaMemGetInfo(size_t *available, size_t *total);
int cudaMallocHost(void **pointer, size_t bytes);
int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *how);
int cudaGetDriverEntryPoint_ptsz(const char *name, void **function, unsigned long long flags, int *how);
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                     int *how);

enum { MIB = 1 << 20 };

/* The name that the library of a function has for it, where that is weir's; "" elsewhere. */
static const char *weirs_name_of(const void *function)
{
    Dl_info its;
    if (!function || !dladdr(function, &its) || !strstr(its.dli_fname, "libweir-preload.so"))
        return "";
    return its.dli_sname ? its.dli_sname : "";
}

/* Memory by the driver's functions, as the runtime names them, counts with that by its own. */
static int check_entry_points(void)
{
    int (*allocate)(unsigned long long *, size_t), (*release)(unsigned long long);
    void *function, *same;
    unsigned long long block;
    size_t before, after, total;
    int how;
    if (cudaGetDriverEntryPoint("cuMemAlloc", &function, 0, &how) || how ||
        strcmp(weirs_name_of(function), "cuMemAlloc_v2") != 0)
        return 10;
    memcpy(&allocate, &function, sizeof allocate);
    if (cudaGetDriverEntryPointByVersion("cuMemFree", &function, 12080, 0, NULL) ||
        strcmp(weirs_name_of(function), "cuMemFree_v2") != 0)
        return 11;
    memcpy(&release, &function, sizeof release);
    if (cudaMemGetInfo(&before, &total) || allocate(&block, 4 * MIB) || cudaMemGetInfo(&after, &total) ||
        before - after != 4 * MIB || release(block))
        return 12;
    if (cudaGetDriverEntryPoint_ptsz("cuMemAllocAsync", &function, 0, &how) ||
        strcmp(weirs_name_of(function), "cuMemAllocAsync_ptsz") != 0 ||
        cudaGetDriverEntryPoint("cuMemAllocAsync", &function, 0, &how) ||
        strcmp(weirs_name_of(function), "cuMemAllocAsync") != 0)
        return 13;
    if (cudaGetDriverEntryPointByVersion("cuMemAllocAsync", &function, 11010, 0, &how) || function || how != 1)
        return 14; /* the stub knows no other way to say it */
    if (cudaGetDriverEntryPoint("cuLaunchHostFunc", &function, 0, &how) || !function || *weirs_name_of(function) ||
        cudaGetDriverEntryPointByVersion("cuLaunchHostFunc", &same, 12000, 0, &how) || function != same)
        return 15;
    return cudaGetDriverEntryPoint("cuNoSuchFunction", &function, 0, &how) || function || how != 1 ? 16 : 0;
}

int main(void)
{
    void *a, *b;
    size_t available, total;
    if (cudaMalloc(&a, 40 * MIB) || cudaMemset(a, 7, 40 * MIB) || cudaMemGetInfo(&available, &total))
        return 1;
    if (((const char *)a)[5] != 7 || available != 24 * MIB || total != 64 * MIB)
        return 2;
    int wrong = check_entry_points();
    if (wrong)
        return wrong;
    if (cudaMalloc(&b, 25 * MIB) != 2 || cudaMalloc(&b, 24 * MIB) != 0 || cudaMallocHost(&a, MIB) != 0)
        return 3;
    puts("over the runtime");
    return 0;
}
