/* torch_seam.c: PyTorch's pluggable allocator over weir, for bench/torch_programs.py. PyTorch itself calls the first
 * two of the functions (torch.cuda.memory.CUDAPluggableAllocator), the program the others. It needs weir's public
 * headers and none of CUDA's. A device has the process's runtime and one client, "torch"; all blocks are activations,
 * as PyTorch does not say what it wants memory for. */
#include <weir/weir.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

typedef struct CUstream_st *cuda_stream; /* cudaStream_t */

enum { DEVICES = 64, STREAMS = 256, STATISTICS_BYTES = 1024 };

/* A stream as PyTorch and as weir call it, and the client that allocates on it. */
typedef struct stream_place {
    int device;
    cuda_stream native;
    weir_client *client;
    weir_stream stream;
} stream_place;

static struct {
    pthread_mutex_t lock;
    weir_client *clients[DEVICES];
    stream_place places[STREAMS]; /* PyTorch never destroys a stream of its pool: they stay registered */
    size_t count;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int status_of_refusal; /* 0: the process goes on */

static void report(const char *what)
{
    fprintf(stderr, "torch_seam: %s: %s\n", what, weir_detail());
}

/* With the lock held; NULL: it failed. */
static weir_client *client_of(int device)
{
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_runtime *runtime = NULL;
    char name[32];
    options.name = "torch";
    if (device < 0 || device >= DEVICES) {
        fprintf(stderr, "torch_seam: device %d: ordinals go from 0 to %d\n", device, DEVICES - 1);
        return NULL;
    }
    snprintf(name, sizeof name, "cuda:%d", device);
    if (!known.clients[device] && (weir_runtime_get(name, NULL, &runtime) != WEIR_OK ||
                                   weir_client_create(runtime, &options, &known.clients[device]) != WEIR_OK))
        report(name);
    return known.clients[device];
}

/* NULL: the client is none, of which the calls that get it say so. */
static weir_runtime *runtime_of(weir_client *client)
{
    weir_client_stats account = WEIR_INIT(weir_client_stats);
    return weir_client_info(client, &account) == WEIR_OK ? account.runtime : NULL;
}

/* PyTorch's own stream is NULL unless the program has chosen another: CUDA's legacy stream. */
static weir_status register_stream(weir_client *client, cuda_stream native, weir_stream *out)
{
    weir_runtime *runtime = runtime_of(client);
    return native ? weir_stream_register(runtime, native, out)
                  : weir_stream_default(runtime, WEIR_DEFAULT_STREAM_LEGACY, out);
}

/* With the lock held; NULL: it failed. */
static const stream_place *place_of(int device, cuda_stream native)
{
    for (size_t i = 0; i < known.count; i++)
        if (known.places[i].device == device && known.places[i].native == native)
            return &known.places[i];
    stream_place *place = &known.places[known.count];
    if (known.count == STREAMS) {
        fprintf(stderr, "torch_seam: more than %d streams\n", STREAMS);
        return NULL;
    }
    *place = (stream_place){.device = device, .native = native, .client = client_of(device)};
    if (!place->client)
        return NULL;
    if (register_stream(place->client, native, &place->stream) != WEIR_OK) {
        report("a stream");
        return NULL;
    }
    known.count++;
    return place;
}

/* Without the lock where a thread stays on one stream. */
static const stream_place *find_place(int device, cuda_stream native)
{
    static _Thread_local const stream_place *last;
    if (last && last->device == device && last->native == native)
        return last;
    pthread_mutex_lock(&known.lock);
    const stream_place *found = place_of(device, native);
    pthread_mutex_unlock(&known.lock);
    last = found ? found : last;
    return found;
}

WEIR_API void *torch_seam_alloc(size_t bytes, int device, cuda_stream stream);
WEIR_API void torch_seam_free(void *pointer, size_t bytes, int device, cuda_stream stream);
WEIR_API void torch_seam_end_when_refused(int status);
WEIR_API const char *torch_seam_statistics(int device);

void *torch_seam_alloc(size_t bytes, int device, cuda_stream stream)
{
    const stream_place *place = find_place(device, stream);
    void *pointer = NULL;
    weir_status status =
        place ? weir_alloc(place->client, bytes, place->stream, WEIR_CLASS_ACTIVATIONS, &pointer) : WEIR_ERR_INVALID;
    if (place && status != WEIR_OK)
        report("an allocation");
    if (status != WEIR_OK && status_of_refusal)
        _exit(status_of_refusal);
    return pointer;
}

/* On the stream on which the block was allocated: PyTorch knows no other here. */
void torch_seam_free(void *pointer, size_t bytes, int device, cuda_stream stream)
{
    (void)bytes;
    const stream_place *place = pointer ? find_place(device, stream) : NULL;
    if (place && weir_free(place->client, pointer, place->stream) != WEIR_OK)
        report("a free");
}

/* From now on an allocation that fails ends the process with that status; 0: it does not. PyTorch does not check for
 * NULL, and its kernels would write to address 0. Call it before other threads allocate. */
void torch_seam_end_when_refused(int status)
{
    status_of_refusal = status;
}

/* A JSON object, valid until the thread's next call; NULL: PyTorch has allocated nothing on the device. Bytes. */
const char *torch_seam_statistics(int device)
{
    static _Thread_local char text[STATISTICS_BYTES];
    weir_stats now = WEIR_INIT(weir_stats);
    weir_memory_stats memory = WEIR_INIT(weir_memory_stats);
    pthread_mutex_lock(&known.lock);
    weir_client *client = device >= 0 && device < DEVICES ? known.clients[device] : NULL;
    pthread_mutex_unlock(&known.lock);
    if (!client)
        return NULL;
    weir_runtime *runtime = runtime_of(client);
    if (weir_snapshot(runtime, &now, NULL, 0, NULL) != WEIR_OK || weir_memory_stats_info(runtime, &memory) != WEIR_OK) {
        report("statistics");
        return NULL;
    }
    snprintf(text, sizeof text,
             "{\"budget\": %" PRIu64 ", \"live\": %" PRIu64 ", \"held\": %" PRIu64 ", \"peak_requested\": %" PRIu64
             ", \"peak_live\": %" PRIu64 ", \"peak_held\": %" PRIu64 ", \"allocations\": %" PRIu64
             ", \"frees\": %" PRIu64 ", \"refusals\": %" PRIu64 ", \"hits\": %" PRIu64 ", \"driver_calls\": %" PRIu64
             ", \"moved\": %" PRIu64 "}",
             now.budget, now.live, now.held, memory.requested_bytes.peak, now.peak, now.peak_held, now.allocations,
             now.frees, now.refusals, now.hits, now.driver_calls, now.moved);
    return text;
}
