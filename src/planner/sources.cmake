foreach(file buffers csv lines nodes interval_set problem in_place skyline greedy search search_problem neighbourhood plan plan_check plan_file)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
