/* source.c: where the buffers of a plan come from: the kind of the file, and traces. */
#include "plan.h"
#include <weir/trace.h>
#include <weir/plan.h>

#include "cli/replay/replay.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "trace/format.h"
#include "trace/recording.h"
#include "base/paths.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Traces ----------------------------------------------------------------------------------------------------------- */

/* RMM's own traces have no classes. */
static bool has_classes(const wi_replay_plan *trace)
{
    for (size_t i = 0; i < trace->count; i++)
        if (trace->ops[i].memory_class != WEIR_CLASS_OTHER)
            return true;
    return false;
}

/* Each allocation is a buffer that lives from its operation to its free, or to the end of the trace. */
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
            out->origins[count].maker = text_copy(weir_name_of(WEIR_NAMES_CLASS, (int)op->memory_class));
        count++;
    }
    free(ends);
    free(taken_by);
    return status;
}

/* The most that weir's allocator holds for the same trace, on the simulated device without a budget. */
static weir_status plan_source_replay(const char *path, uint64_t *held)
{
    const char *const command[] = {"replay", "--json", "--", path, NULL};
    json_t *answer = beside_call_sim(command);
    if (answer == NULL)
        return WEIR_ERR_SYSTEM;
    *held = (uint64_t)json_integer_value(json_object_get(answer, "peak_reserved"));
    json_decref(answer);
    return WEIR_OK;
}

static weir_status load_trace(const plan_args *args, plan_source *out)
{
    wi_replay_plan trace;
    weir_status status = wi_replay_load(args->file, &trace);
    if (status != WEIR_OK)
        return status;
    out->requested = trace.peak;
    out->recorded_of = trace.count;
    out->left_out = trace.problem_count + trace.lost;
    if (trace.problem_count || trace.lost || trace.cut)
        out->remark = text_print("%" PRIu64 " events could not be used, %" PRIu64 " are missing%s", trace.problem_count,
                                 trace.lost, trace.cut ? ", and the file is cut off" : "");
    status = add_blocks(&trace, out);
    out->recorded = trace.held;
    if (status == WEIR_OK && args->replay)
        status = plan_source_replay(args->file, &out->replayed);
    wi_replay_plan_clear(&trace);
    return status;
}

/* Kinds of files --------------------------------------------------------------------------------------------------- */

/* Reads the start of the file as a text, enough for the names of a table's columns. */
static weir_status read_front(const char *path, char *front, size_t capacity, size_t *size)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return weir_fail(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "cannot read %s: %s", path,
                         strerror(errno));
    *size = fread(front, 1, capacity - 1, file);
    front[*size] = '\0';
    weir_status status =
        ferror(file) ? weir_fail(WEIR_ERR_SYSTEM, "cannot read %s: %s", path, strerror(errno)) : WEIR_OK;
    fclose(file);
    if (status == WEIR_OK && *size == 0)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: the file is empty", path);
    return status;
}

static bool plan_source_is_text(const char *front, size_t size)
{
    for (size_t i = 0; i < size && front[i] != '\n'; i++)
        if ((unsigned char)front[i] < 0x20 && front[i] != '\t' && front[i] != '\r')
            return false;
    return true;
}

static plan_kind plan_source_kind_of(char *front, size_t size)
{
    static const unsigned char gzip[] = {0x1f, 0x8b};
    if ((size >= 8 && memcmp(front, WI_TRACE_MAGIC, 8) == 0) || (size >= 2 && memcmp(front, gzip, 2) == 0))
        return PLAN_TRACE;
    if (front[0] == '\x80' && recording_is_pickle((const unsigned char *)front, size)) /* no model begins so */
        return PLAN_TRACE;
    if (!plan_source_is_text(front, size))
        return PLAN_MODEL;
    front[strcspn(front, "\n")] = '\0';
    if (strncmp(front, "weir-plan ", 10) == 0)
        return PLAN_SAVED;
    return strcasestr(front, "Action") && strcasestr(front, "Pointer") ? PLAN_TRACE : PLAN_LIST;
}

static weir_status check_not_model(const plan_args *args)
{
    if (args->dim_count + args->shape_count == 0)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID, "%s is no model: there is nothing that --%s could be for", args->file,
                     args->dim_count ? "dim" : "shape");
}

/* A saved plan is shown as it is: options that change planning are refused. */
static weir_status check_not_planned(const plan_args *args)
{
    const char *option = args->align ? "align" : args->quick ? "quick" : args->seconds > 0 ? "seconds" : NULL;
    if (!option)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID,
                     "%s is a plan, which is shown and not made again: there is nothing that --%s could "
                     "be for",
                     args->file, option);
}

weir_status plan_source_load(const plan_args *args, plan_source *out)
{
    char front[4096];
    size_t size = 0;
    *out = (plan_source){.buffers = NULL};
    weir_status status = read_front(args->file, front, sizeof front, &size);
    if (status != WEIR_OK)
        return status;
    plan_kind kind = plan_source_kind_of(front, size);
    if (kind != PLAN_MODEL && (status = check_not_model(args)) != WEIR_OK)
        return status;
    if (kind == PLAN_SAVED && (status = check_not_planned(args)) != WEIR_OK)
        return status;
    status = kind == PLAN_MODEL   ? plan_source_model(args, out)
             : kind == PLAN_TRACE ? load_trace(args, out)
             : kind == PLAN_SAVED ? weir_plan_load(args->file, &out->plan)
                                  : weir_buffers_read_csv(args->file, &out->buffers);
    out->kind = kind;
    if (status != WEIR_OK)
        plan_source_clear(out);
    return status;
}

void plan_source_clear(plan_source *source)
{
    uint32_t count = source->buffers ? plan_list_info(source->buffers).count : 0;
    for (uint32_t i = 0; source->origins && i < count; i++) {
        free(source->origins[i].maker);
        free(source->origins[i].shape);
    }
    for (size_t i = 0; i < source->step_count; i++)
        free(source->steps[i]);
    free(source->origins);
    free(source->steps);
    free(source->remark);
    weir_buffers_destroy(source->buffers);
    weir_plan_destroy(source->plan);
    *source = (plan_source){.buffers = NULL};
}

#ifndef WEIR_PLAN_MODELS
weir_status plan_source_model(const plan_args *args, plan_source *out)
{
    (void)out;
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "%s: neither a list nor a trace, and this weir cannot read models: it was built without nanopb "
                     "(apt install libnanopb-dev)",
                     args->file);
}
#endif

/* ---- the graph of a model in ONNX Runtime GenAI's form ----------------------------------------------------------- */

static const char config_name[] = "genai_config.json";

/* With a slash at its end; "" is the working directory. */
static char *plan_folder_of(const char *path)
{
    if (!wi_suffix_of(config_name, path))
        return text_print("%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/");
    const char *slash = strrchr(path, '/');
    return text_print("%.*s", slash ? (int)(slash + 1 - path) : 0, path);
}

/* GenAI's own name for it is taken where the config has none. */
static weir_status plan_folder_read_name(const char *config, char **name)
{
    json_error_t error;
    json_t *root = json_load_file(config, 0, &error);
    const json_t *decoder = json_object_get(json_object_get(root, "model"), "decoder");
    const json_t *given = json_object_get(decoder, "filename");
    weir_status status = WEIR_OK;
    if (!root)
        status = weir_fail(WEIR_ERR_CORRUPT, "%s:%d:%d: %s", config, error.line, error.column, error.text);
    else if (!json_is_object(decoder) || (given && !json_is_string(given)))
        status = weir_fail(WEIR_ERR_CORRUPT, "%s names no graph: \"model\", \"decoder\", \"filename\"", config);
    else
        *name = text_copy(given ? json_string_value(given) : "model.onnx");
    json_decref(root);
    return status;
}

weir_status plan_graph_find(plan_args *args)
{
    if (!wi_path_taken(config_name, args->file))
        return WEIR_OK;
    char *folder = plan_folder_of(args->file), *config = text_print("%s%s", folder, config_name), *name = NULL;
    weir_status status = plan_folder_read_name(config, &name);
    if (status == WEIR_OK) {
        free(args->file);
        args->file = text_print("%s%s", folder, name);
    }
    free(name);
    free(config);
    free(folder);
    return status;
}
