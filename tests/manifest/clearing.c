/* Unpacked packages are cleared away by age and bytes, never under somebody who uses them, in however many
 * processes. */
#include "manifest/disk.h"
#include <weir/manifest.h>
#include "manifest/packing.h"

#include "test_places.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#define DAY UINT64_C(86400)

static bool vanishes; /* what is to be used, just before it is */

int __real_flock(int file, int operation);
int __wrap_flock(int file, int operation);
int __wrap_flock(int file, int operation)
{
    if (vanishes && operation == LOCK_SH) {
        vanishes = false;
        assert_int_equal(system("rm -rf store/packages/[0-9a-f]*"), 0);
    }
    return __real_flock(file, operation);
}

static int begin(void **state)
{
    room_bytes = 0;
    room_now = NULL;
    vanishes = false;
    return folder_make(state);
}

/* A package whose files have `bytes` together, and nothing is like it. */
static void make_package(const char *path, size_t bytes)
{
    char text[64];
    packing p = pack_begin(path);
    int length = snprintf(text, sizeof text, "{\"model_file\": \"m.onnx\", \"name\": \"%.16s\"}", path);
    pack_text(&p, "metadata.json", text);
    pack_text(&p, "m.onnx", "\x08\x07");
    assert_true(bytes > (size_t)length + 2);
    char *zeros = calloc(1, bytes);
    pack_entry(&p, "deep/er/w", AE_IFREG, NULL, zeros, bytes - (size_t)length - 2);
    free(zeros);
    pack_end(&p);
}

static weir_manifest *unpack(const char *path)
{
    weir_manifest *m = NULL;
    ok(read_package(path, &m));
    return m;
}

/* The folder that a model lies in, without what stands before it: to be freed. */
static char *folder_of(const weir_manifest *m)
{
    char *copy = strdup(m->model_file);
    *strrchr(copy, '/') = '\0';
    return copy;
}

/* Unpacked, not in use, and used last so many days ago. */
static char *unpacked(const char *path, size_t bytes, unsigned days)
{
    char command[400];
    make_package(path, bytes);
    weir_manifest *m = unpack(path);
    char *inside = folder_of(m);
    weir_manifest_destroy(m);
    snprintf(command, sizeof command, "touch -d '-%u days' %s", days, inside);
    assert_int_equal(system(command), 0);
    return inside;
}

static bool is_there(const char *inside)
{
    return access(inside, F_OK) == 0;
}

static weir_manifest_cleared clear(uint64_t bytes, uint64_t seconds)
{
    weir_manifest_options options = WEIR_INIT(weir_manifest_options);
    weir_manifest_cleared cleared = WEIR_INIT(weir_manifest_cleared);
    options.store = "store";
    ok(weir_manifest_clear(&options, bytes, seconds, &cleared));
    return cleared;
}

static void is_cleared(weir_manifest_cleared found, size_t cleared, uint64_t cleared_bytes, size_t kept,
                       uint64_t kept_bytes, size_t in_use)
{
    assert_int_equal(found.cleared, cleared);
    assert_int_equal(found.cleared_bytes, cleared_bytes);
    assert_int_equal(found.kept, kept);
    assert_int_equal(found.kept_bytes, kept_bytes);
    assert_int_equal(found.in_use, in_use);
    assert_int_equal(stored(), kept);
}

/* The oldest goes first, and what is too old whatever the bytes. */
static void by_age_and_bytes(void **state)
{
    (void)state;
    char *old = unpacked("old.aimod", 1000, 20), *middle = unpacked("middle.aimod", 2000, 10);
    char *fresh = unpacked("fresh.aimod", 4000, 1);
    is_cleared(clear(7000, 30 * DAY), 0, 0, 3, 7000, 0);
    is_cleared(clear(6999, 30 * DAY), 1, 1000, 2, 6000, 0);
    assert_false(is_there(old));
    is_cleared(clear(UINT64_MAX, 5 * DAY), 1, 2000, 1, 4000, 0);
    assert_true(!is_there(middle) && is_there(fresh));
    is_cleared(clear(0, UINT64_MAX), 1, 4000, 0, 0, 0);
    is_cleared(clear(0, 0), 0, 0, 0, 0, 0);
    weir_manifest_destroy(unpack("old.aimod")); /* again */
    assert_true(is_there(old));
    free(old);
    free(middle);
    free(fresh);
}

/* What a manifest is of stays, with all its files, until it is released; its age counts from then. */
static void what_is_in_use_stays(void **state)
{
    (void)state;
    char *old = unpacked("old.aimod", 1000, 20), *other = unpacked("other.aimod", 2000, 10), command[400];
    weir_manifest *m = unpack("old.aimod"), *again = unpack("old.aimod");
    snprintf(command, sizeof command, "touch -d '-20 days' %s", old);
    assert_int_equal(system(command), 0);
    is_cleared(clear(0, 0), 1, 2000, 1, 1000, 1);
    assert_false(is_there(other));
    weir_manifest_destroy(again);
    is_cleared(clear(0, 0), 0, 0, 1, 1000, 1);
    assert_int_equal(access(m->model_file, R_OK), 0);
    weir_manifest_destroy(m);
    is_cleared(clear(UINT64_MAX, DAY), 0, 0, 1, 1000, 0);
    is_cleared(clear(0, UINT64_MAX), 1, 1000, 0, 0, 0);
    free(old);
    free(other);
}

/* Found, and cleared by another process before this one uses it: it is unpacked once more. */
static void what_vanishes_is_unpacked_again(void **state)
{
    (void)state;
    char *inside = unpacked("p.aimod", 1000, 1);
    vanishes = true;
    weir_manifest *m = unpack("p.aimod");
    assert_false(vanishes);
    assert_int_equal(access(m->model_file, R_OK), 0);
    is_cleared(clear(0, 0), 0, 0, 1, 1000, 1);
    weir_manifest_destroy(m);
    free(inside);
}

/* Used in another process, it stays, too; killed, that process uses nothing any more. */
static void another_process_uses_it(void **state)
{
    (void)state;
    int ends[2];
    char byte = 0;
    make_package("p.aimod", 1000);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) { /* a program of its own, as a child of fork has no weir */
        const char *command = built_path("tests/test-manifest-clearing");
        dup2(ends[1], 1);
        execl(command, command, "use", "p.aimod", (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'u');
    is_cleared(clear(0, 0), 0, 0, 1, 1000, 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ends[0]);
    is_cleared(clear(0, 0), 1, 1000, 0, 0, 0);
}

/* The options bound what is there when something is unpacked, what comes included. */
static void the_options_bound_the_store(void **state)
{
    (void)state;
    char *old = unpacked("old.aimod", 300000, 20), *middle = unpacked("middle.aimod", 300000, 10);
    ok(weir_option_set("unpacked", "700k"));
    char *fresh = unpacked("fresh.aimod", 300000, 1);
    assert_true(!is_there(old) && is_there(middle) && is_there(fresh));
    ok(weir_option_set("unpacked", NULL));
    ok(weir_option_set("unpacked_age", "5d"));
    char *last = unpacked("last.aimod", 1000, 0);
    assert_true(!is_there(middle) && is_there(fresh) && is_there(last));
    ok(weir_option_set("unpacked_age", NULL));
    ok(weir_option_set("unpacked", "0"));
    weir_manifest *m = unpack("old.aimod"); /* which is kept as long as it is in use */
    assert_true(is_there(old) && !is_there(fresh) && !is_there(last));
    ok(weir_option_set("unpacked", NULL));
    weir_manifest_destroy(m);
    free(old);
    free(middle);
    free(fresh);
    free(last);
}

enum { ONE = 40000, DISK = 140000 };

/* What is being unpacked has its room. */
static uint64_t room_beside_packages(void)
{
    bool coming = system("ls -d store/packages/.new-* >/dev/null 2>&1") == 0;
    return DISK - (uint64_t)ONE * (uint64_t)(stored() - coming);
}

/* Where there is no room, the oldest make it that nobody uses, and no more of them than it takes. */
static void a_full_disk_clears(void **state)
{
    (void)state;
    char *used = unpacked("used.aimod", ONE, 30), *old = unpacked("old.aimod", ONE, 20);
    char *middle = unpacked("middle.aimod", ONE, 10);
    weir_manifest *m = unpack("used.aimod");
    assert_int_equal(system("touch -d '-30 days' store/packages/*"), 0); /* as a use is the newest there is */
    char command[400];
    snprintf(command, sizeof command, "touch -d '-10 days' %s", middle);
    assert_int_equal(system(command), 0);
    room_now = room_beside_packages;
    char *fresh = unpacked("fresh.aimod", ONE, 0);
    assert_true(is_there(used) && !is_there(old) && is_there(middle) && is_there(fresh));
    weir_manifest_destroy(m);
    free(used);
    free(old);
    free(middle);
    free(fresh);
}

/* What is refused all the same has cleared nothing: where there would not be room enough, and where it is no good. */
static void what_is_refused_clears_nothing(void **state)
{
    (void)state;
    char *idle = unpacked("idle.aimod", ONE, 20), *used = unpacked("used.aimod", 2 * ONE, 10);
    weir_manifest *m = unpack("used.aimod"), *none = NULL;
    make_package("p.aimod", 2 * ONE);
    room_bytes = 50; /* what is used would have to go, too */
    fails(WEIR_ERR_SYSTEM, read_package("p.aimod", &none));
    detail_names("no room on the disk");
    assert_true(is_there(idle) && is_there(used));
    room_bytes = 0;
    assert_int_equal(system("truncate -s -9 p.aimod"), 0);
    ok(weir_option_set("unpacked", "1k"));
    fails(WEIR_ERR_CORRUPT, read_package("p.aimod", &none));
    assert_true(is_there(idle) && is_there(used));
    assert_int_equal(stored(), 2);
    make_package("p.aimod", 2 * ONE);
    ok(read_package("p.aimod", &none));
    assert_true(!is_there(idle) && is_there(used));
    ok(weir_option_set("unpacked", NULL));
    weir_manifest_destroy(none);
    weir_manifest_destroy(m);
    free(idle);
    free(used);
}

/* Links to known contents go with them; what is no package, or is being unpacked, is nobody's to clear here. */
static void what_is_not_cleared(void **state)
{
    (void)state;
    char *one = unpacked("p.aimod", 1000, 0);
    free(one);
    assert_int_equal(
        system("mkdir -p store/packages/known store/packages/.new-atwork store/packages/mine;"
               "ln -s $(ls store/packages | grep -v known | grep -v mine | head -1) store/packages/known/1;"
               "echo text >store/packages/note"),
        0);
    weir_manifest_cleared cleared = clear(0, 0);
    assert_int_equal(cleared.cleared, 1);
    assert_int_equal(
        system("cd store/packages && test -d .new-atwork && test -d mine && test -f note && test -z \"$(ls known)\""),
        0);
    weir_manifest_options options = WEIR_INIT(weir_manifest_options);
    fails(WEIR_ERR_INVALID, weir_manifest_clear(&options, 0, 0, NULL));
    cleared.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_manifest_clear(&options, 0, 0, &cleared));
    struct {
        weir_manifest_options options;
        uint64_t later; /* a member of a later version */
    } newer = {.options = {.struct_size = sizeof newer}, .later = 1};
    cleared = WEIR_INIT(weir_manifest_cleared);
    fails(WEIR_ERR_UNSUPPORTED, weir_manifest_clear(&newer.options, 0, 0, &cleared));
    weir_manifest *read;
    fails(WEIR_ERR_UNSUPPORTED, weir_manifest_read("file", &newer.options, &read));
    write_text("file", "");
    options.store = "file";
    cleared = WEIR_INIT(weir_manifest_cleared);
    fails(WEIR_ERR_SYSTEM, weir_manifest_clear(&options, 0, 0, &cleared));
    assert_int_equal(cleared.struct_size, sizeof cleared);
    options.store = "/sys/store"; /* that it is not there is not why it cannot be made */
    fails(WEIR_ERR_SYSTEM, weir_manifest_clear(&options, 0, 0, &cleared));
    assert_null(strstr(weir_detail(), "No such file"));
}

/* Some processes read what others clear away: each that reads has a whole package for as long as it holds it. */
static void readers_and_clearers_at_once(void **state)
{
    (void)state;
    enum { READERS = 3, CLEARERS = 2 };
    const char *command = built_path("tests/test-manifest-clearing");
    pid_t children[READERS + CLEARERS];
    make_package("p.aimod", 30000);
    for (int i = 0; i < READERS + CLEARERS; i++)
        if ((children[i] = fork()) == 0) {
            execl(command, command, i < READERS ? "read" : "clear", "p.aimod", (char *)NULL);
            _exit(1);
        }
    for (int i = 0; i < READERS + CLEARERS; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(system("test -z \"$(ls -A store/packages | grep new)\""), 0);
}

/* ---- what other processes do
 * ----------------------------------------------------------------------------------------- */

static int use(const char *path)
{
    weir_manifest *m = NULL;
    if (read_package(path, &m) != WEIR_OK || write(1, "u", 1) != 1)
        return 1;
    (void)alarm(60); /* should nobody end it */
    for (;;)
        pause();
}

static int read_often(const char *path)
{
    for (int i = 0; i < 60; i++) {
        weir_manifest *m = NULL;
        struct stat found;
        char weights[500];
        weir_status status = read_package(path, &m);
        if (status == WEIR_ERR_BUSY)
            continue;
        if (status != WEIR_OK) {
            fprintf(stderr, "%s\n", weir_detail());
            return 1;
        }
        usleep(1000);
        snprintf(weights, sizeof weights, "%.*s/deep/er/w", (int)(strrchr(m->model_file, '/') - m->model_file),
                 m->model_file);
        if (stat(weights, &found) != 0 || found.st_size < 20000)
            return 2;
        weir_manifest_destroy(m);
    }
    return 0;
}

static int clear_often(void)
{
    weir_manifest_options options = WEIR_INIT(weir_manifest_options);
    options.store = "store";
    for (int i = 0; i < 200; i++) {
        weir_manifest_cleared one = WEIR_INIT(weir_manifest_cleared);
        if (weir_manifest_clear(&options, 0, 0, &one) != WEIR_OK)
            return 1;
        usleep(500);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return strcmp(argv[1], "use") == 0    ? use(argv[2])
               : strcmp(argv[1], "read") == 0 ? read_often(argv[2])
                                              : clear_often();
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, folder_remove)
    const struct CMUnitTest tests[] = {
        TEST(by_age_and_bytes),
        TEST(what_is_in_use_stays),
        TEST(what_vanishes_is_unpacked_again),
        TEST(another_process_uses_it),
        TEST(the_options_bound_the_store),
        TEST(a_full_disk_clears),
        TEST(what_is_refused_clears_nothing),
        TEST(what_is_not_cleared),
        TEST(readers_and_clearers_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
