#include "runtime/watch/watch.h"
#include "runtime/outside.h"
#include "runtime/runtime.h"

#include <weir/cores.h>

#include <unistd.h>

typedef struct writer {
    wi_json json;
    weir_client_stats *clients;
    bool layout;
    uint64_t left_out;
} writer;

/* Bytes that a client, a runtime without its clients, a model's line of the ledger of cores, and the end of the document,
 * with the ledger but for its models, take at most: texts of known lengths, of which a character takes six, and numbers of 20
 * digits. */
enum { CLIENT_ROOM = 4096, RUNTIME_ROOM = 8192, LINE_ROOM = 1024, END_ROOM = 1024 };

typedef struct member {
    const char *key;
    size_t at;
} member;

#define MEMBER(type, name)                                                                                             \
    {                                                                                                                  \
#name, offsetof(type, name)                                                                                    \
    }

static const member of_runtime[] = {
    MEMBER(weir_stats, budget),        MEMBER(weir_stats, live),         MEMBER(weir_stats, pending),
    MEMBER(weir_stats, cached),        MEMBER(weir_stats, spare),        MEMBER(weir_stats, promised),
    MEMBER(weir_stats, held),          MEMBER(weir_stats, peak),         MEMBER(weir_stats, peak_held),
    MEMBER(weir_stats, guaranteed),    MEMBER(weir_stats, allocations),  MEMBER(weir_stats, frees),
    MEMBER(weir_stats, refusals),      MEMBER(weir_stats, driver_calls), MEMBER(weir_stats, failed_frees),
    MEMBER(weir_stats, created),       MEMBER(weir_stats, moved),        MEMBER(weir_stats, batches),
    MEMBER(weir_stats, thread_cached), MEMBER(weir_stats, hits),         MEMBER(weir_stats, misses),
    MEMBER(weir_stats, emptied),       MEMBER(weir_stats, lent_clients), MEMBER(weir_stats, lent_streams),
    MEMBER(weir_stats, lost_tags),     MEMBER(weir_stats, away)};

static const member of_client[] = {MEMBER(weir_client_stats, guaranteed),  MEMBER(weir_client_stats, maximum),
                                   MEMBER(weir_client_stats, live),        MEMBER(weir_client_stats, pending),
                                   MEMBER(weir_client_stats, promised),    MEMBER(weir_client_stats, thread_cached),
                                   MEMBER(weir_client_stats, peak),        MEMBER(weir_client_stats, blocks),
                                   MEMBER(weir_client_stats, allocations), MEMBER(weir_client_stats, frees),
                                   MEMBER(weir_client_stats, refusals),    MEMBER(weir_client_stats, hits),
                                   MEMBER(weir_client_stats, misses),      MEMBER(weir_client_stats, outside),
                                   MEMBER(weir_client_stats, away),        MEMBER(weir_client_stats, predicted)};

static const member of_outside[] = {
    MEMBER(weir_outside, total),   MEMBER(weir_outside, available), MEMBER(weir_outside, others),
    MEMBER(weir_outside, reserve), MEMBER(weir_outside, asked),     MEMBER(weir_outside, budget),
    MEMBER(weir_outside, allowed), MEMBER(weir_outside, lacks),     MEMBER(weir_outside, looks),
    MEMBER(weir_outside, shorts),  MEMBER(weir_outside, given),     MEMBER(weir_outside, suspends),
    MEMBER(weir_outside, rises)};

static void write_members(wi_json *json, const member *members, size_t count, const void *structure)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        memcpy(&value, (const char *)structure + members[i].at, sizeof value);
        wi_json_number(json, members[i].key, value);
    }
}

static void write_by(wi_json *json, const char *key, weir_names names, int count, const uint64_t *values)
{
    wi_json_open(json, key, '{');
    for (int i = 0; i < count; i++)
        wi_json_number(json, weir_name_of(names, i), values[i]);
    wi_json_close(json, '}');
}

static void write_client(wi_json *json, const weir_client_stats *client)
{
    wi_json_open(json, NULL, '{');
    wi_json_text(json, "name", client->name);
    write_members(json, of_client, sizeof of_client / sizeof of_client[0], client);
    wi_json_text(json, "residency", weir_name_of(WEIR_NAMES_RESIDENCY, (int)client->residency));
    wi_json_text(json, "outside_method", client->outside_method);
    write_by(json, "live_class", WEIR_NAMES_CLASS, WEIR_CLASS_COUNT, client->live_class);
    write_by(json, "peak_class", WEIR_NAMES_CLASS, WEIR_CLASS_COUNT, client->peak_class);
    wi_json_close(json, '}');
}

static void write_layout(wi_json *json, weir_runtime *runtime)
{
    weir_layout_totals totals;
    if (wi_runtime_look_layout(runtime, &totals) != WEIR_OK)
        return;
    wi_json_open(json, "layout", '{');
    wi_json_number(json, "held", totals.held);
    wi_json_number(json, "in_hand", totals.in_hand);
    wi_json_number(json, "segments", totals.segments);
    wi_json_number(json, "spans", totals.spans);
    write_by(json, "bytes", WEIR_NAMES_SPAN, WEIR_SPAN_COUNT, totals.bytes);
    wi_json_close(json, '}');
}

/* Nothing where other processes were never looked at. */
static void write_outside(wi_json *json, const weir_runtime *runtime)
{
    weir_outside now;
    wi_outside_tell(runtime, &now);
    if (!now.watched && now.looks == 0)
        return;
    wi_json_open(json, "outside", '{');
    wi_json_bool(json, "watched", now.watched);
    write_members(json, of_outside, sizeof of_outside / sizeof of_outside[0], &now);
    wi_json_close(json, '}');
}

static void write_runtime(weir_runtime *runtime, void *user)
{
    writer *w = user;
    weir_stats stats = {.struct_size = sizeof stats};
    size_t count = 0;
    char stack[WI_STACK_BYTES];
    if (wi_json_room(&w->json) < RUNTIME_ROOM + END_ROOM) {
        w->left_out++;
        return;
    }
    wi_runtime_look(runtime, &stats, w->clients, sizeof *w->clients, WI_WATCH_CLIENTS, &count);
    wi_json_open(&w->json, NULL, '{');
    wi_json_text(&w->json, "device", wi_runtime_device(runtime));
    wi_json_bool(&w->json, "own", !runtime->shared);
    wi_json_text(&w->json, "resource", wi_runtime_resource(runtime, stack, sizeof stack));
    write_members(&w->json, of_runtime, sizeof of_runtime / sizeof of_runtime[0], &stats);
    write_by(&w->json, "ladder", WEIR_NAMES_RUNG, WEIR_RUNG_COUNT, stats.ladder);
    write_outside(&w->json, runtime);
    wi_json_number(&w->json, "client_count", count);
    if (w->layout)
        write_layout(&w->json, runtime);
    wi_json_open(&w->json, "clients", '[');
    for (size_t i = 0; i < count && i < WI_WATCH_CLIENTS; i++)
        if (wi_json_room(&w->json) >= CLIENT_ROOM + END_ROOM)
            write_client(&w->json, &w->clients[i]);
    wi_json_close(&w->json, ']');
    wi_json_close(&w->json, '}');
}

/* Nothing where a fork or the system keeps the ledger from being read. Models for which there is no room are left out. */
static void write_cores(wi_json *json)
{
    weir_cores_totals all = {.struct_size = sizeof all};
    weir_cores_stats line = {.struct_size = sizeof line};
    if (weir_cores_info(&all) != WEIR_OK)
        return;
    wi_json_open(json, "cores", '{');
    wi_json_number(json, "cores", all.cores);
    wi_json_number(json, "leased", all.leased);
    wi_json_number(json, "peak", all.peak);
    wi_json_number(json, "waiting", all.waiting);
    wi_json_number(json, "coupled", all.coupled);
    wi_json_open(json, "models", '[');
    for (size_t i = 0; wi_json_room(json) >= LINE_ROOM + END_ROOM && weir_cores_look(i, &line) == WEIR_OK; i++) {
        wi_json_open(json, NULL, '{');
        wi_json_text(json, "name", line.name);
        wi_json_number(json, "least", line.least);
        wi_json_number(json, "most", line.most);
        wi_json_number(json, "now", line.now);
        wi_json_number(json, "last", line.last);
        wi_json_number(json, "leases", line.leases);
        wi_json_number(json, "waits", line.waits);
        wi_json_number(json, "waited", line.waited);
        wi_json_close(json, '}');
    }
    wi_json_close(json, ']');
    wi_json_close(json, '}');
}

static void watch_answer_write_all(writer *w, const char *command)
{
    wi_json_text(&w->json, "weir", WEIR_VERSION_STRING);
    wi_json_number(&w->json, "pid", (uint64_t)getpid());
    wi_json_text(&w->json, "command", command);
    wi_json_open(&w->json, "runtimes", '[');
    wi_runtimes_each(write_runtime, w);
    wi_json_close(&w->json, ']');
    write_cores(&w->json);
    wi_json_number(&w->json, "left_out", w->left_out);
}

static void write_refusal(wi_json *json)
{
    wi_json_open(json, "error", '{');
    wi_json_text(json, "detail",
                 "a request is one line: stats, layout, or, of the process's own user, yield SIZE [DEVICE [SECONDS]], "
                 "suspend NAME or resume NAME");
    wi_json_close(json, '}');
}

size_t wi_watch_answer(const char *request, const char *command, weir_client_stats *clients, char *text)
{
    writer w = {.json = {.text = text, .capacity = WI_WATCH_BYTES},
                .clients = clients,
                .layout = strcmp(request, "layout") == 0};
    wi_json_open(&w.json, NULL, '{');
    if (w.layout || strcmp(request, "stats") == 0)
        watch_answer_write_all(&w, command);
    else
        write_refusal(&w.json);
    wi_json_close(&w.json, '}');
    wi_assert(!w.json.full);
    text[w.json.used] = '\n';
    return w.json.used + 1;
}
