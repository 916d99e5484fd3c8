/* cache.c: the cells of the KV cache that sequences use. All of them are there from the load on, so nothing is done. */
#include "wg.h"

weir_status wg_cache_grow(weir_engine_model *model, int32_t seq, uint32_t cells)
{
    (void)model, (void)seq, (void)cells;
    return WEIR_OK;
}

void wg_cache_shrink(weir_engine_model *model, int32_t seq, uint32_t cells)
{
    (void)model, (void)seq, (void)cells;
}
