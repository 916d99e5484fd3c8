# A libcuda.so.1 of our own, over host memory and threads, so that the cuda driver runs where no GPU is. A second build of it
# lacks one function.
include_guard()
set(WEIR_STUB ${PROJECT_BINARY_DIR}/stub)

function(weir_stub name directory)
  set(files)
  foreach(file library control context memory single stream graph work)
    list(APPEND files ${PROJECT_SOURCE_DIR}/tests/stub/cuda/${file}.c)
  endforeach()
  add_library(${name} SHARED ${files})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE ${ARGN})
  target_link_libraries(${name} PRIVATE Threads::Threads)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${directory})
endfunction()

weir_stub(stub-cuda ${WEIR_STUB}/cuda)
weir_stub(stub-cuda-lacking ${WEIR_STUB}/lacking STUB_LACKS=cuMemSetAccess)
