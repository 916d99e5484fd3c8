# What libweir writes traces with; reading them is the library weir_trace's.
foreach(file write_file write_csv write_binary)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
