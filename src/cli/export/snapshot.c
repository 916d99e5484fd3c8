/* snapshot.c: a trace as PyTorch's allocator tells of itself: segments with their blocks as they are at the end, and
 * the entries before. What weir's traces do not say is where the driver's memory lies: a segment is a range of addresses
 * that blocks were ever at, and it is there from its first block on. So allocated, inner and outer free bytes add up to
 * the segments. PyTorch has no word for a block that is away: it is told as freed, and when it is back as allocated
 * again. In the frames, where PyTorch has the stack, stand tag, class and client.
 *
 * The instructions are those of pickle's protocol 2 (Python's module pickletools has their numbers). */
#include "export.h"

#include "cli/text.h"
#include "trace/recording.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Keys and words that come again and again are remembered by their numbers. */
typedef enum word {
    K_DEVICE,
    K_ADDRESS,
    K_ADDR,
    K_SIZE,
    K_TOTAL_SIZE,
    K_ALLOCATED_SIZE,
    K_ACTIVE_SIZE,
    K_REQUESTED_SIZE,
    K_STREAM,
    K_SEGMENT_TYPE,
    K_SEGMENT_POOL_ID,
    K_IS_EXPANDABLE,
    K_FRAMES,
    K_BLOCKS,
    K_STATE,
    K_ACTION,
    K_TIME_US,
    K_DEVICE_FREE,
    K_NAME,
    K_FILENAME,
    K_LINE,
    W_LARGE,
    W_ALLOCATED,
    W_PENDING,
    W_INACTIVE,
    W_ALLOC,
    W_FREE_REQUESTED,
    W_FREE_COMPLETED,
    W_SEGMENT_ALLOC,
    W_OOM,
    W_TAG,
    W_CLASS,
    W_CLIENT,
    WORDS
} word;

static const char *const words[WORDS] = {
    "device",      "address",        "addr",           "size",           "total_size",       "allocated_size",
    "active_size", "requested_size", "stream",         "segment_type",   "segment_pool_id",  "is_expandable",
    "frames",      "blocks",         "state",          "action",         "time_us",          "device_free",
    "name",        "filename",       "line",           "large",          "active_allocated", "active_pending_free",
    "inactive",    "alloc",          "free_requested", "free_completed", "segment_alloc",    "oom",
    SNAPSHOT_TAG,  SNAPSHOT_CLASS,   SNAPSHOT_CLIENT};

typedef struct writer {
    FILE *file;
    const recording *trace;
    const lifetimes *blocks;
    address_ranges ranges;
    bool *there;       /* by range: it has a segment_alloc */
    bool known[WORDS]; /* the pickle has the word */
    bool *kinds;       /* the pickle has the frames of the kind */
    uint64_t device;
} writer;

/* Pickle ----------------------------------------------------------------------------------------------------------- */

static void export_snapshot_put(writer *w, int code)
{
    fputc(code, w->file);
}

static void put_little(writer *w, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        export_snapshot_put(w, (int)(value >> 8 * i & 0xff));
}

static void put_number(writer *w, uint64_t value)
{
    if (value < 0x100) {
        export_snapshot_put(w, 'K');
        put_little(w, value, 1);
    } else if (value < 0x10000) {
        export_snapshot_put(w, 'M');
        put_little(w, value, 2);
    } else if (value < UINT64_C(0x80000000)) {
        export_snapshot_put(w, 'J');
        put_little(w, value, 4);
    } else {
        unsigned bytes = (64 - (unsigned)__builtin_clzll(value)) / 8 + 1; /* with room for the sign */
        export_snapshot_put(w, 0x8a);
        export_snapshot_put(w, (int)bytes);
        put_little(w, value, bytes > 8 ? 8 : bytes);
        if (bytes > 8)
            export_snapshot_put(w, 0);
    }
}

static void export_snapshot_put_text(writer *w, const char *text)
{
    char *clean = text_clean(text, strlen(text), true);
    size_t length = strlen(clean);
    export_snapshot_put(w, 'X');
    put_little(w, length, 4);
    fwrite(clean, 1, length, w->file);
    free(clean);
}

static void put_word(writer *w, word which)
{
    if (!w->known[which])
        export_snapshot_put_text(w, words[which]);
    export_snapshot_put(w, w->known[which] ? 'h' : 'q');
    put_little(w, which, 1);
    w->known[which] = true;
}

static void put_pair(writer *w, word key, uint64_t value)
{
    put_word(w, key);
    put_number(w, value);
}

static void put_word_pair(writer *w, word key, word value)
{
    put_word(w, key);
    put_word(w, value);
}

static void begin_pairs(writer *w)
{
    export_snapshot_put(w, '}');
    export_snapshot_put(w, '(');
}

static void end_pairs(writer *w)
{
    export_snapshot_put(w, 'u');
}

static void export_snapshot_begin_list(writer *w)
{
    export_snapshot_put(w, ']');
    export_snapshot_put(w, '(');
}

static void export_snapshot_end_list(writer *w)
{
    export_snapshot_put(w, 'e');
}

/* Frames ----------------------------------------------------------------------------------------------------------- */

static void export_snapshot_put_frame(writer *w, word file, const char *name)
{
    begin_pairs(w);
    put_word(w, K_NAME);
    export_snapshot_put_text(w, name);
    put_word_pair(w, K_FILENAME, file);
    put_pair(w, K_LINE, 0);
    end_pairs(w);
}

/* Of a kind of blocks, once; then it is remembered behind the words. */
static void put_frames(writer *w, uint32_t kind)
{
    const lifetime_kind *k = &w->blocks->kinds[kind];
    put_word(w, K_FRAMES);
    if (!w->kinds[kind]) {
        export_snapshot_begin_list(w);
        if (k->tag[0])
            export_snapshot_put_frame(w, W_TAG, k->tag);
        export_snapshot_put_frame(w, W_CLASS, weir_name_of(WEIR_NAMES_CLASS, (int)k->memory_class));
        export_snapshot_put_frame(w, W_CLIENT, k->client);
        export_snapshot_end_list(w);
    }
    export_snapshot_put(w, w->kinds[kind] ? 'j' : 'r');
    put_little(w, (uint64_t)WORDS + kind, 4);
    w->kinds[kind] = true;
}

static void put_no_frames(writer *w)
{
    put_word(w, K_FRAMES);
    export_snapshot_put(w, ']');
}

/* Segments --------------------------------------------------------------------------------------------------------- */

/* A block at the end of the trace. */
typedef struct left {
    const lifetime *block;
    uint64_t bytes; /* it has none that are the next one's */
    bool pending;
} left;

static int export_snapshot_by_address(const void *a, const void *b)
{
    const lifetime *x = ((const left *)a)->block, *y = ((const left *)b)->block;
    if (x->pointer != y->pointer)
        return x->pointer < y->pointer ? -1 : 1;
    return x < y ? -1 : x > y;
}

static left *list_left(const writer *w, size_t *count)
{
    left *list = text_zeroed(w->blocks->count, sizeof *list);
    *count = 0;
    for (size_t i = 0; i < w->blocks->count; i++) {
        const lifetime *one = &w->blocks->list[i];
        if (one->charged == 0 || one->freed == one->begin || one->end != LIFETIMES_NEVER || one->away > 0 ||
            !address_range_at(&w->ranges, one->pointer))
            continue;
        list[(*count)++] = (left){one, one->charged, one->freed != LIFETIMES_NEVER};
    }
    qsort(list, *count, sizeof *list, export_snapshot_by_address);
    size_t stays = 0;
    for (size_t i = 0; i < *count; i++) {
        uint64_t room = i + 1 < *count ? list[i + 1].block->pointer - list[i].block->pointer : UINT64_MAX;
        list[i].bytes = list[i].bytes < room ? list[i].bytes : room;
        if (list[i].bytes > 0)
            list[stays++] = list[i];
    }
    *count = stays;
    return list;
}

static void put_block(writer *w, uint64_t address, uint64_t bytes, const left *of)
{
    begin_pairs(w);
    put_pair(w, K_ADDRESS, address);
    put_pair(w, K_SIZE, bytes);
    put_pair(w, K_REQUESTED_SIZE, !of ? 0 : of->block->bytes < bytes ? of->block->bytes : bytes);
    put_word_pair(w, K_STATE, !of ? W_INACTIVE : of->pending ? W_PENDING : W_ALLOCATED);
    if (of)
        put_frames(w, of->block->kind);
    else
        put_no_frames(w);
    end_pairs(w);
}

static void put_segment_head(writer *w, const address_range *range, const left *list, size_t count)
{
    uint64_t allocated = 0, active = 0, requested = 0;
    for (size_t i = 0; i < count; i++) {
        allocated += list[i].pending ? 0 : list[i].bytes;
        active += list[i].bytes;
        requested += list[i].block->bytes < list[i].bytes ? list[i].block->bytes : list[i].bytes;
    }
    put_pair(w, K_DEVICE, w->device);
    put_pair(w, K_ADDRESS, range->address);
    put_pair(w, K_TOTAL_SIZE, range->bytes);
    put_pair(w, K_ALLOCATED_SIZE, allocated);
    put_pair(w, K_ACTIVE_SIZE, active);
    put_pair(w, K_REQUESTED_SIZE, requested);
    put_pair(w, K_STREAM, 0);
    put_word_pair(w, K_SEGMENT_TYPE, W_LARGE);
    put_word(w, K_SEGMENT_POOL_ID);
    put_number(w, 0);
    put_number(w, 0);
    export_snapshot_put(w, 0x86);
    put_word(w, K_IS_EXPANDABLE);
    export_snapshot_put(w, 0x89);
    put_no_frames(w);
}

static void put_segment(writer *w, const address_range *range, const left *list, size_t count)
{
    uint64_t at = range->address, end = range->address + range->bytes;
    begin_pairs(w);
    put_segment_head(w, range, list, count);
    put_word(w, K_BLOCKS);
    export_snapshot_begin_list(w);
    for (size_t i = 0; i < count; i++) {
        if (list[i].block->pointer > at)
            put_block(w, at, list[i].block->pointer - at, NULL);
        put_block(w, list[i].block->pointer, list[i].bytes, &list[i]);
        at = list[i].block->pointer + list[i].bytes;
    }
    if (at < end)
        put_block(w, at, end - at, NULL);
    export_snapshot_end_list(w);
    end_pairs(w);
}

/* Writes the segments that have a segment_alloc entry. */
static void put_segments(writer *w)
{
    size_t count, from = 0;
    left *list = list_left(w, &count);
    export_snapshot_begin_list(w);
    for (size_t i = 0; i < w->ranges.count; i++) {
        const address_range *range = &w->ranges.list[i];
        size_t to = from;
        while (to < count && list[to].block->pointer - range->address < range->bytes)
            to++;
        if (w->there[i])
            put_segment(w, range, list + from, to - from);
        from = to;
    }
    export_snapshot_end_list(w);
    free(list);
}

/* Entries ---------------------------------------------------------------------------------------------------------- */

static void export_snapshot_put_entry(writer *w, word action, uint64_t address, uint64_t bytes, uint32_t event)
{
    const weir_event *e = &w->trace->events[event];
    begin_pairs(w);
    put_word_pair(w, K_ACTION, action);
    put_pair(w, action == W_OOM ? K_DEVICE_FREE : K_ADDR, address);
    put_pair(w, K_SIZE, bytes);
    put_pair(w, K_STREAM, e->stream.id);
    if (w->trace->timed)
        put_pair(w, K_TIME_US, e->nanoseconds / 1000);
}

static void put_block_entry(writer *w, word action, const lifetime *one, uint32_t event)
{
    export_snapshot_put_entry(w, action, one->pointer, one->bytes, event);
    put_frames(w, one->kind);
    end_pairs(w);
}

/* Writes the entries of a step; before the first block of a segment, the segment_alloc entry. */
static void export_snapshot_put_step(writer *w, const export_step *step)
{
    static const word actions[] = {[EXPORT_BEGIN] = W_ALLOC,
                                   [EXPORT_LEAVE] = W_FREE_REQUESTED,
                                   [EXPORT_RETURN] = W_ALLOC,
                                   [EXPORT_FREE] = W_FREE_REQUESTED,
                                   [EXPORT_END] = W_FREE_COMPLETED};
    const lifetime *one = &w->blocks->list[step->block];
    const address_range *range = address_range_at(&w->ranges, one->pointer);
    if (!range || (step->kind >= EXPORT_FREE && one->away > 0))
        return;
    bool *there = &w->there[range - w->ranges.list];
    if (!*there) {
        *there = true;
        export_snapshot_put_entry(w, W_SEGMENT_ALLOC, range->address, range->bytes, step->event);
        put_no_frames(w);
        end_pairs(w);
    }
    put_block_entry(w, actions[step->kind], one, step->event);
    if (step->kind == EXPORT_LEAVE)
        put_block_entry(w, W_FREE_COMPLETED, one, step->event);
}

static void export_snapshot_put_refusal(writer *w, uint32_t at)
{
    const weir_event *event = &w->trace->events[at];
    uint64_t budget = w->trace->budget;
    export_snapshot_put_entry(w, W_OOM, budget > event->held ? budget - event->held : 0, event->bytes, at);
    put_no_frames(w);
    end_pairs(w);
}

static void put_entries(writer *w)
{
    size_t count, at = 0;
    export_step *steps = export_steps(w->blocks, &count);
    export_snapshot_begin_list(w);
    for (uint64_t i = 0; i < w->device; i++)
        export_snapshot_put(w, ']');
    export_snapshot_begin_list(w);
    for (size_t i = 0; i < w->trace->count && !ferror(w->file); i++) {
        if (w->trace->events[i].action == WEIR_ACTION_REFUSE)
            export_snapshot_put_refusal(w, (uint32_t)i);
        for (; at < count && steps[at].event == i; at++)
            export_snapshot_put_step(w, &steps[at]);
    }
    export_snapshot_end_list(w);
    export_snapshot_end_list(w);
    free(steps);
}

/* All -------------------------------------------------------------------------------------------------------------- */

/* The ordinal of "cuda:1"; 0 for what has none. */
static uint64_t export_snapshot_ordinal_of(const recording *trace)
{
    const char *colon = trace->count ? strchr(trace->events[0].device, ':') : NULL;
    uint64_t ordinal = 0;
    return colon && text_number(colon + 1, 0, 1023, &ordinal) ? ordinal : 0;
}

static void export_snapshot_put_settings(writer *w)
{
    begin_pairs(w);
    export_snapshot_put_text(w, "PYTORCH_CUDA_ALLOC_CONF");
    export_snapshot_put_text(w, "");
    export_snapshot_put_text(w, "expandable_segments");
    export_snapshot_put(w, 0x89);
    end_pairs(w);
}

weir_status export_snapshot(FILE *file, const recording *trace, const lifetimes *blocks)
{
    writer w = {.file = file, .trace = trace, .blocks = blocks, .device = export_snapshot_ordinal_of(trace)};
    weir_status status = address_ranges_make(blocks, &w.ranges);
    if (status != WEIR_OK)
        return status;
    w.there = text_zeroed(w.ranges.count, sizeof *w.there);
    w.kinds = text_zeroed(blocks->kind_count, sizeof *w.kinds);
    export_snapshot_put(&w, 0x80);
    export_snapshot_put(&w, 2);
    begin_pairs(&w);
    export_snapshot_put_text(&w, "device_traces");
    put_entries(&w);
    export_snapshot_put_text(&w, "segments");
    put_segments(&w);
    export_snapshot_put_text(&w, "allocator_settings");
    export_snapshot_put_settings(&w);
    end_pairs(&w);
    export_snapshot_put(&w, '.');
    free(w.there);
    free(w.kinds);
    address_ranges_clear(&w.ranges);
    return WEIR_OK;
}
