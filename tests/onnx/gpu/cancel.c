/* Runs that are served through graphs, cancelled: one whose graph was launched and is held up, and one that waits behind it. */
#include <pthread.h>
#include <weir/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu.h"

typedef struct cancelled {
    const served *model;
    const question *q;
    const answer *wanted;
    uint64_t id;
    weir_status status;
    bool equal;
    pthread_t thread;
} cancelled;

static void *run_named(void *user)
{
    cancelled *c = user;
    weir_inference inference = {
        .struct_size = sizeof inference, .id = c->id, .inputs = c->q->inputs, .input_count = c->q->count};
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    c->status = c->model->bed->engine->infer(c->model->model, &inference, &outputs);
    if (c->status != WEIR_OK)
        return NULL;
    answer got = {outputs.tensors[0].data, outputs.tensors[0].bytes};
    double most = 0;
    c->equal = same(c->wanted, &got, &most) || most < 1e-3;
    c->model->bed->engine->release_outputs(c->model->model, &outputs);
    return NULL;
}

static void begin(cancelled *c)
{
    check(pthread_create(&c->thread, NULL, run_named, c) == 0, "no thread");
}

/* It is known from when it begins to wait. */
static void cancel(const cancelled *c)
{
    weir_status status = WEIR_ERR_NOT_FOUND;
    for (int tries = 0; status == WEIR_ERR_NOT_FOUND && tries < 5000; tries++) {
        usleep(1000);
        status = c->model->bed->engine->cancel(c->model->model, c->id);
    }
    must(status, "cancel");
}

/* cancel MODEL ROUNDS: in each, the run that is under way and one of the two that wait are cancelled; the other is answered. */
int part_cancel(const bed *b, int argc, char **argv)
{
    check(argc == 2, "cancel MODEL ROUNDS");
    served model;
    question q, other; /* of another shape, whose graph would stay */
    answer wanted;
    unsigned long rounds = strtoul(argv[1], NULL, 10);
    must(serve_try(b, argv[0], 0, (const char *const[]){"cuda_graph=on", NULL}, &model), argv[0]);
    ask(&model, (shape){2, 64}, &q);
    ask(&model, (shape){3, 64}, &other);
    run(&model, &q, &wanted);
    uint64_t before = live(b);
    for (unsigned long round = 0; round < rounds; round++) {
        gate g = {0};
        cancelled c[3];
        for (uint64_t i = 0; i < 3; i++)
            c[i] = (cancelled){.model = &model, .q = i == 1 ? &other : &q, .wanted = &wanted, .id = i + 1};
        gate_close(&g, b, model.client, model.model->slots[0].stream);
        begin(&c[0]);
        usleep(20000);
        begin(&c[1]);
        begin(&c[2]);
        cancel(&c[0]);
        cancel(&c[1]);
        gate_open(&g);
        for (int i = 0; i < 3; i++)
            pthread_join(c[i].thread, NULL);
        check(c[0].status == WEIR_ERR_CANCELLED, "a run under way was not cancelled");
        check(c[1].status == WEIR_ERR_CANCELLED, "a run that waits was not cancelled");
        check(c[2].status == WEIR_OK && c[2].equal, "a run beside them is not as it should be");
        check(b->engine->cancel(model.model, 0) == WEIR_ERR_NOT_FOUND, "a run that is over was found");
        gate_end(&g, model.client, model.model->slots[0].stream);
        check(live(b) == before, "a run that waits was begun although it was cancelled");
    }
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    must(b->engine->metrics(model.model, &metrics), "metrics");
    printf("{\"part\": \"cancel\", \"rounds\": %lu, \"cancelled\": %llu, \"failures\": %llu}\n", rounds,
           (unsigned long long)metrics.cancelled, (unsigned long long)metrics.failures);
    free(wanted.values);
    ask_end(&other);
    ask_end(&q);
    serve_end(&model);
    check(live(b) == 0, "the ledger is not back at zero");
    return metrics.cancelled == 2 * rounds && metrics.failures == 0 ? 0 : 1;
}
