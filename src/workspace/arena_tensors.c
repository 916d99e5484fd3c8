/* The tensors of an arena: where they are, and copies that keep to them. */
#include "workspace/arena.h"
#include <weir/plan.h>
#include <weir/workspace.h>

weir_status wi_arena_slot(const weir_arena *arena, uint32_t bucket, uint32_t tensor, const char *call, weir_slot *slot)
{
    if (!arena)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    if (bucket >= arena->bucket_count)
        return weir_fail(WEIR_ERR_INVALID, "%s: there is no bucket %u; %s has %u", call, bucket, arena->tag,
                         arena->bucket_count);
    *slot = (weir_slot){.struct_size = sizeof *slot};
    return weir_plan_slot(arena->buckets[bucket].plan, tensor, slot);
}

static void *address(const weir_arena *arena, const weir_slot *slot)
{
    return slot->length ? (char *)arena->blocks[slot->kind].block.pointer + slot->offset : NULL;
}

/* Parameters ----------------------------------------------------------------------------------------------------------- */

static weir_status find_quietly(weir_parameters *store, const char *name, weir_parameter *out)
{
    wi_kept_detail kept;
    wi_detail_keep(&kept);
    *out = (weir_parameter){.struct_size = sizeof *out};
    weir_status status = weir_parameters_find(store, name, out);
    wi_detail_restore(&kept);
    return status;
}

/* Cuts a tensor's parameter down to the bytes [at, at + bytes) of the tensor's slot, which has `whole` bytes; false where
 * those are no whole elements. */
static bool cut(weir_parameter *parameter, uint64_t whole, uint64_t at, uint64_t bytes)
{
    uint64_t each = parameter->elements ? whole / parameter->elements : 0, stored = weir_type_bytes(parameter->type);
    if (each == 0 || whole % parameter->elements != 0 || at % each != 0 || bytes % each != 0)
        return false;
    parameter->pointer = (char *)parameter->pointer + at / each * stored;
    parameter->elements = bytes / each;
    parameter->bytes = parameter->elements * stored;
    return true;
}

/* By the tensor's name; else by its slot, which a persistent tensor has to itself: what lies in that looks at it. */
static void find_parameter(const weir_arena *arena, const weir_plan *plan, uint32_t tensor, const weir_slot *slot,
                           weir_parameter *out)
{
    const weir_buffers *buffers = weir_plan_buffers(plan);
    weir_buffer own = {.struct_size = sizeof own}, root = {.struct_size = sizeof root};
    weir_slot whole = {.struct_size = sizeof whole};
    weir_parameter found;
    if (!arena->parameters || weir_buffers_get(buffers, tensor, &own) != WEIR_OK)
        return;
    if (find_quietly(arena->parameters, own.name, &found) == WEIR_OK) {
        *out = found;
        return;
    }
    if (slot->root == tensor || slot->length == 0 || weir_buffers_get(buffers, slot->root, &root) != WEIR_OK ||
        !root.persistent || weir_plan_slot(plan, slot->root, &whole) != WEIR_OK)
        return;
    if (find_quietly(arena->parameters, root.name, &found) == WEIR_OK &&
        cut(&found, whole.bytes, slot->offset - whole.offset, slot->bytes))
        *out = found;
}

weir_status weir_arena_tensor_info(const weir_arena *arena, uint32_t bucket, uint32_t tensor, weir_arena_tensor *out)
{
    weir_slot slot;
    weir_status status = wi_arena_slot(arena, bucket, tensor, "weir_arena_tensor_info", &slot);
    if (status != WEIR_OK)
        return status;
    weir_arena_tensor found = {.pointer = address(arena, &slot),
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

/* Lengths and copies --------------------------------------------------------------------------------------------------- */

static const char *name_of(const weir_arena *arena, uint32_t bucket, uint32_t tensor)
{
    weir_buffer buffer = {.struct_size = sizeof buffer};
    return weir_buffers_get(weir_plan_buffers(arena->buckets[bucket].plan), tensor, &buffer) == WEIR_OK ? buffer.name
                                                                                                        : "?";
}

weir_status weir_arena_set_length(weir_arena *arena, uint32_t bucket, uint32_t tensor, uint64_t bytes)
{
    weir_slot slot;
    weir_status status = wi_arena_slot(arena, bucket, tensor, "weir_arena_set_length", &slot);
    if (status != WEIR_OK)
        return status;
    if (bytes > slot.length)
        return weir_fail(WEIR_ERR_INVALID, "\"%.200s\" cannot have %llu bytes: its slot in %s has %llu",
                         name_of(arena, bucket, tensor), (unsigned long long)bytes, arena->tag,
                         (unsigned long long)slot.length);
    arena->buckets[bucket].actual[tensor] = bytes;
    return WEIR_OK;
}

/* Where the copy goes, if it may. */
static weir_status open_copy(const weir_arena *arena, uint32_t bucket, uint32_t tensor, uint64_t at, uint64_t bytes,
                             weir_stream stream, const char *call, char **pointer)
{
    weir_slot slot;
    weir_status status = wi_arena_slot(arena, bucket, tensor, call, &slot);
    if (status != WEIR_OK)
        return status;
    if (!atomic_load(&arena->running) || arena->bucket != bucket || arena->stream.id != stream.id)
        return weir_fail(WEIR_ERR_STREAM_MISUSE,
                         "%s: \"%.200s\" is of bucket %u of %s, which no run on this stream is of", call,
                         name_of(arena, bucket, tensor), bucket, arena->tag);
    uint64_t has = arena->buckets[bucket].actual[tensor];
    if (at > has || bytes > has - at)
        return weir_fail(WEIR_ERR_INVALID, "%s: %llu bytes from %llu on are not in \"%.200s\", which has %llu", call,
                         (unsigned long long)bytes, (unsigned long long)at, name_of(arena, bucket, tensor),
                         (unsigned long long)has);
    *pointer = bytes ? (char *)address(arena, &slot) + at : NULL;
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
