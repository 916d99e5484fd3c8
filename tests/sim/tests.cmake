# The simulated device, the oracle by hand-written schedules, and the runtime under both.
foreach(part driver single graph oracle simulate planted faults ends residency scripts)
  weir_test(sim-${part} sim/${part}.c SIMULATOR LABELS sim)
endforeach()
# A pool of models under traffic, which needs no device.
foreach(part traffic drive)
  weir_test(sim-pool-${part} sim/pool_${part}.c SIMULATOR LABELS sim)
endforeach()
foreach(part long pairs)
  weir_test(sim-${part} sim/${part}.c SIMULATOR LONG LABELS sim)
endforeach()

find_package(Python3 COMPONENTS Interpreter)
if(TARGET weir_command AND Python3_FOUND AND NOT CMAKE_CROSSCOMPILING)
  set(environment ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B)
  add_test(NAME sim-command COMMAND ${environment} ${CMAKE_CURRENT_LIST_DIR}/test_command.py)
  set_tests_properties(sim-command PROPERTIES LABELS "cli;sim")
  add_test(NAME sim-pool-command COMMAND ${environment} ${CMAKE_CURRENT_LIST_DIR}/test_pool_command.py)
  set_tests_properties(sim-pool-command PROPERTIES LABELS "cli;sim")
  if(NOT WEIR_INVARIANTS AND NOT WEIR_SANITIZE)
    foreach(seed 1 3) # two halves, for two processors; with odd seeds threads keep what they free
      add_test(NAME sim-steps-${seed} COMMAND ${environment} ${CMAKE_CURRENT_LIST_DIR}/test_steps.py)
      set_tests_properties(sim-steps-${seed} PROPERTIES LABELS "sim;release" ENVIRONMENT WEIR_TEST_SEED=${seed})
    endforeach()
  endif()
endif()
