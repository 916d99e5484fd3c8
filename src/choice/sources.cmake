# Which engine, provider and device a model gets.
foreach(file criteria engines settings predict obtainable verdicts candidates rank explanation choice)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
