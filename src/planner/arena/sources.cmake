# What runs in a plan's memory.
foreach(file arena arena_pool parameters)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
