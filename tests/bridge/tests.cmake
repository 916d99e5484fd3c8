# The bridge to ONNX Runtime: over a fake one, over the real one on the CPU, and over its CUDA provider on the stub.
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
set(WEIR_STUB_DEVICE "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x20000000")

function(weir_bridge_test name)
  weir_test(bridge-${name} ${ARGN} LIBS ${CMAKE_DL_LIBS} Threads::Threads)
  target_include_directories(test-bridge-${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  add_dependencies(test-bridge-${name} stub-cuda)
endfunction()

weir_bridge_test(steps bridge/steps.c bridge/fake.c)
add_test(NAME bridge-steps-stub COMMAND test-bridge-steps)
set_tests_properties(bridge-steps-stub PROPERTIES TIMEOUT 120 ENVIRONMENT "${WEIR_STUB_DEVICE}")

weir_bridge_test(streams bridge/streams.c bridge/fake.c INTERNAL)
set_tests_properties(bridge-streams PROPERTIES TIMEOUT 120 ENVIRONMENT "${WEIR_STUB_DEVICE}")

# LeakSanitizer cannot see into ONNX Runtime, ThreadSanitizer neither: as with the engines.
foreach(name sessions threads)
  weir_bridge_test(${name} bridge/${name}.c bridge/ort.c LABELS engine)
  set_tests_properties(bridge-${name} PROPERTIES SKIP_RETURN_CODE 77)
endforeach()
# Exceptions pass through its frames.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/sessions.c PROPERTIES COMPILE_OPTIONS -fexceptions)

# Kernels take a while, so that the device trails the host.
weir_bridge_test(provider bridge/provider.c bridge/ort.c LABELS engine)
set_tests_properties(bridge-provider PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300
  ENVIRONMENT "${WEIR_STUB_DEVICE};STUB_CUDA_KERNEL_US=300")
add_dependencies(test-bridge-provider stub-provider)
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/provider.c PROPERTIES COMPILE_OPTIONS -fexceptions)
