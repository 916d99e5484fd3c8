/* made.c: what the engine has ONNX Runtime make, and what it takes of weir, it gives back: after runs, loads that fail and
 * unloads, whichever call it is that fails. On the host, and over the stub of CUDA. */
#include "watch.h"

#include <errno.h>

#include <weir/engine.h>
#include <weir/onnxruntime.h>

#include "onnx/engine/model.h"
#include "onnx/engine/foresee.h"
#include "onnx/file/main_graph.h"

static bool on_cuda(void)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    return device && strncmp(device, "cuda", 4) == 0;
}

/* ---- what is counted --------------------------------------------------------------------------------------------- */

/* The table is called on the test's own thread, and so is weir. */
enum kind {
    OPTIONS,
    SESSIONS,
    RUN_OPTIONS,
    VALUES,
    TYPES,
    SHAPES,
    BINDINGS,
    NAMES,
    STREAMS,
    BRIDGES,
    PLACES,
    PROVIDERS,
    MAPPINGS,
    KINDS
};
static const char *const kind_names[KINDS] = {
    "session options", "sessions", "run options",  "values",           "types",         "shapes", "bindings", "names",
    "streams",         "bridges",  "memory infos", "provider options", "loads that map"};
static ort_session *first;                                /* of a model that is on cuda: what others read is its own */
static int first_gone_early, streams_gone_early;          /* a stream: before the bridge that frees in its order */
static int made[KINDS], all_made[KINDS], calls, fails_at; /* fails_at: this one of the calls fails; 0: none */

/* Whether the call fails on purpose. */
static bool fails(void)
{
    return ++calls == fails_at;
}

static ort_status *failed(void)
{
    return real->CreateStatus(ORT_FAIL_CODE, "failed on purpose");
}

static ort_status *count_if(enum kind kind, ort_status *status)
{
    made[kind] += status == NULL;
    all_made[kind] += status == NULL;
    return status;
}

static ort_status *counted_options(ort_session_options **out)
{
    return fails() ? failed() : count_if(OPTIONS, real->CreateSessionOptions(out));
}

static ort_status *counted_session(const ort_env *env, const char *path, const ort_session_options *options,
                                   ort_session **out)
{
    return fails() ? failed() : count_if(SESSIONS, real->CreateSession(env, path, options, out));
}

static ort_status *counted_array(const ort_env *env, const void *model, size_t size, const ort_session_options *options,
                                 ort_session **out)
{
    ort_status *status =
        fails() ? failed() : count_if(SESSIONS, real->CreateSessionFromArray(env, model, size, options, out));
    first = !status && made[SESSIONS] == 1 ? *out : first;
    return status;
}

static weir_onnxruntime *newest; /* of the bridges */

/* A session that is made although a request for its memory was refused. */
static ort_status *refused_array(const ort_env *env, const void *model, size_t size, const ort_session_options *options,
                                 ort_session **out)
{
    weir_onnxruntime_details details = {.struct_size = sizeof details};
    assert_ok(weir_onnxruntime_info(newest, &details));
    ort_allocator *table = (ort_allocator *)details.allocators[WEIR_KIND_DEVICE];
    ort_value *none = NULL;
    ort_status *refusal = real->CreateTensorAsOrtValue(table, (const int64_t[]){1 << 30}, 1, ONNX_DOUBLE, &none);
    assert_non_null(refusal);
    real->ReleaseStatus(refusal);
    return counted_array(env, model, size, options, out);
}

static ort_status *failed_array(const ort_env *env, const void *model, size_t size, const ort_session_options *options,
                                ort_session **out)
{
    (void)env, (void)model, (void)size, (void)options, (void)out;
    return failed();
}

static ort_status *counted_run_options(ort_run_options **out)
{
    return fails() ? failed() : count_if(RUN_OPTIONS, real->CreateRunOptions(out));
}

static ort_status *counted_room(ort_allocator *allocator, const int64_t *shape, size_t rank, int type, ort_value **out)
{
    return fails() ? failed() : count_if(VALUES, real->CreateTensorAsOrtValue(allocator, shape, rank, type, out));
}

static ort_status *counted_value(const ort_memory_info *info, void *data, size_t bytes, const int64_t *shape,
                                 size_t rank, int type, ort_value **out)
{
    return fails() ? failed()
                   : count_if(VALUES, real->CreateTensorWithDataAsOrtValue(info, data, bytes, shape, rank, type, out));
}

static ort_status *counted_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                               const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                               size_t output_count, ort_value **outputs)
{
    if (fails())
        return failed();
    ort_status *status =
        real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
    for (size_t i = 0; !status && i < output_count; i++)
        (void)count_if(VALUES, NULL);
    return status;
}

static ort_status *counted_shape(const ort_value *value, ort_shape_info **out)
{
    return fails() ? failed() : count_if(SHAPES, real->GetTensorTypeAndShape(value, out));
}

/* Of inputs, outputs, and inputs with a value of their own. */
#define OF_PORTS(list)                                                                                                 \
    static ort_status *counted_type_##list(const ort_session *session, size_t index, ort_type_info **out)              \
    {                                                                                                                  \
        return fails() ? failed() : count_if(TYPES, real->SessionGet##list##TypeInfo(session, index, out));            \
    }                                                                                                                  \
    static ort_status *counted_name_##list(const ort_session *session, size_t index, ort_allocator *allocator,         \
                                           char **out)                                                                 \
    {                                                                                                                  \
        return fails() ? failed() : count_if(NAMES, real->SessionGet##list##Name(session, index, allocator, out));     \
    }
OF_PORTS(Input)
OF_PORTS(Output)
OF_PORTS(OverridableInitializer)
#undef OF_PORTS

static ort_status *counted_binding(ort_session *session, ort_binding **out)
{
    return fails() ? failed() : count_if(BINDINGS, real->CreateIoBinding(session, out));
}

static ort_status *counted_run_binding(ort_session *session, const ort_run_options *options, const ort_binding *binding)
{
    return fails() ? failed() : real->RunWithBinding(session, options, binding);
}

/* The list is ONNX Runtime's own memory, as names are. */
static ort_status *counted_bound(const ort_binding *binding, ort_allocator *allocator, ort_value ***out, size_t *count)
{
    if (fails())
        return failed();
    ort_status *status = count_if(NAMES, real->GetBoundOutputValues(binding, allocator, out, count));
    for (size_t i = 0; !status && i < *count; i++)
        (void)count_if(VALUES, NULL);
    return status;
}

static ort_status *released_name(ort_allocator *allocator, void *pointer)
{
    made[NAMES]--;
    return real->AllocatorFree(allocator, pointer);
}

static ort_status *counted_place(const char *name, int allocator, int device, int memory, ort_memory_info **out)
{
    return fails() ? failed() : count_if(PLACES, real->CreateMemoryInfo(name, allocator, device, memory, out));
}

static ort_status *counted_cpu_place(int allocator, int memory, ort_memory_info **out)
{
    return fails() ? failed() : count_if(PLACES, real->CreateCpuMemoryInfo(allocator, memory, out));
}

static ort_status *counted_provider(ort_cuda_options **out)
{
    return fails() ? failed() : count_if(PROVIDERS, real->CreateCUDAProviderOptions(out));
}

#define RELEASED(name, kind, type)                                                                                     \
    static void released_##name(type *it)                                                                              \
    {                                                                                                                  \
        made[kind] -= it != NULL;                                                                                      \
        real->name(it);                                                                                                \
    }
RELEASED(ReleaseSessionOptions, OPTIONS, ort_session_options)
RELEASED(ReleaseRunOptions, RUN_OPTIONS, ort_run_options)
RELEASED(ReleaseValue, VALUES, ort_value)
RELEASED(ReleaseTypeInfo, TYPES, ort_type_info)
RELEASED(ReleaseTensorTypeAndShapeInfo, SHAPES, ort_shape_info)
RELEASED(ReleaseIoBinding, BINDINGS, ort_binding)
RELEASED(ReleaseMemoryInfo, PLACES, ort_memory_info)
RELEASED(ReleaseCUDAProviderOptions, PROVIDERS, ort_cuda_options)
#undef RELEASED

static const loaded *asked; /* whose run is cancelled when its options are gone; NULL: none */
static int told_late;       /* options that were gone, and were told of a cancel */

static void released_before_a_cancel(ort_run_options *options)
{
    released_ReleaseRunOptions(options);
    if (asked)
        (void)asked->engine->cancel(asked->model, 0);
}

static ort_status *told(ort_run_options *options)
{
    if (made[RUN_OPTIONS] > 0)
        return real->RunOptionsSetTerminate(options);
    told_late++;
    return NULL;
}

static weir_status found_late; /* what a cancel was answered once the run had been computed */

static void released_with_a_cancel(ort_shape_info *shape)
{
    released_ReleaseTensorTypeAndShapeInfo(shape);
    if (asked)
        found_late = asked->engine->cancel(asked->model, 0);
}

static void released_session(ort_session *session)
{
    first_gone_early += session && session == first && made[SESSIONS] > 1;
    first = session == first ? NULL : first;
    made[SESSIONS] -= session != NULL;
    real->ReleaseSession(session);
}

weir_status __real_weir_stream_acquire(weir_runtime *runtime, weir_stream *out);
weir_status __wrap_weir_stream_acquire(weir_runtime *runtime, weir_stream *out);
weir_status __real_weir_stream_release(weir_stream stream);
weir_status __wrap_weir_stream_release(weir_stream stream);
weir_status __real_weir_onnxruntime_create(const weir_onnxruntime_options *options, weir_onnxruntime **out);
weir_status __wrap_weir_onnxruntime_create(const weir_onnxruntime_options *options, weir_onnxruntime **out);
weir_status __real_weir_onnxruntime_destroy(weir_onnxruntime *bridge);
weir_status __wrap_weir_onnxruntime_destroy(weir_onnxruntime *bridge);

weir_status __wrap_weir_stream_acquire(weir_runtime *runtime, weir_stream *out)
{
    if (fails())
        return weir_fail(WEIR_ERR_SYSTEM, "failed on purpose");
    weir_status status = __real_weir_stream_acquire(runtime, out);
    made[STREAMS] += status == WEIR_OK;
    all_made[STREAMS] += status == WEIR_OK;
    return status;
}

static bool bridge_refused, release_fails; /* the second: of what is given back, and is gone all the same */

weir_status __wrap_weir_stream_release(weir_stream stream)
{
    streams_gone_early += made[BRIDGES] >= made[STREAMS];
    made[STREAMS]--;
    weir_status status = __real_weir_stream_release(stream);
    return release_fails ? weir_fail(WEIR_ERR_SYSTEM, "released on purpose") : status;
}

weir_status __wrap_weir_onnxruntime_create(const weir_onnxruntime_options *options, weir_onnxruntime **out)
{
    if (bridge_refused || fails())
        return weir_fail(WEIR_ERR_SYSTEM, "failed on purpose");
    weir_status status = __real_weir_onnxruntime_create(options, out);
    newest = status == WEIR_OK ? *out : NULL;
    made[BRIDGES] += status == WEIR_OK;
    all_made[BRIDGES] += status == WEIR_OK;
    return status;
}

/* Giving back has words of its own, each time. */
weir_status __wrap_weir_onnxruntime_destroy(weir_onnxruntime *bridge)
{
    made[BRIDGES] -= bridge != NULL;
    weir_status status = __real_weir_onnxruntime_destroy(bridge);
    (void)weir_fail(WEIR_ERR_BUSY, "gone on purpose");
    return release_fails && bridge ? weir_fail(WEIR_ERR_SYSTEM, "released on purpose") : status;
}

static int streams_stay, bridges_stay; /* warnings of them */

static void note_warning(weir_log_level level, const char *text, void *user)
{
    (void)user;
    streams_stay += level == WEIR_LOG_WARNING && strstr(text, "the stream of a session stays");
    bridges_stay += level == WEIR_LOG_WARNING && strstr(text, "a bridge of model stays");
}

void __real_onnx_weights_begin(weir_engine_model *model, const onnx_file *file, const weir_engine_load *load);
void __wrap_onnx_weights_begin(weir_engine_model *model, const onnx_file *file, const weir_engine_load *load);
weir_status __real_onnx_weights_end(weir_engine_model *model);
weir_status __wrap_onnx_weights_end(weir_engine_model *model);

static bool weight_refused; /* though the session may have been made without it */

/* Between the two what this thread maps is the model's. */
void __wrap_onnx_weights_begin(weir_engine_model *model, const onnx_file *file, const weir_engine_load *load)
{
    made[MAPPINGS]++;
    __real_onnx_weights_begin(model, file, load);
}

weir_status __wrap_onnx_weights_end(weir_engine_model *model)
{
    made[MAPPINGS]--;
    weir_status status = __real_onnx_weights_end(model);
    return weight_refused ? weir_fail(WEIR_ERR_OUT_OF_MEMORY, "a weight is refused") : status;
}

/* ---- the host's memory ----------------------------------------------------------------------------------------------- */

/* What the engine itself takes of the heap, on whichever thread. */
static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static void *pieces[8192];
static size_t piece_count;
static int requests, refused_at; /* refused_at: this one of the requests; 0: none */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *piece, size_t size);
void *__wrap_realloc(void *piece, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
void __real_free(void *piece);
void __wrap_free(void *piece);
int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*fn)(void *user), void *user);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*fn)(void *user), void *user);

static bool is_refused(void)
{
    pthread_mutex_lock(&heap_lock);
    bool is = ++requests == refused_at;
    pthread_mutex_unlock(&heap_lock);
    return is;
}

static void *keep(void *piece)
{
    pthread_mutex_lock(&heap_lock);
    assert_true(piece_count < sizeof pieces / sizeof *pieces);
    if (piece)
        pieces[piece_count++] = piece;
    pthread_mutex_unlock(&heap_lock);
    return piece;
}

static void drop(const void *piece)
{
    pthread_mutex_lock(&heap_lock);
    for (size_t i = piece_count; piece && i-- > 0;)
        if (pieces[i] == piece) {
            pieces[i] = pieces[--piece_count];
            break;
        }
    pthread_mutex_unlock(&heap_lock);
}

void *__wrap_malloc(size_t size)
{
    return is_refused() ? NULL : keep(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return is_refused() ? NULL : keep(__real_calloc(count, size));
}

void *__wrap_realloc(void *piece, size_t size)
{
    if (is_refused())
        return NULL;
    drop(piece);
    return keep(__real_realloc(piece, size));
}

char *__wrap_strdup(const char *text)
{
    return is_refused() ? NULL : keep(__real_strdup(text));
}

void __wrap_free(void *piece)
{
    drop(piece);
    __real_free(piece);
}

/* A thread is refused as memory is. */
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*fn)(void *user), void *user)
{
    return is_refused() ? EAGAIN : __real_pthread_create(out, attributes, fn, user);
}

static int count_all(void **state)
{
    (void)watch(state);
    watched.CreateSessionOptions = counted_options;
    watched.CreateSession = counted_session;
    watched.CreateSessionFromArray = counted_array;
    watched.CreateRunOptions = counted_run_options;
    watched.CreateTensorWithDataAsOrtValue = counted_value;
    watched.CreateTensorAsOrtValue = counted_room;
    watched.Run = counted_run;
    watched.GetTensorTypeAndShape = counted_shape;
    watched.SessionGetInputTypeInfo = counted_type_Input;
    watched.SessionGetOutputTypeInfo = counted_type_Output;
    watched.SessionGetOverridableInitializerTypeInfo = counted_type_OverridableInitializer;
    watched.SessionGetInputName = counted_name_Input;
    watched.SessionGetOutputName = counted_name_Output;
    watched.SessionGetOverridableInitializerName = counted_name_OverridableInitializer;
    watched.AllocatorFree = released_name;
    watched.CreateIoBinding = counted_binding;
    watched.RunWithBinding = counted_run_binding;
    watched.GetBoundOutputValues = counted_bound;
    watched.ReleaseSessionOptions = released_ReleaseSessionOptions;
    watched.ReleaseSession = released_session;
    watched.ReleaseRunOptions = released_ReleaseRunOptions;
    watched.ReleaseValue = released_ReleaseValue;
    watched.ReleaseTypeInfo = released_ReleaseTypeInfo;
    watched.ReleaseTensorTypeAndShapeInfo = released_ReleaseTensorTypeAndShapeInfo;
    watched.ReleaseIoBinding = released_ReleaseIoBinding;
    watched.CreateMemoryInfo = counted_place;
    watched.CreateCpuMemoryInfo = counted_cpu_place;
    watched.ReleaseMemoryInfo = released_ReleaseMemoryInfo;
    watched.CreateCUDAProviderOptions = counted_provider;
    watched.ReleaseCUDAProviderOptions = released_ReleaseCUDAProviderOptions;
    first = NULL;
    first_gone_early = streams_gone_early = streams_stay = bridges_stay = 0;
    assert_ok(weir_log_set(note_warning, NULL, WEIR_LOG_WARNING));
    memset(made, 0, sizeof made);
    memset(all_made, 0, sizeof all_made);
    calls = fails_at = 0;
    return 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* As many as there were; what they are is said. */
static void nothing_stays(const char *after)
{
    int left = 0;
    for (int k = 0; k < KINDS; k++) {
        if (made[k])
            print_error("%s: %d %s stay\n", after, made[k], kind_names[k]);
        left += made[k] != 0;
    }
    assert_int_equal(left, 0);
    assert_true(streams_stay == 0 && bridges_stay == 0); /* nor is it said of any */
}

/* Rows of `mlp` and `chain`, or an input that they do not take. */
static weir_status ask(const loaded *l, int64_t rows, int64_t width)
{
    static float x[12 * 20];
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(rows, width), x);
    weir_outputs out;
    weir_status status = infer(l, &in, 1, &out);
    if (status == WEIR_OK)
        l->engine->release_outputs(l->model, &out);
    return status;
}

/* Graphs are kept together with their inputs and outputs. */
static bool keeps_graphs(const char *const *settings)
{
    return settings[0] && strcmp(settings[0], "cuda_graph=on") == 0;
}

/* All that a model does, whatever of it fails: its loads, runs of several shapes, a wrong one. */
static weir_status use_all(const char *const *settings)
{
    loaded l = open_client(0);
    weir_status status = load_into(&l, "mlp", settings);
    if (status == WEIR_OK) {
        status = l.engine->warm_up(l.model);
        int before[KINDS];
        memcpy(before, made, sizeof made);
        for (int64_t rows = 1; rows < 5; rows++) {
            weir_status ran = ask(&l, rows, 16);
            status = status == WEIR_OK ? ran : status;
        }
        assert_int_equal(ask(&l, 1, 17) == WEIR_OK, 0);
        if (!keeps_graphs(settings)) /* no run leaves anything, whether it fails or not */
            for (int k = VALUES; k < STREAMS; k++)
                assert_int_equal(made[k], before[k]);
        assert_int_equal(made[RUN_OPTIONS], before[RUN_OPTIONS]);
        unload_model(&l);
    } else {
        assert_null(strstr(weir_detail(), "gone on purpose")); /* the load's own reason */
        assert_null(l.model);
        assert_int_equal(live(&l), 0);
    }
    close_client(&l);
    return status;
}

static const char *const ways[][3] = {{NULL},
                                      {"weights=engine", NULL},
                                      {"buckets=3", NULL},
                                      {"concurrency=3", NULL},
                                      {"concurrency=2", "buckets=2", NULL},
                                      {"cuda_graph=on", NULL}};
enum { WAYS = sizeof ways / sizeof *ways };

/* Weights that are the engine's are none of a device, and graphs are a device's alone. */
static bool is_way(int which)
{
    return on_cuda() ? which != 1 : which != 5;
}

static void what_is_made_is_given_back(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        if (!is_way(i))
            continue;
        memset(all_made, 0, sizeof all_made);
        assert_ok(use_all(ways[i]));
        nothing_stays(ways[i][0] ? ways[i][0] : "no settings");
        assert_true(all_made[OPTIONS] > 0 && all_made[SESSIONS] > 0 && all_made[VALUES] > 0 && all_made[BRIDGES] > 0);
        assert_true(all_made[TYPES] > 0 && all_made[NAMES] > 0 && all_made[SHAPES] > 0);
        assert_int_equal(first_gone_early, 0);
        assert_int_equal(streams_gone_early, 0);
        if (on_cuda())
            assert_int_equal(all_made[STREAMS], i < 3 || i == 5 ? 1 : i == 3 ? 3 : 2);
        else
            assert_true(all_made[STREAMS] == 0);
        assert_int_equal(all_made[PROVIDERS] > 0, on_cuda());
        if (i == 4)
            assert_true(all_made[SESSIONS] >= (on_cuda() ? 3 : 2));
    }
}

/* Each call in turn, until there is none so late. */
static void what_is_made_is_given_back_whichever_call_fails(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        if (!is_way(i))
            continue;
        int failures = 0;
        for (int at = 1;; at++) {
            char words[64];
            calls = 0;
            fails_at = at;
            weir_status status = use_all(ways[i]);
            fails_at = 0;
            failures += status != WEIR_OK;
            snprintf(words, sizeof words, "%s, with call %d failed", ways[i][0] ? ways[i][0] : "no settings", at);
            nothing_stays(words);
            if (calls < at)
                break;
        }
        assert_true(failures > 5);
    }
}

/* Each request of the engine's own in turn. What stays after the first load is of the library, for good. */
static void nothing_stays_on_the_heap_whichever_request_fails(void **state)
{
    (void)state;
    for (int i = 0; i < WAYS; i++) {
        if (!is_way(i))
            continue;
        int failures = 0;
        assert_ok(use_all(ways[i]));
        size_t before = piece_count;
        for (int at = 1;; at++) {
            requests = 0;
            refused_at = at;
            weir_status status = use_all(ways[i]);
            refused_at = 0;
            failures += status != WEIR_OK;
            if (status != WEIR_OK && status != WEIR_ERR_SYSTEM)
                fail_msg("request %d: %s: %s", at, weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
            if (piece_count != before)
                fail_msg("request %d of %s: %zu pieces of the heap stay", at, ways[i][0] ? ways[i][0] : "no settings",
                         piece_count - before);
            nothing_stays("a request of the heap");
            if (requests < at)
                break;
        }
        assert_true(failures > 10);
    }
}

/* The client's memory, from nothing up to enough: whichever request of a load or a run is refused. */
static void what_is_made_is_given_back_whatever_is_refused(void **state)
{
    static const char *const settings[][3] = {{NULL},
                                              {"prepack=off", NULL},
                                              {"buckets=3", NULL},
                                              {"concurrency=2", "buckets=2", NULL},
                                              {"cuda_graph=on", NULL}};
    (void)state;
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        if (keeps_graphs(settings[s]) && !on_cuda())
            continue;
        int refused = 0;
        bool enough = false;
        loaded l = open_client(0);
        for (uint64_t most = 256; !enough; most += 256) {
            assert_true(most < 1 << 20);
            assert_ok(weir_client_set_limits(l.client, 0, most));
            weir_status status = load_into(&l, "mlp", settings[s]);
            enough = status == WEIR_OK;
            for (int64_t rows = 1; rows < 4 && l.model; rows++) {
                weir_status ran = ask(&l, rows, 16);
                enough &= ran == WEIR_OK;
                status = status == WEIR_OK ? ran : status;
            }
            assert_true(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
            refused += status != WEIR_OK;
            if (l.model)
                unload_model(&l);
            assert_int_equal(live(&l), 0);
            nothing_stays(settings[s][0] ? settings[s][0] : "no settings");
        }
        assert_true(refused > 5);
        close_client(&l);
    }
}

/* What a session cannot give back is said, of an unload and of a load that has no bridge. */
static void what_stays_is_said(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    release_fails = true;
    unload_model(&l);
    assert_int_equal(streams_stay, on_cuda());
    assert_int_equal(bridges_stay, 1);
    bridge_refused = true;
    assert_status(load_into(&l, "mlp", NULL), WEIR_ERR_SYSTEM);
    bridge_refused = release_fails = false;
    assert_int_equal(streams_stay, on_cuda() ? 2 : 0);
    assert_int_equal(bridges_stay, 1);
    close_client(&l);
    streams_stay = bridges_stay = 0;
    nothing_stays("a session");
}

/* Shapes beyond are served without a graph. */
static void so_many_graphs_are_kept(void **state)
{
    (void)state;
    loaded l = load_model("mlp", (const char *const[]){"cuda_graph=on", NULL});
    int before = made[BINDINGS];
    for (int64_t rows = 1; rows <= 11; rows++) {
        assert_ok(ask(&l, rows, 16));
        assert_ok(ask(&l, rows, 16));
        assert_int_equal(made[BINDINGS], before + (rows < ONNX_REPLAYS_MOST ? (int)rows : ONNX_REPLAYS_MOST));
    }
    unload_model(&l);
    close_client(&l);
    nothing_stays("graphs");
}

/* A graph is one of the inputs that were given, whichever was first. */
static void graphs_are_told_apart_by_their_inputs(void **state)
{
    (void)state;
    for (size_t first_count = 1; first_count < 3; first_count++) {
        float x[3] = {1, 2, 3}, ten = 10;
        weir_tensor both[] = {tensor("x", WEIR_TYPE_F32, SHAPE(3), x), tensor("scale", WEIR_TYPE_F32, SHAPE(1), &ten)};
        loaded l = load_model("default", (const char *const[]){"cuda_graph=on", NULL});
        int before = made[BINDINGS];
        for (int i = 0; i < 6; i++) {
            weir_outputs out;
            assert_ok(infer(&l, both, i % 2 ? 3 - first_count : first_count, &out));
            l.engine->release_outputs(l.model, &out);
            assert_int_equal(made[BINDINGS], before + (i ? 2 : 1));
        }
        unload_model(&l);
        close_client(&l);
    }
    nothing_stays("graphs of several inputs");
}

/* A weight that was refused is why a model cannot be had, whether its session was made without it or not. */
static void a_refused_weight_is_told(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        loaded l = open_client(0);
        watched.CreateSessionFromArray = how == 2 ? refused_array : how == 1 ? failed_array : counted_array;
        weight_refused = true;
        weir_status status = load_into(&l, "mlp", NULL);
        weight_refused = false;
        assert_status(status, WEIR_ERR_OUT_OF_MEMORY);
        assert_detail("a weight is refused; the whole model takes at least");
        nothing_stays("a refused weight");
        assert_int_equal(live(&l), 0);
        close_client(&l);
    }
}

/* A cancel that comes when the run's options are gone ends the run, and reaches ONNX Runtime no more. */
static void options_that_are_gone_are_told_nothing(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    watched.ReleaseRunOptions = released_before_a_cancel;
    watched.RunOptionsSetTerminate = told;
    told_late = 0;
    asked = &l;
    weir_status status = ask(&l, 1, 16);
    asked = NULL;
    assert_status(status, WEIR_ERR_CANCELLED);
    assert_int_equal(told_late, 0);
    assert_ok(ask(&l, 1, 16));
    unload_model(&l);
    close_client(&l);
    nothing_stays("a cancelled run");
}

/* Its outputs are described when a cancel comes, which is too late and says so. */
static void a_run_that_has_been_computed_is_not_found(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    watched.ReleaseTensorTypeAndShapeInfo = released_with_a_cancel;
    found_late = WEIR_OK;
    asked = &l;
    weir_status status = ask(&l, 1, 16);
    asked = NULL;
    assert_ok(status);
    assert_status(found_late, WEIR_ERR_NOT_FOUND);
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    assert_ok(l.engine->metrics(l.model, &metrics));
    assert_int_equal(metrics.cancelled, 0);
    unload_model(&l);
    close_client(&l);
    nothing_stays("a run that was cancelled too late");
}

/* What was foreseen is kept for a file and what was asked of it, of so many; whichever request is refused, nothing else stays. */
static void what_was_foreseen_is_kept_whole(void **state)
{
    enum { KEPT = 16 };
    char dims[24];
    onnx_file file;
    onnx_foreseen whole, again;
    onnx_foresee_ask ask = {.dims = dims, .threads = 1, .optimization = 2, .memory_pattern = true, .prepack = true};
    (void)state;
    assert_ok(onnx_file_open(model_path("mlp"), &file));
    file.stamp.settled = true;
    for (int i = 1; i <= 2 * KEPT; i++) {
        snprintf(dims, sizeof dims, "batch=%d", i);
        onnx_foresee(&file, &ask, &whole);
        assert_true(whole.runs && whole.whole);
        requests = 0;
        onnx_foresee(&file, &ask, &again);
        assert_int_equal(requests, 1); /* for what is asked */
        assert_true(again.runs && again.whole && again.activations == whole.activations);
        assert_true(again.packed == whole.packed && again.replaced == whole.replaced);
    }
    size_t before = piece_count;
    for (int at = 1, done = 0; !done; at++) {
        snprintf(dims, sizeof dims, "batch=%d", 1000 + at);
        requests = 0;
        refused_at = at;
        onnx_foresee(&file, &ask, &again);
        refused_at = 0;
        done = requests < at;
        assert_int_equal(piece_count, before);
        onnx_foresee_now(&file, &ask, &whole);
        if (again.runs) /* what lacks host memory is not told in part */
            assert_int_equal(again.activations, whole.activations);
        if (again.whole)
            assert_true(again.packed == whole.packed && again.replaced == whole.replaced);
    }
    onnx_file_close(&file);
}

#define ON_BOTH                                                                                                        \
    cmocka_unit_test_setup_teardown(what_is_made_is_given_back, count_all, unwatch),                                   \
        cmocka_unit_test_setup_teardown(what_is_made_is_given_back_whichever_call_fails, count_all, unwatch),          \
        cmocka_unit_test_setup_teardown(what_is_made_is_given_back_whatever_is_refused, count_all, unwatch),           \
        cmocka_unit_test_setup_teardown(what_stays_is_said, count_all, unwatch),                                       \
        cmocka_unit_test_setup_teardown(nothing_stays_on_the_heap_whichever_request_fails, count_all, unwatch)

int main(void)
{
    int missing = on_cuda() ? need_cuda_build() : need_onnxruntime();
    if (missing)
        return missing;
    /* The host has no graphs, and on a device ONNX Runtime takes the weights itself. */
    const struct CMUnitTest on_host[] = {
        ON_BOTH,
        cmocka_unit_test_setup_teardown(what_was_foreseen_is_kept_whole, count_all, unwatch),
        cmocka_unit_test_setup_teardown(a_refused_weight_is_told, count_all, unwatch),
        cmocka_unit_test_setup_teardown(options_that_are_gone_are_told_nothing, count_all, unwatch),
        cmocka_unit_test_setup_teardown(a_run_that_has_been_computed_is_not_found, count_all, unwatch),
    };
    const struct CMUnitTest on_device[] = {
        ON_BOTH,
        cmocka_unit_test_setup_teardown(so_many_graphs_are_kept, count_all, unwatch),
        cmocka_unit_test_setup_teardown(graphs_are_told_apart_by_their_inputs, count_all, unwatch),
    };
    return on_cuda() ? cmocka_run_group_tests(on_device, NULL, NULL) : cmocka_run_group_tests(on_host, NULL, NULL);
}
