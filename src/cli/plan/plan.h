/* plan.h: `weir plan`: where the buffers come from, and how the answer looks. */
#ifndef WEIR_CLI_PLAN_H
#define WEIR_CLI_PLAN_H

#include <weir/weir.h>

#include <jansson.h>

/* Words ------------------------------------------------------------------------------------------------------------ */

/* --dim NAME=N, --shape NAME=NxNxN or NAME=NxNxN:TYPE */
typedef struct plan_given {
    char *name;
    char *type;    /* of a shape; NULL: not given */
    uint32_t rank; /* of a dimension 1 */
    int64_t dims[WEIR_MAX_RANK];
} plan_given;

typedef struct plan_words {
    char *file;
    const char *svg, *save;
    bool csv, json, places, quick, in_place, replay;
    uint64_t align; /* 0: by the kind of file */
    double seconds; /* 0: no limit */
    plan_given *dims, *shapes;
    size_t dim_count, shape_count;
} plan_words;

/* The last part of its path. */
const char *plan_file_name(const plan_words *words);

/* Where it comes from ---------------------------------------------------------------------------------------------- */

typedef enum plan_kind { PLAN_LIST, PLAN_MODEL, PLAN_TRACE, PLAN_SAVED } plan_kind;

/* A buffer beside its place and time. */
typedef struct plan_origin {
    char *maker; /* the operator that makes it, or the class of a block; NULL: not known */
    char *looks; /* "1x64x112x112 float"; NULL: not known */
} plan_origin;

typedef struct plan_source {
    plan_kind kind;
    weir_buffers *buffers;
    weir_plan *plan;      /* of a saved one, which has its own buffers */
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
    uint64_t recorded_of, left_out; /* events of the trace; those that could not be used */
    char *remark;                   /* NULL: none */
} plan_source;

/* Tells the kind of file by its content. On failure the detail says why, and *out is empty. */
weir_status plan_source_load(const plan_words *words, plan_source *out);
void plan_source_clear(plan_source *source);

/* One each, for plan_source_load. */
weir_status plan_source_model(const plan_words *words, plan_source *out);
weir_status plan_source_trace(const plan_words *words, plan_source *out);

/* The answer ------------------------------------------------------------------------------------------------------- */

typedef struct plan_answer {
    const plan_words *words;
    const plan_source *source;
    weir_plan *plan;
    weir_plan_summary summary;
} plan_answer;

void plan_print(const plan_answer *answer);
json_t *plan_json(const plan_answer *answer);
json_t *plan_places_json(const plan_answer *answer); /* every buffer */
void plan_print_csv(const plan_answer *answer);
weir_status plan_draw(const plan_answer *answer, const char *path);

/* The storages of a plan: what has bytes of its own, as the picture and the rows show it. */
typedef struct plan_storage {
    uint32_t buffer;
    uint32_t over;       /* storage whose bytes it is written over; WEIR_NO_BUFFER: none */
    uint64_t begin, end; /* with all its views; up to where it is written over */
    uint64_t offset, length;
    uint32_t views;
} plan_storage;

/* In the order of the buffers; with `pieces`, one for each time between gaps. The caller frees them. */
plan_storage *plan_storages(const weir_plan *plan, bool pieces, size_t *count);

#endif
