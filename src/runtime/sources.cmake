foreach(file runtime parts client streams stream_others capture graph uses alloc front front_lists front_calm depot kinds guest reserve trace trace_option outlets recording notes
        blocks blocks_take blocks_give blocks_look blocks_kv)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
foreach(file guards pressure layout trim settle memory_stats)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
