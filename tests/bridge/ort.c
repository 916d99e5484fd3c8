/* See ort.h. */
#include "info.h"
#include "ort.h"

#include "test_places.h"
#include <weir/onnxruntime.h>

#include <dlfcn.h>

const ort_api *ort;
ort_env *ort_environment;

static int missing(const char *why)
{
    const char *required = getenv("WEIR_REQUIRE_ENGINES");
    printf("skipped: %s\n", why);
    return required && strcmp(required, "1") == 0 ? 1 : SKIPPED;
}

int ort_open(const char *name)
{
    char path[512];
    const char *given = getenv("WEIR_ONNXRUNTIME");
    const ort_base *(*base)(void);
    snprintf(path, sizeof path, "%s/engines/%s/current/libonnxruntime.so", WEIR_TEST_STORE, name);
    void *library = dlopen(given && *given ? given : path, RTLD_NOW);
    void *symbol = library ? dlsym(library, "OrtGetApiBase") : NULL;
    if (!symbol)
        return missing(dlerror());
    memcpy(&base, &symbol, sizeof base);
    ort = base()->GetApi(ORT_API_WANTED);
    if (!ort)
        return missing("ONNX Runtime is too old");
    return ort_words(ort->CreateEnv(ORT_LOG_FATAL, "test", &ort_environment)) ? 1 : 0;
}

const char *ort_words(ort_status *status)
{
    static _Thread_local char words[1024];
    if (!status)
        return NULL;
    snprintf(words, sizeof words, "%s", ort->GetErrorMessage(status));
    ort->ReleaseStatus(status);
    return words;
}

ort_session_options *ort_options(bool shared)
{
    ort_session_options *options;
    ort_ok(ort->CreateSessionOptions(&options));
    ort_ok(ort->SetIntraOpNumThreads(options, 1));
    if (shared)
        ort_ok(ort->AddSessionConfigEntry(options, "session.use_env_allocators", "1"));
    return options;
}

const char *ort_model(const char *name)
{
    return strchr(name, '/') ? name : data_path("onnx/%s.onnx", name);
}

ort_status *ort_create(const char *name, ort_session_options *options, ort_session **out)
{
    *out = NULL;
    ort_status *status = ort->CreateSession(ort_environment, ort_model(name), options, out);
    ort->ReleaseSessionOptions(options);
    return status;
}

ort_session *ort_session_of(const char *name, bool shared)
{
    ort_session *session;
    ort_ok(ort_create(name, ort_options(shared), &session));
    return session;
}

/* Ports
 * ------------------------------------------------------------------------------------------------------------- */

static char *name_of(ort_session *session, size_t index, bool input)
{
    ort_allocator *plain;
    char *theirs, *name;
    ort_ok(ort->GetAllocatorWithDefaultOptions(&plain));
    ort_ok(input ? ort->SessionGetInputName(session, index, plain, &theirs)
                 : ort->SessionGetOutputName(session, index, plain, &theirs));
    name = strdup(theirs);
    ort_ok(ort->AllocatorFree(plain, theirs));
    return name;
}

static size_t size_of(int type)
{
    enum { FLOAT = 1, INT32 = 6, INT64 = 7, BOOL = 9 };
    switch (type) {
    case FLOAT:
    case INT32:
        return 4;
    case INT64:
        return 8;
    case BOOL:
        return 1;
    default:
        fail_msg("no values of type %d here", type);
        return 0;
    }
}

/* Small and different values; whole ones are 0 to 3. */
static void *fill(int type, size_t count, unsigned seed)
{
    enum { FLOAT = 1, INT32 = 6, INT64 = 7 };
    void *data = calloc(count + 1, 8);
    for (size_t i = 0; i < count; i++) {
        unsigned x = (seed + (unsigned)i * 5) % 7;
        if (type == FLOAT)
            ((float *)data)[i] = (float)x - 3;
        else if (type == INT32)
            ((int32_t *)data)[i] = (int32_t)x % 4;
        else if (type == INT64)
            ((int64_t *)data)[i] = (int64_t)x % 4;
        else
            ((uint8_t *)data)[i] = x % 2;
    }
    return data;
}

static void make_input(ort_session *session, size_t index, unsigned seed, int64_t extent, ort_ports *out)
{
    ort_type_info *info;
    const ort_shape_info *shape_info;
    ort_memory_info *host;
    int64_t shape[8];
    size_t rank, count = 1;
    int type;
    ort_ok(ort->SessionGetInputTypeInfo(session, index, &info));
    ort_ok(ort->CastTypeInfoToTensorInfo(info, &shape_info));
    ort_ok(ort->GetTensorElementType(shape_info, &type));
    ort_ok(ort->GetDimensionsCount(shape_info, &rank));
    assert_true(rank <= 8);
    ort_ok(ort->GetDimensions(shape_info, shape, rank));
    for (size_t i = 0; i < rank; i++) {
        shape[i] = shape[i] < 0 ? extent : shape[i];
        count *= (size_t)shape[i];
    }
    ort->ReleaseTypeInfo(info);
    out->names[index] = name_of(session, index, true);
    out->data[index] = fill(type, count, seed + (unsigned)index);
    ort_ok(ort->CreateCpuMemoryInfo(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT, &host));
    ort_ok(ort->CreateTensorWithDataAsOrtValue(host, out->data[index], count * size_of(type), shape, rank, type,
                                               &out->values[index]));
    ort->ReleaseMemoryInfo(host);
}

void ort_inputs(ort_session *session, unsigned seed, int64_t extent, ort_ports *out)
{
    memset(out, 0, sizeof *out);
    ort_ok(ort->SessionGetInputCount(session, &out->count));
    assert_true(out->count <= MOST_PORTS);
    for (size_t i = 0; i < out->count; i++)
        make_input(session, i, seed, extent, out);
}

void ort_outputs(ort_session *session, ort_ports *out)
{
    memset(out, 0, sizeof *out);
    ort_ok(ort->SessionGetOutputCount(session, &out->count));
    assert_true(out->count <= MOST_PORTS);
    for (size_t i = 0; i < out->count; i++)
        out->names[i] = name_of(session, i, false);
}

ort_status *ort_run(ort_session *session, const ort_ports *inputs, ort_ports *outputs)
{
    return ort->Run(session, NULL, (const char *const *)inputs->names, (const ort_value *const *)inputs->values,
                    inputs->count, (const char *const *)outputs->names, outputs->count, outputs->values);
}

void ort_release_values(ort_ports *ports)
{
    for (size_t i = 0; i < ports->count; i++) {
        if (ports->values[i])
            ort->ReleaseValue(ports->values[i]);
        ports->values[i] = NULL;
    }
}

void ort_release(ort_ports *ports)
{
    ort_release_values(ports);
    for (size_t i = 0; i < ports->count; i++) {
        free(ports->names[i]);
        free(ports->data[i]);
    }
    memset(ports, 0, sizeof *ports);
}

static size_t look(ort_value *value, void **data)
{
    ort_shape_info *info;
    int64_t shape[8];
    size_t rank, count = 1;
    int type;
    ort_ok(ort->GetTensorTypeAndShape(value, &info));
    ort_ok(ort->GetTensorElementType(info, &type));
    ort_ok(ort->GetDimensionsCount(info, &rank));
    ort_ok(ort->GetDimensions(info, shape, rank));
    for (size_t i = 0; i < rank; i++)
        count *= (size_t)shape[i];
    ort->ReleaseTensorTypeAndShapeInfo(info);
    ort_ok(ort->GetTensorMutableData(value, data));
    return count * size_of(type);
}

bool ort_equal(const ort_ports *a, const ort_ports *b)
{
    bool equal = a->count == b->count;
    for (size_t i = 0; i < a->count && equal; i++) {
        void *x, *y;
        size_t bytes = look(a->values[i], &x);
        equal = look(b->values[i], &y) == bytes && memcmp(x, y, bytes) == 0;
    }
    return equal;
}

void ort_plain_answers(const char *model, unsigned seed, int64_t extent, ort_ports *out)
{
    ort_ports inputs;
    ort_session *session = ort_session_of(model, false);
    ort_inputs(session, seed, extent, &inputs);
    ort_outputs(session, out);
    ort_ok(ort_run(session, &inputs, out));
    ort_release(&inputs);
    ort->ReleaseSession(session);
}

/* Failing
 * ----------------------------------------------------------------------------------------------------------- */

static struct {
    ort_allocator *table, before;
    int nth, seen;
} failing;

static size_t size_to_ask(size_t size)
{
    failing.seen++;
    return failing.seen == failing.nth && size > 0 ? SIZE_MAX / 8 : size;
}

static void *failing_alloc(ort_allocator *self, size_t size)
{
    return failing.before.Alloc(self, size_to_ask(size));
}

static void *failing_reserve(ort_allocator *self, size_t size)
{
    return failing.before.Reserve(self, size_to_ask(size));
}

static void *failing_on_stream(ort_allocator *self, size_t size, ort_stream *stream)
{
    return failing.before.AllocOnStream(self, size_to_ask(size), stream);
}

void ort_fail_from(weir_onnxruntime *bridge, weir_kind kind, int nth)
{
    failing.table = (ort_allocator *)bridge_allocator(bridge, kind);
    failing.before = *failing.table;
    failing.nth = nth;
    failing.seen = 0;
    failing.table->Alloc = failing_alloc;
    failing.table->Reserve = failing_reserve;
    failing.table->AllocOnStream = failing.before.AllocOnStream ? failing_on_stream : NULL;
}

int ort_fail_no_more(void)
{
    *failing.table = failing.before;
    return failing.seen;
}

uint64_t ort_live(weir_client *client)
{
    weir_client_stats s = {.struct_size = sizeof s};
    ok(weir_client_info(client, &s));
    return s.live;
}

weir_onnxruntime_options ort_bridge(weir_client *client)
{
    return (weir_onnxruntime_options){.struct_size = sizeof(weir_onnxruntime_options),
                                      .api = (const struct OrtApi *)ort,
                                      .version = ORT_API_WANTED,
                                      .env = (struct OrtEnv *)ort_environment,
                                      .client = client};
}
