#include "trace/timeline_csv.h"
#include <weir/trace.h>

#include <stdio.h>
#include <sys/stat.h>

enum { BATCH = 512 };

/* What is not whole is removed, unless it is none that can be made again: a device or a pipe stays. */
static void remove_file(const char *path)
{
    struct stat kind;
    if (stat(path, &kind) == 0 && S_ISREG(kind.st_mode))
        remove(path);
}

weir_status csv_write(timeline *line, const char *path)
{
    weir_event events[BATCH];
    weir_sink sink = WEIR_INIT(weir_sink);
    size_t count;
    weir_status status = timeline_rewind(line);
    if (status == WEIR_OK)
        status = weir_sink_csv(path, &sink);
    if (status != WEIR_OK)
        return status;
    while (status == WEIR_OK && (count = timeline_next(line, events, BATCH)) > 0)
        status = sink.write(sink.user, events, count);
    weir_status closed = sink.close(sink.user);
    status = status != WEIR_OK ? status : closed;
    if (status != WEIR_OK)
        remove_file(path);
    return status;
}
