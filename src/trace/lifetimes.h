/* The blocks of a recording with their clients, bytes, and first and last events, and sums over the blocks; samples of each
 * client's bytes, lends between clients, and the map of addresses. */
#ifndef WI_TRACE_LIFETIMES_H
#define WI_TRACE_LIFETIMES_H

#include "base/maps.h"
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

/* Who held what ---------------------------------------------------------------------------------------------------- */

/* Who held what over a recording, as a bounded number of points. What the totals of the trace change by at
 * an event belongs to its client and class. Of each stretch of events the first, the last, the highest, the lowest and
 * those where most was held and most was away stay, and so does the whole's peak: a short spike is never smoothed away. */

typedef struct sampled_client {
    const char *name;
    int64_t bytes[WEIR_CLASS_COUNT], at_peak[WEIR_CLASS_COUNT]; /* live and pending: at the end, at its own peak */
    uint64_t peak, allocations, refused;
    uint64_t away, peak_away; /* at the end, at most */
    uint64_t lent, borrowed;  /* for whoever counts that */
    size_t row; /* in the points: the client's own row, or the last row, which the remaining clients share */
} sampled_client;

/* Rows of the points. */
enum { SAMPLES_CLIENTS = 24, SAMPLES_WIDTH = (SAMPLES_CLIENTS + 1) * WEIR_CLASS_COUNT };

typedef struct sample {
    uint32_t event; /* in the recording */
    uint64_t live, pending, held, away;
    uint64_t values[SAMPLES_WIDTH];            /* live and pending, by row and class */
    uint64_t away_values[SAMPLES_CLIENTS + 1]; /* by row */
} sample;

typedef struct samples {
    sampled_client *clients; /* in the order in which they were first seen */
    size_t client_count, client_room;
    wi_pointer_map numbers; /* of the clients, by name */
    size_t rows;            /* with a client of their own */
    bool others;            /* the row after `rows` has clients */
    sample *points;
    size_t count, room;
    bool used[SAMPLES_WIDTH];                          /* the series that are not 0 throughout */
    uint64_t peak, peak_live, peak_pending, peak_held; /* live and pending; each by itself */
    uint64_t peak_away;
    uint32_t peak_event, peak_held_event, peak_away_event;
} samples;

/* Makes about `wanted` points, fewer where they would have more than so many numbers; those of an empty recording are
 * none. WEIR_ERR_SYSTEM: no memory. */
weir_status samples_make(const lifetimes *blocks, size_t wanted, size_t numbers, samples *out);
void samples_clear(samples *all);

/* The number of a client that the recording names. */
size_t samples_client(const samples *all, const char *name);

/* What was lent ---------------------------------------------------------------------------------------------------- */

/* Bytes that passed between clients, and between streams. A block may lie where an earlier block lay:
 * addresses that were last another client's or another stream's have been lent. Memory that the driver has moved to
 * other addresses, as that of suspended clients, is not seen, for a trace does not tell where it lay. */

typedef struct lend {
    const char *from, *to;           /* clients of the recording; NULL between streams */
    uint64_t from_stream, to_stream; /* of one client's blocks */
    uint64_t bytes, count;           /* in so many blocks */
    uint32_t first, last;            /* events */
} lend;

typedef struct lends {
    lend *clients, *streams; /* most bytes first */
    size_t client_count, stream_count;
    uint64_t client_bytes, stream_bytes; /* of all */
} lends;

weir_status lends_make(const lifetimes *all, lends *out);
void lends_clear(lends *all);

/* What lay where --------------------------------------------------------------------------------------------------- */

/* What lies where over time, as a picture of so many rows and columns: addresses upwards, without those
 * between the ranges that blocks never were at, and events across. */

enum { ADDRESS_MAP_ROWS = 200, ADDRESS_MAP_COLUMNS = 400, ADDRESS_MAP_FULL = 9 };

typedef struct address_map {
    size_t rows, columns; /* 0: there are no blocks */
    uint64_t row_bytes;   /* the last row may have less */
    uint32_t *events;     /* by column: as it is behind this event */
    uint16_t
        *cells; /* by column, then by row: ninths that are live + 10 × pending + 100 × away, which have no memory */
} address_map;

weir_status address_map_make(const lifetimes *all, const address_ranges *ranges, address_map *out);
void address_map_clear(address_map *map);

#endif
