# Where plans come from: models by onnx's own account of them, hostile files.
find_package(Python3 COMPONENTS Interpreter)
if(NOT TARGET weir_graph OR NOT Python3_FOUND OR CMAKE_CROSSCOMPILING)
  return()
endif()
add_test(NAME plan-models COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
  WEIR_TEST_STORE=${WEIR_STORE_PATH} WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_models.py)
set_tests_properties(plan-models PROPERTIES TIMEOUT 300 LABELS "cli;engine")
