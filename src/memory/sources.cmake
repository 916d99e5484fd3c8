foreach(file block ledger stats refusal events record extents lanes ordered behind marks backing places growth patience rescue handles mapped resource reuse taking pending
        layout mapped_layout trimming
        holders budget pressure logging stack index single single_pool segments segments_pool nvtx)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
foreach(file guard guard_set guard_check guard_look)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
