/* schema.c: grammars of JSON. A JSON Schema becomes rules of GBNF, of which every text satisfies the schema; properties come in
 * the order in which the schema has them, and no others. What a grammar cannot hold is refused by its name. */
#include "completion.h"

#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

/* Allows few blanks in a row, so that a model that prefers blanks comes to an end. */
static const char common[] = "ws ::= [ \\t\\n]{0,8}\n"
                             "string ::= \"\\\"\" char* \"\\\"\"\n"
                             "char ::= [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n"
                             "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
                             "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?\n"
                             "boolean ::= \"true\" | \"false\"\n"
                             "null ::= \"null\"\n"
                             "value ::= object | array | string | number | boolean | null\n"
                             "member ::= string \":\" ws value ws\n"
                             "object ::= \"{\" ws (member (\",\" ws member)*)? \"}\"\n"
                             "array ::= \"[\" ws (value ws (\",\" ws value ws)*)? \"]\"\n";

enum { MOST_RULES = 4000, MOST_NAMED = 256 };

typedef struct writer {
    FILE *rules;
    const json_t *root;
    unsigned count;
    struct {
        const char *path;
        unsigned rule;
    } named[MOST_NAMED];
    size_t named_count;
    char *why;
} writer;

static unsigned value_rule(writer *it, const json_t *schema);

/* What is said first stays. */
static void serve_schema_cannot(writer *it, const char *format, const char *what)
{
    if (!it->why)
        it->why = text_print(format, what);
}

/* A rule's number before its text is written, as that needs others. */
static unsigned next_rule(writer *it)
{
    if (it->count >= MOST_RULES)
        serve_schema_cannot(it, "the schema is too large%s", "");
    return it->count++;
}

static void put_literal(FILE *to, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    fputc('"', to);
    for (const char *c = text ? text : ""; *c; c++)
        fprintf(to, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
    fputc('"', to);
    free(text);
}

/* ---- objects --------------------------------------------------------------------------------------------------------- */

static bool is_required(const json_t *schema, const char *name)
{
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one && strcmp(one, name) == 0)
            return true;
    }
    return false;
}

/* Two rules for the properties from each on: with something before it, which a comma follows, and with nothing. */
typedef struct tails {
    unsigned after, first;
    bool last;
} tails;

static void put_tail(FILE *to, tails next, bool after)
{
    if (!next.last)
        fprintf(to, " r%u", after ? next.after : next.first);
}

static tails put_property(writer *it, const json_t *schema, const char *name, const json_t *property, tails next)
{
    unsigned value = value_rule(it, property), pair = next_rule(it);
    tails made = {.after = next_rule(it), .first = next_rule(it)};
    bool required = is_required(schema, name);
    json_t *key = json_string(name);
    fprintf(it->rules, "r%u ::= ", pair);
    put_literal(it->rules, key);
    fprintf(it->rules, " \":\" ws r%u ws\n", value);
    fprintf(it->rules, required ? "r%u ::= \",\" ws r%u" : "r%u ::= (\",\" ws r%u)?", made.after, pair);
    put_tail(it->rules, next, true);
    fprintf(it->rules, "\nr%u ::= r%u", made.first, pair);
    put_tail(it->rules, next, true);
    if (!required) {
        fputs(next.last ? " | \"\"" : " |", it->rules);
        put_tail(it->rules, next, false);
    }
    fputc('\n', it->rules);
    json_decref(key);
    return made;
}

static void serve_schema_check_required(writer *it, const json_t *schema, const json_t *properties)
{
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (!one || !json_object_get(properties, one))
            serve_schema_cannot(it, "'required' names '%s', which is none of the properties", one ? one : "");
    }
}

static void put_object(writer *it, const json_t *schema, unsigned rule)
{
    const json_t *properties = json_object_get(schema, "properties"), *more;
    size_t count = json_object_size(properties), at = 0;
    more = json_object_get(schema, "additionalProperties");
    serve_schema_check_required(it, schema, properties);
    if (count == 0 && json_is_object(more)) {
        unsigned value = value_rule(it, more);
        fprintf(it->rules, "r%u ::= \"{\" ws (string \":\" ws r%u ws (\",\" ws string \":\" ws r%u ws)*)? \"}\"\n",
                rule, value, value);
        return;
    }
    if (count == 0) {
        fprintf(it->rules, json_is_false(more) ? "r%u ::= \"{\" ws \"}\"\n" : "r%u ::= object\n", rule);
        return;
    }
    const char **names = text_grow(NULL, count, sizeof *names), *name;
    json_t *property;
    json_object_foreach((json_t *)(uintptr_t)properties, name, property) names[at++] = name;
    tails tail = {.last = true};
    for (size_t i = count; i > 0 && !it->why; i--)
        tail = put_property(it, schema, names[i - 1], json_object_get(properties, names[i - 1]), tail);
    fprintf(it->rules, "r%u ::= \"{\" ws r%u \"}\"\n", rule, tail.first);
    free(names);
}

/* ---- arrays, strings ------------------------------------------------------------------------------------------------- */

/* A count of the schema's; `otherwise` if it says nothing. */
static json_int_t serve_schema_count_of(writer *it, const json_t *schema, const char *key, json_int_t otherwise)
{
    enum { MOST = 2000 };
    const json_t *value = json_object_get(schema, key);
    if (value && (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > MOST))
        serve_schema_cannot(it, "'%s' is a whole number up to 2000", key);
    return value ? json_integer_value(value) : otherwise;
}

static void put_times(FILE *to, json_int_t least, json_int_t most)
{
    if (most >= 0)
        fprintf(to, "{%lld,%lld}", (long long)least, (long long)most);
    else
        fprintf(to, "{%lld,}", (long long)least);
}

static void put_array(writer *it, const json_t *schema, unsigned rule)
{
    const json_t *items = json_object_get(schema, "items");
    json_int_t least = serve_schema_count_of(it, schema, "minItems", 0),
               most = serve_schema_count_of(it, schema, "maxItems", -1);
    unsigned value = next_rule(it);
    if (most >= 0 && least > most)
        serve_schema_cannot(it, "'minItems' is more than '%s'", "maxItems");
    if (json_is_object(items))
        fprintf(it->rules, "r%u ::= r%u ws\n", value, value_rule(it, items));
    else
        fprintf(it->rules, "r%u ::= value ws\n", value);
    if (most == 0) {
        fprintf(it->rules, "r%u ::= \"[\" ws \"]\"\n", rule);
        return;
    }
    fprintf(it->rules, "r%u ::= \"[\" ws %sr%u (\",\" ws r%u)", rule, least == 0 ? "(" : "", value, value);
    put_times(it->rules, least > 0 ? least - 1 : 0, most > 0 ? most - 1 : -1);
    fprintf(it->rules, "%s \"]\"\n", least == 0 ? ")?" : "");
}

static void put_string(writer *it, const json_t *schema, unsigned rule)
{
    json_int_t least = serve_schema_count_of(it, schema, "minLength", 0),
               most = serve_schema_count_of(it, schema, "maxLength", -1);
    fprintf(it->rules, "r%u ::= \"\\\"\" char", rule);
    put_times(it->rules, least, most);
    fputs(" \"\\\"\"\n", it->rules);
}

/* ---- values ---------------------------------------------------------------------------------------------------------- */

static void put_type(writer *it, const json_t *schema, const char *type, unsigned rule)
{
    static const char *const simple[] = {"number", "integer", "boolean", "null"};
    for (size_t i = 0; i < sizeof simple / sizeof *simple; i++)
        if (strcmp(type, simple[i]) == 0) {
            fprintf(it->rules, "r%u ::= %s\n", rule, simple[i]);
            return;
        }
    if (strcmp(type, "object") == 0)
        put_object(it, schema, rule);
    else if (strcmp(type, "array") == 0)
        put_array(it, schema, rule);
    else if (strcmp(type, "string") == 0)
        put_string(it, schema, rule);
    else
        serve_schema_cannot(it, "there is no type '%.40s'", type);
}

/* Writes a choice between several schemas, literals or types, and a rule for each alternative. */
static void put_choice(writer *it, const json_t *schema, const json_t *list, unsigned rule)
{
    size_t count = json_array_size(list);
    unsigned *rules = text_grow(NULL, count + 1, sizeof *rules);
    bool types = list == json_object_get(schema, "type"), literals = list == json_object_get(schema, "enum");
    for (size_t i = 0; i < count && !it->why; i++) {
        const json_t *one = json_array_get(list, i);
        if (literals || types)
            rules[i] = next_rule(it);
        if (literals) {
            fprintf(it->rules, "r%u ::= ", rules[i]);
            put_literal(it->rules, one);
            fputc('\n', it->rules);
        } else if (types) {
            put_type(it, schema, json_is_string(one) ? json_string_value(one) : "", rules[i]);
        } else {
            rules[i] = value_rule(it, one);
        }
    }
    if (count == 0)
        serve_schema_cannot(it, "a list of %s is empty", literals ? "values" : "schemas");
    fprintf(it->rules, "r%u ::=", rule);
    for (size_t i = 0; i < count && !it->why; i++)
        fprintf(it->rules, "%s r%u", i ? " |" : "", rules[i]);
    fputc('\n', it->rules);
    free(rules);
}

/* Of "#/$defs/Name". */
static const json_t *serve_schema_find_named(const writer *it, const char *path)
{
    static const char *const places[] = {"$defs", "definitions"};
    if (strcmp(path, "#") == 0)
        return it->root;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        size_t bytes = strlen(places[i]);
        if (strncmp(path, "#/", 2) == 0 && strncmp(path + 2, places[i], bytes) == 0 && path[bytes + 2] == '/')
            return json_object_get(json_object_get(it->root, places[i]), path + bytes + 3);
    }
    return NULL;
}

static void put_named(writer *it, const char *path, unsigned rule)
{
    const json_t *schema = serve_schema_find_named(it, path);
    unsigned target = 0;
    bool known = false;
    for (size_t i = 0; i < it->named_count; i++)
        if (strcmp(it->named[i].path, path) == 0) {
            target = it->named[i].rule;
            known = true;
        }
    if (!schema || it->named_count == MOST_NAMED) {
        serve_schema_cannot(it, "'$ref' leads to no definition here: '%.100s'", path);
        return;
    }
    if (!known) {
        /* The number is taken before the rule is written, as the schema may refer to itself. */
        target = next_rule(it);
        it->named[it->named_count].path = path;
        it->named[it->named_count++].rule = target;
        fprintf(it->rules, "r%u ::= r%u\n", target, value_rule(it, schema));
    }
    fprintf(it->rules, "r%u ::= r%u\n", rule, target);
}

/* Refuses keywords that are neither read nor without effect. */
static void check_words(writer *it, const json_t *schema)
{
    static const char *const known[] = {"type",         "properties", "required",    "additionalProperties",
                                        "items",        "minItems",   "maxItems",    "minLength",
                                        "maxLength",    "enum",       "const",       "anyOf",
                                        "oneOf",        "allOf",      "$ref",        "$defs",
                                        "definitions",  "title",      "description", "default",
                                        "examples",     "$schema",    "$id",         "$comment",
                                        "format",       "deprecated", "readOnly",    "writeOnly",
                                        "discriminator"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known && !found; i++)
            found = strcmp(known[i], key) == 0;
        if (!found)
            serve_schema_cannot(it, "a grammar cannot hold the schema's '%.60s'", key);
    }
}

static void put_value(writer *it, const json_t *schema, unsigned rule)
{
    const json_t *type = json_object_get(schema, "type"), *all = json_object_get(schema, "allOf");
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    const json_t *any = json_object_get(schema, "anyOf"), *ref = json_object_get(schema, "$ref");
    any = any ? any : json_object_get(schema, "oneOf");
    check_words(it, schema);
    if (json_array_size(all) > 1)
        serve_schema_cannot(it, "a grammar cannot hold '%s' of several schemas", "allOf");
    if (json_is_string(ref)) {
        put_named(it, json_string_value(ref), rule);
    } else if (one) {
        fprintf(it->rules, "r%u ::= ", rule);
        put_literal(it->rules, one);
        fputc('\n', it->rules);
    } else if (list || any) {
        put_choice(it, schema, list ? list : any, rule);
    } else if (json_array_size(all) == 1) {
        fprintf(it->rules, "r%u ::= r%u\n", rule, value_rule(it, json_array_get(all, 0)));
    } else if (json_is_array(type)) {
        put_choice(it, schema, type, rule);
    } else if (json_is_string(type)) {
        put_type(it, schema, json_string_value(type), rule);
    } else if (json_object_get(schema, "properties")) {
        put_object(it, schema, rule);
    } else {
        fprintf(it->rules, "r%u ::= value\n", rule);
    }
}

static unsigned value_rule(writer *it, const json_t *schema)
{
    unsigned rule = next_rule(it);
    if (it->why)
        return rule;
    if (json_is_true(schema))
        fprintf(it->rules, "r%u ::= value\n", rule);
    else if (json_is_object(schema))
        put_value(it, schema, rule);
    else
        serve_schema_cannot(it, "a schema is an object%s", "");
    return rule;
}

char *schema_grammar(const json_t *schema, char **why)
{
    char *text = NULL;
    size_t bytes = 0;
    writer it = {.root = schema};
    it.rules = text_stream(&text, &bytes);
    *why = NULL;
    fputs(schema ? "root ::= r0\n" : "root ::= object\n", it.rules);
    if (schema)
        (void)value_rule(&it, schema);
    fputs(common, it.rules);
    fclose(it.rules);
    if (!it.why)
        return text;
    free(text);
    *why = it.why;
    return NULL;
}
