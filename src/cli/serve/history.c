/* history.c: the memory of a server's devices now, and over the last quarter of an hour. */
#include "serve.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 900, MOST_SERIES = 512, MOST_CLIENTS = 256, AWAY = WEIR_CLASS_COUNT };

/* The past of a client in a class. */
typedef struct series {
    char device[32], client[64];
    int memory_class;       /* AWAY: bytes that are away */
    uint64_t last;          /* the last point with bytes */
    uint64_t bytes[POINTS]; /* as a ring */
} series;

struct history {
    pthread_mutex_t lock;
    double times[POINTS];
    uint64_t points; /* ever; the newest has the number points - 1 */
    series *list;
    size_t count;
};

history *history_create(void)
{
    history *past = calloc(1, sizeof *past);
    if (past)
        pthread_mutex_init(&past->lock, NULL);
    return past;
}

void history_free(history *past)
{
    if (!past)
        return;
    free(past->list);
    pthread_mutex_destroy(&past->lock);
    free(past);
}

/* ---- a device now ------------------------------------------------------------------------------------------------ */

typedef struct device_look {
    weir_pool_usage usage;
    weir_stats stats;
    weir_client_stats *clients;
    size_t count; /* the entries of `clients` */
    size_t there;
} device_look;

/* False: there is no such device. */
static bool serve_history_look(weir_pool *pool, size_t index, device_look *out)
{
    weir_runtime *runtime;
    *out = (device_look){.usage = WEIR_INIT(weir_pool_usage), .stats = WEIR_INIT(weir_stats)};
    if (weir_pool_usage_info(pool, index, &out->usage) != WEIR_OK ||
        weir_runtime_get(out->usage.device, NULL, &runtime) != WEIR_OK)
        return false;
    out->clients = text_zeroed(MOST_CLIENTS, sizeof *out->clients);
    out->clients[0].struct_size = sizeof *out->clients;
    if (weir_snapshot(runtime, &out->stats, out->clients, MOST_CLIENTS, &out->there) != WEIR_OK)
        out->there = 0;
    out->count = out->there < MOST_CLIENTS ? out->there : MOST_CLIENTS;
    return true;
}

static json_t *history_client_json(const weir_client_stats *client)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "name", text_json(client->name),
                     "live", text_json_count(client->live), "pending", text_json_count(client->pending), "away",
                     text_json_count(client->away), "guaranteed", text_json_count(client->guaranteed), "maximum",
                     text_json_count(client->maximum), "peak", text_json_count(client->peak), "refusals",
                     text_json_count(client->refusals), "predicted", text_json_count(client->predicted), "residency",
                     weir_name_of(WEIR_NAMES_RESIDENCY, (int)client->residency), "live_class",
                     cli_classes_json(client->live_class), "peak_class", cli_classes_json(client->peak_class));
}

json_t *device_json(weir_pool *pool, size_t index)
{
    device_look now;
    if (!serve_history_look(pool, index, &now))
        return NULL;
    const weir_stats *s = &now.stats;
    json_t *list = json_array();
    for (size_t i = 0; i < now.count; i++)
        json_array_append_new(list, history_client_json(&now.clients[i]));
    free(now.clients);
    json_t *object =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "device", text_json(now.usage.device), "budget",
                  text_json_count(s->budget), "ceiling", text_json_count(now.usage.ceiling), "taken",
                  text_json_count(now.usage.taken), "waiting", text_json_count(now.usage.waiting), "client_count",
                  text_json_count(now.there), "refusals", text_json_count(s->refusals), "clients", list);
    const struct {
        const char *key;
        uint64_t value;
    } sums[] = {{"live", s->live},     {"pending", s->pending},
                {"cached", s->cached}, {"spare", s->spare},
                {"held", s->held},     {"peak", s->peak},
                {"away", s->away},     {"guaranteed", s->guaranteed},
                {"frees", s->frees},   {"allocations", s->allocations}};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        json_object_set_new(object, sums[i].key, text_json_count(sums[i].value));
    return object;
}

/* ---- the past ---------------------------------------------------------------------------------------------------- */

static series *history_series_of(history *past, const char *device, const char *client, int memory_class)
{
    for (size_t i = 0; i < past->count; i++) {
        series *s = &past->list[i];
        if (s->memory_class == memory_class && strcmp(s->client, client) == 0 && strcmp(s->device, device) == 0)
            return s;
    }
    if (past->count == MOST_SERIES)
        return NULL;
    past->list = text_grow(past->list, past->count + 1, sizeof *past->list);
    series *s = &past->list[past->count++];
    memset(s, 0, sizeof *s);
    s->memory_class = memory_class;
    snprintf(s->device, sizeof s->device, "%s", device);
    snprintf(s->client, sizeof s->client, "%s", client);
    return s;
}

/* Several clients may have one name: a version and the next one. */
static void history_add(history *past, const char *device, const char *client, int memory_class, uint64_t bytes)
{
    series *s = bytes ? history_series_of(past, device, client, memory_class) : NULL;
    if (!s)
        return;
    s->bytes[past->points % POINTS] += bytes;
    s->last = past->points;
}

/* Who has had nothing for as long as the past reaches is forgotten. */
static void begin_point(history *past, double time)
{
    past->times[past->points % POINTS] = time;
    size_t left = 0;
    for (size_t i = 0; i < past->count; i++) {
        if (past->points - past->list[i].last >= POINTS)
            continue;
        if (left != i)
            past->list[left] = past->list[i];
        past->list[left++].bytes[past->points % POINTS] = 0;
    }
    past->count = left;
}

void history_look(history *past, weir_pool *pool, double time)
{
    device_look now;
    pthread_mutex_lock(&past->lock);
    begin_point(past, time);
    for (size_t d = 0; serve_history_look(pool, d, &now); d++) {
        for (size_t i = 0; i < now.count; i++) {
            const weir_client_stats *c = &now.clients[i];
            for (int k = 0; k < WEIR_CLASS_COUNT; k++)
                history_add(past, now.usage.device, c->name, k, c->live_class[k]);
            history_add(past, now.usage.device, c->name, AWAY, c->away);
        }
        free(now.clients);
    }
    past->points++;
    pthread_mutex_unlock(&past->lock);
}

json_t *history_json(history *past)
{
    json_t *times = json_array(), *list = json_array();
    pthread_mutex_lock(&past->lock);
    uint64_t first = past->points > POINTS ? past->points - POINTS : 0;
    for (uint64_t p = first; p < past->points; p++)
        json_array_append_new(times, json_real(past->times[p % POINTS]));
    for (size_t i = 0; i < past->count; i++) {
        const series *s = &past->list[i];
        json_t *bytes = json_array();
        for (uint64_t p = first; p < past->points; p++)
            json_array_append_new(bytes, text_json_count(s->bytes[p % POINTS]));
        const char *name = s->memory_class == AWAY ? "away" : weir_name_of(WEIR_NAMES_CLASS, s->memory_class);
        json_array_append_new(list, json_pack("{s:o, s:o, s:s, s:o}", "device", text_json(s->device), "client",
                                              text_json(s->client), "class", name, "bytes", bytes));
    }
    pthread_mutex_unlock(&past->lock);
    return json_pack("{s:o, s:o}", "time", times, "series", list);
}
