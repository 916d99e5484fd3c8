#include "csv.h"

#include "sink.h"
#include "sizes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 512 };

static void quoted(FILE *file, const char *text)
{
    if (text == NULL)
        return;
    if (text[strcspn(text, ",\"\r\n")] == '\0') {
        fputs(text, file);
        return;
    }
    fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', file);
        fputc(*text, file);
    }
    fputc('"', file);
}

/* One row. RMM has no word for a resize, so the caller says the action. */
static void row(FILE *file, const weir_event *event, const char *action, uint64_t bytes, uint64_t start)
{
    uint64_t micros = (event->nanoseconds - start) / 1000;
    fprintf(file,
            "%" PRIu64 ",%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%06" PRIu64 ",%s,0x%" PRIxPTR ",%" PRIu64 ",%" PRIu64
            ",",
            event->thread, micros / 3600000000u, micros / 60000000u % 60, micros / 1000000u % 60, micros % 1000000u,
            action, (uintptr_t)event->pointer, bytes, event->stream.id);
    quoted(file, event->client);
    fprintf(file, ",%s,", weir_class_name(event->memory_class));
    quoted(file, event->tag);
    fprintf(file, ",%" PRIu64 ",%" PRIu64 "\n", event->order, event->nanoseconds);
}

/* False when there is no memory to remember a block's size. */
static bool write_event(FILE *file, const weir_event *event, sizes *known, uint64_t start)
{
    uint64_t old = 0;
    switch (event->action) {
    case WEIR_ALLOCATE:
        row(file, event, "allocate", event->bytes, start);
        return sizes_put(known, event->pointer, event->bytes);
    case WEIR_DEALLOCATE:
        old = event->bytes;
        (void)sizes_take(known, event->pointer, &old);
        row(file, event, "free", old, start);
        return true;
    case WEIR_RESIZE:
        /* In RMM's words: it was freed, and allocated again at the same place. */
        if (sizes_take(known, event->pointer, &old))
            row(file, event, "free", old, start);
        row(file, event, "allocate", event->bytes, start);
        return sizes_put(known, event->pointer, event->bytes);
    case WEIR_REFUSE:
        row(file, event, "allocate failure", event->bytes, start);
        return true;
    case WEIR_REAP:
    case WEIR_HOLD: /* the ledger's affair: no call of anyone's */
        return true;
    }
    return true;
}

static bool write_all(timeline *line, FILE *file)
{
    weir_event events[BATCH];
    sizes known = {0};
    uint64_t start = 0;
    size_t count;
    bool good = true;
    fputs("Thread,Time,Action,Pointer,Size,Stream,Client,Class,Tag,Order,Nanoseconds\n", file);
    while (good && (count = timeline_next(line, events, BATCH)) > 0) {
        if (start == 0)
            start = events[0].nanoseconds;
        for (size_t i = 0; i < count && good; i++)
            good = write_event(file, &events[i], &known, start);
    }
    sizes_clear(&known);
    return good;
}

weir_status csv_write(timeline *line, const char *path)
{
    weir_status status = timeline_rewind(line);
    if (status != WEIR_OK)
        return status;
    FILE *file = sink_open(path, "the trace");
    if (file == NULL)
        return WEIR_SYSTEM;
    bool good = write_all(line, file);
    return sink_close(file, path, "the trace", good ? 0 : ENOMEM);
}
