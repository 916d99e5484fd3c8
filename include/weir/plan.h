/* weir/plan.h: static plans: buffers whose lifetimes are known beforehand, the offsets that fit them into one arena,
 * and buffers from the nodes of a graph.
 *
 * Time is counted in steps from 0, in the one order in which the program's pieces of work run (its *serial
 * schedule*): a buffer is live in the steps begin … end - 1, so `begin` is the step that first writes it and `end` is
 * the one after the step that last reads it. Two buffers that are live in one step never share bytes; all others may.
 * What runs on several streams at once has no serial schedule: buffers that such work may touch at the same time are
 * told by weir_buffers_conflict.
 *
 * A buffer has *storage* of its own, or is a view into another one's, which then lives as long as its views. Indices
 * count from 0 in the order of adding, views too. Sizes and offsets are bytes and have 64 bits; a sum that does not
 * fit is WEIR_ERR_INVALID. */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include <weir/base.h>

WEIR_BEGIN

/* At most so many, and lifetimes end at WEIR_STEPS_MAX or before. */
#define WEIR_BUFFERS_MAX UINT32_C(0x3fffffff)
#define WEIR_STEPS_MAX   (UINT64_C(1) << 62)

/* No buffer. */
#define WEIR_NO_BUFFER UINT32_MAX

typedef struct weir_buffers weir_buffers;

typedef enum weir_sharing {
    WEIR_SHARING_NONE = 0,
    WEIR_SHARING_VIEW =
        1, /* it is the bytes [view_offset, view_offset + bytes) of the buffer `of`, which may be a view too */
    WEIR_SHARING_IN_PLACE =
        2 /* it may be written over the buffer `of`, where that one's last step is this one's first and
                                 its storage is no smaller; permission, not duty: the plan decides */
} weir_sharing;

typedef struct weir_buffer {
    size_t struct_size;
    const char *name;    /* NULL: "b" and its index; copied, at most 1023 bytes */
    uint64_t bytes;      /* 0: an empty tensor, which gets no storage */
    uint64_t begin, end; /* steps; begin < end */
    uint64_t
        alignment;   /* of its offset, a power of two; 0: what the plan gives all. Of a view: not enforced, checked */
    weir_kind kind;  /* each kind of memory has an arena and offsets of its own */
    bool persistent; /* live in all steps, whatever begin and end say */
    bool fixed;      /* stays at `offset`: the pin of a plan made earlier, or of a contract with others */
    uint64_t offset; /* of a fixed one */
    weir_sharing sharing; /* with `of`, which was added before */
    uint32_t of;
    uint64_t view_offset;
} weir_buffer;

/* An empty list. WEIR_ERR_INVALID for NULL; WEIR_ERR_SYSTEM without host memory. A list may be read by any number of
 * threads, and changed by one at a time. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_create(weir_buffers **out);

/* NULL is fine. Plans of the list stay valid. */
WEIR_API void weir_buffers_destroy(weir_buffers *buffers);

/* Adds one; `index` (may be NULL) gets its number. WEIR_ERR_INVALID, naming the buffer and what is wrong: begin not
 * before end, an alignment that is no power of two, a fixed offset beside its alignment or beyond 64 bits, a fixed
 * view, a view that does not lie inside its buffer, has another kind, is longer than it, or is live in a gap of its
 * storage; `of` not added yet. WEIR_ERR_SYSTEM without host memory. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_add(weir_buffers *buffers, const weir_buffer *buffer, uint32_t *index);

/* In the steps begin … end - 1 the buffer is not live: its contents are not needed and others may have its bytes,
 * though it is live before and after. A gap of a view or of a persistent buffer is WEIR_ERR_INVALID, as is one that
 * does not lie strictly inside the lifetime, that does not begin behind the buffer's gaps so far, or in which a view
 * of the buffer is live. WEIR_ERR_SYSTEM without host memory. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_gap(weir_buffers *buffers, uint32_t index, uint64_t begin,
                                                     uint64_t end);

/* The storage of the two never shares bytes, though they are not live in one step. WEIR_ERR_INVALID for an index that
 * is none, and for two that are views of one storage. WEIR_ERR_SYSTEM without host memory. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_conflict(weir_buffers *buffers, uint32_t one, uint32_t other);

/* Makes a buffer fixed at `offset`, or, with UINT64_MAX, no longer fixed. Errors as weir_buffers_add. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_pin(weir_buffers *buffers, uint32_t index, uint64_t offset);

/* States which piece of work runs in each step, in numbers of the caller's: kept with the plan, saved, and compared
 * when a plan is checked against a list. WEIR_ERR_INVALID for fewer steps than lifetimes reach. NULL and 0: not
 * stated. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_schedule(weir_buffers *buffers, const uint32_t *order, size_t steps);

/* Steps in which a buffer is not live. */
typedef struct weir_gap {
    uint64_t begin, end;
    uint32_t buffer;
    uint32_t before; /* the number of the same buffer's gap before this one; UINT32_MAX: it is the first */
} weir_gap;

typedef struct weir_buffers_details {
    size_t struct_size;
    uint32_t count; /* buffers */
    uint64_t steps; /* the largest end, or the schedule's length */
    /* What follows is valid until the list changes. */
    const weir_gap *gaps; /* of all buffers, in the order of the calls of weir_buffers_gap */
    size_t gap_count;
    const uint32_t *schedule; /* as stated by weir_buffers_schedule, and its length; NULL and 0: not stated */
    size_t schedule_steps;
} weir_buffers_details;

/* WEIR_ERR_INVALID for NULL, or when member struct_size is not set. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_info(const weir_buffers *buffers, weir_buffers_details *out);

/* One buffer. Its name is valid until the list changes; its lifetime is as told, without what views add.
 * WEIR_ERR_INVALID for an index that is none. */
WEIR_API WEIR_NODISCARD weir_status weir_buffer_info(const weir_buffers *buffers, uint32_t index, weir_buffer *out);

/* Reads MiniMalloc's CSV: a header that names the columns id, lower (or begin, start), upper (or end, whose steps
 * count in it), size, and optionally alignment, offset (a fixed one; empty: free), hint (ignored) and gaps ("3-7
 * 9-11"); then a row for each buffer. Rows of size 0 are buffers without storage. Errors, naming the line:
 * WEIR_ERR_CORRUPT for what is no such file, WEIR_ERR_INVALID as weir_buffers_add, WEIR_ERR_UNSUPPORTED for gaps in
 * which part of a buffer stays ("3-7@0:64"), WEIR_ERR_NOT_FOUND and WEIR_ERR_SYSTEM for the file. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_read_csv(const char *path, weir_buffers **out);

/* ------------------------------------------------------------------------------------------------------------------ */

/* Offsets for buffers of known lifetimes, so that they fit into one arena as small as can be.
 *
 * A plan gives every buffer of a list a *slot*: bytes [offset, offset + length) of the arena of its
 * kind of memory. The length is the buffer's size rounded up to the plan's alignment. Slots of buffers that are live
 * in one step, or in conflict, do not overlap, unless one is a view of the other or written in its place.
 *
 * An arena cannot be smaller than the most that is live in one step: the *lower bound*. A plan whose arena is as
 * small as that, or for which the search has seen that nothing smaller exists, is *proven*. For a loaded plan the lower
 * bound is computed again; above the bound a proof would take the search, and rests on the file's word
 * (weir_plan_details.said_proven).
 *
 * Planning is deterministic: effort is counted in steps of the search, not in seconds, so the same list and options
 * give the same plan on every machine, as long as neither `seconds` nor `progress` ends it early.
 *
 * The search is for plain lists. One with gaps, fixed buffers, conflicts or alignments of its own is placed greedily,
 * in milliseconds for thousands of buffers and seconds for tens of thousands that are live at once; it is proven only
 * where it reaches the lower bound. */

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
    /* Called on the calling thread some ten times a second while planning goes on (NULL: nobody); false ends it with
     * the best plan so far, and it is not called again. */
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
    uint32_t in_place; /* buffers written over another buffer */
    bool proven;       /* no plan has a smaller arena */
    bool stopped;      /* `seconds` or `progress` ended it */
    uint64_t effort;   /* search steps that planning took */
    double seconds;
    const char *found_by;                    /* which part of the planner: static storage */
    bool said_proven;                        /* of a loaded plan above the bound: the file calls the plan proven */
    uint64_t arena_of[WEIR_KIND_MOST];       /* by kind of memory; 0 where it has no buffers; */
    uint64_t lower_bound_of[WEIR_KIND_MOST]; /* and the lower bound */
    const weir_buffers *list;                /* the planned list, with its schedule; valid as long as the plan */
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
 * WEIR_ERR_INVALID (an alignment that is no power of two, sizes whose sum does not fit, a view that comes to lie
 * beside the alignment it wants, named), WEIR_ERR_CONFLICT (two fixed buffers in each other's way, named),
 * WEIR_ERR_SYSTEM without host memory. Any thread; several lists may be planned at once. */
WEIR_API WEIR_NODISCARD weir_status weir_plan_create(const weir_buffers *buffers, const weir_plan_options *options,
                                                     weir_plan **out);

/* NULL is fine. */
WEIR_API void weir_plan_destroy(weir_plan *plan);

/* A plan does not change: any thread may read it. WEIR_ERR_INVALID for NULL and for a number that is none. */
WEIR_API WEIR_NODISCARD weir_status weir_plan_info(const weir_plan *plan, weir_plan_details *out);
WEIR_API WEIR_NODISCARD weir_status weir_plan_slot(const weir_plan *plan, uint32_t index, weir_slot *out);

/* Looks whether the plan serves the list (NULL: its own), knowing nothing of how it was made: the same number of
 * buffers, every slot as long as its buffer, aligned, inside its arena; views where they belong; fixed buffers where
 * they are fixed; no bytes of two storages shared in a step in which both are live, or that are in conflict, but for
 * a buffer written over one that ends there; the stated schedule the same; the arena no larger than the highest
 * slot's end. WEIR_ERR_CORRUPT, naming what is wrong. WEIR_ERR_SYSTEM without host memory. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_plan_check(const weir_plan *plan, const weir_buffers *buffers);

/* Save writes the plan with its list to a text file, replacing an existing file in one step. Load reads such a file;
 * weir_plan_check with a list at hand tells whether the plan is a plan of that list.
 * Errors: WEIR_ERR_CORRUPT for a file that was changed by hand (naming the line), for a plan that weir_plan_check does
 * not accept, and for sizes and offsets that add up to more than 63 bits; WEIR_ERR_NOT_FOUND and WEIR_ERR_SYSTEM for
 * the file. */
WEIR_API WEIR_NODISCARD weir_status weir_plan_save(const weir_plan *plan, const char *path);
WEIR_API WEIR_NODISCARD weir_status weir_plan_load(const char *path, weir_plan **out);

/* ------------------------------------------------------------------------------------------------------------------ */

/* Buffers from the nodes of a graph, in the order in which they run.
 *
 * A node's result is one buffer; a node runs in the step of its number among those that do (further results of a node
 * have its step). Which results share storage:
 *   - a reshape, a cast to the same type and a slice of the first axis are views of their input, and take no step's
 *     work;
 *   - a cast to another type has storage of its own, unless `cast_views` is asked for and the size is the same;
 *   - a computation may name an input that its result may overwrite.
 * Inputs, parameters and constants of the graph and what is marked as an output live as told in weir_node_kind. */

typedef enum weir_node_kind {
    WEIR_NODE_COMPUTE = 0,
    WEIR_NODE_INPUT = 1, /* live in all steps, as parameters and constants are */
    WEIR_NODE_PARAMETER = 2,
    WEIR_NODE_CONSTANT = 3,
    WEIR_NODE_RESHAPE = 4,
    WEIR_NODE_CAST = 5,
    WEIR_NODE_NARROW = 6,  /* `elements` of the first input, from `start` on */
    WEIR_NODE_FURTHER = 7, /* another result of the computation just before */
    WEIR_NODE_COUNT = 8
} weir_node_kind;

typedef struct weir_node {
    size_t struct_size;
    const char *name; /* as weir_buffer.name */
    weir_node_kind kind;
    weir_type type;
    int64_t elements; /* -1 is a shape that is not known, which no plan can have: WEIR_ERR_INVALID */
    uint64_t start;   /* of a narrow: elements of the input before it */
    const uint32_t *inputs;
    size_t input_count;
    uint32_t in_place; /* which of `inputs` it may be written over, counted from 1; 0: none */
    bool output;       /* of the graph: live until the end, and never written over */
    bool elsewhere;    /* the caller has memory for it: it gets no storage here, and views of it neither */
} weir_node;

typedef struct weir_node_rules {
    size_t struct_size;
    bool cast_views; /* a cast to a type of the same size is a view */
    /* As the planner that this one descends from: every result takes four bytes an element, whatever its type; every
     * reshape and every cast shares its first input's slot, whatever the size; a narrow has a slot of its own. Planned
     * with WEIR_PLAN_BUMP and an alignment of 16, slots are byte for byte where that planner puts them; what has no
     * bytes has no place. */
    bool uniform;
} weir_node_rules;

/* Makes the list of buffers of `count` nodes; buffer i is node i's result. Its schedule has, for each step, the
 * number of the node that runs then; with `uniform`, every node has a step, views and inputs too. `nodes[0].size` is
 * the stride. `rules` NULL: none of them. Errors, naming the node: WEIR_ERR_INVALID for an input that is not an
 * earlier node, so that nothing runs before what it reads, for a view without an input, with other elements or beyond
 * its bytes, a shape that is not known, a type that is none, a further result without a computation before it, bytes
 * beyond 64 bits. WEIR_ERR_SYSTEM without host memory. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_from_nodes(const weir_node *nodes, size_t count,
                                                            const weir_node_rules *rules, weir_buffers **out);

WEIR_END
#endif
