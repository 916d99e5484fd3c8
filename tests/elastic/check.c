/* weir_elastic_check over a driver whose unused pages share one piece of memory, whatever its granule: a write to any of
 * them is found, and no piece of it is copied twice. The driver is the host's with another granule and other covers. */
#include "elastic/elastic.h"

#include "runtime/runtime.h"

#include <sys/mman.h>
#include <sys/resource.h>

enum { PIECE = 2 << 20 };

static uint64_t granule;
static int file = -1; /* of one piece */
static atomic_long copied;

static uint64_t s_granule(wi_device *device)
{
    (void)device;
    return granule;
}

static weir_status s_uncover(wi_device *device, void *address, uint64_t bytes)
{
    (void)device;
    return mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED
               ? weir_fail(WEIR_ERR_DRIVER, "addresses cannot be uncovered")
               : WEIR_OK;
}

static weir_status s_cover(wi_device *device, void *address, uint64_t bytes)
{
    char *at = address, *end = at + bytes;
    (void)device;
    for (uint64_t length; at < end; at += length) {
        uint64_t inside = (uintptr_t)at % PIECE;
        length = PIECE - inside < (uint64_t)(end - at) ? PIECE - inside : (uint64_t)(end - at);
        if (mmap(at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, (off_t)inside) == MAP_FAILED)
            return weir_fail(WEIR_ERR_DRIVER, "addresses cannot be covered");
    }
    return WEIR_OK;
}

static weir_status s_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    atomic_fetch_add(&copied, (long)bytes);
    return wi_host_driver.copy(device, to, from, bytes, stream);
}

static wi_driver sharing(uint64_t bytes)
{
    wi_driver d = wi_host_driver;
    granule = bytes;
    d.granule = s_granule;
    d.cover = s_cover;
    d.uncover = s_uncover;
    d.copy = s_copy;
    d.drop = NULL;
    d.written = NULL;
    file = memfd_create("test", MFD_CLOEXEC);
    assert_true(file >= 0 && ftruncate(file, PIECE) == 0);
    return d;
}

/* Writes to one byte of each page in turn; `there` are committed: what is written there is no mistake. */
static void try_all(weir_elastic *e, const bool *there)
{
    weir_elastic_stats s = stats_of(e);
    for (size_t i = 0; i < s.bytes / s.page; i++) {
        char *at = (char *)s.base + i * s.page + i * 37 % s.page;
        *at = 0x42;
        if (there[i]) {
            ok(weir_elastic_check(e));
        } else {
            fails(WEIR_ERR_CORRUPT, weir_elastic_check(e));
            detail_names("0x42");
        }
        *at = 0;
    }
    copied = 0;
    ok(weir_elastic_check(e));
    assert_true(copied <= PIECE);
}

static void every_page_is_seen(void **state)
{
    enum { MOST = 515 };
    static const struct {
        size_t granule, page;
    } tries[] = {{4096, 0}, {4096, 16384}, {16384, 0}, {65536, 0}, {65536, 131072}};
    (void)state;
    for (size_t k = 0; k < sizeof tries / sizeof tries[0]; k++) {
        static wi_driver driver;
        static bool there[MOST];
        driver = sharing(tries[k].granule);
        weir_runtime_options options = {.struct_size = sizeof options, .budget = 512 * MIB};
        weir_runtime *runtime;
        weir_elastic *e;
        ok(wi_runtime_create_over(&driver, 0, &options, &runtime));
        weir_client *client = open_client(runtime, "one", 0, 0);
        size_t page = tries[k].page ? tries[k].page : tries[k].granule, pages = PIECE / page + 3;
        weir_elastic_options o = {.struct_size = sizeof o, .bytes = pages * page, .page = page};
        ok(weir_elastic_create(client, &o, &e));
        assert_int_equal(stats_of(e).page, page);
        memset(there, 0, sizeof there);
        try_all(e, there);
        for (size_t i = 0; i < pages; i += 3) { /* two unused ones between each, and more at the end */
            if (i > 300)
                break;
            ok(weir_elastic_commit(e, i * page, page, WEIR_STREAM_HOST));
            there[i] = true;
        }
        try_all(e, there);
        ok(weir_elastic_commit(e, 0, (pages - 1) * page, WEIR_STREAM_HOST)); /* one is left */
        ok(weir_elastic_release(e, (pages - 1) * page, page, WEIR_STREAM_HOST));
        memset(there, 1, pages - 1);
        there[pages - 1] = false;
        try_all(e, there);
        char *last = (char *)stats_of(e).base + (pages - 1) * page;
        memset(last, 0x42, page); /* not a byte of it is right */
        fails(WEIR_ERR_CORRUPT, weir_elastic_check(e));
        detail_names("at byte 0 ");
        memset(last, 0, page);
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
        ok(weir_client_destroy(client));
        ok(weir_runtime_destroy(runtime));
        close(file);
    }
}

/* Pages that have been touched in the block. */
static size_t touched(const weir_elastic_stats *s)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = s->bytes / page, there = 0;
    unsigned char *pages = malloc(count);
    assert_int_equal(mincore(s->base, s->bytes, pages), 0);
    for (size_t i = 0; i < count; i++)
        there += pages[i] & 1;
    free(pages);
    return there;
}

/* A process that has no file descriptor left finds what was written, and touches nothing. */
static void a_check_without_file_descriptors(void **state)
{
    (void)state;
    struct rlimit before, none;
    weir_runtime *runtime = make_runtime(64 * MIB);
    weir_client *client = open_client(runtime, "one", 0, 0);
    weir_elastic_options o = {.struct_size = sizeof o, .bytes = 64 * MIB};
    weir_elastic *e;
    ok(weir_elastic_create(client, &o, &e));
    ok(weir_elastic_commit(e, 0, GRANULE, WEIR_STREAM_HOST));
    weir_elastic_stats s = stats_of(e);
    char *at = (char *)s.base + 32 * MIB + 5;
    size_t there = touched(&s);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    weir_status clean = weir_elastic_check(e);
    size_t after = touched(&s);
    *at = 0x42;
    weir_status written = weir_elastic_check(e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    ok(clean);
    assert_int_equal(after, there);
    assert_int_equal(written, WEIR_ERR_CORRUPT);
    detail_names("0x42");
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_page_is_seen),
        cmocka_unit_test(a_check_without_file_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
