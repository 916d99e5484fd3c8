/* Host memory: pinned and pageable memory that a device's runtime hands out. Each kind has a stack over one driver
 * allocation per block, charged in the ledger of the host's runtime and ordered on the device's streams. And the
 * adaptor "host_trim". */
#include "memory/stack.h"
#include "memory/elastic.h"
#include "runtime/runtime.h"

/* Host trim -------------------------------------------------------------------------------------------------------- */

/* The adaptor "host_trim", below the budget of a stack of host memory. Cached memory of the host's own runtime counts
 * in the same ledger, and is trimmed before this stack goes without. The same around pages of elastic blocks, whose
 * ledger is their own runtime's: cached memory there also stands between them and the device's last bytes. */

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

/* By how much `bytes` more would exceed the host's budget. */
static uint64_t host_trim_excess(weir_runtime *host, uint64_t bytes)
{
    wi_standing now = wi_ledger_look(&host->ledger);
    uint64_t wanted = now.held + now.aside + bytes;
    return wanted - wi_min(wanted, now.budget);
}

/* Has the runtime give back `bytes` of cached memory, or a little more; returns what it was. Some of the cached bytes are
 * those of other members, or of thread caches, and not its base's to give: then it is asked for more. */
static uint64_t host_trim_give(weir_runtime *host, uint64_t bytes)
{
    wi_base *base = host->resource->base;
    weir_stats s = host_trim_look(host);
    uint64_t given = 0, keep = s.cached + s.spare;
    for (uint64_t less = bytes; given < bytes && keep > 0; less *= 2) {
        keep -= wi_min(keep, less);
        given += base->table->trim(base, keep);
    }
    return given;
}

void wi_host_trim_make_room(weir_runtime *host, uint64_t bytes)
{
    uint64_t more = host_trim_excess(host, bytes);
    while (more > 0 && host_trim_give(host, more) > 0)
        more = host_trim_excess(host, bytes);
}

bool wi_host_trim_give(weir_runtime *host, uint64_t bytes)
{
    return host_trim_give(host, bytes) > 0;
}

/* A page of a promised range has its held bytes set aside. */
static uint64_t host_trim_wants(const wi_placement *p)
{
    return !p->page ? p->charged + p->alignment : p->page->range->promised ? 0 : p->charged;
}

static weir_status host_trim_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    weir_runtime *host = ((host_trim *)resource)->host;
    wi_host_trim_make_room(host, host_trim_wants(p));
    weir_status status = wi_allocate(resource->inner, p, out, shortage);
    while (p->page && status == WEIR_ERR_OUT_OF_MEMORY && shortage->cause == WEIR_CAUSE_OTHER_PROCESS &&
           wi_host_trim_give(host, p->charged))
        status = wi_allocate(resource->inner, p, out, shortage);
    return status;
}

static uint64_t host_trim_release_kept(wi_resource *resource)
{
    return wi_release_kept(((host_trim *)resource)->host->resource);
}

static void host_trim_destroy(wi_resource *resource)
{
    free(resource);
}

static const wi_resource_table table = {
    .name = "host_trim",
    .allocate = host_trim_allocate,
    .release_kept = host_trim_release_kept,
    .destroy = host_trim_destroy,
};

weir_status wi_host_trim_create(weir_runtime *host, wi_resource *inner, wi_resource **out)
{
    host_trim *g = calloc(1, sizeof *g);
    if (!g)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the host memory of %s", host->name);
    wi_resource_init(&g->resource, &table, inner);
    g->host = host;
    *out = &g->resource;
    return WEIR_OK;
}

/* Kinds of host memory --------------------------------------------------------------------------------------------- */

/* Whether the runtime has kinds of host memory; the host's own runtime has one kind. */
static bool kinds_are_there(const weir_runtime *runtime)
{
    return runtime->driver != &wi_host_driver;
}

bool wi_kind_is_own(const weir_runtime *runtime, weir_kind kind)
{
    return kind == WEIR_KIND_DEVICE || !kinds_are_there(runtime);
}

/* Stacks ----------------------------------------------------------------------------------------------------------- */

weir_status wi_host_memory_init(weir_runtime *runtime, weir_runtime *host)
{
    if (host && (!kinds_are_there(runtime) || kinds_are_there(host)))
        return weir_fail(WEIR_ERR_INVALID, "%s cannot be the host's runtime for %s; leave it out, or give one of host",
                         host->name, runtime->name);
    pthread_mutex_init(&runtime->kinds_lock, NULL);
    wi_aside_begin(&runtime->aside);
    atomic_init(&runtime->host, host);
    if (host)
        atomic_fetch_add(&host->hosted, 1);
    return WEIR_OK;
}

void wi_host_memory_destroy(weir_runtime *runtime)
{
    wi_aside_end(&runtime->aside);
    wi_elastic_end(runtime);
    for (int kind = 0; kind < WI_KINDS; kind++) {
        wi_resource *stack = atomic_load(&runtime->kinds[kind]);
        if (stack) {
            wi_members_remove(&runtime->members[kind]);
            wi_resource_destroy(stack);
        }
    }
    if (runtime->host_chunks)
        wi_host_chunks_destroy(runtime->host_chunks);
    weir_runtime *host = atomic_load(&runtime->host);
    if (host)
        atomic_fetch_sub(&host->hosted, 1);
    pthread_mutex_destroy(&runtime->kinds_lock);
}

static weir_status kinds_make_base(weir_runtime *runtime, int kind, wi_resource **out)
{
    return kind == WI_KIND_SHOWN ? wi_host_chunks_create(runtime->driver, runtime->device, &runtime->host_chunks, out)
                                 : wi_direct_create(runtime->driver, runtime->device, (weir_kind)kind, out);
}

weir_runtime *wi_host_memory_host(weir_runtime *runtime)
{
    return kinds_are_there(runtime) ? atomic_load(&runtime->host) : runtime;
}

static weir_status kinds_make_stack(weir_runtime *runtime, int kind, wi_resource **out)
{
    weir_runtime *host = wi_host_memory_host(runtime);
    wi_resource *stack = NULL;
    weir_status status = kinds_make_base(runtime, kind, &stack);
    if (status == WEIR_OK)
        status = wi_host_trim_create(host, stack, &stack);
    if (status == WEIR_OK)
        status = wi_budget_create(stack, &stack);
    if (status != WEIR_OK) {
        if (stack)
            wi_resource_destroy(stack);
        if (kind == WI_KIND_SHOWN && runtime->host_chunks) {
            wi_host_chunks_destroy(runtime->host_chunks);
            runtime->host_chunks = NULL;
        }
        return status;
    }
    wi_resource_attach(stack, &host->ledger);
    wi_members_add(&runtime->members[kind], stack, &runtime->pending);
    *out = stack;
    return WEIR_OK;
}

/* One that the runtime makes on first use. */
static weir_status kinds_get_stack(weir_runtime *runtime, int kind, wi_resource **out)
{
    weir_runtime *shared = NULL;
    weir_status status = WEIR_OK;
    *out = atomic_load(&runtime->kinds[kind]);
    if (*out)
        return WEIR_OK;
    if (!wi_host_memory_host(runtime)) /* before the lock, as this may make the host's runtime */
        status = weir_runtime_get("host", NULL, &shared);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&runtime->kinds_lock);
    *out = atomic_load(&runtime->kinds[kind]);
    if (!*out) {
        if (!wi_host_memory_host(runtime)) {
            atomic_store(&runtime->host, shared);
            atomic_fetch_add(&shared->hosted, 1);
        }
        status = kinds_make_stack(runtime, kind, out);
        if (status == WEIR_OK)
            atomic_store(&runtime->kinds[kind], *out);
    }
    pthread_mutex_unlock(&runtime->kinds_lock);
    return status;
}

weir_status wi_host_memory_stack(weir_runtime *runtime, weir_kind kind, wi_resource **out)
{
    if (!wi_kind_is_own(runtime, kind))
        return kinds_get_stack(runtime, (int)kind, out);
    *out = runtime->resource;
    return WEIR_OK;
}

bool wi_host_memory_can_show(const weir_runtime *runtime)
{
    return wi_host_chunks_possible(runtime->driver, runtime->device);
}

weir_status wi_host_memory_shown(weir_runtime *runtime, wi_resource **out)
{
    return kinds_get_stack(runtime, WI_KIND_SHOWN, out);
}

/* Accounts --------------------------------------------------------------------------------------------------------- */

weir_status wi_host_memory_account(weir_client *client, wi_resource *stack, wi_account **out)
{
    weir_runtime *runtime = client->runtime;
    weir_status status = WEIR_OK;
    *out = stack->ledger == &runtime->ledger ? &client->account : &client->host_account;
    if (*out == &client->account || atomic_load_explicit(&client->host_open, memory_order_acquire))
        return WEIR_OK;
    pthread_mutex_lock(&runtime->kinds_lock);
    if (!atomic_load(&client->host_open)) {
        status = wi_client_check(client, "weir_alloc"); /* a close ends the account under this lock */
        client->host_account = (wi_account){.name = client->account.name,
                                            .lasting = client->account.lasting,
                                            .client = client,
                                            .maximum = UINT64_MAX,
                                            .secret = client->account.secret};
        if (status == WEIR_OK)
            status = wi_ledger_open(&atomic_load(&runtime->host)->ledger, &client->host_account);
        atomic_store_explicit(&client->host_open, status == WEIR_OK, memory_order_release);
    }
    pthread_mutex_unlock(&runtime->kinds_lock);
    return status;
}

weir_status wi_host_memory_close_account(weir_client *client)
{
    weir_runtime *runtime = client->runtime;
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&runtime->kinds_lock);
    if (atomic_load(&client->host_open))
        status = wi_ledger_close(&atomic_load(&runtime->host)->ledger, &client->host_account);
    if (status == WEIR_OK)
        atomic_store(&client->host_open, false);
    pthread_mutex_unlock(&runtime->kinds_lock);
    return status;
}

/* Finding ---------------------------------------------------------------------------------------------------------- */

static bool kinds_freed_there(wi_base *base, const void *pointer)
{
    wi_base_lock(base);
    bool freed = base->table->was_freed && base->table->was_freed(base, pointer);
    wi_base_unlock(base);
    return freed;
}

wi_resource *wi_host_memory_owner(weir_runtime *runtime, const void *pointer, weir_kind *kind)
{
    for (int k = 0; k < WI_KINDS; k++) {
        wi_resource *stack = k == WEIR_KIND_DEVICE ? runtime->resource : atomic_load(&runtime->kinds[k]);
        *kind = k == WI_KIND_SHOWN ? WEIR_KIND_PINNED : (weir_kind)k;
        if (stack && stack->base->table->owns(stack->base, pointer))
            return stack;
    }
    *kind = WEIR_KIND_DEVICE;
    wi_resource *stack = atomic_load(&runtime->elastic);
    return stack && stack->base->table->owns(stack->base, pointer) ? stack : NULL;
}

wi_resource *wi_runtime_stack_of(weir_runtime *runtime, const void *pointer)
{
    weir_kind ignored;
    wi_base *device_base = runtime->resource->base;
    if (wi_likely(device_base->table->owns(device_base, pointer)))
        return runtime->resource;
    wi_resource *owner = wi_host_memory_owner(runtime, pointer, &ignored);
    for (int k = 0; !owner && k < WI_KINDS; k++) { /* finds freed blocks, so that a second free is reported */
        wi_resource *stack = atomic_load(&runtime->kinds[k]);
        if (stack && kinds_freed_there(stack->base, pointer))
            owner = stack;
    }
    return owner ? owner : runtime->resource;
}
