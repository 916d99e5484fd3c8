/* The instructions and their numbers are those of Python's module pickletools. */
#include "trace/readers.h"
#include "base/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1024, STEPS_PER_BYTE = 64, STEPS_LEAST = 1 << 16 };

typedef struct piece piece;

struct piece {
    piece *next;
    size_t used;
    pickle_value values[PIECE];
};

/* A list of values that grows. */
typedef struct row {
    pickle_value **items;
    size_t count, room;
} row;

struct pickle {
    const char *path;
    unsigned char *bytes;
    size_t size, at;
    piece *pieces;
    row stack, memo;
    row grown; /* containers whose items are theirs to free */
    uint64_t *marks;
    size_t mark_count, mark_room;
    uint64_t steps;
    pickle_value *root;
};

static weir_status read_pickle_corrupt(const pickle *p, const char *what)
{
    return weir_fail(WEIR_ERR_CORRUPT, "%s: %s, at byte %zu", p->path, what, p->at);
}

static weir_status read_pickle_no_memory(const pickle *p)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory to read %s", p->path);
}

/* Values ----------------------------------------------------------------------------------------------------------- */

static bool row_add(row *r, pickle_value *value)
{
    if (!wi_make_room(&r->items, r->count, &r->room, sizeof(pickle_value *)))
        return false;
    r->items[r->count++] = value;
    return true;
}

static pickle_value *new_value(pickle *p, pickle_kind kind)
{
    if (!p->pieces || p->pieces->used == PIECE) {
        piece *more = malloc(sizeof *more);
        if (!more)
            return NULL;
        more->next = p->pieces;
        more->used = 0;
        p->pieces = more;
    }
    pickle_value *value = &p->pieces->values[p->pieces->used++];
    *value = (pickle_value){.kind = kind};
    return value;
}

/* Room for `more` items behind those of a container; doubled, so that the count alone tells the room. */
static bool read_pickle_make_room(pickle *p, pickle_value *to, uint64_t more)
{
    uint64_t room = 0, wanted = to->count + more;
    if (to->count)
        for (room = 4; room < to->count; room *= 2)
            ;
    if (wanted <= room)
        return true;
    uint64_t larger = room ? room : 4;
    while (larger < wanted)
        larger *= 2;
    if (!to->items && !row_add(&p->grown, to))
        return false;
    pickle_value **items = realloc(to->items, larger * sizeof(pickle_value *));
    if (!items)
        return false;
    to->items = items;
    return true;
}

static weir_status read_pickle_append(pickle *p, pickle_value *to, pickle_value *const *from, uint64_t count)
{
    if (count == 0)
        return WEIR_OK;
    if (!read_pickle_make_room(p, to, count))
        return read_pickle_no_memory(p);
    memcpy(to->items + to->count, from, count * sizeof(pickle_value *));
    to->count += count;
    return WEIR_OK;
}

static weir_status read_pickle_push(pickle *p, pickle_value *value)
{
    return value && row_add(&p->stack, value) ? WEIR_OK : read_pickle_no_memory(p);
}

static weir_status push_kind(pickle *p, pickle_kind kind)
{
    return read_pickle_push(p, new_value(p, kind));
}

static weir_status push_number(pickle *p, uint64_t number, bool negative, pickle_kind kind)
{
    pickle_value *value = new_value(p, kind);
    if (value) {
        value->number = number;
        value->negative = negative;
    }
    return read_pickle_push(p, value);
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

static bool read_pickle_take(pickle *p, uint64_t count, const unsigned char **out)
{
    if (count > p->size - p->at)
        return false;
    *out = p->bytes + p->at;
    p->at += (size_t)count;
    return true;
}

static uint64_t little(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static bool take_number(pickle *p, unsigned bytes, uint64_t *out)
{
    const unsigned char *at;
    if (!read_pickle_take(p, bytes, &at))
        return false;
    *out = little(at, bytes);
    return true;
}

/* Up to the end of the line, which is left out; NULL: there is none. */
static const char *read_pickle_take_line(pickle *p, size_t *length)
{
    const unsigned char *from = p->bytes + p->at, *end = memchr(from, '\n', p->size - p->at);
    if (!end)
        return NULL;
    *length = (size_t)(end - from);
    p->at += *length + 1;
    return (const char *)from;
}

static weir_status read_pickle_cut(const pickle *p)
{
    return read_pickle_corrupt(p, "a pickle that ends in the middle");
}

/* An integer of any length, little-endian, in two's complement; more than 64 bits are refused. */
static weir_status read_long(pickle *p, unsigned length_bytes)
{
    uint64_t length;
    const unsigned char *at;
    if (!take_number(p, length_bytes, &length) || !read_pickle_take(p, length, &at))
        return read_pickle_cut(p);
    bool negative = length > 0 && (at[length - 1] & 0x80);
    if (length > 9 || (length == 9 && at[8] != 0))
        return read_pickle_corrupt(p, "a number of more than 64 bits");
    uint64_t number = little(at, length > 8 ? 8 : (unsigned)length);
    if (negative && length < 8)
        number |= UINT64_MAX << 8 * length;
    return push_number(p, number, negative, PICKLE_INTEGER);
}

static weir_status read_pickle_read_text(pickle *p, unsigned length_bytes)
{
    uint64_t length;
    const unsigned char *at;
    if (!take_number(p, length_bytes, &length) || !read_pickle_take(p, length, &at))
        return read_pickle_cut(p);
    pickle_value *value = new_value(p, PICKLE_TEXT);
    if (value) {
        value->text = (const char *)at;
        value->count = length;
    }
    return read_pickle_push(p, value);
}

static weir_status read_real(pickle *p)
{
    const unsigned char *at;
    uint64_t bits = 0;
    if (!read_pickle_take(p, 8, &at))
        return read_pickle_cut(p);
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | at[i];
    pickle_value *value = new_value(p, PICKLE_REAL);
    if (value)
        memcpy(&value->real, &bits, sizeof bits);
    return read_pickle_push(p, value);
}

/* The lines of protocol 0: a text, a decimal integer (with an L behind it, or the words 00 and 01), a number. */
static weir_status read_pickle_read_line(pickle *p, unsigned char kind)
{
    size_t length;
    char digits[40], *end = digits;
    const char *line = read_pickle_take_line(p, &length);
    if (!line)
        return read_pickle_cut(p);
    if (kind == 'V') {
        pickle_value *text = new_value(p, PICKLE_TEXT);
        if (text) {
            text->text = line;
            text->count = length;
        }
        return read_pickle_push(p, text);
    }
    if (length == 0 || length >= sizeof digits)
        return read_pickle_corrupt(p, "a number that is none");
    memcpy(digits, line, length);
    digits[length] = '\0';
    if (kind == 'I' && length == 2 && digits[0] == '0')
        return push_number(p, digits[1] == '1', false, PICKLE_BOOL);
    if (kind == 'L' && digits[length - 1] == 'L')
        digits[length - 1] = '\0';
    errno = 0;
    if (kind == 'F') {
        pickle_value *real = new_value(p, PICKLE_REAL);
        if (real)
            real->real = strtod(digits, &end);
        return *end ? read_pickle_corrupt(p, "a number that is none") : read_pickle_push(p, real);
    }
    bool negative = digits[0] == '-';
    uint64_t number = negative ? (uint64_t)strtoll(digits, &end, 10) : strtoull(digits, &end, 10);
    if (*end || end == digits || errno)
        return read_pickle_corrupt(p, "a number that is none, or of more than 64 bits");
    return push_number(p, number, negative, PICKLE_INTEGER);
}

/* The stack -------------------------------------------------------------------------------------------------------- */

static weir_status read_pickle_mark(pickle *p)
{
    if (!wi_make_room(&p->marks, p->mark_count, &p->mark_room, sizeof *p->marks))
        return read_pickle_no_memory(p);
    p->marks[p->mark_count++] = p->stack.count;
    return WEIR_OK;
}

/* How many values lie above the mark, which is taken away; what lies below a mark cannot be had before. */
static bool above_mark(pickle *p, uint64_t *count)
{
    if (p->mark_count == 0)
        return false;
    *count = p->stack.count - p->marks[--p->mark_count];
    return true;
}

static uint64_t within_reach(const pickle *p)
{
    return p->stack.count - (p->mark_count ? p->marks[p->mark_count - 1] : 0);
}

static weir_status read_pickle_gather(pickle *p, pickle_kind kind, uint64_t count)
{
    pickle_value *made = new_value(p, kind);
    if (!made)
        return read_pickle_no_memory(p);
    weir_status status = read_pickle_append(p, made, p->stack.items + (p->stack.count - count), count);
    p->stack.count -= count;
    return status == WEIR_OK ? read_pickle_push(p, made) : status;
}

static weir_status gather_marked(pickle *p, pickle_kind kind)
{
    uint64_t count;
    if (!above_mark(p, &count))
        return read_pickle_corrupt(p, "values without a mark below them");
    if (kind == PICKLE_PAIRS && count % 2)
        return read_pickle_corrupt(p, "a key without a value");
    return read_pickle_gather(p, kind, count);
}

static weir_status gather_some(pickle *p, uint64_t count)
{
    return within_reach(p) < count ? read_pickle_corrupt(p, "too few values for a tuple")
                                   : read_pickle_gather(p, PICKLE_LIST, count);
}

/* Puts the last `count` values into the container below them. */
static weir_status read_pickle_put_in(pickle *p, pickle_kind kind, uint64_t count)
{
    if (within_reach(p) < count + 1 || p->stack.items[p->stack.count - count - 1]->kind != kind ||
        (kind == PICKLE_PAIRS && count % 2))
        return read_pickle_corrupt(p, "values for a container that is not there");
    p->stack.count -= count;
    return read_pickle_append(p, p->stack.items[p->stack.count - 1], p->stack.items + p->stack.count, count);
}

static weir_status put_marked(pickle *p, pickle_kind kind)
{
    uint64_t count;
    return above_mark(p, &count) ? read_pickle_put_in(p, kind, count)
                                 : read_pickle_corrupt(p, "values without a mark below them");
}

static weir_status memo_put(pickle *p, uint64_t number)
{
    if (within_reach(p) == 0 || number > p->size)
        return read_pickle_corrupt(p, "a value to be remembered that is none");
    while (p->memo.count <= number)
        if (!row_add(&p->memo, NULL))
            return read_pickle_no_memory(p);
    p->memo.items[number] = p->stack.items[p->stack.count - 1];
    return WEIR_OK;
}

static weir_status memo_get(pickle *p, uint64_t number)
{
    if (number >= p->memo.count || !p->memo.items[number])
        return read_pickle_corrupt(p, "a value that was not remembered");
    return read_pickle_push(p, p->memo.items[number]);
}

static weir_status memo_numbered(pickle *p, unsigned bytes, weir_status (*fn)(pickle *p, uint64_t number))
{
    uint64_t number;
    return take_number(p, bytes, &number) ? fn(p, number) : read_pickle_cut(p);
}

static weir_status memo_line(pickle *p, weir_status (*fn)(pickle *p, uint64_t number))
{
    size_t length;
    uint64_t number = 0;
    const char *line = read_pickle_take_line(p, &length);
    if (!line)
        return read_pickle_cut(p);
    for (size_t i = 0; i < length; i++) {
        if (line[i] < '0' || line[i] > '9' || number > p->size)
            return read_pickle_corrupt(p, "a number that is none");
        number = number * 10 + (uint64_t)(line[i] - '0');
    }
    return fn(p, number);
}

/* Instructions ----------------------------------------------------------------------------------------------------- */

static weir_status read_plain(pickle *p, unsigned bytes)
{
    uint64_t number;
    if (!take_number(p, bytes, &number))
        return read_pickle_cut(p);
    bool negative = bytes == 4 && number >> 31; /* BININT alone has a sign */
    return push_number(p, negative ? number | UINT64_MAX << 32 : number, negative, PICKLE_INTEGER);
}

static weir_status read_pickle_stop(pickle *p)
{
    if (p->stack.count != 1 || p->mark_count)
        return read_pickle_corrupt(p, "an end with other than one value");
    p->root = p->stack.items[0];
    return WEIR_OK;
}

static weir_status read_pickle_read_header(pickle *p, unsigned bytes, uint64_t most)
{
    uint64_t number;
    if (!take_number(p, bytes, &number))
        return read_pickle_cut(p);
    return number <= most ? WEIR_OK
                          : read_pickle_corrupt(p, bytes == 1 ? "a later protocol" : "a frame that is too long");
}

static weir_status read_pickle_step(pickle *p, unsigned char code)
{
    switch (code) {
    case 0x80: /* PROTO */
        return read_pickle_read_header(p, 1, 5);
    case 0x95: /* FRAME */
        return read_pickle_read_header(p, 8, p->size);
    case '.':
        return read_pickle_stop(p);
    case 'N':
        return push_kind(p, PICKLE_NONE);
    case 0x88: /* NEWTRUE, NEWFALSE */
    case 0x89:
        return push_number(p, code == 0x88, false, PICKLE_BOOL);
    case 'J': /* BININT, BININT1, BININT2 */
        return read_plain(p, 4);
    case 'K':
        return read_plain(p, 1);
    case 'M':
        return read_plain(p, 2);
    case 0x8a: /* LONG1, LONG4 */
        return read_long(p, 1);
    case 0x8b:
        return read_long(p, 4);
    case 'G': /* BINFLOAT */
        return read_real(p);
    case 'I':
    case 'L':
    case 'F':
    case 'V':
        return read_pickle_read_line(p, code);
    case 0x8c: /* SHORT_BINUNICODE, BINUNICODE, BINUNICODE8 */
        return read_pickle_read_text(p, 1);
    case 'X':
        return read_pickle_read_text(p, 4);
    case 0x8d:
        return read_pickle_read_text(p, 8);
    case '(':
        return read_pickle_mark(p);
    case ']': /* EMPTY_LIST, EMPTY_TUPLE, EMPTY_DICT */
    case ')':
        return push_kind(p, PICKLE_LIST);
    case '}':
        return push_kind(p, PICKLE_PAIRS);
    case 'l': /* LIST, TUPLE, DICT */
    case 't':
        return gather_marked(p, PICKLE_LIST);
    case 'd':
        return gather_marked(p, PICKLE_PAIRS);
    case 0x85: /* TUPLE1, TUPLE2, TUPLE3 */
    case 0x86:
    case 0x87:
        return gather_some(p, code - 0x84u);
    case 'a': /* APPEND, APPENDS, SETITEM, SETITEMS */
        return read_pickle_put_in(p, PICKLE_LIST, 1);
    case 'e':
        return put_marked(p, PICKLE_LIST);
    case 's':
        return read_pickle_put_in(p, PICKLE_PAIRS, 2);
    case 'u':
        return put_marked(p, PICKLE_PAIRS);
    case 0x94: /* MEMOIZE */
        return memo_put(p, p->memo.count);
    case 'q': /* BINPUT, LONG_BINPUT, PUT */
        return memo_numbered(p, 1, memo_put);
    case 'r':
        return memo_numbered(p, 4, memo_put);
    case 'p':
        return memo_line(p, memo_put);
    case 'h': /* BINGET, LONG_BINGET, GET */
        return memo_numbered(p, 1, memo_get);
    case 'j':
        return memo_numbered(p, 4, memo_get);
    case 'g':
        return memo_line(p, memo_get);
    default:
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: a pickle with more than plain data: instruction %#x at byte %zu is refused", p->path,
                         (unsigned)code, p->at - 1);
    }
}

/* All -------------------------------------------------------------------------------------------------------------- */

static weir_status read_pickle_read_file(pickle *p)
{
    FILE *file = fopen(p->path, "rbe");
    if (!file)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", p->path, strerror(errno));
    weir_status status = WEIR_OK;
    size_t room = 0, got = 1;
    while (status == WEIR_OK && got > 0) {
        if (p->size == room) {
            room = room ? 2 * room : 1 << 16;
            unsigned char *bytes = realloc(p->bytes, room);
            if (!bytes) {
                status = read_pickle_no_memory(p);
                break;
            }
            p->bytes = bytes;
        }
        got = fread(p->bytes + p->size, 1, room - p->size, file);
        p->size += got;
    }
    if (status == WEIR_OK && ferror(file))
        status = weir_fail(WEIR_ERR_SYSTEM, "%s: %s", p->path, strerror(errno));
    fclose(file);
    return status;
}

weir_status pickle_load(const char *path, pickle **out)
{
    pickle *p = calloc(1, sizeof *p);
    if (!p)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory to read %s", path);
    p->path = path;
    weir_status status = read_pickle_read_file(p);
    p->steps = (uint64_t)p->size * STEPS_PER_BYTE + STEPS_LEAST;
    while (status == WEIR_OK && !p->root)
        status = p->at < p->size ? read_pickle_step(p, p->bytes[p->at++]) : read_pickle_cut(p);
    p->path = NULL;
    if (status == WEIR_OK)
        *out = p;
    else
        pickle_free(p);
    return status;
}

const pickle_value *pickle_root(const pickle *p)
{
    return p->root;
}

void pickle_free(pickle *p)
{
    if (!p)
        return;
    for (uint64_t i = 0; i < p->grown.count; i++)
        free((void *)p->grown.items[i]->items);
    while (p->pieces) {
        piece *next = p->pieces->next;
        free(p->pieces);
        p->pieces = next;
    }
    free((void *)p->grown.items);
    free((void *)p->stack.items);
    free((void *)p->memo.items);
    free(p->marks);
    free(p->bytes);
    free(p);
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

static bool spend(pickle *p)
{
    p->steps -= p->steps > 0;
    return p->steps > 0;
}

bool pickle_spent(const pickle *p)
{
    return p->steps == 0;
}

bool pickle_is(const pickle_value *value, const char *text)
{
    return value && value->kind == PICKLE_TEXT && value->count == strlen(text) &&
           memcmp(value->text, text, value->count) == 0;
}

const pickle_value *pickle_get(pickle *p, const pickle_value *pairs, const char *key)
{
    if (!pairs || pairs->kind != PICKLE_PAIRS)
        return NULL;
    for (uint64_t i = pairs->count; i > 0 && spend(p); i -= 2) /* the last one of a name counts */
        if (pickle_is(pairs->items[i - 2], key))
            return pairs->items[i - 1];
    return NULL;
}

const pickle_value *pickle_item(pickle *p, const pickle_value *list, uint64_t place)
{
    return list && list->kind == PICKLE_LIST && place < list->count && spend(p) ? list->items[place] : NULL;
}

uint64_t pickle_number(const pickle_value *value, uint64_t otherwise)
{
    bool integer = value && (value->kind == PICKLE_INTEGER || value->kind == PICKLE_BOOL);
    return integer && !value->negative ? value->number : otherwise;
}
