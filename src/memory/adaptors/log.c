/* The adaptor "log": records the calls that reach the adaptor, in the order in which the calls took effect. */
#include "memory/adaptors/adaptors.h"
#include <weir/trace.h>
#include "memory/ledger/ledger.h"

#include <stdio.h>

typedef struct logging {
    wi_resource resource;
    wi_events *ring; /* under the ledger's lock */
    char csv[WI_ARGUMENT_BYTES], binary[WI_ARGUMENT_BYTES];
} logging;

/* Recording -------------------------------------------------------------------------------------------------------- */

static void log_record(wi_resource *resource, weir_event event, const wi_block *block)
{
    logging *l = (logging *)resource;
    wi_record_to(resource->ledger, &l->ring, event, block);
}

static void log_record_failure(wi_resource *resource, weir_status status, weir_action action, const wi_placement *p)
{
    bool refused = status == WEIR_ERR_OUT_OF_MEMORY && action == WEIR_ACTION_ALLOCATE;
    log_record(resource,
               (weir_event){.action = refused ? WEIR_ACTION_REFUSE : WEIR_ACTION_FAIL,
                            .object = (uint64_t)action,
                            .bytes = p->bytes,
                            .charged = p->charged,
                            .memory_class = p->memory_class,
                            .stream = p->stream,
                            .client = p->account->lasting,
                            .tag = p->tag,
                            .result = status},
               NULL);
}

/* What passes ------------------------------------------------------------------------------------------------------ */

static weir_status log_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    weir_status status = wi_allocate(resource->inner, p, out, shortage);
    if (status != WEIR_OK)
        log_record_failure(resource, status, WEIR_ACTION_ALLOCATE, p);
    return status;
}

/* A block is discarded only when work could not be queued for it, so that the allocation failed. */
static void log_discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    log_record_failure(resource, WEIR_ERR_DRIVER, WEIR_ACTION_ALLOCATE, p);
    wi_discard(resource->inner, block, p);
}

static void log_publish(wi_resource *resource, wi_block *block)
{
    log_record(resource, (weir_event){.action = WEIR_ACTION_ALLOCATE, .stream = block->stream, .other = block->stream},
               block);
    wi_publish(resource->inner, block);
}

static bool log_retire(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past)
{
    log_record(resource, (weir_event){.action = WEIR_ACTION_DEALLOCATE, .stream = stream, .other = block->stream},
               block);
    return wi_retire(resource->inner, block, stream, native, past);
}

static weir_status log_release(wi_resource *resource, wi_block *block)
{
    log_record(resource, (weir_event){.action = WEIR_ACTION_REAP, .stream = block->stream, .other = block->stream},
               block);
    weir_status status = wi_release(resource->inner, block);
    if (status != WEIR_OK)
        log_record(resource, (weir_event){.action = WEIR_ACTION_FAIL, .object = WEIR_ACTION_REAP, .result = status},
                   block);
    return status;
}

static void log_record_resize(wi_resource *resource, weir_status status, const wi_block *block)
{
    log_record(resource,
               (weir_event){.action = status == WEIR_OK ? WEIR_ACTION_RESIZE : WEIR_ACTION_FAIL,
                            .object = status == WEIR_OK ? 0 : WEIR_ACTION_RESIZE,
                            .stream = block->stream,
                            .other = block->stream,
                            .result = status},
               block);
}

static weir_status log_shrink(wi_resource *resource, wi_block *block, uint64_t bytes, void *native, wi_block **tail)
{
    weir_status status = wi_shrink(resource->inner, block, bytes, native, tail);
    log_record_resize(resource, status, block);
    return status;
}

static weir_status log_grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait,
                            wi_shortage *shortage)
{
    weir_status status = wi_grow(resource->inner, block, bytes, may_wait, shortage);
    log_record_resize(resource, status, block);
    return status;
}

static void log_resized(wi_resource *resource, const wi_block *block, uint64_t from, uint64_t to, weir_status status)
{
    (void)from, (void)to;
    log_record_resize(resource, status, block);
}

/* Making ----------------------------------------------------------------------------------------------------------- */

static void log_describe(const wi_resource *resource, char *text, size_t capacity)
{
    const logging *l = (const logging *)resource;
    snprintf(text, capacity, "%s%s%s%s%s%s", l->csv[0] ? "csv=" : "", l->csv, l->csv[0] ? ", " : "",
             l->binary[0] ? "binary=" : "", l->binary, l->binary[0] ? ", " : "");
}

static void log_destroy(wi_resource *resource)
{
    free(resource);
}

static const wi_resource_table table = {
    .name = "log",
    .allocate = log_allocate,
    .discard = log_discard,
    .publish = log_publish,
    .retire = log_retire,
    .release = log_release,
    .shrink = log_shrink,
    .grow = log_grow,
    .resized = log_resized,
    .describe = log_describe,
    .destroy = log_destroy,
};

weir_status wi_log_create(wi_resource *inner, const wi_arguments *arguments, wi_resource **out)
{
    const char *csv = wi_argument(arguments, "csv"), *binary = wi_argument(arguments, "binary");
    weir_status status = wi_arguments_check(arguments, (const char *const[]){"csv", "binary", NULL});
    if (status != WEIR_OK)
        return status;
    if (wi_log_find(inner))
        return weir_fail(WEIR_ERR_INVALID, "a stack has one log");
    logging *l = calloc(1, sizeof *l);
    if (!l)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a log");
    wi_resource_init(&l->resource, &table, inner);
    snprintf(l->csv, sizeof l->csv, "%s", csv ? csv : "");
    snprintf(l->binary, sizeof l->binary, "%s", binary ? binary : "");
    *out = &l->resource;
    return WEIR_OK;
}

wi_resource *wi_log_find(wi_resource *top)
{
    while (top && top->table != &table)
        top = top->inner;
    return top;
}

const char *wi_log_csv(const wi_resource *log)
{
    return ((const logging *)log)->csv;
}

const char *wi_log_binary(const wi_resource *log)
{
    return ((const logging *)log)->binary;
}

void wi_log_into(wi_resource *log, wi_events *ring)
{
    pthread_mutex_lock(&log->ledger->lock);
    ((logging *)log)->ring = ring;
    pthread_mutex_unlock(&log->ledger->lock);
}
