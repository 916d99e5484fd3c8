# Which engine, provider and device a model gets.
foreach(file words wish facts settings predict obtainable verdicts candidates ranks rule choice)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
# A model that was chosen for, and that moves.
foreach(file open open_try open_moves open_record open_told)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
