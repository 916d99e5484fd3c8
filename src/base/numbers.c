/* Sizes of memory and of elements, and versions, as texts. */
#include "base/values.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

/* Sizes ------------------------------------------------------------------------------------------------------------ */

/* The power of 1024 that a unit stands for; -1 for none. */
static int unit_power(const char *unit)
{
    static const char letters[] = "kmgt";
    if (*unit == '\0' || strcasecmp(unit, "b") == 0)
        return 0;
    const char *letter = strchr(letters, tolower((unsigned char)*unit));
    if (!letter)
        return -1;
    const char *rest = unit + 1;
    bool known = *rest == '\0' || strcasecmp(rest, "b") == 0 || strcasecmp(rest, "ib") == 0;
    return known ? (int)(letter - letters) + 1 : -1;
}

static weir_status no_size(const char *text)
{
    return weir_fail(WEIR_ERR_INVALID,
                     "\"%.80s\" is no size; write bytes or a number with a unit, such as 512MiB or 1.5g", text);
}

/* whole.fraction x 1024^power, rounded down to bytes. False: less than a byte, a fraction of bytes, or overflow. */
static bool size_scale(uint64_t whole, const char *fraction, size_t digits, int power, uint64_t *bytes)
{
    unsigned __int128 unit = (unsigned __int128)1 << (10 * power);
    unsigned __int128 numerator = 0, denominator = 1;
    for (size_t i = 0; i < digits; i++) {
        numerator = numerator * 10 + (unsigned)(fraction[i] - '0');
        denominator *= 10;
    }
    unsigned __int128 part = numerator * unit / denominator;
    unsigned __int128 value = (unsigned __int128)whole * unit + part;
    if (value > UINT64_MAX || (numerator > 0 && (power == 0 || value == 0)))
        return false;
    *bytes = (uint64_t)value;
    return true;
}

bool wi_size_read(const char *text, uint64_t *bytes)
{
    const char *at = text;
    uint64_t whole = 0;
    size_t digits = 0, fraction_digits = 0;
    const char *fraction = NULL;
    for (; isdigit((unsigned char)*at); at++, digits++)
        if (__builtin_mul_overflow(whole, 10, &whole) || __builtin_add_overflow(whole, (uint64_t)(*at - '0'), &whole))
            return false;
    if (*at == '.') {
        fraction = ++at;
        for (; isdigit((unsigned char)*at); at++)
            fraction_digits++;
        while (fraction_digits > 0 && fraction[fraction_digits - 1] == '0')
            fraction_digits--; /* "1.50" is "1.5" */
        if (at == fraction)
            return false;
    }
    if (*at == ' ' && at[1] != '\0')
        at++;
    int power = unit_power(at);
    return digits > 0 && power >= 0 && fraction_digits <= 18 &&
           size_scale(whole, fraction, fraction_digits, power, bytes);
}

weir_status wi_size_parse(const char *text, uint64_t *bytes)
{
    if (!text || !bytes)
        return weir_fail(WEIR_ERR_INVALID, "weir_size_parse: NULL");
    return wi_size_read(text, bytes) ? WEIR_OK : no_size(text);
}

static char *format(uint64_t bytes, char *text, size_t capacity, bool up)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int power = 0;
    while (power < 4 && bytes >> (10 * (power + 1)) != 0)
        power++;
    uint64_t unit = UINT64_C(1) << (10 * power);
    unsigned __int128 tenths = ((unsigned __int128)bytes * 10 + (up ? unit - 1 : unit / 2)) / unit;
    if (tenths >= 10240 && power < 4) { /* 1023.96 MiB reads better as 1 GiB */
        tenths = (tenths + (up ? 1023 : 512)) / 1024;
        power++;
    }
    uint64_t whole = (uint64_t)(tenths / 10), tenth = (uint64_t)(tenths % 10);
    if (tenth == 0 || power == 0)
        snprintf(text, capacity, "%llu %s", (unsigned long long)whole, units[power]);
    else
        snprintf(text, capacity, "%llu.%llu %s", (unsigned long long)whole, (unsigned long long)tenth, units[power]);
    return text;
}

void wi_size_write(uint64_t bytes, char *text, size_t capacity)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes > 0 && unit < 4 && bytes % 1024 == 0; unit++)
        bytes /= 1024;
    snprintf(text, capacity, "%llu%s", (unsigned long long)bytes, units[unit]);
}

char *wi_size_text(uint64_t bytes, char *text, size_t capacity)
{
    return format(bytes, text, capacity, false);
}

char *wi_size_ceil(uint64_t bytes, char *text, size_t capacity)
{
    return format(bytes, text, capacity, true);
}

size_t wi_type_bytes(weir_type type)
{
    static const unsigned char bytes[WEIR_TYPE_COUNT] = {
        [WEIR_TYPE_F32] = 4,        [WEIR_TYPE_F64] = 8,      [WEIR_TYPE_F16] = 2,        [WEIR_TYPE_BF16] = 2,
        [WEIR_TYPE_I8] = 1,         [WEIR_TYPE_I16] = 2,      [WEIR_TYPE_I32] = 4,        [WEIR_TYPE_I64] = 8,
        [WEIR_TYPE_U8] = 1,         [WEIR_TYPE_U16] = 2,      [WEIR_TYPE_U32] = 4,        [WEIR_TYPE_U64] = 8,
        [WEIR_TYPE_BOOL] = 1,       [WEIR_TYPE_F8E4M3FN] = 1, [WEIR_TYPE_F8E4M3FNUZ] = 1, [WEIR_TYPE_F8E5M2] = 1,
        [WEIR_TYPE_F8E5M2FNUZ] = 1, [WEIR_TYPE_TEXT] = 1,
    };
    return (unsigned)type < WEIR_TYPE_COUNT ? bytes[type] : 0;
}

/* Versions --------------------------------------------------------------------------------------------------------- */

enum { MOST_PARTS = sizeof(((weir_version_number *)0)->part) / sizeof(uint32_t) };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads one part and moves *text behind it. False: there is none, or it is larger than 32 bits. */
static bool versions_read_part(const char **text, uint32_t *out)
{
    uint64_t value = 0;
    const char *p = *text;
    for (; is_digit(*p); p++) {
        value = value * 10 + (uint64_t)(*p - '0');
        if (value > UINT32_MAX)
            return false;
    }
    bool found = p != *text;
    *text = p;
    *out = (uint32_t)value;
    return found;
}

weir_status wi_version_read(const char *text, weir_version_number *out)
{
    if (!text || !out)
        return weir_fail(WEIR_ERR_INVALID, "wi_version_read: %s is NULL", text ? "out" : "text");
    weir_version_number version = {.count = 0};
    const char *p = text + (*text == 'v');
    bool good = true;
    do {
        good = version.count < MOST_PARTS && versions_read_part(&p, &version.part[version.count]);
        version.count++;
    } while (good && *p == '.' && p++);
    if (!good || (*p != '\0' && *p != '-' && *p != '+'))
        return weir_fail(WEIR_ERR_INVALID,
                         "\"%.60s\" is no version; write one to four numbers below 2^32 between points, as 12.4", text);
    *out = version;
    return WEIR_OK;
}

int wi_version_compare(weir_version_number a, weir_version_number b)
{
    if (a.count == 0 || b.count == 0)
        return (a.count > 0) - (b.count > 0);
    for (uint32_t i = 0; i < MOST_PARTS; i++) {
        uint32_t x = i < a.count ? a.part[i] : 0, y = i < b.count ? b.part[i] : 0;
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

const char *wi_version_write(weir_version_number version, char *text, size_t capacity)
{
    if (capacity == 0)
        return text;
    if (version.count == 0)
        snprintf(text, capacity, "unknown");
    size_t used = 0;
    for (uint32_t i = 0; i < version.count && i < MOST_PARTS && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%u", i ? "." : "", version.part[i]);
    return text;
}
