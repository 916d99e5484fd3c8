/* writer.c: see writer.h. */
#include "writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, TEXT = 8, ARRAY = 9 };

const model_shape small_shape = {.layers = 2, .width = 32, .heads = 4, .heads_kv = 2, .wide = 64, .context = 128};

/* What the file under way leaves out or replaces; tests write one file at a time. */
static const model_shape *writing;

void put(bytes *to, const void *from, size_t count)
{
    if (to->count + count > to->room) {
        to->room = (to->count + count) * 2;
        to->data = realloc(to->data, to->room);
        if (!to->data)
            abort();
    }
    if (count)
        memcpy(to->data + to->count, from, count);
    to->count += count;
}

static void put_text(bytes *to, const char *text)
{
    uint64_t length = strlen(text);
    put(to, &length, 8);
    put(to, text, length);
}

static bool is_left_out(const char *name)
{
    return writing && writing->skip_key && strcmp(writing->skip_key, name) == 0;
}

static void key(gguf_writer *to, const char *name, uint32_t kind, const void *value, size_t size)
{
    if (is_left_out(name))
        return;
    if (writing && writing->replace_u32 && strcmp(writing->replace_u32, name) == 0)
        value = &writing->replacement;
    char own[96];
    if (writing && writing->architecture && strncmp(name, "llama.", 6) == 0) {
        snprintf(own, sizeof own, "%s%s", writing->architecture, name + 5);
        name = own;
    }
    put_text(&to->keys, name);
    put(&to->keys, &kind, 4);
    put(&to->keys, value, size);
    to->key_count++;
}

void key_u32(gguf_writer *to, const char *name, uint32_t value)
{
    key(to, name, U32, &value, 4);
}

void key_i32(gguf_writer *to, const char *name, int32_t value)
{
    key(to, name, I32, &value, 4);
}

void key_f32(gguf_writer *to, const char *name, float value)
{
    key(to, name, F32, &value, 4);
}

void key_bool(gguf_writer *to, const char *name, bool value)
{
    uint8_t byte = value;
    key(to, name, BOOL, &byte, 1);
}

void key_text(gguf_writer *to, const char *name, const char *value)
{
    bytes it = {0};
    put_text(&it, value);
    key(to, name, TEXT, it.data, it.count);
    free(it.data);
}

void key_texts(gguf_writer *to, const char *name, const char *const *values, size_t count)
{
    bytes it = {0};
    uint32_t kind = TEXT;
    uint64_t length = count;
    put(&it, &kind, 4);
    put(&it, &length, 8);
    for (size_t i = 0; i < count; i++)
        put_text(&it, values[i]);
    key(to, name, ARRAY, it.data, it.count);
    free(it.data);
}

void key_numbers(gguf_writer *to, const char *name, uint32_t kind, const void *values, size_t count)
{
    bytes it = {0};
    uint64_t length = count;
    put(&it, &kind, 4);
    put(&it, &length, 8);
    put(&it, values, count * 4);
    key(to, name, ARRAY, it.data, it.count);
    free(it.data);
}

static float random_float(gguf_writer *to)
{
    to->seed = to->seed * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((double)(to->seed >> 33) / (double)(1ull << 31) - 0.5) * 0.4f;
}

static void pad(bytes *to)
{
    static const char zeros[32];
    put(to, zeros, (32 - to->count % 32) % 32);
}

static void entry(gguf_writer *to, const char *name, uint32_t type, uint64_t first, uint64_t second)
{
    uint32_t dims = second ? 2 : 1;
    uint64_t ne[2] = {first, second}, offset = to->data.count;
    put_text(&to->tensors, name);
    put(&to->tensors, &dims, 4);
    put(&to->tensors, ne, sizeof *ne * dims);
    put(&to->tensors, &type, 4);
    put(&to->tensors, &offset, 8);
    to->tensor_count++;
}

void tensor(gguf_writer *to, const char *name, uint64_t first, uint64_t second, float middle)
{
    if (is_left_out(name))
        return;
    entry(to, name, 0, first, second);
    for (uint64_t i = 0; i < first * (second ? second : 1); i++) {
        float value = middle + random_float(to);
        put(&to->data, &value, 4);
    }
    pad(&to->data);
}

void typed_tensor(gguf_writer *to, const char *name, uint32_t type, uint64_t first, uint64_t second, size_t size)
{
    entry(to, name, type, first, second);
    for (size_t i = 0; i < size; i++)
        put(&to->data, "", 1);
    pad(&to->data);
}

void write_gguf(gguf_writer *from, const char *path)
{
    bytes head = {0};
    uint32_t version = 3;
    put(&head, "GGUF", 4);
    put(&head, &version, 4);
    put(&head, &from->tensor_count, 8);
    put(&head, &from->key_count, 8);
    put(&head, from->keys.data, from->keys.count);
    put(&head, from->tensors.data, from->tensors.count);
    pad(&head);
    put(&head, from->data.data, from->data.count);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(head.data, 1, head.count, file) != head.count || fclose(file) != 0)
        abort();
    free(head.data);
    free(from->keys.data);
    free(from->tensors.data);
    free(from->data.data);
    *from = (gguf_writer){0};
    writing = NULL;
}

static void write_whole(gguf_writer *from, const char *path, const model_shape *shape)
{
    writing = NULL;
    if (shape->more)
        shape->more(from);
    write_gguf(from, path);
}

/* ---- the two models --------------------------------------------------------------------------------------------- */

enum { LLAMA_TOKENS = 3 + 256 + 27, BERT_TOKENS = 4 + 52 + 1 };

static void llama_vocabulary(gguf_writer *to)
{
    static char texts[LLAMA_TOKENS][8];
    static const char *tokens[LLAMA_TOKENS];
    static float scores[LLAMA_TOKENS];
    static int32_t kinds[LLAMA_TOKENS];
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < LLAMA_TOKENS; i++) {
        if (i < 3)
            snprintf(texts[i], sizeof texts[i], "%s", first[i]);
        else if (i < 3 + 256)
            snprintf(texts[i], sizeof texts[i], "<0x%02X>", i - 3);
        else if (i == 3 + 256)
            strcpy(texts[i], "\xe2\x96\x81");
        else
            snprintf(texts[i], sizeof texts[i], "%c", 'a' + i - 260);
        tokens[i] = texts[i];
        scores[i] = (float)-i;
        kinds[i] = i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1;
    }
    key_text(to, "tokenizer.ggml.model", "llama");
    key_texts(to, "tokenizer.ggml.tokens", tokens, LLAMA_TOKENS);
    key_numbers(to, "tokenizer.ggml.scores", F32, scores, LLAMA_TOKENS);
    key_numbers(to, "tokenizer.ggml.token_type", I32, kinds, LLAMA_TOKENS);
    key_u32(to, "tokenizer.ggml.bos_token_id", 1);
    key_u32(to, "tokenizer.ggml.eos_token_id", 2);
    key_u32(to, "tokenizer.ggml.unknown_token_id", 0);
}

static void layer_tensor(gguf_writer *to, uint32_t layer, const char *name, uint64_t first, uint64_t second,
                         float middle)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    tensor(to, full, first, second, middle);
}

void write_llama(const char *path, const model_shape *shape)
{
    gguf_writer it = {.seed = shape->seed ? shape->seed : 7};
    uint32_t n = shape->width, kv = n / shape->heads * shape->heads_kv;
    writing = shape;
    key_text(&it, "general.architecture", shape->architecture ? shape->architecture : "llama");
    key_text(&it, "general.name", "letters");
    key_u32(&it, "llama.context_length", shape->context);
    key_u32(&it, "llama.embedding_length", n);
    key_u32(&it, "llama.block_count", shape->layers);
    key_u32(&it, "llama.feed_forward_length", shape->wide);
    key_u32(&it, "llama.attention.head_count", shape->heads);
    key_u32(&it, "llama.attention.head_count_kv", shape->heads_kv);
    key_f32(&it, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    key_u32(&it, "llama.rope.dimension_count", n / shape->heads);
    llama_vocabulary(&it);
    if (shape->chat_template)
        key_text(&it, "tokenizer.chat_template", shape->chat_template);
    tensor(&it, "token_embd.weight", n, LLAMA_TOKENS, 0);
    tensor(&it, "output_norm.weight", n, 0, 1);
    tensor(&it, "output.weight", n, LLAMA_TOKENS, 0);
    for (uint32_t i = 0; i < shape->layers; i++) {
        layer_tensor(&it, i, "attn_norm.weight", n, 0, 1);
        layer_tensor(&it, i, "attn_q.weight", n, n, 0);
        layer_tensor(&it, i, "attn_k.weight", n, kv, 0);
        layer_tensor(&it, i, "attn_v.weight", n, kv, 0);
        layer_tensor(&it, i, "attn_output.weight", n, n, 0);
        layer_tensor(&it, i, "ffn_norm.weight", n, 0, 1);
        layer_tensor(&it, i, "ffn_gate.weight", n, shape->wide, 0);
        layer_tensor(&it, i, "ffn_down.weight", shape->wide, n, 0);
        layer_tensor(&it, i, "ffn_up.weight", n, shape->wide, 0);
    }
    write_whole(&it, path, shape);
}

void write_windowed(const char *path, const model_shape *shape, uint32_t window)
{
    gguf_writer it = {.seed = 13};
    uint32_t n = shape->width, kv = n / shape->heads * shape->heads_kv;
    writing = NULL;
    key_text(&it, "general.architecture", "cohere2");
    key_u32(&it, "cohere2.context_length", shape->context);
    key_u32(&it, "cohere2.embedding_length", n);
    key_u32(&it, "cohere2.block_count", shape->layers);
    key_u32(&it, "cohere2.feed_forward_length", shape->wide);
    key_u32(&it, "cohere2.attention.head_count", shape->heads);
    key_u32(&it, "cohere2.attention.head_count_kv", shape->heads_kv);
    key_f32(&it, "cohere2.attention.layer_norm_epsilon", 1e-5f);
    key_u32(&it, "cohere2.attention.sliding_window", window);
    key_f32(&it, "cohere2.logit_scale", 1);
    key_u32(&it, "cohere2.rope.dimension_count", n / shape->heads);
    llama_vocabulary(&it);
    tensor(&it, "token_embd.weight", n, LLAMA_TOKENS, 0);
    tensor(&it, "output_norm.weight", n, 0, 1);
    for (uint32_t i = 0; i < shape->layers; i++) {
        layer_tensor(&it, i, "attn_norm.weight", n, 0, 1);
        layer_tensor(&it, i, "attn_q.weight", n, n, 0);
        layer_tensor(&it, i, "attn_k.weight", n, kv, 0);
        layer_tensor(&it, i, "attn_v.weight", n, kv, 0);
        layer_tensor(&it, i, "attn_output.weight", n, n, 0);
        layer_tensor(&it, i, "ffn_gate.weight", n, shape->wide, 0);
        layer_tensor(&it, i, "ffn_down.weight", shape->wide, n, 0);
        layer_tensor(&it, i, "ffn_up.weight", n, shape->wide, 0);
    }
    write_gguf(&it, path);
}

void write_recurrent(const char *path, const model_shape *shape)
{
    enum { CONVOLUTION = 4, STATE = 16, RANK = 8 };
    gguf_writer it = {.seed = 17};
    uint32_t n = shape->width, inner = 2 * n;
    writing = NULL;
    key_text(&it, "general.architecture", "mamba");
    key_u32(&it, "mamba.context_length", shape->context);
    key_u32(&it, "mamba.embedding_length", n);
    key_u32(&it, "mamba.block_count", shape->layers);
    key_u32(&it, "mamba.feed_forward_length", 0);
    key_u32(&it, "mamba.attention.head_count", 0);
    key_f32(&it, "mamba.attention.layer_norm_rms_epsilon", 1e-5f);
    key_u32(&it, "mamba.ssm.conv_kernel", CONVOLUTION);
    key_u32(&it, "mamba.ssm.inner_size", inner);
    key_u32(&it, "mamba.ssm.state_size", STATE);
    key_u32(&it, "mamba.ssm.time_step_rank", RANK);
    llama_vocabulary(&it);
    tensor(&it, "token_embd.weight", n, LLAMA_TOKENS, 0);
    tensor(&it, "output_norm.weight", n, 0, 1);
    for (uint32_t i = 0; i < shape->layers; i++) {
        layer_tensor(&it, i, "attn_norm.weight", n, 0, 1);
        layer_tensor(&it, i, "ssm_in.weight", n, 2 * inner, 0);
        layer_tensor(&it, i, "ssm_conv1d.weight", CONVOLUTION, inner, 0);
        layer_tensor(&it, i, "ssm_conv1d.bias", inner, 0, 0);
        layer_tensor(&it, i, "ssm_x.weight", inner, RANK + 2 * STATE, 0);
        layer_tensor(&it, i, "ssm_dt.weight", RANK, inner, 0);
        layer_tensor(&it, i, "ssm_dt.bias", inner, 0, 0);
        layer_tensor(&it, i, "ssm_a", STATE, inner, -1);
        layer_tensor(&it, i, "ssm_d", inner, 0, 1);
        layer_tensor(&it, i, "ssm_out.weight", inner, n, 0);
    }
    write_gguf(&it, path);
}

static void bert_vocabulary(gguf_writer *to)
{
    static char texts[BERT_TOKENS][8];
    static const char *tokens[BERT_TOKENS];
    static int32_t kinds[BERT_TOKENS];
    static const char *const first[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
    for (int i = 0; i < BERT_TOKENS; i++) {
        if (i < 4)
            snprintf(texts[i], sizeof texts[i], "%s", first[i]);
        else if (i < 4 + 26)
            snprintf(texts[i], sizeof texts[i], "\xe2\x96\x81%c", 'a' + i - 4);
        else if (i < 4 + 52)
            snprintf(texts[i], sizeof texts[i], "%c", 'a' + i - 30);
        else
            strcpy(texts[i], "\xe2\x96\x81.");
        tokens[i] = texts[i];
        kinds[i] = i < 4 ? 3 : 1;
    }
    key_text(to, "tokenizer.ggml.model", "bert");
    key_u32(to, "tokenizer.ggml.token_type_count", 2);
    key_texts(to, "tokenizer.ggml.tokens", tokens, BERT_TOKENS);
    key_numbers(to, "tokenizer.ggml.token_type", I32, kinds, BERT_TOKENS);
    key_u32(to, "tokenizer.ggml.padding_token_id", 0);
    key_u32(to, "tokenizer.ggml.unknown_token_id", 1);
    key_u32(to, "tokenizer.ggml.bos_token_id", 2);
    key_u32(to, "tokenizer.ggml.cls_token_id", 2);
    key_u32(to, "tokenizer.ggml.seperator_token_id", 3);
}

void write_bert(const char *path, const model_shape *shape)
{
    gguf_writer it = {.seed = 11};
    uint32_t n = shape->width;
    writing = shape;
    key_text(&it, "general.architecture", "bert");
    key_u32(&it, "bert.context_length", shape->context);
    key_u32(&it, "bert.embedding_length", n);
    key_u32(&it, "bert.block_count", shape->layers);
    key_u32(&it, "bert.feed_forward_length", shape->wide);
    key_u32(&it, "bert.attention.head_count", shape->heads);
    key_f32(&it, "bert.attention.layer_norm_epsilon", 1e-12f);
    key_bool(&it, "bert.attention.causal", false);
    key_u32(&it, "bert.pooling_type", 1);
    bert_vocabulary(&it);
    tensor(&it, "token_embd.weight", n, BERT_TOKENS, 0);
    tensor(&it, "token_types.weight", n, 2, 0);
    tensor(&it, "position_embd.weight", n, shape->context, 0);
    tensor(&it, "token_embd_norm.weight", n, 0, 1);
    tensor(&it, "token_embd_norm.bias", n, 0, 0);
    for (uint32_t i = 0; i < shape->layers; i++) {
        static const char *const square[] = {"attn_q", "attn_k", "attn_v", "attn_output"};
        static const char *const norms[] = {"attn_output_norm", "layer_output_norm"};
        char name[64];
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "%s.weight", square[k]);
            layer_tensor(&it, i, name, n, n, 0);
            snprintf(name, sizeof name, "%s.bias", square[k]);
            layer_tensor(&it, i, name, n, 0, 0);
        }
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s.weight", norms[k]);
            layer_tensor(&it, i, name, n, 0, 1);
            snprintf(name, sizeof name, "%s.bias", norms[k]);
            layer_tensor(&it, i, name, n, 0, 0);
        }
        layer_tensor(&it, i, "ffn_up.weight", n, shape->wide, 0);
        layer_tensor(&it, i, "ffn_up.bias", shape->wide, 0, 0);
        layer_tensor(&it, i, "ffn_down.weight", shape->wide, n, 0);
        layer_tensor(&it, i, "ffn_down.bias", n, 0, 0);
    }
    write_whole(&it, path, shape);
}
