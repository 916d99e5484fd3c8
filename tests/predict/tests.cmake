# What models will take: what is remembered of loads, and what is made of it.
weir_test(predict-measured predict/measured.c INTERNAL)
weir_test(predict-contents predict/contents.c INTERNAL)
target_link_options(test-predict-contents PRIVATE -Wl,--wrap=pread,--wrap=clock_gettime)
weir_test(predict-loads predict/loads.c predict/toy.c)
weir_test(predict-fit predict/fit.c predict/toy.c)
if(TARGET weir-engine-gguf AND TARGET weir-engine-onnx)
  weir_test(predict-engines predict/engines.c gguf/writer.c LABELS engine
    ENVIRONMENT WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir)
  add_dependencies(test-predict-engines weir-engine-gguf weir-engine-onnx)
endif()
# Many generated models, none of which takes more than a tenth beyond what was predicted before its first load.
if(TARGET weir-engine-gguf AND TARGET weir-engine-onnx AND NOT WEIR_SANITIZE AND EXISTS ${WEIR_STORE_PATH}/venv/bin/python)
  set(under_environment "WEIR_LIBRARY=$<TARGET_FILE:weir>;WEIR_ENGINE_PATH=${PROJECT_BINARY_DIR}/lib/weir;WEIR_HOME=${WEIR_STORE_PATH}"
    "WEIR_TEST_SOURCE=${PROJECT_SOURCE_DIR}")
  set(under ${WEIR_STORE_PATH}/venv/bin/python -B ${CMAKE_CURRENT_LIST_DIR}/under.py)
  add_test(NAME predict-under COMMAND ${under} 8)
  set_tests_properties(predict-under PROPERTIES LABELS engine ENVIRONMENT "${under_environment}")
  add_test(NAME predict-under-long COMMAND ${under} 500)
  set_tests_properties(predict-under-long PROPERTIES LABELS "engine;long" ENVIRONMENT "${under_environment}")
endif()
