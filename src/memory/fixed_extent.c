/* The extent of the resource "blocks": taken from the driver whole, and given back whole. */
#include "memory/fixed_extent.h"
#include "base/system.h"

/* The driver is called between these two, with the lock released. */
static void go_to_driver(wi_fixed *f)
{
    f->working = true;
    wi_resource_unlock(&f->resource);
}

static void come_back(wi_fixed *f)
{
    wi_ledger_driver_call(f->resource.ledger);
    wi_resource_lock(&f->resource);
    f->working = false;
    pthread_cond_broadcast(&f->settled);
}

bool wi_fixed_wait_settled(wi_fixed *f)
{
    while (f->working && !wi_alone)
        pthread_cond_wait(&f->settled, &f->resource.lock);
    return !f->working;
}

/* Asks for *bytes, which the ledger holds, or for the half as long as the device has not so much; *bytes tells. */
static weir_status map_extent(wi_fixed *f, uint64_t *bytes, wi_handle *handles)
{
    wi_resource *r = &f->resource;
    for (;;) {
        size_t count = *bytes / r->granule;
        weir_status status = r->driver->create(r->device, r->granule, count, handles);
        if (status == WEIR_OK) {
            status = r->driver->map(r->device, f->base, r->granule, count, handles);
            if (status != WEIR_OK)
                r->driver->destroy(r->device, r->granule, count, handles);
            return status;
        }
        uint64_t half = *bytes / 2 & ~(wi_fixed_step_of(f) - 1);
        if (status != WEIR_ERR_OUT_OF_MEMORY || half == 0)
            return status;
        wi_ledger_release(r->ledger, *bytes - half);
        *bytes = half;
    }
}

/* As much as the budget leaves, in whole steps. */
static uint64_t hold(wi_fixed *f)
{
    uint64_t got = wi_ledger_hold(f->resource.ledger, f->range_bytes), bytes = got & ~(wi_fixed_step_of(f) - 1);
    if (got > bytes)
        wi_ledger_release(f->resource.ledger, got - bytes);
    return bytes;
}

weir_status wi_fixed_no_records(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the records of a resource of blocks");
}

void wi_fixed_forget_extent(wi_fixed *f)
{
    wi_bitmap_destroy(&f->free);
    free(f->places);
    free(f->handles);
    f->places = NULL;
    f->handles = NULL;
    f->handle_count = 0;
    f->count = 0;
}

/* Records for so many bytes; nobody sees them before the extent has a count. */
static weir_status make_records(wi_fixed *f, uint64_t bytes)
{
    uint32_t count = (uint32_t)(bytes / f->block_bytes);
    f->places = wi_table_make(count, sizeof *f->places);
    f->handles = malloc(bytes / f->resource.granule * sizeof *f->handles);
    if (f->places && f->handles && wi_bitmap_init(&f->free, count))
        return WEIR_OK;
    wi_fixed_forget_extent(f);
    return wi_fixed_no_records();
}

weir_status wi_fixed_take_extent(wi_fixed *f)
{
    uint64_t bytes = hold(f), asked = bytes;
    if (bytes == 0)
        return WEIR_ERR_NO_ROOM;
    weir_status status = make_records(f, bytes);
    if (status == WEIR_OK) {
        go_to_driver(f);
        status = map_extent(f, &bytes, f->handles);
        come_back(f);
    }
    if (status != WEIR_OK) {
        wi_ledger_release(f->resource.ledger, bytes);
        wi_fixed_forget_extent(f);
        return status;
    }
    wi_ledger_mapped(f->resource.ledger, bytes);
    wi_ledger_segments(f->resource.ledger, 1, 0);
    f->handle_count = bytes / f->resource.granule;
    f->count = (uint32_t)(bytes / f->block_bytes);
    if (bytes < asked) /* what could not be had is never free */
        (void)wi_bitmap_take_at(&f->free, f->count, (uint32_t)((asked - bytes) / f->block_bytes));
    for (uint32_t i = 0; i < f->count; i++)
        f->places[i].owner = WI_MIXED | f->secret;
    return WEIR_OK;
}

uint64_t wi_fixed_give_extent(wi_fixed *f)
{
    wi_resource *r = &f->resource;
    uint64_t bytes = f->handle_count * r->granule;
    go_to_driver(f);
    weir_status status = r->driver->unmap(r->device, f->base, r->granule, f->handle_count, f->handles);
    if (status == WEIR_OK)
        r->driver->destroy(r->device, r->granule, f->handle_count, f->handles);
    come_back(f);
    if (status != WEIR_OK)
        return 0;
    wi_ledger_unmapped(r->ledger, bytes);
    wi_ledger_release(r->ledger, bytes);
    wi_ledger_segments(r->ledger, 0, 1);
    wi_fixed_forget_extent(f);
    return bytes;
}
