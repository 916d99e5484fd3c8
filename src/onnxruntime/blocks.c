/* Device memory as runs of blocks of a pool: what ONNX Runtime asks for, rounded up to whole blocks. */
#include "onnxruntime/bridge.h"
#include <weir/block_pool.h>
#include "runtime/block_pool/block_pool.h"

weir_status wi_ort_runs_init(wi_ort_runs *runs, weir_block_pool_member *member)
{
    runs->view = WEIR_INIT(weir_block_pool_view);
    weir_status status = weir_block_pool_view_info(member->pool, &runs->view);
    if (status != WEIR_OK)
        return status;
    runs->at = calloc(runs->view.count, sizeof *runs->at);
    if (!runs->at)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the runs of a pool of %u blocks", runs->view.count);
    runs->member = member;
    return WEIR_OK;
}

void wi_ort_runs_destroy(wi_ort_runs *runs)
{
    free(runs->at);
    runs->at = NULL;
    runs->member = NULL;
}

weir_status wi_ort_runs_take(wi_ort_runs *runs, size_t bytes, weir_stream stream, void **out)
{
    uint64_t count = bytes / runs->view.bytes + (bytes % runs->view.bytes != 0);
    uint32_t first;
    if (count > runs->view.count)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "%zu bytes are %llu blocks of %zu bytes; the pool has %u", bytes,
                         (unsigned long long)count, runs->view.bytes, runs->view.count);
    weir_status status = weir_block_pool_alloc_run(runs->member, (uint32_t)count, stream, &first);
    if (status != WEIR_OK)
        return status;
    runs->at[first].stream = stream;
    atomic_store(&runs->at[first].length, (uint32_t)count);
    *out = weir_block_pool_at(&runs->view, first);
    return WEIR_OK;
}

weir_status wi_ort_runs_give(wi_ort_runs *runs, void *pointer, weir_stream stream)
{
    uint32_t first = weir_block_pool_index(&runs->view, pointer);
    if (first == WEIR_BLOCK_POOL_NONE)
        return weir_fail(WEIR_ERR_FOREIGN, "%p is no block of the pool", pointer);
    if (weir_block_pool_at(&runs->view, first) != pointer)
        return weir_fail(WEIR_ERR_INTERIOR, "%p lies in block %u of the pool and does not begin it", pointer, first);
    uint32_t count = atomic_exchange(&runs->at[first].length, 0);
    if (count == 0)
        return weir_fail(WEIR_ERR_DOUBLE_FREE,
                         "no run begins at block %u of the pool: it was given back, or never taken", first);
    weir_status status = weir_block_pool_free(runs->member, first, count, stream);
    if (status != WEIR_OK)
        atomic_store(&runs->at[first].length, count);
    return status;
}

weir_stream wi_ort_runs_stream(const wi_ort_runs *runs, const void *pointer)
{
    uint32_t first = weir_block_pool_index(&runs->view, pointer);
    bool begins = first != WEIR_BLOCK_POOL_NONE && weir_block_pool_at(&runs->view, first) == pointer &&
                  atomic_load(&runs->at[first].length) != 0;
    return begins ? runs->at[first].stream : WEIR_STREAM_HOST;
}
