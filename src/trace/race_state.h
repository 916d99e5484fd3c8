/* What the parts of a replay share. */
#ifndef SIM_REPLAY_STATE_H
#define SIM_REPLAY_STATE_H

#include "trace/race_check.h"
#include <weir/trace.h>
#include "trace/race_clock.h"
#include "base/treap.h"

enum {
    SLOTS = 65536,
    HOST = 0
};                      /* a stream's place is 16 bits of its id; slot 0 is the host, which has no work queued */
#define OPEN UINT64_MAX /* the sequence of an access whose launch has not ended */

typedef struct stream_state {
    uint64_t id, sequence; /* of the last work queued */
    clock_vector clock;
} stream_state;

typedef struct access {
    uint64_t start, end, sequence, order, launch; /* launch 0: not declared */
    unsigned slot;
    bool write, told;
} access;

/* Where a declared use is known to stand behind the allocation. */
typedef struct declared {
    unsigned slot;
    uint64_t sequence;
} declared;

typedef struct block {
    wi_treap_node node;                                /* by its first address */
    uint64_t bytes, charged, generation, order, freed; /* the orders of its allocation and of its free; 0: it is live */
    const char *client, *tag;
    unsigned slot; /* where it was allocated */
    uint64_t sequence;
    bool told; /* of the allocation's order */
    access *accesses;
    size_t access_count, access_room;
    declared *declared;
    size_t declared_count, declared_room;
    clock_vector writes, reads; /* the declared uses that a free waits for; a write begins them anew */
    clock_vector done;          /* of a freed one: what is behind the free */
    unsigned freed_slot;
    uint64_t freed_stream,
        freed_sequence; /* of a free in the order of that stream, which none has come behind yet; else 0 */
} block;

typedef struct launch {
    wi_treap_node node; /* by its number */
    unsigned slot;
    uint64_t *starts; /* of its blocks */
    size_t count, room;
} launch;

typedef struct noted {
    wi_treap_node node; /* by its number */
    clock_vector clock;
} noted;

struct replay {
    uint16_t slot_of[SLOTS]; /* a place's slot; 0: not seen yet */
    stream_state *streams;   /* streams[0].clock is the host's */
    unsigned stream_count, stream_room;
    wi_treap blocks, launches, events;
    clock_purse purse;
    replay_finding *found;
    size_t found_count;
    uint64_t violations, last_order;
};

/* Room for one more of `each` bytes; false without memory. */
bool replay_room(void **list, size_t count, size_t *room, size_t each);

static inline bool replay_behind(const clock_vector *clock, unsigned slot, uint64_t sequence)
{
    return sequence <= clock_get(clock, slot);
}

/* The blocks' side; each answers WEIR_ERR_SYSTEM or WEIR_ERR_UNSUPPORTED as replay_event. `slot` is where the event stands. */
weir_status replay_allocate(replay *r, const weir_event *event, unsigned slot);
weir_status replay_free(replay *r, const weir_event *event, unsigned slot);
weir_status replay_resize(replay *r, const weir_event *event, unsigned slot);
/* A use of these bytes; `number` is the launch of a declared one, else 0. */
weir_status replay_touch(replay *r, const weir_event *event, unsigned slot, uint64_t number);
/* Bytes that were freed in the order of the stream are anyone's; after events were lost, all are. */
void replay_pass(replay *r, const weir_event *event);
void replay_pass_all(replay *r);
block *replay_block_at(const replay *r, uint64_t start); /* the live block that begins there */
void replay_forget(replay *r, block *b);

/* Keeps a finding; `first` is the order of the earlier event, on `other`. */
void replay_report(replay *r, replay_kind kind, const block *b, const weir_event *event, unsigned other, uint64_t first,
                   const char *format, ...) WEIR_PRINTF(7, 8);

#endif
