/* Traces as operations: what readers take, what they leave out and say so, and that no bytes bring them down. */
#include "../core/core.h"
#include <weir/trace.h>

#include "cli/replay/replay.h"
#include "trace/recording.h"

#include <zlib.h>

static char path[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/weir-replay-%d", (int)getpid());
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove(path);
}

static void store(const void *at, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(at, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static wi_replay_plan load(const char *text)
{
    wi_replay_plan plan;
    store(text, strlen(text));
    ok(wi_replay_load(path, &plan));
    return plan;
}

static void check_op(const wi_replay_plan *plan, size_t at, bool frees, uint64_t bytes, uint32_t slot, uint16_t stream)
{
    assert_in_range(at, 0, plan->count - 1);
    assert_int_equal(plan->ops[at].frees, frees);
    assert_int_equal(plan->ops[at].bytes, bytes);
    assert_int_equal(plan->ops[at].slot, slot);
    assert_int_equal(plan->ops[at].stream, stream);
}

static void check_problem(const wi_replay_plan *plan, size_t at, uint64_t line, const char *word)
{
    assert_in_range(at, 0, plan->problem_count - 1);
    assert_int_equal(plan->problems[at].line, line);
    if (!strstr(plan->problems[at].what, word))
        fail_msg("line %d: %s", (int)line, plan->problems[at].what);
}

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"

static void test_rows(void **state)
{
    (void)state;
    wi_replay_plan plan = load(HEADER "1,00:00:00.000001,allocate,0x100,10,0\n"
                                      "2,00:00:00.000002,allocate,0x200,20,0x7fe0\n"
                                      "1,00:00:00.000003,free,0x100,10,32736\n" /* 0x7fe0 */
                                      "1,00:00:00.000004,allocate failure,0x0,99,0\n"
                                      "1,00:00:00.000005,allocate,0x300,30,(nil)\n"
                                      "\n"
                                      "1,00:00:00.000006,free,0x200,0,0\r\n"
                                      "1,00:00:00.000007,allocate,768,0,0");
    assert_int_equal(plan.problem_count, 1);
    check_problem(&plan, 0, 9, "live"); /* 768 is 0x300 */
    assert_int_equal(plan.count, 5);
    check_op(&plan, 0, false, 10, 0, 0);
    check_op(&plan, 1, false, 20, 1, 1);
    check_op(&plan, 2, true, 10, 0, 1);
    check_op(&plan, 3, false, 30, 0, 0); /* the place of 0x100 */
    check_op(&plan, 4, true, 20, 1, 0);
    assert_int_equal(plan.peak, 50);
    assert_int_equal(plan.slots, 2);
    assert_int_equal(plan.streams, 2);
    assert_int_equal(plan.host_stream, WI_REPLAY_NO_STREAM);
    assert_int_equal(plan.refused, 1);
    assert_int_equal(plan.left_count, 1);
    assert_int_equal(plan.left[0], 3);
    assert_false(plan.cut);
    wi_replay_plan_clear(&plan);
}

static void test_refusals_and_empty_rows(void **state)
{
    (void)state;
    wi_replay_plan plan = load(HEADER "1,00:00:00.000001,allocate,(nil),0,0\n"
                                      "1,00:00:00.000002,allocate,0x100,10,0\n"
                                      "1,00:00:00.000003,allocate failure,,99,0x1\n"
                                      "1,00:00:00.000004,allocate failure,(nil),1152921504606846976,0\n"
                                      "1,00:00:00.000005,allocate failure,0x0,18446744073709551615,0\n"
                                      "1,00:00:00.000006,free,(nil),0,0\n"
                                      "1,00:00:00.000007,free,0x0,0,(nil)\n"
                                      "1,00:00:00.000008,allocate failure,,,0\n"   /* 9 */
                                      "1,00:00:00.000009,allocate failure,x,5,0\n" /* 10 */
                                      "1,00:00:00.000010,allocate,,5,0\n"          /* 11 */
                                      "1,00:00:00.000011,free,,5,0\n"              /* 12 */
                                      "1,00:00:00.000012,free,0x100,10,0\n");
    assert_int_equal(plan.refused, 3);
    assert_int_equal(plan.empty, 3);
    assert_int_equal(plan.problem_count, 4);
    check_problem(&plan, 0, 9, "size");
    check_problem(&plan, 1, 10, "pointer");
    check_problem(&plan, 2, 11, "pointer");
    check_problem(&plan, 3, 12, "pointer");
    assert_int_equal(plan.count, 2);
    assert_int_equal(plan.lines[0], 3);
    assert_int_equal(plan.lines[1], 13);
    wi_replay_plan_clear(&plan);
}

static void test_columns_in_any_order(void **state)
{
    (void)state;
    wi_replay_plan plan = load("\xef\xbb\xbf size , \"Stream\",POINTER,Remark,action\n"
                               "10,0x5,0x100,\"a, \"\"b\"\"\",allocate\n"
                               " 10 ,5,0x100,,free\n");
    assert_int_equal(plan.problem_count, 0);
    assert_int_equal(plan.count, 2);
    check_op(&plan, 1, true, 10, 0, 0);
    wi_replay_plan_clear(&plan);
}

static void test_malformed_rows(void **state)
{
    (void)state;
    wi_replay_plan plan = load(HEADER "1,00:00:00.0,allocate,0x100,10,0\n"                   /* 2 */
                                      "1,00:00:00.0,free,0x900,10,0\n"                       /* 3 */
                                      "1,00:00:00.0,allocate,0x100,10,0\n"                   /* 4 */
                                      "1,00:00:00.0,allocate,0x200,18446744073709551616,0\n" /* 5 */
                                      "1,00:00:00.0,allocate,0x200,18446744073709551615,0\n" /* 6 */
                                      "1,00:00:00.0,allocate,0x200,-1,0\n"                   /* 7 */
                                      "1,00:00:00.0,allocate,200g,1,0\n"                     /* 8 */
                                      "1,00:00:00.0,allocate,0x,1,0\n"                       /* 9 */
                                      "1,00:00:00.0,allocate,0x200,1,s\n"                    /* 10 */
                                      "1,00:00:00.0,allocated,0x200,1,0\n"                   /* 11 */
                                      "1,25:00:00.0,allocate,0x200,1,0\n"                    /* 12 */
                                      "1,00:00:00.0,allocate,0x200,1\n"                      /* 13 */
                                      "1,00:00:00.0,allocate,0x200,1,0,0\n"                  /* 14 */
                                      "1,00:00:00.0,allocate,\"0x200,1,0\n"                  /* 15 */
                                      "1,00:00:00.0,free,0x100,10,0\n"                       /* 16 */
                                      "1,00:00:00.0,free,0x100,10,0\n"                       /* 17 */
                                      "1,00:00:00.0,allocate,0x0,10,0\n"                     /* 18 */
                                      "1,00:00:00.0,free,0x0,0,0\n"); /* 19: nothing, and right */
    static const char *const words[] = {"not live", "live",   "size", "device", "size", "pointer", "pointer",
                                        "stream",   "action", "time", "fewer",  "more", "quotes"};
    assert_int_equal(plan.problem_count, 15);
    assert_int_equal(plan.count, 2);
    for (size_t i = 0; i < plan.problem_count; i++) {
        bool found = false;
        for (size_t k = 0; k < plan.problem_count; k++) {
            uint64_t line = plan.problems[k].line;
            found |= i < 13 && line == i + 3 && strstr(plan.problems[k].what, words[i]) != NULL;
            found |= i >= 13 && line == i + 4;
        }
        if (!found)
            fail_msg("line %d is not among the problems", (int)i + 3);
    }
    wi_replay_plan_clear(&plan);
}

static void test_no_trace(void **state)
{
    (void)state;
    wi_replay_plan plan;
    static const char *const texts[] = {"",
                                        "\n",
                                        "Thread,Time,Action,Pointer,Size\n",
                                        "some text\n",
                                        "{}",
                                        "\"",
                                        ",,,\n",
                                        HEADER,
                                        (HEADER "what?\n"),
                                        (HEADER "1,00:00:00,free,0x100,1,0\n")};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        store(texts[i], strlen(texts[i]));
        fails(WEIR_ERR_CORRUPT, wi_replay_load(path, &plan));
        assert_null(plan.ops);
    }
    store(texts[2], strlen(texts[2]));
    fails(WEIR_ERR_CORRUPT, wi_replay_load(path, &plan));
    detail_names("missing: Stream");
    fails(WEIR_ERR_SYSTEM, wi_replay_load("/nonexistent/trace", &plan));
    fails(WEIR_ERR_SYSTEM, wi_replay_load("/", &plan));
    detail_names("/");
    static const struct {
        const char *bytes;
        size_t count;
        const char *said;
    } others[] = {{"", 0, "is missing"},
                  {"PK\x03\x04 0 0", 8, "zip"},
                  {"\xff\xfeT\0h\0", 6, "UTF-16"},
                  {"a\0b\n", 4, "is no text"},
                  {"{\"traces\": []}\n", 15, "missing: Action, Pointer, Size, Stream"},
                  {"Thread,Time,Action,Pointer,Size,Stream\r1,00:00:00,allocate,1,1,1\r", 65, "CR alone"},
                  {"\x1f\x8b\x08\x00", 4, "is missing"}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        store(others[i].bytes, others[i].count);
        if (wi_replay_load(path, &plan) == WEIR_OK)
            fail_msg("file %d was read", (int)i);
        detail_names(others[i].said);
        detail_names(path);
    }
    store("Size,Action,Stream,Pointer,SIZE\n", 32);
    fails(WEIR_ERR_CORRUPT, wi_replay_load(path, &plan));
    detail_names("two columns are called Size");
}

/* Order ------------------------------------------------------------------------------------------------------------ */

static void test_times_that_go_back(void **state)
{
    (void)state;
    wi_replay_plan plan = load(HEADER "1,00:00:01.000000,allocate,0x100,10,0\n" /* thread 1's part of the file */
                                      "1,00:00:03.000000,free,0x100,10,0\n"
                                      "2,00:00:02.000000,allocate,0x200,20,0\n" /* and thread 2's */
                                      "2,00:00:03.000000,free,0x200,20,0\n"
                                      "2,00:00:04:000000,allocate,0x100,40,0\n");
    assert_int_equal(plan.problem_count, 0);
    check_op(&plan, 0, false, 10, 0, 0);
    check_op(&plan, 1, false, 20, 1, 0);
    check_op(&plan, 2, true, 10, 0, 0); /* equal times: as in the file */
    check_op(&plan, 3, true, 20, 1, 0);
    check_op(&plan, 4, false, 40, 1, 0);
    assert_int_equal(plan.peak, 40);
    wi_replay_plan_clear(&plan);
}

static void test_midnight(void **state)
{
    (void)state;
    wi_replay_plan plan = load(HEADER "1,23:59:59.900000,allocate,0x100,10,0\n"
                                      "1,00:00:00.100000,free,0x100,10,0\n"
                                      "2,23:59:59.950000,allocate,0x200,20,0\n"
                                      "2,00:00:00.200000,free,0x200,20,0\n");
    assert_int_equal(plan.problem_count, 0);
    check_op(&plan, 1, false, 20, 1, 0);
    check_op(&plan, 2, true, 10, 0, 0);
    check_op(&plan, 3, true, 20, 1, 0);
    wi_replay_plan_clear(&plan);
}

static void test_times_that_are_none(void **state)
{
    (void)state;
    static const char *const times[] = {"",
                                        "now",
                                        "24:00:00",
                                        "1:60:00",
                                        "1:00:61",
                                        "1:00",
                                        "1:00:00 PM",
                                        "1:00:00Z",
                                        "-1",
                                        "1e5",
                                        "1.5.2",
                                        "0x10",
                                        "28.11.2026",
                                        "2026-11-28",
                                        "2026-13-01 1:00:00",
                                        "2026-11-32 1:00:00",
                                        "1969-01-01 1:00:00",
                                        "2026-11/28 1:00:00",
                                        "26-11-28 1:00:00",
                                        "2026-11-28 1:00:00+25",
                                        "2026-11-28 1:00:00+1:00x",
                                        "2026-11-28 1.5",
                                        "18446744073709551616",
                                        "99999999999999999999999999.5",
                                        "1:00:00.5x"};
    enum { COUNT = sizeof times / sizeof times[0] };
    for (size_t i = 0; i < COUNT; i++) {
        char text[512];
        wi_replay_plan plan;
        snprintf(text, sizeof text, HEADER "1,%s,allocate,0x100,10,0\n1,%s,free,0x100,10,0\n", times[i], times[i]);
        store(text, strlen(text));
        if (wi_replay_load(path, &plan) == WEIR_OK)
            fail_msg("'%s' was read", times[i]);
        detail_names("2 lines were left out; the first, line 2: a time that is none");
        detail_names("hh:mm:ss");
        snprintf(text, sizeof text, HEADER "1,%s,allocate,0x100,10,0\n1,1:00:00,allocate,0x200,10,0\n", times[i]);
        plan = load(text);
        check_problem(&plan, 0, 2, "time");
        assert_int_equal(plan.count, 1);
        wi_replay_plan_clear(&plan);
    }
}

/* The day of a log goes on past midnight and past noon. */
static void test_past_noon(void **state)
{
    (void)state;
#define SHORT_HEADER "Time,Action,Pointer,Size,Stream\n"
    static const char *const logs[] = {
        HEADER "1,23:00:00,allocate,0x100,10,0\n1,00:30:00,free,0x100,10,0\n1,13:00:00,allocate,0x100,20,0\n",
        HEADER "1,21:00:00,allocate,0x100,10,0\n1,09:30:00,free,0x100,10,0\n1,09:31:00,allocate,0x100,20,0\n",
        HEADER "1,21:00:00,allocate,0x100,10,0\n2,09:30:00,free,0x100,10,0\n3,09:31:00,allocate,0x100,20,0\n",
        HEADER "1,02:55:00,allocate,0x100,10,0\n1,02:05:00,free,0x100,10,0\n1,02:06:00,allocate,0x100,20,0\n",
        HEADER "1,23:00:00,allocate,0x100,10,0\n2,12:00:00,free,0x100,10,0\n1,22:00:00,allocate,0x100,20,0\n",
        SHORT_HEADER "23:00:00,allocate,0x100,10,0\n00:30:00,free,0x100,10,0\n13:00:00,allocate,0x100,20,0\n"};
    for (size_t i = 0; i < sizeof logs / sizeof logs[0]; i++) {
        wi_replay_plan plan = load(logs[i]);
        recording all;
        assert_int_equal(plan.problem_count, 0);
        check_op(&plan, 0, false, 10, 0, 0);
        check_op(&plan, 1, true, 10, 0, 0);
        check_op(&plan, 2, false, 20, 0, 0);
        wi_replay_plan_clear(&plan);
        ok(recording_load(path, RECORDING_NO_DEVICE, &all));
        assert_int_equal(all.count, 3);
        assert_int_equal(all.problem_count, 0);
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(all.events[k].action, k == 1 ? WEIR_ACTION_DEALLOCATE : WEIR_ACTION_ALLOCATE);
            assert_true(k == 0 || all.events[k].nanoseconds >= all.events[k - 1].nanoseconds);
        }
        recording_clear(&all);
    }
}

static void test_weirs_order(void **state)
{
    (void)state;
    wi_replay_plan plan =
        load("Thread,Time,Action,Pointer,Size,Stream,Client,Class,Tag,Order,Nanoseconds\n"
             "1,00:00:09.0,allocate,0x100,10,0,\"a, b\",weights,,1,9\n"
             "2,00:00:01.0,free,0x100,10,5,a,weights,,3,1\n" /* times are of no interest beside the order */
             "2,00:00:02.0,allocate,0x200,20,5,a,kv,\"t\"\"ag\",2,2\n"
             "2,00:00:02.0,allocate,0x300,20,5,a,butter,,4,2\n");
    assert_int_equal(plan.problem_count, 1);
    check_problem(&plan, 0, 5, "class");
    check_op(&plan, 0, false, 10, 0, 0);
    check_op(&plan, 1, false, 20, 1, 1);
    check_op(&plan, 2, true, 10, 0, 1);
    assert_int_equal(plan.ops[0].memory_class, WEIR_CLASS_WEIGHTS);
    assert_int_equal(plan.ops[1].memory_class, WEIR_CLASS_KV);
    assert_int_equal(plan.host_stream, 0); /* weir's stream 0 is the host; RMM's is a stream */
    wi_replay_plan_clear(&plan);
}

static void test_too_many_streams(void **state)
{
    (void)state;
    char *text = malloc(100000);
    size_t used = (size_t)sprintf(text, HEADER);
    for (int i = 0; i <= WI_REPLAY_STREAMS; i++)
        used += (size_t)sprintf(text + used, "1,00:00:00,allocate,0x%x,1,%d\n", 256 * (i + 1), i);
    store(text, used);
    wi_replay_plan plan;
    fails(WEIR_ERR_UNSUPPORTED, wi_replay_load(path, &plan));
    detail_names("more than 1000 streams");
    free(text);
}

/* Names ------------------------------------------------------------------------------------------------------------ */

/* Two clients with one name, three tags, and a row without either. */
static void test_names_of_what_is_left(void **state)
{
    (void)state;
    wi_replay_plan plan = load("Thread,Time,Action,Pointer,Size,Stream,Client,Class,Tag,Order,Nanoseconds\n"
                               "1,00:00:00.0,allocate,0x100,10,0,a,kv,one,1,1\n"
                               "2,00:00:00.0,allocate,0x200,20,0,a,kv,two,2,2\n"
                               "1,00:00:00.0,free,0x100,10,0,a,kv,one,3,3\n"
                               "3,00:00:00.0,allocate,0x100,30,0,b,weights,\"thr,ee\",4,4\n"
                               "3,00:00:00.0,allocate,0x300,40,0,,other,,5,5\n");
    static const struct {
        uint64_t bytes;
        const char *client, *tag;
    } wanted[] = {{20, "a", "two"}, {30, "b", "thr,ee"}, {40, "", ""}};
    assert_int_equal(plan.left_count, 3);
    for (size_t i = 0; i < 3; i++) {
        size_t k = 0;
        while (k < 2 && plan.ops[plan.left[i]].bytes != wanted[k].bytes)
            k++;
        assert_int_equal(plan.ops[plan.left[i]].bytes, wanted[k].bytes);
        assert_string_equal(plan.left_names[i].client, wanted[k].client);
        assert_string_equal(plan.left_names[i].tag, wanted[k].tag);
    }
    wi_replay_plan_clear(&plan);
}

/* Compressed and hostile --------------------------------------------------------------------------------------------- */

enum { ROWS = 20000 };

static size_t make_gzip(unsigned char **out)
{
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_true(gzputs(file, HEADER) > 0);
    for (int i = 0; i < ROWS; i++)
        assert_true(gzprintf(file, "1,00:00:00.0,%s,0x%x,%d,0\n", i % 2 ? "free" : "allocate", 256 * (i / 2 + 1), 100) >
                    0);
    assert_int_equal(gzclose(file), Z_OK);
    FILE *raw = fopen(path, "rb");
    *out = malloc(1 << 20);
    size_t count = fread(*out, 1, 1 << 20, raw);
    fclose(raw);
    return count;
}

static void test_gzip(void **state)
{
    (void)state;
    wi_replay_plan plan;
    unsigned char *bytes;
    size_t count = make_gzip(&bytes);
    ok(wi_replay_load(path, &plan));
    assert_int_equal(plan.count, ROWS);
    assert_false(plan.cut);
    wi_replay_plan_clear(&plan);
    store(bytes, count / 2);
    ok(wi_replay_load(path, &plan)); /* what is there, and that it is cut off */
    assert_true(plan.cut);
    assert_in_range(plan.count, ROWS / 4, ROWS - 1);
    assert_in_range(plan.problem_count, 0, 1); /* the line that is cut in two */
    wi_replay_plan_clear(&plan);
    bytes[count / 2] ^= 0xff;
    store(bytes, count);
    fails(WEIR_ERR_CORRUPT, wi_replay_load(path, &plan));
    detail_names("compressed data");
    free(bytes);
}

static void test_long_lines(void **state)
{
    (void)state;
    enum { LONG = 1 << 20 };
    char *text = malloc(LONG + 200);
    size_t used = (size_t)sprintf(text, HEADER "1,00:00:00.0,allocate,0x100,10,0\n");
    memset(text + used, 'x', LONG);
    used += LONG;
    used += (size_t)sprintf(text + used, "\n1,00:00:00.0,free,0x100,10,0\n");
    store(text, used);
    wi_replay_plan plan;
    ok(wi_replay_load(path, &plan));
    assert_int_equal(plan.count, 2);
    assert_int_equal(plan.problem_count, 1);
    check_problem(&plan, 0, 3, "longer");
    wi_replay_plan_clear(&plan);
    free(text);
}

/* A plan keeps its laws whatever was read: places are in range, frees have their allocation. */
static void check_plan(const wi_replay_plan *plan)
{
    char *live = calloc(plan->slots + 1, 1);
    for (size_t i = 0; i < plan->count; i++) {
        const wi_replay_op *op = &plan->ops[i];
        assert_true(op->slot < plan->slots && op->stream < plan->streams && op->memory_class < WEIR_CLASS_COUNT);
        assert_int_equal(live[op->slot], op->frees);
        live[op->slot] = !op->frees;
    }
    for (size_t i = 0; i < plan->left_count; i++)
        assert_int_equal(live[plan->ops[plan->left[i]].slot]++, 1);
    assert_int_equal(plan->allocations - plan->frees, plan->left_count);
    free(live);
}

static void test_random_bytes(void **state)
{
    (void)state;
    static const char *const pieces[] = {"allocate",
                                         "free",
                                         "0x100",
                                         "0x200",
                                         "0x300",
                                         ",",
                                         "\n",
                                         "\"",
                                         "1,00:00:00.0,",
                                         "10,0\n",
                                         "1,00:00:00.0,allocate,0x100,7,3\n",
                                         "1,00:00:00.0,free,0x100,7,3\n",
                                         "\r",
                                         "x",
                                         " "};
    uint64_t seed = 42;
    for (int round = 0; round < 2000; round++) {
        char text[4096];
        size_t used = round % 4 ? (size_t)sprintf(text, HEADER) : 0;
        while (used < 1500 + (size_t)round) {
            const char *piece = pieces[next_random(&seed) % (sizeof pieces / sizeof pieces[0])];
            if (next_random(&seed) % 10 == 0)
                text[used++] = (char)next_random(&seed);
            else
                used += (size_t)sprintf(text + used, "%s", piece);
        }
        store(text, used);
        wi_replay_plan plan;
        if (wi_replay_load(path, &plan) == WEIR_OK)
            check_plan(&plan);
        wi_replay_plan_clear(&plan);
    }
}

/* The binary form: as it was recorded, cut off at every place, and damaged at every place. */
static void test_binary(void **state)
{
    (void)state;
    weir_sink sink = WEIR_INIT(weir_sink);
    weir_event events[] = {
        {.action = WEIR_ACTION_ALLOCATE,
         .order = 1,
         .pointer = (void *)0x100,
         .bytes = 10,
         .memory_class = WEIR_CLASS_WEIGHTS},
        {.action = WEIR_ACTION_ALLOCATE, .order = 2, .pointer = (void *)0x200, .bytes = 20, .stream = {77}},
        {.action = WEIR_ACTION_RESIZE, .order = 3, .pointer = (void *)0x200, .bytes = 5, .stream = {77}},
        {.action = WEIR_ACTION_REFUSE, .order = 4, .bytes = 99},
        {.action = WEIR_ACTION_DEALLOCATE, .order = 5, .pointer = (void *)0x300, .bytes = 5},
        {.action = WEIR_ACTION_DEALLOCATE, .order = 6, .pointer = (void *)0x200, .bytes = 5, .stream = {77}}};
    enum { COUNT = sizeof events / sizeof events[0] };
    for (int i = 0; i < COUNT; i++) {
        events[i].struct_size = sizeof events[i];
        events[i].client = events[i].tag = events[i].device = "";
    }
    ok(weir_sink_file(path, WEIR_SINK_BINARY, &sink));
    ok(sink.write(sink.user, events, COUNT));
    ok(sink.close(sink.user));
    wi_replay_plan plan;
    ok(wi_replay_load(path, &plan));
    assert_int_equal(plan.count, 5);
    check_op(&plan, 0, false, 10, 0, 0);
    check_op(&plan, 2, true, 20, 1, 1);
    check_op(&plan, 3, false, 5, 1, 1);
    check_op(&plan, 4, true, 5, 1, 1);
    assert_int_equal(plan.host_stream, 0);
    assert_int_equal(plan.refused, 1);
    assert_int_equal(plan.peak, 30);
    assert_int_equal(plan.problem_count, 1);
    check_problem(&plan, 0, 5, "not live");
    assert_true(plan.binary && !plan.cut);
    wi_replay_plan_clear(&plan);
    unsigned char bytes[4096];
    FILE *file = fopen(path, "rb");
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (size_t i = 0; i < size; i++) {
        store(bytes, i);
        if (wi_replay_load(path, &plan) == WEIR_OK)
            assert_true(plan.cut);
        wi_replay_plan_clear(&plan);
        bytes[i] ^= 0x55;
        store(bytes, size);
        if (wi_replay_load(path, &plan) == WEIR_OK)
            check_plan(&plan);
        wi_replay_plan_clear(&plan);
        bytes[i] ^= 0x55;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_refusals_and_empty_rows),
        cmocka_unit_test(test_columns_in_any_order),
        cmocka_unit_test(test_malformed_rows),
        cmocka_unit_test(test_no_trace),
        cmocka_unit_test(test_times_that_go_back),
        cmocka_unit_test(test_midnight),
        cmocka_unit_test(test_times_that_are_none),
        cmocka_unit_test(test_past_noon),
        cmocka_unit_test(test_weirs_order),
        cmocka_unit_test(test_names_of_what_is_left),
        cmocka_unit_test(test_too_many_streams),
        cmocka_unit_test(test_gzip),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_binary),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
