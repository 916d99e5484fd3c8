# Where plans come from: models by onnx's own account of them, and hostile ones.
if(NOT TARGET weir_onnx_shapes OR NOT Python3_FOUND OR CMAKE_CROSSCOMPILING)
  return()
endif()
set(run ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR} WEIR_TEST_STORE=${WEIR_STORE_PATH}
        WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B)
add_test(NAME shapes-models COMMAND ${run} ${CMAKE_CURRENT_LIST_DIR}/test_models.py)
set_tests_properties(shapes-models PROPERTIES LABELS "cli;engine")

add_executable(test-shapes-fuzz ${CMAKE_CURRENT_LIST_DIR}/fuzz.c)
target_compile_definitions(test-shapes-fuzz PRIVATE _GNU_SOURCE)
target_link_libraries(test-shapes-fuzz PRIVATE weir weir_onnx_shapes m)
set_target_properties(test-shapes-fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_test(NAME shapes-fuzz COMMAND ${run} ${CMAKE_CURRENT_LIST_DIR}/fuzz.py $<TARGET_FILE:test-shapes-fuzz> 20000)
add_test(NAME shapes-fuzz-long COMMAND ${run} ${CMAKE_CURRENT_LIST_DIR}/fuzz.py $<TARGET_FILE:test-shapes-fuzz> 1000000)
set_tests_properties(shapes-fuzz-long PROPERTIES LABELS long)

# libFuzzer sees which parts of the code a damage reaches; it comes with clang. Built where the long tests are run with it.
if(CMAKE_C_COMPILER_ID STREQUAL Clang AND WEIR_INVARIANTS AND NOT WEIR_SANITIZE)
  get_target_property(sources weir_onnx_shapes SOURCES)
  get_target_property(file_sources weir_onnx_file SOURCES)
  add_executable(test-shapes-libfuzzer ${CMAKE_CURRENT_LIST_DIR}/fuzz.c ${sources} ${file_sources})
  target_include_directories(test-shapes-libfuzzer PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(test-shapes-libfuzzer SYSTEM PRIVATE ${NANOPB_INCLUDE})
  target_compile_definitions(test-shapes-libfuzzer PRIVATE _GNU_SOURCE WEIR_LIBFUZZER)
  target_compile_options(test-shapes-libfuzzer PRIVATE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -O1)
  target_link_options(test-shapes-libfuzzer PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_libraries(test-shapes-libfuzzer PRIVATE weir ${NANOPB_LIBRARY} m)
  set_target_properties(test-shapes-libfuzzer PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME shapes-libfuzzer COMMAND ${run} ${CMAKE_CURRENT_LIST_DIR}/fuzz.py $<TARGET_FILE:test-shapes-libfuzzer> 1000000
           --libfuzzer)
  set_tests_properties(shapes-libfuzzer PROPERTIES LABELS long)
endif()
