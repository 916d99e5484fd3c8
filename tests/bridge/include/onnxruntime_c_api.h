/* Stands in for ONNX Runtime's own header of this name where none is installed: weir's declarations of its interface,
 * under its names, so that the examples are built and run everywhere. */
#ifndef TESTS_BRIDGE_ONNXRUNTIME_C_API_H
#define TESTS_BRIDGE_ONNXRUNTIME_C_API_H

#define ort_api             OrtApi
#define ort_base            OrtApiBase
#define ort_env             OrtEnv
#define ort_status          OrtStatus
#define ort_session         OrtSession
#define ort_session_options OrtSessionOptions
#define ort_run_options     OrtRunOptions
#define ort_value           OrtValue
#define ort_memory_info     OrtMemoryInfo
#define ort_type_info       OrtTypeInfo
#define ort_shape_info      OrtTensorTypeAndShapeInfo
#define ort_allocator       OrtAllocator
#define ort_cuda_options    OrtCUDAProviderOptionsV2
#include "onnx/bridge/api.h"

#define ORT_API_VERSION                     ORT_API_WANTED
#define ORT_LOGGING_LEVEL_ERROR             ORT_LOG_ERROR
#define OrtDeviceAllocator                  ORT_DEVICE_ALLOCATOR
#define OrtMemTypeDefault                   ORT_MEMORY_DEFAULT
#define ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT 1

const OrtApiBase *OrtGetApiBase(void);

#endif
