# The command, from the outside. Two engines are built by these tests with the plain compiler.
if(NOT TARGET weir_command OR NOT Python3_FOUND OR CMAKE_CROSSCOMPILING)
  return()
endif()
include(${CMAKE_CURRENT_LIST_DIR}/replay.cmake)
foreach(part words run run_chosen npy files engines devices bench replay traces report pages export memory_viz plan check explain stored llm run_aside run_refused)
  add_test(NAME cli-${part} COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_STORE=${WEIR_STORE_PATH} WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_${part}.py)
  set_tests_properties(cli-${part} PROPERTIES LABELS cli)
endforeach()
weir_test(cli-text ${CMAKE_CURRENT_LIST_DIR}/text.c ${PROJECT_SOURCE_DIR}/src/cli/text.c INTERNAL LIBS PkgConfig::JANSSON LABELS cli)
if(TARGET weir_serve)
  foreach(part serve_page serve_config serve_hostile packaging remote)
    if(NOT part STREQUAL remote OR CURL_FOUND)
      add_test(NAME cli-${part} COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
        WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_${part}.py)
      set_tests_properties(cli-${part} PROPERTIES LABELS cli)
    endif()
  endforeach()
  add_test(NAME cli-serve COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_STORE=${WEIR_STORE_PATH} WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_serve.py)
  set_tests_properties(cli-serve PROPERTIES LABELS "cli;engine")
  add_test(NAME cli-ollama COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_STORE=${WEIR_STORE_PATH} WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_ollama.py)
  set_tests_properties(cli-ollama PROPERTIES LABELS cli)
  # Clients of others', with the Python that has them; it is found when the test runs.
  add_test(NAME cli-clients COMMAND ${CMAKE_COMMAND} -E env WEIR_TEST_BINARY=${PROJECT_BINARY_DIR} WEIR_TEST_STORE=${WEIR_STORE_PATH}
    ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_clients.py)
  set_tests_properties(cli-clients PROPERTIES LABELS "cli;engine")
  add_test(NAME cli-serve_hostile-long COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_SANITIZE=${WEIR_SANITIZE} WEIR_TEST_SECONDS=1800 ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_serve_hostile.py)
  set_tests_properties(cli-serve_hostile-long PROPERTIES LABELS "cli;long")
  add_test(NAME cli-openapi COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_openapi.py)
  set_tests_properties(cli-openapi PROPERTIES LABELS cli)
  add_test(NAME cli-openapi-fuzz COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_STORE=${WEIR_STORE_PATH} WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/fuzz_openapi.py)
  set_tests_properties(cli-openapi-fuzz PROPERTIES LABELS "cli;long")
endif()
# Models made by the packages that people make theirs with.
if(EXISTS ${WEIR_STORE_PATH}/venv/bin/python AND NOT WEIR_SANITIZE)
  add_test(NAME cli-odd_models COMMAND ${CMAKE_COMMAND} -E env WEIR_TEST_BINARY=${PROJECT_BINARY_DIR} WEIR_TEST_STORE=${WEIR_STORE_PATH}
    ${WEIR_STORE_PATH}/venv/bin/python -B ${CMAKE_CURRENT_LIST_DIR}/test_odd_models.py)
  set_tests_properties(cli-odd_models PROPERTIES LABELS "cli;engine")
endif()
set_tests_properties(cli-engines cli-llm cli-run_aside cli-run_refused PROPERTIES LABELS "cli;engine")
# On a device of CUDA's with ONNX Runtime: by scripts/gpu-onnx a GPU, here the stub.
if(TARGET weir-engine-onnx AND NOT WEIR_SANITIZE)
  include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
  add_test(NAME cli-run-device COMMAND ${CMAKE_COMMAND} -E env WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_STORE=${WEIR_STORE_PATH} LD_LIBRARY_PATH=${WEIR_STUB}/cuda STUB_CUDA_TOTAL=0x100000000
    ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_run_device.py)
  set_tests_properties(cli-run-device PROPERTIES LABELS "cli;engine")
endif()
# The same with ONNX Runtime GenAI, on a store of which the library for CUDA is made up.
if(TARGET weir-engine-llm AND NOT WEIR_SANITIZE)
  add_test(NAME cli-run-llm COMMAND ${CMAKE_COMMAND} -E env WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_STORE=${WEIR_STORE_PATH} LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda STUB_CUDA_TOTAL=0x40000000
    ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_run_llm.py)
  set_tests_properties(cli-run-llm PROPERTIES LABELS "cli;engine")
endif()
# The same with llama.cpp, whose library for CUDA is made by its name alone (scripts/engines --cuda llama-cuda): skipped without it.
if(TARGET weir-engine-gguf AND TARGET weir-engine-onnx AND NOT WEIR_SANITIZE AND
   EXISTS ${WEIR_STORE_PATH}/engines/llama-cuda/current/lib/libggml-cuda.so)
  include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
  add_test(NAME cli-run-gguf COMMAND ${CMAKE_COMMAND} -E env WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_STORE=${WEIR_STORE_PATH} LD_LIBRARY_PATH=${WEIR_STUB}/cuda STUB_CUDA_TOTAL=0x40000000
    ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_run_gguf.py)
  set_tests_properties(cli-run-gguf PROPERTIES LABELS "cli;engine")
endif()

# Ten million hostile texts to what serve reads, where the compiler can steer towards new ones.
if(WEIR_HAVE_FUZZER AND TARGET weir_serve)
  set(serve ${PROJECT_SOURCE_DIR}/src/cli/serve)
  add_executable(fuzz-serve ${CMAKE_CURRENT_LIST_DIR}/fuzz_serve.c ${serve}/tensors.c ${serve}/shared_memory.c ${serve}/answers.c ${serve}/schema.c ${serve}/config.c
    ${PROJECT_SOURCE_DIR}/src/serve/route.c ${PROJECT_SOURCE_DIR}/src/cli/text.c ${PROJECT_SOURCE_DIR}/src/cli/run/numbers.c)
  target_compile_definitions(fuzz-serve PRIVATE _GNU_SOURCE)
  target_include_directories(fuzz-serve PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(fuzz-serve PRIVATE -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined)
  target_link_options(fuzz-serve PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_libraries(fuzz-serve PRIVATE weir weir_base PkgConfig::JANSSON)
  set_target_properties(fuzz-serve PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fuzz-serve-found)
  add_test(NAME cli-serve-fuzz COMMAND fuzz-serve -runs=10000000 -max_len=2000 -seed=1 -verbosity=0 -rss_limit_mb=4096
    ${PROJECT_BINARY_DIR}/tests/fuzz-serve-found ${CMAKE_CURRENT_LIST_DIR}/fuzz_seeds)
  set_tests_properties(cli-serve-fuzz PROPERTIES LABELS "cli;long")
endif()
