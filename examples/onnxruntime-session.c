/* onnxruntime-session.c: a program with a session of ONNX Runtime's of its own, whose memory comes from weir.
 *
 *     onnxruntime-session model.onnx */
#include "onnxruntime-run.h"

static bool work(OrtEnv *env, weir_client *client, const char *path)
{
    if (!share(env, client))
        return false;
    OrtSession *session = open_session(env, path);
    bool good = session && run(session, "the session");
    print_clients(weir_client_runtime(client));
    if (session) /* before the client goes: its weights and outputs are there */
        ort->ReleaseSession(session);
    if (weir_onnxruntime_unregister(env, "host") != WEIR_OK) {
        fprintf(stderr, "%s\n", weir_detail());
        good = false;
    }
    return good;
}

int main(int argc, char **argv)
{
    weir_runtime *runtime;
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    OrtEnv *env;
    options.budget = 256u << 20;
    ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
    if (argc != 2 || !ort || failed(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "example", &env)))
        return 2;
    weir_client *client =
        weir_runtime_get_with("host", &options, &runtime) == WEIR_OK ? make_client(runtime, "session") : NULL;
    bool good = client && work(env, client, argv[1]);
    good = client && weir_client_close(client) == WEIR_OK && good;
    ort->ReleaseEnv(env);
    return !good;
}
