/* Models on a CUDA device: whose the bytes are, what is handed over there, and what is refused. WEIR_TEST_DEVICE names it; over
 * the stub of CUDA everything but the kernels' results is real. */
#include "info.h"
#include "common.h"

#include <weir/stream.h>
#include <weir/engine.h>
#include <weir/onnxruntime.h>
#include <weir/pressure.h>
#include <weir/residency.h>

#include "model.h"

static weir_block_details details_of(const void *pointer)
{
    weir_block_details details = WEIR_INIT(weir_block_details);
    assert_ok(weir_block_info(pointer, &details));
    return details;
}

static weir_status infer_with(const loaded *l, const weir_tensor *input, const char *outputs, weir_outputs *out)
{
    weir_setting setting = {"outputs", outputs};
    weir_inference inference = {
        .struct_size = sizeof inference, .inputs = input, .input_count = 1, .settings = &setting, .setting_count = 1};
    *out = WEIR_INIT(weir_outputs);
    return l->engine->infer(l->model, &inference, out);
}

static void weights_and_activations_are_charged(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    uint64_t weights = live_class(&l, WEIR_CLASS_WEIGHTS);
    assert_true(weights >= 16 * 17 * 4);
    assert_int_equal(live(&l), weights);
    assert_int_equal(l.model->weight_count, 0); /* ONNX Runtime has placed them, from the mapped file */
    float x[32] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(2, 16), x);
    for (int i = 0; i < 3; i++) {
        weir_outputs out;
        assert_ok(infer_with(&l, &in, "host", &out));
        assert_false(out.tensors[0].on_device);
        assert_int_equal(out.tensors[0].bytes, 2 * 17 * 4);
        l.engine->release_outputs(l.model, &out);
    }
    weir_client_stats stats = {.struct_size = sizeof stats};
    assert_ok(weir_client_info(l.client, &stats));
    assert_true(stats.peak_class[WEIR_CLASS_ACTIVATIONS] >= 2 * 16 * 4 + 2 * 17 * 4);
    assert_int_equal(stats.outside, 0); /* the heap is the host's, and the client's memory is not */
    assert_int_equal(stats.promised, 0);
    weir_onnxruntime_details bridge = onnx_session_stats(&l.model->slots[0]);
    assert_true(bridge.on_stream > 0);
    assert_int_equal(bridge.unknown, 0); /* all of it on the session's own stream */
    unload_model(&l);
    close_client(&l);
}

static void outputs_stay_on_the_device(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    uint64_t before = live(&l);
    float x[32] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(2, 16), x);
    weir_outputs out;
    assert_ok(infer_with(&l, &in, "device", &out));
    assert_true(out.count > 0);
    for (size_t i = 0; i < out.count; i++) {
        assert_true(out.tensors[i].on_device);
        weir_block_details details = details_of(out.tensors[i].data);
        assert_ptr_equal(details.client, l.client);
        assert_int_equal(details.kind, WEIR_KIND_DEVICE);
        assert_true(details.offset + out.tensors[i].bytes <= details.bytes);
        assert_int_equal(details.stream.id, l.model->slots[0].stream.id);
    }
    assert_true(live(&l) > before);
    l.engine->release_outputs(l.model, &out);
    assert_ok(weir_stream_synchronize(l.model->slots[0].stream));
    unload_model(&l);
    close_client(&l);
}

/* One model's output on the device is the next run's input there, without a copy. */
static void inputs_may_lie_on_the_device(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    float x[16] = {0};
    void *there;
    assert_ok(weir_alloc(l.client, sizeof x, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &there));
    assert_ok(weir_copy(client_details(l.client).runtime, there, x, sizeof x, WEIR_STREAM_HOST));
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), there);
    in.on_device = true;
    weir_outputs out;
    assert_ok(infer_with(&l, &in, "device", &out));
    l.engine->release_outputs(l.model, &out);
    assert_ok(weir_free(l.client, there, l.model->slots[0].stream));
    unload_model(&l);
    close_client(&l);
}

static void refusals_are_clean(void **state)
{
    (void)state;
    loaded l = open_client(0);
    assert_ok(weir_client_set_limits(l.client, 0, 1024));
    assert_status(load_into(&l, "mlp", NULL), WEIR_ERR_OUT_OF_MEMORY);
    assert_detail("the whole model takes at least");
    assert_int_equal(live(&l), 0);
    assert_ok(weir_client_set_limits(l.client, 0, 0));
    assert_ok(load_into(&l, "mlp", NULL));
    uint64_t loaded_bytes = live(&l);
    assert_ok(weir_client_set_limits(l.client, 0, loaded_bytes + 1024));
    enum { ROWS = 64 };
    static float x[ROWS * 16];
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(ROWS, 16), x);
    weir_outputs out;
    assert_status(infer_with(&l, &in, "host", &out), WEIR_ERR_OUT_OF_MEMORY);
    assert_detail("maximum");
    assert_int_equal(live(&l), loaded_bytes);
    assert_ok(weir_client_set_limits(l.client, 0, 0));
    assert_ok(infer_with(&l, &in, "host", &out)); /* and it goes on */
    l.engine->release_outputs(l.model, &out);
    unload_model(&l);
    close_client(&l);
}

static void what_cannot_be_is_said(void **state)
{
    (void)state;
    loaded l = open_client(0);
    assert_status(load_into(&l, "mlp", (const char *const[]){"cuda.no_such_option=1", NULL}), WEIR_ERR_INVALID);
    assert_detail("no_such_option");
    assert_status(load_into(&l, "mlp", (const char *const[]){"tensorrt.trt_fp16_enable=1", NULL}), WEIR_ERR_INVALID);
    assert_detail("provider=tensorrt");
    assert_status(load_into(&l, "mlp", (const char *const[]){"tensorrt.trt_fp16_enable=1", "provider=tensorrt", NULL}),
                  WEIR_ERR_UNSUPPORTED);
    assert_status(load_into(&l, "mlp", (const char *const[]){"provider=tensorrt", NULL}), WEIR_ERR_UNSUPPORTED);
    assert_detail("TensorRT");
    assert_detail("libnvinfer.so.10");
    assert_int_equal(live(&l), 0);
    assert_ok(
        load_into(&l, "mlp", (const char *const[]){"cuda.use_tf32=0", "cuda.cudnn_conv_algo_search=HEURISTIC", NULL}));
    weir_model_details info = WEIR_INIT(weir_model_details);
    assert_ok(l.engine->info(l.model, &info));
    assert_string_equal(info.provider, "cuda");
    assert_non_null(strstr(info.remarks, "cuDNN"));
    unload_model(&l);
    close_client(&l);
}

static void warm_up_and_plan(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    uint64_t before = live(&l);
    assert_ok(l.engine->warm_up(l.model));
    assert_ok(weir_stream_synchronize(l.model->slots[0].stream));
    weir_engine_place place = {l.runtime, l.client};
    weir_engine_load load = {.struct_size = sizeof load, .path = model_path("mlp"), .places = &place, .place_count = 1};
    weir_engine_plan plan = {.struct_size = sizeof plan};
    assert_ok(l.engine->plan(&load, &plan));
    assert_false(plan.exact[WEIR_CLASS_WEIGHTS]);
    assert_in_range(plan.bytes[WEIR_CLASS_WEIGHTS], 1, before);
    unload_model(&l);
    close_client(&l);
}

/* Two runs of one shape: the second launches what the first captured, and takes nothing more. More shapes than there are graphs
 * are served all the same. */
static void runs_are_captured(void **state)
{
    (void)state;
    loaded l = load_model("chain", (const char *const[]){"cuda_graph=on", NULL});
    static float x[12 * 16];
    weir_outputs out;
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(2, 16), x);
    assert_ok(infer_with(&l, &in, "host", &out));
    assert_int_equal(out.tensors[0].bytes, 2 * 16 * 4);
    l.engine->release_outputs(l.model, &out);
    weir_client_stats stats = {.struct_size = sizeof stats};
    assert_ok(weir_client_info(l.client, &stats));
    assert_true(stats.pending >= 2 * 16 * 4); /* activations, which are freed, and which launches go on using */
    uint64_t settled = live(&l), taken = onnx_session_stats(&l.model->slots[0]).blocks;
    for (int i = 0; i < 3; i++) {
        assert_ok(infer_with(&l, &in, "host", &out));
        l.engine->release_outputs(l.model, &out);
    }
    assert_int_equal(onnx_session_stats(&l.model->slots[0]).blocks, taken);
    assert_int_equal(live(&l), settled);
    for (int64_t rows = 1; rows <= 12; rows++) {
        in = tensor("x", WEIR_TYPE_F32, SHAPE(rows, 16), x);
        assert_ok(infer_with(&l, &in, rows % 2 ? "device" : "host", &out));
        assert_int_equal(out.tensors[0].on_device, rows % 2);
        assert_int_equal(out.tensors[0].bytes, rows * 16 * 4);
        l.engine->release_outputs(l.model, &out);
    }
    unload_model(&l);
    close_client(&l);
}

weir_status __real_weir_copy(weir_runtime *runtime, void *to, const void *from, size_t bytes, weir_stream stream);
weir_status __wrap_weir_copy(weir_runtime *runtime, void *to, const void *from, size_t bytes, weir_stream stream);

static const void *sources[2]; /* whose copies are counted */
static int copied[2];

weir_status __wrap_weir_copy(weir_runtime *runtime, void *to, const void *from, size_t bytes, weir_stream stream)
{
    for (int i = 0; i < 2; i++)
        if (sources[i] && from == sources[i])
            copied[i]++;
    return __real_weir_copy(runtime, to, from, bytes, stream);
}

/* At its capture, for which it is also run as it is, and at each launch. */
static void a_graph_reads_each_input_at_each_run(void **state)
{
    (void)state;
    loaded l = load_model("default", (const char *const[]){"cuda_graph=on", NULL});
    float x[3] = {1, 2, 3}, ten = 10;
    weir_tensor both[] = {tensor("x", WEIR_TYPE_F32, SHAPE(3), x), tensor("scale", WEIR_TYPE_F32, SHAPE(1), &ten)};
    sources[0] = x;
    sources[1] = &ten;
    for (int i = 0; i < 4; i++) {
        weir_outputs out;
        copied[0] = copied[1] = 0;
        assert_ok(infer(&l, both, 2, &out));
        assert_int_equal(copied[0], i ? 1 : 2);
        assert_int_equal(copied[1], copied[0]);
        l.engine->release_outputs(l.model, &out);
    }
    sources[0] = sources[1] = NULL;
    unload_model(&l);
    close_client(&l);
}

typedef struct joining {
    const loaded *l;
    weir_tensor inputs[2];
    uint64_t together;
    weir_status status;
    pthread_t thread;
} joining;

static void *join_in(void *user)
{
    joining *it = user;
    weir_outputs out;
    it->status = infer(it->l, it->inputs, 2, &out);
    if (it->status != WEIR_OK)
        return NULL;
    it->together = out.together;
    it->l->engine->release_outputs(it->l->model, &out);
    return NULL;
}

/* Whichever of its inputs is on the device: such a run goes with no other, nor waits for one. */
static void inputs_on_the_device_go_with_nobody(void **state)
{
    (void)state;
    loaded l =
        load_model("joined", (const char *const[]){"max_batch_size=2", "max_queue_delay_microseconds=60000000", NULL});
    int64_t ids[4] = {1, 2, 3, 4}, scale = 2;
    for (int which = 0; which < 3; which++) { /* 2: none */
        weir_request request = {.struct_size = sizeof request, .bytes = sizeof ids, .stream = WEIR_STREAM_HOST};
        weir_block block;
        joining both[2];
        assert_ok(weir_alloc_with(l.client, &request, &block));
        for (int i = 0; i < 2; i++) {
            both[i] = (joining){.l = &l,
                                .inputs = {tensor("ids", WEIR_TYPE_I64, SHAPE(1, 4), ids),
                                           tensor("scale", WEIR_TYPE_I64, SHAPE(1, 1), &scale)}};
            if (which < 2) {
                both[i].inputs[which].data = block.pointer;
                both[i].inputs[which].on_device = true;
            }
            assert_int_equal(pthread_create(&both[i].thread, NULL, join_in, &both[i]), 0);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(both[i].thread, NULL);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(both[i].status, WEIR_OK);
            assert_int_equal(both[i].together, which < 2 ? 1 : 2);
        }
        assert_ok(weir_free(l.client, block.pointer, WEIR_STREAM_HOST));
    }
    unload_model(&l);
    close_client(&l);
}

static bool stays(const weir_residency *all, const char *tag)
{
    for (uint32_t i = 0; i < all->stays; i++)
        if (strcmp(all->stay[i].tag, tag) == 0)
            return all->stay[i].why == WEIR_STAY_STABLE;
    return false;
}

/* The addresses of a graph's inputs and outputs are in it, so that their blocks do not leave. */
static void blocks_of_a_graph_stay(void **state)
{
    (void)state;
    loaded l = load_model("chain", (const char *const[]){"cuda_graph=on", NULL});
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    weir_outputs out;
    weir_residency r = WEIR_INIT(weir_residency);
    assert_ok(infer_with(&l, &in, "host", &out));
    l.engine->release_outputs(l.model, &out);
    assert_ok(weir_client_suspend(l.client, NULL, &r));
    assert_ok(weir_client_resume(l.client, WEIR_STREAM_HOST));
    assert_true(stays(&r, "x"));
    assert_true(stays(&r, "y"));
    assert_ok(infer_with(&l, &in, "host", &out));
    l.engine->release_outputs(l.model, &out);
    unload_model(&l);
    close_client(&l);
}

/* A graph is one of the inputs' ranks, too. */
static void graphs_are_told_apart_by_their_ranks(void **state)
{
    (void)state;
    static const int64_t shape[4] = {4, 1, 1, 1},
                         others[][4] = {{1, 4, 1, 1}, {1, 1, 4, 1}, {1, 1, 1, 4}, {1, 1, 1, 2}};
    loaded l = load_model("rankless", (const char *const[]){"cuda_graph=on", NULL});
    float x[4] = {1, 2, 3, 4};
    for (int again = 0; again < 2; again++)
        for (uint32_t rank = 4; rank > 0; rank--) {
            weir_tensor in = tensor("x", WEIR_TYPE_F32, rank, shape, x);
            weir_outputs out;
            assert_ok(infer_with(&l, &in, "host", &out));
            assert_int_equal(out.tensors[0].rank, rank);
            assert_int_equal(out.tensors[0].bytes, sizeof x);
            l.engine->release_outputs(l.model, &out);
        }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) { /* and of every extent */
        weir_tensor in = tensor("x", WEIR_TYPE_F32, 4, others[i], x);
        weir_outputs out;
        assert_ok(infer_with(&l, &in, "host", &out));
        assert_memory_equal(out.tensors[0].shape, others[i], sizeof others[i]);
        l.engine->release_outputs(l.model, &out);
    }
    unload_model(&l);
    close_client(&l);
}

typedef struct held_outputs {
    const loaded *l;
    weir_outputs outputs;
} held_outputs;

static void release_them(held_outputs *held)
{
    held->l->engine->release_outputs(held->l->model, &held->outputs);
}

/* A stream that is captured refuses the free of a block from before: what is released meanwhile goes at the end. */
static void outputs_are_released_beside_a_capture(void **state)
{
    (void)state;
    loaded l = load_model("chain", (const char *const[]){"cuda_graph=on", NULL});
    enum { HELD = 3 };
    held_outputs held[HELD];
    weir_capture_pool *graph;
    float x[2 * 16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(2, 16), x);
    for (int i = 0; i < HELD; i++) {
        held[i] = (held_outputs){.l = &l};
        assert_ok(infer_with(&l, &in, "device", &held[i].outputs));
        assert_true(held[i].outputs.tensors[0].on_device);
    }
    uint64_t blocks = onnx_session_stats(&l.model->slots[0]).live;
    assert_ok(weir_capture_pool_create(l.client, &graph));
    onnx_capture_begin(l.model);
    assert_ok(weir_capture_begin(l.model->slots[0].stream, graph));
    for (int i = 0; i < HELD; i++)
        release_them(&held[i]);
    assert_int_equal(onnx_session_stats(&l.model->slots[0]).live, blocks);
    assert_ok(weir_capture_end(l.model->slots[0].stream, graph));
    onnx_capture_end(l.model);
    assert_int_equal(onnx_session_stats(&l.model->slots[0]).live, blocks - HELD);
    assert_ok(weir_capture_pool_destroy(graph, l.model->slots[0].stream));
    unload_model(&l);
    close_client(&l);
}

typedef struct cache {
    held_outputs held;
    weir_tensor next; /* the input of a run that needs what the cache has */
    pthread_t thread;
    weir_status status;
    int called;
} cache;

static void drop_cached(const weir_pressure *pressure, void *user)
{
    cache *c = user;
    (void)pressure;
    if (c->called++ == 0)
        release_them(&c->held);
}

static void *run_next(void *argument)
{
    cache *c = argument;
    weir_outputs out;
    c->status = infer_with(c->held.l, &c->next, "host", &out);
    if (c->status == WEIR_OK)
        c->held.l->engine->release_outputs(c->held.l->model, &out);
    return NULL;
}

/* A program that keeps outputs on the device gives them up when a run of the same model finds no memory, on a thread that has
 * the model's turn. */
static void outputs_are_given_up_for_a_run(void **state)
{
    (void)state;
    enum { ROWS = 4096, FEWER = 100 };
    static float x[ROWS * 16];
    loaded l = load_model("chain", (const char *const[]){"cuda_graph=on", NULL});
    cache c = {.held.l = &l, .next = tensor("x", WEIR_TYPE_F32, SHAPE(FEWER, 16), x)};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(ROWS, 16), x);
    struct timespec until;
    uint64_t id;
    assert_ok(infer_with(&l, &in, "device", &c.held.outputs));
    assert_ok(weir_client_set_limits(l.client, 0, live(&l) + 1024));
    assert_ok(weir_pressure_register(l.runtime, 0, drop_cached, &c, &id));
    pthread_create(&c.thread, NULL, run_next, &c);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    assert_int_equal(pthread_timedjoin_np(c.thread, NULL, &until), 0);
    assert_ok(c.status);
    assert_true(c.called > 0);
    assert_ok(weir_pressure_unregister(l.runtime, id));
    unload_model(&l);
    close_client(&l);
}

/* Pinned memory that a run before the capture leaves is given back while the stream is captured in weir's eyes. */
static void captured_runs_use_pinned_memory(void **state)
{
    (void)state;
    loaded l = load_model("parted", (const char *const[]){"cuda_graph=on", NULL});
    static float x[2 * 80];
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(2, 80), x);
    for (int i = 0; i < 3; i++) {
        weir_outputs out;
        assert_ok(infer_with(&l, &in, "host", &out));
        assert_int_equal(out.count, 40);
        l.engine->release_outputs(l.model, &out);
    }
    unload_model(&l);
    close_client(&l); /* to which blocks on the host count, too */
}

/* What a kernel takes without naming a stream is the graph's as well: launches go on using it. Whether all of the kernel can be
 * captured is for ONNX Runtime and the device to say: a run is answered in the end, and nothing is left of one that is not. */
static void captured_runs_take_memory_without_a_stream(void **state)
{
    (void)state;
    loaded l = load_model("einsum", (const char *const[]){"cuda_graph=on", NULL});
    static float x[2 * 8 * 16];
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(2, 8, 16), x);
    uint64_t blocks = onnx_session_stats(&l.model->slots[0]).live;
    int answered = 0;
    for (int i = 0; i < 3 * ONNX_REPLAYS_MOST && answered < 3; i++) {
        weir_outputs out;
        weir_status status = infer_with(&l, &in, "host", &out);
        if (status == WEIR_OK)
            l.engine->release_outputs(l.model, &out);
        else
            assert_status(status, WEIR_ERR_ENGINE);
        answered += status == WEIR_OK;
        assert_int_equal(onnx_session_stats(&l.model->slots[0]).live, blocks);
    }
    assert_int_equal(answered, 3);
    unload_model(&l);
    close_client(&l);
}

static bool holds(const weir_tensor *tensor, const void *bytes)
{
    return memcmp(tensor->data, bytes, tensor->bytes) == 0;
}

/* ONNX Runtime takes a graph for captured once its capture has ended, however it ended, and would launch what there is of it. A
 * shape whose captures fail too often is answered without. */
static void what_cannot_be_captured_is_not_launched(void **state)
{
    (void)state;
    enum { RUNS = 3 * ONNX_REPLAYS_MOST }; /* a run that follows a failed one may fail for that */
    loaded other = load_model("fixed", (const char *const[]){"optimization=disable", NULL}),
           l = load_model("fixed", (const char *const[]){"cuda_graph=on", NULL});
    int failed = 0;
    float x[2 * 16];
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(2, 16), x);
    weir_outputs wanted, out;
    assert_ok(infer_with(&other, &in, "host", &wanted));
    uint64_t before = live(&l);
    for (int i = 0; i < RUNS; i++) {
        for (int k = 0; k < 2 * 16; k++)
            x[k] = (float)(i + k);
        weir_status status = infer_with(&l, &in, "host", &out);
        failed += status != WEIR_OK;
        if (status == WEIR_OK) {
            assert_true(holds(output(&out, "y"), x));
            assert_true(holds(output(&out, "v"), output(&wanted, "v")->data));
            l.engine->release_outputs(l.model, &out);
        } else {
            assert_status(status, WEIR_ERR_ENGINE);
            assert_int_equal(live(&l), before);
        }
    }
    assert_in_range(failed, ONNX_REPLAYS_MOST, RUNS - 2);
    other.engine->release_outputs(other.model, &wanted);
    unload_model(&other);
    unload_model(&l);
    close_client(&other);
    close_client(&l);
}

weir_status __real_weir_capture_begin(weir_stream stream, weir_capture_pool *pool);
weir_status __wrap_weir_capture_begin(weir_stream stream, weir_capture_pool *pool);

static const loaded *starved; /* its captures find no memory */

weir_status __wrap_weir_capture_begin(weir_stream stream, weir_capture_pool *pool)
{
    if (starved)
        assert_ok(weir_client_set_limits(starved->client, 0, live(starved)));
    return __real_weir_capture_begin(stream, pool);
}

/* However often memory is short in a capture, the next one is tried, and captured when there is some. */
static void a_capture_is_tried_again_for_memory(void **state)
{
    (void)state;
    loaded l = load_model("chain", (const char *const[]){"cuda_graph=on", NULL});
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    weir_outputs out;
    uint64_t before = live(&l);
    starved = &l;
    for (int i = 0; i < 2 * ONNX_REPLAYS_MOST; i++) {
        weir_status status = infer_with(&l, &in, "host", &out);
        assert_ok(weir_client_set_limits(l.client, 0, 0));
        assert_status(status, WEIR_ERR_OUT_OF_MEMORY);
        assert_ok(weir_stream_synchronize(l.model->slots[0].stream));
        assert_int_equal(live(&l), before);
    }
    starved = NULL;
    for (int again = 0; again < 3; again++) {
        uint64_t taken = onnx_session_stats(&l.model->slots[0]).blocks;
        assert_ok(infer_with(&l, &in, "host", &out));
        l.engine->release_outputs(l.model, &out);
        if (again)
            assert_int_equal(onnx_session_stats(&l.model->slots[0]).blocks, taken); /* it is a launch */
        else
            assert_true(onnx_session_stats(&l.model->slots[0]).blocks > taken);
    }
    unload_model(&l);
    close_client(&l);
}

static void a_capture_without_memory_is_refused(void **state)
{
    (void)state;
    enum { ROWS = 4096 };
    loaded l = load_model("mlp", (const char *const[]){"cuda_graph=on", NULL});
    uint64_t before = live(&l);
    float *x = calloc(ROWS, 16 * sizeof *x);
    assert_non_null(x);
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(ROWS, 16), x);
    weir_outputs out;
    for (uint64_t more = 1; more < 2u << 20; more += 128u << 10) {
        assert_ok(weir_client_set_limits(l.client, 0, before + more));
        weir_status status = infer_with(&l, &in, "host", &out);
        if (status == WEIR_OK)
            l.engine->release_outputs(l.model, &out);
        else
            assert_status(status, WEIR_ERR_OUT_OF_MEMORY);
    }
    assert_ok(weir_client_set_limits(l.client, 0, 0));
    assert_ok(infer_with(&l, &in, "host", &out));
    l.engine->release_outputs(l.model, &out);
    free(x);
    unload_model(&l);
    close_client(&l);
}

static void values_lie_as_suits_the_model(void **state)
{
    (void)state;
    loaded l = load_model("chain", NULL);
    assert_true(l.model->settings.memory_pattern);
    unload_model(&l);
    assert_ok(load_into(&l, "conv", NULL));
    assert_false(l.model->settings.memory_pattern);
    unload_model(&l);
    assert_ok(load_into(&l, "conv", (const char *const[]){"memory_pattern=on", NULL}));
    assert_true(l.model->settings.memory_pattern);
    unload_model(&l);
    close_client(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_and_activations_are_charged),
        cmocka_unit_test(outputs_stay_on_the_device),
        cmocka_unit_test(inputs_may_lie_on_the_device),
        cmocka_unit_test(refusals_are_clean),
        cmocka_unit_test(what_cannot_be_is_said),
        cmocka_unit_test(warm_up_and_plan),
        cmocka_unit_test(runs_are_captured),
        cmocka_unit_test(blocks_of_a_graph_stay),
        cmocka_unit_test(graphs_are_told_apart_by_their_ranks),
        cmocka_unit_test(a_graph_reads_each_input_at_each_run),
        cmocka_unit_test(inputs_on_the_device_go_with_nobody),
        cmocka_unit_test(outputs_are_released_beside_a_capture),
        cmocka_unit_test(outputs_are_given_up_for_a_run),
        cmocka_unit_test(captured_runs_use_pinned_memory),
        cmocka_unit_test(captured_runs_take_memory_without_a_stream),
        cmocka_unit_test(what_cannot_be_captured_is_not_launched),
        cmocka_unit_test(values_lie_as_suits_the_model),
        cmocka_unit_test(a_capture_without_memory_is_refused),
        cmocka_unit_test(a_capture_is_tried_again_for_memory),
    };
    int status = need_cuda_build();
    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
