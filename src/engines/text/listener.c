/* Pressure callbacks that ask a model for memory, and whose model may be unloaded while they run. */
#include "text.h"

#include <weir/pressure.h>

#include <pthread.h>
#include <stdlib.h>

/* It outlives the model by the calls that have not seen that the model goes; the registration frees it. */
struct wt_listener {
    weir_runtime *runtime;
    uint64_t id;
    void (*give_up)(void *model);
    pthread_mutex_t lock;
    pthread_cond_t left;
    void *model;     /* NULL: it is going */
    unsigned inside; /* calls that are in the model */
};

static void listener_on_pressure(const weir_pressure *pressure, void *user)
{
    wt_listener *listener = user;
    (void)pressure;
    pthread_mutex_lock(&listener->lock);
    void *model = listener->model;
    listener->inside += model != NULL;
    pthread_mutex_unlock(&listener->lock);
    if (!model)
        return;
    listener->give_up(model);
    pthread_mutex_lock(&listener->lock);
    if (--listener->inside == 0)
        pthread_cond_broadcast(&listener->left);
    pthread_mutex_unlock(&listener->lock);
}

static void gone(void *user)
{
    wt_listener *listener = user;
    pthread_cond_destroy(&listener->left);
    pthread_mutex_destroy(&listener->lock);
    free(listener);
}

weir_status wt_listener_begin(weir_runtime *runtime, void (*give_up)(void *model), void *model, wt_listener **out)
{
    weir_pressure_options options = WEIR_INIT(weir_pressure_options);
    wt_listener *listener = *out = calloc(1, sizeof *listener);
    if (!listener)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a pressure callback");
    listener->runtime = runtime;
    listener->give_up = give_up;
    listener->model = model;
    pthread_mutex_init(&listener->lock, NULL);
    pthread_cond_init(&listener->left, NULL);
    options.fn = listener_on_pressure;
    options.user = listener;
    options.gone = gone;
    weir_status status = weir_pressure_register_with(runtime, &options, &listener->id);
    if (status != WEIR_OK) {
        gone(listener);
        *out = NULL;
    }
    return status;
}

void wt_listener_end(wt_listener *listener)
{
    if (!listener)
        return;
    pthread_mutex_lock(&listener->lock);
    listener->model = NULL;
    while (listener->inside > 0)
        pthread_cond_wait(&listener->left, &listener->lock);
    pthread_mutex_unlock(&listener->lock);
    if (weir_pressure_unregister(listener->runtime, listener->id) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "an engine's pressure callback stays: %s", weir_detail());
}
