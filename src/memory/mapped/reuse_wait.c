/* Patience: before more memory is held than was ever in use, and a little, what other streams have freed is waited for; a while
 * at a time, and in all a small share of the time. Else what one stream freed in the last milliseconds is created once more
 * for another that asks just then, and stays held: two models on an H200 held 1.04 of their peak after ten seconds, and
 * after a minute 1.2 to 1.6.
 *
 * The host waits, and no stream does: one that its program holds up costs that share, and cannot come to wait for itself. */
#include "base/options.h"
#include "base/system.h"
#include "memory/mapped/mapped.h"

/* Nanoseconds: saved up at most, and spent on one request. */
enum { MOST = 100 * 1000 * 1000, ONCE = 10 * 1000 * 1000 };

void wi_reuse_wait_begin(wi_reuse_wait *reuse_wait)
{
    unsigned percent = wi_option_reuse_wait();
    *reuse_wait = (wi_reuse_wait){.percent = percent, .left = percent > 0 ? MOST : 0, .at = wi_now()};
}

bool wi_reuse_wait_has(const wi_mapped *mapped, const wi_placement *p)
{
    bool able = p->may_wait && p->native && !p->thread_bound && !p->apart && !p->no_grow && !p->last_resort;
    return able && mapped->shared.stream_lists > (wi_stream_lists_find(&mapped->stream_lists, p->stream) ? 1 : 0);
}

static void reuse_wait_earn(wi_reuse_wait *reuse_wait, uint64_t now)
{
    reuse_wait->left = wi_min(reuse_wait->left + (now - reuse_wait->at) / 100 * reuse_wait->percent, MOST);
    reuse_wait->at = now;
}

bool wi_reuse_wait_wait(wi_mapped *mapped, const wi_placement *p, uint64_t *deadline)
{
    wi_resource *resource = &mapped->resource;
    wi_reuse_wait *reuse_wait = &mapped->reuse_wait;
    uint64_t start = wi_now();
    wi_event event;
    reuse_wait_earn(reuse_wait, start);
    if (*deadline == 0)
        *deadline = start + wi_min(wi_min(reuse_wait->left, ONCE), wi_option_wait());
    if (start >= *deadline || !wi_stream_lists_oldest(&mapped->stream_lists, p->stream, &event))
        return false;
    wi_resource_unlock(resource);
    bool waits = !resource->driver->stream_capturing(resource->device, p->native); /* undeclared: its work is not now */
    weir_status status = waits ? resource->driver->wait(resource->device, event, *deadline) : WEIR_OK;
    wi_resource_lock(resource);
    reuse_wait->left -= wi_min(reuse_wait->left, wi_now() - start);
    return waits && status == WEIR_OK && wi_stream_lists_renew(&mapped->stream_lists) > 0;
}
