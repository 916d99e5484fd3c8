# The drivers: one contract on host, on cuda over the stub, and on a real GPU where there is one (WEIR_REQUIRE_CUDA=1 makes its
# absence a failure).
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)

# weir_driver_test(NAME SOURCES… [INTERNAL]): the suite NAME on host, NAME-stub and NAME-cuda.
function(weir_driver_test name)
  weir_test(${name} ${ARGN} driver/device.c LIBS ${CMAKE_DL_LIBS} Threads::Threads LABELS driver)
  add_test(NAME ${name}-stub COMMAND test-${name} stub)
  add_test(NAME ${name}-cuda COMMAND test-${name} cuda)
  set_tests_properties(${name}-stub ${name}-cuda PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77)
  set_tests_properties(${name}-stub PROPERTIES LABELS driver
    ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=${WEIR_STUB_TOTAL}")
  set_tests_properties(${name}-cuda PROPERTIES LABELS "driver;gpu")
  add_dependencies(test-${name} stub-cuda)
endfunction()

set(WEIR_STUB_TOTAL 0x10000000)
weir_driver_test(driver-contract driver/contract.c driver/memory.c driver/streams.c driver/faults.c INTERNAL)
