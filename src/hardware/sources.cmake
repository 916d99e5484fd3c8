foreach(file look probe source nvml cuda pci rocm intel visible numbering merge)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
