/* The part of ONNX Runtime's C interface that weir uses, in own declarations: its table is append-only, so a slot keeps
 * its place in every later version, and a program that knows the places needs no header of theirs. tests/onnx compares
 * them with the real header where one is installed. Their functions answer NULL for success. */
#ifndef WI_ONNXRUNTIME_API_H
#define WI_ONNXRUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct ort_status ort_status;
typedef struct ort_env ort_env;
typedef struct ort_session ort_session;
typedef struct ort_session_options ort_session_options;
typedef struct ort_run_options ort_run_options;
typedef struct ort_value ort_value;
typedef struct ort_memory_info ort_memory_info;
typedef struct ort_type_info ort_type_info;
typedef struct ort_shape_info ort_shape_info; /* theirs: OrtTensorTypeAndShapeInfo */
typedef struct ort_stream ort_stream;         /* theirs: OrtSyncStream */
typedef struct ort_key_values ort_key_values; /* theirs: OrtKeyValuePairs */

typedef struct ort_binding ort_binding;           /* theirs: OrtIoBinding */
typedef struct ort_cuda_options ort_cuda_options; /* theirs: OrtCUDAProviderOptionsV2 */
typedef struct ort_tensorrt_options ort_tensorrt_options;
typedef struct ort_rocm_options ort_rocm_options;
typedef struct ort_subgraph ort_subgraph;           /* theirs: OrtEpAssignedSubgraph */
typedef struct ort_assigned_node ort_assigned_node; /* theirs: OrtEpAssignedNode */

/* The version whose table is asked for: what weir was checked against at the least. */
enum { ORT_API_WANTED = 23, ORT_ALLOCATOR_VERSION = 23, ORT_API_ASSIGNMENTS = 24 };

/* Its kernels on the CPU may read up to this many bytes past what they asked for (MLAS_SYMM_QGEMM_BUF_OVERRUN and the
 * like; onnxruntime 1.31). */
enum { ORT_SLACK = 64 };

enum { ORT_LOG_WARNING = 2, ORT_LOG_ERROR = 3, ORT_LOG_FATAL = 4 };
enum { ORT_DEVICE_ALLOCATOR = 0, ORT_MEMORY_PINNED = -1, ORT_MEMORY_DEFAULT = 0, ORT_KIND_TENSOR = 1 };
/* Status codes that are told apart. */
enum {
    ORT_FAIL_CODE = 1,
    ORT_INVALID_ARGUMENT_CODE = 2,
    ORT_INVALID_PROTOBUF_CODE = 7,
    ORT_NOT_IMPLEMENTED_CODE = 9,
    ORT_INVALID_GRAPH_CODE = 10
};

typedef struct ort_allocator ort_allocator;
struct ort_allocator {
    uint32_t version;
    void *(*Alloc)(ort_allocator *self, size_t size);
    void (*Free)(ort_allocator *self, void *pointer);
    const ort_memory_info *(*Info)(const ort_allocator *self);
    void *(*Reserve)(ort_allocator *self, size_t size);                           /* since 18 */
    ort_status *(*GetStats)(const ort_allocator *self, ort_key_values **out);     /* since 23; may be NULL */
    void *(*AllocOnStream)(ort_allocator *self, size_t size, ort_stream *stream); /* since 23; may be NULL */
    void *later[8]; /* room for what newer versions append: a library that looked there would find NULL */
};

typedef void (*ort_log_fn)(void *user, int severity, const char *category, const char *log_id, const char *place,
                           const char *message);

#define ORT_SKIP(from, to) void *skip_##from[(to) - (from) + 1]

typedef struct ort_api {
    ort_status *(*CreateStatus)(int code, const char *message);
    int (*GetErrorCode)(const ort_status *status);
    const char *(*GetErrorMessage)(const ort_status *status);
    ort_status *(*CreateEnv)(int severity, const char *log_id, ort_env **out);
    ort_status *(*CreateEnvWithCustomLogger)(ort_log_fn log, void *user, int severity, const char *log_id,
                                             ort_env **out);
    ORT_SKIP(5, 6);
    ort_status *(*CreateSession)(const ort_env *env, const char *path, const ort_session_options *options,
                                 ort_session **out);
    ort_status *(*CreateSessionFromArray)(const ort_env *env, const void *model, size_t size,
                                          const ort_session_options *options, ort_session **out);
    ort_status *(*Run)(ort_session *session, const ort_run_options *options, const char *const *input_names,
                       const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                       size_t output_count, ort_value **outputs);
    ort_status *(*CreateSessionOptions)(ort_session_options **out);
    ORT_SKIP(11, 16);
    ort_status *(*DisableMemPattern)(ort_session_options *options);
    ORT_SKIP(18, 18);
    ort_status *(*DisableCpuMemArena)(ort_session_options *options);
    ORT_SKIP(20, 22);
    ort_status *(*SetSessionGraphOptimizationLevel)(ort_session_options *options, int level);
    ort_status *(*SetIntraOpNumThreads)(ort_session_options *options, int threads);
    ORT_SKIP(25, 29);
    ort_status *(*SessionGetInputCount)(const ort_session *session, size_t *out);
    ort_status *(*SessionGetOutputCount)(const ort_session *session, size_t *out);
    ort_status *(*SessionGetOverridableInitializerCount)(const ort_session *session, size_t *out);
    ort_status *(*SessionGetInputTypeInfo)(const ort_session *session, size_t index, ort_type_info **out);
    ort_status *(*SessionGetOutputTypeInfo)(const ort_session *session, size_t index, ort_type_info **out);
    ort_status *(*SessionGetOverridableInitializerTypeInfo)(const ort_session *session, size_t index,
                                                            ort_type_info **out);
    ort_status *(*SessionGetInputName)(const ort_session *session, size_t index, ort_allocator *allocator, char **out);
    ort_status *(*SessionGetOutputName)(const ort_session *session, size_t index, ort_allocator *allocator, char **out);
    ort_status *(*SessionGetOverridableInitializerName)(const ort_session *session, size_t index,
                                                        ort_allocator *allocator, char **out);
    ort_status *(*CreateRunOptions)(ort_run_options **out);
    ORT_SKIP(40, 45);
    ort_status *(*RunOptionsSetTerminate)(ort_run_options *options);
    ORT_SKIP(47, 47);
    ort_status *(*CreateTensorAsOrtValue)(ort_allocator *allocator, const int64_t *shape, size_t rank, int type,
                                          ort_value **out);
    ort_status *(*CreateTensorWithDataAsOrtValue)(const ort_memory_info *info, void *data, size_t bytes,
                                                  const int64_t *shape, size_t rank, int type, ort_value **out);
    ORT_SKIP(50, 50);
    ort_status *(*GetTensorMutableData)(ort_value *value, void **out);
    ORT_SKIP(52, 54);
    ort_status *(*CastTypeInfoToTensorInfo)(const ort_type_info *info, const ort_shape_info **out);
    ort_status *(*GetOnnxTypeFromTypeInfo)(const ort_type_info *info, int *out);
    ORT_SKIP(57, 59);
    ort_status *(*GetTensorElementType)(const ort_shape_info *info, int *out);
    ort_status *(*GetDimensionsCount)(const ort_shape_info *info, size_t *out);
    ort_status *(*GetDimensions)(const ort_shape_info *info, int64_t *shape, size_t rank);
    ORT_SKIP(63, 64);
    ort_status *(*GetTensorTypeAndShape)(const ort_value *value, ort_shape_info **out);
    ORT_SKIP(66, 66);
    ort_status *(*GetValueType)(const ort_value *value, int *out);
    ort_status *(*CreateMemoryInfo)(const char *name, int allocator_type, int device_id, int memory_type,
                                    ort_memory_info **out);
    ort_status *(*CreateCpuMemoryInfo)(int allocator_type, int memory_type, ort_memory_info **out);
    ORT_SKIP(70, 75);
    ort_status *(*AllocatorFree)(ort_allocator *allocator, void *pointer);
    ORT_SKIP(77, 77);
    ort_status *(*GetAllocatorWithDefaultOptions)(ort_allocator **out);
    ORT_SKIP(79, 91);
    void (*ReleaseEnv)(ort_env *env);
    void (*ReleaseStatus)(ort_status *status);
    void (*ReleaseMemoryInfo)(ort_memory_info *info);
    void (*ReleaseSession)(ort_session *session);
    void (*ReleaseValue)(ort_value *value);
    void (*ReleaseRunOptions)(ort_run_options *options);
    void (*ReleaseTypeInfo)(ort_type_info *info);
    void (*ReleaseTensorTypeAndShapeInfo)(ort_shape_info *info);
    void (*ReleaseSessionOptions)(ort_session_options *options);
    ORT_SKIP(101, 124);
    ort_status *(*GetAvailableProviders)(char ***out, int *count);
    ort_status *(*ReleaseAvailableProviders)(char **list, int count);
    ORT_SKIP(127, 129);
    ort_status *(*AddSessionConfigEntry)(ort_session_options *options, const char *key, const char *value);
    ort_status *(*CreateAllocator)(const ort_session *session, const ort_memory_info *info, ort_allocator **out);
    void (*ReleaseAllocator)(ort_allocator *allocator);
    ort_status *(*RunWithBinding)(ort_session *session, const ort_run_options *options, const ort_binding *binding);
    ort_status *(*CreateIoBinding)(ort_session *session, ort_binding **out);
    void (*ReleaseIoBinding)(ort_binding *binding);
    ort_status *(*BindInput)(ort_binding *binding, const char *name, const ort_value *value);
    ort_status *(*BindOutput)(ort_binding *binding, const char *name, const ort_value *value);
    ort_status *(*BindOutputToDevice)(ort_binding *binding, const char *name, const ort_memory_info *where);
    ORT_SKIP(139, 139);
    ort_status *(*GetBoundOutputValues)(const ort_binding *binding, ort_allocator *allocator, ort_value ***out,
                                        size_t *count);
    ORT_SKIP(141, 143);
    ort_status *(*CreateAndRegisterAllocator)(ort_env *env, const ort_memory_info *info, const void *arena);
    ORT_SKIP(145, 149);
    ort_status *(*AddInitializer)(ort_session_options *options, const char *name, const ort_value *value);
    ORT_SKIP(151, 152);
    ort_status *(*SessionOptionsAppendExecutionProvider_ROCM)(ort_session_options *options,
                                                              const ort_rocm_options *rocm);
    ORT_SKIP(154, 164);
    ort_status *(*AddRunConfigEntry)(ort_run_options *options, const char *key, const char *value);
    ORT_SKIP(166, 169);
    ort_status *(*SessionOptionsAppendExecutionProvider_TensorRT_V2)(ort_session_options *options,
                                                                     const ort_tensorrt_options *tensorrt);
    ort_status *(*CreateTensorRTProviderOptions)(ort_tensorrt_options **out);
    ort_status *(*UpdateTensorRTProviderOptions)(ort_tensorrt_options *options, const char *const *keys,
                                                 const char *const *values, size_t count);
    ORT_SKIP(173, 173);
    void (*ReleaseTensorRTProviderOptions)(ort_tensorrt_options *options);
    ORT_SKIP(175, 175);
    ort_status *(*RegisterAllocator)(ort_env *env, ort_allocator *allocator);
    ort_status *(*UnregisterAllocator)(ort_env *env, const ort_memory_info *info);
    ORT_SKIP(178, 194);
    ort_status *(*GetExecutionProviderApi)(const char *provider, uint32_t version, const void **out);
    ORT_SKIP(196, 203);
    ort_status *(*SessionOptionsAppendExecutionProvider_CUDA_V2)(ort_session_options *options,
                                                                 const ort_cuda_options *cuda);
    ort_status *(*CreateCUDAProviderOptions)(ort_cuda_options **out);
    ort_status *(*UpdateCUDAProviderOptions)(ort_cuda_options *options, const char *const *keys,
                                             const char *const *values, size_t count);
    ORT_SKIP(207, 207);
    void (*ReleaseCUDAProviderOptions)(ort_cuda_options *options);
    ORT_SKIP(209, 215);
    ort_status *(*SessionOptionsAppendExecutionProvider)(ort_session_options *options, const char *provider,
                                                         const char *const *keys, const char *const *values,
                                                         size_t count);
    ORT_SKIP(217, 254);
    ort_status *(*CreateROCMProviderOptions)(ort_rocm_options **out);
    ort_status *(*UpdateROCMProviderOptions)(ort_rocm_options *options, const char *const *keys,
                                             const char *const *values, size_t count);
    ORT_SKIP(257, 257);
    void (*ReleaseROCMProviderOptions)(ort_rocm_options *options);
    ORT_SKIP(259, 260);
    ort_status *(*UpdateTensorRTProviderOptionsWithValue)(ort_tensorrt_options *options, const char *key, void *value);
    ORT_SKIP(262, 262);
    ort_status *(*UpdateCUDAProviderOptionsWithValue)(ort_cuda_options *options, const char *key, void *value);
    ORT_SKIP(264, 274);
    ort_status *(*SessionOptionsAppendExecutionProvider_OpenVINO_V2)(ort_session_options *options,
                                                                     const char *const *keys, const char *const *values,
                                                                     size_t count);
    ORT_SKIP(276, 294);
    void (*CreateKeyValuePairs)(ort_key_values **out);
    void (*AddKeyValuePair)(ort_key_values *pairs, const char *key, const char *value);
    const char *(*GetKeyValue)(const ort_key_values *pairs, const char *key);
    ORT_SKIP(298, 299);
    void (*ReleaseKeyValuePairs)(ort_key_values *pairs);
    ORT_SKIP(301, 375);
    ort_status *(*GetSharedAllocator)(ort_env *env, const ort_memory_info *info, ort_allocator **out);
    ORT_SKIP(377, 383);
    void *(*SyncStream_GetHandle)(ort_stream *stream);
    ORT_SKIP(385, 406);
    /* Since 24: what was assigned to whom, where session.record_ep_graph_assignment_info was set. The session's. */
    ort_status *(*Session_GetEpGraphAssignmentInfo)(const ort_session *session, const ort_subgraph *const **out,
                                                    size_t *count);
    ort_status *(*EpAssignedSubgraph_GetEpName)(const ort_subgraph *subgraph, const char **out);
    ort_status *(*EpAssignedSubgraph_GetNodes)(const ort_subgraph *subgraph, const ort_assigned_node *const **out,
                                               size_t *count);
    ORT_SKIP(410, 411);
    ort_status *(*EpAssignedNode_GetOperatorType)(const ort_assigned_node *node, const char **out);
} ort_api;

#undef ORT_SKIP

typedef struct ort_base {
    const ort_api *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} ort_base;

/* Every slot that is called, with its number; the test against the real header reads this list too. */
/* clang-format off */
#define ORT_SLOTS(slot)                                                                                                \
    slot(CreateStatus, 0)                                                                                              \
    slot(GetErrorCode, 1)                                                                                              \
    slot(GetErrorMessage, 2)                                                                                           \
    slot(CreateEnv, 3)                                                                                                 \
    slot(CreateEnvWithCustomLogger, 4)                                                                                 \
    slot(CreateSession, 7)                                                                                             \
    slot(CreateSessionFromArray, 8)                                                                                    \
    slot(Run, 9)                                                                                                       \
    slot(CreateSessionOptions, 10)                                                                                     \
    slot(DisableMemPattern, 17)                                                                                        \
    slot(DisableCpuMemArena, 19)                                                                                       \
    slot(SetSessionGraphOptimizationLevel, 23)                                                                         \
    slot(SetIntraOpNumThreads, 24)                                                                                     \
    slot(SessionGetInputCount, 30)                                                                                     \
    slot(SessionGetOutputCount, 31)                                                                                    \
    slot(SessionGetOverridableInitializerCount, 32)                                                                    \
    slot(SessionGetInputTypeInfo, 33)                                                                                  \
    slot(SessionGetOutputTypeInfo, 34)                                                                                 \
    slot(SessionGetOverridableInitializerTypeInfo, 35)                                                                 \
    slot(SessionGetInputName, 36)                                                                                      \
    slot(SessionGetOutputName, 37)                                                                                     \
    slot(SessionGetOverridableInitializerName, 38)                                                                     \
    slot(CreateRunOptions, 39)                                                                                         \
    slot(RunOptionsSetTerminate, 46)                                                                                   \
    slot(CreateTensorAsOrtValue, 48)                                                                                   \
    slot(CreateTensorWithDataAsOrtValue, 49)                                                                           \
    slot(GetTensorMutableData, 51)                                                                                     \
    slot(CastTypeInfoToTensorInfo, 55)                                                                                 \
    slot(GetOnnxTypeFromTypeInfo, 56)                                                                                  \
    slot(GetTensorElementType, 60)                                                                                     \
    slot(GetDimensionsCount, 61)                                                                                       \
    slot(GetDimensions, 62)                                                                                            \
    slot(GetTensorTypeAndShape, 65)                                                                                    \
    slot(GetValueType, 67)                                                                                             \
    slot(CreateMemoryInfo, 68)                                                                                         \
    slot(CreateCpuMemoryInfo, 69)                                                                                      \
    slot(AllocatorFree, 76)                                                                                            \
    slot(GetAllocatorWithDefaultOptions, 78)                                                                           \
    slot(ReleaseEnv, 92)                                                                                               \
    slot(ReleaseStatus, 93)                                                                                            \
    slot(ReleaseMemoryInfo, 94)                                                                                        \
    slot(ReleaseSession, 95)                                                                                           \
    slot(ReleaseValue, 96)                                                                                             \
    slot(ReleaseRunOptions, 97)                                                                                        \
    slot(ReleaseTypeInfo, 98)                                                                                          \
    slot(ReleaseTensorTypeAndShapeInfo, 99)                                                                            \
    slot(ReleaseSessionOptions, 100)                                                                                   \
    slot(GetAvailableProviders, 125)                                                                                   \
    slot(ReleaseAvailableProviders, 126)                                                                               \
    slot(AddSessionConfigEntry, 130)                                                                                   \
    slot(CreateAllocator, 131)                                                                                         \
    slot(ReleaseAllocator, 132)                                                                                        \
    slot(RunWithBinding, 133)                                                                                          \
    slot(CreateIoBinding, 134)                                                                                         \
    slot(ReleaseIoBinding, 135)                                                                                        \
    slot(BindInput, 136)                                                                                               \
    slot(BindOutput, 137)                                                                                              \
    slot(BindOutputToDevice, 138)                                                                                      \
    slot(GetBoundOutputValues, 140)                                                                                    \
    slot(CreateAndRegisterAllocator, 144)                                                                              \
    slot(AddInitializer, 150)                                                                                          \
    slot(SessionOptionsAppendExecutionProvider_ROCM, 153)                                                              \
    slot(AddRunConfigEntry, 165)                                                                                       \
    slot(SessionOptionsAppendExecutionProvider_TensorRT_V2, 170)                                                       \
    slot(CreateTensorRTProviderOptions, 171)                                                                           \
    slot(UpdateTensorRTProviderOptions, 172)                                                                           \
    slot(ReleaseTensorRTProviderOptions, 174)                                                                          \
    slot(RegisterAllocator, 176)                                                                                       \
    slot(UnregisterAllocator, 177)                                                                                     \
    slot(GetExecutionProviderApi, 195)                                                                                 \
    slot(SessionOptionsAppendExecutionProvider_CUDA_V2, 204)                                                           \
    slot(CreateCUDAProviderOptions, 205)                                                                               \
    slot(UpdateCUDAProviderOptions, 206)                                                                               \
    slot(ReleaseCUDAProviderOptions, 208)                                                                              \
    slot(SessionOptionsAppendExecutionProvider, 216)                                                                   \
    slot(CreateROCMProviderOptions, 255)                                                                               \
    slot(UpdateROCMProviderOptions, 256)                                                                               \
    slot(ReleaseROCMProviderOptions, 258)                                                                              \
    slot(UpdateTensorRTProviderOptionsWithValue, 261)                                                                  \
    slot(UpdateCUDAProviderOptionsWithValue, 263)                                                                      \
    slot(SessionOptionsAppendExecutionProvider_OpenVINO_V2, 275)
/* Functions added by the versions 22, 23 and 24. */
#define ORT_SLOTS_LATER(slot)                                                                                          \
    slot(CreateKeyValuePairs, 295)                                                                                     \
    slot(AddKeyValuePair, 296)                                                                                         \
    slot(GetKeyValue, 297)                                                                                             \
    slot(ReleaseKeyValuePairs, 300)                                                                                    \
    slot(GetSharedAllocator, 376)                                                                                      \
    slot(SyncStream_GetHandle, 384)                                                                                    \
    slot(Session_GetEpGraphAssignmentInfo, 407)                                                                        \
    slot(EpAssignedSubgraph_GetEpName, 408)                                                                            \
    slot(EpAssignedSubgraph_GetNodes, 409)                                                                             \
    slot(EpAssignedNode_GetOperatorType, 412)
/* clang-format on */

#define ORT_CHECK_SLOT(name, number)                                                                                   \
    _Static_assert(offsetof(ort_api, name) == (number) * sizeof(void *), "slot of " #name);
ORT_SLOTS(ORT_CHECK_SLOT)
ORT_SLOTS_LATER(ORT_CHECK_SLOT)
#undef ORT_CHECK_SLOT

#endif
