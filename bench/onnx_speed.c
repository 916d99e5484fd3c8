/* ONNX Runtime alone against ONNX Runtime through weir, on the sentence encoder: the same inputs, run by turns in one
 * process so that both see the same machine; medians, and their ratio (the goal: at least 0.97 of the plain speed).
 *
 *     bench-onnx-speed [MODEL] [REPEATS] [KEY=VALUE…]      settings as of the engine onnx
 *
 * "plain" has ONNX Runtime's own default options: its arena, every optimization, prepacked weights. threads=N holds for
 * both; with threads=1 everything happens on the calling thread, and its processor time is measured instead of the clock
 * on the wall, so that other work on the machine matters less. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>
#include <weir/engine.h>

#include "plain.h"

enum { SETTINGS = 8, INPUTS = 3 };

static const char *const outputs_wanted[] = {"last_hidden_state", "sentence_embedding"};
enum { OUTPUTS = 2 };

const weir_engine *weir_engine_entry(uint32_t abi);

static void must(weir_status status)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "onnx_speed: %s\n", weir_detail());
        exit(1);
    }
}

static clockid_t measured = CLOCK_MONOTONIC;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(measured, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *list, size_t count)
{
    qsort(list, count, sizeof *list, by_value);
    return list[count / 2];
}

static void make_inputs(weir_tensor *inputs, int64_t batch, int64_t tokens)
{
    static const char *const names[INPUTS] = {"input_ids", "attention_mask", "token_type_ids"};
    for (int i = 0; i < INPUTS; i++) {
        weir_tensor *t = &inputs[i];
        free(t->data);
        *t = (weir_tensor){
            .struct_size = sizeof *t, .name = names[i], .type = WEIR_TYPE_I64, .rank = 2, .shape = {batch, tokens}};
        must(weir_tensor_bytes(t->type, t->rank, t->shape, &t->bytes));
        int64_t *values = t->data = malloc(t->bytes + 1);
        if (!values)
            exit(1);
        for (int64_t k = 0; k < batch * tokens; k++)
            values[k] = i == 0 ? 1000 + k * 7919 % 20000 : i == 1;
    }
}

/* Threads of the side that was timed before may still spin for work; with one thread there are none. */
static void rest(void)
{
    if (measured == CLOCK_MONOTONIC)
        nanosleep(&(struct timespec){0, 200L * 1000 * 1000}, NULL);
}

static double time_plain(const plain *p, const weir_tensor *inputs)
{
    ort_value *outputs[OUTPUTS];
    rest();
    double start = seconds();
    plain_run(p, inputs, INPUTS, outputs_wanted, OUTPUTS, outputs);
    for (int i = 0; i < OUTPUTS; i++)
        p->library->api->ReleaseValue(outputs[i]);
    return seconds() - start;
}

static double time_weir(const weir_engine *engine, weir_engine_model *model, const weir_tensor *inputs)
{
    weir_inference inference = {.struct_size = sizeof inference, .inputs = inputs, .input_count = INPUTS};
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    rest();
    double start = seconds();
    must(engine->infer(model, &inference, &outputs));
    engine->release_outputs(model, &outputs);
    return seconds() - start;
}

/* By turns, and the order of each pair turns as well. */
static void compare(const plain *p, const weir_engine *engine, weir_engine_model *model, const weir_tensor *inputs,
                    size_t repeats, double *plain_median, double *weir_median)
{
    double *a = calloc(repeats, sizeof *a), *b = calloc(repeats, sizeof *b);
    if (!a || !b)
        exit(1);
    for (int i = 0; i < 3; i++) {
        time_plain(p, inputs);
        time_weir(engine, model, inputs);
    }
    for (size_t i = 0; i < repeats; i++) {
        if (i % 2)
            b[i] = time_weir(engine, model, inputs);
        a[i] = time_plain(p, inputs);
        if (i % 2 == 0)
            b[i] = time_weir(engine, model, inputs);
    }
    *plain_median = median(a, repeats);
    *weir_median = median(b, repeats);
    free(a);
    free(b);
}

static size_t read_settings(int argc, char **argv, weir_setting *settings)
{
    size_t count = 0;
    for (int i = 1; i < argc && count < SETTINGS; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals)
            continue;
        *equals = 0;
        settings[count++] = (weir_setting){argv[i], equals + 1};
    }
    return count;
}

static weir_engine_model *load(const weir_engine *engine, const char *path, weir_client *client,
                               const weir_setting *settings, size_t count)
{
    weir_client_stats account = WEIR_INIT(weir_client_stats);
    if (weir_client_info(client, &account) != WEIR_OK)
        return NULL;
    weir_engine_place place = {account.runtime, client};
    weir_engine_load request = {.struct_size = sizeof request,
                                .path = path,
                                .places = &place,
                                .place_count = 1,
                                .settings = settings,
                                .setting_count = count};
    weir_engine_model *model;
    must(engine->load(&request, &model));
    return model;
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][2] = {{1, 32}, {1, 128}, {8, 32}, {8, 128}};
    char path[512];
    weir_option home = WEIR_INIT(weir_option);
    must(weir_option_info("home", 0, &home));
    snprintf(path, sizeof path, "%s/models/minilm.onnx", home.value);
    const char *file = argc > 1 && !strchr(argv[1], '=') ? argv[1] : path;
    size_t repeats = argc > 2 && !strchr(argv[2], '=') ? strtoul(argv[2], NULL, 10) : 60;
    weir_setting settings[SETTINGS];
    size_t setting_count = read_settings(argc, argv, settings);
    onnx_settings chosen;
    must(onnx_settings_read(settings, setting_count, false, NULL, &chosen));
    if (chosen.threads == 1)
        measured = CLOCK_THREAD_CPUTIME_ID;

    const onnx_library *library;
    must(onnx_library_get(ONNX_CPU, &library));
    weir_runtime *runtime;
    weir_client *client;
    must(weir_runtime_get("host", NULL, &runtime));
    weir_client_options options = {.struct_size = sizeof options, .name = "minilm"};
    must(weir_client_create(runtime, &options, &client));
    const weir_engine *engine = weir_engine_entry(WEIR_ENGINE_ABI);
    weir_engine_model *model = load(engine, file, client, settings, setting_count);
    /* ONNX Runtime's defaults, but for the threads. */
    onnx_settings defaults = {.prepack = true, .memory_pattern = true, .optimization = 99, .threads = chosen.threads};
    plain p = plain_open(library, file, &defaults);
    weir_tensor inputs[INPUTS] = {0};

    printf("ONNX Runtime %s, %zu pairs each, %s\n", library->version, repeats,
           chosen.threads == 1 ? "processor time of one thread" : "wall time");
    printf("%5s %6s  %10s %10s  %s\n", "batch", "tokens", "plain ms", "weir ms", "speed weir/plain");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        double alone, through;
        make_inputs(inputs, shapes[i][0], shapes[i][1]);
        compare(&p, engine, model, inputs, repeats, &alone, &through);
        printf("%5d %6d  %10.3f %10.3f  %.3f\n", (int)shapes[i][0], (int)shapes[i][1], alone * 1e3, through * 1e3,
               alone / through);
    }
    for (int i = 0; i < INPUTS; i++)
        free(inputs[i].data);
    plain_close(&p);
    engine->unload(model);
    must(weir_client_destroy(client));
    return 0;
}
