/* Steps of another thread on a stream while a thread ends it. Each comes before the door is closed, and is waited for, or it is
 * refused and changes nothing. */
#include "sim/world.h"

enum { LATE_FREE, LATE_READ, LATE_FILL, LATE_ALLOCATE, LATE_CALL, LATE_END, LATE_KINDS };

bool world_is_late(const world *w, uint64_t stream)
{
    return stream && w->late == stream && w->late_depth == w->depth;
}

/* The stream whose end began last of those that are under way; 0: none is. */
unsigned world_ending(const world *w)
{
    unsigned last = 0;
    for (unsigned s = 1; s <= w->options.streams; s++)
        if (w->stream_ends[s] > w->stream_ends[last])
            last = s;
    return last;
}

/* Nobody else ends the stream, or has it captured. Of two ends that a stream takes the first leaves it open. */
static void late_end(world *w, unsigned stream)
{
    weir_stream id = w->streams[stream];
    if (w->registered_twice[stream])
        return;
    world_must_answer(w, "a capture of a stream that another thread ends", weir_capture_begin(id, NULL),
                      WEIR_ERR_STREAM_MISUSE);
    world_must_answer(w, "the end of a stream that another thread ends",
                      w->foreign[stream] ? weir_stream_unregister(id) : weir_stream_release(id),
                      WEIR_ERR_STREAM_MISUSE);
}

static void late_run(world *w, const step *s, unsigned kind)
{
    unsigned stream = (unsigned)s->field[F_STREAM], client = (unsigned)s->field[F_CLIENT] % w->options.clients;
    step plain = *s;
    plain.field[F_COUNT] = plain.field[F_MORE] = 0;
    plain.field[F_CLASS] %= WEIR_CLASS_COUNT;
    switch (kind) {
    case LATE_FREE:
        run_touch(w, s);
        run_free(w, s);
        return;
    case LATE_READ:
        run_record(w, s);
        return;
    case LATE_FILL:
        run_fill(w, s);
        run_free(w, s);
        return;
    case LATE_ALLOCATE:
        if (!w->suspended[client])
            run_allocate(w, &plain);
        return;
    case LATE_CALL:
        run_call(w, s);
        return;
    default:
        late_end(w, stream);
        return;
    }
}

/* Makes a step of the kind in F_COUNT on the stream that is being ended. Work that its user has put there and weir does not know of is
 * passed on to his stream `other`, which comes behind it. */
void run_late(world *w, const step *s)
{
    unsigned stream = (unsigned)s->field[F_STREAM], other = (unsigned)s->field[F_CLASS];
    unsigned kind = (unsigned)(s->field[F_COUNT] % LATE_KINDS), late = w->late, depth = w->late_depth;
    slot *b = world_slot(w, s->field[F_SLOT]);
    if (stream == 0 || stream > w->options.streams || w->stream_ends[stream] == 0 || other == 0 || other == stream ||
        !world_has_stream(w, other) || b->in_hand)
        return;
    w->late = stream;
    w->late_depth = w->depth;
    world_take_stream(w, other, 1);
    late_run(w, s, kind);
    if (kind == LATE_FREE || kind == LATE_FILL || (kind == LATE_READ && !world_is_told(b, stream)))
        world_pass_on(w, b, stream, other);
    world_take_stream(w, other, -1);
    w->late = late;
    w->late_depth = depth;
}
