/* The models of a pool: added, replaced by another version, retired, forgotten. */
#include "pool/pool.h"
#include "base/paths.h"
#include "base/system.h"

#include <weir/pool.h>

#include <stdio.h>

/* Finding ---------------------------------------------------------------------------------------------------------- */

wi_pool_entry *wi_pool_find(weir_pool *pool, const char *name)
{
    wi_pool_entry *entry = pool->entries;
    while (entry && (!entry->current || strcmp(entry->name, name) != 0))
        entry = entry->next;
    return entry;
}

weir_status wi_pool_none(const weir_pool *pool, const char *name)
{
    char names[512] = "none";
    size_t used = 0;
    for (const wi_pool_entry *entry = pool->entries; entry && used + 1 < sizeof names; entry = entry->next)
        if (entry->current) {
            int more = snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", entry->name);
            used += (size_t)more;
        }
    return weir_fail(WEIR_ERR_NOT_FOUND, "the pool has no model \"%.64s\"; it has: %s", name, names);
}

/* Ending ----------------------------------------------------------------------------------------------------------- */

void wi_pool_entry_free(wi_pool_entry *entry)
{
    if (--entry->source->references == 0)
        wi_pool_source_free(entry->source);
    free(entry->accounts);
    free(entry);
}

void wi_pool_drop(wi_pool_entry *entry)
{
    wi_assert(entry->users > 0);
    if (--entry->users == 0)
        wi_pool_entry_free(entry);
}

static void unlink_entry(wi_pool_entry *entry)
{
    wi_pool_entry **link = &entry->pool->entries;
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
}

void wi_pool_look_gone(wi_pool_entry *entry)
{
    if (!entry->retired || entry->here || entry->ordered || entry->under_way || entry->gone)
        return;
    entry->gone = true;
    unlink_entry(entry);
    if (entry->pool->by_id[entry->id] == entry)
        entry->pool->by_id[entry->id] = NULL;
    if (--entry->source->listed == 0) /* else it was unloaded by hand or for its health, and another entry is it now */
        wi_pool_note(entry->pool, WEIR_POOL_EVENT_REMOVED, entry, 0, NULL);
    pthread_cond_broadcast(&entry->pool->changed);
    wi_pool_drop(entry);
}

void wi_pool_retire(wi_pool_entry *entry, wi_pool_entry *heir)
{
    wp_event event = {.kind = WP_EVENT_REMOVE, .model = entry->id};
    wi_assert(!entry->retired);
    entry->current = false;
    if (heir)
        heir->current = true;
    entry->retired = true;
    entry->retired_at = wi_now();
    wi_pool_decide(entry->pool, &event);
    wi_pool_look_gone(entry);
}

/* Making ----------------------------------------------------------------------------------------------------------- */

/* The machine learns of it, and it is listed, with one user: the list. */
static weir_status enter_entry(wi_pool_entry *entry)
{
    weir_pool *pool = entry->pool;
    wp_event event = {.kind = WP_EVENT_ADD, .spec = entry->spec};
    wi_pool_entry **end = &pool->entries;
    wi_pool_entry **more = realloc(pool->by_id, (pool->ids + 1) * sizeof(wi_pool_entry *));
    if (!more)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model of a pool");
    pool->by_id = more;
    pool->by_id[pool->ids] = NULL;
    wi_pool_decide(pool, &event);
    if (!event.ok)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model of a pool");
    wi_assert(event.model <= pool->ids); /* a place that was used, or the next */
    pool->ids += event.model == pool->ids;
    entry->id = event.model;
    entry->users = 1;
    entry->source->listed++;
    pool->by_id[entry->id] = entry;
    while (*end)
        end = &(*end)->next;
    *end = entry;
    return WEIR_OK;
}

static void carry_counts(wp_view *to, const wp_view *past, const wp_view *now)
{
    to->loads = past->loads + now->loads;
    to->resumes = past->resumes + now->resumes;
    to->suspends = past->suspends + now->suspends;
    to->evictions = past->evictions + now->evictions;
    to->failures = past->failures + now->failures;
}

wi_pool_entry *wi_pool_renew(wi_pool_entry *entry)
{
    wi_pool_entry *heir = calloc(1, sizeof *heir);
    if (!heir)
        return NULL;
    wp_view now = wi_pool_see(entry);
    heir->pool = entry->pool;
    heir->source = entry->source;
    heir->device = entry->spec.device;
    memcpy(heir->settings_of, entry->settings_of, sizeof heir->settings_of);
    heir->spec = entry->spec;
    heir->predicted_peak = entry->predicted_peak;
    heir->measured_peak = entry->measured_peak;
    heir->variant = entry->variant;
    memcpy(heir->name, entry->name, sizeof heir->name);
    memcpy(heir->version, entry->version, sizeof heir->version);
    memcpy(heir->predicted, entry->predicted, sizeof heir->predicted);
    memcpy(heir->measured, entry->measured, sizeof heir->measured);
    carry_counts(&heir->past, &entry->past, &now);
    heir->source->references++;
    if (enter_entry(heir) != WEIR_OK) {
        wi_pool_entry_free(heir);
        return NULL;
    }
    wi_pool_retire(entry, heir);
    return heir;
}

/* Adding ----------------------------------------------------------------------------------------------------------- */

static weir_status entries_check_free(const weir_pool *pool, const wi_pool_entry *entry)
{
    for (const wi_pool_entry *other = pool->entries; other; other = other->next) {
        if (strcmp(other->name, entry->name) != 0 || other->retired)
            continue;
        if (!other->current)
            return weir_fail(WEIR_ERR_CONFLICT, "%s is being replaced by version \"%s\" already", entry->name,
                             other->version);
        if (strcmp(other->version, entry->version) == 0)
            return weir_fail(WEIR_ERR_CONFLICT, "the pool has %s with version \"%s\" already", entry->name,
                             other->version);
    }
    return WEIR_OK;
}

static bool in_use(const wi_pool_entry *entry)
{
    wp_view now = wi_pool_see(entry);
    return now.running > 0 || now.waiting > 0 || (now.state != WP_UNLOADED && now.state != WP_FAILED);
}

/* With the lock. The entry is listed, or freed. */
static weir_status entries_add(wi_pool_entry *entry, bool load_now)
{
    weir_pool *pool = entry->pool;
    weir_status status = entries_check_free(pool, entry);
    if (status == WEIR_OK)
        status = enter_entry(entry);
    if (status != WEIR_OK) {
        wi_pool_entry_free(entry);
        return status;
    }
    wi_pool_entry *old = wi_pool_find(pool, entry->name);
    entry->users++;
    entry->current = !old;
    if (load_now || (old && in_use(old)))
        status = wi_pool_load_entry(entry, wi_pool_until(pool, 0));
    old = wi_pool_find(pool, entry->name); /* it may have been renewed, or removed */
    if (status == WEIR_OK && entry->retired)
        status = weir_fail(WEIR_ERR_CANCELLED, "%s was removed while it was loaded", entry->name);
    if (status != WEIR_OK && !entry->retired)
        wi_pool_retire(entry, NULL);
    else if (status == WEIR_OK && old && old != entry)
        wi_pool_retire(old, entry);
    else if (status == WEIR_OK)
        entry->current = true;
    wi_pool_drop(entry);
    return status;
}

weir_status weir_pool_add(weir_pool *pool, const weir_pool_spec *given)
{
    weir_pool_spec spec;
    weir_pool_variant variants[WI_POOL_WAYS];
    weir_manifest manifest;
    char stored[PATH_MAX];
    wi_pool_entry *entry = NULL;
    WI_ENTER();
    if (!pool)
        return weir_fail(WEIR_ERR_INVALID, "weir_pool_add: NULL");
    weir_status status = WI_COPY_IN(weir_pool_spec, &spec, given, "weir_pool_add");
    if (status == WEIR_OK)
        status = wi_pool_read_variants(&spec, variants);
    if (status == WEIR_OK && spec.manifest) {
        status = WI_COPY_IN(weir_manifest, &manifest, spec.manifest, "weir_pool_add");
        manifest.struct_size = sizeof manifest;
        spec.manifest = &manifest;
    }
    if (status == WEIR_OK && spec.path)
        spec.path = wi_path_meant(spec.path, stored);
    if (status == WEIR_OK)
        status = wi_pool_entry_make(pool, &spec, &entry);
    if (status != WEIR_OK)
        return status;
    for (uint32_t i = 0; i < pool->device_count; i++)
        wi_pool_look(pool, i, true);
    status = wi_pool_enter(pool, "weir_pool_add");
    if (status != WEIR_OK) {
        wi_pool_entry_free(entry);
        return status;
    }
    status = entries_add(entry, spec.load_now);
    wi_pool_leave(pool);
    return status;
}
