/* Elastic blocks of the host and the mappings of the process, of which the kernel allows it some tens of thousands: a block
 * is one, whatever is committed in it. And what weir does while others have used them up. */
#include "elastic/elastic.h"

#include <sys/mman.h>

enum { FEW = 16 };

static size_t mappings(void)
{
    size_t count = 0;
    int c;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while ((c = getc(maps)) != EOF)
        count += c == '\n';
    (void)fclose(maps);
    return count;
}

static void few_more_than(size_t before)
{
    size_t now = mappings();
    if (now > before + FEW)
        fail_msg("%zu mappings, and %zu before", now, before);
}

static fixture *begin(size_t pages)
{
    static fixture f;
    static unsigned char bytes[GRANULE];
    f = (fixture){.page = GRANULE, .bytes = bytes};
    f.runtime = make_runtime(pages * GRANULE);
    f.client = open_client(f.runtime, "one", 0, 0);
    return &f;
}

static void end(fixture *f)
{
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
}

static void addresses_are_one_mapping(void **state)
{
    (void)state;
    fixture *f = begin(16);
    weir_elastic *e[3];
    ok(try_create(f->client, 1, false, &e[0]));
    size_t before = mappings();
    ok(try_create(f->client, 120 * 1024 * MIB, false, &e[1]));
    few_more_than(before);
    ok(try_create(f->client, 200 * 1024 * MIB, false, &e[2]));
    few_more_than(before);
    size_t last = stats_of(e[2]).bytes / GRANULE - 1;
    commit(f, e[2], last, 1);
    write_page(f, e[2], last, 7);
    page_holds(f, e[2], last, 7);
    page_holds(f, e[2], last - 1, 0);
    page_holds(f, e[1], last / 3, 0);
    for (int i = 0; i < 3; i++)
        ok(weir_elastic_destroy(e[i], WEIR_STREAM_HOST));
    end(f);
}

/* Every second page, then every fourth of them back, then all the others between them. */
static void pages_take_no_mappings_wherever_they_lie(void **state)
{
    enum { PAGES = 512 };
    (void)state;
    fixture *f = begin(PAGES);
    weir_elastic *e = create(f, PAGES, false), *second = create(f, PAGES, false);
    size_t before = mappings();
    for (size_t i = 0; i < PAGES; i += 2) {
        commit(f, e, i, 1);
        write_page(f, e, i, (uint8_t)(i / 2 + 1));
    }
    commit(f, second, 3, 2);
    write_page(f, second, 4, 77);
    few_more_than(before);
    for (size_t i = 0; i < PAGES; i += 4)
        release(f, e, i, 1, WEIR_STREAM_HOST);
    pages_are(f, e, PAGES / 4, 0);
    for (size_t i = 1; i < PAGES; i += 2)
        page_holds(f, e, i, 0);
    for (size_t i = 0; i < PAGES; i += 2)
        page_holds(f, e, i, i % 4 ? (uint8_t)(i / 2 + 1) : 0);
    commit(f, e, 0, PAGES / 2);
    page_holds(f, e, 4, 0); /* committed again */
    page_holds(f, e, 6, 4);
    page_holds(f, second, 4, 77);
    few_more_than(before);
    ok(weir_elastic_check(e));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    page_holds(f, second, 4, 77);
    ok(weir_elastic_destroy(second, WEIR_STREAM_HOST));
    few_more_than(before - FEW);
    end(f);
}

static size_t resident(const char *start, size_t bytes)
{
    static unsigned char found[64 * GRANULE / 4096];
    size_t count = 0, pages = bytes / (size_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(mincore((void *)(uintptr_t)start, bytes, found), 0);
    for (size_t i = 0; i < pages; i++)
        count += found[i] & 1;
    return count * (size_t)sysconf(_SC_PAGESIZE);
}

/* No huge page lies over a page and its neighbours, and zeros over the whole block bring nothing. */
static void memory_comes_by_the_page_alone(void **state)
{
    (void)state;
    fixture *f = begin(64);
    weir_elastic *e = create(f, 64, false);
    const char *base = stats_of(e).base;
    char mark = 9;
    commit(f, e, 3, 1);
    write_page(f, e, 3, 5);
    assert_int_equal(resident(base, 64 * GRANULE), GRANULE);
    ok(weir_copy(f->runtime, page_at(f, e, 40) + 4096, &mark, 1, WEIR_STREAM_HOST));
    assert_true(resident(base + 40 * GRANULE, GRANULE) > 0); /* what is written to unused pages takes memory … */
    ok(weir_fill(f->runtime, page_at(f, e, 0) + 100, 0, 64 * GRANULE - 200, WEIR_STREAM_HOST));
    assert_int_equal(resident(base + 40 * GRANULE, GRANULE), 0); /* … until zeros are */
    page_holds(f, e, 3, 0);
    page_holds(f, e, 40, 0);
    commit(f, e, 40, 1);
    write_page(f, e, 40, 6);
    release(f, e, 40, 1, WEIR_STREAM_HOST);
    assert_int_equal(resident(base + 40 * GRANULE, GRANULE), 0);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    end(f);
}

/* A write to any unused page is found, and says where it is. */
static void a_check_sees_every_page(void **state)
{
    enum { PAGES = 100 };
    (void)state;
    fixture *f = begin(PAGES);
    weir_elastic *e = create(f, PAGES, false);
    commit(f, e, 50, 1);
    write_page(f, e, 50, 1);
    for (size_t i = 0; i < PAGES; i++) {
        char *at = page_at(f, e, i) + 7 + i * 631, was = i == 50 ? 1 : 0;
        *at = 0x42;
        if (i == 50) {
            ok(weir_elastic_check(e));
        } else {
            fails(WEIR_ERR_CORRUPT, weir_elastic_check(e));
            detail_names("0x42");
        }
        *at = was;
        ok(weir_elastic_check(e));
    }
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    end(f);
}

/* Others' mappings ------------------------------------------------------------------------------------------------- */

typedef struct others {
    char *pages; /* every second page has another protection */
    size_t count, page;
} others;

/* Makes so many that `left` remain for the process. */
static others make_others(size_t left)
{
    others o = {.page = (size_t)sysconf(_SC_PAGESIZE)};
    unsigned long most = 65530;
    FILE *limit = fopen("/proc/sys/vm/max_map_count", "r");
    if (limit && fscanf(limit, "%lu", &most) != 1)
        most = 65530;
    if (limit)
        (void)fclose(limit);
    if (most > 300000)
        skip(); /* the system allows more than a test should make */
    o.count = most - left - mappings();
    o.pages = mmap(NULL, o.count * o.page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(o.pages, MAP_FAILED);
    for (size_t i = 1; i < o.count; i += 2)
        if (mprotect(o.pages + i * o.page, o.page, PROT_READ) != 0)
            break;
    return o;
}

static void end_others(others *o)
{
    assert_int_equal(munmap(o->pages, o->count * o->page), 0);
}

/* Weir counts the process's mappings once in a while; afterwards it knows. */
static void let_weir_notice(fixture *f)
{
    enum { SOME = 600 };
    weir_elastic *e;
    for (size_t i = 0; i < SOME && try_create(f->client, GRANULE, false, &e) == WEIR_OK; i++)
        ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
}

static void *nothing(void *user)
{
    return user;
}

static void the_process_still_works(void)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, nothing, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    void *large = malloc(64 * MIB);
    assert_non_null(large);
    free(large);
}

/* A thousand are left, which weir leaves to the others. Pages come and go all the same, as they need none. */
static void growth_is_refused_early_and_in_words(void **state)
{
    (void)state;
    fixture *f = begin(64);
    weir_elastic *e = create(f, 32, false), *late;
    void *p, *none;
    others o = make_others(1000);
    let_weir_notice(f);
    for (size_t i = 0; i < 32; i += 2)
        commit(f, e, i, 1);
    for (int promised = 0; promised < 2; promised++) {
        fails(WEIR_ERR_OUT_OF_MEMORY, try_create(f->client, 8 * GRANULE, promised, &late));
        assert_null(late);
        detail_names("vm.max_map_count");
        weir_refusal r = last_refusal();
        assert_int_equal(r.cause, WEIR_CAUSE_ADDRESS_RANGE);
        assert_int_equal(r.requested, 8 * GRANULE);
        assert_int_equal(r.current, 16 * GRANULE); /* without the promise that the refused block had by then */
        assert_int_equal(r.remaining, 48 * GRANULE);
        assert_true(r.needed == UINT64_MAX);
    }
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->client, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &none));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_ADDRESS_RANGE);
    detail_names("vm.max_map_count");
    snapshot now = take_snapshot(f->runtime);
    assert_int_equal(now.device.live, before.device.live);
    assert_int_equal(now.device.promised, 0);
    the_process_still_works();
    release(f, e, 4, 20, WEIR_STREAM_HOST);
    pages_are(f, e, 6, 0);
    commit(f, e, 0, 32);
    pages_are(f, e, 32, 0);
    end_others(&o);
    ok(weir_alloc(f->client, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &p));
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    ok(try_create(f->client, 8 * GRANULE, true, &late));
    ok(weir_elastic_destroy(late, WEIR_STREAM_HOST));
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    end(f);
}

static void is_for_want_of_mappings(void)
{
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_ADDRESS_RANGE);
    assert_true(last_refusal().needed == UINT64_MAX);
    detail_names("vm.max_map_count");
}

/* A client's memory cannot come back for want of them, and comes when there are some. */
static void a_resume_tells_of_mappings(void **state)
{
    (void)state;
    fixture *f = begin(64);
    char *p[2];
    for (int i = 0; i < 2; i++) {
        p[i] = allocate(f->client, 8 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        memset(p[i], i + 1, 8 * GRANULE);
    }
    ok(weir_client_suspend(f->client, NULL, NULL));
    ok(weir_runtime_trim(f->runtime, NULL, NULL));
    assert_int_equal(take_snapshot(f->runtime).device.held, 0);
    others o = make_others(1000);
    let_weir_notice(f);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_resume(f->client, WEIR_STREAM_HOST));
    is_for_want_of_mappings();
    end_others(&o);
    ok(weir_client_resume(f->client, WEIR_STREAM_HOST));
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < 8 * GRANULE; k += 1000)
            assert_int_equal(p[i][k], i + 1);
        ok(weir_free(f->client, p[i], WEIR_STREAM_HOST));
    }
    end(f);
}

/* Nothing is left: what is given back needs no mapping to go. */
static void memory_is_given_back_without_any_mapping_left(void **state)
{
    (void)state;
    fixture *f = begin(64);
    weir_elastic *e = create(f, 16, false);
    void *blocks[16];
    weir_trim_report report = WEIR_INIT(weir_trim_report);
    for (size_t i = 0; i < 16; i++) {
        blocks[i] = allocate(f->client, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        memset(blocks[i], 1, GRANULE);
    }
    commit(f, e, 0, 8);
    write_page(f, e, 1, 1);
    others o = make_others(0);
    for (size_t i = 1; i < 16; i += 2) /* holes between live ones */
        ok(weir_free(f->client, blocks[i], WEIR_STREAM_HOST));
    ok(weir_runtime_trim(f->runtime, NULL, &report));
    assert_int_equal(take_snapshot(f->runtime).device.held, 16 * GRANULE);
    release(f, e, 1, 3, WEIR_STREAM_HOST);
    pages_are(f, e, 5, 0);
    page_holds(f, e, 1, 0);
    commit(f, e, 2, 1);
    page_holds(f, e, 2, 0);
    ok(weir_elastic_destroy(e, WEIR_STREAM_HOST));
    for (size_t i = 0; i < 16; i += 2)
        ok(weir_free(f->client, blocks[i], WEIR_STREAM_HOST));
    ok(weir_runtime_trim(f->runtime, NULL, NULL));
    assert_int_equal(take_snapshot(f->runtime).device.held, 0);
    end_others(&o);
    blocks[0] = allocate(f->client, 16 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    memset(blocks[0], 1, 16 * GRANULE);
    ok(weir_free(f->client, blocks[0], WEIR_STREAM_HOST));
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_one_mapping),
        cmocka_unit_test(pages_take_no_mappings_wherever_they_lie),
        cmocka_unit_test(memory_comes_by_the_page_alone),
        cmocka_unit_test(a_check_sees_every_page),
        cmocka_unit_test(growth_is_refused_early_and_in_words),
        cmocka_unit_test(a_resume_tells_of_mappings),
        cmocka_unit_test(memory_is_given_back_without_any_mapping_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
