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
target_link_options(test-choice-faults PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc)
