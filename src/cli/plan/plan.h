/* plan.h: what the files of the verb plan share: its arguments, the source of the buffers, the answer. */
#ifndef WEIR_CLI_PLAN_PLAN_H
#define WEIR_CLI_PLAN_PLAN_H

#include <weir/weir.h>
#include <weir/plan.h>

#include <jansson.h>

/* Arguments -------------------------------------------------------------------------------------------------------- */

/* --dim NAME=N, --shape NAME=NxNxN or NAME=NxNxN:TYPE */
typedef struct plan_shape_arg {
    char *name;
    char *type;    /* of a shape; NULL: not given */
    uint32_t rank; /* of a dimension 1 */
    int64_t dims[WEIR_MAX_RANK];
} plan_shape_arg;

typedef struct plan_args {
    char *file;
    const char *svg, *save;
    bool csv, json, places, quick, in_place, replay;
    uint64_t align; /* 0: by the kind of file */
    double seconds; /* 0: no limit */
    plan_shape_arg *dims, *shapes;
    size_t dim_count, shape_count;
} plan_args;

/* The last part of its path. */
const char *plan_file_name(const plan_args *args);

/* A folder of ONNX Runtime GenAI's becomes the file of its graph. */
weir_status plan_graph_find(plan_args *args);

/* The source of the buffers ---------------------------------------------------------------------------------------- */

typedef enum plan_kind { PLAN_LIST, PLAN_MODEL, PLAN_TRACE, PLAN_SAVED } plan_kind;

/* What is known of a buffer beside its place and time. */
typedef struct plan_origin {
    char *maker; /* the operator that makes it, or the class of a block; NULL: not known */
    char *shape; /* "1x64x112x112 float"; NULL: not known */
} plan_origin;

typedef struct plan_source {
    plan_kind kind;
    weir_buffers *buffers;
    weir_plan *plan;      /* the saved plan, with its own buffers; else NULL */
    plan_origin *origins; /* by buffer; NULL: nothing is known */
    char **steps;         /* what runs in a step; NULL: not known */
    size_t step_count;
    /* of a model */
    uint64_t weights, constants, inputs, outputs;
    uint32_t weight_count;
    size_t views, folded;
    /* of a trace */
    uint64_t requested;             /* the most that was live at once */
    uint64_t recorded, replayed;    /* what allocators held at the most; 0: not known */
    uint64_t recorded_of, left_out; /* events of the trace; events that could not be used */
    char *remark;                   /* NULL: none */
} plan_source;

/* source.c: recognises the kind of file by its content. On failure the detail says why, and *out is empty. */
weir_status plan_source_load(const plan_args *args, plan_source *out);
void plan_source_clear(plan_source *source);

/* model.c */
weir_status plan_source_model(const plan_args *args, plan_source *out);

/* The answer ------------------------------------------------------------------------------------------------------- */

typedef struct plan_answer {
    const plan_args *args;
    const plan_source *source;
    weir_plan *plan;
    weir_plan_details summary;
} plan_answer;

void plan_print(const plan_answer *answer);
json_t *plan_json(const plan_answer *answer);
void plan_print_csv(const plan_answer *answer);
weir_status plan_draw(const plan_answer *answer, const char *path);

/* A storage: bytes of a buffer and of its views, as the picture and the rows show it. */
typedef struct plan_storage {
    uint32_t buffer;
    uint32_t over;       /* the storage over whose bytes it is written; WEIR_NO_BUFFER: none */
    uint64_t begin, end; /* from the first use to the last, views included, or until it is written over */
    uint64_t offset, length;
    uint32_t views;
} plan_storage;

/* In the order of the buffers. `pieces`: storages are split at their gaps. The caller frees the list. */
plan_storage *plan_storages(const weir_plan *plan, bool pieces, size_t *count);

/* ---- what lists of buffers and plans tell of themselves, where one member is asked for; of NULL nothing ---------- */

static inline weir_buffers_details plan_list_info(const weir_buffers *buffers)
{
    weir_buffers_details details = WEIR_INIT(weir_buffers_details);
    if (!buffers || weir_buffers_info(buffers, &details) != WEIR_OK)
        details.count = 0;
    return details;
}

static inline weir_plan_details plan_info(const weir_plan *plan)
{
    weir_plan_details details = WEIR_INIT(weir_plan_details);
    if (!plan || weir_plan_info(plan, &details) != WEIR_OK)
        details.list = NULL;
    return details;
}

#endif
