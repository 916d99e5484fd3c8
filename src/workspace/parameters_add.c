/* Adding a parameter: a place in a chunk, which grows in place where it can, and the copy into it. */
#include "workspace/order.h"
#include <weir/workspace.h>
#include "workspace/parameters.h"
#include "runtime/runtime.h"

/* Turns ------------------------------------------------------------------------------------------------------------ */

/* The thread is within a call of this; a callback of pressure inside it would wait for itself, or, at another store, for an
 * adder whose own callback may wait for this one. */
static _Thread_local bool adding;

weir_status wi_parameters_take_turn(weir_parameters *store)
{
    if (adding)
        return weir_fail(WEIR_ERR_BUSY, "%s gets no parameter while this thread adds one; add it afterwards",
                         store->tag);
    pthread_mutex_lock(&store->lock);
    while (store->turn)
        pthread_cond_wait(&store->turn_ends, &store->lock);
    bool read = store->runs > 0;
    store->turn = adding = !read;
    if (read)
        pthread_cond_signal(&store->turn_ends);
    pthread_mutex_unlock(&store->lock);
    return read ? weir_fail(WEIR_ERR_BUSY, "%s is read by a run; end that before adding a parameter", store->tag)
                : WEIR_OK;
}

void wi_parameters_end_turn(weir_parameters *store)
{
    pthread_mutex_lock(&store->lock);
    store->turn = adding = false;
    pthread_cond_signal(&store->turn_ends);
    pthread_mutex_unlock(&store->lock);
}

/* Places ----------------------------------------------------------------------------------------------------------- */

/* What a call took, to be given back should it fail. */
typedef struct taking {
    wi_chunk *chunk; /* NULL: nothing */
    uint64_t room;   /* the chunk's before; 0: it is a new one */
    uint64_t used;
} taking;

/* The chunks as readers see them change under the lock; the one who has the turn reads them without. A run that has begun
 * meanwhile has declared what it reads, and a new chunk is not among that. */
static weir_status enter_chunk(weir_parameters *store, wi_chunk *longer, const wi_chunk *chunk, taking *took)
{
    pthread_mutex_lock(&store->lock);
    bool read = store->runs > 0;
    wi_chunk *old = store->chunks;
    if (!read) {
        if (old)
            memcpy(longer, old, store->chunk_count * sizeof *longer);
        longer[store->chunk_count] = *chunk;
        store->chunks = longer;
        *took = (taking){&longer[store->chunk_count++], 0, 0};
    }
    pthread_mutex_unlock(&store->lock);
    free(read ? longer : old);
    return read ? weir_fail(WEIR_ERR_BUSY,
                            "a run that reads %s began while it grew; end that and add the parameter again", store->tag)
                : WEIR_OK;
}

static weir_status begin_chunk(weir_parameters *store, uint64_t bytes, weir_stream stream, taking *took)
{
    uint64_t least = store->chunk_count == 0 ? wi_max(store->expected, store->step) : store->step;
    wi_chunk chunk = {.room = wi_round_up(wi_max(bytes, least), WI_UNIT)};
    wi_chunk *chunks = malloc((store->chunk_count + 1) * sizeof *chunks);
    if (!chunks)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the blocks of %s", store->tag);
    weir_request request = {.struct_size = sizeof request,
                            .bytes = chunk.room,
                            .alignment = store->alignment,
                            .stream = stream,
                            .memory_class = WEIR_CLASS_WEIGHTS,
                            .tag = store->tag};
    weir_status status = weir_alloc_with(store->client, &request, &chunk.block);
    if (status != WEIR_OK) {
        free(chunks);
        return status;
    }
    status = enter_chunk(store, chunks, &chunk, took);
    if (status != WEIR_OK) {
        wi_kept_detail kept;
        wi_detail_keep(&kept);
        weir_status given = weir_free_block(store->client, chunk.block, WEIR_STREAM_HOST);
        (void)given; /* what a broken driver keeps is shown as the client's */
        wi_detail_restore(&kept);
    }
    return status;
}

/* In the last chunk. WEIR_ERR_NO_ROOM, WEIR_ERR_UNSUPPORTED: not there. */
static weir_status grow_chunk(weir_parameters *store, uint64_t end, weir_stream stream, taking *took)
{
    wi_chunk *chunk = &store->chunks[store->chunk_count - 1];
    *took = (taking){chunk, chunk->room, chunk->used};
    if (end <= chunk->room)
        return WEIR_OK;
    uint64_t room = wi_round_up(wi_max(end, chunk->room + store->step), WI_UNIT);
    weir_status status = weir_resize(store->client, chunk->block.pointer, room, stream);
    if (status != WEIR_OK) {
        took->chunk = NULL;
        return status;
    }
    pthread_mutex_lock(&store->lock);
    chunk->room = room;
    pthread_mutex_unlock(&store->lock);
    return WEIR_OK;
}

/* Bytes of one parameter; *out is where. */
static weir_status find_place(weir_parameters *store, uint64_t bytes, weir_stream stream, taking *took, void **out)
{
    weir_status status = WEIR_ERR_NO_ROOM;
    uint64_t at = 0;
    if (store->chunk_count > 0) {
        at = wi_round_up(store->chunks[store->chunk_count - 1].used, store->alignment);
        status = grow_chunk(store, at + bytes, stream, took);
    }
    if (status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_UNSUPPORTED) {
        at = 0;
        status = begin_chunk(store, bytes, stream, took);
    }
    if (status == WEIR_OK) {
        *out = (char *)took->chunk->block.pointer + at;
        took->chunk->used = at + bytes;
    }
    return status;
}

static void count_chunk(weir_parameters *store, int one)
{
    pthread_mutex_lock(&store->lock);
    store->chunk_count += (uint32_t)one;
    pthread_mutex_unlock(&store->lock);
}

/* Nothing was queued there, or it is done. */
static void give_place_back(weir_parameters *store, const taking *took)
{
    if (!took->chunk)
        return;
    wi_kept_detail kept;
    wi_detail_keep(&kept);
    wi_chunk *chunk = took->chunk;
    chunk->used = took->used;
    if (took->room == 0) {
        count_chunk(store, -1); /* first, so that no run declares what is gone */
        if (weir_free_block(store->client, chunk->block, WEIR_STREAM_HOST) != WEIR_OK)
            count_chunk(store, 1);
    } else if (took->room < chunk->room &&
               weir_resize(store->client, chunk->block.pointer, took->room, WEIR_STREAM_HOST) == WEIR_OK) {
        pthread_mutex_lock(&store->lock);
        chunk->room = took->room;
        pthread_mutex_unlock(&store->lock);
    } /* what does not go back now stays room of the store */
    wi_detail_restore(&kept);
}

/* Contents ---------------------------------------------------------------------------------------------------------- */

static weir_status rewrite(weir_parameters *store, const weir_parameter *there, const weir_parameter *wanted,
                           const void *from, weir_stream stream)
{
    if (there->type != wanted->type || there->elements != wanted->elements)
        return weir_fail(WEIR_ERR_CONFLICT, "%s has \"%.200s\" as %s of %llu elements; it cannot become %s of %llu",
                         store->tag, there->name, weir_type_name(there->type), (unsigned long long)there->elements,
                         weir_type_name(wanted->type), (unsigned long long)wanted->elements);
    if (there->bytes == 0 || !from)
        return WEIR_OK;
    weir_block_details block = {.struct_size = sizeof block};
    weir_status status = weir_block_info(there->pointer, &block);
    if (status != WEIR_OK)
        return status;
    return wi_order_write(store->client->runtime, block.block, there->pointer, from, there->bytes, stream);
}

static weir_status add_new(weir_parameters *store, const weir_parameter *wanted, const void *from, weir_stream stream)
{
    weir_parameter parameter = *wanted;
    taking took = {.chunk = NULL};
    char *name = strdup(wanted->name);
    pthread_mutex_lock(&store->lock);
    bool room = name && wi_parameters_make_room(store);
    pthread_mutex_unlock(&store->lock);
    weir_status status =
        room ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for a parameter of %s", store->tag);
    if (status == WEIR_OK && parameter.bytes > 0) {
        status = find_place(store, parameter.bytes, stream, &took, &parameter.pointer);
        if (status == WEIR_OK)
            status = wi_order_write(store->client->runtime, took.chunk->block, parameter.pointer, from,
                                    from ? parameter.bytes : 0, stream);
    }
    if (status != WEIR_OK) {
        give_place_back(store, &took);
        free(name);
        return status;
    }
    parameter.name = name;
    pthread_mutex_lock(&store->lock);
    wi_parameters_publish(store, &parameter);
    store->bytes += parameter.bytes;
    pthread_mutex_unlock(&store->lock);
    return WEIR_OK;
}

/* The call ---------------------------------------------------------------------------------------------------------- */

static weir_status check(const weir_parameters *store, const char *name, weir_type type, uint64_t elements,
                         uint64_t *bytes)
{
    weir_status status = wi_parameters_check_name(store, name, "weir_parameters_add");
    if (status != WEIR_OK)
        return status;
    size_t each = weir_type_bytes(type);
    if (each == 0 || type == WEIR_TYPE_TEXT)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_parameters_add: \"%.200s\" is of the type %s; parameters are of numbers", name,
                         weir_type_name(type));
    if (__builtin_mul_overflow(elements, (uint64_t)each, bytes) || *bytes > WI_LONGEST)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_add: \"%.200s\" of %llu elements is larger than any device",
                         name, (unsigned long long)elements);
    return WEIR_OK;
}

weir_status weir_parameters_add(weir_parameters *store, const char *name, weir_type type, uint64_t elements,
                                const void *from, weir_stream stream, uint32_t *index)
{
    WI_ENTER();
    weir_parameter wanted = {.name = name, .type = type, .elements = elements};
    weir_status status = check(store, name, type, elements, &wanted.bytes);
    if (status == WEIR_OK)
        status = wi_parameters_take_turn(store);
    if (status != WEIR_OK)
        return status;
    uint32_t at = store->count;
    weir_parameter there = {.struct_size = 0};
    pthread_mutex_lock(&store->lock);
    bool known = wi_parameters_seek(store, name, &at);
    if (known)
        there = store->list[at];
    pthread_mutex_unlock(&store->lock);
    status = known ? rewrite(store, &there, &wanted, from, stream) : add_new(store, &wanted, from, stream);
    wi_parameters_end_turn(store);
    if (status == WEIR_OK && index)
        *index = at;
    return status;
}
