/* Patience: before more memory is held than was ever in use, and a little, what other streams have freed is waited for; a while
 * at a time, and in all a small share of the time. Else what one stream freed in the last milliseconds is created once more
 * for another that asks just then, and stays held: two models on an H200 held 1.04 of their peak after ten seconds, and
 * after a minute 1.2 to 1.6.
 *
 * The host waits, and no stream does: one that its program holds up costs that share, and cannot come to wait for itself. */
#include "base/options.h"
#include "base/system.h"
#include "memory/mapped.h"

/* Nanoseconds: saved up at most, and spent on one request. */
enum { MOST = 100 * 1000 * 1000, ONCE = 10 * 1000 * 1000 };

void wi_patience_begin(wi_patience *patience)
{
    unsigned percent = wi_option_patience();
    *patience = (wi_patience){.percent = percent, .left = percent > 0 ? MOST : 0, .at = wi_now()};
}

bool wi_patience_has(const wi_mapped *mapped, const wi_placement *p)
{
    bool able = p->may_wait && p->native && !p->alone && !p->apart && !p->modest && !p->thorough;
    return able && mapped->shared.lanes > (wi_lanes_find(&mapped->lanes, p->stream) ? 1 : 0);
}

static void earn(wi_patience *patience, uint64_t now)
{
    patience->left = wi_min(patience->left + (now - patience->at) / 100 * patience->percent, MOST);
    patience->at = now;
}

bool wi_patience_wait(wi_mapped *mapped, const wi_placement *p, uint64_t *deadline)
{
    wi_resource *resource = &mapped->resource;
    wi_patience *patience = &mapped->patience;
    uint64_t start = wi_now();
    wi_event event;
    earn(patience, start);
    if (*deadline == 0)
        *deadline = start + wi_min(wi_min(patience->left, ONCE), wi_option_wait());
    if (start >= *deadline || !wi_lanes_oldest(&mapped->lanes, p->stream, &event))
        return false;
    wi_resource_unlock(resource);
    bool waits = !resource->driver->stream_capturing(resource->device, p->native); /* undeclared: its work is not now */
    weir_status status = waits ? resource->driver->wait(resource->device, event, *deadline) : WEIR_OK;
    wi_resource_lock(resource);
    patience->left -= wi_min(patience->left, wi_now() - start);
    return waits && status == WEIR_OK && wi_lanes_renew(&mapped->lanes) > 0;
}
