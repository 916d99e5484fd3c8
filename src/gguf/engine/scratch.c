/* scratch.c: what a device's kernels and CUDA's libraries ask for while they compute, found out at load.
 *
 * llama.cpp ends the process where it gets no scratch. So the largest batch is computed at the first load, when a refusal is
 * an error like any other; what that has taken stays in llama.cpp's own pool, charged to the model. Where attention works
 * on the whole cache, scratch grows with the cells that are used: a second batch behind the first tells by how much, and
 * what a full context would take is reserved. A later load of the same model reserves all of it, and computes nothing. What a run asks for beyond comes out of the budget and, in the end, from
 * the device's free memory (interpose/cuda_redirect.h). */
#include "wg.h"

#include <stdlib.h>
#include <string.h>

typedef struct probing {
    weir_engine_model *model;
    int32_t *tokens;
    int32_t count;
    int code;
} probing;

/* The tokens' numbers do not matter; they are computed behind those of the call before. */
static void compute_batch(void *user)
{
    probing *it = user;
    const wg_library *lib = it->model->library;
    struct llama_context *context = it->model->context;
    struct llama_batch batch = lib->llama_batch_get_one(it->tokens, it->count);
    it->code = lib->llama_get_memory(context) ? lib->llama_decode(context, batch) : lib->llama_encode(context, batch);
    lib->llama_synchronize(context);
}

static void forget_all(void *user)
{
    probing *it = user;
    llama_memory_t memory = it->model->library->llama_get_memory(it->model->context);
    if (memory)
        it->model->library->llama_memory_clear(memory, false);
}

/* A run would get it all the same, past the budget; a load is refused. */
static weir_status does_not_fit(const probing *it, uint64_t bytes)
{
    weir_refusal why = WEIR_INIT(weir_refusal);
    char more[24], limit[24], all[24];
    if (weir_refusal_last(&why) != WEIR_OK)
        return WEIR_ERR_OUT_OF_MEMORY;
    return weir_fail(WEIR_ERR_OUT_OF_MEMORY,
                     "%s has no room on %s for the scratch of %d tokens at once: %s more than its limit of %s; this "
                     "model needs at least %s, or a smaller 'batch'",
                     why.client, why.device, it->count, weir_size_format(bytes, more, sizeof more),
                     weir_size_format(why.limit, limit, sizeof limit),
                     weir_size_format(why.limit + bytes, all, sizeof all));
}

/* One batch more; `scratch` is what the devices have of it then. */
static weir_status scratch_probe(probing *it, uint64_t *scratch)
{
    char thrown[512] = "";
    wg_phase phase;
    wg_log_forget();
    wg_cache_begin(it->model);
    wg_phase_begin(&phase, WG_RUNNING, it->model);
    bool whole = wg_guarded(compute_batch, it, thrown, sizeof thrown);
    wg_phase_end(&phase);
    wg_cache_end(it->model);
    wg_devices_scratch(&it->model->devices, scratch);
    if (whole && it->code == 0)
        return phase.scope.overrun == 0 ? WEIR_OK : does_not_fit(it, phase.scope.overrun);
    if (phase.refusal != WEIR_OK)
        return weir_fail(phase.refusal, "%s", phase.detail);
    const char *words = thrown[0] ? thrown : wg_log_first_error();
    return weir_fail(WEIR_ERR_ENGINE, "llama.cpp cannot compute %d tokens at once: %s", it->count,
                     words[0] ? words : "no reason given");
}

/* For the cells between those that were measured and the last. */
static void scratch_work_out(const weir_engine_model *model, const uint64_t *first, const uint64_t *second,
                             uint32_t measured, wg_scratch *out)
{
    for (size_t i = 0; i < model->devices.count; i++) {
        uint64_t more = second[i] > first[i] ? second[i] - first[i] : 0;
        out->grows[i] = model->longest > measured ? more / measured * (model->longest - measured) : 0;
    }
}

/* `taken`: also what the batches would have taken. */
static weir_status scratch_reserve(weir_engine_model *model, const wg_scratch *known, bool taken)
{
    wg_devices *devices = &model->devices;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < devices->count && status == WEIR_OK; i++) {
        uint64_t wanted = known->grows[i] + (taken ? known->taken[i] : 0);
        if (wanted > 0)
            status = weir_reservation_create(devices->clients[i], wanted, 0, &devices->reserves[i]);
    }
    return status;
}

/* Two batches, where scratch may grow with the cells; one elsewhere. */
static weir_status scratch_measure(probing *it, wg_scratch *out)
{
    uint64_t before[WG_DEVICES] = {0}, first[WG_DEVICES] = {0}, second[WG_DEVICES] = {0};
    weir_engine_model *model = it->model;
    bool grows = !model->embeds && model->longest >= 2 * model->pack;
    wg_devices_scratch(&model->devices, before);
    weir_status status = wg_cache_grow(model, 0, grows ? 2 * model->pack : model->pack);
    if (status == WEIR_OK)
        status = scratch_probe(it, first);
    if (status == WEIR_OK && grows)
        status = scratch_probe(it, second);
    if (status == WEIR_OK && grows)
        scratch_work_out(model, first, second, 2 * model->pack, out);
    for (size_t i = 0; i < model->devices.count; i++) {
        uint64_t most = second[i] > first[i] ? second[i] : first[i];
        out->taken[i] = most > before[i] ? most - before[i] : 0;
    }
    char thrown[512];
    if (!wg_guarded(forget_all, it, thrown, sizeof thrown) && status == WEIR_OK)
        status = weir_fail(WEIR_ERR_ENGINE, "llama.cpp cannot clear its cache: %s", thrown);
    wg_cache_shrink(model, 0, 0);
    wg_cache_rest(model, false);
    return status;
}

weir_status wg_scratch_measure(weir_engine_model *model)
{
    wg_scratch known = {{0}, {0}};
    if (model->devices.count == 0)
        return WEIR_OK;
    if (wg_scratch_recall(model, &known))
        return scratch_reserve(model, &known, true);
    probing it = {.model = model, .count = (int32_t)model->pack};
    it.tokens = calloc(model->pack, sizeof *it.tokens);
    if (!it.tokens)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for %u tokens", model->pack);
    weir_status status = scratch_measure(&it, &known);
    if (status == WEIR_OK)
        status = scratch_reserve(model, &known, false);
    if (status == WEIR_OK)
        wg_scratch_remember(model, &known);
    free(it.tokens);
    return status;
}
