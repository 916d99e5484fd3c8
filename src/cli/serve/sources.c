/* sources.c: finds the models that are to be served, and follows their files and the configuration. */
#include "serve.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct sources {
    served *all;
    char **words;
    size_t word_count;
    const char *path; /* of the configuration; NULL: there is none */
    const arg *options;
    server_config *file; /* of the watching thread, once there is one */
    /* The thread. What the files looked like when what is served was made of them, and when they were last looked at. */
    char *taken, *seen;
    pthread_t thread;
    bool watches;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake, ended;
    bool again, stops, has_ended;
    char *puts; /* the name of the model that is being added */
};

/* ---- what there is ----------------------------------------------------------------------------------------------- */

/* A model that is to be served. */
typedef struct entry {
    char *name; /* NULL: its own */
    char *path;
    const json_t *config; /* the configuration's */
    bool may_be_none;     /* a file of a folder: what no engine takes is passed over */
} entry;

typedef struct entries {
    entry *list;
    size_t count;
} entries;

static void add_entry(entries *to, const char *name, const char *path, const json_t *config, bool may_be_none)
{
    to->list = text_grow(to->list, to->count + 1, sizeof *to->list);
    to->list[to->count++] = (entry){name ? text_copy(name) : NULL, text_copy(path), config, may_be_none};
}

static void entries_clear(entries *all)
{
    for (size_t i = 0; i < all->count; i++) {
        free(all->list[i].name);
        free(all->list[i].path);
    }
    free(all->list);
}

static bool is_folder(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

/* A folder can be a model itself. */
static bool sources_is_model(const char *path)
{
    weir_manifest *manifest = NULL;
    bool is = manifest_read(path, &manifest) == WEIR_OK;
    manifest_release(manifest);
    return is;
}

static int sources_by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What is in a folder, in order; for the caller to free, one by one. False: it cannot be read. */
static bool sources_list_folder(const char *folder, char ***names, size_t *count)
{
    DIR *open = opendir(folder);
    *names = NULL;
    *count = 0;
    if (!open)
        return false;
    for (struct dirent *one; (one = readdir(open));)
        if (one->d_name[0] != '.') {
            *names = text_grow(*names, *count + 1, sizeof **names);
            (*names)[(*count)++] = text_print("%s/%s", folder, one->d_name);
        }
    closedir(open);
    if (*count)
        qsort(*names, *count, sizeof **names, sources_by_name);
    return true;
}

static bool sources_add_folder(entries *to, const char *folder, const json_t *config)
{
    char **names;
    size_t count;
    if (!sources_list_folder(folder, &names, &count))
        return false;
    for (size_t i = 0; i < count; i++) {
        add_entry(to, NULL, names[i], config, true);
        free(names[i]);
    }
    free(names);
    return true;
}

/* False: a folder cannot be read, which is said. */
static bool sources_collect(const sources *from, entries *to)
{
    const json_t *defaults = from->file ? json_object_get(from->file->root, "defaults") : NULL;
    const char *name;
    json_t *model;
    bool good = true;
    for (size_t i = 0; i < from->word_count; i++) {
        char *path = engine_file_named(from->words[i]);
        if (!is_folder(path) || sources_is_model(path))
            add_entry(to, NULL, path, defaults, false);
        else if (!sources_add_folder(to, path, defaults))
            good = weir_fail(WEIR_ERR_SYSTEM, "the folder %s cannot be read", path) == WEIR_OK;
        free(path);
    }
    if (!from->file)
        return good;
    for (size_t i = 0; i < from->file->folder_count; i++)
        if (!sources_add_folder(to, from->file->folders[i], defaults))
            good = weir_fail(WEIR_ERR_SYSTEM, "the folder %s cannot be read", from->file->folders[i]) == WEIR_OK;
    json_object_foreach(from->file->models, name, model)
    {
        add_entry(to, name, config_text(model, "path"), model, false);
    }
    return good;
}

/* ---- made of it -------------------------------------------------------------------------------------------------- */

typedef struct made {
    served_model **list;
    size_t count;
} made;

static void made_clear(made *models)
{
    served_list_free(models->list, models->count);
    *models = (made){.list = NULL};
}

/* Whether some engine takes the file, on whatever device and with however much memory. */
static bool sources_is_taken(const served *all, const char *path)
{
    weir_manifest *manifest = NULL;
    weir_choice *choice = NULL;
    bool taken = false;
    if (manifest_read(path, &manifest) == WEIR_OK && weir_choice_create(manifest, all->choice, &choice) == WEIR_OK)
        for (size_t i = 0; i < choice->count; i++)
            taken |= choice->candidates[i].verdict != WEIR_VERDICT_OTHER_FORMAT &&
                     choice->candidates[i].verdict != WEIR_VERDICT_NO_ENGINE;
    weir_choice_destroy(choice);
    manifest_release(manifest);
    return taken;
}

/* Of a name that is another's. */
static const served_model *namesake(const made *models, const served_model *model)
{
    size_t k;
    const json_t *alias;
    for (size_t i = 0; i < models->count; i++) {
        if (served_is_called(models->list[i], model->name))
            return models->list[i];
        json_array_foreach(json_object_get(model->config, "aliases"), k, alias)
        {
            if (served_is_called(models->list[i], json_string_value(alias)))
                return models->list[i];
        }
    }
    return NULL;
}

/* WEIR_OK also for what is passed over. */
static weir_status make_one(const sources *from, const entry *wanted, made *to)
{
    served_model *model;
    if (wanted->may_be_none && !sources_is_taken(from->all, wanted->path))
        return WEIR_OK;
    weir_status status = served_model_make(from->all, wanted->name, wanted->path, wanted->config, &model);
    if (status != WEIR_OK) {
        char *why = text_copy(weir_detail());
        status = weir_fail(status, "%s: %s", wanted->path, why);
        free(why);
        return status;
    }
    const served_model *other = namesake(to, model);
    if (other) {
        status = weir_fail(WEIR_ERR_CONFLICT, "%s: another model is called '%s' already: %s", wanted->path, model->name,
                           other->path);
        served_drop(model);
        return status;
    }
    to->list = text_grow(to->list, to->count + 1, sizeof *to->list);
    to->list[to->count++] = model;
    return WEIR_OK;
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

static char *sources_look(sources *from);

static weir_status sources_put(sources *from, served_model *model)
{
    weir_status status = served_put(from->all, model);
    char *why = status == WEIR_OK ? NULL : text_copy(weir_detail());
    if (why)
        status = weir_fail(status, "%s: %s", model->name, why);
    free(why);
    return status;
}

static weir_status serve_sources_begin(sources *from, made *models, bool all)
{
    entries wanted = {.list = NULL};
    weir_status status = sources_collect(from, &wanted) ? WEIR_OK : WEIR_ERR_SYSTEM;
    for (size_t i = 0; i < wanted.count && status == WEIR_OK; i++)
        status = make_one(from, &wanted.list[i], models);
    entries_clear(&wanted);
    if (status == WEIR_OK && models->count == 0 && !(from->file && from->file->folder_count))
        status = weir_fail(WEIR_ERR_NOT_FOUND, "%s holds no model that can be run here",
                           from->word_count ? from->words[0] : from->path);
    if (status == WEIR_OK)
        status = served_open(from->all, models->list, models->count);
    for (size_t i = 0; i < models->count && status == WEIR_OK; i++)
        status = sources_put(from, models->list[i]);
    for (size_t i = 0; i < models->count && status == WEIR_OK; i++)
        if (all || config_flag(models->list[i]->config, "load", false))
            status = weir_pool_load(from->all->pool, models->list[i]->name, 0);
    return status;
}

int sources_begin(sources *from, bool load_all)
{
    made models = {.list = NULL};
    from->taken = sources_look(from);
    weir_status status = serve_sources_begin(from, &models, load_all);
    made_clear(&models);
    return status == WEIR_OK ? -1 : cli_fail("%s", weir_detail());
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

static void complain(void)
{
    (void)cli_fail("%s", weir_detail());
}

/* Applies the settings that need no new version of a served model: pin, keep-alive time, aliases. */
static void sources_tell(sources *from, served_model *old, const served_model *model)
{
    served *all = from->all;
    uint64_t keep = atomic_load(&model->keep_alive);
    bool pin = config_flag(model->config, "pin", false);
    if (pin != config_flag(old->config, "pin", false) && weir_pool_pin(all->pool, old->name, pin) != WEIR_OK)
        complain();
    if (atomic_exchange(&old->keep_alive, keep) != keep) {
        atomic_store(&old->stay, keep);
        if (weir_pool_keep(all->pool, old->name, keep) != WEIR_OK)
            complain();
    }
    pthread_mutex_lock(&all->lock);
    json_t *before = old->config;
    old->config = json_incref(model->config);
    pthread_mutex_unlock(&all->lock);
    json_decref(before);
}

static bool sources_goes_on(sources *from, const char *name)
{
    pthread_mutex_lock(&from->lock);
    bool stops = from->stops;
    free(from->puts);
    from->puts = name && !stops ? text_copy(name) : NULL;
    pthread_mutex_unlock(&from->lock);
    return !stops;
}

static void follow_one(sources *from, served_model *model)
{
    served_model *old = served_find(from->all, model->name);
    if (old && strcmp(old->name, model->name) != 0) { /* an alias that has become a name */
        served_drop(old);
        old = NULL;
    }
    if (old && strcmp(old->stamp, model->stamp) == 0 && config_same_model(old->config, model->config)) {
        sources_tell(from, old, model);
    } else if (sources_goes_on(from, model->name)) {
        bool loads = config_flag(model->config, "load", false) && !old;
        if (sources_put(from, model) != WEIR_OK ||
            (loads && weir_pool_load(from->all->pool, model->name, 0) != WEIR_OK))
            complain();
        else
            weir_log(WEIR_LOG_INFO, "serve: %s is %s", model->name, old ? "replaced" : "added");
        (void)sources_goes_on(from, NULL);
    }
    served_drop(old);
}

/* Removes the models that no source names any more. A model whose file cannot be read for now stays. */
static void remove_others(sources *from, const made *models, const entries *failed)
{
    size_t count;
    served_model **list = served_list(from->all, &count);
    for (size_t i = 0; i < count; i++) {
        bool wanted = false;
        for (size_t k = 0; k < models->count; k++)
            wanted |= strcmp(models->list[k]->name, list[i]->name) == 0;
        for (size_t k = 0; k < failed->count; k++)
            wanted |= strcmp(failed->list[k].path, list[i]->path) == 0;
        if (!wanted) {
            weir_log(WEIR_LOG_INFO, "serve: %s is removed", list[i]->name);
            served_remove(from->all, list[i]->name);
        }
    }
    served_list_free(list, count);
}

static void sources_follow(sources *from)
{
    entries wanted = {.list = NULL}, failed = {.list = NULL};
    made models = {.list = NULL};
    bool whole = sources_collect(from, &wanted);
    if (!whole)
        complain();
    for (size_t i = 0; i < wanted.count; i++)
        if (make_one(from, &wanted.list[i], &models) != WEIR_OK) {
            complain();
            add_entry(&failed, NULL, wanted.list[i].path, NULL, false);
        }
    if (whole)
        remove_others(from, &models, &failed);
    for (size_t i = 0; i < models.count && sources_goes_on(from, NULL); i++)
        follow_one(from, models.list[i]);
    made_clear(&models);
    entries_clear(&failed);
    entries_clear(&wanted);
}

/* False: it has something wrong, and is not taken. */
static bool read_again(sources *from)
{
    server_config *file;
    if (config_read(from->path, from->options, &file) != WEIR_OK) {
        complain();
        return false;
    }
    for (size_t i = 0; i < file->problem_count; i++)
        (void)cli_fail("%s: %s", from->path, file->problems[i]);
    bool good = file->problem_count == 0;
    if (good && !config_same_server(from->file, file))
        (void)cli_fail("%s: options of the server have changed: they need a restart", from->path);
    if (good) {
        config_free(from->file);
        from->file = file;
    } else {
        config_free(file);
    }
    return good;
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

static void look_at_folder(FILE *to, const char *folder)
{
    char **names;
    size_t count;
    if (!sources_list_folder(folder, &names, &count))
        return;
    for (size_t i = 0; i < count; i++) {
        served_stamp(to, names[i]);
        free(names[i]);
    }
    free(names);
}

/* Returns a text that changes when a file of a source or of a served model changes. */
static char *sources_look(sources *from)
{
    char *text = NULL;
    const char *name;
    json_t *model;
    size_t bytes = 0, count = 0;
    FILE *file = text_stream(&text, &bytes);
    for (size_t i = 0; i < from->word_count; i++) {
        char *path = engine_file_named(from->words[i]);
        served_stamp(file, path);
        if (is_folder(path))
            look_at_folder(file, path);
        free(path);
    }
    for (size_t i = 0; from->file && i < from->file->folder_count; i++)
        look_at_folder(file, from->file->folders[i]);
    json_object_foreach(from->file ? from->file->models : NULL, name, model)
    {
        served_stamp(file, config_text(model, "path"));
    }
    served_model **list = served_list(from->all, &count);
    for (size_t i = 0; i < count; i++) {
        char *now = served_stamp_now(list[i]);
        fputs(strcmp(now, list[i]->stamp) == 0 ? "" : now, file);
        free(now);
    }
    served_list_free(list, count);
    fclose(file);
    return text;
}

/* Whether files have changed, and stayed so since the last look: what is being written is left alone. */
static bool has_changed(sources *from)
{
    char *now = sources_look(from);
    bool still = from->seen && strcmp(from->seen, now) == 0, changed = strcmp(from->taken, now) != 0;
    free(from->seen);
    from->seen = now;
    return changed && still;
}

static bool wait_a_second(sources *from, bool *again)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_mutex_lock(&from->lock);
    while (!from->stops && !from->again && pthread_cond_timedwait(&from->wake, &from->lock, &until) != ETIMEDOUT)
        continue;
    *again = from->again;
    from->again = false;
    bool stops = from->stops;
    pthread_mutex_unlock(&from->lock);
    return !stops;
}

static void *serve_sources_watch(void *user)
{
    sources *from = user;
    bool again;
    while (wait_a_second(from, &again)) {
        bool told = again && (!from->path || read_again(from));
        if (!told && !has_changed(from))
            continue;
        free(from->taken);
        from->taken = sources_look(from);
        sources_follow(from);
    }
    pthread_mutex_lock(&from->lock);
    from->has_ended = true;
    pthread_cond_broadcast(&from->ended);
    pthread_mutex_unlock(&from->lock);
    return NULL;
}

sources *sources_create(served *all, char **words, size_t count, const char *path, server_config *file,
                        const arg *options)
{
    sources *from = text_zeroed(1, sizeof *from);
    pthread_condattr_t monotonic;
    *from = (sources){.all = all, .words = words, .word_count = count, .path = path, .file = file, .options = options};
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&from->lock, NULL);
    pthread_cond_init(&from->wake, &monotonic);
    pthread_cond_init(&from->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return from;
}

weir_status sources_watch(sources *from)
{
    from->watches = pthread_create(&from->thread, NULL, serve_sources_watch, from) == 0;
    return from->watches ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no thread to look for changes of models");
}

void sources_again(sources *from)
{
    pthread_mutex_lock(&from->lock);
    from->again = true;
    pthread_cond_broadcast(&from->wake);
    pthread_mutex_unlock(&from->lock);
}

/* What is being added is removed until its call has come back: it may not have begun yet. */
void sources_unwatch(sources *from)
{
    if (!from->watches)
        return;
    pthread_mutex_lock(&from->lock);
    from->stops = true;
    pthread_cond_broadcast(&from->wake);
    while (!from->has_ended) {
        char *name = from->puts ? text_copy(from->puts) : NULL;
        struct timespec until;
        pthread_mutex_unlock(&from->lock);
        if (name && weir_pool_remove(from->all->pool, name, 0, NULL) != WEIR_OK)
            weir_log(WEIR_LOG_DEBUG, "serve: %s", weir_detail());
        free(name);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 20000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&from->lock);
        if (!from->has_ended)
            (void)pthread_cond_timedwait(&from->ended, &from->lock, &until);
    }
    pthread_mutex_unlock(&from->lock);
    pthread_join(from->thread, NULL);
    from->watches = false;
}

void sources_free(sources *from)
{
    if (!from)
        return;
    config_free(from->file);
    free(from->taken);
    free(from->seen);
    free(from->puts);
    pthread_mutex_destroy(&from->lock);
    pthread_cond_destroy(&from->wake);
    pthread_cond_destroy(&from->ended);
    free(from);
}
