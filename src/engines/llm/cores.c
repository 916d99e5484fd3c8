/* cores.c: see cores.h. */
#include "cores.h"

#include <weir/cores.h>

weir_status wl_cores_open(weir_engine_model *model, weir_client *client)
{
    weir_client_stats account = WEIR_INIT(weir_client_stats);
    weir_cores_totals now = WEIR_INIT(weir_cores_totals);
    model->threads = model->load.threads ? model->load.threads : model->folder.threads;
    if (model->cuda)
        return WEIR_OK;
    weir_status status = weir_client_info(client, &account);
    if (status == WEIR_OK)
        status = weir_cores_info(&now);
    if (status != WEIR_OK)
        return status;
    if (model->threads == 0)
        model->threads = now.cores;
    return weir_cores_open(account.name, (uint32_t)model->threads, (uint32_t)model->threads, &model->cores);
}

void wl_cores_close(weir_engine_model *model)
{
    weir_cores_close(model->cores);
}

weir_status wl_cores_take(weir_engine_model *model, bool (*stops)(void *user), void *user, bool *leased)
{
    uint32_t cores;
    if (!model->cores)
        return WEIR_OK;
    weir_status status = *leased ? weir_cores_renew(model->cores, stops, user, &cores)
                                 : weir_cores_take(model->cores, stops, user, &cores);
    *leased = status == WEIR_OK;
    return status;
}

void wl_cores_give(weir_engine_model *model, bool *leased)
{
    if (*leased)
        weir_cores_give(model->cores);
    *leased = false;
}
