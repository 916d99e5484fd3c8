/* numbers.c: numbers of all types of tensors: synthetic ones, from text, for display. */
#include "tensors.h"

#include "cli/text.h"
#include "base/values.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A linear congruential generator with Knuth's constants; its upper bits are good enough here. */
static uint32_t numbers_next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 40); /* 24 bits: a float's mantissa */
}

/* Rounds to nearest, ties to even. Values that are too small become 0, those that are too large infinity. */
static uint16_t numbers_half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    float magnitude = fabsf(value);
    if (!(magnitude < 65520.0f))
        return (uint16_t)(sign | (magnitude != magnitude ? 0x7e00 : 0x7c00));
    if (magnitude < 6.103515625e-05f) /* subnormal: units of 2^-24 */
        return (uint16_t)(sign | (uint16_t)lrintf(magnitude * 16777216.0f));
    uint32_t rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (uint16_t)((rounded >> 13) - (112u << 10)));
}

static float float_of_half(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float magnitude = exponent == 0    ? ldexpf((float)fraction, -24)
                      : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                                       : ldexpf((float)(fraction + 1024), exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

static uint16_t brain_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float float_of_brain(uint16_t brain)
{
    uint32_t bits = (uint32_t)brain << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool is_float(weir_type type)
{
    return type == WEIR_TYPE_F32 || type == WEIR_TYPE_F64 || type == WEIR_TYPE_F16 || type == WEIR_TYPE_BF16;
}

/* `data` has the alignment of malloc; `at` counts elements. */
static void put_float(weir_type type, void *data, size_t at, double value)
{
    if (type == WEIR_TYPE_F64)
        ((double *)data)[at] = value;
    else if (type == WEIR_TYPE_F32)
        ((float *)data)[at] = (float)value;
    else
        ((uint16_t *)data)[at] = type == WEIR_TYPE_F16 ? numbers_half_of((float)value) : brain_of((float)value);
}

/* The lower bytes of it: the machines here are little-endian. */
static void put_integer(size_t width, void *data, size_t at, uint64_t value)
{
    memcpy((char *)data + at * width, &value, width);
}

void numbers_synthesize(weir_type type, void *data, size_t bytes)
{
    size_t width = wi_type_bytes(type), count = width == 0 ? 0 : bytes / width;
    uint64_t state = 1;
    for (size_t i = 0; i < count; i++) {
        if (is_float(type))
            put_float(type, data, i, numbers_next_random(&state) / 16777216.0);
        else if (type >= WEIR_TYPE_F8E4M3FN && type <= WEIR_TYPE_F8E5M2FNUZ)
            put_integer(1, data, i, 0x20 + numbers_next_random(&state) % 25); /* positive and at most 1 in all four */
        else
            put_integer(width, data, i, 1);
    }
}

size_t numbers_count(const char *text)
{
    size_t count = 1;
    if (text[strspn(text, "0123456789+-.,eExXaAbBcCdDfFinty \t")] != '\0')
        return 0;
    for (; *text != '\0'; text++)
        count += *text == ',';
    return count;
}

/* The range of an integer type; false for other types. */
static bool integer_range(weir_type type, int64_t *least, uint64_t *most)
{
    size_t bits = wi_type_bytes(type) * 8;
    if (type >= WEIR_TYPE_I8 && type <= WEIR_TYPE_I64) {
        *most = UINT64_MAX >> (65 - bits);
        *least = -(int64_t)*most - 1;
        return true;
    }
    *least = 0;
    *most = type == WEIR_TYPE_BOOL ? 1 : UINT64_MAX >> (64 - bits);
    return type == WEIR_TYPE_BOOL || (type >= WEIR_TYPE_U8 && type <= WEIR_TYPE_U64);
}

static bool numbers_put_text(const char *word, weir_type type, void *data, size_t at)
{
    char *end = NULL;
    int64_t least;
    uint64_t most;
    errno = 0;
    if (is_float(type)) {
        double value = strtod(word, &end);
        put_float(type, data, at, value);
        return end != word && *end == '\0' && errno == 0;
    }
    if (!integer_range(type, &least, &most))
        return false;
    if (word[0] == '-') {
        int64_t value = strtoll(word, &end, 10);
        put_integer(wi_type_bytes(type), data, at, (uint64_t)value);
        return *end == '\0' && end != word && errno == 0 && value >= least;
    }
    uint64_t value = strtoull(word, &end, 10);
    put_integer(wi_type_bytes(type), data, at, value);
    return *end == '\0' && end != word && errno == 0 && value <= most;
}

weir_status numbers_read(const char *text, weir_type type, void *data)
{
    char *copy = text_copy(text), *rest = copy, *word;
    weir_status status = WEIR_OK;
    for (size_t at = 0; status == WEIR_OK && (word = strsep(&rest, ",")) != NULL; at++) {
        word += strspn(word, " \t");
        size_t length = strlen(word);
        while (length > 0 && (word[length - 1] == ' ' || word[length - 1] == '\t'))
            word[--length] = '\0';
        if (!numbers_put_text(word, type, data, at))
            status =
                weir_fail(WEIR_ERR_INVALID, "'%s' is no number of type %s", word, weir_name_of(WEIR_NAMES_TYPE, type));
    }
    free(copy);
    return status;
}

/* A byte of sign, `exponent` bits and the rest fraction. The types called "uz" have neither infinities nor a zero below 0,
 * which is their only NaN; of the others, e4m3fn has one NaN in place of infinities. */
static float float_of_byte(uint8_t byte, unsigned exponent, bool uz)
{
    unsigned fraction = 7 - exponent, most = (1u << exponent) - 1;
    int bias = (int)(1u << (exponent - 1)) - 1 + uz;
    unsigned e = byte >> fraction & most, f = byte & ((1u << fraction) - 1);
    if (uz ? byte == 0x80 : e == most && (exponent == 5 ? f != 0 : f == 7))
        return NAN;
    float magnitude = !uz && exponent == 5 && e == most ? INFINITY
                      : e == 0                          ? ldexpf((float)f, 1 - bias - (int)fraction)
                               : ldexpf((float)(f + (1u << fraction)), (int)e - bias - (int)fraction);
    return byte & 0x80 ? -magnitude : magnitude;
}

double numbers_real(weir_type type, const void *data, size_t index)
{
    switch (type) {
    case WEIR_TYPE_F32:
        return ((const float *)data)[index];
    case WEIR_TYPE_F64:
        return ((const double *)data)[index];
    case WEIR_TYPE_F16:
        return float_of_half(((const uint16_t *)data)[index]);
    case WEIR_TYPE_BF16:
        return float_of_brain(((const uint16_t *)data)[index]);
    case WEIR_TYPE_F8E4M3FN:
        return float_of_byte(((const uint8_t *)data)[index], 4, false);
    case WEIR_TYPE_F8E4M3FNUZ:
        return float_of_byte(((const uint8_t *)data)[index], 4, true);
    case WEIR_TYPE_F8E5M2:
        return float_of_byte(((const uint8_t *)data)[index], 5, false);
    default:
        return float_of_byte(((const uint8_t *)data)[index], 5, true);
    }
}

static int64_t numbers_whole_at(size_t width, const void *data, size_t index)
{
    uint64_t value = 0;
    unsigned above = (unsigned)(64 - 8 * width);
    memcpy(&value, (const char *)data + index * width, width);
    return (int64_t)(value << above) >> above;
}

const char *numbers_text(weir_type type, const void *data, size_t index, char *text, size_t capacity)
{
    int64_t least;
    uint64_t most;
    size_t width = wi_type_bytes(type);
    if (!integer_range(type, &least, &most)) {
        snprintf(text, capacity, "%.5g", numbers_real(type, data, index));
        return text;
    }
    int64_t whole = numbers_whole_at(width, data, index);
    if (least < 0)
        snprintf(text, capacity, "%" PRId64, whole);
    else
        snprintf(text, capacity, "%" PRIu64, (uint64_t)whole & UINT64_MAX >> (64 - 8 * width));
    return text;
}
