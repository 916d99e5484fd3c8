# What the machine has, and versions. Other machines are directories that the tests make, with libraries of these stubs.
weir_test(hardware-versions hardware/versions.c)

set(WEIR_HARDWARE_STUB ${PROJECT_BINARY_DIR}/stub/hardware)
foreach(stub nvml cuda)
  add_library(stub-hardware-${stub} SHARED ${CMAKE_CURRENT_LIST_DIR}/stub_${stub}.c ${CMAKE_CURRENT_LIST_DIR}/stub_read.c)
  target_compile_definitions(stub-hardware-${stub} PRIVATE _GNU_SOURCE)
  target_link_libraries(stub-hardware-${stub} PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(stub-hardware-${stub} PROPERTIES OUTPUT_NAME ${stub} LIBRARY_OUTPUT_DIRECTORY ${WEIR_HARDWARE_STUB})
endforeach()

foreach(part machines others limits visible slow)
  weir_test(hardware-${part} hardware/${part}.c hardware/machine.c LIBS Threads::Threads)
  target_compile_definitions(test-hardware-${part} PRIVATE WEIR_HARDWARE_STUB="${WEIR_HARDWARE_STUB}")
  add_dependencies(test-hardware-${part} stub-hardware-nvml stub-hardware-cuda)
endforeach()
