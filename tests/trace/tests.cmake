# Recording: events, sinks, files and the check of a recorded program.
foreach(part events sinks)
  weir_test(trace-${part} ${CMAKE_CURRENT_LIST_DIR}/${part}.c)
  target_include_directories(test-trace-${part} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/../core)
endforeach()
foreach(part file races pickle order rows)
  weir_test(trace-${part} ${CMAKE_CURRENT_LIST_DIR}/${part}.c LIBS weir_trace)
  target_include_directories(test-trace-${part} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/../core)
endforeach()
add_executable(test-trace-program ${CMAKE_CURRENT_LIST_DIR}/program.c)
target_include_directories(test-trace-program PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(test-trace-program PRIVATE weir Threads::Threads)
set_target_properties(test-trace-program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

if(TARGET weir_command AND Python3_FOUND AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME trace-command COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} WEIR_TEST_BINARY=${PROJECT_BINARY_DIR}
    WEIR_TEST_SANITIZE=${WEIR_SANITIZE} ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_trace.py)
  set_tests_properties(trace-command PROPERTIES LABELS "cli;sim")
endif()
