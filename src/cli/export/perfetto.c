/* perfetto.c: trace events as JSON, in the form of Chrome's, of which Google's document "Trace Event Format" tells.
 * The runtime is a process with counters, and so is each client, with a counter for each class, one for what is away, and
 * asynchronous slices for each block and for the time that it is away. */
#include "export.h"

#include "base/maps.h"
#include "cli/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    FILE *file;
    const recording *trace;
    const lifetimes *blocks;
    uint64_t least;
    wi_pointer_map clients;             /* their processes' numbers, from 2 on; 1 is the runtime */
    char **tags;                        /* of the kinds, as JSON */
    int64_t (*bytes)[WEIR_CLASS_COUNT]; /* live and pending, by process */
    uint64_t total;
    uint64_t *away_of; /* by process; 1 is all */
    size_t moved;      /* so many moves were told */
    bool behind;       /* something stands before: a comma is due */
} writer;

static char *quoted(const char *text)
{
    json_t *string = text_json(text);
    char *quotes = json_dumps(string, JSON_ENCODE_ANY);
    json_decref(string);
    if (!quotes)
        text_out_of_memory();
    return quotes;
}

static void perfetto_next(writer *w)
{
    fputs(w->behind ? ",\n" : "\n", w->file);
    w->behind = true;
}

/* Microseconds with three digits behind them; the number of the event where there are no times. */
static void perfetto_put_time(writer *w, uint32_t event)
{
    const weir_event *events = w->trace->events;
    uint64_t since = events[event].nanoseconds - events[0].nanoseconds;
    if (!w->trace->timed)
        since = UINT64_C(1000) * event;
    else if (events[event].nanoseconds < events[0].nanoseconds)
        since = 0;
    fprintf(w->file, "\"ts\":%" PRIu64 ".%03u", since / 1000, (unsigned)(since % 1000));
}

/* Processes -------------------------------------------------------------------------------------------------------- */

static void put_process(writer *w, uint64_t number, const char *name)
{
    char *quotes = quoted(name);
    perfetto_next(w);
    fprintf(w->file, "{\"ph\":\"M\",\"pid\":%" PRIu64 ",\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":%s}}",
            number, quotes);
    perfetto_next(w);
    fprintf(w->file,
            "{\"ph\":\"M\",\"pid\":%" PRIu64
            ",\"tid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%" PRIu64 "}}",
            number, number);
    free(quotes);
}

static uint64_t process_of(const writer *w, const char *client)
{
    uint64_t number = 1;
    (void)wi_pointer_map_get(&w->clients, client, &number);
    return number;
}

static void put_processes(writer *w)
{
    uint64_t count = 1, ignored;
    const char *device = w->trace->count && w->trace->events[0].device[0] ? w->trace->events[0].device : "all clients";
    put_process(w, 1, device);
    for (size_t i = 0; i < w->trace->count; i++) {
        const char *client = w->trace->events[i].client;
        if (client[0] == '\0' || wi_pointer_map_get(&w->clients, client, &ignored))
            continue;
        if (!wi_pointer_map_put(&w->clients, client, ++count))
            text_out_of_memory();
        put_process(w, count, client);
    }
    w->bytes = text_zeroed((size_t)count + 1, sizeof *w->bytes);
    w->away_of = text_zeroed((size_t)count + 1, sizeof *w->away_of);
}

/* Counters --------------------------------------------------------------------------------------------------------- */

static void put_totals(writer *w, uint32_t at)
{
    const weir_event *event = &w->trace->events[at], *before = at > 0 ? event - 1 : NULL;
    if (before && event->live == before->live && event->pending == before->pending && event->held == before->held)
        return;
    perfetto_next(w);
    fputs("{\"ph\":\"C\",\"pid\":1,\"name\":\"memory\",", w->file);
    perfetto_put_time(w, at);
    fprintf(w->file, ",\"args\":{\"live\":%" PRIu64 ",\"pending\":%" PRIu64, event->live, event->pending);
    if (w->trace->holds)
        fprintf(w->file, ",\"held\":%" PRIu64, event->held);
    fputs("}}", w->file);
}

/* What the totals change by is the client's. */
static void put_client(writer *w, uint32_t at)
{
    const weir_event *event = &w->trace->events[at];
    uint64_t total = event->live + event->pending;
    if (event->client[0] == '\0' || total == w->total)
        return;
    uint64_t process = process_of(w, event->client);
    int64_t *bytes = &w->bytes[process][event->memory_class];
    *bytes += (int64_t)(total - w->total);
    w->total = total;
    perfetto_next(w);
    fprintf(w->file, "{\"ph\":\"C\",\"pid\":%" PRIu64 ",\"name\":\"bytes\",", process);
    perfetto_put_time(w, at);
    fprintf(w->file, ",\"args\":{\"%s\":%" PRId64 "}}", weir_name_of(WEIR_NAMES_CLASS, (int)event->memory_class),
            *bytes);
}

static void put_away(writer *w, uint64_t process, uint32_t at)
{
    perfetto_next(w);
    fprintf(w->file, "{\"ph\":\"C\",\"pid\":%" PRIu64 ",\"name\":\"away\",", process);
    perfetto_put_time(w, at);
    fprintf(w->file, ",\"args\":{\"bytes\":%" PRIu64 "}}", w->away_of[process]);
}

/* What is away, of all and of the client. */
static void put_moves(writer *w, uint32_t at)
{
    for (; w->moved < w->blocks->move_count && w->blocks->moves[w->moved].event == at; w->moved++) {
        const lifetime_move *m = &w->blocks->moves[w->moved];
        uint64_t process = process_of(w, w->blocks->kinds[w->blocks->list[m->block].kind].client);
        w->away_of[1] += m->after - m->before;
        w->away_of[process] += process == 1 ? 0 : m->after - m->before;
        put_away(w, 1, at);
        if (process != 1)
            put_away(w, process, at);
    }
}

/* Suspends and resumes, each at its first event. */
static void put_residencies(writer *w)
{
    size_t count;
    lifetime_residency *list = lifetimes_residencies(w->blocks, &count);
    if (!list)
        text_out_of_memory();
    for (size_t i = 0; i < count; i++) {
        perfetto_next(w);
        fprintf(w->file,
                "{\"ph\":\"i\",\"s\":\"p\",\"pid\":%" PRIu64 ",\"tid\":0,\"name\":\"%s\",\"cat\":\"residency\",",
                process_of(w, list[i].client), list[i].back ? "resume" : "suspend");
        perfetto_put_time(w, list[i].first);
        fprintf(w->file, ",\"args\":{\"bytes\":%" PRIu64 ",\"blocks\":%" PRIu64 "}}", list[i].bytes, list[i].blocks);
    }
    free(list);
}

static void perfetto_put_refusal(writer *w, uint32_t at)
{
    const weir_event *event = &w->trace->events[at];
    char *tag = quoted(event->tag);
    perfetto_next(w);
    fprintf(w->file,
            "{\"ph\":\"i\",\"s\":\"p\",\"pid\":%" PRIu64 ",\"tid\":0,\"name\":\"refused\",\"cat\":\"refusal\",",
            process_of(w, event->client));
    perfetto_put_time(w, at);
    fprintf(w->file, ",\"args\":{\"bytes\":%" PRIu64 ",\"class\":\"%s\",\"tag\":%s}}", event->bytes,
            weir_name_of(WEIR_NAMES_CLASS, (int)event->memory_class), tag);
    free(tag);
}

/* What a pool did: marks of the whole, on the process of all. */
static void put_pool(writer *w, uint32_t at)
{
    const weir_event *event = &w->trace->events[at];
    char *model = quoted(event->tag);
    perfetto_next(w);
    fprintf(w->file, "{\"ph\":\"i\",\"s\":\"g\",\"pid\":0,\"tid\":0,\"name\":\"%s\",\"cat\":\"pool\",",
            weir_name_of(WEIR_NAMES_POOL, (int)event->object));
    perfetto_put_time(w, at);
    fprintf(w->file, ",\"args\":{\"model\":%s,\"bytes\":%" PRIu64 ",\"ceiling\":%" PRIu64 "}}", model, event->bytes,
            event->generation);
    free(model);
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

static void put_slice(writer *w, const export_step *step, char phase, const char *category, const char *name)
{
    const lifetime *one = &w->blocks->list[step->block];
    perfetto_next(w);
    fprintf(w->file, "{\"ph\":\"%c\",\"cat\":\"%s\",\"id\":%u,\"pid\":%" PRIu64 ",\"tid\":0,\"name\":%s,", phase,
            category, (unsigned)step->block, process_of(w, w->blocks->kinds[one->kind].client), name);
    perfetto_put_time(w, step->event);
}

static void perfetto_put_step(writer *w, const export_step *step)
{
    const lifetime *one = &w->blocks->list[step->block];
    const lifetime_kind *kind = &w->blocks->kinds[one->kind];
    if (one->charged < w->least)
        return;
    char **tag = &w->tags[one->kind];
    if (!*tag)
        *tag = quoted(kind->tag[0] ? kind->tag : weir_name_of(WEIR_NAMES_CLASS, (int)kind->memory_class));
    bool waits = one->end != one->freed;
    if (step->kind == EXPORT_BEGIN) {
        put_slice(w, step, 'b', "block", *tag);
        fprintf(w->file,
                ",\"args\":{\"class\":\"%s\",\"bytes\":%" PRIu64 ",\"charged\":%" PRIu64 ",\"address\":\"%#" PRIx64
                "\"}}",
                weir_name_of(WEIR_NAMES_CLASS, (int)kind->memory_class), one->bytes, one->charged, one->pointer);
    } else if (step->kind == EXPORT_LEAVE) {
        put_slice(w, step, 'b', "away", "\"away\"");
        fprintf(w->file, ",\"args\":{\"charged\":%" PRIu64 "}}", one->charged);
    } else if (step->kind == EXPORT_RETURN) {
        put_slice(w, step, 'e', "away", "\"away\"");
        fputc('}', w->file);
    } else if (step->kind == EXPORT_FREE) {
        if (one->away > 0) {
            put_slice(w, step, 'e', "away", "\"away\"");
            fputc('}', w->file);
        }
        put_slice(w, step, 'e', "block", *tag);
        fputc('}', w->file);
        if (waits) {
            put_slice(w, step, 'b', "pending", "\"pending\"");
            fprintf(w->file, ",\"args\":{\"charged\":%" PRIu64 "}}", one->charged);
        }
    } else if (waits) {
        put_slice(w, step, 'e', "pending", "\"pending\"");
        fputc('}', w->file);
    }
}

/* All -------------------------------------------------------------------------------------------------------------- */

weir_status export_perfetto(FILE *file, const recording *trace, const lifetimes *blocks, uint64_t least)
{
    writer w = {.file = file, .trace = trace, .blocks = blocks, .least = least};
    size_t count, at = 0;
    export_step *steps = export_steps(blocks, &count);
    w.tags = text_zeroed(blocks->kind_count, sizeof *w.tags);
    fprintf(file, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"writer\":\"weir %s\"},\"traceEvents\":[",
            weir_version());
    put_processes(&w);
    put_residencies(&w);
    for (size_t i = 0; i < trace->count && !ferror(file); i++) {
        put_totals(&w, (uint32_t)i);
        put_client(&w, (uint32_t)i);
        put_moves(&w, (uint32_t)i);
        if (trace->events[i].action == WEIR_ACTION_REFUSE)
            perfetto_put_refusal(&w, (uint32_t)i);
        if (trace->events[i].action == WEIR_ACTION_POOL)
            put_pool(&w, (uint32_t)i);
        for (; at < count && steps[at].event == i; at++)
            perfetto_put_step(&w, &steps[at]);
    }
    fputs("\n]}\n", file);
    for (size_t i = 0; i < blocks->kind_count; i++)
        free(w.tags[i]);
    free((void *)w.tags);
    free(w.bytes);
    free(w.away_of);
    free(steps);
    wi_pointer_map_clear(&w.clients);
    return WEIR_OK;
}
