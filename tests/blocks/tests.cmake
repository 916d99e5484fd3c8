# Pools of equal blocks.
foreach(blocks_test pool misuse pending several clear model threads)
  weir_test(blocks-${blocks_test} blocks/${blocks_test}.c)
endforeach()
weir_test(blocks-faults blocks/faults.c core/faulty.c INTERNAL)
target_link_options(test-blocks-faults PRIVATE -Wl,--wrap=malloc,--wrap=calloc
  -Wl,--wrap=realloc,--wrap=aligned_alloc,--wrap=posix_memalign,--wrap=free)

weir_test(blocks-model-shared blocks/model_shared.c INTERNAL)
# Shared blocks and prefix caches: on the host, and on cuda over the stub.
foreach(blocks_test references move prefix evict collisions sequences sharing_several sharing_threads)
  string(REPLACE _ - name blocks-${blocks_test})
  weir_test(${name} blocks/${blocks_test}.c INTERNAL)
  if(TARGET stub-cuda)
    add_dependencies(test-${name} stub-cuda)
    add_test(NAME ${name}-stub COMMAND test-${name})
    set_tests_properties(${name}-stub PROPERTIES
      ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000")
  endif()
endforeach()
add_test(NAME blocks-threads-long COMMAND test-blocks-threads)
set_tests_properties(blocks-threads-long PROPERTIES LABELS long ENVIRONMENT WEIR_TEST_LONG=1)
add_test(NAME blocks-sharing-threads-long COMMAND test-blocks-sharing-threads)
set_tests_properties(blocks-sharing-threads-long PROPERTIES LABELS long ENVIRONMENT WEIR_TEST_LONG=1)
target_link_options(test-blocks-collisions PRIVATE -Wl,--wrap=wi_prefix_hash)
weir_test(blocks-prefix-faults blocks/prefix_faults.c core/faulty.c INTERNAL)
target_link_options(test-blocks-prefix-faults PRIVATE -Wl,--wrap=malloc,--wrap=calloc
  -Wl,--wrap=realloc,--wrap=aligned_alloc,--wrap=posix_memalign,--wrap=free)
