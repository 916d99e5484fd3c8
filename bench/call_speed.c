/* call_speed.c: what a call of a model costs: by ONNX Runtime alone, its inputs made into values once; by weir_model_infer; and by
 * a prepared call. By turns in one process, in rounds of many; medians of the rounds, and of their quotients (the goal for the
 * prepared call: at most 1.02 of plain).
 *
 *   bench-call-speed MODEL [--rounds N] [--calls N] [--extent N] [KEY=VALUE…]
 *
 * Every open extent is N (1). Whole numbers are 1, others 0.5. bench/call_speed.py has the same calls made by Python. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>
#include <weir/engine.h>
#include <weir/model.h>

#include "onnx/file/main_graph.h"
#include "plain.h"

enum { MOST_ROUNDS = 1000, PORTS = 32, SETTINGS = 16, WAYS = 3 };

typedef struct bench {
    const char *path;
    int rounds, calls, extent;
    weir_setting settings[SETTINGS];
    size_t setting_count;
    weir_model *model;
    weir_model_details about;
    weir_tensor inputs[PORTS];
    weir_inference inference;
    weir_model_call *call;
    plain alone;
    const char *names[PORTS], *output_names[PORTS];
    ort_value *values[PORTS];
} bench;

static void need(weir_status status)
{
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "bench-call-speed: %s\n", weir_detail());
    exit(1);
}

static double now_us(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec * 1e-3;
}

/* ---- the three ways ---------------------------------------------------------------------------------------------- */

static void call_plain(bench *b)
{
    const ort_api *api = b->alone.library->api;
    ort_value *outputs[PORTS] = {NULL};
    onnx_attempt a;
    if (onnx_failed(api,
                    api->Run(b->alone.session, NULL, b->names, (const ort_value *const *)b->values,
                             b->about.input_count, b->output_names, b->about.output_count, outputs),
                    &a)) {
        fprintf(stderr, "bench-call-speed: plain: %s\n", a.text);
        exit(1);
    }
    for (size_t i = 0; i < b->about.output_count; i++)
        api->ReleaseValue(outputs[i]);
}

static void call_infer(bench *b)
{
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    need(weir_model_infer(b->model, &b->inference, &outputs));
    weir_model_release_outputs(b->model, &outputs);
}

static void call_prepared(bench *b)
{
    weir_model_call_results results = WEIR_INIT(weir_model_call_results);
    need(weir_model_call_run(b->call, &results));
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(const double *values, int count)
{
    double sorted[MOST_ROUNDS];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_size);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

static void measure(bench *b)
{
    static void (*const ways[WAYS])(bench * b) = {call_plain, call_infer, call_prepared};
    static double us[WAYS][MOST_ROUNDS], quotients[WAYS][MOST_ROUNDS];
    for (int round = -3; round < b->rounds; round++) {
        for (int turn = 0; turn < WAYS; turn++) {
            int way = (round + 3 + turn) % WAYS;
            double start = now_us();
            for (int i = 0; i < b->calls; i++)
                ways[way](b);
            if (round >= 0)
                us[way][round] = (now_us() - start) / b->calls;
        }
        for (int way = 0; way < WAYS && round >= 0; way++)
            quotients[way][round] = us[way][round] / us[0][round];
    }
    printf("{\"plain_us\": %.2f, \"infer_us\": %.2f, \"prepared_us\": %.2f, \"infer\": %.3f, \"prepared\": %.3f}\n",
           median(us[0], b->rounds), median(us[1], b->rounds), median(us[2], b->rounds),
           median(quotients[1], b->rounds), median(quotients[2], b->rounds));
}

/* ---- both sides -------------------------------------------------------------------------------------------------- */

static void make_input(bench *b, size_t index, const weir_port *port)
{
    weir_tensor *t = &b->inputs[index];
    *t = WEIR_INIT(weir_tensor);
    t->name = port->name;
    t->type = port->type;
    t->rank = port->rank;
    for (uint32_t i = 0; i < port->rank; i++)
        t->shape[i] = port->shape[i] < 0 ? b->extent : port->shape[i];
    need(weir_tensor_bytes(t->type, t->rank, t->shape, &t->bytes));
    t->data = calloc(1, t->bytes + 1);
    for (size_t i = 0; t->data && t->type == WEIR_TYPE_F32 && i < t->bytes / sizeof(float); i++)
        ((float *)t->data)[i] = 0.5f;
    for (size_t i = 0; t->data && t->type == WEIR_TYPE_I64 && i < t->bytes / sizeof(int64_t); i++)
        ((int64_t *)t->data)[i] = 1;
}

static void open_weir(bench *b)
{
    weir_model_options options = WEIR_INIT(weir_model_options);
    options.settings = b->settings;
    options.setting_count = b->setting_count;
    need(weir_model_create(b->path, &options, &b->model));
    b->about = WEIR_INIT(weir_model_details);
    need(weir_model_info(b->model, &b->about));
    if (b->about.input_count > PORTS || b->about.output_count > PORTS)
        exit(1);
    for (size_t i = 0; i < b->about.input_count; i++)
        make_input(b, i, &b->about.inputs[i]);
    b->inference = WEIR_INIT(weir_inference);
    b->inference.inputs = b->inputs;
    b->inference.input_count = b->about.input_count;
    need(weir_model_call_create(b->model, &b->inference, NULL, &b->call));
}

static void open_plain(bench *b)
{
    const onnx_library *library = NULL;
    onnx_settings settings;
    need(onnx_settings_read(b->settings, b->setting_count, false, NULL, &settings));
    need(onnx_library_get(ONNX_CPU, &library));
    b->alone = plain_open(library, b->path, &settings);
    for (size_t i = 0; i < b->about.output_count; i++)
        b->output_names[i] = b->about.outputs[i].name;
    for (size_t i = 0; i < b->about.input_count; i++) {
        const weir_tensor *t = &b->inputs[i];
        b->names[i] = t->name;
        ort_status *status = library->api->CreateTensorWithDataAsOrtValue(
            library->host, t->data, t->bytes, t->shape, t->rank, onnx_type_from_weir(t->type), &b->values[i]);
        if (status)
            exit(1);
    }
}

static void close_both(bench *b)
{
    for (size_t i = 0; i < b->about.input_count; i++) {
        b->alone.library->api->ReleaseValue(b->values[i]);
        free(b->inputs[i].data);
    }
    plain_close(&b->alone);
    need(weir_model_call_destroy(b->call));
    need(weir_model_destroy(b->model));
}

int main(int argc, char **argv)
{
    static bench b = {.rounds = 101, .calls = 100, .extent = 1};
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        int *number = strcmp(argv[i], "--rounds") == 0   ? &b.rounds
                      : strcmp(argv[i], "--calls") == 0  ? &b.calls
                      : strcmp(argv[i], "--extent") == 0 ? &b.extent
                                                         : NULL;
        if (number && i + 1 < argc) {
            *number = atoi(argv[++i]);
        } else if (equals && b.path && b.setting_count < SETTINGS) {
            *equals = '\0';
            b.settings[b.setting_count++] = (weir_setting){argv[i], equals + 1};
        } else {
            b.path = argv[i];
        }
    }
    if (!b.path || b.rounds < 1 || b.rounds > MOST_ROUNDS || b.calls < 1) {
        fprintf(stderr, "usage: bench-call-speed MODEL [--rounds N] [--calls N] [--extent N] [KEY=VALUE...]\n");
        return 2;
    }
    open_weir(&b);
    open_plain(&b);
    measure(&b);
    close_both(&b);
    return 0;
}
