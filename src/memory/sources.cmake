foreach(file
  driver_alloc own_base driver_alloc_pool resource segments segments_pool stack
  adaptors/budget adaptors/guard adaptors/guard_check adaptors/guard_look adaptors/guard_set adaptors/log
  adaptors/nvtx
  ledger/events ledger/ledger ledger/members ledger/pressure ledger/record ledger/refusal ledger/snapshot
  mapped/chunks_driver mapped/compaction mapped/fit mapped/map_plan mapped/mapped mapped/mapped_layout
  mapped/reuse_wait mapped/trimming
  space/block space/chunks space/claim space/deferred space/extents space/layout space/range_index space/reuse
  space/stream_lists space/stream_order space/stream_uses space/stream_wait)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
