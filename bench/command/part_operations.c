/* part_operations.c: single operations by each resource, and by what a program would call instead, timed one by one.
 * Every round times all rows in turn, so that a disturbance of the machine affects all rows alike. */
#include "allocators.h"
#include "bench.h"

#include <weir/elastic.h>
#include <weir/weir.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An operation that can be repeated. */
typedef struct row {
    const char *operation;            /* only rows of the same operation are compared */
    const char *who;                  /* "weir: async", "CUDA: cuMemAllocAsync" */
    bool peer;                        /* not weir; weir's rows are compared with the first peer of the operation */
    bool (*run)(const struct row *r); /* false: weir_detail says why */
    const bench_peer *by;             /* of pairs: the allocator, the size and the stream */
    size_t bytes;
    uint64_t stream;
    size_t uses;          /* of launches */
    uint64_t median, p99; /* nanoseconds, of the best round so far */
} row;

enum { ROWS = 64, SUBJECTS = 16, SMALL = 4096, LARGE = 1 << 20, USES = 16 };

static const char small[] = "allocate and free 4 KiB on a stream", large[] = "allocate and free 1 MiB on a stream";
static const char host[] = "allocate and free 4 KiB, no stream";
static const char launch_one[] = "begin and end a launch, 1 block", launch_many[] = "begin and end a launch, 16 blocks";
static const char order[] = "order one stream behind another";
static const char page[] = "commit and release a page", page_in_order[] = "commit and release a page on a stream";

typedef struct operations {
    row rows[ROWS];
    size_t count;
    bench_peer subjects[SUBJECTS];
    size_t subject_count;
    bool events;       /* CUDA's are begun */
    char missing[256]; /* why there are no peers on the device */
} operations;

static row *part_operations_add_row(operations *o, const char *operation, const char *who, bool (*run)(const row *r))
{
    static row spare; /* more rows than there is room for would be a mistake of this program's */
    row *added = o->count < ROWS ? &o->rows[o->count++] : &spare;
    *added = (row){.operation = operation, .who = who, .run = run, .median = UINT64_MAX, .p99 = UINT64_MAX};
    return added;
}

/* Allocators ------------------------------------------------------------------------------------------------------- */

static bool part_operations_run_pair(const row *r)
{
    void *pointer = r->by->allocate(r->by->self, r->bytes, r->stream);
    return pointer && r->by->release(r->by->self, pointer, r->bytes, r->stream);
}

static void add_pair(operations *o, const char *operation, const bench_peer *by, size_t bytes, uint64_t stream)
{
    row *added = part_operations_add_row(o, operation, by->name, part_operations_run_pair);
    added->peer = strncmp(by->name, "weir", 4) != 0;
    added->by = by;
    added->bytes = bytes;
    added->stream = stream;
}

/* Begins an allocator that could be had (`failure` NULL), to be ended with the others. NULL, or what failed. */
static const char *begin_subject(operations *o, const char *failure, const bench_peer *by, uint64_t cap)
{
    if (failure)
        return failure;
    failure = o->subject_count == SUBJECTS ? "there is no room for more" : by->begin(by->self, cap);
    if (failure) {
        if (by->close)
            by->close(by->self);
        return failure;
    }
    bench_enter_thread(by);
    o->subjects[o->subject_count++] = *by;
    return NULL;
}

static void end_subjects(operations *o)
{
    while (o->subject_count > 0) {
        const bench_peer *by = &o->subjects[--o->subject_count];
        bench_leave_thread(by);
        by->end(by->self);
        if (by->close)
            by->close(by->self);
    }
}

/* With a stream of its own. */
static const char *begin_on_stream(operations *o, const char *failure, const bench_peer *by, uint64_t cap,
                                   uint64_t *stream)
{
    failure = begin_subject(o, failure, by, cap);
    return failure ? failure : by->stream(by->self, 0, stream);
}

static const char *add_weir(operations *o, const char *device)
{
    static const char *const stacks[] = {"mapped", "direct", "async", "log(async)", "guard(direct)"};
    const char *failure = NULL;
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0] && !failure; i++) {
        bench_peer by;
        uint64_t stream;
        failure = begin_on_stream(o, bench_weir(device, stacks[i], true, &by), &by, UINT64_C(256) << 20, &stream);
        if (failure)
            break;
        const bench_peer *subject = &o->subjects[o->subject_count - 1];
        add_pair(o, small, subject, SMALL, stream);
        add_pair(o, large, subject, LARGE, stream);
        add_pair(o, host, subject, SMALL, WEIR_STREAM_HOST.id);
    }
    return failure;
}

static bool run_event(const row *r)
{
    (void)r;
    return bench_cuda_events_order();
}

static const char *add_cuda(operations *o, const char *device)
{
    bench_peer by[2];
    uint64_t streams[2];
    const char *colon = strchr(device, ':');
    const int ordinal = colon ? atoi(colon + 1) : 0;
    const bench_peer *subjects = &o->subjects[o->subject_count];
    const char *failure = begin_on_stream(o, bench_cuda_pool(ordinal, &by[0]), &by[0], 0, &streams[0]);
    if (!failure)
        failure = begin_on_stream(o, bench_cuda_direct(ordinal, &by[1]), &by[1], 0, &streams[1]);
    if (!failure)
        failure = bench_cuda_events_begin(ordinal);
    if (failure)
        return failure;
    o->events = true;
    for (int i = 0; i < 2; i++)
        add_pair(o, small, &subjects[i], SMALL, streams[i]);
    for (int i = 0; i < 2; i++)
        add_pair(o, large, &subjects[i], LARGE, streams[i]);
    part_operations_add_row(o, order, "CUDA: an event by hand", run_event)->peer = true;
    return NULL;
}

static void add_peers(operations *o, const char *device)
{
    bench_peer by;
    const char *failure = bench_malloc(&by);
    snprintf(by.name, sizeof by.name, "C library: malloc and free");
    (void)begin_subject(o, failure, &by, 0);
    add_pair(o, host, &o->subjects[0], SMALL, 0);
    if (strncmp(device, "cuda", 4) != 0) {
        add_pair(o, small, &o->subjects[0], SMALL, 0);
        add_pair(o, large, &o->subjects[0], LARGE, 0);
        return;
    }
    failure = add_cuda(o, device);
    if (failure)
        snprintf(o->missing, sizeof o->missing, "CUDA's own calls could not be set up: %s", failure);
}

/* Launches --------------------------------------------------------------------------------------------------------- */

static struct {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream streams[2]; /* the last launch that wrote was on the first */
    weir_use uses[USES];
    weir_block block; /* used on both streams */
} launches;

static bool part_operations_launch(weir_stream stream, const weir_use *uses, size_t count)
{
    weir_launch *begun;
    return weir_launch_begin(launches.runtime, stream, uses, count, &begun) == WEIR_OK &&
           weir_launch_end(begun) == WEIR_OK;
}

static bool run_launch(const row *r)
{
    return part_operations_launch(launches.streams[1], launches.uses, r->uses);
}

/* Launches a write, on the two streams by turns, so that each launch waits for the previous write. */
static bool part_operations_run_order(const row *r)
{
    const weir_use use = {launches.block, WEIR_ACCESS_WRITE};
    const weir_stream last = launches.streams[0];
    (void)r;
    launches.streams[0] = launches.streams[1];
    launches.streams[1] = last;
    return part_operations_launch(launches.streams[0], &use, 1);
}

static weir_status begin_launches(const char *device)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    weir_request request = WEIR_INIT(weir_request);
    options.budget = UINT64_C(256) << 20;
    options.resource = "mapped";
    client.name = "bench";
    request.bytes = SMALL;
    weir_status status = weir_runtime_create(device, &options, &launches.runtime);
    if (status == WEIR_OK)
        status = weir_client_create(launches.runtime, &client, &launches.client);
    for (int i = 0; i < 2 && status == WEIR_OK; i++)
        status = weir_stream_acquire(launches.runtime, &launches.streams[i]);
    for (size_t i = 0; i < USES && status == WEIR_OK; i++) {
        launches.uses[i].access = WEIR_ACCESS_READ;
        status = weir_alloc_with(launches.client, &request, &launches.uses[i].block);
    }
    return status == WEIR_OK ? weir_alloc_with(launches.client, &request, &launches.block) : status;
}

static void end_launches(void)
{
    for (size_t i = 0; i < USES && launches.client; i++)
        (void)!weir_free_block(launches.client, launches.uses[i].block, WEIR_STREAM_HOST);
    if (launches.client && weir_free_block(launches.client, launches.block, WEIR_STREAM_HOST) == WEIR_OK)
        (void)!weir_client_destroy(launches.client);
    for (int i = 0; i < 2; i++)
        if (launches.streams[i].id)
            (void)!weir_stream_release(launches.streams[i]);
    if (launches.runtime)
        (void)!weir_runtime_destroy(launches.runtime);
    memset(&launches, 0, sizeof launches);
}

static const char *add_launches(operations *o, const char *device)
{
    if (begin_launches(device) != WEIR_OK)
        return weir_detail();
    part_operations_add_row(o, launch_one, "weir", run_launch)->uses = 1;
    part_operations_add_row(o, launch_many, "weir", run_launch)->uses = USES;
    part_operations_add_row(o, order, "weir: a launch that writes", part_operations_run_order);
    return NULL;
}

/* Elastic blocks --------------------------------------------------------------------------------------------------- */

static weir_elastic *cache; /* in the runtime of the launches */

static bool run_page(const row *r)
{
    const weir_stream stream = {r->stream};
    return weir_elastic_commit(cache, 0, 1, stream) == WEIR_OK &&
           weir_elastic_release(cache, 0, r->bytes, stream) == WEIR_OK;
}

/* Where the driver has none, there is nothing to be timed. On a stream that is not past the release the page stays. */
static const char *add_pages(operations *o)
{
    weir_elastic_options options = WEIR_INIT(weir_elastic_options);
    weir_elastic_stats stats = WEIR_INIT(weir_elastic_stats);
    options.bytes = UINT64_C(64) << 20;
    weir_status status = weir_elastic_create(launches.client, &options, &cache);
    if (status == WEIR_ERR_UNSUPPORTED)
        return NULL;
    if (status == WEIR_OK)
        status = weir_elastic_info(cache, &stats);
    if (status != WEIR_OK)
        return weir_detail();
    part_operations_add_row(o, page, "weir: no stream", run_page)->bytes = stats.page;
    row *added = part_operations_add_row(o, page_in_order, "weir", run_page);
    added->bytes = stats.page;
    added->stream = launches.streams[0].id;
    return NULL;
}

static void end_pages(void)
{
    if (cache && weir_elastic_destroy(cache, WEIR_STREAM_HOST) == WEIR_OK)
        cache = NULL;
}

/* Timing ----------------------------------------------------------------------------------------------------------- */

static bool time_row(row *r, uint64_t laps, uint64_t cost, uint64_t *samples)
{
    for (uint64_t i = 0; i < laps; i++) {
        uint64_t start = bench_now();
        if (!r->run(r))
            return false;
        uint64_t took = bench_now() - start;
        samples[i] = took > cost ? took - cost : 0;
    }
    bench_sort(samples, laps);
    uint64_t median = samples[laps / 2];
    if (median < r->median) {
        r->median = median;
        r->p99 = samples[laps - 1 - laps / 100];
    }
    return true;
}

static int time_all(operations *o, const bench_args *args)
{
    uint64_t cost = bench_clock_cost(), *samples = calloc(args->laps, sizeof *samples);
    if (!samples)
        return cli_fail("no memory for %llu samples", (unsigned long long)args->laps);
    int status = CLI_OK;
    for (uint64_t round = 0; round < args->rounds && status == CLI_OK; round++)
        for (size_t i = 0; i < o->count && status == CLI_OK; i++)
            if (!time_row(&o->rows[i], args->laps, cost, samples))
                status = cli_fail("%s by %s: %s", o->rows[i].operation, o->rows[i].who, weir_detail());
    free(samples);
    return status;
}

/* Answers ---------------------------------------------------------------------------------------------------------- */

/* To the first peer of the operation; NAN: there is none, or its time is too short to be measured. */
static double ratio(const operations *o, const row *r)
{
    for (size_t i = 0; i < o->count; i++)
        if (o->rows[i].peer && o->rows[i].operation == r->operation)
            return o->rows[i].median ? (double)r->median / (double)o->rows[i].median : NAN;
    return NAN;
}

/* The first row of the same operation. */
static size_t part_operations_first_of(const operations *o, const row *r)
{
    size_t i = 0;
    while (o->rows[i].operation != r->operation)
        i++;
    return i;
}

static void print_rows(const operations *o, table *grid, size_t first)
{
    for (size_t i = first; i < o->count; i++) {
        const row *r = &o->rows[i];
        if (part_operations_first_of(o, r) != first)
            continue;
        table_row(grid);
        table_cell(grid, i == first ? r->operation : "", "", false);
        table_cell(grid, r->who, "", false);
        bench_number(grid, (double)r->median, 0);
        bench_number(grid, (double)r->p99, 0);
        bench_number(grid, ratio(o, r), 2);
    }
}

static void part_operations_print_table(const operations *o)
{
    static const char *const titles[] = {"operation", "by", "median ns", "p99 ns", "ratio"};
    table grid = {0};
    bench_titles(&grid, titles, sizeof titles / sizeof titles[0], 2);
    for (size_t i = 0; i < o->count; i++)
        if (part_operations_first_of(o, &o->rows[i]) == i)
            print_rows(o, &grid, i);
    table_print(&grid, stdout);
    table_clear(&grid);
    if (o->missing[0])
        printf("\n%s\n", o->missing);
}

static void fill_json(const operations *o, json_t *answer)
{
    json_t *list = json_array();
    for (size_t i = 0; i < o->count; i++) {
        const row *r = &o->rows[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:I, s:I, s:o}", "operation", r->operation, "who",
                                              r->who, "peer", r->peer, "median", (json_int_t)r->median, "p99",
                                              (json_int_t)r->p99, "ratio", bench_number_json(ratio(o, r))));
    }
    json_object_set_new(answer, "rows", list);
}

int bench_part_operations(const bench_args *args, json_t *answer)
{
    operations *o = text_zeroed(1, sizeof *o);
    add_peers(o, args->device);
    const char *failure = add_weir(o, args->device);
    if (!failure)
        failure = add_launches(o, args->device);
    if (!failure)
        failure = add_pages(o);
    int status = failure ? cli_fail("%s", failure) : time_all(o, args);
    if (status == CLI_OK && answer)
        fill_json(o, answer);
    else if (status == CLI_OK)
        part_operations_print_table(o);
    end_pages();
    end_launches();
    if (o->events)
        bench_cuda_events_end();
    end_subjects(o);
    free(o);
    return status;
}
