/* models.c: models by name, in a pool: each is loaded by the first request for it, and makes room for others when it is idle. */
#include "serve.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* ---- references -------------------------------------------------------------------------------------------------- */

static served_model *serve_models_keep(served_model *model)
{
    if (model)
        atomic_fetch_add(&model->references, 1);
    return model;
}

void served_drop(served_model *model)
{
    if (!model || atomic_fetch_sub(&model->references, 1) > 1)
        return;
    manifest_release(model->manifest);
    json_decref(model->config);
    pthread_mutex_destroy(&model->counting);
    free(model->stamp);
    free(model->engine);
    free(model->provider);
    free(model->device);
    free(model->version);
    free(model->path);
    free(model->name);
    free(model);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* A tag that is said for "whichever it is" is none. */
static bool is_name(const char *own, const char *name)
{
    static const char latest[] = ":latest";
    size_t bytes = strlen(own);
    return strcmp(own, name) == 0 || (strncmp(own, name, bytes) == 0 && strcmp(name + bytes, latest) == 0);
}

bool served_is_called(const served_model *model, const char *name)
{
    size_t i;
    const json_t *alias;
    json_array_foreach(json_object_get(model->config, "aliases"), i, alias)
    {
        if (is_name(json_string_value(alias), name))
            return true;
    }
    return is_name(model->name, name);
}

served_model *served_find(served *all, const char *name)
{
    served_model *found = NULL;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->count && !found; i++)
        if (served_is_called(all->models[i], name))
            found = serve_models_keep(all->models[i]);
    pthread_mutex_unlock(&all->lock);
    return found;
}

served_model *served_version(served *all, const char *name, const char *version)
{
    pthread_mutex_lock(&all->lock);
    served_model *found = all->in_pool;
    while (found && (strcmp(found->name, name) != 0 || strcmp(found->version, version) != 0))
        found = found->next_in_pool;
    serve_models_keep(found);
    pthread_mutex_unlock(&all->lock);
    return found;
}

served_model **served_list(served *all, size_t *count)
{
    pthread_mutex_lock(&all->lock);
    served_model **list = text_grow(NULL, all->count + 1, sizeof *list);
    *count = all->count;
    for (size_t i = 0; i < all->count; i++)
        list[i] = serve_models_keep(all->models[i]);
    pthread_mutex_unlock(&all->lock);
    return list;
}

void served_list_free(served_model **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        served_drop(list[i]);
    free(list);
}

json_t *served_list_json(served *all, json_t *(*make)(served *all, served_model *model))
{
    size_t count;
    served_model **models = served_list(all, &count);
    json_t *list = json_array(), *one;
    for (size_t i = 0; i < count; i++)
        if ((one = make(all, models[i])))
            json_array_append_new(list, one);
    served_list_free(models, count);
    return list;
}

static size_t serve_models_place_of(const served *all, const char *name)
{
    size_t i = 0;
    while (i < all->count && strcmp(all->models[i]->name, name) != 0)
        i++;
    return i;
}

/* Takes a reference. */
static void serve_models_enter(served *all, served_model *model)
{
    pthread_mutex_lock(&all->lock);
    size_t at = serve_models_place_of(all, model->name);
    served_model *old = at < all->count ? all->models[at] : NULL;
    if (!old)
        all->models = text_grow(all->models, ++all->count, sizeof *all->models);
    all->models[at] = serve_models_keep(model);
    pthread_mutex_unlock(&all->lock);
    served_drop(old);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* The manifest's name, else the file's without what follows the last point. */
static char *serve_models_name_of(const weir_manifest *manifest, const char *path)
{
    if (manifest->name && manifest->name[0])
        return text_copy(manifest->name);
    const char *slash = strrchr(path, '/');
    char *name = text_copy(slash && slash[1] ? slash + 1 : path);
    char *point = strrchr(name, '.');
    if (point && point != name)
        *point = '\0';
    return name;
}

void served_stamp(FILE *to, const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0)
        fprintf(to, "%s is not there\n", path);
    else
        fprintf(to, "%s %ju %ju %jd %jd.%09ld\n", path, (uintmax_t)found.st_dev, (uintmax_t)found.st_ino,
                (intmax_t)found.st_size, (intmax_t)found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
}

char *served_stamp_now(const served_model *model)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = text_stream(&text, &bytes);
    served_stamp(file, model->path);
    served_stamp(file, model->manifest->model_file);
    fclose(file);
    return text;
}

/* Returns the best accepted candidate, else the best candidate that lacks only memory. NULL: there is neither. */
static const weir_candidate *best_of(const weir_choice *choice)
{
    for (size_t i = 0; i < choice->count; i++) {
        weir_verdict verdict = choice->candidates[i].verdict;
        if (verdict == WEIR_VERDICT_ACCEPTED || verdict == WEIR_VERDICT_LITTLE_MEMORY ||
            verdict == WEIR_VERDICT_LITTLE_VRAM)
            return &choice->candidates[i];
    }
    return NULL;
}

/* Where it will be: the choice is made once, and the pool keeps to it. */
static weir_status serve_models_choose(const served *all, served_model *model)
{
    weir_choice_options options = *all->choice;
    weir_choice *choice = NULL;
    const char *engine = config_text(model->config, "engine"), *provider = config_text(model->config, "provider"),
               *device = config_text(model->config, "device");
    options.engine = engine ? engine : options.engine;
    options.provider = provider ? provider : options.provider;
    options.device = device ? device : options.device;
    weir_status status = weir_choice_create(model->manifest, &options, &choice);
    if (status != WEIR_OK)
        return status;
    const weir_candidate *best = best_of(choice);
    if (best) {
        model->engine = text_copy(best->engine);
        model->provider = text_copy(best->provider);
        model->device = text_copy(best->runtime);
        model->chosen = *model->manifest;
        model->chosen.requirements.preferred_provider = model->provider;
        model->chosen.requirements.fallback_count = 0;
    }
    status = best ? WEIR_OK : weir_fail(WEIR_ERR_UNSUPPORTED, "%s", choice->rule);
    weir_choice_destroy(choice);
    return status;
}

weir_status served_model_make(const served *all, const char *name, const char *path, const json_t *config,
                              served_model **out)
{
    served_model *model = text_zeroed(1, sizeof *model);
    pthread_mutex_init(&model->counting, NULL);
    atomic_init(&model->references, 1);
    model->path = text_copy(path);
    model->config = json_deep_copy(config);
    weir_status status = manifest_read(path, &model->manifest);
    if (status == WEIR_OK) {
        const char *version = model->manifest->version;
        model->name = name ? text_copy(name) : serve_models_name_of(model->manifest, path);
        model->version = text_copy(version ? version : "");
        model->stamp = served_stamp_now(model);
        atomic_init(&model->keep_alive, config_time(model->config, "keep_alive", WEIR_POOL_NONE));
        atomic_init(&model->stay, atomic_load(&model->keep_alive));
        status = serve_models_choose(all, model);
    }
    if (status != WEIR_OK) {
        served_drop(model);
        model = NULL;
    }
    *out = model;
    return status;
}

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

static void on_event(const weir_pool_event *event, void *user)
{
    served *all = user;
    state_event(all->state, event);
    if (event->kind == WEIR_POOL_EVENT_FAILED || event->kind == WEIR_POOL_EVENT_UNHEALTHY)
        weir_log(WEIR_LOG_WARNING, "serve: %s: %s", event->name, event->detail);
    if (event->kind == WEIR_POOL_EVENT_REMOVED)
        served_removed(all, event->name, event->version);
}

weir_status served_open(served *all, served_model *const *models, size_t count)
{
    weir_pool_device *devices = text_grow(NULL, count + 1, sizeof *devices);
    weir_pool_options options = WEIR_INIT(weir_pool_options);
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t k = 0; k < options.device_count; k++)
            known |= strcmp(devices[k].device, models[i]->device) == 0;
        if (!known)
            devices[options.device_count++] = (weir_pool_device){.device = models[i]->device};
    }
    options.devices = devices;
    options.queue = all->runs; /* whoever has a worker may wait: more never do */
    options.event = on_event;
    options.user = all;
    weir_status status = weir_pool_create(&options, &all->pool);
    free(devices);
    return status;
}

enum { SECOND = 1000000000 };

/* What a model is added to the pool with, as long as it takes. */
typedef struct adding {
    weir_pool_spec spec;
    config_settings settings;
    config_variants variants;
    weir_pool_step steps[WEIR_POOL_STEP_COUNT];
    char number[16];
    weir_setting single;
    weir_pool_variant fewer;
} adding;

/* Whether its runs are decoded together for the asking: by llama.cpp, unless it is said how many. */
static bool joins_runs(const served_model *model)
{
    for (size_t i = 0; i < model->manifest->setting_count; i++)
        if (strcmp(model->manifest->settings[i].key, "sequences") == 0)
            return false;
    return strcmp(model->engine, "gguf") == 0 &&
           !json_object_get(json_object_get(model->config, "tuning"), "sequences");
}

/* A cache that is there from the start takes as much more: where there is no room for it, the runs take turns. */
static void join_runs(const served *all, adding *it)
{
    snprintf(it->number, sizeof it->number, "%u", all->sequences);
    config_settings_add(&it->settings, "sequences", it->number);
    it->single = (weir_setting){"sequences", "1"};
    it->fewer = WEIR_INIT(weir_pool_variant);
    it->fewer.settings = &it->single;
    it->fewer.setting_count = 1;
    if (it->spec.variant_count == 0 && it->spec.gives_up_count == 0 && all->sequences > 1) {
        it->spec.variants = &it->fewer;
        it->spec.variant_count = 1;
        it->spec.shrink_first = true;
    }
}

/* As a spec has it: 0 is never, so at once is the shortest time that there is. */
static uint64_t idle_time(uint64_t nanoseconds)
{
    return nanoseconds == WEIR_POOL_NONE ? 0 : nanoseconds ? nanoseconds : 1;
}

static void fill_spec(const served *all, served_model *model, adding *it)
{
    const json_t *config = model->config;
    weir_pool_spec *spec = &it->spec;
    *spec = WEIR_INIT(weir_pool_spec);
    spec->name = model->name;
    spec->version = model->version;
    spec->manifest = &model->chosen;
    spec->engine = model->engine;
    spec->device = model->device;
    spec->slots = (uint32_t)config_number(config, "parallel", all->runs);
    spec->keep_alive = idle_time(atomic_load(&model->keep_alive));
    spec->suspend_after = idle_time(config_time(config, "suspend_after", WEIR_POOL_NONE));
    spec->minimum_stay = config_time(config, "minimum_stay", SECOND);
    spec->minimum_stay = spec->minimum_stay ? spec->minimum_stay : WEIR_POOL_NONE;
    spec->pinned = config_flag(config, "pin", false);
    spec->stays = !config_flag(config, "suspend", true);
    spec->first_run = config_flag(config, "warm_up", false);
    spec->prepare = config_flag(config, "prepare", false);
    spec->priority = (int32_t)config_number(config, "priority", 0);
    spec->weight = (uint32_t)config_number(config, "weight", 0);
    spec->guaranteed = config_size(config, "guaranteed");
    spec->maximum = config_size(config, "maximum");
    spec->peak = config_size(config, "peak");
    spec->gives_up = it->steps;
    spec->gives_up_count = config_steps(config, it->steps);
    config_variants_read(config, &it->variants);
    spec->variants = it->variants.list;
    spec->variant_count = it->variants.count;
    config_settings_read(json_object_get(config, "tuning"), &it->settings);
    if (joins_runs(model))
        join_runs(all, it);
    spec->settings = it->settings.list;
    spec->setting_count = it->settings.count;
}

static weir_status add_to_pool(served *all, served_model *model)
{
    adding it = {.number = ""};
    fill_spec(all, model, &it);
    weir_status status = weir_pool_add(all->pool, &it.spec);
    config_settings_clear(&it.settings);
    config_variants_clear(&it.variants);
    return status;
}

/* A version that the pool does not have yet: the events are told apart by it. */
static void number_version(served *all, served_model *model)
{
    const char *own = model->manifest->version ? model->manifest->version : "";
    served_model *same = served_version(all, model->name, model->version);
    while (same) {
        served_drop(same);
        free(model->version);
        model->version = text_print("%s+%u", own, ++all->replaced);
        same = served_version(all, model->name, model->version);
    }
}

static void enter_pool(served *all, served_model *model)
{
    pthread_mutex_lock(&all->lock);
    model->next_in_pool = all->in_pool;
    all->in_pool = serve_models_keep(model);
    pthread_mutex_unlock(&all->lock);
}

void served_removed(served *all, const char *name, const char *version)
{
    served_model *found = NULL;
    pthread_mutex_lock(&all->lock);
    for (served_model **link = &all->in_pool; *link && !found; link = &(*link)->next_in_pool)
        if (strcmp((*link)->name, name) == 0 && strcmp((*link)->version, version) == 0) {
            found = *link;
            *link = found->next_in_pool;
            break;
        }
    pthread_mutex_unlock(&all->lock);
    served_drop(found);
}

static bool in_pool(served *all, const served_model *model)
{
    size_t count;
    bool found = false;
    weir_pool_entry *list = served_entries(all, &count);
    for (size_t i = 0; i < count; i++)
        found |= strcmp(list[i].name, model->name) == 0 && strcmp(list[i].version, model->version) == 0;
    free(list);
    return found;
}

/* Waits until the pool has no entry of the version, then gives the pool's reference back. A version that the pool did
 * not take has no entry; a version that failed to load loses its entry when the load has ended. False: the entry is
 * still there after ten seconds. */
static bool left_pool(served *all, const served_model *model)
{
    static const struct timespec a_while = {.tv_nsec = 10000000};
    for (int i = 0; i < 1000; i++) {
        if (!in_pool(all, model)) {
            served_removed(all, model->name, model->version);
            return true;
        }
        (void)nanosleep(&a_while, NULL);
    }
    return false;
}

static weir_status try_to_put(served *all, served_model *model)
{
    number_version(all, model);
    enter_pool(all, model);
    return add_to_pool(all, model);
}

weir_status served_put(served *all, served_model *model)
{
    enum { TRIES = 3 };
    weir_status status = try_to_put(all, model);
    for (int i = 0; status != WEIR_OK; i++) {
        char *why = text_copy(weir_detail());
        bool room = status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_BUSY;
        bool again =
            left_pool(all, model) && room && i < TRIES && weir_pool_unload(all->pool, model->name, 0, NULL) == WEIR_OK;
        if (!again)
            status = weir_fail(status, "%s", why);
        free(why);
        if (!again)
            return status;
        status = try_to_put(all, model);
    }
    serve_models_enter(all, model);
    if (atomic_load(&model->keep_alive) == 0)
        status = weir_pool_keep(all->pool, model->name, 0);
    return status;
}

void served_remove(served *all, const char *name)
{
    served_model *gone = NULL;
    pthread_mutex_lock(&all->lock);
    size_t at = serve_models_place_of(all, name);
    if (at < all->count) {
        gone = all->models[at];
        memmove(&all->models[at], &all->models[at + 1], (--all->count - at) * sizeof *all->models);
    }
    pthread_mutex_unlock(&all->lock);
    if (gone && weir_pool_remove(all->pool, name, 0, NULL) != WEIR_OK)
        weir_log(WEIR_LOG_INFO, "serve: %s", weir_detail());
    served_drop(gone);
}

weir_pool_entry *served_entries(served *all, size_t *count)
{
    size_t room;
    weir_pool_entry *list = NULL;
    *count = 16;
    do { /* another one may come meanwhile */
        room = *count + 4;
        list = text_grow(list, room, sizeof *list);
        list[0] = WEIR_INIT(weir_pool_entry);
        if (weir_pool_list(all->pool, list, room, count) != WEIR_OK)
            *count = 0;
    } while (*count > room);
    return list;
}

bool served_look(served *all, const served_model *model, weir_pool_entry *out)
{
    size_t count;
    weir_pool_entry *list = served_entries(all, &count);
    bool found = false;
    *out = WEIR_INIT(weir_pool_entry);
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, model->name) == 0 && (list[i].current || !found)) {
            *out = list[i];
            found = true;
        }
    free(list);
    return found;
}

/* Why a request would be refused now; NULL: it would be met. The caller frees it. */
char *served_obstacle(served *all, const weir_pool_entry *entry)
{
    weir_pool_usage usage = WEIR_INIT(weir_pool_usage);
    char need[32], limit[32];
    if (entry->state == WEIR_POOL_FAILED)
        return text_copy(entry->why);
    if (entry->state != WEIR_POOL_UNLOADED)
        return NULL;
    for (size_t i = 0; weir_pool_usage_info(all->pool, i, &usage) == WEIR_OK; i++)
        if (strcmp(usage.device, entry->device) == 0 && entry->predicted_peak > usage.ceiling)
            return text_print("it takes %s, and all models of %s may have %s",
                              weir_size_format(entry->predicted_peak, need, sizeof need), entry->device,
                              weir_size_format(usage.ceiling, limit, sizeof limit));
    return NULL;
}

weir_status served_clear(served *all)
{
    weir_status status = all->pool ? weir_pool_destroy(all->pool) : WEIR_OK;
    served_list_free(all->models, all->count);
    for (served_model *model = all->in_pool, *next; model; model = next) {
        next = model->next_in_pool;
        served_drop(model);
    }
    all->models = NULL;
    all->in_pool = NULL;
    all->count = 0;
    return status;
}
