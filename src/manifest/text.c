/* A manifest's text: whether it is JSON, what of it is there twice, and its life once it is read. */
#include "manifest/package.h"
#include "manifest/locations.h"
#include "manifest/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64 };

/* ---- what lives as long as the manifest ------------------------------------------------------------------------------ */

typedef struct wi_kept {
    struct wi_kept *next;
    _Alignas(max_align_t) char bytes[];
} wi_kept;

void *wi_keep(wi_reading *r, size_t bytes)
{
    wi_kept *kept = calloc(1, sizeof *kept + bytes);
    if (!kept) {
        r->problems.out_of_memory = true;
        return NULL;
    }
    kept->next = r->held->kept;
    r->held->kept = kept;
    return kept->bytes;
}

char *wi_keep_text(wi_reading *r, const char *text, size_t length)
{
    char *copy = wi_keep(r, length + 1);
    return copy ? memcpy(copy, text, length) : NULL;
}

void wi_held_release(wi_held *held)
{
    if (!held)
        return;
    for (wi_kept *kept = held->kept, *next; kept; kept = next) {
        next = kept->next;
        free(kept);
    }
    json_decref(held->root);
    if (held->in_package)
        wi_package_leave(held->use);
    free(held);
}

/* ---- what is there twice --------------------------------------------------------------------------------------------- */

json_t *wi_decoded(wi_reading *r, size_t at, size_t end)
{
    json_t *key = json_loadb(r->text + at, end - at, JSON_DECODE_ANY, NULL);
    r->problems.out_of_memory |= !key;
    return key;
}

static void look_for_twins(wi_reading *r, size_t at, unsigned depth);

static void note_key(wi_reading *r, json_t *seen, const wi_place *place)
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

static void look_into(wi_reading *r, size_t at, unsigned depth)
{
    json_t *seen = json_object();
    r->problems.out_of_memory |= !seen;
    wi_walk walk = wi_walk_into(r->text, at);
    for (wi_place place; wi_walk_next(&walk, &place);) {
        if (walk.object)
            note_key(r, seen, &place);
        look_for_twins(r, place.value, depth + 1);
    }
    json_decref(seen);
}

/* In every object of the value at `at`. */
static void look_for_twins(wi_reading *r, size_t at, unsigned depth)
{
    if (r->text[at] != '{' && r->text[at] != '[')
        return;
    if (depth == DEEPEST)
        wi_problem_add(&r->problems, at, "this is nested more than %d deep", (int)DEEPEST);
    else
        look_into(r, at, depth);
}

/* ---- the text -------------------------------------------------------------------------------------------------------- */

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

void wi_manifest_text(wi_reading *r, size_t length)
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
    size_t first = wi_place_first(r->text);
    if (!json_is_object(r->held->root)) {
        wi_problem_add(&r->problems, first, "a manifest is an object: {\"model_file\": …}; this is %s",
                       wi_kind_name(r->held->root));
        return;
    }
    look_for_twins(r, first, 0);
    wi_fields_read(r, first, r->held->root, false);
    wi_rules(r);
}
