/* A program's own sessions on a device: ONNX Runtime's own arena, weir with a stream that it knows, and weir with ONNX
 * Runtime's own streams, by turns. Answers are compared, latencies told, and values are released after their session.
 * Works on a GPU, and on the stub with a model of copies.
 *
 *     test-bridge-gpu MODEL EXTENT PAIRS */
#include "ort.h"
#include <weir/onnxruntime.h>

enum { PLAIN, KNOWN, THEIRS, MODES, MOST_PAIRS = 2000 };

static const char *const mode_names[MODES] = {"its own arena", "weir, known stream", "weir, its own streams"};

typedef struct side {
    weir_client *client;
    weir_stream stream;
    weir_onnxruntime *bridge;
    ort_session *session;
    double took[MOST_PAIRS];
} side;

static ort_session_options *options_for(const side *s, int mode)
{
    /* The same algorithms every time, or sessions differ by themselves. */
    static const char *const keys[] = {"device_id", "do_copy_in_default_stream", "cudnn_conv_algo_search"};
    static const char *const values[] = {"0", "1", "HEURISTIC"};
    ort_session_options *options = ort_options(mode != PLAIN);
    ort_cuda_options *cuda;
    ort_ok(ort->CreateCUDAProviderOptions(&cuda));
    ort_ok(ort->UpdateCUDAProviderOptions(cuda, keys, values, 3));
    if (s->stream.id)
        ort_ok(ort->UpdateCUDAProviderOptionsWithValue(cuda, "user_compute_stream", weir_stream_native(s->stream)));
    ort_ok(ort->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda));
    ort->ReleaseCUDAProviderOptions(cuda);
    return options;
}

static void open_side(side *s, weir_runtime *runtime, const char *model, int mode)
{
    memset(s, 0, sizeof *s);
    if (mode == PLAIN) {
        ort_ok(ort_create(model, options_for(s, mode), &s->session));
        return;
    }
    s->client = open_client(runtime, mode_names[mode], 0, 0);
    if (mode == KNOWN)
        ok(weir_stream_acquire(runtime, &s->stream));
    weir_onnxruntime_options o = ort_bridge(s->client);
    o.stream = s->stream;
    ok(weir_onnxruntime_create(&o, &s->bridge));
    ok(weir_onnxruntime_enter(s->bridge));
    ort_ok(ort_create(model, options_for(s, mode), &s->session));
    weir_onnxruntime_leave(s->bridge);
}

static weir_onnxruntime_details stats_of(const side *s)
{
    weir_onnxruntime_details stats = WEIR_INIT(weir_onnxruntime_details);
    ok(weir_onnxruntime_info(s->bridge, &stats));
    return stats;
}

/* Its session is released. */
static void close_side(side *s, int mode)
{
    if (mode == PLAIN)
        return;
    weir_onnxruntime_details stats = stats_of(s);
    assert_int_equal(stats.live + stats.foreign + stats.refused, 0);
    assert_true(stats.on_stream > 0);
    assert_int_equal(stats.unknown, mode == KNOWN ? 0 : stats.on_stream);
    ok(weir_onnxruntime_destroy(s->bridge));
    if (s->stream.id)
        ok(weir_stream_release(s->stream));
    ok(weir_client_destroy(s->client));
}

/* ------------------------------------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return values[count / 2];
}

static double run_once(const side *s, const ort_ports *inputs, ort_ports *outputs)
{
    uint64_t start = now_ns();
    ort_ok(ort_run(s->session, inputs, outputs));
    return (double)(now_ns() - start) / 1e6;
}

/* Answers how many differ. */
static int compare(side *sides, int64_t extent, int pairs)
{
    ort_ports inputs[MODES], outputs[MODES];
    int unequal[MODES] = {0};
    double ratios[MOST_PAIRS] = {0};
    for (int mode = 0; mode < MODES; mode++) {
        ort_inputs(sides[mode].session, 1, extent, &inputs[mode]);
        ort_outputs(sides[mode].session, &outputs[mode]);
    }
    for (int i = -5; i < pairs; i++) {
        for (int mode = 0; mode < MODES; mode++) {
            double took = run_once(&sides[mode], &inputs[mode], &outputs[mode]);
            sides[mode].took[i < 0 ? 0 : i] = took;
            unequal[mode] += mode != PLAIN && !ort_equal(&outputs[PLAIN], &outputs[mode]);
        }
        for (int mode = 0; mode < MODES; mode++)
            ort_release_values(&outputs[mode]);
    }
    for (int mode = KNOWN; mode < MODES; mode++) {
        for (int i = 0; i < pairs; i++)
            ratios[i] = sides[mode].took[i] / sides[PLAIN].took[i];
        printf("%s: ratio to its own arena %.3f (median of %d), %d of %d answers differ\n", mode_names[mode],
               median(ratios, pairs), pairs, unequal[mode], pairs + 5);
    }
    for (int mode = 0; mode < MODES; mode++) {
        printf("%s: %.3f ms\n", mode_names[mode], median(sides[mode].took, pairs));
        ort_release(&outputs[mode]);
        ort_release(&inputs[mode]);
    }
    return unequal[KNOWN] + unequal[THEIRS];
}

static void print_memory(const side *s)
{
    weir_client_stats c = {.struct_size = sizeof c};
    weir_onnxruntime_details b = stats_of(s);
    ok(weir_client_info(s->client, &c));
    printf("%s: peak %.1f MiB, weights %.1f MiB; %llu blocks, %llu on streams, %llu of those unknown\n", c.name,
           (double)c.peak / 1048576, (double)c.live_class[WEIR_CLASS_WEIGHTS] / 1048576, (unsigned long long)b.blocks,
           (unsigned long long)b.on_stream, (unsigned long long)b.unknown);
}

/* What the runs of both bridges took of weir, for each of them; allocations by rung of the ladder. */
static void print_work(weir_runtime *runtime, int runs)
{
    weir_stats s = take_snapshot(runtime).device;
    double n = runs * 2.0;
    printf("both: a run takes %.1f allocations, %.1f of them hits, %.2f calls of the driver, %.2f moves; rungs",
           (double)s.allocations / n, (double)s.hits / n, (double)s.driver_calls / n, (double)s.moved / n);
    for (int i = 0; i < WEIR_RUNG_COUNT; i++)
        printf(" %.2f", (double)s.ladder[i] / n);
    printf("\n");
}

/* Outputs that stay on the device are released after their session, whose streams are gone then. */
static void values_outlive_their_session(weir_runtime *runtime, const char *model, int64_t extent, int mode)
{
    for (int i = 0; i < 10; i++) {
        side s;
        ort_ports inputs, outputs;
        ort_binding *binding;
        ort_memory_info *device;
        ort_value **values;
        size_t count;
        open_side(&s, runtime, model, mode);
        ort_inputs(s.session, 1, extent, &inputs);
        ort_outputs(s.session, &outputs);
        ort_ok(ort->CreateMemoryInfo("Cuda", ORT_DEVICE_ALLOCATOR, 0, ORT_MEMORY_DEFAULT, &device));
        ort_ok(ort->CreateIoBinding(s.session, &binding));
        for (size_t k = 0; k < inputs.count; k++)
            ort_ok(ort->BindInput(binding, inputs.names[k], inputs.values[k]));
        for (size_t k = 0; k < outputs.count; k++)
            ort_ok(ort->BindOutputToDevice(binding, outputs.names[k], device));
        ort_ok(ort->RunWithBinding(s.session, NULL, binding));
        ort_allocator *plain;
        ort_ok(ort->GetAllocatorWithDefaultOptions(&plain));
        ort_ok(ort->GetBoundOutputValues(binding, plain, &values, &count));
        ort->ReleaseIoBinding(binding);
        ort->ReleaseSession(s.session);
        assert_true(count > 0 && stats_of(&s).live >= count);
        for (size_t k = 0; k < count; k++)
            ort->ReleaseValue(values[k]);
        ort_ok(ort->AllocatorFree(plain, (void *)values));
        ort->ReleaseMemoryInfo(device);
        ort_release(&outputs);
        ort_release(&inputs);
        close_side(&s, mode);
    }
}

static const char *model;
static int64_t extent;
static int pairs;

static void by_turns(void **state)
{
    (void)state;
    static side sides[MODES];
    weir_runtime *runtime = make_runtime_on("cuda:0", 0);
    for (int mode = 0; mode < MODES; mode++)
        open_side(&sides[mode], runtime, model, mode);
    int unequal = compare(sides, extent, pairs);
    print_work(runtime, pairs + 5);
    print_memory(&sides[KNOWN]);
    print_memory(&sides[THEIRS]);
    for (int mode = 0; mode < MODES; mode++) {
        ort->ReleaseSession(sides[mode].session);
        close_side(&sides[mode], mode);
    }
    values_outlive_their_session(runtime, model, extent, KNOWN);
    values_outlive_their_session(runtime, model, extent, THEIRS);
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
    assert_int_equal(unequal, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_turns)};
    if (argc != 4)
        return 2;
    model = argv[1];
    extent = strtol(argv[2], NULL, 10);
    pairs = (int)strtol(argv[3], NULL, 10);
    int status = ort_open("onnxruntime-cuda");
    return status || pairs < 1 || pairs > MOST_PAIRS ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
