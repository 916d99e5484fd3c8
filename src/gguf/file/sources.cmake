# The same files inside libweir, where they predict without a plug-in.
foreach(file cursor file hyper layout)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
