# weir_uses_test(NAME FILE): on the host, and as NAME-stub on cuda over the stub.
function(weir_uses_test name file)
  weir_test(${name} uses/${file}.c LIBS ${CMAKE_DL_LIBS})
  target_include_directories(test-${name} PRIVATE core)
  if(TARGET stub-cuda)
    add_dependencies(test-${name} stub-cuda)
    add_test(NAME ${name}-stub COMMAND test-${name})
    set_tests_properties(${name}-stub PROPERTIES
      ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000")
  endif()
endfunction()
weir_uses_test(uses uses)
weir_uses_test(uses-streams streams)
weir_uses_test(uses-graph graph)
weir_uses_test(uses-graph-threads graph_threads)
weir_uses_test(uses-graph-requests graph_requests)
weir_uses_test(uses-ends ends)

weir_test(uses-others uses/others.c uses/lender.c INTERNAL)
target_include_directories(test-uses-others PRIVATE core)

weir_test(uses-between ${CMAKE_CURRENT_LIST_DIR}/between.c INTERNAL)
weir_test(uses-untracked ${CMAKE_CURRENT_LIST_DIR}/untracked.c INTERNAL)
