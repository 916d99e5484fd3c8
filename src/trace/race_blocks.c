/* Blocks: who may touch them, and what their free must be behind. */
#include "trace/race_state.h"
#include <weir/trace.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block forgets its oldest accesses beyond so many, rather than let a long program grow without end; what the host knows
 * to be done is forgotten before. */
enum { MOST_ACCESSES = 4096, NAME = 32 };

static weir_status no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory to follow the trace");
}

static const char *name(const replay *r, unsigned slot, char text[NAME])
{
    if (slot == HOST)
        snprintf(text, NAME, "the host");
    else
        snprintf(text, NAME, "stream %llx", (unsigned long long)r->streams[slot].id);
    return text;
}

static uint64_t end_of(const block *b)
{
    uint64_t bytes = b->charged > b->bytes ? b->charged : b->bytes;
    return bytes > UINT64_MAX - b->node.key ? UINT64_MAX : b->node.key + bytes;
}

block *replay_block_at(const replay *r, uint64_t start)
{
    block *b = (block *)wi_treap_find(&r->blocks, start);
    return b && b->freed == 0 ? b : NULL;
}

void replay_forget(replay *r, block *b)
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
static block *first_in(const replay *r, uint64_t start, uint64_t end)
{
    block *b = (block *)wi_treap_floor(&r->blocks, start);
    if (!b || end_of(b) <= start)
        b = (block *)wi_treap_above(&r->blocks, start);
    return b && b->node.key < end && end_of(b) > start ? b : NULL;
}

/* Allocation ------------------------------------------------------------------------------------------------------- */

/* Bytes are given out that were others'. */
static void take_over(replay *r, const weir_event *event, unsigned slot, uint64_t start, uint64_t end)
{
    const clock_vector *clock = &r->streams[slot].clock;
    char who[NAME];
    for (block *old; (old = first_in(r, start, end)); replay_forget(r, old)) {
        if (old->freed == 0) {
            replay_report(r, REPLAY_OVERLAP, old, event, old->slot, old->order,
                          "allocated by event %llu, is live when event %llu gives its bytes out again",
                          (unsigned long long)old->order, (unsigned long long)event->order);
            continue;
        }
        if (old->freed_stream && old->freed_slot != slot &&
            !replay_behind(clock, old->freed_slot, old->freed_sequence)) {
            replay_report(r, REPLAY_EARLY_REUSE, old, event, old->freed_slot, old->freed,
                          "freed in the order of %s by event %llu: its bytes are %.64s's on another stream from event "
                          "%llu on, before they were anyone's",
                          name(r, old->freed_slot, who), (unsigned long long)old->freed, event->client,
                          (unsigned long long)event->order);
            continue;
        }
        for (size_t i = 0; i < old->access_count; i++) {
            const access *a = &old->accesses[i];
            if (a->end <= start || a->start >= end || replay_behind(&old->done, a->slot, a->sequence) ||
                replay_behind(clock, a->slot, a->sequence))
                continue;
            replay_report(
                r, REPLAY_EARLY_REUSE, old, event, a->slot, a->order,
                "freed by event %llu: its bytes are %.64s's from event %llu on, and work of %s (event %llu) may "
                "still %s them",
                (unsigned long long)old->freed, event->client, (unsigned long long)event->order, name(r, a->slot, who),
                (unsigned long long)a->order, a->write ? "write" : "read");
            break;
        }
    }
}

weir_status replay_allocate(replay *r, const weir_event *event, unsigned slot)
{
    block *b = calloc(1, sizeof *b);
    if (!b)
        return no_memory();
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
    take_over(r, event, slot, b->node.key, end_of(b) > b->node.key ? end_of(b) : b->node.key + 1);
    block *same = (block *)wi_treap_find(&r->blocks, b->node.key);
    if (same)
        replay_forget(r, same);
    wi_treap_add(&r->blocks, &b->node, b->node.key);
    return WEIR_OK;
}

weir_status replay_resize(replay *r, const weir_event *event, unsigned slot)
{
    block *b = replay_block_at(r, (uint64_t)(uintptr_t)event->pointer);
    if (!b)
        return WEIR_OK;
    uint64_t before = end_of(b);
    block grown = *b;
    grown.bytes = event->bytes;
    grown.charged = event->charged;
    if (end_of(&grown) > before)
        take_over(r, event, slot, before, end_of(&grown));
    b->bytes = event->bytes;
    b->charged = event->charged;
    size_t kept = 0;
    for (size_t i = 0; i < b->access_count; i++) /* of a tail that was given back no more is known */
        if (b->accesses[i].start < end_of(b))
            b->accesses[kept++] = b->accesses[i];
    b->access_count = kept;
    return WEIR_OK;
}

/* Free ------------------------------------------------------------------------------------------------------------- */

static bool waited_for(const block *b, const access *a)
{
    return replay_behind(&b->writes, a->slot, a->sequence) || replay_behind(&b->reads, a->slot, a->sequence);
}

weir_status replay_free(replay *r, const weir_event *event, unsigned slot)
{
    block *b = replay_block_at(r, (uint64_t)(uintptr_t)event->pointer);
    const clock_vector *clock = &r->streams[slot].clock;
    char who[NAME], where[NAME];
    if (!b)
        return WEIR_OK;
    for (size_t i = 0; i < b->access_count; i++) {
        access *a = &b->accesses[i];
        if (a->slot == slot || replay_behind(clock, a->slot, a->sequence) || waited_for(b, a))
            continue;
        replay_report(
            r, REPLAY_FREE_IN_USE, b, event, a->slot, a->order,
            "is freed on %s (event %llu) while work of %s (event %llu) may still %s it; order the free behind "
            "that, or declare the use",
            name(r, slot, where), (unsigned long long)event->order, name(r, a->slot, who), (unsigned long long)a->order,
            a->write ? "write" : "read");
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

void replay_pass(replay *r, const weir_event *event)
{
    uint64_t start = (uint64_t)(uintptr_t)event->pointer, end = start + event->bytes;
    if (event->generation != 0)
        return;
    for (block *b = first_in(r, start, end), *next; b; b = next) {
        next = (block *)wi_treap_above(&r->blocks, b->node.key);
        next = next && next->node.key < end ? next : NULL;
        if (b->freed_stream == event->stream.id)
            b->freed_stream = 0;
    }
}

void replay_pass_all(replay *r)
{
    for (block *b = (block *)wi_treap_above(&r->blocks, 0); b; b = (block *)wi_treap_above(&r->blocks, b->node.key))
        b->freed_stream = 0;
}

/* Use -------------------------------------------------------------------------------------------------------------- */

static bool behind_allocation(const replay *r, const block *b, unsigned slot)
{
    const clock_vector *clock = &r->streams[slot].clock;
    if (b->slot == HOST || b->slot == slot || replay_behind(clock, b->slot, b->sequence))
        return true;
    for (size_t i = 0; i < b->declared_count; i++)
        if (b->declared[i].slot == slot || b->declared[i].slot == HOST ||
            replay_behind(clock, b->declared[i].slot, b->declared[i].sequence))
            return true;
    return false;
}

static void check_use(replay *r, const weir_event *event, unsigned slot, block *b, const access *now)
{
    char who[NAME], where[NAME];
    if (!behind_allocation(r, b, slot) && !b->told) {
        b->told = true;
        replay_report(
            r, REPLAY_UNORDERED_ALLOCATION, b, event, b->slot, b->order,
            "allocated on %s (event %llu), is used on %s (event %llu), and nothing orders the two; declare the "
            "use, or wait for an event",
            name(r, b->slot, where), (unsigned long long)b->order, name(r, slot, who),
            (unsigned long long)event->order);
    }
    for (size_t i = 0; i < b->access_count; i++) {
        access *a = &b->accesses[i];
        if (a->told || a->slot == slot || a->end <= now->start || a->start >= now->end || !(a->write || now->write) ||
            replay_behind(&r->streams[slot].clock, a->slot, a->sequence))
            continue;
        a->told = true;
        replay_report(r, REPLAY_UNORDERED_USE, b, event, a->slot, a->order,
                      "is %s on %s (event %llu) and %s on %s (event %llu), and nothing orders the two",
                      a->write ? "written" : "read", name(r, a->slot, where), (unsigned long long)a->order,
                      now->write ? "written" : "read", name(r, slot, who), (unsigned long long)event->order);
    }
}

/* Forgets what the host knows to be done, and what `now` makes superfluous: earlier work of its own stream on no more
 * bytes, in no other way. */
static void prune(replay *r, block *b, const access *now)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->access_count; i++) {
        const access *a = &b->accesses[i];
        bool done = replay_behind(&r->streams[HOST].clock, a->slot, a->sequence);
        bool covered = a->slot == now->slot && a->sequence != OPEN && now->sequence != OPEN && a->start >= now->start &&
                       a->end <= now->end && (now->write || !a->write);
        if (!done && !covered)
            b->accesses[kept++] = *a;
    }
    b->access_count = kept;
    if (kept == MOST_ACCESSES)
        memmove(b->accesses, b->accesses + 1, --b->access_count * sizeof *b->accesses);
}

weir_status replay_touch(replay *r, const weir_event *event, unsigned slot, uint64_t number)
{
    uint64_t start = (uint64_t)(uintptr_t)event->pointer;
    uint64_t end = event->bytes > UINT64_MAX - start ? UINT64_MAX : start + event->bytes;
    char who[NAME];
    for (block *b = first_in(r, start, end), *next; b; b = next) {
        next = (block *)wi_treap_above(&r->blocks, b->node.key);
        next = next && next->node.key < end ? next : NULL;
        access now = {.start = start > b->node.key ? start : b->node.key,
                      .end = end < end_of(b) ? end : end_of(b),
                      .sequence = number ? OPEN : r->streams[slot].sequence,
                      .order = event->order,
                      .launch = number,
                      .slot = slot,
                      .write = event->access != WEIR_ACCESS_READ};
        if (b->freed) {
            replay_report(r, REPLAY_USE_AFTER_FREE, b, event, b->freed_slot, b->freed,
                          "freed by event %llu, is %s on %s by event %llu", (unsigned long long)b->freed,
                          now.write ? "written" : "read", name(r, slot, who), (unsigned long long)event->order);
            continue;
        }
        check_use(r, event, slot, b, &now);
        if (slot == HOST && !number) /* done, and known to all */
            continue;
        prune(r, b, &now);
        if (!replay_room((void **)&b->accesses, b->access_count, &b->access_room, sizeof *b->accesses))
            return no_memory();
        b->accesses[b->access_count++] = now;
    }
    return WEIR_OK;
}
