# The engine llm, through the plug-in, as a program has it.
if(NOT TARGET weir-engine-llm)
  return()
endif()
set(llm_sources ${PROJECT_SOURCE_DIR}/src/engines/llm)

# GenAI without weir, in a program of its own.
add_executable(llm-plain ${CMAKE_CURRENT_LIST_DIR}/plain.c)
target_compile_definitions(llm-plain PRIVATE _GNU_SOURCE)
target_compile_options(llm-plain PRIVATE -fno-sanitize=all)
target_link_options(llm-plain PRIVATE -fno-sanitize=all)
target_include_directories(llm-plain PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(llm-plain PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(llm-plain PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

function(weir_llm_test name)
  weir_test(llm-${name} ${ARGN} LIBS weir_text Threads::Threads ${CMAKE_DL_LIBS} m LABELS engine
    ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  target_include_directories(test-llm-${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  add_dependencies(test-llm-${name} weir-engine-llm llm-plain)
endfunction()

weir_llm_test(answers llm/answers.c llm/answer.c)
weir_llm_test(text llm/text.c llm/answer.c llm/folders.c)
weir_llm_test(memory llm/memory.c llm/answer.c llm/folders.c)
weir_llm_test(refusals llm/refusals.c llm/answer.c)
