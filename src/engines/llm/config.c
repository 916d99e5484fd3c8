/* config.c: what genai_config.json may say. GenAI takes most of it as it is: a name becomes the format of a printf, a
 * length a divisor, a word the path of a file or of a library. So this file has a rule for each word that weir knows. A
 * word without a rule, as of a later GenAI, is passed on with a warning, unless the word could be such a format, length
 * or path. */
#include "wl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef enum kind {
    OBJECT,
    LIST,    /* its items are at "NAME[]" */
    WHOLE,   /* a whole number, from `least` to `most` */
    NUMBER,  /* any, likewise */
    SWITCH,  /* true or false */
    WORD,    /* a text of at most LENGTH bytes */
    PATTERN, /* of a name for each layer: with one %d, and no other '%' */
    NAME,    /* of an input or output: without a '%', but for one %d, which one of a layer has */
    TOKENS,  /* a whole number, or a list of such */
    HERE,    /* a folder: this one */
    NEVER    /* `why` */
} kind;

typedef struct rule {
    const char *path;  /* with the dot behind it */
    const char *words; /* names under that path, each between two blanks; "*": any name */
    kind kind;
    int64_t least, most;
    const char *why;
} rule;

enum { MANY = 1 << 24, LENGTH = 256, THREADS = 512 };

/* The first that fits is the rule. */
static const rule rules[] = {
    {"", "  model search engine ", OBJECT, 0, 0, NULL}, /* between its first blanks: no name, as of the whole */
    {"model.", " type ", WORD, 0, 0, NULL},
    {"model.", " tokenizer_dir ", HERE, 0, 0, NULL},
    {"model.", " eos_token_id ", TOKENS, 0, MANY, NULL},
    {"model.", " eos_token_id[] ", WHOLE, 0, MANY, NULL},
    {"model.", " vocab_size context_length ", WHOLE, 1, MANY, NULL},
    {"model.", " decoder ", OBJECT, 0, 0, NULL},
    {"model.", " pad_token_id bos_token_id ", WHOLE, -1, MANY, NULL},
    {"model.",
     " sep_token_id decoder_start_token_id image_token_id audio_token_id video_token_id vision_start_token_id "
     "bot_token_id eot_token_id bor_token_id eor_token_id ",
     WHOLE, INT32_MIN, INT32_MAX, NULL},
    {"model.decoder.", " filename layer_types[] ", WORD, 0, 0, NULL},
    {"model.decoder.", " layer_types ", LIST, 0, 0, NULL},
    {"model.decoder.", " shared_initializers ", NEVER, 0, 0, "weights in files that it names"},
    {"model.decoder.", " run_options ", NEVER, 0, 0, "options of runs, such as a file to be written"},
    {"model.decoder.", " inputs outputs sliding_window session_options ", OBJECT, 0, 0, NULL},
    {"model.decoder.",
     " hidden_size head_size num_attention_heads num_hidden_layers num_key_value_heads conv_cache_size "
     "state_update_capacity ",
     WHOLE, 0, MANY, NULL},
    {"model.decoder.inputs.",
     " past_names past_key_names past_value_names past_key_scale_names past_value_scale_names past_conv_names "
     "past_recurrent_names past_indexer_names past_ple_token_names past_ple_conv_names cross_past_key_names "
     "cross_past_value_names ",
     PATTERN, 0, 0, NULL},
    {"model.decoder.inputs.", "*", NAME, 0, 0, NULL},
    {"model.decoder.outputs.",
     " present_names present_key_names present_value_names present_key_scale_names present_value_scale_names "
     "present_conv_names present_recurrent_names present_indexer_names present_ple_token_names present_ple_conv_names "
     "state_update_conv_value_names state_update_recurrent_capsule_names output_cross_qk_names ",
     PATTERN, 0, 0, NULL},
    {"model.decoder.outputs.", "*", NAME, 0, 0, NULL},
    {"model.decoder.sliding_window.", " window_size ", WHOLE, 2, MANY, NULL},
    {"model.decoder.sliding_window.", " cache_slack ", WHOLE, 0, MANY, NULL},
    {"model.decoder.sliding_window.", " pad_value ", WHOLE, 0, 255, NULL},
    {"model.decoder.sliding_window.", " alignment ", WORD, 0, 0, NULL},
    {"model.decoder.sliding_window.", " layers ", LIST, 0, 0, NULL},
    {"model.decoder.sliding_window.", " layers[] ", WHOLE, 0, 4096, NULL},
    {"model.decoder.sliding_window.", " slide_key_value_cache slide_inputs ", SWITCH, 0, 0, NULL},
    {"model.decoder.session_options.", " custom_ops_library ", NEVER, 0, 0, "a library to be loaded"},
    {"model.decoder.session_options.", " enable_profiling ", NEVER, 0, 0, "a file to be written"},
    {"model.decoder.session_options.",
     " log_id graph_optimization_level session.disable_prepacking session.dynamic_block_base "
     "session.inter_op.allow_spinning session.intra_op.allow_spinning session.set_denormal_as_zero "
     "session.use_device_allocator_for_initializers ",
     WORD, 0, 0, NULL},
    {"model.decoder.session_options.", " enable_cpu_mem_arena enable_mem_pattern ", SWITCH, 0, 0, NULL},
    {"model.decoder.session_options.", " intra_op_num_threads inter_op_num_threads ", WHOLE, 0, THREADS, NULL},
    {"model.decoder.session_options.", " log_severity_level ", WHOLE, 0, 4, NULL},
    {"model.decoder.session_options.", " log_verbosity_level ", WHOLE, 0, 100, NULL},
    {"model.decoder.session_options.", " provider_options ", LIST, 0, 0, NULL},
    {"model.decoder.session_options.", " provider_options[] ", OBJECT, 0, 0, NULL},
    {"model.decoder.session_options.provider_options[].", " cuda ", OBJECT, 0, 0, NULL},
    {"model.decoder.session_options.provider_options[].cuda.",
     " enable_cuda_graph enable_skip_layer_norm_strict_mode prefer_nhwc sdpa_kernel use_tf32 ", WORD, 0, 0, NULL},
    {"search.", " do_sample early_stopping past_present_share_buffer ", SWITCH, 0, 0, NULL},
    {"search.", " top_k min_length max_length no_repeat_ngram_size ", WHOLE, 0, INT32_MAX, NULL},
    {"search.", " random_seed ", WHOLE, -1, INT32_MAX, NULL},
    {"search.", " chunk_size ", WHOLE, 0, MANY, NULL},
    {"search.", " batch_size num_beams num_return_sequences ", WHOLE, 1, INT32_MAX, NULL},
    {"search.", " top_p temperature repetition_penalty length_penalty diversity_penalty ", NUMBER, -1000000, 1000000,
     NULL},
    {"engine.", " static_batching dynamic_batching ", OBJECT, 0, 0, NULL},
    {"engine.static_batching.", " max_batch_size ", WHOLE, 1, 4096, NULL},
    {"engine.dynamic_batching.", " block_size ", WHOLE, 1, 65536, NULL},
    {"engine.dynamic_batching.", " num_blocks max_scheduled_tokens ", WHOLE, 1, MANY, NULL},
    {"engine.dynamic_batching.", " max_batch_size ", WHOLE, 1, 4096, NULL},
    {"engine.dynamic_batching.", " gpu_utilization_factor ", NUMBER, 0, 1, NULL},
};

static bool llm_config_fits(const rule *it, const char *path)
{
    char wanted[LENGTH * 2 + 16];
    size_t length = strlen(it->path);
    const char *word = path + length;
    if (strncmp(it->path, path, length) != 0)
        return false;
    snprintf(wanted, sizeof wanted, " %s ", word);
    return it->words[0] == '*' ? !strpbrk(word, ".[") : !strchr(word, ' ') && strstr(it->words, wanted);
}

static const rule *llm_config_rule_of(const char *path)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (llm_config_fits(&rules[i], path))
            return &rules[i];
    return NULL;
}

/* True: the text has a single %d, and no other '%'. */
static bool is_pattern(const char *text)
{
    const char *at = strchr(text, '%');
    return at && at[1] == 'd' && !strchr(at + 1, '%');
}

static const char *llm_config_name_of(kind what)
{
    static const char *const names[] = {"object",
                                        "list",
                                        "whole number",
                                        "number",
                                        "true or false",
                                        "short text",
                                        "name with one %d",
                                        "name without a '%', but for one %d",
                                        "token or list of tokens",
                                        "empty text: the tokenizer lies beside it",
                                        ""};
    return names[what];
}

bool wl_config_whole(const json_t *value, int64_t *out)
{
    double number = json_real_value(value);
    if (json_is_integer(value))
        *out = json_integer_value(value);
    else if (json_is_real(value) && number == trunc(number) && fabs(number) <= 1e15)
        *out = (int64_t)number;
    else
        return false;
    return true;
}

static bool llm_config_is_whole(const rule *it, const json_t *value)
{
    int64_t number;
    return wl_config_whole(value, &number) && number >= it->least && number <= it->most;
}

static bool is_right(const rule *it, const json_t *value)
{
    const char *text = json_string_value(value);
    double number = json_number_value(value);
    size_t length = json_string_length(value);
    switch (it->kind) {
    case OBJECT:
        return json_is_object(value);
    case LIST:
        return json_is_array(value);
    case WHOLE:
        return llm_config_is_whole(it, value);
    case NUMBER:
        return json_is_number(value) && isfinite(number) && number >= (double)it->least && number <= (double)it->most;
    case SWITCH:
        return json_is_boolean(value);
    case WORD:
        return text && length <= LENGTH;
    case PATTERN:
        return text && length <= LENGTH && is_pattern(text);
    case NAME:
        return text && length <= LENGTH && (!strchr(text, '%') || is_pattern(text));
    case TOKENS:
        return json_is_array(value) || llm_config_is_whole(it, value);
    case HERE:
        return text && (text[0] == 0 || strcmp(text, ".") == 0);
    case NEVER:
        break;
    }
    return false;
}

/* ---- words without a rule ---------------------------------------------------------------------------------------- */

static bool has_one(const char *text, const char *const *words)
{
    while (*words && !strcasestr(text, *words))
        words++;
    return *words != NULL;
}

/* By their names: entries of a session that name files, take what the file is from the folder, or memory out of weir's
 * hands; and options of cuda that choose a device, or hand over addresses. */
static bool reaches_out(const char *path)
{
    static const char *const of_session[] = {"address", "allocator",    "ep.context",  "file", "folder",
                                             "library", "model_format", "model_bytes", "path", NULL};
    static const char *const of_cuda[] = {"alloc", "arena", "device", "empty_cache", "free", "mem", "stream", NULL};
    const char *entry = strstr(path, "session_options."), *option = strstr(path, "[].cuda.");
    return option ? has_one(option + strlen("[].cuda."), of_cuda) : entry && has_one(entry, of_session);
}

/* A text that can be no format and no place outside of the folder. */
static bool is_harmless(const char *text)
{
    bool formats = strchr(text, '%') && !is_pattern(text);
    return strlen(text) <= LENGTH && !formats && text[0] != '/' && !strstr(text, "..") && !strchr(text, '\\');
}

static weir_status llm_config_pass_on(const wl_folder *folder, const char *path, const json_t *value)
{
    const char *text = json_string_value(value);
    double number = json_number_value(value);
    if (strlen(path) > LENGTH)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s/%s: this engine does not know \"%.80s…\", which is nested too deeply", folder->path,
                         WL_CONFIG, path);
    if (reaches_out(path))
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s/%s: this engine does not know \"%s\", which may reach out of the model", folder->path,
                         WL_CONFIG, path);
    if ((text && !is_harmless(text)) || (json_is_number(value) && !(fabs(number) <= INT32_MAX)))
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s/%s: this engine does not know \"%s\", and does not pass on what it is: a text of up to %d "
                         "bytes that is no path and no format, or a number of 32 bits, could be",
                         folder->path, WL_CONFIG, path, LENGTH);
    if (!json_is_object(value) && !json_is_array(value))
        weir_log(WEIR_LOG_WARNING, "%s/%s: \"%s\" is not known here, and passed on to ONNX Runtime GenAI", folder->path,
                 WL_CONFIG, path);
    return WEIR_OK;
}

/* ---- one word ---------------------------------------------------------------------------------------------------- */

static weir_status check_here(const wl_folder *folder, const char *path, const json_t *value)
{
    const rule *it = llm_config_rule_of(path);
    if (!it)
        return llm_config_pass_on(folder, path, value);
    if (it->kind == NEVER)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s/%s: \"%s\" names %s, which this engine does not do", folder->path,
                         WL_CONFIG, path, it->why);
    if (is_right(it, value))
        return WEIR_OK;
    if (it->kind == WHOLE)
        return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: \"%s\" is no whole number from %lld to %lld", folder->path,
                         WL_CONFIG, path, (long long)it->least, (long long)it->most);
    return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: \"%s\" is no %s", folder->path, WL_CONFIG, path,
                     llm_config_name_of(it->kind));
}

/* At the top GenAI passes over what is no object, and weir chooses the providers: cuda, by any of its names, or none. */
static bool has_no_rule(const char *path, const char *key, const json_t *member)
{
    if (!path[0])
        return !json_is_object(member) && !json_is_array(member);
    return strcmp(path, "model.decoder.session_options.provider_options[]") == 0 && strncasecmp(key, "cuda", 4) != 0;
}

static weir_status llm_config_check(const wl_folder *folder, const char *path, const json_t *value);

static weir_status check_member(const wl_folder *folder, const char *path, const char *key, const json_t *member)
{
    char inner[LENGTH * 2];
    bool is_cuda = strcmp(path, "model.decoder.session_options.provider_options[]") == 0;
    if (has_no_rule(path, key, member))
        return WEIR_OK;
    snprintf(inner, sizeof inner, "%s%s%.*s", path, path[0] ? "." : "", LENGTH, is_cuda ? "cuda" : key);
    return llm_config_check(folder, inner, member);
}

/* As deep as there are rules, or places have names of LENGTH. */
static weir_status llm_config_check(const wl_folder *folder, const char *path, const json_t *value)
{
    char items[LENGTH * 2 + 8];
    const char *key;
    json_t *member;
    size_t index;
    weir_status status = check_here(folder, path, value);
    json_object_foreach((json_t *)value, key, member)
    {
        status = status == WEIR_OK ? check_member(folder, path, key, member) : status;
    }
    snprintf(items, sizeof items, "%s[]", path);
    json_array_foreach(value, index, member)
    {
        status = status == WEIR_OK ? llm_config_check(folder, items, member) : status;
    }
    return status;
}

/* ---- what has to go together ------------------------------------------------------------------------------------- */

static weir_status apart(const wl_folder *folder, const char *what, int64_t one, const char *against, int64_t other)
{
    return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: \"model.decoder.%s\" is %lld, which does not go with %s of %lld",
                     folder->path, WL_CONFIG, what, (long long)one, against, (long long)other);
}

static bool slides(const json_t *window, const char *key)
{
    const json_t *said = json_object_get(window, key);
    return !said || json_is_true(said); /* GenAI's default */
}

/* GenAI takes the window from the context for lengths, and where keys and values slide once more: they must not come out
 * below 0. */
static weir_status check_window(const wl_folder *folder, const json_t *window)
{
    int64_t size = 0, slack = 0, layer;
    size_t index;
    json_t *item;
    bool keys = slides(window, "slide_key_value_cache"), moves = keys || slides(window, "slide_inputs");
    bool given = wl_config_whole(json_object_get(window, "window_size"), &size);
    (void)wl_config_whole(json_object_get(window, "cache_slack"), &slack);
    if (!given && moves)
        return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: \"model.decoder.sliding_window\" slides and has no \"window_size\"",
                         folder->path, WL_CONFIG);
    if (size > folder->context || size + slack > folder->context)
        return apart(folder,
                     slack ? "sliding_window.window_size\" with its \"cache_slack" : "sliding_window.window_size",
                     size + slack, "a context", folder->context);
    if (keys && 2 * size > folder->context)
        return apart(folder, "sliding_window.window_size", size, "keys and values that slide in a context",
                     folder->context);
    json_array_foreach(json_object_get(window, "layers"), index, item)
    {
        if (wl_config_whole(item, &layer) && layer >= folder->layers)
            return apart(folder, "sliding_window.layers[]", layer, "a number of layers", folder->layers);
    }
    return WEIR_OK;
}

static weir_status check_together(const wl_folder *folder, const json_t *root)
{
    const json_t *decoder = json_object_get(json_object_get(root, "model"), "decoder");
    const json_t *window = json_object_get(decoder, "sliding_window"), *types = json_object_get(decoder, "layer_types");
    if (types && (int64_t)json_array_size(types) != folder->layers)
        return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: \"model.decoder.layer_types\" has %zu of the %lld layers",
                         folder->path, WL_CONFIG, json_array_size(types), (long long)folder->layers);
    return window ? check_window(folder, window) : WEIR_OK;
}

weir_status wl_config_check(const wl_folder *folder, const json_t *root)
{
    weir_status status = llm_config_check(folder, "", root);
    return status == WEIR_OK ? check_together(folder, root) : status;
}
