/* What a guard has found, and what is live: copies for callers, and lines for the log. */
#include "memory/adaptors/guard.h"

#include <weir/base.h>
#include <weir/guard.h>

#include <stdio.h>

/* Copies `count` of ours into a caller's array, whose first element says how long each of its own is. */
static void copy_array(void *to, size_t capacity, const void *from, size_t count, size_t our_size)
{
    size_t stride = capacity > 0 ? *(const size_t *)to : 0;
    for (size_t i = 0; i < wi_min(count, capacity); i++) {
        void *out = (char *)to + i * stride;
        *(size_t *)out = stride;
        (void)wi_copy_out(out, stride, (const char *)from + i * our_size, our_size);
    }
}

void wi_guard_reports(wi_guard *guard, weir_guard_report *reports, size_t capacity, size_t *count)
{
    pthread_mutex_lock(&guard->resource.lock);
    copy_array(reports, capacity, guard->reports, wi_min(guard->reported, WI_GUARD_KEPT_REPORTS),
               sizeof guard->reports[0]);
    if (count)
        *count = guard->reported;
    pthread_mutex_unlock(&guard->resource.lock);
}

/* Live blocks ------------------------------------------------------------------------------------------------------ */

static int by_generation(const void *a, const void *b)
{
    const weir_guard_leak *x = a, *y = b;
    return (x->block.generation > y->block.generation) - (x->block.generation < y->block.generation);
}

/* All live blocks of a client (NULL: of anyone), oldest first; the caller frees them. */
static weir_status guard_gather(wi_guard *guard, const weir_client *client, weir_guard_leak **out, size_t *count)
{
    weir_status status = WEIR_OK;
    *count = 0;
    pthread_mutex_lock(&guard->resource.lock);
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
    pthread_mutex_unlock(&guard->resource.lock);
    if (status == WEIR_OK)
        qsort(*out, *count, sizeof **out, by_generation);
    return status;
}

weir_status wi_guard_leaks(wi_guard *guard, weir_guard_leak *leaks, size_t capacity, size_t *count)
{
    weir_guard_leak *all;
    size_t found;
    weir_status status = guard_gather(guard, NULL, &all, &found);
    if (status == WEIR_OK)
        copy_array(leaks, capacity, all, found, sizeof *all);
    if (count && status == WEIR_OK)
        *count = found;
    free(all);
    return status;
}

/* Sums ------------------------------------------------------------------------------------------------------------- */

static int by_client_and_tag(const void *a, const void *b)
{
    const weir_guard_leak *x = a, *y = b;
    int names = strcmp(x->name, y->name), tags = strcmp(x->tag, y->tag);
    if (names)
        return names;
    if (x->client != y->client)
        return (uintptr_t)x->client > (uintptr_t)y->client ? 1 : -1;
    return tags ? tags : by_generation(a, b);
}

static int most_bytes_first(const void *a, const void *b)
{
    const weir_guard_leak_sum *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->oldest.generation > y->oldest.generation) - (x->oldest.generation < y->oldest.generation);
}

/* The caller frees *out. */
static weir_status sum_up(wi_guard *guard, const weir_client *client, weir_guard_leak_sum **out, size_t *count)
{
    weir_guard_leak *all;
    size_t found;
    weir_status status = guard_gather(guard, client, &all, &found);
    weir_guard_leak_sum *sums = status == WEIR_OK ? calloc(found + 1, sizeof *sums) : NULL, *sum = sums;
    if (status == WEIR_OK && !sums)
        status = weir_fail(WEIR_ERR_SYSTEM, "no host memory for the sums of %zu blocks", found);
    if (status == WEIR_OK)
        qsort(all, found, sizeof *all, by_client_and_tag);
    for (size_t i = 0; i < found && status == WEIR_OK; i++) {
        if (i > 0 && (all[i].client != all[i - 1].client || strcmp(all[i].tag, all[i - 1].tag) != 0))
            sum++;
        if (sum->blocks++ == 0) {
            sum->client = all[i].client;
            sum->oldest = all[i].block;
            memcpy(sum->name, all[i].name, sizeof sum->name);
            memcpy(sum->tag, all[i].tag, sizeof sum->tag);
        }
        sum->bytes += all[i].bytes;
    }
    *count = status == WEIR_OK && found > 0 ? (size_t)(sum - sums) + 1 : 0;
    if (sums)
        qsort(sums, *count, sizeof *sums, most_bytes_first);
    free(all);
    *out = sums;
    return status;
}

weir_status wi_guard_leak_sums(wi_guard *guard, weir_guard_leak_sum *sums, size_t capacity, size_t *count)
{
    weir_guard_leak_sum *all;
    size_t found;
    weir_status status = sum_up(guard, NULL, &all, &found);
    if (status == WEIR_OK)
        copy_array(sums, capacity, all, found, sizeof *all);
    if (count && status == WEIR_OK)
        *count = found;
    free(all);
    return status;
}

void wi_guard_log_leaks(wi_resource *top, const weir_client *client)
{
    wi_guard *guard = wi_guard_in(top);
    weir_guard_leak_sum *all;
    size_t found;
    char bytes[24];
    if (!guard || sum_up(guard, client, &all, &found) != WEIR_OK)
        return;
    for (size_t i = 0; i < found; i++)
        weir_log(WEIR_LOG_WARNING, "%s has %llu live blocks of %s tagged \"%s\", the oldest at %p of generation %llu",
                 all[i].name, (unsigned long long)all[i].blocks, weir_size_format(all[i].bytes, bytes, sizeof bytes),
                 all[i].tag, all[i].oldest.pointer, (unsigned long long)all[i].oldest.generation);
    free(all);
}
