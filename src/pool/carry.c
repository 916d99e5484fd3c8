/* What is done to a model: loaded, suspended, resumed, unloaded. Between two of these its bytes are measured, and the
 * guarantee of its client follows. */
#include "pool/pool.h"
#include "base/system.h"
#include "runtime/runtime.h"

#include <weir/client.h>
#include <weir/memory.h>
#include <weir/model.h>
#include <weir/pool.h>

#include <stdio.h>

uint64_t wi_pool_measure(weir_model *model, weir_client_stats *out)
{
    weir_client *client = weir_model_client(model);
    *out = (weir_client_stats)WEIR_INIT(weir_client_stats);
    return client && weir_client_info(client, out) == WEIR_OK ? out->live + out->pending : 0;
}

/* Any thread of the engine's. */
static bool nobody_wants(void *user)
{
    return atomic_load(&((wi_pool_entry *)user)->stop);
}

/* Loading ---------------------------------------------------------------------------------------------------------- */

static void carry_on_progress(double fraction, void *user)
{
    wi_pool_entry *entry = user;
    atomic_store(&entry->progress, (unsigned)((fraction > 1 ? 1 : fraction > 0 ? fraction : 0) * WI_POOL_PROGRESS));
}

static weir_status load_path(wi_pool_entry *entry, const wi_pool_settings *settings, weir_model **out)
{
    const wi_pool_source *source = entry->source;
    const wi_pool_device *device = &entry->pool->devices[entry->device];
    weir_model_options options = {.struct_size = sizeof options,
                                  .name = entry->name,
                                  .engine = source->engine,
                                  .device = device->name,
                                  .runtime = device->runtime,
                                  .guaranteed = wi_max(entry->order_bytes, source->guaranteed),
                                  .maximum = source->maximum,
                                  .settings = settings->all,
                                  .setting_count = settings->count,
                                  .progress = carry_on_progress,
                                  .progress_user = entry,
                                  .stops = nobody_wants,
                                  .prepare = source->prepare};
    return weir_model_create(source->path, &options, out);
}

/* What can be had of the device is the pool's to say, and it has said so. */
static weir_status load_manifest(wi_pool_entry *entry, const wi_pool_settings *settings, weir_model **out)
{
    const wi_pool_source *source = entry->source;
    const char *key = source->keys[entry->device];
    weir_obtainable obtainable = {key, WEIR_BYTES_UNKNOWN - 1};
    weir_choice_options choice = {.struct_size = sizeof choice,
                                  .engine = source->engine,
                                  .device = key,
                                  .hardware = source->hardware,
                                  .obtainable = &obtainable,
                                  .obtainable_count = 1,
                                  .settings = settings->all,
                                  .setting_count = settings->count};
    weir_opening_options options = {.struct_size = sizeof options,
                                    .choice = &choice,
                                    .no_fallback = true,
                                    .guaranteed = wi_max(entry->order_bytes, source->guaranteed),
                                    .maximum = source->maximum,
                                    .progress = carry_on_progress,
                                    .user = entry,
                                    .stops = nobody_wants,
                                    .prepare = source->prepare};
    weir_manifest manifest = source->manifest;
    manifest.name = entry->name;
    return weir_model_create_chosen(&manifest, &options, out);
}

static weir_status carry_make(wi_pool_entry *entry, weir_model **out)
{
    const wi_pool_settings *settings = &entry->source->settings[entry->settings_of[entry->order_variant]];
    wi_client_own_next(entry->pool);
    weir_status status = entry->source->chosen ? load_manifest(entry, settings, out) : load_path(entry, settings, out);
    wi_client_own_next(NULL);
    return status;
}

/* Its engine has kept memory. It is no model's from here on, and lessens what the pool may take by what is there. */
static void disown(weir_client *client)
{
    if (weir_client_set_limits(client, 0, 0) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "pool: what a model left behind keeps its guarantee: %s", weir_detail());
    wi_client_disown(client);
}

static void carry_give_up(weir_model *model)
{
    wi_saved_detail why;
    wi_detail_save(&why);
    weir_client *client = weir_model_client(model);
    if (weir_model_destroy(model) != WEIR_OK)
        disown(client);
    wi_detail_restore(&why);
}

/* Changes the guarantee from the predicted to the measured bytes. */
static weir_status carry_commit(const wi_pool_entry *entry, weir_model *model, wi_pool_carried *out)
{
    weir_client_stats stats;
    uint64_t bytes = wi_max(wi_pool_measure(model, &stats), entry->source->guaranteed);
    weir_status status = weir_client_set_limits(weir_model_client(model), bytes, entry->source->maximum);
    if (status != WEIR_OK)
        return status;
    out->model = model;
    out->bytes = bytes;
    out->peak = wi_max(stats.peak, bytes);
    memcpy(out->classes, stats.live_class, sizeof out->classes);
    return WEIR_OK;
}

static weir_status carry_was_stopped(const wi_pool_entry *entry)
{
    return atomic_load(&entry->stop)
               ? weir_fail(WEIR_ERR_CANCELLED, "the load of %s was stopped: nobody waits for it", entry->name)
               : WEIR_OK;
}

static weir_status carry_warm_up(const wi_pool_entry *entry, weir_model *model)
{
    weir_status status = carry_was_stopped(entry);
    if (status == WEIR_OK && entry->source->first_run)
        status = weir_model_warm_up(model);
    return status == WEIR_ERR_UNSUPPORTED ? WEIR_OK : status; /* the first request is the first run then */
}

/* What the refusal of this thread says, if it is of this load: more than was reserved for it. */
static uint64_t carry_wanted_by(const wi_pool_entry *entry)
{
    weir_refusal refusal = WEIR_INIT(weir_refusal);
    uint64_t wanted;
    if (weir_refusal_last(&refusal) != WEIR_OK || refusal.cause == WEIR_CAUSE_NONE ||
        strcmp(refusal.client, entry->name) != 0 || __builtin_add_overflow(refusal.current, refusal.requested, &wanted))
        return 0;
    return wanted > entry->order_bytes ? wanted : 0;
}

/* Runs that hold memory beside, which the pool has not promised them and so knows nothing of. */
static uint32_t runs_beside(const wi_pool_entry *entry)
{
    uint32_t runs = 0;
    pthread_mutex_lock(&entry->pool->lock);
    for (const wi_pool_entry *other = entry->pool->entries; other; other = other->next)
        runs += other != entry && other->device == entry->device ? wi_pool_see(other).running : 0;
    pthread_mutex_unlock(&entry->pool->lock);
    return runs;
}

/* Until fewer run, as memory comes back then, or for a while, as it may come back before. */
static void carry_wait_for_runs(wi_pool_entry *entry, uint32_t runs, uint64_t until)
{
    enum { A_WHILE_NS = 100000000, LOOK_NS = 5000000 };
    uint64_t began = wi_now(), end = wi_min(until, began + A_WHILE_NS);
    while (wi_now() < end && runs_beside(entry) >= runs && !atomic_load(&entry->stop)) {
        pthread_mutex_lock(&entry->pool->lock);
        (void)wi_pool_wait(entry->pool, &entry->pool->changed, wi_min(end, wi_now() + LOOK_NS));
        pthread_mutex_unlock(&entry->pool->lock);
    }
}

/* The pool has the bytes for it; where runs beside hold some of them nonetheless they are waited for, as long as a request
 * waits. */
static weir_status make_in_time(wi_pool_entry *entry, weir_model **out, wi_pool_carried *carried)
{
    uint64_t until = wi_pool_until(entry->pool, 0);
    for (;;) {
        uint32_t runs = runs_beside(entry);
        weir_status status = carry_make(entry, out);
        carried->wanted = status == WEIR_ERR_OUT_OF_MEMORY ? carry_wanted_by(entry) : 0;
        uint64_t now = wi_now();
        if (status != WEIR_ERR_OUT_OF_MEMORY || carried->wanted || runs == 0 || now >= until)
            return status;
        carry_wait_for_runs(entry, runs, until);
        carried->waited += wi_now() - now;
        status = carry_was_stopped(entry);
        if (status != WEIR_OK)
            return status;
    }
}

weir_status wi_pool_carry_load(wi_pool_entry *entry, wi_pool_carried *out)
{
    weir_model *model = NULL;
    weir_status status = carry_was_stopped(entry);
    if (status != WEIR_OK)
        return status;
    atomic_store(&entry->progress, 0);
    free(entry->accounts);
    entry->accounts = wi_pool_accounts(entry->pool, entry->pool->devices[entry->device].runtime, &entry->account_count);
    if (!entry->accounts)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the load of %s", entry->name);
    status = make_in_time(entry, &model, out);
    if (status != WEIR_OK)
        return status;
    status = carry_warm_up(entry, model);
    if (status == WEIR_OK)
        status = carry_commit(entry, model, out);
    if (status != WEIR_OK)
        carry_give_up(model);
    return status;
}

/* Away and back ---------------------------------------------------------------------------------------------------- */

weir_status wi_pool_carry_suspend(const wi_pool_entry *entry, wi_pool_carried *out)
{
    weir_model_suspend_options options = {.struct_size = sizeof options, .refuse_runs = true, .at_once = true};
    weir_client_stats stats;
    weir_status status = weir_model_suspend(entry->model, &options, NULL);
    if (status == WEIR_OK)
        out->bytes = wi_pool_measure(entry->model, &stats);
    return status;
}

/* Whether the memory is on the device, whatever the engine says to it. */
static bool is_back(weir_model *model)
{
    weir_model_presence now = WEIR_INIT(weir_model_presence);
    return weir_model_residency(model, &now) == WEIR_OK && now.state == WEIR_RESIDENT;
}

/* The guarantee comes back with the client. A model that is back but useless is unloaded here, so that its bytes are
 * free when the machine hears of the failure. */
weir_status wi_pool_carry_resume(const wi_pool_entry *entry, wi_pool_carried *out)
{
    weir_client_stats stats;
    weir_status status = weir_model_resume(entry->model, WEIR_STREAM_HOST);
    out->lost = status != WEIR_OK && is_back(entry->model);
    if (out->lost)
        carry_give_up(entry->model);
    if (status == WEIR_OK)
        out->bytes = wi_max(wi_pool_measure(entry->model, &stats), entry->source->guaranteed);
    return status;
}

/* Unloading -------------------------------------------------------------------------------------------------------- */

static void add_holder(weir_pool_receipt *receipt, const char *name, uint64_t bytes, bool own)
{
    uint32_t at = receipt->holders;
    while (at > 0 && receipt->holder[at - 1].bytes < bytes)
        at--;
    if (bytes == 0 || at == WEIR_POOL_HOLDERS)
        return;
    receipt->holders += receipt->holders < WEIR_POOL_HOLDERS;
    memmove(&receipt->holder[at + 1], &receipt->holder[at], (receipt->holders - at - 1) * sizeof *receipt->holder);
    snprintf(receipt->holder[at].client, sizeof receipt->holder[at].client, "%s", name);
    receipt->holder[at].bytes = bytes;
    receipt->holder[at].own = own;
}

static uint64_t had(const wi_pool_entry *entry, const wi_pool_account *account)
{
    for (size_t i = 0; i < entry->account_count; i++)
        if (entry->accounts[i].client == account->client && strcmp(entry->accounts[i].name, account->name) == 0)
            return entry->accounts[i].live;
    return 0;
}

static void look_elsewhere(const wi_pool_entry *entry, const weir_client *own, weir_pool_receipt *receipt)
{
    size_t count;
    wi_pool_account *now = wi_pool_accounts(entry->pool, entry->pool->devices[entry->device].runtime, &count);
    for (size_t i = 0; now && i < count; i++) {
        uint64_t before = had(entry, &now[i]);
        if (now[i].client == own || now[i].live <= before)
            continue;
        receipt->elsewhere += now[i].live - before;
        add_holder(receipt, now[i].name, now[i].live - before, false);
    }
    free(now);
}

/* `kept`: the account is still open, since its engine has not freed all of it. */
static void write_receipt(const wi_pool_entry *entry, weir_client *kept, weir_pool_receipt *receipt)
{
    weir_client_stats left = WEIR_INIT(weir_client_stats);
    if (kept && weir_client_info(kept, &left) == WEIR_OK) {
        receipt->kept = left.live + left.pending + left.away;
        add_holder(receipt, left.name, receipt->kept, true);
        disown(kept);
    }
    look_elsewhere(entry, kept, receipt);
    receipt->returned = receipt->before_total - wi_min(receipt->before_total, receipt->kept);
    receipt->complete = receipt->kept == 0 && receipt->elsewhere == 0;
}

weir_status wi_pool_carry_unload(const wi_pool_entry *entry, wi_pool_carried *out)
{
    weir_pool_receipt *receipt = &out->receipt;
    weir_client_stats before;
    uint64_t began = wi_now();
    weir_client *client = weir_model_client(entry->model);
    *receipt = (weir_pool_receipt){.struct_size = sizeof *receipt, .complete = true};
    if (!entry->model) /* unloaded when a resume failed */
        return WEIR_OK;
    receipt->before_total = wi_pool_measure(entry->model, &before) + before.away;
    memcpy(receipt->before, before.live_class, sizeof receipt->before);
    weir_status status = weir_model_destroy(entry->model);
    if (status == WEIR_ERR_BUSY)
        return status;
    write_receipt(entry, status == WEIR_OK ? NULL : client, receipt);
    receipt->unload_ms = (double)(wi_now() - began) / 1e6;
    return status;
}
