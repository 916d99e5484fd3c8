/* What runtimes and clients tell of themselves, where a test asks for one member. */
#ifndef TESTS_INFO_H
#define TESTS_INFO_H

#include <weir/model.h>
#include <weir/onnxruntime.h>
#include <weir/plan.h>
#include <weir/trace.h>
#include <weir/weir.h>

#include <stdlib.h>

static inline weir_runtime_details runtime_details(const weir_runtime *of)
{
    weir_runtime_details details = WEIR_INIT(weir_runtime_details);
    if (weir_runtime_info(of, &details) != WEIR_OK)
        abort();
    return details;
}

static inline weir_client_stats client_details(weir_client *of)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    if (weir_client_info(of, &stats) != WEIR_OK)
        abort();
    return stats;
}

/* Of one element. */
static inline size_t type_bytes(weir_type type)
{
    size_t bytes;
    if (weir_tensor_bytes(type, 0, NULL, &bytes) != WEIR_OK)
        abort();
    return bytes;
}

static inline weir_buffers_details list_details(const weir_buffers *of)
{
    weir_buffers_details details = WEIR_INIT(weir_buffers_details);
    if (weir_buffers_info(of, &details) != WEIR_OK)
        abort();
    return details;
}

static inline weir_plan_details plan_details(const weir_plan *of)
{
    weir_plan_details details = WEIR_INIT(weir_plan_details);
    if (weir_plan_info(of, &details) != WEIR_OK)
        abort();
    return details;
}

static inline const uint32_t *schedule_of(const weir_plan *of, size_t *steps)
{
    weir_buffers_details details = list_details(plan_details(of).list);
    *steps = details.schedule_steps;
    return details.schedule;
}

/* What an arena of the plans is charged. */
static inline uint64_t arena_bytes(const weir_plan *const *plans, size_t count, weir_kind kind)
{
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++)
        most = plan_details(plans[i]).arena_of[kind] > most ? plan_details(plans[i]).arena_of[kind] : most;
    return (most + 255) / 256 * 256;
}

static inline weir_trace_details trace_details(const weir_trace *of)
{
    weir_trace_details details = WEIR_INIT(weir_trace_details);
    if (weir_trace_info(of, &details) != WEIR_OK)
        abort();
    return details;
}

static inline weir_status note_record(weir_runtime *runtime, uint64_t event, weir_stream stream)
{
    weir_note note = WEIR_INIT(weir_note);
    note.action = WEIR_ACTION_NOTE_RECORD;
    note.event = event;
    note.stream = stream;
    return weir_trace_note(runtime, &note);
}

static inline weir_status note_wait(weir_runtime *runtime, uint64_t event, weir_stream stream)
{
    weir_note note = WEIR_INIT(weir_note);
    note.action = WEIR_ACTION_NOTE_WAIT;
    note.event = event;
    note.stream = stream;
    return weir_trace_note(runtime, &note);
}

static inline weir_status note_use(weir_runtime *runtime, const void *pointer, size_t bytes, weir_stream stream,
                                   weir_access access)
{
    weir_note note = WEIR_INIT(weir_note);
    note.action = WEIR_ACTION_NOTE_USE;
    note.pointer = pointer;
    note.bytes = bytes;
    note.stream = stream;
    note.access = access;
    return weir_trace_note(runtime, &note);
}

/* NULL: none is registered. */
static inline weir_client *registered_client(const struct OrtEnv *env, const char *device)
{
    weir_onnxruntime_details details = WEIR_INIT(weir_onnxruntime_details);
    weir_onnxruntime *bridge = weir_onnxruntime_registered(env, device);
    if (bridge && weir_onnxruntime_info(bridge, &details) != WEIR_OK)
        abort();
    return details.client;
}

static inline struct OrtAllocator *bridge_allocator(weir_onnxruntime *of, weir_kind kind)
{
    weir_onnxruntime_details details = WEIR_INIT(weir_onnxruntime_details);
    if (weir_onnxruntime_info(of, &details) != WEIR_OK)
        abort();
    return details.allocators[kind];
}

/* Of the engine that the model is on. */
static inline const char *engine_name(weir_model *of)
{
    weir_model_details details = WEIR_INIT(weir_model_details);
    if (weir_model_info(of, &details) != WEIR_OK)
        abort();
    return details.engine;
}

/* An inference whose answer comes piece by piece. */
static inline weir_status model_infer_stream(weir_model *model, const weir_inference *inference, weir_piece_fn piece,
                                             void *user, weir_outputs *out)
{
    weir_inference request = *inference;
    request.piece = piece;
    request.piece_user = user;
    return weir_model_infer(model, &request, out);
}

#endif
