# The scripts that fill the store: plain Python, no network, no engine needed.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT CMAKE_CROSSCOMPILING AND NOT WEIR_SANITIZE)
  add_test(NAME scripts-store COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_store.py)
  add_test(NAME scripts-llm-model COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_llm_model.py)
  add_test(NAME scripts-pins COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_pins.py)
  add_test(NAME scripts-check COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_check.py)
  add_test(NAME scripts-cuda-trim COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_cuda_trim.py)
  add_test(NAME scripts-llama-cuda COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} ${Python3_EXECUTABLE} -B
    ${CMAKE_CURRENT_LIST_DIR}/test_llama_cuda.py)
  add_test(NAME scripts-record-trace COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} ${Python3_EXECUTABLE} -B
    ${CMAKE_CURRENT_LIST_DIR}/test_record_trace.py)
  add_test(NAME scripts-gpu COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_gpu.py)
  add_test(NAME scripts-gpu-llama COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_gpu_llama.py)
  add_test(NAME scripts-makefiles COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} ${Python3_EXECUTABLE} -B
    ${CMAKE_CURRENT_LIST_DIR}/test_makefiles.py)
  add_test(NAME scripts-mutants COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_mutants.py)
  set_tests_properties(scripts-check scripts-gpu scripts-gpu-llama scripts-llm-model scripts-makefiles scripts-mutants
    scripts-pins scripts-store scripts-cuda-trim scripts-llama-cuda scripts-record-trace PROPERTIES TIMEOUT 300 LABELS scripts)
  # It builds the products once more, for the wheel.
  if(TARGET weir_manifest AND TARGET weir_command AND TARGET weir-engine-onnx AND TARGET weir-engine-llm)
    add_test(NAME scripts-wheel COMMAND ${CMAKE_COMMAND} -E env WEIR_HOME=${WEIR_STORE_PATH} ${Python3_EXECUTABLE} -B
      ${CMAKE_CURRENT_LIST_DIR}/test_wheel.py)
    set_tests_properties(scripts-wheel PROPERTIES TIMEOUT 1200 RUN_SERIAL ON LABELS "scripts;long")
  endif()
endif()
