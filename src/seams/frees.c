/* Frees in the order of a framework's streams. */
#include "seams/places.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MORE = 64 };

#define PER_THREAD ((void *)2)

typedef struct free_later {
    weir_client *client;
    void *pointer;
    weir_stream stream;
} free_later;

static struct {
    pthread_mutex_t lock;
    free_later *frees;
    size_t first, count, room;
    atomic_size_t waiting;
} later = {.lock = PTHREAD_MUTEX_INITIALIZER};

static weir_status behind_blocking(weir_client *client, void *pointer)
{
    weir_stream legacy;
    weir_status status = wseam_place_of(client, NULL, &legacy);
    if (status == WEIR_OK)
        status = weir_use_record(weir_client_runtime(client), (weir_block){pointer, 0}, legacy);
    return status == WEIR_OK ? weir_free(client, pointer, WEIR_STREAM_HOST) : status;
}

/* WEIR_ERR_STREAM_MISUSE: it has to be tried again. A stream that still has a handle is captured. */
static weir_status try(const free_later *f)
{
    weir_status status = f->stream.id ? weir_free(f->client, f->pointer, f->stream) : WEIR_ERR_STREAM_MISUSE;
    if (status != WEIR_ERR_STREAM_MISUSE || f->stream.id == WEIR_STREAM_ALL.id)
        return status;
    void *native = weir_stream_native(f->stream);
    return native && native != PER_THREAD ? status : behind_blocking(f->client, f->pointer);
}

static void frees_tell(const free_later *f, weir_status status)
{
    if (status != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "the block at %p was not freed: %s", f->pointer, weir_detail());
}

/* Later ----------------------------------------------------------------------------------------------------------- */

/* The lock is held. */
static bool frees_make_room(void)
{
    if (later.first + later.count < later.room)
        return true;
    if (later.first > 0) {
        memmove(later.frees, later.frees + later.first, later.count * sizeof *later.frees);
        later.first = 0;
        return true;
    }
    free_later *more = realloc(later.frees, (later.room + MORE) * sizeof *more);
    if (!more)
        return false;
    later.frees = more;
    later.room += MORE;
    return true;
}

static void frees_remember(const free_later *f)
{
    pthread_mutex_lock(&later.lock);
    bool room = frees_make_room();
    if (room) {
        later.frees[later.first + later.count++] = *f;
        atomic_store(&later.waiting, later.count);
    }
    pthread_mutex_unlock(&later.lock);
    if (!room)
        weir_log(WEIR_LOG_WARNING, "the block at %p stays allocated: no host memory to free it later", f->pointer);
}

void wseam_free(weir_client *client, void *pointer, weir_stream stream)
{
    const free_later f = {client, pointer, stream};
    wseam_free_waiting();
    weir_status status = try(&f);
    if (status == WEIR_ERR_STREAM_MISUSE)
        frees_remember(&f);
    else
        frees_tell(&f, status);
}

/* Stops at the first that still has to wait: those behind it came later, and most of them are of the same capture. */
void wseam_free_waiting(void)
{
    if (atomic_load_explicit(&later.waiting, memory_order_relaxed) == 0 || pthread_mutex_trylock(&later.lock) != 0)
        return;
    for (weir_status status; later.count > 0; later.first++, later.count--) {
        const free_later *f = &later.frees[later.first];
        if ((status = try(f)) == WEIR_ERR_STREAM_MISUSE)
            break;
        frees_tell(f, status);
    }
    atomic_store(&later.waiting, later.count);
    pthread_mutex_unlock(&later.lock);
}

size_t wseam_frees_waiting(void)
{
    return atomic_load(&later.waiting);
}
