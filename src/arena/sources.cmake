foreach(file buffers buffers_csv lines radix storage sections problem solve solve_greedy solve_sky solve_cover cover cover_choice cover_search cover_table cover_repair plan plan_make plan_check plan_save plan_load nodes)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
