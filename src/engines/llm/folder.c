/* folder.c: GenAI and the tokenizer below it take a model's files as they are: numbers that are no sizes, names of files
 * elsewhere, libraries to be loaded. What is read here is what decides how much memory there has to be, and what would be
 * run that is no model. */
#include "wl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "onnx/file/main_graph.h"

enum { MOST_CONFIG = 4 << 20, MOST_LAYERS = 4096, MOST_HEADS = 4096, MOST_HEAD = 65536, MOST_THREADS = 512 };
enum { MOST_VOCABULARY = 1 << 24, MOST_CONTEXT = 1 << 24 };

/* ---- files of JSON ----------------------------------------------------------------------------------------------- */

/* In pieces, where json_load_file takes a file byte by byte, under its lock. */
static size_t folder_read_piece(void *buffer, size_t bytes, void *file)
{
    return fread(buffer, 1, bytes, file);
}

weir_status wl_folder_json(const wl_folder *folder, const char *name, int64_t most, size_t flags, json_t **out)
{
    char path[1024];
    struct stat about;
    json_error_t error;
    *out = NULL;
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    if (stat(path, &about) != 0)
        return weir_fail(WEIR_ERR_NOT_FOUND, "%s is not there", path);
    if (!S_ISREG(about.st_mode) || about.st_size > most)
        return weir_fail(WEIR_ERR_CORRUPT, "%s is no file of at most %lld bytes", path, (long long)most);
    FILE *file = fopen(path, "re");
    if (!file)
        return weir_fail(WEIR_ERR_SYSTEM, "%s cannot be read: %s", path, strerror(errno));
    *out = json_load_callback(folder_read_piece, file, JSON_REJECT_DUPLICATES | flags, &error);
    fclose(file);
    if (!*out)
        return weir_fail(WEIR_ERR_CORRUPT, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    if (json_is_object(*out))
        return WEIR_OK;
    json_decref(*out);
    *out = NULL;
    return weir_fail(WEIR_ERR_CORRUPT, "%s holds no JSON object", path);
}

static weir_status llm_folder_wrong(const wl_folder *folder, const char *where, const char *what)
{
    return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: %s %s", folder->path, WL_CONFIG, where, what);
}

/* Reads a number of the object, from `least` to `most`. A missing number is `standard`, or an error if `standard` is
 * below `least`. */
static weir_status llm_folder_number(const wl_folder *folder, const json_t *object, const char *key, int64_t least,
                                     int64_t most, int64_t standard, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    *out = standard;
    if (!value && standard >= least)
        return WEIR_OK;
    if (wl_config_whole(value, out) && *out >= least && *out <= most)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: \"%s\" is %s, from %lld to %lld", folder->path, WL_CONFIG, key,
                     value ? "no whole number" : "missing, a whole number", (long long)least, (long long)most);
}

/* A name in the folder, that leads nowhere else. */
static weir_status file_name(const wl_folder *folder, const json_t *object, const char *key, const char *standard,
                             char *out, size_t capacity)
{
    const json_t *value = json_object_get(object, key);
    const char *name = value ? json_string_value(value) : standard;
    size_t length = name ? strlen(name) : 0;
    if (length == 0 || length >= capacity || name[0] == '/' || strstr(name, "..") || strchr(name, '\\'))
        return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: \"%s\" is no name of a file in the folder", folder->path, WL_CONFIG,
                         key);
    memcpy(out, name, length + 1);
    return WEIR_OK;
}

/* ---- genai_config.json ------------------------------------------------------------------------------------------- */

static weir_status refuse_parts(const wl_folder *folder, const json_t *model)
{
    static const char *const parts[] = {"encoder", "vision",  "speech", "embedding",           "draft", "mtp", "joiner",
                                        "vad",     "dflash2", "dspark", "encoder_decoder_init"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (json_object_get(model, parts[i]))
            return weir_fail(WEIR_ERR_UNSUPPORTED,
                             "%s: a '%s' with a part \"%s\", which this engine does not run; it runs decoders alone",
                             folder->path, folder->type, parts[i]);
    return WEIR_OK;
}

static weir_status read_decoder(wl_folder *folder, const json_t *decoder)
{
    weir_status status = WEIR_OK;
    if (!json_is_object(decoder))
        return llm_folder_wrong(folder, "\"decoder\"", "is missing, an object");
    if (json_object_get(decoder, "pipeline"))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: a decoder of several graphs, which this engine does not run",
                         folder->path);
    status = file_name(folder, decoder, "filename", "model.onnx", folder->model, sizeof folder->model);
    if (status == WEIR_OK)
        status = llm_folder_number(folder, decoder, "num_hidden_layers", 1, MOST_LAYERS, 0, &folder->layers);
    if (status == WEIR_OK)
        status = llm_folder_number(folder, decoder, "num_key_value_heads", 1, MOST_HEADS, 0, &folder->kv_heads);
    if (status == WEIR_OK)
        status = llm_folder_number(folder, decoder, "head_size", 1, MOST_HEAD, 0, &folder->head_size);
    /* What is no such number, the rules of config.c refuse. */
    json_int_t threads =
        json_integer_value(json_object_get(json_object_get(decoder, "session_options"), "intra_op_num_threads"));
    folder->threads = threads > 0 && threads <= MOST_THREADS ? threads : 0;
    return status;
}

/* Checks a token's number; `least` is -1 where -1 may stand for no token. */
static weir_status check_token(const wl_folder *folder, const json_t *value, const char *key, int64_t least)
{
    int64_t number;
    if (wl_config_whole(value, &number) && number >= least && number < folder->vocabulary)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: \"%s\" is no token; the vocabulary has 0 to %lld", folder->path,
                     WL_CONFIG, key, (long long)folder->vocabulary - 1);
}

static weir_status llm_folder_check_tokens(const wl_folder *folder, const json_t *model)
{
    static const struct {
        const char *key;
        int64_t least;
    } tokens[] = {{"bos_token_id", -1}, {"eos_token_id", 0}, {"pad_token_id", -1}};
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens && status == WEIR_OK; i++) {
        const char *key = tokens[i].key;
        const json_t *value = json_object_get(model, key);
        for (size_t k = 0; json_is_array(value) && k < json_array_size(value) && status == WEIR_OK; k++)
            status = check_token(folder, json_array_get(value, k), key, tokens[i].least);
        if (value && !json_is_array(value) && status == WEIR_OK)
            status = check_token(folder, value, key, tokens[i].least);
    }
    return status;
}

static weir_status llm_folder_read_model(wl_folder *folder, const json_t *model)
{
    const json_t *type = json_object_get(model, "type");
    weir_status status = WEIR_OK;
    if (!json_is_object(model))
        return llm_folder_wrong(folder, "\"model\"", "is missing, an object");
    if (!json_is_string(type) || strlen(json_string_value(type)) >= sizeof folder->type)
        return llm_folder_wrong(folder, "\"type\"", "is missing, the kind of model");
    snprintf(folder->type, sizeof folder->type, "%s", json_string_value(type));
    status = llm_folder_number(folder, model, "context_length", 1, MOST_CONTEXT, 0, &folder->context);
    if (status == WEIR_OK)
        status = llm_folder_number(folder, model, "vocab_size", 1, MOST_VOCABULARY, 0, &folder->vocabulary);
    if (status == WEIR_OK)
        status = refuse_parts(folder, model);
    if (status == WEIR_OK)
        status = read_decoder(folder, json_object_get(model, "decoder"));
    return status == WEIR_OK ? llm_folder_check_tokens(folder, model) : status;
}

static weir_status read_config(wl_folder *folder)
{
    json_t *root;
    weir_status status = wl_folder_json(folder, WL_CONFIG, MOST_CONFIG, 0, &root);
    if (status != WEIR_OK)
        return status;
    const json_t *search = json_object_get(root, "search");
    status = llm_folder_read_model(folder, json_object_get(root, "model"));
    if (status == WEIR_OK && search && !json_is_object(search))
        status = llm_folder_wrong(folder, "\"search\"", "is no object");
    if (status == WEIR_OK && json_object_get(root, "speculative"))
        status =
            weir_fail(WEIR_ERR_UNSUPPORTED, "%s: speculative decoding, which this engine does not do", folder->path);
    if (status == WEIR_OK)
        status = llm_folder_number(folder, search, "top_k", 0, INT32_MAX, 50, &folder->top_k);
    if (status == WEIR_OK)
        status = wl_config_check(folder, root);
    folder->shares_cache = json_is_true(json_object_get(search, "past_present_share_buffer"));
    const json_t *blocks = json_object_get(json_object_get(root, "engine"), "dynamic_batching");
    folder->paged = blocks != NULL;
    if (status == WEIR_OK)
        status = llm_folder_number(folder, blocks, "block_size", 1, MOST_CONTEXT, 256, &folder->block);
    json_decref(root);
    return status;
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

static bool named(onnx_text text, const char *word)
{
    return text.size == strlen(word) && memcmp(text.text, word, text.size) == 0;
}

/* What the graph remembers of a text goes in by names with "past_" in front. Where there are blocks other inputs are named
 * alike: the lengths of the past, of one extent. */
static bool is_cache(const wl_folder *folder, const onnx_value *value)
{
    bool alike = value->name.size > 5 && memcmp(value->name.text, "past_", 5) == 0;
    bool lengths = value->shaped && (folder->paged ? value->rank != 4 : value->rank < 2);
    return alike && !lengths;
}

/* By the end of a name that begins with "past_", keys or values: of four extents, or of five where both are one input. */
static bool is_keys(onnx_text name)
{
    const char *end = name.text + name.size;
    return memcmp(end - 4, ".key", 4) == 0 || memcmp(end - 6, ".value", 6) == 0;
}

/* An extent that the graph leaves open: `other` in its place. */
static uint64_t extent_or(const onnx_value *value, uint32_t at, int64_t other)
{
    return (uint64_t)(value->shape[at] < 0 ? other : value->shape[at]);
}

static bool add_product(uint64_t *sum, const uint64_t *factors, size_t count)
{
    uint64_t product = 1;
    for (size_t i = 0; i < count; i++)
        if (__builtin_mul_overflow(product, factors[i], &product))
            return false;
    return !__builtin_add_overflow(*sum, product, sum);
}

/* Of keys and values the extents are sequences, heads, tokens, numbers of a head; or blocks, tokens, heads, numbers of a
 * head; both together have two of them in front. Layers may differ: what the graph says counts, and the config for what it
 * leaves open. What has no open extent but that of the sequences is a state, which does not grow. */
static bool add_cache(wl_folder *folder, const onnx_value *value, unsigned bytes)
{
    uint32_t first = value->rank == 5, heads = first + (folder->paged ? 2 : 1),
             tokens = first + (folder->paged ? 1 : 2);
    bool keys = value->rank == 4 || value->rank == 5;
    if (!value->shaped || (keys && value->shape[tokens] < 0)) {
        uint64_t factors[] = {bytes, (uint64_t)folder->kv_heads, (uint64_t)folder->head_size, 1};
        if (value->shaped) {
            factors[1] = extent_or(value, heads, folder->kv_heads);
            factors[2] = extent_or(value, first + 3, folder->head_size);
            factors[3] = first ? extent_or(value, 0, 2) : 1;
        }
        return add_product(&folder->token_bytes, factors, 4);
    }
    uint64_t factors[ONNX_MAX_RANK + 1] = {bytes};
    for (uint32_t i = 0; i < value->rank; i++)
        factors[i + 1] = extent_or(value, i, 1);
    return add_product(&folder->state_bytes, factors, value->rank + 1);
}

static weir_status llm_folder_check_cache(wl_folder *folder, const onnx_value *value)
{
    unsigned bits = onnx_type_bits(value->type);
    bool fits = value->kind == ONNX_VALUE_TENSOR && bits >= 8 && value->rank <= ONNX_MAX_RANK;
    if (fits && value->shaped && is_keys(value->name))
        fits = value->rank == 4 || value->rank == 5;
    if (!fits)
        return weir_fail(WEIR_ERR_CORRUPT,
                         "%s/%s: the input \"%.*s\" holds no keys and values: a tensor of numbers with four extents",
                         folder->path, folder->model, ONNX_SHOW(value->name));
    return add_cache(folder, value, bits / 8)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_CORRUPT, "%s/%s: the input \"%.*s\" is beyond what can be addressed", folder->path,
                           folder->model, ONNX_SHOW(value->name));
}

static weir_status check_logits(const wl_folder *folder, const onnx_graph *graph)
{
    for (size_t i = 0; i < graph->output_count; i++) {
        const onnx_value *value = &graph->outputs[i];
        int64_t width = value->rank > 0 && value->rank <= ONNX_MAX_RANK ? value->shape[value->rank - 1] : -1;
        if (!named(value->name, "logits"))
            continue;
        if (width < 0 || width == folder->vocabulary)
            return WEIR_OK;
        return weir_fail(WEIR_ERR_CORRUPT,
                         "%s/%s: the output \"logits\" has %lld numbers, and the vocabulary %lld tokens", folder->path,
                         folder->model, (long long)width, (long long)folder->vocabulary);
    }
    return WEIR_OK; /* by another name: GenAI looks for it */
}

static void note_weight(wl_folder *folder, const onnx_tensor *weight)
{
    int64_t rows = weight->rank == 2 ? weight->shape[0] : 0;
    folder->weight_bytes += weight->bytes;
    if (weight->rank < 2 || rows == folder->vocabulary || rows == folder->context)
        folder->table_bytes += weight->bytes;
}

static weir_status llm_folder_read_graph(wl_folder *folder, onnx_file *file)
{
    onnx_graph graph;
    weir_status status = onnx_graph_read(file, &graph);
    if (status != WEIR_OK)
        return status;
    folder->nodes = graph.nodes;
    for (size_t i = 0; i < graph.weight_count; i++)
        note_weight(folder, &graph.weights[i]);
    for (size_t i = 0; i < graph.input_count && status == WEIR_OK; i++)
        if (is_cache(folder, &graph.inputs[i]))
            status = llm_folder_check_cache(folder, &graph.inputs[i]);
    if (status == WEIR_OK)
        status = check_logits(folder, &graph);
    onnx_graph_free(&graph);
    return status;
}

static bool is_flat(const wl_folder *folder, const onnx_file *file)
{
    bool flat = !strchr(folder->model, '/');
    for (const onnx_side_file *side = file->sides; side; side = side->next)
        flat = flat && !strchr(side->location, '/');
    return flat;
}

static weir_status check_graph(wl_folder *folder)
{
    char path[1024];
    onnx_file file;
    snprintf(path, sizeof path, "%s/%s", folder->path, folder->model);
    weir_status status = onnx_file_open(path, &file);
    if (status != WEIR_OK)
        return status;
    status = onnx_check_once(&file);
    if (status == WEIR_OK)
        status = llm_folder_read_graph(folder, &file);
    folder->flat = is_flat(folder, &file);
    onnx_file_close(&file);
    return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static weir_status llm_folder_note_path(const char *path, wl_folder *out)
{
    struct stat about;
    size_t length = path ? strlen(path) : 0;
    if (length == 0 || length >= sizeof out->path)
        return weir_fail(WEIR_ERR_INVALID, "the engine llm needs the path of a folder, of less than %zu bytes",
                         sizeof out->path);
    memcpy(out->path, path, length + 1);
    if (stat(path, &about) != 0)
        return weir_fail(WEIR_ERR_NOT_FOUND, "%s is not there", path);
    if (!S_ISDIR(about.st_mode)) {
        char *slash = strrchr(out->path, '/');
        if (slash)
            *slash = '\0';
        else
            memcpy(out->path, ".", 2);
    }
    return WEIR_OK;
}

weir_status wl_folder_read(const char *path, wl_folder *out)
{
    *out = (wl_folder){0};
    wl_files files;
    weir_status status = llm_folder_note_path(path, out);
    if (status != WEIR_OK)
        return status;
    wl_files_look(out->path, &files);
    if (wl_folder_recall(&files, out))
        return WEIR_OK;
    status = read_config(out);
    if (status == WEIR_OK)
        status = wl_tokenizer_check(out);
    if (status == WEIR_OK)
        status = check_graph(out);
    if (status == WEIR_OK)
        wl_folder_keep(&files, out);
    return status;
}

uint64_t wl_folder_cache(const wl_folder *folder, uint64_t tokens)
{
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(folder->token_bytes, tokens, &bytes) ||
        __builtin_add_overflow(bytes, folder->state_bytes, &bytes))
        return UINT64_MAX;
    return bytes;
}
