# Which engine, provider and device a model gets.
foreach(file criteria engines candidates verdicts rank explanation choice)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
