/* replay_layout.c: where memory lies at the end of a replay, as JSON. */
#include "replay_layout.h"

#include "text.h"

#include <stdio.h>

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *address(const void *pointer)
{
    char text[24];
    snprintf(text, sizeof text, "%p", pointer);
    return pointer ? json_string(text) : json_null();
}

static json_t *span_json(const weir_span *span)
{
    json_t *object = json_pack("{s:s, s:o, s:o}", "state", weir_span_state_name(span->state), "address",
                               address(span->address), "bytes", number(span->bytes));
    if (span->state == WEIR_SPAN_ORDERED || span->block.pointer)
        json_object_set_new(object, "stream", number(span->stream.id));
    if (!span->block.pointer)
        return object;
    json_t *block = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "block", address(span->block.pointer),
                              "generation", number(span->block.generation), "charged", number(span->charged),
                              "requested", number(span->requested), "client", text_json(span->client_name), "tag",
                              text_json(span->tag), "class", weir_class_name(span->memory_class));
    json_object_update(object, block);
    json_decref(block);
    return object;
}

/* The segments of one walk. */
typedef struct list {
    json_t *segments, *spans; /* spans: of the last one */
} list;

static void add(const weir_segment *segment, const weir_span *span, void *user)
{
    list *l = user;
    if (json_array_size(l->segments) <= segment->number) {
        l->spans = json_array();
        json_array_append_new(l->segments, json_pack("{s:o, s:o, s:o}", "address", address(segment->address), "bytes",
                                                     number(segment->bytes), "spans", l->spans));
    }
    json_array_append_new(l->spans, span_json(span));
}

weir_status replay_layout_take(void *user, const wi_replay_target *target)
{
    replay_layout *layout = user;
    weir_layout_totals totals = WEIR_INIT(weir_layout_totals);
    list l = {.segments = json_array()};
    weir_status status = target->walk(target->user, add, &l, &totals);
    json_t *bytes = json_object();
    for (int state = 0; state < WEIR_SPAN_COUNT; state++)
        json_object_set_new(bytes, weir_span_state_name((weir_span_state)state), number(totals.bytes[state]));
    json_array_append_new(layout->traces, json_pack("{s:o, s:o, s:o, s:o, s:o}", "trace", text_json(layout->trace),
                                                    "held", number(totals.held), "in_hand", number(totals.in_hand),
                                                    "bytes", bytes, "segments", l.segments));
    return status;
}

bool replay_layout_write(const replay_layout *layout, const char *path)
{
    json_t *object = json_pack("{s:O}", "traces", layout->traces);
    bool written = json_dump_file(object, path, JSON_INDENT(1)) == 0;
    json_decref(object);
    return written;
}
