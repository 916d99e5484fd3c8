/* Streams, launches and notes: what is known to be done before what. */
#include "trace/race_state.h"
#include <weir/trace.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *replay_kind_name(replay_kind kind)
{
    static const char *const names[REPLAY_KINDS] = {"free-in-use",    "unordered-use", "unordered-allocation",
                                                    "use-after-free", "early-reuse",   "overlap"};
    return (unsigned)kind < REPLAY_KINDS ? names[kind] : "?";
}

static weir_status no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory to follow the trace");
}

bool replay_room(void **list, size_t count, size_t *room, size_t each)
{
    if (count < *room)
        return true;
    size_t more = *room ? 2 * *room : 4;
    void *larger = realloc(*list, more * each);
    if (!larger)
        return false;
    *list = larger;
    *room = more;
    return true;
}

void replay_report(replay *r, replay_kind kind, const block *b, const weir_event *event, unsigned other, uint64_t first,
                   const char *format, ...)
{
    r->violations++;
    if (r->found_count == REPLAY_FINDINGS)
        return;
    replay_finding *f = &r->found[r->found_count++];
    *f = (replay_finding){.kind = kind,
                          .pointer = b->node.key,
                          .bytes = b->bytes,
                          .client = b->client,
                          .tag = b->tag,
                          .stream = event->stream.id,
                          .other_stream = other == HOST ? 0 : r->streams[other].id,
                          .order_first = first,
                          .order_second = event->order};
    int length = snprintf(f->text, sizeof f->text, "%.64s's block at 0x%llx%s%.48s%s, ", b->client,
                          (unsigned long long)b->node.key, b->tag[0] ? " (" : "", b->tag, b->tag[0] ? ")" : "");
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it does not see va_start */
    vsnprintf(f->text + length, sizeof f->text - (size_t)length, format, arguments);
    va_end(arguments);
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

static weir_status wait_for_stream(replay *r, unsigned slot)
{
    stream_state *s = &r->streams[slot];
    weir_status status = clock_raise(&r->purse, &s->clock, slot, s->sequence);
    return status == WEIR_OK ? clock_join(&r->purse, &r->streams[HOST].clock, &s->clock) : status;
}

/* The stream's slot. A later stream at the same place is behind the earlier one, whose end weir waited for. */
static weir_status find_slot(replay *r, uint64_t id, unsigned *slot)
{
    *slot = id == 0 ? HOST : r->slot_of[id % SLOTS];
    if (id == 0)
        return WEIR_OK;
    if (*slot == 0) {
        size_t room = r->stream_room;
        if (r->stream_count == SLOTS)
            return weir_fail(WEIR_ERR_UNSUPPORTED, "the trace has more streams than can be followed");
        if (!replay_room((void **)&r->streams, r->stream_count, &room, sizeof *r->streams))
            return no_memory();
        r->stream_room = (unsigned)room;
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

/* What the host knows when it queues something is done before that. */
static weir_status come_to(replay *r, unsigned slot)
{
    return slot == HOST ? WEIR_OK : clock_join(&r->purse, &r->streams[slot].clock, &r->streams[HOST].clock);
}

/* One piece of work more. */
static weir_status queue(replay *r, unsigned slot)
{
    if (slot == HOST)
        return WEIR_OK;
    stream_state *s = &r->streams[slot];
    return clock_raise(&r->purse, &s->clock, slot, ++s->sequence);
}

/* Launches --------------------------------------------------------------------------------------------------------- */

static launch *find_launch(const replay *r, uint64_t number)
{
    return (launch *)wi_treap_find(&r->launches, number);
}

static void forget_launch(replay *r, launch *l)
{
    wi_treap_remove(&r->launches, &l->node);
    free(l->starts);
    free(l);
}

static weir_status begin_use(replay *r, const weir_event *event, unsigned slot)
{
    block *b = replay_block_at(r, (uint64_t)(uintptr_t)event->pointer);
    launch *l = find_launch(r, event->object);
    if (!l) {
        if (!(l = calloc(1, sizeof *l)))
            return no_memory();
        l->slot = slot;
        wi_treap_add(&r->launches, &l->node, event->object);
    }
    if (!b) /* from before the trace, or lost */
        return WEIR_OK;
    if (!replay_room((void **)&l->starts, l->count, &l->room, sizeof *l->starts) ||
        !replay_room((void **)&b->declared, b->declared_count, &b->declared_room, sizeof *b->declared))
        return no_memory();
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
    return status == WEIR_OK ? replay_touch(r, event, slot, event->object) : status;
}

static access *open_access(const block *b, const launch *l)
{
    for (size_t i = 0; i < b->access_count; i++)
        if (b->accesses[i].launch == l->node.key && b->accesses[i].sequence == OPEN)
            return &b->accesses[i];
    return NULL;
}

/* The launch's use of the block, which was of all of it, is over, or never was. What the same stream did to it before, in
 * no other way, needs no looking at any more. */
static weir_status close_use(replay *r, block *b, const launch *l, bool used)
{
    const stream_state *s = &r->streams[l->slot];
    access *closed = open_access(b, l);
    if (!closed)
        return WEIR_OK;
    bool write = closed->write;
    closed->sequence = used && l->slot != HOST ? s->sequence : 0;
    size_t kept = 0;
    for (size_t i = 0; i < b->access_count; i++) {
        const access *a = &b->accesses[i];
        bool covered = used && a->slot == l->slot && a->sequence < s->sequence && (write || !a->write);
        if (a->sequence != 0 && !covered)
            b->accesses[kept++] = *a;
    }
    b->access_count = kept;
    if (!used)
        return WEIR_OK;
    weir_status status =
        write ? clock_copy(&r->purse, &b->writes, &s->clock) : clock_join(&r->purse, &b->reads, &s->clock);
    if (write)
        clock_clear(&r->purse, &b->reads);
    return status;
}

static weir_status end_launch(replay *r, uint64_t number, bool used)
{
    launch *l = find_launch(r, number);
    if (!l)
        return WEIR_OK;
    weir_status status = used ? queue(r, l->slot) : WEIR_OK;
    for (size_t i = 0; i < l->count && status == WEIR_OK; i++) {
        block *b = replay_block_at(r, l->starts[i]);
        if (b)
            status = close_use(r, b, l, used);
    }
    forget_launch(r, l);
    return status;
}

static weir_status record_use(replay *r, const weir_event *event, unsigned slot)
{
    block *b = replay_block_at(r, (uint64_t)(uintptr_t)event->pointer);
    return b ? clock_join(&r->purse, &b->reads, &r->streams[slot].clock) : WEIR_OK;
}

/* Notes ------------------------------------------------------------------------------------------------------------ */

static weir_status note_record(replay *r, const weir_event *event, unsigned slot)
{
    noted *n = (noted *)wi_treap_find(&r->events, event->object);
    if (!n) {
        if (!(n = calloc(1, sizeof *n)))
            return no_memory();
        wi_treap_add(&r->events, &n->node, event->object);
    }
    return clock_copy(&r->purse, &n->clock, &r->streams[slot].clock);
}

static weir_status note_wait(replay *r, const weir_event *event, unsigned slot)
{
    const noted *n = (const noted *)wi_treap_find(&r->events, event->object);
    return n ? clock_join(&r->purse, &r->streams[slot].clock, &n->clock) : WEIR_OK;
}

/* Events ----------------------------------------------------------------------------------------------------------- */

static weir_status take(replay *r, const weir_event *event, unsigned slot)
{
    weir_status status;
    switch (event->action) {
    case WEIR_ACTION_ALLOCATE:
        status = queue(r, slot);
        return status == WEIR_OK ? replay_allocate(r, event, slot) : status;
    case WEIR_ACTION_DEALLOCATE:
        status = event->object ? queue(r, slot) : WEIR_OK; /* others can come behind it */
        return status == WEIR_OK ? replay_free(r, event, slot) : status;
    case WEIR_ACTION_RESIZE:
        return replay_resize(r, event, slot);
    case WEIR_ACTION_SYNCHRONIZE:
    case WEIR_ACTION_STREAM_CLOSE:
        return slot == HOST ? WEIR_OK : wait_for_stream(r, slot);
    case WEIR_ACTION_USE_BEGIN:
        return begin_use(r, event, slot);
    case WEIR_ACTION_USE_END:
        return end_launch(r, event->object, true);
    case WEIR_ACTION_USE_ABORT:
        return end_launch(r, event->object, false);
    case WEIR_ACTION_USE_RECORD:
        return record_use(r, event, slot);
    case WEIR_ACTION_COPY:
    case WEIR_ACTION_FILL:
    case WEIR_ACTION_NOTE_USE:
        status = queue(r, slot);
        return status == WEIR_OK ? replay_touch(r, event, slot, 0) : status;
    case WEIR_ACTION_NOTE_RECORD:
        return note_record(r, event, slot);
    case WEIR_ACTION_NOTE_WAIT:
        return note_wait(r, event, slot);
    default: /* nothing that orders or touches */
        return WEIR_OK;
    }
}

weir_status replay_event(replay *r, const weir_event *event)
{
    unsigned slot;
    if (r->last_order && event->order > r->last_order + 1)
        replay_pass_all(r);
    r->last_order = event->order;
    if (event->result == WEIR_OK && event->action == WEIR_ACTION_REAP) { /* on no stream: it may have ended long ago */
        replay_pass(r, event);
        return WEIR_OK;
    }
    if (event->result != WEIR_OK)
        return event->action == WEIR_ACTION_USE_BEGIN ? end_launch(r, event->object, false) : WEIR_OK;
    weir_status status = find_slot(r, event->stream.id, &slot);
    if (status == WEIR_OK)
        status = come_to(r, slot);
    return status == WEIR_OK ? take(r, event, slot) : status;
}

uint64_t replay_violations(const replay *r)
{
    return r->violations;
}

const replay_finding *replay_found(const replay *r, size_t *count)
{
    *count = r->found_count;
    return r->found;
}

/* Making and ending ------------------------------------------------------------------------------------------------ */

replay *replay_create(void)
{
    replay *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->purse.most = UINT64_C(1) << 30;
    /* Who wrote the file does not know where this lies. */
    r->blocks.seed = r->launches.seed = r->events.seed = (uint64_t)(uintptr_t)r;
    r->stream_room = 16;
    r->streams = calloc(r->stream_room, sizeof *r->streams);
    r->stream_count = 1;
    r->found = calloc(REPLAY_FINDINGS, sizeof *r->found);
    if (r->streams && r->found)
        return r;
    replay_destroy(r);
    return NULL;
}

void replay_destroy(replay *r)
{
    if (!r)
        return;
    while (r->blocks.root)
        replay_forget(r, (block *)r->blocks.root);
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
