/* Block pools, moving: blocks to and from host memory, and to blocks of the same or another pool, in stream order. */
#include "runtime/block_pool/block_pool.h"
#include <weir/block_pool.h>

/* One side of a move: blocks of a member's, or host memory. */
typedef struct side {
    weir_block_pool_member *member; /* NULL: host memory at `host` */
    const uint32_t *indices;
    char *host;
    bool written;
} side;

/* Whether the blocks are the caller's, and if they are written, the caller's alone; then the points behind which the
 * writes come are added. */
static wi_block_fault move_check_blocks(const side *s, uint32_t count, wi_block_points *points)
{
    weir_block_pool *pool = s->member->pool;
    wi_block_fault fault = {WEIR_OK, 0, ""};
    wi_blocks_lock(pool);
    for (uint32_t k = 0; k < count && fault.status == WEIR_OK; k++) {
        uint32_t index = s->indices[k];
        if (!wi_blocks_has(s->member, index))
            fault = wi_blocks_fault(s->member, index);
        else if (s->written &&
                 ((pool->shares && pool->shares[index].references > 1) || !wi_blocks_leaving(pool, index, points)))
            fault = (wi_block_fault){WEIR_ERR_BUSY, index, ""};
    }
    wi_blocks_unlock(pool);
    return fault;
}

static char *move_address(const side *s, uint32_t k, size_t bytes)
{
    if (!s->member)
        return s->host + k * bytes;
    weir_block_pool_view view = wi_blocks_view(s->member->pool);
    return weir_block_pool_at(&view, s->indices[k]);
}

static size_t move_distance(const char *one, const char *other)
{
    return one > other ? (size_t)(one - other) : (size_t)(other - one);
}

/* How many of the blocks from k on lie in a row on both sides, and can be copied at once: what is read by none of the
 * copies before it is written. */
static uint32_t move_run(const side *to, const side *from, uint32_t k, uint32_t count, size_t bytes)
{
    char *write = move_address(to, k, bytes), *read = move_address(from, k, bytes);
    uint32_t run = 1;
    while (k + run < count && move_address(to, k + run, bytes) == write + run * bytes &&
           move_address(from, k + run, bytes) == read + run * bytes && move_distance(write, read) >= (run + 1) * bytes)
        run++;
    return run;
}

static weir_status move_blocks(const side *to, const side *from, uint32_t count, weir_stream stream, const char *call)
{
    weir_block_pool *pool = to->member ? to->member->pool : from->member->pool;
    wi_block_points points = {.count = 0};
    void *native;
    weir_status status = wi_streams_resolve(&pool->runtime->streams, stream, pool->runtime->name, &native);
    const side *sides[] = {to, from};
    for (int i = 0; i < 2 && status == WEIR_OK; i++)
        if (sides[i]->member) {
            wi_block_fault fault = move_check_blocks(sides[i], count, &points);
            status = wi_blocks_report(sides[i]->member, &fault, call);
        }
    if (status == WEIR_OK)
        status = wi_blocks_order(pool, native, &points);
    for (uint32_t k = 0, run; k < count && status == WEIR_OK; k += run) {
        char *write = move_address(to, k, pool->bytes), *read = move_address(from, k, pool->bytes);
        run = move_run(to, from, k, count, pool->bytes);
        if (write != read)
            status = weir_copy(pool->runtime, write, read, run * pool->bytes, stream);
    }
    return status;
}

weir_status weir_block_pool_upload(weir_block_pool_member *member, const uint32_t *indices, uint32_t count,
                                   const void *from, weir_stream stream)
{
    static const char call[] = "weir_block_pool_upload";
    weir_status status = wi_blocks_check_list(member, from ? indices : NULL, count, call);
    if (status != WEIR_OK)
        return status;
    side to = {member, indices, NULL, true}, host = {NULL, NULL, (char *)(uintptr_t)from, false};
    return move_blocks(&to, &host, count, stream, call);
}

weir_status weir_block_pool_download(weir_block_pool_member *member, const uint32_t *indices, uint32_t count, void *to,
                                     weir_stream stream)
{
    static const char call[] = "weir_block_pool_download";
    weir_status status = wi_blocks_check_list(member, to ? indices : NULL, count, call);
    if (status != WEIR_OK)
        return status;
    side from = {member, indices, NULL, false}, host = {NULL, NULL, to, true};
    return move_blocks(&host, &from, count, stream, call);
}

weir_status weir_block_pool_copy(weir_block_pool_member *to_member, const uint32_t *to,
                                 weir_block_pool_member *from_member, const uint32_t *from, uint32_t count,
                                 weir_stream stream)
{
    static const char call[] = "weir_block_pool_copy";
    weir_status status = wi_blocks_check_list(to_member, to, count, call);
    if (status == WEIR_OK)
        status = wi_blocks_check_list(from_member, from, count, call);
    if (status != WEIR_OK)
        return status;
    const weir_block_pool *target = to_member->pool, *source = from_member->pool;
    if (target->runtime != source->runtime)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: the pool %s is of the runtime %s, and %s of another one, %s; download the blocks into "
                         "pinned memory, and upload them there",
                         call, source->tag, source->runtime->name, target->tag, target->runtime->name);
    if (target->bytes != source->bytes)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: blocks of the pool %s have %zu bytes, those of %s %zu", call,
                         source->tag, source->bytes, target->tag, target->bytes);
    side write = {to_member, to, NULL, true}, read = {from_member, from, NULL, false};
    return move_blocks(&write, &read, count, stream, call);
}
