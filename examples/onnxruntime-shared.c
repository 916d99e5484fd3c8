/* onnxruntime-shared.c: two sessions of a program's own and a model of the engine gguf, under one budget. The engine joins
 * the runtime of the client that is registered with ONNX Runtime, so that what one of them frees is the other's next block.
 *
 *     onnxruntime-shared model.onnx model.gguf "a sentence" */
#include "onnxruntime-run.h"
#include <weir/engine.h>
#include <weir/model.h>
#include <weir/onnxruntime.h>

#include <pthread.h>
#include <string.h>

enum { SESSIONS = 2, RUNS = 3 };

typedef struct task {
    OrtSession *session;
    const char *name;
    pthread_t thread;
    bool good;
} task;

static void *run_often(void *user)
{
    task *it = user;
    it->good = true;
    for (int i = 0; i < RUNS && it->good; i++)
        it->good = run(it->session, it->name);
    return NULL;
}

/* The other engine takes from the same budget. */
static weir_model *load_beside(weir_runtime *runtime, const char *path)
{
    weir_model_options options = WEIR_INIT(weir_model_options);
    weir_model *model = NULL;
    options.runtime = runtime;
    if (weir_model_create(path, &options, &model) != WEIR_OK)
        fprintf(stderr, "%s: %s\n", path, weir_detail());
    return model;
}

static bool ask(weir_model *model, char *sentence)
{
    weir_tensor text = {.struct_size = sizeof text, .name = "text", .type = WEIR_TYPE_TEXT, .rank = 1};
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    text.data = sentence;
    text.bytes = strlen(sentence);
    text.shape[0] = (int64_t)text.bytes;
    inference.inputs = &text;
    inference.input_count = 1;
    if (weir_model_infer(model, &inference, &outputs) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_detail());
        return false;
    }
    printf("the model: %zu bytes of %s\n", outputs.tensors[0].bytes, outputs.tensors[0].name);
    weir_model_release_outputs(model, &outputs);
    return true;
}

static bool work(weir_runtime *runtime, OrtEnv *env, char **paths)
{
    task tasks[SESSIONS] = {{.name = "session 1"}, {.name = "session 2"}};
    weir_model *model = load_beside(runtime, paths[1]);
    bool good = model;
    int started = 0;
    for (; good && started < SESSIONS; started += good) {
        tasks[started].session = open_session(env, paths[0], WEIR_STREAM_HOST);
        good = tasks[started].session && pthread_create(&tasks[started].thread, NULL, run_often, &tasks[started]) == 0;
    }
    good = good && ask(model, paths[2]);
    for (int i = 0; i < started; i++) {
        pthread_join(tasks[i].thread, NULL);
        good = good && tasks[i].good;
    }
    print_clients(runtime);
    for (int i = 0; i < SESSIONS; i++)
        if (tasks[i].session)
            ort->ReleaseSession(tasks[i].session);
    return model && weir_model_destroy(model) == WEIR_OK && good;
}

int main(int argc, char **argv)
{
    weir_runtime *runtime;
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    OrtEnv *env;
    options.budget = 1u << 30;
    ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
    if (argc != 4 || !ort || failed(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "example", &env)))
        return 2;
    weir_client *client =
        weir_runtime_get("host", &options, &runtime) == WEIR_OK ? make_client(runtime, "sessions") : NULL;
    bool good = client && share(env, client, WEIR_STREAM_HOST);
    if (good) {
        good = work(runtime, env, argv + 1);
        good = weir_onnxruntime_unregister(env, "host") == WEIR_OK && good;
    }
    good = client && weir_client_destroy(client) == WEIR_OK && good;
    ort->ReleaseEnv(env);
    return !good;
}
