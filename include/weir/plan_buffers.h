/* weir/plan_buffers.h: the buffers of a program whose lifetimes are known beforehand: what weir/plan.h places.
 *
 * Time is counted in steps from 0, in the one order in which the program's pieces of work run (its *serial schedule*): a
 * buffer is live in the steps begin … end - 1, so `begin` is the step that first writes it and `end` is the one after the
 * step that last reads it. Two buffers that are live in one step never share bytes; all others may. What runs on several
 * streams at once has no serial schedule: buffers that such work may touch at the same time are told by
 * weir_buffers_conflict.
 *
 * A buffer has *storage* of its own, or is a view into another one's, which then lives as long as its views. Indices
 * count from 0 in the order of adding, views too. Sizes and offsets are bytes and have 64 bits; a sum that does not fit
 * is WEIR_ERR_INVALID. */
#ifndef WEIR_PLAN_BUFFERS_H
#define WEIR_PLAN_BUFFERS_H

#include <weir/kind.h>
#include <weir/tensor.h>

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

/* An empty list. WEIR_ERR_INVALID for NULL; WEIR_ERR_SYSTEM without host memory. A list may be read by any number of threads, and
 * changed by one at a time. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_create(weir_buffers **out);

/* NULL is fine. Plans keep what they need of their list. */
WEIR_API void weir_buffers_destroy(weir_buffers *buffers);

/* Adds one; `index` (may be NULL) gets its number. WEIR_ERR_INVALID, naming the buffer and what is wrong: begin not before
 * end, an alignment that is no power of two, a fixed offset beside its alignment or beyond 64 bits, a fixed view, a view
 * that does not lie inside its buffer, has another kind, is longer than it, or is live in a gap of its storage; `of` not
 * added yet. WEIR_ERR_SYSTEM without host memory. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_add(weir_buffers *buffers, const weir_buffer *buffer, uint32_t *index);

/* In the steps begin … end - 1 the buffer is not live: its contents are not needed and others may have its bytes, though
 * it is live before and after. A gap of a view or of a persistent buffer is WEIR_ERR_INVALID, as is one that does not lie
 * strictly inside the lifetime, that does not begin behind the buffer's gaps so far, or in which a view of the buffer is
 * live. WEIR_ERR_SYSTEM without host memory. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_gap(weir_buffers *buffers, uint32_t index, uint64_t begin,
                                                     uint64_t end);

/* The storage of the two never shares bytes, though they are not live in one step. WEIR_ERR_INVALID for an index that is
 * none, and for two that are views of one storage. WEIR_ERR_SYSTEM without host memory. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_conflict(weir_buffers *buffers, uint32_t one, uint32_t other);

/* Makes a buffer fixed at `offset`, or, with UINT64_MAX, no longer fixed. Errors as weir_buffers_add. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_pin(weir_buffers *buffers, uint32_t index, uint64_t offset);

/* Lengthens a lifetime so that the buffer is live in `step` too; that of a view lengthens its storage's. WEIR_ERR_INVALID for
 * an index that is none, a step at or beyond WEIR_STEPS_MAX, and a lifetime that would reach into a gap of the storage. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_use(weir_buffers *buffers, uint32_t index, uint64_t step);

/* States which piece of work runs in each step, in numbers of the caller's: kept with the plan, saved, and compared when
 * a plan is checked against a list. WEIR_ERR_INVALID for fewer steps than lifetimes reach. NULL and 0: not stated. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_schedule(weir_buffers *buffers, const uint32_t *order, size_t steps);

/* Reading. A name is valid until the list changes; lifetimes are as told, without what views add. WEIR_ERR_INVALID for
 * an index that is none. */
WEIR_API uint32_t weir_buffers_count(const weir_buffers *buffers);
WEIR_API uint64_t weir_buffers_steps(const weir_buffers *buffers); /* the largest end, or the schedule's length */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_get(const weir_buffers *buffers, uint32_t index, weir_buffer *out);
/* The gaps of all buffers, in the order in which they were told: the `i`th, with the buffer that has it. WEIR_ERR_NOT_FOUND
 * behind the last one. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_get_gap(const weir_buffers *buffers, size_t i, uint32_t *index,
                                                         uint64_t *begin, uint64_t *end);

/* Reads MiniMalloc's CSV: a header that names the columns id, lower (or begin, start), upper (or end, whose steps count in
 * it), size, and optionally alignment, offset (a fixed one; empty: free), hint (ignored) and gaps ("3-7 9-11"); then a row
 * for each buffer. Rows of size 0 are buffers without storage. Errors, naming the line: WEIR_ERR_CORRUPT for what is no such
 * file, WEIR_ERR_INVALID as weir_buffers_add, WEIR_ERR_UNSUPPORTED for gaps in which part of a buffer stays ("3-7@0:64"),
 * WEIR_ERR_NOT_FOUND and WEIR_ERR_SYSTEM for the file. `name` stands for the text in messages. */
WEIR_API WEIR_NODISCARD weir_status weir_buffers_read_csv(const char *path, weir_buffers **out);
WEIR_API WEIR_NODISCARD weir_status weir_buffers_parse_csv(const char *text, size_t bytes, const char *name,
                                                           weir_buffers **out);

WEIR_END
#endif
