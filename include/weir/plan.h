/* weir/plan.h: offsets for buffers of known lifetimes, so that they fit into one arena as small as can be.
 *
 * A plan gives every buffer of a list (weir/plan_buffers.h) a *slot*: bytes [offset, offset + length) of the arena of its
 * kind of memory. The length is the buffer's size rounded up to the plan's alignment. Slots of buffers that are live in
 * one step, or in conflict, do not overlap, unless one is a view of the other or written in its place.
 *
 * An arena cannot be smaller than the most that is live in one step: the *lower bound*. A plan whose arena is as small as
 * that, or for which the search has seen that nothing smaller exists, is *proven*. Of a plan that was loaded the first is
 * looked at again; the second would take the search, so that there only the file says so.
 *
 * Planning is deterministic: effort is counted in steps of the search, not in seconds, so the same list and options give
 * the same plan on every machine, as long as neither `seconds` nor `progress` ends it early.
 *
 * The search is for plain lists. One with gaps, fixed buffers, conflicts or alignments of its own is placed greedily, in
 * milliseconds for thousands of buffers and seconds for tens of thousands that are live at once; it is proven only where
 * it reaches the lower bound. */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include <weir/plan_buffers.h>

WEIR_BEGIN

typedef struct weir_plan weir_plan;

typedef enum weir_plan_mode {
    WEIR_PLAN_SEARCH = 0, /* heuristics, then a search for the optimum */
    WEIR_PLAN_QUICK = 1,  /* heuristics of one pass alone: milliseconds for ten thousands of buffers */
    WEIR_PLAN_BUMP = 2    /* no reuse: storage one behind the other, in the order of the list */
} weir_plan_mode;

typedef struct weir_plan_progress {
    size_t struct_size;
    uint64_t arena, lower_bound; /* of the best plan so far, and of any; kinds not begun count with their lower bound */
    double seconds;              /* since the call */
    double done;                 /* 0 to 1, of the effort */
} weir_plan_progress;

typedef struct weir_plan_options {
    size_t struct_size;
    weir_plan_mode mode;
    uint64_t alignment; /* of every slot, a power of two; 0: 1 */
    uint64_t effort;    /* steps of the search at the most; 0: 4 million, some ten seconds */
    uint64_t enough; /* ends it when no kind's arena is larger: what there is room for; 0: the optimum is looked for */
    double seconds;  /* ends the planning with the best plan so far; 0: no limit */
    /* Called on the calling thread some ten times a second while planning goes on (NULL: nobody); false ends it with the
     * best plan so far. */
    bool (*progress)(const weir_plan_progress *progress, void *user);
    void *user;
} weir_plan_options;

typedef struct weir_plan_details {
    size_t struct_size;
    uint64_t arena;       /* bytes, all kinds together; so are the next two */
    uint64_t lower_bound; /* no plan of these buffers is smaller */
    uint64_t unshared;    /* what they take without reuse: the sum of all storage */
    uint64_t alignment;
    uint64_t steps;
    uint32_t buffers;
    uint32_t in_place; /* buffers that are written over another */
    bool proven;       /* no plan has a smaller arena */
    bool stopped;      /* `seconds` or `progress` ended it */
    uint64_t effort;   /* steps of the search that it took */
    double seconds;
    const char *found_by; /* which part of the planner: static storage */
    bool said_proven;     /* of a plan that was loaded, and is above the bound: its file says that it was proven */
} weir_plan_details;

typedef struct weir_slot {
    size_t struct_size;
    uint64_t offset; /* in the arena of its kind; of an empty buffer 0 */
    uint64_t bytes;  /* of the buffer */
    uint64_t length; /* of the slot; of a view its own bytes, of an empty buffer 0 */
    weir_kind kind;
    uint32_t root; /* whose storage it lies in: itself, or the buffer that it is a view of or written over */
} weir_slot;

/* Plans the list. `options` NULL: the defaults. Always answers with a plan that weir_plan_check accepts. Errors:
 * WEIR_ERR_INVALID (an alignment that is no power of two, sizes whose sum does not fit, a view that comes to lie beside the
 * alignment it wants, named), WEIR_ERR_CONFLICT (two fixed buffers in each other's way, named), WEIR_ERR_SYSTEM without host memory.
 * Any thread; several lists may be planned at once. */
WEIR_API WEIR_NODISCARD weir_status weir_plan_create(const weir_buffers *buffers, const weir_plan_options *options,
                                                     weir_plan **out);

/* NULL is fine. */
WEIR_API void weir_plan_destroy(weir_plan *plan);

/* A plan does not change: any thread may read it. WEIR_ERR_INVALID for NULL and for a number that is none. */
WEIR_API WEIR_NODISCARD weir_status weir_plan_info(const weir_plan *plan, weir_plan_details *out);
WEIR_API WEIR_NODISCARD weir_status weir_plan_slot(const weir_plan *plan, uint32_t index, weir_slot *out);
/* The arena of one kind of memory; 0 where it has no buffers. */
WEIR_API uint64_t weir_plan_arena(const weir_plan *plan, weir_kind kind);
/* The lower bound of one kind. */
WEIR_API uint64_t weir_plan_lower_bound(const weir_plan *plan, weir_kind kind);
/* The list that was planned; valid as long as the plan. */
WEIR_API const weir_buffers *weir_plan_buffers(const weir_plan *plan);
/* What was stated by weir_buffers_schedule: the order and its length; NULL and 0 if nothing was. */
WEIR_API const uint32_t *weir_plan_schedule(const weir_plan *plan, size_t *steps);

/* Looks whether the plan serves the list (NULL: its own), knowing nothing of how it was made: the same number of buffers,
 * every slot as long as its buffer, aligned, inside its arena; views where they belong; fixed buffers where they are
 * fixed; no bytes of two storages shared in a step in which both are live, or that are in conflict, but for a buffer
 * written over one that ends there; the stated schedule the same; the arena no larger than the highest slot's end.
 * WEIR_ERR_CORRUPT, naming what is wrong. WEIR_ERR_SYSTEM without host memory. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_plan_check(const weir_plan *plan, const weir_buffers *buffers);

/* Writes the plan with its list to a text file, which replaces one that is there in one step; reads one that was written
 * so. A file that was changed by hand is WEIR_ERR_CORRUPT, naming the line, and so is one whose plan weir_plan_check does not
 * accept, or whose sizes and offsets add up to more than 63 bits. Whether it is the plan of a list at hand, weir_plan_check
 * with that list tells. WEIR_ERR_NOT_FOUND and WEIR_ERR_SYSTEM for the file. */
WEIR_API WEIR_NODISCARD weir_status weir_plan_save(const weir_plan *plan, const char *path);
WEIR_API WEIR_NODISCARD weir_status weir_plan_load(const char *path, weir_plan **out);
WEIR_API WEIR_NODISCARD weir_status weir_plan_parse(const char *text, size_t bytes, const char *name, weir_plan **out);

WEIR_END
#endif
