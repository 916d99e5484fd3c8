# What the machine has, and versions. Other machines are directories that the tests make, with libraries of these stubs.
weir_test(hardware-versions hardware/versions.c)

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

add_library(hardware-machine OBJECT ${CMAKE_CURRENT_LIST_DIR}/machine.c)
target_compile_definitions(hardware-machine PRIVATE _GNU_SOURCE WEIR_TEST_BINARY="${PROJECT_BINARY_DIR}"
  WEIR_HARDWARE_STUB="${WEIR_HARDWARE_STUB}")
target_include_directories(hardware-machine PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(hardware-machine PRIVATE PkgConfig::CMOCKA)

foreach(part machines others limits visible slow)
  weir_test(hardware-${part} hardware/${part}.c $<TARGET_OBJECTS:hardware-machine> LIBS Threads::Threads)
  add_dependencies(test-hardware-${part} stub-hardware-nvml stub-hardware-nvml-old stub-hardware-cuda)
endforeach()

include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
weir_test(hardware-here hardware/here.c)
add_dependencies(test-hardware-here stub-cuda)
set_tests_properties(hardware-here PROPERTIES
  ENVIRONMENT "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/stub/cuda;STUB_CUDA_TOTAL=0x10000000;WEIR_BUDGET=64MiB")
