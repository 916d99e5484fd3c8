/* Runs: one launch that writes the arena's blocks and reads the parameters'. */
#include "workspace/arena.h"
#include <weir/workspace.h>
#include "workspace/parameters.h"

static weir_status begin(weir_arena *arena, weir_stream stream)
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
    weir_status status = begin(arena, stream);
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
