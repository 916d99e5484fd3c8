/* A trace as RMM's logging adaptor writes one, with weir's own columns behind RMM's six. */
#include "trace/write_file.h"
#include "base/pointer_map.h"

#include <weir/trace.h>

#include <inttypes.h>
#include <stdio.h>

typedef struct csv {
    wi_trace_file *file;
    wi_pointer_map known; /* the bytes of live blocks, or IS_AWAY */
    uint64_t start;       /* nanoseconds of the first event */
} csv;

#define IS_AWAY UINT64_MAX
enum { ROW = 2048 };

/* Adds a value, with quotes if needed, cut so that the rest of the row still fits. */
static void add_quoted(char row[ROW], size_t *used, const char *text)
{
    enum { MOST = 256 };
    size_t count = strnlen(text, MOST);
    bool plain = text[strcspn(text, ",\"\r\n")] == '\0';
    if (!plain)
        row[(*used)++] = '"';
    for (size_t i = 0; i < count; i++) {
        if (text[i] == '"')
            row[(*used)++] = '"';
        row[(*used)++] = text[i];
    }
    if (!plain)
        row[(*used)++] = '"';
}

/* One row. RMM has no word for a resize, so the caller says the action. */
static weir_status write_csv_add_row(csv *c, const weir_event *event, const char *action, uint64_t bytes)
{
    char row[ROW];
    uint64_t micros = (event->nanoseconds - c->start) / 1000;
    size_t used = (size_t)snprintf(row, sizeof row,
                                   "%" PRIu64 ",%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%06" PRIu64 ",%s,0x%" PRIxPTR
                                   ",%" PRIu64 ",%" PRIu64 ",",
                                   event->thread, micros / 3600000000u, micros / 60000000u % 60, micros / 1000000u % 60,
                                   micros % 1000000u, action, (uintptr_t)event->pointer, bytes, event->stream.id);
    add_quoted(row, &used, event->client);
    used +=
        (size_t)snprintf(row + used, sizeof row - used, ",%s,", weir_name_of(WEIR_NAMES_CLASS, event->memory_class));
    add_quoted(row, &used, event->tag);
    used +=
        (size_t)snprintf(row + used, sizeof row - used, ",%" PRIu64 ",%" PRIu64 "\n", event->order, event->nanoseconds);
    return wi_trace_file_add(c->file, row, used);
}

static weir_status write_csv_remember(csv *c, const weir_event *event)
{
    return wi_pointer_map_put(&c->known, event->pointer, event->bytes)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_SYSTEM, "no host memory for a trace");
}

/* In RMM's words: it was freed. */
static weir_status add_leave(csv *c, const weir_event *event)
{
    uint64_t old;
    if (!wi_pointer_map_remove(&c->known, event->pointer, &old))
        return WEIR_OK;
    weir_event left = *event;
    left.bytes = IS_AWAY;
    weir_status status = old == IS_AWAY ? WEIR_OK : write_csv_add_row(c, event, "free", old);
    return status == WEIR_OK ? write_csv_remember(c, &left) : status;
}

static weir_status add_return(csv *c, const weir_event *event)
{
    uint64_t old;
    if (!wi_pointer_map_remove(&c->known, event->pointer, &old))
        return WEIR_OK;
    weir_status status = old == IS_AWAY ? write_csv_add_row(c, event, "allocate", event->bytes) : WEIR_OK;
    return status == WEIR_OK ? write_csv_remember(c, event) : status;
}

static weir_status add_resize(csv *c, const weir_event *event)
{
    uint64_t old;
    weir_status status = WEIR_OK;
    /* In RMM's words: it was freed, and allocated again at the same place. */
    if (wi_pointer_map_remove(&c->known, event->pointer, &old))
        status = write_csv_add_row(c, event, "free", old);
    if (status == WEIR_OK)
        status = write_csv_add_row(c, event, "allocate", event->bytes);
    return status == WEIR_OK ? write_csv_remember(c, event) : status;
}

static weir_status write_csv_add_event(csv *c, const weir_event *event)
{
    uint64_t old = event->bytes;
    weir_status status;
    switch (event->action) {
    case WEIR_ACTION_ALLOCATE:
        status = write_csv_add_row(c, event, "allocate", event->bytes);
        return status == WEIR_OK ? write_csv_remember(c, event) : status;
    case WEIR_ACTION_DEALLOCATE:
        (void)wi_pointer_map_remove(&c->known, event->pointer, &old);
        return old == IS_AWAY ? WEIR_OK : write_csv_add_row(c, event, "free", old);
    case WEIR_ACTION_RESIZE:
        return add_resize(c, event);
    case WEIR_ACTION_LEAVE:
        return add_leave(c, event);
    case WEIR_ACTION_RETURN:
        return add_return(c, event);
    case WEIR_ACTION_REFUSE:
        return write_csv_add_row(c, event, "allocate failure", event->bytes);
    case WEIR_ACTION_FAIL:
        return event->object == WEIR_ACTION_ALLOCATE ? write_csv_add_row(c, event, "allocate failure", event->bytes)
                                                     : WEIR_OK;
    default: /* RMM has no word for it */
        return WEIR_OK;
    }
}

static weir_status csv_write(void *user, const weir_event *events, size_t count)
{
    csv *c = user;
    size_t stride = events[0].struct_size;
    for (size_t i = 0; i < count; i++) {
        const weir_event *event = (const weir_event *)(const void *)((const char *)events + i * stride);
        if (c->start == 0)
            c->start = event->nanoseconds;
        weir_status status = write_csv_add_event(c, event);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

static weir_status csv_flush(void *user)
{
    return wi_trace_file_flush(((csv *)user)->file);
}

static weir_status csv_close(void *user)
{
    csv *c = user;
    weir_status status = wi_trace_file_close(c->file);
    wi_pointer_map_clear(&c->known);
    free(c);
    return status;
}

weir_status wi_sink_csv(const char *path, weir_sink *out)
{
    static const char header[] = "Thread,Time,Action,Pointer,Size,Stream,Client,Class,Tag,Order,Nanoseconds\n";
    csv *c = calloc(1, sizeof *c);
    if (!c)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a sink");
    weir_status status = wi_trace_file_open(path, &c->file);
    if (status != WEIR_OK) {
        free(c);
        return status;
    }
    (void)wi_trace_file_add(c->file, header, sizeof header - 1);
    weir_sink sink = {.user = c, .write = csv_write, .flush = csv_flush, .close = csv_close};
    wi_copy_out(out, out->struct_size, &sink, sizeof sink);
    return WEIR_OK;
}
