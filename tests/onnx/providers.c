/* Providers: which are here and what the others lack, one model by several of them in one process, and who runs which nodes. */
#include "common.h"

#include "test_places.h"
#include <weir/engine.h>

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "onnx/engine/model.h"
#include "onnx/engine/foresee.h"

static bool has_openvino, has_cuda, has_cuda_build;

static int listings; /* of folders */
static time_t later; /* by so much the clock is ahead */

/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) DIR *__wrap_opendir(const char *path);
DIR *__real_opendir(const char *path);
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_clock_gettime(clockid_t clock, struct timespec *out);

DIR *__wrap_opendir(const char *path)
{
    listings++;
    return __real_opendir(path);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    int answer = __real_clock_gettime(clock, out);
    out->tv_sec += later;
    return answer;
}

static weir_engine_provider provider_at(size_t index)
{
    weir_engine_provider found = WEIR_INIT(weir_engine_provider);
    assert_ok(weir_engine_entry(WEIR_ENGINE_ABI)->provider(index, &found));
    return found;
}

static weir_engine_provider provider_named(const char *name)
{
    onnx_provider index;
    assert_true(onnx_provider_find(name, &index));
    return provider_at(index);
}

/* The options that OpenVINO was last appended with, "key=value;". */
static ort_api watched;
static const ort_api *real;
static char appended[256];

static ort_status *note_openvino(ort_session_options *options, const char *const *keys, const char *const *values,
                                 size_t count)
{
    appended[0] = 0;
    for (size_t i = 0, at = 0; i < count && at < sizeof appended; i++)
        at += (size_t)snprintf(appended + at, sizeof appended - at, "%s=%s;", keys[i], values[i]);
    return real->SessionOptionsAppendExecutionProvider_OpenVINO_V2(options, keys, values, count);
}

static int options_left; /* of sessions: made and not released */

static ort_status *count_options(ort_session_options **out)
{
    ort_status *status = real->CreateSessionOptions(out);
    options_left += !status;
    return status;
}

static void release_options(ort_session_options *options)
{
    options_left -= options != NULL;
    real->ReleaseSessionOptions(options);
}

static weir_status load_by(loaded *l, const char *name, const char *provider, const weir_setting *settings,
                           size_t count)
{
    weir_engine_place place = {l->runtime, l->client};
    weir_engine_load load = {.struct_size = sizeof load,
                             .path = model_path(name),
                             .places = &place,
                             .place_count = 1,
                             .settings = settings,
                             .setting_count = count,
                             .provider = provider};
    return l->engine->load(&load, &l->model);
}

static weir_model_details info_of(const loaded *l)
{
    weir_model_details info = WEIR_INIT(weir_model_details);
    assert_ok(l->engine->info(l->model, &info));
    return info;
}

/* ---- which are here ------------------------------------------------------------------------------------------------- */

static void every_provider_is_told(void **state)
{
    (void)state;
    static const char *const names[] = {"tensorrt", "cuda", "rocm", "coreml", "directml", "openvino", "cpu"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        weir_engine_provider found = provider_at(i);
        assert_string_equal(found.name, names[i]);
        assert_int_equal(found.missing[0] == 0, found.state == WEIR_PROVIDER_HERE);
        assert_true(found.library[0] != 0);
        assert_true(found.version[0] != 0);
    }
    weir_engine_provider beyond = WEIR_INIT(weir_engine_provider);
    assert_status(weir_engine_entry(WEIR_ENGINE_ABI)->provider(ONNX_PROVIDERS, &beyond), WEIR_ERR_NOT_FOUND);
    assert_int_equal(provider_named("cpu").state, WEIR_PROVIDER_HERE);
}

static void assert_refused(const char *provider, weir_status status, const char *words)
{
    loaded l = open_client(0);
    assert_status(load_by(&l, "mlp", provider, NULL, 0), status);
    assert_detail(words);
    assert_int_equal(live(&l), 0);
    close_client(&l);
}

/* Not on this system, and not in this library: two refusals, told apart. */
static void what_is_not_built_is_said(void **state)
{
    (void)state;
    assert_int_equal(provider_named("METAL").state, WEIR_PROVIDER_NOT_BUILT); /* coreml's other name */
    assert_non_null(strstr(provider_named("metal").missing, "Apple"));
    assert_non_null(strstr(provider_named("directml").missing, "Windows"));
    assert_non_null(strstr(provider_named("rocm").missing, "has no MIGraphXExecutionProvider"));
    assert_refused("coreml", WEIR_ERR_UNSUPPORTED, "has no provider coreml");
    assert_refused("directml", WEIR_ERR_UNSUPPORTED, "has no provider directml");
    assert_refused("rocm", WEIR_ERR_UNSUPPORTED, "WEIR_ONNXRUNTIME");
    assert_refused("cuda", WEIR_ERR_INVALID, "the model is on host");
    assert_refused("tpu", WEIR_ERR_INVALID, "it has tensorrt, cuda, rocm, coreml, directml, openvino and cpu");
}

static void what_cannot_be_loaded_is_named(void **state)
{
    (void)state;
    if (!has_cuda_build)
        skip();
    weir_engine_provider tensorrt = provider_named("tensorrt");
    assert_int_equal(tensorrt.state, WEIR_PROVIDER_NOT_LOADABLE);
    assert_non_null(strstr(tensorrt.missing, "libnvinfer.so.10"));
    assert_non_null(strstr(tensorrt.missing, "libnvonnxparser.so.10"));
    if (has_cuda)
        assert_null(strstr(tensorrt.missing, "libcudart.so.13"));
    assert_null(strstr(tensorrt.missing, "libstdc++"));
}

/* TensorRT's provider alone: CUDA's stands behind it in every session. */
static void tensorrt_needs_cuda_too(void **state)
{
    (void)state;
    char folder[] = "/tmp/weir-providers-XXXXXX", theirs[64], text[512];
    onnx_library library = {.version = "1.31.1"};
    library.has[ONNX_TENSORRT] = library.has[ONNX_CUDA] = 1;
    assert_non_null(mkdtemp(folder));
    snprintf(library.path, sizeof library.path, "%s/libonnxruntime.so", folder);
    snprintf(theirs, sizeof theirs, "%s/libonnxruntime_providers_tensorrt.so", folder);
    assert_int_equal(symlink(built_path("tests/needs/there/libonnx-needed.so.3"), theirs), 0);
    onnx_provider_missing(&library, ONNX_TENSORRT, text, sizeof text);
    assert_int_equal(unlink(theirs), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_non_null(strstr(text, "libonnxruntime_providers_cuda.so is not beside"));
    library.has[ONNX_CPU] = 1; /* of what lacks nothing, how to get it */
    onnx_provider_missing(&library, ONNX_CPU, text, sizeof text);
    assert_string_equal(text, onnx_provider_advice(ONNX_CPU));
}

/* A library that needs another of version 3, where version 2 is. */
static void other_versions_are_found(void **state)
{
    (void)state;
    char text[256];
    const char *needing = built_path("tests/needs/libonnx-needing.so"), *folder = built_path("tests/needs/there");
    const char *needed = built_path("tests/needs/there/libonnx-needed.so.3");
    assert_int_equal(onnx_needs_missing(needing, NULL, text, sizeof text), 1);
    assert_string_equal(text, "libonnx-needed.so.3 (found libonnx-needed.so.2)");
    assert_int_equal(onnx_needs_missing("/nowhere.so", NULL, text, sizeof text), -1);
    assert_int_equal(onnx_needs_missing(model_path("mlp"), NULL, text, sizeof text), -1);
    assert_int_equal(onnx_needs_missing(needed, NULL, text, sizeof text), 0);
    assert_int_equal(onnx_needs_missing(needed, "libnobody.so.1", text, sizeof text), 1);
    assert_string_equal(text, "libnobody.so.1");
    setenv("LD_LIBRARY_PATH", folder, 1); /* too late: the dynamic linker read it at the start */
    assert_int_equal(onnx_needs_missing(needing, NULL, text, sizeof text), 1);
    assert_null(dlopen(needing, RTLD_LAZY));
    assert_non_null(strstr(dlerror(), "libonnx-needed.so.3"));
    unsetenv("LD_LIBRARY_PATH");
}

/* A copy of libonnx-needing.so whose dynamic section the test may write to. */
typedef struct patched {
    char path[64], bytes[1 << 17];
    size_t size, entries; /* where the section begins */
} patched;

static patched *read_needing(const char *folder)
{
    static patched it;
    FILE *in = fopen(built_path("tests/needs/libonnx-needing.so"), "rb");
    assert_non_null(in);
    it.size = fread(it.bytes, 1, sizeof it.bytes, in);
    assert_true(it.size > 0 && it.size < sizeof it.bytes);
    fclose(in);
    snprintf(it.path, sizeof it.path, "%s/copy.so", folder);
    const ElfW(Ehdr) *header = (const void *)it.bytes;
    const ElfW(Phdr) *part = (const void *)(it.bytes + header->e_phoff);
    for (int i = 0; i < header->e_phnum; i++)
        if (part[i].p_type == PT_DYNAMIC)
            it.entries = part[i].p_offset;
    char *own_name = memmem(it.bytes, it.size, "+{ORIGIN}/there", 15);
    assert_true(it.entries > 0 && own_name);
    *own_name = '$';
    return &it;
}

/* Makes one kind of entry another. */
static void turn(patched *it, int64_t from, int64_t to)
{
    ElfW(Dyn) *at = (void *)(it->bytes + it->entries);
    while (at->d_tag != from) {
        assert_true(at->d_tag != DT_NULL);
        at++;
    }
    at->d_tag = to;
}

static void write_patched(const patched *it)
{
    FILE *out = fopen(it->path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(it->bytes, 1, it->size, out), it->size);
    assert_int_equal(fclose(out), 0);
}

static int missing_of(const patched *it, char *text, size_t capacity)
{
    write_patched(it);
    int missing = onnx_needs_missing(it->path, NULL, text, capacity);
    unlink(it->path);
    return missing;
}

/* A folder with the file `name` in a folder of its own in it. */
static void make_folder(char *folder, const char *inside, const char *name)
{
    char path[128];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/%s", folder, inside);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/%s/%s", folder, inside, name);
    assert_int_equal(symlink(built_path("tests/needs/there/libonnx-needed.so.3"), path), 0);
}

static void clear_folder(const char *folder, const char *inside, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s/%s", folder, inside, name);
    unlink(path);
    snprintf(path, sizeof path, "%s/%s", folder, inside);
    rmdir(path);
    assert_int_equal(rmdir(folder), 0);
}

/* Something of the folder is mapped into this process. */
static bool is_mapped(const char *folder)
{
    char line[1024];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, folder) != NULL;
    fclose(maps);
    return found;
}

/* Where a library says that its others lie: RUNPATH, or RPATH where there is no RUNPATH, as seen from its own folder. */
static void a_library_says_where_others_are(void **state)
{
    static const struct {
        const char *inside; /* where the other library is: there, as RPATH has it, or other, as RUNPATH has it */
        bool runpath, rpath, rpath_alone; /* which there are; rpath_alone: by the tag of the other */
        int missing;
    } cases[] = {{"other", true, false, false, 0},  {"there", true, false, false, 1}, {"there", true, true, false, 1},
                 {"other", true, true, false, 0},   {"there", false, true, false, 0}, {"other", false, true, false, 1},
                 {"there", false, false, false, 1}, {"there", false, true, true, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[] = "/tmp/weir-needs-XXXXXX", text[256];
        make_folder(folder, cases[i].inside, "libonnx-needed.so.3");
        patched *it = read_needing(folder);
        if (!cases[i].runpath)
            turn(it, DT_RUNPATH, DT_DEBUG);
        if (cases[i].rpath)
            turn(it, DT_SONAME, cases[i].rpath_alone ? DT_RUNPATH : DT_RPATH);
        int missing = missing_of(it, text, sizeof text);
        assert_false(is_mapped(folder));
        clear_folder(folder, cases[i].inside, "libonnx-needed.so.3");
        if (missing != cases[i].missing)
            print_error("case %zu: %s\n", i, text);
        assert_int_equal(missing, cases[i].missing);
        assert_int_equal(strstr(text, "libonnx-needed.so.3") != NULL, missing);
    }
}

/* What is there by the name and is no library of this machine's is not taken for it, and is said. */
static void what_is_no_library_is_not_taken(void **state)
{
    (void)state;
    char folder[] = "/tmp/weir-needs-XXXXXX", path[128], text[256];
    make_folder(folder, "other", "libonnx-needed.so.3");
    patched *it = read_needing(folder);
    snprintf(path, sizeof path, "%s/other/libonnx-needed.so.3", folder);
    assert_int_equal(missing_of(it, text, sizeof text), 0);
    static const size_t lengths[] = {0, 3, sizeof(ElfW(Ehdr)) - 1, sizeof(ElfW(Ehdr)), 0};
    const ElfW(Ehdr) *header = (const void *)it->bytes;
    for (size_t i = 0; i < 9; i++) {
        char other[sizeof(ElfW(Ehdr))];
        memcpy(other, header, sizeof other);
        ElfW(Ehdr) *its = (void *)other;
        its->e_ident[EI_CLASS] = i == 5 ? 3 - its->e_ident[EI_CLASS] : its->e_ident[EI_CLASS];
        its->e_machine = i == 6 ? (uint16_t)(its->e_machine + 1) : its->e_machine;
        its->e_ident[EI_MAG0] = i == 7 ? 'X' : its->e_ident[EI_MAG0];
        its->e_phnum = i == 8 ? 0 : its->e_phnum;
        unlink(path);
        FILE *out = fopen(path, "wb");
        assert_non_null(out);
        size_t length = i < 5 ? lengths[i] : it->size;
        (void)!fwrite(i < 5 ? it->bytes : other, 1, length < sizeof other ? length : sizeof other, out);
        if (length > sizeof other)
            assert_int_equal(fwrite(it->bytes + sizeof other, 1, length - sizeof other, out), length - sizeof other);
        assert_int_equal(fclose(out), 0);
        assert_int_equal(missing_of(it, text, sizeof text), 1);
        assert_string_equal(text, "libonnx-needed.so.3 (found libonnx-needed.so.3)");
        assert_int_equal(onnx_needs_missing(path, NULL, text, sizeof text), -1);
    }
    assert_false(is_mapped(folder));
    clear_folder(folder, "other", "libonnx-needed.so.3");
}

/* Answers whether folders were looked through for it. */
static bool is_searched(const char *file, const char *also, const char *wanted)
{
    char text[256];
    int before = listings;
    assert_int_equal(onnx_needs_missing(file, also, text, sizeof text), wanted[0] != 0);
    assert_string_equal(text, wanted);
    return listings > before;
}

/* While nothing has changed, folders are looked through once; a library that comes, goes or is opened is noticed. */
static void what_was_found_is_found_once(void **state)
{
    (void)state;
    static const char missing[] = "libonnx-needed.so.3", other[] = "libonnx-needed.so.3 (found libonnx-needed.so.4)";
    const char *library = built_path("tests/needs/there/libonnx-needed.so.3");
    char folder[] = "/tmp/weir-needs-XXXXXX", path[128], old[128];
    make_folder(folder, "other", "libonnx-needed.so.3");
    snprintf(path, sizeof path, "%s/other/libonnx-needed.so.3", folder);
    snprintf(old, sizeof old, "%s/other/libonnx-needed.so.4", folder);
    patched *it = read_needing(folder);
    write_patched(it);
    assert_int_equal(unlink(path), 0);
    assert_true(is_searched(it->path, NULL, missing));
    assert_true(is_searched(it->path, NULL, missing)); /* its folder was written to just before */
    later = 10;
    assert_true(is_searched(it->path, NULL, missing));
    assert_false(is_searched(it->path, NULL, missing));
    assert_true(is_searched(it->path, missing, missing)); /* another question */
    assert_false(is_searched(it->path, NULL, missing));
    assert_false(is_searched(it->path, missing, missing));
    assert_int_equal(symlink("/nowhere", old), 0);
    assert_true(is_searched(it->path, NULL, other));
    assert_false(is_searched(it->path, NULL, other));
    assert_int_equal(symlink(library, path), 0);
    assert_false(is_searched(it->path, NULL, ""));
    assert_int_equal(unlink(path), 0);
    assert_true(is_searched(it->path, NULL, other));
    void *opened = dlopen(library, RTLD_NOW); /* by the name that is asked for */
    assert_non_null(opened);
    assert_false(is_searched(it->path, NULL, ""));
    assert_int_equal(dlclose(opened), 0);
    assert_true(is_searched(it->path, NULL, other));
    later = 0;
    unlink(old);
    unlink(it->path);
    clear_folder(folder, "other", "libonnx-needed.so.3");
}

/* Also where no folder was looked through, as all was found. */
static void what_comes_is_noticed_by_itself(void **state)
{
    (void)state;
    char folder[] = "/tmp/weir-needs-XXXXXX", path[128];
    onnx_seen seen;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/comes", folder);
    onnx_seen_begin(&seen);
    onnx_seen_note(&seen, path);
    assert_true(onnx_seen_holds(&seen));
    assert_int_equal(symlink("/", path), 0);
    assert_false(onnx_seen_holds(&seen));
    unlink(path);
    assert_true(onnx_seen_holds(&seen));
    onnx_seen_note(&seen, "here"); /* wherever that is */
    assert_false(onnx_seen_holds(&seen));
    onnx_seen_end(&seen);
    assert_int_equal(rmdir(folder), 0);
}

/* As many answers are kept as there are providers, and no more. */
static void so_many_answers_are_kept(void **state)
{
    (void)state;
    char name[64];
    const char *needed = built_path("tests/needs/there/libonnx-needed.so.3");
    later = 10;
    for (int i = 0; i < 18; i++) {
        snprintf(name, sizeof name, "libnowhere.so.%d", i % 9);
        assert_true(is_searched(needed, name, name));
        assert_false(is_searched(needed, name, name));
    }
    later = 0;
}

/* Whatever stands in its headers and its dynamic section: an answer, and no read behind the file. */
static void damaged_libraries_are_answered(void **state)
{
    (void)state;
    char folder[] = "/tmp/weir-needs-XXXXXX", text[64];
    static const unsigned char values[] = {0, 1, 0x7f, 0xff};
    make_folder(folder, "other", "libonnx-needed.so.3");
    patched *it = read_needing(folder);
    const ElfW(Ehdr) *header = (const void *)it->bytes;
    size_t heads = header->e_phoff + header->e_phnum * sizeof(ElfW(Phdr)), ends = it->entries + 24 * sizeof(ElfW(Dyn));
    for (size_t at = 0; at < ends && at < it->size; at = at + 1 == heads ? it->entries : at + 1)
        for (size_t v = 0; v < sizeof values; v++) {
            char kept = it->bytes[at];
            it->bytes[at] = (char)values[v];
            int missing = missing_of(it, text, sizeof text);
            assert_true(missing >= -1 && missing < 64);
            assert_true(memchr(text, 0, sizeof text) != NULL);
            it->bytes[at] = kept;
        }
    assert_int_equal(missing_of(it, text, sizeof text), 0);
    clear_folder(folder, "other", "libonnx-needed.so.3");
}

static loaded open_on_device(void)
{
    loaded l = {.engine = weir_engine_entry(WEIR_ENGINE_ABI)};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 256u << 20};
    weir_client_options named = {.struct_size = sizeof named, .name = "device"};
    assert_ok(weir_runtime_create("cuda:0", &options, &l.runtime));
    assert_ok(weir_client_create(l.runtime, &named, &l.client));
    return l;
}

/* Options of a provider, as many as there is room for beside weir's own. */
static void so_many_options_are_taken(void **state)
{
    enum { ROOM = 32, CUDAS = 3 };
    static const struct {
        const char *provider, *key, *value;
        int most;
        weir_status good; /* of as many */
    } cases[] = {{"cuda", "cuda.use_tf32", "0", ROOM - CUDAS, WEIR_OK},
                 {"tensorrt", "tensorrt.trt_fp16_enable", "1", ROOM - 1, WEIR_ERR_UNSUPPORTED},
                 {"openvino", "openvino.num_streams", "1", ROOM, WEIR_OK}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool on_host = strcmp(cases[i].provider, "openvino") == 0;
        weir_setting list[ROOM + 1];
        if (on_host ? !has_openvino : !has_cuda)
            continue;
        for (int k = 0; k <= ROOM; k++)
            list[k] = (weir_setting){cases[i].key, cases[i].value};
        loaded l = on_host ? open_client(0) : open_on_device();
        assert_status(load_by(&l, "mlp", cases[i].provider, list, (size_t)cases[i].most), cases[i].good);
        if (l.model)
            unload_model(&l);
        assert_status(load_by(&l, "mlp", cases[i].provider, list, (size_t)cases[i].most + 1), WEIR_ERR_INVALID);
        assert_detail("more than 32 settings");
        assert_detail(cases[i].provider);
        assert_int_equal(live(&l), 0);
        close_client(&l);
    }
}

/* ---- which runs the model --------------------------------------------------------------------------------------------- */

static void a_conflict_is_an_error(void **state)
{
    (void)state;
    loaded l = open_client(0);
    const weir_setting set = {"provider", "openvino"};
    assert_status(load_by(&l, "mlp", "cpu", &set, 1), WEIR_ERR_INVALID);
    assert_detail("the load asks for the provider cpu");
    const weir_setting of_openvino = {"openvino.num_streams", "1"};
    assert_status(load_by(&l, "mlp", NULL, &of_openvino, 1), WEIR_ERR_INVALID);
    assert_detail("set provider=openvino, too");
    const weir_setting of_cpu = {"cpu.use_arena", "1"};
    assert_status(load_by(&l, "mlp", NULL, &of_cpu, 1), WEIR_ERR_INVALID);
    assert_detail("the provider cpu has no options of its own");
    onnx_settings read;
    const weir_setting adapters[] = {
        {"directml.device_id", "1"}, {"directml.device_id", "one"}, {"directml.nothing", "1"}};
    assert_ok(onnx_settings_read(&adapters[0], 1, false, "directml", &read));
    assert_status(onnx_settings_read(&adapters[1], 1, false, "directml", &read), WEIR_ERR_INVALID);
    assert_status(onnx_settings_read(&adapters[2], 1, false, "directml", &read), WEIR_ERR_INVALID);
    const weir_setting same = {"provider", "cpu"};
    assert_ok(load_by(&l, "mlp", "CPU", &same, 1));
    assert_string_equal(info_of(&l).provider, "cpu");
    unload_model(&l);
    close_client(&l);
}

static void assert_near(const weir_tensor *a, const weir_tensor *b)
{
    assert_int_equal(a->bytes, b->bytes);
    if (a->type != WEIR_TYPE_F32) {
        assert_memory_equal(a->data, b->data, a->bytes);
        return;
    }
    const float *x = a->data, *y = b->data;
    for (size_t i = 0; i < a->bytes / sizeof *x; i++)
        if (!(fabsf(x[i] - y[i]) <= 1e-4f + 1e-3f * fabsf(x[i])))
            fail_msg("%s[%zu]: %g and %g", a->name, i, (double)x[i], (double)y[i]);
}

static void same_by_openvino(const char *name, int64_t extent)
{
    loaded cpu = open_client(0), openvino = open_client(0);
    weir_tensor inputs[PLAIN_VALUES];
    weir_outputs a, b;
    assert_ok(load_by(&cpu, name, "cpu", NULL, 0));
    assert_ok(load_by(&openvino, name, "openvino", NULL, 0));
    size_t count = make_inputs(&cpu, extent, inputs, PLAIN_VALUES);
    for (int run = 0; run < 2; run++) {
        assert_ok(infer(&cpu, inputs, count, &a));
        assert_ok(infer(&openvino, inputs, count, &b));
        assert_int_equal(a.count, b.count);
        for (size_t i = 0; i < a.count; i++)
            assert_near(&a.tensors[i], output(&b, a.tensors[i].name));
        cpu.engine->release_outputs(cpu.model, &a);
        openvino.engine->release_outputs(openvino.model, &b);
    }
    weir_model_details info = info_of(&openvino);
    assert_string_equal(info.provider, "openvino");
    assert_non_null(strstr(info.remarks, "outside: weights"));
    assert_ptr_not_equal(cpu.model->library, openvino.model->library);
    free_inputs(inputs, count);
    unload_model(&cpu);
    unload_model(&openvino);
    close_client(&cpu);
    close_client(&openvino);
}

static void openvino_answers_as_the_cpu(void **state)
{
    (void)state;
    static const char *const models[] = {"mlp", "conv", "default", "folded", "scalar", "chain", "beside"};
    if (!has_openvino)
        skip();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        same_by_openvino(models[i], 5);
}

static void openvino_answers_as_the_cpu_with_minilm(void **state)
{
    (void)state;
    char path[512];
    if (!has_openvino)
        skip();
    snprintf(path, sizeof path, "%s/models/minilm.onnx", WEIR_TEST_STORE);
    FILE *f = fopen(path, "rb");
    if (f)
        fclose(f);
    else
        skip_without(path);
    same_by_openvino(path, 3);
}

static void options_reach_openvino(void **state)
{
    (void)state;
    if (!has_openvino)
        skip();
    const onnx_library *library;
    loaded l = open_client(0);
    assert_ok(onnx_library_get(ONNX_OPENVINO, &library));
    real = library->api;
    memcpy(&watched, real, sizeof watched);
    watched.SessionOptionsAppendExecutionProvider_OpenVINO_V2 = note_openvino;
    watched.CreateSessionOptions = count_options;
    watched.ReleaseSessionOptions = release_options;
    options_left = 0;
    ((onnx_library *)(uintptr_t)library)->api = &watched;
    assert_ok(load_by(&l, "mlp", "openvino", NULL, 0));
    assert_string_equal(appended, "device_type=CPU;");
    unload_model(&l);
    const weir_setting some[] = {{"threads", "1"}, {"openvino.num_streams", "1"}};
    assert_ok(load_by(&l, "mlp", "openvino", some, 2));
    assert_string_equal(appended, "num_streams=1;device_type=CPU;num_of_threads=1;");
    unload_model(&l);
    const weir_setting unknown = {"openvino.no_such_option", "1"};
    assert_status(load_by(&l, "mlp", "openvino", &unknown, 1), WEIR_ERR_INVALID);
    assert_detail("no_such_option");
    assert_int_equal(live(&l), 0);
    assert_int_equal(options_left, 0);
    ((onnx_library *)(uintptr_t)library)->api = real;
    close_client(&l);
}

/* ---- providers that no build here has ---------------------------------------------------------------------------------- */

/* Calls in their order, with their words; `failing` names the call that fails, NULL: none. */
static char asked[512];
static const char *failing;

static ort_status *note(const char *call, const char *words)
{
    size_t used = strlen(asked);
    snprintf(asked + used, sizeof asked - used, "%s%s%s;", call, *words ? " " : "", words);
    return failing && strcmp(failing, call) == 0 ? real->CreateStatus(ORT_FAIL_CODE, "failed on purpose") : NULL;
}

static const char *in_words(const char *const *keys, const char *const *values, size_t count)
{
    static char words[128];
    words[0] = 0;
    for (size_t i = 0, at = 0; i < count && at < sizeof words; i++)
        at += (size_t)snprintf(words + at, sizeof words - at, "%s%s=%s", i ? " " : "", keys[i], values[i]);
    return words;
}

static ort_status *append_named(ort_session_options *options, const char *provider, const char *const *keys,
                                const char *const *values, size_t count)
{
    (void)options;
    return note(provider, in_words(keys, values, count));
}

static ort_status *make_rocm(ort_rocm_options **out)
{
    ort_status *status = note("make", "");
    *out = status ? NULL : (ort_rocm_options *)(void *)asked;
    return status;
}

static ort_status *update_rocm(ort_rocm_options *rocm, const char *const *keys, const char *const *values, size_t count)
{
    assert_ptr_equal(rocm, asked);
    return note("update", in_words(keys, values, count));
}

static ort_status *append_rocm(ort_session_options *options, const ort_rocm_options *rocm)
{
    (void)options;
    assert_ptr_equal(rocm, asked);
    return note("append", "");
}

static void release_rocm(ort_rocm_options *rocm)
{
    assert_ptr_equal(rocm, asked);
    (void)note("release", "");
}

static ort_status *append_directml(ort_session_options *options, int device)
{
    char words[16];
    (void)options;
    snprintf(words, sizeof words, "%d", device);
    return note("directml", words);
}

static ort_status *find_interface(const char *provider, uint32_t version, const void **out)
{
    static ort_status *(*const interface[])(ort_session_options *, int) = {append_directml};
    (void)version;
    *out = interface;
    return note("find", provider);
}

/* Options go where the provider takes them, and objects that were made for that are released whichever call fails. */
static void other_providers_get_their_options(void **state)
{
    static const struct {
        onnx_provider provider;
        unsigned kinds; /* of the provider, that the library has */
        const char *key, *value, *fails, *wanted;
    } cases[] = {
        {ONNX_COREML, 1, "coreml.MLComputeUnits", "ALL", NULL, "CoreML MLComputeUnits=ALL;"},
        {ONNX_ROCM, 1, "rocm.device_id", "1", NULL, "MIGraphX device_id=1;"},
        {ONNX_ROCM, 3, "rocm.device_id", "1", NULL, "MIGraphX device_id=1;"},
        {ONNX_ROCM, 2, "rocm.device_id", "1", NULL, "make;update device_id=1;append;release;"},
        {ONNX_ROCM, 2, "rocm.device_id", "1", "make", "make;make;"},
        {ONNX_ROCM, 2, "rocm.device_id", "1", "update", "make;update device_id=1;release;make;update;release;"},
        {ONNX_ROCM, 2, "rocm.device_id", "1", "append",
         "make;update device_id=1;append;release;make;update;append;release;"},
        {ONNX_ROCM, 2, NULL, NULL, "append", "make;update;append;release;"},
        {ONNX_DIRECTML, 1, "directml.device_id", "3", NULL, "find DML;directml 3;"},
        {ONNX_DIRECTML, 1, NULL, NULL, NULL, "find DML;directml 0;"},
        {ONNX_DIRECTML, 1, "directml.device_id", "3", "find", "find DML;find DML;"},
        {ONNX_DIRECTML, 1, "directml.device_id", "3", "directml", "find DML;directml 3;find DML;directml 0;"},
    };
    const onnx_library *library;
    const onnx_device host = {.name = "host"};
    (void)state;
    assert_ok(onnx_library_get(ONNX_CPU, &library));
    onnx_library other = *library;
    real = library->api;
    memcpy(&watched, real, sizeof watched);
    watched.CreateSessionOptions = count_options;
    watched.ReleaseSessionOptions = release_options;
    watched.SessionOptionsAppendExecutionProvider = append_named;
    watched.CreateROCMProviderOptions = make_rocm;
    watched.UpdateROCMProviderOptions = update_rocm;
    watched.SessionOptionsAppendExecutionProvider_ROCM = append_rocm;
    watched.ReleaseROCMProviderOptions = release_rocm;
    watched.GetExecutionProviderApi = find_interface;
    other.api = &watched;
    options_left = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const onnx_settings settings = {.provider = cases[i].provider};
        const weir_setting option = {cases[i].key, cases[i].value};
        const weir_engine_load load = {
            .struct_size = sizeof load, .settings = &option, .setting_count = cases[i].key != NULL};
        asked[0] = 0;
        failing = cases[i].fails;
        other.has[cases[i].provider] = cases[i].kinds;
        weir_status status = onnx_device_provide(&other, &host, WEIR_STREAM_HOST, &settings, &load, NULL);
        assert_string_equal(asked, cases[i].wanted);
        assert_status(status, cases[i].fails ? WEIR_ERR_UNSUPPORTED : WEIR_OK);
        assert_int_equal(options_left, 0);
    }
    failing = NULL;
}

/* Before there is a place, the provider says by its name where the model would be; in whatever case. */
static void a_plan_needs_no_place(void **state)
{
    (void)state;
    static const char *const names[] = {"cuda", "CUDA", "TensorRT"};
    weir_engine_plan plans[3];
    for (size_t i = 0; i < 3; i++) {
        weir_engine_load load = {.struct_size = sizeof load, .path = model_path("mlp"), .provider = names[i]};
        plans[i] = WEIR_INIT(weir_engine_plan);
        assert_ok(weir_engine_entry(WEIR_ENGINE_ABI)->plan(&load, &plans[i]));
        assert_true(plans[i].bytes[WEIR_CLASS_WEIGHTS] > 0);
        assert_memory_equal(plans[i].bytes, plans[0].bytes, sizeof plans[i].bytes);
    }
}

static void cuda_runs_its_share(void **state)
{
    (void)state;
    if (!has_cuda)
        skip();
    loaded l = open_on_device();
    const weir_setting off = {"cpu_fallback", "off"};
    assert_ok(load_by(&l, "mlp", "cuda", &off, 1));
    weir_model_details info = info_of(&l);
    assert_string_equal(info.provider, "cuda");
    assert_int_equal(info.share_count, 1);
    assert_string_equal(info.shares[0].provider, "cuda");
    assert_int_equal(info.shares[0].parts, info.shares[0].of);
    unload_model(&l);
    assert_status(load_by(&l, "mlp", "cpu", NULL, 0), WEIR_ERR_INVALID);
    assert_detail("the model is on cuda");
    assert_status(load_by(&l, "mlp", "tensorrt", NULL, 0), WEIR_ERR_UNSUPPORTED);
    assert_detail("libnvonnxparser.so.10");
    close_client(&l);
}

/* Both builds' providers in one process: each is answered by its own ONNX Runtime. */
static void builds_lie_beside_each_other(void **state)
{
    (void)state;
    if (!has_openvino || !has_cuda)
        skip();
    for (int turn = 0; turn < 2; turn++) {
        loaded on_device = open_on_device();
        assert_ok(load_by(&on_device, "mlp", "cuda", NULL, 0));
        same_by_openvino("mlp", 3);
        assert_string_equal(info_of(&on_device).provider, "cuda");
        unload_model(&on_device);
        close_client(&on_device);
    }
}

/* ---- who runs which nodes --------------------------------------------------------------------------------------------- */

static void shares_are_of_all_nodes(void **state)
{
    (void)state;
    loaded l = load_model("mlp", NULL);
    weir_model_details info = info_of(&l);
    assert_int_equal(info.share_count, 1);
    assert_string_equal(info.shares[0].provider, "cpu");
    assert_true(info.shares[0].parts > 0);
    assert_int_equal(info.shares[0].parts, info.shares[0].of);
    unload_model(&l);
    close_client(&l);
}

/* Operators that OpenVINO does not take stay on the CPU: said by the shares, and refused where that is not wanted. */
static void the_cpu_behind_is_told(void **state)
{
    (void)state;
    if (!has_openvino)
        skip();
    const weir_setting off = {"cpu_fallback", "off"};
    loaded l = open_client(0);
    assert_ok(load_by(&l, PARTLY, "openvino", NULL, 0));
    weir_model_details info = info_of(&l);
    assert_int_equal(info.share_count, 2);
    assert_int_equal(info.shares[0].parts + info.shares[1].parts, info.shares[0].of);
    assert_true(info.shares[0].parts >= info.shares[1].parts);
    unload_model(&l);
    assert_status(load_by(&l, PARTLY, "openvino", &off, 1), WEIR_ERR_UNSUPPORTED);
    assert_detail("cpu_fallback=off");
    assert_int_equal(live(&l), 0);
    assert_ok(load_by(&l, "mlp", "openvino", &off, 1));
    info = info_of(&l);
    assert_int_equal(info.share_count, 1);
    assert_string_equal(info.shares[0].provider, "openvino");
    unload_model(&l);
    assert_status(load_by(&l, "mlp", "cpu", &off, 1), WEIR_ERR_INVALID);
    close_client(&l);
}

/* The last one, as a library that was opened stays. */
static void a_named_library_serves_all(void **state)
{
    (void)state;
    if (!has_openvino)
        skip();
    char path[512];
    snprintf(path, sizeof path, "%s", provider_named("openvino").library);
    weir_engine_provider stored = provider_named("cpu");
    assert_string_not_equal(stored.library, path);
    assert_ok(weir_option_set("onnxruntime", path));
    assert_string_equal(provider_named("cpu").library, path);
    assert_string_equal(provider_named("openvino").library, path);
    weir_engine_provider cuda = provider_named("cuda");
    assert_int_equal(cuda.state, WEIR_PROVIDER_NOT_BUILT);
    assert_non_null(strstr(cuda.missing, path));
    loaded l = load_model("mlp", NULL);
    assert_string_equal(info_of(&l).version, provider_named("openvino").version);
    unload_model(&l);
    /* Another one is not taken for it. */
    assert_ok(weir_option_set("onnxruntime", stored.library));
    assert_status(load_by(&l, "mlp", "cpu", NULL, 0), WEIR_ERR_CONFLICT);
    assert_detail(path);
    assert_int_equal(provider_named("cpu").state, WEIR_PROVIDER_NO_LIBRARY);
    close_client(&l);
    assert_ok(weir_option_set("onnxruntime", NULL));
    assert_string_equal(provider_named("cpu").library, stored.library);
}

int main(void)
{
    int status = need_onnxruntime();
    if (status)
        return status;
    has_openvino = provider_named("openvino").state == WEIR_PROVIDER_HERE;
    has_cuda = provider_named("cuda").state == WEIR_PROVIDER_HERE;
    has_cuda_build = provider_named("tensorrt").state == WEIR_PROVIDER_NOT_LOADABLE;
    if (!has_openvino || !has_cuda || !has_cuda_build) {
        printf("parts are skipped: %s %s\n", provider_named("openvino").missing, provider_named("cuda").missing);
        if (engines_are_required())
            return 1;
    }
    has_openvino = has_openvino && !SANITIZED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_provider_is_told),
        cmocka_unit_test(what_is_not_built_is_said),
        cmocka_unit_test(what_cannot_be_loaded_is_named),
        cmocka_unit_test(a_conflict_is_an_error),
        cmocka_unit_test(openvino_answers_as_the_cpu),
        cmocka_unit_test(options_reach_openvino),
        cmocka_unit_test(other_providers_get_their_options),
        cmocka_unit_test(a_plan_needs_no_place),
        cmocka_unit_test(cuda_runs_its_share),
        cmocka_unit_test(builds_lie_beside_each_other),
        cmocka_unit_test(shares_are_of_all_nodes),
        cmocka_unit_test(the_cpu_behind_is_told),
        cmocka_unit_test(tensorrt_needs_cuda_too),
        cmocka_unit_test(other_versions_are_found),
        cmocka_unit_test(a_library_says_where_others_are),
        cmocka_unit_test(what_is_no_library_is_not_taken),
        cmocka_unit_test(damaged_libraries_are_answered),
        cmocka_unit_test(what_was_found_is_found_once),
        cmocka_unit_test(what_comes_is_noticed_by_itself),
        cmocka_unit_test(so_many_answers_are_kept),
        cmocka_unit_test(so_many_options_are_taken),
        cmocka_unit_test(a_named_library_serves_all),
        cmocka_unit_test(openvino_answers_as_the_cpu_with_minilm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
