/* Checks a recorded program: are all uses of its blocks ordered?
 *
 * A vector clock for each stream and one for the host say what is known to be done before what, as in sim/oracle.h.
 * That one cannot serve here: it follows physical memory through the simulated device's mappings and is told of every
 * event that is recorded and passed, while a trace has the addresses and the calls of a program, and what it orders by
 * means of its own are notes. So this one knows blocks by their addresses, and of weir what weir/uses.h and
 * weir/memory.h promise: a launch is behind the declared uses it conflicts with and behind the allocation, a free waits
 * for declared uses. What the program did not declare it has to have ordered itself. All host threads share the host's
 * clock.
 *
 * Of weir/residency.h it knows that a suspend waits for the streams of the client's blocks and for declared uses, and
 * that what a resume brings back is written by its stream. Any other work that may still use a block when the block
 * leaves is a finding, and so is each use of an away block. */
#ifndef WI_TRACE_RACE_CHECK_H
#define WI_TRACE_RACE_CHECK_H

#include <weir/trace.h>

typedef enum race_kind {
    RACE_FREE_IN_USE,          /* freed while work of another stream may still use the block */
    RACE_UNORDERED_USE,        /* two uses, one of which writes, in no order */
    RACE_UNORDERED_ALLOCATION, /* used on another stream, in no order with the allocation */
    RACE_USE_AFTER_FREE,
    RACE_EARLY_REUSE, /* the bytes were another block's while work may still have used the old one */
    RACE_OVERLAP,     /* the bytes of a live block were given out again */
    RACE_USE_WHILE_AWAY,
    RACE_KINDS
} race_kind;

const char *race_kind_name(race_kind kind);

typedef struct race_finding {
    race_kind kind;
    uint64_t pointer, bytes;       /* of the block */
    const char *client, *tag;      /* as in the events, and as long-lived */
    uint64_t stream, other_stream; /* of the later event and of the earlier one; 0: the host */
    uint64_t order_first, order_second;
    char text[320];
} race_finding;

typedef struct race_check race_check;

enum { RACE_FINDINGS = 1000 }; /* so many are kept, and the rest counted */

race_check *race_check_create(void); /* NULL: no memory */
/* The next event, in order. WEIR_ERR_SYSTEM: no memory; WEIR_ERR_UNSUPPORTED: more streams and events than can be
 * followed. */
weir_status race_check_event(race_check *r, const weir_event *event);
uint64_t race_check_violations(const race_check *r);
const race_finding *race_check_found(const race_check *r, size_t *count);
void race_check_destroy(race_check *r);

#endif
