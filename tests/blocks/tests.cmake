# Pools of equal blocks.
foreach(blocks_test pool misuse pending clear model threads kv)
  weir_test(blocks-${blocks_test} blocks/${blocks_test}.c)
endforeach()
weir_test(blocks-faults blocks/faults.c core/faulty.c INTERNAL)
target_link_options(test-blocks-faults PRIVATE -Wl,--wrap=malloc,--wrap=calloc)
