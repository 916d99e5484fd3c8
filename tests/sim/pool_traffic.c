/* Traffic for a simulated pool: files of models and requests, generators, the heap and the link. */
#include "sim/pool/traffic.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char path[] = "/tmp/weir-pool-XXXXXX";

static void put(const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int make(void **state)
{
    (void)state;
    int file = mkstemp(path);
    return file >= 0 ? close(file) : -1;
}

static int destroy(void **state)
{
    (void)state;
    return unlink(path);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void models_are_read(void **state)
{
    (void)state;
    traffic_models m;
    put("# two of them\n\nmodel name=a bytes=3GiB resident=2.5GiB load=1.5s resume=20ms suspend=30ms stays=1MiB "
        "slots=2\n"
        "variant bytes=1GiB context=512 layers=-1\nmodel name=b bytes=5 load=0s pinned no-evict device=3 popular=9 # "
        "so\n");
    assert_int_equal(traffic_models_read(path, &m), WEIR_OK);
    assert_int_equal(m.count, 2);
    assert_int_equal(m.devices, 4);
    const wp_spec *a = &m.list[0].spec, *b = &m.list[1].spec;
    assert_string_equal(a->name, "a");
    assert_int_equal(a->variant_count, 2);
    assert_int_equal(a->variants[0].peak, 3ull << 30);
    assert_int_equal(a->variants[0].resident, 5ull << 29);
    assert_int_equal(a->variants[1].peak, 1ull << 30);
    assert_int_equal(a->variants[1].resident, 1ull << 30);
    assert_int_equal(a->load_time, 1500000000);
    assert_int_equal(a->host, 3ull << 30);
    assert_true(a->can_suspend && a->may_evict && !a->pinned);
    assert_true(!b->can_suspend && !b->may_evict && b->pinned);
    assert_int_equal(a->slots, 2);
    assert_int_equal(m.list[1].popular, 9);
    assert_true(b->keep_alive == WP_FOREVER);
    traffic_models_free(&m);
}

static void bad_models_are_refused_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {{"", "no model"},
               {"\nmodle name=a bytes=1 load=1s\n", "line 2: modle is neither"},
               {"model bytes=1 load=1s\n", "line 1: model without name="},
               {"model name=a load=1s\n", "without bytes="},
               {"model name=a bytes=1\n", "without load="},
               {"model name=a bytes=1 load=1s colour=red\n", "model has no colour"},
               {"model name=a bytes=1 bytes=1 load=1s\n", "bytes comes twice"},
               {"model name=a bytes=0 load=1s\n", "bytes=0 is no such size"},
               {"model name=a bytes=1x load=1s\n", "bytes=1x"},
               {"model name=a bytes=1 load=1\n", "load=1 is no such time"},
               {"model name=a bytes=1 load=-1s\n", "load=-1s"},
               {"model name=a bytes=1 load=1s slots=0\n", "slots=0"},
               {"model name=a bytes=1 load=1s slots=1e3\n", "slots=1e3"},
               {"model name=a bytes=1 load=1s device=8\n", "device=8"},
               {"model name=a bytes=1 load=1s pinned=1\n", "pinned takes no value"},
               {"model name=a bytes=1 load=1s slots\n", "slots= wants a value"},
               {"model name= bytes=1 load=1s\n", "a name has"},
               {"model name=a bytes=1 load=1s resident=2\n", "resident= is more"},
               {"model name=a bytes=1 load=1s resume=1s\n", "go together"},
               {"model name=a bytes=1 load=1s stays=1\n", "are of models with resume="},
               {"model name=a bytes=1 load=1s resume=1s suspend=1s stays=2\n", "stays= is more"},
               {"model name=a bytes=1 load=1s\nmodel name=a bytes=1 load=1s\n", "line 2: there is a model a already"},
               {"variant bytes=1\n", "line 1: a variant belongs to the model above"},
               {"model name=a bytes=1 load=1s\nvariant resident=1\n", "line 2: variant without bytes="},
               {"model name=a\1 bytes=1 load=1s\n", "control character"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        traffic_models m;
        put(bad[i].text);
        assert_int_equal(traffic_models_read(path, &m), WEIR_ERR_INVALID);
        if (!strstr(weir_detail(), bad[i].says))
            fail_msg("\"%s\" says \"%s\", and not \"%s\"", bad[i].text, weir_detail(), bad[i].says);
    }
    traffic_models m;
    assert_int_equal(traffic_models_read("/nowhere/at/all", &m), WEIR_ERR_SYSTEM);
}

static void models_that_are_written_are_read_again(void **state)
{
    (void)state;
    traffic_models m, again;
    assert_int_equal(traffic_models_default(&m), WEIR_OK);
    m.list[2].spec.pinned = true;
    m.list[3].spec.variants[m.list[3].spec.variant_count++] = (wp_variant){7, 5, 128, 3, 4, true, WP_STEP_LAYERS};
    m.devices = 4;
    assert_true(traffic_models_spread(&m, 2));
    assert_int_equal(m.list[1].spec.device, 1);
    assert_int_equal(m.list[1].spec.variants[1].on, 1);
    assert_int_equal(m.list[3].spec.variant_count, 2); /* it says itself where it may be */
    m.list[4].spec.keep_alive = 300 * TRAFFIC_SECOND;
    m.list[5].fails = 6;
    FILE *file = fopen(path, "we");
    traffic_models_write(&m, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(traffic_models_read(path, &again), WEIR_OK);
    assert_int_equal(again.count, m.count);
    for (uint32_t i = 0; i < m.count; i++)
        assert_memory_equal(&again.list[i], &m.list[i], sizeof m.list[i]);
    traffic_models_free(&m);
    traffic_models_free(&again);
}

static void bad_requests_are_refused_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {{"request at=1s model=embed\n", "line 1: request without time="},
               {"ask at=1s model=embed time=1s\n", "ask is no request"},
               {"request at=1s model=nobody time=1s\n", "no model nobody"},
               {"request at=1s model=embed time=1s\n\nrequest at=999ms model=embed time=1s\n", "line 3: at= is before"},
               {"request at=1s model=embed time=2d\n", "time=2d"},
               {"request at=1s model=embed time=1s bytes=-1\n", "bytes=-1"},
               {"request at=1s model=embed time=1s tokens=1\n", "request has no tokens"}};
    traffic_models m;
    assert_int_equal(traffic_models_default(&m), WEIR_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        traffic *from;
        traffic_request q;
        bool got = true;
        weir_status status = WEIR_OK;
        put(bad[i].text);
        assert_int_equal(traffic_open(path, &m, &from), WEIR_OK);
        while (status == WEIR_OK && got)
            status = traffic_next(from, &q, &got);
        assert_int_equal(status, WEIR_ERR_INVALID);
        if (!strstr(weir_detail(), bad[i].says))
            fail_msg("\"%s\" says \"%s\", and not \"%s\"", bad[i].text, weir_detail(), bad[i].says);
        traffic_close(from);
    }
    traffic_models_free(&m);
}

static void times_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t time;
    } good[] = {{"0s", 0},
                {"1ns", 1},
                {"1.5us", 1500},
                {"250ms", 250000000},
                {"5m", 300000000000},
                {"0.000000001s", 1},
                {"2h", 7200000000000},
                {"1d", 86400000000000},
                {"forever", UINT64_MAX}};
    static const char *const bad[] = {"",    "1",   "s",  "1.s", ".5s",           "1.5ns", "-1s",
                                      "+1s", "1 s", "1S", "1w",  "999999999999d", "1s1s"};
    char text[32];
    uint64_t time;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(line_time_read(good[i].text, &time));
        assert_int_equal(time, good[i].time);
        assert_true(line_time_read(line_time_write(time, text, sizeof text), &time));
        assert_int_equal(time, good[i].time);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(line_time_read(bad[i], &time));
}

/* ---- generators -------------------------------------------------------------------------------------------------- */

typedef struct seen {
    uint64_t hash, count, by_model[TRAFFIC_MODELS];
} seen;

static void mix_in(uint64_t *hash, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        *hash = (*hash ^ (value >> 8 * i & 0xff)) * UINT64_C(1099511628211);
}

static seen look_at(traffic_kind kind, uint64_t seed, const traffic_models *m)
{
    traffic_options o = {
        .kind = kind, .seed = seed, .length = TRAFFIC_DAY, .gap = 15 * TRAFFIC_SECOND, .budget = 48ull << 30};
    traffic *from = traffic_generate(&o, m);
    traffic_request q;
    seen all = {.hash = UINT64_C(14695981039346656037)};
    uint64_t last = 0;
    for (bool got = true; assert_int_equal(traffic_next(from, &q, &got), WEIR_OK), got; all.count++) {
        assert_true(q.at >= last && q.at < o.length && q.model < m->count);
        assert_true(q.bytes <= 4 * m->list[q.model].request_bytes && q.duration > 0);
        last = q.at;
        all.by_model[q.model]++;
        mix_in(&all.hash, q.at);
        mix_in(&all.hash, q.duration);
        mix_in(&all.hash, q.bytes);
        mix_in(&all.hash, q.model);
    }
    traffic_close(from);
    return all;
}

/* These numbers are the same on every machine. They change when a generator does, and then figures that were measured
 * with it are no longer comparable. */
static void a_seed_is_one_traffic(void **state)
{
    (void)state;
    static const uint64_t hashes[TRAFFIC_KINDS] = {UINT64_C(0xdcbbe6a53d09d008), UINT64_C(0xa003780912ae9231),
                                                   UINT64_C(0xf5ba92de2b69a227), UINT64_C(0xf4c738e9239fe4ff),
                                                   UINT64_C(0x849adee588ef5181), UINT64_C(0x7cd9729f0801bb14)};
    traffic_models m;
    assert_int_equal(traffic_models_default(&m), WEIR_OK);
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        seen a = look_at((traffic_kind)kind, 1, &m), b = look_at((traffic_kind)kind, 2, &m);
        if (a.hash != hashes[kind])
            fail_msg("%s: 0x%016llx", traffic_kind_name((traffic_kind)kind), (unsigned long long)a.hash);
        assert_true(a.hash != b.hash);
        assert_true(a.count > 4000 && a.count < 8000); /* a day has 5,760 gaps of 15 s */
        assert_int_equal(traffic_kind_called(traffic_kind_name((traffic_kind)kind)), kind);
    }
    traffic_models_free(&m);
}

static void kinds_are_what_they_say(void **state)
{
    (void)state;
    traffic_models m;
    assert_int_equal(traffic_models_default(&m), WEIR_OK);
    seen zipf = look_at(TRAFFIC_ZIPF, 1, &m), scan = look_at(TRAFFIC_SCAN, 1, &m);
    uint64_t most = 0, least = UINT64_MAX;
    for (uint32_t i = 0; i < m.count; i++) {
        most = zipf.by_model[i] > most ? zipf.by_model[i] : most;
        least = zipf.by_model[i] < least ? zipf.by_model[i] : least;
        assert_true(scan.by_model[i] - scan.count / m.count <= 1);
    }
    assert_true(most > 10 * least && most < 20 * least); /* 14 by the rule */
    traffic_models_free(&m);
}

static void requests_that_are_written_are_read_again(void **state)
{
    (void)state;
    traffic_models m;
    assert_int_equal(traffic_models_default(&m), WEIR_OK);
    traffic_options o = {
        .kind = TRAFFIC_MIX, .seed = 3, .length = TRAFFIC_DAY / 24, .gap = TRAFFIC_SECOND, .budget = 48ull << 30};
    traffic *made = traffic_generate(&o, &m), *read;
    traffic_request q, r;
    bool got = true, got_read = true;
    FILE *file = fopen(path, "we");
    while (traffic_next(made, &q, &got) == WEIR_OK && got)
        traffic_request_write(&q, &m, file);
    assert_int_equal(fclose(file), 0);
    traffic_close(made);
    made = traffic_generate(&o, &m);
    assert_int_equal(traffic_open(path, &m, &read), WEIR_OK);
    while (got_read) {
        assert_int_equal(traffic_next(made, &q, &got), WEIR_OK);
        assert_int_equal(traffic_next(read, &r, &got_read), WEIR_OK);
        assert_int_equal(got, got_read);
        assert_true(!got || (q.at == r.at && q.duration == r.duration && q.bytes == r.bytes && q.model == r.model &&
                             q.deadline == r.deadline && q.priority == r.priority));
    }
    traffic_close(made);
    traffic_close(read);
    traffic_models_free(&m);
}

static void logarithms_are_whole_numbers(void **state)
{
    (void)state;
    assert_int_equal(random_log2(UINT64_C(1) << 32), 0);
    assert_int_equal(random_log2(UINT64_C(1) << 31), 1 << 24);
    assert_int_equal(random_log2(1), 32 << 24);
    assert_in_range(random_log2(UINT64_C(3) << 30), 6963173, 6963175); /* 0.4150374993 */
    uint64_t state64 = 5, sum = 0;
    for (int i = 0; i < 100000; i++)
        sum += random_exponential(&state64, 1000);
    assert_in_range(sum, 98500000, 101500000);
}

/* ---- the heap and the link --------------------------------------------------------------------------------------- */

static void the_heap_is_in_order(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t random = 1, last = 0, last_what = 0;
    for (uint64_t i = 0; i < 1000; i++)
        assert_true(heap_put(&h, random_below(&random, 50), i));
    for (int i = 0; i < 1000; i++) {
        uint64_t next = heap_next(&h);
        heap_event e = heap_take(&h);
        assert_int_equal(e.at, next);
        assert_true(e.at > last || (e.at == last && (i == 0 || e.what > last_what)));
        last = e.at;
        last_what = e.what;
    }
    assert_true(heap_next(&h) == UINT64_MAX);
    heap_clear(&h);
}

/* Three transfers of 60, 100 and 30: alone from 0, two from 10, three from 30.
 *   at 10: the first has 50 left; at 30: the first 40, the second 90; then a third of the speed each.
 *   At 120 the third is through: 10 and 60 are left. At 140 the first. The second has 50 left then, and ends at 190. */
static void a_link_is_shared_exactly(void **state)
{
    (void)state;
    static shared_link l;
    uint32_t who;
    assert_true(link_next(&l) == UINT64_MAX);
    assert_true(link_begin(&l, 0, 1, 60));
    assert_int_equal(link_next(&l), 60);
    assert_true(link_begin(&l, 10, 2, 100));
    assert_int_equal(link_next(&l), 110);
    assert_false(link_end(&l, 20, &who));
    assert_true(link_begin(&l, 30, 3, 30));
    assert_int_equal(link_next(&l), 120);
    assert_true(link_end(&l, 120, &who));
    assert_int_equal(who, 3);
    assert_false(link_end(&l, 120, &who));
    assert_int_equal(link_next(&l), 140);
    assert_true(link_end(&l, 140, &who));
    assert_int_equal(who, 1);
    assert_int_equal(link_next(&l), 190);
    assert_true(link_end(&l, 190, &who));
    assert_int_equal(who, 2);
    assert_true(link_next(&l) == UINT64_MAX);
    assert_true(link_begin(&l, 500, 4, 7)); /* what passed while nothing went on counts for nothing */
    assert_int_equal(link_next(&l), 507);
    assert_true(link_end(&l, 507, &who));
    /* Those that began first end first, at one time. Times that are no whole nanoseconds are rounded up. */
    for (uint32_t i = 0; i < 3; i++)
        assert_true(link_begin(&l, 600 + i, i, 10));
    assert_int_equal(link_next(&l), 628); /* 600: 10; 601: 9, 10; 602: 8.5, 9.5, 10; 8.5 * 3 = 25.5 */
    assert_true(link_end(&l, 628, &who));
    assert_int_equal(who, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_read),
        cmocka_unit_test(bad_models_are_refused_by_line),
        cmocka_unit_test(models_that_are_written_are_read_again),
        cmocka_unit_test(bad_requests_are_refused_by_line),
        cmocka_unit_test(times_are_exact),
        cmocka_unit_test(a_seed_is_one_traffic),
        cmocka_unit_test(kinds_are_what_they_say),
        cmocka_unit_test(requests_that_are_written_are_read_again),
        cmocka_unit_test(logarithms_are_whole_numbers),
        cmocka_unit_test(the_heap_is_in_order),
        cmocka_unit_test(a_link_is_shared_exactly),
    };
    return cmocka_run_group_tests_name("pool traffic", tests, make, destroy);
}
