/* Checks a recorded program: are all uses of its blocks ordered?
 *
 * A vector clock for each stream and one for the host say what is known to be done before what, as in oracle.h. That one
 * cannot serve here: it follows physical memory through the simulated device's mappings and is told of every event that is
 * recorded and passed, while a trace has the addresses and the calls of a program, and what it orders by means of its own
 * are notes. So this one knows blocks by their addresses, and of weir what weir/uses.h and weir/memory.h promise: a
 * launch is behind the declared uses it conflicts with and behind the allocation, a free waits for declared uses. What the
 * program did not declare it has to have ordered itself. What one host thread learns, all know. */
#ifndef SIM_REPLAY_H
#define SIM_REPLAY_H

#include <weir/trace.h>

typedef enum replay_kind {
    REPLAY_FREE_IN_USE,          /* freed while work of another stream may still use the block */
    REPLAY_UNORDERED_USE,        /* two uses, one of which writes, in no order */
    REPLAY_UNORDERED_ALLOCATION, /* used on another stream, in no order with the allocation */
    REPLAY_USE_AFTER_FREE,
    REPLAY_EARLY_REUSE, /* the bytes were another block's while work may still have used the old one */
    REPLAY_OVERLAP,     /* the bytes of a live block were given out again */
    REPLAY_KINDS
} replay_kind;

const char *replay_kind_name(replay_kind kind);

typedef struct replay_finding {
    replay_kind kind;
    uint64_t pointer, bytes;       /* of the block */
    const char *client, *tag;      /* as in the events, and as long-lived */
    uint64_t stream, other_stream; /* of the later event and of the earlier one; 0: the host */
    uint64_t order_first, order_second;
    char text[320];
} replay_finding;

typedef struct replay replay;

enum { REPLAY_FINDINGS = 1000 }; /* so many are kept, and the rest counted */

replay *replay_create(void); /* NULL: no memory */
/* The next event, in order. WEIR_ERR_SYSTEM: no memory; WEIR_ERR_UNSUPPORTED: more streams and events than can be followed. */
weir_status replay_event(replay *r, const weir_event *event);
uint64_t replay_violations(const replay *r);
const replay_finding *replay_found(const replay *r, size_t *count);
void replay_destroy(replay *r);

#endif
