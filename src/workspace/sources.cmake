# What runs in a plan's memory.
foreach(file arena arena_tensors arena_runs arena_pool parameters parameters_add parameters_alias parameters_names order)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
