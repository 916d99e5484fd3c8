/* See race_check.h. */
#include "trace/race_check.h"
#include <weir/trace.h>
#include "base/internal.h"
#include "base/maps.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ULL(x) ((unsigned long long)(x))

/* Clocks ----------------------------------------------------------------------------------------------------------- */

/* at[s] is the last piece of work on stream s that is known to be done. */
typedef struct clock_vector {
    uint64_t *at; /* beyond width: 0 */
    unsigned width;
} clock_vector;

/* What all clocks of a race_check may take together; a file must not be able to ask for more than a machine has. */
typedef struct clock_purse {
    uint64_t bytes, most;
} clock_purse;

static weir_status race_check_widen(clock_purse *purse, clock_vector *c, unsigned width)
{
    if (width <= c->width)
        return WEIR_OK;
    uint64_t more = (uint64_t)(width - c->width) * sizeof *c->at;
    if (more > purse->most - purse->bytes)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "the trace has more streams and events than can be followed");
    uint64_t *at = realloc(c->at, width * sizeof *at);
    if (!at)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory to follow the trace");
    memset(at + c->width, 0, (size_t)more);
    purse->bytes += more;
    c->at = at;
    c->width = width;
    return WEIR_OK;
}

static weir_status clock_raise(clock_purse *purse, clock_vector *c, unsigned slot, uint64_t value)
{
    weir_status status = race_check_widen(purse, c, slot + 1);
    if (status == WEIR_OK && c->at[slot] < value)
        c->at[slot] = value;
    return status;
}

static weir_status clock_join(clock_purse *purse, clock_vector *c, const clock_vector *other)
{
    weir_status status = race_check_widen(purse, c, other->width);
    for (unsigned s = 0; status == WEIR_OK && s < other->width; s++)
        if (c->at[s] < other->at[s])
            c->at[s] = other->at[s];
    return status;
}

static weir_status clock_copy(clock_purse *purse, clock_vector *c, const clock_vector *other)
{
    if (c->width > 0)
        memset(c->at, 0, c->width * sizeof *c->at);
    return clock_join(purse, c, other);
}

static void clock_clear(clock_purse *purse, clock_vector *c)
{
    purse->bytes -= (uint64_t)c->width * sizeof *c->at;
    free(c->at);
    *c = (clock_vector){0};
}

/* What is known ---------------------------------------------------------------------------------------------------- */

/* A stream's place is 16 bits of its id; slot 0 is the host, which has no work queued. */
enum { SLOTS = 65536, HOST = 0 };
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
    bool told;     /* of the allocation's order */
    uint64_t left; /* the order of the first leave since it was here last; 0: it is here */
    access *accesses;
    size_t access_count, access_room;
    declared *declared;
    size_t declared_count, declared_room;
    clock_vector writes, reads; /* the declared uses that a free waits for; a write starts them again */
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

struct race_check {
    uint16_t slot_of[SLOTS]; /* a place's slot; 0: not seen yet */
    stream_state *streams;   /* streams[0].clock is the host's */
    unsigned stream_count;
    size_t stream_room;
    wi_treap blocks, launches, events;
    clock_purse purse;
    race_finding *found;
    size_t found_count;
    uint64_t violations, last_order;
    const char *leaving; /* the client whose block left by the last event */
};

const char *race_kind_name(race_kind kind)
{
    static const char *const names[RACE_KINDS] = {"free-in-use",    "unordered-use", "unordered-allocation",
                                                  "use-after-free", "early-reuse",   "overlap",
                                                  "use-while-away"};
    return (unsigned)kind < RACE_KINDS ? names[kind] : "?";
}

static weir_status race_check_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory to follow the trace");
}

/* Keeps a finding; `first` is the order of the earlier event, on `other`. */
WEIR_PRINTF(7, 8)
static void race_check_report(race_check *r, race_kind kind, const block *b, const weir_event *event, unsigned other,
                              uint64_t first, const char *format, ...)
{
    r->violations++;
    if (r->found_count == RACE_FINDINGS)
        return;
    race_finding *f = &r->found[r->found_count++];
    *f = (race_finding){.kind = kind,
                        .pointer = b->node.key,
                        .bytes = b->bytes,
                        .client = b->client,
                        .tag = b->tag,
                        .stream = event->stream.id,
                        .other_stream = other == HOST ? 0 : r->streams[other].id,
                        .order_first = first,
                        .order_second = event->order};
    int length = snprintf(f->text, sizeof f->text, "%.64s's block at 0x%llx%s%.48s%s, ", b->client, ULL(b->node.key),
                          b->tag[0] ? " (" : "", b->tag, b->tag[0] ? ")" : "");
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it does not see va_start */
    vsnprintf(f->text + length, sizeof f->text - (size_t)length, format, arguments);
    va_end(arguments);
}

/* Blocks: each use is compared with the earlier uses --------------------------------------------------------------- */

static bool race_check_behind(const clock_vector *clock, unsigned slot, uint64_t sequence)
{
    return sequence == 0 || (slot < clock->width && sequence <= clock->at[slot]);
}

/* A block forgets its oldest accesses beyond so many, rather than let a long program grow without end; what the host
 * knows to be done is forgotten before. */
enum { MOST_ACCESSES = 4096, NAME = 32 };

static const char *name(const race_check *r, unsigned slot, char text[NAME])
{
    if (slot == HOST)
        snprintf(text, NAME, "the host");
    else
        snprintf(text, NAME, "stream %llx", ULL(r->streams[slot].id));
    return text;
}

static uint64_t race_check_end_of(const block *b)
{
    uint64_t bytes = b->charged > b->bytes ? b->charged : b->bytes;
    return bytes > UINT64_MAX - b->node.key ? UINT64_MAX : b->node.key + bytes;
}

/* Finds the live block that begins at `start`. */
static block *race_check_block_at(const race_check *r, uint64_t start)
{
    block *b = (block *)wi_treap_find(&r->blocks, start);
    return b && b->freed == 0 ? b : NULL;
}

static void race_check_forget(race_check *r, block *b)
{
    wi_treap_remove(&r->blocks, &b->node);
    clock_clear(&r->purse, &b->writes);
    clock_clear(&r->purse, &b->reads);
    clock_clear(&r->purse, &b->done);
    free(b->accesses);
    free(b->declared);
    free(b);
}

/* The first block of which something lies in [start, end); NULL. They never overlap. */
static block *race_check_first_in(const race_check *r, uint64_t start, uint64_t end)
{
    block *b = (block *)wi_treap_floor(&r->blocks, start);
    if (!b || race_check_end_of(b) <= start)
        b = (block *)wi_treap_above(&r->blocks, start);
    return b && b->node.key < end && race_check_end_of(b) > start ? b : NULL;
}

/* The next one. */
static block *race_check_next_in(const race_check *r, const block *b, uint64_t end)
{
    block *next = (block *)wi_treap_above(&r->blocks, b->node.key);
    return next && next->node.key < end ? next : NULL;
}

/* Allocation ------------------------------------------------------------------------------------------------------- */

/* Bytes are given out that were others'. */
static void race_check_take_over(race_check *r, const weir_event *event, unsigned slot, uint64_t start, uint64_t end)
{
    const clock_vector *clock = &r->streams[slot].clock;
    char who[NAME];
    for (block *old; (old = race_check_first_in(r, start, end)); race_check_forget(r, old)) {
        if (old->freed == 0) {
            race_check_report(r, RACE_OVERLAP, old, event, old->slot, old->order,
                              "allocated by event %llu, is live when event %llu gives its bytes out again",
                              ULL(old->order), ULL(event->order));
            continue;
        }
        if (old->freed_stream && old->freed_slot != slot &&
            !race_check_behind(clock, old->freed_slot, old->freed_sequence)) {
            race_check_report(
                r, RACE_EARLY_REUSE, old, event, old->freed_slot, old->freed,
                "freed in the order of %s by event %llu: its bytes are %.64s's on another stream from event "
                "%llu on, before any stream could have them",
                name(r, old->freed_slot, who), ULL(old->freed), event->client, ULL(event->order));
            continue;
        }
        for (size_t i = 0; i < old->access_count; i++) {
            const access *a = &old->accesses[i];
            if (a->end <= start || a->start >= end || race_check_behind(&old->done, a->slot, a->sequence) ||
                race_check_behind(clock, a->slot, a->sequence))
                continue;
            race_check_report(
                r, RACE_EARLY_REUSE, old, event, a->slot, a->order,
                "freed by event %llu: its bytes are %.64s's from event %llu on, and work of %s (event %llu) may "
                "still %s them",
                ULL(old->freed), event->client, ULL(event->order), name(r, a->slot, who), ULL(a->order),
                a->write ? "write" : "read");
            break;
        }
    }
}

static weir_status race_check_allocate(race_check *r, const weir_event *event, unsigned slot)
{
    block *b = calloc(1, sizeof *b);
    if (!b)
        return race_check_no_memory();
    *b = (block){.node.key = (uint64_t)(uintptr_t)event->pointer,
                 .bytes = event->bytes,
                 .charged = event->charged,
                 .generation = event->generation,
                 .order = event->order,
                 .client = event->client,
                 .tag = event->tag,
                 .slot = slot,
                 .sequence = r->streams[slot].sequence};
    /* One of no bytes, which weir never records, takes a byte: blocks must not share a key. */
    race_check_take_over(r, event, slot, b->node.key,
                         race_check_end_of(b) > b->node.key ? race_check_end_of(b) : b->node.key + 1);
    block *same = (block *)wi_treap_find(&r->blocks, b->node.key);
    if (same)
        race_check_forget(r, same);
    wi_treap_add(&r->blocks, &b->node, b->node.key);
    return WEIR_OK;
}

static weir_status race_check_resize(race_check *r, const weir_event *event, unsigned slot)
{
    block *b = race_check_block_at(r, (uint64_t)(uintptr_t)event->pointer);
    if (!b)
        return WEIR_OK;
    uint64_t before = race_check_end_of(b);
    block grown = *b;
    grown.bytes = event->bytes;
    grown.charged = event->charged;
    if (race_check_end_of(&grown) > before)
        race_check_take_over(r, event, slot, before, race_check_end_of(&grown));
    b->bytes = event->bytes;
    b->charged = event->charged;
    size_t left = 0;
    for (size_t i = 0; i < b->access_count; i++) /* of a tail that was given back no more is known */
        if (b->accesses[i].start < race_check_end_of(b))
            b->accesses[left++] = b->accesses[i];
    b->access_count = left;
    return WEIR_OK;
}

/* Free ------------------------------------------------------------------------------------------------------------- */

static bool waited_for(const block *b, const access *a)
{
    return race_check_behind(&b->writes, a->slot, a->sequence) || race_check_behind(&b->reads, a->slot, a->sequence);
}

static weir_status race_check_release(race_check *r, const weir_event *event, unsigned slot)
{
    block *b = race_check_block_at(r, (uint64_t)(uintptr_t)event->pointer);
    const clock_vector *clock = &r->streams[slot].clock;
    char who[NAME], where[NAME];
    if (!b)
        return WEIR_OK;
    for (size_t i = 0; i < b->access_count; i++) {
        access *a = &b->accesses[i];
        if (a->slot == slot || race_check_behind(clock, a->slot, a->sequence) || waited_for(b, a))
            continue;
        race_check_report(
            r, RACE_FREE_IN_USE, b, event, a->slot, a->order,
            "is freed on %s (event %llu) while work of %s (event %llu) may still %s it; order the free behind "
            "that, or declare the use",
            name(r, slot, where), ULL(event->order), name(r, a->slot, who), ULL(a->order), a->write ? "write" : "read");
    }
    b->freed = event->order;
    b->freed_slot = slot;
    b->freed_stream = event->object ? event->stream.id : 0;
    b->freed_sequence = r->streams[slot].sequence;
    weir_status status = clock_copy(&r->purse, &b->done, clock);
    if (status == WEIR_OK)
        status = clock_join(&r->purse, &b->done, &b->writes);
    return status == WEIR_OK ? clock_join(&r->purse, &b->done, &b->reads) : status;
}

/* Any stream may have the bytes that were freed in the order of this one. */
static void race_check_pass(race_check *r, const weir_event *event)
{
    uint64_t start = (uint64_t)(uintptr_t)event->pointer, end = start + event->bytes;
    if (event->generation != 0)
        return;
    for (block *b = race_check_first_in(r, start, end); b; b = race_check_next_in(r, b, end)) {
        if (b->freed_stream == event->stream.id)
            b->freed_stream = 0;
    }
}

/* Use -------------------------------------------------------------------------------------------------------------- */

static bool behind_allocation(const race_check *r, const block *b, unsigned slot)
{
    const clock_vector *clock = &r->streams[slot].clock;
    if (b->slot == HOST || b->slot == slot || race_check_behind(clock, b->slot, b->sequence))
        return true;
    for (size_t i = 0; i < b->declared_count; i++)
        if (b->declared[i].slot == slot || b->declared[i].slot == HOST ||
            race_check_behind(clock, b->declared[i].slot, b->declared[i].sequence))
            return true;
    return false;
}

static void check_use(race_check *r, const weir_event *event, unsigned slot, block *b, const access *now)
{
    char who[NAME], where[NAME];
    if (!behind_allocation(r, b, slot) && !b->told) {
        b->told = true;
        race_check_report(
            r, RACE_UNORDERED_ALLOCATION, b, event, b->slot, b->order,
            "allocated on %s (event %llu), is used on %s (event %llu), and nothing orders the two; declare the "
            "use, or wait for an event",
            name(r, b->slot, where), ULL(b->order), name(r, slot, who), ULL(event->order));
    }
    for (size_t i = 0; i < b->access_count; i++) {
        access *a = &b->accesses[i];
        if (a->told || a->slot == slot || a->end <= now->start || a->start >= now->end || !(a->write || now->write) ||
            race_check_behind(&r->streams[slot].clock, a->slot, a->sequence))
            continue;
        a->told = true;
        race_check_report(r, RACE_UNORDERED_USE, b, event, a->slot, a->order,
                          "is %s on %s (event %llu) and %s on %s (event %llu), and nothing orders the two",
                          a->write ? "written" : "read", name(r, a->slot, where), ULL(a->order),
                          now->write ? "written" : "read", name(r, slot, who), ULL(event->order));
    }
}

/* Forgets what the host knows to be done, and what `now` makes superfluous: earlier work of its own stream on no more
 * bytes, in no other way. */
static void prune(race_check *r, block *b, const access *now)
{
    size_t left = 0;
    for (size_t i = 0; i < b->access_count; i++) {
        const access *a = &b->accesses[i];
        bool done = race_check_behind(&r->streams[HOST].clock, a->slot, a->sequence);
        bool covered = a->slot == now->slot && a->sequence != OPEN && now->sequence != OPEN && a->start >= now->start &&
                       a->end <= now->end && (now->write || !a->write);
        if (!done && !covered)
            b->accesses[left++] = *a;
    }
    b->access_count = left;
    if (left == MOST_ACCESSES)
        memmove(b->accesses, b->accesses + 1, --b->access_count * sizeof *b->accesses);
}

/* A use of these bytes; `number` is the launch of a declared one, else 0. */
static weir_status touch(race_check *r, const weir_event *event, unsigned slot, uint64_t number)
{
    uint64_t start = (uint64_t)(uintptr_t)event->pointer;
    uint64_t end = event->bytes > UINT64_MAX - start ? UINT64_MAX : start + event->bytes;
    char who[NAME];
    for (block *b = race_check_first_in(r, start, end); b; b = race_check_next_in(r, b, end)) {
        access now = {.start = start > b->node.key ? start : b->node.key,
                      .end = end < race_check_end_of(b) ? end : race_check_end_of(b),
                      .sequence = number ? OPEN : r->streams[slot].sequence,
                      .order = event->order,
                      .launch = number,
                      .slot = slot,
                      .write = event->access != WEIR_ACCESS_READ};
        if (b->left || b->freed) {
            uint64_t since = b->freed ? b->freed : b->left;
            race_check_report(r, b->freed ? RACE_USE_AFTER_FREE : RACE_USE_WHILE_AWAY, b, event,
                              b->freed ? b->freed_slot : HOST, since, "%s event %llu, is %s on %s by event %llu%s",
                              b->freed ? "freed by" : "away since", ULL(since), now.write ? "written" : "read",
                              name(r, slot, who), ULL(event->order), b->freed ? "" : "; resume its client before");
            continue;
        }
        check_use(r, event, slot, b, &now);
        if (slot == HOST && !number) /* done, and known to all */
            continue;
        prune(r, b, &now);
        if (!wi_make_room(&b->accesses, b->access_count, &b->access_room, sizeof *b->accesses))
            return race_check_no_memory();
        b->accesses[b->access_count++] = now;
    }
    return WEIR_OK;
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

static weir_status wait_for_stream(race_check *r, unsigned slot)
{
    stream_state *s = &r->streams[slot];
    weir_status status = clock_raise(&r->purse, &s->clock, slot, s->sequence);
    return status == WEIR_OK ? clock_join(&r->purse, &r->streams[HOST].clock, &s->clock) : status;
}

/* The stream's slot. A later stream at the same place is behind the earlier one, whose end weir waited for. */
static weir_status race_check_find_slot(race_check *r, uint64_t id, unsigned *slot)
{
    *slot = id == 0 ? HOST : r->slot_of[id % SLOTS];
    if (id == 0)
        return WEIR_OK;
    if (*slot == 0) {
        if (r->stream_count == SLOTS)
            return weir_fail(WEIR_ERR_UNSUPPORTED, "the trace has more streams than can be followed");
        if (!wi_make_room(&r->streams, r->stream_count, &r->stream_room, sizeof *r->streams))
            return race_check_no_memory();
        *slot = r->stream_count++;
        r->slot_of[id % SLOTS] = (uint16_t)*slot;
        r->streams[*slot] = (stream_state){.id = id};
    }
    weir_status status = WEIR_OK;
    if (r->streams[*slot].id != id)
        status = wait_for_stream(r, *slot);
    r->streams[*slot].id = id;
    return status;
}

/* One piece of work more. */
static weir_status queue(race_check *r, unsigned slot)
{
    if (slot == HOST)
        return WEIR_OK;
    stream_state *s = &r->streams[slot];
    return clock_raise(&r->purse, &s->clock, slot, ++s->sequence);
}

/* Launches --------------------------------------------------------------------------------------------------------- */

static void forget_launch(race_check *r, launch *l)
{
    wi_treap_remove(&r->launches, &l->node);
    free(l->starts);
    free(l);
}

static weir_status begin_use(race_check *r, const weir_event *event, unsigned slot)
{
    block *b = race_check_block_at(r, (uint64_t)(uintptr_t)event->pointer);
    launch *l = (launch *)wi_treap_find(&r->launches, event->object);
    if (!l) {
        if (!(l = calloc(1, sizeof *l)))
            return race_check_no_memory();
        l->slot = slot;
        wi_treap_add(&r->launches, &l->node, event->object);
    }
    if (!b) /* from before the trace, or lost */
        return WEIR_OK;
    if (!wi_make_room(&l->starts, l->count, &l->room, sizeof *l->starts) ||
        !wi_make_room(&b->declared, b->declared_count, &b->declared_room, sizeof *b->declared))
        return race_check_no_memory();
    l->starts[l->count++] = b->node.key;
    size_t i = 0;
    while (i < b->declared_count && b->declared[i].slot != slot)
        i++;
    if (i == b->declared_count)
        b->declared[b->declared_count++] = (declared){slot, r->streams[slot].sequence + 1};
    clock_vector *clock = &r->streams[slot].clock;
    weir_status status = clock_join(&r->purse, clock, &b->writes);
    if (status == WEIR_OK && event->access != WEIR_ACCESS_READ)
        status = clock_join(&r->purse, clock, &b->reads);
    if (status == WEIR_OK)
        status = queue(r, slot);
    return status == WEIR_OK ? touch(r, event, slot, event->object) : status;
}

/* The launch's use of the block, which was of all of it, is over, or never was. What the same stream did to it before,
 * in no other way, needs no looking at any more. */
static weir_status close_use(race_check *r, block *b, const launch *l, bool used)
{
    const stream_state *s = &r->streams[l->slot];
    size_t at = 0;
    while (at < b->access_count && (b->accesses[at].launch != l->node.key || b->accesses[at].sequence != OPEN))
        at++;
    if (at == b->access_count)
        return WEIR_OK;
    access *closed = &b->accesses[at];
    bool write = closed->write;
    closed->sequence = used && l->slot != HOST ? s->sequence : 0;
    size_t left = 0;
    for (size_t i = 0; i < b->access_count; i++) {
        const access *a = &b->accesses[i];
        bool covered = used && a->slot == l->slot && a->sequence < s->sequence && (write || !a->write);
        if (a->sequence != 0 && !covered)
            b->accesses[left++] = *a;
    }
    b->access_count = left;
    if (!used)
        return WEIR_OK;
    weir_status status =
        write ? clock_copy(&r->purse, &b->writes, &s->clock) : clock_join(&r->purse, &b->reads, &s->clock);
    if (write)
        clock_clear(&r->purse, &b->reads);
    return status;
}

static weir_status end_launch(race_check *r, uint64_t number, bool used)
{
    launch *l = (launch *)wi_treap_find(&r->launches, number);
    if (!l)
        return WEIR_OK;
    weir_status status = used ? queue(r, l->slot) : WEIR_OK;
    for (size_t i = 0; i < l->count && status == WEIR_OK; i++) {
        block *b = race_check_block_at(r, l->starts[i]);
        if (b)
            status = close_use(r, b, l, used);
    }
    forget_launch(r, l);
    return status;
}

static weir_status record_use(race_check *r, const weir_event *event, unsigned slot)
{
    block *b = race_check_block_at(r, (uint64_t)(uintptr_t)event->pointer);
    return b ? clock_join(&r->purse, &b->reads, &r->streams[slot].clock) : WEIR_OK;
}

/* Residency -------------------------------------------------------------------------------------------------------- */

/* The suspend has waited for the streams on which live blocks of the client were allocated. */
static weir_status wait_for_client(race_check *r, const char *client)
{
    weir_status status = WEIR_OK;
    for (block *b = (block *)wi_treap_above(&r->blocks, 0); b && status == WEIR_OK;
         b = (block *)wi_treap_above(&r->blocks, b->node.key))
        if (!b->freed && b->slot != HOST && strcmp(b->client, client) == 0)
            status = wait_for_stream(r, b->slot);
    return status;
}

static weir_status race_check_leave(race_check *r, const weir_event *event)
{
    block *b = race_check_block_at(r, (uint64_t)(uintptr_t)event->pointer);
    char who[NAME];
    if (!b || b->left)
        return WEIR_OK;
    if (!r->leaving || strcmp(r->leaving, event->client) != 0) {
        weir_status status = wait_for_client(r, event->client);
        if (status != WEIR_OK)
            return status;
    }
    for (size_t i = 0; i < b->access_count; i++) {
        const access *a = &b->accesses[i];
        if (waited_for(b, a) || race_check_behind(&r->streams[HOST].clock, a->slot, a->sequence))
            continue;
        race_check_report(
            r, RACE_USE_WHILE_AWAY, b, event, a->slot, a->order,
            "leaves by event %llu, and work of %s (event %llu) may still %s it; declare the use, or wait for it before "
            "the suspend",
            ULL(event->order), name(r, a->slot, who), ULL(a->order), a->write ? "write" : "read");
        break;
    }
    b->access_count = 0;
    b->left = event->order;
    return WEIR_OK;
}

/* Its contents are written by the stream, as by a declared use. */
static weir_status race_check_come_back(race_check *r, const weir_event *event, unsigned slot)
{
    block *b = race_check_block_at(r, (uint64_t)(uintptr_t)event->pointer);
    if (!b)
        return WEIR_OK;
    b->left = 0;
    b->access_count = 0;
    if (slot == HOST)
        return WEIR_OK;
    weir_status status = queue(r, slot);
    if (status == WEIR_OK)
        status = clock_copy(&r->purse, &b->writes, &r->streams[slot].clock);
    clock_clear(&r->purse, &b->reads);
    if (status == WEIR_OK && !wi_make_room(&b->accesses, b->access_count, &b->access_room, sizeof *b->accesses))
        return race_check_no_memory();
    if (status == WEIR_OK)
        b->accesses[b->access_count++] = (access){.start = b->node.key,
                                                  .end = race_check_end_of(b),
                                                  .sequence = r->streams[slot].sequence,
                                                  .order = event->order,
                                                  .slot = slot,
                                                  .write = true};
    return status;
}

/* Notes ------------------------------------------------------------------------------------------------------------ */

static weir_status note_record(race_check *r, const weir_event *event, unsigned slot)
{
    noted *n = (noted *)wi_treap_find(&r->events, event->object);
    if (!n) {
        if (!(n = calloc(1, sizeof *n)))
            return race_check_no_memory();
        wi_treap_add(&r->events, &n->node, event->object);
    }
    return clock_copy(&r->purse, &n->clock, &r->streams[slot].clock);
}

static weir_status note_wait(race_check *r, const weir_event *event, unsigned slot)
{
    const noted *n = (const noted *)wi_treap_find(&r->events, event->object);
    return n ? clock_join(&r->purse, &r->streams[slot].clock, &n->clock) : WEIR_OK;
}

/* Events ----------------------------------------------------------------------------------------------------------- */

/* Whether the event is work on a stream. A free in stream order is work, because later work can come behind the free. */
static bool race_check_is_work(const weir_event *event)
{
    weir_action action = event->action;
    return action == WEIR_ACTION_ALLOCATE || action == WEIR_ACTION_COPY || action == WEIR_ACTION_FILL ||
           action == WEIR_ACTION_NOTE_USE || (action == WEIR_ACTION_DEALLOCATE && event->object);
}

static weir_status race_check_take(race_check *r, const weir_event *event, unsigned slot)
{
    weir_status status = race_check_is_work(event) ? queue(r, slot) : WEIR_OK;
    if (status != WEIR_OK)
        return status;
    switch (event->action) {
    case WEIR_ACTION_ALLOCATE:
        return race_check_allocate(r, event, slot);
    case WEIR_ACTION_DEALLOCATE:
        return race_check_release(r, event, slot);
    case WEIR_ACTION_RESIZE:
        return race_check_resize(r, event, slot);
    case WEIR_ACTION_LEAVE:
        status = race_check_leave(r, event);
        r->leaving = event->client;
        return status;
    case WEIR_ACTION_RETURN:
        return race_check_come_back(r, event, slot);
    case WEIR_ACTION_SYNCHRONIZE:
    case WEIR_ACTION_STREAM_CLOSE:
        return slot == HOST ? WEIR_OK : wait_for_stream(r, slot);
    case WEIR_ACTION_USE_BEGIN:
        return begin_use(r, event, slot);
    case WEIR_ACTION_USE_END:
    case WEIR_ACTION_USE_ABORT:
        return end_launch(r, event->object, event->action == WEIR_ACTION_USE_END);
    case WEIR_ACTION_USE_RECORD:
        return record_use(r, event, slot);
    case WEIR_ACTION_COPY:
    case WEIR_ACTION_FILL:
    case WEIR_ACTION_NOTE_USE:
        return touch(r, event, slot, 0);
    case WEIR_ACTION_NOTE_RECORD:
        return note_record(r, event, slot);
    case WEIR_ACTION_NOTE_WAIT:
        return note_wait(r, event, slot);
    default: /* nothing that orders or touches */
        return WEIR_OK;
    }
}

weir_status race_check_event(race_check *r, const weir_event *event)
{
    unsigned slot;
    if (event->action != WEIR_ACTION_LEAVE)
        r->leaving = NULL;
    block *b = r->last_order && event->order > r->last_order + 1 ? (block *)wi_treap_above(&r->blocks, 0) : NULL;
    for (; b; b = (block *)wi_treap_above(&r->blocks, b->node.key)) /* after a loss */
        b->freed_stream = 0;
    r->last_order = event->order;
    if (event->result == WEIR_OK && event->action == WEIR_ACTION_REAP) { /* on no stream: it may have ended long ago */
        race_check_pass(r, event);
        return WEIR_OK;
    }
    if (event->result != WEIR_OK)
        return event->action == WEIR_ACTION_USE_BEGIN ? end_launch(r, event->object, false) : WEIR_OK;
    weir_status status = race_check_find_slot(r, event->stream.id, &slot);
    if (status == WEIR_OK && slot != HOST) /* new work comes after the host's clock */
        status = clock_join(&r->purse, &r->streams[slot].clock, &r->streams[HOST].clock);
    return status == WEIR_OK ? race_check_take(r, event, slot) : status;
}

uint64_t race_check_violations(const race_check *r)
{
    return r->violations;
}

const race_finding *race_check_found(const race_check *r, size_t *count)
{
    *count = r->found_count;
    return r->found;
}

/* Making and ending ------------------------------------------------------------------------------------------------ */

race_check *race_check_create(void)
{
    race_check *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->purse.most = UINT64_C(1) << 30;
    /* Who wrote the file does not know where this lies. */
    r->blocks.seed = r->launches.seed = r->events.seed = (uint64_t)(uintptr_t)r;
    r->stream_room = 16;
    r->streams = calloc(r->stream_room, sizeof *r->streams);
    r->stream_count = 1;
    r->found = calloc(RACE_FINDINGS, sizeof *r->found);
    if (r->streams && r->found)
        return r;
    race_check_destroy(r);
    return NULL;
}

void race_check_destroy(race_check *r)
{
    if (!r)
        return;
    while (r->blocks.root)
        race_check_forget(r, (block *)r->blocks.root);
    while (r->launches.root)
        forget_launch(r, (launch *)r->launches.root);
    while (r->events.root) {
        noted *n = (noted *)r->events.root;
        wi_treap_remove(&r->events, &n->node);
        clock_clear(&r->purse, &n->clock);
        free(n);
    }
    for (unsigned s = 0; r->streams && s < r->stream_count; s++)
        clock_clear(&r->purse, &r->streams[s].clock);
    free(r->streams);
    free(r->found);
    free(r);
}
