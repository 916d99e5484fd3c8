#include "trace/race_clock.h"

#include <stdlib.h>
#include <string.h>

static weir_status widen(clock_purse *purse, clock_vector *c, unsigned width)
{
    if (width <= c->width)
        return WEIR_OK;
    uint64_t more = (uint64_t)(width - c->width) * sizeof *c->at;
    if (more > purse->most - purse->bytes)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "the trace has more streams and events than can be followed");
    uint64_t *at = realloc(c->at, width * sizeof *at);
    if (!at)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory to follow the trace");
    memset(at + c->width, 0, (size_t)more);
    purse->bytes += more;
    c->at = at;
    c->width = width;
    return WEIR_OK;
}

weir_status clock_raise(clock_purse *purse, clock_vector *c, unsigned slot, uint64_t value)
{
    weir_status status = widen(purse, c, slot + 1);
    if (status == WEIR_OK && c->at[slot] < value)
        c->at[slot] = value;
    return status;
}

weir_status clock_join(clock_purse *purse, clock_vector *c, const clock_vector *other)
{
    weir_status status = widen(purse, c, other->width);
    for (unsigned s = 0; status == WEIR_OK && s < other->width; s++)
        if (c->at[s] < other->at[s])
            c->at[s] = other->at[s];
    return status;
}

weir_status clock_copy(clock_purse *purse, clock_vector *c, const clock_vector *other)
{
    if (c->width > 0)
        memset(c->at, 0, c->width * sizeof *c->at);
    return clock_join(purse, c, other);
}

void clock_clear(clock_purse *purse, clock_vector *c)
{
    purse->bytes -= (uint64_t)c->width * sizeof *c->at;
    free(c->at);
    *c = (clock_vector){0};
}
