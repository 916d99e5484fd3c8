foreach(file buffers buffers_csv lines radix storage in_place loads sections problem placed taken solve solve_greedy solve_sky solve_cover cover cover_choice cover_search cover_table cover_repair plan plan_make plan_check plan_save plan_load nodes)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
# What runs in a plan's memory.
foreach(file arena arena_tensors arena_runs arena_pool parameters parameters_add parameters_alias parameters_names order)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
