#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void text_out_of_memory(void)
{
    fputs("weir: out of memory for the command itself\n", stderr);
    exit(1);
}

void *text_grow(void *old, size_t count, size_t each)
{
    if (each != 0 && count > SIZE_MAX / each)
        text_out_of_memory();
    void *grown = realloc(old, count * each == 0 ? 1 : count * each);
    if (grown == NULL)
        text_out_of_memory();
    return grown;
}

void *text_zeroed(size_t count, size_t each)
{
    void *memory = calloc(count == 0 ? 1 : count, each == 0 ? 1 : each);
    if (memory == NULL)
        text_out_of_memory();
    return memory;
}

FILE *text_stream(char **text, size_t *bytes)
{
    FILE *file = open_memstream(text, bytes);
    if (file == NULL)
        text_out_of_memory();
    return file;
}

char *text_copy(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(text_grow(NULL, bytes, 1), text, bytes);
}

char *text_vprint(const char *format, va_list arguments)
{
    char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0)
        text_out_of_memory();
    return text;
}

char *text_print(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = text_vprint(format, arguments);
    va_end(arguments);
    return text;
}

void text_add(char **text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *more = text_vprint(format, arguments), *before = *text;
    va_end(arguments);
    *text = text_print("%s%s", before, more);
    free(before);
    free(more);
}

/* The bytes of the UTF-8 character at `text`, and its number; 0: it is not valid. */
static size_t text_decode(const char *text, size_t left, uint32_t *out)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000}; /* that needs so many bytes */
    const unsigned char *at = (const unsigned char *)text;
    if (left == 0)
        return 0;
    *out = at[0];
    if (at[0] < 0x80)
        return 1;
    size_t bytes = at[0] >= 0xf0 && at[0] < 0xf8 ? 4 : at[0] >= 0xe0 ? 3 : at[0] >= 0xc2 ? 2 : 0;
    if (bytes == 0 || at[0] >= 0xf8 || bytes > left)
        return 0;
    uint32_t point = at[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (at[i] & 0x3f);
    }
    bool surrogate = point >= 0xd800 && point <= 0xdfff;
    *out = point;
    return point < least[bytes] || point > 0x10ffff || surrogate ? 0 : bytes;
}

size_t text_character(const char *text, size_t left)
{
    uint32_t ignored;
    return text_decode(text, left, &ignored);
}

typedef struct text_range {
    uint32_t first, last;
} text_range;

static bool text_is_among(uint32_t point, const text_range *ranges, size_t count)
{
    for (size_t i = 0; i < count && point >= ranges[i].first; i++)
        if (point <= ranges[i].last)
            return true;
    return false;
}

/* Terminals give East Asian characters and pictures two columns, and what is put on the character before it none. The
 * table has whole blocks of Unicode, as the C library's wcwidth needs the right locale. */
static size_t text_point_columns(uint32_t point)
{
    static const text_range wide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xa960, 0xa97f},
                                      {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                                      {0xffe0, 0xffe6},   {0x16fe0, 0x18d08}, {0x1aff0, 0x1b2fb}, {0x1f300, 0x1f64f},
                                      {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff}, {0x20000, 0x3fffd}};
    static const text_range none[] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},    {0x610, 0x61a},
                                      {0x64b, 0x65f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},  {0x200b, 0x200f},
                                      {0x202a, 0x202e}, {0x2060, 0x2069}, {0x20d0, 0x20ff},  {0xfe00, 0xfe0f},
                                      {0xfe20, 0xfe2f}, {0xfeff, 0xfeff}, {0xe0100, 0xe01ef}};
    if (point < 0x300)
        return 1;
    if (text_is_among(point, none, sizeof none / sizeof *none))
        return 0;
    return text_is_among(point, wide, sizeof wide / sizeof *wide) ? 2 : 1;
}

size_t text_character_columns(const char *text)
{
    uint32_t point;
    return text_decode(text, strnlen(text, 4), &point) > 0 ? text_point_columns(point) : 1;
}

static bool is_control(const char *text, size_t bytes)
{
    unsigned char first = (unsigned char)text[0];
    if (bytes == 1)
        return first < 0x20 || first == 0x7f;
    return bytes == 2 && first == 0xc2 && (unsigned char)text[1] < 0xa0; /* C1: some terminals obey them */
}

char *text_clean(const char *text, size_t bytes, bool lines)
{
    char *clean = text_grow(NULL, bytes + 1, 1);
    size_t used = 0;
    for (size_t i = 0; i < bytes;) {
        size_t length = text_character(text + i, bytes - i);
        bool stays = lines && length == 1 && (text[i] == '\n' || text[i] == '\t');
        if (length == 0 || (is_control(text + i, length) && !stays)) {
            clean[used++] = '?';
            i += length == 0 ? 1 : length;
            continue;
        }
        memcpy(clean + used, text + i, length);
        used += length;
        i += length;
    }
    clean[used] = '\0';
    return clean;
}

void text_cut(char *text, size_t most)
{
    if (strlen(text) <= most)
        return;
    while (most > 0 && ((unsigned char)text[most] & 0xc0) == 0x80)
        most--;
    text[most] = '\0';
}

size_t text_columns(const char *text)
{
    size_t columns = 0;
    while (*text != '\0') {
        size_t length = text_character(text, strnlen(text, 4));
        columns += text_character_columns(text);
        text += length > 0 ? length : 1;
    }
    return columns;
}

size_t text_line(const char *text, size_t columns)
{
    size_t length = 0, used = 0, blank = 0;
    while (text[length] != '\0' && used < columns) {
        size_t takes = text_character_columns(text + length);
        if (used + takes > columns && length > 0)
            break;
        if (text[length] == ' ')
            blank = length;
        size_t one = text_character(text + length, strlen(text + length));
        length += one > 0 ? one : 1;
        used += takes;
    }
    return text[length] == '\0' || text[length] == ' ' || blank == 0 ? length : blank;
}

json_t *text_json_bytes(const char *text, size_t bytes)
{
    json_t *string = json_stringn(text, bytes);
    if (string != NULL)
        return string;
    char *clean = text_clean(text, bytes, true);
    string = json_string(clean);
    free(clean);
    return string;
}

json_t *text_json(const char *text)
{
    return text_json_bytes(text, strlen(text));
}

json_t *text_json_count(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

uint64_t text_json_number(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

const char *text_json_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

char *text_seconds(double seconds, char *text, size_t capacity)
{
    if (seconds < 1e-3)
        snprintf(text, capacity, "%.0f µs", seconds * 1e6);
    else if (seconds < 1)
        snprintf(text, capacity, "%.3g ms", seconds * 1e3);
    else
        snprintf(text, capacity, "%.3g s", seconds);
    return text;
}

bool text_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (*text < '0' || *text > '9' || value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return value >= least && value <= most;
}

void text_html(FILE *file, const char *text)
{
    char *clean = text_clean(text, strlen(text), false);
    for (const char *at = clean; *at != '\0'; at++) {
        switch (*at) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        case '\'':
            fputs("&#39;", file);
            break;
        default:
            fputc(*at, file);
        }
    }
    free(clean);
}

void text_html_json(FILE *file, const json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    for (const char *at = text; at != NULL && *at != '\0'; at++) {
        if (strchr("<>&", *at) != NULL)
            fprintf(file, "\\u%04x", (unsigned)*at);
        else
            fputc(*at, file);
    }
    free(text);
}

void text_page(FILE *file, const char *page, void (*put)(FILE *file, const char *mark, void *user), void *user)
{
    static const char open[] = "<!--weir:", close[] = "-->";
    const char *at = page, *mark;
    char name[32];
    while ((mark = strstr(at, open)) != NULL) {
        const char *begin = mark + sizeof open - 1, *end = strstr(begin, close);
        fwrite(at, 1, (size_t)(mark - at), file);
        snprintf(name, sizeof name, "%.*s", (int)(end - begin), begin);
        put(file, name, user);
        at = end + sizeof close - 1;
    }
    fputs(at, file);
}

/* ---- files that are written as a whole or not at all ------------------------------------------------------------- */

static weir_status output_file_cannot(const char *path, const char *what, int problem)
{
    return weir_fail(WEIR_ERR_SYSTEM, "cannot write %s%s%s: %s", what, what[0] != '\0' ? " " : "", path,
                     strerror(problem));
}

/* Why no file can be made in the folder of `path`; 0: it may be. */
static int check_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    int problem = folder == NULL ? ENOMEM : access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    free(folder);
    return problem;
}

weir_status output_file_check(const char *path, const char *what)
{
    struct stat found;
    int problem = stat(path, &found) == 0 ? 0 : errno;
    if (problem == 0)
        problem = S_ISDIR(found.st_mode) ? EISDIR : access(path, W_OK) == 0 ? 0 : errno;
    else if (problem == ENOENT)
        problem = check_folder(path);
    return problem == 0 ? WEIR_OK : output_file_cannot(path, what, problem);
}

FILE *output_file_open(const char *path, const char *what)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        output_file_cannot(path, what, errno);
    return file;
}

void output_file_remove(const char *path)
{
    struct stat kind;
    if (stat(path, &kind) == 0 && S_ISREG(kind.st_mode))
        remove(path);
}

weir_status output_file_close(FILE *file, const char *path, const char *what, int problem)
{
    struct stat kind;
    bool regular = fstat(fileno(file), &kind) == 0 && S_ISREG(kind.st_mode);
    errno = 0;
    if ((fflush(file) != 0 || ferror(file)) && problem == 0)
        problem = errno != 0 ? errno : EIO;
    if (fclose(file) != 0 && problem == 0)
        problem = errno;
    if (problem == 0)
        return WEIR_OK;
    if (regular)
        remove(path);
    return output_file_cannot(path, what, problem);
}
