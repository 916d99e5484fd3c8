/* record_stream: streams besides its own that use a block of PyTorch's.
 *
 * PyTorch's word is that the free waits for what such a stream has to do when the block is freed, also for work that was
 * queued after record_stream. So nothing but the stream's name is kept, and the uses are declared to weir at the free. While
 * a stream is captured that cannot be done: the block stays allocated until the capture is over. */
#include "seams/torch.h"

#include "base/maps.h"
#include "seams/places.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct use {
    struct use *next;
    void *native;
} use;

typedef struct used_block {
    struct used_block *next; /* of those that wait */
    weir_client *client;
    void *pointer;
    weir_stream freed_on;
    use *uses;
} used_block;

static struct {
    pthread_mutex_t lock;
    wi_pointer_map blocks; /* live ones that have uses: to used_block */
    used_block *first;     /* freed ones, whose uses cannot be declared yet */
    atomic_size_t live, waiting;
} used = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Noting ----------------------------------------------------------------------------------------------------------- */

static bool has_use(const used_block *block, const void *native)
{
    const use *u = block->uses;
    while (u && u->native != native)
        u = u->next;
    return u != NULL;
}

/* The lock is held. NULL: no host memory. */
static used_block *find_or_make(weir_client *client, void *pointer)
{
    uint64_t value = 0;
    if (wi_pointer_map_get(&used.blocks, pointer, &value))
        return (used_block *)(uintptr_t)value;
    used_block *made = malloc(sizeof *made);
    if (!made)
        return NULL;
    *made = (used_block){.client = client, .pointer = pointer};
    if (!wi_pointer_map_put(&used.blocks, pointer, (uintptr_t)made)) {
        free(made);
        return NULL;
    }
    atomic_fetch_add(&used.live, 1);
    return made;
}

bool wtorch_use_note(weir_client *client, void *pointer, void *native)
{
    pthread_mutex_lock(&used.lock);
    used_block *block = find_or_make(client, pointer);
    use *made = block && !has_use(block, native) ? malloc(sizeof *made) : NULL;
    if (made) {
        *made = (use){block->uses, native};
        block->uses = made;
    }
    bool noted = block && has_use(block, native);
    pthread_mutex_unlock(&used.lock);
    return noted;
}

/* Freeing ---------------------------------------------------------------------------------------------------------- */

/* False: it cannot be declared yet. What can never be is said in the log. */
static bool declare(const used_block *block, const use *u)
{
    weir_stream stream;
    uint64_t ignored;
    weir_status status = wseam_place_of(block->client, u->native, &stream);
    if (status == WEIR_OK)
        status = weir_use_record(weir_client_runtime(block->client), (weir_block){block->pointer, 0}, stream);
    bool later = status == WEIR_ERR_BUSY || (status == WEIR_ERR_STREAM_MISUSE && u->native &&
                                             wseam_driver_look(u->native, &ignored) != WSEAM_STREAM_UNKNOWN);
    if (status != WEIR_OK && !later)
        weir_log(WEIR_LOG_WARNING, "a use of the block at %p on another stream is not waited for: %s", block->pointer,
                 weir_detail());
    return !later;
}

/* True: all uses are declared, the block is given back, and the record is gone. */
static bool torch_uses_settle(used_block *block)
{
    for (use **link = &block->uses, *u; (u = *link);) {
        if (!declare(block, u)) {
            link = &u->next;
            continue;
        }
        *link = u->next;
        free(u);
    }
    if (block->uses)
        return false;
    wtorch_give_back(block->client, block->pointer, block->freed_on);
    free(block);
    return true;
}

static void keep_waiting(used_block *block)
{
    pthread_mutex_lock(&used.lock);
    block->next = used.first;
    used.first = block;
    atomic_fetch_add(&used.waiting, 1);
    pthread_mutex_unlock(&used.lock);
}

bool wtorch_use_free(void *pointer, weir_stream stream)
{
    uint64_t value = 0;
    if (atomic_load_explicit(&used.live, memory_order_acquire) == 0)
        return false;
    pthread_mutex_lock(&used.lock);
    bool found = wi_pointer_map_remove(&used.blocks, pointer, &value);
    pthread_mutex_unlock(&used.lock);
    if (!found)
        return false;
    used_block *block = (used_block *)(uintptr_t)value;
    atomic_fetch_sub(&used.live, 1);
    block->freed_on = stream;
    if (!torch_uses_settle(block))
        keep_waiting(block);
    return true;
}

void wtorch_uses_again(void)
{
    if (atomic_load_explicit(&used.waiting, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&used.lock);
    used_block *list = used.first;
    used.first = NULL;
    atomic_store(&used.waiting, 0);
    pthread_mutex_unlock(&used.lock);
    for (used_block *block = list, *next; block; block = next) {
        next = block->next;
        if (!torch_uses_settle(block))
            keep_waiting(block);
    }
}
