/* Whose fault a failure is: the request's, if the same instance answers good input; the instance's, if it does not.
 *
 * Good input is what the model has answered before: a copy of the smallest request so far, up to a bound. For an engine
 * whose answers come in pieces, and may be long, it is the warm-up, as it is for a model that has answered nothing yet.
 * A failing request costs one such run at most: several that fail at once share it, and an instance that has failed good
 * input is asked more and more rarely until it answers something. */
#include "factory/model/model.h"
#include "runtime/runtime.h"

#include <weir/engine.h>
#include <weir/model.h>

enum { GOOD_MOST = 1 << 20, RARELY = 16 };

/* A copy of what a run was asked, in one piece of memory. */
struct wi_good {
    struct wi_good *larger; /* the one before, which a check may still be reading */
    uint64_t bytes;
    weir_inference asked;
    _Alignas(WI_DATA_ALIGNMENT) char memory[];
};

/* ---- kept -------------------------------------------------------------------------------------------------------- */

/* The bytes of a request's inputs; UINT64_MAX for what is no good input, as it is too large, lacks a name or a value, or
 * lies where the processor cannot read it, or not yet. */
static uint64_t good_data(const weir_inference *asked)
{
    uint64_t bytes = 0;
    bool good = asked->stream.id == WEIR_STREAM_HOST.id && (asked->inputs || asked->input_count == 0);
    for (size_t i = 0; good && i < asked->input_count && bytes <= GOOD_MOST; i++) {
        const weir_tensor *input = wi_tensor_at(asked->inputs, i);
        good = input->name && !wi_tensor_on_device(input) && input->bytes <= GOOD_MOST &&
               (input->data || input->bytes == 0);
        bytes += good ? input->bytes : 0;
    }
    for (size_t i = 0; good && i < asked->setting_count; i++)
        good = asked->settings[i].key && asked->settings[i].value;
    return good ? bytes : UINT64_MAX;
}

static wi_good *good_copy(const weir_inference *from, uint64_t bytes)
{
    wi_good *good = NULL;
    weir_inference copy;
    if (posix_memalign((void **)&good, WI_DATA_ALIGNMENT, sizeof *good + bytes) != 0)
        return NULL;
    wi_request_pack(&(wi_packer){good->memory, 0}, from, true, &copy);
    good->bytes = bytes;
    good->asked = (weir_inference){.struct_size = sizeof good->asked,
                                   .stream = WEIR_STREAM_HOST,
                                   .inputs = copy.inputs,
                                   .input_count = copy.input_count,
                                   .settings = copy.settings,
                                   .setting_count = copy.setting_count};
    return good;
}

/* A new copy is at most half as large as the one before, of `had` bytes, so that there are few. */
static bool good_is_small(uint64_t bytes, uint64_t had)
{
    return bytes <= GOOD_MOST && (had == 0 || bytes + sizeof(wi_good) <= had / 2);
}

/* Whether the warm-up is what instances of this engine are asked with. */
static bool good_is_warm_up(const weir_engine *engine)
{
    return engine->infer_stream && engine->warm_up;
}

void wi_good_keep(weir_model *model, const wi_run *run)
{
    uint64_t had = atomic_load_explicit(&model->good_bytes, memory_order_relaxed);
    if (run->warms || good_is_warm_up(run->instance->engine))
        return;
    wi_packer size = {NULL, 0};
    weir_inference counted;
    if (!good_is_small(good_data(run->inference), had))
        return;
    wi_request_pack(&size, run->inference, true, &counted);
    uint64_t bytes = size.used;
    if (!good_is_small(bytes, had))
        return;
    wi_good *good = good_copy(run->inference, bytes);
    if (!good) /* without one, failures are judged by the one before, or by the warm-up */
        return;
    pthread_mutex_lock(&model->lock);
    good->larger = model->good;
    model->good = good;
    pthread_mutex_unlock(&model->lock);
    atomic_store_explicit(&model->good_bytes, bytes + sizeof *good, memory_order_relaxed);
}

void wi_good_free(weir_model *model)
{
    for (wi_good *larger; model->good; model->good = larger) {
        larger = model->good->larger;
        free(model->good);
    }
}

/* ---- asked ------------------------------------------------------------------------------------------------------- */

/* With which statuses a run fails where another input, or another candidate, might not. */
static bool good_decides(weir_status status)
{
    return status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_UNSUPPORTED || status == WEIR_ERR_DRIVER ||
           status == WEIR_ERR_ENGINE;
}

static weir_status good_run(const wi_instance *at, const weir_inference *asked)
{
    weir_outputs out = WEIR_INIT(weir_outputs);
    weir_status status = at->engine->infer(at->loaded, asked, &out);
    if (status == WEIR_OK)
        at->engine->release_outputs(at->loaded, &out);
    return status;
}

/* Runs good input. *known: the model has answered it, or something, so that a failure is the instance's. */
static weir_status good_try(weir_model *model, const wi_instance *at, bool *known)
{
    pthread_mutex_lock(&model->lock);
    const wi_good *good = good_is_warm_up(at->engine) ? NULL : model->good;
    *known = good || model->warm || (good_is_warm_up(at->engine) && at->answered > 0);
    pthread_mutex_unlock(&model->lock);
    if (good)
        return good_run(at, &good->asked);
    if (!at->engine->warm_up)
        return weir_fail(WEIR_ERR_NOT_FOUND, "there is no good input to ask with");
    weir_status status = at->engine->warm_up(at->loaded);
    pthread_mutex_lock(&model->lock);
    model->warm |= status == WEIR_OK;
    pthread_mutex_unlock(&model->lock);
    return status;
}

/* Judges the instance by the end of a run with good input. An end such as a cancel says nothing. */
static wi_fault good_read(weir_status status, bool known)
{
    if (status == WEIR_OK)
        return WI_FAULT_REQUEST;
    bool failed = good_decides(status) || status == WEIR_ERR_DEVICE_LOST;
    return failed && known ? WI_FAULT_INSTANCE : WI_FAULT_UNKNOWN;
}

static void good_ask(weir_model *model, wi_instance *at)
{
    bool known;
    weir_status status = good_try(model, at, &known);
    wi_fault fault = good_read(status, known);
    pthread_mutex_lock(&model->lock);
    at->checking = false;
    at->checks++;
    at->fault = fault;
    at->fails_good_with = fault == WI_FAULT_INSTANCE ? status : WEIR_OK;
    at->failures = fault == WI_FAULT_REQUEST ? 0 : at->failures;
    pthread_cond_broadcast(&model->changed);
    pthread_mutex_unlock(&model->lock);
}

bool wi_fault_looks_again(uint64_t failures)
{
    return (failures & (failures - 1)) == 0 || failures % RARELY == 0;
}

/* Counts a failure, and decides what it says: by a run of good input, by one that is under way, or by the last one. */
static wi_fault good_judge(weir_model *model, wi_run *run, weir_status *found)
{
    wi_instance *at = run->instance;
    pthread_mutex_lock(&model->lock);
    run->failures = ++at->failures;
    atomic_fetch_add(&at->judged, 1);
    uint64_t before = at->checks;
    bool mine = !at->checking && !run->warms && wi_fault_looks_again(run->failures);
    at->checking |= mine;
    while (at->checking && !mine && !run->warms && at->checks == before)
        pthread_cond_wait(&model->changed, &model->lock);
    pthread_mutex_unlock(&model->lock);
    if (mine)
        good_ask(model, at);
    pthread_mutex_lock(&model->lock);
    wi_fault fault = run->warms ? WI_FAULT_UNKNOWN : at->fault;
    *found = at->fails_good_with;
    pthread_mutex_unlock(&model->lock);
    return fault;
}

wi_fault wi_fault_of(weir_model *model, wi_run *run, weir_status *status)
{
    char text[900];
    wi_saved_detail its;
    weir_refusal refusal = WEIR_INIT(weir_refusal);
    weir_status found;
    if (!good_decides(*status) || wi_run_lacks(run) || atomic_load(&run->cancelled))
        return WI_FAULT_UNKNOWN;
    wi_detail_save(&its);
    (void)!weir_refusal_last(&refusal);
    wi_fault fault = good_judge(model, run, &found);
    wi_refusal_restore(&refusal);
    wi_detail_restore(&its);
    if (fault == WI_FAULT_REQUEST && *status == WEIR_ERR_ENGINE && !run->delivered)
        *status = weir_fail(WEIR_ERR_INVALID, "the model does not take this request, and works on with others: %s",
                            wi_shorten(its.text, text, sizeof text));
    if (found == WEIR_ERR_DEVICE_LOST)
        *status = weir_fail(found, "the device was lost: %s", wi_shorten(its.text, text, sizeof text));
    return fault;
}

void wi_fault_forget_locked(wi_instance *at)
{
    at->failures = 0;
    at->fault = WI_FAULT_REQUEST; /* for failures that have waited for a verdict meanwhile; the next one asks again */
    at->fails_good_with = WEIR_OK;
}

weir_status wi_fault_health(weir_model *model, wi_instance *at)
{
    pthread_mutex_lock(&model->lock);
    weir_status found = at->fails_good_with;
    pthread_mutex_unlock(&model->lock);
    return found == WEIR_ERR_ENGINE || found == WEIR_ERR_DRIVER
               ? weir_fail(found, "the last run failed, and so did input that the model has answered before")
               : WEIR_OK;
}
