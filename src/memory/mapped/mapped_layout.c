/* Where memory lies in "mapped": handle by handle. */
#include "memory/space/layout.h"
#include "memory/mapped/mapped.h"

/* What is busy may have no memory yet, or no longer. */
static void add_extent(wi_layout *layout, const wi_extent *e, const wi_chunk **current)
{
    const wi_region *region = e->region;
    uint64_t end = e->offset + e->bytes;
    for (uint64_t at = e->offset, next; at < end; at = next) {
        const wi_chunk *b = region->chunks[at / region->granule];
        next = wi_min(end, (b ? b->first + b->count : at / region->granule + 1) * region->granule);
        if (b && b != *current)
            wi_layout_segment(layout, region->base + b->first * region->granule, b->count * region->granule);
        *current = b;
        if (b)
            wi_layout_extent(layout, e, at, next - at);
    }
}

void wi_mapped_walk(wi_resource *resource, wi_layout *layout)
{
    const wi_mapped *mapped = (const wi_mapped *)resource;
    for (int region_number = 0; region_number < WI_REGIONS; region_number++) {
        const wi_chunk *current = NULL;
        for (const wi_extent *e = mapped->regions[region_number].first; e; e = e->next)
            if (e->kind != WI_HOLE)
                add_extent(layout, e, &current);
    }
    for (const wi_chunk *b = mapped->spare; b; b = b->next) {
        wi_layout_segment(layout, NULL, b->count * mapped->granule);
        wi_layout_span(layout, WEIR_SPAN_SPARE, NULL, b->count * mapped->granule);
    }
}
