/* shapes.c: see shapes.h. The first six are those for which formulas that others publish are off by x0.14 to x7.7. */
#include "shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "writer.h"

#define CELLS(layers, numbers, cells) ((uint64_t)(layers) * (numbers)*2 * (cells))
#define STATES(layers, numbers)       ((uint64_t)(layers) * (numbers)*4)
#define SSM                           " ssm.conv_kernel=4 ssm.time_step_rank="

const named_shape shapes[] = {
    {"Llama 3 8B", "llama",
     "block_count=32 embedding_length=4096 feed_forward_length=14336 attention.head_count=32 attention.head_count_kv=8",
     8192, 1, "", false, CELLS(32, 2 * 8 * 128, 8192)},
    {"Qwen 2.5 0.5B", "qwen2",
     "block_count=24 embedding_length=896 feed_forward_length=4864 attention.head_count=14 attention.head_count_kv=2",
     32768, 1, "", false, CELLS(24, 2 * 2 * 64, 32768)},
    {"Qwen 3 0.6B", "qwen3",
     "block_count=28 embedding_length=1024 feed_forward_length=3072 attention.head_count=16 attention.head_count_kv=8 "
     "attention.key_length=128 attention.value_length=128",
     40960, 1, "", false, CELLS(28, 2 * 8 * 128, 40960)},
    {"Qwen 3 4B", "qwen3",
     "block_count=36 embedding_length=2560 feed_forward_length=9728 attention.head_count=32 attention.head_count_kv=8 "
     "attention.key_length=128 attention.value_length=128",
     40960, 1, "", false, CELLS(36, 2 * 8 * 128, 40960)},
    {"Qwen 3 30B A3B", "qwen3moe",
     "block_count=48 embedding_length=2048 feed_forward_length=6144 attention.head_count=32 attention.head_count_kv=4 "
     "attention.key_length=128 attention.value_length=128 expert_count=128 expert_used_count=8 "
     "expert_feed_forward_length=768",
     262144, 1, "", false, CELLS(48, 2 * 4 * 128, 262144)},
    {"Gemma 3 27B", "gemma3",
     "block_count=62 embedding_length=5376 feed_forward_length=21504 attention.head_count=32 "
     "attention.head_count_kv=16 "
     "attention.key_length=128 attention.value_length=128 attention.sliding_window=1024",
     131072, 1, "", false, CELLS(10, 2 * 16 * 128, 131072) + CELLS(52, 2 * 16 * 128, 1536)},

    {"DeepSeek V2 Lite", "deepseek2",
     "block_count=27 embedding_length=2048 feed_forward_length=10944 attention.head_count=16 attention.head_count_kv=1 "
     "attention.key_length=576 attention.value_length=512 attention.key_length_mla=192 attention.value_length_mla=128 "
     "attention.kv_lora_rank=512 rope.dimension_count=64 leading_dense_block_count=1 expert_count=64 "
     "expert_used_count=6 expert_feed_forward_length=1408 expert_shared_count=2",
     32768, 1, "", false, CELLS(27, 576, 32768)},
    {"DeepSeek V3", "deepseek2",
     "block_count=61 embedding_length=7168 feed_forward_length=18432 attention.head_count=128 "
     "attention.head_count_kv=1 attention.key_length=576 attention.value_length=512 attention.key_length_mla=192 "
     "attention.value_length_mla=128 attention.q_lora_rank=1536 attention.kv_lora_rank=512 rope.dimension_count=64 "
     "leading_dense_block_count=3 expert_count=256 expert_used_count=8 expert_feed_forward_length=2048 "
     "expert_shared_count=1",
     131072, 1, "", false, CELLS(61, 576, 131072)},
    {"DeepSeek V2 Lite, an older file", "deepseek2",
     "block_count=27 embedding_length=2048 feed_forward_length=10944 attention.head_count=16 "
     "attention.head_count_kv=16 attention.key_length=192 attention.value_length=128 attention.kv_lora_rank=512 "
     "rope.dimension_count=64 leading_dense_block_count=1 expert_count=64 expert_used_count=6 "
     "expert_feed_forward_length=1408 expert_shared_count=2",
     4096, 1, "", false, CELLS(27, 16 * (192 + 128), 4096)},
    {"Gemma 2 9B", "gemma2",
     "block_count=42 embedding_length=3584 feed_forward_length=14336 attention.head_count=16 attention.head_count_kv=8 "
     "attention.key_length=256 attention.value_length=256 attention.sliding_window=4096",
     8192, 1, "", false, CELLS(21, 2 * 8 * 256, 8192) + CELLS(21, 2 * 8 * 256, 4608)},
    {"gpt-oss 20B", "gpt-oss",
     "block_count=24 embedding_length=2880 feed_forward_length=2880 attention.head_count=64 attention.head_count_kv=8 "
     "attention.key_length=64 attention.value_length=64 attention.sliding_window=128 expert_count=32 "
     "expert_used_count=4 expert_feed_forward_length=2880",
     131072, 1, "", false, CELLS(12, 2 * 8 * 64, 131072) + CELLS(12, 2 * 8 * 64, 768)},
    {"Llama 4 Scout", "llama4",
     "block_count=48 embedding_length=5120 feed_forward_length=16384 attention.head_count=40 attention.head_count_kv=8 "
     "attention.key_length=128 attention.value_length=128 expert_count=16 expert_used_count=1 "
     "expert_feed_forward_length=8192 interleave_moe_layer_step=1",
     262144, 1, "", false, CELLS(12, 2 * 8 * 128, 262144) + CELLS(36, 2 * 8 * 128, 8704)},
    {"Command R7B", "cohere2",
     "block_count=32 embedding_length=4096 feed_forward_length=14336 attention.head_count=32 attention.head_count_kv=8 "
     "attention.key_length=128 attention.value_length=128 attention.sliding_window=4096 logit_scale=0.25 "
     "rope.dimension_count=128",
     131072, 1, "", false, CELLS(8, 2 * 8 * 128, 131072) + CELLS(24, 2 * 8 * 128, 4608)},
    {"Phi 3 mini", "phi3", /* whose window llama.cpp leaves alone */
     "block_count=32 embedding_length=3072 feed_forward_length=8192 attention.head_count=32 attention.head_count_kv=32 "
     "attention.sliding_window=2047 rope.dimension_count=96",
     4096, 1, "", false, CELLS(32, 2 * 32 * 96, 4096)},
    {"OpenELM 270M", "openelm", /* heads for each layer */
     "block_count=16 embedding_length=1280 "
     "feed_forward_length=768,1024,1280,1536,1792,2048,2560,2816,3072,3328,3584,3840,4352,4608,4864,5120 "
     "attention.head_count=12*3,16*7,20*6 attention.head_count_kv=3*3,4*7,5*6 attention.key_length=64 "
     "attention.value_length=64",
     2048, 1, "", false, CELLS(1, 2 * 64 * (3 * 3 + 7 * 4 + 6 * 5), 2048)},
    {"Mamba 2.8B", "mamba",
     "block_count=64 embedding_length=2560 feed_forward_length=0 attention.head_count=0 ssm.inner_size=5120 "
     "ssm.state_size=16" SSM "160",
     4096, 1, "", false, STATES(64, 3 * 5120 + 16 * 5120)},
    {"Mamba 2 2.7B", "mamba2",
     "block_count=64 embedding_length=2560 feed_forward_length=0 attention.head_count=0 ssm.inner_size=5120 "
     "ssm.state_size=128 ssm.group_count=1" SSM "80",
     4096, 4, "", false, 4 * STATES(64, 3 * (5120 + 2 * 128) + 128 * 5120)},
    {"RWKV 7 1.5B", "rwkv7",
     "block_count=24 embedding_length=2048 feed_forward_length=8192 attention.head_count=0 wkv.head_size=64 "
     "attention.decay_lora_rank=96 attention.iclr_lora_rank=96 attention.value_residual_mix_lora_rank=64 "
     "attention.gate_lora_rank=256",
     4096, 2, "", false, 2 * STATES(24, 2 * 2048 + 2048 * 64)},
    {"Jamba 1.5 mini", "jamba",
     "block_count=32 embedding_length=4096 feed_forward_length=14336 attention.head_count=32 "
     "attention.head_count_kv=0*4,8,0*7,8,0*7,8,0*7,8,0*3 ssm.inner_size=8192 ssm.state_size=16 expert_count=16 "
     "expert_used_count=2" SSM "256",
     65536, 1, "", false, CELLS(4, 2 * 8 * 128, 65536) + STATES(28, 3 * 8192 + 16 * 8192)},
    {"Granite 4.0 H Tiny", "granitehybrid",
     "block_count=40 embedding_length=1536 feed_forward_length=512 attention.head_count=12 "
     "attention.head_count_kv=0*5,4,0*9,4,0*9,4,0*9,4,0*4 ssm.inner_size=3072 ssm.state_size=128 ssm.group_count=1 "
     "expert_count=64 expert_used_count=6 expert_shared_feed_forward_length=1024" SSM "48",
     131072, 1, "", false, CELLS(4, 2 * 4 * 128, 131072) + STATES(36, 3 * (3072 + 2 * 128) + 128 * 3072)},
    {"Falcon H1 1.5B", "falcon-h1",
     "block_count=24 embedding_length=2048 feed_forward_length=4096 attention.head_count=8 attention.head_count_kv=2 "
     "attention.key_length=128 attention.value_length=128 ssm.inner_size=3072 ssm.state_size=256 "
     "ssm.group_count=1" SSM "48",
     32768, 1, "", false, CELLS(24, 2 * 2 * 128, 32768) + STATES(24, 3 * (3072 + 2 * 256) + 256 * 3072)},
    {"Qwen 3 Next 80B A3B", "qwen3next",
     "block_count=48 embedding_length=2048 feed_forward_length=5120 attention.head_count=16 attention.head_count_kv=2 "
     "attention.key_length=256 attention.value_length=256 rope.dimension_count=64 ssm.inner_size=4096 "
     "ssm.state_size=128 ssm.group_count=16 expert_count=512 expert_used_count=10 expert_feed_forward_length=512 "
     "expert_shared_feed_forward_length=512" SSM "32",
     262144, 1, "", false, CELLS(12, 2 * 2 * 256, 262144) + STATES(36, 3 * (4096 + 2 * 16 * 128) + 128 * 4096)},
    {"LFM2 1.2B", "lfm2",
     "block_count=16 embedding_length=2048 feed_forward_length=8192 attention.head_count=32 "
     "attention.head_count_kv=0,0,8,0,0,8,0,0,8,0,8,0,8,0,8,0 shortconv.l_cache=3",
     32768, 1, "", false, CELLS(6, 2 * 8 * 64, 32768) + STATES(10, 2 * 2048)},
    {"Nemotron H 8B", "nemotron_h",
     "block_count=6 embedding_length=4096 feed_forward_length=0,21504,0,21504,0,21504 "
     "attention.head_count=32 attention.head_count_kv=0,0,8,0,0,0 attention.key_length=128 "
     "attention.value_length=128 ssm.inner_size=8192 ssm.state_size=128 ssm.group_count=8" SSM "128",
     8192, 1, "", false, CELLS(1, 2 * 8 * 128, 8192) + STATES(2, 3 * (8192 + 2 * 8 * 128) + 128 * 8192)},
    {"Gemma 3n E4B", "gemma3n",
     "block_count=35 embedding_length=2048 feed_forward_length=16384 attention.head_count=8 attention.head_count_kv=2 "
     "attention.key_length=256 attention.value_length=256 attention.sliding_window=512 "
     "embedding_length_per_layer_input=256 altup.active_idx=0 altup.num_inputs=4 attention.shared_kv_layers=15 "
     "attention.sliding_window_pattern=5",
     32768, 1, "", false, CELLS(4, 2 * 2 * 256, 32768) + CELLS(16, 2 * 2 * 256, 1024)},

    {"Llama 3 8B, four at a time, q8_0", "llama",
     "block_count=32 embedding_length=4096 feed_forward_length=14336 attention.head_count=32 attention.head_count_kv=8",
     5000, 4, "q8_0", false, (uint64_t)32 * 4 * 5120 * 2 * (8 * 128 / 32 * 34)},
    {"OpenELM 270M without flash attention", "openelm", /* values as wide as the widest */
     "block_count=16 embedding_length=1280 "
     "feed_forward_length=768,1024,1280,1536,1792,2048,2560,2816,3072,3328,3584,3840,4352,4608,4864,5120 "
     "attention.head_count=12*3,16*7,20*6 attention.head_count_kv=3*3,4*7,5*6 attention.key_length=64 "
     "attention.value_length=64",
     2048, 1, "", true, CELLS(1, 64 * (3 * 3 + 7 * 4 + 6 * 5), 2048) + CELLS(16, 64 * 5, 2048)},
    {"Gemma 3 27B, two at a time", "gemma3",
     "block_count=62 embedding_length=5376 feed_forward_length=21504 attention.head_count=32 "
     "attention.head_count_kv=16 "
     "attention.key_length=128 attention.value_length=128 attention.sliding_window=1024",
     8192, 2, "f32", false, 4 * (CELLS(10, 2 * 16 * 128, 8192) + CELLS(52, 2 * 16 * 128, 1536))},
};
const size_t shape_count = sizeof shapes / sizeof *shapes;

/* Lists: "8*4,0" is five numbers. */
static size_t read_list(const char *text, uint32_t *out, size_t room)
{
    size_t count = 0;
    for (char *end; *text; text = *end == ',' ? end + 1 : end) {
        uint32_t value = (uint32_t)strtoul(text, &end, 10);
        unsigned long times = *end == '*' ? strtoul(end + 1, &end, 10) : 1;
        while (times-- > 0 && count < room)
            out[count++] = value;
    }
    return count;
}

static void write_key(gguf_writer *to, const char *name, const char *value)
{
    enum { U32 = 4, ROOM = 512 };
    uint32_t list[ROOM];
    if (strchr(value, ',') || strchr(value, '*'))
        key_numbers(to, name, U32, list, read_list(value, list, ROOM));
    else if (strchr(value, '.'))
        key_f32(to, name, strtof(value, NULL));
    else
        key_u32(to, name, (uint32_t)strtoul(value, NULL, 10));
}

/* Of no use but to be counted. */
static void write_vocabulary(gguf_writer *to)
{
    enum { F32 = 6 };
    static char texts[SHAPE_TOKENS][16];
    static const char *tokens[SHAPE_TOKENS];
    static float scores[SHAPE_TOKENS];
    for (int i = 0; i < SHAPE_TOKENS; i++) {
        snprintf(texts[i], sizeof texts[i], "tok_%d", i);
        tokens[i] = texts[i];
    }
    key_text(to, "tokenizer.ggml.model", "test");
    key_texts(to, "tokenizer.ggml.tokens", tokens, SHAPE_TOKENS);
    key_numbers(to, "tokenizer.ggml.scores", F32, scores, SHAPE_TOKENS);
}

void write_shape(const named_shape *shape, const char *path)
{
    gguf_writer it = {.seed = 1};
    char *keys = strdup(shape->keys), *rest = keys, name[160];
    if (!keys)
        abort();
    key_text(&it, "general.architecture", shape->architecture);
    snprintf(name, sizeof name, "%s.context_length", shape->architecture);
    key_u32(&it, name, 1 << 20);
    snprintf(name, sizeof name, "%s.vocab_size", shape->architecture);
    key_u32(&it, name, SHAPE_TOKENS);
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", shape->architecture);
    key_f32(&it, name, 1e-5f);
    snprintf(name, sizeof name, "%s.attention.layer_norm_epsilon", shape->architecture);
    key_f32(&it, name, 1e-5f);
    for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        snprintf(name, sizeof name, "%s.%s", shape->architecture, word);
        write_key(&it, name, value);
    }
    write_vocabulary(&it);
    write_gguf(&it, path);
    free(keys);
}
