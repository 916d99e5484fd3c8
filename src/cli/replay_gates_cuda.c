/* replay_gates_cuda.c: gates on a GPU: its streams wait for a word of pinned memory (cuStreamWaitValue32), which takes no
 * kernel. The functions come from libcuda.so.1 at run time; names and types are cuda.h's (CUDA 13.0). */
#include "cuda_find.h"
#include "replay_gates.h"

#include <stdlib.h>
#include <string.h>

typedef int result;
typedef unsigned long long address;

typedef struct cuda_gates {
    void *word; /* the host's address of it is the GPU's too: all addresses are unified here */
    result (*push)(void *);
    result (*pop)(void **);
    result (*allocate)(void **, size_t, unsigned);
    result (*release)(void *);
    result (*wait)(void *, address, uint32_t, unsigned);
} cuda_gates;

static bool load(cuda_gates *c)
{
    const cuda_wanted wanted[] = {{"cuCtxPushCurrent", &c->push},
                                  {"cuCtxPopCurrent", &c->pop},
                                  {"cuMemHostAlloc", &c->allocate},
                                  {"cuMemFreeHost", &c->release},
                                  {"cuStreamWaitValue32", &c->wait}};
    return cuda_find(wanted, sizeof wanted / sizeof wanted[0]);
}

/* The context stays this thread's until the gates end: all of a replay is one thread's. */
static weir_status put(gates *g, uint16_t stream, uint32_t number)
{
    enum { WAIT_VALUE_GEQ = 0 };
    const cuda_gates *c = g->device;
    result code = c->wait(weir_stream_native(g->streams[stream]), (uintptr_t)c->word, number, WAIT_VALUE_GEQ);
    return code == 0 ? WEIR_OK : weir_fail(WEIR_ERR_DRIVER, "cuStreamWaitValue32: error %d", code);
}

weir_status gates_cuda_begin(gates *g)
{
    enum { PORTABLE = 1 };
    cuda_gates *c = calloc(1, sizeof *c);
    g->device = c;
    if (!c)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for gates");
    bool here = load(c), pushed = here && c->push(weir_runtime_native(g->runtime)) == 0;
    if (pushed && c->allocate(&c->word, sizeof *g->word, PORTABLE) == 0) {
        memset(c->word, 0, sizeof *g->word);
        g->word = c->word;
        g->put = put;
        return WEIR_OK;
    }
    void *ignored;
    if (pushed)
        (void)c->pop(&ignored);
    free(c);
    g->device = NULL;
    return weir_fail(WEIR_ERR_UNSUPPORTED,
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
