# weir_uses_test(NAME): uses/NAME.c on the host, and on cuda over the stub.
function(weir_uses_test name)
  weir_test(${name} uses/${name}.c LIBS ${CMAKE_DL_LIBS} TIMEOUT 120)
  target_include_directories(test-${name} PRIVATE core)
  if(TARGET stub-cuda)
    add_dependencies(test-${name} stub-cuda)
    add_test(NAME ${name}-stub COMMAND test-${name})
    set_tests_properties(${name}-stub PROPERTIES TIMEOUT 120
      ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000")
  endif()
endfunction()
weir_uses_test(uses)
weir_uses_test(streams)

weir_test(streams-others uses/others.c uses/lender.c INTERNAL)
target_include_directories(test-streams-others PRIVATE core)
