/* Stores of parameters: holders, and what runs and reports ask. Adding is parameters_add.c's. */
#include "workspace/parameters.h"
#include <weir/workspace.h>
#include "runtime/runtime.h"

#include <stdio.h>

static weir_status check_options(weir_parameters_options *o)
{
    o->alignment = o->alignment ? o->alignment : WI_UNIT;
    o->step = o->step ? o->step : WEIR_PARAMETERS_STEP;
    if (!wi_power_of_two(o->alignment) || o->alignment > 2 * WI_MIB)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_create: an alignment of %zu is no power of two up to 2 MiB",
                         o->alignment);
    uint64_t between = o->expected_count > 1 ? (o->expected_count - 1) * (uint64_t)(o->alignment - 1) : 0;
    o->expected = o->expected > WI_LONGEST ? o->expected : o->expected + between;
    if (o->expected > WI_LONGEST || o->step > WI_LONGEST)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_create: no device could have %llu bytes",
                         (unsigned long long)wi_max(o->expected, o->step));
    return WEIR_OK;
}

weir_status weir_parameters_create(weir_client *client, const weir_parameters_options *options, weir_parameters **out)
{
    weir_status status = wi_client_check(client, "weir_parameters_create");
    if (status != WEIR_OK)
        return status;
    weir_parameters_options o = {.struct_size = 0};
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_create: no place for the result");
    status = WI_COPY_OPTIONS_IN(weir_parameters_options, &o, options, "weir_parameters_create");
    if (status != WEIR_OK)
        return status;
    *out = NULL;
    status = check_options(&o);
    if (status != WEIR_OK)
        return status;
    weir_parameters *store = calloc(1, sizeof *store);
    if (!store)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a store of parameters");
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->turn_ends, NULL);
    store->holders = 1;
    store->client = client;
    store->expected = o.expected;
    store->step = o.step;
    store->alignment = o.alignment;
    snprintf(store->tag, sizeof store->tag, "%s", o.tag && *o.tag ? o.tag : "parameters");
    *out = store;
    return WEIR_OK;
}

weir_status weir_parameters_acquire(weir_parameters *store)
{
    WI_ENTER();
    if (!store)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_acquire: NULL");
    pthread_mutex_lock(&store->lock);
    store->holders++;
    pthread_mutex_unlock(&store->lock);
    return WEIR_OK;
}

static void free_store(weir_parameters *store)
{
    for (uint32_t i = 0; i < store->count; i++)
        free((char *)(uintptr_t)store->list[i].name);
    free(store->list);
    free(store->names);
    free(store->chunks);
    pthread_cond_destroy(&store->turn_ends);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* The last holder's. The blocks carry the marks of all declared uses, so that the frees are behind those; what could not be
 * freed stays in the list for another try. */
static weir_status free_chunks(weir_parameters *store)
{
    for (; store->chunk_count > 0; store->chunk_count--) {
        weir_status status =
            weir_free_block(store->client, store->chunks[store->chunk_count - 1].block, WEIR_STREAM_HOST);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

weir_status weir_parameters_release(weir_parameters *store)
{
    WI_ENTER();
    if (!store)
        return WEIR_OK;
    pthread_mutex_lock(&store->lock);
    bool last = store->holders == 1;
    if (!last)
        store->holders--;
    pthread_mutex_unlock(&store->lock);
    if (!last)
        return WEIR_OK;
    weir_status status = free_chunks(store);
    if (status == WEIR_OK)
        free_store(store);
    return status;
}

weir_status weir_parameters_info(weir_parameters *store, weir_parameters_details *out)
{
    if (!store || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_info: NULL");
    weir_parameters_details details = {.struct_size = 0};
    pthread_mutex_lock(&store->lock);
    details.count = store->count;
    details.blocks = store->chunk_count;
    details.bytes = store->bytes;
    for (uint32_t i = 0; i < store->chunk_count; i++)
        details.charged += store->chunks[i].room;
    pthread_mutex_unlock(&store->lock);
    if (!wi_copy_out(out, out->struct_size, &details, sizeof details))
        return weir_fail(WEIR_ERR_INVALID, "weir_parameters_info: a structure without its size");
    return WEIR_OK;
}

weir_status wi_parameters_begin_run(weir_parameters *store, size_t before, weir_use **uses, size_t *count)
{
    size_t chunks = 0;
    if (store)
        pthread_mutex_lock(&store->lock);
    chunks = store ? store->chunk_count : 0;
    *uses = calloc(before + chunks + 1, sizeof **uses);
    for (size_t i = 0; *uses && i < chunks; i++)
        (*uses)[before + i] = (weir_use){store->chunks[i].block, WEIR_ACCESS_READ};
    if (store) {
        store->runs += *uses != NULL;
        pthread_mutex_unlock(&store->lock);
    }
    *count = before + chunks;
    return *uses ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for the uses of %zu blocks", *count);
}

void wi_parameters_end_run(weir_parameters *store)
{
    if (!store)
        return;
    pthread_mutex_lock(&store->lock);
    store->runs--;
    pthread_mutex_unlock(&store->lock);
}
