foreach(file buffers buffers_csv lines radix storage sections problem solve solve_greedy plan plan_make plan_check)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
