# The command, from the outside. Two engines are built by these tests with the plain compiler.
find_package(Python3 COMPONENTS Interpreter)
if(NOT TARGET weir_command OR NOT Python3_FOUND OR CMAKE_CROSSCOMPILING)
  return()
endif()
include(${CMAKE_CURRENT_LIST_DIR}/replay.cmake)
foreach(part words run run_chosen npy files engines devices bench replay plan check explain stored llm)
  add_test(NAME cli-${part} COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_STORE=${WEIR_STORE_PATH} WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_${part}.py)
  set_tests_properties(cli-${part} PROPERTIES TIMEOUT 300 LABELS cli)
endforeach()
set_tests_properties(cli-engines cli-llm PROPERTIES LABELS "cli;engine")
# On a device of CUDA's with ONNX Runtime: by scripts/gpu-onnx a GPU, here the stub.
if(TARGET weir-engine-onnx AND NOT WEIR_SANITIZE)
  include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
  add_test(NAME cli-run-device COMMAND ${CMAKE_COMMAND} -E env WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_STORE=${WEIR_STORE_PATH} LD_LIBRARY_PATH=${WEIR_STUB}/cuda STUB_CUDA_TOTAL=0x100000000
    ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_run_device.py)
  set_tests_properties(cli-run-device PROPERTIES TIMEOUT 300 LABELS "cli;engine")
endif()
# The same with ONNX Runtime GenAI, on a store of which the library for CUDA is made up.
if(TARGET weir-engine-llm AND NOT WEIR_SANITIZE)
  add_test(NAME cli-run-llm COMMAND ${CMAKE_COMMAND} -E env WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_STORE=${WEIR_STORE_PATH} LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda STUB_CUDA_TOTAL=0x40000000
    ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_run_llm.py)
  set_tests_properties(cli-run-llm PROPERTIES TIMEOUT 300 LABELS "cli;engine")
endif()
# The same with llama.cpp, whose library for CUDA is made by its name alone (scripts/engines --cuda llama-cuda): skipped without it.
if(TARGET weir-engine-gguf AND TARGET weir-engine-onnx AND NOT WEIR_SANITIZE AND
   EXISTS ${WEIR_STORE_PATH}/engines/llama-cuda/current/lib/libggml-cuda.so)
  include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
  add_test(NAME cli-run-gguf COMMAND ${CMAKE_COMMAND} -E env WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_STORE=${WEIR_STORE_PATH} LD_LIBRARY_PATH=${WEIR_STUB}/cuda STUB_CUDA_TOTAL=0x40000000
    ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_run_gguf.py)
  set_tests_properties(cli-run-gguf PROPERTIES TIMEOUT 300 LABELS "cli;engine")
endif()
