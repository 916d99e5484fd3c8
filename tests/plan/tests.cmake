# Plans: what the lists of buffers and the planner promise.
foreach(plan_test property graph)
  weir_test(plan-${plan_test} plan/${plan_test}.c)
endforeach()
weir_test(plan-rules plan/rules.c INTERNAL)
weir_test(plan-greedy plan/greedy.c INTERNAL)
weir_test(plan-files plan/files.c INTERNAL)
weir_test(plan-faults plan/faults.c INTERNAL)
target_link_options(test-plan-faults PRIVATE -Wl,--wrap=realloc,--wrap=fclose)

# Random lists and graphs in greater numbers.
foreach(plan_test property graph greedy)
  add_test(NAME plan-${plan_test}-long COMMAND test-plan-${plan_test})
  set_tests_properties(plan-${plan_test}-long PROPERTIES LABELS long TIMEOUT 1800 ENVIRONMENT WEIR_PLAN_ROUNDS=20000)
endforeach()

# A million hostile texts, where the compiler can steer towards new ones.
if(WEIR_HAVE_FUZZER)
  file(GLOB fuzzed CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/base/*.c)
  foreach(file buffers buffers_csv nodes lines radix storage in_place loads sections problem placed taken solve solve_greedy solve_sky solve_cover
          cover cover_choice cover_search cover_table cover_repair plan plan_make plan_check plan_save plan_load)
    list(APPEND fuzzed ${PROJECT_SOURCE_DIR}/src/arena/${file}.c)
  endforeach()
  add_executable(fuzz-plan plan/fuzz.c ${fuzzed} ${PROJECT_SOURCE_DIR}/src/engine/tensor.c)
  target_compile_definitions(fuzz-plan PRIVATE _GNU_SOURCE)
  target_include_directories(fuzz-plan PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(fuzz-plan PRIVATE -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined)
  target_link_options(fuzz-plan PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_libraries(fuzz-plan PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(fuzz-plan PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fuzz-plan-found)
  add_test(NAME plan-fuzz-lists COMMAND fuzz-plan -runs=1000000 -max_len=600 -seed=1 -verbosity=0 -rss_limit_mb=4096
    -dict=${CMAKE_CURRENT_SOURCE_DIR}/plan/words.dict ${PROJECT_BINARY_DIR}/tests/fuzz-plan-found
    ${CMAKE_CURRENT_SOURCE_DIR}/plan/seeds)
  set_tests_properties(plan-fuzz-lists PROPERTIES LABELS long TIMEOUT 1800)
endif()
