/* Work that is held up. A session's frees come when its work is queued; here the device is kept from doing that work while
 * another session runs, and both answers must be right all the same: whoever has the first one's bytes too early writes into
 * its values, or is written over by its late kernels. */
#include <pthread.h>
#include <weir/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/run/measure.h"
#include "gpu.h"

void gate_close(gate *g, const bed *b, weir_client *client, weir_stream stream)
{
    enum { WAIT_VALUE_GEQ = 0 };
    void *ignored;
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    weir_request request = {.struct_size = sizeof request, .bytes = 4, .kind = WEIR_KIND_PINNED};
    const cuda_wanted wanted[] = {
        {"cuCtxPushCurrent", &g->push}, {"cuCtxPopCurrent", &g->pop}, {"cuStreamWaitValue32", &g->wait}};
    check(cuda_find(wanted, sizeof wanted / sizeof wanted[0]), "no CUDA");
    must(weir_alloc_with(client, &request, &g->block), "pinned memory");
    g->word = g->block.pointer;
    *g->word = 0;
    must(weir_runtime_info(b->runtime, &its), "its context");
    check(g->push(its.native) == 0 &&
              g->wait(weir_stream_native(stream), (uintptr_t)g->block.pointer, 1, WAIT_VALUE_GEQ) == 0 &&
              g->pop(&ignored) == 0,
          "no gate");
}

void gate_open(gate *g)
{
    *g->word = 1;
}

void gate_end(gate *g, weir_client *client, weir_stream stream)
{
    must(weir_free_block(client, g->block, stream), "gate");
}

/* A question whose inputs are on the device, so that nothing of a run needs the host. */
static void to_device(const bed *b, weir_client *client, question *q)
{
    for (size_t i = 0; i < q->count; i++) {
        void *there;
        must(weir_alloc(client, q->inputs[i].bytes, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &there), b->device);
        must(weir_copy(b->runtime, there, q->inputs[i].data, q->inputs[i].bytes, WEIR_STREAM_HOST), b->device);
        free(q->inputs[i].data);
        q->inputs[i].data = there;
        q->inputs[i].on_device = true;
    }
}

typedef struct held_up {
    const served *model;
    const question *q;
    answer got;
    volatile bool done;
} held_up;

static void *run_held_up(void *user)
{
    held_up *h = user;
    run(h->model, h->q, &h->got);
    h->done = true;
    return NULL;
}

static void infer_on_device(const served *s, const question *q, weir_outputs *out)
{
    weir_setting setting = {"outputs", "device"};
    weir_inference inference = {.struct_size = sizeof inference,
                                .inputs = q->inputs,
                                .input_count = q->count,
                                .settings = &setting,
                                .setting_count = 1};
    *out = WEIR_INIT(weir_outputs);
    must(s->bed->engine->infer(s->model, &inference, out), s->name);
    check(out->tensors[0].on_device, "an output that is not on the device");
}

static bool same_on_device(const bed *b, const weir_outputs *out, const answer *wanted, double *most)
{
    answer got = {malloc(out->tensors[0].bytes), out->tensors[0].bytes};
    must(weir_copy(b->runtime, got.values, out->tensors[0].data, got.bytes, WEIR_STREAM_HOST), "copy");
    bool equal = same(wanted, &got, most);
    free(got.values);
    return equal;
}

enum { LATER = 8 };

/* delayed SLOW QUICK ROUNDS: in each, SLOW is held up while QUICK runs, whose outputs stay on the device until SLOW is done. */
int part_delayed(const bed *b, int argc, char **argv)
{
    check(argc == 3, "delayed SLOW QUICK ROUNDS");
    served slow = serve(b, argv[0]), quick = serve(b, argv[1]);
    question slow_q, quick_q;
    answer slow_wanted, quick_wanted;
    unsigned long rounds = strtoul(argv[2], NULL, 10), different = 0, held_up_runs = 0;
    double most = 0;
    ask(&slow, (shape){8, 128}, &slow_q);
    ask(&quick, (shape){4, 224}, &quick_q);
    for (int i = 0; i < 3; i++) {
        run(&slow, &slow_q, i ? NULL : &slow_wanted);
        run(&quick, &quick_q, i ? NULL : &quick_wanted);
    }
    to_device(b, slow.client, &slow_q);
    run(&slow, &slow_q, NULL);
    for (unsigned long round = 0; round < rounds; round++) {
        gate g = {0};
        held_up h = {&slow, &slow_q, {0}, false};
        pthread_t thread;
        weir_outputs outputs[LATER];
        gate_close(&g, b, slow.client, slow.model->slots[0].stream);
        check(pthread_create(&thread, NULL, run_held_up, &h) == 0, "no thread");
        usleep(20000); /* its work is queued by now, and some blocks are freed behind it */
        for (int i = 0; i < LATER; i++)
            infer_on_device(&quick, &quick_q, &outputs[i]);
        held_up_runs += !h.done;
        gate_open(&g);
        pthread_join(thread, NULL);
        different += !same(&slow_wanted, &h.got, &most);
        free(h.got.values);
        for (int i = 0; i < LATER; i++) {
            different += !same_on_device(b, &outputs[i], &quick_wanted, &most);
            b->engine->release_outputs(quick.model, &outputs[i]);
        }
        gate_end(&g, slow.client, slow.model->slots[0].stream);
    }
    printf("{\"part\": \"delayed\", \"rounds\": %lu, \"held_up\": %lu, \"different\": %lu, \"most_different\": %.3g}\n",
           rounds, held_up_runs, different, most);
    for (size_t i = 0; i < slow_q.count; i++)
        must(weir_free(slow.client, slow_q.inputs[i].data, WEIR_STREAM_HOST), "inputs");
    ask_end(&quick_q);
    serve_end(&quick);
    serve_end(&slow);
    free(slow_wanted.values);
    free(quick_wanted.values);
    check(live(b) == 0, "the ledger is not back at zero");
    return most < 1e-3 && held_up_runs == rounds ? 0 : 1;
}
