# Arenas, their pool and parameters: on the host, the simulated device, and cuda over the stub.
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
foreach(arena_test parameters tensors runs pool)
  set(name arena-${arena_test})
  weir_test(${name} arena/${arena_test}.c INTERNAL)
  add_test(NAME ${name}-sim COMMAND test-${name})
  set_tests_properties(${name}-sim PROPERTIES TIMEOUT 120 ENVIRONMENT WEIR_TEST_DEVICE=sim:0)
  add_dependencies(test-${name} stub-cuda)
  add_test(NAME ${name}-stub COMMAND test-${name})
  set_tests_properties(${name}-stub PROPERTIES TIMEOUT 120
    ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x10000000")
endforeach()
weir_test(arena-faults arena/faults.c core/faulty.c INTERNAL)
target_link_options(test-arena-faults PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc)
