# Pools of equal blocks.
foreach(blocks_test pool misuse pending clear model threads kv)
  weir_test(blocks-${blocks_test} blocks/${blocks_test}.c)
endforeach()
weir_test(blocks-bitmap blocks/bitmap.c INTERNAL)
