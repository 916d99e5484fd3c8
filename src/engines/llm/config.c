/* config.c: what genai_config.json may say. GenAI takes most of it as it is: a name becomes the format of a printf, a length a
 * divisor, a word the path of a file or of a library. So every word has its rule here, and what has none is refused. */
#include "folder.h"

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
    WORD,    /* a text of at most `most` bytes */
    NAME,    /* of an input or output: without a '%' */
    PATTERN, /* of a name for each layer: with one %d, and no other '%' */
    TOKENS,  /* a whole number, or a list of such */
    HERE,    /* a folder: this one */
    NEVER    /* `why` */
} kind;

typedef struct rule {
    const char *place; /* a '*' at its end: any name */
    kind kind;
    int64_t least, most;
    const char *why;
} rule;

enum { MANY = 1 << 24, LENGTH = 256, THREADS = 512 };

/* The first one that fits is the rule. */
static const rule rules[] = {
    {"", OBJECT, 0, 0, NULL},
    {"model", OBJECT, 0, 0, NULL},
    {"model.type", WORD, 0, LENGTH, NULL},
    {"model.tokenizer_dir", HERE, 0, 0, NULL},
    {"model.eos_token_id", TOKENS, 0, MANY, NULL},
    {"model.eos_token_id[]", WHOLE, 0, MANY, NULL},
    {"model.vocab_size", WHOLE, 1, MANY, NULL},
    {"model.context_length", WHOLE, 1, MANY, NULL},
    {"model.decoder", OBJECT, 0, 0, NULL},
    {"model.decoder.filename", WORD, 0, LENGTH, NULL},
    {"model.decoder.layer_types", LIST, 0, 0, NULL},
    {"model.decoder.layer_types[]", WORD, 0, LENGTH, NULL},
    {"model.decoder.shared_initializers", NEVER, 0, 0, "weights in files that it names"},
    {"model.decoder.run_options", NEVER, 0, 0, "options of runs, such as a file to be written"},
    {"model.decoder.inputs", OBJECT, 0, 0, NULL},
    {"model.decoder.inputs.past_names", PATTERN, 0, 0, NULL},
    {"model.decoder.inputs.past_key_names", PATTERN, 0, 0, NULL},
    {"model.decoder.inputs.past_value_names", PATTERN, 0, 0, NULL},
    {"model.decoder.inputs.past_conv_names", PATTERN, 0, 0, NULL},
    {"model.decoder.inputs.cross_past_key_names", PATTERN, 0, 0, NULL},
    {"model.decoder.inputs.cross_past_value_names", PATTERN, 0, 0, NULL},
    {"model.decoder.inputs.*", NAME, 0, 0, NULL},
    {"model.decoder.outputs", OBJECT, 0, 0, NULL},
    {"model.decoder.outputs.present_names", PATTERN, 0, 0, NULL},
    {"model.decoder.outputs.present_key_names", PATTERN, 0, 0, NULL},
    {"model.decoder.outputs.present_value_names", PATTERN, 0, 0, NULL},
    {"model.decoder.outputs.present_conv_names", PATTERN, 0, 0, NULL},
    {"model.decoder.outputs.output_cross_qk_names", PATTERN, 0, 0, NULL},
    {"model.decoder.outputs.*", NAME, 0, 0, NULL},
    {"model.decoder.sliding_window", OBJECT, 0, 0, NULL},
    {"model.decoder.sliding_window.window_size", WHOLE, 2, MANY, NULL},
    {"model.decoder.sliding_window.cache_slack", WHOLE, 0, MANY, NULL},
    {"model.decoder.sliding_window.pad_value", WHOLE, 0, 255, NULL},
    {"model.decoder.sliding_window.alignment", WORD, 0, LENGTH, NULL},
    {"model.decoder.sliding_window.layers", LIST, 0, 0, NULL},
    {"model.decoder.sliding_window.layers[]", WHOLE, 0, 4096, NULL},
    {"model.decoder.sliding_window.*", SWITCH, 0, 0, NULL},
    {"model.decoder.session_options", OBJECT, 0, 0, NULL},
    {"model.decoder.session_options.custom_ops_library", NEVER, 0, 0, "a library to be loaded"},
    {"model.decoder.session_options.enable_profiling", NEVER, 0, 0, "a file to be written"},
    {"model.decoder.session_options.log_id", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.graph_optimization_level", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.enable_cpu_mem_arena", SWITCH, 0, 0, NULL},
    {"model.decoder.session_options.enable_mem_pattern", SWITCH, 0, 0, NULL},
    {"model.decoder.session_options.intra_op_num_threads", WHOLE, 0, THREADS, NULL},
    {"model.decoder.session_options.inter_op_num_threads", WHOLE, 0, THREADS, NULL},
    {"model.decoder.session_options.log_severity_level", WHOLE, 0, 4, NULL},
    {"model.decoder.session_options.log_verbosity_level", WHOLE, 0, 100, NULL},
    {"model.decoder.session_options.session.disable_prepacking", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.session.dynamic_block_base", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.session.inter_op.allow_spinning", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.session.intra_op.allow_spinning", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.session.set_denormal_as_zero", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.session.use_device_allocator_for_initializers", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.provider_options", LIST, 0, 0, NULL},
    {"model.decoder.session_options.provider_options[]", OBJECT, 0, 0, NULL},
    {"model.decoder.session_options.provider_options[].cuda", OBJECT, 0, 0, NULL},
    /* Others would choose a device, or hand over addresses. */
    {"model.decoder.session_options.provider_options[].cuda.enable_cuda_graph", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.provider_options[].cuda.enable_skip_layer_norm_strict_mode", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.provider_options[].cuda.prefer_nhwc", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.provider_options[].cuda.sdpa_kernel", WORD, 0, LENGTH, NULL},
    {"model.decoder.session_options.provider_options[].cuda.use_tf32", WORD, 0, LENGTH, NULL},
    {"model.decoder.*", WHOLE, 0, MANY, NULL},
    {"model.pad_token_id", WHOLE, 0, MANY, NULL},
    {"model.bos_token_id", WHOLE, 0, MANY, NULL},
    {"model.sep_token_id", WHOLE, INT32_MIN, INT32_MAX, NULL},
    {"model.decoder_start_token_id", WHOLE, INT32_MIN, INT32_MAX, NULL},
    {"model.image_token_id", WHOLE, INT32_MIN, INT32_MAX, NULL},
    {"model.audio_token_id", WHOLE, INT32_MIN, INT32_MAX, NULL},
    {"model.video_token_id", WHOLE, INT32_MIN, INT32_MAX, NULL},
    {"model.vision_start_token_id", WHOLE, INT32_MIN, INT32_MAX, NULL},
    {"model.bot_token_id", WHOLE, INT32_MIN, INT32_MAX, NULL},
    {"model.eot_token_id", WHOLE, INT32_MIN, INT32_MAX, NULL},
    {"model.bor_token_id", WHOLE, INT32_MIN, INT32_MAX, NULL},
    {"model.eor_token_id", WHOLE, INT32_MIN, INT32_MAX, NULL},
    {"search", OBJECT, 0, 0, NULL},
    {"search.do_sample", SWITCH, 0, 0, NULL},
    {"search.early_stopping", SWITCH, 0, 0, NULL},
    {"search.past_present_share_buffer", SWITCH, 0, 0, NULL},
    {"search.top_k", WHOLE, 0, INT32_MAX, NULL},
    {"search.random_seed", WHOLE, -1, INT32_MAX, NULL},
    {"search.chunk_size", WHOLE, 0, MANY, NULL},
    {"search.min_length", WHOLE, 0, INT32_MAX, NULL},
    {"search.max_length", WHOLE, 0, INT32_MAX, NULL},
    {"search.batch_size", WHOLE, 1, INT32_MAX, NULL},
    {"search.num_beams", WHOLE, 1, INT32_MAX, NULL},
    {"search.num_return_sequences", WHOLE, 1, INT32_MAX, NULL},
    {"search.no_repeat_ngram_size", WHOLE, 0, INT32_MAX, NULL},
    {"search.*", NUMBER, -1000000, 1000000, NULL},
    {"engine", OBJECT, 0, 0, NULL},
    {"engine.static_batching", OBJECT, 0, 0, NULL},
    {"engine.static_batching.max_batch_size", WHOLE, 1, 4096, NULL},
    {"engine.dynamic_batching", OBJECT, 0, 0, NULL},
    {"engine.dynamic_batching.block_size", WHOLE, 1, 65536, NULL},
    {"engine.dynamic_batching.num_blocks", WHOLE, 1, MANY, NULL},
    {"engine.dynamic_batching.max_batch_size", WHOLE, 1, 4096, NULL},
    {"engine.dynamic_batching.max_scheduled_tokens", WHOLE, 1, MANY, NULL},
    {"engine.dynamic_batching.gpu_utilization_factor", NUMBER, 0, 1, NULL},
};

static bool fits(const char *pattern, const char *place)
{
    size_t length = strlen(pattern);
    if (length == 0 || pattern[length - 1] != '*')
        return strcmp(pattern, place) == 0;
    return strncmp(pattern, place, length - 1) == 0 && !strpbrk(place + length - 1, ".[");
}

static const rule *rule_of(const char *place)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (fits(rules[i].place, place))
            return &rules[i];
    return NULL;
}

/* One %d, and no other '%'. */
static bool is_pattern(const char *text)
{
    const char *at = strchr(text, '%');
    return at && at[1] == 'd' && !strchr(at + 1, '%');
}

static const char *name_of(kind what)
{
    static const char *const names[] = {"object",
                                        "list",
                                        "whole number",
                                        "number",
                                        "true or false",
                                        "short text",
                                        "name without a '%'",
                                        "name with one %d",
                                        "token or list of tokens",
                                        "empty text: the tokenizer lies beside it",
                                        ""};
    return names[what];
}

static bool is_whole(const rule *it, const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= it->least && json_integer_value(value) <= it->most;
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
        return is_whole(it, value);
    case NUMBER:
        return json_is_number(value) && isfinite(number) && number >= (double)it->least && number <= (double)it->most;
    case SWITCH:
        return json_is_boolean(value);
    case WORD:
        return text && length <= (size_t)it->most;
    case NAME:
        return text && length <= LENGTH && !strchr(text, '%');
    case PATTERN:
        return text && length <= LENGTH && is_pattern(text);
    case TOKENS:
        return json_is_array(value) || is_whole(it, value);
    case HERE:
        return text && (text[0] == 0 || strcmp(text, ".") == 0);
    case NEVER:
        break;
    }
    return false;
}

static weir_status check_here(const wl_folder *folder, const char *place, const json_t *value)
{
    const rule *it = rule_of(place);
    if (!it)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s/%s: this engine does not know \"%s\"", folder->path, WL_CONFIG,
                         place);
    if (it->kind == NEVER)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s/%s: \"%s\" names %s, which this engine does not do", folder->path,
                         WL_CONFIG, place, it->why);
    if (is_right(it, value))
        return WEIR_OK;
    if (it->kind == WHOLE)
        return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: \"%s\" is no whole number from %lld to %lld", folder->path,
                         WL_CONFIG, place, (long long)it->least, (long long)it->most);
    return weir_fail(WEIR_ERR_CORRUPT, "%s/%s: \"%s\" is no %s", folder->path, WL_CONFIG, place, name_of(it->kind));
}

/* At the top GenAI passes over what is no object, and weir chooses the providers: cuda, by any of its names, or none. */
static bool has_no_rule(const char *place, const char *key, const json_t *member)
{
    if (!place[0])
        return !json_is_object(member) && !json_is_array(member);
    return strcmp(place, "model.decoder.session_options.provider_options[]") == 0 && strncasecmp(key, "cuda", 4) != 0;
}

static weir_status check(const wl_folder *folder, const char *place, const json_t *value);

static weir_status check_member(const wl_folder *folder, const char *place, const char *key, const json_t *member)
{
    char inner[LENGTH * 2];
    bool is_cuda = strcmp(place, "model.decoder.session_options.provider_options[]") == 0;
    if (has_no_rule(place, key, member))
        return WEIR_OK;
    snprintf(inner, sizeof inner, "%s%s%.*s", place, place[0] ? "." : "", LENGTH, is_cuda ? "cuda" : key);
    return check(folder, inner, member);
}

/* As deep as there are rules. */
static weir_status check(const wl_folder *folder, const char *place, const json_t *value)
{
    char items[LENGTH * 2 + 8];
    const char *key;
    json_t *member;
    size_t index;
    weir_status status = check_here(folder, place, value);
    json_object_foreach((json_t *)value, key, member)
    {
        status = status == WEIR_OK ? check_member(folder, place, key, member) : status;
    }
    snprintf(items, sizeof items, "%s[]", place);
    json_array_foreach(value, index, member)
    {
        status = status == WEIR_OK ? check(folder, items, member) : status;
    }
    return status;
}

weir_status wl_config_check(const wl_folder *folder, const json_t *root)
{
    return check(folder, "", root);
}
