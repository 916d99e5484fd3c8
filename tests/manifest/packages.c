/* Packages: unpacked once for each content, whole or not at all, and nothing of a bad one. */
#include "manifest/disk.h"
#include <weir/manifest.h>
#include "manifest/packing.h"

#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

static const char manifest_text[] =
    "{\"framework\": \"onnx\", \"project_name\": \"p\", \"version\": \"1\", \"model_file\": \"m.onnx\"}";

/* ---- the system, as a test wants it
 * ---------------------------------------------------------------------------------- */

static time_t ahead; /* of the clock */
time_t __real_time(time_t *out);
time_t __wrap_time(time_t *out);

time_t __wrap_time(time_t *out)
{
    time_t now = __real_time(NULL) + ahead;
    if (out)
        *out = now;
    return now;
}

static int begin(void **state)
{
    ahead = 0;
    room_bytes = 0;
    return folder_make(state);
}

/* ---- good ones
 * ------------------------------------------------------------------------------------------------------- */

static char *folder_of(const weir_manifest *m)
{
    char *copy = strdup(m->model_file);
    *strrchr(copy, '/') = '\0';
    return copy;
}

static void a_package_is_unpacked(void **state)
{
    (void)state;
    /* Written in a locale that has these letters, and read in one that has not. */
    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
    packing p = pack_begin("p.aimod");
    pack_entry(&p, "./", AE_IFDIR, NULL, NULL, 0);
    pack_text(&p, "./metadata.json", "{\"model_file\": \"./sub/m.onnx\", \"name\": \"p\"}");
    pack_entry(&p, "sub/", AE_IFDIR, NULL, NULL, 0);
    pack_text(&p, "sub/m.onnx", "\x08\x07 model");
    pack_text(&p, "a/b//./c/weights.data", "weights");
    pack_text(&p, "größe.txt", "");
    pack_end(&p);
    assert_non_null(setlocale(LC_CTYPE, "C"));
    weir_manifest *m;
    ok(read_package("p.aimod", &m));
    assert_string_equal(m->path, "p.aimod");
    assert_string_equal(m->framework, "onnx");
    assert_string_equal(m->name, "p");
    struct stat found;
    assert_int_equal(stat(m->model_file, &found), 0);
    assert_int_equal(found.st_size, 8);
    assert_int_equal(found.st_mode & 0777, 0444);
    char *inside = folder_of(m), path[400];
    snprintf(path, sizeof path, "%s/../a/b/c/weights.data", inside);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_size, 7);
    snprintf(path, sizeof path, "%s/../größe.txt", inside);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(stored(), 1);
    free(inside);
    weir_manifest_destroy(m);
}

/* A mark in the unpacked folder shows whether it is the same one. */
static void a_content_is_unpacked_once(void **state)
{
    (void)state;
    packing p = pack_good("p.aimod", manifest_text);
    pack_end(&p);
    assert_int_equal(system("cp p.aimod copy.aimod"), 0);
    p = pack_good("other.aimod", manifest_text);
    pack_text(&p, "more", "1");
    pack_end(&p);
    weir_manifest *m;
    ok(read_package("p.aimod", &m));
    char *first = folder_of(m), mark[400];
    weir_manifest_destroy(m);
    snprintf(mark, sizeof mark, "%s/mark", first);
    write_text(mark, "");
    room_bytes = 1; /* which is enough for what is there */
    for (int i = 0; i < 2; i++) {
        ok(read_package(i ? "copy.aimod" : "p.aimod", &m));
        char *again = folder_of(m);
        assert_string_equal(again, first);
        assert_int_equal(access(mark, F_OK), 0);
        free(again);
        weir_manifest_destroy(m);
    }
    assert_int_equal(stored(), 1);
    room_bytes = 0;
    ok(read_package("other.aimod", &m));
    assert_int_equal(stored(), 2);
    assert_null(strstr(m->model_file, first));
    free(first);
    weir_manifest_destroy(m);
}

/* The link from the unchanged file to its content is what is followed, and one to a content that is gone is not. */
static void a_known_file_is_not_read_again(void **state)
{
    (void)state;
    packing p = pack_good("p.aimod", manifest_text);
    pack_end(&p);
    weir_manifest *m;
    ok(read_package("p.aimod", &m));
    weir_manifest_destroy(m);
    assert_int_equal(access("store/packages/known", F_OK), -1); /* it might still change within a tick of the clock */
    ahead = 10;
    ok(read_package("p.aimod", &m));
    weir_manifest_destroy(m);
    static const char bend[] =
        "set -e; cd store/packages; test $(ls known | wc -l) = 1; one=$(ls -d [0-9a-f]*);"
        "other=$(echo $one | tr 0123456789abcdef 123456789abcdef0); cp -r $one $other;"
        "echo '{\"model_file\": \"m.onnx\", \"name\": \"bent\"}' >new; mv -f new $other/metadata.json;"
        "ln -sfn $other known/$(ls known)";
    assert_int_equal(system(bend), 0);
    ok(read_package("p.aimod", &m));
    assert_string_equal(m->name, "bent");
    weir_manifest_destroy(m);
    /* The file changes, although it keeps its place, its size and its date. */
    assert_int_equal(system("touch -r p.aimod date; cp p.aimod same; cat same >p.aimod; touch -r date p.aimod"), 0);
    ok(read_package("p.aimod", &m));
    assert_string_equal(m->name, "p");
    weir_manifest_destroy(m);
    assert_int_equal(system("chmod -R u+w store; rm -rf store/packages/[0-9a-f]*"), 0);
    ok(read_package("p.aimod", &m));
    weir_manifest_destroy(m);
}

static void *read_in_thread(void *out)
{
    return read_package("p.aimod", out) == WEIR_OK ? NULL : out;
}

static void many_at_once_get_one_folder(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    packing p = pack_good("p.aimod", manifest_text);
    char *weights = calloc(1, 1 << 20);
    pack_entry(&p, "w", AE_IFREG, NULL, weights, 1 << 20);
    free(weights);
    pack_end(&p);
    pthread_t threads[THREADS];
    weir_manifest *manifests[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_in_thread, &manifests[i]), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_null(bad);
        assert_string_equal(manifests[i]->model_file, manifests[0]->model_file);
    }
    assert_int_equal(stored(), 1);
    for (size_t i = 0; i < THREADS; i++)
        weir_manifest_destroy(manifests[i]);
}

static void what_a_killed_process_left_goes(void **state)
{
    (void)state;
    packing p = pack_good("p.aimod", manifest_text);
    pack_end(&p);
    assert_int_equal(system("mkdir -p store/packages/.new-dead00/deep; echo x >store/packages/.new-dead00/deep/x"), 0);
    weir_manifest *m;
    ok(read_package("p.aimod", &m));
    weir_manifest_destroy(m);
    assert_int_equal(access("store/packages/.new-dead00", F_OK), 0); /* it may be somebody's at work */
    assert_int_equal(system("rm -rf store/packages/[0-9a-f]*"), 0);
    ahead = 3600;
    ok(read_package("p.aimod", &m));
    weir_manifest_destroy(m);
    assert_int_equal(access("store/packages/.new-dead00", F_OK), -1);
}

static void an_empty_store_is_none(void **state)
{
    (void)state;
    packing p = pack_good("e.aimod", "{\"model_file\": \"m.onnx\"}");
    pack_end(&p);
    weir_manifest_options options = WEIR_INIT(weir_manifest_options);
    options.store = "";
    weir_manifest *m = NULL;
    ok(weir_option_set("home", "elsewhere"));
    ok(weir_manifest_read("e.aimod", &options, &m));
    ok(weir_option_set("home", NULL));
    assert_non_null(strstr(m->model_file, "elsewhere/packages/"));
    weir_manifest_destroy(m);
}

static void a_model_may_be_a_folder_inside(void **state)
{
    (void)state;
    static const char *const named[] = {"phi", "phi/", "./phi/genai_config.json"};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        char text[80], path[400];
        struct stat found;
        weir_manifest *m;
        snprintf(text, sizeof text, "{\"model_file\": \"%s\", \"format\": \"genai\"}", named[i]);
        packing p = pack_begin("p.aimod");
        pack_text(&p, "metadata.json", text);
        pack_text(&p, "phi/genai_config.json", "{}");
        pack_text(&p, "phi/model.onnx", "\x08\x07 model");
        pack_end(&p);
        ok(read_package("p.aimod", &m));
        assert_string_equal(m->framework, "llm");
        assert_int_equal(stat(m->model_file, &found), 0);
        assert_true(S_ISDIR(found.st_mode));
        snprintf(path, sizeof path, "%s/model.onnx", m->model_file);
        assert_int_equal(stat(path, &found), 0);
        weir_manifest_destroy(m);
    }
    packing p = pack_good("p.aimod", "{\"model_file\": \"phi\"}");
    pack_text(&p, "phi/model.onnx", "\x08\x07 model");
    pack_end(&p);
    weir_manifest *m;
    fails(WEIR_ERR_INVALID, read_package("p.aimod", &m));
    detail_names("a folder without genai_config.json");
}

static void places_are_of_the_manifest_inside(void **state)
{
    (void)state;
    packing p = pack_good("p.aimod", "{\"model_file\": \"../m.onnx\",\n \"nme\": 1}");
    pack_end(&p);
    weir_manifest_options options = WEIR_INIT(weir_manifest_options);
    options.store = "store";
    weir_manifest_problems *list;
    ok(weir_manifest_check("p.aimod", &options, &list));
    assert_string_equal(list->path, "p.aimod/metadata.json");
    assert_int_equal(list->count, 2);
    assert_non_null(strstr(list->problems[0].text, "leads out of the package"));
    assert_int_equal(list->problems[1].line, 2);
    weir_manifest_problems_destroy(list);
    weir_manifest *m = NULL;
    fails(WEIR_ERR_INVALID, read_package("p.aimod", &m));
    detail_names("p.aimod/metadata.json:1:16");
    detail_names("1 more");
    assert_null(m);
    p = pack_good("absolute.aimod", "{\"model_file\": \"/etc/passwd\"}");
    pack_end(&p);
    fails(WEIR_ERR_INVALID, read_package("absolute.aimod", &m));
    detail_names("leads out of the package");
    p = pack_good("gone.aimod", "{\"model_file\": \"n.onnx\"}");
    pack_end(&p);
    fails(WEIR_ERR_INVALID, read_package("gone.aimod", &m));
    detail_names("there is no \"n.onnx\" in the package");
}

/* ---- bad ones
 * -------------------------------------------------------------------------------------------------------- */

static void is_refused(const char *path, weir_status status, const char *named)
{
    weir_manifest *m = (weir_manifest *)&folder;
    fails(status, read_package(path, &m));
    detail_names(path);
    detail_names(named);
    assert_ptr_equal(m, &folder);
    assert_int_equal(stored(), 0);
}

static void what_leads_elsewhere_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned type;
        const char *link, *named;
    } bad[] = {{"/tmp/weir-escaped", AE_IFREG, NULL, "from the root"},
               {"../escaped", AE_IFREG, NULL, "out of the package"},
               {"a/../../escaped", AE_IFREG, NULL, "out of the package"},
               {"a/..", AE_IFDIR, NULL, "out of the package"},
               {"link", AE_IFLNK, "/etc/passwd", "a link"},
               {"link", AE_IFLNK, "m.onnx", "a link"},
               {"hard", AE_IFREG, "m.onnx", "a link"},
               {"pipe", AE_IFIFO, NULL, "neither a file"},
               {"disk", AE_IFBLK, NULL, "neither a file"},
               {"tty", AE_IFCHR, NULL, "neither a file"},
               {"m.onnx", AE_IFREG, NULL, "twice"},
               {"./m.onnx", AE_IFREG, NULL, "twice"},
               {"m.onnx/x", AE_IFREG, NULL, "in what is a file"},
               {"m.onnx/x/y", AE_IFDIR, NULL, "in what is a file"},
               {".", AE_IFREG, NULL, "without a name"},
               {"a\nb", AE_IFREG, NULL, "control characters"},
               {"1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17", AE_IFREG, NULL, "too long"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        packing p = pack_good("bad.aimod", manifest_text);
        pack_entry(&p, bad[i].name, bad[i].type, bad[i].link, NULL, 0);
        pack_end(&p);
        is_refused("bad.aimod", WEIR_ERR_CORRUPT, bad[i].named);
    }
    assert_int_equal(access("escaped", F_OK), -1);
    assert_int_equal(access("store/escaped", F_OK), -1);
    assert_int_equal(access("store/packages/escaped", F_OK), -1);
    assert_int_equal(access("/tmp/weir-escaped", F_OK), -1);
}

static void what_is_no_package_is_refused(void **state)
{
    (void)state;
    write_text("empty.aimod", "");
    write_text("text.aimod", "this is some text that is long enough to be looked at");
    write_bytes("head.aimod", "\x1f\x8b\x08\x00", 4);
    packing p = pack_begin("bare.aimod");
    pack_text(&p, "m.onnx", "\x08\x07");
    pack_end(&p);
    p = pack_begin("folder.aimod");
    pack_entry(&p, "metadata.json", AE_IFDIR, NULL, NULL, 0);
    pack_end(&p);
    p = pack_begin("nothing.aimod");
    pack_end(&p);
    p = pack_begin_as("plain.aimod", false);
    pack_text(&p, "metadata.json", manifest_text);
    pack_end(&p);
    p = pack_good("whole.aimod", manifest_text);
    pack_end(&p);
    assert_int_equal(system("head -c 120 whole.aimod >half.aimod; gzip -c whole.aimod >twice.aimod"), 0);
    for (size_t i = 0; i < 7; i++)
        is_refused((const char *const[]){"empty.aimod", "text.aimod", "head.aimod", "nothing.aimod", "plain.aimod",
                                         "half.aimod", "twice.aimod"}[i],
                   WEIR_ERR_CORRUPT, "no whole gzip tar");
    is_refused("bare.aimod", WEIR_ERR_CORRUPT, "no metadata.json");
    is_refused("folder.aimod", WEIR_ERR_CORRUPT, "no metadata.json");
}

/* Every byte of a package, changed: it is read or refused, and what is left of it is a folder or nothing. */
static void damaged_packages_do_no_harm(void **state)
{
    (void)state;
    packing p = pack_good("p.aimod", manifest_text);
    pack_end(&p);
    FILE *file = fopen("p.aimod", "rb");
    unsigned char bytes[4096];
    size_t length = fread(bytes, 1, sizeof bytes, file), good = 0;
    fclose(file);
    assert_in_range(length, 100, sizeof bytes - 1);
    for (size_t i = 0; i < length; i++) {
        bytes[i] ^= 0x11;
        write_bytes("damaged.aimod", bytes, length);
        bytes[i] ^= 0x11;
        weir_manifest *m = NULL;
        weir_status status = read_package("damaged.aimod", &m);
        assert_true(status == WEIR_OK || status == WEIR_ERR_CORRUPT || status == WEIR_ERR_INVALID ||
                    status == WEIR_ERR_SYSTEM);
        good += status == WEIR_OK;
        weir_manifest_destroy(m);
        assert_int_equal(access("escaped", F_OK), -1);
    }
    assert_in_range(stored(), good, length);
    assert_int_equal(system("test -z \"$(ls -A store/packages | grep new)\""), 0);
}

/* Bytes that do not compress, pseudorandom, to be freed. */
static char *noise(size_t length)
{
    char *bytes = malloc(length);
    unsigned number = 1;
    for (size_t i = 0; i < length; i++)
        bytes[i] = (char)((number = number * 1664525 + 1013904223) >> 24);
    return bytes;
}

/* Weights lie in a package as they are: that one of their bytes is another only the sum at the end of the file
 * shows. */
static void a_changed_weight_is_found(void **state)
{
    (void)state;
    char *bytes = noise(1 << 20), path[400];
    packing p = pack_good("p.aimod", manifest_text);
    pack_entry(&p, "w", AE_IFREG, NULL, bytes, 1 << 20);
    pack_end(&p);
    assert_int_equal(system("cp p.aimod changed.aimod; cp p.aimod cut.aimod; truncate -s -4 cut.aimod"), 0);
    FILE *file = fopen("changed.aimod", "r+b");
    assert_int_equal(fseek(file, 1 << 19, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, 1 << 19, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    fclose(file);
    is_refused("changed.aimod", WEIR_ERR_CORRUPT, "incorrect data check");
    is_refused("cut.aimod", WEIR_ERR_CORRUPT, "unexpected end of file");
    weir_manifest *m;
    ok(read_package("p.aimod", &m));
    char *inside = folder_of(m), *read = malloc(1 << 20);
    snprintf(path, sizeof path, "%s/w", inside);
    file = fopen(path, "rb");
    assert_int_equal(fread(read, 1, 1 << 20, file), 1 << 20);
    fclose(file);
    assert_memory_equal(read, bytes, 1 << 20);
    free(read);
    free(inside);
    free(bytes);
    weir_manifest_destroy(m);
}

static void bombs_are_refused(void **state)
{
    (void)state;
    enum { MANY = 80 << 20 };
    char *zeros = calloc(1, MANY);
    assert_non_null(zeros);
    packing p = pack_good("bomb.aimod", manifest_text);
    pack_entry(&p, "zeros", AE_IFREG, NULL, zeros, MANY);
    pack_end(&p);
    is_refused("bomb.aimod", WEIR_ERR_CORRUPT, "unpacked_limit");

    /* One that says that it is small. */
    FILE *file = fopen("bomb.aimod", "r+b");
    assert_int_equal(fseek(file, -4, SEEK_END), 0);
    assert_int_equal(fwrite("\0\0\1\0", 1, 4, file), 4);
    fclose(file);
    is_refused("bomb.aimod", WEIR_ERR_CORRUPT, "unpacked_limit");

    /* One behind the end of the tar. */
    p = pack_good("behind.aimod", manifest_text);
    pack_end(&p);
    assert_int_equal(system("head -c 83886080 /dev/zero | gzip -c >>behind.aimod"), 0);
    is_refused("behind.aimod", WEIR_ERR_CORRUPT, "far too much behind it");

    /* And one that may be so large. */
    p = pack_good("large.aimod", manifest_text);
    pack_entry(&p, "zeros", AE_IFREG, NULL, zeros, MANY);
    pack_end(&p);
    free(zeros);
    weir_manifest_options options = WEIR_INIT(weir_manifest_options);
    options.store = "store";
    options.unpacked_limit = MANY + 1000;
    weir_manifest *m;
    ok(weir_manifest_read("large.aimod", &options, &m));
    weir_manifest_destroy(m);
}

/* A sparse entry (GNU tar's old format) that says it has 1000 bytes, with a block of it 80 MiB further on. */
static void holes_beyond_the_size_are_refused(void **state)
{
    (void)state;
    enum { SPARSE = 386, REAL_SIZE = 483, SUM = 148, BLOCK = 512 };
    char header[2 * BLOCK] = "w";
    unsigned sum = 8 * ' ';
    snprintf(header + 100, 8, "%07o", 0644u);
    snprintf(header + 124, 12, "%011o", (unsigned)BLOCK);
    header[156] = 'S';
    memcpy(header + 257, "ustar  ", 8);
    snprintf(header + SPARSE, 12, "%011o", 80u << 20);
    snprintf(header + SPARSE + 12, 12, "%011o", (unsigned)BLOCK);
    snprintf(header + REAL_SIZE, 12, "%011o", 1000u);
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)header[i];
    snprintf(header + SUM, 8, "%06o", sum);
    header[SUM + 7] = ' ';
    write_bytes("sparse", header, sizeof header);
    packing p = pack_begin_as("tar", false);
    pack_text(&p, "metadata.json", manifest_text);
    pack_text(&p, "m.onnx", "\x08\x07 model");
    pack_end(&p);
    assert_int_equal(system("cat sparse tar | gzip -c >sparse.aimod"), 0);
    is_refused("sparse.aimod", WEIR_ERR_CORRUPT, "\"w\", with more bytes than it says");
}

/* Many small ones are as much as a large one. */
static void the_limit_is_of_the_whole(void **state)
{
    (void)state;
    char bytes[400] = {0};
    packing p = pack_good("p.aimod", manifest_text);
    for (int i = 0; i < 3; i++)
        pack_entry(&p, (const char *const[]){"a", "b", "c"}[i], AE_IFREG, NULL, bytes, sizeof bytes);
    pack_end(&p);
    weir_manifest_options options = WEIR_INIT(weir_manifest_options);
    options.store = "store";
    options.unpacked_limit = 1200;
    weir_manifest *m = NULL;
    fails(WEIR_ERR_CORRUPT, weir_manifest_read("p.aimod", &options, &m));
    detail_names("1.2 KiB");
    assert_int_equal(stored(), 0);
    options.unpacked_limit = 1400;
    ok(weir_manifest_read("p.aimod", &options, &m));
    weir_manifest_destroy(m);
}

static void endless_entries_are_refused(void **state)
{
    (void)state;
    packing p = pack_good("many.aimod", manifest_text);
    for (int i = 0; i < 10000; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        pack_text(&p, name, "");
    }
    pack_end(&p);
    is_refused("many.aimod", WEIR_ERR_CORRUPT, "10000");
}

static void there_has_to_be_room(void **state)
{
    (void)state;
    char *bytes = noise(1 << 20);
    packing p = pack_good("p.aimod", manifest_text);
    pack_entry(&p, "w", AE_IFREG, NULL, bytes, 1 << 20);
    pack_end(&p);
    free(bytes);
    room_bytes = 1 << 20;
    is_refused("p.aimod", WEIR_ERR_SYSTEM, "no room on the disk");
    detail_names("1 MiB free");
    room_bytes = 2 << 20;
    weir_manifest *m;
    ok(read_package("p.aimod", &m));
    weir_manifest_destroy(m);
}

/* The disk fails in the middle. */
static void a_write_that_fails_leaves_nothing(void **state)
{
    (void)state;
    packing p = pack_good("p.aimod", manifest_text);
    char *zeros = calloc(1, 1 << 20);
    pack_entry(&p, "w", AE_IFREG, NULL, zeros, 1 << 20);
    free(zeros);
    pack_end(&p);
    struct rlimit before, little = {.rlim_cur = 512 << 10};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little.rlim_max = before.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    weir_manifest *m = NULL;
    weir_status status = read_package("p.aimod", &m);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, WEIR_ERR_SYSTEM);
    detail_names("cannot unpack \"w\"");
    assert_int_equal(stored(), 0);
    write_text("file", "");
    weir_manifest_options options = WEIR_INIT(weir_manifest_options);
    options.store = "file";
    fails(WEIR_ERR_SYSTEM, weir_manifest_read("p.aimod", &options, &m));
    detail_names("file/packages");
    assert_null(m);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, folder_remove)
    const struct CMUnitTest tests[] = {
        TEST(a_package_is_unpacked),
        TEST(a_content_is_unpacked_once),
        TEST(a_known_file_is_not_read_again),
        TEST(many_at_once_get_one_folder),
        TEST(what_a_killed_process_left_goes),
        TEST(an_empty_store_is_none),
        TEST(a_model_may_be_a_folder_inside),
        TEST(places_are_of_the_manifest_inside),
        TEST(what_leads_elsewhere_is_refused),
        TEST(what_is_no_package_is_refused),
        TEST(damaged_packages_do_no_harm),
        TEST(a_changed_weight_is_found),
        TEST(bombs_are_refused),
        TEST(holes_beyond_the_size_are_refused),
        TEST(the_limit_is_of_the_whole),
        TEST(endless_entries_are_refused),
        TEST(there_has_to_be_room),
        TEST(a_write_that_fails_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
