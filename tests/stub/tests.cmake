# A libcuda.so.1 of our own, over host memory and threads, so that the cuda driver runs where no GPU is. Two more builds of it
# lack one function each. And over it what ONNX Runtime's CUDA provider and llama.cpp's CUDA module link to: the libraries of
# CUDA 13 by their names and symbol versions.
include_guard()
set(WEIR_STUB ${PROJECT_BINARY_DIR}/stub)

function(weir_stub name directory)
  set(files)
  foreach(file library control context memory single stream graph work hardware linked)
    list(APPEND files ${PROJECT_SOURCE_DIR}/tests/stub/cuda/${file}.c)
  endforeach()
  add_library(${name} SHARED ${files})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE ${ARGN})
  target_link_libraries(${name} PRIVATE Threads::Threads)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${directory})
endfunction()

weir_stub(stub-cuda ${WEIR_STUB}/cuda)
weir_stub(stub-cuda-lacking ${WEIR_STUB}/lacking STUB_LACKS=cuMemSetAccess)
# A driver from before CUDA 12 has no such name.
weir_stub(stub-cuda-old ${WEIR_STUB}/old cuGetProcAddress_v2=cuGetProcAddress_later)

# weir_stub_of_cuda(LIBRARY SOVERSION SOURCES… [DEFINITIONS …] [BESIDE directory])
function(weir_stub_of_cuda library soversion)
  cmake_parse_arguments(S "" "BESIDE" "DEFINITIONS" ${ARGN})
  if(NOT S_BESIDE)
    set(S_BESIDE cuda)
  endif()
  set(map ${PROJECT_BINARY_DIR}/stub/${library}.map)
  file(CONFIGURE OUTPUT ${map} CONTENT "lib${library}.so.${soversion} { global: *; };\n")
  list(TRANSFORM S_UNPARSED_ARGUMENTS PREPEND ${PROJECT_SOURCE_DIR}/tests/stub/cudart/)
  add_library(stub-${library} SHARED ${S_UNPARSED_ARGUMENTS})
  target_include_directories(stub-${library} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(stub-${library} PRIVATE _GNU_SOURCE ${S_DEFINITIONS})
  target_link_libraries(stub-${library} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(stub-${library} PRIVATE -Wl,--version-script=${map})
  set_target_properties(stub-${library} PROPERTIES OUTPUT_NAME ${library} SOVERSION ${soversion}
    LIBRARY_OUTPUT_DIRECTORY ${WEIR_STUB}/${S_BESIDE} LINK_DEPENDS ${map})
endfunction()

weir_stub_of_cuda(cudart 13 device.c memory.c stream.c kernel.c)
weir_stub_of_cuda(cublas 13 nothing.c DEFINITIONS LIBRARY=1)
weir_stub_of_cuda(cublasLt 13 nothing.c DEFINITIONS LIBRARY=2)
weir_stub_of_cuda(curand 10 nothing.c DEFINITIONS LIBRARY=3)
weir_stub_of_cuda(cudnn 9 nothing.c DEFINITIONS LIBRARY=4)
weir_stub_of_cuda(cufft 12 nothing.c DEFINITIONS LIBRARY=7)
add_custom_target(stub-provider DEPENDS stub-cuda stub-cudart stub-cublas stub-cublasLt stub-curand stub-cudnn stub-cufft)
# What ONNX Runtime's TensorRT provider links to besides, in a place of its own: without it the provider cannot be opened.
weir_stub_of_cuda(nvinfer 10 nothing.c DEFINITIONS LIBRARY=5 BESIDE tensorrt)
weir_stub_of_cuda(nvonnxparser 10 nothing.c DEFINITIONS LIBRARY=6 BESIDE tensorrt)
