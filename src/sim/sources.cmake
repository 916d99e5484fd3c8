# The simulator: the oracle, the worlds it watches, and what moves them. Not part of libweir.
set(WEIR_SIM_SOURCES)
foreach(file oracle oracle_owner oracle_book oracle_order between world steps blocks affairs ends graphs requests pools operations script shrink simulate)
  list(APPEND WEIR_SIM_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
