/* A block that was freed serves again where it is, without the bytes having been anyone's in between. */
#include "memory/space/stream_uses.h"
#include "memory/adaptors/nvtx.h"
#include "memory/resource.h"

/* Still pending: it is live when it is published. With the lock held. */
static void reuse_renew(wi_block *block, const wi_placement *p)
{
    wi_stream_uses_free(block->stream_uses);
    block->stream_uses = NULL;
    block->rung = WEIR_RUNG_FIT;
    block->lent = 0;
    block->previous = wi_account_owner(block->account);
    wi_block_came_behind(block);
    wi_store(block->bytes, p->bytes);
    wi_store(block->tag, p->tag);
    wi_store(block->memory_class, p->memory_class);
    wi_store(block->stream.id, p->stream.id);
    atomic_store_explicit(&block->word, wi_new_generation() << WI_GENERATION_SHIFT | WI_PENDING, memory_order_release);
}

weir_status wi_reuse(wi_resource *base, wi_placement *p, wi_block **out)
{
    wi_block *block = p->held;
    weir_status status = WEIR_OK;
    wi_assert(block->account == p->account && p->before + p->after == 0 && block->before + block->after == 0);
    wi_assert(block->charged == p->charged || (base->table->join && block->charged > p->charged));
    p->rest = NULL;
    if (block->charged > p->charged)
        status = base->table->shrink(base, block, p->bytes, p->native, &p->rest);
    if (status != WEIR_OK)
        return status;
    wi_ledger_let_go(base->ledger, block, p->memory_class);
    wi_resource_lock(base);
    reuse_renew(block, p);
    wi_resource_unlock(base);
    wi_nvtx_resize(base, block);
    p->hit = true;
    *out = block;
    return WEIR_OK;
}
