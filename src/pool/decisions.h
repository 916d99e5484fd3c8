/* decisions.h: what a state machine of admission was told and what it answered, as text: a line for each event.
 *
 * A pool writes them (weir_pool_options.event), the simulator writes and reads them, and a replay gives the inputs to a new
 * state machine and compares its answers. The machine is only driven through wp_apply here, so that nothing that it was told
 * can be left out.
 *
 *   begin queue=512 queue_bytes=forever longest=30000000000 retry=… host=… passing=… devices=1
 *   ceiling t=17 device=0 bytes=1073741824
 *   add t=18 name=minilm%201 device=0 variants=90000000/88000000/0/-1/0/context … steps=- slots=4 model=0
 *   ask t=20 model=0 bytes=4096 deadline=forever priority=0 ticket=1 cause=loading position=1 …
 *   > load model=0 variant=0 device=0 bytes=90000000 why=1
 *   loaded t=900 model=0 ok=1 bytes=88000000 took=880
 *   > grant ticket=1 model=0 cause=granted …
 *
 * A line is a word and pairs KEY=VALUE between single spaces. Words without ">" are inputs, in the order in which they were
 * given; the machine's answer to a call stands at the end of its line. Lines with ">" are the actions that wp_next gave after
 * it, all of them and in order. `t` and all times are nanoseconds of whatever clock; 2^64-1 is "forever". A name has %XX for
 * bytes up to a space, for '%' and for what is not ASCII. Keys always come in one order, so that equal events are equal
 * texts. A reader refuses a word or a key that it does not know. Lines that begin with '#' and empty ones are comments. */
#ifndef WEIR_POOL_DECISIONS_H
#define WEIR_POOL_DECISIONS_H

#include "pool/admission.h"

enum { WP_LINE = 4096 }; /* bytes, enough for the longest line with its NUL */

typedef enum wp_event_kind {
    WP_EVENT_BEGIN = 0, /* wp_admission_create */
    WP_EVENT_ADD,
    WP_EVENT_CHANGE,
    WP_EVENT_REMOVE,
    WP_EVENT_CEILING,
    WP_EVENT_ASK,
    WP_EVENT_DONE,
    WP_EVENT_CANCEL,
    WP_EVENT_WANT,
    WP_EVENT_LOADED,
    WP_EVENT_SUSPENDED,
    WP_EVENT_RESUMED,
    WP_EVENT_UNLOADED,
    WP_EVENT_MEASURED,
    WP_EVENT_TICK,
    WP_EVENT_STOPPED,
    WP_EVENT_INPUTS, /* from here on: actions */
    WP_EVENT_ACTION_LOAD = WP_EVENT_INPUTS,
    WP_EVENT_ACTION_SUSPEND,
    WP_EVENT_ACTION_RESUME,
    WP_EVENT_ACTION_UNLOAD,
    WP_EVENT_ACTION_GRANT,
    WP_EVENT_ACTION_REFUSE,
    WP_EVENT_ACTION_STOP,
    WP_EVENT_KINDS
} wp_event_kind;

/* An event. The kind decides which members are set: the arguments of the kind's function, and the answer of that
 * function. */
typedef struct wp_event {
    wp_event_kind kind;
    uint64_t now;
    wp_limits limits;
    uint32_t devices, device;
    wp_spec spec;
    wp_model model;
    wp_request request;
    wp_ticket ticket;
    wp_state state;
    bool stops;     /* a cancel: it may stop a load */
    bool ok;        /* given: it has worked; answered: by wp_add, wp_cancel and wp_want */
    uint64_t bytes; /* ceiling, resident, stays or residue; reserved */
    uint64_t took;  /* nanoseconds */
    uint32_t variant;
    wp_ticket why;
    wp_answer answer; /* of wp_ask, wp_want, a grant and a refusal */
} wp_event;

/* Tells the machine what an input says, and writes its answer into the event. `*it` is made by WP_EVENT_BEGIN (NULL: no
 * memory). The actions are to be taken afterwards, with wp_take. */
void wp_apply(wp_admission **it, wp_event *event);
/* The next action as an event, and as the machine gave it. False: there is none. */
bool wp_take(wp_admission *it, wp_event *event, wp_action *action);

/* Writes the event's line, without a newline, and answers its length. `capacity` is at least WP_LINE. */
size_t wp_event_write(const wp_event *event, char *text, size_t capacity);
/* Reads one, with or without a newline. False: it is none; *out is not defined then. */
bool wp_event_read(const char *line, wp_event *out);

/* "unloaded", "loading" …, and "granted", "busy", "loading", "room", "turn", "never fits" …; "?" */
const char *wp_state_name(wp_state state);
const char *wp_cause_name(wp_cause cause);
const char *wp_step_name(wp_step step); /* "context", "layers", "suspend", "evict", "device", "wait"; "?" */

#endif
