/* Arenas: a block for each kind of memory, and the plans over them; their tensors, and runs. */
#include "base/internal.h"
#include "memory/space/block.h"
#include "runtime/runtime.h"
#include "planner/arena/arena.h"
#include "base/values.h"

#include <weir/arena.h>
#include <weir/plan.h>
#include <weir/uses.h>

#include <stdio.h>

typedef struct plan_bucket {
    const weir_plan *plan;
    uint64_t *actual; /* by tensor: its length */
    uint32_t tensors;
} plan_bucket;

typedef struct arena_block {
    weir_block block; /* NULL: the plans have nothing of this kind */
    uint64_t bytes;
    uint64_t planned; /* the longest plan's */
} arena_block;

/* Invariant: while no run is open there is no launch; the blocks are as long as every bucket's plan wants. */
struct weir_arena {
    weir_client *client;
    weir_runtime *runtime;
    weir_parameters *parameters;
    weir_arena_pool *pool;
    arena_block blocks[WEIR_KIND_COUNT];
    plan_bucket *buckets;
    uint32_t bucket_count;
    weir_class memory_class;
    char tag[48];

    atomic_bool running; /* from before begin to behind end */
    weir_launch *launch;
    uint32_t bucket; /* of the run */
    weir_stream stream;
};

/* What plans want -------------------------------------------------------------------------------------------------- */

/* Nothing of NULL. */
static weir_plan_details details_of(const weir_plan *plan)
{
    weir_plan_details details = {.struct_size = sizeof details};
    if (!plan || weir_plan_info(plan, &details) != WEIR_OK)
        details = (weir_plan_details){.struct_size = sizeof details};
    return details;
}

/* What an arena of the plan has at least. */
static uint64_t arena_arena_of(const weir_plan *plan, weir_kind kind)
{
    return details_of(plan).arena_of[kind];
}

/* What the start of a kind's block must be a multiple of, for all offsets to be what the plan says. */
static uint64_t arena_alignment_of(const weir_plan *plan, weir_kind kind)
{
    const weir_plan_details details = details_of(plan);
    uint64_t most = wi_max(details.alignment, 1);
    for (uint32_t i = 0; i < details.buffers; i++) {
        weir_buffer buffer = {.struct_size = sizeof buffer};
        if (weir_buffer_info(details.list, i, &buffer) == WEIR_OK && buffer.kind == kind)
            most = wi_max(most, buffer.alignment);
    }
    return most;
}

/* Buckets ---------------------------------------------------------------------------------------------------------- */

static weir_status make_bucket(const weir_plan *plan, plan_bucket *out)
{
    if (!plan)
        return weir_fail(WEIR_ERR_INVALID, "an arena's plan is NULL");
    weir_status status = weir_plan_check(plan, NULL);
    if (status != WEIR_OK)
        return status;
    uint32_t count = details_of(plan).buffers;
    *out = (plan_bucket){plan, malloc(count * sizeof(uint64_t) + 1), count};
    if (!out->actual)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a bucket of %u tensors", count);
    for (uint32_t i = 0; i < count; i++) {
        weir_slot slot = {.struct_size = sizeof slot};
        status = weir_plan_slot(plan, i, &slot);
        if (status != WEIR_OK)
            break;
        out->actual[i] = slot.bytes;
    }
    if (status != WEIR_OK)
        free(out->actual);
    return status;
}

static weir_status make_buckets(weir_arena *arena, const weir_plan *const *plans, size_t count)
{
    arena->buckets = calloc(count + 1, sizeof *arena->buckets);
    if (!arena->buckets)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for an arena of %zu plans", count);
    for (; arena->bucket_count < count; arena->bucket_count++) {
        weir_status status = make_bucket(plans[arena->bucket_count], &arena->buckets[arena->bucket_count]);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

static weir_status take_block(weir_arena *arena, weir_kind kind, const weir_arena_options *o, uint64_t alignment)
{
    arena_block *block = &arena->blocks[kind];
    weir_request request = {.struct_size = sizeof request,
                            .bytes = block->bytes,
                            .alignment = alignment,
                            .stream = o->stream,
                            .memory_class = arena->memory_class,
                            .tag = arena->tag,
                            .flags = o->clear ? WEIR_ALLOC_ZEROED : 0,
                            .kind = kind};
    weir_status status = WEIR_OK;
    if (arena->pool && kind == WEIR_KIND_DEVICE)
        status = wi_arena_pool_take(arena->pool, arena->client, &request, &block->block, &block->bytes);
    if (status != WEIR_OK || block->block.pointer)
        return status;
    return weir_alloc_with(arena->client, &request, &block->block);
}

static weir_status take_blocks(weir_arena *arena, const weir_arena_options *o)
{
    uint64_t total = 0;
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        arena_block *block = &arena->blocks[kind];
        uint64_t alignment = WI_UNIT;
        for (uint32_t i = 0; i < arena->bucket_count; i++) {
            block->planned = wi_max(block->planned, arena_arena_of(arena->buckets[i].plan, (weir_kind)kind));
            alignment = wi_max(alignment, arena_alignment_of(arena->buckets[i].plan, (weir_kind)kind));
        }
        block->bytes = wi_max(block->planned, kind == WEIR_KIND_DEVICE ? o->room : 0);
        if (block->bytes > WI_LONGEST || alignment > 2 * WI_MIB)
            return weir_fail(WEIR_ERR_INVALID,
                             "%s: %llu bytes aligned to %llu cannot be had; up to 2 MiB is what "
                             "blocks can be aligned to",
                             arena->tag, (unsigned long long)block->bytes, (unsigned long long)alignment);
        block->bytes = wi_round_up(block->bytes, WI_UNIT);
        total += block->bytes;
        weir_status status = block->bytes ? take_block(arena, (weir_kind)kind, o, alignment) : WEIR_OK;
        if (status != WEIR_OK)
            return status;
    }
    return total ? WEIR_OK
                 : weir_fail(WEIR_ERR_INVALID, "%s: no plan that has a byte, and no room; say one of the two",
                             arena->tag);
}

static weir_status give_block(weir_arena *arena, weir_kind kind, weir_stream stream)
{
    arena_block *block = &arena->blocks[kind];
    if (!block->block.pointer)
        return WEIR_OK;
    weir_status status;
    if (arena->pool && kind == WEIR_KIND_DEVICE)
        status = wi_arena_pool_give(arena->pool,
                                    &(wi_idle){.client = arena->client,
                                               .block = block->block,
                                               .bytes = block->bytes,
                                               .memory_class = arena->memory_class},
                                    stream);
    else
        status = weir_free_block(arena->client, block->block, stream);
    if (status == WEIR_OK)
        block->block = (weir_block){NULL, 0};
    return status;
}

static weir_status give_blocks(weir_arena *arena, weir_stream stream)
{
    weir_status status = WEIR_OK;
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT && status == WEIR_OK; kind++)
        status = give_block(arena, (weir_kind)kind, stream);
    return status;
}

/* Opening and closing ---------------------------------------------------------------------------------------------- */

static void free_arena(weir_arena *arena)
{
    for (uint32_t i = 0; i < arena->bucket_count; i++)
        free(arena->buckets[i].actual);
    free(arena->buckets);
    free(arena);
}

static weir_status arena_fill_in(weir_arena *arena, const weir_arena_options *o)
{
    weir_status status = make_buckets(arena, o->plans, o->plan_count);
    if (status == WEIR_OK)
        status = take_blocks(arena, o);
    if (status == WEIR_OK)
        return WEIR_OK;
    wi_saved_detail saved;
    wi_detail_save(&saved);
    weir_status given = give_blocks(arena, o->stream);
    (void)given; /* what a broken driver keeps is shown as the client's */
    wi_detail_restore(&saved);
    return status;
}

static weir_status arena_check(const weir_client *client, const weir_arena_options *o)
{
    if (!o->plans && o->plan_count)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_create: %zu plans at NULL", o->plan_count);
    if (o->pool && wi_arena_pool_runtime(o->pool) != weir_client_runtime(client))
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_create: the pool is not of %s's runtime",
                         wi_client_name(client));
    if (o->parameters && wi_parameters_runtime(o->parameters) != weir_client_runtime(client))
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_create: the parameters are not of %s's runtime",
                         wi_client_name(client));
    return WEIR_OK;
}

weir_status weir_arena_create(weir_client *client, const weir_arena_options *options, weir_arena **out)
{
    weir_status status = wi_client_check(client, "weir_arena_create");
    if (status != WEIR_OK)
        return status;
    weir_arena_options o;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_create: no place for the result");
    status = WI_COPY_IN(weir_arena_options, &o, options, "weir_arena_create");
    if (status != WEIR_OK)
        return status;
    *out = NULL;
    status = arena_check(client, &o);
    if (status != WEIR_OK)
        return status;
    weir_arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for an arena");
    arena->client = client;
    arena->runtime = weir_client_runtime(client);
    arena->pool = o.pool;
    arena->parameters = o.parameters;
    arena->memory_class = o.memory_class == WEIR_CLASS_OTHER ? WEIR_CLASS_ACTIVATIONS : o.memory_class;
    snprintf(arena->tag, sizeof arena->tag, "%s", o.tag && *o.tag ? o.tag : "arena");
    status = arena_fill_in(arena, &o);
    if (status == WEIR_OK && o.parameters)
        status = weir_parameters_acquire(o.parameters);
    if (status != WEIR_OK) {
        free_arena(arena);
        return status;
    }
    if (o.pool)
        wi_arena_pool_hold(o.pool);
    *out = arena;
    return WEIR_OK;
}

weir_status weir_arena_destroy(weir_arena *arena, weir_stream stream)
{
    WI_ENTER();
    if (!arena)
        return WEIR_OK;
    WI_VISIT(arena->client->runtime);
    if (atomic_exchange(&arena->running, true)) /* and no run begins from here on */
        return weir_fail(WEIR_ERR_BUSY, "%s is in a run; end that before closing it", arena->tag);
    weir_status status = give_blocks(arena, stream);
    if (status == WEIR_OK && arena->parameters) {
        status = weir_parameters_release(arena->parameters);
        arena->parameters = status == WEIR_OK ? NULL : arena->parameters;
    }
    if (status == WEIR_OK)
        status = weir_arena_pool_release(arena->pool);
    if (status == WEIR_OK)
        free_arena(arena);
    else
        atomic_store(&arena->running, false);
    return status;
}

/* Growing ---------------------------------------------------------------------------------------------------------- */

/* Whether the blocks could serve the plan, once they are as long. */
static weir_status suits(const weir_arena *arena, const weir_plan *plan)
{
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        const arena_block *block = &arena->blocks[kind];
        uint64_t wanted = arena_arena_of(plan, (weir_kind)kind);
        if (wanted == 0)
            continue;
        if (wanted > WI_LONGEST)
            return weir_fail(WEIR_ERR_INVALID, "%s cannot serve a plan of %llu bytes, which no device has", arena->tag,
                             (unsigned long long)wanted);
        if (!block->block.pointer)
            return weir_fail(WEIR_ERR_INVALID, "%s has no memory of the kind %s; open it with a plan that has",
                             arena->tag, weir_name_of(WEIR_NAMES_KIND, kind));
        uint64_t alignment = arena_alignment_of(plan, (weir_kind)kind);
        if ((uintptr_t)block->block.pointer % alignment != 0)
            return weir_fail(WEIR_ERR_INVALID,
                             "%s lies at %p, and the plan wants multiples of %llu; open it with the plan", arena->tag,
                             block->block.pointer, (unsigned long long)alignment);
    }
    return WEIR_OK;
}

static weir_status arena_resize(weir_arena *arena, unsigned kind, uint64_t bytes, weir_stream stream)
{
    arena_block *block = &arena->blocks[kind];
    weir_status status =
        bytes == block->bytes ? WEIR_OK : weir_resize(arena->client, block->block.pointer, bytes, stream);
    if (status == WEIR_OK)
        block->bytes = bytes;
    return status;
}

/* All kinds or none. */
static weir_status arena_grow(weir_arena *arena, const weir_plan *plan, weir_stream stream)
{
    uint64_t before[WEIR_KIND_COUNT];
    weir_status status = WEIR_OK;
    unsigned kind = 0;
    for (; kind < WEIR_KIND_COUNT && status == WEIR_OK; kind++) {
        before[kind] = arena->blocks[kind].bytes;
        uint64_t wanted = wi_round_up(arena_arena_of(plan, (weir_kind)kind), WI_UNIT);
        status = arena_resize(arena, kind, wi_max(wanted, before[kind]), stream);
    }
    if (status == WEIR_OK)
        return WEIR_OK;
    wi_saved_detail saved;
    wi_detail_save(&saved);
    while (kind-- > 0)
        if (arena_resize(arena, kind, before[kind], stream) != WEIR_OK)
            continue; /* shrinking always works, and where it does not it is no longer than it was told */
    wi_detail_restore(&saved);
    return status;
}

static weir_status arena_add(weir_arena *arena, const weir_plan *plan, weir_stream stream)
{
    plan_bucket bucket;
    weir_status status = make_bucket(plan, &bucket);
    if (status != WEIR_OK)
        return status;
    plan_bucket *buckets = realloc(arena->buckets, (arena->bucket_count + 1) * sizeof *buckets);
    if (buckets)
        arena->buckets = buckets;
    else
        status = weir_fail(WEIR_ERR_SYSTEM, "no host memory for a bucket more of %s", arena->tag);
    if (status == WEIR_OK)
        status = suits(arena, plan);
    if (status == WEIR_OK)
        status = arena_grow(arena, plan, stream);
    if (status != WEIR_OK) {
        free(bucket.actual);
        return status;
    }
    arena->buckets[arena->bucket_count++] = bucket;
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++)
        arena->blocks[kind].planned = wi_max(arena->blocks[kind].planned, arena_arena_of(plan, (weir_kind)kind));
    return WEIR_OK;
}

weir_status weir_arena_add(weir_arena *arena, const weir_plan *plan, weir_stream stream, uint32_t *bucket)
{
    WI_ENTER();
    if (!arena)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_add: NULL");
    if (atomic_exchange(&arena->running, true))
        return weir_fail(WEIR_ERR_BUSY, "%s is in a run; end that before adding a plan", arena->tag);
    weir_status status = arena_add(arena, plan, stream);
    atomic_store(&arena->running, false);
    if (status == WEIR_OK && bucket)
        *bucket = arena->bucket_count - 1;
    return status;
}

weir_status weir_arena_info(const weir_arena *arena, weir_arena_details *out)
{
    WI_ENTER();
    if (!arena || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_info: NULL");
    weir_arena_details details = {.buckets = arena->bucket_count, .running = atomic_load(&arena->running)};
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        const arena_block *block = &arena->blocks[kind];
        details.planned[kind] = block->planned;
        details.held[kind] = block->block.pointer ? block->bytes : 0;
        details.base[kind] = block->block.pointer;
    }
    if (!wi_copy_out(out, out->struct_size, &details, sizeof details))
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_info: a structure without its size");
    return WEIR_OK;
}

/* Tensors ---------------------------------------------------------------------------------------------------------- */

/* The tensor's slot; WEIR_ERR_INVALID, naming the call, for NULL and what is none. */
static weir_status arena_find_slot(const weir_arena *arena, uint32_t bucket, uint32_t tensor, const char *call,
                                   weir_slot *slot)
{
    WI_ENTER();
    if (!arena)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    if (bucket >= arena->bucket_count)
        return weir_fail(WEIR_ERR_INVALID, "%s: there is no bucket %u; %s has %u", call, bucket, arena->tag,
                         arena->bucket_count);
    *slot = (weir_slot){.struct_size = sizeof *slot};
    return weir_plan_slot(arena->buckets[bucket].plan, tensor, slot);
}

static void *arena_address(const weir_arena *arena, const weir_slot *slot)
{
    return slot->length ? (char *)arena->blocks[slot->kind].block.pointer + slot->offset : NULL;
}

/* What tensors are parameters -------------------------------------------------------------------------------------- */

static weir_status find_quietly(weir_parameters *store, const char *name, weir_parameter *out)
{
    wi_saved_detail saved;
    wi_detail_save(&saved);
    *out = (weir_parameter){.struct_size = sizeof *out};
    weir_status status = weir_parameter_info(store, name, 0, out);
    wi_detail_restore(&saved);
    return status;
}

/* Cuts a tensor's parameter down to the bytes [at, at + bytes) of the tensor's slot, which has `whole` bytes; false
 * where those are no whole elements. */
static bool arena_cut(weir_parameter *parameter, uint64_t whole, uint64_t at, uint64_t bytes)
{
    uint64_t each = parameter->elements ? whole / parameter->elements : 0, stored = wi_type_bytes(parameter->type);
    if (each == 0 || whole % parameter->elements != 0 || at % each != 0 || bytes % each != 0)
        return false;
    parameter->pointer = (char *)parameter->pointer + at / each * stored;
    parameter->elements = bytes / each;
    parameter->bytes = parameter->elements * stored;
    return true;
}

/* Finds a tensor's parameter by the tensor's name, or else by the name of the persistent tensor in whose slot the
 * tensor lies: only views of a persistent tensor share the slot. */
static void find_parameter(const weir_arena *arena, const weir_plan *plan, uint32_t tensor, const weir_slot *slot,
                           weir_parameter *out)
{
    const weir_buffers *buffers = details_of(plan).list;
    weir_buffer own = {.struct_size = sizeof own}, root = {.struct_size = sizeof root};
    weir_slot whole = {.struct_size = sizeof whole};
    weir_parameter found;
    if (!arena->parameters || weir_buffer_info(buffers, tensor, &own) != WEIR_OK)
        return;
    if (find_quietly(arena->parameters, own.name, &found) == WEIR_OK) {
        *out = found;
        return;
    }
    if (slot->root == tensor || slot->length == 0 || weir_buffer_info(buffers, slot->root, &root) != WEIR_OK ||
        !root.persistent || weir_plan_slot(plan, slot->root, &whole) != WEIR_OK)
        return;
    if (find_quietly(arena->parameters, root.name, &found) == WEIR_OK &&
        arena_cut(&found, whole.bytes, slot->offset - whole.offset, slot->bytes))
        *out = found;
}

weir_status weir_arena_tensor_info(const weir_arena *arena, uint32_t bucket, uint32_t tensor, weir_arena_tensor *out)
{
    weir_slot slot;
    weir_status status = arena_find_slot(arena, bucket, tensor, "weir_arena_tensor_info", &slot);
    if (status != WEIR_OK)
        return status;
    weir_arena_tensor found = {.pointer = arena_address(arena, &slot),
                               .bytes = arena->buckets[bucket].actual[tensor],
                               .length = slot.length,
                               .offset = slot.offset,
                               .kind = slot.kind,
                               .parameter = {.struct_size = sizeof found.parameter}};
    find_parameter(arena, arena->buckets[bucket].plan, tensor, &slot, &found.parameter);
    if (!out || !wi_copy_out(out, out->struct_size, &found, sizeof found))
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_tensor_info: NULL, or a structure without its size");
    return WEIR_OK;
}

/* Lengths and copies ----------------------------------------------------------------------------------------------- */

static const char *arena_name_of(const weir_arena *arena, uint32_t bucket, uint32_t tensor)
{
    weir_buffer buffer = {.struct_size = sizeof buffer};
    return weir_buffer_info(details_of(arena->buckets[bucket].plan).list, tensor, &buffer) == WEIR_OK ? buffer.name
                                                                                                      : "?";
}

weir_status weir_arena_set_length(weir_arena *arena, uint32_t bucket, uint32_t tensor, uint64_t bytes)
{
    weir_slot slot;
    weir_status status = arena_find_slot(arena, bucket, tensor, "weir_arena_set_length", &slot);
    if (status != WEIR_OK)
        return status;
    if (bytes > slot.length)
        return weir_fail(WEIR_ERR_INVALID, "\"%.200s\" cannot have %llu bytes: its slot in %s has %llu",
                         arena_name_of(arena, bucket, tensor), (unsigned long long)bytes, arena->tag,
                         (unsigned long long)slot.length);
    arena->buckets[bucket].actual[tensor] = bytes;
    return WEIR_OK;
}

/* Where the copy goes, if it may. */
static weir_status open_copy(const weir_arena *arena, uint32_t bucket, uint32_t tensor, uint64_t at, uint64_t bytes,
                             weir_stream stream, const char *call, char **pointer)
{
    weir_slot slot;
    weir_status status = arena_find_slot(arena, bucket, tensor, call, &slot);
    if (status != WEIR_OK)
        return status;
    if (!atomic_load(&arena->running) || arena->bucket != bucket || arena->stream.id != stream.id)
        return weir_fail(WEIR_ERR_STREAM_MISUSE,
                         "%s: \"%.200s\" is of bucket %u of %s, which no run on this stream is of", call,
                         arena_name_of(arena, bucket, tensor), bucket, arena->tag);
    uint64_t has = arena->buckets[bucket].actual[tensor];
    if (at > has || bytes > has - at)
        return weir_fail(WEIR_ERR_INVALID, "%s: %llu bytes from %llu on are not in \"%.200s\", which has %llu", call,
                         (unsigned long long)bytes, (unsigned long long)at, arena_name_of(arena, bucket, tensor),
                         (unsigned long long)has);
    *pointer = bytes ? (char *)arena_address(arena, &slot) + at : NULL;
    return WEIR_OK;
}

weir_status weir_arena_write(weir_arena *arena, uint32_t bucket, uint32_t tensor, uint64_t at, const void *from,
                             uint64_t bytes, weir_stream stream)
{
    char *to = NULL;
    weir_status status = open_copy(arena, bucket, tensor, at, bytes, stream, "weir_arena_write", &to);
    return status == WEIR_OK && to ? weir_copy(arena->runtime, to, from, bytes, stream) : status;
}

weir_status weir_arena_read(weir_arena *arena, uint32_t bucket, uint32_t tensor, uint64_t at, void *to, uint64_t bytes,
                            weir_stream stream)
{
    char *from = NULL;
    weir_status status = open_copy(arena, bucket, tensor, at, bytes, stream, "weir_arena_read", &from);
    return status == WEIR_OK && from ? weir_copy(arena->runtime, to, from, bytes, stream) : status;
}

/* Runs ------------------------------------------------------------------------------------------------------------- */

/* A run is one launch, which writes the arena's blocks and reads the parameters'. */
static weir_status arena_begin(weir_arena *arena, weir_stream stream)
{
    weir_use *uses;
    size_t own = 0, count;
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++)
        own += arena->blocks[kind].block.pointer != NULL;
    weir_status status = wi_parameters_begin_run(arena->parameters, own, &uses, &count);
    if (status != WEIR_OK)
        return status;
    for (unsigned kind = 0, i = 0; kind < WEIR_KIND_COUNT; kind++)
        if (arena->blocks[kind].block.pointer)
            uses[i++] = (weir_use){arena->blocks[kind].block, WEIR_ACCESS_READ_WRITE};
    status = weir_launch_begin(arena->runtime, stream, uses, count, &arena->launch);
    free(uses);
    if (status != WEIR_OK)
        wi_parameters_end_run(arena->parameters);
    return status;
}

weir_status weir_arena_begin(weir_arena *arena, uint32_t bucket, weir_stream stream)
{
    WI_ENTER();
    if (!arena || bucket >= arena->bucket_count)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_begin: there is no bucket %u; %s has %u", bucket,
                         arena ? arena->tag : "NULL", arena ? arena->bucket_count : 0);
    if (atomic_exchange(&arena->running, true))
        return weir_fail(WEIR_ERR_BUSY, "%s is in a run already; it has one at a time", arena->tag);
    arena->bucket = bucket;
    arena->stream = stream;
    weir_status status = arena_begin(arena, stream);
    if (status != WEIR_OK)
        atomic_store(&arena->running, false);
    return status;
}

/* The launch is over. */
static void close_run(weir_arena *arena)
{
    arena->launch = NULL;
    wi_parameters_end_run(arena->parameters);
    atomic_store(&arena->running, false);
}

weir_status weir_arena_end(weir_arena *arena)
{
    WI_ENTER();
    if (!arena || !atomic_load(&arena->running) || !arena->launch)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_end: %s is in no run", arena ? arena->tag : "NULL");
    weir_status status = weir_launch_end(arena->launch);
    if (status != WEIR_OK)
        return status;
    close_run(arena);
    return WEIR_OK;
}

void weir_arena_abort(weir_arena *arena)
{
    if (!arena || atomic_load(&wi_forked) || !atomic_load(&arena->running) || !arena->launch)
        return;
    weir_launch_abort(arena->launch);
    close_run(arena);
}
