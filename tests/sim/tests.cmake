# The simulated device, the oracle by hand-written schedules, and the runtime under both.
include(${PROJECT_SOURCE_DIR}/src/sim/sources.cmake)
add_library(test-sim-objects OBJECT ${WEIR_SIM_SOURCES})
target_include_directories(test-sim-objects PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(test-sim-objects PRIVATE _GNU_SOURCE)
foreach(part driver single oracle simulate planted faults)
  weir_test(sim-${part} sim/${part}.c $<TARGET_OBJECTS:test-sim-objects> INTERNAL LABELS sim)
endforeach()
weir_test(sim-long sim/long.c $<TARGET_OBJECTS:test-sim-objects> INTERNAL LONG TIMEOUT 1800 LABELS sim)

find_package(Python3 COMPONENTS Interpreter)
if(TARGET weir_command AND Python3_FOUND AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME sim-command COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_command.py)
  set_tests_properties(sim-command PROPERTIES TIMEOUT 300 LABELS "cli;sim")
endif()
