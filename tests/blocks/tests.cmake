# Pools of equal blocks.
foreach(blocks_test pool misuse pending several clear model threads)
  weir_test(blocks-${blocks_test} blocks/${blocks_test}.c)
endforeach()
weir_test(blocks-model-waits blocks/model_waits.c INTERNAL)
weir_test(blocks-faults blocks/faults.c core/faulty.c INTERNAL)
target_link_options(test-blocks-faults PRIVATE ${WEIR_HEAP_WRAPS})
# What an engine does with blocks: on the host, and on cuda over the stub.
weir_test(blocks-sequences blocks/sequences.c)
if(TARGET stub-cuda)
  add_dependencies(test-blocks-sequences stub-cuda)
  add_test(NAME blocks-sequences-stub COMMAND test-blocks-sequences)
  set_tests_properties(blocks-sequences-stub PROPERTIES
    ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000")
endif()
add_test(NAME blocks-threads-long COMMAND test-blocks-threads)
set_tests_properties(blocks-threads-long PROPERTIES LABELS long ENVIRONMENT WEIR_TEST_LONG=1)
