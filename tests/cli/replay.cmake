# The parts of `weir replay`; test_replay.py has the verb.
set(cli ${PROJECT_SOURCE_DIR}/src/cli)
weir_test(cli-replay-plan ${CMAKE_CURRENT_LIST_DIR}/replay_plan.c ${cli}/replay/load.c INTERNAL LIBS weir_trace)
weir_test(cli-replay-cap ${CMAKE_CURRENT_LIST_DIR}/replay_cap.c ${cli}/replay/cap.c INTERNAL)
weir_test(cli-replay-loop ${CMAKE_CURRENT_LIST_DIR}/replay_loop.c ${cli}/replay/loop.c ${cli}/replay/lag_gates.c
  ${cli}/run/measure.c INTERNAL)
target_link_options(test-cli-replay-loop PRIVATE -Wl,--wrap=clock_gettime)

# The sentence about a refusal, beside threads that allocate and free; test_run_refused.py has the verb.
weir_test(cli-suggestion ${CMAKE_CURRENT_LIST_DIR}/suggestion.c ${cli}/run/failure.c ${cli}/text.c INTERNAL LIBS PkgConfig::JANSSON)
