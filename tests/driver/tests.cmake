# The drivers: one contract on host, on cuda over the stub, and on a real GPU where there is one (WEIR_REQUIRE_CUDA=1 makes its
# absence a failure).
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)

# weir_driver_test(NAME SOURCES… [INTERNAL]): the suite NAME on host, NAME-stub and NAME-cuda.
function(weir_driver_test name)
  weir_test(${name} ${ARGN} driver/device.c LIBS ${CMAKE_DL_LIBS} Threads::Threads LABELS driver)
  add_test(NAME ${name}-stub COMMAND test-${name} stub)
  add_test(NAME ${name}-cuda COMMAND test-${name} cuda)
  set_tests_properties(${name}-stub ${name}-cuda PROPERTIES SKIP_RETURN_CODE 77)
  set_tests_properties(${name}-stub PROPERTIES LABELS driver
    ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=${WEIR_STUB_TOTAL}")
  set_tests_properties(${name}-cuda PROPERTIES LABELS "driver;gpu")
  add_dependencies(test-${name} stub-cuda)
endfunction()

set(WEIR_STUB_TOTAL 0x10000000)
weir_driver_test(driver-contract driver/contract.c driver/memory.c driver/handles.c driver/cover.c driver/streams.c driver/single.c
  driver/foreign.c driver/many.c driver/faults.c INTERNAL)
add_test(NAME driver-contract-sim COMMAND test-driver-contract sim)
set_tests_properties(driver-contract-sim PROPERTIES LABELS driver)

weir_test(driver-own driver/own.c ${PROJECT_SOURCE_DIR}/examples/own-driver/toy.c LIBS Threads::Threads LABELS driver)
target_include_directories(test-driver-own PRIVATE ${PROJECT_SOURCE_DIR}/examples)

# What src/driver/cuda_api.h declares, compared with the real header.
set(WEIR_CUDA_HEADERS "" CACHE PATH "Directory of cuda.h, to check weir's own declarations")
find_path(CUDA_HEADERS cudaTypedefs.h HINTS ${WEIR_CUDA_HEADERS} /usr/local/cuda/include)
weir_test(driver-api driver/api.c INTERNAL LABELS driver)
set_tests_properties(driver-api PROPERTIES SKIP_RETURN_CODE 77)
if(CUDA_HEADERS AND NOT CMAKE_CROSSCOMPILING)
  target_compile_definitions(test-driver-api PRIVATE HAVE_CUDA_HEADER)
  target_include_directories(test-driver-api SYSTEM PRIVATE ${CUDA_HEADERS})
endif()

weir_test(driver-start driver/start.c driver/device.c LIBS ${CMAKE_DL_LIBS} Threads::Threads LABELS driver)
add_dependencies(test-driver-start stub-cuda stub-cuda-lacking)
if(CMAKE_CROSSCOMPILING) # it starts itself anew, which an emulator without binfmt cannot
  set_tests_properties(driver-start PROPERTIES DISABLED TRUE)
endif()

# Two gigabytes: the default budget leaves 512 MiB alone.
set(WEIR_STUB_TOTAL 0x80000000)
weir_driver_test(driver-runtime driver/runtime.c driver/runtime_common.c driver/kernel.c)
