/* MiniMalloc's CSV: https://github.com/google/minimalloc describes it. */
#include "planner/buffers.h"
#include <weir/plan.h>
#include "base/internal.h"

typedef enum column {
    C_NONE,
    C_ID,
    C_LOWER,
    C_UPPER,
    C_END,
    C_SIZE,
    C_ALIGNMENT,
    C_OFFSET,
    C_HINT,
    C_GAPS,
    COLUMNS
} column;
enum { FIELDS_MAX = 64, NAME_BYTES = 1024 };

typedef struct sheet {
    wi_lines lines;
    weir_buffers *buffers;
    column columns[FIELDS_MAX];
    size_t count;
} sheet;

static column column_of(const char *text, size_t length)
{
    static const struct {
        const char *name;
        column column;
    } names[] = {{"id", C_ID},       {"buffer", C_ID},           {"buffer_id", C_ID},  {"lower", C_LOWER},
                 {"begin", C_LOWER}, {"start", C_LOWER},         {"upper", C_UPPER},   {"end", C_END},
                 {"size", C_SIZE},   {"alignment", C_ALIGNMENT}, {"offset", C_OFFSET}, {"hint", C_HINT},
                 {"gaps", C_GAPS}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i].name) == length && memcmp(names[i].name, text, length) == 0)
            return names[i].column;
    return C_NONE;
}

/* The next field of a row: up to a comma or the end, without blanks around it; false behind the last. */
static bool next_field(const char **at, const char *end, const char **text, size_t *length)
{
    if (!*at)
        return false;
    const char *comma = memchr(*at, ',', (size_t)(end - *at));
    const char *first = *at, *last = comma ? comma : end;
    while (first < last && (*first == ' ' || *first == '\t'))
        first++;
    while (first < last && (last[-1] == ' ' || last[-1] == '\t'))
        last--;
    *text = first;
    *length = (size_t)(last - first);
    *at = comma ? comma + 1 : NULL;
    return true;
}

static weir_status csv_read_header(sheet *s)
{
    static const char *const wanted[] = {[C_LOWER] = "lower", [C_SIZE] = "size"};
    bool seen[COLUMNS] = {false};
    const char *text, *at;
    size_t length;
    if (!wi_lines_next(&s->lines))
        return wi_lines_wrong(&s->lines, "it is empty; a header names the columns, as in id,lower,upper,size");
    at = s->lines.text;
    while (next_field(&at, s->lines.text + s->lines.length, &text, &length)) {
        if (s->count == FIELDS_MAX)
            return wi_lines_wrong(&s->lines, "more than 64 columns");
        column c = column_of(text, length);
        if (c == C_NONE)
            return wi_lines_wrong(
                &s->lines, "\"%.*s\" is no column; there are id, lower, upper, size, alignment, offset, hint and gaps",
                (int)wi_min(length, 40), text);
        if (seen[c])
            return wi_lines_wrong(&s->lines, "the column %.*s is there twice", (int)length, text);
        seen[c] = true;
        s->columns[s->count++] = c;
    }
    for (column c = C_LOWER; c <= C_SIZE; c += C_SIZE - C_LOWER)
        if (!seen[c])
            return wi_lines_wrong(&s->lines, "the header has no column %s", wanted[c]);
    if (seen[C_UPPER] == seen[C_END])
        return wi_lines_wrong(&s->lines, "the header needs one of the columns upper and end");
    return WEIR_OK;
}

static weir_status csv_read_number(sheet *s, const char *what, const char *text, size_t length, uint64_t *out)
{
    return wi_lines_number(text, length, out) ? WEIR_OK
                                              : wi_lines_wrong(&s->lines, "%s \"%.*s\" is no whole number of 64 bits",
                                                               what, (int)wi_min(length, 40), text);
}

/* A whole name, or none. */
static weir_status csv_read_name(sheet *s, const char *text, size_t length, weir_buffer *b, char *name)
{
    if (length >= NAME_BYTES || memchr(text, '\0', length))
        return wi_lines_wrong(&s->lines, "the id \"%.*s…\" is longer than 1023 bytes, or has a 0 in it",
                              (int)wi_min(length, 40), text);
    memcpy(name, text, length);
    name[length] = '\0';
    b->name = length > 0 ? name : NULL;
    return WEIR_OK;
}

/* Sets what one field tells. */
static weir_status csv_read_field(sheet *s, column c, const char *text, size_t length, weir_buffer *b, char *name)
{
    weir_status status;
    switch (c) {
    case C_ID:
        return csv_read_name(s, text, length, b, name);
    case C_LOWER:
        return csv_read_number(s, "lower", text, length, &b->begin);
    case C_UPPER:
        return csv_read_number(s, "upper", text, length, &b->end);
    case C_END:
        status = csv_read_number(s, "end", text, length, &b->end);
        if (status == WEIR_OK && b->end++ == UINT64_MAX)
            status = wi_lines_wrong(&s->lines, "end is the largest number there is");
        return status;
    case C_SIZE:
        return csv_read_number(s, "size", text, length, &b->bytes);
    case C_ALIGNMENT:
        return length ? csv_read_number(s, "alignment", text, length, &b->alignment) : WEIR_OK;
    case C_OFFSET:
        b->fixed = length > 0;
        return length ? csv_read_number(s, "offset", text, length, &b->offset) : WEIR_OK;
    default:
        return WEIR_OK;
    }
}

static int by_begin(const void *a, const void *b)
{
    const wi_gap *one = a, *other = b;
    return one->begin < other->begin ? -1 : one->begin > other->begin;
}

static weir_status csv_read_gap(sheet *s, const char *text, size_t length, wi_gap *gap)
{
    const char *dash = memchr(text, '-', length);
    if (memchr(text, '@', length))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s, line %llu: a gap in which part of the buffer stays (\"%.*s\")",
                         s->lines.name, (unsigned long long)s->lines.number, (int)wi_min(length, 40), text);
    if (dash && wi_lines_number(text, (size_t)(dash - text), &gap->begin) &&
        wi_lines_number(dash + 1, length - (size_t)(dash + 1 - text), &gap->end))
        return WEIR_OK;
    return wi_lines_wrong(&s->lines, "\"%.*s\" is no gap; they are written 3-7, several with a blank between them",
                          (int)wi_min(length, 40), text);
}

/* Reads the gaps of the buffer that was added last, in any order. */
static weir_status csv_read_gaps(sheet *s, const char *text, size_t length)
{
    wi_gap *gaps = NULL;
    size_t count = 0, room = 0;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < length && status == WEIR_OK;) {
        size_t begin = i;
        while (i < length && text[i] != ' ')
            i++;
        if (i > begin && !wi_room_for((void **)&gaps, sizeof *gaps, &room, count + 1))
            status = weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", s->lines.name);
        else if (i > begin)
            status = csv_read_gap(s, text + begin, i - begin, &gaps[count++]);
        i++;
    }
    if (count > 0)
        qsort(gaps, count, sizeof *gaps, by_begin);
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        status = weir_buffers_gap(s->buffers, (uint32_t)s->buffers->count - 1, gaps[i].begin, gaps[i].end);
        if (status != WEIR_OK)
            status = wi_lines_prefix(&s->lines, status);
    }
    free(gaps);
    return status;
}

static weir_status csv_read_row(sheet *s)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    char name[NAME_BYTES];
    const char *at = s->lines.text, *text, *gaps = NULL;
    size_t length, gaps_length = 0, i = 0;
    weir_status status = WEIR_OK;
    for (; status == WEIR_OK && next_field(&at, s->lines.text + s->lines.length, &text, &length); i++) {
        if (i == s->count)
            return wi_lines_wrong(&s->lines, "more fields than the header has columns");
        if (s->columns[i] == C_GAPS) {
            gaps = text;
            gaps_length = length;
        } else {
            status = csv_read_field(s, s->columns[i], text, length, &b, name);
        }
    }
    if (status != WEIR_OK)
        return status;
    if (i < s->count)
        return wi_lines_wrong(&s->lines, "%zu fields, but the header has %zu columns", i, s->count);
    status = weir_buffers_add(s->buffers, &b, NULL);
    if (status != WEIR_OK)
        return wi_lines_prefix(&s->lines, status);
    return gaps ? csv_read_gaps(s, gaps, gaps_length) : WEIR_OK;
}

weir_status wi_buffers_parse_csv(const char *text, size_t bytes, const char *name, weir_buffers **out)
{
    sheet s = {.lines = {.name = name, .next = text, .end = text + bytes}};
    weir_status status = weir_buffers_create(&s.buffers);
    if (status == WEIR_OK)
        status = csv_read_header(&s);
    while (status == WEIR_OK && wi_lines_next(&s.lines))
        if (s.lines.length > 0)
            status = csv_read_row(&s);
    if (status == WEIR_OK)
        *out = s.buffers;
    else
        weir_buffers_destroy(s.buffers);
    return status;
}

weir_status weir_buffers_read_csv(const char *path, weir_buffers **out)
{
    char *text;
    size_t bytes;
    if (!path || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_buffers_read_csv: NULL");
    weir_status status = wi_lines_read_file(path, &text, &bytes);
    if (status != WEIR_OK)
        return status;
    status = wi_buffers_parse_csv(text, bytes, path, out);
    free(text);
    return status;
}
