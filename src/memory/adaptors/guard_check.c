/* The guard's checks: reads guarded memory back, reports damage and leaks. */
#include "memory/adaptors/adaptors.h"

#include <weir/base.h>
#include <weir/guard.h>

#include <stdio.h>

/* Reading ---------------------------------------------------------------------------------------------------------- */

enum { PIECE = 256 * 1024 };

/* Adds the bytes of [bytes, +count), at least one, that differ from `expected`; `offset`: of the first byte from the block's
 * start. */
static void guard_compare(const uint8_t *bytes, size_t count, int64_t offset, wi_damage *damage)
{
    if (bytes[0] == damage->expected && memcmp(bytes, bytes + 1, count - 1) == 0)
        return; /* every byte is as expected */
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == damage->expected)
            continue;
        if (damage->bytes++ == 0) {
            damage->offset = offset + (int64_t)i;
            damage->found = bytes[i];
        }
    }
}

/* Compares [from, to) of the device's memory with one byte, a piece of the buffer's size at a time. */
static weir_status guard_compare_range(const wi_guard *guard, const wi_guarded *record, const char *from,
                                       const char *to, uint8_t *buffer, wi_damage *damage)
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
        guard_compare_range(guard, record, record->start, kept ? record->end : record->pointer, buffer, &damages[0]);
    if (status == WEIR_OK && !kept)
        status = guard_compare_range(guard, record, behind, record->end, buffer, &damages[1]);
    free(buffer);
    return status;
}

/* Telling ---------------------------------------------------------------------------------------------------------- */

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

static void guard_damage_words(const weir_guard_report *r, char *text, size_t capacity)
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
    guard_damage_words(r, damage, sizeof damage);
    if (r->kind != WEIR_GUARD_OVERLAP && !r->live)
        snprintf(freed, sizeof freed, ", freed on stream %llx", (unsigned long long)r->freed.id);
    snprintf(text, capacity,
             "%s: the block of %zu bytes at %p of %s (%s, tag \"%s\", generation %llu, allocated on stream %llx%s): %s",
             weir_name_of(WEIR_NAMES_GUARD, r->kind), r->bytes, r->block.pointer, r->client,
             weir_name_of(WEIR_NAMES_CLASS, r->memory_class), r->tag, (unsigned long long)r->block.generation,
             (unsigned long long)r->allocated.id, freed, damage);
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

/* Finds and pins the first record at or behind `start`. The lock is held, and released while another thread has the
 * record pinned. */
static wi_guarded *guard_next(wi_guard *guard, const char *start)
{
    for (size_t i = 0; i < guard->count;) {
        wi_guarded *record = guard->set[i];
        bool there = record->state == WI_GUARDED_LIVE || record->state == WI_GUARDED_KEPT;
        if (record->start <= start || record->blank || !there) {
            i++;
        } else if (record->pinned) { /* the lock was released: the record may be gone, and the set has changed */
            pthread_cond_wait(&guard->changed, &guard->lock);
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
        pthread_mutex_lock(&guard->lock);
        record = guard_next(guard, start);
        bool kept = record && record->state == WI_GUARDED_KEPT;
        pthread_mutex_unlock(&guard->lock);
        if (!record)
            break;
        start = record->start;
        status = wi_guard_examine(guard, record, kept, damages);
        pthread_mutex_lock(&guard->lock);
        for (int i = 0; i < 2 && status == WEIR_OK; i++) {
            if (damages[i].bytes == 0)
                continue;
            weir_guard_report report = wi_guard_report(record, &damages[i], NULL);
            if (!first[0])
                wi_guard_words(&report, first, sizeof first);
            wi_guard_note(guard, record, &damages[i], NULL, &news);
        }
        wi_guard_unpin(guard, record);
        pthread_mutex_unlock(&guard->lock);
        wi_guard_tell(&news);
    }
    return status == WEIR_OK && first[0] ? weir_fail(WEIR_ERR_CORRUPT, "%s", first) : status;
}

/* Reports and leaks ------------------------------------------------------------------------------------------------ */

/* Copies `count` elements into a caller's array, whose elements may be of another version's size: the first says
 * so. */
static void guard_copy_array(void *to, size_t capacity, const void *from, size_t count, size_t our_size)
{
    size_t stride = capacity > 0 ? *(const size_t *)to : 0;
    for (size_t i = 0; i < wi_min(count, capacity); i++) {
        void *out = (char *)to + i * stride;
        *(size_t *)out = stride;
        (void)wi_copy_out(out, stride, (const char *)from + i * our_size, our_size);
    }
}

/* The same of a list that was made for the caller, which ends here; of none where making it failed. */
static weir_status guard_hand_out(weir_status made, void *to, size_t capacity, size_t *count, void *all, size_t found,
                                  size_t our_size)
{
    if (made == WEIR_OK) {
        guard_copy_array(to, capacity, all, found, our_size);
        if (count)
            *count = found;
    }
    free(all);
    return made;
}

void wi_guard_reports(wi_guard *guard, weir_guard_report *reports, size_t capacity, size_t *count)
{
    pthread_mutex_lock(&guard->lock);
    guard_copy_array(reports, capacity, guard->reports, wi_min(guard->reported, WI_GUARD_KEPT_REPORTS),
                     sizeof guard->reports[0]);
    if (count)
        *count = guard->reported;
    pthread_mutex_unlock(&guard->lock);
}

/* Live blocks ------------------------------------------------------------------------------------------------------ */

static int by_generation(const void *a, const void *b)
{
    const weir_guard_leak *x = a, *y = b;
    return (x->block.generation > y->block.generation) - (x->block.generation < y->block.generation);
}

/* The live blocks of a client (NULL: of all), oldest first. The caller frees *out. */
static weir_status guard_gather(wi_guard *guard, const weir_client *client, weir_guard_leak **out, size_t *count)
{
    weir_status status = WEIR_OK;
    *count = 0;
    pthread_mutex_lock(&guard->lock);
    *out = calloc(guard->count + 1, sizeof **out);
    if (!*out)
        status = weir_fail(WEIR_ERR_SYSTEM, "no host memory for a list of %zu blocks", guard->count);
    for (size_t i = 0; i < guard->count && *out; i++) {
        const wi_guarded *record = guard->set[i];
        if (record->state != WI_GUARDED_LIVE || (client && record->client != client))
            continue;
        weir_guard_leak *leak = &(*out)[(*count)++];
        leak->block = (weir_block){record->pointer, record->generation};
        leak->bytes = record->bytes;
        leak->client = record->client;
        leak->memory_class = record->memory_class;
        leak->stream = record->allocated;
        snprintf(leak->name, sizeof leak->name, "%s", record->client_name);
        snprintf(leak->tag, sizeof leak->tag, "%s", record->tag);
    }
    pthread_mutex_unlock(&guard->lock);
    if (status == WEIR_OK)
        qsort(*out, *count, sizeof **out, by_generation);
    return status;
}

weir_status wi_guard_leaks(wi_guard *guard, weir_guard_leak *leaks, size_t capacity, size_t *count)
{
    weir_guard_leak *all;
    size_t found;
    weir_status status = guard_gather(guard, NULL, &all, &found);
    return guard_hand_out(status, leaks, capacity, count, all, found, sizeof *all);
}

/* Sums ------------------------------------------------------------------------------------------------------------- */

typedef struct guard_leak_sum {
    char name[64], tag[48];
    uint64_t blocks, bytes;
    weir_block oldest;
} guard_leak_sum;

static int by_tag(const void *a, const void *b)
{
    const weir_guard_leak *x = a, *y = b;
    int tags = strcmp(x->tag, y->tag);
    return tags ? tags : by_generation(a, b);
}

static int most_bytes_first(const void *a, const void *b)
{
    const guard_leak_sum *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->oldest.generation > y->oldest.generation) - (x->oldest.generation < y->oldest.generation);
}

/* Live blocks of the client by their tags. The caller frees *out. */
static weir_status guard_sum_up(wi_guard *guard, const weir_client *client, guard_leak_sum **out, size_t *count)
{
    weir_guard_leak *all;
    size_t found;
    weir_status status = guard_gather(guard, client, &all, &found);
    guard_leak_sum *sums = status == WEIR_OK ? calloc(found + 1, sizeof *sums) : NULL, *sum = NULL;
    *count = 0;
    if (status == WEIR_OK && !sums)
        status = weir_fail(WEIR_ERR_SYSTEM, "no host memory for the sums of %zu blocks", found);
    if (status == WEIR_OK)
        qsort(all, found, sizeof *all, by_tag);
    for (size_t i = 0; i < found && status == WEIR_OK; i++) {
        if (i == 0 || strcmp(all[i].tag, all[i - 1].tag) != 0) {
            sum = &sums[(*count)++];
            sum->oldest = all[i].block;
            memcpy(sum->name, all[i].name, sizeof sum->name);
            memcpy(sum->tag, all[i].tag, sizeof sum->tag);
        }
        sum->blocks++;
        sum->bytes += all[i].bytes;
    }
    if (sums)
        qsort(sums, *count, sizeof *sums, most_bytes_first);
    free(all);
    *out = sums;
    return status;
}

void wi_guard_log_leaks(wi_guard *guard, const weir_client *client)
{
    guard_leak_sum *all;
    size_t found;
    char bytes[24];
    if (guard_sum_up(guard, client, &all, &found) != WEIR_OK)
        return;
    for (size_t i = 0; i < found; i++)
        weir_log(WEIR_LOG_WARNING, "%s has %llu live blocks of %s tagged \"%s\", the oldest at %p of generation %llu",
                 all[i].name, (unsigned long long)all[i].blocks, weir_size_format(all[i].bytes, bytes, sizeof bytes),
                 all[i].tag, all[i].oldest.pointer, (unsigned long long)all[i].oldest.generation);
    free(all);
}
