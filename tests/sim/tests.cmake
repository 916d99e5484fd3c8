# The simulated device, the oracle by hand-written schedules, and the runtime under both.
include(${PROJECT_SOURCE_DIR}/src/sim/sources.cmake)
add_library(test-sim-objects OBJECT ${WEIR_SIM_SOURCES})
target_include_directories(test-sim-objects PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(test-sim-objects PRIVATE _GNU_SOURCE)
foreach(part driver oracle simulate planted faults)
  weir_test(sim-${part} sim/${part}.c $<TARGET_OBJECTS:test-sim-objects> INTERNAL LABELS sim)
endforeach()
weir_test(sim-long sim/long.c $<TARGET_OBJECTS:test-sim-objects> INTERNAL LONG TIMEOUT 1800 LABELS sim)
