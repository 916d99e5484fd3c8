# The engine llm. What is said of folders needs no engine: its sources are built into the test.
set(llm_sources ${PROJECT_SOURCE_DIR}/src/engines/llm)
if(TARGET weir_onnx_file AND JANSSON_FOUND)
  foreach(test folder config)
    weir_test(llm-${test} llm/${test}.c llm/good_folder.c llm/graph.c ${llm_sources}/folder.c ${llm_sources}/known.c ${llm_sources}/config.c ${llm_sources}/tokenizer.c
      LIBS weir_onnx_file weir_base PkgConfig::JANSSON m)
    target_include_directories(test-llm-${test} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  endforeach()
  target_link_options(test-llm-folder PRIVATE -Wl,--wrap=wl_tokenizer_check,--wrap=clock_gettime,--wrap=fstatat)
endif()

# Neither does where its memory goes.
weir_test(llm-account llm/account.c ${llm_sources}/memory.c LIBS weir_interpose weir_base ${CMAKE_DL_LIBS} Threads::Threads LABELS engine)
target_include_directories(test-llm-account PRIVATE ${PROJECT_SOURCE_DIR}/src)
foreach(call dlopen dlsym wi_pointer_map_put weir_onnxruntime_create weir_onnxruntime_destroy weir_onnxruntime_info weir_onnxruntime_explain
        weir_runtime_info weir_stream_register weir_stream_unregister weir_stream_synchronize weir_alloc_with weir_free wi_cuda_scope_enter
        wi_cuda_scope_leave)
  target_link_options(test-llm-account PRIVATE -Wl,--wrap=${call})
endforeach()

weir_test(llm-table llm/table.c ${llm_sources}/table.c ${llm_sources}/memory.c LIBS weir_interpose weir_base ${CMAKE_DL_LIBS} Threads::Threads LABELS engine)
target_include_directories(test-llm-table PRIVATE ${PROJECT_SOURCE_DIR}/src)
foreach(call create destroy info enter leave)
  target_link_options(test-llm-table PRIVATE -Wl,--wrap=weir_onnxruntime_${call})
endforeach()

# Nor its library for CUDA.
weir_test(llm-devices llm/devices.c ${llm_sources}/devices.c LIBS ${CMAKE_DL_LIBS} Threads::Threads LABELS engine)
target_include_directories(test-llm-devices PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_options(test-llm-devices PRIVATE -Wl,--wrap=dlopen,--wrap=weir_runtime_info)

# Nor how both libraries are opened.
weir_test(llm-opening llm/opening.c ${llm_sources}/library.c LIBS ${CMAKE_DL_LIBS} Threads::Threads LABELS engine)
target_include_directories(test-llm-opening PRIVATE ${PROJECT_SOURCE_DIR}/src)
foreach(call dlopen dlsym dlclose strdup atexit)
  target_link_options(test-llm-opening PRIVATE -Wl,--wrap=${call})
endforeach()

# The rest is through the plug-in, as a program has it.
if(NOT TARGET weir-engine-llm)
  return()
endif()

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
set_target_properties(test-llm-text PROPERTIES ENABLE_EXPORTS ON) # of an engine of its own
weir_llm_test(memory llm/memory.c llm/answer.c llm/folders.c llm/graph.c)
weir_llm_test(refusals llm/refusals.c llm/answer.c)
weir_llm_test(others llm/others.c llm/answer.c)
if(TARGET weir-engine-onnx)
  add_dependencies(test-llm-others weir-engine-onnx)
endif()
weir_llm_test(together llm/together.c llm/answer.c llm/folders.c)
weir_llm_test(several llm/several.c llm/answer.c llm/folders.c)
weir_llm_test(cores llm/cores.c llm/folders.c)
weir_llm_test(line llm/line.c)
weir_llm_test(made llm/made.c)
weir_llm_test(told llm/told.c llm/folders.c)
weir_llm_test(starved llm/starved.c llm/folders.c starve.c)
target_link_libraries(test-llm-starved PRIVATE weir_interpose weir_base)
weir_llm_test(hostile llm/hostile.c llm/folders.c llm/outside.c)
target_link_libraries(test-llm-hostile PRIVATE PkgConfig::JANSSON)
set_target_properties(test-llm-hostile PROPERTIES ENABLE_EXPORTS ON)
weir_llm_test(library llm/library.c llm/answer.c)
# A library that is none of GenAI's.
add_library(llm-no-genai SHARED ${CMAKE_CURRENT_LIST_DIR}/no_genai.c)
set_target_properties(llm-no-genai PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_dependencies(test-llm-library llm-no-genai)
weir_llm_test(cycles llm/cycles.c)

# All of what the usual tests do a part of.
foreach(part "hostile 1" "cycles 500")
  separate_arguments(words UNIX_COMMAND ${part})
  list(POP_FRONT words name)
  add_test(NAME llm-${name}-all COMMAND test-llm-${name} ${words})
  set_tests_properties(llm-${name}-all PROPERTIES LABELS "engine;long"
    ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
endforeach()

# On a GPU; by scripts/gpu-llm.
add_executable(test-llm-gpu ${CMAKE_CURRENT_LIST_DIR}/gpu.c)
target_include_directories(test-llm-gpu PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_compile_definitions(test-llm-gpu PRIVATE _GNU_SOURCE WEIR_TEST_STORE="${WEIR_STORE_PATH}")
target_link_libraries(test-llm-gpu PRIVATE weir PkgConfig::CMOCKA Threads::Threads)
set_target_properties(test-llm-gpu PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_dependencies(test-llm-gpu weir-engine-llm)

# The same over the stub of CUDA's libraries, where the store has ONNX Runtime and GenAI for CUDA: kernels compute nothing there.
set(llm_python ${WEIR_STORE_PATH}/venv/bin/python)
if(NOT WEIR_SANITIZE AND EXISTS ${llm_python} AND EXISTS ${WEIR_STORE_PATH}/engines/onnxruntime-cuda/current/libonnxruntime.so AND
   EXISTS ${WEIR_STORE_PATH}/engines/onnxruntime-genai-cuda/current/libonnxruntime-genai-cuda.so)
  set(llm_models ${PROJECT_BINARY_DIR}/tests/llm)
  foreach(cache shared concat paged)
    add_test(NAME llm-gpu-model-${cache} COMMAND ${llm_python} -B ${PROJECT_SOURCE_DIR}/scripts/llm_model.py ${llm_models}/${cache}
      --shape small --device cuda --cache ${cache})
    set_tests_properties(llm-gpu-model-${cache} PROPERTIES FIXTURES_SETUP llm-gpu-models LABELS engine)
  endforeach()
  add_test(NAME llm-gpu-stub COMMAND test-llm-gpu ${llm_models}/shared ${llm_models}/concat ${llm_models}/paged)
  set_tests_properties(llm-gpu-stub PROPERTIES FIXTURES_REQUIRED llm-gpu-models LABELS engine ENVIRONMENT
    "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x40000000;ORT_ENABLE_CUDNN_FLASH_ATTENTION=0;WEIR_TEST_DEVICE=cuda:0;WEIR_HOME=${WEIR_STORE_PATH};WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir")
  add_dependencies(test-llm-gpu stub-provider)
endif()
