/* llama_engine.c: weir's gguf engine on a device, as a program uses it: how fast, what its KV cache costs, what it leaves
 * behind. Prints a line of JSON.
 *
 *   bench-llama-engine MODEL speed  [--cache elastic|promised|whole] [--context N] [--rounds N] [--prompts 512,2048] …
 *   bench-llama-engine MODEL cache  a context of 32k: bytes by tokens held, and the steps of a decode that grow
 *   bench-llama-engine MODEL chats  eight of 32k, 2k used
 *   bench-llama-engine MODEL cycles load, run, unload, 50 times
 *
 * Exit status 3: answers differ, and not by rounding (ties.h).
 * `speed` says what bench-llama-plain says, with the same prompts; bench/llama_compare.py runs both. */
#include <weir/engine.h>
#include <weir/pressure.h>
#include <weir/stats.h>
#include <weir/weir.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ties.h"

enum { FIRST_WORD = 259, MOST = 40000, MOST_ROUNDS = 64, PROMPTS = 4, CHATS = 8, DIFFERS = 3 };

typedef struct bench {
    const char *path, *part, *device, *cache, *context, *mmap;
    int rounds, tokens, after, prompts[PROMPTS], prompt_count, cycles;
    const weir_engine *engine;
    weir_runtime *host, *runtime;
    weir_client *client;
    weir_engine_model *model;
    int words;
    bool differs;
    double begun;
} bench;

static void need(bool there, const char *what)
{
    if (there)
        return;
    fprintf(stderr, "bench-llama-engine: %s: %s\n", what, weir_detail());
    exit(1);
}
#define WEIR(call) need((call) == WEIR_OK, #call)

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static void open_weir(bench *b)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    WEIR(weir_engine_get("gguf", &b->engine));
    WEIR(weir_runtime_create("host", &options, &b->host));
    client.name = "llama";
    if (strcmp(b->device, "host") == 0) {
        b->runtime = b->host;
    } else {
        options.host = b->host;
        WEIR(weir_runtime_create(b->device, &options, &b->runtime));
    }
    WEIR(weir_client_create(b->runtime, &client, &b->client));
}

static void load(bench *b, const char *sequences)
{
    weir_setting settings[6] = {
        {"context", b->context}, {"cache_memory", b->cache}, {"sequences", sequences}, {"mmap", b->mmap}};
    weir_engine_place place = {b->runtime, b->client};
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    load.path = b->path;
    load.places = &place;
    load.place_count = 1;
    load.settings = settings;
    load.setting_count = 4;
    if (getenv("WEIR_LLAMA_CUDA"))
        settings[load.setting_count++] = (weir_setting){"llama_cuda", getenv("WEIR_LLAMA_CUDA")};
    WEIR(b->engine->load(&load, &b->model));
    weir_model_details about = WEIR_INIT(weir_model_details);
    WEIR(b->engine->info(b->model, &about));
    for (size_t i = 0; i < about.output_count; i++)
        if (strcmp(about.outputs[i].name, "logits") == 0)
            b->words = (int)about.outputs[i].shape[0];
}

static weir_client_stats account(const bench *b)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    WEIR(weir_client_info(b->client, &stats));
    return stats;
}

static uint64_t kv_of(const bench *b)
{
    return account(b).live_class[WEIR_CLASS_KV];
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

typedef struct answer {
    bench *b;
    int count;
    double begun, at[MOST]; /* when each token came */
    uint64_t kv[MOST];
    int32_t tokens[MOST];
    uint64_t checksum;
    bool watch;
    float *logits; /* of the last token, where there is room for them */
} answer;

static bool take(const weir_piece *piece, void *user)
{
    answer *it = user;
    it->at[it->count] = now_ms();
    it->kv[it->count] = it->watch ? kv_of(it->b) : 0;
    it->tokens[it->count++] = piece->token;
    return it->count < MOST;
}

/* A prompt of so many tokens, with `more` behind it, and as many answered; the time until all is there. */
static double run_on(bench *b, int prompt, const int32_t *more, int more_count, int made, bool logits, answer *out)
{
    static const char *const yes = "1";
    char count[16];
    int all = prompt + more_count;
    int32_t *words = malloc((size_t)all * sizeof *words);
    need(words != NULL, "memory");
    for (int i = 0; i < all; i++)
        words[i] = i < prompt ? FIRST_WORD + (int32_t)((i * 7919ll + 17) % (b->words - FIRST_WORD)) : more[i - prompt];
    snprintf(count, sizeof count, "%d", made);
    const weir_setting settings[] = {{"tokens", count}, {"temperature", "0"}, {"logits", yes}};
    weir_tensor input = {.struct_size = sizeof input,
                         .name = "tokens",
                         .type = WEIR_TYPE_I32,
                         .rank = 1,
                         .shape = {all},
                         .data = words,
                         .bytes = (size_t)all * sizeof *words};
    weir_inference inference = WEIR_INIT(weir_inference);
    inference.inputs = &input;
    inference.input_count = 1;
    inference.settings = settings;
    inference.setting_count = logits ? 3 : 2;
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    out->b = b;
    out->count = 0;
    double start = out->begun = now_ms();
    WEIR(b->engine->infer_stream(b->model, &inference, take, out, &outputs));
    double took = now_ms() - start;
    for (size_t i = 0; i < outputs.count; i++)
        if (strcmp(outputs.tensors[i].name, "logits") == 0) {
            const unsigned char *at = outputs.tensors[i].data;
            out->checksum = 0xcbf29ce484222325;
            for (size_t k = 0; k < outputs.tensors[i].bytes; k++)
                out->checksum = (out->checksum ^ at[k]) * 0x100000001b3;
            if (out->logits)
                memcpy(out->logits, at, (size_t)b->words * sizeof *out->logits);
        }
    b->engine->release_outputs(b->model, &outputs);
    free(words);
    return took;
}

static double run(bench *b, int prompt, int made, bool logits, answer *out)
{
    return run_on(b, prompt, NULL, 0, made, logits, out);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, int count, double which)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return count ? values[(int)(which * (count - 1) + 0.5)] : 0;
}

/* ---- speed ------------------------------------------------------------------------------------------------------- */

static void print_times(const char *name, double *ms, int rounds, int tokens)
{
    printf("\"%s\": {\"tokens\": %d, \"ms\": [", name, tokens);
    for (int i = 0; i < rounds; i++)
        printf("%s%.3f", i ? ", " : "", ms[i]);
    double median = quantile(ms, rounds, 0.5);
    printf("], \"median_ms\": %.3f, \"tokens_per_s\": %.2f}, ", median, tokens * 1e3 / median);
}

/* The last token is made by one decode less than there are tokens, so that one more is asked for. */
static void speed(bench *b)
{
    static answer it, first;
    double prompt_ms[PROMPTS][MOST_ROUNDS], decode_ms[MOST_ROUNDS], start = now_ms();
    bool same = true;
    load(b, "1");
    double load_ms = now_ms() - start, ready_ms = now_ms() - b->begun, first_ms = 0;
    for (int round = -1; round < b->rounds; round++) {
        for (int i = 0; i < b->prompt_count; i++) {
            run(b, b->prompts[i], 2, false, &it);
            first_ms = first_ms > 0 ? first_ms : it.at[0] - b->begun;
            if (round >= 0)
                prompt_ms[i][round] = it.at[0] - it.begun;
        }
        run(b, b->after, b->tokens + 1, true, &it);
        if (round < 0)
            first = it;
        else
            decode_ms[round] = it.at[b->tokens] - it.at[0];
        same &=
            it.checksum == first.checksum && memcmp(it.tokens, first.tokens, sizeof(int32_t) * (size_t)b->tokens) == 0;
    }
    b->differs = !same;
    weir_client_stats stats = account(b);
    printf("{\"device\": \"%s\", \"through\": \"engine\", \"load_ms\": %.1f, \"context_ms\": 0, \"ready_ms\": %.1f, "
           "\"first_ms\": %.1f, ",
           b->device, load_ms, ready_ms, first_ms);
    for (int i = 0; i < b->prompt_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "prompt_%d", b->prompts[i]);
        print_times(name, prompt_ms[i], b->rounds, b->prompts[i]);
    }
    char name[32];
    snprintf(name, sizeof name, "decode_%d", b->tokens);
    print_times(name, decode_ms, b->rounds, b->tokens);
    printf("\"same\": %s, \"checksum\": \"%016llx\", \"chosen\": [", same ? "true" : "false",
           (unsigned long long)first.checksum);
    for (int i = 0; i < b->tokens; i++)
        printf("%s%d", i ? ", " : "", first.tokens[i]);
    printf("], \"memory\": {\"taken\": %llu, \"weights\": %llu, \"kv\": %llu, \"scratch\": %llu}}\n",
           (unsigned long long)stats.peak, (unsigned long long)stats.live_class[WEIR_CLASS_WEIGHTS],
           (unsigned long long)stats.live_class[WEIR_CLASS_KV],
           (unsigned long long)stats.live_class[WEIR_CLASS_SCRATCH]);
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

/* Steps in which a page came, and those in which none did. */
static void steps_of(const answer *it, int from)
{
    static double grew[MOST], stayed[MOST];
    int grown = 0, others = 0;
    for (int i = from; i < it->count; i++) {
        double ms = it->at[i] - it->at[i - 1];
        if (it->kv[i] > it->kv[i - 1])
            grew[grown++] = ms;
        else
            stayed[others++] = ms;
    }
    printf(
        "\"steps_that_grow\": {\"count\": %d, \"median_ms\": %.3f, \"p99_ms\": %.3f}, \"other_steps\": {\"count\": %d, "
        "\"median_ms\": %.3f, \"p99_ms\": %.3f}",
        grown, quantile(grew, grown, 0.5), quantile(grew, grown, 0.99), others, quantile(stayed, others, 0.5),
        quantile(stayed, others, 0.99));
}

static void cache(bench *b)
{
    static answer it;
    static const int held[] = {100, 250, 1000, 2000, 2040, 4000, 8000};
    load(b, "1");
    it.watch = true;
    printf("{\"cache\": \"%s\", \"context\": %s, \"held\": [", b->cache, b->context);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        run(b, held[i], 4, false, &it);
        uint64_t most = 0;
        for (int k = 0; k < it.count; k++)
            most = it.kv[k] > most ? it.kv[k] : most;
        printf("%s{\"tokens\": %d, \"kv\": %llu}", i ? ", " : "", held[i] + 3, (unsigned long long)most);
    }
    printf("], \"at_rest\": %llu, ", (unsigned long long)kv_of(b));
    run(b, 1500, 64, false, &it);
    run(b, 1500, 4800, false, &it);
    steps_of(&it, 8);
    printf("}\n");
}

enum { CHAT_PROMPT = 1900, CHAT_MADE = 100 };

/* All chats are one; where another makes other tokens than the first, the logits after what both have made say whether rounding
 * chose. They are computed alone. */
static void chose_alike(bench *b, const answer *first, const answer *other, const char *name, ties_found *found)
{
    static answer once;
    int k = 0;
    while (k < CHAT_MADE && first->tokens[k] == other->tokens[k])
        k++;
    if (k == CHAT_MADE)
        return;
    once.logits = malloc((size_t)b->words * sizeof *once.logits);
    need(once.logits != NULL, "memory");
    run_on(b, CHAT_PROMPT, first->tokens, k, 1, true, &once);
    ties_run alone = {once.tokens, once.logits}, one = {first->tokens + k, NULL}, another = {other->tokens + k, NULL};
    char who[64];
    snprintf(who, sizeof who, "after %d tokens the first chat's", k);
    ties_judge(found, &alone, &one, 1, 1, b->words, TIES_UNIT_F16, who, stderr);
    snprintf(who, sizeof who, "after %d tokens %s", k, name);
    ties_judge(found, &alone, &another, 1, 1, b->words, TIES_UNIT_F16, who, stderr);
    free(once.logits);
    once.logits = NULL;
}

typedef struct chat {
    bench *b;
    answer *out;
    pthread_t thread;
} chat;

static void *talk(void *user)
{
    chat *it = user;
    run(it->b, CHAT_PROMPT, CHAT_MADE, false, it->out);
    return NULL;
}

static void chats(bench *b)
{
    chat all[CHATS];
    load(b, "8");
    double start = now_ms();
    for (int i = 0; i < CHATS; i++) {
        all[i] = (chat){.b = b, .out = calloc(1, sizeof *all[i].out)};
        need(all[i].out != NULL, "memory");
        all[i].out->watch = true;
        need(pthread_create(&all[i].thread, NULL, talk, &all[i]) == 0, "a thread");
    }
    uint64_t most = 0;
    bool same = true;
    ties_found found = {.allowed = TIES_ROUNDINGS};
    for (int i = 0; i < CHATS; i++) {
        pthread_join(all[i].thread, NULL);
        for (int k = 0; k < all[i].out->count; k++)
            most = all[i].out->kv[k] > most ? all[i].out->kv[k] : most;
        same &= memcmp(all[i].out->tokens, all[0].out->tokens, CHAT_MADE * sizeof(int32_t)) == 0;
    }
    double ms = now_ms() - start;
    for (int i = 1; i < CHATS; i++) {
        char name[16];
        snprintf(name, sizeof name, "chat %d's", i);
        chose_alike(b, all[0].out, all[i].out, name, &found);
    }
    b->differs = found.faults || (!same && !found.ties);
    printf("{\"chats\": %d, \"context\": %s, \"used_cells\": %d, \"kv\": %llu, \"same\": %s, \"ties\": %d, \"faults\": "
           "%d, "
           "\"ms\": %.0f}\n",
           CHATS, b->context, CHATS * (CHAT_PROMPT + CHAT_MADE - 1), (unsigned long long)most, same ? "true" : "false",
           found.ties, found.faults, ms);
}

/* ---- cycles ------------------------------------------------------------------------------------------------------ */

static uint64_t resident(void)
{
    unsigned long pages = 0, ignored;
    FILE *file = fopen("/proc/self/statm", "re");
    need(file && fscanf(file, "%lu %lu", &ignored, &pages) == 2, "/proc/self/statm");
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What the driver has free, as every program sees it. */
static uint64_t device_free(bench *b)
{
    static int (*look)(size_t * free, size_t * total);
    size_t there = 0, total = 0;
    if (b->runtime == b->host)
        return 0;
    if (!look) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        *(void **)&look = driver ? dlsym(driver, "cuMemGetInfo_v2") : NULL;
        need(look != NULL, "libcuda.so.1");
    }
    WEIR(weir_runtime_enter(b->runtime));
    need(look(&there, &total) == 0, "cuMemGetInfo");
    weir_runtime_leave(b->runtime);
    return there;
}

static void cycles(bench *b)
{
    static answer it;
    uint64_t host[2] = {0}, device[2] = {0};
    double back = 0;
    for (int i = 0; i < b->cycles; i++) {
        load(b, "1");
        run(b, 600, 20, false, &it);
        double start = now_ms();
        b->engine->unload(b->model);
        WEIR(weir_runtime_trim(b->runtime, NULL, NULL));
        uint64_t now = device_free(b);
        double took = now_ms() - start;
        need(account(b).live == 0, "memory was left behind");
        if (i == 1) {
            host[0] = resident();
            device[0] = now;
        }
        back = took > back && i > 0 ? took : back;
        host[1] = resident();
        device[1] = now;
    }
    double between = b->cycles > 2 ? b->cycles - 2 : 1;
    printf("{\"cycles\": %d, \"host_growth_per_cycle\": %.0f, \"device_growth_per_cycle\": %.0f, "
           "\"unload_and_trim_most_ms\": %.1f}\n",
           b->cycles, ((double)host[1] - (double)host[0]) / between, ((double)device[0] - (double)device[1]) / between,
           back);
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

static void read_prompts(bench *b, const char *text)
{
    b->prompt_count = 0;
    for (const char *at = text; *at && b->prompt_count < PROMPTS; at += *at == ',') {
        char *end;
        b->prompts[b->prompt_count++] = (int)strtol(at, &end, 10);
        need(end > at, "--prompts");
        at = end;
    }
}

static bool read_option(bench *b, const char *name, const char *value)
{
    if (strcmp(name, "--cache") == 0)
        b->cache = value;
    else if (strcmp(name, "--context") == 0)
        b->context = value;
    else if (strcmp(name, "--device") == 0)
        b->device = value;
    else if (strcmp(name, "--mmap") == 0)
        b->mmap = value;
    else if (strcmp(name, "--rounds") == 0)
        b->rounds = atoi(value);
    else if (strcmp(name, "--tokens") == 0)
        b->tokens = atoi(value);
    else if (strcmp(name, "--after") == 0)
        b->after = atoi(value);
    else if (strcmp(name, "--cycles") == 0)
        b->cycles = atoi(value);
    else if (strcmp(name, "--prompts") == 0)
        read_prompts(b, value);
    else
        return false;
    return true;
}

int main(int count, char **words)
{
    static const struct {
        const char *name, *context;
        void (*part)(bench *b);
    } parts[] = {
        {"speed", "32768", speed}, {"cache", "32768", cache}, {"chats", "32768", chats}, {"cycles", "4096", cycles}};
    bench b = {.device = "cuda:0",
               .cache = "elastic",
               .mmap = "0",
               .rounds = 5,
               .tokens = 128,
               .after = 512,
               .cycles = 50,
               .begun = now_ms()};
    read_prompts(&b, "512,2048");
    if (count < 3) {
        fprintf(stderr, "usage: bench-llama-engine MODEL speed|cache|chats|cycles [--device D] [--cache C] [--context "
                        "N] [--mmap 1] …\n");
        return 2;
    }
    b.path = words[1];
    for (int i = 3; i + 1 < count; i += 2)
        need(read_option(&b, words[i], words[i + 1]), words[i]);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(parts[i].name, words[2]) == 0) {
            b.context = b.context ? b.context : parts[i].context;
            open_weir(&b);
            parts[i].part(&b);
            return b.differs ? DIFFERS : 0;
        }
    fprintf(stderr, "bench-llama-engine: there is no part %s\n", words[2]);
    return 2;
}
