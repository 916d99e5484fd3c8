foreach(file bridge allocator registry streams memory)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
# ONNX Runtime's exceptions pass through the allocator's frames.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/allocator.c PROPERTIES COMPILE_OPTIONS -fexceptions)
