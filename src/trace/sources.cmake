# What libweir writes traces with; reading them is the library weir_trace's.
list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/write.c)
