/* Which allocators an environment of ONNX Runtime's has for a device, and the bridges that are registered there for as
 * long as a program wants. ONNX Runtime silently replaces an allocator when another is registered, so each step here
 * first checks whose allocator is in place. A session keeps the allocator that was in place when the session was
 * created. */
#include "onnx/bridge/bridge.h"
#include <weir/onnxruntime.h>

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

/* Changes of an environment ---------------------------------------------------------------------------------------- */

/* Serializes the changes of all bridges. Held from enter to leave, and for each change. */
static pthread_mutex_t changes = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool held; /* by this thread, which may be in a callback between enter and leave meanwhile */
static _Thread_local const weir_onnxruntime *inside; /* what the thread is between enter and leave of */
static weir_onnxruntime *below;                      /* what the entered one took the place of; under `changes` */

/* What there is to say about a change, which the log is told when the lock is no longer held; under `changes`. */
enum { REMARKS_MOST = 8 }; /* one change makes fewer */

typedef struct remarks {
    size_t count;
    struct remark {
        weir_log_level level;
        char text[512];
    } list[REMARKS_MOST];
} remarks;

static remarks said;

void wi_ort_say(weir_log_level level, const char *format, ...)
{
    struct remark now = {.level = level};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(now.text, sizeof now.text, format, arguments);
    va_end(arguments);
    if (!held)
        weir_log(level, "%s", now.text);
    else if (said.count < REMARKS_MOST)
        said.list[said.count++] = now;
}

/* registry.c: which allocators the environment has. One thread at a time is between begin and end. */
static weir_status begin_change(const char *call, const char *device)
{
    if (held)
        return weir_fail(WEIR_ERR_BUSY,
                         "%s: on %s this thread is between weir_onnxruntime_enter and leave: leave first", call,
                         device);
    pthread_mutex_lock(&changes);
    held = true;
    return WEIR_OK;
}

/* The same to look only, which a thread that is between them, or enter and leave, may do, too: false then, and no
 * end. */
static bool begin_look(void)
{
    if (held)
        return false;
    pthread_mutex_lock(&changes);
    held = true;
    return true;
}

/* Tells the log what was said in between. */
static void end_change(void)
{
    const remarks now = said;
    said.count = 0;
    held = false;
    pthread_mutex_unlock(&changes);
    for (size_t i = 0; i < now.count; i++)
        weir_log(now.list[i].level, "%s", now.list[i].text);
}

/* Whose is it ------------------------------------------------------------------------------------------------------ */

/* ONNX Runtime answers with its own allocator of the CPU's memory when nobody has registered one. Its functions are in
 * the same file as those of its interface. */
static bool is_of_the_library(const ort_api *api, const ort_allocator *allocator)
{
    Dl_info of_api, of_allocator;
    void *in_api, *in_allocator;
    memcpy(&in_api, &api->CreateEnv, sizeof in_api);
    memcpy(&in_allocator, &allocator->Alloc, sizeof in_allocator);
    return dladdr(in_api, &of_api) && dladdr(in_allocator, &of_allocator) && of_api.dli_fbase == of_allocator.dli_fbase;
}

/* False: ONNX Runtime did not tell, but in `text` why. */
static bool bridge_registry_look_up(const weir_onnxruntime *bridge, const wi_ort_table *table, ort_allocator **found,
                                    char *text, size_t capacity)
{
    *found = NULL;
    bool told =
        !wi_ort_failed(bridge->api, bridge->api->GetSharedAllocator(bridge->env, table->info, found), text, capacity);
    if (!told)
        *found = NULL;
    return told;
}

static ort_allocator *shared(const weir_onnxruntime *bridge, const wi_ort_table *table)
{
    ort_allocator *found;
    char text[256];
    (void)bridge_registry_look_up(bridge, table, &found, text, sizeof text);
    return found;
}

static weir_status check_nobodys(const weir_onnxruntime *bridge, const wi_ort_table *table, const char *call)
{
    const ort_allocator *found = shared(bridge, table);
    if (!found || wi_ort_is_ours(found) || (bridge->on_host && is_of_the_library(bridge->api, found)))
        return WEIR_OK;
    return weir_fail(
        WEIR_ERR_CONFLICT,
        "%s: somebody else has registered an allocator (%p) for the %s memory of %s with this environment; "
        "unregister that first",
        call, (const void *)found, weir_name_of(WEIR_NAMES_KIND, table->kind), bridge->runtime->name);
}

/* True: the allocator in place is the bridge's, or of another bridge entered meanwhile. */
static bool in_place(const weir_onnxruntime *bridge)
{
    const ort_allocator *found = shared(bridge, &bridge->device);
    return found && wi_ort_is_ours(found);
}

/* Changing --------------------------------------------------------------------------------------------------------- */

static weir_status bridge_registry_put(weir_onnxruntime *bridge, wi_ort_table *table, const char *call)
{
    char text[512];
    if (!table->info)
        return WEIR_OK;
    weir_status status = check_nobodys(bridge, table, call);
    if (status != WEIR_OK)
        return status;
    return wi_ort_failed(bridge->api, bridge->api->RegisterAllocator(bridge->env, &table->table), text, sizeof text)
               ? weir_fail(WEIR_ERR_ENGINE, "%s: ONNX Runtime's RegisterAllocator failed for the %s memory of %s: %s",
                           call, weir_name_of(WEIR_NAMES_KIND, table->kind), bridge->runtime->name, text)
               : WEIR_OK;
}

static void take_away(weir_onnxruntime *bridge, wi_ort_table *table)
{
    ort_allocator *found;
    char text[384];
    if (!table->info)
        return;
    bool told = bridge_registry_look_up(bridge, table, &found, text, sizeof text);
    table->stays = !told || (found == &table->table &&
                             wi_ort_failed(bridge->api, bridge->api->UnregisterAllocator(bridge->env, table->info),
                                           text, sizeof text));
    if (table->stays)
        wi_ort_say(WEIR_LOG_WARNING, "onnxruntime: the allocator for the %s memory of %s could not be unregistered: %s",
                   weir_name_of(WEIR_NAMES_KIND, table->kind), bridge->runtime->name, text);
    else if (found != &table->table)
        wi_ort_say(
            WEIR_LOG_WARNING,
            "onnxruntime: somebody has replaced the bridge's allocator for the %s memory of %s, and stays in place",
            weir_name_of(WEIR_NAMES_KIND, table->kind), bridge->runtime->name);
}

/* Takes the table out, and puts back the table `before`, if any. If ONNX Runtime does not give the table up, the record
 * outlives the bridge. */
static void bridge_registry_put_back(weir_onnxruntime *bridge, wi_ort_table *table, wi_ort_table *before,
                                     const char *call)
{
    table->stays = false;
    if (before && bridge_registry_put(before->bridge, before, call) == WEIR_OK)
        return;
    if (before)
        wi_ort_say(WEIR_LOG_WARNING, "onnxruntime: the registered allocator could not be put back: %s", weir_detail());
    take_away(bridge, table);
}

/* Puts the bridge's tables in place of those of `before`, which take_out puts back; NULL: none. */
static weir_status bridge_registry_put_in(weir_onnxruntime *bridge, weir_onnxruntime *before, const char *call)
{
    wi_saved_detail why;
    weir_status status = bridge_registry_put(bridge, &bridge->device, call);
    if (status != WEIR_OK)
        return status;
    status = bridge_registry_put(bridge, &bridge->pinned, call);
    if (status == WEIR_OK)
        return WEIR_OK;
    wi_detail_save(&why);
    bridge_registry_put_back(bridge, &bridge->device, before ? &before->device : NULL, call);
    wi_detail_restore(&why);
    return status;
}

static void bridge_registry_take_out(weir_onnxruntime *bridge, weir_onnxruntime *before, const char *call)
{
    bridge_registry_put_back(bridge, &bridge->device, before ? &before->device : NULL, call);
    bridge_registry_put_back(bridge, &bridge->pinned, before ? &before->pinned : NULL, call);
}

/* One session at a time -------------------------------------------------------------------------------------------- */

bool wi_ort_is_inside(const weir_onnxruntime *bridge)
{
    return inside == bridge;
}

weir_status weir_onnxruntime_enter(weir_onnxruntime *bridge)
{
    static const char call[] = "weir_onnxruntime_enter";
    WI_ENTER();
    if (!bridge)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    weir_status status = begin_change(call, bridge->runtime->name);
    if (status != WEIR_OK)
        return status;
    below = wi_ort_registered(bridge->env, bridge->runtime->name);
    status = below == bridge ? WEIR_OK : bridge_registry_put_in(bridge, below, call);
    if (status != WEIR_OK) {
        end_change();
        return status;
    }
    inside = bridge;
    atomic_store(&bridge->loading, true);
    return WEIR_OK;
}

void weir_onnxruntime_leave(weir_onnxruntime *bridge)
{
    if (!bridge || inside != bridge)
        return;
    atomic_store(&bridge->loading, false);
    if (below != bridge)
        bridge_registry_take_out(bridge, below, "weir_onnxruntime_leave");
    inside = NULL;
    end_change();
}

/* Registered bridges ----------------------------------------------------------------------------------------------- */

/* Bridges that were registered. Those that have ended stay: a session that outlives the registration still calls
 * them. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static weir_onnxruntime *all;

static weir_onnxruntime *bridge_registry_find(const ort_env *env, const char *device)
{
    weir_onnxruntime *bridge = all;
    while (bridge && !(bridge->registered && (!env || bridge->env == env) && strcmp(bridge->name, device) == 0))
        bridge = bridge->next;
    return bridge;
}

weir_onnxruntime *wi_ort_registered(const ort_env *env, const char *device)
{
    pthread_mutex_lock(&registry_lock);
    weir_onnxruntime *bridge = bridge_registry_find(env, device);
    pthread_mutex_unlock(&registry_lock);
    return bridge;
}

static void bridge_registry_enlist(weir_onnxruntime *bridge, bool registered)
{
    pthread_mutex_lock(&registry_lock);
    bridge->registered = registered;
    bridge->next = all;
    all = bridge;
    pthread_mutex_unlock(&registry_lock);
}

void wi_ort_keep_record(weir_onnxruntime *bridge)
{
    bridge_registry_enlist(bridge, false);
}

static void bridge_registry_strike(weir_onnxruntime *bridge)
{
    pthread_mutex_lock(&registry_lock);
    bridge->registered = false;
    pthread_mutex_unlock(&registry_lock);
}

/* Registering ------------------------------------------------------------------------------------------------------ */

static const char registering[] = "weir_onnxruntime_register";

static weir_status again(const weir_onnxruntime *bridge, const weir_onnxruntime_options *options)
{
    const char *device = bridge->name;
    if (!in_place(bridge))
        return weir_fail(WEIR_ERR_CONFLICT,
                         "%s: %s is registered for %s, and somebody else has put an allocator in its place: unregister "
                         "both first",
                         registering, wi_client_name(bridge->client), device);
    if (wi_ort_same(bridge, options))
        return WEIR_OK;
    if (bridge->client == options->client)
        return weir_fail(WEIR_ERR_CONFLICT,
                         "%s: %s is registered for %s with another stream or pool: unregister that first", registering,
                         wi_client_name(bridge->client), device);
    return weir_fail(WEIR_ERR_CONFLICT,
                     "%s: %s is registered for %s already, and %s cannot be, too: unregister that first, or give each "
                     "session a client of its own (weir_onnxruntime_create)",
                     registering, wi_client_name(bridge->client), device, wi_client_name(options->client));
}

static weir_status register_new(const weir_onnxruntime_options *options)
{
    weir_onnxruntime *bridge;
    weir_status status = wi_ort_open(options, registering, &bridge);
    if (status != WEIR_OK)
        return status;
    status = bridge_registry_put_in(bridge, NULL, registering);
    if (status != WEIR_OK) {
        wi_ort_free(bridge);
        return status;
    }
    bridge_registry_enlist(bridge, true);
    wi_ort_say(WEIR_LOG_INFO, "onnxruntime: %s serves the sessions on %s", wi_client_name(bridge->client),
               bridge->name);
    return WEIR_OK;
}

weir_status weir_onnxruntime_register(const weir_onnxruntime_options *options)
{
    weir_onnxruntime_options given;
    WI_ENTER();
    weir_status status = WI_COPY_IN(weir_onnxruntime_options, &given, options, registering);
    if (status == WEIR_OK)
        status = wi_ort_check(&given, registering);
    if (status != WEIR_OK)
        return status;
    const char *device = wi_runtime_device(weir_client_runtime(given.client));
    status = begin_change(registering, device);
    if (status != WEIR_OK)
        return status;
    const weir_onnxruntime *there = wi_ort_registered((const ort_env *)given.env, device);
    status = there ? again(there, &given) : register_new(&given);
    end_change();
    return status;
}

/* Looking up ------------------------------------------------------------------------------------------------------- */

weir_onnxruntime *weir_onnxruntime_registered(const struct OrtEnv *env, const char *device)
{
    if (!device || atomic_load(&wi_forked))
        return NULL;
    bool begun = begin_look();
    weir_onnxruntime *bridge = wi_ort_registered((const ort_env *)env, device);
    if (bridge && !in_place(bridge))
        bridge = NULL;
    if (begun)
        end_change();
    return bridge;
}

/* Unregistering ---------------------------------------------------------------------------------------------------- */

weir_status weir_onnxruntime_unregister(const struct OrtEnv *env, const char *device)
{
    static const char call[] = "weir_onnxruntime_unregister";
    WI_ENTER();
    if (!device)
        return weir_fail(WEIR_ERR_INVALID, "%s: no device", call);
    weir_status status = begin_change(call, device);
    if (status != WEIR_OK)
        return status;
    weir_onnxruntime *bridge = wi_ort_registered((const ort_env *)env, device);
    status = bridge ? wi_ort_check_idle(bridge, call)
                    : weir_fail(WEIR_ERR_NOT_FOUND, "%s: nothing is registered for %s", call, device);
    if (status == WEIR_OK) {
        bridge_registry_take_out(bridge, NULL, call);
        bridge_registry_strike(bridge);
    }
    end_change();
    if (status == WEIR_OK)
        wi_ort_end(bridge); /* waits for the device */
    return status;
}
