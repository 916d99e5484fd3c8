/* Events of a state machine of admission: given to it, written and read. */
#include "pool/decisions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words ------------------------------------------------------------------------------------------------------------ */

static const char *const kinds[WP_EVENT_KINDS] = {
    "begin",  "add",       "change",    "remove",   "ceiling",  "ask",      "done",  "cancel",
    "want",   "loaded",    "suspended", "resumed",  "unloaded", "measured", "tick",  "stopped",
    "> load", "> suspend", "> resume",  "> unload", "> grant",  "> refuse", "> stop"};
static const char *const states[WP_STATES] = {"unloaded",  "loading",  "loaded",    "suspending",
                                              "suspended", "resuming", "unloading", "failed"};
static const char *const causes[WP_CAUSES] = {"granted",    "busy",       "loading",  "room",        "turn",
                                              "never-fits", "queue-full", "too-late", "load-failed", "cancelled",
                                              "removed",    "pinned",     "no-room"};
/* Steps, in a list of which each comes once at the most. */
static const char *const steps[WP_STEPS] = {"context", "layers", "suspend", "evict", "device", "wait"};

const char *wp_state_name(wp_state state)
{
    return (unsigned)state < WP_STATES ? states[state] : "?";
}

const char *wp_step_name(wp_step step)
{
    return (unsigned)step < WP_STEPS ? steps[step] : "?";
}

const char *wp_cause_name(wp_cause cause)
{
    return (unsigned)cause < WP_CAUSES ? causes[cause] : "?";
}

/* Pairs ------------------------------------------------------------------------------------------------------------ */

typedef enum type { U64, U32, I32, FLAG, NAME, VARIANTS, STEPS, STATE, CAUSE } type;

/* A key, the offset of its value in wp_event, and the event kinds that have the key. */
typedef struct pair {
    const char *key;
    type type;
    size_t at;
    uint32_t kinds;
} pair;

#define K(kind)   (UINT32_C(1) << (WP_EVENT_##kind))
#define AT(where) offsetof(wp_event, where)
#define SPECS     (K(ADD) | K(CHANGE))
#define ENDS      (K(LOADED) | K(SUSPENDED) | K(RESUMED))
#define MOVES     (K(ACTION_LOAD) | K(ACTION_SUSPEND) | K(ACTION_RESUME) | K(ACTION_UNLOAD))
#define VERDICTS  (K(ACTION_GRANT) | K(ACTION_REFUSE))
#define ANSWERED  (K(ASK) | K(WANT) | VERDICTS)
#define INPUTS    (~UINT32_C(0) >> (32 - WP_EVENT_INPUTS))

static const pair pairs[] = {
    {"t", U64, AT(now), INPUTS & ~K(BEGIN)},
    {"queue", U32, AT(limits.queue), K(BEGIN)},
    {"queue_bytes", U64, AT(limits.queue_bytes), K(BEGIN)},
    {"longest", U64, AT(limits.longest), K(BEGIN)},
    {"retry", U64, AT(limits.retry), K(BEGIN)},
    {"host", U64, AT(limits.host), K(BEGIN)},
    {"passing", U64, AT(limits.passing), K(BEGIN)},
    {"devices", U32, AT(devices), K(BEGIN)},
    {"name", NAME, AT(spec.name), SPECS},
    {"device", U32, AT(spec.device), SPECS},
    {"device", U32, AT(device), K(CEILING)},
    {"variants", VARIANTS, AT(spec), SPECS},
    {"stays", U64, AT(spec.stays), SPECS},
    {"host", U64, AT(spec.host), SPECS},
    {"can_suspend", FLAG, AT(spec.can_suspend), SPECS},
    {"may_evict", FLAG, AT(spec.may_evict), SPECS},
    {"pinned", FLAG, AT(spec.pinned), SPECS},
    {"shrink_first", FLAG, AT(spec.shrink_first), SPECS},
    {"steps", STEPS, AT(spec), SPECS},
    {"priority", I32, AT(spec.priority), SPECS},
    {"weight", U32, AT(spec.weight), SPECS},
    {"load_time", U64, AT(spec.load_time), SPECS},
    {"resume_time", U64, AT(spec.resume_time), SPECS},
    {"suspend_time", U64, AT(spec.suspend_time), SPECS},
    {"evict_cost", U64, AT(spec.evict_cost), SPECS},
    {"minimum_stay", U64, AT(spec.minimum_stay), SPECS},
    {"keep_alive", U64, AT(spec.keep_alive), SPECS},
    {"suspend_after", U64, AT(spec.suspend_after), SPECS},
    {"slots", U32, AT(spec.slots), SPECS},
    {"model", U32, AT(request.model), K(ASK)},
    {"model", U32, AT(model),
     SPECS | K(REMOVE) | K(WANT) | K(STOPPED) | K(ACTION_STOP) | ENDS | K(UNLOADED) | K(MEASURED) | MOVES | VERDICTS},
    {"variant", U32, AT(variant), K(ACTION_LOAD)},
    {"device", U32, AT(device), MOVES},
    {"bytes", U64, AT(request.bytes), K(ASK)},
    {"bytes", U64, AT(bytes), K(CEILING) | ENDS | K(UNLOADED) | K(MEASURED) | MOVES},
    {"deadline", U64, AT(request.deadline), K(ASK)},
    {"priority", I32, AT(request.priority), K(ASK)},
    {"took", U64, AT(took), ENDS},
    {"state", STATE, AT(state), K(WANT)},
    {"why", U64, AT(why), MOVES},
    {"ticket", U64, AT(ticket), K(DONE) | K(CANCEL)},
    {"stops", FLAG, AT(stops), K(CANCEL)},
    {"ok", FLAG, AT(ok), K(ADD) | K(CANCEL) | K(WANT) | ENDS},
    {"ticket", U64, AT(answer.ticket), K(ASK) | VERDICTS},
    {"cause", CAUSE, AT(answer.cause), ANSWERED},
    {"position", U32, AT(answer.position), ANSWERED},
    {"expected", U64, AT(answer.expected), ANSWERED},
    {"need", U64, AT(answer.need), ANSWERED},
    {"limit", U64, AT(answer.limit), ANSWERED},
    {"fits", U64, AT(answer.fits), ANSWERED},
    {"variant", U32, AT(answer.variant), ANSWERED},
    {"context", U32, AT(answer.context), ANSWERED},
    {"layers", I32, AT(answer.layers), ANSWERED},
    {"until", U64, AT(answer.until), ANSWERED},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* Written ---------------------------------------------------------------------------------------------------------- */

static size_t decisions_write_number(uint64_t value, char *text, size_t room)
{
    return (size_t)(value == WP_FOREVER ? snprintf(text, room, "forever") : snprintf(text, room, "%" PRIu64, value));
}

static size_t decisions_write_name(const char *name, char *text, size_t room)
{
    size_t used = 0;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        used += (size_t)(*c > ' ' && *c != '%' && *c < 0x7f ? snprintf(text + used, room - used, "%c", *c)
                                                            : snprintf(text + used, room - used, "%%%02x", *c));
    return used;
}

static size_t write_variants(const wp_spec *spec, char *text, size_t room)
{
    size_t used = 0;
    for (uint32_t i = 0; i < spec->variant_count && i < WP_VARIANTS; i++) {
        const wp_variant *v = &spec->variants[i];
        used += (size_t)snprintf(text + used, room - used,
                                 "%s%" PRIu64 "/%" PRIu64 "/%" PRIu32 "/%" PRId32 "/%" PRIu32 "/%s%s", i ? "," : "",
                                 v->peak, v->resident, v->context, v->layers, v->on, wp_step_name(v->gives),
                                 v->same ? "/same" : "");
    }
    return used;
}

/* "-": the usual ones. */
static size_t write_steps(const wp_spec *spec, char *text, size_t room)
{
    size_t used = 0;
    for (uint32_t i = 0; i < spec->step_count && i < WP_STEPS; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%s", i ? "," : "", wp_step_name(spec->steps[i]));
    return used ? used : (size_t)snprintf(text, room, "-");
}

static size_t write_value(const wp_event *event, const pair *of, char *text, size_t room)
{
    const char *at = (const char *)event + of->at;
    switch (of->type) {
    case U64:
        return decisions_write_number(*(const uint64_t *)at, text, room);
    case U32:
        return (size_t)snprintf(text, room, "%" PRIu32, *(const uint32_t *)at);
    case I32:
        return (size_t)snprintf(text, room, "%" PRId32, *(const int32_t *)at);
    case FLAG:
        return (size_t)snprintf(text, room, "%d", *(const bool *)at);
    case NAME:
        return decisions_write_name(at, text, room);
    case VARIANTS:
        return write_variants((const wp_spec *)at, text, room);
    case STEPS:
        return write_steps((const wp_spec *)at, text, room);
    case STATE:
        return (size_t)snprintf(text, room, "%s", wp_state_name(*(const wp_state *)at));
    case CAUSE:
        return (size_t)snprintf(text, room, "%s", wp_cause_name(*(const wp_cause *)at));
    }
    return 0;
}

size_t wp_event_write(const wp_event *event, char *text, size_t capacity)
{
    size_t used = (size_t)snprintf(text, capacity, "%s", kinds[event->kind]);
    for (size_t i = 0; i < PAIRS; i++) {
        if (!(pairs[i].kinds & (UINT32_C(1) << event->kind)))
            continue;
        used += (size_t)snprintf(text + used, capacity - used, " %s=", pairs[i].key);
        used += write_value(event, &pairs[i], text + used, capacity - used);
    }
    return used;
}

/* Read ------------------------------------------------------------------------------------------------------------- */

/* Reads digits up to `end`; *text is behind them afterwards. */
static bool decisions_read_number(const char **text, const char *end, uint64_t most, uint64_t *out)
{
    const char *at = *text;
    uint64_t value = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    bool any = at > *text;
    *text = at;
    *out = value;
    return any && value <= most;
}

static bool read_signed(const char **text, const char *end, int32_t *out)
{
    uint64_t value;
    bool negative = *text < end && **text == '-';
    *text += negative;
    if (!decisions_read_number(text, end, negative ? UINT64_C(1) << 31 : INT32_MAX, &value))
        return false;
    *out = (int32_t)(negative ? -(int64_t)value : (int64_t)value);
    return true;
}

static int decisions_digit(char c)
{
    const char *digits = "0123456789abcdef", *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

static bool decisions_read_name(const char *at, const char *end, char *out)
{
    size_t used = 0;
    while (at < end) {
        int high = *at == '%' && end - at > 2 ? decisions_digit(at[1]) : -1,
            low = high >= 0 ? decisions_digit(at[2]) : -1;
        if ((*at == '%' && low < 0) || used + 1 >= WP_NAME)
            return false;
        out[used++] = (char)(*at == '%' ? high * 16 + low : *at);
        at += *at == '%' ? 3 : 1;
    }
    out[used] = '\0';
    return true;
}

static bool passes(const char **at, const char *end, char c)
{
    bool here = *at < end && **at == c;
    *at += here;
    return here;
}

static bool read_word(const char *at, const char *end, const char *const *words, size_t count, size_t *out)
{
    size_t length = (size_t)(end - at);
    for (*out = 0; *out < count; ++*out)
        if (strlen(words[*out]) == length && memcmp(words[*out], at, length) == 0)
            return true;
    return false;
}

static const char *word_end(const char *at, const char *end)
{
    while (at < end && *at != ',' && *at != '/')
        at++;
    return at;
}

/* A step; *at is behind it afterwards. */
static bool read_step(const char **at, const char *end, wp_step *out)
{
    size_t word;
    const char *stop = word_end(*at, end);
    if (!read_word(*at, stop, steps, WP_STEPS, &word))
        return false;
    *at = stop;
    *out = (wp_step)word;
    return true;
}

static bool decisions_read_variant(const char **at, const char *end, wp_variant *v)
{
    uint64_t context, on;
    if (!decisions_read_number(at, end, UINT64_MAX, &v->peak) || !passes(at, end, '/') ||
        !decisions_read_number(at, end, UINT64_MAX, &v->resident) || !passes(at, end, '/') ||
        !decisions_read_number(at, end, UINT32_MAX, &context) || !passes(at, end, '/') ||
        !read_signed(at, end, &v->layers) || !passes(at, end, '/') ||
        !decisions_read_number(at, end, UINT32_MAX, &on) || !passes(at, end, '/') || !read_step(at, end, &v->gives))
        return false;
    v->context = (uint32_t)context;
    v->on = (uint32_t)on;
    v->same = passes(at, end, '/');
    const char *stop = word_end(*at, end);
    bool good = !v->same || (stop - *at == 4 && memcmp(*at, "same", 4) == 0);
    *at = v->same ? stop : *at;
    return good;
}

static bool read_variants(const char *at, const char *end, wp_spec *out)
{
    out->variant_count = 0;
    do {
        if (!decisions_read_variant(&at, end, &out->variants[out->variant_count++]))
            return false;
    } while (out->variant_count < WP_VARIANTS && passes(&at, end, ','));
    return at == end;
}

static bool decisions_read_steps(const char *at, const char *end, wp_spec *out)
{
    out->step_count = 0;
    if (end - at == 1 && *at == '-')
        return true;
    do {
        if (!read_step(&at, end, &out->steps[out->step_count++]))
            return false;
    } while (out->step_count < WP_STEPS && passes(&at, end, ','));
    return at == end;
}

static bool decisions_read_value(const pair *of, const char *at, const char *end, wp_event *out)
{
    char *to = (char *)out + of->at;
    uint64_t value = WP_FOREVER;
    size_t word;
    switch (of->type) {
    case U64:
        if ((size_t)(end - at) != strlen("forever") || memcmp(at, "forever", strlen("forever")) != 0) {
            if (!decisions_read_number(&at, end, UINT64_MAX, &value) || at != end)
                return false;
        }
        *(uint64_t *)to = value;
        return true;
    case U32:
        *(uint32_t *)to = 0;
        if (!decisions_read_number(&at, end, UINT32_MAX, &value) || at != end)
            return false;
        *(uint32_t *)to = (uint32_t)value;
        return true;
    case I32:
        return read_signed(&at, end, (int32_t *)to) && at == end;
    case FLAG:
        if (!decisions_read_number(&at, end, 1, &value) || at != end)
            return false;
        *(bool *)to = value == 1;
        return true;
    case NAME:
        return decisions_read_name(at, end, to);
    case VARIANTS:
        return read_variants(at, end, (wp_spec *)to);
    case STEPS:
        return decisions_read_steps(at, end, (wp_spec *)to);
    case STATE:
        if (!read_word(at, end, states, WP_STATES, &word))
            return false;
        *(wp_state *)to = (wp_state)word;
        return true;
    case CAUSE:
        if (!read_word(at, end, causes, WP_CAUSES, &word))
            return false;
        *(wp_cause *)to = (wp_cause)word;
        return true;
    }
    return false;
}

static const char *decisions_end_of(const char *line)
{
    size_t length = strlen(line);
    while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
        length--;
    return line + length;
}

/* The kind's own pairs, each once and in their order. */
bool wp_event_read(const char *line, wp_event *out)
{
    const char *end = decisions_end_of(line), *at = line;
    size_t kind;
    *out = (wp_event){0};
    for (at += at < end && *at == '>' ? 2 : 0; at < end && *at != ' ';)
        at++;
    if (at > end || !read_word(line, at, kinds, WP_EVENT_KINDS, &kind))
        return false;
    out->kind = (wp_event_kind)kind;
    for (size_t i = 0; i < PAIRS; i++) {
        size_t length = strlen(pairs[i].key);
        if (!(pairs[i].kinds & (UINT32_C(1) << kind)))
            continue;
        if (!passes(&at, end, ' ') || (size_t)(end - at) <= length || memcmp(at, pairs[i].key, length) != 0 ||
            at[length] != '=')
            return false;
        const char *value = at + length + 1;
        for (at = value; at < end && *at != ' ';)
            at++;
        if (!decisions_read_value(&pairs[i], value, at, out))
            return false;
    }
    return at == end;
}

/* Given to the machine --------------------------------------------------------------------------------------------- */

void wp_apply(wp_admission **it, wp_event *e)
{
    switch (e->kind) {
    case WP_EVENT_BEGIN:
        *it = wp_admission_create(&e->limits, e->devices);
        break;
    case WP_EVENT_ADD:
        e->ok = wp_add(*it, e->now, &e->spec, &e->model);
        break;
    case WP_EVENT_CHANGE:
        wp_change(*it, e->now, e->model, &e->spec);
        break;
    case WP_EVENT_REMOVE:
        wp_remove(*it, e->now, e->model);
        break;
    case WP_EVENT_CEILING:
        wp_ceiling(*it, e->now, e->device, e->bytes);
        break;
    case WP_EVENT_ASK:
        e->answer = wp_ask(*it, e->now, &e->request);
        break;
    case WP_EVENT_DONE:
        wp_done(*it, e->now, e->ticket);
        break;
    case WP_EVENT_CANCEL:
        e->ok = wp_cancel(*it, e->now, e->ticket, e->stops);
        break;
    case WP_EVENT_WANT:
        e->answer = (wp_answer){0};
        e->ok = wp_want(*it, e->now, e->model, e->state, &e->answer);
        break;
    case WP_EVENT_LOADED:
        wp_loaded(*it, e->now, e->model, e->ok, e->bytes, e->took);
        break;
    case WP_EVENT_SUSPENDED:
        wp_suspended(*it, e->now, e->model, e->ok, e->bytes, e->took);
        break;
    case WP_EVENT_RESUMED:
        wp_resumed(*it, e->now, e->model, e->ok, e->bytes, e->took);
        break;
    case WP_EVENT_UNLOADED:
        wp_unloaded(*it, e->now, e->model, e->bytes);
        break;
    case WP_EVENT_MEASURED:
        wp_measured(*it, e->now, e->model, e->bytes);
        break;
    case WP_EVENT_STOPPED:
        wp_stopped(*it, e->now, e->model);
        break;
    case WP_EVENT_TICK:
        wp_tick(*it, e->now);
        break;
    default:
        break;
    }
}

bool wp_take(wp_admission *it, wp_event *event, wp_action *action)
{
    static const wp_event_kind of[] = {[WP_LOAD] = WP_EVENT_ACTION_LOAD,     [WP_SUSPEND] = WP_EVENT_ACTION_SUSPEND,
                                       [WP_RESUME] = WP_EVENT_ACTION_RESUME, [WP_UNLOAD] = WP_EVENT_ACTION_UNLOAD,
                                       [WP_GRANT] = WP_EVENT_ACTION_GRANT,   [WP_REFUSE] = WP_EVENT_ACTION_REFUSE,
                                       [WP_STOP] = WP_EVENT_ACTION_STOP};
    if (!wp_next(it, action))
        return false;
    *event = (wp_event){.kind = of[action->kind],
                        .model = action->model,
                        .variant = action->variant,
                        .device = action->device,
                        .bytes = action->bytes,
                        .why = action->why,
                        .answer = action->answer};
    return true;
}
