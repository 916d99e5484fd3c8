/* The adaptor "guest": below the budget of a stack that hands out the host's memory for another device. What the host's
 * own resource has free, or keeps back, counts in the same ledger, and is given up before a guest goes without. */
#include "runtime/runtime.h"

typedef struct host_trim {
    wi_resource resource;
    weir_runtime *host;
} host_trim;

static weir_stats host_trim_look(weir_runtime *host)
{
    weir_stats stats = {.struct_size = sizeof stats};
    size_t ignored;
    wi_ledger_snapshot(&host->ledger, &stats, NULL, 0, 0, &ignored);
    return stats;
}

/* How much more is held than the budget allows once there are `bytes` more. */
static uint64_t host_trim_excess(weir_runtime *host, uint64_t bytes)
{
    wi_standing now = wi_ledger_look(&host->ledger);
    return now.held + bytes - wi_min(now.held + bytes, now.budget);
}

/* The host's resource gives up as much of what it has free as the others need. */
static void trim_host(weir_runtime *host, uint64_t bytes)
{
    wi_resource *base = host->resource->base;
    uint64_t more = host_trim_excess(host, bytes);
    if (more == 0)
        return;
    weir_stats s = host_trim_look(host);
    uint64_t free_bytes = s.cached + s.spare;
    (void)base->table->trim(base, free_bytes - wi_min(free_bytes, more));
    if (host_trim_excess(host, bytes) > 0) /* some of what is cached is not its own */
        (void)base->table->trim(base, 0);
}

static weir_status host_trim_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    trim_host(((host_trim *)resource)->host, p->charged + p->alignment);
    return wi_allocate(resource->inner, p, out, shortage);
}

static uint64_t host_trim_release_kept(wi_resource *resource)
{
    return wi_release_kept(((host_trim *)resource)->host->resource);
}

static void host_trim_destroy(wi_resource *resource)
{
    pthread_mutex_destroy(&resource->lock);
    free(resource);
}

static const wi_resource_table table = {
    .name = "guest",
    .allocate = host_trim_allocate,
    .release_kept = host_trim_release_kept,
    .destroy = host_trim_destroy,
};

weir_status wi_host_trim_create(weir_runtime *host, wi_resource *inner, wi_resource **out)
{
    host_trim *g = calloc(1, sizeof *g);
    if (!g)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a guest of %s", host->name);
    wi_resource_init(&g->resource, &table, inner->driver, inner->device, inner);
    g->host = host;
    *out = &g->resource;
    return WEIR_OK;
}
