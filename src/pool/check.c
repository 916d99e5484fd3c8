/* The invariants of the pool's tables. */
#include "pool/table.h"

static bool row_holds(const wp_admission *it, uint32_t i)
{
    const wp_row *row = &it->rows[i];
    if (!row->there)
        return !row->tree && row->bytes == 0 && row->residue == 0 && row->running == 0 && row->victim_of == WP_NONE;
    bool moves = row->state == WP_LOADING || row->state == WP_RESUMING || row->state == WP_SUSPENDING ||
                 row->state == WP_UNLOADING;
    bool here = row->state != WP_UNLOADED && row->state != WP_FAILED;
    bool by_model = row->victim_of < WP_CEILING_OF;
    return wp_job_tree_check(it, row->tree, i) != UINT32_MAX && (row->tree == 0) == (row->first == 0) &&
           (here || row->bytes == 0) && (row->running == 0 || row->state == WP_LOADED) &&
           (!wp_fixed(row) || row->variant < row->spec.variant_count) && row->device < it->device_count &&
           (!row->earmark.state || wp_may_be_on(row, row->earmark.device)) &&
           (row->residue == 0 || !row->earmark.state || row->earmark.device == row->device) &&
           (row->running > 0 || row->promised == 0) && (!row->removed || !row->tree) &&
           /* who leaves for others is here, and runs nothing once it moves; who comes is no victim */
           (row->victim_of == WP_NONE || (here && row->state != WP_LOADING && row->state != WP_RESUMING)) &&
           (!by_model || (row->victim_of < it->count && it->rows[row->victim_of].earmark.state != WP_EARMARK_NONE)) &&
           (!row->earmark.state || (!moves && row->victim_of == WP_NONE && row->earmark.has <= row->earmark.need)) &&
           (row->host == 0 || row->state == WP_SUSPENDING || row->state == WP_SUSPENDED || row->state == WP_RESUMING ||
            row->state == WP_UNLOADING);
}

static bool device_holds(const wp_admission *it, uint32_t d)
{
    const wp_device *device = &it->devices[d];
    uint64_t taken = 0, earmarked = 0;
    uint32_t earmarks = 0;
    for (uint32_t i = 0; i < it->count; i++) {
        const wp_row *row = &it->rows[i];
        if (row->there && row->earmark.state && row->earmark.device == d) {
            earmarked += row->earmark.has;
            earmarks++;
        }
        if (!row->there || row->device != d)
            continue;
        taken += row->bytes + row->residue + row->promised;
    }
    return taken == device->taken && earmarked == device->earmarked && earmarks == device->earmarks;
}

bool wp_invariants(const wp_admission *it)
{
    uint32_t waiting = 0, jobs = 0;
    uint64_t bytes = 0, host = 0;
    for (uint32_t i = 0; i < it->count; i++) {
        if (!row_holds(it, i))
            return false;
        waiting += wp_waiting(it, &it->rows[i]);
        jobs += wp_waiting(it, &it->rows[i]) + it->rows[i].running;
        host += it->rows[i].host;
    }
    for (uint32_t i = 1; i <= it->waiting; i++)
        bytes += it->jobs[it->heap[i]].bytes;
    for (uint32_t d = 0; d < it->device_count; d++)
        if (!device_holds(it, d))
            return false;
    return waiting == it->waiting && jobs == it->job_count && bytes == it->waiting_bytes && host == it->host_taken &&
           it->waiting <= wi_max(it->limits.queue, 1) && it->job_actions <= it->action_count;
}
