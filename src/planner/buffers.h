/* Lists of buffers, plans of them, and the texts that they are read from, as the planner sees them. */
#ifndef WI_PLANNER_BUFFERS_H
#define WI_PLANNER_BUFFERS_H

#include <weir/plan.h>

/* A list: views are resolved to their storage as they are added. */
typedef struct wi_buffer {
    uint64_t bytes, begin, end, alignment;
    uint64_t offset;      /* of a fixed one */
    uint64_t view_offset; /* as told */
    uint64_t from;        /* offset in the root's storage */
    uint32_t of;
    uint32_t root; /* the buffer itself, unless the buffer is a view */
    uint32_t name; /* offset in `names` */
    uint32_t view; /* of a storage: the latest view; of a view: the view of the same storage added before */
    uint32_t gap;  /* the last one; WI_NO_GAP: none */
    uint8_t kind, sharing;
    bool persistent, fixed;
} wi_buffer;

#define WI_NO_GAP UINT32_MAX

typedef weir_gap wi_gap;

typedef struct wi_pair {
    uint32_t one, other;
} wi_pair;

struct weir_buffers {
    wi_buffer *items;
    size_t count, items_room;
    wi_gap *gaps;
    size_t gap_count, gaps_room;
    wi_pair *conflicts; /* of roots */
    size_t conflict_count, conflicts_room;
    char *names; /* zero-terminated names, without gaps */
    size_t names_length, names_room;
    uint32_t *schedule;
    size_t schedule_steps;
    uint64_t last_end;
};

/* Makes room for `needed` elements; false without host memory, and nothing has changed then. */
bool wi_room_for(void **array, size_t each, size_t *room, size_t needed);

const char *wi_buffer_name(const weir_buffers *buffers, uint32_t index);

/* The largest end, or the schedule's length. */
uint64_t wi_buffers_steps(const weir_buffers *buffers);

/* Lengthens a lifetime so that the buffer is live in `step` too; a view's use also lengthens the lifetime of its
 * storage. WEIR_ERR_INVALID for an index that is none, a step at or beyond WEIR_STEPS_MAX, and a lifetime that would
 * reach into a gap of the storage. */
weir_status wi_buffers_use(weir_buffers *buffers, uint32_t index, uint64_t step);

/* As weir_buffers_read_csv, of a text; `name` stands for it in messages. */
weir_status wi_buffers_parse_csv(const char *text, size_t bytes, const char *name, weir_buffers **out);

/* A copy of the list; NULL without host memory. */
weir_buffers *wi_buffers_copy(const weir_buffers *buffers);

/* Plans: offsets by buffer, and what is told of them --------------------------------------------------------------- */

struct weir_plan {
    weir_buffers *buffers;
    uint64_t *offsets;
    uint32_t *roots;
    uint64_t arenas[WEIR_KIND_COUNT], bounds[WEIR_KIND_COUNT];
    weir_plan_details summary;
};

/* A plan of a copy of the list, with room for its offsets; NULL without host memory. */
weir_plan *wi_plan_create(const weir_buffers *buffers);

/* The length of the buffer's slot. */
uint64_t wi_plan_length(const weir_plan *plan, uint32_t index);

/* Computes the plan's arenas and the sums of its summary. */
void wi_plan_sum_up(weir_plan *plan);

/* As weir_plan_load, of a text; `name` stands for it in messages. */
weir_status wi_plan_parse(const char *text, size_t bytes, const char *name, weir_plan **out);

/* The line that a plan's text begins with; it ends with the sum (wi_fnv1a) over all before. */
#define WI_PLAN_FIRST_LINE "weir-plan 1"

/* A text by lines, and the numbers in it --------------------------------------------------------------------------- */

typedef struct wi_lines {
    const char *name; /* of the text, for messages */
    const char *next, *end;
    const char *text; /* the line at hand, without its end */
    size_t length;
    uint64_t number; /* from 1 */
} wi_lines;

/* False behind the last line. Lines end with a line feed, and may have a carriage return before it. */
bool wi_lines_next(wi_lines *lines);

/* WEIR_ERR_CORRUPT, naming the text and the line. */
weir_status wi_lines_wrong(const wi_lines *lines, const char *format, ...) WEIR_PRINTF(2, 3);

/* Puts the text and the line before the thread's detail; answers `status`. */
weir_status wi_lines_prefix(const wi_lines *lines, weir_status status);

/* A decimal number that is the whole text; false if it is none, or needs more than 64 bits. */
bool wi_lines_number(const char *text, size_t length, uint64_t *out);

/* A file's content, for free(). WEIR_ERR_NOT_FOUND, WEIR_ERR_SYSTEM. */
weir_status wi_lines_read_file(const char *path, char **text, size_t *bytes);

/* Numbers ---------------------------------------------------------------------------------------------------------- */

/* Puts numbers in order and drops the repeated ones; returns how many are left. */
size_t wi_numbers_sort(uint64_t *numbers, size_t count);
/* The place of the first that is not below `least`; `count`: all are. */
size_t wi_numbers_find(const uint64_t *numbers, size_t count, uint64_t least);

#endif
