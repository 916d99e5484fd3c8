/* See good_folder.h. */
#include "good_folder.h"

#include "common.h"
#include "engines/llm/wl.h"

char folder[64];

const char good_config[] =
    "{\"model\": {\"type\": \"llama\", \"bos_token_id\": 0, \"eos_token_id\": [1, 2], \"pad_token_id\": 2,"
    " \"vocab_size\": 16, \"context_length\": 64, \"decoder\": {\"filename\": \"model.onnx\", \"head_size\": 8,"
    " \"hidden_size\": 16, \"num_attention_heads\": 4, \"num_hidden_layers\": 2, \"num_key_value_heads\": 3,"
    " \"session_options\": {\"log_id\": \"x\", \"provider_options\": [{\"cuda\": {\"enable_cuda_graph\": \"0\"}},"
    " {\"qnn\": {\"backend_path\": \"/a.so\"}}]},"
    " \"inputs\": {\"input_ids\": \"input_ids\", \"past_key_names\": \"past_key_values.%d.key\"},"
    " \"outputs\": {\"logits\": \"logits\", \"present_key_names\": \"present.%d.key\"}}},"
    " \"search\": {\"top_k\": 7, \"temperature\": 0.5, \"past_present_share_buffer\": true}}";
const char good_tokenizer[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 15}, \"merges\": [\"a b\", [\"b\", "
    "\"a\"]]},"
    " \"added_tokens\": [{\"id\": 2, \"content\": \"<s>\"}],"
    " \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a-z)]+|\\\\s+(?!x)\"}}}";
const char good_words[] =
    "{\"tokenizer_class\": \"GPT2Tokenizer\", \"model_max_length\": 1000000000000000019884624838656,"
    " \"added_tokens_decoder\": {\"2\": {\"content\": \"<s>\"}},"
    " \"chat_template\": \"{% for m in messages %}{{ m }}{% endfor %}\"}";
const graph_shape good_graph = {
    .layers = 2, .width = 16, .cache = {-1, 3, -1, 8}, .rank = 4, .type = 1, .logits = "logits"};

void write_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(text, 1, strlen(text), to), strlen(text));
    assert_int_equal(fclose(to), 0);
}

void write_graph(const graph_shape *shape)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    graph_write(path, shape);
}

int write_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weir-folder-XXXXXX");
    assert_non_null(mkdtemp(folder));
    write_file("genai_config.json", good_config);
    write_file("tokenizer.json", good_tokenizer);
    write_file("tokenizer_config.json", good_words);
    write_graph(&good_graph);
    return 0;
}

int drop_folder(void **state)
{
    static const char *const names[] = {"genai_config.json",    "tokenizer.json",      "tokenizer_config.json",
                                        "model.onnx",           "chat_template.jinja", "chat_template.json",
                                        "tokenizer_module.json"};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (unlink(path) != 0)
            rmdir(path);
    }
    return rmdir(folder);
}

void refused(weir_status status, const char *words)
{
    wl_folder read;
    weir_status got = wl_folder_read(folder, &read);
    if (got != status)
        print_error("%s: %s\n", words, weir_detail());
    assert_int_equal(got, status);
    assert_words(weir_detail(), words);
}

void with(const char *name, const char *text, const char *one, const char *other)
{
    char *changed = calloc(1, strlen(text) + strlen(other) + 1);
    const char *at = strstr(text, one);
    assert_true(changed && at);
    memcpy(changed, text, (size_t)(at - text));
    strcat(changed, other);
    strcat(changed, at + strlen(one));
    write_file(name, changed);
    free(changed);
}
