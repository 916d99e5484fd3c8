/* Which allocators an environment of ONNX Runtime's has for a device. ONNX Runtime replaces one silently when another is
 * registered, so that each step here looks first whose it is; and a session keeps the one that it finds when it is created. */
#include "onnxruntime/bridge.h"
#include <weir/onnxruntime.h>

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

/* Held from enter to leave, and for each change: all bridges' changes come one after the other. */
static pthread_mutex_t swaps = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool held; /* by this thread, which may be in a callback between enter and leave meanwhile */
static _Thread_local const weir_onnxruntime *inside; /* what the thread is between enter and leave of */
static weir_onnxruntime *below;                      /* what the entered one took the place of; under `swaps` */

/* What there is to say about a change, which the log is told when the lock is no longer held; under `swaps`. */
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

weir_status wi_ort_swap_begin(const char *call, const char *device)
{
    if (held)
        return weir_fail(WEIR_ERR_BUSY,
                         "%s: on %s this thread is between weir_onnxruntime_enter and leave: leave first", call,
                         device);
    pthread_mutex_lock(&swaps);
    held = true;
    return WEIR_OK;
}

bool wi_ort_look_begin(void)
{
    if (held)
        return false;
    pthread_mutex_lock(&swaps);
    held = true;
    return true;
}

void wi_ort_swap_end(void)
{
    const remarks now = said;
    said.count = 0;
    held = false;
    pthread_mutex_unlock(&swaps);
    for (size_t i = 0; i < now.count; i++)
        weir_log(now.list[i].level, "%s", now.list[i].text);
}

/* Whose is it ------------------------------------------------------------------------------------------------------- */

/* ONNX Runtime answers with its own allocator of the CPU's memory when nobody has registered one. Its functions are in the
 * same file as those of its interface. */
static bool is_of_the_library(const ort_api *api, const ort_allocator *allocator)
{
    Dl_info of_api, of_allocator;
    void *in_api, *in_allocator;
    memcpy(&in_api, &api->CreateEnv, sizeof in_api);
    memcpy(&in_allocator, &allocator->Alloc, sizeof in_allocator);
    return dladdr(in_api, &of_api) && dladdr(in_allocator, &of_allocator) && of_api.dli_fbase == of_allocator.dli_fbase;
}

/* False: ONNX Runtime did not tell, but in `text` why. */
static bool look_up(const weir_onnxruntime *bridge, const wi_ort_table *table, ort_allocator **found, char *text,
                    size_t capacity)
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
    (void)look_up(bridge, table, &found, text, sizeof text);
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
        call, (const void *)found, weir_kind_name(table->kind), bridge->runtime->name);
}

bool wi_ort_in_place(const weir_onnxruntime *bridge)
{
    const ort_allocator *found = shared(bridge, &bridge->device);
    return found && wi_ort_is_ours(found);
}

/* Changing ---------------------------------------------------------------------------------------------------------- */

static weir_status put(weir_onnxruntime *bridge, wi_ort_table *table, const char *call)
{
    char text[512];
    if (!table->info)
        return WEIR_OK;
    weir_status status = check_nobodys(bridge, table, call);
    if (status != WEIR_OK)
        return status;
    return wi_ort_failed(bridge->api, bridge->api->RegisterAllocator(bridge->env, &table->table), text, sizeof text)
               ? weir_fail(WEIR_ERR_ENGINE, "%s: ONNX Runtime's RegisterAllocator failed for the %s memory of %s: %s",
                           call, weir_kind_name(table->kind), bridge->runtime->name, text)
               : WEIR_OK;
}

static void take_away(weir_onnxruntime *bridge, wi_ort_table *table)
{
    ort_allocator *found;
    char text[384];
    if (!table->info)
        return;
    bool told = look_up(bridge, table, &found, text, sizeof text);
    table->stays = !told || (found == &table->table &&
                             wi_ort_failed(bridge->api, bridge->api->UnregisterAllocator(bridge->env, table->info),
                                           text, sizeof text));
    if (table->stays)
        wi_ort_say(WEIR_LOG_WARNING, "onnxruntime: the allocator for the %s memory of %s could not be unregistered: %s",
                   weir_kind_name(table->kind), bridge->runtime->name, text);
    else if (found != &table->table)
        wi_ort_say(
            WEIR_LOG_WARNING,
            "onnxruntime: somebody has replaced the bridge's allocator for the %s memory of %s, and stays in place",
            weir_kind_name(table->kind), bridge->runtime->name);
}

/* The table goes, and the one that it took the place of is back. Where ONNX Runtime keeps it, its record outlives its bridge. */
static void put_back(weir_onnxruntime *bridge, wi_ort_table *table, wi_ort_table *before, const char *call)
{
    table->stays = false;
    if (before && put(before->bridge, before, call) == WEIR_OK)
        return;
    if (before)
        wi_ort_say(WEIR_LOG_WARNING, "onnxruntime: the registered allocator could not be put back: %s", weir_detail());
    take_away(bridge, table);
}

weir_status wi_ort_put_in(weir_onnxruntime *bridge, weir_onnxruntime *before, const char *call)
{
    wi_kept_detail why;
    weir_status status = put(bridge, &bridge->device, call);
    if (status != WEIR_OK)
        return status;
    status = put(bridge, &bridge->pinned, call);
    if (status == WEIR_OK)
        return WEIR_OK;
    wi_detail_keep(&why);
    put_back(bridge, &bridge->device, before ? &before->device : NULL, call);
    wi_detail_restore(&why);
    return status;
}

void wi_ort_take_out(weir_onnxruntime *bridge, weir_onnxruntime *before, const char *call)
{
    put_back(bridge, &bridge->device, before ? &before->device : NULL, call);
    put_back(bridge, &bridge->pinned, before ? &before->pinned : NULL, call);
}

/* One session at a time --------------------------------------------------------------------------------------------- */

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
    weir_status status = wi_ort_swap_begin(call, bridge->runtime->name);
    if (status != WEIR_OK)
        return status;
    below = wi_ort_registered(bridge->env, bridge->runtime->name);
    status = below == bridge ? WEIR_OK : wi_ort_put_in(bridge, below, call);
    if (status != WEIR_OK) {
        wi_ort_swap_end();
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
        wi_ort_take_out(bridge, below, "weir_onnxruntime_leave");
    inside = NULL;
    wi_ort_swap_end();
}
