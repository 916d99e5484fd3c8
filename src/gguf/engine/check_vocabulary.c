/* check_vocabulary.c: the tokenizer's arrays. llama.cpp keeps tokens in a table by text and asserts that there are as
 * many as in the list: a token that stands there twice ends the process. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS "tokenizer.ggml.tokens"

/* A token's text by its hash and its place in the file: equal hashes are compared byte by byte. */
typedef struct entry {
    uint64_t hash, at, bytes;
} entry;

static weir_status hash_text(wg_cursor *cursor, uint64_t bytes, uint64_t *hash)
{
    unsigned char part[256];
    *hash = 1469598103934665603ull;
    while (bytes > 0) {
        size_t step = bytes < sizeof part ? (size_t)bytes : sizeof part;
        weir_status status = wi_gguf_cursor_read(cursor, part, step);
        if (status != WEIR_OK)
            return status;
        for (size_t i = 0; i < step; i++)
            *hash = (*hash ^ part[i]) * 1099511628211ull;
        bytes -= step;
    }
    return WEIR_OK;
}

static bool same_text(const wg_file *file, const entry *a, const entry *b)
{
    wg_cursor left = {0}, right = {0};
    bool same = a->bytes == b->bytes && wi_gguf_cursor_open(file, a->at, &left) == WEIR_OK &&
                wi_gguf_cursor_open(file, b->at, &right) == WEIR_OK;
    for (uint64_t i = 0; same && i < a->bytes; i++) {
        char one = 0, other = 1;
        same = wi_gguf_cursor_read(&left, &one, 1) == WEIR_OK && wi_gguf_cursor_read(&right, &other, 1) == WEIR_OK &&
               one == other;
    }
    wi_gguf_cursor_close(&left);
    wi_gguf_cursor_close(&right);
    return same;
}

static int by_hash(const void *a, const void *b)
{
    const entry *left = a, *right = b;
    if (left->hash != right->hash)
        return left->hash < right->hash ? -1 : 1;
    return left->at < right->at ? -1 : left->at > right->at;
}

static weir_status list_texts(const wg_file *file, const wg_key *key, entry *entries)
{
    wg_cursor cursor;
    weir_status status = wi_gguf_cursor_open(file, key->value_at, &cursor);
    for (uint64_t i = 0; status == WEIR_OK && i < key->count; i++) {
        status = wi_gguf_cursor_text_bytes(&cursor, &entries[i].bytes);
        entries[i].at = cursor.at;
        if (status == WEIR_OK)
            status = hash_text(&cursor, entries[i].bytes, &entries[i].hash);
    }
    wi_gguf_cursor_close(&cursor);
    return status;
}

static weir_status unique(const wg_file *file, const wg_key *key)
{
    entry *entries = calloc((size_t)key->count, sizeof *entries);
    if (!entries)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory for a list of its tokens", file->path);
    weir_status status = list_texts(file, key, entries);
    if (status == WEIR_OK)
        qsort(entries, (size_t)key->count, sizeof *entries, by_hash);
    for (uint64_t i = 1; status == WEIR_OK && i < key->count; i++)
        if (entries[i].bytes > 0 && entries[i].hash == entries[i - 1].hash &&
            same_text(file, &entries[i - 1], &entries[i]))
            status = weir_fail(WEIR_ERR_CORRUPT, "%s: key '" TOKENS "' holds one token twice, at bytes %llu and %llu",
                               file->path, (unsigned long long)entries[i - 1].at, (unsigned long long)entries[i].at);
    free(entries);
    return status;
}

static weir_status check_vocabulary_beside(const wg_file *file, const char *name, uint32_t element, uint32_t other,
                                           uint64_t count)
{
    const wg_key *key = wi_gguf_file_key(file, name);
    if (!key)
        return WEIR_OK;
    if (key->kind != WG_ARRAY || (key->element != element && key->element != other))
        return wg_bad_key(file, key, "it must be an array of one number for each token");
    if (key->count < count)
        return wg_bad_key(file, key, "there are more tokens than that");
    if (key->element != WG_F32)
        return WEIR_OK;
    wg_cursor cursor;
    weir_status status = wi_gguf_cursor_open(file, key->value_at, &cursor);
    for (uint64_t i = 0; status == WEIR_OK && i < key->count; i++) {
        float score = 0;
        status = wi_gguf_cursor_read(&cursor, &score, sizeof score);
        if (status == WEIR_OK && isnan(score))
            status = weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s' has no number at element %llu, byte %llu", file->path,
                               name, (unsigned long long)i, (unsigned long long)(cursor.at - sizeof score));
    }
    wi_gguf_cursor_close(&cursor);
    return status;
}

/* The tokens that llama.cpp takes where a file names no token, or a token that does not exist; -1: no token. Bert's
 * tokenizer frames every text with the first two tokens and the last, and asserts that they exist; the other tokenizers
 * assert the same for each token added to a text. */
typedef struct standard {
    const char *model;
    int bos, eos, unknown, separator;
    bool adds_bos, adds_eos;
} standard;

static const standard *standard_of(const char *model)
{
    static const standard list[] = {{"llama", 1, 2, 0, -1, true, false},    {"bert", 101, -1, 100, 102, true, false},
                                    {"gpt2", 11, 11, -1, -1, false, false}, {"hybriddna", 11, 11, -1, -1, false, false},
                                    {"t5", -1, 1, 2, -1, false, true},      {"plamo2", 1, 2, 0, -1, false, false},
                                    {"", -1, -1, -1, -1, false, false}};
    const standard *it = list;
    while (it->model[0] && strcmp(it->model, model) != 0)
        it++;
    return it;
}

static bool check_vocabulary_is_on(const wg_file *file, const char *name, bool otherwise)
{
    const wg_key *key = wi_gguf_file_key(file, name);
    return key && key->kind == WG_BOOL ? key->integer != 0 : otherwise;
}

/* Checks the key `name`, a token's number. The token or the token `otherwise` has to exist if `needed`; if not
 * `needed`, llama.cpp goes on without the token. */
static weir_status special(const wg_file *file, const char *name, int otherwise, bool needed, uint64_t count)
{
    const wg_key *key = wi_gguf_file_key(file, name);
    if (key && key->kind != WG_U32)
        return wg_bad_key(file, key, "it must be a u32");
    if (!needed || (key && key->integer < count) || (otherwise >= 0 && (uint64_t)otherwise < count))
        return WEIR_OK;
    if (!key)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s' is missing, and there is no token %d to take instead",
                         file->path, name, otherwise);
    return wg_bad_key(file, key, "there is no token of that number, and none to take instead");
}

static weir_status specials(const wg_file *file, const char *model, uint64_t count)
{
    const standard *usual = standard_of(model);
    bool bert = strcmp(model, "bert") == 0;
    bool named = wi_gguf_file_key(file, "tokenizer.ggml.bos_token_id") != NULL;
    bool bos = bert || (named && check_vocabulary_is_on(file, "tokenizer.ggml.add_bos_token", usual->adds_bos));
    weir_status status = special(file, "tokenizer.ggml.bos_token_id", usual->bos, bos, count);
    if (status == WEIR_OK)
        status = special(file, "tokenizer.ggml.seperator_token_id", usual->separator, bert, count);
    if (status == WEIR_OK)
        status = special(file, "tokenizer.ggml.unknown_token_id", usual->unknown, bert, count);
    bool ends = wi_gguf_file_key(file, "tokenizer.ggml.eos_token_id") != NULL &&
                check_vocabulary_is_on(file, "tokenizer.ggml.add_eos_token", usual->adds_eos);
    return status == WEIR_OK ? special(file, "tokenizer.ggml.eos_token_id", usual->eos, ends, count) : status;
}

weir_status wg_check_vocabulary(const wg_file *file, wg_facts *facts)
{
    const wg_key *model = wi_gguf_file_key(file, "tokenizer.ggml.model");
    if (!model)
        return wg_no_key(file, "tokenizer.ggml.model");
    if (model->kind != WG_TEXT)
        return wg_bad_key(file, model, "it must be a text");
    if (strcmp(model->text, "none") == 0 || strcmp(model->text, "no_vocab") == 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: has no vocabulary", file->path);
    const wg_key *tokens = wi_gguf_file_key(file, TOKENS);
    if (!tokens)
        return wg_no_key(file, TOKENS);
    if (tokens->kind != WG_ARRAY || tokens->element != WG_TEXT || tokens->count == 0 || tokens->count > INT32_MAX)
        return wg_bad_key(file, tokens, "it must be an array of texts, and not empty");
    facts->tokens = (uint32_t)tokens->count;
    weir_status status = unique(file, tokens);
    if (status == WEIR_OK)
        status = check_vocabulary_beside(file, "tokenizer.ggml.scores", WG_F32, WG_I32, tokens->count);
    if (status == WEIR_OK)
        status = check_vocabulary_beside(file, "tokenizer.ggml.token_type", WG_I32, WG_I32, tokens->count);
    return status == WEIR_OK ? specials(file, model->text, tokens->count) : status;
}
