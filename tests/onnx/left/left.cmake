# Who leaves what on the host: a library to be preloaded, its tests with a leak that is there on purpose, and what cycles of a model
# leave over the stub of CUDA's libraries. Sanitizers have a malloc of their own.
if(WEIR_SANITIZE)
  return()
endif()
set(left ${CMAKE_CURRENT_LIST_DIR})
add_library(onnx-left MODULE ${left}/hooks.c ${left}/tables.c ${left}/libraries.c ${left}/process.c ${left}/report.c)
add_library(onnx-left-planted SHARED ${left}/planted.c)
add_library(onnx-left-planting MODULE ${left}/planting.c)
target_link_libraries(onnx-left-planting PRIVATE onnx-left-planted ${CMAKE_DL_LIBS})
target_include_directories(onnx-left-planting PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(onnx-left PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
foreach(library onnx-left onnx-left-planted onnx-left-planting)
  target_compile_definitions(${library} PRIVATE _GNU_SOURCE)
  set_target_properties(${library} PROPERTIES C_VISIBILITY_PRESET default LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endforeach()

weir_onnx_test(left ${left}/test.c)
add_dependencies(test-onnx-left onnx-left onnx-left-planting)
set_tests_properties(onnx-left PROPERTIES
  ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:onnx-left>;LEFT_TO=${PROJECT_BINARY_DIR}/tests/onnx-left.txt")

# A hundred cycles go before: from the 66th client on, records of closed ones serve again. What ONNX Runtime leaves by itself takes
# as long, and seldom changes.
add_dependencies(test-onnx-gpu onnx-left onnx-left-planting)
set(cycles cycles ${PROJECT_SOURCE_DIR}/tests/data/onnx/chain.onnx 1 16)
foreach(how weir plain)
  add_test(NAME onnx-left-${how} COMMAND test-onnx-gpu cuda ${how} ${cycles} 240)
  set_tests_properties(onnx-left-${how} PROPERTIES SKIP_RETURN_CODE 77 LABELS engine
    ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:onnx-left>;WEIR_TEST_LEFT_GROWTH=1024;LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x80000000")
endforeach()
set_property(TEST onnx-left-plain APPEND PROPERTY LABELS long)
add_test(NAME onnx-left-found COMMAND test-onnx-gpu cuda weir ${cycles} 30)
set_tests_properties(onnx-left-found PROPERTIES SKIP_RETURN_CODE 77 LABELS engine
  PASS_REGULAR_EXPRESSION " 1000.0     1.00  malloc  libonnx-left-planted.so < libonnx-left-planting.so"
  ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:onnx-left>:$<TARGET_FILE:onnx-left-planting>;LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x80000000")
