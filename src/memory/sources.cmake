foreach(file block ledger stats refusal events extents places handles mapped)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
