/* A snapshot of PyTorch's allocator, as pickle has it (torch.cuda.memory._snapshot), as a recording. The snapshot says
 * what there is at its end and, of the events before, the last ones. What was live before the first of them follows
 * from both, and comes first, as it does in a trace of weir's. */
#include "trace/recording.h"

#include "base/internal.h"
#include "base/maps.h"
#include "trace/readers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHARGED = 512, DEVICES_MOST = 1024 }; /* PyTorch's allocator rounds up to so many bytes */

typedef struct block {
    uint64_t pointer, bytes, charged, stream;
    const char *client, *tag;
    weir_class memory_class;
    bool pending, ended;
} block;

typedef struct state {
    pickle *p;
    const char *path, *device;
    recording *out;
    int ordinal;
    block *blocks; /* all blocks in the order of their allocations */
    size_t count, room;
    wi_pointer_map known;   /* live and pending ones, by address */
    wi_pointer_map streams; /* numbers, by PyTorch's stream and 1 */
    uint64_t stream_count, serial, live, pending, held, nanoseconds;
} state;

static weir_status read_snapshot_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory for the events of the snapshot");
}

bool recording_is_pickle(const unsigned char *first, size_t bytes)
{
    bool plain = bytes >= 2 && (first[0] == '}' || first[0] == ']' || first[0] == '(');
    return (bytes >= 2 && first[0] == 0x80 && first[1] <= 5) || (plain && first[1] && strchr("dlpqr.(", first[1]));
}

/* Texts ------------------------------------------------------------------------------------------------------------ */

static const char *read_snapshot_keep(state *s, const char *text, uint64_t bytes)
{
    return recording_intern(s->out, text,
                            bytes > SNAPSHOT_TEXT_MOST ? SNAPSHOT_TEXT_MOST : (size_t)strnlen(text, bytes));
}

static bool read_snapshot_ends_with(const pickle_value *text, const char *end)
{
    size_t length = strlen(end);
    return text && text->kind == PICKLE_TEXT && text->count >= length &&
           memcmp(text->text + text->count - length, end, length) == 0;
}

static const char *read_snapshot_keep_text(state *s, const pickle_value *text)
{
    return text && text->kind == PICKLE_TEXT ? read_snapshot_keep(s, text->text, text->count) : "";
}

static weir_class read_snapshot_class_of(const pickle_value *name)
{
    int i = 0;
    while (i < WEIR_CLASS_COUNT && !pickle_is(name, weir_name_of(WEIR_NAMES_CLASS, i)))
        i++;
    return i < WEIR_CLASS_COUNT ? (weir_class)i : WEIR_CLASS_OTHER;
}

/* The line of the program that asked: "forward (model.py:12)"; the name alone where PyTorch knows no line. */
static const char *frame_text(state *s, const pickle_value *frame)
{
    char text[SNAPSHOT_TEXT_MOST];
    const pickle_value *name = pickle_get(s->p, frame, "name"), *file = pickle_get(s->p, frame, "filename");
    if (!name || name->kind != PICKLE_TEXT || !file || file->kind != PICKLE_TEXT)
        return "";
    uint64_t line = pickle_number(pickle_get(s->p, frame, "line"), 0);
    if (line == 0 && name->count > 0)
        return read_snapshot_keep_text(s, name);
    const char *last = file->text + file->count;
    while (last > file->text && last[-1] != '/')
        last--;
    int length =
        snprintf(text, sizeof text, "%.*s (%.*s:%llu)", (int)(name->count > 200 ? 200 : name->count), name->text,
                 (int)(file->text + file->count - last > 200 ? 200 : file->text + file->count - last), last,
                 (unsigned long long)line);
    return read_snapshot_keep(s, text, (uint64_t)length);
}

/* Who a block is for: what weir has written there, or the first line of Python's that is on the stack. */
static void read_frames(state *s, const pickle_value *frames, block *out)
{
    const pickle_value *frame, *chosen = pickle_item(s->p, frames, 0);
    for (uint64_t i = 0; i < SNAPSHOT_FRAMES && (frame = pickle_item(s->p, frames, i)) != NULL; i++) {
        const pickle_value *file = pickle_get(s->p, frame, "filename"), *name = pickle_get(s->p, frame, "name");
        if (pickle_is(file, SNAPSHOT_CLIENT)) {
            out->client = read_snapshot_keep_text(s, name);
            chosen = NULL;
        } else if (pickle_is(file, SNAPSHOT_CLASS)) {
            out->memory_class = read_snapshot_class_of(name);
            chosen = NULL;
        } else if (pickle_is(file, SNAPSHOT_TAG)) {
            out->tag = read_snapshot_keep_text(s, name);
            chosen = NULL;
        } else if (read_snapshot_ends_with(file, ".py")) {
            chosen = frame;
            break;
        }
    }
    if (chosen)
        out->tag = frame_text(s, chosen);
}

/* A stream's number: weir's streams have small ones, and 0 is the host's. */
static weir_status read_stream(state *s, const pickle_value *entry, uint64_t *out)
{
    const void *key = (const void *)(uintptr_t)(pickle_number(pickle_get(s->p, entry, "stream"), 0) + 1);
    if (!key)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: a stream that is none", s->path);
    if (wi_pointer_map_get(&s->streams, key, out))
        return WEIR_OK;
    *out = ++s->stream_count;
    return wi_pointer_map_put(&s->streams, key, *out) ? WEIR_OK : read_snapshot_no_memory();
}

/* Events ----------------------------------------------------------------------------------------------------------- */

static weir_status read_snapshot_add_event(state *s, weir_action action, const block *b, size_t number, uint64_t stream)
{
    weir_event event = {.action = action,
                        .memory_class = WEIR_CLASS_OTHER,
                        .order = ++s->serial,
                        .nanoseconds = s->nanoseconds,
                        .thread = 1,
                        .stream = {stream},
                        .live = s->live,
                        .pending = s->pending,
                        .held = s->held,
                        .client = "",
                        .tag = "",
                        .device = s->device};
    if (b) {
        event.memory_class = b->memory_class;
        event.pointer = (void *)(uintptr_t)b->pointer;
        event.bytes = b->bytes;
        event.charged = b->charged;
        event.generation = number + 1;
        event.client = b->client;
        event.tag = b->tag;
        event.other.id = b->stream;
    }
    return recording_add(s->out, &event);
}

static weir_status add_block(state *s, block b, uint64_t stream)
{
    if (!b.client || !b.tag || !wi_make_room(&s->blocks, s->count, &s->room, sizeof *s->blocks) ||
        !wi_pointer_map_put(&s->known, (const void *)(uintptr_t)b.pointer, s->count))
        return read_snapshot_no_memory();
    s->live += b.charged;
    s->blocks[s->count++] = b;
    return read_snapshot_add_event(s, WEIR_ACTION_ALLOCATE, &b, s->count - 1, stream);
}

static weir_status end_block(state *s, size_t number, bool completed, uint64_t stream)
{
    block *b = &s->blocks[number];
    weir_status status = WEIR_OK;
    if (!b->pending) {
        b->pending = true;
        s->live -= b->charged;
        s->pending += b->charged;
        status = read_snapshot_add_event(s, WEIR_ACTION_DEALLOCATE, b, number, stream);
    }
    if (status != WEIR_OK || !completed)
        return status;
    uint64_t ignored;
    (void)wi_pointer_map_remove(&s->known, (const void *)(uintptr_t)b->pointer, &ignored);
    s->pending -= b->charged;
    b->ended = true;
    return read_snapshot_add_event(s, WEIR_ACTION_REAP, b, number, b->stream);
}

static uint64_t read_snapshot_rounded(uint64_t bytes)
{
    return (bytes + CHARGED - 1) / CHARGED * CHARGED;
}

#define BYTES_MOST (UINT64_C(1) << 48)
#define LIVE_MOST  (UINT64_C(1) << 61)

/* A block of an entry, or of a segment. False: no address or no size that could be. */
static bool read_snapshot_read_block(state *s, const pickle_value *from, const char *address, block *out)
{
    *out = (block){.client = "pytorch", .tag = "", .memory_class = WEIR_CLASS_OTHER};
    out->pointer = pickle_number(pickle_get(s->p, from, address), 0);
    out->bytes = pickle_number(pickle_get(s->p, from, "size"), UINT64_MAX);
    out->charged = read_snapshot_rounded(out->bytes);
    read_frames(s, pickle_get(s->p, from, "frames"), out);
    return out->pointer && out->bytes < BYTES_MOST;
}

/* What an entry does to what is held. */
static int64_t held_by(state *s, const pickle_value *entry)
{
    const pickle_value *action = pickle_get(s->p, entry, "action");
    uint64_t size = pickle_number(pickle_get(s->p, entry, "size"), 0);
    bool more = pickle_is(action, "segment_alloc") || pickle_is(action, "segment_map");
    bool less = pickle_is(action, "segment_free") || pickle_is(action, "segment_unmap");
    return size >= BYTES_MOST ? 0 : more ? (int64_t)size : less ? -(int64_t)size : 0;
}

static weir_status add_held(state *s, int64_t change)
{
    s->held = s->held + (uint64_t)change > INT64_MAX ? 0 : s->held + (uint64_t)change;
    return read_snapshot_add_event(s, WEIR_ACTION_HOLD, NULL, 0, 0);
}

static weir_status add_refusal(state *s, const pickle_value *entry, uint64_t stream)
{
    block b = {0};
    weir_event *last;
    (void)read_snapshot_read_block(s, entry, "addr", &b);
    b.pointer = 0;
    b.bytes = b.bytes < BYTES_MOST ? b.bytes : 0;
    b.charged = read_snapshot_rounded(b.bytes);
    weir_status status =
        b.client && b.tag ? read_snapshot_add_event(s, WEIR_ACTION_REFUSE, &b, 0, stream) : read_snapshot_no_memory();
    if (status == WEIR_OK) {
        last = &s->out->events[s->out->count - 1];
        last->generation = 0;
        last->result = WEIR_ERR_OUT_OF_MEMORY;
    }
    return status;
}

/* NULL, or what is wrong with the entry. */
static const char *take_entry(state *s, const pickle_value *entry, weir_status *status)
{
    const pickle_value *action = pickle_get(s->p, entry, "action");
    uint64_t time = pickle_number(pickle_get(s->p, entry, "time_us"), 0), stream = 0, number = 0;
    block b = {0};
    s->nanoseconds = time && time < UINT64_MAX / 1000 ? time * 1000 : s->nanoseconds;
    s->out->timed |= time > 0;
    if (pickle_is(action, "snapshot"))
        return NULL;
    if ((*status = read_stream(s, entry, &stream)) != WEIR_OK)
        return NULL;
    if (pickle_is(action, "oom")) {
        *status = add_refusal(s, entry, stream);
        return NULL;
    }
    int64_t change = held_by(s, entry);
    if (change) {
        *status = add_held(s, change);
        return NULL;
    }
    bool allocates = pickle_is(action, "alloc"), completed = pickle_is(action, "free_completed");
    if (!allocates && !completed && !pickle_is(action, "free_requested") && !pickle_is(action, "free")) {
        s->out->unknown += !pickle_is(action, "annotate") && !pickle_is(action, "user_defined");
        return NULL;
    }
    if (!read_snapshot_read_block(s, entry, "addr", &b))
        return "an address or a size that is none";
    if (allocates && s->live > LIVE_MOST)
        return "an allocation beyond all that can be counted";
    bool found = wi_pointer_map_get(&s->known, (const void *)(uintptr_t)b.pointer, &number);
    if (allocates == found)
        return found ? "an allocation at a pointer that is live" : "a free of a pointer that is not live";
    b.stream = stream;
    *status =
        allocates ? add_block(s, b, stream) : end_block(s, number, completed || pickle_is(action, "free"), stream);
    return NULL;
}

/* What was there before ------------------------------------------------------------------------------------------- */

/* A block that an entry frees and none before has allocated, and one that is there at the end and none has. */
static weir_status add_old(state *s, wi_pointer_map *made, block b, const pickle_value *from, bool pending)
{
    uint64_t ignored, size = pickle_number(pickle_get(s->p, from, "requested_size"), b.bytes);
    if (wi_pointer_map_remove(made, (const void *)(uintptr_t)b.pointer, &ignored) ||
        wi_pointer_map_get(&s->known, (const void *)(uintptr_t)b.pointer, &ignored))
        return WEIR_OK;
    if (size > 0 && size < b.bytes) { /* of a segment: `size` is what counts */
        b.charged = b.bytes;
        b.bytes = size;
    }
    weir_status status = add_block(s, b, 0);
    return status == WEIR_OK && pending ? end_block(s, s->count - 1, false, 0) : status;
}

/* Adds the blocks that the entries free without having allocated them. After each entry, `made` has the blocks that
 * entries have allocated and not completely freed. */
static weir_status add_freed(state *s, const pickle_value *entries, wi_pointer_map *made)
{
    const pickle_value *entry;
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; status == WEIR_OK && (entry = pickle_item(s->p, entries, i)) != NULL; i++) {
        const pickle_value *action = pickle_get(s->p, entry, "action");
        uint64_t pointer = pickle_number(pickle_get(s->p, entry, "addr"), 0), ignored;
        const void *key = (const void *)(uintptr_t)pointer;
        bool completed = pickle_is(action, "free_completed") || pickle_is(action, "free");
        if (!key)
            continue;
        if (pickle_is(action, "alloc")) {
            if (!wi_pointer_map_put(made, key, 1))
                status = read_snapshot_no_memory();
        } else if (completed || pickle_is(action, "free_requested")) {
            bool known = wi_pointer_map_remove(made, key, &ignored);
            /* A block that is only pending still exists; the entry that completes the free belongs to the same
             * block. */
            block b = {0};
            if (!known && read_snapshot_read_block(s, entry, "addr", &b) &&
                (status = read_stream(s, entry, &b.stream)) == WEIR_OK)
                status = add_old(s, made, b, entry, false);
            if (status == WEIR_OK && !completed && !wi_pointer_map_put(made, key, 1))
                status = read_snapshot_no_memory();
        }
    }
    return status;
}

static weir_status add_left(state *s, const pickle_value *segments, wi_pointer_map *made)
{
    const pickle_value *segment, *b;
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; status == WEIR_OK && (segment = pickle_item(s->p, segments, i)) != NULL; i++) {
        if (pickle_number(pickle_get(s->p, segment, "device"), 0) != (uint64_t)s->ordinal)
            continue;
        const pickle_value *blocks = pickle_get(s->p, segment, "blocks");
        uint64_t at = pickle_number(pickle_get(s->p, segment, "address"), 0), stream;
        if ((status = read_stream(s, segment, &stream)) != WEIR_OK)
            break;
        for (uint64_t j = 0; status == WEIR_OK && (b = pickle_item(s->p, blocks, j)) != NULL; j++) {
            const pickle_value *what = pickle_get(s->p, b, "state");
            bool pending = pickle_is(what, "active_pending_free");
            block old = {0};
            bool good = read_snapshot_read_block(s, b, "address", &old) || old.pointer == 0;
            old.pointer = old.pointer ? old.pointer : at; /* older ones have no addresses */
            old.stream = stream;
            if (good && old.pointer && old.bytes < BYTES_MOST && (pending || pickle_is(what, "active_allocated")))
                status = add_old(s, made, old, b, pending);
            at += pickle_number(pickle_get(s->p, b, "size"), 0);
        }
    }
    return status;
}

static weir_status read_segments(state *s, const pickle_value *segments)
{
    recording *out = s->out;
    const pickle_value *segment;
    for (uint64_t i = 0; (segment = pickle_item(s->p, segments, i)) != NULL; i++) {
        uint64_t bytes = pickle_number(pickle_get(s->p, segment, "total_size"), 0);
        if (pickle_number(pickle_get(s->p, segment, "device"), 0) != (uint64_t)s->ordinal || bytes == 0 ||
            bytes >= BYTES_MOST)
            continue;
        if ((out->segment_count & (out->segment_count + 1)) == 0) { /* full at 0, 1, 3, 7 …: double */
            recording_segment *more = realloc(out->segments, (out->segment_count * 2 + 2) * sizeof *more);
            if (!more)
                return read_snapshot_no_memory();
            out->segments = more;
        }
        recording_segment *to = &out->segments[out->segment_count++];
        to->address = pickle_number(pickle_get(s->p, segment, "address"), 0);
        to->bytes = bytes;
        s->held += bytes;
        weir_status status = read_stream(s, segment, &to->stream);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

/* Computes the held bytes before the entries: the held bytes after them minus the entries' changes. */
static void rewind_held(state *s, const pickle_value *entries)
{
    const pickle_value *entry;
    uint64_t change = 0; /* modulo 2^64, as in a file that is no good it may be anything */
    for (uint64_t i = 0; (entry = pickle_item(s->p, entries, i)) != NULL; i++)
        change += (uint64_t)held_by(s, entry);
    s->held = s->held - change > INT64_MAX ? 0 : s->held - change;
}

/* All -------------------------------------------------------------------------------------------------------------- */

/* Finds the devices that have entries or segments, and chooses the wanted device. */
static weir_status read_snapshot_choose_device(state *s, const pickle_value *traces, const pickle_value *segments,
                                               int wanted)
{
    bool there[DEVICES_MOST] = {false};
    char text[64] = "";
    int count = 0;
    const pickle_value *one;
    for (uint64_t i = 0; i < DEVICES_MOST && (one = pickle_item(s->p, traces, i)) != NULL; i++)
        there[i] = one->count > 0;
    for (uint64_t i = 0; (one = pickle_item(s->p, segments, i)) != NULL; i++) {
        uint64_t device = pickle_number(pickle_get(s->p, one, "device"), 0);
        if (device < DEVICES_MOST)
            there[device] = true;
    }
    for (int i = 0; i < DEVICES_MOST; i++) {
        size_t used = strlen(text);
        if (there[i] && used + 8 < sizeof text)
            snprintf(text + used, sizeof text - used, "%s%d", count ? ", " : "", i);
        if (there[i] && count++ == 0)
            s->ordinal = i;
    }
    if (wanted < 0 && count > 1)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: a snapshot of the devices %s: say which one is meant (--device N)",
                         s->path, text);
    if (wanted >= 0 && (wanted >= DEVICES_MOST || !there[wanted]))
        return weir_fail(WEIR_ERR_INVALID, "%s: a snapshot without device %d; it has %s", s->path, wanted,
                         count ? text : "none");
    s->ordinal = wanted >= 0 ? wanted : s->ordinal;
    snprintf(text, sizeof text, "cuda:%d", s->ordinal);
    s->device = recording_intern(s->out, text, strlen(text));
    return s->device ? WEIR_OK : read_snapshot_no_memory();
}

static weir_status convert(state *s, int device)
{
    const pickle_value *root = pickle_root(s->p), *entry;
    bool plain = root->kind == PICKLE_LIST; /* older snapshots are the segments alone */
    const pickle_value *segments = plain ? root : pickle_get(s->p, root, "segments");
    const pickle_value *traces = plain ? NULL : pickle_get(s->p, root, "device_traces");
    if ((!segments || segments->kind != PICKLE_LIST) && (!traces || traces->kind != PICKLE_LIST))
        return weir_fail(WEIR_ERR_CORRUPT,
                         "%s: a pickle that is no snapshot of PyTorch's allocator: it has no segments and no entries",
                         s->path);
    wi_pointer_map made = {0};
    weir_status status = read_snapshot_choose_device(s, traces, segments, device);
    const pickle_value *entries = pickle_item(s->p, traces, (uint64_t)s->ordinal);
    if (status == WEIR_OK)
        status = read_segments(s, segments);
    rewind_held(s, entries);
    if (status == WEIR_OK && s->held > 0)
        status = read_snapshot_add_event(s, WEIR_ACTION_HOLD, NULL, 0, 0);
    if (status == WEIR_OK)
        status = add_freed(s, entries, &made);
    if (status == WEIR_OK)
        status = add_left(s, segments, &made);
    for (uint64_t i = 0; status == WEIR_OK && (entry = pickle_item(s->p, entries, i)) != NULL; i++) {
        const char *wrong = take_entry(s, entry, &status);
        if (wrong)
            recording_problem_add(s->out, i + 1, wrong);
    }
    wi_pointer_map_clear(&made);
    if (status == WEIR_OK && pickle_spent(s->p))
        status = weir_fail(WEIR_ERR_CORRUPT, "%s: a pickle whose parts stand in it again and again", s->path);
    return status;
}

/* What came before the first entry has its time. */
static void set_times(recording *all)
{
    size_t first = 0;
    while (first < all->count && all->events[first].nanoseconds == 0)
        first++;
    for (size_t i = 0; first < all->count && i < first; i++)
        all->events[i].nanoseconds = all->events[first].nanoseconds;
}

weir_status recording_load_snapshot(const char *path, int device, recording *out)
{
    state s = {.path = path, .out = out};
    weir_status status = pickle_load(path, &s.p);
    if (status != WEIR_OK)
        return status;
    out->format = RECORDING_PICKLE;
    out->holds = true;
    status = convert(&s, device);
    set_times(out);
    pickle_free(s.p);
    free(s.blocks);
    wi_pointer_map_clear(&s.known);
    wi_pointer_map_clear(&s.streams);
    return status;
}
