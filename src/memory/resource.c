/* Resources: the calls that walk a stack, outermost first. */
#include "memory/resource.h"

#include <stdio.h>

/* What the stack can do from here on, as far as tables say. */
static void resource_set_table(wi_resource *resource, const wi_resource_table *table)
{
    const wi_resource *inner = resource->inner;
    resource->table = table;
    resource->features = ((inner ? inner->features : 0) & ~table->hides) | table->features;
    resource->hears_frees = table->freeing || (inner && inner->hears_frees);
    resource->keeps_order = inner ? inner->keeps_order && !table->wants_passed : resource->base->table->follow != NULL;
}

void wi_resource_init(wi_resource *resource, const wi_resource_table *table, wi_resource *inner)
{
    resource->driver = inner->driver;
    resource->device = inner->device;
    resource->ledger = NULL;
    resource->inner = inner;
    resource->base = inner->base;
    resource_set_table(resource, table);
}

void wi_base_set_table(wi_base *base, const wi_base_table *table)
{
    const wi_resource_table *all = &table->all;
    wi_assert(all->measure && all->allocate && all->discard && all->publish && all->retire && all->release);
    wi_assert((all->shrink || !(all->features & WEIR_FEATURE_SHRINKS)) && all->destroy);
    wi_assert(all->grow || !(all->features & WEIR_FEATURE_GROWS));
    wi_assert(!all->freeing && !all->resizing && !all->resized && !all->wants_passed && all->hides == 0);
    wi_assert(table->charge && table->find && table->each && table->walk && table->owns && table->trim && table->look);
    base->table = table;
    resource_set_table(&base->resource, all);
}

void wi_base_init(wi_base *base, const wi_base_table *table, const wi_driver *driver, wi_device *device)
{
    base->resource.driver = driver;
    base->resource.device = device;
    base->resource.ledger = NULL;
    base->resource.inner = NULL;
    base->resource.base = base;
    base->granule = WI_UNIT;
    wi_base_set_table(base, table);
    pthread_mutex_init(&base->lock, NULL);
}

void wi_base_end(wi_base *base)
{
    pthread_mutex_destroy(&base->lock);
}

void wi_resource_attach(wi_resource *top, wi_ledger *ledger)
{
    top->base->top = top;
    for (wi_resource *r = top; r; r = r->inner)
        r->ledger = ledger;
}

void wi_resource_destroy(wi_resource *top)
{
    for (wi_resource *r = top, *inner; r; r = inner) {
        inner = r->inner;
        r->table->destroy(r);
    }
}

void wi_resource_describe(const wi_resource *top, char *text, size_t capacity)
{
    size_t length = 0, depth = 0;
    char arguments[256];
    for (const wi_resource *r = top; r && length < capacity; r = r->inner, depth++) {
        arguments[0] = '\0';
        if (r->table->describe)
            r->table->describe(r, arguments, sizeof arguments);
        size_t end = strlen(arguments);
        if (!r->inner && end >= 2) /* nothing follows the last argument */
            arguments[end - 2] = '\0';
        bool open = r->inner || arguments[0];
        length += (size_t)snprintf(text + length, capacity - length, "%s%s%s%s", r->table->name, open ? "(" : "",
                                   arguments, open && !r->inner ? ")" : "");
    }
    while (--depth > 0 && length + 1 < capacity) {
        text[length++] = ')';
        text[length] = '\0';
    }
}

/* The calls -------------------------------------------------------------------------------------------------------- */

/* Calls the outermost resource that has the function. */
#define WALK(r, function)                                                                                              \
    while (!(r)->table->function)                                                                                      \
    (r) = (r)->inner

void wi_measure(wi_resource *top, wi_placement *placement)
{
    for (wi_resource *r = top; r; r = r->inner)
        if (r->table->measure)
            r->table->measure(r, placement);
}

weir_status wi_allocate(wi_resource *r, wi_placement *placement, wi_block **out, wi_shortage *shortage)
{
    WALK(r, allocate);
    return !r->inner && placement->held ? wi_reuse(r->base, placement, out)
                                        : r->table->allocate(r, placement, out, shortage);
}

void wi_discard(wi_resource *r, wi_block *block, const wi_placement *placement)
{
    WALK(r, discard);
    r->table->discard(r, block, placement);
}

void wi_publish(wi_resource *r, wi_block *block)
{
    WALK(r, publish);
    r->table->publish(r, block);
}

void wi_freeing(wi_resource *top, const wi_block *block, weir_stream stream)
{
    for (wi_resource *r = top; r; r = r->inner)
        if (r->table->freeing)
            r->table->freeing(r, block, stream);
}

static void resource_tell_resized(wi_resource *top, const wi_resource *end, const wi_block *block, uint64_t from,
                                  uint64_t to, weir_status status)
{
    for (wi_resource *r = top; r != end; r = r->inner)
        if (r->table->resized)
            r->table->resized(r, block, from, to, status);
}

weir_status wi_resizing(wi_resource *top, const wi_block *block, uint64_t bytes)
{
    weir_status status = WEIR_OK;
    wi_resource *r = top;
    for (; r && status == WEIR_OK; r = r->inner) {
        status = r->table->resizing ? r->table->resizing(r, block, bytes) : WEIR_OK;
        if (status != WEIR_OK)
            resource_tell_resized(top, r, block, block->bytes, bytes, status);
    }
    return status;
}

void wi_resized(wi_resource *top, const wi_block *block, uint64_t from, uint64_t to, weir_status status)
{
    resource_tell_resized(top, NULL, block, from, to, status);
}

bool wi_retire(wi_resource *r, wi_block *block, weir_stream stream, void *native, wi_past past)
{
    WALK(r, retire);
    return r->table->retire(r, block, stream, native, past);
}

weir_status wi_release(wi_resource *r, wi_block *block)
{
    WALK(r, release);
    return r->table->release(r, block);
}

weir_status wi_shrink(wi_resource *r, wi_block *block, uint64_t bytes, void *native, wi_block **tail)
{
    WALK(r, shrink);
    return r->table->shrink(r, block, bytes, native, tail);
}

weir_status wi_grow(wi_resource *r, wi_block *block, uint64_t bytes, bool may_wait, wi_shortage *shortage)
{
    WALK(r, grow);
    return r->table->grow(r, block, bytes, may_wait, shortage);
}

uint64_t wi_release_kept(wi_resource *top)
{
    uint64_t bytes = 0;
    for (wi_resource *r = top; r; r = r->inner)
        if (r->table->release_kept)
            bytes += r->table->release_kept(r);
    return bytes;
}
