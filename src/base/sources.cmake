foreach(file status log options age nearest size versions small_files limits system intern own plant window bitmap biased)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
