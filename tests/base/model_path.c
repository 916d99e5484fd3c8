/* What the path of a model says: its name, and who takes it. */
#include "base/paths.h"
#include "core/core.h"

#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/weir-path-XXXXXX";

static const char *in_directory(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s%s%s", directory, *name ? "/" : "", name);
    return path;
}

static void write_bytes(const char *name, const char *bytes, size_t count)
{
    FILE *file = fopen(in_directory(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void models_have_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"bert.onnx", "bert.onnx"},
        {"a/bert.onnx", "bert.onnx"},
        {"/bert.onnx", "bert.onnx"},
        {"phi", "phi"},
        {"a/phi/", "phi"},
        {"phi///", "phi"},
        {"phi/genai_config.json", "phi"},
        {"/a/phi//genai_config.json", "phi"},
        {"/phi/genai_config.json/", "phi"},
        {"genai_config.json", "genai_config.json"},
        {"/genai_config.json", "genai_config.json"},
        {"phi/my_genai_config.json", "my_genai_config.json"},
        {"phi/genai_config.jso", "genai_config.jso"},
        {".", "."},
        {"/", "/"},
        {"//", "//"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t length;
        const char *name = wi_path_model_name(names[i][0], &length);
        if (length != strlen(names[i][1]) || memcmp(name, names[i][1], length) != 0)
            print_error("%s is called %.*s\n", names[i][0], (int)length, name);
        assert_int_equal(length, strlen(names[i][1]));
        assert_memory_equal(name, names[i][1], length);
    }
}

static void words_fit_names(void **state)
{
    (void)state;
    static const char words[] = ".gguf  .ggml genai_config.json";
    static const char *const taken[] = {"a.gguf", "a.GGML", "/a/b.gguf", "genai_config.json", "a/genai_config.json"};
    static const char *const others[] = {"gguf",
                                         ".gguf",
                                         "a.ggu",
                                         "a.gguf/",
                                         "my_genai_config.json",
                                         "a.onnx",
                                         "a.gguf.old",
                                         "",
                                         "genai",
                                         "genai_config.json/",
                                         "genai_config",
                                         "Genai_config.json"};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        assert_true(wi_suffix_of(words, taken[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(wi_suffix_of(words, others[i]));
    assert_false(wi_suffix_of("", "a.gguf"));
    assert_false(wi_suffix_of(NULL, "a.gguf"));
}

static void folders_are_taken_by_what_is_in_them(void **state)
{
    (void)state;
    static const char words[] = ".toy .d cfg.json";
    assert_int_equal(mkdir(in_directory("a.toy"), 0700), 0);
    assert_false(wi_path_taken(words, in_directory("a.toy"))); /* which is the ending of files */
    write_bytes("a.toy/x.toy", "", 0);
    write_bytes("a.toy/.d", "", 0); /* an ending is no name */
    assert_false(wi_path_taken(words, in_directory("a.toy")));
    assert_int_equal(mkdir(in_directory("a.toy/cfg.json"), 0700), 0); /* which is no file */
    assert_false(wi_path_taken(words, in_directory("a.toy")));
    assert_int_equal(rmdir(in_directory("a.toy/cfg.json")), 0);
    write_bytes("a.toy/cfg.json", "", 0);
    assert_true(wi_path_taken(words, in_directory("a.toy")));
    assert_true(wi_path_taken(words, in_directory("a.toy/")));
    assert_true(wi_path_taken(words, in_directory("a.toy/cfg.json")));
    assert_true(wi_path_taken(words, in_directory("a.toy/x.toy")));
    assert_true(wi_path_taken(words, in_directory("that/is/not/there.toy")));
    assert_false(wi_path_taken(".toy", in_directory("a.toy")));
    assert_false(wi_path_taken(NULL, in_directory("a.toy")));
    static const char *const made[] = {"a.toy/x.toy", "a.toy/.d", "a.toy/cfg.json", "a.toy"};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        assert_int_equal(remove(in_directory(made[i])), 0);
}

static void first_bytes_tell(void **state)
{
    (void)state;
    write_bytes("m", "GGUF\3", 5);
    assert_true(wi_suffix_of(".gguf", wi_suffix_by_content(in_directory("m"))));
    write_bytes("m", "\x08\x07\x12", 3);
    assert_true(wi_suffix_of(".onnx", wi_suffix_by_content(in_directory("m"))));
    write_bytes("m", "{}", 2);
    assert_string_equal(wi_suffix_by_content(in_directory("m")), "");
    assert_string_equal(wi_suffix_by_content(in_directory("")), ""); /* a folder */
    assert_string_equal(wi_suffix_by_content("/there/is/none"), "");
    assert_int_equal(remove(in_directory("m")), 0);
}

/* The option holds the folder for the process, as WEIR_HOME does. */
static void bare_names_may_be_the_stores(void **state)
{
    (void)state;
    static const char *const others[] = {"y.toy", "./x.toy", "a/x.toy", "models/x.toy", "/x.toy", "x.toy/", ""};
    char stored[PATH_MAX], here[PATH_MAX], long_name[PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(weir_option_set("home", directory), WEIR_OK);
    assert_int_equal(mkdir(in_directory("models"), 0700), 0);
    assert_int_equal(mkdir(in_directory("models/folder"), 0700), 0);
    write_bytes("models/x.toy", "", 0);
    assert_ptr_equal(wi_path_meant("x.toy", stored), stored);
    assert_string_equal(stored, in_directory("models/x.toy"));
    assert_ptr_equal(wi_path_meant("folder", stored), stored);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_ptr_equal(wi_path_meant(others[i], stored), others[i]);
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_ptr_equal(wi_path_meant(long_name, stored), long_name);
    /* What is here comes first. */
    assert_int_equal(chdir(directory), 0);
    write_bytes("x.toy", "", 0);
    const char *word = "x.toy";
    assert_ptr_equal(wi_path_meant(word, stored), word);
    assert_int_equal(chdir(here), 0);
    static const char *const made[] = {"x.toy", "models/x.toy", "models/folder", "models"};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        assert_int_equal(remove(in_directory(made[i])), 0);
    assert_int_equal(weir_option_set("home", NULL), WEIR_OK);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_have_names),
        cmocka_unit_test(words_fit_names),
        cmocka_unit_test(folders_are_taken_by_what_is_in_them),
        cmocka_unit_test(first_bytes_tell),
        cmocka_unit_test(bare_names_may_be_the_stores),
    };
    return cmocka_run_group_tests_name("model path", tests, set_up, tear_down);
}
