# What bench/instructions.py reads. The PyTorch programs of bench/ and the seam through which they allocate, over the stub
# and a stand-in for PyTorch.
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CROSSCOMPILING AND NOT WEIR_SANITIZE)
  add_custom_target(test-torch-seam ALL)
  add_dependencies(test-torch-seam torch-seam stub-cuda)
  set(seam ${PROJECT_BINARY_DIR}/bench/libtorch-seam.so)
  add_test(NAME bench-instructions COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_instructions.py)
  set_tests_properties(bench-instructions PROPERTIES LABELS scripts)
  foreach(part seam programs)
    add_test(NAME bench-torch-${part} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_torch_${part}.py)
    set_tests_properties(bench-torch-${part} PROPERTIES TIMEOUT 300 LABELS scripts ENVIRONMENT
      "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x40000000;WEIR_TEST_SEAM=${seam}")
  endforeach()
endif()
