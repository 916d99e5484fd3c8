/* two-models.c: models that take text, each on a thread of its own, under one budget; then who held what.
 *
 *     two-models "a sentence" minilm.gguf minilm.gguf */
#include <weir/weir.h>
#include <weir/engine.h>
#include <weir/model.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_MODELS = 8 };

typedef struct task {
    const char *path;
    char *sentence;
    weir_runtime *runtime;
    weir_model *model;
    pthread_t thread;
    bool good;
} task;

static bool complain(const task *it)
{
    fprintf(stderr, "%s: %s\n", it->path, weir_detail()); /* of this thread's last failed call */
    return false;
}

static bool answer(task *it)
{
    weir_tensor text = {.struct_size = sizeof text, .name = "text", .type = WEIR_TYPE_TEXT, .rank = 1};
    text.data = it->sentence;
    text.bytes = strlen(it->sentence);
    text.shape[0] = (int64_t)text.bytes;
    weir_inference inference = WEIR_INIT(weir_inference);
    inference.inputs = &text;
    inference.input_count = 1;
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    if (weir_model_infer(it->model, &inference, &outputs) != WEIR_OK)
        return complain(it);
    for (size_t i = 0; i < outputs.count; i++)
        printf("%s: %s, %zu bytes of %s\n", it->path, outputs.tensors[i].name, outputs.tensors[i].bytes,
               weir_name_of(WEIR_NAMES_TYPE, outputs.tensors[i].type));
    weir_model_release_outputs(it->model, &outputs);
    return true;
}

/* Loads may run at once, too. */
static void *work(void *user)
{
    task *it = user;
    weir_model_options options = WEIR_INIT(weir_model_options);
    options.runtime = it->runtime;
    it->good = weir_model_create(it->path, &options, &it->model) == WEIR_OK ? answer(it) : complain(it);
    return NULL;
}

static void print_clients(weir_runtime *runtime)
{
    weir_stats all = WEIR_INIT(weir_stats);
    weir_client_stats clients[MOST_MODELS] = {{.struct_size = sizeof clients[0]}};
    size_t count = 0;
    char size[24], budget[24];
    if (weir_snapshot(runtime, &all, clients, MOST_MODELS, &count) != WEIR_OK)
        return;
    for (size_t i = 0; i < count && i < MOST_MODELS; i++)
        printf("%-20s %s live\n", clients[i].name, weir_size_format(clients[i].live, size, sizeof size));
    printf("%-20s %s of %s at the peak\n", "all", weir_size_format(all.peak, size, sizeof size),
           weir_size_format(all.budget, budget, sizeof budget));
}

int main(int argc, char **argv)
{
    task tasks[MOST_MODELS] = {{0}};
    int count = argc - 2 < MOST_MODELS ? argc - 2 : MOST_MODELS, made = 0, failed = 0;
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_runtime *runtime = NULL;
    options.budget = UINT64_C(1) << 30;
    if (count < 1 || weir_runtime_get("host", &options, &runtime) != WEIR_OK) {
        fprintf(stderr, "two-models: %s\n", count < 1 ? "a sentence and one or more models are wanted" : weir_detail());
        return 2;
    }
    for (; made < count; made++) {
        tasks[made] = (task){.path = argv[made + 2], .sentence = argv[1], .runtime = runtime};
        if (pthread_create(&tasks[made].thread, NULL, work, &tasks[made]) != 0)
            break;
    }
    for (int i = 0; i < made; i++)
        pthread_join(tasks[i].thread, NULL);
    print_clients(runtime);
    for (int i = 0; i < made; i++)
        failed += !tasks[i].good || weir_model_destroy(tasks[i].model) != WEIR_OK;
    return failed > 0 || made < count;
}
