# Opening a model, and moving on when a candidate fails: over a machine and an engine that the tests make up, on the host,
# the simulated device and CUDA's stub.
set(WEIR_OPENING_WRAPPED
  -Wl,--wrap=weir_hardware_look,--wrap=weir_hardware_release,--wrap=weir_client_open)
foreach(opening_test open coverage stages runs adrift ill cancel warm threads)
  weir_device_test(opening-${opening_test} opening/${opening_test}.c opening/bed.c choice/machine.c)
  target_link_options(test-opening-${opening_test} PRIVATE ${WEIR_OPENING_WRAPPED})
  weir_sim_device_test(opening-${opening_test})
endforeach()
weir_test(opening-memory opening/memory.c opening/bed.c choice/machine.c INTERNAL)
target_link_options(test-opening-memory PRIVATE ${WEIR_OPENING_WRAPPED}
  -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=free)
if(TARGET stub-cuda)
  weir_test(opening-lost opening/lost.c opening/bed.c choice/machine.c INTERNAL
    ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda")
  target_link_options(test-opening-lost PRIVATE ${WEIR_OPENING_WRAPPED})
  add_dependencies(test-opening-lost stub-cuda)
endif()
