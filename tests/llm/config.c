/* config.c: what each word of genai_config.json may be, and what is refused before GenAI sees it. No engine is needed. */
#include "engines/llm/wl.h"

#include "common.h"
#include "good_folder.h"

#include <sys/stat.h>

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
    {"\"input_ids\": \"input_ids\"", "\"input.ids\": \"/red\"", NOT,
     "does not know \"model.decoder.inputs.input.ids\""},
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
    {"\"search\"", "\"\": [], \"search\"", BAD, "\"\" is no object"},
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
    char key[64], number[512], config[2048];
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

/* A text of so many bytes in the place of another. */
static void write_text(const char *one, const char *before, size_t count)
{
    char letters[512], text[600];
    assert_true(count < sizeof letters);
    memset(letters, 'x', sizeof letters);
    snprintf(text, sizeof text, "%s%.*s\"", before, (int)count, letters);
    with("genai_config.json", good_config, one, text);
}

static void test_texts_have_a_length(void **state)
{
    (void)state;
    enum { MOST = 256 };
    static const struct {
        const char *one, *before;
        size_t has; /* bytes of the text that are there already */
        weir_status status;
        const char *words;
    } texts[] = {
        {"\"log_id\": \"x\"", "\"log_id\": \"", 0, BAD, "log_id\" is no short text"},
        {"\"past_key_values.%d.key\"", "\"%d", 2, BAD, "past_key_names\" is no name with one %d"},
        {"\"input_ids\": \"input_ids\"", "\"input_ids\": \"", 0, BAD, "input_ids\" is no name without a '%'"},
        {"\"logits\": \"logits\"", "\"logits\": \"%d", 2, BAD, "logits\" is no name without a '%'"},
        {"\"pad_token_id\": 2", "\"colour\": \"", 0, NOT, "does not know \"model.colour\""},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        wl_folder read;
        write_text(texts[i].one, texts[i].before, MOST - texts[i].has);
        OK(wl_folder_read(folder, &read));
        write_text(texts[i].one, texts[i].before, MOST - texts[i].has + 1);
        refused(texts[i].status, texts[i].words);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(test_each_word_of_a_config_has_its_rule), WITH_FOLDER(test_each_number_has_its_limits),
        WITH_FOLDER(test_the_last_item_has_its_rule),         WITH_FOLDER(test_parts_beside_the_decoder_are_refused),
        WITH_FOLDER(test_configs_as_genai_takes_them),        WITH_FOLDER(test_texts_have_a_length),
        WITH_FOLDER(test_a_config_that_is_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
