# The choice of engine, provider and device, over machines and engines that the tests make up.
weir_test(choice choice/choice.c choice/machine.c INTERNAL)
weir_test(choice-factory choice/factory.c choice/machine.c INTERNAL)
weir_test(choice-random choice/random.c choice/oracle.c choice/situation.c choice/machine.c INTERNAL)
weir_test(choice-obtainable choice/obtainable.c choice/machine.c INTERNAL)

include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
weir_test(choice-untouched choice/untouched.c choice/machine.c INTERNAL
  ENVIRONMENT "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x80000000")
add_dependencies(test-choice-untouched stub-cuda)
weir_test(choice-load choice/load.c choice/situation.c choice/machine.c INTERNAL
  ENVIRONMENT "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_DEVICES=6;STUB_CUDA_TOTAL=0x80000000")
add_dependencies(test-choice-load stub-cuda)
if(TARGET weir-engine-gguf AND TARGET weir-engine-onnx)
  weir_test(choice-engines choice/engines.c LABELS engine
    ENVIRONMENT "WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir;WEIR_TEST_SANITIZE=${WEIR_SANITIZE}")
  add_dependencies(test-choice-engines weir-engine-gguf weir-engine-onnx)
endif()
weir_test(choice-faults choice/faults.c choice/machine.c INTERNAL)
target_link_options(test-choice-faults PRIVATE ${WEIR_HEAP_WRAPS})

# On a device of this machine: by scripts/gpu-check a GPU, here the stub, with a stub of NVML beside it that knows its bytes.
weir_test(choice-gpu choice/gpu.c hardware/witness.c LIBS ${CMAKE_DL_LIBS})
set(own ${PROJECT_BINARY_DIR}/stub/choice-here)
file(WRITE ${own}/gpus.txt "driver 580.65.06\ncuda 13000\n"
  "gpu GPU-00000000-0000-0000-0000-000000000000 0000:3b:00.0 0 9.0 132 4294967296 4160749568 - stub\n")
file(CREATE_LINK ../hardware/libnvml.so ${own}/libnvidia-ml.so.1 SYMBOLIC)
set_tests_properties(choice-gpu PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT
  "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${own}:${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x100000000")
add_dependencies(test-choice-gpu stub-cuda stub-hardware-nvml)
# The same where the machine has another one, which is not visible.
set(two ${PROJECT_BINARY_DIR}/stub/choice-two)
file(WRITE ${two}/gpus.txt "driver 580.65.06\ncuda 13000\n"
  "gpu GPU-00000000-0000-0000-0000-000000000000 0000:3b:00.0 0 9.0 132 4294967296 4160749568 - stub\n"
  "gpu GPU-00000000-0000-0000-0000-000000000001 0000:3c:00.0 0 9.0 132 4294967296 4160749568 - stub\n")
file(CREATE_LINK ../hardware/libnvml.so ${two}/libnvidia-ml.so.1 SYMBOLIC)
add_test(NAME choice-gpu-two COMMAND test-choice-gpu)
set_tests_properties(choice-gpu-two PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT
  "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${two}:${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x100000000")
