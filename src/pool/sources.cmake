# What decides which models are here and which requests run, without threads or a clock, and what is written of it.
foreach(file admission check earmarks decisions queue schedule victims ways)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
# What carries it out.
foreach(file by_hand carry ceiling decide entries list pool requests source spec work)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
