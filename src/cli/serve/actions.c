/* actions.c: models are loaded, unloaded, suspended and pinned by hand. Each such request has a thread of its own, as it may
 * wait for long, and is there just when all workers wait for a model. */
#include "serve.h"

#include "cli/text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ACTIONS = 32 };

typedef struct action {
    served *all;
    ws_request *request;
    void (*act)(const struct action *it, const char *name);
} action;

static atomic_uint under_way;

/* ---- what is done ------------------------------------------------------------------------------------------------ */

/* What it is afterwards. */
static void answer_state(const action *it, const char *name, json_t *receipt)
{
    weir_pool_entry entry;
    served_model *model = served_find(it->all, name);
    bool known = model && served_look(it->all, model, &entry);
    json_t *object = json_pack("{s:o, s:s, s:b}", "model", text_json(name), "state",
                               known ? weir_pool_state_name(entry.state) : "", "pinned", known && entry.pinned);
    json_object_set_new(object, "size", text_json_count(known ? entry.taken : 0));
    if (receipt)
        json_object_set_new(object, "receipt", receipt);
    answer_json(it->request, 200, object);
    served_drop(model);
}

static void actions_answer(const action *it, const char *name, weir_status status, json_t *receipt)
{
    if (status == WEIR_OK) {
        answer_state(it, name, receipt);
    } else {
        json_decref(receipt);
        answer_failure(it->request, status);
    }
}

/* Loads or resumes the model as a request for it would; the wait ends when the client disconnects. */
static void actions_load(const action *it, const char *name)
{
    served_run run = {.all = it->all, .request = it->request};
    if (!served_take(&run, name))
        return;
    served_leave(&run);
    answer_state(it, name, NULL);
}

static json_t *receipt_json(const weir_pool_receipt *receipt)
{
    json_t *holders = json_array();
    for (uint32_t i = 0; i < receipt->holders; i++)
        json_array_append_new(holders,
                              json_pack("{s:o, s:o, s:b}", "client", text_json(receipt->holder[i].client), "bytes",
                                        text_json_count(receipt->holder[i].bytes), "own", (int)receipt->holder[i].own));
    return json_pack("{s:b, s:o, s:o, s:o, s:o, s:f, s:f, s:o}", "complete", (int)receipt->complete, "before",
                     text_json_count(receipt->before_total), "returned", text_json_count(receipt->returned), "kept",
                     text_json_count(receipt->kept), "elsewhere", text_json_count(receipt->elsewhere), "drain_seconds",
                     receipt->drain_ms / 1e3, "unload_seconds", receipt->unload_ms / 1e3, "holders", holders);
}

static void actions_unload(const action *it, const char *name)
{
    weir_pool_receipt receipt = WEIR_INIT(weir_pool_receipt);
    weir_status status = weir_pool_unload(it->all->pool, name, 0, &receipt);
    actions_answer(it, name, status, status == WEIR_OK ? receipt_json(&receipt) : NULL);
}

static void actions_suspend(const action *it, const char *name)
{
    actions_answer(it, name, weir_pool_suspend(it->all->pool, name, 0), NULL);
}

static void actions_pin(const action *it, const char *name)
{
    actions_answer(it, name, weir_pool_pin(it->all->pool, name, true), NULL);
}

static void unpin(const action *it, const char *name)
{
    actions_answer(it, name, weir_pool_pin(it->all->pool, name, false), NULL);
}

static const struct {
    const char *name;
    void (*act)(const action *it, const char *name);
} actions[] = {{"load", actions_load},       {"resume", actions_load}, {"unload", actions_unload},
               {"suspend", actions_suspend}, {"pin", actions_pin},     {"unpin", unpin}};

/* ---- the request ------------------------------------------------------------------------------------------------- */

static void *actions_run(void *user)
{
    action *it = user;
    served_model *model = served_find(it->all, ws_segment(it->request, 0));
    it->act(it, model ? model->name : ws_segment(it->request, 0));
    served_drop(model);
    ws_request *request = it->request;
    free(it);
    atomic_fetch_sub(&under_way, 1);
    ws_end(request); /* from here on the server may go */
    return NULL;
}

/* A page of another port of this machine is no foreign Origin to the server, but what a browser sends for it says so. */
static bool from_other_page(const ws_request *request)
{
    const char *site = ws_header(request, "Sec-Fetch-Site");
    return site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0;
}

static bool actions_start(action *it)
{
    pthread_t thread;
    if (atomic_fetch_add(&under_way, 1) < MOST_ACTIONS && pthread_create(&thread, NULL, actions_run, it) == 0) {
        pthread_detach(thread);
        return true;
    }
    atomic_fetch_sub(&under_way, 1);
    return false;
}

void state_action(ws_request *request, void *all)
{
    const char *name = ws_segment(request, 1);
    action *it = NULL;
    if (from_other_page(request)) {
        ws_refuse(request, 403, "bad_origin", "models are moved by hand from this server's own page alone", 0);
        return;
    }
    for (size_t i = 0; i < sizeof actions / sizeof *actions && !it; i++)
        if (strcmp(actions[i].name, name) == 0) {
            it = text_zeroed(1, sizeof *it);
            *it = (action){.all = all, .request = request, .act = actions[i].act};
        }
    if (!it) {
        answer_failure(request, weir_fail(WEIR_ERR_NOT_FOUND,
                                          "'%.40s' cannot be done to a model: load, resume, unload, suspend, pin and "
                                          "unpin can",
                                          name));
        return;
    }
    ws_keep(request);
    if (actions_start(it))
        return;
    free(it);
    ws_refuse(request, 429, "queue_full", "too many models are loaded or unloaded by hand at once", 1);
    ws_end(request);
}
