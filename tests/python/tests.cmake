# The Python package over the build's libweir and plug-ins: with the system's Python, and with the store's, which has NumPy.
find_package(Python3 COMPONENTS Interpreter)
if(NOT Python3_FOUND OR CMAKE_CROSSCOMPILING OR WEIR_SANITIZE OR Python3_VERSION VERSION_LESS 3.10)
  return()
endif()
set(python_environment "WEIR_LIBRARY=$<TARGET_FILE:weir>;WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir;WEIR_HOME=${WEIR_STORE_PATH}"
  "WEIR_TEST_SOURCE=${PROJECT_SOURCE_DIR};CC=${CMAKE_C_COMPILER}")

function(weir_python_test name python file)
  add_test(NAME ${name} COMMAND ${python} -B -X dev ${CMAKE_CURRENT_LIST_DIR}/${file}.py)
  set_tests_properties(${name} PROPERTIES LABELS "python;${ARGN}" TIMEOUT 300 ENVIRONMENT "${python_environment}")
endfunction()

weir_python_test(python-layout ${Python3_EXECUTABLE} test_layout)
weir_python_test(python-memory ${Python3_EXECUTABLE} test_memory)
if(TARGET weir-engine-onnx AND TARGET weir-engine-llm)
  set(store_python ${WEIR_STORE_PATH}/venv/bin/python)
  if(NOT EXISTS ${store_python})
    set(store_python ${Python3_EXECUTABLE})
  endif()
  weir_python_test(python-models ${store_python} test_models engine)
endif()
