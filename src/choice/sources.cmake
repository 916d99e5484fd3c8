# Which engine, provider and device a model gets.
foreach(file criteria engines candidates verdicts rank explanation choice predict fit)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
