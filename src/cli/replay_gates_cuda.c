/* replay_gates_cuda.c: gates on a GPU: its streams wait for a word of pinned memory (cuStreamWaitValue32), which takes no
 * kernel. The functions come from libcuda.so.1 at run time; names and types are cuda.h's (CUDA 13.0). */
#include "replay_gates.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef int result;
typedef unsigned long long address;

typedef struct cuda_gates {
    void *library, *word;
    address at; /* of the word, as the GPU has it */
    result (*push)(void *);
    result (*pop)(void **);
    result (*allocate)(void **, size_t, unsigned);
    result (*release)(void *);
    result (*pointer)(address *, void *, unsigned);
    result (*wait)(void *, address, uint32_t, unsigned);
} cuda_gates;

static bool find(const cuda_gates *c, const char *name, void *function)
{
    void *symbol = dlsym(c->library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool load(cuda_gates *c)
{
    c->library = dlopen("libcuda.so.1", RTLD_NOW);
    return c->library && find(c, "cuCtxPushCurrent_v2", &c->push) && find(c, "cuCtxPopCurrent_v2", &c->pop) &&
           find(c, "cuMemHostAlloc", &c->allocate) && find(c, "cuMemFreeHost", &c->release) &&
           find(c, "cuMemHostGetDevicePointer_v2", &c->pointer) && find(c, "cuStreamWaitValue32_v2", &c->wait);
}

/* The context stays this thread's until the gates end: all of a replay is one thread's. */
static weir_status put(gates *g, uint16_t stream, uint32_t number)
{
    enum { WAIT_VALUE_GEQ = 0 };
    const cuda_gates *c = g->device;
    result code = c->wait(weir_stream_native(g->streams[stream]), c->at, number, WAIT_VALUE_GEQ);
    return code == 0 ? WEIR_OK : weir_fail(WEIR_DRIVER, "cuStreamWaitValue32: error %d", code);
}

weir_status gates_cuda_begin(gates *g)
{
    enum { HOST_DEVICEMAP = 2 };
    cuda_gates *c = calloc(1, sizeof *c);
    g->device = c;
    if (!c)
        return weir_fail(WEIR_SYSTEM, "no memory for gates");
    bool here = load(c), pushed = here && c->push(weir_runtime_native(g->runtime)) == 0;
    bool made = pushed && c->allocate(&c->word, sizeof *g->word, HOST_DEVICEMAP) == 0;
    if (made && c->pointer(&c->at, c->word, 0) == 0) {
        memset(c->word, 0, sizeof *g->word);
        g->word = c->word;
        g->put = put;
        return WEIR_OK;
    }
    if (made)
        (void)c->release(c->word);
    void *ignored;
    if (pushed)
        (void)c->pop(&ignored);
    free(c);
    g->device = NULL;
    return weir_fail(WEIR_UNSUPPORTED,
                     here ? "a GPU's streams trail the host over a word of pinned memory, which cannot be had"
                          : "a GPU's streams trail the host by cuStreamWaitValue32, which libcuda.so.1 does not have");
}

void gates_cuda_end(gates *g)
{
    cuda_gates *c = g->device;
    void *ignored;
    if (!c)
        return;
    (void)c->release(c->word);
    (void)c->pop(&ignored);
    free(c);
    g->device = NULL;
}
