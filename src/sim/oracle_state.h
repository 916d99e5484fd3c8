/* Inside the oracle: clocks (oracle.c), the owners of bytes (oracle_owner.c) and the book (oracle_book.c). */
#ifndef SIM_ORACLE_STATE_H
#define SIM_ORACLE_STATE_H

#include "sim/oracle.h"

#define ULL(x) ((unsigned long long)(x))

typedef enum owner_state { OWNER_NONE, OWNER_LIVE, OWNER_FREED, OWNER_POOL } owner_state; /* the last: a pool's alone */

/* Between a free and the next owner stands: the stream's order and more; perhaps the order alone; the order alone. */
typedef enum free_order { ORDER_MORE, ORDER_PERHAPS, ORDER_ALONE } free_order;

/* The present or the last owner of some bytes. The record is kept while a unit or a list of frees points to the
 * record. */
typedef struct owner {
    uint64_t units; /* that point here */
    uint32_t pool;  /* the pool that it is of, or is; 0: none */
    bool listed;    /* in the list of pending frees, or of those in order */
    bool late;      /* its free may wait for all work of the device, and not be pending */
    bool graphs;    /* it is or was held by a graph, whose close gives it back */
    bool let_out;   /* it was held by a graph that was closed while the block was live */
    bool moving;    /* its free has not ended */
    owner_state state;
    unsigned client;
    weir_class memory_class;
    uint64_t length, charged, serial; /* length: bytes that the user may touch */
    char *address;
    unsigned stream; /* where it was allocated, and how far that was */
    uint64_t allocated;
    unsigned write_stream;
    uint64_t write;
    unsigned free_stream;
    free_order order;
    uint64_t freed;                     /* how far that stream was */
    bool elsewhere;                     /* a call named another stream than that of the allocation, or that has ended */
    uint64_t last_before, least_before; /* of that stream, in case the free is refused */
    bool queued, past; /* weir's own work may stand on `stream`; of a free that may count as pending, and need not */
    uint64_t marks;    /* bits of streams: with uses that weir remembers */
    bool queued_before, arrived_before; /* of what is away, in case the free is refused */
    uint64_t marks_before;
    uint64_t away;          /* of its charge */
    uint64_t gone;          /* `away` as of the beginning of a free that has not ended */
    bool arrived;           /* it was away: what it holds came by … */
    unsigned by, home;      /* … this stream, and is there for whoever comes behind … */
    uint64_t home_point;    /* … this point of that one; of the host's, for all */
    uint64_t own, declared; /* bits of streams: with accesses of this owner; whose last one was declared */
    uint64_t *last;         /* per stream: the last access of this owner or of those before */
    uint64_t *least,
        *most; /* per stream: bounds of the access that weir was told to wait for; never earlier than `last` */
} owner;

typedef struct snapshot {
    uint64_t sequence;
    uint64_t *clock;
} snapshot;

/* The events of a stream that the host does not know to be passed, oldest first. */
typedef struct snapshots {
    snapshot *ring;
    size_t first, count, capacity;
} snapshots;

typedef struct account {
    uint64_t live, live_class[WEIR_CLASS_COUNT], reserved, guaranteed, maximum;
    uint64_t pending_least, pending_most;
    uint64_t away, away_moving; /* away: of live blocks; away_moving: of blocks whose free is under way */
    uint64_t coming;            /* bytes that a call under way may bring back */
    uint64_t due;               /* what is guaranteed again when it is back */
    uint64_t left;              /* of the live bytes: were away at the last look, in the middle of a suspend */
    bool passes;                /* another client comes for it: it leaves piece by piece, and may come back */
    bool moves;                 /* its memory may be taken from under its blocks, or put there */
    unsigned by;                /* the stream of the copies, then; 0: there were none */
    uint64_t moving, moving_class[WEIR_CLASS_COUNT],
        asked; /* that may be live, or promised, besides: calls are under way */
} account;

/* Units of a block at addresses that have no memory. */
typedef struct away_span {
    char *address;
    uint32_t units, owner;
} away_span;

/* A granule that a resume has put memory under, of a client that is still suspended: the resume failed, or is under way. */
typedef struct away_there {
    const char *address;
    unsigned client;
} away_there;

/* What a copy of a client's that is on its way touches. */
typedef struct away_copy {
    const char *address;
    uint64_t bytes, sequence;
    unsigned client;
} away_copy;

struct oracle {
    oracle_findings found;
    wi_device *device;
    unsigned width; /* of a clock: streams + 1 */
    uint64_t granule, budget, held, serial;
    uint64_t next_budget; /* it may be this already */
    uint64_t *host;
    uint64_t **clock; /* per stream */
    snapshots *events;
    bool declared, users, pooled, in_order, slack;
    wi_plane owners; /* per unit: an owner's index */
    owner *table;
    uint32_t *unused;
    uint32_t count, capacity, unused_count;
    uint32_t *pending;
    size_t pending_count, pending_capacity;
    uint32_t *ordered; /* freed in the order of their streams alone */
    size_t ordered_count, ordered_capacity;
    away_span *away;
    size_t away_count, away_capacity;
    away_there *there;
    size_t there_count, there_capacity;
    away_copy *copies;
    size_t copy_count, copy_capacity;
    uint64_t heirs; /* bits of streams in the place of one that ended without notice */
    bool
        left_behind; /* there was such a one: what it left waits for a point that is had when memory is short, or given back */
    uint64_t followed; /* bits of streams that had such frees, or may have had */
    account accounts[ORACLE_CLIENTS];
    uint64_t live, moving;
};

/* True if a clock is behind everything in `last`; else *late is a stream that it is not behind. */
bool oracle_behind(const oracle *o, const uint64_t *clock, const uint64_t *last, unsigned *late);
/* Raises the clock to the other clock. */
void oracle_join(const oracle *o, uint64_t *clock, const uint64_t *other);
const uint64_t *oracle_clock(const oracle *o, unsigned stream); /* 0: the host's */
void oracle_touch(void *user, unsigned stream, uint64_t sequence, const void *address, uint64_t bytes, bool write,
                  bool own);
void oracle_unmapping(void *user, const void *address, uint32_t handle);
void oracle_holding(void *user, uint64_t bytes);

uint32_t oracle_new_owner(oracle *o, uint64_t length, uint64_t charged, void *address);
void oracle_let_go(oracle *o, uint32_t index); /* frees the record when nothing points to it */
/* Makes room for one more item, as wi_make_room does; false: no host memory, which is reported. */
bool oracle_room(oracle *o, void *list, size_t count, size_t *room, size_t bytes);
void oracle_list_pending(oracle *o, uint32_t index);
void oracle_unlist_pending(oracle *o, uint32_t index);
void oracle_move(oracle *o, unsigned client, weir_class memory_class, uint64_t more, uint64_t less);
void oracle_live(oracle *o, unsigned client, weir_class memory_class, uint64_t more, uint64_t less);
bool oracle_are_done(const oracle *o, const uint64_t *points);

/* A copy of the client's is queued; up to which one the host must be behind before the memory there goes. */
void oracle_note_copy(oracle *o, unsigned client, unsigned stream, uint64_t sequence, const char *address,
                      uint64_t bytes);
uint64_t oracle_last_copy(const oracle *o, unsigned client, const char *address, uint64_t bytes);
/* Memory goes from under a block whose client may be moved, and comes somewhere. */
void oracle_take_away(oracle *o, const char *address, uint32_t granule, uint32_t first, uint32_t count);
void oracle_mapping(void *user, const void *address, uint32_t granule);
/* The granule's memory goes. */
void oracle_not_there(oracle *o, const char *address);
/* How many bytes of the client's blocks, and of each class of them, have no memory, or are shown. */
uint64_t oracle_left(oracle *o, unsigned client, uint64_t of_class[WEIR_CLASS_COUNT]);
/* oracle_forget_away: forgets the away spans of the block. oracle_join_away: gives the away spans of a pool's pieces to
 * the pool's block. */
void oracle_forget_away(oracle *o, uint32_t index);
void oracle_join_away(oracle *o, uint32_t pool);

/* A free, with what its points were before it, begins and ends: what its order is. */
void oracle_begin_order(oracle *o, owner *w, unsigned stream);
void oracle_end_order(oracle *o, uint32_t index);
/* A block gets bytes of one that was freed. */
void oracle_count_reuse(oracle *o, const owner *had, const owner *gets, bool *at_once, bool *passed);

#endif
