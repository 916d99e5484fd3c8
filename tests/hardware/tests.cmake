# What the machine has, and versions. Other machines are directories that the tests make, with libraries of these stubs.
weir_test(hardware-versions hardware/versions.c INTERNAL)

set(WEIR_HARDWARE_STUB ${PROJECT_BINARY_DIR}/stub/hardware)
function(weir_hardware_stub name source)
  add_library(stub-hardware-${name} SHARED ${CMAKE_CURRENT_LIST_DIR}/${source}.c ${CMAKE_CURRENT_LIST_DIR}/stub_read.c)
  target_compile_definitions(stub-hardware-${name} PRIVATE _GNU_SOURCE ${ARGN})
  target_link_libraries(stub-hardware-${name} PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(stub-hardware-${name} PROPERTIES OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${WEIR_HARDWARE_STUB})
endfunction()
weir_hardware_stub(nvml stub_nvml)
weir_hardware_stub(nvml-old stub_nvml STUB_OLD)
weir_hardware_stub(cuda stub_cuda)
weir_hardware_stub(cuda-old stub_cuda STUB_OLD)

add_library(hardware-machine OBJECT ${CMAKE_CURRENT_LIST_DIR}/machine.c)
target_compile_definitions(hardware-machine PRIVATE _GNU_SOURCE)
target_include_directories(hardware-machine PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(hardware-machine PRIVATE PkgConfig::CMOCKA weir_test_places)

foreach(part machines others cgroup visible slow)
  weir_test(hardware-${part} hardware/${part}.c $<TARGET_OBJECTS:hardware-machine> LIBS weir_base Threads::Threads)
  add_dependencies(test-hardware-${part} stub-hardware-nvml stub-hardware-nvml-old stub-hardware-cuda
    stub-hardware-cuda-old)
endforeach()

# Threads are the test's.
weir_test(hardware-stale hardware/stale.c $<TARGET_OBJECTS:hardware-machine> INTERNAL)
add_dependencies(test-hardware-stale stub-hardware-nvml stub-hardware-cuda)
target_link_options(test-hardware-stale PRIVATE -Wl,--wrap=pthread_create)

include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
weir_test(hardware-here hardware/here.c)
add_dependencies(test-hardware-here stub-cuda)
set_tests_properties(hardware-here PROPERTIES
  ENVIRONMENT "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000;WEIR_BUDGET=64MiB")

# The default budget beside limits of cgroups; NVML's are of these groups.
set(limits ${PROJECT_BINARY_DIR}/stub/hardware-limits)
file(WRITE ${limits}/gpus.txt "driver 615.10.01\ncuda 13040\n"
  "gpu GPU-00000000-0000-0000-0000-000000000000 0000:01:00.0 0 9.0 132 17179869184 17179869184 - stub\n"
  "limit 0000:01:00.0 /nvml 1073741824 3221225472 1073741824\n"
  "limit 0000:01:00.0 /nvml-alone 1073741824 3221225472 1073741824\n"
  "limit 0000:01:00.0 /guaranteed 1073741824 0 0\n")
file(CREATE_LINK ../hardware/libnvml.so ${limits}/libnvidia-ml.so.1 SYMBOLIC)
weir_test(hardware-budget hardware/budget.c $<TARGET_OBJECTS:hardware-machine> INTERNAL)
add_dependencies(test-hardware-budget stub-hardware-nvml stub-cuda)
set_tests_properties(hardware-budget PROPERTIES
  ENVIRONMENT "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda:${limits};STUB_CUDA_TOTAL=0x400000000")

# This machine's own devices: a GPU's, where there is one, and the stubs' in a place of their own.
set(own ${PROJECT_BINARY_DIR}/stub/hardware-here)
set(own_device GPU-00000000-0000-0000-0000-000000000000) # as the stub of CUDA's driver names its first
file(WRITE ${own}/gpus.txt "driver 580.65.06\ncuda 13000\nsleep 20 0\n"
  "gpu ${own_device} 0000:3b:00.0 0 9.0 132 1073741824 1006632960 - H200\n"
  "gpu GPU-00000000-0000-0000-0000-000000000001 0000:3c:00.0 1 9.0 132 1073741824 1006632960 - H200\n")
file(CREATE_LINK ../hardware/libnvml.so ${own}/libnvidia-ml.so.1 SYMBOLIC)
file(CREATE_LINK ../hardware/libcuda.so ${own}/libcuda.so.1 SYMBOLIC)
weir_test(hardware-gpu hardware/gpu.c hardware/witness.c LIBS ${CMAKE_DL_LIBS})
add_test(NAME hardware-gpu-stub COMMAND test-hardware-gpu)
set_tests_properties(hardware-gpu PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(hardware-gpu-stub PROPERTIES ENVIRONMENT "LD_LIBRARY_PATH=${own}"
  ENVIRONMENT_MODIFICATION CUDA_VISIBLE_DEVICES=unset:)
add_dependencies(test-hardware-gpu stub-hardware-nvml stub-hardware-cuda)
