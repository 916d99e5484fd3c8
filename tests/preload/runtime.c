/* A program over CUDA's runtime library: cudaMalloc comes to the driver, and so to weir. */
#include <stddef.h>
#include <stdio.h>

int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaMemset(void *pointer, int value, size_t bytes);
int cudaMemGetInfo(size_t *available, size_t *total);
int cudaMallocHost(void **pointer, size_t bytes);

int main(void)
{
    enum { MIB = 1 << 20 };
    void *a, *b;
    size_t available, total;
    if (cudaMalloc(&a, 40 * MIB) || cudaMemset(a, 7, 40 * MIB) || cudaMemGetInfo(&available, &total))
        return 1;
    if (((const char *)a)[5] != 7 || available != 24 * MIB || total != 64 * MIB)
        return 2;
    if (cudaMalloc(&b, 25 * MIB) != 2 || cudaMalloc(&b, 24 * MIB) != 0 || cudaMallocHost(&a, MIB) != 0)
        return 3;
    puts("over the runtime");
    return 0;
}
