/* plan.c: what a model will take, by letting llama.cpp lay everything out without allocating it. */
#include "wg.h"

#include <string.h>

static weir_status measure(weir_engine_model *model, const wg_phase *phase, weir_engine_plan *out)
{
    uint64_t bytes[WEIR_CLASS_COUNT] = {0};
    bool exact[WEIR_CLASS_COUNT] = {0};
    if (!wg_breakdown(model->library->breakdown, model->context, &bytes[WEIR_WEIGHTS], &bytes[WEIR_KV],
                      &bytes[WEIR_SCRATCH]))
        return weir_fail(WEIR_ENGINE, "llama.cpp does not tell what a '%s' takes", model->facts.architecture);
    bytes[WEIR_ACTIVATIONS] = phase->planned_output;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        exact[i] = true;
    /* With more tokens at once than at load, the buffer of the outputs grows. */
    exact[WEIR_ACTIVATIONS] = !model->embeds;
    if (model->load.mmap) {
        bytes[WEIR_WEIGHTS] = 0;
        exact[WEIR_WEIGHTS] = false;
    }
    memcpy(out->bytes, bytes, sizeof out->bytes);
    memcpy(out->exact, exact, sizeof out->exact);
    return WEIR_OK;
}

weir_status wg_plan(const weir_engine_load *load, weir_engine_plan *out)
{
    weir_engine_model model = {0};
    wg_phase phase = {0};
    weir_status status = wg_prepare(load, true, &model);
    if (status == WEIR_OK)
        status = wg_make_model(&model, load, &phase, true);
    if (status == WEIR_OK)
        status = wg_make_context(&model, &phase);
    if (status == WEIR_OK)
        status = measure(&model, &phase, out);
    wg_drop(&model);
    return status;
}
