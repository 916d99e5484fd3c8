foreach(file drivers own_driver host host_cover host_pool host_stream cuda cuda_memory cuda_stream cuda_event)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
