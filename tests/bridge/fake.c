/* See fake.h. */
#include "fake.h"
#include <weir/onnxruntime.h>

#include <dlfcn.h>

fake fake_ort;

struct ort_memory_info {
    bool pinned;
    int device;
};

static ort_status *failed(bool yes)
{
    return yes ? (ort_status *)&fake_ort : NULL;
}

static int code_of(const ort_status *status)
{
    (void)status;
    return 1;
}

static const char *message_of(const ort_status *status)
{
    (void)status;
    return "words of\nONNX Runtime";
}

static void release_status(ort_status *status)
{
    assert_ptr_equal(status, &fake_ort);
}

ort_env *fake_env(void)
{
    return (ort_env *)&fake_ort.env_users;
}

static ort_status *create_env(int severity, const char *log_id, ort_env **out)
{
    (void)severity;
    (void)log_id;
    if (fake_ort.fail.CreateEnv)
        return failed(true);
    *out = fake_ort.another_env ? (ort_env *)&fake_ort.infos : fake_env();
    fake_ort.env_users++;
    return NULL;
}

static void release_env(ort_env *env)
{
    assert_non_null(env);
    fake_ort.env_users--;
}

static ort_status *make_info(bool pinned, int device, bool fails, ort_memory_info **out)
{
    if (fails && (pinned || !fake_ort.fail.pinned_only))
        return failed(true);
    *out = malloc(sizeof **out);
    **out = (ort_memory_info){pinned, device};
    fake_ort.infos++;
    return NULL;
}

static ort_status *create_memory_info(const char *name, int type, int device, int memory_type, ort_memory_info **out)
{
    assert_int_equal(type, ORT_DEVICE_ALLOCATOR);
    assert_true(device == 0 || device == 1);
    bool pinned = strcmp(name, "CudaPinned") == 0;
    assert_true(pinned || strcmp(name, "Cuda") == 0);
    assert_int_equal(memory_type, pinned ? ORT_MEMORY_PINNED : ORT_MEMORY_DEFAULT);
    return make_info(pinned, device, fake_ort.fail.CreateMemoryInfo, out);
}

static ort_status *create_cpu_info(int type, int memory_type, ort_memory_info **out)
{
    assert_int_equal(type, ORT_DEVICE_ALLOCATOR);
    assert_int_equal(memory_type, ORT_MEMORY_DEFAULT);
    return make_info(false, 0, fake_ort.fail.CreateCpuMemoryInfo, out);
}

static void release_info(ort_memory_info *info)
{
    fake_ort.infos--;
    free(info);
}

static ort_allocator **slot(const ort_memory_info *info)
{
    if (info->device)
        return info->pinned ? &fake_ort.pinned_1 : &fake_ort.device_1;
    return info->pinned ? &fake_ort.pinned : &fake_ort.device;
}

static ort_status *register_allocator(ort_env *env, ort_allocator *allocator)
{
    assert_ptr_equal(env, fake_env());
    const ort_memory_info *info = allocator->Info(allocator);
    if (fake_ort.fail.RegisterAllocator && (info->pinned || !fake_ort.fail.pinned_only))
        return failed(true);
    *slot(info) = allocator;
    fake_ort.registered++;
    return NULL;
}

static ort_status *unregister_allocator(ort_env *env, const ort_memory_info *info)
{
    assert_ptr_equal(env, fake_env());
    if (fake_ort.fail.UnregisterAllocator && (info->pinned || !fake_ort.fail.pinned_only))
        return failed(true);
    *slot(info) = NULL;
    fake_ort.unregistered++;
    return NULL;
}

static ort_status *get_shared(ort_env *env, const ort_memory_info *info, ort_allocator **out)
{
    assert_ptr_equal(env, fake_env());
    *out = *slot(info);
    return NULL;
}

static void *native_of(ort_stream *stream)
{
    return *(void **)stream;
}

ort_stream *fake_stream(void **native)
{
    return (ort_stream *)native;
}

const ort_api fake_api = {.GetErrorCode = code_of,
                          .GetErrorMessage = message_of,
                          .ReleaseStatus = release_status,
                          .CreateEnv = create_env,
                          .ReleaseEnv = release_env,
                          .CreateMemoryInfo = create_memory_info,
                          .CreateCpuMemoryInfo = create_cpu_info,
                          .ReleaseMemoryInfo = release_info,
                          .RegisterAllocator = register_allocator,
                          .UnregisterAllocator = unregister_allocator,
                          .GetSharedAllocator = get_shared,
                          .SyncStream_GetHandle = native_of};

void fake_reset(void)
{
    assert_int_equal(fake_ort.env_users, 0);
    assert_null(fake_ort.device);
    assert_null(fake_ort.pinned);
    assert_null(fake_ort.device_1);
    assert_null(fake_ort.pinned_1);
    memset(&fake_ort, 0, sizeof fake_ort);
}

void load_cxx(void)
{
    assert_non_null(dlopen("libstdc++.so.6", RTLD_NOW));
}

weir_onnxruntime_options fake_options(weir_client *client, weir_stream stream)
{
    return (weir_onnxruntime_options){.struct_size = sizeof(weir_onnxruntime_options),
                                      .api = (const struct OrtApi *)&fake_api,
                                      .version = WEIR_ONNXRUNTIME_OLDEST,
                                      .env = (struct OrtEnv *)fake_env(),
                                      .client = client,
                                      .stream = stream};
}
