#include "trace/readers.h"
#include "base/internal.h"
#include "trace/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct reader {
    FILE *file;
    char *path;
    uint64_t offset; /* of the item being read */
    size_t event_bytes;
    char **texts; /* number n is texts[n - 1] */
    size_t count, room;
    uint64_t order, events, missing, told; /* the last order; events read, not there, and lost as the end says */
    bool cut, ended;
    unsigned char item[WI_TRACE_EVENT_MOST];
};

static weir_status read_binary_corrupt(const reader *r, const char *what)
{
    return weir_fail(WEIR_ERR_CORRUPT, "%s: %s, in what begins at byte %llu", r->path, what,
                     (unsigned long long)r->offset);
}

/* Pieces ----------------------------------------------------------------------------------------------------------- */

/* Reads `bytes` of the item from `from` on; *whole is false when the file ends before. */
static weir_status read_binary_read_part(reader *r, size_t from, size_t bytes, bool *whole)
{
    size_t got = fread(r->item + from, 1, bytes, r->file);
    *whole = got == bytes;
    if (*whole || !ferror(r->file))
        return WEIR_OK;
    return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", r->path, strerror(errno));
}

static bool checks(const reader *r, size_t bytes)
{
    return wi_get32(r->item + 4) == wi_crc(r->item + WI_TRACE_ITEM, bytes - WI_TRACE_ITEM);
}

/* The texts -------------------------------------------------------------------------------------------------------- */

static weir_status read_binary_keep_text(reader *r, const unsigned char *bytes, size_t length)
{
    char *text = wi_make_room(&r->texts, r->count, &r->room, sizeof *r->texts) ? malloc(length + 1) : NULL;
    if (!text)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the texts of %s", r->path);
    memcpy(text, bytes, length);
    text[length] = '\0';
    r->texts[r->count++] = text;
    return WEIR_OK;
}

static weir_status read_binary_read_text(reader *r, bool *whole)
{
    weir_status status = read_binary_read_part(r, WI_TRACE_ITEM, 8, whole);
    if (status != WEIR_OK || !*whole)
        return status;
    uint32_t number = wi_get32(r->item + WI_TRACE_ITEM), length = wi_get32(r->item + WI_TRACE_ITEM + 4);
    size_t bytes = ((size_t)length + 7) / 8 * 8, all = WI_TRACE_ITEM + 8 + bytes;
    if (length == 0 || length > WI_TRACE_TEXT_MOST)
        return read_binary_corrupt(r, "a text whose length is none");
    status = read_binary_read_part(r, WI_TRACE_ITEM + 8, bytes, whole);
    if (status != WEIR_OK || !*whole)
        return status;
    if (!checks(r, all))
        return read_binary_corrupt(r, "a text whose checksum is wrong");
    if (number != r->count + 1 || memchr(r->item + WI_TRACE_ITEM + 8, 0, length))
        return read_binary_corrupt(r, "a text with a wrong number, or with a zero inside");
    r->offset += all;
    return read_binary_keep_text(r, r->item + WI_TRACE_ITEM + 8, length);
}

/* Returns the text whose number stands at `at`; NULL: no such text. */
static const char *read_binary_text_of(const reader *r, size_t at)
{
    uint32_t number = wi_get32(r->item + at);
    return number == 0 ? "" : number <= r->count ? r->texts[number - 1] : NULL;
}

/* Events ----------------------------------------------------------------------------------------------------------- */

static weir_event read_binary_decode(const reader *r)
{
    const unsigned char *i = r->item;
#define SMALL(name, at, member) .member = wi_get32(i + (at)),
#define LARGE(name, at, member) .member = wi_get64(i + (at)),
    return (weir_event){.struct_size = sizeof(weir_event),
                        WI_TRACE_SMALL(SMALL) WI_TRACE_LARGE(LARGE).pointer =
                            (void *)(uintptr_t)wi_get64(i + WI_AT_POINTER),
                        .client = read_binary_text_of(r, WI_AT_CLIENT),
                        .tag = read_binary_text_of(r, WI_AT_TAG),
                        .device = read_binary_text_of(r, WI_AT_DEVICE)};
}

static weir_status read_event(reader *r, weir_event *out, bool *whole)
{
    weir_status status = read_binary_read_part(r, WI_TRACE_ITEM, r->event_bytes - WI_TRACE_ITEM, whole);
    if (status != WEIR_OK || !*whole)
        return status;
    if (!checks(r, r->event_bytes))
        return read_binary_corrupt(r, "an event whose checksum is wrong");
    *out = read_binary_decode(r);
    if (!out->client || !out->tag || !out->device)
        return read_binary_corrupt(r, "an event with a text that is not there");
    if ((unsigned)out->action >= WEIR_ACTION_COUNT || (unsigned)out->memory_class >= WEIR_CLASS_COUNT ||
        (unsigned)out->result >= WEIR_STATUS_COUNT || (unsigned)out->access > WEIR_ACCESS_READ_WRITE)
        return read_binary_corrupt(r, "an event with a number that means nothing");
    if (out->order <= r->order)
        return read_binary_corrupt(r, "an event that is not later than the one before");
    r->missing += out->order - r->order - 1;
    r->order = out->order;
    r->events++;
    r->offset += r->event_bytes;
    return WEIR_OK;
}

static weir_status read_end(reader *r, bool *whole)
{
    unsigned char more;
    weir_status status = read_binary_read_part(r, WI_TRACE_ITEM, WI_TRACE_END - WI_TRACE_ITEM, whole);
    if (status != WEIR_OK || !*whole)
        return status;
    if (!checks(r, WI_TRACE_END))
        return read_binary_corrupt(r, "an end whose checksum is wrong");
    if (wi_get64(r->item + WI_TRACE_ITEM + 8) != r->events)
        return read_binary_corrupt(r, "an end that counts other events than there are");
    if (fread(&more, 1, 1, r->file) != 0)
        return read_binary_corrupt(r, "an end with something behind it");
    r->told = wi_get64(r->item + WI_TRACE_ITEM);
    r->ended = true;
    return WEIR_OK;
}

weir_status reader_next(reader *r, weir_event *out, bool *got)
{
    bool whole = true;
    weir_status status = WEIR_OK;
    *got = false;
    while (status == WEIR_OK && whole && !r->ended && !r->cut && !*got) {
        status = read_binary_read_part(r, 0, WI_TRACE_ITEM, &whole);
        if (status != WEIR_OK || !whole)
            break;
        switch (wi_get32(r->item)) {
        case WI_TRACE_IS_TEXT:
            status = read_binary_read_text(r, &whole);
            break;
        case WI_TRACE_IS_EVENT:
            status = read_event(r, out, &whole);
            *got = status == WEIR_OK && whole;
            break;
        case WI_TRACE_IS_END:
            status = read_end(r, &whole);
            break;
        default:
            status = read_binary_corrupt(r, "something of no known kind");
        }
    }
    r->cut |= !whole;
    return status;
}

bool reader_cut(const reader *r, uint64_t *offset)
{
    *offset = r->offset;
    return r->cut;
}

uint64_t reader_lost(const reader *r)
{
    return r->missing > r->told ? r->missing : r->told;
}

/* Opening ---------------------------------------------------------------------------------------------------------- */

static weir_status read_binary_read_header(reader *r)
{
    bool whole;
    weir_status status = read_binary_read_part(r, 0, WI_TRACE_HEADER, &whole);
    if (status != WEIR_OK)
        return status;
    if (!whole || memcmp(r->item, WI_TRACE_MAGIC, 8) != 0)
        return read_binary_corrupt(r, "no binary trace of weir");
    if (wi_get32(r->item + 8) != WI_TRACE_VERSION)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: version %u of the format; this is for version %d", r->path,
                         wi_get32(r->item + 8), (int)WI_TRACE_VERSION);
    r->event_bytes = wi_get32(r->item + 12);
    if (r->event_bytes < WI_TRACE_EVENT || r->event_bytes > WI_TRACE_EVENT_MOST || r->event_bytes % 8 != 0)
        return read_binary_corrupt(r, "a header with events of no possible size");
    r->offset = WI_TRACE_HEADER;
    return WEIR_OK;
}

weir_status reader_open(const char *path, reader **out)
{
    reader *r = calloc(1, sizeof *r);
    char *copy = strdup(path);
    weir_status status = WEIR_OK;
    if (!r || !copy) {
        free(r);
        free(copy);
        return weir_fail(WEIR_ERR_SYSTEM, "no memory to read %s", path);
    }
    r->path = copy;
    r->file = fopen(path, "rbe");
    if (!r->file)
        status = weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    if (status == WEIR_OK)
        status = read_binary_read_header(r);
    if (status == WEIR_OK)
        *out = r;
    else
        reader_close(r);
    return status;
}

void reader_close(reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->count; i++)
        free(r->texts[i]);
    free(r->texts);
    if (r->file)
        fclose(r->file);
    free(r->path);
    free(r);
}
