# The scripts that fill the store: plain Python, no network, no engine needed.
if(Python3_FOUND AND NOT CMAKE_CROSSCOMPILING AND NOT WEIR_SANITIZE)
  add_test(NAME scripts-store COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_store.py)
  add_test(NAME scripts-missing COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_missing.py)
  add_test(NAME scripts-llm-model COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_llm_model.py)
  add_test(NAME scripts-pins COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_pins.py)
  add_test(NAME scripts-check COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_check.py)
  add_test(NAME scripts-cuda-trim COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_cuda_trim.py)
  add_test(NAME scripts-llama-cuda COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} ${Python3_EXECUTABLE} -B
    ${CMAKE_CURRENT_LIST_DIR}/test_llama_cuda.py)
  add_test(NAME scripts-record-trace COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} ${Python3_EXECUTABLE} -B
    ${CMAKE_CURRENT_LIST_DIR}/test_record_trace.py)
  add_test(NAME scripts-gpu COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_gpu.py)
  add_test(NAME scripts-gpu-torch-tests COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_gpu_torch_tests.py)
  add_test(NAME scripts-gpu-llama COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_gpu_llama.py)
  add_test(NAME scripts-makefiles COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} ${Python3_EXECUTABLE} -B
    ${CMAKE_CURRENT_LIST_DIR}/test_makefiles.py)
  add_test(NAME scripts-mutants COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_mutants.py)
  set_tests_properties(scripts-check scripts-gpu scripts-gpu-torch-tests scripts-gpu-llama scripts-llm-model scripts-makefiles scripts-mutants
    scripts-pins scripts-store scripts-missing scripts-cuda-trim scripts-llama-cuda scripts-record-trace PROPERTIES LABELS scripts)
  # They build the products once more, for the wheels, and use those.
  if(TARGET weir_manifest AND TARGET weir_command AND TARGET weir-engine-onnx AND TARGET weir-engine-llm)
    set(wheel ${CMAKE_COMMAND} -E env WEIR_HOME=${WEIR_STORE_PATH} ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_wheel.py)
    add_test(NAME scripts-wheel COMMAND ${wheel})
    set(wheels scripts-wheel)
    find_program(WEIR_ARM64_COMPILER aarch64-linux-gnu-gcc)
    find_program(WEIR_ARM64_EMULATOR qemu-aarch64)
    if(WEIR_ARM64_COMPILER AND WEIR_ARM64_EMULATOR AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
      add_test(NAME scripts-wheel-arm64 COMMAND ${wheel} --arch arm64)
      list(APPEND wheels scripts-wheel-arm64)
    endif()
    set_tests_properties(${wheels} PROPERTIES RUN_SERIAL ON LABELS "scripts;long")
  endif()
endif()
