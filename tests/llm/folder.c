/* folder.c: what is read of a model's folder, and what is refused before GenAI sees it: each word of genai_config.json, the graph
 * against it, the tokenizer's tables, patterns and templates. No engine is needed. */
#include "engines/llm/folder.h"

#include "common.h"
#include "graph.h"

#include <sys/stat.h>
#include <time.h>

/* How often the tokenizer was read, and by how much the clock is ahead. */
static int tokenizers_read;
static time_t later;

weir_status __wrap_wl_tokenizer_check(const wl_folder *of);
weir_status __real_wl_tokenizer_check(const wl_folder *of);
/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_clock_gettime(clockid_t clock, struct timespec *out);

weir_status __wrap_wl_tokenizer_check(const wl_folder *of)
{
    tokenizers_read++;
    return __real_wl_tokenizer_check(of);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    int answer = __real_clock_gettime(clock, out);
    out->tv_sec += later;
    return answer;
}

static char folder[64];

static const char good_config[] =
    "{\"model\": {\"type\": \"llama\", \"bos_token_id\": 0, \"eos_token_id\": [1, 2], \"pad_token_id\": 2,"
    " \"vocab_size\": 16, \"context_length\": 64, \"decoder\": {\"filename\": \"model.onnx\", \"head_size\": 8,"
    " \"hidden_size\": 16, \"num_attention_heads\": 4, \"num_hidden_layers\": 2, \"num_key_value_heads\": 3,"
    " \"session_options\": {\"log_id\": \"x\", \"provider_options\": [{\"cuda\": {\"enable_cuda_graph\": \"0\"}},"
    " {\"qnn\": {\"backend_path\": \"/a.so\"}}]},"
    " \"inputs\": {\"input_ids\": \"input_ids\", \"past_key_names\": \"past_key_values.%d.key\"},"
    " \"outputs\": {\"logits\": \"logits\", \"present_key_names\": \"present.%d.key\"}}},"
    " \"search\": {\"top_k\": 7, \"temperature\": 0.5, \"past_present_share_buffer\": true}}";
static const char good_tokenizer[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 15}, \"merges\": [\"a b\", [\"b\", "
    "\"a\"]]},"
    " \"added_tokens\": [{\"id\": 2, \"content\": \"<s>\"}],"
    " \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a-z)]+|\\\\s+(?!x)\"}}}";
static const char good_words[] =
    "{\"tokenizer_class\": \"GPT2Tokenizer\", \"model_max_length\": 1000000000000000019884624838656,"
    " \"added_tokens_decoder\": {\"2\": {\"content\": \"<s>\"}},"
    " \"chat_template\": \"{% for m in messages %}{{ m }}{% endfor %}\"}";
static const graph_shape good_graph = {
    .layers = 2, .width = 16, .cache = {-1, 3, -1, 8}, .rank = 4, .type = 1, .logits = "logits"};

static void write_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(text, 1, strlen(text), to), strlen(text));
    assert_int_equal(fclose(to), 0);
}

static void write_graph(const graph_shape *shape)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    graph_write(path, shape);
}

static int write_folder(void **state)
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

static int drop_folder(void **state)
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

static void refused(weir_status status, const char *words)
{
    wl_folder read;
    weir_status got = wl_folder_read(folder, &read);
    if (got != status)
        print_error("%s: %s\n", words, weir_detail());
    assert_int_equal(got, status);
    assert_words(weir_detail(), words);
}

/* The file with one of its texts become another. */
static void with(const char *name, const char *text, const char *one, const char *other)
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

/* ---- what is read ------------------------------------------------------------------------------------------------ */

static void test_a_folder_is_read(void **state)
{
    (void)state;
    wl_folder read;
    char file[128];
    OK(wl_folder_read(folder, &read));
    assert_string_equal(read.path, folder);
    assert_string_equal(read.type, "llama");
    assert_string_equal(read.model, "model.onnx");
    assert_int_equal(read.context, 64);
    assert_int_equal(read.vocabulary, 16);
    assert_int_equal(read.layers, 2);
    assert_int_equal(read.kv_heads, 3);
    assert_int_equal(read.head_size, 8);
    assert_int_equal(read.top_k, 7);
    assert_true(read.shares_cache);
    assert_false(read.paged);
    assert_int_equal(read.weight_bytes, 4 * 16 * sizeof(float));
    assert_int_equal(read.nodes, 5);
    assert_int_equal(wl_folder_cache(&read, 10), 10 * 2 * 2 * 3 * 8 * sizeof(float));
    snprintf(file, sizeof file, "%s/genai_config.json", folder);
    OK(wl_folder_read(file, &read));
    assert_string_equal(read.path, folder);
}

static void test_what_may_be_left_out_has_its_standard(void **state)
{
    (void)state;
    wl_folder read;
    with("genai_config.json", good_config, ", \"past_present_share_buffer\": true", "");
    OK(wl_folder_read(folder, &read));
    assert_false(read.shares_cache);
    with("genai_config.json", good_config, "\"top_k\": 7, ", "");
    OK(wl_folder_read(folder, &read));
    assert_int_equal(read.top_k, 50);
    with("genai_config.json", good_config, "\"filename\": \"model.onnx\", ", "");
    OK(wl_folder_read(folder, &read));
    assert_string_equal(read.model, "model.onnx");
    with("genai_config.json", good_config, "\"search\"",
         "\"engine\": {\"dynamic_batching\": {\"block_size\": 16}}, \"search\"");
    OK(wl_folder_read(folder, &read));
    assert_true(read.paged);
    with("genai_config.json", good_config, "{\"model\"", "{\"note\": \"passed over\", \"model\"");
    OK(wl_folder_read(folder, &read));
}

static void test_a_cache_without_measure(void **state)
{
    (void)state;
    wl_folder huge = {.token_bytes = 4096ull * 2 * 4096 * 65536 * 8, .state_bytes = 7};
    assert_int_equal(wl_folder_cache(&huge, 1), 4096ull * 2 * 4096 * 65536 * 8 + 7);
    assert_true(wl_folder_cache(&huge, 1 << 24) == UINT64_MAX);
    huge = (wl_folder){.token_bytes = UINT64_MAX, .state_bytes = 1};
    assert_true(wl_folder_cache(&huge, 1) == UINT64_MAX);
}

/* ---- paths ------------------------------------------------------------------------------------------------------- */

static void test_paths(void **state)
{
    (void)state;
    wl_folder read;
    char longest[600];
    memset(longest, 'x', sizeof longest);
    longest[599] = 0;
    assert_int_equal(wl_folder_read(NULL, &read), WEIR_ERR_INVALID);
    assert_int_equal(wl_folder_read("", &read), WEIR_ERR_INVALID);
    assert_int_equal(wl_folder_read(longest, &read), WEIR_ERR_INVALID);
    assert_words(weir_detail(), "less than 512 bytes");
    assert_int_equal(wl_folder_read("/nonexistent", &read), WEIR_ERR_NOT_FOUND);
    assert_int_equal(wl_folder_read("/tmp", &read), WEIR_ERR_NOT_FOUND);
    assert_words(weir_detail(), "/tmp/genai_config.json is not there");
}

/* The longest path, and those that are of the folder that the process is in. */
static void test_paths_of_the_folder_one_is_in(void **state)
{
    (void)state;
    static const char *const own[] = {"genai_config.json", "./genai_config.json", "."};
    wl_folder read;
    char before[512], longest[512];
    snprintf(longest, sizeof longest, "%s", folder);
    while (strlen(longest) + 1 < sizeof longest)
        strcat(longest, "/");
    OK(wl_folder_read(longest, &read));
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    for (int i = 0; i < 3; i++) {
        OK(wl_folder_read(own[i], &read));
        assert_string_equal(read.path, ".");
    }
    assert_int_equal(chdir(before), 0);
}

/* ---- genai_config.json ------------------------------------------------------------------------------------------- */

typedef struct wrong {
    const char *one, *other;
    weir_status status;
    const char *words;
} wrong;

#define BAD     WEIR_ERR_CORRUPT
#define NOT     WEIR_ERR_UNSUPPORTED
#define DECODER "\"decoder\": {"
#define OPTIONS "\"session_options\": {"

static const wrong configs[] = {
    {"{\"model\"", "[{\"model\"", BAD, "genai_config.json:1:"},
    {"{\"model\"", "{\"model\": {}, \"model\"", BAD, "duplicate"},
    {"\"llama\"", "7", BAD, "\"type\" is missing"},
    {"\"vocab_size\": 16", "\"vocab_size\": 0", BAD, "\"vocab_size\" is no whole number, from 1 to 16777216"},
    {"\"vocab_size\": 16", "\"vocab_size\": 16.5", BAD, "\"vocab_size\""},
    {"\"vocab_size\": 16", "\"vocab_size\": 16777217", BAD, "\"vocab_size\""},
    {"\"vocab_size\": 16, ", "", BAD, "\"vocab_size\" is missing"},
    {"\"context_length\": 64", "\"context_length\": -1", BAD, "\"context_length\""},
    {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4097", BAD,
     "\"num_hidden_layers\" is no whole number, from 1 to 4096"},
    {"\"num_key_value_heads\": 3", "\"num_key_value_heads\": \"3\"", BAD, "\"num_key_value_heads\""},
    {"\"head_size\": 8", "\"head_size\": 65537", BAD, "\"head_size\""},
    {"\"hidden_size\": 16", "\"hidden_size\": -1", BAD, "\"model.decoder.hidden_size\" is no whole number from 0"},
    {"\"model.onnx\"", "\"../model.onnx\"", BAD, "\"filename\" is no name of a file in the folder"},
    {"\"model.onnx\"", "\"/model.onnx\"", BAD, "\"filename\" is no name"},
    {"\"model.onnx\"", "\"a\\\\b\"", BAD, "\"filename\" is no name"},
    {"\"model.onnx\"", "\"\"", BAD, "\"filename\" is no name"},
    {"\"model.onnx\"", "\"other.onnx\"", WEIR_ERR_NOT_FOUND, "other.onnx"},
    {"\"bos_token_id\": 0", "\"bos_token_id\": 16", BAD, "\"bos_token_id\" is no token; the vocabulary has 0 to 15"},
    {"\"bos_token_id\": 0", "\"bos_token_id\": -2", BAD, "\"bos_token_id\" is no token"},
    {"\"eos_token_id\": [1, 2]", "\"eos_token_id\": [1, -1]", BAD, "\"eos_token_id\" is no token"},
    {"\"eos_token_id\": [1, 2]", "\"eos_token_id\": [\"1\"]", BAD, "\"eos_token_id\" is no token"},
    {"\"pad_token_id\": 2", "\"pad_token_id\": null", BAD, "\"pad_token_id\" is no token"},
    {"\"pad_token_id\": 2", "\"tokenizer_dir\": \"..\"", BAD, "\"model.tokenizer_dir\" is no empty text"},
    {"\"pad_token_id\": 2", "\"encoder\": {}", NOT, "a part \"encoder\""},
    {"\"pad_token_id\": 2", "\"draft\": {}", NOT, "a part \"draft\""},
    {"\"pad_token_id\": 2", "\"vad\": {\"filename\": \"x\"}", NOT, "a part \"vad\""},
    {"\"pad_token_id\": 2", "\"colour\": \"/red\"", NOT, "does not know \"model.colour\", and does not pass on"},
    {"\"pad_token_id\": 2", "\"colour\": \"%s\"", NOT, "does not know \"model.colour\""},
    {"\"pad_token_id\": 2", "\"colour\": 1e10", NOT, "does not know \"model.colour\""},
    {"\"pad_token_id\": 2", "\"colour\": {\"of\": [\"../red\"]}", NOT, "does not know \"model.colour.of[]\""},
    {DECODER, DECODER "\"pipeline\": [], ", NOT, "several graphs"},
    {DECODER, DECODER "\"shared_initializers\": [], ", NOT, "weights in files that it names"},
    {DECODER, DECODER "\"run_options\": {\"enable_profiling\": \"/tmp/x\"}, ", NOT, "options of runs"},
    {DECODER, DECODER "\"layer_types\": [7], ", BAD, "\"model.decoder.layer_types[]\" is no short text"},
    {DECODER, DECODER "\"layer_types\": \"conv\", ", BAD, "\"model.decoder.layer_types\" is no list"},
    {DECODER, DECODER "\"sliding_window\": {\"window_size\": 1}, ", BAD,
     "sliding_window.window_size\" is no whole number from 2"},
    {DECODER, DECODER "\"sliding_window\": {\"cache_slack\": -1}, ", BAD, "cache_slack"},
    {DECODER, DECODER "\"sliding_window\": {\"layers\": [-1]}, ", BAD, "sliding_window.layers[]"},
    {DECODER, DECODER "\"sliding_window\": {\"slide_inputs\": 1}, ", BAD, "slide_inputs\" is no true or false"},
    {"\"past_key_values.%d.key\"", "\"past_key_values.%s.key\"", BAD, "past_key_names\" is no name with one %d"},
    {"\"past_key_values.%d.key\"", "\"past_key_values.%d.%d\"", BAD, "past_key_names\" is no name with one %d"},
    {"\"past_key_values.%d.key\"", "\"past_key_values.0.key\"", BAD, "past_key_names\" is no name with one %d"},
    {"\"past_key_values.%d.key\"", "\"%n%d\"", BAD, "past_key_names\" is no name with one %d"},
    {"\"present.%d.key\"", "\"present.%2147483647d.key\"", BAD, "present_key_names\" is no name with one %d"},
    {"\"input_ids\": \"input_ids\"", "\"input_ids\": \"%s\"", BAD, "input_ids\" is no name without a '%'"},
    {"\"input_ids\": \"input_ids\"", "\"input_ids\": 7", BAD, "input_ids\" is no name"},
    {"\"logits\": \"logits\"", "\"logits\": [\"logits\"]", BAD, "outputs.logits\" is no name"},
    {OPTIONS, OPTIONS "\"custom_ops_library\": \"a.so\", ", NOT, "a library to be loaded"},
    {OPTIONS, OPTIONS "\"enable_profiling\": \"x\", ", NOT, "a file to be written"},
    {OPTIONS, OPTIONS "\"session.optimized_model_filepath\": \"/tmp/x\", ", NOT, "does not know"},
    {OPTIONS, OPTIONS "\"session.model_external_initializers_file_folder_path\": \"/etc\", ", NOT, "does not know"},
    {OPTIONS, OPTIONS "\"session.load_model_format\": \"ORT\", ", NOT, "does not know"},
    {OPTIONS, OPTIONS "\"session.use_env_allocators\": \"0\", ", NOT, "does not know"},
    {OPTIONS, OPTIONS "\"intra_op_num_threads\": 513, ", BAD,
     "intra_op_num_threads\" is no whole number from 0 to 512"},
    {OPTIONS, OPTIONS "\"log_severity_level\": -1, ", BAD, "log_severity_level"},
    {OPTIONS, OPTIONS "\"enable_mem_pattern\": \"no\", ", BAD, "enable_mem_pattern"},
    {"\"enable_cuda_graph\": \"0\"", "\"gpu_external_alloc\": \"4096\"", NOT, "does not know"},
    {"{\"cuda\": {\"enable_cuda_graph\": \"0\"}}", "{\"CUDAExecutionProvider\": {\"user_compute_stream\": \"1\"}}", NOT,
     "does not know"},
    {"{\"cuda\": {\"enable_cuda_graph\": \"0\"}}", "\"cuda\"", BAD, "provider_options[]\" is no object"},
    {"\"top_k\": 7", "\"top_k\": -7", BAD, "\"top_k\""},
    {"\"top_k\": 7", "\"chunk_size\": 0.5", BAD, "\"search.chunk_size\" is no whole number"},
    {"\"top_k\": 7", "\"random_seed\": -2", BAD, "\"search.random_seed\""},
    {"\"top_k\": 7", "\"top_p\": 1e9", BAD, "\"search.top_p\" is no number"},
    {"\"top_k\": 7", "\"top_p\": \"1\"", BAD, "\"search.top_p\" is no number"},
    {"\"top_k\": 7", "\"do_sample\": 1", BAD, "\"search.do_sample\" is no true or false"},
    {"\"search\": {", "\"search\": [], \"searched\": {", BAD, "\"search\" is no object"},
    {"\"search\"", "\"speculative\": {}, \"search\"", NOT, "speculative decoding"},
    {"\"search\"", "\"engine\": {\"dynamic_batching\": {\"block_size\": 0}}, \"search\"", BAD, "block_size"},
    {"\"search\"", "\"engine\": {\"dynamic_batching\": {\"gpu_utilization_factor\": 1.5}}, \"search\"", BAD, "factor"},
    {"\"search\"", "\"engine\": {\"static_batching\": {\"max_batch_size\": 1e300}}, \"search\"", BAD, "max_batch_size"},
    {OPTIONS, OPTIONS "\"ep.context_enable\": \"1\", ", NOT, "may reach out of the model"},
    {"\"enable_cuda_graph\": \"0\"", "\"device_id\": \"1\"", NOT, "may reach out of the model"},
    {DECODER, DECODER "\"layer_types\": [\"conv\"], ", BAD, "layer_types\" has 1 of the 2 layers"},
    {DECODER, DECODER "\"sliding_window\": {\"pad_value\": 0}, ", BAD, "slides and has no \"window_size\""},
    {DECODER, DECODER "\"sliding_window\": {\"window_size\": 65}, ", BAD,
     "sliding_window.window_size\" is 65, which does not go with a context of 64"},
    {DECODER, DECODER "\"sliding_window\": {\"window_size\": 33}, ", BAD,
     "window_size\" is 33, which does not go with keys and values that slide in a context of 64"},
    {DECODER, DECODER "\"sliding_window\": {\"window_size\": 65, \"slide_key_value_cache\": false}, ", BAD,
     "is 65, which does not go with a context of 64"},
    {DECODER, DECODER "\"sliding_window\": {\"window_size\": 16, \"cache_slack\": 49}, ", BAD,
     "with its \"cache_slack\" is 65"},
    {DECODER, DECODER "\"sliding_window\": {\"window_size\": 8, \"layers\": [0, 2]}, ", BAD,
     "layers[]\" is 2, which does not go with a number of layers of 2"},
};

/* What GenAI takes, and its builder writes. */
static const char *const right_configs[][2] = {
    {"\"vocab_size\": 16", "\"vocab_size\": 16.0"},
    {"\"context_length\": 64", "\"context_length\": 64.0"},
    {"\"head_size\": 8", "\"head_size\": 8.0"},
    {"\"eos_token_id\": [1, 2]", "\"eos_token_id\": [1.0, 2]"},
    {"\"bos_token_id\": 0", "\"bos_token_id\": -1"},
    {"\"pad_token_id\": 2", "\"pad_token_id\": -1"},
    {"\"pad_token_id\": 2", "\"colour\": 7"},
    {"\"pad_token_id\": 2", "\"colour\": {\"of\": [\"red\", 1.5, null, true]}"},
    {"\"past_key_values.%d.key\"", "\"past_key_values.%d.key\", \"past_key_scale_names\": \"past.%d.scale\","
                                   " \"past_recurrent_names\": \"past.%d.state\", \"later_names\": \"later.%d\""},
    {OPTIONS, OPTIONS "\"optimization.disable_specified_optimizers\": \"A;B\", \"session.later\": \"1\", "},
    {"\"enable_cuda_graph\": \"0\"", "\"cudnn_conv_algo_search\": \"DEFAULT\""},
    {"\"search\"", "\"engine\": {\"dynamic_batching\": {\"prefix_caching\": true}}, \"search\""},
    {"\"search\"", "\"more\": {}, \"search\""},
    {DECODER, DECODER "\"layer_types\": [\"conv\", \"full_attention\"], "},
    {DECODER, DECODER "\"sliding_window\": {\"window_size\": 32, \"layers\": [0, 1]}, "},
    {DECODER, DECODER "\"sliding_window\": {\"window_size\": 64, \"slide_key_value_cache\": false}, "},
    {DECODER, DECODER "\"sliding_window\": {\"slide_key_value_cache\": false, \"slide_inputs\": false}, "},
};

/* Numbers at their limits and beyond, by the object in which they are. */
typedef struct limit {
    const char *where, *key;
    long long least, most;
} limit;

#define IN_MODEL  "{\"model\": {"
#define IN_SEARCH "\"search\": {"
#define WINDOW    "\"slide_key_value_cache\": false, \"slide_inputs\": false, "
enum { MANY_MORE = 1 << 24, INT32 = INT32_MAX };

static const limit limits[] = {
    {IN_MODEL, "vocab_size", 3, MANY_MORE}, /* not below the tokens that it names */
    {IN_MODEL, "context_length", 1, MANY_MORE},
    {DECODER, "num_hidden_layers", 1, 4096},
    {DECODER, "num_key_value_heads", 1, 4096},
    {DECODER, "head_size", 1, 65536},
    {DECODER, "hidden_size", 0, MANY_MORE},
    {DECODER, "num_attention_heads", 0, MANY_MORE},
    {DECODER, "conv_cache_size", 0, MANY_MORE},
    {DECODER, "state_update_capacity", 0, MANY_MORE},
    {IN_MODEL, "bos_token_id", -1, 15},
    {IN_MODEL, "eos_token_id", 0, 15},
    {IN_MODEL, "pad_token_id", -1, 15},
    {IN_MODEL, "sep_token_id", INT32_MIN, INT32},
    {IN_MODEL, "decoder_start_token_id", INT32_MIN, INT32},
    {IN_MODEL, "image_token_id", INT32_MIN, INT32},
    {IN_MODEL, "audio_token_id", INT32_MIN, INT32},
    {IN_MODEL, "video_token_id", INT32_MIN, INT32},
    {IN_MODEL, "vision_start_token_id", INT32_MIN, INT32},
    {IN_MODEL, "bot_token_id", INT32_MIN, INT32},
    {IN_MODEL, "eot_token_id", INT32_MIN, INT32},
    {IN_MODEL, "bor_token_id", INT32_MIN, INT32},
    {IN_MODEL, "eor_token_id", INT32_MIN, INT32},
    {IN_MODEL, "unheard_of", -INT32, INT32},
    {OPTIONS, "intra_op_num_threads", 0, 512},
    {OPTIONS, "inter_op_num_threads", 0, 512},
    {OPTIONS, "log_severity_level", 0, 4},
    {OPTIONS, "log_verbosity_level", 0, 100},
    {DECODER "\"sliding_window\": {" WINDOW, "window_size", 2, 64},
    {DECODER "\"sliding_window\": {" WINDOW, "cache_slack", 0, 64},
    {DECODER "\"sliding_window\": {" WINDOW, "pad_value", 0, 255},
    {IN_SEARCH, "top_k", 0, INT32},
    {IN_SEARCH, "random_seed", -1, INT32},
    {IN_SEARCH, "chunk_size", 0, MANY_MORE},
    {IN_SEARCH, "min_length", 0, INT32},
    {IN_SEARCH, "max_length", 0, INT32},
    {IN_SEARCH, "batch_size", 1, INT32},
    {IN_SEARCH, "num_beams", 1, INT32},
    {IN_SEARCH, "num_return_sequences", 1, INT32},
    {IN_SEARCH, "no_repeat_ngram_size", 0, INT32},
    {IN_SEARCH, "top_p", -1000000, 1000000},
    {IN_SEARCH, "temperature", -1000000, 1000000},
    {IN_SEARCH, "repetition_penalty", -1000000, 1000000},
    {IN_SEARCH, "length_penalty", -1000000, 1000000},
    {IN_SEARCH, "diversity_penalty", -1000000, 1000000},
    {"\"engine\": {\"static_batching\": {", "max_batch_size", 1, 4096},
    {"\"engine\": {\"dynamic_batching\": {", "block_size", 1, 65536},
    {"\"engine\": {\"dynamic_batching\": {", "num_blocks", 1, MANY_MORE},
    {"\"engine\": {\"dynamic_batching\": {", "max_batch_size", 1, 4096},
    {"\"engine\": {\"dynamic_batching\": {", "max_scheduled_tokens", 1, MANY_MORE},
    {"\"engine\": {\"dynamic_batching\": {", "gpu_utilization_factor", 0, 1},
};

/* The config with the number in the place of the one that it has, or first in its object. */
static void write_number(const limit *it, long long value)
{
    char key[64], number[512], config[sizeof good_config + 512];
    snprintf(key, sizeof key, "\"%s\": ", it->key);
    const char *has = strstr(good_config, key);
    if (has) {
        const char *behind = has + strlen(key);
        behind += behind[0] == '[' ? strcspn(behind, "]") + 1 : strspn(behind, "0123456789.");
        snprintf(config, sizeof config, "%.*s%s%lld%s", (int)(has - good_config), good_config, key, value, behind);
        write_file("genai_config.json", config);
        return;
    }
    bool engine = strncmp(it->where, "\"engine\"", 8) == 0, window = strstr(it->where, "sliding_window") != NULL;
    if (engine) {
        snprintf(number, sizeof number, "%s%s%lld}}, \"search\": {", it->where, key, value);
        with("genai_config.json", good_config, IN_SEARCH, number);
        return;
    }
    const char *then = window ? "}, " : ", ";
    snprintf(number, sizeof number, "%s%s%lld%s", it->where, key, value, then);
    with("genai_config.json", good_config, window ? DECODER : it->where, number);
}

static void test_each_number_has_its_limits(void **state)
{
    (void)state;
    graph_shape shape = good_graph;
    shape.width = 0; /* of any vocabulary */
    write_graph(&shape);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (int k = 0; k < 4; k++) {
            const limit *it = &limits[i];
            bool right = k < 2;
            wl_folder read;
            write_number(it, k == 0 ? it->least : k == 1 ? it->most : k == 2 ? it->least - 1 : it->most + 1);
            weir_status status = wl_folder_read(folder, &read);
            if ((status == WEIR_OK) != right)
                print_error("%s, %d: %s\n", it->key, k, right ? weir_detail() : "taken");
            assert_int_equal(status == WEIR_OK, right);
        }
}

/* Of lists the last item counts as the first one does. */
static const wrong last_items[] = {
    {DECODER, DECODER "\"layer_types\": [\"conv\", 7], ", BAD, "layer_types[]\" is no short text"},
    {DECODER, DECODER "\"sliding_window\": {\"window_size\": 8, \"layers\": [0, -1]}, ", BAD,
     "sliding_window.layers[]"},
    {"{\"qnn\": {\"backend_path\": \"/a.so\"}}", "7", BAD, "provider_options[]\" is no object"},
    {"{\"qnn\": {\"backend_path\": \"/a.so\"}}", "{\"CUDA\": {\"device_id\": \"1\"}}", NOT, "reach out of the model"},
    {"\"eos_token_id\": [1, 2]", "\"eos_token_id\": [1, 2.5]", BAD, "eos_token_id"},
    {"\"pad_token_id\": 2", "\"colour\": {\"of\": [\"red\", \"../red\"]}", NOT, "does not know \"model.colour.of[]\""},
    {"\"pad_token_id\": 2", "\"colour\": {\"one\": 1, \"other\": \"%s\"}", NOT, "\"model.colour.other\""},
};

static void test_parts_beside_the_decoder_are_refused(void **state)
{
    (void)state;
    static const char *const parts[] = {"encoder", "vision",  "speech", "embedding",           "draft", "mtp", "joiner",
                                        "vad",     "dflash2", "dspark", "encoder_decoder_init"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char part[64], told[64];
        snprintf(part, sizeof part, "\"%s\": {}", parts[i]);
        snprintf(told, sizeof told, "a part \"%s\"", parts[i]);
        with("genai_config.json", good_config, "\"pad_token_id\": 2", part);
        refused(NOT, told);
    }
}

static void test_the_last_item_has_its_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof last_items / sizeof *last_items; i++) {
        with("genai_config.json", good_config, last_items[i].one, last_items[i].other);
        refused(last_items[i].status, last_items[i].words);
    }
}

static void test_each_word_of_a_config_has_its_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        with("genai_config.json", good_config, configs[i].one, configs[i].other);
        refused(configs[i].status, configs[i].words);
    }
}

static void test_configs_as_genai_takes_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof right_configs / sizeof *right_configs; i++) {
        wl_folder read;
        with("genai_config.json", good_config, right_configs[i][0], right_configs[i][1]);
        weir_status status = wl_folder_read(folder, &read);
        if (status != WEIR_OK)
            print_error("%s: %s\n", right_configs[i][1], weir_detail());
        assert_int_equal(status, WEIR_OK);
        assert_int_equal(read.vocabulary, 16);
        assert_int_equal(read.context, 64);
    }
}

static void test_a_config_that_is_no_file(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/genai_config.json", folder);
    unlink(path);
    refused(WEIR_ERR_NOT_FOUND, "genai_config.json is not there");
    assert_int_equal(mkdir(path, 0700), 0);
    refused(BAD, "is no file of at most");
    rmdir(path);
    write_file("genai_config.json", "[]");
    refused(BAD, "holds no JSON object");
    write_file("genai_config.json", "");
    refused(BAD, "genai_config.json:1:");
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

static void test_the_graph_is_as_the_config_has_it(void **state)
{
    (void)state;
    wl_folder read;
    graph_shape shape = good_graph;
    shape.cache[1] = shape.cache[3] = -1;
    shape.width = 0;
    shape.type = 10;
    write_graph(&shape);
    OK(wl_folder_read(folder, &read));
    assert_int_equal(wl_folder_cache(&read, 10),
                     10 * 2 * 2 * 3 * 8 * 2); /* the config has what the graph leaves open */
    shape = good_graph;
    shape.rank = 3;
    write_graph(&shape);
    refused(BAD, "\"past_key_values.0.key\" holds no keys and values");
    shape = good_graph;
    shape.other = 1;
    for (shape.other_rank = 1; shape.other_rank < 4; shape.other_rank++) {
        write_graph(&shape);
        if (shape.other_rank == 1) /* a length, as its name is one of the past */
            OK(wl_folder_read(folder, &read));
        else
            refused(BAD, "\"past_key_values.1.value\" holds no keys and values");
    }
    shape = good_graph;
    shape.type = 8;
    write_graph(&shape);
    refused(BAD, "holds no keys and values");
    shape = good_graph;
    shape.width = 15;
    write_graph(&shape);
    refused(BAD, "\"logits\" has 15 numbers, and the vocabulary 16 tokens");
    shape.logits = "others"; /* GenAI looks for those */
    write_graph(&shape);
    OK(wl_folder_read(folder, &read));
    write_file("model.onnx", "\x08\x08");
    refused(BAD, "model.onnx");
}

/* Layers with other heads than the config says, values wider than keys, both in one input, states that do not grow. */
static void test_keys_and_values_are_as_the_graph_has_them(void **state)
{
    (void)state;
    wl_folder read;
    graph_shape shape = good_graph;
    shape.cache[1] = 4;
    shape.cache[3] = 9;
    write_graph(&shape);
    OK(wl_folder_read(folder, &read));
    assert_int_equal(wl_folder_cache(&read, 10), 10 * 2 * 2 * 4 * 9 * sizeof(float));
    shape.other = 1;
    shape.other_cache[1] = 2;
    shape.other_cache[3] = 16;
    write_graph(&shape);
    OK(wl_folder_read(folder, &read));
    assert_int_equal(wl_folder_cache(&read, 10), 10 * (3 * 4 * 9 + 2 * 16) * sizeof(float));
    shape.other_cache[2] = 6; /* a state */
    write_graph(&shape);
    OK(wl_folder_read(folder, &read));
    assert_int_equal(wl_folder_cache(&read, 10), (10 * 3 * 4 * 9 + 2 * 6 * 16) * sizeof(float));
    shape = good_graph;
    shape.rank = 5;
    memcpy(shape.cache, (int64_t[]){2, -1, 3, -1, 8}, sizeof shape.cache);
    write_graph(&shape);
    OK(wl_folder_read(folder, &read));
    assert_int_equal(wl_folder_cache(&read, 10), 10 * 4 * 2 * 3 * 8 * sizeof(float));
    shape = good_graph;
    shape.cache[1] = shape.cache[3] = INT64_MAX;
    write_graph(&shape);
    refused(BAD, "beyond what can be addressed");
}

/* ---- the tokenizer ----------------------------------------------------------------------------------------------- */

static const wrong tokenizers[] = {
    {"\"ab\": 15", "\"ab\": -1", BAD, "a token of \"vocab\" has no number of the vocabulary"},
    {"\"ab\": 15", "\"ab\": 4112", BAD, "a token of \"vocab\""},
    {"\"ab\": 15", "\"ab\": 1.5", BAD, "a token of \"vocab\""},
    {"\"ab\": 15", "\"ab\": \"1\"", BAD, "a token of \"vocab\""},
    {"{\"a\": 0, \"b\": 1, \"ab\": 15}", "[[\"a\"]]", BAD, "an item of \"vocab\""},
    {"{\"a\": 0, \"b\": 1, \"ab\": 15}", "[[7, 7]]", BAD, "an item of \"vocab\""},
    {"\"a b\"", "\"\"", BAD, "an item of \"merges\" is no pair of texts"},
    {"\"a b\"", "\"\\r\\r\"", BAD, "an item of \"merges\""},
    {"\"a b\"", "\"#a b\"", BAD, "an item of \"merges\""},
    {"\"a b\"", "[\"a\"]", BAD, "an item of \"merges\""},
    {"\"a b\"", "[\"a\", 7]", BAD, "an item of \"merges\""},
    {"\"a b\"", "7", BAD, "an item of \"merges\""},
    {"[\"a b\", [\"b\", \"a\"]]", "\"\"", BAD, "\"merges\" is no list"},
    {"[\"a b\", [\"b\", \"a\"]]", "{\"a\": 1}", BAD, "\"merges\" is no list"},
    {", \"merges\": [\"a b\", [\"b\", \"a\"]]", "", BAD, "\"merges\" is no list"},
    {"\"id\": 2", "\"id\": -2", BAD, "an item of \"added_tokens\" has no number"},
    {"\"id\": 2", "\"id\": 4112", BAD, "an item of \"added_tokens\""},
    {"\"content\": \"<s>\"", "\"content\": 7", BAD, "an item of \"added_tokens\""},
    {"[{\"id\": 2, \"content\": \"<s>\"}]", "[7]", BAD, "an item of \"added_tokens\""},
    {"[a-z)]+|\\\\s+(?!x)", "(a|aa)+", NOT, "repeats a group"},
    {"[a-z)]+|\\\\s+(?!x)", "(a|aa)*b", NOT, "repeats a group"},
    {"[a-z)]+|\\\\s+(?!x)", "[^)](a){2,}", NOT, "repeats a group"},
    {"\"pattern\": {\"Regex\"", "\"pretokenizers\": [{\"Regex\": \"(a)*\"}], \"pattern\": {\"Regex\"", NOT,
     "repeats a group"},
};

static const char *const right_tokenizers[][2] = {
    {"\"ab\": 15", "\"ab\": 4111"},
    {"\"a b\"", "\"a #b\""},
    {"[\"a b\", [\"b\", \"a\"]]", "[\"a b\", \"# a\"]"},
    {"[\"a b\", [\"b\", \"a\"]]", "[]"},
    {"[\"a b\", [\"b\", \"a\"]]", "{}"},
    {"{\"a\": 0, \"b\": 1, \"ab\": 15}, \"merges\": [\"a b\", [\"b\", \"a\"]]", "[[\"a\", -1.5], [\"b\", 0]]"},
    {"[a-z)]+|\\\\s+(?!x)", "(?i:'s|'t)?[)]*\\\\)+(a)?"},
    {"[a-z)]+|\\\\s+(?!x)", "[()+*]x"},
    {"[{\"id\": 2, \"content\": \"<s>\"}]", "[{}]"},
};

static void test_the_tables_of_a_tokenizer(void **state)
{
    (void)state;
    wl_folder read;
    for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++) {
        with("tokenizer.json", good_tokenizer, tokenizers[i].one, tokenizers[i].other);
        refused(tokenizers[i].status, tokenizers[i].words);
    }
    for (size_t i = 0; i < sizeof right_tokenizers / sizeof *right_tokenizers; i++) {
        with("tokenizer.json", good_tokenizer, right_tokenizers[i][0], right_tokenizers[i][1]);
        OK(wl_folder_read(folder, &read));
    }
}

/* A text in quotes of so many letters. */
static char *letters(size_t count, const char *before, const char *behind)
{
    char *text = calloc(1, count + strlen(before) + strlen(behind) + 1);
    assert_non_null(text);
    strcpy(text, before);
    memset(text + strlen(before), 'z', count);
    strcat(text, behind);
    return text;
}

static void test_tokens_have_a_length(void **state)
{
    (void)state;
    wl_folder read;
    static const char *const places[] = {"\"ab\"", "\"<s>\""};
    for (int i = 0; i < 2; i++) {
        char *right = letters(1000, "\"", "\""), *longer = letters(1001, "\"", "\"");
        with("tokenizer.json", good_tokenizer, places[i], right);
        OK(wl_folder_read(folder, &read));
        with("tokenizer.json", good_tokenizer, places[i], longer);
        refused(BAD, "is too long");
        free(longer);
        free(right);
    }
    char *pattern = letters(2048, "", ""), *longer = letters(2049, "", "");
    with("tokenizer.json", good_tokenizer, "[a-z)]+|\\\\s+(?!x)", pattern);
    OK(wl_folder_read(folder, &read));
    with("tokenizer.json", good_tokenizer, "[a-z)]+|\\\\s+(?!x)", longer);
    refused(NOT, "longer than 2048 bytes");
    free(longer);
    free(pattern);
}

/* An object with so many lists in one another. */
static void write_nested(const char *name, int count)
{
    char text[256] = "{\"a\": ";
    memset(text + strlen(text), '[', (size_t)count);
    memset(text + strlen(text), ']', (size_t)count);
    strcat(text, "}");
    write_file(name, text);
}

static void test_nested_files(void **state)
{
    (void)state;
    wl_folder read;
    write_nested("tokenizer_config.json", 63);
    OK(wl_folder_read(folder, &read));
    write_nested("tokenizer_config.json", 64);
    refused(BAD, "tokenizer_config.json: it is nested too deeply");
    write_file("tokenizer_config.json", good_words);
    write_nested("tokenizer.json", 64);
    refused(BAD, "tokenizer.json: it is nested too deeply");
    write_nested("tokenizer.json", 63);
    OK(wl_folder_read(folder, &read));
}

static const wrong words[] = {
    {"\"2\": {", "\"x\": {", BAD, "an item of \"added_tokens_decoder\" has no number"},
    {"\"2\": {", "\"-1\": {", BAD, "an item of \"added_tokens_decoder\""},
    {"\"2\": {", "\"4112\": {", BAD, "an item of \"added_tokens_decoder\""},
    {"\"2\": {", "\"\": {", BAD, "an item of \"added_tokens_decoder\""},
    {"\"content\": \"<s>\"", "\"content\": []", BAD, "an item of \"added_tokens_decoder\""},
    {"\"tokenizer_class\"", "\"tiktoken_file\": \"../x\", \"tokenizer_class\"", NOT,
     "names another file (\"tiktoken_file\")"},
};

static void test_the_tokenizers_config(void **state)
{
    (void)state;
    char path[128];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        with("tokenizer_config.json", good_words, words[i].one, words[i].other);
        refused(words[i].status, words[i].words);
    }
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    unlink(path);
    refused(BAD, "tokenizer_config.json is not there");
}

/* ---- templates --------------------------------------------------------------------------------------------------- */

static void template_is(bool right, const char *before, const char *again, size_t times, const char *behind)
{
    char *text = calloc(1, strlen(before) + strlen(again) * times + strlen(behind) + 1), *end = text;
    assert_non_null(text);
    end += sprintf(end, "%s", before);
    for (size_t i = 0; i < times; i++)
        end += sprintf(end, "%s", again);
    sprintf(end, "%s", behind);
    weir_status status = wl_template_check("this one", text);
    if (status != (right ? WEIR_OK : WEIR_ERR_INVALID))
        print_error("%s%s × %zu: %s\n", before, again, times, status ? weir_detail() : "taken");
    assert_int_equal(status, right ? WEIR_OK : WEIR_ERR_INVALID);
    if (!right)
        assert_words(weir_detail(), "this one: the chat template");
    free(text);
}

static void test_templates_have_a_measure(void **state)
{
    (void)state;
    template_is(true, "", "x", 65536, "");
    template_is(false, "", "x", 65537, "");
    template_is(true, "{{", "x", 1024, "}}");
    template_is(false, "{{", "x", 1025, "}}");
    template_is(false, "{%", "x", 1025, "%}");
    template_is(false, "{{", "x", 1025, "");
    template_is(true, "{{ '", "x", 5000, "' }}");
    template_is(true, "{{ \"\\\"", "x", 5000, "\" }}");
    template_is(true, "{{ 'it''s' + \"", "' + ", 2000, "\" }}");
    template_is(false, "{{ 'a' ", "+x", 513, " }}");
    template_is(true, "{#", "x", 4096, "#}");
    template_is(false, "{#", "x", 4097, "#}");
    template_is(true, "{# it's #}", "x", 4097, "");
    template_is(false, "{# it's #}{{", "x", 1025, "}}");
    template_is(true, "x", " ", 4096, "x");
    template_is(false, "x", " ", 4097, "x");
    template_is(false, "x", "\n", 4097, "");
    template_is(true, "", "{% if a %}", 64, "");
    template_is(false, "", "{% if a %}", 65, "");
    template_is(false, "", "{%- for a in b -%}", 65, "");
    template_is(true, "", "{% if a %}{% else %}{% endif %}", 500, "");
    template_is(true, "", "{% endif %}", 100, "");
    template_is(false, "{% endif %}{% endif %}", "{% if a %}", 65, "");
    template_is(true, "", "{% set a = 1 %}", 500, "");
    template_is(true, "", "{{ iffy }}{{ if }}", 100, "");
    template_is(true, "", "{", 3, "");
    template_is(true, "{", "", 0, "");
}

static void test_templates_wherever_they_are(void **state)
{
    (void)state;
    wl_folder read;
    char *longer = letters(1025, "{{", "}}"), *quoted = letters(1025, "\"{{", "}}\""),
         *object = letters(1025, "{\"chat_template\": \"{{", "}}\"}"), *most = letters(65536, "", ""),
         *past = letters(65537, "", "");
    with("tokenizer_config.json", good_words, "\"{% for m in messages %}{{ m }}{% endfor %}\"", quoted);
    refused(NOT, "tokenizer_config.json: the chat template has a tag");
    write_file("tokenizer_config.json", good_words);
    write_file("chat_template.jinja", longer);
    refused(NOT, "chat_template.jinja: the chat template has a tag");
    write_file("chat_template.jinja", "");
    OK(wl_folder_read(folder, &read));
    write_file("chat_template.jinja", most);
    OK(wl_folder_read(folder, &read));
    write_file("chat_template.jinja", past);
    refused(NOT, "chat_template.jinja: the chat template is longer than 65536 bytes");
    write_file("chat_template.jinja", "");
    write_file("chat_template.json", object);
    refused(NOT, "chat_template.json: the chat template has a tag");
    write_file("chat_template.json", "{\"chat_template\": \"x\"}");
    OK(wl_folder_read(folder, &read));
    write_file("chat_template.json", "[");
    refused(BAD, "chat_template.json:1:");
    write_file("chat_template.json", "{}");
    write_file("tokenizer_module.json", "{}");
    refused(NOT, "tokenizer_module.json: a part of a tokenizer");
    free(past);
    free(most);
    free(object);
    free(quoted);
    free(longer);
}

static void test_a_template_that_is_no_file(void **state)
{
    static const char *const names[] = {"chat_template.jinja", "chat_template.json", "tokenizer_module.json"};
    char path[128];
    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(mkfifo(path, 0600), 0);
        refused(NOT, "is no file");
        unlink(path);
        assert_int_equal(symlink("/dev/zero", path), 0);
        refused(NOT, "is no file");
        unlink(path);
    }
}

/* ---- once -------------------------------------------------------------------------------------------------------- */

static void look(wl_folder *read, int reads)
{
    memset(read, 0, sizeof *read);
    tokenizers_read = 0;
    OK(wl_folder_read(folder, read));
    assert_int_equal(tokenizers_read, reads);
}

/* For a prediction, for a load, and again; a file that changes, comes or goes has all read anew. */
static void test_a_folder_is_read_once(void **state)
{
    (void)state;
    wl_folder first, second;
    char path[128];
    look(&first, 1);
    look(&first, 1); /* it was written just now */
    later = 60;
    look(&first, 1);
    look(&second, 0);
    assert_memory_equal(&first, &second, sizeof first);
    with("genai_config.json", good_config, "\"top_k\": 7", "\"top_k\": 9");
    look(&second, 1);
    assert_int_equal(second.top_k, 9);
    look(&second, 0);
    assert_int_equal(second.top_k, 9);
    write_file("chat_template.jinja", "{{ x }}");
    look(&second, 1);
    look(&second, 0);
    snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
    assert_int_equal(unlink(path), 0);
    look(&second, 0); /* as it was before */
    assert_int_equal(mkdir(path, 0700), 0);
    refused(WEIR_ERR_UNSUPPORTED, "is no file");
    refused(WEIR_ERR_UNSUPPORTED, "is no file"); /* nor is what was refused forgotten */
    assert_int_equal(rmdir(path), 0);
    with("tokenizer.json", good_tokenizer, "\"ab\": 15", "\"ab\": -1");
    refused(WEIR_ERR_CORRUPT, "vocab");
    later = 0;
}

/* What lies in a folder of it may change without a trace in the folder itself. */
static void test_a_folder_with_folders_is_read_anew(void **state)
{
    (void)state;
    wl_folder read;
    char inner[128], path[160];
    snprintf(inner, sizeof inner, "%s/inner", folder);
    snprintf(path, sizeof path, "%s/model.onnx", inner);
    assert_int_equal(mkdir(inner, 0700), 0);
    graph_write(path, &good_graph);
    with("genai_config.json", good_config, "\"model.onnx\"", "\"inner/model.onnx\"");
    later = 60;
    look(&read, 1);
    look(&read, 1);
    assert_int_equal(wl_folder_cache(&read, 1), 2 * 2 * 3 * 8 * sizeof(float));
    graph_shape shape = good_graph;
    shape.cache[1] = 4;
    graph_write(path, &shape);
    look(&read, 1);
    assert_int_equal(wl_folder_cache(&read, 1), 2 * 2 * 4 * 8 * sizeof(float));
    later = 0;
    unlink(path);
    rmdir(inner);
}

/* Several are remembered, each by its own name. */
static void test_folders_are_told_apart(void **state)
{
    char first[sizeof folder];
    wl_folder read;
    memcpy(first, folder, sizeof first);
    write_folder(state);
    with("genai_config.json", good_config, "\"top_k\": 7", "\"top_k\": 9");
    char second[sizeof folder];
    memcpy(second, folder, sizeof second);
    later = 60;
    for (int i = 0; i < 4; i++) {
        memcpy(folder, i % 2 ? second : first, sizeof folder);
        look(&read, i < 2);
        assert_string_equal(read.path, folder);
        assert_int_equal(read.top_k, i % 2 ? 9 : 7);
    }
    later = 0;
    assert_int_equal(drop_folder(state), 0);
    memcpy(folder, first, sizeof folder);
}

int main(void)
{
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, write_folder, drop_folder)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(test_a_folder_is_read),
        WITH_FOLDER(test_what_may_be_left_out_has_its_standard),
        cmocka_unit_test(test_a_cache_without_measure),
        cmocka_unit_test(test_paths),
        WITH_FOLDER(test_paths_of_the_folder_one_is_in),
        WITH_FOLDER(test_each_word_of_a_config_has_its_rule),
        WITH_FOLDER(test_each_number_has_its_limits),
        WITH_FOLDER(test_the_last_item_has_its_rule),
        WITH_FOLDER(test_parts_beside_the_decoder_are_refused),
        WITH_FOLDER(test_configs_as_genai_takes_them),
        WITH_FOLDER(test_a_config_that_is_no_file),
        WITH_FOLDER(test_the_graph_is_as_the_config_has_it),
        WITH_FOLDER(test_keys_and_values_are_as_the_graph_has_them),
        WITH_FOLDER(test_the_tables_of_a_tokenizer),
        WITH_FOLDER(test_tokens_have_a_length),
        WITH_FOLDER(test_nested_files),
        WITH_FOLDER(test_the_tokenizers_config),
        cmocka_unit_test(test_templates_have_a_measure),
        WITH_FOLDER(test_templates_wherever_they_are),
        WITH_FOLDER(test_a_template_that_is_no_file),
        WITH_FOLDER(test_a_folder_is_read_once),
        WITH_FOLDER(test_a_folder_with_folders_is_read_anew),
        WITH_FOLDER(test_folders_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
