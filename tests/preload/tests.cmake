# `weir exec`: programs that know nothing of weir, over the stub of CUDA's libraries.
if(NOT TARGET weir-preload OR NOT TARGET weir_command OR NOT Python3_FOUND OR CMAKE_CROSSCOMPILING)
  return()
endif()
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
set(WEIR_PRELOAD_PLACE ${PROJECT_BINARY_DIR}/tests/preload)

function(weir_preload_program name)
  cmake_parse_arguments(P "" "" "SOURCES;LIBS;DEFINITIONS;LINK" ${ARGN})
  list(TRANSFORM P_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/tests/preload/)
  add_executable(${name} ${P_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE ${P_DEFINITIONS})
  target_link_options(${name} PRIVATE ${P_LINK})
  target_link_libraries(${name} PRIVATE ${P_LIBS} Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${WEIR_PRELOAD_PLACE})
endfunction()

weir_preload_program(preload-program SOURCES program.c several.c newer.c way.c)
weir_preload_program(preload-sibling SOURCES sibling.c way.c)
weir_preload_program(preload-linked SOURCES program.c several.c newer.c way.c LIBS stub-cuda DEFINITIONS LINKED LINK -Wl,--no-as-needed)
weir_preload_program(preload-runtime SOURCES runtime.c LIBS stub-cudart)
# The runtime's functions are the program's own, as where it is linked statically.
weir_preload_program(preload-runtime-inside SOURCES runtime.c ../stub/cudart/device.c ../stub/cudart/memory.c
  ../stub/cudart/stream.c ../stub/cudart/kernel.c)
weir_preload_program(preload-static SOURCES static.c LINK -static)
foreach(part first second)
  add_library(preload-${part} SHARED ${CMAKE_CURRENT_LIST_DIR}/next.c)
  target_compile_definitions(preload-${part} PRIVATE _GNU_SOURCE $<$<STREQUAL:${part},first>:FIRST>)
  target_link_libraries(preload-${part} PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(preload-${part} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${WEIR_PRELOAD_PLACE})
endforeach()
weir_preload_program(preload-plain SOURCES plain.c LIBS preload-first preload-second LINK -Wl,--no-as-needed)

add_library(preload-nvml SHARED ${CMAKE_CURRENT_LIST_DIR}/nvml.c)
target_include_directories(preload-nvml PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
set_target_properties(preload-nvml PROPERTIES OUTPUT_NAME nvidia-ml SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${WEIR_PRELOAD_PLACE}/nvml)

add_custom_target(test-preload ALL)
add_dependencies(test-preload weir_command weir-preload preload-program preload-sibling preload-linked preload-runtime preload-runtime-inside preload-static
  preload-plain preload-nvml stub-cuda stub-cuda-old stub-cudart)
foreach(test "preload:exec" "preload-tree:tree")
  string(REPLACE ":" ";" test "${test}")
  list(GET test 0 name)
  list(GET test 1 file)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E env WEIR_TEST_BINARY=${PROJECT_BINARY_DIR} LD_LIBRARY_PATH=${WEIR_STUB}/cuda
    ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/test_${file}.py)
  set_tests_properties(${name} PROPERTIES LABELS cli)
endforeach()
