/* Who leaves what on the host: the tool of tests/onnx/left, where it is preloaded, and what each session has of CUDA's libraries,
 * made and ended without a session. */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

void looked_mark(void)
{
    void (*mark)(void) = NULL;
    *(void **)&mark = dlsym(RTLD_DEFAULT, "left_mark");
    if (mark)
        mark();
}

double looked_report(unsigned long rounds)
{
    double (*report)(unsigned long) = NULL;
    *(void **)&report = dlsym(RTLD_DEFAULT, "left_report");
    return report ? report(rounds) : -1;
}

typedef int (*make_function)(void **out);
typedef int (*end_function)(void *object);

/* An object of one of the libraries. */
static const struct thing {
    const char *kind, *library, *make, *end;
} things[] = {{"stream", "libcudart.so.13", "cudaStreamCreate", "cudaStreamDestroy"},
              {"event", "libcudart.so.13", "cudaEventCreate", "cudaEventDestroy"},
              {"cublas", "libcublas.so.13", "cublasCreate_v2", "cublasDestroy_v2"},
              {"cublaslt", "libcublasLt.so.13", "cublasLtCreate", "cublasLtDestroy"},
              {"cudnn", "libcudnn.so.9", "cudnnCreate", "cudnnDestroy"}};

typedef struct maker {
    make_function make;
    end_function end;
} maker;

static maker find(const char *kind)
{
    maker m = {NULL, NULL};
    for (size_t i = 0; i < sizeof things / sizeof *things; i++) {
        if (strcmp(things[i].kind, kind) != 0)
            continue;
        void *library = dlopen(things[i].library, RTLD_NOW);
        check(library, things[i].library);
        *(void **)&m.make = dlsym(library, things[i].make);
        *(void **)&m.end = dlsym(library, things[i].end);
        check(m.make && m.end, things[i].make);
    }
    check(m.make, "stream, event, cublas, cublaslt or cudnn");
    return m;
}

static void *make_one(void *user)
{
    const maker *m = user;
    void *object = NULL;
    check(m->make(&object) == 0, "it cannot be made");
    check(m->end(object) == 0, "it cannot be ended");
    return NULL;
}

/* handles KIND COUNT [thread]: what an object of this kind, made and ended, leaves each time; in a thread of its own each. */
int part_handles(const bed *b, int argc, char **argv)
{
    check(argc >= 2, "handles KIND COUNT [thread]");
    maker m = find(argv[0]);
    unsigned long count = strtoul(argv[1], NULL, 10), old = count / 3;
    int64_t then = 0;
    check(old > 0, "at least three");
    taken(b); /* where CUDA's own are on the device that weir's is on */
    for (unsigned long i = 0; i < count; i++) {
        pthread_t thread;
        if (argc == 2)
            make_one(&m);
        else
            check(pthread_create(&thread, NULL, make_one, &m) == 0 && pthread_join(thread, NULL) == 0, "no thread");
        if (i == old - 1) {
            looked_mark();
            then = (int64_t)mallinfo2().uordblks;
        }
    }
    double grown = (double)((int64_t)mallinfo2().uordblks - then) / (double)(count - old);
    printf("{\"part\": \"handles\", \"kind\": \"%s\", \"thread\": %s, \"heap_growth\": %.0f, \"left\": %.0f}\n",
           argv[0], argc > 2 ? "true" : "false", grown, looked_report(count - old));
    return 0;
}
