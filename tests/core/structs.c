/* Structures of callers that were compiled against an older header, or a newer one: weir reads and writes as much as they
 * have, and no more. And tensors' sizes, which are arithmetic alone. */
#include "info.h"
#include "core.h"
#include <weir/trace.h>
#include <weir/elastic.h>
#include <weir/residency.h>
#include <weir/arena.h>
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/model.h>

enum { ROOM = 4096 };

/* Gives `call` a structure of `size` bytes in a field of 0x5a, and checks what it has left alone. */
#define FILLED(type, bytes, call)                                                                                      \
    do {                                                                                                               \
        union {                                                                                                        \
            unsigned char raw[ROOM];                                                                                   \
            type value;                                                                                                \
        } u;                                                                                                           \
        memset(u.raw, 0x5a, sizeof u.raw);                                                                             \
        u.value.struct_size = (bytes);                                                                                 \
        type *out = &u.value;                                                                                          \
        ok(call);                                                                                                      \
        assert_int_equal(u.value.struct_size, (bytes));                                                                \
        size_t written_ = (bytes) < sizeof(type) ? (bytes) : sizeof(type);                                             \
        for (size_t i_ = written_; i_ < ROOM; i_++)                                                                    \
            assert_int_equal(u.raw[i_], 0x5a);                                                                         \
        out->struct_size = 0;                                                                                          \
        fails(WEIR_ERR_INVALID, call);                                                                                 \
    } while (0)

#define ALL_SIZES(type, call)                                                                                          \
    do {                                                                                                               \
        FILLED(type, 2 * sizeof(size_t), call);                                                                        \
        FILLED(type, sizeof(type) - sizeof(size_t), call);                                                             \
        FILLED(type, sizeof(type), call);                                                                              \
        FILLED(type, sizeof(type) + 64, call);                                                                         \
    } while (0)

static void structures_that_are_filled(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(4 * MIB);
    weir_client *client = open_client(runtime, "x", 0, MIB);
    void *p = allocate(client, 100, WEIR_STREAM_HOST, WEIR_CLASS_KV), *none;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 2 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &none));
    ALL_SIZES(weir_option, weir_option_info(NULL, 0, out));
    ALL_SIZES(weir_option, weir_option_info("log", 0, out));
    ALL_SIZES(weir_stats, weir_snapshot(runtime, out, NULL, 0, NULL));
    ALL_SIZES(weir_client_stats, weir_client_info(client, out));
    ALL_SIZES(weir_runtime_details, weir_runtime_info(runtime, out));
    ALL_SIZES(weir_residency, weir_client_residency(client, out));
    ALL_SIZES(weir_memory_stats, weir_memory_stats_info(runtime, out));
    ALL_SIZES(weir_layout_totals, weir_layout_walk(runtime, NULL, NULL, out));
    ALL_SIZES(weir_trim_report,
              weir_runtime_trim(
                  runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = UINT64_MAX}, out));
    ALL_SIZES(weir_block_details, weir_block_info(p, out));
    ALL_SIZES(weir_refusal, weir_refusal_last(out));
    weir_elastic_options pages = {.struct_size = sizeof pages, .bytes = 1};
    weir_elastic *elastic;
    ok(weir_elastic_create(client, &pages, &elastic));
    ALL_SIZES(weir_elastic_stats, weir_elastic_info(elastic, out));
    ok(weir_elastic_destroy(elastic, WEIR_STREAM_HOST));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Of pools of blocks, and of capture pools. */
static void structures_of_pools_that_are_filled(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(4 * MIB);
    weir_client *client = open_client(runtime, "x", 0, MIB);
    weir_block_pool_options blocks = {.struct_size = sizeof blocks, .bytes = 256, .count = 4};
    weir_block_pool *pool;
    weir_block_pool_member *member;
    weir_capture_pool *graph;
    ok(weir_block_pool_create(client, &blocks, &pool));
    ok(weir_block_pool_member_create(pool, client, 0, &member));
    ok(weir_capture_pool_create(client, &graph));
    ALL_SIZES(weir_block_pool_stats, weir_block_pool_info(pool, out, NULL, 0, NULL));
    ALL_SIZES(weir_block_pool_member_stats, weir_block_pool_member_info(member, out));
    ALL_SIZES(weir_block_pool_block_details, weir_block_pool_block_info(pool, 3, out));
    ALL_SIZES(weir_capture_pool_details, weir_capture_pool_info(graph, out));
    ok(weir_capture_pool_destroy(graph, WEIR_STREAM_HOST));
    ok(weir_block_pool_member_destroy(member));
    ok(weir_block_pool_destroy(pool));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Arrays: the first element's size is the stride. */
static void arrays_that_are_filled(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(4 * MIB);
    weir_client *clients[3];
    for (int i = 0; i < 3; i++)
        clients[i] = open_client(runtime, i == 0 ? "a" : i == 1 ? "b" : "c", 0, 0);
    static const size_t strides[] = {offsetof(weir_client_stats, guaranteed), sizeof(weir_client_stats),
                                     sizeof(weir_client_stats) + 40};
    for (size_t k = 0; k < 3; k++) {
        _Alignas(16) unsigned char raw[ROOM];
        weir_stats stats = WEIR_INIT(weir_stats);
        size_t stride = strides[k], count;
        memset(raw, 0x5a, sizeof raw);
        memcpy(raw, &stride, sizeof stride);
        ok(weir_snapshot(runtime, &stats, (weir_client_stats *)raw, 3, &count));
        for (int i = 0; i < 3; i++) {
            const weir_client_stats *line = (const weir_client_stats *)(raw + (size_t)i * stride);
            assert_int_equal(line->struct_size, stride);
            assert_string_equal(line->name, client_details(clients[i]).name);
            if (stride > sizeof(weir_client_stats))
                assert_int_equal(((const unsigned char *)line)[sizeof *line], 0x5a);
        }
        assert_int_equal(raw[3 * stride], 0x5a);
    }
    weir_trace *trace;
    static const size_t events[] = {offsetof(weir_event, pointer), sizeof(weir_event), sizeof(weir_event) + 24};
    for (size_t k = 0; k < 3; k++) {
        _Alignas(16) unsigned char raw[ROOM];
        size_t stride = events[k], count;
        ok(weir_trace_create(runtime, NULL, &trace));
        void *p = allocate(clients[0], 100, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        ok(weir_free(clients[0], p, WEIR_STREAM_HOST));
        memset(raw, 0x5a, sizeof raw);
        memcpy(raw, &stride, sizeof stride);
        ok(weir_trace_read(trace, (weir_event *)raw, 10, &count));
        assert_int_equal(count, k == 0 ? 3 : 2);
        const weir_event *last = (const weir_event *)(raw + (count - 1) * stride);
        assert_int_equal(last->struct_size, stride);
        assert_int_equal(last->action, WEIR_ACTION_DEALLOCATE);
        assert_int_equal(last->order, count);
        assert_int_equal(raw[count * stride], 0x5a);
        weir_trace_destroy(trace);
    }
    for (int i = 0; i < 3; i++)
        ok(weir_client_destroy(clients[i]));
    ok(weir_runtime_destroy(runtime));
}

/* What an older caller did not know of is as if it were 0; what a newer one knows besides has to be 0 (newer.c). */
static void structures_that_are_taken(void **state)
{
    (void)state;
    union {
        unsigned char raw[ROOM];
        weir_runtime_options runtime;
        weir_client_options client;
        weir_request request;
        weir_model_options model;
    } u;
    weir_runtime *runtime;
    weir_client *client;
    weir_block block;
    memset(u.raw, 0xff, sizeof u.raw);
    u.runtime = (weir_runtime_options){.struct_size = offsetof(weir_runtime_options, resource), .budget = 4 * MIB};
    u.runtime.resource = (const char *)(uintptr_t)1; /* beyond its size */
    ok(weir_runtime_create("host", &u.runtime, &runtime));
    ok(weir_runtime_destroy(runtime));
    memset(u.raw, 0, sizeof u.raw);
    u.runtime = (weir_runtime_options){.struct_size = sizeof u.runtime + 100, .budget = 4 * MIB};
    ok(weir_runtime_create("host", &u.runtime, &runtime));

    u.client =
        (weir_client_options){.struct_size = offsetof(weir_client_options, maximum), .name = "old", .maximum = 1};
    ok(weir_client_create(runtime, &u.client, &client));
    ok(weir_free(client, allocate(client, MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    u.client = (weir_client_options){.struct_size = 2 * sizeof(size_t), .name = "older", .guaranteed = 64 * MIB};
    ok(weir_client_create(runtime, &u.client, &client));

    u.request = (weir_request){.struct_size = offsetof(weir_request, memory_class), .bytes = 100};
    u.request.memory_class = (weir_class)99;
    u.request.tag = (const char *)(uintptr_t)1;
    u.request.flags = ~0u;
    ok(weir_alloc_with(client, &u.request, &block));
    ok(weir_free_block(client, block, WEIR_STREAM_HOST));
    memset(u.raw, 0, sizeof u.raw);
    u.request = (weir_request){.struct_size = sizeof u.request + 200, .bytes = 100, .memory_class = WEIR_CLASS_KV};
    ok(weir_alloc_with(client, &u.request, &block));
    ok(weir_free_block(client, block, WEIR_STREAM_HOST));
    u.request.struct_size = sizeof(size_t);
    fails(WEIR_ERR_INVALID, weir_alloc_with(client, &u.request, &block));

    weir_model *model;
    u.model =
        (weir_model_options){.struct_size = offsetof(weir_model_options, engine), .engine = (const char *)(uintptr_t)1};
    fails(WEIR_ERR_NOT_FOUND, weir_model_create("/there/is/no/such.model", &u.model, &model));
    u.model.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_model_create("/there/is/no/such.model", &u.model, &model));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Growth: what is listed by an enumeration has places for more, and a structure within another one is its last member. */
static void structures_have_room_to_grow(void **state)
{
    (void)state;
#define PLACES(type, member, most) assert_int_equal(sizeof(((type *)0)->member) / sizeof(((type *)0)->member[0]), most)
    PLACES(weir_client_stats, live_class, WEIR_CLASS_MOST);
    PLACES(weir_client_stats, peak_class, WEIR_CLASS_MOST);
    PLACES(weir_engine_plan, bytes, WEIR_CLASS_MOST);
    PLACES(weir_engine_plan, exact, WEIR_CLASS_MOST);
    PLACES(weir_candidate, bytes, WEIR_CLASS_MOST);
    PLACES(weir_candidate, exact, WEIR_CLASS_MOST);
    PLACES(weir_arena_details, planned, WEIR_KIND_MOST);
    PLACES(weir_arena_details, held, WEIR_KIND_MOST);
    PLACES(weir_arena_details, base, WEIR_KIND_MOST);
    PLACES(weir_layout_totals, bytes, WEIR_SPAN_MOST);
    PLACES(weir_stats, ladder, WEIR_RUNG_MOST);
    const int most[] = {WEIR_CLASS_MOST, WEIR_KIND_MOST, WEIR_SPAN_MOST, WEIR_RUNG_MOST};
    const int have[] = {WEIR_CLASS_COUNT, WEIR_KIND_COUNT, WEIR_SPAN_COUNT, WEIR_RUNG_COUNT};
    for (int i = 0; i < 4; i++)
        assert_true(have[i] < most[i]);
#define LAST(type, member)                                                                                             \
    assert_int_equal(offsetof(type, member) + sizeof(((type *)0)->member), sizeof(type)) /* with no padding behind */
    LAST(weir_manifest, requirements);
    LAST(weir_arena_tensor, parameter);
}

/* Tensors ---------------------------------------------------------------------------------------------------------- */

static void element_types(void **state)
{
    (void)state;
    static const struct {
        weir_type type;
        const char *name;
        size_t bytes;
    } table[] = {{WEIR_TYPE_F32, "f32", 4},
                 {WEIR_TYPE_F64, "f64", 8},
                 {WEIR_TYPE_F16, "f16", 2},
                 {WEIR_TYPE_BF16, "bf16", 2},
                 {WEIR_TYPE_I8, "i8", 1},
                 {WEIR_TYPE_I16, "i16", 2},
                 {WEIR_TYPE_I32, "i32", 4},
                 {WEIR_TYPE_I64, "i64", 8},
                 {WEIR_TYPE_U8, "u8", 1},
                 {WEIR_TYPE_U16, "u16", 2},
                 {WEIR_TYPE_U32, "u32", 4},
                 {WEIR_TYPE_U64, "u64", 8},
                 {WEIR_TYPE_BOOL, "bool", 1},
                 {WEIR_TYPE_F8E4M3FN, "f8e4m3fn", 1},
                 {WEIR_TYPE_F8E4M3FNUZ, "f8e4m3fnuz", 1},
                 {WEIR_TYPE_F8E5M2, "f8e5m2", 1},
                 {WEIR_TYPE_F8E5M2FNUZ, "f8e5m2fnuz", 1},
                 {WEIR_TYPE_TEXT, "text", 1}};
    assert_int_equal(sizeof table / sizeof table[0], WEIR_TYPE_COUNT - 1);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_string_equal(weir_name_of(WEIR_NAMES_TYPE, table[i].type), table[i].name);
        size_t bytes = 0;
        ok(weir_tensor_bytes(table[i].type, 0, NULL, &bytes));
        assert_int_equal(bytes, table[i].bytes);
    }
    static const int none[] = {0, -1, WEIR_TYPE_COUNT, 1 << 20};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        size_t bytes = 77;
        assert_string_equal(weir_name_of(WEIR_NAMES_TYPE, (int)none[i]), "?");
        fails(WEIR_ERR_INVALID, weir_tensor_bytes((weir_type)none[i], 0, NULL, &bytes));
        assert_int_equal(bytes, 77);
    }
}

static void tensor_sizes(void **state)
{
    (void)state;
    size_t bytes = 0;
    int64_t shape[WEIR_MAX_RANK + 1];
    for (int i = 0; i <= WEIR_MAX_RANK; i++)
        shape[i] = 2;
    ok(weir_tensor_bytes(WEIR_TYPE_F32, 0, NULL, &bytes)); /* a scalar */
    assert_int_equal(bytes, 4);
    ok(weir_tensor_bytes(WEIR_TYPE_F16, WEIR_MAX_RANK, shape, &bytes));
    assert_int_equal(bytes, 2 << WEIR_MAX_RANK);
    fails(WEIR_ERR_INVALID, weir_tensor_bytes(WEIR_TYPE_F16, WEIR_MAX_RANK + 1, shape, &bytes));
    fails(WEIR_ERR_INVALID, weir_tensor_bytes(WEIR_TYPE_F16, 1, NULL, &bytes));
    fails(WEIR_ERR_INVALID, weir_tensor_bytes(WEIR_TYPE_F16, 1, shape, NULL));
    shape[1] = 0;
    ok(weir_tensor_bytes(WEIR_TYPE_F32, 3, shape, &bytes)); /* empty */
    assert_int_equal(bytes, 0);
    shape[1] = -1;
    fails(WEIR_ERR_INVALID, weir_tensor_bytes(WEIR_TYPE_F32, 3, shape, &bytes));
    detail_names("dimension 1 is -1");
    shape[1] = INT64_MAX;
    fails(WEIR_ERR_INVALID, weir_tensor_bytes(WEIR_TYPE_F32, 2, shape, &bytes));
    shape[0] = (int64_t)1 << 62;
    shape[1] = 3;
    ok(weir_tensor_bytes(WEIR_TYPE_U8, 1, shape, &bytes));
    assert_int_equal(bytes, (size_t)1 << 62);
    ok(weir_tensor_bytes(WEIR_TYPE_U8, 2, shape, &bytes));
    assert_int_equal(bytes, (size_t)3 << 62);
    fails(WEIR_ERR_INVALID, weir_tensor_bytes(WEIR_TYPE_U16, 2, shape, &bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structures_that_are_filled),
        cmocka_unit_test(structures_of_pools_that_are_filled),
        cmocka_unit_test(arrays_that_are_filled),
        cmocka_unit_test(structures_that_are_taken),
        cmocka_unit_test(structures_have_room_to_grow),
        cmocka_unit_test(element_types),
        cmocka_unit_test(tensor_sizes),
    };
    return cmocka_run_group_tests_name("structs", tests, NULL, NULL);
}
