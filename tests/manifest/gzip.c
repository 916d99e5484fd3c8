/* Gzip files as packages come in: of several members, with something behind their end, beyond what 32 bits of length
 * tell. */
#include "manifest/package.h"
#include <weir/manifest.h>
#include "manifest/disk.h"
#include "manifest/packing.h"

#include <fcntl.h>

#define GIB (UINT64_C(1) << 30)

/* A tar with a manifest, a model, and 1 MiB that does not compress. */
static int begin(void **state)
{
    enum { LENGTH = 1 << 20 };
    int answer = folder_make(state);
    room_bytes = 0;
    char *bytes = malloc(LENGTH);
    unsigned number = 1;
    for (size_t i = 0; i < LENGTH; i++)
        bytes[i] = (char)((number = number * 1664525 + 1013904223) >> 24);
    packing p = pack_begin_as("tar", false);
    pack_text(&p, "metadata.json", "{\"model_file\": \"m.onnx\"}");
    pack_text(&p, "m.onnx", "\x08\x07 model");
    pack_entry(&p, "w", AE_IFREG, NULL, bytes, LENGTH);
    pack_end(&p);
    free(bytes);
    return answer;
}

static void made_by(const char *commands)
{
    assert_int_equal(system(commands), 0);
}

static void reads(const char *path)
{
    weir_manifest *m = NULL;
    ok(read_package(path, &m));
    struct stat found;
    char weights[500];
    snprintf(weights, sizeof weights, "%.*sw", (int)(strrchr(m->model_file, '/') + 1 - m->model_file), m->model_file);
    assert_int_equal(stat(weights, &found), 0);
    assert_int_equal(found.st_size, 1 << 20);
    weir_manifest_destroy(m);
}

static void is_refused(const char *path, weir_status status, const char *named)
{
    weir_manifest *m = NULL;
    fails(status, read_package(path, &m));
    detail_names(path);
    detail_names(named);
    assert_int_equal(stored(), 0);
}

/* Members are one file after the other, and no more room is asked for than all of them take. */
static void several_members(void **state)
{
    (void)state;
    made_by("head -c 600000 tar | gzip -c >several.aimod; tail -c +600001 tar | head -c 100 | gzip -c >>several.aimod;"
            "gzip -c </dev/null >>several.aimod; tail -c +600101 tar | gzip -c >>several.aimod");
    room_bytes = 3 << 20;
    reads("several.aimod");
}

static void a_bad_member(void **state)
{
    (void)state;
    made_by("head -c 600000 tar | gzip -c >first; tail -c +600001 tar | gzip -c >second;"
            "(cat first; head -c -5 second) >cut.aimod; (cat first; head -c -8 second; head -c 8 first) >sum.aimod;"
            "(cat first; head -c 1 second) >one.aimod");
    is_refused("cut.aimod", WEIR_ERR_CORRUPT, "unexpected end of file");
    is_refused("sum.aimod", WEIR_ERR_CORRUPT, "incorrect data check");
    is_refused("one.aimod", WEIR_ERR_CORRUPT, "unexpected end of file");
}

/* Zeros are what tapes and disks fill up with; other bytes are nobody's. */
static void what_is_behind_the_end(void **state)
{
    (void)state;
    made_by("gzip -c tar >good; (cat good; head -c 300000 /dev/zero) >padded.aimod; (cat good; echo more) >more.aimod;"
            "(cat good; printf '\\0\\0more') >hidden.aimod; (cat good; printf '\\0'; cat good) >apart.aimod;"
            "(cat good; printf '\\037\\213more than that') >almost.aimod");
    is_refused("more.aimod", WEIR_ERR_CORRUPT, "bytes behind its end");
    is_refused("hidden.aimod", WEIR_ERR_CORRUPT, "bytes behind its end");
    is_refused("apart.aimod", WEIR_ERR_CORRUPT, "bytes behind its end");
    is_refused("almost.aimod", WEIR_ERR_CORRUPT, "no whole gzip tar");
    reads("padded.aimod");
}

static uint64_t expected_of(uint64_t bytes, uint64_t unpacked)
{
    unsigned char end[4];
    for (size_t i = 0; i < sizeof end; i++)
        end[i] = (unsigned char)(unpacked >> 8 * i);
    wi_package package = {
        .path = "large", .file = open("large", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), .bytes = bytes};
    assert_true(package.file >= 0);
    assert_int_equal(pwrite(package.file, "\x1f\x8b", 2, 0), 2);
    assert_int_equal(pwrite(package.file, end, sizeof end, (off_t)bytes - 4), 4);
    uint64_t answer = wi_package_expected(&package);
    close(package.file);
    assert_int_equal(remove("large"), 0);
    return answer;
}

/* The file's last four bytes are a length modulo 2^32, of its last member: never is more expected than there must
 * be. */
static void lengths_beyond_32_bits(void **state)
{
    (void)state;
    assert_int_equal(expected_of(1000, 5000), 5000);
    assert_in_range(expected_of(5 * GIB, 6 * GIB), 4 * GIB, 5 * GIB);       /* says 2 GiB */
    assert_in_range(expected_of(5 * GIB, 5 * GIB), 4 * GIB, 5 * GIB);       /* says 1 GiB */
    assert_in_range(expected_of(100 << 20, 50 << 20), 50 << 20, 100 << 20); /* of several members */
    assert_in_range(expected_of(1000, 4 * GIB - 1), 0, 1000);               /* which 1000 bytes cannot become */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, folder_remove)
    const struct CMUnitTest tests[] = {
        TEST(several_members),
        TEST(a_bad_member),
        TEST(what_is_behind_the_end),
        TEST(lengths_beyond_32_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
