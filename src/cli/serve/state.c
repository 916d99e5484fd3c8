/* state.c: the state of a server as one JSON object: devices, models, requests under way and waiting, what has happened. */
#include "serve.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { MOST_EVENTS = 100, MOST_REQUESTS = 200, LOOK_SECONDS = 1 };

typedef struct happened {
    uint64_t number; /* from 1; 0: none yet */
    weir_pool_event_kind kind;
    double time;
    uint64_t bytes;
    char name[64], device[32], detail[400];
} happened;

struct served_state {
    pthread_mutex_t lock;
    served_run *runs; /* the newest first */
    happened events[MOST_EVENTS];
    uint64_t happened;
    history *past;
    pthread_t watcher;
    pthread_cond_t over;
    bool watches, ends;
};

static double seconds_since_1970(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* ---- making, watching, ending ------------------------------------------------------------------------------------ */

served_state *state_create(void)
{
    served_state *state = calloc(1, sizeof *state);
    history *past = history_create();
    if (!state || !past) {
        free(state);
        history_free(past);
        return NULL;
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&state->lock, NULL);
    pthread_cond_init(&state->over, &monotonic);
    pthread_condattr_destroy(&monotonic);
    state->past = past;
    return state;
}

/* True: the end has come meanwhile. */
static bool ends_within(served_state *state, time_t seconds)
{
    struct timespec until;
    int error = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    pthread_mutex_lock(&state->lock);
    while (!state->ends && error == 0)
        error = pthread_cond_timedwait(&state->over, &state->lock, &until);
    bool ends = state->ends;
    pthread_mutex_unlock(&state->lock);
    return ends;
}

static void *serve_state_watch(void *user)
{
    served *all = user;
    do
        history_look(all->state->past, all->pool, seconds_since_1970());
    while (!ends_within(all->state, LOOK_SECONDS));
    return NULL;
}

void state_watch(served *all)
{
    served_state *state = all->state;
    if (state)
        state->watches = pthread_create(&state->watcher, NULL, serve_state_watch, all) == 0;
    if (!state || !state->watches)
        weir_log(WEIR_LOG_WARNING, "serve: no thread that looks at the memory: the page has no past to show");
}

void state_unwatch(served_state *state)
{
    if (!state || !state->watches)
        return;
    pthread_mutex_lock(&state->lock);
    state->ends = true;
    pthread_cond_broadcast(&state->over);
    pthread_mutex_unlock(&state->lock);
    pthread_join(state->watcher, NULL);
    state->watches = false;
}

void state_free(served_state *state)
{
    if (!state)
        return;
    history_free(state->past);
    pthread_cond_destroy(&state->over);
    pthread_mutex_destroy(&state->lock);
    free(state);
}

/* ---- what is noted ----------------------------------------------------------------------------------------------- */

void state_event(served_state *state, const weir_pool_event *event)
{
    if (!state || event->kind == WEIR_POOL_EVENT_DECIDED)
        return;
    uint64_t at = cli_now();
    happened one = {.kind = event->kind, .bytes = event->bytes};
    one.time = seconds_since_1970() - (double)(at > event->time ? at - event->time : 0) * 1e-9;
    snprintf(one.name, sizeof one.name, "%s", event->name);
    snprintf(one.device, sizeof one.device, "%s", event->device);
    char *detail = text_clean(event->detail, strlen(event->detail), false);
    text_cut(detail, sizeof one.detail - 1);
    snprintf(one.detail, sizeof one.detail, "%s", detail);
    free(detail);
    pthread_mutex_lock(&state->lock);
    one.number = ++state->happened;
    state->events[one.number % MOST_EVENTS] = one;
    pthread_mutex_unlock(&state->lock);
}

void state_run_begins(served_run *run)
{
    served_state *state = run->all->state;
    run->since = cli_now();
    run->granted = 0;
    if (!state)
        return;
    pthread_mutex_lock(&state->lock);
    run->next = state->runs;
    state->runs = run;
    pthread_mutex_unlock(&state->lock);
}

void state_run_granted(served_run *run, served_model *version)
{
    served_state *state = run->all->state;
    served_model *before = run->model;
    if (state)
        pthread_mutex_lock(&state->lock);
    run->granted = cli_now();
    run->model = version;
    if (state)
        pthread_mutex_unlock(&state->lock);
    served_drop(before);
}

void state_run_ends(served_run *run)
{
    served_state *state = run->all->state;
    if (!state)
        return;
    pthread_mutex_lock(&state->lock);
    served_run **link = &state->runs;
    while (*link && *link != run)
        link = &(*link)->next;
    if (*link)
        *link = run->next;
    pthread_mutex_unlock(&state->lock);
}

/* ---- what is shown ----------------------------------------------------------------------------------------------- */

static json_t *serve_state_seconds_json(uint64_t nanoseconds)
{
    return json_real((double)nanoseconds * 1e-9);
}

/* Adds reason, position in the queue and expected time to a request that waits. */
static void add_wait(weir_pool *pool, json_t *object, uint64_t id)
{
    weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
    if (weir_pool_waiting(pool, id, &answer) != WEIR_OK)
        return;
    json_object_set_new(object, "reason", json_string(weir_pool_cause_name(answer.cause)));
    json_object_set_new(object, "position", text_json_count(answer.position));
    json_object_set_new(object, "expected", answer.expected ? serve_state_seconds_json(answer.expected) : json_null());
}

/* The pool is asked without the lock, as a run is noted while the pool may be busy. */
static json_t *requests_json(served *all)
{
    served_state *state = all->state;
    json_t *list = json_array(), *one;
    size_t at, count = 0;
    pthread_mutex_lock(&state->lock);
    for (const served_run *run = state->runs; run && count < MOST_REQUESTS; run = run->next, count++)
        json_array_insert_new(
            list, 0,
            json_pack("{s:o, s:o, s:o, s:s, s:o}", "id", text_json_count(run->id), "model",
                      text_json(run->model ? run->model->name : "?"), "path", text_json(ws_path(run->request)), "state",
                      run->granted ? "running" : "waiting", "seconds",
                      serve_state_seconds_json(cli_now() - (run->granted ? run->granted : run->since))));
    pthread_mutex_unlock(&state->lock);
    json_array_foreach(list, at, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "state")), "waiting") == 0)
            add_wait(all->pool, one, (uint64_t)json_integer_value(json_object_get(one, "id")));
    }
    return list;
}

static const char *const event_names[WEIR_POOL_EVENT_COUNT] = {"decided",   "loading", "loaded",   "failed",
                                                               "suspended", "resumed", "unloaded", "removed",
                                                               "unhealthy", "refused", "stopped",  "promised"};

static json_t *events_json(served_state *state)
{
    json_t *list = json_array();
    pthread_mutex_lock(&state->lock);
    uint64_t first = state->happened > MOST_EVENTS ? state->happened - MOST_EVENTS + 1 : 1;
    for (uint64_t i = first; i <= state->happened; i++) {
        const happened *e = &state->events[i % MOST_EVENTS];
        json_array_append_new(list, json_pack("{s:o, s:f, s:s, s:o, s:o, s:o, s:o}", "number",
                                              text_json_count(e->number), "time", e->time, "what", event_names[e->kind],
                                              "model", text_json(e->name), "device", text_json(e->device), "bytes",
                                              text_json_count(e->bytes), "detail", text_json(e->detail)));
    }
    pthread_mutex_unlock(&state->lock);
    return list;
}

static void add_counts(json_t *object, const weir_pool_entry *entry, served_model *model)
{
    served_statistics its = {.runs = 0};
    if (model)
        served_counted(model, &its);
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"loads", entry->loads},         {"resumes", entry->resumes},      {"suspends", entry->suspends},
                  {"evictions", entry->evictions}, {"failures", entry->failures},    {"runs", its.runs},
                  {"runs_failed", its.failures},   {"runs_cancelled", its.cancelled}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(object, counts[i].key, text_json_count(counts[i].value));
    json_object_set_new(object, "run_seconds", serve_state_seconds_json(its.computed));
}

/* What it costs: bytes, and the time to have it back. */
static json_t *serve_state_model_json(served *all, const weir_pool_entry *entry)
{
    served_model *model = served_version(all, entry->name, entry->version);
    char *obstacle = served_obstacle(all, entry);
    json_t *object =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:b}", "name", text_json(entry->name), "version",
                  text_json(entry->version), "engine", text_json(model ? model->engine : ""), "provider",
                  text_json(model ? model->provider : ""), "device", text_json(entry->device), "state",
                  weir_pool_state_name(entry->state), "current", (int)entry->current, "pinned", (int)entry->pinned);
    json_object_set_new(object, "why", text_json(entry->why[0] ? entry->why : obstacle ? obstacle : ""));
    json_object_set_new(object, "can_suspend", json_boolean(entry->can_suspend));
    json_object_set_new(object, "size", text_json_count(entry->taken));
    json_object_set_new(object, "promised", text_json_count(entry->promised));
    json_object_set_new(object, "predicted_peak", text_json_count(entry->predicted_peak));
    json_object_set_new(object, "measured_peak", text_json_count(entry->measured_peak));
    json_object_set_new(object, "predicted", cli_classes_json(entry->predicted));
    json_object_set_new(object, "measured", cli_classes_json(entry->measured));
    json_object_set_new(object, "running", text_json_count(entry->running));
    json_object_set_new(object, "waiting", text_json_count(entry->waiting));
    json_object_set_new(object, "expires",
                        entry->expires == WEIR_POOL_NONE ? json_null() : serve_state_seconds_json(entry->expires));
    json_object_set_new(object, "load_seconds", serve_state_seconds_json(entry->load_time));
    json_object_set_new(object, "resume_seconds", serve_state_seconds_json(entry->resume_time));
    json_object_set_new(object, "progress",
                        entry->state == WEIR_POOL_LOADING ? json_real(entry->progress) : json_null());
    add_counts(object, entry, model);
    served_drop(model);
    free(obstacle);
    return object;
}

static int serve_state_by_name(const void *a, const void *b)
{
    const weir_pool_entry *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (int)y->current - (int)x->current;
}

/* Lists the versions that the pool knows, including versions that are being removed. */
static json_t *models_json(served *all)
{
    json_t *list = json_array();
    size_t count;
    weir_pool_entry *entries = served_entries(all, &count);
    qsort(entries, count, sizeof *entries, serve_state_by_name); /* one that was unloaded by hand is the pool's last */
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, serve_state_model_json(all, &entries[i]));
    free(entries);
    return list;
}

static json_t *http_json(ws_server *server)
{
    ws_server_stats s;
    ws_server_info(server, &s);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "connections", text_json_count(s.connections), "requests",
                     text_json_count(s.requests), "waiting", text_json_count(s.waiting), "handled",
                     text_json_count(s.handled), "streams", text_json_count(s.streams), "cancelled",
                     text_json_count(s.cancelled));
}

static void serve_state_refuse_unknown(ws_request *request)
{
    ws_refuse(request, 503, "no_state", "the server keeps no state, as it had no memory for it", 0);
}

void state_now(ws_request *request, void *user)
{
    served *all = user;
    ws_server *server = ws_server_of(request);
    json_t *devices = json_array(), *device;
    if (!all->state) {
        json_decref(devices);
        serve_state_refuse_unknown(request);
        return;
    }
    for (size_t i = 0; (device = device_json(all->pool, i)); i++)
        json_array_append_new(devices, device);
    ws_add_header(request, "Cache-Control", "no-store");
    answer_json(request, 200,
                json_pack("{s:s, s:s, s:i, s:f, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "weir", weir_version(), "address",
                          ws_server_address(server), "pid", (int)getpid(), "time", seconds_since_1970(), "began",
                          (json_int_t)all->began, "devices", devices, "cores", cores_json(), "models", models_json(all),
                          "requests", requests_json(all), "http", http_json(server), "events",
                          events_json(all->state)));
}

void state_history(ws_request *request, void *user)
{
    const served *all = user;
    if (!all->state) {
        serve_state_refuse_unknown(request);
        return;
    }
    ws_add_header(request, "Cache-Control", "no-store");
    answer_json(request, 200, history_json(all->state->past));
}

/* ---- the page at /, which is the same for everybody; its data comes from /weir, which needs a key ---------------- */

enum { NONCE_BYTES = 16 };

/* Only the style and the script that carry it count: of anything that got into the page otherwise nothing would be run. */
static bool make_nonce(char text[2 * NONCE_BYTES + 1])
{
    unsigned char bytes[NONCE_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

static void page_put(FILE *file, const char *mark, void *nonce)
{
    if (strcmp(mark, "nonce") == 0)
        fputs(nonce, file);
    else if (strcmp(mark, "version") == 0)
        text_html(file, weir_version());
}

void state_page(ws_request *request, void *all)
{
    char nonce[2 * NONCE_BYTES + 1], policy[320];
    char *text = NULL;
    size_t bytes = 0;
    (void)all;
    if (!make_nonce(nonce)) {
        ws_refuse(request, 500, "internal_error", "the system has no random bytes", 0);
        return;
    }
    snprintf(policy, sizeof policy,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; img-src data:; "
             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             nonce, nonce);
    ws_add_header(request, "Content-Security-Policy", policy);
    ws_add_header(request, "X-Content-Type-Options", "nosniff");
    ws_add_header(request, "X-Frame-Options", "DENY");
    ws_add_header(request, "Referrer-Policy", "no-referrer");
    ws_add_header(request, "Cache-Control", "no-store");
    FILE *file = text_stream(&text, &bytes);
    text_page(file, serve_page, page_put, nonce);
    fclose(file);
    ws_answer_own(request, 200, "text/html; charset=utf-8", text, bytes);
}
