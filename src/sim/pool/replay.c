/* Logs of decisions, replayed. Lines are compared as texts: equal events are equal texts. */
#include "sim/pool/traffic.h"
#include "base/internal.h"
#include "base/system.h"
#include "pool/decisions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

enum { PROGRESS = 1 << 16 };

typedef struct replay {
    FILE *file;
    const char *path;
    char line[WP_LINE + 2]; /* the current line, without its end */
    bool here;              /* the file has a current line */
    wp_admission *machine;
    off_t bytes;
    void (*progress)(void *user, double fraction);
    void *user;
    replay_result *r;
} replay;

static weir_status next_line(replay *p)
{
    do {
        p->here = fgets(p->line, sizeof p->line, p->file) != NULL;
        if (!p->here)
            return ferror(p->file) ? weir_fail(WEIR_ERR_SYSTEM, "%s: %s", p->path, strerror(errno)) : WEIR_OK;
        p->r->lines++;
        size_t length = strlen(p->line);
        if (length > WP_LINE || (p->line[length - (length > 0)] != '\n' && !feof(p->file)))
            return weir_fail(WEIR_ERR_INVALID, "%s, line %" PRIu64 ": no line of a log of decisions", p->path,
                             p->r->lines);
        p->line[strcspn(p->line, "\r\n")] = '\0';
    } while (p->line[0] == '#' || p->line[0] == '\0');
    if (p->progress && p->r->lines % PROGRESS == 0 && p->bytes > 0)
        p->progress(p->user, (double)ftello(p->file) / (double)p->bytes);
    return WEIR_OK;
}

/* Compares a decided event (NULL: none) with the recorded line. Returns whether they are the same. */
static bool pool_replay_same(replay *p, const wp_event *decided)
{
    char text[WP_LINE] = "";
    const char *recorded = p->here ? p->line : "";
    if (decided)
        (void)wp_event_write(decided, text, sizeof text);
    if (strcmp(text, recorded) == 0)
        return true;
    p->r->differs = true;
    p->r->line = p->r->lines;
    snprintf(p->r->recorded, sizeof p->r->recorded, "%s", recorded);
    snprintf(p->r->decided, sizeof p->r->decided, "%s", text);
    return false;
}

/* Compares the actions after an input with the recorded actions. */
static weir_status compare_actions(replay *p)
{
    wp_event event;
    wp_action action;
    while (wp_take(p->machine, &event, &action)) {
        p->r->actions++;
        bool recorded = p->here && p->line[0] == '>';
        p->here = recorded;
        if (!pool_replay_same(p, &event))
            return WEIR_OK;
        weir_status status = next_line(p);
        if (status != WEIR_OK)
            return status;
    }
    if (p->here && p->line[0] == '>')
        (void)pool_replay_same(p, NULL);
    return WEIR_OK;
}

static bool devices_are_there(const wp_spec *spec, uint32_t devices)
{
    for (uint32_t v = 0; v < spec->variant_count; v++)
        if (spec->variants[v].on > devices)
            return false;
    return spec->device < devices;
}

/* True: the event names only models and devices that exist. The machine cannot handle other events. */
static bool makes_sense(const replay *p, const wp_event *e, uint32_t models, uint32_t devices)
{
    if (e->kind >= WP_EVENT_INPUTS || (e->kind == WP_EVENT_BEGIN) != (p->machine == NULL))
        return false;
    switch (e->kind) {
    case WP_EVENT_BEGIN:
        return e->devices > 0 && e->devices <= 1024;
    case WP_EVENT_ADD:
        return devices_are_there(&e->spec, devices);
    case WP_EVENT_CHANGE:
        return e->model < models && devices_are_there(&e->spec, devices);
    case WP_EVENT_REMOVE:
    case WP_EVENT_WANT:
    case WP_EVENT_LOADED:
    case WP_EVENT_SUSPENDED:
    case WP_EVENT_RESUMED:
    case WP_EVENT_UNLOADED:
    case WP_EVENT_MEASURED:
    case WP_EVENT_STOPPED:
        return e->model < models;
    case WP_EVENT_CEILING:
        return e->device < devices;
    case WP_EVENT_ASK:
        return e->request.model < models;
    default:
        return true;
    }
}

static weir_status pool_replay_run(replay *p)
{
    uint32_t models = 0, devices = 0;
    weir_status status = next_line(p);
    while (status == WEIR_OK && p->here && !p->r->differs) {
        wp_event event;
        if (!wp_event_read(p->line, &event) || !makes_sense(p, &event, models, devices))
            return weir_fail(WEIR_ERR_INVALID, "%s, line %" PRIu64 ": no input of a log of decisions", p->path,
                             p->r->lines);
        wp_apply(&p->machine, &event);
        p->r->events++;
        if (!p->machine)
            return weir_fail(WEIR_ERR_SYSTEM, "no memory for the replay");
        if (event.kind == WP_EVENT_BEGIN)
            devices = event.devices;
        if (event.kind == WP_EVENT_ADD && event.ok && event.model >= models)
            models = event.model + 1;
        if (!pool_replay_same(p, &event))
            return WEIR_OK;
        status = next_line(p);
        if (status == WEIR_OK)
            status = compare_actions(p);
    }
    if (status == WEIR_OK && p->r->events == 0)
        return weir_fail(WEIR_ERR_INVALID, "%s is no log of decisions: it is empty", p->path);
    return status;
}

weir_status replay_decisions(const char *path, void (*progress)(void *user, double fraction), void *user,
                             replay_result *out)
{
    *out = (replay_result){0};
    struct stat about;
    replay p = {.path = path, .file = fopen(path, "re"), .progress = progress, .user = user, .r = out};
    if (!p.file)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    p.bytes = fstat(fileno(p.file), &about) == 0 ? about.st_size : 0;
    double began = wi_real_seconds();
    weir_status status = pool_replay_run(&p);
    out->seconds = wi_real_seconds() - began;
    if (p.machine)
        wp_admission_destroy(p.machine);
    fclose(p.file);
    return status;
}
