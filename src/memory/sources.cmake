foreach(file block ledger stats refusal events record extents stream_lists stream_order stream_wait stream_uses chunk fit map_plan reuse_wait compaction chunks mapped resource reuse claim pending
        layout mapped_layout trimming
        members budget pressure logging stack index single single_pool segments segments_pool nvtx)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
foreach(file guard guard_set guard_check guard_look)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
