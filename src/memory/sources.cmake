foreach(file
  driver_alloc elastic host_chunks own_parts resource segments stack
  adaptors/budget adaptors/guard adaptors/guard_check adaptors/log adaptors/nvtx adaptors/own
  ledger/events ledger/ledger ledger/members ledger/pressure ledger/refusal ledger/snapshot
  mapped/away mapped/away_back mapped/away_begin mapped/chunks_driver mapped/compaction mapped/growth_policy mapped/map_plan mapped/mapped
  mapped/seal
  space/chunks space/acquire space/pending space/extents space/layout space/range_index space/stream_lists
  space/stream_order space/stream_uses)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
