# The parts of `weir replay`; test_replay.py has the verb.
set(cli ${PROJECT_SOURCE_DIR}/src/cli)
weir_test(cli-replay-plan ${CMAKE_CURRENT_LIST_DIR}/replay_plan.c ${cli}/replay_plan.c ${cli}/replay_load.c
  INTERNAL LIBS weir_trace)
weir_test(cli-replay-cap ${CMAKE_CURRENT_LIST_DIR}/replay_cap.c ${cli}/replay_cap.c INTERNAL)
weir_test(cli-replay-loop ${CMAKE_CURRENT_LIST_DIR}/replay_loop.c ${cli}/replay_loop.c ${cli}/replay_gates.c
  ${cli}/replay_gates_cuda.c ${cli}/cuda_find.c INTERNAL)
target_link_options(test-cli-replay-loop PRIVATE -Wl,--wrap=clock_gettime)
