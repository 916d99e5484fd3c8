/* plan_trace.c: a recorded trace as buffers: what a plan that knew everything beforehand would have needed. */
#include "plan.h"

#include "replay.h"
#include "text.h"

#include "trace/read_binary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* RMM's own traces know nothing of classes. */
static bool has_classes(const wi_replay_plan *trace)
{
    for (size_t i = 0; i < trace->count; i++)
        if (trace->ops[i].memory_class != WEIR_CLASS_OTHER)
            return true;
    return false;
}

/* Each allocation lives from its operation to its free, or to the end. */
static weir_status add_blocks(const wi_replay_plan *trace, plan_source *out)
{
    weir_status status = weir_buffers_create(&out->buffers);
    size_t *ends = text_zeroed(trace->count, sizeof *ends), *taken_by = text_zeroed(trace->slots, sizeof *taken_by);
    uint32_t count = 0;
    if (has_classes(trace))
        out->origins = text_zeroed((size_t)trace->allocations, sizeof *out->origins);
    for (size_t i = 0; i < trace->count; i++) {
        const wi_replay_op *op = &trace->ops[i];
        if (op->frees)
            ends[taken_by[op->slot]] = i;
        else
            taken_by[op->slot] = i;
    }
    for (size_t i = 0; status == WEIR_OK && i < trace->count; i++) {
        const wi_replay_op *op = &trace->ops[i];
        if (op->frees)
            continue;
        char name[32];
        snprintf(name, sizeof name, "allocation %zu", (size_t)count + 1);
        weir_buffer buffer = {.struct_size = sizeof buffer,
                              .name = name,
                              .bytes = op->bytes,
                              .begin = i,
                              .end = ends[i] ? ends[i] : trace->count};
        status = weir_buffers_add(out->buffers, &buffer, NULL);
        if (out->origins)
            out->origins[count].maker = text_copy(weir_class_name((weir_class)op->memory_class));
        count++;
    }
    free(ends);
    free(taken_by);
    return status;
}

/* What the allocator that was recorded held, which only weir's binary trace tells. */
static weir_status read_held(const char *path, uint64_t *held)
{
    reader *r;
    weir_event event;
    bool got = true;
    weir_status status = reader_open(path, &r);
    if (status != WEIR_OK)
        return status;
    while ((status = reader_next(r, &event, &got)) == WEIR_OK && got)
        *held = event.held > *held ? event.held : *held;
    reader_close(r);
    return status;
}

/* What weir's own allocator holds, without a budget. */
static weir_status replay(const wi_replay_plan *trace, uint64_t *held)
{
    wi_replay_settings settings = {.device = "sim"};
    wi_replay_result result = {.count = 0};
    weir_status status = wi_replay_run(trace, &settings, &result);
    *held = status == WEIR_OK ? result.peak_held : 0;
    wi_replay_result_clear(&result);
    return status;
}

weir_status plan_source_trace(const plan_words *words, plan_source *out)
{
    wi_replay_plan trace;
    weir_status status = wi_replay_load(words->file, &trace);
    if (status != WEIR_OK)
        return status;
    out->requested = trace.peak;
    out->recorded_of = trace.count;
    out->left_out = trace.problem_count + trace.lost;
    if (trace.problem_count || trace.lost || trace.cut)
        out->remark = text_print("%" PRIu64 " events could not be used, %" PRIu64 " are missing%s", trace.problem_count,
                                 trace.lost, trace.cut ? ", and the file is cut off" : "");
    status = add_blocks(&trace, out);
    if (status == WEIR_OK && trace.binary)
        status = read_held(words->file, &out->recorded);
    if (status == WEIR_OK && words->replay)
        status = replay(&trace, &out->replayed);
    wi_replay_plan_clear(&trace);
    return status;
}
