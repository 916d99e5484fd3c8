foreach(file onnxruntime onnxruntime_table onnxruntime_swap onnxruntime_registry onnxruntime_blocks onnxruntime_streams
        onnxruntime_pinned)
  list(APPEND WEIR_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${file}.c)
endforeach()
# ONNX Runtime's exceptions pass through the allocator's frames.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/onnxruntime_table.c PROPERTIES COMPILE_OPTIONS -fexceptions)
