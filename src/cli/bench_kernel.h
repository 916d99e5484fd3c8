/* bench_kernel.h: a steady kernel on a GPU: it reads the same memory again and again, so that its time tells whether anything
 * else held it up. */
#ifndef WEIR_CLI_BENCH_KERNEL_H
#define WEIR_CLI_BENCH_KERNEL_H

#include <weir/weir.h>

typedef struct bench_kernel bench_kernel;

/* It will read [memory, +bytes), which has to stay, on that stream, and run for about so many milliseconds. From here to
 * the end on one thread. WEIR_ERR_UNSUPPORTED: the runtime has no GPU, or its driver lacks something. */
weir_status bench_kernel_open(weir_runtime *runtime, weir_stream stream, void *memory, size_t bytes,
                              double milliseconds, bench_kernel **out);
weir_status bench_kernel_start(bench_kernel *kernel);
bool bench_kernel_runs(const bench_kernel *kernel);
/* Waits for the end; what it took, by events before and behind it. */
weir_status bench_kernel_finish(bench_kernel *kernel, double *milliseconds);
void bench_kernel_close(bench_kernel *kernel);

#endif
