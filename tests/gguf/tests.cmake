# The check of a file's structure needs no llama.cpp: its sources are built into the test.
set(gguf_sources ${PROJECT_SOURCE_DIR}/src/engines/gguf)
weir_test(gguf-check gguf/check.c gguf/writer.c ${gguf_sources}/check.c ${gguf_sources}/check_tensors.c
  ${gguf_sources}/check_vocabulary.c ${gguf_sources}/file.c ${gguf_sources}/cursor.c ${gguf_sources}/types.c
  LIBS m LABELS gguf)
target_include_directories(test-gguf-check PRIVATE ${PROJECT_SOURCE_DIR}/src)

# So do words, grammars and sums.
weir_test(gguf-words gguf/words.c ${gguf_sources}/stop.c ${gguf_sources}/grammar.c ${gguf_sources}/sum.c LABELS gguf)
target_include_directories(test-gguf-words PRIVATE ${PROJECT_SOURCE_DIR}/src)

# Where llama.cpp is not in the store there is no plug-in to test.
if(TARGET weir-engine-gguf)
  foreach(part engine together text sequence memory library)
    weir_test(gguf-${part} gguf/${part}.c gguf/writer.c LIBS m TIMEOUT 300 LABELS gguf
      ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
    target_include_directories(test-gguf-${part} SYSTEM PRIVATE ${WEIR_LLAMA}/include)
    add_dependencies(test-gguf-${part} weir-engine-gguf)
  endforeach()
  target_sources(test-gguf-engine PRIVATE ${gguf_sources}/types.c)
  target_include_directories(test-gguf-engine PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_sources(test-gguf-sequence PRIVATE ${gguf_sources}/sum.c)
  target_include_directories(test-gguf-sequence PRIVATE ${PROJECT_SOURCE_DIR}/src)
  weir_test(gguf-hostile gguf/hostile.c gguf/writer.c TIMEOUT 600 LABELS gguf
    ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  add_dependencies(test-gguf-hostile weir-engine-gguf)
  # On all processors two of them run among the long tests (and, in debug, behind the command's).
  set_property(TEST gguf-engine gguf-together gguf-text gguf-sequence gguf-memory gguf-library gguf-hostile APPEND PROPERTY ENVIRONMENT WEIR_TEST_ONE_PROCESSOR=1)
  foreach(part engine memory)
    add_test(NAME gguf-${part}-cores COMMAND test-gguf-${part})
    set_tests_properties(gguf-${part}-cores PROPERTIES LABELS "gguf;long" TIMEOUT 600 RUN_SERIAL ON
      ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  endforeach()
  # The demo's models: 200 cuts and 300 flips each, most of them in the metadata.
  foreach(model minilm tiny-llama)
    add_test(NAME gguf-hostile-${model} COMMAND test-gguf-hostile ${WEIR_STORE_PATH}/models/${model}.gguf 200 300 5 750000)
    set_tests_properties(gguf-hostile-${model} PROPERTIES LABELS "gguf;long" TIMEOUT 1200 SKIP_RETURN_CODE 77
      ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  endforeach()
endif()
