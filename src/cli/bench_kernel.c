/* bench_kernel.c: no compiler for GPUs is needed: the driver makes the kernel out of its text. */
#include "bench_kernel.h"
#include "cuda_find.h"

#include <stdlib.h>

typedef int result;

/* Each thread reads 16 bytes out of every stride of the grid, over all of the memory, `rounds` times. What it has summed up
 * is written so that it is needed. */
static const char text[] = ".version 7.0\n"
                           ".target sm_52\n"
                           ".address_size 64\n"
                           ".visible .entry steady(.param .u64 memory, .param .u64 bytes, .param .u32 rounds)\n"
                           "{\n"
                           "    .reg .pred %p<2>;\n"
                           "    .reg .b32 %r<11>;\n"
                           "    .reg .b64 %d<6>;\n"
                           "    ld.param.u64 %d0, [memory];\n"
                           "    cvta.to.global.u64 %d0, %d0;\n"
                           "    ld.param.u64 %d1, [bytes];\n"
                           "    ld.param.u32 %r0, [rounds];\n"
                           "    mov.u32 %r1, %ctaid.x;\n"
                           "    mov.u32 %r2, %ntid.x;\n"
                           "    mov.u32 %r3, %tid.x;\n"
                           "    mad.lo.u32 %r1, %r1, %r2, %r3;\n"
                           "    mov.u32 %r4, %nctaid.x;\n"
                           "    mul.lo.u32 %r4, %r4, %r2;\n"
                           "    mul.wide.u32 %d2, %r1, 16;\n"
                           "    mul.wide.u32 %d3, %r4, 16;\n"
                           "    mov.u32 %r5, 0;\n"
                           "ROUND:\n"
                           "    mov.u64 %d4, %d2;\n"
                           "PIECE:\n"
                           "    setp.ge.u64 %p0, %d4, %d1;\n"
                           "    @%p0 bra NEXT;\n"
                           "    add.u64 %d5, %d0, %d4;\n"
                           "    ld.volatile.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d5];\n"
                           "    add.u32 %r6, %r6, %r7;\n"
                           "    add.u32 %r8, %r8, %r9;\n"
                           "    add.u32 %r6, %r6, %r8;\n"
                           "    add.u32 %r5, %r5, %r6;\n"
                           "    add.u64 %d4, %d4, %d3;\n"
                           "    bra PIECE;\n"
                           "NEXT:\n"
                           "    sub.u32 %r0, %r0, 1;\n"
                           "    setp.ne.u32 %p1, %r0, 0;\n"
                           "    @%p1 bra ROUND;\n"
                           "    add.u64 %d5, %d0, %d2;\n"
                           "    st.global.u32 [%d5], %r5;\n"
                           "    ret;\n"
                           "}\n";

enum { BLOCKS = 1024, THREADS = 256, LEAST_BYTES = BLOCKS * THREADS * 16 };

static struct {
    result (*push)(void *);
    result (*pop)(void **);
    result (*load)(void **, const void *);
    result (*unload)(void *);
    result (*function)(void **, void *, const char *);
    result (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                     void **);
    result (*event_create)(void **, unsigned);
    result (*event_destroy)(void *);
    result (*event_record)(void *, void *);
    result (*event_query)(void *);
    result (*event_synchronize)(void *);
    result (*event_elapsed)(float *, void *, void *);
} cuda;

struct bench_kernel {
    void *module, *function, *stream, *events[2];
    unsigned long long memory, bytes;
    unsigned rounds;
};

static weir_status worked(result code, const char *what)
{
    return code == 0 ? WEIR_OK : weir_fail(WEIR_ERR_DRIVER, "%s: error %d", what, code);
}

static bool find(void)
{
    const cuda_wanted wanted[] = {{"cuCtxPushCurrent", &cuda.push},
                                  {"cuCtxPopCurrent", &cuda.pop},
                                  {"cuModuleLoadData", &cuda.load},
                                  {"cuModuleUnload", &cuda.unload},
                                  {"cuModuleGetFunction", &cuda.function},
                                  {"cuLaunchKernel", &cuda.launch},
                                  {"cuEventCreate", &cuda.event_create},
                                  {"cuEventDestroy", &cuda.event_destroy},
                                  {"cuEventRecord", &cuda.event_record},
                                  {"cuEventQuery", &cuda.event_query},
                                  {"cuEventSynchronize", &cuda.event_synchronize},
                                  {"cuEventElapsedTime", &cuda.event_elapsed}};
    return cuda_find(wanted, sizeof wanted / sizeof wanted[0]);
}

weir_status bench_kernel_start(bench_kernel *kernel)
{
    void *parameters[] = {&kernel->memory, &kernel->bytes, &kernel->rounds};
    weir_status status = worked(cuda.event_record(kernel->events[0], kernel->stream), "cuEventRecord");
    if (status == WEIR_OK)
        status = worked(cuda.launch(kernel->function, BLOCKS, 1, 1, THREADS, 1, 1, 0, kernel->stream, parameters, NULL),
                        "cuLaunchKernel");
    return status == WEIR_OK ? worked(cuda.event_record(kernel->events[1], kernel->stream), "cuEventRecord") : status;
}

bool bench_kernel_runs(const bench_kernel *kernel)
{
    enum { NOT_READY = 600 };
    return cuda.event_query(kernel->events[1]) == NOT_READY;
}

weir_status bench_kernel_finish(bench_kernel *kernel, double *milliseconds)
{
    float took = 0;
    weir_status status = worked(cuda.event_synchronize(kernel->events[1]), "cuEventSynchronize");
    if (status == WEIR_OK)
        status = worked(cuda.event_elapsed(&took, kernel->events[0], kernel->events[1]), "cuEventElapsedTime");
    *milliseconds = (double)took;
    return status;
}

/* As many rounds as take so long, by two that do not count. */
static weir_status calibrate(bench_kernel *kernel, double milliseconds)
{
    enum { TRIED = 32, MOST = 1000000 };
    double took = 0;
    weir_status status = WEIR_OK;
    kernel->rounds = TRIED;
    for (int i = 0; i < 2 && status == WEIR_OK; i++) {
        status = bench_kernel_start(kernel);
        if (status == WEIR_OK)
            status = bench_kernel_finish(kernel, &took);
    }
    double rounds = took > 0 ? TRIED * milliseconds / took : 1;
    kernel->rounds = rounds < 1 ? 1 : rounds > MOST ? MOST : (unsigned)rounds;
    return status;
}

static weir_status prepare(bench_kernel *kernel)
{
    weir_status status = worked(cuda.load(&kernel->module, text), "cuModuleLoadData");
    if (status == WEIR_OK)
        status = worked(cuda.function(&kernel->function, kernel->module, "steady"), "cuModuleGetFunction");
    for (int i = 0; i < 2 && status == WEIR_OK; i++)
        status = worked(cuda.event_create(&kernel->events[i], 0), "cuEventCreate");
    return status;
}

weir_status bench_kernel_open(weir_runtime *runtime, weir_stream stream, void *memory, size_t bytes,
                              double milliseconds, bench_kernel **out)
{
    *out = NULL;
    if (!find() || cuda.push(weir_runtime_native(runtime)) != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "a kernel wants a GPU whose driver has modules and events");
    bench_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel || bytes < LEAST_BYTES) {
        void *ignored;
        (void)cuda.pop(&ignored);
        free(kernel);
        return weir_fail(WEIR_ERR_INVALID, "a kernel wants memory of the host's, and %d bytes to read", LEAST_BYTES);
    }
    kernel->stream = weir_stream_native(stream);
    kernel->memory = (uintptr_t)memory;
    kernel->bytes = bytes / 16 * 16;
    weir_status status = prepare(kernel);
    if (status == WEIR_OK)
        status = calibrate(kernel, milliseconds);
    *out = kernel;
    if (status == WEIR_OK)
        return WEIR_OK;
    bench_kernel_close(kernel);
    *out = NULL;
    return status;
}

void bench_kernel_close(bench_kernel *kernel)
{
    void *ignored;
    for (int i = 0; i < 2; i++)
        if (kernel->events[i])
            (void)cuda.event_destroy(kernel->events[i]);
    if (kernel->module)
        (void)cuda.unload(kernel->module);
    (void)cuda.pop(&ignored);
    free(kernel);
}
