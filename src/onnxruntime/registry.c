/* The bridges that are registered for a device with an environment, for as long as a program wants. */
#include "onnxruntime/bridge.h"
#include <weir/onnxruntime.h>

/* Bridges that were registered. Those that have ended stay: a session that outlives the registration still calls them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static weir_onnxruntime *all;

static weir_onnxruntime *find(const ort_env *env, const char *device)
{
    weir_onnxruntime *bridge = all;
    while (bridge && !(bridge->registered && (!env || bridge->env == env) && strcmp(bridge->name, device) == 0))
        bridge = bridge->next;
    return bridge;
}

weir_onnxruntime *wi_ort_registered(const ort_env *env, const char *device)
{
    pthread_mutex_lock(&lock);
    weir_onnxruntime *bridge = find(env, device);
    pthread_mutex_unlock(&lock);
    return bridge;
}

static void enlist(weir_onnxruntime *bridge, bool registered)
{
    pthread_mutex_lock(&lock);
    bridge->registered = registered;
    bridge->next = all;
    all = bridge;
    pthread_mutex_unlock(&lock);
}

void wi_ort_keep_record(weir_onnxruntime *bridge)
{
    enlist(bridge, false);
}

static void strike(weir_onnxruntime *bridge)
{
    pthread_mutex_lock(&lock);
    bridge->registered = false;
    pthread_mutex_unlock(&lock);
}

/* Registering ------------------------------------------------------------------------------------------------------- */

static const char registering[] = "weir_onnxruntime_register";

static weir_status again(const weir_onnxruntime *bridge, const weir_onnxruntime_options *options)
{
    const char *device = bridge->name;
    if (!wi_ort_in_place(bridge))
        return weir_fail(WEIR_ERR_CONFLICT,
                         "%s: %s is registered for %s, and somebody else has put an allocator in its place: unregister "
                         "both first",
                         registering, weir_client_name(bridge->client), device);
    if (wi_ort_same(bridge, options))
        return WEIR_OK;
    if (bridge->client == options->client)
        return weir_fail(WEIR_ERR_CONFLICT,
                         "%s: %s is registered for %s with another stream or pool: unregister that first", registering,
                         weir_client_name(bridge->client), device);
    return weir_fail(WEIR_ERR_CONFLICT,
                     "%s: %s is registered for %s already, and %s cannot be, too: unregister that first, or give each "
                     "session a client of its own (weir_onnxruntime_create)",
                     registering, weir_client_name(bridge->client), device, weir_client_name(options->client));
}

static weir_status put_in(const weir_onnxruntime_options *options)
{
    weir_onnxruntime *bridge;
    weir_status status = wi_ort_open(options, registering, &bridge);
    if (status != WEIR_OK)
        return status;
    status = wi_ort_put_in(bridge, NULL, registering);
    if (status != WEIR_OK) {
        wi_ort_free(bridge);
        return status;
    }
    enlist(bridge, true);
    wi_ort_say(WEIR_LOG_INFO, "onnxruntime: %s serves the sessions on %s", weir_client_name(bridge->client),
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
    const char *device = weir_runtime_device(weir_client_runtime(given.client));
    status = wi_ort_swap_begin(registering, device);
    if (status != WEIR_OK)
        return status;
    const weir_onnxruntime *there = wi_ort_registered((const ort_env *)given.env, device);
    status = there ? again(there, &given) : put_in(&given);
    wi_ort_swap_end();
    return status;
}

/* Looking up -------------------------------------------------------------------------------------------------------- */

weir_onnxruntime *weir_onnxruntime_registered(const struct OrtEnv *env, const char *device)
{
    return device && !atomic_load(&wi_forked) ? wi_ort_registered((const ort_env *)env, device) : NULL;
}

bool weir_onnxruntime_is_registered(const struct OrtEnv *env, const char *device)
{
    if (atomic_load(&wi_forked))
        return false;
    bool begun = wi_ort_look_begin();
    const weir_onnxruntime *bridge = weir_onnxruntime_registered(env, device);
    bool is = bridge && wi_ort_in_place(bridge);
    if (begun)
        wi_ort_swap_end();
    return is;
}

weir_client *weir_onnxruntime_client(const struct OrtEnv *env, const char *device)
{
    const weir_onnxruntime *bridge = weir_onnxruntime_registered(env, device);
    return bridge ? bridge->client : NULL;
}

/* Unregistering ----------------------------------------------------------------------------------------------------- */

weir_status weir_onnxruntime_unregister(const struct OrtEnv *env, const char *device)
{
    static const char call[] = "weir_onnxruntime_unregister";
    WI_ENTER();
    if (!device)
        return weir_fail(WEIR_ERR_INVALID, "%s: no device", call);
    weir_status status = wi_ort_swap_begin(call, device);
    if (status != WEIR_OK)
        return status;
    weir_onnxruntime *bridge = wi_ort_registered((const ort_env *)env, device);
    status = bridge ? wi_ort_check_idle(bridge, call)
                    : weir_fail(WEIR_ERR_NOT_FOUND, "%s: nothing is registered for %s", call, device);
    if (status == WEIR_OK) {
        wi_ort_take_out(bridge, NULL, call);
        strike(bridge);
    }
    wi_ort_swap_end();
    if (status == WEIR_OK)
        wi_ort_end(bridge); /* waits for the device */
    return status;
}
