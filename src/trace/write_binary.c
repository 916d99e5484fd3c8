/* A trace as a binary file. */
#include "base/hash.h"
#include "trace/write_file.h"
#include "trace/format.h"

#include <weir/trace.h>

/* Texts that the file has already, by their contents; open addressing, at most half full. */
typedef struct text {
    char *bytes; /* NULL: nothing here */
    uint32_t number;
} text;

typedef struct binary {
    wi_trace_file *file;
    text *texts;
    size_t room; /* a power of two, or 0 */
    uint32_t count;
    uint64_t lost, events;
} binary;

/* Texts ------------------------------------------------------------------------------------------------------------ */

static text *write_binary_place_of(const binary *b, const char *bytes)
{
    size_t at = (size_t)wi_hash(bytes, strlen(bytes)) & (b->room - 1);
    while (b->texts[at].bytes && strcmp(b->texts[at].bytes, bytes) != 0)
        at = (at + 1) & (b->room - 1);
    return &b->texts[at];
}

static bool write_binary_make_room(binary *b)
{
    if (2 * (size_t)b->count < b->room)
        return true;
    binary larger = {.room = b->room ? 2 * b->room : 64};
    larger.texts = calloc(larger.room, sizeof *larger.texts);
    if (!larger.texts)
        return false;
    for (size_t i = 0; i < b->room; i++)
        if (b->texts[i].bytes)
            *write_binary_place_of(&larger, b->texts[i].bytes) = b->texts[i];
    free(b->texts);
    b->texts = larger.texts;
    b->room = larger.room;
    return true;
}

static weir_status write_binary_add_item(binary *b, unsigned char *item, size_t bytes, uint32_t kind)
{
    wi_put32(item, kind);
    wi_put32(item + 4, wi_crc(item + WI_TRACE_ITEM, bytes - WI_TRACE_ITEM));
    return wi_trace_file_add(b->file, item, bytes);
}

static weir_status write_binary_add_text(binary *b, const char *bytes, uint32_t number)
{
    unsigned char item[WI_TRACE_ITEM + 8 + WI_TRACE_TEXT_MOST] = {0};
    size_t length = strlen(bytes);
    wi_put32(item + WI_TRACE_ITEM, number);
    wi_put32(item + WI_TRACE_ITEM + 4, (uint32_t)length);
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): it has its length */
    memcpy(item + WI_TRACE_ITEM + 8, bytes, length);
    return write_binary_add_item(b, item, WI_TRACE_ITEM + 8 + (length + 7) / 8 * 8, WI_TRACE_IS_TEXT);
}

/* The text's number, which the file knows when this has answered WEIR_OK. */
static weir_status write_binary_number_of(binary *b, const char *bytes, uint32_t *out)
{
    char cut[WI_TRACE_TEXT_MOST + 1];
    *out = 0;
    if (!bytes || !*bytes)
        return WEIR_OK;
    size_t length = strnlen(bytes, WI_TRACE_TEXT_MOST);
    memcpy(cut, bytes, length);
    cut[length] = '\0';
    if (!write_binary_make_room(b))
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a trace");
    text *t = write_binary_place_of(b, cut);
    if (!t->bytes) {
        weir_status status = write_binary_add_text(b, cut, b->count + 1);
        if (status != WEIR_OK)
            return status;
        t->number = ++b->count;
        t->bytes = strdup(cut);
        if (!t->bytes) /* the file has it, and will have it again */
            return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a trace");
    }
    *out = t->number;
    return WEIR_OK;
}

/* Events ----------------------------------------------------------------------------------------------------------- */

static weir_status write_binary_add_event(binary *b, const weir_event *e)
{
    uint32_t client, tag, device;
    weir_status status = write_binary_number_of(b, e->client, &client);
    if (status == WEIR_OK)
        status = write_binary_number_of(b, e->tag, &tag);
    if (status == WEIR_OK)
        status = write_binary_number_of(b, e->device, &device);
    if (status != WEIR_OK)
        return status;
    const struct {
        uint32_t at, value;
    } small[] = {{WI_AT_ACTION, (uint32_t)e->action},
                 {WI_AT_CLASS, (uint32_t)e->memory_class},
                 {WI_AT_CLIENT, client},
                 {WI_AT_TAG, tag},
                 {WI_AT_DEVICE, device},
                 {WI_AT_RESULT, (uint32_t)e->result},
                 {WI_AT_ACCESS, (uint32_t)e->access}};
    const struct {
        uint32_t at;
        uint64_t value;
    } large[] = {{WI_AT_ORDER, e->order},
                 {WI_AT_NANOSECONDS, e->nanoseconds},
                 {WI_AT_THREAD, e->thread},
                 {WI_AT_POINTER, (uint64_t)(uintptr_t)e->pointer},
                 {WI_AT_BYTES, e->bytes},
                 {WI_AT_CHARGED, e->charged},
                 {WI_AT_GENERATION, e->generation},
                 {WI_AT_STREAM, e->stream.id},
                 {WI_AT_OTHER, e->other.id},
                 {WI_AT_OBJECT, e->object},
                 {WI_AT_LIVE, e->live},
                 {WI_AT_PENDING, e->pending},
                 {WI_AT_HELD, e->held}};
    unsigned char item[WI_TRACE_EVENT] = {0};
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        wi_put32(item + small[i].at, small[i].value);
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        wi_put64(item + large[i].at, large[i].value);
    status = write_binary_add_item(b, item, sizeof item, WI_TRACE_IS_EVENT);
    b->events += status == WEIR_OK;
    return status;
}

static weir_status binary_write(void *user, const weir_event *events, size_t count)
{
    size_t stride = events[0].struct_size;
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < count; i++)
        status = write_binary_add_event(user, (const weir_event *)(const void *)((const char *)events + i * stride));
    return status;
}

static weir_status binary_flush(void *user)
{
    return wi_trace_file_flush(((binary *)user)->file);
}

static void binary_lost(void *user, uint64_t count)
{
    ((binary *)user)->lost = count;
}

static weir_status binary_close(void *user)
{
    binary *b = user;
    unsigned char end[WI_TRACE_END] = {0};
    wi_put64(end + WI_TRACE_ITEM, b->lost);
    wi_put64(end + WI_TRACE_ITEM + 8, b->events);
    weir_status status = write_binary_add_item(b, end, sizeof end, WI_TRACE_IS_END);
    weir_status closed = wi_trace_file_close(b->file);
    for (size_t i = 0; i < b->room; i++)
        free(b->texts[i].bytes);
    free(b->texts);
    free(b);
    return status != WEIR_OK ? status : closed;
}

weir_status wi_sink_binary(const char *path, weir_sink *out)
{
    binary *b = calloc(1, sizeof *b);
    if (!b)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a sink");
    weir_status status = wi_trace_file_open(path, &b->file);
    if (status != WEIR_OK) {
        free(b);
        return status;
    }
    unsigned char header[WI_TRACE_HEADER];
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): the magic is no text */
    memcpy(header, WI_TRACE_MAGIC, 8);
    wi_put32(header + 8, WI_TRACE_VERSION);
    wi_put32(header + 12, WI_TRACE_EVENT);
    (void)wi_trace_file_add(b->file, header, sizeof header);
    weir_sink sink = {
        .user = b, .write = binary_write, .flush = binary_flush, .close = binary_close, .lost = binary_lost};
    wi_copy_out(out, out->struct_size, &sink, sizeof sink);
    return WEIR_OK;
}
