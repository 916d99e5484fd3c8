/* What a model takes beside the client's memory, on the heap: the engine's graph and kernels, trees, what its optimizer makes. */
#include "model.h"

#include <features.h>
#include <malloc.h>

uint64_t onnx_heap_used(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
#else
    return 0;
#endif
}

static weir_status outside_claim(weir_engine_model *model)
{
    char size[24];
    weir_status status = weir_reservation_create(model->client, model->outside, 0, &model->counted);
    if (status != WEIR_ERR_OUT_OF_MEMORY)
        return status;
    char words[900];
    snprintf(words, sizeof words, "%s", weir_detail());
    return weir_fail(
        status,
        "%s; it is for what ONNX Runtime takes of the heap for the model, %s, which outside=counted has counted", words,
        weir_size_format(model->outside, size, sizeof size));
}

weir_status onnx_outside_note(weir_engine_model *model, uint64_t before)
{
    uint64_t now = onnx_heap_used();
    model->outside = now > before ? now - before : 0;
    if (model->outside == 0 || model->device.cuda)
        return WEIR_OK;
    weir_status status = weir_client_note_outside(model->client, model->outside, "growth of the heap over the load");
    return status == WEIR_OK && model->settings.outside_counts ? outside_claim(model) : status;
}

void onnx_outside_end(weir_engine_model *model)
{
    if (model->counted && weir_reservation_destroy(model->counted) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: %s: what lies outside is still claimed: %s", model->name, weir_detail());
    model->counted = NULL;
}
