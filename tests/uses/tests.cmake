weir_test(uses ${CMAKE_CURRENT_LIST_DIR}/uses.c TIMEOUT 120)
target_include_directories(test-uses PRIVATE ${CMAKE_CURRENT_LIST_DIR}/../core)
if(TARGET stub-cuda)
  add_dependencies(test-uses stub-cuda)
  add_test(NAME uses-stub COMMAND test-uses)
  set_tests_properties(uses-stub PROPERTIES TIMEOUT 120
    ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000")
endif()
