# The bridge to ONNX Runtime: over a fake one, over the real one on the CPU, and over its CUDA provider on the stub.
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
set(WEIR_STUB_DEVICE "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x20000000")

function(weir_bridge_test name)
  weir_test(bridge-${name} ${ARGN} LIBS ${CMAKE_DL_LIBS} Threads::Threads)
  target_include_directories(test-bridge-${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  add_dependencies(test-bridge-${name} stub-cuda)
endfunction()

# INTERNAL for the simulated device, which is no device for a bridge.
weir_bridge_test(steps bridge/steps.c bridge/fake.c INTERNAL)
add_test(NAME bridge-steps-stub COMMAND test-bridge-steps)
set_tests_properties(bridge-steps-stub PROPERTIES ENVIRONMENT "${WEIR_STUB_DEVICE}")

foreach(name streams table)
  weir_bridge_test(${name} bridge/${name}.c bridge/rig.c bridge/fake.c INTERNAL)
  set_tests_properties(bridge-${name} PROPERTIES ENVIRONMENT "${WEIR_STUB_DEVICE}")
endforeach()

# LeakSanitizer cannot see into ONNX Runtime, ThreadSanitizer neither: as with the engines.
foreach(name sessions threads)
  weir_bridge_test(${name} bridge/${name}.c bridge/ort.c LABELS engine)
  set_tests_properties(bridge-${name} PROPERTIES SKIP_RETURN_CODE 77)
endforeach()
# Exceptions pass through its frames.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/ort.c PROPERTIES COMPILE_OPTIONS -fexceptions)

# Kernels take a while, so that the device trails the host.
weir_bridge_test(provider bridge/provider.c bridge/ort.c LABELS engine)
set_tests_properties(bridge-provider PROPERTIES SKIP_RETURN_CODE 77
  ENVIRONMENT "${WEIR_STUB_DEVICE};STUB_CUDA_KERNEL_US=300")
add_dependencies(test-bridge-provider stub-provider)

# The examples, as their first lines say: they succeed, and print the last of the arguments.
function(weir_bridge_example name program environment)
  list(POP_BACK ARGN wanted)
  add_test(NAME bridge-example-${name} COMMAND sh -ec "answer=$(\"$0\" \"$@\"); echo \"$answer\"; echo \"$answer\" | grep -q '${wanted}'"
    $<TARGET_FILE:example-onnxruntime-${program}> ${ARGN})
  set_tests_properties(bridge-example-${name} PROPERTIES LABELS engine ENVIRONMENT "${environment}")
endfunction()
if(EXISTS ${WEIR_STORE_PATH}/engines/onnxruntime/current/libonnxruntime.so AND PROJECT_IS_TOP_LEVEL
   AND NOT CMAKE_CROSSCOMPILING)
  set(mlp ${PROJECT_SOURCE_DIR}/tests/data/onnx/mlp.onnx)
  weir_bridge_example(session session "" ${mlp} "^session  *[1-9]")
  if(EXISTS ${WEIR_STORE_PATH}/engines/onnxruntime-cuda/current/libonnxruntime.so)
    weir_bridge_example(cuda session
      "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/examples/cuda:${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x20000000"
      ${mlp} cuda "^session  *[1-9]")
  endif()
  if(TARGET weir-engine-gguf AND EXISTS ${WEIR_STORE_PATH}/models/minilm.gguf)
    weir_bridge_example(shared shared WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir ${mlp}
      ${WEIR_STORE_PATH}/models/minilm.gguf "a sentence" "^minilm.gguf  *[1-9]")
  endif()
endif()

# On a GPU by hand, and here on the stub.
add_executable(test-bridge-gpu ${CMAKE_CURRENT_LIST_DIR}/gpu.c ${CMAKE_CURRENT_LIST_DIR}/ort.c)
target_compile_definitions(test-bridge-gpu PRIVATE _GNU_SOURCE WEIR_TEST_STORE="${WEIR_STORE_PATH}")
target_include_directories(test-bridge-gpu PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(test-bridge-gpu PRIVATE weir weir_test_places PkgConfig::CMOCKA Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(test-bridge-gpu PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_dependencies(test-bridge-gpu stub-provider)
add_test(NAME bridge-gpu-stub COMMAND test-bridge-gpu ${PROJECT_SOURCE_DIR}/tests/data/onnx/copies.onnx 100 20)
set_tests_properties(bridge-gpu-stub PROPERTIES SKIP_RETURN_CODE 77 LABELS engine
  ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x80000000")
