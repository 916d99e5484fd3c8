/* Value checks with a delayed kernel, on a real GPU: it spins, looks whether its block still holds what it held, and then
 * writes it. A block given to somebody else while the kernel has not run yet shows in what either of them reads. */
#include "driver/runtime.h"

/* Each thread waits until the clock is `nanoseconds` on, then counts the words of its share that are not `expected`, and
 * writes `value` into them. */
static const char kernel_text[] = "\
.version 7.0\n\
.target sm_75\n\
.address_size 64\n\
.visible .entry delayed(.param .u64 block, .param .u64 words, .param .u64 nanoseconds,\n\
    .param .u32 expected, .param .u32 value, .param .u64 wrong)\n\
{\n\
    .reg .pred %p<4>;\n\
    .reg .b32 %r<10>;\n\
    .reg .b64 %d<14>;\n\
    ld.param.u64 %d1, [block];\n\
    ld.param.u64 %d2, [words];\n\
    ld.param.u64 %d3, [nanoseconds];\n\
    ld.param.u32 %r1, [expected];\n\
    ld.param.u32 %r2, [value];\n\
    ld.param.u64 %d4, [wrong];\n\
    cvta.to.global.u64 %d1, %d1;\n\
    cvta.to.global.u64 %d4, %d4;\n\
    mov.u64 %d5, %globaltimer;\n\
    add.u64 %d5, %d5, %d3;\n\
spin:\n\
    mov.u64 %d6, %globaltimer;\n\
    setp.lt.u64 %p1, %d6, %d5;\n\
    @%p1 bra spin;\n\
    mov.u32 %r3, %ctaid.x;\n\
    mov.u32 %r4, %ntid.x;\n\
    mov.u32 %r5, %tid.x;\n\
    mad.lo.u32 %r6, %r3, %r4, %r5;\n\
    cvt.u64.u32 %d7, %r6;\n\
    mov.u32 %r7, %nctaid.x;\n\
    mul.lo.u32 %r7, %r7, %r4;\n\
    cvt.u64.u32 %d8, %r7;\n\
next:\n\
    setp.ge.u64 %p2, %d7, %d2;\n\
    @%p2 bra done;\n\
    shl.b64 %d9, %d7, 2;\n\
    add.u64 %d10, %d1, %d9;\n\
    ld.global.volatile.u32 %r8, [%d10];\n\
    setp.eq.u32 %p3, %r8, %r1;\n\
    @%p3 bra same;\n\
    red.global.add.u32 [%d4], 1;\n\
same:\n\
    st.global.volatile.u32 [%d10], %r2;\n\
    add.u64 %d7, %d7, %d8;\n\
    bra next;\n\
done:\n\
    ret;\n\
}\n";

typedef int result;
static struct {
    result (*cuDevicePrimaryCtxRetain)(void **context, int device);
    result (*cuDevicePrimaryCtxRelease_v2)(int device);
    result (*cuCtxPushCurrent_v2)(void *context);
    result (*cuCtxPopCurrent_v2)(void **context);
    result (*cuModuleLoadData)(void **module, const void *image);
    result (*cuModuleUnload)(void *module);
    result (*cuModuleGetFunction)(void **function, void *module, const char *name);
    result (*cuLaunchKernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                             void **extra);
} cuda;
static void *context, *module, *function;

static int load_kernel(void **state)
{
    (void)state;
    void *symbol;
#define FIND(name)                                                                                                     \
    symbol = cuda_symbol(#name);                                                                                       \
    assert_non_null(symbol);                                                                                           \
    memcpy(&cuda.name, &symbol, sizeof symbol)
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuDevicePrimaryCtxRelease_v2);
    FIND(cuCtxPushCurrent_v2);
    FIND(cuCtxPopCurrent_v2);
    FIND(cuModuleLoadData);
    FIND(cuModuleUnload);
    FIND(cuModuleGetFunction);
    FIND(cuLaunchKernel);
#undef FIND
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(cuda.cuCtxPushCurrent_v2(context), 0);
    assert_int_equal(cuda.cuModuleLoadData(&module, kernel_text), 0);
    assert_int_equal(cuda.cuModuleGetFunction(&function, module, "delayed"), 0);
    return 0;
}

static int unload_kernel(void **state)
{
    (void)state;
    if (!module) /* the set-up has said why */
        return -1;
    assert_int_equal(cuda.cuModuleUnload(module), 0);
    assert_int_equal(cuda.cuCtxPopCurrent_v2(&context), 0);
    assert_int_equal(cuda.cuDevicePrimaryCtxRelease_v2(0), 0);
    return 0;
}

static void launch(void *block, size_t bytes, unsigned milliseconds, uint8_t expected, uint8_t value, void *wrong,
                   weir_stream stream)
{
    uint64_t words = bytes / 4, nanoseconds = (uint64_t)milliseconds * 1000000;
    uint32_t expected_word = expected * UINT32_C(0x01010101), word = value * UINT32_C(0x01010101);
    void *parameters[] = {&block, &words, &nanoseconds, &expected_word, &word, &wrong};
    assert_int_equal(
        cuda.cuLaunchKernel(function, 64, 1, 1, 256, 1, 1, 0, weir_stream_native(stream), parameters, NULL), 0);
}

/* The kernel of `one` runs late on a block that is freed behind it, `two` wants the same bytes at once. *kernel: words that
 * the kernel found changed; *other: bytes of the other's that the kernel wrote over. */
static void late_kernel(bool planted, uint32_t *kernel, size_t *other)
{
    const size_t bytes = 24 * MIB;
    make_runtime(32 * MIB);
    weir_client *one = open_client("one"), *two = open_client("two");
    weir_stream late, next;
    void *block, *same, *wrong;
    ok(weir_stream_acquire(runtime, &late));
    ok(weir_stream_acquire(runtime, &next));
    ok(weir_alloc(one, 256, late, WEIR_CLASS_WEIGHTS, &wrong));
    ok(weir_alloc(one, bytes, late, WEIR_CLASS_ACTIVATIONS, &block));
    fill_now(wrong, 0, 256);
    ok(weir_fill(runtime, block, 0x11, bytes, late));
    launch(block, bytes, 100, 0x11, 0x22, wrong, late);
    ok(weir_free(one, block, planted ? WEIR_STREAM_HOST : late));
    ok(weir_alloc(two, bytes, next, WEIR_CLASS_ACTIVATIONS, &same));
    assert_ptr_equal(same, block);
    ok(weir_fill(runtime, same, 0x33, bytes, next));
    ok(weir_stream_synchronize(next));
    ok(weir_stream_synchronize(late));
    *other = wrong_bytes(same, 0x33, bytes);
    ok(weir_copy(runtime, kernel, wrong, sizeof *kernel, WEIR_STREAM_HOST));
    ok(weir_free(two, same, next));
    ok(weir_free(one, wrong, WEIR_STREAM_HOST));
    ok(weir_stream_release(late));
    ok(weir_stream_release(next));
    ok(weir_client_destroy(one));
    ok(weir_client_destroy(two));
    end_runtime();
}

static void test_no_block_is_reused_under_a_kernel(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        uint32_t kernel;
        size_t other;
        late_kernel(false, &kernel, &other);
        assert_int_equal(kernel, 0);
        assert_int_equal(other, 0);
    }
}

static void test_early_reuse_would_be_seen(void **state)
{
    (void)state;
    uint32_t kernel;
    size_t other;
    late_kernel(true, &kernel, &other);
    assert_true(kernel > 0);
    assert_true(other > 0);
}

/* A kernel runs on one client's block while another's growth maps and moves memory beside it. */
static void test_growth_beside_a_kernel(void **state)
{
    (void)state;
    make_runtime(64 * MIB);
    weir_client *one = open_client("one"), *two = open_client("two");
    weir_stream late;
    void *block, *wrong, *others[8];
    uint32_t kernel;
    ok(weir_stream_acquire(runtime, &late));
    ok(weir_alloc(one, 256, late, WEIR_CLASS_WEIGHTS, &wrong));
    ok(weir_alloc(one, 8 * MIB, late, WEIR_CLASS_ACTIVATIONS, &block));
    fill_now(wrong, 0, 256);
    ok(weir_fill(runtime, block, 0x44, 8 * MIB, late));
    launch(block, 8 * MIB, 100, 0x44, 0x55, wrong, late);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 8; i++)
            ok(weir_alloc(two, 3 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS, &others[i]));
        for (int i = 0; i < 8; i++)
            ok(weir_free(two, others[i], WEIR_STREAM_HOST));
        ok(weir_runtime_trim(runtime, NULL, NULL));
    }
    ok(weir_stream_synchronize(late));
    assert_int_equal(wrong_bytes(block, 0x55, 8 * MIB), 0);
    ok(weir_copy(runtime, &kernel, wrong, sizeof kernel, WEIR_STREAM_HOST));
    assert_int_equal(kernel, 0);
    ok(weir_free(one, block, late));
    ok(weir_free(one, wrong, late));
    ok(weir_stream_release(late));
    ok(weir_client_destroy(one));
    ok(weir_client_destroy(two));
    end_runtime();
}

int run_kernel_tests(void)
{
    const struct CMUnitTest kernels[] = {
        cmocka_unit_test(test_no_block_is_reused_under_a_kernel),
        cmocka_unit_test(test_early_reuse_would_be_seen),
        cmocka_unit_test(test_growth_beside_a_kernel),
    };
    return cmocka_run_group_tests(kernels, load_kernel, unload_kernel);
}
