/* See rig.h. */
#include "info.h"
#include "rig.h"
#include <weir/onnxruntime.h>

#include <dlfcn.h>

stub_control control;
int errors, warnings;
char said[512];

static void listen(weir_log_level level, const char *text, void *user)
{
    (void)user;
    errors += level == WEIR_LOG_ERROR;
    warnings += level == WEIR_LOG_WARNING;
    snprintf(said, sizeof said, "%s", text);
}

/* Native streams
 * ---------------------------------------------------------------------------------------------------- */

void enter(const fixture *f)
{
    assert_int_equal(wi_cuda.cuCtxPushCurrent(runtime_details(f->runtime).native), CUDA_SUCCESS);
}

void leave(void)
{
    CUcontext popped;
    assert_int_equal(wi_cuda.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
}

void *make_native(const fixture *f)
{
    CUstream native = NULL;
    enter(f);
    assert_int_equal(wi_cuda.cuStreamCreate(&native, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    leave();
    return native;
}

void drop_native(const fixture *f, void *native)
{
    enter(f);
    assert_int_equal(wi_cuda.cuStreamSynchronize(native), CUDA_SUCCESS);
    assert_int_equal(wi_cuda.cuStreamDestroy(native), CUDA_SUCCESS);
    leave();
}

void hold(const fixture *f, void *native, gate *g)
{
    enter(f);
    assert_int_equal(wi_cuda.cuLaunchHostFunc(native, pass_gate, g), CUDA_SUCCESS);
    leave();
}

void fill(const fixture *f, void *native, void *to, unsigned char value, size_t bytes)
{
    enter(f);
    assert_int_equal(wi_cuda.cuMemsetD8Async((CUdeviceptr)(uintptr_t)to, value, bytes, native), CUDA_SUCCESS);
    leave();
}

void synchronize(const fixture *f, void *native)
{
    enter(f);
    assert_int_equal(wi_cuda.cuStreamSynchronize(native), CUDA_SUCCESS);
    leave();
}

bool holds(const void *block, unsigned char value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)block)[i] != value)
            return false;
    return true;
}

void *alloc_on(const fixture *f, void *native, size_t bytes)
{
    return f->table->AllocOnStream(f->table, bytes, fake_stream(&native));
}

/* ------------------------------------------------------------------------------------------------------------------ */

jmp_buf refused_at;

void jump(void)
{
    longjmp(refused_at, 1);
}

fixture begin_on(weir_runtime *runtime, bool known)
{
    fixture f = {.runtime = runtime};
    f.a = open_client(f.runtime, "anna", 0, 0);
    f.b = open_client(f.runtime, "bert", 0, 0);
    if (known)
        ok(weir_stream_acquire(f.runtime, &f.known));
    weir_onnxruntime_options o = fake_options(f.a, f.known);
    ok(weir_onnxruntime_create(&o, &f.bridge));
    f.bridge->throw_bad_alloc = jump;
    f.table = (ort_allocator *)bridge_allocator(f.bridge, WEIR_KIND_DEVICE);
    errors = warnings = 0;
    assert_int_equal(weir_log_set(listen, NULL, WEIR_LOG_WARNING), WEIR_OK);
    return f;
}

fixture begin(uint64_t budget, bool known)
{
    return begin_on(make_runtime_on("cuda:0", budget), known);
}

void end(fixture *f)
{
    ok(weir_onnxruntime_destroy(f->bridge));
    if (f->known.id)
        ok(weir_stream_release(f->known));
    ok(weir_client_destroy(f->a));
    ok(weir_client_destroy(f->b));
    check_empty(f->runtime);
    ok(weir_runtime_destroy(f->runtime));
    assert_int_equal(weir_log_set(NULL, NULL, WEIR_LOG_OFF), WEIR_OK);
    assert_int_equal(control.stub_count("streams"), 0);
    fake_reset();
}

weir_onnxruntime_details stats(const fixture *f)
{
    weir_onnxruntime_details s = WEIR_INIT(weir_onnxruntime_details);
    ok(weir_onnxruntime_info(f->bridge, &s));
    return s;
}

int rig_find_stub(void **state)
{
    (void)state;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || wi_cuda_load() != WEIR_OK)
        return -1;
#define X(type, name, parameters) *(void **)&control.name = dlsym(library, #name);
    STUB_CONTROLS(X)
#undef X
    load_cxx();
    return control.stub_fail ? 0 : -1;
}
