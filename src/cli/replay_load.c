/* replay_load.c: reads a trace file of any of the known forms into a plan. */
#include "replay.h"

#include "trace/format.h"
#include "trace/read_binary.h"
#include "trace/read_rmm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text ------------------------------------------------------------------------------------------------------------- */

static weir_status read_header(lines *l, wi_replay_plan *plan, rmm_columns *columns)
{
    char *text;
    bool whole;
    weir_status status = lines_next(l, &text, &whole);
    if (status != WEIR_OK)
        return status;
    if (!text || !whole)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: no trace: its first line is %s", plan->name, text ? "none" : "missing");
    if (strncmp(text, WI_TRACE_MAGIC, 4) == 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: a binary trace that was compressed: gunzip it first", plan->name);
    return rmm_header(plan->name, text, columns);
}

static weir_status read_row(lines *l, const rmm_columns *columns, char *text, bool whole, wi_replay_plan *plan,
                            wi_replay_events *events)
{
    rmm_row row;
    if (whole && text[strspn(text, " \t")] == '\0')
        return WEIR_OK; /* an empty line is no row */
    const char *wrong = whole ? rmm_read(columns, text, &row) : "a line that is longer than any, cut off or no text";
    if (wrong) {
        wi_replay_problem_add(plan, lines_number(l), wrong);
        return WEIR_OK;
    }
    if (row.action == RMM_FAILURE) {
        plan->refused++;
        return WEIR_OK;
    }
    return wi_replay_add(events, &(wi_replay_event){.key = row.key,
                                                    .line = lines_number(l),
                                                    .pointer = row.pointer,
                                                    .bytes = row.bytes,
                                                    .stream = row.stream,
                                                    .memory_class = (uint8_t)row.memory_class,
                                                    .frees = row.action == RMM_FREE});
}

static weir_status load_text(wi_replay_plan *plan, wi_replay_events *events, bool *host)
{
    lines *l;
    rmm_columns columns;
    char *text = NULL;
    bool whole = true;
    weir_status status = lines_open(plan->name, &l);
    if (status != WEIR_OK)
        return status;
    status = read_header(l, plan, &columns);
    if (status == WEIR_OK) {
        *host = columns.weirs;
        events->timed = columns.timed;
    }
    while (status == WEIR_OK && (status = lines_next(l, &text, &whole)) == WEIR_OK && text)
        status = read_row(l, &columns, text, whole, plan, events);
    plan->cut = lines_cut(l);
    lines_close(l);
    return status;
}

/* Binary ----------------------------------------------------------------------------------------------------------- */

/* A resize is a free and an allocation at the same place, as in the text form. */
static weir_status add_event(const weir_event *event, wi_replay_plan *plan, wi_replay_events *events)
{
    wi_replay_event add = {.key = event->order,
                           .line = event->order,
                           .pointer = (uintptr_t)event->pointer,
                           .bytes = event->bytes,
                           .stream = event->stream.id,
                           .memory_class = (uint8_t)event->memory_class,
                           .frees = event->action != WEIR_ACTION_ALLOCATE};
    bool refused = event->action == WEIR_ACTION_REFUSE ||
                   (event->action == WEIR_ACTION_FAIL && event->object == WEIR_ACTION_ALLOCATE);
    plan->refused += refused;
    if (event->action != WEIR_ACTION_ALLOCATE && event->action != WEIR_ACTION_DEALLOCATE &&
        event->action != WEIR_ACTION_RESIZE)
        return WEIR_OK;
    weir_status status = wi_replay_add(events, &add);
    if (status != WEIR_OK || event->action != WEIR_ACTION_RESIZE)
        return status;
    add.frees = false;
    return wi_replay_add(events, &add);
}

static weir_status load_binary(wi_replay_plan *plan, wi_replay_events *events)
{
    reader *r;
    weir_event event;
    uint64_t offset;
    bool got = true;
    weir_status status = reader_open(plan->name, &r);
    if (status != WEIR_OK)
        return status;
    while (status == WEIR_OK && (status = reader_next(r, &event, &got)) == WEIR_OK && got)
        status = add_event(&event, plan, events);
    plan->binary = true;
    plan->cut = reader_cut(r, &offset);
    plan->lost = reader_lost(r);
    reader_close(r);
    return status;
}

/* Both ------------------------------------------------------------------------------------------------------------- */

static weir_status is_binary(const char *path, bool *out)
{
    char front[8] = "";
    FILE *file = fopen(path, "rbe");
    if (!file)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    *out = fread(front, 1, sizeof front, file) == sizeof front && memcmp(front, WI_TRACE_MAGIC, sizeof front) == 0;
    weir_status status = ferror(file) ? weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno)) : WEIR_OK;
    fclose(file);
    return status;
}

weir_status wi_replay_load(const char *path, wi_replay_plan *out)
{
    wi_replay_events events = {0};
    bool binary = false, host = true;
    *out = (wi_replay_plan){.name = strdup(path)};
    if (!out->name)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory to read %s", path);
    weir_status status = is_binary(path, &binary);
    if (status == WEIR_OK)
        status = binary ? load_binary(out, &events) : load_text(out, &events, &host);
    if (status == WEIR_OK)
        status = wi_replay_plan_make(&events, host, out);
    free(events.list);
    if (status != WEIR_OK)
        wi_replay_plan_clear(out);
    return status;
}
