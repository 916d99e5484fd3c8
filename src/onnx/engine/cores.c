/* Leases of the cores that a model's runs compute with (model.h). */
#include "model.h"

#include <weir/cores.h>

#include <weir/base.h>

int onnx_cores(void)
{
    weir_cores_totals now = WEIR_INIT(weir_cores_totals);
    return weir_cores_info(&now) == WEIR_OK && now.cores > 0 ? (int)now.cores : 1;
}

weir_status onnx_cores_begin(weir_engine_model *model)
{
    onnx_settings *s = &model->settings;
    if (model->device.cuda || (s->provider != ONNX_CPU && s->provider != ONNX_OPENVINO))
        return WEIR_OK;
    uint32_t threads = (uint32_t)(s->threads ? s->threads : onnx_cores());
    if (s->provider == ONNX_CPU) /* OpenVINO by itself starts a thread for each core */
        s->threads = (int)threads;
    return weir_cores_open(model->name, threads, threads, &model->cores);
}

void onnx_cores_end(weir_engine_model *model)
{
    weir_cores_close(model->cores);
}

typedef struct waiting {
    weir_engine_model *model;
    onnx_run *its;
} waiting;

static bool is_cancelled(void *user)
{
    waiting *it = user;
    pthread_mutex_lock(&it->model->lock);
    bool cancelled = it->its->cancelled;
    pthread_mutex_unlock(&it->model->lock);
    return cancelled;
}

weir_status onnx_cores_take(weir_engine_model *model, onnx_run *its)
{
    uint32_t cores;
    waiting it = {model, its};
    if (!model->cores)
        return WEIR_OK;
    weir_status status = weir_cores_take(model->cores, is_cancelled, &it, &cores);
    return status == WEIR_ERR_CANCELLED ? onnx_check_cancelled(model, its) : status;
}

void onnx_cores_give(weir_engine_model *model)
{
    if (model->cores)
        weir_cores_give(model->cores);
}
