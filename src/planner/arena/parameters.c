/* Stores of parameters.
 *
 * Invariants, true whenever the lock is free:
 *   the used bytes of a chunk are at most its room; parameters lie in used bytes of one chunk, none over another unless
 *   it is a further name
 *   names[] has every published parameter once; what is published changes no more
 * Nobody calls the driver with the lock held. One thread adds at a time, which is no lock: who adds holds nothing
 * that readers, runs and closing wait for. */
#include "planner/arena/arena.h"
#include <weir/arena.h>
#include "base/texts.h"
#include "memory/space/block.h"
#include "runtime/runtime.h"
#include "base/values.h"

#include <stdio.h>

typedef struct store_chunk {
    weir_block block;
    uint64_t room, used;
} store_chunk;

struct weir_parameters {
    pthread_mutex_t lock;
    pthread_cond_t idle;
    bool busy; /* somebody adds */
    uint32_t holders;
    uint32_t runs; /* that have begun and not ended; meanwhile nothing is added */

    weir_client *client;
    uint64_t expected, step;
    size_t alignment;
    char tag[48];

    store_chunk *chunks;
    uint32_t chunk_count;
    weir_parameter *list;
    uint32_t count, list_room;
    uint32_t *names; /* number + 1; 0: empty; at most half full */
    uint32_t name_room;
    uint64_t bytes;
};

/* The table: by number, and by name over open addressing ----------------------------------------------------------- */

/* Where the name is, or would be. */
static uint32_t *parameters_place(const weir_parameters *store, const char *name)
{
    uint32_t mask = store->name_room - 1, at = (uint32_t)wi_hash(name, strlen(name)) & mask;
    while (store->names[at] && strcmp(store->list[store->names[at] - 1].name, name) != 0)
        at = (at + 1) & mask;
    return &store->names[at];
}

/* WEIR_ERR_INVALID, naming the call, for NULL and for a name that no parameter can have. */
static weir_status check_name(const weir_parameters *store, const char *name, const char *call)
{
    if (!store || !name || !*name || strlen(name) > 1023)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL, or a name that is empty or longer than 1023 bytes", call);
    return WEIR_OK;
}

/* By name; false: there is none. With the lock held. */
static bool seek(const weir_parameters *store, const char *name, uint32_t *index)
{
    uint32_t found = store->name_room ? *parameters_place(store, name) : 0;
    if (found)
        *index = found - 1;
    return found != 0;
}

static bool widen_names(weir_parameters *store)
{
    uint32_t room = store->name_room ? 2 * store->name_room : 64;
    uint32_t *names = calloc(room, sizeof *names);
    if (!names)
        return false;
    free(store->names);
    store->names = names;
    store->name_room = room;
    for (uint32_t i = 0; i < store->count; i++)
        *parameters_place(store, store->list[i].name) = i + 1;
    return true;
}

/* Room for one parameter more in the list and the names; false without host memory. With the lock held. */
static bool parameters_make_room(weir_parameters *store)
{
    if (store->count == store->list_room) {
        uint32_t room = store->list_room ? 2 * store->list_room : 32;
        weir_parameter *list = realloc(store->list, room * sizeof *list);
        if (!list)
            return false;
        store->list = list;
        store->list_room = room;
    }
    return 2 * (store->count + 1) <= store->name_room || widen_names(store);
}

/* A parameter, or a further name of one; its name becomes the store's. With the lock held, behind make_room. */
static void publish(weir_parameters *store, const weir_parameter *parameter)
{
    wi_assert(store->count < store->list_room && 2 * (store->count + 1) <= store->name_room);
    store->list[store->count] = *parameter;
    *parameters_place(store, parameter->name) = ++store->count;
}

/* One at a time ---------------------------------------------------------------------------------------------------- */

/* The thread is within a call of this; a callback of pressure inside it would wait for itself, or, at another store,
 * for an adder whose own callback may wait for this one. */
static _Thread_local bool adding;

/* Begins to add: waits for who adds before. WEIR_ERR_BUSY while a run reads the store, and inside another
 * addition. */
static weir_status parameters_begin_adding(weir_parameters *store)
{
    if (adding)
        return weir_fail(WEIR_ERR_BUSY, "%s gets no parameter while this thread adds one; add it afterwards",
                         store->tag);
    pthread_mutex_lock(&store->lock);
    while (store->busy)
        pthread_cond_wait(&store->idle, &store->lock);
    bool read = store->runs > 0;
    store->busy = adding = !read;
    if (read)
        pthread_cond_signal(&store->idle);
    pthread_mutex_unlock(&store->lock);
    return read ? weir_fail(WEIR_ERR_BUSY, "%s is read by a run; end that before adding a parameter", store->tag)
                : WEIR_OK;
}

static void parameters_end_adding(weir_parameters *store)
{
    pthread_mutex_lock(&store->lock);
    store->busy = adding = false;
    pthread_cond_signal(&store->idle);
    pthread_mutex_unlock(&store->lock);
}

/* Places ----------------------------------------------------------------------------------------------------------- */

/* What a call took, to be given back should it fail. */
typedef struct taking {
    store_chunk *chunk; /* NULL: nothing */
    uint64_t room;      /* the chunk's before; 0: it is a new one */
    uint64_t used;
} taking;

/* Adds a chunk to the store's list. The list changes under the lock; the thread that adds reads the list
 * without the lock. WEIR_ERR_BUSY when a run has begun meanwhile, because the blocks that the run has declared do not
 * include the new chunk. */
static weir_status enter_chunk(weir_parameters *store, store_chunk *longer, const store_chunk *chunk, taking *took)
{
    pthread_mutex_lock(&store->lock);
    bool read = store->runs > 0;
    store_chunk *old = store->chunks;
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
    store_chunk chunk = {.room = wi_round_up(wi_max(bytes, least), WI_UNIT)};
    store_chunk *chunks = malloc((store->chunk_count + 1) * sizeof *chunks);
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
        wi_saved_detail saved;
        wi_detail_save(&saved);
        weir_status given = weir_free_block(store->client, chunk.block, WEIR_STREAM_HOST);
        (void)given; /* what a broken driver keeps is shown as the client's */
        wi_detail_restore(&saved);
    }
    return status;
}

/* In the last chunk. WEIR_ERR_NO_ROOM, WEIR_ERR_UNSUPPORTED: not there. */
static weir_status grow_chunk(weir_parameters *store, uint64_t end, weir_stream stream, taking *took)
{
    store_chunk *chunk = &store->chunks[store->chunk_count - 1];
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
static weir_status parameters_find_place(weir_parameters *store, uint64_t bytes, weir_stream stream, taking *took,
                                         void **out)
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
    wi_saved_detail saved;
    wi_detail_save(&saved);
    store_chunk *chunk = took->chunk;
    chunk->used = took->used;
    if (took->room == 0) {
        count_chunk(store, -1); /* before the free, so that no run declares a freed block */
        if (weir_free_block(store->client, chunk->block, WEIR_STREAM_HOST) != WEIR_OK)
            count_chunk(store, 1);
    } else if (took->room < chunk->room &&
               weir_resize(store->client, chunk->block.pointer, took->room, WEIR_STREAM_HOST) == WEIR_OK) {
        pthread_mutex_lock(&store->lock);
        chunk->room = took->room;
        pthread_mutex_unlock(&store->lock);
    } /* what does not go back now stays room of the store */
    wi_detail_restore(&saved);
}

/* Contents --------------------------------------------------------------------------------------------------------- */

static weir_status rewrite(weir_parameters *store, const weir_parameter *there, const weir_parameter *wanted,
                           const void *from, weir_stream stream)
{
    if (there->type != wanted->type || there->elements != wanted->elements)
        return weir_fail(WEIR_ERR_CONFLICT, "%s has \"%.200s\" as %s of %llu elements; it cannot become %s of %llu",
                         store->tag, there->name, weir_name_of(WEIR_NAMES_TYPE, there->type),
                         (unsigned long long)there->elements, weir_name_of(WEIR_NAMES_TYPE, wanted->type),
                         (unsigned long long)wanted->elements);
    if (there->bytes == 0 || !from)
        return WEIR_OK;
    weir_block_details block = {.struct_size = sizeof block};
    weir_status status = weir_block_info(there->pointer, &block);
    if (status != WEIR_OK)
        return status;
    return wi_order_write(weir_client_runtime(store->client), block.block, there->pointer, from, there->bytes, stream);
}

static weir_status add_new(weir_parameters *store, const weir_parameter *wanted, const void *from, weir_stream stream)
{
    weir_parameter parameter = *wanted;
    taking took = {.chunk = NULL};
    char *name = strdup(wanted->name);
    pthread_mutex_lock(&store->lock);
    bool room = name && parameters_make_room(store);
    pthread_mutex_unlock(&store->lock);
    weir_status status =
        room ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for a parameter of %s", store->tag);
    if (status == WEIR_OK && parameter.bytes > 0) {
        status = parameters_find_place(store, parameter.bytes, stream, &took, &parameter.pointer);
        if (status == WEIR_OK)
            status = wi_order_write(weir_client_runtime(store->client), took.chunk->block, parameter.pointer, from,
                                    from ? parameter.bytes : 0, stream);
    }
    if (status != WEIR_OK) {
        give_place_back(store, &took);
        free(name);
        return status;
    }
    parameter.name = name;
    pthread_mutex_lock(&store->lock);
    publish(store, &parameter);
    store->bytes += parameter.bytes;
    pthread_mutex_unlock(&store->lock);
    return WEIR_OK;
}

/* The call --------------------------------------------------------------------------------------------------------- */

static weir_status parameters_check(const weir_parameters *store, const char *name, weir_type type, uint64_t elements,
                                    uint64_t *bytes)
{
    weir_status status = check_name(store, name, "weir_parameters_add");
    if (status != WEIR_OK)
        return status;
    size_t each = wi_type_bytes(type);
    if (each == 0 || type == WEIR_TYPE_TEXT)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_parameters_add: \"%.200s\" is of the type %s; parameters are of numbers", name,
                         weir_name_of(WEIR_NAMES_TYPE, type));
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
    weir_status status = parameters_check(store, name, type, elements, &wanted.bytes);
    if (status == WEIR_OK)
        status = parameters_begin_adding(store);
    if (status != WEIR_OK)
        return status;
    uint32_t at = store->count;
    weir_parameter there = {.struct_size = 0};
    pthread_mutex_lock(&store->lock);
    bool known = seek(store, name, &at);
    if (known)
        there = store->list[at];
    pthread_mutex_unlock(&store->lock);
    status = known ? rewrite(store, &there, &wanted, from, stream) : add_new(store, &wanted, from, stream);
    parameters_end_adding(store);
    if (status == WEIR_OK && index)
        *index = at;
    return status;
}

/* Further names, for parts of parameters --------------------------------------------------------------------------- */

/* The next two with the lock held. */
static weir_status parameters_part_of(const weir_parameters *store, const char *of, uint64_t at, uint64_t elements,
                                      weir_parameter *out)
{
    uint32_t whole;
    if (!seek(store, of, &whole))
        return weir_fail(WEIR_ERR_NOT_FOUND, "the store %s has no parameter \"%.200s\"", store->tag, of);
    *out = store->list[whole];
    if (at > out->elements || elements > out->elements - at)
        return weir_fail(WEIR_ERR_INVALID, "%s: %llu elements from %llu on are not in \"%.200s\", which has %llu",
                         store->tag, (unsigned long long)elements, (unsigned long long)at, of,
                         (unsigned long long)out->elements);
    size_t each = wi_type_bytes(out->type);
    out->pointer = elements ? (char *)out->pointer + at * each : NULL;
    out->elements = elements;
    out->bytes = elements * each;
    return WEIR_OK;
}

static weir_status parameters_enter(weir_parameters *store, const char *name, weir_parameter *part)
{
    uint32_t index;
    if (seek(store, name, &index)) {
        const weir_parameter *there = &store->list[index];
        if (there->pointer == part->pointer && there->elements == part->elements && there->type == part->type)
            return WEIR_OK;
        return weir_fail(WEIR_ERR_CONFLICT, "%s has \"%.200s\" as %s of %llu elements, which lie elsewhere", store->tag,
                         there->name, weir_name_of(WEIR_NAMES_TYPE, there->type), (unsigned long long)there->elements);
    }
    part->name = parameters_make_room(store) ? strdup(name) : NULL;
    if (!part->name)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a name of %s", store->tag);
    publish(store, part);
    return WEIR_OK;
}

weir_status weir_parameters_alias(weir_parameters *store, const char *name, const char *of, uint64_t at,
                                  uint64_t elements)
{
    WI_ENTER();
    weir_parameter part;
    weir_status status = check_name(store, name, "weir_parameters_alias");
    if (status == WEIR_OK)
        status = check_name(store, of, "weir_parameters_alias");
    if (status == WEIR_OK)
        status = parameters_begin_adding(store);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&store->lock);
    status = parameters_part_of(store, of, at, elements, &part);
    if (status == WEIR_OK)
        status = parameters_enter(store, name, &part);
    pthread_mutex_unlock(&store->lock);
    parameters_end_adding(store);
    return status;
}

/* Holders ---------------------------------------------------------------------------------------------------------- */

static weir_status check_options(weir_parameters_options *o)
{
    o->alignment = o->alignment ? o->alignment : WI_UNIT;
    o->step = o->step ? o->step : WEIR_PARAMETERS_STEP;
    if (!wi_power_of_two(o->alignment) || o->alignment > 2 * WI_MIB)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_create: an alignment of %zu is no power of two up to 2 MiB",
                         o->alignment);
    uint64_t between = o->expected_count > 1 ? (o->expected_count - 1) * (uint64_t)(o->alignment - 1) : 0;
    o->expected = o->expected > WI_LONGEST ? o->expected : o->expected + between;
    if (o->expected > WI_LONGEST || o->step > WI_LONGEST)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_create: no device could have %llu bytes",
                         (unsigned long long)wi_max(o->expected, o->step));
    return WEIR_OK;
}

weir_status weir_parameters_create(weir_client *client, const weir_parameters_options *options, weir_parameters **out)
{
    weir_status status = wi_client_check(client, "weir_parameters_create");
    if (status != WEIR_OK)
        return status;
    weir_parameters_options o = {.struct_size = 0};
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_create: no place for the result");
    status = WI_COPY_OPTIONS_IN(weir_parameters_options, &o, options, "weir_parameters_create");
    if (status != WEIR_OK)
        return status;
    *out = NULL;
    status = check_options(&o);
    if (status != WEIR_OK)
        return status;
    weir_parameters *store = calloc(1, sizeof *store);
    if (!store)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a store of parameters");
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->idle, NULL);
    store->holders = 1;
    store->client = client;
    store->expected = o.expected;
    store->step = o.step;
    store->alignment = o.alignment;
    snprintf(store->tag, sizeof store->tag, "%s", o.tag && *o.tag ? o.tag : "parameters");
    *out = store;
    return WEIR_OK;
}

weir_status weir_parameters_acquire(weir_parameters *store)
{
    WI_ENTER();
    if (!store)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_acquire: NULL");
    pthread_mutex_lock(&store->lock);
    store->holders++;
    pthread_mutex_unlock(&store->lock);
    return WEIR_OK;
}

static void free_store(weir_parameters *store)
{
    for (uint32_t i = 0; i < store->count; i++)
        free((char *)(uintptr_t)store->list[i].name);
    free(store->list);
    free(store->names);
    free(store->chunks);
    pthread_cond_destroy(&store->idle);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* The last holder's. The blocks carry the marks of all declared uses, so that the frees are behind those; what could
 * not be freed stays in the list for another try. */
static weir_status free_chunks(weir_parameters *store)
{
    for (; store->chunk_count > 0; store->chunk_count--) {
        weir_status status =
            weir_free_block(store->client, store->chunks[store->chunk_count - 1].block, WEIR_STREAM_HOST);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

weir_status weir_parameters_release(weir_parameters *store)
{
    WI_ENTER();
    if (!store)
        return WEIR_OK;
    WI_VISIT(store->client->runtime);
    pthread_mutex_lock(&store->lock);
    bool last = store->holders == 1;
    if (!last)
        store->holders--;
    pthread_mutex_unlock(&store->lock);
    if (!last)
        return WEIR_OK;
    weir_status status = free_chunks(store);
    if (status == WEIR_OK)
        free_store(store);
    return status;
}

weir_status weir_parameters_info(weir_parameters *store, weir_parameters_details *out)
{
    WI_ENTER();
    if (!store || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_info: NULL");
    weir_parameters_details details = {.struct_size = 0};
    pthread_mutex_lock(&store->lock);
    details.count = store->count;
    details.blocks = store->chunk_count;
    details.bytes = store->bytes;
    for (uint32_t i = 0; i < store->chunk_count; i++)
        details.charged += store->chunks[i].room;
    pthread_mutex_unlock(&store->lock);
    if (!wi_copy_out(out, out->struct_size, &details, sizeof details))
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_info: a structure without its size");
    return WEIR_OK;
}

/* Runs and reports ------------------------------------------------------------------------------------------------- */

weir_runtime *wi_parameters_runtime(const weir_parameters *store)
{
    return weir_client_runtime(store->client);
}

weir_status wi_parameters_begin_run(weir_parameters *store, size_t before, weir_use **uses, size_t *count)
{
    size_t chunks = 0;
    if (store)
        pthread_mutex_lock(&store->lock);
    chunks = store ? store->chunk_count : 0;
    *uses = calloc(before + chunks + 1, sizeof **uses);
    for (size_t i = 0; *uses && i < chunks; i++)
        (*uses)[before + i] = (weir_use){store->chunks[i].block, WEIR_ACCESS_READ};
    if (store) {
        store->runs += *uses != NULL;
        pthread_mutex_unlock(&store->lock);
    }
    *count = before + chunks;
    return *uses ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for the uses of %zu blocks", *count);
}

void wi_parameters_end_run(weir_parameters *store)
{
    if (!store)
        return;
    pthread_mutex_lock(&store->lock);
    store->runs--;
    pthread_mutex_unlock(&store->lock);
}

/* The number of the parameter with that name. */
static weir_status parameter_called(weir_parameters *store, const char *name, uint32_t *index)
{
    pthread_mutex_lock(&store->lock);
    bool there = seek(store, name, index);
    pthread_mutex_unlock(&store->lock);
    if (!there)
        return weir_fail(WEIR_ERR_NOT_FOUND, "the store %s has no parameter \"%.200s\"", store->tag, name);
    return WEIR_OK;
}

weir_status weir_parameter_info(weir_parameters *store, const char *name, uint32_t index, weir_parameter *out)
{
    WI_ENTER();
    if (!store || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameter_info: NULL");
    weir_status status = name ? parameter_called(store, name, &index) : WEIR_OK;
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&store->lock);
    uint32_t count = store->count;
    weir_parameter found = {.struct_size = 0};
    if (index < count)
        found = store->list[index];
    pthread_mutex_unlock(&store->lock);
    if (index >= count)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameter_info: there is no parameter %u; the store %s has %u", index,
                         store->tag, count);
    if (!wi_copy_out(out, out->struct_size, &found, sizeof found))
        return weir_fail(WEIR_ERR_INVALID, "weir_parameter_info: a structure without its size");
    return WEIR_OK;
}
