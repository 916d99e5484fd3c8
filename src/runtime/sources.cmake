foreach(file
  alloc background client copies copy_memory exchange free host_memory inspect leaks limits outside overflow prepare read_file residency resize resume
  runtime trace trace_option trim trust yield
  block_pool/alloc block_pool/block_pool block_pool/free
  elastic/elastic elastic/elastic_away elastic/elastic_pages
  stream/capture stream/capture_pool stream/foreign_streams stream/streams stream/uses
  thread_cache/depot thread_cache/hit thread_cache/refill
  watch/answer watch/command watch/json watch/serve watch/watch)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
