/* See cuda_standin.h. As the real module it asks CUDA for memory by cudaMalloc, because it is told that there is no
 * virtual-memory management; what it would do instead ends the test. */
#include "cuda_standin.h"

#include <stdlib.h>
#include <string.h>

/* dim3 */
typedef struct extent {
    unsigned x, y, z;
} extent;

int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *pointer);
int cudaMallocHost(void **out, size_t bytes);
int cudaFreeHost(void *pointer);
int cudaMemGetInfo(size_t *available, size_t *total);
int cudaGetLastError(void);
int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream);
int cudaStreamCreateWithFlags(void **out, unsigned flags);
int cudaStreamDestroy(void *stream);
int cudaStreamSynchronize(void *stream);
int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);
int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags);
int cudaGraphLaunch(void *executable, void *stream);
int cudaGraphExecDestroy(void *executable);
int cudaGraphDestroy(void *graph);
int cudaLaunchKernel(const void *function, extent grid, extent block, void **arguments, size_t shared, void *stream);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuMemCreate(void *handle, size_t bytes, const void *properties, unsigned long long flags);

enum { MOST = 4096, NON_BLOCKING = 1, RELAXED = 2, VIRTUAL_MEMORY = 102, UNKNOWN = 999 };

static struct {
    void *at;
    int pinned;
} blocks[MOST];
static void *streams[MOST], *graph, *executable;

static int drop_graph(void)
{
    int result = executable ? cudaGraphExecDestroy(executable) : 0;
    if (graph && result == 0)
        result = cudaGraphDestroy(graph);
    executable = graph = NULL;
    return result;
}

static int end_capture(void *stream)
{
    int result = drop_graph();
    if (result == 0)
        result = cudaStreamEndCapture(stream, &graph);
    return result ? result : cudaGraphInstantiate(&executable, graph, 0);
}

static int give_back(size_t number)
{
    void *at = blocks[number].at;
    blocks[number].at = NULL;
    return blocks[number].pinned ? cudaFreeHost(at) : cudaFree(at);
}

static int take(const standin_line *line, int pinned)
{
    int result = pinned ? cudaMallocHost(&blocks[line->number].at, line->bytes)
                        : cudaMalloc(&blocks[line->number].at, line->bytes);
    blocks[line->number].pinned = pinned;
    if (result) {
        blocks[line->number].at = NULL;
        (void)cudaGetLastError();
    }
    return result;
}

static int destroy(size_t number)
{
    void *stream = streams[number];
    streams[number] = NULL;
    return stream ? cudaStreamDestroy(stream) : 0;
}

static int look(void)
{
    size_t available, total;
    return cudaMemGetInfo(&available, &total);
}

/* What the host reads of an answer is nothing here. */
static int write_block(const standin_line *line)
{
    void *at = blocks[line->number].pinned ? NULL : blocks[line->number].at;
    return at ? cudaMemsetAsync(at, 0x5a, line->bytes, streams[line->stream]) : 0;
}

static int once(const standin_line *line)
{
    static const extent one = {1, 1, 1};
    const char *what = line->what;
    void *stream = streams[line->stream];
#define IS(name, call)                                                                                                 \
    if (strcmp(what, name) == 0)                                                                                       \
        return call;
    IS("malloc", take(line, 0))
    IS("malloc-kv", take(line, 0))
    IS("malloc-host", take(line, 1))
    IS("free", give_back(line->number))
    IS("free-host", give_back(line->number))
    IS("ask", look())
    IS("write", write_block(line))
    IS("stream", cudaStreamCreateWithFlags(&streams[line->stream], NON_BLOCKING))
    IS("destroy", destroy(line->stream))
    IS("wait", cudaStreamSynchronize(stream))
    IS("capture", cudaStreamBeginCapture(stream, RELAXED))
    IS("end-capture", end_capture(stream))
    IS("launch-graph", cudaGraphLaunch(executable, stream))
    IS("kernel", cudaLaunchKernel((const void *)what, one, one, NULL, 0, stream))
    return UNKNOWN;
}

#define API                 __attribute__((visibility("default")))
#define X(name, parameters) API int name parameters;
STANDIN_FUNCTIONS(X)
#undef X

int standin_call(const standin_line *line)
{
    int result = 0, managed = 0;
    if (line->number >= MOST || line->stream >= MOST)
        return UNKNOWN;
    if (cuDeviceGetAttribute(&managed, VIRTUAL_MEMORY, 0) != 0 || managed) {
        (void)cuMemCreate(NULL, 0, NULL, 0);
        abort();
    }
    for (unsigned i = 0; i < line->times && result == 0; i++)
        result = once(line);
    return result;
}

int standin_free_memory(size_t *available, size_t *total)
{
    return cudaMemGetInfo(available, total);
}

int standin_end(void)
{
    int result = drop_graph();
    for (size_t i = MOST; i > 0; i--) {
        if (blocks[i - 1].at && result == 0)
            result = give_back(i - 1);
        if (result == 0)
            result = destroy(i - 1);
    }
    return result;
}
