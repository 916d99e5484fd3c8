/* Any text at all, read as a manifest, and what has to hold of the answer: places lie in the text, they are those of the values
 * that jansson finds, and what jansson refuses is not good. */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include "manifest/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void hold(bool good, const char *what, const char *text)
{
    if (good)
        return;
    fprintf(stderr, "%s:\n%s\n", what, text);
    abort();
}

/* Each place of the walk, read by itself, is the value that the tree has there. */
static inline void compare_places(const char *text, size_t at, json_t *json, unsigned depth)
{
    if (depth > 64 || !(json_is_object(json) || json_is_array(json)))
        return;
    wi_walk walk = wi_walk_into(text, at);
    wi_location place;
    size_t count = 0;
    for (; wi_walk_next(&walk, &place); count++) {
        json_t *key = json_is_object(json)
                          ? json_loadb(text + place.key, place.key_end - place.key, JSON_DECODE_ANY, NULL)
                          : NULL;
        hold(!json_is_object(json) || json_is_string(key), "a key is no text", text);
        json_t *there = key ? json_object_get(json, json_string_value(key)) : json_array_get(json, count);
        json_t *here = json_loadb(text + place.value, place.value_end - place.value, JSON_DECODE_ANY, NULL);
        hold(here && there && json_equal(here, there), "a place is another value's", text);
        compare_places(text, place.value, there, depth + 1);
        json_decref(here);
        json_decref(key);
    }
    hold(count == (json_is_object(json) ? json_object_size(json) : json_array_size(json)), "places are missing", text);
}

static inline void check_problems(const wi_problems *problems, const char *text)
{
    size_t lines = 1;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    hold(!problems->out_of_memory, "out of memory", text);
    for (size_t i = 0; i < problems->count; i++) {
        const struct wi_found *one = &problems->found[i];
        hold(one->line >= 1 && one->line <= lines && one->column >= 1, "a place outside of the text", text);
        hold(strlen(one->text) > 0 && strlen(one->text) < 600, "a text of no sensible length", text);
        for (const char *c = one->text; *c; c++)
            hold((unsigned char)*c >= 0x20 && *c != 0x7f, "a control character", text);
        if (i > 0)
            hold(one->line >= problems->found[i - 1].line, "problems out of order", text);
    }
}

static inline void try_text(const void *bytes, size_t length)
{
    char *text = malloc(length + 1);
    wi_parse_context *r = calloc(1, sizeof *r);
    wi_held *held = calloc(1, sizeof *held);
    if (!text || !r || !held)
        abort();
    if (length > 0)
        memcpy(text, bytes, length);
    text[length] = '\0';
    *r = (wi_parse_context){.text = text, .folder = "/nonexistent", .held = held};
    wi_manifest_text(r, length);
    wi_problems_sort(&r->problems, r->text);
    check_problems(&r->problems, text);
    size_t skipped = (size_t)(r->text - text);
    json_t *strict = json_loadb(r->text, length - skipped, JSON_REJECT_DUPLICATES, NULL);
    bool zero = strlen(text) < length; /* which jansson does not see */
    hold((strict && !zero) || r->problems.count > 0, "it is no JSON", text);
    if (strict && !zero)
        compare_places(r->text, wi_location_first(r->text), strict, 0);
    json_decref(strict);
    wi_problems_clear(&r->problems);
    wi_held_release(held);
    free(r);
    free(text);
}

#endif
