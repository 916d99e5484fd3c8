# Opening a model, and moving on when a candidate fails: over a machine and an engine that the tests make up, on the host,
# the simulated device and CUDA's stub.
set(WEIR_MODEL_WRAPPED
  -Wl,--wrap=weir_hardware_create,--wrap=weir_hardware_destroy,--wrap=weir_client_create)
foreach(model_test open coverage stages runs adrift moves fault cancel warm threads calls)
  weir_device_test(model-${model_test} model/${model_test}.c model/bed.c choice/machine.c)
  target_link_options(test-model-${model_test} PRIVATE ${WEIR_MODEL_WRAPPED})
  weir_sim_device_test(model-${model_test})
endforeach()
target_link_options(test-model-fault PRIVATE -Wl,--wrap=pthread_cond_wait)
weir_test(model-memory model/memory.c model/bed.c choice/machine.c INTERNAL)
target_link_options(test-model-memory PRIVATE ${WEIR_MODEL_WRAPPED}
  -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=free)
if(TARGET stub-cuda)
  weir_test(model-lost model/lost.c model/bed.c choice/machine.c INTERNAL
    ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda")
  target_link_options(test-model-lost PRIVATE ${WEIR_MODEL_WRAPPED})
  add_dependencies(test-model-lost stub-cuda)
endif()
# The real engines, as far as they are here: the engines' plug-ins beside libweir, models of the store.
weir_test(model-requests model/requests.c LABELS engine)
add_test(NAME model-requests-long COMMAND test-model-requests 10000)
set_tests_properties(model-requests-long PROPERTIES LABELS "engine;long")
foreach(engine onnx gguf llm)
  if(TARGET weir-engine-${engine})
    add_dependencies(test-model-requests weir-engine-${engine})
  endif()
endforeach()
