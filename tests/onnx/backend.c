/* onnx's own node tests through the engine: what ONNX Runtime alone computes, the engine computes, to the bit, and nothing of
 * it stays.
 *
 *     test-onnx-backend FOLDER     of backend.py */
#include "common.h"
#include <weir/engine.h>

#include <inttypes.h>

#include "onnx/engine/model.h"
#include "onnx/file/main_graph.h"

enum { MOST_VALUES = 64, MOST_WORDS = 512 };

typedef struct counts {
    unsigned passed, not_computed, failed;
} counts;

/* Inputs ------------------------------------------------------------------------------------------------------------ */

typedef struct inputs {
    weir_tensor tensors[MOST_VALUES];
    char names[MOST_VALUES][128];
    int types[MOST_VALUES];
    size_t count;
} inputs;

static bool read_input(FILE *file, inputs *in)
{
    weir_tensor *t = &in->tensors[in->count];
    char *name = in->names[in->count];
    size_t bytes;
    *t = (weir_tensor){.struct_size = sizeof *t, .name = name};
    if (fscanf(file, "%127s %d %u", name, &in->types[in->count], &t->rank) != 3)
        return false;
    assert_true(t->rank <= WEIR_MAX_RANK);
    for (uint32_t d = 0; d < t->rank; d++)
        assert_int_equal(fscanf(file, "%" SCNd64, &t->shape[d]), 1);
    assert_int_equal(fscanf(file, "%zu", &bytes), 1);
    assert_int_equal(fgetc(file), '\n');
    t->type = onnx_type_to_weir(in->types[in->count]);
    t->bytes = bytes;
    t->data = calloc(1, bytes + 8);
    assert_int_equal(fread(t->data, 1, bytes, file), bytes);
    in->count++;
    return true;
}

static void read_inputs(const char *folder, const char *name, inputs *in)
{
    char path[768];
    snprintf(path, sizeof path, "%s/%s.inputs", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    in->count = 0;
    while (in->count < MOST_VALUES && read_input(file, in))
        ;
    fclose(file);
}

static void free_read(inputs *in)
{
    for (size_t i = 0; i < in->count; i++)
        free(in->tensors[i].data);
    in->count = 0;
}

/* Without weir ------------------------------------------------------------------------------------------------------ */

typedef struct answers {
    ort_value *values[MOST_VALUES];
    char *names[MOST_VALUES];
    size_t count;
} answers;

static bool did(const onnx_library *library, ort_status *status, char *words)
{
    onnx_attempt a = {0};
    bool failed = onnx_failed(library->api, status, &a);
    if (failed)
        snprintf(words, MOST_WORDS, "%s", a.text);
    return !failed;
}

static bool create_plain(const onnx_library *library, const char *path, ort_session **session, char *words)
{
    const ort_api *api = library->api;
    onnx_settings settings;
    ort_session_options *options;
    *session = NULL;
    assert_ok(onnx_settings_read(NULL, 0, false, NULL, &settings));
    if (!did(library, api->CreateSessionOptions(&options), words))
        return false;
    bool made = did(library, api->SetSessionGraphOptimizationLevel(options, settings.optimization), words) &&
                did(library, api->SetIntraOpNumThreads(options, 1), words) &&
                did(library, api->CreateSession(library->env, path, options, session), words);
    api->ReleaseSessionOptions(options);
    return made;
}

static bool run_plain(const onnx_library *library, ort_session *session, const inputs *in, answers *out, char *words)
{
    const ort_api *api = library->api;
    const char *names[MOST_VALUES];
    ort_value *values[MOST_VALUES] = {NULL};
    bool good = did(library, api->SessionGetOutputCount(session, &out->count), words) && out->count <= MOST_VALUES;
    for (size_t i = 0; i < out->count && good; i++)
        good = did(library, api->SessionGetOutputName(session, i, library->plain, &out->names[i]), words);
    for (size_t i = 0; i < in->count && good; i++) {
        const weir_tensor *t = &in->tensors[i];
        names[i] = t->name;
        good = did(library,
                   api->CreateTensorWithDataAsOrtValue(library->host, t->data, t->bytes, t->shape, t->rank,
                                                       in->types[i], &values[i]),
                   words);
    }
    good = good && did(library,
                       api->Run(session, NULL, names, (const ort_value *const *)values, in->count,
                                (const char *const *)out->names, out->count, out->values),
                       words);
    for (size_t i = 0; i < in->count; i++)
        if (values[i])
            api->ReleaseValue(values[i]);
    return good;
}

static void free_answers(const onnx_library *library, answers *a)
{
    for (size_t i = 0; i < a->count; i++) {
        char words[MOST_WORDS];
        if (a->values[i])
            library->api->ReleaseValue(a->values[i]);
        if (a->names[i])
            assert_true(did(library, library->api->AllocatorFree(library->plain, a->names[i]), words));
    }
    memset(a, 0, sizeof *a);
}

/* Comparing --------------------------------------------------------------------------------------------------------- */

/* Its shape and bytes, as a tensor of weir's. */
static weir_tensor look(const onnx_library *library, ort_value *value)
{
    const ort_api *api = library->api;
    char words[MOST_WORDS];
    weir_tensor t = {.struct_size = sizeof t};
    ort_shape_info *info;
    size_t rank;
    int type;
    assert_true(did(library, api->GetTensorTypeAndShape(value, &info), words));
    assert_true(did(library, api->GetTensorElementType(info, &type), words));
    assert_true(did(library, api->GetDimensionsCount(info, &rank), words));
    assert_true(rank <= WEIR_MAX_RANK);
    assert_true(did(library, api->GetDimensions(info, t.shape, rank), words));
    api->ReleaseTensorTypeAndShapeInfo(info);
    assert_true(did(library, api->GetTensorMutableData(value, &t.data), words));
    t.rank = (uint32_t)rank;
    t.type = onnx_type_to_weir(type);
    assert_ok(weir_tensor_bytes(t.type, t.rank, t.shape, &t.bytes));
    return t;
}

static bool same(const weir_tensor *a, const weir_tensor *b)
{
    return a->type == b->type && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof a->shape[0]) == 0) &&
           (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
}

/* Through the engine ------------------------------------------------------------------------------------------------ */

static bool through_the_engine(const onnx_library *library, loaded *l, const char *path, const inputs *in,
                               const answers *wants, char *words)
{
    weir_outputs out;
    if (load_into(l, path, (const char *const[]){"threads=1", NULL}) != WEIR_OK) {
        snprintf(words, MOST_WORDS, "load: %s", weir_detail());
        return false;
    }
    bool good = infer(l, in->tensors, in->count, &out) == WEIR_OK;
    snprintf(words, MOST_WORDS, "%s", good ? "" : weir_detail());
    for (size_t i = 0; i < wants->count && good; i++) {
        weir_tensor wanted = look(library, wants->values[i]);
        good = same(output(&out, wants->names[i]), &wanted);
        if (!good)
            snprintf(words, MOST_WORDS, "the output \"%s\" differs", wants->names[i]);
    }
    if (out.tensors)
        l->engine->release_outputs(l->model, &out);
    unload_model(l); /* and nothing is live */
    return good;
}

static void try_case(const onnx_library *library, loaded *l, const char *folder, const char *name, counts *count)
{
    char path[768], words[MOST_WORDS] = "";
    inputs in;
    answers wants = {.count = 0};
    ort_session *session;
    snprintf(path, sizeof path, "%s/%s.onnx", folder, name);
    read_inputs(folder, name, &in);
    bool computed = create_plain(library, path, &session, words) && run_plain(library, session, &in, &wants, words);
    bool passed = computed && through_the_engine(library, l, path, &in, &wants, words);
    count->not_computed += !computed;
    count->passed += passed;
    count->failed += computed && !passed;
    if (computed && !passed)
        printf("%s: %s\n", name, words);
    free_answers(library, &wants);
    if (session)
        library->api->ReleaseSession(session);
    free_read(&in);
}

static const char *cases_folder;

static void what_onnxruntime_computes(void **state)
{
    (void)state;
    char path[768], name[256];
    counts count = {0};
    const onnx_library *library;
    loaded l = open_client(0);
    assert_ok(onnx_library_get(ONNX_CPU, &library));
    snprintf(path, sizeof path, "%s/cases", cases_folder);
    FILE *list = fopen(path, "r");
    assert_non_null(list);
    while (fscanf(list, "%255s", name) == 1)
        try_case(library, &l, cases_folder, name, &count);
    fclose(list);
    close_client(&l);
    printf("%u passed, %u failed, %u that ONNX Runtime does not compute either\n", count.passed, count.failed,
           count.not_computed);
    assert_int_equal(count.failed, 0);
    assert_true(count.passed > 4 * count.not_computed);
}

int main(int argc, char **argv)
{
    int missing = need_onnxruntime();
    if (missing)
        return missing;
    cases_folder = argc == 2 ? argv[1] : getenv("WEIR_TEST_CASES");
    if (!cases_folder)
        return 2;
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_onnxruntime_computes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
