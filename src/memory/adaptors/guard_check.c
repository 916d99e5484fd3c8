/* Reading guarded memory back, and saying what was found. */
#include "memory/adaptors/guard.h"

#include <weir/base.h>
#include <weir/guard.h>

#include <stdio.h>

/* Reading ---------------------------------------------------------------------------------------------------------- */

enum { PIECE = 256 * 1024 };

/* Adds what [bytes, +count) holds besides `expected`; `offset` is that of its first byte from the block's start. */
static void guard_compare(const uint8_t *bytes, size_t count, int64_t offset, wi_damage *damage)
{
    if (count == 0 || (bytes[0] == damage->expected && memcmp(bytes, bytes + 1, count - 1) == 0))
        return;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == damage->expected)
            continue;
        if (damage->bytes++ == 0) {
            damage->offset = offset + (int64_t)i;
            damage->found = bytes[i];
        }
    }
}

/* Compares [from, to) of the device with one byte; `buffer` has room for a piece. */
static weir_status compare_range(const wi_guard *guard, const wi_guarded *record, const char *from, const char *to,
                                 uint8_t *buffer, wi_damage *damage)
{
    const wi_resource *r = &guard->resource;
    weir_status status = WEIR_OK;
    for (const char *at = from; at < to && status == WEIR_OK; at += PIECE) {
        size_t count = wi_min(PIECE, (uint64_t)(to - at));
        status = r->driver->copy(r->device, buffer, at, count, NULL);
        if (status == WEIR_OK)
            guard_compare(buffer, count, at - record->pointer, damage);
    }
    return status;
}

weir_status wi_guard_examine(wi_guard *guard, const wi_guarded *record, bool kept, wi_damage damages[2])
{
    const char *behind = record->pointer + record->bytes;
    uint64_t longest = kept ? (uint64_t)(record->end - record->start)
                            : wi_max((uint64_t)(record->pointer - record->start), (uint64_t)(record->end - behind));
    uint8_t *buffer = malloc(wi_min(PIECE, longest + 1));
    if (!buffer)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to look at the block at %p", (void *)record->pointer);
    damages[0] = (wi_damage){.kind = WEIR_GUARD_USE_AFTER_FREE, .expected = WI_GUARD_FREED};
    damages[1] = (wi_damage){.kind = WEIR_GUARD_OVERRUN, .expected = WI_GUARD_ZONE};
    if (!kept)
        damages[0] = (wi_damage){.kind = WEIR_GUARD_UNDERRUN, .expected = WI_GUARD_ZONE};
    weir_status status =
        compare_range(guard, record, record->start, kept ? record->end : record->pointer, buffer, &damages[0]);
    if (status == WEIR_OK && !kept)
        status = compare_range(guard, record, behind, record->end, buffer, &damages[1]);
    free(buffer);
    return status;
}

/* Telling ---------------------------------------------------------------------------------------------------------- */

static const char *const kind_names[WEIR_GUARD_COUNT] = {"overrun", "underrun", "use after free", "overlap"};

const char *weir_guard_kind_name(weir_guard_kind kind)
{
    return (unsigned)kind < WEIR_GUARD_COUNT ? kind_names[kind] : "?";
}

weir_guard_report wi_guard_report(const wi_guarded *record, const wi_damage *damage, const wi_guarded *other)
{
    weir_guard_report report = {.struct_size = sizeof report,
                                .kind = damage->kind,
                                .memory_class = record->memory_class,
                                .block = {record->pointer, record->generation},
                                .bytes = record->bytes,
                                .offset = damage->offset,
                                .damaged = damage->bytes,
                                .expected = damage->expected,
                                .found = damage->found,
                                .live = record->state == WI_GUARDED_LIVE,
                                .allocated = record->allocated,
                                .freed = record->freed};
    snprintf(report.client, sizeof report.client, "%s", record->client_name);
    snprintf(report.tag, sizeof report.tag, "%s", record->tag);
    if (other)
        report.other = (weir_block){other->pointer, other->generation};
    return report;
}

static void damage_words(const weir_guard_report *r, char *text, size_t capacity)
{
    if (r->kind == WEIR_GUARD_OVERLAP)
        snprintf(text, capacity, "it shares %llu bytes from offset %lld on with the block at %p of generation %llu",
                 (unsigned long long)r->damaged, (long long)r->offset, r->other.pointer,
                 (unsigned long long)r->other.generation);
    else
        snprintf(text, capacity, "%llu byte%s %s overwritten, the first at offset %lld (0x%02X instead of 0x%02X)",
                 (unsigned long long)r->damaged, r->damaged == 1 ? "" : "s",
                 r->kind == WEIR_GUARD_OVERRUN    ? "behind it"
                 : r->kind == WEIR_GUARD_UNDERRUN ? "before it"
                                                  : "of it, after its free,",
                 (long long)r->offset, r->found, r->expected);
}

void wi_guard_words(const weir_guard_report *r, char *text, size_t capacity)
{
    char damage[200], freed[48] = "";
    damage_words(r, damage, sizeof damage);
    if (r->kind != WEIR_GUARD_OVERLAP && !r->live)
        snprintf(freed, sizeof freed, ", freed on stream %llx", (unsigned long long)r->freed.id);
    snprintf(text, capacity,
             "%s: the block of %zu bytes at %p of %s (%s, tag \"%s\", generation %llu, allocated on stream %llx%s): %s",
             weir_guard_kind_name(r->kind), r->bytes, r->block.pointer, r->client, weir_class_name(r->memory_class),
             r->tag, (unsigned long long)r->block.generation, (unsigned long long)r->allocated.id, freed, damage);
}

void wi_guard_note(wi_guard *guard, wi_guarded *record, const wi_damage *damage, const wi_guarded *other,
                   wi_guard_news *news)
{
    unsigned bit = 1u << damage->kind;
    if (record->told & bit)
        return;
    record->told |= bit;
    weir_guard_report report = wi_guard_report(record, damage, other);
    news->reports[news->count++] = report;
    if (guard->reported++ < WI_GUARD_KEPT_REPORTS)
        guard->reports[guard->reported - 1] = report;
}

void wi_guard_tell(const wi_guard_news *news)
{
    char text[512];
    for (size_t i = 0; i < news->count; i++) {
        wi_guard_words(&news->reports[i], text, sizeof text);
        weir_log(WEIR_LOG_ERROR, "%s", text);
    }
}

/* Looking at everything -------------------------------------------------------------------------------------------- */

/* The first record behind the address that can be looked at; pinned. With the lock held, which is released while another
 * thread has it. */
static wi_guarded *guard_next(wi_guard *guard, const char *start)
{
    for (size_t i = 0; i < guard->count;) {
        wi_guarded *record = guard->set[i];
        bool there = record->state == WI_GUARDED_LIVE || record->state == WI_GUARDED_KEPT;
        if (record->start <= start || record->blank || !there) {
            i++;
        } else if (record->pinned) { /* it may be gone then, and the set another */
            pthread_cond_wait(&guard->changed, &guard->resource.lock);
            i = 0;
        } else {
            record->pinned = true;
            return record;
        }
    }
    return NULL;
}

weir_status wi_guard_check(wi_guard *guard)
{
    char first[512] = "";
    const char *start = NULL;
    weir_status status = WEIR_OK;
    for (wi_guarded *record; status == WEIR_OK;) {
        wi_damage damages[2];
        wi_guard_news news = {.count = 0};
        pthread_mutex_lock(&guard->resource.lock);
        record = guard_next(guard, start);
        bool kept = record && record->state == WI_GUARDED_KEPT;
        pthread_mutex_unlock(&guard->resource.lock);
        if (!record)
            break;
        start = record->start;
        status = wi_guard_examine(guard, record, kept, damages);
        pthread_mutex_lock(&guard->resource.lock);
        for (int i = 0; i < 2 && status == WEIR_OK; i++) {
            if (damages[i].bytes == 0)
                continue;
            weir_guard_report report = wi_guard_report(record, &damages[i], NULL);
            if (!first[0])
                wi_guard_words(&report, first, sizeof first);
            wi_guard_note(guard, record, &damages[i], NULL, &news);
        }
        wi_guard_unpin(guard, record);
        pthread_mutex_unlock(&guard->resource.lock);
        wi_guard_tell(&news);
    }
    return status == WEIR_OK && first[0] ? weir_fail(WEIR_ERR_CORRUPT, "%s", first) : status;
}
