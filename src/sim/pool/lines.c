/* Lines of models and of requests. */
#include "sim/pool/traffic.h"
#include "base/values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

weir_status line_open(line_reader *r, const char *path)
{
    *r = (line_reader){.path = path, .file = fopen(path, "re")};
    return r->file ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
}

void line_close(line_reader *r)
{
    if (r->file)
        fclose(r->file);
    r->file = NULL;
}

weir_status line_fail(const line_reader *r, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return weir_fail(WEIR_ERR_INVALID, "%s, line %" PRIu64 ": %s", r->path, r->number, text);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static weir_status pool_lines_split(line_reader *r)
{
    char *rest = r->text;
    r->count = 0;
    r->word = strtok_r(r->text, " \t\n", &rest);
    for (char *pair; r->word && (pair = strtok_r(NULL, " \t\n", &rest));) {
        if (r->count == LINE_WORDS)
            return line_fail(r, "more than %d words", LINE_WORDS);
        char *value = strchr(pair, '=');
        if (value)
            *value++ = '\0';
        r->pairs[r->count].key = pair;
        r->pairs[r->count++].value = value;
    }
    return WEIR_OK;
}

weir_status line_next(line_reader *r, bool *got)
{
    *got = false;
    while (fgets(r->text, sizeof r->text, r->file)) {
        size_t length = strlen(r->text);
        r->number++;
        if (length > LINE_BYTES || (r->text[length - (length > 0)] != '\n' && !feof(r->file)))
            return line_fail(r, "longer than %d bytes, or with a zero in it", LINE_BYTES);
        for (size_t i = 0; i + 1 < length; i++)
            if (((unsigned char)r->text[i] < ' ' && r->text[i] != '\t') || r->text[i] == 0x7f)
                return line_fail(r, "a control character");
        char *comment = strchr(r->text, '#');
        if (comment)
            *comment = '\0';
        weir_status status = pool_lines_split(r);
        if (status != WEIR_OK)
            return status;
        *got = r->word != NULL;
        if (*got)
            return WEIR_OK;
    }
    return ferror(r->file) ? weir_fail(WEIR_ERR_SYSTEM, "%s: %s", r->path, strerror(errno)) : WEIR_OK;
}

/* ---- times ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *unit;
    uint64_t ns;
} units[] = {{"d", UINT64_C(86400000000000)},
             {"h", UINT64_C(3600000000000)},
             {"m", UINT64_C(60000000000)},
             {"s", UINT64_C(1000000000)},
             {"ms", 1000000},
             {"us", 1000},
             {"ns", 1}};
enum { UNITS = sizeof units / sizeof *units };

static uint64_t unit_of(const char *text)
{
    for (int i = 0; i < UNITS; i++)
        if (strcmp(text, units[i].unit) == 0)
            return units[i].ns;
    return 0;
}

/* Digits, as a number; *text is behind them. False: none, or too many. */
static bool digits(const char **text, uint64_t *out, uint64_t *scale)
{
    const char *at = *text;
    *out = 0;
    for (*scale = 1; *at >= '0' && *at <= '9'; at++) {
        *scale *= 10;
        if (at - *text >= 18)
            return false;
        *out = *out * 10 + (uint64_t)(*at - '0');
    }
    bool any = at > *text;
    *text = at;
    return any;
}

bool line_time_read(const char *text, uint64_t *out)
{
    uint64_t whole, part = 0, scale = 1, ignored;
    if (strcmp(text, "forever") == 0) {
        *out = UINT64_MAX;
        return true;
    }
    if (!digits(&text, &whole, &ignored))
        return false;
    if (*text == '.' && (text++, !digits(&text, &part, &scale)))
        return false;
    uint64_t unit = unit_of(text);
    unsigned __int128 time = (unsigned __int128)whole * unit, piece = (unsigned __int128)part * unit;
    if (unit == 0 || piece % scale != 0 || time + piece / scale >= UINT64_MAX)
        return false;
    *out = (uint64_t)(time + piece / scale);
    return true;
}

char *line_time_write(uint64_t time, char *text, size_t capacity)
{
    int unit = 0;
    while (time % units[unit].ns != 0 || (time == 0 && unit < UNITS - 1))
        unit++;
    if (time == UINT64_MAX)
        snprintf(text, capacity, "forever");
    else
        snprintf(text, capacity, "%" PRIu64 "%s", time / units[unit].ns, units[unit].unit);
    return text;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool whole_number(const char *text, int64_t least, uint64_t most, int64_t *out)
{
    char *end;
    bool negative = *text == '-';
    if (text[negative] < '0' || text[negative] > '9')
        return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0' && *out >= least && (*out < 0 || (uint64_t)*out <= most);
}

static weir_status value_read(const line_reader *r, const line_field *f, const char *value, void *to)
{
    char *at = (char *)to + f->at;
    bool limited = f->least != 0 || f->most != 0;
    uint64_t least = limited ? f->least : 0, most = limited ? f->most : UINT64_MAX, number = 0;
    int64_t whole;
    if ((value == NULL) != (f->type == LINE_SET || f->type == LINE_CLEAR))
        return line_fail(r, value ? "%s takes no value" : "%s= wants a value", f->key);
    switch (f->type) {
    case LINE_SIZE:
        if (!wi_size_read(value, &number) || number < least || number > most)
            return line_fail(r, "%s=%s is no such size", f->key, value);
        *(uint64_t *)at = number;
        return WEIR_OK;
    case LINE_TIME:
        if (!line_time_read(value, &number) || number < least || number > most)
            return line_fail(r, "%s=%s is no such time (as 250ms, 1.5s, 5m)", f->key, value);
        *(uint64_t *)at = number;
        return WEIR_OK;
    case LINE_U32:
        if (!whole_number(value, (int64_t)least, wi_min(most, UINT32_MAX), &whole))
            return line_fail(r, "%s=%s is no such number", f->key, value);
        *(uint32_t *)at = (uint32_t)whole;
        return WEIR_OK;
    case LINE_I32:
        if (!whole_number(value, INT32_MIN, INT32_MAX, &whole))
            return line_fail(r, "%s=%s is no such number", f->key, value);
        *(int32_t *)at = (int32_t)whole;
        return WEIR_OK;
    case LINE_NAME:
        if (*value == '\0' || strlen(value) > 63)
            return line_fail(r, "%s=%s: a name has 1 to 63 bytes", f->key, value);
        snprintf(at, 64, "%s", value);
        return WEIR_OK;
    case LINE_SET:
    case LINE_CLEAR:
        *(bool *)at = f->type == LINE_SET;
        return WEIR_OK;
    }
    return WEIR_OK;
}

weir_status line_fill(const line_reader *r, const line_field *fields, size_t count, void *to, uint64_t *out_seen)
{
    uint64_t seen = 0;
    wi_assert(count <= 64);
    for (unsigned i = 0; i < r->count; i++) {
        size_t f = 0;
        while (f < count && strcmp(fields[f].key, r->pairs[i].key) != 0)
            f++;
        if (f == count)
            return line_fail(r, "%s has no %s", r->word, r->pairs[i].key);
        if (seen >> f & 1)
            return line_fail(r, "%s comes twice", fields[f].key);
        seen |= UINT64_C(1) << f;
        weir_status status = value_read(r, &fields[f], r->pairs[i].value, to);
        if (status != WEIR_OK)
            return status;
    }
    for (size_t f = 0; f < count; f++)
        if (fields[f].wanted && !(seen >> f & 1))
            return line_fail(r, "%s without %s=", r->word, fields[f].key);
    if (out_seen)
        *out_seen = seen;
    return WEIR_OK;
}
