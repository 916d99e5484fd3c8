/* folder.c: what is read of a model's folder, and what is refused before GenAI sees it: the graph against the config, the
 * tokenizer's tables, patterns and templates. No engine is needed. */
#include "engines/llm/wl.h"

#include "common.h"
#include "good_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

/* How often the tokenizer was read, and by how much the clock is ahead. */
static int tokenizers_read;
static time_t later;
/* In which bits another file of the tokenizer's name differs from its own. */
static struct stat differs;

weir_status __wrap_wl_tokenizer_check(const wl_folder *of);
weir_status __real_wl_tokenizer_check(const wl_folder *of);
/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_clock_gettime(clockid_t clock, struct timespec *out);
__attribute__((visibility("default"))) int __wrap_fstatat(int of, const char *name, struct stat *out, int flags);
int __real_fstatat(int of, const char *name, struct stat *out, int flags);

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

int __wrap_fstatat(int of, const char *name, struct stat *out, int flags)
{
    int answer = __real_fstatat(of, name, out, flags);
    if (strcmp(name, "tokenizer.json") != 0)
        return answer;
    out->st_dev ^= differs.st_dev;
    out->st_ino ^= differs.st_ino;
    out->st_size ^= differs.st_size;
    out->st_mode ^= differs.st_mode;
    out->st_mtim.tv_sec ^= differs.st_mtim.tv_sec;
    out->st_mtim.tv_nsec ^= differs.st_mtim.tv_nsec;
    out->st_ctim.tv_sec ^= differs.st_ctim.tv_sec;
    out->st_ctim.tv_nsec ^= differs.st_ctim.tv_nsec;
    return answer;
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

/* The longest name that a file has here, which is looked for, and names that are longer or lead elsewhere. */
static void test_the_graphs_file_is_in_the_folder(void **state)
{
    (void)state;
    static const char *const others[] = {"",  "/model.onnx", "../model.onnx", "a/../../model.onnx", "a\\\\model.onnx",
                                         ".."};
    for (int length = 255; length <= 300; length += length < 257 ? 1 : 43) {
        char name[400];
        memset(name, 'x', sizeof name);
        snprintf(name + length, sizeof name - (size_t)length, "%s", "\"");
        char filename[500];
        snprintf(filename, sizeof filename, "\"filename\": \"%s", name);
        with("genai_config.json", good_config, "\"filename\": \"model.onnx\"", filename);
        refused(length < 256 ? WEIR_ERR_NOT_FOUND : WEIR_ERR_CORRUPT,
                length < 256 ? "xxx" : "\"filename\" is no name of a file");
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char filename[100];
        snprintf(filename, sizeof filename, "\"filename\": \"%s\"", others[i]);
        with("genai_config.json", good_config, "\"filename\": \"model.onnx\"", filename);
        refused(WEIR_ERR_CORRUPT, "\"filename\" is no name of a file in the folder");
    }
    with("genai_config.json", good_config, "\"filename\": \"model.onnx\"", "\"filename\": 1");
    refused(WEIR_ERR_CORRUPT, "\"filename\" is no name of a file in the folder");
}

/* Whatever is wrong with a file, there is nothing to give back. */
static void test_files_that_hold_no_object(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *words;
        weir_status status;
    } files[] = {{"none.json", NULL, "none.json is not there", WEIR_ERR_NOT_FOUND},
                 {".", NULL, "is no file of at most 9 bytes", WEIR_ERR_CORRUPT},
                 {"chat_template.json", "{\"a\": 123}", "is no file of at most 9 bytes", WEIR_ERR_CORRUPT},
                 {"chat_template.json", "{\"a\": }", "chat_template.json:1:", WEIR_ERR_CORRUPT},
                 {"chat_template.json", "[1]", "holds no JSON object", WEIR_ERR_CORRUPT},
                 {"chat_template.json", "{\"a\": 12}", "", WEIR_OK}};
    wl_folder of = {.path = ""};
    snprintf(of.path, sizeof of.path, "%s", folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        json_t *root = (json_t *)(void *)&of;
        if (files[i].text)
            write_file(files[i].name, files[i].text);
        assert_int_equal(wl_folder_json(&of, files[i].name, 9, 0, &root), files[i].status);
        if (files[i].status == WEIR_OK) {
            assert_int_equal(json_integer_value(json_object_get(root, "a")), 12);
            json_decref(root);
        } else {
            assert_words(weir_detail(), files[i].words);
            assert_null(root);
        }
    }
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

/* A name that only begins as that of a cache, and ends there, is of another input. */
static void test_an_input_whose_name_says_no_more_than_past(void **state)
{
    (void)state;
    static const char *const names[] = {"past_", "past", "pass_x", "past_x"};
    wl_folder read;
    graph_shape shape = good_graph;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        shape.more = names[i];
        write_graph(&shape);
        OK(wl_folder_read(folder, &read));
        assert_int_equal(wl_folder_cache(&read, 10), (10 * 2 * 2 * 3 * 8 + (i == 3 ? 3 * 5 : 0)) * sizeof(float));
    }
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

static void written_at(const char *name, time_t from_now)
{
    char path[160];
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) + from_now}};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* One of its files that was written just now, whichever it is, may be written once more within a tick of the clock. */
static void test_each_file_has_to_be_settled(void **state)
{
    static const char *const files[] = {"genai_config.json", "model.onnx", "tokenizer.json", "tokenizer_config.json"};
    wl_folder read;
    (void)state;
    later = 60;
    look(&read, 1);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        written_at(files[i], later);
        look(&read, 1);
        look(&read, 1);
        written_at(files[i], 0);
        look(&read, 1);
        look(&read, 0);
    }
    later = 0;
}

/* Nor is it enough that a file was put back to its length and to the time it had. */
static void test_a_file_that_was_put_back_to_its_time_is_read_anew(void **state)
{
    (void)state;
    wl_folder read;
    struct stat before, after;
    char path[160];
    snprintf(path, sizeof path, "%s/genai_config.json", folder);
    later = 60;
    look(&read, 1);
    look(&read, 0);
    assert_int_equal(stat(path, &before), 0);
    do { /* until the file system's clock has gone on */
        const struct timespec times[2] = {before.st_atim, before.st_mtim};
        with("genai_config.json", good_config, "\"top_k\": 7", "\"top_k\": 9");
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        assert_int_equal(stat(path, &after), 0);
    } while (after.st_ctim.tv_sec == before.st_ctim.tv_sec && after.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
    assert_int_equal(after.st_size, before.st_size);
    look(&read, 1);
    assert_int_equal(read.top_k, 9);
    later = 0;
}

/* Another file may have its name, by a link that leads elsewhere, and be as old and as long. */
static void test_another_file_in_the_place_of_one_is_read(void **state)
{
    (void)state;
    const struct stat others[] = {{.st_dev = 1},         {.st_ino = 1},         {.st_size = 1},
                                  {.st_mode = 1},        {.st_mtim.tv_sec = 1}, {.st_mtim.tv_nsec = 1},
                                  {.st_ctim.tv_sec = 1}, {.st_ctim.tv_nsec = 1}};
    wl_folder read;
    later = 60;
    look(&read, 1);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        differs = others[i];
        look(&read, 1);
        look(&read, 0);
    }
    differs = (struct stat){0};
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

/* Nor is a graph known whose weights are in such a folder, or that is there with them. */
static void test_weights_in_a_folder_are_read_anew(void **state)
{
    (void)state;
    static const struct {
        const char *graph, *beside, *file;
        int again;
    } places[] = {{"model.onnx", "weights", "weights", 0},
                  {"model.onnx", "inner/weights", "inner/weights", 1},
                  {"inner/model.onnx", "weights", "inner/weights", 1}};
    static const char weights[4 * 16 * sizeof(float)] = {0};
    char inner[128], path[192], model[192], word[64];
    snprintf(inner, sizeof inner, "%s/inner", folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    later = 60;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        wl_folder read;
        graph_shape shape = good_graph;
        shape.beside = places[i].beside;
        snprintf(model, sizeof model, "%s/%s", folder, places[i].graph);
        graph_write(model, &shape);
        snprintf(path, sizeof path, "%s/%s", folder, places[i].file);
        FILE *to = fopen(path, "wb");
        assert_non_null(to);
        assert_int_equal(fwrite(weights, 1, sizeof weights, to), sizeof weights);
        assert_int_equal(fclose(to), 0);
        snprintf(word, sizeof word, "\"%s\"", places[i].graph);
        with("genai_config.json", good_config, "\"model.onnx\"", word);
        look(&read, 1);
        assert_int_equal(read.weight_bytes, sizeof weights);
        look(&read, places[i].again);
        unlink(path);
        unlink(model);
    }
    later = 0;
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
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(test_a_folder_is_read),
        WITH_FOLDER(test_what_may_be_left_out_has_its_standard),
        WITH_FOLDER(test_the_graphs_file_is_in_the_folder),
        WITH_FOLDER(test_files_that_hold_no_object),
        cmocka_unit_test(test_a_cache_without_measure),
        cmocka_unit_test(test_paths),
        WITH_FOLDER(test_paths_of_the_folder_one_is_in),
        WITH_FOLDER(test_the_graph_is_as_the_config_has_it),
        WITH_FOLDER(test_keys_and_values_are_as_the_graph_has_them),
        WITH_FOLDER(test_an_input_whose_name_says_no_more_than_past),
        WITH_FOLDER(test_the_tables_of_a_tokenizer),
        WITH_FOLDER(test_tokens_have_a_length),
        WITH_FOLDER(test_nested_files),
        WITH_FOLDER(test_the_tokenizers_config),
        cmocka_unit_test(test_templates_have_a_measure),
        WITH_FOLDER(test_templates_wherever_they_are),
        WITH_FOLDER(test_a_template_that_is_no_file),
        WITH_FOLDER(test_a_folder_is_read_once),
        WITH_FOLDER(test_each_file_has_to_be_settled),
        WITH_FOLDER(test_a_file_that_was_put_back_to_its_time_is_read_anew),
        WITH_FOLDER(test_another_file_in_the_place_of_one_is_read),
        WITH_FOLDER(test_a_folder_with_folders_is_read_anew),
        WITH_FOLDER(test_weights_in_a_folder_are_read_anew),
        WITH_FOLDER(test_folders_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
