/* hostile.c: cut and bit-flipped files. Each is loaded and run once in a child process of its own: a clear error or an
 * honest answer, the ledger back at zero, and no signal. Without arguments: the two small models. By hand:
 *   test-gguf-hostile FILE CUTS FLIPS SEED FOCUS   a copy of any model; most flips fall into its first FOCUS bytes
 *   test-gguf-hostile each FILE…                   files as they are
 * With a device of CUDA in WEIR_TEST_DEVICE each is loaded there, too, and has to get the status that it gets on the host:
 * fewer of them, as each child begins with CUDA anew. WEIR_LLAMA_CUDA names the folder of the library for it.
 * HOSTILE_VERBOSE in the environment shows every step with its refusal. */
#include "common.h"
#include <weir/engine.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWERED = 0, REFUSED = 1, WRONG = 2, NO_ENGINE = 3, SECONDS = 120 };

typedef struct tally {
    int answered, refused, crashed;
    int by_status[WEIR_STATUS_COUNT];
} tally;

static bool verbose;
static const char *device; /* NULL: the host alone */

/* On the device's runtime, with the host's for pinned memory, or on the host's alone. */
static bool make_places(const char *on, weir_runtime **runtimes, weir_client **client)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options named = WEIR_INIT(weir_client_options);
    named.name = "hostile";
    options.budget = 1ull << 30;
    if (weir_runtime_create("host", &options, &runtimes[0]) != WEIR_OK)
        return false;
    options.host = runtimes[0];
    if (on && weir_runtime_create(on, &options, &runtimes[1]) != WEIR_OK)
        return false;
    return weir_client_create(runtimes[on ? 1 : 0], &named, client) == WEIR_OK;
}

/* What all clients of the host have: a device's model has pinned memory, too. */
static bool is_empty(weir_runtime *host, weir_client *client)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats), all[4] = {WEIR_INIT(weir_client_stats)};
    weir_stats sum = WEIR_INIT(weir_stats);
    size_t count = 0;
    if (weir_client_info(client, &stats) != WEIR_OK || stats.live != 0 || stats.outside != 0)
        return false;
    if (weir_snapshot(host, &sum, all, 4, &count) != WEIR_OK)
        return false;
    for (size_t i = 0; i < count && i < 4; i++)
        if (all[i].live != 0)
            return false;
    return true;
}

static int run_once(const weir_engine *engine, weir_engine_model *model)
{
    weir_model_details info = WEIR_INIT(weir_model_details);
    weir_setting settings[] = {{"tokens", "3"}, {"ignore_eos", "1"}};
    weir_tensor input = text_input("a cab. bed 17\n\xe2\x82\xac fade");
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    if (engine->info(model, &info) != WEIR_OK)
        return WRONG;
    weir_inference inference = inference_of(&input, settings, info.generates ? 2 : 0);
    weir_status status = engine->infer(model, &inference, &outputs);
    if (status == WEIR_OK)
        engine->release_outputs(model, &outputs);
    return status == WEIR_OK ? ANSWERED : REFUSED;
}

/* What the child does; its exit status carries the outcome in the low bits and the load's status above. */
static int load_and_run(const char *path, const char *on)
{
    const weir_engine *engine = NULL;
    weir_runtime *runtimes[2] = {NULL, NULL};
    weir_client *client = NULL;
    weir_engine_model *model = NULL;
    const weir_setting settings[] = {{"llama_cuda", getenv("WEIR_LLAMA_CUDA")}};
    if (weir_engine_get("gguf", &engine) != WEIR_OK)
        return NO_ENGINE;
    if (!make_places(on, runtimes, &client))
        return WRONG;
    weir_engine_place place = {runtimes[on ? 1 : 0], client};
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    load.path = path;
    load.places = &place;
    load.place_count = 1;
    load.settings = settings;
    load.setting_count = on && settings[0].value ? 1 : 0;
    weir_status status = engine->load(&load, &model);
    if (verbose && status != WEIR_OK)
        fprintf(stderr, "    %s: %s\n", weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
    int outcome = status == WEIR_OK ? run_once(engine, model) : REFUSED;
    if (status == WEIR_OK)
        engine->unload(model);
    return is_empty(runtimes[0], client) ? outcome | (int)status << 2 : WRONG;
}

/* In a child of its own; as waitpid says it. */
static int load_apart(const char *path, const char *on)
{
    int how = 0;
    pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        _exit(load_and_run(path, on));
    }
    assert_true(child > 0 && waitpid(child, &how, 0) == child);
    return how;
}

/* Refused alike: by the same status of the load. */
static bool is_alike(int how, int on_host)
{
    return WIFEXITED(how) && WIFEXITED(on_host) && WEXITSTATUS(how) >> 2 == WEXITSTATUS(on_host) >> 2;
}

static void try(const char *path, const char *what, uint64_t at, int bit, tally *count)
{
    if (verbose)
        fprintf(stderr, "  %s %llu.%d\n", what, (unsigned long long)at, bit);
    int how = load_apart(path, device);
    int outcome = WIFEXITED(how) ? WEXITSTATUS(how) & 3 : WRONG;
    if (device && !is_alike(how, load_apart(path, NULL)))
        outcome = WRONG;
    if (WIFEXITED(how) && outcome != WRONG)
        count->by_status[WEXITSTATUS(how) >> 2]++;
    count->answered += outcome == ANSWERED;
    count->refused += outcome == REFUSED;
    if (outcome == NO_ENGINE) {
        const char *required = getenv("WEIR_REQUIRE_ENGINES");
        if (required && strcmp(required, "1") == 0)
            fail_msg("there is no engine, and WEIR_REQUIRE_ENGINES is set");
        skip();
    }
    if (outcome != ANSWERED && outcome != REFUSED) {
        count->crashed++;
        print_error("%s %llu bit %d: %s %d\n", what, (unsigned long long)at, bit,
                    WIFSIGNALED(how) ? "killed by signal" : "wrong, exit status",
                    WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    }
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 17;
}

static void flip(const char *path, uint64_t at, int bit)
{
    unsigned char byte = 0;
    int file = open(path, O_RDWR);
    assert_true(file >= 0 && pread(file, &byte, 1, (off_t)at) == 1);
    byte ^= (unsigned char)(1u << bit);
    assert_int_equal(pwrite(file, &byte, 1, (off_t)at), 1);
    close(file);
}

/* `focus` bytes at the beginning get most of the flips: header, keys and tensor directory. */
static tally campaign(const char *path, uint64_t focus, int cuts, int flips, uint64_t seed)
{
    struct stat about;
    tally count = {0};
    assert_int_equal(stat(path, &about), 0);
    uint64_t size = (uint64_t)about.st_size;
    focus = focus < size ? focus : size;
    for (int i = 0; i < flips; i++) {
        /* A third each: the numbers in front, all metadata, and anywhere. */
        uint64_t range = i % 3 == 0 ? (focus < 2048 ? focus : 2048) : i % 3 == 1 || i % 12 ? focus : size;
        uint64_t at = next(&seed) % range;
        int bit = (int)(next(&seed) % 8);
        flip(path, at, bit);
        try(path, "flip", at, bit, &count);
        flip(path, at, bit);
    }
    uint64_t length = size;
    for (int i = 0; i < cuts; i++) {
        /* Shorter and shorter: the first half within the data, the second within the metadata, at every length there. */
        uint64_t shortest = i < cuts / 2 ? focus : 0;
        uint64_t step = (length - shortest) / (uint64_t)((i < cuts / 2 ? cuts / 2 : cuts) - i) + 1;
        length = length > step ? length - (step > 1 ? step - next(&seed) % (step / 2 + 1) : 1) : 0;
        assert_int_equal(truncate(path, (off_t)length), 0);
        try(path, "cut", length, 0, &count);
    }
    return count;
}

static void report(const char *what, const tally *count)
{
    print_message("%s: %d answered, %d refused, %d crashed;", what, count->answered, count->refused, count->crashed);
    for (int i = 0; i < WEIR_STATUS_COUNT; i++)
        if (count->by_status[i])
            print_message(" %s %d", weir_name_of(WEIR_NAMES_STATUS, i), count->by_status[i]);
    print_message("\n");
}

static void small_model(const char *name, void (*write)(const char *path, const model_shape *shape), uint64_t focus)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/weir-hostile-%d.gguf", (int)getpid());
    write(path, &small_shape);
    int less = !device ? 1 : getenv("STUB_CUDA_TOTAL") ? 6 : 15; /* CUDA takes its time to begin */
    tally count = campaign(path, focus, 210 / less, 240 / less, 1);
    unlink(path);
    report(name, &count);
    assert_int_equal(count.crashed, 0);
    assert_true(count.answered > 0 && count.refused > 200 / less);
}

static void test_llama(void **state)
{
    (void)state;
    small_model("llama", write_llama, 9000);
}

static void test_bert(void **state)
{
    (void)state;
    small_model("bert", write_bert, 4500);
}

/* Every number of the metadata at the edges of what it can be. */
static void test_edge_values(void **state)
{
    static const char *const keys[] = {"llama.context_length",
                                       "llama.embedding_length",
                                       "llama.block_count",
                                       "llama.feed_forward_length",
                                       "llama.attention.head_count",
                                       "llama.attention.head_count_kv",
                                       "llama.rope.dimension_count",
                                       "tokenizer.ggml.bos_token_id",
                                       "tokenizer.ggml.unknown_token_id",
                                       "bert.context_length",
                                       "bert.embedding_length",
                                       "bert.block_count",
                                       "bert.feed_forward_length",
                                       "bert.attention.head_count",
                                       "bert.pooling_type",
                                       "tokenizer.ggml.token_type_count",
                                       "tokenizer.ggml.seperator_token_id"};
    static const uint32_t values[] = {0, 1, 3, 8, 64, 257, 65536, 1u << 31, UINT32_MAX};
    char path[64];
    tally count = {0};
    (void)state;
    snprintf(path, sizeof path, "/tmp/weir-hostile-%d.gguf", (int)getpid());
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            model_shape shape = small_shape;
            shape.replace_u32 = keys[i];
            shape.replacement = values[k];
            (strncmp(keys[i], "llama", 5) == 0 || i == 7 ? write_llama : write_bert)(path, &shape);
            try(path, keys[i], values[k], 0, &count);
        }
    unlink(path);
    report("edge values", &count);
    assert_int_equal(count.crashed, 0);
}

/* A llama under other names: most are refused for what they lack, and some trip over an assertion of llama.cpp's. */
static void test_other_architectures(void **state)
{
    static const char *const names[] = {"qwen2",  "paddleocr", "ernie4_5", "qwen2vl", "glm4", "gemma",
                                        "phi2",   "falcon",    "mamba",    "rwkv6",   "t5",   "baichuan",
                                        "refact", "minicpm",   "deci",     "nothing"};
    char path[64];
    tally count = {0};
    (void)state;
    snprintf(path, sizeof path, "/tmp/weir-hostile-%d.gguf", (int)getpid());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        model_shape shape = small_shape;
        shape.architecture = names[i];
        write_llama(path, &shape);
        try(path, names[i], 0, 0, &count);
    }
    unlink(path);
    report("other architectures", &count);
    assert_int_equal(count.crashed, 0);
}

static int campaign_on_copy(char **words)
{
    char path[64], command[600];
    snprintf(path, sizeof path, "/tmp/weir-hostile-%d.gguf", (int)getpid());
    snprintf(command, sizeof command, "cp '%s' %s", words[1], path);
    if (access(words[1], R_OK) != 0 || system(command) != 0)
        return 77; /* ctest: skipped */
    tally count =
        campaign(path, strtoull(words[5], NULL, 10), atoi(words[2]), atoi(words[3]), strtoull(words[4], NULL, 10));
    unlink(path);
    report(words[1], &count);
    return count.crashed != 0;
}

static int files_as_they_are(char **paths, int count)
{
    tally sum = {0};
    for (int i = 0; i < count; i++)
        try(paths[i], paths[i], 0, 0, &sum);
    report("files", &sum);
    return sum.crashed != 0;
}

int main(int argc, char **argv)
{
    verbose = getenv("HOSTILE_VERBOSE") != NULL;
    device = getenv("WEIR_TEST_DEVICE");
    if (argc > 2 && strcmp(argv[1], "each") == 0)
        return files_as_they_are(argv + 2, argc - 2);
    if (argc == 6)
        return campaign_on_copy(argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_llama), cmocka_unit_test(test_bert),
                                       cmocka_unit_test(test_edge_values), cmocka_unit_test(test_other_architectures)};
    const struct CMUnitTest on_device[] = {tests[0], tests[1], tests[3]};
    return device ? cmocka_run_group_tests(on_device, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}
