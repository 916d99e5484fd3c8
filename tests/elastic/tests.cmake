# Elastic blocks: on the host, and on cuda over the stub, whose device has less memory than some budgets.
function(weir_elastic_test name)
  weir_test(elastic-${name} elastic/${name}.c)
  if(TARGET stub-cuda)
    add_dependencies(test-elastic-${name} stub-cuda)
    add_test(NAME elastic-${name}-stub COMMAND test-elastic-${name})
    set_tests_properties(elastic-${name}-stub PROPERTIES TIMEOUT 300
      ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000")
  endif()
endfunction()
foreach(elastic_test pages threads)
  weir_elastic_test(${elastic_test})
endforeach()
