/* CuPy: what its CFunctionAllocator calls.
 *
 * CuPy names no stream; the current one is asked for, by the C function that its own modules call. It says nothing of where
 * memory was used either. Its own pool gives a block back to the stream on which it was allocated, and leaves it to the
 * program to order other streams. Here the block also waits for what is on the stream that is current at the free: work on
 * two streams is common where arrays outlive a `with stream:`. */
#include "seams/seams.h"

#include "base/maps.h"
#include "seams/places.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { DEVICES = 64 };

/* What CuPy 14 takes for an exception that is set. */
#define FAILED_IN_PYTHON ((void *)-1)

struct wseam_cupy {
    wseam_cupy_calls calls;
    _Atomic(weir_client *) clients[DEVICES];
};

/* Blocks of all accounts and the streams on which they were allocated. */
static struct {
    pthread_mutex_t lock;
    wi_pointer_map streams;
} blocks = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_bool interpreter_ends;
static _Thread_local weir_status last;

/* Accounts --------------------------------------------------------------------------------------------------------- */

weir_status wseam_cupy_create(const wseam_cupy_calls *calls, wseam_cupy **out)
{
    wseam_cupy *it = *out = calloc(1, sizeof *it);
    if (!it)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for an account of CuPy's");
    it->calls = *calls;
    return WEIR_OK;
}

weir_status wseam_cupy_give(wseam_cupy *it, int device, weir_client *client)
{
    weir_client *none = NULL;
    if (device < 0 || device >= DEVICES)
        return weir_fail(WEIR_ERR_INVALID, "device %d: ordinals go from 0 to %d", device, DEVICES - 1);
    atomic_compare_exchange_strong(&it->clients[device], &none, client);
    return WEIR_OK;
}

static weir_client *cupy_client_of(wseam_cupy *it, int device)
{
    return device >= 0 && device < DEVICES ? atomic_load_explicit(&it->clients[device], memory_order_acquire) : NULL;
}

/* Allocations ------------------------------------------------------------------------------------------------------ */

/* The current stream of that device; false: an exception is set. */
static bool current(const wseam_cupy *it, int device, void **out)
{
    intptr_t native = it->calls.stream_of ? it->calls.stream_of(device) : it->calls.current_stream();
    *out = (void *)native;
    return native != -1;
}

static weir_status cupy_note(weir_client *client, void *pointer, weir_stream stream)
{
    pthread_mutex_lock(&blocks.lock);
    bool noted = wi_pointer_map_put(&blocks.streams, pointer, stream.id);
    pthread_mutex_unlock(&blocks.lock);
    if (noted)
        return WEIR_OK;
    wseam_free(client, pointer, stream);
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory for what is known of a block");
}

/* Without the interpreter's lock. */
static weir_status cupy_allocate(wseam_cupy *it, size_t bytes, int device, void *native, void **out)
{
    weir_client *client = cupy_client_of(it, device);
    weir_stream stream;
    wseam_free_waiting();
    if (!client)
        return weir_fail(WEIR_ERR_NOT_FOUND, "CuPy has no client for cuda:%d", device);
    weir_status status = wseam_place_or_host(client, native, &stream);
    if (status == WEIR_OK)
        status = weir_alloc(client, bytes, stream, WEIR_CLASS_ACTIVATIONS, out);
    if (status == WEIR_OK && *out)
        status = cupy_note(client, *out, stream);
    if (status != WEIR_OK)
        *out = NULL;
    return status;
}

void *wseam_cupy_malloc(void *account, size_t bytes, int device)
{
    wseam_cupy *it = account;
    void *pointer = NULL, *native;
    last = WEIR_ERR_INVALID;
    if (!current(it, device, &native))
        return FAILED_IN_PYTHON;
    void *thread = it->calls.leave();
    last = cupy_allocate(it, bytes, device, native, &pointer);
    it->calls.come_back(thread);
    return pointer;
}

weir_status wseam_cupy_status(void)
{
    return last;
}

/* Frees ------------------------------------------------------------------------------------------------------------ */

static bool cupy_forget(const void *pointer, weir_stream *stream)
{
    pthread_mutex_lock(&blocks.lock);
    bool known = wi_pointer_map_remove(&blocks.streams, pointer, &stream->id);
    pthread_mutex_unlock(&blocks.lock);
    return known;
}

/* What fails here leaves the order to the program, as with CuPy's own pool. */
static void wait_for_current(const wseam_cupy *it, weir_client *client, void *pointer, int device, weir_stream stream)
{
    void *native;
    weir_stream here;
    if (atomic_load(&interpreter_ends) || !current(it, device, &native) || wseam_place_was(client, native, stream))
        return;
    if (wseam_place_of(client, native, &here) == WEIR_OK && here.id != stream.id)
        (void)!weir_use_record(weir_client_runtime(client), (weir_block){pointer, 0}, here);
}

void wseam_cupy_free(void *account, void *pointer, int device)
{
    wseam_cupy *it = account;
    weir_client *client = cupy_client_of(it, device);
    weir_stream stream = WEIR_STREAM_HOST;
    if (pointer == FAILED_IN_PYTHON) /* an older CuPy's */
        return;
    if (!client || !cupy_forget(pointer, &stream)) {
        weir_log(WEIR_LOG_WARNING, "CuPy frees %p on cuda:%d, which is no block of its account", pointer, device);
        return;
    }
    wait_for_current(it, client, pointer, device, stream);
    wseam_free(client, pointer, stream);
}

void wseam_cupy_end(void)
{
    atomic_store(&interpreter_ends, true);
}
