/* The adaptor "stats": what passes is counted and timed, for each client and class and in total. */
#include "memory/meter.h"
#include "base/system.h"

static wi_meter *of(wi_resource *resource)
{
    return (wi_meter *)resource;
}

static void lock(wi_meter *meter)
{
    pthread_mutex_lock(&meter->resource.lock);
}

static void unlock(wi_meter *meter)
{
    pthread_mutex_unlock(&meter->resource.lock);
}

/* Times ------------------------------------------------------------------------------------------------------------ */

static size_t bucket_of(uint64_t time)
{
    if (time < 8)
        return (size_t)time;
    unsigned octave = 63u - (unsigned)__builtin_clzll(time);
    return wi_min((uint64_t)(octave - 2) * 8 + ((time >> (octave - 3)) & 7), WI_TIME_BUCKETS - 1);
}

/* The longest time that falls into it. */
static uint64_t end_of(size_t bucket)
{
    return bucket < 8 ? bucket : ((8 + bucket % 8 + 1) << (bucket / 8 - 1)) - 1;
}

static void add_time(wi_times *times, uint64_t time)
{
    times->count++;
    times->total += time;
    times->max = wi_max(times->max, time);
    times->buckets[bucket_of(time)]++;
}

/* The time that a part of 1/100ths did not exceed. */
static uint64_t percentile(const wi_times *times, unsigned hundredths)
{
    uint64_t wanted = (times->count * hundredths + 99) / 100, seen = 0;
    size_t bucket = 0;
    if (times->count == 0)
        return 0;
    while ((seen += times->buckets[bucket]) < wanted)
        bucket++;
    return bucket == WI_TIME_BUCKETS - 1 ? times->max : wi_min(end_of(bucket), times->max);
}

static weir_latency latency_of(const wi_times *times)
{
    return (weir_latency){times->count, times->total, percentile(times, 50), percentile(times, 99), times->max};
}

static void merge_times(wi_times *into, const wi_times *times)
{
    into->count += times->count;
    into->total += times->total;
    into->max = wi_max(into->max, times->max);
    for (size_t i = 0; i < WI_TIME_BUCKETS; i++)
        into->buckets[i] += times->buckets[i];
}

/* Lines, with the lock held ---------------------------------------------------------------------------------------- */

static wi_meter_line **row_of(wi_meter *meter, uint64_t serial)
{
    return &meter->rows[serial % WI_METER_ROWS];
}

static wi_meter_line *find_line(wi_meter *meter, const wi_account *account)
{
    wi_meter_line *line = *row_of(meter, account->serial);
    while (line && line->serial != account->serial)
        line = line->next;
    return line;
}

static void clear_line(wi_meter_line *line)
{
    for (int k = 0; k < WEIR_CLASS_COUNT; k++)
        free(line->classes[k]);
    memset(line->classes, 0, sizeof line->classes);
}

/* Takes one out whose client has been closed. */
static wi_meter_line *reuse_line(wi_meter *meter)
{
    for (size_t row = 0; row < WI_METER_ROWS; row++)
        for (wi_meter_line **link = &meter->rows[row]; *link; link = &(*link)->next) {
            wi_meter_line *line = *link;
            if (wi_ledger_knows(meter->resource.ledger, line->serial))
                continue;
            *link = line->next;
            clear_line(line);
            return line;
        }
    return NULL;
}

/* The line of a client, made if need be; NULL when there is no room for one. */
static wi_meter_line *line_for(wi_meter *meter, const wi_account *account)
{
    wi_meter_line *line = find_line(meter, account);
    if (line)
        return line;
    if (meter->lines == WI_METER_LINES)
        line = reuse_line(meter);
    else if ((line = calloc(1, sizeof *line)))
        meter->lines++;
    if (!line)
        return NULL;
    line->serial = account->serial;
    line->next = *row_of(meter, account->serial);
    *row_of(meter, account->serial) = line;
    return line;
}

/* The two tallies that something counts in; the second is NULL where there is no host memory for it. */
typedef struct tallies {
    wi_tally *of[2];
} tallies;

static tallies tallies_of(wi_meter *meter, const wi_account *account, weir_class memory_class)
{
    wi_meter_line *line = line_for(meter, account);
    if (line && !line->classes[memory_class])
        line->classes[memory_class] = calloc(1, sizeof(wi_tally));
    return (tallies){{&meter->total[memory_class], line ? line->classes[memory_class] : NULL}};
}

#define FOR_EACH(tally, tallies)                                                                                       \
    for (wi_tally **at_ = (tallies).of, *tally; at_ < (tallies).of + 2 && (tally = *at_); at_++)

/* Frames, with the lock held --------------------------------------------------------------------------------------- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void count_in_frame(wi_meter *meter, int64_t blocks, int64_t bytes)
{
    if (meter->depth == 0)
        return;
    weir_statistics_frame *frame = &meter->frames[meter->depth - 1];
    frame->live_blocks += blocks;
    frame->live_bytes += bytes;
    frame->peak_blocks = larger(frame->peak_blocks, frame->live_blocks);
    frame->peak_bytes = larger(frame->peak_bytes, frame->live_bytes);
    frame->total_blocks += blocks > 0 ? (uint64_t)blocks : 0;
    frame->total_bytes += bytes > 0 ? (uint64_t)bytes : 0;
}

weir_status wi_meter_push(wi_meter *meter)
{
    weir_status status = WEIR_OK;
    lock(meter);
    if (meter->depth == WI_METER_FRAMES)
        status = weir_fail(WEIR_ERR_BUSY, "weir_statistics_push: %d frames are open already; pop one first",
                           WI_METER_FRAMES);
    else
        meter->frames[meter->depth++] = (weir_statistics_frame){.struct_size = sizeof(weir_statistics_frame)};
    unlock(meter);
    return status;
}

weir_status wi_meter_pop(wi_meter *meter, weir_statistics_frame *out)
{
    weir_status status = WEIR_OK;
    lock(meter);
    if (meter->depth == 0) {
        status = weir_fail(WEIR_ERR_INVALID, "weir_statistics_pop: no frame is open; push one first");
    } else {
        *out = meter->frames[--meter->depth];
        if (meter->depth > 0) {
            weir_statistics_frame *around = &meter->frames[meter->depth - 1];
            around->peak_blocks = larger(around->peak_blocks, around->live_blocks + out->peak_blocks);
            around->peak_bytes = larger(around->peak_bytes, around->live_bytes + out->peak_bytes);
            around->live_blocks += out->live_blocks;
            around->live_bytes += out->live_bytes;
            around->total_blocks += out->total_blocks;
            around->total_bytes += out->total_bytes;
        }
    }
    unlock(meter);
    return status;
}

/* What passes ------------------------------------------------------------------------------------------------------ */

static weir_status allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    wi_meter *meter = of(resource);
    p->hit = false;
    uint64_t start = wi_now();
    weir_status status = wi_allocate(resource->inner, p, out, shortage);
    uint64_t time = wi_now() - start;
    lock(meter);
    tallies t = tallies_of(meter, p->account, p->memory_class);
    FOR_EACH(tally, t)
    {
        tally->refusals += status == WEIR_ERR_OUT_OF_MEMORY;
        tally->failures += status != WEIR_OK && status != WEIR_ERR_OUT_OF_MEMORY;
        tally->hits += status == WEIR_OK && p->hit;
        tally->misses += status == WEIR_OK && !p->hit;
        if (status == WEIR_OK)
            add_time(&tally->allocate, time);
    }
    unlock(meter);
    return status;
}

static size_t size_bucket(uint64_t bytes)
{
    return bytes <= 1 ? 0 : 64u - (size_t)__builtin_clzll(bytes - 1);
}

/* Counted before it is anyone's, so that no free can come first. */
static void publish(wi_resource *resource, wi_block *block)
{
    wi_meter *meter = of(resource);
    lock(meter);
    tallies t = tallies_of(meter, block->account, block->memory_class);
    FOR_EACH(tally, t)
    {
        tally->allocations++;
        tally->allocated += block->bytes;
        tally->sizes[size_bucket(block->bytes)]++;
    }
    count_in_frame(meter, 1, (int64_t)block->bytes);
    unlock(meter);
    wi_publish(resource->inner, block);
}

static bool retire(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past)
{
    wi_meter *meter = of(resource);
    const wi_block was = wi_block_copy(block); /* it may be another's afterwards */
    uint64_t start = wi_now();
    bool gone = wi_retire(resource->inner, block, stream, native, past);
    uint64_t time = wi_now() - start;
    lock(meter);
    tallies t = tallies_of(meter, was.account, was.memory_class);
    FOR_EACH(tally, t)
    {
        tally->frees++;
        tally->freed += was.bytes;
        add_time(&tally->free, time);
    }
    count_in_frame(meter, -1, -(int64_t)was.bytes);
    unlock(meter);
    return gone;
}

static weir_status release(wi_resource *resource, wi_block *block)
{
    wi_meter *meter = of(resource);
    const wi_account *account = block->account;
    weir_class memory_class = block->memory_class;
    uint64_t start = wi_now();
    weir_status status = wi_release(resource->inner, block);
    uint64_t time = wi_now() - start;
    if (status != WEIR_OK)
        return status;
    lock(meter);
    tallies t = tallies_of(meter, account, memory_class);
    FOR_EACH(tally, t)
    add_time(&tally->release, time);
    unlock(meter);
    return status;
}

static void count_resize(wi_meter *meter, const wi_block *block, uint64_t before)
{
    uint64_t bytes = block->bytes;
    lock(meter);
    tallies t = tallies_of(meter, block->account, block->memory_class);
    FOR_EACH(tally, t)
    {
        tally->allocated += bytes > before ? bytes - before : 0;
        tally->freed += before > bytes ? before - bytes : 0;
    }
    count_in_frame(meter, 0, (int64_t)(bytes - before));
    unlock(meter);
}

static weir_status shrink(wi_resource *resource, wi_block *block, uint64_t bytes, void *native, wi_block **tail)
{
    uint64_t before = block->bytes;
    weir_status status = wi_shrink(resource->inner, block, bytes, native, tail);
    if (status == WEIR_OK)
        count_resize(of(resource), block, before);
    return status;
}

static weir_status grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait, wi_shortage *shortage)
{
    uint64_t before = block->bytes;
    weir_status status = wi_grow(resource->inner, block, bytes, may_wait, shortage);
    if (status == WEIR_OK)
        count_resize(of(resource), block, before);
    return status;
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

static void merge(wi_tally *into, const wi_tally *tally)
{
    into->allocations += tally->allocations;
    into->frees += tally->frees;
    into->allocated += tally->allocated;
    into->freed += tally->freed;
    into->refusals += tally->refusals;
    into->failures += tally->failures;
    into->hits += tally->hits;
    into->misses += tally->misses;
    for (size_t i = 0; i < WEIR_SIZE_BUCKETS; i++)
        into->sizes[i] += tally->sizes[i];
    merge_times(&into->allocate, &tally->allocate);
    merge_times(&into->free, &tally->free);
    merge_times(&into->release, &tally->release);
}

bool wi_meter_read(wi_meter *meter, const wi_account *account, weir_class memory_class, weir_statistics *out)
{
    wi_tally sum = {.allocations = 0};
    lock(meter);
    const wi_meter_line *line = account ? find_line(meter, account) : NULL;
    for (int k = 0; k < WEIR_CLASS_COUNT; k++) {
        const wi_tally *tally = !account ? &meter->total[k] : line ? line->classes[k] : NULL;
        if (tally && (memory_class == WEIR_CLASS_COUNT || (int)memory_class == k))
            merge(&sum, tally);
    }
    unlock(meter);
    *out = (weir_statistics){.struct_size = sizeof *out,
                             .allocations = sum.allocations,
                             .frees = sum.frees,
                             .allocated = sum.allocated,
                             .freed = sum.freed,
                             .refusals = sum.refusals,
                             .failures = sum.failures,
                             .hits = sum.hits,
                             .misses = sum.misses,
                             .allocate = latency_of(&sum.allocate),
                             .free = latency_of(&sum.free),
                             .release = latency_of(&sum.release)};
    memcpy(out->sizes, sum.sizes, sizeof out->sizes);
    return !account || line;
}

/* Making ----------------------------------------------------------------------------------------------------------- */

static void destroy(wi_resource *resource)
{
    wi_meter *meter = of(resource);
    for (size_t row = 0; row < WI_METER_ROWS; row++)
        for (wi_meter_line *line = meter->rows[row], *next; line; line = next) {
            next = line->next;
            clear_line(line);
            free(line);
        }
    pthread_mutex_destroy(&resource->lock);
    free(meter);
}

static const wi_resource_table table = {
    .name = "stats",
    .allocate = allocate,
    .publish = publish,
    .retire = retire,
    .release = release,
    .shrink = shrink,
    .grow = grow,
    .destroy = destroy,
};

wi_meter *wi_meter_in(wi_resource *top)
{
    while (top && top->table != &table)
        top = top->inner;
    return (wi_meter *)top;
}

weir_status wi_meter_create(wi_resource *inner, const wi_arguments *arguments, wi_resource **out)
{
    weir_status status = wi_arguments_check(arguments, (const char *const[]){NULL});
    if (status != WEIR_OK)
        return status;
    wi_meter *meter = calloc(1, sizeof *meter);
    if (!meter)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for statistics");
    wi_resource_init(&meter->resource, &table, inner->driver, inner->device, inner);
    *out = &meter->resource;
    return WEIR_OK;
}
