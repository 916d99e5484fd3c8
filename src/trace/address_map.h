/* address_map.h: what lies where over time, as a picture of so many rows and columns: addresses upwards, without those
 * between the ranges that blocks never were at, and events across. */
#ifndef WI_TRACE_ADDRESS_MAP_H
#define WI_TRACE_ADDRESS_MAP_H

#include "trace/lifetimes.h"

enum { ADDRESS_MAP_ROWS = 200, ADDRESS_MAP_COLUMNS = 400, ADDRESS_MAP_FULL = 9 };

typedef struct address_map {
    size_t rows, columns; /* 0: there are no blocks */
    uint64_t row_bytes;   /* the last row may have less */
    uint32_t *events;     /* by column: as it is behind this event */
    uint16_t
        *cells; /* by column, then by row: ninths that are live + 10 × pending + 100 × away, which have no memory */
} address_map;

weir_status address_map_make(const lifetimes *all, const address_ranges *ranges, address_map *out);
void address_map_clear(address_map *map);

#endif
