/* A list of buffers, as its readers in the planner see it: views are resolved to their storage as they are added. */
#ifndef WI_PLANNER_BUFFERS_H
#define WI_PLANNER_BUFFERS_H

#include <weir/plan.h>

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

#endif
