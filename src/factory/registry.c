#include "factory/registry.h"
#include "base/paths.h"
#include "base/system.h"
#include "engines/command.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/runtime.h>

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_ENGINES = 64, NAME_BYTES = 32 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const weir_engine *engines[MOST_ENGINES];
static size_t engine_count;

/* A plug-in that is being opened, or that a thread waits for, on the stack of whoever does. Plug-ins are opened without
 * the lock: that may take long, and their entry may ask for engines itself. */
typedef struct asking {
    const char *name;
    pthread_t by;
    struct asking *next;
} asking;

static asking *opening, *waiting;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;

typedef struct names {
    char text[MOST_ENGINES][NAME_BYTES];
    size_t count;
} names;

static _Thread_local void *listed; /* names: the last list that the thread asked for; NULL: none */

/* Directories ------------------------------------------------------------------------------------------------------ */

/* As many as the option can name, with a colon between, and weir's own two. */
enum { MOST_DIRECTORIES = sizeof((weir_option *)NULL)->value / 2 + 2 };

typedef struct search {
    char directories[MOST_DIRECTORIES][PATH_MAX];
    size_t count;
} search;

static void add_directory(search *s, const char *format, const char *text)
{
    wi_assert(s->count < MOST_DIRECTORIES);
    snprintf(s->directories[s->count++], PATH_MAX, format, text);
}

static char own_directory[PATH_MAX]; /* where libweir lies, found once; "": not known */

static void find_own_directory(void)
{
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)weir_version, &info) || !info.dli_fname ||
        !realpath(info.dli_fname, own_directory)) {
        own_directory[0] = '\0';
        return;
    }
    char *slash = strrchr(own_directory, '/');
    if (slash)
        *slash = '\0';
}

/* Where libweir itself lies: plug-ins are beside it, in a build tree as after installation. */
static void add_own_directory(search *s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_own_directory);
    if (own_directory[0])
        add_directory(s, "%s/weir", own_directory);
}

static void find_directories(search *s)
{
    weir_option option = {.struct_size = sizeof option};
    s->count = 0;
    if (weir_option_info("engine_path", 0, &option) == WEIR_OK) {
        char *rest = option.value;
        for (char *one; (one = strsep(&rest, ":"));)
            if (*one)
                add_directory(s, "%s", one);
    }
    add_own_directory(s);
    if (weir_option_info("home", 0, &option) == WEIR_OK)
        add_directory(s, "%s/engines/plugins", option.value);
}

/* Opening ---------------------------------------------------------------------------------------------------------- */

static bool factory_registry_good_name(const char *name)
{
    size_t length = name ? strlen(name) : 0;
    if (length == 0 || length >= NAME_BYTES)
        return false;
    for (; *name; name++)
        if (!islower((unsigned char)*name) && !isdigit((unsigned char)*name) && *name != '-')
            return false;
    return true;
}

static weir_status factory_registry_check_table(const weir_engine *e, const char *where)
{
    const size_t least = offsetof(weir_engine, unload) + sizeof e->unload; /* what follows is optional */
    if (!e)
        return weir_fail(WEIR_ERR_ENGINE, "%s does not serve the engine table version %d", where, (int)WEIR_ENGINE_ABI);
    if (e->abi < WEIR_ENGINE_ABI_OLDEST || e->abi > WEIR_ENGINE_ABI || e->struct_size < least)
        return weir_fail(WEIR_ERR_ENGINE,
                         "%s has an engine table of version %u and %u bytes; this weir takes versions %d to %d and "
                         "from %zu bytes: build the plug-in with this weir's headers",
                         where, e->abi, e->struct_size, (int)WEIR_ENGINE_ABI_OLDEST, (int)WEIR_ENGINE_ABI, least);
    if (!factory_registry_good_name(e->name) || !e->probe || !e->load || !e->infer || !e->release_outputs || !e->info ||
        !e->unload)
        return weir_fail(WEIR_ERR_ENGINE,
                         "%s lacks its name or one of probe, load, infer, release_outputs, info, unload", where);
    return WEIR_OK;
}

/* A plug-in that is linked to another copy of libweir would have runtimes and budgets of its own. */
static bool same_library(void *plugin)
{
    void *theirs = dlsym(plugin, "weir_runtime_get");
    return theirs == NULL || theirs == (void *)(uintptr_t)weir_runtime_get;
}

static weir_status factory_registry_open_file(const char *path, const weir_engine **out)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin)
        return weir_fail(WEIR_ERR_ENGINE, "cannot open the plug-in %s: %s", path, dlerror());
    void *symbol = dlsym(plugin, "weir_engine_entry");
    if (!symbol) {
        dlclose(plugin);
        return weir_fail(WEIR_ERR_ENGINE, "%s is no plug-in: it exports no weir_engine_entry", path);
    }
    if (!same_library(plugin)) {
        dlclose(plugin);
        return weir_fail(WEIR_ERR_ENGINE,
                         "%s uses another libweir than this program; link the program to the shared library", path);
    }
    weir_engine_entry_fn entry;
    memcpy(&entry, &symbol, sizeof entry);
    const weir_engine *engine = entry(WEIR_ENGINE_ABI);
    weir_status status = factory_registry_check_table(engine, path);
    if (status == WEIR_OK)
        *out = engine;
    return status;
}

/* With the lock held. */
static const weir_engine *factory_registry_find(const char *name)
{
    for (size_t i = 0; i < engine_count; i++)
        if (strcmp(engines[i]->name, name) == 0)
            return engines[i];
    return NULL;
}

static weir_status factory_registry_add(const weir_engine *engine)
{
    if (engine_count == MOST_ENGINES)
        return weir_fail(WEIR_ERR_BUSY, "%d engines are known; there is no room for %s", (int)MOST_ENGINES,
                         engine->name);
    engines[engine_count++] = engine;
    return WEIR_OK;
}

const wi_own_engine wi_own_engines[WI_OWN_ENGINES] = {
    {"onnx", ".onnx",
     "it is built with weir (WEIR_ENGINES=ON), and " WEIR_ENGINES_COMMAND
     " onnxruntime gets the library that it opens"},
    {"gguf", ".gguf",
     WEIR_ENGINES_COMMAND " gets llama.cpp, and beside an installed weir builds the plug-in; in a checkout build weir "
                          "again after that"},
    {"llm", "genai_config.json",
     "it is built with weir (WEIR_ENGINES=ON), and " WEIR_ENGINES_COMMAND
     " onnxruntime-genai gets the library that it opens"}};

const wi_own_engine *wi_own_engine_of(const char *name)
{
    for (size_t i = 0; i < WI_OWN_ENGINES; i++)
        if (strcmp(wi_own_engines[i].name, name) == 0)
            return &wi_own_engines[i];
    return NULL;
}

static weir_status not_found(const char *name, const search *s)
{
    char places[600] = "";
    for (size_t i = 0; i < s->count; i++) {
        size_t length = strlen(places);
        snprintf(places + length, sizeof places - length, "%s%s", i ? ", " : "", s->directories[i]);
    }
    const wi_own_engine *own = wi_own_engine_of(name);
    return weir_fail(WEIR_ERR_NOT_FOUND,
                     "the engine %s is not here: weir-engine-%s.so is not in %s; %s; WEIR_ENGINE_PATH names "
                     "directories with others",
                     name, name, places, own ? own->way : "weir's own are onnx, gguf and llm");
}

static weir_status open_plugin(const char *name, const weir_engine **out)
{
    search *s = malloc(sizeof *s);
    if (!s)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to look for engines");
    find_directories(s);
    const weir_engine *engine = NULL;
    weir_status status = WEIR_ERR_NOT_FOUND;
    for (size_t i = 0; i < s->count && status == WEIR_ERR_NOT_FOUND; i++) {
        char path[PATH_MAX + 64];
        snprintf(path, sizeof path, "%s/weir-engine-%s.so", s->directories[i], name);
        if (access(path, F_OK) == 0)
            status = factory_registry_open_file(path, &engine);
    }
    if (status == WEIR_ERR_NOT_FOUND)
        status = not_found(name, s);
    free(s);
    if (status != WEIR_OK || !engine)
        return status;
    if (strcmp(engine->name, name) != 0)
        return weir_fail(WEIR_ERR_ENGINE, "the plug-in weir-engine-%s.so calls itself \"%s\"", name, engine->name);
    *out = engine;
    return WEIR_OK;
}

/* One after another ------------------------------------------------------------------------------------------------ */

static void factory_registry_enlist(asking **list, asking *one)
{
    one->next = *list;
    *list = one;
}

static void factory_registry_strike(asking **list, const asking *one)
{
    while (*list != one)
        list = &(*list)->next;
    *list = one->next;
}

static const asking *opener_of(const char *name)
{
    const asking *one = opening;
    while (one && strcmp(one->name, name) != 0)
        one = one->next;
    return one;
}

static const asking *factory_registry_wait_of(pthread_t thread)
{
    const asking *one = waiting;
    while (one && !pthread_equal(one->by, thread))
        one = one->next;
    return one;
}

/* Whether the opener waits, by way of others maybe, for what this thread is opening. With the lock held. */
static bool waits_for_me(const asking *opener)
{
    for (const asking *its; opener && !pthread_equal(opener->by, pthread_self()); opener = opener_of(its->name))
        if (!(its = factory_registry_wait_of(opener->by)))
            return false;
    return opener != NULL;
}

/* With the lock held. Waits until no other thread opens the engine. WEIR_ERR_CONFLICT: the thread that opens it waits,
 * directly or through other threads, for an engine that this thread is opening. */
static weir_status wait_for_opener(const char *name)
{
    asking mine = {.name = name, .by = pthread_self()};
    for (const asking *opener; (opener = opener_of(name));) {
        if (waits_for_me(opener))
            return weir_fail(WEIR_ERR_CONFLICT, "the engine \"%s\" is being opened, and waits for this very call",
                             name);
        factory_registry_enlist(&waiting, &mine);
        pthread_cond_wait(&opened, &lock);
        factory_registry_strike(&waiting, &mine);
    }
    return WEIR_OK;
}

/* With the lock held, which is let go meanwhile. What was registered by then under the name has it. */
static weir_status open_alone(const char *name, const weir_engine **out)
{
    asking mine = {.name = name, .by = pthread_self()};
    factory_registry_enlist(&opening, &mine);
    pthread_mutex_unlock(&lock);
    const weir_engine *engine = NULL;
    names *last = listed, before = last ? *last : (names){.count = 0}; /* whose thread may be going through it, and the
                                                                        * plug-in's entry may list engines, too */
    weir_status status = open_plugin(name, &engine);
    if ((last = listed))
        *last = before;
    pthread_mutex_lock(&lock);
    factory_registry_strike(&opening, &mine);
    pthread_cond_broadcast(&opened);
    if (status != WEIR_OK || !engine)
        return status;
    *out = factory_registry_find(name);
    if (*out)
        return WEIR_OK;
    *out = engine;
    return factory_registry_add(engine);
}

weir_status weir_engine_get(const char *name, const weir_engine **out)
{
    WI_ENTER();
    if (!out || !factory_registry_good_name(name))
        return weir_fail(WEIR_ERR_INVALID, "weir_engine_get: a name is 1 to 31 of a-z, 0-9 and -");
    const weir_engine *engine = NULL;
    char own[NAME_BYTES]; /* other threads read it, and the caller's may be a list's that changes meanwhile */
    snprintf(own, sizeof own, "%s", name);
    pthread_mutex_lock(&lock);
    weir_status status = WEIR_OK;
    if (!(engine = factory_registry_find(own)))
        status = wait_for_opener(own);
    if (status == WEIR_OK && !engine && !(engine = factory_registry_find(own)))
        status = open_alone(own, &engine);
    pthread_mutex_unlock(&lock);
    *out = status == WEIR_OK ? engine : NULL;
    return status;
}

weir_status weir_engine_register(const weir_engine *engine)
{
    WI_ENTER();
    weir_status status = factory_registry_check_table(engine, "the registered engine");
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&lock);
    if (factory_registry_find(engine->name))
        status = weir_fail(WEIR_ERR_CONFLICT, "there is an engine \"%s\" already", engine->name);
    else
        status = factory_registry_add(engine);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Listing ---------------------------------------------------------------------------------------------------------- */

static void factory_registry_add_name(names *list, const char *name, size_t length)
{
    if (list->count == MOST_ENGINES || length == 0 || length >= NAME_BYTES)
        return;
    for (size_t i = 0; i < list->count; i++)
        if (strlen(list->text[i]) == length && memcmp(list->text[i], name, length) == 0)
            return;
    char *text = list->text[list->count];
    memcpy(text, name, length);
    text[length] = '\0';
    list->count += factory_registry_good_name(text);
}

static void list_directory(names *list, const char *path)
{
    static const char prefix[] = "weir-engine-", suffix[] = ".so";
    DIR *directory = opendir(path);
    if (!directory)
        return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        size_t length = strlen(entry->d_name), before = sizeof prefix - 1, after = sizeof suffix - 1;
        if (length > before + after && strncmp(entry->d_name, prefix, before) == 0 &&
            strcmp(entry->d_name + length - after, suffix) == 0)
            factory_registry_add_name(list, entry->d_name + before, length - before - after);
    }
    closedir(directory);
}

static int factory_registry_by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void factory_registry_list_engines(names *list)
{
    list->count = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < engine_count; i++)
        factory_registry_add_name(list, engines[i]->name, strlen(engines[i]->name));
    pthread_mutex_unlock(&lock);
    search *s = malloc(sizeof *s);
    if (s) {
        find_directories(s);
        for (size_t i = 0; i < s->count; i++)
            list_directory(list, s->directories[i]);
    }
    free(s);
    qsort(list->text, list->count, sizeof list->text[0], factory_registry_by_name);
}

const char *weir_engine_name_at(size_t index)
{
    if (atomic_load(&wi_forked))
        return NULL;
    names *list = index == 0 ? wi_own(&listed, sizeof *list) : listed;
    if (index == 0 && list)
        factory_registry_list_engines(list);
    return list && index < list->count ? list->text[index] : NULL;
}

/* Choosing by file ------------------------------------------------------------------------------------------------- */

/* Weir's own plug-ins take files of known names. A plug-in that is open already is asked itself. */
static bool is_for_others(const char *name, const char *path)
{
    const wi_own_engine *own = wi_own_engine_of(name);
    if (!own || wi_path_taken(own->suffixes, path))
        return false;
    pthread_mutex_lock(&lock);
    bool open = factory_registry_find(name) != NULL;
    pthread_mutex_unlock(&lock);
    return !open;
}

weir_status wi_engine_for(const char *path, const weir_engine **out)
{
    enum { SPARING, BY_NAME, BY_CONTENT, PASSES };
    char tried[256] = "", failure[512] = "";
    const char *by_content = NULL;
    for (int pass = SPARING; pass < PASSES; pass++) {
        const char *name;
        if (pass == BY_CONTENT)
            by_content = wi_suffix_by_content(path);
        for (size_t i = 0; (name = weir_engine_name_at(i)); i++) {
            const weir_engine *engine = NULL;
            if (pass == SPARING && is_for_others(name, path)) /* the next pass opens all */
                continue;
            if (weir_engine_get(name, &engine) != WEIR_OK || !engine) {
                snprintf(failure, sizeof failure, "; ");
                wi_shorten(weir_detail(), failure + 2, sizeof failure - 2);
                continue;
            }
            if (by_content ? wi_suffix_of(engine->suffixes, by_content) : wi_path_taken(engine->suffixes, path)) {
                *out = engine;
                return WEIR_OK;
            }
            size_t length = strlen(tried);
            if (pass == BY_NAME)
                snprintf(tried + length, sizeof tried - length, "%s%s (%s)", length ? ", " : "", engine->name,
                         engine->suffixes ? engine->suffixes : "");
        }
    }
    struct stat about;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return weir_fail(
            WEIR_ERR_NOT_FOUND,
            "no engine here takes %s: it is a folder, and has no genai_config.json; name a model's file in "
            "it; there are: %s%s",
            path, tried[0] ? tried : "none", failure);
    return weir_fail(WEIR_ERR_NOT_FOUND,
                     "no engine here takes %s; there are: %s%s; " WEIR_ENGINES_COMMAND " gets others", path,
                     tried[0] ? tried : "none", failure);
}
