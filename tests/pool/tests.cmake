# Pools, over an engine that the tests make up.
foreach(pool_test requests versions faults decisions threads)
  weir_test(pool-${pool_test} pool/${pool_test}.c pool/bed.c INTERNAL)
endforeach()
foreach(pool_test faults threads)
  target_link_options(test-pool-${pool_test} PRIVATE -Wl,--wrap=weir_client_create)
endforeach()
weir_test(pool-outside pool/outside.c pool/bed.c INTERNAL)
target_link_options(test-pool-outside PRIVATE -Wl,--wrap=wi_cgroup_memory)
weir_test(pool-memory pool/memory.c pool/bed.c INTERNAL)
target_link_options(test-pool-memory PRIVATE
  -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=free)
add_test(NAME pool-threads-long COMMAND test-pool-threads 64 1000)
set_tests_properties(pool-threads-long PROPERTIES LABELS long)
if(TARGET stub-cuda)
  foreach(pool_test requests versions threads)
    add_dependencies(test-pool-${pool_test} stub-cuda)
    add_test(NAME pool-${pool_test}-stub COMMAND test-pool-${pool_test})
    set_tests_properties(pool-${pool_test}-stub PROPERTIES
      ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000")
  endforeach()
endif()
# Two devices of two drivers, and two of one.
if(TARGET stub-cuda)
  weir_test(pool-devices pool/devices.c pool/bed.c INTERNAL ENVIRONMENT
    "WEIR_TEST_DEVICES=host,cuda:0;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000")
  add_dependencies(test-pool-devices stub-cuda)
  add_test(NAME pool-devices-two COMMAND test-pool-devices)
  set_tests_properties(pool-devices-two PROPERTIES ENVIRONMENT
    "WEIR_TEST_DEVICES=cuda:0,cuda:1;STUB_CUDA_DEVICES=2;LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000")
endif()
# Models of the real engines, on the host.
if(TARGET weir-engine-onnx AND TARGET weir-engine-gguf)
  weir_test(pool-engines pool/engines.c LABELS engine ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  add_test(NAME pool-engines-all COMMAND test-pool-engines 120)
  set_tests_properties(pool-engines-all PROPERTIES LABELS "engine;long"
    ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  add_dependencies(test-pool-engines weir-engine-onnx weir-engine-gguf)
endif()
# What the pool decides: rules, sets of victims, and random events against an oracle.
weir_test(pool-rules pool/rules.c pool/world.c INTERNAL)
weir_test(pool-ways pool/ways.c pool/world.c INTERNAL)
weir_test(pool-victims pool/victims.c INTERNAL)
weir_test(pool-random pool/random.c pool/world.c INTERNAL)
add_test(NAME pool-random-long COMMAND test-pool-random)
set_tests_properties(pool-random-long PROPERTIES LABELS long ENVIRONMENT "WEIR_POOL_STEPS=10000000")
