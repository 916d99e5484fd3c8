#include "sim/device/device.h"

bool wi_plane_init(wi_plane *plane, size_t rows, uint32_t units)
{
    *plane = (wi_plane){.rows = calloc(rows, sizeof *plane->rows), .count = rows, .units = units};
    return plane->rows != NULL;
}

void wi_plane_clear(wi_plane *plane)
{
    for (size_t i = 0; plane->rows && i < plane->count; i++)
        free(plane->rows[i].units);
    free(plane->rows);
    plane->rows = NULL;
}

static bool plane_split(const wi_plane *plane, wi_plane_row *row)
{
    if (row->split)
        return true;
    if (!row->units)
        row->units = malloc(plane->units * sizeof *row->units);
    if (!row->units)
        return false;
    for (uint32_t i = 0; i < plane->units; i++)
        row->units[i] = row->all;
    row->split = true;
    return true;
}

bool wi_plane_set(wi_plane *plane, size_t row, uint32_t first, uint32_t count, uint32_t value)
{
    wi_plane_row *at = &plane->rows[row];
    if (count == plane->units) {
        at->split = false;
        at->all = value;
        return true;
    }
    if (!at->split && at->all == value)
        return true;
    if (!plane_split(plane, at))
        return false;
    for (uint32_t i = 0; i < count; i++)
        at->units[first + i] = value;
    return true;
}

uint32_t wi_plane_run(const wi_plane *plane, size_t row, uint32_t first, uint32_t most, uint32_t *value)
{
    const wi_plane_row *at = &plane->rows[row];
    if (!at->split) {
        *value = at->all;
        return most;
    }
    enum { STRIDE = 64 };
    const uint32_t *units = at->units + first;
    uint32_t count = 1;
    *value = units[0];
    while (count + STRIDE <= most && memcmp(units + count - 1, units + count, STRIDE * sizeof *units) == 0)
        count += STRIDE; /* STRIDE more units have the number *value */
    while (count < most && units[count] == *value)
        count++;
    return count;
}
