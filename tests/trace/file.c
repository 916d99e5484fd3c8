/* The binary file: what goes in comes out; what is cut off or damaged is told, and never believed. */
#include "trace.h"
#include <weir/trace.h>

#include "trace/format.h"
#include "trace/readers.h"

static int set_up(void **state)
{
    *state = start();
    return 0;
}

typedef struct bytes {
    unsigned char *at;
    size_t count;
} bytes;

static bytes load(const char *path)
{
    bytes b = {malloc(1 << 20), 0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    b.count = fread(b.at, 1, 1 << 20, file);
    fclose(file);
    return b;
}

static void store(const char *path, const void *at, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(at, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static weir_event sample(uint64_t order)
{
    static const char *const clients[] = {"", "bert", "llama, \"the\" large"}, *const tags[] = {"", "kv\ncache", "ü"};
    return (weir_event){.struct_size = sizeof(weir_event),
                        .action = (weir_action)(order % WEIR_ACTION_COUNT),
                        .memory_class = (weir_class)(order % WEIR_CLASS_COUNT),
                        .order = 3 * order,
                        .nanoseconds = UINT64_MAX - order,
                        .thread = order,
                        .pointer = (void *)(uintptr_t)(0x7f0000001000 + order * 256),
                        .bytes = order * 100,
                        .charged = order * 128,
                        .generation = order + 7,
                        .stream = {UINT64_MAX - 1},
                        .live = 1,
                        .pending = 2,
                        .held = 3,
                        .client = clients[order % 3],
                        .tag = tags[order / 3 % 3],
                        .result = (weir_status)(order % WEIR_STATUS_COUNT),
                        .access = (weir_access)(order % 4),
                        .device = "cuda:0",
                        .object = ~order,
                        .other = {order}};
}

/* A file of `count` samples. */
static void record(const char *path, size_t count, uint64_t lost, bool closed)
{
    weir_sink sink = WEIR_INIT(weir_sink);
    ok(weir_sink_file(path, WEIR_SINK_BINARY, &sink));
    for (size_t i = 1; i <= count; i++) {
        weir_event e = sample(i);
        ok(sink.write(sink.user, &e, 1));
    }
    ok(sink.flush(sink.user));
    if (!closed) {
        bytes so_far = load(path);
        ok(sink.close(sink.user));
        store(path, so_far.at, so_far.count);
        free(so_far.at);
        return;
    }
    sink.lost(sink.user, lost);
    ok(sink.close(sink.user));
}

static void same(const weir_event *a, const weir_event *b)
{
    assert_string_equal(a->client, b->client);
    assert_string_equal(a->tag, b->tag);
    assert_string_equal(a->device, b->device);
    weir_event x = *a, y = *b;
    x.client = y.client = x.tag = y.tag = x.device = y.device = NULL;
#define member(name) assert_memory_equal(&x.name, &y.name, sizeof x.name)
    member(action), member(memory_class), member(order), member(nanoseconds), member(thread), member(pointer);
    member(bytes), member(charged), member(generation), member(stream), member(live), member(pending), member(held);
    member(result), member(access), member(object), member(other);
}

/* Reads all; answers how it ended. */
static weir_status read_all(const char *path, size_t *count, bool *cut, uint64_t *offset, uint64_t *lost)
{
    reader *r;
    weir_event e;
    bool got = true;
    *count = 0;
    *cut = false;
    weir_status status = reader_open(path, &r);
    if (status != WEIR_OK)
        return status;
    while (status == WEIR_OK && got) {
        status = reader_next(r, &e, &got);
        if (status != WEIR_OK || !got)
            continue;
        ++*count;
        assert_non_null(weir_name_of(WEIR_NAMES_ACTION, e.action));
        assert_true(strlen(e.client) + strlen(e.tag) + strlen(e.device) < 4000);
    }
    *cut = reader_cut(r, offset);
    *lost = reader_lost(r);
    reader_close(r);
    return status;
}

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    const char *path = scratch("round");
    reader *r;
    uint64_t offset;
    bool got;
    weir_event e, wanted;
    record(path, 500, 4000, true);
    ok(reader_open(path, &r));
    for (size_t i = 1; i <= 500; i++) {
        ok(reader_next(r, &e, &got));
        assert_true(got);
        wanted = sample(i);
        same(&e, &wanted);
    }
    ok(reader_next(r, &e, &got));
    assert_false(got);
    ok(reader_next(r, &e, &got));
    assert_false(got);
    assert_false(reader_cut(r, &offset));
    assert_int_equal(reader_lost(r), 4000);
    reader_close(r);
    size_t count;
    bool cut;
    uint64_t lost;
    record(path, 500, 0, true);
    ok(read_all(path, &count, &cut, &offset, &lost));
    assert_int_equal(lost, 1000); /* the orders have gaps of two */
    remove(path);
}

/* Through a runtime, beside a plain reader of the same events. */
static void a_trace_and_its_file_say_the_same(void **state)
{
    fixture *f = *state;
    const char *path = scratch("runtime");
    weir_sink sink = WEIR_INIT(weir_sink);
    ok(weir_sink_file(path, WEIR_SINK_BINARY, &sink));
    weir_trace_options options = {.struct_size = sizeof options, .sinks = &sink, .sink_count = 1};
    ok(weir_trace_create(f->runtime, &options, &f->trace));
    void *p = allocate(f->client, 1000, f->a, WEIR_CLASS_KV);
    ok(weir_launch_end(begin(f, f->b, p, WEIR_ACCESS_READ)));
    ok(weir_free(f->client, p, f->a));
    weir_trace_destroy(f->trace);
    f->trace = NULL;
    reader *r;
    weir_event e;
    bool got;
    static const weir_action wanted[] = {WEIR_ACTION_HOLD, WEIR_ACTION_ALLOCATE, WEIR_ACTION_USE_BEGIN,
                                         WEIR_ACTION_USE_END, WEIR_ACTION_DEALLOCATE};
    ok(reader_open(path, &r));
    for (size_t i = 0; i < 5; i++) {
        ok(reader_next(r, &e, &got));
        assert_true(got);
        assert_int_equal(e.action, wanted[i]);
        assert_int_equal(e.order, i + 1);
        assert_string_equal(e.device, "host");
    }
    ok(reader_next(r, &e, &got));
    assert_false(got);
    assert_int_equal(reader_lost(r), 0);
    reader_close(r);
    remove(path);
}

static void cut_off_anywhere(void **state)
{
    (void)state;
    const char *whole = scratch("whole"), *part = scratch("part");
    size_t count, before = 0;
    bool cut;
    uint64_t offset, lost;
    record(whole, 12, 0, true);
    bytes b = load(whole);
    ok(read_all(whole, &count, &cut, &offset, &lost));
    assert_int_equal(count, 12);
    assert_false(cut);
    for (size_t length = 0; length < b.count; length++) {
        store(part, b.at, length);
        weir_status status = read_all(part, &count, &cut, &offset, &lost);
        if (length < WI_TRACE_HEADER) {
            assert_int_equal(status, WEIR_ERR_CORRUPT);
            detail_names("byte 0");
            continue;
        }
        assert_int_equal(status, WEIR_OK);
        assert_true(cut && offset <= length && length - offset < 144);
        assert_true(count == before || count == before + 1);
        before = count;
    }
    assert_int_equal(before, 12);
    record(part, 5, 0, false); /* a program that was killed */
    ok(read_all(part, &count, &cut, &offset, &lost));
    assert_int_equal(count, 5);
    assert_true(cut);
    free(b.at);
    remove(whole);
    remove(part);
}

static void any_bit_flipped(void **state)
{
    (void)state;
    const char *whole = scratch("bits"), *bad = scratch("flipped");
    record(whole, 2, 0, true);
    bytes b = load(whole);
    for (size_t bit = 0; bit < 8 * b.count; bit++) {
        size_t count;
        bool cut;
        uint64_t offset, lost;
        b.at[bit / 8] ^= (unsigned char)(1u << bit % 8);
        store(bad, b.at, b.count);
        weir_status status = read_all(bad, &count, &cut, &offset, &lost);
        /* A length that grew ends behind the file. */
        bool noticed = status == WEIR_ERR_CORRUPT || status == WEIR_ERR_UNSUPPORTED || (status == WEIR_OK && cut);
        if (!noticed)
            print_error("bit %zu of byte %zu\n", bit % 8, bit / 8);
        assert_true(noticed);
        if (status == WEIR_ERR_CORRUPT)
            detail_names("byte ");
        b.at[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    free(b.at);
    remove(whole);
    remove(bad);
}

/* Writes an item with its right checksum: what a checksum does not guard against. */
static void forge(unsigned char *item, size_t count)
{
    wi_put32(item + 4, wi_crc(item + 8, count - 8));
}

static void hostile_files(void **state)
{
    (void)state;
    const char *whole = scratch("good"), *bad = scratch("hostile");
    size_t count;
    bool cut;
    uint64_t offset, lost;
    record(whole, 1, 0, true);
    bytes b = load(whole);
    size_t text = WI_TRACE_HEADER; /* two texts, of at most 8 bytes each */
    size_t event = b.count - WI_TRACE_END - WI_TRACE_EVENT, last = b.count - WI_TRACE_END;
    const struct {
        size_t item, bytes, at;
        uint32_t value;
    } forged[] = {{text, 24, 8, 2},
                  {text, 24, 8, 0},
                  {event, WI_TRACE_EVENT, WI_AT_CLIENT, 9},
                  {event, WI_TRACE_EVENT, WI_AT_TAG, UINT32_MAX},
                  {event, WI_TRACE_EVENT, WI_AT_DEVICE, 77},
                  {event, WI_TRACE_EVENT, WI_AT_ACTION, WEIR_ACTION_COUNT},
                  {event, WI_TRACE_EVENT, WI_AT_CLASS, WEIR_CLASS_COUNT},
                  {event, WI_TRACE_EVENT, WI_AT_RESULT, WEIR_STATUS_COUNT},
                  {event, WI_TRACE_EVENT, WI_AT_ACCESS, 4},
                  {event, WI_TRACE_EVENT, WI_AT_ORDER, 0},
                  {last, WI_TRACE_END, 16, 2}};
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        bytes copy = {malloc(b.count), b.count};
        memcpy(copy.at, b.at, b.count);
        wi_put32(copy.at + forged[i].item + forged[i].at, forged[i].value);
        forge(copy.at + forged[i].item, forged[i].bytes);
        store(bad, copy.at, copy.count);
        fails(WEIR_ERR_CORRUPT, read_all(bad, &count, &cut, &offset, &lost));
        char where[32];
        snprintf(where, sizeof where, "at byte %zu", forged[i].item);
        detail_names(where);
        free(copy.at);
    }
    /* Sizes that would have much read, or something behind the end. */
    wi_put32(b.at + text + 12, UINT32_MAX);
    store(bad, b.at, b.count);
    fails(WEIR_ERR_CORRUPT, read_all(bad, &count, &cut, &offset, &lost));
    wi_put32(b.at + 12, 1u << 30);
    store(bad, b.at, b.count);
    fails(WEIR_ERR_CORRUPT, read_all(bad, &count, &cut, &offset, &lost));
    wi_put32(b.at + 8, 2);
    store(bad, b.at, b.count);
    fails(WEIR_ERR_UNSUPPORTED, read_all(bad, &count, &cut, &offset, &lost));
    free(b.at);
    b = load(whole);
    b.at[b.count] = 0;
    store(bad, b.at, b.count + 1);
    fails(WEIR_ERR_CORRUPT, read_all(bad, &count, &cut, &offset, &lost));
    fails(WEIR_ERR_SYSTEM, read_all("/nonexistent", &count, &cut, &offset, &lost));
    fails(WEIR_ERR_SYSTEM, read_all("/", &count, &cut, &offset, &lost));
    free(b.at);
    remove(whole);
    remove(bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup_teardown(name, set_up, end)
        test(what_goes_in_comes_out), test(a_trace_and_its_file_say_the_same),
        test(cut_off_anywhere),       test(any_bit_flipped),
        test(hostile_files),
    };
    return cmocka_run_group_tests_name("trace file", tests, NULL, NULL);
}
