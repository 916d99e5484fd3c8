/* See gpu.h.
 *
 *     test-onnx-gpu DEVICE weir|plain PART WORD… */
#include "gpu.h"
#include <weir/engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/run/measure.h"

/* The exit status by which ctest knows what could not run: no engine, model or device. */
enum { SKIPPED = 77 };

const weir_engine *weir_engine_entry(uint32_t abi);

/* At once: other threads may be in the middle of a run, which would not survive the end of its libraries. */
static _Noreturn void leave(int status)
{
    fflush(NULL);
    _exit(status);
}

void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "test-onnx-gpu: %s\n", what);
    leave(1);
}

void must(weir_status status, const char *what)
{
    const char *require = getenv("WEIR_REQUIRE_ENGINES");
    bool missing = status == WEIR_ERR_NOT_FOUND || status == WEIR_ERR_UNSUPPORTED;
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "test-onnx-gpu: %s: %s\n", what, weir_detail());
    leave(missing && !(require && strcmp(require, "1") == 0) ? SKIPPED : 1);
}

bed bed_make(const char *device, bool alone)
{
    bed b = {.device = device, .alone = alone, .engine = weir_engine_entry(WEIR_ENGINE_ABI)};
    must(weir_runtime_get(device, NULL, &b.runtime), "the runtime");
    must(onnx_library_get(strcmp(b.device, "cuda") == 0 ? ONNX_CUDA : ONNX_CPU, &b.library), "the library");
    return b;
}

/* ---- models ---------------------------------------------------------------------------------------------------------- */

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void open_plain(served *s)
{
    static const onnx_graph nothing;
    onnx_settings settings = {.prepack = true, .memory_pattern = true, .optimization = 99};
    settings.provider = strcmp(s->bed->device, "host") == 0 ? ONNX_CPU : ONNX_CUDA;
    s->model = calloc(1, sizeof *s->model);
    check(s->model, "no host memory");
    s->model->library = s->bed->library;
    s->model->client = s->client;
    s->model->slots[0].session = plain_open(s->bed->library, s->path, &settings).session;
    must(onnx_ports_read(s->model, &nothing), s->path);
}

static size_t read_settings(const char *const *words, char texts[][64], weir_setting *list)
{
    size_t count = 0;
    for (; words && words[count]; count++) {
        snprintf(texts[count], sizeof *texts, "%s", words[count]);
        char *equals = strchr(texts[count], '=');
        check(equals, "a setting is KEY=VALUE");
        *equals = 0;
        list[count] = (weir_setting){texts[count], equals + 1};
    }
    return count;
}

weir_status serve_try(const bed *b, const char *path, uint64_t maximum, const char *const *settings, served *out)
{
    char texts[8][64];
    weir_setting list[8];
    *out = (served){.bed = b, .path = path, .name = file_name(path)};
    weir_client_options options = {.struct_size = sizeof options, .name = out->name, .maximum = maximum};
    must(weir_client_create(b->runtime, &options, &out->client), path);
    if (b->alone) {
        open_plain(out);
        return WEIR_OK;
    }
    weir_engine_place place = {b->runtime, out->client};
    weir_engine_load load = {
        .struct_size = sizeof load, .path = path, .places = &place, .place_count = 1, .settings = list};
    load.setting_count = read_settings(settings, texts, list);
    weir_status status = b->engine->load(&load, &out->model);
    if (status != WEIR_OK)
        must(weir_client_destroy(out->client), path);
    return status;
}

served serve(const bed *b, const char *path)
{
    served s;
    must(serve_try(b, path, 0, NULL, &s), path);
    return s;
}

void serve_end(served *s)
{
    if (s->bed->alone) {
        s->bed->library->api->ReleaseSession(s->model->slots[0].session);
        onnx_ports_free(&s->model->inputs);
        onnx_ports_free(&s->model->outputs);
        free(s->model);
    } else {
        s->bed->engine->unload(s->model);
    }
    must(weir_client_destroy(s->client), s->name);
}

/* ---- questions and answers --------------------------------------------------------------------------------------------- */

static void fill(weir_tensor *t)
{
    size_t width, count;
    must(weir_tensor_bytes(t->type, 0, NULL, &width), t->name);
    count = t->bytes / width;
    for (size_t i = 0; i < count; i++) {
        uint64_t noise = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
        if (t->type == WEIR_TYPE_F32)
            ((float *)t->data)[i] = (float)(noise & 0xffff) / 65536.0f - 0.5f;
        else if (t->type == WEIR_TYPE_I64)
            ((int64_t *)t->data)[i] = strstr(t->name, "mask")   ? 1
                                      : strstr(t->name, "type") ? 0
                                                                : (int64_t)(noise % 1000);
    }
}

void ask(const served *s, shape form, question *out)
{
    const onnx_ports *ports = &s->model->inputs;
    out->count = 0;
    for (size_t i = 0; i < ports->count; i++) {
        const weir_port *port = &ports->list[i];
        if (port->optional)
            continue;
        check(out->count < INPUTS_MOST, "too many inputs");
        weir_tensor *t = &out->inputs[out->count++];
        int64_t next = form.first;
        *t = (weir_tensor){.struct_size = sizeof *t, .name = port->name, .type = port->type, .rank = port->rank};
        for (uint32_t d = 0; d < port->rank; d++) {
            t->shape[d] = port->shape[d] < 0 ? next : port->shape[d];
            next = port->shape[d] < 0 ? form.rest : next;
        }
        must(weir_tensor_bytes(t->type, t->rank, t->shape, &t->bytes), port->name);
        t->data = calloc(1, t->bytes + 1);
        check(t->data, "no host memory");
        fill(t);
    }
}

void ask_end(question *q)
{
    for (size_t i = 0; i < q->count; i++)
        free(q->inputs[i].data);
    q->count = 0;
}

static void keep(const void *data, size_t bytes, answer *out)
{
    out->bytes = bytes;
    out->values = malloc(bytes + 1);
    check(out->values, "no host memory");
    memcpy(out->values, data, bytes);
}

static void run_plain(const served *s, const question *q, answer *out)
{
    plain p = {s->bed->library, s->model->slots[0].session};
    ort_value *values[PLAIN_VALUES];
    const onnx_ports *outputs = &s->model->outputs;
    plain_run(&p, q->inputs, q->count, outputs->names, outputs->count, values);
    if (out)
        keep(plain_data(&p, values[0]), plain_bytes(&p, values[0]), out);
    for (size_t i = 0; i < outputs->count; i++)
        p.library->api->ReleaseValue(values[i]);
}

weir_status run_try(const served *s, const question *q, answer *out)
{
    if (s->bed->alone) {
        run_plain(s, q, out);
        return WEIR_OK;
    }
    weir_inference inference = {.struct_size = sizeof inference, .inputs = q->inputs, .input_count = q->count};
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    weir_status status = s->bed->engine->infer(s->model, &inference, &outputs);
    if (status != WEIR_OK)
        return status;
    if (out)
        keep(outputs.tensors[0].data, outputs.tensors[0].bytes, out);
    s->bed->engine->release_outputs(s->model, &outputs);
    return WEIR_OK;
}

void run(const served *s, const question *q, answer *out)
{
    must(run_try(s, q, out), s->name);
}

bool same(const answer *a, const answer *b, double *most)
{
    check(a->bytes == b->bytes, "outputs of different sizes");
    for (size_t i = 0; most && i < a->bytes / sizeof(float); i++) {
        double difference = (double)a->values[i] - (double)b->values[i];
        difference = difference < 0 ? -difference : difference;
        *most = difference > *most ? difference : *most;
    }
    return memcmp(a->values, b->values, a->bytes) == 0;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------------- */

uint64_t live(const bed *b)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    must(weir_snapshot(b->runtime, &stats, NULL, 0, NULL), "statistics");
    return stats.live;
}

uint64_t held(const bed *b)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    must(weir_snapshot(b->runtime, &stats, NULL, 0, NULL), "statistics");
    return stats.held;
}

uint64_t taken(const bed *b)
{
    uint64_t bytes = 0;
    if (strcmp(b->device, "host") != 0)
        check(measure_device_taken(b->runtime, &bytes), "the driver does not tell its free memory");
    return bytes;
}

double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double percentile(double *list, size_t count, double share)
{
    if (count == 0)
        return 0;
    qsort(list, count, sizeof *list, by_value);
    size_t at = (size_t)(share * (double)count);
    return list[at < count ? at : count - 1];
}

/* ---- which part ---------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*part)(const bed *b, int argc, char **argv);
} parts[] = {{"speed", part_speed},       {"hold", part_hold},       {"serve", part_serve},
             {"shortage", part_shortage}, {"cycles", part_cycles},   {"refusals", part_refusals},
             {"threads", part_threads},   {"graph", part_graph},     {"where", part_where},
             {"delayed", part_delayed},   {"witness", part_witness}, {"cancel", part_cancel},
             {"buckets", part_buckets},   {"handles", part_handles}, {"concurrency", part_concurrency},
             {"again", part_again}};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 3 && i < sizeof parts / sizeof *parts; i++)
        if (strcmp(argv[3], parts[i].name) == 0) {
            bed b = bed_make(argv[1], strcmp(argv[2], "plain") == 0);
            return parts[i].part(&b, argc - 4, argv + 4);
        }
    fprintf(stderr, "usage: test-onnx-gpu DEVICE weir|plain PART WORD…; see scripts/gpu-onnx\n");
    return 2;
}
