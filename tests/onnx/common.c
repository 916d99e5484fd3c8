/* See common.h. */
#include "info.h"
#include "common.h"

#include "copy_file.h"
#include "test_places.h"
#include <weir/engine.h>

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
/* The leak checker of gcc 12 looks for a thread's variables in libraries where glibc does not put them, and dies of it with
 * the library of TensorRT's provider. */
WEIR_API const char *__asan_default_options(void); /* NOLINT(bugprone-reserved-identifier) */
const char *__asan_default_options(void)           /* NOLINT(bugprone-reserved-identifier) */
{
    return "intercept_tls_get_addr=0";
}
#endif

bool engines_are_required(void)
{
    const char *require = getenv("WEIR_REQUIRE_ENGINES");
    return require && strcmp(require, "1") == 0;
}

void skip_without(const char *what)
{
    if (engines_are_required())
        fail_msg("WEIR_REQUIRE_ENGINES is set, and %s is not here", what);
    print_message("skipped: no %s\n", what);
    skip();
}

static int missing(const char *what)
{
    printf("skipped: %s\n", what);
    return engines_are_required() ? 1 : SKIPPED;
}

int need_onnxruntime(void)
{
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    weir_status status = weir_engine_entry(WEIR_ENGINE_ABI)->probe(&probe);
    return status == WEIR_OK && probe.available ? 0 : missing(probe.missing);
}

int need_cuda_build(void)
{
    int status = need_onnxruntime();
    if (status)
        return status;
    loaded l = open_client(0);
    weir_status loads = load_into(&l, "mlp", NULL);
    if (loads == WEIR_OK)
        unload_model(&l);
    else
        status = loads == WEIR_ERR_UNSUPPORTED ? missing(weir_detail()) : 0;
    close_client(&l);
    return status;
}

const char *model_path(const char *name)
{
    return strchr(name, '/') ? name : data_path("onnx/%s.onnx", name);
}

static char scratch[512]; /* "": there is none */

const char *scratch_path(void)
{
    if (scratch[0])
        return scratch;
    const char *folder = built_path("tests/onnx-%d", (int)getpid());
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        fail_msg("cannot make %s", folder);
    snprintf(scratch, sizeof scratch, "%s/beside.data", folder);
    copy_file(data_path("onnx/beside.data"), scratch);
    snprintf(scratch, sizeof scratch, "%s/model.onnx", folder);
    return scratch;
}

void scratch_clear(void)
{
    const int process = (int)getpid();
    scratch[0] = 0;
    unlink(built_path("tests/onnx-%d/model.onnx", process));
    unlink(built_path("tests/onnx-%d/beside.data", process));
    rmdir(built_path("tests/onnx-%d", process));
}

loaded open_client(uint64_t budget)
{
    loaded l = {.engine = weir_engine_entry(WEIR_ENGINE_ABI)};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget ? budget : 1ull << 30};
    const char *device = getenv("WEIR_TEST_DEVICE");
    assert_ok(weir_runtime_create(device ? device : "host", &options, &l.runtime));
    weir_client_options client = {.struct_size = sizeof client, .name = "model"};
    assert_ok(weir_client_create(l.runtime, &client, &l.client));
    return l;
}

weir_status load_into(loaded *l, const char *name, const char *const *settings)
{
    weir_setting list[MAX_SETTINGS];
    char texts[MAX_SETTINGS][64];
    size_t count = 0;
    for (; settings && settings[count] && count < MAX_SETTINGS; count++) {
        snprintf(texts[count], sizeof *texts, "%s", settings[count]);
        char *equals = strchr(texts[count], '=');
        assert_non_null(equals);
        *equals = 0;
        list[count] = (weir_setting){texts[count], equals + 1};
    }
    weir_engine_place place = {l->runtime, l->client};
    weir_engine_load load = {.struct_size = sizeof load,
                             .path = model_path(name),
                             .places = &place,
                             .place_count = 1,
                             .settings = list,
                             .setting_count = count};
    return l->engine->load(&load, &l->model);
}

loaded load_model(const char *name, const char *const *settings)
{
    loaded l = open_client(0);
    assert_ok(load_into(&l, name, settings));
    return l;
}

void unload_model(loaded *l)
{
    l->engine->unload(l->model);
    l->model = NULL;
    assert_int_equal(live(l), 0);
}

void close_client(loaded *l)
{
    assert_ok(weir_client_destroy(l->client));
    assert_ok(weir_runtime_destroy(l->runtime));
}

uint64_t live(const loaded *l)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    assert_ok(weir_client_info(l->client, &stats));
    return stats.live + stats.pending;
}

uint64_t live_class(const loaded *l, weir_class memory_class)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    assert_ok(weir_client_info(l->client, &stats));
    return stats.live_class[memory_class];
}

weir_status infer(const loaded *l, const weir_tensor *inputs, size_t count, weir_outputs *out)
{
    *out = WEIR_INIT(weir_outputs);
    weir_inference inference = {.struct_size = sizeof inference, .id = 1, .inputs = inputs, .input_count = count};
    return l->engine->infer(l->model, &inference, out);
}

const weir_tensor *output(const weir_outputs *outputs, const char *name)
{
    for (size_t i = 0; i < outputs->count; i++)
        if (strcmp(outputs->tensors[i].name, name) == 0)
            return &outputs->tensors[i];
    fail_msg("no output \"%s\"", name);
    return NULL;
}

weir_tensor tensor(const char *name, weir_type type, uint32_t rank, const int64_t *shape, void *data)
{
    weir_tensor t = {.struct_size = sizeof t, .name = name, .type = type, .rank = rank, .data = data};
    for (uint32_t i = 0; i < rank; i++)
        t.shape[i] = shape[i];
    assert_ok(weir_tensor_bytes(type, rank, shape, &t.bytes));
    return t;
}

/* Values that are small numbers in every type: bytes for the narrow ones, real numbers for the others. */
static void fill(weir_tensor *t)
{
    size_t width = type_bytes(t->type), count = t->bytes / width;
    for (size_t i = 0; i < count; i++) {
        unsigned small = (unsigned)(i * 7 % 23);
        if (t->type == WEIR_TYPE_F32)
            ((float *)t->data)[i] = (float)small * 0.125f - 1;
        else if (t->type == WEIR_TYPE_F64)
            ((double *)t->data)[i] = (double)small * 0.125 - 1;
        else if (t->type == WEIR_TYPE_BOOL)
            ((uint8_t *)t->data)[i] = small & 1;
        else if (t->type == WEIR_TYPE_I64)
            ((int64_t *)t->data)[i] = small % 2;
        else
            ((uint8_t *)t->data)[i * width] = (uint8_t)small;
    }
}

size_t make_inputs(const loaded *l, int64_t extent, weir_tensor *inputs, size_t capacity)
{
    weir_model_details info = WEIR_INIT(weir_model_details);
    assert_ok(l->engine->info(l->model, &info));
    size_t count = 0;
    for (size_t i = 0; i < info.input_count && count < capacity; i++) {
        const weir_port *port = &info.inputs[i];
        int64_t shape[WEIR_MAX_RANK];
        if (port->optional)
            continue;
        for (uint32_t d = 0; d < port->rank; d++)
            shape[d] = port->shape[d] >= 0 ? port->shape[d] : extent;
        weir_tensor *t = &inputs[count++];
        *t = tensor(port->name, port->type, port->rank, shape, NULL);
        t->data = calloc(1, t->bytes + 8);
        assert_non_null(t->data);
        fill(t);
    }
    return count;
}

void free_inputs(weir_tensor *inputs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(inputs[i].data);
}
