# Inside of libweir-seams, over the stub of CUDA's driver. What frameworks call is tested in tests/python.
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
get_target_property(seams_sources weir-seams SOURCES)
list(TRANSFORM seams_sources PREPEND ${PROJECT_SOURCE_DIR}/src/seams/)
weir_test(seams-states ${CMAKE_CURRENT_LIST_DIR}/states.c ${seams_sources} INTERNAL)
target_include_directories(test-seams-states PRIVATE core)
set_tests_properties(seams-states PROPERTIES
  ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x10000000;WEIR_BUDGET=64MiB")
add_dependencies(test-seams-states stub-cuda)
