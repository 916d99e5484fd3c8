# The check of a file's structure needs no llama.cpp: its sources are built into the test.
set(gguf_sources ${PROJECT_SOURCE_DIR}/src/gguf/engine)
weir_test(gguf-check gguf/check.c gguf/writer.c ${gguf_sources}/check.c ${gguf_sources}/check_tensors.c
  ${gguf_sources}/check_vocabulary.c
  LIBS weir_gguf_file m LABELS gguf)
target_include_directories(test-gguf-check PRIVATE ${PROJECT_SOURCE_DIR}/src)

weir_test(gguf-checked gguf/checked.c gguf/writer.c ${gguf_sources}/check.c ${gguf_sources}/check_tensors.c
  ${gguf_sources}/check_vocabulary.c ${gguf_sources}/checked.c
  LIBS weir_gguf_file m LABELS gguf)
target_include_directories(test-gguf-checked PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_options(test-gguf-checked PRIVATE -Wl,--wrap=wi_gguf_file_open,--wrap=wi_gguf_hyper_read,--wrap=clock_gettime,--wrap=malloc)

# Neither does what a model will take.
weir_test(gguf-layout gguf/layout.c gguf/shapes.c gguf/writer.c LIBS weir_gguf_file LABELS gguf)

# Grammars need none either.
weir_test(gguf-grammar gguf/grammar.c ${gguf_sources}/grammar.c LABELS gguf)
target_include_directories(test-gguf-grammar PRIVATE ${PROJECT_SOURCE_DIR}/src)

# Where llama.cpp is not in the store there is no plug-in to test.
if(TARGET weir-engine-gguf)
  foreach(part engine together several decodes calls embeds text sequence elastic elastic-book memory library cores)
    string(REPLACE - _ source ${part})
    weir_test(gguf-${part} gguf/${source}.c gguf/writer.c LIBS m LABELS gguf
      ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
    target_include_directories(test-gguf-${part} SYSTEM PRIVATE ${WEIR_LLAMA}/include)
    add_dependencies(test-gguf-${part} weir-engine-gguf)
  endforeach()
  weir_test(gguf-starved gguf/starved.c gguf/writer.c starve.c LIBS weir_interpose weir_base ${CMAKE_DL_LIBS} Threads::Threads m LABELS gguf
    ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  target_include_directories(test-gguf-starved PRIVATE ${PROJECT_SOURCE_DIR}/src)
  add_dependencies(test-gguf-starved weir-engine-gguf)
  weir_test(gguf-log gguf/log.c ${gguf_sources}/log.c LABELS gguf)
  target_include_directories(test-gguf-log SYSTEM PRIVATE ${WEIR_LLAMA}/include)
  target_include_directories(test-gguf-log PRIVATE ${PROJECT_SOURCE_DIR}/src)
  weir_test(gguf-scratch gguf/scratch.c ${gguf_sources}/scratch.c ${gguf_sources}/scratch_known.c
    LIBS weir_text LABELS gguf)
  target_include_directories(test-gguf-scratch SYSTEM PRIVATE ${WEIR_LLAMA}/include)
  target_include_directories(test-gguf-scratch PRIVATE ${PROJECT_SOURCE_DIR}/src)
  weir_test(gguf-planned gguf/planned.c ${gguf_sources}/plan.c LIBS weir_text LABELS gguf)
  target_include_directories(test-gguf-planned SYSTEM PRIVATE ${WEIR_LLAMA}/include)
  target_include_directories(test-gguf-planned PRIVATE ${PROJECT_SOURCE_DIR}/src)
  # Nor does what is done with devices need the library for CUDA.
  foreach(name devices buffers)
    weir_test(gguf-${name} gguf/${name}.c gguf/devices_rig.c ${gguf_sources}/devices.c ${gguf_sources}/buffers.c ${gguf_sources}/cache.c
      ${gguf_sources}/cores.c LIBS weir_text ${CMAKE_DL_LIBS} LABELS gguf)
    target_include_directories(test-gguf-${name} SYSTEM PRIVATE ${WEIR_LLAMA}/include)
    target_include_directories(test-gguf-${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_options(test-gguf-${name} PRIVATE -Wl,--wrap=dlopen,--wrap=dlsym,--wrap=weir_runtime_info,--wrap=wg_cache_wanted,--wrap=wg_cache_on_host,--wrap=wg_cache_on_device,--wrap=wg_cache_made)
  endforeach()
  weir_test(gguf-layout-dry gguf/layout_dry.c gguf/shapes.c gguf/writer.c $<TARGET_OBJECTS:weir-engine-gguf-border>
    LIBS weir_gguf_file stdc++ ${CMAKE_DL_LIBS} LABELS gguf ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  target_include_directories(test-gguf-layout-dry SYSTEM PRIVATE ${WEIR_LLAMA}/include)
  set_target_properties(test-gguf-layout-dry PROPERTIES LINKER_LANGUAGE C)
  add_dependencies(test-gguf-layout-dry weir-engine-gguf)
  target_link_libraries(test-gguf-engine PRIVATE weir_gguf_file)
  target_include_directories(test-gguf-engine PRIVATE ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(test-gguf-engine PROPERTIES ENABLE_EXPORTS ON) # of an engine of its own
  target_include_directories(test-gguf-decodes PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(test-gguf-calls PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(test-gguf-embeds PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(test-gguf-sequence PRIVATE weir_text)
  target_include_directories(test-gguf-sequence PRIVATE ${PROJECT_SOURCE_DIR}/src)
  weir_test(gguf-hostile gguf/hostile.c gguf/writer.c LABELS gguf
    ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  add_dependencies(test-gguf-hostile weir-engine-gguf)
  # On a GPU, where the store has llama.cpp's library for CUDA; by scripts/gpu-llama.
  foreach(part gpu gpu-failing two)
    string(REPLACE - _ source ${part})
    add_executable(test-gguf-${part} ${CMAKE_CURRENT_LIST_DIR}/${source}.c ${CMAKE_CURRENT_LIST_DIR}/writer.c)
    target_compile_definitions(test-gguf-${part} PRIVATE _GNU_SOURCE WEIR_TEST_STORE="${WEIR_STORE_PATH}")
    target_include_directories(test-gguf-${part} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_include_directories(test-gguf-${part} SYSTEM PRIVATE ${WEIR_LLAMA}/include)
    target_link_libraries(test-gguf-${part} PRIVATE weir PkgConfig::CMOCKA Threads::Threads ${CMAKE_DL_LIBS} m)
    set_target_properties(test-gguf-${part} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    add_dependencies(test-gguf-${part} weir-engine-gguf)
  endforeach()
  # On all processors two of them run among the long tests (and, in debug, behind the command's).
  set_property(TEST gguf-engine gguf-together gguf-several gguf-decodes gguf-calls gguf-embeds gguf-text gguf-sequence gguf-elastic gguf-elastic-book gguf-memory gguf-library gguf-hostile APPEND PROPERTY ENVIRONMENT WEIR_TEST_ONE_PROCESSOR=1)
  foreach(part engine memory)
    add_test(NAME gguf-${part}-cores COMMAND test-gguf-${part})
    set_tests_properties(gguf-${part}-cores PROPERTIES LABELS "gguf;long" RUN_SERIAL ON
      ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  endforeach()
  # The demo's models: 200 cuts and 300 flips each, most of them in the metadata.
  foreach(model minilm tiny-llama)
    add_test(NAME gguf-hostile-${model} COMMAND test-gguf-hostile ${WEIR_STORE_PATH}/models/${model}.gguf 200 300 5 750000)
    set_tests_properties(gguf-hostile-${model} PROPERTIES LABELS "gguf;long" SKIP_RETURN_CODE 77
      ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  endforeach()
endif()

# CUDA. The real module of the store, and beside it a stand-in that asks for the same: both over the stub of CUDA's libraries.
include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
set(gguf_cuda "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x40000000")
add_library(cuda-standin SHARED ${CMAKE_CURRENT_LIST_DIR}/cuda_standin.c)
target_compile_options(cuda-standin PRIVATE -fno-sanitize=all)
target_link_libraries(cuda-standin PRIVATE stub-cudart stub-cuda)
target_link_options(cuda-standin PRIVATE -Wl,-z,now,-z,relro)
set_target_properties(cuda-standin PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/gguf)
weir_test(gguf-cuda-replay gguf/cuda_replay.c LABELS gguf LIBS weir_interpose weir_base ${CMAKE_DL_LIBS} Threads::Threads
  ENVIRONMENT "${gguf_cuda}")
target_include_directories(test-gguf-cuda-replay PRIVATE ${PROJECT_SOURCE_DIR}/src)
add_dependencies(test-gguf-cuda-replay cuda-standin)
if(TARGET weir-engine-gguf)
  weir_test(gguf-cuda-stub gguf/cuda_stub.c gguf/cuda_llama.c gguf/cuda_record.c gguf/writer.c LABELS gguf
    LIBS weir_interpose weir_base ${CMAKE_DL_LIBS} Threads::Threads ENVIRONMENT "${gguf_cuda}")
  target_include_directories(test-gguf-cuda-stub PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(test-gguf-cuda-stub SYSTEM PRIVATE ${WEIR_LLAMA}/include)
  add_dependencies(test-gguf-cuda-stub stub-cuda stub-cudart stub-cublas stub-cublasLt)
  set_tests_properties(gguf-cuda-stub PROPERTIES SKIP_RETURN_CODE 77)
  if(EXISTS ${WEIR_STORE_PATH}/engines/llama-cuda/current/lib/libggml-cuda.so)
    foreach(part gpu gpu-failing)
      add_test(NAME gguf-${part}-stub COMMAND test-gguf-${part})
      set_tests_properties(gguf-${part}-stub PROPERTIES LABELS gguf ENVIRONMENT
        "${gguf_cuda};WEIR_LLAMA_CUDA=${WEIR_STORE_PATH}/engines/llama-cuda/current;WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir")
    endforeach()
    set_property(TEST gguf-gpu-stub APPEND PROPERTY LABELS long)
    add_test(NAME gguf-hostile-cuda COMMAND test-gguf-hostile)
    set_tests_properties(gguf-hostile-cuda PROPERTIES LABELS "gguf;long" ENVIRONMENT
      "${gguf_cuda};WEIR_TEST_DEVICE=cuda:0;WEIR_LLAMA_CUDA=${WEIR_STORE_PATH}/engines/llama-cuda/current;WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir")
    add_test(NAME gguf-two-stub COMMAND test-gguf-two)
    set_tests_properties(gguf-two-stub PROPERTIES LABELS gguf ENVIRONMENT
      "${gguf_cuda};STUB_CUDA_DEVICES=2;WEIR_LLAMA_CUDA=${WEIR_STORE_PATH}/engines/llama-cuda/current;WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir")
  endif()
endif()
