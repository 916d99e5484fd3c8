/* hyper.c: a model's hyper-parameters out of the keys and tensors of its file.
 *
 * Architectures differ in what their layers remember of a sequence: a table has the rules by name. An architecture
 * outside the table keeps keys and values of every token in every layer, as most architectures do. */
#include "gguf/file/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_SUFFIX = 64, MOST_NUMBER = 1 << 24 };

/* Which layers have a recurrent state. */
enum recurrence {
    NOWHERE = 0,
    EVERYWHERE,        /* and no layer has cells */
    BOTH,              /* every layer has a state and cells */
    NO_KV_HEADS,       /* layers without heads for keys and values */
    NO_HEADS_NO_WIDTH, /* as NO_KV_HEADS, but layers with a feed-forward part remember nothing */
    BY_INTERVAL        /* all but every nth, or as a key lists them */
};

/* Which layers see a window. */
enum windows {
    ALL_SEE = 0,
    IF_SAID,    /* if the key `attention.sliding_window` says more than 0 */
    UNLESS_ZERO /* without the key, too */
};

/* Architectures with the same rules. */
typedef struct family {
    const char *names; /* with a blank on both sides of each */
    enum recurrence recurrence;
    enum windows windows;
    uint32_t pattern;  /* of so many layers one sees all, the last or the first; 0: those that a key lists */
    bool dense_first;  /* the first */
    uint32_t window;   /* without the key */
    bool fixed_window; /* whatever the key says */
    bool forgets;      /* it has no cache */
    bool strange;      /* its cache follows rules that are not written here */
} family;

static const family families[] = {
    {.names = " mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7 ", .recurrence = EVERYWHERE},
    {.names = " falcon-h1 ", .recurrence = BOTH},
    {.names = " jamba plamo2 granitehybrid lfm2moe kimi-linear bailingmoe3 ", .recurrence = NO_KV_HEADS},
    {.names = " lfm2 ", .recurrence = NO_KV_HEADS, .windows = IF_SAID},
    {.names = " nemotron_h nemotron_h_moe ", .recurrence = NO_HEADS_NO_WIDTH},
    {.names = " qwen3next qwen35 qwen35moe minimax-01 ", .recurrence = BY_INTERVAL},
    {.names = " gemma4 granite_swa maple mimo2 step35 spark2_5 ", .windows = IF_SAID},
    {.names = " gpt-oss ", .windows = IF_SAID, .pattern = 2},
    {.names = " afmoe cohere2 mellum muse-glimmer olmo2 ", .windows = IF_SAID, .pattern = 4},
    {.names = " cohere2moe laguna ", .windows = IF_SAID, .pattern = 4, .dense_first = true},
    {.names = " gemma3n ", .windows = IF_SAID, .pattern = 5},
    {.names = " gemma3 ", .windows = IF_SAID, .pattern = 6},
    {.names = " plamo3 ", .windows = IF_SAID, .pattern = 8},
    {.names = " smallthinker ",
     .windows = IF_SAID,
     .pattern = 4,
     .dense_first = true,
     .window = 4096,
     .fixed_window = true},
    {.names = " exaone-moe ", .windows = UNLESS_ZERO, .pattern = 4, .window = 128},
    {.names = " exaone4 ", .windows = UNLESS_ZERO, .pattern = 4, .window = 4096},
    {.names = " gemma2 ", .windows = UNLESS_ZERO, .pattern = 2, .window = 4096},
    {.names = " llama4 ", .windows = UNLESS_ZERO, .pattern = 4, .window = 8192, .fixed_window = true},
    {.names = " bert jina-bert-v2 jina-bert-v3 nomic-bert nomic-bert-moe neo-bert eurobert modern-bert gemma-embedding "
              "wavtokenizer-dec dream llada llada-moe rnd1 ",
     .forgets = true},
    {.names = " deepseek32 deepseek4 dflash dots3note eagle3 gemma4-assistant glm-dsa glm5-next graniteswitch hy_v4 "
              "kimi-k3 minimax-m3 nanbeige qwen4exp t5 t5encoder ",
     .strange = true},
};

static const family *family_of(const char *name)
{
    static const family usual = {.names = ""};
    char wanted[sizeof((wg_hyper *)0)->architecture + 2];
    snprintf(wanted, sizeof wanted, " %s ", name);
    for (size_t i = 0; i < sizeof families / sizeof *families && !strchr(name, ' '); i++)
        if (strstr(families[i].names, wanted))
            return &families[i];
    return &usual;
}

/* Keys ------------------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const wg_file *file;
    wg_hyper *hyper;
    weir_status status;
} reader;

static const wg_key *hyper_own_key(const reader *it, const char *suffix)
{
    char name[sizeof it->hyper->architecture + LONGEST_SUFFIX];
    snprintf(name, sizeof name, "%s.%s", it->hyper->architecture, suffix);
    return wi_gguf_file_key(it->file, name);
}

static bool is_integer(uint32_t kind)
{
    return kind <= WG_I32 || kind == WG_BOOL || kind == WG_U64 || kind == WG_I64;
}

/* A whole number of the architecture's own; `otherwise` where there is none, or none that can be. */
static uint32_t hyper_number(const reader *it, const char *suffix, uint32_t otherwise)
{
    const wg_key *key = hyper_own_key(it, suffix);
    return key && is_integer(key->kind) && key->integer <= MOST_NUMBER ? (uint32_t)key->integer : otherwise;
}

/* Reads a whole number of the architecture. False: the key is missing or no plausible number. */
static bool has_number(const reader *it, const char *suffix, uint32_t *out)
{
    const wg_key *key = hyper_own_key(it, suffix);
    if (!key || !is_integer(key->kind) || key->integer > MOST_NUMBER)
        return false;
    *out = (uint32_t)key->integer;
    return true;
}

static uint32_t element(const unsigned char *raw, uint32_t kind)
{
    uint64_t bits = 0;
    memcpy(&bits, raw, wi_gguf_kind_bytes(kind));
    return bits <= MOST_NUMBER ? (uint32_t)bits : 0;
}

static bool read_array(reader *it, const wg_key *key, uint32_t each[WG_MOST_LAYERS])
{
    unsigned char raw[8];
    wg_cursor cursor;
    uint64_t count = key->count < it->hyper->layers ? key->count : it->hyper->layers;
    if (!is_integer(key->element))
        return false;
    it->status = wi_gguf_cursor_open(it->file, key->value_at, &cursor);
    if (it->status != WEIR_OK)
        return false;
    for (uint64_t i = 0; i < count && it->status == WEIR_OK; i++) {
        it->status = wi_gguf_cursor_read(&cursor, raw, wi_gguf_kind_bytes(key->element));
        each[i] = it->status == WEIR_OK ? element(raw, key->element) : 0;
    }
    wi_gguf_cursor_close(&cursor);
    return it->status == WEIR_OK;
}

/* Reads a key with a number for every layer, or with one number for all layers. False: there is no usable number, and
 * `each` is unchanged. */
static bool hyper_per_layer(reader *it, const char *suffix, uint32_t each[WG_MOST_LAYERS])
{
    const wg_key *key = hyper_own_key(it, suffix);
    uint32_t one;
    if (key && key->kind == WG_ARRAY)
        return read_array(it, key, each);
    if (!has_number(it, suffix, &one))
        return false;
    for (uint32_t i = 0; i < it->hyper->layers; i++)
        each[i] = one;
    return true;
}

/* Groups of them --------------------------------------------------------------------------------------------------- */

static void read_heads(reader *it)
{
    wg_hyper *h = it->hyper;
    uint32_t heads[WG_MOST_LAYERS] = {0}, kv[WG_MOST_LAYERS], wide[WG_MOST_LAYERS] = {0}, expert[WG_MOST_LAYERS] = {0},
             used[WG_MOST_LAYERS] = {0};
    hyper_per_layer(it, "attention.head_count", heads);
    memcpy(kv, heads, sizeof kv);
    hyper_per_layer(it, "attention.head_count_kv", kv);
    hyper_per_layer(it, "feed_forward_length", wide);
    hyper_per_layer(it, "expert_feed_forward_length", expert);
    hyper_per_layer(it, "expert_used_count", used);
    for (uint32_t i = 0; i < h->layers; i++)
        h->layer[i] = (wg_layer){
            .heads = heads[i], .heads_kv = kv[i], .wide = wide[i], .wide_expert = expert[i], .experts_used = used[i]};
    uint32_t usual = heads[0] > 0 ? h->width / heads[0] : 0;
    h->key = heads[0] > 0 ? hyper_number(it, "attention.key_length", usual) : 0;
    h->value = heads[0] > 0 ? hyper_number(it, "attention.value_length", usual) : 0;
    if (strcmp(h->architecture, "plamo2") == 0) { /* whose first layer may have no heads */
        h->key = hyper_number(it, "attention.key_length", h->key);
        h->value = hyper_number(it, "attention.value_length", h->value);
    }
    h->key_windowed = hyper_number(it, "attention.key_length_swa", h->key);
    h->value_windowed = hyper_number(it, "attention.value_length_swa", h->value);
    h->latent =
        hyper_number(it, "attention.key_length_mla", 0) > 0 && hyper_number(it, "attention.value_length_mla", 0) > 0;
}

/* What a recurrent layer keeps of a sequence: the tail of a convolution, and the state. */
static void read_state(reader *it)
{
    wg_hyper *h = it->hyper;
    uint64_t wkv = hyper_number(it, "wkv.head_size", 0), tail = hyper_number(it, "shortconv.l_cache", 0);
    uint64_t delta = hyper_number(it, "kda.head_dim", 0), heads = h->layer[0].heads;
    uint64_t kernel = hyper_number(it, "ssm.conv_kernel", 0), inner = hyper_number(it, "ssm.inner_size", 0);
    uint64_t state = hyper_number(it, "ssm.state_size", 0), groups = hyper_number(it, "ssm.group_count", 0);
    bool linear = strcmp(h->architecture, "minimax-01") == 0;
    h->inner = inner + 2 * groups * state;
    if (wkv > 0) {
        h->state_r = (uint64_t)hyper_number(it, "token_shift_count", 2) * h->width;
        h->state_s = h->width * wkv;
        return;
    }
    h->state_r = (kernel > 0 ? kernel - 1 : 0) * (inner + 2 * groups * state);
    h->state_s = linear ? (uint64_t)h->key * h->key * heads : state * inner;
    if (tail > 0) {
        h->state_r = h->width * (tail - 1);
    } else if (delta > 0) {
        h->state_r = 3 * (kernel > 0 ? kernel - 1 : 3) * heads * delta;
        h->state_s = delta * delta * heads;
    }
}

/* Which layers see a window alone. */
static void read_windows(reader *it, const family *own)
{
    wg_hyper *h = it->hyper;
    uint32_t said = 0, flags[WG_MOST_LAYERS] = {0}, pattern = own->pattern;
    bool given = has_number(it, "attention.sliding_window", &said);
    const wg_key *list = hyper_own_key(it, "attention.sliding_window_pattern");
    bool any = own->windows == IF_SAID ? said > 0 : own->windows == UNLESS_ZERO && (!given || said > 0);
    if (strcmp(h->architecture, "exaone4") == 0 && h->own != 64)
        any = false; /* the large one alone has windows */
    if (!any)
        return;
    h->window = !given || own->fixed_window ? own->window : said;
    bool listed = list && list->kind == WG_ARRAY && read_array(it, list, flags);
    if (!listed && list)
        pattern = hyper_number(it, "attention.sliding_window_pattern", pattern);
    for (uint32_t i = 0; i < h->own; i++) {
        bool counted = pattern == 0 || (own->dense_first ? i % pattern != 0 : i % pattern < pattern - 1);
        h->layer[i].windowed = listed ? flags[i] != 0 : counted && (pattern != 0 || own->pattern != 0);
    }
    if (own->recurrence == NO_KV_HEADS) /* all that have cells */
        for (uint32_t i = 0; i < h->own; i++)
            h->layer[i].windowed = h->layer[i].heads_kv > 0;
}

static uint8_t memory_of(const wg_hyper *h, const family *own, uint32_t at, bool listed, uint32_t flag,
                         uint32_t interval)
{
    const wg_layer *layer = &h->layer[at];
    switch (own->recurrence) {
    case EVERYWHERE:
        return WG_STATE;
    case BOTH:
        return WG_STATE | WG_CELLS;
    case NO_KV_HEADS:
        return layer->heads_kv == 0 ? WG_STATE : WG_CELLS;
    case NO_HEADS_NO_WIDTH:
        return layer->wide > 0 ? 0 : layer->heads_kv == 0 ? WG_STATE : WG_CELLS;
    case BY_INTERVAL:
        return (listed ? flag != 0 : (at + 1) % interval != 0) ? WG_STATE : WG_CELLS;
    default:
        return WG_CELLS;
    }
}

/* The first so many layers have cells, and those behind them look into theirs. */
static uint32_t with_cells(const reader *it)
{
    const wg_hyper *h = it->hyper;
    if (strcmp(h->architecture, "gemma3n") == 0)
        return 20;
    uint32_t shared = strcmp(h->architecture, "gemma4") == 0 ? hyper_number(it, "attention.shared_kv_layers", 0) : 0;
    return shared < h->layers ? h->layers - shared : 0;
}

static void hyper_read_memory(reader *it, const family *own)
{
    wg_hyper *h = it->hyper;
    uint32_t flags[WG_MOST_LAYERS] = {0}, interval = hyper_number(it, "full_attention_interval", 4),
             most = with_cells(it);
    bool listed = own->recurrence == BY_INTERVAL && hyper_per_layer(it, "attention.recurrent_layers", flags);
    h->known = !own->strange;
    h->remembers = !own->forgets;
    for (uint32_t i = 0; i < h->own; i++) {
        uint8_t memory = memory_of(h, own, i, listed, flags[i], interval > 0 ? interval : 1);
        h->layer[i].memory = i < most ? memory : (uint8_t)(memory & ~WG_CELLS);
    }
    read_windows(it, own);
    read_state(it);
}

/* Tensors ---------------------------------------------------------------------------------------------------------- */

enum { TENSOR_ALIGNMENT = 32 };

static uint64_t laid_out(const wg_tensor *tensor)
{
    return (tensor->bytes + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
}

static void hyper_read_tensors(reader *it)
{
    wg_hyper *h = it->hyper;
    for (size_t i = 0; i < it->file->tensor_count; i++) {
        const wg_tensor *tensor = &it->file->tensors[i];
        unsigned layer;
        if (sscanf(tensor->name, "blk.%u.", &layer) == 1 && layer < h->layers)
            h->layer[layer].weights += laid_out(tensor);
        else if (strncmp(tensor->name, "output", 6) == 0 || strncmp(tensor->name, "cls", 3) == 0)
            h->last += laid_out(tensor);
        else
            h->first += laid_out(tensor);
    }
    const wg_tensor *table = wi_gguf_file_tensor(it->file, "token_embd.weight");
    if (table && !wi_gguf_file_tensor(it->file, "output.weight"))
        h->tied = laid_out(table);
    h->ungated =
        wi_gguf_file_tensor(it->file, "blk.0.ffn_up.weight") && !wi_gguf_file_tensor(it->file, "blk.0.ffn_gate.weight");
    if (table)
        h->vocabulary = table->ne[1] <= MOST_NUMBER ? (uint32_t)table->ne[1] : 0;
}

static uint32_t tokens_of(const reader *it)
{
    const wg_key *tokens = wi_gguf_file_key(it->file, "tokenizer.ggml.tokens");
    if (tokens && tokens->kind == WG_ARRAY && tokens->count <= MOST_NUMBER)
        return (uint32_t)tokens->count;
    return hyper_number(it, "vocab_size", 0);
}

/* The whole -------------------------------------------------------------------------------------------------------- */

static weir_status missing(const wg_file *file, const char *architecture, const char *suffix)
{
    return weir_fail(WEIR_ERR_CORRUPT, "%s: the key '%s%s%s' is missing, or cannot be", file->path, architecture,
                     *architecture ? "." : "", suffix);
}

weir_status wi_gguf_hyper_read(const wg_file *file, wg_hyper *out)
{
    reader it = {.file = file, .hyper = out};
    memset(out, 0, sizeof *out);
    const wg_key *name = wi_gguf_file_key(file, "general.architecture");
    weir_status whole = wi_gguf_file_whole(file);
    if (whole != WEIR_OK)
        return whole;
    if (!name || name->kind != WG_TEXT || name->text_bytes == 0 || name->text_bytes >= sizeof out->architecture)
        return missing(file, "", "general.architecture");
    snprintf(out->architecture, sizeof out->architecture, "%.63s", name->text);
    out->layers = hyper_number(&it, "block_count", 0);
    out->width = hyper_number(&it, "embedding_length", 0);
    if (out->layers == 0 || out->layers > WG_MOST_LAYERS)
        return missing(file, out->architecture, "block_count");
    if (out->width == 0)
        return missing(file, out->architecture, "embedding_length");
    uint32_t further = hyper_number(&it, "nextn_predict_layers", 0);
    out->own = further < out->layers ? out->layers - further : out->layers;
    out->trained = hyper_number(&it, "context_length", 0);
    out->width_out = hyper_number(&it, "embedding_length_out", out->width);
    read_heads(&it);
    hyper_read_memory(&it, family_of(out->architecture));
    hyper_read_tensors(&it);
    uint32_t tokens = tokens_of(&it);
    out->vocabulary = tokens > 0 ? tokens : out->vocabulary;
    return it.status;
}
