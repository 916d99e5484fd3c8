/* llama_plain.c: how fast plain llama.cpp computes a model, with its own default options: prompts, and tokens one by one. The
 * libraries are the store's (WEIR_HOME's, or that of the build), opened at run time. With --through weir the same library's memory on the device, and its
 * pinned memory, goes to a client of weir through a redirect; without it nothing of weir's is called.
 *
 *   bench-llama-plain MODEL [--device cuda|cpu] [--through plain|weir] [--rounds N] [--prompts 512,2048] [--after 512]
 *                     [--tokens 128] [--threads N] [--context N] [--again 1] [--budget BYTES] [--llama FOLDER] [--module FOLDER]
 *
 * The context has N cells, or as many as the longest of these wants. With --again 1 model and context are made twice, and `taken`
 * is of the second time: without what CUDA and its libraries keep from the first.
 *
 * Answers with one JSON object. bench/llama_compare.py runs it by turns, in a process each: a process decides once which
 * way the module takes its memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

#include "cuda_llama.h"
#include "interpose/redirect_stats.h"

enum { MOST_PROMPTS = 8, MOST_ROUNDS = 64, MOST_TOKENS = 4096, FIRST_WORD = 259, FAILED = 1, USAGE = 2 };

typedef struct options {
    const char *model, *device, *through, *llama, *module;
    int rounds, prompts[MOST_PROMPTS], prompt_count, after, tokens, threads, context, again;
    uint64_t budget;
} options;

typedef struct bench {
    options o;
    cuda_llama lib;
    weir_runtime *host, *runtime;
    weir_client *client;
    wi_cuda_redirect *redirect;
    struct llama_model *model;
    struct llama_context *context;
    int32_t words, *prompt, chosen[MOST_TOKENS];
    bool same; /* every round has chosen the same */
    double begun, load_ms, context_ms, ready_ms,
        first_ms; /* ready, and with one prompt answered, since the program began */
    double prompt_ms[MOST_PROMPTS][MOST_ROUNDS], decode_ms[MOST_ROUNDS];
    size_t free_first, free_last, total; /* of the device, as the model is told */
    weir_client_stats ready, ran;
    wi_cuda_redirect_stats redirected;
} bench;

static void need(bool there, const char *what, const char *why)
{
    if (there)
        return;
    fprintf(stderr, "bench-llama-plain: %s: %s\n", what, why ? why : "failed");
    exit(FAILED);
}

#define WEIR(call) need((call) == WEIR_OK, #call, weir_detail())

static double now_ms(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

static bool on_cuda(const bench *b)
{
    return strcmp(b->o.device, "cuda") == 0;
}

static bool through_weir(const bench *b)
{
    return strcmp(b->o.through, "weir") == 0;
}

/* Opening ---------------------------------------------------------------------------------------------------------- */

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level >= GGML_LOG_LEVEL_WARN || getenv("WEIR_LOG"))
        fputs(text, stderr);
}

static void open_weir(bench *b)
{
    weir_runtime_options of_host = WEIR_INIT(weir_runtime_options), of_device = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    client.name = "llama";
    WEIR(weir_runtime_create("host", &of_host, &b->host));
    of_device.host = b->host;
    of_device.budget = b->o.budget;
    WEIR(weir_runtime_create("cuda:0", &of_device, &b->runtime));
    WEIR(weir_client_create(b->runtime, &client, &b->client));
    wi_cuda_redirect_options to = {
        .module = b->lib.path, .clients = &b->client, .client_count = 1, .memory_class = WEIR_CLASS_SCRATCH};
    WEIR(wi_cuda_redirect_begin(&to, &b->redirect));
}

static void open_libraries(bench *b)
{
    const char *problem = cuda_llama_open(&b->lib, b->o.llama);
    need(!problem, b->o.llama, problem);
    b->lib.llama_log_set(quiet, NULL);
    if (!on_cuda(b))
        return;
    problem = cuda_llama_open_module(&b->lib, b->o.module);
    need(!problem, b->o.module, problem);
    if (through_weir(b))
        open_weir(b);
    problem = cuda_llama_register(&b->lib);
    need(!problem, b->lib.path, problem);
    b->lib.ggml_backend_dev_memory(b->lib.device, &b->free_first, &b->total);
}

static void load(bench *b)
{
    ggml_backend_dev_t devices[] = {b->lib.device, NULL}; /* on the CPU there is none */
    struct llama_model_params params = b->lib.llama_model_default_params();
    double start = now_ms();
    params.devices = devices;
    cuda_llama_is_for(&b->lib, b->redirect, WEIR_CLASS_WEIGHTS);
    b->model = b->lib.llama_model_load_from_file(b->o.model, params);
    need(b->model, b->o.model, "cannot be loaded");
    b->load_ms = now_ms() - start;
    b->words = b->lib.llama_vocab_n_tokens(b->lib.llama_model_get_vocab(b->model));
    need(b->words > FIRST_WORD, b->o.model, "its vocabulary is too small");
}

static int longest(const bench *b)
{
    int most = b->o.after + b->o.tokens;
    for (int i = 0; i < b->o.prompt_count; i++)
        most = b->o.prompts[i] > most ? b->o.prompts[i] : most;
    return most;
}

static void make_context(bench *b)
{
    struct llama_context_params params = b->lib.llama_context_default_params();
    double start = now_ms();
    params.n_ctx = (uint32_t)(b->o.context ? b->o.context : longest(b));
    if (b->o.threads)
        params.n_threads = params.n_threads_batch = b->o.threads;
    cuda_llama_is_for(&b->lib, b->redirect, WEIR_CLASS_SCRATCH);
    b->context = b->lib.llama_init_from_model(b->model, params);
    need(b->context, b->o.model, "has no context");
    b->context_ms = now_ms() - start;
    b->ready_ms = now_ms() - b->begun;
    b->prompt = calloc((size_t)longest(b), sizeof *b->prompt);
    need(b->prompt, "memory", NULL);
    for (int i = 0; i < longest(b); i++)
        b->prompt[i] = FIRST_WORD + (int32_t)((i * 7919ll + 17) % (b->words - FIRST_WORD));
}

/* Measuring -------------------------------------------------------------------------------------------------------- */

static void compute(bench *b, int32_t *tokens, int count)
{
    int most = (int)b->lib.llama_n_batch(b->context);
    for (int at = 0; at < count; at += most)
        need(b->lib.llama_decode(b->context,
                                 b->lib.llama_batch_get_one(tokens + at, count - at < most ? count - at : most)) == 0,
             "llama_decode", NULL);
}

static double prefill(bench *b, int count)
{
    b->lib.llama_memory_clear(b->lib.llama_get_memory(b->context), true);
    b->lib.llama_synchronize(b->context);
    double start = now_ms();
    compute(b, b->prompt, count);
    b->lib.llama_synchronize(b->context);
    return now_ms() - start;
}

static int32_t likeliest(bench *b)
{
    const float *logits = b->lib.llama_get_logits_ith(b->context, -1);
    int32_t best = 0;
    for (int32_t i = 1; i < b->words; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static double decode(bench *b, bool first)
{
    prefill(b, b->o.after);
    int32_t token = likeliest(b);
    double start = now_ms();
    for (int i = 0; i < b->o.tokens; i++) {
        if (first)
            b->chosen[i] = token;
        b->same = b->same && b->chosen[i] == token;
        compute(b, &token, 1);
        token = likeliest(b); /* waits */
    }
    return now_ms() - start;
}

/* The first time of each is not counted: memory is taken, libraries are read, graphs captured. */
static void measure(bench *b)
{
    b->same = true;
    for (int round = -1; round < b->o.rounds; round++) {
        for (int i = 0; i < b->o.prompt_count; i++) {
            double ms = prefill(b, b->o.prompts[i]);
            b->first_ms = b->first_ms > 0 ? b->first_ms : now_ms() - b->begun;
            if (round >= 0)
                b->prompt_ms[i][round] = ms;
        }
        double ms = decode(b, round < 0);
        if (round >= 0)
            b->decode_ms[round] = ms;
    }
}

static void look(bench *b, weir_client_stats *into)
{
    *into = WEIR_INIT(weir_client_stats);
    if (b->client)
        WEIR(weir_client_info(b->client, into));
}

/* Telling ---------------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *name, const double *ms, int count, int tokens)
{
    double sorted[MOST_ROUNDS];
    memcpy(sorted, ms, (size_t)count * sizeof *ms);
    qsort(sorted, (size_t)count, sizeof *sorted, by_size);
    double median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    printf("\"%s\": {\"tokens\": %d, \"median_ms\": %.3f, \"tokens_per_s\": %.2f, \"ms\": [", name, tokens, median,
           tokens * 1e3 / median);
    for (int i = 0; i < count; i++)
        printf("%s%.3f", i ? ", " : "", ms[i]);
    printf("]}, ");
}

/* FNV-1a of the bytes of the last logits. */
static uint64_t checksum(bench *b)
{
    const unsigned char *at = (const unsigned char *)b->lib.llama_get_logits_ith(b->context, -1);
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < (size_t)b->words * sizeof(float); i++)
        hash = (hash ^ at[i]) * 0x100000001b3;
    return hash;
}

static void print_memory(const bench *b)
{
    const uint64_t *of = b->ran.live_class;
    printf("\"memory\": {\"total\": %zu, \"taken\": %zu", b->total, b->free_first - b->free_last);
    if (b->client)
        printf(", \"weights\": %llu, \"kv\": %llu, \"scratch\": %llu, \"scratch_of_context\": %llu, \"peak\": %llu, "
               "\"pinned\": %llu, \"allocations\": %llu, \"refused\": %llu, \"passed_on\": %llu, \"unseen\": \"%s\"",
               (unsigned long long)of[WEIR_CLASS_WEIGHTS], (unsigned long long)of[WEIR_CLASS_KV],
               (unsigned long long)of[WEIR_CLASS_SCRATCH], (unsigned long long)b->ready.live_class[WEIR_CLASS_SCRATCH],
               (unsigned long long)b->ran.peak, (unsigned long long)b->redirected.pinned_bytes,
               (unsigned long long)b->redirected.allocations, (unsigned long long)b->redirected.refused,
               (unsigned long long)b->redirected.passed_on, b->redirected.unseen);
    printf("}}\n");
}

static void print_all(bench *b)
{
    char name[32];
    printf("{\"device\": \"%s\", \"name\": \"%s\", \"through\": \"%s\", \"load_ms\": %.1f, \"context_ms\": %.1f, "
           "\"ready_ms\": %.1f, "
           "\"first_ms\": %.1f, ",
           b->o.device, on_cuda(b) ? b->lib.ggml_backend_dev_description(b->lib.device) : "", b->o.through, b->load_ms,
           b->context_ms, b->ready_ms, b->first_ms);
    for (int i = 0; i < b->o.prompt_count; i++) {
        snprintf(name, sizeof name, "prompt_%d", b->o.prompts[i]);
        print_times(name, b->prompt_ms[i], b->o.rounds, b->o.prompts[i]);
    }
    snprintf(name, sizeof name, "decode_%d", b->o.tokens);
    print_times(name, b->decode_ms, b->o.rounds, b->o.tokens);
    printf("\"same\": %s, \"checksum\": \"%016llx\", \"chosen\": [", b->same ? "true" : "false",
           (unsigned long long)checksum(b));
    for (int i = 0; i < b->o.tokens; i++)
        printf("%s%d", i ? ", " : "", b->chosen[i]);
    printf("], ");
    print_memory(b);
}

static void close_model(bench *b)
{
    b->lib.llama_free(b->context);
    b->lib.llama_model_free(b->model);
    free(b->prompt);
}

/* What is measured afterwards finds libraries read and handles made. */
static void once_before(bench *b)
{
    int rounds = b->o.rounds;
    load(b);
    make_context(b);
    b->o.rounds = 0;
    measure(b);
    b->o.rounds = rounds;
    close_model(b);
    if (on_cuda(b))
        b->lib.ggml_backend_dev_memory(b->lib.device, &b->free_first, &b->total);
}

/* The end of it all: of weir's memory nothing is left, or it says so. */
static void close_all(bench *b)
{
    close_model(b);
    cuda_llama_is_for(&b->lib, NULL, WEIR_CLASS_OTHER);
    if (!b->client)
        return;
    weir_client_stats left;
    look(b, &left);
    need(left.live == 0, "memory", "the model has left some behind");
    WEIR(wi_cuda_redirect_end(b->redirect));
    WEIR(weir_client_destroy(b->client));
    WEIR(weir_runtime_destroy(b->runtime));
    WEIR(weir_runtime_destroy(b->host));
}

/* The command line ------------------------------------------------------------------------------------------------- */

static void misused(const char *why)
{
    fprintf(stderr,
            "bench-llama-plain: %s\nusage: bench-llama-plain MODEL [--device cuda|cpu] [--through plain|weir] "
            "[--rounds N] [--prompts N,…] [--after N] [--tokens N] [--threads N] [--context N] [--again 1] "
            "[--budget BYTES] [--llama FOLDER] [--module FOLDER]\n",
            why);
    exit(USAGE);
}

static int count_of(const char *text, int least, int most, const char *what)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || end == text || value < least || value > most)
        misused(what);
    return (int)value;
}

static void read_prompts(options *o, char *text)
{
    o->prompt_count = 0;
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        if (o->prompt_count == MOST_PROMPTS)
            misused("too many prompts");
        o->prompts[o->prompt_count++] = count_of(word, 1, 1 << 20, "--prompts wants numbers of tokens");
    }
}

static bool is_one_of(const char *word, const char *one, const char *other)
{
    return strcmp(word, one) == 0 || strcmp(word, other) == 0;
}

static void read_option(options *o, const char *name, char *value)
{
    const struct {
        const char *name;
        const char **text;
        int *number, least, most;
    } known[] = {
        {"--device", &o->device, NULL, 0, 0},
        {"--through", &o->through, NULL, 0, 0},
        {"--llama", &o->llama, NULL, 0, 0},
        {"--module", &o->module, NULL, 0, 0},
        {"--rounds", NULL, &o->rounds, 1, MOST_ROUNDS},
        {"--after", NULL, &o->after, 1, 1 << 20},
        {"--tokens", NULL, &o->tokens, 1, MOST_TOKENS},
        {"--threads", NULL, &o->threads, 0, 1024},
        {"--context", NULL, &o->context, 0, 1 << 24},
        {"--again", NULL, &o->again, 0, 1},
    };
    if (!value)
        misused(name);
    if (strcmp(name, "--prompts") == 0) {
        read_prompts(o, value);
        return;
    }
    if (strcmp(name, "--budget") == 0) {
        o->budget = strtoull(value, NULL, 10);
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) {
            if (known[i].text)
                *known[i].text = value;
            else
                *known[i].number = count_of(value, known[i].least, known[i].most, name);
            return;
        }
    misused(name);
}

/* Into a place of the caller's. */
static const char *in_store(const char *name, char path[600])
{
    const char *home = getenv("WEIR_HOME");
    snprintf(path, 600, "%s/engines/%s/current/lib", home && *home ? home : WEIR_BENCH_STORE, name);
    return path;
}

static options read_options(int argc, char **argv)
{
    static char llama[600], module[600];
    options o = {.device = "cuda",
                 .through = "plain",
                 .llama = in_store("llama", llama),
                 .module = in_store("llama-cuda", module),
                 .rounds = 5,
                 .prompts = {512, 2048},
                 .prompt_count = 2,
                 .after = 512,
                 .tokens = 128};
    if (argc < 2 || argv[1][0] == '-')
        misused("a model is wanted");
    o.model = argv[1];
    for (int i = 2; i < argc; i += 2)
        read_option(&o, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
    if (!is_one_of(o.device, "cuda", "cpu") || !is_one_of(o.through, "plain", "weir"))
        misused("--device is cuda or cpu, --through plain or weir");
    if (strcmp(o.device, "cpu") == 0 && strcmp(o.through, "weir") == 0)
        misused("--through weir is for --device cuda: a redirect is of CUDA's functions");
    return o;
}

int main(int argc, char **argv)
{
    static bench b;
    b.begun = now_ms();
    b.o = read_options(argc, argv);
    open_libraries(&b);
    if (b.o.again)
        once_before(&b);
    load(&b);
    make_context(&b);
    look(&b, &b.ready);
    measure(&b);
    look(&b, &b.ran);
    if (b.redirect)
        b.redirected = redirect_stats(b.redirect);
    if (on_cuda(&b))
        b.lib.ggml_backend_dev_memory(b.lib.device, &b.free_last, &b.total);
    print_all(&b);
    close_all(&b);
    return b.same ? 0 : 3;
}
