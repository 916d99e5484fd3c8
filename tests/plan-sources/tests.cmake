# Where plans come from: models by onnx's own account of them, and hostile ones.
find_package(Python3 COMPONENTS Interpreter)
if(NOT TARGET weir_graph OR NOT Python3_FOUND OR CMAKE_CROSSCOMPILING)
  return()
endif()
set(run ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR} WEIR_TEST_STORE=${WEIR_STORE_PATH}
        WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B)
add_test(NAME plan-models COMMAND ${run} ${CMAKE_CURRENT_LIST_DIR}/test_models.py)
set_tests_properties(plan-models PROPERTIES TIMEOUT 300 LABELS "cli;engine")

add_executable(test-plan-fuzz ${CMAKE_CURRENT_LIST_DIR}/fuzz.c)
target_compile_definitions(test-plan-fuzz PRIVATE _GNU_SOURCE)
target_link_libraries(test-plan-fuzz PRIVATE weir weir_graph ${NANOPB_LIBRARY} m)
set_target_properties(test-plan-fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_test(NAME plan-fuzz COMMAND ${run} ${CMAKE_CURRENT_LIST_DIR}/fuzz.py $<TARGET_FILE:test-plan-fuzz> 20000)
add_test(NAME plan-fuzz-long COMMAND ${run} ${CMAKE_CURRENT_LIST_DIR}/fuzz.py $<TARGET_FILE:test-plan-fuzz> 1000000)
set_tests_properties(plan-fuzz-long PROPERTIES TIMEOUT 1800 LABELS long)

# libFuzzer sees which parts of the code a damage reaches; it comes with clang. Built where the long tests are run with it.
if(CMAKE_C_COMPILER_ID STREQUAL Clang AND WEIR_INVARIANTS AND NOT WEIR_SANITIZE)
  get_target_property(sources weir_graph SOURCES)
  add_executable(test-plan-libfuzzer ${CMAKE_CURRENT_LIST_DIR}/fuzz.c ${sources})
  target_include_directories(test-plan-libfuzzer PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(test-plan-libfuzzer SYSTEM PRIVATE ${NANOPB_INCLUDE})
  target_compile_definitions(test-plan-libfuzzer PRIVATE _GNU_SOURCE WEIR_LIBFUZZER)
  target_compile_options(test-plan-libfuzzer PRIVATE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -O1)
  target_link_options(test-plan-libfuzzer PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_libraries(test-plan-libfuzzer PRIVATE weir ${NANOPB_LIBRARY} m)
  set_target_properties(test-plan-libfuzzer PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME plan-libfuzzer COMMAND ${run} ${CMAKE_CURRENT_LIST_DIR}/fuzz.py $<TARGET_FILE:test-plan-libfuzzer> 1000000
           --libfuzzer)
  set_tests_properties(plan-libfuzzer PROPERTIES TIMEOUT 1800 LABELS long)
endif()
