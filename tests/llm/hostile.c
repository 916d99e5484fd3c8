/* hostile.c: folders that are cut, changed bit by bit, or say what they must not. Each is loaded and asked in a child process:
 * an error or an answer, the ledger back at zero, no signal, no hang, and no file or library opened that is not the folder's.
 *
 *   test-llm-hostile [EVERY]      each EVERY-th case of those that there are many of; 1: all of them
 *
 * One child does some cases in turn; what ends it is done again in a child of its own. HOSTILE_VERBOSE in the environment shows
 * every case with its refusal. */
#include "folders.h"
#include "outside.h"

#include "common.h"

#include <jansson.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { ANSWERED, REFUSED, WRONG, OUTSIDE, LIBRARY, OUTCOMES };
enum { SECONDS = 20, MANY = 200, CASES_OF_A_CHILD = 50, ALL_DONE = 0, MORE = 1, NO_ENGINE = 77 };

static const char *const outcome_names[OUTCOMES] = {"answered", "refused", "left something", "opened a file outside",
                                                    "opened a library"};
static bool verbose;
static int every = 10;

/* What a child leaves to its parent. */
static struct shared {
    int at; /* the number of the case that is being done */
    char what[600];
    int cases, by_outcome[OUTCOMES], by_status[WEIR_STATUS_COUNT], crashed;
} * shared;

/* ---- in a child -------------------------------------------------------------------------------------------------- */

/* Cases are counted through; a child does those from `from` on. */
static int number, from, left;
static bench host;

static void need(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "hostile: %s: %s\n", what, weir_detail());
    _exit(99);
}

/* So that what asks for too much is refused, and takes no memory from others. */
static void limit_memory(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    need(file && fscanf(file, "%lu", &pages) == 1, "statm");
    fclose(file);
    rlim_t most = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (4ull << 30);
    need(setrlimit(RLIMIT_AS, &(struct rlimit){most, most}) == 0, "setrlimit");
}

static void open_host(const char *model)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    client.name = "model";
    options.budget = 1ull << 30;
    if (weir_engine_get("llm", &host.engine) != WEIR_OK || host.engine->probe(&probe) != WEIR_OK || !probe.available)
        _exit(NO_ENGINE);
    need(weir_runtime_create("host", &options, &host.runtime) == WEIR_OK, "a runtime");
    need(weir_client_create(host.runtime, &client, &host.client) == WEIR_OK, "a client");
    host.load = WEIR_INIT(weir_engine_load);
    host.load.path = model;
    need(bench_load(&host, one_thread, 1) == WEIR_OK, "the model as it is");
    bench_unload(&host);
    limit_memory();
}

static void ask(void)
{
    static const weir_setting few[] = {GREEDY("3"), {"ignore_eos", "1"}},
                              drawn[] = {{"tokens", "3"}, {"temperature", "1"}};
    static const weir_setting guided[] = {GREEDY("3"), {"regex", "[a-c]{2}"}};
    static const weir_setting penalty[] = {GREEDY("3"), {"repeat_penalty", "1.5"}};
    const weir_tensor inputs[] = {text_input("a cab. bed 17\n\xe2\x82\xac fade  <|im_end|> 'tis"),
                                  bytes_input("messages", "system 2\nhi\nuser 5\n<|eos\n"), text_input("x"),
                                  text_input("the page")};
    const weir_setting *const settings[] = {few, drawn, guided, penalty};
    for (int i = 0; i < 4; i++) {
        weir_outputs outputs;
        weir_status status = infer(&host, &inputs[i], settings[i], i == 1 ? 2 : 3, &outputs);
        if (status == WEIR_OK)
            release(&host, &outputs);
        else if (verbose)
            fprintf(stderr, "    run %d: %s\n", i, weir_detail());
    }
}

static int load_and_ask(const char *path, weir_status *status)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    size_t libraries = outside_libraries();
    host.load.path = path;
    outside_watch(path);
    *status = bench_load(&host, one_thread, 1);
    if (verbose && *status != WEIR_OK)
        fprintf(stderr, "    %s: %s\n", weir_name_of(WEIR_NAMES_STATUS, *status), weir_detail());
    if (*status == WEIR_OK) {
        ask();
        bench_unload(&host);
    }
    const char *outside = outside_found();
    if (outside)
        fprintf(stderr, "    opened: %s\n", outside);
    need(weir_client_info(host.client, &stats) == WEIR_OK, "statistics");
    return outside                            ? OUTSIDE
           : outside_libraries() != libraries ? LIBRARY
           : stats.live != 0                  ? WRONG
           : *status == WEIR_OK               ? ANSWERED
                                              : REFUSED;
}

/* Whether this case is this child's; it is done before the next one is asked for. */
static bool wanted(bool always)
{
    int it = number++;
    if (left == 0)
        _exit(MORE);
    return it >= from && (always || it % every == 0);
}

static void try(const char *path, const char *what)
{
    weir_status status;
    shared->at = number - 1;
    snprintf(shared->what, sizeof shared->what, "%s", what);
    if (verbose)
        fprintf(stderr, "  %s\n", what);
    alarm(SECONDS);
    int outcome = load_and_ask(path, &status);
    alarm(0);
    shared->at = number;
    shared->cases++;
    shared->by_outcome[outcome]++;
    shared->by_status[status]++;
    left--;
    if (outcome > REFUSED)
        fprintf(stderr, "%s: %s\n", what, outcome_names[outcome]);
}

/* ---- in the parent ----------------------------------------------------------------------------------------------- */

typedef void campaign(const char *model, const char *path, const char *file);

static int in_a_child(campaign *cases, const char *model, const char *path, const char *file, int begin, int most)
{
    int how = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}; /* cmocka catches them */
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
            signal(signals[i], SIG_DFL);
        number = 0;
        from = begin;
        left = most;
        open_host(model);
        cases(model, path, file);
        _exit(ALL_DONE);
    }
    assert_true(child > 0 && waitpid(child, &how, 0) == child);
    return how;
}

static void note_crash(int how, const char *when)
{
    shared->crashed++;
    print_error("%s: %s by signal %d%s\n", shared->what, WTERMSIG(how) == SIGALRM ? "hung, ended" : "ended",
                WTERMSIG(how), when);
}

/* A case that ended its child is done once more by itself: whether it is alone in that. */
static void run_cases(campaign *cases, const char *model, const char *file)
{
    char path[FOLDER_NAME];
    memset(shared, 0, sizeof *shared);
    folder_copy(model, path);
    for (int how = MORE << 8, begin = 0; how == MORE << 8;) {
        how = in_a_child(cases, model, path, file, begin, CASES_OF_A_CHILD);
        begin = shared->at;
        if (WIFEXITED(how) && WEXITSTATUS(how) == NO_ENGINE)
            missing("the engine llm");
        if (!WIFSIGNALED(how))
            continue;
        how = in_a_child(cases, model, path, file, begin, 1);
        if (WIFSIGNALED(how))
            note_crash(how, "");
        else
            note_crash(SIGSEGV, ", after other cases");
        begin++;
        how = MORE << 8;
    }
    folder_drop(path);
}

static void check(const char *what)
{
    print_message("%s: %d cases, %d answered, %d refused, %d crashed;", what, shared->cases,
                  shared->by_outcome[ANSWERED], shared->by_outcome[REFUSED], shared->crashed);
    for (int i = 0; i < WEIR_STATUS_COUNT; i++)
        if (shared->by_status[i])
            print_message(" %s %d", weir_name_of(WEIR_NAMES_STATUS, i), shared->by_status[i]);
    print_message("\n");
    assert_true(shared->cases > 0);
    assert_int_equal(shared->crashed, 0);
    for (int i = WRONG; i < OUTCOMES; i++)
        assert_int_equal(shared->by_outcome[i], 0);
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 17;
}

/* ---- cuts and flips ---------------------------------------------------------------------------------------------- */

static size_t focus; /* most changes fall into so many bytes at the beginning */

static void cuts_and_flips(const char *model, const char *path, const char *file)
{
    char what[128];
    size_t bytes;
    char *data = folder_read(model, file, &bytes);
    size_t near = focus < bytes ? focus : bytes;
    uint64_t seed = near + strlen(file);
    for (int i = 0; i < MANY; i++) {
        size_t at = next(&seed) % (i % 8 ? near : bytes);
        int bit = (int)(next(&seed) % 8);
        if (!wanted(false))
            continue;
        data[at] ^= (char)(1 << bit);
        folder_write(path, file, data, bytes);
        data[at] ^= (char)(1 << bit);
        snprintf(what, sizeof what, "%s: bit %d of byte %zu", file, bit, at);
        try(path, what);
    }
    for (int i = 0; i < MANY; i++) {
        size_t length = next(&seed) % (i % 8 ? near : bytes);
        if (!wanted(false))
            continue;
        folder_write(path, file, data, length);
        snprintf(what, sizeof what, "%s: the first %zu bytes", file, length);
        try(path, what);
    }
    free(data);
}

static void cut_and_flip(const char *model, const char *file, size_t most)
{
    focus = most;
    run_cases(cuts_and_flips, model, file);
    check(file);
    assert_true(shared->by_outcome[REFUSED] >= MANY / every / 2);
}

static void test_cut_and_changed_configs(void **state)
{
    (void)state;
    cut_and_flip(the_model(SHARED), "genai_config.json", SIZE_MAX);
    cut_and_flip(the_model(CONCAT), "genai_config.json", SIZE_MAX);
}

static void test_cut_and_changed_tokenizers(void **state)
{
    (void)state;
    cut_and_flip(the_model(SHARED), "tokenizer.json", SIZE_MAX);
    cut_and_flip(the_model(SHARED), "tokenizer_config.json", SIZE_MAX);
}

/* The graph's nodes lie in front of its weights. */
static void test_cut_and_changed_graphs(void **state)
{
    (void)state;
    cut_and_flip(the_model(SHARED), "model.onnx", 8000);
    cut_and_flip(the_model(CONCAT), "model.onnx", 20000);
}

/* ---- values at edges --------------------------------------------------------------------------------------------- */

static const char *const edges[] = {
    "-1",
    "0",
    "1",
    "2",
    "3",
    "65536",
    "2147483647",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "0.5",
    "1e308",
    "-0.0",
    "\"\"",
    "\"7\"",
    "null",
    "true",
    "[]",
    "{}",
    "[-1]",
    "[\"a\"]",
    "{\"a\":{\"a\":1}}",
    "\"../genai_config.json\"",
    "\"/etc/passwd\"",
    "\"%s%s%n\"",
    "\"%d%d\"",
    "\"a\\nb \\u20ac\\t\"",
};
enum { EDGES = sizeof edges / sizeof *edges };

static const char *sweep_path, *sweep_file;
static json_t *sweep_root;
static size_t sweep_most; /* of a long list */
static char place[512];   /* in the file */

static void sweep_values(json_t *inside);

static void try_edge(const char *edge)
{
    char what[600];
    char *text = json_dumps(sweep_root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    need(text != NULL, "JSON");
    folder_write(sweep_path, sweep_file, text, strlen(text));
    free(text);
    snprintf(what, sizeof what, "%s%s: %s", sweep_file, place, edge);
    try(sweep_path, what);
}

/* The value becomes each of the edges in turn, and so does each that is in it. */
static void sweep_value(json_t *inside, const char *key, size_t index)
{
    json_t *old = key ? json_object_get(inside, key) : json_array_get(inside, index);
    size_t length = strlen(place);
    json_incref(old);
    if (key)
        snprintf(place + length, sizeof place - length, "/%.40s", key);
    else
        snprintf(place + length, sizeof place - length, "/%zu", index);
    for (int i = 0; i < EDGES; i++) {
        if (!wanted(false))
            continue;
        json_t *edge = json_loads(edges[i], JSON_DECODE_ANY, NULL);
        need(edge && (key ? json_object_set_new(inside, key, edge) : json_array_set_new(inside, index, edge)) == 0,
             edges[i]);
        try_edge(edges[i]);
    }
    need((key ? json_object_set(inside, key, old) : json_array_set(inside, index, old)) == 0, "JSON");
    sweep_values(old);
    json_decref(old);
    place[length] = 0;
}

static void sweep_values(json_t *inside)
{
    size_t count = json_is_array(inside) ? json_array_size(inside) : 0, done = 0;
    const char *key;
    json_t *value;
    void *next_one;
    for (size_t i = 0; i < count && i < sweep_most; i++)
        sweep_value(inside, NULL, i);
    if (json_is_object(inside))
        json_object_foreach_safe(inside, next_one, key,
                                 value) if (done++ < (json_object_size(inside) > 100 ? sweep_most : 100))
            sweep_value(inside, key, 0);
}

static void sweep(const char *model, const char *path, const char *file)
{
    size_t bytes;
    char *text = folder_read(model, file, &bytes);
    sweep_path = path;
    sweep_file = file;
    sweep_root = json_loads(text, 0, NULL);
    need(sweep_root != NULL, file);
    sweep_values(sweep_root);
    json_decref(sweep_root);
    free(text);
}

static void sweep_all(const char *model, const char *file, size_t most)
{
    sweep_most = most;
    run_cases(sweep, model, file);
    check(file);
    assert_true(shared->by_outcome[ANSWERED] > 0 && shared->by_outcome[REFUSED] > 0);
}

static void test_values_at_their_edges(void **state)
{
    (void)state;
    sweep_all(the_model(SHARED), "genai_config.json", 8);
    sweep_all(the_model(SHARED), "tokenizer_config.json", 2);
    sweep_all(the_model(SHARED), "tokenizer.json", 3);
}

/* ---- words that are well-formed ---------------------------------------------------------------------------------- */

typedef struct edit {
    const char *place, *value; /* "/model/type", and what it becomes, in JSON */
} edit;

static void set_at(json_t *root, const char *place_of, json_t *value)
{
    char name[128];
    json_t *at = root;
    need(value != NULL, place_of);
    for (const char *end; (end = strchr(++place_of, '/')); place_of = end) {
        snprintf(name, sizeof name, "%.*s", (int)(end - place_of), place_of);
        if (!json_object_get(at, name))
            json_object_set_new(at, name, json_object());
        at = json_object_get(at, name);
    }
    need(json_object_set_new(at, place_of, value) == 0, "JSON");
}

static const edit config_edits[] = {
    {"/model/type", "\"gpt2\""},
    {"/model/type", "\"lfm2\""},
    {"/model/type", "\"whisper\""},
    {"/model/type", "\"decoder-pipeline\""},
    {"/model/type", "\"nemotron_speech\""},
    {"/model/type", "\"parakeet_tdt\""},
    {"/model/type", "\"phi3v\""},
    {"/model/type", "\"phi4mm\""},
    {"/model/type", "\"gemma4\""},
    {"/model/type", "\"qwen2_5_vl\""},
    {"/model/type", "\"marian-ssru\""},
    {"/model/type", "\"granitemoehybrid\""},
    {"/model/type", "\"qwen3_5_text\""},
    {"/model/type", "\"phi3small\""},
    {"/model/type", "\"phi3\""},
    {"/model/type", "\"chatglm\""},
    {"/model/type", "\"gptoss\""},
    {"/model/type", "\"ernie4_5\""},
    {"/model/decoder/filename", "\"genai_config.json\""},
    {"/model/decoder/filename", "\"./model.onnx\""},
    {"/model/decoder/filename", "\"model.onnx/\""},
    {"/model/tokenizer_dir", "\".\""},
    {"/model/decoder/inputs/past_key_names", "\"%d\""},
    {"/model/decoder/inputs/past_key_names", "\"attention_mask%d\""},
    {"/model/decoder/inputs/past_value_names", "\"past_key_values.%d.key\""},
    {"/model/decoder/outputs/present_key_names", "\"logits%d\""},
    {"/model/decoder/inputs/input_ids", "\"attention_mask\""},
    {"/model/decoder/inputs/attention_mask", "\"input_ids\""},
    {"/model/decoder/inputs/position_ids", "\"input_ids\""},
    {"/model/decoder/inputs/position_ids", "\"past_key_values.0.key\""},
    {"/model/decoder/inputs/past_names", "\"past_key_values.%d.key\""},
    {"/model/decoder/inputs/hidden_states", "\"input_ids\""},
    {"/model/decoder/inputs/block_table", "\"input_ids\""},
    {"/model/decoder/outputs/logits", "\"present.0.key\""},
    {"/model/decoder/outputs/hidden_states", "\"logits\""},
    {"/model/decoder/layer_types", "[\"conv\",\"full_attention\"]"},
    {"/model/decoder/num_hidden_layers", "1"},
    {"/model/decoder/num_hidden_layers", "4096"},
    {"/model/decoder/num_attention_heads", "0"},
    {"/model/decoder/hidden_size", "16777216"},
    {"/model/decoder/conv_cache_size", "16777216"},
    {"/model/context_length", "16777216"},
    {"/model/context_length", "1"},
    {"/model/eos_token_id", "[]"},
    {"/model/eos_token_id", "[0,1,2,3,4,447]"},
    {"/model/pad_token_id", "447"},
    {"/model/bot_token_id", "-5"},
    {"/model/decoder/sliding_window", "{\"window_size\":2}"},
    {"/model/decoder/sliding_window", "{\"window_size\":16777216,\"slide_inputs\":false}"},
    {"/model/decoder/sliding_window", "{\"window_size\":3,\"slide_inputs\":false,\"slide_key_value_cache\":false}"},
    {"/model/decoder/sliding_window", "{\"window_size\":3,\"slide_inputs\":true,\"slide_key_value_cache\":false}"},
    {"/model/decoder/sliding_window", "{\"window_size\":2,\"layers\":[0,4096],\"slide_key_value_cache\":false}"},
    {"/model/decoder/sliding_window",
     "{\"window_size\":2,\"layers\":[1],\"slide_inputs\":false,\"slide_key_value_cache\":false}"},
    {"/model/decoder/sliding_window", "{\"slide_key_value_cache\":false,\"slide_inputs\":false}"},
    {"/model/decoder/sliding_window", "{\"alignment\":\"left\"}"},
    {"/model/decoder/session_options/enable_cpu_mem_arena", "false"},
    {"/model/decoder/session_options/enable_mem_pattern", "false"},
    {"/model/decoder/session_options/inter_op_num_threads", "512"},
    {"/model/decoder/session_options/graph_optimization_level", "\"ORT_DISABLE_ALL\""},
    {"/model/decoder/session_options/graph_optimization_level", "\"ORT_ENABLE_MORE\""},
    {"/model/decoder/session_options/log_severity_level", "0"},
    {"/model/decoder/session_options/session.disable_prepacking", "\"1\""},
    {"/model/decoder/session_options/session.dynamic_block_base", "\"-1\""},
    {"/model/decoder/session_options/provider_options", "[{\"qnn\":{\"backend_path\":\"/tmp/nothing.so\"}}]"},
    {"/model/decoder/session_options/provider_options", "[{\"cuda\":{\"enable_cuda_graph\":\"1\"}}]"},
    {"/search/chunk_size", "1"},
    {"/search/chunk_size", "16777216"},
    {"/search/num_beams", "32"},
    {"/search/batch_size", "2147483647"},
    {"/search/num_return_sequences", "2147483647"},
    {"/search/max_length", "2147483647"},
    {"/search/past_present_share_buffer", "false"},
    {"/search/temperature", "0"},
    {"/search/repetition_penalty", "-1e5"},
    {"/search/no_repeat_ngram_size", "2147483647"},
    {"/engine", "{\"static_batching\":{\"max_batch_size\":4096}}"},
    {"/engine", "{\"dynamic_batching\":{\"block_size\":1}}"},
    {"/engine", "{\"dynamic_batching\":{\"block_size\":65536,\"num_blocks\":16777216}}"},
    {"/engine", "{}"},
};

static void edits(const char *model, const char *path, const char *file, const edit *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        if (!wanted(true))
            continue;
        char *text = folder_read(model, file, &bytes);
        sweep_path = path;
        sweep_file = file;
        sweep_root = json_loads(text, 0, NULL);
        set_at(sweep_root, list[i].place, json_loads(list[i].value, JSON_DECODE_ANY, NULL));
        snprintf(place, sizeof place, "%s", list[i].place);
        try_edge(list[i].value);
        json_decref(sweep_root);
        free(text);
    }
}

static void edit_config(const char *model, const char *path, const char *file)
{
    edits(model, path, file, config_edits, sizeof config_edits / sizeof *config_edits);
}

static void test_well_formed_words_of_a_config(void **state)
{
    (void)state;
    for (int which = 0; which < MODELS; which++) {
        run_cases(edit_config, the_model(which), "genai_config.json");
        check("genai_config.json, word by word");
        assert_true(shared->by_outcome[ANSWERED] > 10);
    }
}

/* ---- tokenizers as far as they may go ---------------------------------------------------------------------------- */

#define UNIGRAM(vocab, more)                                                                                           \
    "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"\u2581\",-2],[\"a\",-3],[\"b\",-3.5]" vocab        \
    "]" more "}"

static const edit token_edits[] = {
    {"/model/vocab/the", "4543"},
    {"/model/vocab/the", "0"},
    {"/model/unk_token", "\"the\""},
    {"/model/unk_token", "\"nothing\""},
    {"/model/end_of_word_suffix", "\"e\""},
    {"/model/end_of_word_suffix", "\"\""},
    {"/model/merges", "[]"},
    {"/model/merges", "[[\"\",\"\"]]"},
    {"/model/merges", "[\"a b c\",\" \",\"a \",\" a\"]"},
    {"/model/vocab", "{}"},
    {"/model/vocab", "{\"\":0}"},
    {"/added_tokens", "[]"},
    {"/added_tokens", "[{}]"},
    {"/added_tokens", "[{\"id\":447,\"content\":\"\"}]"},
    {"/added_tokens", "[{\"id\":4543,\"content\":\"cab\",\"special\":true}]"},
    {"/added_tokens", "[{\"id\":5,\"content\":\"cab\",\"lstrip\":true,\"rstrip\":true,\"single_word\":true}]"},
    {"/added_tokens", "{\"id\":447}"},
    {"/pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\"}}"},
    {"/pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"}}"},
    {"/pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x*\"}}"},
    {"/pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[\\\\s\\\\S]*?\"}}"},
    {"/pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"}}"},
    {"/pre_tokenizer", "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{L}"
                       "+|[a-z]|(?!x)\"}}]}"},
    {"/pre_tokenizer", "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x?\"}},{"
                       "\"type\":\"Digits\"}]}"},
    {"/pre_tokenizer", "null"},
    {"/decoder", "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"}},{"
                 "\"type\":\"Strip\",\"content\":\" \"}]}"},
    {"/decoder", "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"add_prefix_"
                 "space\":true}]}"},
    {"/model", UNIGRAM("", "")},
    {"/model", UNIGRAM(",[\"<0x0A>\",-4],[\"<0xzz>\",-4]", "")},
    {"/model", UNIGRAM(",[\"\",-4],[\"ab\",1e308]", "")},
    {"/model", UNIGRAM("", ",\"unk_id\":400000")},
    {"/model", "{\"type\":\"Unigram\",\"vocab\":[]}"},
    {"/model", "{\"type\":\"WordPiece\",\"vocab\":{\"a\":1}}"},
    {"/model", "[]"},
};

/* As a sentence piece model has it, too. */
static const edit class_edits[] = {
    {"/tokenizer_class", "\"T5Tokenizer\""},
    {"/tokenizer_class", "\"ChatGLMTokenizer\""},
    {"/tokenizer_class", "\"MarianTokenizer\""},
    {"/tokenizer_class", "\"XLMRobertaTokenizer\""},
    {"/tokenizer_class", "\"CLIPTokenizer\""},
    {"/tokenizer_class", "\"WhisperTokenizer\""},
    {"/tokenizer_class", "\"LlamaTokenizer\""},
    {"/tokenizer_class", "\"TokenizersBackend\""},
    {"/tokenizer_class", "\"\""},
    {"/tokenizer_class", "\"SentencePieceBackend\""},
    {"/chat_template", "\"{{ messages[99999999999] }}{{ messages[-5] }}\""},
    {"/chat_template", "\"{{ messages[5:1] }}{{ 'abc'[9:] }}{{ 'abc'[-9:-7] }}\""},
    {"/chat_template", "\"{{ 1 // 0 }}\""},
    {"/chat_template", "\"{{ 1 % 0 }}\""},
    {"/chat_template", "\"{{ [].pop() }}\""},
    {"/chat_template", "\"{{ [].pop(5) }}\""},
    {"/chat_template", "\"{{ {}[1] }}{{ {'a':1}.b.c.d }}\""},
    {"/chat_template", "\"{{ '99999999999999999999'|int }}{{ 1|nothing }}\""},
    {"/chat_template", "\"{{ strftime_now('%s%n%c%x') }}\""},
    {"/chat_template", "\"{{ raise_exception('no') }}\""},
    {"/chat_template", "\"{% for i in range(1,5,0) %}x{% endfor %}\""},
    {"/chat_template", "\"{% for i in range(100000) %}{% endfor %}\""},
    {"/chat_template", "\"{% for %}{% endfor %}\""},
    {"/chat_template", "\"{% endif %}{{ }}{{\""},
    {"/chat_template", "[{\"name\":\"default\",\"template\":\"x\"}]"},
};

static void edit_tokens(const char *model, const char *path, const char *file)
{
    edits(model, path, file, token_edits, sizeof token_edits / sizeof *token_edits);
}

static void edit_class(const char *model, const char *path, const char *file)
{
    edits(model, path, file, class_edits, sizeof class_edits / sizeof *class_edits);
}

/* The last pair: every kind of model with every class. */
static void edit_both(const char *model, const char *path, const char *file)
{
    const char *const config = "tokenizer_config.json";
    size_t bytes;
    for (size_t i = 0; i < 10; i++) {
        char *text = folder_read(model, config, &bytes);
        json_t *root = json_loads(text, 0, NULL);
        set_at(root, class_edits[i].place, json_loads(class_edits[i].value, JSON_DECODE_ANY, NULL));
        free(text);
        text = json_dumps(root, 0);
        folder_write(path, config, text, strlen(text));
        free(text);
        json_decref(root);
        edits(model, path, file, token_edits, sizeof token_edits / sizeof *token_edits);
    }
}

static void test_well_formed_tokenizers(void **state)
{
    (void)state;
    run_cases(edit_tokens, the_model(SHARED), "tokenizer.json");
    check("tokenizer.json, word by word");
    assert_true(shared->by_outcome[ANSWERED] > 5);
    run_cases(edit_class, the_model(SHARED), "tokenizer_config.json");
    check("tokenizer_config.json, word by word");
    assert_true(shared->by_outcome[ANSWERED] > 5);
    if (every == 1) {
        run_cases(edit_both, the_model(SHARED), "tokenizer.json");
        check("both, word by word");
    }
}

/* As long as the checks let them be. */
static void longest(const char *model, const char *path, const char *file)
{
    static const struct {
        const char *what, *before, *again, *behind;
        size_t bytes;
    } forms[] = {
        {"a text", "", "x", "", 65536},
        {"a comment", "{#", "x", "#}", 4096},
        {"a name", "{{ ", "x", " }}", 1020},
        {"not", "{{ ", "not ", "1 }}", 1016},
        {"a sum", "{{ 1", "+1", " }}", 1018},
        {"members", "{{ a", ".b", " }}", 1018},
        {"calls", "{{ a", "()", " }}", 1018},
        {"places", "{{ a", "[0]", " }}", 1014},
        {"a list", "{{ [", "1,", "1] }}", 1014},
        {"comparisons", "{{ 1", "<1", " }}", 1018},
        {"names of a loop", "{% for a", ",a", " in [] %}{% endfor %}", 1000},
        {"groups", "{{ ", "(", "1", 1000},
        {"ifs", "", "{% if true %}", "", 64 * 13},
        {"blanks", "{{ 1", " ", "}}", 4096},
        {"texts", "{{ 'a'", " 'a'", " }}", 60000},
        {"tags", "", "{{1}}", "", 2000},
        {"open tags", "", "{", "", 1024},
    };
    char *text = malloc(1 << 17);
    for (size_t i = 0; text && i < sizeof forms / sizeof *forms; i++) {
        char *end = text + sprintf(text, "%s", forms[i].before);
        if (!wanted(true))
            continue;
        for (size_t made = 0; made + strlen(forms[i].again) <= forms[i].bytes; made += strlen(forms[i].again))
            end += sprintf(end, "%s", forms[i].again);
        sprintf(end, "%s", forms[i].behind);
        size_t bytes;
        char *config = folder_read(model, file, &bytes);
        sweep_path = path;
        sweep_file = file;
        sweep_root = json_loads(config, 0, NULL);
        set_at(sweep_root, "/chat_template", json_string(text));
        snprintf(place, sizeof place, "/chat_template");
        try_edge(forms[i].what);
        json_decref(sweep_root);
        free(config);
    }
    free(text);
}

static void test_the_longest_templates(void **state)
{
    (void)state;
    run_cases(longest, the_model(SHARED), "tokenizer_config.json");
    check("long templates");
    assert_true(shared->by_outcome[ANSWERED] > 10);
}

/* ---- what is no file --------------------------------------------------------------------------------------------- */

static void no_files(const char *model, const char *path, const char *file)
{
    static const char *const names[] = {"genai_config.json",    "tokenizer.json",      "tokenizer_config.json",
                                        "model.onnx",           "chat_template.jinja", "chat_template.json",
                                        "tokenizer_module.json"};
    char name[256], what[256];
    (void)file;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int kind = 0; kind < 4; kind++) {
            if (!wanted(true))
                continue;
            snprintf(name, sizeof name, "%s/%s", path, names[i]);
            unlink(name);
            need((kind == 0   ? mkfifo(name, 0600)
                  : kind == 1 ? mkdir(name, 0700)
                              : symlink(kind == 2 ? "/dev/zero" : names[i], name)) == 0,
                 name);
            snprintf(what, sizeof what, "%s is %s", names[i],
                     kind == 0   ? "a pipe"
                     : kind == 1 ? "a folder"
                     : kind == 2 ? "a device"
                                 : "a link to itself");
            try(path, what);
            if (kind == 1)
                rmdir(name);
            else
                unlink(name);
            if (i < FOLDER_FILES) {
                size_t bytes;
                char *data = folder_read(model, names[i], &bytes);
                folder_write(path, names[i], data, bytes);
                free(data);
            }
        }
}

static void test_what_is_no_file(void **state)
{
    (void)state;
    run_cases(no_files, the_model(SHARED), "");
    check("no files");
    assert_true(shared->by_outcome[REFUSED] >= 6 * 3);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_and_changed_configs),       cmocka_unit_test(test_cut_and_changed_tokenizers),
        cmocka_unit_test(test_cut_and_changed_graphs),        cmocka_unit_test(test_values_at_their_edges),
        cmocka_unit_test(test_well_formed_words_of_a_config), cmocka_unit_test(test_well_formed_tokenizers),
        cmocka_unit_test(test_the_longest_templates),         cmocka_unit_test(test_what_is_no_file),
    };
    verbose = getenv("HOSTILE_VERBOSE") != NULL;
    every = argc > 1 ? atoi(argv[1]) : every;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
