# Inside of libweir-seams, over the stub of CUDA's driver. What frameworks call is tested in tests/python.
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
get_target_property(seams_sources weir-seams SOURCES)
list(TRANSFORM seams_sources PREPEND ${PROJECT_SOURCE_DIR}/src/seams/)
weir_test(seams-states ${CMAKE_CURRENT_LIST_DIR}/states.c ${seams_sources} INTERNAL)
target_include_directories(test-seams-states PRIVATE core)
set_tests_properties(seams-states PROPERTIES
  ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x10000000;WEIR_BUDGET=64MiB")
add_dependencies(test-seams-states stub-cuda)

# Over stand-ins for PyTorch's libraries, which have no other name.
weir_test(seams-abi ${CMAKE_CURRENT_LIST_DIR}/abi.c ${seams_sources} INTERNAL)
target_include_directories(test-seams-abi PRIVATE core)
foreach(part c10_cuda torch_cuda)
  string(TOUPPER ${part} define)
  add_library(fake-${part} SHARED ${CMAKE_CURRENT_LIST_DIR}/fake_torch.c)
  target_compile_definitions(fake-${part} PRIVATE ${define})
  set_target_properties(fake-${part} PROPERTIES OUTPUT_NAME ${part} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/torch)
  add_dependencies(test-seams-abi fake-${part})
endforeach()
add_dependencies(test-seams-abi stub-cuda)
set_tests_properties(seams-abi PROPERTIES
  ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x10000000;STUB_CUDA_DEVICES=2;WEIR_BUDGET=64MiB")

# The same for what is told of blocks, for which libc10.so is enough.
weir_test(seams-told ${CMAKE_CURRENT_LIST_DIR}/told.c ${seams_sources} INTERNAL)
target_include_directories(test-seams-told PRIVATE core)
add_library(fake-c10 SHARED ${CMAKE_CURRENT_LIST_DIR}/fake_c10.c)
set_target_properties(fake-c10 PROPERTIES OUTPUT_NAME c10 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/torch)
add_dependencies(test-seams-told fake-c10 stub-cuda)
set_tests_properties(seams-told PROPERTIES
  ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x10000000;WEIR_BUDGET=64MiB")
