/* Two models served at once, each by a thread of its own, with shapes that vary. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

enum { SHAPES = 24, TIMES_MOST = 1 << 20 };

/* One thread's work: the shapes by turns, each answer compared with the first for its shape. */
typedef struct server {
    served model;
    question questions[SHAPES];
    answer answers[SHAPES];
    size_t shapes;
    const atomic_bool *stop;
    uint64_t runs, different, refused;
    double most;
    double *times;            /* of each run */
    const question *too_much; /* asked after each run, and refused; NULL: nothing is */
    pthread_t thread;
} server;

/* Images: batches of 1 to 32. Texts: batches of 1 to 16 with 16 to 384 tokens, in no order. */
static void make_questions(server *s, bool images, size_t shapes)
{
    s->shapes = shapes;
    for (size_t i = 0; i < shapes; i++) {
        int64_t mixed = (int64_t)((i * 2654435761u >> 4) % 97);
        shape form =
            images ? (shape){1 + (int64_t)((i * 37) % 32), 224} : (shape){1 + mixed % 16, 16 + mixed * 368 / 96};
        ask(&s->model, form, &s->questions[i]);
    }
}

static void note(server *s, size_t at, answer *got)
{
    if (!s->answers[at].values) {
        s->answers[at] = *got;
        return;
    }
    s->different += !same(&s->answers[at], got, &s->most);
    free(got->values);
}

static void *serve_on(void *user)
{
    server *s = user;
    while (!atomic_load(s->stop)) {
        size_t at = s->runs % s->shapes;
        answer got;
        double start = seconds();
        run(&s->model, &s->questions[at], &got);
        if (s->runs < TIMES_MOST)
            s->times[s->runs] = seconds() - start;
        s->runs++;
        note(s, at, &got);
        if (s->too_much) {
            weir_status status = run_try(&s->model, s->too_much, NULL);
            check(status == WEIR_ERR_OUT_OF_MEMORY, "what is too much was not refused");
            s->refused++;
        }
    }
    return NULL;
}

static void begin(server *s, const bed *b, const char *path, uint64_t maximum, bool images, size_t shapes)
{
    memset(s, 0, sizeof *s);
    must(serve_try(b, path, maximum, NULL, &s->model), path);
    s->times = calloc(TIMES_MOST, sizeof *s->times);
    check(s->times, "no host memory");
    make_questions(s, images, shapes);
}

static void end(server *s)
{
    for (size_t i = 0; i < s->shapes; i++) {
        ask_end(&s->questions[i]);
        free(s->answers[i].values);
    }
    free(s->times);
    serve_end(&s->model);
}

static void serve_for(server *servers, size_t count, double time)
{
    atomic_bool stop = false;
    for (size_t i = 0; i < count; i++) {
        servers[i].stop = &stop;
        servers[i].runs = servers[i].refused = 0;
        check(pthread_create(&servers[i].thread, NULL, serve_on, &servers[i]) == 0, "no thread");
    }
    usleep((useconds_t)(time * 1e6));
    atomic_store(&stop, true);
    for (size_t i = 0; i < count; i++)
        pthread_join(servers[i].thread, NULL);
}

/* The answers to all shapes, for a comparison with another process. */
static void write_answers(const server *servers, size_t count, const char *path)
{
    FILE *file = fopen(path, "wb");
    check(file, path);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < servers[i].shapes; k++) {
            uint64_t head[3] = {i, k, servers[i].answers[k].bytes};
            check(fwrite(head, sizeof head, 1, file) == 1 &&
                      fwrite(servers[i].answers[k].values, 1, head[2], file) == head[2],
                  path);
        }
    check(fclose(file) == 0, path);
}

static void number(const char *name, uint64_t value)
{
    printf("\"%s\": %llu, ", name, (unsigned long long)value);
}

static void print_served(const bed *b, const server *servers, uint64_t taken_by_it, uint64_t held_by_it)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_memory_stats memory = WEIR_INIT(weir_memory_stats);
    must(weir_snapshot(b->runtime, &stats, NULL, 0, NULL), "statistics");
    must(weir_memory_stats_info(b->runtime, &memory), "statistics");
    printf("{\"part\": \"serve\", \"plain\": %s, ", b->alone ? "true" : "false");
    number("images", servers[0].runs);
    number("texts", servers[1].runs);
    number("taken", taken_by_it);
    number("held", held_by_it);
    number("peak_held", stats.peak_held);
    number("peak_requested", memory.requested_bytes.peak);
    number("peak_in_use", stats.peak);
    number("budget", stats.budget);
    number("created", stats.created);
    number("moved", stats.moved);
    number("lent_clients", stats.lent_clients);
    number("lent_streams", stats.lent_streams);
    number("different", servers[0].different + servers[1].different);
    printf("\"most_different\": %.3g}\n", servers[0].most > servers[1].most ? servers[0].most : servers[1].most);
}

/* serve IMAGES TEXTS SECONDS SHAPES FILE: what is held while both are served; each shape's answer goes into the file. */
int part_serve(const bed *b, int argc, char **argv)
{
    check(argc == 5, "serve IMAGES TEXTS SECONDS SHAPES FILE");
    size_t shapes = strtoul(argv[3], NULL, 10);
    server servers[2];
    uint64_t before = taken(b), held_before = held(b);
    check(shapes > 0 && shapes <= SHAPES, "shapes");
    begin(&servers[0], b, argv[0], 0, true, shapes < 6 ? shapes : 6);
    begin(&servers[1], b, argv[1], 0, false, shapes);
    for (int i = 0; i < 2; i++) /* each shape once, alone: kernels are chosen then */
        for (size_t k = 0; k < servers[i].shapes; k++) {
            answer got;
            run(&servers[i].model, &servers[i].questions[k], &got);
            note(&servers[i], k, &got);
        }
    serve_for(servers, 2, strtod(argv[2], NULL));
    write_answers(servers, 2, argv[4]);
    print_served(b, servers, taken(b) - before, held(b) - held_before);
    end(&servers[1]);
    end(&servers[0]);
    check(live(b) == 0, "the ledger is not back at zero");
    return 0;
}

/* The most that the images' model takes for the small question. */
static uint64_t least_maximum(const bed *b, const char *path, shape form)
{
    served s = serve(b, path);
    question q;
    weir_client_stats stats = {.struct_size = sizeof stats};
    ask(&s, form, &q);
    for (int i = 0; i < 3; i++)
        run(&s, &q, NULL);
    must(weir_client_info(s.client, &stats), "statistics");
    ask_end(&q);
    serve_end(&s);
    return stats.peak + (8u << 20);
}

/* shortage IMAGES TEXTS SECONDS BATCH: the images' model has a maximum that a batch of 1 fits; the texts' times beside that,
 * and beside the same with a larger batch after each, which is refused: at once where its input alone is too much, in the
 * middle of its work otherwise. */
int part_shortage(const bed *b, int argc, char **argv)
{
    check(argc == 4, "shortage IMAGES TEXTS SECONDS BATCH");
    double time = strtod(argv[2], NULL), p99[2][3], middle[2];
    server servers[2];
    question too_much;
    begin(&servers[0], b, argv[0], least_maximum(b, argv[0], (shape){1, 224}), true, 1);
    begin(&servers[1], b, argv[1], 0, false, 4);
    ask(&servers[0].model, (shape){strtoll(argv[3], NULL, 10), 224}, &too_much);
    serve_for(servers, 2, 1);
    uint64_t refused = 0;
    for (int round = 0; round < 3; round++)
        for (int with = 0; with < 2; with++) {
            servers[0].too_much = with ? &too_much : NULL;
            serve_for(servers, 2, time / 6);
            refused += servers[0].refused;
            size_t runs = servers[1].runs < TIMES_MOST ? servers[1].runs : TIMES_MOST;
            p99[with][round] = percentile(servers[1].times, runs, 0.99);
            middle[with] = percentile(servers[1].times, runs, 0.5);
        }
    printf("{\"part\": \"shortage\", \"refused\": %llu, \"p99_beside_ms\": %.4f, \"p99_beside_refusals_ms\": %.4f, "
           "\"median_beside_ms\": %.4f, \"median_beside_refusals_ms\": %.4f, \"different\": %llu, "
           "\"most_different\": %.3g}\n",
           (unsigned long long)refused, percentile(p99[0], 3, 0.5) * 1e3, percentile(p99[1], 3, 0.5) * 1e3,
           middle[0] * 1e3, middle[1] * 1e3, (unsigned long long)servers[1].different, servers[1].most);
    ask_end(&too_much);
    end(&servers[1]);
    end(&servers[0]);
    check(live(b) == 0, "the ledger is not back at zero");
    return refused > 0 ? 0 : 1;
}

/* ---- the driver's own word ------------------------------------------------------------------------------------------------- */

static int64_t outside(const bed *b)
{
    return (int64_t)taken(b) - (int64_t)held(b);
}

/* Prints a step. WEIR_TEST_OUTSIDE: so many bytes there may be outside at each, as where no engine takes any. */
static void step(const bed *b, const char *what, const char *name)
{
    const char *most = getenv("WEIR_TEST_OUTSIDE");
    int64_t now = outside(b);
    printf("%s{\"step\": \"%s%s\", \"held\": %llu, \"outside\": %lld}", strcmp(what, "start") == 0 ? "" : ", ", what,
           name, (unsigned long long)held(b), (long long)now);
    check(!most || llabs(now) <= strtoll(most, NULL, 10), "the driver says otherwise than the ledger");
}

/* Answers how far what is outside got from where it was. */
static int64_t run_by_turns(const served *models, const question *q, unsigned long runs)
{
    int64_t drift = 0, settled = outside(models[0].bed);
    for (unsigned long i = 0; i < runs; i++) {
        run(&models[i % 2], &q[i % 2], NULL);
        int64_t now = outside(models[0].bed) - settled;
        drift = llabs(now) > llabs(drift) ? now : drift;
    }
    return drift;
}

/* witness IMAGES TEXTS RUNS: what the driver says is taken, less what weir holds, at each step. What an engine takes outside
 * comes with a model's load and first run of a shape; runs after that change nothing, nor does memory that goes from one
 * model to another, nor what weir gives back in the end. */
int part_witness(const bed *b, int argc, char **argv)
{
    check(argc == 3, "witness IMAGES TEXTS RUNS");
    served models[2];
    question q[2];
    printf("{\"part\": \"witness\", \"steps\": [");
    step(b, "start", "");
    for (int i = 0; i < 2; i++) {
        models[i] = serve(b, argv[i]);
        step(b, "load ", models[i].name);
        ask(&models[i], i ? (shape){8, 128} : (shape){16, 224}, &q[i]);
        for (int k = 0; k < 2; k++)
            run(&models[i], &q[i], NULL);
        step(b, "first runs of ", models[i].name);
    }
    int64_t drift = run_by_turns(models, q, strtoul(argv[2], NULL, 10));
    step(b, "runs: ", argv[2]);
    for (int i = 0; i < 2; i++) {
        const char *name = models[i].name;
        ask_end(&q[i]);
        serve_end(&models[i]);
        step(b, "unload ", name);
    }
    int64_t before = outside(b);
    must(weir_runtime_trim(b->runtime, NULL, NULL), "trim");
    step(b, "trim", "");
    printf("], \"drift\": %lld, \"trim_drift\": %lld}\n", (long long)drift, (long long)(outside(b) - before));
    check(live(b) == 0, "the ledger is not back at zero");
    return 0;
}
