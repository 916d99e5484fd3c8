/* first_answer.c: when a model that is suspended answers, and how much of it is in by then.
 *
 *   bench-first-answer [--device D] [--cycles N] [--step SIZE] [--difference X] [--goal] MODEL…
 *
 * MODEL is FILE.onnx:FIRSTxREST (open extents of its inputs), FILE.gguf:PROMPT+TOKENS or, of a GenAI model,
 * FOLDER:PROMPT+TOKENS. Each is loaded and asked, and then suspended and asked again so often: by turns with the resume of all
 * of it before the run, and shown, so that the run is answered while it comes back. Of a model that generates, the first piece
 * is the answer that is timed. Each answer is compared with the first one.
 *
 * Prints a line of JSON for each model: medians in milliseconds, bytes, and `share`, the largest share of what was away that
 * was in when the first answer of a shown model was out; -1 where the device cannot show. Exit status 1: an answer differs by
 * more than X (0), memory is left in the ledger, or with --goal half or more was in; 77: an engine is not here. --answers any:
 * for a device whose kernels compute nothing. */
#include "served.h"

#include <weir/model.h>
#include <weir/residency.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MODELS = 8, CYCLES = 1000, BACK_MS = 20000 };

typedef struct bench {
    const char *device;
    uint64_t cycles, step;
    double difference;
    bool any_answer, goal;
    weir_runtime *runtime;
    served models[MODELS];
    size_t given;
} bench;

/* One question, and how it went. */
typedef struct asking {
    weir_model *model;
    const served *it;
    double began, first; /* seconds; when the first answer was out */
    uint64_t away;       /* then */
    double *wanted;      /* the first answer's numbers, or bytes */
    size_t count;
    double different; /* the most */
} asking;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static weir_model_presence presence_of(weir_model *model)
{
    weir_model_presence now = WEIR_INIT(weir_model_presence);
    WEIR(weir_model_residency(model, &now));
    return now;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void note_first(asking *a)
{
    if (a->first > 0)
        return;
    a->first = now_ms();
    a->away = presence_of(a->model).away;
}

static bool take_piece(const weir_piece *piece, void *user)
{
    (void)piece;
    note_first(user);
    return true;
}

static double number_at(const weir_tensor *t, size_t i)
{
    return t->type == WEIR_TYPE_F32 ? (double)((const float *)t->data)[i] : ((const unsigned char *)t->data)[i];
}

static size_t numbers_in(const weir_tensor *t)
{
    return t->on_device ? 0 : t->type == WEIR_TYPE_F32 ? t->bytes / sizeof(float) : t->bytes;
}

static void compare(asking *a, const weir_outputs *out)
{
    size_t count = 0, at = 0;
    for (size_t i = 0; i < out->count; i++)
        count += numbers_in(&out->tensors[i]);
    bool first = !a->wanted;
    if (first) {
        a->count = count;
        a->wanted = calloc(count + 1, sizeof *a->wanted);
        check(a->wanted != NULL, "no host memory");
    }
    if (count != a->count)
        a->different = INFINITY;
    for (size_t i = 0; i < out->count && count == a->count; i++)
        for (size_t k = 0; k < numbers_in(&out->tensors[i]); k++, at++) {
            double value = number_at(&out->tensors[i], k);
            if (first)
                a->wanted[at] = value;
            else
                a->different = fmax(a->different, fabs(value - a->wanted[at]));
        }
}

static void ask_once(asking *a)
{
    char tokens[24];
    const weir_setting settings[] = {{"tokens", tokens}, {"temperature", "0"}, {"ignore_eos", "1"}};
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    snprintf(tokens, sizeof tokens, "%lld", (long long)a->it->rest);
    inference.inputs = a->it->inputs;
    inference.input_count = a->it->input_count;
    if (a->it->generates) {
        inference.settings = settings;
        inference.setting_count = a->it->folder ? 2 : 3;
        inference.piece = take_piece;
        inference.piece_user = a;
    }
    a->first = 0;
    a->began = now_ms();
    must(weir_model_infer(a->model, &inference, &out), a->it->name);
    note_first(a);
    compare(a, &out);
    weir_model_release_outputs(a->model, &out);
}

/* ---- one model --------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *list, uint64_t count)
{
    qsort(list, count, sizeof *list, by_size);
    return count > 0 ? list[count / 2] : 0;
}

static weir_model *load(const bench *b, const served *it, double *ms)
{
    const char *module = getenv("WEIR_LLAMA_CUDA");
    bool on_host = strcmp(b->device, "host") == 0;
    weir_setting settings[3];
    size_t count = 0;
    weir_model *model = NULL;
    weir_model_options options = WEIR_INIT(weir_model_options);
    if (on_host)
        settings[count++] = (weir_setting){"threads", it->threads};
    if (it->generates && !it->folder)
        settings[count++] = (weir_setting){"context", it->context};
    if (it->generates && !it->folder && !on_host && module)
        settings[count++] = (weir_setting){"llama_cuda", module};
    options.engine = it->engine->name;
    options.runtime = b->runtime;
    options.settings = settings;
    options.setting_count = count;
    double began = now_ms();
    WEIR(weir_model_create(it->path, &options, &model));
    *ms = now_ms() - began;
    return model;
}

typedef struct figures {
    double run[CYCLES], suspend[CYCLES], resumed[CYCLES], shown[CYCLES], back[CYCLES];
    double share; /* the largest */
    uint64_t away, runs;
} figures;

/* Suspended, resumed, and asked: from the resume on. */
static void cycle_whole(asking *a, figures *f, uint64_t i)
{
    WEIR(weir_model_suspend(a->model, NULL, NULL));
    f->suspend[i] = presence_of(a->model).suspend_ms;
    double began = now_ms();
    WEIR(weir_model_resume(a->model, WEIR_STREAM_HOST));
    ask_once(a);
    f->resumed[i] = a->first - began;
}

/* Suspended and shown, and asked until all is back. */
static void cycle_shown(const bench *b, asking *a, figures *f, uint64_t i)
{
    weir_model_suspend_options options = WEIR_INIT(weir_model_suspend_options);
    weir_residency receipt = WEIR_INIT(weir_residency);
    options.show = true;
    options.step = b->step;
    WEIR(weir_model_suspend(a->model, &options, &receipt));
    double began = now_ms();
    ask_once(a);
    f->shown[i] = a->first - began;
    f->away = receipt.away;
    double share = receipt.away > 0 ? (double)(receipt.away - a->away) / (double)receipt.away : 0;
    f->share = receipt.shown > 0 ? fmax(f->share, share) : -1;
    f->runs++;
    while (presence_of(a->model).state != WEIR_RESIDENT && now_ms() - began < BACK_MS) {
        ask_once(a);
        f->runs++;
    }
    f->back[i] = now_ms() - began;
}

static void print_figures(const bench *b, const asking *a, figures *f, double load_ms)
{
    uint64_t n = b->cycles;
    printf("{\"model\": \"%s\", \"device\": \"%s\", \"cycles\": %llu, \"away\": %llu, \"load_ms\": %.2f, \"run_ms\": "
           "%.3f, "
           "\"suspend_ms\": %.2f, \"resumed_first_ms\": %.3f, \"shown_first_ms\": %.3f, \"share\": %.4f, \"back_ms\": "
           "%.2f, "
           "\"runs_until_back\": %.1f, \"most_different\": %g}\n",
           a->it->name, b->device, (unsigned long long)n, (unsigned long long)f->away, load_ms, median(f->run, n),
           median(f->suspend, n), median(f->resumed, n), median(f->shown, n), f->share, median(f->back, n),
           n > 0 ? (double)f->runs / (double)n : 0, a->different);
    fflush(stdout);
}

static bool measure_model(const bench *b, served *it)
{
    double load_ms;
    figures *f = calloc(1, sizeof *f);
    check(f != NULL, "no host memory");
    must(served_load(it, b->runtime), it->name); /* which makes the question */
    served_unload(it);
    asking a = {.it = it, .model = load(b, it, &load_ms)};
    ask_once(&a);
    for (uint64_t i = 0; i < b->cycles; i++) {
        ask_once(&a);
        f->run[i] = a.first - a.began;
    }
    for (uint64_t i = 0; i < b->cycles; i++) {
        cycle_whole(&a, f, i);
        cycle_shown(b, &a, f, i);
    }
    print_figures(b, &a, f, load_ms);
    bool good = b->any_answer || a.different <= b->difference;
    good &= !b->goal || f->share < 0.5;
    WEIR(weir_model_destroy(a.model));
    served_forget(it);
    free(a.wanted);
    free(f);
    return good;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static _Noreturn void usage(void)
{
    fprintf(stderr,
            "bench-first-answer [--device D] [--cycles N] [--step SIZE] [--difference X] [--goal] [--answers any] "
            "MODEL…\n");
    exit(2);
}

static void read_option(bench *b, const char *word, const char *value)
{
    if (!value)
        usage();
    if (strcmp(word, "--device") == 0)
        b->device = value;
    else if (strcmp(word, "--cycles") == 0)
        b->cycles = strtoull(value, NULL, 10);
    else if (strcmp(word, "--step") == 0)
        WEIR(weir_size_parse(value, &b->step));
    else if (strcmp(word, "--difference") == 0)
        b->difference = strtod(value, NULL);
    else if (strcmp(word, "--answers") == 0)
        b->any_answer = strcmp(value, "any") == 0;
    else
        usage();
}

int main(int argc, char **argv)
{
    bench b = {.device = "cuda:0", .cycles = 10};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--goal") == 0)
            b.goal = true;
        else if (strncmp(argv[i], "--", 2) == 0) {
            read_option(&b, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            i++;
        } else if (b.given < MODELS)
            served_read(&b.models[b.given++], argv[i]);
    }
    if (b.given == 0 || b.cycles < 1 || b.cycles > CYCLES)
        usage();
    WEIR(weir_runtime_create(b.device, NULL, &b.runtime));
    bool good = true;
    for (size_t i = 0; i < b.given; i++)
        good &= measure_model(&b, &b.models[i]);
    weir_stats stats = WEIR_INIT(weir_stats);
    WEIR(weir_snapshot(b.runtime, &stats, NULL, 0, NULL));
    check(stats.live + stats.promised + stats.away == 0, "the ledger is not back at zero");
    WEIR(weir_runtime_destroy(b.runtime));
    check(good, "an answer is another one than the first, or half of a model was in before its first answer");
    return 0;
}
