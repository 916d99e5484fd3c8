# Plans: what the lists of buffers and the planner promise.
foreach(planner_test property graph)
  weir_test(planner-${planner_test} planner/${planner_test}.c)
endforeach()
weir_test(planner-rules planner/rules.c INTERNAL)
weir_test(planner-greedy planner/greedy.c INTERNAL)
weir_test(planner-files planner/files.c INTERNAL)
weir_test(planner-faults planner/faults.c INTERNAL)
target_link_options(test-planner-faults PRIVATE -Wl,--wrap=realloc,--wrap=fclose)

# Random lists and graphs in greater numbers.
foreach(planner_test property graph greedy)
  add_test(NAME planner-${planner_test}-long COMMAND test-planner-${planner_test})
  set_tests_properties(planner-${planner_test}-long PROPERTIES LABELS long ENVIRONMENT WEIR_PLAN_ROUNDS=20000)
endforeach()

# A million hostile texts, where the compiler can steer towards new ones.
if(WEIR_HAVE_FUZZER)
  file(GLOB fuzzed CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/base/*.c)
  set(WEIR_SOURCES)
  include(${PROJECT_SOURCE_DIR}/src/planner/sources.cmake)
  list(APPEND fuzzed ${WEIR_SOURCES})
  add_executable(fuzz-planner planner/fuzz.c ${fuzzed})
  target_compile_definitions(fuzz-planner PRIVATE _GNU_SOURCE)
  target_include_directories(fuzz-planner PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(fuzz-planner PRIVATE -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined)
  target_link_options(fuzz-planner PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_libraries(fuzz-planner PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(fuzz-planner PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fuzz-planner-found)
  add_test(NAME planner-fuzz COMMAND fuzz-planner -runs=1000000 -max_len=600 -seed=1 -verbosity=0 -rss_limit_mb=4096
    -dict=${CMAKE_CURRENT_SOURCE_DIR}/planner/words.dict ${PROJECT_BINARY_DIR}/tests/fuzz-planner-found
    ${CMAKE_CURRENT_SOURCE_DIR}/planner/seeds)
  set_tests_properties(planner-fuzz PROPERTIES LABELS long)
endif()
