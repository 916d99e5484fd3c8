/* The ways in which a model may be had: variants, on devices, by the steps of its list; and whether any way can ever
 * fit. */
#include "pool/table.h"

/* Variants --------------------------------------------------------------------------------------------------------- */

uint64_t wp_resident(const wp_row *row, uint32_t variant)
{
    return wi_max(row->spec.variants[variant].resident, row->learned[variant]);
}

bool wp_fixed(const wp_row *row)
{
    return row->state != WP_UNLOADED && row->state != WP_FAILED && row->state != WP_UNLOADING;
}

uint64_t wp_need(const wp_row *row, uint32_t variant, uint64_t bytes)
{
    if (row->state == WP_LOADED)
        return bytes;
    if (row->state == WP_SUSPENDED)
        return wp_less(wp_sum(row->resident, bytes), row->bytes);
    uint64_t resident = wp_resident(row, variant);
    return wi_max(wi_max(row->spec.variants[variant].peak, resident), wp_sum(resident, bytes));
}

static uint32_t ways_device_of(const wp_row *row, uint32_t variant)
{
    uint32_t on = row->spec.variants[variant].on;
    return on ? on - 1 : row->spec.device;
}

uint32_t wp_way_device(const wp_row *row, uint32_t variant)
{
    return wp_fixed(row) ? row->device : ways_device_of(row, variant);
}

/* What an unload has left behind, and what is on its way out, ties a model to its device. */
static bool tied(const wp_row *row, uint32_t *device)
{
    *device = row->earmark.state ? row->earmark.device : row->device;
    return row->residue > 0 || row->earmark.state || row->state == WP_UNLOADING || wp_fixed(row);
}

bool wp_way_open(const wp_row *row, uint32_t variant)
{
    if (wp_fixed(row))
        return variant == row->variant;
    uint32_t device;
    return !tied(row, &device) || ways_device_of(row, variant) == device;
}

bool wp_may_be_on(const wp_row *row, uint32_t device)
{
    uint32_t only;
    if (tied(row, &only))
        return only == device;
    for (uint32_t v = 0; v < row->spec.variant_count; v++)
        if (ways_device_of(row, v) == device)
            return true;
    return false;
}

void wp_touch(wp_admission *it, const wp_row *row)
{
    it->devices[row->device].dirty = true;
    for (uint32_t d = 0; d < it->device_count; d++)
        if (wp_may_be_on(row, d))
            it->devices[d].dirty = true;
}

/* Steps ------------------------------------------------------------------------------------------------------------ */

uint32_t wp_steps_of(const wp_row *row, wp_step steps[WP_STEPS], bool *waits)
{
    static const wp_step usual[] = {WP_STEP_DEVICE, WP_STEP_EVICT, WP_STEP_CONTEXT, WP_STEP_LAYERS, WP_STEP_WAIT},
                         smaller[] = {WP_STEP_DEVICE, WP_STEP_CONTEXT, WP_STEP_LAYERS, WP_STEP_EVICT, WP_STEP_WAIT};
    enum { USUAL = sizeof usual / sizeof *usual };
    const wp_step *list = row->spec.step_count ? row->spec.steps : row->spec.shrink_first ? smaller : usual;
    uint32_t given = row->spec.step_count ? row->spec.step_count : (uint32_t)USUAL, count = 0;
    *waits = false;
    for (uint32_t i = 0; i < given && i < WP_STEPS && !*waits; i++) {
        *waits = list[i] == WP_STEP_WAIT;
        if (!*waits)
            steps[count++] = list[i];
    }
    return count;
}

uint32_t wp_all_steps(const wp_row *row)
{
    wp_step steps[WP_STEPS];
    bool waits;
    uint32_t all = 0, count = wp_steps_of(row, steps, &waits);
    for (uint32_t i = 0; i < count; i++)
        all |= UINT32_C(1) << steps[i];
    return all;
}

/* The whole of it is what the first variant has, and those that are the same. */
static bool ways_whole(const wp_row *row, uint32_t variant)
{
    while (variant > 0 && variant < WP_VARIANTS && row->spec.variants[variant].same)
        variant--;
    return variant == 0;
}

bool wp_way_listed(const wp_row *row, uint32_t variant, uint32_t steps)
{
    if (wp_fixed(row))
        return variant == row->variant;
    bool away = ways_device_of(row, variant) != row->spec.device;
    wp_step gives = row->spec.variants[variant].gives;
    return (!away || steps >> WP_STEP_DEVICE & 1) && (ways_whole(row, variant) || steps >> gives & 1);
}

bool wp_way_allowed(const wp_row *row, uint32_t variant, uint32_t steps)
{
    return wp_way_listed(row, variant, steps) && wp_way_open(row, variant);
}

/* Never fits ------------------------------------------------------------------------------------------------------- */

/* Returns the bytes of other models on the device that no request can free. */
static uint64_t immovable(const wp_admission *it, const wp_row *asker, uint32_t device)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < it->count; i++) {
        const wp_row *row = &it->rows[i];
        if (row->there && row != asker && row->device == device)
            bytes += wp_stays(it, row);
    }
    return bytes;
}

static uint64_t limit_of(const wp_admission *it, const wp_row *asker, uint32_t device)
{
    return wp_less(it->devices[device].ceiling, immovable(it, asker, device));
}

/* Returns the bytes of the model when it is loaded and idle. */
static uint64_t fixed_bytes(const wp_row *row)
{
    if (row->state == WP_LOADING)
        return wp_resident(row, row->variant);
    return row->state == WP_LOADED ? row->bytes : row->resident;
}

/* Of ways that its list does not allow nothing is told. */
static void tell_fits(const wp_admission *it, const wp_row *row, uint32_t steps, wp_answer *answer)
{
    answer->variant = WP_VARIANTS;
    if (wp_fixed(row)) {
        answer->variant = row->variant;
        answer->fits = wp_less(answer->limit, fixed_bytes(row));
    }
    for (uint32_t v = row->spec.variant_count; v-- > 0 && !wp_fixed(row);) {
        uint64_t limit = limit_of(it, row, ways_device_of(row, v));
        if (!wp_way_listed(row, v, steps) || wp_need(row, v, 0) > limit)
            continue;
        answer->variant = v;
        answer->fits = wi_max(answer->fits, limit - wp_resident(row, v));
    }
    if (answer->variant < WP_VARIANTS) {
        answer->context = row->spec.variants[answer->variant].context;
        answer->layers = row->spec.variants[answer->variant].layers;
    }
}

/* The way that lacks least says what is needed. What ties the model to a device now may pass. */
bool wp_never(const wp_admission *it, const wp_row *row, uint64_t bytes, wp_answer *answer)
{
    uint32_t steps = wp_all_steps(row);
    uint64_t least = UINT64_MAX;
    bool any = false;
    /* A request without bytes for a model that is here takes nothing, whatever the ceiling. */
    if (row->state == WP_LOADED && bytes == 0)
        return false;
    for (uint32_t v = 0; v < row->spec.variant_count; v++) {
        if (!wp_way_listed(row, v, steps))
            continue;
        uint64_t need = wp_fixed(row) ? wp_sum(fixed_bytes(row), bytes) : wp_need(row, v, bytes);
        uint64_t limit = limit_of(it, row, wp_way_device(row, v));
        if (need <= limit)
            return false;
        if (any && need - limit >= least)
            continue;
        any = true;
        least = need - limit;
        answer->need = need;
        answer->limit = limit;
    }
    answer->cause = WP_NEVER_FITS;
    tell_fits(it, row, steps, answer);
    return true;
}
