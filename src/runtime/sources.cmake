foreach(file
  alloc capture capture_pool client compose drain foreign_streams guards host_memory host_trim layout memory_stats
  notes pressure recording reserve runtime sinks streams trace trace_option trim uses
  block_pool/alloc block_pool/block_pool block_pool/free block_pool/kv block_pool/look
  thread_cache/depot thread_cache/hit thread_cache/refill thread_cache/steady)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
