/* lifetimes.h: the blocks of a recording with their clients, bytes, and first and last events, and sums over the
 * blocks. */
#ifndef WI_TRACE_LIFETIMES_H
#define WI_TRACE_LIFETIMES_H

#include "trace/recording.h"

enum { LIFETIMES_NEVER = UINT32_MAX };

/* A block. A resize ends a lifetime and begins a new lifetime. Bytes that a resize gives up while the device is not
 * past them are a lifetime, too, which was never live. */
typedef struct lifetime {
    uint64_t pointer, bytes, charged;
    uint64_t away;  /* of its charge: at the end, or when it was freed */
    uint32_t kind;  /* in `kinds` */
    uint32_t begin; /* events: live from here on, */
    uint32_t freed; /* pending from here on, */
    uint32_t end;   /* and gone from here on; LIFETIMES_NEVER: still there at the end */
} lifetime;

/* From this event on another part of a block's charge is away; 0 also when it is freed. */
typedef struct lifetime_move {
    uint32_t event, block;  /* in `list` */
    uint64_t before, after; /* bytes */
} lifetime_move;

/* Blocks of one client, class and tag. */
typedef struct lifetime_kind {
    const char *client, *tag; /* by the recording */
    weir_class memory_class;
    uint64_t allocations, bytes; /* all of them, as requested */
    uint64_t live, peak,
        peak_at; /* as counted, of live ones, without what is away; at the end, at most, at which event */
} lifetime_kind;

/* Blocks by size: those of at least `least` bytes and less than twice that; of 0 bytes: least is 0. */
typedef struct lifetime_size {
    uint64_t least, allocations, bytes;
} lifetime_size;

enum { LIFETIMES_SIZES = 65 };

typedef struct lifetimes {
    const recording *of;
    lifetime *list;
    size_t count, room;
    lifetime_move *moves; /* in their order */
    size_t move_count, move_room;
    lifetime_kind *kinds;
    size_t kind_count, kind_room;
    uint32_t *places; /* of the kinds: open addressing */
    size_t place_room;
    lifetime_size sizes[LIFETIMES_SIZES];
    uint64_t allocations, frees, resizes, refused, failed, copies;
    uint64_t requested, peak_requested; /* live and not away, as requested: at the end, at most */
    uint64_t unknown;                   /* frees and reaps of blocks that no event has allocated: what was lost had */
} lifetimes;

/* WEIR_ERR_SYSTEM: no memory; WEIR_ERR_UNSUPPORTED: too many events. */
weir_status lifetimes_make(const recording *from, lifetimes *out);
void lifetimes_clear(lifetimes *all);

/* Whether the block is there behind an event; *pending tells which. */
static inline bool lifetime_at(const lifetime *one, uint32_t event, bool *pending)
{
    *pending = one->freed <= event;
    return one->begin <= event && one->end > event;
}

/* What is away of each block behind an event; `out` has a place for each. */
void lifetimes_away(const lifetimes *all, uint32_t event, uint64_t *out);

/* Suspends and resumes, as the moves of one client tell of them. */
typedef struct lifetime_residency {
    const char *client;
    bool back;            /* a resume */
    uint32_t first, last; /* events */
    uint64_t bytes;       /* which left the device, or came back */
    uint64_t blocks;
} lifetime_residency;

/* Returns the suspends and resumes, sorted by first event; the caller frees the list. NULL: no memory. */
lifetime_residency *lifetimes_residencies(const lifetimes *all, size_t *count);

/* Ranges of addresses ---------------------------------------------------------------------------------------------- */

typedef struct address_range {
    uint64_t address, bytes;
} address_range;

typedef struct address_ranges {
    address_range *list; /* sorted by address, with gaps between */
    size_t count;
    uint64_t bytes; /* of all */
} address_ranges;

/* Collects the addresses of all blocks: blocks closer than ADDRESS_GAP share a range. A snapshot's own segments are
 * added to the blocks, and then only neighbours without a gap are joined. If there are more than ADDRESS_RANGES_MOST
 * ranges, neighbours are joined across larger gaps. */
enum { ADDRESS_GAP = 1 << 20, ADDRESS_RANGES_MOST = 500 };
weir_status address_ranges_make(const lifetimes *all, address_ranges *out);
void address_ranges_clear(address_ranges *ranges);

/* The range with the address; NULL: none. */
const address_range *address_range_at(const address_ranges *ranges, uint64_t address);

#endif
