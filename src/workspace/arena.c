/* Arenas: opening, growing and closing. */
#include "workspace/arena.h"
#include "workspace/arena_pool.h"
#include "workspace/parameters.h"
#include "runtime/runtime.h"

#include <weir/plan.h>
#include <weir/workspace.h>
#include <stdio.h>

/* What plans want ---------------------------------------------------------------------------------------------------- */

uint64_t weir_arena_bytes(const weir_plan *const *plans, size_t count, weir_kind kind)
{
    uint64_t most = 0;
    for (size_t i = 0; plans && i < count; i++)
        most = wi_max(most, weir_plan_arena(plans[i], kind));
    return most > WI_LONGEST ? UINT64_MAX : wi_round_up(most, WI_UNIT);
}

/* What the start of a kind's block must be a multiple of, for all offsets to be what the plan says. */
static uint64_t alignment_of(const weir_plan *plan, weir_kind kind)
{
    const weir_buffers *buffers = weir_plan_buffers(plan);
    weir_plan_details summary = {.struct_size = sizeof summary};
    uint64_t most = weir_plan_info(plan, &summary) == WEIR_OK ? wi_max(summary.alignment, 1) : 1;
    for (uint32_t i = 0; i < weir_buffers_count(buffers); i++) {
        weir_buffer buffer = {.struct_size = sizeof buffer};
        if (weir_buffers_get(buffers, i, &buffer) == WEIR_OK && buffer.kind == kind)
            most = wi_max(most, buffer.alignment);
    }
    return most;
}

/* Buckets ------------------------------------------------------------------------------------------------------------ */

static weir_status make_bucket(const weir_plan *plan, wi_bucket *out)
{
    if (!plan)
        return weir_fail(WEIR_ERR_INVALID, "an arena's plan is NULL");
    weir_status status = weir_plan_check(plan, NULL);
    if (status != WEIR_OK)
        return status;
    uint32_t count = weir_buffers_count(weir_plan_buffers(plan));
    *out = (wi_bucket){plan, malloc(count * sizeof(uint64_t) + 1), count};
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

/* Blocks ------------------------------------------------------------------------------------------------------------- */

static weir_status take_block(weir_arena *arena, weir_kind kind, const weir_arena_options *o, uint64_t alignment)
{
    wi_arena_block *block = &arena->blocks[kind];
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
        wi_arena_block *block = &arena->blocks[kind];
        uint64_t alignment = WI_UNIT;
        for (uint32_t i = 0; i < arena->bucket_count; i++) {
            block->planned = wi_max(block->planned, weir_plan_arena(arena->buckets[i].plan, (weir_kind)kind));
            alignment = wi_max(alignment, alignment_of(arena->buckets[i].plan, (weir_kind)kind));
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
    wi_arena_block *block = &arena->blocks[kind];
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

/* Opening and closing -------------------------------------------------------------------------------------------------- */

static void free_arena(weir_arena *arena)
{
    for (uint32_t i = 0; i < arena->bucket_count; i++)
        free(arena->buckets[i].actual);
    free(arena->buckets);
    free(arena);
}

static weir_status fill_in(weir_arena *arena, const weir_arena_options *o)
{
    weir_status status = make_buckets(arena, o->plans, o->plan_count);
    if (status == WEIR_OK)
        status = take_blocks(arena, o);
    if (status == WEIR_OK)
        return WEIR_OK;
    wi_kept_detail kept;
    wi_detail_keep(&kept);
    weir_status given = give_blocks(arena, o->stream);
    (void)given; /* what a broken driver keeps is shown as the client's */
    wi_detail_restore(&kept);
    return status;
}

static weir_status check(const weir_client *client, const weir_arena_options *o)
{
    if (!o->plans && o->plan_count)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_create: %zu plans at NULL", o->plan_count);
    if (o->pool && wi_arena_pool_runtime(o->pool) != client->runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_create: the pool is not of %s's runtime", client->account.name);
    if (o->parameters && o->parameters->client->runtime != client->runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_create: the parameters are not of %s's runtime",
                         client->account.name);
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
    status = check(client, &o);
    if (status != WEIR_OK)
        return status;
    weir_arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for an arena");
    arena->client = client;
    arena->runtime = client->runtime;
    arena->pool = o.pool;
    arena->parameters = o.parameters;
    arena->memory_class = o.memory_class == WEIR_CLASS_OTHER ? WEIR_CLASS_ACTIVATIONS : o.memory_class;
    snprintf(arena->tag, sizeof arena->tag, "%s", o.tag && *o.tag ? o.tag : "arena");
    status = fill_in(arena, &o);
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
    if (atomic_load(&arena->running))
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
    return status;
}

/* Growing -------------------------------------------------------------------------------------------------------------- */

/* Whether the blocks could serve the plan, once they are as long. */
static weir_status suits(const weir_arena *arena, const weir_plan *plan)
{
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        const wi_arena_block *block = &arena->blocks[kind];
        uint64_t wanted = weir_plan_arena(plan, (weir_kind)kind);
        if (wanted == 0)
            continue;
        if (wanted > WI_LONGEST)
            return weir_fail(WEIR_ERR_INVALID, "%s cannot serve a plan of %llu bytes, which no device has", arena->tag,
                             (unsigned long long)wanted);
        if (!block->block.pointer)
            return weir_fail(WEIR_ERR_INVALID, "%s has no memory of the kind %s; open it with a plan that has",
                             arena->tag, weir_kind_name((weir_kind)kind));
        uint64_t alignment = alignment_of(plan, (weir_kind)kind);
        if ((uintptr_t)block->block.pointer % alignment != 0)
            return weir_fail(WEIR_ERR_INVALID,
                             "%s lies at %p, and the plan wants multiples of %llu; open it with the plan", arena->tag,
                             block->block.pointer, (unsigned long long)alignment);
    }
    return WEIR_OK;
}

static weir_status resize(weir_arena *arena, unsigned kind, uint64_t bytes, weir_stream stream)
{
    wi_arena_block *block = &arena->blocks[kind];
    weir_status status =
        bytes == block->bytes ? WEIR_OK : weir_resize(arena->client, block->block.pointer, bytes, stream);
    if (status == WEIR_OK)
        block->bytes = bytes;
    return status;
}

/* All kinds or none. */
static weir_status grow(weir_arena *arena, const weir_plan *plan, weir_stream stream)
{
    uint64_t before[WEIR_KIND_COUNT];
    weir_status status = WEIR_OK;
    unsigned kind = 0;
    for (; kind < WEIR_KIND_COUNT && status == WEIR_OK; kind++) {
        before[kind] = arena->blocks[kind].bytes;
        uint64_t wanted = wi_round_up(weir_plan_arena(plan, (weir_kind)kind), WI_UNIT);
        status = resize(arena, kind, wi_max(wanted, before[kind]), stream);
    }
    if (status == WEIR_OK)
        return WEIR_OK;
    wi_kept_detail kept;
    wi_detail_keep(&kept);
    while (kind-- > 0)
        if (resize(arena, kind, before[kind], stream) != WEIR_OK)
            continue; /* shrinking always works, and where it does not it is no longer than it was told */
    wi_detail_restore(&kept);
    return status;
}

static weir_status add(weir_arena *arena, const weir_plan *plan, weir_stream stream)
{
    wi_bucket bucket;
    weir_status status = make_bucket(plan, &bucket);
    if (status != WEIR_OK)
        return status;
    wi_bucket *buckets = realloc(arena->buckets, (arena->bucket_count + 1) * sizeof *buckets);
    if (buckets)
        arena->buckets = buckets;
    else
        status = weir_fail(WEIR_ERR_SYSTEM, "no host memory for a bucket more of %s", arena->tag);
    if (status == WEIR_OK)
        status = suits(arena, plan);
    if (status == WEIR_OK)
        status = grow(arena, plan, stream);
    if (status != WEIR_OK) {
        free(bucket.actual);
        return status;
    }
    arena->buckets[arena->bucket_count++] = bucket;
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++)
        arena->blocks[kind].planned = wi_max(arena->blocks[kind].planned, weir_plan_arena(plan, (weir_kind)kind));
    return WEIR_OK;
}

weir_status weir_arena_add(weir_arena *arena, const weir_plan *plan, weir_stream stream, uint32_t *bucket)
{
    WI_ENTER();
    if (!arena)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_add: NULL");
    if (atomic_exchange(&arena->running, true))
        return weir_fail(WEIR_ERR_BUSY, "%s is in a run; end that before adding a plan", arena->tag);
    weir_status status = add(arena, plan, stream);
    atomic_store(&arena->running, false);
    if (status == WEIR_OK && bucket)
        *bucket = arena->bucket_count - 1;
    return status;
}

weir_status weir_arena_info(const weir_arena *arena, weir_arena_details *out)
{
    if (!arena || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_info: NULL");
    weir_arena_details details = {.buckets = arena->bucket_count, .running = atomic_load(&arena->running)};
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        const wi_arena_block *block = &arena->blocks[kind];
        details.planned[kind] = block->planned;
        details.held[kind] = block->block.pointer ? block->bytes : 0;
        details.base[kind] = block->block.pointer;
    }
    if (!wi_copy_out(out, out->struct_size, &details, sizeof details))
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_info: a structure without its size");
    return WEIR_OK;
}
