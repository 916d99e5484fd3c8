/* tokenizer.c: checks a tokenizer's files before GenAI reads them. Some values that GenAI does not check end the
 * process: numbers of tokens become sizes of tables, lengths depths of recursions. */
#include "wl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_FILE = 256 << 20, MOST_DEPTH = 64, MORE_TOKENS = 4096, MOST_TOKEN = 1000, MOST_PATTERN = 2048 };
enum { MOST_TEMPLATE = 64 << 10, MOST_TAG = 1024, MOST_RUN = 4096, MOST_BLOCKS = 64 };

static weir_status tokenizer_wrong(const wl_folder *folder, const char *file, const char *what)
{
    return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: %s", folder->path, file, what);
}

/* ---- chat templates ---------------------------------------------------------------------------------------------- */

/* What is read of a template: texts, and between them tags. */
typedef struct tag {
    const char *begin;
    size_t bytes; /* but for its texts */
} tag;

/* Behind the text in quotes that begins at `at`. */
static const char *behind_text(const char *at)
{
    char quote = *at++;
    while (*at && *at != quote)
        at += *at == '\\' && at[1] ? 2 : 1;
    return *at ? at + 1 : at;
}

static const char *read_tag(const char *at, tag *out)
{
    bool comment = at[1] == '#';
    const char *end = comment ? "#}" : at[1] == '%' ? "%}" : "}}";
    *out = (tag){.begin = at};
    for (at += 2; *at && strncmp(at, end, 2) != 0;) {
        const char *next = !comment && (*at == '\'' || *at == '"') ? behind_text(at) : at + 1;
        out->bytes += next == at + 1;
        at = next;
    }
    return *at ? at + 2 : at;
}

static bool tag_is(const tag *it, const char *word)
{
    const char *at = it->begin + 2;
    size_t length = strlen(word);
    while (isspace((unsigned char)*at) || *at == '-' || *at == '+' || *at == '~')
        at++;
    return strncmp(at, word, length) == 0;
}

static size_t longest_blank(const char *text)
{
    size_t most = 0;
    for (const char *at = text; *at; at += *at ? 1 : 0) {
        size_t length = strspn(at, " \t\r\n\v\f");
        most = length > most ? length : most;
        at += length;
        if (!*at)
            break;
    }
    return most;
}

static const char *what_is_wrong(const char *text)
{
    static const char *const blocks[] = {"if", "for", "macro", "filter", "call", "generation", "block"};
    int open = 0;
    if (strlen(text) > MOST_TEMPLATE)
        return "the chat template is longer than 65536 bytes";
    if (longest_blank(text) > MOST_RUN)
        return "the chat template has more than 4096 blanks in a row";
    for (const char *at = text; (at = strchr(at, '{'));) {
        tag it;
        if (at[1] != '{' && at[1] != '%' && at[1] != '#') {
            at++;
            continue;
        }
        bool block = at[1] == '%';
        size_t most = at[1] == '#' ? MOST_RUN : MOST_TAG;
        at = read_tag(at, &it);
        if (it.bytes > most)
            return "the chat template has a tag of more than 1024 bytes, or a comment of more than 4096";
        for (size_t i = 0; block && i < sizeof blocks / sizeof *blocks; i++)
            open += tag_is(&it, blocks[i]);
        open -= block && tag_is(&it, "end") && open > 0;
        if (open > MOST_BLOCKS)
            return "the chat template has more than 64 blocks within one another";
    }
    return NULL;
}

weir_status wl_template_check(const char *what, const char *text)
{
    const char *why = what_is_wrong(text);
    return why ? weir_fail(WEIR_ERR_INVALID, "%s: %s", what, why) : WEIR_OK;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* GenAI's tables have a place for each number up to the largest. Some tokens lie behind the vocabulary that the model has. */
static bool is_token(const wl_folder *folder, const json_t *id)
{
    return json_is_integer(id) && json_integer_value(id) >= 0 &&
           json_integer_value(id) < folder->vocabulary + MORE_TOKENS;
}

static bool is_short(const json_t *text)
{
    return json_is_string(text) && json_string_length(text) <= MOST_TOKEN;
}

static weir_status tokenizer_check_names(const wl_folder *folder, const char *file, const json_t *vocab)
{
    const char *text;
    json_t *id;
    json_object_foreach((json_t *)vocab, text, id)
    {
        if (!is_token(folder, id) || strlen(text) > MOST_TOKEN)
            return tokenizer_wrong(folder, file,
                                   "a token of \"vocab\" has no number of the vocabulary, or is too long");
    }
    return WEIR_OK;
}

static weir_status check_pieces(const wl_folder *folder, const char *file, const json_t *vocab)
{
    json_t *piece;
    size_t index;
    if (json_array_size(vocab) > (size_t)folder->vocabulary + MORE_TOKENS)
        return tokenizer_wrong(folder, file, "\"vocab\" has more tokens than the model");
    json_array_foreach(vocab, index, piece)
    {
        if (!is_short(json_array_get(piece, 0)) || !json_is_number(json_array_get(piece, 1)))
            return tokenizer_wrong(folder, file, "an item of \"vocab\" is no text with a number, or is too long");
    }
    return WEIR_OK;
}

/* GenAI does not go on behind one that is empty, or a first one that looks like a remark. */
static weir_status check_merges(const wl_folder *folder, const char *file, const json_t *merges)
{
    json_t *value;
    size_t index;
    json_array_foreach(merges, index, value)
    {
        const char *text = json_string_value(value);
        bool pair = json_array_size(value) == 2 && json_is_string(json_array_get(value, 0)) &&
                    json_is_string(json_array_get(value, 1));
        if (!pair && (!text || text[strspn(text, "\r")] == 0 || (index == 0 && text[strspn(text, "\r")] == '#')))
            return tokenizer_wrong(folder, file, "an item of \"merges\" is no pair of texts");
    }
    return WEIR_OK;
}

static weir_status check_added(const wl_folder *folder, const char *file, const json_t *added)
{
    json_t *value;
    size_t index;
    json_array_foreach(added, index, value)
    {
        const json_t *content = json_object_get(value, "content"), *id = json_object_get(value, "id");
        if (!json_is_object(value) || (content && !is_short(content)) || (id && !is_token(folder, id)))
            return tokenizer_wrong(folder, file,
                                   "an item of \"added_tokens\" has no number of the vocabulary, or is too long");
    }
    return WEIR_OK;
}

/* The same by their numbers, in tokenizer_config.json. */
static weir_status check_decoder(const wl_folder *folder, const char *file, const json_t *decoder)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)decoder, key, value)
    {
        char *end;
        long long id = strtoll(key, &end, 10);
        const json_t *content = json_object_get(value, "content");
        if (*end || end == key || id < 0 || id >= folder->vocabulary + MORE_TOKENS || (content && !is_short(content)))
            return tokenizer_wrong(
                folder, file, "an item of \"added_tokens_decoder\" has no number of the vocabulary, or is too long");
    }
    return WEIR_OK;
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

/* A group that is repeated can take longer than anybody waits: (a|aa)+ */
static bool repeats_group(const char *pattern)
{
    bool in_class = false;
    for (const char *at = pattern; *at; at++) {
        if (*at == '\\' && at[1])
            at++;
        else if (in_class)
            in_class = *at != ']';
        else if (*at == '[')
            in_class = true;
        else if (*at == ')' && at[1] && strchr("*+{", at[1]))
            return true;
    }
    return false;
}

static weir_status check_patterns(const wl_folder *folder, const char *file, const json_t *value);

static weir_status check_pattern(const wl_folder *folder, const char *file, const char *key, const json_t *value)
{
    const char *text = strcmp(key, "Regex") == 0 ? json_string_value(value) : NULL;
    if (!text || (strlen(text) <= MOST_PATTERN && !repeats_group(text)))
        return check_patterns(folder, file, value);
    return weir_fail(WEIR_ERR_UNSUPPORTED, "%s/%s: a pattern that is longer than 2048 bytes, or that repeats a group",
                     folder->path, file);
}

/* Checks every "Regex" in the value, at any depth. */
static weir_status check_patterns(const wl_folder *folder, const char *file, const json_t *value)
{
    const char *key;
    json_t *inner;
    size_t index;
    weir_status status = WEIR_OK;
    json_object_foreach((json_t *)value, key, inner)
    {
        status = status == WEIR_OK ? check_pattern(folder, file, key, inner) : status;
    }
    json_array_foreach(value, index, inner)
    {
        status = status == WEIR_OK ? check_patterns(folder, file, inner) : status;
    }
    return status;
}

/* ---- the files --------------------------------------------------------------------------------------------------- */

static bool is_shallow(const json_t *value, int depth)
{
    const char *key;
    const json_t *inner;
    size_t index;
    bool is = depth > 0;
    json_object_foreach((json_t *)value, key, inner)
    {
        is = is && is_shallow(inner, depth - 1);
    }
    json_array_foreach(value, index, inner)
    {
        is = is && is_shallow(inner, depth - 1);
    }
    return is;
}

static weir_status read_shallow(const wl_folder *folder, const char *file, size_t flags, json_t **out)
{
    weir_status status = wl_folder_json(folder, file, MOST_FILE, flags, out);
    if (status == WEIR_OK && !is_shallow(*out, MOST_DEPTH)) {
        json_decref(*out);
        *out = NULL;
        return tokenizer_wrong(folder, file, "it is nested too deeply");
    }
    return status;
}

static weir_status tokenizer_check_tokens(const wl_folder *folder)
{
    static const char file[] = "tokenizer.json";
    json_t *root;
    weir_status status = read_shallow(folder, file, 0, &root);
    if (status != WEIR_OK)
        return status;
    const json_t *model = json_object_get(root, "model"), *merges = json_object_get(model, "merges");
    const json_t *vocab = json_object_get(model, "vocab");
    bool none = json_is_object(merges) && json_object_size(merges) == 0;
    if (merges ? !json_is_array(merges) && !none : json_is_object(vocab))
        status = tokenizer_wrong(folder, file, "\"merges\" is no list");
    if (status == WEIR_OK)
        status = json_is_array(vocab) ? check_pieces(folder, file, vocab) : tokenizer_check_names(folder, file, vocab);
    if (status == WEIR_OK)
        status = check_merges(folder, file, merges);
    if (status == WEIR_OK)
        status = check_added(folder, file, json_object_get(root, "added_tokens"));
    if (status == WEIR_OK)
        status = check_patterns(folder, file, root);
    json_decref(root);
    return status;
}

static weir_status check_template(const wl_folder *folder, const char *file, const json_t *template)
{
    const char *text = json_string_value(template), *why = text ? what_is_wrong(text) : NULL;
    return why ? weir_fail(WEIR_ERR_UNSUPPORTED, "%s/%s: %s", folder->path, file, why) : WEIR_OK;
}

static weir_status tokenizer_check_config(const wl_folder *folder)
{
    static const char file[] = "tokenizer_config.json";
    json_t *root;
    /* "model_max_length" is 10^30 where there is none. */
    weir_status status = read_shallow(folder, file, JSON_DECODE_INT_AS_REAL, &root);
    if (status != WEIR_OK)
        return status;
    if (json_object_get(root, "tiktoken_file"))
        status = weir_fail(WEIR_ERR_UNSUPPORTED,
                           "%s/%s: names another file (\"tiktoken_file\"), which this engine does not read",
                           folder->path, file);
    if (status == WEIR_OK)
        status = check_decoder(folder, file, json_object_get(root, "added_tokens_decoder"));
    if (status == WEIR_OK)
        status = check_template(folder, file, json_object_get(root, "chat_template"));
    json_decref(root);
    return status;
}

/* Checks chat_template.jinja, which GenAI uses if the file exists. */
static weir_status check_jinja(const wl_folder *folder)
{
    static const char file[] = "chat_template.jinja";
    char path[1024], *text = calloc(1, MOST_TEMPLATE + 2);
    const char *why = "no file";
    snprintf(path, sizeof path, "%s/%s", folder->path, file);
    FILE *from = text ? fopen(path, "rb") : NULL;
    if (from) {
        why = fread(text, 1, MOST_TEMPLATE + 1, from) > 0 || feof(from) ? what_is_wrong(text) : why;
        fclose(from);
    }
    free(text);
    return why ? weir_fail(WEIR_ERR_UNSUPPORTED, "%s: %s", path, why) : WEIR_OK;
}

static weir_status check_template_file(const wl_folder *folder)
{
    static const char file[] = "chat_template.json";
    json_t *root;
    weir_status status = read_shallow(folder, file, 0, &root);
    if (status == WEIR_OK)
        status = check_template(folder, file, json_object_get(root, "chat_template"));
    json_decref(root);
    return status;
}

/* Finds out whether the file exists. Refuses anything but a regular file, because reading a pipe could block. */
static weir_status look_for(const wl_folder *folder, const char *file, bool *there)
{
    char path[1024];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", folder->path, file);
    *there = stat(path, &about) == 0;
    return *there && !S_ISREG(about.st_mode) ? weir_fail(WEIR_ERR_UNSUPPORTED, "%s is no file", path) : WEIR_OK;
}

static weir_status check_others(const wl_folder *folder)
{
    bool module, jinja = false, json = false;
    weir_status status = look_for(folder, "tokenizer_module.json", &module);
    if (status == WEIR_OK && module)
        status =
            weir_fail(WEIR_ERR_UNSUPPORTED,
                      "%s/tokenizer_module.json: a part of a tokenizer that this engine does not read", folder->path);
    if (status == WEIR_OK)
        status = look_for(folder, "chat_template.jinja", &jinja);
    if (status == WEIR_OK && jinja)
        status = check_jinja(folder);
    if (status == WEIR_OK)
        status = look_for(folder, "chat_template.json", &json);
    return status == WEIR_OK && json ? check_template_file(folder) : status;
}

weir_status wl_tokenizer_check(const wl_folder *folder)
{
    weir_status status = tokenizer_check_tokens(folder);
    if (status == WEIR_OK || status == WEIR_ERR_NOT_FOUND) /* a vocabulary in another file */
        status = tokenizer_check_config(folder);
    if (status == WEIR_OK)
        status = check_others(folder);
    return status == WEIR_ERR_NOT_FOUND ? weir_fail(WEIR_ERR_CORRUPT, "%s", weir_detail()) : status;
}
