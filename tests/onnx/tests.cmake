# The engine onnx. Its tests link the engine's objects, so that they can look inside and drive ONNX Runtime by the same table.
set(WEIR_ORT_HEADERS "" CACHE PATH "Directory of onnxruntime_c_api.h, to check weir's own declarations")

function(weir_onnx_test name)
  weir_test(onnx-${name} ${ARGN})
  target_link_libraries(test-onnx-${name} PRIVATE weir_onnx_objects Threads::Threads)
  target_include_directories(test-onnx-${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/onnx)
  set_tests_properties(onnx-${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

if(TARGET weir_onnx_objects)
  find_path(ORT_HEADERS onnxruntime_c_api.h HINTS ${WEIR_ORT_HEADERS} PATH_SUFFIXES onnxruntime onnxruntime/core/session)
  set(common ${CMAKE_CURRENT_LIST_DIR}/common.c ${CMAKE_CURRENT_LIST_DIR}/plain.c ${CMAKE_CURRENT_LIST_DIR}/written.c)
  foreach(name format checked run memory hostile uses)
    weir_onnx_test(${name} ${CMAKE_CURRENT_LIST_DIR}/${name}.c ${common})
  endforeach()
  weir_onnx_test(foreseen ${CMAKE_CURRENT_LIST_DIR}/foreseen.c ${CMAKE_CURRENT_LIST_DIR}/rewritten.c ${common})
  target_link_options(test-onnx-checked PRIVATE -Wl,--wrap=onnx_check,--wrap=onnx_foresee_now,--wrap=clock_gettime)
  weir_onnx_test(library ${CMAKE_CURRENT_LIST_DIR}/library.c ${common})
  add_library(onnx-made-library MODULE ${CMAKE_CURRENT_LIST_DIR}/made_library.c)
  target_include_directories(onnx-made-library PRIVATE ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(onnx-made-library PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_dependencies(test-onnx-library onnx-made-library)
  # Through libweir's own door: the plug-in is found, opened and used as a program would.
  weir_test(onnx-plugin ${CMAKE_CURRENT_LIST_DIR}/plugin.c)
  set_tests_properties(onnx-plugin PROPERTIES SKIP_RETURN_CODE 77)
  add_dependencies(test-onnx-plugin weir-engine-onnx)
  # Damaged files again, of the real sentence encoder.
  add_test(NAME onnx-hostile-minilm COMMAND test-onnx-hostile ${WEIR_STORE_PATH}/models/minilm.onnx 200)
  set_tests_properties(onnx-hostile-minilm PROPERTIES SKIP_RETURN_CODE 77 LABELS long)
  # On the stub of CUDA, where the store has ONNX Runtime's build for it.
  include(${PROJECT_SOURCE_DIR}/tests/stub/tests.cmake)
  weir_onnx_test(device ${CMAKE_CURRENT_LIST_DIR}/device.c ${common}
                 ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${WEIR_STUB}/cuda")
  target_link_options(test-onnx-device PRIVATE -Wl,--wrap=weir_copy,--wrap=weir_capture_begin)
  add_dependencies(test-onnx-device stub-provider)
  weir_onnx_test(concurrency ${CMAKE_CURRENT_LIST_DIR}/concurrency.c ${CMAKE_CURRENT_LIST_DIR}/watch.c ${common}
                 ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${WEIR_STUB}/cuda")
  add_dependencies(test-onnx-concurrency stub-provider)
  weir_onnx_test(two ${CMAKE_CURRENT_LIST_DIR}/two.c ${CMAKE_CURRENT_LIST_DIR}/watch.c ${PROJECT_SOURCE_DIR}/tests/devices/two.c ${common}
                 ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_DEVICES=2")
  add_dependencies(test-onnx-two stub-provider)
  weir_onnx_test(tensorrt ${CMAKE_CURRENT_LIST_DIR}/gpu/tensorrt.c ${common}
                 ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${WEIR_STUB}/cuda:${WEIR_STUB}/tensorrt")
  add_dependencies(test-onnx-tensorrt stub-provider stub-nvinfer stub-nvonnxparser)
  # Providers, where the store has the builds for them: CUDA's over the stub. And a library that needs version 3 of another, where
  # version 2 is.
  weir_onnx_test(providers ${CMAKE_CURRENT_LIST_DIR}/providers.c ${common}
                 ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda")
  set(watch ${CMAKE_CURRENT_LIST_DIR}/watch.c ${common})
  weir_onnx_test(threads ${CMAKE_CURRENT_LIST_DIR}/threads.c ${watch})
  weir_onnx_test(several ${CMAKE_CURRENT_LIST_DIR}/several.c ${watch})
  weir_onnx_test(cores ${CMAKE_CURRENT_LIST_DIR}/cores.c ${watch})
  weir_onnx_test(turns ${CMAKE_CURRENT_LIST_DIR}/turns.c ${watch})
  weir_onnx_test(line ${CMAKE_CURRENT_LIST_DIR}/line.c ${watch})
  target_link_options(test-onnx-line PRIVATE
    -Wl,--wrap=weir_alloc_with,--wrap=clock_gettime,--wrap=pthread_cond_timedwait,--wrap=onnx_strike)
  add_test(NAME onnx-line-device COMMAND test-onnx-line)
  set_tests_properties(onnx-line-device PROPERTIES SKIP_RETURN_CODE 77 LABELS engine
                       ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${WEIR_STUB}/cuda")
  add_dependencies(test-onnx-line stub-provider)
  weir_onnx_test(join ${CMAKE_CURRENT_LIST_DIR}/join.c ${common})
  target_link_options(test-onnx-join PRIVATE -Wl,--wrap=clock_gettime,--wrap=pthread_cond_timedwait)
  weir_onnx_test(weights ${CMAKE_CURRENT_LIST_DIR}/weights.c ${common})
  foreach(call wi_interpose_open wi_interpose_apply wi_pointer_map_put weir_alloc_with weir_free)
    target_link_options(test-onnx-weights PRIVATE -Wl,--wrap=${call})
  endforeach()
  weir_onnx_test(sessions ${CMAKE_CURRENT_LIST_DIR}/sessions.c ${watch})
  target_link_options(test-onnx-sessions PRIVATE -Wl,--wrap=onnx_level_right)
  weir_onnx_test(buckets ${CMAKE_CURRENT_LIST_DIR}/buckets.c ${watch})
  target_link_options(test-onnx-buckets PRIVATE -Wl,--wrap=onnx_seconds)
  add_test(NAME onnx-buckets-device COMMAND test-onnx-buckets)
  set_tests_properties(onnx-buckets-device PROPERTIES SKIP_RETURN_CODE 77 LABELS engine
                       ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${WEIR_STUB}/cuda")
  add_dependencies(test-onnx-buckets stub-provider)
  weir_onnx_test(made ${CMAKE_CURRENT_LIST_DIR}/made.c ${watch})
  foreach(call weir_stream_acquire weir_stream_release weir_onnxruntime_create weir_onnxruntime_destroy onnx_weights_begin onnx_weights_end
               malloc calloc realloc strdup free pthread_create)
    target_link_options(test-onnx-made PRIVATE -Wl,--wrap=${call})
  endforeach()
  add_test(NAME onnx-made-device COMMAND test-onnx-made)
  set_tests_properties(onnx-made-device PROPERTIES SKIP_RETURN_CODE 77 LABELS engine
                       ENVIRONMENT "WEIR_TEST_DEVICE=cuda:0;LD_LIBRARY_PATH=${WEIR_STUB}/cuda")
  add_dependencies(test-onnx-made stub-provider)
  set(needs ${PROJECT_BINARY_DIR}/tests/needs)
  add_library(onnx-needed SHARED ${CMAKE_CURRENT_LIST_DIR}/needed.c)
  set_target_properties(onnx-needed PROPERTIES SOVERSION 3 LIBRARY_OUTPUT_DIRECTORY ${needs}/there)
  add_library(onnx-needing MODULE ${CMAKE_CURRENT_LIST_DIR}/needing.c)
  target_link_libraries(onnx-needing PRIVATE onnx-needed)
  set_target_properties(onnx-needing PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${needs} BUILD_WITH_INSTALL_RPATH ON
                        INSTALL_RPATH "$ORIGIN/other")
  # Its own name is all but a folder as an RPATH has it, which a test makes of it.
  target_link_options(onnx-needing PRIVATE -Wl,--enable-new-dtags -Wl,-soname,+{ORIGIN}/there)
  file(WRITE ${needs}/other/libonnx-needed.so.2 "")
  target_compile_definitions(test-onnx-providers PRIVATE PARTLY="types")
  target_link_options(test-onnx-providers PRIVATE -Wl,--wrap=opendir,--wrap=clock_gettime)
  add_dependencies(test-onnx-providers stub-provider onnx-needing)
  # An ONNX Runtime of the system's, by the name inside that all builds have.
  set(system ${PROJECT_BINARY_DIR}/tests/system)
  add_library(onnx-system-library SHARED ${CMAKE_CURRENT_LIST_DIR}/system_library.c)
  target_include_directories(onnx-system-library PRIVATE ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(onnx-system-library PROPERTIES OUTPUT_NAME onnxruntime SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${system})
  weir_onnx_test(system ${CMAKE_CURRENT_LIST_DIR}/system.c ${common} ENVIRONMENT "LD_LIBRARY_PATH=${system}")
  target_link_options(test-onnx-system PRIVATE -Wl,--wrap=open)
  # Its path is an RPATH, as linkers made them before there was RUNPATH.
  add_library(onnx-needing-before MODULE ${CMAKE_CURRENT_LIST_DIR}/needing.c)
  target_link_libraries(onnx-needing-before PRIVATE onnx-needed)
  set_target_properties(onnx-needing-before PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${needs} BUILD_WITH_INSTALL_RPATH ON
                        INSTALL_RPATH "$ORIGIN/other")
  target_link_options(onnx-needing-before PRIVATE -Wl,--disable-new-dtags)
  file(WRITE ${system}/libonnx-needed.so.1 "")
  add_dependencies(test-onnx-system onnx-system-library onnx-needing onnx-needing-before)
  # Where another ONNX Runtime's providers are in the process already.
  weir_onnx_test(alien ${CMAKE_CURRENT_LIST_DIR}/alien.c ${common} ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda")
  set_target_properties(test-onnx-alien PROPERTIES ENABLE_EXPORTS ON)
  add_dependencies(test-onnx-alien stub-provider)
  # Against ONNX Runtime's own arena, on a GPU (scripts/gpu-onnx runs that); on the CPU what goes there too.
  set(gpu ${CMAKE_CURRENT_LIST_DIR}/gpu)
  add_executable(test-onnx-gpu ${gpu}/gpu.c ${gpu}/speed.c ${gpu}/serve.c ${gpu}/faults.c ${gpu}/delayed.c ${gpu}/cancel.c ${gpu}/shapes.c ${gpu}/concurrency.c ${gpu}/where.c ${gpu}/left.c
                 ${CMAKE_CURRENT_LIST_DIR}/plain.c ${PROJECT_SOURCE_DIR}/src/cli/run/measure.c
                 ${PROJECT_SOURCE_DIR}/src/cli/cuda_find.c)
  target_compile_definitions(test-onnx-gpu PRIVATE _GNU_SOURCE)
  target_include_directories(test-onnx-gpu PRIVATE ${CMAKE_CURRENT_LIST_DIR} ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(test-onnx-gpu PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(test-onnx-gpu PRIVATE weir weir_onnx_objects Threads::Threads ${CMAKE_DL_LIBS} m)
  set(minilm ${WEIR_STORE_PATH}/models/minilm.onnx)
  foreach(part "hold 4 32 4" "cycles 1 16 20" "refusals 1 16 12" "threads 1 16 10" "graph ${minilm} 6" "delayed ${minilm} 3" "cancel 5" "buckets 32 4 2" "concurrency 1 16 0.4" "witness ${minilm} 6")
    separate_arguments(words UNIX_COMMAND ${part})
    list(POP_FRONT words name)
    add_test(NAME onnx-gpu-${name} COMMAND test-onnx-gpu cuda weir ${name} ${minilm} ${words})
    set_tests_properties(onnx-gpu-${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS engine
      ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x80000000;WEIR_TEST_OUTSIDE=0")
  endforeach()
  # Of the heap nothing may be left by a cycle; what malloc itself keeps differs from run to run by some hundred bytes each.
  foreach(device cuda host)
    set(name onnx-heap)
    set(cycles 500)
    if(device STREQUAL cuda)
      set(name onnx-gpu-heap)
      set(cycles 300) # each is slower
    endif()
    add_test(NAME ${name} COMMAND test-onnx-gpu ${device} weir cycles ${PROJECT_SOURCE_DIR}/tests/data/onnx/chain.onnx 1 16 ${cycles})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS engine
      ENVIRONMENT "LD_LIBRARY_PATH=${WEIR_STUB}/cuda;STUB_CUDA_TOTAL=0x80000000;WEIR_TEST_HEAP_GROWTH=600")
  endforeach()
  add_dependencies(test-onnx-gpu stub-provider)
  include(${CMAKE_CURRENT_LIST_DIR}/left/left.cmake)
  # onnx's own node tests: an eighth of them, and all. Of operators that no release of ONNX has yet, too.
  if(EXISTS ${WEIR_STORE_PATH}/venv/bin/python)
    set(cases ${PROJECT_BINARY_DIR}/tests/backend)
    set(released ALLOW_RELEASED_ONNX_OPSET_ONLY=0)
    weir_onnx_test(backend ${CMAKE_CURRENT_LIST_DIR}/backend.c ${common} ENVIRONMENT "WEIR_TEST_CASES=${cases}-part;${released}")
    add_test(NAME onnx-backend-all COMMAND test-onnx-backend ${cases}-all)
    set_tests_properties(onnx-backend-all PROPERTIES SKIP_RETURN_CODE 77 LABELS long ENVIRONMENT ${released}
                         FIXTURES_REQUIRED backend-all)
    set_tests_properties(onnx-backend PROPERTIES FIXTURES_REQUIRED backend-part)
    set(make_cases ${WEIR_STORE_PATH}/venv/bin/python ${CMAKE_CURRENT_LIST_DIR}/backend.py ${cases})
    add_test(NAME onnx-backend-cases COMMAND ${make_cases}-part 8)
    set_tests_properties(onnx-backend-cases PROPERTIES FIXTURES_SETUP backend-part)
    # Random graphs that the optimizer turns about.
    add_test(NAME onnx-turned COMMAND test-onnx-backend ${cases}-turned)
    set_tests_properties(onnx-turned PROPERTIES SKIP_RETURN_CODE 77 LABELS engine FIXTURES_REQUIRED turned)
    add_test(NAME onnx-turned-cases COMMAND ${WEIR_STORE_PATH}/venv/bin/python -B ${CMAKE_CURRENT_LIST_DIR}/turned.py ${cases}-turned 200)
    set_tests_properties(onnx-turned-cases PROPERTIES FIXTURES_SETUP turned)
    add_test(NAME onnx-backend-all-cases COMMAND ${make_cases}-all)
    set_tests_properties(onnx-backend-all-cases PROPERTIES FIXTURES_SETUP backend-all LABELS long)
  endif()
  weir_onnx_test(slots ${CMAKE_CURRENT_LIST_DIR}/slots.c)
  if(ORT_HEADERS)
    target_compile_definitions(test-onnx-slots PRIVATE HAVE_ORT_HEADER)
    target_include_directories(test-onnx-slots SYSTEM PRIVATE ${ORT_HEADERS})
  endif()
endif()
