# Elastic blocks: on the host, and on cuda over the stub, whose device has less memory than some budgets.
function(weir_elastic_test name)
  weir_test(elastic-${name} elastic/${name}.c)
  if(TARGET stub-cuda)
    add_dependencies(test-elastic-${name} stub-cuda)
    add_test(NAME elastic-${name}-stub COMMAND test-elastic-${name})
    set_tests_properties(elastic-${name}-stub PROPERTIES
      ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000")
  endif()
endfunction()
foreach(elastic_test pages several threads)
  weir_elastic_test(${elastic_test})
endforeach()
if(NOT WEIR_SANITIZE) # sanitizers make mappings of their own, and need them
  weir_test(elastic-mappings elastic/mappings.c)
endif()
weir_test(elastic-check elastic/check.c INTERNAL)
weir_test(elastic-wakes elastic/wakes.c core/faulty.c INTERNAL)
weir_test(elastic-model elastic/model.c core/faulty.c INTERNAL)
weir_test(elastic-faults elastic/faults.c core/faulty.c INTERNAL)
weir_test(elastic-away elastic/away.c core/faulty.c INTERNAL)
target_link_options(test-elastic-faults PRIVATE -Wl,--wrap=malloc,--wrap=calloc
  -Wl,--wrap=realloc,--wrap=aligned_alloc,--wrap=posix_memalign,--wrap=free)
target_link_options(test-elastic-away PRIVATE -Wl,--wrap=wi_residency_forget)
# Beside other resources of the runtime's.
foreach(resource direct async)
  add_test(NAME elastic-pages-${resource} COMMAND test-elastic-pages)
  set_tests_properties(elastic-pages-${resource} PROPERTIES ENVIRONMENT WEIR_RESOURCE=${resource})
endforeach()
