/* nvrtc.h: kernels for a GPU, compiled at run time by NVRTC and launched through CUDA's driver. Both libraries are opened when
 * they are wanted, so that the examples build and run without. */
#ifndef EXAMPLE_NVRTC_H
#define EXAMPLE_NVRTC_H

#include <weir/weir.h>

/* The names of libraries, the first of which that is here is opened; NULL at the end. */
void *nvrtc_library(const char *const *names);
/* Finds the functions of the libraries: those of CUDA's driver, of NVRTC, and of a third one that the caller brings (or
 * NULL). WEIR_ERR_NOT_FOUND names what is not here. */
typedef struct nvrtc_symbol {
    void *library;
    const char *name;
    void *to; /* where the function's address goes */
} nvrtc_symbol;
weir_status nvrtc_find(const nvrtc_symbol *symbols, size_t count, const char *wanted);

/* Opens both, and makes the device's primary context this thread's. */
weir_status nvrtc_open(int device);
/* Compiles a text for the device, and finds a kernel of it. */
weir_status nvrtc_compile(int device, const char *text, const char *name, void **kernel);
/* `count` threads that take the structure at `argument`. */
weir_status nvrtc_launch(void *kernel, uint64_t count, void *argument, weir_stream stream);

/* What a call of CUDA's answered, as a status. */
weir_status nvrtc_worked(int result, const char *call);

#endif
