foreach(file runtime compose client streams foreign_streams capture graph uses alloc thread_cache thread_caches steady depot host_memory host_trim reserve trace trace_option sinks recording notes
        blocks blocks_take blocks_give blocks_look blocks_kv)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
foreach(file guards pressure layout trim drain memory_stats)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
