foreach(file buffers csv lines nodes radix interval_set problem problem_items sections in_place loads solve greedy solve_greedy skyline search cover cover_search
        cover_table search_repair cover_repair plan plan_make plan_check plan_file plan_save)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
