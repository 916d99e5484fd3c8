/* A manifest's text: checks that the text is JSON, finds the places of values and keys that are given twice, and owns
 * the manifest. */
#include "manifest/package.h"
#include "manifest/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Locations -------------------------------------------------------------------------------------------------------- */

static size_t manifest_text_skip_space(const char *text, size_t at)
{
    return at + strspn(text + at, " \t\r\n");
}

/* Past the string that begins at `at`. */
static size_t skip_string(const char *text, size_t at)
{
    for (at++; text[at] && text[at] != '"'; at++)
        at += text[at] == '\\' && text[at + 1];
    return at + (text[at] != '\0');
}

static size_t skip_value(const char *text, size_t at)
{
    size_t depth = 0;
    do {
        if (text[at] == '"') {
            at = skip_string(text, at);
        } else if (text[at] == '{' || text[at] == '[') {
            depth++;
            at++;
        } else if (text[at] == '}' || text[at] == ']') {
            depth--;
            at++;
        } else if (depth > 0) {
            at += text[at] != '\0';
        } else {
            at += strcspn(text + at, ",]} \t\r\n");
        }
    } while (depth > 0 && text[at]);
    return at;
}

size_t wi_location_first(const char *text)
{
    return manifest_text_skip_space(text, 0);
}

wi_walk wi_walk_into(const char *text, size_t at)
{
    return (wi_walk){text, at + 1, text[at] == '{'};
}

bool wi_walk_next(wi_walk *walk, wi_location *out)
{
    const char *text = walk->text;
    size_t at = manifest_text_skip_space(text, walk->at);
    if (text[at] == ',')
        at = manifest_text_skip_space(text, at + 1);
    if (text[at] == '}' || text[at] == ']' || text[at] == '\0')
        return false;
    *out = (wi_location){.key = at, .key_end = at};
    if (walk->object) {
        out->key_end = skip_string(text, at);
        at = manifest_text_skip_space(text, out->key_end); /* the colon */
        at = manifest_text_skip_space(text, at + 1);
    }
    out->value = at;
    out->value_end = walk->at = skip_value(text, at);
    return true;
}

enum { DEEPEST = 64 };

/* ---- what lives as long as the manifest -------------------------------------------------------------------------- */

typedef struct wi_stored {
    struct wi_stored *next;
    _Alignas(max_align_t) char bytes[];
} wi_stored;

void *wi_keep(wi_parse_context *r, size_t bytes)
{
    wi_stored *stored = calloc(1, sizeof *stored + bytes);
    if (!stored) {
        r->problems.out_of_memory = true;
        return NULL;
    }
    stored->next = r->held->stored;
    r->held->stored = stored;
    return stored->bytes;
}

char *wi_keep_text(wi_parse_context *r, const char *text, size_t length)
{
    char *copy = wi_keep(r, length + 1);
    return copy ? memcpy(copy, text, length) : NULL;
}

void wi_held_release(wi_held *held)
{
    if (!held)
        return;
    for (wi_stored *stored = held->stored, *next; stored; stored = next) {
        next = stored->next;
        free(stored);
    }
    json_decref(held->root);
    if (held->in_package)
        wi_package_leave(held->use);
    free(held);
}

/* ---- what is there twice ----------------------------------------------------------------------------------------- */

json_t *wi_decoded(wi_parse_context *r, size_t at, size_t end)
{
    json_t *key = json_loadb(r->text + at, end - at, JSON_DECODE_ANY, NULL);
    r->problems.out_of_memory |= !key;
    return key;
}

static void look_for_twins(wi_parse_context *r, size_t at, unsigned depth);

static void note_key(wi_parse_context *r, json_t *seen, const wi_location *place)
{
    json_t *decoded = wi_decoded(r, place->key, place->key_end);
    const char *key = decoded ? json_string_value(decoded) : NULL;
    wi_shown shown;
    if (key && json_object_get(seen, key))
        wi_problem_add(&r->problems, place->key, "the key \"%s\" is there twice", wi_show(&shown, key));
    else if (key && json_object_set_new(seen, key, json_true()) != 0)
        r->problems.out_of_memory = true;
    json_decref(decoded);
}

static void manifest_text_look_into(wi_parse_context *r, size_t at, unsigned depth)
{
    json_t *seen = json_object();
    r->problems.out_of_memory |= !seen;
    wi_walk walk = wi_walk_into(r->text, at);
    for (wi_location place; wi_walk_next(&walk, &place);) {
        if (walk.object)
            note_key(r, seen, &place);
        look_for_twins(r, place.value, depth + 1);
    }
    json_decref(seen);
}

/* In every object of the value at `at`. */
static void look_for_twins(wi_parse_context *r, size_t at, unsigned depth)
{
    if (r->text[at] != '{' && r->text[at] != '[')
        return;
    if (depth == DEEPEST)
        wi_problem_add(&r->problems, at, "this is nested more than %d deep", (int)DEEPEST);
    else
        manifest_text_look_into(r, at, depth);
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

/* The byte at which a column of a line begins; jansson tells where it stopped in characters. */
static size_t byte_of(const char *text, int line, int column)
{
    size_t at = 0;
    for (; line > 1 && text[at]; at++)
        line -= text[at] == '\n';
    for (; column > 1 && text[at] && text[at] != '\n'; column--)
        for (at++; ((unsigned char)text[at] & 0xc0) == 0x80;)
            at++;
    return at;
}

void wi_manifest_text(wi_parse_context *r, size_t length)
{
    static const char mark[] = "\xef\xbb\xbf"; /* some editors write it; it means nothing */
    json_error_t error;
    size_t skipped = strncmp(r->text, mark, 3) == 0 ? 3 : 0;
    r->text += skipped;
    if (strlen(r->text) < length - skipped) { /* jansson passes over it, also inside a number */
        wi_problem_add(&r->problems, strlen(r->text), "this is no JSON: a byte of zero");
        return;
    }
    r->held->root = json_loadb(r->text, length - skipped, JSON_DECODE_ANY, &error);
    if (!r->held->root) {
        /* Where memory was short it says nothing, or just that. */
        r->problems.out_of_memory |= !*error.text || json_error_code(&error) == json_error_out_of_memory;
        wi_problem_add(&r->problems, byte_of(r->text, error.line, error.column), "this is no JSON: %s", error.text);
        return;
    }
    size_t first = wi_location_first(r->text);
    if (!json_is_object(r->held->root)) {
        wi_problem_add(&r->problems, first, "a manifest is an object: {\"model_file\": …}; this is %s",
                       wi_kind_name(r->held->root));
        return;
    }
    look_for_twins(r, first, 0);
    wi_fields_read(r, first, r->held->root, false);
    wi_rules(r);
}
