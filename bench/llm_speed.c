/* llm_speed.c: ONNX Runtime GenAI by itself and through weir's engine llm: how fast, and how much memory. One way in a process.
 *
 *   bench-llm FOLDER [--through plain|engine] [--device host|cuda] [--rounds N] [--prompts 512,2048] [--after 512] [--tokens 128]
 *             [--cycles N] [--together N] [--answers any] [--genai FILE] [--runtime FILE]
 *
 * `plain` calls nothing of weir's: GenAI with its own memory, and the search of the same settings (the likeliest token). A prompt is
 * timed with its first token, from the making of the generator to its end; tokens are timed one by one behind a prompt. With --cycles
 * the engine's model is loaded, run and unloaded so often. With --together so many threads run prompts of --after tokens at once, in
 * a model that is loaded for as many sequences, and then the same prompts run one after the other in a model loaded for one. Both
 * then run again with their logits looked at, which say of every other token whether rounding chose it (ties.h);
 * not with --answers any, for a stub that computes nothing.
 * Answers with one JSON object; bench/llama_compare.py runs it by turns. Exit status 3: answers differ, and not by rounding. */
#include <weir/engine.h>
#include <weir/stats.h>
#include <weir/weir.h>

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engines/llm/oga.h"
#include "llm_logits.h"
#include "ties.h"

enum { MOST_ROUNDS = 64, PROMPTS = 4, MOST_TOKENS = 8192, FIRST_WORD = 300, MOST_LANES = 64, APART = 17, DIFFERS = 3 };

typedef struct bench {
    const char *path, *through, *device;
    char genai[600], runtime_file[600];
    int rounds, after, tokens, prompts[PROMPTS], prompt_count, cycles, lanes, words;
    bool cuda, plain, any_answer;
    int32_t prompt[MOST_TOKENS], chosen[MOST_TOKENS];
    int made;
    bool same;
    double first_ms;                            /* when the first token came */
    double begun, load_ms, ready_ms, firsts_ms; /* ready, and with one prompt answered, since the program began */
    double prompt_ms[PROMPTS][MOST_ROUNDS], decode_ms[MOST_ROUNDS];
    int (*memory_info)(size_t *free, size_t *total);
    size_t free_first, free_least, total;
    /* plain */
#define MEMBER(name) __typeof__(&name) name;
    OGA_FUNCTIONS(MEMBER)
#undef MEMBER
    oga_model *model;
    oga_tokenizer *tokenizer; /* as the engine has one */
    /* engine */
    const weir_engine *engine;
    weir_runtime *host, *runtime;
    weir_client *client;
    weir_engine_model *loaded;
} bench;

static void need(bool there, const char *what, const char *why)
{
    if (there)
        return;
    fprintf(stderr, "bench-llm: %s: %s\n", what, why);
    exit(1);
}
#define WEIR(call) need((call) == WEIR_OK, #call, weir_detail())
#define OGA(call)  check(b, call, #call)

static void check(bench *b, oga_result *result, const char *what)
{
    need(!result, what, result ? b->OgaResultGetError(result) : "");
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int longest(const bench *b)
{
    int most = b->after + b->tokens;
    for (int i = 0; i < b->prompt_count; i++)
        most = b->prompts[i] + 1 > most ? b->prompts[i] + 1 : most;
    return most;
}

static void look(bench *b)
{
    size_t here = 0;
    if (b->memory_info && b->memory_info(&here, &b->total) == 0 && here < b->free_least)
        b->free_least = here;
}

/* ---- GenAI by itself --------------------------------------------------------------------------------------------- */

static void open_plain(bench *b)
{
    setenv("ORT_LIB_PATH", b->runtime_file, 1);
    void *handle = dlopen(b->genai, RTLD_NOW | RTLD_LOCAL);
    need(handle, b->genai, handle ? "" : dlerror());
#define TAKE(name)                                                                                                     \
    *(void **)&b->name = dlsym(handle, #name);                                                                         \
    need(b->name, #name, "is not there");
    OGA_FUNCTIONS(TAKE)
#undef TAKE
    b->OgaSetTelemetryEnabled(false);
}

static void load_plain(bench *b)
{
    oga_config *config;
    char overlay[160];
    snprintf(overlay, sizeof overlay, "{\"search\":{\"max_length\":%d,\"random_seed\":0}}", longest(b));
    OGA(b->OgaCreateConfig(b->path, &config));
    OGA(b->OgaConfigClearProviders(config));
    OGA(b->OgaConfigOverlay(config, overlay));
    if (b->cuda)
        OGA(b->OgaConfigAppendProvider(config, "cuda"));
    OGA(b->OgaCreateModelFromConfig(config, &b->model));
    OGA(b->OgaCreateTokenizer(b->model, &b->tokenizer));
    b->OgaDestroyConfig(config);
}

static void note(bench *b, int32_t token)
{
    if (b->made == 0)
        b->first_ms = now_ms();
    b->same = b->same && (b->chosen[b->made] == -1 || b->chosen[b->made] == token);
    b->chosen[b->made++] = token;
}

static void run_plain(bench *b, int count, int tokens)
{
    oga_generator_params *params;
    oga_generator *generator;
    OGA(b->OgaCreateGeneratorParams(b->model, &params));
    OGA(b->OgaGeneratorParamsSetSearchNumber(params, "max_length", count + tokens));
    OGA(b->OgaGeneratorParamsSetSearchNumber(params, "min_length", count + tokens));
    OGA(b->OgaGeneratorParamsSetSearchNumber(params, "top_k", 1));
    OGA(b->OgaGeneratorParamsSetSearchBool(params, "do_sample", false));
    OGA(b->OgaCreateGenerator(b->model, params, &generator));
    OGA(b->OgaGenerator_AppendTokens(generator, b->prompt, (size_t)count));
    for (int i = 0; i < tokens; i++) {
        OGA(b->OgaGenerator_GenerateNextToken(generator));
        note(b, b->OgaGenerator_GetSequenceData(generator, 0)[b->OgaGenerator_GetSequenceCount(generator, 0) - 1]);
    }
    look(b);
    b->OgaDestroyGenerator(generator);
    b->OgaDestroyGeneratorParams(params);
}

/* ---- the engine -------------------------------------------------------------------------------------------------- */

static void open_engine(bench *b)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options), of_device = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    client.name = "llm";
    WEIR(weir_engine_get("llm", &b->engine));
    WEIR(weir_runtime_create("host", &options, &b->host));
    of_device.host = b->host;
    if (b->cuda)
        WEIR(weir_runtime_create("cuda:0", &of_device, &b->runtime));
    WEIR(weir_client_create(b->cuda ? b->runtime : b->host, &client, &b->client));
}

static void load_engine(bench *b, int tokens, int sequences)
{
    char context[24], together[24];
    weir_setting settings[] = {{"sequences", together}, {"context", context}};
    weir_engine_place place = {b->cuda ? b->runtime : b->host, b->client};
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    snprintf(context, sizeof context, "%d", tokens);
    snprintf(together, sizeof together, "%d", sequences);
    load.path = b->path;
    load.places = &place;
    load.place_count = 1;
    load.settings = settings;
    load.setting_count = 2;
    need(b->engine, "the engine", "is not open");
    WEIR(b->engine->load(&load, &b->loaded));
}

static bool on_piece(const weir_piece *piece, void *user)
{
    bench *b = user;
    note(b, piece->token);
    return true;
}

static void infer(const bench *b, const int32_t *prompt, int count, int tokens, weir_piece_fn piece, void *user)
{
    char number[24];
    weir_setting settings[] = {{"tokens", number}, {"ignore_eos", "1"}};
    weir_tensor input = {.struct_size = sizeof input,
                         .name = "tokens",
                         .type = WEIR_TYPE_I32,
                         .rank = 1,
                         .shape = {count},
                         .data = (void *)prompt,
                         .bytes = (size_t)count * sizeof *prompt};
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    snprintf(number, sizeof number, "%d", tokens);
    inference.inputs = &input;
    inference.input_count = 1;
    inference.settings = settings;
    inference.setting_count = 2;
    WEIR(b->engine->infer_stream(b->loaded, &inference, piece, user, &outputs));
    b->engine->release_outputs(b->loaded, &outputs);
}

static void run_engine(bench *b, int count, int tokens)
{
    infer(b, b->prompt, count, tokens, on_piece, b);
    look(b);
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static void run(bench *b, int count, int tokens)
{
    b->made = 0;
    if (b->plain)
        run_plain(b, count, tokens);
    else
        run_engine(b, count, tokens);
    need(b->made == tokens, "tokens", "are missing");
}

static double prefill(bench *b, int count)
{
    int32_t first = b->chosen[0];
    b->chosen[0] = -1;
    double start = now_ms();
    run(b, count, 1);
    double took = now_ms() - start;
    b->chosen[0] = first;
    return took;
}

static double decode(bench *b)
{
    run(b, b->after, b->tokens);
    return now_ms() - b->first_ms;
}

/* The first time of each is not counted: memory is taken, kernels are read. */
static void measure(bench *b)
{
    b->same = true;
    for (int i = 0; i < MOST_TOKENS; i++)
        b->chosen[i] = -1;
    for (int round = -1; round < b->rounds; round++) {
        for (int i = 0; i < b->prompt_count; i++) {
            double ms = prefill(b, b->prompts[i]);
            b->firsts_ms = b->firsts_ms > 0 ? b->firsts_ms : now_ms() - b->begun;
            if (round >= 0)
                b->prompt_ms[i][round] = ms;
        }
        double ms = decode(b);
        if (round >= 0)
            b->decode_ms[round] = ms;
    }
}

static void load_model(bench *b)
{
    if (b->plain)
        load_plain(b);
    else
        load_engine(b, longest(b), 1);
}

static void close_model(bench *b)
{
    if (!b->plain) {
        b->engine->unload(b->loaded);
        return;
    }
    b->OgaDestroyTokenizer(b->tokenizer);
    b->OgaDestroyModel(b->model);
}

/* What the process has on its heap after the first and after the last cycle. */
static void cycles(bench *b)
{
    size_t first = 0, free_first = 0;
    weir_client_stats left = WEIR_INIT(weir_client_stats);
    for (int i = 0; i < b->cycles; i++) {
        load_model(b);
        for (int k = 0; k < MOST_TOKENS; k++)
            b->chosen[k] = -1;
        run(b, b->after, 4);
        close_model(b);
        if (!b->plain)
            WEIR(weir_client_info(b->client, &left));
        need(left.live == 0, "memory", "a model has left some behind");
        b->free_least = SIZE_MAX;
        look(b);
        if (i == 0) {
            first = mallinfo2().uordblks;
            free_first = b->free_least;
        }
    }
    double per = b->cycles > 1 ? 1.0 / (b->cycles - 1) : 0;
    printf("{\"cycles\": %d, \"heap_per_cycle\": %.1f, \"device_per_cycle\": %.1f, \"live\": %llu}\n", b->cycles,
           ((double)mallinfo2().uordblks - (double)first) * per,
           b->cuda ? ((double)free_first - (double)b->free_least) * per : 0.0, (unsigned long long)left.live);
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

typedef struct lane {
    const bench *b;
    const int32_t *prompt;
    pthread_barrier_t *start;
    int made;
    int32_t *chosen;
} lane;

static bool on_lane(const weir_piece *piece, void *user)
{
    lane *it = user;
    it->chosen[it->made++] = piece->token;
    return true;
}

static void run_lane(lane *it)
{
    it->made = 0;
    need(it->b, "a lane", "is not made");
    infer(it->b, it->prompt, it->b->after, it->b->tokens, on_lane, it);
    need(it->made == it->b->tokens, "tokens", "are missing");
}

static void *work(void *user)
{
    lane *it = user;
    pthread_barrier_wait(it->start);
    run_lane(it);
    return NULL;
}

/* Each prompt begins at another place of the row. */
static void make_lanes(bench *b, lane *lanes, int first)
{
    for (int i = 0; i < b->lanes; i++) {
        lanes[i] = (lane){.b = b, .prompt = b->prompt + (ptrdiff_t)(first + i) * APART};
        lanes[i].chosen = calloc((size_t)b->tokens, sizeof *lanes[i].chosen);
        need(lanes[i].chosen, "tokens", "have no memory");
    }
}

static void drop_lanes(const bench *b, lane *lanes)
{
    for (int i = 0; i < b->lanes; i++)
        free(lanes[i].chosen);
}

static double run_at_once(const bench *b, lane *lanes)
{
    pthread_t threads[MOST_LANES];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)b->lanes + 1);
    for (int i = 0; i < b->lanes; i++) {
        lanes[i].start = &start;
        need(pthread_create(&threads[i], NULL, work, &lanes[i]) == 0, "a thread", "cannot begin");
    }
    double from = now_ms();
    pthread_barrier_wait(&start);
    for (int i = 0; i < b->lanes; i++)
        pthread_join(threads[i], NULL);
    double took = now_ms() - from;
    pthread_barrier_destroy(&start);
    return took;
}

static double run_in_turn(const bench *b, lane *lanes)
{
    double from = now_ms();
    for (int i = 0; i < b->lanes; i++)
        run_lane(&lanes[i]);
    return now_ms() - from;
}

/* Prompts that are not counted go first: memory is taken, kernels are read. They are others, as GenAI may keep the beginnings of
 * texts it has seen. */
static double timed(bench *b, int sequences, double (*way)(const bench *, lane *), lane *lanes)
{
    lane others[MOST_LANES] = {{0}};
    make_lanes(b, others, b->lanes);
    load_engine(b, b->after + b->tokens, sequences);
    way(b, others);
    double took = way(b, lanes);
    drop_lanes(b, others);
    return took;
}

/* The same with its logits looked at, in a model that has seen none of the texts. */
static llm_seen looked_at(bench *b, int sequences, double (*way)(const bench *, lane *), lane *lanes)
{
    static bool watched;
    const int32_t *prompts[MOST_LANES];
    llm_wanted wanted = {prompts, b->lanes, b->after, b->tokens};
    for (int i = 0; i < b->lanes; i++)
        prompts[i] = lanes[i].prompt;
    load_engine(b, b->after + b->tokens, sequences);
    const char *wrong = watched ? NULL : llm_logits_watch(b->engine);
    need(!wrong, "logits", wrong ? wrong : "");
    watched = true;
    llm_logits_begin(&wanted);
    way(b, lanes);
    llm_seen seen = llm_logits_end();
    b->engine->unload(b->loaded);
    char why[160];
    snprintf(why, sizeof why, "were not seen: %d steps had logits, %d rows of them are no sequence's", seen.steps,
             seen.unknown);
    need(seen.logits, "logits", why);
    return seen;
}

static void runs_of(const bench *b, const lane *lanes, const llm_seen *seen, ties_run *out)
{
    size_t rows = (size_t)b->tokens;
    for (int i = 0; i < b->lanes; i++)
        out[i] = (ties_run){lanes[i].chosen, seen ? seen->logits + (size_t)i * rows * (size_t)seen->words : NULL};
}

/* Whether each run made the tokens that it makes alone, or others by rounding alone. */
static ties_found compare(bench *b, const lane *at_once, const lane *in_turn)
{
    lane both[2][MOST_LANES] = {{{0}}};
    ties_run alone[MOST_LANES], together[MOST_LANES];
    make_lanes(b, both[0], 0);
    make_lanes(b, both[1], 0);
    llm_seen single = looked_at(b, 1, run_in_turn, both[0]), batch = looked_at(b, b->lanes, run_at_once, both[1]);
    float unit = single.half ? TIES_UNIT_F16 : TIES_UNIT_F32;
    need(single.words == batch.words && single.half == batch.half, "logits", "are of two kinds");
    runs_of(b, both[0], &single, alone);
    runs_of(b, both[1], &batch, together);
    ties_found found = ties_find(alone, together, b->lanes, b->tokens, single.words, unit, stderr);
    runs_of(b, in_turn, NULL, together);
    ties_judge(&found, alone, together, b->lanes, b->tokens, single.words, unit, "alone before", stderr);
    runs_of(b, at_once, NULL, together);
    ties_judge(&found, alone, together, b->lanes, b->tokens, single.words, unit, "together before", stderr);
    free(single.logits);
    free(batch.logits);
    drop_lanes(b, both[0]);
    drop_lanes(b, both[1]);
    return found;
}

static int together(bench *b)
{
    lane at_once[MOST_LANES] = {{0}}, in_turn[MOST_LANES] = {{0}};
    weir_client_stats own = WEIR_INIT(weir_client_stats);
    bool same = true;
    make_lanes(b, at_once, 0);
    make_lanes(b, in_turn, 0);
    double ms = timed(b, b->lanes, run_at_once, at_once);
    WEIR(weir_client_info(b->client, &own));
    b->engine->unload(b->loaded);
    double alone_ms = timed(b, 1, run_in_turn, in_turn);
    b->engine->unload(b->loaded);
    for (int i = 0; i < b->lanes; i++)
        same = same && memcmp(at_once[i].chosen, in_turn[i].chosen, (size_t)b->tokens * sizeof(int32_t)) == 0;
    ties_found found = {0};
    if (!b->any_answer)
        found = compare(b, at_once, in_turn);
    printf("{\"together\": %d, \"ms\": %.3f, \"tokens_per_s\": %.2f, \"alone_ms\": %.3f, \"same\": %s, \"ties\": %d, "
           "\"faults\": %d, \"agreed\": %d, \"rounding\": %.2f, \"allowed\": %.2f, \"kv\": %llu}\n",
           b->lanes, ms, b->lanes * b->tokens * 1e3 / ms, alone_ms,
           b->any_answer ? "null"
           : same        ? "true"
                         : "false",
           found.ties, found.faults, found.agreed, (double)found.rounding, (double)found.allowed,
           (unsigned long long)own.peak_class[WEIR_CLASS_KV]);
    drop_lanes(b, at_once);
    drop_lanes(b, in_turn);
    return !b->any_answer && (found.faults || (!same && !found.ties)) ? DIFFERS : 0;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

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
    printf("\"%s\": {\"tokens\": %d, \"median_ms\": %.3f, \"tokens_per_s\": %.2f}, ", name, tokens, median,
           tokens * 1e3 / median);
}

/* `peak` is what was live at the most, `held` what the driver had given for it. */
static void print_memory(const bench *b)
{
    weir_client_stats own = WEIR_INIT(weir_client_stats);
    weir_stats all = WEIR_INIT(weir_stats);
    printf("\"memory\": {\"taken\": %zu", b->cuda ? b->free_first - b->free_least : 0);
    if (!b->plain && weir_client_info(b->client, &own) == WEIR_OK &&
        weir_snapshot(b->cuda ? b->runtime : b->host, &all, NULL, 0, NULL) == WEIR_OK)
        printf(", \"weights\": %llu, \"activations\": %llu, \"kv\": %llu, \"scratch\": %llu, \"peak\": %llu, "
               "\"peak_held\": %llu",
               (unsigned long long)own.peak_class[WEIR_CLASS_WEIGHTS],
               (unsigned long long)own.peak_class[WEIR_CLASS_ACTIVATIONS],
               (unsigned long long)own.peak_class[WEIR_CLASS_KV],
               (unsigned long long)own.peak_class[WEIR_CLASS_SCRATCH], (unsigned long long)all.peak,
               (unsigned long long)all.peak_held);
    printf("}}\n");
}

static void print_all(const bench *b)
{
    char name[32];
    printf("{\"device\": \"%s\", \"through\": \"%s\", \"load_ms\": %.1f, \"ready_ms\": %.1f, \"first_ms\": %.1f, ",
           b->device, b->through, b->load_ms, b->ready_ms, b->firsts_ms);
    for (int i = 0; i < b->prompt_count; i++) {
        snprintf(name, sizeof name, "prompt_%d", b->prompts[i]);
        print_times(name, b->prompt_ms[i], b->rounds, b->prompts[i]);
    }
    snprintf(name, sizeof name, "decode_%d", b->tokens - 1);
    print_times(name, b->decode_ms, b->rounds, b->tokens - 1);
    printf("\"same\": %s, \"chosen\": [", b->same ? "true" : "false");
    for (int i = 0; i < b->tokens; i++)
        printf("%s%d", i ? ", " : "", b->chosen[i]);
    printf("], ");
    print_memory(b);
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

static void in_store(char *path, const char *engine, bool cuda, const char *file)
{
    const char *home = getenv("WEIR_HOME");
    snprintf(path, 600, "%s/engines/%s%s/current/%s", home && *home ? home : WEIR_BENCH_STORE, engine,
             cuda ? "-cuda" : "", file);
}

static void misused(const char *why)
{
    fprintf(stderr,
            "bench-llm: %s\nusage: bench-llm FOLDER [--through plain|engine] [--device host|cuda] [--rounds N] "
            "[--prompts N,…] [--after N] [--tokens N] [--words N] [--cycles N] [--together N] [--answers any] "
            "[--genai FILE] [--runtime FILE]\n",
            why);
    exit(2);
}

static void read_prompts(bench *b, char *text)
{
    b->prompt_count = 0;
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        if (b->prompt_count == PROMPTS || atoi(word) < 1 || atoi(word) >= MOST_TOKENS)
            misused("--prompts wants up to four numbers of tokens");
        b->prompts[b->prompt_count++] = atoi(word);
    }
}

static void read_option(bench *b, const char *name, char *value)
{
    const struct {
        const char *name;
        int *number, most;
    } numbers[] = {{"--rounds", &b->rounds, MOST_ROUNDS},     {"--after", &b->after, MOST_TOKENS / 2},
                   {"--tokens", &b->tokens, MOST_TOKENS / 2}, {"--words", &b->words, 1 << 24},
                   {"--cycles", &b->cycles, 100000},          {"--together", &b->lanes, MOST_LANES}};
    if (!value)
        misused(name);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].number = atoi(value);
            if (*numbers[i].number < 1 || *numbers[i].number > numbers[i].most)
                misused(name);
            return;
        }
    if (strcmp(name, "--prompts") == 0)
        read_prompts(b, value);
    else if (strcmp(name, "--through") == 0)
        b->through = value;
    else if (strcmp(name, "--device") == 0)
        b->device = value;
    else if (strcmp(name, "--answers") == 0)
        b->any_answer = strcmp(value, "any") == 0;
    else if (strcmp(name, "--genai") == 0)
        snprintf(b->genai, sizeof b->genai, "%s", value);
    else if (strcmp(name, "--runtime") == 0)
        snprintf(b->runtime_file, sizeof b->runtime_file, "%s", value);
    else
        misused(name);
}

static void read_options(bench *b, int argc, char **argv)
{
    if (argc < 2 || argv[1][0] == '-')
        misused("a model's folder is wanted");
    b->path = argv[1];
    for (int i = 2; i < argc; i += 2)
        read_option(b, argv[i], argv[i + 1]);
    b->cuda = strcmp(b->device, "cuda") == 0;
    b->plain = strcmp(b->through, "plain") == 0;
    if (b->plain && b->lanes)
        misused("--together is the engine's");
    if (!b->genai[0])
        in_store(b->genai, "onnxruntime-genai", b->cuda, "libonnxruntime-genai.so");
    if (!b->runtime_file[0])
        in_store(b->runtime_file, "onnxruntime", b->cuda, "libonnxruntime.so");
    for (int i = 0; i < MOST_TOKENS; i++)
        b->prompt[i] = FIRST_WORD + (int32_t)((i * 7919ll + 17) % (b->words - FIRST_WORD));
}

static void open_all(bench *b)
{
    void *runtime = b->cuda ? dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (runtime)
        *(void **)&b->memory_info = dlsym(runtime, "cudaMemGetInfo");
    if (b->plain)
        open_plain(b);
    else
        open_engine(b);
    b->free_least = SIZE_MAX;
    look(b);
    b->free_first = b->free_least;
}

int main(int argc, char **argv)
{
    static bench b = {.through = "engine",
                      .device = "cuda",
                      .rounds = 5,
                      .after = 512,
                      .tokens = 128,
                      .words = 448,
                      .prompts = {512, 2048},
                      .prompt_count = 2};
    b.begun = now_ms();
    read_options(&b, argc, argv);
    open_all(&b);
    if (b.cycles || b.lanes) {
        int status = 0;
        if (b.cycles)
            cycles(&b);
        else
            status = together(&b);
        if (b.plain)
            b.OgaShutdown();
        return status;
    }
    double start = now_ms();
    load_model(&b);
    b.load_ms = now_ms() - start;
    b.ready_ms = now_ms() - b.begun;
    measure(&b);
    print_all(&b);
    close_model(&b);
    if (b.plain)
        b.OgaShutdown();
    return b.same ? 0 : DIFFERS;
}
