# The HTTP server from the outside: a program with routes of every kind, and clients that misbehave.
if(NOT TARGET weir_serve OR NOT Python3_FOUND OR CMAKE_CROSSCOMPILING)
  return()
endif()
add_executable(serve-server ${CMAKE_CURRENT_LIST_DIR}/server.c)
target_compile_definitions(serve-server PRIVATE _GNU_SOURCE)
target_link_libraries(serve-server PRIVATE weir_serve)
set_target_properties(serve-server PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
foreach(part requests clients)
  add_test(NAME serve-${part} COMMAND ${CMAKE_COMMAND} -E env WEIR_TEST_BINARY=${PROJECT_BINARY_DIR} ${Python3_EXECUTABLE} -B
    ${CMAKE_CURRENT_LIST_DIR}/test_${part}.py)
  set_tests_properties(serve-${part} PROPERTIES LABELS serve)
endforeach()
