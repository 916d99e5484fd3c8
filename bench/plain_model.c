/* One model by ONNX Runtime alone, as `weir run` has it: the same library, its environment made before the load is measured, the
 * level `extended` and one thread, but its own allocator and the weights left to it. For bench/real_models.py.
 *
 *     bench-plain-model MODEL RUNS [NAME TYPE SHAPE FILE]… -- OUTPUT…    SHAPE as 1x16, or "-" for a number; FILE has the bytes
 *
 * Prints JSON: seconds of the load and of a run behind the first, and what touched anonymous memory grew by up to the end of the last
 * run, after malloc_trim, with the results of one run there. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

#include "plain.h"

enum { LEVEL = 2 };

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "plain_model: %s: %s\n", what, why);
    exit(1);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static long anonymous(void)
{
    char line[256];
    long kilobytes = -1;
    malloc_trim(0);
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        (void)sscanf(line, "RssAnon: %ld", &kilobytes);
    if (!file || kilobytes < 0)
        fail("/proc/self/status", "it has no RssAnon");
    fclose(file);
    return kilobytes * 1024;
}

static weir_type type_of(const char *name)
{
    for (int i = 1; i < WEIR_TYPE_COUNT; i++) {
        const char *known = weir_name_of(WEIR_NAMES_TYPE, i);
        if (known && strcmp(known, name) == 0)
            return (weir_type)i;
    }
    fail(name, "no such type");
    return WEIR_TYPE_NONE;
}

static weir_tensor read_input(char **words)
{
    weir_tensor t = WEIR_INIT(weir_tensor);
    t.name = words[0];
    t.type = type_of(words[1]);
    for (char *at = words[2]; *at && *at != '-' && t.rank < WEIR_MAX_RANK; at += *at == 'x')
        t.shape[t.rank++] = strtoll(at, &at, 10);
    if (weir_tensor_bytes(t.type, t.rank, t.shape, &t.bytes) != WEIR_OK)
        fail(words[2], weir_detail());
    t.data = calloc(1, t.bytes + 64);
    FILE *file = fopen(words[3], "rb");
    if (!t.data || !file || fread(t.data, 1, t.bytes, file) != t.bytes)
        fail(words[3], "it cannot be read, or is too short");
    fclose(file);
    return t;
}

typedef struct model {
    weir_tensor inputs[PLAIN_VALUES];
    const char *outputs[PLAIN_VALUES];
    ort_value *values[PLAIN_VALUES];
    size_t input_count, output_count;
} model;

static void run(const plain *p, model *m)
{
    for (size_t i = 0; i < m->output_count; i++)
        if (m->values[i])
            p->library->api->ReleaseValue(m->values[i]);
    plain_run(p, m->inputs, m->input_count, m->outputs, m->output_count, m->values);
}

int main(int argc, char **argv)
{
    static model m;
    const onnx_library *library;
    onnx_settings settings = {
        .provider = ONNX_CPU, .prepack = true, .memory_pattern = true, .optimization = LEVEL, .threads = 1};
    int at = 3;
    if (argc < 4)
        fail("usage", "MODEL RUNS [NAME TYPE SHAPE FILE]... -- OUTPUT...");
    for (; at + 4 < argc && strcmp(argv[at], "--") != 0 && m.input_count < PLAIN_VALUES; at += 4)
        m.inputs[m.input_count++] = read_input(argv + at);
    for (at++; at < argc && m.output_count < PLAIN_VALUES; at++)
        m.outputs[m.output_count++] = argv[at];
    if (onnx_library_get(ONNX_CPU, &library) != WEIR_OK)
        fail("ONNX Runtime", weir_detail());
    long before = anonymous();
    double start = seconds();
    plain p = plain_open(library, argv[1], &settings);
    double loaded = seconds() - start;
    run(&p, &m);
    int runs = atoi(argv[2]);
    start = seconds();
    for (int i = 0; i < runs; i++)
        run(&p, &m);
    double each = (seconds() - start) / (runs ? runs : 1);
    printf("{\"load\": %.9f, \"run\": %.9f, \"grown\": %ld}\n", loaded, each, anonymous() - before);
    return 0;
}
