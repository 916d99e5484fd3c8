#include "trace/readers.h"

#include "base/texts.h"
#include "trace/format.h"
#include "trace/recording.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

/* Lines ------------------------------------------------------------------------------------------------------------ */

enum { BUFFER = 16 * LINES_MOST };

struct lines {
    gzFile file;
    char *path;
    uint64_t number;
    size_t at, end; /* what is read and not yet handed out */
    bool ended, cut;
    char nothing; /* zero: the text of a line that is not whole */
    char buffer[BUFFER + 1];
};

static weir_status lines_open(const char *path, lines **out)
{
    lines *l = calloc(1, sizeof *l);
    char *copy = strdup(path);
    if (!l || !copy) {
        free(l);
        free(copy);
        return weir_fail(WEIR_ERR_SYSTEM, "no memory to read %s", path);
    }
    l->path = copy;
    errno = 0;
    l->file = gzopen(path, "rbe");
    if (!l->file) {
        weir_status status = weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno ? errno : ENOMEM));
        lines_close(l);
        return status;
    }
    (void)gzbuffer(l->file, BUFFER);
    *out = l;
    return WEIR_OK;
}

/* Moves what is left to the front and reads behind it. */
static weir_status read_rmm_fill(lines *l)
{
    int code;
    memmove(l->buffer, l->buffer + l->at, l->end - l->at);
    l->end -= l->at;
    l->at = 0;
    int got = gzread(l->file, l->buffer + l->end, (unsigned)(BUFFER - l->end));
    const char *text = gzerror(l->file, &code);
    if (code == Z_ERRNO)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", l->path, strerror(errno));
    if (got < 0 || (code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END))
        return weir_fail(WEIR_ERR_CORRUPT, "%s: compressed data that is none, behind line %llu: %s", l->path,
                         (unsigned long long)l->number, text);
    l->end += (size_t)got;
    l->ended = got == 0;
    l->cut = l->ended && code == Z_BUF_ERROR;
    return WEIR_OK;
}

/* Reads until a whole line, the end or a full buffer; the length of the line. */
static weir_status read_rmm_find_end(lines *l, size_t *length, bool *found)
{
    size_t looked = 0;
    *found = false;
    for (;;) {
        char *line = l->buffer + l->at, *end = memchr(line + looked, '\n', l->end - l->at - looked);
        looked = end ? (size_t)(end - line) : l->end - l->at;
        *length = looked;
        *found = end != NULL;
        if (end || l->ended || looked == BUFFER)
            return WEIR_OK;
        weir_status status = read_rmm_fill(l);
        if (status != WEIR_OK)
            return status;
    }
}

/* The rest of a line that is longer than the buffer. */
static weir_status skip_rest(lines *l)
{
    bool found = false;
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && !found && !(l->ended && l->at == l->end)) {
        size_t length;
        status = read_rmm_find_end(l, &length, &found);
        l->at += status == WEIR_OK ? length + found : 0;
    }
    return status;
}

/* The next line without its end, terminated by a zero and the caller's to change until the next call; NULL at the end.
 * *whole is false and the text empty for a line that is longer than any, that has a zero inside, or that the end of the
 * data cuts. */
static weir_status lines_next(lines *l, char **text, bool *whole)
{
    size_t length;
    bool found;
    *text = NULL;
    weir_status status = read_rmm_find_end(l, &length, &found);
    if (status != WEIR_OK || (!found && length == 0))
        return status;
    char *line = l->buffer + l->at;
    l->number++;
    l->at += length + found;
    *whole = length <= LINES_MOST && !memchr(line, 0, length) && (found || !l->cut);
    *text = *whole ? line : &l->nothing;
    if (*whole)
        line[length - (length > 0 && line[length - 1] == '\r')] = '\0';
    return !found && length == BUFFER ? skip_rest(l) : WEIR_OK;
}

uint64_t lines_number(const lines *l)
{
    return l->number;
}

bool lines_cut(const lines *l)
{
    return l->cut;
}

void lines_close(lines *l)
{
    if (!l)
        return;
    if (l->file)
        (void)gzclose(l->file);
    free(l->path);
    free(l);
}

/* Rows ------------------------------------------------------------------------------------------------------------- */

enum {
    C_ACTION,
    C_POINTER,
    C_SIZE,
    C_STREAM,
    C_NEEDED,
    C_TIME = C_NEEDED,
    C_CLASS,
    C_ORDER,
    C_CLIENT,
    C_TAG,
    C_CLOCK,
    C_THREAD
};

static const char *const names[RMM_COLUMNS] = {"Action", "Pointer", "Size", "Stream",      "Time",  "Class",
                                               "Order",  "Client",  "Tag",  "Nanoseconds", "Thread"};

/* No device has so much: a size beyond it is a mistake in the file. */
#define BYTES_MOST (UINT64_C(1) << 48)

/* Takes the quotes from a value that begins with one; where it ends, or NULL where it does not. */
static char *unquote(char *value)
{
    char *to = value;
    for (char *from = value + 1; *from; *to++ = *from++)
        if (*from == '"' && *++from != '"') {
            *to = '\0';
            return from + strspn(from, " \t");
        }
    return NULL;
}

/* Takes the line apart at its commas, quotes and blanks around the values taken away; how many values there are, or
 * -1. */
static int read_rmm_split(char *line, char *fields[RMM_FIELDS])
{
    for (int count = 0; count < RMM_FIELDS; line++) {
        line += strspn(line, " \t");
        bool quoted = *line == '"';
        char *end = quoted ? unquote(line) : line + strcspn(line, ",");
        if (!end || (*end && *end != ','))
            return -1;
        fields[count++] = line;
        bool last = *end == '\0';
        *end = '\0';
        for (char *tail = end; !quoted && tail > line && (tail[-1] == ' ' || tail[-1] == '\t');)
            *--tail = '\0';
        if (last)
            return count;
        line = end;
    }
    return -1;
}

/* Reads the names of the columns from the first line, and modifies the line. */
static weir_status read_names(const char *path, char *line, rmm_columns *out)
{
    char *fields[RMM_FIELDS] = {NULL}, missing[64] = "";
    if (strncmp(line, "\xef\xbb\xbf", 3) == 0)
        line += 3;
    bool returns = strchr(line, '\r') != NULL;
    *out = (rmm_columns){.count = read_rmm_split(line, fields)};
    for (int i = 0; i < RMM_COLUMNS; i++) {
        out->place[i] = -1;
        for (int k = 0; k < out->count; k++) {
            if (!fields[k] || strcasecmp(fields[k], names[i]) != 0)
                continue;
            if (out->place[i] >= 0)
                return weir_fail(WEIR_ERR_CORRUPT, "%s: two columns are called %s", path, names[i]);
            out->place[i] = k;
        }
        size_t used = strlen(missing);
        if (i < C_NEEDED && out->place[i] < 0)
            snprintf(missing + used, sizeof missing - used, "%s%s", used ? ", " : "", names[i]);
    }
    if (missing[0])
        return weir_fail(WEIR_ERR_CORRUPT, "%s: no trace: its first line has not RMM's columns; missing: %s%s; %s",
                         path, missing, returns ? ", and its lines end in CR alone, which is not read" : "",
                         RECORDING_KINDS);
    out->weirs = out->place[C_ORDER] >= 0;
    out->timed = !out->weirs && out->place[C_TIME] >= 0;
    out->threaded = out->place[C_THREAD] >= 0;
    out->clocked = out->weirs && out->place[C_CLOCK] >= 0;
    return WEIR_OK;
}

/* Values ----------------------------------------------------------------------------------------------------------- */

/* The value of a digit, or 99. */
static unsigned digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10) : 99;
}

static bool read_digits(const char *text, unsigned base, uint64_t *out)
{
    uint64_t value = 0;
    if (*text == '\0')
        return false;
    for (; *text; text++) {
        unsigned digit = digit_of(*text);
        if (digit >= base || value > (UINT64_MAX - digit) / base)
            return false;
        value = value * base + digit;
    }
    *out = value;
    return true;
}

/* Decimal, hexadecimal behind 0x, or what the C library prints for NULL. */
static bool read_rmm_read_number(const char *text, uint64_t *out)
{
    if (strcmp(text, "(nil)") == 0) {
        *out = 0;
        return true;
    }
    bool hex = text[0] == '0' && (text[1] | 0x20) == 'x';
    return read_digits(text + (hex ? 2 : 0), hex ? 16 : 10, out);
}

/* Up to `most` digits as a number below `limit`; moves on. */
static bool read_rmm_read_part(const char **text, unsigned most, unsigned limit, unsigned *out)
{
    unsigned value = 0, count = 0;
    for (; count < most && digit_of(**text) < 10; count++, (*text)++)
        value = value * 10 + digit_of(**text);
    *out = value;
    return count > 0 && value < limit;
}

#define SECOND UINT64_C(1000000000)

/* "13:04:59.123456", "13:04:59:123456" or "13:04:59" in nanoseconds; moves on. */
static bool read_hours(const char **text, uint64_t *out)
{
    unsigned hours, minutes, seconds, scale = 100000000;
    if (!read_rmm_read_part(text, 2, 24, &hours) || *(*text)++ != ':' || !read_rmm_read_part(text, 2, 60, &minutes) ||
        *(*text)++ != ':' || !read_rmm_read_part(text, 2, 61, &seconds))
        return false;
    *out = SECOND * (hours * 3600 + minutes * 60 + seconds);
    if (**text && strchr(".,:", **text))
        for (++*text; digit_of(**text) < 10; ++*text, scale /= 10)
            *out += (uint64_t)digit_of(**text) * scale;
    return true;
}

/* "2026-11-28", or with strokes, and a T or a blank behind it, as days since 1970; moves on. */
static bool read_date(const char **text, uint64_t *out)
{
    unsigned year, month, day;
    const char *at = *text;
    if (!read_rmm_read_part(&at, 4, 10000, &year) || at != *text + 4 || (*at != '-' && *at != '/'))
        return false;
    char mark = *at++;
    if (!read_rmm_read_part(&at, 2, 13, &month) || *at++ != mark || !read_rmm_read_part(&at, 2, 32, &day) ||
        (*at != 'T' && *at != ' ') || year < 1970 || month < 1 || day < 1)
        return false;
    static const unsigned before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    unsigned past = month > 2 ? year : year - 1; /* the last year whose leap day has gone by */
    *out = (year - 1970) * 365 + past / 4 - past / 100 + past / 400 - 477 + before[month - 1] + day - 1;
    *text = at + 1 + strspn(at + 1, " ");
    return true;
}

/* "Z", "+02:00", "-0130" or nothing: how far the clock is ahead of universal time. Takes that off the time. */
static bool read_zone(const char *text, uint64_t *time)
{
    unsigned hours = 0, minutes = 0;
    char sign = *text;
    if (sign == '\0' || strcmp(text, "Z") == 0)
        return true;
    text++;
    if ((sign != '+' && sign != '-') || !read_rmm_read_part(&text, 2, 24, &hours))
        return false;
    text += *text == ':';
    if (*text && !read_rmm_read_part(&text, 2, 60, &minutes))
        return false;
    uint64_t ahead = SECOND * (hours * 3600 + minutes * 60);
    if (sign == '+' && ahead > *time)
        return false;
    *time = sign == '+' ? *time - ahead : *time + ahead;
    return *text == '\0';
}

/* Seconds where it has a point, else nanoseconds. */
static bool read_plain_time(const char *text, uint64_t *out)
{
    size_t whole = strcspn(text, ".");
    char digits[24];
    snprintf(digits, sizeof digits, "%.*s", (int)(whole < sizeof digits ? whole : sizeof digits - 1), text);
    if (whole >= sizeof digits || !read_digits(digits, 10, out))
        return false;
    if (text[whole] == '\0')
        return true;
    if (*out >= UINT64_MAX / SECOND)
        return false;
    *out *= SECOND;
    unsigned scale = 100000000;
    for (text += whole + 1; digit_of(*text) < 10; text++, scale /= 10)
        *out += (uint64_t)digit_of(*text) * scale;
    return *text == '\0';
}

/* A time of the day, the same behind a date, or a plain number. */
static bool read_rmm_read_time(const char *text, uint64_t *out, bool *of_day)
{
    uint64_t days = 0;
    *of_day = !read_date(&text, &days);
    if (read_plain_time(text, out)) {
        bool plain = *of_day;
        *of_day = false;
        return plain;
    }
    if (!read_hours(&text, out))
        return false;
    *out += days * 86400 * SECOND;
    return *of_day ? *text == '\0' : read_zone(text, out);
}

static bool read_action(const char *text, rmm_action *out)
{
    static const char *const words[] = {"allocate", "free", "allocate failure"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = (rmm_action)i;
            return true;
        }
    return false;
}

static bool read_class(const char *text, weir_class *out)
{
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        if (strcmp(text, weir_name_of(WEIR_NAMES_CLASS, i)) == 0) {
            *out = (weir_class)i;
            return true;
        }
    return false;
}

/* What was refused may have had no address, and any size. */
static const char *read_rmm_read_block(rmm_row *out, const char *pointer, const char *bytes)
{
    bool refused = out->action == RMM_FAILURE;
    if (!(refused && *pointer == '\0') && !read_rmm_read_number(pointer, &out->pointer))
        return "a pointer that is no number";
    if (!read_rmm_read_number(bytes, &out->bytes))
        return "a size that is no number";
    if (!refused && out->bytes > BYTES_MOST)
        return "a size that no device has";
    out->bytes = out->bytes > INT64_MAX ? INT64_MAX : out->bytes;
    return NULL;
}

static uint64_t read_thread(const char *text)
{
    uint64_t number;
    return read_rmm_read_number(text, &number) ? number : wi_hash(text, strlen(text));
}

/* Reads a row from a line, and modifies the line. Returns NULL, or the problem. */
static const char *read_rmm_read_row(const rmm_columns *columns, char *line, rmm_row *out)
{
    char *fields[RMM_FIELDS];
    const int *place = columns->place;
    int count = read_rmm_split(line, fields);
    *out = (rmm_row){.memory_class = WEIR_CLASS_OTHER};
    if (count < 0)
        return "quotes that do not end, or far too many values";
    if (count != columns->count)
        return count < columns->count ? "fewer values than columns" : "more values than columns";
    if (!read_action(fields[place[C_ACTION]], &out->action))
        return "an action that is none";
    const char *wrong = read_rmm_read_block(out, fields[place[C_POINTER]], fields[place[C_SIZE]]);
    if (wrong)
        return wrong;
    if (!read_rmm_read_number(fields[place[C_STREAM]], &out->stream))
        return "a stream that is no number";
    if (place[C_CLASS] >= 0 && !read_class(fields[place[C_CLASS]], &out->memory_class))
        return "a class that is none";
    if (columns->timed && !read_rmm_read_time(fields[place[C_TIME]], &out->key, &out->of_day))
        return "a time that is none: hh:mm:ss is read, also behind a date, or a plain number";
    if (columns->weirs && !read_rmm_read_number(fields[place[C_ORDER]], &out->key))
        return "an order that is no number";
    if (columns->clocked && !read_rmm_read_number(fields[place[C_CLOCK]], &out->nanoseconds))
        return "nanoseconds that are no number";
    out->client = place[C_CLIENT] >= 0 ? fields[place[C_CLIENT]] : "";
    out->tag = place[C_TAG] >= 0 ? fields[place[C_TAG]] : "";
    out->thread = place[C_THREAD] >= 0 ? read_thread(fields[place[C_THREAD]]) : 0;
    return NULL;
}

/* Files ------------------------------------------------------------------------------------------------------------ */

/* Returns the kind of a file that begins so, and a remedy; NULL: perhaps text. */
static const char *other_kind(const char *first, size_t count)
{
    if (count >= 4 && strncmp(first, WI_TRACE_MAGIC, 4) == 0)
        return "a binary trace that was compressed: gunzip it first";
    if (count >= 2 && first[0] == '\x80' && recording_is_pickle((const unsigned char *)first, count))
        return "a pickle that was compressed: gunzip it first";
    if (count >= 2 && (memcmp(first, "\xff\xfe", 2) == 0 || memcmp(first, "\xfe\xff", 2) == 0))
        return "text in UTF-16: make it UTF-8 first";
    if (count >= 4 && memcmp(first, "PK\3\4", 4) == 0)
        return "an archive (zip): take the trace out of it first";
    return NULL;
}

static weir_status read_first(lines *l, rmm_columns *columns)
{
    char *text;
    bool whole = false;
    weir_status status = read_rmm_fill(l);
    const char *other = other_kind(l->buffer, l->end);
    if (status == WEIR_OK && other)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: %s", l->path, other);
    if (status == WEIR_OK)
        status = lines_next(l, &text, &whole);
    if (status != WEIR_OK)
        return status;
    if (!text || !whole)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: no trace: its first line %s; %s", l->path,
                         text ? "is no text, or longer than any" : "is missing", RECORDING_KINDS);
    return read_names(l->path, text, columns);
}

weir_status rmm_open(const char *path, lines **out, rmm_columns *columns)
{
    weir_status status = lines_open(path, out);
    if (status != WEIR_OK)
        return status;
    status = read_first(*out, columns);
    if (status != WEIR_OK)
        lines_close(*out);
    return status;
}

weir_status rmm_next(lines *l, const rmm_columns *columns, rmm_row *out, const char **wrong, bool *got)
{
    char *text = NULL;
    bool whole = true;
    weir_status status;
    do
        status = lines_next(l, &text, &whole);
    while (status == WEIR_OK && text && whole && text[strspn(text, " \t")] == '\0');
    *got = status == WEIR_OK && text;
    *wrong = NULL;
    if (*got)
        *wrong = whole ? read_rmm_read_row(columns, text, out) : "a line that is longer than any, cut off or no text";
    return status;
}
