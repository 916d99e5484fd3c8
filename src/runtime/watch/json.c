#include "runtime/watch/watch.h"

#include <stdio.h>

static void json_put(wi_json *json, const char *text, size_t length)
{
    if (length >= json->capacity - json->used) {
        json->full = true;
        return;
    }
    memcpy(json->text + json->used, text, length);
    json->used += length;
}

size_t wi_json_room(const wi_json *json)
{
    return json->capacity - json->used;
}

/* The length of the UTF-8 character at `text`, which ends with a 0; 0: there is none. */
static size_t character(const unsigned char *text)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = text[0] < 0x80 ? 1 : text[0] >= 0xF8 ? 0 : text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2;
    if (bytes < 2 || (bytes == 2 && text[0] < 0xC2))
        return bytes == 1;
    uint32_t point = text[0] & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
        point = point << 6 | (text[i] & 0x3Fu);
    }
    bool surrogate = point >= 0xD800 && point <= 0xDFFF;
    return point < least[bytes] || point > 0x10FFFF || surrogate ? 0 : bytes;
}

static void put_quoted(wi_json *json, const char *text)
{
    json_put(json, "\"", 1);
    while (*text) {
        unsigned char first = (unsigned char)*text;
        size_t length = character((const unsigned char *)text);
        char escaped[8];
        if (first == '"' || first == '\\' || first < 0x20) {
            int bytes = snprintf(escaped, sizeof escaped, "\\u%04x", first);
            json_put(json, escaped, (size_t)bytes);
        } else {
            json_put(json, length ? text : "?", length ? length : 1);
        }
        text += length ? length : 1;
    }
    json_put(json, "\"", 1);
}

static void json_begin(wi_json *json, const char *key)
{
    if (json->between)
        json_put(json, ", ", 2);
    json->between = true;
    if (key) {
        put_quoted(json, key);
        json_put(json, ": ", 2);
    }
}

void wi_json_open(wi_json *json, const char *key, char bracket)
{
    json_begin(json, key);
    json_put(json, &bracket, 1);
    json->between = false;
}

void wi_json_close(wi_json *json, char bracket)
{
    json_put(json, &bracket, 1);
    json->between = true;
}

void wi_json_number(wi_json *json, const char *key, uint64_t value)
{
    char text[24];
    json_begin(json, key);
    int length = snprintf(text, sizeof text, "%lld", (long long)wi_min(value, INT64_MAX));
    json_put(json, text, (size_t)length);
}

void wi_json_bool(wi_json *json, const char *key, bool value)
{
    json_begin(json, key);
    json_put(json, value ? "true" : "false", value ? 4 : 5);
}

void wi_json_text(wi_json *json, const char *key, const char *value)
{
    json_begin(json, key);
    put_quoted(json, value);
}
