/* Patience: before more memory is created than was ever in use, and a little, what other streams have freed is waited for, a
 * while at a time and in all a small share of the time. What two models freed within the last milliseconds would else be
 * doubled whenever one asks while the other has not come to its frees yet, and stay held (an H200 with two models of
 * images and texts: 1.04 of the peak after ten seconds, 1.2 to 1.6 after a minute).
 *
 * The host waits, and no stream: a stream that its program holds up costs the share, and cannot come to wait for itself. */
#include "base/system.h"
#include "memory/mapped.h"

enum { SHARE = 50 };                                   /* of the time: one part in so many */
enum { MOST = 200*1000*1000, ONCE = 20*1000*1000 }; /* nanoseconds: saved up, and for one request */

void wi_patience_begin(wi_patience *patience)
{
    *patience = (wi_patience){.left = MOST, .at = wi_now()};
}

bool wi_patience_has(const wi_mapped *mapped, const wi_placement *p)
{
    bool able = p->may_wait && p->native && !p->alone && !p->apart && !p->modest && !p->thorough && !p->graph;
    unsigned own = able && wi_lanes_find(&mapped->lanes, p->stream);
    return able && mapped->shared.lanes > own;
}

static uint64_t earn(wi_patience *patience, uint64_t now)
{
    patience->left = wi_min(patience->left + (now - patience->at) / SHARE, MOST);
    patience->at = now;
    return patience->left;
}

bool wi_patience_wait(wi_mapped *mapped, const wi_placement *p, uint64_t *deadline)
{
    wi_resource *resource = &mapped->resource;
    uint64_t start = wi_now(), left = earn(&mapped->patience, start);
    wi_event event;
    if (*deadline == 0)
        *deadline = start + wi_min(left, ONCE);
    if (start >= *deadline || left == 0 || !wi_lanes_oldest(&mapped->lanes, p->stream, &event))
        return false;
    wi_resource_unlock(resource);
    weir_status status = resource->driver->wait(resource->device, event, *deadline);
    wi_resource_lock(resource);
    uint64_t waited = wi_now() - start;
    mapped->patience.left -= wi_min(mapped->patience.left, waited);
    return status == WEIR_OK && wi_lanes_renew(&mapped->lanes) > 0;
}
