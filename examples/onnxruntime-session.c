/* onnxruntime-session.c: a program with a session of ONNX Runtime's of its own, whose memory comes from weir.
 *
 *     onnxruntime-session model.onnx          on the CPU
 *     onnxruntime-session model.onnx cuda     on a GPU, with ONNX Runtime's build for CUDA */
#include "onnxruntime-run.h"
#include <weir/onnxruntime.h>

#include <string.h>

static bool work(weir_runtime *runtime, const char *device, OrtEnv *env, weir_client *client, const char *path,
                 weir_stream stream)
{
    if (!share(env, client, stream))
        return false;
    OrtSession *session = open_session(env, path, stream);
    bool good = session && run(session, "the session");
    print_clients(runtime);
    if (session) /* before the client goes: its weights and outputs are there */
        ort->ReleaseSession(session);
    if (weir_onnxruntime_unregister(env, device) != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_detail());
        good = false;
    }
    return good;
}

static bool work_on(weir_runtime *runtime, OrtEnv *env, const char *path)
{
    weir_client *client = make_client(runtime, "session");
    weir_stream stream = WEIR_STREAM_HOST;
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    bool good = client && weir_runtime_info(runtime, &its) == WEIR_OK;
    bool cuda = good && strcmp(its.device, "host") != 0;
    good = good && (!cuda || weir_stream_acquire(runtime, &stream) == WEIR_OK);
    good = good && work(runtime, its.device, env, client, path, stream);
    if (stream.id)
        good = weir_stream_release(stream) == WEIR_OK && good;
    return client && weir_client_destroy(client) == WEIR_OK && good;
}

int main(int argc, char **argv)
{
    weir_runtime *runtime;
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    OrtEnv *env;
    options.budget = 256u << 20;
    ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
    if (argc < 2 || argc > 3 || !ort || failed(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "example", &env)))
        return 2;
    weir_status status = weir_runtime_get(argc > 2 ? argv[2] : "host", &options, &runtime);
    if (status != WEIR_OK)
        fprintf(stderr, "%s\n", weir_detail());
    bool good = status == WEIR_OK && work_on(runtime, env, argv[1]);
    ort->ReleaseEnv(env);
    return !good;
}
