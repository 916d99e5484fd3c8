/* What a provider's library needs of others, and whether they are here: found as the dynamic linker finds them, remembered for a
 * while, and of damaged libraries as well. */
#include "common.h"

#include "test_places.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "onnx/engine/model.h"
#include "onnx/engine/foresee.h"

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

int main(void)
{
    int status = need_onnxruntime();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensorrt_needs_cuda_too),         cmocka_unit_test(other_versions_are_found),
        cmocka_unit_test(a_library_says_where_others_are), cmocka_unit_test(what_is_no_library_is_not_taken),
        cmocka_unit_test(damaged_libraries_are_answered),  cmocka_unit_test(what_was_found_is_found_once),
        cmocka_unit_test(what_comes_is_noticed_by_itself), cmocka_unit_test(so_many_answers_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
