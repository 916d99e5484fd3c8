# Two CUDA devices in one process: over the stub here, and on real ones by scripts/gpu-check, where there are two.
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
set(WEIR_STUB_TWO "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_DEVICES=2;STUB_CUDA_TOTAL=0x20000000")

weir_test(devices devices/runtimes.c devices/two.c LIBS ${CMAKE_DL_LIBS} Threads::Threads LABELS driver
          ENVIRONMENT "${WEIR_STUB_TWO}")
target_include_directories(test-devices PRIVATE ${PROJECT_SOURCE_DIR}/src)
add_dependencies(test-devices stub-cuda)

weir_test(devices-bridge devices/bridge.c devices/two.c bridge/fake.c INTERNAL LABELS driver ENVIRONMENT "${WEIR_STUB_TWO}")
add_dependencies(test-devices-bridge stub-cuda)
