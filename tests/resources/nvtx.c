/* Marks for tools that watch memory, with a tool that keeps books, on cuda over the stub: each block of the resource direct
 * is a region of exactly its bytes in a heap of its own, from its allocation until the device is past its free, and nothing
 * else is told.
 *
 *   test-nvtx [present|deaf|lacking|none]     the last three: no tool that could be used */
#include "core.h"
#include "resources/nvtx_tool.h"
#include "stub/cuda/control.h"
#include "test_places.h"

#include <dlfcn.h>

#define X(type, name, parameters) type(*name) parameters;
static struct {
    TOOL_QUESTIONS(X)
} tool;
static struct {
    STUB_CONTROLS(X)
} control;
#undef X

static weir_runtime *runtime;
static weir_client *client;

static void begin(const char *resource)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 * MIB, .resource = resource};
    ok(weir_runtime_create("cuda:0", &options, &runtime));
    client = open_client(runtime, "bert", 0, 0);
}

static void check_marks(size_t heaps, size_t regions)
{
    if (tool.tool_mistake())
        fail_msg("the tool was told %s", tool.tool_mistake());
    assert_int_equal(tool.tool_heaps(), heaps);
    assert_int_equal(tool.tool_regions(), regions);
}

/* Nothing is left. */
static void end(void)
{
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    check_marks(0, 0);
}

static void *make(size_t bytes)
{
    return allocate(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
}

static void check_heap(const void *block, size_t before, size_t behind)
{
    size_t is_before, is_behind;
    assert_true(tool.tool_heap(block, &is_before, &is_behind));
    assert_true(is_before >= before && is_behind >= behind);
}

static void test_a_block_is_a_region_to_the_byte(void **state)
{
    (void)state;
    begin("direct");
    char *first = make(1000), *second = make(1);
    check_marks(2, 2);
    assert_int_equal(tool.tool_region(first), 1000);
    assert_int_equal(tool.tool_region(second), 1);
    check_heap(first, 0, 1024);
    ok(weir_free(client, first, WEIR_STREAM_HOST));
    check_marks(1, 1);
    assert_int_equal(tool.tool_region(first), 0);
    ok(weir_free(client, second, WEIR_STREAM_HOST));
    end();
}

static void test_alignment_belongs_to_the_heap(void **state)
{
    (void)state;
    begin("direct");
    weir_request request = {
        .struct_size = sizeof request, .bytes = 5000, .alignment = 65536, .stream = WEIR_STREAM_HOST};
    weir_block block;
    ok(weir_alloc_with(client, &request, &block));
    assert_int_equal(tool.tool_region(block.pointer), 5000);
    size_t before, behind;
    assert_true(tool.tool_heap(block.pointer, &before, &behind));
    assert_int_equal(before + behind, 5120 + 65536 - UNIT);
    ok(weir_free(client, block.pointer, WEIR_STREAM_HOST));
    end();
}

static void check_sizes(char *block, size_t most)
{
    static const size_t sizes[] = {700, 10, 999, 1000, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ok(weir_resize(client, block, sizes[i], WEIR_STREAM_HOST));
        assert_int_equal(tool.tool_region(block), sizes[i]);
    }
    fails(WEIR_ERR_NO_ROOM, weir_resize(client, block, most, WEIR_STREAM_HOST));
    assert_int_equal(tool.tool_region(block), 256);
    check_marks(1, 1);
}

static void test_a_resize_moves_the_edge(void **state)
{
    (void)state;
    begin("direct");
    char *block = make(1000);
    check_sizes(block, 4096);
    ok(weir_free(client, block, WEIR_STREAM_HOST));
    end();
    begin("guard(direct)");
    block = make(1000);
    check_sizes(block, 4096);
    ok(weir_free(client, block, WEIR_STREAM_HOST));
    ok(weir_runtime_trim(runtime, NULL, NULL));
    end();
}

static void test_zones_and_quarantine_are_heap_and_no_region(void **state)
{
    (void)state;
    begin("guard(direct)");
    char *block = make(1000);
    check_marks(1, 1);
    assert_int_equal(tool.tool_region(block), 1000);
    check_heap(block, 256, 1024 + 256);
    ok(weir_free(client, block, WEIR_STREAM_HOST));
    check_marks(1, 0);
    check_heap(block, 256, 1024 + 256);
    ok(weir_runtime_trim(runtime, NULL, NULL));
    check_marks(0, 0);
    end();
}

/* A kernel that was queued before the free may still be at the block. */
static void test_a_pending_block_stays_marked(void **state)
{
    (void)state;
    weir_stream stream;
    gate g = GATE;
    begin("direct");
    ok(weir_stream_acquire(runtime, &stream));
    char *block = make(1000);
    ok(weir_call(runtime, pass_gate, &g, stream));
    ok(weir_free(client, block, stream));
    ok(weir_runtime_trim(runtime, NULL, NULL));
    check_marks(1, 1);
    assert_int_equal(tool.tool_region(block), 1000);
    open_gate(&g);
    ok(weir_stream_synchronize(stream));
    ok(weir_runtime_trim(runtime, NULL, NULL));
    check_marks(0, 0);
    ok(weir_stream_release(stream));
    end();
}

/* The piece is the runtime's still; it is tried again later. */
static void test_a_free_that_the_driver_refuses(void **state)
{
    (void)state;
    begin("direct");
    char *block = make(1000);
    control.stub_fail("cuMemFree", 1, 999);
    ok(weir_free(client, block, WEIR_STREAM_HOST));
    check_marks(0, 0);
    ok(weir_runtime_trim(runtime, NULL, NULL));
    assert_int_equal(control.stub_count("allocations"), 0);
    end();
}

static void test_nothing_else_is_told(void **state)
{
    (void)state;
    static const char *const others[] = {"mapped", "segments", "async", "guard(mapped)"};
    size_t before = tool.tool_calls();
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        begin(others[i]);
        void *block = make(1000);
        ok(weir_resize(client, block, 500, WEIR_STREAM_HOST));
        ok(weir_free(client, block, WEIR_STREAM_HOST));
        end();
    }
    begin("direct");
    weir_request request = {
        .struct_size = sizeof request, .bytes = 1000, .stream = WEIR_STREAM_HOST, .kind = WEIR_KIND_PINNED};
    weir_block pinned;
    ok(weir_alloc_with(client, &request, &pinned));
    ok(weir_free(client, pinned.pointer, WEIR_STREAM_HOST));
    end();
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 64 * MIB, .resource = "direct"};
    ok(weir_runtime_create("host", &options, &runtime));
    client = open_client(runtime, "bert", 0, 0);
    ok(weir_free(client, make(1000), WEIR_STREAM_HOST));
    end();
    assert_int_equal(tool.tool_calls(), before);
}

static void *come_and_go(void *arg)
{
    size_t bytes = *(size_t *)arg;
    for (int i = 0; i < 50; i++) {
        char *block = make(bytes);
        if (tool.tool_mistake() || weir_resize(client, block, bytes / 2, WEIR_STREAM_HOST) != WEIR_OK ||
            weir_free(client, block, WEIR_STREAM_HOST) != WEIR_OK)
            return arg;
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    static size_t sizes[] = {1000, 300, 70000};
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    begin("guard(quarantine=16KiB, direct)");
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &sizes[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    ok(weir_runtime_trim(runtime, NULL, NULL));
    end();
}

static void test_no_tool_no_calls(void **state)
{
    (void)state;
    begin("guard(direct)");
    void *block = make(1000);
    ok(weir_resize(client, block, 500, WEIR_STREAM_HOST));
    ok(weir_free(client, block, WEIR_STREAM_HOST));
    end();
    assert_int_equal(tool.tool_calls(), 0);
}

static bool find(const char *file, const char *name, void *function)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL), *symbol = library ? dlsym(library, name) : NULL;
    memcpy(function, &symbol, sizeof symbol);
    if (!symbol)
        fprintf(stderr, "there is no %s in %s\n", name, file);
    return symbol != NULL;
}

static bool find_all(const char *tool_library)
{
    bool all = true;
#define X(type, name, parameters) all &= find(tool_library, #name, &tool.name);
    TOOL_QUESTIONS(X)
#undef X
#define X(type, name, parameters) all &= find("libcuda.so.1", #name, &control.name);
    STUB_CONTROLS(X)
#undef X
    return all;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "present", *tool_library = built_path("lib/libnvtx-tool.so");
    bool present = strcmp(how, "present") == 0;
    const struct CMUnitTest with[] = {
        cmocka_unit_test(test_a_block_is_a_region_to_the_byte),
        cmocka_unit_test(test_alignment_belongs_to_the_heap),
        cmocka_unit_test(test_a_resize_moves_the_edge),
        cmocka_unit_test(test_zones_and_quarantine_are_heap_and_no_region),
        cmocka_unit_test(test_a_pending_block_stays_marked),
        cmocka_unit_test(test_a_free_that_the_driver_refuses),
        cmocka_unit_test(test_nothing_else_is_told),
        cmocka_unit_test(test_threads),
    };
    const struct CMUnitTest without[] = {cmocka_unit_test(test_no_tool_no_calls)};
    setenv("TOOL_IS", how, 1);
    if (strcmp(how, "none") != 0)
        setenv("NVTX_INJECTION64_PATH", tool_library, 1);
    if (!find_all(tool_library))
        return 1;
    return present ? cmocka_run_group_tests(with, NULL, NULL) : cmocka_run_group_tests(without, NULL, NULL);
}
