foreach(file
  alloc client copies copy_memory free host_memory inspect leaks limits read_file residency resize resume runtime trace trace_option trim trust
  block_pool/alloc block_pool/block_pool block_pool/free
  elastic/elastic elastic/elastic_away elastic/elastic_pages
  stream/capture stream/capture_pool stream/foreign_streams stream/streams stream/uses
  thread_cache/depot thread_cache/hit thread_cache/refill
  watch/answer watch/json watch/serve watch/watch)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
