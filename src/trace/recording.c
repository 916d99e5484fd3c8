#include "trace/recording.h"

#include "base/texts.h"
#include "base/internal.h"
#include "base/maps.h"
#include "trace/format.h"
#include "trace/readers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The list --------------------------------------------------------------------------------------------------------- */

static weir_status recording_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory for the events of the trace");
}

weir_status recording_add(recording *all, const weir_event *event)
{
    if (!wi_make_room(&all->events, all->count, &all->room, sizeof *all->events))
        return recording_no_memory();
    all->events[all->count] = *event;
    all->events[all->count++].struct_size = sizeof *event;
    return WEIR_OK;
}

void recording_problem_add(recording *all, uint64_t line, const char *what)
{
    if (all->problem_count < RECORDING_PROBLEMS)
        all->problems[all->problem_count] = (recording_problem){line, what};
    all->problem_count++;
}

static recording_text *recording_place_of(const recording *all, uint64_t hash, const char *text, size_t bytes)
{
    size_t at = (size_t)hash & (all->text_room - 1);
    for (; all->texts[at].bytes; at = (at + 1) & (all->text_room - 1))
        if (all->texts[at].hash == hash && strncmp(all->texts[at].bytes, text, bytes) == 0 &&
            all->texts[at].bytes[bytes] == '\0')
            break;
    return &all->texts[at];
}

static bool recording_make_room(recording *all)
{
    if (2 * all->text_count < all->text_room)
        return true;
    recording larger = {.text_room = all->text_room ? 2 * all->text_room : 64};
    larger.texts = calloc(larger.text_room, sizeof *larger.texts);
    if (!larger.texts)
        return false;
    for (size_t i = 0; i < all->text_room; i++)
        if (all->texts[i].bytes)
            *recording_place_of(&larger, all->texts[i].hash, all->texts[i].bytes, strlen(all->texts[i].bytes)) =
                all->texts[i];
    free(all->texts);
    all->texts = larger.texts;
    all->text_room = larger.text_room;
    return true;
}

const char *recording_intern(recording *all, const char *text, size_t bytes)
{
    uint64_t hash = wi_hash(text, bytes);
    if (bytes == 0)
        return "";
    if (!recording_make_room(all))
        return NULL;
    recording_text *place = recording_place_of(all, hash, text, bytes);
    if (!place->bytes) {
        char *copy = strndup(text, bytes);
        if (!copy)
            return NULL;
        *place = (recording_text){hash, copy};
        all->text_count++;
    }
    return place->bytes;
}

void recording_clear(recording *all)
{
    for (size_t i = 0; i < all->text_room; i++)
        free(all->texts[i].bytes);
    free(all->texts);
    free(all->events);
    free(all->segments);
    *all = (recording){0};
}

/* Binary ----------------------------------------------------------------------------------------------------------- */

static bool keep_texts(recording *all, weir_event *event)
{
    event->client = recording_intern(all, event->client, strlen(event->client));
    event->tag = recording_intern(all, event->tag, strlen(event->tag));
    event->device = recording_intern(all, event->device, strlen(event->device));
    return event->client && event->tag && event->device;
}

static weir_status recording_load_binary(const char *path, recording *all)
{
    reader *r;
    weir_event event;
    uint64_t offset;
    bool got = true;
    weir_status status = reader_open(path, &r);
    if (status != WEIR_OK)
        return status;
    while ((status = reader_next(r, &event, &got)) == WEIR_OK && got) {
        status = keep_texts(all, &event) ? recording_add(all, &event) : recording_no_memory();
        if (status != WEIR_OK)
            break;
        if (event.action == WEIR_ACTION_HOLD && event.object > all->budget)
            all->budget = event.object;
    }
    all->cut = reader_cut(r, &offset);
    all->lost = reader_lost(r);
    all->timed = all->holds = all->orders_host = true;
    reader_close(r);
    return status;
}

/* Text ------------------------------------------------------------------------------------------------------------- */

/* An event of a row; `order` is its key until the rows are sorted. RMM has no clients: all is one program's. */
static weir_status recording_add_row(recording *all, const rmm_row *row, uint64_t line, bool timed)
{
    static const weir_action actions[] = {
        [RMM_ALLOCATE] = WEIR_ACTION_ALLOCATE, [RMM_FREE] = WEIR_ACTION_DEALLOCATE, [RMM_FAILURE] = WEIR_ACTION_REFUSE};
    const char *client = row->client[0] ? row->client : "program";
    weir_event event = {.action = actions[row->action],
                        .memory_class = row->memory_class,
                        .order = row->key,
                        .nanoseconds = timed ? row->key : row->nanoseconds,
                        .thread = row->thread,
                        .pointer = (void *)(uintptr_t)row->pointer,
                        .bytes = row->bytes,
                        .charged = row->bytes,
                        .generation = line,
                        .stream = {row->stream},
                        .other = {row->stream},
                        .client = recording_intern(all, client, strlen(client)),
                        .tag = recording_intern(all, row->tag, strlen(row->tag)),
                        .device = "",
                        .result = row->action == RMM_FAILURE ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK};
    return event.client && event.tag ? recording_add(all, &event) : recording_no_memory();
}

static int by_order(const void *a, const void *b)
{
    const weir_event *x = a, *y = b;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return x->generation < y->generation ? -1 : x->generation > y->generation; /* the line */
}

/* The rows of a log with times, as they are needed for their order. */
static weir_status sort_timed(recording *all, row_step *rows, bool threaded)
{
    weir_status status = rows_sort(rows, all->count, threaded);
    for (size_t i = 0; i < all->count && status == WEIR_OK; i++) {
        all->events[rows[i].place].order = i;
        all->events[rows[i].place].nanoseconds = rows[i].time;
    }
    return status;
}

static weir_status sort_rows(recording *all, row_step *rows, const rmm_columns *columns)
{
    bool sorted = true;
    weir_status status = WEIR_OK;
    for (size_t i = 1; i < all->count && sorted; i++)
        sorted = all->events[i - 1].order <= all->events[i].order;
    if (!sorted && columns->timed)
        status = sort_timed(all, rows, columns->threaded);
    if (!sorted && status == WEIR_OK)
        qsort(all->events, all->count, sizeof *all->events, by_order);
    return status;
}

/* Follows the rows in their order: what is live, and what could not have happened. */
static weir_status follow_rows(recording *all)
{
    wi_pointer_map known = {0}; /* live blocks: the event that allocated each */
    uint64_t live = 0, at;
    size_t left = 0;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < all->count && status == WEIR_OK; i++) {
        weir_event event = all->events[i];
        const char *wrong = NULL;
        bool refused = event.action == WEIR_ACTION_REFUSE, frees = event.action == WEIR_ACTION_DEALLOCATE;
        bool found = !refused && event.pointer && wi_pointer_map_remove(&known, event.pointer, &at);
        if (!refused && !event.pointer && event.bytes == 0) {
            all->empty++;
            continue;
        }
        if (!refused && !event.pointer)
            wrong = frees ? "a free of NULL" : "an allocation at NULL";
        else if (frees && !found)
            wrong = "a free of a pointer that is not live";
        else if (!frees && found)
            wrong = "an allocation at a pointer that is live";
        else if (!frees && !refused && event.bytes > UINT64_MAX / 4 - live)
            wrong = "an allocation beyond all that can be counted";
        if (wrong) {
            recording_problem_add(all, event.generation, wrong);
            if (!frees && found && !wi_pointer_map_put(&known, event.pointer, at))
                status = recording_no_memory();
            continue;
        }
        if (frees) {
            const weir_event *from = &all->events[at];
            event.bytes = event.charged = from->bytes;
            event.client = from->client;
            event.tag = from->tag;
            event.memory_class = from->memory_class;
            event.other = from->stream;
            live -= event.charged;
        } else if (!refused) {
            live += event.charged;
            status = wi_pointer_map_put(&known, event.pointer, left) ? WEIR_OK : recording_no_memory();
        }
        event.object = frees; /* nothing is known of pending bytes: all are the stream's */
        event.live = live;
        event.order = left + 1;
        event.generation = 0;
        all->events[left++] = event;
    }
    all->count = left;
    wi_pointer_map_clear(&known);
    return status;
}

/* What the order of rows with times needs; the event is the last one. */
static weir_status add_step(row_step **rows, size_t *room, const rmm_row *row, size_t count)
{
    if (!wi_make_room(rows, count - 1, room, sizeof **rows))
        return recording_no_memory();
    (*rows)[count - 1] = (row_step){.logged = row->key,
                                    .thread = row->thread,
                                    .pointer = row->pointer,
                                    .place = count - 1,
                                    .action = row->action,
                                    .of_day = row->of_day};
    return WEIR_OK;
}

static weir_status recording_read_rows(lines *l, const rmm_columns *columns, recording *all)
{
    rmm_row row;
    const char *wrong;
    bool got = true;
    row_step *rows = NULL;
    size_t room = 0;
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && (status = rmm_next(l, columns, &row, &wrong, &got)) == WEIR_OK && got) {
        if (wrong) {
            recording_problem_add(all, lines_number(l), wrong);
            continue;
        }
        status = recording_add_row(all, &row, lines_number(l), columns->timed);
        if (status == WEIR_OK && columns->timed)
            status = add_step(&rows, &room, &row, all->count);
    }
    if (status == WEIR_OK)
        status = sort_rows(all, rows, columns);
    free(rows);
    return status;
}

static weir_status recording_load_text(const char *path, recording *all)
{
    lines *l;
    rmm_columns columns;
    weir_status status = rmm_open(path, &l, &columns);
    if (status != WEIR_OK)
        return status;
    all->format = RECORDING_CSV;
    all->timed = columns.timed || columns.clocked;
    all->orders_host = columns.weirs;
    status = recording_read_rows(l, &columns, all);
    all->cut = lines_cut(l);
    lines_close(l);
    if (status == WEIR_OK && all->count == 0 && all->problem_count > 0)
        status = weir_fail(WEIR_ERR_CORRUPT, "%s: none of its %llu lines can be used; line %llu: %s", path,
                           (unsigned long long)all->problem_count, (unsigned long long)all->problems[0].line,
                           all->problems[0].what);
    return status == WEIR_OK ? follow_rows(all) : status;
}

/* All -------------------------------------------------------------------------------------------------------------- */

weir_status recording_file_look(const char *path, recording_file *kind)
{
    unsigned char first[8] = {0};
    FILE *file = fopen(path, "rbe");
    if (!file)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    size_t bytes = fread(first, 1, sizeof first, file);
    weir_status status = ferror(file) ? weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno)) : WEIR_OK;
    fclose(file);
    bool binary = bytes == sizeof first && memcmp(first, WI_TRACE_MAGIC, sizeof first) == 0;
    *kind = binary                              ? RECORDING_FILE_BINARY
            : recording_is_pickle(first, bytes) ? RECORDING_FILE_PICKLE
                                                : RECORDING_FILE_TEXT;
    return status;
}

weir_status recording_load(const char *path, int device, recording *out)
{
    recording_file kind;
    *out = (recording){.format = RECORDING_WEIR};
    weir_status status = recording_file_look(path, &kind);
    if (status != WEIR_OK)
        return status;
    status = kind == RECORDING_FILE_PICKLE   ? recording_load_snapshot(path, device, out)
             : kind == RECORDING_FILE_BINARY ? recording_load_binary(path, out)
                                             : recording_load_text(path, out);
    if (status != WEIR_OK)
        recording_clear(out);
    return status;
}
