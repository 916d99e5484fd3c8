/* Requests: files of them, read as they are asked for; and the switch between those and generated ones. */
#include "sim/pool/traffic.h"
#include "base/values.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct recorded {
    traffic base;
    line_reader lines;
    const traffic_models *models;
    char *path;
    uint64_t last;
    off_t bytes;
} recorded;

typedef struct request_line {
    char model[WP_NAME];
    traffic_request request;
} request_line;

#define AT(member) offsetof(request_line, member)

static const line_field request_fields[] = {{"at", LINE_TIME, true, AT(request.at), 0, 1000 * TRAFFIC_DAY},
                                            {"model", LINE_NAME, true, AT(model), 0, 0},
                                            {"time", LINE_TIME, true, AT(request.duration), 0, TRAFFIC_DAY},
                                            {"bytes", LINE_SIZE, false, AT(request.bytes), 0, UINT64_C(1) << 50},
                                            {"deadline", LINE_TIME, false, AT(request.deadline), 0, UINT64_MAX},
                                            {"priority", LINE_I32, false, AT(request.priority), 0, 0}};

static weir_status pool_requests_find_model(const recorded *from, const char *name, uint32_t *out)
{
    for (*out = 0; *out < from->models->count; ++*out)
        if (strcmp(from->models->list[*out].spec.name, name) == 0)
            return WEIR_OK;
    return line_fail(&from->lines, "there is no model %s", name);
}

static weir_status recorded_next(traffic *base, traffic_request *out, bool *got)
{
    recorded *from = (recorded *)base;
    request_line line = {.request.deadline = WP_FOREVER};
    weir_status status = line_next(&from->lines, got);
    if (status != WEIR_OK || !*got)
        return status;
    *got = false;
    if (strcmp(from->lines.word, "request") != 0)
        return line_fail(&from->lines, "%s is no request", from->lines.word);
    status = line_fill(&from->lines, request_fields, sizeof request_fields / sizeof *request_fields, &line, NULL);
    if (status == WEIR_OK)
        status = pool_requests_find_model(from, line.model, &line.request.model);
    if (status == WEIR_OK && line.request.at < from->last)
        status = line_fail(&from->lines, "at= is before the request above");
    if (status != WEIR_OK)
        return status;
    from->last = line.request.at;
    *out = line.request;
    *got = true;
    return WEIR_OK;
}

static double recorded_fraction(const traffic *base)
{
    const recorded *from = (const recorded *)base;
    off_t at = ftello(from->lines.file);
    return from->bytes > 0 && at > 0 ? (double)at / (double)from->bytes : 0;
}

static void recorded_close(traffic *base)
{
    recorded *from = (recorded *)base;
    line_close(&from->lines);
    free(from->path);
    free(from);
}

weir_status traffic_open(const char *path, const traffic_models *models, traffic **out)
{
    struct stat file;
    recorded *from = calloc(1, sizeof *from);
    char *copy = strdup(path);
    if (!from || !copy) {
        free(from);
        free(copy);
        return weir_fail(WEIR_ERR_SYSTEM, "no memory to read %s", path);
    }
    from->base = (traffic){recorded_next, recorded_fraction, recorded_close};
    from->models = models;
    from->path = copy;
    weir_status status = line_open(&from->lines, copy);
    if (status != WEIR_OK) {
        recorded_close(&from->base);
        return status;
    }
    from->bytes = stat(path, &file) == 0 ? file.st_size : 0;
    *out = &from->base;
    return WEIR_OK;
}

weir_status traffic_next(traffic *from, traffic_request *out, bool *got)
{
    return from->next(from, out, got);
}

double traffic_fraction(const traffic *from)
{
    return from->fraction(from);
}

void traffic_close(traffic *from)
{
    if (from)
        from->close(from);
}

void traffic_request_write(const traffic_request *q, const traffic_models *models, FILE *file)
{
    char text[32];
    fprintf(file, "request at=%s model=%s", line_time_write(q->at, text, sizeof text),
            models->list[q->model].spec.name);
    fprintf(file, " time=%s", line_time_write(q->duration, text, sizeof text));
    wi_size_write(q->bytes, text, sizeof text);
    if (q->bytes)
        fprintf(file, " bytes=%s", text);
    if (q->deadline != WP_FOREVER)
        fprintf(file, " deadline=%s", line_time_write(q->deadline, text, sizeof text));
    if (q->priority)
        fprintf(file, " priority=%d", q->priority);
    fputc('\n', file);
}
