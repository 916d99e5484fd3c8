/* Where memory lies in "mapped": handle by handle. */
#include "memory/layout.h"
#include "memory/mapped.h"

/* What is busy may have no memory yet, or no longer. */
static void add_extent(wi_layout *layout, const wi_extent *e, const wi_backing **current)
{
    const wi_space *space = e->space;
    uint64_t end = e->offset + e->bytes;
    for (uint64_t at = e->offset, next; at < end; at = next) {
        const wi_backing *b = space->backings[at / space->granule];
        next = wi_min(end, (b ? b->first + b->count : at / space->granule + 1) * space->granule);
        if (b && b != *current)
            wi_layout_segment(layout, space->base + b->first * space->granule, b->count * space->granule);
        *current = b;
        if (b)
            wi_layout_extent(layout, e, at, next - at);
    }
}

void wi_mapped_walk(wi_resource *resource, wi_layout *layout)
{
    const wi_mapped *mapped = (const wi_mapped *)resource;
    for (int side = 0; side < WI_SIDES; side++) {
        const wi_backing *current = NULL;
        for (const wi_extent *e = mapped->sides[side].first; e; e = e->next)
            if (e->kind != WI_HOLE)
                add_extent(layout, e, &current);
    }
    for (const wi_backing *b = mapped->spare; b; b = b->next) {
        wi_layout_segment(layout, NULL, b->count * mapped->granule);
        wi_layout_span(layout, WEIR_SPAN_SPARE, NULL, b->count * mapped->granule);
    }
}
