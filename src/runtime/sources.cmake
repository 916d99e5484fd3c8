foreach(file
  alloc capture capture_pool client copies copy_memory elastic elastic_away elastic_pages foreign_streams host_memory inspect leaks read_file residency resume runtime streams trace trace_option
  trim uses
  block_pool/alloc block_pool/block_pool block_pool/free block_pool/kv block_pool/move
  block_pool/prefix_cache block_pool/prefix_index block_pool/prefix_key block_pool/share
  thread_cache/depot thread_cache/hit thread_cache/refill
  watch/answer watch/json watch/serve watch/watch)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
