# The engine onnx. Its tests link the engine's objects, so that they can look inside and drive ONNX Runtime by the same table.
set(WEIR_ORT_HEADERS "" CACHE PATH "Directory of onnxruntime_c_api.h, to check weir's own declarations")

function(weir_onnx_test name)
  weir_test(onnx-${name} ${ARGN})
  target_link_libraries(test-onnx-${name} PRIVATE weir_onnx_objects ${NANOPB_LIBRARY} Threads::Threads)
  target_include_directories(test-onnx-${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/onnx)
  set_tests_properties(onnx-${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

if(TARGET weir_onnx_objects)
  find_path(ORT_HEADERS onnxruntime_c_api.h HINTS ${WEIR_ORT_HEADERS} PATH_SUFFIXES onnxruntime onnxruntime/core/session)
  set(common ${CMAKE_CURRENT_LIST_DIR}/common.c ${CMAKE_CURRENT_LIST_DIR}/plain.c)
  foreach(name format run memory threads hostile)
    weir_onnx_test(${name} ${CMAKE_CURRENT_LIST_DIR}/${name}.c ${common})
  endforeach()
  # Through libweir's own door: the plug-in is found, opened and used as a program would.
  weir_test(onnx-plugin ${CMAKE_CURRENT_LIST_DIR}/plugin.c)
  set_tests_properties(onnx-plugin PROPERTIES SKIP_RETURN_CODE 77)
  add_dependencies(test-onnx-plugin weir-engine-onnx)
  # Damaged files again, of the real sentence encoder.
  add_test(NAME onnx-hostile-minilm COMMAND test-onnx-hostile ${WEIR_STORE_PATH}/models/minilm.onnx 200)
  set_tests_properties(onnx-hostile-minilm PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 LABELS long)
  weir_onnx_test(slots ${CMAKE_CURRENT_LIST_DIR}/slots.c)
  if(ORT_HEADERS)
    target_compile_definitions(test-onnx-slots PRIVATE HAVE_ORT_HEADER)
    target_include_directories(test-onnx-slots SYSTEM PRIVATE ${ORT_HEADERS})
  endif()
endif()
